"""`logsaver repair`: save what is intact into a new log."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import logsaver
from logsaver.cli.opening import telling_errors, with_key
from logsaver.cli.options import PROBLEM, AsJson, KeyFile, Log
from logsaver.cli.output import console, count, print_json
from logsaver.cli.progress import progress_bar


def repair(
    log: Log,
    out_file: Annotated[
        Path, typer.Argument(metavar="OUT", help="The new log. Must not exist.", show_default=False)
    ],
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Write every intact record to a new log and say what is lost.

    The damaged log stays as it is. Exits with 1 if anything is lost.
    """
    with telling_errors(), progress_bar("repairing") as advance:
        report = with_key(
            key_file, lambda serde: logsaver.repair(log, out_file, serde=serde, progress=advance)
        )
    if as_json:
        print_json(asdict(report))
    else:
        out = console()
        out.print(f"{count(report.records, 'record')} saved to {out_file}", markup=False)
        for lost in report.lost:
            out.print(f"lost: {lost}", style="red", markup=False)
        for missing in report.missing_values:
            out.print(f"without its value: {missing}", style="red", markup=False)
        if not (report.lost or report.missing_values):
            out.print("nothing is lost")
    if report.lost or report.missing_values:
        raise typer.Exit(PROBLEM)
