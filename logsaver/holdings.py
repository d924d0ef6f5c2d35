"""What a saver holds, with what LangGraph's interface does not tell.

A `CheckpointTuple` has neither the task paths of its writes, nor writes that wait for a
checkpoint, nor checkpoints that are there only for their descendants. For the savers known here
they are read where they are stored; of any other saver, what its `list` shows is what there is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    PendingWrite,
)

from logsaver.codec import load
from logsaver.config import Address
from logsaver.index import Key
from logsaver.reading import find, find_hidden, read_tuple, read_writes, value_of_write
from logsaver.saver import LogSaver


class Place(NamedTuple):
    """Where a checkpoint is in its thread."""

    ns: str
    checkpoint_id: str


class Slot(NamedTuple):
    """Where a write is beside its checkpoint; special channels have negative numbers."""

    task_id: str
    number: int


class HeldWrite(NamedTuple):
    """A pending write with all that decides its order."""

    slot: Slot
    task_path: str
    channel: str
    value: Any


class Holdings(Protocol):
    """What can be asked of any saver."""

    tells_slots: bool
    """Whether slots are those it stores; else they are numbered as its writes are listed."""

    def threads(self) -> list[str]:
        """Threads that have a checkpoint."""
        ...

    def checkpoints(self, thread_id: str) -> dict[Place, str | None]:
        """All of a thread, each with its parent's id."""
        ...

    def slots(self, thread_id: str) -> dict[Place, set[Slot]]:
        """Where the thread has writes, also for checkpoints that are not there (yet)."""
        ...

    def writes(self, thread_id: str, place: Place) -> list[HeldWrite]:
        """In no particular order."""
        ...

    def read(self, thread_id: str, place: Place) -> CheckpointTuple | None:
        """The checkpoint itself."""
        ...


def holdings_of(saver: BaseCheckpointSaver[Any]) -> Holdings:
    """How to look into this saver."""
    if isinstance(saver, LogSaver):
        return _LogHoldings(saver)
    # Whoever has such a saver has imported its module; nobody else needs it installed.
    if _is_a(saver, "langgraph.checkpoint.sqlite", "SqliteSaver"):
        return _SqliteHoldings(saver)
    if _is_a(saver, "langgraph.checkpoint.postgres", "PostgresSaver"):
        return _PostgresHoldings(saver)
    return _ListedHoldings(saver)


def keeps_values_by_version(saver: BaseCheckpointSaver[Any]) -> bool:
    """Whether two checkpoints with the same version of a channel may share one stored value."""
    return not isinstance(saver, LogSaver) and not _is_a(
        saver, "langgraph.checkpoint.sqlite", "SqliteSaver"
    )


def is_known(saver: BaseCheckpointSaver[Any]) -> bool:
    """Whether it is one of those that hand every value to the serializer they have."""
    return isinstance(saver, LogSaver) or any(
        _is_a(saver, f"langgraph.checkpoint.{module}", name)
        for module, name in (
            ("memory", "InMemorySaver"),
            ("postgres", "PostgresSaver"),
            ("sqlite", "SqliteSaver"),
        )
    )


def is_postgres(saver: BaseCheckpointSaver[Any]) -> bool:
    """Whether it is PostgresSaver or its async twin."""
    return _is_a(saver, "langgraph.checkpoint.postgres.base", "BasePostgresSaver")


def _is_a(saver: BaseCheckpointSaver[Any], module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(saver, kind)


def config_of(thread_id: str, place: Place, **more: Any) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": place.ns,
            "checkpoint_id": place.checkpoint_id,
            **more,
        }
    }


def _by_place(rows: Iterable[tuple[str, str, str, int]]) -> dict[Place, set[Slot]]:
    found: dict[Place, set[Slot]] = {}
    for ns, checkpoint_id, task_id, number in rows:
        found.setdefault(Place(ns, checkpoint_id), set()).add(Slot(task_id, number))
    return found


# -- a log


