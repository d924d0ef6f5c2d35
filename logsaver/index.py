"""What is in the log, in memory: sorted keys to file positions. No I/O.

    threads      thread id -> Thread, sorted, so that a prefix is a range
    Thread       namespace -> Namespace
    Namespace    checkpoint id -> Entry, with the ids sorted: the latest is the last

`apply` is the only way to change it, for a record just written and for one read back at open
alike, so the two cannot come to differ.

A checkpoint is *listed* (every reader sees it) or *hidden*: pruned, but kept because a
descendant's DeltaChannel is rebuilt from its writes. Writes are kept by checkpoint id on their
own, since they may arrive before their checkpoint; and by task, since a step of many tasks
puts those of each on their own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from sortedcontainers import SortedDict

from logsaver.record import (
    CheckpointRecord,
    CopyRecord,
    DeleteRecord,
    ForgetRecord,
    Record,
    WritesRecord,
)
from logsaver.value import new


class Entry(NamedTuple):
    """Where a checkpoint is, and what can be told about it without reading it."""

    offset: int
    size: int
    parent_id: str | None
    time: int
    tags: bytes


class WritesEntry(NamedTuple):
    """Where the writes of one call are."""

    offset: int
    size: int


Tasks = dict[str, tuple[WritesEntry, ...]]  # task id -> its calls, the first one first


class Key(NamedTuple):
    """A checkpoint's full name. Sorts by checkpoint id first: that is the order of `list`."""

    checkpoint_id: str
    thread_id: str
    ns: str

    def __str__(self) -> str:
        ns = f", namespace {self.ns!r}" if self.ns else ""
        return f"thread {self.thread_id!r}{ns}, checkpoint {self.checkpoint_id!r}"


def key_of(record: CheckpointRecord) -> Key:
    return Key(record.checkpoint_id, record.thread_id, record.ns)


class Namespace:
    """The checkpoints of one (thread, namespace)."""

    __slots__ = ("hidden", "ids", "listed", "writes")

    def __init__(self) -> None:
        self.ids: list[str] = []  # of what is listed, sorted
        self.listed: dict[str, Entry] = {}
        self.hidden: dict[str, Entry] = {}
        self.writes: dict[str, Tasks] = {}

    def find(self, checkpoint_id: str) -> Entry | None:
        """Listed or hidden. O(1)."""
        return self.listed.get(checkpoint_id) or self.hidden.get(checkpoint_id)

    def below(self, checkpoint_id: str) -> str | None:
        """The largest listed id smaller than this one. O(log n)."""
        position = bisect_left(self.ids, checkpoint_id)
        return self.ids[position - 1] if position else None

    def ancestors(self, checkpoint_id: str) -> Iterator[tuple[str, Entry]]:
        """Parent, grandparent and so on, hidden ones too, until one is missing or repeats."""
        seen = {checkpoint_id}
        entry = self.find(checkpoint_id)
        while entry is not None and entry.parent_id is not None and entry.parent_id not in seen:
            parent_id = entry.parent_id
            seen.add(parent_id)
            entry = self.find(parent_id)
            if entry is not None:
                yield parent_id, entry

    def writes_of(self, checkpoint_id: str) -> tuple[WritesEntry, ...]:
        """Of all tasks; those of one task in the order of its calls."""
        tasks = self.writes.get(checkpoint_id)
        if tasks is None:
            return ()
        if len(tasks) == 1:
            (entries,) = tasks.values()
            return entries
        return tuple(chain.from_iterable(tasks.values()))

    def take_in_earlier(self, writes: dict[str, Tasks]) -> None:
        """Add writes that were put before those that are here."""
        for checkpoint_id, earlier in writes.items():
            tasks = self.writes.setdefault(checkpoint_id, {})
            for task_id, entries in earlier.items():
                tasks[task_id] = _first_and_last(entries + tasks.get(task_id, ()))

    def is_empty(self) -> bool:
        return not (self.listed or self.hidden or self.writes)

    def copy(self) -> Namespace:
        twin = Namespace()
        twin.ids = self.ids.copy()
        twin.listed = self.listed.copy()
        twin.hidden = self.hidden.copy()
        twin.writes = {checkpoint_id: tasks.copy() for checkpoint_id, tasks in self.writes.items()}
        return twin

    def size(self) -> int:
        """Bytes of the frames it refers to. O(n)."""
        return (
            sum(entry.size for entry in self.listed.values())
            + sum(entry.size for entry in self.hidden.values())
            + sum(
                entry.size
                for checkpoint_id in self.writes
                for entry in self.writes_of(checkpoint_id)
            )
        )


def _first_and_last(entries: tuple[WritesEntry, ...]) -> tuple[WritesEntry, ...]:
    """Without those in between, where the same writes were put more than twice.

    Of ordinary writes the first ones count, of special ones the last; so nothing changes. But
    threads that are copied back and forth would double their writes each time.
    """
    if len(entries) == len(set(entries)):
        return entries
    first = {entry: at for at, entry in reversed([*enumerate(entries)])}
    last = {entry: at for at, entry in enumerate(entries)}
    return tuple(entries[at] for at in sorted({*first.values(), *last.values()}))


class Thread:
    """The namespaces of one thread, and sums over them that `threads()` shows."""

    __slots__ = ("bytes", "namespaces")

    def __init__(self) -> None:
        self.namespaces: dict[str, Namespace] = {}
        self.bytes = 0  # of the frames it refers to; a shared frame counts in each thread

    def namespace(self, ns: str) -> Namespace:
        found = self.namespaces.get(ns)
        if found is None:
            found = self.namespaces[ns] = Namespace()
        return found

    def keep_writes_of(self, before: Thread) -> None:
        """Take in the writes that a thread had before it became this one."""
        for name, ns in before.namespaces.items():
            if ns.writes:
                self.namespace(name).take_in_earlier(ns.writes)
        self.bytes = sum(ns.size() for ns in self.namespaces.values())

    def checkpoints(self) -> int:
        return sum(len(ns.ids) for ns in self.namespaces.values())


