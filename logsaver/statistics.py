"""What a log holds, counted from the index alone."""

from __future__ import annotations

from typing import NamedTuple

from logsaver.store import Store


class Stats(NamedTuple):
    """What a log holds."""

    path: str
    bytes: int
    synced_bytes: int
    threads: int
    checkpoints: int
    hidden_checkpoints: int
    writes: int


def stats_of(store: Store) -> Stats:
    with store.lock:
        summaries = store.view().threads.overview().summaries.values()
        return Stats(
            path=store.path,
            bytes=store.size(),
            synced_bytes=store.log.committer.synced,
            threads=sum(summary.checkpoints > 0 for summary in summaries),
            checkpoints=sum(summary.checkpoints for summary in summaries),
            hidden_checkpoints=sum(summary.hidden for summary in summaries),
            writes=sum(summary.writes for summary in summaries),
        )
