"""Ctrl-C anywhere: the call is there whole or not at all, nothing stays locked, nobody hangs.

CPython looks for signals when a function is entered and when a call to C has returned, which is
where a profile function runs. So each operation runs again and again, and `KeyboardInterrupt`
comes at its first such point, at its second, and so on. Not in coroutines: `asyncio.run` turns
Ctrl-C into a cancel, and a cancelled put is a test of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from crashing import State, everything_lost, open_on, put_probe, state_of, states_with_probe
from faulty import Fault, FaultyDisk
from simdisk import SimDisk
from support import make_checkpoint, make_config
from test_crashes import put, put_writes

import logsaver.logfile
from logsaver import LogSaver, LogSaverError

PACKAGE = os.path.dirname(logsaver.logfile.__file__)
SOON = 5.0  # seconds; whatever takes longer hangs


class Interrupter:
    """Raises KeyboardInterrupt at the n-th point at which logsaver's code can be interrupted."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.where = ""

    def __enter__(self) -> Interrupter:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, arg: Any) -> None:
        if event not in ("call", "c_return") or self.where:
            return
        # Only in our own code: an interrupt inside `logging` or `threading` may leave a lock of
        # theirs behind, which is not ours to mend, and would hang whatever test comes later.
        if not frame.f_code.co_filename.startswith(PACKAGE) or _is_dropped_there(frame):
            return
        self.left -= 1
        if not self.left:
            self.where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            raise KeyboardInterrupt


def _is_dropped_there(frame: FrameType | None) -> bool:
    """Whether what is raised goes nowhere: where the collector calls, or a generator is dropped."""
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        if frame.f_code.co_name in ("__del__", "_hand_over", "<genexpr>"):
            return True
        frame = frame.f_back
    return False


def interrupted_everywhere(
    do: Callable[[LogSaver], Any], make: Callable[[], tuple[SimDisk, LogSaver]]
) -> Iterator[tuple[str, SimDisk, LogSaver]]:
    """Do it once for each point at which it can be interrupted, and interrupt it there."""
    for at in itertools.count(1):
        disk, saver = make()
        with contextlib.suppress(KeyboardInterrupt), Interrupter(at) as interrupter:
            do(saver)
        if not interrupter.where:
            with contextlib.suppress(LogSaverError):
                saver.close()
            assert at > 10, "hardly anything was interrupted"
            return
        yield interrupter.where, disk, saver


def arguments(thread: str, **configurable: Any) -> tuple[Any, ...]:
    checkpoint = make_checkpoint({"x": 1}, checkpoint_id="0001")
    return make_config(thread, **configurable), checkpoint, {}, {"x": 1}


def prepared() -> tuple[SimDisk, LogSaver]:
    disk = SimDisk()
    saver = open_on(disk)
    for call in (put("a", 1), put_writes("a", 1), put("b", 1)):
        call.do(saver)
    return disk, saver


def reopened() -> tuple[SimDisk, LogSaver]:
    """The first write of a saver also writes again what may not be safe yet."""
    disk, saver = prepared()
    saver.close()
    return disk, open_on(disk)


OPERATIONS: dict[str, Callable[[LogSaver], Any]] = {
    "put": put("a", 2, parent=1).do,
    "put over another": put("a", 1, size=60).do,
    "put in the background": lambda s: s.put(*arguments("n", __pregel_durability="async")),
    "put_writes": put_writes("a", 1, task="more").do,
    "delete_thread": lambda saver: saver.delete_thread("a"),
    "prune": lambda saver: saver.prune(["a"]),
    "copy_thread": lambda saver: saver.copy_thread("a", "c"),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["a"]),
    "flush": lambda saver: saver.flush(),
    "list": lambda saver: list(saver.list(None)),
}


def state_before_and_after(do: Callable[[LogSaver], Any]) -> list[State]:
    _, saver = prepared()
    with saver:
        before = state_of(saver)
        do(saver)
        return [before, state_of(saver)]


