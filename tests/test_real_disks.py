"""A real ext4 that stops, fills up, fails to sync or is read-only.

Everything is mounted from files below the test's own directory, and unmounted whatever happens.
"""

from __future__ import annotations

import errno
import io
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from crashing import state_of
from kill_worker import MODES, OPERATIONS, Step, put_step, steps_of
from killing import Server, Worker, check_calls, settle, state_after, wait
from mounting import (
    FLUSH_ALL,
    FLUSH_JOURNAL,
    FLUSH_NOTHING,
    Mounts,
    left_behind,
    shut_down,
    why_not_here,
)
from support import run_python

from logsaver import LogOpenError, LogSaver, LogSaverError, LogWriteError, PoisonedLogError, verify

DEEP_SHUTDOWNS = int(os.environ.get("LOGSAVER_SHUTDOWNS", "100"))


@pytest.fixture(scope="module")
def can_mount(tmp_path_factory):
    reason = why_not_here(tmp_path_factory.mktemp("probe"))
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def mounts(can_mount, tmp_path):
    made = Mounts(tmp_path)
    yield made
    made.close()
    # A saver that a failed test left open keeps its loop device, until pytest ends.
    assert left_behind(tmp_path) == []


@pytest.fixture(scope="module")
def server():
    started = Server()
    yield started
    started.close()


# -- a file system that stops

FLAGS = {"flush-all": FLUSH_ALL, "flush-journal": FLUSH_JOURNAL, "flush-nothing": FLUSH_NOTHING}


def shutdown_rounds(
    server: Server, mounts: Mounts, options: str, seed: int, rounds: list[tuple[str, int]]
) -> str:
    """Stop a file system under a working process, mount it again, judge; several times over."""
    image = mounts.new_ext4()
    randomness = random.Random(seed)
    promised = late = lost_late = unpromised = torn = 0
    for number, (mode, flag) in enumerate(rounds):
        place = mounts.mount(image, options)
        path = place / f"agent-{number}.log"
        steps_seed = randomness.randrange(10**6)
        worker = server.start("calls", path=str(path), seed=steps_seed, focus=None, mode=mode)
        worker.read_until(randomness.choice([1, 5, 30, 60]), "done")
        wait(randomness.choice([0, 0.0002, 0.002, 0.02]) * randomness.random())
        moment = time.monotonic()
        shut_down(place, flag)
        worker.listen_to_the_end()
        assert worker.code == 1, worker.messages  # no call pretended to work
        mounts.unmount(place)
        place = mounts.mount(image, options)
        torn += path.exists() and path.stat().st_size > 0 and verify(path).torn_tail is not None
        durable = last_durable(worker, mode, moment)
        count = check_calls(
            path,
            steps_of(steps_seed, None, mode),
            acknowledged=durable,
            issued=len(worker.said("begin")),
        )
        promised += durable
        lost = max(0, worker.acknowledged() - count)
        if mode == "sync":
            late += worker.acknowledged() - durable
            lost_late += lost
        else:
            unpromised += lost
        for left in place.glob(f"{path.name}*"):
            left.unlink()
        mounts.unmount(place)
    return (
        f"{len(rounds)} shutdowns, {torn} torn tails; {promised} calls with a promise, all there; "
        f"of {late} in sync mode that returned after it at most {lost_late} are not there; "
        f"in the other modes {unpromised} without a promise are not"
    )


def last_durable(worker: Worker, mode: str, moment: float) -> int:
    """The last call that had returned by then with the promise to be on stable storage.

    With real power no call returns after it failed. Here one does, and cannot be believed: of a
    sync that is under way when an ext4 is shut down, the kernel says that it succeeded.
    """
    if mode == "never":
        return 0
    in_background = {"put", "big-put", "put_writes"} if mode == "async" else set()
    return worker.acknowledged(before=moment, names=set(OPERATIONS) - in_background)


@pytest.mark.parametrize("flag", FLAGS.values(), ids=FLAGS)
@pytest.mark.parametrize("options", ["data=ordered", "data=writeback"])
def test_what_was_synced_survives_the_end_of_a_file_system(server, mounts, options, flag):
    rounds = [("sync", flag), ("async", flag), ("sync", flag), ("never", flag)]
    print(shutdown_rounds(server, mounts, options, seed=flag, rounds=rounds))


@pytest.mark.deep
@pytest.mark.timeout(0)
@pytest.mark.parametrize("options", ["data=ordered", "data=writeback"])
def test_what_was_synced_survives_many_ends_of_a_file_system(server, mounts, options):
    randomness = random.Random(options)
    rounds = [
        (randomness.choice(["sync", *MODES]), randomness.choice([*FLAGS.values()]))
        for _ in range(DEEP_SHUTDOWNS)
    ]
    print(shutdown_rounds(server, mounts, options, seed=7, rounds=rounds))


