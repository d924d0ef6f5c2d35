"""From the place of a value to its bytes, wherever the pieces of it are."""

from __future__ import annotations

from typing import Final, NoReturn

from logsaver.errors import RESTORE_OR_REPAIR, CorruptLogError
from logsaver.frame import MAX_PAYLOAD
from logsaver.log import Log
from logsaver.pieces import Value
from logsaver.record import CheckpointRecord, Record, WritesRecord
from logsaver.value import OWN, USUAL_TYPE, Range, Stored, is_in_pieces, pieces_of, typed

# Values that this code writes have a few dozen leaves. A file can claim anything.
_MOST_LEAVES: Final = 1000
_MOST_DEPTH: Final = 100
_MOST_STEPS: Final = 250_000
CHANNELS_FROM: Final = 2  # the number of the first channel; 0 is the body, 1 the metadata


def stored_values(record: Record) -> list[Stored]:
    """The values of a record in the order of their numbers."""
    if type(record) is CheckpointRecord:
        return [record.body, record.metadata, *record.channels.values()]
    if type(record) is WritesRecord:
        return [value for _, _, value in record.writes]
    return []


def number_of(record: CheckpointRecord, channel: str) -> int:
    """The number of a channel's value in its record."""
    return CHANNELS_FROM + list(record.channels).index(channel)


def value_at(log: Log, offset: int, number: int) -> Value:
    """The value with this number in the frame at `offset`."""
    found = log.values.get((offset, number))
    if found is None:
        found = _Reading(log).value(offset, number)
        log.values.put((offset, number), found, len(found.data))
    return found


def put_together(log: Log, offset: int, number: int, stored: Stored) -> Stored:
    """The same value, stored whole; `stored` is what has this number in the frame at `offset`."""
    if not is_in_pieces(stored):
        return stored
    kind, data, _, _ = value_at(log, offset, number)
    return data if kind == USUAL_TYPE else [kind, data]


class _Reading:
    """One value being put together."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._leaves: list[Range] = []
        self._parts: list[bytes] = []
        self._steps = 0

    def value(self, offset: int, number: int) -> Value:
        stored = self._stored(offset, number)
        if not is_in_pieces(stored):
            kind, data = typed(stored)
            return Value(kind, data, [Range(offset, number, 0, len(data))], 0)
        depth = self._gather(offset, number, stored, 0, _length(stored[2]), 0)
        return Value(stored[0], b"".join(self._parts), self._leaves, depth)

    def _gather(
        self, offset: int, number: int, stored: Stored, start: int, length: int, depth: int
    ) -> int:
        """Add the leaves of a range of a value. Returns how deep it had to go."""
        end = start + length
        if not is_in_pieces(stored):
            self._add(offset, number, typed(stored)[1], start, Range(OWN, 0, start, length))
            return depth
        if depth > _MOST_DEPTH or end > MAX_PAYLOAD:
            self._refuse(offset, "the value is made of too many others, or too large")
        own, numbers = stored[1], stored[2]
        position, deepest = 0, depth
        self._steps += len(numbers)
        if self._steps > _MOST_STEPS:
            self._refuse(offset, "it takes too many steps to put the value together")
        try:
            for piece in pieces_of(numbers):
                if position >= end:
                    break
                low, high = max(start, position), min(end, position + piece.length)
                if low < high:
                    part = piece._replace(start=piece.start + low - position, length=high - low)
                    if piece.offset == OWN:
                        self._add(offset, number, own, low, part)
                    else:
                        deepest = max(deepest, self._follow(offset, part, depth))
                position += piece.length
        except ValueError as error:
            self._refuse(offset, str(error))
        if position < end:
            self._refuse(offset, "a value is shorter than what is made of it")
        return deepest

    def _follow(self, offset: int, part: Range, depth: int) -> int:
        if part.offset >= offset:  # so it ends, whatever a file says
            self._refuse(offset, "a value is made of one that comes later")
        stored = self._stored(part.offset, part.number)
        return self._gather(part.offset, part.number, stored, part.start, part.length, depth + 1)

    def _stored(self, offset: int, number: int) -> Stored:
        values = stored_values(self._log.record(offset))
        if number >= len(values):
            self._refuse(offset, f"the frame here has no value {number}")
        stored = values[number]
        if type(stored) is int:
            self._refuse(offset, "a value that is shared stands where one has to be stored")
        return stored

    def _add(self, offset: int, number: int, data: bytes, start: int, part: Range) -> None:
        """`start` is where the leaf lies in its value, `part.start` where in the bytes stored."""
        piece = data[part.start : part.start + part.length]
        if len(piece) < part.length:
            self._refuse(offset, "a value is shorter than what is made of it")
        if len(self._leaves) >= _MOST_LEAVES:
            self._refuse(offset, "the value is made of too many pieces")
        self._leaves.append(Range(offset, number, start, part.length))
        self._parts.append(piece)

    def _refuse(self, offset: int, why: str) -> NoReturn:
        raise CorruptLogError(self._log.path, offset, f"{why}; {RESTORE_OR_REPAIR}")


def _length(numbers: list[int]) -> int:
    """How many bytes the pieces have together; wrong numbers are found when they are read."""
    length = at = 0
    while at < len(numbers):
        if numbers[at] < 0:
            length -= numbers[at]
            at += 1
        else:
            length += numbers[at + 3] if at + 3 < len(numbers) else 0
            at += 4
    return length
