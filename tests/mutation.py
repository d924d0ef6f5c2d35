"""Take each safeguard out of the code in turn, and see that a test fails.

    python tests/mutation.py            all of them
    python tests/mutation.py sync       those whose reason has this word

Works on copies of the tree. A mutant is killed if a test fails that passes without the mutation;
an error in loading the tests does not count. The safeguards are in `mutations.py`, and any test may
notice that one is gone. What langgraph expects is in `behaviours.py`: there it has to be one of the
tests that say so. `test_mutation.py` checks that both tables are up to date.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from behaviours import BEHAVIOURS
from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[1]
# Asked in this order after the ones that a mutation names.
TESTS = (
    "test_logfile",
    "test_frame",
    "test_recovery",
    "test_disk_failures",
    "test_group_commit",
    "test_corruption",
    "test_interrupts",
    "test_exit",
    "test_lifecycle",
    "test_sharing",
    "test_replacing",
    "test_fork",
    "test_crashes",
    "test_real_disks",
)
TIME_LIMIT = 400  # seconds; a mutant that hangs has been noticed
TESTS_FAILED = 1  # pytest's exit code; others say that it could not run them
EVERY = [*MUTATIONS, *BEHAVIOURS]
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)


def mutated(mutation: Mutation, source: str) -> str:
    assert source.count(mutation.source) == 1, f"{mutation.file}: not exactly once: {mutation.why}"
    return source.replace(mutation.source, mutation.replacement)


def witnesses(mutation: Mutation) -> Iterator[tuple[str, ...]]:
    """What to run, one after the other: files of tests, or the very tests that must notice."""
    named = mutation.tests.split()
    if mutation in BEHAVIOURS:
        yield tuple(named)
        return
    for name in dict.fromkeys([*named, *TESTS]):
        yield (f"tests/{name}.py",)


class Tree:
    """A copy of the tree to run tests in."""

    def __init__(self, root: Path) -> None:
        self._root = root
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".*", "__pycache__"))

    def use(self, file: str, source: str) -> None:
        (self._root / "logsaver" / file).write_text(source, "utf-8")

    def failures(self, tests: Sequence[str], *options: str) -> list[str]:
        """Those that fail of the tests of some files, or with some names."""
        command = [sys.executable, "-m", "pytest", *tests, "-p", "no:cacheprovider", "--timeout=60"]
        try:
            done = subprocess.run(
                [*command, *options],
                cwd=self._root,
                env={**os.environ, "PYTHONPATH": str(self._root)},
                capture_output=True,
                text=True,
                timeout=TIME_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return list(tests[:1])
        assert done.returncode in (0, TESTS_FAILED), done.stdout
        return FAILED.findall(done.stdout)


def deselect(tests: list[str]) -> list[str]:
    return [f"--deselect={test}" for test in tests]


class Judge:
    """Runs tests on the code as it is and on mutants."""

    def __init__(self, directory: Path) -> None:
        self._clean = Tree(directory / "clean")
        self._mutant = Tree(directory / "mutant")
        self._failing_anyway: dict[tuple[str, ...], list[str]] = {}

    def killer(self, mutation: Mutation) -> str | None:
        """The first test that fails because of this mutation."""
        source = (ROOT / "logsaver" / mutation.file).read_text("utf-8")
        self._mutant.use(mutation.file, mutated(mutation, source))
        try:
            for tests in witnesses(mutation):
                telling_nothing = list(self._fail_anyway(tests))
                while failed := self._mutant.failures(tests, "-x", *deselect(telling_nothing)):
                    # Once more and alone: a test that fails now and then is no witness. Nor is one
                    # that the machine is too slow for at the moment.
                    if self._mutant.failures(failed) and not self._clean.failures(failed):
                        return failed[0]
                    telling_nothing += failed
        finally:
            self._mutant.use(mutation.file, source)
        return None

    def _fail_anyway(self, tests: tuple[str, ...]) -> list[str]:
        if tests not in self._failing_anyway:
            self._failing_anyway[tests] = self._clean.failures(tests)
            for found in self._failing_anyway[tests]:
                print(f"{found} fails without a mutation and tells nothing")
        return self._failing_anyway[tests]


def main(word: str = "") -> int:
    chosen = [mutation for mutation in EVERY if word in mutation.why]
    survived = 0
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)  # some tests become another user, who has to find the code
        judge = Judge(Path(directory))
        for mutation in chosen:
            start = time.monotonic()
            killer = judge.killer(mutation)
            survived += killer is None
            seconds = time.monotonic() - start
            print(f"{mutation.why}: {killer or 'SURVIVED'} ({seconds:.0f} s)", flush=True)
    print(f"{len(chosen) - survived}/{len(chosen)} killed")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
