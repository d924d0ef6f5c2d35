"""What stopped goes on: after an exit, a crash, an interrupt, a failure, in another process too."""

import json
import operator
import subprocess
import time
from typing import Annotated, TypedDict

import pytest
from graphs import THREAD, FailOnce, Runs, Trail, approval, ask, chain, run_with_graphs, step
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from logsaver import LogSaver

# -- processes

TURN = """
    import json, sys
    from graphs import THREAD
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import START, MessagesState, StateGraph
    from logsaver import LogSaver

    def reply(state):
        return {"messages": [AIMessage(f"I have heard {len(state['messages'])} messages")]}

    builder = StateGraph(MessagesState)
    builder.add_node("reply", reply)
    builder.add_edge(START, "reply")
    graph = builder.compile(LogSaver(sys.argv[1]))
    state = graph.invoke({"messages": [HumanMessage(sys.argv[2])]}, THREAD)
    print(json.dumps([message.content for message in state["messages"]]))
"""


def test_a_new_process_remembers_the_conversation_of_the_last(path):
    """None of them closes the saver; leaving the interpreter is enough."""
    first, second = (json.loads(run_with_graphs(TURN, path, text).stdout) for text in "ab")
    assert first == ["a", "I have heard 1 messages"]
    assert second == [*first, "b", "I have heard 3 messages"]
    with LogSaver(path) as saver:
        told = saver.get_tuple(THREAD).checkpoint["channel_values"]["messages"]
    assert [message.content for message in told] == second


APPROVAL = """
    import json, sys
    from graphs import THREAD, Runs, approval
    from langgraph.types import Command
    from logsaver import LogSaver

    runs = Runs()
    graph = approval(runs).compile(LogSaver(sys.argv[1]))
    data = {"trail": []} if len(sys.argv) == 2 else Command(resume=sys.argv[2])
    state = graph.invoke(data, THREAD)
    asked = [found.value for found in state.pop("__interrupt__", [])]
    print(json.dumps([state, asked, runs.counts()]))
"""


def test_an_interrupt_is_answered_in_another_process(path):
    state, asked, counts = json.loads(run_with_graphs(APPROVAL, path).stdout)
    assert (state, asked) == ({"trail": ["draft"]}, ["good?"])
    assert counts == {"draft": 1, "review": 1}
    state, asked, counts = json.loads(run_with_graphs(APPROVAL, path, "yes").stdout)
    assert (state, asked) == ({"trail": ["draft", "review:yes", "publish"]}, [])
    assert counts == {"review": 1, "publish": 1}


KILLED = """
    import os, signal, sys, time
    from graphs import THREAD, chain, step
    from logsaver import LogSaver

    saver = LogSaver(sys.argv[1])

    def die(state):
        # With "async" the checkpoint may still be on its way; with "sync" it is there.
        while sys.argv[2] == "async" and saver.get_tuple(THREAD).metadata["step"] < 2:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)

    graph = chain(step("a"), step("b"), step("c", act=die)).compile(saver)
    graph.invoke({"trail": []}, THREAD, durability=sys.argv[2])
"""


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_killed_run_goes_on_at_the_step_it_died_in(path, durability):
    with pytest.raises(subprocess.CalledProcessError, match="SIGKILL"):
        run_with_graphs(KILLED, path, durability)
    runs = Runs()
    with LogSaver(path) as saver:
        graph = chain(step("a", runs), step("b", runs), step("c", runs)).compile(saver)
        assert graph.get_state(THREAD).next == ("c",)
        assert graph.invoke(None, THREAD) == {"trail": ["a", "b", "c"]}
    assert runs.counts() == {"c": 1}


# -- interrupts


def test_the_answers_of_one_node_are_kept_from_one_process_to_the_next(path):
    """A node asks twice. Its first answer is a write of a task that has not finished."""

    def form(state):
        return {"trail": [interrupt("name?"), interrupt("age?")]}

    builder = chain(form, step("greet"))
    asked = []
    for data in ({"trail": []}, Command(resume="Ada"), Command(resume="36")):
        with LogSaver(path) as saver:
            state = builder.compile(saver).invoke(data, THREAD)
            asked.append([found.value for found in state.pop("__interrupt__", [])])
    assert asked == [["name?"], ["age?"], []]
    assert state == {"trail": ["Ada", "36", "greet"]}


async def test_an_interrupt_of_invoke_is_answered_by_ainvoke(path):
    with LogSaver(path) as saver:
        approval().compile(saver).invoke({"trail": []}, THREAD)
    async with LogSaver(path) as saver:
        graph = approval().compile(saver)
        state = await graph.aget_state(THREAD)
        assert [found.value for found in state.interrupts] == ["good?"]
        state = await graph.ainvoke(Command(resume="sure"), THREAD)
    assert state == {"trail": ["draft", "review:sure", "publish"]}


