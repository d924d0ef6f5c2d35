"""`rekey`: to encrypted, to another key, and back, while others use the log, and cut short."""

from __future__ import annotations

import importlib
import logging
import os
import random
from pathlib import Path
from typing import NamedTuple

import pytest
from crashing import PATH, RecordingDisk, open_on, state_of
from encrypting import KEY
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from peers import PeerError, peers
from simdisk import Files, SimDisk
from support import make_checkpoint, make_config, put
from test_crashes import EVERY_KIND
from typer.testing import CliRunner

from logsaver import (
    AesGcmCipher,
    CorruptLogError,
    InvalidInputError,
    LockTimeoutError,
    LogKeyError,
    LogOpenError,
    LogSaver,
    rekey,
    verify,
)
from logsaver.cli.app import app
from logsaver.frame import ENCRYPTED, FileHeader
from logsaver.store import Store
from logsaver.successor import SUFFIX, Successor

OLD = EncryptedSerializer(AesGcmCipher(KEY))
NEW = EncryptedSerializer.from_pycryptodome_aes(key=KEY[:16])
WAYS = {
    "to-encrypted": (None, NEW),
    "to-another-key": (OLD, NEW),
    "to-another-cipher": (EncryptedSerializer(AesGcmCipher(KEY[:16])), NEW),
    "to-plain": (OLD, None),
    "to-the-same": (OLD, OLD),
}
every_way = pytest.mark.parametrize(("old", "new"), WAYS.values(), ids=WAYS)

Serde = SerializerProtocol | None


def fill(saver: LogSaver) -> None:
    for call in EVERY_KIND:
        call.do(saver)


@pytest.fixture
def use_disk(monkeypatch):
    """Puts `rekey` on a simulated disk."""
    module = importlib.import_module("logsaver.rekeying")

    def use(disk: SimDisk) -> SimDisk:
        monkeypatch.setattr(module, "DISK", disk)
        return disk

    return use


# -- what it does


@every_way
def test_a_log_holds_the_same_under_its_new_key(path, old, new):
    with LogSaver(path, serde=old) as saver:
        fill(saver)
        before = state_of(saver)
    rekey(path, old, new)
    header = FileHeader.decode(Path(path).read_bytes())
    assert header.generation == 1
    assert bool(header.flags & ENCRYPTED) == bool(header.key_check) == (new is not None)
    assert [file.name for file in Path(path).parent.iterdir()] == ["agent.log"]
    if new is not old:
        with pytest.raises(LogKeyError):
            LogSaver(path, serde=old)
    with LogSaver(path, serde=new) as saver:
        assert state_of(saver) == before
        put(saver, "more")
    assert verify(path, serde=new).ok


def test_there_and_back_again(path):
    with LogSaver(path) as saver:
        fill(saver)
        before = state_of(saver)
    for old, new in ((None, OLD), (OLD, NEW), (NEW, OLD), (OLD, None)):
        rekey(path, old, new)
    with LogSaver(path) as saver:
        assert state_of(saver) == before


def test_what_cannot_be_done_is_told_and_changes_nothing(path, tmp_path):
    with pytest.raises(LogOpenError, match="no such file"):
        rekey(path, None, NEW)
    assert list(tmp_path.iterdir()) == []
    with LogSaver(path, serde=OLD) as saver:
        fill(saver)
    before = Path(path).read_bytes()
    short = EncryptedSerializer.from_pycryptodome_aes(key=b"short")
    for old, new, error in (
        (None, NEW, LogKeyError),
        (NEW, OLD, LogKeyError),
        (OLD, short, LogKeyError),
        (short, NEW, LogKeyError),
        (OLD, OLD.serde, InvalidInputError),
    ):
        with pytest.raises(error):
            rekey(path, old, new)
    with pytest.raises(InvalidInputError):
        rekey(path, OLD, NEW, lock_timeout=-1)
    assert Path(path).read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["agent.log"]


def test_a_damaged_log_is_not_encrypted_anew(path):
    with LogSaver(path, serde=OLD, fsync="always") as saver:
        fill(saver)
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(CorruptLogError):
        rekey(path, OLD, NEW)
    assert Path(path).read_bytes() == data


def test_it_waits_for_whoever_is_replacing_the_log(path):
    with LogSaver(path) as saver:
        put(saver, "t")
        successor = Successor.claim(saver._store.disk, path)
        with pytest.raises(LockTimeoutError):
            rekey(path, None, NEW, lock_timeout=0.05)
        successor.release()
    rekey(path, None, NEW)
    assert LogSaver(path, serde=NEW).get_tuple(make_config("t"))


# -- while others use it


