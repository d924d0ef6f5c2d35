"""Records to bytes and back, and payloads that are no records."""

from zlib import crc32

import ormsgpack
import pytest
from disks import PATH, MemoryDisk
from hypothesis import given
from hypothesis import strategies as st
from logs import build_log, checkpoint, log_of_payload, records

from logsaver import CorruptLogError, InvalidInputError, LogSaver, RecordTooLargeError, verify
from logsaver.record import (
    BadRecordError,
    CheckpointRecord,
    CopyRecord,
    DeleteRecord,
    ForgetRecord,
    Kind,
    Linked,
    LinkRecord,
    Record,
    ReplacedRecord,
    SealPartRecord,
    SealRecord,
    UnknownKindError,
    VouchRecord,
    WritesRecord,
    decode,
    encode,
)
from logsaver.store import Store
from logsaver.tags import TAG_SIZE, may_match, tags
from logsaver.value import is_stored, typed, whole

CHECKPOINT = ("t", "", "c1", None, 0, b"", b"body", b"meta", {})
WRITES = ("t", "", "c1", "task", "", [(0, "x", b"v")])


def replaced(fields, position, value):
    return (*fields[:position], value, *fields[position + 1 :])


# -- round trips


@given(records(links=True))
def test_a_record_comes_back_as_it_was(record):
    kind, payload = encode(record)
    found = decode(kind, payload)
    assert found == record
    assert type(found) is type(record)
    assert decode(kind, memoryview(payload)) == record


@given(records(links=True))
def test_the_same_record_always_gives_the_same_bytes(record):
    assert encode(decode(*encode(record))) == encode(record)


@given(records(links=True), st.integers(0, 255))
def test_a_payload_under_another_kind_is_refused_or_reads_as_that_kind(record, kind):
    """Kinds are told apart by the frame header, not the payload; nothing else may escape."""
    _, payload = encode(record)
    try:
        found = decode(kind, payload)
    except (BadRecordError, UnknownKindError):
        return
    assert encode(found)[0] == kind


def test_kind_numbers_are_what_the_format_says():
    kinds = {type(r): encode(r)[0] for r in (checkpoint(), DeleteRecord([]), ForgetRecord([]))}
    assert kinds == {CheckpointRecord: 1, DeleteRecord: 3, ForgetRecord: 4}
    assert encode(WritesRecord("t", "", "c", "task", "", []))[0] == 2
    assert encode(CopyRecord("a", "b"))[0] == 5
    assert encode(ReplacedRecord(1))[0] == 6
    assert encode(VouchRecord()) == (7, b"\x90")
    linked = Linked("c", 64, 50, None, 1, b"", is_hidden=False)
    assert encode(LinkRecord("t", "", [linked], []))[0] == 9
    assert encode(SealRecord(64, b"", b""))[0] == 8
    assert encode(SealPartRecord(b""))[0] == 10
    assert len(Record.__args__) == 10


@pytest.mark.parametrize("field", ["checkpoints", "writes"])
def test_a_link_to_a_frame_that_comes_later_is_damage(tmp_path, field):
    """It could claim any size, which a reader would make room for."""
    frame = (65, 100)
    linked = Linked("c", *frame, None, 1, b"", is_hidden=False)
    lists = ([linked], []) if field == "checkpoints" else ([], [("c", "task", [frame])])
    path = tmp_path / "agent.log"
    path.write_bytes(log_of_payload(*encode(LinkRecord("t", "", *lists))).data)
    with pytest.raises(CorruptLogError, match="comes later"):
        LogSaver(path, read_only=True)


# -- payloads that are no records

