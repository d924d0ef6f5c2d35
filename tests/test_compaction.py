"""Compaction: what it leaves, what it gives back, and who may do what meanwhile."""

from __future__ import annotations

import asyncio
import copy
import errno
import os
import random
import threading
from pathlib import Path

import pytest
from crashing import Call, check, open_on, run, state_of
from disks import PATH, MemoryDisk, fail, open_saver
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import peers
from simdisk import SimDisk
from support import ids, make_checkpoint, make_config, put, sync_and_async
from test_crashes import EVERY_KIND

from logsaver import (
    ClosedLogError,
    CorruptLogError,
    LockTimeoutError,
    LogSaver,
    LogWriteError,
    ReadOnlyLogError,
    repair,
    verify,
)
from logsaver.record import LinkRecord
from logsaver.recovery import frames
from logsaver.successor import SUFFIX, Successor

COMPACT = Call("compact", lambda saver: saver.compact())
MARK = "a-thread-nobody-may-find-again"


def answers(saver):
    """What every method says, of everything that there is to ask."""
    found = {"state": state_of(saver), "stats": saver.stats().checkpoints}
    found["threads"] = [
        (thread.thread_id, thread.checkpoints, thread.metadata) for thread in saver.threads()
    ]
    for checkpoint in list(saver.list(None)):
        config = checkpoint.config
        name = tuple(config["configurable"].values())
        channels = [*checkpoint.checkpoint["channel_versions"]]
        found["get", name] = saver.get_tuple(config)
        found["history", name] = saver.get_delta_channel_history(config=config, channels=channels)
    for thread_id in "abc":
        found["mine", thread_id] = ids(saver.list(None, filter={"thread_id": thread_id}))
        found["run", thread_id] = ids(saver.list(None, filter={"run_id": thread_id}))
    return found


def records_of(path):
    with LogSaver(path, read_only=True) as saver:
        log = saver._store.log
        start = log.header.data_start
        return [
            log.decode(frame)
            for frame in frames(log.file, seed=log.seed, start=start, previous=log.seed)
        ]


# -- arbitrary histories


THREADS = st.sampled_from("abc")
NUMBERS = st.integers(1, 5)
STEPS = st.one_of(
    st.tuples(st.just("put"), THREADS, NUMBERS, st.integers(0, 4), st.integers(0, 3)),
    st.tuples(st.just("writes"), THREADS, st.integers(1, 7), st.integers(0, 2)),
    st.tuples(st.just("delete"), THREADS),
    st.tuples(st.just("copy"), THREADS, THREADS),
    st.tuples(st.just("prune"), THREADS),
    st.tuples(st.just("runs"), THREADS),
    st.tuples(st.just("compact")),
)
TEXT = "".join(random.Random(5).choices("abcdefghij", k=6000))


def take(saver, step):
    """Values grow, shrink and repeat each other, so that many are stored as pieces or shared."""
    kind, *args = step
    if kind == "put":
        thread, number, parent, edit = args
        text = TEXT[: 1000 * number] + "=" * edit + TEXT[4000 - 700 * parent :]
        versions = {"text": number, "same": 1, "delta": number}
        checkpoint = make_checkpoint(
            {"text": [text, number], "same": "x" * 400},
            versions,
            checkpoint_id=f"{number:04}",
        )
        config = make_config(thread, "", f"{parent:04}" if parent else None)
        metadata = {"step": number, "run_id": thread, "thread_id": thread}
        if edit == 1:
            metadata["counters_since_delta_snapshot"] = {"delta": [1, 1]}
        saver.put(config, checkpoint, metadata, {"text": number} if parent else versions)
    elif kind == "writes":
        thread, number, task = args
        text = TEXT[: 900 * number] + str(task)
        config = make_config(thread, "", f"{number:04}")
        saver.put_writes(config, [("text", text), ("delta", number)], f"task {task}", "~path")
    elif kind == "delete":
        saver.delete_thread(*args)
    elif kind == "copy":
        if not ids(saver.list(make_config(args[1], None))):
            saver.copy_thread(*args)
    elif kind == "prune":
        saver.prune(args)
    elif kind == "runs":
        saver.delete_for_runs(args)
    else:
        compact_and_compare(saver)


