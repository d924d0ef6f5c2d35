"""Reading one checkpoint: which one it is, and what comes back of what was put."""

import copy
import dataclasses
import json
import os
import pickle
from collections import deque
from contextlib import closing
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import NamedTuple
from uuid import UUID, uuid4

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send
from pydantic import BaseModel
from support import (
    FOREIGN,
    Awaited,
    CountingSerde,
    ForeignSerde,
    id_of,
    ids,
    make_checkpoint,
    make_config,
    new_id,
    put,
    sync_and_async,
)

from logsaver import InvalidInputError, LogSaver, Undecodable, ValueDecodeError, ValueEncodeError
from logsaver.log import DEFAULT_CACHE_BYTES, Log
from logsaver.record import Kind
from logsaver.store import Store
from logsaver.surrogates import exact_dumps

LONE_SURROGATE = "a\ud800z"
ODD_TEXTS = ["", "\0", "a\0b", "🦜", "e\u0301", "%' OR 1=1 --", "a|b:c", "\u202e", "x" * 1_000_000]


def values_of(found):
    return found.checkpoint["channel_values"]


# -- which checkpoint


@pytest.mark.behaviour(1)
@sync_and_async
def test_latest_is_the_largest_id_string(saver, calls):
    for checkpoint_id in ("9", "10", "2"):  # "9" is the largest text, 10 the largest number
        put(saver, checkpoint_id=checkpoint_id)
    assert id_of(calls(saver).get_tuple(make_config()).config) == "9"


@pytest.mark.behaviour(1)
def test_latest_is_per_thread_and_namespace(saver):
    put(saver, "t", checkpoint_id="1")
    put(saver, "t", ns="sub", checkpoint_id="2")
    put(saver, "u", checkpoint_id="3")
    assert id_of(saver.get_tuple(make_config("t")).config) == "1"
    assert id_of(saver.get_tuple(make_config("t", "sub")).config) == "2"


@pytest.mark.behaviour(1)
@pytest.mark.parametrize("absent", [None, ""])
def test_an_empty_checkpoint_id_means_the_latest(saver, absent):
    put(saver, checkpoint_id="1")
    put(saver, checkpoint_id="2")
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": absent}}
    assert id_of(saver.get_tuple(config).config) == "2"


@pytest.mark.behaviour(2)
@sync_and_async
def test_by_id_finds_exactly_that_one_or_nothing(saver, calls):
    put(saver, values={"c": "first"}, checkpoint_id="aa")
    put(saver, values={"c": "second"}, checkpoint_id="aab")
    get_tuple = calls(saver).get_tuple
    assert values_of(get_tuple(make_config(checkpoint_id="aa"))) == {"c": "first"}
    assert get_tuple(make_config(checkpoint_id="a")) is None
    assert get_tuple(make_config(checkpoint_id="aaa")) is None
    assert get_tuple(make_config(ns="sub", checkpoint_id="aa")) is None
    assert get_tuple(make_config("u", checkpoint_id="aa")) is None


@pytest.mark.behaviour(2)
def test_a_parent_that_is_missing_reads_as_none(saver):
    child = put(saver, parent=make_config(checkpoint_id="never-stored"), values={"c": 1})
    found = saver.get_tuple(child)
    assert values_of(found) == {"c": 1}
    assert found.parent_config is None


@pytest.mark.behaviour(2)
def test_a_parent_that_is_there_can_be_followed(saver):
    root = put(saver, values={"c": 1})
    child = put(saver, values={"c": 2}, parent=root)
    assert saver.get_tuple(child).parent_config == root


