"""Every way to spoil a log: what opening, reading, `verify` and `repair` make of it.

What has to come out is worked out from the bytes alone (`predict`): a frame is intact if its
bytes are the ones that were written. Nothing here asks the code under test what it would accept.

In CI all damage to a small log is tried, and a sample of the damage to larger ones. The deep
test tries all of it.
"""

from __future__ import annotations

import importlib
import logging
import random
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from crashing import PATH, check, open_on, state_of
from encrypting import encrypted_logs
from simdisk import SimDisk
from spoiling import (
    DAMAGE,
    ENCRYPTED,
    LOGS,
    SMALL,
    SMALL_ENCRYPTED,
    Damage,
    Part,
    Sample,
    frames_moved,
    parts_of,
    some_of,
)
from support import VOUCH, put

from logsaver import (
    CorruptLogError,
    LogFileError,
    LogOpenError,
    LogSaver,
    LogWriteError,
    NotALogError,
    UnsupportedFormatError,
    repair,
    verify,
)
from logsaver.frame import (
    _FRAME_HEADER,
    FILE_HEADER_SIZE,
    FILE_MAGIC,
    FORMAT_VERSION,
    MAX_PAYLOAD,
    FileHeader,
)
from logsaver.record import CheckpointRecord, Record, VouchRecord, WritesRecord
from logsaver.store import Store

OUT = "/sim/repaired.log"
TORN = f"{PATH}.torn-1"
MIB = 1 << 20

