"""Values as text that people can read, and as JSON that programs can."""

from __future__ import annotations

import base64
import math
import textwrap
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from langchain_core.messages import BaseMessage
from rich.cells import cell_len
from rich.console import Console
from rich.pretty import pretty_repr
from rich.text import Text

from logsaver.cli.output import one_line, width_of
from logsaver.cli.view import Raw

FOLDED_LINES: Final = 8
FOLDED_TEXT: Final = 600  # characters
FOLDED_ITEMS: Final = 20
UNFOLDED_WIDTH: Final = 100
INDENT: Final = "  "
STYLES: Final = {"human": "green", "ai": "cyan", "tool": "yellow", "system": "magenta"}


class Line(NamedTuple):
    """A line and how it looks on a terminal."""

    text: str
    style: str = ""


def print_lines(out: Console, lines: Iterator[Line], indent: str = INDENT) -> None:
    for line in lines:
        out.print(Text(indent + line.text, style=line.style), soft_wrap=True)


def text_width(out: Console) -> int | None:
    """Columns for text that is indented once; None in a pipe, where nothing is wrapped."""
    width = width_of(out)
    return None if width is None else max(20, width - len(INDENT))


def is_conversation(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and bool(value)
        and all(isinstance(item, BaseMessage) for item in value)
    )


def readable(value: Any, width: int | None, *, full: bool) -> Iterator[Line]:
    """A value, line by line; long ones folded unless `full`."""
    if isinstance(value, Raw):
        yield from (Line(text, "red") for text in _wrapped(str(value), width))
    elif is_conversation(value):
        shown = value if full else value[-FOLDED_ITEMS:]
        if len(shown) < len(value):
            yield Line(f"… {len(value) - len(shown):,} earlier messages; --full shows all", "dim")
        for message in shown:
            yield from message_lines(message, width, full=full)
    elif isinstance(value, str):
        yield from folded_text(value, width, full=full)
    else:
        yield from _folded_object(value, width, full=full)


def message_lines(message: BaseMessage, width: int | None, *, full: bool) -> Iterator[Line]:
    """Who says what, and which tools are called."""
    style = STYLES.get(message.type, "")
    indent = " " * max(8, len(message.type) + 2)
    room = None if width is None else max(20, width - len(indent))
    said = f"{message.name}: {_content(message)}" if message.name else _content(message)
    lines = list(folded_text(said, room, full=full)) if said else []
    for call in getattr(message, "tool_calls", None) or ():
        arguments = ", ".join(f"{name}={value!r}" for name, value in call["args"].items())
        lines += folded_text(f"→ {call['name']}({arguments})", room, full=full)
    lead = message.type.ljust(len(indent))
    for line in lines or [Line("(empty)", "dim")]:
        yield Line(lead + line.text, line.style or style)
        lead = indent


def _content(message: BaseMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    parts = [
        part if isinstance(part, str) else str(part.get("text") or f"[{part.get('type', 'part')}]")
        for part in message.content
    ]
    return "\n".join(parts)


def folded_text(text: str, width: int | None, *, full: bool) -> Iterator[Line]:
    rest = 0
    if not full and len(text) > FOLDED_TEXT:
        rest = len(text) - FOLDED_TEXT
        text = text[:FOLDED_TEXT]
    lines = [line for part in text.splitlines() or [""] for line in _wrapped(part, width)]
    if not full and len(lines) > FOLDED_LINES:
        rest += sum(len(line) + 1 for line in lines[FOLDED_LINES:])
        del lines[FOLDED_LINES:]
    yield from map(Line, lines)
    if rest:
        yield Line(f"… {rest:,} more characters; --full shows all", "dim")


def _folded_object(value: Any, width: int | None, *, full: bool) -> Iterator[Line]:
    limits: dict[str, Any] = {} if full else {"max_length": FOLDED_ITEMS, "max_string": FOLDED_TEXT}
    lines = pretty_repr(value, max_width=width or UNFOLDED_WIDTH, **limits).splitlines()
    most = len(lines) if full else FOLDED_ITEMS
    for line in lines[:most]:
        yield from map(Line, _wrapped(line, width))
    if len(lines) > most:
        yield Line(f"… {len(lines) - most:,} more lines; --full shows all", "dim")


def _wrapped(text: str, width: int | None) -> list[str]:
    # A terminal must not obey what somebody's state says.
    safe = "".join(letter if letter.isprintable() else "·" for letter in text.expandtabs(4))
    if width is None or cell_len(safe) <= width:
        return [safe]
    if not safe.isascii():  # some letters are two columns wide
        return [line.plain for line in Text(safe).wrap(Console(width=width), width)]
    return textwrap.wrap(safe, width, drop_whitespace=True, replace_whitespace=False) or [""]


def summary(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, BaseMessage):
        return one_line(f"{value.type}: {_content(value)}")
    return one_line(value if isinstance(value, str) else str(value))


def plain(value: Any) -> Any:
    """The value as JSON has it; what JSON does not know becomes text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no infinity
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return [plain(item) for item in value]
    return _plain_object(value)


def _plain_object(value: Any) -> Any:
    if isinstance(value, Raw):
        kind, data = value.value.type, value.value.data
        return {"undecodable": value.reason, "type": kind, **_plain_bytes(data)}
    if isinstance(value, (bytes, bytearray)):
        return _plain_bytes(value)
    if isinstance(value, BaseMessage):
        dumped = value.model_dump()
        return {name: plain(item) for name, item in dumped.items() if item not in ({}, [], None)}
    # By name: these are LangGraph's, and looking into a log needs no LangGraph.
    fields = {"Send": ("node", "arg"), "Interrupt": ("value", "id")}.get(type(value).__name__, ())
    if fields and all(hasattr(value, name) for name in fields):
        return {name: plain(getattr(value, name)) for name in fields}
    return str(value)


def _plain_bytes(data: bytes | bytearray) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}