@pytest.mark.behaviour(3)
@sync_and_async
def test_looking_for_what_is_absent_creates_nothing(saver, path, calls):
    size = os.path.getsize(path)
    asked = calls(saver)
    assert asked.get_tuple(make_config("ghost")) is None
    assert asked.get_tuple(make_config("ghost", "sub", "id")) is None
    assert list(asked.list(make_config("ghost"))) == []
    asked.get_delta_channel_history(config=make_config("ghost"), channels=["c"])
    asked.delete_thread("ghost")
    asked.delete_for_runs(["ghost"])
    asked.prune(["ghost"])
    asked.copy_thread("ghost", "other")
    assert list(saver.threads()) == []
    assert list(saver.list(None)) == []
    assert saver._store.index.threads == {}
    assert os.path.getsize(path) == size


@pytest.mark.behaviour(4)
@pytest.mark.parametrize("thread_id", [1, 0, 1.5, UUID(int=7), ("a", 1)])
def test_a_thread_id_of_any_type_is_its_text(saver, thread_id):
    stored = put(saver, thread_id, {"c": 1})
    assert stored["configurable"]["thread_id"] == str(thread_id)
    for spelling in (thread_id, str(thread_id)):
        assert values_of(saver.get_tuple(make_config(spelling))) == {"c": 1}
        assert len(list(saver.list(make_config(spelling)))) == 1


@pytest.mark.behaviour(4)
@sync_and_async
def test_every_call_takes_ids_of_any_type(saver, calls):
    checkpoint_id, task_id, run_id = UUID(int=1), uuid4(), uuid4()
    asked = calls(saver)
    stored = put(asked, 1, {"c": 1}, checkpoint_id=checkpoint_id, metadata={"run_id": str(run_id)})
    assert id_of(stored) == str(checkpoint_id)
    asked.put_writes(make_config("1", checkpoint_id=checkpoint_id), [("c", 2)], task_id)
    found = asked.get_tuple(make_config("1", checkpoint_id=checkpoint_id))
    assert found.pending_writes == [(str(task_id), "c", 2)]
    child = put(asked, 1, {"c": 3}, parent=make_config(1, checkpoint_id=checkpoint_id))
    assert asked.get_tuple(child).parent_config == stored
    assert ids(asked.list(make_config(1), before=make_config(1, checkpoint_id=checkpoint_id))) == []
    asked.copy_thread(1, 2)
    assert [info.thread_id for info in saver.threads("2")] == ["2"]
    asked.delete_for_runs([run_id])
    assert ids(asked.list(make_config("1"))) == [id_of(child)]
    asked.prune([1], strategy="delete")
    asked.delete_thread(2)
    assert list(saver.threads()) == []


@pytest.mark.behaviour(5)
@sync_and_async
def test_an_absent_namespace_is_the_root_for_get_and_any_for_list(saver, calls):
    root = put(saver, checkpoint_id="1")
    sub = put(saver, ns="sub", checkpoint_id="2")
    asked = calls(saver)
    assert asked.get_tuple(make_config(ns=None)).config == root
    assert ids(asked.list(make_config(ns=None))) == [id_of(sub), id_of(root)]
    assert ids(asked.list(make_config(ns=""))) == [id_of(root)]
    assert ids(asked.list(make_config(ns="sub"))) == [id_of(sub)]


# -- pending writes


@pytest.mark.behaviour(6, 37)
def test_pending_writes_are_sorted_by_task_path_then_task_then_position(saver):
    parent = put(saver, values={"c": "seed"})
    saver.put_writes(parent, [("c", "y0"), ("c", "y1")], "task-a", "~2")
    saver.put_writes(parent, [("c", "z0")], "task-b", "~10")
    saver.put_writes(parent, [("c", "x0"), ("c", "x1")], "task-c", "~1")
    saver.put_writes(parent, [("c", "w0")], "task-z")  # without a path: first
    saver.put_writes(parent, [("c", "v0")], "task-d", "~2")
    child = put(saver, parent=parent, versions={"c": 2})
    expected = ["w0", "x0", "x1", "z0", "y0", "y1", "v0"]

    read = saver.get_tuple(parent).pending_writes
    listed = next(saver.list(parent)).pending_writes
    rebuilt = saver.get_delta_channel_history(config=child, channels=["c"])["c"]["writes"]
    assert [value for _, _, value in read] == expected
    assert listed == read
    assert rebuilt == read


