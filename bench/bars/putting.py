"""put and put_writes against memory, SQLite and the floors."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from bench.bars import Bar, Scale
from bench.recording import Trace
from bench.replay import (
    FDATASYNC,
    channels_alone,
    interleaved,
    one_round,
    summary,
    writing,
)
from bench.savers import LOG_ASYNC, LOG_SYNC, MEMORY, SQLITE, SQLITE_OFF
from bench.traces import RUNS, trace

# What is not the disk's part in a sync-mode put is small: a ratio below is noise.
ABOVE_THE_FLOOR = (0.95, inf)


def means(of: Trace, names: list[str], rounds: int) -> dict[str, float]:
    """Microseconds per put or put_writes, of each saver's best round."""
    results = interleaved(of, names, rounds)
    return {name: summary(writing(found)).mean for name, found in results.items()}


def sync_means(of: Trace, names: list[str], rounds: int) -> dict[str, float]:
    """The same for savers that wait for the disk in every call."""
    results = interleaved(of, names, rounds)
    return {name: summary(writing(found)).quiet for name, found in results.items()}


def bars(scale: Scale) -> Iterator[Bar]:
    times = means(trace("small"), [MEMORY, SQLITE_OFF, LOG_ASYNC], scale.rounds)
    over_memory = times[LOG_ASYNC] / times[MEMORY]
    faster = times[SQLITE_OFF] / times[LOG_ASYNC]
    what = "put, async mode, small trace"
    yield Bar(f"{what}, to InMemorySaver", over_memory, 2)
    yield Bar(f"{what}, to InMemorySaver, file shared", over_memory, 2.5)
    yield Bar(f"{what}, faster than SqliteSaver synchronous=OFF", faster, 5, at_least=True)
    yield _over_serializing(trace("chat"), scale.rounds)

    times = means(trace("document"), [SQLITE, LOG_ASYNC], scale.rounds)
    faster = times[SQLITE] / times[LOG_ASYNC]
    what = "put, async mode, document trace, faster than SqliteSaver"
    yield Bar(what, faster, 50, at_least=True)

    times = sync_means(trace("small"), [LOG_SYNC, FDATASYNC], scale.rounds)
    over_floor = times[LOG_SYNC] / times[FDATASYNC]
    what = "put, sync mode, small trace, to pwrite + fdatasync"
    yield Bar(what, over_floor, 1.3, possible=ABOVE_THE_FLOOR)
    for name in RUNS:
        times = sync_means(trace(name), [SQLITE, LOG_SYNC], scale.rounds)
        what = f"put, sync mode, {name} trace, faster than SqliteSaver"
        yield Bar(what, times[SQLITE] / times[LOG_SYNC], 1, at_least=True)


def _over_serializing(of: Trace, rounds: int) -> Bar:
    """put only, and next to nothing but the changed channels: in turn, like the savers."""
    puts, floor = [], []
    for _ in range(rounds):
        puts.append(one_round(LOG_ASYNC, of)["put"])
        floor.append(channels_alone(of))
    ratio = summary(puts).mean / summary(floor).mean
    return Bar(f"put, async mode, {of.name} trace, to serializing its channels", ratio, 1.15)
