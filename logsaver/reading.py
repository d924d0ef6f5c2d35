"""From the index and the log to LangGraph's tuples.

The index is looked at under the store's lock and only for a moment; frames are read and values
decoded outside it. So `list` holds nothing while its caller iterates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from langgraph.checkpoint.base import (
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.codec import Undecodable, load
from logsaver.config import Address
from logsaver.errors import RESTORE_OR_REPAIR, CorruptLogError
from logsaver.index import Key
from logsaver.log import Log
from logsaver.record import CheckpointRecord
from logsaver.store import Store
from logsaver.thread import Entry, Namespace, WritesEntry
from logsaver.value import USUAL_TYPE, Stored, is_in_pieces, new
from logsaver.values import number_of, put_together

Decode = Callable[..., Any]  # load or load_leniently

FEWEST_AT_ONCE, MOST_AT_ONCE = 16, 256  # ancestors looked up while the lock is held
_THE_WRITE: Final = "the write of (task, channel)"


class Found(NamedTuple):
    """What the index knows of one checkpoint; stays true when the index moves on."""

    log: Log  # the generation that the positions are in
    key: Key
    entry: Entry
    parent_is_listed: bool
    parent_is_hidden: bool
    writes: tuple[WritesEntry, ...]


class StoredWrite(NamedTuple):
    """A pending write; sorts like LangGraph's `writes_sort_key`."""

    order: tuple[str, str, int]
    task_id: str
    channel: str
    stored: Stored  # as it is in the log; see `value_of_write`
    offset: int  # of its frame
    number: int  # of the value in there


# -- one checkpoint


def find(store: Store, address: Address) -> Found | None:
    """The checkpoint at this address, or the latest there. O(1)."""
    with store.lock:
        ns = store.view().namespace(address.thread_id, address.ns)
        if ns is None:
            return None
        checkpoint_id = address.checkpoint_id
        if checkpoint_id is None:
            if not ns.ids:
                return None
            checkpoint_id = ns.ids[-1]
        return found_listed(store.log, Key(checkpoint_id, address.thread_id, address.ns), ns)


def find_hidden(store: Store, address: Address) -> Found | None:
    """The hidden checkpoint at this address, for those who walk back from a descendant."""
    with store.lock:
        ns = store.view().namespace(address.thread_id, address.ns)
        if ns is None or address.checkpoint_id not in ns.hidden:
            return None
        key = Key(address.checkpoint_id, address.thread_id, address.ns)
        return found_at(store.log, key, ns.hidden[key.checkpoint_id], ns)


def found_listed(log: Log, key: Key, ns: Namespace) -> Found | None:
    entry = ns.listed.get(key.checkpoint_id)
    return None if entry is None else found_at(log, key, entry, ns)


def found_at(log: Log, key: Key, entry: Entry, ns: Namespace) -> Found:
    return Found(
        log,
        key,
        entry,
        entry.parent_id in ns.listed,
        entry.parent_id in ns.hidden,
        ns.writes_of(key.checkpoint_id),
    )


def read_tuple(
    serde: SerializerProtocol, found: Found, decode: Decode = load, metadata: Any = None
) -> CheckpointTuple:
    """Read a checkpoint; `metadata` if the caller has decoded it already."""
    log, key, entry, parent_is_listed, parent_is_hidden, writes = found
    record = log.checkpoint(entry.offset, entry.size)
    checkpoint = decode(serde, record.body, key, "the checkpoint", expected=dict)
    if not isinstance(checkpoint, Undecodable):
        holders: dict[int, CheckpointRecord] = {}
        checkpoint["channel_values"] = {
            channel: decode(
                serde,
                value_of(log, record, channel, entry.offset, holders),
                key,
                "channel",
                channel,
            )
            for channel in record.channels
        }
    if metadata is None:
        metadata = read_metadata(serde, found, decode)
    parent_config = None
    if parent_is_listed:
        parent_config = Address(key.thread_id, key.ns, entry.parent_id).config()
    elif parent_is_hidden:
        parent_config = Address(key.thread_id, key.ns, entry.parent_id).hidden_config()
    return CheckpointTuple(
        Address(key.thread_id, key.ns, key.checkpoint_id).config(),
        checkpoint,
        metadata,
        parent_config,
        [_pending(serde, log, write, key, decode) for write in read_writes(log, writes)],
    )


def _pending(
    serde: SerializerProtocol, log: Log, write: StoredWrite, key: Key, decode: Decode = load
) -> PendingWrite:
    _, task_id, channel, stored, _, _ = write
    if type(stored) is not bytes:
        stored = value_of_write(log, write)
    value = decode(serde, stored, key, _THE_WRITE, (task_id, channel))
    return task_id, channel, value


def read_metadata(serde: SerializerProtocol, found: Found, decode: Decode = load) -> Any:
    key, entry = found.key, found.entry
    record = found.log.checkpoint(entry.offset, entry.size)
    metadata = decode(serde, record.metadata, key, "the metadata", expected=dict)
    if (
        record.thread_id != key.thread_id  # a copy reads the source's frame
        and not isinstance(metadata, Undecodable)
        and "thread_id" in metadata
        and str(metadata["thread_id"]) == record.thread_id  # 7 names the thread "7"
    ):
        metadata["thread_id"] = key.thread_id
    return metadata


