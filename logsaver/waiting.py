"""Waiting for the lock between processes: in a thread, or in an event loop.

The lock is held for microseconds, so whoever finds it taken sleeps a little and tries again,
holding nothing meanwhile. Sleeps grow from 50 microseconds to 2 milliseconds and vary, so that
several who wait do not keep step. Both kinds of sleep can be interrupted or cancelled.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from logsaver.errors import LockTimeoutError

FIRST_PAUSE: Final = 50e-6
LONGEST_PAUSE: Final = 2e-3

T = TypeVar("T")


class LockBusyError(Exception):
    """Raised inside the package when another process has the lock: wait and try again."""


class Waiting:
    """Repeats what needs the lock until it gets it, for at most `timeout` seconds."""

    def __init__(self, path: str, timeout: float, holder: Callable[[], int | None]) -> None:
        self._path = path
        self._timeout = timeout
        self._holder = holder  # the process that has the lock, where that is known

    def insist(self, attempt: Callable[[], T]) -> T:
        try:
            return attempt()
        except LockBusyError:
            pauses = self._pauses()
        while True:
            time.sleep(next(pauses))
            try:
                return attempt()
            except LockBusyError:
                continue

    async def insist_async(self, attempt: Callable[[], T]) -> T:
        """The same without blocking the event loop."""
        try:
            return attempt()
        except LockBusyError:
            pauses = self._pauses()
        while True:
            await asyncio.sleep(next(pauses))
            try:
                return attempt()
            except LockBusyError:
                continue

    def _pauses(self) -> Iterator[float]:
        deadline = time.monotonic() + self._timeout
        pause = FIRST_PAUSE
        while time.monotonic() < deadline:
            yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - only to get out of step
            pause = min(2 * pause, LONGEST_PAUSE)
        pid = self._holder()
        who = "another process" if pid is None else f"process {pid}"
        raise LockTimeoutError(
            self._path,
            f"{who} has kept this log locked for more than {self._timeout:g} seconds; nothing of "
            "this call was stored. End that process, or try again with a larger lock_timeout",
        )
