"""Files from others: whatever is in them, reading one ends soon, in an error or with an answer."""

from __future__ import annotations

import logging
import time
import tracemalloc

import pytest
from hostile import BUILDERS, CORPUS, mended, survive
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spoiling import LOGS

SECONDS = 20  # on a machine that has other things to do; a tenth of that is usual
MEGABYTES = 64
FILES = sorted(CORPUS.glob("*.log"))


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Each is worth a warning or ten elsewhere."""
    caplog.set_level(logging.CRITICAL, logger="logsaver")
    caplog.set_level(logging.CRITICAL, logger="langgraph")


def survived(data: bytes) -> set[str]:
    """Within bounds."""
    tracemalloc.start()
    start = time.monotonic()
    try:
        errors = survive(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.monotonic() - start < SECONDS
    assert peak < MEGABYTES << 20
    return errors


def test_the_corpus_is_what_the_builders_make():
    assert {file.stem: file.read_bytes() for file in FILES} == {
        name: build() for name, build in BUILDERS.items()
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_hostile_log_does_no_harm(file):
    survived(file.read_bytes())


@pytest.mark.parametrize(
    "name",
    [
        "pieces-of-itself",
        "pieces-of-a-later-one",
        "pieces-of-nowhere",
        "pieces-that-double",
        "pieces-too-long",
        "pieces-in-a-deep-chain",
        "shared-with-itself",
        "shared-in-a-circle",
        "shared-far-away",
        "deep-payload",
        "array-that-claims-four-billion",
        "extension-in-a-record",
    ],
)
def test_a_reference_or_length_that_cannot_be_is_damage(name):
    assert "CorruptLogError" in survived(BUILDERS[name]())


whole_log = st.sampled_from([log.data for log in LOGS.values()])


@st.composite
def mutated(draw):
    """A real log with some bytes changed, put in and left out, and good checksums again."""
    data = bytearray(draw(whole_log))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(64, len(data) - 1))
        how = draw(st.sampled_from(["change", "insert", "leave out", "repeat"]))
        if how == "change":
            data[at] = draw(st.sampled_from([0, 0x7F, 0x80, 0xC0, 0xC4, 0xC6, 0xD3, 0xDD, 0xFF]))
        elif how == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=12))
        elif how == "leave out":
            del data[at : at + draw(st.integers(1, 40))]
        else:
            data[at:at] = data[at : at + draw(st.integers(1, 200))]
        if len(data) < 66:
            break
    return bytes(data)


@settings(max_examples=40, suppress_health_check=[*HealthCheck])
@given(mutated())
def test_a_changed_log_does_no_harm(data):
    survive(data)
    survive(mended(data))


@settings(max_examples=40, suppress_health_check=[*HealthCheck])
@given(st.lists(st.tuples(st.integers(1, 9), st.binary(max_size=80)), max_size=5))
def test_arbitrary_payloads_do_no_harm(payloads):
    from logs import build_log_of_payloads

    survive(build_log_of_payloads(payloads, synced=True).data)


@pytest.mark.deep
@pytest.mark.timeout(0)
@settings(max_examples=100_000, suppress_health_check=[*HealthCheck], deadline=None)
@given(mutated())
def test_many_changed_logs_do_no_harm(data):
    survive(data)
    survive(mended(data))
