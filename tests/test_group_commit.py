"""Who waits for which sync: shared by threads and coroutines, and by the mode of the call.

The disk is a simulated one whose syncs are counted, and take their time or wait for permission.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import operator
import threading
import time
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from crashing import PATH, open_on, state_of
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import StateGraph
from simdisk import SimDisk
from support import make_checkpoint, make_config, put

from logsaver import ClosedLogError, LogSaver, LogSaverError, PoisonedLogError

LONG = 20.0  # seconds: how long to wait for what must happen
SHORT = 0.15  # seconds: how long to watch that something does not happen


class WatchedDisk(SimDisk):
    """A sync promises what was written when it began, and nothing more."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0
        self.sync_takes = 0.0
        self.error: OSError | None = None
        self.in_sync: Callable[[], None] = lambda: None
        self._begun = threading.Semaphore(0)
        self._permits: threading.Semaphore | None = None
        self._running = threading.Lock()

    def sync(self, fd: int) -> None:
        if fd not in self.open_files:
            raise OSError(errno.EBADF, "a sync of a file that is closed")
        inode = self.open_files[fd]
        assert self._running.acquire(blocking=False), "two syncs at the same time"
        try:
            covered = bytes(inode.current)
            self.syncs += 1
            self._begun.release()
            self.in_sync()
            permits = self._permits
            if permits is not None:
                assert permits.acquire(timeout=LONG), "nobody gave permission"
            time.sleep(self.sync_takes)
            if self.error is not None:
                raise self.error
            inode.durable = covered
        finally:
            self._running.release()

    def hold(self) -> None:
        """From here on each sync waits for `allow`."""
        self._permits = threading.Semaphore(0)
        self._begun = threading.Semaphore(0)

    def allow(self, count: int = 1) -> None:
        for _ in range(count):
            self._permits.release()

    def let_go(self) -> None:
        permits, self._permits = self._permits, None
        if permits is not None:
            for _ in range(100):
                permits.release()

    def sync_begins(self, timeout: float = LONG) -> bool:
        """Wait for the next sync to begin."""
        return self._begun.acquire(timeout=timeout)

    def durable(self) -> dict[Any, Any]:
        """The state of the log if the power failed now."""
        content = self.inodes[self.names[PATH]].durable
        with open_on(SimDisk({PATH: content})) as saver:
            return state_of(saver)


@pytest.fixture
def disk():
    made = WatchedDisk()
    yield made
    made.let_go()


@pytest.fixture
def open_saver(disk):
    """Opens savers on the disk, and closes them whatever the test left behind."""
    opened: list[LogSaver] = []

    def open_one(**options: Any) -> LogSaver:
        opened.append(open_on(disk, **options))
        disk.syncs = 0  # those of the creation do not count
        return opened[-1]

    yield open_one
    disk.let_go()
    for saver in opened:
        saver.close()


@pytest.fixture
def saver(open_saver):
    return open_saver()


def put_in_mode(saver: LogSaver, mode: str | None, thread: str = "t") -> None:
    saver.put(*arguments(thread, mode))


def arguments(thread: str = "t", mode: str | None = None) -> tuple[Any, ...]:
    extra = {} if mode is None else {"__pregel_durability": mode}
    return make_config(thread, **extra), make_checkpoint({"x": thread}), {}, {"x": 1}


