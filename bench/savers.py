"""The savers that are compared, each on a new file in a directory of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from logsaver import AesGcmCipher, LogSaver

MEMORY = "InMemorySaver"
SQLITE = "SqliteSaver"
SQLITE_OFF = "SqliteSaver synchronous=OFF"
SQLITE_ASYNC = "AsyncSqliteSaver"
LMDB = "LMDBSaver"
LOG_SYNC = "LogSaver sync"
LOG_ASYNC = "LogSaver async"
LOG_NEVER = "LogSaver fsync=never"
SQLITE_EAX = "SqliteSaver synchronous=OFF, AES-EAX"
LOG_EAX = "LogSaver async, AES-EAX"
LOG_GCM = "LogSaver async, AES-GCM"

Opener = Callable[[Path], AbstractContextManager[Any]]
LMDB_MAP = 4 << 30


def _memory(_: Path) -> AbstractContextManager[Any]:
    return InMemorySaver()


def _sqlite(directory: Path) -> AbstractContextManager[Any]:
    return SqliteSaver.from_conn_string(str(directory / "agent.db"))


@contextmanager
def _sqlite_off(directory: Path, serde: EncryptedSerializer | None = None) -> Iterator[Any]:
    with closing(sqlite3.connect(directory / "agent.db", check_same_thread=False)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        yield SqliteSaver(connection, serde=serde)


@contextmanager
def _lmdb(directory: Path) -> Iterator[Any]:
    import lmdb  # noqa: PLC0415 - optional
    from langgraph_checkpoint_lmdb import LMDBSaver  # noqa: PLC0415

    with lmdb.open(str(directory), max_dbs=10, map_size=LMDB_MAP) as environment:
        yield LMDBSaver(environment)


def _log(**options: Any) -> Opener:
    return lambda directory: LogSaver(directory / "agent.log", **options)


def has_lmdb() -> bool:
    try:
        import langgraph_checkpoint_lmdb  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


SAVERS: dict[str, Opener] = {
    MEMORY: _memory,
    SQLITE: _sqlite,
    SQLITE_OFF: _sqlite_off,
    **({LMDB: _lmdb} if has_lmdb() else {}),
    # "auto" follows the recorded configs, and a run's default mode is async.
    LOG_ASYNC: _log(fsync="auto"),
    LOG_SYNC: _log(fsync="always"),
    LOG_NEVER: _log(fsync="never"),
}


# For the bars of encryption; not in the tables. Of keys it does not matter which.
EAX = EncryptedSerializer.from_pycryptodome_aes(key=bytes(32))
GCM = EncryptedSerializer(AesGcmCipher(bytes(32)))
ENCRYPTED_SAVERS: dict[str, Opener] = {
    SQLITE_EAX: lambda directory: _sqlite_off(directory, EAX),
    LOG_EAX: _log(serde=EAX),
    LOG_GCM: _log(serde=GCM),
}


@asynccontextmanager
async def _sqlite_async(directory: Path) -> AsyncIterator[Any]:
    async with AsyncSqliteSaver.from_conn_string(str(directory / "agent.db")) as saver:
        yield saver


ASYNC_SAVERS: dict[str, Callable[[Path], AbstractAsyncContextManager[Any]]] = {
    SQLITE_ASYNC: _sqlite_async,
}
# These wait for the disk in every call.
SYNCING = (SQLITE, LMDB, LOG_SYNC, SQLITE_ASYNC)
