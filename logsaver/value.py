"""A channel value as it is stored: whole, or shared with an earlier checkpoint.

The serializer turns a value into a type name and bytes; those bytes stay opaque here. In a
record a value has one of these forms:

    bytes            stored here, the serializer's type is "msgpack" (nearly all of them)
    [type, bytes]    stored here, any other serializer type
    int              shared: the frame at that offset stores this channel's value
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

# Makes a named tuple from its fields in half the time that a call of its class takes.
new = tuple.__new__

Typed = tuple[str, bytes]
Stored = bytes | list[Any] | int

USUAL_TYPE = "msgpack"


def whole(typed: tuple[str, bytes | bytearray | memoryview]) -> Stored:
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
    if type(stored) is list:
        return stored[0], stored[1]
    raise TypeError(f"a shared value is looked up first: {stored!r}")


def is_stored(value: object) -> bool:
    """Whether a decoded object has one of the forms above."""
    return is_whole(value) or (type(value) is int and value >= 0)


def is_whole(value: object) -> bool:
    """Whether it has one of the first two. Only a channel's value can be shared."""
    if isinstance(value, bytes):
        return True
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], bytes)
    )


class Base(NamedTuple):
    """What a child checkpoint can share of its parent."""

    epoch: int  # of the store: in another one, offsets mean other frames
    checkpoint_id: str
    offset: int  # of the parent's own frame
    versions: Mapping[str, Any]
    channels: Mapping[str, Stored]

    def place_of(self, channel: str, version: Any) -> int | None:
        """The offset of the frame that has this channel's value, if the version is the parent's.

        Looked up through the parent only: two branches of a thread may carry the same integer
        version with different values.
        """
        _, _, offset, versions, channels = self
        if version is None or versions.get(channel) != version:
            return None
        stored = channels.get(channel)
        if stored is None:
            return None
        return stored if type(stored) is int else offset
