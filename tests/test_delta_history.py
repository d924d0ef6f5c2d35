"""The history a DeltaChannel is rebuilt from: whose writes, in which order, from which seed."""

import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph
from support import id_of, make_config, new_id, put, sync_and_async

from logsaver import LogSaver, ValueDecodeError
from logsaver.log import Log


def step(saver, parent=None, *, value=None, writes=(), checkpoint_id=None, ns=""):
    """A checkpoint of channel "d", valueless unless `value` is given, and its writes."""
    config = put(
        saver,
        values={} if value is None else {"d": value},
        versions={"d": new_id()},
        parent=parent,
        checkpoint_id=checkpoint_id,
        ns=ns,
    )
    for number, written in enumerate(writes):
        saver.put_writes(config, [("d", written)], f"task-{number}", f"~{number}")
    return config


def history(saver, config, channel="d"):
    """The values written and the seed, if there is one."""
    found = saver.get_delta_channel_history(config=config, channels=[channel])[channel]
    return [value for _, _, value in found["writes"]], found.get("seed")


# -- the walk


@pytest.mark.behaviour(29)
@sync_and_async
def test_writes_come_oldest_first_back_to_the_seed(saver, calls):
    root = step(saver, value="older seed", writes=["too old"])
    seed = step(saver, root, value="seed", writes=["a", "b"])
    middle = step(saver, seed, writes=["c"])
    target = step(saver, middle, writes=["the target's own"])
    found = calls(saver).get_delta_channel_history(config=target, channels=["d"])
    assert found == {
        "d": {
            "writes": [("task-0", "d", "a"), ("task-1", "d", "b"), ("task-0", "d", "c")],
            "seed": "seed",
        }
    }


@pytest.mark.behaviour(29, 37)
def test_the_walk_follows_parents_not_the_order_of_ids(saver):
    """LangGraph's example for custom savers takes every smaller id for an ancestor."""
    root = step(saver, value="seed", writes=["root"], checkpoint_id="5")
    left = step(saver, root, writes=["left"], checkpoint_id="6")
    right = step(saver, root, writes=["right"], checkpoint_id="7")
    older_id = step(saver, left, writes=["older id"], checkpoint_id="1")
    assert history(saver, step(saver, right)) == (["root", "right"], "seed")
    assert history(saver, step(saver, older_id, checkpoint_id="8")) == (
        ["root", "left", "older id"],
        "seed",
    )


@pytest.mark.behaviour(29)
@pytest.mark.timeout(20)
@sync_and_async
def test_a_cycle_ends_the_walk(saver, calls):
    """Putting an id again under its own descendant makes one."""
    first = step(saver, writes=["first"])
    second = step(saver, first, writes=["second"])
    third = step(saver, second, writes=["third"])
    step(saver, third, checkpoint_id=id_of(first))
    head = step(saver, third)
    asked = calls(saver)
    assert history(asked, third) == (["first", "second"], None)
    assert history(asked, head) == (["first", "second", "third"], None)
    asked.prune(["t"])
    assert history(asked, head) == (["first", "second", "third"], None)


@pytest.mark.behaviour(29)
@pytest.mark.timeout(20)
def test_a_checkpoint_that_is_its_own_parent_ends_the_walk(saver):
    own = step(saver, writes=["own"])
    step(saver, own, checkpoint_id=id_of(own))
    assert history(saver, own) == ([], None)
    saver.prune(["t"])
    assert history(saver, own) == ([], None)


@pytest.mark.behaviour(29)
def test_a_missing_ancestor_ends_the_walk(saver):
    orphan = step(saver, make_config(checkpoint_id="never"), writes=["orphan"])
    assert history(saver, orphan) == ([], None)
    assert history(saver, step(saver, orphan)) == (["orphan"], None)


@pytest.mark.parametrize("length", [15, 16, 17, 47, 48, 49, 400])
def test_a_long_history_is_whole_wherever_it_ends(saver, length):
    """Ancestors are looked up in portions of 16, 32, 64 and so on."""
    at = step(saver, value="too old", writes=["too old"])
    at = step(saver, at, value="seed", writes=["0"])
    for number in range(1, length):
        at = step(saver, at, writes=[str(number)])
    assert history(saver, step(saver, at)) == ([str(number) for number in range(length)], "seed")


