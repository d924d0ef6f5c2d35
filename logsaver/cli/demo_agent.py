"""The agent of `logsaver demo`: a real LangGraph graph whose model follows a script.

Each act runs in a process of its own, `python -m logsaver.cli.demo_agent PATH ACT CONFIG`, and
reports what it does as JSON lines on stdout. Every message says which process made it, so the
log itself shows what was done again after a crash and what was not.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt

from logsaver import LogSaver

QUESTION: Final = "The lamp in my order 1042 arrived broken. Can you sort it out?"
POLICY: Final = "Damaged goods are replaced from stock or refunded in full. " * 350
PATIENCE: Final = 15.0  # seconds until something must be wrong


class SupportState(MessagesState):
    """The conversation, and a document that the agent carries along and never changes."""

    policy: str


def report(what: str, name: str) -> None:
    """Tell the demo what just happened in this process."""
    sys.stdout.write(json.dumps({"pid": os.getpid(), "what": what, "name": name}) + "\n")
    sys.stdout.flush()


class ScriptedModel(BaseChatModel):
    """Answers by what the conversation holds so far, as a model would, but always the same."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - LangChain's signature
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 - the same
        **_: Any,
    ) -> ChatResult:
        reply = _reply(messages)
        reply.response_metadata = {"pid": os.getpid()}
        report("done", "model")
        return ChatResult(generations=[ChatGeneration(message=reply)])


def _reply(messages: Sequence[BaseMessage]) -> AIMessage:
    answered = {message.name for message in messages if isinstance(message, ToolMessage)}
    if not answered:
        return _calls(("look_up_order", {"order": "1042"}), ("check_stock", {"item": "lamp"}))
    if "refund" not in answered:
        return _calls(("refund", {"amount": "49.90"}))
    if str(messages[-1].content).startswith("refunded"):
        return AIMessage("You get your 49.90 back.")
    return AIMessage("We send you a new lamp today.")


def _calls(*calls: tuple[str, dict[str, str]]) -> AIMessage:
    return AIMessage(
        "", tool_calls=[{"name": name, "args": args, "id": f"call-{name}"} for name, args in calls]
    )


def make_tools(in_the_warehouse: Callable[[], None]) -> list[BaseTool]:
    """The agent's tools. An artifact is what LangChain keeps and does not show to the model."""

    @tool(response_format="content_and_artifact")
    def look_up_order(order: str) -> tuple[str, dict[str, int]]:
        """Find an order."""
        report("done", "look_up_order")
        return f"order {order}: one lamp, 49.90, paid", {"pid": os.getpid()}

    @tool(response_format="content_and_artifact")
    def check_stock(item: str) -> tuple[str, dict[str, int]]:
        """Ask the warehouse."""
        report("started", "check_stock")
        in_the_warehouse()
        report("done", "check_stock")
        return f"{item}: 3 in stock", {"pid": os.getpid()}

    @tool(response_format="content_and_artifact")
    def refund(amount: str) -> tuple[str, dict[str, int]]:
        """Pay money back, if a human says so."""
        answer = interrupt(f"Refund {amount}?")
        report("done", "refund")
        content = f"refunded {amount}" if answer == "yes" else f"no refund, the human said {answer}"
        return content, {"pid": os.getpid()}

    return [look_up_order, check_stock, refund]


def nothing_special() -> None:
    """What happens in the warehouse on most days."""


def build_graph(
    saver: LogSaver, in_the_warehouse: Callable[[], None] = nothing_special
) -> CompiledStateGraph[Any, Any]:
    """Model, tools and back, one task per tool call."""
    model = ScriptedModel()

    def call_model(state: SupportState) -> dict[str, list[BaseMessage]]:
        return {"messages": [model.invoke(state["messages"])]}

    def next_step(state: SupportState) -> list[Send] | str:
        last = state["messages"][-1]
        calls = last.tool_calls if isinstance(last, AIMessage) else []
        return [Send("tools", [call]) for call in calls] or END

    builder = StateGraph(SupportState)
    builder.add_node("model", call_model)
    builder.add_node("tools", ToolNode(make_tools(in_the_warehouse)))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", next_step, ["tools", END])
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


# -- the acts


def start(saver: LogSaver, config: RunnableConfig) -> None:
    """Begin, and die by `kill -9` when one of two tools has finished and the other has not."""

    def die() -> None:
        with LogSaver(saver.path, read_only=True) as log:
            deadline = time.monotonic() + PATIENCE
            while not _has_a_tool_result(log, config):
                if time.monotonic() > deadline:
                    raise TimeoutError("the first tool's result did not get into the log")
                time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    question = {"messages": [HumanMessage(QUESTION)], "policy": POLICY}
    build_graph(saver, in_the_warehouse=die).invoke(question, config)


def _has_a_tool_result(log: LogSaver, config: RunnableConfig) -> bool:
    """Whether a tool's result is stored beside the latest checkpoint, its step unfinished."""
    latest = log.get_tuple(config)
    return latest is not None and any(
        isinstance(message, ToolMessage)
        for _, channel, messages in latest.pending_writes or ()
        if channel == "messages"
        for message in messages
    )


def resume(saver: LogSaver, config: RunnableConfig) -> None:
    """Go on where the log ends, up to the question for the human."""
    graph = build_graph(saver)
    graph.invoke(None, config)
    _report_question(graph, config)


def approve(saver: LogSaver, config: RunnableConfig) -> None:
    """The human says yes."""
    _answer(build_graph(saver), config, "yes")


def fork(saver: LogSaver, config: RunnableConfig) -> None:
    """Go back to the checkpoint that asked the human, and say no this time."""
    graph = build_graph(saver)
    asked = next(state for state in graph.get_state_history(config) if state.interrupts)
    graph.invoke(None, {**config, **asked.config})
    _report_question(graph, config)
    _answer(graph, config, "no")


def _report_question(graph: CompiledStateGraph[Any, Any], config: RunnableConfig) -> None:
    for question in graph.get_state(config).interrupts:
        report("asked", str(question.value))


def _answer(graph: CompiledStateGraph[Any, Any], config: RunnableConfig, answer: str) -> None:
    result = graph.invoke(Command(resume=answer), config)
    report("answered", str(result["messages"][-1].content))


ACTS: Final[dict[str, Callable[[LogSaver, RunnableConfig], None]]] = {
    "start": start,
    "resume": resume,
    "approve": approve,
    "fork": fork,
}


def main(path: str, act: str, config: str) -> None:
    """Play one act on the log."""
    with LogSaver(path) as saver:
        ACTS[act](saver, json.loads(config))


if __name__ == "__main__":
    main(*sys.argv[1:])
