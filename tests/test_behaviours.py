"""docs/behaviours.md: every line has its tests, and mutations that they have to notice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from behaviours import BEHAVIOURS, LINES, marked

TESTS = Path(__file__).parent


def test_the_lines_are_numbered_from_1_to_43():
    assert list(range(1, 44)) == LINES


@pytest.mark.parametrize("line", LINES)
def test_a_line_has_a_test_that_names_it_and_a_mutation_that_takes_it_out(line):
    assert marked()[line]
    assert any(mutation.why.startswith(f"behaviour {line}:") for mutation in BEHAVIOURS)


def test_a_test_names_no_line_that_is_not_there():
    assert sorted(marked()) == LINES


def test_a_line_is_named_by_a_marker_and_by_nothing_else():
    for file in TESTS.glob("test_*.py"):
        bare = re.findall(r"^# \d+(?:, \d+)*$", file.read_text("utf-8"), re.MULTILINE)
        assert not bare, f"{file.name}: write @pytest.mark.behaviour(...) in place of {bare[0]!r}"
