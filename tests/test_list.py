"""`list`: what it selects, in which order, and what it costs."""

import threading
from datetime import datetime, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from support import (
    CountingSerde,
    id_of,
    ids,
    make_config,
    put,
    sync_and_async,
)

from logsaver import LogSaver, tags

ALL = ["5", "4", "3", "2", "1"]


@pytest.fixture
def five(saver):
    """Ids 1 to 5 over two threads and two namespaces, put out of order."""
    for checkpoint_id, thread_id, ns in (
        ("4", "b", ""),
        ("1", "a", ""),
        ("5", "a", "sub"),
        ("2", "b", "sub"),
        ("3", "a", ""),
    ):
        put(saver, thread_id, ns=ns, checkpoint_id=checkpoint_id)
    return saver


def below(checkpoint_id, **more):
    return {"configurable": {"checkpoint_id": checkpoint_id, **more}}


# -- order


@pytest.mark.behaviour(11)
@sync_and_async
def test_newest_first_across_threads_and_namespaces(five, calls):
    assert ids(calls(five).list(None)) == ALL


@pytest.mark.behaviour(11)
def test_newest_first_within_a_thread(five):
    assert ids(five.list(make_config("a", None))) == ["5", "3", "1"]
    assert ids(five.list(make_config("a", ""))) == ["3", "1"]


@pytest.mark.behaviour(11)
def test_newest_is_decided_by_the_id_not_by_when_it_was_put(saver):
    for checkpoint_id in ("10", "9", "100"):
        put(saver, checkpoint_id=checkpoint_id)
    assert ids(saver.list(make_config())) == ["9", "100", "10"]


@pytest.mark.behaviour(11)
def test_the_same_id_in_several_threads_is_listed_for_each(saver):
    for thread_id in ("a", "b", "c"):
        put(saver, thread_id, checkpoint_id="2")
        put(saver, thread_id, checkpoint_id="1")
    found = [found.config["configurable"] for found in saver.list(None)]
    assert [item["checkpoint_id"] for item in found] == ["2"] * 3 + ["1"] * 3
    assert {item["thread_id"] for item in found[:3]} == {"a", "b", "c"}


@pytest.mark.behaviour(11)
def test_a_checkpoint_id_in_the_config_lists_that_one(five):
    assert ids(five.list(make_config("a", None, "3"))) == ["3"]
    assert ids(five.list(make_config("a", None, "2"))) == []
    assert ids(five.list(make_config("a", None, "3"), before=below("3"))) == []
    assert ids(five.list(make_config("a", None, "3"), before=below("4"))) == ["3"]


# -- before and limit


@pytest.mark.behaviour(12)
@pytest.mark.parametrize(
    ("checkpoint_id", "expected"),
    [("3", ["2", "1"]), ("35", ["3", "2", "1"]), ("1", []), ("0", []), ("9", ALL), ("~", ALL)],
)
@sync_and_async
def test_before_compares_id_strings_whether_or_not_the_id_exists(
    five, calls, checkpoint_id, expected
):
    assert ids(calls(five).list(None, before=below(checkpoint_id))) == expected


@pytest.mark.behaviour(12)
def test_before_may_name_an_id_of_another_namespace_or_thread(five):
    in_sub = below("5", thread_id="a", checkpoint_ns="sub")
    assert ids(five.list(make_config("a", ""), before=in_sub)) == ["3", "1"]
    in_other_thread = below("2", thread_id="b", checkpoint_ns="sub")
    assert ids(five.list(make_config("a", ""), before=in_other_thread)) == ["1"]


@pytest.mark.behaviour(12)
@pytest.mark.parametrize(
    "before",
    [None, {}, {"configurable": {}}, make_config("a"), below(""), below(None)],
    ids=repr,
)
def test_before_without_an_id_restricts_nothing(five, before):
    assert ids(five.list(None, before=before)) == ALL


@pytest.mark.behaviour(41)
@sync_and_async
def test_before_may_be_the_inner_dict_alone(five, calls):
    bare = {"checkpoint_id": "3", "thread_id": "a", "checkpoint_ns": ""}
    assert ids(calls(five).list(None, before=bare)) == ["2", "1"]


@pytest.mark.behaviour(13)
@pytest.mark.parametrize(
    ("limit", "expected"), [(None, ALL), (0, []), (1, ["5"]), (3, ["5", "4", "3"]), (99, ALL)]
)
@sync_and_async
def test_limit_counts_what_is_yielded(five, calls, limit, expected):
    assert ids(calls(five).list(None, limit=limit)) == expected


