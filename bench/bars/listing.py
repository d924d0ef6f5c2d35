"""list and threads, on logs with many of either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.bars import Bar, Scale
from bench.filling import fill, on_thread
from bench.replay import directory, fastest
from bench.savers import LOG_NEVER, SAVERS, SQLITE_OFF

Question = Callable[[Any], list[Any]]


def bars(scale: Scale) -> Iterator[Bar]:
    yield _faster_than_sqlite(
        "list one thread of 1,000, limit=10", 1, 1_000, _newest(on_thread(0)), 5, scale
    )
    yield _faster_than_sqlite(
        "list(None, limit=10) over 10,000 threads", 10_000, 1, _newest(None), 5, scale
    )
    yield _faster_than_sqlite(
        "list, filter that matches 1 in 100 of 10,000 (100 threads)", 100, 100, _rare, 3, scale
    )
    with directory() as where, SAVERS[LOG_NEVER](where) as saver:
        fill(saver, 10_000, 1)
        times = fastest({"threads": lambda: list(saver.threads())}, scale.rounds)
    yield Bar("threads() over 10,000 threads", times["threads"] * 1e3, 50, "ms")


def _newest(config: Any) -> Question:
    return lambda saver: list(saver.list(config, limit=10))


def _rare(saver: Any) -> list[Any]:
    return list(saver.list(None, filter={"rare": True}))


def _faster_than_sqlite(
    what: str, threads: int, each: int, ask: Question, limit: float, scale: Scale
) -> Bar:
    with (
        directory() as one,
        directory() as other,
        SAVERS[LOG_NEVER](one) as ours,
        SAVERS[SQLITE_OFF](other) as sqlite,
    ):
        for saver in (ours, sqlite):
            fill(saver, threads, each)
        assert len(ask(ours)) == len(ask(sqlite)) > 0, what
        times = fastest({"ours": lambda: ask(ours), "sqlite": lambda: ask(sqlite)}, scale.rounds)
    ratio = times["sqlite"] / times["ours"]
    return Bar(f"{what}, faster than SqliteSaver", ratio, limit, at_least=True)
