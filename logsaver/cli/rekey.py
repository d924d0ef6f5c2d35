"""`logsaver rekey`: encrypt a log, encrypt it with another key, or store it in clear again."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

import logsaver
from logsaver import AesGcmCipher, LogKeyError, LogSaver
from logsaver.cli.asking import confirm
from logsaver.cli.opening import (
    KEY_VARIABLE,
    StopError,
    read_key,
    serializers,
    telling_errors,
    with_key,
)
from logsaver.cli.options import CANNOT_START, AsJson, KeyFile, Log, Yes
from logsaver.cli.output import console, print_json


class Cipher(str, Enum):
    """The ciphers, by the names that are in an encrypted log."""

    aes = "aes"
    aes256gcm = "aes256gcm"


def rekey(
    log: Log,
    new_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The key from now on.", show_default=False),
    ] = None,
    decrypt: Annotated[
        bool, typer.Option("--decrypt", help="Store it in clear from now on.")
    ] = False,
    cipher: Annotated[
        Cipher | None,
        typer.Option(
            help="aes is LangGraph's own, aes256gcm is faster. The log's own by default, or aes.",
            show_default=False,
        ),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
    key_file: KeyFile = None,
) -> None:
    """Encrypt a log, or change its key. Changes the log, and asks.

    A log in clear is encrypted with --new-key-file, or else LANGGRAPH_AES_KEY.

    A crash leaves the log as it was or as it is to be. The old bytes are not wiped from the disk.

    To make a key: head -c 32 /dev/urandom > FILE
    """
    with telling_errors():
        is_encrypted = _is_encrypted(log)
        if decrypt and not is_encrypted:
            raise StopError(f"{log}: the log is not encrypted")
        old = _old_serializer(log, key_file) if is_encrypted else None
        name = None if decrypt else cipher.value if cipher else _cipher_of(old)
        needs_key = is_encrypted
        if is_encrypted and new_key_file is None and name != _cipher_of(old):
            new_key_file, needs_key = key_file, False  # another cipher with the key it has
        new = _new_serializer(new_key_file, name, needs_key=needs_key) if name else None
        confirm([_warning(log, decrypt=decrypt)], yes=yes)
        logsaver.rekey(log, old, new)
    if as_json:
        print_json({"log": str(log), "cipher": name})
    else:
        how = f"is encrypted with {name}" if name else "is in clear"
        console().print(f"{log} {how} from now on", markup=False, soft_wrap=True)


def _warning(log: Path, *, decrypt: bool) -> str:
    if decrypt:
        return f"{log}: everybody who can read the file will be able to read what is in it"
    return f"{log}: without the new key, nobody will be able to read what is in it"


def _is_encrypted(log: Path) -> bool:
    try:
        LogSaver(log, read_only=True).close()
    except LogKeyError:
        return True
    return False


def _old_serializer(log: Path, key_file: Path | None) -> SerializerProtocol:
    """The one that opens it. Looked for first, so that nobody is asked about a wrong key."""

    def opens(serde: SerializerProtocol) -> SerializerProtocol:
        LogSaver(log, serde=serde, read_only=True).close()
        return serde

    return with_key(key_file, opens)


def _cipher_of(old: SerializerProtocol | None) -> str:
    """Whoever opens the log with a cipher goes on with the same, and only the key is another."""
    if isinstance(old, EncryptedSerializer) and isinstance(old.cipher, AesGcmCipher):
        return Cipher.aes256gcm.value
    return Cipher.aes.value


def _new_serializer(
    new_key_file: Path | None, cipher: str, *, needs_key: bool
) -> SerializerProtocol:
    if needs_key and new_key_file is None:
        raise StopError("give the new key with --new-key-file, or --decrypt", CANNOT_START)
    key = read_key(new_key_file)
    if key is None:
        raise StopError(f"give a key with --new-key-file, or in {KEY_VARIABLE}", CANNOT_START)
    return serializers(key, [cipher])[0]
