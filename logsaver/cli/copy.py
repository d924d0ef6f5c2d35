"""`logsaver copy`: a thread under a second name."""

from __future__ import annotations

from typing import Annotated

import typer

from logsaver import ThreadExistsError
from logsaver.cli.asking import pick_threads
from logsaver.cli.opening import StopError, open_log
from logsaver.cli.options import AsJson, KeyFile, Log, complete_thread
from logsaver.cli.output import console, count, one_line, print_json


def copy(
    log: Log,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="The thread to copy.", autocompletion=complete_thread
        ),
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The id of the new thread.")],
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Copy a thread to a new id, as references: it takes no space. Changes the log."""
    with open_log(log, key_file, to_write=True) as saver:
        thread = pick_threads(saver, [source], everything=False)[0]
        try:
            saver.copy_thread(source, target)
        except ThreadExistsError as error:
            raise StopError(str(error)) from error
    if as_json:
        print_json({"source": source, "target": target, "checkpoints": thread.checkpoints})
    else:
        copied = count(thread.checkpoints, "checkpoint")
        console().print(f"{copied} copied to {one_line(target)}", markup=False)
