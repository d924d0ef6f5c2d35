"""What a saver does by itself: retention and compaction in the background."""

import asyncio
import logging
import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Overwrite, interrupt
from support import id_of, ids, make_checkpoint, make_config, new_id, put, run_python
from test_deleting import Journal, add, journal, journal_builder, run, states, thread

from logsaver import InvalidInputError, LogSaver, Retention, detached, upkeep, verify
from logsaver.disk import Disk
from logsaver.durability import IDLE
from logsaver.pace import SLICE, Pace

LARGE = "x" * 300_000


def eventually(is_so, seconds=20.0):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def settled(saver):
    """Once its background has nothing more to do."""
    saver._upkeep.wait()
    return saver


# -- compaction by itself


def test_a_log_that_is_mostly_garbage_is_compacted_in_the_background(path):
    with LogSaver(path) as saver:
        for number in range(8):
            put(saver, f"thread {number}", {"x": LARGE})
        for number in range(7):
            saver.delete_thread(f"thread {number}")
        eventually(lambda: os.path.getsize(path) < 5 * len(LARGE))
        put(saver, "another")
        assert len(list(saver.list(None))) == 2
    assert verify(path).ok


def test_a_log_with_little_garbage_is_left_alone(path):
    with LogSaver(path) as saver:
        for number in range(8):
            put(saver, f"thread {number}", {"x": LARGE})
        for number in range(3):
            saver.delete_thread(f"thread {number}")
        assert settled(saver)._store.log.header.generation == 0


def test_what_copied_threads_share_is_counted_once(path):
    """A few copies of one thread, which cost nothing, kept garbage from ever being seen."""
    with LogSaver(path) as saver:
        put(saver, "source", {"x": LARGE})
        for number in range(5):
            saver.copy_thread("source", f"copy {number}")
        for number in range(6):
            put(saver, f"thread {number}", {"x": LARGE})
        # At once: a compaction in the middle would leave less than is worth another one.
        saver.prune([f"thread {number}" for number in range(6)], strategy="delete")
        put(saver, "another")
        eventually(lambda: os.path.getsize(path) < 2 * len(LARGE))
        found = saver.get_tuple(make_config("copy 3"))
        assert found.checkpoint["channel_values"] == {"x": LARGE}


def test_nothing_is_begun_that_would_fill_the_disk(path, monkeypatch, caplog):
    caplog.set_level("INFO", "logsaver")
    with LogSaver(path, auto_compact=False) as saver:
        for number in range(8):
            put(saver, f"thread {number}", {"x": LARGE})
        saver.prune([f"thread {number}" for number in range(6)], strategy="delete")
    size = os.path.getsize(path)
    monkeypatch.setattr(Disk, "room", lambda disk, fd: 100_000)
    with LogSaver(path) as saver:
        settled(saver)
    assert size <= os.path.getsize(path) < size + 1000
    assert "100000 bytes are free, too few" in caplog.text
    monkeypatch.undo()
    with LogSaver(path) as saver:
        settled(saver)
    assert os.path.getsize(path) < 3 * len(LARGE)


def test_a_small_log_starts_no_thread(path, monkeypatch):
    monkeypatch.setattr(upkeep.threading, "Thread", None)
    with LogSaver(path) as saver:
        for number in range(50):
            put(saver, "t", {"x": number})
        saver.delete_thread("t")


def test_nothing_happens_by_itself_if_that_is_not_wanted(path):
    with LogSaver(path, auto_compact=False) as saver:
        put(saver, "t", {"x": LARGE * 10})
        saver.delete_thread("t")
        assert settled(saver)._store.log.header.generation == 0
        assert saver.compact().bytes_after < 200


def test_what_is_due_at_open_is_done_then(path):
    with LogSaver(path, auto_compact=False) as saver:
        put(saver, "t", {"x": LARGE * 10})
        saver.delete_thread("t")
    with LogSaver(path) as saver:
        assert settled(saver).stats().bytes < 200


def test_a_put_compares_one_number(path, monkeypatch):
    with LogSaver(path) as saver:
        put(saver)
        monkeypatch.setattr(upkeep.Upkeep, "look", None)
        for _ in range(100):
            put(saver)


