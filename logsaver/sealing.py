"""Seals in a log: finding the last one, reading threads from it, and when to write the next.

A seal is a hint. It is written into the log like any other frame, by whoever appends: parts, each
with some of the threads that have changed since the last seal, and then the seal itself, a table of
all threads that says in which part each of them is. So a part counts as long as its threads do not
change, however many seals come after it.

It is *believed* only if a later frame says that the log was on stable storage beyond it: then
nothing before it can be a torn tail. Otherwise an earlier one is tried, and then the whole log is
read. What is damaged before a seal is found when it is read, and by `verify`.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from logsaver.cache import Recent
from logsaver.errors import CorruptLogError
from logsaver.frame import FRAME_HEADER_SIZE, FRAME_MAGIC, FrameHead, decode_head
from logsaver.index import Index
from logsaver.log import Log
from logsaver.record import Kind, Record, SealPartRecord, SealRecord
from logsaver.recovery import CHUNK, damage, frames_past_hints
from logsaver.seal import (
    pack_part,
    pack_table,
    pack_thread,
    unpack_part,
    unpack_summaries,
    unpack_table,
    unpack_thread,
)
from logsaver.thread import Place, Summary, Thread, Wanted
from logsaver.threads import BadSealError, Threads

logger = logging.getLogger("logsaver")

FIRST_LOOK: Final = 1 << 16  # bytes; after a clean close the seal is there
PART_SIZE: Final = 1 << 16  # bytes before compression, or one larger thread
PARTS_KEPT: Final = 8  # uncompressed, for those who go from thread to thread

# When the log has grown by so much since the last seal, another is worth it. Reading a megabyte of
# small records takes 25 ms.
AT_CLOSE: Final = 1 << 17
UNDER_WAY: Final = 1 << 22
# And it may take this share of that: seals do not make a log longer by more than a quarter.
SHARE: Final = 4
THREAD_COST: Final = 64  # bytes, about, of a thread in the table
CHECKPOINT_COST: Final = 24  # and of a checkpoint, or a call of put_writes, in a part

_MARK: Final = FRAME_MAGIC + bytes([Kind.SEAL])


# -- reading


class FoundSeal(NamedTuple):
    """An intact seal."""

    offset: int
    end: int
    head: FrameHead
    named_upto: int
    threads: SealedThreads


def find_seals(log: Log) -> Iterator[FoundSeal]:
    """The seals that can be read, the last one first."""
    for offset, head in _heads_backwards(log):
        size = FRAME_HEADER_SIZE + head.length
        try:
            record = log.record(offset, size)
            if isinstance(record, SealRecord):
                threads = SealedThreads(log, offset, record)
                yield FoundSeal(offset, offset + size, head, record.named_upto, threads)
        except (CorruptLogError, BadSealError) as error:
            logger.warning("%s: the seal at byte %d is no good: %s", log.path, offset, error)


def _heads_backwards(log: Log) -> Iterator[tuple[int, FrameHead]]:
    """Intact headers of seals. Reads what a scan would read, and does nothing else with it."""
    end, size = log.file.end(), FIRST_LOOK
    while end > log.header.data_start:
        start = max(log.header.data_start, end - size)
        # A header may begin before `end` and go on behind it.
        piece = log.file.read(end - start + FRAME_HEADER_SIZE - 1, start)
        at = len(piece)
        while (at := piece.rfind(_MARK, 0, at)) >= 0:
            head = decode_head(piece, at, offset=start + at, seed=log.seed)
            if head is not None:
                yield start + at, head
        end, size = start, CHUNK


class SealedThreads:
    """The threads of a seal; implements `threads.Sealed`."""

    def __init__(self, log: Log, offset: int, record: SealRecord) -> None:
        self.log = log  # a forked child puts its own here
        self._offset = offset
        self._record = record
        self._table = unpack_table(record.places, offset)
        self._parts: Recent[int, list[bytes]] = Recent(2 * PARTS_KEPT)

    def has(self, thread_id: str) -> bool:
        return self._row(thread_id) is not None

    def from_id(self, minimum: str) -> Iterator[str]:
        ids = self._table.ids
        return islice(ids, bisect_left(ids, minimum), None)

    def __len__(self) -> int:
        return len(self._table.ids)

    def thread(self, thread_id: str) -> Thread:
        row = self._row(thread_id)
        if row is None:
            raise KeyError(thread_id)
        place = self._table.place(row)
        thread = unpack_thread(self._columns(place), self._offset)
        thread.remember().place = place
        return thread

    def may_have(self, thread_id: str, wanted: Wanted) -> bool:
        row = self._row(thread_id)
        if row is None:
            return False
        columns = self._columns(self._table.place(row))
        return all(any(tag in columns for tag in either) for either in wanted)

    def summaries(self) -> Iterator[tuple[str, Summary, Place]]:
        table = self._table
        summaries = unpack_summaries(self._record.summaries)
        if len(summaries) != len(table.ids):
            raise BadSealError("it has not one summary for each thread")
        places = map(table.place, range(len(table.ids)))
        return zip(table.ids, summaries, places, strict=True)

    def scanned(self, error: BadSealError) -> Threads:
        logger.warning("%s: a seal is no good (%s); reading the whole log", self.log.path, error)
        return scan(self.log, self._offset).threads

    def _row(self, thread_id: str) -> int | None:
        ids = self._table.ids
        row = bisect_left(ids, thread_id)
        return row if row < len(ids) and ids[row] == thread_id else None

    def _columns(self, place: Place) -> bytes:
        part = self._parts.get(place.offset)
        if part is None:
            try:
                record = self.log.record(place.offset, place.size)
            except CorruptLogError as error:
                raise BadSealError(f"a part of it is damaged: {error}") from error
            if not isinstance(record, SealPartRecord):
                raise BadSealError(f"there is no part of it at byte {place.offset}")
            part = unpack_part(record.threads)
            self._parts.put(place.offset, part)
        if place.number >= len(part) or type(part[place.number]) is not bytes:
            raise BadSealError(f"the part at byte {place.offset} does not have the thread")
        return part[place.number]


def scan(log: Log, upto: int) -> Index:
    """What the frames before `upto` hold. Raises `CorruptLogError` if they are not all there."""
    index = Index()
    end = log.header.data_start
    for frame in frames_past_hints(log.file, seed=log.seed, start=end, previous=log.seed):
        if frame.offset >= upto:
            return index
        index.apply(log.decode(frame), frame.offset, frame.size)
        end = frame.end
    if end < upto:
        raise damage(log.path, end, upto)
    return index


# -- writing

Append = Callable[[Record], tuple[Log, int, int, int]]  # tells as a store does where it is


class Sealer:
    """When a log is to be sealed again, and what is left to do for it."""

    def __init__(self, sealed_upto: int) -> None:
        self._sealed_upto = sealed_upto  # where the log last was read from a table
        self.due = sealed_upto + UNDER_WAY
        self._left: list[str] = []  # threads that are still to be sealed, under way

    def found(self, end: int) -> None:
        """Somebody, perhaps we, has put a seal that ends here."""
        self._sealed_upto = end
        self.due = end + UNDER_WAY
        self._left = []

    def is_due_at_close(self, threads: Threads, end: int) -> bool:
        return self._has_grown(threads, end, AT_CLOSE)

    def _has_grown(self, threads: Threads, end: int, least: int) -> bool:
        """Whether the log has grown so much that a seal is short beside it."""
        grown = end - self._sealed_upto
        return grown >= least and grown >= SHARE * _cost(threads, threads.unsealed())

    def step(self, threads: Threads, end: int, named_upto: int, append: Append) -> None:
        """Do a small part of it: a put is waiting."""
        if not self._left:
            if not self._has_grown(threads, end, UNDER_WAY):
                self.postpone(end)
                return
            self._left = threads.unsealed()
        self._left = _write_part(threads, self._left, append)
        if not self._left:
            self.finish(threads, named_upto, append)

    def finish(self, threads: Threads, named_upto: int, append: Append) -> None:
        """Seal what is left, and what has changed since its turn was."""
        left = threads.unsealed()
        while left:
            left = _write_part(threads, left, append)
        rows = list(threads.sealed())
        if len(rows) < len(threads):
            return  # the last seal turned out to be no good; next time there is more to do
        *_, end = append(SealRecord(named_upto, *pack_table(rows)))
        self.found(end)

    def postpone(self, end: int) -> None:
        self.due = end + max(UNDER_WAY, (end - self._sealed_upto) // 2)
        self._left = []


def _cost(threads: Threads, unsealed: Iterable[str]) -> int:
    checkpoints = sum(
        len(ns.listed) + len(ns.hidden) + len(ns.writes)
        for thread_id in unsealed
        for ns in threads.live[thread_id].namespaces.values()
    )
    return CHECKPOINT_COST * checkpoints + THREAD_COST * len(threads)


def _write_part(threads: Threads, left: list[str], append: Append) -> list[str]:
    """Seal threads from the end of `left` until there is enough for a part; what is left then."""
    columns: list[bytes] = []
    chosen: list[Thread] = []
    left, size = left.copy(), 0
    while left and size < PART_SIZE:
        thread = threads.live.get(left.pop())
        if thread is not None:  # else it was deleted meanwhile
            chosen.append(thread)
            columns.append(pack_thread(thread))
            size += len(columns[-1])
    if chosen:
        *_, offset, end = append(SealPartRecord(pack_part(columns)))
        for number, thread in enumerate(chosen):
            thread.remember().place = Place(offset, end - offset, number)
    return left
