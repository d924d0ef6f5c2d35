"""Seals: a log that is opened from one holds what a scan finds, or says that it cannot be read."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import zlib
from typing import Any

import ormsgpack
import pytest
from crashing import Call, check, run
from disks import PATH, MemoryDisk, open_saver
from hypothesis import given
from hypothesis import strategies as st
from logs import build_log, checkpoint, few_ids, flipped, holds, records, text, writes
from support import VOUCH, id_of, ids, make_config, put

from logsaver import CorruptLogError, LogSaver, sealing, verify
from logsaver.disk import LOCK, UNLOCK, WRITE
from logsaver.frame import FRAME_HEADER_SIZE
from logsaver.index import Index
from logsaver.record import (
    BadRecordError,
    CopyRecord,
    DeleteRecord,
    ForgetRecord,
    Forgotten,
    Kind,
    LinkRecord,
    SealPartRecord,
    SealRecord,
)
from logsaver.recovery import frames, frames_past_hints
from logsaver.rewriting import rewrite
from logsaver.seal import pack_part, pack_table, pack_thread, unpack_part, unpack_thread
from logsaver.store import Store
from logsaver.thread import Place


@contextlib.contextmanager
def eagerly():
    """Seal at every close, and before every append."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "AT_CLOSE", 1)
        patch.setattr(sealing, "UNDER_WAY", 1)
        patch.setattr(sealing, "SHARE", 0)
        yield


@pytest.fixture
def eager():
    with eagerly():
        yield


def open_store(disk, **options) -> Store:
    return Store(PATH, disk=disk, **options)


def close(store) -> None:
    """As a saver does it."""
    store.seal()
    store.flush()
    store.close(sync=True)


def content(index) -> dict[str, Any]:
    """All that an index holds, and all that can be told without its checkpoints."""
    summaries = index.threads.overview().summaries
    assert summaries.keys() == {*index.threads}
    return {
        thread_id: (
            summaries[thread_id],
            thread.bytes,
            {
                name: (ns.ids, ns.listed, ns.hidden, ns.writes)
                for name, ns in thread.namespaces.items()
            },
        )
        for thread_id, thread in index.threads.items()
    }


def scanned(store) -> dict[str, Any]:
    """What the log holds without regard to its seals."""
    return content(sealing.scan(store.log, store.size()))


def kinds(data: bytes, header) -> list[int]:
    class Bytes:
        path = "in memory"

        def end(self):
            return len(data)

        def read(self, size, at):
            return data[at : at + size]

    found = frames(Bytes(), seed=header.seed, start=header.data_start, previous=header.seed)
    return [frame.kind for frame in found]


# -- sealed and replayed is scanned

IDS = few_ids | text
STEPS = st.lists(
    records(IDS) | st.sampled_from(["close", "close without a seal", "crash", "look"]), max_size=30
)


def links_ahead(record, end) -> bool:
    """Whether it is one that nobody would write here, and that a scan refuses."""
    try:
        record.check_lies_before(end)
    except BadRecordError:
        return True
    return False


@given(STEPS, st.booleans(), st.randoms())
def test_a_log_that_is_opened_from_a_seal_holds_what_a_scan_finds(steps, under_way, randomness):
    disk = MemoryDisk()
    with eagerly():
        if not under_way:
            sealing.UNDER_WAY = 1 << 30
        store = open_store(disk)
        for step in steps:
            if step == "look":  # some threads are loaded, others not
                for thread_id in list(store.view().threads):
                    if randomness.random() < 0.5:
                        assert store.index.threads[thread_id].namespaces
            elif isinstance(step, str):
                if step == "close":
                    close(store)
                else:
                    store.close(sync=step != "crash")
                store = open_store(disk)
            elif not (isinstance(step, LinkRecord) and links_ahead(step, store.size())):
                store.append(step)
            store.index._check()
        assert list(store.index.threads) == sorted(store.index.threads)
        assert content(store.view()) == scanned(store)
        store.index._check()
        close(store)
        reader = open_store(disk, read_only=True)
        assert content(reader.view()) == scanned(reader)