def compact_and_compare(saver):
    before = answers(saver)
    saver.compact()
    assert answers(saver) == before
    saver._store.index._check()


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_a_compacted_log_answers_everything_as_before(steps):
    disk = MemoryDisk()
    saver = open_saver(disk, fsync="never")
    for step in steps:
        take(saver, step)
    compact_and_compare(saver)
    expected = answers(saver)
    assert answers(open_saver(disk, read_only=True)) == expected
    # It is the log that one would have without the garbage: a second time changes nothing.
    size = len(disk.content())
    saver.compact()
    assert len(disk.content()) == size
    for step in steps[-5:]:
        take(saver, step)
    expected = answers(saver)
    assert answers(open_saver(disk, read_only=True)) == expected


@pytest.mark.deep
@pytest.mark.timeout(0)
@settings(max_examples=3000, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_many_compacted_logs_answer_everything_as_before(steps):
    saver = open_saver(MemoryDisk(), fsync="never")
    for step in steps:
        take(saver, step)
    compact_and_compare(saver)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, max_size=15), st.lists(STEPS, max_size=10), st.lists(STEPS, max_size=8))
def test_what_is_stored_while_it_runs_is_there_afterwards(before, during, after):
    """In the middle of the copy, so that it refers to frames of which only a part is copied."""
    disk = MemoryDisk()
    saver, plain = open_saver(disk, fsync="never"), open_saver(MemoryDisk(), fsync="never")
    for step in before:
        take(saver, step)
        take(plain, step)
    rest = [step for step in during if step[0] != "compact"]

    def meanwhile(_done, _total):
        while rest:
            take(saver, rest.pop(0))

    saver.compact(progress=meanwhile)
    for step in (*during, *after):
        if step[0] != "compact":
            if step in after:
                take(saver, step)
            take(plain, step)
    for step in after:
        take(plain, step)
        take(saver, step)
    saver.compact()
    assert answers(saver) == answers(plain)
    assert answers(open_saver(disk, read_only=True)) == answers(plain)


# -- what is gone, and what is given back


def test_no_byte_of_a_deleted_thread_is_left(path):
    with LogSaver(path) as saver:
        parent = put(saver, MARK, {MARK: MARK * 50}, metadata={MARK: MARK}, ns=MARK)
        put(saver, MARK, {MARK: MARK * 60}, parent=parent, ns=MARK)
        saver.put_writes(make_config(MARK, MARK, "c"), [(MARK, MARK)], MARK, MARK)
        stays = put(saver, "stays", {"x": 1})
        saver.delete_thread(MARK)
        assert MARK.encode() in Path(path).read_bytes()
        saver.compact()
        assert MARK.encode() not in Path(path).read_bytes()
        assert [found.config for found in saver.list(None)] == [stays]
    assert MARK.encode() not in Path(path).read_bytes()


def test_the_name_of_a_deleted_thread_is_gone_although_it_was_copied(path):
    """What the copy needs has become its own."""
    with LogSaver(path) as saver:
        config = put(saver, MARK, {"x": "y" * 500}, metadata={"thread_id": MARK, "step": 1})
        saver.put_writes(config, [("x", "z" * 300)], "task")
        saver.copy_thread(MARK, "copy")
        saver.copy_thread(MARK, "another")
        saver.delete_thread(MARK)
        before = answers(saver)
        saver.compact()
        assert answers(saver) == before
        assert MARK.encode() not in Path(path).read_bytes()
        for name in ("copy", "another"):
            (found,) = saver.list(make_config(name))
            assert found.metadata == {"thread_id": name, "step": 1}
            assert len(list(saver.list(None, filter={"thread_id": name}))) == 1
    assert verify(path).ok


def test_values_that_only_the_dead_have_are_gone_and_shared_ones_are_stored_once(path):
    with LogSaver(path) as saver:
        dead = put(saver, "t", {"doc": "d" * 90_000, "own": "only here" * 3000})
        config = dead
        for number in range(5):
            values = {"doc": "d" * 90_000, "own": f"{number}"}
            config = put(saver, "t", values, parent=config, new_versions={"own": 1})
        saver.copy_thread("t", "copy")
        for name in ("t", "copy"):
            saver.prune([name])
        report = saver.compact()
        assert report.bytes_before > 110_000
        assert 90_000 < report.bytes_after == os.path.getsize(path) < 92_000
        assert saver.get_tuple(make_config("copy")).checkpoint["channel_values"]["doc"]


def test_a_branch_and_its_sibling_keep_one_copy_of_what_both_repeat(path):
    with LogSaver(path) as saver:
        root = put(saver, "t", {"x": [TEXT, 0]}, metadata={"run_id": "gone"})
        for branch in ("one", "two"):
            put(saver, "t", {"x": [TEXT, branch]}, parent=root, versions={"x": branch})
        saver.delete_for_runs(["gone"])
        saver.compact()
        assert os.path.getsize(path) < 1.3 * len(TEXT)
        values = [found.checkpoint["channel_values"]["x"] for found in saver.list(None)]
        assert values == [[TEXT, "two"], [TEXT, "one"]]