@pytest.mark.behaviour(6)
def test_special_channels_sort_before_the_ordinary_writes_of_their_task(saver):
    parent = put(saver)
    writes = [("c", 0), *((channel, channel) for channel in WRITES_IDX_MAP)]
    saver.put_writes(parent, writes, "task")
    by_slot = sorted(WRITES_IDX_MAP, key=WRITES_IDX_MAP.get)
    assert [channel for _, channel, _ in saver.get_tuple(parent).pending_writes] == [*by_slot, "c"]


# -- channel values


VALUES = {
    "none": None,
    "text": "hello",
    "bytes": b"\x00\xff",
    "bytearray": bytearray(b"abc"),
    "number": 1 << 40,
    "nested": {"a": [1, {"b": 2.5}]},
    "set": {1, 2},
    "uuid": UUID(int=5),
    "time": datetime(2026, 1, 2, tzinfo=timezone.utc),
    "message": HumanMessage("hi", id="1"),
}


@pytest.mark.behaviour(7)
@pytest.mark.parametrize("new_versions", [None, {}], ids=["all new", "none new"])
@sync_and_async
def test_values_that_were_put_come_back_equal(saver, calls, new_versions):
    asked = calls(saver)
    stored = put(asked, values=VALUES, new_versions=new_versions)
    assert values_of(asked.get_tuple(stored)) == VALUES
    assert [values_of(found) for found in asked.list(make_config())] == [VALUES]


@pytest.mark.behaviour(7)
def test_values_come_back_equal_after_reopening(path):
    with LogSaver(path) as saver:
        root = put(saver, values=VALUES)
        child = put(saver, values=VALUES, parent=root, new_versions={})
    with LogSaver(path) as saver:
        assert values_of(saver.get_tuple(root)) == VALUES
        assert values_of(saver.get_tuple(child)) == VALUES


@pytest.mark.behaviour(7)
def test_unchanged_channels_survive_a_long_line_of_descendants(saver):
    config = put(saver, values={"old": "kept", "n": 0})
    for n in range(1, 20):
        config = put(
            saver,
            values={"old": "kept", "n": n},
            versions={"old": 1, "n": n + 1},
            new_versions={"n": n + 1},
            parent=config,
        )
    assert values_of(saver.get_tuple(config)) == {"old": "kept", "n": 19}


@pytest.mark.behaviour(7)
def test_a_value_with_a_version_other_than_the_parents_is_stored_even_if_not_called_new(saver):
    """A fork made with `as_node="__copy__"` is put under its source's parent, with nothing new."""
    root = put(saver, values={"c": "old"}, versions={"c": 1})
    copied = put(saver, values={"c": "new"}, versions={"c": 2}, new_versions={}, parent=root)
    assert values_of(saver.get_tuple(copied)) == {"c": "new"}


@pytest.mark.behaviour(7)
def test_a_channel_that_lost_its_version_does_not_reappear(saver):
    root = put(saver, values={"kept": 1, "gone": 2})
    child = put(saver, values={"kept": 1}, new_versions={}, parent=root)
    assert values_of(saver.get_tuple(child)) == {"kept": 1}


@pytest.mark.behaviour(7)
def test_a_channel_with_a_version_but_no_value_is_absent(saver):
    root = put(saver, values={"c": 1, "cleared": 2})
    child = put(saver, values={"c": 1}, versions={"c": 1, "cleared": 2}, parent=root)
    found = saver.get_tuple(child).checkpoint
    assert found["channel_values"] == {"c": 1}
    assert found["channel_versions"] == {"c": 1, "cleared": 2}


