"""Opening, sharing, closing; threads and event loops; what an event loop must not be made to do."""

import asyncio
import builtins
import contextlib
import copy
import gc
import inspect
import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from support import (
    id_of,
    ids,
    make_checkpoint,
    make_config,
    put,
    run_python,
    sync_and_async,
)

from logsaver import ClosedLogError, LogSaver, PoisonedLogError
from logsaver.disk import Disk

ASYNC_METHODS = [
    "aput",
    "aput_writes",
    "aget_tuple",
    "alist",
    "adelete_thread",
    "adelete_for_runs",
    "acopy_thread",
    "aprune",
    "aget_delta_channel_history",
]


# -- clones


@pytest.mark.behaviour(32)
@pytest.mark.parametrize(
    "clone_of",
    [copy.copy, lambda saver: saver.with_allowlist([("some.module", "Name")])],
    ids=["copy", "with_allowlist"],
)
def test_a_clone_shares_the_log_and_the_closed_state(path, clone_of):
    saver = LogSaver(path, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    clone = clone_of(saver)
    assert clone is not saver
    first = put(saver, values={"c": 1})
    second = put(clone, values={"c": 1}, new_versions={}, parent=first)
    assert ids(saver.list(None)) == ids(clone.list(None)) == [id_of(second), id_of(first)]
    clone.close()
    for closed in (saver, clone):
        with pytest.raises(ClosedLogError):
            closed.get_tuple(make_config())
    saver.close()


@pytest.mark.behaviour(32)
@pytest.mark.parametrize("dropped", ["the clone", "the original"])
def test_a_clone_that_is_dropped_does_not_close_the_log(path, dropped):
    saver = LogSaver(path)
    clone = copy.copy(saver)
    kept = saver if dropped == "the clone" else clone
    del saver, clone
    gc.collect()
    put(kept, values={"c": 1})
    assert len(list(kept.list(None))) == 1
    kept.close()


@pytest.mark.behaviour(32)
def test_a_graph_that_clones_the_saver_stores_in_the_same_log(path):
    """With strict msgpack every compiled graph works on a clone with its own serializer."""
    ran = run_python(
        """
        import operator, sys
        from typing import Annotated, TypedDict
        from langgraph.graph import START, StateGraph
        from logsaver import LogSaver

        class State(TypedDict):
            trail: Annotated[list, operator.add]

        with LogSaver(sys.argv[1]) as saver:
            builder = StateGraph(State)
            builder.add_node("node", lambda state: {"trail": ["node"]})
            builder.add_edge(START, "node")
            graph = builder.compile(checkpointer=saver)
            for turn in range(2):
                graph.invoke({"trail": ["in"]}, {"configurable": {"thread_id": "t"}})
            print(graph.checkpointer is saver, len(list(saver.list(None))))
        """,
        path,
        LANGGRAPH_STRICT_MSGPACK="true",
    )
    assert ran.stdout.split() == ["False", "6"]
    with LogSaver(path) as saver:
        found = saver.get_tuple(make_config())
        assert found.checkpoint["channel_values"]["trail"] == ["in", "node"] * 2


# -- with, close


@pytest.mark.behaviour(33)
def test_with_returns_the_saver_and_closes_it(path):
    saver = LogSaver(path)
    with saver as entered:
        assert entered is saver
        put(entered)
    with pytest.raises(ClosedLogError):
        saver.get_tuple(make_config())


@pytest.mark.behaviour(33)
async def test_async_with_returns_the_saver_and_closes_it(path):
    saver = LogSaver(path)
    async with saver as entered:
        assert entered is saver
        await entered.aput(make_config(), make_checkpoint(), {}, {})
    with pytest.raises(ClosedLogError):
        await saver.aget_tuple(make_config())


@pytest.mark.behaviour(33)
@sync_and_async
def test_close_may_be_called_twice(path, calls):
    saver = LogSaver(path)
    put(saver)
    calls(saver).close()
    calls(saver).close()
    saver.close()
    with LogSaver(path) as again:
        assert len(list(again.list(None))) == 1


USES = {
    "get_tuple": lambda saver: saver.get_tuple(make_config()),
    "list": lambda saver: list(saver.list(None)),
    "put": put,
    "put_writes": lambda saver: saver.put_writes(make_config(checkpoint_id="1"), [("c", 1)], "t"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["run"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "prune": lambda saver: saver.prune(["t"]),
    "prune delete": lambda saver: saver.prune(["t"], strategy="delete"),
    "history": lambda saver: saver.get_delta_channel_history(config=make_config(), channels=["c"]),
    "flush": lambda saver: saver.flush(),
}


@pytest.mark.behaviour(33)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
@sync_and_async
def test_use_after_close_is_a_clear_error(path, calls, use):
    saver = LogSaver(path)
    put(saver)
    saver.close()
    size = os.path.getsize(path)
    with pytest.raises(ClosedLogError, match="closed; open the log again"):
        use(calls(saver))
    assert os.path.getsize(path) == size


@pytest.mark.behaviour(33)
@pytest.mark.parametrize(
    "use", [lambda saver: saver.threads(), lambda saver: saver.stats()], ids=["threads", "stats"]
)
def test_use_of_what_only_logsaver_has_after_close_is_a_clear_error(path, use):
    saver = LogSaver(path)
    saver.close()
    with pytest.raises(ClosedLogError, match="closed; open the log again"):
        use(saver)


@pytest.mark.behaviour(33)
def test_a_list_that_is_still_open_when_the_saver_closes_says_so(path):
    saver = LogSaver(path)
    put(saver)
    put(saver)
    listing = saver.list(None)
    next(listing)
    saver.close()
    with pytest.raises(ClosedLogError):
        list(listing)


@pytest.mark.behaviour(33)
def test_a_list_keeps_its_saver_open(path):
    with LogSaver(path) as saver:
        put(saver)
        put(saver)
    listing = LogSaver(path).list(None)  # nothing else refers to this saver
    gc.collect()
    assert len(list(listing)) == 2


@pytest.mark.behaviour(33)
@sync_and_async
def test_closing_lets_go_of_the_file_even_when_storage_has_failed(path, calls, monkeypatch):
    """The error says to close and open again, so that must help."""
    saver = LogSaver(path)
    put(saver, values={"c": 1})

    def fail(disk, fd):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "sync", fail)
        with pytest.raises((OSError, PoisonedLogError)):
            put(calls(saver), values={"c": 2})
    with pytest.raises(PoisonedLogError):
        put(saver)
    with contextlib.suppress(PoisonedLogError):  # it may tell, as long as it closes
        calls(saver).close()
    again = LogSaver(path)
    try:
        put(again, "u", values={"c": 3})
        assert again.get_tuple(make_config("u")) is not None
    finally:
        for each in (saver, again):
            with contextlib.suppress(PoisonedLogError):
                each.close()


@pytest.mark.behaviour(33)
@sync_and_async
def test_there_are_no_threads_that_keep_the_interpreter_alive(path, calls):
    before = set(threading.enumerate())
    with LogSaver(path) as saver:
        for _ in range(3):
            put(calls(saver))
        saver.put(make_config(__pregel_durability="async"), make_checkpoint(), {}, {})
        started = set(threading.enumerate()) - before
        assert started  # the flusher, at least
        assert all(thread.daemon for thread in started)


@pytest.mark.behaviour(33)
def test_close_ends_the_flusher(path):
    before = set(threading.enumerate())
    saver = LogSaver(path)
    saver.put(make_config(__pregel_durability="async"), make_checkpoint(), {}, {})
    started = set(threading.enumerate()) - before
    saver.close()
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


PUT_SOME = """
import asyncio, os, signal, sys
from langgraph.checkpoint.base import empty_checkpoint
from logsaver import LogSaver

path, mode = sys.argv[1:3]
saver = LogSaver(path)
config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
if mode == "background":
    config["configurable"]["__pregel_durability"] = "async"

def checkpoint():
    return {**empty_checkpoint(), "channel_values": {"c": 1}, "channel_versions": {"c": 1}}

async def many():
    await asyncio.gather(*(saver.aput(config, checkpoint(), {}, {}) for _ in range(5)))

for _ in range(5):
    saver.put(config, checkpoint(), {}, {})
asyncio.run(many())
print("acknowledged", flush=True)
"""


@pytest.mark.behaviour(33)
@pytest.mark.parametrize("mode", ["waits", "background"])
@pytest.mark.parametrize(
    "ending", ["", "os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "raise KeyError"]
)
def test_a_saver_that_nobody_closed_neither_hangs_nor_loses_anything(path, mode, ending):
    started = time.monotonic()
    ran = run_python(f"{PUT_SOME}\n{ending}\n", path, mode, check=False, timeout=30)
    assert ran.stdout.split() == ["acknowledged"]
    assert "logsaver" not in ran.stderr
    assert time.monotonic() - started < 20
    with LogSaver(path) as saver:
        assert len(list(saver.list(None))) == 10


@pytest.mark.behaviour(33)
def test_a_saver_that_is_dropped_lets_go_of_the_file(path):
    saver = LogSaver(path)
    put(saver)
    file = saver._store.log.file
    del saver
    gc.collect()
    end = time.monotonic() + 20
    while not file.is_closed():  # by a thread that the collector started
        assert time.monotonic() < end
        time.sleep(0.001)


# -- what LangGraph looks for


@pytest.mark.behaviour(34)
@pytest.mark.parametrize("name", ASYNC_METHODS)
def test_every_async_method_is_the_classs_own(name):
    method = getattr(LogSaver, name)
    assert method is not getattr(BaseCheckpointSaver, name)
    if name == "alist":
        assert inspect.isasyncgenfunction(method)
    else:
        assert inspect.iscoroutinefunction(method)


@pytest.mark.behaviour(34)
@pytest.mark.parametrize("name", ASYNC_METHODS)
def test_async_methods_have_the_parameters_of_langgraphs(name):
    ours = dict(inspect.signature(getattr(LogSaver, name)).parameters)
    theirs = inspect.signature(getattr(BaseCheckpointSaver, name)).parameters
    if name == "aprune":  # one more of our own, which nobody has to know
        assert ours.pop("dry_run").default is False
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


# -- threads and loops


def put_chain(saver, thread_id, length):
    config = None
    for step in range(length):
        config = put(saver, thread_id, {"c": step}, versions={"c": step}, parent=config)
        saver.put_writes(config, [("c", step)], "task")
        assert saver.get_tuple(make_config(thread_id)).checkpoint["channel_values"] == {"c": step}


async def aput_chain(saver, thread_id, length):
    config = make_config(thread_id)
    for step in range(length):
        checkpoint = make_checkpoint({"c": step}, {"c": step})
        config = await saver.aput(config, checkpoint, {}, {"c": step})
        await saver.aput_writes(config, [("c", step)], "task")
        found = await saver.aget_tuple(make_config(thread_id))
        assert found.checkpoint["channel_values"] == {"c": step}


def check_chains(saver, names, length):
    for name in names:
        found = list(saver.list(make_config(name)))
        assert [item.checkpoint["channel_values"]["c"] for item in found] == [
            *reversed(range(length))
        ]
        assert all(len(item.pending_writes) == 1 for item in found)
        assert [item.parent_config for item in found[:-1]] == [item.config for item in found[1:]]
    saver._store.index._check()


@pytest.mark.behaviour(35)
def test_any_thread_may_call_anything(path):
    names = [f"thread {number}" for number in range(8)]
    with LogSaver(path) as saver:
        with ThreadPoolExecutor(len(names)) as pool:
            jobs = [pool.submit(put_chain, saver, name, 15) for name in names]
            jobs += [pool.submit(lambda: [list(saver.list(None)) for _ in range(20)])]
            jobs += [pool.submit(lambda: [saver.prune(["nobody"]) for _ in range(20)])]
            for job in jobs:
                job.result(60)
        check_chains(saver, names, 15)
    with LogSaver(path) as saver:
        check_chains(saver, names, 15)


@pytest.mark.behaviour(35)
def test_several_loops_may_use_one_saver_at_a_time(path):
    names = [[f"loop {loop} task {task}" for task in range(3)] for loop in range(4)]

    async def run_all(saver, tasks):
        await asyncio.gather(*(aput_chain(saver, name, 10) for name in tasks))

    with LogSaver(path) as saver:
        with ThreadPoolExecutor(5) as pool:
            jobs = [pool.submit(asyncio.run, run_all(saver, tasks)) for tasks in names]
            jobs.append(pool.submit(put_chain, saver, "sync", 10))
            for job in jobs:
                job.result(60)
        check_chains(saver, [*itertools.chain(*names), "sync"], 10)


@pytest.mark.behaviour(35)
def test_a_loop_that_is_gone_does_not_matter_to_the_next(saver):
    for name in ("first", "second", "third"):
        asyncio.run(aput_chain(saver, name, 3))
    check_chains(saver, ["first", "second", "third"], 3)


@pytest.mark.behaviour(35)
async def test_sync_methods_may_be_called_inside_a_running_loop(saver):
    put_chain(saver, "sync", 3)
    await aput_chain(saver, "async", 3)
    saver.copy_thread("sync", "copy")
    saver.prune(["copy"])
    saver.delete_thread("copy")
    saver.flush()
    check_chains(saver, ["sync", "async"], 3)


@pytest.mark.behaviour(35)
async def test_a_cancelled_put_leaves_the_saver_usable(saver):
    task = asyncio.ensure_future(saver.aput(make_config(), make_checkpoint(), {}, {}))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(aput_chain(saver, "next", 3), 20)
    check_chains(saver, ["next"], 3)


def test_a_closed_saver_cannot_be_entered_again(path):
    with LogSaver(path) as saver:
        put(saver)
    with pytest.raises(ClosedLogError, match="open the log again"):
        saver.__enter__()


async def test_a_closed_saver_cannot_be_entered_again_async(path):
    async with LogSaver(path) as saver:
        put(saver)
    with pytest.raises(ClosedLogError, match="open the log again"):
        await saver.__aenter__()


# -- one file, opened more than once


def test_a_second_saver_shares_the_lock_timeout_of_the_first(path):
    with LogSaver(path, lock_timeout=3) as first, LogSaver(path, lock_timeout=7) as second:
        assert second._store.waiting is first._store.waiting


@pytest.mark.behaviour(33, 38)
@pytest.mark.parametrize("closed", [0, 1])
def test_of_two_savers_on_one_file_one_may_be_closed(path, closed):
    savers = [LogSaver(path), LogSaver(path)]
    first = put(savers[0], values={"c": 1})
    second = put(savers[1], values={"c": 1}, new_versions={}, parent=first)
    for saver in savers:
        assert ids(saver.list(None)) == [id_of(second), id_of(first)]
    savers[closed].close()
    with pytest.raises(ClosedLogError):
        savers[closed].get_tuple(first)
    left = savers[1 - closed]
    third = put(left, parent=second)
    assert ids(left.list(None)) == [id_of(third), id_of(second), id_of(first)]
    left.close()
    with LogSaver(path) as again:
        assert len(list(again.list(None))) == 3


@pytest.mark.behaviour(38)
def test_other_spellings_of_the_path_are_the_same_file(path, tmp_path, monkeypatch):
    (tmp_path / "link.log").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    spellings = [path, "agent.log", "./agent.log", "link.log", tmp_path / "agent.log"]
    savers = [LogSaver(spelling) for spelling in spellings]
    for saver in savers:
        put(saver)
    assert [len(list(saver.list(None))) for saver in savers] == [len(savers)] * len(savers)
    for saver in savers[:-1]:
        saver.close()
    put(savers[-1])
    savers[-1].close()


@pytest.mark.behaviour(38)
def test_closing_twice_does_not_close_for_others(path):
    one, other = LogSaver(path), LogSaver(path)
    one.close()
    one.close()
    put(other)
    other.close()


@pytest.mark.behaviour(38)
def test_isolated_loops_each_with_a_saver_of_their_own_share_the_file(path):
    """The Agent Server enters the factory once per loop and closes only one of the savers."""
    opened, meet = [], threading.Barrier(3)

    async def serve(number):
        saver = LogSaver(path)
        opened.append(saver)
        async with saver if number == 0 else contextlib.nullcontext(saver):
            meet.wait(20)
            await aput_chain(saver, f"loop {number}", 5)
        meet.wait(20)
        if number:
            await aput_chain(saver, f"loop {number} later", 5)

    with ThreadPoolExecutor(3) as pool:
        for job in [pool.submit(asyncio.run, serve(number)) for number in range(3)]:
            job.result(60)
    names = ["loop 0", "loop 1", "loop 2", "loop 1 later", "loop 2 later"]
    left = [saver for saver in opened if not repr(saver).endswith("(closed)")]
    assert len(left) == 2
    for saver in left:
        check_chains(saver, names, 5)
        saver.close()


# -- the event loop


class BlockingCallError(Exception):
    """Raised for a call that the Agent Server does not allow on its loop."""


@pytest.fixture
def no_blocking_calls(monkeypatch):
    """Makes what would block an event loop raise in the thread that runs the test."""
    loop_thread = threading.get_ident()

    def guarded(name, real):
        def call(*args, **kwargs):
            if threading.get_ident() == loop_thread:
                raise BlockingCallError(name)
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in ("write", "replace", "rename", "read", "mkdir", "unlink", "remove"):
            guard = guarded(name, getattr(os, name))
            patch.setattr(os, name, guard)
            if hasattr(Disk, name):
                patch.setattr(Disk, name, staticmethod(guard))
        patch.setattr(builtins, "open", guarded("open", open))
        patch.setattr(time, "sleep", guarded("sleep", time.sleep))
        yield


@pytest.fixture
def sync_threads(monkeypatch):
    """The threads that brought something to stable storage."""
    threads, real = [], Disk.sync

    def sync(disk, fd):
        threads.append(threading.get_ident())
        real(disk, fd)

    monkeypatch.setattr(Disk, "sync", sync)
    return threads


async def use_everything(saver):
    """Every async method, on two threads."""
    configs = []
    for step in range(4):
        checkpoint = make_checkpoint({"c": step}, {"c": step})
        parent = configs[-1] if configs else make_config()
        configs.append(await saver.aput(parent, checkpoint, {"run_id": f"run {step}"}, {"c": step}))
        await saver.aput_writes(configs[-1], [("c", step)], "task")
    background = make_config("background", __pregel_durability="async")
    await saver.aput(background, make_checkpoint({"c": 0}), {}, {})
    assert (await saver.aget_tuple(make_config())).config == configs[-1]
    assert len([found async for found in saver.alist(None, filter={"run_id": "run 1"})]) == 1
    await saver.aget_delta_channel_history(config=make_config(), channels=["c"])
    await saver.acopy_thread("t", "u")
    await saver.adelete_for_runs(["run 0"])
    await saver.aprune(["t"])
    await saver.adelete_thread("u")
    await saver.aflush()
    assert sorted(info.thread_id for info in saver.threads()) == ["background", "t"]


@pytest.mark.behaviour(39)
async def test_no_async_method_makes_a_blocking_call_on_the_loop(saver, no_blocking_calls):
    with pytest.raises(BlockingCallError):
        os.unlink("nothing")
    await use_everything(saver)


@pytest.mark.behaviour(39)
async def test_reading_from_the_file_makes_no_blocking_call_on_the_loop(path, no_blocking_calls):
    """A saver just opened has nothing of the log in memory but the index."""
    async with await asyncio.to_thread(LogSaver, path) as saver:
        await aput_chain(saver, "t", 5)
    async with await asyncio.to_thread(LogSaver, path) as saver:
        found = await saver.aget_tuple(make_config())
        assert found.checkpoint["channel_values"] == {"c": 4}
        assert len([each async for each in saver.alist(None)]) == 5
    async with await asyncio.to_thread(LogSaver, path) as saver:
        await saver.aprune(["t"])
        assert [each.config async for each in saver.alist(None)] == [found.config]


@pytest.mark.behaviour(39)
async def test_a_graph_runs_without_a_blocking_call_on_the_loop(path, no_blocking_calls):
    saver = await asyncio.to_thread(LogSaver, path)
    builder = StateGraph(dict)
    builder.add_node("node", lambda state: {"seen": True})
    builder.add_edge(START, "node")
    graph = builder.compile(checkpointer=saver)
    for durability in ("sync", "async", "exit"):
        await graph.ainvoke({"in": durability}, make_config(), durability=durability)
    assert (await graph.aget_state(make_config())).values == {"seen": True}
    await saver.aclose()


@pytest.mark.behaviour(39)
async def test_the_loop_never_waits_for_the_disk_itself(path, sync_threads):
    async with LogSaver(path) as saver:
        del sync_threads[:]
        await use_everything(saver)
        assert sync_threads
    assert threading.get_ident() not in sync_threads


@pytest.mark.behaviour(39)
async def test_closing_in_the_loop_does_not_sync_there(path, sync_threads):
    saver = await asyncio.to_thread(LogSaver, path)
    await saver.aput(make_config(__pregel_durability="async"), make_checkpoint(), {}, {})
    await saver.aclose()
    assert threading.get_ident() not in sync_threads


@pytest.mark.behaviour(39)
async def test_the_loop_goes_on_while_a_put_waits_for_the_disk(path, monkeypatch):
    release, real = threading.Event(), Disk.sync
    async with LogSaver(path) as saver:

        def slow(disk, fd):
            assert release.wait(20)
            real(disk, fd)

        monkeypatch.setattr(Disk, "sync", slow)
        task = asyncio.ensure_future(saver.aput(make_config(), make_checkpoint(), {}, {}))
        await asyncio.sleep(0.02)
        assert not task.done()
        assert await saver.aget_tuple(make_config()) is not None
        release.set()
        await asyncio.wait_for(task, 20)
