"""Any number of processes on one log: nobody loses, repeats or half-sees anything."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import threading
import time
from pathlib import Path
from unittest import mock

import pytest
from crashing import state_of
from disks import MemoryDisk, open_saver
from mounting import Mounts, why_not_here
from peers import PeerError, peers
from support import Awaited, id_of, ids, make_checkpoint, make_config, put

from logsaver import (
    LockTimeoutError,
    LogOpenError,
    LogReplacedError,
    LogSaver,
    ReadOnlyLogError,
    verify,
)
from logsaver.disk import Disk
from logsaver.rewriting import rewrite
from logsaver.store import NAME_CHECK_INTERVAL, Store

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and flock")

NOBODY = 65534


def open_stranger(path):
    """A second saver in this process that does not share the store of the first."""
    with mock.patch("logsaver.saver.open_store", Store):
        return LogSaver(path)


# -- what one does, the others see


def test_a_put_is_seen_by_the_next_read_of_another_process(saver, path):
    with peers(2, path) as (one, other):
        for number in range(20):
            here = put(saver, "t", {"x": number})
            assert one.ask("id_of(saver.get_tuple(make_config()).config)") == id_of(here)
            there = one.ask("id_of(put(saver, 't', {'x': 'there'}))")
            assert id_of(saver.get_tuple(make_config()).config) == there
            assert other.ask("ids(saver.list(None))") == ids(saver.list(None))
        assert other.ask("len(ids(saver.list(None)))") == 40


def test_writes_deletes_copies_and_prunes_are_seen_too(saver, path):
    with peers(1, path) as (other,):
        config = put(saver, "t", {"x": 1})
        other.ask("saver.put_writes(config, [('x', 2)], 'task')", config=config)
        assert saver.get_tuple(config).pending_writes == [("task", "x", 2)]
        put(saver, "t", {"x": 3}, parent=config)
        other.ask("saver.prune(['t'])")
        assert len(ids(saver.list(make_config()))) == 1
        saver.copy_thread("t", "u")
        assert other.ask("len(ids(saver.list(make_config('u'))))") == 1
        other.ask("saver.delete_thread('t')")
        assert saver.get_tuple(make_config()) is None
        assert [info.thread_id for info in saver.threads()] == ["u"]


def test_a_write_that_another_process_has_stored_is_not_stored_twice(saver, path):
    with peers(1, path) as (other,):
        config = put(saver, "t")
        other.ask("saver.put_writes(config, [('x', 'there')], 'task')", config=config)
        saver.put_writes(config, [("x", "here")], "task")
        assert saver.get_tuple(config).pending_writes == [("task", "x", "there")]


def test_a_child_shares_values_with_a_parent_that_another_process_put(saver, path):
    with peers(1, path) as (other,):
        big = "x" * 50_000
        parent = other.ask("put(saver, 't', {'big': big})", big=big)
        before = os.path.getsize(path)
        put(saver, "t", {"big": big}, parent=parent, new_versions={})
        assert os.path.getsize(path) - before < 2000
        assert (
            other.ask("saver.get_tuple(make_config()).checkpoint['channel_values']['big']") == big
        )


def test_two_stores_of_one_process_on_one_path_exclude_each_other(path):
    with contextlib.closing(LogSaver(path)) as one, contextlib.closing(open_stranger(path)) as two:
        assert one._store is not two._store

        def put_some(saver, name):
            for number in range(100):
                put(saver, name, {"x": number})

        threads = [
            threading.Thread(target=put_some, args=(saver, name))
            for saver, name in ((one, "a"), (two, "b"), (one, "c"), (two, "d"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert state_of(one) == state_of(two)
        assert len(ids(one.list(None))) == 400
    assert verify(path).ok


def test_a_read_never_sees_half_of_what_another_process_puts(saver, path):
    """Large values, written while others read: whole or not there."""
    with peers(2, path, fsync="never") as others:
        for number, other in enumerate(others):
            other.tell(
                "[put(saver, 't', {'x': str(number) * 200_000}) for _ in range(60)] and None",
                number=number,
            )
        while any(other.is_busy() for other in others):
            found = saver.get_tuple(make_config())
            if found is not None:
                text = found.checkpoint["channel_values"]["x"]
                assert text in ("0" * 200_000, "1" * 200_000)
        for other in others:
            other.answer()
        assert len(ids(saver.list(None))) == 120


def test_no_update_is_lost_and_none_is_there_twice(path):
    """Each process chains its checkpoints onto its own last one; all of them are there once."""
    rounds = 60
    with peers(4, path, fsync="never") as others:
        for number, other in enumerate(others):
            other.tell(
                "[id_of(put(saver, 'shared', {'n': i}, ns=name)) for i in range(rounds)]",
                name=f"n{number}",
                rounds=rounds,
            )
        acknowledged = [other.answer() for other in others]
    with LogSaver(path) as saver:
        for number, mine in enumerate(acknowledged):
            assert ids(saver.list(make_config("shared", f"n{number}"))) == mine[::-1]
        assert len(ids(saver.list(None))) == 4 * rounds
    report = verify(path)
    assert report.ok
    assert report.torn_tail is None


def test_writers_that_never_pause_all_make_progress(path):
    """Nobody starves: the slowest of four has a fair part of what the fastest has."""
    with peers(4, path, fsync="never") as others:
        for other in others:
            other.tell("put_for(saver, 2)")
        counts = sorted(other.answer() for other in others)
    print(f"puts of four processes in 2 s: {counts}")
    assert counts[0] >= counts[-1] * 0.05
    with LogSaver(path) as saver:
        assert len(ids(saver.list(None))) == sum(counts)


# -- a writer that dies


def test_a_frame_that_a_killed_writer_left_by_half_is_cut_by_one_of_the_others(saver, path):
    with peers(2, path) as (victim, other):
        victim.tell("append_half_a_frame(saver)")
        victim.wait_for_its_end()
        size = os.path.getsize(path)
        # Who only reads leaves it alone.
        (first,) = ids(saver.list(None))
        assert other.ask("ids(saver.list(None))") == [first]
        assert os.path.getsize(path) == size
        second = other.ask("id_of(put(saver, 't', {'x': 2}))")
        third = id_of(put(saver, "t", {"x": 3}))
        assert ids(saver.list(None)) == other.ask("ids(saver.list(None))")
        assert ids(saver.list(None)) == [third, second, first]
    assert [found.name for found in Path(path).parent.glob("*torn*")] == ["agent.log.torn-1"]
    assert verify(path).torn_tail is None


def test_of_many_who_find_a_torn_tail_at_once_exactly_one_cuts_it(path):
    with LogSaver(path) as saver:
        put(saver, "t", {"x": 1})
    with open(path, "ab") as file:
        file.write(b"half a frame" * 50)
    with peers(6, path, opens=False) as others:
        for other in others:
            other.tell("open_saver()")
        for other in others:
            other.answer()
            assert other.ask("len(ids(saver.list(None)))") == 1
    assert len(list(Path(path).parent.glob("*.torn-*"))) == 1
    assert verify(path).torn_tail is None


# -- waiting for the lock


@pytest.fixture
def holder(path):
    """A process that has the log's lock and does not let go of it."""
    LogSaver(path).close()
    with peers(1, path, opens=False) as (other,):
        other.ask("hold_lock(path)")
        yield other


