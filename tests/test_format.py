"""docs/format.md against the code, in both directions, and a golden file of this version.

The golden file was made once, by

    python tests/test_format.py tests/data/format-1.log

and stays as it is: a later version of the code has to read it. `make_golden` below is what ran.
"""

from __future__ import annotations

import itertools
import re
import struct
import sys
from pathlib import Path
from unittest import mock
from zlib import crc32

import ormsgpack
import pytest

from logsaver import LogSaver, LogSaverError, frame, record
from logsaver.frame import FileHeader, encode_frame
from logsaver.record import (
    CheckpointRecord,
    CopyRecord,
    DeleteRecord,
    ForgetRecord,
    LinkRecord,
    ReplacedRecord,
    SealPartRecord,
    SealRecord,
    VouchRecord,
    WritesRecord,
)

HERE = Path(__file__).parent
PAGE = HERE.parent.joinpath("docs", "format.md").read_text(encoding="utf-8")
GOLDEN = HERE / "data" / "format-1.log"
TS = "2026-01-02T03:04:05.000006+00:00"
# What the worked example puts.
CHECKPOINT = {
    "v": 4,
    "id": "c1",
    "ts": TS,
    "channel_versions": {"x": 1, "n": 2},
    "versions_seen": {},
    "channel_values": {"x": "hi", "n": None},
}


# -- the page


def section(title):
    """The text under a heading, up to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"docs/format.md has no section {title!r}"
    return found[1]


def table(title):
    """The rows of the first table under a heading, without its head."""
    rows = [line.strip("|").split("|") for line in section(title).splitlines() if line[:1] == "|"]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def example():
    """The bytes of the worked example. Every line says where it is, and is there."""
    block = re.search(r"```text\n(.*?)```", PAGE[PAGE.index("## Worked example") :], re.DOTALL)[1]
    data = b""
    for line in block.splitlines():
        if line and not line.startswith("#"):
            offset, hexadecimal = re.match(r"([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", line).groups()
            assert int(offset, 16) == len(data), line
            data += bytes.fromhex(hexadecimal)
    return data


# -- a reader written from the page alone


def read_log(data):
    """What the page says a reader does: (file header fields, [(frame header fields, payload)])."""
    magic, version, flags, size, file_id, generation, reserved, checksum = struct.unpack_from(
        "<8sHHI16sQ20sI", data
    )
    assert magic == b"\x89LSV\r\n\x1a\n"
    assert (version, flags, reserved) == (1, 0, bytes(20))
    key_check = data[64 : 64 + size]
    assert checksum == crc32(data[:60] + key_check)
    found, position, previous = [], 64 + size, checksum
    while position < len(data):
        head = struct.unpack_from("<4sBBHIIQQII", data, position)
        payload = data[position + 40 : position + 40 + head[4]]
        assert head[0] == b"\xf5LSF"
        assert head[1] in (1, 2, 3, 4, 5, 7)
        assert head[2:4] == (0, 0)
        assert head[4] == len(payload) <= 1 << 30
        assert head[5] == previous
        assert head[6] == position
        assert 64 + size <= head[7] <= position
        assert head[8] == crc32(payload)
        assert head[9] == crc32(data[position : position + 36], checksum)
        found.append((head, ormsgpack.unpackb(payload)))
        position, previous = position + 40 + len(payload), head[9]
    return (file_id, generation), found


def read_value(stored, channel, frames):
    """A stored value to the serializer's type name and bytes."""
    if isinstance(stored, int):
        (payload,) = [payload for head, payload in frames if head[6] == stored]
        stored = payload[8][channel]
    return ("msgpack", stored) if isinstance(stored, bytes) else tuple(stored)


# -- the worked example


