"""get_tuple, once a trace is stored."""

import pytest

from bench.replay import replay
from bench.traces import RUNS, few_threads, trace


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("by_id", [False, True], ids=["latest", "by id"])
def test_get_tuple(benchmark, opened, name, by_id):
    benchmark.group = f"get {'by id' if by_id else 'latest'} {name}"
    of = few_threads() if name == "small" else trace(name)
    replay(opened, of)
    config = of.addresses()[len(of.puts()) // 2]
    if not by_id:
        config = {"configurable": {"thread_id": config["configurable"]["thread_id"]}}
    assert benchmark(opened.get_tuple, config) is not None
