"""Logs that are encrypted, for tests that do not care: in a block, or all of them.

`LOGSAVER_ENCRYPTED=1 pytest` runs everything with encrypted logs. What fails then are tests that
look at bytes, count them, or give a serializer of their own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from logsaver import AesGcmCipher, LogSaver

VARIABLE = "LOGSAVER_ENCRYPTED"
KEY = bytes(range(32))
# Not LangGraph's own, which would make such tests take three times as long.
SERDE = EncryptedSerializer(AesGcmCipher(KEY))

_plain_init = LogSaver.__init__
_for_good = contextlib.ExitStack()


def _encrypted_init(self: LogSaver, path: Any, *, serde: Any = None, **options: Any) -> None:
    _plain_init(self, path, serde=serde or SERDE, **options)


@contextlib.contextmanager
def encrypted_logs() -> Iterator[None]:
    """In here a saver that is given no serializer encrypts."""
    with mock.patch.object(LogSaver, "__init__", _encrypted_init):
        yield


def serde_in_use() -> EncryptedSerializer | None:
    """What savers are given in here."""
    return SERDE if LogSaver.__init__ is _encrypted_init else None


def encrypt_if_told() -> None:
    """For the rest of the process, if the environment says so."""
    if os.environ.get(VARIABLE) and serde_in_use() is None:
        _for_good.enter_context(encrypted_logs())