class Caller(threading.Thread):
    """Makes a call in a thread of its own."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        super().__init__(daemon=True)
        self._call, self._args = call, args
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._call(*self._args)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def has_returned(self, timeout: float = LONG) -> bool:
        self.join(timeout)
        return not self.is_alive()

    def waits(self) -> bool:
        return not self.has_returned(SHORT)


# -- sharing


def test_threads_that_wait_at_the_same_time_share_syncs(disk, saver):
    disk.sync_takes = 0.02

    def put_five(thread: str) -> None:
        for _ in range(5):
            put(saver, thread)

    callers = [Caller(put_five, f"t{number}") for number in range(16)]
    assert all(caller.has_returned() and caller.error is None for caller in callers)
    print(f"80 puts of 16 threads: {disk.syncs} syncs")
    assert 5 <= disk.syncs <= 25
    assert len(disk.durable()) == 80


async def test_coroutines_that_wait_at_the_same_time_share_syncs(disk, saver):
    disk.sync_takes = 0.02
    await asyncio.gather(*(saver.aput(*arguments(f"t{number}")) for number in range(100)))
    print(f"100 puts of one loop: {disk.syncs} syncs")
    assert disk.syncs <= 5
    assert len(disk.durable()) == 100


def test_several_loops_in_several_threads_share_syncs_with_each_other_and_with_threads(disk, saver):
    disk.sync_takes = 0.02

    async def put_all(loop: int) -> None:
        for turn in range(3):
            await asyncio.gather(
                *(saver.aput(*arguments(f"{loop}-{turn}-{number}")) for number in range(10))
            )

    callers = [Caller(asyncio.run, put_all(loop)) for loop in range(4)]
    callers += [Caller(put, saver, f"thread-{number}") for number in range(4)]
    assert all(caller.has_returned() and caller.error is None for caller in callers)
    print(f"124 puts of 4 loops and 4 threads: {disk.syncs} syncs")
    assert disk.syncs <= 30
    assert len(disk.durable()) == 124


def test_one_caller_gets_one_sync_per_put(disk, saver):
    for _ in range(5):
        put(saver)
    assert disk.syncs == 5
    saver.flush()
    assert disk.syncs == 5  # nothing is left to sync


# -- a sync acknowledges what was written before it began


def test_a_sync_acknowledges_only_what_was_written_before_it_began(disk, saver):
    disk.hold()
    first = Caller(put, saver, "first")
    assert disk.sync_begins()
    second = Caller(put, saver, "second")
    assert second.waits()
    assert len(list(saver.list(None))) == 2  # written, but too late for the sync under way
    disk.allow()
    assert first.has_returned()
    assert disk.sync_begins()
    assert second.waits()
    assert len(disk.durable()) == 1
    disk.allow()
    assert second.has_returned()
    assert len(disk.durable()) == 2
    assert disk.syncs == 2


async def test_a_sync_acknowledges_only_the_coroutines_that_wrote_before_it_began(disk, saver):
    disk.hold()
    first = asyncio.create_task(saver.aput(*arguments("first")))
    await begins(disk)
    second = asyncio.create_task(saver.aput(*arguments("second")))
    await asyncio.sleep(SHORT)
    disk.allow()
    await asyncio.wait_for(first, LONG)
    await begins(disk)
    await asyncio.sleep(SHORT)
    assert not second.done()
    assert len(disk.durable()) == 1
    disk.allow()
    await asyncio.wait_for(second, LONG)
    assert len(disk.durable()) == 2


def test_callers_behind_a_sync_are_covered_by_the_next_one_together(disk, saver):
    disk.hold()
    first = Caller(put, saver, "first")
    assert disk.sync_begins()
    others = [Caller(put, saver, f"other-{number}") for number in range(6)]
    end = time.monotonic() + LONG
    while len(list(saver.list(None))) < 7 and time.monotonic() < end:
        time.sleep(0.001)
    disk.allow(2)
    assert all(caller.has_returned() for caller in [first, *others])
    assert disk.syncs == 2


def test_reading_does_not_wait_for_a_sync(disk, saver):
    disk.hold()
    writer = Caller(put, saver)
    assert disk.sync_begins()
    reader = Caller(lambda: [*list(saver.list(None)), saver.get_tuple(make_config())])
    assert reader.has_returned()
    assert reader.error is None
    assert writer.is_alive()


# -- the event loop


async def begins(disk: WatchedDisk) -> None:
    """Wait for the next sync without holding up the loop."""
    end = time.monotonic() + LONG
    while not disk.sync_begins(timeout=0):
        assert time.monotonic() < end, "no sync began"
        await asyncio.sleep(0.001)


ASYNC_CALLS = {
    "aput": lambda saver: saver.aput(*arguments("new")),
    "aput_writes": lambda saver: saver.aput_writes(
        make_config("t", checkpoint_id="c"), [("x", 1)], "task"
    ),
    "adelete_thread": lambda saver: saver.adelete_thread("t"),
    "adelete_for_runs": lambda saver: saver.adelete_for_runs(["run"]),
    "acopy_thread": lambda saver: saver.acopy_thread("t", "copy"),
    "aprune": lambda saver: saver.aprune(["t"]),
    "aflush": lambda saver: saver.aflush(),
    "aclose": lambda saver: saver.aclose(),
}


@pytest.mark.parametrize("call", ASYNC_CALLS.values(), ids=ASYNC_CALLS)
async def test_no_async_call_blocks_the_loop_while_it_waits_for_a_sync(open_saver, disk, call):
    """If one did, nobody could give the permission that its sync waits for."""
    saver = open_saver(fsync="never")
    for _ in range(2):
        put(saver, metadata={"run_id": "run"})
    saver.fsync = "auto"
    disk.hold()
    task = asyncio.create_task(call(saver))
    await begins(disk)
    await asyncio.sleep(0.01)
    assert not task.done()
    disk.let_go()
    await asyncio.wait_for(task, LONG)
    assert disk.syncs == 1


async def test_a_loop_goes_on_ticking_during_a_slow_sync(disk, saver):
    disk.sync_takes = 0.4
    gaps: list[float] = []

    async def tick() -> None:
        before = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - before)
            before = now

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0.02)
    del gaps[:]
    await asyncio.gather(*(saver.aput(*arguments(f"t{number}")) for number in range(20)))
    ticker.cancel()
    print(f"longest gap {max(gaps) * 1000:.0f} ms in syncs of 400 ms, {len(gaps)} ticks")
    assert max(gaps) < 0.2
    assert len(gaps) > 20


async def test_a_cancelled_put_harms_no_other_and_is_not_lost(disk, saver):
    disk.hold()
    tasks = [asyncio.create_task(saver.aput(*arguments(f"t{number}"))) for number in range(10)]
    await begins(disk)
    for task in tasks[::3]:
        task.cancel()
    await asyncio.sleep(0.01)
    assert [task.cancelled() for task in tasks] == [number % 3 == 0 for number in range(10)]
    disk.let_go()
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), LONG)
    for number, task in enumerate(tasks):
        if number % 3:
            assert task.result()["configurable"]["thread_id"] == f"t{number}"
    await asyncio.wait_for(saver.aput(*arguments("after")), LONG)
    assert len(disk.durable()) == 11


def test_a_loop_that_closes_while_it_waits_harms_no_other(disk, saver):
    """Its future can be told nothing any more. The other loop's can, and is."""
    disk.hold()
    abandoned = asyncio.new_event_loop()
    task = abandoned.create_task(saver.aput(*arguments("abandoned")))
    abandoned.run_until_complete(asyncio.sleep(0))
    assert disk.sync_begins()
    task.cancel()
    abandoned.run_until_complete(asyncio.sleep(0))
    abandoned.close()
    caller = Caller(asyncio.run, saver.aput(*arguments("other")))
    assert caller.waits()
    disk.let_go()
    assert caller.has_returned()
    assert caller.error is None
    assert len(disk.durable()) == 2