BAD_PAYLOADS = (
    {
        "empty": (Kind.DELETE, b""),
        "not msgpack": (Kind.DELETE, b"\xc1"),
        "cut short": (Kind.CHECKPOINT, ormsgpack.packb(CHECKPOINT)[:-1]),
        "trailing garbage": (Kind.CHECKPOINT, ormsgpack.packb(CHECKPOINT) + b"\x00"),
        "a second record behind it": (Kind.COPY, ormsgpack.packb(("a", "b")) * 2),
        "an array that claims 4 billion members": (Kind.DELETE, b"\xdd\xff\xff\xff\xff"),
        "text that claims 4 GB": (Kind.DELETE, b"\x91\xdb\xff\xff\xff\xff"),
        "text that is not UTF-8": (Kind.DELETE, b"\x91\x91\xa2\xff\xff"),
        "deep nesting": (Kind.DELETE, b"\x91" * 100_000 + b"\xc0"),
        "deep nesting in a value": (
            Kind.CHECKPOINT,
            ormsgpack.packb(CHECKPOINT)[:-1] + b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0",
        ),
        "an extension type": (Kind.DELETE, b"\x91\x91\xd4\x05\x00"),
        "a timestamp": (Kind.DELETE, b"\x91\x91\xd6\xff\x00\x00\x00\x00"),
        "an extension type as a value": (
            Kind.CHECKPOINT,
            ormsgpack.packb(CHECKPOINT)[:-1] + b"\x81\xa1x\xd4\x05\x00",
        ),
        "a map with a key that is no text": (
            Kind.CHECKPOINT,
            ormsgpack.packb(CHECKPOINT)[:-1] + b"\x81\x01\xc4\x00",
        ),
        "a number": (Kind.DELETE, ormsgpack.packb(5)),
        "nil": (Kind.DELETE, b"\xc0"),
        "a map for the fields": (Kind.COPY, ormsgpack.packb({"a": 1, "b": 2})),
        "text for the fields": (Kind.COPY, ormsgpack.packb("ab")),
        "bytes for the fields": (Kind.COPY, ormsgpack.packb(b"ab")),
        "a checkpoint with a field too few": (Kind.CHECKPOINT, ormsgpack.packb(CHECKPOINT[:-1])),
        "a checkpoint with a field too many": (Kind.CHECKPOINT, ormsgpack.packb((*CHECKPOINT, 1))),
        "writes with a field too few": (Kind.WRITES, ormsgpack.packb(WRITES[:-1])),
        "writes with a field too many": (Kind.WRITES, ormsgpack.packb((*WRITES, 1))),
        "a delete with a field too many": (Kind.DELETE, ormsgpack.packb((["a"], 1))),
        "a delete of one text": (Kind.DELETE, ormsgpack.packb(("a",))),
        "a delete of numbers": (Kind.DELETE, ormsgpack.packb(([1],))),
        "a forget with a field too many": (Kind.FORGET, ormsgpack.packb(([], 1))),
        "a forget of text": (Kind.FORGET, ormsgpack.packb((["abcd"],))),
        "a forget of an empty text": (Kind.FORGET, ormsgpack.packb(("",))),
        "a forget of an empty map": (Kind.FORGET, ormsgpack.packb(({},))),
        "a forget row with a field too few": (Kind.FORGET, ormsgpack.packb(([("t", "", [])],))),
        "a forget row of text": (Kind.FORGET, ormsgpack.packb(([("t", "", "a", [])],))),
        "a copy with a field too few": (Kind.COPY, ormsgpack.packb(("a",))),
        "a copy of a number": (Kind.COPY, ormsgpack.packb((1, "b"))),
        "a copy of nothing": (Kind.COPY, ormsgpack.packb((None, "b"))),
    }
    | {
        f"a checkpoint whose field {position} is {bad!r}": (
            Kind.CHECKPOINT,
            ormsgpack.packb(replaced(CHECKPOINT, position, bad)),
        )
        for position, bads in {
            0: [None, 1, b"t"],
            1: [None, 1],
            2: [None, 1],
            3: [1, b"c"],
            4: [None, 1.0, True, "0"],
            5: [None, ""],
            6: [None, "body", [], ["t"], ["t", "text"], [1, b""], ["t", b"", b""], -1, 1.0],
            7: [None, "meta", {}],
            8: [None, [], "x", {"x": None}, {"x": "text"}, {"x": -1}, {"x": True}, {"x": 1.0}],
        }.items()
        for bad in bads
    }
    | {
        f"writes whose field {position} is {bad!r}": (
            Kind.WRITES,
            ormsgpack.packb(replaced(WRITES, position, bad)),
        )
        for position, bads in {
            0: [None, 1],
            3: [None, 1],
            4: [None, 1],
            5: [
                None,
                5,
                {},
                "",
                [5],
                ["abc"],
                [(0, "x")],
                [(0, "x", b"", 1)],
                [("0", "x", b"")],
                [(True, "x", b"")],
                [(0, 1, b"")],
                [(0, "x", "text")],
                [(0, "x", None)],
            ],
        }.items()
        for bad in bads
    }
    | {
        # Only a channel can be shared with another checkpoint; there is nowhere to look these up.
        "a generation that is text": (Kind.REPLACED, ormsgpack.packb(("1",))),
        "a generation that is a boolean": (Kind.REPLACED, ormsgpack.packb((True,))),
        "a vouch with a field": (Kind.VOUCH, ormsgpack.packb((1,))),
        "a shared body": (Kind.CHECKPOINT, ormsgpack.packb(replaced(CHECKPOINT, 6, 64))),
        "shared metadata": (Kind.CHECKPOINT, ormsgpack.packb(replaced(CHECKPOINT, 7, 64))),
        "a shared write": (Kind.WRITES, ormsgpack.packb(replaced(WRITES, 5, [(0, "x", 64)]))),
    }
)


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
@pytest.mark.parametrize("name", BAD_PAYLOADS)
def test_a_malformed_payload_is_damage_with_path_and_offset(name, read_only):
    """Its checksum is good, so it was stored like that: by another program, or on purpose."""
    kind, payload = BAD_PAYLOADS[name]
    data, offsets = log_of_payload(kind, payload)
    disk = MemoryDisk({PATH: data})
    with pytest.raises(CorruptLogError) as caught:
        Store(PATH, read_only=read_only, disk=disk)
    assert (caught.value.path, caught.value.offset) == (PATH, offsets[1])
    assert PATH in str(caught.value)
    assert str(offsets[1]) in str(caught.value)
    assert disk.content() == data
    assert list(disk.files) == [PATH]


