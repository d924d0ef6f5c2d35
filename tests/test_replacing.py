"""A log that is rewritten as a new generation while others use it, and by whom it is cut short."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import signal
import threading
from pathlib import Path

import pytest
from crashing import (
    Call,
    RecordingDisk,
    check,
    check_every_crash,
    check_some_crashes,
    everything_lost,
    open_on,
    put_probe,
    run,
    state_of,
    states_with_probe,
)
from disks import PATH, File, MemoryDisk, fail, open_saver
from encrypting import encrypted_logs
from faulty import AFTER, BEFORE, Fault, FaultyDisk
from kill_worker import one_of_each, put_step
from killing import Server, replay, settle
from logs import build_log, checkpoint
from peers import peers
from simdisk import SimDisk
from support import id_of, ids, make_checkpoint, make_config, put
from test_crashes import EVERY_KIND
from test_crashes import put as put_call

from logsaver import (
    ClosedLogError,
    CorruptLogError,
    LogSaver,
    LogWriteError,
    ReadOnlyLogError,
    verify,
)
from logsaver.disk import UNLOCK
from logsaver.frame import FileHeader
from logsaver.log import has_successor
from logsaver.logfile import LogFile
from logsaver.putting import Put
from logsaver.rewriting import rewrite
from logsaver.store import Store
from logsaver.successor import SUFFIX, Successor

REWRITE = Call("rewrite", lambda saver: rewrite(saver._store))


def files_beside(path) -> list[str]:
    return sorted(found.name for found in Path(path).parent.iterdir())


def generation(saver) -> int:
    with saver._store.lock:
        saver._store.view()
    return saver._store.log.header.generation


# -- what it does


def test_a_rewritten_log_holds_what_it_held_before(path):
    with LogSaver(path) as saver:
        for step in one_of_each("sync"):
            step.do(saver)
        before = state_of(saver)
        for number in (1, 2, 3):
            assert rewrite(saver._store)
            assert generation(saver) == number
            assert state_of(saver) == before
            saver._store.index._check()
        put(saver, "more")
        after = state_of(saver)
    assert files_beside(path) == ["agent.log"]
    assert verify(path).ok
    with LogSaver(path) as again:
        assert state_of(again) == after


def test_a_value_that_is_shared_across_the_rewrite_is_stored_once(saver, path):
    parent = put(saver, "t", {"big": "x" * 50_000})
    rewrite(saver._store)
    before = os.path.getsize(path)
    child = put(saver, "t", {"big": "x" * 50_000}, parent=parent, new_versions={})
    assert os.path.getsize(path) - before < 2000
    rewrite(saver._store)
    for config in (parent, child):
        values = saver.get_tuple(config).checkpoint["channel_values"]
        assert values == {"big": "x" * 50_000}


@pytest.mark.parametrize("who", ["the same saver", "another process"])
def test_a_put_that_was_made_ready_before_the_rewrite_is_made_anew(who):
    """Its record refers to a position in the old file."""
    disk = MemoryDisk()
    saver, other = open_saver(disk), open_saver(disk)
    replacer = saver if who == "the same saver" else other
    rewrite(replacer._store)  # leaves a frame that the next one does not copy, so all moves
    parent = put(saver, "t", {"big": "x" * 5000})
    checkpoint = make_checkpoint({"big": "x" * 5000})
    call = Put(saver._store, saver._bases, saver.serde, parent, checkpoint, {}, {})
    before = call._made.record.channels["big"]
    assert type(before) is int
    assert rewrite(replacer._store)
    saver._do(call, waits=True)
    after = call._made.record.channels["big"]
    assert type(after) is int
    assert after < before
    for reader in (saver, open_saver(disk, read_only=True)):
        found = reader.get_tuple(call.config())
        assert found.checkpoint["channel_values"] == {"big": "x" * 5000}


def test_a_rewrite_that_somebody_was_faster_with_loses_nothing(monkeypatch):
    """Between the choice of what to copy and the claim, another process does all of it."""
    disk = MemoryDisk()
    saver, other = open_saver(disk), open_saver(disk)
    put(saver, "before")
    claim = Successor.claim

    def late_claim(*args):
        monkeypatch.undo()
        assert rewrite(other._store)
        put(other, "between")
        return claim(*args)

    monkeypatch.setattr(Successor, "claim", late_claim)
    assert not rewrite(saver._store)
    for reader in (saver, other, open_saver(disk)):
        assert {found.thread_id for found in reader.threads()} == {"before", "between"}
    assert list(disk.files) == [PATH]


def test_a_read_between_the_rename_and_its_sync_stays_with_the_old_file():
    """Else the store would take over the new file twice."""
    disk = MemoryDisk()
    saver = open_saver(disk)
    config = put(saver, values={"x": 1})
    epoch, seen = saver._store.epoch, []

    def on(call):
        if call.name == "sync-directory":
            values = saver.get_tuple(config).checkpoint["channel_values"]
            seen.append((values, saver._store.epoch))

    disk.on = on
    assert rewrite(saver._store)
    assert seen == [({"x": 1}, epoch)]
    assert saver._store.epoch == epoch + 1


def test_most_of_a_copy_is_synced_before_anybody_has_to_wait():
    disk = MemoryDisk()
    saver = open_saver(disk)
    put(saver)
    disk.calls.clear()
    assert rewrite(saver._store)
    calls = [(call.name, call.path) for call in disk.calls]
    told = calls.index(("write", PATH))  # the first step with the lock that others can see
    assert calls.index(("sync", PATH + SUFFIX)) < told
    assert ("sync", PATH + SUFFIX) in calls[told:]


def test_a_rewritten_log_need_not_be_written_again_by_the_next_who_opens_it():
    disk = MemoryDisk()
    saver = open_saver(disk)
    put(saver, values={"x": "y" * 5000})
    assert rewrite(saver._store)
    unsynced = Store(PATH, disk=disk).log.committer.sync.unsynced
    assert 0 < len(unsynced) < 100


def test_a_log_that_is_rewritten_again_and_again_does_not_grow():
    disk = MemoryDisk()
    with open_saver(disk) as saver:
        put(saver)
    saver, sizes = open_saver(disk), []
    for _ in range(4):
        assert rewrite(saver._store)
        sizes.append(len(disk.content()))
    assert len(set(sizes)) == 1


def test_the_old_files_lock_is_given_back_while_somebody_still_reads_it():
    """Another process may wait for it: that is how it finds out that there is a new one."""
    disk = MemoryDisk()
    saver, other = open_saver(disk), open_saver(disk, lock_timeout=0.2)
    for _ in range(3):
        put(saver)
    put(other)
    listed = saver.list(None)
    next(listed)
    old = saver._store.log
    assert rewrite(saver._store)
    put(other)
    assert old.file.end() > 0  # it is still open
    assert len(list(listed)) == 3


def test_after_a_killed_replacer_the_first_put_finds_that_all_is_as_before():
    """From then on nobody looks for a successor at every read."""
    disk = MemoryDisk()
    saver, killed = open_saver(disk), open_saver(disk)
    put(saver)
    disk.on = fail("replace", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        rewrite(killed._store)
    disk.on = lambda _: None
    put(saver)
    disk.calls.clear()
    assert len(list(saver.list(None))) == 2
    assert not saver._store._is_replaced
    assert not disk.named("open")


def test_only_a_later_generation_of_the_same_log_is_gone_on_with():
    """A log that a killed replacer announced a successor of is overwritten by somebody else's."""
    header = FileHeader(b"i" * 16, generation=2)
    disk = MemoryDisk({PATH: header.encode()})
    file = LogFile.open(disk, PATH, read_only=False)
    for other, is_successor in [
        (FileHeader(b"i" * 16, generation=3), True),
        (FileHeader(b"i" * 16, generation=2), False),  # a copy, or a backup put back
        (FileHeader(b"i" * 16, generation=1), False),
        (FileHeader(b"j" * 16, generation=3), False),
    ]:
        disk.files[PATH] = File(other.encode())
        assert has_successor(file, header) is is_successor


