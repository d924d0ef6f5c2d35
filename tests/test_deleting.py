"""Deleting, copying and pruning: what goes, what stays, and what must still be rebuilt from it."""

import operator
import os
from decimal import Decimal
from typing import Annotated, TypedDict
from uuid import UUID, uuid4

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import TASKS, _DeltaSnapshot
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Overwrite, Send, interrupt
from support import (
    FOREIGN,
    ForeignSerde,
    id_of,
    ids,
    make_config,
    new_id,
    put,
    sync_and_async,
)

from logsaver import LogSaver, ThreadExistsError
from logsaver.removing import StoredFacts


def thread(thread_id="t", **configurable):
    return {"configurable": {"thread_id": thread_id, **configurable}}


def thread_ids(saver):
    return sorted(info.thread_id for info in saver.threads())


def everything(saver, thread_id):
    """All that can be read of a thread, without its name."""
    return [
        (
            {**found.config["configurable"], "thread_id": None},
            found.checkpoint,
            found.metadata,
            found.parent_config and id_of(found.parent_config),
            found.pending_writes,
        )
        for found in saver.list(thread(thread_id))
    ]


def chain(saver, length, thread_id="t", *, ns="", run_id=None):
    """A line of checkpoints, each with a write; returns their configs, oldest first."""
    configs = []
    for step in range(length):
        configs.append(
            put(
                saver,
                thread_id,
                {"c": step},
                ns=ns,
                versions={"c": step + 1},
                parent=configs[-1] if configs else None,
                metadata={"step": step, **({} if run_id is None else {"run_id": run_id})},
            )
        )
        saver.put_writes(configs[-1], [("c", step + 1)], "task")
    return configs


# -- delete_thread


@pytest.mark.behaviour(24)
@sync_and_async
def test_a_deleted_thread_is_gone_in_all_namespaces(path, calls):
    with LogSaver(path) as saver:
        root = chain(saver, 2)[-1]
        sub = chain(saver, 2, ns="sub:1")[-1]
        other = chain(saver, 1, "u")[-1]
        calls(saver).delete_thread("t")
    with LogSaver(path) as saver:
        assert saver.get_tuple(root) is None
        assert saver.get_tuple(sub) is None
        assert ids(saver.list(None)) == [id_of(other)]
        assert thread_ids(saver) == ["u"]


@pytest.mark.behaviour(24)
def test_deleting_takes_waiting_writes_along(saver):
    waiting = make_config(checkpoint_id=new_id())
    saver.put_writes(waiting, [("c", 1)], "task")
    saver.delete_thread("t")
    put(saver, checkpoint_id=id_of(waiting))
    assert saver.get_tuple(waiting).pending_writes == []


@pytest.mark.behaviour(24)
def test_a_deleted_threads_id_can_be_used_again(path):
    with LogSaver(path) as saver:
        old = chain(saver, 3)
        saver.delete_thread("t")
        new = put(saver, values={"c": "new"}, parent=old[-1], new_versions={})
        saver.put_writes(new, [("c", "write")], "task")
    with LogSaver(path) as saver:
        found = saver.get_tuple(make_config())
        assert found.config == new
        assert found.checkpoint["channel_values"] == {"c": "new"}
        assert found.parent_config is None
        assert found.pending_writes == [("task", "c", "write")]
        assert ids(saver.list(make_config())) == [id_of(new)]


@pytest.mark.behaviour(24)
@sync_and_async
def test_a_late_write_does_not_bring_a_deleted_thread_back(path, calls):
    with LogSaver(path) as saver:
        config = chain(saver, 2)[-1]
        calls(saver).delete_thread("t")
        calls(saver).put_writes(config, [("c", "late")], "task")
        assert thread_ids(saver) == []
        assert saver.stats().threads == 0
    with LogSaver(path) as saver:
        assert thread_ids(saver) == []
        assert list(saver.list(None)) == []
        assert saver.get_tuple(config) is None


# -- delete_for_runs


@pytest.mark.behaviour(25, 42)
@sync_and_async
def test_deleting_a_run_takes_its_checkpoints_and_writes_in_every_thread(path, calls):
    with LogSaver(path) as saver:
        gone = [
            *chain(saver, 2, "t", run_id="a"),
            *chain(saver, 2, "t", ns="sub:1", run_id="a"),
            *chain(saver, 1, "u", run_id="a"),
        ]
        kept = [*chain(saver, 2, "t", run_id="b"), *chain(saver, 1, "v")]
        calls(saver).delete_for_runs(["a", "unknown"])
    with LogSaver(path) as saver:
        assert all(saver.get_tuple(config) is None for config in gone)
        assert sorted(ids(saver.list(None))) == sorted(map(id_of, kept))
        assert thread_ids(saver) == ["t", "v"]
        assert saver.stats().writes == len(kept)


@pytest.mark.behaviour(25)
def test_the_child_of_a_deleted_run_stays_and_has_no_parent(saver):
    old = chain(saver, 2, run_id="a")[-1]
    child = put(saver, values={"c": 1}, versions={"c": 2}, new_versions={}, parent=old)
    saver.delete_for_runs(["a"])
    found = saver.get_tuple(child)
    assert found.parent_config is None
    assert found.checkpoint["channel_values"] == {"c": 1}


