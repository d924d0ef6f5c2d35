"""Values in pieces, as they are read from a log that may say anything."""

from __future__ import annotations

import tracemalloc

import pytest
from logs import build_log

from logsaver import CorruptLogError
from logsaver.disk import DISK
from logsaver.log import Log
from logsaver.logfile import LogFile
from logsaver.record import CheckpointRecord, WritesRecord
from logsaver.recovery import read_header
from logsaver.value import USUAL_TYPE
from logsaver.values import CHANNELS_FROM, value_at

FIRST = 64  # where the first frame of a log is
X = CHANNELS_FROM  # the number of the first channel
DATA = bytes(range(200))


def a_checkpoint(**channels):
    return CheckpointRecord("t", "", "c", None, 0, b"", b"body", b"meta", channels)


@pytest.fixture
def log_of(tmp_path):
    """Opens a log of these records; each may depend on where the ones before it are."""

    def make(*makers):
        records, offsets = [], []
        for maker in makers:
            records.append(maker(offsets) if callable(maker) else maker)
            offsets = [*build_log(records).offsets, len(build_log(records).data)]
        built = build_log(records)
        path = tmp_path / "agent.log"
        path.write_bytes(built.data)
        file = LogFile.open(DISK, str(path), read_only=True)
        return Log(file, read_header(file)), built.offsets

    return make


def pieced(own, *numbers):
    return [USUAL_TYPE, own, list(numbers)]


def test_a_value_is_put_together_from_other_values_and_its_own_bytes(log_of):
    log, (_, second) = log_of(
        a_checkpoint(x=DATA), a_checkpoint(x=pieced(b"new", FIRST, X, 10, 50, -3, FIRST, X, 0, 5))
    )
    assert value_at(log, second, X).data == DATA[10:60] + b"new" + DATA[:5]


def test_a_piece_may_be_of_the_metadata_or_of_a_write(log_of):
    writes = WritesRecord("t", "", "c", "task", "", [(0, "a", b"none"), (1, "b", DATA)])
    log, offsets = log_of(
        a_checkpoint(),
        writes,
        lambda at: a_checkpoint(x=pieced(b"", FIRST, 1, 0, 4, at[1], 1, 7, 9)),
    )
    assert value_at(log, offsets[-1], X).data == b"meta" + DATA[7:16]


def test_pieces_of_pieces_are_followed(log_of):
    log, offsets = log_of(
        a_checkpoint(x=DATA),
        a_checkpoint(x=pieced(b"abc", -1, FIRST, X, 100, 50, -2)),
        lambda at: a_checkpoint(x=pieced(b"", at[1], X, 0, 2, at[1], X, 50, 3)),
    )
    found = value_at(log, offsets[-1], X)
    assert found.data == b"a" + DATA[100:101] + DATA[149:150] + b"bc"
    assert found.depth == 2


BAD = {
    "itself": lambda at: pieced(b"", at[-1], X, 0, 5),
    "what comes later": lambda at: pieced(b"", at[-1] + 1000, X, 0, 5),
    "no frame": lambda at: pieced(b"", FIRST + 1, X, 0, 5),
    "the header of the file": lambda at: pieced(b"", 0, X, 0, 5),
    "a number that is not there": lambda at: pieced(b"", FIRST, 99, 0, 5),
    "bytes behind the end of a value": lambda at: pieced(b"", FIRST, X, 190, 50),
    "own bytes that are not there": lambda at: pieced(b"abc", -4),
    "a length of nothing": lambda at: pieced(b"", FIRST, X, 0, 0),
    "a negative start": lambda at: pieced(b"", FIRST, X, -1, 5),
    "a piece cut short": lambda at: pieced(b"", FIRST, X, 0),
    "more than a frame can hold": lambda at: pieced(b"", *[FIRST, X, 0, 200] * 1, -(2**40)),
    "a value that is shared": lambda at: pieced(b"", FIRST, X + 1, 0, 5),
}


@pytest.mark.parametrize("name", BAD)
def test_pieces_that_lead_nowhere_are_damage(log_of, name):
    # `y` is shared with a frame before the first: nothing may follow it.
    log, offsets = log_of(a_checkpoint(x=DATA, y=FIRST), lambda at: a_checkpoint(x=BAD[name](at)))
    with pytest.raises(CorruptLogError):
        value_at(log, offsets[-1], X)


def test_much_made_of_little_is_refused_in_little_memory(log_of):
    """Each value is 100 times the one before it: 200 bytes claim to be 2 terabytes."""
    bomb = [a_checkpoint(x=DATA)]
    size = len(DATA)
    for _ in range(5):
        bomb.append(lambda at, size=size: a_checkpoint(x=pieced(b"", *[at[-2], X, 0, size] * 100)))
        size *= 100
    log, offsets = log_of(*bomb)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptLogError):
            value_at(log, offsets[-1], X)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_long_chain_of_values_is_refused(log_of):
    chain = [a_checkpoint(x=DATA)]
    chain += [lambda at: a_checkpoint(x=pieced(b"", at[-2], X, 0, 200))] * 150
    log, offsets = log_of(*chain)
    assert value_at(log, offsets[50], X).data == DATA
    log.values.clear()
    with pytest.raises(CorruptLogError, match="too many others"):
        value_at(log, offsets[-1], X)
