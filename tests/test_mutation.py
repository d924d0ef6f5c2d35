"""The table of mutations fits the code. `python tests/mutation.py` runs them."""

from __future__ import annotations

import pytest
from mutation import EVERY, ROOT, TESTS, mutated
from mutations import MUTATIONS


@pytest.mark.parametrize("mutation", EVERY, ids=lambda mutation: mutation.why)
def test_a_mutation_changes_one_place_and_leaves_valid_code(mutation):
    source = (ROOT / "logsaver" / mutation.file).read_text("utf-8")
    changed = mutated(mutation, source)
    assert changed != source
    compile(changed, mutation.file, "exec")


def test_the_tests_that_a_mutation_names_are_there():
    named = {test for mutation in MUTATIONS for test in mutation.tests.split()}
    assert all((ROOT / "tests" / f"{test}.py").exists() for test in {*named, *TESTS})


def test_no_two_mutations_are_the_same():
    changes = {(mutation.file, mutation.source, mutation.replacement) for mutation in EVERY}
    assert len(changes) == len(EVERY) == len({mutation.why for mutation in EVERY})