@pytest.mark.behaviour(8)
def test_an_old_checkpoint_without_channel_values_loads(path):
    checkpoint = make_checkpoint(versions={"c": 1})
    del checkpoint["channel_values"]
    del checkpoint["updated_channels"]
    with LogSaver(path) as saver:
        stored = saver.put(make_config(), checkpoint, {}, {})
    with LogSaver(path) as saver:
        found = saver.get_tuple(stored).checkpoint
        assert found == {**checkpoint, "channel_values": {}}


class OlderSerde(JsonPlusSerializer):
    """Stores as serializers did before msgpack."""

    def dumps_typed(self, obj):
        if isinstance(obj, set):
            return "pickle", pickle.dumps(obj)
        return ("null", b"") if obj is None else ("json", json.dumps(obj).encode())


@pytest.mark.behaviour(8)
def test_blobs_of_older_serializers_load(path):
    values = {"json": {"a": [1, "x"]}, "pickle": {1, 2}, "null": None}
    with LogSaver(path, serde=OlderSerde()) as saver:
        root = put(saver, values=values, metadata={"source": "input", "step": -1})
        saver.put_writes(root, [("json", [1])], "task")
    with LogSaver(path, serde=JsonPlusSerializer(pickle_fallback=True)) as saver:
        child = put(saver, values=values, parent=root, new_versions={})
        assert values_of(saver.get_tuple(root)) == values
        assert values_of(saver.get_tuple(child)) == values
        assert saver.get_tuple(root).metadata == {"source": "input", "step": -1}
        assert saver.get_tuple(root).pending_writes == [("task", "json", [1])]


# -- values that cannot be decoded


@pytest.fixture
def broken(path):
    """A thread whose second checkpoint has a value, and a write, that no longer decode."""
    with LogSaver(path, serde=ForeignSerde()) as saver:
        first = put(saver, values={"good": 1})
        second = put(saver, values={"good": 2, "bad": FOREIGN}, parent=first)
        saver.put_writes(second, [("worse", FOREIGN), ("fine", 5)], "task")
        put(saver, values={"good": 3}, parent=second)
        put(saver, "other", values={"good": 4})
    with LogSaver(path) as saver:
        yield saver, second


@pytest.mark.behaviour(9)
@sync_and_async
def test_getting_an_undecodable_value_says_where_it_is(broken, calls):
    saver, config = broken
    with pytest.raises(ValueDecodeError) as caught:
        calls(saver).get_tuple(config)
    message = str(caught.value)
    assert "'t'" in message
    assert id_of(config) in message
    assert "'bad'" in message


@pytest.mark.behaviour(9)
@sync_and_async
def test_one_undecodable_value_does_not_break_the_list(broken, calls):
    saver, config = broken
    found = list(calls(saver).list(None))
    assert len(found) == 4
    assert {values_of(item)["good"] for item in found} == {1, 2, 3, 4}
    (bad,) = [item for item in found if item.config == config]
    assert isinstance(values_of(bad)["bad"], Undecodable)
    writes = {channel: value for _, channel, value in bad.pending_writes}
    assert isinstance(writes["worse"], Undecodable)
    assert writes["fine"] == 5


@pytest.mark.behaviour(9)
def test_one_undecodable_value_does_not_break_threads_or_other_checkpoints(broken):
    saver, config = broken
    assert {info.thread_id: info.checkpoints for info in saver.threads()} == {"t": 3, "other": 1}
    latest = saver.get_tuple(make_config())
    assert values_of(latest) == {"good": 3}
    assert latest.parent_config == config
    assert values_of(saver.get_tuple(make_config("other"))) == {"good": 4}


USES = {
    "bool": bool,
    "len": len,
    "iter": list,
    "str": str,
    "format": "{}".format,
    "int": int,
    "float": float,
    "index": lambda value: value[0],
    "in": lambda value: 1 in value,
    "attribute": lambda value: value.content,
    "call": lambda value: value(),
    "add": lambda value: value + [1],  # noqa: RUF005 - the addition is the point
    "added": lambda value: [1] + value,  # noqa: RUF005
    "less": lambda value: value < 1,
    "equal": lambda value: value == 1,
    "unequal": lambda value: value != 1,
    "copy": copy.deepcopy,
    "pickle": pickle.dumps,
}


