"""Time travel: replays, forks and edits of the past, and branches that keep their own values."""

import operator
from itertools import pairwise
from typing import Annotated, TypedDict

import pytest
from graphs import THREAD, Runs, Trail, approval, chain, step, tell_state
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from support import id_of, make_config

from logsaver import LogSaver


def abc(saver, runs=None):
    return chain(step("a", runs), step("b", runs), step("c", runs)).compile(saver)


def before(graph, node):
    """The newest checkpoint from which `node` runs next."""
    return next(found for found in graph.get_state_history(THREAD) if found.next == (node,))


def test_history_has_the_state_of_every_step_newest_first(path):
    with LogSaver(path) as saver:
        abc(saver).invoke({"trail": ["in"]}, THREAD)
    with LogSaver(path) as saver:
        graph = abc(saver)
        history = list(graph.get_state_history(THREAD))
        assert [(found.values["trail"], found.next) for found in history] == [
            (["in", "a", "b", "c"], ()),
            (["in", "a", "b"], ("c",)),
            (["in", "a"], ("b",)),
            (["in"], ("a",)),
            ([], ("__start__",)),
        ]
        assert [found.metadata["step"] for found in history] == [3, 2, 1, 0, -1]
        assert [found.metadata["source"] for found in history] == ["loop"] * 4 + ["input"]
        for child, parent in pairwise(history):
            assert child.parent_config == parent.config
        assert history[-1].parent_config is None


def test_every_old_checkpoint_can_be_read_by_its_id(path):
    with LogSaver(path) as saver:
        abc(saver).invoke({"trail": ["in"]}, THREAD)
    with LogSaver(path) as saver:
        graph = abc(saver)
        history = list(graph.get_state_history(THREAD))
        assert len({id_of(found.config) for found in history}) == 5
        for found in history:
            again = graph.get_state(found.config)
            assert id_of(again.config) == id_of(found.config)
            assert tell_state(again) == tell_state(found)
            assert list(graph.get_state_history(found.config)) == [found]


def test_history_can_be_filtered_limited_and_paged(saver):
    graph = abc(saver)
    graph.invoke({"trail": []}, THREAD)
    graph.invoke({"trail": []}, THREAD)
    steps = [found.metadata["step"] for found in graph.get_state_history(THREAD)]
    assert steps == [8, 7, 6, 5, 4, 3, 2, 1, 0, -1]
    inputs = graph.get_state_history(THREAD, filter={"source": "input"})
    assert [found.metadata["step"] for found in inputs] == [4, -1]
    page = list(graph.get_state_history(THREAD, limit=3))
    assert [found.metadata["step"] for found in page] == [8, 7, 6]
    page = list(graph.get_state_history(THREAD, before=page[-1].config, limit=2))
    assert [found.metadata["step"] for found in page] == [5, 4]


def test_history_can_be_filtered_by_what_the_config_said(path):
    config = {"configurable": {"thread_id": "t", "user": "ada"}, "metadata": {"trial": 7}}
    with LogSaver(path) as saver:
        abc(saver).invoke({"trail": []}, config)
        abc(saver).invoke({"trail": []}, THREAD)
    with LogSaver(path) as saver:
        graph = abc(saver)
        assert len(list(graph.get_state_history(THREAD))) == 10
        for wanted in ({"user": "ada"}, {"trial": 7}, {"user": "ada", "source": "loop"}):
            found = list(graph.get_state_history(THREAD, filter=wanted))
            assert [item.metadata["step"] for item in found] == [3, 2, 1, 0, -1][: len(found)]
            assert len(found) == (4 if "source" in wanted else 5)
        assert list(graph.get_state_history(THREAD, filter={"user": "bob"})) == []


@pytest.mark.parametrize("reopens", [False, True])
def test_a_replay_runs_what_came_after_and_nothing_before(path, reopens):
    runs = Runs()
    saver = LogSaver(path)
    abc(saver).invoke({"trail": []}, THREAD)
    if reopens:
        saver.close()
        saver = LogSaver(path)
    with saver:
        graph = abc(saver, runs)
        assert graph.invoke(None, before(graph, "c").config) == {"trail": ["a", "b", "c"]}
        assert runs.counts() == {"c": 1}
        assert graph.get_state(THREAD).values == {"trail": ["a", "b", "c"]}


