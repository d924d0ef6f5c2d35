"""From a path and a key to an open log. The one place that knows how a log is opened."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import typer
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from logsaver import CorruptLogError, LogSaver, LogSaverError, StoredCheckpoint, stored
from logsaver.cli.options import CANNOT_START, PROBLEM

KEY_VARIABLE: Final = "LANGGRAPH_AES_KEY"
KEY_SIZES: Final = (16, 24, 32)
NEEDS_KEY: Final = f"the log is encrypted: set {KEY_VARIABLE} or pass --key-file"
WRONG_KEY: Final = (
    f"the log is encrypted with another key than the one in {KEY_VARIABLE} or --key-file"
)


class StopError(Exception):
    """Raised to end a command with a message and an exit code."""

    def __init__(self, message: str, code: int = PROBLEM) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def telling_errors() -> Iterator[None]:
    """Turn what can go wrong into one line on stderr and an exit code."""
    # The library warns of each value that it cannot decode; the commands show them instead.
    logging.getLogger("logsaver").setLevel(logging.ERROR)
    logging.getLogger("langgraph").setLevel(logging.ERROR)
    try:
        yield
    except StopError as error:
        _stop(str(error), error.code, error)
    except CorruptLogError as error:
        _stop(str(error), PROBLEM, error)
    except (LogSaverError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        _stop(_told(error), CANNOT_START, error)


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, LogSaverError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _stop(message: str, code: int, cause: Exception) -> None:
    typer.echo(f"logsaver: {message}", err=True)
    raise typer.Exit(code) from cause


@contextmanager
def open_log(path: Path, key_file: Path | None, *, to_write: bool = False) -> Iterator[LogSaver]:
    """The log at `path`, read-only unless told otherwise. A missing one is not made."""
    with telling_errors():
        if to_write and not path.exists():
            raise StopError(f"{path}: there is no such file", CANNOT_START)
        with make_saver(path, key_file, read_only=not to_write) as saver:
            yield saver


def make_saver(path: Path, key_file: Path | None, *, read_only: bool) -> LogSaver:
    """Open a log, and make sure that the key is the right one before anything is shown."""
    serde = make_serializer(key_file)
    saver = LogSaver(path, serde=serde, read_only=read_only)
    try:
        _check_key(saver, given=isinstance(serde, EncryptedSerializer))
    except BaseException:
        saver.close()
        raise
    return saver


def make_serializer(key_file: Path | None) -> SerializerProtocol:
    """The serializer for the key that is in the file, or else in the environment, if any is."""
    key = _read_key(key_file)
    # Only LangGraph's and LangChain's own types are built. To look into a log must not run
    # whatever code its values name; of other classes the fields are shown.
    plain = JsonPlusSerializer(allowed_msgpack_modules=None)
    if key is None:
        return plain
    try:
        return EncryptedSerializer.from_pycryptodome_aes(plain, key=key)
    except ImportError as error:
        raise StopError(
            'encrypted logs need pycryptodome: pip install "logsaver[encryption]"', CANNOT_START
        ) from error


def _read_key(key_file: Path | None) -> bytes | None:
    if key_file is not None:
        source, key = str(key_file), key_file.read_bytes()
        if len(key) not in KEY_SIZES:  # an editor ends a file with a line end
            key = key.rstrip(b"\r\n")
    else:
        source, key = KEY_VARIABLE, os.environ.get(KEY_VARIABLE, "").encode()
        if not key:
            return None
    if len(key) not in KEY_SIZES:
        raise StopError(f"{source}: a key has 16, 24 or 32 bytes, not {len(key)}", CANNOT_START)
    return key


def _check_key(saver: LogSaver, *, given: bool) -> None:
    for thread in saver.threads():
        for item in stored(saver, {"configurable": {"thread_id": thread.thread_id}}):
            if not isinstance(item, StoredCheckpoint):
                continue
            if "+" not in item.metadata.type:  # the serializer's name for "encrypted by"
                return
            if not given:
                raise StopError(NEEDS_KEY, CANNOT_START)
            try:
                saver.serde.loads_typed((item.metadata.type, item.metadata.data))
            except Exception as error:
                raise StopError(WRONG_KEY, CANNOT_START) from error
            return
