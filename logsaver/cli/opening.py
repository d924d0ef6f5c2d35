"""From a path and a key to an open log. The one place that knows how a log is opened."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import typer
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from logsaver import AesGcmCipher, CorruptLogError, LogKeyError, LogSaver, LogSaverError
from logsaver.cli.options import CANNOT_START, PROBLEM

KEY_VARIABLE: Final = "LANGGRAPH_AES_KEY"
KEY_SIZES: Final = (16, 24, 32)
WHERE_KEYS_ARE: Final = f"A key is taken from --key-file, or else from {KEY_VARIABLE}"
NEEDS_PACKAGE: Final = (
    'encrypted logs need a package more: pip install "logsaver[encryption]" for LangGraph\'s own '
    'cipher, or "logsaver[encryption-fast]" for logsaver.AesGcmCipher'
)

T = TypeVar("T")


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
        if not path.exists():
            raise StopError(f"{path}: there is no such file", CANNOT_START)
        with make_saver(path, key_file, read_only=not to_write) as saver:
            yield saver


def make_saver(path: Path, key_file: Path | None, *, read_only: bool) -> LogSaver:
    """Open a log, which is made if it is not there and `read_only` is not set."""
    return with_key(key_file, lambda serde: LogSaver(path, serde=serde, read_only=read_only))


def with_key(key_file: Path | None, action: Callable[[SerializerProtocol], T]) -> T:
    """Do something with a serializer that has the key; of its ciphers, with the log's own."""
    given = serializers(read_key(key_file))
    for serde in given[:-1]:
        with suppress(LogKeyError):
            return action(serde)
    try:
        return action(given[-1])
    except LogKeyError as error:
        raise StopError(f"{error}. {WHERE_KEYS_ARE}", CANNOT_START) from error


def serializers(key: Key | None, names: Iterable[str] = ()) -> list[SerializerProtocol]:
    """One for each of these ciphers, or all that are installed; without a key, one with none."""
    # Only LangGraph's and LangChain's own types are built. To look into a log must not run
    # whatever code its values name; of other classes the fields are shown.
    plain = JsonPlusSerializer(allowed_msgpack_modules=None)
    if key is None:
        return [plain]
    made: list[SerializerProtocol] = []
    for name in names or CIPHERS:
        with suppress(ImportError):
            made.append(CIPHERS[name](plain, key))
    if not made:
        raise StopError(NEEDS_PACKAGE, CANNOT_START)
    return made


def read_key(key_file: Path | None) -> Key | None:
    """The key in the file, or in the environment."""
    if key_file is not None:
        source, key = str(key_file), key_file.read_bytes()
        if len(key) not in KEY_SIZES:  # an editor ends a file with a line end
            key = key.rstrip(b"\r\n")
    else:
        source, key = KEY_VARIABLE, os.environ.get(KEY_VARIABLE, "").encode()
        if not key:
            return None
    size, kept = len(key), Key(key)
    del key  # a traceback shows what is in local variables
    if size not in KEY_SIZES:
        raise StopError(f"{source}: a key has 16, 24 or 32 bytes, not {size}", CANNOT_START)
    return kept


class Key:
    """A key that does not show what it is."""

    __slots__ = ("bytes",)

    def __init__(self, key: bytes) -> None:
        self.bytes = key


def _usual(plain: SerializerProtocol, key: Key) -> SerializerProtocol:
    return EncryptedSerializer.from_pycryptodome_aes(plain, key=key.bytes)


def _fast(plain: SerializerProtocol, key: Key) -> SerializerProtocol:
    return EncryptedSerializer(AesGcmCipher(key.bytes), plain)


# The first one is for new logs: it is what LangGraph's own serializer does.
CIPHERS: Final = {"aes": _usual, "aes256gcm": _fast}