@pytest.mark.behaviour(42)
@pytest.mark.parametrize("stored_as", [str, UUID])
@pytest.mark.parametrize("asked_as", [str, UUID])
def test_a_run_id_is_found_as_text_and_as_uuid(saver, stored_as, asked_as):
    run_id = str(uuid4())
    chain(saver, 1, run_id=stored_as(run_id))
    saver.delete_for_runs([asked_as(run_id)])
    assert list(saver.list(None)) == []


@pytest.mark.behaviour(4, 42)
@pytest.mark.parametrize("stored_as", [str, int])
@pytest.mark.parametrize("asked_as", [str, int])
def test_a_run_id_is_found_as_text_and_as_number(saver, stored_as, asked_as):
    chain(saver, 1, run_id=stored_as(3))
    kept = chain(saver, 1, run_id=stored_as(33))
    saver.delete_for_runs([asked_as(3)])
    assert ids(saver.list(None)) == [id_of(kept[0])]


@pytest.mark.behaviour(42)
def test_another_run_is_left_alone_also_if_the_index_cannot_tell(saver):
    """Of a number that is no plain one, the index only knows that there is a run id."""
    kept = chain(saver, 1, run_id=Decimal(4))
    chain(saver, 1, run_id=Decimal(3))
    saver.delete_for_runs([3])
    assert ids(saver.list(None)) == [id_of(kept[0])]


@pytest.mark.behaviour(42)
@sync_and_async
def test_deleting_a_run_again_changes_nothing(saver, path, calls):
    chain(saver, 2, "t", run_id="a")
    kept = chain(saver, 1, "t", run_id="b")
    calls(saver).delete_for_runs(["a"])
    size = os.path.getsize(path)
    for run_ids in (["a"], ["a", "a"], [], ["never"]):
        calls(saver).delete_for_runs(run_ids)
    assert os.path.getsize(path) == size
    assert ids(saver.list(None)) == [id_of(kept[0])]


@pytest.mark.behaviour(42)
def test_the_run_id_of_a_graph_run_is_the_one_to_delete_by(saver):
    graph = plain_graph(saver)
    graph.invoke({"trail": ["in"]}, thread(run_id="first"))
    before = graph.get_state(thread()).values
    graph.invoke({"trail": ["in"]}, thread(run_id="second"))
    saver.delete_for_runs(["second"])
    assert graph.get_state(thread()).values == before


@pytest.mark.behaviour(9, 42)
def test_undecodable_metadata_does_not_keep_the_rest_of_a_run(path):
    with LogSaver(path, serde=ForeignSerde()) as saver:
        chain(saver, 1, "t", run_id="a")
        put(saver, "broken", metadata={"run_id": "a", FOREIGN: 1})
    with LogSaver(path) as saver:
        saver.delete_for_runs(["a"])
        assert saver.get_tuple(make_config("t")) is None


# -- copy_thread


@pytest.mark.behaviour(25)
@sync_and_async
def test_a_copy_has_the_full_chain_in_all_namespaces(path, calls):
    with LogSaver(path) as saver:
        chain(saver, 3)
        chain(saver, 2, ns="sub:1")
        waiting = make_config(checkpoint_id=new_id())
        saver.put_writes(waiting, [("c", "waits")], "task")
        before = everything(saver, "t")
        calls(saver).copy_thread("t", "copy")
        assert everything(saver, "copy") == before
    with LogSaver(path) as saver:
        assert everything(saver, "copy") == before
        assert everything(saver, "t") == before
        put(saver, "copy", checkpoint_id=id_of(waiting))
        found = saver.get_tuple(make_config("copy", checkpoint_id=id_of(waiting)))
        assert found.pending_writes == [("task", "c", "waits")]


@pytest.mark.behaviour(25)
def test_a_copy_and_its_source_go_separate_ways(path):
    with LogSaver(path) as saver:
        source = chain(saver, 3)[-1]
        saver.copy_thread("t", "copy")
        before = everything(saver, "copy")
        saver.put_writes(source, [("d", 1)], "late")
        put(saver, "t", {"c": "more"}, parent=source)
        assert everything(saver, "copy") == before
        saver.delete_thread("t")
    with LogSaver(path) as saver:
        assert everything(saver, "copy") == before
        head = saver.get_tuple(make_config("copy"))
        child = put(
            saver,
            "copy",
            {"c": 2},
            versions=head.checkpoint["channel_versions"],
            new_versions={},
            parent=head.config,
        )
        assert saver.get_tuple(child).checkpoint["channel_values"] == {"c": 2}
        assert saver.get_tuple(child).parent_config == head.config


@pytest.mark.behaviour(25)
@sync_and_async
def test_a_copy_onto_a_thread_with_checkpoints_is_an_error(saver, path, calls):
    chain(saver, 2)
    chain(saver, 1, "taken")
    before = everything(saver, "taken")
    size = os.path.getsize(path)
    for target in ("taken", "t"):
        with pytest.raises(ThreadExistsError, match=target):
            calls(saver).copy_thread("t", target)
    assert everything(saver, "taken") == before
    assert os.path.getsize(path) == size


