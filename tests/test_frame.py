"""The file header and the frames: round trips, and everything that must not pass for one."""

import struct
from zlib import crc32

import pytest
from disks import PATH, MemoryDisk
from hypothesis import example, given
from hypothesis import strategies as st
from logs import HEADER, OTHER_HEADER, build_log, checkpoint, flipped, holds, log_of_payload

from logsaver import CorruptLogError, NotALogError, UnsupportedFormatError, repair, verify
from logsaver.frame import (
    FILE_HEADER_SIZE,
    FILE_MAGIC,
    FORMAT_VERSION,
    FRAME_HEADER_SIZE,
    FRAME_MAGIC,
    MAX_KEY_CHECK,
    MAX_PAYLOAD,
    BadHeaderError,
    FileHeader,
    NewerFormatError,
    decode_frame,
    decode_head,
    encode_frame,
)
from logsaver.logfile import LogFile
from logsaver.record import encode
from logsaver.recovery import CHUNK, frames, search_heads
from logsaver.store import Store

SEED = HEADER.seed
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
HEADERS = st.builds(
    FileHeader,
    file_id=st.binary(min_size=16, max_size=16),
    generation=U64,
    flags=st.just(0),
    key_check=st.binary(max_size=100),
)


def frame_at(offset, payload=b"payload", *, kind=1, previous=7, synced_upto=64, seed=SEED):
    return encode_frame(
        kind, payload, offset=offset, previous=previous, synced_upto=synced_upto, seed=seed
    )[0]


def raw_frame(*, kind=1, flags=0, reserved=0, length=None, offset=64, payload=b"x"):
    """A frame packed by hand: with a good checksum, whatever its fields say."""
    head = struct.pack(
        "<4sBBHIIQQI",
        FRAME_MAGIC,
        kind,
        flags,
        reserved,
        len(payload) if length is None else length,
        SEED,
        offset,
        64,
        crc32(payload),
    )
    return head + struct.pack("<I", crc32(head, SEED)) + payload


def open_bytes(data, *, read_only=False):
    return Store(PATH, read_only=read_only, disk=MemoryDisk({PATH: data}))


# -- the file header


@given(HEADERS)
def test_a_file_header_comes_back_as_it_was(header):
    data = header.encode()
    assert len(data) == header.data_start == FILE_HEADER_SIZE + len(header.key_check)
    assert FileHeader.decode(data + b"frames follow") == header


@given(HEADERS, st.data())
def test_any_bit_flip_in_a_file_header_is_noticed(header, data):
    encoded = header.encode()
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    with pytest.raises(ValueError):
        FileHeader.decode(flipped(encoded, bit))


@given(HEADERS, st.data())
def test_a_file_header_that_is_cut_short_is_noticed(header, data):
    encoded = header.encode()
    with pytest.raises(ValueError):
        FileHeader.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.binary(max_size=200))
def test_bytes_without_the_signature_are_no_log(data):
    if not data.startswith(FILE_MAGIC):
        with pytest.raises(BadHeaderError):
            FileHeader.decode(data)


@given(HEADERS, HEADERS)
def test_file_id_and_generation_both_reach_the_seed(one, other):
    if one != other:
        # Not certain for any two headers, but a collision has odds of 1 to 2**32.
        assert one.seed != other.seed


def test_the_seed_is_the_checksum_that_ends_the_fixed_header():
    header = FileHeader(bytes(16), generation=3, key_check=b"check")
    assert header.seed == int.from_bytes(header.encode()[60:64], "little")


def test_a_newer_format_version_is_told_apart_from_damage():
    data = bytearray(HEADER.encode())
    data[8:10] = (FORMAT_VERSION + 1).to_bytes(2, "little")
    with pytest.raises(NewerFormatError, match="2"):
        FileHeader.decode(bytes(data))
    with pytest.raises(UnsupportedFormatError, match="upgrade") as caught:
        open_bytes(bytes(data))
    assert caught.value.path == PATH


def test_a_key_check_longer_than_allowed_is_refused():
    longest = FileHeader(bytes(16), key_check=bytes(MAX_KEY_CHECK))
    assert FileHeader.decode(longest.encode()) == longest
    header = FileHeader(bytes(16), key_check=bytes(MAX_KEY_CHECK + 1))
    with pytest.raises(ValueError, match="cut short"):
        FileHeader.decode(header.encode())


@pytest.mark.parametrize("read_only", [False, True])
def test_a_damaged_file_header_is_an_error_at_byte_0(read_only):
    data = flipped(HEADER.encode(), 30 * 8)
    with pytest.raises(CorruptLogError) as caught:
        open_bytes(data, read_only=read_only)
    assert (caught.value.path, caught.value.offset) == (PATH, 0)


