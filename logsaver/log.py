"""One generation of a log, open: its header, its records by position, and who waits for it.

A log that is replaced goes on under the same name as a new generation, in a new file with new
positions. A position means something only together with its generation, so what the index knows
of a checkpoint is handed out with the `Log` it is in. An old generation can be read for as long
as somebody holds it.
"""

from __future__ import annotations

import contextlib
from typing import Final, TypeVar

from logsaver.cache import Recent
from logsaver.cipher import Cipher, Encode, Encryption, encoder, record_in
from logsaver.disk import UNLOCK
from logsaver.durability import Committer
from logsaver.errors import (
    RESTORE_OR_REPAIR,
    CorruptLogError,
    InvalidInputError,
    LogFileError,
    LogReplacedError,
    LogWriteError,
    RecordTooLargeError,
    UnsupportedFormatError,
)
from logsaver.frame import (
    CHECKSUM_SIZE,
    FRAME_HEADER_SIZE,
    MAX_PAYLOAD,
    FileHeader,
    Frame,
    decode_frame,
    decode_head,
)
from logsaver.logfile import COPY_CHUNK, LogFile
from logsaver.pieces import Value
from logsaver.record import (
    BadRecordError,
    CheckpointRecord,
    LinkRecord,
    Record,
    UnknownKindError,
    VouchRecord,
    WritesRecord,
    encode,
)
from logsaver.recovery import read_header

DEFAULT_CACHE_BYTES: Final = 64 << 20
MUCH_UNSYNCED: Final = 1 << 16  # bytes
READ_AHEAD: Final = 8192  # most frames are smaller: one read gets header and payload
_R = TypeVar("_R", CheckpointRecord, WritesRecord)