every_log = pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
every_damage = pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Tens of thousands of torn tails are cut off here; each is worth a warning elsewhere."""
    caplog.set_level(logging.ERROR, logger="logsaver")


# -- what has to come out


class Outcome(NamedTuple):
    """What opening has to make of a spoiled log."""

    error: type[LogFileError] | None
    frames: int = 0  # so many from the start are served
    end: int = 0  # where they end; of a CorruptLogError, its offset
    watermark: int = 0  # 0: there is no file header to go by


def predict(log: Sample, spoiled: bytes) -> Outcome:
    """By the rule in the design, with the bytes as they were written for a checksum."""
    start = spoiled[: log.data_start]
    if start != log.data[: log.data_start]:
        if not start.startswith(FILE_MAGIC):
            return Outcome(NotALogError)
        version = int.from_bytes(start[8:10], "little")
        if len(start) >= FILE_HEADER_SIZE and version > FORMAT_VERSION:
            return Outcome(UnsupportedFormatError)
        return Outcome(CorruptLogError)
    whole = [is_same(log, spoiled, part.start, part.end) for part in log.parts]
    frames = whole.index(False) if False in whole else len(whole)
    end = log.parts[frames - 1].end if frames else log.data_start
    heads = [part for part in log.parts if is_same(log, spoiled, part.start, part.body)]
    watermark = max([log.data_start, *(part.synced_upto for part in heads)])
    return Outcome(CorruptLogError if end < watermark else None, frames, end, watermark)


def is_same(log: Sample, spoiled: bytes, start: int, end: int) -> bool:
    return len(spoiled) >= end and spoiled[start:end] == log.data[start:end]


def judge(log: Sample, spoiled: bytes, disk_for: Any, *, thoroughly: bool) -> str:
    with encrypted_logs() if log.serde else nullcontext():
        return judge_opened(log, spoiled, disk_for, thoroughly=thoroughly)


def judge_opened(log: Sample, spoiled: bytes, disk_for: Any, *, thoroughly: bool) -> str:
    expected = predict(log, spoiled)
    check_opening(log, spoiled, expected)
    check_verify(log, spoiled, expected, disk_for(SimDisk({PATH: spoiled})))
    if thoroughly:
        check_repair(log, spoiled, expected, disk_for(SimDisk({PATH: spoiled})))
        if expected.error is None:  # then it takes new writes, and a second opening is the same
            number = expected.frames
            check({PATH: spoiled}, log.states, acknowledged=number, issued=number)
    if expected.error is not None:
        return expected.error.__name__
    return "prefix" if expected.frames < len(log.parts) else "exact"


def check_opening(log: Sample, spoiled: bytes, expected: Outcome) -> None:
    """Both ways, and the outcome is the predicted one to the byte."""
    for read_only in (True, False):
        disk = SimDisk({PATH: spoiled})
        after = {PATH: spoiled}
        if expected.error is not None:
            check_error(expected, lambda disk=disk, how=read_only: open_on(disk, read_only=how))
        else:
            saver = open_on(disk, read_only=read_only)
            assert state_of(saver) == log.states[expected.frames]
            saver.close()
            if not read_only:
                tail = spoiled[expected.end :]
                after = {PATH: spoiled[: expected.end], **({TORN: tail} if any(tail) else {})}
        assert disk.files() == after
        assert disk.open_files == {}


def check_error(expected: Outcome, action: Any) -> None:
    with pytest.raises(LogFileError) as caught:
        action()
    assert type(caught.value) is expected.error
    assert caught.value.path == PATH
    if expected.error is CorruptLogError:
        assert caught.value.offset == expected.end


def check_verify(log: Sample, spoiled: bytes, expected: Outcome, disk: SimDisk) -> None:
    """It says what opening does, and changes nothing."""
    if not expected.watermark:
        check_error(expected, lambda: verify(PATH, serde=log.serde))
    else:
        report = verify(PATH, serde=log.serde)
        # All damage here is to bytes, and that is found without the key.
        assert replace(report, records_checked=False) == replace(
            verify(PATH), records_checked=False
        )
        assert report.bytes == len(spoiled)
        assert report.frames == len(intact(log, spoiled))
        assert report.ok == (expected.error is None)
        if report.ok:
            tail = report.torn_tail
            assert (tail.start if tail else len(spoiled)) == expected.end
            assert max(report.safe_upto, log.data_start) == expected.watermark
        else:
            assert report.damage[0].start == expected.end
    assert disk.log == []
    assert disk.open_files == {}


def check_repair(log: Sample, spoiled: bytes, expected: Outcome, disk: SimDisk) -> None:
    """Every intact record is in the new log, and what is missing is listed."""
    if not expected.watermark:
        check_error(expected, lambda: repair(PATH, OUT, serde=log.serde))
        assert disk.files() == {PATH: spoiled}
        return
    report = repair(PATH, OUT, serde=log.serde)
    files = disk.files()
    assert files.keys() == {PATH, OUT}
    assert files[PATH] == spoiled
    kept = {
        part.start: part.record
        for part in intact(log, spoiled)
        if not isinstance(part.record, VouchRecord)
    }
    saved = {part.start: part.record for part in parts_of(files[OUT])}
    if kept:
        assert saved.popitem()[1] == VouchRecord()  # its own: repair closes the new log cleanly
    assert resolved(saved) == resolved(kept)
    assert report.records == len(kept)
    assert len(report.missing_values) == sum(
        isinstance(value, int) and value not in kept
        for record in kept.values()
        if isinstance(record, CheckpointRecord)
        for value in record.channels.values()
    )
    assert [(lost.start, lost.end) for lost in report.lost] == gaps(log, spoiled)


def intact(log: Sample, spoiled: bytes) -> list[Part]:
    return [part for part in log.parts if is_same(log, spoiled, part.start, part.end)]


def gaps(log: Sample, spoiled: bytes) -> list[tuple[int, int]]:
    """What lies between intact frames."""
    parts = intact(log, spoiled)
    starts = [log.data_start, *(part.end for part in parts)]
    ends = [*(part.start for part in parts), len(spoiled)]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def resolved(records: dict[int, Record]) -> list[Record]:
    """With the values themselves for references; a value that is lost is left out."""
    return [
        record._replace(
            channels={
                channel: records[value].channels[channel] if isinstance(value, int) else value
                for channel, value in record.channels.items()
                if not isinstance(value, int) or value in records
            }
        )
        if isinstance(record, CheckpointRecord)
        else record
        for record in records.values()
    ]


@pytest.fixture
def disk_for(monkeypatch):
    """Puts `verify` and `repair` on a simulated disk."""
    module = importlib.import_module("logsaver.repair")  # the package has a function of that name

    def use(disk: SimDisk) -> SimDisk:
        monkeypatch.setattr(module, "DISK", disk)
        monkeypatch.setattr(
            module, "Store", lambda path, **options: Store(path, disk=disk, **options)
        )
        return disk

    return use


# -- spoiled while nobody had it open


def judge_all(log: Sample, spoiled: Iterable[bytes], disk_for: Any, *, every: int) -> Counter[str]:
    return Counter(
        judge(log, data, disk_for, thoroughly=number % every == 0)
        for number, data in enumerate(spoiled)
    )


@every_damage
def test_all_damage_to_a_small_log_gives_a_prefix_or_an_error(damage: Damage, disk_for):
    outcomes = judge_all(SMALL, damage(SMALL), disk_for, every=1)
    # Only a frame that was added again, behind the last one, leaves the log as it was.
    assert damage is frames_moved or not outcomes["exact"]


@every_damage
@every_log
def test_sampled_damage_to_a_log_gives_the_exact_data_a_prefix_or_an_error(
    log: Sample, damage: Damage, disk_for
):
    judge_all(log, some_of(log, damage, 500), disk_for, every=5)


@every_damage
def test_damage_to_an_encrypted_log_is_the_same(damage: Damage, disk_for):
    judge_all(SMALL_ENCRYPTED, some_of(SMALL_ENCRYPTED, damage, 150), disk_for, every=5)


@pytest.mark.deep
@pytest.mark.timeout(0)
@every_damage
@pytest.mark.parametrize("log", ENCRYPTED.values(), ids=ENCRYPTED)
def test_all_damage_to_an_encrypted_log_is_the_same(log: Sample, damage: Damage, disk_for):
    outcomes = judge_all(log, damage(log), disk_for, every=5)
    print(damage.__name__, len(log.data), "bytes:", sum(outcomes.values()), dict(outcomes))


@pytest.mark.deep
@pytest.mark.timeout(0)
@every_damage
@every_log
def test_all_damage_to_a_log_gives_the_exact_data_a_prefix_or_an_error(
    log: Sample, damage: Damage, disk_for
):
    outcomes = judge_all(log, damage(log), disk_for, every=5)
    print(damage.__name__, len(log.data), "bytes:", sum(outcomes.values()), dict(outcomes))


def test_an_empty_file_is_the_same_to_verify_and_to_a_reader_and_a_new_log_to_a_writer(disk_for):
    disk = disk_for(SimDisk({PATH: b""}))
    for action in (lambda: verify(PATH), lambda: open_on(disk, read_only=True)):
        with pytest.raises(LogOpenError, match="empty"):
            action()
    assert disk.files() == {PATH: b""}
    open_on(disk).close()
    assert verify(PATH).ok


def test_a_repaired_log_is_on_stable_storage_when_repair_returns(disk_for):
    disk = disk_for(SimDisk({PATH: SMALL.data}))
    repair(PATH, OUT)
    assert disk.pending_names == []
    pending = disk.inodes[disk.durable_names[OUT]].pending
    # All but the frame that vouches for the rest.
    assert [write.at for write in pending] == [len(disk.files()[OUT]) - VOUCH]
    assert verify(OUT).safe_upto == pending[0].at


# -- spoiled under an open saver


@every_log
def test_a_bit_that_flips_under_an_open_log_is_noticed_when_it_is_read(log):
    disk = SimDisk({PATH: log.data})
    saver = open_on(disk)
    store, content = saver._store, disk.inodes[disk.names[PATH]].current
    readable = [p for p in log.parts if isinstance(p.record, CheckpointRecord | WritesRecord)]
    randomness = random.Random(3)
    for _ in range(400):
        part = randomness.choice(readable)
        bit = randomness.randrange(part.start * 8, part.end * 8)
        content[bit // 8] ^= 1 << bit % 8
        store.log.cache.clear()
        is_checkpoint = isinstance(part.record, CheckpointRecord)
        with pytest.raises(CorruptLogError) as caught:
            (store.log.checkpoint if is_checkpoint else store.log.writes)(part.start)
        assert caught.value.offset == part.start
        content[bit // 8] ^= 1 << bit % 8
    assert state_of(saver) == log.states[-1]
    saver.close()


@every_log
def test_a_log_that_is_cut_under_an_open_saver_is_noticed_when_it_is_read(log):
    last = max(p for p in log.parts if isinstance(p.record, CheckpointRecord))
    for length in range(last.start, last.end):
        disk = SimDisk({PATH: log.data})
        saver = open_on(disk)
        saver._store.log.cache.clear()
        del disk.inodes[disk.names[PATH]].current[length:]
        with pytest.raises(CorruptLogError):
            saver._store.log.checkpoint(last.start)
        saver.close()


# -- memory


@pytest.fixture
def peak():
    """How many bytes an action allocates at most."""

    def measure(action: Callable[[], object]) -> int:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        action()
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    yield measure
    tracemalloc.stop()


def crafted(log: Sample, part: Part, length: int) -> bytes:
    """The log with a frame header that claims this length, and whose checksums are good."""
    fields = list(_FRAME_HEADER.unpack_from(log.data, part.start))
    fields[4] = length
    fixed = _FRAME_HEADER.pack(*fields)
    checksum = zlib.crc32(fixed, FileHeader.decode(log.data).seed)
    head = fixed + checksum.to_bytes(4, "little")
    return log.data[: part.start] + head + log.data[part.body :]


LENGTHS = [MAX_PAYLOAD - 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 2**32 - 1]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("place", [0, -1], ids=["first", "last"])
def test_a_length_that_the_file_does_not_have_is_not_allocated(path, peak, place, length):
    log = LOGS["synced"]
    spoiled = crafted(log, log.parts[place], length)

    def look() -> None:
        for action in (verify, lambda at: LogSaver(at, read_only=True).close(), LogSaver):
            with open(path, "wb") as file:
                file.write(spoiled)
            if place == 0 and action is not verify:  # below the watermark
                with pytest.raises(CorruptLogError):
                    action(path)
            else:
                action(path)

    assert peak(look) < 8 * MIB


@pytest.mark.parametrize("length", LENGTHS)
def test_a_length_that_appears_under_an_open_log_is_not_allocated(path, peak, length):
    """Reading a frame asks for what the file can have, not for what its header claims."""
    log = LOGS["synced"]
    with open(path, "wb") as file:
        file.write(log.data)
    with LogSaver(path) as saver:
        saver._store.log.cache.clear()
        with open(path, "r+b") as file:
            file.write(crafted(log, log.parts[0], length))

        def look() -> None:
            with pytest.raises(CorruptLogError):
                saver._store.log.checkpoint(log.parts[0].start)

        assert peak(look) < 8 * MIB


@pytest.mark.parametrize("size", [1, 4096, 4097, 2**32 - 1])
def test_a_key_check_of_any_length_is_not_allocated(path, peak, size):
    data = LOGS["synced"].data
    with open(path, "wb") as file:
        file.write(data[:12] + size.to_bytes(4, "little") + data[16:])

    def look() -> None:
        for action in (verify, LogSaver):
            with pytest.raises(CorruptLogError):
                action(path)

    assert peak(look) < 2 * MIB


def test_a_repair_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    """Half of a log would pass for all of it, and keep the next repair from its place."""
    path, out = tmp_path / "agent.log", tmp_path / "repaired.log"
    with LogSaver(path) as saver:
        put(saver, "a")
        put(saver, "b")
    append = Store.append
    with monkeypatch.context() as patched:

        def full_after_the_first(store: Store, record: Record) -> Any:
            if record.thread_id == "b":
                raise LogWriteError(store.path, "no space left")
            return append(store, record)

        patched.setattr(Store, "append", full_after_the_first)
        with pytest.raises(LogWriteError):
            repair(path, out)
    assert [file.name for file in tmp_path.iterdir()] == ["agent.log"]
    assert repair(path, out).records == 2
