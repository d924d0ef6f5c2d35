"""`logsaver migrate`: copies threads between a log, SQLite and PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Annotated, Any

import typer
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver import LogKeyError
from logsaver.cli.opening import (
    WHERE_KEYS_ARE,
    StopError,
    read_key,
    serializers,
    telling_errors,
)
from logsaver.cli.options import CANNOT_START, AsJson, KeyFile
from logsaver.cli.output import console, count, print_json
from logsaver.cli.progress import Advance, progress_bar
from logsaver.migrate import CopyReport, MigrationError, check_readable, copy, open_saver
from logsaver.migrate import Progress as HowFar


def migrate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A log, an SQLite file or a postgresql:// URL. Is only read.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="The same. Is made if need be, and keeps what it has.",
            show_default=False,
        ),
    ],
    thread: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Copy this thread only; may be given again.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Copy threads to another saver, and check the copy. Changes the target.

    A file is recognised by what is in it; a new one by its name: .sqlite, .sqlite3 and .db are
    SQLite, everything else is a log. Run it again to go on after an interruption, or to bring a
    copy up to date. With a key, encrypted values are read with it, and the copy is encrypted.
    """
    with telling_errors():
        _check_two(source, target)
        with_key = serializers(read_key(key_file))
        with ExitStack() as stack, progress_bar("copying", "checkpoints") as advance:
            old = _open_source(stack, source, [*with_key, *serializers(None)], thread)
            new = _open(stack, target, with_key, write=True)
            try:
                report = copy(old, new, threads=thread, progress=_counting(advance))
            except MigrationError as error:
                raise StopError(str(error)) from error
    if as_json:
        print_json(asdict(report))
    else:
        _print(report)


def _check_two(source: str, target: str) -> None:
    with suppress(OSError):  # of these there are not two files yet, or they are URLs
        if os.path.samefile(source, target):
            raise StopError(f"{source} and {target} are the same file", CANNOT_START)
    if source == target:
        raise StopError(f"{source} is the source and the target", CANNOT_START)


def _open_source(
    stack: ExitStack, name: str, serdes: list[SerializerProtocol], threads: list[str] | None
) -> BaseCheckpointSaver[Any]:
    """With the first serializer that can read what is there; looked for before a target is made.

    The values of a database may be encrypted too, which shows only when one of them is read.
    """
    failures: list[MigrationError] = []
    for number in range(len(serdes)):
        with ExitStack() as attempt:
            saver = _open(attempt, name, serdes[number:])
            try:
                check_readable(saver, threads)
            except MigrationError as error:
                failures.append(error)
                continue
            stack.enter_context(attempt.pop_all())
            return saver
    raise StopError(f"{name}: {failures[0]}. {WHERE_KEYS_ARE}", CANNOT_START) from failures[0]


def _open(
    stack: ExitStack, name: str, serdes: list[SerializerProtocol], *, write: bool = False
) -> BaseCheckpointSaver[Any]:
    """With the first serializer that goes together with what is there."""
    for serde in serdes[:-1]:
        with suppress(LogKeyError):
            return stack.enter_context(open_saver(name, write=write, serde=serde))
    try:
        return stack.enter_context(open_saver(name, write=write, serde=serdes[-1]))
    except LogKeyError as error:
        raise StopError(f"{error}. {WHERE_KEYS_ARE}", CANNOT_START) from error


def _counting(advance: Advance) -> Callable[[HowFar], None]:
    """Moves the bar. How many there are is known thread by thread, and guessed for the rest."""
    done = 0

    def show(far: HowFar) -> None:
        nonlocal done
        done += 1
        advance(done, max(done, round(done / far.fraction)))

    return show


def _print(report: CopyReport) -> None:
    out = console()
    out.print(
        f"{count(report.threads, 'thread')}: {count(report.checkpoints, 'checkpoint')} and "
        f"{count(report.writes, 'write')} copied, "
        f"{count(report.skipped, 'checkpoint was', 'checkpoints were')} there already"
    )
    out.print(f"{count(report.checked, 'checkpoint')} read back from both and found equal")
    if report.renamed:
        out.print(f"{count(report.renamed, 'checkpoint')} got other channel versions")
