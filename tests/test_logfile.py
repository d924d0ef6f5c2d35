"""The seam to the operating system: what a sync is, and which calls a real process makes."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import types

import pytest

from logsaver import disk
from logsaver.disk import DISK


@pytest.fixture
def file(tmp_path):
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def test_a_sync_is_fdatasync(file, monkeypatch):
    synced = []
    monkeypatch.setattr(disk, "fcntl", types.SimpleNamespace())
    monkeypatch.setattr(os, "fdatasync", synced.append, raising=False)
    DISK.sync(file)
    assert synced == [file]


def test_on_macos_a_sync_is_f_fullfsync_and_nothing_less(file, monkeypatch):
    """There fsync returns when the drive has the bytes in its cache."""
    asked = []
    macos = types.SimpleNamespace(F_FULLFSYNC=51, fcntl=lambda *call: asked.append(call))
    monkeypatch.setattr(disk, "fcntl", macos)
    DISK.sync(file)
    assert asked == [(file, 51)]


def test_without_either_a_sync_is_fsync(file, monkeypatch):
    synced = []
    monkeypatch.setattr(disk, "fcntl", types.SimpleNamespace())
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, "fsync", synced.append)
    DISK.sync(file)
    assert synced == [file]


def test_a_directory_is_synced_by_its_own_descriptor(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd)))
    DISK.sync_directory(str(tmp_path))
    assert [stat.S_ISDIR(status.st_mode) for status in synced] == [True]
    assert synced[0].st_ino == tmp_path.stat().st_ino


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="no posix_fadvise here")
@pytest.mark.parametrize(("start", "end"), [(0, 1), (64, 5000), (4096, 8192), (5000, 5001)])
def test_every_page_that_holds_such_a_byte_is_dropped(file, monkeypatch, start, end):
    """The kernel keeps pages that are only partly in the range."""
    dropped = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *call: dropped.append(call))
    DISK.forget(file, start, end)
    [(fd, at, size, advice)] = dropped
    assert (fd, advice) == (file, os.POSIX_FADV_DONTNEED)
    assert at % 4096 == size % 4096 == 0
    assert at <= start
    assert end <= at + size


# -- a real process

CODE = """
import sys
from logsaver import LogSaver
from support import put

with LogSaver(sys.argv[1]) as saver:
    put(saver, "first", {"text": "one"})
    put(saver, "second", {"text": "two"})
with LogSaver(sys.argv[1]) as saver:
    put(saver, "third", {"text": "three"})
"""
CALL = re.compile(r"(pwrite64|fdatasync|fsync|rename|fadvise64)\(([^)]*)")


def can_trace() -> bool:
    strace = shutil.which("strace")
    if strace is None:
        return False
    return subprocess.run([strace, "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace here")
def test_a_real_process_makes_the_promised_calls_in_the_promised_order(path, tmp_path):
    trace = tmp_path / "trace"
    calls = "trace=pwrite64,fdatasync,fsync,rename,fadvise64"
    subprocess.run(
        ["strace", "-f", "-y", "-o", trace, "-e", calls, sys.executable, "-c", CODE, path],
        env={**os.environ, "PYTHONPATH": os.path.dirname(__file__)},
        check=True,
        timeout=60,
    )
    lines = trace.read_text().splitlines()
    found = [match[1] for line in lines if str(tmp_path) in line and (match := CALL.search(line))]
    assert found == [
        *("pwrite64", "fdatasync", "rename", "fsync"),  # a new log, and its directory
        *("pwrite64", "fdatasync"),
        *("pwrite64", "fdatasync"),
        "pwrite64",  # at close: the frame that vouches
        *("fadvise64", "pwrite64", "pwrite64", "fdatasync"),  # what was above the watermark first
        "pwrite64",
    ]
