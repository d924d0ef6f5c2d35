"""Power failures on a simulated disk: at every point, every way, and again during recovery."""

from __future__ import annotations

import os
import random

import pytest
from crashing import (
    Call,
    History,
    check,
    check_every_crash,
    check_some_crashes,
    open_on,
    run,
    state_of,
)
from encrypting import encrypted_logs
from simdisk import SimDisk
from support import make_checkpoint, make_config

CI_STATES = 20_000
DEEP_STATES = int(os.environ.get("LOGSAVER_CRASH_STATES", "1000000"))
SEED = int(os.environ.get("LOGSAVER_CRASH_SEED", "7"))
# "0/2" and "1/2", with the same PYTHONHASHSEED: two processes that share the disks between them.
PART, PARTS = map(int, os.environ.get("LOGSAVER_CRASH_PART", "0/1").split("/"))


def put(thread: str, number: int, size: int = 40, parent: int | None = None, durable: bool = True):
    text = f"{thread}-{number} " * (size // 4)
    checkpoint = make_checkpoint(
        {"text": text[:size], "same": "x" * 20},
        {"text": number, "same": 1},
        checkpoint_id=f"{number:04}",
    )
    config = make_config(thread, "", f"{parent:04}" if parent else None)
    new = {"text": number} if parent else checkpoint["channel_versions"]
    return Call(
        f"put {thread} {number}",
        lambda saver: saver.put(config, checkpoint, {"step": number, "run_id": thread}, new),
        durable,
    )


def put_writes(thread: str, number: int, task: str = "task", durable: bool = True):
    config = make_config(thread, "", f"{number:04}")
    return Call(
        f"put_writes {thread} {number}",
        lambda saver: saver.put_writes(config, [("a", number), ("b", task)], task, "~path"),
        durable,
    )


def flush():
    return Call("flush", lambda saver: saver.flush())


EVERY_KIND = [
    put("a", 1),
    put_writes("a", 1),
    put("a", 2, parent=1),
    put("b", 1, size=700),
    put_writes("b", 9),
    Call("copy", lambda saver: saver.copy_thread("a", "c")),
    Call("prune", lambda saver: saver.prune(["a"])),
    put("a", 3, parent=2),
    Call("delete_for_runs", lambda saver: saver.delete_for_runs(["b"])),
    Call("delete", lambda saver: saver.delete_thread("c")),
    put("c", 1),
]
SHORT = [put("a", 1), put("a", 2, parent=1), Call("delete", lambda s: s.delete_thread("a"))]
LAZY = [
    put("a", 1, durable=False),
    put_writes("a", 1, durable=False),
    put("a", 2, size=900, parent=1, durable=False),
    flush(),
    put("a", 3, size=900, parent=2, durable=False),
    put_writes("a", 3, durable=False),
    Call("delete", lambda saver: saver.delete_thread("b"), durable=False),
    put("b", 1, size=1500, durable=False),
    flush(),
    put("b", 2, parent=1, durable=False),
]


def test_every_crash_of_a_short_history_keeps_what_was_acknowledged():
    history = run(SHORT)
    assert len(history.moments) > 10
    assert check_every_crash(history) > 60


def test_every_crash_of_unsynced_calls_leaves_a_prefix():
    """Four unsynced frames at once: any of them may be kept, lost, zeroed or garbled."""
    calls = [put("a", n, durable=False, parent=n - 1 or None) for n in range(1, 5)]
    history = run(calls, fsync="never")
    tried = 0
    for files in history.moments[-1].picture.every_crash():
        check(files, history.states, acknowledged=0, issued=len(calls))
        tried += 1
    assert tried >= 4**4


def test_every_crash_of_an_encrypted_log_keeps_what_was_acknowledged():
    with encrypted_logs():
        test_every_crash_of_a_short_history_keeps_what_was_acknowledged()


def test_a_crash_during_recovery_of_an_encrypted_log_is_recovered_from():
    with encrypted_logs():
        test_a_crash_during_recovery_is_recovered_from(EVERY_KIND)


@pytest.mark.parametrize("calls", [EVERY_KIND, LAZY], ids=["every-kind", "lazy"])
def test_a_crash_during_recovery_is_recovered_from(calls):
    history = run(calls, fsync="never" if calls is LAZY else "auto")
    check_some_crashes(history, random.Random(1), deeper=2)


def test_many_sampled_crashes_keep_what_was_acknowledged():
    print(judge_sampled_crashes(CI_STATES))


def test_sampled_crashes_of_encrypted_logs_keep_what_was_acknowledged():
    with encrypted_logs():
        print(judge_sampled_crashes(CI_STATES // 40))


@pytest.mark.deep
@pytest.mark.timeout(0)
def test_a_million_sampled_crashes_of_encrypted_logs_keep_what_was_acknowledged():
    with encrypted_logs():
        print(judge_sampled_crashes(DEEP_STATES))


@pytest.mark.deep
@pytest.mark.timeout(0)
def test_a_million_sampled_crashes_keep_what_was_acknowledged():
    print(judge_sampled_crashes(DEEP_STATES))


def judge_sampled_crashes(wanted: int) -> str:
    """Crash until so many different disks were found; every 40th crashes again while it recovers.

    Two disks are the same if they have the same files with the same bytes, whatever history led
    to them. All logs have one file id here, or every history would seem to make new ones.
    """
    randomness = random.Random(SEED)
    disks: set[int] = set()
    cases: set[int] = set()  # the same disk may be found with other promises to keep
    again = 0
    while len(disks) * PARTS < wanted:
        history = random_history(randomness)
        for moment in randomness.choices(history.moments, k=250):
            files = moment.picture.some_crash(randomness)
            disk = hash(frozenset(files.items()))
            case = hash((disk, moment.acknowledged, moment.issued))
            if case in cases or disk % PARTS != PART:
                continue
            cases.add(case)
            disks.add(disk)
            again += check(
                files,
                history.states,
                acknowledged=moment.acknowledged,
                issued=moment.issued,
                deeper=1 if len(cases) % 40 == 0 else 0,
            )
    return (
        f"{len(disks)} distinct disks, {len(cases)} crashes, {again} more crashes during recovery"
    )


def random_history(randomness: random.Random) -> History:
    calls = random_calls(randomness)
    if randomness.random() < 0.3:
        return run(calls, fsync="always")
    calls = [call._replace(durable=False) for call in calls]
    for at in sorted(randomness.sample(range(len(calls)), k=2), reverse=True):
        calls.insert(at, flush())
    return run(calls, fsync="never")


def random_calls(randomness: random.Random) -> list[Call]:
    """A dozen calls of all kinds on two threads."""
    calls: list[Call] = []
    last = {"a": 0, "b": 0}
    for _ in range(randomness.randint(6, 14)):
        thread = randomness.choice("ab")
        kind = randomness.random()
        if kind < 0.55:
            parent = last[thread] or None
            last[thread] += 1
            size = randomness.choice([10, 100, 450, 600, 1400])
            calls.append(put(thread, last[thread], size, parent))
        elif kind < 0.8:
            task = randomness.choice(["t1", "t2"])
            calls.append(put_writes(thread, last[thread] + randomness.randint(0, 1), task))
        elif kind < 0.88:
            calls.append(Call("prune", lambda saver, thread=thread: saver.prune([thread])))
        elif kind < 0.94:
            calls.append(Call("delete", lambda saver, thread=thread: saver.delete_thread(thread)))
            last[thread] = 0
        else:
            target = f"copy-{len(calls)}"
            calls.append(
                Call(
                    "copy",
                    lambda saver, thread=thread, target=target: saver.copy_thread(thread, target),
                )
            )
    return calls


def test_the_promised_operations_come_in_the_promised_order():
    disk = SimDisk()
    saver = open_on(disk)
    assert disk.log == ["create", "create", "write", "sync", "replace", "sync_directory"]
    del disk.log[:]
    put("a", 1).do(saver)
    assert disk.log == ["write", "sync"]
    killed = disk.after_a_kill()
    saver.close()
    assert disk.log == ["write", "sync", "write"]  # nothing was left to sync, but to vouch for
    del disk.log[:]
    saver = open_on(disk)
    assert state_of(saver)
    saver.close()
    assert disk.log == []  # only looked at
    saver = open_on(disk)
    put("a", 2, parent=1).do(saver)
    # With what was not known to be synced: the frame that vouches for all before it.
    assert disk.log == ["write", "write", "sync"]
    saver.close()
    saver = open_on(killed)
    del killed.log[:]
    put("a", 2, parent=1).do(saver)
    # Here this is the first put, and the log's name.
    assert killed.log == ["write", "write", "sync", "sync_directory"]
    saver.close()
