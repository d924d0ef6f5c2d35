"""list, on one thread of many checkpoints."""

from bench.filling import fill, on_thread


def test_the_newest_ten(benchmark, opened):
    benchmark.group = "list limit=10"
    fill(opened, 1, 300)
    assert len(benchmark(lambda: list(opened.list(on_thread(0), limit=10)))) == 10


def test_a_filter(benchmark, opened):
    benchmark.group = "list filter"
    fill(opened, 3, 100)
    assert benchmark(lambda: list(opened.list(on_thread(1), filter={"rare": True})))
