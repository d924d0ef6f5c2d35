"""Keeps a log small while it is in use: retention and compaction, in the background or when told.

**When.** A put compares one number: has the log grown to `look_at`? Then, at open, and after
whatever takes something away, a look is due. It is a thread that lets go of what the retention
rule does not keep, compacts if more than half of the log is garbage, and ends.

**Never in the way.** The work goes at the pace of pace.py, is stopped within milliseconds when the
saver is closed, and is then left to a process of its own; see detached.py. An error in the
background is a warning of the logger `logsaver`, and the log is as before.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.cipher import Cipher
from logsaver.compacting import Compacted, Progress
from logsaver.detached import go_on_in_child
from logsaver.errors import ClosedLogError, LogSaverError
from logsaver.garbage import live_bytes
from logsaver.index import Index
from logsaver.log import Log
from logsaver.logfile import LogFile
from logsaver.pace import Pace, StoppedError
from logsaver.preview import Preview, preview_of
from logsaver.record import ForgetRecord
from logsaver.removing import expire_record
from logsaver.renaming import renamed
from logsaver.retention import Retention, is_over, may_be_over
from logsaver.rewriting import rewrite
from logsaver.store import Store
from logsaver.waiting import LockBusyError

logger = logging.getLogger("logsaver")

LEAST_GARBAGE: Final = 1 << 20  # bytes; less is not worth a new file
MOST_GARBAGE: Final = 0.5  # of the file
SOON: Final = 1 << 14  # bytes between two looks, where there is a retention rule
NEVER: Final = sys.maxsize
FIRST_PAUSE: Final = 0.01  # seconds; whoever has just opened the log wants to get on
LONGEST_GOODBYE: Final = 0.5  # seconds; a thread that is waiting for the disk is left there


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did."""

    bytes_before: int
    bytes_after: int


