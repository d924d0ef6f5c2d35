"""Eight processes with four threads each do everything at once, and are killed at random.

`LOGSAVER_STRESS_SECONDS` says how long: 25 by default, 1800 for the long run that
docs/reliability.md tells of. `LOGSAVER_STRESS_SEED` says who is killed when.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from killing import settle
from stress_worker import check_whole

from logsaver import LogSaver

SECONDS = float(os.environ.get("LOGSAVER_STRESS_SECONDS", "25"))
SEED = int(os.environ.get("LOGSAVER_STRESS_SEED", "1"))
MEMBERS, LANES = 8, 4

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs SIGKILL")


class Member:
    """A place among the eight; when its process is killed, another one takes it."""

    def __init__(self, number: int, directory: Path) -> None:
        self.number = number
        self.life = 0
        self._directory = directory
        self.start()

    def start(self) -> None:
        self.life += 1
        self.journal = self._directory / f"journal-{self.number}-{self.life}"
        script = Path(__file__).with_name("stress_worker.py")
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(script),
                str(self._directory / "agent.log"),
                str(self.journal),
                str(self.number),
                str(self.life),
                str(LANES),
            ],
            env={**os.environ, "PYTHONHASHSEED": "1"},
        )

    def has_begun(self) -> bool:
        return self.journal.exists() and "begin" in self.journal.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


class Lane:
    """What one thread of one process did, in order, and what its work thread may hold."""

    def __init__(self) -> None:
        self.promised: set[str] = set()
        self.begun: set[str] = set()
        self.work: list[str] = []
        self.copies: dict[str, list[str]] = {}
        self.pending: tuple[str, str] | None = None  # begun, and not acknowledged

    def begin(self, kind: str, what: str) -> None:
        self.pending = kind, what
        if kind in ("keep", "writes"):
            self.begun.add(what)

    def done(self, kind: str, what: str) -> None:
        self.pending = None
        if kind in ("keep", "writes"):
            self.promised.add(what)
        elif kind == "copy":
            self.copies[what] = self.work
        else:
            self.work = self.work_after(kind, what)

    def work_after(self, kind: str, what: str) -> list[str]:
        changed = {"work": [*self.work, what], "prune": self.work[-1:], "delete": []}
        return changed.get(kind, self.work)

    def allows(self, work: list[str]) -> bool:
        """The state after all acknowledged calls, or after the one more that was begun."""
        return work == self.work or (
            self.pending is not None and work == self.work_after(*self.pending)
        )


class Outcome:
    """What all journals say together."""

    def __init__(self, directory: Path) -> None:
        self.calls: Counter[str] = Counter()
        self.rewrites = 0
        self.errors: list[str] = []
        self.lanes: defaultdict[str, Lane] = defaultdict(Lane)
        for journal in directory.glob("journal-*"):
            for line in journal.read_text().splitlines():
                self._read(*line.split(" ", 3))

    def _read(self, word: str, *rest: str) -> None:
        if word == "begin":
            self.lanes[rest[0]].begin(*rest[1:])
        elif word == "done":
            self.lanes[rest[0]].done(*rest[1:])
            self.calls[rest[1]] += 1
        elif word == "rewritten":
            self.rewrites += rest[0] == "True"
        elif word == "error":
            self.errors.append(" ".join(rest))


@pytest.mark.timeout(SECONDS + 200)
def test_nothing_that_was_acknowledged_is_lost_whoever_is_killed(tmp_path):
    path = tmp_path / "agent.log"
    randomness = random.Random(SEED)
    members = [Member(number, tmp_path) for number in range(MEMBERS)]
    kills = 0
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            time.sleep(randomness.uniform(0.05, 0.4))
            member = randomness.choice(members)
            if member.process.poll() is None and member.has_begun():
                member.kill()
                kills += 1
            if member.process.poll() is not None:
                assert member.process.returncode == -signal.SIGKILL, Outcome(tmp_path).errors
                member.start()
    finally:
        for member in members:
            member.kill()
    outcome = Outcome(tmp_path)
    assert outcome.errors == []
    lost = judge(path, outcome)
    print(
        f"{SECONDS:.0f} s: {sum(outcome.calls.values())} acknowledged calls {dict(outcome.calls)}, "
        f"{kills} kills, {outcome.rewrites} rewrites, lost={len(lost)}"
    )
    assert lost == set()
    assert kills > 5
    assert outcome.rewrites > 0


def judge(path: Path, outcome: Outcome) -> set[str]:
    """What was promised and is not there. Nothing may be there that nobody began."""
    threads: defaultdict[str, list[str]] = defaultdict(list)
    written: set[str] = set()
    with LogSaver(path) as saver:
        saver._store.index._check()
        for found in saver.list(None):
            check_whole(found)
            checkpoint_id = found.checkpoint["id"]
            threads[found.config["configurable"]["thread_id"]].insert(0, checkpoint_id)
            written |= {f"{checkpoint_id}/{task}" for task, *_ in found.pending_writes}
    settle(path)
    lost: set[str] = set()
    for name, lane in outcome.lanes.items():
        here = set(threads.pop(f"{name}/keep", ()))
        here |= {what for what in written if what.split("/")[0] in here}
        assert here <= lane.begun, name
        lost |= lane.promised - here
        assert lane.allows(threads.pop(f"{name}/work", [])), name
        for copy, content in lane.copies.items():
            assert threads.pop(copy, []) == content, copy
        if lane.pending is not None and lane.pending[0] == "copy":
            assert threads.pop(lane.pending[1], lane.work) == lane.work, name
    assert not threads, "nobody put these"
    return lost
