"""What a delete, a copy or a prune takes away: planned on the index as it is, under its lock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from logsaver.codec import Undecodable, load, load_leniently
from logsaver.errors import (
    ThreadExistsError,
    ValueDecodeError,
)
from logsaver.index import Index, key_of
from logsaver.log import Log
from logsaver.reading import value_of
from logsaver.record import (
    CheckpointRecord,
    CopyRecord,
    DeleteRecord,
    ForgetRecord,
    Forgotten,
)
from logsaver.retention import (
    FIRST_VERSION_WITHOUT_SENDS_IN_PARENT,
    TASKS,
    Retention,
    expire,
    is_over,
    keep_latest,
    remove,
)
from logsaver.tags import may_read_as
from logsaver.thread import Entry, Namespace, WritesEntry

# Channels that have a value only while a node is due: an edge to it, the input of a run. And
# those that have an empty one otherwise: the edges that a node waits for, sends.
_WHEN_A_NODE_IS_DUE: Final = ("branch:", "__start__")
_WHAT_A_NODE_WAITS_FOR: Final = ("join:", TASKS)


def delete_record(index: Index, thread_ids: Sequence[str]) -> DeleteRecord | None:
    known = [thread_id for thread_id in dict.fromkeys(thread_ids) if thread_id in index.threads]
    return DeleteRecord(known) if known else None


def copy_record(index: Index, source: str, target: str) -> CopyRecord | None:
    thread = index.threads.get(target)
    if thread is not None and thread.checkpoints():
        raise ThreadExistsError(
            f"thread {target!r} has checkpoints already; copy to a new id, or delete it first"
        )
    return CopyRecord(source, target) if source in index.threads else None


def prune_record(
    log: Log, index: Index, serde: SerializerProtocol, thread_ids: Sequence[str]
) -> ForgetRecord | None:
    """Keep the latest checkpoint of each namespace."""
    facts = StoredFacts(log, serde)
    return _forget(
        [
            change
            for thread_id in dict.fromkeys(thread_ids)
            if (thread := index.threads.get(thread_id)) is not None
            for change in keep_latest(thread_id, thread, facts)
        ]
    )


def expire_record(
    log: Log,
    index: Index,
    serde: SerializerProtocol,
    thread_ids: Iterable[str],
    rule: Retention,
    now: int,
) -> ForgetRecord | None:
    """Let go of what the rule does not keep."""
    facts = StoredFacts(log, serde)
    return _forget(
        [
            change
            for thread_id in thread_ids
            if (thread := index.threads.get(thread_id)) is not None and is_over(thread, rule, now)
            for change in expire(thread_id, thread, facts, rule, now)
        ]
    )


def forget_runs_record(
    log: Log, index: Index, serde: SerializerProtocol, run_ids: Collection[str]
) -> ForgetRecord | None:
    """Take away the checkpoints of these runs."""
    facts = StoredFacts(log, serde)
    wanted = tuple({tag for run_id in run_ids for tag in may_read_as("run_id", run_id)})
    changes = []
    for thread_id, thread in index.with_tags((wanted,)):
        for name, ns in thread.namespaces.items():
            removed = _ids_of_runs(ns, wanted, run_ids, facts)
            if removed and (change := remove(thread_id, name, ns, removed, facts)):
                changes.append(change)
    return _forget(changes)


def _ids_of_runs(
    ns: Namespace, wanted: Collection[bytes], run_ids: Collection[str], facts: StoredFacts
) -> list[str]:
    return [
        checkpoint_id
        for checkpoint_id, entry in ns.listed.items()
        if any(tag in entry.tags for tag in wanted) and facts.run_id(entry) in run_ids
    ]


def _forget(changes: list[Forgotten]) -> ForgetRecord | None:
    return ForgetRecord(changes) if changes else None


class StoredFacts:
    """Answers what `retention` asks, from the log."""

    def __init__(self, log: Log, serde: SerializerProtocol) -> None:
        self._log = log
        self._serde = serde

    def _record(self, entry: Entry) -> CheckpointRecord:
        return self._log.checkpoint(entry.offset, entry.size)

    def _metadata(self, entry: Entry) -> Mapping[str, Any] | None:
        """None if it cannot be read: one broken checkpoint must not keep the others."""
        record = self._record(entry)
        key = key_of(record)
        found = load_leniently(self._serde, record.metadata, key, "the metadata", expected=dict)
        return None if isinstance(found, Undecodable) else found

    def _body(self, entry: Entry) -> Mapping[str, Any]:
        record = self._record(entry)
        key = key_of(record)
        body: Mapping[str, Any] = load(
            self._serde, record.body, key, "the checkpoint", expected=dict
        )
        return body

    def run_id(self, entry: Entry) -> str | None:
        run_id = (self._metadata(entry) or {}).get("run_id")
        return None if run_id is None else str(run_id)

    def version(self, entry: Entry) -> int:
        return int(self._body(entry).get("v") or 0)

    def root_id(self, entry: Entry) -> str | None:
        metadata = self._metadata(entry) or {}
        root_id: str | None = (metadata.get("parents") or {}).get("")
        return root_id

    def valueless(self, entry: Entry) -> Collection[str]:
        versions: Mapping[str, Any] = self._body(entry).get("channel_versions") or {}
        return versions.keys() - self._record(entry).channels.keys()

    def has_value(self, entry: Entry, channel: str) -> bool:
        return channel in self._record(entry).channels

    def is_counted(self, entry: Entry, channel: str) -> bool:
        metadata = self._metadata(entry)
        if metadata is None:
            return True  # in doubt, keep
        return channel in (metadata.get("counters_since_delta_snapshot") or ()) or bool(
            metadata.get("delta_writes_versioned")
        )

    def is_snapshot(self, entry: Entry, channel: str) -> bool:
        record = self._record(entry)
        stored = value_of(self._log, record, channel, entry.offset)
        try:
            value = load(self._serde, stored, key_of(record), "channel", channel)
        except ValueDecodeError:
            return True  # in doubt, keep
        return isinstance(value, _DeltaSnapshot)

    def is_going_on(self, entry: Entry) -> bool:
        if self.version(entry) < FIRST_VERSION_WITHOUT_SENDS_IN_PARENT:
            return True  # a node's channel had no name to know it by
        return any(
            channel.startswith(_WHEN_A_NODE_IS_DUE)
            or (channel.startswith(_WHAT_A_NODE_WAITS_FOR) and self._has_items(entry, channel))
            for channel in self._record(entry).channels
        )

    def _has_items(self, entry: Entry, channel: str) -> bool:
        record = self._record(entry)
        stored = value_of(self._log, record, channel, entry.offset)
        try:
            return bool(load(self._serde, stored, key_of(record), "channel", channel))
        except ValueDecodeError:
            return True  # in doubt, keep

    def writes_to(self, entry: WritesEntry, channel: str) -> bool:
        record = self._log.writes(entry.offset, entry.size)
        return any(written == channel for _, written, _ in record.writes)