def test_waiting_for_the_lock_ends_with_an_error_that_names_who_has_it(path, holder):
    with LogSaver(path, lock_timeout=0.2) as saver:
        before = time.monotonic()
        with pytest.raises(LockTimeoutError, match=f"process {holder.pid} has kept") as caught:
            put(saver)
        assert 0.2 <= time.monotonic() - before < 2
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.path == path
        assert ids(saver.list(None)) == []  # who reads does not wait
        holder.ask("release_lock(path)")
        put(saver)


def test_a_coroutine_that_waits_for_the_lock_times_out_too(path, holder):
    with LogSaver(path, lock_timeout=0.2) as saver:
        with pytest.raises(LockTimeoutError, match=str(holder.pid)):
            put(Awaited(saver))
        holder.ask("release_lock(path)")
        put(Awaited(saver))


def test_opening_a_torn_log_whose_lock_is_taken_names_who_has_it(path, holder):
    with open(path, "ab") as file:
        file.write(b"half a frame")
    with pytest.raises(LockTimeoutError, match=f"process {holder.pid} has kept"):
        LogSaver(path, lock_timeout=0.2)


@pytest.mark.parametrize("locked", ["agent.log", "agent.log.logsaver-new"])
def test_a_new_log_that_somebody_else_does_not_finish_names_who_that_is(path, locked):
    Path(path).touch()
    locked_path = str(Path(path).with_name(locked))
    Path(locked_path).touch()
    with peers(1, locked_path, opens=False) as (other,):
        other.ask("hold_lock(path)")
        with pytest.raises(LockTimeoutError, match=f"process {other.pid} has kept"):
            LogSaver(path, lock_timeout=0.2)
        other.ask("release_lock(path)")
        LogSaver(path).close()


