"""Every call to the operating system fails, in every plausible way, once and for good.

One workload runs again and again, each time with another fault. What must hold in each run:

* a call that fails raises one of our exceptions, which names the log;
* it is there whole or not at all, and not if it says that nothing was stored;
* a saver that was not poisoned goes on, and holds exactly the calls that went through;
* after a failed sync nothing is acknowledged and no sync is tried, until the log is opened again;
* nothing stays open;
* after a restart, and after a power loss at the first errors or at the end, the crash oracle holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from crashing import (
    PATH,
    Call,
    State,
    check,
    everything_lost,
    open_on,
    put_probe,
    state_of,
    states_with_probe,
)
from faulty import AFTER, BEFORE, HALF, NOTHING, Fault, FaultyDisk
from simdisk import Files, Picture, SimDisk
from support import make_checkpoint, make_config
from test_crashes import flush, put, put_writes

from logsaver import (
    ClosedLogError,
    LogFileError,
    LogSaver,
    LogSaverError,
    LogWriteError,
    PoisonedLogError,
)


@pytest.fixture(autouse=True)
def _quiet(caplog):
    """Thousands of logs are poisoned and torn here; each is worth a line elsewhere."""
    logging.getLogger("logsaver").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("logsaver").setLevel(logging.NOTSET)


def read(saver: LogSaver) -> State:
    """Everything, from the file: nothing is remembered."""
    saver._store.log.cache.clear()
    return state_of(saver)


CALLS = [
    put("a", 1),
    put_writes("a", 1),
    put("a", 2, parent=1),
    Call("read", read),
    put("b", 1, size=700),
    Call("copy", lambda saver: saver.copy_thread("a", "c")),
    Call("prune", lambda saver: saver.prune(["a"])),
    flush(),
    put("a", 3, parent=2),
    Call("delete_for_runs", lambda saver: saver.delete_for_runs(["b"])),
    Call("read", read),
    Call("delete", lambda saver: saver.delete_thread("c")),
    put_writes("a", 3),
]


@cache
def files_at_start(start: str) -> Files:
    if start == "new":
        return {}
    disk = SimDisk()
    with open_on(disk, fsync="never") as saver:
        for call in (put("x", 1), put_writes("x", 1), put("x", 2, parent=1)):
            call.do(saver)
    content = disk.files()[PATH]
    return {PATH: content if start == "existing" else content + b"a frame that never was" * 30}


@cache
def reference(start: str, applied: tuple[int, ...]) -> State:
    """The state after these calls, on a disk on which nothing goes wrong."""
    with open_on(SimDisk(files_at_start(start))) as saver:
        for number in applied:
            CALLS[number].do(saver)
        return state_of(saver)


class Run:
    """The workload with one fault. Asserts on its way what must hold."""

    def __init__(self, start: str, fault: Fault | None) -> None:
        self.start, self.fault = start, fault
        self.disk = FaultyDisk(files_at_start(start), fault)
        self.applied: tuple[int, ...] = ()
        self.states = [reference(start, ())]
        self.acknowledged = 0
        self.errors: list[BaseException] = []
        self.moments: list[tuple[Picture, int, int]] = []

    def go(self) -> None:
        saver, _ = self.attempt(lambda: open_on(self.disk))
        if saver is not None:
            for number, call in enumerate(CALLS):
                self.make(saver, number, call)
            self.attempt(saver.close)
            with pytest.raises(ClosedLogError):
                saver.get_tuple(make_config("a"))
        assert self.disk.open_files == {}
        self.remember_moment()
        self.disk.fault = None
        self.check_power_losses()
        self.check_restart()

    def attempt(self, do: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """The result, or the error if it is one that a user may see."""
        try:
            return do(), None
        except (KeyboardInterrupt, LogFileError) as raised:
            error = raised
        if isinstance(error, LogFileError):
            assert error.path == PATH
            assert PATH in str(error)
        else:
            assert self.fault.how in INTERRUPTS
        self.errors.append(error)
        return None, error

    def make(self, saver: LogSaver, number: int, call: Call) -> None:
        failed, syncs = self.disk.failed["sync"], self.disk.counts["sync"]
        was_poisoned = is_poisoned(saver)
        found, error = self.attempt(lambda: call.do(saver))
        if call.name == "read":
            # Whether the call that poisoned the log is there is not known before it is reopened.
            assert error is not None or found in self.states[-2 if was_poisoned else -1 :]
        elif was_poisoned:
            assert isinstance(error, PoisonedLogError)
            assert self.disk.counts["sync"] == syncs
        elif error is None:
            self.went_through(number)
            self.acknowledged = len(self.states) - 1
        elif is_poisoned(saver):
            self.states.append(reference(self.start, (*self.applied, number)))  # perhaps
        else:
            assert self.disk.failed["sync"] == failed or isinstance(error, KeyboardInterrupt)
            self.look_whether_it_is_there(saver, number, error)
        if error is not None:
            self.remember_moment()

    def went_through(self, number: int) -> None:
        self.applied = (*self.applied, number)
        self.states.append(reference(self.start, self.applied))

    def look_whether_it_is_there(self, saver: LogSaver, number: int, error: BaseException) -> None:
        with self.disk.healthy():
            found = read(saver)
            saver._store.index._check()
        if found != self.states[-1]:
            assert not isinstance(error, LogWriteError), "it says that nothing was stored"
            assert found == reference(self.start, (*self.applied, number)), "there by half"
            self.went_through(number)

    def remember_moment(self) -> None:
        self.moments.append((self.disk.picture(), self.acknowledged, len(self.states) - 1))

    def check_power_losses(self) -> None:
        randomness = random.Random(len(self.moments))
        for picture, acknowledged, issued in (*self.moments[:2], self.moments[-1]):
            for files in (everything_lost(picture), picture.some_crash(randomness)):
                check(files, self.states, acknowledged=acknowledged, issued=issued)

    def check_restart(self) -> None:
        """A new process on the same machine writes, and then the power fails."""
        with open_on(self.disk) as saver:
            found = read(saver)
            assert found in self.states[self.acknowledged :]
            saver._store.index._check()
            put_probe(saver)
            lost = everything_lost(self.disk.picture())
        with open_on(SimDisk(lost)) as saver:
            assert read(saver) == states_with_probe(found)[1]


def is_poisoned(saver: LogSaver) -> bool:
    return saver._store.log.committer.failure is not None


FULL = (errno.ENOSPC, errno.EDQUOT)
INTERRUPTS = (BEFORE, AFTER)
PLAUSIBLE: dict[str, tuple[int | str, ...]] = {
    "open": (errno.EACCES, errno.EROFS, errno.EIO, errno.EMFILE, *FULL, *INTERRUPTS),
    "close": (errno.EIO, errno.EDQUOT, AFTER),
    "pread": (errno.EIO, HALF, *INTERRUPTS),
    "pwrite": (errno.EIO, errno.EFBIG, errno.EROFS, *FULL, HALF, NOTHING, *INTERRUPTS),
    "truncate": (errno.EIO, errno.EROFS, *INTERRUPTS),
    "sync": (errno.EIO, errno.EROFS, *FULL, *INTERRUPTS),
    "replace": (errno.EIO, errno.EACCES, errno.EROFS, *FULL, *INTERRUPTS),
    "sync_directory": (errno.EIO, errno.EACCES, *INTERRUPTS),
    "size": (errno.EIO, errno.ESTALE, *INTERRUPTS),
    "identity": (errno.EIO, errno.ESTALE, *INTERRUPTS),
    "identity_at": (errno.EIO, errno.EACCES, *INTERRUPTS),
    "flock": (errno.ENOLCK, errno.EIO, *INTERRUPTS),
}
THEN = {"pwrite": ("truncate", "sync", "unlink"), "truncate": ("sync",), "sync": ("unlink",)}


def faults(operation: str, count: int) -> Iterator[Fault]:
    for number in range(1, count + 1):
        for how in PLAUSIBLE[operation]:
            yield Fault(operation, number, how)
            if how not in INTERRUPTS:
                yield Fault(operation, number, how, lasting=True)
        for then in THEN.get(operation, ()):
            yield Fault(operation, number, errno.ENOSPC, then=then)
            yield Fault(operation, number, AFTER, then=then)


@pytest.fixture(autouse=True)
def every_name_check(monkeypatch):
    """Else it depends on the time which of the calls look at the file's name."""
    monkeypatch.setattr("logsaver.store.NAME_CHECK_INTERVAL", 0.0)


