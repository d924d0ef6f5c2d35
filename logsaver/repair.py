"""`verify` reads every byte of a log and reports; `repair` saves what is intact into a new one.

Neither touches the log itself. Both go on behind damage: they look for the next frame that is
whole, whatever lies before it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.arguments import path_of
from logsaver.cipher import Encryption, cipher_of, encryption_of, record_in
from logsaver.disk import DISK
from logsaver.errors import LogKeyError, LogOpenError
from logsaver.frame import ENCRYPTED, FileHeader, Frame
from logsaver.intact import Intact, Relocation, name_of
from logsaver.logfile import LogFile
from logsaver.record import (
    AboutTheFile,
    BadRecordError,
    CheckpointRecord,
    LinkRecord,
    Record,
    UnknownKindError,
    VouchRecord,
    WritesRecord,
)
from logsaver.recovery import frames, read_header, search_heads, watermark_of
from logsaver.store import Store


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of bytes that holds no usable frame."""

    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        return f"bytes {self.start} to {self.end}: {self.reason}"


@dataclass(slots=True)
class VerifyReport:
    """What `verify` found."""

    path: str
    bytes: int = 0
    frames: int = 0
    safe_upto: int = 0
    """Up to here the log is known to have been on stable storage."""
    damage: list[Damage] = field(default_factory=list)
    records_checked: bool = True
    """False for an encrypted log without its key: then only checksums and chain were looked at."""
    torn_tail: Damage | None = None
    """What a crash left behind the last whole frame; opening for writing cuts it off."""

    @property
    def ok(self) -> bool:
        """No damage. A torn tail is normal."""
        return not self.damage


@dataclass(slots=True)
class RepairReport:
    """What `repair` saved, and what is missing."""

    path: str
    out: str
    records: int = 0
    lost: list[Damage] = field(default_factory=list)
    missing_values: list[str] = field(default_factory=list)
    """Channels and writes that were stored, wholly or in part, in a damaged frame; left out."""


Progress = Callable[[int, int], None]


class _Unusable(NamedTuple):
    """Why a whole frame holds no record. No crash leaves this, so it is never a torn tail."""

    reason: str


# In place of a record that nobody has the key for: it says nothing of other frames.
_NOT_CHECKED: Final = VouchRecord()


