"""A member of the stress test: a process that calls everything there is, until it is killed.

It appends what it does to a journal of its own, one line per event with one `write`: `begin` before
a call, `done` after it. What is done is acknowledged: the oracle counts on it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import threading
import time
from typing import Any

from support import make_checkpoint, make_config

from logsaver import LogSaver
from logsaver.rewriting import rewrite


class Journal:
    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *words: Any) -> None:
        os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())


class Lane:
    """One of the threads of a member. It has LangGraph threads that nobody else writes to.

    keep    checkpoints and pending writes that are never taken away
    work    checkpoints with prunes and deletes in between
    work-N  copies of it
    """

    def __init__(self, saver: LogSaver, name: str, journal: Journal, seed: int) -> None:
        self.saver = saver
        self.name = name
        self.journal = journal
        self.randomness = random.Random(seed)
        self.last: dict[str, str] = {}

    def calls(self, round_number: int) -> Any:
        """The next call: its kind, what it is about, and the method with its arguments."""
        kind = self.randomness.choices(
            ("keep", "work", "writes", "read", "list", "prune", "delete", "copy", "rewrite"),
            (30, 20, 15, 20, 5, 3, 2, 3, 0.5),
        )[0]
        keep, work = f"{self.name}/keep", f"{self.name}/work"
        new_id = f"{time.time_ns():020}-{round_number}"
        if kind in ("keep", "work"):
            thread = keep if kind == "keep" else work
            size = self.randomness.choice([10, 100, 3000])
            checkpoint = make_checkpoint(
                {"x": f"{new_id} {'y' * size}", "same": self.name},
                {"x": round_number, "same": 1},
                checkpoint_id=new_id,
            )
            parent = self.last.get(thread)
            fresh = {"x": round_number} if parent else {"x": round_number, "same": 1}
            config = make_config(thread, "", parent, **self._mode())
            return kind, new_id, "put", (config, checkpoint, {"step": round_number}, fresh)
        if kind == "writes":
            target = self.last.get(keep)
            if target is None:
                return self.calls(round_number)
            args = (make_config(keep, "", target, **self._mode()), [("x", new_id)], new_id)
            return kind, f"{target}/{new_id}", "put_writes", args
        return {
            "copy": (kind, f"{work}-{new_id}", "copy_thread", (work, f"{work}-{new_id}")),
            "prune": (kind, work, "prune", ([work],)),
            "delete": (kind, work, "delete_thread", (work,)),
        }.get(kind, (kind, keep, "", ()))

    def _mode(self) -> dict[str, str]:
        return {"__pregel_durability": "async"} if self.randomness.random() < 0.5 else {}

    def look(self, kind: str) -> None:
        """What this lane has put must be there, also for itself."""
        keep = f"{self.name}/keep"
        if kind == "rewrite":
            self.journal.write("rewritten", rewrite(self.saver._store))
        elif kind == "list":
            for found in self.saver.list(None, limit=20):
                check_whole(found)
        else:
            found = self.saver.get_tuple(make_config(keep))
            assert (found is None) == (keep not in self.last), keep
            if found is not None:
                assert found.checkpoint["id"] == self.last[keep]
                check_whole(found)

    def noted(self, kind: str, what: str) -> None:
        if kind in ("keep", "work"):
            self.last[f"{self.name}/{kind}"] = what
        elif kind == "delete":
            self.last.pop(what, None)
        self.journal.write("done", self.name, kind, what)


def check_whole(found: Any) -> None:
    """A value that is torn or of another checkpoint shows."""
    values = found.checkpoint["channel_values"]
    assert values["x"].split(" ")[0] == found.checkpoint["id"]
    thread = found.config["configurable"]["thread_id"]
    assert thread.startswith(values["same"]), thread


def run_sync(lane: Lane) -> None:
    for number in itertools.count():
        kind, what, method, args = lane.calls(number)
        if not method:
            lane.look(kind)
            continue
        lane.journal.write("begin", lane.name, kind, what)
        getattr(lane.saver, method)(*args)
        lane.noted(kind, what)


async def run_async(lane: Lane) -> None:
    for number in itertools.count():
        kind, what, method, args = lane.calls(number)
        if not method:
            lane.look(kind)
            await asyncio.sleep(0)
            continue
        lane.journal.write("begin", lane.name, kind, what)
        await getattr(lane.saver, f"a{method}")(*args)
        lane.noted(kind, what)


def main() -> None:
    path, journal_path, member, life, lanes_count = sys.argv[1:]
    journal = Journal(journal_path)
    saver = LogSaver(path)
    lanes = [
        Lane(saver, f"m{member}.{life}.{number}", journal, hash((member, life, number)))
        for number in range(int(lanes_count))
    ]

    def guarded(target: Any, *args: Any) -> None:
        try:
            target(*args)
        except BaseException as error:  # noqa: BLE001 - the oracle wants to know
            journal.write("error", type(error).__name__, str(error).replace("\n", " "))
            os._exit(3)

    half = len(lanes) // 2
    threads = [threading.Thread(target=guarded, args=(run_sync, lane)) for lane in lanes[:half]]
    # The other half are coroutines, in loops of their own.
    threads += [
        threading.Thread(target=guarded, args=(asyncio.run, run_async(lane)))
        for lane in lanes[half:]
    ]
    journal.write("started", os.getpid())
    for thread in threads:
        thread.daemon = True
        thread.start()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