def test_an_error_in_the_background_is_logged_and_the_log_goes_on(path, monkeypatch, caplog):
    with LogSaver(path) as saver:
        put(saver, "t", {"x": LARGE * 10})
        with monkeypatch.context() as patched:
            patched.setattr(upkeep, "rewrite", lambda *_: saver._store.log.file._closed())
            patched.setattr(upkeep, "ClosedLogError", KeyError)
            with caplog.at_level(logging.WARNING, "logsaver"):
                saver.delete_thread("t")
                settled(saver)
        assert "could not be compacted in the background" in caplog.text
        put(saver)
        saver.compact()
        assert saver.stats().bytes < 2000


def test_closing_does_not_wait_for_a_compaction(path, monkeypatch):
    started = []
    monkeypatch.setattr(upkeep, "go_on_in_child", started.append)
    with LogSaver(path, auto_compact=False) as saver:
        for number in range(3000):
            saver.put(
                {"configurable": {"thread_id": str(number % 2), "__pregel_durability": "async"}},
                {"v": 4, "id": new_id(), "ts": "", "channel_values": {"x": "y" * 2000}},
                {},
                {},
            )
        saver.delete_thread("1")
        put(saver, "2", {"x": LARGE * 4})
        saver.delete_thread("2")
    content = Path(path).read_bytes()
    # At each step of the way it finds out soon.
    monkeypatch.setattr("logsaver.pace.SLICE", SLICE / 10)
    saver = LogSaver(path)
    put(saver, "3")
    begin = time.monotonic()
    saver.close()
    assert time.monotonic() - begin < 0.4
    if Path(path).read_bytes().startswith(content):  # it was cut off
        assert started == [os.path.realpath(path)]
        assert os.listdir(os.path.dirname(path)) == ["agent.log"]


def test_the_old_file_is_let_go_of_soon(path):
    """The thread that syncs it had it open, and its bytes on the disk, for ten seconds more."""
    with LogSaver(path, auto_compact=False) as saver:
        in_background = {"__pregel_durability": "async"}
        for _ in range(3):
            saver.put(make_config("t", **in_background), make_checkpoint({"x": LARGE}), {}, {})
        saver.prune(["t"])
        old = weakref.ref(saver._store.log.file)
        saver.compact()
        eventually(lambda: (file := old()) is None or file.is_closed(), seconds=IDLE / 2)
        saver.put(make_config("t", **in_background), make_checkpoint({"x": 1}), {}, {})
        eventually(lambda: saver.stats().synced_bytes == saver.stats().bytes)


def test_another_compaction_may_begin_while_those_under_way_are_told_to_end(path, monkeypatch):
    """It was a `RuntimeError`: what `stop` goes through changed its size."""
    tell = Pace.stop
    begun = []

    def tell_slowly(pace):
        begun.append(threading.Thread(target=saver._upkeep.new_pace))
        begun[-1].start()
        begun[-1].join(0.05)
        tell(pace)

    with LogSaver(path, auto_compact=False) as saver:
        paces = [saver._upkeep.new_pace() for _ in range(2)]
        monkeypatch.setattr(Pace, "stop", tell_slowly)
        saver._upkeep.stop()
        monkeypatch.undo()
        for thread_ in begun:
            thread_.join()
        assert len(begun) == len(paces)


def test_a_compaction_that_is_cancelled_before_it_begins_leaves_nothing_behind(path):
    async def cancel(saver):
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        held = threading.Event()
        blocker = asyncio.create_task(asyncio.to_thread(held.wait))
        await asyncio.sleep(0)
        task = asyncio.create_task(saver.acompact())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held.set()
        await blocker

    with LogSaver(path, auto_compact=False) as saver:
        asyncio.run(cancel(saver))
        assert not saver._upkeep._paces
        saver.compact()


def test_a_forked_child_has_an_upkeep_of_its_own(path):
    with LogSaver(path, auto_compact=False) as saver:
        put(saver, "t", {"x": LARGE * 10})
        pid = os.fork()
        if pid == 0:
            try:
                saver.delete_thread("t")
                saver.compact()
                os._exit(0)
            except BaseException:  # noqa: BLE001 - a child has nobody to tell
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert list(saver.list(None)) == []
        assert saver.stats().bytes < 300


# -- a tool that is run for one step at a time


ONE_STEP = """
    import os, sys
    from logsaver import LogSaver
    sys.path.insert(0, os.path.dirname(sys.argv[2]))
    from support import put
    saver = LogSaver(sys.argv[1])
    put(saver, "t", {"x": os.urandom(400_000)})
    saver.prune(["t"])
    os.write(1, b"done")
"""