@pytest.mark.behaviour(9)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_whatever_is_done_with_an_undecodable_value_raises(broken, use):
    saver, config = broken
    value = values_of(next(saver.list(config)))["bad"]
    with pytest.raises(ValueDecodeError) as caught:
        use(value)
    message = str(caught.value)
    assert "'t'" in message
    assert id_of(config) in message
    assert "'bad'" in message


@pytest.mark.behaviour(9)
def test_an_undecodable_value_can_be_shown_but_not_stored_again(broken, path):
    saver, config = broken
    value = values_of(next(saver.list(config)))["bad"]
    assert id_of(config) in repr(value)
    size = os.path.getsize(path)
    with pytest.raises(ValueEncodeError, match="channel 'c'"):
        put(saver, "u", values={"c": value})
    assert os.path.getsize(path) == size


@pytest.mark.behaviour(9)
@pytest.mark.parametrize("part", ["body", "metadata"])
def test_a_checkpoint_that_cannot_be_decoded_does_not_hide_the_others(path, part):
    """The stored checkpoint and its metadata go through the serializer like any value."""
    with LogSaver(path, serde=ForeignSerde()) as saver:
        oldest = put(saver, values={"c": 1})
        if part == "body":
            broken = put(saver, values={"c": 2}, parent=oldest, **{FOREIGN: 1})
        else:
            broken = put(saver, values={"c": 2}, parent=oldest, metadata={FOREIGN: 1})
        newest = put(saver, values={"c": 3}, parent=broken)
    with LogSaver(path) as saver:
        listed = ids(saver.list(make_config()))
        assert {id_of(oldest), id_of(newest)} <= set(listed)
        assert values_of(saver.get_tuple(newest)) == {"c": 3}
        assert [info.checkpoints for info in saver.threads()] == [3]
        with pytest.raises(ValueDecodeError, match=id_of(broken)):
            saver.get_tuple(broken)


@pytest.mark.behaviour(9)
def test_undecodable_metadata_matches_no_filter_and_stops_no_list(path):
    with LogSaver(path, serde=ForeignSerde()) as saver:
        good = put(saver, metadata={"source": "loop"})
        put(saver, metadata={"source": "loop", FOREIGN: 1})
    with LogSaver(path) as saver:
        assert ids(saver.list(None, filter={"source": "loop"})) == [id_of(good)]


@pytest.mark.behaviour(9)
@pytest.mark.parametrize("part", ["body", "metadata"])
def test_a_checkpoint_or_metadata_that_is_no_map_is_an_error_that_says_where(path, part):
    """A frame with good checksums can hold what this saver never writes."""
    with LogSaver(path) as saver:
        good = put(saver, "good", values={"c": 1}, metadata={"k": 1})
        put(saver, "bad", checkpoint_id="no-map", metadata={"k": 1})
    stored = JsonPlusSerializer().dumps_typed([1, 2])[1]
    with closing(Store(path)) as store:
        entry = store.index.namespace("bad", "").listed["no-map"]
        store.append(store.log.checkpoint(entry.offset)._replace(**{part: stored}))
    with LogSaver(path) as saver:
        with pytest.raises(ValueDecodeError, match=r"thread 'bad', checkpoint 'no-map'.*list"):
            saver.get_tuple(make_config("bad"))
        listed = {item.config["configurable"]["thread_id"]: item for item in saver.list(None)}
        assert values_of(listed["good"]) == {"c": 1}
        broken = listed["bad"].checkpoint if part == "body" else listed["bad"].metadata
        assert isinstance(broken, Undecodable)
        expected = {id_of(good)} | ({"no-map"} if part == "body" else set())
        assert set(ids(saver.list(None, filter={"k": 1}))) == expected
        child = put(saver, "bad", values={"c": 2}, parent=listed["bad"].config)
        saver.delete_for_runs(["x"])
        assert values_of(saver.get_tuple(child)) == {"c": 2}