def test_a_flipped_signature_is_no_log():
    with pytest.raises(NotALogError):
        open_bytes(flipped(HEADER.encode(), 3))


@pytest.mark.parametrize("flags", [2, 3, 0x8000])
def test_file_flags_that_this_version_does_not_know_are_refused_as_newer(flags):
    """A flag changes what the frames mean; to ignore it is to misread them or to mix in others."""
    disk = MemoryDisk({PATH: FileHeader(bytes(16), flags=flags).encode()})
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        Store(PATH, disk=disk)


# -- one frame


@given(
    kind=st.integers(0, 255),
    payload=st.binary(max_size=300),
    offset=U64,
    previous=U32,
    synced_upto=U64,
    header=HEADERS,
    before=st.binary(max_size=50),
    after=st.binary(max_size=50),
)
def test_a_frame_comes_back_as_it_was(
    kind, payload, offset, previous, synced_upto, header, before, after
):
    data, checksum = encode_frame(
        kind,
        payload,
        offset=offset,
        previous=previous,
        synced_upto=synced_upto,
        seed=header.seed,
    )
    found = decode_frame(before + data + after, len(before), offset=offset, seed=header.seed)
    assert found is not None
    assert bytes(found.payload) == payload
    assert found[:7] == (kind, 0, offset, len(data), previous, synced_upto, checksum)
    assert found.end == offset + FRAME_HEADER_SIZE + len(payload)


@given(payload=st.binary(max_size=200), offset=U64, data=st.data())
def test_any_single_bit_flip_in_a_frame_is_noticed(payload, offset, data):
    whole = frame_at(offset, payload)
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    assert decode_frame(flipped(whole, bit), 0, offset=offset, seed=SEED) is None


def test_every_single_bit_flip_in_one_frame_is_noticed():
    whole = frame_at(64, b"a payload of thirty-two bytes..")
    for bit in range(len(whole) * 8):
        assert decode_frame(flipped(whole, bit), 0, offset=64, seed=SEED) is None, bit


@given(payload=st.binary(max_size=200), data=st.data())
def test_a_frame_that_is_cut_short_is_noticed(payload, data):
    whole = frame_at(64, payload)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert decode_frame(whole[:cut], 0, offset=64, seed=SEED) is None


@given(st.binary(max_size=200))
@example(FRAME_MAGIC + bytes(36))
@example(bytes(40))
@example(b"\xff" * 40)
def test_arbitrary_bytes_are_no_frame(data):
    assert decode_frame(data, 0, offset=64, seed=SEED) is None


@given(one=HEADERS, other=HEADERS, payload=st.binary(max_size=50))
def test_a_frame_of_another_file_is_refused(one, other, payload):
    if one.seed != other.seed:
        data = frame_at(64, payload, seed=one.seed)
        assert decode_frame(data, 0, offset=64, seed=other.seed) is None


@given(file_id=st.binary(min_size=16, max_size=16), generation=st.integers(0, 2**32))
def test_a_frame_of_another_generation_is_refused(file_id, generation):
    before, after = FileHeader(file_id, generation), FileHeader(file_id, generation + 1)
    data = frame_at(64, seed=before.seed)
    assert decode_frame(data, 0, offset=64, seed=before.seed) is not None
    assert decode_frame(data, 0, offset=64, seed=after.seed) is None


@given(wrote=U64, found=U64)
def test_a_frame_at_another_offset_is_refused(wrote, found):
    data = frame_at(wrote)
    assert (decode_frame(data, 0, offset=found, seed=SEED) is None) == (wrote != found)


def test_a_length_above_the_cap_is_refused_before_anything_is_allocated():
    largest = raw_frame(length=MAX_PAYLOAD)
    assert decode_head(largest, 0, offset=64, seed=SEED).length == MAX_PAYLOAD
    assert decode_frame(largest, 0, offset=64, seed=SEED) is None  # its payload is not there
    assert decode_head(raw_frame(length=MAX_PAYLOAD + 1), 0, offset=64, seed=SEED) is None


def test_a_length_that_lies_is_never_asked_of_the_disk():
    """A header may be whole and its payload lost: the length is a claim, not a size to read."""
    data = HEADER.encode() + raw_frame(length=MAX_PAYLOAD, payload=b"short")
    asked = []

    class Asked(MemoryDisk):
        def pread(self, fd, size, at):
            asked.append(size)
            return super().pread(fd, size, at)

    Store(PATH, read_only=True, disk=Asked({PATH: data})).close()
    assert max(asked) <= CHUNK + FRAME_HEADER_SIZE


