"""Whole payloads through the cipher of a serializer, each bound to its one place in one file.

With an `EncryptedSerializer`, everything that a frame says is encrypted, in one go: ids, channel
names, metadata and values. Values themselves are made by the serializer inside of it.

What is bound to a payload is the file's id and generation and all that its frame header says of
it: kind, offset, the frame before, the watermark. A frame that was moved, added a second time or
taken from another log does not decrypt. A `BoundCipher` authenticates that along with the text.
For any other it goes into the text, as a keyed digest: the key is a secret of the file, or whoever
can make one of our users encrypt a text of his choice elsewhere could make a frame of it.

Exceptions of a cipher go no further than here. The frames of their tracebacks have the key in
their local variables, and there are tools that print those.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Final, Protocol, runtime_checkable

from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from logsaver.errors import CorruptLogError, LogKeyError, RecordTooLargeError
from logsaver.frame import (
    ENCRYPTED,
    MAX_KEY_CHECK,
    MAX_PAYLOAD,
    FileHeader,
    Frame,
    encode_frame,
)
from logsaver.record import BadRecordError, Record, UnknownKindError, decode, record_of

Cipher = CipherProtocol
# From kind, payload, offset, previous and synced_upto to a frame and its checksum.
Encode = Callable[[int, bytes, int, int, int], tuple[bytes, int]]

_CHECK: Final = b"logsaver key check\n"
_SECRET_SIZE: Final = 32
_DIGEST_SIZE: Final = 16
_FILE: Final = struct.Struct("<16sQ")  # file id, generation
_PLACE: Final = struct.Struct("<BQIQ")  # kind, offset, previous, synced_upto
_LONGEST_NAME: Final = 255

HOW_TO_GIVE_A_KEY: Final = (
    "LogSaver(path, serde=EncryptedSerializer.from_pycryptodome_aes(key=...))"
)


# -- what a serializer brings along


def cipher_of(serde: SerializerProtocol | None) -> Cipher | None:
    """The cipher for whole frames; None for a serializer that is honoured as it is."""
    return serde.cipher if isinstance(serde, EncryptedSerializer) else None


def inner_of(serde: SerializerProtocol) -> SerializerProtocol:
    """What makes values, where the frames are encrypted that they are in.

    A subclass that does its own encrypting of values goes on doing that.
    """
    kind = type(serde)
    if (
        isinstance(serde, EncryptedSerializer)
        and kind.dumps_typed is EncryptedSerializer.dumps_typed
        and kind.loads_typed is EncryptedSerializer.loads_typed
    ):
        return serde.serde
    return serde


@runtime_checkable
class BoundCipher(CipherProtocol, Protocol):
    """A cipher that authenticates more than the text: `binding` has to be the same again."""

    def encrypt_bound(self, plaintext: bytes, binding: bytes) -> tuple[str, bytes]:
        """Encrypt. Returns the cipher's name and the ciphertext."""
        ...

    def decrypt_bound(self, ciphername: str, ciphertext: bytes, binding: bytes) -> bytes:
        """Decrypt, or raise if text or binding are not what was encrypted."""
        ...


