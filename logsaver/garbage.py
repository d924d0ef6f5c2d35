"""How much of a log is live, without reading it: for whoever decides whether to compact it.

A thread counts the bytes of all frames that it refers to, and a copy of a thread refers to the
frames of its source. So the sum over threads counts shared frames more than once, and a log would
seem to have no garbage. A copy begins as old as its source: threads whose oldest checkpoint has the
same time are looked into, and each of their frames is counted once. If a copy is missed that way
because it was pruned differently, too much seems to be live, never too little.
"""

from __future__ import annotations

from collections.abc import Callable

from logsaver.store import Store


def live_bytes(store: Store, step: Callable[[], None] | None) -> int:
    """Of the frames that threads refer to. `step` is called between small steps of it.

    Without, nothing is looked into: for those who have no time.
    """
    with store.lock:
        summaries = store.view().threads.overview().summaries
        live = sum(known.bytes for known in summaries.values())
        alike: dict[int, list[str]] = {}
        for thread_id, known in summaries.items():
            if known.checkpoints:
                alike.setdefault(known.created, []).append(thread_id)
    for names in alike.values():
        if step is not None and len(names) > 1:
            live -= _counted_again(store, names, step)
    return live


def _counted_again(store: Store, names: list[str], step: Callable[[], None]) -> int:
    seen: set[int] = set()
    again = 0
    for thread_id in names:
        step()
        with store.lock:
            thread = store.view().threads.get(thread_id)
            for ns in () if thread is None else thread.namespaces.values():
                for offset, size in ns.frames():
                    again += size if offset in seen else 0
                    seen.add(offset)
    return again
