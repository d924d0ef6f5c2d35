"""Who waits for which sync: group commit, the watermark, and poison.

The store appends and tells how far the log is written; callers wait until it is *synced* that
far. One of those who wait syncs everything written so far, for all of them; whoever comes
meanwhile waits for the next one. So callers that wait at the same time share a sync, and a sync
acknowledges only what was written before it started.

A thread syncs in its own thread. A coroutine never does: it leaves a future and wakes the
flusher, a daemon thread that starts on first need. An async-mode put only wakes the flusher.

Invariants:

* `synced` only grows, and only to a length that was written before the sync began.
* At most one sync runs at a time.
* After a failed sync nothing is ever acknowledged again. The kernel may have dropped the dirty
  pages and would report success next time: a retry would acknowledge what is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Generic, NamedTuple, TypeVar

from logsaver.errors import ClosedLogError, LogFileError, LogReplacedError, PoisonedLogError

logger = logging.getLogger("logsaver")


LINGER: Final = 0.002  # seconds from one background sync to the next, if nobody awaits it
IDLE: Final = 10.0  # seconds without work after which the flusher ends


class _Waiter(NamedTuple):
    upto: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


S = TypeVar("S", bound=Callable[[], None])


class Committer(Generic[S]):
    """Brings what was written to stable storage, for all threads and loops of a process."""

    def __init__(self, path: str, sync: S, *, at: int) -> None:
        self.written = at  # the store moves it, once a whole frame is with the OS
        self.synced = at
        self.sync = sync
        self.failure: BaseException | None = None
        self._path = path
        self._under_way: threading.Lock | None = None  # held by the thread that syncs
        self._choosing = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._waiters_lock = threading.Lock()
        self._flusher: threading.Thread | None = None
        self._hurry = threading.Event()  # somebody awaits a sync
        self._wake: SimpleQueue[bool] = SimpleQueue()
        self._idle = IDLE
        self._is_stopped = False

    def wait(self, upto: int) -> None:
        """Return once the first `upto` bytes are on stable storage."""
        try:
            while self.synced < upto:
                self.check()
                self._sync_or_follow()
        finally:
            self._settle_waiters()

    def _sync_or_follow(self) -> None:
        """Sync everything written so far, or wait for the sync that is under way.

        Each sync has a lock of its own, so nobody whom it covered queues behind the next one.
        Ctrl-C leaves nothing locked: these are plain locks, which a `with` takes and releases
        without a gap, unlike a `Condition`; and the `finally` makes no call.
        """
        mine, error = threading.Lock(), None
        with mine:
            try:
                with self._choosing:
                    if self._is_stopped:
                        raise self._closed()
                    under_way = self._under_way
                    if under_way is None:
                        under_way = self._under_way = mine
                if under_way is mine:
                    error = self._sync_written()
            finally:
                if self._under_way is mine:
                    self._under_way = None
        if error is not None:
            self.poison(error)
        with under_way:
            return

    def _sync_written(self) -> Exception | None:
        """What went wrong, if anything did. After a failure nothing is tried again."""
        if self.failure is not None:
            return None  # somebody else's, who tells everybody
        reached = self.written  # before the sync: frames written during it do not count
        try:
            self.sync()
        except Exception as error:  # noqa: BLE001 - whatever it was, nothing is safe now
            self.failure = error  # at once: with the next call an interrupt may come
            return error
        self.synced = reached
        return None

    async def wait_async(self, upto: int) -> None:
        """The same without blocking the event loop."""
        if self.synced >= upto:
            return
        self.check()
        loop = asyncio.get_running_loop()
        waiter = _Waiter(upto, loop, loop.create_future())
        with self._waiters_lock:
            self._waiters.append(waiter)
        self.start()
        self._hurry.set()
        await waiter.future

    def start(self) -> None:
        """Have the flusher sync what is written by now, and return at once."""
        if self._wake.empty():  # else it will wake up, and look then how much is written
            self._wake.put(True)
        if self._flusher is None and not self._start_flusher():
            self.wait(self.written)

    def check(self) -> None:
        """Raise if stable storage has failed, or was let go of."""
        if isinstance(self.failure, LogReplacedError):
            raise LogReplacedError(*self.failure.told)
        if self.failure is not None:
            raise PoisonedLogError(
                self._path,
                f"stable storage failed earlier ({self.failure}); what was not acknowledged by "
                "then may be lost. Close this saver and open the log again",
            ) from self.failure
        if self._is_stopped:
            raise self._closed()

    def _closed(self) -> ClosedLogError:
        return ClosedLogError(self._path, "it was closed before this was on stable storage")

    def poison(self, failure: BaseException) -> None:
        """Let every waiter fail, now and from now on."""
        self.failure = failure
        self._settle_waiters()
        # Nobody waits for an async-mode put: it is told here, and by the next call on the log.
        # Last, and with no sync's lock held: a log handler may be slow, or stuck.
        if isinstance(failure, LogReplacedError):
            logger.error("%s", failure)
        else:
            logger.error("%s: stable storage failed", self._path, exc_info=failure)

    def stop(self) -> None:
        """Wait for the sync under way and end the flusher. Syncs nothing by itself.

        None begins after that: the file is about to be closed.
        """
        with self._choosing:
            self._is_stopped = True
        while (under_way := self._under_way) is not None:
            with under_way:
                pass
        self._settle_waiters()
        self._wake.put(False)
        self._hurry.set()

    def rest(self) -> None:
        """Nothing more is written: let the flusher end soon, which keeps the file open."""
        self._idle = 0.0
        if self._flusher is not None:
            self._wake.put(True)

    def _settle_waiters(self) -> None:
        """Tell the coroutines that were covered, or failed.

        They are forgotten last. If we are interrupted, the flusher, whom each of them has woken,
        comes by here and tells them again.
        """
        with self._waiters_lock:
            is_over = self._is_stopped or self.failure is not None
            upto = sys.maxsize if is_over else self.synced
            by_loop: dict[asyncio.AbstractEventLoop, list[_Waiter]] = {}
            for waiter in self._waiters:
                if waiter.upto <= upto:
                    by_loop.setdefault(waiter.loop, []).append(waiter)
            for loop, settled in by_loop.items():
                try:
                    loop.call_soon_threadsafe(self._settle, settled)
                except RuntimeError:
                    logger.debug("%s: an event loop closed while it waited for a sync", self._path)
            self._waiters = [waiter for waiter in self._waiters if waiter.upto > upto]

    def _settle(self, waiters: list[_Waiter]) -> None:
        """Runs in the waiters' own loop."""
        for waiter in waiters:
            if waiter.future.done():  # cancelled meanwhile
                continue
            if waiter.upto <= self.synced:
                waiter.future.set_result(None)
                continue
            try:
                self.check()
            except LogFileError as error:
                waiter.future.set_exception(error)

    def _start_flusher(self) -> bool:
        """False if there is no thread to be had, as at the interpreter's exit."""
        flusher = threading.Thread(target=self._flush, name="logsaver-flusher", daemon=True)
        with self._waiters_lock:
            if self._flusher is None:
                try:
                    flusher.start()
                except RuntimeError:
                    return False
                self._flusher = flusher
        return True

    def _flush(self) -> None:
        while self._next_turn():
            with contextlib.suppress(ClosedLogError, LogReplacedError, PoisonedLogError):
                self.wait(self.written)  # an error was logged, and waiters were told
            # In a burst of async-mode puts each sync costs them a change of threads or two. So
            # they share one every few milliseconds; the first one after a pause is at once.
            self._hurry.wait(LINGER)
            self._hurry.clear()

    def _next_turn(self) -> bool:
        """Sleep until somebody needs a sync. False: the thread is to end."""
        while True:
            try:
                goes_on = self._wake.get(timeout=self._idle)
            except Empty:
                # In this order: whoever wakes us after the look into the queue finds no flusher
                # and starts another.
                with self._waiters_lock:
                    this_thread, self._flusher = self._flusher, None
                    if self._wake.empty():
                        return False
                    self._flusher = this_thread
                continue
            if not goes_on:
                # For a second flusher, which Ctrl-C in the start of one may leave.
                self._wake.put(False)
            return goes_on
