"""`logsaver history`: a thread's checkpoints as a tree, and what each was about to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.console import Console

from logsaver.cli.opening import StopError, open_log
from logsaver.cli.options import AsJson, KeyFile, Log, Thread
from logsaver.cli.output import console, count, one_line, print_columns, print_json, size
from logsaver.cli.text import plain, summary
from logsaver.cli.view import View, config_of, short_ids, step_told, views


@dataclass(frozen=True)
class Row:
    """What is told of one checkpoint; its values are let go."""

    checkpoint_id: str
    parent_id: str | None
    checkpoint_ns: str
    step: Any
    source: str
    bytes: int
    next: list[str]
    finished_tasks: int
    interrupts: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def history(
    log: Log,
    thread: Thread,
    ns: Annotated[
        str | None, typer.Option(help="Only this namespace; the root graph's is ''.")
    ] = None,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Show the checkpoints of a thread as a tree, oldest first.

    A fork is indented; the branch with the newest checkpoint goes straight on.
    """
    with open_log(log, key_file) as saver:
        rows = [row_of(view) for view in views(saver, config_of(thread, ns))]
        if not rows:
            raise StopError(f"there is no checkpoint of thread {thread!r} in {log}")
    if as_json:
        print_json([plain(vars(row)) for row in rows])
        return
    out = console()
    for name in dict.fromkeys(row.checkpoint_ns for row in rows):
        _print_tree(out, name, [row for row in rows if row.checkpoint_ns == name])
    total = sum(row.bytes for row in rows)
    out.print(f"{count(len(rows), 'checkpoint')}, {size(total)}", style="dim")


def row_of(view: View) -> Row:
    found = view.stored
    return Row(
        found.checkpoint_id,
        found.parent_id,
        found.checkpoint_ns,
        view.step,
        view.source,
        found.bytes,
        view.next_nodes,
        len(view.finished_tasks),
        [question._asdict() for question in view.interrupts],
        view.errors,
    )


def _print_tree(out: Console, ns: str, rows: Sequence[Row]) -> None:
    if ns:
        out.print(f"\nsubgraph {one_line(ns)}", style="bold", markup=False)
    by_id = {row.checkpoint_id: row for row in rows}
    names = short_ids(by_id)
    table = [
        (
            mark + names[name],
            step_told(by_id[name].step),
            by_id[name].source,
            size(by_id[name].bytes),
            what_next(by_id[name]),
        )
        for mark, name in tree({row.checkpoint_id: row.parent_id for row in rows})
    ]
    headings = ("checkpoint", "step", "source", "size", "next")
    print_columns(out, headings, table, right=(1, 3), flexible=4)


def what_next(row: Row) -> str:
    """The nodes that are due, how far they got, and what they wait for."""
    nodes = Counter(row.next)
    told = ", ".join(name if n == 1 else f"{name} x{n}" for name, n in nodes.items())
    parts = [f"→ {told}"] if told else []
    due = sum(nodes.values())
    if 0 < row.finished_tasks < due:
        parts.append(f"({row.finished_tasks} of {due} done)")
    for question in row.interrupts:
        answered = " (answered)" if question["answered"] else ""
        parts.append(f"asks: {summary(question['value'])}{answered}")
    parts += [f"failed: {summary(error)}" for error in row.errors]
    return " ".join(parts) or "end"


# -- the tree


def tree(parents: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Ids with what is drawn before them; parents first, every id once."""
    children: dict[str | None, list[str]] = {}
    for name in sorted(parents):
        parent = parents[name]
        children.setdefault(parent if parent in parents else None, []).append(name)
    newest = _newest_descendants(parents)
    seen: set[str] = set()
    # Ids whose parents go round in a circle have no root; they come last, in order.
    for root in [*children.get(None, ()), *sorted(parents)]:
        pending = [("", "", root)]
        while pending:
            lead, turn, name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            yield f"{lead}{turn}● ", name
            lead += "│ " if turn else ""
            # The straight one is put first, so that it comes last.
            *branches, straight = sorted(children.get(name, ()), key=newest.__getitem__) or [""]
            if straight:
                pending.append((lead, "", straight))
            pending += [(lead, "├─", branch) for branch in reversed(branches)]


def _newest_descendants(parents: Mapping[str, str | None]) -> dict[str, str]:
    newest: dict[str, str] = {}
    for name in sorted(parents, reverse=True):
        ancestor: str | None = name
        while ancestor is not None and ancestor in parents and ancestor not in newest:
            newest[ancestor] = name
            ancestor = parents[ancestor]
    return newest
