"""A process of its own that goes on with what a short one had no time for; like `git gc --auto`.

A tool that is run for one step at a time ends before a compaction does, every time. So when it
ends in the middle of one, it leaves that to a child: with no terminal, no open file and no
directory of its parent, at a low priority, and nobody waits for it. The child opens the log and
does what is due as any saver would, so it is in nobody's way, and if two of them are started one
does nothing.

It is started only where a Python interpreter is known to be one: an application that was frozen
into an executable would be started again as itself.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import Final

logger = logging.getLogger("logsaver")

# The parent's path and nothing from the environment or the working directory: a child that runs
# in the background must run this package, whatever lies around.
_CODE: Final = """
import os, sys
os.nice(10)
sys.path[:] = sys.argv[2:]
from logsaver.tidying import tidy
tidy(sys.argv[1])
"""


def go_on_in_child(path: str) -> bool:
    """Start it. False where that is not possible."""
    if not _can_start():
        return False
    paths = [os.path.abspath(each) for each in sys.path if each]
    command = [sys.executable, "-I", "-c", _CODE, os.path.abspath(path), *paths]
    try:
        subprocess.run(  # noqa: S603 - our own interpreter and code
            # The shell ends at once, and leaves nobody behind for whom we would have to wait.
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.info("%s: no process could be started to compact it (%s)", path, error)
        return False
    return True


def _can_start() -> bool:
    name = os.path.basename(sys.executable or "")
    return os.name == "posix" and not hasattr(sys, "frozen") and name.startswith(("python", "pypy"))
