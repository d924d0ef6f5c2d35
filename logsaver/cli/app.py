"""The commands, in the order in which help shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from logsaver import __version__
from logsaver.cli.bench import bench
from logsaver.cli.compact import compact
from logsaver.cli.copy import copy
from logsaver.cli.delete import delete
from logsaver.cli.demo import demo
from logsaver.cli.diff import diff
from logsaver.cli.export import export
from logsaver.cli.history import history
from logsaver.cli.import_ import import_
from logsaver.cli.migrate import migrate
from logsaver.cli.prune import prune
from logsaver.cli.rekey import rekey
from logsaver.cli.repair import repair
from logsaver.cli.show import show
from logsaver.cli.stats import stats
from logsaver.cli.tail import tail
from logsaver.cli.threads import threads
from logsaver.cli.verify import verify

app = typer.Typer(
    name="logsaver",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # paragraphs are filled to the width of the terminal
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Look into a log": {
        "threads": threads,
        "history": history,
        "show": show,
        "diff": diff,
        "stats": stats,
        "tail": tail,
    },
    "Check a log": {"verify": verify, "repair": repair},
    "Change a log": {
        "prune": prune,
        "delete": delete,
        "copy": copy,
        "compact": compact,
        "rekey": rekey,
    },
    "Move threads": {"export": export, "import": import_, "migrate": migrate},
    "Try logsaver": {"demo": demo, "bench": bench},
}
for panel, commands in COMMANDS.items():
    for command_name, command in commands.items():
        app.command(command_name, rich_help_panel=panel)(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"logsaver {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """A LangGraph checkpointer in one append-only file: look into a log, move it, mend it.

    Commands only read unless they say otherwise, also while others are writing. Exit codes: 0 done,
    1 a problem was found or something is not there, 2 it could not start.
    """