@every_way
def test_an_open_saver_is_told_and_stores_nothing_more(path, old, new):
    with LogSaver(path, serde=old) as saver, LogSaver(path, serde=old, read_only=True) as reader:
        config = put(saver, "t", {"x": "y"})
        assert reader.get_tuple(config)
        rekey(path, old, new)
        if new is old:
            put(saver, "t", parent=config)
            assert len(list(reader.list(None))) == 2
            return
        before = Path(path).read_bytes()
        for action in (
            lambda: saver.get_tuple(config),
            lambda: reader.get_tuple(config),
            lambda: put(saver, "t"),
            lambda: saver.delete_thread("t"),
            lambda: list(saver.list(None)),
        ):
            for _ in range(2):
                with pytest.raises(LogKeyError):
                    action()
        # Whoever has the new key can open it here and now, and the old one is refused.
        with LogSaver(path, serde=new) as other:
            assert other._store is not saver._store
            assert other.get_tuple(config).checkpoint["channel_values"] == {"x": "y"}
        with pytest.raises(LogKeyError):
            LogSaver(path, serde=old)
        assert Path(path).read_bytes() == before


def test_a_writer_of_another_process_loses_nothing_that_was_acknowledged(path):
    with LogSaver(path) as saver, peers(1, path) as (peer,):
        put(saver, "t", checkpoint_id="1")
        peer.ask("put(saver, 't', checkpoint_id='2')")
        rekey(path, None, NEW)
        with pytest.raises(PeerError, match="LogKeyError"):
            peer.ask("put(saver, 't', checkpoint_id='3')")
    with LogSaver(path, serde=NEW) as saver:
        assert len(list(saver.list(None))) == 2


# -- cut short


def opens_with(files: Files, serdes: list[Serde]) -> tuple[Serde, dict]:
    """Which of the serializers opens a log, and what it holds."""
    found = []
    for serde in serdes:
        disk = SimDisk(files)
        try:
            saver = open_on(disk, serde=serde)
        except LogKeyError:
            assert disk.files() == files
            continue
        found.append((serde, state_of(saver)))
        put(saver, "probe", checkpoint_id="probe")
        saver.close()
    assert len(found) == 1, "one key opens it, and one only"
    return found[0]


@every_way
def test_every_crash_leaves_the_log_as_it_was_or_as_it_is_to_be(use_disk, old, new):
    if new is old:
        return
    disk = use_disk(RecordingDisk())
    saver = open_on(disk, serde=old)
    for call in EVERY_KIND[:4]:
        call.do(saver)
    saver.close()
    expected = state_of(open_on(SimDisk(disk.files()), serde=old, read_only=True))
    del disk.moments[:]
    rekey(PATH, old, new)
    disk.after("return")
    randomness, seen = random.Random(1), []
    for moment in disk.moments:
        crashes = [moment.picture.some_crash(randomness) for _ in range(4)]
        for files in {tuple(sorted(files.items())) for files in crashes}:
            serde, state = opens_with(dict(files), [old, new])
            assert state == expected
            seen.append(serde)
            leftovers = {name for name in dict(files) if name != PATH}
            assert leftovers <= {PATH + SUFFIX}
    assert seen[0] is old
    assert seen[-1] is new
    # Once it has returned there is no way back.
    files = disk.moments[-1].picture.some_crash(randomness)
    assert opens_with(files, [old, new])[0] is new


def test_a_disk_that_fails_leaves_the_log_as_it_was(use_disk):
    class Full(SimDisk):
        def pwrite(self, fd: int, data: bytes, at: int) -> int:
            if at == 0:  # only a new file is written from its start
                raise OSError(28, "no space left on device")
            return super().pwrite(fd, data, at)

    disk = SimDisk()
    saver = open_on(disk)
    fill(saver)
    before = state_of(saver)
    saver.close()
    full = use_disk(Full(disk.files()))
    with pytest.raises(OSError, match="no space"):
        rekey(PATH, None, NEW)
    assert full.files() == disk.files()
    assert state_of(open_on(full)) == before


# -- the command


class Answer(NamedTuple):
    code: int
    stdout: str
    stderr: str


def command(*args: object, **env: str) -> Answer:
    loggers = [logging.getLogger(name) for name in ("logsaver", "langgraph")]
    levels = [logger.level for logger in loggers]
    result = CliRunner().invoke(
        app,
        [*map(str, args), *(["--yes"] if args[0] == "rekey" else [])],
        env={"LANGGRAPH_AES_KEY": None, "COLUMNS": "200", **env},
    )
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)  # the command makes them quiet for good
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return Answer(result.exit_code, result.stdout, result.stderr)


