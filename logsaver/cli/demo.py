"""`logsaver demo`: an agent that is killed, resumed, asked, forked and measured.

The agent itself is in `demo_agent.py`. Here its processes are started, what they report is told,
and every claim is checked against the log before it is printed.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from threading import Timer
from typing import Annotated, Any, Final, NamedTuple

import typer
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from logsaver import LogSaver, LogSaverError
from logsaver.cli.options import CANNOT_START, PROBLEM, AsJson
from logsaver.cli.output import print_json

FAILED: Final = PROBLEM

THREAD: Final = "order-1042"
MARK: Final = "logsaver_demo"  # in the metadata of every checkpoint
CONFIG: Final[RunnableConfig] = {
    "configurable": {"thread_id": THREAD},
    "metadata": {MARK: True},
}
TIME_LIMIT: Final = 60.0  # seconds for one process


class CannotStartError(Exception):
    """Raised when the demo has no place or no packages to run with."""


class DemoFailedError(Exception):
    """Raised when something did not go as the demo was about to say."""


class Event(NamedTuple):
    """What a process of the agent reported."""

    pid: int
    what: str
    name: str


def demo(
    path: Annotated[
        Path, typer.Option(help="Where to leave the log. An earlier demo's thread is deleted.")
    ] = Path("logsaver-demo.log"),
    as_json: AsJson = False,
) -> None:
    """Watch an agent being killed, resumed, asked, forked and measured.

    Exits with 0 if all went as told, 1 if something did not, 2 if it could not start.
    """
    try:
        _check_langgraph()
        size_before = _make_room(path)
        facts = _Story(Console(highlight=False, quiet=as_json), path, size_before).tell()
        if as_json:
            print_json(facts)
    except CannotStartError as error:
        typer.echo(f"logsaver demo: {error}", err=True)
        raise typer.Exit(CANNOT_START) from error
    except (DemoFailedError, LogSaverError) as error:
        typer.echo(f"logsaver demo failed: {error}", err=True)
        raise typer.Exit(FAILED) from error


def _this_command() -> str:
    """How to call it again: it may not be on the PATH."""
    started = sys.argv[0]
    if Path(started).name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m logsaver"
    name = Path(started).name
    return name if shutil.which(name) == started else shlex.quote(started)


# -- before the story


def _check_langgraph() -> None:
    # The package `langgraph` is there even without LangGraph: its checkpoint library lives in it.
    missing = [name for name in ("graph", "prebuilt") if find_spec(f"langgraph.{name}") is None]
    if missing:
        raise CannotStartError("LangGraph is not installed: pip install langgraph")


def _make_room(path: Path) -> int:
    """Leave a log without threads at `path`; how large it is.

    Takes a thread away from an earlier demo's log, and nothing from any other. The file stays:
    another process may have it open.
    """
    try:
        is_there = path.exists()
        if is_there and not _is_from_a_demo(path):
            raise CannotStartError(
                f"{path} is not the log of an earlier demo and was left as it is; pick a new --path"
            )
        with LogSaver(path) as log:
            log.delete_thread(THREAD)
            return log.stats().bytes if is_there else 0
    except (LogSaverError, OSError) as error:
        raise CannotStartError(f"{error}; or pick another --path") from error


def _is_from_a_demo(path: Path) -> bool:
    """Whether it is a log with the demo's thread alone, or (a demo failed) with none."""
    try:
        with LogSaver(path, read_only=True) as log:
            return all(
                thread.thread_id == THREAD and MARK in thread.metadata for thread in log.threads()
            )
    except (LogSaverError, OSError):  # a directory, a text file, somebody's damaged log
        return False


# -- the story


