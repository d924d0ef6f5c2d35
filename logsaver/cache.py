"""What was used most recently, up to a weight."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A mapping that forgets what has not been used for long.

    Two dicts: when the young one has half of the weight it becomes the old one, and the old one
    is forgotten. Needs no lock: every step is one operation on a dict, and if two threads get
    in each other's way, something is forgotten a little early.
    """

    __slots__ = ("_half", "_old", "_weight", "_young")

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}
        self._weight = 0

    def get(self, key: K) -> V | None:
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                return None
            self.put(key, *found)
        return found[0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        if weight > self._half:
            return
        self._young[key] = value, weight
        self._weight += weight
        if self._weight > self._half:
            self._old, self._young, self._weight = self._young, {}, 0

    def clear(self) -> None:
        self._young, self._old, self._weight = {}, {}, 0
