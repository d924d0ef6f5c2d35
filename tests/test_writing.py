"""Putting checkpoints and writes: what is kept, what overwrites, what is left alone."""

import copy
import inspect
import re
import sqlite3
from collections import ChainMap
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, get_checkpoint_metadata
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.checkpoint.sqlite import SqliteSaver
from support import id_of, ids, make_checkpoint, make_config, new_id, put, sync_and_async

from logsaver import InvalidInputError, LogSaver


def writes_of(saver, config):
    return [(channel, value) for _, channel, value in saver.get_tuple(config).pending_writes]


# -- writes


@pytest.mark.behaviour(16)
@sync_and_async
def test_an_ordinary_write_stays_as_it_was_put_first(saver, calls):
    config = put(saver)
    asked = calls(saver)
    asked.put_writes(config, [("c", "first"), ("d", "first")], "task")
    size = saver.stats().bytes
    asked.put_writes(config, [("c", "again"), ("d", "again")], "task")
    assert writes_of(saver, config) == [("c", "first"), ("d", "first")]
    assert saver.stats().bytes == size


@pytest.mark.behaviour(16)
@pytest.mark.parametrize("channel", WRITES_IDX_MAP)
@sync_and_async
def test_a_special_write_overwrites(saver, calls, channel):
    config = put(saver)
    asked = calls(saver)
    asked.put_writes(config, [(channel, "first")], "task")
    asked.put_writes(config, [(channel, "again")], "task")
    assert writes_of(saver, config) == [(channel, "again")]


@pytest.mark.behaviour(16)
def test_whether_a_write_overwrites_is_decided_one_by_one(saver):
    """SqliteSaver decides for the whole batch, and so overwrites the ordinary ones in a mix."""
    config = put(saver)
    saver.put_writes(config, [(INTERRUPT, "old"), ("c", "old")], "task")
    saver.put_writes(config, [(INTERRUPT, "new"), ("c", "new"), ("d", "new")], "task")
    assert writes_of(saver, config) == [(INTERRUPT, "new"), ("c", "old"), ("d", "new")]


class Channel(str, Enum):
    A = "a"


def test_a_channel_may_be_named_by_a_member_of_an_enum_of_texts(path):
    versions = {Channel.A: 1}
    with LogSaver(path) as saver:
        first = put(saver, values={Channel.A: "value"}, versions=versions)
        second = put(saver, values={Channel.A: "value"}, parent=first, new_versions={})
        saver.put_writes(second, [(Channel.A, "written")], "task")
    with LogSaver(path) as saver:
        for config in (first, second):
            values = saver.get_tuple(config).checkpoint["channel_values"]
            assert [(type(name), name, value) for name, value in values.items()] == [
                (str, "a", "value")
            ]
        assert writes_of(saver, second) == [("a", "written")]


@pytest.mark.behaviour(16)
def test_put_writes_looks_at_no_other_task(saver):
    """It went through the writes of all tasks: n tasks of one step took n * n."""

    class OneByOne(dict):
        def _walked(self):
            raise AssertionError("all tasks were looked at")

        __iter__ = keys = values = items = copy = _walked

    config = put(saver)
    saver.put_writes(config, [("c", 1)], "task 1")
    writes = saver._store.index.namespace("t", "").writes
    writes[id_of(config)] = OneByOne(writes[id_of(config)])
    saver.put_writes(config, [("c", 2)], "task 2")
    saver.put_writes(config, [("c", "again")], "task 1")
    writes[id_of(config)] = dict(dict.items(writes[id_of(config)]))
    assert writes_of(saver, config) == [("c", 1), ("c", 2)]


@pytest.mark.behaviour(16)
def test_what_counts_as_the_same_write_is_task_and_position(saver):
    config = put(saver)
    saver.put_writes(config, [("c", 1)], "one")
    saver.put_writes(config, [("d", 2)], "one")  # another channel at the same position
    saver.put_writes(config, [("c", 3)], "two")
    saver.put_writes(config, [("c", 4), ("c", 5)], "two")
    assert writes_of(saver, config) == [("c", 1), ("c", 3), ("c", 5)]


@pytest.mark.behaviour(16)
def test_overwriting_and_ignoring_hold_after_reopening(path):
    with LogSaver(path) as saver:
        config = put(saver)
        saver.put_writes(config, [("c", "old"), (RESUME, "old")], "task")
        saver.put_writes(config, [("c", "new"), (RESUME, "new")], "task")
    with LogSaver(path) as saver:
        assert writes_of(saver, config) == [(RESUME, "new"), ("c", "old")]
        saver.put_writes(config, [("c", "newer"), (RESUME, "newer"), (ERROR, "e")], "task")
        assert writes_of(saver, config) == [(RESUME, "newer"), (ERROR, "e"), ("c", "old")]