class _Story:
    """Tells the acts one after the other."""

    def __init__(self, console: Console, path: Path, size_before: int) -> None:
        self._console = console
        self._path = path
        self._size_before = size_before
        self._done: Counter[str] = Counter()
        self._events: list[Event] = []

    def tell(self) -> dict[str, Any]:
        """Tell it; what --json says of it."""
        self._say("A support agent on LangGraph. Its model follows a script, so no API key is")
        self._say(f"needed. Its whole memory is one file, {escape(str(self._path))}.")
        with LogSaver(self._path, read_only=True) as log:
            killed = self._kill()
            self._resume(log, killed)
            approved = self._approve(log)
            self._fork(log, approved)
            checkpoints = list(log.list(CONFIG))[::-1]
            self._show_history(checkpoints)
            size, other = self._show_size(log, checkpoints)
        self._say_where()
        return {
            "path": str(self._path.resolve()),
            "thread_id": THREAD,
            "killed_process": killed,
            "events": [event._asdict() for event in self._events],
            "checkpoints": len(checkpoints),
            "bytes": size,
            "sqlite_bytes": other,
        }

    # -- acts

    def _kill(self) -> int:
        self._title("1. Killed in the middle of a step")
        self._say("The model asks for two tools. One has finished, the other is at work, and then:")
        events = self._run("start", ends_with=-signal.SIGKILL)
        pid = events[-1].pid
        self._say(f"  [bold red]kill -9 {pid}[/]: check_stock never got to its answer.")
        return pid

    def _resume(self, log: LogSaver, killed: int) -> None:
        self._title("2. A new process goes on")
        self._run("resume")
        self._expect_done(model=2, look_up_order=1, check_stock=1)
        _, *made = _messages(log.get_tuple(CONFIG))  # the first is the human's
        makers = [_maker(message) == killed for message in made]
        if makers != [True, True, False, False]:
            raise DemoFailedError(f"the messages come from the wrong processes: {makers}")
        self._say("Of the step that was cut short it ran check_stock again, and nothing else. The")
        self._say("model's first reply and the result of look_up_order are those of process")
        self._say(f"{killed}, read from the log.")

    def _approve(self, log: LogSaver) -> CheckpointTuple:
        self._title("3. A human decides")
        self._say("The refund needs a yes, so the agent has stopped and its process has ended. The")
        self._say("question waits in the log. A third process brings the answer: [bold]yes[/]")
        self._run("approve")
        self._expect_done(model=3, look_up_order=1, check_stock=1, refund=1)
        latest = log.get_tuple(CONFIG)
        if latest is None:
            raise DemoFailedError("the thread has no checkpoint")
        return latest

    def _fork(self, log: LogSaver, approved: CheckpointTuple) -> None:
        self._title("4. And if the answer had been no?")
        self._say("A fourth process goes back to the checkpoint that asked. From there it takes")
        self._say("another way, and the answer is: [bold]no[/]")
        self._run("fork")
        self._expect_done(model=4, look_up_order=1, check_stock=1, refund=2)
        before = _last_words(log.get_tuple(approved.config))
        now = _last_words(log.get_tuple(CONFIG))
        if before == now or before != _last_words(approved):
            raise DemoFailedError(f"the fork should have another end: {before!r}, {now!r}")
        self._say("Both ends are in the log, each under its own checkpoint id:")
        self._say(f"  first   {before}")
        self._say(f"  forked  {now}")

    def _show_history(self, checkpoints: Sequence[CheckpointTuple]) -> None:
        self._title("5. The history")
        numbers = {_id_of(found.config): str(n) for n, found in enumerate(checkpoints, 1)}
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("no.", "after", "source"):
            table.add_column(heading, no_wrap=True)
        table.add_column("messages", justify="right")
        table.add_column("the last one")
        table.add_column("made by", justify="right", no_wrap=True)
        for found in checkpoints:
            messages = _messages(found)
            table.add_row(
                numbers[_id_of(found.config)],
                numbers[_id_of(found.parent_config)] if found.parent_config else "",
                found.metadata["source"],
                str(len(messages)),
                escape(_summary(messages[-1])) if messages else "",
                str(_maker(messages[-1]) or "") if messages else "",
            )
        self._console.print(table)

    def _show_size(
        self, log: LogSaver, checkpoints: Sequence[CheckpointTuple]
    ) -> tuple[int, int | None]:
        self._title("6. The size")
        stats = log.stats()
        size = stats.bytes - self._size_before
        self._say("The state carries a document of 20 kB that never changes. A checkpoint points")
        self._say("to what its parent has already stored instead of storing it again.")
        self._say(
            f"  this run        {_kilobytes(size)}  "
            f"({stats.checkpoints} checkpoints, {stats.writes} sets of writes)"
        )
        other = _size_in_sqlite(checkpoints)
        if other is not None:
            self._say(
                f"  SqliteSaver     {_kilobytes(other)}  "
                f"(the same run, {other / size:.1f} times as much)"
            )
        return size, other

    def _say_where(self) -> None:
        self._title("The log is yours")
        self._console.print(f"Left at {escape(str(self._path.resolve()))}", soft_wrap=True)
        self._say("Look around in it:")
        log = shlex.quote(str(self._path))
        for command in (f"history {log} {THREAD}", f"show {log} {THREAD}", f"stats {log}"):
            line = f"    {_this_command()} {command}"
            self._console.print(escape(line), soft_wrap=True)
        self._say("or from Python:")
        for line in (
            "from logsaver import LogSaver",
            f"log = LogSaver({str(self._path)!r}, read_only=True)",
            "print(log.stats(), *log.threads())",
        ):
            self._console.print("    " + escape(line), soft_wrap=True)

    # -- how it is told

    def _run(self, act: str, *, ends_with: int = 0) -> list[Event]:
        events = []
        for event in _play(self._path, act, ends_with):
            events.append(event)
            name = escape(event.name)
            if event.what in ("asked", "answered"):
                name = f"[bold]{name}[/]"
            self._say(f"  process {event.pid}  {event.what:9} {name}")
            if event.what == "done":
                self._done[event.name] += 1
        self._events += events
        return events

    def _expect_done(self, **times: int) -> None:
        if self._done != times:
            raise DemoFailedError(f"expected {times}, and this was done: {dict(self._done)}")

    def _title(self, text: str) -> None:
        self._console.print()
        self._console.rule(f"[bold]{text}[/]", align="left")

    def _say(self, text: str) -> None:
        self._console.print(text)


