"""docs/reliability.md: every promise of the README has its tests, and the tests it names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
README = (TESTS.parent / "README.md").read_text("utf-8")
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text("utf-8")
NAMED = re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", PAGE)


def plain(text: str) -> str:
    return " ".join(text.split())


def promises() -> list[str]:
    """What the README guarantees: the rows of its table, its points, its sentences."""
    section = re.search(r"^## What is guaranteed\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)[1]
    rows = re.findall(r"^\| (`.*) \|$", section, re.MULTILINE)
    points = re.findall(r"^- (.*?)(?=^- |^$)", section, re.MULTILINE | re.DOTALL)
    text = re.findall(r"^(?![-|\s]).*?(?=\n\n)", section, re.MULTILINE | re.DOTALL)
    sentences = [sentence for part in text for sentence in re.split(r"(?<=\.)\s+", part)]
    found = [plain(promise) for promise in [*rows, *points, *sentences]]
    return [promise for promise in found if not promise.endswith(":")]


def quotes() -> list[str]:
    """The first column of the table that says which tests show what."""
    section = PAGE.split("## The README's guarantees")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (.*?)… \| .* \|$", section, re.MULTILINE)
    return [plain(cell) for cell in cells]


def test_the_promises_are_found():
    assert len(promises()) > 12
    assert any(promise.startswith("A call is in the log whole") for promise in promises())


@pytest.mark.parametrize("promise", promises())
def test_a_promise_of_the_readme_has_its_tests(promise):
    assert [quote for quote in quotes() if promise.startswith(quote)], promise


@pytest.mark.parametrize("quote", quotes())
def test_a_quote_is_still_in_the_readme(quote):
    assert [promise for promise in promises() if promise.startswith(quote)]


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)))
def test_a_test_that_is_named_exists(file, name):
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    functions = {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not name or name in functions
