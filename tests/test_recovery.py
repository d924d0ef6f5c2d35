"""Opening after a crash: a torn tail is cut, damage is an error, a reader touches nothing."""

import glob
import logging
import os

import pytest
from disks import CHANGING, PATH, MemoryDisk, fail, open_saver
from hypothesis import given
from hypothesis import strategies as st
from logs import HEADER, build_log, checkpoint, few_ids, flipped, holds, records, writes
from support import id_of, ids, make_config, put

from logsaver import CorruptLogError, LogSaver, LogSaverError, NotALogError, UnsupportedFormatError
from logsaver.log import MUCH_UNSYNCED
from logsaver.logfile import COPY_CHUNK, LogFile
from logsaver.record import CopyRecord, DeleteRecord, ForgetRecord, Forgotten
from logsaver.recovery import CHUNK
from logsaver.store import Store

TORN = f"{PATH}.torn-1"
HISTORY = [
    checkpoint("c1"),
    writes("c1"),
    checkpoint("c2", parent_id="c1"),
    CopyRecord("t", "u"),
    ForgetRecord([Forgotten("t", "", ["c1"], [])]),
    DeleteRecord(["u"]),
]


def open_at(data, *, read_only=False):
    disk = MemoryDisk({PATH: data})
    return disk, Store(PATH, read_only=read_only, disk=disk)


def state_after(history):
    """What a log of these records holds."""
    store = open_at(build_log(history).data)[1]
    return holds(store)


def whole_frames(log, size):
    return sum(end <= size for end in log.ends)


# -- torn tails


@pytest.mark.parametrize("synced", [False, True])
def test_a_log_cut_anywhere_opens_with_what_was_whole(synced):
    log = build_log(HISTORY, synced=synced)
    states = [state_after(HISTORY[:count]) for count in range(len(HISTORY) + 1)]
    after_new_write = [
        state_after([*HISTORY[:count], checkpoint("new", "v")]) for count in range(len(HISTORY) + 1)
    ]
    for size in range(HEADER.data_start, len(log.data) + 1):
        count = whole_frames(log, size)
        kept = log.ends[count - 1] if count else HEADER.data_start
        disk, store = open_at(log.data[:size])
        assert holds(store) == states[count], size
        assert disk.content() == log.data[:kept], size
        assert disk.files.keys() == ({PATH} if kept == size else {PATH, TORN}), size
        if kept != size:
            assert disk.content(TORN) == log.data[kept:size]

        store.append(checkpoint("new", "v"))
        store.close()
        before = {path: disk.content(path) for path in disk.files}
        again = Store(PATH, disk=disk)
        assert holds(again) == after_new_write[count], size
        again.close()
        assert {path: disk.content(path) for path in disk.files} == before, size


@pytest.mark.parametrize("size", range(1, HEADER.data_start))
def test_a_log_cut_within_its_file_header_is_refused_and_left_alone(size):
    """A new log is put in place whole, so a crash does not leave this; something else did."""
    data = build_log(HISTORY).data[:size]
    disk = MemoryDisk({PATH: data})
    with pytest.raises((CorruptLogError, NotALogError)):
        Store(PATH, disk=disk)
    assert disk.content() == data
    assert list(disk.files) == [PATH]


@given(st.lists(records(few_ids), max_size=8), st.data())
def test_any_log_cut_anywhere_holds_a_prefix(history, data):
    log = build_log(history)
    size = data.draw(st.integers(HEADER.data_start, len(log.data)))
    count = whole_frames(log, size)
    disk, store = open_at(log.data[:size])
    assert holds(store) == state_after(history[:count])
    store.close()
    assert holds(Store(PATH, disk=disk)) == state_after(history[:count])


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_behind_the_last_frame_are_cut_off(junk):
    log = build_log(HISTORY, synced=True)
    disk, store = open_at(log.data + junk)
    assert holds(store) == state_after(HISTORY)
    assert disk.content() == log.data
    assert (TORN in disk.files) == any(junk)