PLAIN_SYNCS = """
import os, sys, time

fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.fsync(fd)
for number in range(100_000):
    os.pwrite(fd, b"x" * 600, number * 600)
    os.fdatasync(fd)
    print(time.monotonic(), flush=True)
"""


@pytest.mark.deep
@pytest.mark.timeout(0)
def test_plain_fdatasync_keeps_what_returned_before_a_shutdown(mounts):
    """The control for `last_durable`: what the kernel promises when no logsaver is there."""
    image = mounts.new_ext4()
    randomness = random.Random(2)
    before = after = lost_after = 0
    for number in range(DEEP_SHUTDOWNS):
        place = mounts.mount(image)
        command = [sys.executable, "-c", PLAIN_SYNCS, str(place / f"file-{number}")]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        first = child.stdout.readline()
        wait(randomness.uniform(0, 0.05))
        moment = time.monotonic()
        shut_down(place, randomness.choice([*FLAGS.values()]))
        returned = [float(line) for line in [first, *child.stdout]]
        child.wait()
        child.stdout.close()
        mounts.unmount(place)
        place = mounts.mount(image)
        kept = (place / f"file-{number}").read_bytes().count(b"x" * 600)
        promised = sum(at < moment for at in returned)
        assert kept >= promised
        before += promised
        after += len(returned) - promised
        lost_after += max(0, len(returned) - kept)
        mounts.unmount(place)
    print(f"{before} syncs returned before, all kept; of {after} after, {lost_after} not kept")


# -- a disk that is full


class Acknowledged:
    """A saver, and the puts that it acknowledged."""

    def __init__(self, path: Path, expected: Path) -> None:
        self.saver = LogSaver(path)
        self.steps: list[Step] = []
        self.refused: list[Step] = []
        self._expected = expected
        self._number = 0

    def put(self, size: int) -> None:
        self._number += 1
        parent = None if not self.steps else int(self.steps[-1].args[1]["id"])
        step = put_step("t", self._number, parent, "sync", size)
        try:
            step.do(self.saver)
        except BaseException:
            self.refused.append(step)
            raise
        self.steps.append(step)

    def put_often(self, size: int) -> None:
        for _ in range(10_000):
            self.put(size)

    def check(self) -> None:
        """The saver has exactly the acknowledged puts."""
        assert state_of(self.saver) == state_after(self.steps, self._expected)

    def reopen(self) -> None:
        path = self.saver.path
        self.saver.close()
        assert verify(path).ok
        self.saver = LogSaver(path)


