"""DeltaChannel: the state of a step is rebuilt from the writes of the steps before it."""

from typing import Annotated, Any, TypedDict

import pytest
from graphs import THREAD, FailOnce, tell_history
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite, interrupt
from support import make_config

from logsaver import LogSaver

FREQUENCY = 4
TURNS = 3


def extend(log: list[str], writes: list[list[str]]) -> list[str]:
    return [*log, *(line for write in writes for line in write)]


def merge(facts: dict[str, int], writes: list[dict[str, int]]) -> dict[str, int]:
    return {key: value for part in (facts, *writes) for key, value in part.items()}


class State(TypedDict):
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=FREQUENCY)]
    facts: Annotated[dict[str, int], DeltaChannel(merge, snapshot_frequency=2 * FREQUENCY)]
    turn: int


def diary(saver: Any, write: Any = lambda state: None) -> Any:
    """Three rounds of two parallel writers. `write` stands in for the second one's entry."""

    def first(state: State) -> dict[str, Any]:
        return {"log": [f"first {state['turn']}"]}

    def second(state: State) -> dict[str, Any]:
        entry = write(state)
        return {"log": [f"second {state['turn']}"]} if entry is None else {"log": entry}

    def count(state: State) -> dict[str, Any]:
        turn = state["turn"] + 1
        return {"turn": turn, "facts": {f"lines at {turn}": len(state["log"]), "last": turn}}

    builder = StateGraph(State)
    for node in (first, second):
        builder.add_node(node)
        builder.add_edge(START, node.__name__)
        builder.add_edge(node.__name__, "count")
    builder.add_node(count)
    builder.add_conditional_edges(
        "count", lambda state: ["first", "second"] if state["turn"] % 3 else END
    )
    return builder.compile(saver)


def overwrite_in_turn_four(state: State) -> Overwrite | None:
    return Overwrite(["a clean page"]) if state["turn"] == 4 else None


def run(graph: Any, durability: str = "sync", turns: int = TURNS) -> None:
    for turn in range(turns):
        start = {"turn": 0} if turn == 0 else {}
        graph.invoke({"log": [f"turn {turn}"], **start}, THREAD, durability=durability)


def snapshots(saver: LogSaver) -> int:
    """How many checkpoints hold the whole log."""
    return sum(
        isinstance(found.checkpoint["channel_values"].get("log"), _DeltaSnapshot)
        for found in saver.list(THREAD)
    )


def test_the_value_of_every_step_is_rebuilt_from_writes(path):
    with LogSaver(path) as saver:
        run(diary(saver))
        assert 1 < snapshots(saver) < saver.stats().checkpoints / 2  # rebuilt, not just read
    with LogSaver(path) as saver:
        graph = diary(saver)
        lines = []
        for turn in range(TURNS):
            lines.append(f"turn {turn}")
            for number in range(3 * turn, 3 * turn + 3):
                lines += [f"first {number}", f"second {number}"]
        assert graph.get_state(THREAD).values["log"] == lines
        assert graph.get_state(THREAD).values["facts"]["last"] == 9
        for found in graph.get_state_history(THREAD):
            assert found.values["log"] == lines[: len(found.values["log"])]
            assert graph.get_state(found.config).values == found.values


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize(
    "write", [lambda state: None, overwrite_in_turn_four], ids=["appends", "overwrites"]
)
def test_every_step_has_the_value_that_memory_has(path, durability, write):
    memory = InMemorySaver()
    expected = diary(memory, write)
    run(expected, durability)
    with LogSaver(path) as saver:
        graph = diary(saver, write)
        run(graph, durability)
        assert tell_history(graph, THREAD) == tell_history(expected, THREAD)
    with LogSaver(path) as saver:
        assert tell_history(diary(saver, write), THREAD) == tell_history(expected, THREAD)


async def test_async_calls_rebuild_the_same_values(path):
    expected = diary(InMemorySaver(), overwrite_in_turn_four)
    run(expected)
    async with LogSaver(path) as saver:
        graph = diary(saver, overwrite_in_turn_four)
        await graph.ainvoke({"log": ["turn 0"], "turn": 0}, THREAD)
        await graph.ainvoke({"log": ["turn 1"]}, THREAD)
    async with LogSaver(path) as saver:
        graph = diary(saver, overwrite_in_turn_four)
        await graph.ainvoke({"log": ["turn 2"]}, THREAD)
        found = [state.values async for state in graph.aget_state_history(THREAD)]
    assert found == [state.values for state in expected.get_state_history(THREAD)]


