"""How a new value is stored, given earlier values that it may repeat. No I/O.

A value that repeats most of another one is stored as *pieces*: ranges of the other one, and the
bytes that are new. So it depends on that value, which may depend on a third. To read it, all of
them are followed down to *leaves*: ranges that are stored as such in some frame. The number of
leaves is what a read costs, and is bounded: when there are too many, several small ones that are
next to each other are stored again, as one.

Which ones, decides how often a byte is stored again. A list that grows adds a leaf each time. If
always the same ones were put together, a leaf that keeps growing would be stored over and over.
So only leaves of about the same size are, as in a log-structured merge tree: a byte is stored
again once for each size class, which is less than three times for a thousand additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from logsaver.patch import runs
from logsaver.value import OWN, USUAL_TYPE, Range, Stored, patched

SMALLEST: Final = 256  # bytes; what is smaller is stored whole without a look
MOST_LEAVES: Final = 40
_FEWEST_TO_MERGE: Final = 8
_MOST_DEPTH: Final = 40  # of values that depend on values
_SMALLEST_GAP: Final = 64  # bytes between two pieces that are worth a look into another value
_COST_OF_PIECE: Final = 12  # bytes that a piece takes, about
_WORTH_IT: Final = 0.75  # of the size of the value; above that it is stored whole


class Value(NamedTuple):
    """The bytes of a value and where they are stored."""

    kind: str
    data: bytes
    leaves: list[Range]
    depth: int  # 0 if it depends on no other value

    def settled(self, offset: int, number: int) -> Value:
        """The same once it is known which frame it is in."""
        leaves = [
            Range(offset, number, leaf.start, leaf.length) if leaf.offset == OWN else leaf
            for leaf in self.leaves
        ]
        return self._replace(leaves=leaves)


class Earlier(NamedTuple):
    """A value that is in the log, and its place there."""

    offset: int
    number: int
    value: Value


class Draft(NamedTuple):
    """A value that is about to be stored, and what will be known of it then."""

    stored: Stored
    value: Value


def draft(kind: str, data: bytes, earlier: Sequence[Earlier]) -> Draft:
    """How to store a value; the first of `earlier` is the most likely to be like it."""
    if earlier:
        pieces = _pieces(data, earlier)
        if _cost(pieces) < _WORTH_IT * len(data):
            return _draft_of_pieces(kind, data, pieces, earlier)
    stored: Stored = data if kind == USUAL_TYPE else [kind, data]
    return Draft(stored, Value(kind, data, [Range(OWN, OWN, 0, len(data))], 0))


def _pieces(data: bytes, earlier: Sequence[Earlier]) -> list[Range]:
    """The value as ranges of earlier ones, and of itself where it is new."""
    for offset, number, value in earlier:
        if value.data == data:
            return [Range(offset, number, 0, len(data))]
    pieces = [Range(OWN, OWN, 0, len(data))]
    for offset, number, value in earlier:
        pieces = [
            found
            for piece in pieces
            for found in (
                _refined(data, piece, offset, number, value.data)
                if piece.offset == OWN and piece.length >= _SMALLEST_GAP
                else (piece,)
            )
        ]
    return pieces


def _refined(data: bytes, gap: Range, offset: int, number: int, old: bytes) -> list[Range]:
    """What is new so far, as ranges of one more earlier value."""
    start, end = gap.start, gap.start + gap.length
    new = data if gap.length == len(data) else data[start:end]
    found = []
    for run in runs(old, new):
        at = gap.start + run.new
        if at > start:
            found.append(Range(OWN, OWN, start, at - start))
        found.append(Range(offset, number, run.old, run.length))
        start = at + run.length
    if start < end:
        found.append(Range(OWN, OWN, start, end - start))
    return found


def _cost(pieces: list[Range]) -> int:
    own = sum(piece.length for piece in pieces if piece.offset == OWN)
    return own + _COST_OF_PIECE * len(pieces)


def _draft_of_pieces(
    kind: str, data: bytes, pieces: list[Range], earlier: Sequence[Earlier]
) -> Draft:
    values = {(each.offset, each.number): each.value for each in earlier}
    leaves: list[Range] = []
    depth = 0
    for piece in pieces:
        if piece.offset == OWN:
            leaves.append(piece)
        else:
            value = values[piece.offset, piece.number]
            depth = max(depth, value.depth)
            leaves += clip(value.leaves, piece.start, piece.length)
    if len(leaves) > MOST_LEAVES or depth >= _MOST_DEPTH:
        pieces = leaves = _merged(leaves)
        depth = 0
    own = b"".join(
        data[piece.start : piece.start + piece.length] for piece in pieces if piece.offset == OWN
    )
    return Draft(patched(kind, own, pieces), Value(kind, data, leaves, depth + 1))


def clip(leaves: list[Range], start: int, length: int) -> list[Range]:
    """The leaves of a part of a value."""
    found = []
    position, end = 0, start + length
    for leaf in leaves:
        length = leaf.length
        if start <= position and position + length <= end:
            found.append(leaf)  # all of it, as nearly all are
        else:
            low, high = max(start, position), min(end, position + length)
            if low < high:
                found.append(leaf._replace(start=leaf.start + low - position, length=high - low))
        position += length
        if position >= end:
            break
    return found


def _merged(leaves: list[Range]) -> list[Range]:
    """The same bytes with fewer leaves: the longest row of small ones becomes one of our own."""
    while len(leaves) > MOST_LEAVES:
        first, last = _row_to_merge([leaf.length for leaf in leaves])
        before = sum(leaf.length for leaf in leaves[:first])
        length = sum(leaf.length for leaf in leaves[first:last])
        leaves = [*leaves[:first], Range(OWN, OWN, before, length), *leaves[last:]]
    return leaves


def _row_to_merge(sizes: list[int]) -> tuple[int, int]:
    """The longest row of the smallest size class that has one which is long enough."""
    classes = [size.bit_length() // 3 for size in sizes]
    first = last = 0
    for largest in sorted(set(classes)):
        start = 0
        for at, size_class in enumerate([*classes, largest + 1]):
            if size_class > largest:
                if at - start > last - first:
                    first, last = start, at
                start = at + 1
        if last - first >= _FEWEST_TO_MERGE:
            break
    return first, last
