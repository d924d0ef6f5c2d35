"""A copy of a log in another file, for what replaces a log; see rewriting.py."""

from __future__ import annotations

from typing import Final

from logsaver.cipher import Cipher, encoder, encryption_of, new_header
from logsaver.errors import RESTORE_OR_REPAIR, CorruptLogError, LogWriteError
from logsaver.frame import (
    CHECKSUM_AT,
    FRAME_HEADER_SIZE,
    HEADER_CHECKSUM_AT,
    LAST_GENERATION,
    Frame,
    decode_head,
)
from logsaver.index import Index
from logsaver.log import Log
from logsaver.logfile import LogFile
from logsaver.record import (
    AboutTheFile,
    CheckpointRecord,
    LinkRecord,
    Record,
    ReplacedRecord,
    WritesRecord,
    encode,
)
from logsaver.recovery import frames_past_hints
from logsaver.value import Range, Stored, is_in_pieces, relocated
from logsaver.values import CHANNELS_FROM, stored_values

WRITE_SIZE: Final = 1 << 20


def check_whole(log: Log, reached: int, end: int) -> None:
    """Raise if not every frame before `end` could be read."""
    if reached < end:
        raise CorruptLogError(
            log.path,
            reached,
            f"the frame here was whole once; the log stays as it is. {RESTORE_OR_REPAIR}",
        )


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
        self.encryption = encryption_of(source.path, self.header, cipher)
        self._encode = encoder(self.header, self.encryption)
        self.index = Index()
        self.end = self.header.data_start
        self.last = self.seed = self.header.seed
        self.last_at = HEADER_CHECKSUM_AT  # where it stands in the file
        self.synced = self.end  # up to here the new file is on stable storage
        self.position = header.data_start  # how far the source is copied
        self._file = file
        self._previous = source.seed
        self._places: dict[int, int] = {}  # of frames: where they were, where they are
        self._unwritten: list[bytes] = []
        self._written = 0
        self._buffer(self.header.encode())

    def catch_up(self) -> None:
        """Copy what the source has by now. Every frame is verified on the way."""
        source = self.source
        end = source.file.end()  # others may append as fast as this copies
        for frame in frames_past_hints(
            source.file, seed=source.seed, start=self.position, previous=self._previous
        ):
            self._take(frame)
            self.position, self._previous = frame.end, frame.checksum
            if frame.end >= end:
                break
        self._write()

    def catch_up_to(self, end: int) -> None:
        """The same; raise if a frame before `end` could not be read: all behind it is missing."""
        self.catch_up()
        check_whole(self.source, self.position, end)

    def hasten(self) -> bool:
        """Others append nearly as fast as this copies. False if it cannot be any faster."""
        return False

    def hurry(self) -> None:
        """From here on others wait."""

    def settle(self) -> None:
        """Sync what is copied, and say so in the new file: none of it has to be synced again."""
        self.sync()
        self._add(ReplacedRecord(self.header.generation))
        self._write()

    def sync(self) -> None:
        self._file.sync()
        self.synced = self.end

    # -- one frame

    def _take(self, frame: Frame) -> None:
        record = self.source.decode(frame)
        if not isinstance(record, AboutTheFile):
            self._put(frame, record, record)

    def _put(self, frame: Frame, record: Record, wanted: Record) -> None:
        """Add what the frame has, or what is wanted in the place of its record."""
        moved = self._moved(wanted)
        self._places[frame.offset] = self.end
        if moved is record and self.source.encryption is None:
            self._add(record, frame.kind, bytes(frame.payload))
        else:
            self._add(moved)

    def _moved(self, record: Record) -> Record:
        """The record with the places that its values have in the copy."""
        if isinstance(record, LinkRecord):
            return self._moved_links(record)
        if all(type(value) is bytes for value in stored_values(record)):
            return record
        if isinstance(record, CheckpointRecord):
            channels = {
                channel: self._value(channel, number, stored)
                for number, (channel, stored) in enumerate(record.channels.items(), CHANNELS_FROM)
            }
            return record._replace(channels=channels)
        assert isinstance(record, WritesRecord)  # no other has values
        rows = [
            (slot, channel, self._value(channel, number, stored))
            for number, (slot, channel, stored) in enumerate(record.writes)
        ]
        return record._replace(writes=rows)

    def _value(self, channel: str, number: int, stored: Stored) -> Stored:
        """A value of the frame that comes next, where it has this number."""
        if type(stored) is int:
            return self._shared(channel, number, stored)
        try:
            return self._put_together(number, stored) if is_in_pieces(stored) else stored
        except ValueError as error:
            raise CorruptLogError(
                self.source.path, self.position, f"{error}; {RESTORE_OR_REPAIR}"
            ) from error

    def _shared(self, channel: str, number: int, offset: int) -> Stored:  # noqa: ARG002 - see compacting.py
        return self._place(offset)

    def _put_together(self, number: int, stored: list[object]) -> Stored:  # noqa: ARG002 - see compacting.py
        return relocated(stored, self._range)

    def _range(self, piece: Range) -> Range:
        return piece._replace(offset=self._place(piece.offset))

    def _place(self, before: int) -> int:
        try:
            return self._places[before]
        except KeyError:
            raise CorruptLogError(
                self.source.path, before, f"expected a value here; {RESTORE_OR_REPAIR}"
            ) from None

    def _moved_links(self, record: LinkRecord) -> LinkRecord:
        self._write()  # so that the frames can be measured
        checkpoints = []
        for linked in record.checkpoints:
            offset, size = self._moved_frame(linked.offset)
            checkpoints.append(linked._replace(offset=offset, size=size))
        writes = [
            (checkpoint_id, task_id, [self._moved_frame(offset) for offset, _ in places])
            for checkpoint_id, task_id, places in record.writes
        ]
        return record._replace(checkpoints=checkpoints, writes=writes)

    def _moved_frame(self, before: int) -> tuple[int, int]:
        """Where a frame is now, and its size, which its references may have changed."""
        offset = self._place(before)
        head = decode_head(
            self._file.read(FRAME_HEADER_SIZE, offset), 0, offset=offset, seed=self.seed
        )
        assert head is not None  # we have written it
        return offset, FRAME_HEADER_SIZE + head.length

    # -- writing

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
