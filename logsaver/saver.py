"""`LogSaver`: LangGraph's calls, sync and async, on one log.

Every method is the same three steps: turn the arguments into a record or a look-up, let the
store do it, and wait for stable storage if the mode says so. The async twins differ in the last
step only: they await it.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.arguments import check_cache_bytes, check_lock_timeout, path_of
from logsaver.bases import Bases
from logsaver.cipher import cipher_of, inner_of
from logsaver.config import (
    FSYNC_POLICIES,
    FsyncPolicy,
    address_of,
    id_to_stay_below,
    names_hidden,
    names_namespace,
    waits_for_storage,
)
from logsaver.ending import Ending
from logsaver.errors import ClosedLogError, InvalidInputError, LogKeyError
from logsaver.listing import Selection, ThreadInfo, read_list, read_threads
from logsaver.log import DEFAULT_CACHE_BYTES
from logsaver.putting import Put, putting_writes
from logsaver.reading import find, find_hidden, read_delta_history, read_tuple
from logsaver.registry import open_store, release_store
from logsaver.retention import Retention, check_retention
from logsaver.statistics import Stats, stats_of
from logsaver.store import DEFAULT_LOCK_TIMEOUT, Store
from logsaver.thinning import Call, Thinning
from logsaver.upkeep import Upkeep
from logsaver.waiting import LockBusyError


class _Handle:
    """What a saver and its clones have in common."""

    __slots__ = ("__weakref__", "closed", "store")

    def __init__(self, store: Store) -> None:
        self.store = store
        self.closed = False


class LogSaver(Thinning):
    """A LangGraph checkpointer in one append-only file.

        with LogSaver("agent.log") as saver:
            graph = builder.compile(checkpointer=saver)

    The file is made if it is not there. One saver serves sync and async callers, any thread and
    any event loop. Closing is good manners; without it the interpreter's exit does the same.

    Args:
        path: The log file. Its directory must exist.
        serde: The serializer, LangGraph's own by default. With an `EncryptedSerializer` the whole
            log is encrypted; see docs/security.md.
        fsync: "auto" follows LangGraph's durability mode; "always" waits for stable storage in
            every call; "never" leaves it to the operating system.
        read_only: Never writes, takes no lock, sees what others append.
        lock_timeout: Seconds to wait for another process that is writing; 0 tries once.
        retention: What to let go of as the log grows; nothing by default.
        auto_compact: Whether the log is compacted in the background when half of it is garbage.
        cache_bytes: How much of what was read and stored last is kept in memory, to read it again
            and to compare the next values with it.

    Savers on the same path in one process share what is open, and with it the `lock_timeout`
    and `cache_bytes` of the first of them.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        serde: SerializerProtocol | None = None,
        fsync: FsyncPolicy = "auto",
        read_only: bool = False,
        lock_timeout: float = DEFAULT_LOCK_TIMEOUT,
        retention: Retention | None = None,
        auto_compact: bool = True,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        super().__init__(serde=serde)
        if fsync not in FSYNC_POLICIES:
            raise InvalidInputError(f"fsync is one of {FSYNC_POLICIES}, not {fsync!r}")
        check_lock_timeout(lock_timeout)
        check_cache_bytes(cache_bytes)
        check_retention(retention)
        self.path = file_path = path_of(path)
        self.fsync: FsyncPolicy = fsync
        self._reopen = partial(
            type(self),
            os.path.abspath(file_path),
            fsync=fsync,
            read_only=read_only,
            lock_timeout=lock_timeout,
            retention=retention,
            auto_compact=auto_compact,
            cache_bytes=cache_bytes,
        )
        # Clones (langgraph makes them with copy.copy) share these, and so the log, the index,
        # the lock and whether it is closed.
        self._handle = _Handle(
            open_store(
                file_path,
                read_only=read_only,
                promises=fsync != "never",
                cipher=cipher_of(self.serde),
                lock_timeout=lock_timeout,
                cache_bytes=cache_bytes,
            )
        )
        store = self._handle.store
        self._bases = Bases(cache_bytes)
        self._upkeep = Upkeep(
            store,
            self._serde,
            retention=retention,
            is_automatic=auto_compact or retention is not None,
            may_detach=auto_compact and self._has_usual_serde(),
        )
        # Once: at close(), when the last clone is collected, or at the interpreter's exit.
        self._finish = Ending(self._handle, file_path, partial(_finish, self._upkeep, store, fsync))

    @classmethod
    def from_conn_string(cls, conn_string: str) -> LogSaver:
        """The same as `LogSaver(path)`, for `with` and `async with`."""
        return cls(conn_string)

    # -- reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the latest of its thread and namespace."""
        store, address = self._store, address_of(config)
        found = find(store, address)
        if found is None and names_hidden(config):
            found = find_hidden(store, address)
        return None if found is None else read_tuple(self._serde, found)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name for it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints that match, newest first; all threads if `config` is None."""
        if limit is not None and limit < 0:
            raise ValueError(f"limit is a number of checkpoints, not {limit}")
        selection = Selection(below=id_to_stay_below(before), wanted=filter or {}, limit=limit)
        if config is not None:
            address = address_of(config)
            selection = selection._replace(
                thread_id=address.thread_id,
                ns=address.ns if names_namespace(config) else None,
                checkpoint_id=address.checkpoint_id,
            )
        return self._listed(self._store, selection)

    def _listed(self, store: Store, selection: Selection) -> Iterator[CheckpointTuple]:
        # A generator of the saver's own: as long as somebody iterates, the log stays open.
        yield from read_list(store, self._serde, selection)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Per channel, the ancestors' writes and the value they start from."""
        if not channels:
            return {}
        return read_delta_history(self._store, self._serde, address_of(config), channels)

    def threads(self, prefix: str = "") -> Iterator[ThreadInfo]:
        """The threads whose id starts with `prefix`, most recently updated first."""
        return iter(read_threads(self._store, self._serde, prefix))

    def stats(self) -> Stats:
        """Counts and sizes, from the index alone."""
        return stats_of(self._store)

    # -- writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint as a child of the one that `config` names."""
        call = Put(
            self._store, self._bases, self._serde, config, checkpoint, metadata, new_versions or ()
        )
        self._do(call, waits_for_storage(self.fsync, config))
        return call.config()

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote, beside the checkpoint it started from."""
        call = putting_writes(
            self._store, self._bases, self._serde, config, writes, task_id, task_path
        )
        self._do(call, waits_for_storage(self.fsync, config))

    def flush(self) -> None:
        """Return once everything stored so far is on stable storage."""
        self._store.flush()

    def get_next_version(self, current: str | float | None, channel: None) -> str:  # noqa: ARG002
        """A version later than `current`, unlike any that another branch makes.

        The format of SqliteSaver and PostgresSaver, so that threads can move between savers.
        """
        if current is None:
            counter = 0
        elif isinstance(current, str):
            counter = int(current.split(".")[0])
        else:
            counter = int(current)
        return f"{counter + 1:032}.{random.random():016}"  # noqa: S311 - not a secret

    # -- async twins

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name for it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for found in self.list(config, filter=filter, before=before, limit=limit):
            yield found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self.get_delta_channel_history(config=config, channels=channels)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        call = Put(
            self._store, self._bases, self._serde, config, checkpoint, metadata, new_versions or ()
        )
        await self._do_async(call, waits_for_storage(self.fsync, config))
        return call.config()

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        call = putting_writes(
            self._store, self._bases, self._serde, config, writes, task_id, task_path
        )
        await self._do_async(call, waits_for_storage(self.fsync, config))

    async def aflush(self) -> None:
        """The same without blocking the event loop."""
        log, end = self._store.prepare_flush()
        await log.committer.wait_async(end)

    # -- what sync and async share: a call that is made until it is in the log

    @property
    def _waits(self) -> bool:
        """Whether deletes, copies and prunes wait: nobody runs them in the background."""
        return self.fsync != "never"

    def _do(self, call: Call, waits: bool) -> None:
        try:
            log, _, _, end = call()
        except LockBusyError:
            log, _, _, end = self._store.waiting.insist(call)
        if end > self._upkeep.look_at:
            self._upkeep.look()
        if waits:
            log.committer.wait(end)
        elif self.fsync != "never":
            log.committer.start()

    async def _do_async(self, call: Call, waits: bool) -> None:
        log, _, _, end = await self._store.waiting.insist_async(call)
        if end > self._upkeep.look_at:
            self._upkeep.look()
        if waits:
            await log.committer.wait_async(end)
        elif self.fsync != "never":
            log.committer.start()

    # -- life cycle

    @property
    def _serde(self) -> SerializerProtocol:
        """What makes values. Where whole frames are encrypted, it does not do that once more."""
        serde = self.serde  # langgraph gives it to clones that it makes
        return serde if self._handle.store.log.encryption is None else inner_of(serde)

    @property
    def _store(self) -> Store:
        handle = self._handle
        if handle.closed:
            raise ClosedLogError(self.path, "this saver is closed; open the log again to use it")
        return handle.store

    def close(self) -> None:
        """Sync what is left and let go of the file. May be called twice."""
        self._handle.closed = True
        self._finish()

    async def aclose(self) -> None:
        """The same without blocking the event loop."""
        try:
            if not self._handle.closed:
                await asyncio.to_thread(self._store.seal)
                if self.fsync != "never" and self._store.is_dirty():
                    await self.aflush()
        finally:
            self.close()

    def __enter__(self) -> LogSaver:
        self._store  # noqa: B018 - raises if it is closed
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> LogSaver:
        return self.__enter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __copy__(self) -> LogSaver:
        """A clone on the same open log; LangGraph makes them."""
        clone = type(self).__new__(type(self))
        clone.__dict__.update(self.__dict__)
        return clone

    def __reduce__(self) -> tuple[Callable[[], LogSaver], tuple[()]]:
        """For `multiprocessing`: the other process opens the log anew."""
        if not self._has_usual_serde():
            raise TypeError(
                f"{self!r} has a serializer of its own and cannot be handed to another process; "
                "hand over its path, and open the log in the other process"
            )
        return self._reopen, ()

    def _has_usual_serde(self) -> bool:
        return self.serde is BaseCheckpointSaver.serde

    def __repr__(self) -> str:
        # Shown by tools that print a traceback's variables, also if it could not be opened.
        handle: _Handle | None = getattr(self, "_handle", None)
        state = " (closed)" if handle is None or handle.closed else ""
        return f"LogSaver({getattr(self, 'path', None)!r}){state}"


def _finish(upkeep: Upkeep, store: Store, fsync: FsyncPolicy) -> None:
    upkeep.stop()
    sync = fsync != "never"
    try:
        # What is not known to be safe cannot be told from a torn tail, so a seal is synced always.
        with suppress(LogKeyError):  # whoever gave it another key has synced all of it
            sync |= store.seal()
            if sync and store.is_dirty():
                store.flush()
    finally:
        release_store(store, sync=sync)