@pytest.mark.behaviour(25)
def test_a_copy_onto_a_thread_that_was_deleted_works(saver):
    chain(saver, 2)
    chain(saver, 1, "u")
    saver.delete_thread("u")
    saver.copy_thread("t", "u")
    assert everything(saver, "u") == everything(saver, "t")


@pytest.mark.behaviour(25)
@sync_and_async
def test_a_copy_onto_a_thread_keeps_the_writes_that_wait_there(path, calls):
    """Writes may come before their checkpoint, and were acknowledged."""
    with LogSaver(path) as saver:
        put(saver, checkpoint_id="c1")
        saver.put_writes(make_config("t", "", "c1"), [("x", "of the source")], "task")
        for ns, checkpoint_id in (("", "c1"), ("", "c2"), ("sub", "c1")):
            waiting = make_config("u", ns, checkpoint_id)
            saver.put_writes(waiting, [("x", "waiting")], "another task")
        calls(saver).copy_thread("t", "u")
    with LogSaver(path) as saver:
        put(saver, "u", checkpoint_id="c2")
        put(saver, "u", checkpoint_id="c1", ns="sub")
        waiting = ("another task", "x", "waiting")
        writes = saver.get_tuple(make_config("u", "", "c1")).pending_writes
        assert writes == [waiting, ("task", "x", "of the source")]
        assert saver.get_tuple(make_config("u", "", "c2")).pending_writes == [waiting]
        assert saver.get_tuple(make_config("u", "sub", "c1")).pending_writes == [waiting]


@pytest.mark.behaviour(16, 25)
def test_a_write_that_waited_where_a_thread_is_copied_to_stays_as_it_was_put_first(path):
    with LogSaver(path) as saver:
        saver.put_writes(make_config("u", checkpoint_id="c1"), [("x", "first")], "task")
        put(saver, checkpoint_id="c1")
        saver.put_writes(make_config("t", checkpoint_id="c1"), [("x", "of the source")], "task")
        saver.copy_thread("t", "u")
    with LogSaver(path) as saver:
        writes = saver.get_tuple(make_config("u", checkpoint_id="c1")).pending_writes
        assert writes == [("task", "x", "first")]


@pytest.mark.behaviour(4, 43)
def test_a_copys_metadata_names_the_copy_where_it_named_the_source_by_a_number(saver):
    put(saver, 7, metadata={"thread_id": 7})
    saver.copy_thread(7, 8)
    copy = saver.get_tuple(make_config(8))
    assert copy.metadata["thread_id"] == "8"
    assert list(saver.list(None, filter={"thread_id": "8"})) == [copy]
    assert saver.get_tuple(make_config(7)).metadata["thread_id"] == 7


@pytest.mark.behaviour(43)
@sync_and_async
def test_a_copys_metadata_names_the_copy_where_it_named_the_source(path, calls):
    with LogSaver(path) as saver:
        put(saver, metadata={"thread_id": "t", "step": 1})
        put(saver, metadata={"thread_id": "another", "step": 2})
        put(saver, metadata={"step": 3, "note": "t"})
        calls(saver).copy_thread("t", "copy")
        calls(saver).copy_thread("copy", "copy of copy")
    with LogSaver(path) as saver:
        for target in ("copy", "copy of copy"):
            found = [item.metadata for item in calls(saver).list(make_config(target))]
            assert found == [
                {"step": 3, "note": "t"},
                {"thread_id": "another", "step": 2},
                {"thread_id": target, "step": 1},
            ]
        source = [item.metadata.get("thread_id") for item in saver.list(make_config("t"))]
        assert source == [None, "another", "t"]


@pytest.mark.behaviour(14, 43)
def test_a_filter_sees_the_metadata_that_a_copy_shows(saver):
    put(saver, metadata={"thread_id": "t"})
    saver.copy_thread("t", "copy")
    assert len(list(saver.list(make_config("copy"), filter={"thread_id": "copy"}))) == 1
    assert list(saver.list(make_config("copy"), filter={"thread_id": "t"})) == []


# -- prune: the arguments


@pytest.mark.behaviour(25)
@pytest.mark.parametrize("strategy", ["delete", "delete_all"])
@sync_and_async
def test_pruning_everything_deletes_the_threads(saver, calls, strategy):
    for thread_id in ("a", "b", "c"):
        chain(saver, 2, thread_id)
        chain(saver, 1, thread_id, ns="sub:1")
    calls(saver).prune(["a", "b", "unknown"], strategy=strategy)
    assert thread_ids(saver) == ["c"]


@pytest.mark.behaviour(25)
@sync_and_async
def test_the_default_is_to_keep_the_latest(saver, calls):
    head = chain(saver, 3)[-1]
    calls(saver).prune(["t"])
    assert ids(saver.list(make_config())) == [id_of(head)]


@pytest.mark.behaviour(25)
@pytest.mark.parametrize("names", [["t"], []])
@sync_and_async
def test_an_unknown_strategy_is_an_error(saver, calls, names):
    chain(saver, 3)
    with pytest.raises(ValueError, match="keep_everything"):
        calls(saver).prune(names, strategy="keep_everything")
    assert len(list(saver.list(None))) == 3


