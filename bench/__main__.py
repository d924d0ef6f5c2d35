"""`python -m bench`: every trace on every saver, every bar; writes docs/benchmarks.md."""

from __future__ import annotations

import argparse

from bench import report
from bench.bars import Bar, Scale, topics
from bench.tables import HEAD, Table, measure, rows
from bench.traces import RUNS, few_threads, trace


def main() -> None:
    options = _options()
    scale = Scale(rounds=options.rounds or (2 if options.quick else 5), deep=options.deep)
    names = options.only.split(",") if options.only else [*RUNS]
    tables: dict[str, Table] = {}
    for name in names if not options.bars else []:
        of = few_threads() if options.quick and name == "small" else trace(name)
        tables[name] = measure(of, scale.rounds)
        print(f"\n{name}: microseconds per put or put_writes")
        for line in (HEAD, *rows(tables[name])):
            print(f"{line[0]:28}" + "".join(f"{cell:>13}" for cell in line[1:]), flush=True)
    bars: dict[str, list[Bar]] = {}
    if not options.only or options.bars:
        print()
        for name, topic in topics().items():
            bars[name] = []
            for bar in topic(scale):
                bars[name].append(bar)
                what, measured, limit, verdict = bar.row()
                print(f"{verdict:18}{measured:>16}{limit:>18}  {what}", flush=True)
    if options.only or options.quick or options.bars:
        print("\nA part of it: docs/benchmarks.md stays as it is.")
    else:
        print(f"\n{report.write(tables, bars, scale.rounds)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", help=f"some traces, of {','.join(RUNS)}")
    parser.add_argument("--bars", action="store_true", help="the promised numbers alone")
    parser.add_argument("--quick", action="store_true", help="two rounds, fewer small threads")
    parser.add_argument("--deep", action="store_true", help="also the bars that take minutes")
    parser.add_argument("--rounds", type=int, help="how often each saver has its turn")
    return parser.parse_args()


if __name__ == "__main__":
    main()
