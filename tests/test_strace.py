"""A real process under `strace`: the promised calls in the promised order, and calls that fail.

`strace -e inject` makes the kernel answer with an error, so this goes through everything that the
simulated disks leave out: Python's `os` module, its retries, and the file system.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest
from support import ids, put

from logsaver import LogSaver, verify


def why_not() -> str:
    """Why strace cannot be used here; empty if it can."""
    if not sys.platform.startswith("linux") or shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(
        ["strace", "-qq", "-e", "inject=fdatasync:error=EIO", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"strace may not trace here: {tried.stderr}" if tried.returncode else ""


REASON = why_not()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)

# What all scripts start with: ways to put, and to say what came of it.
SCRIPT = """
import os, sys
from logsaver import LogSaver, LogSaverError

def say(*words):
    os.write(1, " ".join(map(str, words)).encode() + b"\\n")

def put(number, mode="sync"):
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "__pregel_durability": mode}}
    checkpoint = {"v": 4, "id": f"c{number}", "ts": "", "channel_versions": {"x": number},
                  "channel_values": {"x": "some text " * 20}}
    saver.put(config, checkpoint, {}, {"x": number})

def attempt(name, do):
    try:
        do()
        say(name, "ok")
    except LogSaverError as error:
        say(name, type(error).__name__, error)

def open_it():
    global saver
    saver = LogSaver(sys.argv[1])

"""
PUT_THREE = """
attempt("open", open_it)
if "saver" in globals():
    for number in (1, 2, 3):
        attempt(f"c{number}", lambda: put(number))
    attempt("flush", saver.flush)
    attempt("close", saver.close)
