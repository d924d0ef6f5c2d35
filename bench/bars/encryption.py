"""What encryption costs: time per call, and bytes."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bars import Bar, Scale
from bench.bars.putting import means
from bench.bars.sizes import log_size
from bench.savers import EAX, GCM, LOG_ASYNC, LOG_EAX, LOG_GCM, SQLITE_EAX
from bench.traces import trace


def bars(scale: Scale) -> Iterator[Bar]:
    names = [LOG_ASYNC, LOG_EAX, LOG_GCM, SQLITE_EAX]
    times = means(trace("small"), names, scale.rounds)
    what = "put, async mode, small trace, AES-EAX, faster than SqliteSaver synchronous=OFF with it"
    yield Bar(what, times[SQLITE_EAX] / times[LOG_EAX], 1, at_least=True)
    what = "put, async mode, small trace, AES-GCM, to no encryption"
    yield Bar(what, times[LOG_GCM] / times[LOG_ASYNC], 1.5)
    plain = log_size(trace("chat"))
    for name, serde in (("AES-EAX", EAX), ("AES-GCM", GCM)):
        what = f"size of the 100-turn chat, {name}, to no encryption"
        yield Bar(what, log_size(trace("chat"), serde) / plain, 1.05)
