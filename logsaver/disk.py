"""The only module that talks to the operating system.

`Disk` is the seam: everything below it is the kernel, everything above it can run on a
simulated disk that loses what was not synced. `PortableDisk` does the same with less where
`fcntl`, `os.pread` or `os.pwrite` do not exist, as on Windows.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

IS_POSIX: Final = fcntl is not None and hasattr(os, "pread") and hasattr(os, "pwrite")
NEW_FILE_MODE: Final = 0o600  # agent state is nobody else's business

# How `open` opens: an existing file, one that is made if there is none, one that must be new.
READ: Final = os.O_RDONLY
WRITE: Final = os.O_RDWR
CREATE: Final = os.O_RDWR | os.O_CREAT
CREATE_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL
# Not through a link that somebody else may have put there.
CREATE_HERE: Final = CREATE | getattr(os, "O_NOFOLLOW", 0)

# What `flock` is asked for: the lock, at once or not at all; and to give it back.
LOCK: Final = fcntl.LOCK_EX | fcntl.LOCK_NB if fcntl else 6
UNLOCK: Final = fcntl.LOCK_UN if fcntl else 8

# Their locks and syncs do not keep the promises that a log is built on.
NETWORK_FILE_SYSTEMS: Final = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs",
     "fuse.sshfs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs")
)  # fmt: skip


class Disk:
    """The system calls logsaver makes. One instance, `DISK`, serves the whole process."""

    replaces_open_files = True
    """Whether a rename onto a file succeeds while somebody has it open."""

    close = staticmethod(os.close)
    replace = staticmethod(os.replace)
    truncate = staticmethod(os.ftruncate)
    unlink = staticmethod(os.unlink)
    if IS_POSIX:
        pread = staticmethod(os.pread)
        pwrite = staticmethod(os.pwrite)
        # Advisory, of the open file and not of the process: a second open in this process
        # competes like a stranger, and closing one leaves the other's lock alone. Raises
        # `BlockingIOError` if somebody else has it.
        flock = staticmethod(fcntl.flock)

    def open(self, path: str, flags: int) -> int:
        """Open a regular file. Anything else is refused: a device could be replaced by a log."""
        # Without O_NONBLOCK, opening a pipe to read waits for somebody who writes to it.
        for name in ("O_BINARY", "O_CLOEXEC", "O_NONBLOCK"):
            flags |= getattr(os, name, 0)
        fd = os.open(path, flags, NEW_FILE_MODE)
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return fd
        os.close(fd)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise OSError(errno.EINVAL, "it is a pipe or a device; give the path of a file", path)

    def size(self, fd: int) -> int:
        # A third of the time of fstat, and nobody uses the cursor that it moves.
        return os.lseek(fd, 0, os.SEEK_END)

    def sizing(self, fd: int) -> Callable[[], int]:
        """`size` of one file. Each look at a log begins with it, so a `Disk` adds nothing to it."""
        if type(self).size is Disk.size:
            return partial(os.lseek, fd, 0, os.SEEK_END)
        return partial(self.size, fd)

    def identity(self, fd: int) -> tuple[int, int]:
        """What stays the same for as long as this is the same file."""
        status = os.fstat(fd)
        return status.st_dev, status.st_ino

    def identity_at(self, path: str) -> tuple[int, int] | None:
        """The identity of whatever has this name now."""
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise
        return status.st_dev, status.st_ino

    def sync(self, fd: int) -> None:
        """Return once everything written to `fd` is on stable storage."""
        if hasattr(fcntl, "F_FULLFSYNC"):
            # On macOS fsync only reaches the drive's cache.
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        elif hasattr(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            os.fsync(fd)

    def forget(self, fd: int, start: int, end: int) -> None:
        """Drop what the page cache holds of these bytes, as far as it is not to be written."""
        if hasattr(os, "posix_fadvise"):
            page = mmap.PAGESIZE
            start -= start % page  # only whole pages are dropped
            os.posix_fadvise(fd, start, -(-(end - start) // page) * page, os.POSIX_FADV_DONTNEED)

    def sync_directory(self, path: str) -> None:
        """Make a created, renamed or removed name in this directory permanent."""
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def copy_access(self, source: int, target: int) -> None:
        """Give `target` the owner, group and mode of `source`, as far as we may."""
        had, has = os.fstat(source), os.fstat(target)
        if hasattr(os, "fchown") and (had.st_uid, had.st_gid) != (has.st_uid, has.st_gid):
            # Only root can give a file away; to a group it belongs to, whoever is in it.
            for owner in (had.st_uid, -1):
                with contextlib.suppress(PermissionError):
                    os.fchown(target, owner, had.st_gid)
                    break
        if hasattr(os, "fchmod") and had.st_mode != has.st_mode:
            os.fchmod(target, stat.S_IMODE(had.st_mode))

    def lock_holder(self, fd: int) -> int | None:
        """The process that has the lock, where the system tells: Linux does."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            inode = str(os.fstat(fd).st_ino)
            with open("/proc/locks", encoding="ascii") as table:
                for line in table:
                    fields = line.split()  # 1: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF
                    if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                        return int(fields[4])
        return None

    def room(self, fd: int) -> int:
        """Bytes that are free on the disk of this file."""
        if not hasattr(os, "fstatvfs"):
            return sys.maxsize  # not known
        status = os.fstatvfs(fd)
        return status.f_bavail * status.f_frsize

    def network_file_system(self, fd: int) -> str | None:
        """The kind of network file system this file is on; None if local or not known."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            device = os.fstat(fd).st_dev
            number = f"{os.major(device)}:{os.minor(device)}"
            with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
                for line in table:
                    mount, _, source = line.partition(" - ")
                    if mount.split()[2] == number:
                        kind = source.split()[0]
                        return kind if kind in NETWORK_FILE_SYSTEMS else None
        return None


class PortableDisk(Disk):
    """For systems without `fcntl`, `os.pread` or `os.pwrite`.

    A read or write at a position is a seek and a read or write under a lock, so threads do not
    get in each other's way. The lock between processes is msvcrt's, on one byte far behind the
    frames of any but a huge log: there it excludes, and keeps nobody from reading.

    An open file cannot be replaced, so files are closed first, which gives back their locks. A
    process that opens the log, appends and closes it between that and the rename, which follows
    at once, would lose what it appended.
    """

    replaces_open_files = False

    _LOCKED_BYTE: Final = (1 << 31) - 2  # msvcrt counts with 32 bits

    def __init__(self) -> None:
        self._cursor = threading.Lock()

    def pread(self, fd: int, size: int, at: int) -> bytes:
        with self._cursor:
            os.lseek(fd, at, os.SEEK_SET)
            return os.read(fd, size)

    def pwrite(self, fd: int, data: bytes | memoryview, at: int) -> int:  # type: ignore[override]
        with self._cursor:
            os.lseek(fd, at, os.SEEK_SET)
            return os.write(fd, data)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def flock(self, fd: int, operation: int) -> None:  # type: ignore[override]
        import msvcrt  # noqa: PLC0415 - there is none elsewhere

        mode = msvcrt.LK_NBLCK if operation == LOCK else msvcrt.LK_UNLCK  # type: ignore[attr-defined]
        with self._cursor:
            os.lseek(fd, self._LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(fd, mode, 1)  # type: ignore[attr-defined]
            except OSError as error:
                if operation == LOCK and error.errno in (errno.EACCES, errno.EDEADLK):
                    raise BlockingIOError(errno.EAGAIN, "the lock is taken") from error
                if operation == LOCK:
                    raise
                # Not ours to give back. flock does not mind, and neither do its callers.

    def sync_directory(self, path: str) -> None:
        """Nothing to do: a directory cannot be opened, and renames are journalled."""

    def lock_holder(self, fd: int) -> int | None:  # noqa: ARG002
        """Not known: the system does not tell."""
        return None

    def network_file_system(self, fd: int) -> str | None:  # noqa: ARG002
        """Not known either."""
        return None


DISK: Final = Disk() if IS_POSIX and sys.platform != "win32" else PortableDisk()