def test_the_command_encrypts_changes_the_key_and_decrypts(path, tmp_path):
    one, two = tmp_path / "one.key", tmp_path / "two.key"
    one.write_bytes(KEY)
    two.write_bytes(KEY[:16] + b"\n")  # as an editor leaves it
    with LogSaver(path) as saver:
        fill(saver)
        before = state_of(saver)
    assert command("rekey", path, "--new-key-file", one).code == 0
    assert command("threads", path).code == 2
    for name in ("threads", "stats", "verify"):
        assert command(name, path, "--key-file", one).code == 0
    wrong = command("threads", path, "--key-file", two)
    assert (wrong.code, "not the key" in wrong.stderr) == (2, True)
    assert "only checksums" in command("verify", path).stdout
    told = command(
        "rekey", path, "--key-file", one, "--new-key-file", two, "--cipher", "aes256gcm", "--json"
    )
    assert '"cipher": "aes256gcm"' in told.stdout
    with LogSaver(path, serde=EncryptedSerializer(AesGcmCipher(KEY[:16]))) as saver:
        assert state_of(saver) == before
    assert command("history", path, "a", "--key-file", two).code == 0
    assert command("repair", path, tmp_path / "out.log", "--key-file", two).code == 0
    assert command("rekey", path, "--key-file", two).code == 2  # to what?
    assert command("rekey", path, "--key-file", two, "--decrypt").code == 0
    with LogSaver(path) as saver:
        assert state_of(saver) == before


def test_the_command_takes_the_key_of_the_environment_for_a_plain_log(path):
    with LogSaver(path) as saver:
        put(saver, "t")
    assert command("rekey", path).code == 2
    assert command("rekey", path, LANGGRAPH_AES_KEY="short").code == 2
    asked = CliRunner().invoke(app, ["rekey", path], env={"LANGGRAPH_AES_KEY": "k" * 32})
    assert (asked.exit_code, "pass --yes" in asked.stderr) == (2, True)
    key = {"LANGGRAPH_AES_KEY": "k" * 32}
    assert command("rekey", path, **key).code == 0
    assert command("threads", path, **key).code == 0
    assert command("threads", path).code == 2
    with LogSaver(path, serde=EncryptedSerializer.from_pycryptodome_aes(key=b"k" * 32)) as saver:
        assert saver.get_tuple(make_config("t"))


def test_a_rekey_uses_a_store_of_its_own(path):
    """One that other savers of the process share has the old key."""
    with LogSaver(path) as saver:
        put(saver, "t")
        store = saver._store
        rekey(path, None, NEW)
        assert isinstance(store, Store)
        assert store.log.encryption is None


def test_the_command_keeps_the_cipher_of_a_log_whose_key_it_changes(path, tmp_path):
    """It went over to the slower one, and a program with `AesGcmCipher(new)` was turned away."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1" * 32)
    two.write_bytes(b"2" * 32)
    LogSaver(path, serde=EncryptedSerializer(AesGcmCipher(b"1" * 32))).close()
    rekeyed = command("rekey", path, "--key-file", one, "--new-key-file", two, "--json")
    assert '"cipher": "aes256gcm"' in rekeyed.stdout
    LogSaver(path, serde=EncryptedSerializer(AesGcmCipher(b"2" * 32))).close()


def test_the_command_changes_the_cipher_alone(path, tmp_path):
    """It wanted a new key for that."""
    one = tmp_path / "one"
    one.write_bytes(b"1" * 32)
    LogSaver(path).close()
    assert command("rekey", path, "--new-key-file", one).code == 0
    changed = command("rekey", path, "--key-file", one, "--cipher", "aes256gcm", "--json")
    assert '"cipher": "aes256gcm"' in changed.stdout
    LogSaver(path, serde=EncryptedSerializer(AesGcmCipher(b"1" * 32))).close()
    back = command("rekey", path, "--cipher", "aes", LANGGRAPH_AES_KEY="1" * 32)
    assert back.code == 0, back.stderr
    # The same key and the same cipher would be no change.
    assert command("rekey", path, "--key-file", one, "--cipher", "aes").code == 2


def test_the_command_asks_for_the_key_that_an_encrypted_log_has_now(path, tmp_path):
    """It complained of a serializer that nobody had given."""
    two = tmp_path / "two"
    two.write_bytes(b"2" * 32)
    LogSaver(path, serde=OLD).close()
    refused = command("rekey", path, "--new-key-file", two)
    assert refused.code == 2
    assert "--key-file" in refused.stderr


def test_a_close_after_somebody_elses_rekey_is_a_close(path):
    """What was put is in the new file, which was synced: there is nothing to tell."""
    for _ in range(5):
        saver = LogSaver(path, auto_compact=False)
        for number in range(3):
            config = make_config(__pregel_durability="async")
            saver.put(config, make_checkpoint({"x": number}), {}, {})
        rekey(path, None, NEW)
        saver.close()
        with LogSaver(path, serde=NEW) as again:
            assert len(list(again.list(None))) == 3
        os.unlink(path)