def verify_in(disk) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["logsaver.repair"], "DISK", disk)
        return verify(PATH).damage


@given(st.lists(records(IDS), max_size=25))
def test_a_thread_is_the_same_after_it_was_packed(history):
    index = Index()
    for number, record in enumerate(history):
        index.apply(record, 64 + 100 * number, 50)
    for thread in index.threads.values():
        again = unpack_thread(pack_thread(thread), 1 << 60)
        assert again.bytes == thread.bytes
        assert again.summary() == thread.summary()
        for name, ns in thread.namespaces.items():
            twin = again.namespaces[name]
            assert (twin.ids, twin.listed) == (ns.ids, ns.listed)
            assert (twin.hidden, twin.writes) == (ns.hidden, ns.writes)


@given(st.lists(records(IDS) | st.sampled_from(["look", "list"]), max_size=30))
def test_the_overview_follows_every_change(history):
    index = Index()
    for number, record in enumerate(history):
        if isinstance(record, str):
            overview = index.threads.overview()
            if record == "list":
                overview.by_newest()
        else:
            index.apply(record, 64 + 100 * number, 50)
        index._check()
    overview = index.threads.overview()
    assert overview.summaries == {name: t.summary() for name, t in index.threads.items()}
    assert overview.by_newest() == sorted(
        (max(i for ns in thread.namespaces.values() for i in ns.ids), thread_id)
        for thread_id, thread in index.threads.items()
        if thread.checkpoints()
    )


# -- what opening costs


class MeteredDisk(MemoryDisk):
    """Counts the bytes that are read."""

    bytes_read = 0

    def pread(self, fd, size, at):
        data = super().pread(fd, size, at)
        self.bytes_read += len(data)
        return data


def filled(disk, threads: int, each: int) -> None:
    store = open_store(disk)
    for step in range(each):
        for number in range(threads):
            store.append(checkpoint(f"c{step:03}", f"thread {number:05}"))
    with eagerly():
        close(store)


@pytest.mark.parametrize("each", [20, 60])
def test_opening_a_sealed_log_reads_a_bounded_part_and_makes_no_threads(each):
    disk = MeteredDisk()
    filled(disk, 200, each)
    disk.bytes_read = 0
    store = open_store(disk)
    assert not store.index.threads.live
    assert disk.bytes_read < 100_000
    assert len(disk.content()) > 300_000
    before = disk.bytes_read
    found = store.view().namespace("thread 00100", "")
    assert len(found.ids) == each
    assert [*store.index.threads.live] == ["thread 00100"]
    assert disk.bytes_read - before < 70_000  # one part
    assert len(store.index.threads) == 200
    assert len(store.index.threads.overview().summaries) == 200
    assert [*store.index.threads.live] == ["thread 00100"]


def test_whoever_asks_for_the_newest_loads_only_their_threads():
    disk = MemoryDisk()
    filled(disk, 300, 10)
    with open_saver(disk) as saver:
        store = saver._store
        store.view().threads["thread 00007"]  # before it is put to
        put(saver, "thread 00007", checkpoint_id="d")
        assert len(list(saver.threads())) == 300
        assert saver.stats().checkpoints == 3001
        assert next(saver.list(None)).config["configurable"]["thread_id"] == "thread 00007"
        assert list(store.index.threads.live) == ["thread 00007"]
        saver.delete_thread("thread 00008")  # without a look at it
        assert list(store.index.threads.live) == ["thread 00007"]
        assert saver.stats().threads == 299


def test_a_filter_that_nothing_matches_loads_nothing():
    disk = MemoryDisk()
    with eagerly(), open_saver(disk) as saver:
        for number in range(40):
            put(saver, f"t{number}", metadata={"run_id": f"r{number}"}, checkpoint_id="1")
    with open_saver(disk) as saver:
        assert ids(saver.list(None, filter={"run_id": "r7"})) == ["1"]
        saver.delete_for_runs(["r9", "none"])
        assert set(saver._store.index.threads.live) == {"t7"}  # "t9" is gone
        assert saver.stats().threads == 39


