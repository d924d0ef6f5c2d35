"""An index as columns, to bytes and back. No I/O.

A *part* holds the checkpoints of some threads; a *table* tells of every thread which part it is in,
and what can be told of it without that. Columns are msgpack arrays, compressed together: ids have
much in common, and so do the tags of a thread's checkpoints. Reading them makes no object but
the columns' own, until a thread is asked for.

Whoever reads a seal checks that it makes sense: equally long columns, sorted ids, frames that lie
before it. What does not is a `BadSealError`, and the log is scanned instead.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import add
from typing import Any, Final, NamedTuple

import ormsgpack

from logsaver.thread import Entry, Namespace, Place, Summary, Tasks, Thread, WritesEntry
from logsaver.threads import BadSealError

LEVEL: Final = 1  # a third of the size; more effort saves hardly more
MOST: Final = 1 << 30  # bytes of a part or a table; believed before anything is allocated

_entry: Callable[[tuple[Any, ...]], Entry] = partial(tuple.__new__, Entry)


class SealedNamespace(NamedTuple):
    """One namespace. Listed checkpoints by id, then hidden ones; a parent among them by its row."""

    name: str
    listed: int
    ids: list[str]
    offsets: list[int]
    sizes: list[int]
    parents: list[int | str | None]
    times: list[int]
    tags: list[bytes]
    # Writes: checkpoints by row or id, and how many tasks each has; tasks, and how many calls each
    # has; the frames of the calls.
    written: list[int | str]
    task_counts: list[int]
    tasks: list[str]
    call_counts: list[int]
    call_offsets: list[int]
    call_sizes: list[int]


class Table(NamedTuple):
    """Every thread, by id: in which part it is, and which of the threads there."""

    part_offsets: list[int]  # of the parts' frames
    part_sizes: list[int]
    ids: list[str]
    parts: list[int]
    numbers: list[int]

    def place(self, row: int) -> Place:
        part = self.parts[row]
        return Place(self.part_offsets[part], self.part_sizes[part], self.numbers[row])


# -- threads


def pack_thread(thread: Thread) -> bytes:
    return ormsgpack.packb([_columns(name, ns) for name, ns in thread.namespaces.items()])


def _columns(name: str, ns: Namespace) -> tuple[Any, ...]:
    ids = [*ns.ids, *ns.hidden]
    entries = [ns.listed[checkpoint_id] for checkpoint_id in ns.ids]
    entries += ns.hidden.values()
    rows: dict[str | None, int] = {checkpoint_id: row for row, checkpoint_id in enumerate(ids)}
    offsets, sizes, parents, times, tags = zip(*entries, strict=True) if entries else [()] * 5
    all_tasks = ns.writes.values()
    calls = [entries for tasks in all_tasks for entries in tasks.values()]
    return (
        name,
        len(ns.ids),
        ids,
        offsets,
        sizes,
        [rows.get(parent, parent) for parent in parents],
        times,
        tags,
        [rows.get(checkpoint_id, checkpoint_id) for checkpoint_id in ns.writes],
        list(map(len, all_tasks)),
        [task for tasks in all_tasks for task in tasks],
        list(map(len, calls)),
        [entry.offset for entries in calls for entry in entries],
        [entry.size for entries in calls for entry in entries],
    )


def unpack_thread(data: bytes, end: int) -> Thread:
    """The thread again. `end` is where the seal starts that it belongs to."""
    try:
        thread = Thread()
        for columns in ormsgpack.unpackb(data):
            sealed = SealedNamespace(*columns)
            thread.namespaces[sealed.name] = _namespace(sealed, end)
            thread.bytes += sum(sealed.sizes) + sum(sealed.call_sizes)
    except (TypeError, ValueError, IndexError) as error:
        raise BadSealError(f"a thread in it cannot be read ({error})") from error
    return thread


def _namespace(sealed: SealedNamespace, end: int) -> Namespace:
    ids, listed = sealed.ids, sealed.listed
    _check_sense({str}.issuperset(map(type, ids)) and {bytes}.issuperset(map(type, sealed.tags)))
    ns = Namespace()
    parents = [ids[at] if type(at) is int else at for at in sealed.parents]
    entries = map(
        _entry,
        zip(sealed.offsets, sealed.sizes, parents, sealed.times, sealed.tags, strict=True),
    )
    rows = iter(zip(ids, entries, strict=True))
    ns.ids = ids[:listed]
    ns.listed = dict(islice(rows, listed))
    ns.hidden = dict(rows)
    _check_sense(ns.ids == sorted(ns.listed) and len(ns.listed) + len(ns.hidden) == len(ids))
    _check_frames(sealed.offsets, sealed.sizes, end)
    ns.writes = dict(_writes(sealed))
    _check_frames(sealed.call_offsets, sealed.call_sizes, end)
    return ns


def _writes(sealed: SealedNamespace) -> Iterator[tuple[str, Tasks]]:
    _check_sense({str}.issuperset(map(type, sealed.tasks)))
    _check_sense(len(sealed.call_offsets) == len(sealed.call_sizes))
    for counts, what in (
        (sealed.task_counts, sealed.tasks),
        (sealed.call_counts, sealed.call_offsets),
    ):
        _check_sense(min(counts, default=1) > 0 and sum(counts) == len(what))
    frames = zip(sealed.call_offsets, sealed.call_sizes, strict=True)
    calls = (tuple(map(WritesEntry._make, islice(frames, n))) for n in sealed.call_counts)
    tasks = zip(sealed.tasks, calls, strict=True)
    for at, count in zip(sealed.written, sealed.task_counts, strict=True):
        checkpoint_id = sealed.ids[at] if isinstance(at, int) else at
        yield checkpoint_id, dict(islice(tasks, count))


def _check_frames(offsets: Sequence[int], sizes: Sequence[int], end: int) -> None:
    _check_sense(min(offsets, default=0) >= 0 and max(map(add, offsets, sizes), default=0) <= end)


def _check_sense(ok: bool) -> None:
    if not ok:
        raise BadSealError("its columns do not fit together")


def pack_part(threads: Iterable[bytes]) -> bytes:
    return zlib.compress(ormsgpack.packb(list(threads)), LEVEL)


def unpack_part(data: bytes) -> list[bytes]:
    """Of each thread what `unpack_thread` takes."""
    return _list(_unpack(data))


# -- the table


def pack_table(rows: Sequence[tuple[str, Summary, Place]]) -> tuple[bytes, bytes]:
    """The places and the summaries of all threads, which are sorted."""
    parts = {place[:2]: None for _, _, place in rows}
    numbers = {part: number for number, part in enumerate(parts)}
    table = Table(
        [offset for offset, _ in parts],
        [size for _, size in parts],
        [thread_id for thread_id, _, _ in rows],
        [numbers[place[:2]] for _, _, place in rows],
        [place.number for _, _, place in rows],
    )
    summaries = [list(column) for column in zip(*(summary for _, summary, _ in rows), strict=True)]
    return _pack(table), _pack(summaries)


def unpack_table(data: bytes, end: int) -> Table:
    """`end` is where the seal starts: its parts lie before it."""
    try:
        table = Table(*map(_list, _list(_unpack(data))))
        rows = len(table.ids)
        _check_sense(len(table.part_offsets) == len(table.part_sizes))
        _check_sense(len(table.parts) == rows == len(table.numbers))
        _check_sense(min(table.parts, default=0) >= 0 and min(table.numbers, default=0) >= 0)
        _check_sense(max(table.parts, default=-1) < len(table.part_offsets))
        _check_frames(table.part_offsets, table.part_sizes, end)
        _check_sense({str}.issuperset(map(type, table.ids)))
        ids = iter(table.ids)
        next(ids, None)
        _check_sense(all(map(str.__lt__, table.ids, ids)))
    except TypeError as error:
        raise BadSealError(f"its table cannot be read ({error})") from error
    return table


def unpack_summaries(data: bytes) -> list[Summary]:
    try:
        columns = _list(_unpack(data))
        return list(map(Summary._make, zip(*columns, strict=True)))
    except (TypeError, ValueError) as error:
        raise BadSealError(f"its table cannot be read ({error})") from error


def _pack(columns: Sequence[Sequence[Any]]) -> bytes:
    return zlib.compress(ormsgpack.packb(list(columns)), LEVEL)


def _unpack(data: bytes) -> Any:
    reader = zlib.decompressobj()
    try:
        plain = reader.decompress(data, MOST)
        _check_sense(reader.eof and not reader.unused_data)
        return ormsgpack.unpackb(plain)
    except (zlib.error, ValueError) as error:
        raise BadSealError(f"it cannot be read ({error})") from error


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise BadSealError("it has no columns")
    return value