def test_an_overwrite_hides_what_was_before_it(path):
    with LogSaver(path) as saver:
        run(diary(saver, overwrite_in_turn_four), turns=2)
    with LogSaver(path) as saver:
        log = diary(saver).get_state(THREAD).values["log"]
        assert log == ["a clean page", "first 5", "second 5"]
        diary(saver).update_state(THREAD, {"log": Overwrite([])}, as_node="count")
        diary(saver).update_state(THREAD, {"log": ["new"]}, as_node="count")
    with LogSaver(path) as saver:
        assert diary(saver).get_state(THREAD).values["log"] == ["new"]


def test_a_fork_from_any_step_keeps_its_own_lines(path):
    """The writes of the checkpoint it starts from belong to the first branch, not to the fork."""
    with LogSaver(path) as saver:
        run(diary(saver), turns=2)
        history = list(diary(saver).get_state_history(THREAD))
    ends = []
    for number, found in enumerate(history[:-1]):
        with LogSaver(path) as saver:
            graph = diary(saver)
            fork = graph.update_state(found.config, {"log": [f"fork {number}"]}, as_node="count")
            ends.append((number, found, fork))
    with LogSaver(path) as saver:
        graph = diary(saver)
        for number, found, fork in ends:
            assert graph.get_state(fork).values["log"] == [*found.values["log"], f"fork {number}"]
            assert graph.get_state(found.config).values == found.values


def test_a_run_from_an_old_step_leaves_the_first_future_alone(path):
    with LogSaver(path) as saver:
        graph = diary(saver)
        run(graph, turns=2)
        end = graph.get_state(THREAD)
        old = list(graph.get_state_history(THREAD))[4]
    with LogSaver(path) as saver:
        graph = diary(saver)
        state = graph.invoke({"log": ["another turn"]}, old.config)
        assert state["log"][: len(old.values["log"]) + 1] == [*old.values["log"], "another turn"]
        assert graph.get_state(THREAD).values == state
    with LogSaver(path) as saver:
        graph = diary(saver)
        assert graph.get_state(THREAD).values == state
        assert graph.get_state(end.config).values == end.values


def test_a_failed_writer_is_retried_without_doubling_the_other_lines(path):
    fail = FailOnce()
    config = {**THREAD, "max_concurrency": 1}
    with LogSaver(path) as saver:
        graph = diary(saver, lambda state: fail(state) if state["turn"] == 2 else None)
        with pytest.raises(RuntimeError, match="the node failed"):
            graph.invoke({"log": ["turn 0"], "turn": 0}, config)
    with LogSaver(path) as saver:
        graph = diary(saver)
        assert graph.get_state(THREAD).next == ("second",)
        log = graph.invoke(None, THREAD)["log"]
    assert log == ["turn 0", *(f"{who} {turn}" for turn in range(3) for who in ("first", "second"))]


def test_an_answer_after_reopening_adds_its_line_once(path):
    def ask(state):
        return [interrupt("what?")] if state["turn"] == 1 else None

    with LogSaver(path) as saver:
        diary(saver, ask).invoke({"log": ["turn 0"], "turn": 0}, THREAD)
    with LogSaver(path) as saver:
        log = diary(saver, ask).invoke(Command(resume="that"), THREAD)["log"]
    with LogSaver(path) as saver:
        assert diary(saver).get_state(THREAD).values["log"] == log
    assert log == ["turn 0", "first 0", "second 0", "first 1", "that", "first 2", "second 2"]


def test_a_pruned_thread_and_a_copied_one_keep_the_whole_value(path):
    with LogSaver(path) as saver:
        run(diary(saver))
        before = diary(saver).get_state(THREAD).values
        saver.copy_thread("t", "copy")
        saver.prune(["t"])
        assert len(list(saver.list(THREAD))) == 1
    with LogSaver(path) as saver:
        graph = diary(saver)
        assert graph.get_state(THREAD).values == before
        assert graph.get_state(make_config("copy")).values == before
        for config in (THREAD, make_config("copy")):
            state = graph.invoke({"log": ["on"]}, config)
            assert state["log"][: len(before["log"]) + 1] == [*before["log"], "on"]
        saver.delete_thread("t")
        assert graph.get_state(make_config("copy")).values == state