def test_runs_of_one_step_each_do_not_pay_for_seals():
    disk = MemoryDisk()
    filled(disk, 100, 5)
    start = len(disk.content())
    for number in range(250):
        store = open_store(disk)
        step = checkpoint(f"d{number:04}", f"thread {number % 100:05}")
        store.append(step._replace(body=b"x" * 2000))
        close(store)
        assert len(store.index.threads.live) < 100
    store = open_store(disk)
    grown = store.size() - start
    sealed = [
        frame
        for frame in frames(store.log.file, seed=store.log.seed, start=start, previous=None)
        if frame.kind in (Kind.SEAL, Kind.SEAL_PART)
    ]
    assert 2 <= sum(frame.kind == Kind.SEAL for frame in sealed) <= 5
    assert sum(frame.size for frame in sealed) < grown / sealing.SHARE
    assert content(store.view()) == scanned(store)


def test_a_long_run_is_sealed_under_way_a_little_at_each_put(monkeypatch):
    monkeypatch.setattr(sealing, "UNDER_WAY", 1 << 14)
    monkeypatch.setattr(sealing, "PART_SIZE", 1 << 9)
    disk = MemoryDisk()
    store = open_store(disk)
    most = 0
    for number in range(1500):
        before = store.size()
        store.append(checkpoint(f"c{number:04}", f"t{number % 50}")._replace(body=b"x" * 300))
        most = max(most, store.size() - before)
        store.log.committer.wait(store.size())
    found = kinds(disk.content(), store.log.header)
    assert 2 <= found.count(Kind.SEAL) <= 8
    assert found.count(Kind.SEAL_PART) > 50
    assert most < 10_000  # its own frame, a part, what changed meanwhile, and the table
    killed = open_store(MemoryDisk({PATH: disk.content()}))
    assert killed._sealed is not None
    assert content(killed.view()) == scanned(killed)


def test_a_log_without_promises_is_sealed_and_synced_at_its_close_alone():
    disk = MemoryDisk()
    with eagerly():
        saver = open_saver(disk, fsync="never")
        disk.calls.clear()
        for number in range(5):
            put(saver, checkpoint_id=str(number))
        assert not disk.named("sync")
        assert Kind.SEAL not in kinds(disk.content(), saver._store.log.header)
        saver.close()
        assert len(disk.named("sync")) == 1
    store = open_store(disk)
    assert not store.index.threads.live
    assert kinds(disk.content(), store.log.header)[-3:] == [
        Kind.SEAL_PART,
        Kind.SEAL,
        Kind.VOUCH,
    ]


def test_a_second_seal_writes_only_what_has_changed(eager):
    disk = MemoryDisk()
    sealing.UNDER_WAY = 1 << 30
    filled(disk, 200, 20)
    before = len(disk.content())
    store = open_store(disk)
    store.append(checkpoint("d", "thread 00003"))
    close(store)
    store = open_store(disk)
    parts = [
        frame
        for frame in frames(store.log.file, seed=store.log.seed, start=before, previous=None)
        if frame.kind == Kind.SEAL_PART
    ]
    assert len(parts) == 1
    assert len(unpack_part(store.log.record(parts[0].offset).threads)) == 1
    assert content(store.view()) == scanned(store)


# -- what can be wrong with a seal

HISTORY = [
    checkpoint("c1", "a"),
    checkpoint("c2", "a", parent_id="c1"),
    checkpoint("c3", "a", parent_id="elsewhere"),
    writes("c3", "a"),
    writes("c9", "a", "waits"),
    CopyRecord("a", "ü"),
    ForgetRecord([Forgotten("a", "", ["c2"], ["c1"])]),
    checkpoint("c1", "b", ns="sub"),
    checkpoint("c1", "gone"),
    DeleteRecord(["gone"]),
]


def sealed_disk(more=()) -> MemoryDisk:
    """A log that was closed with one seal, and perhaps appended to since."""
    disk = MemoryDisk()
    store = open_store(disk)
    for record in HISTORY:
        store.append(record)
    with eagerly():
        close(store)
    if more:
        store = open_store(disk)
        for record in more:
            store.append(record)
        store.close(sync=True)
    return disk


