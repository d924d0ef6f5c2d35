"""A saver that is plainly right: dicts, whole copies of everything, nothing shared.

It takes the calls that a `LogSaver` takes and says what they have to return. Speed does not
matter here, and nothing is looked up twice in a clever way.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    CheckpointTuple,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import TASKS, _DeltaSnapshot

SERDE = JsonPlusSerializer()


@dataclass
class Kept:
    """One checkpoint as it was put."""

    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    parent_id: str | None


@dataclass
class Space:
    """One namespace of a thread. Hidden: pruned, but a delta channel is rebuilt from it."""

    listed: dict[str, Kept] = field(default_factory=dict)
    hidden: dict[str, Kept] = field(default_factory=dict)
    writes: dict[str, dict[tuple[str, int], tuple[str, str, Any]]] = field(default_factory=dict)

    def find(self, checkpoint_id: str | None) -> Kept | None:
        return self.listed.get(checkpoint_id) or self.hidden.get(checkpoint_id)

    def latest(self) -> str | None:
        return max(self.listed, default=None)

    def pending_writes(self, checkpoint_id: str) -> list[tuple[str, str, Any]]:
        rows = [
            (writes_sort_key(path, task_id, idx), (task_id, channel, value))
            for (task_id, idx), (path, channel, value) in self.writes.get(checkpoint_id, {}).items()
        ]
        return [write for _, write in sorted(rows, key=lambda row: row[0])]

    def ancestors(self, checkpoint_id: str) -> list[str]:
        """Parent, grandparent and so on, until one is missing or comes again."""
        chain = [checkpoint_id]
        while True:
            parent_id = self.find(chain[-1]).parent_id
            if self.find(parent_id) is None or parent_id in chain:
                return chain[1:]
            chain.append(parent_id)

    def walk(self, checkpoint_id: str, channel: str) -> tuple[list[str], dict[str, Any]]:
        """The ancestors a delta channel is rebuilt from, and what they contribute."""
        passed: list[str] = []
        history: dict[str, Any] = {"writes": []}
        for ancestor in self.ancestors(checkpoint_id):
            passed.append(ancestor)
            writes = [write for write in self.pending_writes(ancestor) if write[1] == channel]
            history["writes"] = writes + history["writes"]
            values = self.find(ancestor).checkpoint["channel_values"]
            if channel in values:
                history["seed"] = values[channel]
                break
        return passed, history

    def delta_channels(self, checkpoint_id: str) -> set[str]:
        """Channels whose value at this checkpoint is rebuilt from its ancestors."""
        kept = self.find(checkpoint_id)
        counted = kept.metadata.get("counters_since_delta_snapshot") or {}
        found = set()
        for channel in kept.checkpoint["channel_versions"].keys() - set(
            kept.checkpoint["channel_values"]
        ):
            _, history = self.walk(checkpoint_id, channel)
            if "seed" not in history:
                is_delta = bool(history["writes"])
            else:
                is_delta = (
                    channel in counted
                    or bool(kept.metadata.get("delta_writes_versioned"))
                    or isinstance(history["seed"], _DeltaSnapshot)
                )
            if is_delta:
                found.add(channel)
        return found

    def remove(self, ids: set[str]) -> None:
        """Unlist these; what is listed no more stays hidden as long as it is needed."""
        staying = self.listed.keys() - ids
        needed = {
            ancestor
            for checkpoint_id in staying
            for channel in self.delta_channels(checkpoint_id)
            for ancestor in self.walk(checkpoint_id, channel)[0]
        }
        unlisted = {**self.hidden, **{i: self.listed[i] for i in ids}}
        self.listed = {i: self.listed[i] for i in staying}
        self.hidden = {i: kept for i, kept in unlisted.items() if i in needed}
        for checkpoint_id in unlisted.keys() - needed:
            self.writes.pop(checkpoint_id, None)

    def heads(self) -> set[str]:
        """What `keep_latest` keeps: before v4 a head's pending sends are its parent's writes."""
        head = self.latest()
        if head is None:
            return set()
        kept = self.listed[head]
        sends = [write for write in self.pending_writes(kept.parent_id) if write[1] == TASKS]
        if kept.checkpoint["v"] < 4 and sends and kept.parent_id in self.listed:
            return {head, kept.parent_id}
        return {head}


def read(config: dict[str, Any]) -> tuple[str, str | None, str | None]:
    """Thread, namespace and checkpoint id of a config, as text."""
    inner = config["configurable"]
    ns, checkpoint_id = inner.get("checkpoint_ns"), inner.get("checkpoint_id")
    return (
        str(inner["thread_id"]),
        None if ns is None else str(ns),
        str(checkpoint_id) if checkpoint_id else None,
    )


def config_of(thread_id: str, ns: str, checkpoint_id: str) -> dict[str, Any]:
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": ns,
            "checkpoint_id": checkpoint_id,
        }
    }


class Model:
    """What a saver has to answer. Methods have LangGraph's names and arguments."""

    def __init__(self) -> None:
        self.spaces: dict[str, dict[str, Space]] = {}  # thread id -> namespace -> Space

    def space(self, thread_id: str, ns: str) -> Space:
        """To look at; a space that is not there stays absent."""
        return self.spaces.get(thread_id, {}).get(ns) or Space()

    def _space_to_change(self, thread_id: str, ns: str) -> Space:
        return self.spaces.setdefault(thread_id, {}).setdefault(ns, Space())

    def newest_first(self) -> list[tuple[str, str, str]]:
        """Every listed checkpoint as (id, thread, namespace), newest first."""
        found = [
            (checkpoint_id, thread_id, ns)
            for thread_id, spaces in self.spaces.items()
            for ns, space in spaces.items()
            for checkpoint_id in space.listed
        ]
        return sorted(found, reverse=True)

    # -- writing

    def put(self, config, checkpoint, metadata, new_versions):
        thread_id, ns, parent_id = read(config)
        space = self._space_to_change(thread_id, ns or "")
        checkpoint_id = str(checkpoint["id"])
        space.hidden.pop(checkpoint_id, None)
        space.listed[checkpoint_id] = Kept(
            deepcopy(checkpoint), deepcopy(get_checkpoint_metadata(config, metadata)), parent_id
        )
        return config_of(thread_id, ns or "", checkpoint_id)

    def put_writes(self, config, writes, task_id, task_path=""):
        thread_id, ns, checkpoint_id = read(config)
        if not writes:
            return
        rows = self._space_to_change(thread_id, ns or "").writes.setdefault(checkpoint_id, {})
        for position, (channel, value) in enumerate(writes):
            idx = WRITES_IDX_MAP.get(channel, position)
            if idx < 0 or (task_id, idx) not in rows:
                rows[task_id, idx] = (task_path, channel, deepcopy(value))

    # -- reading

    def _parent_config(self, thread_id: str, ns: str, parent_id: str | None) -> Any:
        """A hidden parent is named too, for those who walk back; one that is gone is not."""
        space = self.space(thread_id, ns)
        if space.find(parent_id) is None:
            return None
        config = config_of(thread_id, ns, parent_id)
        if parent_id in space.hidden:
            config["configurable"]["__logsaver_hidden"] = True
        return config

    def _tuple(self, thread_id: str, ns: str, checkpoint_id: str) -> CheckpointTuple:
        space = self.space(thread_id, ns)
        kept = space.find(checkpoint_id)
        return CheckpointTuple(
            config_of(thread_id, ns, checkpoint_id),
            kept.checkpoint,
            kept.metadata,
            self._parent_config(thread_id, ns, kept.parent_id),
            space.pending_writes(checkpoint_id),
        )

    def get_tuple(self, config):
        thread_id, ns, checkpoint_id = read(config)
        space = self.space(thread_id, ns or "")
        checkpoint_id = checkpoint_id or space.latest()
        is_known = space.listed
        if "__logsaver_hidden" in config["configurable"]:
            is_known = space.listed | space.hidden
        if checkpoint_id not in is_known:
            return None
        return self._tuple(thread_id, ns or "", checkpoint_id)

    def list(self, config, *, filter=None, before=None, limit=None):  # noqa: A002
        """Newest first; in which order equal ids of several namespaces come is left open."""
        wanted_thread, wanted_ns, wanted_id = (None, None, None) if config is None else read(config)
        before = (before or {}).get("configurable", before or {}).get("checkpoint_id")
        found = [
            self._tuple(thread_id, ns, checkpoint_id)
            for checkpoint_id, thread_id, ns in self.newest_first()
            if wanted_thread in (None, thread_id)
            and wanted_ns in (None, ns)
            and wanted_id in (None, checkpoint_id)
            and (not before or checkpoint_id < before)
        ]
        for key, value in (filter or {}).items():
            wanted = SERDE.loads_typed(SERDE.dumps_typed(value))
            found = [each for each in found if each.metadata.get(key) == wanted]
        return found if limit is None else found[:limit]

    def get_delta_channel_history(self, *, config, channels):
        thread_id, ns, checkpoint_id = read(config)
        space = self.space(thread_id, ns or "")
        checkpoint_id = checkpoint_id or space.latest()
        if checkpoint_id not in space.listed:
            return {channel: {"writes": []} for channel in channels}
        return {channel: space.walk(checkpoint_id, channel)[1] for channel in channels}

    def threads(self) -> list[tuple[str, int, datetime, datetime]]:
        """Thread id, number of checkpoints, time of the first and of the last; last one first."""
        rows = []
        for thread_id, spaces in self.spaces.items():
            kept = [kept for space in spaces.values() for kept in space.listed.values()]
            if kept:
                times = [datetime.fromisoformat(each.checkpoint["ts"]) for each in kept]
                rows.append((thread_id, len(kept), min(times), max(times)))
        return sorted(rows, key=lambda row: (row[3], row[0]), reverse=True)

    # -- taking away, copying

    def delete_thread(self, thread_id):
        self.spaces.pop(str(thread_id), None)

    def delete_for_runs(self, run_ids):
        names = {str(run_id) for run_id in run_ids}
        for spaces in self.spaces.values():
            for space in spaces.values():
                runs = {i: kept.metadata.get("run_id") for i, kept in space.listed.items()}
                gone = {i for i, run in runs.items() if run is not None and str(run) in names}
                if gone:
                    space.remove(gone)
        self._forget_what_is_empty()

    def copy_thread(self, source_thread_id, target_thread_id):
        source, target = str(source_thread_id), str(target_thread_id)
        if any(space.listed for space in self.spaces.get(target, {}).values()):
            raise ValueError("the target is not empty")
        if source not in self.spaces:
            return
        waiting = {ns: space.writes for ns, space in self.spaces.get(target, {}).items()}
        self.spaces[target] = deepcopy(self.spaces[source])
        for ns, writes in waiting.items():
            copied = self._space_to_change(target, ns).writes
            for checkpoint_id, rows in writes.items():
                for (task_id, idx), row in copied.get(checkpoint_id, {}).items():
                    if idx < 0 or (task_id, idx) not in rows:
                        rows[task_id, idx] = row
                copied[checkpoint_id] = rows
        for space in self.spaces[target].values():
            for kept in [*space.listed.values(), *space.hidden.values()]:
                if kept.metadata.get("thread_id") == source:
                    kept.metadata["thread_id"] = target

    def prune(self, thread_ids, *, strategy="keep_latest"):
        for thread_id in map(str, thread_ids):
            if strategy == "keep_latest":
                self._keep_latest(self.spaces.get(thread_id, {}))
            else:
                self.delete_thread(thread_id)
        self._forget_what_is_empty()

    def _keep_latest(self, spaces: dict[str, Space]) -> None:
        roots = set(spaces.get("", Space()).listed)
        kept_roots = spaces.get("", Space()).heads()
        for ns, space in list(spaces.items()):
            is_call = ":" in ns.split("|")[-1]
            if is_call and space.listed:
                parents = space.listed[space.latest()].metadata.get("parents") or {}
                if parents.get("") in roots - kept_roots:
                    del spaces[ns]
                    continue
            space.remove(space.listed.keys() - space.heads())

    def _forget_what_is_empty(self) -> None:
        for thread_id, spaces in list(self.spaces.items()):
            for ns, space in list(spaces.items()):
                if not (space.listed or space.hidden or space.writes):
                    del spaces[ns]
            if not spaces:
                del self.spaces[thread_id]
