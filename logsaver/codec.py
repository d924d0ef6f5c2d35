"""Values to stored values and back through the serializer, with errors that say where."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NoReturn

from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.errors import ValueDecodeError, ValueEncodeError
from logsaver.surrogates import exact_dumps
from logsaver.value import USUAL_TYPE, Stored, typed

logger = logging.getLogger("logsaver")


class Undecodable:
    """Stands in `list` for a value that cannot be read back; anything done with it raises.

    One broken value must not hide a thread's history, and must not pass for data either.
    """

    __slots__ = ("_error",)

    def __init__(self, error: ValueDecodeError) -> None:
        object.__setattr__(self, "_error", error)

    def __repr__(self) -> str:
        return f"<Undecodable: {object.__getattribute__(self, '_error')}>"

    def _raise(self, *_: object, **__: object) -> NoReturn:
        raise object.__getattribute__(self, "_error")

    __getattr__ = _raise
    __bool__ = __call__ = __contains__ = __getitem__ = __iter__ = __len__ = _raise
    __add__ = __radd__ = __float__ = __ge__ = __gt__ = __int__ = __le__ = __lt__ = _raise
    __eq__ = __ne__ = __hash__ = _raise
    __format__ = __str__ = _raise
    __reduce_ex__ = _raise


def encode_error(
    serde: SerializerProtocol, error: Exception, owner: object, part: str, name: object
) -> ValueEncodeError:
    """For a value that the serializer refused. Owner, part and name tell whose it is."""
    return ValueEncodeError(
        f"{owner}: {part} {name!r} cannot be serialized by {type(serde).__name__} "
        f"({type(error).__name__}: {error}); nothing of this call was stored. Keep it out of the "
        "state, or give a serializer that can, for example "
        "LogSaver(path, serde=JsonPlusSerializer(pickle_fallback=True))"
    )


def load(
    serde: SerializerProtocol,
    stored: Stored,
    owner: object,
    part: str,
    name: object = "",
    expected: type = object,
) -> Any:
    """Deserialize a value. Owner, part and name tell whose it is, should that fail."""
    kind_and_data = (USUAL_TYPE, stored) if type(stored) is bytes else typed(stored)
    try:
        value = serde.loads_typed(kind_and_data)
        if not isinstance(value, expected):
            raise TypeError(f"it is a {type(value).__name__} and no {expected.__name__}")
    except Exception as error:
        raise ValueDecodeError(
            f"{owner}: {part} {name!r} cannot be read back by {type(serde).__name__} (stored as "
            f"{kind_and_data[0]!r}, {type(error).__name__}: {error}); open the log with the "
            "serializer that wrote it"
        ) from error
    return value


def load_leniently(
    serde: SerializerProtocol,
    stored: Stored,
    owner: object,
    part: str,
    name: object = "",
    expected: type = object,
) -> Any:
    """The same, with `Undecodable` in place of an error."""
    try:
        return load(serde, stored, owner, part, name, expected)
    except ValueDecodeError as error:
        logger.warning("%s", error)
        return Undecodable(error)


def matches(serde: SerializerProtocol, wanted: Mapping[str, Any], metadata: Any) -> bool:
    """Whether metadata has all the items of a filter. Keys are literal, dots and all."""
    if isinstance(metadata, Undecodable):
        return False
    return all(
        _equal_after_round_trip(serde, value, metadata.get(key)) for key, value in wanted.items()
    )


def _equal_after_round_trip(serde: SerializerProtocol, wanted: Any, found: Any) -> bool:
    if wanted == found:
        return True
    try:
        return bool(serde.loads_typed(exact_dumps(serde)(wanted)) == found)
    except Exception:  # noqa: BLE001 - what cannot be serialized was never stored
        return False
