"""What calls cost, in numbers that no machine changes: system calls, bytes, frames, function calls.

Nothing here looks at a clock. A limit is what it takes today and a little more; who needs more has
to raise it here, and say why.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support import make_checkpoint, make_config, put
from test_strace import REASON, SCRIPT

import logsaver.log
from logsaver import LogSaver
from logsaver.frame import FRAME_HEADER_SIZE
from logsaver.store import Store

NUMBERS = itertools.count(1)
PACKAGE = os.path.dirname(logsaver.log.__file__)
VALUES = {"question": "why?", "notes": ["plan: because", "work: therefore"], "branch:to:work": None}
VERSIONS = dict.fromkeys(VALUES, "00000000000000000000000000000003.0.7959120696881983")


@pytest.fixture
def saver(path):
    with LogSaver(path, fsync="never") as saver:
        put(saver, "t", VALUES, versions=VERSIONS)
        yield saver


def child_of(saver: LogSaver, thread: str = "t") -> tuple[Any, ...]:
    """What a step of a graph puts: one channel is new, the others are as they were."""
    parent = saver.get_tuple(make_config(thread))
    versions = {**VERSIONS, "notes": f"{next(NUMBERS)}"}
    config = {**parent.config, "metadata": {"thread_id": thread}}
    metadata = {"source": "loop", "step": 1, "parents": {}}
    return config, make_checkpoint(VALUES, versions), metadata, {"notes": versions["notes"]}


def writes_for(saver: LogSaver, thread: str = "t") -> tuple[Any, ...]:
    parent = saver.get_tuple(make_config(thread)).config
    return parent, [("notes", ["work: therefore"]), ("branch:to:work", None)], "task", "path"


def functions_of(call: Callable[..., Any], *args: Any) -> Counter[str]:
    """The functions of this package that a call calls, and how often."""
    called: Counter[str] = Counter()

    def note(frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        # Comprehensions are functions in some versions of Python and not in others.
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name[0] != "<":
            called[f"{os.path.basename(code.co_filename)}:{code.co_name}"] += 1

    sys.setprofile(note)
    try:
        call(*args)
    finally:
        sys.setprofile(None)
    return called


def bytes_of(saver: LogSaver, call: Callable[..., Any], *args: Any) -> int:
    before = saver.stats().bytes
    call(*args)
    return saver.stats().bytes - before


# -- functions of ours


@pytest.mark.parametrize(
    ("name", "arguments", "limit"),
    [("put", child_of, 36), ("put_writes", writes_for, 28)],
)
def test_a_call_that_writes_calls_few_functions(saver, monkeypatch, name, arguments, limit):
    monkeypatch.setattr("logsaver.store.NAME_CHECK_INTERVAL", 1e9)
    for _ in range(2):
        saver.put(*child_of(saver))  # so that the parent is one that was put here
    args = arguments(saver)
    called = functions_of(getattr(saver, name), *args)
    print(sum(called.values()), called)
    assert sum(called.values()) <= limit


@pytest.mark.parametrize(
    ("config", "limit"),
    [(make_config("t"), 32), (make_config("t", "", "0001"), 32), (make_config("nobody"), 12)],
    ids=["latest", "by id", "nothing"],
)
def test_a_get_calls_few_functions(saver, config, limit):
    put(saver, "t", VALUES, versions=VERSIONS, checkpoint_id="0001")
    called = functions_of(saver.get_tuple, config)
    print(sum(called.values()), called)
    assert sum(called.values()) <= limit


def test_a_step_back_in_a_delta_history_calls_few_functions_and_takes_no_lock_of_its_own(
    saver, monkeypatch
):
    views = Counter()
    view = Store.view

    def counted(store: Store) -> Any:
        views["all"] += 1
        return view(store)

    config = None
    for number in range(600):
        config = put(saver, "deep", parent=config, checkpoint_id=f"{number:04}")
        saver.put_writes(config, [("lines", [f"line {number}"]), ("other", 1)], "task")
    monkeypatch.setattr(Store, "view", counted)
    called = functions_of(
        lambda: saver.get_delta_channel_history(config=config, channels=["lines"])
    )
    print(sum(called.values()) / 599, called)
    assert sum(called.values()) <= 9 * 599
    assert views["all"] <= 10


# -- system calls


@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_a_put_makes_four_system_calls_and_now_and_then_looks_at_the_name(path):
    script = """
saver = LogSaver(sys.argv[1], fsync="never")
put(0)
say("begin puts")
for number in range(50):
    put(number + 1)
