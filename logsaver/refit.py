"""A checkpoint and its writes, made ready for a saver that keeps them in another way. No I/O.

**Values.** LogSaver shares what a checkpoint has in common with its parent, if it is told what is
new. PostgresSaver and InMemorySaver keep one value per channel and version in a thread: for them
all is new, and where two checkpoints have different values under one version, one of them gets a
version of its own.

**Versions.** PostgresSaver can store none but text. A number becomes text of the format that it
makes itself: the number with leading zeros, a dot, and something that tells branches apart.

**Writes.** `put_writes` numbers what it is given, from 0. To put a write back into its slot the
slots before it are given along; they are there already, so nothing happens to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import TASKS, _DeltaSnapshot

from logsaver.cache import Recent
from logsaver.holdings import HeldWrite, Place, Slot
from logsaver.keeping import KeepingSerializer

_PARENTS: Final = 256  # a fork from further back stores its values once more

# Only to compare values with each other: nothing that it writes is stored or read back.
_serde: Final = KeepingSerializer(JsonPlusSerializer(pickle_fallback=True))


def digest(value: Any) -> bytes:
    """The same for equal values; for what cannot be serialized, different each time."""
    try:
        kind, data = _serde.dumps_typed(value)
    except Exception:  # noqa: BLE001 - a class may raise anything
        return blake2b(repr(id(object())).encode(), digest_size=8).digest()
    return blake2b(kind.encode() + b"\0" + data, digest_size=8).digest()


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, also if they cannot say so themselves.

    What JSON makes of the simplest ones counts as equal: PostgresSaver keeps them in it, and
    there 1e16 comes back as an integer, and a member of a text enum as text.
    """
    if digest(one) == digest(other):
        return True
    return isinstance(other, (str, int, float)) and bool(one == other)


def is_special(slot: Slot) -> bool:
    """Whether it is the slot of a channel that overwrites: an interrupt, an error, an answer."""
    return slot.number < 0


# -- checkpoints


class _Kept(NamedTuple):
    """What a version of a channel stands for."""

    digest: bytes
    is_snapshot: bool


_ABSENT: Final = _Kept(digest("no value"), is_snapshot=False)


class Refit:
    """The checkpoints of one thread, in the order in which they are put."""

    def __init__(self, *, by_version: bool, only_text: bool) -> None:
        self.needs_all = by_version
        """Whether it must see the checkpoints too that are there already."""
        self._only_text = only_text
        self._recent: Recent[Place, tuple[ChannelVersions, dict[str, _Kept]]] = Recent(_PARENTS)
        self._taken: dict[tuple[str, str, str], _Kept] = {}

    def checkpoint(
        self, place: Place, parent_id: str | None, checkpoint: Checkpoint
    ) -> tuple[Checkpoint, ChannelVersions]:
        """What to put, and which of its versions to call new."""
        versions = checkpoint.get("channel_versions") or {}
        values = checkpoint.get("channel_values") or {}
        kept = {
            channel: _Kept(digest(value), isinstance(value, _DeltaSnapshot))
            for channel, value in values.items()
        }
        if not self.needs_all:
            parent = self._recent.get(Place(place.ns, parent_id or ""))
            self._recent.put(place, (versions, kept))
            return checkpoint, _changed(versions, kept, parent)
        renamed: ChannelVersions = {
            channel: self._version((place.ns, channel), version, kept.get(channel, _ABSENT))
            for channel, version in versions.items()
        }
        seen: dict[str, ChannelVersions] = {
            node: {
                # Equal must stay equal, or the node runs again; smaller stays smaller anyway.
                channel: renamed[channel]
                if versions.get(channel) == version
                else self._as_text(version)
                for channel, version in of_node.items()
            }
            for node, of_node in (checkpoint.get("versions_seen") or {}).items()
        }
        fitted: Any = {**checkpoint, "channel_versions": renamed, "versions_seen": seen}
        # No value is stored for a version without one: it could take the place of a snapshot.
        return fitted, {channel: renamed[channel] for channel in kept if channel in renamed}

    def _version(self, owner: tuple[str, str], version: Any, mine: _Kept) -> Any:
        """The version itself, unless it stands for another value already."""
        text = self._as_text(version)
        key = (*owner, str(text))
        taken = self._taken.setdefault(key, mine)
        if taken.digest == mine.digest:
            return text
        if _ABSENT in (taken, mine) and (taken.is_snapshot or mine.is_snapshot):
            # A delta channel that did not change since: no value means the same as the snapshot.
            self._taken[key] = mine if mine.is_snapshot else taken
            return text
        if not isinstance(text, str):
            raise ValueError(  # noqa: TRY004 - the versions are what is wrong
                f"channel {owner[1]!r} has two values in version {version!r}, and this saver "
                "keeps one for each version"
            )
        number = int.from_bytes(mine.digest, "big") % 10**16
        return f"{text.partition('.')[0]}.{number:016}"

    def _as_text(self, version: Any) -> Any:
        if self._only_text and isinstance(version, (int, float)):
            return f"{int(version):032}.{'0' * 16}"
        return version


