"""The `logsaver` command. Needs the `cli` extra; importing this package does not."""

from __future__ import annotations

import sys
from typing import Final

CANNOT_START: Final = 2
HINT: Final = 'The logsaver command needs typer and rich: pip install "logsaver[cli]"\n'


def main() -> None:
    """Run the command line, or say what is missing for it."""
    try:
        from logsaver.cli.app import app  # noqa: PLC0415 - the library works without the extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "typer"):
            raise
        sys.stderr.write(HINT)
        sys.exit(CANNOT_START)
    app()
