"""What a put and a put_writes store: made ready outside all locks, then appended.

Every step of a running graph comes through here several times, so this is written for speed:
one pass over the channels, no look at the index if the parent was put here, and nothing made
that is not stored or returned.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.bases import LEAST_WEIGHT, Base, Bases
from logsaver.codec import encode_error
from logsaver.config import Address, address_of
from logsaver.errors import InvalidInputError, LogFileError, LogSaverError
from logsaver.index import Index, Key
from logsaver.log import Log
from logsaver.pieces import SMALLEST, Draft
from logsaver.reading import read_writes
from logsaver.record import CheckpointRecord, Write, WritesRecord
from logsaver.store import Appended, ReplacedMeanwhileError, Store
from logsaver.surrogates import exact_dumps
from logsaver.tags import tags
from logsaver.value import USUAL_TYPE, Stored, new, own_bytes, typed, whole
from logsaver.values import CHANNELS_FROM

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Put:
    """One put; called until it is in the log."""

    __slots__ = ("_arguments", "_bases", "_made", "_store")

    def __init__(self, store: Store, bases: Bases, *arguments: Any) -> None:
        """The arguments are the serializer and those of `LogSaver.put`."""
        self._store = store
        self._bases = bases
        self._arguments = arguments
        self._made = checkpoint_record(store, bases, *arguments)

    def __call__(self) -> Appended:
        record, epoch, versions, drafts = self._made
        try:
            appended = self._store.append(record, epoch)
        except ReplacedMeanwhileError:
            # What it shares with its parent is somewhere else now.
            self._made = checkpoint_record(self._store, self._bases, *self._arguments)
            return self()
        log, epoch, offset, end = appended
        thread_id, ns, checkpoint_id, _, _, _, _, _, channels = record
        base = new(Base, (epoch, checkpoint_id, offset, versions, channels, {}))
        self._bases.remember((thread_id, ns), base, end - offset + LEAST_WEIGHT)
        if drafts:
            for number, channel in enumerate(channels, CHANNELS_FROM):
                if (draft := drafts.get(channel)) and draft.stored is channels[channel]:
                    remember(log, offset, number, draft)
        return appended

    def config(self) -> RunnableConfig:
        """What LangGraph is told to find it by."""
        thread_id, ns, checkpoint_id, *_ = self._made.record
        return {
            "configurable": {
                "thread_id": thread_id,
                "checkpoint_ns": ns,
                "checkpoint_id": checkpoint_id,
            }
        }


class _Made(NamedTuple):
    """A record that is ready, and what is worth to be remembered once it is known where it is."""

    record: CheckpointRecord
    epoch: int | None  # of the positions in it
    versions: dict[str, Any]
    drafts: dict[str, Draft]


def checkpoint_record(
    store: Store,
    bases: Bases,
    serde: SerializerProtocol,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: Collection[str],
) -> _Made:
    """One put. A channel that the parent has in the same version becomes a reference."""
    parent = thread_id, ns, parent_id = address_of(config)
    base = bases.of(store, serde, parent)
    checkpoint_id = _id_of(checkpoint)
    body: dict[str, Any] = dict(checkpoint)
    values = body.pop("channel_values", None) or {}
    versions = body.get("channel_versions") or {}
    if type(versions) is not dict and not isinstance(versions, Mapping):
        raise InvalidInputError(f"channel_versions is a mapping, not {versions!r}")
    kept_metadata = get_checkpoint_metadata(_without_chain(config), metadata)
    dumps = exact_dumps(serde)
    channels: dict[str, Stored] = {}
    drafts: dict[str, Draft] = {}
    part, name = "channel", ""
    try:
        for given, value in values.items():
            name = given if type(given) is str else _plain(given)
            if base is not None and name not in new_versions:
                place = base.place_of(name, versions.get(name))
                if place is not None:
                    channels[name] = place
                    continue
            kind, data = typed = dumps(value)
            if type(data) is not bytes or (kind != USUAL_TYPE and type(kind) is not str):
                channels[name] = whole(typed)
            elif base is not None and len(data) >= SMALLEST:
                drafts[name] = draft = base.draft_channel(store, name, kind, data)
                channels[name] = draft.stored
            else:
                channels[name] = data if kind == USUAL_TYPE else [kind, data]
        part, name = "the metadata", ""
        kind, data = typed = dumps(kept_metadata)
        stored_metadata = data if kind == USUAL_TYPE and type(data) is bytes else whole(typed)
        part = "the checkpoint"
        kind, data = typed = dumps(body)
        stored_body = data if kind == USUAL_TYPE and type(data) is bytes else whole(typed)
    except LogFileError:
        raise  # about what the parent has
    except Exception as error:
        key = Key(checkpoint_id, thread_id, ns)
        raise _refusal(serde, error, key, part, name, channels) from error
    time = _microseconds(body.get("ts"))
    known = tags(kept_metadata)
    fields = (
        thread_id, ns, checkpoint_id, parent_id, time, known, stored_body, stored_metadata, channels
    )  # fmt: skip
    # A copy of the versions, now and not later: LangGraph goes on changing its dict.
    epoch = None if base is None else base.epoch
    return new(_Made, (new(CheckpointRecord, fields), epoch, dict(versions), drafts))


def _without_chain(config: Any) -> Any:
    """The same for `get_checkpoint_metadata`, which is slow to look through a `ChainMap`.

    That is what LangGraph hands over, mostly with one mapping in it.
    """
    chain = config.get("metadata")
    if type(chain) is ChainMap and len(chain.maps) == 1:
        return {"metadata": chain.maps[0], "configurable": config.get("configurable")}
    return config


def _id_of(checkpoint: Checkpoint) -> str:
    checkpoint_id = checkpoint.get("id")
    if not checkpoint_id:
        raise InvalidInputError(
            "the checkpoint has no id, so nothing could find it again; give it one under 'id'"
        )
    return checkpoint_id if type(checkpoint_id) is str else str(checkpoint_id)


def _refusal(
    serde: SerializerProtocol,
    error: Exception,
    key: Key,
    part: str,
    name: object,
    channels: Collection[str],
) -> LogSaverError:
    if not _is_unicode(key.checkpoint_id):
        return InvalidInputError(f"{key} cannot be stored; an id must be valid Unicode text")
    # The versions have the channels' names, so they may be the first to stumble over one.
    for channel in channels:
        if not _is_unicode(channel):
            return InvalidInputError(
                f"{key}: a channel named {channel!r} cannot be stored; a name must be valid "
                "Unicode text"
            )
    return encode_error(serde, error, key, part, name)


def putting_writes(
    store: Store,
    bases: Bases,
    serde: SerializerProtocol,
    config: RunnableConfig,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> Callable[[], Appended]:
    """One put_writes; called until it is in the log."""
    address = address_of(config)
    record = writes_record(serde, address, writes, task_id, task_path)
    for _, _, stored in record.writes:
        if len(stored if type(stored) is bytes else own_bytes(stored)) >= SMALLEST:
            return _PutLargeWrites(store, bases, serde, address, record)
    return partial(store.append, record, None, without_repeats)


class _PutLargeWrites:
    """One put_writes with values that may repeat what the checkpoint has."""

    __slots__ = ("_address", "_base", "_bases", "_drafts", "_record", "_serde", "_store", "_whole")

    def __init__(
        self,
        store: Store,
        bases: Bases,
        serde: SerializerProtocol,
        address: Address,
        record: WritesRecord,
    ) -> None:
        self._store = store
        self._bases = bases
        self._serde = serde
        self._address = address
        self._record = self._whole = record
        self._base: Base | None = None
        self._leave_out_what_is_there()

    def _leave_out_what_is_there(self) -> None:
        """Large values often repeat what the checkpoint has."""
        self._base = base = self._bases.of(self._store, self._serde, self._address)
        if base is None:
            return
        self._drafts = [
            base.draft_write(self._store, row[1], *typed(row[2])) if _is_large(row) else None
            for row in self._whole.writes
        ]
        rows = [
            row if draft is None else (row[0], row[1], draft.stored)
            for row, draft in zip(self._whole.writes, self._drafts, strict=True)
        ]
        self._record = self._whole._replace(writes=rows)

    def __call__(self) -> Appended:
        base = self._base
        if base is None:
            return self._store.append(self._record, None, without_repeats)
        try:
            appended = self._store.append(self._record, base.epoch, self._refined)
        except ReplacedMeanwhileError:
            self._leave_out_what_is_there()  # is somewhere else now
            return self()
        log, _, offset, _ = appended
        for number, draft in enumerate(self._drafts):
            if draft is not None:
                remember(log, offset, number, draft)
                base.remember_write(self._record.writes[number][1], (offset, number))
        return appended

    def _refined(self, log: Log, index: Index, record: WritesRecord) -> WritesRecord | None:
        refined = without_repeats(log, index, record)
        if refined is not record:
            self._drafts = []  # its values have other numbers now
        return refined


def _is_large(row: Write) -> bool:
    return len(own_bytes(row[2])) >= SMALLEST


def remember(log: Log, offset: int, number: int, draft: Draft) -> None:
    """Keep a value that was just stored: the next one of its kind is compared with it."""
    value = draft.value.settled(offset, number)
    log.values.put((offset, number), value, len(value.data))


def writes_record(
    serde: SerializerProtocol,
    address: Address,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> WritesRecord:
    thread_id, ns, checkpoint_id = address
    if checkpoint_id is None:
        raise InvalidInputError("put_writes needs the checkpoint_id that the writes belong to")
    dumps = exact_dumps(serde)
    slot_of: Callable[[str, int], int] = WRITES_IDX_MAP.get
    rows: list[Write] = []
    channel: Any = ""
    try:
        for number, (given, value) in enumerate(writes):
            channel = given if type(given) is str else _plain_text(given)
            kind, data = typed = dumps(value)
            stored = data if kind == USUAL_TYPE and type(data) is bytes else whole(typed)
            rows.append((slot_of(channel, number), channel, stored))
    except InvalidInputError:
        raise
    except Exception as error:
        key = Key(checkpoint_id, thread_id, ns)
        raise encode_error(serde, error, key, "the write to channel", channel) from error
    return new(WritesRecord, (thread_id, ns, checkpoint_id, str(task_id), str(task_path), rows))


def without_repeats(log: Log, index: Index, record: WritesRecord) -> WritesRecord | None:
    """Leave out ordinary writes that are there already; None if nothing is left."""
    thread_id, ns_name, checkpoint_id, task_id, _, rows = record
    ns = index.namespace(thread_id, ns_name)
    tasks = None if ns is None else ns.writes.get(checkpoint_id)
    if tasks is not None:
        earlier = tasks.get(task_id)
        if earlier is not None:
            stored = {write.order[2] for write in read_writes(log, earlier)}
            rows = [row for row in rows if row[0] < 0 or row[0] not in stored]
            if len(rows) < len(record.writes):
                record = record._replace(writes=rows)
    return record if rows else None


def _plain_text(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidInputError(f"a channel's name is text, not {name!r}")
    return str.__str__(name)


def _plain(name: Any) -> Any:
    """The text of a name that is a kind of text, as a member of a `str` enum is."""
    return str.__str__(name) if isinstance(name, str) else name


def _is_unicode(name: Any) -> bool:
    try:
        str.encode(name)
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def _microseconds(timestamp: Any) -> int:
    """A checkpoint's own timestamp; the present for one that has none or cannot be read."""
    try:
        moment = datetime.fromisoformat(timestamp)
    except (TypeError, ValueError):
        moment = _moment(timestamp)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _moment(timestamp: Any) -> datetime:
    """Python 3.10 does not know the Z that stands for UTC."""
    try:
        return datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    except (AttributeError, TypeError, ValueError):
        return datetime.now(timezone.utc)
