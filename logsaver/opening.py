"""From a path to an open log: the file that has the name, made if there is none."""

from __future__ import annotations

import contextlib
import logging
import os

from logsaver.cipher import Cipher, check_cipher, encryption_of, new_header
from logsaver.disk import READ, Disk
from logsaver.errors import LogOpenError, LogReplacedError
from logsaver.log import DEFAULT_CACHE_BYTES, Log
from logsaver.logfile import LogFile
from logsaver.recovery import read_header
from logsaver.successor import SUFFIX, InUseError, Successor
from logsaver.waiting import LockBusyError

logger = logging.getLogger("logsaver")


def open_log(
    disk: Disk,
    path: str,
    cipher: Cipher | None = None,
    cache_bytes: int | None = None,
    *,
    read_only: bool,
) -> Log:
    """Open the log at `path`. An empty or missing file becomes a new log, unless read-only.

    Raises `LockBusyError` while somebody else is making it.
    """
    made: tuple[int, int] | None = None
    if cipher is not None and not read_only and disk.identity_at(path) is None:
        check_cipher(path, cipher)  # before there is a file
    while True:
        file = LogFile.open(disk, path, read_only=read_only)
        try:
            if read_only or file.end():
                header = read_header(file)
                cache = DEFAULT_CACHE_BYTES if cache_bytes is None else cache_bytes
                log = Log(file, header, encryption_of(path, header, cipher), cache_bytes=cache)
                log.committer.sync.name_is_safe = file.identity == made
                _warn_of_network(file)
                return log
            made = _create(disk, file, cipher)
        except BaseException:
            file.close()
            raise
        with contextlib.suppress(OSError):  # nobody has written to this one
            file.close()


def _create(disk: Disk, empty: LogFile, cipher: Cipher | None) -> tuple[int, int] | None:
    """Put a new log in place of the empty file and return its identity.

    None if somebody was faster.
    """
    if not empty.try_lock():
        raise LockBusyError
    # Whoever was faster held the lock of this very file, and then took its name away.
    if not empty.has_its_name():
        return None
    header = new_header(empty.path, os.urandom(16), 0, cipher)
    try:
        successor = Successor.claim(disk, empty.path)
        if successor is None:
            raise LockBusyError
        try:
            successor.file.write(header.encode(), 0)
            try:
                successor.install(empty)
            except InUseError:
                raise LockBusyError from None
            return successor.file.identity
        finally:
            successor.release()
    except OSError as error:
        raise LogOpenError(
            empty.path, f"a new log cannot be written: {error.strerror or error}", error.errno
        ) from error


def reopen_log(log: Log, *, read_only: bool) -> Log:
    """Open what has the name of this log now: the same file, or a later generation."""
    try:
        file = log.file.open_again(read_only=read_only)
    except OSError as error:
        raise LogOpenError(
            log.path, f"cannot be opened again: {error.strerror or error}", error.errno
        ) from error
    header = read_header(file)
    if header.file_id != log.header.file_id:
        raise LogReplacedError(
            log.path,
            "the file was replaced by another log while this saver had it open. Close this saver; "
            "then put the file back, or open the new one with a new saver",
        )
    return log.with_file(file, header, encryption_of(log.path, header, log.cipher))


def lock_holder(disk: Disk, path: str) -> int | None:
    """The process that has the lock of this log, or that of the file which is to replace it."""
    for name in (path, path + SUFFIX):
        with contextlib.suppress(OSError):
            fd = disk.open(name, READ)
            try:
                if (pid := disk.lock_holder(fd)) is not None:
                    return pid
            finally:
                disk.close(fd)
    return None


def _warn_of_network(file: LogFile) -> None:
    kind = file.network_file_system()
    if kind is not None:
        logger.warning(
            "%s: this is on a network file system (%s). Locks and syncs cannot be relied on there, "
            "and logsaver does not support it; keep the log on a local disk",
            file.path,
            kind,
        )
