"""Streaming, durability modes, serializers and an agent with tools, on real graphs."""

from typing import Any, TypedDict

import pytest
from graphs import THREAD, Runs, chain, plain, run_with_graphs, step
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from support import id_of

from logsaver import LogSaver, Undecodable, ValueDecodeError


def abc(saver, runs=None, act=None):
    return chain(step("a", runs), step("b", runs, act), step("c", runs)).compile(saver)


# -- streaming


@pytest.mark.parametrize("mode", ["values", "updates", "tasks", ["values", "updates"]])
def test_a_stream_says_what_it_says_on_memory(saver, mode):
    expected = list(abc(InMemorySaver()).stream({"trail": ["in"]}, THREAD, stream_mode=mode))
    found = list(abc(saver).stream({"trail": ["in"]}, THREAD, stream_mode=mode))
    if mode == "tasks":  # the ids of tasks are made of those of checkpoints
        expected, found = ([{**event, "id": None} for event in told] for told in (expected, found))
    assert found == expected
    assert abc(saver).get_state(THREAD).values == {"trail": ["in", "a", "b", "c"]}


@pytest.mark.parametrize("mode", ["checkpoints", "debug"])
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_the_checkpoints_of_a_stream_are_those_in_the_log(saver, mode, durability):
    events = abc(saver).stream({"trail": []}, THREAD, stream_mode=mode, durability=durability)
    if mode == "debug":
        events = [event["payload"] for event in events if event["type"] == "checkpoint"]
    streamed = [(id_of(event["config"]), event["values"]) for event in events]
    history = list(abc(saver).get_state_history(THREAD))[::-1]
    assert streamed == [(id_of(found.config), found.values) for found in history]
    assert len(streamed) == 5


async def test_an_async_stream_says_what_is_in_the_log(saver):
    graph = abc(saver)
    modes = ["values", "updates", "checkpoints"]
    events = {mode: [] for mode in modes}
    async for mode, event in graph.astream({"trail": []}, THREAD, stream_mode=modes):
        events[mode].append(event)
    assert events["updates"] == [{name: {"trail": [name]}} for name in "abc"]
    assert events["values"][-1] == {"trail": ["a", "b", "c"]}
    history = [id_of(found.config) async for found in graph.aget_state_history(THREAD)]
    assert [id_of(event["config"]) for event in events["checkpoints"]] == history[::-1]


def test_a_stream_that_was_dropped_goes_on_where_it_stopped(path):
    """The first node's writes are in the log, the checkpoint that takes them in is not."""
    runs = Runs()
    with LogSaver(path) as saver:
        stream = abc(saver, runs).stream({"trail": []}, THREAD, stream_mode="updates")
        assert next(stream) == {"a": {"trail": ["a"]}}
        stream.close()
    with LogSaver(path) as saver:
        graph = abc(saver, runs)
        assert graph.invoke(None, THREAD) == {"trail": ["a", "b", "c"]}
    assert runs.counts() == {"a": 1, "b": 1, "c": 1}


def test_a_stream_of_an_interrupted_graph_ends_with_the_question(path):
    with LogSaver(path) as saver:
        graph = abc(saver, act=lambda state: interrupt("sure?"))
        *_, last = graph.stream({"trail": []}, THREAD, stream_mode="updates")
        assert plain(last) == {"__interrupt__": (("interrupt", "sure?"),)}
    with LogSaver(path) as saver:
        graph = abc(saver, act=lambda state: interrupt("sure?"))
        events = list(graph.stream(Command(resume="yes"), THREAD, stream_mode="updates"))
    assert events == [{"b": {"trail": ["b:yes"]}}, {"c": {"trail": ["c"]}}]


# -- durability

DURABILITIES = [("sync", 5), ("async", 5), ("exit", 1)]


@pytest.mark.parametrize(("durability", "checkpoints"), DURABILITIES)
def test_invoke_stores_the_checkpoints_of_its_durability_mode(path, durability, checkpoints):
    expected = abc(InMemorySaver()).invoke({"trail": []}, THREAD)
    with LogSaver(path) as saver:
        graph = abc(saver)
        assert graph.invoke({"trail": []}, THREAD, durability=durability) == expected
        assert saver.stats().checkpoints == checkpoints
        if durability != "async":
            assert saver.stats().synced_bytes == saver.stats().bytes
    with LogSaver(path) as saver:
        graph = abc(saver)
        assert graph.get_state(THREAD).values == expected
        assert graph.get_state(THREAD).next == ()
        assert len(list(graph.get_state_history(THREAD))) == checkpoints


@pytest.mark.parametrize(("durability", "checkpoints"), DURABILITIES)
async def test_ainvoke_stores_the_checkpoints_of_its_durability_mode(path, durability, checkpoints):
    expected = await abc(InMemorySaver()).ainvoke({"trail": []}, THREAD)
    async with LogSaver(path) as saver:
        graph = abc(saver)
        assert await graph.ainvoke({"trail": []}, THREAD, durability=durability) == expected
        assert saver.stats().checkpoints == checkpoints
        if durability != "async":
            assert saver.stats().synced_bytes == saver.stats().bytes
    async with LogSaver(path) as saver:
        graph = abc(saver)
        assert (await graph.aget_state(THREAD)).values == expected
        assert len([found async for found in graph.aget_state_history(THREAD)]) == checkpoints