def in_time(do: Callable[[], Any], what: str) -> Any:
    """The result, from another thread: a lock that was left behind is not ours to take again."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(do()), daemon=True)
    thread.start()
    thread.join(SOON)
    assert results, f"{what} fails or hangs"
    return results[0]


def check_goes_on(disk: SimDisk, saver: LogSaver, allowed: list[State]) -> None:
    found = in_time(lambda: state_of(saver), "reading")
    saver._store.index._check()
    assert found in allowed, "the call is there by half"
    with open_on(SimDisk(disk.files()), read_only=True) as reader:
        assert state_of(reader) == found, "the file has something else"
    in_time(lambda: (put_probe(saver),), "a later put")
    expected = states_with_probe(found)[1]
    assert state_of(saver) == expected
    with open_on(SimDisk(everything_lost(disk.picture()))) as after_power_loss:
        assert state_of(after_power_loss) == expected
    later = saver.aput(*arguments("later"))
    in_time(lambda: (asyncio.run(asyncio.wait_for(later, SOON)),), "a later aput")
    in_time(lambda: (saver.close(),), "close")


@pytest.mark.parametrize("make", [prepared, reopened], ids=["open", "reopened"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_ctrl_c_anywhere_leaves_the_call_there_or_not(name, make):
    allowed = state_before_and_after(OPERATIONS[name])
    for where, disk, saver in interrupted_everywhere(OPERATIONS[name], make):
        try:
            check_goes_on(disk, saver, allowed)
        except AssertionError as error:
            raise AssertionError(f"interrupted at {where}: {error}") from error


def test_ctrl_c_while_a_reader_follows_does_not_count_anything_twice():
    def has_news() -> tuple[SimDisk, LogSaver]:
        disk, writer = prepared()
        reader = open_on(disk, read_only=True)
        for call in (put("a", 2, parent=1), put_writes("a", 2), put("c", 1)):
            call.do(writer)
        writer.close()
        return disk, reader

    _, reader = has_news()
    everything = state_of(reader)
    for where, _, saver in interrupted_everywhere(lambda s: s.get_tuple(make_config()), has_news):
        assert in_time(lambda s=saver: state_of(s), where) == everything, where
        saver._store.index._check()
        saver.close()


def test_ctrl_c_after_a_failed_sync_does_not_hide_the_failure():
    """The kernel reports a failed sync once. An interrupt must not make us ask again."""

    def about_to_fail() -> tuple[FaultyDisk, LogSaver]:
        disk = FaultyDisk()
        saver = open_on(disk)
        disk.fault = Fault("sync", disk.counts["sync"] + 1, errno.EIO)
        return disk, saver

    def put_one(saver: LogSaver) -> None:
        with contextlib.suppress(LogSaverError):
            saver.put(*arguments("t"))

    logging.getLogger("logsaver").setLevel(logging.CRITICAL)
    try:
        for where, disk, saver in interrupted_everywhere(put_one, about_to_fail):
            if disk.failed["sync"]:
                assert saver._store.log.committer.failure is not None, where
            with contextlib.suppress(LogSaverError):
                saver.close()
    finally:
        logging.getLogger("logsaver").setLevel(logging.NOTSET)


@pytest.mark.parametrize("start", ["new", "existing", "torn"])
def test_ctrl_c_while_opening_does_not_lock_this_process_out(start, tmp_path, monkeypatch):
    """By its real name: savers of one process share what is open."""
    for name in ("sync", "sync_directory"):
        monkeypatch.setattr(logsaver.logfile.Disk, name, lambda disk, what: None)
    disk, saver = prepared()
    saver.close()
    (content,) = disk.files().values()
    for at in itertools.count(1):
        path = tmp_path / f"{at}.log"
        if start != "new":
            path.write_bytes(content + b"a frame that never was" * (start == "torn"))
        with contextlib.suppress(KeyboardInterrupt), Interrupter(at) as interrupter:
            LogSaver(path).close()
        with LogSaver(path) as again:
            assert len(list(again.list(None))) == (0 if start == "new" else 2), interrupter.where
            again.put(*arguments("t"))
        if not interrupter.where:
            break
    assert at > 40
