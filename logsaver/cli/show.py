"""`logsaver show`: the state at a checkpoint as readable text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from logsaver import LogSaver
from logsaver.cli.history import row_of, what_next
from logsaver.cli.opening import StopError, open_log
from logsaver.cli.options import AsJson, KeyFile, Log, Thread
from logsaver.cli.output import console, moment, one_line, print_json, size
from logsaver.cli.text import is_conversation, plain, print_lines, readable, text_width
from logsaver.cli.view import LATEST, View, config_of, find_view, is_internal, step_told


def show(
    log: Log,
    thread: Thread,
    at: Annotated[
        str, typer.Option(metavar="ID", help="A checkpoint: its id, or how it begins.")
    ] = LATEST,
    channel: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this channel.", show_default=False)
    ] = None,
    ns: Annotated[str, typer.Option(help="The namespace of a subgraph.")] = "",
    full: Annotated[bool, typer.Option("--full", help="Fold nothing.")] = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Show the state of a thread: messages as a conversation, long values folded."""
    with open_log(log, key_file) as saver:
        view = find_view(saver, thread, ns, at)
        values = {**view.state, **_delta_values(saver, view)}
        if channel is not None:
            everything = {**view.values, **values}
            if channel not in everything:
                there = ", ".join(sorted(everything)) or "none"
                raise StopError(f"checkpoint {view.id} has no channel {channel!r}; it has: {there}")
            values = {channel: everything[channel]}
    if as_json:
        print_json(_as_json(view, values))
        return
    out = console()
    if channel is None:
        _print_head(out, view)
    _print_values(out, view, values, full=full)


def _delta_values(saver: LogSaver, view: View) -> dict[str, Any]:
    """Of channels without a value of their own, what a graph would rebuild it from.

    LangGraph's DeltaChannel stores only writes. Which reducer joins them is known to the graph
    alone; for messages, one after the other is what people want to see.
    """
    versions = view.body.get("channel_versions") or {}
    names = [name for name in versions if name not in view.values and not is_internal(name)]
    found = view.stored
    config = config_of(found.thread_id, found.checkpoint_ns, found.checkpoint_id)
    rebuilt = {}
    for name in names:
        try:
            past = saver.get_delta_channel_history(config=config, channels=[name])[name]
        except Exception:  # noqa: BLE001, S112 - it is only an extra, and its writes are in history
            continue
        if not past["writes"]:
            continue
        seed = past.get("seed")
        seed = getattr(seed, "value", seed)
        joined = list(seed) if isinstance(seed, (list, tuple)) else [] if seed is None else [seed]
        for _, _, value in past["writes"]:
            joined += value if isinstance(value, list) else [value]
        rebuilt[name] = joined
    return rebuilt


def _as_json(view: View, values: Mapping[str, Any]) -> dict[str, Any]:
    found = view.stored
    return {
        "thread_id": found.thread_id,
        "checkpoint_ns": found.checkpoint_ns,
        "checkpoint_id": found.checkpoint_id,
        "parent_id": found.parent_id,
        "created_at": view.body.get("ts"),
        "next": view.next_nodes,
        "interrupts": plain(row_of(view).interrupts),
        "errors": view.errors,
        "metadata": plain(view.metadata),
        "values": plain(values),
    }


def _print_head(out: Console, view: View) -> None:
    found = view.stored
    out.print(f"{one_line(found.thread_id)}  {found.checkpoint_id}", style="bold", markup=False)
    facts = {
        "when": moment(view.time) if view.time else "?",
        "step": f"{step_told(view.step)}, {view.source}",
        "next": what_next(row_of(view)),
    }
    for name, fact in facts.items():
        out.print(f"{name:6}{fact}", markup=False, style="dim" if name == "when" else "")


def _print_values(out: Console, view: View, values: Mapping[str, Any], *, full: bool) -> None:
    for name, value in values.items():
        stored = view.stored.channels.get(name)
        notes = [size(len(stored.data)) if stored else "rebuilt from writes"]
        if is_conversation(value):
            notes.insert(0, f"{len(value)} messages")
        out.print()
        out.print(f"{one_line(name)}  ({', '.join(notes)})", style="bold", markup=False)
        print_lines(out, readable(value, text_width(out), full=full))