def look_at_storage(saver, seen):
    """An act that notes the latest checkpoint's step, and whether it is on stable storage."""

    def look(state):
        found = saver.get_tuple(THREAD)
        if found is None:
            seen.append(None)
            return
        store = saver._handle.store
        entry = store.index.namespace("t", "").listed[id_of(found.config)]
        seen.append(
            (found.metadata["step"], entry.offset + entry.size <= store.log.committer.synced)
        )

    return look


async def test_a_sync_step_starts_when_the_one_before_is_on_stable_storage(path):
    seen = []
    async with LogSaver(path) as saver:
        graph = abc(saver, act=look_at_storage(saver, seen))
        graph.invoke({"trail": []}, THREAD, durability="sync")
        await graph.ainvoke({"trail": []}, THREAD, durability="sync")
    assert seen == [(1, True), (6, True)]


async def test_an_update_by_hand_is_on_stable_storage_when_it_returns(path):
    """Nobody runs it in the background, so there is nobody to wait for it later."""
    async with LogSaver(path) as saver:
        graph = abc(saver)
        graph.update_state(THREAD, {"trail": ["by hand"]}, as_node="a")
        assert saver.stats().synced_bytes == saver.stats().bytes
        await graph.aupdate_state(THREAD, {"trail": ["again"]}, as_node="a")
        assert saver.stats().synced_bytes == saver.stats().bytes


def test_an_exit_run_stores_nothing_on_its_way_and_everything_when_it_fails(path):
    seen = []

    def look_and_fail(state):
        look_at_storage(saver, seen)(state)
        raise RuntimeError("the node failed")

    with LogSaver(path) as saver:
        with pytest.raises(RuntimeError, match="the node failed"):
            abc(saver, act=look_and_fail).invoke({"trail": []}, THREAD, durability="exit")
        assert seen == [None]
        assert saver.stats().synced_bytes == saver.stats().bytes
    runs = Runs()
    with LogSaver(path) as saver:
        graph = abc(saver, runs)
        assert graph.get_state(THREAD).next == ("b",)
        assert graph.invoke(None, THREAD, durability="exit") == {"trail": ["a", "b", "c"]}
        assert saver.stats().checkpoints == 2
    assert runs.counts() == {"b": 1, "c": 1}


# -- serializers


class Grid:
    """A class that no serializer knows; pickle does."""

    def __init__(self, cells):
        self.cells = cells

    def __eq__(self, other):
        return isinstance(other, Grid) and self.cells == other.cells

    __hash__ = None


class Board(TypedDict):
    grid: Any
    turn: int


def board(saver):
    builder = StateGraph(Board)
    builder.add_node("move", lambda state: {"grid": Grid([*state["grid"].cells, 0])})
    builder.add_node("count", lambda state: {"turn": state["turn"] + 1})
    builder.add_edge(START, "move")
    builder.add_edge("move", "count")
    return builder.compile(saver)


def test_a_value_that_only_pickle_knows_comes_back(path):
    serde = JsonPlusSerializer(pickle_fallback=True)
    assert serde.dumps_typed(Grid([1]))[0] == "pickle"
    with LogSaver(path, serde=serde) as saver:
        board(saver).invoke({"grid": Grid([1]), "turn": 0}, THREAD)
    with LogSaver(path, serde=serde) as saver:
        graph = board(saver)
        assert graph.get_state(THREAD).values == {"grid": Grid([1, 0]), "turn": 1}
        state = graph.invoke({"turn": 5}, THREAD)
        assert state == {"grid": Grid([1, 0, 0]), "turn": 6}
        grids = [found.values.get("grid") for found in graph.get_state_history(THREAD)]
        assert grids[:2] == [Grid([1, 0, 0])] * 2


def test_without_the_fallback_a_pickled_value_is_an_error_where_it_is_used(path):
    with LogSaver(path, serde=JsonPlusSerializer(pickle_fallback=True)) as saver:
        board(saver).invoke({"grid": Grid([1]), "turn": 0}, THREAD)
    with LogSaver(path) as saver:
        with pytest.raises(ValueDecodeError, match=r"'grid'.*open the log with the serializer"):
            board(saver).get_state(THREAD)
        latest = next(saver.list(THREAD)).checkpoint["channel_values"]
        assert latest["turn"] == 1
        assert isinstance(latest["grid"], Undecodable)


STRICT = """
    import sys
    from dataclasses import dataclass
    from typing import TypedDict
    from graphs import THREAD
    from langgraph.graph import START, StateGraph
    from langgraph.types import Command, interrupt
    from logsaver import LogSaver
    from pydantic import BaseModel

    @dataclass
    class Place:
        name: str

    class Person(BaseModel):
        name: str
        home: Place

    @dataclass
    class Stranger:
        name: str

    class State(TypedDict):
        person: Person
        places: list[Place]

    def move(state):
        there = Place(interrupt("where to?"))
        person = state["person"].model_copy(update={"home": there})
        return {"person": person, "places": [*state["places"], there]}

    builder = StateGraph(State)
    builder.add_node("move", move)
    builder.add_edge(START, "move")
    saver = LogSaver(sys.argv[1])
    graph = builder.compile(saver)
    assert graph.checkpointer is not saver
"""