@pytest.mark.parametrize("size", [1, 39, 40, 4096, CHUNK, CHUNK + 1])
def test_zeros_behind_the_last_frame_are_cut_off_and_not_saved(size):
    """A file grown by the file system, whose data never arrived: there is nothing to save."""
    log = build_log(HISTORY)
    disk, store = open_at(log.data + bytes(size))
    assert disk.content() == log.data
    assert list(disk.files) == [PATH]
    store.append(checkpoint("c9"))


def test_a_last_byte_that_is_not_zero_is_enough_to_save_the_tail():
    log = build_log(HISTORY)
    junk = bytes(2 * CHUNK) + b"\x01"
    disk, _ = open_at(log.data + junk)
    assert disk.content(TORN) == junk


def test_each_torn_tail_is_saved_in_a_file_of_its_own():
    disk = MemoryDisk({PATH: build_log(HISTORY).data})
    for number in (1, 2, 3):
        disk.files[PATH].data += b"torn %d" % number
        Store(PATH, disk=disk).close()
        assert disk.content(f"{PATH}.torn-{number}") == b"torn %d" % number


def test_a_torn_tail_larger_than_a_piece_is_saved_whole():
    junk = bytes(range(1, 251)) * (3 * COPY_CHUNK // 250)
    disk, _ = open_at(build_log(HISTORY).data + junk)
    assert disk.content(TORN) == junk


def test_a_tail_is_saved_before_it_is_cut_and_the_cut_is_synced():
    """Not synced, the cut-off frames could come back behind new ones."""
    disk, _ = open_at(build_log(HISTORY).data + b"torn")
    done = [(call.name, call.path) for call in disk.calls if call.name in CHANGING]
    saved = [("open-to-write", TORN), ("write", TORN), ("sync", TORN)]
    assert done == [("open-to-write", PATH), *saved, ("truncate", PATH), ("sync", PATH)]


def test_a_tail_that_cannot_be_saved_is_cut_all_the_same():
    """A full disk must not keep the log from opening."""
    log = build_log(HISTORY)
    disk = MemoryDisk({PATH: log.data + b"torn"})
    disk.on = fail("write", OSError(28, "No space left on device"))
    store = Store(PATH, disk=disk)
    assert disk.content() == log.data
    assert holds(store) == state_after(HISTORY)


def test_cutting_a_torn_tail_is_told_in_the_log_of_the_program(caplog):
    with caplog.at_level(logging.WARNING, logger="logsaver"):
        log = build_log(HISTORY)
        open_at(log.data + b"torn")
        open_at(log.data)
    (message,) = [entry.getMessage() for entry in caplog.records]
    assert PATH in message
    assert "4 bytes" in message
    assert str(len(log.data)) in message
    assert TORN in message


@pytest.mark.parametrize("name", ["open-to-write", "write", "truncate", "sync"])
@pytest.mark.parametrize("when", [1, 2, 3])
def test_recovery_that_is_interrupted_is_done_again(name, when):
    log = build_log(HISTORY)
    disk = MemoryDisk({PATH: log.data + b"torn tail"})
    left = when

    def interrupt(call):
        nonlocal left
        left -= call.name == name
        if not left:
            left = -1
            raise KeyboardInterrupt

    disk.on = interrupt
    try:
        Store(PATH, disk=disk).close()
    except KeyboardInterrupt:
        assert disk.content().startswith(log.data)
    disk.on = lambda call: None
    store = Store(PATH, disk=disk)
    assert holds(store) == state_after(HISTORY)
    assert disk.content() == log.data
    store.append(checkpoint("c9"))


@pytest.mark.parametrize("name", ["truncate", "sync"])
def test_a_disk_that_fails_during_recovery_is_told_as_an_error_of_the_log(name):
    disk = MemoryDisk({PATH: build_log(HISTORY).data + bytes(9)})
    disk.on = fail(name, OSError(5, "Input/output error"))
    with pytest.raises(LogSaverError) as caught:
        Store(PATH, disk=disk)
    assert PATH in str(caught.value)


# -- damage below the watermark, and above it


SYNCED = build_log([checkpoint(f"c{n}") for n in range(5)], synced=True)
UNSYNCED = build_log([checkpoint(f"c{n}") for n in range(5)])


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
@given(data=st.data())
def test_damage_below_the_watermark_is_an_error_and_nothing_is_touched(data, read_only):
    number = data.draw(st.integers(0, 3))  # the last frame is covered by no later one
    start, end = SYNCED.offsets[number], SYNCED.ends[number]
    damaged = flipped(SYNCED.data, data.draw(st.integers(start * 8, end * 8 - 1)))
    disk = MemoryDisk({PATH: damaged})
    with pytest.raises(CorruptLogError) as caught:
        Store(PATH, read_only=read_only, disk=disk)
    assert (caught.value.path, caught.value.offset) == (PATH, start)
    assert "logsaver.repair(path, out)" in str(caught.value)
    assert "logsaver.verify(path)" in str(caught.value)
    assert disk.content() == damaged
    assert list(disk.files) == [PATH]
    assert not disk.named("write", "truncate", "sync")


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("harm", ["zeroed", "garbled", "header zeroed", "payload zeroed"])
def test_a_synced_frame_that_is_lost_is_damage(number, harm):
    start, end = SYNCED.offsets[number], SYNCED.ends[number]
    if harm.startswith("header"):
        end = start + 40
    if harm.startswith("payload"):
        start += 40
    filler = b"\xa5" if harm == "garbled" else b"\0"
    damaged = SYNCED.data[:start] + filler * (end - start) + SYNCED.data[end:]
    disk = MemoryDisk({PATH: damaged})
    with pytest.raises(CorruptLogError) as caught:
        Store(PATH, disk=disk)
    assert caught.value.offset == SYNCED.offsets[number]
    assert disk.content() == damaged


def test_a_later_header_is_enough_to_know_what_was_safe():
    """The frame that says so may itself be torn: its header is whole."""
    damaged = bytearray(SYNCED.data[: SYNCED.offsets[4] + 41])
    damaged[SYNCED.offsets[2] + 50] ^= 1
    with pytest.raises(CorruptLogError) as caught:
        open_at(bytes(damaged))
    assert caught.value.offset == SYNCED.offsets[2]


def test_one_frame_far_behind_the_damage_is_enough_to_know_what_was_safe():
    """Searched for past everything unreadable, piece after piece."""
    large = checkpoint("large")._replace(channels={"x": bytes(3 * CHUNK)})
    log = build_log([checkpoint("c1"), large, checkpoint("c2")], synced=True)
    damaged = flipped(log.data, log.offsets[1] * 8)
    with pytest.raises(CorruptLogError) as caught:
        open_at(damaged)
    assert caught.value.offset == log.offsets[1]


@given(data=st.data())
def test_damage_above_the_watermark_keeps_only_what_is_before_it(data):
    """Whole frames behind it were not acknowledged either, and may depend on what is lost."""
    number = data.draw(st.integers(0, 4))
    start, end = UNSYNCED.offsets[number], UNSYNCED.ends[number]
    damaged = flipped(UNSYNCED.data, data.draw(st.integers(start * 8, end * 8 - 1)))
    disk, store = open_at(damaged)
    assert disk.content() == UNSYNCED.data[:start]
    assert disk.content(TORN) == damaged[start:]
    assert holds(store) == state_after([checkpoint(f"c{n}") for n in range(number)])
    store.append(checkpoint("new"))
    store.close()
    assert holds(Store(PATH, disk=disk))["t/"]["listed"].keys() >= {"new"}


@pytest.mark.parametrize("bit", [0, 300, 330, 500])
def test_damage_in_the_last_synced_frame_looks_like_a_torn_tail(bit):
    """The limit of the watermark: only a later frame can tell that this one was safe."""
    damaged = flipped(SYNCED.data, SYNCED.offsets[4] * 8 + bit)
    disk, store = open_at(damaged)
    assert holds(store)["t/"]["ids"] == ["c0", "c1", "c2", "c3"]
    assert disk.content(TORN) == damaged[SYNCED.offsets[4] :]


def test_damage_that_begins_exactly_at_the_watermark_is_a_torn_tail():
    log = build_log([checkpoint("c1"), checkpoint("c2")], synced=True)
    disk, store = open_at(log.data[: log.offsets[1] + 40] + b"x" * 10)
    assert holds(store)["t/"]["ids"] == ["c1"]
    assert disk.content() == log.data[: log.offsets[1]]


def test_a_real_log_with_a_flipped_byte_is_refused_and_left_alone(path):
    """The same through the saver, on a real file."""
    with LogSaver(path) as saver:
        for step in range(3):
            put(saver, values={"x": step})
    with open(path, "r+b") as file:
        file.seek(100)
        byte = file.read(1)
        file.seek(100)
        file.write(bytes([byte[0] ^ 4]))
    with open(path, "rb") as file:
        before = file.read()
    for read_only in (False, True):
        with pytest.raises(CorruptLogError) as caught:
            LogSaver(path, read_only=read_only)
        assert caught.value.offset == HEADER.data_start
        assert caught.value.path == path
    with open(path, "rb") as file:
        assert file.read() == before
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_a_real_log_with_a_torn_tail_goes_on(path):
    """The same through the saver, on a real file."""
    with LogSaver(path) as saver:
        first = put(saver, values={"x": 1})
        size = os.path.getsize(path)
        put(saver, values={"x": 2})
    os.truncate(path, size + 50)
    with LogSaver(path) as saver:
        assert ids(saver.list(make_config())) == [id_of(first)]
        second = put(saver, values={"x": 3}, parent=first)
    with LogSaver(path, read_only=True) as saver:
        assert ids(saver.list(make_config())) == [id_of(second), id_of(first)]
        assert saver.get_tuple(make_config()).checkpoint["channel_values"] == {"x": 3}
    (torn,) = glob.glob(f"{path}.torn-*")
    assert os.path.getsize(torn) == 50


# -- damage that appears while the log is open


def test_a_frame_that_goes_bad_while_the_log_is_open_is_an_error_when_read():
    disk = MemoryDisk({PATH: SYNCED.data})
    store = Store(PATH, disk=disk)
    disk.files[PATH].data[SYNCED.offsets[1] + 60] ^= 1
    with pytest.raises(CorruptLogError) as caught:
        store.log.checkpoint(SYNCED.offsets[1])
    assert caught.value.offset == SYNCED.offsets[1]
    assert store.log.checkpoint(SYNCED.offsets[2]).checkpoint_id == "c2"


@pytest.mark.parametrize("place", [0, 65, 10**9, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_reference_to_where_no_checkpoint_is_is_damage(path, place):
    with LogSaver(path) as saver:
        put(saver, values={"x": 1})
    store = Store(path)
    record = store.log.checkpoint(HEADER.data_start)
    store.append(record._replace(checkpoint_id="z", channels={"x": place}))
    store.close()
    with pytest.raises(CorruptLogError):
        read_latest(path)


def read_latest(path):
    with LogSaver(path) as saver:
        return saver.get_tuple(make_config())


def test_a_reference_to_a_frame_without_the_channel_or_of_writes_is_damage():
    saver = open_saver(disk := MemoryDisk())
    config = put(saver, values={"x": 1})
    end = len(disk.content())
    saver.put_writes(config, [("x", 1)], "task")
    saver.close()
    store = Store(PATH, disk=disk)
    record = store.log.checkpoint(HEADER.data_start)
    store.append(record._replace(checkpoint_id="y", channels={"other": HEADER.data_start}))
    store.append(record._replace(checkpoint_id="z", channels={"x": end}))
    store.close()
    saver = open_saver(disk)
    for checkpoint_id in "yz":
        with pytest.raises(CorruptLogError):
            saver.get_tuple(make_config(checkpoint_id=checkpoint_id))


# -- readers


READS = {
    "whole": SYNCED.data,
    "torn": SYNCED.data + b"torn",
    "zeros": SYNCED.data + bytes(100),
    "cut": SYNCED.data[:-1],
    "damaged": flipped(SYNCED.data, SYNCED.offsets[0] * 8 + 400),
    "foreign": b"SQLite format 3\0" + bytes(100),
    "empty": b"",
    "newer": SYNCED.data[:8] + b"\x09" + SYNCED.data[9:],
}


@pytest.mark.parametrize("name", READS)
async def test_a_read_only_open_never_writes(name):
    disk = MemoryDisk({PATH: READS[name]})
    try:
        saver = open_saver(disk, read_only=True)
    except LogSaverError:
        assert name in {"damaged", "foreign", "empty", "newer"}
    else:
        assert saver.stats().checkpoints in {4, 5}
        assert sum(1 for _ in saver.threads()) == 1
        saver.flush()
        saver.close()
    assert not disk.named(*CHANGING)
    assert disk.content() == READS[name]


async def test_a_read_only_saver_does_not_sync_from_a_coroutine_either():
    """`flush` leaves a reader's file alone; its async twin and `aclose` must too."""
    disk = MemoryDisk({PATH: UNSYNCED.data})
    saver = open_saver(disk, read_only=True)
    await saver.aflush()
    await saver.aclose()
    assert not disk.named(*CHANGING)


def test_a_read_only_open_of_nothing_creates_nothing(tmp_path):
    with pytest.raises(LogSaverError, match="there is no such file"):
        LogSaver(tmp_path / "agent.log", read_only=True)
    assert os.listdir(tmp_path) == []


def test_a_reader_follows_what_is_appended():
    disk = MemoryDisk()
    writer = Store(PATH, disk=disk)
    reader = Store(PATH, read_only=True, disk=disk)
    for record in HISTORY:
        writer.append(record)
        assert holds(reader) == holds(writer)


def test_a_reader_sees_a_frame_only_once_it_is_whole():
    log = build_log(HISTORY)
    disk = MemoryDisk({PATH: log.data[: HEADER.data_start]})
    reader = Store(PATH, read_only=True, disk=disk)
    for size in range(HEADER.data_start, len(log.data) + 1):
        disk.files[PATH].data[:] = log.data[:size]
        assert holds(reader) == state_after(HISTORY[: whole_frames(log, size)])


@pytest.mark.parametrize("moment", range(1, 9))
def test_a_reader_that_opens_while_a_writer_appends_is_not_told_of_damage(moment):
    """The reader finds the end of the log; then two frames arrive, the second of which says that
    the first is safe. All of that is past the end that the reader knows, and none of it is harmed.
    """
    disk = MemoryDisk()
    writer = Store(PATH, disk=disk)
    writer.append(checkpoint("c1"))
    left = moment

    def append_meanwhile(call):
        nonlocal left
        left -= call.name in ("size", "read")
        if not left:
            disk.on = lambda call: None
            for checkpoint_id in ("c2", "c3"):
                writer.append(checkpoint(checkpoint_id))
                writer.flush()

    disk.on = append_meanwhile
    reader = Store(PATH, read_only=True, disk=disk)
    while left > 0:
        reader.view()
    assert holds(reader)["t/"]["ids"] == ["c1", "c2", "c3"]


def test_a_reader_refuses_a_newer_frame_that_is_appended_while_it_follows():
    log = build_log([checkpoint("c1")])
    disk, reader = open_at(log.data, read_only=True)
    newer = build_log([checkpoint("c1"), checkpoint("c2")]).data
    assert holds(reader)["t/"]["ids"] == ["c1"]
    disk.files[PATH].data[:] = _with_kind(newer, log.ends[0], 99)
    with pytest.raises(UnsupportedFormatError):
        holds(reader)


def _with_kind(data, offset, kind):
    from zlib import crc32

    changed = bytearray(data)
    changed[offset + 4] = kind
    checksum = crc32(changed[offset : offset + 36], HEADER.seed)
    changed[offset + 36 : offset + 40] = checksum.to_bytes(4, "little")
    return bytes(changed)


# -- the part that may be in the page cache only


def reopened(history=HISTORY, *, synced=False):
    log = build_log(history, synced=synced)
    disk, store = open_at(log.data)
    disk.calls.clear()
    return log, disk, store


def writes_and_syncs(disk):
    return [
        (call.name, call.at, call.data) if call.name == "write" else call.name
        for call in disk.named("write", "truncate", "sync")
    ]


def test_the_unsynced_part_is_rewritten_before_the_first_append():
    """A page whose write-back failed reads back fine until it is evicted, and no later sync would
    tell. Written again, it is what the next sync speaks of.
    """
    log, disk, store = reopened()
    start, end = HEADER.data_start, len(log.data)
    store.append(checkpoint("new"))
    store.flush()
    new = disk.content()[end:]
    assert writes_and_syncs(disk) == [
        ("write", start, log.data[start:]),
        ("write", end, new),
        "sync",
    ]


def test_what_is_rewritten_is_dropped_from_the_page_cache_first():
    """What ext4 remembers of a page whose write-back failed would spoil the rewrite."""
    large = checkpoint("large")._replace(channels={"x": b"v" * COPY_CHUNK})
    _, disk, store = reopened([large])
    store.append(checkpoint("new"))
    calls = [(call.name, call.at) for call in disk.named("forget", "write")]
    pieces = range(HEADER.data_start, HEADER.data_start + COPY_CHUNK + 1, COPY_CHUNK)
    assert calls[:-1] == [(name, at) for at in pieces for name in ("forget", "write")]


def test_only_what_lies_above_the_watermark_is_rewritten_and_only_once():
    log, disk, store = reopened(synced=True)
    last = log.offsets[-1]
    _, _, first, end = store.append(checkpoint("new"))
    _, _, second, second_end = store.append(checkpoint("newer"))
    assert [(call.at, len(call.data)) for call in disk.named("write")] == [
        (last, len(log.data) - last),
        (first, end - first),
        (second, second_end - second),
    ]
    assert disk.content()[: len(log.data)] == log.data


def test_a_large_unsynced_part_is_rewritten_in_pieces():
    large = checkpoint("large")._replace(channels={"x": b"v" * (2 * COPY_CHUNK)})
    log, disk, store = reopened([checkpoint("c1"), large])
    store.append(checkpoint("new"))
    *pieces, _ = disk.named("write")
    assert b"".join(call.data for call in pieces) == log.data[HEADER.data_start :]
    assert max(len(call.data) for call in pieces) == COPY_CHUNK


def test_a_rewrite_that_fails_loses_nothing_and_is_done_again():
    log, disk, store = reopened()
    disk.on = fail("write", OSError(28, "No space left on device"))
    with pytest.raises(LogSaverError):
        store.append(checkpoint("new"))
    assert disk.content() == log.data
    disk.on = lambda call: None
    disk.calls.clear()
    store.append(checkpoint("new"))
    assert disk.named("write")[0].data == log.data[HEADER.data_start :]


def test_the_unsynced_part_is_rewritten_before_a_flush_promises_anything():
    """A flush speaks of everything stored so far, the part found at open included."""
    log, disk, store = reopened()
    store.flush()
    assert writes_and_syncs(disk)[-1] == "sync"
    assert ("write", HEADER.data_start, log.data[HEADER.data_start :]) in writes_and_syncs(disk)


def test_the_unsynced_part_is_rewritten_before_a_flush_of_a_saver_that_promised_nothing():
    """With `fsync="never"` puts do without it. A flush that is asked for is still a promise."""
    log = build_log(HISTORY)
    saver = open_saver(disk := MemoryDisk({PATH: log.data}), fsync="never")
    put(saver, "another thread")
    assert len(disk.named("write")) == 1
    saver.flush()
    assert disk.named("write")[-1].data == log.data[HEADER.data_start :]


def test_a_large_unsynced_part_is_not_rewritten_at_each_start():
    """A tool that puts once and is killed would write the whole log again every time."""
    large = checkpoint("large")._replace(channels={"x": b"v" * MUCH_UNSYNCED})
    log, disk, store = reopened([large])
    store.append(checkpoint("new"))
    _, later = open_at(disk.content())
    assert later.log.committer.sync.unsynced.start == len(log.data)


def test_the_unsynced_part_is_rewritten_before_a_repeated_call_is_acknowledged():
    """A run that crashed in async mode is started again and puts the same writes once more. There
    is nothing to store, but the answer says they are safe: that needs more than a sync.
    """
    saver = open_saver(disk := MemoryDisk(), fsync="never")
    config = put(saver, values={"x": 1})
    saver.put_writes(config, [("x", 1)], "task")
    saver.close()
    data = disk.content()
    saver = open_saver(disk, fsync="always")
    disk.calls.clear()
    saver.put_writes(config, [("x", 1)], "task")
    assert disk.content() == data
    assert [name for name, *_ in disk.named("write", "sync")] == ["write", "sync"]


def test_the_watermark_of_a_frame_is_what_was_synced_when_it_was_written():
    saver = open_saver(disk := MemoryDisk(), fsync="never")
    ends = [HEADER.data_start]
    for _ in range(3):
        put(saver, values={"x": 1})
        ends.append(len(disk.content()))
    saver.flush()
    put(saver, values={"x": 1})
    marks = [_synced_upto(disk.content(), offset) for offset in ends]
    assert marks == [HEADER.data_start] * 3 + [ends[3]]


def _synced_upto(data, offset):
    return int.from_bytes(data[offset + 24 : offset + 32], "little")


# -- what another process left, found before an append


def follower_and_two_frames_of_another(*, synced):
    """A store that has not looked since another one appended two frames to its log."""
    disk = MemoryDisk()
    store = Store(PATH, disk=disk)
    start = len(disk.content())
    other = Store(PATH, disk=disk)
    other.append(checkpoint("c1"))
    if synced:
        other.flush()
    other.append(checkpoint("c2"))
    disk.files[PATH].data[start + 50] ^= 1  # in the payload of the first
    return disk, store


def test_damage_that_another_process_left_is_an_error_for_who_appends_next():
    disk, store = follower_and_two_frames_of_another(synced=True)
    before = disk.content()
    with pytest.raises(CorruptLogError, match="byte 64"):
        store.append(checkpoint("mine"))
    assert disk.content() == before


def test_a_torn_tail_that_another_process_left_is_cut_off_by_who_appends_next():
    disk, store = follower_and_two_frames_of_another(synced=False)
    store.append(checkpoint("mine"))
    assert list(holds(Store(PATH, read_only=True, disk=disk))["t/"]["ids"]) == ["mine"]


def test_a_large_torn_frame_is_not_read_again_at_every_call(tmp_path, monkeypatch):
    """Its header tells that it is not whole. A writer was killed over a put of 8 MB."""
    path = tmp_path / "agent.log"
    with LogSaver(path) as saver:
        put(saver, values={"c": 1})
        put(saver, "large", values={"c": b"x" * (8 * CHUNK)})
        end = saver.stats().bytes
    os.truncate(path, end - 1)
    with LogSaver(path, read_only=True) as reader:
        read, sizes = LogFile.read, []

        def noting(file, size, at):
            sizes.append(size)
            return read(file, size, at)

        monkeypatch.setattr(LogFile, "read", noting)
        assert reader.get_tuple(make_config()).checkpoint["channel_values"] == {"c": 1}
        assert reader.get_tuple(make_config("large")) is None
        assert max(sizes) <= CHUNK


@pytest.mark.parametrize("puts", [1, 2])
def test_a_later_puts_watermark_alone_shows_that_the_name_of_a_log_is_safe(puts):
    """The second frame says that the first was synced, which was after the directory was. Before
    that, and without a clean close, whoever made the log may have been killed too early.
    """
    disk = MemoryDisk()
    killed = open_saver(disk)
    for _ in range(puts):
        put(killed)
    saver = open_saver(disk)
    disk.calls.clear()
    put(saver)
    put(saver)
    assert len(disk.named("sync-directory")) == (puts == 1)
    assert len(disk.named("sync")) == 2
