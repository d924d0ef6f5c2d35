"""What is in the log, in memory: threads by id, and what each refers to in the file. No I/O.

`apply` is the only way to change it, for a record just written and for one read back at open
alike, so the two cannot come to differ.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import NamedTuple

from logsaver.record import (
    CheckpointRecord,
    CopyRecord,
    DeleteRecord,
    ForgetRecord,
    LinkRecord,
    Record,
    WritesRecord,
)
from logsaver.thread import Entry, Namespace, Summary, Thread, Wanted, WritesEntry
from logsaver.threads import Sealed, Threads
from logsaver.value import new


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


class Index:
    """Everything the log holds, as of the last record applied."""

    __slots__ = ("threads",)

    def __init__(self, sealed: Sealed | None = None) -> None:
        self.threads = Threads(sealed)

    # -- reading

    def namespace(self, thread_id: str, ns: str) -> Namespace | None:
        thread = self.threads.get(thread_id)
        return None if thread is None else thread.namespaces.get(ns)

    def with_prefix(self, prefix: str) -> Iterator[tuple[str, Summary]]:
        """Threads that have a checkpoint and whose id starts with `prefix`. O(log n + found)."""
        summaries = self.threads.overview().summaries
        for thread_id in self.threads.from_id(prefix):
            if not thread_id.startswith(prefix):
                return
            summary = summaries[thread_id]
            if summary.checkpoints:
                yield thread_id, summary

    def with_tags(self, wanted: Wanted) -> Iterator[tuple[str, Thread]]:
        """Threads that may have a checkpoint with these tags; others that are sealed stay so."""
        for thread_id in list(self.threads):
            if self.threads.may_have(thread_id, wanted):
                yield thread_id, self.threads[thread_id]

    # -- changing

    def apply(self, record: Record, offset: int, size: int) -> None:
        """Take in one record, found in the frame of `size` bytes at `offset`."""
        if type(record) is CheckpointRecord:
            self._put(record, offset, size)
        elif type(record) is WritesRecord:
            self._put_writes(record, offset, size)
        elif isinstance(record, DeleteRecord):
            for thread_id in record.thread_ids:
                self.threads.discard(thread_id)
        elif isinstance(record, ForgetRecord):
            self._forget(record)
        elif isinstance(record, CopyRecord):
            self._copy(record)
        elif isinstance(record, LinkRecord):
            self._link(record)

    def _make(self, thread_id: str, name: str) -> Thread:
        """The thread with this namespace, for somebody who is about to change it."""
        thread = self.threads.get(thread_id)
        if thread is None:
            thread = self.threads[thread_id] = Thread()
        elif thread.known is not None:
            self.threads.changed(thread_id, thread)
        thread.namespace(name)
        return thread

    def _put(self, record: CheckpointRecord, offset: int, size: int) -> None:
        thread_id, name, checkpoint_id, parent_id, time, tags, _, _, _ = record
        thread = self.threads.live.get(thread_id)
        if thread is None or thread.known is not None or name not in thread.namespaces:
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
        thread = self.threads.live.get(thread_id)
        if thread is None or thread.known is not None or name not in thread.namespaces:
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
            self.threads.changed(thread_id, thread)
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

    def _link(self, record: LinkRecord) -> None:
        thread = self._make(record.thread_id, record.ns)
        ns = thread.namespaces[record.ns]
        before = ns.size()
        for linked in record.checkpoints:
            checkpoint_id, offset, size, parent_id, time, tags, is_hidden = linked
            here, there = (ns.hidden, ns.listed) if is_hidden else (ns.listed, ns.hidden)
            here[checkpoint_id] = Entry(offset, size, parent_id, time, tags)
            there.pop(checkpoint_id, None)
        for checkpoint_id, task_id, frames in record.writes:
            tasks = ns.writes.setdefault(checkpoint_id, {})
            tasks[task_id] = tuple(WritesEntry(*frame) for frame in frames)
        ns.ids = sorted(ns.listed)
        thread.bytes += ns.size() - before

    def _check(self) -> None:
        """Assert everything that must hold between two calls."""
        self.threads._check()  # noqa: SLF001 - one structure
