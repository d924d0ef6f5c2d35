"""One saver under many graphs at once: threads, tasks of one loop, and several loops."""

import asyncio
import operator
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypedDict

from graphs import approval
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send
from support import make_config

from logsaver import LogSaver

DURABILITIES = ("sync", "async", "exit")


class State(TypedDict):
    owner: str
    lines: Annotated[list[str], operator.add]


def notebook(saver):
    """A node that fans out to four, and one that counts; every line has the owner's name."""

    def send(state):
        return [Send("write", {"owner": state["owner"], "number": n}) for n in range(4)]

    def write(task):
        return {"lines": [f"{task['owner']} {task['number']}"]}

    builder = StateGraph(State)
    builder.add_node("open", lambda state: {"lines": [f"{state['owner']} opens"]})
    builder.add_node("write", write)
    builder.add_node("close", lambda state: {"lines": [f"{len(state['lines'])}"]})
    builder.add_edge(START, "open")
    builder.add_conditional_edges("open", send, ["write"])
    builder.add_edge("write", "close")
    return builder.compile(saver)


def lines_of(owner, turns):
    """What a notebook holds after so many turns."""
    lines = []
    for _ in range(turns):
        lines += [f"{owner} opens", *(f"{owner} {n}" for n in range(4))]
        lines.append(str(len(lines)))
    return lines


def assert_all_there(path, owners, turns, checkpoints=None):
    """Every owner's lines are there, and nobody else's, in every step of the history."""
    with LogSaver(path) as saver:
        graph = notebook(saver)
        for owner in owners:
            expected = lines_of(owner, turns)
            assert graph.get_state(make_config(owner)).values["lines"] == expected
            history = list(graph.get_state_history(make_config(owner)))
            for found in history:
                assert found.values["lines"] == expected[: len(found.values["lines"])]
            if checkpoints is not None:
                assert len(history) == checkpoints
        assert sorted(info.thread_id for info in saver.threads()) == sorted(owners)
        saver._handle.store.index._check()


def test_threads_share_one_saver(path):
    owners = [f"thread {n}" for n in range(8)]
    together = threading.Barrier(len(owners))
    with LogSaver(path) as saver, ThreadPoolExecutor(len(owners)) as pool:
        graph = notebook(saver)

        def work(number, owner):
            together.wait()
            for turn in range(5):
                durability = DURABILITIES[(number + turn) % 2]
                graph.invoke({"owner": owner}, make_config(owner), durability=durability)

        list(pool.map(work, range(len(owners)), owners))
    assert_all_there(path, owners, 5, checkpoints=25)


def test_threads_with_savers_of_their_own_share_one_log(path):
    """Each opens the path itself; closing one does not take the log from the others."""
    owners = [f"thread {n}" for n in range(6)]
    together = threading.Barrier(len(owners))

    def work(owner):
        together.wait()
        for _ in range(4):
            with LogSaver(path) as saver:
                notebook(saver).invoke({"owner": owner}, make_config(owner))

    with ThreadPoolExecutor(len(owners)) as pool:
        list(pool.map(work, owners))
    assert_all_there(path, owners, 4, checkpoints=20)


async def test_fifty_runs_of_one_loop_share_one_saver(path):
    owners = [f"task {n}" for n in range(50)]
    async with LogSaver(path) as saver:
        graph = notebook(saver)

        async def work(number, owner):
            for _ in range(2):
                await graph.ainvoke(
                    {"owner": owner}, make_config(owner), durability=DURABILITIES[number % 3]
                )

        await asyncio.gather(*(work(*pair) for pair in enumerate(owners)))
    assert_all_there(path, owners, 2)


def test_loops_of_several_threads_share_one_saver_with_sync_callers(path):
    """A saver made outside any loop serves them all; the loops end one by one."""
    owners = [f"loop {loop} task {n}" for loop in range(4) for n in range(5)]
    sync_owners = ["sync 0", "sync 1"]
    together = threading.Barrier(6)
    with LogSaver(path) as saver, ThreadPoolExecutor(6) as pool:
        graph = notebook(saver)

        async def work(owner, turns, durability):
            for _ in range(turns):
                await graph.ainvoke({"owner": owner}, make_config(owner), durability=durability)

        async def run_loop(loop):
            mine = [owner for owner in owners if owner.startswith(f"loop {loop} ")]
            await asyncio.gather(*(work(owner, 3, DURABILITIES[loop % 2]) for owner in mine))

        def in_a_loop(loop):
            together.wait()
            asyncio.run(run_loop(loop))

        def without_a_loop(owner):
            together.wait()
            for _ in range(3):
                graph.invoke({"owner": owner}, make_config(owner), durability="sync")

        futures = [pool.submit(in_a_loop, loop) for loop in range(4)]
        futures += [pool.submit(without_a_loop, owner) for owner in sync_owners]
        for future in futures:
            future.result()
    assert_all_there(path, [*owners, *sync_owners], 3, checkpoints=15)


async def test_readers_see_whole_states_while_others_write(path):
    async with LogSaver(path) as saver:
        graph = notebook(saver)
        stop = threading.Event()

        def read():
            looks = 0
            while not stop.is_set() or not looks:
                for owner in ("x", "y"):
                    lines = graph.get_state(make_config(owner)).values.get("lines", [])
                    assert lines == lines_of(owner, 10)[: len(lines)]
                    for found in graph.get_state_history(make_config(owner), limit=3):
                        lines = found.values["lines"]
                        assert lines == lines_of(owner, 10)[: len(lines)]
                list(saver.threads())
                looks += 1

        async def write(owner):
            for _ in range(10):
                await graph.ainvoke({"owner": owner}, make_config(owner))

        reader = asyncio.get_running_loop().run_in_executor(None, read)
        try:
            await asyncio.gather(write("x"), write("y"))
        finally:
            stop.set()
            await reader
    assert_all_there(path, ["x", "y"], 10, checkpoints=50)


def test_interrupts_of_many_threads_are_answered_at_once(path):
    configs = [make_config(f"t{n}") for n in range(12)]
    with LogSaver(path) as saver, ThreadPoolExecutor(6) as pool:
        graph = approval().compile(saver)
        list(pool.map(lambda config: graph.invoke({"trail": []}, config), configs))
    with LogSaver(path) as saver, ThreadPoolExecutor(6) as pool:
        graph = approval().compile(saver)

        def answer(number):
            return graph.invoke(Command(resume=number), configs[number])

        states = list(pool.map(answer, range(len(configs))))
    assert [state["trail"][1] for state in states] == [f"review:{n}" for n in range(12)]