@pytest.mark.behaviour(13)
def test_limit_counts_after_filter_and_before(saver):
    for step in range(6):
        put(saver, checkpoint_id=str(step), metadata={"even": step % 2 == 0})
    found = saver.list(None, filter={"even": True}, before=below("4"), limit=1)
    assert ids(found) == ["2"]


@pytest.mark.behaviour(13)
@sync_and_async
def test_a_negative_limit_is_an_error(five, calls):
    with pytest.raises(ValueError, match="-1"):
        list(calls(five).list(None, limit=-1))


# -- filter


@pytest.mark.behaviour(14)
@pytest.mark.parametrize(
    "key",
    [
        "a.b",
        "a",
        "",
        ".",
        "$.a",
        "a'b",
        'a"b',
        "x') OR 1=1 --",
        "ключ",
        "🦜",
        "a\0b",
        "%",
        "[0]",
        "a" * 10_000,
    ],
    ids=ascii,
)
def test_filter_keys_are_literal(saver, key):
    match = put(saver, metadata={key: "yes", "other": 1})
    put(saver, metadata={"a": {"b": "yes"}, "other": 1})
    put(saver, metadata={key: "no", "other": 1})
    put(saver, metadata={"other": 1})
    assert ids(saver.list(None, filter={key: "yes"})) == [id_of(match)]


@pytest.mark.behaviour(14)
def test_a_filter_with_text_that_is_not_unicode_matches_nothing(saver):
    put(saver, metadata={"a": "b"})
    assert ids(saver.list(None, filter={"\ud800": "b"})) == []
    assert ids(saver.list(None, filter={"a": "\ud800"})) == []


@pytest.mark.behaviour(14)
@sync_and_async
def test_all_items_of_a_filter_must_match(saver, calls):
    put(saver, metadata={"source": "loop", "step": 1})
    match = put(saver, metadata={"source": "loop", "step": 2, "more": True})
    put(saver, metadata={"source": "input", "step": 2})
    asked = calls(saver)
    assert ids(asked.list(None, filter={"source": "loop", "step": 2})) == [id_of(match)]
    assert ids(asked.list(None, filter={"source": "loop", "step": 3})) == []
    assert len(ids(asked.list(None, filter={}))) == 3


@pytest.mark.behaviour(14)
def test_all_items_must_match_when_none_can_be_told_from_the_index(saver):
    """Lists are compared after decoding; plain values are mostly sorted out before."""
    put(saver, metadata={"a": [1], "b": [1]})
    match = put(saver, metadata={"a": [1], "b": [2]})
    put(saver, metadata={"a": [2], "b": [2]})
    assert ids(saver.list(None, filter={"a": [1], "b": [2]})) == [id_of(match)]


VALUES = [
    "text",
    7,
    2.5,
    True,
    None,
    (1, "a"),
    [1, {"a": (2,)}],
    {"nested": {"x": [1, 2]}},
    {1, 2},
    b"bytes",
    UUID(int=3),
    Decimal("1.5"),
    datetime(2026, 1, 2, 3, tzinfo=timezone.utc),
]


@pytest.mark.behaviour(14)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_filter_values_are_equal_after_a_round_trip(path, value):
    with LogSaver(path) as saver:
        match = put(saver, metadata={"key": value})
        put(saver, metadata={"key": "something else"})
    with LogSaver(path) as saver:
        assert ids(saver.list(None, filter={"key": value})) == [id_of(match)]
        stored = saver.get_tuple(match).metadata["key"]
        assert ids(saver.list(None, filter={"key": stored})) == [id_of(match)]


@pytest.mark.behaviour(14)
@pytest.mark.parametrize(
    ("stored", "wanted"),
    [(1, 1.0), (True, 1), (0, False), (2.0, 2), (1, Decimal(1)), (Decimal(2), 2)],
    ids=repr,
)
def test_filter_values_that_are_equal_across_types_match(saver, stored, wanted):
    match = put(saver, metadata={"key": stored})
    tags._memo.clear()  # as in the next process, which has not seen what was stored
    assert ids(saver.list(None, filter={"key": wanted})) == [id_of(match)]


@pytest.mark.behaviour(14)
@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        ("1", 1),
        (1, "1"),
        (UUID(int=3), str(UUID(int=3))),
        ("a", ["a"]),
        ({"a": 1, "b": 2}, {"a": 1}),
    ],
    ids=repr,
)
def test_filter_values_that_only_look_alike_do_not_match(saver, stored, wanted):
    put(saver, metadata={"key": stored})
    assert ids(saver.list(None, filter={"key": wanted})) == []


