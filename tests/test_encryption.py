"""Encrypted logs: what can be read without the key, and what is refused with it."""

from __future__ import annotations

import copy
import os
import pickle
import stat
import traceback
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from crashing import state_of
from encrypting import KEY
from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from support import ids, make_config, put

from logsaver import (
    AesGcmCipher,
    CorruptLogError,
    InvalidInputError,
    LogKeyError,
    LogSaver,
    LogSaverError,
    RecordTooLargeError,
    UnsupportedFormatError,
    rekey,
    repair,
    restore,
    stored,
    verify,
)
from logsaver.cipher import cipher_of, encryption_of
from logsaver.frame import (
    ENCRYPTED,
    FRAME_HEADER_SIZE,
    FileHeader,
    Frame,
    decode_frame,
    encode_frame,
)
from logsaver.record import Kind
from logsaver.rewriting import rewrite

OTHER_KEY = bytes(range(1, 33))


def usual(key: bytes = KEY) -> EncryptedSerializer:
    return EncryptedSerializer.from_pycryptodome_aes(key=key)


def fast(key: bytes = KEY) -> EncryptedSerializer:
    return EncryptedSerializer(AesGcmCipher(key))


both = pytest.mark.parametrize("make", [usual, fast])


class Backwards(CipherProtocol):
    """Hides and authenticates nothing; so what is refused with it is refused by us."""

    def __init__(self, *names: str) -> None:
        self.names = names or ("backwards",)
        self.calls = 0

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        self.calls += 1
        return self.names[self.calls % len(self.names)], plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername in self.names
        self.calls += 1
        return ciphertext[::-1]


def frames_of(data: bytes) -> list[Frame]:
    header = FileHeader.decode(data)
    found, at = [], header.data_start
    while at < len(data):
        found.append(decode_frame(data, at, offset=at, seed=header.seed))
        at = found[-1].end
    return found


# -- nothing can be read

CANARY = "canary"


