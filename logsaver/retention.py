"""Which checkpoints go and which stay, hidden, because others are rebuilt from them.

**By rule.** A `Retention` lets go of what is beyond the newest `keep_last` of its namespace or
older than `max_age`. What a resume needs stays, however old: the latest checkpoint of a thread that
is not finished, and with it the latest of its subgraphs. A finished thread that is wholly too old
goes altogether.

A DeltaChannel stores no value in most checkpoints: LangGraph rebuilds it from the writes of the
ancestors, back to the nearest stored value. So when checkpoints are removed, some of them must
stay where that walk can find them. They are no longer listed, nor found by id.

The saver does not know a graph's channels. A channel counts as a delta channel at a checkpoint
that has a version but no value of it, if

* the metadata counts it (`counters_since_delta_snapshot`), or says that writes are versioned
  (`delta_writes_versioned`, from LangGraph.js), or
* the nearest stored value is a `_DeltaSnapshot`, or
* there are writes to it on the way back and never a value.

In doubt it is taken for one: that keeps too much, never too little.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

from logsaver.errors import InvalidInputError
from logsaver.record import Forgotten
from logsaver.thread import Entry, Namespace, Summary, Thread, WritesEntry

TASKS = "__pregel_tasks"
FIRST_VERSION_WITHOUT_SENDS_IN_PARENT = 4


class Facts(Protocol):
    """What has to be read from the log to decide."""

    def version(self, entry: Entry) -> int:
        """The checkpoint format version."""

    def root_id(self, entry: Entry) -> str | None:
        """The root graph's checkpoint that a subgraph's checkpoint belongs to."""

    def valueless(self, entry: Entry) -> Collection[str]:
        """Channels that have a version here and no value."""

    def has_value(self, entry: Entry, channel: str) -> bool: ...

    def is_counted(self, entry: Entry, channel: str) -> bool:
        """Whether the metadata says that this is a delta channel."""

    def is_snapshot(self, entry: Entry, channel: str) -> bool:
        """Whether the value stored here is a `_DeltaSnapshot`."""

    def writes_to(self, entry: WritesEntry, channel: str) -> bool: ...

    def is_going_on(self, entry: Entry) -> bool:
        """Whether a graph has something to do from here. In doubt it has."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What a saver lets go of by itself, while the log grows and when it is opened.

    Args:
        keep_last: How many checkpoints of each thread and namespace stay.
        max_age: How old a checkpoint may become, by its own timestamp.

    A thread that is not finished keeps what a resume needs, whatever the rules say. One that is
    finished, and whose latest checkpoint is older than `max_age`, goes altogether.
    """

    keep_last: int | None = None
    max_age: timedelta | None = None

    def __post_init__(self) -> None:
        number: object = self.keep_last
        if number is not None and (type(number) is not int or number < 1):
            raise InvalidInputError(
                f"keep_last is a number of checkpoints, at least 1, not {number!r}; to remove "
                "everything there is delete_thread"
            )
        age: object = self.max_age
        if number is None and age is None:
            raise InvalidInputError("a Retention needs a rule: pass keep_last, max_age or both")
        if age is not None and not (isinstance(age, timedelta) and age > timedelta(0)):
            raise InvalidInputError(
                f"max_age is a timedelta longer than nothing, not {age!r}; pass for example "
                "timedelta(days=30)"
            )

    def oldest(self, now: int) -> int | None:
        """The time before which a checkpoint is too old, in the index's microseconds."""
        return None if self.max_age is None else now - self.max_age // timedelta(microseconds=1)


def check_retention(rule: object) -> None:
    if rule is not None and not isinstance(rule, Retention):
        raise InvalidInputError(
            f"retention is a logsaver.Retention, not {rule!r}; pass for example "
            "Retention(keep_last=20)"
        )


def may_be_over(known: Summary, rule: Retention, now: int) -> bool:
    """Whether it is worth to look into a thread: most of them need not be loaded for it."""
    oldest = rule.oldest(now)
    return (rule.keep_last is not None and known.checkpoints > rule.keep_last) or (
        oldest is not None and known.checkpoints > 0 and known.created < oldest
    )


