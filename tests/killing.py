"""Starts the processes of `kill_worker`, listens to them, kills them, and judges what is left.

The oracle is that of `crashing`, for a process that dies while the machine goes on: what a call
wrote has reached the operating system when it returns, so every acknowledged call is there
whatever the durability mode.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from crashing import State, state_of, states_with_probe
from encrypting import VARIABLE
from kill_worker import OPERATIONS, Step
from support import make_checkpoint, make_config

from logsaver import LogSaver, verify

Message = list[str]


class Server:
    """The process that forks the workers."""

    def __init__(self, *, encrypted: bool = False) -> None:
        script = Path(__file__).with_name("kill_worker.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **({VARIABLE: "1"} if encrypted else {})},
        )

    def start(self, do: str, **job: Any) -> Worker:
        self._process.stdin.write(json.dumps({"do": do, **job}).encode() + b"\n")
        self._process.stdin.flush()
        return Worker(self._process.stdout)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


class Worker:
    """A process that does one job, and everything it said."""

    def __init__(self, stdout: Any) -> None:
        self._stdout = stdout
        self.messages: list[Message] = []
        self.is_dead = False
        self.pid = 0
        while not self.pid:
            self.read()

    def read(self) -> Message:
        """The next thing it says. After `dead` there is nothing more to read."""
        line = self._stdout.readline()
        assert line, "the server of the workers is gone"
        message = line.decode().split()
        self.messages.append(message)
        if message[0] == "pid":
            self.pid = int(message[1])
        if message[0] == "dead":
            self.is_dead = True
        return message

    def read_until(self, count: int, *start: str) -> None:
        """Until it has said `count` times something that begins like this, or has died."""
        count -= sum(message[: len(start)] == list(start) for message in self.messages)
        while count > 0 and not self.is_dead:
            count -= self.read()[: len(start)] == list(start)

    def kill(self) -> None:
        if not self.is_dead:
            os.kill(self.pid, signal.SIGKILL)
        self.listen_to_the_end()

    def listen_to_the_end(self) -> None:
        while not self.is_dead:
            self.read()

    @property
    def code(self) -> int:
        """The exit code, or the number of the signal below zero."""
        assert self.messages[-1][0] == "dead", self.messages[-1]
        return int(self.messages[-1][1])

    def said(self, word: str) -> list[Message]:
        return [message[1:] for message in self.messages if message[0] == word]

    def acknowledged(self, *, before: float = math.inf, names: Container[str] = OPERATIONS) -> int:
        """The number of the last call of such a name that returned before this moment."""
        return max(
            (
                int(message[1])
                for message in self.said("done")
                if message[0] in names and float(message[-1]) < before
            ),
            default=0,
        )

    def acknowledged_of_lane(self, lane: int) -> int:
        done = (message for message in self.said("done") if int(message[2]) == lane)
        return max((int(message[1]) for message in done), default=0)

    def was_doing(self) -> str | None:
        """What it was in the middle of; None if it was between two calls."""
        begun = [message for message in self.messages if message[0] in ("begin", "done")]
        return begun[-1][1] if begun and begun[-1][0] == "begin" else None


def wait(seconds: float) -> None:
    """Sleep, but precisely: a tenth of a millisecond is a long time for a write."""
    end = time.perf_counter() + seconds
    if seconds > 0.002:
        time.sleep(seconds - 0.001)
    while time.perf_counter() < end:
        pass


# -- the oracle


def replay(steps: Iterable[Step], path: Path) -> Iterator[State]:
    """The states after 0, 1, 2... of the calls, by making them where nobody kills anything."""
    saver = LogSaver(path, fsync="never")
    try:
        yield state_of(saver)
        for step in steps:
            if step.method not in ("close", "flush"):
                step.do(saver)
            yield state_of(saver)
    finally:
        saver.close()
        path.unlink()


def state_after(steps: Sequence[Step], path: Path) -> State:
    """The state after all of the calls."""
    with LogSaver(path, fsync="never") as saver:
        for step in steps:
            step.do(saver)
        state = state_of(saver)
    path.unlink()
    return state


def settle(path: Path) -> State:
    """Open a log after a crash and say what it holds.

    To open it a second time must change nothing, and new writes must work.
    """
    with LogSaver(path) as saver:
        state = state_of(saver)
        saver._store.index._check()
    content = path.read_bytes()
    report = verify(path)
    assert report.ok
    assert report.torn_tail is None
    with LogSaver(path) as saver:
        assert state_of(saver) == state
    assert path.read_bytes() == content
    _check_new_writes(path, state)
    return state


def _check_new_writes(path: Path, state: State) -> None:
    copy = path.with_name("copy-of-" + path.name)
    shutil.copy(path, copy)
    checkpoint = make_checkpoint({"probe": "still works"}, checkpoint_id="zzz-probe")
    with LogSaver(copy) as saver:
        saver.put(make_config("probe-thread"), checkpoint, {"source": "update"}, {"probe": 1})
    with LogSaver(copy) as saver:
        assert state_of(saver) == states_with_probe(state)[1]
    assert verify(copy).ok
    copy.unlink()


def check_calls(
    path: Path, steps: Iterable[Step], *, acknowledged: int, issued: int | None = None
) -> int:
    """Assert that a log holds a prefix of the calls, with all acknowledged; say how many."""
    found = settle(path)
    upto = acknowledged + 1 if issued is None else issued
    states = replay(steps, path.with_name("expected-" + path.name))
    with contextlib.closing(states):
        for number, state in enumerate(itertools.islice(states, upto + 1)):
            if number >= acknowledged and state == found:
                return number
    raise AssertionError(
        f"not the state after any {acknowledged} to {upto} calls: {sorted(map(str, found))}"
    )


def of_thread(state: State, thread: str) -> State:
    """The part of a state that is about one thread."""
    words = ("writes", "hidden")
    return {key: value for key, value in state.items() if key[key[0] in words] == thread}


class Figures:
    """What a series of kills came across."""

    def __init__(self) -> None:
        self.kills = 0
        self.acknowledged = 0
        self.found_more = 0
        self.torn = 0
        self.doing: Counter[str] = Counter()

    def note(self, worker: Worker, path: Path) -> None:
        """Called before the log is opened again."""
        self.kills += worker.code == -signal.SIGKILL
        self.acknowledged += len(worker.said("done"))
        self.doing[worker.was_doing() or "between calls"] += 1
        if path.exists() and path.stat().st_size:
            self.torn += verify(path).torn_tail is not None

    def __str__(self) -> str:
        doing = ", ".join(f"{name} {count}" for name, count in sorted(self.doing.items()))
        return (
            f"{self.kills} kills, {self.acknowledged} acknowledged calls, {self.found_more} times "
            f"one more was there, {self.torn} torn tails; killed in: {doing}"
        )
