"""The records of a log, to msgpack bytes and back.

One call on the saver is one record is one frame, so it is in the log whole or not at all.
Payloads are decoded without extension hooks: opening a log never builds a user's class.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Final, NamedTuple

import ormsgpack

from logsaver.frame import ENCRYPTED, FRAME_HEADER_SIZE, MAX_PAYLOAD, Frame
from logsaver.value import Stored, is_own, is_stored, is_whole, new


class BadRecordError(ValueError):
    """Raised when a payload with a good checksum does not hold the record it claims to."""


class UnknownKindError(ValueError):
    """Raised for a frame kind or flag that a newer logsaver must have written."""


# One write: slot, channel, value. A negative slot marks the special channels, which overwrite.
Write = tuple[int, str, Stored]


class CheckpointRecord(NamedTuple):
    """One `put`."""

    thread_id: str
    ns: str
    checkpoint_id: str
    parent_id: str | None
    time: int  # microseconds since 1970, from the checkpoint's own timestamp
    tags: bytes  # of the metadata, see tags.py
    body: Stored  # the checkpoint without its channel values
    metadata: Stored
    channels: dict[str, Stored]


class WritesRecord(NamedTuple):
    """One `put_writes`: what a task wrote, kept beside the checkpoint it started from."""

    thread_id: str
    ns: str
    checkpoint_id: str
    task_id: str
    task_path: str
    writes: list[Write]


class DeleteRecord(NamedTuple):
    """Threads that are gone, with all their namespaces and writes."""

    thread_ids: list[str]


class ForgetRecord(NamedTuple):
    """Checkpoints that are gone from some namespaces: prune and delete_for_runs."""

    changes: list[Forgotten]


class Forgotten(NamedTuple):
    """In one namespace: what goes for good, and what is only kept for its descendants."""

    thread_id: str
    ns: str
    dropped: list[str]
    hidden: list[str]


class CopyRecord(NamedTuple):
    """A thread that starts as a copy of another: a reference, no values."""

    source: str
    target: str


class Linked(NamedTuple):
    """A checkpoint whose frame another thread wrote: all that the index says of it."""

    checkpoint_id: str
    offset: int
    size: int
    parent_id: str | None
    time: int
    tags: bytes
    is_hidden: bool


# The calls of one task, in order: checkpoint id, task id, and the offset and size of each frame.
LinkedWrites = tuple[str, str, list[tuple[int, int]]]


class LinkRecord(NamedTuple):
    """What a namespace has of frames that another thread wrote.

    This is what compaction makes of copied threads: at the place of a copy in the old log, their
    source looked as it may not look any more.
    """

    thread_id: str
    ns: str
    checkpoints: list[Linked]
    writes: list[LinkedWrites]

    def check_lies_before(self, end: int) -> None:
        """Raise `BadRecordError` if it names frames from `end` on, where its own frame is."""
        frames = chain(
            ((linked.offset, linked.size) for linked in self.checkpoints),
            chain.from_iterable(places for _, _, places in self.writes),
        )
        if any(offset + size > end for offset, size in frames):
            raise BadRecordError("it links to a frame that comes later")


class ReplacedRecord(NamedTuple):
    """The last record of a file that is about to be replaced by this generation.

    Whoever follows the file looks at its name from here on. If its writer was killed before the
    rename, other records follow it, and it means nothing.
    """

    generation: int


class VouchRecord(NamedTuple):
    """Written at a clean close, for what its frame's header says: up to there all is safe.

    Without it nothing would say so of the last frames, and damage to them would look like the
    unfinished end that a crash leaves.
    """


class SealPartRecord(NamedTuple):
    """What the index has of some threads, as columns; see seal.py."""

    threads: bytes


class SealRecord(NamedTuple):
    """All threads at this point of the log, and where in which part each of them is sealed."""

    named_upto: int  # only a watermark above this says that the file's name is permanent
    places: bytes
    summaries: bytes


AboutTheFile = ReplacedRecord | VouchRecord | SealPartRecord | SealRecord
"""Say something of the file that they are in, nothing new of its content: no copy takes them."""

Record = (
    CheckpointRecord
    | WritesRecord
    | DeleteRecord
    | ForgetRecord
    | CopyRecord
    | LinkRecord
    | AboutTheFile
)


class Kind:
    """The frame kinds. A number, once used, keeps its meaning for ever."""

    CHECKPOINT: Final = 1
    WRITES: Final = 2
    DELETE: Final = 3
    FORGET: Final = 4
    COPY: Final = 5
    REPLACED: Final = 6
    VOUCH: Final = 7
    SEAL: Final = 8
    LINK: Final = 9
    SEAL_PART: Final = 10


MAX_FRAME: Final = FRAME_HEADER_SIZE + MAX_PAYLOAD

_pack = ormsgpack.packb
_ARRAY_OF_2: Final = b"\x92"
_END: Final = 0x8E5C_F00D_1A9B_4C37
_END_MARK: Final = ormsgpack.packb(_END)

_KIND_OF: Final[dict[type, int]] = {
    CheckpointRecord: Kind.CHECKPOINT,
    WritesRecord: Kind.WRITES,
    DeleteRecord: Kind.DELETE,
    ForgetRecord: Kind.FORGET,
    CopyRecord: Kind.COPY,
    ReplacedRecord: Kind.REPLACED,
    VouchRecord: Kind.VOUCH,
    SealRecord: Kind.SEAL,
    LinkRecord: Kind.LINK,
    SealPartRecord: Kind.SEAL_PART,
}


def encode(record: Record) -> tuple[int, bytes]:
    """The frame kind and payload. Raises `TypeError` for text that is not valid Unicode."""
    # Plain tuples: msgpack knows no names, and fields keep their order.
    fields = tuple(record)
    if type(record) is ForgetRecord:
        fields = ([tuple(change) for change in record.changes],)
    elif type(record) is LinkRecord:
        thread_id, ns, checkpoints, writes = record
        fields = (thread_id, ns, [tuple(linked) for linked in checkpoints], writes)
    return _KIND_OF[type(record)], _pack(fields)


def record_of(frame: Frame) -> Record:
    """The record in a frame. Raises `BadRecordError` or `UnknownKindError`."""
    if frame.flags == ENCRYPTED:
        raise BadRecordError("the frame is encrypted, in a log that is not")
    if frame.flags:
        # Under a flag of a later version, bytes that decode by chance do not mean what they say.
        raise UnknownKindError(f"has flags {frame.flags:#x}, which this version does not know")
    return decode(frame.kind, frame.payload)


def decode(kind: int, payload: bytes | memoryview) -> Record:
    """The record in a payload. Raises `BadRecordError` or `UnknownKindError`."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise UnknownKindError(f"is of kind {kind}, which this version does not know")
    fields = _unpack(payload)
    if type(fields) is not list:
        raise BadRecordError("the payload is no array")
    try:
        record: Record | None = decoder(*fields)
    except (TypeError, ValueError) as error:
        raise BadRecordError(f"the record has the wrong fields: {error}") from error
    if record is None:
        raise BadRecordError("the record has fields of the wrong type")
    return record