def test_two_values_of_one_frame_that_repeat_the_same_dead_one(path):
    """Neither can be made of the other: a value is made of earlier frames only."""
    with LogSaver(path) as saver:
        root = put(saver, "t", {"x": [TEXT]}, metadata={"run_id": "gone"})
        saver.put_writes(root, [("x", [TEXT, 1]), ("x", [TEXT, 2])], "task")
        put(saver, "t", {"x": [TEXT, 1, 2]}, parent=root, versions={"x": 2})
        saver.copy_thread("t", "copy")
        before = answers(saver)
        saver.compact()
        assert answers(saver) == before
        saver.prune(["t", "copy"])
        compact_and_compare(saver)


def test_reads_stay_bounded_however_often_a_log_is_compacted(path):
    """Each time, the oldest values lose what they were made of."""
    with LogSaver(path) as saver:
        words, config = [], None
        for number in range(120):
            words.append(f"{number} " + TEXT[number * 40 : number * 40 + 300])
            config = put(
                saver,
                "t",
                {"words": words},
                parent=config,
                versions={"words": number},
                metadata={"run_id": str(number // 10)},
            )
            if number % 10 == 9:
                saver.delete_for_runs([str(number // 10 - 1)])
                compact_and_compare(saver)
        found = saver.get_tuple(make_config())
        assert found.checkpoint["channel_values"]["words"] == words
        store = saver._store
        store.log.values.clear()
        (found,) = saver.list(make_config(), limit=1)
        (value,) = store.log.values._young.values()
        assert len(value[0].leaves) <= 40


def test_links_are_linked_anew_and_a_copy_may_become_the_owner(path):
    with LogSaver(path) as saver:
        config = put(saver, "a", {"x": TEXT})
        saver.put_writes(config, [("y", 1)], "task")
        saver.copy_thread("a", "b")
        saver.compact()
        assert any(isinstance(record, LinkRecord) for record in records_of(path))
        saver.copy_thread("b", "c")
        compact_and_compare(saver)
        saver.delete_thread("a")
        compact_and_compare(saver)
        saver.delete_thread("b")
        compact_and_compare(saver)
        assert not any(isinstance(record, LinkRecord) for record in records_of(path))
        assert os.path.getsize(path) < len(TEXT) + 1000


def test_a_log_with_links_is_verified_and_repaired(path, tmp_path):
    with LogSaver(path) as saver:
        for name in ("a", "z"):
            saver.put_writes(put(saver, name, {"x": name * 50}), [("y", name)], "task")
            saver.copy_thread(name, f"copy of {name}")
        saver.compact()
        expected = answers(saver)
        first = saver._store.index.namespace("a", "").listed
    assert verify(path).ok
    whole = str(tmp_path / "whole.log")
    assert repair(path, whole).missing_values == []
    with LogSaver(whole) as repaired:
        assert answers(repaired) == expected
    data = bytearray(Path(path).read_bytes())
    data[next(iter(first.values())).offset + 60] ^= 1
    Path(path).write_bytes(data)
    assert not verify(path).ok
    rest = str(tmp_path / "rest.log")
    report = repair(path, rest)
    assert len(report.missing_values) == 1
    assert "thread 'copy of a': checkpoint" in report.missing_values[0]
    with LogSaver(rest) as repaired:
        listed = {found.config["configurable"]["thread_id"] for found in repaired.list(None)}
        assert listed == {"z", "copy of z"}
        assert len(repaired.get_tuple(make_config("copy of z")).pending_writes) == 1
    assert verify(rest).ok


# -- progress, errors, closing


@sync_and_async
def test_progress_says_how_much_of_what_is_done(path, calls):
    with LogSaver(path) as saver:
        for number in range(30):
            put(saver, "t", {"x": "y" * number * 100})
        told = []
        calls(saver).compact(progress=lambda *args: told.append(args))
        done = [each for each, _ in told]
        assert len({total for _, total in told}) == 1
        assert done == sorted(done)
        assert len(done) > 10
        assert done[-1] == told[-1][1] > 30 * 29 * 50


def test_whoever_reports_progress_can_stop_it(path):
    def stop(_done, _total):
        raise KeyboardInterrupt

    with LogSaver(path) as saver:
        config = put(saver)
        content = Path(path).read_bytes()
        with pytest.raises(KeyboardInterrupt):
            saver.compact(progress=stop)
        assert Path(path).read_bytes() == content
        assert [entry.name for entry in Path(path).parent.iterdir()] == ["agent.log"]
        assert saver.get_tuple(config) is not None


async def test_a_cancelled_compaction_leaves_the_log_as_it_was(path):
    is_running, may_go_on = threading.Event(), threading.Event()

    def progress(_done, _total):
        is_running.set()
        may_go_on.wait(20)

    async with LogSaver(path) as saver:
        for number in range(10):
            put(saver, "t", {"x": number})
        task = asyncio.create_task(saver.acompact(progress=progress))
        await asyncio.to_thread(is_running.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.01)
        may_go_on.set()
        await saver.acompact()
        assert len(ids(saver.list(None))) == 10


def test_closing_ends_it_and_says_so(path):
    is_running, may_go_on = threading.Event(), threading.Event()
    errors = []

    def progress(_done, _total):
        is_running.set()
        may_go_on.wait(20)

    saver = LogSaver(path)
    put(saver, "t", {"x": 1})

    def compact():
        try:
            saver.compact(progress=progress)
        except ClosedLogError as error:
            errors.append(error)

    thread = threading.Thread(target=compact)
    thread.start()
    assert is_running.wait(20)
    saver.close()
    may_go_on.set()
    thread.join(20)
    assert len(errors) == 1
    assert [entry.name for entry in Path(path).parent.iterdir()] == ["agent.log"]
    with LogSaver(path) as again:
        assert len(ids(again.list(None))) == 1
    with pytest.raises(ClosedLogError):
        saver.compact()


def test_a_read_only_saver_does_not_compact(path):
    LogSaver(path).close()
    with LogSaver(path, read_only=True) as saver, pytest.raises(ReadOnlyLogError):
        saver.compact()


def test_damage_is_found_and_the_old_file_stays(path):
    with LogSaver(path) as saver:
        for number in range(3):
            put(saver, "t", {"x": f"{number}" * 500})
        data = bytearray(Path(path).read_bytes())
        data[900] ^= 1
        Path(path).write_bytes(data)
        with pytest.raises(CorruptLogError, match="stays as it is"):
            saver.compact()
    assert Path(path).read_bytes()[: len(data)] == bytes(data)
    assert [entry.name for entry in Path(path).parent.iterdir()] == ["agent.log"]


def test_a_full_disk_is_an_error_that_leaves_nothing_behind():
    disk = MemoryDisk()
    saver = open_saver(disk)
    put(saver, "t", {"x": "y" * 5000})
    content = disk.content()
    full = fail("write", OSError(errno.ENOSPC, "No space left on device"))
    disk.on = lambda call: full(call) if call.path == PATH + SUFFIX else None
    with pytest.raises(LogWriteError, match=r"No space left.*Make room"):
        saver.compact()
    assert list(disk.files) == [PATH]
    assert disk.content() == content
    disk.on = lambda _: None
    put(saver)
    saver.compact()
    assert len(ids(saver.list(None))) == 2


def test_while_another_process_compacts_one_waits_and_then_gives_up(path):
    with LogSaver(path, lock_timeout=0.2) as saver:
        put(saver)
        claimed = Successor.claim(saver._store.disk, path)
        with pytest.raises(LockTimeoutError):
            saver.compact()
        put(saver)  # is in nobody's way
        claimed.release()
        saver.compact()


# -- with others attached


def test_readers_and_writers_of_other_processes_go_on(saver, path):
    with peers(2, path) as others:
        seen = []
        for turn in range(6):
            seen.insert(0, others[turn % 2].ask("id_of(put(saver, 't', {'x': 'y' * 999}))"))
            others[turn % 2].ask("saver.delete_thread(put(saver)['configurable']['thread_id'] * 2)")
            saver.compact() if turn % 2 else others[1].ask("saver.compact() and None")
            assert others[0].ask("ids(saver.list(make_config('t')))")[:1]
        listed = ids(saver.list(make_config("t")))
        assert set(seen) <= set(listed)
        assert saver._store.log.header.generation == 6
    assert verify(path).ok


def test_threads_put_and_read_while_it_is_compacted_again_and_again(path):
    with LogSaver(path) as saver:
        stop = threading.Event()
        failures = []

        def work(name):
            try:
                config, words = None, []
                while not stop.is_set():
                    words.append(f"{name} {len(words)} " * 5)
                    config = put(
                        saver, name, {"x": words}, parent=config, versions={"x": len(words)}
                    )
                    found = saver.get_tuple(config)
                    assert found.checkpoint["channel_values"]["x"] == words
                    if len(words) % 40 == 0:
                        saver.prune([name])
                    if len(words) > 150:
                        words = []
            except BaseException as error:
                failures.append(error)
                raise

        workers = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(3)]
        for worker in workers:
            worker.start()
        for _ in range(12):
            saver.compact()
        stop.set()
        for worker in workers:
            worker.join(30)
        assert not failures
        saver._store.index._check()
        expected = answers(saver)
    assert verify(path).ok
    with LogSaver(path) as again:
        assert answers(again) == expected


# -- crashes


def test_every_crash_leaves_the_old_log_or_the_new_one():
    calls = [*EVERY_KIND, COMPACT, EVERY_KIND[0], COMPACT]
    history = run(calls)
    randomness = random.Random(3)
    moments = [each for each in history.moments if each.issued > len(EVERY_KIND)]
    assert len(moments) > 20
    for moment in moments:
        for _ in range(12):
            check(
                moment.picture.some_crash(randomness),
                history.states,
                acknowledged=moment.acknowledged,
                issued=moment.issued,
            )


def test_a_crash_during_the_recovery_of_a_compaction_is_recovered_from():
    history = run([*EVERY_KIND[:6], EVERY_KIND[8], COMPACT])
    randomness = random.Random(4)
    for moment in history.moments[-25:]:
        files = moment.picture.some_crash(randomness)
        issued, acknowledged = moment.issued, moment.acknowledged
        check(files, history.states, acknowledged=acknowledged, issued=issued, deeper=1)


def test_an_abandoned_copy_is_removed_at_the_next_open():
    disk = SimDisk()
    saver = open_on(disk)
    put(saver)
    saver.close()
    files = {**disk.files(), PATH.replace("/agent", "/agent") + SUFFIX: b"half of a copy"}
    again = open_on(SimDisk(files))
    assert len(ids(again.list(None))) == len(ids(open_on(SimDisk(disk.files())).list(None)))
    again.close()


# -- values in pieces


VALUES = st.recursive(
    st.integers(0, 9) | st.text("abc", max_size=9) | st.sampled_from([TEXT[:900], TEXT[700:2500]]),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("pqrs"), inner, max_size=3)
    ),
    max_leaves=12,
)
EDITS = st.one_of(
    st.tuples(st.just("append"), VALUES),
    st.tuples(st.just("change"), VALUES),
    st.tuples(st.just("grow"), VALUES),
    st.tuples(st.just("trim"), st.just(None)),
    st.tuples(st.just("replace"), VALUES),
    st.tuples(st.sampled_from(["fork", "reopen", "compact", "delete"]), st.integers(0, 9)),
)


def edited(value, how, new):
    """In place, as nodes do: the saver has seen the same object before."""
    if how == "append":
        value["list"].append(new)
    elif how == "change":
        value["files"]["p"] = new
    elif how == "grow":
        value["text"] += str(new) * 3
    elif how == "trim":
        del value["list"][:2]
    else:
        value["files"] = {"q": new}


@settings(max_examples=40, deadline=None)
@given(st.lists(EDITS, max_size=40))
def test_any_row_of_edits_is_read_back_through_forks_reopening_and_compaction(edits):
    disk = MemoryDisk()
    saver, known = open_saver(disk, fsync="never"), {}
    value = {"list": [TEXT[:400]] * 14, "files": {"p": TEXT}, "text": TEXT[:300]}
    config = None
    for number, (how, new) in enumerate(edits):
        if how == "fork" and known:
            config = make_config("t", "", sorted(known)[new % len(known)])
            value = copy.deepcopy(known[config["configurable"]["checkpoint_id"]])
        elif how == "reopen":
            saver.close()
            saver = open_saver(disk, fsync="never")
        elif how == "compact":
            saver.compact()
        elif how == "delete":
            saver.delete_for_runs([str(new)])
            known = {name: old for name, old in known.items() if int(name) % 10 != new}
        else:
            edited(value, how, new)
            name = f"{number:04}"
            metadata = {"run_id": str(number % 10)}
            config = put(
                saver,
                "t",
                {"state": value},
                parent=config,
                versions={"state": number},
                metadata=metadata,
                checkpoint_id=name,
            )
            known[name] = copy.deepcopy(value)
    saver._store.log.values.clear()
    found = {
        entry.config["configurable"]["checkpoint_id"]: entry.checkpoint["channel_values"]["state"]
        for entry in saver.list(make_config())
    }
    assert found == known
