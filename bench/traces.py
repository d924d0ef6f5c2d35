"""The recorded runs: real graphs, scripted nodes, fixed seeds."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send

from bench.recording import Recorder, Trace

REPORT = """the agent reads a page of the report and finds that three of seven figures differ from
last week so it asks for the source table compares each row and writes down what changed with a
short reason before going on to the next open question in the list"""
WORDS = REPORT.split()

Run = Callable[[Recorder], None]


def text(rng: random.Random, size: int) -> str:
    """`size` characters of words."""
    return " ".join(rng.choices(WORDS, k=size))[:size]


def on_thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


# -- small: many short threads


class Notes(TypedDict):
    question: str
    notes: Annotated[list[str], operator.add]


def three_steps() -> StateGraph:
    """plan, work, answer; a few dozen bytes each."""

    def node(name: str) -> Callable[[Notes], dict[str, Any]]:
        return lambda state: {"notes": [f"{name}: {state['question']}"]}

    builder = StateGraph(Notes)
    builder.add_sequence([(name, node(name)) for name in ("plan", "work", "answer")])
    builder.add_edge(START, "plan")
    return builder


def small(recorder: Recorder, threads: int = 200) -> None:
    rng = random.Random(1)
    graph = three_steps().compile(recorder)
    for number in range(threads):
        graph.invoke({"question": text(rng, 40), "notes": []}, on_thread(f"thread-{number:05}"))


# -- chat: human, model with a tool call, tool, model


def tool_chat(rng: random.Random) -> StateGraph:
    def usage() -> dict[str, Any]:
        spent = {"input_tokens": rng.randint(300, 9000), "output_tokens": rng.randint(20, 200)}
        return {**spent, "total_tokens": sum(spent.values())}

    def call_id() -> str:
        return f"call_{rng.getrandbits(96):024x}"

    def reply(content: str, **extra: Any) -> dict[str, Any]:
        return {
            "messages": [
                AIMessage(
                    content,
                    response_metadata={"model_name": "scripted-1", "finish_reason": "stop"},
                    usage_metadata=usage(),
                    **extra,
                )
            ]
        }

    def model(state: MessagesState) -> dict[str, Any]:
        if isinstance(state["messages"][-1], ToolMessage):
            return reply(text(rng, 420))
        arguments = {"query": text(rng, 40), "limit": 5}
        return reply("", tool_calls=[{"name": "search", "args": arguments, "id": call_id()}])

    def tools(state: MessagesState) -> dict[str, Any]:
        call = state["messages"][-1].tool_calls[0]
        found = text(rng, 370)
        return {"messages": [ToolMessage(found, name="search", tool_call_id=call["id"])]}

    def after_model(state: MessagesState) -> str:
        return "tools" if state["messages"][-1].tool_calls else END

    builder = StateGraph(MessagesState)
    builder.add_node(model)
    builder.add_node(tools)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", after_model, ["tools", END])
    builder.add_edge("tools", "model")
    return builder


def chat(recorder: Recorder, turns: int = 100) -> None:
    rng = random.Random(2)
    graph = tool_chat(rng).compile(recorder)
    for _ in range(turns):
        graph.invoke({"messages": [HumanMessage(text(rng, 120))]}, on_thread("chat"))


# -- document: a large value that never changes beside a small one that does


class Review(TypedDict):
    document: str
    page: int
    remark: str


def document(recorder: Recorder, steps: int = 100, size: int = 1_000_000) -> None:
    rng = random.Random(3)

    def read_page(state: Review) -> dict[str, Any]:
        return {"page": state["page"] + 1, "remark": text(rng, 80)}

    builder = StateGraph(Review)
    builder.add_node(read_page)
    builder.add_edge(START, "read_page")
    builder.add_conditional_edges(
        "read_page", lambda state: "read_page" if state["page"] < steps else END
    )
    start = {"document": text(rng, size), "page": 0, "remark": ""}
    config = {**on_thread("document"), "recursion_limit": steps + 10}
    builder.compile(recorder).invoke(start, config)


# -- fanout: one step of many tasks


class Research(TypedDict):
    findings: Annotated[list[str], operator.add]


def fanout(recorder: Recorder, width: int = 50, rounds: int = 4) -> None:
    rng = random.Random(4)
    answers = [text(rng, 200) for _ in range(width)]

    def search(task: dict[str, int]) -> dict[str, Any]:
        return {"findings": [answers[task["number"]]]}

    builder = StateGraph(Research)
    builder.add_node(search)
    tasks = [Send("search", {"number": number}) for number in range(width)]
    builder.add_conditional_edges(START, lambda state: tasks)  # noqa: ARG005
    graph = builder.compile(recorder)
    for _ in range(rounds):
        graph.invoke({"findings": ["start"]}, on_thread("fanout"))


# -- delta: a channel that is stored as its writes


def extend(lines: list[str], writes: list[list[str]]) -> list[str]:
    return [*lines, *(line for write in writes for line in write)]


def delta(recorder: Recorder, turns: int = 50, snapshot_frequency: int = 50) -> None:
    rng = random.Random(5)
    channel = DeltaChannel(extend, snapshot_frequency=snapshot_frequency)
    builder = StateGraph(TypedDict("Journal", {"lines": Annotated[list[str], channel]}))
    builder.add_sequence(
        [(name, lambda state: {"lines": [text(rng, 200)]}) for name in ("observe", "conclude")]  # noqa: ARG005
    )
    builder.add_edge(START, "observe")
    graph = builder.compile(recorder)
    for _ in range(turns):
        graph.invoke({"lines": [text(rng, 80)]}, on_thread("delta"))


# -- subgraphs: namespaces below namespaces


class Answers(TypedDict):
    question: str
    answers: Annotated[list[str], operator.add]


def subgraphs(recorder: Recorder, turns: int = 20) -> None:
    """One subgraph that starts anew in every call, and one that remembers."""
    rng = random.Random(6)

    def asking(inner: Any) -> Callable[[Answers], dict[str, Any]]:
        # Called from a node: a shared list would be added to itself in every turn.
        def node(state: Answers) -> dict[str, Any]:
            notes = inner.invoke({"question": state["question"], "notes": []})["notes"]
            return {"answers": notes[-1:]}

        return node

    builder = StateGraph(Answers)
    builder.add_node("forgetful", asking(three_steps().compile()))
    builder.add_node("mindful", asking(three_steps().compile(checkpointer=True)))
    builder.add_edge(START, "forgetful")
    builder.add_edge("forgetful", "mindful")
    graph = builder.compile(recorder)
    for _ in range(turns):
        graph.invoke({"question": text(rng, 40), "answers": []}, on_thread("subgraphs"))


RUNS: dict[str, Run] = {
    run.__name__: run for run in (small, chat, document, fanout, delta, subgraphs)
}


def record(name: str, run: Run) -> Trace:
    random.seed(name)  # the random part of channel versions
    recorder = Recorder()
    run(recorder)
    return Trace(name, recorder.calls)


@cache
def trace(name: str) -> Trace:
    """The recorded run of that name, made on first use."""
    return record(name, RUNS[name])


@cache
def few_threads() -> Trace:
    """The small trace, short enough to wait for a sync in every call."""
    return record("small", lambda recorder: small(recorder, threads=30))


@cache
def deep_delta() -> Trace:
    """A thousand ancestors and no snapshot to stop at: 4 checkpoints a turn."""
    return record("delta 1,000", lambda recorder: delta(recorder, 251, snapshot_frequency=10**6))


@cache
def long_chat() -> Trace:
    """The chat with 1,000 turns, for how the file grows."""
    return record("chat 1,000", lambda recorder: chat(recorder, turns=1000))
