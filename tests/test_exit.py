"""Interpreters that exit without `close()`: what was put is synced, nothing hangs, nothing is said.

Every test runs a script in a new interpreter and judges the log that it leaves behind.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from support import VOUCH, run_python

from logsaver import LogSaver, verify

MAX_EXIT = 2.0  # seconds from the last statement to the end of the process

# What all scripts start with. `sync_takes` makes every sync slow, `acknowledge` tells the parent,
# and each sync that is over tells how much of the log it covered.
PREAMBLE = """
import asyncio, copy, os, sys, threading, time

sync_takes = 0.0
_sync = os.fdatasync

def told_sync(fd):
    covered = os.fstat(fd).st_size
    time.sleep(sync_takes)
    _sync(fd)
    os.write(1, f"synced {covered}\\n".encode())

os.fdatasync = told_sync

from logsaver import LogSaver, LogSaverError
from support import make_checkpoint, make_config, put

def acknowledge(number):
    os.write(1, f"done {number}\\n".encode())

def leave():
    os.write(1, f"leaves {time.monotonic()}\\n".encode())

def put_async(number, saver=None, thread="t"):
    config = make_config(thread, __pregel_durability="async")
    checkpoint = make_checkpoint({"n": number})
    (saver or globals()["saver"]).put(config, checkpoint, {}, {"n": 1})

saver = LogSaver(sys.argv[1])
del told_sync
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "fdatasync"), reason="watches fdatasync")


class Outcome(NamedTuple):
    code: int
    stderr: str
    acknowledged: int
    synced: int  # bytes that a sync has covered


def run_script(path: str, script: str, *, sync_takes: float = 0.0) -> Outcome:
    """Run the script to the exit of its interpreter."""
    code = f"{PREAMBLE}\nsync_takes = {sync_takes}\n{script}"
    done = run_python(code, path, check=False, PYTHONPATH=str(Path(__file__).parent))
    ended = time.monotonic()
    lines = [line.split() for line in done.stdout.splitlines()]
    left = [float(line[1]) for line in lines if line[0] == "leaves"]
    assert left, done.stderr
    assert ended - left[-1] < MAX_EXIT
    synced = [int(line[1]) for line in lines if line[0] == "synced"]
    acknowledged = sum(line[0] == "done" for line in lines)
    return Outcome(done.returncode, done.stderr, acknowledged, max(synced, default=0))


def check_log(
    path: str, outcome: Outcome, *, whole: int | None = None, is_closed: bool = True
) -> None:
    """Everything acknowledged is there, and, unless told how much, all of the file is synced."""
    report = verify(path)
    assert report.ok
    assert report.torn_tail is None
    if whole is None:
        whole = os.path.getsize(path)
        if is_closed:  # the frame that vouches for all before it needs no sync
            whole -= VOUCH
            assert report.safe_upto == whole
    assert outcome.synced >= whole
    with LogSaver(path) as saver:
        assert len(list(saver.list(None))) >= outcome.acknowledged


def assert_quiet(outcome: Outcome, code: int = 0) -> None:
    assert outcome.stderr == ""
    assert outcome.code == code


def test_exit_after_a_sync_put(path):
    outcome = run_script(
        path,
        """
put(saver)
acknowledge(1)
leave()
""",
    )
    assert_quiet(outcome)
    check_log(path, outcome)
    assert outcome.acknowledged == 1


@pytest.mark.behaviour(33)
def test_exit_syncs_the_async_puts_that_are_still_pending(path):
    """The sync under way covers the first of them only."""
    outcome = run_script(
        path,
        """
for number in range(20):
    put_async(number)
    acknowledge(number)
    time.sleep(0.005)
assert threading.active_count() == 2, threading.enumerate()  # the flusher is at it
leave()
""",
        sync_takes=0.2,
    )
    assert_quiet(outcome)
    check_log(path, outcome)
    assert outcome.acknowledged == 20


