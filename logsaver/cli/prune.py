"""`logsaver prune`: keep only the latest checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from logsaver import Preview
from logsaver.cli.asking import confirm, pick_threads, plan_for
from logsaver.cli.opening import open_log
from logsaver.cli.options import AsJson, KeyFile, Log, Threads, Yes
from logsaver.cli.output import console, count, one_line, print_columns, print_json, size


def prune(
    log: Log,
    threads: Threads = None,
    everything: Annotated[bool, typer.Option("--all", help="All threads of the log.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would go. Changes nothing.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Keep the latest checkpoint of each namespace of these threads. Changes the log."""
    with open_log(log, key_file, to_write=not dry_run) as saver:
        picked = pick_threads(saver, threads or [], everything=everything)
        names = [thread.thread_id for thread in picked]
        if dry_run:
            preview = saver.prune(names, dry_run=True)
            assert preview is not None  # this is what it is for
            _show(preview, as_json=as_json)
            return
        before = saver.stats().checkpoints
        confirm(plan_for("Keep only the latest checkpoint of each namespace of:", picked), yes=yes)
        saver.prune(names)
        pruned = before - saver.stats().checkpoints
    if as_json:
        print_json({"threads": names, "pruned_checkpoints": pruned})
    else:
        console().print(f"{count(pruned, 'checkpoint')} of {count(len(names), 'thread')} pruned")


def _show(preview: Preview, *, as_json: bool) -> None:
    going = [each for each in preview.namespaces if each.removed]
    if as_json:
        print_json([asdict(each) for each in going])
        return
    out = console()
    if going:
        rows = [
            (
                one_line(f"{each.thread_id} {each.checkpoint_ns}".rstrip()),
                f"{len(each.removed):,}",
                f"{len(each.kept_hidden):,}",
                size(each.bytes),
            )
            for each in going
        ]
        headings = ("thread", "checkpoints", "stay hidden", "size")
        print_columns(out, headings, rows, right=(1, 2, 3))
    out.print(
        f"{count(preview.checkpoints, 'checkpoint')} would go, {size(preview.bytes)}; "
        "nothing was changed"
    )
