"""`logsaver tail`: the newest checkpoints, and new ones as they arrive."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from logsaver import LogSaver
from logsaver.arriving import Arrivals
from logsaver.cli.history import row_of, what_next
from logsaver.cli.opening import open_log
from logsaver.cli.options import AsJson, KeyFile, Log
from logsaver.cli.output import clock, console, fit, one_line, print_json_line, size, width_of
from logsaver.cli.text import plain
from logsaver.cli.view import View, config_of, step_told, views

POLL: Final = 0.2  # seconds


def tail(
    log: Log,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new ones until Ctrl-C.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="How many to begin with.")
    ] = 10,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Show the newest checkpoints of all threads, and with -f new ones as they arrive."""
    out = console()
    with open_log(log, key_file) as saver:
        arrivals = Arrivals(saver)
        newest = _newest(saver, lines)
        for view in newest:
            _print(out, view, as_json=as_json)
        if not follow:
            return
        shown = {_name(view) for view in newest}
        try:
            while True:
                for checkpoint_id, thread_id, ns in arrivals:
                    for view in views(saver, config_of(thread_id, ns, checkpoint_id)):
                        if _name(view) not in shown:
                            _print(out, view, as_json=as_json)
                shown.clear()  # only what came while the first ones were looked for is in both
                time.sleep(POLL)
        except KeyboardInterrupt:  # the way to end it
            return


def _newest(saver: LogSaver, limit: int) -> list[View]:
    """Oldest first."""
    found: list[View] = []
    for item in saver.list(None, limit=limit):
        names = item.config["configurable"]
        key = names["thread_id"], names["checkpoint_ns"], names["checkpoint_id"]
        found += views(saver, config_of(*key))
    return found[::-1]


def _name(view: View) -> tuple[str, str, str]:
    found = view.stored
    return found.thread_id, found.checkpoint_ns, found.checkpoint_id


def _print(out: Console, view: View, *, as_json: bool) -> None:
    found, row = view.stored, row_of(view)
    if as_json:
        told: dict[str, Any] = {
            "thread_id": found.thread_id,
            "checkpoint_ns": found.checkpoint_ns,
            "checkpoint_id": found.checkpoint_id,
            "parent_id": found.parent_id,
            "created_at": view.body.get("ts"),
            "step": view.step,
            "source": view.source,
            "bytes": found.bytes,
            "next": row.next,
            "interrupts": plain(row.interrupts),
        }
        print_json_line(told)
        return
    width = width_of(out)
    where = one_line(found.thread_id + (f" / {found.checkpoint_ns}" if found.checkpoint_ns else ""))
    line = Text(clock(view.time) if view.time else "--:--:--", style="dim")
    room = 24 if width is None or width < 120 else 44
    line.append(f"  {fit(where, room) if width else where:{room}}", style="cyan")
    line.append(f"  step {step_told(view.step):>3} {view.source:6} {size(found.bytes):>8}")
    rest = "  " + what_next(row)
    line.append(rest if width is None else fit(rest, max(10, width - line.cell_len)))
    out.print(line, soft_wrap=True)
