"""Many checkpoints in little time: small ones, shaped like those of the three-step graph."""

from __future__ import annotations

from itertools import product
from typing import Any

from langgraph.checkpoint.base.id import uuid6

RARE_EVERY = 100


def fill(saver: Any, threads: int, each: int, *, first: int = 0) -> None:
    """Put `each` checkpoints into the threads from `first` on, step by step for all of them.

    One in RARE_EVERY has the metadata {"rare": True}.
    """
    parents: dict[int, dict[str, Any]] = {}
    for step, thread in product(range(each), range(first, first + threads)):
        config = parents.get(thread) or on_thread(thread)
        is_rare = (step + thread) % RARE_EVERY == 0  # spread over threads and steps
        metadata = {"source": "loop", "step": step, "parents": {}, "rare": is_rare}
        checkpoint = _checkpoint(step)
        changed = checkpoint["channel_versions"] if step == 0 else {"notes": step + 1}
        parents[thread] = saver.put(config, checkpoint, metadata, changed)


def on_thread(number: int) -> dict[str, Any]:
    return {"configurable": {"thread_id": f"thread-{number:06}", "checkpoint_ns": ""}}


def _checkpoint(step: int) -> dict[str, Any]:
    return {
        "v": 4,
        "id": str(uuid6(clock_seq=-1)),
        "ts": "2026-01-02T03:04:05.000006+00:00",
        "channel_values": {"question": "what changed?", "notes": f"note {step}"},
        "channel_versions": {"question": 1, "notes": step + 1},
        "versions_seen": {"plan": {"question": 1}},
        "updated_channels": ["notes"],
    }
