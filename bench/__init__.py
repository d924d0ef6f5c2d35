"""Benchmarks: calls recorded from real graphs, replayed on every saver. Run `python -m bench`."""
