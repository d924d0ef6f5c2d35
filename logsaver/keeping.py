"""LangGraph's serializer, made to carry values of classes that it does not build.

A copy should need nobody's classes. LangGraph's own serializer builds them, and where it cannot
(the copying process need not have them) it gives a dict or a string in place of the object, with a
warning: the copy would hold that for good. Here each such value stays what the serializer made of
it, and goes into the copy with the same bytes.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

# What LangGraph's serializer has packed needs no more than this: all else is `Kept` by then.
_OPTION: Final = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_PLAIN_TYPES: Final = (type(None), bytes, bytearray)  # not packed at all


@dataclass(frozen=True, slots=True)
class Kept:
    """An object as it was packed: LangGraph's code for the way to build it, and what from."""

    code: int
    data: bytes

    def __reduce__(self) -> NoReturn:
        # A pickle would store this class in place of the object.
        raise TypeError("a value that is only carried cannot be pickled")


class KeepingSerializer(SerializerProtocol):
    """Reads and writes what LangGraph's own one does, and builds no classes."""

    def __init__(self, serde: JsonPlusSerializer) -> None:
        self._serde = serde

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if isinstance(obj, _PLAIN_TYPES):
            return self._serde.dumps_typed(obj)
        try:
            return "msgpack", ormsgpack.packb(obj, default=self._pack, option=_OPTION)
        except ormsgpack.MsgpackEncodeError:
            return self._serde.dumps_typed(obj)  # its own error, or its pickle

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, packed = data
        if kind == "msgpack":
            return ormsgpack.unpackb(packed, ext_hook=_keep, option=ormsgpack.OPT_NON_STR_KEYS)
        if "+" in kind:  # LangGraph's name for "encrypted by"
            raise ValueError("it is encrypted, and no key was given")
        return self._serde.loads_typed(data)

    def opened(self, value: Any) -> Any:
        """The value with its objects built, if nothing of it is lost that way; else as it is."""
        packed = self.dumps_typed(value)
        built = self._serde.loads_typed(packed)
        return built if self._serde.dumps_typed(built) == packed else value

    def _pack(self, obj: Any) -> Any:
        if isinstance(obj, Kept):
            return ormsgpack.Ext(obj.code, obj.data)
        if isinstance(obj, _DeltaSnapshot):
            data = ormsgpack.packb(obj.value, default=self._pack, option=_OPTION)
            return ormsgpack.Ext(jsonplus.EXT_DELTA_SNAPSHOT, data)
        kind, packed = self._serde.dumps_typed(obj)  # an object that was never packed before
        if kind != "msgpack":
            raise TypeError(f"{type(obj).__name__} is not msgpack serializable")
        return ormsgpack.unpackb(packed, ext_hook=ormsgpack.Ext, option=_OPTION)


def _keep(code: int, data: bytes) -> Any:
    if code == jsonplus.EXT_DELTA_SNAPSHOT:  # savers ask for these
        value = ormsgpack.unpackb(data, ext_hook=_keep, option=ormsgpack.OPT_NON_STR_KEYS)
        return _DeltaSnapshot(value)
    return Kept(code, data)


def keeping(serde: SerializerProtocol) -> SerializerProtocol | None:
    """The same serializer, building nothing; None if it is not LangGraph's own, or around it."""
    if type(serde) is JsonPlusSerializer:
        return KeepingSerializer(serde)
    if type(serde) is EncryptedSerializer and (inner := keeping(serde.serde)) is not None:
        serde = copy.copy(serde)
        serde.serde = inner
        return serde
    return None


def opened(serde: SerializerProtocol, value: Any) -> Any:
    """See `KeepingSerializer.opened`; for other serializers the value itself."""
    if isinstance(serde, EncryptedSerializer):
        serde = serde.serde
    return serde.opened(value) if isinstance(serde, KeepingSerializer) else value
