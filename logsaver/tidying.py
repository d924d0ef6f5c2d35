"""What a detached process does: opens the log, does what is due, and ends. See detached.py."""

from __future__ import annotations

import os

from logsaver.errors import LogSaverError
from logsaver.saver import LogSaver


def tidy(path: str) -> None:
    """Compact the log at `path` if that is due."""
    if not os.path.exists(path):
        return  # deleted since; it must not come back
    try:
        with LogSaver(path) as saver:
            saver._upkeep.wait()  # noqa: SLF001 - a part of the package
    except LogSaverError:
        raise SystemExit(1) from None  # whoever opens the log next is told
