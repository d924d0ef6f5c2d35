"""The arguments and options that several commands share, and the exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from logsaver import LogSaver, LogSaverError

OK: Final = 0
PROBLEM: Final = 1
CANNOT_START: Final = 2

COMPLETIONS: Final = 100


def complete_thread(context: typer.Context, incomplete: str) -> list[str]:
    """Thread ids of the log that is already on the command line; none if that cannot be read."""
    try:
        with LogSaver(context.params["log"], read_only=True) as saver:
            found = [thread.thread_id for thread in saver.threads(incomplete)]
    except (LogSaverError, KeyError, TypeError):
        return []
    return found[:COMPLETIONS]


Log = Annotated[Path, typer.Argument(help="The log file.", metavar="LOG", show_default=False)]
Thread = Annotated[
    str,
    typer.Argument(
        help="The thread's id.",
        metavar="THREAD",
        show_default=False,
        autocompletion=complete_thread,
    ),
]
Threads = Annotated[
    list[str] | None,
    typer.Argument(
        help="The ids of threads.",
        metavar="[THREAD]...",
        show_default=False,
        autocompletion=complete_thread,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help="The key of an encrypted log; otherwise LANGGRAPH_AES_KEY.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