STARTS = ("new", "existing", "torn")


@pytest.mark.parametrize("start", STARTS)
def test_without_a_fault_every_call_goes_through(start):
    run = Run(start, None)
    run.go()
    assert run.errors == []
    assert len(run.applied) == run.acknowledged == len(CALLS) - 2  # two of them read


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("operation", PLAUSIBLE)
def test_whichever_call_to_the_system_fails_the_promises_hold(operation, start):
    healthy = Run(start, None)
    healthy.go()
    seen = 0
    for fault in faults(operation, healthy.disk.counts[operation]):
        run = Run(start, fault)
        try:
            run.go()
        except Exception as error:
            raise AssertionError(f"{fault}: {error!r}") from error
        seen += sum(run.disk.failed.values())
    assert seen or start != {"replace": "new", "truncate": "torn"}[operation]


def test_a_failed_sync_of_a_put_poisons_the_log_and_one_of_the_opening_does_not_open_it():
    """So that what is said above about poison is not said about nothing."""
    poisoned = 0
    for fault in faults("sync", 12):
        if isinstance(fault.how, int) and not fault.then:
            run = Run("existing", fault)
            run.go()
            poisoned += sum(isinstance(error, PoisonedLogError) for error in run.errors) > 0
    assert poisoned >= 4 * 2 * 8


