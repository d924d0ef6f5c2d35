"""`logsaver compact`: give back the space of what was deleted, pruned or replaced."""

from __future__ import annotations

from dataclasses import asdict

from logsaver.cli.opening import open_log
from logsaver.cli.options import AsJson, KeyFile, Log
from logsaver.cli.output import console, print_json, size
from logsaver.cli.progress import progress_bar


def compact(log: Log, as_json: AsJson = False, key_file: KeyFile = None) -> None:
    """Give back the space of what was deleted, pruned or replaced. Changes the log.

    What is live is written to a new file that takes the log's place; others go on meanwhile.
    """
    with open_log(log, key_file, to_write=True) as saver, progress_bar("compacting") as advance:
        done = saver.compact(progress=advance)
    if as_json:
        print_json(asdict(done))
        return
    saved = done.bytes_before - done.bytes_after
    given_back = f"{size(saved)} given back" if saved > 0 else "there was nothing to give back"
    console().print(f"{size(done.bytes_before)} → {size(done.bytes_after)}, {given_back}")