@pytest.mark.parametrize(
    ("more", "every"), [((), 1), ((checkpoint("c7", "new"),), 3)], ids=["", "and appended to"]
)
def test_a_flipped_bit_anywhere_is_harmless_or_an_error_and_never_a_different_content(more, every):
    whole = sealed_disk(more).content()
    store = open_store(MemoryDisk({PATH: whole}))
    assert store._sealed is not None
    expected = content(store.view())
    read = holds(store)
    harmless = 0
    for at in range(64, len(whole) - VOUCH, every):
        disk = MemoryDisk({PATH: flipped(whole, at * 8 + at % 8)})
        assert verify_in(disk), at
        with contextlib.suppress(CorruptLogError):
            found = open_store(disk)
            assert content(found.view()) == expected, at
            harmless += 1
            with contextlib.suppress(CorruptLogError):
                assert holds(found) == read, at
    assert harmless > len(whole) / every / 2


def frames_of(disk, kind):
    store = open_store(disk)
    log = store.log
    found = frames(log.file, seed=log.seed, start=64, previous=log.seed)
    return [(frame.offset, frame.end) for frame in found if frame.kind == kind]


def spoiled(disk, kind, number=-1) -> MemoryDisk:
    """The last byte of the last such frame is another one."""
    _, end = frames_of(disk, kind)[number]
    return MemoryDisk({PATH: flipped(disk.content(), 8 * end - 1)})


@pytest.mark.parametrize("kind", [Kind.SEAL, Kind.SEAL_PART])
@pytest.mark.parametrize("more", [(), (checkpoint("c7", "new"), checkpoint("c8", "a"))])
def test_a_damaged_seal_is_done_without_and_that_is_logged(kind, more, caplog):
    disk = sealed_disk(more)
    expected = content(open_store(disk).view())
    damaged = spoiled(disk, kind)
    store = open_store(damaged)
    assert store.view().namespace("b", "sub").ids == ["c1"]
    assert content(store.view()) == expected
    assert "seal" in caplog.text
    store.index._check()
    store.append(checkpoint("c9", "b"))  # and it goes on
    with eagerly():
        close(store)
    again = open_store(damaged)
    assert not again.index.threads.live
    assert {*content(again.view())} == {*expected}


def test_a_part_and_its_seal_that_are_damaged_both_are_done_without():
    """They lie side by side, so one bad sector takes both."""
    disk = sealed_disk([checkpoint("c7", "new")])
    expected = content(open_store(disk).view())
    damaged = spoiled(spoiled(disk, Kind.SEAL), Kind.SEAL_PART)
    store = open_store(damaged)
    assert content(store.view()) == expected
    assert rewrite(store)
    assert {*content(store.view())} == {*expected}


def test_a_seal_that_is_written_while_somebody_reads_is_not_told_to_be_damaged(caplog):
    """A follower has no lock: it saw half of the seal, and then what was put behind it."""
    disk = sealed_disk([checkpoint("c7", "new")])
    log = open_store(disk).log
    expected = [
        frame.offset
        for frame in frames(log.file, seed=log.seed, start=log.header.data_start, previous=log.seed)
    ]
    start, _ = frames_of(disk, Kind.SEAL)[-1]
    looks = iter([start + FRAME_HEADER_SIZE + 1] * 2)  # what a look at the size says, at first

    class Growing:
        path = log.path
        read = log.file.read

        def end(self):
            return next(looks, None) or log.file.end()

    found = frames_past_hints(
        Growing(), seed=log.seed, start=log.header.data_start, previous=log.seed
    )
    assert [frame.offset for frame in found] == expected
    assert not caplog.text


def test_a_seal_that_a_crash_has_cut_is_a_torn_tail_and_not_damage(caplog):
    disk = sealed_disk()
    _, end = frames_of(disk, Kind.SEAL)[-1]
    store = open_store(MemoryDisk({PATH: disk.content()[: end - 1]}), read_only=True)
    assert {*content(store.view())} == {*content(open_store(disk).view())}
    assert "doing without it" not in caplog.text


