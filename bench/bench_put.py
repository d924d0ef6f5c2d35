"""A whole trace, call after call."""

import pytest

from bench.replay import directory, replay, serde_alone
from bench.savers import SAVERS
from bench.traces import RUNS, few_threads, trace


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("name", RUNS)
def test_replay(benchmark, name, saver):
    benchmark.group = f"replay {name}"
    of = few_threads() if name == "small" else trace(name)

    def one_replay():
        with directory() as where, SAVERS[saver](where) as opened:
            replay(opened, of)

    benchmark.pedantic(one_replay, rounds=3)


@pytest.mark.parametrize("name", RUNS)
def test_serde_alone(benchmark, name):
    benchmark.group = f"replay {name}"
    benchmark.pedantic(serde_alone, args=[trace(name)], rounds=3)