def test_verify_calls_a_malformed_payload_damage_as_opening_does(tmp_path):
    """It is whole, so no crash left it; to call it a torn tail promises that opening cuts it."""
    path = tmp_path / "agent.log"
    path.write_bytes(log_of_payload(*BAD_PAYLOADS["a delete of numbers"]).data)
    with pytest.raises(CorruptLogError):
        Store(str(path))
    report = verify(path)
    assert not report.ok
    assert report.torn_tail is None


@given(st.integers(1, 6), st.binary(max_size=60))
def test_an_arbitrary_payload_decodes_or_is_refused(kind, payload):
    try:
        record = decode(kind, payload)
    except BadRecordError:
        return
    assert decode(*encode(record)) == record


@given(records(links=True), st.data())
def test_a_payload_with_a_changed_byte_decodes_or_is_refused(record, data):
    kind, payload = encode(record)
    changed = bytearray(payload)
    changed[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode(kind, bytes(changed))
    except BadRecordError:
        return
    assert type(found) is type(record)


# -- records that cannot be stored


@pytest.mark.parametrize(
    "record",
    [
        checkpoint(thread_id="lone \ud800 surrogate"),
        checkpoint()._replace(channels={"\udfff": b""}),
        checkpoint()._replace(channels={5: b""}),
        checkpoint()._replace(time=2**64),
    ],
    ids=["a surrogate in an id", "a surrogate in a channel", "a number for a channel", "a time"],
)
def test_what_msgpack_cannot_hold_is_refused_and_nothing_is_written(record):
    disk = MemoryDisk({PATH: build_log([checkpoint()]).data})
    store = Store(PATH, disk=disk)
    before = disk.content()
    with pytest.raises(InvalidInputError, match="cannot be stored"):
        store.append(record)
    assert disk.content() == before


def test_a_record_above_the_cap_is_refused_and_one_at_the_cap_is_not(monkeypatch):
    disk = MemoryDisk()
    store = Store(PATH, disk=disk)
    monkeypatch.setattr("logsaver.log.MAX_PAYLOAD", 1000)
    room = 1000 - len(encode(checkpoint()._replace(channels={"x": b"v" * 500}))[1]) + 500
    before = disk.content()
    with pytest.raises(RecordTooLargeError, match=r"1000 bytes.*1001.*outside"):
        store.append(checkpoint()._replace(channels={"x": b"v" * (room + 1)}))
    assert disk.content() == before
    store.append(checkpoint()._replace(channels={"x": b"v" * room}))


# -- stored values and tags


@given(st.text(max_size=5), st.binary(max_size=20))
def test_a_whole_value_comes_back_with_its_type(kind, data):
    stored = whole((kind, data))
    assert typed(stored) == (kind, data)
    assert is_stored(stored)
    assert type(stored) is (bytes if kind == "msgpack" else list)


@pytest.mark.parametrize("data", [bytearray(b"abc"), memoryview(b"abc")])
def test_a_value_is_copied_unless_it_is_bytes(data):
    assert whole(("msgpack", data)) == b"abc"
    assert type(whole(("msgpack", data))) is bytes


def test_a_shared_value_is_not_read_as_a_whole_one():
    with pytest.raises(TypeError, match="looked up"):
        typed(64)


PLAIN = st.text(max_size=5) | st.integers() | st.floats(allow_nan=False) | st.booleans()


@given(st.text(max_size=5), PLAIN)
def test_metadata_always_has_a_tag_of_what_it_holds(key, value):
    found = tags({"other": 1, key: value, "another": None})
    assert len(found) % TAG_SIZE == 0
    assert any(tag in found for tag in may_match(key, value))


@given(st.integers(-(2**53), 2**53))
def test_numbers_that_are_equal_have_the_same_tag(number):
    assert tags({"n": number}) == tags({"n": float(number)})
    assert tags({"n": True}) == tags({"n": 1.0})


def test_a_tag_is_the_checksum_of_key_and_value():
    for value, text in [("a", b"sa"), (2, b"n2"), (2.0, b"n2"), (1.5, b"n1.5"), (True, b"n1")]:
        assert tags({"k": value}) == crc32(b"k\0" + text).to_bytes(4, "little")
    assert tags({"k": 1j}) == crc32(b"k\0*").to_bytes(4, "little")
    assert tags({"k": None, "l": [], "m": {}}) == b""
