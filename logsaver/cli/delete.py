"""`logsaver delete`: take threads away."""

from __future__ import annotations

from typing import Annotated

import typer

from logsaver.cli.asking import confirm, pick_threads, plan_for
from logsaver.cli.opening import open_log
from logsaver.cli.options import AsJson, KeyFile, Log, Threads, Yes
from logsaver.cli.output import console, count, print_json


def delete(
    log: Log,
    threads: Threads = None,
    everything: Annotated[bool, typer.Option("--all", help="All threads of the log.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Delete threads with all their checkpoints and writes. Changes the log."""
    with open_log(log, key_file, to_write=True) as saver:
        picked = pick_threads(saver, threads or [], everything=everything)
        names = [thread.thread_id for thread in picked]
        confirm(plan_for("Delete for good:", picked), yes=yes)
        saver.prune(names, strategy="delete")  # one record, whole or not at all
    if as_json:
        print_json({"deleted_threads": names})
    else:
        console().print(f"{count(len(names), 'thread')} deleted")
