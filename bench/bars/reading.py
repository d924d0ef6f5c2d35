"""get_tuple and delta history."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

from bench.bars import Bar, Scale
from bench.recording import Trace
from bench.replay import BY_ID, LATEST, directory, fastest, interleaved, replay, summary
from bench.savers import LOG_NEVER, MEMORY, SAVERS, SQLITE_OFF
from bench.traces import deep_delta, trace
from logsaver.logfile import LogFile


def bars(scale: Scale) -> Iterator[Bar]:
    yield _against_memory(LATEST, trace("small"), 1.5, scale)
    yield _against_memory(BY_ID, trace("small"), 2, scale)
    yield _against_memory(LATEST, trace("chat"), 1.15, scale)
    yield _delta_history(scale)
    yield _shared(trace("small"), scale)


def _shared(of: Trace, scale: Scale) -> Bar:
    """What it costs to ask, at each look, whether somebody else has appended."""
    latest = [{"configurable": {"thread_id": thread_id}} for thread_id in of.thread_ids]
    with directory() as where, SAVERS[LOG_NEVER](where) as saver:
        replay(saver, of)
        known = saver.stats().bytes

        def read() -> None:
            for config in latest:
                saver.get_tuple(config)

        def read_without_asking() -> None:
            with patch.object(LogFile, "end", lambda _: known):
                read()

        times = fastest({"asking": read, "not": read_without_asking}, 10 * scale.rounds)
    what = "get_tuple latest, file shared and nobody else there, to no look for others"
    return Bar(what, times["asking"] / times["not"], 1.1)


def _against_memory(which: str, of: Trace, limit: float, scale: Scale) -> Bar:
    results = interleaved(of, [MEMORY, LOG_NEVER], scale.rounds)
    ours, memory = (
        summary([times[which] for times in results[name]]).median for name in (LOG_NEVER, MEMORY)
    )
    what = f"get_tuple {which}, {of.name} trace, to InMemorySaver"
    return Bar(what, ours / memory, limit)


def _delta_history(scale: Scale) -> Bar:
    history = deep_delta()
    latest = history.addresses()[-1]
    with (
        directory() as one,
        directory() as other,
        SAVERS[LOG_NEVER](one) as ours,
        SAVERS[SQLITE_OFF](other) as sqlite,
    ):
        for saver in (ours, sqlite):
            replay(saver, history)
        times = fastest(
            {
                name: lambda saver=saver: saver.get_delta_channel_history(
                    config=latest, channels=["lines"]
                )
                for name, saver in (("ours", ours), ("sqlite", sqlite))
            },
            scale.rounds,
        )
    what = "delta history over 1,000 ancestors, faster than SqliteSaver"
    return Bar(what, times["sqlite"] / times["ours"], 5, at_least=True)
