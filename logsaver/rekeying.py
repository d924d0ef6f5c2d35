"""`rekey`: rewrites a log under another key, from plain to encrypted, or back."""

from __future__ import annotations

import os

from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.arguments import check_lock_timeout, path_of
from logsaver.cipher import check_cipher, cipher_of
from logsaver.disk import DISK
from logsaver.errors import InvalidInputError, LogOpenError
from logsaver.rewriting import Key, rewrite
from logsaver.store import DEFAULT_LOCK_TIMEOUT, Store
from logsaver.waiting import LockBusyError


def rekey(
    path: str | os.PathLike[str],
    old: SerializerProtocol | None,
    new: SerializerProtocol | None,
    *,
    lock_timeout: float = DEFAULT_LOCK_TIMEOUT,
) -> None:
    """Rewrite the log at `path`, which `old` opens, so that from now on `new` opens it.

    Each is an `EncryptedSerializer`, or None for a log that is not encrypted. A crash at any point
    leaves the log as it was or as it is to be. Others may have it open: they go on reading and
    writing until the new file is in place, and then get a `LogKeyError`.

    The bytes of the old file are not wiped from the disk; see docs/security.md.
    """
    path = os.path.realpath(path_of(path))
    check_lock_timeout(lock_timeout)
    for serde in (old, new):
        if serde is not None and cipher_of(serde) is None:
            raise InvalidInputError(
                f"rekey takes an EncryptedSerializer or None, not {type(serde).__name__}"
            )
    if DISK.identity_at(path) is None:
        raise LogOpenError(path, "there is no such file, so there is nothing to encrypt anew")
    cipher = cipher_of(new)
    if cipher is not None:
        check_cipher(path, cipher)
    # A store of its own, which savers of this process do not share: they have the old key.
    store = Store(path, cipher=cipher_of(old), lock_timeout=lock_timeout, disk=DISK)
    try:
        store.waiting.insist(lambda: _rewrite(store, Key(cipher)))
    finally:
        store.close()


def _rewrite(store: Store, key: Key) -> None:
    if not rewrite(store, key):
        raise LockBusyError  # somebody else is just replacing the log
