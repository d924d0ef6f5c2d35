"""A log's checkpoints as they are stored, and back: for tools that look into logs or move them.

Values stay the serializer's type and bytes here, so that what cannot be decoded can still be
shown, measured and moved without a change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.codec import Undecodable, load_leniently
from logsaver.config import Address, address_of, names_namespace
from logsaver.index import Index
from logsaver.log import Log
from logsaver.reading import (
    Found,
    find,
    find_hidden,
    read_metadata,
    read_writes,
    value_of,
    value_of_write,
)
from logsaver.record import CheckpointRecord, ForgetRecord, Forgotten
from logsaver.saver import LogSaver
from logsaver.store import Store
from logsaver.value import Stored, is_in_pieces, own_bytes, pieces_of, typed

Progress = Callable[[int, int], None]


class StoredValue(NamedTuple):
    """A value as the serializer made it."""

    type: str
    data: bytes


class StoredWrite(NamedTuple):
    """A pending write. A negative slot is that of a special channel, such as an interrupt's."""

    task_id: str
    task_path: str
    slot: int
    channel: str
    value: StoredValue


class StoredWrites(NamedTuple):
    """Writes that wait for a checkpoint which is not there yet."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    writes: tuple[StoredWrite, ...]


class StoredCheckpoint(NamedTuple):
    """A checkpoint and the writes beside it.

    `hidden` is one that was pruned and is kept only because descendants are rebuilt from it.
    `bytes` counts its own frame and those of its writes; values in `shared` are in another one.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    hidden: bool
    bytes: int
    checkpoint: StoredValue
    metadata: StoredValue
    channels: Mapping[str, StoredValue]
    shared: frozenset[str]
    writes: tuple[StoredWrite, ...]


@dataclass(slots=True)
class ChannelUsage:
    """What the values of one channel take, over all checkpoints."""

    values: int = 0
    stored_bytes: int = 0
    """What is in the log, as values and as pending writes."""
    shared_bytes: int = 0
    """What sharing saved: these would be there as well if each checkpoint had its own values."""
    patched_bytes: int = 0
    """What patching saved: what values repeat of earlier ones instead of having it themselves."""


@dataclass(slots=True)
class Usage:
    """What the bytes of a log are for."""

    bytes: int
    live_bytes: int = 0
    """What listed checkpoints, their writes, and whatever these need take."""
    copied_bytes: int = 0
    """What copies of threads would take if they were not references."""
    channels: dict[str, ChannelUsage] = field(default_factory=dict)

    @property
    def garbage_bytes(self) -> int:
        """What nobody can see any more: deleted, pruned or replaced."""
        return self.bytes - self.live_bytes

    @property
    def shared_bytes(self) -> int:
        """What sharing values between checkpoints saved."""
        return sum(channel.shared_bytes for channel in self.channels.values())

    @property
    def patched_bytes(self) -> int:
        """What storing only the changed parts of values saved."""
        return sum(channel.patched_bytes for channel in self.channels.values())


# -- looking


def stored(saver: LogSaver, config: RunnableConfig) -> Iterator[StoredCheckpoint | StoredWrites]:
    """What a log has of a thread, each namespace in the order of checkpoint ids.

    `config` may also name a namespace and a checkpoint. Unlike `list` it shows hidden checkpoints,
    and writes whose checkpoint is not there. It decodes nothing and holds no lock meanwhile.
    """
    store, wanted = _store_of(saver), address_of(config)
    with store.lock:
        thread = store.view().threads.get(wanted.thread_id)
        names = [] if thread is None else sorted(thread.namespaces)
    for name in names:
        if names_namespace(config) and name != wanted.ns:
            continue
        for checkpoint_id in _ids(store, wanted.thread_id, name):
            if wanted.checkpoint_id in (None, checkpoint_id):
                address = Address(wanted.thread_id, name, checkpoint_id)
                found = _look_up(store, _serde_of(saver), address)
                if found is not None:
                    yield found


def _ids(store: Store, thread_id: str, name: str) -> list[str]:
    with store.lock:
        ns = store.view().namespace(thread_id, name)
        return [] if ns is None else sorted({*ns.ids, *ns.hidden, *ns.writes})


def _look_up(
    store: Store, serde: SerializerProtocol, address: Address
) -> StoredCheckpoint | StoredWrites | None:
    """None if it was deleted meanwhile."""
    listed = find(store, address)
    found = listed or find_hidden(store, address)
    if found is not None:
        return _describe(serde, found, hidden=listed is None)
    assert address.checkpoint_id is not None
    with store.lock:
        ns = store.view().namespace(address.thread_id, address.ns)
        log, entries = store.log, () if ns is None else ns.writes_of(address.checkpoint_id)
    if not entries:
        return None
    return StoredWrites(address.thread_id, address.ns, address.checkpoint_id, _writes(log, entries))


