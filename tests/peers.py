"""Other processes that have a log open and do what a test tells them, one line at a time.

A peer is forked from a server that has imported everything, so it costs a few milliseconds; it
has nothing of the test's own process.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import graphs
import support
from encrypting import encrypt_if_told
from langgraph.types import Command

from logsaver import LogSaver
from logsaver.disk import LOCK, UNLOCK, Disk
from logsaver.rewriting import rewrite

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["peers"])

PATIENCE = 30.0


class PeerError(Exception):
    """What a line raised in the other process: the name of its class, and its message."""


class Peer:
    """A process with a `saver` on the log; options are those of `LogSaver`, `uid` who it is."""

    def __init__(self, path: str, *, uid: int | None = None, **options: Any) -> None:
        self._here, there = _context.Pipe()
        self._process = _context.Process(target=_serve, args=(there, path, uid, options))
        self._process.start()
        there.close()
        self.answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: str, **names: Any) -> Any:
        """Evaluate a line there. It knows `saver`, `rewrite`, `put` and all of `support`."""
        self.tell(line, **names)
        return self.answer()

    def tell(self, line: str, **names: Any) -> None:
        """Start it without waiting for the answer."""
        self._here.send((line, names))

    def answer(self) -> Any:
        assert self._here.poll(PATIENCE), "the other process does not answer"
        is_error, answer = self._here.recv()
        if is_error:
            raise PeerError(answer)
        return answer

    def is_busy(self) -> bool:
        return not self._here.poll(0)

    def kill(self, how: int = signal.SIGKILL) -> None:
        os.kill(self.pid, how)
        self._process.join(PATIENCE)
        self._here.close()

    def wait_for_its_end(self) -> None:
        self._process.join(PATIENCE)
        assert self._process.exitcode is not None, "the other process does not end"

    def close(self) -> None:
        if self._process.is_alive():
            self._here.send(None)
        self.wait_for_its_end()
        self._here.close()


@contextlib.contextmanager
def peers(count: int, path: str, **options: Any) -> Iterator[list[Peer]]:
    started: list[Peer] = []
    try:
        started.extend(Peer(path, **options) for _ in range(count))
        yield started
    finally:
        for peer in started:
            peer.close()


# -- what runs in the other process


def _serve(conn: Connection, path: str, uid: int | None, options: dict[str, Any]) -> None:
    encrypt_if_told()
    names: dict[str, Any] = {
        **vars(support),
        "graphs": graphs,
        "Command": Command,
        "os": os,
        "time": time,
        "asyncio": asyncio,
        "LogSaver": LogSaver,
        "rewrite": rewrite,
        "hold_lock": hold_lock,
        "release_lock": release_lock,
        "append_half_a_frame": append_half_a_frame,
        "put_for": put_for,
        "path": path,
        "open_saver": lambda: names.update(saver=LogSaver(path, **options)),
    }
    if uid is not None:
        os.setgid(uid)
        os.setuid(uid)
    if options.pop("opens", True):
        names["open_saver"]()
    conn.send((False, None))
    while (message := conn.recv()) is not None:
        line, more = message
        try:
            conn.send((False, eval(line, {**names, **more})))  # noqa: S307 - the tests' own lines
        except BaseException as error:  # noqa: BLE001 - the test is told
            conn.send((True, f"{type(error).__name__}: {error}"))
    if "saver" in names:
        names["saver"].close()


def put_for(saver: LogSaver, seconds: float) -> int:
    """Put without a pause; how often."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        support.put(saver, "t", {"x": count})
        count += 1
    return count


_held: dict[str, int] = {}


def hold_lock(path: str) -> None:
    """Take the lock of the log and keep it, like a process that was stopped in the middle."""
    _held[path] = os.open(path, os.O_RDWR)
    Disk.flock(_held[path], LOCK)


def release_lock(path: str) -> None:
    fd = _held.pop(path)
    Disk.flock(fd, UNLOCK)
    os.close(fd)


def append_half_a_frame(saver: LogSaver) -> None:
    """Put once; the second time, die in the middle of the write."""
    support.put(saver, "whole")
    store = saver._store
    whole = store.log.file.pwrite

    def write_half(data: bytes, at: int) -> int:
        whole(data[: len(data) // 2], at)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    store.log.file.pwrite = write_half
    support.put(saver, "half", {"x": "half a frame " * 20})
