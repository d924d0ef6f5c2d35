"""Processes killed with SIGKILL at any moment: nothing that was acknowledged is lost.

`LOGSAVER_KILLS` says how many kills the deep test makes, `LOGSAVER_KILL_SEED` which ones.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from pathlib import Path

import pytest
from crashing import state_of
from encrypting import encrypted_logs
from kill_worker import (
    FULL_TRAIL,
    INPUT,
    MODES,
    OPERATIONS,
    lane_step,
    one_of_each,
    put_step,
    steps_of,
)
from killing import Figures, Server, Worker, check_calls, of_thread, replay, settle, wait

from logsaver import LogSaver

DEEP_KILLS = int(os.environ.get("LOGSAVER_KILLS", "1000"))
SEED = int(os.environ.get("LOGSAVER_KILL_SEED", "1"))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


@pytest.fixture(scope="module")
def server(request):
    is_encrypted = getattr(request, "param", False)
    with encrypted_logs() if is_encrypted else contextlib.nullcontext():
        started = Server(encrypted=is_encrypted)
        yield started
        started.close()


plain_and_encrypted = pytest.mark.parametrize(
    "server", [False, True], ids=["plain", "encrypted"], indirect=True
)
encrypted = pytest.mark.parametrize("server", [True], ids=["encrypted"], indirect=True)


def kill_somewhere(worker: Worker, randomness: random.Random, focus: str | None) -> None:
    """Kill after some acknowledgements, at once or a little later, or as `focus` begins."""
    if focus is not None:
        worker.read_until(randomness.randint(1, 4), "begin", focus)
        wait(10 ** randomness.uniform(-5, -2.3))
    else:
        worker.read_until(randomness.choice([0, 1, 2, 10, 40]), "done")
        wait(randomness.choice([0, 0, 0.0001, 0.001, 0.01]) * randomness.random())
    worker.kill()


# -- one call at a time


def kill_between_calls(
    server: Server, directory: Path, seed: int, focus: str | None, mode: str, figures: Figures
) -> None:
    """Kill a process, go on with the next where it was, and kill that too."""
    randomness = random.Random(seed)
    path = directory / f"calls-{seed}-{focus}-{mode}.log"
    reached = 0
    for _ in range(3):
        worker = server.start(
            "calls", path=str(path), seed=seed, focus=focus, mode=mode, start=reached
        )
        kill_somewhere(worker, randomness, focus)
        assert worker.code == -signal.SIGKILL
        figures.note(worker, path)
        acknowledged = max(reached, worker.acknowledged())
        reached = check_calls(path, steps_of(seed, focus, mode), acknowledged=acknowledged)
        figures.found_more += reached > acknowledged
    for left in directory.glob(path.name + "*"):
        left.unlink()


@pytest.mark.parametrize("mode", MODES)
def test_a_kill_at_any_moment_loses_no_call_that_returned(server, tmp_path, mode):
    figures = Figures()
    for seed in range(3):
        kill_between_calls(server, tmp_path, SEED + seed, None, mode, figures)
    print(figures)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_kill_in_the_middle_of_an_operation_leaves_it_done_or_not_begun(
    server, tmp_path, operation
):
    figures = Figures()
    mode = MODES[OPERATIONS.index(operation) % 2]
    kill_between_calls(server, tmp_path, SEED, operation, mode, figures)
    print(figures)


# -- at every system call


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("torn", [False, True], ids=["new-log", "torn-log"])
def test_a_kill_at_every_system_call_loses_no_call_that_returned(server, tmp_path, torn, mode):
    """Creation or recovery, one call of each kind, close: dead before each system call of it.

    And in the middle of every write.
    """
    before = tear(tmp_path / "torn.log", mode) if torn else 0
    torn_log = (tmp_path / "torn.log").read_bytes() if torn else None
    steps = [*base_steps(mode)[:before], *one_of_each(mode, start=100)]
    states = list(replay(steps, tmp_path / "expected.log"))

    def run(at: int, *, half: bool) -> Worker:
        path = tmp_path / "dying.log"
        for left in tmp_path.glob("dying.log*"):
            left.unlink()
        if torn_log is not None:
            path.write_bytes(torn_log)
        worker = server.start("die", path=str(path), mode=mode, start=100, at=at, half=half)
        worker.listen_to_the_end()
        done = before + worker.acknowledged()
        assert settle(path) in states[done : done + 2]
        return worker

    survivor = run(0, half=False)
    assert survivor.code == 0
    calls = [name for (name,) in survivor.said("call")]
    assert "truncate" in calls if torn else "replace" in calls
    kills = 0
    for at, name in enumerate(calls, start=1):
        for half in (False, True) if name == "write" else (False,):
            code = run(at, half=half).code
            # How many syncs an async-mode run needs is a matter of timing.
            assert code == -signal.SIGKILL or mode == "async"
            kills += code == -signal.SIGKILL
    print(f"{kills} kills at {len(calls)} system calls")


def base_steps(mode: str) -> list:
    return [put_step("a", n, n - 1 or None, mode, size=500) for n in range(1, 6)]


def tear(path: Path, mode: str, tail: int = 300) -> int:
    """Make a log of which a crash left the last call by half; how many calls are whole."""
    steps = base_steps(mode)
    with LogSaver(path, fsync="never") as saver:
        for step in steps:
            step.do(saver)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 100)
        file.seek(0, os.SEEK_END)
        file.write(b"x" * (tail - 300))
    return len(steps) - 1


# -- creation and recovery


def kill_in_creation(server: Server, directory: Path, seed: int, figures: Figures) -> None:
    randomness = random.Random(seed)
    directory = directory / f"create-{seed}"
    directory.mkdir()
    worker = server.start("create", directory=str(directory))
    worker.read_until(randomness.randint(1, 20), "begin", "create")
    wait(10 ** randomness.uniform(-5, -2.5))
    worker.kill()
    last = len(worker.said("begin"))
    created = len(worker.said("done"))
    figures.note(worker, directory / f"new-{last}.log")
    for number in range(1, last + 1):
        path = directory / f"new-{number}.log"
        assert number > created or path.stat().st_size
        # What is left of a creation is a log without anything in it, or nothing at all.
        with LogSaver(path) as saver:
            assert state_of(saver) == {}
    assert settle(directory / f"new-{last}.log") == {}


def kill_in_recovery(server: Server, directory: Path, seed: int, figures: Figures) -> None:
    """Kill the process that recovers a torn log, and the next one too."""
    randomness = random.Random(seed)
    path = directory / f"torn-{seed}.log"
    whole = tear(path, "sync", tail=randomness.choice([400, 100_000, 8_000_000]))
    for _ in range(2):
        worker = server.start("open", path=str(path))
        worker.read_until(1, "begin", "recover")
        wait(10 ** randomness.uniform(-4.5, -1.7))
        worker.kill()
        figures.note(worker, path)
    assert check_calls(path, base_steps("sync")[:whole], acknowledged=whole, issued=whole) == whole
    for left in directory.glob(path.name + "*"):
        left.unlink()


def test_a_kill_during_the_creation_of_a_log_leaves_a_log_or_none(server, tmp_path):
    figures = Figures()
    for seed in range(4):
        kill_in_creation(server, tmp_path, SEED + seed, figures)
    print(figures)


def test_a_kill_during_recovery_is_recovered_from(server, tmp_path):
    figures = Figures()
    for seed in range(3):
        kill_in_recovery(server, tmp_path, SEED + seed, figures)
    print(figures)


# -- many calls at a time


def kill_lanes(
    server: Server, directory: Path, seed: int, kind: str, mode: str, figures: Figures
) -> None:
    randomness = random.Random(seed)
    lanes = randomness.choice([2, 5] if kind == "threads" else [3, 60])
    path = directory / f"{kind}-{seed}-{mode}.log"
    worker = server.start(kind, path=str(path), lanes=lanes, mode=mode)
    worker.read_until(randomness.choice([1, lanes, 20 * lanes]), "done")
    wait(randomness.choice([0, 0, 0.001, 0.01]) * randomness.random())
    worker.kill()
    assert worker.code == -signal.SIGKILL
    figures.note(worker, path)
    found = settle(path)
    judged = 0
    for lane in range(lanes):
        done = worker.acknowledged_of_lane(lane)
        here = of_thread(found, f"lane-{lane}")
        steps = [lane_step(lane, number, mode) for number in range(1, done + 2)]
        allowed = list(replay(steps, path.with_name("expected.log")))[done:]
        assert here in allowed, f"lane {lane}: {done} calls were acknowledged, found {list(here)}"
        figures.found_more += here == allowed[1]
        judged += len(here)
    assert judged == len(found)  # nothing is there that nobody put
    path.unlink()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_a_kill_loses_nothing_that_returned_to_many_callers(server, tmp_path, kind, mode):
    figures = Figures()
    for seed in range(2):
        kill_lanes(server, tmp_path, SEED + seed, kind, mode, figures)
    print(figures)


# -- graph runs


def kill_graph(
    server: Server,
    directory: Path,
    seed: int,
    durability: str,
    is_async: bool,
    figures: Figures,
) -> None:
    """Kill a graph run, resume it, kill that too; the last one runs to its end."""
    randomness = random.Random(seed)
    path = directory / f"graph-{seed}-{durability}-{is_async}.log"
    job = {"path": str(path), "durability": durability, "is_async": is_async}
    finished: set[str] = set()  # nodes whose work was acknowledged as stored
    stored: set[str] = set()  # checkpoints of which the same is true
    for is_last in (False, False, True):
        worker = server.start("graph", **job)
        if not is_last:
            event = randomness.choice(["ran", "ran", "wrote", "stored"])
            worker.read_until(randomness.randint(1, 6), event)
            wait(randomness.choice([0, 0.0005, 0.002]) * randomness.random())
            worker.kill()
            was_killed = worker.code == -signal.SIGKILL
            figures.kills += was_killed
            figures.doing["graph run"] += was_killed
        worker.listen_to_the_end()
        ran = {name for (name,) in worker.said("ran")}
        assert not ran & finished, f"{ran & finished} ran again"
        stored |= {checkpoint_id for checkpoint_id, *_ in worker.said("stored")}
        for _, *trail in worker.said("stored"):
            finished |= set(trail)
        for checkpoint_id, *names in worker.said("wrote"):
            # Writes beside a checkpoint that did not make it are of no use to anybody.
            if checkpoint_id in stored:
                finished |= set(names)
        figures.acknowledged += len(worker.said("stored")) + len(worker.said("wrote"))
    assert worker.code == 0
    assert worker.said("result") == [FULL_TRAIL]
    # A kill may come between the storing of a step and the telling of it.
    assert len(set(FULL_TRAIL) - finished - {INPUT}) <= 2
    with LogSaver(path) as saver:
        latest = saver.get_tuple({"configurable": {"thread_id": "t"}})
        assert latest.checkpoint["channel_values"]["trail"] == FULL_TRAIL


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("is_async", [False, True], ids=["invoke", "ainvoke"])
def test_a_killed_graph_run_is_resumed_without_repeating_what_was_stored(
    server, tmp_path, durability, is_async
):
    figures = Figures()
    for seed in range(2):
        kill_graph(server, tmp_path, SEED + seed, durability, is_async, figures)
    print(figures)


# -- all of it, for long


@encrypted
def test_kills_of_processes_that_write_encrypted_logs_lose_nothing(server, tmp_path):
    figures = Figures()
    kill_between_calls(server, tmp_path, SEED, None, "async", figures)
    kill_in_creation(server, tmp_path, SEED, figures)
    kill_in_recovery(server, tmp_path, SEED, figures)
    kill_lanes(server, tmp_path, SEED, "threads", "sync", figures)
    kill_graph(server, tmp_path, SEED, "async", False, figures)
    print(figures)


@plain_and_encrypted
@pytest.mark.deep
@pytest.mark.timeout(0)
def test_a_thousand_kills_lose_no_call_that_returned(server, tmp_path):
    randomness = random.Random(SEED)
    figures = Figures()
    seed = SEED * 1_000_000
    while figures.kills < DEEP_KILLS:
        seed += 1
        mode = randomness.choice(MODES)
        kind = randomness.randrange(10)
        if kind < 5:
            focus = randomness.choice([None, None, *OPERATIONS])
            kill_between_calls(server, tmp_path, seed, focus, mode, figures)
        elif kind == 5:
            kill_in_creation(server, tmp_path, seed, figures)
        elif kind == 6:
            kill_in_recovery(server, tmp_path, seed, figures)
        elif kind == 7:
            lanes = randomness.choice(["threads", "coroutines"])
            kill_lanes(server, tmp_path, seed, lanes, mode, figures)
        else:
            durability = randomness.choice(["sync", "async", "exit"])
            is_async = randomness.random() < 0.5
            kill_graph(server, tmp_path, seed, durability, is_async, figures)
    print(figures)
