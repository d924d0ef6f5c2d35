"""A forked child has the parent's memory, not its locks, its threads or its open files."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from pathlib import Path

import pytest
from crashing import state_of
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from support import Awaited, ids, make_checkpoint, make_config, put, run_python

from logsaver import LogReplacedError, LogSaver, verify
from logsaver.disk import LOCK, UNLOCK
from logsaver.index import Index
from logsaver.rewriting import rewrite
from logsaver.store import Store

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # fork with threads
]

PATIENCE = 20.0


@contextlib.contextmanager
def forked(do, *args):
    """Run this in a forked child; at the end of the block it must have come to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            do(*args)
            code = 0
        except BaseException:  # noqa: BLE001 - told on stderr, and by the exit code
            traceback.print_exc()
        finally:
            os._exit(code)
    try:
        yield child
        assert wait_for(child) == 0, "the child failed; see what it wrote to stderr"
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        raise


def wait_for(child: int) -> int:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    raise AssertionError("the child does not come to an end")


def threads_of(saver) -> list[str]:
    return sorted(info.thread_id for info in saver.threads())


def file_is_locked(path) -> bool:
    """Whether anybody has the lock of the log."""
    stranger = Store(path)
    try:
        if stranger.log.file.try_lock():
            stranger.log.file.flock(UNLOCK)
            return False
        return True
    finally:
        stranger.close()


# -- both go on


@pytest.mark.parametrize("fsync", ["auto", "never"])
def test_parent_and_child_both_write_and_both_see_everything(path, fsync):
    with LogSaver(path, fsync=fsync) as saver:
        put(saver, "before")

        def in_child():
            assert "before" in threads_of(saver)
            put(saver, "child")
            while "parent" not in threads_of(saver):
                time.sleep(0.001)
            saver.close()

        with forked(in_child):
            put(saver, "parent")
            while "child" not in threads_of(saver):
                time.sleep(0.001)
        assert threads_of(saver) == ["before", "child", "parent"]
        put(saver, "after")
    assert verify(path).ok


def test_generations_of_forks_write_to_one_log(path):
    with LogSaver(path) as saver:

        def descend(depth):
            put(saver, f"depth {depth}")
            if depth < 4:
                with forked(descend, depth + 1):
                    put(saver, f"beside {depth}")

        descend(0)
        assert len(threads_of(saver)) == 9
    assert verify(path).ok


def test_many_children_write_at_once(path):
    with LogSaver(path) as saver, contextlib.ExitStack() as stack:
        put(saver, "t", {"x": 0})

        def in_child(number):
            for _ in range(20):
                put(saver, f"child {number}", {"x": number})
            saver.close()

        for number in range(5):
            stack.enter_context(forked(in_child, number))
        for _ in range(20):
            put(saver, "parent", {"x": 1})
        stack.close()
        assert len(ids(saver.list(None))) == 121
    assert verify(path).torn_tail is None


def test_a_child_shares_values_with_what_its_parent_put(path):
    with LogSaver(path) as saver:
        config = put(saver, "t", {"big": "x" * 50_000})
        before = os.path.getsize(path)

        def in_child():
            put(saver, "t", {"big": "x" * 50_000}, parent=config, new_versions={})

        with forked(in_child):
            pass
        assert os.path.getsize(path) - before < 2000
        found = saver.get_tuple(make_config())
        assert found.checkpoint["channel_values"]["big"] == "x" * 50_000


def test_a_reader_is_reopened_in_the_child_as_a_reader(path):
    with LogSaver(path) as writer, LogSaver(path, read_only=True) as reader:
        put(writer, "before")

        def in_child():
            while threads_of(reader) != ["after", "before"]:
                time.sleep(0.001)
            assert reader._store.read_only
            reader.close()

        with forked(in_child):
            put(writer, "after")


