"""What a new value repeats of an old one, and how it is stored then."""

from __future__ import annotations

import random

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logsaver.patch import SHORTEST, runs
from logsaver.pieces import MOST_LEAVES, SMALLEST, Earlier, Value, clip, draft
from logsaver.value import OWN, USUAL_TYPE, Range, is_in_pieces, own_bytes, pieces_of


def message(number):
    return {"role": "user", "id": f"m{number:06}", "content": random.Random(number).randbytes(100)}


def messages(count, first=0):
    return [message(number) for number in range(first, first + count)]


def new_bytes(old, new):
    """How many bytes of `new` are not found in `old`, after checking that the rest is there."""
    old, new = ormsgpack.packb(old), ormsgpack.packb(new)
    covered = 0
    for run in runs(old, new):
        assert old[run.old : run.old + run.length] == new[run.new : run.new + run.length]
        covered += run.length
    return len(new) - covered


# -- what agents do to their state

ONE = len(ormsgpack.packb(message(0)))


@pytest.mark.parametrize("count", [1, 14, 15, 16, 17, 100, 65_534, 65_535, 65_536])
def test_a_list_that_grows_costs_what_is_new(count):
    """Also where the head of the array changes its size, at 16 and at 65,536 entries."""
    assert new_bytes(messages(count), messages(count + 1)) < ONE + SHORTEST


@pytest.mark.parametrize("count", [16, 17, 300])
def test_a_list_that_loses_its_oldest_entries_costs_next_to_nothing(count):
    assert new_bytes(messages(count), messages(count - 8, first=8)) < ONE


def test_an_entry_removed_from_the_middle_costs_next_to_nothing():
    old = messages(50)
    assert new_bytes(old, old[:20] + old[21:]) < ONE


def test_an_entry_changed_in_the_middle_costs_that_entry():
    old = messages(50)
    assert new_bytes(old, [*old[:20], message(1000), *old[21:]]) < 2 * ONE


def test_a_summary_in_place_of_the_oldest_messages_costs_the_summary():
    old = messages(50)
    assert new_bytes(old, [message(1000), *old[40:]]) < 2 * ONE


def test_one_key_changed_in_a_dict_costs_that_key():
    old = {f"key{number}": message(number) for number in range(40)}
    assert new_bytes(old, {**old, "key17": message(1000)}) < 2 * ONE


def test_a_long_string_that_grows_costs_what_is_new():
    old = random.Random(1).randbytes(70_000).hex()
    assert new_bytes(old[:65_000], old[:65_600]) < 600 + SHORTEST


def test_one_file_edited_among_many_costs_the_edit():
    lines = [f"line {number}: {random.Random(number).random()}\n" for number in range(400)]
    files = {f"src/{number}.py": "".join(lines[number:]) for number in range(20)}
    edited = "".join([*lines[5:200], "an inserted line\n", *lines[200:]])
    assert new_bytes(files, {**files, "src/5.py": edited}) < 200


def test_unrelated_bytes_have_nothing_in_common():
    one, other = random.Random(1).randbytes(10_000), random.Random(2).randbytes(10_000)
    assert runs(one, other) == []


@pytest.mark.parametrize(("old", "new"), [(b"", b""), (b"", b"x" * 99), (b"x" * 99, b"")])
def test_nothing_is_found_where_there_is_nothing(old, new):
    assert runs(old, new) == []


parts = st.lists(st.sampled_from([bytes(range(i, i + 60)) for i in range(8)]), max_size=12)


@given(parts, parts, st.binary(max_size=80))
def test_runs_are_equal_bytes_in_order_and_do_not_overlap(one, other, noise):
    old, new = b"".join(one), noise.join(other)
    position = 0
    for run in runs(old, new):
        assert run.new >= position
        assert run.length > 0
        assert old[run.old : run.old + run.length] == new[run.new : run.new + run.length]
        assert run.new + run.length <= len(new)
        position = run.new + run.length


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_the_work_does_not_grow_with_zeros_that_match_everywhere(size):
    """Repetitive bytes are the worst case of a search."""
    found = runs(bytes(size) + b"a" + bytes(size), bytes(size) + b"b" + bytes(size))
    assert len(found) <= 24


# -- how it is stored