# -- modes


def test_an_async_put_returns_before_its_sync_which_is_under_way(disk, saver):
    disk.hold()
    caller = Caller(put_in_mode, saver, "async")
    assert caller.has_returned()
    assert disk.sync_begins(timeout=1)  # without any further call
    assert disk.durable() == {}
    later = Caller(put_in_mode, saver, "async", "later")
    assert later.has_returned()
    disk.allow()
    assert disk.sync_begins(timeout=1)  # the later one too, without any further call
    assert len(disk.durable()) == 1
    disk.allow()
    saver.flush()
    assert len(disk.durable()) == 2


async def test_an_async_aput_returns_before_its_sync_which_is_under_way(disk, saver):
    disk.hold()
    await asyncio.wait_for(saver.aput(*arguments(mode="async")), LONG)
    await asyncio.wait_for(
        saver.aput_writes(
            make_config("t", checkpoint_id="c", __pregel_durability="async"), [("x", 1)], "task"
        ),
        LONG,
    )
    await begins(disk)
    assert disk.durable() == {}


def test_a_burst_of_async_puts_needs_few_syncs(disk, saver):
    disk.sync_takes = 0.05
    for _ in range(200):
        put_in_mode(saver, "async")
    saver.flush()
    print(f"200 async puts: {disk.syncs} syncs")
    assert disk.syncs <= 30
    assert len(disk.durable()) == 200


@pytest.mark.parametrize("mode", ["sync", "exit", None])
def test_a_put_in_any_other_mode_waits_for_its_sync(disk, saver, mode):
    check_that_it_waits(disk, saver, mode)


def test_fsync_always_waits_in_async_mode_too(disk, open_saver):
    check_that_it_waits(disk, open_saver(fsync="always"), "async")


def check_that_it_waits(disk, saver, mode):
    disk.hold()
    caller = Caller(put_in_mode, saver, mode)
    assert disk.sync_begins()
    assert caller.waits()
    disk.let_go()
    assert caller.has_returned()
    assert len(disk.durable()) == 1


def test_fsync_never_syncs_nothing_unless_asked_to(disk, open_saver):
    saver = open_saver(fsync="never")
    for mode in ("sync", "async", "exit", None):
        put_in_mode(saver, mode)
    saver.put_writes(make_config("t", checkpoint_id="c"), [("x", 1)], "task")
    saver.copy_thread("t", "copy")
    saver.prune(["t"])
    saver.delete_for_runs(["run"])
    saver.delete_thread("copy")
    asyncio.run(saver.aput(*arguments()))
    assert disk.syncs == 0
    saver.flush()
    assert disk.syncs == 1
    put(saver)
    saver.close()
    assert disk.syncs == 1


