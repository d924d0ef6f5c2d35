"""Which values of a log can be put together, from a look at each record in file order.

For those who go on behind damage: a value in pieces, or a shared one, is only as good as what it
refers to. Nothing is read twice and no value is kept, only their lengths.
"""

from __future__ import annotations

from typing import Final

from logsaver.record import CheckpointRecord, LinkRecord, Record, WritesRecord
from logsaver.value import OWN, Range, Stored, is_in_pieces, own_bytes, pieces_of, relocated
from logsaver.values import CHANNELS_FROM, stored_values

_MISSING: Final = -1


class Intact:
    """The values seen so far."""

    def __init__(self) -> None:
        self._lengths: dict[int, list[int]] = {}  # by frame, in the order of their numbers
        self._channels: dict[int, dict[str, int]] = {}  # by frame, the numbers of its own values

    def missing_in(self, offset: int, record: Record) -> list[int]:
        """Take in one record. Returns the numbers of the values that cannot be put together.

        Of a link, those of the checkpoints, and then of the writes, whose frames are not there.
        """
        if isinstance(record, LinkRecord):
            return self._missing_links(record)
        stored = stored_values(record)
        names = _names(record)
        lengths = [
            self._length(offset, names[number], value) for number, value in enumerate(stored)
        ]
        if stored:
            self._lengths[offset] = lengths
        if isinstance(record, CheckpointRecord):
            self._channels[offset] = {
                names[number]: number
                for number in range(CHANNELS_FROM, len(names))
                if type(stored[number]) is not int and lengths[number] != _MISSING
            }
        return [number for number, length in enumerate(lengths) if length == _MISSING]

    def _missing_links(self, record: LinkRecord) -> list[int]:
        checkpoints, stored = self._channels, self._lengths
        found = [linked.offset in checkpoints for linked in record.checkpoints]
        found += [
            all(at in stored and at not in checkpoints for at, _ in places)
            for *_, places in record.writes
        ]
        return [number for number, is_there in enumerate(found) if not is_there]

    def _length(self, offset: int, name: str, stored: Stored) -> int:
        if type(stored) is int:
            number = self._channels.get(stored, {}).get(name) if stored < offset else None
            return _MISSING if number is None else self._lengths[stored][number]
        if not is_in_pieces(stored):
            return len(own_bytes(stored))
        length = own = 0
        try:
            for piece in pieces_of(stored[2]):
                if piece.offset == OWN:
                    own += piece.length
                elif not self._has(offset, piece):
                    return _MISSING
                length += piece.length
        except ValueError:
            return _MISSING
        return length if own == len(stored[1]) else _MISSING

    def _has(self, offset: int, piece: Range) -> bool:
        lengths = self._lengths.get(piece.offset, ()) if piece.offset < offset else ()
        return piece.number < len(lengths) and piece.start + piece.length <= lengths[piece.number]


class Relocation:
    """Records on their way to another log, without the values that are missing."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._numbers: dict[int, dict[int, int]] = {}  # where they are not what they were

    def moved(self, offset: int, record: Record, missing: list[int]) -> Record:
        """The record at `offset`, as it is to be stored in the other log."""
        if isinstance(record, CheckpointRecord):
            self._renumber(offset, CHANNELS_FROM + len(record.channels), missing)
            return record._replace(
                channels={
                    channel: self._moved(stored)
                    for number, (channel, stored) in enumerate(
                        record.channels.items(), CHANNELS_FROM
                    )
                    if number not in missing
                }
            )
        if isinstance(record, WritesRecord):
            self._renumber(offset, len(record.writes), missing)
            return record._replace(
                writes=[
                    (slot, channel, self._moved(stored))
                    for number, (slot, channel, stored) in enumerate(record.writes)
                    if number not in missing
                ]
            )
        return self._moved_links(record, missing) if isinstance(record, LinkRecord) else record

    def _moved_links(self, record: LinkRecord, missing: list[int]) -> LinkRecord:
        count = len(record.checkpoints)
        checkpoints = [
            linked._replace(offset=self._places[linked.offset], size=self._sizes[linked.offset])
            for number, linked in enumerate(record.checkpoints)
            if number not in missing
        ]
        writes = [
            (checkpoint_id, task_id, [(self._places[at], self._sizes[at]) for at, _ in places])
            for number, (checkpoint_id, task_id, places) in enumerate(record.writes, count)
            if number not in missing
        ]
        return record._replace(checkpoints=checkpoints, writes=writes)

    def put(self, offset: int, new_offset: int, new_size: int) -> None:
        self._places[offset], self._sizes[offset] = new_offset, new_size

    def _renumber(self, offset: int, count: int, missing: list[int]) -> None:
        if missing:
            left = [number for number in range(count) if number not in missing]
            self._numbers[offset] = {number: new for new, number in enumerate(left)}

    def _moved(self, stored: Stored) -> Stored:
        if type(stored) is int:
            return self._places[stored]
        return relocated(stored, self._place) if is_in_pieces(stored) else stored

    def _place(self, piece: Range) -> Range:
        number = self._numbers.get(piece.offset, {}).get(piece.number, piece.number)
        return piece._replace(offset=self._places[piece.offset], number=number)


def name_of(record: Record, number: int) -> str:
    """What a person calls the value with this number."""
    if isinstance(record, LinkRecord):
        count = len(record.checkpoints)
        if number < count:
            return f"checkpoint {record.checkpoints[number].checkpoint_id!r}"
        checkpoint_id, task_id, _ = record.writes[number - count]
        return f"the writes of task {task_id!r} to checkpoint {checkpoint_id!r}"
    name = repr(_names(record)[number])
    return f"the write to {name}" if isinstance(record, WritesRecord) else name


def _names(record: Record) -> list[str]:
    if isinstance(record, CheckpointRecord):
        return ["the checkpoint", "the metadata", *record.channels]
    return [channel for _, channel, _ in record.writes] if isinstance(record, WritesRecord) else []
