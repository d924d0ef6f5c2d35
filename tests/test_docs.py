"""What the documentation says is there, and what it shows runs."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import textwrap
import types
from pathlib import Path

import pytest
from typer.main import get_command

import logsaver
from logsaver import errors
from logsaver.cli.app import app

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "logsaver"
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
# `<!-- own namespace -->` before a block lets it start from nothing.
PYTHON_BLOCK = re.compile(
    r"(<!-- own namespace -->\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def modules():
    """Every module file, as the documentation names it: `store.py`, `cli/app.py`."""
    return [path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py"))]


def dotted(module_file):
    """`logsaver.cli.app` for `cli/app.py`, and the package for its `__init__.py`."""
    parts = ["logsaver", *module_file.removesuffix(".py").split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def without_code(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def slug(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


async def run(code, namespace):
    """Run a block; `async with` and `await` may stand at its top level."""
    result = eval(code, namespace)  # noqa: S307 - our own documentation
    if inspect.iscoroutine(result):
        await result


@pages
async def test_the_python_in_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text("utf-8")
    shared = {"__name__": "__main__"}
    for match in PYTHON_BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(2))
        tree = ast.parse("\n" * line + match[2], f"{page.name}")  # tracebacks name the line
        code = compile(tree, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        await run(code, {"__name__": "__main__"} if match[1] else shared)
    saver = shared.get("saver")
    if saver is not None:
        saver.close()


def test_the_first_example_goes_on_when_it_is_run_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example = PYTHON_BLOCK.search(README.read_text("utf-8"))[2]
    for _ in range(2):
        exec(example, {"__name__": "__main__"})  # noqa: S102 - our own documentation
    assert capsys.readouterr().out == "2 messages so far\n4 messages so far\n"


@pages
def test_the_links_of_a_page_lead_somewhere(page):
    for target in LINK.findall(without_code(page.read_text("utf-8"))):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", without_code(file.read_text("utf-8")), re.MULTILINE)
            assert anchor in map(slug, headings), target


# -- the README


def test_the_test_command_is_found_the_way_the_checks_find_it():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    extract = re.search(r"^readme_command=\$\((.*)\)$", script, re.MULTILINE)[1]
    command = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", extract],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    ).stdout
    assert ".venv" in command
    assert '".[dev]"' in command
    assert " -m pytest" in command
    assert "`" not in command
    subprocess.run(["bash", "-n", "-c", command], check=True)


def test_the_readme_leads_to_every_page():
    linked = set(LINK.findall(README.read_text("utf-8")))
    assert {f"docs/{page.name}" for page in PAGES[1:]} <= linked


def test_the_readme_has_two_commands():
    assert len(re.findall(r"^```bash$", README.read_text("utf-8"), re.MULTILINE)) == 2


def test_the_reference_draws_the_same_error_tree_as_the_code():
    tree = re.search(r"^    LogSaverError\n(?:    .*\n)+", errors.__doc__, re.MULTILINE)[0]
    assert textwrap.dedent(tree) in (ROOT / "docs/reference.md").read_text("utf-8")
    raised = [
        name
        for name in logsaver.__all__
        if isinstance(kind := getattr(logsaver, name), type) and issubclass(kind, Exception)
    ]
    assert all(re.search(rf"\b{name}\b", tree) for name in raised)


# -- docs/design.md


def module_table():
    """The modules in the order of the table in docs/design.md."""
    return re.findall(
        r"^\| `([\w/]+\.py)` \|", (ROOT / "docs/design.md").read_text("utf-8"), re.MULTILINE
    )


def test_every_module_has_its_line_in_the_design():
    assert sorted(module_table()) == sorted(modules())


def test_a_module_imports_only_modules_further_down_in_the_design():
    place = {dotted(module): at for at, module in enumerate(module_table())}
    for module in modules():
        tree = ast.parse((PACKAGE / module).read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("logsaver"):
                assert place[node.module] > place[dotted(module)], f"{module}: {node.module}"


# -- docs/reading.md


def named_functions():
    """What docs/reading.md names as `module.function` or `module.Class.method`."""
    text = (ROOT / "docs/reading.md").read_text("utf-8")
    own = {module.removesuffix(".py") for module in modules()}
    names = re.findall(r"`([a-z]\w*)((?:\.\w+)+)`", text)
    return [first + rest for first, rest in names if first in own and rest != ".py"]


def test_the_walk_through_the_source_names_functions():
    assert len(named_functions()) > 50


@pytest.mark.parametrize("name", sorted(set(named_functions())))
def test_what_the_walk_names_exists(name):
    module, *path = name.split(".")
    found = importlib.import_module(f"logsaver.{module}")
    for part in path:
        found = inspect.getattr_static(found, part)
    assert isinstance(found, (type, types.FunctionType, staticmethod, classmethod))


# -- docs/cli.md


def sections():
    """The heading of each command in docs/cli.md, and what is below it."""
    text = (ROOT / "docs/cli.md").read_text("utf-8")
    parts = re.split(r"^### `logsaver (\S+)(.*)`$", text, flags=re.MULTILINE)
    names, synopses, bodies = parts[1::3], parts[2::3], parts[3::3]
    return {
        name: (synopsis.split(), re.split(r"^## ", body, flags=re.MULTILINE)[0])
        for name, synopsis, body in zip(names, synopses, bodies, strict=True)
    }


def test_every_command_has_its_section():
    assert list(sections()) == list(get_command(app).commands)


@pytest.mark.parametrize("name", list(get_command(app).commands))
def test_a_section_names_all_options_and_arguments_of_the_command(name):
    synopsis, body = sections()[name]
    params = get_command(app).commands[name].params
    arguments = [param for param in params if param.param_type_name == "argument"]
    wanted = [(param.metavar or param.name.upper()).strip("[].") for param in arguments]
    assert [word.strip("[].") for word in synopsis] == wanted
    points = "".join(re.findall(r"^- .*$", body, re.MULTILINE))
    named = set(re.findall(r"`(-[-\w]+)", points))
    assert named == {option for param in params for option in param.opts if option[0] == "-"}
