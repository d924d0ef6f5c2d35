"""What a prune or a retention rule would take away, without taking it."""

from __future__ import annotations

from dataclasses import dataclass

from logsaver.index import Index
from logsaver.record import DeleteRecord, ForgetRecord, Forgotten
from logsaver.thread import Namespace


@dataclass(frozen=True, slots=True)
class Going:
    """What would go from one namespace of a thread."""

    thread_id: str
    checkpoint_ns: str
    removed: tuple[str, ...]
    """The ids that would not be listed any more, the oldest first."""
    kept_hidden: tuple[str, ...]
    """Those of them that stay, hidden, because delta channels are rebuilt from them."""
    bytes: int
    """Of frames that nothing in the thread would refer to any more."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What would go, namespace by namespace."""

    namespaces: tuple[Going, ...]

    @property
    def checkpoints(self) -> int:
        """How many would not be listed any more."""
        return sum(len(each.removed) for each in self.namespaces)

    @property
    def bytes(self) -> int:
        """What a compaction could give back at most; copies of a thread may still need it."""
        return sum(each.bytes for each in self.namespaces)


def preview_of(index: Index, record: ForgetRecord | DeleteRecord | None) -> Preview:
    """What this record would do if it were applied now."""
    found = []
    for change in _changes(index, record):
        ns = index.namespace(change.thread_id, change.ns)
        if ns is not None:
            found.append(_going(change, ns))
    return Preview(tuple(found))


def _changes(index: Index, record: ForgetRecord | DeleteRecord | None) -> list[Forgotten]:
    if record is None:
        return []
    if isinstance(record, ForgetRecord):
        return record.changes
    return [
        Forgotten(thread_id, name, [*ns.listed, *ns.hidden, *(ns.writes.keys() - ns.listed)], [])
        for thread_id in record.thread_ids
        for name, ns in index.threads[thread_id].namespaces.items()
    ]


def _going(change: Forgotten, ns: Namespace) -> Going:
    entries = [entry for i in change.dropped if (entry := ns.find(i))]
    writes = [entry for i in set(change.dropped) for entry in ns.writes_of(i)]
    return Going(
        change.thread_id,
        change.ns,
        tuple(sorted(i for i in (*change.dropped, *change.hidden) if i in ns.listed)),
        tuple(change.hidden),
        sum(entry.size for entry in entries) + sum(entry.size for entry in writes),
    )
