"""The one oracle of all crash tests, and a driver that runs calls on a simulated disk.

After a crash, whatever it was:

1. every call that was acknowledged as durable is there;
2. the state is that after some prefix of the calls issued: nothing is missing in the middle;
3. nothing is there that nobody put;
4. opening a second time changes nothing more;
5. the log takes new writes, and they are durable too.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from unittest import mock

from simdisk import Files, Picture, SimDisk
from support import make_checkpoint, make_config

from logsaver import LogSaver
from logsaver.reading import read_writes, value_of_write
from logsaver.store import Store

PATH = "/sim/agent.log"
PROBE = "probe-thread"
FILE_ID = bytes(range(16))

State = dict[Any, Any]


class Call(NamedTuple):
    """One call on the saver; `durable` says whether its return is a promise."""

    name: str
    do: Callable[[LogSaver], Any]
    durable: bool = True


class Moment(NamedTuple):
    """A point at which the machine may crash."""

    picture: Picture
    acknowledged: int  # so many calls were acknowledged as durable
    issued: int


class History(NamedTuple):
    """A run: the states after 0, 1, 2... calls, and every point at which it may crash."""

    states: list[State]
    moments: list[Moment]


class RecordingDisk(SimDisk):
    def __init__(self, files: Files | None = None) -> None:
        super().__init__(files)
        self.moments: list[Moment] = []
        self.acknowledged = 0
        self.issued = 0

    def after(self, operation: str) -> None:
        self.moments.append(Moment(self.picture(), self.acknowledged, self.issued))


def open_on(disk: SimDisk, path: str = PATH, **options: Any) -> LogSaver:
    """A saver on a simulated disk."""

    def open_store(path: str, **settings: Any) -> Store:
        return Store(path, disk=disk, **settings)

    with (
        mock.patch("logsaver.saver.open_store", open_store),
        # Equal calls make equal disks, which can be counted.
        mock.patch("os.urandom", lambda size: (FILE_ID * 2)[:size]),
    ):
        return LogSaver(path, **options)


def state_of(saver: LogSaver) -> State:
    """Everything a log holds, in a form that compares."""
    state: State = {
        tuple(found.config["configurable"].values()): (
            found.checkpoint,
            found.metadata,
            found.parent_config,
            found.pending_writes,
        )
        for found in saver.list(None)
    }
    store = saver._store
    for thread_id, thread in store.index.threads.items():
        for name, ns in thread.namespaces.items():
            for checkpoint_id in ns.writes:
                entries = ns.writes_of(checkpoint_id)
                state["writes", thread_id, name, checkpoint_id] = [
                    (write.order, write.channel, value_of_write(store.log, write))
                    for write in read_writes(store.log, entries)
                ]
            for checkpoint_id in ns.hidden:
                state["hidden", thread_id, name, checkpoint_id] = True
    return state


def run(calls: Sequence[Call], files: Files | None = None, **options: Any) -> History:
    """Make the calls on a simulated disk."""
    disk = RecordingDisk(files)
    saver = open_on(disk, **options)
    states = [state_of(saver)]
    for number, call in enumerate(calls, start=1):
        disk.issued = number
        call.do(saver)
        if call.durable:
            disk.acknowledged = number
        states.append(state_of(saver))
        disk.after("return")  # a crash after the return, before the next operation
    saver.close()
    return History(states, disk.moments)


def check(
    files: Files, states: Sequence[State], *, acknowledged: int, issued: int, deeper: int = 0
) -> int:
    """Assert the five promises for the files a crash left behind.

    `deeper` is how many further crashes to try at each step of the recovery itself, and of the
    first write after it. Returns how many that were.
    """
    disk = RecordingDisk(files)
    saver = open_on(disk)
    found = state_of(saver)
    allowed = states[acknowledged : issued + 1]
    assert found in allowed, _explain(found, states, acknowledged, issued)
    saver._store.index._check()
    saver.close()
    randomness = random.Random(len(disk.files()))
    _check_new_write(disk, found)
    if not deeper:
        return 0
    with_probe = states_with_probe(found)
    for moment in disk.moments:
        for _ in range(deeper):
            crashed = moment.picture.some_crash(randomness)
            check(crashed, with_probe, acknowledged=moment.acknowledged, issued=1)
    return len(disk.moments) * deeper


def check_some_crashes(history: History, randomness: random.Random, *, deeper: int = 0) -> None:
    """Crash three times at every point of a run."""
    for moment in history.moments:
        for _ in range(3):
            check(
                moment.picture.some_crash(randomness),
                history.states,
                acknowledged=moment.acknowledged,
                issued=moment.issued,
                deeper=deeper,
            )


def check_every_crash(history: History) -> int:
    """Crash in every way at every point of a run. Returns how many that were."""
    tried = 0
    for moment in history.moments:
        assert moment.picture.count() < 100_000
        for files in moment.picture.every_crash():
            check(files, history.states, acknowledged=moment.acknowledged, issued=moment.issued)
            tried += 1
    return tried


def states_with_probe(state: State) -> list[State]:
    """What may be found if the machine crashes again while the probe is written."""
    return [state, {**state, **_probe_alone()}]


@functools.cache
def _probe_alone() -> State:
    saver = open_on(SimDisk())
    put_probe(saver)
    state = state_of(saver)
    saver.close()
    return state


def _check_new_write(disk: RecordingDisk, state: State) -> None:
    saver = open_on(disk)
    assert state_of(saver) == state
    put_probe(saver)
    disk.acknowledged = 1
    # The harshest crash: nothing that was not synced survives.
    crashed = everything_lost(disk.picture())
    saver.close()
    reopened = open_on(SimDisk(crashed))
    assert state_of(reopened) == states_with_probe(state)[1]
    reopened.close()


def everything_lost(picture: Picture) -> Files:
    return {name: picture.inodes[number][0] for name, number in picture.durable_names.items()}


def put_probe(saver: LogSaver) -> None:
    checkpoint = make_checkpoint({"probe": "still works"}, checkpoint_id="zzz-probe")
    saver.put(make_config(PROBE), checkpoint, {"source": "update"}, {"probe": 1})


def _explain(found: State, states: Sequence[State], acknowledged: int, issued: int) -> str:
    if found in states:
        return (
            f"the state after {states.index(found)} calls, but {acknowledged} were acknowledged "
            f"and {issued} issued"
        )
    return f"not the state after any prefix of the calls: {sorted(map(str, found))}"