def test_parallel_interrupts_are_answered_by_id_after_reopening(path):
    builder = StateGraph(Trail)
    for name in ("left", "right"):
        builder.add_node(name, step(name, act=ask(f"{name}?")))
        builder.add_edge(START, name)
    with LogSaver(path) as saver:
        state = builder.compile(saver).invoke({"trail": []}, THREAD)
        ids = {found.value: found.id for found in state["__interrupt__"]}
    with LogSaver(path) as saver:
        graph = builder.compile(saver)
        assert {found.value: found.id for found in graph.get_state(THREAD).interrupts} == ids
        graph.invoke(Command(resume={ids["right?"]: "R"}), THREAD)
    with LogSaver(path) as saver:
        graph = builder.compile(saver)
        assert [found.value for found in graph.get_state(THREAD).interrupts] == ["left?"]
        state = graph.invoke(Command(resume={ids["left?"]: "L"}), THREAD)
    assert state == {"trail": ["left:L", "right:R"]}


def test_an_input_instead_of_an_answer_starts_over(path):
    with LogSaver(path) as saver:
        graph = approval().compile(saver)
        graph.invoke({"trail": []}, THREAD)
        graph.invoke({"trail": ["again"]}, THREAD)
    with LogSaver(path) as saver:
        graph = approval().compile(saver)
        assert graph.get_state(THREAD).next == ("review",)
        state = graph.invoke(Command(resume="ok"), THREAD)
    assert state == {"trail": ["draft", "again", "draft", "review:ok", "publish"]}


# -- failures


def wait_for_writes(saver, count):
    """Return once this many tasks of the current step have their writes in the log."""

    def wait():
        deadline = time.monotonic() + 20
        while len({task_id for task_id, *_ in saver.get_tuple(THREAD).pending_writes}) < count:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    return wait


def three_parallel(runs, fail):
    """Two nodes that succeed beside one that fails."""
    builder = StateGraph(Trail)
    builder.add_node("join", step("join", runs))
    for name, act in (("good", None), ("flaky", fail), ("other", None)):
        builder.add_node(name, step(name, runs, act))
        builder.add_edge(START, name)
        builder.add_edge(name, "join")
    return builder


@pytest.mark.parametrize("reopens", [False, True])
def test_a_failed_node_is_retried_without_those_that_succeeded(path, reopens):
    runs = Runs()
    saver = LogSaver(path)
    builder = three_parallel(runs, FailOnce(wait_for_writes(saver, 2)))
    with pytest.raises(RuntimeError, match="the node failed"):
        builder.compile(saver).invoke({"trail": ["start"]}, THREAD)
    if reopens:
        saver.close()
        saver = LogSaver(path)
    with saver:
        graph = builder.compile(saver)
        state = graph.get_state(THREAD)
        assert state.next == ("flaky",)
        tasks = {found.name: found for found in state.tasks}
        assert "the node failed" in str(tasks["flaky"].error)
        assert tasks["good"].result == {"trail": ["good"]}
        assert graph.invoke(None, THREAD) == {"trail": ["start", "flaky", "good", "other", "join"]}
    assert runs.counts() == {"good": 1, "other": 1, "flaky": 2, "join": 1}


async def test_a_failed_node_is_retried_by_ainvoke_without_those_that_succeeded(path):
    runs = Runs()
    async with LogSaver(path) as saver:
        graph = three_parallel(runs, FailOnce(wait_for_writes(saver, 2))).compile(saver)
        with pytest.raises(RuntimeError, match="the node failed"):
            await graph.ainvoke({"trail": ["start"]}, THREAD)
    async with LogSaver(path) as saver:
        failed_before = FailOnce()
        failed_before.failed = True
        graph = three_parallel(runs, failed_before).compile(saver)
        state = await graph.ainvoke(None, THREAD)
    assert state == {"trail": ["start", "flaky", "good", "other", "join"]}
    assert runs.counts() == {"good": 1, "other": 1, "flaky": 2, "join": 1}


# -- fan-out


class Work(TypedDict):
    items: list[int]
    done: Annotated[list[int], operator.add]