# -- claims


class RenamedBeforeTheLock(MemoryDisk):
    """Somebody renames the file, or puts a log in its place, between an open and its lock."""

    def __init__(self, files, path, meanwhile):
        super().__init__(files)
        self.path, self.meanwhile = path, meanwhile

    def flock(self, fd, operation):
        if operation != UNLOCK and self._open[fd].path == self.path:
            self.path = None
            self.meanwhile(self)
        super().flock(fd, operation)


def test_what_was_installed_before_it_could_be_claimed_is_not_emptied():
    def install(disk):
        disk.files[PATH] = disk.files.pop(PATH + SUFFIX)

    disk = RenamedBeforeTheLock({PATH + SUFFIX: b"a log"}, PATH + SUFFIX, install)
    claimed = Successor.claim(disk, PATH)
    assert disk.content(PATH) == b"a log"
    assert claimed.file.identity == disk.identity_at(PATH + SUFFIX)


def test_of_two_who_make_a_log_the_slower_one_finds_the_others():
    made = build_log([checkpoint()]).data

    def install(disk):
        disk.files[PATH] = File(made)

    disk = RenamedBeforeTheLock({}, PATH, install)
    with open_saver(disk) as saver:
        assert ids(saver.list(None)) == ["c1"]
    assert disk.content() == made


