"""Many threads that wait for the disk, and many coroutines in one loop."""

from __future__ import annotations

import asyncio
import resource
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter_ns, thread_time_ns
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bench.bars import Bar, Scale
from bench.filling import fill
from bench.replay import directory, fastest
from bench.traces import on_thread, three_steps
from logsaver import LogSaver

THREADS, PUTS_EACH = 16, 60
RUNS = 200


def bars(scale: Scale) -> Iterator[Bar]:
    yield _threads(scale)
    yield from _coroutines(scale)


# -- threads


def _threads(scale: Scale) -> Bar:
    with directory() as where:
        saver = LogSaver(where / "agent.log", fsync="always")
        with saver, ThreadPoolExecutor(THREADS) as pool:
            times = fastest(
                {
                    "one": lambda: fill(saver, 1, PUTS_EACH),
                    "all": lambda: list(
                        pool.map(lambda own: fill(saver, 1, PUTS_EACH, first=own), range(THREADS))
                    ),
                },
                scale.rounds,
            )
    ratio = THREADS * times["one"] / times["all"]
    what = f"{THREADS} threads putting in sync mode, throughput of one"
    # A sync serves each of them once at most.
    return Bar(what, ratio, 4, at_least=True, possible=(0, THREADS))


# -- coroutines


class Watched(LogSaver):
    """Notes how long each stretch of its coroutines kept the loop from running anything else."""

    def __init__(self, path: Any, held: Callable[[int], None]) -> None:
        super().__init__(path)
        self._held = held

    async def aget_tuple(self, config: Any) -> Any:
        return await _watch(super().aget_tuple(config), self._held)

    async def aput(self, *args: Any) -> Any:
        return await _watch(super().aput(*args), self._held)

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        await _watch(super().aput_writes(*args, **kwargs), self._held)


@types.coroutine
def _watch(
    coroutine: Coroutine[Any, Any, Any], held: Callable[[int], None]
) -> Generator[Any, None, Any]:
    while True:
        start, worked, pushed_out = perf_counter_ns(), thread_time_ns(), _pushed_out()
        try:
            awaited = coroutine.send(None)
        except StopIteration as done:
            return done.value
        finally:
            # Waiting for a lock or the disk is the saver's doing. Losing the processor to
            # another process is not: then only what it worked itself counts.
            was_alone = _pushed_out() == pushed_out
            held(perf_counter_ns() - start if was_alone else thread_time_ns() - worked)
        yield awaited


def _pushed_out() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


async def _invoke_all(saver: Any) -> int:
    graph = three_steps().compile(saver)
    start = perf_counter_ns()
    await asyncio.gather(
        *(
            graph.ainvoke({"question": "why?", "notes": []}, on_thread(f"thread-{number}"))
            for number in range(RUNS)
        )
    )
    return perf_counter_ns() - start


async def _in_memory() -> int:
    return await _invoke_all(InMemorySaver())


async def _in_log(kind: Callable[[Any], Any]) -> int:
    with directory() as where:
        async with kind(where / "agent.log") as saver:
            return await _invoke_all(saver)


async def _in_sqlite() -> int:
    with directory() as where:
        async with AsyncSqliteSaver.from_conn_string(str(where / "agent.db")) as saver:
            return await _invoke_all(saver)


def _coroutines(scale: Scale) -> Iterator[Bar]:
    held: list[int] = []
    kinds = {
        "memory": _in_memory,
        "log": lambda: _in_log(LogSaver),
        "sqlite": _in_sqlite,
        "watched": lambda: _in_log(lambda path: Watched(path, held.append)),
    }
    times: dict[str, list[int]] = {name: [] for name in kinds}
    for _ in range(scale.rounds):
        for name, invoke_all in kinds.items():
            times[name].append(asyncio.run(invoke_all()))
    memory, log, sqlite = (min(times[name]) for name in ("memory", "log", "sqlite"))
    what = f"{RUNS} concurrent ainvoke of a three-step graph"
    yield Bar(
        f"{what}, to InMemorySaver (AsyncSqliteSaver: {sqlite / memory:.1f})", log / memory, 1.3
    )
    yield Bar(f"{what}, longest the saver held the loop", max(held) / 1e6, 10, "ms")
