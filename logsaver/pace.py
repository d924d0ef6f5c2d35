"""How fast work in the background goes: fast while nobody else does anything, else hardly at all.

Python runs one thread at a time. A thread that computes lets others in after 5 milliseconds,
unless it sleeps; a put takes 20 microseconds and gives way several times. So whoever works in
the background works in slices, and sleeps between them for long enough that others get in. While
others append, slices are short and sleeps long. Where many threads compute it takes long to get the
turn back after a sleep; then slices are longer, or the work would never be done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

SLICE: Final = 2e-3  # seconds
PAUSE: Final = 0.0  # gives way all the same, if somebody wants the turn
SLICE_BESIDE_OTHERS: Final = 200e-6
PAUSE_BESIDE_OTHERS: Final = 500e-6
SLICE_IN_HASTE: Final = 1e-3
LEAST_SHARE: Final = 4  # at least a slice as long as this part of the time without a turn
LONGEST_SLICE: Final = 5e-3
QUIET_AFTER: Final = 20e-3  # without an append


class StoppedError(Exception):
    """Raised inside the package in work that is to end where it is."""


class Pace:
    """Called between small steps of the work. `position` tells what changes when others work."""

    def __init__(self, position: Callable[[], int]) -> None:
        self._position = position
        self._seen = position()
        self._busy_until = 0.0
        self._slice, self._pause = SLICE_BESIDE_OTHERS, PAUSE_BESIDE_OTHERS
        self._slice_end = time.monotonic() + self._slice
        self._stop = threading.Event()

    def stop(self) -> None:
        """Let the work end at its next step."""
        self._stop.set()

    def rest(self, seconds: float) -> None:
        """Do nothing for so long, unless told to end."""
        if self._stop.wait(seconds):
            raise StoppedError

    def hasten(self) -> bool:
        """The work does not get done beside the others: give it a larger share, if there is one."""
        if self._pause == PAUSE:
            return False
        self._slice = SLICE_IN_HASTE
        self._pause = self._pause / 4 if self._pause > SLICE_BESIDE_OTHERS else PAUSE
        return True

    def __call__(self) -> None:
        now = time.monotonic()
        if now < self._slice_end:
            return
        if self._stop.is_set():
            raise StoppedError
        position = self._position()
        if position != self._seen:
            self._seen, self._busy_until = position, now + QUIET_AFTER
        is_busy = now < self._busy_until
        time.sleep(self._pause if is_busy else PAUSE)
        back = time.monotonic()
        slice_ = max(self._slice, (back - now) / LEAST_SHARE) if is_busy else SLICE
        self._slice_end = back + min(slice_, LONGEST_SLICE)