def test_what_a_killed_maker_wrote_is_not_a_part_of_what_is_made_next():
    disk = MemoryDisk()
    saver = open_saver(disk)
    put(saver)
    assert rewrite(saver._store)
    size = len(disk.content())
    disk.files[PATH + SUFFIX] = File(b"x" * 10_000)
    assert rewrite(saver._store)
    assert len(disk.content()) == size


def test_a_claim_that_is_given_up_leaves_alone_what_somebody_else_makes():
    disk = MemoryDisk()
    claimed = Successor.claim(disk, PATH)
    disk.replace(PATH + SUFFIX, PATH)  # Ctrl-C right behind the rename
    another = Successor.claim(disk, PATH)
    claimed.release()
    assert disk.identity_at(PATH + SUFFIX) == another.file.identity


def test_what_is_not_rewritten_is_told_why(path):
    with LogSaver(path) as saver:
        put(saver)
        with LogSaver(path, read_only=True) as reader, pytest.raises(ReadOnlyLogError):
            rewrite(reader._store)
        store = saver._store
    with pytest.raises(ClosedLogError):
        rewrite(store)
    assert files_beside(path) == ["agent.log"]


def test_a_log_that_refers_to_nowhere_is_damaged_and_stays_as_it_is(path):
    with LogSaver(path) as saver:
        parent = put(saver, "t", {"x": "y" * 100})
        put(saver, "t", {"x": "y" * 100}, parent=parent, new_versions={})
        store = saver._store
        with store.lock:
            latest = store.index.namespace("t", "").listed[parent["configurable"]["checkpoint_id"]]
        record = store.log.checkpoint(latest.offset)
        store.append(record._replace(checkpoint_id="zzz", channels={"x": latest.offset + 1}))
        content = Path(path).read_bytes()
        with pytest.raises(CorruptLogError, match="expected a value here"):
            rewrite(store)
        assert Path(path).read_bytes() == content
        assert files_beside(path) == ["agent.log"]
        put(saver)


# -- with others attached


