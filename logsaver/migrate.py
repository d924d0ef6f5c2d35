"""Copies threads from one saver to another, whatever kind they are.

    from logsaver.migrate import copy, open_saver

    with open_saver("checkpoints.sqlite") as old, open_saver("agent.log", write=True) as new:
        print(copy(old, new))

What a saver holds is read through `holdings`; how a checkpoint has to be put into the new one is
decided in `refit`; both know nothing of each other. Which saver a name means is found in `savers`.
Here are the order, the going on after an interruption, and the check.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, writes_sort_key

from logsaver.errors import LogSaverError
from logsaver.holdings import (
    HeldWrite,
    Holdings,
    Place,
    Slot,
    config_of,
    holdings_of,
    is_known,
    is_postgres,
    keeps_values_by_version,
)
from logsaver.keeping import keeping, opened
from logsaver.refit import Refit, batches, closed_up, difference, is_special, same
from logsaver.saver import LogSaver
from logsaver.savers import MigrationError, open_saver

__all__ = ["CopyReport", "MigrationError", "Progress", "check_readable", "copy", "open_saver"]

SAMPLE: Final = 4  # checkpoints of each thread that are compared, besides the latest ones

# Nobody waits for the single put: `copy` syncs after each thread. See `config.waits_for_storage`.
_NO_WAIT: Final = {"__pregel_durability": "async"}


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What a copy did. A second one of the same skips all that the first one copied."""

    threads: int = 0  # looked at
    checkpoints: int = 0  # copied
    writes: int = 0  # copied
    skipped: int = 0  # checkpoints that the target had already
    renamed: int = 0  # checkpoints that got other channel versions; see docs/guide.md
    checked: int = 0  # checkpoints read back from both and compared


class Progress(NamedTuple):
    """How far a copy is."""

    thread_id: str
    threads_done: int
    threads: int
    done: int  # checkpoints of this thread
    checkpoints: int  # of this thread

    @property
    def fraction(self) -> float:
        """From 0 to 1, with all threads counted alike."""
        within = self.done / self.checkpoints if self.checkpoints else 1.0
        return (self.threads_done + within) / self.threads