def _describe(serde: SerializerProtocol, found: Found, *, hidden: bool) -> StoredCheckpoint:
    log, key, entry = found.log, found.key, found.entry
    record = log.checkpoint(entry.offset, entry.size)
    holders: dict[int, CheckpointRecord] = {}
    return StoredCheckpoint(
        key.thread_id,
        key.ns,
        key.checkpoint_id,
        entry.parent_id,
        hidden,
        entry.size + sum(writes.size for writes in found.writes),
        _value(record.body),
        _metadata(serde, found, record),
        {
            channel: _value(value_of(log, record, channel, entry.offset, holders))
            for channel in record.channels
        },
        frozenset(name for name, place in record.channels.items() if type(place) is int),
        _writes(log, found.writes),
    )


def _metadata(serde: SerializerProtocol, found: Found, record: CheckpointRecord) -> StoredValue:
    if record.thread_id != found.key.thread_id:  # a copy, which shows its own name there
        metadata = read_metadata(serde, found, load_leniently)
        if not isinstance(metadata, Undecodable):
            return StoredValue(*serde.dumps_typed(metadata))
    return _value(record.metadata)


def _writes(log: Log, entries: Any) -> tuple[StoredWrite, ...]:
    return tuple(
        StoredWrite(
            write.task_id,
            write.order[0],
            write.order[2],
            write.channel,
            _value(value_of_write(log, write)),
        )
        for write in read_writes(log, entries)
    )


def _value(value: Stored) -> StoredValue:
    return StoredValue(*typed(value))


# -- measuring


def usage(saver: LogSaver, progress: Progress | None = None) -> Usage:
    """What the bytes of a log are for. Reads all that is live, once.

    `progress` is called with the bytes looked at and those of the log.
    """
    store = _store_of(saver)
    with store.lock:
        index, log = store.view(), store.log
        measured = Usage(store.size(), live_bytes=log.header.data_start)
        checkpoints, writes, measured.copied_bytes = _frames(index)
    _measure_checkpoints(log, checkpoints, measured, progress)
    for offset, size in sorted(writes.items()):
        measured.live_bytes += size
        for _, channel, value in log.writes(offset, size).writes:
            _add_stored(_channel(measured, channel), value)
        if progress is not None:
            progress(measured.live_bytes, measured.bytes)
    return measured


def _frames(index: Index) -> tuple[dict[int, int], dict[int, int], int]:
    """Offset to size, of checkpoints and of writes; and the bytes referred to more than once."""
    checkpoints: dict[int, int] = {}
    writes: dict[int, int] = {}
    repeated = 0
    for thread in index.threads.values():
        for ns in thread.namespaces.values():
            for offset, size, *_ in (*ns.listed.values(), *ns.hidden.values()):
                repeated += size if offset in checkpoints else 0
                checkpoints[offset] = size
            for checkpoint_id in ns.writes:
                for offset, size in ns.writes_of(checkpoint_id):
                    repeated += size if offset in writes else 0
                    writes[offset] = size
    return checkpoints, writes, repeated


def _measure_checkpoints(
    log: Log, checkpoints: Mapping[int, int], measured: Usage, progress: Progress | None
) -> None:
    sizes: dict[tuple[int, str], int] = {}  # of values, by the place they are stored at
    for offset, size in sorted(checkpoints.items()):
        record = log.checkpoint(offset, size)
        measured.live_bytes += size
        for channel, place in record.channels.items():
            usage_of_channel = _channel(measured, channel)
            usage_of_channel.values += 1
            if type(place) is not int:
                sizes[offset, channel] = len(typed(value_of(log, record, channel, offset))[1])
                _add_stored(usage_of_channel, place)
                continue
            if (place, channel) not in sizes:
                # Its checkpoint is gone; of that frame, this value is still needed.
                held = len(typed(value_of(log, record, channel, offset))[1])
                sizes[place, channel] = held
                usage_of_channel.stored_bytes += held
                measured.live_bytes += held
            else:
                usage_of_channel.shared_bytes += sizes[place, channel]
        if progress is not None:
            progress(measured.live_bytes, measured.bytes)


def _add_stored(used: ChannelUsage, value: Stored) -> None:
    own = len(own_bytes(value))
    used.stored_bytes += own
    if is_in_pieces(value):
        used.patched_bytes += sum(piece.length for piece in pieces_of(value[2])) - own


def _channel(measured: Usage, name: str) -> ChannelUsage:
    return measured.channels.setdefault(name, ChannelUsage())