# -- syncs in the background


def arguments(thread: str, **configurable: Any) -> tuple[Any, ...]:
    checkpoint = make_checkpoint({"x": 1}, checkpoint_id="0001")
    return make_config(thread, **configurable), checkpoint, {}, {"x": 1}


IN_THE_BACKGROUND = {"__pregel_durability": "async"}


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "this does not happen"
        time.sleep(0.001)


SURFACES: dict[str, Callable[[LogSaver], Any]] = {
    "put": lambda saver: saver.put(*arguments("u")),
    "put in the background": lambda saver: saver.put(*arguments("u", **IN_THE_BACKGROUND)),
    "put_writes": lambda saver: saver.put_writes(make_config("t", "", "0001"), [("x", 1)], "task"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["run"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "prune": lambda saver: saver.prune(["t"]),
    "flush": lambda saver: saver.flush(),
    "close": lambda saver: saver.close(),
    "with": lambda saver: saver.__exit__(None, None, None),
    "aput": lambda saver: asyncio.run(saver.aput(*arguments("u"))),
    "adelete_thread": lambda saver: asyncio.run(saver.adelete_thread("t")),
    "aflush": lambda saver: asyncio.run(saver.aflush()),
    "aclose": lambda saver: asyncio.run(saver.aclose()),
}


@pytest.mark.parametrize("surface", SURFACES)
def test_a_background_sync_that_failed_is_logged_and_raised_by_the_next_call(surface, caplog):
    caplog.set_level(logging.ERROR, logger="logsaver")
    disk = FaultyDisk()
    saver = open_on(disk)
    saver.put(*arguments("safe"))
    disk.fault = Fault("sync", disk.counts["sync"] + 1, errno.EIO)
    saver.put(*arguments("t", **IN_THE_BACKGROUND))
    wait_until(lambda: bool(caplog.records))
    syncs = disk.counts["sync"]
    with pytest.raises(PoisonedLogError, match="open the log again") as caught:
        SURFACES[surface](saver)
    assert caught.value.path == PATH
    assert caught.value.__cause__.errno == errno.EIO
    with contextlib.suppress(PoisonedLogError):
        saver.close()
    assert disk.open_files == {}
    assert disk.counts["sync"] == syncs
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("logsaver", "ERROR")
    assert PATH in record.getMessage()
    assert record.exc_info[1].errno == errno.EIO


def test_a_log_handler_that_is_stuck_does_not_keep_the_error_from_those_who_wait(monkeypatch):
    """The flusher tells them first and logs then."""
    logging.getLogger("logsaver").setLevel(logging.ERROR)
    go_on = threading.Event()
    monkeypatch.setattr(logging.Logger, "handle", lambda logger, record: go_on.wait(60))
    disk = FaultyDisk()
    saver = open_on(disk)
    disk.fault = Fault("sync", disk.counts["sync"] + 1, errno.EIO)
    try:
        with pytest.raises(PoisonedLogError):
            asyncio.run(asyncio.wait_for(saver.aput(*arguments("t")), 20))
        with pytest.raises(PoisonedLogError):
            saver.flush()
        with pytest.raises(PoisonedLogError):
            saver.close()
    finally:
        go_on.set()


def test_a_thread_that_cannot_be_started_is_done_without(monkeypatch):
    """The first background put needs the flusher, and there are no threads for a moment."""
    disk = FaultyDisk()
    saver = open_on(disk)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        syncs = disk.counts["sync"]
        saver.put(*arguments("t", **IN_THE_BACKGROUND))
        assert disk.counts["sync"] == syncs + 1
    asyncio.run(asyncio.wait_for(saver.aput(*arguments("u")), 20))
    saver.close()
    with open_on(SimDisk(everything_lost(disk.picture()))) as again:
        assert {key[0] for key in state_of(again)} == {"t", "u"}


def test_a_failure_of_the_sync_that_a_close_waits_for_is_told_and_lets_go_of_the_file():
    disk = FaultyDisk()
    saver = open_on(disk)
    saver.fsync = "never"
    saver.put(*arguments("t"))
    disk.fault = Fault("sync", disk.counts["sync"] + 1, errno.EIO, lasting=True)
    with pytest.raises(LogSaverError, match="open the log again"):
        saver.close()
    assert disk.open_files == {}
    assert disk.failed["sync"] == 1
