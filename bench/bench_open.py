"""Opening a file that is there, and the first get."""

import pytest

from bench.filling import fill, on_thread
from bench.replay import directory
from bench.savers import LOG_NEVER, SAVERS, SQLITE_OFF


@pytest.mark.parametrize("name", [LOG_NEVER, SQLITE_OFF])
def test_open_and_get(benchmark, name):
    benchmark.group = "open + first get of 10,000 checkpoints"
    with directory() as where:
        with SAVERS[name](where) as saver:
            fill(saver, 200, 50)

        def open_and_get():
            with SAVERS[name](where) as saver:
                return saver.get_tuple(on_thread(100))

        assert benchmark(open_and_get) is not None