def _unpack(payload: bytes | memoryview) -> Any:
    """The one object in a payload. Unpacked beside an end mark: what follows it is ignored."""
    try:
        found, end = ormsgpack.unpackb(b"".join((_ARRAY_OF_2, payload, _END_MARK)))
    except ValueError as error:
        raise BadRecordError(f"the payload is not msgpack: {error}") from error
    if end != _END:
        raise BadRecordError("bytes follow the record in its payload")
    return found


_CHILD: Final = (str, str, str, str, int, bytes, bytes, bytes, dict)
_USUAL_FIELDS: Final = {_CHILD, (*_CHILD[:3], type(None), *_CHILD[4:])}
_WHOLE_CHANNELS: Final = {bytes}


def _checkpoint(*fields: Any) -> CheckpointRecord | None:
    # Opening a log that is not sealed comes through here for each of its checkpoints.
    if tuple(map(type, fields)) in _USUAL_FIELDS and _WHOLE_CHANNELS.issuperset(
        map(type, fields[-1].values())
    ):
        return new(CheckpointRecord, fields)
    record = CheckpointRecord(*fields)
    ok = (
        _strings(record.thread_id, record.ns, record.checkpoint_id)
        and (record.parent_id is None or isinstance(record.parent_id, str))
        and type(record.time) is int
        and isinstance(record.tags, bytes)
        and is_whole(record.body)
        and is_whole(record.metadata)
        and isinstance(record.channels, dict)
    )
    return record if ok and all(map(is_stored, record.channels.values())) else None


