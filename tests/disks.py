"""Disks for tests: one in memory, and ways to make it fail at a chosen moment.

Everything goes through the seam in `logsaver.disk.Disk`. A test hands its disk to
`Store(path, disk=disk)`, or to `open_saver` for a whole `LogSaver`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

from logsaver import LogSaver
from logsaver.disk import UNLOCK, Disk
from logsaver.store import Store

PATH = "/memory/agent.log"


class Call(NamedTuple):
    """One call on a disk. `at` and `data` are of writes and truncates only."""

    name: str
    path: str
    at: int = 0
    data: bytes = b""


class File:
    """A file's bytes, whatever name it has."""

    def __init__(self, content: bytes = b"") -> None:
        self.data = bytearray(content)


class _Open(NamedTuple):
    path: str
    file: File
    writable: bool


class MemoryDisk(Disk):
    """Files in a dict. `calls` tells what was done to them; `on(call)` may raise.

    `on` runs before the call has any effect. For a write it may return how many bytes the
    write takes, fewer than asked for.
    """

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = {path: File(content) for path, content in (files or {}).items()}
        self.calls: list[Call] = []
        self.on: Callable[[Call], int | None] = lambda call: None
        self._open: dict[int, _Open] = {}
        self._locked: set[int] = set()
        self._next_fd = 1000

    def content(self, path: str = PATH) -> bytes:
        return bytes(self.files[path].data)

    def named(self, *names: str) -> list[Call]:
        """The calls with these names, in order."""
        assert NAMES.issuperset(names), names  # or a test that finds none of them says nothing
        return [call for call in self.calls if call.name in names]

    def _note(self, name: str, path: str, at: int = 0, data: bytes = b"") -> int | None:
        call = Call(name, path, at, data)
        self.calls.append(call)
        return self.on(call)

    def open(self, path: str, flags: int) -> int:
        writable = bool(flags & (os.O_RDWR | os.O_WRONLY))
        self._note("open-to-write" if writable else "open", path)
        if path in self.files and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "exists", path)
        if path not in self.files:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.files[path] = File()
        if flags & os.O_TRUNC:
            self.files[path].data.clear()
        self._next_fd += 1
        self._open[self._next_fd] = _Open(path, self.files[path], writable)
        return self._next_fd

    def close(self, fd: int) -> None:
        self._locked.discard(fd)
        del self._open[fd]

    def pread(self, fd: int, size: int, at: int) -> bytes:
        path, file, _ = self._open[fd]
        self._note("read", path, at)
        return bytes(file.data[at : at + size])

    def pwrite(self, fd: int, data: Any, at: int) -> int:
        path, file, writable = self._open[fd]
        if not writable:
            raise OSError(errno.EBADF, "opened to read only")
        takes = self._note("write", path, at, bytes(data))
        taken = bytes(data) if takes is None else bytes(data)[:takes]
        if at > len(file.data):
            file.data.extend(bytes(at - len(file.data)))
        file.data[at : at + len(taken)] = taken
        return len(taken)

    def truncate(self, fd: int, size: int) -> None:
        path, file, _ = self._open[fd]
        self._note("truncate", path, size)
        del file.data[size:]

    def forget(self, fd: int, start: int, end: int) -> None:
        self._note("forget", self._open[fd].path, start)

    def replace(self, source: str, target: str) -> None:
        self._note("replace", target)
        self.files[target] = self.files.pop(source)

    def unlink(self, path: str) -> None:
        self._note("unlink", path)
        del self.files[path]

    def size(self, fd: int) -> int:
        path, file, _ = self._open[fd]
        self._note("size", path)
        return len(file.data)

    def identity(self, fd: int) -> tuple[int, int]:
        return 0, id(self._open[fd].file)

    def identity_at(self, path: str) -> tuple[int, int] | None:
        return (0, id(self.files[path])) if path in self.files else None

    def sync(self, fd: int) -> None:
        self._note("sync", self._open[fd].path)

    def sync_directory(self, path: str) -> None:
        self._note("sync-directory", path)

    def flock(self, fd: int, operation: int) -> None:
        mine = self._open[fd].file
        if operation == UNLOCK:
            self._locked.discard(fd)
        elif any(self._open[other].file is mine for other in self._locked - {fd}):
            raise BlockingIOError(errno.EAGAIN, "locked")
        else:
            self._locked.add(fd)

    def copy_access(self, source: int, target: int) -> None:
        """There are no owners here."""

    def lock_holder(self, fd: int) -> int | None:
        return None

    def network_file_system(self, fd: int) -> str | None:
        return None


CHANGING = ("open-to-write", "write", "truncate", "replace", "unlink", "sync", "sync-directory")
NAMES = {*CHANGING, "open", "read", "size", "forget"}


def open_saver(disk: Disk, path: str = PATH, **options: Any) -> LogSaver:
    """A `LogSaver` whose store is on this disk."""

    def open_store(path: str, **settings: Any) -> Store:
        return Store(path, disk=disk, **settings)

    with mock.patch("logsaver.saver.open_store", open_store):
        return LogSaver(path, **options)


def out_of_space(number: int, after: int = 0) -> Callable[[Call], int | None]:
    """The next write of frames takes `after` bytes; the call after that fails with `number`."""
    seen = 0

    def on(call: Call) -> int | None:
        nonlocal seen
        if call.name != "write":
            return None
        seen += 1
        if seen == 1 and after:
            return after
        raise OSError(number, os.strerror(number))

    return on


def fail(name: str, error: BaseException) -> Callable[[Call], None]:
    """Every call with this name raises."""

    def on(call: Call) -> None:
        if call.name == name:
            raise error

    return on
