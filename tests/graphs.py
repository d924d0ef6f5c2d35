"""Small graphs that several test files run, and a way to compare what two savers kept of them.

Child processes import this module too: what one process starts, another continues.
"""

from __future__ import annotations

import operator
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import BaseMessage
from langgraph.graph import StateGraph
from langgraph.types import Interrupt, interrupt
from support import run_python

THREAD = {"configurable": {"thread_id": "t"}}

_TASK_ID = re.compile(r":[0-9a-f-]{36}")


def run_with_graphs(code: str, *args: str, **env: str):
    """Run code in a new interpreter that can import this module."""
    places = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return run_python(code, *args, PYTHONPATH=os.pathsep.join(filter(None, places)), **env)


class Trail(TypedDict):
    """Which nodes a run went through."""

    trail: Annotated[list[str], operator.add]


class Runs:
    """Counts how often each node really ran."""

    def __init__(self) -> None:
        self._names: list[str] = []  # append is atomic, Counter's += is not

    def note(self, name: str) -> None:
        self._names.append(name)

    def counts(self) -> dict[str, int]:
        return dict(Counter(self._names))


def step(name: str, runs: Runs | None = None, act: Callable[[Any], Any] | None = None):
    """A node that leaves its name in the trail; `act` may raise, wait or interrupt before."""

    def node(state: Any) -> dict[str, list[str]]:
        if runs is not None:
            runs.note(name)
        said = act(state) if act is not None else None
        return {"trail": [name if said is None else f"{name}:{said}"]}

    node.__name__ = name
    return node


def chain(*nodes: Any, state: type = Trail) -> StateGraph:
    """A builder with these nodes one after the other."""
    builder = StateGraph(state)
    builder.add_sequence(nodes)
    builder.set_entry_point(nodes[0].__name__)
    return builder


def ask(question: str) -> Callable[[Any], Any]:
    """An act that interrupts the run and says the answer."""
    return lambda state: interrupt(question)


def approval(runs: Runs | None = None) -> StateGraph:
    """draft, then a question to a human, then publish."""
    return chain(step("draft", runs), step("review", runs, ask("good?")), step("publish", runs))


class FailOnce:
    """An act that raises the first time, after `wait_for` returned."""

    def __init__(self, wait_for: Callable[[], None] = lambda: None) -> None:
        self.failed = False
        self._wait_for = wait_for

    def __call__(self, state: Any) -> None:
        if not self.failed:
            self._wait_for()
            self.failed = True
            raise RuntimeError("the node failed")


# -- comparing


def tell_history(graph: Any, config: dict[str, Any]) -> list[dict[str, Any]]:
    """A thread's history, oldest first, without ids and times."""
    return tell(list(graph.get_state_history(config)))


def tell(newest_first: Iterable[Any]) -> list[dict[str, Any]]:
    snapshots = list(newest_first)[::-1]
    numbers = {_id(found.config): number for number, found in enumerate(snapshots)}
    return [{**tell_state(found), "parent": _parent(found, numbers)} for found in snapshots]


def tell_state(snapshot: Any) -> dict[str, Any]:
    """A state snapshot, and those of its subgraphs, without ids and times."""
    return {
        "values": plain(snapshot.values),
        "next": snapshot.next,
        "metadata": _tell_metadata(snapshot.metadata, {}),
        "interrupts": plain(snapshot.interrupts),
        "tasks": [
            {
                "name": task.name,
                "path": plain(task.path),
                "error": repr(task.error),
                "interrupts": plain(task.interrupts),
                "result": plain(task.result),
                "state": _tell_task_state(task.state),
            }
            for task in snapshot.tasks
        ],
    }


def tell_log(saver: Any, config: dict[str, Any]) -> list[dict[str, Any]]:
    """What a saver has of a thread, all namespaces, oldest first, without ids and times."""
    found = sorted(saver.list(config), key=lambda item: _id(item.config))
    numbers = {_id(item.config): number for number, item in enumerate(found)}
    return [
        {
            "ns": _without_task_ids(item.config["configurable"]["checkpoint_ns"]),
            "parent": _parent(item, numbers),
            "metadata": _tell_metadata(item.metadata, numbers),
            "channels": plain(item.checkpoint["channel_values"]),
            "versions": {
                channel: int(str(version).split(".")[0])
                for channel, version in item.checkpoint["channel_versions"].items()
            },
            "writes": [(channel, plain(value)) for _, channel, value in item.pending_writes],
        }
        for item in found
    ]


def plain(value: Any) -> Any:
    """A value without the ids that LangGraph makes up anew in every run."""
    if isinstance(value, Interrupt):
        return "interrupt", plain(value.value)
    if isinstance(value, BaseMessage):
        return value.type, value.content, plain(getattr(value, "tool_calls", None))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(item) for item in value)
    return _without_task_ids(value) if isinstance(value, str) else value


def _tell_metadata(metadata: Any, numbers: dict[str, int]) -> dict[str, Any]:
    parents = {
        _without_task_ids(ns): numbers.get(checkpoint_id)
        for ns, checkpoint_id in metadata.get("parents", {}).items()
    }
    told = {key: plain(value) for key, value in metadata.items() if key != "run_id"}
    return {**told, "parents": parents}


def _tell_task_state(state: Any) -> Any:
    if state is None:
        return None
    if isinstance(state, dict):  # the config of a subgraph that was not asked for
        return _without_task_ids(state["configurable"]["checkpoint_ns"])
    return tell_state(state)


def _parent(item: Any, numbers: dict[str, int]) -> int | None:
    return numbers[_id(item.parent_config)] if item.parent_config else None


def _id(config: dict[str, Any]) -> str:
    return config["configurable"]["checkpoint_id"]


def _without_task_ids(ns: str) -> str:
    return _TASK_ID.sub("", ns)
