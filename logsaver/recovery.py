"""What an opened file holds: whole frames, and how it ends.

A crash leaves any part of what was not synced. Let W be the largest `synced_upto` that any
intact frame header of the file carries, those beyond the first unreadable byte included: the
log is known to have been on stable storage up to W.

* Unreadable bytes at or above W are a *torn tail*: no frame says that they were ever safe.
  A writer sets them aside and cuts them off.
* Unreadable bytes below W are *damage*: they were safe once. Nothing is touched.

What is kept is always a prefix of what was written. Whole frames behind a torn one are not
kept: they may depend on it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from logsaver.errors import (
    RESTORE_OR_REPAIR,
    CorruptLogError,
    LogOpenError,
    NotALogError,
    UnsupportedFormatError,
)
from logsaver.frame import (
    FILE_HEADER_SIZE,
    FRAME_HEADER_SIZE,
    FRAME_MAGIC,
    MAX_KEY_CHECK,
    BadHeaderError,
    FileHeader,
    Frame,
    FrameHead,
    NewerFormatError,
    decode_frame,
    decode_head,
)
from logsaver.logfile import LogFile
from logsaver.record import Kind

CHUNK: Final = 1 << 20
HINTS: Final = (Kind.SEAL, Kind.SEAL_PART)
SQLITE_MAGIC: Final = b"SQLite format 3\0"
SQLITE_HINT: Final = (
    "it is an SQLite database; if it is SqliteSaver's, `logsaver migrate` copies it into a log"
)

logger = logging.getLogger("logsaver")


def read_header(file: LogFile) -> FileHeader:
    """The file header. Raises what tells the user apart: empty, not ours, newer, or damaged."""
    start = file.read(FILE_HEADER_SIZE + MAX_KEY_CHECK, 0)
    if not start:
        raise LogOpenError(file.path, "the file is empty; no log has been written here yet")
    try:
        return FileHeader.decode(start)
    except BadHeaderError as error:
        what = SQLITE_HINT if start.startswith(SQLITE_MAGIC) else str(error)
        raise NotALogError(
            file.path,
            f"this is not a logsaver log ({what}); it was left untouched; give the path of a log",
        ) from error
    except NewerFormatError as error:
        raise UnsupportedFormatError(
            file.path, f"a newer logsaver wrote this log ({error}); upgrade logsaver to open it"
        ) from error
    except ValueError as error:
        raise CorruptLogError(
            file.path,
            0,
            f"{error}; restore the file from a backup. Without its header no frame can be told "
            "from other bytes, so logsaver.verify(path) and logsaver.repair(path, out) cannot help",
        ) from error


def frames(file: LogFile, *, seed: int, start: int, previous: int | None) -> Iterator[Frame]:
    """The chain of whole frames from `start`; ends where the next one is missing or harmed.

    `previous` is the checksum that the first of them has to follow, None for any. Reads in large
    pieces; a frame's payload is a view into such a piece.
    """
    piece, piece_start, offset = b"", start, start
    while True:
        at = offset - piece_start
        frame = decode_frame(piece, at, offset=offset, seed=seed)
        if frame is not None:
            if previous is not None and frame.previous != previous:
                return
            yield frame
            offset, previous = frame.end, frame.checksum
            continue
        head = decode_head(piece, at, offset=offset, seed=seed)
        needed = FRAME_HEADER_SIZE + (head.length if head else 0)
        available = len(piece) - at
        if available >= needed:
            return
        # Never asks for more than there is: a length is a claim until its payload is seen. Nor
        # for a part of a frame: a reader beside a large torn one comes here at every call.
        rest = file.end() - offset
        if rest < needed:
            return
        wanted = min(max(CHUNK, needed), rest)
        if wanted <= available:
            return
        piece, piece_start = file.read(wanted, offset), offset


def frames_past_hints(
    file: LogFile, *, seed: int, start: int, previous: int | None
) -> Iterator[Frame]:
    """The same, but seals whose payload is harmed do not end it: the log is whole without.

    Only if their headers are intact and the frame behind them follows them. Then the headers say
    what they were, and it is no torn tail.
    """
    while True:
        for frame in frames(file, seed=seed, start=start, previous=previous):
            yield frame
            start, previous = frame.end, frame.checksum
        behind = _behind_hints(file, seed=seed, start=start, previous=previous)
        if behind is None:
            return
        # Something follows by now: so whoever was just writing this one has finished it.
        if any(frames(file, seed=seed, start=start, previous=previous)):
            continue
        logger.warning("%s: the seal at byte %d is damaged; doing without it", file.path, start)
        start, previous = behind


def _behind_hints(
    file: LogFile, *, seed: int, start: int, previous: int | None
) -> tuple[int, int] | None:
    """Where a whole frame follows on seals that have an intact header, and on which checksum."""
    while file.end() >= start + FRAME_HEADER_SIZE:
        head = decode_head(file.read(FRAME_HEADER_SIZE, start), 0, offset=start, seed=seed)
        if head is None or head.kind not in HINTS or head.previous != previous:
            return None
        start, previous = start + FRAME_HEADER_SIZE + head.length, head.checksum
        if any(frames(file, seed=seed, start=start, previous=previous)):
            return start, previous
    return None


class FoundHead(NamedTuple):
    """An intact frame header that was found by searching."""

    offset: int
    head: FrameHead


def search_heads(file: LogFile, *, seed: int, start: int) -> Iterator[FoundHead]:
    """Every intact frame header at or after `start`, whatever lies between them."""
    position, end = start, file.end()
    while position < end:
        piece = file.read(CHUNK + FRAME_HEADER_SIZE, position)
        at = piece.find(FRAME_MAGIC)
        while 0 <= at < CHUNK:
            head = decode_head(piece, at, offset=position + at, seed=seed)
            if head is not None:
                yield FoundHead(position + at, head)
            at = piece.find(FRAME_MAGIC, at + 1)
        position += CHUNK


def watermark_of(file: LogFile, *, seed: int, start: int, known: int) -> int:
    """W: the largest `synced_upto` of the intact headers from `start` on, and of those `known`."""
    heads = search_heads(file, seed=seed, start=start)
    return max(known, max((found.head.synced_upto for found in heads), default=known))


def damage(path: str, end: int, watermark: int) -> CorruptLogError:
    """The error for bytes from `end` on that cannot be read, below the watermark."""
    return CorruptLogError(
        path,
        end,
        f"bytes up to {watermark} were safely stored, but the frame here cannot be read. "
        f"Nothing was changed; {RESTORE_OR_REPAIR}",
    )


def cut_torn_tail(file: LogFile, end: int) -> None:
    """Cut off what a crash left behind the last whole frame. The caller has the file's lock."""
    size = file.end()
    saved = _set_aside(file, end, size)
    try:
        file.truncate(end)
        file.sync()  # or the cut-off frames could come back behind new ones
    except OSError as error:
        raise LogOpenError(
            file.path,
            f"what a crash left at its end cannot be cut off: {error.strerror}; check the disk, "
            "or open it with read_only=True",
            error.errno,
        ) from error
    logger.warning(
        "%s: cut a torn tail of %d bytes at byte %d, left by a crash%s",
        file.path,
        size - end,
        end,
        f"; saved as {saved}" if saved else "",
    )


def _set_aside(file: LogFile, end: int, size: int) -> str | None:
    """Copy the torn tail to a `.torn-N` file beside the log; its path, or None if only zeros.

    Best effort: the tail is of no use to the log, and a full disk must not keep it from opening.
    """
    if not any(file.read(CHUNK, at).strip(b"\0") for at in range(end, size, CHUNK)):
        return None
    with contextlib.suppress(OSError):
        return file.save_aside(end, size)
    return None
