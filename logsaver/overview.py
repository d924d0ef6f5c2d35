"""What can be told of all threads without their checkpoints: for `threads`, `stats` and `list`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from sortedcontainers import SortedList

from logsaver.thread import Summary, Thread

FEW: Final = 500  # changes that are cheaper to sort in than to sort everything


class Overview:
    """Each thread's summary, and the threads in the order of their newest checkpoint."""

    __slots__ = ("_by_newest", "summaries")

    def __init__(self, summaries: dict[str, Summary]) -> None:
        self.summaries = summaries
        self._by_newest: SortedList[tuple[str, str]] | None = None  # made when first asked for

    def take_in(self, touched: Collection[str], threads: Mapping[str, Thread]) -> None:
        """Of what was touched, `threads` has what is not gone."""
        if len(touched) > FEW:
            self._by_newest = None
        order, summaries = self._by_newest, self.summaries
        for thread_id in touched:
            before = summaries.pop(thread_id, None)
            if order is not None and before is not None and before.checkpoints:
                order.remove((before.newest, thread_id))
            thread = threads.get(thread_id)
            if thread is not None:
                summary = summaries[thread_id] = thread.summary()
                if order is not None and summary.checkpoints:
                    order.add((summary.newest, thread_id))

    def by_newest(self) -> list[tuple[str, str]]:
        """The newest id of each thread that has one, and the thread's; the newest of all last."""
        if self._by_newest is None:
            self._by_newest = SortedList(
                (summary.newest, thread_id)
                for thread_id, summary in self.summaries.items()
                if summary.checkpoints
            )
        return list(self._by_newest)

    def _check(self) -> None:
        if self._by_newest is not None:
            assert self.by_newest() == sorted(
                (summary.newest, thread_id)
                for thread_id, summary in self.summaries.items()
                if summary.checkpoints
            )
