"""The fallback for systems without `fcntl`, `os.pread` and `os.pwrite`, such as Windows.

A child interpreter hides those names before it imports logsaver, and has a `msvcrt` whose locks
are this system's. There, as on Windows, a file that is open cannot be replaced.
"""

from __future__ import annotations

import os
import textwrap
import threading
from pathlib import Path

import pytest
from crashing import state_of
from support import ids, put, run_python

from logsaver import LogSaver, verify

pytest.importorskip("fcntl", reason="the fake msvcrt locks with it")

PREAMBLE = """
import asyncio, errno, os, subprocess, sys, threading, time, types
import fcntl as real
import langgraph.checkpoint.serde.jsonplus
from support import *

def locking(fd, mode, size):
    assert os.lseek(fd, 0, os.SEEK_CUR) == PortableDisk._LOCKED_BYTE and size == 1
    if mode == msvcrt.LK_UNLCK:
        if fd not in locked:
            raise PermissionError(errno.EACCES, "not locked")
        locked.discard(fd)
        return real.flock(fd, real.LOCK_UN)
    try:
        real.flock(fd, real.LOCK_EX | real.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "locked") from None
    locked.add(fd)

def replace(source, target, really=os.replace):
    replaced.append(target)
    if refusals:
        refusals.pop()
        raise PermissionError(errno.EACCES, "in use")
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}") in (source, target):
                raise PermissionError(errno.EACCES, "we have it open ourselves")
        except FileNotFoundError:
            continue
    really(source, target)

locked, replaced, refusals = set(), [], []
msvcrt = types.SimpleNamespace(LK_NBLCK=2, LK_UNLCK=0, locking=locking)
sys.modules["fcntl"], sys.modules["msvcrt"] = None, msvcrt
for name in ("pread", "pwrite", "fdatasync", "register_at_fork", "fork", "posix_fadvise",
             "O_CLOEXEC", "O_NONBLOCK", "major", "minor", "fchown", "fchmod", "geteuid"):
    delattr(os, name)
os.replace = replace

from logsaver import LogSaver, LogSaverError, LogWriteError, LockTimeoutError, verify
from logsaver.disk import DISK, PortableDisk
from logsaver.rewriting import rewrite
assert type(DISK) is PortableDisk
path = sys.argv[1]
"""


def run_portable(script: str, path: str) -> str:
    code = PREAMBLE + textwrap.dedent(script)
    return run_python(code, path, PYTHONPATH=str(Path(__file__).parent)).stdout


def test_what_is_put_is_read_and_is_there_after_reopening(path):
    run_portable(
        """
        with LogSaver(path) as saver:
            first = put(saver, "t", {"x": "y" * 5000})
            saver.put_writes(first, [("x", 1)], "task")
            put(saver, "t", {"x": "y" * 5000}, parent=first, new_versions={})
            put(Awaited(saver), "u", {"x": 1})
            saver.copy_thread("t", "v")
            saver.prune(["t"])
        with LogSaver(path) as saver, LogSaver(path, read_only=True) as reader:
            assert len(ids(saver.list(None))) == len(ids(reader.list(None))) == 4
            assert saver.get_tuple(make_config("v", "", id_of(first))).pending_writes
            put(saver, "w")
            assert reader.get_tuple(make_config("w"))
        """,
        path,
    )
    assert verify(path).ok
    with LogSaver(path) as saver:
        assert len(ids(saver.list(None))) == 5


def test_threads_do_not_get_in_each_others_way(path):
    run_portable(
        """
        from logsaver.cache import Recent
        def run(name):
            for number in range(50):
                config = put(saver, name, {"x": f"{name} {number} " * 50})
                value = saver.get_tuple(config).checkpoint["channel_values"]["x"]
                assert value == f"{name} {number} " * 50
        with LogSaver(path) as saver:
            saver._store.log.cache = Recent(0)   # read from the file, always
            threads = [threading.Thread(target=run, args=(f"t{n}",)) for n in range(4)]
            [thread.start() for thread in threads], [thread.join() for thread in threads]
            assert len(ids(saver.list(None))) == 200
        """,
        path,
    )
    assert verify(path).ok


def test_two_processes_exclude_each_other(path):
    """One has the fallback, the other has not: the fake lock is the real one."""
    with LogSaver(path) as saver:
        script = "with LogSaver(path) as saver:\n    [put(saver, 'there') for _ in range(100)]\n"
        other = threading.Thread(target=run_portable, args=(script, path))
        other.start()
        count = 0
        while other.is_alive():
            put(saver, "here")
            count += 1
        assert len(ids(saver.list(None))) == count + 100
    assert verify(path).torn_tail is None


def test_a_lock_that_is_taken_is_waited_for_and_then_told(path):
    run_portable(
        """
        LogSaver(path).close()
        fd = os.open(path, os.O_RDWR)
        real.flock(fd, real.LOCK_EX)
        with LogSaver(path, lock_timeout=0.2) as saver:
            try:
                put(saver)
            except LockTimeoutError as error:
                assert "another process has kept" in str(error)
            else:
                raise AssertionError("it was not locked")
            os.close(fd)
            put(saver)
        """,
        path,
    )


@pytest.mark.parametrize("refused", [0, 3])
def test_a_log_is_rewritten_with_its_files_closed_and_tried_again_when_in_use(path, refused):
    run_portable(
        f"""
        with LogSaver(path) as saver:
            first = put(saver, "t", {{"x": "y" * 500}})
            put(saver, "t", {{"x": "y" * 500}}, parent=first, new_versions={{}})
            replaced.clear()
            refusals[:] = [True] * {refused}
            assert rewrite(saver._store)
            assert len(replaced) == {refused} + 1
            assert saver._store.log.header.generation == 1
            put(saver, "u")
            assert len(ids(saver.list(None))) == 3
        assert os.listdir(os.path.dirname(path)) == ["agent.log"]
        """,
        path,
    )
    with LogSaver(path) as saver:
        assert len(state_of(saver)) == 3
        assert saver._store.log.header.generation == 1


def test_a_log_that_stays_in_use_is_told_and_goes_on_as_it_was(path):
    run_portable(
        """
        from logsaver import rewriting
        rewriting.PAUSE = 0.001
        with LogSaver(path) as saver:
            put(saver, "t")
            refusals[:] = [True] * 1000
            try:
                rewrite(saver._store)
            except LogWriteError as error:
                assert "close what has it open" in str(error)
            else:
                raise AssertionError("it was replaced")
            refusals.clear()
            put(saver, "u")
            assert len(ids(saver.list(None))) == 2
            assert rewrite(saver._store)
            assert len(ids(saver.list(None))) == 2
        assert os.listdir(os.path.dirname(path)) == ["agent.log"]
        """,
        path,
    )
    assert verify(path).ok


def test_a_new_log_is_made_once_its_name_is_free(path):
    run_portable(
        """
        refusals[:] = [True] * 5
        LogSaver(path).close()
        assert len(replaced) == 6
        """,
        path,
    )
    assert os.listdir(os.path.dirname(path)) == ["agent.log"]
    LogSaver(path).close()
