"""How things are printed: tables, sizes, times, bars, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

GAP: Final = "  "
UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def console(*, stderr: bool = False) -> Console:
    """Colours only on a terminal; in a pipe nothing is wrapped or cut."""
    made = Console(highlight=False, stderr=stderr, emoji=False)
    if not made.is_terminal:
        made.soft_wrap = True
    return made


def width_of(out: Console) -> int | None:
    """How wide a line may be; None if it may be as long as it likes."""
    return out.width if out.is_terminal else None


def print_json(value: Any) -> None:
    """One JSON document."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def print_json_line(value: Any) -> None:
    """One line of JSON, seen at once by whoever reads the pipe."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def size(count: float) -> str:
    """1234 as 1.2 kB."""
    for unit in UNITS[:-1]:
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {UNITS[-1]}"


def moment(time: datetime) -> str:
    """A time in the reader's zone, to the second."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def clock(time: datetime) -> str:
    """The same, for a narrow column: the time of today, or the date as well."""
    here = time.astimezone()
    is_today = here.date() == datetime.now(timezone.utc).astimezone().date()
    return here.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")


def ago(time: datetime) -> str:
    """How long ago, roughly."""
    seconds = max(0.0, (datetime.now(timezone.utc) - time).total_seconds())
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def count(number: int, one: str, many: str | None = None) -> str:
    """1 thread, 2 threads."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def bar(share: float, width: int) -> str:
    """A bar that fills a part of its width, to an eighth of a column."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def one_line(text: str) -> str:
    """Without line ends and control characters, which would break a table or a terminal."""
    return "".join(letter if letter.isprintable() else "·" for letter in " ".join(text.split()))


def fit(text: str, width: int) -> str:
    """Cut with an ellipsis to at most so many columns."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def print_columns(
    out: Console,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[int] = (),
    flexible: int = 0,
) -> None:
    """A table of many rows, fast; the flexible column gives way if the terminal is narrow."""
    table = [list(headings), *(list(row) for row in rows)]
    widths = [max(cell_len(row[column]) for row in table) for column in range(len(headings))]
    available = width_of(out)
    if available is not None:
        others = sum(widths) - widths[flexible] + len(GAP) * (len(widths) - 1)
        least = max(8, cell_len(headings[flexible]))
        widths[flexible] = max(least, min(widths[flexible], available - others))

    def line(row: Sequence[str]) -> str:
        cells = []
        for column, cell in enumerate(row):
            text = fit(cell, widths[column]) if column == flexible else cell
            padding = " " * (widths[column] - cell_len(text))
            cells.append(padding + text if column in right else text + padding)
        return GAP.join(cells).rstrip()

    out.print(Text(line(table[0]), style="bold"), soft_wrap=True)
    # Not through rich: it takes a second for what is done here in milliseconds.
    write_plain(out, "".join(line(row) + "\n" for row in table[1:]))


def write_plain(out: Console, text: str) -> None:
    """Text without any markup, in an encoding that may not have all of it."""
    encoding = getattr(out.file, "encoding", None) or "utf-8"
    out.file.write(text.encode(encoding, "replace").decode(encoding))
    out.file.flush()
