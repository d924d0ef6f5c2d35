"""Compaction: how fast it is, and what it costs those who put meanwhile.

They put about a thousand times a second, which is more than agents do. Somebody who does nothing
but put shares the processor with the compaction, which then takes what it needs to get done.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from time import perf_counter, perf_counter_ns, sleep
from typing import Any

from bench.bars import Bar, Scale
from bench.filling import on_thread
from bench.replay import directory
from logsaver import LogSaver

LIVE, DEAD = 4_000, 4_000
VALUE = 10_000  # bytes
PUTS = 2_000
GAP = 0.5e-3  # seconds between two puts


def bars(scale: Scale) -> Iterator[Bar]:
    rates = []
    for _ in range(min(scale.rounds, 3)):
        with _half_dead() as (saver, _):
            start = perf_counter()
            saved = saver.compact()
            rates.append(saved.bytes_after / (perf_counter() - start) / 1e6)
    yield Bar("compaction, 10 kB values, of live data", max(rates), 60, "MB/s", at_least=True)
    alone, beside, longest = [], [], []
    for _ in range(min(scale.rounds, 3)):
        with _half_dead() as (saver, _):
            alone.append(_p99(_times(saver, lambda done: done >= PUTS)))
            times = _while_compacting(saver)
            beside.append(_p99(times))
            longest.append(max(times) / 1e6)
    what = "put, async mode, beside a compaction"
    yield Bar(f"{what}, p99 to that without", min(beside) / min(alone), 3)
    yield Bar(f"{what}, the longest", min(longest), 10, "ms")


@contextmanager
def _half_dead() -> Iterator[tuple[LogSaver, Path]]:
    with directory() as where:
        path = where / "agent.log"
        with LogSaver(path, fsync="never", auto_compact=False) as saver:
            for number in range(LIVE + DEAD):
                _put(saver, f"thread-{number % 2}-{number // 100}", number)
            dead = [info.thread_id for info in saver.threads("thread-1")]
            saver.prune(dead, strategy="delete")
            yield saver, path


def _put(saver: Any, thread_id: str, number: int) -> None:
    value = random.Random(number).randbytes(VALUE)
    checkpoint = {
        "v": 4,
        "id": f"{number:08}",
        "ts": "2026-01-02T03:04:05+00:00",
        "channel_values": {"document": value},
        "channel_versions": {"document": number},
        "versions_seen": {},
    }
    config: dict[str, Any] = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    saver.put(config, checkpoint, {"step": number}, {"document": number})


def _while_compacting(saver: LogSaver) -> list[int]:
    compacting = threading.Thread(target=saver.compact)
    compacting.start()
    try:
        return _times(saver, lambda _: not compacting.is_alive())
    finally:
        compacting.join()


def _times(saver: LogSaver, is_enough: Callable[[int], bool]) -> list[int]:
    """Nanoseconds per put, as a graph that runs in async mode makes them."""
    times: list[int] = []
    config: dict[str, Any] = on_thread(0)
    config["configurable"] |= {"checkpoint_ns": "", "__pregel_durability": "async"}
    while not is_enough(len(times)):
        checkpoint = {
            "v": 4,
            "id": f"{perf_counter_ns():020}",
            "ts": "2026-01-02T03:04:05+00:00",
            "channel_values": {"note": len(times)},
            "channel_versions": {"note": len(times)},
            "versions_seen": {},
        }
        start = perf_counter_ns()
        saver.put(config, checkpoint, {"step": len(times)}, {"note": len(times)})
        times.append(perf_counter_ns() - start)
        sleep(GAP)
    return times


def _p99(times: list[int]) -> float:
    return quantiles(times, n=100)[98]
