"""One open file of a log: positioned reads and writes, its lock, and the files beside it."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

from logsaver.disk import CREATE, CREATE_NEW, LOCK, READ, UNLOCK, WRITE, Disk
from logsaver.errors import ClosedLogError, LogOpenError, LogReadError, LogWriteError

COPY_CHUNK: Final = 1 << 20


class LogFile:
    """One open file. Reads and writes name their position; there is no cursor to share.

    Closed when nobody refers to it any more: whoever still reads an old generation of a log can
    finish, and nobody reads from a descriptor that means another file by now.
    """

    __slots__ = (
        "__weakref__", "_disk", "_fd", "_size", "flock", "identity", "path", "pread", "pwrite"
    )  # fmt: skip

    def __init__(self, disk: Disk, path: str, fd: int) -> None:
        self._disk = disk
        self._fd = fd
        self.path = path
        try:
            self.identity = disk.identity(fd)
        except BaseException:
            disk.close(fd)
            self._fd = -1
            raise
        # Bound once: they are most of what a put does.
        self.pread: Callable[[int, int], bytes] = partial(disk.pread, fd)
        self.pwrite: Callable[[bytes | memoryview, int], int] = partial(disk.pwrite, fd)
        self.flock: Callable[[int], None] = partial(disk.flock, fd)
        self._size = disk.sizing(fd)

    @classmethod
    def open_as(cls, disk: Disk, path: str, flags: int) -> LogFile:
        """Open a file so that a forked child knows of it; see `close_in_child`."""
        with opening:
            file = cls(disk, path, disk.open(path, flags))
            _open_files.add(file)
        return file

    @classmethod
    def open(cls, disk: Disk, path: str, *, read_only: bool) -> LogFile:
        """Open `path`; unless read-only, make an empty file if there is none."""
        try:
            return cls.open_as(disk, path, READ if read_only else CREATE)
        except OSError as error:
            raise open_error(path, error, read_only=read_only) from error

    def read(self, size: int, at: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        try:
            data = self.pread(size, at)
            if len(data) == size or not data:
                return data
            pieces = [data]
            missing = size - len(data)
            while missing and (data := self.pread(missing, at + size - missing)):
                pieces.append(data)
                missing -= len(data)
            return b"".join(pieces)
        except OSError as error:
            raise self._read_error(error, f"at byte {at}") from error

    def end(self) -> int:
        """The size of the file."""
        try:
            return self._size()
        except OSError as error:
            raise self._read_error(error, "for its size") from error

    def _read_error(self, error: OSError, what: str) -> LogReadError:
        return LogReadError(
            self.path,
            f"could not be read {what} ({error.strerror or error}). Nothing was changed; try "
            "again, and check the disk if that does not help",
            error.errno,
        )

    def write_error(self, error: OSError) -> LogWriteError:
        return LogWriteError(
            self.path,
            f"could not be written ({error.strerror or error}); nothing of this call was stored. "
            "Make room and try again",
            error.errno,
        )

    def write(self, data: bytes, at: int) -> None:
        """Write all of `data`, or raise having written some unknown part of it."""
        written = self.pwrite(data, at)
        if written == len(data):
            return
        rest = memoryview(data)[written:]
        while rest:
            # A short write is how a full disk begins; the next call says so with an errno.
            count = self.pwrite(rest, at + len(data) - len(rest))
            if count == 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            rest = rest[count:]

    def forget(self, start: int, end: int) -> None:
        self._disk.forget(self._fd, start, end)

    def truncate(self, size: int) -> None:
        self._disk.truncate(self._fd, size)

    def sync(self) -> None:
        self._disk.sync(self._fd)

    def sync_name(self) -> None:
        """Make the name that leads to this file permanent."""
        self._disk.sync_directory(directory_of(self.path))

    def admit_whom(self, other: LogFile) -> None:
        """Give this file the owner and the permissions of another, as far as we may."""
        self._disk.copy_access(other._fd, self._fd)

    def has_its_name(self) -> bool:
        """Whether `path` still leads to this very file."""
        try:
            return self._disk.identity_at(self.path) == self.identity
        except OSError as error:
            raise self._read_error(error, "for whether it is still there") from error

    def try_lock(self) -> bool:
        """Take the lock between processes unless another has it."""
        try:
            self.flock(LOCK)
        except BlockingIOError:
            return False
        return True

    def room(self) -> int:
        """Bytes that are free beside it."""
        try:
            return self._disk.room(self._fd)
        except OSError as error:
            raise self._read_error(error, "for how much room there is") from error

    def network_file_system(self) -> str | None:
        return self._disk.network_file_system(self._fd)

    # -- the files beside it

    def open_again(self, *, read_only: bool) -> LogFile:
        """Open whatever has the name now. Raises `FileNotFoundError` if nothing has."""
        return LogFile.open_as(self._disk, self.path, READ if read_only else WRITE)

    def save_aside(self, start: int, end: int) -> str:
        """Copy a range of bytes to a new file beside this one; returns its path."""
        number = 1
        while True:
            path = f"{self.path}.torn-{number}"
            try:
                fd = self._disk.open(path, CREATE_NEW)
            except FileExistsError:
                number += 1
                continue
            break
        copy = LogFile(self._disk, path, fd)
        try:
            for at in range(start, end, COPY_CHUNK):
                copy.write(self.read(min(COPY_CHUNK, end - at), at), at - start)
            copy.sync()
        except BaseException:
            # Half a file would pass for a whole one, and on a full disk take the last space.
            with contextlib.suppress(OSError):  # the first error is the one to report
                self._disk.unlink(path)
            raise
        finally:
            copy.close()
        return path

    # -- its end

    def close(self) -> None:
        """Close the descriptor, and with it give back the lock."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self.pread = self.pwrite = self._size = self._closed
            self.flock = self._closed_lock
            self._disk.close(fd)

    def is_closed(self) -> bool:
        return self._fd < 0

    def _closed(self, *_: object) -> NoReturn:
        # Not EBADF, and above all not some other file that got the same number.
        raise ClosedLogError(self.path, "this saver is closed; open the log again to use it")

    def _closed_lock(self, operation: int) -> None:
        if operation != UNLOCK:  # that went with the descriptor
            self._closed()

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # nobody is there to be told
            self.close()


