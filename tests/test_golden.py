"""Two more golden files: what came after a compaction, with seals; and the same, encrypted.

Made once, by

    python tests/test_golden.py tests/data

and left as they are: a later version of the code has to read them.
"""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path
from unittest import mock

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from test_format import a_checkpoint, in_thread

from logsaver import AesGcmCipher, LogKeyError, LogSaver, verify
from logsaver.recovery import frames
from logsaver.value import is_in_pieces
from logsaver.values import stored_values

DATA = Path(__file__).parent / "data"
KEY = bytes(range(32))
FILES = {"compacted-1.log": None, "encrypted-1.log": KEY}
STEPS = 4


def serde_for(key):
    return key and EncryptedSerializer(AesGcmCipher(key))


def story(step):
    """A text that grows: a value of later steps is stored as pieces of earlier ones."""
    return "".join(f"{random.Random(n).random()} " for n in range(40 * (step + 1)))


def add_steps(saver, thread_id, first, last):
    parent = in_thread(thread_id, "", f"c{first - 1}" if first else None)
    for step in range(first, last):
        values = {"story": story(step), "same": "as ever"}
        versions = {"story": step + 1, "same": 1}
        new = versions if step == 0 else {"story": step + 1}
        checkpoint = a_checkpoint(f"c{step}", values, versions)
        parent = saver.put(parent, checkpoint, {"step": step}, new)
        saver.put_writes(parent, [("note", f"of step {step}")], f"task-{step}", "~path")


def make(path, key):
    with (
        mock.patch.multiple("logsaver.sealing", AT_CLOSE=0, SHARE=0),
        LogSaver(path, serde=serde_for(key), auto_compact=False) as saver,
    ):
        add_steps(saver, "grown", 0, STEPS)
        saver.copy_thread("grown", "copied")
        saver.put(in_thread("gone"), a_checkpoint("c0", {"x": "gone for good"}), {}, {"x": 1})
        saver.delete_thread("gone")
        saver.compact()
        add_steps(saver, "copied", STEPS, STEPS + 1)
    with LogSaver(path, serde=serde_for(key), auto_compact=False) as saver:  # reads the seal
        add_steps(saver, "grown", STEPS, STEPS + 2)


@pytest.fixture(params=FILES)
def golden(request):
    with LogSaver(
        DATA / request.param, serde=serde_for(FILES[request.param]), read_only=True
    ) as saver:
        yield saver


def test_the_files_hold_links_seals_and_values_in_pieces(golden):
    log = golden._store.log
    start = log.header.data_start
    found = list(frames(log.file, seed=log.seed, start=start, previous=log.seed))
    kinds = [frame.kind for frame in found]
    assert {1, 2, 6, 8, 9, 10} <= set(kinds)
    assert kinds.index(8) < len(kinds) - 1 - kinds[::-1].index(1)  # more came after the seal
    records = [log.decode(frame) for frame in found]
    assert any(is_in_pieces(value) for record in records for value in stored_values(record))


@pytest.mark.parametrize(("thread_id", "steps"), [("grown", STEPS + 2), ("copied", STEPS + 1)])
def test_the_files_are_read_as_they_were_written(golden, thread_id, steps):
    listed = list(golden.list(in_thread(thread_id)))
    assert [item.metadata["step"] for item in listed] == [*range(steps)][::-1]
    for step, item in enumerate(reversed(listed)):
        assert item.checkpoint["channel_values"] == {"story": story(step), "same": "as ever"}
        assert item.pending_writes == [(f"task-{step}", "note", f"of step {step}")]
    assert [item.parent_config for item in listed] == [
        *(item.config for item in listed[1:]), None
    ]  # fmt: skip
    assert golden.get_tuple(in_thread("gone")) is None


@pytest.mark.parametrize("name", FILES)
def test_the_files_verify_compact_and_take_new_writes(name, tmp_path):
    path = tmp_path / name
    shutil.copy(DATA / name, path)
    serde = serde_for(FILES[name])
    assert verify(path, serde=serde).ok
    with LogSaver(path, serde=serde) as saver:
        saver.compact()
        add_steps(saver, "copied", STEPS + 1, STEPS + 3)
        found = saver.get_tuple(in_thread("copied"))
        assert found.checkpoint["channel_values"]["story"] == story(STEPS + 2)
    assert verify(path, serde=serde).ok


def test_what_was_deleted_is_in_no_file_and_the_encrypted_one_shows_nothing():
    assert b"gone" not in (DATA / "compacted-1.log").read_bytes()
    shown = (DATA / "encrypted-1.log").read_bytes()
    assert not [word for word in (b"grown", b"copied", b"story", b"note", b"c1") if word in shown]
    with pytest.raises(LogKeyError):
        LogSaver(DATA / "encrypted-1.log", read_only=True)


if __name__ == "__main__":
    for name, key in FILES.items():
        make(Path(sys.argv[1]) / name, key)