def test_whoever_is_in_the_middle_of_a_change_when_a_part_is_found_damaged_loses_nothing():
    """A forget changes two threads; the second one's part cannot be read."""
    disk = MemoryDisk()
    with eagerly():
        sealing.PART_SIZE = 1
        store = open_store(disk)
        for name in "abc":
            for number in range(3):
                store.append(checkpoint(f"c{number}", name))
        close(store)
        sealing.PART_SIZE = 1 << 16
    for at in range(len(frames_of(disk, Kind.SEAL_PART))):
        store = open_store(spoiled(disk, Kind.SEAL_PART, at))
        store.append(
            ForgetRecord([Forgotten(name, "", ["c0"], ["c1"]) for name in ("a", "b", "c")])
        )
        assert all(store.view().namespace(name, "").ids == ["c2"] for name in "abc")
        assert content(store.view()) == scanned(store)


def test_verify_has_nothing_to_say_of_a_sealed_log():
    assert verify_in(sealed_disk([checkpoint("c7", "new")])) == []


def test_damage_before_a_seal_is_found_when_it_is_read_and_by_verify():
    disk = sealed_disk()
    whole = disk.content()
    damaged = MemoryDisk({PATH: flipped(whole, 8 * (64 + FRAME_HEADER_SIZE))})
    store = open_store(damaged)
    assert content(store.view()) == content(open_store(disk).view())
    with pytest.raises(CorruptLogError):
        holds(store)
    assert verify_in(damaged)


def test_damage_before_a_seal_keeps_a_rewrite_from_losing_what_lies_behind_it():
    whole = sealed_disk().content()
    damaged = MemoryDisk({PATH: flipped(whole, 8 * (64 + FRAME_HEADER_SIZE))})
    store = open_store(damaged)
    with pytest.raises(CorruptLogError, match="byte 64"):
        rewrite(store)
    assert damaged.content()[: len(whole)] == flipped(whole, 8 * (64 + FRAME_HEADER_SIZE))
    store.append(checkpoint("c9", "a"))


def test_a_rewrite_steps_over_a_damaged_seal():
    disk = spoiled(sealed_disk([checkpoint("c7", "new")]), Kind.SEAL_PART)
    store = open_store(disk)
    expected = {*content(store.view())}
    assert rewrite(store)
    assert {*content(store.view())} == expected


def test_the_tail_behind_a_seal_is_torn_as_ever():
    disk = sealed_disk()
    end = len(disk.content())
    expected = content(open_store(disk).view())
    store = open_store(disk)
    store.append(checkpoint("c7", "new"))
    torn = MemoryDisk({PATH: disk.content()[:-1]})
    again = open_store(torn)
    assert len(torn.content()) == end == again.size()
    assert content(again.view()) == expected


def test_a_seal_at_the_end_of_a_torn_tail_is_not_believed(eager):
    """Nothing was synced when it was written; a frame before it did not make it to the disk."""
    disk = MemoryDisk()
    store = open_store(disk)
    ends = [store.append(record)[3] for record in [checkpoint("c1"), checkpoint("c2")]]
    store.append(checkpoint("c3"))  # behind a seal
    assert Kind.SEAL in kinds(disk.content(), store.log.header)
    data = bytearray(disk.content())
    data[ends[0] + 50 : ends[1]] = bytes(ends[1] - ends[0] - 50)
    crashed = MemoryDisk({PATH: bytes(data)})
    again = open_store(crashed)
    assert again.view().namespace("t", "").ids == ["c1"]
    assert again.size() < ends[1]


def test_an_earlier_seal_serves_if_the_last_one_is_no_good(eager):
    disk = sealed_disk()
    store = open_store(disk)
    store.append(checkpoint("c8", "new"))
    store.flush()
    close(store)
    expected = content(open_store(disk).view())
    store = open_store(spoiled(disk, Kind.SEAL))
    assert store._sealed is not None
    assert content(store.view()) == expected


def a_log_with(part: SealPartRecord, seal: SealRecord) -> MemoryDisk:
    """One checkpoint in thread "t", and a seal of it that has good checksums."""
    built = build_log([checkpoint("c1"), part, seal, checkpoint("c2", "u")], synced=True)
    return MemoryDisk({PATH: built.data})


