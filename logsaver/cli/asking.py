"""Asking before something is taken away."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from logsaver import LogSaver, ThreadInfo
from logsaver.cli.opening import StopError
from logsaver.cli.options import CANNOT_START
from logsaver.cli.output import console, count, one_line, size

SHOWN = 10


def confirm(plan: Sequence[str], *, yes: bool) -> None:
    """Show what will be done and ask, on stderr. Ends the command if the answer is not yes."""
    out = console(stderr=True)
    for line in plan:
        out.print(line, markup=False)
    if yes:
        return
    if not sys.stdin.isatty():
        raise StopError("nobody to ask here; pass --yes to do it", CANNOT_START)
    if not typer.confirm("Go on?", err=True):
        raise StopError("nothing was changed")


def plan_for(what: str, threads: Sequence[ThreadInfo]) -> list[str]:
    """What will happen to these threads, a line each, and how many more there are."""
    lines = [what]
    lines += [
        f"  {one_line(thread.thread_id)}  "
        f"({count(thread.checkpoints, 'checkpoint')}, {size(thread.bytes)})"
        for thread in threads[:SHOWN]
    ]
    if len(threads) > SHOWN:
        rest = threads[SHOWN:]
        lines.append(
            f"  and {count(len(rest), 'more thread')} "
            f"({count(sum(thread.checkpoints for thread in rest), 'checkpoint')})"
        )
    return lines


def pick_threads(saver: LogSaver, names: Sequence[str], *, everything: bool) -> list[ThreadInfo]:
    """The threads that were named, each of which must be there; or all of them."""
    if bool(names) == everything:
        told = "not both" if names else "one of the two"
        raise StopError(f"name the threads, or pass --all: {told}", CANNOT_START)
    known = {thread.thread_id: thread for thread in saver.threads()}
    if everything:
        return list(known.values())
    for name in names:
        if name not in known:
            raise StopError(f"there is no thread {name!r} in {saver.path}")
    return [known[name] for name in dict.fromkeys(names)]
