"""A value as it is stored: whole, shared with an earlier checkpoint, or put together from pieces.

The serializer turns a value into a type name and bytes; those bytes stay opaque here. In a
record a value has one of these forms:

    bytes                   stored here, the serializer's type is "msgpack" (nearly all of them)
    [type, bytes]           stored here, any other serializer type
    [type, bytes, pieces]   put together from pieces, see below
    int                     shared: the frame at that offset has this channel's value

Pieces are numbers, one after the other. A negative one, -n, stands for the next n of the bytes that
are stored here. Otherwise four of them, `offset number start length`, name a range of another
value: the one with that number in the frame at that offset, which is always an earlier one. The
other value may be made of pieces itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeGuard

# Makes a named tuple from its fields in half the time that a call of its class takes.
new = tuple.__new__

Typed = tuple[str, bytes]
Stored = bytes | list[Any] | int

USUAL_TYPE: Final = "msgpack"
MOST_NUMBERS: Final = 4000  # of a value's pieces; this code makes a few dozen pieces
OWN: Final = -1  # in place of an offset: the frame that the value itself is in


class Range(NamedTuple):
    """Some bytes of a value, in the frame at `offset` or, if that is `OWN`, in this one."""

    offset: int
    number: int
    start: int
    length: int


def whole(typed: tuple[str, bytes | bytearray | memoryview]) -> bytes | list[Any]:
    """The stored form of a serialized value.

    Copies what is not `bytes`: a serializer may hand out the caller's own bytearray. Raises
    `TypeError` for what is no type name and bytes: stored, it could not be read back.
    """
    kind, data = typed
    if type(data) is not bytes:
        data = bytes(memoryview(data))  # not bytes(data), which takes 5 for five zeros
    if kind == USUAL_TYPE:
        return data
    if not isinstance(kind, str):
        raise TypeError(f"a type name is text, not {kind!r}")
    return [kind, data]


def typed(stored: Stored) -> Typed:
    """What the serializer gave us, from a value that is stored whole."""
    if type(stored) is bytes:
        return USUAL_TYPE, stored
    if type(stored) is list and len(stored) == 2:
        return stored[0], stored[1]
    raise TypeError(f"a shared or patched value is looked up first: {stored!r}")


def patched(kind: str, own: bytes, pieces: list[Range]) -> list[Any]:
    """The stored form of a value that is put together; `own` has the bytes of its `OWN` ranges."""
    numbers: list[int] = []
    for piece in pieces:
        if piece.offset == OWN:
            numbers.append(-piece.length)
        else:
            numbers += piece
    return [kind, own, numbers]


def own_bytes(stored: Stored) -> bytes:
    """What of a value is stored right here."""
    if type(stored) is list:
        data: bytes = stored[1]
        return data
    return stored if type(stored) is bytes else b""


def relocated(stored: list[Any], where: Callable[[Range], Range]) -> list[Any]:
    """A value in pieces, for a copy of its frame: `where` tells the places of its pieces there."""
    kind, own, numbers = stored
    return patched(
        kind,
        own,
        [piece if piece.offset == OWN else where(piece) for piece in pieces_of(numbers)],
    )


def pieces_of(numbers: list[int]) -> Iterator[Range]:
    """The pieces again. The `start` of an own one is where it lies in the stored bytes.

    Raises `ValueError` for numbers that are no pieces.
    """
    rest = iter(numbers)
    own = 0
    for first in rest:
        if first < 0:
            yield Range(OWN, 0, own, -first)
            own -= first
            continue
        number, start, length = next(rest, -1), next(rest, -1), next(rest, -1)
        if number < 0 or start < 0 or length <= 0:
            raise ValueError("a piece has no place or no length")
        yield Range(first, number, start, length)


def is_stored(value: object) -> bool:
    """Whether a decoded object has one of the forms above."""
    return is_whole(value) or (type(value) is int and value >= 0) or is_patched(value)


def is_own(value: object) -> bool:
    """Whether it has one of the first three. Only a channel's value can be shared."""
    return is_whole(value) or is_patched(value)


def is_whole(value: object) -> bool:
    """Whether it has one of the first two."""
    if isinstance(value, bytes):
        return True
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], bytes)
    )


def is_in_pieces(stored: Stored) -> TypeGuard[list[Any]]:
    """Whether a stored value, which has one of the forms, is put together."""
    return type(stored) is list and len(stored) == 3


def is_patched(value: object) -> bool:
    """Whether it is put together. What its pieces say is looked at when it is read."""
    return (
        isinstance(value, list)
        and len(value) == 3
        and isinstance(value[0], str)
        and isinstance(value[1], bytes)
        and isinstance(value[2], list)
        and len(value[2]) <= MOST_NUMBERS
        and all(type(number) is int for number in value[2])
    )
