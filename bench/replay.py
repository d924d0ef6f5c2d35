"""Replaying a trace: on a saver, with a clock; or on a floor, which is the least it could cost."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import Any, NamedTuple

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from bench.recording import WRITING, Trace
from bench.savers import ASYNC_SAVERS, ENCRYPTED_SAVERS, SAVERS
from logsaver import LogSaver

SERDE = "floor: serde alone"
PWRITE = "floor: pwrite"
FDATASYNC = "floor: pwrite + fdatasync"
FLOORS = (SERDE, PWRITE, FDATASYNC)

# Where the files go. Not /dev/shm: an fdatasync there costs nothing.
DIRECTORY = os.environ.get("LOGSAVER_BENCH_DIR")

LATEST, BY_ID = "latest", "by id"
Times = dict[str, list[int]]


class Summary(NamedTuple):
    """Microseconds per call."""

    mean: float  # of the best round: what noise added is not the saver's
    minimum: float
    median: float
    p99: float
    # The mean over a trace's calls of each call's fastest go. For what waits for the disk: there
    # a wake-up can cost more than the sync, and no round is without. Not for savers that work in
    # the background: what that costs a call is random too, and would be left out.
    quiet: float


def summary(rounds: list[list[int]]) -> Summary:
    """`rounds` has the times of the same calls in the same order, again and again."""
    every = [time for round_ in rounds for time in round_]
    p99 = quantiles(every, n=100)[98] if len(every) > 1 else every[0]
    quiet = fmean(map(min, zip(*rounds, strict=True)))
    figures = min(map(fmean, rounds)), min(every), median(every), p99, quiet
    return Summary(*(nanoseconds / 1e3 for nanoseconds in figures))


@contextmanager
def directory() -> Iterator[Path]:
    with TemporaryDirectory(dir=DIRECTORY, prefix="logsaver-bench-") as name:
        yield Path(name)


def replay(saver: Any, trace: Trace) -> Times:
    """Make the calls of a trace; nanoseconds by method."""
    times: Times = {"put": [], "put_writes": [], "get_tuple": []}
    methods = {name: (getattr(saver, name), times[name].append) for name in times}
    for method, args in trace.calls:
        call, note = methods[method]
        start = perf_counter_ns()
        call(*args)
        note(perf_counter_ns() - start)
    return times


async def replay_async(saver: Any, trace: Trace) -> Times:
    times: Times = {"put": [], "put_writes": [], "get_tuple": []}
    for method, args in trace.calls:
        start = perf_counter_ns()
        await getattr(saver, f"a{method}")(*args)
        times[method].append(perf_counter_ns() - start)
    return times


def read_back(saver: Any, trace: Trace, limit: int = 2000) -> Times:
    """get_tuple of the latest checkpoint of every thread, and of each by its id."""
    latest = [{"configurable": {"thread_id": thread_id}} for thread_id in trace.thread_ids]
    repeats = max(1, 200 // len(latest))
    by_id = trace.addresses()[-limit:]
    return {
        LATEST: [_timed(saver.get_tuple, config) for config in latest * repeats],
        BY_ID: [_timed(saver.get_tuple, config) for config in by_id],
    }


def _timed(call: Callable[..., Any], *args: Any) -> int:
    start = perf_counter_ns()
    call(*args)
    return perf_counter_ns() - start


def one_round(name: str, trace: Trace) -> Times:
    """One saver or floor, on a new file, from the first call to the last."""
    gc.collect()
    with directory() as where:
        if name in FLOORS:
            return {"put": _floor(name, trace, where)}
        if name in ASYNC_SAVERS:
            return asyncio.run(_replayed_async(name, trace, where))
        opener = SAVERS.get(name) or ENCRYPTED_SAVERS[name]
        with opener(where) as saver:
            return {**replay(saver, trace), **read_back(saver, trace)}


async def _replayed_async(name: str, trace: Trace, where: Path) -> Times:
    async with ASYNC_SAVERS[name](where) as saver:
        return await replay_async(saver, trace)


def interleaved(trace: Trace, names: list[str], rounds: int) -> dict[str, list[Times]]:
    """Every saver in turn, again and again: a slow minute of the machine hits them all."""
    gc.collect()
    gc.freeze()  # the trace itself is no garbage to search through during the replays
    results: dict[str, list[Times]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            results[name].append(one_round(name, trace))
    return results


def writing(rounds: list[Times]) -> list[list[int]]:
    """put and put_writes together, per round; the same call has the same place in each."""
    return [[time for method in WRITING for time in times.get(method, [])] for times in rounds]


def fastest(actions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of the fastest of several goes at each action, in turn."""
    times: dict[str, float] = {}
    for _ in range(rounds):
        for name, action in actions.items():
            gc.collect()
            times[name] = min(times.get(name, float("inf")), _timed(action) / 1e9)
    return times