@pytest.mark.behaviour(33)
def test_exit_with_a_sync_under_way(path):
    outcome = run_script(
        path,
        """
put_async(1)
acknowledge(1)
time.sleep(0.1)
leave()
""",
        sync_takes=0.4,
    )
    assert_quiet(outcome)
    check_log(path, outcome)


def test_exit_syncs_nothing_if_the_user_wants_that(path):
    outcome = run_script(
        path,
        """
saver.close()
saver = LogSaver(sys.argv[1], fsync="never")
put(saver)
acknowledge(1)
leave()
""",
    )
    assert_quiet(outcome)
    check_log(path, outcome, whole=0)
    assert outcome.synced < os.path.getsize(path)


@pytest.mark.parametrize("do_put", ["put(saver)", "put_async(0)"], ids=["sync", "async"])
def test_exit_while_daemon_threads_are_putting(path, do_put):
    """A thread that puts into the closed log is told so; what it had put is there and synced."""
    outcome = run_script(
        path,
        f"""
def go_on():
    try:
        while True:
            {do_put}
            acknowledge(0)
    except LogSaverError:
        pass

for _ in range(3):
    threading.Thread(target=go_on, daemon=True).start()
time.sleep(0.2)
leave()
""",
    )
    assert_quiet(outcome)
    check_log(path, outcome)
    assert outcome.acknowledged > 3


def test_exit_waits_for_the_puts_of_ordinary_threads(path):
    outcome = run_script(
        path,
        """
def some():
    for number in range(10):
        time.sleep(0.01)
        put(saver)
        acknowledge(number)

for _ in range(3):
    threading.Thread(target=some).start()
leave()
""",
    )
    assert_quiet(outcome)
    check_log(path, outcome)
    assert outcome.acknowledged == 30


def test_exit_inside_a_coroutine(path):
    outcome = run_script(
        path,
        """
async def main():
    for number in range(5):
        checkpoint = make_checkpoint({"n": number})
        await saver.aput(make_config("t"), checkpoint, {}, {"n": 1})
        acknowledge(number)
    put_async(5)
    acknowledge(5)
    leave()
    sys.exit(3)

asyncio.run(main())
""",
        sync_takes=0.02,
    )
    assert_quiet(outcome, code=3)
    check_log(path, outcome)
    assert outcome.acknowledged == 6


def test_exit_while_coroutines_await_a_sync(path):
    """`asyncio.run` cancels them. They were not acknowledged, but what they wrote is synced."""
    outcome = run_script(
        path,
        """
async def one(number):
    await saver.aput(make_config(f"t{number}"), make_checkpoint(), {}, {})
    acknowledge(number)

async def main():
    tasks = [asyncio.create_task(one(number)) for number in range(10)]
    await asyncio.sleep(0.1)
    leave()
    sys.exit(0)

asyncio.run(main())
""",
        sync_takes=0.5,
    )
    assert_quiet(outcome)
    check_log(path, outcome)
    with LogSaver(path) as saver:
        assert len(list(saver.list(None))) == 10


def test_an_exception_that_nobody_handles(path):
    outcome = run_script(
        path,
        """
put_async(1)
acknowledge(1)
leave()
raise ZeroDivisionError("of the user")
""",
        sync_takes=0.1,
    )
    assert outcome.code == 1
    assert outcome.stderr.startswith("Traceback")
    assert outcome.stderr.endswith("ZeroDivisionError: of the user\n")
    assert "logsaver" not in outcome.stderr
    check_log(path, outcome)


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_process(path, signal):
    """Ctrl-C unwinds the interpreter and syncs; SIGTERM kills, and what was put is in the OS."""
    outcome = run_script(
        path,
        f"""
import signal
for number in range(5):
    put_async(number)
    acknowledge(number)
leave()
os.kill(os.getpid(), signal.{signal})
time.sleep(30)
""",
        sync_takes=0.05,
    )
    assert outcome.code < 0
    assert "logsaver" not in outcome.stderr
    check_log(path, outcome, whole=None if signal == "SIGINT" else 0)


