"""What ends a saver that nobody closes: the collector, or the interpreter's exit.

The collector runs in the middle of any code that allocates, ours included, in the thread that
runs that code. Whatever waited there for a lock of ours could wait for its own thread, for ever.
So the collector only starts a thread that does the work. The exit does the work itself, and
waits for those threads: a daemon thread is cut off in the middle of its sync otherwise.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable

logger = logging.getLogger("logsaver")


class Ending:
    """Does `finish` once: when called, after `owner` is collected, or at the exit at the latest."""

    def __init__(self, owner: object, path: str, finish: Callable[[], None]) -> None:
        self._path = path
        self._finish: Callable[[], None] | None = finish
        # Whoever comes second returns when it is done; a signal handler in the same thread at once.
        self._turn = threading.RLock()
        self._owner = weakref.ref(owner, self._hand_over)
        _to_come[self] = None

    def __call__(self) -> None:
        with self._turn:
            finish, self._finish = self._finish, None
            try:
                if finish is not None:
                    finish()
            finally:
                _to_come.pop(self, None)

    def forget_other_threads(self) -> None:
        self._turn = threading.RLock()

    def quietly(self) -> None:
        """The same where nobody is there to catch an error."""
        try:
            self()
        except Exception:
            logger.exception("%s: a saver that was not closed could not be finished", self._path)

    def _hand_over(self, owner: object) -> None:  # noqa: ARG002 - a weakref passes itself
        """Runs in the collector: takes no lock, waits for nothing."""
        if self._finish is not None:
            # Not `threading.Thread`: to start one takes locks and waits for it to run.
            with contextlib.suppress(RuntimeError):  # out of threads: the exit does it
                _thread.start_new_thread(self.quietly, ())


_to_come: dict[Ending, None] = {}


def _after_fork_in_child() -> None:
    """A thread that is in the middle of one here is not there in the child."""
    for ending in _to_come:
        ending.forget_other_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


@atexit.register
def _finish_all() -> None:
    for ending in reversed(list(_to_come)):
        ending.quietly()