def copy(
    source: BaseCheckpointSaver[Any],
    target: BaseCheckpointSaver[Any],
    *,
    threads: Sequence[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> CopyReport:
    """Copy threads with their ids, parents, writes, task paths and metadata.

    A saver that can only be called from outside of its event loop, as AsyncSqliteSaver, works in
    `await asyncio.to_thread(copy, source, target)`.

    Values go over as they were packed: no class of theirs is built, or needed. That is so between
    LogSaver and LangGraph's sync savers with LangGraph's serializers; others build what they read.

    Can be interrupted and called again: what the target has already is left alone, so it also
    brings a copy up to date. After each thread it counts what is there and compares a sample.
    Raises `MigrationError` if something is missing or differs; then the copy must not be used.

    Args:
        source: Is only read.
        target: Keeps what it has. Threads of the same name are taken for earlier copies.
        threads: The ids to copy; all of them by default.
        progress: Called after each checkpoint.
    """
    if isinstance(threads, (str, bytes)):
        raise TypeError(f"threads is a sequence of ids, not one {type(threads).__name__}")
    source, target = _building_nothing(source, target)
    known = holdings_of(source).threads()
    names = known if threads is None else [str(name) for name in threads]
    if missing := sorted(set(names) - set(known)):
        raise MigrationError(f"the source has no thread {missing[0]!r}; nothing was copied")
    report = CopyReport()
    for number, thread_id in enumerate(names):
        job = _ThreadCopy(source, target, thread_id)
        for done in job.run():
            if progress is not None:
                progress(Progress(thread_id, number, len(names), done, len(job.have)))
        job.check()
        report = CopyReport(
            report.threads + 1,
            *(
                getattr(report, name) + getattr(job.report, name)
                for name in ("checkpoints", "writes", "skipped", "renamed", "checked")
            ),
        )
    return report


def check_readable(source: BaseCheckpointSaver[Any], threads: Sequence[str] | None = None) -> None:
    """Read one of the checkpoints that are to be copied: is the key there, and the right one?

    Raises `MigrationError` if not. A thread that is not there is left for `copy` to tell.
    """
    (source,) = _building_nothing(source)
    held = holdings_of(source)
    known = held.threads()
    for thread_id in [name for name in known if threads is None or name in threads][:1]:
        places = sorted(held.checkpoints(thread_id))
        try:
            for place in places[:1]:
                held.read(thread_id, place)
        except LogSaverError as error:
            raise MigrationError(str(error)) from error
        except Exception as error:  # whatever a cipher or a serializer raises
            raise MigrationError(
                f"thread {thread_id!r} cannot be read by {type(source).__name__} "
                f"({type(error).__name__}: {error}); nothing was copied"
            ) from error


def _building_nothing(
    *savers: BaseCheckpointSaver[Any],
) -> Sequence[BaseCheckpointSaver[Any]]:
    """The same savers with serializers that carry what was packed, if both can have one."""
    clones = []
    for saver in savers:
        serde = keeping(saver.serde)
        if serde is None or not is_known(saver):
            return savers
        clone = copying.copy(saver)  # as LangGraph does to give a saver another serializer
        clone.serde = serde
        clones.append(clone)
    return clones


class _ThreadCopy:
    """One thread."""

    def __init__(
        self, source: BaseCheckpointSaver[Any], target: BaseCheckpointSaver[Any], thread_id: str
    ) -> None:
        self.report = CopyReport(threads=1)
        self._source = source
        self._target = target
        self._from: Holdings = holdings_of(source)
        self._to: Holdings = holdings_of(target)
        self._thread_id = thread_id
        self._extra = _NO_WAIT if isinstance(target, LogSaver) else {}
        # Writes first: what a running graph adds in between has a checkpoint without its writes
        # and is completed by the next copy. The other way round writes would be waited for.
        self._slots = {
            place: set(self._numbered(slots).values())
            for place, slots in self._from.slots(thread_id).items()
        }
        self.have = self._from.checkpoints(thread_id)
        self._there = self._to.checkpoints(thread_id)
        self._slots_there = self._to.slots(thread_id)
        self._refit = Refit(
            by_version=keeps_values_by_version(target), only_text=is_postgres(target)
        )

    def run(self) -> Iterator[int]:
        """Copy it; yields how many checkpoints are done."""
        for done, place in enumerate(parents_first(self.have), 1):
            self._copy_checkpoint(place)
            self._copy_writes(place)
            yield done
        for place in self._slots.keys() - self.have.keys():
            self._copy_writes(place)
        if isinstance(self._target, LogSaver):
            self._target.flush()

    def _copy_checkpoint(self, place: Place) -> None:
        is_there = place in self._there
        if is_there and not self._refit.needs_all:
            self.report = replace(self.report, skipped=self.report.skipped + 1)
            return
        found = self._read(self._source, self._from, place)
        if found is None:
            return  # deleted meanwhile, and no longer the source's
        parent_id = self.have[place]
        with self._stored(place):
            checkpoint, new_versions = self._refit.checkpoint(place, parent_id, found.checkpoint)
        if is_there:
            self.report = replace(self.report, skipped=self.report.skipped + 1)
            return
        parent = config_of(self._thread_id, Place(place.ns, parent_id or ""), **self._extra)
        if parent_id is None:
            del parent["configurable"]["checkpoint_id"]
        with self._stored(place):
            self._target.put(parent, checkpoint, found.metadata, new_versions)
        self.report = replace(
            self.report,
            checkpoints=self.report.checkpoints + 1,
            renamed=self.report.renamed
            + (checkpoint["channel_versions"] != found.checkpoint["channel_versions"]),
        )

    def _read(
        self, saver: BaseCheckpointSaver[Any], held: Holdings, place: Place
    ) -> CheckpointTuple | None:
        with self._explained(place, saver, "read"):
            found = held.read(self._thread_id, place)
            if found is None:
                return None
            # SQLite and PostgreSQL keep metadata as JSON, which has no place for packed objects.
            return found._replace(metadata=opened(saver.serde, found.metadata))

    def _copy_writes(self, place: Place) -> None:
        wanted = self._slots.get(place, set())
        there = self._slots_there.get(place, set())
        if not wanted - there and not any(is_special(slot) for slot in wanted):
            return
        with self._explained(place, self._source, "read"):
            held = self._held(place)
        missing = {write.slot for write in held if write.slot not in there}
        missing |= self._outdated(place, held, there)
        config = config_of(self._thread_id, place, **self._extra)
        with self._stored(place):
            for task_id, task_path, rows in batches(held, missing):
                self._target.put_writes(config, rows, task_id, task_path)
        self.report = replace(self.report, writes=self.report.writes + len(missing))

    def _numbered(self, slots: Iterable[Slot]) -> dict[Slot, Slot]:
        """The source's slots as the target will show them."""
        return closed_up(slots) if not self._to.tells_slots else {slot: slot for slot in slots}

    def _held(self, place: Place) -> list[HeldWrite]:
        """The source's writes, without those that came since the copy began."""
        found = self._from.writes(self._thread_id, place)
        slots = self._numbered(write.slot for write in found)
        wanted = self._slots.get(place, set())
        held = [write._replace(slot=slots[write.slot]) for write in found]
        return [write for write in held if write.slot in wanted]

    def _outdated(self, place: Place, held: list[HeldWrite], there: set[Slot]) -> set[Slot]:
        """Special writes that the source has replaced since an earlier copy.

        A target that has checkpoints of its own was taken into use: there nothing is replaced.
        """
        special = [write for write in held if is_special(write.slot) and write.slot in there]
        if not special or self._there.keys() - self.have.keys():
            return set()
        values = {w.slot: w.value for w in self._to.writes(self._thread_id, place)}
        return {write.slot for write in special if not same(write.value, values.get(write.slot))}

    def _stored(self, place: Place) -> AbstractContextManager[None]:
        return self._explained(place, self._target, "stored")

    @contextmanager
    def _explained(
        self, place: Place, saver: BaseCheckpointSaver[Any], done: str
    ) -> Iterator[None]:
        try:
            yield
        except LogSaverError:
            raise  # says it already
        except Exception as error:
            raise MigrationError(
                f"{self._where(place)} cannot be {done} by {type(saver).__name__} "
                f"({type(error).__name__}: {error}); what was copied so far stays, and the next "
                "copy goes on from there"
            ) from error

    def _where(self, place: Place) -> str:
        return (
            f"thread {self._thread_id!r}, namespace {place.ns!r}, checkpoint {place.checkpoint_id}"
        )

    # -- the check

    def check(self) -> None:
        """Everything is there, and a sample is equal."""
        there = self._to.checkpoints(self._thread_id)
        slots = self._to.slots(self._thread_id)
        still = self._from.checkpoints(self._thread_id)
        for place in self.have:
            if place not in there and place in still:
                raise MigrationError(f"{self._where(place)} is not in the copy")
        for place, wanted in self._slots.items():
            # Only a list of its tuples is known of some savers: they show no waiting writes.
            if place in there and (lost := wanted - slots.get(place, set())):
                raise MigrationError(f"{self._where(place)}: {len(lost)} writes are not copied")
        for place in sample(sorted(self.have)):
            self._compare(place)
            self.report = replace(self.report, checked=self.report.checked + 1)

    def _compare(self, place: Place) -> None:
        one = self._read(self._source, self._from, place)
        other = self._read(self._target, self._to, place)
        if one is None:
            return
        what = "it is missing" if other is None else difference(one, other)
        parent_id = self.have[place]
        if Place(place.ns, parent_id or "") in self.have:
            there = self._to.checkpoints(self._thread_id)
            what = what or ("" if there.get(place) == parent_id else "its parent")
        if not what and not self._same_writes(place):
            what = "its writes"
        if what:
            raise MigrationError(f"{self._where(place)} is not the same in the copy: {what}")

    def _same_writes(self, place: Place) -> bool:
        wanted = self._slots.get(place, set())
        copied = self._to.writes(self._thread_id, place)
        one, other = (
            sorted(held, key=_order)
            for held in (self._held(place), [write for write in copied if write.slot in wanted])
        )
        return len(one) == len(other) and all(
            (a.slot, a.channel) == (b.slot, b.channel) and same(a.value, b.value)
            for a, b in zip(one, other, strict=True)
        )


def _order(write: HeldWrite) -> tuple[bool, tuple[Any, ...]]:
    """Ordinary writes as a graph takes them. Of special ones the order means nothing."""
    if is_special(write.slot):
        return False, write.slot
    return True, writes_sort_key(write.task_path, *write.slot)


def parents_first(parents: dict[Place, str | None]) -> Iterator[Place]:
    """The places by id, except that none comes before its parent; a cycle is cut somewhere."""
    done: set[Place] = set()
    for place in sorted(parents):
        line: list[Place] = []
        current: Place | None = place
        while current in parents and current not in done:
            done.add(current)
            line.append(current)
            parent_id = parents[current]
            current = None if parent_id is None else Place(current.ns, parent_id)
        yield from reversed(line)


def sample(places: Sequence[Place]) -> list[Place]:
    """The latest of the root graph and of a subgraph, and some from all over."""
    if not places:
        return []
    root = [place for place in places if not place.ns]
    steps = {places[len(places) * number // SAMPLE] for number in range(SAMPLE)}
    return sorted({*steps, places[-1], *root[-1:]})