@pytest.mark.behaviour(25)
@pytest.mark.parametrize("strategy", ["keep_latest", "delete"])
@sync_and_async
def test_a_bare_string_is_not_taken_for_a_sequence_of_ids(saver, calls, strategy):
    for thread_id in ("t", "h", "th"):
        chain(saver, 2, thread_id, run_id=thread_id)
    with pytest.raises(TypeError, match="thread_ids"):
        calls(saver).prune("th", strategy=strategy)
    with pytest.raises(TypeError, match="run_ids"):
        calls(saver).delete_for_runs("th")
    assert len(list(saver.list(None))) == 6


# -- prune: what stays


@pytest.mark.behaviour(26)
@sync_and_async
def test_the_latest_of_each_namespace_stays(path, calls):
    with LogSaver(path) as saver:
        root = chain(saver, 3)[-1]
        sub = chain(saver, 3, ns="sub")[-1]
        other = chain(saver, 2, "other")
        before = {name: saver.get_tuple(config) for name, config in (("", root), ("sub", sub))}
        calls(saver).prune(["t"])
    with LogSaver(path) as saver:
        assert sorted(ids(saver.list(thread()))) == sorted([id_of(root), id_of(sub)])
        assert len(list(saver.list(thread("other")))) == len(other)
        for name, expected in before.items():
            found = saver.get_tuple(make_config("t", name))
            assert found == expected._replace(parent_config=None)
        assert saver.stats().hidden_checkpoints == 0


@pytest.mark.behaviour(26)
def test_a_parent_that_was_pruned_reads_as_none_and_is_not_found(saver):
    configs = chain(saver, 3)
    assert saver.get_tuple(configs[-1]).parent_config == configs[-2]
    saver.prune(["t"])
    assert saver.get_tuple(configs[-1]).parent_config is None
    assert next(saver.list(thread())).parent_config is None
    assert saver.get_tuple(configs[-2]) is None


@pytest.mark.behaviour(26)
@pytest.mark.parametrize(
    ("version", "channel", "kept"), [(3, TASKS, 2), (1, TASKS, 2), (4, TASKS, 1), (3, "c", 1)]
)
def test_the_parent_of_an_old_head_stays_for_its_pending_sends(saver, version, channel, kept):
    """Before version 4 a checkpoint's sends were read from its parent's writes."""
    grandparent = put(saver, v=version)
    saver.put_writes(grandparent, [(TASKS, "send")], "task")
    parent = put(saver, parent=grandparent, v=version)
    saver.put_writes(parent, [(channel, "send")], "task")
    head = put(saver, parent=parent, v=version)
    saver.prune(["t"])
    assert ids(saver.list(thread())) == [id_of(head), id_of(parent)][:kept]
    if kept == 2:
        assert saver.get_tuple(head).parent_config == parent
        assert saver.get_tuple(parent).pending_writes == [("task", TASKS, "send")]


class Trail(TypedDict):
    trail: Annotated[list, operator.add]


def plain_graph(saver):
    builder = StateGraph(Trail)
    builder.add_node("fan", lambda state: {"trail": ["fan"]})
    builder.add_node("work", lambda state: {"trail": ["work"]})
    builder.add_node("join", lambda state: {"trail": ["join"]})
    builder.add_edge(START, "fan")
    builder.add_conditional_edges("fan", lambda state: [Send("work", state)] * 2, ["work"])
    builder.add_edge("work", "join")
    return builder.compile(checkpointer=saver)


def subgraph(**compiled_with):
    def ask(state):
        return {"trail": [f"answer {interrupt('?')}"]}

    builder = StateGraph(Trail)
    builder.add_sequence([("inner", lambda state: {"trail": ["inner"]}), ("ask", ask)])
    builder.add_edge(START, "inner")
    return builder.compile(**compiled_with)


def graph_with(inner, saver):
    """The inner graph as a node, between two others."""
    builder = StateGraph(Trail)
    builder.add_sequence(
        [("before", lambda state: {"trail": ["before"]}), ("inner", inner)],
    )
    builder.add_node("after", lambda state: {"trail": ["after"]})
    builder.add_edge(START, "before")
    builder.add_edge("inner", "after")
    return builder.compile(checkpointer=saver)


@pytest.mark.behaviour(26)
def test_a_graph_without_delta_channels_leaves_one_checkpoint_and_nothing_hidden(saver):
    graph = plain_graph(saver)
    for _ in range(3):
        graph.invoke({"trail": ["in"]}, thread())
    before = graph.get_state(thread())
    saver.copy_thread("t", "whole")
    saver.prune(["t"])
    stats = saver.stats()
    assert len(list(saver.list(thread()))) == 1
    assert stats.hidden_checkpoints == 0
    assert graph.get_state(thread()).values == before.values
    again = graph.invoke({"trail": ["in"]}, thread())
    assert again == graph.invoke({"trail": ["in"]}, thread("whole"))


@pytest.mark.behaviour(26)
def test_a_finished_subgraph_call_goes_with_the_checkpoint_it_started_from(saver):
    graph = graph_with(subgraph(), saver)
    graph.invoke({"trail": []}, thread())
    finished = graph.invoke(Command(resume="yes"), thread())
    namespaces = {found.config["configurable"]["checkpoint_ns"] for found in saver.list(thread())}
    assert len(namespaces) == 2
    saver.prune(["t"])
    (found,) = saver.list(thread())
    assert found.config["configurable"]["checkpoint_ns"] == ""
    assert graph.get_state(thread()).values == finished
    assert saver.stats().hidden_checkpoints == 0


