"""A copy of a log that has only what is live; see rewriting.py for how it takes the log's place.

Two passes over the old log, neither with a lock. The first builds an index of it, up to where it
ends then, which tells what is live: the frames that some thread refers to. The second copies
those, in the order they have. What others append meanwhile is copied whole, as by any copy: the
index of the new log says the same as that of the old one, so later records mean the same in it.

**Values.** A live frame may share a value with a dead one, or be made of ranges of it. These bytes
are stored in the first live frame that needs them, and later ones refer to that. Only these: what
nobody needs any more is gone, byte for byte. A leaf becomes one range of the copy, so a value
never has more leaves than before, nor does it depend on more others: reads stay bounded, however
often a log is compacted.

**Threads.** A copied thread refers to the frames of its source. If the source is still there the
copy gets a `LinkRecord`, with all that the index says of it. If it is gone the frame is given to
one that has it, name and all, so that nothing is left of the source's.

**Hidden checkpoints** are hidden again at the end, by one record.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from logsaver.cipher import Cipher
from logsaver.copying import Copy, check_whole
from logsaver.errors import RESTORE_OR_REPAIR, CorruptLogError
from logsaver.frame import Frame
from logsaver.index import Index
from logsaver.log import Log
from logsaver.logfile import LogFile
from logsaver.pace import Pace
from logsaver.pieces import clip
from logsaver.record import (
    CheckpointRecord,
    ForgetRecord,
    Forgotten,
    Linked,
    LinkedWrites,
    LinkRecord,
    Record,
    WritesRecord,
)
from logsaver.recovery import frames_past_hints
from logsaver.thread import Entry, Namespace, Thread
from logsaver.value import OWN, USUAL_TYPE, Range, Stored, patched, pieces_of
from logsaver.values import number_of, value_at

Progress = Callable[[int, int], None]
Owned = CheckpointRecord | WritesRecord
Reown = Callable[[Owned, str], Owned]

_CACHE_BYTES: Final = 16 << 20
_MOST_LINKS: Final = 1000  # in one record
_SYNC_EVERY: Final = 8 << 20  # bytes; a larger sync would be in the way of others'
_STEPS_TOLD: Final = 500  # of progress


class Compacted(Copy):
    """The live part of a log as a new generation."""

    def __init__(
        self,
        source: Log,
        file: LogFile,
        cipher: Cipher | None,
        *,
        reown: Reown,
        pace: Pace,
        progress: Progress | None = None,
    ) -> None:
        self._file_synced = 0  # first: the header may be written at once
        super().__init__(source, file, cipher)
        self._reown = reown
        self._pace: Pace | None = pace  # None once others wait
        self._progress = progress
        self._told = 0
        # Of our own: what is dead must not push what is in use out of the caches.
        self._reader = source.with_caches_of(_CACHE_BYTES)
        self._kept = _Kept()
        self._shares: dict[tuple[int, str], int] = {}  # of a value in a dead frame: who has it now
        self._is_live_part_copied = False

    def catch_up(self) -> None:
        if not self._is_live_part_copied:
            self._copy_live_part()
            self._is_live_part_copied = True
        super().catch_up()

    def hasten(self) -> bool:
        return self._pace is not None and self._pace.hasten()

    def hurry(self) -> None:
        self._pace = None

    def _step(self) -> None:
        if self._pace is not None:
            self._pace()

    def _copy_live_part(self) -> None:
        index, end = self._survey()
        holders = _holders(index)
        mixed: set[str] = set()  # threads that have frames which others wrote
        for frame in self._source_frames():
            if frame.offset >= end:
                break
            held_by = holders.get(frame.offset)
            if held_by is not None:
                self._take_live(frame, held_by, mixed)
            self.position, self._previous = frame.end, frame.checksum
            self._tell(end + frame.end, end)
        check_whole(self.source, self.position, end)
        self._hide(index)
        for thread_id in sorted(mixed):
            for name, ns in index.threads[thread_id].namespaces.items():
                self._link(thread_id, name, ns)
        self._check_same(index)
        self._tell(2 * end, end, is_last=True)

    def _survey(self) -> tuple[Index, int]:
        """The index of the source, and where its frames end."""
        source, index = self.source, Index()
        end, size = source.header.data_start, source.committer.written
        for frame in self._source_frames():
            index.apply(source.decode(frame), frame.offset, frame.size)
            end = frame.end
            self._tell(end, size)
        check_whole(source, end, size)
        return index, end

    def _source_frames(self) -> Iterator[Frame]:
        """From the first one on."""
        source = self.source
        start = source.header.data_start
        return frames_past_hints(source.file, seed=source.seed, start=start, previous=source.seed)

    def _tell(self, done: int, total: int, *, is_last: bool = False) -> None:
        """After one more frame of two passes, each over `total` bytes."""
        self._step()
        if self._progress is not None and (done - self._told > total // _STEPS_TOLD or is_last):
            self._told = done
            self._progress(min(done // 2, total), total)

    # -- frames

    def _take(self, frame: Frame) -> None:
        self._step()
        super()._take(frame)

    def _take_live(self, frame: Frame, held_by: tuple[str, ...], mixed: set[str]) -> None:
        record = self.source.decode(frame)
        assert isinstance(record, Owned)  # nothing else is in an index
        wanted = record
        if record.thread_id not in held_by:
            wanted = self._reown(record, held_by[0])
        if held_by != (record.thread_id,):
            mixed.update(held_by)
        self._put(frame, record, wanted)

    def _put(self, frame: Frame, record: Record, wanted: Record) -> None:
        super()._put(frame, record, wanted)
        # Only now: a value cannot be made of one in its own frame.
        self._kept.settle()

    def _hide(self, index: Index) -> None:
        changes = [
            Forgotten(thread_id, name, [], sorted(ns.hidden))
            for thread_id, thread in index.threads.items()
            for name, ns in thread.namespaces.items()
            if ns.hidden
        ]
        if changes:
            self._add(ForgetRecord(changes))

    def _link(self, thread_id: str, name: str, ns: Namespace) -> None:
        """Give a namespace what it has of other threads' frames."""
        self._write()  # so that the frames can be measured
        have = self.index.namespace(thread_id, name) or Namespace()
        checkpoints = [
            self._linked(checkpoint_id, entry, is_hidden=is_hidden)
            for is_hidden, entries in ((False, ns.listed), (True, ns.hidden))
            for checkpoint_id, entry in entries.items()
            if have.find(checkpoint_id) is None
        ]
        writes: list[LinkedWrites] = []
        for checkpoint_id, tasks in ns.writes.items():
            for task_id, entries in tasks.items():
                places = [self._moved_frame(entry.offset) for entry in entries]
                if places != [*have.writes.get(checkpoint_id, {}).get(task_id, ())]:
                    writes.append((checkpoint_id, task_id, places))
            self._step()
        for at in range(0, len(checkpoints), _MOST_LINKS):
            self._add(LinkRecord(thread_id, name, checkpoints[at : at + _MOST_LINKS], []))
        for at in range(0, len(writes), _MOST_LINKS):
            self._add(LinkRecord(thread_id, name, [], writes[at : at + _MOST_LINKS]))

    def _linked(self, checkpoint_id: str, entry: Entry, *, is_hidden: bool) -> Linked:
        offset, size = self._moved_frame(entry.offset)
        return Linked(
            checkpoint_id, offset, size, entry.parent_id, entry.time, entry.tags, is_hidden
        )

    def _check_same(self, index: Index) -> None:
        """The copy must say what the source says, or it must not take its place."""
        here, there = self.index.threads, index.threads
        is_same = here.keys() == there.keys()
        for thread_id, thread in there.items():
            self._step()
            is_same = is_same and _is_same(here[thread_id], thread, self._places)
        if not is_same:
            raise CorruptLogError(
                self.source.path,
                self.source.header.data_start,
                f"a copy of the log would not say the same; the log stays as it is. "
                f"{RESTORE_OR_REPAIR}",
            )

    # -- values

    def _shared(self, channel: str, number: int, offset: int) -> Stored:
        place = self._places.get(offset)
        if place is None:
            place = self._shares.get((offset, channel))
        if place is not None:
            return place
        holder = self._reader.checkpoint(offset)
        if channel not in holder.channels:
            return self._place(offset)  # which raises
        value = value_at(self._reader, offset, number_of(holder, channel))
        self._shares[offset, channel] = self.end
        return self._assembled(value.kind, self._leaves(value.leaves, value.data), number)

    def _put_together(self, number: int, stored: list[Any]) -> Stored:
        kind, own, numbers = stored
        pieces = list(pieces_of(numbers))
        if all(piece.offset == OWN or piece.offset in self._places for piece in pieces):
            return super()._put_together(number, stored)
        return self._assembled(kind, self._pieces(own, pieces), number)

    def _pieces(self, own: bytes, pieces: list[Range]) -> Iterator[_Piece]:
        for piece in pieces:
            _, _, start, length = piece
            if piece.offset == OWN:
                yield _Piece(None, None, own[start : start + length])
            elif piece.offset in self._places:
                yield _Piece(self._range(piece), None, b"")
            else:
                value = value_at(self._reader, piece.offset, piece.number)
                leaves = clip(value.leaves, start, length)
                yield from self._leaves(leaves, value.data[start : start + length])

    def _leaves(self, leaves: list[Range], data: bytes) -> Iterator[_Piece]:
        """Leaves as the copy has them; those that it has not come with their bytes."""
        at = 0
        for leaf in leaves:
            end = at + leaf.length
            if leaf.offset in self._places:
                yield _Piece(self._range(leaf), None, b"")
            elif place := self._kept.find(leaf):
                yield _Piece(place, None, b"")
            else:
                yield _Piece(None, leaf, data[at:end])
            at = end

    def _assembled(self, kind: str, parts: Iterator[_Piece], number: int) -> Stored:
        """The stored form of a value of the frame that comes next, where it has this number."""
        pieces: list[Range] = []
        own: list[bytes] = []
        position = 0
        for place, leaf, data in parts:
            piece = place or Range(OWN, OWN, position, len(data))
            if place is None:
                own.append(data)
                if leaf is not None:
                    self._kept.add(leaf, piece._replace(offset=self.end, number=number))
            position += piece.length
            if pieces and _follows(pieces[-1], piece):
                piece = pieces[-1]._replace(length=pieces.pop().length + piece.length)
            pieces.append(piece)
        stored = b"".join(own)
        if len(stored) == position:  # nothing of it is anywhere else
            return stored if kind == USUAL_TYPE else [kind, stored]
        return patched(kind, stored, pieces)

    # -- writing

    def _write(self) -> None:
        super()._write()
        if self._written - self._file_synced >= _SYNC_EVERY:
            self._file.sync()
            self._file_synced = self._written


