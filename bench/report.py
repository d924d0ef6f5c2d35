"""docs/benchmarks.md, with its plots."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.bars import Bar
from bench.replay import FLOORS
from bench.tables import HEAD, Table, losses, rows

DOCS = Path(__file__).parents[1] / "docs"
PACKAGES = (
    "logsaver", "langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-lmdb", "langchain-core", "ormsgpack",
)  # fmt: skip
BAR_HEAD = ("topic", "what", "measured", "bar", "")
LOSS_HEAD = ("trace", "what", "LogSaver", "better", "ours to theirs")

INTRODUCTION = """\
# Benchmarks

Made by `python -m bench`; do not edit. The traces are calls recorded from real LangGraph graphs
with scripted nodes and fixed seeds (`bench/traces.py`). Every saver replays the same calls on a new
file, all of them in turn, round after round. Look at the ratios: machines differ, and are noisy.

Times are microseconds per call. "mean" is that of the best round; min, median and p99 are over all
calls of all rounds; "quiet" is the mean of each call's fastest go. "to memory" and "to pwrite"
divide the mean by that of InMemorySaver and of the floor. Savers that wait for the disk in every
call are compared by "quiet", with each other and in "to fdatasync": on a busy machine, waking up
can take longer than the sync. The floors write the bytes that LogSaver writes, or serialize what
is new in a call, and do nothing else. Reads are medians. "disk" is what is allocated after
closing, "memory" how far a process grows during the replay.
"""


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    padded = [[*line, *[""] * (len(head) - len(line))] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *padded)) + "\n"


def bar_rows(bars: dict[str, list[Bar]]) -> list[list[str]]:
    """The bars of each topic; its name stands before the first of them."""
    return [
        ["" if at else topic, *bar.row()]
        for topic, of_topic in bars.items()
        for at, bar in enumerate(of_topic)
    ]


def write(tables: dict[str, Table], bars: dict[str, list[Bar]], rounds: int) -> Path:
    plots = DOCS / "benchmarks"
    plots.mkdir(exist_ok=True)
    _plot(tables, "put", "microseconds per put or put_writes", plots / "put.svg")
    _plot(tables, "disk", "bytes on disk", plots / "disk.svg")
    lost = [line for name, table in tables.items() for line in losses(name, table)]
    parts = [
        INTRODUCTION,
        markdown(("where", ""), _environment(rounds)),
        "![Time per put](benchmarks/put.svg)\n\n![Size](benchmarks/disk.svg)\n",
        "## Bars\n\nWhat was promised, and what was measured.\n",
        markdown(BAR_HEAD, bar_rows(bars)),
        "## Where LogSaver loses\n\nEach mode against the savers that promise no more than it.\n",
        markdown(LOSS_HEAD, lost),
    ]
    for name, table in tables.items():
        parts += [f"## Trace: {name}\n", markdown(HEAD, rows(table))]
    page = DOCS / "benchmarks.md"
    page.write_text("\n".join(parts), "utf-8")
    return page


def _environment(rounds: int) -> list[tuple[str, str]]:
    return [
        ("date", f"{datetime.now(timezone.utc):%Y-%m-%d}"),
        ("rounds", str(rounds)),
        ("processor", f"{_processor()}, {os.cpu_count()} cores"),
        ("load average at the end", f"{os.getloadavg()[0]:.1f} (the replays alone make about 1)"),
        ("system", f"{platform.system()} {platform.release()}"),
        ("Python", platform.python_version()),
        ("SQLite", sqlite3.sqlite_version),
        *((package, _version(package)) for package in PACKAGES),
    ]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _plot(tables: dict[str, Table], what: str, label: str, path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - the extra "bench" has it

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "logsaver"  # the same figures give the same file
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(2, 3, figsize=(14, 7), layout="constrained", sharey=True)
    for axis, (name, table) in zip(axes.flat, tables.items(), strict=False):
        figures = {
            saver: found.figures()[what]
            for saver, found in table.items()
            if what in found.figures() and found.figures()[what] > 0
        }
        colours = [
            "tab:orange" if "Log" in saver else "lightgrey" if saver in FLOORS else "tab:blue"
            for saver in figures
        ]
        axis.barh(list(figures), list(figures.values()), color=colours)
        axis.set_xscale("log")
        axis.set_title(name)
        axis.invert_yaxis()
    figure.supxlabel(label)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