def test_a_list_that_the_parent_began_is_continued_in_the_child(path):
    with LogSaver(path) as saver:
        for number in range(5):
            put(saver, "t", {"x": number})
        listing = saver.list(None)
        next(listing)

        def in_child():
            assert len(list(listing)) == 4

        with forked(in_child):
            assert len(list(listing)) == 4


def test_what_async_mode_left_to_sync_stays_the_parents_business(path):
    """A child that does nothing with the log does nothing to it, not even at its exit."""
    done = run_python(
        """
        import os, sys
        from support import put
        from logsaver import LogSaver
        saver = LogSaver(sys.argv[1])
        put(saver, "t")
        saver._store.log.committer.synced = 0   # as if nothing had been synced
        child = os.fork()
        if child == 0:
            os.fdatasync = lambda fd: print("synced in the child")
            sys.exit(0)   # runs what atexit runs
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """,
        path,
        PYTHONPATH=str(Path(__file__).parent),
    )
    assert done.stdout == ""
    assert done.stderr == ""


def test_the_flusher_starts_anew_in_the_child(path):
    with LogSaver(path) as saver:
        saver._store.log.committer.start()
        put(saver, "parent")

        def in_child():
            config = make_config("child", __pregel_durability="async")
            saver.put(config, make_checkpoint({"x": 1}), {}, {"x": 1})
            committer = saver._store.log.committer
            end = time.monotonic() + 5
            while committer.synced < committer.written:
                assert time.monotonic() < end, "nobody syncs in the child"
                time.sleep(0.001)
            assert committer._flusher.is_alive()

        with forked(in_child):
            pass


def test_an_event_loop_of_the_child_can_await_a_sync(path):
    with LogSaver(path) as saver:
        put(Awaited(saver), "parent")
        with forked(lambda: put(Awaited(saver), "child")):
            pass
        assert threads_of(saver) == ["child", "parent"]
        assert asyncio.run(saver.aget_tuple(make_config("child"))) is not None


# -- the parent's lock


def test_a_child_does_not_give_back_the_lock_that_its_parent_holds(path):
    with LogSaver(path) as saver:
        put(saver)
        saver._store.log.file.flock(LOCK)

        def in_child():
            assert threads_of(saver) == ["t"]
            saver.close()

        with forked(in_child):
            pass
        assert file_is_locked(path)
        saver._store.log.file.flock(UNLOCK)
        assert not file_is_locked(path)


def test_a_child_does_not_keep_the_lock_of_a_parent_that_dies(path):
    """Killed while it holds the lock, with a child that has the log open and does nothing."""
    LogSaver(path).close()
    told, tell = os.pipe()

    def be_parent():
        with LogSaver(path) as saver:
            put(saver)
            saver._store.log.file.flock(LOCK)
            child = os.fork()
            if child == 0:
                os.write(tell, f"{os.getpid()} ".encode())
                time.sleep(PATIENCE)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)

    parent = os.fork()
    if parent == 0:
        be_parent()
    os.waitpid(parent, 0)
    child = int(os.read(told, 100))
    try:
        assert not file_is_locked(path)
        with LogSaver(path, lock_timeout=2) as saver:
            put(saver, "later")
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(told)
        os.close(tell)


@pytest.mark.parametrize("step", ["sync", "replace"])
def test_a_child_that_is_forked_while_a_log_is_replaced_keeps_no_lock(path, step, monkeypatch):
    """Another thread is in the middle of it: neither the old file nor the new one stays locked."""
    with LogSaver(path) as saver:
        put(saver)
        is_there, may_go_on = threading.Event(), threading.Event()
        disk = saver._store.disk
        before = getattr(disk, step)

        def pause(*args):
            if threading.current_thread() is replacer:
                is_there.set()
                assert may_go_on.wait(PATIENCE)
            return before(*args)

        replacer = threading.Thread(target=rewrite, args=(saver._store,))
        monkeypatch.setattr(disk, step, pause, raising=False)
        replacer.start()
        assert is_there.wait(PATIENCE)
        release, wait = os.pipe()[::-1]

        def in_child():
            os.read(wait, 1)
            monkeypatch.undo()
            put(saver, "child")
            assert threads_of(saver) == ["child", "t"]

        with forked(in_child):
            may_go_on.set()
            replacer.join(PATIENCE)
            assert not replacer.is_alive()
            put(saver, "t", {"x": 2})  # would time out if the child had the lock
            os.write(release, b".")
        assert saver._store.log.header.generation == 1
        assert threads_of(saver) == ["child", "t"]