def test_readers_and_writers_of_other_processes_go_on(saver, path):
    with peers(2, path) as (writer, other), LogSaver(path, read_only=True) as reader:
        seen = []
        for turn in range(6):
            seen.insert(0, id_of(put(saver, "t", {"x": turn})))
            # Each rewrites it in turn.
            if turn % 3 == 0:
                assert rewrite(saver._store)
            else:
                assert (writer, other)[turn % 3 - 1].ask("rewrite(saver._store)")
            assert ids(reader.list(None)) == seen
            seen.insert(0, writer.ask("id_of(put(saver, 't', {'x': 1}))"))
            assert other.ask("ids(saver.list(None))") == seen
            assert ids(saver.list(None)) == seen
        assert generation(saver) == 6
    assert verify(path).ok


def test_a_list_in_the_middle_of_a_rewrite_yields_everything_once(saver, path):
    expected = [id_of(put(saver, "t", {"x": number})) for number in range(10)][::-1]
    with LogSaver(path, read_only=True) as reader:
        listings = [saver.list(None), reader.list(None)]
        found = [[], []]
        for _ in range(5):
            for listing, seen in zip(listings, found, strict=True):
                seen.extend(ids([next(listing), next(listing)]))
            rewrite(saver._store)
        assert found == [expected, expected]


def test_a_get_in_the_middle_of_a_rewrite_reads_what_it_found(saver, path):
    """Found in the old file, read after the rename: from the old file, which is still open."""
    config = put(saver, "t", {"x": "y" * 1000})
    (info,) = saver.threads()
    rewrite(saver._store)
    put(saver, "u")
    saver._store.log.cache.clear()
    assert info.metadata["step"] == 0
    assert saver.get_tuple(config).checkpoint["channel_values"] == {"x": "y" * 1000}


async def test_coroutines_that_wait_for_a_sync_are_told_by_the_old_file_or_the_new(path):
    async with LogSaver(path) as saver:
        stop = False

        async def put_on(name):
            count = 0
            while not stop:
                config = make_config(name)
                await saver.aput(config, make_checkpoint({"x": count}), {}, {"x": 1})
                count += 1
            return count

        tasks = [asyncio.create_task(put_on(f"task {number}")) for number in range(8)]
        for _ in range(10):
            await asyncio.sleep(0.01)
            await asyncio.to_thread(rewrite, saver._store)
        stop = True
        counts = await asyncio.wait_for(asyncio.gather(*tasks), 20)
        assert len(ids(saver.list(None))) == sum(counts) > 0
        assert generation(saver) == 10


async def test_an_event_loop_reads_and_waits_while_a_thread_syncs_the_new_file(path, monkeypatch):
    async with LogSaver(path) as saver:
        put(saver, "t", {"x": 1})
        disk, is_syncing, may_go_on = saver._store.disk, threading.Event(), threading.Event()
        sync_directory = disk.sync_directory

        def slowly(directory):
            is_syncing.set()
            assert may_go_on.wait(20)
            sync_directory(directory)

        monkeypatch.setattr(disk, "sync_directory", slowly, raising=False)
        replacing = asyncio.create_task(asyncio.to_thread(rewrite, saver._store))
        assert await asyncio.to_thread(is_syncing.wait, 20)
        assert await saver.aget_tuple(make_config()) is not None
        writing = asyncio.create_task(saver.aput(make_config("u"), make_checkpoint(), {}, {}))
        await asyncio.sleep(0.05)
        assert not writing.done()
        assert await saver.aget_tuple(make_config("u")) is None
        may_go_on.set()
        assert await replacing
        await asyncio.wait_for(writing, 10)
        assert await saver.aget_tuple(make_config("u")) is not None


def test_of_two_who_replace_at_once_exactly_one_does(path):
    with peers(4, path) as others:
        others[0].ask("[put(saver, 't', {'x': 'y' * 3000}) for _ in range(50)] and None")
        rewritten = 0
        for _ in range(5):
            for other in others:
                other.tell("rewrite(saver._store)")
            done = [other.answer() for other in others]
            assert any(done)
            rewritten += sum(done)
        with LogSaver(path) as saver:
            assert generation(saver) == rewritten
            assert len(ids(saver.list(None))) == 50
    assert files_beside(path) == ["agent.log"]


