"""Processes that get killed, and what they do until then.

Run as a script this is a small server: each line on stdin is a job in JSON, and a forked child
does it. Forking from a server that has imported everything makes a kill cost milliseconds.

Child and server report on stdout, one short line per message, written with one `write` so that
nothing a process said is lost with it:

    pid 123                  the child was started
    begin put 17             call number 17 is about to be made
    done put 17 9531.722964  it returned, at this time.monotonic(): an acknowledgement
    error LogWriteError 28   a call failed, with this errno; the child ends
    dead -9                  the child is gone, with this exit code or signal

The calls are a function of a seed, so a test can make the same ones and knows what to expect.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import operator
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, TypedDict

from crashing import open_on
from encrypting import encrypt_if_told
from langgraph.graph import StateGraph
from support import make_checkpoint, make_config

from logsaver import LogSaver, LogSaverError
from logsaver.disk import LOCK, Disk
from logsaver.rewriting import rewrite

BIG = 2 << 20
LIMIT = 5000  # a worker that nobody kills ends by itself

OPERATIONS = (
    "put",
    "big-put",
    "put_writes",
    "delete_thread",
    "copy_thread",
    "prune",
    "delete_for_runs",
    "flush",
    "close",
)
_WEIGHTS = (50, 1, 20, 6, 6, 6, 6, 2, 3)

MODES = ("sync", "async", "never")


def tell(*words: Any) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def tell_done(*words: Any) -> None:
    tell("done", *words, time.monotonic())


# -- the calls


class Step(NamedTuple):
    """One call on a saver, as plain data."""

    name: str
    method: str
    args: tuple[Any, ...] = ()

    def do(self, saver: LogSaver) -> None:
        getattr(saver, self.method)(*self.args)

    async def ado(self, saver: LogSaver) -> None:
        await getattr(saver, f"a{self.method}")(*self.args)


def put_step(thread: str, number: int, parent: int | None, mode: str, size: int = 60) -> Step:
    checkpoint = make_checkpoint(
        {"text": (f"{thread} {number} " * (size // 4))[:size], "same": "x" * 30},
        {"text": number, "same": 1},
        checkpoint_id=f"{number:06}",
    )
    new = checkpoint["channel_versions"] if parent is None else {"text": number}
    metadata = {"step": number, "run_id": f"run-{number // 8}"}
    config = _config(thread, parent, mode)
    return Step("big-put" if size >= BIG else "put", "put", (config, checkpoint, metadata, new))


def writes_step(thread: str, number: int, checkpoint: int, mode: str) -> Step:
    writes = [("text", f"write {number}"), ("other", number)]
    args = (_config(thread, checkpoint, mode), writes, f"task-{number}", "~path")
    return Step("put_writes", "put_writes", args)


def _config(thread: str, checkpoint: int | None, mode: str) -> dict[str, Any]:
    durability = {"__pregel_durability": "async"} if mode == "async" else {}
    checkpoint_id = None if checkpoint is None else f"{checkpoint:06}"
    return make_config(thread, "", checkpoint_id, **durability)


def steps_of(seed: int, focus: str | None, mode: str) -> Iterator[Step]:
    """Endless calls of all kinds on a few threads; `focus` comes far more often than others."""
    randomness = random.Random(seed)
    last: dict[str, int] = {}  # the newest checkpoint of each thread
    for number in itertools.count(1):
        thread = randomness.choice("abc")
        name = randomness.choices(OPERATIONS, _WEIGHTS)[0]
        if focus is not None and randomness.random() < 0.3:
            name = focus
        if name in ("put", "big-put"):
            size = BIG if name == "big-put" else randomness.choice([20, 60, 600, 6000])
            yield put_step(thread, number, last.get(thread), mode, size)
            last[thread] = number
        elif name == "put_writes":
            yield writes_step(thread, number, last.get(thread, number), mode)
        elif name == "delete_thread":
            victim = randomness.choice([thread, f"copy-{randomness.randrange(4)}"])
            last.pop(victim, None)
            yield Step(name, name, (victim,))
        elif name == "copy_thread":
            # Onto a thread that has checkpoints it is refused.
            target = f"copy-{randomness.randrange(4)}"
            yield Step("delete_thread", "delete_thread", (target,))
            yield Step(name, name, (thread, target))
        elif name == "prune":
            yield Step(name, name, (["a", "b", "c"],))
        elif name == "delete_for_runs":
            yield Step(name, name, ([f"run-{max(0, number // 8 - randomness.randrange(3))}"],))
        else:
            yield Step(name, name)


def one_of_each(mode: str, start: int = 1) -> list[Step]:
    """Every kind of call once, each with something to do."""
    return [
        put_step("a", start, None, mode),
        writes_step("a", start, start, mode),
        put_step("a", start + 1, start, mode, 3000),
        put_step("b", start + 2, None, mode),
        Step("copy_thread", "copy_thread", ("a", "c")),
        Step("prune", "prune", (["a"],)),
        Step("delete_for_runs", "delete_for_runs", ([f"run-{(start + 2) // 8}"],)),
        put_step("b", start + 10, None, mode),
        Step("delete_thread", "delete_thread", ("c",)),
        Step("flush", "flush"),
        put_step("c", start + 11, None, mode),
    ]


def lane_step(lane: int, number: int, mode: str) -> Step:
    """Call `number`, from 1, of one of several that call at the same time."""
    thread = f"lane-{lane}"
    if number % 3 == 0:
        return writes_step(thread, number, number - 1, mode)
    parent = {1: number - 2, 2: number - 1}[number % 3]
    return put_step(thread, number, parent if parent > 0 else None, mode)


def open_in(mode: str, path: str) -> LogSaver:
    return LogSaver(path, fsync="never" if mode == "never" else "auto")


# -- the jobs


def do_calls(path: str, seed: int, focus: str | None, mode: str, start: int = 0) -> None:
    """One call after the other. `close` closes the saver and opens the log again."""
    saver = open_in(mode, path)
    for number, step in enumerate(itertools.islice(steps_of(seed, focus, mode), LIMIT), start=1):
        if number <= start:
            continue
        tell("begin", step.name, number)
        step.do(saver)
        if step.method == "close":
            saver = open_in(mode, path)
        tell_done(step.name, number)


def do_threads(path: str, lanes: int, mode: str) -> None:
    """Several threads at once, each making its own calls."""
    saver = open_in(mode, path)

    def run(lane: int) -> None:
        for number in range(1, LIMIT):
            step = lane_step(lane, number, mode)
            tell("begin", step.name, number, lane)
            step.do(saver)
            tell_done(step.name, number, lane)

    threads = [threading.Thread(target=run, args=(lane,)) for lane in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def do_coroutines(path: str, lanes: int, mode: str) -> None:
    """Many coroutines of one loop at once, each making its own calls."""
    saver = open_in(mode, path)

    async def run(lane: int) -> None:
        for number in range(1, LIMIT):
            step = lane_step(lane, number, mode)
            tell("begin", step.name, number, lane)
            await step.ado(saver)
            tell_done(step.name, number, lane)
            if mode != "sync":
                await asyncio.sleep(0)  # nothing to wait for: let the others have their turn

    async def run_all() -> None:
        await asyncio.gather(*(run(lane) for lane in range(lanes)))

    asyncio.run(run_all())


def do_create(directory: str) -> None:
    """New logs, one after the other."""
    for number in range(1, LIMIT):
        path = os.path.join(directory, f"new-{number}.log")
        tell("begin", "create", number)
        saver = LogSaver(path)
        tell_done("create", number)
        saver.close()


def do_open(path: str) -> None:
    """Open a log, which may mean to recover it."""
    tell("begin", "recover", 1)
    LogSaver(path)
    tell_done("recover", 1)
    time.sleep(60)


class DyingDisk(Disk):
    """The real disk, for a process that dies at system call number `at`.

    Half of a write may go through: a signal ends a large one between two pages.
    """

    def __init__(self, at: int, *, half: bool) -> None:
        self._left = at
        self._half = half
        self._lock = threading.Lock()  # the flusher has its own calls to make

    def _count(self, name: str) -> bool:
        """Whether the call may only do half its work; does not return if it is the last."""
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        tell("call", name)
        if is_last and not self._half:
            os.kill(os.getpid(), signal.SIGKILL)
        return is_last

    def pwrite(self, fd: int, data: bytes, at: int) -> int:
        if self._count("write"):
            os.pwrite(fd, data[: len(data) // 2], at)
            os.kill(os.getpid(), signal.SIGKILL)
        return os.pwrite(fd, data, at)

    def open(self, path: str, flags: int) -> int:
        self._count("open")
        return super().open(path, flags)

    def close(self, fd: int) -> None:
        self._count("close")
        os.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._count("truncate")
        os.ftruncate(fd, size)

    def forget(self, fd: int, start: int, end: int) -> None:
        self._count("forget")
        super().forget(fd, start, end)

    def replace(self, source: str, target: str) -> None:
        self._count("replace")
        os.replace(source, target)

    def sync(self, fd: int) -> None:
        self._count("sync")
        super().sync(fd)

    def sync_directory(self, path: str) -> None:
        self._count("sync_directory")
        super().sync_directory(path)

    def flock(self, fd: int, operation: int) -> None:
        self._count("lock" if operation == LOCK else "unlock")
        Disk.flock(fd, operation)

    def unlink(self, path: str) -> None:
        self._count("unlink")
        os.unlink(path)


def do_die(path: str, mode: str, start: int, at: int, half: bool) -> None:
    """Open, one call of each kind, close; and die at a system call in between."""
    fsync = "never" if mode == "never" else "auto"
    saver = open_on(DyingDisk(at, half=half), path, fsync=fsync)
    for number, step in enumerate(one_of_each(mode, start), start=1):
        tell("begin", step.name, number)
        step.do(saver)
        tell_done(step.name, number)
    saver.close()


def do_rewrite(path: str, at: int, half: bool) -> None:
    """Open a log, rewrite it and put once, and die at a system call in between."""
    saver = open_on(DyingDisk(at, half=half), path)
    tell("begin", "rewrite", 1)
    rewrite(saver._store)
    tell_done("rewrite", 1)
    put_step("after", 1, None, "sync").do(saver)
    tell_done("put", 2)
    saver.close()


# -- a graph run


class Trail(TypedDict):
    trail: Annotated[list[str], operator.add]


INPUT = "input"
BEFORE, BESIDE, AFTER = ("n0", "n1"), ("p0", "p1", "p2"), ("n2", "n3", "n4", "n5")
FULL_TRAIL = [INPUT, *BEFORE, *BESIDE, *AFTER]


class TellingSaver(LogSaver):
    """Says what it has stored, once that has returned."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        stored = super().put(config, checkpoint, metadata, new_versions)
        _tell_stored(checkpoint)
        return stored

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes, task_id, task_path)
        _tell_wrote(config, writes)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        stored = await super().aput(config, checkpoint, metadata, new_versions)
        _tell_stored(checkpoint)
        return stored

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        await super().aput_writes(config, writes, task_id, task_path)
        _tell_wrote(config, writes)


