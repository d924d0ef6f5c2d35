"""A copy of a log in another file, for what replaces a log; see rewriting.py."""

from __future__ import annotations

from typing import Final

from logsaver.cipher import Cipher, encoder, new_header, sealing_of
from logsaver.errors import RESTORE_OR_REPAIR, CorruptLogError, LogWriteError
from logsaver.frame import (
    CHECKSUM_AT,
    HEADER_CHECKSUM_AT,
    LAST_GENERATION,
    Frame,
)
from logsaver.index import Index
from logsaver.log import Log
from logsaver.logfile import LogFile
from logsaver.record import (
    AboutTheFile,
    CheckpointRecord,
    Record,
    ReplacedRecord,
    WritesRecord,
    encode,
)
from logsaver.recovery import frames
from logsaver.value import Range, Stored, is_in_pieces, relocated
from logsaver.values import stored_values

WRITE_SIZE: Final = 1 << 20


class Copy:
    """The frames of a log as a new generation, and the index of it. References are translated."""

    def __init__(self, source: Log, file: LogFile, cipher: Cipher | None) -> None:
        """`cipher` is that of the copy; None for one that is not encrypted."""
        self.source = source
        header = source.header
        if header.generation >= LAST_GENERATION:
            raise LogWriteError(
                source.path, "it was rewritten as often as can be counted; move it to a new log"
            )
        self.header = new_header(source.path, header.file_id, header.generation + 1, cipher)
        self.sealing = sealing_of(source.path, self.header, cipher)
        self._encode = encoder(self.header, self.sealing)
        self.index = Index()
        self.end = self.header.data_start
        self.last = self.seed = self.header.seed
        self.last_at = HEADER_CHECKSUM_AT  # where it stands in the file
        self.synced = self.end  # up to here the new file is on stable storage
        self._file = file
        self._position = header.data_start  # how far the source is copied
        self._previous = source.seed
        self._places: dict[int, int] = {}  # of frames: where they were, where they are
        self._unwritten: list[bytes] = []
        self._written = 0
        self._buffer(self.header.encode())

    def catch_up(self) -> None:
        """Copy what the source has by now. Every frame is verified on the way."""
        source = self.source
        for frame in frames(
            source.file, seed=source.seed, start=self._position, previous=self._previous
        ):
            self._copy(frame)
            self._position, self._previous = frame.end, frame.checksum
        self._write()

    def seal(self) -> None:
        """Sync what is copied, and say so in the new file: none of it has to be synced again."""
        self._file.sync()
        self.synced = self.end
        self._add(ReplacedRecord(self.header.generation))
        self._write()

    def _copy(self, frame: Frame) -> None:
        record = self.source.decode(frame)
        if isinstance(record, AboutTheFile):
            return
        self._places[frame.offset] = self.end
        moved = self._moved(record)
        if moved is record and self.source.sealing is None:
            self._add(record, frame.kind, bytes(frame.payload))
        else:
            self._add(moved)

    def _moved(self, record: Record) -> Record:
        """The record with the places that its values have in the copy."""
        if all(type(value) is bytes for value in stored_values(record)):
            return record
        if isinstance(record, CheckpointRecord):
            channels = {name: self._value(stored) for name, stored in record.channels.items()}
            return record._replace(channels=channels)
        assert isinstance(record, WritesRecord)  # no other has values
        rows = [(slot, channel, self._value(stored)) for slot, channel, stored in record.writes]
        return record._replace(writes=rows)

    def _value(self, stored: Stored) -> Stored:
        if type(stored) is int:
            return self._place(stored)
        try:
            return relocated(stored, self._range) if is_in_pieces(stored) else stored
        except ValueError as error:
            raise CorruptLogError(
                self.source.path, self._position, f"{error}; {RESTORE_OR_REPAIR}"
            ) from error

    def _range(self, piece: Range) -> Range:
        return piece._replace(offset=self._place(piece.offset))

    def _place(self, before: int) -> int:
        try:
            return self._places[before]
        except KeyError:
            raise CorruptLogError(
                self.source.path, before, f"expected a value here; {RESTORE_OR_REPAIR}"
            ) from None

    def _add(self, record: Record, kind: int | None = None, payload: bytes = b"") -> None:
        if kind is None:
            kind, payload = encode(record)
        frame, self.last = self._encode(kind, payload, self.end, self.last, self.synced)
        self.index.apply(record, self.end, len(frame))
        self.last_at = self.end + CHECKSUM_AT
        self.end += len(frame)
        self._buffer(frame)

    def _buffer(self, data: bytes) -> None:
        self._unwritten.append(data)
        if self.end - self._written > WRITE_SIZE:
            self._write()

    def _write(self) -> None:
        data = b"".join(self._unwritten)
        self._file.write(data, self._written)
        self._written += len(data)
        self._unwritten.clear()