class Values:
    """A log of values, each stored after the one before it, without a log."""

    def __init__(self):
        self.stored = {}
        self.last = []
        self.bytes = 0

    def put(self, data):
        drafted = draft(USUAL_TYPE, data, self.last)
        offset = 100 * (len(self.stored) + 1)
        self.stored[offset] = drafted.stored
        self.bytes += len(own_bytes(drafted.stored))
        value = drafted.value.settled(offset, 2)
        self.last = [Earlier(offset, 2, value)]
        assert self.read(offset, 0, len(data)) == data == value.data
        assert b"".join(self.read(at, *part) for at, _, *part in value.leaves) == data
        assert len(value.leaves) <= MOST_LEAVES
        return drafted

    def read(self, offset, start, length):
        """As a reader does: follow the pieces down."""
        stored = self.stored[offset]
        if not is_in_pieces(stored):
            return own_bytes(stored)[start : start + length]
        parts, position = [], 0
        for piece in pieces_of(stored[2]):
            low, high = max(start, position), min(start + length, position + piece.length)
            position += piece.length
            if low >= high:
                continue
            first = piece.start + low - (position - piece.length)
            if piece.offset == OWN:
                parts.append(stored[1][first : first + high - low])
            else:
                assert piece.offset < offset
                parts.append(self.read(piece.offset, first, high - low))
        return b"".join(parts)


def test_a_value_that_grows_a_thousand_times_is_stored_less_than_three_times_over():
    values, data = Values(), b""
    for number in range(1_000):
        data += random.Random(number).randbytes(150)
        values.put(data)
    assert values.bytes < 3 * len(data)


def test_a_small_value_is_stored_whole():
    values = Values()
    values.put(b"x" * 10)
    assert values.put(b"x" * 11).stored == b"x" * 11


def test_a_value_is_stored_whole_when_pieces_do_not_pay():
    values = Values()
    shared = random.Random(1).randbytes(100)
    values.put(shared + random.Random(2).randbytes(SMALLEST))
    drafted = values.put(shared + random.Random(3).randbytes(3 * SMALLEST))
    assert type(drafted.stored) is bytes


def test_the_same_value_again_is_one_piece():
    values = Values()
    data = random.Random(1).randbytes(1_000)
    values.put(data)
    assert values.put(data).stored == [USUAL_TYPE, b"", [100, 2, 0, 1_000]]


def test_what_one_earlier_value_does_not_have_is_looked_for_in_the_next():
    """What tasks have written since is what a channel becomes."""
    one, other = random.Random(1).randbytes(500), random.Random(2).randbytes(500)
    earlier = [
        Earlier(at, 0, Value(USUAL_TYPE, data, [Range(at, 0, 0, 500)], 0))
        for at, data in ((100, one), (200, other))
    ]
    drafted = draft(USUAL_TYPE, one + other, earlier)
    assert drafted.stored == [USUAL_TYPE, b"", [100, 0, 0, 500, 200, 0, 0, 500]]


def test_clipping_keeps_the_bytes_of_a_part():
    leaves = [Range(1, 0, 10, 5), Range(2, 0, 20, 5), Range(3, 0, 30, 5)]
    assert clip(leaves, 3, 9) == [Range(1, 0, 13, 2), Range(2, 0, 20, 5), Range(3, 0, 30, 2)]
    assert clip(leaves, 5, 5) == [Range(2, 0, 20, 5)]


edits = st.lists(
    st.tuples(
        st.sampled_from(["append", "insert", "remove", "replace", "repeat", "new"]),
        st.integers(0, 2**16),
        st.integers(1, 700),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(edits, st.integers(0, 99))
def test_any_row_of_edits_comes_back_byte_for_byte(row, seed):
    noise = random.Random(seed)
    values, data = Values(), noise.randbytes(600)
    values.put(data)
    for edit, place, size in row:
        at = place % (len(data) + 1)
        if edit == "append":
            data += noise.randbytes(size)
        elif edit == "insert":
            data = data[:at] + noise.randbytes(size) + data[at:]
        elif edit == "remove":
            data = data[:at] + data[at + size :]
        elif edit == "replace":
            data = data[:at] + noise.randbytes(size) + data[at + size :]
        elif edit == "repeat":
            data += data[at : at + size]
        else:
            data = noise.randbytes(size)
        values.put(data)