def test_a_call_that_waits_goes_on_when_the_lock_is_free(path, holder):
    with LogSaver(path) as saver:
        caller = threading.Thread(target=put, args=(saver,))
        caller.start()
        time.sleep(0.1)
        assert caller.is_alive()
        holder.ask("release_lock(path)")
        caller.join(5)
        assert not caller.is_alive()
        assert len(ids(saver.list(None))) == 1


def test_a_killed_holder_keeps_nobody_waiting(path, holder):
    with LogSaver(path) as saver:
        holder.kill()
        put(saver)


def test_ctrl_c_ends_the_waiting_and_stores_nothing(path, holder):
    with LogSaver(path) as saver:
        interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            put(saver)
        holder.ask("release_lock(path)")
        assert ids(saver.list(None)) == []
        put(saver)
        assert len(ids(saver.list(None))) == 1


async def test_an_event_loop_goes_on_while_a_put_waits_for_the_lock(path, holder):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    async with LogSaver(path) as saver:
        ticking = asyncio.create_task(tick())
        checkpoint = make_checkpoint({"x": 1})
        waiting = asyncio.create_task(saver.aput(make_config(), checkpoint, {}, {"x": 1}))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert ticks > 50
        assert await saver.aget_tuple(make_config()) is None
        holder.ask("release_lock(path)")
        await asyncio.wait_for(waiting, 5)
        ticking.cancel()


async def test_a_put_that_is_cancelled_while_it_waits_stores_nothing(path, holder):
    async with LogSaver(path) as saver:
        waiting = asyncio.create_task(saver.aput(make_config(), make_checkpoint(), {}, {}))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        holder.ask("release_lock(path)")
        assert await saver.aget_tuple(make_config()) is None


def test_opening_one_log_does_not_wait_for_another_whose_lock_is_taken(path, holder, tmp_path):
    with open(path, "ab") as file:
        file.write(b"half a frame")
    opened = []
    slow = threading.Thread(target=lambda: opened.append(LogSaver(path)))
    slow.start()
    time.sleep(0.1)
    before = time.monotonic()
    LogSaver(tmp_path / "other.log").close()
    assert time.monotonic() - before < 1
    assert slow.is_alive()
    holder.ask("release_lock(path)")
    slow.join(10)
    opened[0].close()


# -- reading only


def test_a_reader_needs_no_lock_and_follows_appends_and_replacements(path, holder):
    with LogSaver(path, read_only=True) as reader:
        assert ids(reader.list(None)) == []
        holder.ask("release_lock(path)")
        holder.ask("open_saver()")
        seen = []
        for _ in range(3):
            seen.insert(0, holder.ask("id_of(put(saver))"))
            assert ids(reader.list(None)) == seen
            assert holder.ask("rewrite(saver._store)")
            assert ids(reader.list(None)) == seen
        with pytest.raises(ReadOnlyLogError):
            put(reader)


