"""A progress bar with rate and time left, on stderr, and only for somebody who watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

Advance = Callable[[int, int | None], None]
"""To be called with what is done, and what there is in all if that is known."""


@contextmanager
def progress_bar(what: str, unit: str = "") -> Iterator[Advance]:
    """A function that moves the bar. It counts bytes, or else units of a name."""
    watched = Console(stderr=True)
    if not watched.is_terminal:
        yield lambda _done, _total: None
        return
    counted = [DownloadColumn(), TransferSpeedColumn()] if not unit else _columns_for(unit)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        *counted,
        TimeRemainingColumn(),
        console=watched,
        transient=True,
    ) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _columns_for(unit: str) -> list[ProgressColumn]:
    return [MofNCompleteColumn(), TextColumn(unit), _RateColumn()]


class _RateColumn(ProgressColumn):
    """Units per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.1f}/s", style="progress.data.speed")
