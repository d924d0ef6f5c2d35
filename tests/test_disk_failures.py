"""Writes, cuts and syncs that fail: what was not stored is gone, what may be lost is said."""

import asyncio
import contextlib
import errno
import threading
import time

import pytest
from disks import PATH, MemoryDisk, fail, open_saver, out_of_space
from logs import checkpoint, holds
from support import id_of, ids, make_config, put

from logsaver import LogOpenError, LogSaverError, LogWriteError, PoisonedLogError
from logsaver.durability import Committer
from logsaver.index import Index
from logsaver.rewriting import rewrite
from logsaver.store import Store

IO_ERROR = OSError(errno.EIO, "Input/output error")
ERRNOS = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG]


def quiet(call):
    """A disk that works."""


class Ready:
    """A saver with two checkpoints and some writes, and operations to try on it."""

    def __init__(self, **options):
        self.disk = MemoryDisk()
        self.saver = open_saver(self.disk, **options)
        self.first = put(self.saver, values={"x": 1}, metadata={"run_id": "r1"})
        self.second = put(self.saver, values={"x": 2}, parent=self.first, metadata={"run_id": "r2"})
        self.saver.put_writes(self.second, [("x", 1)], "task")

    def snapshot(self):
        return self.disk.content(), holds(self.saver._store)

    def reopened(self):
        """What the file holds, by itself."""
        copy = MemoryDisk({PATH: self.disk.content()})
        return holds(Store(PATH, read_only=True, disk=copy))


OPERATIONS = {
    "put": lambda r: put(r.saver, values={"x": "v" * 200}, parent=r.second),
    "put_writes": lambda r: r.saver.put_writes(r.second, [("y", "v" * 200)], "other"),
    "delete_thread": lambda r: r.saver.delete_thread("t"),
    "delete_for_runs": lambda r: r.saver.delete_for_runs(["r1"]),
    "copy_thread": lambda r: r.saver.copy_thread("t", "u"),
    "prune": lambda r: r.saver.prune(["t"]),
}


# -- writes that fail


