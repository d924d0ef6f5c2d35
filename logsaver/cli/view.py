"""A stored checkpoint decoded as far as it can be: its state, its step, and what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver import LogSaver, StoredCheckpoint, StoredValue, stored
from logsaver.cli.opening import StopError

LATEST: Final = "latest"
SHORTEST_ID: Final = 8

# LangGraph's names for channels that steer a graph and hold none of its state.
_INTERRUPT: Final = "__interrupt__"
_ERROR: Final = "__error__"
_RESUME: Final = "__resume__"
_SENDS: Final = "__pregel_tasks"
_START: Final = "__start__"
_TO_NODE: Final = ("branch:", "start:")
_JOIN: Final = "join:"


@dataclass(frozen=True)
class Raw:
    """A value that cannot be decoded."""

    value: StoredValue
    reason: str

    def __str__(self) -> str:
        data = self.value.data
        more = "…" if len(data) > 24 else ""
        return (
            f"raw {self.value.type!r}, {len(data):,} bytes: {data[:24].hex(' ')}{more} "
            f"({self.reason})"
        )


def decode(serde: SerializerProtocol, value: StoredValue) -> Any:
    """The value, or `Raw` with the reason why not."""
    try:
        return serde.loads_typed((value.type, value.data))
    except Exception as error:  # noqa: BLE001 - a serializer may raise anything
        return Raw(value, f"{type(error).__name__}: {error}" if str(error) else repr(error))


class Interruption(NamedTuple):
    """A question to a human."""

    value: Any
    answered: bool


class View:
    """One checkpoint, decoded when asked."""

    def __init__(self, serde: SerializerProtocol, found: StoredCheckpoint) -> None:
        self.stored = found
        self._serde = serde

    @property
    def id(self) -> str:
        return self.stored.checkpoint_id

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Empty if it cannot be decoded."""
        found = decode(self._serde, self.stored.metadata)
        return found if isinstance(found, dict) else {}

    @cached_property
    def body(self) -> dict[str, Any]:
        found = decode(self._serde, self.stored.checkpoint)
        return found if isinstance(found, dict) else {}

    @cached_property
    def values(self) -> dict[str, Any]:
        """Every channel that has a value, decoded or `Raw`."""
        return {name: decode(self._serde, value) for name, value in self.stored.channels.items()}

    @property
    def state(self) -> dict[str, Any]:
        """The channels that are the graph's state."""
        return {name: value for name, value in self.values.items() if not is_internal(name)}

    @property
    def time(self) -> datetime | None:
        """When it was made; None if it does not say."""
        try:
            return datetime.fromisoformat(str(self.body.get("ts")).replace("Z", "+00:00"))
        except ValueError:
            return None

    @property
    def step(self) -> Any:
        """A number; None if it is not known."""
        return self.metadata.get("step")

    @property
    def source(self) -> str:
        return str(self.metadata.get("source", "?"))

    @cached_property
    def writes(self) -> list[tuple[str, str, Any]]:
        """Task id, channel and value of each pending write."""
        return [
            (write.task_id, write.channel, decode(self._serde, write.value))
            for write in self.stored.writes
        ]

    # -- what comes next

    @property
    def next_nodes(self) -> list[str]:
        """What this checkpoint has triggered, by the channels LangGraph leaves for it.

        Where they do not tell, the tasks that have left writes do.
        """
        nodes = []
        for name in self.stored.channels:
            if name == _START:
                nodes.append(_START)
            elif name == _SENDS:
                nodes += [str(getattr(send, "node", "?")) for send in _items(self.values[name])]
            elif name.startswith(_TO_NODE):
                nodes.append(name.rpartition(":")[2])
            elif name.startswith(_JOIN):
                _, awaited, node = name.split(":", 2)
                if set(_items(self.values[name])) >= set(awaited.split("+")):
                    nodes.append(node)
        return nodes or self._nodes_that_wrote()

    def _nodes_that_wrote(self) -> list[str]:
        paths = {write.task_id: write.task_path for write in self.stored.writes}
        named = [path.rpartition(", ")[2] for path in paths.values() if ", " in path]
        return [name for name in named if not name.isdigit()]

    @property
    def interrupts(self) -> list[Interruption]:
        """The questions its tasks asked; one whose task has finished was answered."""
        finished = self.finished_tasks
        return [
            Interruption(_question(item), task in finished)
            for task, channel, value in self.writes
            if channel == _INTERRUPT
            for item in _items(value)
        ]

    @property
    def errors(self) -> list[str]:
        return [str(value) for _, channel, value in self.writes if channel == _ERROR]

    @property
    def finished_tasks(self) -> set[str]:
        special = {_INTERRUPT, _ERROR, _RESUME}
        return {write.task_id for write in self.stored.writes if write.channel not in special}


def step_told(step: Any) -> str:
    return "?" if step is None else str(step)


def is_internal(channel: str) -> bool:
    """Whether a channel steers the graph and is no state of it."""
    return channel.startswith(("__", *_TO_NODE, _JOIN))


def _question(item: Any) -> Any:
    return item if isinstance(item, Raw) else getattr(item, "value", item)


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]


# -- finding


def config_of(thread_id: str, ns: str | None = None, checkpoint_id: str = "") -> RunnableConfig:
    configurable = {"thread_id": thread_id, "checkpoint_id": checkpoint_id}
    return {"configurable": configurable if ns is None else {**configurable, "checkpoint_ns": ns}}


def views(saver: LogSaver, config: RunnableConfig) -> Iterator[View]:
    """What `list` would show, oldest first."""
    for item in stored(saver, config):
        if isinstance(item, StoredCheckpoint) and not item.hidden:
            yield View(saver.serde, item)


def find_view(saver: LogSaver, thread_id: str, ns: str, wanted: str) -> View:
    """The checkpoint with this id, or whose id alone begins with it, or the latest."""
    found = None
    matching = []
    for item in _identified(saver, thread_id, ns):
        if wanted in (item, LATEST):
            found = item
        elif item.startswith(wanted):
            matching.append(item)
    if found is None and len(matching) == 1:
        found = matching[0]
    if found is None and matching:
        shown = ", ".join(short_ids(matching).values())
        raise StopError(f"{wanted!r} may be {len(matching)} checkpoints: {shown}")
    if found is None:
        of_ns = f", namespace {ns!r}" if ns else ""
        what = "no checkpoint" if wanted == LATEST else f"no checkpoint {wanted!r}"
        raise StopError(f"there is {what} of thread {thread_id!r}{of_ns} in {saver.path}")
    return next(views(saver, config_of(thread_id, ns, found)))


def _identified(saver: LogSaver, thread_id: str, ns: str) -> Iterator[str]:
    for view in views(saver, config_of(thread_id, ns)):
        yield view.id


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Each id cut to the length that tells all of them apart."""
    known = sorted(set(ids))
    length = SHORTEST_ID
    for one, other in pairwise(known):
        same = next(
            (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
            min(len(one), len(other)),
        )
        length = max(length, same + 1)
    return {name: name[:length].rstrip("-") for name in known}
