"""Bytes on disk. These do not depend on the machine."""

from __future__ import annotations

from collections.abc import Iterator

from langgraph.checkpoint.serde.base import SerializerProtocol

from bench.bars import Bar, Scale
from bench.recording import WRITING, Trace
from bench.replay import directory, replay
from bench.traces import long_chat, trace
from logsaver import LogSaver

TURNS = 100


def bars(scale: Scale) -> Iterator[Bar]:
    yield Bar("size of the 100-turn chat", log_size(trace("chat")) / 1e6, 1.2, "MB")
    yield Bar("size of the document run", log_size(trace("document")) / 1e6, 3.3, "MB")
    yield Bar("copy_thread of the chat, of its bytes", 100 * _copy(trace("chat")), 5, "%")
    if scale.deep:
        what = "1,000-turn chat, bytes of the last 100 turns to the first 100"
        yield Bar(what, _growth(long_chat()), 1.5)


def log_size(of: Trace, serde: SerializerProtocol | None = None) -> int:
    with directory() as where:
        with LogSaver(where / "agent.log", serde=serde, fsync="never") as saver:
            replay(saver, of)
        return (where / "agent.log").stat().st_size


def _copy(of: Trace) -> float:
    """What a copy adds, as a share of what was there."""
    with directory() as where, LogSaver(where / "agent.log", fsync="never") as saver:
        replay(saver, of)
        before = saver.stats().bytes
        saver.copy_thread(of.thread_ids[0], "a copy")
        return (saver.stats().bytes - before) / before


def _growth(of: Trace) -> float:
    """A turn begins with a get_tuple."""
    with directory() as where, LogSaver(where / "agent.log", fsync="never") as saver:
        ends = []
        for method, args in of.calls:
            if method in WRITING:
                getattr(saver, method)(*args)
            else:
                ends.append(saver.stats().bytes)
        ends.append(saver.stats().bytes)
    return (ends[-1] - ends[-1 - TURNS]) / (ends[TURNS] - ends[0])
