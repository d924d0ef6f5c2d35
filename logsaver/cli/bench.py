"""`logsaver bench`: LogSaver beside SqliteSaver, on this machine.

Real graphs run on both savers in turn, so that both get the same share of whatever else the
machine is doing. The project's own benchmarks, with more savers and workloads, are in `bench/`.
"""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final, NamedTuple

import typer
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from rich.console import Console

from logsaver import LogSaver, __version__
from logsaver.cli.opening import StopError, telling_errors
from logsaver.cli.options import CANNOT_START, AsJson
from logsaver.cli.output import console, print_columns, print_json, size
from logsaver.cli.progress import Advance, progress_bar

TURNS: Final = 50
DOCUMENT: Final = "All work and no play makes a long document. " * 4000
MOST_ROUNDS: Final = 5
MOST_SECONDS: Final = 100.0
CONFIG: Final[RunnableConfig] = {"configurable": {"thread_id": "bench"}}

Make = Callable[[str], AbstractContextManager[BaseCheckpointSaver[Any]]]


class Workload(NamedTuple):
    """A graph's runs, in one durability mode."""

    name: str
    document: str
    durability: str


class Measured(NamedTuple):
    """One workload on one saver; times in milliseconds."""

    turn: float
    resume: float
    history: float
    bytes: int


WORKLOADS: Final = (
    Workload("a chat, async", "", "async"),
    Workload("a chat, sync", "", "sync"),
    Workload("a document, async", DOCUMENT, "async"),
    Workload("a document, sync", DOCUMENT, "sync"),
)


def bench(
    directory: Annotated[
        Path | None,
        typer.Option(
            help="Where to write the files that are measured; removed at the end.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure LogSaver beside SqliteSaver on this machine. Takes two minutes at most."""
    with telling_errors():
        savers = _savers()
        with (
            tempfile.TemporaryDirectory(dir=directory) as place,
            progress_bar("measuring", "runs") as advance,
        ):
            rounds, results = _measure(savers, Path(place), advance)
    if as_json:
        print_json(
            {
                "machine": _machine(),
                "rounds": rounds,
                "turns": TURNS,
                "results": {
                    workload: {saver: found._asdict() for saver, found in by_saver.items()}
                    for workload, by_saver in results.items()
                },
            }
        )
        return
    _print(console(), rounds, results)


def _savers() -> dict[str, Make]:
    if find_spec("langgraph.graph") is None:
        raise StopError("LangGraph is not installed: pip install langgraph", CANNOT_START)
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - may be missing
    except ImportError as error:
        raise StopError(
            "SqliteSaver is not installed: pip install langgraph-checkpoint-sqlite", CANNOT_START
        ) from error
    return {"LogSaver": LogSaver, "SqliteSaver": SqliteSaver.from_conn_string}


def _machine() -> str:
    system = f"{platform.system()} {platform.machine()}"
    return f"logsaver {__version__}, Python {platform.python_version()}, {system}"


# -- measuring


def _measure(
    savers: dict[str, Make], place: Path, advance: Advance
) -> tuple[int, dict[str, dict[str, Measured]]]:
    """Rounds, and the median of each figure over them. Begins no round that would take too long."""
    found: dict[tuple[str, str], list[Measured]] = {}
    started = time.monotonic()
    rounds, longest = 0, 0.0
    while rounds < MOST_ROUNDS and time.monotonic() - started + longest < MOST_SECONDS:
        begun = time.monotonic()
        for workload in WORKLOADS:
            for name, make in savers.items():
                file = place / f"{rounds}-{len(found)}-{name}"
                found.setdefault((workload.name, name), []).append(_run(make, workload, file))
                _remove(file)
                runs = sum(map(len, found.values()))
                advance(runs, MOST_ROUNDS * len(WORKLOADS) * len(savers))
        rounds += 1
        longest = max(longest, time.monotonic() - begun)
    results: dict[str, dict[str, Measured]] = {}
    for (workload_name, saver), runs_of in found.items():
        figures = Measured(*(median(values) for values in zip(*runs_of, strict=True)))
        results.setdefault(workload_name, {})[saver] = figures
    return rounds, results


def _run(make: Make, workload: Workload, file: Path) -> Measured:
    with make(str(file)) as saver:
        graph = _graph(saver)
        begun = time.perf_counter()
        for turn in range(TURNS):
            state: dict[str, Any] = {"messages": [("user", f"question {turn}: what is next?")]}
            if turn == 0:
                state["document"] = workload.document
            graph.invoke(state, CONFIG, durability=workload.durability)
        turns = time.perf_counter() - begun
    written = sum(path.stat().st_size for path in _files(file))
    begun = time.perf_counter()
    with make(str(file)) as saver:
        graph = _graph(saver)
        graph.get_state(CONFIG)
        resume = time.perf_counter() - begun
        begun = time.perf_counter()
        sum(1 for _ in saver.list(CONFIG))
        history = time.perf_counter() - begun
    return Measured(turns / TURNS * 1000, resume * 1000, history * 1000, written)


def _graph(saver: BaseCheckpointSaver[Any]) -> Any:
    from langchain_core.messages import AIMessage  # noqa: PLC0415 - with what it is used with
    from langgraph.graph import START, MessagesState, StateGraph  # noqa: PLC0415 - may be missing

    class State(MessagesState):
        document: str

    def think(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(f"thought no. {len(state['messages'])}. " * 10)]}

    def reply(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(f"answer no. {len(state['messages'])}. " * 10)]}

    builder = StateGraph(State)
    builder.add_node("think", think)
    builder.add_node("reply", reply)
    builder.add_edge(START, "think")
    builder.add_edge("think", "reply")
    return builder.compile(checkpointer=saver)


def _files(file: Path) -> Iterator[Path]:
    """The file and what a saver keeps beside it."""
    return file.parent.glob(file.name + "*")


def _remove(file: Path) -> None:
    for path in list(_files(file)):
        path.unlink()


# -- telling


def _print(out: Console, rounds: int, results: dict[str, dict[str, Measured]]) -> None:
    out.print(_machine(), style="dim", markup=False)
    out.print(f"{TURNS} turns of a graph with two nodes, median of {rounds} rounds\n")
    rows = []
    for workload, by_saver in results.items():
        ours, theirs = by_saver["LogSaver"], by_saver["SqliteSaver"]
        for what, one, other in (
            ("a turn", ours.turn, theirs.turn),
            ("open and read", ours.resume, theirs.resume),
            ("whole history", ours.history, theirs.history),
        ):
            rows.append((workload, what, f"{one:.2f} ms", f"{other:.2f} ms", _times(one, other)))
            workload = ""  # noqa: PLW2901 - said once
        compared = _times(ours.bytes, theirs.bytes, "smaller", "larger")
        rows.append(("", "file", size(ours.bytes), size(theirs.bytes), compared))
    headings = ("", "", "LogSaver", "SqliteSaver", "")
    print_columns(out, headings, rows, right=(2, 3, 4))


def _times(one: float, other: float, less: str = "faster", more: str = "slower") -> str:
    if one <= other:
        return f"{other / max(one, 1e-9):.1f} x {less}"
    return f"{one / max(other, 1e-9):.1f} x {more}"
