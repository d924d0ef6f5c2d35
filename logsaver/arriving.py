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
    behind its copy of it. Only if it is replaced twice between two looks, the one between is gone.
    """

    def __init__(self, saver: LogSaver) -> None:
        self._store = saver._store  # noqa: SLF001 - a part of the package
        with self._store.lock:
            self._store.view()
            self._log, self._end = self._store.log, self._store.size()

    def __iter__(self) -> Iterator[Key]:
        """What has come since the last time."""
        store, before = self._store, self._log
        with store.lock:
            store.view()
            self._log, end = store.log, store.size()
            is_same = self._log.file.identity == before.file.identity
            copied = store._named_upto  # noqa: SLF001 - a part of the package
        if not is_same:
            yield from self._put(before, self._end, before.file.end())
            self._end = copied
        start, self._end = self._end, end
        yield from self._put(self._log, start, end)

    @staticmethod
    def _put(log: Log, start: int, end: int) -> Iterator[Key]:
        """Of frames that the store has followed, or whose file gets no more; so without a lock."""
        for frame in frames_past_hints(log.file, seed=log.seed, start=start, previous=None):
            if frame.offset >= end:
                return
            record = log.decode(frame)
            if isinstance(record, CheckpointRecord):
                yield key_of(record)