@pytest.mark.behaviour(26)
def test_an_interrupted_subgraph_call_stays_and_resumes(path):
    with LogSaver(path) as saver:
        graph = graph_with(subgraph(), saver)
        graph.invoke({"trail": []}, thread())
        saver.copy_thread("t", "whole")
        saver.prune(["t"])
        assert len(list(saver.list(thread()))) == 2  # one of the root, one of the call
    with LogSaver(path) as saver:
        graph = graph_with(subgraph(), saver)
        answers = [graph.invoke(Command(resume="yes"), thread(name)) for name in ("t", "whole")]
        assert answers[0] == answers[1]
        assert "answer yes" in answers[0]["trail"]


@pytest.mark.behaviour(26)
def test_a_subgraph_with_a_memory_of_its_own_keeps_its_latest(saver):
    def remember(state):
        return {"trail": [f"inner {len(state['trail'])}"]}

    inner = StateGraph(Trail)
    inner.add_sequence([("remember", remember)])
    inner.add_edge(START, "remember")
    graph = graph_with(inner.compile(checkpointer=True), saver)
    for _ in range(2):
        graph.invoke({"trail": ["in"]}, thread())
    saver.copy_thread("t", "whole")
    saver.prune(["t"])
    kept = [found.config["configurable"]["checkpoint_ns"] for found in saver.list(thread())]
    assert sorted(kept) == ["", "inner"]
    for _ in range(2):
        results = [graph.invoke({"trail": ["in"]}, thread(name)) for name in ("t", "whole")]
        assert results[0] == results[1]


@pytest.mark.behaviour(26)
def test_a_subgraph_call_whose_root_checkpoint_is_not_stored_yet_stays(saver):
    """Runs save in the background, so a call's checkpoint may be stored before its root's."""
    chain(saver, 2)
    coming = new_id()
    call = put(saver, ns="node:task", metadata={"parents": {"": coming}})
    saver.prune(["t"])
    assert saver.get_tuple(call) is not None
    put(saver, checkpoint_id=coming)
    saver.prune(["t"])
    assert saver.get_tuple(call) is not None
    put(saver)
    saver.prune(["t"])
    assert saver.get_tuple(call) is None


@pytest.mark.behaviour(26)
def test_a_nested_call_is_told_from_a_memory_by_its_last_part(saver):
    old, head = chain(saver, 2)
    started = {"parents": {"": id_of(old)}}
    call = put(saver, ns="outer|inner:task", metadata=started)
    memory = put(saver, ns="outer:task|inner", metadata=started)
    saver.prune(["t"])
    assert saver.get_tuple(call) is None
    assert saver.get_tuple(memory) is not None
    assert saver.get_tuple(head) is not None


# -- delta channels


def add(state, writes):
    """A reducer for which the order of the writes matters."""
    return [*state, *(item for write in writes for item in write)]


def merge(state, writes):
    for write in writes:
        state = {**state, **write}
    return state


class Journal(TypedDict):
    log: Annotated[list, DeltaChannel(add, snapshot_frequency=4)]
    facts: Annotated[dict, DeltaChannel(merge, snapshot_frequency=50)]
    turns: int


def journal_builder(state=Journal):
    """Two nodes in parallel, then one that writes only sometimes."""
    builder = StateGraph(state)
    builder.add_node("left", lambda state: {"log": [f"left {len(state['log'])}"]})
    builder.add_node(
        "right",
        lambda state: {
            "log": [f"right {len(state['log'])}"],
            "facts": {f"turn {state.get('turns', 0)}": len(state["log"])},
        },
    )
    builder.add_node(
        "last",
        lambda state: {
            "turns": state.get("turns", 0) + 1,
            **({"log": ["odd"]} if state.get("turns", 0) % 2 else {}),
        },
    )
    builder.add_edge(START, "left")
    builder.add_edge(START, "right")
    builder.add_edge(["left", "right"], "last")
    return builder


def journal(saver):
    return journal_builder().compile(checkpointer=saver)


def run(graph, turns, thread_id="t", *, first=0, **kwargs):
    """Run some turns, each with a run id of its own."""
    for turn in range(first, first + turns):
        graph.invoke({"log": [f"in {turn}"]}, thread(thread_id, run_id=f"run {turn}"), **kwargs)


def states(graph, saver, thread_id="t"):
    """The state at every listed checkpoint, by id."""
    return {
        id_of(found.config): graph.get_state(found.config).values
        for found in saver.list(make_config(thread_id))
    }


@pytest.mark.behaviour(27)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("turns", [1, 2, 3, 5])
def test_a_pruned_delta_thread_has_the_same_state_and_goes_on_the_same(path, turns, durability):
    with LogSaver(path, fsync="never") as saver:
        graph = journal(saver)
        run(graph, turns, durability=durability)
        saver.copy_thread("t", "whole")
        before = graph.get_state(thread())
        assert len(before.values["log"]) > turns
        saver.prune(["t"])
        assert len(list(saver.list(thread()))) == 1
        after = graph.get_state(thread())
        assert after.values == before.values
        assert after.next == before.next
    with LogSaver(path, fsync="never") as saver:
        graph = journal(saver)
        assert graph.get_state(thread()).values == before.values
        for name in ("t", "whole"):
            run(graph, 3, name, first=turns, durability=durability)
        assert graph.get_state(thread()).values == graph.get_state(thread("whole")).values
        saver._store.index._check()


