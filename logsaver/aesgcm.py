"""A fast cipher: AES-256-GCM from the `cryptography` package, for `EncryptedSerializer`.

A nonce that comes twice under one key would lay GCM open. So no two texts here have the same key
and nonce, whatever happens to the process:

    key     made from the user's key and 128 random bits, anew for each thread of each process,
            in a forked child, and after a million texts
    nonce   the number of the text under this key, and 64 bits that are random each time

In one thread the numbers differ. Other threads, processes, and a forked child have other random
bits, and so another key. A crash loses the key with the process, and what is cut off of a log takes
no nonce with it that could come again. What is left is a copy of a running process, as a virtual
machine's snapshot makes one: there the random part of the nonce differs, as long as the system's
generator is told of the copy.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from logsaver.cache import Recent
from logsaver.errors import InvalidInputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_VARIABLE: Final = "LANGGRAPH_AES_KEY"  # the one that LangGraph's own cipher takes
KEY_SIZES: Final = (16, 24, 32)
NAME: Final = "aes256gcm"
TEXTS_PER_KEY: Final = 1 << 20

_NONCE: Final = struct.Struct("<I8s")
_PURPOSE: Final = b"logsaver aes-gcm"
_SALT_SIZE: Final = 16
_TAG_SIZE: Final = 16
_OVERHEAD: Final = _SALT_SIZE + _NONCE.size + _TAG_SIZE
assert _OVERHEAD == 44  # pins the format
_KEYS_KEPT: Final = 512

_forks = 0


class _Turn(NamedTuple):
    """What one thread encrypts with, for a while."""

    forks: int
    salt: bytes
    aead: AESGCM
    numbers: Iterator[int]


class AesGcmCipher:
    """AES-256-GCM: a few microseconds for what takes LangGraph's own cipher a few hundred.

        LogSaver("agent.log", serde=EncryptedSerializer(AesGcmCipher(key)))

    Needs `pip install "logsaver[encryption-fast]"`.

    Args:
        key: 16, 24 or 32 random bytes; those of the variable LANGGRAPH_AES_KEY by default.
    """

    __slots__ = ("_aead", "_kept", "_key", "_mine")

    def __init__(self, key: bytes | None = None) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import (  # noqa: PLC0415 - optional
                AESGCM,
            )
        except ImportError as error:
            del key
            raise ImportError(
                'AesGcmCipher needs cryptography: pip install "logsaver[encryption-fast]"'
            ) from error
        if key is None:
            key = os.environ.get(KEY_VARIABLE, "").encode()
        what = f"{len(key)} {type(key).__name__}"
        if not isinstance(key, bytes) or len(key) not in KEY_SIZES:
            del key  # a traceback shows what is in local variables
            raise InvalidInputError(
                f"a key has 16, 24 or 32 bytes, not {what}; give one, or set {KEY_VARIABLE}"
            )
        self._aead = AESGCM
        self._key = key
        self._mine = threading.local()  # a thread's `_Turn`
        self._kept: Recent[bytes, AESGCM] = Recent(_KEYS_KEPT)

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return self.encrypt_bound(plaintext, b"")

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return self.decrypt_bound(ciphername, ciphertext, b"")

    def encrypt_bound(self, plaintext: bytes, binding: bytes) -> tuple[str, bytes]:
        """Encrypt; `binding` is authenticated along with the text."""
        turn: _Turn | None = getattr(self._mine, "turn", None)
        number = None if turn is None or turn.forks != _forks else next(turn.numbers, None)
        if turn is None or number is None:
            turn = self._mine.turn = self._next_turn()
            number = next(turn.numbers)
        nonce = _NONCE.pack(number, os.urandom(8))
        return NAME, b"".join((turn.salt, nonce, turn.aead.encrypt(nonce, plaintext, binding)))

    def decrypt_bound(self, ciphername: str, ciphertext: bytes, binding: bytes) -> bytes:
        """Decrypt, or raise if the text, the binding or the key are not the same."""
        if ciphername != NAME:
            raise ValueError(f"encrypted with {ciphername!r}, and this is {NAME!r}")
        if len(ciphertext) < _OVERHEAD:
            raise ValueError("too short")
        salt, nonce = ciphertext[:_SALT_SIZE], ciphertext[_SALT_SIZE : _OVERHEAD - _TAG_SIZE]
        aead = self._kept.get(salt)
        if aead is None:
            aead = self._key_for(salt)
        return aead.decrypt(nonce, ciphertext[_OVERHEAD - _TAG_SIZE :], binding)

    def _next_turn(self) -> _Turn:
        salt = os.urandom(_SALT_SIZE)
        return _Turn(_forks, salt, self._key_for(salt), iter(range(TEXTS_PER_KEY)))

    def _key_for(self, salt: bytes) -> AESGCM:
        """BLAKE2b with a key is a pseudorandom function: salts that differ give unrelated keys."""
        derived = blake2b(salt, key=self._key, digest_size=32, person=_PURPOSE).digest()
        aead = self._aead(derived)
        self._kept.put(salt, aead)
        return aead

    def __repr__(self) -> str:
        return "AesGcmCipher()"  # and not its key

    def __reduce__(self) -> NoReturn:
        raise TypeError("a cipher is not pickled: its key would be in there")


def _note_fork() -> None:
    global _forks  # noqa: PLW0603 - one process, one number
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
