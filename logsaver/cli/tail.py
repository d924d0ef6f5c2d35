"""`logsaver tail`: the newest checkpoints, and new ones as they arrive."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from logsaver import LogSaver
from logsaver.cli.history import row_of, what_next
from logsaver.cli.opening import open_log
from logsaver.cli.options import AsJson, KeyFile, Log
from logsaver.cli.output import console, fit, one_line, print_json_line, size, width_of
from logsaver.cli.text import plain
from logsaver.cli.view import View, config_of, views

POLL: Final = 0.2  # seconds
OVERLAP: Final = 50  # processes that write at the same time make ids that are not quite in order


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
        seen: set[tuple[str, str, str]] = set()
        for view in _newest(saver, seen, lines):
            _print(out, view, as_json=as_json)
        if not follow:
            return
        _newest(saver, seen, OVERLAP)  # what there is already is not new
        end = saver.stats().bytes
        try:
            while True:
                time.sleep(POLL)
                now = saver.stats().bytes
                if now != end:
                    end = now
                    for view in _newest(saver, seen, None):
                        _print(out, view, as_json=as_json)
        except KeyboardInterrupt:  # the way to end it
            return


def _newest(saver: LogSaver, seen: set[tuple[str, str, str]], limit: int | None) -> list[View]:
    """Checkpoints that were not seen yet, oldest first; those far back count as seen."""
    found, known = [], 0
    for key in _keys(saver, limit):
        if key in seen:
            known += 1
            if known >= OVERLAP:
                break
            continue
        seen.add(key)
        thread_id, ns, checkpoint_id = key
        found += list(views(saver, config_of(thread_id, ns, checkpoint_id)))
    return found[::-1]


def _keys(saver: LogSaver, limit: int | None) -> Iterator[tuple[str, str, str]]:
    for item in saver.list(None, limit=limit):
        names = item.config["configurable"]
        yield names["thread_id"], names["checkpoint_ns"], names["checkpoint_id"]


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
    line = Text(_clock(view.body.get("ts")), style="dim")
    room = 24 if width is None or width < 120 else 44
    line.append(f"  {fit(where, room) if width else where:{room}}", style="cyan")
    line.append(f"  step {view.step:>3} {view.source:6} {size(found.bytes):>8}")
    rest = "  " + what_next(row)
    line.append(rest if width is None else fit(rest, max(10, width - line.cell_len)))
    out.print(line, soft_wrap=True)


def _clock(timestamp: Any) -> str:
    try:
        moment = datetime.fromisoformat(str(timestamp).replace("Z", "+00:00"))
    except ValueError:
        return "--:--:--"
    return moment.astimezone().strftime("%H:%M:%S")