def test_a_reader_without_write_permission_follows_another_users_log(tmp_path):
    """Also when the log is replaced: the new file lets in whom the old one let in."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for directory in (tmp_path, *tmp_path.parents[:3]):
        directory.chmod(directory.stat().st_mode | 0o011)
    path = str(tmp_path / "agent.log")
    with LogSaver(path) as saver:
        os.chmod(path, 0o640)
        os.chown(path, 0, NOBODY)
        first = put(saver, "t", {"x": 1})
        with peers(1, path, uid=NOBODY, read_only=True) as (reader,):
            assert reader.ask("ids(saver.list(None))") == [id_of(first)]
            with pytest.raises(PeerError, match="ReadOnlyLogError"):
                reader.ask("put(saver)")
            with pytest.raises(PeerError, match=r"LogOpenError.*no permission.*read_only=True"):
                reader.ask("LogSaver(path)")
            second = put(saver, "t", {"x": 2})
            assert reader.ask("ids(saver.list(None))") == [id_of(second), id_of(first)]
            assert rewrite(saver._store)
            third = put(saver, "t", {"x": 3})
            assert reader.ask("ids(saver.list(None))")[0] == id_of(third)
        status = os.stat(path)
        assert (status.st_mode & 0o777, status.st_gid) == (0o640, NOBODY)


def test_a_reader_on_a_read_only_mount_follows_what_is_written_elsewhere(tmp_path):
    """The same directory, mounted a second time: only to be read."""
    if (reason := why_not_here(tmp_path)) is not None:
        pytest.skip(reason)
    (tmp_path / "logs").mkdir()
    mounts = Mounts(tmp_path)
    with contextlib.closing(mounts):
        place = mounts.read_only_view(tmp_path / "logs")
        with (
            LogSaver(tmp_path / "logs" / "agent.log") as saver,
            LogSaver(place / "agent.log", read_only=True) as reader,
        ):
            first = put(saver, "t", {"x": 1})
            assert ids(reader.list(None)) == [id_of(first)]
            assert rewrite(saver._store)
            second = put(saver, "t", {"x": 2})
            assert ids(reader.list(None)) == [id_of(second), id_of(first)]
            with pytest.raises(LogOpenError):
                LogSaver(place / "agent.log")


class WatchingDisk(Disk):
    """The real disk; says what was asked of it."""

    def __init__(self):
        self.asked = []

    def flock(self, fd, operation):
        self.asked.append("flock")
        Disk.flock(fd, operation)

    def pwrite(self, fd, data, at):
        self.asked.append("pwrite")
        return Disk.pwrite(fd, data, at)

    def open(self, path, flags):
        if flags & (os.O_RDWR | os.O_CREAT):
            self.asked.append("open to write")
        return super().open(path, flags)


def test_a_reader_asks_for_nothing_that_could_change_a_file(path):
    with LogSaver(path) as saver:
        put(saver)
        disk = WatchingDisk()
        reader = Store(path, read_only=True, disk=disk)
        for _ in range(2):
            put(saver)
            rewrite(saver._store)
            with reader.lock:
                reader.view()
        reader.flush()
        reader.close(sync=True)
    assert disk.asked == []


# -- a file that is not what it was


def pull_the_rug(path, how):
    if how == "deleted":
        os.unlink(path)
    elif how == "moved":
        os.rename(path, path + ".moved")
    elif how == "cut":
        os.truncate(path, os.path.getsize(path) - 10)
    elif how == "emptied":
        os.truncate(path, 0)
    elif how == "replaced by another log":
        with LogSaver(path + ".other") as other:
            put(other)
        os.replace(path + ".other", path)
    elif how == "replaced by something else":
        Path(path + ".other").write_text("not a log at all")
        os.replace(path + ".other", path)
    elif how == "overwritten by another log":
        with LogSaver(path + ".other") as other:
            put(other, values={"x": "y" * 10_000})
        Path(path).write_bytes(Path(path + ".other").read_bytes())


RUGS = [
    "deleted",
    "moved",
    "cut",
    "emptied",
    "replaced by another log",
    "replaced by something else",
    "overwritten by another log",
]


@pytest.mark.parametrize("fsync", ["auto", "never"])
@pytest.mark.parametrize("how", RUGS)
def test_a_log_that_is_lost_under_a_saver_is_an_error_at_the_next_write(path, how, fsync):
    with contextlib.suppress(LogReplacedError), LogSaver(path, fsync=fsync) as saver:
        put(saver, values={"x": 1})
        pull_the_rug(path, how)
        content = Path(path).read_bytes() if os.path.exists(path) else None
        time.sleep(2 * NAME_CHECK_INTERVAL)
        for _ in range(2):
            with pytest.raises(LogReplacedError, match="while this saver had it open") as caught:
                put(saver, values={"x": 2})
            assert caught.value.path == path
            advice = "put the file back, or open the new one|restore the file from a backup"
            assert re.search(advice, str(caught.value))
        assert content == (Path(path).read_bytes() if os.path.exists(path) else None)
        assert not list(Path(path).parent.glob("*.torn-*"))


@pytest.mark.parametrize("how", RUGS)
def test_the_write_right_after_that_is_not_acknowledged_either(path, how):
    """Without a pause: whoever waits for stable storage looks at the name again."""
    with contextlib.suppress(LogReplacedError), LogSaver(path) as saver:
        put(saver, values={"x": 1})
        pull_the_rug(path, how)
        with pytest.raises(LogReplacedError):
            put(saver, values={"x": 2})


def test_a_path_whose_log_was_deleted_can_be_opened_anew(path):
    with contextlib.suppress(LogReplacedError), LogSaver(path) as old:
        put(old)
        os.unlink(path)
        with LogSaver(path) as new:
            put(new, "new")
            assert [info.thread_id for info in new.threads()] == ["new"]
        with pytest.raises(LogReplacedError):
            put(old)


# -- names and places


def test_a_symlink_leads_to_the_log_also_after_it_is_replaced(path, tmp_path):
    link = tmp_path / "elsewhere" / "link.log"
    link.parent.mkdir()
    link.symlink_to(path)
    with LogSaver(path) as saver, peers(1, str(link)) as (other,):
        put(saver)
        assert other.ask("rewrite(saver._store)")
        put(saver)
        other.ask("put(saver)")
        assert len(ids(saver.list(None))) == 3
    assert link.is_symlink()
    assert os.listdir(link.parent) == ["link.log"]
    assert not Path(path).is_symlink()


def test_a_reader_and_a_writer_of_one_process_share_the_file(path):
    with LogSaver(path) as writer, LogSaver(path, read_only=True) as reader:
        put(writer)
        assert len(ids(reader.list(None))) == 1
        rewrite(writer._store)
        put(writer)
        assert len(ids(reader.list(None))) == 2


class MountTable:
    """A `/proc/self/mountinfo` that says of every file system that it is of this kind."""

    def __init__(self, kind):
        self._kind = kind

    def __call__(self, name, **options):
        assert name == "/proc/self/mountinfo"
        device = os.stat(os.curdir).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        return contextlib.closing(
            _Lines([f"36 35 {number} / / rw,noatime shared:1 - {self._kind} server:/home rw\n"])
        )


class _Lines(list):
    def close(self):
        return None


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_network_file_system_is_warned_about(path, kind, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("logsaver.disk.open", MountTable(kind), raising=False)
    LogSaver(path).close()
    (warning,) = caplog.records
    assert kind in warning.getMessage()
    assert path in warning.getMessage()
    assert "local disk" in warning.getMessage()


def test_a_local_file_system_is_not_warned_about(path, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("logsaver.disk.open", MountTable("ext4"), raising=False)
    LogSaver(path).close()
    assert caplog.records == []


# -- files that change under a saver


def overwrite(path: str, content: bytes) -> None:
    """As `cp` does: the file stays the same, what is in it does not."""
    with open(path, "r+b") as file:
        file.write(content)
        file.truncate()


def test_a_backup_restored_in_place_is_noticed_before_anything_is_cut(path, tmp_path):
    """An idle writer took what another process had put after the restore for a torn tail."""
    idle = LogSaver(path)
    put(idle, "old")
    backup = Path(path).read_bytes()
    put(idle, "lost with the restore", values={"x": "long " * 50})
    overwrite(path, backup)
    with peers(1, path) as (other,):
        other.ask("put(saver, 'other', values={'x': 'y' * 2000})")
        with pytest.raises(LogReplacedError, match="overwritten"):
            put(idle, "mine")
    with contextlib.suppress(LogReplacedError):
        idle.close()
    with LogSaver(path) as again:
        assert {thread.thread_id for thread in again.threads()} == {"old", "other"}


def test_another_log_of_the_same_size_in_its_place_is_noticed(path, tmp_path):
    other = str(tmp_path / "other.log")
    for name in (path, other):
        with LogSaver(name) as saver:
            put(saver, values={"x": 1})
    saver = LogSaver(path)
    put(saver, checkpoint_id="mine")
    with LogSaver(other) as same_size:
        put(same_size, checkpoint_id="mine")
    content = Path(other).read_bytes()
    overwrite(path, content.ljust(os.path.getsize(path), b"\0")[: os.path.getsize(path)])
    time.sleep(2 * NAME_CHECK_INTERVAL)
    with pytest.raises(LogReplacedError):
        put(saver)
    with contextlib.suppress(LogReplacedError):
        saver.close()


def test_a_saver_opened_after_a_cut_does_not_get_what_others_still_remember(path):
    first = LogSaver(path)
    put(first)
    os.truncate(path, 64)
    with pytest.raises(LogReplacedError, match="was cut"):
        put(first, "after the cut")
    with LogSaver(path) as second:
        assert list(second.threads()) == []
        put(second)
    with contextlib.suppress(LogReplacedError):
        first.close()


def test_closing_a_saver_leaves_another_of_the_same_moved_file_open(path):
    one, two = LogSaver(path), LogSaver(path)
    config = put(one)
    os.rename(path, f"{path}.moved")
    three = LogSaver(path)
    one.close()
    assert two.get_tuple(config) is not None
    two.close()
    put(three)
    three.close()


@pytest.mark.parametrize("name", ["agent.log.new", "agent.log.torn-1", "agent.log~"])
def test_files_beside_a_log_are_left_alone(path, name):
    neighbour = Path(path).with_name(name)
    neighbour.write_bytes(b"precious")
    with LogSaver(path) as saver:
        put(saver)
        assert rewrite(saver._store)
    assert neighbour.read_bytes() == b"precious"


def test_a_link_where_the_new_file_goes_is_not_followed(path):
    target = Path(path).with_name("precious")
    target.write_bytes(b"data")
    os.symlink(target, f"{path}.logsaver-new")
    with pytest.raises(LogOpenError):
        LogSaver(path)
    assert target.read_bytes() == b"data"


def test_a_directory_that_became_a_file_is_a_log_that_is_gone(tmp_path):
    directory = tmp_path / "logs"
    directory.mkdir()
    saver = LogSaver(directory / "agent.log")
    put(saver)
    directory.rename(tmp_path / "moved")
    directory.touch()
    time.sleep(2 * NAME_CHECK_INTERVAL)
    with pytest.raises(LogReplacedError):
        put(saver)
    with contextlib.suppress(LogReplacedError):
        saver.close()


def test_a_flush_makes_permanent_what_others_appended_too():
    disk = MemoryDisk()
    saver, other = open_saver(disk), open_saver(disk, fsync="never")
    saver.flush()
    put(other)
    disk.calls.clear()
    saver.flush()
    assert disk.named("sync")
    assert saver.stats().synced_bytes == len(disk.content())