class Index:
    """Everything the log holds, as of the last record applied."""

    __slots__ = ("threads",)

    def __init__(self) -> None:
        self.threads: SortedDict[str, Thread] = SortedDict()

    # -- reading

    def namespace(self, thread_id: str, ns: str) -> Namespace | None:
        thread = self.threads.get(thread_id)
        return None if thread is None else thread.namespaces.get(ns)

    def with_prefix(self, prefix: str) -> Iterator[tuple[str, Thread]]:
        """Threads that have a checkpoint and whose id starts with `prefix`. O(log n + found)."""
        for thread_id in self.threads.irange(minimum=prefix):
            if not thread_id.startswith(prefix):
                return
            thread = self.threads[thread_id]
            if thread.checkpoints():
                yield thread_id, thread

    # -- changing

    def apply(self, record: Record, offset: int, size: int) -> None:
        """Take in one record, found in the frame of `size` bytes at `offset`."""
        if type(record) is CheckpointRecord:
            self._put(record, offset, size)
        elif type(record) is WritesRecord:
            self._put_writes(record, offset, size)
        elif isinstance(record, DeleteRecord):
            for thread_id in record.thread_ids:
                self.threads.pop(thread_id, None)
        elif isinstance(record, ForgetRecord):
            self._forget(record)
        elif isinstance(record, CopyRecord):
            self._copy(record)

    def _make(self, thread_id: str, name: str) -> Thread:
        """The thread with this namespace, which one of the two lacks."""
        thread = self.threads.get(thread_id)
        if thread is None:
            thread = self.threads[thread_id] = Thread()
        thread.namespace(name)
        return thread

    def _put(self, record: CheckpointRecord, offset: int, size: int) -> None:
        thread_id, name, checkpoint_id, parent_id, time, tags, _, _, _ = record
        thread = self.threads.get(thread_id)
        if thread is None or name not in thread.namespaces:
            thread = self._make(thread_id, name)
        ns = thread.namespaces[name]
        listed, ids = ns.listed, ns.ids
        entry = new(Entry, (offset, size, parent_id, time, tags))
        thread.bytes += size
        if not ids or checkpoint_id > ids[-1]:  # the usual case: ids grow with time
            ids.append(checkpoint_id)
            if ns.hidden and (hidden := ns.hidden.pop(checkpoint_id, None)):
                thread.bytes -= hidden.size
        else:
            replaced = listed.get(checkpoint_id) or ns.hidden.pop(checkpoint_id, None)
            if replaced is not None:
                thread.bytes -= replaced.size
            if checkpoint_id not in listed:
                insort(ids, checkpoint_id)
        listed[checkpoint_id] = entry

    def _put_writes(self, record: WritesRecord, offset: int, size: int) -> None:
        thread_id, name, checkpoint_id, task_id, _, _ = record
        thread = self.threads.get(thread_id)
        if thread is None or name not in thread.namespaces:
            thread = self._make(thread_id, name)
        writes = thread.namespaces[name].writes
        entry = new(WritesEntry, (offset, size))
        tasks = writes.get(checkpoint_id)
        if tasks is None:
            writes[checkpoint_id] = {task_id: (entry,)}
        else:
            tasks[task_id] = (*tasks.get(task_id, ()), entry)
        thread.bytes += size

    def _forget(self, record: ForgetRecord) -> None:
        for thread_id, name, dropped, hidden in record.changes:
            thread = self.threads.get(thread_id)
            ns = None if thread is None else thread.namespaces.get(name)
            if thread is None or ns is None:
                continue
            before = ns.size()
            for checkpoint_id in hidden:
                if entry := ns.listed.pop(checkpoint_id, None):
                    ns.hidden[checkpoint_id] = entry
            for checkpoint_id in dropped:
                ns.listed.pop(checkpoint_id, None)
                ns.hidden.pop(checkpoint_id, None)
                ns.writes.pop(checkpoint_id, None)
            ns.ids = sorted(ns.listed)
            thread.bytes += ns.size() - before
            if ns.is_empty():
                del thread.namespaces[name]
            if not thread.namespaces:
                del self.threads[thread_id]

    def _copy(self, record: CopyRecord) -> None:
        source, before = self.threads.get(record.source), self.threads.get(record.target)
        if source is None or source is before:
            return
        target = Thread()
        target.namespaces = {name: ns.copy() for name, ns in source.namespaces.items()}
        target.bytes = source.bytes
        if before is not None:
            target.keep_writes_of(before)
        self.threads[record.target] = target

    def _check(self) -> None:
        """Assert everything that must hold between two calls."""
        assert list(self.threads) == sorted(self.threads)
        for thread_id, thread in self.threads.items():
            assert thread.namespaces, thread_id
            assert thread.bytes == sum(ns.size() for ns in thread.namespaces.values()), thread_id
            for name, ns in thread.namespaces.items():
                assert not ns.is_empty(), (thread_id, name)
                assert ns.ids == sorted(ns.listed), (thread_id, name)
                assert ns.listed.keys().isdisjoint(ns.hidden), (thread_id, name)
                assert all(ns.writes.values()), (thread_id, name)
                assert all(all(tasks.values()) for tasks in ns.writes.values()), (thread_id, name)