def squares(runs, fail=lambda task: None):
    """One task per item; `fail` is called for item 3."""

    def square(task):
        runs.note(f"square {task['item']}")
        if task["item"] == 3:
            fail(task)
        return {"done": [task["item"] ** 2]}

    def send(state):
        return [Send("square", {"item": item}) for item in state["items"]]

    builder = StateGraph(Work)
    builder.add_node("square", square)
    builder.add_node("total", lambda state: {"done": [sum(state["done"])]})
    builder.add_conditional_edges(START, send, ["square"])
    builder.add_edge("square", "total")
    return builder


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_fan_out_that_failed_in_the_middle_runs_only_what_is_missing(path, durability):
    runs = Runs()
    with LogSaver(path) as saver:
        graph = squares(runs, FailOnce(wait_for_writes(saver, 5))).compile(saver)
        with pytest.raises(RuntimeError, match="the node failed"):
            graph.invoke({"items": [1, 2, 3, 4, 5, 6]}, THREAD, durability=durability)
    with LogSaver(path) as saver:
        graph = squares(runs).compile(saver)
        state = graph.get_state(THREAD)
        assert [found.path[1] for found in state.tasks if found.error] == [2]
        state = graph.invoke(None, THREAD, durability=durability)
    assert state["done"] == [1, 4, 9, 16, 25, 36, 91]
    assert runs.counts() == {**{f"square {n}": 1 for n in (1, 2, 4, 5, 6)}, "square 3": 2}


def test_a_fan_out_interrupted_in_the_middle_goes_on_after_reopening(path):
    runs = Runs()
    with LogSaver(path) as saver:
        graph = squares(runs, lambda task: interrupt("go on?")).compile(saver)
        graph.invoke({"items": [1, 2, 3, 4]}, THREAD)
    with LogSaver(path) as saver:
        graph = squares(runs, lambda task: interrupt("go on?")).compile(saver)
        assert [task.path[1] for task in graph.get_state(THREAD).tasks if task.interrupts] == [2]
        state = graph.invoke(Command(resume=True), THREAD)
    assert state["done"] == [1, 4, 9, 16, 30]
    assert runs.counts() == {"square 1": 1, "square 2": 1, "square 3": 2, "square 4": 1}


def test_a_wide_fan_out_keeps_the_order_of_its_tasks(path):
    with LogSaver(path) as saver:
        state = squares(Runs()).compile(saver).invoke({"items": list(range(200))}, THREAD)
    assert state["done"][:200] == [n * n for n in range(200)]
    with LogSaver(path) as saver:
        graph = squares(Runs()).compile(saver)
        before = next(found for found in graph.get_state_history(THREAD) if len(found.next) == 200)
        assert [found.result["done"][0] for found in before.tasks] == state["done"][:200]


# -- the functional API


def story(saver, runs, fail=lambda number: None):
    """Two tasks around a question."""

    @task
    def prepare(number):
        runs.note("prepare")
        return number * 10

    @task
    def finish(number):
        runs.note("finish")
        fail(number)
        return number + 1

    @entrypoint(checkpointer=saver)
    def run(number: int):
        prepared = prepare(number).result()
        answer = interrupt({"prepared": prepared})
        return f"{finish(prepared).result()} {answer}"

    return run


def test_a_workflow_goes_on_after_reopening_without_running_its_tasks_again(path):
    runs = Runs()
    with LogSaver(path) as saver:
        asked = story(saver, runs).invoke(4, THREAD)["__interrupt__"]
        assert [found.value for found in asked] == [{"prepared": 40}]
    with LogSaver(path) as saver:
        assert story(saver, runs).invoke(Command(resume="ok"), THREAD) == "41 ok"
    assert runs.counts() == {"prepare": 1, "finish": 1}


def test_a_workflow_that_failed_keeps_the_results_of_its_tasks(path):
    runs = Runs()
    with LogSaver(path) as saver:
        workflow = story(saver, runs, FailOnce())
        workflow.invoke(4, THREAD)
        with pytest.raises(RuntimeError, match="the node failed"):
            workflow.invoke(Command(resume="ok"), THREAD)
    with LogSaver(path) as saver:
        assert story(saver, runs).invoke(None, THREAD) == "41 ok"
    assert runs.counts() == {"prepare": 1, "finish": 2}


def test_a_workflow_is_given_what_it_saved_before(path):
    given = []
    for number in (1, 2, 3):
        with LogSaver(path) as saver:

            @entrypoint(checkpointer=saver)
            def add(number: int, *, previous: int | None = None):
                return entrypoint.final(value=previous, save=(previous or 0) + number)

            given.append(add.invoke(number, THREAD))
    assert given == [None, 1, 3]


async def test_a_workflow_runs_under_ainvoke_too(path):
    runs = Runs()
    async with LogSaver(path) as saver:
        await story(saver, runs).ainvoke(4, THREAD)
    async with LogSaver(path) as saver:
        assert await story(saver, runs).ainvoke(Command(resume="ok"), THREAD) == "41 ok"
    assert runs.counts() == {"prepare": 1, "finish": 1}