@pytest.mark.parametrize("do_put", ["put(saver)", "put_async(0)"], ids=["sync", "async"])
def test_an_exit_without_any_cleaning_up_loses_nothing_that_returned(path, do_put):
    """Of an async put only the sync is missing, and the machine is still there to do it."""
    outcome = run_script(
        path,
        f"""
for number in range(5):
    {do_put}
    acknowledge(number)
leave()
os._exit(4)
""",
    )
    assert_quiet(outcome, code=4)
    whole = None if do_put == "put(saver)" else 0
    check_log(path, outcome, whole=whole, is_closed=False)
    with LogSaver(path) as saver:
        assert len(list(saver.list(None))) == outcome.acknowledged == 5


def test_exit_with_a_clone_that_is_not_collected(path):
    """LangGraph clones savers with `copy.copy`. The original is gone, the clone is in a cycle."""
    outcome = run_script(
        path,
        """
clone = copy.copy(saver)
del saver
put_async(1, clone)
acknowledge(1)
cycle = [clone]
cycle.append(cycle)
sys.modules["a place that outlives everything"] = cycle
del clone, cycle
leave()
""",
        sync_takes=0.1,
    )
    assert_quiet(outcome)
    check_log(path, outcome)


def test_exit_waits_for_a_saver_that_was_collected_just_before(path):
    """It is finished in a thread of its own, which the exit must not cut off."""
    outcome = run_script(
        path,
        """
put_async(1)
acknowledge(1)
del saver
leave()
""",
        sync_takes=0.3,
    )
    assert_quiet(outcome)
    check_log(path, outcome)


def test_exit_with_a_sync_that_fails_tells_and_does_not_hang(path):
    outcome = run_script(
        path,
        """
saver.fsync = "never"
put(saver)
acknowledge(1)

def fail(fd):
    raise OSError(5, "Input/output error")

os.fdatasync = fail
leave()
""",
    )
    assert outcome.code == 0
    assert f"{path}: a saver that was not closed could not be finished" in outcome.stderr
    assert "Input/output error" in outcome.stderr
    check_log(path, outcome, whole=0)


def test_exit_with_several_savers_on_several_logs(path):
    outcome = run_script(
        path,
        """
others = [LogSaver(f"{sys.argv[1]}-{number}") for number in range(3)]
same = LogSaver(sys.argv[1])
for each in (*others, same):
    put_async(1, each)
put_async(1)
acknowledge(1)
leave()
""",
        sync_takes=0.05,
    )
    assert_quiet(outcome)
    check_log(path, outcome)
    for number in range(3):
        with LogSaver(f"{path}-{number}") as saver:
            assert len(list(saver.list(None))) == 1


def test_exit_after_a_graph_run(path):
    """Nobody says which durability: the puts count as async, and the exit syncs the last."""
    outcome = run_script(
        path,
        """
from kill_worker import FULL_TRAIL, INPUT, build_graph
os.write, write = (lambda fd, data: len(data)), os.write  # the graph's own reports
graph = build_graph(is_async=False).compile(checkpointer=saver)
result = graph.invoke({"trail": [INPUT]}, {"configurable": {"thread_id": "t"}})
os.write = write
assert result["trail"] == FULL_TRAIL
acknowledge(1)
leave()
""",
        sync_takes=0.02,
    )
    assert_quiet(outcome)
    check_log(path, outcome)


@pytest.mark.behaviour(33)
def test_all_threads_but_the_main_one_are_daemons(path):
    outcome = run_script(
        path,
        """
put(saver)
put_async(1)
asyncio.run(saver.aflush())
others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
assert others
assert all(thread.daemon for thread in others)
saver.close()
for thread in others:
    thread.join(5)
assert threading.active_count() == 1
leave()
""",
    )
    assert_quiet(outcome)


def test_a_thread_comes_only_with_the_first_need_for_one(path):
    outcome = run_script(
        path,
        """
put(saver)
saver.flush()
assert threading.active_count() == 1
put_async(1)
assert threading.active_count() == 2
leave()
""",
    )
    assert_quiet(outcome)