def forged(rows=None, columns=None, places=None, summaries=None) -> MemoryDisk:
    index = Index()
    index.apply(checkpoint("c1"), 64, build_log([checkpoint("c1")]).ends[0] - 64)
    thread = index.threads["t"]
    data = columns if columns is not None else [pack_thread(thread)]
    part = SealPartRecord(pack_part(data) if isinstance(data, list) else data)
    built = build_log([checkpoint("c1"), part])
    place = Place(built.offsets[1], built.ends[1] - built.offsets[1], 0)
    table = pack_table([(name, thread.summary(), place) for name in rows or ["t"]])
    return a_log_with(part, SealRecord(64, places or table[0], summaries or table[1]))


def packed(*columns) -> bytes:
    return zlib.compress(ormsgpack.packb(columns))


def thread_of(**fields) -> bytes:
    columns = {
        "name": "", "listed": 1, "ids": ["c1"], "offsets": [64], "sizes": [99], "parents": [None],
        "times": [1], "tags": [b""], "written": [], "task_counts": [], "tasks": [],
        "call_counts": [], "call_offsets": [], "call_sizes": [], **fields,
    }  # fmt: skip
    return ormsgpack.packb([list(columns.values())])


@pytest.mark.parametrize(
    "lie",
    [
        {"columns": b"not compressed"},
        {"columns": zlib.compress(b"\xc1")},
        {"columns": zlib.compress(ormsgpack.packb([b"x"])) + b"more"},
        {"columns": []},
        {"columns": [b"\x01"]},
        {"columns": [thread_of(offsets=[1 << 40])]},
        {"columns": [thread_of(offsets=[-1])]},
        {"columns": [thread_of(sizes=[])]},
        {"columns": [thread_of(listed=1, ids=["c2", "c1"])]},
        {"columns": [thread_of(parents=[7])]},
        {"columns": [thread_of(ids=[1])]},
        {"columns": [thread_of(tags=[None], call_sizes=[1])]},
        {"columns": [thread_of(written=["c1"], task_counts=[1], tasks=[], call_counts=[])]},
        {"columns": [thread_of(tasks=["k"], call_counts=[1], call_offsets=[9], call_sizes=[9])]},
        {"rows": ["t", "s"]},
        {"places": b"nothing"},
        {"places": packed([], [], ["t"], [0], [0])},
        {"places": packed([200], [1], ["t"], [-1], [0])},
        {"places": packed([1 << 40], [1], ["t"], [0], [0])},
        {"places": packed([200], [1], ["t"], [0], [])},
        {"places": packed([200], [1], [3], [0], [0])},
        {"places": packed([64], [1], ["t"], [0], [0])},
        {"places": packed([200], [1])},
        {"summaries": b"nothing"},
        {"summaries": packed([], [])},
        {"summaries": packed(*[[]] * 11)},
    ],
    ids=str,
)
def test_a_seal_that_makes_no_sense_is_done_without(lie):
    disk = forged(**lie)
    expected = scanned(open_store(disk))
    assert {*expected} == {"t", "u"}
    assert content(open_store(disk).view()) == expected
    store = open_store(disk)
    assert store.view().namespace("t", "").ids == ["c1"]
    assert content(store.view()) == expected
    assert len(list(open_saver(disk).threads())) == 2


def test_the_forged_seal_is_a_good_one_without_a_lie():
    store = open_store(forged())
    assert store._sealed is not None
    assert store.view().namespace("t", "").ids == ["c1"]
    assert store._sealed.has("t")
    assert not store._sealed.has("u")


# -- who else has the log open


def test_a_seal_does_not_disturb_those_who_follow_the_log(eager):
    disk = MemoryDisk()
    first, second = open_saver(disk), open_saver(disk)
    reader = open_saver(disk, read_only=True)
    for number in range(12):
        put((first, second)[number % 2], f"t{number % 3}", checkpoint_id=f"c{number:02}")
        for saver in (first, second, reader):
            assert len(ids(saver.list(None))) == number + 1
            assert content(saver._store.view()) == scanned(saver._store)
    first.close()
    second.close()
    with open_saver(disk) as again:
        assert len(ids(again.list(None))) == 12
        assert not again._store._index_is_stale


