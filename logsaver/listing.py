"""Many checkpoints: what `list` and `threads` go through, and in which order.

The index is looked at under the store's lock, once for each checkpoint that is yielded; frames are
read and values decoded outside it. So nothing is held while the caller iterates, and what he puts
or deletes meanwhile is seen when its turn comes.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.codec import load_leniently, matches
from logsaver.config import Address
from logsaver.index import Index, Key
from logsaver.log import Log
from logsaver.reading import Found, find, found_listed, read_metadata, read_tuple
from logsaver.store import Store
from logsaver.tags import may_match
from logsaver.thread import Entry, Summary, Wanted

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST: Final = (datetime.min.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND
_LAST: Final = (datetime.max.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND


class Selection(NamedTuple):
    """What `list` was asked for."""

    thread_id: str | None = None
    ns: str | None = None
    checkpoint_id: str | None = None
    below: str | None = None
    wanted: Mapping[str, Any] = {}
    limit: int | None = None


def read_list(
    store: Store, serde: SerializerProtocol, selection: Selection
) -> Iterator[CheckpointTuple]:
    """Newest first. Decodes what it yields; of what the filter rejects, nothing."""
    left, wanted = selection.limit, selection.wanted
    if left == 0:
        return
    walk = Walk(store, selection)
    while (found := walk.next()) is not None:
        metadata = None
        if wanted:
            metadata = read_metadata(serde, found, load_leniently)
            if not matches(serde, wanted, metadata):
                continue
        yield read_tuple(serde, found, load_leniently, metadata)
        if left is not None:
            left -= 1
            if left == 0:
                return


class Walk:
    """What a selection names, newest first, as it is when each one's turn comes.

    `_heads` has the next checkpoint of each namespace that was looked into, the newest last.
    `_unopened` are threads by the newest id of any of their namespaces: nobody looks into one, or
    loads it, before that id's turn. Both are only what to ask for next; the answer is the index's.
    """

    def __init__(self, store: Store, selection: Selection) -> None:
        self._store = store
        self._selection = selection
        tags = [(key, may_match(key, value)) for key, value in selection.wanted.items()]
        self._wanted: Wanted = tuple(either for _, either in tags if either)
        # A copy has the tags of its source, and shows its own name in place of the source's.
        self._own_name = str(selection.wanted.get("thread_id"))
        self._wanted_under_own_name: Wanted = tuple(
            either for key, either in tags if either and key != "thread_id"
        )
        self._heads: list[Key] = []
        self._unopened: list[tuple[str, str]] = []
        with store.lock:
            index = store.view()
            if selection.thread_id is None:
                self._unopened = index.threads.overview().by_newest()
            else:
                self._open(index, selection.thread_id)

    def next(self) -> Found | None:
        heads, unopened = self._heads, self._unopened
        store = self._store
        with store.lock:
            index = store.view()
            while True:
                while unopened and (not heads or unopened[-1][0] >= heads[-1].checkpoint_id):
                    newest, thread_id = unopened.pop()
                    if index.threads.may_have(thread_id, self._wanted_in(thread_id)):
                        # Up to this id: what was put since would come out of turn.
                        self._open(index, thread_id, newest + "\0")
                if not heads:
                    return None
                key = heads.pop()
                thread = index.threads.get(key.thread_id)
                ns = None if thread is None else thread.namespaces.get(key.ns)
                if thread is None or ns is None:
                    continue
                wanted = self._wanted_in(key.thread_id)
                if self._selection.checkpoint_id is None:
                    below = thread.below(key.ns, key.checkpoint_id, wanted)
                    if below is not None:
                        insort(heads, Key(below, key.thread_id, key.ns))
                found = found_listed(store.log, key, ns)
                if found is not None and _may_match(found.entry.tags, wanted):
                    return found

    def _open(self, index: Index, thread_id: str, start: str | None = None) -> None:
        """Look for the newest checkpoint below `start` of each namespace that is selected."""
        thread = index.threads.get(thread_id)
        if thread is None:
            return
        _, ns, checkpoint_id, below, _, _ = self._selection
        if below is not None and (start is None or below < start):
            start = below
        for name in thread.namespaces:
            if ns not in (None, name):
                continue
            if checkpoint_id is None:
                newest = thread.below(name, start, self._wanted_in(thread_id))
            else:
                newest = checkpoint_id if start is None or checkpoint_id < start else None
            if newest is not None:
                insort(self._heads, Key(newest, thread_id, name))

    def _wanted_in(self, thread_id: str) -> Wanted:
        return self._wanted_under_own_name if thread_id == self._own_name else self._wanted


def _may_match(tags: bytes, wanted: Wanted) -> bool:
    """Once more: it may have been put again since it was found, and one that is named never was."""
    return all(any(tag in tags for tag in either) for either in wanted)


# -- threads


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """One thread, as the index knows it."""

    thread_id: str
    created_at: datetime
    updated_at: datetime
    checkpoints: int
    bytes: int
    _source: _Source = field(repr=False, compare=False)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the latest checkpoint, read and decoded now."""
        serde, store, log, summary = self._source
        key = Key(summary.latest, self.thread_id, summary.ns)
        entry = Entry(summary.offset, summary.size, None, 0, b"")
        found = Found(log, key, entry, False, False, ())
        if log.file.is_closed():  # a forked child closes what its parent has open
            found = find(store, Address(key.thread_id, key.ns, key.checkpoint_id)) or found
        metadata: dict[str, Any] = read_metadata(serde, found)
        return metadata


class _Source(NamedTuple):
    """Where the rest of it is."""

    serde: SerializerProtocol
    store: Store
    log: Log
    summary: Summary


def read_threads(store: Store, serde: SerializerProtocol, prefix: str) -> list[ThreadInfo]:
    """Threads with checkpoints, most recently updated first; from the index alone."""
    with store.lock:
        rows = [
            (summary.updated, thread_id, summary)
            for thread_id, summary in store.view().with_prefix(prefix)
        ]
        log = store.log
    rows.sort(reverse=True)
    return [
        ThreadInfo(
            thread_id,
            _datetime(summary.created),
            _datetime(summary.updated),
            summary.checkpoints,
            summary.bytes,
            _Source(serde, store, log, summary),
        )
        for _, thread_id, summary in rows
    ]


def _datetime(microseconds: int) -> datetime:
    """The nearest moment Python knows: "0001-01-01T00:00+14:00" is before the year 1 in UTC."""
    return _EPOCH + timedelta(microseconds=min(max(microseconds, _FIRST), _LAST))