# -- what the caller may do meanwhile, and what it costs


@pytest.mark.behaviour(15)
@pytest.mark.timeout(20)
def test_the_loop_may_put_delete_and_list(saver):
    for step in range(6):
        put(saver, checkpoint_id=str(step), metadata={"run_id": str(step)})
    seen = []
    for found in saver.list(make_config()):
        step = int(id_of(found.config))
        seen.append(step)
        saver.put_writes(found.config, [("c", step)], "task")
        put(saver, "elsewhere")
        saver.delete_for_runs([str(step), str(step - 1)])
        assert step not in {int(each) for each in ids(saver.list(make_config()))}
    assert seen == [5, 3, 1]
    assert saver.get_tuple(make_config()) is None


@pytest.mark.behaviour(15)
@pytest.mark.timeout(20)
async def test_the_async_loop_may_put_delete_and_list(saver):
    for step in range(6):
        put(saver, checkpoint_id=str(step))
    seen = []
    async for found in saver.alist(make_config()):
        seen.append(id_of(found.config))
        assert [each async for each in saver.alist(make_config(), limit=1)]
        if len(seen) == 3:
            await saver.adelete_thread("t")
            put(saver, "u")
    assert seen == ["5", "4", "3"]
    assert [info.thread_id for info in saver.threads()] == ["u"]


@pytest.mark.behaviour(15)
@pytest.mark.timeout(20)
def test_another_thread_can_write_while_a_list_is_half_way(saver):
    put(saver, checkpoint_id="1")
    put(saver, checkpoint_id="2")
    listing = saver.list(None)
    assert id_of(next(listing).config) == "2"
    writer = threading.Thread(target=put, args=(saver, "u"), daemon=True)
    writer.start()
    writer.join(10)
    assert not writer.is_alive()
    assert ids(listing) == ["1"]


@pytest.mark.behaviour(15)
def test_a_list_left_half_way_keeps_nothing_locked(saver):
    put(saver, checkpoint_id="1")
    put(saver, checkpoint_id="2")
    listings = [saver.list(None) for _ in range(5)]
    for listing in listings:
        next(listing)
    assert not saver._store.lock.locked()
    put(saver, checkpoint_id="3")


@pytest.fixture
def counted(path):
    """A saver with 40 checkpoints that counts what it decodes."""
    serde = CountingSerde()
    with LogSaver(path, serde=serde, fsync="never") as saver:
        config = None
        for step in range(40):
            config = put(
                saver,
                values={"c": step},
                versions={"c": step + 1},
                parent=config,
                metadata={
                    "step": step,
                    "run_id": UUID(int=step // 20),
                    "even": step % 2 == 0,
                    "half": step / 2,
                    "name": f"n{step}",
                },
            )
            saver.put_writes(config, [("c", 0)], "task")
        serde.loads = 0
        yield saver, serde


COST = 4  # of one checkpoint here: itself, its metadata, a channel, a write


@pytest.mark.behaviour(15)
@pytest.mark.parametrize(
    "wanted",
    [
        {"step": 99},
        {"name": "n"},
        {"half": 0.25},
        {"even": "yes"},
        {"run_id": UUID(int=9)},
        {"absent": "x"},
        {"step": 1, "even": True},
    ],
    ids=repr,
)
def test_nothing_is_decoded_of_what_the_filter_rejects(counted, wanted):
    saver, serde = counted
    assert list(saver.list(None, filter=wanted)) == []
    assert serde.loads == 0


@pytest.mark.behaviour(15)
def test_what_the_filter_accepts_is_decoded_once(counted):
    saver, serde = counted
    (found,) = saver.list(None, filter={"step": 7})
    assert found.metadata["step"] == 7
    assert serde.loads <= COST


@pytest.mark.behaviour(15)
def test_a_list_decodes_only_what_it_has_yielded(counted):
    saver, serde = counted
    listing = saver.list(None)
    assert serde.loads == 0
    for yielded in range(1, 4):
        next(listing)
        assert serde.loads == yielded * COST
    serde.loads = 0
    assert len(list(saver.list(None, limit=2))) == 2
    assert serde.loads == 2 * COST


def test_long_texts_in_metadata_are_not_remembered(saver):
    """Tags are remembered for the whole process: that must not be megabytes."""
    long = "x" * 100_000
    found = put(saver, metadata={"note": long, long: "note"})
    assert ids(saver.list(None, filter={"note": long, long: "note"})) == [id_of(found)]
    assert all(len(key) + len(str(value)) < 1000 for key, value in tags._memo)
