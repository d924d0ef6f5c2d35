"""`logsaver threads`: which threads a log has."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from logsaver.cli.opening import open_log
from logsaver.cli.options import AsJson, KeyFile, Log
from logsaver.cli.output import (
    ago,
    console,
    count,
    moment,
    one_line,
    print_columns,
    print_json,
    size,
)


def threads(
    log: Log,
    prefix: Annotated[str, typer.Option(help="Only ids that begin with this.")] = "",
    limit: Annotated[
        int, typer.Option(min=0, help="Show at most so many; 0 for all.", show_default=False)
    ] = 0,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """List the threads, most recently updated first. Reads no values."""
    with open_log(log, key_file) as saver:
        found = list(saver.threads(prefix))
    shown = list(islice(found, limit or None))
    if as_json:
        print_json(
            [
                {
                    "thread_id": thread.thread_id,
                    "checkpoints": thread.checkpoints,
                    "bytes": thread.bytes,
                    "created_at": thread.created_at.isoformat(),
                    "updated_at": thread.updated_at.isoformat(),
                }
                for thread in shown
            ]
        )
        return
    out = console()
    rows = [
        (
            one_line(thread.thread_id),
            f"{thread.checkpoints:,}",
            size(thread.bytes),
            moment(thread.updated_at),
            ago(thread.updated_at),
        )
        for thread in shown
    ]
    headings = ("thread", "checkpoints", "size", "updated", "")
    print_columns(out, headings, rows, right=(1, 2, 4))
    more = f", {count(len(shown), 'thread')} shown" if len(shown) < len(found) else ""
    out.print(f"{count(len(found), 'thread')}{more}", style="dim")