def test_the_example_is_what_its_text_says():
    data = example()
    assert len(data) == 345
    (file_id, generation), frames = read_log(data)
    assert file_id == bytes(range(16))
    assert generation == 0
    heads = [head for head, _ in frames]
    assert [head[1] for head in heads] == [1, 2, 3]
    assert [head[6] for head in heads] == [64, 242, 301]
    assert [head[7] for head in heads] == [64, 242, 301]

    checkpoint, writes, delete = [payload for _, payload in frames]
    assert checkpoint[:5] == ["t", "", "c1", None, 1767323045000006]
    assert checkpoint[5] == crc32(b"step\0n0").to_bytes(4, "little")
    assert ormsgpack.unpackb(checkpoint[6]) == {
        "v": 4,
        "id": "c1",
        "ts": TS,
        "channel_versions": {"x": 1, "n": 2},
        "versions_seen": {},
    }
    assert ormsgpack.unpackb(checkpoint[7]) == {"step": 0}
    assert read_value(checkpoint[8]["x"], "x", frames) == ("msgpack", ormsgpack.packb("hi"))
    assert read_value(checkpoint[8]["n"], "n", frames) == ("null", b"")
    assert writes == ["t", "", "c1", "k1", "", [[0, "y", ormsgpack.packb(7)]]]
    assert delete == [["t"]]


def test_the_saver_opens_the_example(tmp_path):
    path = tmp_path / "agent.log"
    path.write_bytes(example())
    with LogSaver(path) as saver:
        assert list(saver.list(None)) == []
        assert saver.stats().bytes == 345
        assert saver.stats().synced_bytes == 301


def test_the_saver_opens_the_example_before_the_delete(tmp_path):
    path = tmp_path / "agent.log"
    path.write_bytes(example()[:301])
    with LogSaver(path) as saver:
        (found,) = saver.list(None)
    assert found.config["configurable"] == {
        "thread_id": "t",
        "checkpoint_ns": "",
        "checkpoint_id": "c1",
    }
    assert found.checkpoint == CHECKPOINT
    assert found.metadata == {"step": 0}
    assert found.parent_config is None
    assert found.pending_writes == [("k1", "y", 7)]


def test_the_code_writes_the_example_byte_by_byte():
    pack = ormsgpack.packb
    body = pack(
        {
            "v": 4,
            "id": "c1",
            "ts": TS,
            "channel_versions": {"x": 1, "n": 2},
            "versions_seen": {},
        }
    )
    tag = crc32(b"step\0n0").to_bytes(4, "little")
    channels = {"x": pack("hi"), "n": ["null", b""]}
    records = [
        CheckpointRecord(
            "t", "", "c1", None, 1767323045000006, tag, body, pack({"step": 0}), channels
        ),
        WritesRecord("t", "", "c1", "k1", "", [(0, "y", pack(7))]),
        DeleteRecord(["t"]),
    ]
    header = FileHeader(bytes(range(16)))
    data, previous = header.encode(), header.seed
    for one in records:
        kind, payload = record.encode(one)
        added, previous = encode_frame(
            kind,
            payload,
            offset=len(data),
            previous=previous,
            synced_upto=len(data),
            seed=header.seed,
        )
        data += added
    assert data.hex(" ") == example().hex(" ")


def test_the_saver_writes_the_example_byte_by_byte(tmp_path):
    """The same from the calls that the text tells of."""
    path = tmp_path / "agent.log"
    with mock.patch("os.urandom", lambda size: bytes(range(size))):
        saver = LogSaver(path)
    with saver:
        config = saver.put(in_thread("t"), CHECKPOINT, {"step": 0}, {"x": 1, "n": 2})
        saver.put_writes(config, [("y", 7)], "k1")
        saver.delete_thread("t")
        assert path.read_bytes().hex(" ") == example().hex(" ")


def test_every_field_of_the_example_is_explained():
    block = PAGE[PAGE.index("## Worked example") :]
    explained = re.findall(r"^[0-9a-f]{4}  .{47}  (.+)$", block, re.MULTILINE)
    headers = len(table("File header")) - 1 + 3 * len(table("Frame header"))
    assert len(explained) > headers + 3 * 4
    for offset in re.findall(r"own offset: (\d+)", block):
        assert f"the frame at byte {offset}:" in block
    for name, size in re.findall(r"(length of the payload): (\d+)", block):
        assert f"{int(size).to_bytes(4, 'little').hex(' ')}  " in block, name


