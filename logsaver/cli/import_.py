"""`logsaver import`: put exported threads into a log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from logsaver import LogSaver, restore
from logsaver.cli.jsonlines import BadExportError, Item, items_of, threads_of
from logsaver.cli.opening import StopError, make_saver, telling_errors
from logsaver.cli.options import AsJson, KeyFile, Log
from logsaver.cli.output import console, count, print_json
from logsaver.cli.progress import Advance, progress_bar

STDIN = Path("-")


def import_(
    log: Log,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What export wrote; - for stdin.")
    ] = STDIN,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Put exported threads into a log, which is made if it is not there. Changes the log.

    A thread that the log already has is never touched: then nothing is imported.
    """
    with telling_errors(), _source(file) as source:
        try:
            threads = threads_of(source.readline().decode(errors="replace"))
            with make_saver(log, key_file, read_only=False) as saver:
                _check_new(saver, threads)
                with progress_bar("importing") as advance:
                    items = items_of(threads, _lines(source, _size(file), advance))
                    checkpoints = _restore_all(saver, threads, items)
        except (BadExportError, UnicodeDecodeError) as error:
            raise StopError(f"{file}: {error}; nothing was imported") from error
    if as_json:
        print_json({"log": str(log), "threads": len(threads), "checkpoints": checkpoints})
    else:
        told = f"{count(checkpoints, 'checkpoint')} of {count(len(threads), 'thread')}"
        console().print(f"{told} imported into {log}", markup=False)


@contextmanager
def _source(file: Path) -> Iterator[BinaryIO]:
    if file == STDIN:
        yield sys.stdin.buffer
        return
    with file.open("rb") as source:
        yield source


def _size(file: Path) -> int | None:
    return None if file == STDIN else file.stat().st_size


def _lines(source: BinaryIO, total: int | None, advance: Advance) -> Iterator[str]:
    done = 0
    for line in source:
        done += len(line)
        advance(done, total)
        yield line.decode()


def _check_new(saver: LogSaver, threads: list[str]) -> None:
    known = {thread.thread_id for thread in saver.threads()}
    if taken := [name for name in threads if name in known]:
        raise StopError(f"{saver.path} has thread {taken[0]!r} already; nothing was imported")


def _restore_all(saver: LogSaver, threads: list[str], items: Iterator[Item]) -> int:
    """All or nothing, as far as errors go; who is killed over it leaves what is there so far."""
    try:
        return restore(saver, items)
    except BaseException:
        saver.prune(threads, strategy="delete")
        raise
