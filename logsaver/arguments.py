"""What a log is opened with, checked before anything is touched."""

from __future__ import annotations

import os

from logsaver.errors import InvalidInputError


def path_of(path: str | os.PathLike[str]) -> str:
    """The path of a log as text."""
    text: object = os.fspath(path) if isinstance(path, os.PathLike) else path
    if text in ("", ":memory:"):
        raise InvalidInputError(
            f"path names a file, for example 'agent.log', not {path!r}; "
            "for state that lives in memory only there is InMemorySaver"
        )
    if not isinstance(text, str) or "\0" in text:
        raise InvalidInputError(
            f"give a path as text or os.PathLike, for example 'agent.log', not {path!r}"
        )
    return text


def check_lock_timeout(seconds: float) -> None:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not seconds >= 0:  # this way round for nan
        raise InvalidInputError(
            f"lock_timeout is a number of seconds, 0 to try once, not {seconds!r}; pass for "
            "example 30"
        )


def check_cache_bytes(size: int) -> None:
    if type(size) is not int or size < 0:
        raise InvalidInputError(
            f"cache_bytes is a number of bytes, 0 to keep nothing, not {size!r}; pass for example "
            f"{64 << 20}"
        )