def test_behind_the_seed_nothing_is_read(saver, monkeypatch):
    at = step(saver, value="seed", writes=["a"])
    too_far = saver._store.index.namespace("t", "").ids[0]
    target = step(saver, step(saver, at, value="nearer", writes=["b"]))
    read = []
    checkpoint = Log.checkpoint
    monkeypatch.setattr(Log, "checkpoint", lambda *args: read.append(checkpoint(*args)) or read[-1])
    assert history(saver, target) == (["b"], "nearer")
    assert too_far not in [record.checkpoint_id for record in read]


def test_several_writes_of_one_call_keep_their_order(saver):
    at = step(saver, value="seed")
    saver.put_writes(at, [("d", "first"), ("other", "x"), ("d", "second")], "task")
    assert history(saver, step(saver, at)) == (["first", "second"], "seed")


def test_a_write_that_cannot_be_read_back_is_named(saver, monkeypatch):
    at = step(saver, value="seed", writes=["a"])
    target = step(saver, at)

    def refuse(self, data):
        raise ValueError("no")

    monkeypatch.setattr(type(saver.serde), "loads_typed", refuse)
    with pytest.raises(ValueDecodeError, match=rf"{id_of(at)}.*the write of.*'task-0', 'd'"):
        history(saver, target)


@pytest.mark.behaviour(29)
def test_only_writes_to_the_channel_in_its_namespace_count(saver):
    parent = step(saver, value="seed", writes=["mine"])
    saver.put_writes(parent, [("other", "x"), ("d", "mine too")], "task-9", "~9")
    sub = step(saver, ns="sub", checkpoint_id=id_of(parent), writes=["the subgraph's"])
    child = step(saver, parent)
    assert history(saver, child) == (["mine", "mine too"], "seed")
    assert history(saver, step(saver, sub, ns="sub")) == (["the subgraph's"], None)


@pytest.mark.behaviour(29)
def test_each_channel_ends_at_its_own_seed(saver):
    def both(parent, values, written):
        config = put(saver, values=values, versions={"a": new_id(), "b": new_id()}, parent=parent)
        saver.put_writes(config, [("a", written), ("b", written)], "task")
        return config

    config = both(None, {"a": "a seed", "b": "old b"}, 1)
    config = both(config, {"b": "b seed"}, 2)
    config = both(config, {}, 3)
    found = saver.get_delta_channel_history(config=both(config, {}, 4), channels=["a", "b", "c"])
    values = {name: [value for _, _, value in each["writes"]] for name, each in found.items()}
    assert values == {"a": [1, 2, 3], "b": [2, 3], "c": []}
    assert {name: each.get("seed") for name, each in found.items()} == {
        "a": "a seed",
        "b": "b seed",
        "c": None,
    }


# -- the seed


@pytest.mark.behaviour(30)
@pytest.mark.parametrize("seed", ["text", ["plain"], _DeltaSnapshot(["s"]), [], 0, False], ids=repr)
@pytest.mark.parametrize("writes", [[], ["w"]], ids=["without writes", "with writes"])
def test_any_stored_value_is_a_seed(path, seed, writes):
    with LogSaver(path) as saver:
        parent = step(saver, value=seed, writes=writes)
        child = step(saver, parent)
    with LogSaver(path) as saver:
        found = saver.get_delta_channel_history(config=child, channels=["d"])["d"]
        assert found["seed"] == seed
        assert type(found["seed"]) is type(seed)
        assert [value for _, _, value in found["writes"]] == writes


@pytest.mark.behaviour(30)
def test_a_stored_none_is_a_seed_and_no_value_is_not(saver):
    bottom = step(saver, value="bottom")
    with_none = put(saver, values={"d": None}, versions={"d": 2}, parent=bottom)
    found = saver.get_delta_channel_history(config=step(saver, with_none), channels=["d"])["d"]
    assert found == {"writes": [], "seed": None}

    valueless = step(saver, bottom)
    found = saver.get_delta_channel_history(config=step(saver, valueless), channels=["d"])["d"]
    assert found == {"writes": [], "seed": "bottom"}