def verify(
    path: str | os.PathLike[str],
    *,
    serde: SerializerProtocol | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check every byte of a log: checksums, chain, records, and that shared values are there.

    Raises what opening would raise if the file header cannot be read. Values are not decoded,
    so no serializer is needed, except for the key of an encrypted log. Without it checksums and
    chain are checked. `progress` is called with the bytes read and those of the log.
    """
    file = LogFile.open(DISK, path_of(path), read_only=True)
    try:
        header, cipher = read_header(file), cipher_of(serde)
        has_key = cipher is not None or not header.flags & ENCRYPTED
        encryption = encryption_of(file.path, header, cipher) if has_key else None
        report = VerifyReport(file.path, file.end(), records_checked=has_key)
        intact = Intact()
        gap: Damage | None = None  # the first place where no whole frame is
        for found in _salvage(file, header, progress):
            if isinstance(found, Damage):
                report.damage.append(found)
                gap = gap or found
                continue
            frame = found
            report.safe_upto = max(report.safe_upto, frame.synced_upto)
            record = _record_or_why_not(frame, encryption) if has_key else _NOT_CHECKED
            if isinstance(record, _Unusable):
                report.damage.append(Damage(frame.offset, frame.end, record.reason))
                continue
            report.frames += 1
            if missing := intact.missing_in(frame.offset, record):
                names = ", ".join(name_of(record, number) for number in missing)
                reason = f"values of {names} are not where they should be"
                report.damage.append(Damage(frame.offset, frame.end, reason))
        if gap is not None:
            _tell_torn_from_damaged(file, header, report, gap)
    finally:
        file.close()
    return report


def _tell_torn_from_damaged(
    file: LogFile, header: FileHeader, report: VerifyReport, gap: Damage
) -> None:
    """By the rule that opening goes by; see recovery.py."""
    report.safe_upto = watermark_of(file, seed=header.seed, start=gap.start, known=report.safe_upto)
    if gap.start < report.safe_upto:
        return
    report.torn_tail = Damage(gap.start, report.bytes, gap.reason)
    report.damage = [damage for damage in report.damage if damage.start < gap.start]


def repair(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    serde: SerializerProtocol | None = None,
    progress: Progress | None = None,
) -> RepairReport:
    """Write every intact record of the log at `path` to a new log at `out`.

    Whole frames behind damage are saved too. If a delete was in the damaged part, what it had
    deleted is back. `out` must not exist, and does not exist if this fails. An encrypted log needs
    the serializer with its key, since a frame is bound to its place; the new log has the same key.
    `progress` is called with the bytes read and those of the log.
    """
    source, target = path_of(path), path_of(out)
    if DISK.identity_at(target) is not None:
        raise LogOpenError(target, "this file exists; repair writes to a new one")
    file = LogFile.open(DISK, source, read_only=True)
    try:
        # Before anything is made.
        header, cipher = read_header(file), cipher_of(serde)
        if header.flags & ENCRYPTED and cipher is None:
            raise LogKeyError(
                source,
                "the log is encrypted, and each frame is bound to its place in it, so without the "
                "key it cannot be put into another. Give the serializer: repair(path, out, serde=)",
            )
        encryption = encryption_of(source, header, cipher)
        try:
            return _repair_into(target, file, header, encryption, progress)
        except BaseException:
            # Half of a log would pass for all that could be saved.
            with contextlib.suppress(OSError):  # the first error is the one to report
                DISK.unlink(target)
            raise
    finally:
        file.close()


def _repair_into(
    target: str,
    file: LogFile,
    header: FileHeader,
    encryption: Encryption | None,
    progress: Progress | None,
) -> RepairReport:
    store = Store(target, cipher=None if encryption is None else encryption.cipher)
    try:
        return _copy_intact(file, header, encryption, store, progress)
    finally:
        store.close(sync=True)


def _copy_intact(
    file: LogFile,
    header: FileHeader,
    encryption: Encryption | None,
    store: Store,
    progress: Progress | None,
) -> RepairReport:
    report = RepairReport(file.path, store.path)
    intact, relocation = Intact(), Relocation()
    for frame in _salvage(file, header, progress):
        if isinstance(frame, Damage):
            report.lost.append(frame)
            continue
        record = _record_or_why_not(frame, encryption)
        if isinstance(record, _Unusable):
            report.lost.append(Damage(frame.offset, frame.end, record.reason))
            continue
        if isinstance(record, AboutTheFile):
            continue
        missing = intact.missing_in(frame.offset, record)
        if missing:
            owner = _owner_of(record)
            report.missing_values += [f"{owner}: {name_of(record, number)}" for number in missing]
        moved = relocation.moved(frame.offset, record, missing)
        if isinstance(moved, LinkRecord) and not (moved.checkpoints or moved.writes):
            continue
        _, _, offset, end = store.append(moved)
        relocation.put(frame.offset, offset, end - offset)
        report.records += 1
    return report


def _owner_of(record: Record) -> str:
    # Others have no values.
    assert isinstance(record, CheckpointRecord | WritesRecord | LinkRecord)
    owner = f"thread {record.thread_id!r}"
    if isinstance(record, LinkRecord):
        return owner
    return f"{owner}, checkpoint {record.checkpoint_id!r}"


def _salvage(
    file: LogFile, header: FileHeader, progress: Progress | None
) -> Iterator[Frame | Damage]:
    """Every whole frame in file order, and what lies between them."""
    seed, size = header.seed, file.end()
    position: int = header.data_start
    previous: int | None = seed
    while position < size:
        for frame in frames(file, seed=seed, start=position, previous=previous):
            yield frame
            position = frame.end
            if progress is not None:
                progress(position, size)
        if position >= size:
            return
        following = _next_whole_frame(file, seed, position)
        if following is None:
            yield Damage(position, size, "no whole frame")
            return
        if following == position:
            yield Damage(position, position, "the frame here does not follow the one before it")
        else:
            yield Damage(position, following, "no whole frame")
        position, previous = following, None


def _record_or_why_not(frame: Frame, encryption: Encryption | None) -> Record | _Unusable:
    try:
        return record_in(frame, encryption)
    except UnknownKindError as error:
        return _Unusable(f"the frame {error}; a newer logsaver wrote it")
    except BadRecordError as error:
        return _Unusable(str(error))


def _next_whole_frame(file: LogFile, seed: int, start: int) -> int | None:
    for found in search_heads(file, seed=seed, start=start):
        if any(True for _ in islice(frames(file, seed=seed, start=found.offset, previous=None), 1)):
            return found.offset
    return None