async def test_an_async_replay_runs_what_came_after_and_nothing_before(path):
    runs = Runs()
    async with LogSaver(path) as saver:
        graph = abc(saver, runs)
        await graph.ainvoke({"trail": []}, THREAD)
        history = [found async for found in graph.aget_state_history(THREAD)]
        state = await graph.ainvoke(None, history[2].config)
    assert state == {"trail": ["a", "b", "c"]}
    assert runs.counts() == {"a": 1, "b": 2, "c": 2}


def test_an_edited_past_runs_on_and_leaves_the_first_future_alone(path):
    with LogSaver(path) as saver:
        graph = abc(saver)
        graph.invoke({"trail": []}, THREAD)
        first_end = graph.get_state(THREAD).config
        fork = graph.update_state(before(graph, "c").config, {"trail": ["edit"]})
        assert graph.get_state(THREAD).next == ("c",)
        graph.invoke(None, fork)
    with LogSaver(path) as saver:
        graph = abc(saver)
        assert graph.get_state(THREAD).values == {"trail": ["a", "b", "edit", "c"]}
        assert graph.get_state(fork).metadata["source"] == "update"
        assert graph.get_state(first_end).values == {"trail": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("as_node", "following", "end"),
    [
        ("a", ("b",), ["edit", "b", "c"]),
        ("b", ("c",), ["edit", "c"]),
        ("c", (), ["edit"]),
        (START, ("a",), ["edit", "a", "b", "c"]),
    ],
)
def test_an_update_as_a_node_goes_on_behind_that_node(path, as_node, following, end):
    with LogSaver(path) as saver:
        abc(saver).update_state(THREAD, {"trail": ["edit"]}, as_node=as_node)
    with LogSaver(path) as saver:
        graph = abc(saver)
        assert graph.get_state(THREAD).next == following
        if following:
            graph.invoke(None, THREAD)
        assert graph.get_state(THREAD).values == {"trail": end}


def test_an_update_as_end_drops_what_was_left_to_do(path):
    with LogSaver(path) as saver:
        graph = approval().compile(saver)
        graph.invoke({"trail": []}, THREAD)
        graph.update_state(THREAD, None, as_node=END)
    with LogSaver(path) as saver:
        state = approval().compile(saver).get_state(THREAD)
    assert (state.next, state.interrupts) == ((), ())
    assert state.values == {"trail": ["draft"]}


class Story(TypedDict):
    hero: str
    place: str
    said: Annotated[list[str], operator.add]


def tale(saver):
    """Two nodes that change one channel each, so a branch shares the other with its trunk."""

    def travel(state):
        return {"place": f"{state['place']}+", "said": ["travel"]}

    def speak(state):
        return {"said": [f"{state['hero']} in {state['place']}"]}

    return chain(travel, speak, state=Story).compile(saver)


def test_many_branches_of_one_checkpoint_keep_their_own_values(path):
    """All of them have one parent, and count their channels' versions up from its own."""
    heroes = [f"hero {n}" for n in range(6)]
    ends = {}
    with LogSaver(path) as saver:
        graph = tale(saver)
        graph.invoke({"hero": "first", "place": "home"}, THREAD)
        trunk = before(graph, "speak").config
        for hero in heroes:
            fork = graph.update_state(trunk, {"hero": hero}, as_node="travel")
            graph.invoke(None, fork)
            ends[hero] = graph.get_state(THREAD).config
    with LogSaver(path) as saver:
        graph = tale(saver)
        for hero, config in ends.items():
            assert graph.get_state(config).values == {
                "hero": hero,
                "place": "home+",
                "said": ["travel", f"{hero} in home+"],
            }
        parents = [
            found.parent_config
            for found in graph.get_state_history(THREAD)
            if found.metadata["source"] == "update"
        ]
        assert parents == [trunk] * len(heroes)