class Upkeep:
    """The upkeep of one log by one saver and its clones."""

    def __init__(
        self,
        store: Store,
        serde: SerializerProtocol,
        *,
        retention: Retention | None,
        is_automatic: bool,
        may_detach: bool,
    ) -> None:
        self._store = store
        self._serde = serde
        self._retention = retention
        self._is_automatic = is_automatic and not store.read_only
        self._may_detach = may_detach
        self._reset()
        self.look_at = NEVER
        if self._is_automatic:
            self.look_at = 0
            self.look()

    def _reset(self) -> None:
        """Also in a forked child, where no thread of ours is."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_wanted = False  # one more look
        self._is_unfinished = False  # the work in the background
        self._found_due: bool | None = None  # a compaction, if somebody has looked
        self._is_stopped = False
        self._paces: dict[Pace, bool] = {}  # of work under way: whether it is in the background

    # -- in the background

    def look_soon(self) -> None:
        """After something was taken away: at the next occasion."""
        if self._is_automatic:
            self.look_at = 0

    def look(self) -> None:
        """The log has grown to `look_at`."""
        if self._pid != os.getpid():
            self._reset()
        size = self._store.size()
        if self._retention is not None:
            self.look_at = size + max(SOON, size // 64)
        elif size < LEAST_GARBAGE:
            self.look_at = LEAST_GARBAGE
            return
        else:
            self.look_at = size + size // 8
        with self._lock:
            self._is_wanted = True
            if self._thread is None and not self._is_stopped:
                pace = self._add_pace(in_background=True)
                self._thread = threading.Thread(
                    target=self._run, args=(pace,), name="logsaver-upkeep", daemon=True
                )
                self._is_unfinished = True
                self._thread.start()

    def _run(self, pace: Pace) -> None:
        try:
            pace.rest(FIRST_PAUSE)
            while self._is_one_more_wanted():
                self._let_go(pace)
                self._found_due = None
                self._found_due = self.is_due(pace)
                if self._found_due:
                    self._compact(pace, None)
            self._is_unfinished = False
        except (StoppedError, ClosedLogError):
            return  # whoever stopped it goes on from here
        except Exception as error:
            self._is_unfinished = False
            if isinstance(error, LogSaverError):
                logger.warning("could not be compacted in the background: %s", error)
            else:
                logger.exception("%s: could not be compacted in the background", self._store.path)
        finally:
            with self._lock:
                self._paces.pop(pace, None)
                if self._thread is threading.current_thread():
                    self._thread = None

    def _is_one_more_wanted(self) -> bool:
        with self._lock:
            is_wanted, self._is_wanted = self._is_wanted, False
            if not is_wanted:
                self._thread = None  # from here on a look starts another one
            return is_wanted

    def is_due(self, pace: Pace | None = None) -> bool:
        """Whether a compaction is worth it, and fits on the disk. Without a pace, at a glance."""
        store = self._store
        live, size = live_bytes(store, pace), store.size()
        if size - live < max(LEAST_GARBAGE, MOST_GARBAGE * size):
            return False
        room = store.log.file.room()
        if live < room:
            return True
        # It would fill the disk to the last byte, under the hands of those who put.
        logger.info("%s: %d bytes are free, too few to compact it", store.path, room)
        return False

    def wait(self) -> None:
        """Until the background has nothing more to do."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def stop(self) -> None:
        """End the work in milliseconds, and leave to a child what is left of it."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            self._is_stopped = True
            thread = self._thread
            for pace in self._paces:
                pace.stop()
        if thread is None or thread is threading.current_thread():
            return
        thread.join(LONGEST_GOODBYE)
        if self._may_detach and self._is_unfinished and self._is_still_due():
            go_on_in_child(self._store.path)

    def _is_still_due(self) -> bool:
        if self._found_due is not None:
            return self._found_due
        try:
            # Who only looks does not pay for it.
            return self._store.has_appended() and self.is_due()
        except LogSaverError:
            return False  # closed, or gone: the next who opens it finds out

    def new_pace(self) -> Pace:
        """For work that is about to begin, and ends with `drop`."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            return self._add_pace(in_background=False)

    def _add_pace(self, *, in_background: bool) -> Pace:
        store = self._store
        pace = Pace(lambda: store.log.committer.written)
        self._paces[pace] = in_background
        return pace

    def drop(self, pace: Pace) -> None:
        """Its work has ended, or will never begin."""
        pace.stop()
        with self._lock:
            self._paces.pop(pace, None)

    # -- retention

    def _let_go(self, pace: Pace) -> None:
        """Thread by thread, so that nobody waits for all of them."""
        rule, store = self._retention, self._store
        if rule is None:
            return
        now = _now()
        for thread_id in self._candidates(rule, now):
            pace()
            with store.lock:
                thread = store.view().threads.get(thread_id)
                if thread is None or not is_over(thread, rule, now):
                    continue
            store.waiting.insist(partial(store.change, partial(self._plan, [thread_id], now)))

    def _candidates(self, rule: Retention, now: int) -> list[str]:
        """Without looking at the checkpoints of those that have nothing to let go of."""
        with self._store.lock:
            summaries = self._store.view().threads.overview().summaries
            return [name for name, each in summaries.items() if may_be_over(each, rule, now)]

    def _plan(self, thread_ids: list[str], now: int, log: Log, index: Index) -> ForgetRecord | None:
        assert self._retention is not None
        return expire_record(log, index, self._serde, thread_ids, self._retention, now)

    def preview(self) -> Preview:
        """What the rule would let go of now."""
        rule, store, now = self._retention, self._store, _now()
        if rule is None:
            return Preview(())
        names = self._candidates(rule, now)
        with store.lock:
            index = store.view()
            record = expire_record(store.log, index, self._serde, names, rule, now)
            return preview_of(index, record)

    # -- compaction

    def compact(self, progress: Progress | None, pace: Pace | None = None) -> Compaction:
        """Do it now; waits for whoever is doing it already."""
        pace = pace or self.new_pace()
        try:
            return self._store.waiting.insist(lambda: self._insistently(pace, progress))
        except StoppedError:
            raise ClosedLogError(
                self._store.path,
                "the saver was closed while it compacted the log, which is as it was before; open "
                "it again to compact it",
            ) from None
        finally:
            self.drop(pace)

    def _insistently(self, pace: Pace, progress: Progress | None) -> Compaction:
        with self._lock:
            thread, self._is_wanted = self._thread, False
            for other, in_background in self._paces.items():
                if in_background:
                    other.stop()
        if thread is not None:
            thread.join()
        found = self._compact(pace, progress)
        if found is None:
            raise LockBusyError
        return found

    def _compact(self, pace: Pace, progress: Progress | None) -> Compaction | None:
        """None if somebody else is doing it."""
        store = self._store
        before = store.size()
        reown = partial(renamed, self._serde)

        def make(source: Log, file: LogFile, cipher: Cipher | None) -> Compacted:
            return Compacted(source, file, cipher, reown=reown, pace=pace, progress=progress)

        if not rewrite(store, make=make):
            return None
        after = store.size()
        self.look_at = min(self.look_at, max(LEAST_GARBAGE, after + after // 8))
        return Compaction(before, after)


def _now() -> int:
    return time.time_ns() // 1000
