"""What a log holds of one thread: checkpoint ids to file positions. No I/O.

    Thread       namespace -> Namespace
    Namespace    checkpoint id -> Entry, with the ids sorted: the latest is the last

A checkpoint is *listed* (every reader sees it) or *hidden*: pruned, but kept because a
descendant's DeltaChannel is rebuilt from its writes. Writes are kept by checkpoint id on their
own, since they may arrive before their checkpoint; and by task, since a step of many tasks
puts those of each on their own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, chain
from typing import Final, NamedTuple

MOST_FOUND: Final = 16  # answers that are kept, of a thread's namespace


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

    def frames(self) -> Iterator[tuple[int, int]]:
        """Offset and size of those it refers to."""
        for entry in chain(self.listed.values(), self.hidden.values()):
            yield entry.offset, entry.size
        for checkpoint_id in self.writes:
            yield from self.writes_of(checkpoint_id)

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

    def _check(self) -> None:
        assert not self.is_empty()
        assert self.ids == sorted(self.listed)
        assert self.listed.keys().isdisjoint(self.hidden)
        assert all(self.writes.values())
        assert all(all(tasks.values()) for tasks in self.writes.values())


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

    __slots__ = ("bytes", "known", "namespaces")

    def __init__(self) -> None:
        self.namespaces: dict[str, Namespace] = {}
        self.bytes = 0  # of the frames it refers to; a shared frame counts in each thread
        self.known: Known | None = None  # gone with the next change

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

    def summary(self) -> Summary:
        known = self.remember()
        if known.summary is None:
            known.summary = _summary_of(self)
        return known.summary

    def below(self, name: str, checkpoint_id: str | None, wanted: Wanted) -> str | None:
        """The largest listed id smaller than this one (None: of all) that may match.

        O(log n), and what looking for a tag in the bytes of many takes.
        """
        ns = self.namespaces[name]
        ids = ns.ids
        position = len(ids) if checkpoint_id is None else bisect_left(ids, checkpoint_id)
        if wanted and position:
            columns = self.remember().tags
            column = columns.get(name)
            if column is None:
                column = columns[name] = TagColumn(ns)
            position = column.last_below(position, wanted) + 1
        return ids[position - 1] if position else None

    def remember(self) -> Known:
        """To add to what is known of it."""
        if self.known is None:
            self.known = Known()
        return self.known

    def _check(self, name: str) -> None:
        assert self.namespaces, name
        assert self.bytes == sum(ns.size() for ns in self.namespaces.values()), name
        if self.known is not None and self.known.summary is not None:
            assert self.known.summary == _summary_of(self), name
        for ns in self.namespaces.values():
            ns._check()  # noqa: SLF001 - one structure


class Known:
    """What somebody has worked out about a thread as it is: it would be the same again."""

    __slots__ = ("place", "summary", "tags")

    def __init__(self) -> None:
        self.summary: Summary | None = None
        self.place: Place | None = None  # in the file, of what a seal has of it
        self.tags: dict[str, TagColumn] = {}


class Place(NamedTuple):
    """Where a thread is sealed: in which frame, and which of the threads there it is."""

    offset: int
    size: int
    number: int


class Summary(NamedTuple):
    """What can be told of a thread without its checkpoints."""

    bytes: int
    checkpoints: int  # listed
    hidden: int
    writes: int  # calls
    created: int  # the earliest and the latest time of a listed checkpoint
    updated: int
    newest: str  # the largest listed id of all namespaces; "" if there is none
    ns: str  # which speaks for the thread, its latest, and that one's frame
    latest: str
    offset: int
    size: int


def _summary_of(thread: Thread) -> Summary:
    namespaces = thread.namespaces.values()
    hidden = sum(len(ns.hidden) for ns in namespaces)
    writes = sum(
        len(calls) for ns in namespaces for tasks in ns.writes.values() for calls in tasks.values()
    )
    named = [(name, ns) for name, ns in thread.namespaces.items() if ns.ids]
    if not named:
        return Summary(thread.bytes, 0, hidden, writes, 0, 0, "", "", "", 0, 0)
    # The root graph speaks for the thread; its subgraphs' checkpoints come and go.
    name, ns = min(named, key=lambda item: item[0])
    times = [entry.time for _, each in named for entry in each.listed.values()]
    latest = ns.ids[-1]
    entry = ns.listed[latest]
    return Summary(
        thread.bytes,
        len(times),
        hidden,
        writes,
        min(times),
        max(times),
        max(each.ids[-1] for _, each in named),
        name,
        latest,
        entry.offset,
        entry.size,
    )


Wanted = tuple[tuple[bytes, ...], ...]
"""For each item of a filter the tags of which a checkpoint must have one."""


class TagColumn:
    """The tags of a namespace's listed checkpoints side by side, to search them all at once."""

    __slots__ = ("_found", "_starts", "_tags")

    def __init__(self, ns: Namespace) -> None:
        tags = [ns.listed[checkpoint_id].tags for checkpoint_id in ns.ids]
        self._tags = b"".join(tags)
        self._starts = list(accumulate(map(len, tags), initial=0))
        self._found: dict[Wanted, list[int]] = {}

    def last_below(self, position: int, wanted: Wanted) -> int:
        """The last row before this one that has a tag of each item; -1 if there is none."""
        rows = self._found.get(wanted)
        if rows is None:
            if len(self._found) >= MOST_FOUND:
                self._found.clear()
            rows = self._found[wanted] = self._rows(wanted)
        at = bisect_left(rows, position)
        return rows[at - 1] if at else -1

    def _rows(self, wanted: Wanted) -> list[int]:
        per_item = [{row for tag in either for row in self._rows_with(tag)} for either in wanted]
        return sorted(set.intersection(*per_item))

    def _rows_with(self, tag: bytes) -> Iterator[int]:
        tags, starts = self._tags, self._starts
        at = tags.find(tag)
        while at >= 0:
            row = bisect_right(starts, at) - 1
            if at + len(tag) <= starts[row + 1]:  # else it lies across two rows
                yield row
            at = tags.find(tag, at + 1)