def fill(path: Path) -> None:
    """Take all the space that is left."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1 << 9, 1):
            with pytest.raises(OSError, match="No space left"):
                write_on(file, bytes(size))
        os.fsync(file.fileno())


def write_on(file: io.RawIOBase, data: bytes) -> None:
    while file.write(data):
        """An error ends it."""


@pytest.fixture(params=["ext4", "tmpfs"])
def small_disk(request, mounts):
    if request.param == "tmpfs":
        return mounts.tmpfs(2 << 20)
    return mounts.mount(mounts.new_ext4(size=4 << 20))


def test_a_put_on_a_full_disk_fails_whole_and_works_once_there_is_room(small_disk, tmp_path):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(400_000))
    log = Acknowledged(small_disk / "agent.log", tmp_path / "expected.log")
    for size in (90_000, 9_000, 900):
        with pytest.raises(LogWriteError) as caught:
            log.put_often(size)
        assert caught.value.errno == errno.ENOSPC
        log.check()
    assert len(log.steps) > 5
    log.reopen()  # takes no space
    log.check()
    with pytest.raises(LogWriteError):
        log.put(90_000)
    log.check()
    ballast.unlink()
    for size in (90_000, 60, 90_000):
        log.put(size)
    log.check()
    log.reopen()
    log.check()
    log.saver.close()
    assert verify(small_disk / "agent.log").torn_tail is None


def test_puts_of_many_threads_on_a_full_disk_fail_or_are_there(small_disk, tmp_path):
    saver = LogSaver(small_disk / "agent.log")
    done: dict[int, list] = {lane: [] for lane in range(4)}
    failed: list[BaseException] = []

    def run(lane: int) -> None:
        refused = 0
        for number in range(1, 500):
            step = put_step(f"lane-{lane}", number, None, "sync", size=30_000)
            try:
                step.do(saver)
            except LogSaverError as error:
                failed.append(error)
                refused += 1
                if refused == 5:
                    return
            else:
                done[lane].append(step)

    threads = [threading.Thread(target=run, args=(lane,)) for lane in done]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {type(error) for error in failed} == {LogWriteError}
    steps = [step for of_lane in done.values() for step in of_lane]
    expected = state_after(steps, tmp_path / "expected.log")
    assert state_of(saver) == expected
    saver.close()
    with LogSaver(small_disk / "agent.log") as saver:
        assert state_of(saver) == expected


def test_a_new_log_on_a_full_disk_cannot_be_made_until_there_is_room(small_disk):
    fill(small_disk / "ballast")
    path = small_disk / "agent.log"
    with pytest.raises(LogOpenError) as caught:
        LogSaver(path)
    assert caught.value.errno == errno.ENOSPC
    assert not list(small_disk.glob("agent.log.logsaver-new*"))
    (small_disk / "ballast").unlink()
    with LogSaver(path) as saver:
        put_step("t", 1, None, "sync").do(saver)
    with LogSaver(path) as saver:
        assert len(list(saver.list(None))) == 1


@pytest.fixture
def torn_log_on_a_full_disk(small_disk, tmp_path):
    path = small_disk / "agent.log"
    log = Acknowledged(path, tmp_path / "expected.log")
    log.put(60)
    log.put(60)
    log.saver.close()
    with path.open("ab") as file:
        file.write(random.Random(1).randbytes(100_000))
    fill(small_disk / "ballast")
    log.saver = LogSaver(path)
    yield log
    log.saver.close()


def test_a_torn_log_on_a_full_disk_is_recovered(torn_log_on_a_full_disk):
    """There is no room to set the torn tail aside. That is no reason not to open the log."""
    log = torn_log_on_a_full_disk
    log.check()
    log.put(60)  # there is room where the tail was
    log.reopen()
    log.check()


def test_a_part_of_a_torn_tail_is_not_set_aside(torn_log_on_a_full_disk, small_disk):
    """It would look like all of it, and take the last of the space."""
    assert torn_log_on_a_full_disk.steps
    assert not list(small_disk.glob("agent.log.torn*"))


def test_a_file_that_reaches_its_size_limit_fails_like_a_full_disk(tmp_path):
    """RLIMIT_FSIZE, the limit of `ulimit -f`. Python ignores the signal that comes with it."""
    pytest.importorskip("resource")
    path = tmp_path / "agent.log"
    code = """
        import errno, resource, sys
        from logsaver import LogSaver, LogWriteError
        from support import put

        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        saver = LogSaver(sys.argv[1])
        stored = 0
        for size in (9_000, 900, 90):
            try:
                while True:
                    put(saver, values={"text": "x" * size})
                    stored += 1
            except LogWriteError as error:
                assert error.errno == errno.EFBIG, error
            assert len(list(saver.list(None))) == stored
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        put(saver, values={"text": "x" * 9_000})
        print(stored + 1)
    """
    done = run_python(code, str(path), PYTHONPATH=str(Path(__file__).parent))
    assert done.stderr == ""
    assert verify(path).ok
    with LogSaver(path) as saver:
        assert len(list(saver.list(None))) == int(done.stdout) > 10


# -- a disk whose syncs fail


class FailingDisk:
    """A file system in a sparse file, and below it a disk without room: write-back fails."""

    def __init__(self, mounts: Mounts, *make: str, options: str = "") -> None:
        self._mounts = mounts
        self._options = options
        self._below = mounts.tmpfs(100 << 20)
        image = self._below / "disk.img"
        self._image = mounts.new_ext4("-b", "4096", *make, image=image)
        self.place = mounts.mount(self._image, options)
        # A loop device takes a write that went through by half for a whole one. Page by page,
        # there is no half.
        device = mounts.loop_device_of(self.place)
        Path(f"/sys/block/{device}/queue/max_sectors_kb").write_text("4")

    @property
    def log(self) -> Path:
        return self.place / "agent.log"

    def use_whole_journal(self) -> None:
        """Let the journal have its room, so that only data fails and the file system goes on."""
        for _ in range(2000):
            with (self.place / "other").open("wb") as file:
                file.write(b"x")
                os.fsync(file.fileno())

    def fail(self) -> None:
        fill(self._below / "ballast")

    def heal(self) -> None:
        (self._below / "ballast").unlink()

    def mount_again(self) -> None:
        self._mounts.unmount(self.place)
        self.place = self._mounts.mount(self._image, self._options)


@pytest.fixture(params=["aborts", "goes-on"])
def failing_disk(request, mounts):
    """One that turns read-only at the failure, and one that goes on as if nothing had happened."""
    make = () if request.param == "aborts" else ("-O", "^has_journal")
    return FailingDisk(mounts, *make)


def put_until_the_sync_fails(log: Acknowledged, disk: FailingDisk) -> BaseException:
    for _ in range(20):
        log.put(7000)
    disk.fail()
    for _ in range(5000):
        try:
            log.put(7000)
        except (LogSaverError, OSError) as error:
            return error
    raise AssertionError("no sync failed")


def test_a_failed_sync_poisons_the_log_until_it_is_opened_again(failing_disk, tmp_path):
    log = Acknowledged(failing_disk.log, tmp_path / "expected.log")
    error = put_until_the_sync_fails(log, failing_disk)
    assert isinstance(error, PoisonedLogError), repr(error)
    count = len(log.steps)
    for _ in range(3):
        with pytest.raises(PoisonedLogError):
            log.put(60)
    with pytest.raises(PoisonedLogError):
        log.saver.flush()
    with pytest.raises(PoisonedLogError):
        log.saver.delete_thread("t")
    assert len(list(log.saver.list(None))) >= count  # what can be read can be read
    with pytest.raises(PoisonedLogError):
        log.saver.close()  # what it would sync is not safe, and it says so
    failing_disk.heal()
    failing_disk.mount_again()
    # Of the put whose sync failed nobody knows. Those after it were refused.
    steps = [*log.steps, log.refused[0]]
    check_calls(failing_disk.log, steps, acknowledged=count)
    print(f"{count} puts were acknowledged before the sync failed; all are there")


def test_a_failed_sync_fails_every_caller_that_waits(failing_disk):
    """And each of them has all that it was promised, after the reopening."""
    saver = LogSaver(failing_disk.log)
    done = dict.fromkeys(range(8), 0)
    failed: dict[int, BaseException] = {}

    def run(lane: int) -> None:
        for number in range(1, 5000):
            try:
                put_step(f"lane-{lane}", number, None, "sync", size=2000).do(saver)
            except (LogSaverError, OSError) as error:
                failed[lane] = error
                return
            done[lane] = number

    threads = [threading.Thread(target=run, args=(lane,)) for lane in done]
    for thread in threads:
        thread.start()
    wait(0.05)
    failing_disk.fail()
    for thread in threads:
        thread.join(60)
    assert failed.keys() == done.keys()
    assert PoisonedLogError in {type(error) for error in failed.values()}
    with pytest.raises(PoisonedLogError):
        saver.close()
    failing_disk.heal()
    failing_disk.mount_again()
    settle(failing_disk.log)
    with LogSaver(failing_disk.log) as saver:
        for lane, count in done.items():
            found = list(saver.list({"configurable": {"thread_id": f"lane-{lane}"}}))
            assert count <= len(found) <= count + 1
    print(f"{sum(done.values())} puts of {len(done)} threads were acknowledged; all are there")


@pytest.mark.parametrize("options", ["dioread_nolock", "nodioread_nolock"])
def test_what_a_log_shows_after_a_failed_sync_is_made_permanent_by_the_next_put(
    mounts, tmp_path, options
):
    """The file system goes on after the failure, and calls the pages clean.

    They read back fine, and the next sync reports success without having written them. Once they
    are evicted they are gone, and a put that was acknowledged behind them is gone with them. So
    what a log shows that was opened again must be on the disk before anything new is promised.

    With `dioread_nolock`, ext4's default, it is not enough to write the same bytes again over what
    is cached: the new blocks stay marked as unwritten, and read as zeros later.
    """
    disk = FailingDisk(mounts, options=options)
    disk.use_whole_journal()
    log = Acknowledged(disk.log, tmp_path / "expected.log")
    put_until_the_sync_fails(log, disk)
    with pytest.raises(PoisonedLogError):
        log.saver.close()
    disk.heal()
    with LogSaver(disk.log) as saver:
        shown = state_of(saver)
        assert len(shown) >= len(log.steps)
        put_step("new", 1, None, "sync").do(saver)
        expected = state_of(saver)
        assert len(expected) == len(shown) + 1
    disk.mount_again()  # the page cache is gone
    assert settle(disk.log) == expected


# -- a disk that cannot be written


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_a_log_on_a_read_only_mount_can_be_read(mounts, torn):
    image = mounts.new_ext4()
    place = mounts.mount(image)
    path = place / "agent.log"
    with LogSaver(path) as saver:
        for number in (1, 2, 3):
            put_step("t", number, number - 1 or None, "sync").do(saver)
        expected = state_of(saver)
    if torn:
        with path.open("ab") as file:
            file.write(b"half a frame")
    content = path.read_bytes()
    mounts.unmount(place)
    place = mounts.mount(image, "ro")
    path = place / "agent.log"
    names = sorted(os.listdir(place))
    with pytest.raises(LogOpenError) as caught:
        LogSaver(path)
    assert caught.value.errno == errno.EROFS
    with pytest.raises(LogOpenError) as caught:
        LogSaver(place / "new.log")
    assert caught.value.errno == errno.EROFS
    with LogSaver(path, read_only=True) as saver:
        assert state_of(saver) == expected
    assert verify(path).ok
    assert path.read_bytes() == content
    assert sorted(os.listdir(place)) == names