@pytest.mark.behaviour(27)
def test_pruning_after_every_run_loses_nothing(path):
    with LogSaver(path, fsync="never") as saver:
        graph = journal(saver)
        for turn in range(8):
            for name in ("t", "whole"):
                run(graph, 1, name, first=turn)
            saver.prune(["t"])
            assert graph.get_state(thread()).values == graph.get_state(thread("whole")).values
        assert len(list(saver.list(thread()))) == 1
        assert saver.stats().writes < 200


@pytest.mark.behaviour(27)
def test_what_was_kept_hidden_goes_once_nothing_is_rebuilt_from_it(saver):
    class Short(TypedDict):
        log: Annotated[list, DeltaChannel(add, snapshot_frequency=4)]

    builder = StateGraph(Short)
    builder.add_node("node", lambda state: {"log": ["x"]})
    builder.add_edge(START, "node")
    graph = builder.compile(checkpointer=saver)
    hidden = []
    for turn in range(12):
        graph.invoke({"log": [turn]}, thread())
        before = graph.get_state(thread()).values
        saver.prune(["t"])
        assert graph.get_state(thread()).values == before
        hidden.append(saver.stats().hidden_checkpoints)
    assert max(hidden) > 0
    assert max(hidden) <= 6  # never more than lie between two snapshots


@pytest.mark.behaviour(27)
@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize(
    "gone", [[0], [1], [2], [3], [4], [0, 1], [1, 3], [0, 1, 2, 3], [3, 4]], ids=str
)
def test_deleting_runs_changes_no_state_that_is_left(path, gone, durability):
    with LogSaver(path, fsync="never") as saver:
        graph = journal(saver)
        run(graph, 5, durability=durability)
        before = states(graph, saver)
        run_of = {id_of(found.config): found.metadata.get("run_id") for found in saver.list(None)}
        deleted = [f"run {turn}" for turn in gone]
        left = {each: state for each, state in before.items() if run_of[each] not in deleted}
        assert 0 < len(left) < len(before)
        saver.delete_for_runs(deleted)
        assert states(graph, saver) == left
    with LogSaver(path, fsync="never") as saver:
        graph = journal(saver)
        assert states(graph, saver) == left
        head = left[max(left)]
        run(graph, 1, first=9, durability=durability)
        log = graph.get_state(thread()).values["log"]
        assert log[: len(head["log"]) + 1] == [*head["log"], "in 9"]
        assert {key: state for key, state in states(graph, saver).items() if key in left} == left


@pytest.mark.behaviour(27)
def test_a_run_that_was_rolled_back_can_be_done_again_differently(saver):
    """A run's input to a delta channel is stored beside the checkpoint it started from."""
    graph = journal(saver)
    run(graph, 2)
    saver.copy_thread("t", "whole")
    graph.invoke({"log": ["wrong"]}, thread(run_id="wrong"))
    saver.delete_for_runs(["wrong"])
    for name in ("t", "whole"):
        run(graph, 2, name, first=2)
    found = graph.get_state(thread()).values
    assert "wrong" not in found["log"]
    assert found == graph.get_state(thread("whole")).values


@pytest.mark.behaviour(27)
def test_pruning_and_deleting_runs_one_after_the_other_loses_nothing(saver):
    graph = journal(saver)
    run(graph, 3)
    saver.prune(["t"])
    run(graph, 3, first=3)
    before = states(graph, saver)
    saver.delete_for_runs(["run 3", "run 4"])
    kept = states(graph, saver)
    assert len(kept) < len(before)
    assert kept == {key: before[key] for key in kept}
    saver.prune(["t"])
    assert states(graph, saver) == {max(before): before[max(before)]}


@pytest.mark.behaviour(27)
def test_both_ends_of_a_fork_survive_when_the_runs_before_it_go(saver):
    graph = journal(saver)
    run(graph, 2)
    fork_at = graph.get_state(thread()).config
    run(graph, 1, first=2)
    graph.invoke({"log": ["other way"]}, {**fork_at, "metadata": {"run_id": "other"}})
    before = states(graph, saver)
    saver.delete_for_runs(["run 0", "run 1"])
    kept = states(graph, saver)
    assert 0 < len(kept) < len(before)
    assert kept == {key: before[key] for key in kept}
    assert any("other way" in state["log"] for state in kept.values())
    assert any("in 2" in state["log"] for state in kept.values())


@pytest.mark.behaviour(27)
def test_a_pruned_thread_can_be_updated_and_overwritten(saver):
    graph = journal(saver)
    run(graph, 2)
    saver.copy_thread("t", "whole")
    saver.prune(["t"])
    results = []
    for name in ("t", "whole"):
        graph.update_state(thread(name), {"log": ["by hand"]}, as_node="left")
        updated = graph.get_state(thread(name)).values
        graph.update_state(thread(name), {"log": Overwrite(["new"])}, as_node="left")
        graph.update_state(thread(name), {"log": ["more"]}, as_node="left")
        results.append((updated, graph.get_state(thread(name)).values))
    assert results[0] == results[1]
    assert results[0][0]["log"][-1] == "by hand"
    assert results[0][1]["log"] == ["new", "more"]


