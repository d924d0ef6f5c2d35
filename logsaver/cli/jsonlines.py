"""The exact form of an export: JSON lines that hold the serializer's own bytes.

    {"logsaver_export": 1, "threads": ["alice"]}
    {"kind": "checkpoint", "thread_id": "alice", ..., "channels": {"text": ["msgpack", "pWhlbGxv"]}}
    {"kind": "writes", ...}                          writes whose checkpoint is not there
    {"kind": "end", "lines": 2}

A value is its type and its bytes in base64. One that is the same as the parent checkpoint's is
"=" instead, so that an export does not grow with the square of a thread's length.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from logsaver import StoredCheckpoint, StoredValue, StoredWrite, StoredWrites

VERSION: Final = 1
SAME: Final = "="
Item = StoredCheckpoint | StoredWrites
Channels = dict[str, StoredValue]


class BadExportError(ValueError):
    """Raised when a line is not what an export has there."""


# -- out


def lines_of(threads: list[str], items: Iterable[Item]) -> Iterator[str]:
    yield _line({"logsaver_export": VERSION, "threads": threads})
    written = 0
    recent = _Recent()
    for item in items:
        written += 1
        yield _line(
            _checkpoint(item, recent) if isinstance(item, StoredCheckpoint) else _rest(item)
        )
    yield _line({"kind": "end", "lines": written})


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def _checkpoint(item: StoredCheckpoint, recent: _Recent) -> dict[str, Any]:
    of_parent = recent.channels_of_parent(item)
    recent.remember(item)
    return {
        "kind": "checkpoint",
        "thread_id": item.thread_id,
        "checkpoint_ns": item.checkpoint_ns,
        "checkpoint_id": item.checkpoint_id,
        "parent_id": item.parent_id,
        "hidden": item.hidden,
        "checkpoint": _pair(item.checkpoint),
        "metadata": _pair(item.metadata),
        "channels": {
            name: SAME if of_parent.get(name) == value else _pair(value)
            for name, value in item.channels.items()
        },
        "writes": _writes(item.writes),
    }


def _rest(item: StoredWrites) -> dict[str, Any]:
    return {
        "kind": "writes",
        "thread_id": item.thread_id,
        "checkpoint_ns": item.checkpoint_ns,
        "checkpoint_id": item.checkpoint_id,
        "writes": _writes(item.writes),
    }


def _writes(writes: Iterable[StoredWrite]) -> list[Any]:
    return [
        [write.task_id, write.task_path, write.slot, write.channel, *_pair(write.value)]
        for write in writes
    ]


def _pair(value: StoredValue) -> list[str]:
    return [value.type, base64.b64encode(value.data).decode()]


# -- in


def threads_of(first_line: str) -> list[str]:
    """The threads that an export holds, from its first line."""
    try:
        head = _parsed(first_line, 1)
    except BadExportError:
        head = {}
    if head.get("logsaver_export") != VERSION or not isinstance(head.get("threads"), list):
        raise BadExportError("this is not what logsaver export writes, or a later version wrote it")
    return [str(name) for name in head["threads"]]


def items_of(threads: list[str], lines: Iterable[str]) -> Iterator[Item]:
    """What the lines behind the first one hold. Raises `BadExportError`, also at a missing end."""
    recent = _Recent()
    number = 1
    for number, line in enumerate(lines, 2):
        found = _parsed(line, number)
        if found.get("kind") == "end":
            if found.get("lines") != number - 2:
                raise BadExportError(f"line {number}: {found.get('lines')} lines were written")
            return
        try:
            item = _item(found, recent)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadExportError(f"line {number}: {type(error).__name__}: {error}") from error
        if item.thread_id not in threads:
            raise BadExportError(f"line {number}: thread {item.thread_id!r} is not in line 1")
        yield item
    raise BadExportError(f"line {number}: the export ends here, unfinished")


def _parsed(line: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise BadExportError(f"line {number}: {error}") from error
    if not isinstance(found, dict):
        raise BadExportError(f"line {number}: not a JSON object")
    return found


def _item(found: dict[str, Any], recent: _Recent) -> Item:
    names = str(found["thread_id"]), str(found["checkpoint_ns"]), str(found["checkpoint_id"])
    writes = tuple(
        StoredWrite(str(task), str(path), int(slot), str(channel), _value(pair))
        for task, path, slot, channel, *pair in found["writes"]
    )
    if found["kind"] == "writes":
        return StoredWrites(*names, writes)
    if found["kind"] != "checkpoint":
        raise ValueError(f"unknown kind {found['kind']!r}")
    item = StoredCheckpoint(
        *names,
        parent_id=None if found["parent_id"] is None else str(found["parent_id"]),
        hidden=bool(found["hidden"]),
        bytes=0,
        checkpoint=_value(found["checkpoint"]),
        metadata=_value(found["metadata"]),
        channels={},
        shared=frozenset(),
        writes=writes,
    )
    of_parent = recent.channels_of_parent(item)
    channels = {
        str(name): of_parent[name] if pair == SAME else _value(pair)
        for name, pair in found["channels"].items()
    }
    item = item._replace(channels=channels)
    recent.remember(item)
    return item


def _value(pair: list[Any]) -> StoredValue:
    kind, data = pair
    return StoredValue(str(kind), base64.b64decode(data, validate=True))


class _Recent:
    """The channels of checkpoints that a child may still refer to.

    Only the last few of a namespace: a fork from further back has its values once more.
    """

    KEPT: Final = 4

    def __init__(self) -> None:
        self._where: tuple[str, str] | None = None
        self._channels: dict[str, Channels] = {}

    def channels_of_parent(self, item: StoredCheckpoint) -> Channels:
        if self._where != (item.thread_id, item.checkpoint_ns) or item.parent_id is None:
            return {}
        return self._channels.get(item.parent_id, {})

    def remember(self, item: StoredCheckpoint) -> None:
        where = item.thread_id, item.checkpoint_ns
        if self._where != where:
            self._where, self._channels = where, {}
        self._channels[item.checkpoint_id] = dict(item.channels)
        if len(self._channels) > self.KEPT:
            del self._channels[next(iter(self._channels))]