def is_over(thread: Thread, rule: Retention, now: int) -> bool:
    """Whether a thread may have something to let go of. Reads nothing."""
    oldest = rule.oldest(now)
    return any(
        (rule.keep_last is not None and len(ns.ids) > rule.keep_last)
        or (oldest is not None and any(entry.time < oldest for entry in ns.listed.values()))
        for ns in thread.namespaces.values()
    )


def expire(
    thread_id: str, thread: Thread, facts: Facts, rule: Retention, now: int
) -> list[Forgotten]:
    """What goes by the rule."""
    kept = {name: _within(ns, rule, now) for name, ns in thread.namespaces.items()}
    root = thread.namespaces.get("")
    is_gone = not any(kept.values()) and root is not None and _is_finished(root, facts)
    if not is_gone:
        for name, ns in thread.namespaces.items():
            kept[name] = _with_sends(ns, kept[name] | set(ns.ids[-1:]), facts)
    return _forgotten(thread_id, thread, kept, facts)


def _within(ns: Namespace, rule: Retention, now: int) -> set[str]:
    last = ns.ids if rule.keep_last is None else ns.ids[-rule.keep_last :]
    oldest = rule.oldest(now)
    return {i for i in last if oldest is None or ns.listed[i].time >= oldest}


def _is_finished(root: Namespace, facts: Facts) -> bool:
    if not root.ids:
        return True
    head = root.ids[-1]
    return not root.writes_of(head) and not facts.is_going_on(root.listed[head])


def keep_latest(thread_id: str, thread: Thread, facts: Facts) -> list[Forgotten]:
    """What goes when only the latest checkpoint of each namespace is kept."""
    kept = {
        name: _with_sends(ns, set(ns.ids[-1:]), facts) for name, ns in thread.namespaces.items()
    }
    return _forgotten(thread_id, thread, kept, facts)


def _forgotten(
    thread_id: str, thread: Thread, kept: Mapping[str, set[str]], facts: Facts
) -> list[Forgotten]:
    """What goes when these are kept of each namespace."""
    root = thread.namespaces.get("")
    changes = []
    for name, ns in thread.namespaces.items():
        if _is_call(name) and ns.ids and root is not None:
            # A subgraph call goes with the root checkpoint it started from, once that one is
            # stored: runs save in the background, so a call may be stored first.
            started_from = facts.root_id(ns.listed[ns.ids[-1]])
            if started_from in root.listed and started_from not in kept[""]:
                changes.append(
                    Forgotten(thread_id, name, [*ns.listed, *ns.hidden, *_waiting(ns)], [])
                )
                continue
        if change := remove(thread_id, name, ns, ns.listed.keys() - kept[name], facts):
            changes.append(change)
    return changes


def remove(
    thread_id: str, name: str, ns: Namespace, removed: Collection[str], facts: Facts
) -> Forgotten | None:
    """The change that takes `removed` out of a namespace; None if nothing changes.

    Checkpoints hidden earlier go too, once nothing needs them any more.
    """
    unlisted = set(removed) | ns.hidden.keys()
    needed = _needed(ns, ns.listed.keys() - unlisted, unlisted, facts)
    dropped = sorted(unlisted - needed)
    hidden = sorted(needed - ns.hidden.keys())
    return Forgotten(thread_id, name, dropped, hidden) if dropped or hidden else None


def _with_sends(ns: Namespace, kept: set[str], facts: Facts) -> set[str]:
    """These, and the parents that they read their pending sends from."""
    return kept | {
        entry.parent_id
        for entry in map(ns.listed.__getitem__, kept)
        if entry.parent_id in ns.listed
        and entry.parent_id not in kept
        and facts.version(entry) < FIRST_VERSION_WITHOUT_SENDS_IN_PARENT
        and any(facts.writes_to(writes, TASKS) for writes in ns.writes_of(entry.parent_id))
    }


def _is_call(name: str) -> bool:
    """Whether a namespace belongs to one call of a subgraph: its last part has a task id.

    A `checkpointer=True` subgraph has none there; its state outlives the call.
    """
    return ":" in name.rsplit("|", 1)[-1]