def test_writers_that_never_pause_lose_nothing_while_the_log_is_replaced_again_and_again(path):
    with peers(3, path, fsync="never") as others, LogSaver(path) as saver:
        for other in others:
            other.tell("put_for(saver, 1.5)")
        rewritten = 0
        while any(other.is_busy() for other in others):
            rewritten += rewrite(saver._store)
        counts = [other.answer() for other in others]
        assert len(ids(saver.list(None))) == sum(counts)
        assert generation(saver) == rewritten > 3
        print(f"{rewritten} rewrites during {sum(counts)} puts")


# -- cut short: the power goes


def test_every_crash_during_a_rewrite_keeps_what_was_acknowledged():
    calls = [put_call("a", 1), put_call("a", 2, parent=1), REWRITE, put_call("a", 3, parent=2)]
    history = run(calls)
    tried = check_every_crash(history)
    print(f"{len(history.moments)} moments, {tried} crashes")
    assert tried > 150


def test_a_crash_during_a_rewrite_and_again_during_recovery_is_recovered_from():
    calls = [*EVERY_KIND[:8], REWRITE, *EVERY_KIND[8:], REWRITE]
    history = run(calls)
    check_some_crashes(history, random.Random(3), deeper=1)


def test_unsynced_calls_and_a_rewrite_leave_a_prefix():
    calls = [put_call("a", n, parent=n - 1 or None, durable=False) for n in range(1, 4)]
    history = run([*calls, REWRITE, put_call("a", 4, parent=3, durable=False)], fsync="never")
    randomness = random.Random(5)
    for moment in history.moments:
        for files in {tuple(moment.picture.some_crash(randomness).items()) for _ in range(60)}:
            promised = {"acknowledged": moment.acknowledged, "issued": moment.issued}
            check(dict(files), history.states, **promised)


def test_a_crash_during_a_rewrite_of_an_encrypted_log_is_recovered_from():
    with encrypted_logs():
        test_every_crash_during_a_rewrite_keeps_what_was_acknowledged()
        test_unsynced_calls_and_a_rewrite_leave_a_prefix()


class DyingDisk(RecordingDisk):
    """Keeps, after each operation, the disk as it is for whoever comes after a kill."""

    def __init__(self) -> None:
        super().__init__()
        self.survivors: list[tuple[str, SimDisk]] = []

    def after(self, operation: str) -> None:
        super().after(operation)
        self.survivors.append((operation, self.after_a_kill()))


def test_what_is_acknowledged_after_a_kill_survives_a_power_loss_right_after():
    """Killed at each step, above all between the rename and the sync of the directory.

    The next process finds the new file under the name, appends and acknowledges. If it took the
    name for safe, because what the copy has was synced, the old file would come back.
    """
    disk = DyingDisk()
    saver = open_on(disk)
    for number in (1, 2, 3):
        put_call("a", number, parent=number - 1 or None).do(saver)
    state = state_of(saver)
    del disk.survivors[:]
    assert rewrite(saver._store)
    operations = [operation for operation, _ in disk.survivors]
    assert operations[-2:] == ["replace", "sync_directory"]
    randomness = random.Random(1)
    for _, survivor in disk.survivors:
        other = open_on(survivor)
        assert state_of(other) == state
        put_probe(other)
        picture = survivor.picture()
        crashes = [picture.some_crash(randomness) for _ in range(30)]
        for files in (everything_lost(picture), *crashes):
            after = open_on(SimDisk(files))
            assert state_of(after) == states_with_probe(state)[1]
            after.close()
        other.close()
    saver.close()


class KilledError(BaseException):
    """Raised in a process that is dead."""