# -- and back


def restore(saver: LogSaver, items: Iterable[StoredCheckpoint | StoredWrites]) -> int:
    """Put what `stored` gave into another log, byte for byte; how many checkpoints it was.

    Ids, parents, metadata, writes and their task paths are kept. Values equal to those of the
    parent are shared with it again. Returns once all of it is on stable storage.
    """
    clone = copy.copy(saver)
    clone.fsync = "never"  # one sync at the end instead of one for each
    raw = clone.serde = _Raw(_serde_of(saver))
    digests: dict[tuple[str, str, str | None], dict[str, bytes]] = {}
    checkpoints = 0
    for item in items:
        address = Address(item.thread_id, item.checkpoint_ns, item.checkpoint_id)
        if isinstance(item, StoredCheckpoint):
            checkpoints += 1
            digests[address] = own = {name: _digest(v) for name, v in item.channels.items()}
            of_parent = digests.get(address._replace(checkpoint_id=item.parent_id), {})
            checkpoint, metadata = raw.prepare(item)
            clone.put(
                address._replace(checkpoint_id=item.parent_id).config(),
                checkpoint,
                metadata,
                {name: 0 for name, digest in own.items() if of_parent.get(name) != digest},
            )
        for (task_id, task_path), writes in _calls(item.writes):
            rows = [(write.channel, write.value) for write in writes]
            clone.put_writes(address.config(), rows, task_id, task_path)
        if isinstance(item, StoredCheckpoint) and item.hidden:
            _hide(_store_of(saver), address)
    saver.flush()
    return checkpoints


class _Id(str):
    """The id in a checkpoint that `_Raw` has prepared, to know the checkpoint by."""

    __slots__ = ()


class _Raw(SerializerProtocol):
    """Serializes nothing a second time: what was stored is stored again as it was."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self._checkpoint = self._metadata = StoredValue("", b"")

    def prepare(self, item: StoredCheckpoint) -> tuple[Any, Any]:
        """A checkpoint and its metadata for the next put, decoded as far as that needs it."""
        self._checkpoint, self._metadata = item.checkpoint, item.metadata
        owner = Address(item.thread_id, item.checkpoint_ns, item.checkpoint_id)
        parts = [
            load_leniently(self._serde, [part.type, part.data], owner, name, expected=dict)
            for name, part in (("the checkpoint", item.checkpoint), ("metadata", item.metadata))
        ]
        body, metadata = ({} if isinstance(part, Undecodable) else part for part in parts)
        return {**body, "id": _Id(item.checkpoint_id), "channel_values": item.channels}, metadata

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if not isinstance(obj, StoredValue):
            obj = self._checkpoint if type(obj.get("id")) is _Id else self._metadata
        return obj.type, obj.data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self._serde.loads_typed(data)


def _digest(value: StoredValue) -> bytes:
    return blake2b(value.data, digest_size=16, key=value.type.encode()[:64]).digest()


def _calls(
    writes: Sequence[StoredWrite],
) -> Iterator[tuple[tuple[str, str], list[StoredWrite]]]:
    """The writes as put_writes takes them: an ordinary one's place in the call is its slot.

    At a place that no write of the task has there was a special one, which then stands there
    again: of special writes the last one counts, and of ordinary ones the first.
    """
    calls: dict[tuple[str, str], list[StoredWrite]] = {}
    tasks: dict[str, dict[int, StoredWrite]] = {}
    for write in writes:
        calls.setdefault((write.task_id, write.task_path), []).append(write)
        tasks.setdefault(write.task_id, {})[write.slot] = write
    for name, call in sorted(calls.items(), key=lambda item: _special_calls_last(item[1])):
        task = tasks[name[0]]
        filler = task[min(task)]
        places = range(max(write.slot for write in call) + 1)
        special = (write for write in call if write.slot < 0)
        yield name, [*(task.get(place, filler) for place in places), *special]


def _special_calls_last(call: Sequence[StoredWrite]) -> tuple[bool, int]:
    last = max(write.slot for write in call)
    return last < 0, last


def _hide(store: Store, address: Address) -> None:
    assert address.checkpoint_id is not None
    change = Forgotten(address.thread_id, address.ns, [], [address.checkpoint_id])
    store.waiting.insist(lambda: store.change(lambda _log, _index: ForgetRecord([change])))


def _serde_of(saver: LogSaver) -> SerializerProtocol:
    return saver._serde  # noqa: SLF001 - what makes values, where the frames are encrypted


def _store_of(saver: LogSaver) -> Store:
    return saver._store  # noqa: SLF001 - a part of the package that the saver need not carry
