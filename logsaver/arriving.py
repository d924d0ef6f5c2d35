"""What others put into a log while somebody looks on, in the order of the file."""

from __future__ import annotations

from collections.abc import Iterator

from logsaver.index import Key, key_of
from logsaver.log import Log
from logsaver.record import CheckpointRecord
from logsaver.recovery import frames_past_hints
from logsaver.saver import LogSaver


class Arrivals:
    """The checkpoints that are put from now on. Goes by position: ids need not come in order.

    For a saver that only reads: who replaces the log itself gets what the copy has once more.
    When the log is replaced, the rest of the old file comes first, and then what the new one has
    behind its mark. That includes what was put while it was being copied, so what the old index
    knows is left out. If it is replaced twice between two looks, the file between is not seen.
    """

    def __init__(self, saver: LogSaver) -> None:
        self._store = saver._store  # noqa: SLF001 - a part of the package
        with self._store.lock:
            self._index = self._store.view()
            self._log, self._end = self._store.log, self._store.size()

    def __iter__(self) -> Iterator[Key]:
        """What has come since the last time."""
        store, before, known = self._store, self._log, self._index
        with store.lock:
            self._index = store.view()
            self._log, end = store.log, store.size()
            mark = store._named_upto  # noqa: SLF001 - a part of the package
        start, self._end = self._end, end
        if self._log.file.identity == before.file.identity:
            yield from _put(self._log, start, end)
            return
        yield from _put(before, start, before.file.end())
        for key in _put(self._log, mark, end):
            with store.lock:
                ns = known.namespace(key.thread_id, key.ns)
            if ns is None or ns.find(key.checkpoint_id) is None:
                yield key


def _put(log: Log, start: int, end: int) -> Iterator[Key]:
    """Of frames that the store has followed, or whose file gets no more; so without a lock."""
    for frame in frames_past_hints(log.file, seed=log.seed, start=start, previous=None):
        if frame.offset >= end:
            return
        record = log.decode(frame)
        if isinstance(record, CheckpointRecord):
            yield key_of(record)