def test_a_child_that_is_forked_while_a_log_is_opened_keeps_no_lock(path, monkeypatch):
    with LogSaver(path) as saver:
        put(saver)
    with open(path, "ab") as file:
        file.write(b"half a frame")
    is_there, may_go_on = threading.Event(), threading.Event()
    truncate = os.ftruncate

    def pause(disk, fd, size):
        is_there.set()
        assert may_go_on.wait(PATIENCE)
        truncate(fd, size)

    monkeypatch.setattr("logsaver.disk.Disk.truncate", pause)
    opened = []
    opener = threading.Thread(target=lambda: opened.append(LogSaver(path)))
    opener.start()
    assert is_there.wait(PATIENCE)
    wait, release = os.pipe()
    with forked(os.read, wait, 1):
        may_go_on.set()
        opener.join(PATIENCE)
        put(opened[0], "later")
        assert not file_is_locked(path)
        os.write(release, b".")
    opened[0].close()


# -- a child that is forked at an awkward moment


def test_a_fork_while_other_threads_put_leaves_a_child_that_works(path):
    with LogSaver(path) as saver:
        stop = threading.Event()

        def put_on(name, mode):
            while not stop.is_set():
                config = make_config(name, **mode)
                saver.put(config, make_checkpoint({"x": "y" * 300}), {"run": name}, {"x": 1})
                saver.get_tuple(config)

        modes = [{}, {"__pregel_durability": "async"}]
        threads = [
            threading.Thread(target=put_on, args=(f"thread {n}", modes[n % 2])) for n in range(4)
        ]
        for thread in threads:
            thread.start()

        def in_child(number):
            put(saver, f"child {number}")
            assert f"child {number}" in threads_of(saver)
            saver.close()

        for number in range(12):
            with forked(in_child, number):
                pass
        stop.set()
        for thread in threads:
            thread.join()
        assert sum(name.startswith("child") for name in threads_of(saver)) == 12
        state = state_of(saver)
    with LogSaver(path) as again:
        assert state_of(again) == state


@pytest.mark.parametrize("is_stuck", [False, True])
def test_a_child_goes_on_with_the_parents_index_unless_a_thread_is_stuck_in_it(
    path, is_stuck, monkeypatch
):
    """A fork waits for who is about to change it. Of one who does not come to an end, the record
    may be there by half, so that child reads the log anew; any other is spared that.
    """
    is_begun, is_over = threading.Event(), threading.Event()
    apply = Index.apply

    def slowly(index, *args):
        apply(index, *args)
        if threading.current_thread() is putting:  # which is not there in the child
            is_begun.set()
            is_over.wait(PATIENCE if is_stuck else 0.1)

    with LogSaver(path) as saver:
        put(saver)
        index = saver._store.index
        putting = threading.Thread(target=put, args=(saver, "another"))
        monkeypatch.setattr(Index, "apply", slowly)

        def in_child():
            assert threads_of(saver) == ["another", "t"]
            assert (saver._store.index is not index) == is_stuck
            saver._store.index._check()

        putting.start()
        assert is_begun.wait(PATIENCE)
        try:
            with forked(in_child):
                pass
        finally:
            is_over.set()
            putting.join()


