"""A LangGraph checkpointer in one append-only file."""

from logsaver.aesgcm import AesGcmCipher
from logsaver.codec import Undecodable
from logsaver.errors import (
    ClosedLogError,
    CorruptLogError,
    InvalidInputError,
    LockTimeoutError,
    LogFileError,
    LogKeyError,
    LogOpenError,
    LogReadError,
    LogReplacedError,
    LogSaverError,
    LogWriteError,
    NotALogError,
    PoisonedLogError,
    ReadOnlyLogError,
    RecordTooLargeError,
    ThreadExistsError,
    UnsupportedFormatError,
    ValueDecodeError,
    ValueEncodeError,
)
from logsaver.inspecting import (
    ChannelUsage,
    StoredCheckpoint,
    StoredValue,
    StoredWrite,
    StoredWrites,
    Usage,
    restore,
    stored,
    usage,
)
from logsaver.listing import ThreadInfo
from logsaver.preview import Going, Preview
from logsaver.rekeying import rekey
from logsaver.repair import Damage, RepairReport, VerifyReport, repair, verify
from logsaver.retention import Retention
from logsaver.saver import LogSaver
from logsaver.statistics import Stats
from logsaver.upkeep import Compaction

__version__ = "0.1.0"

__all__ = [
    "AesGcmCipher",
    "ChannelUsage",
    "ClosedLogError",
    "Compaction",
    "CorruptLogError",
    "Damage",
    "Going",
    "InvalidInputError",
    "LockTimeoutError",
    "LogFileError",
    "LogKeyError",
    "LogOpenError",
    "LogReadError",
    "LogReplacedError",
    "LogSaver",
    "LogSaverError",
    "LogWriteError",
    "NotALogError",
    "PoisonedLogError",
    "Preview",
    "ReadOnlyLogError",
    "RecordTooLargeError",
    "RepairReport",
    "Retention",
    "Stats",
    "StoredCheckpoint",
    "StoredValue",
    "StoredWrite",
    "StoredWrites",
    "ThreadExistsError",
    "ThreadInfo",
    "Undecodable",
    "UnsupportedFormatError",
    "Usage",
    "ValueDecodeError",
    "ValueEncodeError",
    "VerifyReport",
    "rekey",
    "repair",
    "restore",
    "stored",
    "usage",
    "verify",
]
