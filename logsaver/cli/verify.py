"""`logsaver verify`: check every byte of a log."""

from __future__ import annotations

from dataclasses import asdict

import typer

import logsaver
from logsaver.cli.opening import telling_errors
from logsaver.cli.options import PROBLEM, AsJson, Log
from logsaver.cli.output import console, count, print_json, size
from logsaver.cli.progress import progress_bar


def verify(log: Log, as_json: AsJson = False) -> None:
    """Read every byte of a log and report damage. Exits with 1 if there is any."""
    with telling_errors(), progress_bar("verifying") as advance:
        report = logsaver.verify(log, progress=advance)
    if as_json:
        print_json({**asdict(report), "ok": report.ok})
    else:
        out = console()
        out.print(f"{count(report.frames, 'whole frame')}, {size(report.bytes)}")
        if report.torn_tail is not None:
            out.print(f"an unfinished end, which is normal after a crash: {report.torn_tail}")
        for damage in report.damage:
            out.print(f"damaged: {damage}", style="red", markup=False)
        out.print("ok" if report.ok else f"{log} is damaged; save what is intact:", style="bold")
        if not report.ok:
            out.print(f"  logsaver repair {log} NEW_FILE", markup=False, soft_wrap=True)
    if not report.ok:
        raise typer.Exit(PROBLEM)
