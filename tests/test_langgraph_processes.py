"""LangGraph in several processes at once, on one log."""

from __future__ import annotations

import asyncio
import os

import pytest
from graphs import THREAD, approval, chain, step
from langgraph.types import Command
from peers import peers
from support import ids, make_config

from logsaver import LogSaver, verify
from logsaver.rewriting import rewrite

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and flock")

RUN = (
    "graphs.chain(graphs.step('a'), graphs.step('b')).compile(checkpointer=saver)"
    ".invoke({'trail': [name]}, graphs.THREAD, durability=durability)['trail']"
)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_two_processes_run_a_graph_in_turns_on_one_thread(saver, path, durability):
    """Each goes on from where the other stopped, also if the file was replaced in between."""
    graph = chain(step("a"), step("b")).compile(checkpointer=saver)
    expected = []
    with peers(1, path) as (other,):
        for turn in range(4):
            there = other.ask(RUN, name=f"there {turn}", durability=durability)
            expected += [f"there {turn}", "a", "b"]
            assert there == expected
            if turn % 2:
                assert rewrite(saver._store)
            here = graph.invoke({"trail": [f"here {turn}"]}, THREAD, durability=durability)
            expected += [f"here {turn}", "a", "b"]
            assert here["trail"] == expected
        history = [snapshot.values["trail"] for snapshot in graph.get_state_history(THREAD)]
        line = (
            "[snapshot.values['trail'] for snapshot in graphs.chain(graphs.step('a'),"
            " graphs.step('b')).compile(checkpointer=saver).get_state_history(graphs.THREAD)]"
        )
        assert other.ask(line) == history
    assert verify(path).ok


def test_a_question_that_one_process_asks_is_answered_in_another(saver, path):
    with peers(1, path) as (other,):
        compiled = "graphs.approval().compile(checkpointer=saver)"
        asked = other.ask(f"{compiled}.invoke({{'trail': []}}, graphs.THREAD)['__interrupt__']")
        assert [question.value for question in asked] == ["good?"]
        graph = approval().compile(checkpointer=saver)
        done = graph.invoke(Command(resume="yes"), THREAD)
        assert done["trail"] == ["draft", "review:yes", "publish"]
        assert other.ask(f"{compiled}.get_state(graphs.THREAD).next") == ()


def long_graph(saver, between, count=12):
    """A graph of many steps; `between` is called in each of them."""
    nodes = [step(f"n{number}", act=lambda state: between()) for number in range(count)]
    return chain(*nodes).compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_graph_runs_while_another_process_prunes_it_and_replaces_the_file(path, durability):
    with peers(2, path) as others, LogSaver(path) as saver:
        turns = iter(range(1000))

        def meanwhile():
            turn = next(turns)
            others[turn % 2].ask("saver.prune(['t'])")
            assert others[(turn + 1) % 2].ask("rewrite(saver._store)")

        graph = long_graph(saver, meanwhile)
        trail = [f"n{number}" for number in range(12)]
        first = graph.invoke({"trail": []}, THREAD, durability=durability)
        assert first["trail"] == trail
        assert graph.get_state(THREAD).values["trail"] == trail
        assert graph.get_state(THREAD).next == ()
        second = graph.invoke({"trail": ["again"]}, THREAD, durability=durability)
        assert second["trail"] == [*trail, "again", *trail]
        saver.prune(["t"])
        assert len(ids(saver.list(make_config()))) == 1
        assert saver._store.log.header.generation == 24
    assert verify(path).ok


def test_an_async_graph_runs_while_another_process_puts_prunes_and_replaces_the_file(path):
    async def run(saver, other):
        graph = chain(*(step(f"n{number}") for number in range(30))).compile(checkpointer=saver)
        running = asyncio.create_task(graph.ainvoke({"trail": []}, THREAD, durability="sync"))
        rewritten = 0
        while not running.done():
            rewritten += await asyncio.to_thread(other.ask, "rewrite(saver._store)")
            await asyncio.to_thread(other.ask, "(put(saver, 'u'), saver.prune(['t', 'u'])) and 1")
        return (await running)["trail"], rewritten

    with peers(1, path) as (other,), LogSaver(path) as saver:
        trail, rewritten = asyncio.run(run(saver, other))
        assert trail == [f"n{number}" for number in range(30)]
        assert rewritten > 0
    assert verify(path).ok
