"""The file header and the frames: bytes in, bytes out, no I/O.

`docs/format.md` tells the layout byte by byte. What matters here is what the checks buy:

* The checksum of the file header covers the random file id and the generation, and seeds the
  checksum of every frame header. A frame of another log, or of this log before a compaction,
  does not pass for one of ours, wherever its bytes turn up.
* A frame header names its own offset, so a log stored inside a value is never mistaken for
  frames of this log.
* A frame header carries the checksum of the frame before it, so frames left over from a tail
  that was cut off do not chain onto what was written in their place.
* The header checksum is verified before the length is believed.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from zlib import crc32

FILE_MAGIC: Final = b"\x89LSV\r\n\x1a\n"  # not text, and mangled by anything that treats it so
FORMAT_VERSION: Final = 1
ENCRYPTED: Final = 1  # a flag of the file header, and then of each of its frames
KNOWN_FLAGS: Final = ENCRYPTED

_FILE_HEADER: Final = struct.Struct("<8sHHI16sQ20s")  # the checksum follows
_CHECKSUM: Final = struct.Struct("<I")
FILE_HEADER_SIZE: Final = _FILE_HEADER.size + _CHECKSUM.size
assert FILE_HEADER_SIZE == 64  # pins the format

FRAME_MAGIC: Final = b"\xf5LSF"
_FRAME_HEADER: Final = struct.Struct("<4sBBHIIQQI")  # the header's own checksum follows
FRAME_HEADER_SIZE: Final = _FRAME_HEADER.size + _CHECKSUM.size
assert FRAME_HEADER_SIZE == 40  # pins the format

# Where the checksums stand that a frame header and the file header have of themselves.
CHECKSUM_AT: Final = _FRAME_HEADER.size
HEADER_CHECKSUM_AT: Final = _FILE_HEADER.size
CHECKSUM_SIZE: Final = _CHECKSUM.size

MAX_PAYLOAD: Final = 1 << 30  # believed before anything is allocated
MAX_KEY_CHECK: Final = 4096
LAST_GENERATION: Final = (1 << 64) - 1

_pack_frame_header = _FRAME_HEADER.pack
_unpack_frame_header = _FRAME_HEADER.unpack_from
_pack_checksum = _CHECKSUM.pack
_unpack_checksum = _CHECKSUM.unpack_from


class BadHeaderError(ValueError):
    """Raised when bytes are not the file header of a log; says why."""


class NewerFormatError(ValueError):
    """Raised when the header has a format version or flags that this code does not know."""


class FileHeader(NamedTuple):
    """The first bytes of a log. They never change while the file lives."""

    file_id: bytes
    generation: int = 0
    flags: int = 0
    key_check: bytes = b""

    @property
    def data_start(self) -> int:
        return FILE_HEADER_SIZE + len(self.key_check)

    def encode(self) -> bytes:
        fixed = _FILE_HEADER.pack(
            FILE_MAGIC,
            FORMAT_VERSION,
            self.flags,
            len(self.key_check),
            self.file_id,
            self.generation,
            bytes(20),
        )
        return fixed + _pack_checksum(crc32(self.key_check, crc32(fixed))) + self.key_check

    @property
    def seed(self) -> int:
        """What the checksums of this file's frame headers start from."""
        return int(_unpack_checksum(self.encode(), _FILE_HEADER.size)[0])

    @classmethod
    def decode(cls, data: bytes) -> FileHeader:
        """Parse the start of a file.

        Raises `BadHeaderError` for what is no log, `NewerFormatError` for a later version or
        flag, and plain `ValueError` for a log header that is damaged.
        """
        if not data.startswith(FILE_MAGIC):
            raise BadHeaderError("it does not start with the logsaver signature")
        if len(data) < FILE_HEADER_SIZE:
            raise ValueError("the file header is cut short")
        _, version, flags, key_check_size, file_id, generation, _ = _FILE_HEADER.unpack_from(data)
        if version > FORMAT_VERSION:
            raise NewerFormatError(f"format version {version}, this code knows {FORMAT_VERSION}")
        key_check = data[FILE_HEADER_SIZE : FILE_HEADER_SIZE + key_check_size]
        if key_check_size > MAX_KEY_CHECK or len(key_check) < key_check_size:
            raise ValueError("the file header is cut short")
        (checksum,) = _unpack_checksum(data, _FILE_HEADER.size)
        if checksum != crc32(key_check, crc32(data[: _FILE_HEADER.size])):
            raise ValueError("the checksum of the file header does not match")
        if flags & ~KNOWN_FLAGS:
            raise NewerFormatError(f"flags {flags:#x}, this code knows {KNOWN_FLAGS:#x}")
        return cls(file_id, generation, flags, key_check)


class Frame(NamedTuple):
    """One whole, verified frame, as it was found in a buffer."""

    kind: int
    flags: int
    offset: int
    size: int  # header and payload
    previous: int
    synced_upto: int
    checksum: int  # of the header, which covers the payload's
    payload: memoryview

    @property
    def end(self) -> int:
        return self.offset + self.size


class FrameHead(NamedTuple):
    """A frame header that passed its own checksum."""

    kind: int
    flags: int
    length: int
    previous: int
    synced_upto: int
    payload_checksum: int
    checksum: int


def encode_frame(
    kind: int,
    payload: bytes,
    offset: int,
    previous: int,
    synced_upto: int,
    seed: int,
    flags: int = 0,
) -> tuple[bytes, int]:
    """The bytes of a frame, and its checksum for the next frame's `previous`."""
    head = _pack_frame_header(
        FRAME_MAGIC, kind, flags, 0, len(payload), previous, offset, synced_upto, crc32(payload)
    )
    checksum = crc32(head, seed)
    return b"".join((head, _pack_checksum(checksum), payload)), checksum


def decode_head(buffer: bytes, at: int, *, offset: int, seed: int) -> FrameHead | None:
    """The frame header at `buffer[at:]`, or None if no header of this file stands there.

    `offset` is where `buffer[at]` lies in the file.
    """
    if len(buffer) - at < FRAME_HEADER_SIZE:
        return None
    magic, kind, flags, _, length, previous, own_offset, synced_upto, payload_checksum = (
        _unpack_frame_header(buffer, at)
    )
    if magic != FRAME_MAGIC or own_offset != offset:
        return None
    (checksum,) = _unpack_checksum(buffer, at + _FRAME_HEADER.size)
    if checksum != crc32(buffer[at : at + _FRAME_HEADER.size], seed) or length > MAX_PAYLOAD:
        return None
    return FrameHead(kind, flags, length, previous, synced_upto, payload_checksum, checksum)


def decode_frame(buffer: bytes, at: int, *, offset: int, seed: int) -> Frame | None:
    """The frame at `buffer[at:]`, or None if it is not there whole and unharmed."""
    head = decode_head(buffer, at, offset=offset, seed=seed)
    if head is None:
        return None
    start = at + FRAME_HEADER_SIZE
    payload = memoryview(buffer)[start : start + head.length]
    if len(payload) < head.length or crc32(payload) != head.payload_checksum:
        return None
    return Frame(
        head.kind,
        head.flags,
        offset,
        FRAME_HEADER_SIZE + head.length,
        head.previous,
        head.synced_upto,
        head.checksum,
        payload,
    )
