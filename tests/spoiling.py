"""Small logs of several kinds, and every way to spoil them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from crashing import PATH, Call, State, open_on, state_of
from encrypting import encrypted_logs, serde_in_use
from langgraph.checkpoint.serde.base import SerializerProtocol
from logs import flipped
from simdisk import SECTOR, SimDisk
from test_crashes import flush, put, put_writes

from logsaver.cipher import cipher_of, encryption_of, record_in
from logsaver.frame import FRAME_HEADER_SIZE, FileHeader, decode_frame
from logsaver.record import Record

PIECE = 64  # finer than a sector: the file header, and most frame headers, fit in one


# -- the logs


class Part(NamedTuple):
    """A frame of an intact log."""

    start: int
    end: int
    previous: int
    synced_upto: int
    record: Record

    @property
    def body(self) -> int:
        return self.start + FRAME_HEADER_SIZE


class Sample(NamedTuple):
    """An intact log, its frames, and the state after each of them (the first: after none)."""

    data: bytes
    parts: list[Part]
    states: list[State]
    serde: SerializerProtocol | None = None

    @property
    def data_start(self) -> int:
        return FileHeader.decode(self.data).data_start


def sample(calls: Iterable[Call], start: bytes | None = None, **options: Any) -> Sample:
    disk = SimDisk({PATH: start} if start else None)
    saver = open_on(disk, **options)
    for call in calls:
        call.do(saver)
    saver.close()
    data = disk.files()[PATH]
    parts = list(parts_of(data))
    ends = [FileHeader.decode(data).data_start, *(part.end for part in parts)]
    return Sample(data, parts, [state_in(data[:end]) for end in ends], serde_in_use())


def state_in(data: bytes) -> State:
    saver = open_on(SimDisk({PATH: data}), read_only=True)
    state = state_of(saver)
    saver.close()
    return state


def parts_of(data: bytes) -> Iterator[Part]:
    header = FileHeader.decode(data)
    encryption = encryption_of(PATH, header, cipher_of(serde_in_use()))
    at = header.data_start
    while at < len(data):
        frame = decode_frame(data, at, offset=at, seed=header.seed)
        record = record_in(frame, encryption)
        yield Part(at, frame.end, frame.previous, frame.synced_upto, record)
        at = frame.end


EVERY_KIND = [
    put("a", 1),
    put_writes("a", 1),
    put("a", 2, parent=1),
    put("b", 1, size=90),
    Call("copy", lambda saver: saver.copy_thread("a", "c")),
    Call("prune", lambda saver: saver.prune(["a"])),
    put("a", 3, parent=2),
    Call("delete_for_runs", lambda saver: saver.delete_for_runs(["b"])),
    Call("delete", lambda saver: saver.delete_thread("c")),
    put_writes("a", 3),
]
SOME_FLUSHED = [*EVERY_KIND[:3], flush(), *EVERY_KIND[3:6], flush(), *EVERY_KIND[6:]]


def recovered_log() -> Sample:
    """A log that crashed, lost its last three calls, was opened again and written on."""
    first = sample(SOME_FLUSHED, fsync="never")
    torn = first.data[: first.parts[-3].body + 3] + bytes(40)
    return sample([put_writes("a", 4), put("d", 1), put_writes("a", 2, task="other")], torn)


def large_log() -> Sample:
    """Some 10 kB: frames over several sectors, and many that are small."""
    calls: list[Call] = []
    for number in range(1, 9):
        size = (30, 400, 1300, 3000)[number % 4]
        calls += [put("a", number, size, parent=number - 1 or None), put_writes("a", number)]
        if number % 6 == 0:
            calls += [*EVERY_KIND[3:5], EVERY_KIND[8], flush()]
    return sample(calls, fsync="never")


SMALL = sample([put("a", 1, size=8), put_writes("a", 1), EVERY_KIND[4]])
LOGS = {
    "synced": sample(EVERY_KIND),
    "never-synced": sample(EVERY_KIND, fsync="never"),
    "recovered": recovered_log(),
    "large": large_log(),
}
with encrypted_logs():
    SMALL_ENCRYPTED = sample([put("a", 1, size=8), put_writes("a", 1), EVERY_KIND[4]])
    ENCRYPTED = {"synced": sample(EVERY_KIND), "recovered": recovered_log()}


# -- the damage

Damage = Callable[[Sample], Iterator[bytes]]


def bits(log: Sample) -> Iterator[bytes]:
    return (flipped(log.data, bit) for bit in range(len(log.data) * 8))


def truncations(log: Sample) -> Iterator[bytes]:
    return (log.data[:length] for length in range(1, len(log.data)))


def truncations_and_zeros(log: Sample) -> Iterator[bytes]:
    """What a file system leaves that grew the file but did not write it."""
    return (cut + bytes(SECTOR) for cut in truncations(log))


def pieces_of(data: bytes) -> Iterator[list[slice]]:
    for size in (SECTOR, PIECE) if len(data) < 8 * SECTOR else (SECTOR,):
        yield [slice(at, min(at + size, len(data))) for at in range(0, len(data), size)]


def zeroed(log: Sample) -> Iterator[bytes]:
    for place in itertools.chain(*pieces_of(log.data)):
        yield changed(log.data, (place, bytes(place.stop - place.start)))


def duplicated(log: Sample) -> Iterator[bytes]:
    """Each piece where each other one should be: a write that went to the wrong place."""
    for pieces in pieces_of(log.data):
        for source, place in itertools.permutations(pieces, 2):
            yield changed(log.data, (place, log.data[source][: place.stop - place.start]))


def swapped(log: Sample) -> Iterator[bytes]:
    frames = [slice(part.start, part.end) for part in log.parts]
    for pieces in [*pieces_of(log.data), frames]:
        for one, other in itertools.combinations(pieces, 2):
            yield changed(log.data, (one, log.data[other]), (other, log.data[one]))


def frames_moved(log: Sample) -> Iterator[bytes]:
    """Whole frames left out, and put in again elsewhere; whatever follows moves along."""
    places = [slice(part.start, part.start) for part in log.parts]
    for part in log.parts:
        frame = log.data[part.start : part.end]
        yield changed(log.data, (slice(part.start, part.end), b""))
        yield log.data + frame
        yield from (changed(log.data, (place, frame)) for place in places)


def changed(data: bytes, *changes: tuple[slice, bytes]) -> bytes:
    """The same with other bytes in these places, which are in order."""
    pieces, at = [], 0
    for place, content in changes:
        pieces += [data[at : place.start], content]
        at = place.stop
    return b"".join([*pieces, data[at:]])


DAMAGE: tuple[Damage, ...] = (
    bits,
    truncations,
    truncations_and_zeros,
    zeroed,
    duplicated,
    swapped,
    frames_moved,
)


def some_of(log: Sample, damage: Damage, number: int) -> list[bytes]:
    """The same ones each time, from all over the log."""
    total = sum(1 for _ in damage(log))
    picked = set(random.Random(damage.__name__).sample(range(total), min(total, number)))
    return [spoiled for at, spoiled in enumerate(damage(log)) if at in picked]