def value_of(
    log: Log,
    record: CheckpointRecord,
    channel: str,
    offset: int,
    holders: dict[int, CheckpointRecord] | None = None,
) -> Stored:
    """The value of a channel, as if it were stored whole: looked up, put together.

    `holders` are the records looked up for other channels: the log's cache takes no large one.
    """
    stored = record.channels[channel]
    if type(stored) is bytes:
        return stored
    place = offset
    # Shared with an earlier frame, always: a place behind this one is no place to look.
    if type(stored) is int and stored < offset:
        place = stored
        found = None if holders is None else holders.get(place)
        if found is None:
            found = log.checkpoint(place)
            if holders is not None:
                holders[place] = found
        record = found
        stored = record.channels.get(channel, place)
    if type(stored) is int:
        raise CorruptLogError(
            log.path,
            offset,
            f"channel {channel!r} is shared with a frame that does not have it; "
            f"{RESTORE_OR_REPAIR}",
        )
    if is_in_pieces(stored):
        return put_together(log, place, number_of(record, channel), stored)
    return stored


def read_writes(log: Log, entries: Sequence[WritesEntry]) -> list[StoredWrite]:
    """A checkpoint's pending writes in LangGraph's order.

    Decided per write: the first of an ordinary one stays, the last of a special one does.
    """
    chosen: dict[tuple[str, int], StoredWrite] = {}
    for entry in entries:
        record = log.writes(entry.offset, entry.size)
        task_id = record.task_id
        for number, (slot, channel, stored) in enumerate(record.writes):
            if slot < 0 or (task_id, slot) not in chosen:
                order = writes_sort_key(record.task_path, task_id, slot)
                chosen[task_id, slot] = StoredWrite(
                    order, task_id, channel, stored, entry.offset, number
                )
    return sorted(chosen.values(), key=_order)


def value_of_write(log: Log, write: StoredWrite) -> Stored:
    """The value of a write, put together if it is stored in pieces."""
    return put_together(log, write.offset, write.number, write.stored)


def _order(write: StoredWrite) -> tuple[str, str, int]:
    return write.order


# -- delta channels


class Ancestor(NamedTuple):
    """What the index knows of a checkpoint on the way back from another."""

    checkpoint_id: str
    entry: Entry
    writes: tuple[WritesEntry, ...]


def read_delta_history(
    store: Store, serde: SerializerProtocol, address: Address, channels: Sequence[str]
) -> dict[str, DeltaChannelHistory]:
    """Per channel the writes of the ancestors, oldest first, back to the nearest stored value."""
    collected: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
    missing = set(collected)
    seeds: dict[str, Any] = {}
    for log, ancestor in _walk_ancestors(store, address):
        checkpoint_id, entry, writes = ancestor
        if writes:
            for write in _writes_to(serde, log, address, ancestor, missing):
                collected[write[1]].append(write)
        record = log.checkpoint(entry.offset, entry.size)
        if not missing.isdisjoint(record.channels):
            key = Key(checkpoint_id, address.thread_id, address.ns)
            for channel in missing & record.channels.keys():
                stored = value_of(log, record, channel, entry.offset)
                seeds[channel] = load(serde, stored, key, "channel", channel)
            missing -= seeds.keys()
            if not missing:
                break
    histories: dict[str, DeltaChannelHistory] = {}
    for channel, found in collected.items():
        histories[channel] = {"writes": found[::-1]}
        if channel in seeds:
            histories[channel]["seed"] = seeds[channel]
    return histories


def _writes_to(
    serde: SerializerProtocol,
    log: Log,
    address: Address,
    ancestor: Ancestor,
    channels: Collection[str],
) -> Sequence[PendingWrite]:
    """Those of its pending writes that are to some of these channels, the last one first."""
    checkpoint_id, _, entries = ancestor
    if len(entries) == 1:
        # The usual case in a long history: nothing to choose from, nothing to sort.
        offset, size = entries[0]
        _, _, _, task_id, _, rows = log.writes(offset, size)
        rows = [row for row in rows if row[1] in channels]
        if not rows:
            return ()
        _, channel, stored = rows[0]
        if len(rows) == 1 and type(stored) is bytes:
            try:
                return ((task_id, channel, serde.loads_typed((USUAL_TYPE, stored))),)
            except Exception:  # noqa: BLE001, S110 - again below, which tells whose value it is
                pass
    key = Key(checkpoint_id, address.thread_id, address.ns)
    writes = [write for write in read_writes(log, entries) if write.channel in channels]
    return [_pending(serde, log, write, key) for write in reversed(writes)]


def _walk_ancestors(store: Store, address: Address) -> Iterator[tuple[Log, Ancestor]]:
    """Parent, grandparent and so on by parent pointers, hidden ones too; a cycle ends it."""
    found = find(store, address)
    if found is None:
        return
    seen = {found.key.checkpoint_id}
    next_id, at_once = found.entry.parent_id, FEWEST_AT_ONCE
    while next_id is not None:
        ancestors: list[Ancestor] = []
        with store.lock:
            ns, log = store.view().namespace(address.thread_id, address.ns), store.log
            while len(ancestors) < at_once and next_id is not None:
                entry = None if ns is None or next_id in seen else ns.find(next_id)
                if ns is None or entry is None:
                    next_id = None
                    break
                seen.add(next_id)
                ancestors.append(new(Ancestor, (next_id, entry, ns.writes_of(next_id))))
                next_id = entry.parent_id
        for ancestor in ancestors:
            yield log, ancestor
        at_once = min(2 * at_once, MOST_AT_ONCE)
