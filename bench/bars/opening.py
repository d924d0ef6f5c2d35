"""Opening a log that is there, and what it takes in memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.bars import Bar, Scale
from bench.filling import fill, on_thread
from bench.replay import directory, fastest
from bench.savers import LOG_NEVER, SAVERS, SQLITE_OFF
from logsaver import LogSaver

THREADS, EACH = 2_000, 50

MEMORY_AFTER_OPEN = """
import resource, sys, time
from pathlib import Path
from logsaver import LogSaver

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

before, start = resident(), time.perf_counter()
saver = LogSaver(sys.argv[1])
seconds = time.perf_counter() - start
print(seconds, resident() - before)
"""


def bars(scale: Scale) -> Iterator[Bar]:
    yield from _open_and_get(scale)
    if scale.deep:
        yield from _a_million()


def _open_and_get(scale: Scale) -> Iterator[Bar]:
    with directory() as ours, directory() as crashed, directory() as sqlite:
        with SAVERS[LOG_NEVER](ours) as saver:
            fill(saver, THREADS, EACH)
            # As a kill leaves it: whatever close() would add is not there.
            shutil.copy(ours / "agent.log", crashed / "agent.log")
        with SAVERS[SQLITE_OFF](sqlite) as saver:
            fill(saver, THREADS, EACH)
        times = fastest(
            {
                "closed": lambda: _first_get(LOG_NEVER, ours),
                "crashed": lambda: _first_get(LOG_NEVER, crashed),
                "sqlite": lambda: _first_get(SQLITE_OFF, sqlite),
            },
            scale.rounds,
        )
    what = "open + first get, 100,000 checkpoints in 2,000 threads"
    yield Bar(f"{what}, to SqliteSaver", times["closed"] / times["sqlite"], 3)
    yield Bar(f"{what}, after a crash", times["crashed"], 1.0, "s")


def _first_get(name: str, where: Path) -> None:
    with SAVERS[name](where) as saver:
        assert saver.get_tuple(on_thread(THREADS // 2)) is not None


def _a_million() -> Iterator[Bar]:
    with directory() as where:
        path = where / "agent.log"
        with LogSaver(path, fsync="never") as saver:
            fill(saver, 20_000, 50)
        answer = subprocess.run(
            [sys.executable, "-c", MEMORY_AFTER_OPEN, str(path)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    seconds, grown = map(float, answer.split())
    yield Bar("1,000,000 checkpoints: memory after open", grown / 1e6, 100, "bytes each")
    yield Bar("1,000,000 checkpoints: open", seconds, 0.3, "s")
