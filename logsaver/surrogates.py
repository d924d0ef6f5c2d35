"""LangGraph's own serializer, except that it refuses text that it would change.

`JsonPlusSerializer` packs with an option that writes "?" for half of a surrogate pair, so what
comes back is not what was put, and nobody is told. Looking through each value for such text
would cost more than to pack it. So the serializer's own functions are taken again, with a copy of
their module's globals that lacks this option: they do what they always do, at the same speed, and
fail where they would have replaced something. With `pickle_fallback=True` they then go on to
pickle, which keeps such text.

A serializer with a `dumps_typed` of its own is used as it is. So is LangGraph's, should it be
built differently one day; `test_bad_input.py` would tell.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, NamedTuple

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from logsaver.value import USUAL_TYPE, Typed

Dumps = Callable[[Any], Typed]

_packb = ormsgpack.packb
_USUAL: Final = JsonPlusSerializer.dumps_typed


class _Exact:
    """A serializer for an `EncryptedSerializer` to ask."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.dumps_typed = exact_dumps(serde)
        self.loads_typed = serde.loads_typed


def exact_dumps(serde: SerializerProtocol) -> Dumps:
    """The serializer's `dumps_typed`, made to refuse lone surrogates if it is LangGraph's own."""
    dumps = serde.dumps_typed
    if getattr(dumps, "__func__", None) is _USUAL:

        def exact(value: Any) -> Typed:
            if not isinstance(value, _NOT_PACKED):
                # What it does with nearly all values, in one call instead of three. If that
                # fails, it may go on to pickle, and says what is wrong if it does not.
                try:
                    return USUAL_TYPE, _packb(value, default=_DEFAULT, option=_OPTION)
                except TypeError:
                    pass
            try:
                return _exact_dumps(serde, value)  # type: ignore[no-any-return]
            except TypeError as error:
                raise _explained(dumps, value, error) from error

        return exact
    if type(serde) is EncryptedSerializer:
        serde = copy.copy(serde)
        serde.serde = _Exact(serde.serde)
        return serde.dumps_typed
    return dumps


def _explained(replacing: Dumps, value: Any, error: TypeError) -> Exception:
    """What ormsgpack says of text inside of an object is only that it cannot pack the object."""
    try:
        replacing(value)
    except Exception:  # noqa: BLE001 - so it is not, or not only, about such text
        return error
    return UnicodeError("text in it has a lone surrogate, which would be read back as '?'")


class _Again(NamedTuple):
    """`JsonPlusSerializer.dumps_typed` once more, and what it does with what it packs."""

    dumps: Callable[..., Any]
    not_packed: tuple[type, ...]  # types of values that it keeps as they are
    default: Callable[[Any], Any] | None
    option: int


def _again_without_replacing() -> _Again:
    """`dumps_typed`, and what it calls to pack, each with other globals."""
    world = dict(vars(jsonplus))
    packing = [world.get(name) for name in ("_msgpack_default", "_msgpack_enc")]
    option = world.get("_option")
    known = [function for function in (_USUAL, *packing) if isinstance(function, FunctionType)]
    if len(known) < 3 or not isinstance(option, int):
        return _Again(_USUAL, (object,), None, 0)  # not the serializer that we know
    world["_option"] = option & ~ormsgpack.OPT_REPLACE_SURROGATES
    for function in known:
        again = FunctionType(
            function.__code__,
            world,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        again.__kwdefaults__ = function.__kwdefaults__
        world[function.__name__] = again
    kept = (type(None), bytes, bytearray)
    return _Again(world[_USUAL.__name__], kept, world["_msgpack_default"], world["_option"])


_exact_dumps, _NOT_PACKED, _DEFAULT, _OPTION = _again_without_replacing()
