"""What a command-line tool waits for before its first line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from bench.bars import Bar, Scale

IMPORT = """
import time
import langgraph.checkpoint.base
start = time.perf_counter()
import logsaver
print(time.perf_counter() - start)
"""


def bars(scale: Scale) -> Iterator[Bar]:
    times = [
        float(
            subprocess.run(
                [sys.executable, "-c", IMPORT],
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},  # as installed: compiled once
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for _ in range(4 * scale.rounds)
    ]
    what = "import of logsaver beyond langgraph-checkpoint's"
    yield Bar(what, min(times) * 1e3, 15, "ms")
