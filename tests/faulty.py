"""A simulated disk on which the n-th call of a kind goes wrong."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from simdisk import Files, SimDisk, Truncate, _apply_truncate, _apply_write

from logsaver.disk import LOCK

BEFORE = "Ctrl-C before it"
AFTER = "Ctrl-C after it"
HALF = "half of it"
NOTHING = "none of it"


class Fault(NamedTuple):
    """The `number`-th call of this kind goes wrong, and with `lasting` all later ones too.

    `how` is an errno or one of the words above. `then` is a kind of call of which the next one
    after that fails with EIO.
    """

    operation: str
    number: int
    how: int | str
    lasting: bool = False
    then: str = ""

    def __str__(self) -> str:
        how = self.how if isinstance(self.how, str) else errno.errorcode[self.how]
        more = f", then {self.then} fails" if self.then else ""
        return f"{self.operation} {self.number}{' and later' * self.lasting}: {how}{more}"


def _faulty(operation: str) -> Callable[..., Any]:
    """The operation of `SimDisk`, unless it is its turn to go wrong."""

    def call(disk: FaultyDisk, *args: Any) -> Any:
        how = disk.next_outcome(operation)
        do = disk.sync_what_is_dirty if operation == "sync" else getattr(SimDisk, operation)
        if operation == "close":
            do(disk, *args)  # whatever is reported, the descriptor is gone, as on Linux
            result = None
        if isinstance(how, int):
            if operation == "sync" and how == errno.EIO:
                disk.lose_dirty_pages(*args)
            raise OSError(how, os.strerror(how))
        if how == BEFORE:
            raise KeyboardInterrupt
        if how in (HALF, NOTHING):
            args = disk.less_of(operation, how, args)
        if operation != "close":
            result = do(*args) if operation == "sync" else do(disk, *args)
        if how == AFTER:
            if operation == "open":
                SimDisk.close(disk, result)  # nobody learns this descriptor
            raise KeyboardInterrupt
        return result

    return call


class FaultyDisk(SimDisk):
    """Counts every call by its kind; the one that `fault` names goes wrong.

    A sync that fails with EIO leaves the pages clean and lost: they read back, but no later sync
    makes them durable unless they are written again. One that fails otherwise leaves them dirty.
    """

    def __init__(self, files: Files | None = None, fault: Fault | None = None) -> None:
        super().__init__(files)
        self.fault = fault
        self.counts: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    open, close, pread, pwrite = map(_faulty, ("open", "close", "pread", "pwrite"))
    truncate, replace, unlink, size = map(_faulty, ("truncate", "replace", "unlink", "size"))
    identity, identity_at = _faulty("identity"), _faulty("identity_at")
    sync, sync_directory = _faulty("sync"), _faulty("sync_directory")
    _lock = _faulty("flock")

    def flock(self, fd: int, operation: int) -> None:
        """To get a lock may fail; to give it back does not."""
        if operation == LOCK:
            self._lock(fd, operation)
        else:
            super().flock(fd, operation)

    @contextmanager
    def healthy(self) -> Iterator[None]:
        """Nothing goes wrong, and nothing is counted, for as long as this lasts."""
        fault, counts = self.fault, self.counts.copy()
        self.fault = None
        try:
            yield
        finally:
            self.fault, self.counts = fault, counts

    def next_outcome(self, operation: str) -> int | str | None:
        self.counts[operation] += 1
        fault, count = self.fault, self.counts[operation]
        if fault is None:
            return None
        is_first = fault.operation == operation and count == fault.number
        is_later = fault.operation == operation and count > fault.number and fault.lasting
        is_then = fault.then == operation and bool(self.failed) and not self.failed[operation]
        if is_first or is_later or is_then:
            self.failed[operation] += 1
            return errno.EIO if is_then else fault.how
        return None

    @staticmethod
    def less_of(operation: str, how: int | str | None, args: tuple[Any, ...]) -> tuple[Any, ...]:
        fd, what, at = args
        if operation == "pread":
            return fd, max(1, what // 2), at
        return fd, bytes(what)[: 0 if how == NOTHING else max(1, len(what) // 2)], at

    def sync_what_is_dirty(self, fd: int) -> None:
        inode = self.open_files[fd]
        content = bytearray(inode.durable)
        for operation in inode.pending:
            if isinstance(operation, Truncate):
                _apply_truncate(content, operation.size)
            else:
                _apply_write(content, *operation)
        SimDisk.sync(self, fd)
        inode.durable = bytes(content)

    def lose_dirty_pages(self, fd: int) -> None:
        inode = self.open_files[fd]
        inode.pending = [done for done in inode.pending if isinstance(done, Truncate)]