# -- odd text


@pytest.mark.behaviour(10)
@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
def test_odd_text_survives_in_ids_channels_paths_and_values(path, text):
    checkpoint_id = text or new_id()  # an empty checkpoint id means "the latest"
    writes = [(text, text)]
    with LogSaver(path) as saver:
        stored = put(saver, text, {text: text}, ns=text, checkpoint_id=checkpoint_id)
        saver.put_writes(stored, writes, text, text)
        child = put(saver, text, {text: text}, ns=text, parent=stored, new_versions={})
    assert stored == make_config(text, text, checkpoint_id)
    with LogSaver(path) as saver:
        found = saver.get_tuple(make_config(text, text, checkpoint_id))
        assert values_of(found) == {text: text}
        assert found.checkpoint["channel_versions"] == {text: 1}
        assert found.pending_writes == [(text, text, text)]
        assert saver.get_tuple(child).parent_config == stored
        history = saver.get_delta_channel_history(config=child, channels=[text])
        assert history == {text: {"writes": [(text, text, text)], "seed": text}}
        assert [info.thread_id for info in saver.threads(text)] == [text]
        saver.delete_thread(text)
        assert list(saver.list(None)) == []


def _put_writes(saver, *, task_id="task", channel="c", task_path=""):
    saver.put_writes(make_config(checkpoint_id="x"), [("ok", 1), (channel, 1)], task_id, task_path)


REFUSED = {
    "thread id": lambda saver: put(saver, LONE_SURROGATE, {"c": 1}),
    "namespace": lambda saver: put(saver, ns=LONE_SURROGATE),
    "checkpoint id": lambda saver: put(saver, checkpoint_id=LONE_SURROGATE),
    "parent id": lambda saver: put(saver, parent=make_config(checkpoint_id=LONE_SURROGATE)),
    "channel": lambda saver: put(saver, values={"ok": 1, LONE_SURROGATE: 1}),
    "task id": lambda saver: _put_writes(saver, task_id=LONE_SURROGATE),
    "task path": lambda saver: _put_writes(saver, task_path=LONE_SURROGATE),
    "write's channel": lambda saver: _put_writes(saver, channel=LONE_SURROGATE),
    "copy's target": lambda saver: saver.copy_thread("t", LONE_SURROGATE),
}


@pytest.mark.behaviour(10)
@pytest.mark.parametrize("attempt", REFUSED.values(), ids=REFUSED)
def test_text_that_is_not_unicode_is_refused_before_anything_is_written(saver, path, attempt):
    first = put(saver)
    size = os.path.getsize(path)
    with pytest.raises(InvalidInputError, match="cannot be stored"):
        attempt(saver)
    assert os.path.getsize(path) == size
    assert ids(saver.list(None)) == [id_of(first)]
    assert saver.get_tuple(make_config(checkpoint_id="x")) is None
    saver._store.index._check()
    put(saver, "next")  # and the saver goes on


@pytest.mark.behaviour(10)
@sync_and_async
def test_asking_for_text_that_is_not_unicode_finds_nothing(saver, calls):
    put(saver)
    asked = calls(saver)
    assert asked.get_tuple(make_config(LONE_SURROGATE)) is None
    assert asked.get_tuple(make_config(checkpoint_id=LONE_SURROGATE)) is None
    assert list(asked.list(make_config(LONE_SURROGATE))) == []
    asked.delete_thread(LONE_SURROGATE)
    asked.delete_for_runs([LONE_SURROGATE])
    asked.prune([LONE_SURROGATE])
    assert len(list(saver.list(None))) == 1


@dataclasses.dataclass
class Note:
    text: str


