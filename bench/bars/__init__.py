"""The numbers that were promised, measured. One module per topic; each yields its bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

TIMES = "\u00d7"


class Bar(NamedTuple):
    """A promise and what was measured."""

    what: str
    measured: float
    limit: float
    unit: str = TIMES
    at_least: bool = False
    possible: tuple[float, float] = (0, inf)  # outside of it the machine was measured, not us

    @property
    def verdict(self) -> str:
        low, high = self.possible
        if not low <= self.measured <= high:
            return "too noisy to tell"
        met = self.measured >= self.limit if self.at_least else self.measured <= self.limit
        return "met" if met else "not met"

    def row(self) -> list[str]:
        return [
            self.what,
            f"{self.measured:.3g} {self.unit}",
            f"{'≥' if self.at_least else '≤'} {self.limit:g} {self.unit}",
            self.verdict,
        ]


class Scale(NamedTuple):
    """How thorough a run is."""

    rounds: int = 5
    deep: bool = False  # also what takes minutes


Topic = Callable[[Scale], Iterator[Bar]]


def topics() -> dict[str, Topic]:
    from bench.bars import (  # noqa: PLC0415 - they import this module
        compaction,
        concurrency,
        encryption,
        listing,
        opening,
        putting,
        reading,
        sizes,
        starting,
    )

    modules = (
        putting,
        reading,
        listing,
        opening,
        concurrency,
        compaction,
        sizes,
        starting,
        encryption,
    )
    return {module.__name__.rpartition(".")[2]: module.bars for module in modules}