class Canaries:
    """Text of which no two are the same, and that is nowhere else."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def __call__(self, what: str) -> str:
        self.all.append(f"{CANARY}-{what}-{len(self.all)}")
        return self.all[-1]


def fill(saver: LogSaver, canary: Canaries) -> None:
    """A record of each kind with a canary in each of its fields."""
    thread, ns, channel = canary("thread"), canary("ns"), canary("channel")
    long = canary("value") * 300
    metadata = {canary("key"): canary("tag"), "run_id": (run := canary("run")), "step": 1}
    first = put(saver, thread, {channel: long, "n": canary("short")}, ns=ns, metadata=metadata)
    second = put(
        saver,
        thread,
        {channel: long + canary("more"), canary("raw"): canary("bytes").encode()},
        ns=ns,
        parent=first,
        metadata={canary("key"): UUID(int=1)},
        checkpoint_id="z" + canary("id"),
    )
    writes = [(canary("channel"), canary("write")), (channel, long)]
    saver.put_writes(second, writes, canary("task"), canary("path"))
    early = make_config(canary("thread"), canary("ns"), canary("id"))
    saver.put_writes(early, writes, canary("task"))
    saver.copy_thread(thread, canary("copy"))
    gone = canary("gone")
    put(saver, gone, {}, metadata={"run_id": run})
    saver.delete_thread(gone)
    put(saver, canary("run"), {}, metadata={"run_id": run})
    saver.delete_for_runs([run])
    for _ in range(2):
        second = put(saver, thread, {channel: long}, ns=ns, parent=second)
    saver.prune([thread])


@both
def test_nothing_of_what_is_stored_can_be_read_in_the_file(tmp_path, make):
    plain, path = tmp_path / "plain.log", tmp_path / "agent.log"
    canary = Canaries()
    with LogSaver(plain) as saver:
        fill(saver, canary)
    with LogSaver(path, serde=make()) as saver:
        fill(saver, Canaries())
        files = [path.read_bytes()]
        expected = state_of(saver)
        rewrite(saver._store)
        files.append(path.read_bytes())
    files.append(path.read_bytes())
    # What is looked for is there when it is not encrypted, in records of all kinds but the one
    # that only a rewrite leaves.
    assert all(text.encode() in plain.read_bytes() for text in canary.all)
    kinds = {frame.kind for frame in frames_of(plain.read_bytes())}
    assert kinds >= {1, 2, 3, 4, 5, Kind.VOUCH}
    texts = [frame.payload.tobytes() for frame in frames_of(plain.read_bytes())]
    for data in files:
        assert CANARY.encode() not in data
        assert all(frame.flags == ENCRYPTED for frame in frames_of(data))
        for text in texts:
            # Nor any eight bytes of a payload, whatever they say.
            assert not any(text[at : at + 8] in data for at in range(0, len(text) - 8, 5))
    with LogSaver(path, serde=make()) as saver:
        assert state_of(saver) == expected
    assert verify(path, serde=make()).ok


@both
def test_a_frame_shows_its_size_and_what_its_header_says_and_nothing_else(path, make):
    """The same calls twice: no two frames have ciphertext in common."""
    with LogSaver(path, serde=make()) as saver:
        for _ in range(20):
            put(saver, "t", {"x": "same"}, checkpoint_id="same")
    payloads = [bytes(frame.payload) for frame in frames_of(Path(path).read_bytes())]
    assert len({len(payload) for payload in payloads[:-1]}) == 1
    pieces = [payload[at : at + 8] for payload in payloads for at in range(16, len(payload) - 8, 8)]
    # AES-GCM names the key of its process; that is in the first bytes.
    assert len(set(pieces)) >= len(pieces) - len(payloads)


def test_what_a_crash_left_and_is_set_aside_is_encrypted_and_nobody_elses(path, caplog):
    with LogSaver(path, serde=fast()) as saver:
        fill(saver, Canaries())
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - 300)
    with LogSaver(path, serde=fast()) as saver:
        put(saver, "later")
    files = sorted(Path(path).parent.iterdir())
    assert [file.name for file in files] == ["agent.log", "agent.log.torn-1"]
    for file in files:
        assert CANARY.encode() not in file.read_bytes()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_replaces_a_log_is_nobody_elses_from_the_start(path, monkeypatch):
    modes = []
    with LogSaver(path, serde=fast()) as saver:
        put(saver, "t")
        disk = saver._store.disk
        monkeypatch.setattr(
            type(disk),
            "replace",
            staticmethod(
                lambda new, old: (modes.append(os.stat(new).st_mode), os.replace(new, old))
            ),
        )
        rewrite(saver._store)
    rekey(path, fast(), usual())
    assert [stat.S_IMODE(mode) for mode in modes] == [0o600, 0o600]


# -- what it costs


@both
def test_a_call_is_one_call_of_the_cipher(path, make):
    class Counting(Backwards):
        pass

    cipher = Counting()
    with LogSaver(path, serde=EncryptedSerializer(cipher)) as saver:
        before = cipher.calls
        config = put(saver, "t", {f"channel-{n}": n for n in range(20)})
        saver.put_writes(config, [("x", n) for n in range(20)], "task")
        saver.delete_thread("nobody")
        saver.copy_thread("t", "copy")
        assert cipher.calls == before + 3
        saver.get_tuple(config)
        assert cipher.calls == before + 3  # still known
        saver._store.log.cache.clear()
        saver.get_tuple(config)
        assert cipher.calls == before + 5


@both
def test_an_encrypted_log_is_as_small_as_a_plain_one(tmp_path, make):
    """Values are shared and patched before they are encrypted."""
    sizes = {}
    for name, serde in {"plain": None, "encrypted": make()}.items():
        with LogSaver(tmp_path / name, serde=serde, fsync="never") as saver:
            config, messages = None, []
            for turn in range(60):
                messages.append({"role": "user", "text": f"a question, number {turn} " * 30})
                values = {"messages": messages, "document": "x" * 10_000}
                config = put(saver, "t", values, parent=config, new_versions={"messages": turn})
            sizes[name] = saver.stats().bytes
    assert sizes["plain"] < 60 * 10_000 / 4
    assert sizes["encrypted"] < sizes["plain"] * 1.05


# -- a frame that is not where it was written


class Forged(NamedTuple):
    what: str
    frames: list[tuple[int, bytes, int]]  # kind, payload and flags, in the order of the file


def forged(data: bytes) -> list[Forged]:
    """Logs with good checksums, that whoever can write to the file can make without the key."""
    all_of = [(frame.kind, bytes(frame.payload), frame.flags) for frame in frames_of(data)]
    one, two, three = all_of[:3]
    assert one[0] == two[0] == three[0] == Kind.CHECKPOINT
    assert len(one[1]) == len(two[1]) == len(three[1])  # so that offsets stay as they are
    changed = (one[0], one[1][:-1] + bytes([one[1][-1] ^ 1]), one[2])
    return [
        Forged("swapped", [two, one, three]),
        Forged("moved", [two, three]),
        Forged("added again in place of another", [one, one, three]),
        Forged("added again at the end", [one, two, three, one]),
        Forged("changed", [changed, two]),
        Forged("of another kind", [(Kind.WRITES, *one[1:]), two]),
        Forged("without a payload", [(one[0], b"", one[2])]),
        Forged("with a name of a cipher only", [(one[0], b"\x03aes", one[2])]),
        Forged("with half of a name", [(one[0], b"\x30aes", one[2])]),
        Forged("with a name that is no text", [(one[0], b"\x01\xff", one[2])]),
    ]


def built(header: FileHeader, frames: list[tuple[int, bytes, int]], synced: bool = True) -> bytes:
    data, previous = header.encode(), header.seed
    for kind, payload, flags in frames:
        upto = len(data) if synced else header.data_start
        frame, previous = encode_frame(kind, payload, len(data), previous, upto, header.seed, flags)
        data += frame
    return data


def three_puts(path: Any, serde: SerializerProtocol | None) -> bytes:
    with LogSaver(path, serde=serde, fsync="always") as saver:
        for number in range(3):
            put(saver, "t", {"n": number}, checkpoint_id=f"{number}")
    return Path(path).read_bytes()


def assert_refused(path: Path, data: bytes, serde: SerializerProtocol, at: int) -> None:
    path.write_bytes(data)
    for read_only in (True, False):
        with pytest.raises(CorruptLogError, match=r"not encrypted|cannot be decrypted") as caught:
            LogSaver(path, serde=serde, read_only=read_only)
        assert caught.value.offset == at
    assert path.read_bytes() == data
    assert not verify(path, serde=serde).ok
    assert verify(path).ok  # its checksums are good, and it says that it has looked at no more
    assert not verify(path).records_checked


every_cipher = pytest.mark.parametrize(
    "make", [usual, fast, lambda: EncryptedSerializer(Backwards())], ids=["aes", "gcm", "none"]
)


@every_cipher
def test_a_frame_that_stands_in_another_place_is_refused(tmp_path, make):
    path = tmp_path / "agent.log"
    serde = make()
    data = three_puts(path, serde)
    header = FileHeader.decode(data)
    path.unlink()
    # The way of building them is not what is refused.
    path.write_bytes(
        built(
            header,
            [tuple(f for f in (x.kind, bytes(x.payload), x.flags)) for x in frames_of(data)[:2]],
        )
    )
    LogSaver(path, serde=serde).close()
    for case in forged(data):
        bad = built(header, case.frames)
        first_bad = next(
            ours.offset
            for ours, theirs in zip(frames_of(bad), [*frames_of(data)[:3], None], strict=False)
            if theirs is None or (ours.kind, ours.payload) != (theirs.kind, theirs.payload)
        )
        assert_refused(path, bad, serde, first_bad)


@every_cipher
def test_what_a_frame_header_says_is_bound_too(tmp_path, make):
    """Else a frame could be taken from a copy of the log that went another way."""
    path = tmp_path / "agent.log"
    serde = make()
    data = three_puts(path, serde)
    header = FileHeader.decode(data)
    one, two, _, _ = frames_of(data)
    first = data[: one.end]
    for previous, upto in ((two.previous, header.data_start), (two.previous ^ 1, two.synced_upto)):
        frame, _ = encode_frame(
            two.kind, bytes(two.payload), two.offset, previous, upto, header.seed, ENCRYPTED
        )
        log = encryption_of(str(path), header, cipher_of(serde))
        bad = decode_frame(first + frame, one.end, offset=one.end, seed=header.seed)
        assert bad is not None
        with pytest.raises(ValueError, match="cannot be decrypted"):
            log.payload(bad)


@every_cipher
def test_a_frame_of_another_log_under_the_same_key_is_refused(tmp_path, make):
    serde = make()
    ours, theirs = tmp_path / "ours.log", tmp_path / "theirs.log"
    ours_data, theirs_data = three_puts(ours, serde), three_puts(theirs, serde)
    header = FileHeader.decode(ours_data)
    taken = [(f.kind, bytes(f.payload), f.flags) for f in frames_of(theirs_data)[:3]]
    kept = [(f.kind, bytes(f.payload), f.flags) for f in frames_of(ours_data)[:3]]
    mixed = [kept[0], taken[1], kept[2]]
    # Key checks may be of different length.
    assert_refused(ours, built(header, mixed), serde, frames_of(ours_data)[1].offset)


@every_cipher
def test_a_frame_of_an_earlier_generation_is_refused(path, make):
    serde = make()
    with LogSaver(path, serde=serde, fsync="always") as saver:
        put(saver, "t", {"n": 1}, checkpoint_id="1")
        before = Path(path).read_bytes()
        rewrite(saver._store)
    data = Path(path).read_bytes()
    old, new = frames_of(before)[0], frames_of(data)[0]
    assert (old.offset, old.size, old.previous != new.previous) == (new.offset, new.size, True)
    bad = built(FileHeader.decode(data), [(old.kind, bytes(old.payload), ENCRYPTED)])
    assert_refused(Path(path), bad, serde, old.offset)


@both
def test_a_frame_in_clear_is_refused_in_an_encrypted_log_and_the_other_way_round(tmp_path, make):
    path, serde = tmp_path / "agent.log", make()
    plain = frames_of(three_puts(tmp_path / "plain.log", None))
    data = three_puts(path, serde)
    header, frames = FileHeader.decode(data), frames_of(data)
    one = (frames[0].kind, bytes(frames[0].payload), ENCRYPTED)
    in_clear = (plain[1].kind, bytes(plain[1].payload))
    assert_refused(path, built(header, [one, (*in_clear, 0)]), serde, frames[1].offset)
    assert_refused(path, built(header, [one, (*in_clear, ENCRYPTED)]), serde, frames[1].offset)
    of_later_version = built(header, [one, (*one[:2], ENCRYPTED | 4)])
    path.write_bytes(of_later_version)
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        LogSaver(path, serde=serde)
    path.write_bytes(built(FileHeader(bytes(16)), [one]))
    with pytest.raises(CorruptLogError, match="encrypted, in a log that is not"):
        LogSaver(path)


def test_whoever_can_choose_what_is_encrypted_elsewhere_cannot_make_a_frame_of_it(tmp_path):
    """With LangGraph's cipher the binding is in the text. It must not be one that can be guessed.

    A value of another saver with the same key may be whatever a user of it wants.
    """
    path, serde = tmp_path / "agent.log", usual()
    data = three_puts(path, serde)
    header = FileHeader.decode(data)
    encryption = encryption_of(str(path), header, serde.cipher)
    frame = frames_of(data)[0]
    text = serde.cipher.decrypt("aes", bytes(frame.payload)[1:])
    assert text.endswith(encryption.payload(frame))
    again = encryption_of(
        str(path), FileHeader.decode(three_puts(tmp_path / "b", serde)), serde.cipher
    )
    # The digest is keyed: equal places in two logs, or generations, have nothing in common.
    assert encryption._bound._digest(b"place") != again._bound._digest(b"place")


# -- keys


@pytest.mark.parametrize("size", [16, 24, 32])
@both
def test_a_log_is_opened_with_its_key_again(path, make, size):
    with LogSaver(path, serde=make(KEY[:size])) as saver:
        config = put(saver, "t", {"x": "y"})
    for read_only in (True, False):
        with LogSaver(path, serde=make(KEY[:size]), read_only=read_only) as saver:
            assert saver.get_tuple(config).checkpoint["channel_values"] == {"x": "y"}


@pytest.mark.parametrize(
    "serde",
    [
        None,
        JsonPlusSerializer(),
        usual(OTHER_KEY),
        usual(KEY[:31]),
        usual(KEY[:16]),
        fast(OTHER_KEY),
        fast(KEY[:16]),
        EncryptedSerializer(Backwards()),
        EncryptedSerializer(Backwards("aes", "aes256gcm")),
    ],
)
@both
def test_without_the_right_key_a_log_is_refused_and_left_alone(path, make, serde):
    with LogSaver(path, serde=make()) as saver:
        put(saver, "t", {"x": "y"})
    before = Path(path).read_bytes()
    for read_only in (True, False):
        with pytest.raises(LogKeyError, match=r"with its key|Open it with the key"):
            LogSaver(path, serde=serde, read_only=read_only)
    with pytest.raises(LogKeyError):
        repair(path, path + ".out", serde=serde)
    with pytest.raises(LogKeyError):
        rekey(path, serde if isinstance(serde, EncryptedSerializer) else None, None)
    assert Path(path).read_bytes() == before
    assert [file.name for file in Path(path).parent.iterdir()] == ["agent.log"]


def test_the_right_key_of_the_other_cipher_is_refused_and_the_cipher_named(path):
    with LogSaver(path, serde=usual()) as saver:
        put(saver, "t")
    with pytest.raises(LogKeyError, match="cipher 'aes'"):
        LogSaver(path, serde=fast())


def test_the_environments_key_is_taken(path, monkeypatch):
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "k" * 32)
    with LogSaver(path, serde=EncryptedSerializer.from_pycryptodome_aes()) as saver:
        config = put(saver, "t")
    with LogSaver(path, serde=usual(b"k" * 32)) as saver:
        assert saver.get_tuple(config)
    rekey(path, usual(b"k" * 32), EncryptedSerializer(AesGcmCipher()))
    with LogSaver(path, serde=fast(b"k" * 32)) as saver:
        assert saver.get_tuple(config)


@pytest.mark.parametrize("key", [b"", b"short", b"x" * 33])
def test_a_key_of_no_length_that_there_is_makes_no_log(path, key):
    with pytest.raises(LogKeyError, match="16, 24 or 32 bytes"):
        LogSaver(path, serde=usual(key))
    assert list(Path(path).parent.iterdir()) == []
    Path(path).touch()  # the same for an empty file, which would become a log
    with pytest.raises(LogKeyError):
        LogSaver(path, serde=usual(key))
    assert [file.name for file in Path(path).parent.iterdir()] == ["agent.log"]
    assert os.path.getsize(path) == 0


def test_a_cipher_that_cannot_read_what_it_writes_makes_no_log(path):
    class Lossy(Backwards):
        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return ciphertext[::-1][:-1]

    with pytest.raises(LogKeyError):
        LogSaver(path, serde=EncryptedSerializer(Lossy()))
    assert list(Path(path).parent.iterdir()) == []


@pytest.mark.parametrize("name", ["", "x" * 256, None])
def test_a_cipher_without_a_usable_name_makes_no_log(path, name):
    with pytest.raises(LogKeyError, match="cannot encrypt"):
        LogSaver(path, serde=EncryptedSerializer(Backwards(name)))
    assert list(Path(path).parent.iterdir()) == []


def test_a_cipher_whose_key_check_is_too_long_makes_no_log(path):
    class Long(Backwards):
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "long", plaintext[::-1] + bytes(5000)

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return ciphertext[:-5000][::-1]

    with pytest.raises(LogKeyError, match="room for 4096"):
        LogSaver(path, serde=EncryptedSerializer(Long()))
    assert list(Path(path).parent.iterdir()) == []


@both
def test_a_plain_log_is_refused_with_a_key_and_the_error_says_how_to_convert_it(path, make):
    with LogSaver(path) as saver:
        put(saver, "t")
    before = Path(path).read_bytes()
    for read_only in (True, False):
        with pytest.raises(LogKeyError, match="rekey"):
            LogSaver(path, serde=make(), read_only=read_only)
    for call in (verify, lambda at, serde: repair(at, at + ".out", serde=serde)):
        with pytest.raises(LogKeyError, match="rekey"):
            call(path, serde=make())
    assert Path(path).read_bytes() == before
    assert [file.name for file in Path(path).parent.iterdir()] == ["agent.log"]


@both
def test_a_key_check_tells_nothing_about_the_key_and_does_for_no_other_log(tmp_path, make):
    serde = make()
    one, two = (three_puts(tmp_path / name, serde) for name in ("one.log", "two.log"))
    checks = [FileHeader.decode(data).key_check for data in (one, two)]
    assert checks[0] != checks[1]
    assert not any(KEY[at : at + 4] in check for check in checks for at in range(28))
    ours = FileHeader.decode(one)._replace(key_check=checks[1])
    (tmp_path / "one.log").write_bytes(ours.encode())
    with pytest.raises(LogKeyError):
        LogSaver(tmp_path / "one.log", serde=serde)


def test_a_header_that_says_encrypted_and_has_no_key_check_is_damaged(path):
    for check in (b"", b"\0", b"\x05aes", b"\x01\xff"):
        Path(path).write_bytes(FileHeader(bytes(16), flags=ENCRYPTED, key_check=check).encode())
        with pytest.raises(CorruptLogError, match="key check"):
            LogSaver(path, serde=fast())


def test_a_cipher_that_fails_in_the_middle_stores_nothing_of_that_call(path):
    class Failing(Backwards):
        fails: type[BaseException] | None = None

        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            if self.fails:
                raise self.fails
            return super().encrypt(plaintext)

    cipher = Failing()
    with LogSaver(path, serde=EncryptedSerializer(cipher)) as saver:
        put(saver, "t", checkpoint_id="1")
        before = state_of(saver)
        for fails, expected in (
            (ConnectionError, LogKeyError),
            (MemoryError, MemoryError),
            (KeyboardInterrupt, KeyboardInterrupt),
        ):
            cipher.fails = fails
            with pytest.raises(expected):
                put(saver, "t", checkpoint_id="2")
            cipher.fails = None
            assert state_of(saver) == before
        put(saver, "t", checkpoint_id="2")
        assert len(state_of(saver)) == 2
    assert verify(path).ok


def test_a_frame_that_is_too_large_once_it_is_encrypted_is_refused(saver, path, monkeypatch):
    monkeypatch.setattr("logsaver.cipher.MAX_PAYLOAD", 400)
    with LogSaver(path + ".2", serde=fast()) as encrypted:
        put(encrypted, "t", {"x": "y"})
        before = state_of(encrypted)
        with pytest.raises(RecordTooLargeError, match="when it is encrypted"):
            put(encrypted, "t", {"x": "y" * 200})
        assert state_of(encrypted) == before


def test_a_cipher_may_change_its_name(path):
    """As one does that names which of its keys it has used."""
    cipher = Backwards("key-1", "key-2", "schlüssel-3")
    with LogSaver(path, serde=EncryptedSerializer(cipher)) as saver:
        configs = [put(saver, "t", {"n": number}) for number in range(6)]
    with LogSaver(path, serde=EncryptedSerializer(Backwards(*cipher.names))) as saver:
        for number, config in enumerate(configs):
            assert saver.get_tuple(config).checkpoint["channel_values"] == {"n": number}


# -- who shares a log


def test_a_saver_in_the_same_process_needs_the_key_too(path):
    with LogSaver(path, serde=usual()) as saver:
        config = put(saver, "t", {"x": "y"})
        for serde in (None, usual(OTHER_KEY), fast(), JsonPlusSerializer()):
            with pytest.raises(LogKeyError):
                LogSaver(path, serde=serde)
        with LogSaver(path, serde=usual()) as other:
            assert other._store is saver._store
            assert other.get_tuple(config)
    with LogSaver(path + ".plain") as plain:
        with pytest.raises(LogKeyError, match="not encrypted"):
            LogSaver(path + ".plain", serde=usual())
        assert put(plain, "t")


def test_clones_that_langgraph_makes_read_and_write_the_same_log(path):
    with LogSaver(path, serde=usual()) as saver:
        config = put(saver, "t", {"x": UUID(int=7)})
        strict = saver.with_allowlist([("some.module", "Thing")])
        assert strict is saver or type(strict.serde) is EncryptedSerializer
        strict = copy.copy(saver)
        strict.serde = EncryptedSerializer(saver.serde.cipher, JsonPlusSerializer())
        for clone in (strict, copy.copy(saver)):
            assert clone.get_tuple(config).checkpoint["channel_values"] == {"x": UUID(int=7)}
            put(clone, "t", {"x": "more"}, parent=config)
        assert len(list(saver.list(None))) == 3
        kinds = {type(item.channels["x"].type) for item in stored(saver, make_config("t"))}
        assert kinds == {str}
        assert "+" not in "".join(
            value.type
            for item in stored(saver, make_config("t"))
            for value in (item.checkpoint, item.metadata, *item.channels.values())
        )


def test_an_encrypting_serializer_that_is_set_later_encrypts_values_as_it_always_did(path):
    """A log that was opened without a key stays one that can be opened without."""
    with LogSaver(path) as saver:
        saver.serde = usual()
        config = put(saver, "t", {"x": CANARY})
        assert saver.get_tuple(config).checkpoint["channel_values"] == {"x": CANARY}
    assert CANARY.encode() not in Path(path).read_bytes()
    with LogSaver(path, read_only=True) as saver:
        saver.serde = usual()
        assert saver.get_tuple(config).checkpoint["channel_values"] == {"x": CANARY}


def test_a_subclass_that_encrypts_in_its_own_way_goes_on_doing_that(path):
    class Twice(EncryptedSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            kind, data = super().dumps_typed(obj)
            return f"twice:{kind}", data

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return super().loads_typed((data[0].removeprefix("twice:"), data[1]))

    with LogSaver(path, serde=Twice(Backwards())) as saver:
        config = put(saver, "t", {"x": "y"})
        assert saver.get_tuple(config).checkpoint["channel_values"] == {"x": "y"}
        (item,) = stored(saver, config)
        assert item.channels["x"].type == "twice:msgpack+backwards"
        assert all(frame.flags for frame in frames_of(Path(path).read_bytes()))


def test_a_type_name_with_a_plus_comes_back(path):
    """`EncryptedSerializer` takes what follows a plus for the name of a cipher."""

    class Plus(JsonPlusSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            return "ld+json", super().dumps_typed(obj)[1]

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            assert data[0] == "ld+json"
            return super().loads_typed(("msgpack", data[1]))

    with LogSaver(path, serde=EncryptedSerializer(Backwards(), Plus())) as saver:
        config = put(saver, "t", {"x": "y"})
        assert saver.get_tuple(config).checkpoint["channel_values"] == {"x": "y"}


def test_threads_move_between_plain_and_encrypted_logs(tmp_path):
    with (
        LogSaver(tmp_path / "a.log") as one,
        LogSaver(tmp_path / "b.log", serde=usual()) as two,
        LogSaver(tmp_path / "c.log") as three,
    ):
        fill(one, Canaries())
        threads = [make_config(thread.thread_id, None) for thread in one.threads()]
        assert threads
        for thread in threads:
            restore(two, stored(one, thread))
            restore(three, stored(two, thread))
            assert list(three.list(thread)) == list(one.list(thread)) == list(two.list(thread))
    assert CANARY.encode() not in (tmp_path / "b.log").read_bytes()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@both
def test_a_forked_child_reads_and_writes_with_the_parents_key(path, make):
    with LogSaver(path, serde=make()) as saver:
        config = put(saver, "t", {"x": "parent"})
        child = os.fork()
        if not child:
            try:
                assert saver.get_tuple(config)
                put(saver, "t", {"x": "child"}, parent=config)
                os._exit(0)
            finally:
                os._exit(1)
        put(saver, "t", {"x": "parent again"}, parent=config)
        assert os.waitpid(child, 0)[1] == 0
        assert len(list(saver.list(None))) == 3
    with LogSaver(path, serde=make()) as saver:
        assert len(list(saver.list(None))) == 3


def test_a_saver_with_a_key_is_not_pickled(path):
    with LogSaver(path, serde=fast()) as saver, pytest.raises(TypeError, match="serializer"):
        pickle.dumps(saver)


# -- a key is shown to nobody


def locals_of(error: BaseException | None) -> str:
    """All that a tool can show of an error: local variables of every frame, of every cause."""
    seen: list[str] = []
    while error is not None:
        report = traceback.TracebackException.from_exception(error, capture_locals=True)
        seen.append("".join(report.format()))
        error = error.__cause__ or error.__context__
    return "\n".join(seen)


SECRET = b"\x00a-key-that-nobody-may-see-12345\xff"[:32]


def test_what_makes_a_key_visible_is_seen_by_these_tests():
    """LangGraph's cipher has the key in a variable of the function that raises."""
    with pytest.raises(ValueError, match="MAC") as caught:
        usual(SECRET).cipher.decrypt("aes", bytes(50))
    assert repr(SECRET)[8:24] in locals_of(_without_tests(caught.value))