# -- frames in a log


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("flags", [2, 3, 0x80, 0xFF])
def test_frame_flags_that_this_version_does_not_know_are_refused_as_newer(flags, read_only):
    data = HEADER.encode() + raw_frame(flags=flags)
    disk = MemoryDisk({PATH: data})
    with pytest.raises(UnsupportedFormatError, match=r"byte 64 .*upgrade logsaver") as caught:
        Store(PATH, read_only=read_only, disk=disk)
    assert caught.value.path == PATH
    assert disk.content() == data


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", [0, 11, 255])
def test_a_frame_kind_that_this_version_does_not_know_is_refused_as_newer(kind, read_only):
    data, offsets = log_of_payload(kind, b"\x90")
    disk = MemoryDisk({PATH: data})
    with pytest.raises(UnsupportedFormatError, match=rf"byte {offsets[1]}.*upgrade logsaver"):
        Store(PATH, read_only=read_only, disk=disk)
    assert disk.content() == data


@pytest.mark.parametrize("newer", ["flags", "kind"])
def test_repair_does_not_take_a_newer_frame_for_one_it_knows(tmp_path, newer):
    """Under a flag of a later version, bytes that decode by chance do not mean what they say."""
    log = tmp_path / "agent.log"
    payload = encode(checkpoint())[1]
    log.write_bytes(HEADER.encode() + raw_frame(payload=payload, **{newer: 9}))
    try:
        report = repair(log, tmp_path / "repaired.log")
    except UnsupportedFormatError:
        return
    assert report.records == 0
    assert report.lost
    assert not verify(log).ok


def test_a_frame_whose_predecessor_is_another_one_is_not_chained():
    """A stale frame left over from a tail that was cut off, behind a new one of equal length."""
    old = build_log([checkpoint("c1"), checkpoint("c2"), checkpoint("c3")])
    new = build_log([checkpoint("c1"), checkpoint("cX")])
    mixed = new.data + old.data[old.offsets[2] :]
    assert len(mixed) == len(old.data)
    store = open_bytes(mixed)
    assert holds(store)["t/"]["ids"] == ["c1", "cX"]
    assert store.size() == len(new.data)


def inner_log(header):
    return build_log([checkpoint(f"c{n}") for n in range(4)], synced=True, header=header).data


@given(
    header=st.sampled_from([HEADER, OTHER_HEADER]),
    pad=st.integers(0, 80),
    harm=st.booleans(),
)
def test_a_log_stored_inside_a_value_is_never_mistaken_for_frames(header, pad, harm):
    """Not even a copy of the very same log, and not when the frame around it is damaged."""
    value = bytes(pad) + inner_log(header)
    outer = build_log(
        [
            checkpoint("c1"),
            checkpoint("c2")._replace(channels={"file": value}),
            checkpoint("c3"),
        ]
    )
    data = outer.data
    if harm:
        data = flipped(data, outer.offsets[1] * 8 + 8)
    file = LogFile.open(MemoryDisk({PATH: data}), PATH, read_only=True)
    found = [one.offset for one in search_heads(file, seed=SEED, start=HEADER.data_start)]
    assert found == [offset for n, offset in enumerate(outer.offsets) if not (harm and n == 1)]
    # Were an inner frame believed, its watermark would make this an error.
    store = open_bytes(data)
    assert holds(store)["t/"]["ids"] == (["c1"] if harm else ["c1", "c2", "c3"])


@pytest.mark.parametrize("shift", [-41, -40, -39, -5, -4, -3, -1, 0, 1])
def test_a_header_across_the_edge_of_a_read_is_found(shift):
    """Searching reads in pieces; a header may lie on both sides of where one ends."""
    junk = b"\x01" * (CHUNK + shift)
    start = HEADER.data_start
    data = HEADER.encode() + junk + frame_at(start + len(junk))
    file = LogFile.open(MemoryDisk({PATH: data}), PATH, read_only=True)
    found = [one.offset for one in search_heads(file, seed=SEED, start=start)]
    assert found == [start + len(junk)]


@pytest.mark.parametrize("size", [CHUNK - 40, CHUNK - 39, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_frames_larger_than_a_piece_are_read_whole(size):
    records = [
        checkpoint("c1"),
        checkpoint("c2")._replace(channels={"x": b"v" * size}),
        checkpoint("c3"),
    ]
    data, offsets = build_log(records)
    file = LogFile.open(MemoryDisk({PATH: data}), PATH, read_only=True)
    found = frames(file, seed=SEED, start=HEADER.data_start, previous=SEED)
    assert [frame.offset for frame in found] == offsets


def test_a_file_that_reads_in_short_pieces_is_read_whole():
    class Short(MemoryDisk):
        def pread(self, fd, size, at):
            return super().pread(fd, min(size, 7), at)

    data, _ = build_log([checkpoint(f"c{n}") for n in range(5)])
    store = Store(PATH, read_only=True, disk=Short({PATH: data}))
    assert holds(store)["t/"]["ids"] == [f"c{n}" for n in range(5)]