def test_nobody_seals_while_another_has_the_lock(eager):
    disk = MemoryDisk()
    sealing.UNDER_WAY = 1 << 30
    saver = open_saver(disk)
    put(saver)
    before = disk.content()
    other = disk.open(PATH, WRITE)
    disk.flock(other, LOCK)
    saver.close()
    assert disk.content() == before
    disk.flock(other, UNLOCK)


@pytest.mark.parametrize("under_way", [False, True])
def test_a_full_disk_keeps_a_seal_from_being_written_and_nothing_else(eager, under_way):
    disk = MemoryDisk()
    if not under_way:
        sealing.UNDER_WAY = 1 << 30
    saver = open_saver(disk)
    parent = put(saver, checkpoint_id="c1")

    def full(call):
        if call.name == "write" and call.data[4] in (Kind.SEAL, Kind.SEAL_PART):
            raise OSError(28, "full")

    disk.on = full
    put(saver, checkpoint_id="c2", parent=parent)
    put(saver, checkpoint_id="c3", parent=parent)
    saver.close()
    disk.on = lambda call: None
    store = open_store(disk)
    assert Kind.SEAL not in kinds(disk.content(), store.log.header)
    assert store.view().namespace("t", "").ids == ["c1", "c2", "c3"]


def test_a_rewritten_log_does_not_take_seals_along_and_gets_its_own(eager):
    disk = sealed_disk()
    store = open_store(disk)
    expected = {*content(store.view())}
    assert rewrite(store)
    found = kinds(disk.content(), store.log.header)
    assert Kind.SEAL not in found
    store.append(checkpoint("c7", "a"))
    close(store)
    again = open_store(disk)
    assert again._sealed is not None
    assert {*content(again.view())} == expected
    assert again.log.committer.sync.name_is_safe


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_reads_the_seal_through_its_own_file(path, eager):
    with LogSaver(path) as saver:
        for name in "abc":
            put(saver, name, checkpoint_id="c")
    with LogSaver(path) as saver:
        assert saver.get_tuple(make_config("a")) is not None
        child = os.fork()
        if child == 0:
            found = saver.get_tuple(make_config("b"))
            ok = found is not None and set(saver._store.index.threads.live) == {"a", "b"}
            os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert id_of(saver.get_tuple(make_config("c")).config) == "c"


# -- crashes


def call(name, do, durable=True):
    return Call(name, do, durable)


CALLS = [
    call("a1", lambda saver: put(saver, "a", {"x": 1}, checkpoint_id="c1")),
    call("b1", lambda saver: put(saver, "b", {"x": 1}, checkpoint_id="c1")),
    call("a2", lambda saver: put(saver, "a", {"x": 2}, checkpoint_id="c2")),
    call("copy", lambda saver: saver.copy_thread("a", "c")),
    call("prune", lambda saver: saver.prune(["a"])),
    call("delete", lambda saver: saver.delete_thread("b")),
    call("a3", lambda saver: put(saver, "a", {"x": 3}, checkpoint_id="c3")),
]


def test_a_power_loss_around_a_seal_loses_no_promise(eager):
    """Of a process that seals at every step, and of one that goes on with what it left."""
    randomness = random.Random(3)
    history = run(CALLS)
    left = history.moments[-1].picture.some_crash(random.Random(0))
    for calls, files in ((CALLS, None), (CALLS[:1], left)):
        history = run(calls, files)
        for moment in history.moments:
            for _ in range(4):
                check(
                    moment.picture.some_crash(randomness),
                    history.states,
                    acknowledged=moment.acknowledged,
                    issued=moment.issued,
                )


def test_a_crash_of_calls_that_do_not_wait_leaves_a_prefix_of_them(eager):
    lazy = [each._replace(durable=False) for each in CALLS]
    history = run(lazy, fsync="never")
    randomness = random.Random(4)
    for moment in history.moments:
        for _ in range(4):
            check(
                moment.picture.some_crash(randomness),
                history.states,
                acknowledged=0,
                issued=moment.issued,
            )