class _Piece(NamedTuple):
    """A part of a value: a range of the copy; or bytes, and the dead leaf that they are from."""

    place: Range | None
    leaf: Range | None
    data: bytes


class _Kept:
    """What of dead frames is in the copy, and where."""

    def __init__(self) -> None:
        self._ranges: dict[tuple[int, int], list[tuple[int, Range]]] = {}
        self._added: list[tuple[Range, Range]] = []

    def add(self, leaf: Range, place: Range) -> None:
        """From the next `settle` on."""
        self._added.append((leaf, place))

    def settle(self) -> None:
        for leaf, place in self._added:
            insort(self._ranges.setdefault(leaf[:2], []), (leaf.start, place))
        self._added.clear()

    def find(self, leaf: Range) -> Range | None:
        """Where the whole of this leaf is, as one range."""
        ranges = self._ranges.get(leaf[:2], [])
        end = leaf.start + leaf.length
        for start, place in reversed(ranges[: bisect_right(ranges, leaf.start, key=_start)]):
            if end <= start + place.length:
                return place._replace(start=place.start + leaf.start - start, length=leaf.length)
        return None


def _start(item: tuple[int, Range]) -> int:
    return item[0]


def _follows(piece: Range, following: Range) -> bool:
    if OWN in (piece.offset, following.offset):
        return piece.offset == following.offset
    return piece[:2] == following[:2] and piece.start + piece.length == following.start