@pytest.mark.parametrize("make", [usual, fast])
def test_no_error_shows_a_key(tmp_path, make, caplog, monkeypatch):
    path = tmp_path / "agent.log"
    data = three_puts(path, make(SECRET))
    plain = tmp_path / "plain.log"
    three_puts(plain, None)
    bad = built(FileHeader.decode(data), forged(data)[0].frames)
    spoiled = tmp_path / "spoiled.log"
    spoiled.write_bytes(bad)
    monkeypatch.setenv("LANGGRAPH_AES_KEY", SECRET[1:20].decode())

    def key(size: int) -> bytes:
        return SECRET[:size]

    out = tmp_path / "out.log"
    actions = [
        lambda: LogSaver(path, serde=fast(SECRET[::-1])),
        lambda: LogSaver(plain, serde=make(SECRET)),
        lambda: LogSaver(spoiled, serde=make(SECRET)),
        lambda: LogSaver(tmp_path / "new.log", serde=usual(key(31))),
        lambda: rekey(path, make(SECRET), usual(key(31))),
        lambda: rekey(plain, make(SECRET), None),
        lambda: repair(plain, out, serde=make(SECRET)),
        lambda: verify(plain, serde=make(SECRET)),
        lambda: AesGcmCipher(key(31)),
        lambda: AesGcmCipher(SECRET.hex()),
        AesGcmCipher,
        lambda: pickle.dumps(AesGcmCipher(SECRET)),
    ]
    shown = [repr(SECRET)[8:24], SECRET[3:20].hex()]
    for action in actions:
        with pytest.raises((LogSaverError, TypeError)) as caught:
            action()
        # The frames of the test itself have it, and are not ours.
        told = locals_of(_without_tests(caught.value))
        assert not any(text in told for text in shown), told
    assert make(SECRET).cipher.__repr__().find("key") == -1
    with LogSaver(path, serde=make(SECRET)) as saver:
        assert not any(text in repr(saver) + repr(saver._store.log) for text in shown)
    assert not any(text in caplog.text for text in shown)


