"""A disk that remembers what was not synced, and can crash.

It stands behind `logsaver.disk.Disk`, the one seam to the operating system, and records every
write, truncate, sync, rename, unlink and directory sync. `crash_states` gives the files as they
may be found after a power failure at this moment:

* Each unsynced write is cut into 512-byte sectors. Each sector independently is kept, lost,
  zeroed or garbled. Sectors that overwrite bytes which were durable before are kept or lost
  only: drives write a sector whole or not at all, and what is garbled in practice is space that
  was allocated but not written yet.
* Each unsynced truncate independently happened or not.
* Each unsynced change of a name independently happened or not; a file is only reachable through
  a name that survived.

A sync makes all earlier writes and truncates of its file permanent, a directory sync all earlier
changes of names.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from logsaver.disk import UNLOCK, Disk

SECTOR = 512
KEEP, LOSE, ZERO, GARBLE = range(4)


class Write(NamedTuple):
    at: int
    data: bytes


class Truncate(NamedTuple):
    size: int


@dataclass
class Inode:
    number: int
    durable: bytes = b""
    current: bytearray = field(default_factory=bytearray)
    pending: list[Write | Truncate] = field(default_factory=list)
    locked_by: int | None = None


class Rename(NamedTuple):
    """A name that now leads to an inode (None: to nothing), and perhaps one that no longer does."""

    name: str
    inode: int | None
    gone: str | None = None


Files = dict[str, bytes]


class SimDisk(Disk):
    """Files in memory. `operations` counts calls that change something."""

    def __init__(self, files: Files | None = None) -> None:
        self.inodes: dict[int, Inode] = {}
        self.names: dict[str, int] = {}
        self.durable_names: dict[str, int] = {}
        self.pending_names: list[Rename] = []
        self.open_files: dict[int, Inode] = {}
        self.operations = 0
        self.log: list[str] = []  # what was done, in order, for tests that check the order
        self._numbers = itertools.count(1)
        self._fds = itertools.count(1000)
        for name, content in (files or {}).items():
            inode = self._new_inode()
            inode.durable, inode.current = content, bytearray(content)
            self.names[name] = self.durable_names[name] = inode.number

    # -- hooks for tests

    def before(self, operation: str, name: str) -> None:
        """Called before each operation that changes something; a subclass may raise."""

    def after(self, operation: str) -> None:
        """Called after each of them; a subclass may take a picture."""

    def _did(self, operation: str) -> None:
        self.operations += 1
        self.log.append(operation)
        self.after(operation)

    # -- the seam

    def open(self, path: str, flags: int) -> int:
        number = self.names.get(path)
        if number is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.before("create", path)
            inode = self._new_inode()
            self.names[path] = inode.number
            self.pending_names.append(Rename(path, inode.number))
            self._did("create")
        else:
            if flags & os.O_EXCL:
                raise FileExistsError(errno.EEXIST, "file exists", path)
            inode = self.inodes[number]
            if flags & os.O_TRUNC:
                self._truncate(inode, 0)
        fd = next(self._fds)
        self.open_files[fd] = inode
        return fd

    def close(self, fd: int) -> None:
        inode = self.open_files.pop(fd)
        if inode.locked_by == fd:
            inode.locked_by = None

    def pread(self, fd: int, size: int, at: int) -> bytes:
        return bytes(self.open_files[fd].current[at : at + size])

    def pwrite(self, fd: int, data: bytes, at: int) -> int:
        inode = self.open_files[fd]
        self.before("write", self.name_of(inode))
        _apply_write(inode.current, at, bytes(data))
        inode.pending.append(Write(at, bytes(data)))
        self._did("write")
        return len(data)

    def truncate(self, fd: int, size: int) -> None:
        self._truncate(self.open_files[fd], size)

    def _truncate(self, inode: Inode, size: int) -> None:
        self.before("truncate", self.name_of(inode))
        _apply_truncate(inode.current, size)
        inode.pending.append(Truncate(size))
        self._did("truncate")

    def sync(self, fd: int) -> None:
        inode = self.open_files[fd]
        self.before("sync", self.name_of(inode))
        inode.durable = bytes(inode.current)
        inode.pending.clear()
        self._did("sync")

    def forget(self, fd: int, start: int, end: int) -> None:
        """There is no cache here beside what is pending."""

    def replace(self, source: str, target: str) -> None:
        self.before("replace", target)
        number = self.names.pop(source)
        self.names[target] = number
        self.pending_names.append(Rename(target, number, gone=source))
        self._did("replace")

    def unlink(self, path: str) -> None:
        self.before("unlink", path)
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        del self.names[path]
        self.pending_names.append(Rename(path, None))
        self._did("unlink")

    def sync_directory(self, path: str) -> None:
        self.before("sync_directory", path)
        self.durable_names = dict(self.names)
        self.pending_names.clear()
        self._did("sync_directory")

    def size(self, fd: int) -> int:
        return len(self.open_files[fd].current)

    def identity(self, fd: int) -> tuple[int, int]:
        return 0, self.open_files[fd].number

    def identity_at(self, path: str) -> tuple[int, int] | None:
        number = self.names.get(path)
        return None if number is None else (0, number)

    def flock(self, fd: int, operation: int) -> None:
        inode = self.open_files[fd]
        if operation == UNLOCK:
            if inode.locked_by == fd:
                inode.locked_by = None
        elif inode.locked_by not in (None, fd):
            raise BlockingIOError(errno.EAGAIN, "locked")
        else:
            inode.locked_by = fd

    def copy_access(self, source: int, target: int) -> None:
        """There are no owners here."""

    def lock_holder(self, fd: int) -> int | None:
        return None

    def network_file_system(self, fd: int) -> str | None:
        return None

    # -- crashing

    def name_of(self, inode: Inode) -> str:
        return next((name for name, number in self.names.items() if number == inode.number), "?")

    def files(self) -> Files:
        """What a process sees now."""
        return {name: bytes(self.inodes[number].current) for name, number in self.names.items()}

    def picture(self) -> Picture:
        """Everything a crash at this moment can depend on."""
        return Picture(
            {
                number: (inode.durable, tuple(inode.pending))
                for number, inode in self.inodes.items()
            },
            dict(self.durable_names),
            tuple(self.pending_names),
        )

    def after_a_kill(self) -> SimDisk:
        """The same disk without this process: nothing is open, locked or lost."""
        other = SimDisk()
        other.inodes = {
            number: Inode(number, inode.durable, bytearray(inode.current), list(inode.pending))
            for number, inode in self.inodes.items()
        }
        other.names, other.durable_names = dict(self.names), dict(self.durable_names)
        other.pending_names = list(self.pending_names)
        other._numbers = itertools.count(max(self.inodes, default=0) + 1)
        return other

    def _new_inode(self) -> Inode:
        inode = Inode(next(self._numbers))
        self.inodes[inode.number] = inode
        return inode


class _Choice(NamedTuple):
    """One thing a crash decides: a change of a name, a truncate, or one sector of a write."""

    inode: int | None
    operation: Rename | Truncate | Write
    outcomes: tuple[int, ...]


class Picture(NamedTuple):
    """A disk at one moment: what is durable, and what is pending."""

    inodes: dict[int, tuple[bytes, tuple[Write | Truncate, ...]]]
    durable_names: dict[str, int]
    pending_names: tuple[Rename, ...]

    def choices(self) -> list[_Choice]:
        found = [_Choice(None, change, (KEEP, LOSE)) for change in self.pending_names]
        for number, (durable, pending) in self.inodes.items():
            for operation in pending:
                if isinstance(operation, Truncate):
                    found.append(_Choice(number, operation, (KEEP, LOSE)))
                    continue
                for piece in _sectors(operation):
                    is_new_space = piece.at + len(piece.data) > len(durable)
                    outcomes = (KEEP, LOSE, ZERO, GARBLE) if is_new_space else (KEEP, LOSE)
                    found.append(_Choice(number, piece, outcomes))
        return found

    def count(self) -> int:
        """How many ways there are to crash here."""
        total = 1
        for choice in self.choices():
            total *= len(choice.outcomes)
        return total

    def every_crash(self) -> Iterator[Files]:
        choices = self.choices()
        for outcomes in itertools.product(*(choice.outcomes for choice in choices)):
            yield self._files(choices, outcomes)

    def some_crash(self, randomness: random.Random) -> Files:
        """One crash. Extremes are as likely as mixtures: most bugs live at the edges."""
        choices = self.choices()
        style = randomness.randrange(6)
        if style < 4:
            # Everything up to some point is as one outcome, the rest as another.
            cut = randomness.randint(0, len(choices))
            first, second = randomness.choice((KEEP, style)), style
            picked = [first if i < cut else second for i in range(len(choices))]
        else:
            picked = [randomness.randrange(4) for _ in choices]
        outcomes = [
            pick if pick in choice.outcomes else choice.outcomes[pick % len(choice.outcomes)]
            for pick, choice in zip(picked, choices, strict=True)
        ]
        return self._files(choices, outcomes)

    def _files(self, choices: list[_Choice], outcomes: Iterator[int] | list[int]) -> Files:
        names = dict(self.durable_names)
        contents = {number: bytearray(durable) for number, (durable, _) in self.inodes.items()}
        for choice, outcome in zip(choices, outcomes, strict=True):
            if outcome == LOSE:
                continue
            operation = choice.operation
            if isinstance(operation, Rename):
                if operation.gone is not None:
                    names.pop(operation.gone, None)
                if operation.inode is None:
                    names.pop(operation.name, None)
                else:
                    names[operation.name] = operation.inode
            elif isinstance(operation, Truncate):
                _apply_truncate(contents[choice.inode], operation.size)
            else:
                self._write(contents[choice.inode], choice, operation, outcome)
        return {name: bytes(contents[number]) for name, number in names.items()}

    def _write(self, content: bytearray, choice: _Choice, piece: Write, outcome: int) -> None:
        at, data = piece
        if outcome != KEEP:
            # Bytes that were durable stay what they were: see the module's docstring.
            durable = len(self.inodes[choice.inode][0])
            spared = max(0, min(len(data), durable - at))
            at, size = at + spared, len(data) - spared
            noise = random.Random(at).randbytes(size)
            data = bytes(size) if outcome == ZERO else noise
        _apply_write(content, at, data)


def _sectors(write: Write) -> Iterator[Write]:
    start, end = write.at, write.at + len(write.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        yield Write(start, write.data[start - write.at : stop - write.at])
        start = stop


def _apply_write(content: bytearray, at: int, data: bytes) -> None:
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


def _apply_truncate(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
