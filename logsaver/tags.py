"""Metadata reduced to what a filter can be checked against without decoding anything.

A tag is the checksum of one metadata key with its value; a checkpoint's tags lie side by side
in its index entry. A filter whose tag is missing cannot match. One whose tag is there probably
does, and the metadata is decoded to be sure.

Equal values must have equal tags, and 1 == 1.0 == True, so numbers are brought to one form
first. A value that may equal a plain one in ways nobody can foresee (a Decimal, an array
scalar) gets the tag of its key alone, which says: decode and see.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time, timedelta
from typing import Any, Final
from uuid import UUID
from zlib import crc32

TAG_SIZE: Final = 4
_MEMO_LIMIT: Final = 4096
_LONGEST_IN_MEMO: Final = 200  # characters; what is longer hardly comes again
_PLAIN: Final = (str, int, float, UUID)
_MEMORABLE: Final = frozenset(_PLAIN)
_NEVER_EQUAL_TO_PLAIN: Final = (
    type(None), bytes, bytearray, dict, list, tuple, set, frozenset, date, time, timedelta,
)  # fmt: skip
_WITHOUT_TAG: Final = frozenset(_NEVER_EQUAL_TO_PLAIN)

_memo: dict[tuple[str, Any], bytes] = {}


def tags(metadata: Mapping[str, Any]) -> bytes:
    """The tags of all items, one after the other."""
    found = b""
    memo = _memo
    for item in metadata.items():
        key, value = item
        kind = type(value)
        if kind in _MEMORABLE:
            found += memo.get(item) or _tag_of_item(key, value)
        elif kind in _WITHOUT_TAG:
            continue
        elif isinstance(value, _PLAIN):
            found += _tag_of_item(key, value)
        elif not isinstance(value, _NEVER_EQUAL_TO_PLAIN):
            found += _tag_of_key(key)
    return found


def may_match(key: str, value: Any) -> tuple[bytes, ...] | None:
    """The tags of which one must be there for this item to match; None if any could."""
    if isinstance(value, _PLAIN):
        return _tag_of_item(key, value), _tag_of_key(key)
    return None


def may_read_as(key: str, text: str) -> list[bytes]:
    """The tags of which one must be there for an item whose value, as text, is this one."""
    found = [_tag_of_item(key, text), _tag_of_key(key)]
    for read in (int, float, {"True": True, "False": False}.__getitem__):
        try:
            found.append(_tag_of_item(key, read(text)))
        except (KeyError, ValueError):
            continue  # no value of this type has that text
    return found


def _tag_of_item(key: str, value: str | float | UUID) -> bytes:
    # Equal values are equal keys, so the memo cannot tell 1 from True either.
    found = _memo.get((key, value))
    if found is None:
        text = _canonical(value)
        found = _checksum(key, text)
        if len(key) + len(text) <= _LONGEST_IN_MEMO:
            if len(_memo) >= _MEMO_LIMIT:
                _memo.clear()
            _memo[key, value] = found
    return found


def _tag_of_key(key: str) -> bytes:
    return _checksum(key, "*")


def _checksum(key: str, value: str) -> bytes:
    text = f"{key}\0{value}".encode("utf-8", "surrogatepass")
    return crc32(text).to_bytes(TAG_SIZE, "little")


def _canonical(value: str | float | UUID) -> str:
    if isinstance(value, UUID):  # run ids arrive as UUIDs and as text
        return f"s{value}"
    if isinstance(value, str):
        return "s" + str.__str__(value)
    if isinstance(value, int):
        return f"n{int(value)}"
    return f"n{int(value)}" if value.is_integer() else f"n{float(value)!r}"