@pytest.mark.behaviour(30)
def test_without_any_value_there_is_no_seed(saver):
    child = step(saver, step(saver, writes=["w"]))
    found = saver.get_delta_channel_history(config=child, channels=["d"])["d"]
    assert found == {"writes": [("task-0", "d", "w")]}


@pytest.mark.behaviour(30)
def test_a_seed_shared_with_an_older_checkpoint_is_found(saver):
    """An unchanged channel is stored once, and the checkpoints after it refer to it."""
    first = put(saver, values={"d": "seed"}, versions={"d": 1})
    second = put(saver, values={"d": "seed"}, versions={"d": 1}, new_versions={}, parent=first)
    saver.put_writes(first, [("d", "before the seed")], "task")
    saver.put_writes(second, [("d", "w")], "task")
    assert history(saver, step(saver, second)) == (["w"], "seed")


@pytest.mark.behaviour(30)
def test_the_targets_own_value_is_not_its_seed(saver):
    target = step(saver, step(saver, value="seed", writes=["w"]), value="own")
    assert history(saver, target) == (["w"], "seed")


# -- the arguments


@pytest.mark.behaviour(31)
@pytest.mark.parametrize(
    "config", [make_config(), make_config(checkpoint_id=""), make_config(ns=None)], ids=repr
)
@sync_and_async
def test_without_an_id_it_is_the_history_of_the_latest(saver, calls, config):
    first = step(saver, value="seed", writes=["a"])
    second = step(saver, first, writes=["b"])
    step(saver, second)
    assert history(calls(saver), config) == (["a", "b"], "seed")


@pytest.mark.behaviour(31)
@pytest.mark.parametrize("thread_id", ["t", "ghost"])
@sync_and_async
def test_no_channels_give_no_history(saver, calls, thread_id):
    step(saver, step(saver, value="seed"))
    found = calls(saver).get_delta_channel_history(config=make_config(thread_id), channels=[])
    assert found == {}


@pytest.mark.behaviour(31)
@sync_and_async
def test_an_unknown_checkpoint_has_an_empty_history(saver, calls):
    step(saver, step(saver, value="seed", writes=["a"]))
    for config in (make_config("ghost"), make_config(checkpoint_id="unknown")):
        found = calls(saver).get_delta_channel_history(config=config, channels=["d", "e"])
        assert found == {"d": {"writes": []}, "e": {"writes": []}}


# -- the whole, against LangGraph's own


class State(TypedDict):
    log: Annotated[
        list, DeltaChannel(lambda state, writes: sum(writes, state), snapshot_frequency=5)
    ]
    plain: Annotated[list, operator.add]


def fan_out(saver):
    """Parallel nodes whose order matters, and a loop that writes nothing to the channel."""
    builder = StateGraph(State)
    for name in "cabd":
        builder.add_node(name, lambda state, name=name: {"log": [name + str(len(state["log"]))]})
        builder.add_edge(START, name)
    builder.add_node("end", lambda state: {"plain": [len(state["log"])]})
    builder.add_edge(list("cabd"), "end")
    return builder.compile(checkpointer=saver)


@pytest.mark.behaviour(6, 29, 30)
@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_every_checkpoint_of_a_run_has_the_history_that_the_default_walk_finds(saver, durability):
    graph = fan_out(saver)
    for turn in range(4):
        graph.invoke({"log": [f"in {turn}"]}, make_config(), durability=durability)
    seen = 0
    for found in saver.list(make_config()):
        asked = {"config": found.config, "channels": ["log", "plain"]}
        walked = BaseCheckpointSaver.get_delta_channel_history(saver, **asked)
        assert saver.get_delta_channel_history(**asked) == walked
        seen += bool(walked["log"]["writes"])
    assert seen >= 3


@pytest.mark.behaviour(6, 29, 30)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_run_has_the_same_states_as_with_the_memory_saver(saver, durability):
    histories = []
    for checkpointer in (saver, InMemorySaver()):
        graph = fan_out(checkpointer)
        for turn in range(4):
            graph.invoke({"log": [f"in {turn}"]}, make_config(), durability=durability)
        states = graph.get_state_history(make_config())
        histories.append([(state.values, state.next) for state in states])
    assert histories[0] == histories[1]
    assert len(histories[0][0][0]["log"]) == 4 * 5