class Log:
    """An open log file and what has been read from it."""

    __slots__ = (
        "cache",
        "cache_bytes",
        "committer",
        "encode",
        "encryption",
        "file",
        "header",
        "path",
        "seed",
        "values",
    )  # fmt: skip

    def __init__(
        self,
        file: LogFile,
        header: FileHeader,
        encryption: Encryption | None = None,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        self.file = file
        self.header = header
        self.path = file.path
        self.seed = header.seed
        self.encryption = encryption  # if the frames are encrypted
        self.encode: Encode = encoder(header, encryption)
        self.cache_bytes = cache_bytes
        # Frames by their offset; and values, put together from their pieces, by offset and number.
        self.cache: Recent[int, Record] = Recent(cache_bytes // 2)
        self.values: Recent[tuple[int, int], Value] = Recent(cache_bytes // 2)
        # A `Syncer` and not a method: the two would keep each other, and the file, alive.
        self.committer = Committer(self.path, Syncer(file, header), at=header.data_start)

    @property
    def cipher(self) -> Cipher | None:
        return None if self.encryption is None else self.encryption.cipher

    def with_file(self, file: LogFile, header: FileHeader, encryption: Encryption | None) -> Log:
        """The same log in another file: opened again, or a later generation."""
        return Log(file, header, encryption, cache_bytes=self.cache_bytes)

    def with_caches_of(self, cache_bytes: int) -> Log:
        """The same file, read through caches of its own."""
        return Log(self.file, self.header, self.encryption, cache_bytes=cache_bytes)

    # -- reading

    def checkpoint(self, offset: int, size: int = READ_AHEAD) -> CheckpointRecord:
        record = self.cache.get(offset)
        if type(record) is CheckpointRecord:
            return record
        return self._record(offset, size, CheckpointRecord)

    def writes(self, offset: int, size: int = READ_AHEAD) -> WritesRecord:
        record = self.cache.get(offset)
        if type(record) is WritesRecord:
            return record
        return self._record(offset, size, WritesRecord)

    def record(self, offset: int, size: int = READ_AHEAD) -> Record:
        """The record of the frame at `offset`, checked; `size` is how much to read at first."""
        record = self.cache.get(offset)
        if record is None:
            frame = self._read_frame(offset, size)
            record = self.decode(frame)
            self.cache.put(offset, record, frame.size)
        return record

    def _record(self, offset: int, size: int, expected: type[_R]) -> _R:
        record = self.record(offset, size)
        if not isinstance(record, expected):
            raise CorruptLogError(
                self.path, offset, f"expected a {expected.__name__} here; {RESTORE_OR_REPAIR}"
            )
        return record

    def _read_frame(self, offset: int, size: int) -> Frame:
        data = self.file.read(size, offset)
        head = decode_head(data, 0, offset=offset, seed=self.seed)
        if head is not None and FRAME_HEADER_SIZE + head.length > len(data):
            # Never asks for more than there is: the file may have changed since it was opened.
            available = self.file.end() - offset
            data = self.file.read(min(FRAME_HEADER_SIZE + head.length, available), offset)
        frame = decode_frame(data, 0, offset=offset, seed=self.seed)
        if frame is None:
            raise CorruptLogError(
                self.path,
                offset,
                f"a frame that was whole before cannot be read any more; {RESTORE_OR_REPAIR}",
            )
        return frame

    def decode(self, frame: Frame) -> Record:
        try:
            record = record_in(frame, self.encryption)
            if isinstance(record, LinkRecord):
                record.check_lies_before(frame.offset)
        except BadRecordError as error:
            raise CorruptLogError(
                self.path, frame.offset, f"{error}; {RESTORE_OR_REPAIR}"
            ) from error
        except UnknownKindError as error:
            raise UnsupportedFormatError(
                self.path,
                f"the frame at byte {frame.offset} {error}; upgrade logsaver to open it",
            ) from error
        return record

    # -- writing

    def cut_unless_whole(self, offset: int) -> None:
        """Leave a whole frame from `offset` on, or nothing."""
        rest = self.file.read(max(0, self.file.end() - offset), offset)
        if decode_frame(rest, 0, offset=offset, seed=self.seed) is None:
            self.file.truncate(offset)

    def vouch(self, end: int, last: int, last_at: int) -> None:
        """Say at the end of the log that all before is safe, if it is.

        Then damage to it is not taken for a torn tail, and nobody has to write it again. The
        frame itself needs no sync, and is left out if anything is in its way: without it, the log
        is as a kill would leave it. The committer does not hear of it, or its flusher would sync
        a file that is being closed.
        """
        file, synced = self.file, self.committer.synced
        if synced < end:
            return
        frame, _ = self.encode(*payload_of(VouchRecord()), end, last, synced)
        with contextlib.suppress(OSError, LogFileError):
            try:
                if file.try_lock() and file.end() == end and has_checksum(file, last_at, last):
                    self._write_or_undo(frame, end)
            finally:
                file.flock(UNLOCK)

    def _write_or_undo(self, frame: bytes, end: int) -> None:
        try:
            self.file.write(frame, end)
        except BaseException:
            self.cut_unless_whole(end)
            raise

    def secure_what_was_there(self) -> None:
        """Before the first append: make what others left a part of the next promise."""
        committer = self.committer
        is_much = len(committer.sync.unsynced) > MUCH_UNSYNCED
        try:
            committer.sync.rewrite_unsynced()
        except OSError as error:
            raise self.file.write_error(error) from error
        if is_much:
            # So that our frames say it is safe now. Else a tool that puts once and ends would
            # write the whole log again at each start.
            committer.wait(committer.written)

    def close(self) -> None:
        self.cache.clear()
        self.values.clear()
        try:
            self.file.close()
        except OSError as error:
            raise LogWriteError(
                self.path,
                f"closing it reported an error ({error.strerror or error}); what was not flushed "
                "before may be lost. Open the log again to see what it holds",
                error.errno,
            ) from error


class Syncer:
    """Brings a log file to stable storage, in a way that is a promise."""

    __slots__ = ("_file", "_header", "name_is_safe", "unsynced")

    def __init__(self, file: LogFile, header: FileHeader) -> None:
        self._file = file
        self._header = header
        self.name_is_safe = False
        """Whether the directory was synced since the file got its name."""
        self.unsynced = range(0)
        """The bytes that were in the file at open, and are not known to be on stable storage."""

    def __call__(self) -> None:
        self.rewrite_unsynced()
        self._file.sync()
        if not self.name_is_safe:
            # Whoever put the file in place may have been killed before it did this.
            self._file.sync_name()
            self.name_is_safe = True
        # A file that nobody can open any more is not stable storage.
        check_name(self._file, self._header)

    def rewrite_unsynced(self) -> None:
        """Write what was above the watermark at open again, with the same bytes.

        It may be in the page cache only: a page whose write-back failed before we came is clean,
        reads back fine, is lost when evicted, and no sync of ours would report it. Written again
        it is dirty, and the next sync is a promise about it too.

        The page is dropped first. ext4 remembers with a cached page that its block needs no more
        than the data; after a failed write-back that is wrong, and the block would read as zeros
        in spite of a successful sync. A page that is not cached is looked up anew. A page that is
        dirty is not dropped: so this comes before the first append.

        A crash in the middle leaves each sector with the old or the new bytes, which are equal.
        It needs no lock: nobody ever changes a whole frame.
        """
        file, unsynced = self._file, self.unsynced
        for at in range(unsynced.start, unsynced.stop, COPY_CHUNK):
            piece = file.read(min(COPY_CHUNK, unsynced.stop - at), at)
            file.forget(at, at + len(piece))
            file.write(piece, at)
        self.unsynced = range(0)


def check_name(file: LogFile, header: FileHeader) -> None:
    """Raise if the file was deleted, or replaced by something that does not go on from it."""
    if not file.has_its_name() and not has_successor(file, header):
        raise LogReplacedError(
            file.path,
            "the file was deleted or replaced while this saver had it open; what is stored now "
            "would be lost. Close this saver; then put the file back, or open the new one with a "
            "new saver",
        )


def check_length(file: LogFile, known: int) -> None:
    """Raise if the file is shorter than what we have seen of it."""
    size = file.end()
    if size < known:
        raise LogReplacedError(
            file.path,
            f"the file was cut from {known} to {size} bytes while this saver had it open. Close "
            "this saver and restore the file from a backup",
        )


def check_content(file: LogFile, at: int, checksum: int) -> None:
    """Raise if somebody has written something else into the file, a backup for example."""
    if not has_checksum(file, at, checksum):
        raise LogReplacedError(
            file.path,
            "the file was overwritten while this saver had it open. Close this saver and open what "
            "is there now with a new one, or restore the file from a backup",
        )


def has_checksum(file: LogFile, at: int, checksum: int) -> bool:
    """Whether the last frame that we know of is still there."""
    return int.from_bytes(file.read(CHECKSUM_SIZE, at), "little") == checksum


def has_successor(file: LogFile, header: FileHeader) -> bool:
    """Whether the name leads to a later generation of the same log."""
    try:
        other = read_header(file.open_again(read_only=True))
    except (OSError, LogFileError):
        return False
    return other.file_id == header.file_id and other.generation > header.generation


def payload_of(record: Record) -> tuple[int, bytes]:
    """The frame kind and payload of a record; or an error that says what is wrong with it."""
    try:
        kind, payload = encode(record)
    except TypeError as error:
        raise InvalidInputError(
            f"an id, channel name or task path cannot be stored: {error}"
        ) from error
    if len(payload) > MAX_PAYLOAD:
        raise RecordTooLargeError(
            f"one call stores at most {MAX_PAYLOAD} bytes, this one needs {len(payload)}; keep "
            "large data outside the graph's state"
        )
    return kind, payload
