"""`logsaver verify`: check every byte of a log."""

from __future__ import annotations

from dataclasses import asdict

import typer

import logsaver
from logsaver.cli.opening import WHERE_KEYS_ARE, telling_errors, with_key
from logsaver.cli.options import PROBLEM, AsJson, KeyFile, Log
from logsaver.cli.output import console, count, print_json, size
from logsaver.cli.progress import progress_bar


def verify(log: Log, as_json: AsJson = False, key_file: KeyFile = None) -> None:
    """Read every byte of a log and report damage. Exits with 1 if there is any.

    Without the key of an encrypted log, its checksums are checked and not what is in it.
    """
    with telling_errors(), progress_bar("verifying") as advance:
        report = with_key(
            key_file, lambda serde: logsaver.verify(log, serde=serde, progress=advance)
        )
    if as_json:
        print_json({**asdict(report), "ok": report.ok})
    else:
        out = console()
        out.print(f"{count(report.frames, 'whole frame')}, {size(report.bytes)}")
        if not report.records_checked:
            out.print("encrypted: only checksums were checked. " + WHERE_KEYS_ARE, soft_wrap=True)
        if report.torn_tail is not None:
            out.print(f"an unfinished end, which is normal after a crash: {report.torn_tail}")
        for damage in report.damage:
            out.print(f"damaged: {damage}", style="red", markup=False)
        out.print("ok" if report.ok else f"{log} is damaged; save what is intact:", style="bold")
        if not report.ok:
            out.print(f"  logsaver repair {log} NEW_FILE", markup=False, soft_wrap=True)
    if not report.ok:
        raise typer.Exit(PROBLEM)
