"""Subgraphs keep their checkpoints in namespaces of their own."""

import operator
import re
from typing import Annotated

import pytest
from graphs import THREAD, Runs, Trail, ask, chain, step, tell
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from logsaver import LogSaver


def outer(saver, inner, runs=None):
    """before, the inner graph, after."""
    builder = StateGraph(Trail)
    builder.add_node("before", step("before", runs))
    builder.add_node("inner", inner)
    builder.add_node("after", step("after", runs))
    builder.add_edge(START, "before")
    builder.add_edge("before", "inner")
    builder.add_edge("inner", "after")
    return builder.compile(saver)


def inner(checkpointer=None, runs=None, question="inside?"):
    act = ask(question) if question else None
    builder = chain(step("x", runs), step("y", runs, act), step("z", runs))
    return builder.compile(checkpointer)


def namespaces(saver):
    """How many checkpoints each namespace has; a task id in its name is written as *."""
    counts = {}
    for found in saver.list(THREAD):
        name = re.sub(r":[0-9a-f-]{36}", ":*", found.config["configurable"]["checkpoint_ns"])
        counts[name] = counts.get(name, 0) + 1
    return counts


# -- checkpointer=None: of this call only


def test_an_interrupt_inside_a_subgraph_is_answered_after_reopening(path):
    runs = Runs()
    with LogSaver(path) as saver:
        state = outer(saver, inner(runs=runs), runs).invoke({"trail": []}, THREAD)
        assert [found.value for found in state["__interrupt__"]] == ["inside?"]
        assert namespaces(saver) == {"": 3, "inner:*": 3}
    with LogSaver(path) as saver:
        graph = outer(saver, inner(runs=runs), runs)
        state = graph.invoke(Command(resume="yes"), THREAD)
        assert namespaces(saver) == {"": 5, "inner:*": 5}
    assert state["trail"] == ["before", "before", "x", "y:yes", "z", "after"]
    assert runs.counts() == {"before": 1, "x": 1, "y": 2, "z": 1, "after": 1}


def test_the_state_of_an_interrupted_subgraph_is_read_with_that_of_its_parent(path):
    with LogSaver(path) as saver:
        outer(saver, inner()).invoke({"trail": []}, THREAD)
    with LogSaver(path) as saver:
        graph = outer(saver, inner())
        (task,) = graph.get_state(THREAD).tasks
        assert task.state["configurable"]["checkpoint_ns"] == f"inner:{task.id}"
        history = list(graph.get_state_history(task.state))
        assert [found["next"] for found in tell(history)] == [("__start__",), ("x",), ("y",)]
        (task,) = graph.get_state(THREAD, subgraphs=True).tasks
        assert task.state.values == {"trail": ["before", "x"]}
        assert task.state.next == ("y",)
        assert task.state.metadata["parents"] == {
            "": graph.get_state(THREAD).config["configurable"]["checkpoint_id"]
        }


def test_an_interrupted_subgraph_can_be_edited_before_it_goes_on(path):
    with LogSaver(path) as saver:
        outer(saver, inner()).invoke({"trail": []}, THREAD)
    with LogSaver(path) as saver:
        graph = outer(saver, inner())
        (task,) = graph.get_state(THREAD, subgraphs=True).tasks
        graph.update_state(task.state.config, {"trail": ["edit"]}, as_node="x")
    with LogSaver(path) as saver:
        state = outer(saver, inner()).invoke(Command(resume="yes"), THREAD)
    assert state["trail"] == ["before", "before", "x", "edit", "y:yes", "z", "after"]


# -- checkpointer=True: of all calls


class Visits(Trail):
    """The parent does not have this channel."""

    visits: Annotated[int, operator.add]


@pytest.mark.parametrize(("checkpointer", "visits"), [(True, [1, 2, 3]), (None, [1, 1, 1])])
def test_only_a_subgraph_with_its_own_memory_remembers_earlier_turns(path, checkpointer, visits):
    seen = []

    def visit(state):
        seen.append(state.get("visits", 0) + 1)
        return {"visits": 1}

    for _ in range(3):
        with LogSaver(path) as saver:
            visited = chain(visit, state=Visits).compile(checkpointer)
            outer(saver, visited).invoke({"trail": []}, THREAD)
            names = set(namespaces(saver))
    assert seen == visits
    # Without a task id in its name the next turn finds it.
    assert names == ({"", "inner"} if checkpointer else {"", "inner:*"})


def test_a_subgraph_with_its_own_memory_is_interrupted_and_goes_on(path):
    for turn in range(2):
        with LogSaver(path) as saver:
            state = outer(saver, inner(True)).invoke({"trail": [f"turn {turn}"]}, THREAD)
            assert [found.value for found in state["__interrupt__"]] == ["inside?"]
        with LogSaver(path) as saver:
            graph = outer(saver, inner(True))
            (task,) = graph.get_state(THREAD, subgraphs=True).tasks
            assert task.state.next == ("y",)
            assert task.state.config["configurable"]["checkpoint_ns"] == "inner"
            state = graph.invoke(Command(resume=turn), THREAD)
            assert state["trail"][-3:] == [f"y:{turn}", "z", "after"]


