"""The commands and the options that all of them share."""

from __future__ import annotations

from typing import Annotated

import typer

from logsaver import __version__
from logsaver.cli.demo import demo

app = typer.Typer(
    name="logsaver",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(demo)


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
    """A LangGraph checkpointer in one append-only file."""
