"""One log and its index under one lock: open, append, read, follow, close.

To append is: encode the record, frame it, write the frame, apply the record to the index. To
open is to read the frames back and apply their records. Nothing else changes the index.

Any number of threads and processes do this to one log at the same time:

* `lock` excludes the threads of this process; it guards `index` and all that is private here.
* The file's own lock excludes other processes. It is held to append one frame, inside `lock`, and
  never waited for: who finds it taken lets go of everything and tries again (see waiting.py).
  Only who replaces the file holds it for longer, and without `lock`; `_is_replacing` tells our
  own threads, which the file's lock does not keep out.
* Whoever gets the file's lock first takes in what others have appended, so appends form one chain.
* Readers need no file lock. They take in whole frames; the half of a frame that somebody is
  writing just now is not whole.
* What is read outside `lock` is read through the `Log` that it was found in. A log that has been
  replaced gets a new `Log`, and a new `epoch`: positions of an earlier one mean nothing in it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from logsaver.cipher import Cipher
from logsaver.copying import Copy
from logsaver.disk import DISK, LOCK, UNLOCK, Disk
from logsaver.errors import ClosedLogError, LogFileError, ReadOnlyLogError
from logsaver.following import Following
from logsaver.frame import CHECKSUM_AT
from logsaver.index import Index
from logsaver.log import (
    Log,
    check_content,
    check_length,
    check_name,
    has_checksum,
    has_successor,
    payload_of,
)
from logsaver.logfile import open_error
from logsaver.opening import lock_holder, open_log, reopen_log
from logsaver.record import Record, ReplacedRecord
from logsaver.recovery import cut_torn_tail, damage
from logsaver.sealing import Append, Sealer
from logsaver.successor import Successor, sweep
from logsaver.waiting import LockBusyError, Waiting

logger = logging.getLogger("logsaver")

NAME_CHECK_INTERVAL: Final = 0.005  # seconds; a stat per append would cost as much as the append
DEFAULT_LOCK_TIMEOUT: Final = 30.0


class ReplacedMeanwhileError(Exception):
    """Raised when a record was made for an earlier generation of the log: make it anew."""


# Where a frame is: in which generation, its epoch, and from where to where.
Appended = tuple[Log, int, int, int]
R = TypeVar("R", bound=Record)
Refine = Callable[[Log, Index, R], "R | None"]


class Store(Following):
    """An open log. See the module's docstring for who holds what when."""

    def __init__(
        self,
        path: str,
        *,
        read_only: bool = False,
        promises: bool = True,
        cipher: Cipher | None = None,
        lock_timeout: float = DEFAULT_LOCK_TIMEOUT,
        cache_bytes: int | None = None,
        disk: Disk = DISK,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.promises = promises  # that what it stores is on stable storage
        self.lock = threading.Lock()
        self.waiting = Waiting(path, lock_timeout, partial(lock_holder, disk, path))
        self.epoch = 0
        self.users = 1  # the registry counts them
        self.disk = disk
        self._closed = False
        self._forked = False
        self._is_replacing = False  # one of our threads has the file's lock for longer
        self.waiting.insist(partial(self._open, cipher, cache_bytes))

    # -- opening

    def _open(self, cipher: Cipher | None, cache_bytes: int | None) -> None:
        try:
            self._open_and_settle(cipher, cache_bytes)
        except LogFileError:
            raise
        except OSError as error:
            raise open_error(self.path, error) from error

    def _open_and_settle(self, cipher: Cipher | None, cache_bytes: int | None) -> None:
        self.log = open_log(self.disk, self.path, cipher, cache_bytes, read_only=self.read_only)
        try:
            self._adopt(self.log)
            self.view()
            self._settle_tail()
            if not self.read_only:
                sweep(self.disk, self.path)
        except BaseException:
            self.log.file.close()
            raise

    def _settle_tail(self) -> None:
        """At open: tell damage from the end that a crash leaves, and cut the latter off."""
        while self.log.file.end() > self._end:
            known, watermark = self._end, self._watermark_of_tail()
            if known < watermark:
                # Damage, unless somebody was writing while we looked. But whoever wrote the frame
                # that has this watermark had found all before it whole.
                self._follow()
                if self._end == known:
                    raise damage(self.path, known, watermark)
            elif self.read_only:
                return
            else:
                try:
                    self._lock_file()
                finally:
                    self.log.file.flock(UNLOCK)

    # -- the lock between processes

    def _lock_file(self) -> None:
        """Take the file's lock, and know all that is in the file. Raises `LockBusyError`.

        The caller gives the lock back, whatever happens: `self.log.file.flock(UNLOCK)`.
        """
        while True:
            log = self.log
            try:
                log.file.flock(LOCK)
            except BlockingIOError:
                raise LockBusyError from None
            except OSError as error:
                raise self.log.file.write_error(error) from error
            if log.file.end() != self._end or self._is_replaced:
                self._take_in_the_rest()
            elif time.monotonic() - self._name_checked < NAME_CHECK_INTERVAL:
                return
            check_content(log.file, self._last_at, self._last)
            if log.file.has_its_name():
                # With the lock in our hands nobody is about to replace it: the record that says
                # so was left by somebody who was killed on the way.
                self._is_replaced = False
                self._name_checked = time.monotonic()
                return
            check_name(log.file, log.header)
            log.file.flock(UNLOCK)
            self._adopt(reopen_log(log, read_only=False))

    def _take_in_the_rest(self) -> None:
        """Apply what others appended, and cut off what one of them was killed over."""
        self._follow()
        log = self.log
        check_length(log.file, self._end)
        if log.file.end() > self._end:
            check_content(log.file, self._last_at, self._last)
            watermark = self._watermark_of_tail()
            if self._end < watermark:
                raise damage(self.path, self._end, watermark)
            cut_torn_tail(log.file, self._end)

    # -- writing; all of these raise `LockBusyError` if another process has the lock

    def append(
        self, record: R, epoch: int | None = None, refine: Refine[R] | None = None
    ) -> Appended:
        """Write one record; on any error the log is as before.

        `epoch` is that of the positions which the record refers to, None if it has none. Raises
        `ReplacedMeanwhileError` if they mean nothing any more. `refine` has the last word, when
        nobody can come in between: it may change the record, or leave it out.
        """
        kind, payload = payload_of(record)
        with self.lock:
            self._check_writable()
            try:
                self._lock_file()
                if epoch is not None and epoch != self.epoch:
                    raise ReplacedMeanwhileError
                if self._end >= self._sealer.due:
                    self._seal_a_little()
                if refine is not None:
                    refined = refine(self.log, self.index, record)
                    if refined is None:
                        return self._nothing_to_append()
                    if refined is not record:
                        record = refined
                        kind, payload = payload_of(record)
                return self._append(record, kind, payload)
            finally:
                self.log.file.flock(UNLOCK)

    def change(self, plan: Callable[[Log, Index], Record | None]) -> Appended:
        """Append what `plan` decides on, if anything; nothing else happens in between."""
        with self.lock:
            self._check_writable()
            try:
                self._lock_file()
                if self._end >= self._sealer.due:
                    self._seal_a_little()
                record = plan(self.log, self.index)
                if record is None:
                    return self._nothing_to_append()
                return self._append(record, *payload_of(record))
            finally:
                self.log.file.flock(UNLOCK)

    def _nothing_to_append(self) -> Appended:
        return self.log, self.epoch, self._end, self._end  # what made it so is before the end

    def _append(self, record: Record, kind: int, payload: bytes) -> Appended:
        log, offset = self.log, self._end
        frame, checksum = log.encode(kind, payload, offset, self._last, log.committer.synced)
        size = len(frame)
        end = offset + size
        try:
            if log.file.pwrite(frame, offset) != size:
                log.file.write(frame, offset)  # a short write; this tells why
            self.index.apply(record, offset, size)
            self._end = self._own_end = end
            self._last, self._last_at = checksum, offset + CHECKSUM_AT
            log.committer.written = end
        except BaseException as error:
            self._undo_append(offset)
            if isinstance(error, OSError):
                raise self.log.file.write_error(error) from error
            raise
        log.cache.put(offset, record, size)
        return log, self.epoch, offset, end

    def _seal_a_little(self) -> None:
        """With the file's lock: somebody waits for his own record to be appended."""
        if self.promises:
            self._seal(partial(self._sealer.step, self.index.threads, self._end))
        else:
            self._sealer.postpone(self._end)  # nothing would say that it can be believed

    def _seal(self, seal: Callable[[int, Append], None]) -> None:
        """A log without a seal is as good, so what is in its way is only told."""
        try:
            seal(self._named_upto, lambda record: self._append(record, *payload_of(record)))
        except LogFileError as error:
            logger.warning("%s: the index could not be stored: %s", self.path, error)
            self._sealer.postpone(self._end)
            self._check_sound()

    def seal(self) -> bool:
        """Before a close: store the index, if the log has grown enough since the last time.

        Neither waits nor fails; left out if another process is writing just now, or has written.
        """
        with self.lock:
            if self._closed or self._forked or not self._own_end or not self._is_settled():
                return False
            if not self._sealer.is_due_at_close(self.index.threads, self._end):
                return False
            file = self.log.file
            with contextlib.suppress(OSError, LogFileError):
                try:
                    if (
                        file.try_lock()
                        and file.end() == self._end
                        and has_checksum(file, self._last_at, self._last)
                        and file.has_its_name()
                    ):
                        self._seal(partial(self._sealer.finish, self.index.threads))
                        return True
                finally:
                    file.flock(UNLOCK)
            return False

    def _is_settled(self) -> bool:
        """Whether nothing went wrong, and nothing is under way."""
        failure = self.log.committer.failure
        return not (self._index_is_stale or self._is_replacing or failure)

    def _undo_append(self, offset: int) -> None:
        """After a full disk, or Ctrl-C at any point: leave a whole frame or nothing of it.

        A whole frame stays, even though its caller does not hear of it: another process may have
        seen it. The index may have taken it in, wholly or by half, so it is built anew.
        """
        self._index_is_stale = True
        log = self.log
        try:
            log.cut_unless_whole(offset)
        except OSError as error:
            log.committer.poison(error)

    def current(self) -> Log:
        """The generation that is to be replaced."""
        with self.lock:
            self._check_writable()
            self.view()
            return self.log

    def replace(self, copy: Copy, successor: Successor) -> bool:
        """Put a copy of this log in its place; see rewriting.py. False if somebody was faster."""
        with self.lock:
            self._check_writable()
            try:
                self._lock_file()
                if self.log is not copy.source:
                    return False
                self._is_replacing = True
            finally:
                if not self._is_replacing:
                    self.log.file.flock(UNLOCK)
        try:
            self._replace(copy, successor)
        finally:
            with self.lock:
                self._is_replacing = False
                copy.source.file.flock(UNLOCK)
                self.log.file.flock(UNLOCK)
        return True

    def _replace(self, copy: Copy, successor: Successor) -> None:
        """With the file's lock. Without `lock` where it takes long: readers need not wait."""
        old = copy.source
        copy.catch_up_to(self._end)
        with self.lock:
            # Before the rename: from here on everybody looks at the name, so nobody misses it.
            self._is_replaced = True
            replaced = ReplacedRecord(copy.header.generation)
            self._append(replaced, *payload_of(replaced))
        if self.disk.replaces_open_files:
            successor.install(old.file)
        with self.lock:
            if not self.disk.replaces_open_files:
                self._install_with_old_closed(old, successor)
            self._go_on_with(copy, old.with_file(successor.keep(), copy.header, copy.encryption))
            if self._closed:
                self.log.close()

    def _install_with_old_closed(self, old: Log, successor: Successor) -> None:
        try:
            successor.install(old.file)
        except BaseException:
            self._adopt(reopen_log(old, read_only=False))
            raise

    def _go_on_with(self, copy: Copy, log: Log) -> None:
        """What `_adopt` does, without reading what we have just written."""
        self.log.committer.rest()
        self.log, self.index = log, copy.index
        self.epoch += 1
        self._end = self._own_end = self._watermark = copy.end
        self._last, self._last_at = copy.last, copy.last_at
        self._named_upto = log.header.data_start
        self._is_replaced = False
        self._sealed, self._sealer = None, Sealer(log.header.data_start)
        self._name_checked = time.monotonic()
        self._tell_committer(log)

    # -- reading

    def view(self) -> Index:
        """The index, up to date. The caller holds `lock` for as long as it looks."""
        self._check_open()
        if self._index_is_stale:
            self._read()
        if self.log.file.end() != self._end or self._is_replaced:
            self._follow()
            # Nobody has to hold a lock to look where the name leads. Until the rename, the old
            # file is the log; if its name is lost, it is all that is left to read.
            while self._is_replaced and not self._is_replacing and self._has_successor():
                self._adopt(reopen_log(self.log, read_only=self.read_only))
        return self.index

    def _has_successor(self) -> bool:
        return not self.log.file.has_its_name() and has_successor(self.log.file, self.log.header)

    # -- life cycle

    def is_sound(self) -> bool:
        """Whether it is worth sharing with somebody who opens the path now."""
        with self.lock:
            file = self.log.file
            if self._closed or self.log.committer.failure is not None:
                return False
            if self._forked or not has_checksum(file, self._last_at, self._last):
                return self._forked
            return file.has_its_name() or self._has_successor()

    def size(self) -> int:
        return self._end  # bytes that hold the header and whole frames

    def flush(self) -> None:
        """Return once everything written so far is on stable storage."""
        log, end = self.prepare_flush()
        log.committer.wait(end)

    def prepare_flush(self) -> tuple[Log, int]:
        """What has to be synced, and how far, for everything so far to be permanent."""
        with self.lock:
            self._check_open()
            if self.read_only:
                return self.log, 0
            self._check_sound()
            self.view()
            return self.log, self._end

    def is_dirty(self) -> bool:
        """Whether a close has something to sync, or a failure to tell."""
        committer = self.log.committer
        return self._own_end > committer.synced or committer.failure is not None

    def close(self, *, sync: bool = False) -> None:
        """Let go of the file; with `sync`, after what was appended is on stable storage."""
        with self.lock:
            if self._closed:
                return
            self._closed = True  # from here on nothing is appended
            if self._forked:
                return  # nothing here is ours
            committer = self.log.committer
        try:
            if sync and committer.failure is None:
                committer.wait(self._own_end)
        finally:
            committer.stop()
            with self.lock, contextlib.closing(self.log):
                if sync and self._is_settled() and self._own_end == self._end:
                    # Whoever appended last says that all is safe, for everybody before.
                    self.log.vouch(self._end, self._last, self._last_at)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedLogError(self.path, "this saver is closed; open the log again to use it")
        if self._forked:
            self._reopen_in_child()

    def _check_writable(self) -> None:
        if self._closed or self._forked:
            self._check_open()
        if self.read_only:
            raise ReadOnlyLogError(self.path, "it was opened with read_only=True; open it without")
        if self._is_replacing:
            raise LockBusyError
        self._check_sound()

    def _check_sound(self) -> None:
        committer = self.log.committer
        if committer.failure is not None:
            committer.check()
        if self._index_is_stale:
            self._read()
        if committer.sync.unsynced and self.promises:
            self.log.secure_what_was_there()

    # -- fork: see registry.py for who calls these

    def before_fork(self) -> bool:
        """Let no thread be in the middle of something. False if one does not come to an end."""
        return self.lock.acquire(timeout=1.0)

    def after_fork_in_parent(self) -> None:
        self.lock.release()

    def after_fork_in_child(self, *, is_consistent: bool) -> None:
        """Let go of what belongs to the parent: its locks, its threads, what it has to sync."""
        self.lock = threading.Lock()
        self._forked = True
        self._is_replacing = False
        self._own_end = 0
        self._index_is_stale = self._index_is_stale or not is_consistent

    def _reopen_in_child(self) -> None:
        old = self.log
        new = reopen_log(old, read_only=self.read_only)
        self._forked = False
        # Not the identity alone: a file that is gone may leave its number to another.
        if (new.file.identity, new.header) != (old.file.identity, old.header) or (
            self._index_is_stale
        ):
            self._adopt(new)
            return
        # The same file: what the parent knew of it is true here as well.
        self.log = new
        if self._sealed is not None:
            self._sealed.log = new
        self._tell_committer(new)