def _without_tests(error: BaseException) -> BaseException:
    """Without the frames of this file."""
    each: BaseException | None = error
    while each is not None:
        tb = each.__traceback__
        while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
            tb = tb.tb_next
        each.__traceback__ = tb
        each = each.__cause__ or each.__context__
    return error


# -- without the key


@both
def test_verify_without_the_key_finds_damage_and_says_what_it_did_not_look_at(path, make):
    data = three_puts(path, make())
    report = verify(path)
    assert (report.ok, report.records_checked, report.frames) == (True, False, 4)
    assert verify(path, serde=make()).records_checked
    one = frames_of(data)[0]
    spoiled = bytearray(data)
    spoiled[one.offset + FRAME_HEADER_SIZE + 5] ^= 1
    Path(path).write_bytes(spoiled)
    for serde in (None, make()):
        report = verify(path, serde=serde)
        assert [damage.start for damage in report.damage] == [one.offset]
    assert not verify(path).ok


@both
def test_a_torn_tail_is_cut_off_and_recognised_without_the_key(path, make):
    data = three_puts(path, make())
    end = frames_of(data)[-2].offset
    Path(path).write_bytes(data[: end + 50])
    assert verify(path).torn_tail is not None
    with LogSaver(path, serde=make()) as saver:
        assert len(list(saver.list(None))) == 2
        put(saver, "t")
    assert verify(path, serde=make()).ok


@both
def test_repair_saves_what_is_intact_under_the_same_key(tmp_path, make):
    path, out = tmp_path / "agent.log", tmp_path / "out.log"
    data = bytearray(three_puts(path, make()))
    second = frames_of(bytes(data))[1]
    data[second.offset + FRAME_HEADER_SIZE + 30] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogKeyError, match="bound to its place"):
        repair(path, out)
    assert not out.exists()
    report = repair(path, out, serde=make())
    assert [lost.start for lost in report.lost] == [second.offset]
    with LogSaver(out, serde=make()) as saver:
        assert ids(saver.list(None)) == ["2", "0"]
    with pytest.raises(LogKeyError):
        LogSaver(out)


def test_frames_follow_each_other_as_in_a_plain_log(path):
    data = three_puts(path, fast())
    frames = frames_of(data)
    assert all(one.end == other.offset for one, other in pairwise(frames))
    assert frames[-1].kind == Kind.VOUCH


def test_rekey_takes_serializers_that_encrypt_only(path):
    with LogSaver(path) as saver:
        put(saver, "t")
    with pytest.raises(InvalidInputError, match="EncryptedSerializer or None"):
        rekey(path, None, JsonPlusSerializer())
