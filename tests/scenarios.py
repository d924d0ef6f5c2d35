"""Runs of small graphs, written down so that any saver can be taken through them."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, TypedDict
from uuid import UUID

import pytest
from graphs import THREAD, FailOnce, Trail, approval, ask, chain, step
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Overwrite, Send, StateUpdate, interrupt


@dataclass(frozen=True, slots=True)
class Invoke:
    """Run the graph on `data`, or on what it returns for the state it is called with."""

    data: Any
    back: int | None = None  # from that many checkpoints before the latest
    fails: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """Change the state by hand."""

    values: Any
    as_node: str | None = None
    back: int | None = None


@dataclass(frozen=True, slots=True)
class Bulk:
    """Change the state by hand, several steps at once."""

    supersteps: list[list[StateUpdate]]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    build: Callable[[Any], Any]  # from a saver to a graph
    script: tuple[Invoke | Update | Bulk, ...]
    # In order, so that which tasks are done when one of them fails is no accident.
    one_task_at_a_time: bool = False
    durabilities: tuple[str, ...] = ("sync", "async", "exit")

    @property
    def limits(self) -> dict[str, Any]:
        return {"max_concurrency": 1} if self.one_task_at_a_time else {}


def play(graph: Any, scenario: Scenario, durability: str) -> None:
    for act in scenario.script:
        config = THREAD
        if getattr(act, "back", None) is not None:
            config = list(graph.get_state_history(THREAD))[act.back].config
        if isinstance(act, Update):
            graph.update_state(config, act.values, act.as_node)
        elif isinstance(act, Bulk):
            graph.bulk_update_state(config, act.supersteps)
        else:
            data = act.data(graph.get_state(config)) if callable(act.data) else act.data
            if act.fails:
                with pytest.raises(RuntimeError):
                    graph.invoke(data, {**scenario.limits, **config}, durability=durability)
            else:
                graph.invoke(data, {**scenario.limits, **config}, durability=durability)


async def play_async(graph: Any, scenario: Scenario, durability: str) -> None:
    for act in scenario.script:
        config = THREAD
        if getattr(act, "back", None) is not None:
            config = [found async for found in graph.aget_state_history(THREAD)][act.back].config
        if isinstance(act, Update):
            await graph.aupdate_state(config, act.values, act.as_node)
        elif isinstance(act, Bulk):
            await graph.abulk_update_state(config, act.supersteps)
        else:
            data = act.data(await graph.aget_state(config)) if callable(act.data) else act.data
            if act.fails:
                with pytest.raises(RuntimeError):
                    await graph.ainvoke(data, {**scenario.limits, **config}, durability=durability)
            else:
                await graph.ainvoke(data, {**scenario.limits, **config}, durability=durability)


# -- graphs


def three_nodes(saver: Any) -> Any:
    return chain(step("a"), step("b"), step("c")).compile(saver)


def stops_before_b(saver: Any) -> Any:
    return chain(step("a"), step("b"), step("c")).compile(
        saver, interrupt_before=["b"], interrupt_after=["b"]
    )


def loop(saver: Any) -> Any:
    class State(TypedDict):
        number: int
        seen: Annotated[list[int], operator.add]

    builder = StateGraph(State)
    builder.add_node("grow", lambda s: {"number": s["number"] + 1, "seen": [s["number"]]})
    builder.add_edge(START, "grow")
    builder.add_conditional_edges("grow", lambda s: "grow" if s["number"] < 5 else END)
    return builder.compile(saver)


def diamond(saver: Any, *, act: Callable[[Any], Any] | None = None) -> Any:
    builder = StateGraph(Trail)
    builder.add_node("join", step("join"))
    for name in ("left", "middle", "right"):
        builder.add_node(name, step(name, act=act if name == "right" else None))
        builder.add_edge(START, name)
        builder.add_edge(name, "join")
    builder.add_node("last", step("last"), defer=True)
    builder.add_edge("left", "last")
    builder.add_edge("join", "last")
    return builder.compile(saver)


def diamond_that_fails(saver: Any) -> Any:
    return diamond(saver, act=FailOnce())


def barrier(saver: Any) -> Any:
    builder = StateGraph(Trail)
    for name in ("short", "long_a", "long_b", "join"):
        builder.add_node(name, step(name))
    builder.add_edge(START, "short")
    builder.add_edge(START, "long_a")
    builder.add_edge("long_a", "long_b")
    builder.add_edge(["short", "long_b"], "join")
    return builder.compile(saver)


class Work(TypedDict):
    items: list[int]
    done: Annotated[list[int], operator.add]


def fan_out(saver: Any, *, fails_at: int | None = None) -> Any:
    fail = FailOnce()

    def square(task: dict[str, int]) -> dict[str, list[int]]:
        if task["item"] == fails_at:
            fail(task)
        return {"done": [task["item"] ** 2]}

    builder = StateGraph(Work)
    builder.add_node("plan", lambda state: {})
    builder.add_node("square", square)
    builder.add_node("sum", lambda state: {"done": [sum(state["done"])]})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges(
        "plan", lambda state: [Send("square", {"item": item}) for item in state["items"]]
    )
    builder.add_edge("square", "sum")
    return builder.compile(saver)


def fan_out_that_fails(saver: Any) -> Any:
    return fan_out(saver, fails_at=4)


def jumps(saver: Any) -> Any:
    def first(state: Trail) -> Command:
        return Command(update={"trail": ["first"]}, goto=["third", Send("second", {"trail": []})])

    builder = StateGraph(Trail)
    builder.add_node("first", first, destinations=("second", "third"))
    builder.add_node("second", step("second"))
    builder.add_node("third", step("third"))
    builder.add_edge(START, "first")
    return builder.compile(saver)


def two_questions(saver: Any) -> Any:
    def both(state: Trail) -> dict[str, list[str]]:
        return {"trail": [interrupt("name?"), interrupt("age?")]}

    return chain(step("before"), both, step("after")).compile(saver)


def parallel_questions(saver: Any) -> Any:
    builder = StateGraph(Trail)
    builder.add_node("join", step("join"))
    for name in ("left", "right"):
        builder.add_node(name, step(name, act=ask(f"{name}?")))
        builder.add_edge(START, name)
        builder.add_edge(name, "join")
    return builder.compile(saver)


def subgraph(saver: Any, *, checkpointer: bool | None = None) -> Any:
    inner = chain(step("inner_a"), step("inner_b", act=ask("inside?")), step("inner_c"))
    compiled = inner.compile(checkpointer)
    builder = StateGraph(Trail)
    builder.add_node("before", step("before"))
    builder.add_node("inner", compiled)
    builder.add_node("after", step("after"))
    builder.add_edge(START, "before")
    builder.add_edge("before", "inner")
    builder.add_edge("inner", "after")
    return builder.compile(saver)


def remembering_subgraph(saver: Any) -> Any:
    return subgraph(saver, checkpointer=True)


def nested_twice(saver: Any) -> Any:
    innermost = chain(step("deep_a"), step("deep_b", act=ask("how deep?"))).compile()
    middle = StateGraph(Trail)
    middle.add_node("deep", innermost)
    middle.add_node("mid", step("mid"))
    middle.add_edge(START, "deep")
    middle.add_edge("deep", "mid")
    builder = StateGraph(Trail)
    builder.add_node("middle", middle.compile())
    builder.add_node("end", step("end"))
    builder.add_edge(START, "middle")
    builder.add_edge("middle", "end")
    return builder.compile(saver)


def workflow(saver: Any) -> Any:
    @task
    def double(number: int) -> int:
        return number * 2

    @entrypoint(checkpointer=saver)
    def run(number: int, *, previous: int | None = None) -> Any:
        doubled = double(number).result()
        extra = interrupt({"doubled": doubled})
        total = double(extra).result() + doubled + (previous or 0)
        return entrypoint.final(value=f"total {total}", save=total)

    return run


def messages(saver: Any) -> Any:
    def reply(state: MessagesState) -> dict[str, Any]:
        count = len(state["messages"])
        return {"messages": [AIMessage(f"{count} so far", id=f"reply-{count}")]}

    def forget(state: MessagesState) -> dict[str, Any]:
        old = state["messages"][:-2]
        return {"messages": [RemoveMessage(id=message.id) for message in old]}

    return chain(reply, forget, state=MessagesState).compile(saver)


def every_kind_of_value(saver: Any) -> Any:
    class State(TypedDict):
        value: Any
        kept: Any
        scratch: Annotated[Any, UntrackedValue]

    values = [
        None, False, 0, "", [], {}, b"", b"bytes", bytearray(b"array"), "z\0\ud7ff", 2**63, -0.0,
        (1, (2,)), {3}, frozenset({4}), {"a": {1: 2}}, datetime(2026, 1, 2, tzinfo=timezone.utc),
        timedelta(3), Decimal("4.50"), UUID(int=5), HumanMessage("six", id="6"), "x" * 20_000,
    ]  # fmt: skip

    def node(state: State) -> dict[str, Any]:
        at = state.get("scratch") or 0
        return {"value": values[at], "scratch": at + 1}

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_conditional_edges(
        "node", lambda state: "node" if state["scratch"] < len(values) else END
    )
    return builder.compile(saver)


def overwrites(saver: Any) -> Any:
    def reset(state: Trail) -> dict[str, Any]:
        return {"trail": Overwrite(["reset"])}

    return chain(step("a"), reset, step("b")).compile(saver)


def delta(saver: Any) -> Any:
    def extend(value: list[Any], writes: list[list[Any]]) -> list[Any]:
        return [*value, *(item for write in writes for item in write)]

    class State(TypedDict):
        log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]
        turn: int

    builder = StateGraph(State)
    for name in ("a", "b"):
        builder.add_node(name, lambda state, name=name: {"log": [f"{name}{state['turn']}"]})
        builder.add_edge(START, name)
        builder.add_edge(name, "count")
    builder.add_node("count", lambda state: {"turn": state["turn"] + 1})
    builder.add_conditional_edges("count", lambda state: ["a", "b"] if state["turn"] % 4 else END)
    return builder.compile(saver)


def answer_all(state: Any) -> Command:
    return Command(resume={found.id: f"answer to {found.value}" for found in state.interrupts})


def answer_right(state: Any) -> Command:
    right = next(found for found in state.interrupts if found.value == "right?")
    return Command(resume={right.id: "R"})


EMPTY = {"trail": []}
TRAVELS = ("sync", "async")  # with "exit" there is nothing to travel to

SCENARIOS = [
    Scenario("a chain, twice", three_nodes, (Invoke(EMPTY), Invoke({"trail": ["again"]}))),
    Scenario("a loop", loop, (Invoke({"number": 0}), Invoke({"number": 3}))),
    Scenario("parallel nodes", diamond, (Invoke(EMPTY), Invoke(EMPTY))),
    Scenario(
        "parallel nodes, one fails",
        diamond_that_fails,
        (Invoke(EMPTY, fails=True), Invoke(None), Invoke(EMPTY)),
        one_task_at_a_time=True,
    ),
    Scenario(
        "a join that waits",
        barrier,
        (Invoke(EMPTY), Invoke(EMPTY)),
        # LangGraph puts the barrier's live set in the background and goes on changing it, so with
        # "async" what is stored depends on who is faster.
        durabilities=("sync", "exit"),
    ),
    Scenario("a fan-out", fan_out, (Invoke({"items": [1, 2, 3]}), Invoke({"items": []}))),
    Scenario(
        "a fan-out, one fails",
        fan_out_that_fails,
        (Invoke({"items": [1, 2, 3, 4]}, fails=True), Invoke(None)),
        one_task_at_a_time=True,
    ),
    Scenario("Command with goto", jumps, (Invoke(EMPTY),)),
    Scenario(
        "static interrupts",
        stops_before_b,
        (Invoke(EMPTY), Update({"trail": ["by hand"]}), Invoke(None), Invoke(None)),
    ),
    Scenario(
        "an interrupt",
        approval_graph := lambda saver: approval().compile(saver),
        (Invoke(EMPTY), Invoke(Command(resume="yes"))),
    ),
    Scenario(
        "an interrupt, left alone",
        approval_graph,
        (Invoke(EMPTY), Invoke({"trail": ["never mind"]}), Invoke(Command(resume="yes"))),
    ),
    Scenario(
        "two interrupts in one node",
        two_questions,
        (Invoke(EMPTY), Invoke(Command(resume="Ada")), Invoke(Command(resume="36"))),
    ),
    Scenario("parallel interrupts", parallel_questions, (Invoke(EMPTY), Invoke(answer_all))),
    Scenario(
        "parallel interrupts, one by one",
        parallel_questions,
        (Invoke(EMPTY), Invoke(answer_right), Invoke(answer_all)),
    ),
    Scenario("a subgraph", subgraph, (Invoke(EMPTY), Invoke(Command(resume="yes")))),
    Scenario(
        "a subgraph that remembers",
        remembering_subgraph,
        (Invoke(EMPTY), Invoke(Command(resume=1)), Invoke(EMPTY), Invoke(Command(resume=2))),
    ),
    Scenario("two subgraphs deep", nested_twice, (Invoke(EMPTY), Invoke(Command(resume="two")))),
    Scenario("a replay", three_nodes, (Invoke(EMPTY), Invoke(None, back=2)), durabilities=TRAVELS),
    Scenario(
        "forks",
        three_nodes,
        (
            Invoke(EMPTY),
            Update({"trail": ["fork 1"]}, as_node="a", back=2),
            Invoke(None),
            Update({"trail": ["fork 2"]}, as_node="b", back=5),
            Invoke(None),
            Invoke({"trail": ["new input"]}, back=1),
        ),
        durabilities=TRAVELS,
    ),
    Scenario(
        "a fork of an answered interrupt",
        approval_graph,
        (
            Invoke(EMPTY),
            Invoke(Command(resume="yes")),
            Invoke(None, back=2),
            Invoke(Command(resume="no")),
        ),
        durabilities=TRAVELS,
    ),
    Scenario(
        "updates by hand",
        three_nodes,
        (
            Update({"trail": ["start"]}, as_node="a"),
            Invoke(None),
            Update({"trail": ["more"]}, as_node="b"),
            Update(None, as_node=END),
            Bulk([[StateUpdate({"trail": ["x"]}, "a")], [StateUpdate({"trail": ["y"]}, "b")]]),
            Invoke(None),
        ),
    ),
    Scenario(
        "the functional API",
        workflow,
        (Invoke(3), Invoke(Command(resume=4)), Invoke(5), Invoke(Command(resume=6))),
    ),
    Scenario(
        "messages",
        messages,
        tuple(Invoke({"messages": [HumanMessage(f"hi {n}", id=f"hi-{n}")]}) for n in range(3)),
    ),
    Scenario(
        "every kind of value",
        every_kind_of_value,
        (Invoke({"value": 1, "kept": {"k": [None]}}),),
    ),
    Scenario("an overwrite", overwrites, (Invoke({"trail": ["gone"]}), Invoke(EMPTY))),
    Scenario(
        "a delta channel",
        delta,
        (
            Invoke({"log": ["start"], "turn": 0}),
            Invoke({"log": ["again"]}),
            Update({"log": ["by hand"]}, as_node="a"),
            Update({"log": Overwrite(["clean"])}, as_node="count"),
            Invoke({"log": ["more"]}),
        ),
    ),
    Scenario(
        "a fork of a delta channel",
        delta,
        (
            Invoke({"log": ["start"], "turn": 0}),
            Invoke({"log": ["fork"]}, back=3),
            Update({"log": ["by hand"]}, as_node="count", back=6),
            Invoke(None),
        ),
        durabilities=TRAVELS,
    ),
]
