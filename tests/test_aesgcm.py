"""AES-256-GCM: what it does, and above all that no nonce comes twice."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any

import pytest
from Crypto.Cipher import AES
from encrypting import KEY
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from support import run_python

from logsaver import AesGcmCipher, InvalidInputError, aesgcm
from logsaver.cipher import BoundCipher

# What was made with version 0.1 has to be read for ever.
KEPT = bytes.fromhex(
    "000102030405060708090a0b0c0d0e0f" "00000000" "0001020304050607"
    "c409142c9bc73f14da1136e5772a060215cc62fb06"
)  # fmt: skip


def salt_and_nonce(ciphertext: bytes) -> tuple[bytes, bytes]:
    return ciphertext[:16], ciphertext[16:28]


def test_a_text_comes_back():
    cipher = AesGcmCipher(KEY)
    for text in (b"", b"x", os.urandom(100_000)):
        name, sealed = cipher.encrypt(text)
        assert name == "aes256gcm"
        assert len(sealed) == len(text) + 44
        assert AesGcmCipher(KEY).decrypt(name, sealed) == text
        name, sealed = cipher.encrypt_bound(text, b"here")
        assert AesGcmCipher(KEY).decrypt_bound(name, sealed, b"here") == text
    assert isinstance(cipher, BoundCipher)


def test_what_was_written_once_is_read_for_ever(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda size: bytes(range(size)))
    assert AesGcmCipher(KEY).encrypt_bound(b"hello", b"binding") == ("aes256gcm", KEPT)
    monkeypatch.undo()
    assert AesGcmCipher(KEY).decrypt_bound("aes256gcm", KEPT, b"binding") == b"hello"


def test_another_implementation_reads_what_is_written():
    """As the format describes it: so nothing is lost with this package or the other."""
    _, sealed = AesGcmCipher(KEY).encrypt_bound(b"text", b"here")
    derived = blake2b(sealed[:16], key=KEY, digest_size=32, person=b"logsaver aes-gcm").digest()
    theirs = AES.new(derived, AES.MODE_GCM, nonce=sealed[16:28])
    theirs.update(b"here")
    assert theirs.decrypt_and_verify(sealed[28:-16], sealed[-16:]) == b"text"


def test_every_changed_byte_and_every_other_binding_name_or_key_is_refused():
    name, sealed = AesGcmCipher(KEY).encrypt_bound(b"text", b"here")
    cipher = AesGcmCipher(KEY)
    for at in range(len(sealed)):
        changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises(Exception, match=r"^$"):  # InvalidTag says nothing
            cipher.decrypt_bound(name, changed, b"here")
    for size in range(len(sealed)):
        with pytest.raises(Exception, match=r"^$|too short"):
            cipher.decrypt_bound(name, sealed[:size], b"here")
    for binding in (b"", b"there"):
        with pytest.raises(Exception, match=r"^$"):
            cipher.decrypt_bound(name, sealed, binding)
    with pytest.raises(Exception, match=r"^$"):
        AesGcmCipher(KEY[::-1]).decrypt_bound(name, sealed, b"here")
    with pytest.raises(ValueError, match="encrypted with 'aes'"):
        cipher.decrypt("aes", sealed)


@pytest.mark.parametrize("key", [b"", b"x" * 15, b"x" * 33, "x" * 32, 32 * [1], bytearray(32)])
def test_what_is_no_key_is_refused(key, monkeypatch):
    with pytest.raises(InvalidInputError, match="16, 24 or 32 bytes"):
        AesGcmCipher(key)


def test_keys_of_different_length_are_different_keys():
    name, sealed = AesGcmCipher(bytes(16)).encrypt(b"text")
    for size in (24, 32):
        with pytest.raises(Exception, match=r"^$"):
            AesGcmCipher(bytes(size)).decrypt(name, sealed)


def test_the_environment_has_a_key(monkeypatch):
    monkeypatch.delenv("LANGGRAPH_AES_KEY", raising=False)
    with pytest.raises(InvalidInputError, match="LANGGRAPH_AES_KEY"):
        AesGcmCipher()
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "k" * 32)
    assert AesGcmCipher(b"k" * 32).decrypt(*AesGcmCipher().encrypt(b"text")) == b"text"


def test_it_is_neither_shown_nor_pickled():
    cipher = AesGcmCipher(b"k" * 32)
    assert repr(cipher) == "AesGcmCipher()"
    for action in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="its key"):
            action(EncryptedSerializer(cipher))


def test_without_its_package_it_says_which_one():
    code = """
    import sys
    sys.modules["cryptography.hazmat.primitives.ciphers.aead"] = None
    from logsaver import AesGcmCipher
    try:
        AesGcmCipher(bytes(32))
    except ImportError as error:
        print(error)
    """
    assert 'pip install "logsaver[encryption-fast]"' in run_python(code).stdout


def test_importing_logsaver_does_not_import_it():
    code = "import sys, logsaver; print('cryptography' in sys.modules, 'Crypto' in sys.modules)"
    assert run_python(code).stdout.split() == ["False", "False"]


# -- nonces


def test_one_thread_counts_and_draws():
    cipher = AesGcmCipher(KEY)
    found = [salt_and_nonce(cipher.encrypt(b"")[1]) for _ in range(1000)]
    assert {salt for salt, _ in found} == {found[0][0]}
    assert [int.from_bytes(nonce[:4], "little") for _, nonce in found] == list(range(1000))
    assert len({nonce[4:] for _, nonce in found}) == 1000


def test_a_key_is_given_up_before_its_numbers_end(monkeypatch):
    monkeypatch.setattr(aesgcm, "TEXTS_PER_KEY", 3)
    cipher = AesGcmCipher(KEY)
    sealed = [cipher.encrypt(b"text") for _ in range(7)]
    salts = [salt for salt, _ in (salt_and_nonce(data) for _, data in sealed)]
    numbers = [data[16] for _, data in sealed]
    assert numbers == [0, 1, 2, 0, 1, 2, 0]
    assert len(set(salts)) == 3
    assert all(AesGcmCipher(KEY).decrypt(*each) == b"text" for each in sealed)


def test_threads_that_share_a_cipher_have_keys_of_their_own():
    cipher, barrier = AesGcmCipher(KEY), threading.Barrier(8)

    def work(_: int) -> list[tuple[bytes, bytes]]:
        barrier.wait()
        return [salt_and_nonce(cipher.encrypt(b"x")[1]) for _ in range(500)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    assert len({salt for thread in found for salt, _ in thread}) == 8
    assert len({each for thread in found for each in thread}) == 8 * 500


def in_forked_child(action: Callable[[], Any]) -> Any:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: sender.send(action()))
    child.start()
    answer = receiver.recv()
    child.join()
    return answer


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_another_key_even_if_it_draws_the_same_random_numbers(monkeypatch):
    """Numbers go on where the parent's stood, so without another key only chance would help."""
    cipher = AesGcmCipher(KEY)
    first = salt_and_nonce(cipher.encrypt(b"x")[1])[0]
    child, grandchild = in_forked_child(
        lambda: (
            cipher.encrypt(b"x")[1],
            in_forked_child(lambda: cipher.encrypt(b"x")[1]),
        )
    )
    parent = salt_and_nonce(cipher.encrypt(b"x")[1])[0]
    assert parent == first
    assert len({parent, salt_and_nonce(child)[0], salt_and_nonce(grandchild)[0]}) == 3
    assert [AesGcmCipher(KEY).decrypt("aes256gcm", each) for each in (child, grandchild)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_copy_of_the_whole_process_still_draws_other_nonces(monkeypatch):
    """A virtual machine's snapshot does not tell; a fork that goes unnoticed is the same."""
    cipher = AesGcmCipher(KEY)
    cipher.encrypt(b"x")

    def unnoticed() -> bytes:
        aesgcm._forks -= 1
        return cipher.encrypt(b"x")[1]

    child, parent = in_forked_child(unnoticed), cipher.encrypt(b"x")[1]
    assert child[:20] == parent[:20]  # key and number
    assert child[20:28] != parent[20:28]
