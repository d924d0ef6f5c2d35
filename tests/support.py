"""Small builders for checkpoints and configs, and child processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

from langgraph.checkpoint.base.id import uuid6

VOUCH = 40 + 1  # no import of logsaver here: some tests hide parts of `os` before they do that
"""The size of the frame that a clean close leaves at the end."""


def new_id() -> str:
    """A checkpoint id later than every one before."""
    return str(uuid6(clock_seq=-1))


def make_config(
    thread_id: Any = "t", ns: str | None = "", checkpoint_id: str | None = None, **extra: Any
) -> dict[str, Any]:
    configurable: dict[str, Any] = {"thread_id": thread_id, **extra}
    if ns is not None:
        configurable["checkpoint_ns"] = ns
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def make_checkpoint(
    values: dict[str, Any] | None = None,
    versions: dict[str, Any] | None = None,
    checkpoint_id: str | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """A checkpoint; every channel gets version 1 unless `versions` says otherwise."""
    values = values or {}
    return {
        "v": 4,
        "id": checkpoint_id or new_id(),
        "ts": "2026-01-02T03:04:05.000006+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, 1) if versions is None else versions,
        "versions_seen": {},
        "updated_channels": None,
        **extra,
    }


def put(
    saver: Any,
    thread_id: Any = "t",
    values: dict[str, Any] | None = None,
    *,
    parent: dict[str, Any] | None = None,
    ns: str = "",
    versions: dict[str, Any] | None = None,
    new_versions: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    checkpoint_id: str | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """Put one checkpoint and return its config. All its channels count as new by default."""
    checkpoint = make_checkpoint(values, versions, checkpoint_id, **extra)
    parent_id = parent["configurable"]["checkpoint_id"] if parent else None
    return saver.put(
        make_config(thread_id, ns, parent_id),
        checkpoint,
        {"source": "loop", "step": 0, "parents": {}} if metadata is None else metadata,
        checkpoint["channel_versions"] if new_versions is None else new_versions,
    )


def id_of(config: dict[str, Any]) -> str:
    return config["configurable"]["checkpoint_id"]


def ids(tuples: Any) -> list[str]:
    """The checkpoint ids of what `list` yields."""
    return [found.config["configurable"]["checkpoint_id"] for found in tuples]


def run_python(
    code: str, *args: str, check: bool = True, timeout: float = 60, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter; it sees `args` as sys.argv[1:]."""
    import os

    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        check=check,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **env},
    )


# -- calling the async methods

import asyncio  # noqa: E402 - only this part of the module needs these

import pytest  # noqa: E402
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer  # noqa: E402


class Awaited:
    """A saver's async methods behind the names of the sync ones, each call in a new loop."""

    def __init__(self, saver: Any) -> None:
        self._saver = saver

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._saver, f"a{name}")

        async def run(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            if hasattr(answer, "__aiter__"):
                return [item async for item in answer]
            return await answer

        return lambda *args, **kwargs: asyncio.run(run(*args, **kwargs))


sync_and_async = pytest.mark.parametrize(
    "calls", [lambda saver: saver, Awaited], ids=["sync", "async"]
)


# -- serializers


class CountingSerde(JsonPlusSerializer):
    """Counts the values it decodes."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        self.loads += 1
        return super().loads_typed(data)


FOREIGN = "foreign"


class ForeignSerde(JsonPlusSerializer):
    """Stores FOREIGN, and any dict with that key, in a way that only it can read back."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if obj == FOREIGN or (isinstance(obj, dict) and FOREIGN in obj):
            return FOREIGN, super().dumps_typed(obj)[1]
        return super().dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed(("msgpack", data[1]) if data[0] == FOREIGN else data)