@pytest.mark.behaviour(27)
def test_writes_are_kept_for_a_channel_that_only_a_grandchild_knows(saver):
    """The child that stays has no version of the channel, so it does not ask for its writes."""
    root = put(saver, metadata={"run_id": "a"})
    saver.put_writes(root, [("log", "written")], "task")
    child = put(saver, parent=root, metadata={"run_id": "b"})
    grandchild = put(saver, parent=child, versions={"log": 1}, metadata={"run_id": "b"})
    saver.delete_for_runs(["a"])
    history = saver.get_delta_channel_history(config=grandchild, channels=["log"])
    assert history == {"log": {"writes": [("task", "log", "written")]}}


@pytest.mark.behaviour(27, 42)
def test_deleting_an_old_run_does_not_walk_back_from_each_later_checkpoint(saver, monkeypatch):
    """It happens under the lock: a thread of thousands must not stop everybody for seconds."""
    looked_at = []
    has_value = StoredFacts.has_value
    monkeypatch.setattr(
        StoredFacts, "has_value", lambda *args: looked_at.append(args) or has_value(*args)
    )
    config = None
    for step in range(200):
        run_id = "old" if step < 3 else "new"
        config = put(saver, versions={"start": 1}, parent=config, metadata={"run_id": run_id})
    saver.delete_for_runs(["old"])
    assert len(list(saver.list(make_config()))) == 197
    assert len(looked_at) <= 200


@pytest.mark.behaviour(27)
def test_a_pruned_thread_can_be_forked_with_copy(saver):
    """`as_node="__copy__"` puts the fork under the parent that `parent_config` names."""
    graph = journal(saver)
    run(graph, 2)
    saver.prune(["t"])
    before = graph.get_state(thread()).values
    graph.update_state(thread(), None, as_node="__copy__")
    assert graph.get_state(thread()).values == before


@pytest.mark.behaviour(27, 40)
@sync_and_async
def test_a_pruned_thread_is_rebuilt_by_whoever_walks_with_get_tuple(saver, calls):
    """The Agent Server does; so does every saver that has no history method of its own."""
    run(journal(saver), 2)
    saver.prune(["t"])
    walked = BaseCheckpointSaver.get_delta_channel_history(
        calls(saver), config=thread(), channels=["log", "facts"]
    )
    told = saver.get_delta_channel_history(config=thread(), channels=["log", "facts"])
    assert told["log"]["writes"] or "seed" in told["log"]
    assert walked == told


@pytest.mark.behaviour(27)
async def test_a_pruned_delta_thread_goes_on_in_async_runs(saver):
    graph = journal(saver)
    for turn in range(3):
        await graph.ainvoke({"log": [f"in {turn}"]}, thread())
    await saver.acopy_thread("t", "whole")
    before = (await graph.aget_state(thread())).values
    await saver.aprune(["t"])
    assert (await graph.aget_state(thread())).values == before
    results = [await graph.ainvoke({"log": ["next"]}, thread(name)) for name in ("t", "whole")]
    assert results[0] == results[1]


@pytest.mark.behaviour(27)
def test_a_copy_of_a_pruned_thread_outlives_its_source(path):
    with LogSaver(path) as saver:
        graph = journal(saver)
        run(graph, 2)
        saver.prune(["t"])
        before = graph.get_state(thread()).values
        saver.copy_thread("t", "copy")
        saver.delete_thread("t")
    with LogSaver(path) as saver:
        graph = journal(saver)
        assert graph.get_state(thread("copy")).values == before
        run(graph, 1, "copy", first=2)
        assert graph.get_state(thread("copy")).values["log"][: len(before["log"])] == before["log"]


@pytest.mark.behaviour(27)
def test_an_interrupted_delta_run_resumes_after_pruning(path):
    def asking(saver):
        builder = journal_builder()
        builder.add_node("ask", lambda state: {"log": [f"answer {interrupt('?')}"]})
        builder.add_edge("last", "ask")
        return builder.compile(checkpointer=saver)

    with LogSaver(path) as saver:
        run(asking(saver), 1)
        saver.copy_thread("t", "whole")
        saver.prune(["t"])
    with LogSaver(path) as saver:
        graph = asking(saver)
        results = [graph.invoke(Command(resume="yes"), thread(name)) for name in ("t", "whole")]
        assert results[0] == results[1]
        assert results[0]["log"][-1] == "answer yes"
        assert graph.get_state(thread()).values == graph.get_state(thread("whole")).values


@pytest.mark.behaviour(27)
def test_delta_channels_of_subgraphs_are_kept_too(saver):
    inner = journal_builder().compile(checkpointer=True)
    builder = StateGraph(Journal)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    graph = builder.compile(checkpointer=saver)
    for turn in range(3):
        for name in ("t", "whole"):
            graph.invoke({"log": [f"in {turn}"]}, thread(name))
        saver.prune(["t"])
        outer = [graph.get_state(thread(name)).values for name in ("t", "whole")]
        inside = [_rebuilt(saver, make_config(name, "inner")) for name in ("t", "whole")]
        assert outer[0] == outer[1]
        assert inside[0] == inside[1]
        assert len(inside[0]["log"]) > turn


