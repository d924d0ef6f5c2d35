"""`logsaver prune`: keep only the latest checkpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from logsaver.cli.asking import confirm, pick_threads, plan_for
from logsaver.cli.opening import open_log
from logsaver.cli.options import AsJson, KeyFile, Log, Threads, Yes
from logsaver.cli.output import console, count, print_json


def prune(
    log: Log,
    threads: Threads = None,
    everything: Annotated[bool, typer.Option("--all", help="All threads of the log.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Keep the latest checkpoint of each namespace of these threads. Changes the log."""
    with open_log(log, key_file, to_write=True) as saver:
        picked = pick_threads(saver, threads or [], everything=everything)
        names = [thread.thread_id for thread in picked]
        before = saver.stats().checkpoints
        confirm(plan_for("Keep only the latest checkpoint of each namespace of:", picked), yes=yes)
        saver.prune(names)
        pruned = before - saver.stats().checkpoints
    if as_json:
        print_json({"threads": names, "pruned_checkpoints": pruned})
    else:
        console().print(f"{count(pruned, 'checkpoint')} of {count(len(names), 'thread')} pruned")
