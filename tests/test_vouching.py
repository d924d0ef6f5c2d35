"""A clean close says in the log that all of it is safe, so that damage to it is noticed."""

import asyncio
import errno

import pytest
from crashing import Call, check, check_every_crash, run
from disks import PATH, MemoryDisk, fail, open_saver, out_of_space
from logs import checkpoint, flipped
from support import VOUCH, put, run_python

from logsaver import CorruptLogError, LogSaver, repair, verify
from logsaver.disk import LOCK, UNLOCK, WRITE
from logsaver.rewriting import rewrite
from logsaver.store import Store


def close(path):
    saver = LogSaver(path)
    put(saver, values={"x": 1})
    saver.close()


def leave_a_context(path):
    with LogSaver(path) as saver:
        put(saver, values={"x": 1})


def leave_an_async_context(path):
    async def main():
        async with LogSaver(path) as saver:
            await saver.aput(
                {"configurable": {"thread_id": "t", "checkpoint_ns": ""}},
                {"v": 4, "id": "c1", "ts": "", "channel_values": {}, "channel_versions": {}},
                {},
                {},
            )

    asyncio.run(main())


def end_the_interpreter(path):
    run_python("import sys; sys.path.insert(0, 'tests')\n" + PUT_WITHOUT_CLOSE, path)


PUT_WITHOUT_CLOSE = """
from logsaver import LogSaver
from support import put
saver = LogSaver(sys.argv[1])
put(saver, values={"x": 1})
"""


@pytest.mark.parametrize(
    "end", [close, leave_a_context, leave_an_async_context, end_the_interpreter]
)
def test_a_flipped_bit_in_any_byte_of_a_cleanly_closed_log_is_noticed(path, end):
    end(path)
    with open(path, "rb") as file:
        data = file.read()
    assert data[-VOUCH + 4] == 7
    for at in range(64, len(data) - VOUCH):
        with open(path, "wb") as file:
            file.write(flipped(data, at * 8 + at % 8))
        assert not verify(path).ok, at
        with pytest.raises(CorruptLogError):
            LogSaver(path)


def test_a_flipped_bit_in_the_frame_that_vouches_loses_nothing_else(path):
    close(path)
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        file.write(flipped(data, len(data) * 8 - 1))
    with LogSaver(path) as saver:
        assert len(list(saver.list(None))) == 1


def test_opening_and_closing_a_log_changes_nothing():
    disk = MemoryDisk()
    with open_saver(disk) as saver:
        put(saver)
    before = disk.content()
    for _ in range(3):
        open_saver(disk).close()
        open_saver(disk, read_only=True).close()
    assert disk.content() == before


def test_processes_that_put_once_each_do_not_write_old_parts_again():
    disk = MemoryDisk()
    with open_saver(disk) as saver:
        put(saver, values={"x": 0})
    for step in range(100):
        disk.calls.clear()
        before = len(disk.content())
        with open_saver(disk) as saver:
            assert saver.stats().synced_bytes == before - VOUCH
            put(saver, values={"x": step})
            frame = len(disk.content()) - before
        assert len(disk.content()) - before == frame + VOUCH
        # Beside its own frame and the one that vouches: the last one that vouched.
        assert sum(len(call.data) for call in disk.named("write")) == frame + 2 * VOUCH
        assert not disk.named("sync-directory")


def test_without_a_promise_nobody_vouches():
    disk = MemoryDisk()
    saver = open_saver(disk, fsync="never")
    put(saver)
    before = disk.content()
    saver.close()
    assert disk.content() == before


def test_a_close_neither_waits_nor_fails_for_a_lock_that_is_taken():
    disk = MemoryDisk()
    saver = open_saver(disk)
    put(saver)
    before = disk.content()
    other = disk.open(PATH, WRITE)
    disk.flock(other, LOCK)
    saver.close()
    assert disk.content() == before
    disk.flock(other, UNLOCK)


def test_a_close_on_a_full_disk_leaves_the_log_as_it_was():
    disk = MemoryDisk()
    saver = open_saver(disk)
    put(saver)
    before = disk.content()
    disk.on = fail("write", OSError(errno.ENOSPC, "full"))
    saver.close()
    assert disk.content() == before