say("end puts")
os._exit(0)
"""
    output = f"{path}.strace"
    subprocess.run(
        ["strace", "-f", "-qq", "-o", output, sys.executable, "-c", SCRIPT + script, path],
        check=True,
        capture_output=True,
        timeout=60,
    )
    with open(output, errors="replace") as lines:
        text = lines.read()
    during = text[text.index("begin puts") : text.index("end puts")]
    calls = Counter(re.findall(r"^\d+ +(\w+)\(", during, flags=re.MULTILINE))
    memory = {"brk", "mmap", "munmap", "mremap", "madvise", "futex", "write"}
    left = {name: count for name, count in calls.items() if name not in memory}
    looks = ("pread64", "stat", "newfstatat")  # as often as NAME_CHECK_INTERVAL says
    assert all(left.pop(name, 0) <= 50 for name in looks)
    assert left == {"flock": 100, "lseek": 50, "pwrite64": 50}


# -- bytes


def test_a_frame_is_little_more_than_what_the_serializer_made(saver):
    """Header, ids, tags and the names of what is in it."""
    dumps = saver.serde.dumps_typed
    config, checkpoint, metadata, new_versions = child_of(saver)
    body = {key: value for key, value in checkpoint.items() if key != "channel_values"}
    values = [body, metadata, VALUES["notes"]]
    needed = sum(len(dumps(value)[1]) for value in values)
    added = bytes_of(saver, saver.put, config, checkpoint, metadata, new_versions) - needed
    print("put", added)
    assert FRAME_HEADER_SIZE < added <= FRAME_HEADER_SIZE + 180
    config, writes, *task = writes_for(saver)
    needed = sum(len(dumps(value)[1]) for _, value in writes)
    added = bytes_of(saver, saver.put_writes, config, writes, *task) - needed
    print("put_writes", added)
    assert FRAME_HEADER_SIZE < added <= FRAME_HEADER_SIZE + 120


def test_a_large_value_that_stays_as_it_was_costs_a_few_bytes(saver):
    values = {"document": "x" * 1_000_000, "page": 0}
    parent = put(saver, "large", values, versions={"document": 1, "page": 1})
    added = bytes_of(
        saver,
        lambda: put(
            saver,
            "large",
            {**values, "page": 1},
            parent=parent,
            versions={"document": 1, "page": 2},
            new_versions={"page": 2},
        ),
    )
    assert added < 500


@pytest.mark.parametrize("size", [1 << 20, 1 << 24])
def test_a_large_value_is_in_memory_three_times_at_most_while_it_is_put(saver, size):
    """As the serializer made it, in the payload, and in the frame.

    Whoever packs reserves up to half as much again while it grows.
    """
    value = {"document": os.urandom(size // 2).hex()}
    tracemalloc.start()
    try:
        put(saver, "large", value)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3.8 * size


# -- frames


@pytest.fixture
def frames_read(monkeypatch):
    """Counts what is read and decoded, by offset."""
    read: Counter[int] = Counter()
    decode_frame = logsaver.log.decode_frame

    def counted(buffer: bytes, at: int, *, offset: int, seed: int) -> Any:
        read[offset] += 1
        return decode_frame(buffer, at, offset=offset, seed=seed)

    monkeypatch.setattr(logsaver.log, "decode_frame", counted)
    return read


def test_a_get_decodes_the_checkpoint_its_writes_and_what_it_shares_once(path, frames_read):
    with LogSaver(path) as saver:
        config = put(saver, "t", VALUES, versions=VERSIONS)
        for _ in range(50):
            saver.put(*child_of(saver))
            saver.put_writes(*writes_for(saver))
    with LogSaver(path, read_only=True) as saver:
        frames_read.clear()
        first = saver.get_tuple(make_config("t"))
        print(dict(frames_read))
        assert sorted(frames_read.values()) == [1, 1, 1]  # checkpoint, writes, what is shared
        assert saver.get_tuple(make_config("t")) == first
        assert sorted(frames_read.values()) == [1, 1, 1]
        assert saver.get_tuple(config).checkpoint["channel_values"] == VALUES
        assert sorted(frames_read.values()) == [1, 1, 1]  # the first one has what others share


def test_list_decodes_nothing_of_what_its_filter_rejects(path, frames_read):
    with LogSaver(path) as saver:
        for number in range(50):
            put(saver, "t", VALUES, metadata={"step": number})
    with LogSaver(path, read_only=True) as saver:
        frames_read.clear()
        assert len(list(saver.list(None, filter={"step": 7}))) == 1
        assert len(frames_read) == 1
