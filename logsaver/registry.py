"""One store per file and process, and what becomes of it when the process forks.

Savers that are opened on the same path share a store: one index in memory, one background
thread, and threads that wait for each other by a lock of this process.
"""

from __future__ import annotations

import os
import threading
import weakref

from logsaver.cipher import Cipher, encryption_of
from logsaver.errors import LogFileError
from logsaver.log import DEFAULT_CACHE_BYTES
from logsaver.logfile import close_in_child, opening
from logsaver.store import DEFAULT_LOCK_TIMEOUT, Store

_shared: dict[str, Store] = {}  # by path: what the next saver gets
_lock = threading.Lock()
_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def open_store(
    path: str,
    *,
    read_only: bool = False,
    promises: bool = True,
    cipher: Cipher | None = None,
    lock_timeout: float = DEFAULT_LOCK_TIMEOUT,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> Store:
    """The store of this file, opened if this process has it not open yet."""
    path = os.path.realpath(path)  # a symlink stays one when the log behind it is replaced
    if not read_only:
        with _lock:
            if (shared := _share(path, promises=promises, cipher=cipher)) is not None:
                return shared
    # Without our lock: it may have to wait for another process, and nobody who opens something
    # else, or forks, has to wait for that.
    store = Store(
        path,
        read_only=read_only,
        promises=promises,
        cipher=cipher,
        lock_timeout=lock_timeout,
        cache_bytes=cache_bytes,
    )
    with _lock:
        shared = None if read_only else _share(path, promises=promises, cipher=cipher)
        if shared is None:
            _open_stores.add(store)
            if not read_only:
                _shared[path] = store
            return store
    store.close()  # another thread was faster
    return shared


def _share(path: str, *, promises: bool, cipher: Cipher | None) -> Store | None:
    """The store that somebody has opened already. The caller holds the lock."""
    store = _shared.get(path)
    # One whose file is gone is of no use to somebody who opens the path anew.
    if store is None or not store.is_sound() or not _is_for(store, cipher):
        return None
    store.promises |= promises
    store.users += 1
    return store


def _is_for(store: Store, cipher: Cipher | None) -> bool:
    """Whether this cipher opens the log as well: nobody is given what another's key has opened."""
    try:
        with store.lock:
            store.view()  # the log may have been encrypted anew meanwhile
            encryption_of(store.path, store.log.header, cipher)
    except LogFileError:
        return False  # who opens the path anew is told what is wrong
    return True


def release_store(store: Store, *, sync: bool = False) -> None:
    """Undo one `open_store`."""
    with _lock:
        store.users -= 1
        if store.users:
            return
        if _shared.get(store.path) is store:
            del _shared[store.path]
        _open_stores.discard(store)
    store.close(sync=sync)


# -- fork

_held: list[tuple[Store, bool]] = []  # between the hooks: stores, and whether we got their lock


def _before_fork() -> None:
    _lock.acquire()
    _held[:] = [(store, store.before_fork()) for store in _open_stores]
    opening.acquire()


def _after_fork_in_parent() -> None:
    opening.release()
    for store, is_held in _held:
        if is_held:
            store.after_fork_in_parent()
    _held.clear()
    _lock.release()


def _after_fork_in_child() -> None:
    opening.release()
    close_in_child()
    for store, is_held in _held:
        store.after_fork_in_child(is_consistent=is_held)
    _held.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