@pytest.mark.behaviour(17)
@sync_and_async
def test_writes_may_come_before_their_checkpoint(path, calls):
    config = make_config(checkpoint_id=new_id())
    with LogSaver(path) as saver:
        calls(saver).put_writes(config, [("c", 1)], "task")
        assert saver.get_tuple(config) is None
        assert list(saver.threads()) == []
    with LogSaver(path) as saver:
        put(calls(saver), checkpoint_id=id_of(config))
        assert writes_of(saver, config) == [("c", 1)]


@pytest.mark.behaviour(17)
@sync_and_async
def test_writes_may_come_after_the_next_checkpoint(saver, calls):
    first = put(saver)
    second = put(saver, parent=first)
    calls(saver).put_writes(first, [("c", 1)], "task")
    assert writes_of(saver, first) == [("c", 1)]
    assert writes_of(saver, second) == []
    history = saver.get_delta_channel_history(config=second, channels=["c"])
    assert history["c"]["writes"] == [("task", "c", 1)]


@pytest.mark.behaviour(17)
@sync_and_async
def test_putting_an_id_again_replaces_it_and_keeps_its_writes(path, calls):
    with LogSaver(path) as saver:
        root = put(saver, values={"c": "root"})
        config = put(saver, values={"c": "old"}, parent=root, metadata={"step": 1})
        saver.put_writes(config, [("c", 1)], "task")
        again = put(
            calls(saver),
            values={"c": "new", "d": 1},
            checkpoint_id=id_of(config),
            metadata={"step": 2},
        )
        assert again == config
    with LogSaver(path) as saver:
        found = saver.get_tuple(config)
        assert found.checkpoint["channel_values"] == {"c": "new", "d": 1}
        assert found.metadata == {"step": 2}
        assert found.parent_config is None
        assert writes_of(saver, config) == [("c", 1)]
        assert ids(saver.list(make_config())) == [id_of(config), id_of(root)]
        assert ids(saver.list(make_config(), filter={"step": 1})) == []
        saver._store.index._check()


@pytest.mark.behaviour(17)
def test_a_child_of_a_replaced_checkpoint_keeps_the_values_it_was_put_with(saver):
    parent = put(saver, values={"c": "old"})
    child = put(saver, values={"c": "old"}, parent=parent, new_versions={})
    put(saver, values={"c": "new"}, checkpoint_id=id_of(parent))
    assert saver.get_tuple(child).checkpoint["channel_values"] == {"c": "old"}


@pytest.mark.behaviour(17)
def test_writes_without_a_checkpoint_id_are_refused(saver):
    with pytest.raises(InvalidInputError, match="checkpoint_id"):
        saver.put_writes(make_config(), [("c", 1)], "task")


@pytest.mark.behaviour(18)
@pytest.mark.parametrize("name", ["put_writes", "aput_writes"])
def test_put_writes_takes_a_task_path(name):
    parameters = inspect.signature(getattr(LogSaver, name)).parameters
    assert list(parameters)[1:] == ["config", "writes", "task_id", "task_path"]
    assert parameters["task_path"].default == ""


# -- metadata and versions

METADATA = {
    "source": "loop",
    "step": 3,
    "parents": {"": "id"},
    "uuid": UUID(int=1),
    "time": datetime(2026, 1, 2, tzinfo=timezone.utc),
    "amount": Decimal("1.10"),
    "bytes": b"\x00\x01",
    "set": {1, 2},
    "message": HumanMessage("hi", id="1"),
    "unknown.key with 'quotes'": [1, {"deep": None}],
    "writes": {"node": "kept"},
}


@pytest.mark.behaviour(19)
@sync_and_async
def test_metadata_of_any_type_comes_back_verbatim(path, calls):
    with LogSaver(path) as saver:
        config = put(calls(saver), metadata=METADATA)
    with LogSaver(path) as saver:
        assert calls(saver).get_tuple(config).metadata == METADATA
        assert next(iter(calls(saver).list(None))).metadata == METADATA
        assert next(saver.threads()).metadata == METADATA


@pytest.mark.behaviour(19)
def test_metadata_takes_in_what_the_config_says(saver):
    config = {
        **make_config(run_id="run", __pregel_internal="no", count=2, an_object=object()),
        "metadata": {"user": "u\0ser", "step": "not this one", "langgraph_node": "no"},
    }
    stored = saver.put(config, make_checkpoint(), {"step": 1, "note": "a\0b"}, {})
    found = saver.get_tuple(stored).metadata
    assert found == get_checkpoint_metadata(config, {"step": 1, "note": "a\0b"})
    assert found == {"step": 1, "note": "ab", "user": "user", "run_id": "run", "count": 2}