class Pair(NamedTuple):
    left: str
    right: str


class Letter(BaseModel):
    text: str


# Each with a place for a text.
AROUND_TEXT = {
    "text": lambda text: text,
    "list": lambda text: ["ok?", text],
    "dict": lambda text: {"k": {"deeper": text}},
    "key": lambda text: {text: 1},
    "tuple": lambda text: (1, (text,)),
    "set": lambda text: {text},
    "deque": lambda text: deque([text]),
    "dataclass": lambda text: [Note(text)],
    "named tuple": lambda text: Pair("ok?", text),
    "model": lambda text: Letter(text=text),
    "message": lambda text: [HumanMessage("ok?"), HumanMessage(text)],
    "inside a message": lambda text: HumanMessage("ok?", additional_kwargs={"k": [text]}),
    "send": lambda text: Send("node", {"k": text}),
    "delta": lambda text: _DeltaSnapshot([text]),
}
CIPHER = SimpleNamespace(
    encrypt=lambda data: ("backwards", data[::-1]), decrypt=lambda _, data: data[::-1]
)
SERDES = {"plain": JsonPlusSerializer(), "encrypted": EncryptedSerializer(CIPHER)}


@pytest.mark.behaviour(10)
@sync_and_async
@pytest.mark.parametrize("serde", SERDES.values(), ids=SERDES)
@pytest.mark.parametrize("around", AROUND_TEXT.values(), ids=AROUND_TEXT)
def test_a_value_with_a_lone_surrogate_is_refused_and_nothing_is_written(
    path, around, serde, calls
):
    """JsonPlusSerializer would write "?" in its place, and tell nobody."""
    with LogSaver(path, serde=serde) as saver:
        stored = put(saver)
        size = os.path.getsize(path)
        asked, value = calls(saver), around(LONE_SURROGATE)
        given = make_config(), make_checkpoint()
        with pytest.raises(ValueEncodeError, match=r"channel 'c' .*surrogate.*nothing .* stored"):
            asked.put(given[0], {**given[1], "channel_values": {"ok": 1, "c": value}}, {}, {})
        with pytest.raises(ValueEncodeError, match=r"the metadata .*surrogate"):
            asked.put(*given, {"k": value}, {})
        with pytest.raises(ValueEncodeError, match=r"channel 'c' .*surrogate"):
            asked.put_writes(stored, [("ok", 1), ("c", value)], "task")
        assert os.path.getsize(path) == size
        assert len(list(saver.list(None))) == 1
        assert saver.get_tuple(stored).pending_writes == []


@pytest.mark.behaviour(10)
@pytest.mark.parametrize("serde", SERDES.values(), ids=SERDES)
@pytest.mark.parametrize("around", AROUND_TEXT.values(), ids=AROUND_TEXT)
@pytest.mark.parametrize("text", ["?", "really? \U0001f600 \0 \ufffd", ""])
def test_a_value_without_one_is_stored_exactly_as_the_serializer_makes_it(
    path, text, around, serde
):
    value = around(text)
    made = serde.dumps_typed(value)
    assert exact_dumps(serde)(value) == made
    with LogSaver(path, serde=serde, fsync="never") as saver:
        stored = put(saver, values={"c": value}, metadata={"k": value})
        saver.put_writes(stored, [("c", value)], "task")
        found = saver.get_tuple(stored)
    expected = serde.loads_typed(made)  # a tuple becomes a list
    assert values_of(found) == {"c": expected}
    assert found.metadata["k"] == (text.replace("\0", "") if value is text else expected)
    assert found.pending_writes == [("task", "c", expected)]


@pytest.mark.behaviour(10)
@pytest.mark.parametrize("around", AROUND_TEXT.values(), ids=AROUND_TEXT)
def test_a_lone_surrogate_survives_where_the_serializer_can_keep_it(path, around):
    value = around(LONE_SURROGATE)
    with LogSaver(path, serde=JsonPlusSerializer(pickle_fallback=True)) as saver:
        assert values_of(saver.get_tuple(put(saver, values={"c": value}))) == {"c": value}