class _BindingInside:
    """Any cipher, with a digest of the binding before the text."""

    __slots__ = ("_cipher", "_secret")

    def __init__(self, cipher: Cipher, secret: bytes) -> None:
        self._cipher = cipher
        self._secret = secret

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return self._cipher.encrypt(plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return self._cipher.decrypt(ciphername, ciphertext)

    def encrypt_bound(self, plaintext: bytes, binding: bytes) -> tuple[str, bytes]:
        return self._cipher.encrypt(self._digest(binding) + plaintext)

    def decrypt_bound(self, ciphername: str, ciphertext: bytes, binding: bytes) -> bytes:
        text = self._cipher.decrypt(ciphername, ciphertext)
        if text[:_DIGEST_SIZE] != self._digest(binding):
            raise ValueError("bound to another place")
        return text[_DIGEST_SIZE:]

    def _digest(self, binding: bytes) -> bytes:
        return blake2b(binding, key=self._secret, digest_size=_DIGEST_SIZE).digest()


# -- one generation of an encrypted log


class Encryption:
    """Encrypts and decrypts the payloads of one file."""

    __slots__ = ("_bound", "_file", "_name", "_path", "_seed", "cipher")

    def __init__(
        self, path: str, header: FileHeader, cipher: Cipher, name: str, secret: bytes
    ) -> None:
        self.cipher = cipher
        self._path = path
        self._name = name  # of the cipher, as the key check has it
        self._seed = header.seed
        self._file = _FILE.pack(header.file_id, header.generation)
        self._bound: BoundCipher = (
            cipher if isinstance(cipher, BoundCipher) else _BindingInside(cipher, secret)
        )

    def encode(
        self, kind: int, payload: bytes, offset: int, previous: int, synced_upto: int
    ) -> tuple[bytes, int]:
        """The counterpart of `frame.encode_frame`."""
        binding = self._file + _PLACE.pack(kind, offset, previous, synced_upto)
        sealed = self._sealed(payload, binding)
        return encode_frame(kind, sealed, offset, previous, synced_upto, self._seed, ENCRYPTED)

    def _sealed(self, payload: bytes, binding: bytes) -> bytes:
        sealed, failure = _guarded(
            lambda: _named(*self._bound.encrypt_bound(payload, binding), self._name)
        )
        if failure:
            raise _cannot_encrypt(self._path, failure)
        if len(sealed) > MAX_PAYLOAD:
            raise RecordTooLargeError(
                f"one call stores at most {MAX_PAYLOAD} bytes, this one needs {len(sealed)} when "
                "it is encrypted; keep large data outside the graph's state"
            )
        return sealed

    def payload(self, frame: Frame) -> bytes:
        """The payload that was encrypted. Raises `BadRecordError` or `UnknownKindError`."""
        if frame.flags & ~ENCRYPTED:
            raise UnknownKindError(f"has flags {frame.flags:#x}, which this version does not know")
        if not frame.flags:
            raise BadRecordError("the frame is not encrypted, in a log that is")
        binding = self._file + _PLACE.pack(
            frame.kind, frame.offset, frame.previous, frame.synced_upto
        )
        payload, failure = _guarded(
            lambda: self._bound.decrypt_bound(*_split(bytes(frame.payload), self._name), binding)
        )
        if failure:
            raise BadRecordError(
                f"the frame cannot be decrypted ({failure}): it was changed, or is not one that "
                "was written to this place of this log"
            )
        return payload


def record_in(frame: Frame, encryption: Encryption | None) -> Record:
    """The record in a frame. Raises `BadRecordError` or `UnknownKindError`."""
    return record_of(frame) if encryption is None else decode(frame.kind, encryption.payload(frame))


def encoder(header: FileHeader, encryption: Encryption | None) -> Encode:
    """What makes the frames of a file."""
    if encryption is None:
        return partial(encode_frame, seed=header.seed)
    return encryption.encode


# -- the key check: what tells at open whether a key is the right one


def new_header(path: str, file_id: bytes, generation: int, cipher: Cipher | None) -> FileHeader:
    """The header of a file that is to be made."""
    if cipher is None:
        return FileHeader(file_id, generation)
    text = _CHECK + file_id + os.urandom(_SECRET_SIZE)
    key_check, failure = _guarded(lambda: _named(*cipher.encrypt(text)))
    if failure:
        raise _cannot_encrypt(path, failure)
    if len(key_check) > MAX_KEY_CHECK:
        raise LogKeyError(
            path,
            f"what this cipher makes of {len(text)} bytes takes {len(key_check)}, and there is "
            f"room for {MAX_KEY_CHECK}; use another cipher",
        )
    return FileHeader(file_id, generation, ENCRYPTED, key_check)


def encryption_of(path: str, header: FileHeader, cipher: Cipher | None) -> Encryption | None:
    """What reads and writes the frames of a file; None if they are not encrypted.

    Raises `LogKeyError` unless the cipher and the file go together.
    """
    if not header.flags & ENCRYPTED:
        if cipher is not None:
            raise LogKeyError(
                path,
                "the log is not encrypted, and a key was given. Encrypt it with "
                "logsaver.rekey(path, None, serde), or open it without the key",
            )
        return None
    if cipher is None:
        raise LogKeyError(
            path, f"the log is encrypted; open it with its key, for example {HOW_TO_GIVE_A_KEY}"
        )
    name, check = _key_check_of(path, header)
    text, failure = _guarded(lambda: cipher.decrypt(name, check))
    expected = _CHECK + header.file_id
    if failure or not text.startswith(expected) or len(text) != len(expected) + _SECRET_SIZE:
        raise LogKeyError(
            path,
            f"this is not the key that the log is encrypted with ({failure or 'it'} with cipher "
            f"{name!r}). A key has 16, 24 or 32 bytes; nothing was changed. Open it with the key "
            "and the cipher that it was made with, or that logsaver.rekey gave it since",
        )
    return Encryption(path, header, cipher, name, text[len(expected) :])


def check_cipher(path: str, cipher: Cipher | None) -> None:
    """Raise unless a log can be made with this cipher, and opened again."""
    encryption_of(path, new_header(path, bytes(16), 0, cipher), cipher)


def _key_check_of(path: str, header: FileHeader) -> tuple[str, bytes]:
    try:
        return _split(header.key_check)
    except ValueError as error:
        raise CorruptLogError(
            path, 0, f"the key check is none ({error}); restore the file from a backup"
        ) from error


def _named(name: str, ciphertext: bytes, usual: str = "") -> bytes:
    """A ciphertext with the name of its cipher, which is left out if it is the usual one."""
    encoded = b"" if name == usual else name.encode()
    if len(encoded) > _LONGEST_NAME or not (encoded or usual):
        raise ValueError("a cipher has a name of 1 to 255 bytes")
    return b"".join((bytes((len(encoded),)), encoded, ciphertext))


def _split(named: bytes, usual: str = "") -> tuple[str, bytes]:
    """What `_named` has joined. Raises `ValueError`."""
    start = 1 + named[0] if named else 1
    name = named[1:start].decode() or usual
    if not name or start > len(named):
        raise ValueError("there is no name of a cipher")
    return name, named[start:]


def _cannot_encrypt(path: str, failure: str) -> LogKeyError:
    return LogKeyError(
        path,
        f"the serializer's cipher cannot encrypt ({failure}); nothing of this call was stored. "
        "Check its key: it has 16, 24 or 32 bytes",
    )


def _guarded(action: Callable[[], bytes]) -> tuple[bytes, str]:
    """What a cipher gives, or the name of what it raised; see the module's docstring."""
    try:
        return action(), ""
    except MemoryError:
        pass  # no fault of the text
    except Exception as error:  # noqa: BLE001 - a cipher may raise anything
        return b"", type(error).__name__
    raise MemoryError
