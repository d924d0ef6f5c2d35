"""Gives LangGraph's Agent Server a LogSaver."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from logsaver import LogSaver

PATH = os.environ.get("LOGSAVER_PATH", "agent.log")


@asynccontextmanager
async def make() -> AsyncIterator[LogSaver]:
    """Enter it once per event loop, as the server does: savers of one process share the file."""
    # Opening and closing touch the disk, which the server allows in threads only.
    saver = await asyncio.to_thread(LogSaver, PATH)
    try:
        yield saver
    finally:
        await saver.aclose()