# -- the tables


@pytest.mark.parametrize(
    ("title", "layout"),
    [("File header", frame._FILE_HEADER), ("Frame header", frame._FRAME_HEADER)],
)
def test_offsets_and_sizes_in_the_tables_are_those_of_the_structs(title, layout):
    rows = [(int(row[0]), int(row[1])) for row in table(title) if row[1]]
    for (offset, size), (following, _) in itertools.pairwise(rows):
        assert offset + size == following
    fields = re.findall(r"(\d*)([a-zA-Z])", layout.format.lstrip("<"))
    sizes = [struct.calcsize(f"<{count}{code}") for count, code in fields]
    assert [size for _, size in rows] == [*sizes, frame._CHECKSUM.size]
    assert sum(rows[-1]) == layout.size + frame._CHECKSUM.size


def test_the_headers_are_as_long_as_the_page_says():
    assert sum(int(row[1]) for row in table("File header") if row[1]) == frame.FILE_HEADER_SIZE
    assert sum(int(row[1]) for row in table("Frame header")) == frame.FRAME_HEADER_SIZE
    assert f"file-header  = {frame.FILE_HEADER_SIZE} fixed bytes" in PAGE
    assert f"frame-header = {frame.FRAME_HEADER_SIZE} fixed bytes" in PAGE
    assert table("File header")[-1][:3] == [str(frame.FILE_HEADER_SIZE), "", "key check"]


def test_constants_on_the_page_are_those_of_the_code():
    assert frame.FILE_MAGIC.hex(" ") in table("File header")[0][3]
    assert frame.FRAME_MAGIC.hex(" ") in table("Frame header")[0][3]
    assert table("File header")[1][3] == str(frame.FORMAT_VERSION)
    limits = dict(table("Limits"))
    assert limits["payload"] == f"{frame.MAX_PAYLOAD} bytes"
    assert limits["key check"] == f"{frame.MAX_KEY_CHECK} bytes"
    assert limits["frame overhead"] == f"{frame.FRAME_HEADER_SIZE} bytes"
    assert limits["smallest log"] == f"{len(FileHeader(bytes(16)).encode())} bytes"
    assert str(frame.MAX_PAYLOAD) in section("Frame header")
    assert str(frame.MAX_KEY_CHECK) in section("File header")


RECORDS = {
    "1: checkpoint": CheckpointRecord,
    "2: writes": WritesRecord,
    "3: delete": DeleteRecord,
    "4: forget": ForgetRecord,
    "5: copy": CopyRecord,
    "6: replaced": ReplacedRecord,
    "7: vouch": VouchRecord,
    "8: seal": SealRecord,
    "9: link": LinkRecord,
    "10: seal_part": SealPartRecord,
}


def test_kinds_on_the_page_are_those_of_the_code():
    assert [f"{row[0]}: {row[1]}" for row in table("Payloads")] == list(RECORDS)
    numbers = {name: number for name, number in vars(record.Kind).items() if name.isupper()}
    kinds = {f"{number}: {name.lower()}" for name, number in numbers.items()}
    assert kinds == RECORDS.keys()


@pytest.mark.parametrize("title", RECORDS)
def test_fields_on_the_page_are_those_of_the_records(title):
    named = [row[0].replace(" ", "_").replace("namespace", "ns") for row in table(title)]
    assert named == list(RECORDS[title]._fields)
    number = int(title.partition(":")[0])
    assert record._KIND_OF[RECORDS[title]] == number


def test_a_key_check_moves_the_frames_and_is_covered_by_the_checksum():
    header = FileHeader(bytes(range(16)), generation=7, key_check=b"sixteen bytes ok")
    kind, payload = record.encode(DeleteRecord(["t"]))
    data = header.encode()
    added, _ = encode_frame(
        kind, payload, offset=80, previous=header.seed, synced_upto=80, seed=header.seed
    )
    (file_id, generation), frames = read_log(data + added)
    assert (file_id, generation) == (bytes(range(16)), 7)
    assert [head[6] for head, _ in frames] == [80]