@pytest.mark.parametrize("taken", [1, 20, VOUCH - 1])
def test_a_part_of_the_frame_that_vouches_is_not_left_behind(taken):
    """A disk that is full by then may take a part of it."""
    disk = MemoryDisk()
    saver = open_saver(disk)
    put(saver)
    before = disk.content()
    disk.on = out_of_space(errno.ENOSPC, taken)
    saver.close()
    assert disk.named("write")[-1].at == len(before) + taken  # it was tried
    assert disk.content() == before


def test_what_a_close_could_not_sync_is_not_vouched_for():
    """Ctrl-C in its sync poisons nothing, so this alone keeps it from saying what is not so."""
    disk = MemoryDisk()
    store = Store(PATH, disk=disk)
    store.append(checkpoint())
    before = disk.content()
    disk.on = fail("sync", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        store.close(sync=True)
    assert disk.content() == before


@pytest.mark.parametrize("last", [False, True])
def test_two_who_close_at_the_very_same_time_leave_a_whole_log(last):
    """One closes at each step that the other takes to close."""
    at = 0
    while True:
        disk = MemoryDisk()
        savers = [open_saver(disk), open_saver(disk)]
        for name, saver in zip("ab", savers, strict=True):
            put(saver, name)
        before = disk.content()
        closing, other = savers[last], savers[not last]
        steps = countdown(at, other.close)
        disk.on = lambda _, steps=steps: next(steps, None)
        closing.close()
        disk.on = lambda _: None
        is_over = next(steps, "over") is None
        other.close()
        now = disk.content()
        assert now[: len(before)] == before
        # Whoever appended last may find the other one's lock, and then nobody vouches.
        assert len(now) - len(before) in (0, VOUCH)
        with open_saver(disk) as again:
            assert {found.thread_id for found in again.threads()} == {"a", "b"}
        assert not [path for path in disk.files if path != PATH]
        if is_over:
            break
        at += 1
    assert at >= 2


def countdown(steps, act):
    """Acts at a step of the disk, and is over then."""
    for _ in range(steps):
        yield None
    act()


def test_a_poisoned_log_is_not_vouched_for():
    disk = MemoryDisk()
    saver = open_saver(disk)
    put(saver)
    before = disk.content()
    saver._store.log.committer.poison(OSError(errno.EIO, "gone"))
    with pytest.raises(Exception, match="stable storage failed"):
        saver.close()
    assert disk.content() == before


def test_whoever_appended_last_vouches_for_all():
    disk = MemoryDisk()
    first, second = open_saver(disk), open_saver(disk)
    put(first, "a")
    put(second, "b")
    before = len(disk.content())
    first.close()
    assert len(disk.content()) == before
    second.close()
    assert len(disk.content()) == before + VOUCH
    store = Store(PATH, disk=disk)
    assert store.log.committer.synced == before
    assert store.log.committer.sync.name_is_safe


def test_a_rewritten_log_is_vouched_for_and_so_is_its_name():
    disk = MemoryDisk()
    with open_saver(disk) as saver:
        put(saver)
    store = Store(PATH, disk=disk)
    assert rewrite(store)
    size = store.size()
    store.close(sync=True)
    again = Store(PATH, disk=disk)
    assert again.log.committer.synced == size
    assert again.log.committer.sync.name_is_safe


def test_a_repaired_log_has_one_frame_that_vouches_at_its_end(path, tmp_path):
    close(path)
    close(path)
    out = str(tmp_path / "out.log")
    assert repair(path, out).records == 2
    assert verify(path).frames == 4
    assert verify(out).frames == 3
    assert verify(out).safe_upto == verify(out).bytes - VOUCH


def test_a_power_loss_around_the_frame_that_vouches_loses_no_promise():
    """Of a process that goes on with a cleanly closed log, and closes it again."""

    def call(number):
        return Call(
            "put", lambda saver: put(saver, values={"x": number}, checkpoint_id=f"c{number}")
        )

    closed = run([call(1)]).moments[-1].picture
    for files in closed.every_crash():
        check(files, run([call(1)]).states, acknowledged=1, issued=1)
        assert check_every_crash(run([call(2)], files)) > 1


def test_a_kill_before_the_close_leaves_a_log_without_the_frame(path):
    code = PUT_WITHOUT_CLOSE + "import os; os.kill(os.getpid(), 9)\n"
    done = run_python("import sys; sys.path.insert(0, 'tests')\n" + code, path, check=False)
    assert done.returncode == -9
    report = verify(path)
    assert (report.ok, report.frames, report.torn_tail) == (True, 1, None)
    with LogSaver(path) as saver:
        assert len(list(saver.list(None))) == 1
