"""The saver behind a path or a `postgresql://` URL: a log, SQLite or PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.disk import CREATE_NEW, Disk
from logsaver.errors import LogOpenError, LogSaverError, NotALogError
from logsaver.index import Index
from logsaver.log import Log
from logsaver.saver import LogSaver

if TYPE_CHECKING:
    import sqlite3  # may be missing from a Python

SQLITE_SUFFIXES: Final = (".sqlite", ".sqlite3", ".db")
POSTGRES_SCHEMES: Final = ("postgresql://", "postgres://")


class MigrationError(LogSaverError):
    """Raised when something cannot be copied, or the copy is not what it should be."""


@contextmanager
def open_saver(
    place: str | os.PathLike[str],
    *,
    write: bool = False,
    serde: SerializerProtocol | None = None,
) -> Iterator[BaseCheckpointSaver[Any]]:
    """The saver behind a path or a `postgresql://` URL.

    A file that is there is recognised by its content; one to be made, by its name: `.sqlite`,
    `.sqlite3` and `.db` are SQLite, everything else is a log. Without `write` nothing is made or
    changed. A file that was made is removed again if an error comes before anything is in it.
    """
    name = os.fspath(place)
    if name.startswith(POSTGRES_SCHEMES):
        with _open_postgres(name, write, serde) as saver:
            yield saver
        return
    is_new = not os.path.exists(name)
    is_there = not is_new and os.path.getsize(name) > 0
    if not is_there and not write:
        raise MigrationError(f"{name}: there is no such file, or it is empty")
    if not is_there and name.endswith(SQLITE_SUFFIXES):
        with _open_sqlite(name, write, serde) as saver:
            yield saver
        return
    try:
        log = LogSaver(name, read_only=not write, serde=serde)
    except NotALogError:
        with _open_sqlite(name, write, serde) as saver:
            yield saver
        return
    except LogOpenError as error:
        raise MigrationError(str(error)) from error
    with log:
        try:
            yield log
        except BaseException:
            if is_new:
                _remove_unused_log(log)
            raise


def _remove_unused_log(log: LogSaver) -> None:
    """Under the lock between processes: what somebody else has put since then keeps it."""
    store, disk = log._store, Disk()  # noqa: SLF001 - the same package

    def remove(_: Log, index: Index) -> None:
        if not index.threads:
            disk.unlink(log.path)

    store.waiting.insist(lambda: store.change(remove))


@contextmanager
def _open_sqlite(
    path: str, write: bool, serde: SerializerProtocol | None
) -> Iterator[BaseCheckpointSaver[Any]]:
    import sqlite3  # noqa: PLC0415 - may be missing from a Python
    from urllib.parse import quote  # noqa: PLC0415 - only here

    try:
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - may be missing
    except ModuleNotFoundError as error:
        raise MigrationError("this needs: pip install langgraph-checkpoint-sqlite") from error
    url = f"file:{quote(os.path.abspath(path))}?mode={'rw' if write else 'ro'}"
    is_new, disk = write and not os.path.exists(path), Disk()
    try:
        if is_new:  # for its owner only, as a log is; SQLite itself would let everybody read it
            disk.close(disk.open(path, CREATE_NEW))
        connection = sqlite3.connect(url, uri=True, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise MigrationError(f"{path}: {error}") from error
    with closing(connection):
        try:
            tables = {
                row[0] for row in connection.execute("SELECT name FROM sqlite_master").fetchall()
            }
            if tables and "checkpoints" not in tables:
                raise MigrationError(f"{path}: a database without LangGraph's checkpoints in it")
            if write:
                # One sync at the end, when the last connection closes, is enough.
                connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.DatabaseError as error:
            raise MigrationError(f"{path}: neither a log nor SQLite ({error})") from error
        try:
            yield SqliteSaver(connection, serde=serde)
        except BaseException:
            if is_new:
                _remove_unused_database(connection, path)
            raise


def _remove_unused_database(connection: sqlite3.Connection, path: str) -> None:
    connection.rollback()
    connection.execute("BEGIN EXCLUSIVE")  # what somebody else has put since then keeps it
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
    is_used = any(
        connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()  # noqa: S608 - two names
        for table in ("checkpoints", "writes")
        if table in tables
    )
    if not is_used:
        Disk().unlink(path)
    connection.rollback()


@contextmanager
def _open_postgres(
    url: str, write: bool, serde: SerializerProtocol | None
) -> Iterator[BaseCheckpointSaver[Any]]:
    try:
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415 - may be missing
    except ImportError as error:  # of it, or of the library that psycopg works with
        raise MigrationError('this needs: pip install "logsaver[postgres]"') from error
    with ExitStack() as stack:
        try:
            saver = stack.enter_context(PostgresSaver.from_conn_string(url))
            if write:
                saver.setup()
        except Exception as error:  # psycopg's own, which is not to be imported here
            raise MigrationError(f"PostgreSQL: {error}") from error
        if serde is not None:
            saver.serde = serde
        yield saver