# -- what a replay leaves on the disk and takes in memory


class Cost(NamedTuple):
    disk: int
    memory: int


def cost(name: str, trace: Trace) -> Cost:
    """Bytes on disk after closing, and how far the process grew, in a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    # Forked, so that the child has the trace already and grows by what the saver takes only.
    child = multiprocessing.get_context("fork").Process(target=_cost, args=(name, trace, sender))
    child.start()
    sender.close()
    told: Cost = receiver.recv()
    child.join()
    return told


def _cost(name: str, trace: Trace, sender: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with directory() as where:
        if name in ASYNC_SAVERS:
            asyncio.run(_replayed_async(name, trace, where))
        else:
            with SAVERS[name](where) as saver:
                replay(saver, trace)
        disk = sum(file.stat().st_blocks * 512 for file in where.iterdir())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    sender.send(Cost(disk, grown * 1024))


# -- floors


def _floor(name: str, trace: Trace, where: Path) -> list[int]:
    if name == SERDE:
        return serde_alone(trace)
    with directory() as elsewhere:  # gone before the clock starts: a sync may take it along
        frames = frames_of(trace, elsewhere)
    return _raw(frames, where / "raw", sync=name == FDATASYNC)


def serde_alone(trace: Trace) -> list[int]:
    """Serializing what a call brought that is new, and nothing else."""
    return [
        _serializing(_new_values(args) if method == "put" else [value for _, value in args[1]])
        for method, args in trace.calls
        if method in WRITING
    ]


def channels_alone(trace: Trace) -> list[int]:
    """For each put, serializing the channels that changed; neither the rest nor the metadata."""
    return [_serializing(_changed(call.args)) for call in trace.puts()]


def _serializing(values: list[Any]) -> int:
    dumps = JsonPlusSerializer().dumps_typed
    start = perf_counter_ns()
    for value in values:
        dumps(value)
    return perf_counter_ns() - start


def _changed(put_args: tuple[Any, ...]) -> list[Any]:
    values, new_versions = put_args[1]["channel_values"], put_args[3]
    return [values[name] for name in new_versions if name in values]


def _new_values(put_args: tuple[Any, ...]) -> list[Any]:
    _, checkpoint, metadata, _ = put_args
    body = {key: value for key, value in checkpoint.items() if key != "channel_values"}
    return [body, metadata, *_changed(put_args)]


def frames_of(trace: Trace, where: Path) -> list[bytes]:
    """The bytes that each call of a trace adds to a log."""
    path = where / "frames.log"
    ends = []
    with LogSaver(path, fsync="never") as saver:
        ends.append(saver.stats().bytes)
        for method, args in trace.calls:
            if method in WRITING:
                getattr(saver, method)(*args)
                ends.append(saver.stats().bytes)
    content = path.read_bytes()
    return [content[start:end] for start, end in pairwise(ends)]


def _raw(frames: list[bytes], path: Path, *, sync: bool) -> list[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    offset, times = 0, []
    for frame in frames:
        start = perf_counter_ns()
        os.pwrite(file, frame, offset)
        if sync:
            os.fdatasync(file)
        times.append(perf_counter_ns() - start)
        offset += len(frame)
    os.close(file)
    return times
