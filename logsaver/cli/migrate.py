"""`logsaver migrate`: copies threads between a log, SQLite and PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from logsaver import LogSaverError
from logsaver.migrate import Progress as HowFar
from logsaver.migrate import copy, open_saver

FAILED: Final = 1


def migrate(
    source: Annotated[
        str, typer.Argument(help="A log, an SQLite file or a postgresql:// URL. Is only read.")
    ],
    target: Annotated[
        str, typer.Argument(help="The same. Is made if need be, and keeps what it has.")
    ],
    thread: Annotated[
        list[str] | None, typer.Option(help="Copy this thread only; may be given again.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Copy threads to another saver, and check the copy.

    A file is recognised by what is in it; a new one by its name: .sqlite, .sqlite3 and .db are
    SQLite, everything else is a log. Run it again to go on after an interruption, or to bring a
    copy up to date.

    Exits with 0 if everything is copied and 1 if something is not.
    """
    try:
        with (
            open_saver(source) as old,
            open_saver(target, write=True) as new,
            _bar(hidden=as_json) as show,
        ):
            report = copy(old, new, threads=thread, progress=show)
    except LogSaverError as error:
        typer.echo(f"logsaver migrate: {error}", err=True)
        raise typer.Exit(FAILED) from error
    if as_json:
        typer.echo(json.dumps(asdict(report)))
        return
    typer.echo(
        f"{report.threads} threads: copied {report.checkpoints} checkpoints and {report.writes} "
        f"writes, {report.skipped} checkpoints were there already. Compared {report.checked}."
    )
    if report.renamed:
        typer.echo(f"{report.renamed} checkpoints got other channel versions.")


@contextmanager
def _bar(*, hidden: bool) -> Iterator[Callable[[HowFar], None]]:
    """A bar on a terminal, on stderr: stdout is for the report."""
    console = Console(stderr=True)
    columns = (
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TextColumn("{task.fields[count]} checkpoints"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, disable=hidden or not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task("", total=1.0, count=0)
        count = 0

        def show(far: HowFar) -> None:
            nonlocal count
            count += 1
            bar.update(task, completed=far.fraction, count=count)

        yield show
