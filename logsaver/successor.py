"""The file that takes a log's place: written beside it, then renamed onto it.

There is one at a time, `agent.log.logsaver-new`, and whoever has its lock is the one who makes
it. So at most one process replaces a log, and what a killed one left behind is simply claimed by
the next.

What a crash or a kill leaves, step by step:

    claim          an empty new file; the next claim takes it over
    write, sync    the same with something in it; the log is untouched
    rename         the old or the new file has the name; both are whole and synced
    sync the name  the new one, for good

The lock of the new file goes along with it: from the rename on it is the lock of the log, so
nobody writes to the new file before its maker is done.
"""

from __future__ import annotations

import contextlib

from logsaver.disk import CREATE_HERE, Disk
from logsaver.logfile import LogFile

SUFFIX = ".logsaver-new"


class InUseError(OSError):
    """Raised where a file that somebody has open, be it a virus scanner, cannot be replaced."""


class Successor:
    """A claimed new file: write to `file`, `install` it, and in any case `release` it."""

    __slots__ = ("_disk", "_is_installed", "_is_kept", "_target", "file")

    def __init__(self, disk: Disk, target: str, file: LogFile) -> None:
        self._disk = disk
        self._target = target
        self._is_installed = self._is_kept = False
        self.file = file

    @classmethod
    def claim(cls, disk: Disk, target: str) -> Successor | None:
        """The new file of the log at `target`, empty; None if somebody else has it."""
        path = target + SUFFIX
        while True:
            file = LogFile.open_as(disk, path, CREATE_HERE)
            try:
                if not file.try_lock():
                    file.close()
                    return None
                # Between our open and our lock its maker may have renamed it: then what we
                # have locked is the log itself.
                if file.has_its_name():
                    if file.end():
                        file.truncate(0)
                    return cls(disk, target, file)
            except BaseException:
                file.close()
                raise
            file.close()

    def install(self, old: LogFile) -> None:
        """Put it in the place of `old`, all or nothing. It stays locked."""
        self.file.admit_whom(old)
        # Synced before the rename: after it, this file is the only copy.
        self.file.sync()
        if self._disk.replaces_open_files:
            self._disk.replace(self._target + SUFFIX, self._target)
        else:
            self._close_and_replace(old)
        self._is_installed = True
        self.file.path = self._target
        self.file.sync_name()

    def _close_and_replace(self, old: LogFile) -> None:
        old.close()
        self.file.close()
        try:
            self._disk.replace(self._target + SUFFIX, self._target)
        except PermissionError as error:
            raise InUseError(*error.args) from error
        self.file = LogFile.open(self._disk, self._target, read_only=False)

    def keep(self) -> LogFile:
        """The installed file, locked; whoever calls this owns it from now on."""
        self._is_kept = True
        return self.file

    def release(self) -> None:
        """Give back the lock. A file that was not installed goes."""
        if self._is_kept:
            return
        if not self._is_installed:
            with contextlib.suppress(OSError):  # whatever led here is the error to report
                # Interrupted right after the rename, it is not there any more, or another's.
                if self._disk.identity_at(self._target + SUFFIX) == self.file.identity:
                    self._disk.unlink(self._target + SUFFIX)
        self.file.close()


def sweep(disk: Disk, target: str) -> None:
    """Remove what a killed maker left behind; what somebody is making stays.

    Best effort: it is in nobody's way, and may belong to somebody else.
    """
    with contextlib.suppress(OSError):
        if disk.identity_at(target + SUFFIX) is not None:
            abandoned = Successor.claim(disk, target)
            if abandoned is not None:
                abandoned.release()
