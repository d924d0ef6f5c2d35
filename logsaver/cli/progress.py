"""A progress bar with rate and time left, on stderr, and only for somebody who watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

Advance = Callable[[int, int], None]


@contextmanager
def progress_bar(what: str) -> Iterator[Advance]:
    """A function to call with the bytes done and the bytes in all."""
    watched = Console(stderr=True)
    if not watched.is_terminal:
        yield lambda _done, _total: None
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=watched,
        transient=True,
    ) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