@pytest.mark.behaviour(20)
def test_the_next_version_is_larger_and_unlike_that_of_another_branch(saver):
    version, seen = None, set()
    for _ in range(20):
        later = {saver.get_next_version(version, None) for _ in range(50)}
        assert len(later) == 50
        assert version is None or min(later) > version
        assert seen.isdisjoint(later)
        seen |= later
        version = max(later)


@pytest.mark.behaviour(20)
def test_versions_have_the_format_of_langgraphs_own_savers(saver):
    others = [InMemorySaver(), SqliteSaver(sqlite3.connect(":memory:"))]
    version = saver.get_next_version(None, None)
    assert re.fullmatch(r"0{31}1\.[\d.e-]{16,}", version)
    for counter, other in enumerate(others * 2, start=1):
        theirs = other.get_next_version(version, None)
        ours = saver.get_next_version(theirs, None)
        assert version < theirs < ours
        assert int(ours.split(".")[0]) == 2 * counter + 1
        version = ours
    others[1].conn.close()


@pytest.mark.behaviour(20)
@pytest.mark.parametrize(("current", "counter"), [(7, 8), (7.0, 8), ("7", 8), (None, 1)])
def test_versions_of_other_kinds_can_be_continued(saver, current, counter):
    version = saver.get_next_version(current, None)
    assert version.startswith(f"{counter:032}.")


@pytest.mark.behaviour(21)
@pytest.mark.parametrize("reopen", [False, True])
def test_branches_with_equal_versions_keep_their_own_values(path, reopen):
    with LogSaver(path) as saver:
        root = put(saver, values={"c": "root"}, versions={"c": 1})
        left = put(saver, values={"c": "left"}, versions={"c": 2}, parent=root)
        right = put(saver, values={"c": "right"}, versions={"c": 2}, parent=root)
        if not reopen:
            _check_branches(saver, left, right)
    if reopen:
        with LogSaver(path) as saver:
            _check_branches(saver, left, right)


def _check_branches(saver, left, right):
    for parent, value in ((left, "left"), (right, "right"), (left, "left")):
        child = put(saver, values={"c": value}, versions={"c": 2}, new_versions={}, parent=parent)
        grandchild = put(
            saver, values={"c": value}, versions={"c": 2}, new_versions={}, parent=child
        )
        for config in (parent, child, grandchild):
            assert saver.get_tuple(config).checkpoint["channel_values"] == {"c": value}


@pytest.mark.behaviour(21)
def test_namespaces_and_threads_with_equal_versions_keep_their_own_values(saver):
    places = [("t", ""), ("t", "sub"), ("u", "")]
    roots = [
        put(saver, thread_id, {"c": f"{thread_id}{ns}"}, ns=ns, checkpoint_id="1")
        for thread_id, ns in places
    ]
    for (thread_id, ns), root in zip(places, roots, strict=True):
        value = f"{thread_id}{ns}"
        child = put(saver, thread_id, {"c": value}, ns=ns, parent=root, new_versions={})
        assert saver.get_tuple(child).checkpoint["channel_values"] == {"c": value}


# -- arguments and results


@pytest.mark.behaviour(22)
@sync_and_async
def test_nothing_that_is_passed_in_is_changed(saver, calls):
    asked = calls(saver)
    config = {**make_config(run_id="r"), "metadata": {"user": "u"}, "tags": ["a"]}
    checkpoint = make_checkpoint({"c": [1], "d": {"e": [2]}})
    metadata = {"step": 1, "parents": {}, "nested": {"f": [3]}}
    new_versions = {"c": 1}
    arguments = [config, checkpoint, metadata, new_versions]
    before = copy.deepcopy(arguments)
    stored = asked.put(*arguments)
    assert arguments == before

    writes, write_config = [("c", [1])], copy.deepcopy(stored)
    asked.put_writes(write_config, writes, "task")
    asked.get_tuple(write_config)
    list(asked.list(write_config, filter=metadata, before=write_config))
    asked.get_delta_channel_history(config=write_config, channels=["c"])
    assert write_config == stored
    assert writes == [("c", [1])]
    assert arguments == before


@pytest.mark.behaviour(22)
@sync_and_async
def test_nothing_that_was_passed_in_is_kept_by_reference(saver, calls):
    asked = calls(saver)
    config = make_config()
    checkpoint = make_checkpoint({"list": [1], "bytes": bytearray(b"ab")})
    metadata = {"step": 1, "nested": {"f": [3]}}
    written = [1]
    stored = asked.put(config, checkpoint, metadata, {})
    asked.put_writes(stored, [("list", written)], "task")
    expected = copy.deepcopy(asked.get_tuple(make_config()))

    config["configurable"]["thread_id"] = "changed"
    checkpoint["channel_values"]["list"].append(2)
    checkpoint["channel_values"]["bytes"][0] = 0
    checkpoint["channel_versions"]["list"] = 99
    checkpoint["versions_seen"]["node"] = {"list": 1}
    metadata["nested"]["f"].append(4)
    metadata["step"] = 2
    written.append(2)
    stored["configurable"]["checkpoint_id"] = "changed"

    found = asked.get_tuple(make_config())
    assert found == expected
    assert found.checkpoint["channel_values"] == {"list": [1], "bytes": bytearray(b"ab")}
    assert found.pending_writes == [("task", "list", [1])]