STRICT_START = f"""{STRICT}
    home = Place("home")
    graph.invoke({{"person": Person(name="Ada", home=home), "places": [home]}}, THREAD)
    graph.update_state({{"configurable": {{"thread_id": "other"}}}}, {{"person": Stranger("?")}})
"""

STRICT_RESUME = f"""{STRICT}
    state = graph.invoke(Command(resume="away"), THREAD)
    expected = {{
        "person": Person(name="Ada", home=Place("away")),
        "places": [Place("home"), Place("away")],
    }}
    assert state == expected, state
    assert graph.get_state(THREAD).values == expected
    oldest = list(graph.get_state_history(THREAD))[-2]
    assert oldest.values["places"] == [Place("home")], oldest

    # Strict means strict: without the schema's types, and for a type that is not in it.
    raw = saver.get_tuple(THREAD).checkpoint["channel_values"]["person"]
    assert not isinstance(raw, Person), raw
    stranger = graph.get_state({{"configurable": {{"thread_id": "other"}}}}).values["person"]
    assert not isinstance(stranger, Stranger), stranger

    # The clone that the graph uses and the saver it came from are one log.
    graph.checkpointer.delete_thread("t")
    assert saver.get_tuple(THREAD) is None
    saver.close()
    try:
        graph.get_state(THREAD)
    except Exception as error:
        print(type(error).__name__)
"""


def test_strict_msgpack_reads_back_what_the_schema_declares_and_nothing_else(path):
    run_with_graphs(STRICT_START, path, LANGGRAPH_STRICT_MSGPACK="true")
    found = run_with_graphs(STRICT_RESUME, path, LANGGRAPH_STRICT_MSGPACK="true")
    assert found.stdout.split() == ["ClosedLogError"]


# -- an agent with tools


class Script(GenericFakeChatModel):
    """A chat model that says its lines and keeps what it was told."""

    heard: list[Any] = []  # noqa: RUF012 - pydantic copies it for every model

    def _generate(self, messages, *args, **kwargs):
        self.heard.append([message.type for message in messages])
        return super()._generate(messages, *args, **kwargs)


def call(name, call_id, **args):
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": call_id}])


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def send_mail(to: str) -> str:
    """Send mail, if a human agrees."""
    return f"sent to {to}" if interrupt({"mail to": to}) == "yes" else "not sent"


def agent(saver, *lines):
    model = Script(messages=iter(lines))
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([add, send_mail]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(saver), model


def ask_agent(graph, text):
    return graph.invoke({"messages": [HumanMessage(text)]}, THREAD)["messages"]


def test_an_agent_remembers_its_tool_calls_over_turns_and_restarts(path):
    with LogSaver(path) as saver:
        graph, _ = agent(saver, call("add", "1", a=2, b=3), AIMessage("It is 5."))
        said = ask_agent(graph, "What is 2 + 3?")
        assert [message.type for message in said] == ["human", "ai", "tool", "ai"]
    with LogSaver(path) as saver:
        both = AIMessage("", tool_calls=[
            {"name": "add", "args": {"a": 5, "b": n}, "id": f"plus {n}"} for n in (1, 2)
        ])  # fmt: skip
        graph, model = agent(saver, both, AIMessage("6 and 7."), AIMessage("Goodbye."))
        ask_agent(graph, "And plus one, plus two?")
        assert model.heard[0] == ["human", "ai", "tool", "ai", "human"]
        said = ask_agent(graph, "Bye.")
    assert [message.content for message in said] == [
        "What is 2 + 3?", "", "5", "It is 5.",
        "And plus one, plus two?", "", "6", "7", "6 and 7.",
        "Bye.", "Goodbye.",
    ]  # fmt: skip
    tools = [message for message in said if isinstance(message, ToolMessage)]
    assert [message.tool_call_id for message in tools] == ["1", "plus 1", "plus 2"]
    with LogSaver(path) as saver:
        assert agent(saver)[0].get_state(THREAD).values["messages"] == said


@pytest.mark.parametrize(("answer", "outcome"), [("yes", "sent to Ada"), ("no", "not sent")])
def test_a_tool_that_asks_a_human_is_answered_after_a_restart(path, answer, outcome):
    with LogSaver(path) as saver:
        graph, _ = agent(saver, call("send_mail", "1", to="Ada"))
        ask_agent(graph, "Write to Ada.")
    with LogSaver(path) as saver:
        graph, model = agent(saver, AIMessage("Done."))
        (asked,) = graph.get_state(THREAD).interrupts
        assert asked.value == {"mail to": "Ada"}
        said = graph.invoke(Command(resume=answer), THREAD)["messages"]
    assert [message.content for message in said] == ["Write to Ada.", "", outcome, "Done."]
    assert len(model.heard) == 1