@pytest.mark.skipif(os.name != "posix", reason="a detached process is started on POSIX only")
def test_the_log_of_many_one_step_processes_stays_bounded(path):
    for _ in range(8):
        assert run_python(ONE_STEP, path, __file__).stdout == "done"
    # Without anything it would be 3.2 MB. What is due is more than half of it, and 1 MB.
    eventually(lambda: os.path.getsize(path) < 2_100_000)
    eventually(lambda: os.listdir(os.path.dirname(path)) == ["agent.log"])
    with LogSaver(path) as saver:
        assert len(list(saver.list(None))) == 1
    assert verify(path).ok


@pytest.mark.skipif(os.name != "posix", reason="a detached process is started on POSIX only")
def test_a_detached_process_compacts_and_nobody_waits_for_it(path):
    with LogSaver(path, auto_compact=False) as saver:
        put(saver, "t", {"x": LARGE * 10})
        saver.delete_thread("t")
    assert detached.go_on_in_child(path)
    eventually(lambda: os.path.getsize(path) < 1000)


def test_a_detached_process_does_not_make_a_log_that_is_gone(path):
    run_python("import sys; from logsaver.tidying import tidy; tidy(sys.argv[1])", path)
    assert not os.path.exists(path)


@pytest.mark.parametrize("name", ["/usr/bin/my-agent", "", None])
def test_an_application_that_is_no_interpreter_is_not_started_again(path, monkeypatch, name):
    monkeypatch.setattr(detached.sys, "executable", name)
    monkeypatch.setattr(detached.subprocess, "run", None)
    assert not detached.go_on_in_child(path)


def test_only_the_usual_serializer_is_left_to_a_detached_process(path):
    with LogSaver(path) as saver:
        assert saver._upkeep._may_detach
    with LogSaver(path, serde=JsonPlusSerializer()) as saver:
        assert not saver._upkeep._may_detach


# -- pace