def _holders(index: Index) -> dict[int, tuple[str, ...]]:
    """The threads that refer to each frame."""
    holders: dict[int, tuple[str, ...]] = {}
    for thread_id, thread in index.threads.items():
        alone = (thread_id,)
        for ns in thread.namespaces.values():
            for offset, _ in ns.frames():
                before = holders.get(offset)
                holders[offset] = alone if before is None else (*before, thread_id)
    return holders


def _is_same(here: Thread, there: Thread, places: Mapping[int, int]) -> bool:
    """Whether a thread of a copy is that of its source. Sizes and tags may be others."""
    return here.namespaces.keys() == there.namespaces.keys() and all(
        _gist(here.namespaces[name], None) == _gist(ns, places)
        for name, ns in there.namespaces.items()
    )


def _gist(ns: Namespace, places: Mapping[int, int] | None) -> tuple[Any, ...]:
    def place(offset: int) -> int:
        return offset if places is None else places[offset]

    return (
        ns.ids,
        [
            {i: (place(entry.offset), entry.parent_id, entry.time) for i, entry in entries.items()}
            for entries in (ns.listed, ns.hidden)
        ],
        {
            i: {
                task_id: [place(entry.offset) for entry in entries]
                for task_id, entries in tasks.items()
            }
            for i, tasks in ns.writes.items()
        },
    )
