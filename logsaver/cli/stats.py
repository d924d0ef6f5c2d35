"""`logsaver stats`: what the bytes of a log are for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from logsaver import ChannelUsage, Stats, ThreadInfo, Usage, usage
from logsaver.cli.opening import open_log
from logsaver.cli.options import AsJson, KeyFile, Log
from logsaver.cli.output import bar, console, count, one_line, print_columns, print_json, size
from logsaver.cli.progress import progress_bar


def stats(
    log: Log,
    top: Annotated[
        int, typer.Option(min=1, help="How many threads and channels to show, largest first.")
    ] = 10,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Show how large a log is, what is garbage, and what sharing and patching saved."""
    with open_log(log, key_file) as saver:
        counts = saver.stats()
        with progress_bar("reading") as advance:
            used = usage(saver, progress=advance)
        threads = sorted(saver.threads(), key=lambda thread: thread.bytes, reverse=True)
    if as_json:
        print_json(
            {
                **counts._asdict(),
                "live_bytes": used.live_bytes,
                "garbage_bytes": used.garbage_bytes,
                "shared_bytes": used.shared_bytes,
                "patched_bytes": used.patched_bytes,
                "copied_bytes": used.copied_bytes,
                "by_thread": {thread.thread_id: thread.bytes for thread in threads[:top]},
                "by_channel": {name: asdict(one) for name, one in _largest(used)[:top]},
            }
        )
        return
    out = console()
    _print_totals(out, counts, used)
    _print_threads(out, threads, top)
    _print_channels(out, used, top)


def _largest(used: Usage) -> list[tuple[str, ChannelUsage]]:
    return sorted(used.channels.items(), key=lambda item: item[1].stored_bytes, reverse=True)


def _bar_width(out: Console) -> int:
    return 20 if out.width < 100 else 40


def _print_totals(out: Console, counts: Stats, used: Usage) -> None:
    hidden = counts.hidden_checkpoints
    out.print(counts.path, style="bold", markup=False, soft_wrap=True)
    out.print(
        f"{count(counts.threads, 'thread')}, {count(counts.checkpoints, 'checkpoint')}"
        + (f" ({hidden:,} more hidden)" if hidden else "")
        + f", {count(counts.writes, 'set')} of writes\n"
    )
    without = used.bytes + used.shared_bytes + used.patched_bytes + used.copied_bytes
    shared, patched = (
        f"{_share(part, without)} of what it would be"
        for part in (used.shared_bytes, used.patched_bytes)
    )
    rows = [
        ("file", used.bytes, ""),
        ("live", used.live_bytes, _share(used.live_bytes, used.bytes)),
        ("garbage", used.garbage_bytes, _share(used.garbage_bytes, used.bytes)),
        ("saved by sharing", used.shared_bytes, shared),
        ("saved by patches", used.patched_bytes, patched),
        ("saved by copies", used.copied_bytes, ""),
    ]
    largest = max(value for _, value, _ in rows)
    print_columns(
        out,
        ("", "size", "", ""),
        [
            (name, size(value), note, bar(value / largest, _bar_width(out)))
            for name, value, note in rows
            if value or name != "saved by copies"
        ],
        right=(1,),
    )


def _print_threads(out: Console, threads: Sequence[ThreadInfo], top: int) -> None:
    if not threads:
        return
    out.print()
    shown = threads[:top]
    rows = [
        (
            one_line(thread.thread_id),
            f"{thread.checkpoints:,}",
            size(thread.bytes),
            bar(thread.bytes / shown[0].bytes, _bar_width(out)),
        )
        for thread in shown
    ]
    print_columns(out, ("thread", "checkpoints", "size", ""), rows, right=(1, 2))
    _print_rest(out, len(threads) - len(shown), "thread")


def _print_channels(out: Console, used: Usage, top: int) -> None:
    channels = _largest(used)
    if not channels:
        return
    out.print()
    largest = channels[0][1].stored_bytes or 1
    rows = [
        (
            one_line(name),
            f"{channel.values:,}",
            size(channel.stored_bytes),
            size(channel.shared_bytes + channel.patched_bytes),
            bar(channel.stored_bytes / largest, _bar_width(out)),
        )
        for name, channel in channels[:top]
    ]
    print_columns(out, ("channel", "values", "stored", "saved", ""), rows, right=(1, 2, 3))
    _print_rest(out, len(channels) - top, "channel")


def _print_rest(out: Console, rest: int, what: str) -> None:
    if rest > 0:
        out.print(f"and {count(rest, 'more ' + what)}; --top shows more", style="dim")


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "0%"