SYNC_CALLS = {
    "put": lambda saver: put(saver, "new"),
    "put_writes": lambda saver: saver.put_writes(
        make_config("t", checkpoint_id="c"), [("x", 1)], "task"
    ),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["run"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "copy"),
    "prune": lambda saver: saver.prune(["t"]),
    "flush": lambda saver: put_in_mode(saver, "async") or saver.flush(),
    "close": lambda saver: put_in_mode(saver, "async") or saver.close(),
}


@pytest.mark.parametrize("call", SYNC_CALLS.values(), ids=SYNC_CALLS)
def test_a_call_that_nobody_runs_in_the_background_waits_for_its_sync(disk, saver, call):
    for _ in range(2):
        put(saver, metadata={"run_id": "run"})
    before = disk.durable()
    disk.hold()
    caller = Caller(call, saver)
    assert disk.sync_begins()
    assert caller.waits()
    assert disk.durable() == before
    disk.let_go()
    assert caller.has_returned()
    assert caller.error is None
    assert disk.durable() != before


def test_a_call_that_has_nothing_to_do_waits_for_what_made_it_so(disk, saver):
    """The thread is gone already, by a delete that is not permanent yet."""
    put(saver)
    disk.hold()
    first = Caller(saver.delete_thread, "t")
    assert disk.sync_begins()
    second = Caller(saver.delete_thread, "t")
    assert second.waits()
    disk.let_go()
    assert first.has_returned()
    assert second.has_returned()
    assert disk.durable() == {}


# -- graphs


class Trail(TypedDict):
    trail: Annotated[list[str], operator.add]


NODES = ("a", "b", "c", "d")
THREAD = {"configurable": {"thread_id": "t"}}


def build(saver: LogSaver, act: Callable[[], None] = lambda: None) -> Any:
    builder = StateGraph(Trail)

    def node(name: str) -> Callable[[Trail], dict[str, list[str]]]:
        def run(state: Trail) -> dict[str, list[str]]:
            act()
            return {"trail": [name]}

        return run

    builder.add_sequence([(name, node(name)) for name in NODES])
    builder.set_entry_point(NODES[0])
    return builder.compile(checkpointer=saver)


def invoke(graph: Any, durability: str | None) -> None:
    assert graph.invoke({"trail": []}, THREAD, durability=durability)["trail"] == list(NODES)


def ainvoke(graph: Any, durability: str | None) -> None:
    async def run() -> Any:
        return await graph.ainvoke({"trail": []}, THREAD, durability=durability)

    assert asyncio.run(run())["trail"] == list(NODES)


both_ways = pytest.mark.parametrize("run", [invoke, ainvoke])


@both_ways
@pytest.mark.parametrize("durability", [None, "async"])
def test_a_graph_run_in_async_mode_does_not_wait_for_syncs(disk, saver, run, durability):
    """It comes to its end although no sync does; the sync of what it stored is under way."""
    disk.hold()
    caller = Caller(run, build(saver), durability)
    assert caller.has_returned()
    assert caller.error is None
    assert disk.sync_begins(timeout=1)
    assert disk.durable() == {}
    disk.let_go()
    saver.flush()
    assert len([key for key in disk.durable() if key[0] == "t"]) == len(NODES) + 2


@both_ways
@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_a_graph_run_in_sync_or_exit_mode_waits_for_syncs(disk, saver, run, durability):
    disk.hold()
    caller = Caller(run, build(saver), durability)
    assert disk.sync_begins()
    assert caller.waits()
    disk.let_go()
    assert caller.has_returned()
    assert caller.error is None
    latest = open_on(SimDisk({PATH: disk.inodes[disk.names[PATH]].durable})).get_tuple(THREAD)
    assert latest.checkpoint["channel_values"]["trail"] == list(NODES)


def test_in_sync_mode_every_step_is_permanent_before_the_next_begins(disk, saver):
    seen: list[int] = []

    def look() -> None:
        seen.append(len([key for key in disk.durable() if key[0] == "t"]))

    invoke(build(saver, look), "sync")
    # The input and the start come before the first node.
    assert seen == [2, 3, 4, 5]


def test_the_number_of_syncs_follows_the_mode(disk, saver):
    """A checkpoint per step in sync mode, one in exit mode, and as few as can be in async mode."""
    graph = build(saver)
    needed: dict[str, int] = {}
    for mode in ("sync", "exit", "async"):
        disk.syncs = 0
        disk.sync_takes = 0.05
        graph.invoke({"trail": []}, {"configurable": {"thread_id": mode}}, durability=mode)
        saver.flush()
        needed[mode] = disk.syncs
    print(f"syncs of a run of {len(NODES)} nodes: {needed}")
    assert needed["sync"] >= len(NODES) + 2
    assert needed["exit"] <= 3
    assert needed["async"] < needed["sync"]