def _writes(*fields: Any) -> WritesRecord | None:
    record = WritesRecord(*fields)
    if type(record.writes) is not list or not _strings(*record[:-1]):
        return None
    rows: list[Any] = [tuple(row) for row in fields[-1] if type(row) is list]
    ok = len(rows) == len(record.writes) and all(
        len(row) == 3 and type(row[0]) is int and isinstance(row[1], str) and is_own(row[2])
        for row in rows
    )
    return record._replace(writes=rows) if ok else None


def _delete(thread_ids: list[str]) -> DeleteRecord | None:
    return DeleteRecord(thread_ids) if _list_of_strings(thread_ids) else None


def _forget(rows: list[Any]) -> ForgetRecord | None:
    if type(rows) is not list:
        return None
    record = ForgetRecord([Forgotten(*row) for row in rows])
    ok = all(
        _strings(change.thread_id, change.ns)
        and _list_of_strings(change.dropped)
        and _list_of_strings(change.hidden)
        for change in record.changes
    )
    return record if ok else None


def _copy(source: str, target: str) -> CopyRecord | None:
    return CopyRecord(source, target) if _strings(source, target) else None


def _link(thread_id: str, ns: str, checkpoints: Any, writes: Any) -> LinkRecord | None:
    if not _strings(thread_id, ns) or type(checkpoints) is not list or type(writes) is not list:
        return None
    linked = [Linked(*row) for row in checkpoints]
    rows = [
        (checkpoint_id, task_id, [(offset, size) for offset, size in frames])
        for checkpoint_id, task_id, frames in writes
    ]
    ok = all(
        isinstance(each.checkpoint_id, str)
        and _is_place(each.offset, each.size)
        and (each.parent_id is None or isinstance(each.parent_id, str))
        and type(each.time) is int
        and isinstance(each.tags, bytes)
        and type(each.is_hidden) is bool
        for each in linked
    ) and all(
        _strings(checkpoint_id, task_id)
        and len(frames) > 0
        and all(_is_place(offset, size) for offset, size in frames)
        for checkpoint_id, task_id, frames in rows
    )
    return LinkRecord(thread_id, ns, linked, rows) if ok and (linked or rows) else None


def _is_place(offset: object, size: object) -> bool:
    return type(offset) is int and offset >= 0 and type(size) is int and 0 < size <= MAX_FRAME


def _replaced(generation: int) -> ReplacedRecord | None:
    return ReplacedRecord(generation) if type(generation) is int else None


def _seal(named_upto: int, places: bytes, summaries: bytes) -> SealRecord | None:
    ok = type(named_upto) is int and isinstance(places, bytes) and isinstance(summaries, bytes)
    return SealRecord(named_upto, places, summaries) if ok else None


def _seal_part(threads: bytes) -> SealPartRecord | None:
    return SealPartRecord(threads) if isinstance(threads, bytes) else None


def _strings(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)


def _list_of_strings(value: object) -> bool:
    return isinstance(value, list) and _strings(*value)


_DECODERS: Final[dict[int, Any]] = {
    Kind.CHECKPOINT: _checkpoint,
    Kind.WRITES: _writes,
    Kind.DELETE: _delete,
    Kind.FORGET: _forget,
    Kind.COPY: _copy,
    Kind.REPLACED: _replaced,
    Kind.VOUCH: VouchRecord,
    Kind.SEAL: _seal,
    Kind.LINK: _link,
    Kind.SEAL_PART: _seal_part,
}