@pytest.mark.parametrize("after", [0, 1, 39, 41])
@pytest.mark.parametrize("number", ERRNOS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_failed_write_is_cut_back_and_raised_and_the_saver_works_again(name, number, after):
    ready = Ready()
    before = ready.snapshot()
    ready.disk.on = out_of_space(number, after)
    with pytest.raises(LogWriteError, match="nothing of this call was stored") as caught:
        OPERATIONS[name](ready)
    assert caught.value.errno == number
    assert caught.value.path == PATH
    assert isinstance(caught.value, OSError)
    ready.disk.on = quiet
    assert ready.snapshot() == before
    assert ready.reopened() == before[1]

    OPERATIONS[name](ready)
    assert ready.snapshot() != before
    assert ready.reopened() == ready.snapshot()[1]


@pytest.mark.parametrize("step", [1, 7, 40, 100])
def test_a_write_taken_in_small_pieces_is_written_whole(step):
    ready = Ready()
    ready.disk.on = lambda call: step if call.name == "write" else None
    for operation in ("put", "put_writes", "copy_thread"):
        OPERATIONS[operation](ready)
    assert ready.reopened() == ready.snapshot()[1]


def test_a_disk_that_takes_no_more_bytes_and_says_nothing_is_an_error():
    ready = Ready()
    before = ready.snapshot()
    ready.disk.on = lambda call: 0 if call.name == "write" else None
    with pytest.raises(LogWriteError):
        OPERATIONS["put"](ready)
    ready.disk.on = quiet
    assert ready.snapshot() == before


@pytest.mark.parametrize("taken", [0, 20], ids=["before", "within"])
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_interrupted_write_is_cut_back_and_the_saver_works_again(name, interruption, taken):
    ready = Ready()
    before = ready.snapshot()
    with interrupted_write(ready, interruption, taken):
        OPERATIONS[name](ready)
    assert ready.snapshot() == before
    assert ready.reopened() == before[1]
    OPERATIONS[name](ready)
    assert ready.reopened() == ready.snapshot()[1] != before[1]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_call_interrupted_when_all_of_it_is_written_is_in_the_log(name, interruption):
    """Another process may have read it by then: what somebody has seen must stay."""
    ready = Ready()
    before = ready.snapshot()
    with interrupted_write(ready, interruption, taken=None):
        OPERATIONS[name](ready)
    assert ready.reopened() == ready.snapshot()[1] != before[1]
    put(ready.saver, parent=ready.second)
    assert ready.reopened() == ready.snapshot()[1]


@contextlib.contextmanager
def interrupted_write(ready, interruption, taken):
    file = ready.saver._store.log.file
    pwrite = file.pwrite

    def interrupted(data, at):
        pwrite(bytes(data)[:taken], at)
        raise interruption

    file.pwrite = interrupted
    with pytest.raises(interruption):
        yield
    file.pwrite = pwrite


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_call_interrupted_while_the_index_takes_it_in_is_in_the_log(monkeypatch, name, applied):
    ready = Ready()
    before = ready.snapshot()
    apply = Index.apply

    def interrupted(self, record, offset, size):
        if applied:
            apply(self, record, offset, size)
        raise KeyboardInterrupt

    monkeypatch.setattr(Index, "apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        OPERATIONS[name](ready)
    monkeypatch.undo()
    assert ready.reopened() == ready.snapshot()[1] != before[1]


def test_a_put_after_an_interrupted_one_does_not_add_to_half_an_index(monkeypatch):
    ready = Ready()
    apply = Index.apply

    def by_half(index, record, offset, size):
        apply(index, record, offset, size)
        raise KeyboardInterrupt

    monkeypatch.setattr(Index, "apply", by_half)
    with pytest.raises(KeyboardInterrupt):
        OPERATIONS["put"](ready)
    monkeypatch.undo()
    doubtful = ready.saver._store.index
    put(ready.saver, "another")
    assert ready.saver._store.index is not doubtful


def test_a_flush_after_a_call_interrupted_at_its_very_end_claims_only_what_is_there(monkeypatch):
    """Or the next frame would say that more was safe than was ever written, and after a crash
    that would be taken for damage.
    """
    ready = Ready(fsync="never")

    def interrupted(committer, value):
        committer.__dict__["written"] = value
        monkeypatch.undo()
        raise KeyboardInterrupt

    written = property(lambda committer: committer.__dict__["written"], interrupted)
    monkeypatch.setattr(Committer, "written", written, raising=False)
    with pytest.raises(KeyboardInterrupt):
        OPERATIONS["put"](ready)
    ready.saver.flush()
    stats = ready.saver.stats()
    assert stats.synced_bytes == stats.bytes == len(ready.disk.content())


def test_a_checkpoint_put_after_a_failed_one_does_not_share_its_values():
    """The failed one's place in the file is taken by the next, and read as such."""
    ready = Ready()
    ready.disk.on = out_of_space(errno.ENOSPC, 45)
    with pytest.raises(LogWriteError):
        put(ready.saver, values={"x": "lost"}, parent=ready.second, checkpoint_id="z1")
    ready.disk.on = quiet
    put(ready.saver, values={"x": "kept"}, parent=ready.second, checkpoint_id="z1")
    found = ready.saver.get_tuple(make_config(checkpoint_id="z1"))
    assert found.checkpoint["channel_values"] == {"x": "kept"}


async def test_a_failed_write_raises_from_a_coroutine_too():
    ready = Ready()
    before = ready.snapshot()
    ready.disk.on = out_of_space(errno.ENOSPC)
    with pytest.raises(LogWriteError):
        await ready.saver.aput_writes(ready.second, [("x", 1)], "another")
    ready.disk.on = quiet
    assert ready.snapshot() == before
    await ready.saver.aput_writes(ready.second, [("x", 1)], "another")
    assert ready.snapshot() != before


@pytest.mark.parametrize("name", ["write", "sync", "replace", "sync-directory"])
def test_a_new_log_that_cannot_be_made_is_an_open_error_and_can_be_made_later(name):
    disk = MemoryDisk()
    disk.on = fail(name, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(LogOpenError, match="No space") as caught:
        Store(PATH, disk=disk)
    assert caught.value.errno == errno.ENOSPC
    disk.on = quiet
    assert not [path for path in disk.files if path != PATH and name in ("write", "sync")]
    store = Store(PATH, disk=disk)
    store.append(checkpoint())
    assert holds(store)["t/"]["ids"] == ["c1"]


# -- cuts that fail


def test_a_cut_that_fails_poisons_the_log():
    """Half a frame stays behind: nothing can be written over it safely."""
    ready = Ready()
    before = ready.snapshot()
    no_space = out_of_space(errno.ENOSPC, 45)

    def on(call):
        if call.name == "truncate":
            raise IO_ERROR
        return no_space(call)

    ready.disk.on = on
    with pytest.raises(LogWriteError):
        OPERATIONS["put"](ready)
    ready.disk.on = quiet
    for name, operation in OPERATIONS.items():
        with pytest.raises(PoisonedLogError, match="open the log again"):
            operation(ready)
        assert ready.snapshot()[1] == before[1], name  # reading goes on
    with pytest.raises(PoisonedLogError):
        ready.saver.flush()
    with pytest.raises(PoisonedLogError):
        ready.saver.close()
    with open_saver(ready.disk) as again:
        assert (ready.disk.content(), holds(again._store)) == before
        put(again, parent=ready.second)


# -- syncs that fail


class FailingSync(MemoryDisk):
    """Every sync of the log fails, once `gate` is open."""

    def __init__(self):
        super().__init__()
        self.broken = False
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()
        self.failed = 0

    def sync(self, fd):
        if not self.broken:
            return
        self.failed += 1
        self.started.set()
        assert self.gate.wait(10)
        raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
def failing():
    """A disk, and a saver on it with one checkpoint that is safe."""
    disk = FailingSync()
    saver = open_saver(disk)
    config = put(saver, values={"x": 1})
    disk.broken = True
    yield disk, saver, config
    disk.gate.set()
    with contextlib.suppress(LogSaverError, OSError):
        saver.close()


def test_a_failed_sync_fails_every_thread_that_waits_and_is_never_retried(failing):
    disk, saver, config = failing
    disk.gate.clear()
    outcomes = []

    def write(number):
        try:
            saver.put_writes(config, [("x", number)], f"task {number}")
        except Exception as error:  # noqa: BLE001 - which one is asserted below
            outcomes.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    threads[0].start()
    assert disk.started.wait(10)
    for thread in threads[1:]:
        thread.start()
    while saver.stats().writes < 4:
        time.sleep(0.001)
    disk.gate.set()
    for thread in threads:
        thread.join(10)
    assert len(outcomes) == 4
    assert all(isinstance(error, (OSError, PoisonedLogError)) for error in outcomes)
    disk.broken = False  # were it tried again, it would pass, and lie
    for again in (saver.flush, lambda: put(saver, parent=config), saver.flush):
        with pytest.raises(PoisonedLogError, match="open the log again") as caught:
            again()
        assert caught.value.path == PATH
        assert isinstance(caught.value.__cause__, OSError)
    assert disk.failed == 1


def test_the_error_of_a_failed_sync_is_an_error_of_the_log(failing):
    """Whoever waits gets the same error, whether the sync ran in their thread or another."""
    _, saver, config = failing
    with pytest.raises(PoisonedLogError) as caught:
        saver.put_writes(config, [("x", 1)], "task")
    assert PATH in str(caught.value)


async def test_a_failed_sync_fails_every_coroutine_that_waits_and_is_never_retried(failing):
    disk, saver, config = failing
    disk.gate.clear()
    waiting = [
        asyncio.ensure_future(saver.aput_writes(config, [("x", n)], f"task {n}")) for n in range(5)
    ]
    while saver.stats().writes < 5:  # noqa: ASYNC110 - the saver has no event for it
        await asyncio.sleep(0)
    disk.gate.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in outcomes] == [PoisonedLogError] * 5
    disk.broken = False
    for again in (saver.aflush(), saver.aput_writes(config, [("x", 1)], "late"), saver.aclose()):
        with pytest.raises(PoisonedLogError):
            await again
    assert disk.failed == 1


def test_whoever_was_about_to_sync_when_a_sync_failed_does_not_try_again(failing):
    """Past the check and before its own sync; this one would pass, and lie."""
    disk, saver, config = failing
    with pytest.raises(PoisonedLogError):
        saver.put_writes(config, [("x", 1)], "task")
    disk.broken = False
    committer = saver._store.log.committer
    before = committer.synced
    committer._sync_or_follow()
    assert committer.synced == before < committer.written


def test_a_failed_sync_is_logged_once(failing, caplog):
    _, saver, config = failing
    for _ in range(3):
        with pytest.raises(PoisonedLogError):
            saver.put_writes(config, [("x", 1)], "task")
    (record,) = [found for found in caplog.records if found.name == "logsaver"]
    assert "stable storage failed" in record.getMessage()
    assert PATH in record.getMessage()


async def test_coroutines_that_wait_are_told_of_a_failed_cut_at_once(failing):
    """Not when the sync that they wait for ends: it may be stuck."""
    disk, saver, config = failing
    disk.gate.clear()
    waiting = asyncio.ensure_future(saver.aput_writes(config, [("x", 1)], "task"))
    while not disk.started.is_set():  # noqa: ASYNC110 - it is set by another thread
        await asyncio.sleep(0.001)
    saver._store.log.committer.poison(OSError(errno.EIO, "a cut failed"))
    with pytest.raises(PoisonedLogError, match="a cut failed"):
        await asyncio.wait_for(waiting, 10)
    assert not disk.gate.is_set()


def test_a_failed_sync_in_the_background_fails_the_next_call(failing):
    disk, saver, config = failing
    background = make_config(checkpoint_id=id_of(config), __pregel_durability="async")
    saver.put_writes(background, [("x", 1)], "task")
    assert disk.started.wait(10)
    with pytest.raises((OSError, PoisonedLogError)):
        saver.flush()
    with pytest.raises(PoisonedLogError):
        saver.put_writes(background, [("x", 2)], "other")
    assert disk.failed == 1


def test_a_poisoned_log_can_be_read_and_closed_and_opened_again(failing):
    disk, saver, config = failing
    with pytest.raises((OSError, PoisonedLogError)):
        put(saver, values={"x": 2}, parent=config)
    assert len(ids(saver.list(make_config()))) == 2
    with pytest.raises(PoisonedLogError):
        saver.close()
    saver.close()  # the second time there is nothing left to say
    disk.broken = False
    again = open_saver(disk)
    newest = put(again, values={"x": 3}, parent=config)
    assert ids(again.list(make_config()))[0] == id_of(newest)
    again.close()


def test_what_was_acknowledged_before_a_failed_sync_stays_acknowledged(failing):
    """A call that has nothing to store, and whose outcome is safe already, still succeeds."""
    _, saver, config = failing
    assert saver.stats().synced_bytes == saver.stats().bytes
    with pytest.raises((OSError, PoisonedLogError)):
        put(saver, values={"x": 2}, parent=config)
    assert saver.stats().synced_bytes < saver.stats().bytes
    assert saver.get_tuple(config).checkpoint["channel_values"] == {"x": 1}


# -- replacing a log


def test_a_log_whose_replacement_failed_behind_the_rename_goes_on_in_the_new_file():
    """The name leads to the new file by then. What went to the old one would be lost."""
    ready = Ready()
    store = ready.saver._store
    ready.disk.on = fail("sync-directory", IO_ERROR)
    with pytest.raises(OSError, match="Input/output error"):
        rewrite(store)
    ready.disk.on = quiet
    put(ready.saver, values={"x": 3}, parent=ready.second)
    assert ready.reopened() == holds(store)
    assert len(ids(ready.saver.list(make_config()))) == 3