# -- fork: see registry.py

opening = threading.Lock()
"""Held while a file is opened; whoever forks waits for that, so no file is unknown to the child."""
_open_files: weakref.WeakSet[LogFile] = weakref.WeakSet()


def close_in_child() -> None:
    """Close what the parent has open, whatever it was doing with it.

    Parent and child have the same open files, and so the same locks. Closing ours leaves the
    parent's lock alone, which unlocking would not. Keeping them open would keep its lock alive
    after it is dead.
    """
    for file in list(_open_files):
        file.close()
    _open_files.clear()


def directory_of(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))


def open_error(path: str, error: OSError, *, read_only: bool = False) -> LogOpenError:
    """What the operating system said, in terms of what to do."""
    return LogOpenError(path, _why_not_opened(path, error, read_only=read_only), error.errno)


def _why_not_opened(path: str, error: OSError, *, read_only: bool) -> str:
    directory = directory_of(path)
    if isinstance(error, IsADirectoryError) or os.path.isdir(path):
        return "this is a directory; give the path of a file, for example 'agent.log'"
    if isinstance(error, FileNotFoundError) and not os.path.isdir(directory):
        # By now the path is absolute: "~/agent.log" is "/where/we/are/~/agent.log".
        home = "; for your home directory use os.path.expanduser" if "/~" in directory else ""
        return f"the directory {directory} does not exist; create it first{home}"
    if isinstance(error, FileNotFoundError) and read_only:
        return "there is no such file"
    if isinstance(error, FileNotFoundError):
        return f"no file can be made in {directory}; give a path in another directory"
    if isinstance(error, PermissionError):
        is_there = not read_only and os.path.exists(path)
        instead = ", or use read_only=True" if is_there else ""
        return f"no permission; check who owns the file and its directory{instead}"
    return f"cannot be opened: {error.strerror or error}"
