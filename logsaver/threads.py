"""All threads of a log: those that somebody asked for as objects, the others as a seal has them.

A `Sealed` knows the threads of a seal without their checkpoints. The first look-up of one makes a
`Thread` of it, and from then on that is the one that counts. So nobody pays for threads that
nobody asks for, and whoever holds a `Threads` does not see the difference.

Invariant: what is neither in `live` nor in `_gone` is as the seal says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from heapq import merge
from typing import Protocol

from sortedcontainers import SortedDict

from logsaver.overview import Overview
from logsaver.thread import Place, Summary, Thread, Wanted


class BadSealError(ValueError):
    """Raised when a seal does not hold what it should; says why."""


class Sealed(Protocol):
    """The threads of a seal."""

    def has(self, thread_id: str) -> bool: ...

    def from_id(self, minimum: str) -> Iterator[str]:
        """The ids from this one on, sorted."""

    def __len__(self) -> int: ...

    def thread(self, thread_id: str) -> Thread:
        """With all its checkpoints. Raises `BadSealError`."""

    def may_have(self, thread_id: str, wanted: Wanted) -> bool:
        """Whether one of its checkpoints may have these tags. Raises `BadSealError`."""

    def summaries(self) -> Iterator[tuple[str, Summary, Place]]:
        """Of every thread. Raises `BadSealError`."""

    def scanned(self, error: BadSealError) -> Mapping[str, Thread]:
        """The threads as a scan finds them at this place of the log: the seal is no good."""


class Threads(MutableMapping[str, Thread]):
    """Thread ids to threads, in the order of ids."""

    __slots__ = ("_gone", "_overview", "_sealed", "_touched", "live")

    def __init__(self, sealed: Sealed | None = None) -> None:
        self.live: SortedDict[str, Thread] = SortedDict()
        self._sealed = sealed
        self._gone: set[str] = set()  # ids of the seal
        self._touched: set[str] = set()  # what the overview has not heard of yet
        self._overview: Overview | None = None

    # -- one thread

    def __getitem__(self, thread_id: str) -> Thread:
        thread = self.live.get(thread_id)
        if thread is None:
            if not self._is_sealed(thread_id):
                raise KeyError(thread_id)
            thread = self._load(thread_id)
        return thread

    def __setitem__(self, thread_id: str, thread: Thread) -> None:
        self.live[thread_id] = thread
        self._touched.add(thread_id)

    def __delitem__(self, thread_id: str) -> None:
        if thread_id not in self:
            raise KeyError(thread_id)
        if self._sealed is not None and self._sealed.has(thread_id):
            self._gone.add(thread_id)
        self.live.pop(thread_id, None)
        self._touched.add(thread_id)

    def __contains__(self, thread_id: object) -> bool:
        return thread_id in self.live or self._is_sealed(thread_id)

    def discard(self, thread_id: str) -> None:
        """Remove a thread if it is there. Does not read a sealed one."""
        if thread_id in self:
            del self[thread_id]

    def changed(self, thread_id: str, thread: Thread) -> None:
        """Nothing that was known of it holds any more."""
        thread.known = None
        self._touched.add(thread_id)

    # -- many

    def __iter__(self) -> Iterator[str]:
        return iter([*self.from_id("")])  # whoever asks for each of them adds to `live`

    def from_id(self, minimum: str) -> Iterator[str]:
        """The ids from this one on, sorted."""
        live: Iterator[str] = self.live.irange(minimum=minimum)
        if self._sealed is None:
            return live
        return merge(live, filter(self._is_unread, self._sealed.from_id(minimum)))

    def __len__(self) -> int:
        if self._sealed is None:
            return len(self.live)
        read = sum(map(self._sealed.has, self.live.keys() | self._gone))
        return len(self.live) + len(self._sealed) - read

    def overview(self) -> Overview:
        """What can be told of all threads without their checkpoints, up to date."""
        # Taken away while it is changed: whoever is interrupted leaves none, and not half of one.
        overview, self._overview = self._overview, None
        if overview is None:
            overview = Overview({name: summary for name, summary, _ in self._unread()})
            self._touched.update(self.live)
        overview.take_in(self._touched, self.live)
        self._touched.clear()
        self._overview = overview
        return overview

    def unsealed(self) -> list[str]:
        """Threads that have changed since they were sealed, if ever they were."""
        return [
            thread_id
            for thread_id, thread in self.live.items()
            if thread.known is None or thread.known.place is None
        ]

    def sealed(self) -> Iterator[tuple[str, Summary, Place]]:
        """All others, by id, and where they are sealed."""
        live = (
            (thread_id, thread.summary(), thread.known.place)
            for thread_id, thread in self.live.items()
            if thread.known is not None and thread.known.place is not None
        )
        return merge(live, self._unread())

    def may_have(self, thread_id: str, wanted: Wanted) -> bool:
        """False if no checkpoint of the thread has these tags; for a sealed one it costs little."""
        if thread_id in self.live or not self._is_sealed(thread_id):
            return True
        assert self._sealed is not None
        try:
            return self._sealed.may_have(thread_id, wanted)
        except BadSealError as error:
            self._scan(error)
            return True

    # -- the seal

    def _is_sealed(self, thread_id: object) -> bool:
        return (
            self._sealed is not None
            and isinstance(thread_id, str)
            and thread_id not in self._gone
            and self._sealed.has(thread_id)
        )

    def _is_unread(self, thread_id: str) -> bool:
        """Of an id of the seal: whether the seal speaks for it."""
        return thread_id not in self.live and thread_id not in self._gone

    def _load(self, thread_id: str) -> Thread:
        assert self._sealed is not None
        try:
            thread = self._sealed.thread(thread_id)
        except BadSealError as error:
            self._scan(error)
            return self.live[thread_id]
        self.live[thread_id] = thread
        return thread

    def _unread(self) -> Iterator[tuple[str, Summary, Place]]:
        """What only the seal knows of."""
        if self._sealed is None:
            return iter(())
        try:
            found = [row for row in self._sealed.summaries() if self._is_unread(row[0])]
        except BadSealError as error:
            self._scan(error)
            return iter(())
        return iter(found)

    def _scan(self, error: BadSealError) -> None:
        """Do without the seal. What is live stays as it is: somebody may hold it, or change it."""
        assert self._sealed is not None
        for thread_id, thread in self._sealed.scanned(error).items():
            if self._is_unread(thread_id):
                self.live[thread_id] = thread
        self._sealed, self._gone, self._overview = None, set(), None

    def _check(self) -> None:
        """Assert everything that must hold between two calls, without loading what is sealed."""
        assert not self._gone or (self._sealed and all(map(self._sealed.has, self._gone)))
        ids = list(self)
        assert ids == sorted({*ids})
        for thread_id in ids:
            thread = self.live.get(thread_id)
            if thread is None:
                assert self._sealed is not None
                thread = self._sealed.thread(thread_id)
            thread._check(thread_id)  # noqa: SLF001 - one structure
        if self._overview is not None and not self._touched:
            self._overview._check()  # noqa: SLF001
            assert self._overview.summaries.keys() == {*ids}
