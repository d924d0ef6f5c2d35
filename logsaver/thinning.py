"""The calls that take something away, and those that say what would go: a part of `LogSaver`.

All of them are planned on the index under the store's lock, and are one record each. What they take
away is gone for every reader at once; its bytes are given back by the next compaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.compacting import Progress
from logsaver.index import Index
from logsaver.log import Log
from logsaver.preview import Preview, preview_of
from logsaver.record import CopyRecord, DeleteRecord, ForgetRecord
from logsaver.removing import copy_record, delete_record, forget_runs_record, prune_record
from logsaver.store import Appended, Store
from logsaver.upkeep import Compaction, Upkeep

KEEP_LATEST: Final = "keep_latest"
DELETE_STRATEGIES: Final = ("delete", "delete_all")

Call = Callable[[], Appended]
Pruning = Callable[[Log, Index], "DeleteRecord | ForgetRecord | None"]
Plan = Pruning | Callable[[Log, Index], "CopyRecord | None"]


class Thinning(BaseCheckpointSaver[str]):
    """A saver whose threads can be deleted, copied, pruned and compacted."""

    _upkeep: Upkeep

    if TYPE_CHECKING:  # by LogSaver

        @property
        def _serde(self) -> SerializerProtocol: ...

        @property
        def _store(self) -> Store: ...

        @property
        def _waits(self) -> bool: ...

        def _do(self, call: Call, waits: bool) -> None: ...

        async def _do_async(self, call: Call, waits: bool) -> None: ...

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread: all namespaces, checkpoints and writes."""
        self._do(self._delete([thread_id]), self._waits)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints and writes of these runs, in whatever thread."""
        self._do(self._delete_for_runs(run_ids), self._waits)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Make a new thread with everything the source has. Stores references, no values."""
        self._do(self._copy_thread(source_thread_id, target_thread_id), self._waits)

    def prune(  # type: ignore[override]  # LangGraph's returns None, and so does this by default
        self, thread_ids: Sequence[str], *, strategy: str = KEEP_LATEST, dry_run: bool = False
    ) -> Preview | None:
        """Keep the latest checkpoint of each namespace, or ("delete") nothing.

        With `dry_run` nothing changes, and what would go is returned.
        """
        plan = self._pruning(thread_ids, strategy)
        if dry_run:
            return self._preview(plan)
        self._do(self._change(plan), self._waits)
        return None

    def retention_preview(self) -> Preview:
        """What the retention rule would let go of now."""
        self._store  # noqa: B018 - raises if it is closed
        return self._upkeep.preview()

    def compact(self, *, progress: Progress | None = None) -> Compaction:
        """Give back the space of what was deleted, pruned or replaced; others go on meanwhile.

        `progress` is called with the bytes done and those of the log.
        """
        self._store  # noqa: B018 - raises if it is closed
        return self._upkeep.compact(progress)

    # -- async twins

    async def adelete_thread(self, thread_id: str) -> None:
        await self._do_async(self._delete([thread_id]), self._waits)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._do_async(self._delete_for_runs(run_ids), self._waits)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        call = self._copy_thread(source_thread_id, target_thread_id)
        await self._do_async(call, self._waits)

    async def aprune(  # type: ignore[override]  # see prune
        self, thread_ids: Sequence[str], *, strategy: str = KEEP_LATEST, dry_run: bool = False
    ) -> Preview | None:
        plan = self._pruning(thread_ids, strategy)
        if dry_run:
            return self._preview(plan)
        await self._do_async(self._change(plan), self._waits)
        return None

    async def aretention_preview(self) -> Preview:
        return self.retention_preview()

    async def acompact(self, *, progress: Progress | None = None) -> Compaction:
        """The same in a thread, which also calls `progress`; cancelled, the log is as before."""
        self._store  # noqa: B018 - raises if it is closed
        pace = self._upkeep.new_pace()
        try:
            return await asyncio.to_thread(self._upkeep.compact, progress, pace)
        finally:
            self._upkeep.drop(pace)

    # -- what sync and async share

    def _delete(self, thread_ids: Sequence[str]) -> Call:
        names = [str(thread_id) for thread_id in thread_ids]
        return self._change(lambda _, index: delete_record(index, names))

    def _delete_for_runs(self, run_ids: Sequence[str]) -> Call:
        names = set(_names(run_ids, "run_ids"))
        return self._change(lambda log, index: forget_runs_record(log, index, self._serde, names))

    def _copy_thread(self, source: str, target: str) -> Call:
        return self._change(lambda _, index: copy_record(index, str(source), str(target)))

    def _pruning(self, thread_ids: Sequence[str], strategy: str) -> Pruning:
        names = _names(thread_ids, "thread_ids")
        if strategy in DELETE_STRATEGIES:
            return lambda _, index: delete_record(index, names)
        if strategy != KEEP_LATEST:
            raise ValueError(
                f"unknown prune strategy {strategy!r}; there are {KEEP_LATEST!r} and 'delete'"
            )
        return lambda log, index: prune_record(log, index, self._serde, names)

    def _preview(self, plan: Pruning) -> Preview:
        store = self._store
        with store.lock:
            index = store.view()
            return preview_of(index, plan(store.log, index))

    def _change(self, plan: Plan) -> Call:
        self._upkeep.look_soon()
        return partial(self._store.change, plan)


def _names(values: Collection[str], what: str) -> list[str]:
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{what} is a sequence of ids, not one {type(values).__name__}")
    return [str(value) for value in values]