def _play(path: Path, act: str, ends_with: int) -> Iterator[Event]:
    """Run one act in a process of its own; what it reports, as it happens."""
    command = [sys.executable, "-m", "logsaver.cli.demo_agent", str(path), act, json.dumps(CONFIG)]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(  # noqa: S603 - our own module
            command, stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        too_long = Timer(TIME_LIMIT, process.kill)
        too_long.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield Event(**json.loads(line))
            code = process.wait()
        finally:
            process.kill()  # nothing if it has ended; it must not outlive a Ctrl-C
            too_long.cancel()
        if code != ends_with:
            said.seek(0)
            raise DemoFailedError(f"the process for {act!r} ended with {code}\n{said.read()}")


# -- what is in a checkpoint


def _id_of(config: RunnableConfig) -> str:
    return str(config["configurable"]["checkpoint_id"])


def _messages(found: CheckpointTuple | None) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    if found is not None:
        messages += found.checkpoint["channel_values"].get("messages", [])
    return messages


def _last_words(found: CheckpointTuple | None) -> str:
    messages = _messages(found)
    return str(messages[-1].content) if messages else ""


def _maker(message: BaseMessage) -> int | None:
    """The process that made a message; none made the human's."""
    notes: Any = message.artifact if isinstance(message, ToolMessage) else message.response_metadata
    pid: int | None = notes.get("pid")
    return pid


def _summary(message: BaseMessage) -> str:
    if isinstance(message, AIMessage) and message.tool_calls:
        return "calls " + ", ".join(call["name"] for call in message.tool_calls)
    return str(message.content)


def _size_in_sqlite(checkpoints: Sequence[CheckpointTuple]) -> int | None:
    """Bytes that SqliteSaver needs for the same checkpoints and writes; None without it."""
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - may be missing
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "same.sqlite")
        with SqliteSaver.from_conn_string(str(file)) as sqlite:
            for found in checkpoints:
                parent: RunnableConfig = found.parent_config or {
                    "configurable": {"thread_id": THREAD, "checkpoint_ns": ""}
                }
                checkpoint = found.checkpoint
                sqlite.put(parent, checkpoint, found.metadata, checkpoint["channel_versions"])
                for task_id, writes in groupby(found.pending_writes or (), lambda write: write[0]):
                    sqlite.put_writes(found.config, [write[1:] for write in writes], task_id)
        return file.stat().st_size


def _kilobytes(size: int) -> str:
    return f"{size / 1000:6.1f} kB"