# -- checkpointer=False: of none


def test_a_subgraph_without_a_checkpointer_leaves_nothing(path):
    with LogSaver(path) as saver:
        graph = outer(saver, inner(False, question=None))
        state = graph.invoke({"trail": []}, THREAD)
        assert state["trail"] == ["before", "before", "x", "y", "z", "after"]
        assert namespaces(saver) == {"": 5}
    with LogSaver(path) as saver:
        assert namespaces(saver) == {"": 5}


# -- nested


def three_levels(saver, runs, checkpointer=None):
    deep = chain(step("p", runs), step("q", runs, ask("how deep?"))).compile()
    middle = StateGraph(Trail)
    middle.add_node("deep", deep)
    middle.add_node("mid", step("mid", runs))
    middle.add_edge(START, "deep")
    middle.add_edge("deep", "mid")
    return outer(saver, middle.compile(checkpointer), runs)


@pytest.mark.parametrize(
    ("checkpointer", "names"),
    [
        (None, {"": 3, "inner:*": 2, "inner:*|deep:*": 3}),
        (True, {"": 3, "inner": 2, "inner|deep:*": 3}),
    ],
)
def test_an_interrupt_two_levels_down_is_answered_after_reopening(path, checkpointer, names):
    runs = Runs()
    with LogSaver(path) as saver:
        state = three_levels(saver, runs, checkpointer).invoke({"trail": []}, THREAD)
        assert [found.value for found in state["__interrupt__"]] == ["how deep?"]
        assert namespaces(saver) == names
    with LogSaver(path) as saver:
        graph = three_levels(saver, runs, checkpointer)
        state = graph.get_state(THREAD, subgraphs=True)
        assert state.next == ("inner",)
        assert [found.value for found in state.interrupts] == ["how deep?"]
        middle = state.tasks[0].state
        assert (middle.values, middle.next) == ({"trail": ["before"]}, ("deep",))
        deep = middle.tasks[0].state
        assert (deep.values, deep.next) == ({"trail": ["before", "p"]}, ("q",))
        assert deep.tasks[0].interrupts == state.interrupts
        state = graph.invoke(Command(resume="two"), THREAD)
        assert graph.get_state(THREAD, subgraphs=True).tasks == ()
    assert state["trail"][-4:] == ["p", "q:two", "mid", "after"]
    assert runs.counts() == {"before": 1, "p": 1, "q": 2, "mid": 1, "after": 1}


async def test_an_interrupt_two_levels_down_is_answered_by_ainvoke(path):
    runs = Runs()
    async with LogSaver(path) as saver:
        await three_levels(saver, runs).ainvoke({"trail": []}, THREAD)
    async with LogSaver(path) as saver:
        graph = three_levels(saver, runs)
        state = await graph.aget_state(THREAD, subgraphs=True)
        assert state.tasks[0].state.tasks[0].state.next == ("q",)
        state = await graph.ainvoke(Command(resume="two"), THREAD)
    assert state["trail"][-4:] == ["p", "q:two", "mid", "after"]
    assert runs.counts() == {"before": 1, "p": 1, "q": 2, "mid": 1, "after": 1}


def test_a_subgraph_called_in_a_node_is_interrupted_and_goes_on(path):
    runs = Runs()
    called = inner(runs=runs)

    def call(state):
        return {"trail": called.invoke({"trail": []})["trail"]}

    with LogSaver(path) as saver:
        chain(call, step("after", runs)).compile(saver).invoke({"trail": []}, THREAD)
        assert namespaces(saver) == {"": 2, "call:*": 3}
    with LogSaver(path) as saver:
        graph = chain(call, step("after", runs)).compile(saver)
        assert graph.invoke(Command(resume=1), THREAD) == {"trail": ["x", "y:1", "z", "after"]}
    assert runs.counts() == {"x": 1, "y": 2, "z": 1, "after": 1}


def test_a_fork_of_the_parent_runs_the_subgraph_again(path):
    with LogSaver(path) as saver:
        graph = outer(saver, inner())
        graph.invoke({"trail": []}, THREAD)
        question = graph.get_state(THREAD).config
        graph.invoke(Command(resume="yes"), THREAD)
        yes = graph.get_state(THREAD).config
    with LogSaver(path) as saver:
        graph = outer(saver, inner())
        fork = graph.update_state(question, {"trail": ["fork"]}, as_node="before")
        graph.invoke(None, fork)
        state = graph.invoke(Command(resume="no"), THREAD)
        assert state["trail"][-5:] == ["fork", "x", "y:no", "z", "after"]
        assert graph.get_state(yes).values["trail"][-4:] == ["x", "y:yes", "z", "after"]


def test_deleting_a_thread_takes_its_subgraphs_with_it(path):
    with LogSaver(path) as saver:
        graph = outer(saver, inner(True, question=None))
        graph.invoke({"trail": []}, THREAD)
        saver.delete_thread("t")
    with LogSaver(path) as saver:
        assert namespaces(saver) == {}
        graph = outer(saver, inner(True, question=None))
        state = graph.invoke({"trail": []}, THREAD)
        assert state["trail"] == ["before", "before", "x", "y", "z", "after"]
