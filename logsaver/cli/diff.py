"""`logsaver diff`: what changed between two checkpoints."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer
from rich.pretty import pretty_repr

from logsaver import StoredValue
from logsaver.cli.opening import open_log
from logsaver.cli.options import AsJson, KeyFile, Log, Thread
from logsaver.cli.output import console, one_line, print_json
from logsaver.cli.text import (
    UNFOLDED_WIDTH,
    Line,
    is_conversation,
    message_lines,
    plain,
    print_lines,
    readable,
    text_width,
)
from logsaver.cli.view import find_view

MOST_LINES: Final = 40
ADDED: Final = "green"
REMOVED: Final = "red"


def diff(
    log: Log,
    thread: Thread,
    a: Annotated[str, typer.Argument(metavar="A", help="A checkpoint, or 'latest'.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    ns: Annotated[str, typer.Option(help="The namespace of a subgraph.")] = "",
    full: Annotated[bool, typer.Option("--full", help="Fold nothing.")] = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Show what changed in the state from checkpoint A to checkpoint B."""
    with open_log(log, key_file) as saver:
        one, other = (find_view(saver, thread, ns, wanted) for wanted in (a, b))
        before, after = one.state, other.state
    changed = {
        name: kind
        for name in dict.fromkeys((*before, *after))
        if (kind := _kind(name, one.stored.channels, other.stored.channels))
        and not _equal(before.get(name), after.get(name), kind)
    }
    if as_json:
        print_json(
            {
                "from": one.id,
                "to": other.id,
                "changes": {
                    name: {
                        "change": kind,
                        **({"before": plain(before[name])} if name in before else {}),
                        **({"after": plain(after[name])} if name in after else {}),
                    }
                    for name, kind in changed.items()
                },
            }
        )
        return
    out = console()
    out.print(f"{one.id} -> {other.id}", style="bold", markup=False)
    if not changed:
        out.print("no difference in the state")
    for name, kind in changed.items():
        out.print(f"\n{one_line(name)}  ({kind})", style="bold", markup=False)
        width = text_width(out)
        if kind != "changed":
            style, value = (ADDED, after[name]) if kind == "added" else (REMOVED, before[name])
            sign = "+ " if kind == "added" else "- "
            lines = readable(value, width and width - 2, full=full)
            print_lines(out, (Line(sign + line.text, style) for line in lines))
        else:
            print_lines(out, _folded(_changes(before[name], after[name], width), full=full))


def _kind(
    name: str, before: Mapping[str, StoredValue], after: Mapping[str, StoredValue]
) -> str | None:
    if name not in before:
        return "added"
    if name not in after:
        return "removed"
    return None if before[name] == after[name] else "changed"


def _equal(before: Any, after: Any, kind: str) -> bool:
    """Whether bytes that differ mean the same: an encrypted value never has the same bytes."""
    try:
        return kind == "changed" and bool(before == after)
    except Exception:  # noqa: BLE001 - an array, for one, does not say yes or no
        return False


def _changes(before: Any, after: Any, width: int | None) -> Iterator[Line]:
    if is_conversation(after) and (is_conversation(before) or before == []):
        yield from _changed_messages(before, after, width)
        return
    for line in difflib.unified_diff(_text_of(before), _text_of(after), lineterm="", n=1):
        if not line.startswith(("---", "+++", "@@")):
            style = {"+": ADDED, "-": REMOVED}.get(line[0], "dim")
            yield from (
                Line(line[0] + " " + part.text, style)
                for part in readable(line[1:], width and width - 2, full=False)
            )


def _text_of(value: Any) -> list[str]:
    return (
        value if isinstance(value, str) else pretty_repr(value, max_width=UNFOLDED_WIDTH)
    ).splitlines()


def _changed_messages(before: Any, after: Any, width: int | None) -> Iterator[Line]:
    """Messages that went, came or changed, in order; the others are counted."""
    keys, other_keys = ([repr(message) for message in messages] for messages in (before, after))
    compared = difflib.SequenceMatcher(None, keys, other_keys, autojunk=False)
    for what, i1, i2, j1, j2 in compared.get_opcodes():
        if what == "equal":
            yield Line(f"  {i2 - i1} unchanged", "dim")
            continue
        for sign, style, messages in (
            ("- ", REMOVED, before[i1:i2]),
            ("+ ", ADDED, after[j1:j2]),
        ):
            for message in messages:
                for line in message_lines(message, width and width - 2, full=False):
                    yield Line(sign + line.text, style)


def _folded(lines: Iterator[Line], *, full: bool) -> Iterator[Line]:
    everything = list(lines)
    most = len(everything) if full else MOST_LINES
    yield from everything[:most]
    if len(everything) > most:
        yield Line(f"… {len(everything) - most:,} more lines; --full shows all", "dim")