class KillingDisk(SimDisk):
    """Kills whoever uses it: nothing that it does to clean up has an effect but to let go."""

    left = -1

    @contextlib.contextmanager
    def killing_after(self, count: int):
        self.left = count
        yield
        self.left = -1

    def before(self, operation: str, name: str) -> None:
        if self.left == 0:
            raise KilledError

    def after(self, operation: str) -> None:
        if self.left > 0:
            self.left -= 1
            self.before(operation, "")


def test_an_attached_process_goes_on_wherever_the_replacer_is_killed():
    """It had the log open before, follows what the dead one left, and what it is told is safe."""
    disk = DyingDisk()
    saver = open_on(disk)
    put_call("a", 1).do(saver)
    state = state_of(saver)
    del disk.survivors[:]
    assert rewrite(saver._store)
    count = len(disk.survivors)
    saver.close()

    for at in range(1, count + 1):
        disk = KillingDisk()
        victim = open_on(disk)
        put_call("a", 1).do(victim)
        attached, reader = open_on(disk), open_on(disk, read_only=True)
        with disk.killing_after(at), pytest.raises(KilledError):
            rewrite(victim._store)
        assert state_of(attached) == state_of(reader) == state
        put_probe(attached)
        expected = states_with_probe(state)[1]
        assert state_of(attached) == state_of(reader) == expected
        after = open_on(SimDisk(everything_lost(disk.picture())))
        assert state_of(after) == expected
        for opened in (after, attached, reader):
            opened.close()


# -- cut short: kill -9