class _LogHoldings:
    """Of a log: hidden checkpoints too, since others are rebuilt from them."""

    tells_slots = True

    def __init__(self, saver: LogSaver) -> None:
        self._serde = saver._serde  # noqa: SLF001 - what makes values, not what encrypts frames
        self._store = saver._store  # noqa: SLF001 - the same package

    def threads(self) -> list[str]:
        with self._store.lock:
            return sorted(name for name, _ in self._store.view().with_prefix(""))

    def checkpoints(self, thread_id: str) -> dict[Place, str | None]:
        with self._store.lock:
            thread = self._store.view().threads.get(thread_id)
            return {
                # A parent that is gone is no parent, as in `get_tuple`.
                Place(name, checkpoint_id): entry.parent_id
                if entry.parent_id is not None and ns.find(entry.parent_id)
                else None
                for name, ns in (thread.namespaces.items() if thread else ())
                for entries in (ns.listed, ns.hidden)
                for checkpoint_id, entry in entries.items()
            }

    def slots(self, thread_id: str) -> dict[Place, set[Slot]]:
        store = self._store
        with store.lock:
            log, thread = store.log, store.view().threads.get(thread_id)
            entries = {
                Place(name, checkpoint_id): ns.writes_of(checkpoint_id)
                for name, ns in (thread.namespaces.items() if thread else ())
                for checkpoint_id in ns.writes
            }
        return {
            place: {Slot(write.task_id, write.order[2]) for write in read_writes(log, found)}
            for place, found in entries.items()
        }

    def writes(self, thread_id: str, place: Place) -> list[HeldWrite]:
        store = self._store
        with store.lock:
            ns = store.view().namespace(thread_id, place.ns)
            log = store.log
            entries = () if ns is None else ns.writes_of(place.checkpoint_id)
        key = Key(place.checkpoint_id, thread_id, place.ns)
        return [
            HeldWrite(
                Slot(write.task_id, write.order[2]),
                write.order[0],
                write.channel,
                load(
                    self._serde,
                    value_of_write(log, write),
                    key,
                    "the write to channel",
                    write.channel,
                ),
            )
            for write in read_writes(log, entries)
        ]

    def read(self, thread_id: str, place: Place) -> CheckpointTuple | None:
        address = Address(thread_id, *place)
        found = find(self._store, address) or find_hidden(self._store, address)
        return None if found is None else read_tuple(self._serde, found)


# -- SQLite


class _SqliteHoldings:
    """Of the tables that SqliteSaver makes; older ones have no column `task_path`."""

    tells_slots = True

    def __init__(self, saver: Any) -> None:
        self._saver = saver

    def _rows(self, query: str, *values: str) -> list[Any]:
        with self._saver.cursor(transaction=False) as cursor:
            rows: list[Any] = cursor.execute(query, values).fetchall()
            return rows

    def threads(self) -> list[str]:
        return [name for (name,) in self._rows("SELECT DISTINCT thread_id FROM checkpoints")]

    def checkpoints(self, thread_id: str) -> dict[Place, str | None]:
        rows = self._rows(
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints "
            "WHERE thread_id = ?",
            thread_id,
        )
        return {Place(ns, checkpoint_id): parent_id for ns, checkpoint_id, parent_id in rows}

    def slots(self, thread_id: str) -> dict[Place, set[Slot]]:
        return _by_place(
            self._rows(
                "SELECT checkpoint_ns, checkpoint_id, task_id, idx FROM writes WHERE thread_id = ?",
                thread_id,
            )
        )

    def writes(self, thread_id: str, place: Place) -> list[HeldWrite]:
        columns = {row[1] for row in self._rows("PRAGMA table_info(writes)")}
        path = "task_path" if "task_path" in columns else "''"
        rows = self._rows(
            f"SELECT task_id, idx, {path}, channel, type, value FROM writes "  # noqa: S608 - ours
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
            thread_id,
            *place,
        )
        return [
            HeldWrite(Slot(row[0], row[1]), row[2], row[3], self._saver.serde.loads_typed(row[4:]))
            for row in rows
        ]

    def read(self, thread_id: str, place: Place) -> CheckpointTuple | None:
        found: CheckpointTuple | None = self._saver.get_tuple(config_of(thread_id, place))
        return found


# -- PostgreSQL