@pytest.mark.behaviour(22)
def test_a_child_does_not_share_what_was_changed_in_the_parents_versions_after_its_put(saver):
    """The saver remembers the parent's versions to share values; it must remember a copy."""
    parent = make_checkpoint({"c": "old"}, versions={"c": 1})
    stored = saver.put(make_config(), parent, {}, {"c": 1})
    parent["channel_versions"]["c"] = 2
    child = put(saver, values={"c": "new"}, versions={"c": 2}, new_versions={}, parent=stored)
    assert saver.get_tuple(child).checkpoint["channel_values"] == {"c": "new"}


@pytest.mark.behaviour(22)
def test_what_was_read_can_be_changed_without_changing_what_is_stored(saver):
    stored = put(saver, values={"c": [1]}, metadata={"nested": {"f": [1]}})
    saver.put_writes(stored, [("c", [1])], "task")
    for read in (saver.get_tuple, lambda config: next(saver.list(config))):
        found = read(stored)
        found.checkpoint["channel_values"]["c"].append(2)
        found.checkpoint["channel_versions"]["c"] = 99
        found.metadata["nested"]["f"].append(2)
        found.pending_writes[0][2].append(2)
        found.config["configurable"]["thread_id"] = "changed"
        found = read(stored)
        assert found.checkpoint["channel_values"] == {"c": [1]}
        assert found.checkpoint["channel_versions"] == {"c": 1}
        assert found.metadata == {"nested": {"f": [1]}}
        assert found.pending_writes == [("task", "c", [1])]
        assert found.config == stored


@pytest.mark.behaviour(23)
@sync_and_async
def test_put_returns_a_config_of_exactly_three_keys(saver, calls):
    config = {
        **make_config("t", "sub", "parent", checkpoint_map={"": "x"}, run_id="r", user="u"),
        "metadata": {"a": 1},
        "tags": ["b"],
        "callbacks": None,
    }
    checkpoint = make_checkpoint()
    stored = calls(saver).put(config, checkpoint, {}, {})
    assert stored == make_config("t", "sub", checkpoint["id"])
    assert calls(saver).get_tuple(stored).config == stored


@pytest.mark.behaviour(23)
def test_put_without_a_namespace_returns_the_root_namespace(saver):
    checkpoint = make_checkpoint()
    stored = saver.put(make_config(1, ns=None), checkpoint, {}, {})
    assert stored == make_config("1", "", checkpoint["id"])


def test_versions_that_change_while_a_put_waits_do_not_count(path):
    """LangGraph goes on changing its dict: a child shared an old value under a new version."""
    with LogSaver(path) as saver:
        checkpoint = make_checkpoint({"x": "old"}, {"x": 1}, "1")
        append = saver._store.append

        def change_it_late(*args):
            checkpoint["channel_versions"]["x"] = 2
            return append(*args)

        saver._store.append = change_it_late
        config = saver.put(make_config(), checkpoint, {}, {"x": 1})
        del saver._store.append
        child = saver.put(config, make_checkpoint({"x": "new"}, {"x": 2}, "2"), {}, {})
        assert saver.get_tuple(child).checkpoint["channel_values"] == {"x": "new"}


def test_versions_that_are_no_mapping_are_refused_before_anything_is_stored(path):
    with LogSaver(path) as saver:
        with pytest.raises(InvalidInputError, match="channel_versions"):
            saver.put(make_config(), {**make_checkpoint(), "channel_versions": [1]}, {}, {})
        assert list(saver.list(None)) == []


@pytest.mark.parametrize(
    "metadata",
    [
        {"a": "1"},
        ChainMap({"a": "1\0"}),
        ChainMap({}),
        ChainMap({"a": "1"}, {"a": "2", "b": 3}),
        None,
    ],
    ids=str,
)
def test_metadata_of_the_config_counts_as_langgraph_says_whatever_mapping_it_is_in(saver, metadata):
    config = {**make_config(), "metadata": metadata}
    given = {"source": "loop", "step": 1, "parents": {}}
    stored = saver.put(config, make_checkpoint({"x": 1}), given, {})
    expected = get_checkpoint_metadata(config, given)
    assert saver.get_tuple(stored).metadata == expected
