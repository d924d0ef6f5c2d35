"""A checkpointer that remembers every call LangGraph makes, so that it can be made again."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol

WRITING = ("put", "put_writes")


class Call(NamedTuple):
    """A method of a saver and the arguments LangGraph passed."""

    method: str
    args: tuple[Any, ...]


class Trace(NamedTuple):
    """What one run made LangGraph ask of its saver, in order."""

    name: str
    calls: list[Call]

    @property
    def thread_ids(self) -> list[str]:
        return list(dict.fromkeys(_place(call)["thread_id"] for call in self.calls))

    def puts(self) -> list[Call]:
        return [call for call in self.calls if call.method == "put"]

    def addresses(self) -> list[dict[str, Any]]:
        """The config of every checkpoint, in the order of their puts."""
        return [
            {
                "configurable": {
                    "thread_id": _place(call)["thread_id"],
                    "checkpoint_ns": _place(call).get("checkpoint_ns", ""),
                    "checkpoint_id": call.args[1]["id"],
                }
            }
            for call in self.puts()
        ]


class Recorder(BaseCheckpointSaver[str]):
    """Passes every call on to a saver in memory, and keeps a copy of what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._copies = Copies()
        self._kept = InMemorySaver(serde=_Unserialized(self._copies))
        self._lock = threading.Lock()  # LangGraph calls from a pool of threads

    def get_next_version(self, current: Any, channel: None) -> str:
        return self._kept.get_next_version(current, channel)

    def get_tuple(self, config: Any) -> Any:
        return self._record("get_tuple", config)

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return self._record("put", config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self._record("put_writes", config, writes, task_id, task_path)

    def get_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
        return self._kept.get_delta_channel_history(config=config, channels=channels)

    def _record(self, method: str, *args: Any) -> Any:
        with self._lock:
            self.calls.append(Call(method, tuple(map(self._copies.of, args))))
            return getattr(self._kept, method)(*args)


class Copies:
    """Copies of what LangGraph hands over and goes on to change.

    Containers are copied each time. A message is copied once, or a long chat would not fit into
    memory; and once more when it has got its id, which `add_messages` sets in place, after the
    put that first stored it. Nothing else in the recorded graphs changes.
    """

    def __init__(self) -> None:
        # The originals are kept as well: an address that is in use is not given out again.
        self._messages: dict[tuple[int, str | None], tuple[BaseMessage, BaseMessage]] = {}

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind is dict:
            return {key: self.of(item) for key, item in value.items()}
        if kind in (list, tuple, set, deque):
            return kind(map(self.of, value))
        return self._message(value) if isinstance(value, BaseMessage) else value

    def _message(self, message: BaseMessage) -> BaseMessage:
        known = self._messages.get((id(message), message.id))
        if known is None:
            copy = message.model_copy(deep=True)
            known = self._messages[id(message), message.id] = message, copy
            self._messages[id(copy), copy.id] = copy, copy  # it comes back from a get_tuple
        return known[1]


class _Unserialized(SerializerProtocol):
    """Keeps objects: serializing a long chat at every step would take most of a recording."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    def dumps_typed(self, obj: Any) -> tuple[str, Any]:
        return "live", self._copies.of(obj)

    def loads_typed(self, data: tuple[str, Any]) -> Any:
        return self._copies.of(data[1])


def _place(call: Call) -> dict[str, Any]:
    return call.args[0]["configurable"]