def _rebuilt(saver, config):
    """The journal at a checkpoint, as LangGraph rebuilds it."""
    histories = saver.get_delta_channel_history(config=config, channels=["log", "facts"])
    return {
        channel: reducer(
            histories[channel]["seed"].value if "seed" in histories[channel] else empty,
            [value for _, _, value in histories[channel]["writes"]],
        )
        for channel, reducer, empty in (("log", add, []), ("facts", merge, {}))
    }


@pytest.mark.behaviour(27)
def test_a_thread_that_moved_from_a_plain_to_a_delta_channel_is_rebuilt_from_the_plain_value(saver):
    class Before(TypedDict):
        log: Annotated[list, operator.add]
        facts: Annotated[dict, operator.or_]
        turns: int

    run(journal_builder(Before).compile(checkpointer=saver), 1)
    graph = journal(saver)
    run(graph, 1, first=1)
    saver.copy_thread("t", "whole")
    before = graph.get_state(thread()).values
    assert before["log"][0] == "in 0"
    saver.prune(["t"])
    assert graph.get_state(thread()).values == before
    for name in ("t", "whole"):
        run(graph, 1, name, first=2)
    assert graph.get_state(thread()).values == graph.get_state(thread("whole")).values


# -- the signs of a delta channel


def delta_chain(saver, *, seed, metadata=None, writes=True):
    """A seed, a checkpoint in between and a head, both without a value of channel "d"."""
    config = None
    for step, value in enumerate([seed, None, None]):
        config = put(
            saver,
            values={} if value is None else {"d": value},
            versions={"d": step + 1},
            parent=config,
            metadata={"step": step, **(metadata or {})},
        )
        if writes:
            saver.put_writes(config, [("d", [step])], "task")
    return config


SIGNS = {
    "it is counted": {
        "seed": ["plain"],
        "metadata": {"counters_since_delta_snapshot": {"d": (1, 1)}},
    },
    "it is counted and was not written": {
        "seed": ["plain"],
        "metadata": {"counters_since_delta_snapshot": {"d": (0, 2)}},
        "writes": False,
    },
    "writes are versioned": {"seed": ["plain"], "metadata": {"delta_writes_versioned": True}},
    "a snapshot": {"seed": _DeltaSnapshot(["snapshot"])},
    "a snapshot without writes": {"seed": _DeltaSnapshot(["snapshot"]), "writes": False},
    "writes and never a value": {"seed": None},
}


@pytest.mark.behaviour(28)
@pytest.mark.parametrize("sign", SIGNS.values(), ids=SIGNS)
@pytest.mark.parametrize("way", ["prune", "delete_for_runs"])
def test_each_sign_of_a_delta_channel_keeps_its_history(path, sign, way):
    with LogSaver(path) as saver:
        head = delta_chain(saver, **sign)
        before = saver.get_delta_channel_history(config=head, channels=["d"])
        assert before != {"d": {"writes": []}}
        if way == "prune":
            saver.prune(["t"])
        else:
            for found in list(saver.list(thread()))[1:]:
                put(
                    saver,
                    values=found.checkpoint["channel_values"],
                    versions=found.checkpoint["channel_versions"],
                    checkpoint_id=id_of(found.config),
                    parent=found.parent_config,
                    metadata={**found.metadata, "run_id": "gone"},
                )
            saver.delete_for_runs(["gone"])
        assert ids(saver.list(thread())) == [id_of(head)]
    with LogSaver(path) as saver:
        assert saver.get_delta_channel_history(config=head, channels=["d"]) == before


@pytest.mark.behaviour(28)
@pytest.mark.parametrize(
    "metadata", [None, {"counters_since_delta_snapshot": {"other": (1, 1)}}], ids=repr
)
def test_a_plain_channel_that_was_cleared_keeps_no_history(saver, metadata):
    head = delta_chain(saver, seed=["plain"], metadata=metadata)
    saver.prune(["t"])
    assert ids(saver.list(thread())) == [id_of(head)]
    assert saver.stats().hidden_checkpoints == 0


@pytest.mark.behaviour(28)
def test_a_channel_nobody_wrote_keeps_no_history(saver):
    head = delta_chain(saver, seed=None, writes=False)
    saver.prune(["t"])
    assert ids(saver.list(thread())) == [id_of(head)]
    assert saver.stats().hidden_checkpoints == 0


@pytest.mark.behaviour(28)
def test_a_value_that_cannot_be_decoded_is_taken_for_a_snapshot(path):
    with LogSaver(path, serde=ForeignSerde()) as saver:
        head = delta_chain(saver, seed=FOREIGN)
        before = saver.get_delta_channel_history(config=head, channels=["d"])
    with LogSaver(path) as saver:
        saver.prune(["t"])
    with LogSaver(path, serde=ForeignSerde()) as saver:
        assert saver.get_delta_channel_history(config=head, channels=["d"]) == before