def test_a_serializer_of_somebody_elses_is_used_as_it_is(path):
    class Replacing(JsonPlusSerializer):
        def dumps_typed(self, obj):
            return super().dumps_typed(obj)

    with LogSaver(path, serde=Replacing()) as saver:
        assert values_of(saver.get_tuple(put(saver, values={"c": "\ud800"}))) == {"c": "?"}


@pytest.mark.behaviour(10, 14)
def test_a_filter_with_a_lone_surrogate_does_not_find_a_question_mark(saver):
    put(saver, metadata={"k": ["?"]})
    assert len(list(saver.list(None, filter={"k": ["?"]}))) == 1
    assert list(saver.list(None, filter={"k": ["\ud800"]})) == []


@pytest.mark.behaviour(10)
def test_a_value_the_serializer_refuses_is_named_and_nothing_is_written(saver, path):
    size = os.path.getsize(path)
    with pytest.raises(ValueEncodeError, match=r"thread 't'.*channel 'lock'"):
        put(saver, values={"ok": 1, "lock": (item for item in ())})
    assert os.path.getsize(path) == size
    assert saver.get_tuple(make_config()) is None


# -- how much a read costs


@pytest.mark.behaviour(40)
@sync_and_async
def test_reading_one_checkpoint_decodes_no_other(path, calls):
    serde = CountingSerde()
    with LogSaver(path, serde=serde, fsync="never") as saver:
        config, costs = None, []
        for _ in range(300):
            config = put(saver, values={"c": 1}, new_versions={} if config else None, parent=config)
            serde.loads = 0
            calls(saver).get_tuple(make_config())
            calls(saver).get_tuple(config)
            costs.append(serde.loads)
        assert set(costs) == {2 * 3}  # checkpoint, metadata, one channel


@pytest.mark.behaviour(40)
def test_a_walk_along_the_ancestors_costs_the_same_in_a_long_log(path, monkeypatch):
    """With `aget_tuple`, by whoever has just opened the log."""
    read_frame, reads = Log._read_frame, []

    def noting(log, offset, size):
        frame = read_frame(log, offset, size)
        if frame.kind == Kind.CHECKPOINT:  # not what opening reads of a seal
            reads.append(offset)
        return frame

    def walk():
        del reads[:]
        with LogSaver(path) as saver:
            config, calls = make_config(), Awaited(saver)
            for _ in range(30):
                config = calls.get_tuple(config).parent_config
        return len(reads)

    monkeypatch.setattr(Log, "_read_frame", noting)
    config, costs = None, []
    for _ in range(2):
        with LogSaver(path, fsync="never") as saver:
            for number in range(200):
                config = put(saver, values={"c": number}, parent=config)
                put(saver, f"thread {number}")
        costs.append(walk())
    assert costs == [30, 30]


def test_a_large_frame_is_read_once_for_all_channels_shared_with_it(path, monkeypatch):
    """It is too large for the cache."""
    values = {f"channel {number}": b"x" * (DEFAULT_CACHE_BYTES // 15) for number in range(10)}
    with LogSaver(path, fsync="never") as saver:
        parent = put(saver, values=values)
        child = put(saver, values=values, parent=parent, new_versions={})
    offsets = []
    read_frame = Log._read_frame

    def noting(log, offset, size):
        offsets.append(offset)
        return read_frame(log, offset, size)

    monkeypatch.setattr(Log, "_read_frame", noting)
    with LogSaver(path) as saver:
        offsets.clear()  # from opening
        assert values_of(saver.get_tuple(child)) == values
        (sealed,) = {thread.known.place for thread in saver._store.index.threads.values()}
    offsets.remove(sealed.offset)
    assert len(offsets) == len(set(offsets)) == 2
