"""`logsaver export`: threads as JSON, to move them or to read them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from logsaver import LogSaver, StoredCheckpoint, StoredWrites, ThreadInfo, stored
from logsaver.cli.asking import pick_threads
from logsaver.cli.jsonlines import lines_of
from logsaver.cli.opening import StopError, open_log
from logsaver.cli.options import CANNOT_START, AsJson, KeyFile, Log, Threads
from logsaver.cli.output import console, count, print_json
from logsaver.cli.progress import Advance, progress_bar
from logsaver.cli.text import plain
from logsaver.cli.view import View, config_of


def export(
    log: Log,
    threads: Threads = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A new file; otherwise stdout.",
            show_default=False,
        ),
    ] = None,
    readable: Annotated[
        bool, typer.Option("--readable", help="Decoded values, to read and not to import.")
    ] = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Write threads, or all of them, as JSON lines that `logsaver import` takes back exactly.

    With --json, what was written to the --output file is told as JSON.
    """
    if as_json and output is None:
        as_json = False  # what goes to stdout is JSON already
    with open_log(log, key_file) as saver, progress_bar("exporting") as advance:
        picked = pick_threads(saver, threads or [], everything=not threads)
        write = _write_readable if readable else _write_exactly
        with _target(output) as file:
            written = write(file, saver, picked, advance)
    if as_json:
        print_json({"file": str(output), "threads": len(picked), "checkpoints": written})
    elif output is not None:
        told = f"{count(written, 'checkpoint')} of {count(len(picked), 'thread')}"
        console().print(f"{told} written to {output}", markup=False)


@contextmanager
def _target(output: Path | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
        return
    try:
        # Like a new log, for its owner only: what was encrypted there is in clear here.
        fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise StopError(f"{output} exists; export writes to a new file", CANNOT_START) from error
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            yield file
    except BaseException:
        output.unlink(missing_ok=True)  # half an export would pass for a whole one
        raise


class _Counter:
    """Passes on what a log has of some threads, and counts it."""

    def __init__(self, saver: LogSaver, threads: Sequence[ThreadInfo], advance: Advance) -> None:
        self.checkpoints = 0
        self._saver, self._threads, self._advance = saver, threads, advance

    def __iter__(self) -> Iterator[StoredCheckpoint | StoredWrites]:
        done, total = 0, sum(thread.bytes for thread in self._threads)
        for thread in self._threads:
            for item in stored(self._saver, config_of(thread.thread_id)):
                if isinstance(item, StoredCheckpoint):
                    self.checkpoints += 1
                    done += item.bytes
                    self._advance(done, total)
                yield item


Writer = Callable[[TextIO, LogSaver, Sequence[ThreadInfo], Advance], int]


def _write_exactly(
    file: TextIO, saver: LogSaver, threads: Sequence[ThreadInfo], advance: Advance
) -> int:
    items = _Counter(saver, threads, advance)
    file.writelines(lines_of([thread.thread_id for thread in threads], items))
    return items.checkpoints


def _write_readable(
    file: TextIO, saver: LogSaver, threads: Sequence[ThreadInfo], advance: Advance
) -> int:
    items = _Counter(saver, threads, advance)
    separator = "[\n"
    for item in items:
        if isinstance(item, StoredCheckpoint) and not item.hidden:
            text = json.dumps(_readable(View(saver.serde, item)), indent=2, ensure_ascii=False)
            file.write(separator + text)
            separator = ",\n"
    file.write("[]\n" if separator == "[\n" else "\n]\n")
    return items.checkpoints


def _readable(view: View) -> dict[str, Any]:
    found = view.stored
    return {
        "thread_id": found.thread_id,
        "checkpoint_ns": found.checkpoint_ns,
        "checkpoint_id": found.checkpoint_id,
        "parent_id": found.parent_id,
        "created_at": view.body.get("ts"),
        "metadata": plain(view.metadata),
        "values": plain(view.values),
        "writes": [
            {"task_id": task, "channel": channel, "value": plain(value)}
            for task, channel, value in view.writes
        ],
    }
