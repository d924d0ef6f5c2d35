"""What a new checkpoint, and what is written on the way to it, can leave unsaid.

A channel that its parent has in the same version is *shared*: a reference instead of a value. A
channel that has changed mostly repeats what the parent has in it, or what a task has written to it
since: then it is stored as pieces of those. Both look at the parent of this checkpoint and at
nothing else, so two branches of a thread never mix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.cache import Recent
from logsaver.codec import load
from logsaver.config import Address
from logsaver.errors import ValueDecodeError
from logsaver.log import Log
from logsaver.pieces import SMALLEST, Draft, Earlier, draft
from logsaver.store import Store
from logsaver.value import Stored
from logsaver.values import CHANNELS_FROM, number_of, value_at

LEAST_WEIGHT: Final = 1 << 10  # bytes, of a base whose values are small or elsewhere
_MOST_WRITTEN: Final = 16  # values written to one channel that are compared with what it becomes
_START: Final = "__start__"  # where LangGraph keeps a graph's input until the first step is done

Place = tuple[int, int]  # of a value: the offset of its frame, and its number there


class Base(NamedTuple):
    """What a child checkpoint can share with its parent, and repeat of it."""

    epoch: int  # of the store: in another one, offsets mean other frames
    checkpoint_id: str
    offset: int  # of the parent's own frame
    versions: Mapping[str, Any]
    channels: Mapping[str, Stored]
    written: dict[str, list[Place]]  # by tasks that started from this checkpoint, large values only

    def place_of(self, channel: str, version: Any) -> int | None:
        """The offset of the frame that has this channel's value, if the version is the parent's.

        Looked up through the parent only: two branches of a thread may carry the same integer
        version with different values.
        """
        _, _, offset, versions, channels, _ = self
        if version is None or versions.get(channel) != version:
            return None
        stored = channels.get(channel)
        if stored is None:
            return None
        return stored if type(stored) is int else offset

    def draft_channel(self, store: Store, channel: str, kind: str, data: bytes) -> Draft:
        """How a child stores this channel."""
        log = self._log(store)
        if log is None:
            return draft(kind, data, [])
        places = [*self._own(log, channel), *self.written.get(channel, ())]
        return draft(kind, data, _values(log, places, kind))

    def draft_write(self, store: Store, channel: str, kind: str, data: bytes) -> Draft:
        """How a task that started from this checkpoint stores what it wrote to this channel."""
        log = self._log(store)
        if log is None:
            return draft(kind, data, [])
        places = [*self._own(log, channel), *self._own(log, _START)]
        return draft(kind, data, _values(log, places, kind))

    def remember_write(self, channel: str, place: Place) -> None:
        places = self.written.setdefault(channel, [])
        if len(places) < _MOST_WRITTEN:
            places.append(place)

    def _log(self, store: Store) -> Log | None:
        """The log that has our offsets; None if it was replaced, and all has to be done anew.

        Not kept: who keeps a log that was replaced keeps its file, which may be large.
        """
        with store.lock:
            return store.log if store.epoch == self.epoch else None

    def _own(self, log: Log, channel: str) -> list[Place]:
        """Where this checkpoint's value of a channel is."""
        stored = self.channels.get(channel)
        if stored is None:
            return []
        if type(stored) is not int:
            return [(self.offset, CHANNELS_FROM + list(self.channels).index(channel))]
        holder = log.checkpoint(stored)
        return [(stored, number_of(holder, channel))] if channel in holder.channels else []


def _values(log: Log, places: list[Place], kind: str) -> list[Earlier]:
    values = [Earlier(*place, value_at(log, *place)) for place in places]
    return [each for each in values if each.value.kind == kind and len(each.value.data) >= SMALLEST]


class Bases:
    """The last checkpoint put in each namespace, so that its child need not read it back."""

    __slots__ = ("_recent", "remember")

    def __init__(self, limit: int) -> None:
        self._recent: Recent[tuple[str, str], Base] = Recent(limit)
        # By thread and namespace. The weight is the size of the checkpoint's frame, and a little:
        # its own values are kept with it.
        self.remember = self._recent.put

    def of(self, store: Store, serde: SerializerProtocol, address: Address) -> Base | None:
        """What a child of this checkpoint can share with it.

        A remembered one is as good as the index, whatever others have done to the parent since:
        it names the frame that we have put, with the values that we have put. Only if the log is
        replaced is that frame somewhere else, and then the epoch is another one.
        """
        thread_id, ns, checkpoint_id = address
        if checkpoint_id is None:
            return None
        base = self._recent.get((thread_id, ns))
        if base is None or base.checkpoint_id != checkpoint_id or base.epoch != store.epoch:
            base = _read_base(store, serde, address)
        return base


def _read_base(store: Store, serde: SerializerProtocol, address: Address) -> Base | None:
    assert address.checkpoint_id is not None
    with store.lock:
        ns = store.view().namespace(address.thread_id, address.ns)
        entry = None if ns is None else ns.find(address.checkpoint_id)
        log, epoch = store.log, store.epoch
    if entry is None:
        return None
    record = log.checkpoint(entry.offset, entry.size)
    try:
        body = load(serde, record.body, address, "the checkpoint", expected=dict)
    except ValueDecodeError:
        return None  # store everything; whoever reads the parent gets the error
    versions = body.get("channel_versions") or {}
    return Base(epoch, address.checkpoint_id, entry.offset, versions, record.channels, {})