# -- the golden file


def in_thread(thread_id, ns="", checkpoint_id=None):
    configurable = {"thread_id": thread_id, "checkpoint_ns": ns}
    if checkpoint_id:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def a_checkpoint(checkpoint_id, values, versions=None):
    return {
        "v": 4,
        "id": checkpoint_id,
        "ts": TS,
        "channel_values": values,
        "channel_versions": versions or dict.fromkeys(values, 1),
        "versions_seen": {"node": {"x": 1}},
        "updated_channels": None,
    }


def make_golden(path):
    """Every kind of record, every form of value, ids beyond ASCII."""
    with mock.patch("os.urandom", lambda size: bytes(range(100, 100 + size))):
        saver = LogSaver(path)
    with saver:
        # Shared values, all types of the serializer that a log meets, special writes.
        values = {"x": "hello", "none": None, "raw": b"\x00\x01", "list": [1, 2.5, {"k": "v"}]}
        first = saver.put(
            in_thread("main"), a_checkpoint("c1", values), {"source": "input", "step": -1},
            dict.fromkeys(values, 1),
        )  # fmt: skip
        saver.put_writes(first, [("x", "more"), ("list", [3])], "task-1", "~path")
        saver.put_writes(first, [("__error__", "boom")], "task-1")
        versions = {**dict.fromkeys(values, 1), "x": 2}
        second = saver.put(
            first,
            a_checkpoint("c2", {**values, "x": "hello, more"}, versions),
            {"source": "loop", "step": 0, "run_id": "run-1"},
            {"x": 2},
        )
        # A subgraph's namespace, and ids that are not ASCII.
        saver.put(in_thread("main", "sub:1"), a_checkpoint("s1", {"y": 1}), {"step": 0}, {"y": 1})
        saver.put(in_thread("ünï 🦜"), a_checkpoint("c1", {"x": "grüße"}), {"step": 0}, {"x": 1})
        # A copy, which goes its own way.
        saver.copy_thread("main", "copy")
        saver.put(
            in_thread("copy", checkpoint_id="c2"), a_checkpoint("c3", {"x": "copied"}),
            {"step": 1}, {"x": 1},
        )  # fmt: skip
        # Pruned: gone, and hidden because a delta channel is rebuilt from it.
        for thread_id in ("pruned", "delta"):
            parent = in_thread(thread_id)
            for step in range(3):
                full = thread_id == "pruned" or step == 0
                parent = saver.put(
                    parent,
                    a_checkpoint(f"d{step}", {"log": [step]} if full else {}, {"log": step + 1}),
                    {"step": step, "counters_since_delta_snapshot": {"log": step}},
                    {"log": step + 1},
                )
                saver.put_writes(parent, [("log", [step])], f"task-{step}")
        saver.prune(["pruned", "delta"])
        # Removed by run, and removed for good.
        saver.put(
            in_thread("runs"),
            a_checkpoint("r1", {"x": 1}),
            {"step": 0, "run_id": "run-2"},
            {"x": 1},
        )
        saver.delete_for_runs(["run-2"])
        saver.put(in_thread("gone"), a_checkpoint("c1", {"x": 1}), {"step": 0}, {"x": 1})
        saver.delete_thread("gone")
        # Writes that wait for a checkpoint which has not come.
        saver.put_writes(in_thread("main", checkpoint_id="c9"), [("x", "early")], "task-9")
        assert second["configurable"]["checkpoint_id"] == "c2"


@pytest.fixture
def golden():
    with LogSaver(GOLDEN, read_only=True) as saver:
        yield saver