def _tell_stored(checkpoint: Any) -> None:
    tell("stored", checkpoint["id"], *checkpoint["channel_values"].get("trail", ()))


def _tell_wrote(config: Any, writes: Any) -> None:
    for channel, value in writes:
        if channel == "trail":
            tell("wrote", config["configurable"]["checkpoint_id"], *value)


def _node(name: str, *, is_async: bool) -> Any:
    pause = random.Random(name).uniform(0, 0.002)

    def node(state: Trail) -> dict[str, list[str]]:
        tell("ran", name)
        time.sleep(pause)
        return {"trail": [name]}

    async def anode(state: Trail) -> dict[str, list[str]]:
        tell("ran", name)
        await asyncio.sleep(pause)
        return {"trail": [name]}

    return anode if is_async else node


def build_graph(*, is_async: bool) -> StateGraph:
    """A few nodes in a row, three side by side, a few in a row."""
    builder = StateGraph(Trail)
    for name in (*BEFORE, *BESIDE, *AFTER):
        builder.add_node(name, _node(name, is_async=is_async))
    builder.set_entry_point(BEFORE[0])
    for row in (BEFORE, AFTER):
        for one, next_one in itertools.pairwise(row):
            builder.add_edge(one, next_one)
    for name in BESIDE:
        builder.add_edge(BEFORE[-1], name)
    builder.add_edge(list(BESIDE), AFTER[0])
    return builder


