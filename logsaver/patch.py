"""What a new value repeats of an old one, as ranges of bytes. No I/O, no formats.

LangGraph's states grow at the end, lose something in the middle, or change in one place. What is
left as it was are long runs of bytes, somewhere else than before: a count in front has changed its
size, or something was put in between. So this walks along both values. Where they agree it goes on
to where they do not, by comparing large pieces at once; where they differ it takes a few bytes of
the new value further on and looks for them in the old one.

All of the work is done by `bytes` methods. How often they are called does not depend on the
number of bytes, so a large value costs little more than reading it a few times.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SHORTEST: Final = 32  # bytes; a shorter run is not worth a reference
_PROBE: Final = 24
_STRIDE: Final = 4  # how much further each probe is than the one before
_MOST_RUNS: Final = 24


class Run(NamedTuple):
    """Bytes of the new value that stand in the old one: from where, to where, how many."""

    old: int
    new: int
    length: int


def runs(old: bytes, new: bytes) -> list[Run]:
    """What `new` repeats of `old`: in the order of `new`, not overlapping there.

    Finds most of what a reader would, never anything wrong.
    """
    found: list[Run] = []
    view = memoryview(old)
    at_old, at_new = _past_counts(view, new)
    while len(found) < _MOST_RUNS:
        length = _common(view, at_old, new, at_new)
        if length >= SHORTEST:
            start = found[-1].new + found[-1].length if found else 0
            back = _common_before(old, at_old, new, at_new, at_new - start)
            found.append(Run(at_old - back, at_new - back, length + back))
            at_old, at_new = at_old + length, at_new + length
        place = _search(old, at_old, new, at_new)
        if place is None:
            break
        at_old, at_new = place
    return found


def _past_counts(old: memoryview, new: bytes) -> tuple[int, int]:
    """Where to start: behind the counts, if that is all that differs at first.

    The head of a msgpack array or map is 1, 3 or 5 bytes, and is another one for another count.
    """
    for at_old in (0, 1, 3, 5):
        for at_new in (0, 1, 3, 5):
            if new.startswith(old[at_old : at_old + SHORTEST], at_new) and len(old) > at_old:
                return at_old, at_new
    return 0, 0


def _common(old: memoryview, at_old: int, new: bytes, at_new: int) -> int:
    """How many bytes agree from here on."""
    most = min(len(old) - at_old, len(new) - at_new)
    if new.startswith(old[at_old : at_old + most], at_new):
        return most
    agreed, step = 0, SHORTEST
    while step:
        if agreed + step <= most and new.startswith(
            old[at_old + agreed : at_old + agreed + step], at_new + agreed
        ):
            agreed += step
            step *= 2
        else:
            most = min(most, agreed + step)
            step //= 2
    return agreed


def _common_before(old: bytes, at_old: int, new: bytes, at_new: int, most: int) -> int:
    """How many bytes agree right before here."""
    most = min(most, at_old)
    agreed, step = 0, SHORTEST
    while step:
        if (
            agreed + step <= most
            and old[at_old - agreed - step : at_old - agreed]
            == new[at_new - agreed - step : at_new - agreed]
        ):
            agreed += step
            step *= 2
        else:
            most = min(most, agreed + step)
            step //= 2
    return agreed


def _search(old: bytes, at_old: int, new: bytes, at_new: int) -> tuple[int, int] | None:
    """Where the two agree again."""
    if at_old >= len(old):
        return None
    ahead = 0
    while (probe_end := at_new + ahead + _PROBE) <= len(new):
        place = old.find(new[probe_end - _PROBE : probe_end], at_old)
        if place >= 0 and _is_worth_it(old, place, new, probe_end - _PROBE):
            return place, probe_end - _PROBE
        ahead = ahead * _STRIDE or _PROBE
    return None


def _is_worth_it(old: bytes, at_old: int, new: bytes, at_new: int) -> bool:
    """Not just what all messages have in common. Ensures that the search comes to an end."""
    end = at_old + SHORTEST
    return end <= len(old) and new.startswith(old[at_old:end], at_new)
