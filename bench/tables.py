"""All savers on one trace: measured, and as rows of a table."""

from __future__ import annotations

from typing import NamedTuple

from bench.recording import Trace
from bench.replay import (
    BY_ID,
    FDATASYNC,
    FLOORS,
    LATEST,
    PWRITE,
    Cost,
    Summary,
    Times,
    cost,
    interleaved,
    summary,
    writing,
)
from bench.savers import (
    ASYNC_SAVERS,
    LMDB,
    LOG_ASYNC,
    LOG_NEVER,
    LOG_SYNC,
    MEMORY,
    SAVERS,
    SQLITE,
    SQLITE_ASYNC,
    SQLITE_OFF,
    SYNCING,
)

ALL = [*SAVERS, *ASYNC_SAVERS, *FLOORS]
# Savers that promise as much as this mode of LogSaver, or less.
PEERS = {
    LOG_ASYNC: [MEMORY, SQLITE_OFF],
    LOG_SYNC: [SQLITE, SQLITE_ASYNC, LMDB],
    LOG_NEVER: [MEMORY, SQLITE_OFF],
}
HEAD = (
    "saver", "mean", "min", "median", "p99", "quiet", "to memory", "to pwrite", "to fdatasync",
    "get latest", "get by id", "disk MB", "memory MB",
)  # fmt: skip


class Measured(NamedTuple):
    """One saver on one trace. A floor has no reads and no file to speak of."""

    name: str
    write: Summary
    latest: Summary | None
    by_id: Summary | None
    cost: Cost | None

    def figures(self) -> dict[str, float]:
        """What can be compared with another saver's; less is better."""
        found = {"put": self.write.quiet if self.name in SYNCING else self.write.mean}
        if self.latest and self.by_id:
            found |= {"get latest": self.latest.median, "get by id": self.by_id.median}
        if self.cost:
            found |= {"disk": self.cost.disk, "memory": self.cost.memory}
        return found


Table = dict[str, Measured]


def measure(of: Trace, rounds: int) -> Table:
    costs = {name: cost(name, of) for name in (*SAVERS, *ASYNC_SAVERS)}
    return {
        name: Measured(
            name,
            summary(writing(results)),
            _summary_of(LATEST, results),
            _summary_of(BY_ID, results),
            costs.get(name),
        )
        for name, results in interleaved(of, ALL, rounds).items()
    }


def _summary_of(which: str, results: list[Times]) -> Summary | None:
    return summary([times[which] for times in results]) if which in results[0] else None


def rows(table: Table) -> list[list[str]]:
    return [
        [
            name,
            *(f"{time:.1f}" for time in found.write),
            *(f"{found.write.mean / table[floor].write.mean:.2f}" for floor in (MEMORY, PWRITE)),
            _over_fdatasync(found, table) if name in SYNCING else "",
            *(f"{read.median:.1f}" if read else "" for read in (found.latest, found.by_id)),
            *(f"{size / 1e6:.2f}" for size in found.cost or ()),
        ]
        for name, found in table.items()
    ]


def _over_fdatasync(found: Measured, table: Table) -> str:
    return f"{found.write.quiet / table[FDATASYNC].write.quiet:.2f}"


def losses(trace_name: str, table: Table) -> list[list[str]]:
    """Where a mode of LogSaver is worse than a saver that promises no more."""
    return [
        [trace_name, what, ours, theirs, f"{figure / other[what]:.2f}"]
        for ours, peers in PEERS.items()
        for theirs in peers
        if theirs in table
        for other in [table[theirs].figures()]
        for what, figure in table[ours].figures().items()
        if what in other and figure > other[what] and (theirs, what) != (MEMORY, "disk")
    ]