def _changed(
    versions: ChannelVersions,
    kept: Mapping[str, _Kept],
    parent: tuple[ChannelVersions, dict[str, _Kept]] | None,
) -> ChannelVersions:
    if parent is None:
        return versions
    before, had = parent
    return {
        channel: version
        for channel, version in versions.items()
        if before.get(channel) != version or had.get(channel) != kept.get(channel)
    }


# -- writes


def batches(
    held: Sequence[HeldWrite], missing: set[Slot]
) -> Iterator[tuple[str, str, list[tuple[str, Any]]]]:
    """Task, path and writes of the calls that put the missing ones into their slots.

    `held` are all writes of a checkpoint. Special ones come first, each path by itself: alone,
    every saver lets them overwrite.
    """
    tasks: dict[str, dict[int, HeldWrite]] = {}
    for write in held:
        tasks.setdefault(write.slot.task_id, {})[write.slot.number] = write
    for task_id, writes in tasks.items():
        special = [writes[number] for number in sorted(writes) if number < 0]
        for path in sorted({write.task_path for write in special if write.slot in missing}):
            yield (
                task_id,
                path,
                [
                    (write.channel, write.value)
                    for write in special
                    if write.task_path == path and write.slot in missing
                ],
            )
        yield from _runs(task_id, writes, special, missing)


def closed_up(slots: Iterable[Slot]) -> dict[Slot, Slot]:
    """Each slot as it is when a task's ordinary writes have no gaps between their numbers."""
    found: dict[Slot, Slot] = {}
    numbers: dict[str, int] = {}
    for slot in sorted(slots):
        found[slot] = slot
        if not is_special(slot):
            number = numbers.get(slot.task_id, 0)
            numbers[slot.task_id] = number + 1
            found[slot] = Slot(slot.task_id, number)
    return found


def _runs(
    task_id: str, writes: Mapping[int, HeldWrite], special: Sequence[HeldWrite], missing: set[Slot]
) -> Iterator[tuple[str, str, list[tuple[str, Any]]]]:
    """The ordinary writes: one call, or one for each change of the path."""
    numbers = sorted(number for number in writes if number >= 0)
    rows: list[tuple[str, Any]] = []
    for position, number in enumerate(numbers):
        while len(rows) < number:
            if not special:
                raise ValueError(f"task {task_id} has a write {number}, but not those before it")
            # A special write was given along with the others; its place in that list is free.
            rows.append((special[0].channel, special[0].value))
        write = writes[number]
        rows.append((write.channel, write.value))
        following = numbers[position + 1 : position + 2]
        if following and writes[following[0]].task_path == write.task_path:
            continue
        if any(Slot(task_id, n) in missing for n in numbers[: position + 1]):
            yield task_id, write.task_path, list(rows)


# -- comparing


def difference(one: CheckpointTuple, other: CheckpointTuple) -> str:
    """What is not the same in a copy; nothing if it is, save for what no copy can keep."""
    before, after = one.checkpoint, other.checkpoint
    for part in ("id", "ts", "v"):
        if before.get(part) != after.get(part):
            return f"its {part}"
    # PostgresSaver moves what an old checkpoint was sent into a channel, when it is read.
    moved = {TASKS} if before.get("v", 0) < 4 else set()
    values = before.get("channel_values") or {}
    copied = after.get("channel_values") or {}
    for channel in (values.keys() | copied.keys()) - moved:
        if channel not in values and isinstance(copied[channel], _DeltaSnapshot):
            continue
        if channel not in values or channel not in copied:
            return f"channel {channel!r} has a value in one of them only"
        if not same(values[channel], copied[channel]):
            return f"the value of channel {channel!r}"
    for channel in before["channel_versions"].keys() - moved:
        versions = before["channel_versions"][channel], after["channel_versions"].get(channel)
        if versions[0] != versions[1] and _counter(versions[0]) != _counter(versions[1]):
            return f"the version of channel {channel!r}"
    metadata, kept = _as_json(one.metadata), _as_json(other.metadata)
    if "writes" not in kept:  # PostgresSaver leaves it out
        metadata.pop("writes", None)
    return "" if metadata == kept or same(metadata, kept) else "its metadata"


def _counter(version: Any) -> str:
    return str(version).partition(".")[0].lstrip("0")


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, (list, tuple)) else value