class _PostgresHoldings:
    """Of the tables that PostgresSaver makes."""

    tells_slots = True

    def __init__(self, saver: Any) -> None:
        self._saver = saver

    def _rows(self, query: str, *values: str) -> list[Sequence[Any]]:
        with self._saver._cursor() as cursor:  # noqa: SLF001 - takes its lock and a connection
            cursor.execute(query, values)
            return [tuple(row.values()) for row in cursor.fetchall()]

    def threads(self) -> list[str]:
        return [name for (name,) in self._rows("SELECT DISTINCT thread_id FROM checkpoints")]

    def checkpoints(self, thread_id: str) -> dict[Place, str | None]:
        rows = self._rows(
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints "
            "WHERE thread_id = %s",
            thread_id,
        )
        return {Place(ns, checkpoint_id): parent_id for ns, checkpoint_id, parent_id in rows}

    def slots(self, thread_id: str) -> dict[Place, set[Slot]]:
        rows = self._rows(
            "SELECT checkpoint_ns, checkpoint_id, task_id, idx FROM checkpoint_writes "
            "WHERE thread_id = %s",
            thread_id,
        )
        return _by_place((row[0], row[1], row[2], row[3]) for row in rows)

    def writes(self, thread_id: str, place: Place) -> list[HeldWrite]:
        rows = self._rows(
            "SELECT task_id, idx, task_path, channel, type, blob FROM checkpoint_writes "
            "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s",
            thread_id,
            *place,
        )
        loads = self._saver.serde.loads_typed
        return [
            HeldWrite(Slot(row[0], row[1]), row[2], row[3], loads((row[4], row[5]))) for row in rows
        ]

    def read(self, thread_id: str, place: Place) -> CheckpointTuple | None:
        found: CheckpointTuple | None = self._saver.get_tuple(config_of(thread_id, place))
        return found


# -- any other saver


class _ListedHoldings:
    """Of a saver that only LangGraph's own interface is known of."""

    tells_slots = False

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self._saver = saver

    def _listed(self, config: RunnableConfig | None) -> Iterator[CheckpointTuple]:
        with closing(_generator(self._saver.list(config))) as found:
            yield from found

    def threads(self) -> list[str]:
        names = {str(found.config["configurable"]["thread_id"]) for found in self._listed(None)}
        return sorted(names)

    def checkpoints(self, thread_id: str) -> dict[Place, str | None]:
        return {
            _place_of(found.config): found.parent_config["configurable"]["checkpoint_id"]
            if found.parent_config
            else None
            for found in self._listed({"configurable": {"thread_id": thread_id}})
        }

    def slots(self, thread_id: str) -> dict[Place, set[Slot]]:
        return {
            _place_of(found.config): {write.slot for write in held_in_order(found.pending_writes)}
            for found in self._listed({"configurable": {"thread_id": thread_id}})
            if found.pending_writes
        }

    def writes(self, thread_id: str, place: Place) -> list[HeldWrite]:
        found = self.read(thread_id, place)
        return held_in_order(found.pending_writes if found else None)

    def read(self, thread_id: str, place: Place) -> CheckpointTuple | None:
        return self._saver.get_tuple(config_of(thread_id, place))


def _generator(found: Iterator[CheckpointTuple]) -> Any:
    return (item for item in found)


def _place_of(config: RunnableConfig) -> Place:
    configurable = config["configurable"]
    return Place(configurable.get("checkpoint_ns", ""), configurable["checkpoint_id"])


def held_in_order(pending: Sequence[PendingWrite] | None) -> list[HeldWrite]:
    """Writes as a saver lists them, with slots and paths that give the same order again.

    Their own paths are not known. Without any they sort by task id; where that is another order
    than the given one, the position of a task's first write takes the path's place.
    """
    numbers: dict[str, int] = {}
    positions: dict[str, int] = {}
    held: list[HeldWrite] = []
    for task_id, channel, value in pending or ():
        position = positions.setdefault(task_id, len(positions))
        number = WRITES_IDX_MAP.get(channel)
        if number is None:
            number = numbers.get(task_id, 0)
            numbers[task_id] = number + 1
        held.append(HeldWrite(Slot(task_id, number), f"{position:06}", channel, value))
    slots = [write.slot for write in held]
    if slots == sorted(slots):
        return [write._replace(task_path="") for write in held]
    return held