def test_branches_of_branches_go_on_in_turns(path):
    """Back and forth between two branches: each must find its own parent's values, not the
    ones put last."""
    with LogSaver(path) as saver:
        graph = tale(saver)
        graph.invoke({"hero": "x", "place": "home"}, THREAD)
        trunk = before(graph, "speak").config
        left = graph.update_state(trunk, {"hero": "left", "place": "L"}, as_node="travel")
        right = graph.update_state(trunk, {"hero": "right", "place": "R"}, as_node="travel")
    for _ in range(3):
        with LogSaver(path) as saver:
            graph = tale(saver)
            left = graph.update_state(left, {"said": ["l"]}, as_node="travel")
            right = graph.update_state(right, {"said": ["r"]}, as_node="travel")
            left = graph.update_state(left, {"place": "LL"}, as_node="travel")
    with LogSaver(path) as saver:
        graph = tale(saver)
        assert graph.get_state(left).values == {
            "hero": "left", "place": "LL", "said": ["travel", "l", "l", "l"],
        }  # fmt: skip
        assert graph.get_state(right).values == {
            "hero": "right", "place": "R", "said": ["travel", "r", "r", "r"],
        }  # fmt: skip
        assert graph.invoke(None, left)["said"][-1] == "left in LL"
        assert graph.invoke(None, right)["said"][-1] == "right in R"


def test_an_answered_interrupt_can_be_answered_again_on_another_branch(path):
    with LogSaver(path) as saver:
        graph = approval().compile(saver)
        graph.invoke({"trail": []}, THREAD)
        question = graph.get_state(THREAD).config
        graph.invoke(Command(resume="yes"), THREAD)
        yes = graph.get_state(THREAD).config
    with LogSaver(path) as saver:
        graph = approval().compile(saver)
        asked = graph.invoke(None, question)["__interrupt__"]
        assert [found.value for found in asked] == ["good?"]
        state = graph.invoke(Command(resume="no"), THREAD)
        assert state == {"trail": ["draft", "review:no", "publish"]}
        assert graph.get_state(yes).values == {"trail": ["draft", "review:yes", "publish"]}


def test_a_checkpoint_that_is_not_there_is_no_state(saver):
    graph = abc(saver)
    graph.invoke({"trail": []}, THREAD)
    nowhere = graph.get_state(make_config(checkpoint_id="1f000000-0000-6000-8000-000000000000"))
    assert (nowhere.values, nowhere.next) == ({}, ())


# -- threads of conversation


def test_a_deleted_thread_starts_from_nothing_and_a_copy_goes_its_own_way(path):
    with LogSaver(path) as saver:
        graph = chain(step("a")).compile(saver)
        graph.invoke({"trail": ["t"]}, THREAD)
        saver.copy_thread("t", "copy")
        graph.invoke({"trail": ["t again"]}, THREAD)
        assert graph.invoke({"trail": ["copy"]}, make_config("copy"))["trail"] == [
            "t", "a", "copy", "a",
        ]  # fmt: skip
        saver.delete_thread("t")
    with LogSaver(path) as saver:
        graph = chain(step("a")).compile(saver)
        assert graph.get_state(THREAD).values == {}
        assert graph.invoke({"trail": ["new"]}, THREAD) == {"trail": ["new", "a"]}
        assert len(graph.get_state(make_config("copy")).values["trail"]) == 4


def test_a_pruned_thread_keeps_its_interrupt(path):
    with LogSaver(path) as saver:
        approval().compile(saver).invoke({"trail": []}, THREAD)
        saver.prune(["t"])
        assert saver.stats().checkpoints == 1
    with LogSaver(path) as saver:
        state = approval().compile(saver).invoke(Command(resume="yes"), THREAD)
    assert state == {"trail": ["draft", "review:yes", "publish"]}


def test_graphs_that_end_early_leave_nothing_to_do(saver):
    builder = StateGraph(Trail)
    builder.add_node("a", step("a"))
    builder.add_conditional_edges(START, lambda state: END if state["trail"] else "a")
    graph = builder.compile(saver)
    assert graph.invoke({"trail": []}, THREAD) == {"trail": ["a"]}
    graph.invoke({"trail": ["stop"]}, THREAD)
    assert graph.get_state(THREAD).next == ()
    assert graph.get_state(THREAD).values == {"trail": ["a", "stop"]}