def do_graph(path: str, durability: str, is_async: bool) -> None:
    """Run a graph to its end, from wherever an earlier process left it."""
    saver = TellingSaver(path)
    graph = build_graph(is_async=is_async).compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "t"}}
    given = None if saver.get_tuple(config) else {"trail": [INPUT]}
    if is_async:
        result = asyncio.run(graph.ainvoke(given, config, durability=durability))
    else:
        result = graph.invoke(given, config, durability=durability)
    tell("result", *result["trail"])


# -- the server

JOBS = {
    "calls": do_calls,
    "threads": do_threads,
    "coroutines": do_coroutines,
    "create": do_create,
    "open": do_open,
    "die": do_die,
    "rewrite": do_rewrite,
    "graph": do_graph,
}


def main() -> None:
    logging.getLogger("logsaver").setLevel(logging.ERROR)  # torn tails are what this is about
    child = None
    for line in sys.stdin:
        job = json.loads(line)
        if child is not None:
            # Only now: until it is waited for, nobody else can get its process id.
            os.waitpid(child, 0)
        child = os.fork()
        if child == 0:
            os._exit(_do(job))
        tell("pid", child)
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        tell("dead", code)


def _do(job: dict[str, Any]) -> int:
    try:
        JOBS[job.pop("do")](**job)
    except (LogSaverError, OSError) as error:
        tell("error", type(error).__name__, getattr(error, "errno", None))
        return 1
    except BaseException:  # noqa: BLE001 - the child must not go on as a second server
        traceback.print_exc()
        return 2
    return 0


if __name__ == "__main__":
    encrypt_if_told()
    main()