def test_the_pace_lets_others_in_and_ends_when_told(monkeypatch):
    clock, sleeps, position = [0.0], [], [0]

    def sleep(seconds):
        sleeps.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr("logsaver.pace.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("logsaver.pace.time.sleep", sleep)
    pace = Pace(lambda: position[0])

    def work(seconds):
        sleeps.clear()
        for _ in range(round(seconds / 50e-6)):
            clock[0] += 50e-6
            pace()
        return sum(sleeps) / seconds, len(sleeps)

    assert work(0.1)[0] == 0
    position[0] = 1
    share, count = work(0.01)
    assert share > 1
    assert count > 20
    assert pace.hasten()
    position[0] = 2
    assert work(0.01)[0] < share / 2
    assert pace.hasten()
    assert not pace.hasten()


# -- retention


def old(**age):
    return (datetime.now(timezone.utc) - timedelta(**age)).isoformat()


def test_only_the_last_checkpoints_stay_in_each_namespace(path):
    with LogSaver(path, retention=Retention(keep_last=3), fsync="never") as saver:
        expected = {}
        for thread_id in ("a", "b"):
            for ns in ("", "memory"):
                config = None
                for _ in range(60):
                    config = put(saver, thread_id, {"x": "y" * 300}, parent=config, ns=ns)
                expected[thread_id, ns] = config
        # While it goes, and not only when the log is opened.
        eventually(lambda: len(ids(saver.list(make_config("a")))) < 60)
    with LogSaver(path, retention=Retention(keep_last=3)) as saver:
        settled(saver)
        for (thread_id, ns), config in expected.items():
            listed = ids(saver.list(make_config(thread_id, ns)))
            assert len(listed) == 3
            assert listed[0] == id_of(config)
        assert saver.retention_preview().checkpoints == 0


def test_age_goes_by_the_checkpoints_own_timestamp(path):
    rule = Retention(max_age=timedelta(days=30))
    with LogSaver(path) as saver:
        config = None
        for days in (90, 60, 29, 1):
            config = put(saver, "t", {"x": days}, parent=config, ts=old(days=days))
        put(saver, "finished", {"x": 1}, ts=old(days=31))
        put(saver, "young", {"x": 1}, ts=old(days=29))
    with LogSaver(path, retention=rule) as saver:
        settled(saver)
        assert [found.checkpoint["channel_values"]["x"] for found in saver.list(thread())] == [
            1,
            29,
        ]
        assert [found.thread_id for found in saver.threads()] == ["t", "young"]


def test_a_preview_says_what_would_go_and_changes_nothing(path):
    with LogSaver(path) as saver:
        configs = []
        for number in range(5):
            configs.append(put(saver, "t", {"x": number}, parent=configs[-1] if configs else None))
        saver.put_writes(configs[0], [("x", "y" * 1000)], "task")
        size = saver.stats().bytes
        assert saver.retention_preview().namespaces == ()
        preview = saver.prune(["t"], dry_run=True)
        (going,) = preview.namespaces
        assert going.removed == tuple(map(id_of, configs[:4]))
        assert (going.thread_id, going.checkpoint_ns, going.kept_hidden) == ("t", "", ())
        assert preview.checkpoints == 4
        assert 1000 < preview.bytes < size
        everything = saver.prune(["t"], strategy="delete", dry_run=True)
        assert everything.namespaces[0].removed == tuple(map(id_of, configs))
        assert saver.prune(["nobody"], strategy="delete", dry_run=True).namespaces == ()
        assert saver.stats().bytes == size
        assert saver.prune(["t"]) is None
        assert ids(saver.list(thread())) == [id_of(configs[4])]
    with LogSaver(path, read_only=True, retention=Retention(keep_last=1)) as saver:
        assert saver.retention_preview().checkpoints == 0


def test_a_preview_of_the_rule_is_what_it_then_does(path):
    with LogSaver(path) as saver:
        run(journal(saver), 6)
    with LogSaver(path, read_only=True, retention=Retention(keep_last=2)) as saver:
        preview = saver.retention_preview()
        listed = ids(saver.list(thread()))
    assert preview.namespaces[0].kept_hidden
    with LogSaver(path, retention=Retention(keep_last=2)) as saver:
        left = ids(settled(saver).list(thread()))
        hidden = set(saver._store.index.namespace("t", "").hidden)
    assert set(listed) - set(left) == set(preview.namespaces[0].removed)
    assert hidden == set(preview.namespaces[0].kept_hidden)


@pytest.mark.parametrize("rule", [{"keep_last": 1}, {"max_age": timedelta(microseconds=1)}])
def test_an_interrupted_thread_keeps_what_a_resume_needs(path, rule):
    def ask(state):
        return {"log": [interrupt("why?")]}

    def outer(saver):
        inner = StateGraph(Journal)
        inner.add_node("ask", ask)
        inner.add_edge(START, "ask")
        builder = journal_builder()
        builder.add_node("inner", inner.compile())
        builder.add_edge("last", "inner")
        return builder.compile(checkpointer=saver)

    with LogSaver(path) as saver:
        for name in ("t", "whole"):
            run(outer(saver), 1, name)
        assert outer(saver).get_state(thread()).next == ("inner",)
    with LogSaver(path, retention=Retention(**rule)) as saver:
        settled(saver)
        assert len(ids(saver.list(make_config()))) == 1
        saver.compact()
        graph = outer(saver)
        graph.invoke(Command(resume="because"), thread())
        # The other one is the same without any of this: it was interrupted as well.
        graph.invoke(Command(resume="because"), thread("whole"))
        assert graph.get_state(thread()).values == graph.get_state(thread("whole")).values
        assert "because" in graph.get_state(thread()).values["log"]


def test_a_thread_that_finished_long_ago_goes_altogether(path):
    with LogSaver(path) as saver:
        run(journal(saver), 2)
    time.sleep(0.01)
    rule = Retention(max_age=timedelta(microseconds=1))
    with LogSaver(path, retention=rule) as saver:
        assert list(settled(saver).threads()) == []
        saver.compact()
        assert saver.stats().bytes < 200


def test_a_thread_whose_root_is_not_stored_yet_is_not_finished(path):
    """In exit mode a subgraph's checkpoints are stored before the root's first one."""
    with LogSaver(path, auto_compact=False) as saver:
        saver.put(make_config("t", "sub"), make_checkpoint({"x": 1}), {"step": 0}, {"x": 1})
    time.sleep(0.01)
    with LogSaver(path, retention=Retention(max_age=timedelta(microseconds=1))) as saver:
        assert settled(saver).get_tuple(make_config("t", "sub")) is not None


def test_both_rules_hold_at_once_and_delta_values_are_as_before(path):
    with LogSaver(path) as saver:
        graph = journal(saver)
        run(graph, 8)
        before = states(graph, saver)
    with LogSaver(path, retention=Retention(keep_last=5, max_age=timedelta(days=1))) as saver:
        settled(saver)
        saver.compact()
        left = states(journal(saver), saver)
        assert len(left) == 5
        assert left.items() <= before.items()


@pytest.mark.parametrize(
    "wrong",
    [
        {"keep_last": 0},
        {"keep_last": True},
        {"keep_last": 1.5},
        {"max_age": 30},
        {"max_age": timedelta(0)},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        Retention(**wrong)


def test_a_retention_without_a_rule_is_refused():
    """It was taken, and did nothing."""
    with pytest.raises(InvalidInputError, match="needs a rule"):
        Retention()


def test_what_is_no_rule_is_refused(path):
    with pytest.raises(InvalidInputError, match="retention is a"):
        LogSaver(path, retention={"keep_last": 3})
    with pytest.raises(InvalidInputError, match="cache_bytes is a"):
        LogSaver(path, cache_bytes=-1)
    assert not os.path.exists(path)


# -- delta channels, with everything that takes something away


def mapping(kept, writes):
    return {**kept, **{key: value for write in writes for key, value in write.items()}}


def notebook(saver, frequency):
    """Two delta channels, one of them overwritten now and then, and a plain one."""

    class Notebook(TypedDict):
        lines: Annotated[list, DeltaChannel(add, snapshot_frequency=frequency)]
        facts: Annotated[dict, DeltaChannel(mapping, snapshot_frequency=frequency)]
        count: int

    def write(state):
        count = state.get("count", 0) + 1
        line = Overwrite([f"a clean page {count}"]) if count % 5 == 0 else [f"line {count}"]
        return {"lines": line, "count": count}

    def learn(state):
        return {"facts": {f"fact {state['count'] % 4}": len(state["lines"])}}

    builder = StateGraph(Notebook)
    builder.add_node("write", write)
    builder.add_node("learn", learn)
    builder.add_edge(START, "write")
    builder.add_edge("write", "learn")
    return builder.compile(checkpointer=saver)


def go_on(graph, name, turns, first=0):
    for turn in range(first, first + turns):
        graph.invoke({"lines": [f"in {turn}"]}, thread(name, run_id=f"run {turn}"))


@pytest.mark.behaviour(27)
@pytest.mark.parametrize("frequency", [1, 3, 100])
@pytest.mark.parametrize("ways", ["prune", "runs", "retention", "fork"])
def test_delta_values_are_as_before_whatever_goes(path, frequency, ways):
    with LogSaver(path, fsync="never") as saver:
        graph = notebook(saver, frequency)
        go_on(graph, "t", 7)
        if ways == "fork":
            middle = list(saver.list(thread()))[9].config
            graph.update_state(middle, {"lines": ["a branch"], "count": 40}, as_node="write")
            graph.invoke(None, thread())
        saver.copy_thread("t", "whole")
        before = states(graph, saver)
    rule = Retention(keep_last=4) if ways == "retention" else None
    with LogSaver(path, fsync="never", retention=rule) as saver:
        graph = notebook(settled(saver), frequency)
        for _ in range(2):  # twice: what is hidden already stays as long as it is needed
            if ways in ("prune", "fork"):
                saver.prune(["t"])
            elif ways == "runs":
                saver.delete_for_runs(["run 0", "run 2", "run 3"])
            left = states(graph, saver)
            assert 0 < len(left) < len(before)
            assert left.items() <= before.items()
            saver.compact()
            assert states(graph, saver) == left
        hidden = saver._store.index.namespace("t", "").hidden
        for checkpoint_id in hidden:
            assert saver.get_tuple(make_config("t", "", checkpoint_id)) is None
            assert checkpoint_id not in ids(saver.list(thread()))
    with LogSaver(path, fsync="never") as saver:
        graph = notebook(saver, frequency)
        for name in ("t", "whole"):
            go_on(graph, name, 3, first=7)
        assert graph.get_state(thread()).values == graph.get_state(thread("whole")).values
        saver.prune(["t"])
        saver.delete_thread("whole")
        values = graph.get_state(thread()).values
        saver.compact()
        assert graph.get_state(thread()).values == values
        saver._store.index._check()