def _waiting(ns: Namespace) -> Collection[str]:
    """Ids that have writes and no checkpoint yet."""
    return ns.writes.keys() - ns.listed.keys() - ns.hidden.keys()


def _needed(
    ns: Namespace, kept: Iterable[str], unlisted: Collection[str], facts: Facts
) -> set[str]:
    """Which of `unlisted` the kept checkpoints are rebuilt from."""
    walks: dict[str, _Walks] = {}
    for checkpoint_id in _descendants(ns, kept, unlisted):
        # Also if its parent is kept: that one may not know the channel yet, or not count it.
        for channel in facts.valueless(ns.listed[checkpoint_id]):
            if channel not in walks:
                walks[channel] = _Walks(ns, channel, facts)
            walks[channel].walk_from(checkpoint_id)
    return {needed for each in walks.values() for needed in each.needed if needed in unlisted}


def _descendants(ns: Namespace, kept: Iterable[str], unlisted: Collection[str]) -> list[str]:
    """Those of `kept` that have an ancestor in `unlisted`. O(n), and reads nothing."""
    descends: dict[str | None, bool] = {None: False, **dict.fromkeys(unlisted, True)}
    found = []
    for checkpoint_id in kept:
        path: list[str] = []
        at: str | None = checkpoint_id
        while at is not None and at not in descends:
            descends[at] = False  # until told otherwise, which also ends a cycle
            path.append(at)
            entry = ns.find(at)
            at = None if entry is None else entry.parent_id
        descends.update(dict.fromkeys(path, descends[at]))
        if descends[checkpoint_id]:
            found.append(checkpoint_id)
    return found


class _Walks:
    """The ways back from several checkpoints to the value of one channel.

    They share most of their length, so what one has learned the next does not look up again.
    """

    def __init__(self, ns: Namespace, channel: str, facts: Facts) -> None:
        self.needed: set[str] = set()
        self._ns = ns
        self._channel = channel
        self._facts = facts
        self._ends: dict[str, _End] = {}  # of the way that starts at this id, itself included
        self._snapshots: dict[str, bool] = {}

    def walk_from(self, checkpoint_id: str) -> None:
        """Add the ancestors that the channel is rebuilt from here; none if it is not delta."""
        end = self._end(checkpoint_id)
        is_delta = end.is_written
        if end.seed_id is not None:
            is_delta = self._is_snapshot(end.seed_id) or self._facts.is_counted(
                self._ns.listed[checkpoint_id], self._channel
            )
        if is_delta:
            for ancestor_id, _ in self._ns.ancestors(checkpoint_id):
                if ancestor_id in self.needed:
                    return  # the rest of the way was added with it
                self.needed.add(ancestor_id)
                if ancestor_id == end.seed_id:
                    return

    def _end(self, checkpoint_id: str) -> _End:
        end, last, passed = _End(None, is_written=False), None, []
        for ancestor_id, entry in self._ns.ancestors(checkpoint_id):
            if ancestor_id in self._ends:
                end, last = self._ends[ancestor_id], None
                break
            if self._facts.has_value(entry, self._channel):
                end, last = _End(ancestor_id, is_written=False), None
                break
            passed.append(ancestor_id)
            last = entry
        # A way that runs into itself is another one for each start: not to be remembered.
        is_cycle = last is not None and self._ns.find(last.parent_id or "") is not None
        for ancestor_id in reversed(passed):
            if not end.is_written and self._has_writes(ancestor_id):
                end = end._replace(is_written=True)
            if not is_cycle:
                self._ends[ancestor_id] = end
        return end

    def _has_writes(self, checkpoint_id: str) -> bool:
        entries = self._ns.writes_of(checkpoint_id)
        return any(self._facts.writes_to(entry, self._channel) for entry in entries)

    def _is_snapshot(self, seed_id: str) -> bool:
        if seed_id not in self._snapshots:
            entry = self._ns.find(seed_id)
            assert entry is not None  # the walk found it
            self._snapshots[seed_id] = self._facts.is_snapshot(entry, self._channel)
        return self._snapshots[seed_id]


class _End(NamedTuple):
    """How a way back ends: at a stored value or without, and whether writes lie on it."""

    seed_id: str | None
    is_written: bool
