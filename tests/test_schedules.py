"""The protocol of locks, appends, renames and reopening, step by step in every order.

Two or three processes' worth of savers share one simulated disk. Each runs in a thread of its
own, but only one moves at a time: it stops before every operation on the disk (open, lock,
unlock, size, write, truncate, sync, rename, unlink, directory sync, look at a name) and whenever
it has to wait. A schedule says who goes on from there.

`LOGSAVER_SCHEDULES=all` tries all schedules with two changes of process for every pair of
operations; the default tries a part of them that changes with `LOGSAVER_SCHEDULE_SEED`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import pytest
from crashing import PATH, everything_lost, state_of
from hypothesis import given
from hypothesis import strategies as st
from simdisk import Picture, SimDisk
from support import make_checkpoint, make_config

from logsaver import LogSaver
from logsaver.disk import UNLOCK
from logsaver.rewriting import rewrite
from logsaver.store import Store

PER_PAIR = 24
TOO_MANY_STEPS = 3000  # a schedule takes about a hundred
SEED = int(os.environ.get("LOGSAVER_SCHEDULE_SEED", "1"))
TRIES_ALL = os.environ.get("LOGSAVER_SCHEDULES") == "all"


# -- processes that move one step at a time


class Stepped(threading.Thread):
    """A process: does its operations, one step each time it is its turn."""

    def __init__(self, number: int, world: World, operations: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.operations = operations
        self.saver = LogSaver(PATH)
        self.error: BaseException | None = None
        self.at = "start"
        self.is_done = False
        self.gave_way = False  # it had to wait, and another one had its turn
        self._world = world
        self._turn = threading.Lock()
        self._back = threading.Lock()
        self._turn.acquire()
        self._back.acquire()

    def run(self) -> None:
        self._turn.acquire()
        try:
            for operation in self.operations:
                self._world.do(self, operation)
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.error = error
        self.is_done, self.at = True, "end"
        self._back.release()

    def pause(self, at: str) -> None:
        """Called by the process itself: hand over, and wait for the next turn."""
        self.at = at
        self._back.release()
        self._turn.acquire()

    def step(self) -> None:
        """Called by the schedule: let it go on to its next stop."""
        self._turn.release()
        assert self._back.acquire(timeout=20), f"process {self.number} hangs after {self.at}"


def pause(at: str) -> None:
    process = threading.current_thread()
    if isinstance(process, Stepped):
        process.pause(at)


def _stepped(name: str) -> Any:
    def call(disk: SimDisk, *args: Any) -> Any:
        what = "unlock" if name == "flock" and args[1] == UNLOCK else name
        pause(what)
        return getattr(SimDisk, name)(disk, *args)

    return call


class SteppedDisk(SimDisk):
    open, flock, size, pwrite = map(_stepped, ("open", "flock", "size", "pwrite"))
    truncate, sync, replace = map(_stepped, ("truncate", "sync", "replace"))
    unlink, sync_directory = map(_stepped, ("unlink", "sync_directory"))
    identity_at = _stepped("identity_at")


class Clock:
    """In place of `time` where somebody waits for a lock."""

    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def sleep(seconds: float) -> None:
        pause("wait")


# -- what they do, and what must be true


OPERATIONS = ("put", "put_writes", "delete", "rewrite", "open", "read", "recover", "close")
CHANGES = {"put", "put_writes", "delete"}


class World:
    """One disk, what was done to it, and what everybody may see of it."""

    def __init__(self, base: SimDisk, lists: Sequence[Sequence[str]]) -> None:
        self.disk = SteppedDisk()
        vars(self.disk).update(vars(base.after_a_kill()))
        self.issued: set[str] = set()
        self.acknowledged: set[str] = set()
        self.rewrites = 0
        self.crash: tuple[Picture, set[str], set[str]] | None = None
        _disks.append(self.disk)
        self.processes = [Stepped(number, self, each) for number, each in enumerate(lists)]
        if any("recover" in each for each in lists):
            log = self.disk.inodes[self.disk.names[PATH]]
            log.current += b"half of a frame"  # somebody was killed just now
        for process in self.processes:
            process.start()

    def do(self, process: Stepped, operation: str) -> None:
        saver, number = process.saver, process.number
        label = f"{operation} {number}"
        if operation in CHANGES:
            self.issued.add(label)
            change(saver, label)
            self.acknowledged.add(label)
        elif operation == "rewrite":
            self.rewrites += rewrite(saver._store)
        elif operation == "read":
            self.look(saver)
        elif operation in ("open", "recover"):
            with LogSaver(PATH) as other:
                self.look(other)
        else:
            saver.close()

    def look(self, saver: LogSaver) -> None:
        known = set(self.acknowledged)
        seen = visible(state_of(saver))
        assert known <= seen <= self.issued, f"{known} were there, {seen} were seen"

    def run(self, schedule: Iterator[int], crash_at: int) -> int:
        """Let them take turns; whoever waits, or is done, gives way. Returns how many steps."""
        rotation = itertools.count()
        for steps in itertools.count():
            left = [process for process in self.processes if not process.is_done]
            if not left:
                return steps
            assert steps < TOO_MANY_STEPS, f"no end in sight: {[each.at for each in left]}"
            if steps == crash_at:
                self.crash = self.disk.picture(), set(self.acknowledged), set(self.issued)
            chosen = self.processes[next(schedule) % len(self.processes)]
            if chosen.is_done or (chosen.at == "wait" and not chosen.gave_way):
                chosen.gave_way = True
                others = [process for process in left if process is not chosen] or left
                chosen = others[next(rotation) % len(others)]
            chosen.gave_way = False
            chosen.step()
        raise AssertionError("unreachable")

    def judge(self) -> None:
        for process in self.processes:
            if process.error is not None:
                raise process.error
            process.saver.close()
        assert self.issued == self.acknowledged
        self._judge_files(self.disk.after_a_kill(), self.issued, self.issued)
        lost = SimDisk(everything_lost(self.disk.picture()))
        self._judge_files(lost, self.issued, self.issued)
        if self.crash is not None:
            picture, acknowledged, issued = self.crash
            self._judge_files(SimDisk(everything_lost(picture)), acknowledged, issued)
        assert PATH + ".logsaver-new" not in self.disk.names

    def _judge_files(self, disk: SimDisk, acknowledged: set[str], issued: set[str]) -> None:
        _disks.append(disk)
        with LogSaver(PATH) as saver:
            seen = visible(state_of(saver))
            assert acknowledged <= seen <= issued, f"{acknowledged} were promised, found {seen}"
            saver._store.index._check()
            assert saver._store.log.header.generation <= self.rewrites + 1


def change(saver: LogSaver, label: str) -> None:
    """Each change is of a thread that nobody else touches, so it can be seen on its own."""
    if label.startswith("put_writes"):
        saver.put_writes(make_config(label, "", "0001"), [("x", label)], "task")
    elif label.startswith("put"):
        checkpoint = make_checkpoint({"x": label, "same": 1}, checkpoint_id="0002")
        saver.put(make_config(label, "", "0001"), checkpoint, {}, {"x": 1})
    else:
        saver.delete_thread(label)


def visible(state: dict[Any, Any]) -> set[str]:
    """The changes that a state shows."""
    there = {key[1] if key[0] == "writes" else key[0] for key in state}
    found = {name for name in there if name.startswith("put_writes")}
    found |= {key[0] for key in state if key[0].startswith("put ") and key[2] == "0002"}
    return found | {f"delete {number}" for number in range(3) if f"delete {number}" not in there}


_disks: list[SimDisk] = []  # the last one is the one that is in use


def open_store(path: str, **settings: Any) -> Store:
    return Store(path, disk=_disks[-1], **settings)


@contextlib.contextmanager
def explored(name_check_interval: float) -> Iterator[SimDisk]:
    """Everything set up for schedules; gives the disk that they all start with."""
    with (
        mock.patch("logsaver.saver.open_store", open_store),
        mock.patch("logsaver.waiting.time", Clock),
        # Each process has one of its own, and nobody forks here.
        mock.patch("logsaver.logfile.opening", contextlib.nullcontext()),
        mock.patch("logsaver.store.NAME_CHECK_INTERVAL", name_check_interval),
    ):
        _disks.append(SimDisk())
        with LogSaver(PATH) as saver:
            for number in range(3):
                for kind in ("put", "delete"):
                    checkpoint = make_checkpoint({"same": 1}, checkpoint_id="0001")
                    saver.put(make_config(f"{kind} {number}"), checkpoint, {}, {"same": 1})
        yield _disks[-1]
        _disks.clear()


def explore(
    base: SimDisk, lists: Sequence[Sequence[str]], turns: Sequence[int], crash_at: int
) -> int:
    """One schedule: `turns` says whose turn it is; after the last one they go one by one."""
    world = World(base, lists)
    numbers = range(len(lists))
    rest = itertools.chain.from_iterable(itertools.repeat(n, TOO_MANY_STEPS) for n in numbers)
    steps = world.run(itertools.chain(turns, rest), crash_at)
    world.judge()
    return steps


def two_changes(counts: tuple[int, int]) -> Iterator[list[int]]:
    """All schedules in which the first is interrupted once, and so is the second."""
    for first, second in itertools.product(range(counts[0] + 1), range(1, counts[1] + 1)):
        yield [0] * first + [1] * second + [0] * TOO_MANY_STEPS


@pytest.mark.parametrize("one", OPERATIONS)
@pytest.mark.parametrize("often", [True, False], ids=["name checked often", "only when told"])
def test_any_two_operations_may_meet_at_any_step(one, often):
    """Whatever the order, both end, nothing is lost, and what is read is a state that was."""
    randomness = random.Random(SEED)
    tried = 0
    with explored(0 if often else 1e9) as base:
        for other in OPERATIONS:
            alone = tuple(explore(base, [[each]], [], -1) for each in (one, other))
            schedules = list(two_changes(alone))
            if not TRIES_ALL:
                schedules = randomness.sample(schedules, min(PER_PAIR, len(schedules)))
            for turns in schedules:
                explore(base, [[one], [other]], turns, randomness.randrange(sum(alone)))
                tried += 1
    print(f"{one}: {tried} schedules")


@given(
    lists=st.lists(
        st.lists(st.sampled_from(OPERATIONS[:-1]), min_size=1, max_size=3), min_size=2, max_size=3
    ),
    turns=st.lists(st.integers(0, 2), max_size=200),
    crash_at=st.integers(0, 200),
    often=st.booleans(),
)
def test_two_or_three_processes_may_take_turns_in_any_way(lists, turns, crash_at, often):
    """Several operations each. None is done twice by one process: changes are known by name."""
    lists = [list(dict.fromkeys(each)) for each in lists]
    with explored(0 if often else 1e9) as base:
        explore(base, lists, turns, crash_at)


def test_the_explorer_notices_a_lost_update():
    """With locks that do not exclude, it must find something: else it proves nothing."""

    def no_lock(disk: SimDisk, fd: int, operation: int) -> None:
        pause("flock")

    found = 0
    with explored(0) as base, mock.patch.object(SteppedDisk, "flock", no_lock):
        for turns in itertools.islice(two_changes((20, 20)), 400):
            try:
                explore(base, [["put"], ["put"]], turns, -1)
            except Exception:  # noqa: BLE001 - whatever it is, it was noticed
                found += 1
                break
    assert found