def test_a_fork_while_another_thread_closes_leaves_a_child_that_can_exit(path):
    """At its exit it finishes what is open, and waits for no thread that is not there."""
    done = run_python(
        """
        import os, sys, threading, time
        from support import put
        from logsaver import LogSaver
        sync, slow = os.fdatasync, threading.Event()
        def slowly(fd):
            slow.set()
            time.sleep(0.5)
            sync(fd)
        saver = LogSaver(sys.argv[1])
        put(saver, "t")
        os.fdatasync = slowly
        config = {"configurable": {"thread_id": "u", "checkpoint_ns": "",
                                   "__pregel_durability": "async"}}
        from support import make_checkpoint
        saver.put(config, make_checkpoint({"x": 1}), {}, {"x": 1})
        closing = threading.Thread(target=saver.close)
        closing.start()
        slow.wait(10)
        time.sleep(0.05)
        child = os.fork()
        if child == 0:
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        closing.join()
        """,
        path,
        timeout=20,
        PYTHONPATH=str(Path(__file__).parent),
    )
    assert done.stderr == ""


# -- a log that is not what it was


def test_a_child_goes_on_with_a_log_that_was_replaced_meanwhile(path):
    with LogSaver(path) as saver:
        put(saver, "before")
        wait, release = os.pipe()

        def in_child():
            os.read(wait, 1)
            assert threads_of(saver) == ["before", "between"]
            put(saver, "child")

        with forked(in_child):
            assert rewrite(saver._store)
            put(saver, "between")
            os.write(release, b".")
        assert threads_of(saver) == ["before", "between", "child"]


def test_a_child_whose_log_is_another_one_by_now_is_told(path):
    with contextlib.suppress(LogReplacedError), LogSaver(path) as saver:
        put(saver, "before")
        wait, release = os.pipe()

        def in_child():
            os.read(wait, 1)
            for use in (threads_of, put):
                with pytest.raises(LogReplacedError):
                    use(saver)

        with forked(in_child):
            os.unlink(path)
            with LogSaver(path) as other:
                put(other, "other")
            content = Path(path).read_bytes()
            os.write(release, b".")
        assert Path(path).read_bytes() == content


# -- multiprocessing


def put_in(saver, thread):
    put(saver, thread, {"x": 1})
    saver.close()


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("options", [{}, {"fsync": "never"}], ids=["auto", "never"])
def test_a_saver_can_be_handed_to_a_process_of_multiprocessing(path, method, options):
    context = multiprocessing.get_context(method)
    with LogSaver(path, **options) as saver:
        put(saver, "here")
        process = context.Process(target=put_in, args=(saver, "there"))
        process.start()
        process.join(60)
        assert process.exitcode == 0
        assert threads_of(saver) == ["here", "there"]


def test_a_pickled_saver_opens_the_same_log_with_the_same_options(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with LogSaver("agent.log", fsync="never", lock_timeout=3) as saver:
        put(saver)
        data = pickle.dumps(saver)
        monkeypatch.chdir("/")
        with pickle.loads(data) as again:
            assert again.fsync == "never"
            assert threads_of(again) == ["t"]
    with LogSaver(path, read_only=True) as reader:
        data = pickle.dumps(reader)
    with pickle.loads(data) as again:
        assert again._store.read_only


def test_a_saver_whose_serializer_cannot_be_pickled_says_so(path):
    class Local(JsonPlusSerializer):
        pass

    with (
        LogSaver(path, serde=Local()) as saver,
        pytest.raises(TypeError, match="open the log in the other process"),
    ):
        pickle.dumps(saver)


def test_what_a_thread_was_listed_as_reads_its_metadata_in_a_child_too(path):
    """The child has closed the file that the parent had found it in."""
    with LogSaver(path) as saver:
        put(saver, metadata={"k": 1})
        info = next(saver.threads())

        def read():
            assert info.metadata == {"k": 1}

        with forked(read):
            pass
        assert info.metadata == {"k": 1}