@pytest.fixture(scope="module")
def server():
    started = Server()
    yield started
    started.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_kill_at_every_system_call_of_a_rewrite_loses_nothing(server, tmp_path):
    """With a writer and a reader attached, who go on; then the log is opened anew."""
    steps = one_of_each("sync")
    after = put_step("after", 1, None, "sync")
    before, with_put = list(replay([*steps, after], tmp_path / "expected.log"))[-2:]
    path = tmp_path / "dying.log"

    def run_until(at: int, *, half: bool):
        for left in tmp_path.glob("dying.log*"):
            left.unlink()
        with LogSaver(path, fsync="never") as attached, LogSaver(path, read_only=True) as reader:
            for step in steps:
                step.do(attached)
            worker = server.start("rewrite", path=str(path), at=at, half=half)
            worker.listen_to_the_end()
            allowed = [before, with_put][worker.acknowledged() // 2 :]
            assert state_of(attached) in allowed
            assert state_of(reader) == state_of(attached)
            after.do(attached)  # the same once more: the state is the same
            assert state_of(reader) == state_of(attached) == with_put
        assert settle(path) == with_put
        assert [name for name in files_beside(path) if "new" in name] == []
        return worker

    survivor = run_until(0, half=False)
    assert survivor.code == 0
    calls = [name for (name,) in survivor.said("call")]
    assert calls.count("replace") == 1
    for at, name in enumerate(calls, start=1):
        for half in (False, True) if name == "write" else (False,):
            assert run_until(at, half=half).code == -signal.SIGKILL
    print(f"{len(calls)} system calls")


# -- cut short: the disk is full, or fails


def open_with_some(disk):
    saver = open_saver(disk)
    for number in range(5):
        put(saver, "t", {"x": "y" * 500, "n": number})
    return saver


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_while_a_log_is_rewritten_leaves_the_old_one(number):
    """At every call that has to do with the new file, and at the rename."""
    disk = MemoryDisk()
    saver = open_with_some(disk)
    start = len(disk.calls)
    rewrite(saver._store)
    names = ("open-to-write", "write", "sync", "replace")
    count = sum(call.name in names for call in disk.calls[start:])
    assert count >= 6
    saver.close()
    for at in range(1, count + 1):
        disk = MemoryDisk()
        saver = open_with_some(disk)
        state = state_of(saver)
        seen = 0

        def fail(call, at=at):
            nonlocal seen
            seen += call.name in names
            if call.name in names and seen == at:
                raise OSError(number, os.strerror(number))

        disk.on = fail
        with pytest.raises(LogWriteError) as caught:
            rewrite(saver._store)
        assert caught.value.errno == number
        disk.on = lambda call: None
        assert list(disk.files) == [PATH]
        assert state_of(saver) == state
        put(saver, "u")
        assert rewrite(saver._store)
        with contextlib.closing(open_saver(disk)) as again:
            assert state_of(again) == state_of(saver)
        saver.close()


def test_a_name_that_cannot_be_synced_is_told_and_the_new_file_is_gone_on_with():
    disk = MemoryDisk()
    saver = open_with_some(disk)
    state = state_of(saver)

    def fail(call):
        if call.name == "sync-directory":
            raise OSError(errno.EIO, "broken")

    disk.on = fail
    with pytest.raises(LogWriteError):
        rewrite(saver._store)
    disk.on = lambda call: None
    config = put(saver, "right after")
    assert saver._store.log.header.generation == 1
    assert "sync-directory" in [call.name for call in disk.calls[-8:]]
    saver.delete_thread("right after")
    assert state_of(saver) == state
    with contextlib.closing(open_saver(disk)) as again:
        assert state_of(again) == state
        assert again.get_tuple(config) is None
    saver.close()


def test_what_a_killed_replacer_left_is_swept_away_by_the_next_who_opens(path):
    LogSaver(path).close()
    Path(path + ".logsaver-new").write_bytes(b"half a copy")
    with LogSaver(path, read_only=True):
        assert files_beside(path) == ["agent.log", "agent.log.logsaver-new"]
    LogSaver(path).close()
    assert files_beside(path) == ["agent.log"]


def test_what_somebody_is_making_is_not_swept_away(path):
    LogSaver(path).close()
    Path(path + ".logsaver-new").touch()
    with peers(1, path + ".logsaver-new", opens=False) as (other,):
        other.ask("hold_lock(path)")
        with LogSaver(path) as saver:
            assert not rewrite(saver._store)
            assert files_beside(path) == ["agent.log", "agent.log.logsaver-new"]
            put(saver)


def test_leftovers_of_another_user_are_in_nobodys_way(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for directory in (tmp_path, *tmp_path.parents[:3]):
        directory.chmod(directory.stat().st_mode | 0o055)
    path = tmp_path / "agent.log"
    LogSaver(path).close()
    os.chown(path, 65534, 65534)
    Path(f"{path}.logsaver-new").touch(0o600)
    with peers(1, str(path), uid=65534) as (other,):
        other.ask("put(saver)")
    assert files_beside(path) == ["agent.log", "agent.log.logsaver-new"]


@pytest.mark.parametrize("how", [BEFORE, AFTER])
def test_ctrl_c_at_any_call_of_a_rewrite_leaves_a_log_that_everybody_can_use(how):
    """The saver itself, another one that was attached, and whoever opens it then."""
    healthy = FaultyDisk()
    saver = open_on(healthy)
    put_call("a", 1).do(saver)
    state = state_of(saver)
    healthy.counts.clear()
    rewrite(saver._store)
    saver.close()
    tried = 0
    del healthy.counts["close"]  # of the old file: the collector does it, whom nobody interrupts
    for operation, count in healthy.counts.items():
        for number in range(1, count + 1):
            disk = FaultyDisk()
            saver, attached = open_on(disk), open_on(disk, lock_timeout=0.5)
            put_call("a", 1).do(saver)
            disk.counts.clear()
            disk.fault = Fault(operation, number, how)
            with contextlib.suppress(KeyboardInterrupt):  # it may come after the last call
                rewrite(saver._store)
            disk.fault = None
            for each, name in ((saver, "own"), (attached, "attached")):
                assert state.items() <= state_of(each).items(), (operation, number)
                put(each, name)
            opened = open_on(disk)
            assert state_of(opened) == state_of(saver) == state_of(attached)
            for each in (opened, saver, attached):
                each.close()
            tried += 1
    print(f"{tried} interrupts")
    assert tried >= 20