@pytest.mark.parametrize("is_async", [False, True], ids=["update_state", "aupdate_state"])
def test_an_update_of_the_state_waits_for_its_sync(disk, saver, is_async):
    graph = build(saver)
    invoke(graph, "async")
    saver.flush()
    disk.hold()

    def update() -> None:
        if is_async:
            asyncio.run(graph.aupdate_state(THREAD, {"trail": ["by hand"]}))
        else:
            graph.update_state(THREAD, {"trail": ["by hand"]})

    caller = Caller(update)
    assert disk.sync_begins()
    assert caller.waits()
    disk.let_go()
    assert caller.has_returned()
    assert caller.error is None
    latest = open_on(SimDisk({PATH: disk.inodes[disk.names[PATH]].durable})).get_tuple(THREAD)
    assert latest.checkpoint["channel_values"]["trail"] == [*NODES, "by hand"]


# -- failure and close


def test_a_sync_that_fails_fails_everyone_who_waits_in_the_same_way(disk):
    """Also the one in whose thread it failed: what a caller catches is not a matter of luck."""
    saver = open_on(disk)
    disk.hold()
    disk.error = OSError(errno.EIO, "the disk is broken")
    callers = [Caller(put, saver, f"thread-{number}") for number in range(3)]
    assert disk.sync_begins()
    callers += [Caller(asyncio.run, saver.aput(*arguments(f"loop-{n}"))) for n in range(3)]
    assert all(caller.waits() for caller in callers)
    disk.let_go()
    assert all(caller.has_returned() for caller in callers)
    syncs = disk.syncs
    with pytest.raises(PoisonedLogError):
        put(saver)
    with pytest.raises(PoisonedLogError):
        saver.close()
    assert disk.syncs == syncs == 2  # that of the creation and that which failed: no retry
    assert [type(caller.error) for caller in callers] == [PoisonedLogError] * 6


class HeldSerde(JsonPlusSerializer):
    """Holds up whoever stores the value "late"."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if obj == "late":
            self.reached.set()
            assert self.go_on.wait(LONG)
        return super().dumps_typed(obj)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("way", ["close", "exit"])
def test_a_put_during_the_last_sync_is_refused_or_permanent(disk, caplog, way, mode):
    """Too late for that sync, too early to be refused at once: a thread that exit cuts short."""
    serde = HeldSerde()
    saver = open_on(disk, serde=serde)
    saver.fsync = "never"  # nothing is under way, so that the sync below is that of the end
    put_in_mode(saver, None, "last")
    saver.fsync = "auto"
    late = Caller(put_in_mode, saver, mode, "late")
    assert serde.reached.wait(LONG)

    def let_it_write() -> None:
        disk.in_sync = lambda: None  # the next sync may be that of the late put itself
        serde.go_on.set()
        late.join(SHORT)  # an async put returns, a sync one waits for a sync

    disk.in_sync = let_it_write
    with caplog.at_level(logging.ERROR, "logsaver"):
        saver.close() if way == "close" else saver._finish()
        assert late.has_returned()
    found = {key[0] for key in disk.durable()}
    assert "last" in found
    if late.error is None:
        assert "late" in found
    else:
        assert isinstance(late.error, LogSaverError), repr(late.error)
    assert caplog.records == []


def test_no_sync_begins_once_the_log_is_let_go_of(disk, saver):
    """The flusher was awake already, for frames of another process: it would sync a closed file."""
    put(saver)
    committer = saver._store.log.committer
    committer.written += 1
    committer.stop()
    before = disk.syncs
    with pytest.raises(ClosedLogError):
        committer.wait(committer.written)
    committer.start()
    eventually_ended(committer)
    assert disk.syncs == before
    assert committer.failure is None


async def test_whoever_still_awaits_a_sync_at_the_end_is_told(disk, saver):
    put(saver)
    committer = saver._store.log.committer
    committer.written += 1
    committer.start = lambda: None  # a flusher that does not come to it
    waiting = asyncio.create_task(committer.wait_async(committer.written))
    await asyncio.sleep(0)
    committer.stop()
    with pytest.raises(ClosedLogError):
        await asyncio.wait_for(waiting, 5)


def eventually_ended(committer):
    end = time.monotonic() + 10
    while committer._flusher is not None and committer._flusher.is_alive():
        assert time.monotonic() < end
        time.sleep(0.01)
