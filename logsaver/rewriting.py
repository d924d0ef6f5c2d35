"""Rewrites a log as a new generation and puts that in its place, while others read and write.

    copy        all whole frames, without any lock; others append meanwhile
    sync        most of the new file, still without a lock; again, if much came meanwhile
    catch up    under the log's lock: what came meanwhile
    tell        a last record in the old file, so that whoever follows it looks at its name
    install     sync, rename, sync the directory; see successor.py for what a crash leaves

Only the last three keep writers waiting, and they have little to do. Who waited for the old
file's lock finds that the file has lost its name, and goes on with the new one. A reader of the
old file sees the last record and does the same. If we are killed before the rename, that record
is followed by others and means nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from logsaver.cipher import Cipher
from logsaver.copying import Copy
from logsaver.errors import LogFileError, LogWriteError
from logsaver.log import Log
from logsaver.logfile import LogFile
from logsaver.store import Store
from logsaver.successor import InUseError, Successor
from logsaver.waiting import LockBusyError

TRIES: Final = 50  # where an open file cannot be replaced
PAUSE: Final = 0.02  # seconds
LITTLE: Final = 1 << 15  # bytes that may be left to copy and to sync while others wait
ROUNDS: Final = 16


class Key(NamedTuple):
    """How a log is to be encrypted; without a cipher, not at all."""

    cipher: Cipher | None


Make = Callable[[Log, LogFile, "Cipher | None"], Copy]


def rewrite(store: Store, key: Key | None = None, *, make: Make = Copy) -> bool:
    """Put a new generation in the log's place. False if somebody else is doing that.

    It is encrypted as the log is, unless `key` says otherwise. If it fails, the log is as before.
    """
    pauses = [PAUSE] * TRIES
    while True:
        try:
            return _rewrite(store, key, make)
        except InUseError as error:
            # Everything anew, the copy as well: meanwhile anybody may have appended.
            if not pauses:
                raise _not_rewritten(store, error) from error
            time.sleep(pauses.pop())
        except LogFileError:
            raise
        except OSError as error:
            raise _not_rewritten(store, error) from error


def _rewrite(store: Store, key: Key | None, make: Make) -> bool:
    try:
        source = store.current()
    except LockBusyError:
        return False  # another of our threads
    successor = Successor.claim(store.disk, store.path)
    if successor is None:
        return False
    try:
        copy = make(source, successor.file, source.cipher if key is None else key.cipher)
        copy.catch_up()
        copy.settle()
        rest = source.file.end() - copy.position
        for _ in range(ROUNDS):
            if rest < LITTLE:
                break
            copy.catch_up()
            copy.sync()
            before, rest = rest, source.file.end() - copy.position
            if rest > before // 4 and not copy.hasten():
                break  # it does not get better by waiting
        copy.hurry()
        return store.waiting.insist(lambda: store.replace(copy, successor))
    finally:
        successor.release()


def _not_rewritten(store: Store, error: OSError) -> LogWriteError:
    return LogWriteError(
        store.path,
        f"could not be rewritten ({error.strerror or error}); nothing of it is lost. Make room, "
        "or close what has it open, and try again",
        error.errno,
    )