def test_the_golden_file_holds_the_record_of_every_call_and_every_form_of_value():
    _, frames = read_log(GOLDEN.read_bytes())
    assert {head[1] for head, _ in frames} == {1, 2, 3, 4, 5}
    forms = {
        type(value) for head, payload in frames if head[1] == 1 for value in payload[8].values()
    }
    assert forms == {bytes, list, int}
    slots = {row[0] for head, payload in frames if head[1] == 2 for row in payload[5]}
    assert min(slots) < 0 < max(slots)
    assert any(row[3] for head, payload in frames if head[1] == 4 for row in payload[0])


def test_the_golden_file_is_read_as_it_was_written(golden):
    found = golden.get_tuple(in_thread("main"))
    assert found.checkpoint["channel_values"] == {
        "x": "hello, more",
        "none": None,
        "raw": b"\x00\x01",
        "list": [1, 2.5, {"k": "v"}],
    }
    assert found.checkpoint["versions_seen"] == {"node": {"x": 1}}
    assert found.checkpoint["ts"] == TS
    assert found.metadata == {"source": "loop", "step": 0, "run_id": "run-1"}
    assert found.parent_config == in_thread("main", "", "c1")
    assert found.pending_writes == []

    first = golden.get_tuple(found.parent_config)
    assert first.checkpoint["channel_values"]["x"] == "hello"
    assert first.pending_writes == [
        ("task-1", "__error__", "boom"),
        ("task-1", "x", "more"),
        ("task-1", "list", [3]),
    ]
    assert golden.get_tuple(in_thread("main", "sub:1")).checkpoint["channel_values"] == {"y": 1}
    assert golden.get_tuple(in_thread("ünï 🦜")).checkpoint["channel_values"] == {"x": "grüße"}


def test_the_golden_file_lists_what_is_left(golden):
    listed = [
        (one["thread_id"], one["checkpoint_ns"], one["checkpoint_id"])
        for found in golden.list(None)
        for one in [found.config["configurable"]]
    ]
    assert sorted(listed) == [
        ("copy", "", "c1"),
        ("copy", "", "c2"),
        ("copy", "", "c3"),
        ("copy", "sub:1", "s1"),
        ("delta", "", "d2"),
        ("main", "", "c1"),
        ("main", "", "c2"),
        ("main", "sub:1", "s1"),
        ("pruned", "", "d2"),
        ("ünï 🦜", "", "c1"),
    ]
    assert golden.stats().hidden_checkpoints == 2
    by_run = [found.config for found in golden.list(None, filter={"run_id": "run-1"})]
    assert sorted(one["configurable"]["thread_id"] for one in by_run) == ["copy", "main"]


def test_the_golden_file_rebuilds_a_pruned_delta_channel(golden):
    history = golden.get_delta_channel_history(config=in_thread("delta"), channels=["log"])
    assert history == {
        "log": {"seed": [0], "writes": [("task-0", "log", [0]), ("task-1", "log", [1])]}
    }


def test_the_golden_file_takes_new_writes_behind_its_bytes(tmp_path):
    path = tmp_path / "agent.log"
    before = GOLDEN.read_bytes()
    path.write_bytes(before)
    with LogSaver(path) as saver:
        saver.put(in_thread("new"), a_checkpoint("c1", {"x": 1}), {}, {"x": 1})
        found = saver.get_tuple(in_thread("main", "", "c2"))
        assert found.checkpoint["channel_values"]["x"] == "hello, more"
    assert path.read_bytes().startswith(before)
    read_log(path.read_bytes())


def test_the_golden_file_is_damaged_if_any_byte_of_it_changes(tmp_path):
    """Or torn, if the byte is in the last frame. It never reads as something else."""
    data = GOLDEN.read_bytes()
    _, frames = read_log(data)
    last = frames[-1][0][6]
    path = tmp_path / "agent.log"
    for position in range(0, len(data), 7):
        changed = bytearray(data)
        changed[position] ^= 0x10
        path.write_bytes(changed)
        if position < last:
            with pytest.raises(LogSaverError):
                LogSaver(path, read_only=True)
        else:
            with LogSaver(path, read_only=True) as saver:
                assert saver.stats().bytes == last


if __name__ == "__main__":
    make_golden(sys.argv[1])