"""


class Traced(NamedTuple):
    calls: list[str]  # what was done to the log and its directory, and what was said, in order
    said: dict[str, str]  # what came of each attempt

    def of(self, *names: str) -> list[str]:
        return [call for call in self.calls if call.split(" ")[0] in names]


CALLS = "pwrite64,pread64,fdatasync,fsync,rename,ftruncate,flock,openat,write"


def trace(path: str, script: str, *faults: str) -> Traced:
    """Run the script under strace, with faults in its words: `pwrite64:error=EIO:when=2`."""
    output = f"{path}.strace"
    command = ["strace", "-f", "-y", "-qq", "-s", "200", "-o", output, "-e", f"trace={CALLS}"]
    for fault in faults:
        command += ["-e", f"inject={fault}"]
    run = subprocess.run(
        [*command, sys.executable, "-c", SCRIPT + script, path],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    with open(output, errors="replace") as lines:
        calls = [found for line in lines if (found := _short(line, path))]
    said = dict(line.split(" ", 1) for line in run.stdout.splitlines())
    os.unlink(output)
    return Traced(calls, said)


def _short(line: str, path: str) -> str | None:
    """`pwrite64 log`, `rename new log`, `say c1 ok`: a line of strace, as far as it matters."""
    match = re.match(r"\d+ +(\w+)\((.*)", line)
    if match is None:
        return None
    name, rest = match.groups()
    if name == "write":
        said = re.match(r'1<.*?>, "(\w+) (\w+)', rest)
        return f"say {said[1]} {said[2]}" if said else None
    directory = os.path.dirname(path)
    names = {f"{path}.logsaver-new": "new", path: "log", directory: "directory"}
    found = re.findall(rf'[<"]({re.escape(directory)}[^>"]*)[>"]', rest)
    short = [next(to for at, to in names.items() if each.startswith(at)) for each in found]
    return " ".join([name, *dict.fromkeys(short)]) if short else None


WRITING = ("pwrite64", "fdatasync", "fsync", "rename", "ftruncate", "say")


def test_a_new_log_is_synced_before_it_gets_its_name_and_the_name_before_anything_else(path):
    done = trace(path, 'attempt("open", open_it)\n')
    assert done.of(*WRITING) == [
        "pwrite64 new",
        "fdatasync new",
        "rename new log",
        "fsync directory",
        "say open ok",
    ]


def test_a_sync_put_is_written_then_synced_then_returns(path):
    LogSaver(path).close()
    done = trace(path, "open_it()\n" + 'for n in (1, 2): attempt(f"c{n}", lambda: put(n))\n')
    put_and_synced = ["pwrite64 log", "fdatasync log"]
    assert done.of(*WRITING) == [
        *put_and_synced,
        "fsync directory",  # nothing in it was ever known to be safe, so its name may not be
        "say c1 ok",
        *put_and_synced,
        "say c2 ok",
        "pwrite64 log",  # the exit says that all is safe
    ]


def test_an_async_put_is_written_before_it_returns_and_synced_before_the_exit(path):
    done = trace(path, 'open_it()\nattempt("c1", lambda: put(1, "async"))\n')
    calls = done.of("pwrite64", "fdatasync", "say")
    assert calls.index("pwrite64 log") < calls.index("say c1 ok")
    assert calls.index("pwrite64 log") < calls.index("fdatasync log")


def test_a_read_only_saver_changes_nothing(path):
    trace(path, PUT_THREE)
    done = trace(path, "saver = LogSaver(sys.argv[1], read_only=True)\nlist(saver.list(None))\n")
    assert done.of("pread64")
    assert done.of(*WRITING, "flock") == []


def check_log(path: str, done: Traced, *, perhaps: str = "") -> None:
    """What was acknowledged is there, what failed is not, and the log takes new writes."""
    assert verify(path).ok
    acknowledged = {name for name in ("c1", "c2", "c3") if done.said.get(name) == "ok"}
    with LogSaver(path) as saver:
        assert set(ids(saver.list(None))) - {perhaps} == acknowledged
        put(saver)
    assert verify(path).ok


# On an existing log each put is one pwrite64 and one fdatasync.
WRITE_FAULTS = [
    *(f"pwrite64:error={name}:when=2" for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO")),
    *(f"pwrite64:error=ENOSPC:when={number}" for number in (1, 3)),
]
SYNC_FAULTS = [f"fdatasync:error={name}:when={n}" for name in ("EIO", "ENOSPC") for n in (1, 2)]


@pytest.mark.parametrize("fault", WRITE_FAULTS)
def test_a_write_that_fails_once_fails_one_put_and_is_cut_off(path, fault):
    LogSaver(path).close()
    number = int(fault[-1])
    done = trace(path, PUT_THREE, fault)
    assert done.said.pop(f"c{number}").startswith("LogWriteError")
    assert set(done.said.values()) == {"ok"}
    assert done.of("ftruncate") == ["ftruncate log"]
    after_the_cut = done.calls[done.calls.index("ftruncate log") + 1 :]
    assert after_the_cut[:2] == ["flock log", f"say c{number} LogWriteError"]
    check_log(path, done)


def test_a_write_that_fails_for_good_fails_every_put_until_there_is_room(path):
    LogSaver(path).close()
    done = trace(path, PUT_THREE, "pwrite64:error=ENOSPC:when=2+")
    assert done.said["c1"] == "ok"
    assert all(done.said[name].startswith("LogWriteError") for name in ("c2", "c3"))
    assert done.said["close"] == "ok"
    check_log(path, done)


@pytest.mark.parametrize("fault", SYNC_FAULTS)
def test_a_sync_that_fails_once_poisons_the_log_and_is_not_tried_again(path, fault):
    LogSaver(path).close()
    number = int(fault[-1])
    done = trace(path, PUT_THREE, fault)
    failed = [f"c{n}" for n in (1, 2, 3) if n >= number]
    for name in (*failed, "flush", "close"):
        assert done.said[name].startswith("PoisonedLogError"), name
        assert path in done.said[name]
        assert "open the log again" in done.said[name]
    assert len(done.of("fdatasync")) == number
    check_log(path, done, perhaps=failed[0])


def test_a_cut_that_fails_poisons_the_log(path):
    LogSaver(path).close()
    done = trace(path, PUT_THREE, "pwrite64:error=ENOSPC:when=2", "ftruncate:error=EIO")
    assert done.said["c1"] == "ok"
    assert done.said["c2"].startswith("LogWriteError")
    assert done.said["c3"].startswith("PoisonedLogError")
    check_log(path, done)


@pytest.mark.parametrize("call", ["fdatasync", "fsync", "rename", "pwrite64"])
def test_a_new_log_that_cannot_be_made_is_told_and_can_be_made_later(path, call):
    done = trace(path, PUT_THREE, f"{call}:error=ENOSPC")
    assert list(done.said) == ["open"]
    assert done.said["open"].startswith("LogOpenError")
    assert os.strerror(errno.ENOSPC) in done.said["open"]
    assert set(trace(path, PUT_THREE).said.values()) == {"ok"}
