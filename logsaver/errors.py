"""Every exception that logsaver raises on purpose.

    LogSaverError
    ├── LogFileError                 about the file; has .path
    │   ├── LogOpenError             (OSError) it cannot be opened or created
    │   ├── NotALogError             it is not a logsaver file
    │   ├── UnsupportedFormatError   a newer logsaver wrote it
    │   ├── LogKeyError              the key and the log do not go together
    │   ├── CorruptLogError          bytes that were safely stored are damaged; has .offset
    │   ├── LockTimeoutError         (TimeoutError) another process does not let go of its lock
    │   ├── LogReadError             (OSError) the operating system cannot read it
    │   ├── LogWriteError            (OSError) a write did not go through and was undone
    │   ├── LogReplacedError         it was deleted, replaced or cut while it was open
    │   ├── PoisonedLogError         stable storage failed; only reopening helps
    │   ├── ReadOnlyLogError         it was opened with read_only=True
    │   └── ClosedLogError           it was closed
    ├── InvalidInputError            (ValueError) an argument the saver cannot work with
    │   └── ThreadExistsError        copy_thread onto a thread that has checkpoints
    ├── RecordTooLargeError          (ValueError) one put is larger than a frame can be
    ├── ValueEncodeError             (TypeError) the serializer refused a value
    └── ValueDecodeError             the serializer cannot read a stored value back

Each says in its message what to do next.
"""

from __future__ import annotations

from typing import Final

RESTORE_OR_REPAIR: Final = (
    "restore the file from a backup, or save what is intact with logsaver.repair(path, out); "
    "logsaver.verify(path) shows all that is damaged"
)


class LogSaverError(Exception):
    """The root: catch this to catch everything logsaver raises on purpose."""


class LogFileError(LogSaverError):
    """Something about the log file itself; `path` names it."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class LogOpenError(LogFileError, OSError):
    """Raised when the file cannot be opened or created; `errno` says why."""

    def __init__(self, path: str, message: str, errno: int | None = None) -> None:
        super().__init__(path, message)
        self.errno = errno


class NotALogError(LogFileError):
    """Raised when the file does not start like a logsaver log. It is left untouched."""


class UnsupportedFormatError(LogFileError):
    """Raised when a newer logsaver wrote the file, or a part of it."""


class LogKeyError(LogFileError):
    """Raised when a log is encrypted and the key is missing or another, or when it is not."""


class CorruptLogError(LogFileError):
    """Raised when bytes that were safely stored are damaged. Nothing is changed."""

    def __init__(self, path: str, offset: int, message: str) -> None:
        super().__init__(path, f"damaged at byte {offset}: {message}")
        self.offset = offset


class LockTimeoutError(LogFileError, TimeoutError):
    """Raised when another process kept the log locked for longer than `lock_timeout`."""


class LogReplacedError(LogFileError):
    """Raised when the file was deleted, replaced or cut under an open saver."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.told = path, message  # so that it can be raised again for each caller


class LogReadError(LogFileError, OSError):
    """Raised when the operating system cannot read the file; `errno` says why."""

    def __init__(self, path: str, message: str, errno: int | None = None) -> None:
        super().__init__(path, message)
        self.errno = errno


class LogWriteError(LogFileError, OSError):
    """Raised when a write did not go through. It was undone; the log stays usable."""

    def __init__(self, path: str, message: str, errno: int | None = None) -> None:
        super().__init__(path, message)
        self.errno = errno


class PoisonedLogError(LogFileError):
    """Raised after stable storage failed: what was not acknowledged may be lost."""


class ReadOnlyLogError(LogFileError):
    """Raised by every write on a log that was opened with `read_only=True`."""


class ClosedLogError(LogFileError):
    """Raised by every call after `close()`."""


class InvalidInputError(LogSaverError, ValueError):
    """Raised when an argument cannot be worked with. Nothing was stored."""


class ThreadExistsError(InvalidInputError):
    """Raised when `copy_thread` would write onto a thread that has checkpoints."""


class RecordTooLargeError(LogSaverError, ValueError):
    """Raised when one put is larger than a frame can be. Nothing was stored."""


class ValueEncodeError(LogSaverError, TypeError):
    """Raised when the serializer refuses a value. Nothing of that call was stored."""


class ValueDecodeError(LogSaverError):
    """Raised when the serializer cannot read a stored value back."""
