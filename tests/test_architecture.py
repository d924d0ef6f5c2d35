"""The shape of the code: who may import whom, what is public, what the docstrings promise."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver

import logsaver
from logsaver import LogSaver, errors

PACKAGE = Path(logsaver.__file__).parent
ROOT = PACKAGE.parent

# Top to bottom. Modules on one line do not know each other.
LAYERS = """
    __main__
    cli
    migrate
    savers refit
    holdings
    __init__
    arriving inspecting
    tidying
    saver
    thinning
    upkeep
    garbage
    putting removing
    bases
    listing
    reading repair rekeying renaming statistics
    retention preview rewriting
    registry
    store
    following
    sealing
    compacting
    copying opening intact
    values
    log
    pieces
    patch aesgcm
    durability recovery cache ending successor waiting pace detached
    seal
    index
    threads
    overview
    thread
    tags cipher
    record
    value
    frame
    logfile
    disk
    errors
"""
LEVEL = {
    module: level
    for level, line in enumerate(reversed(LAYERS.split("\n")))
    for module in line.split()
}
# Helpers: who may use them, and the highest module they may use themselves.
HELPERS = {
    "arguments": ({"saver", "rekeying", "repair"}, "errors"),
    "codec": (
        {
            "__init__",
            "holdings",
            "inspecting",
            "saver",
            "putting",
            "bases",
            "listing",
            "reading",
            "removing",
            "renaming",
        },
        "value",
    ),
    "config": (
        {"holdings", "inspecting", "saver", "putting", "bases", "listing", "reading", "removing"},
        "value",
    ),
    "keeping": ({"migrate", "refit"}, "errors"),
    "surrogates": ({"codec", "putting"}, "value"),
}
MAX_LINES = 500
PUBLIC_MODULES = {"__init__", "arriving", "migrate"}

# `os` without a file being touched.
HARMLESS = {
    "PathLike",
    "environ",
    "fspath",
    "getpid",
    "name",
    "path",
    "register_at_fork",
    "urandom",
}
FILE_MODULES = {"fcntl", "io", "mmap", "pathlib", "shutil", "tempfile"}

PUBLIC = [
    "AesGcmCipher",
    "ChannelUsage",
    "ClosedLogError",
    "Compaction",
    "CorruptLogError",
    "Damage",
    "Going",
    "InvalidInputError",
    "LockTimeoutError",
    "LogFileError",
    "LogKeyError",
    "LogOpenError",
    "LogReadError",
    "LogReplacedError",
    "LogSaver",
    "LogSaverError",
    "LogWriteError",
    "NotALogError",
    "PoisonedLogError",
    "Preview",
    "ReadOnlyLogError",
    "RecordTooLargeError",
    "RepairReport",
    "Retention",
    "Stats",
    "StoredCheckpoint",
    "StoredValue",
    "StoredWrite",
    "StoredWrites",
    "ThreadExistsError",
    "ThreadInfo",
    "Undecodable",
    "UnsupportedFormatError",
    "Usage",
    "ValueDecodeError",
    "ValueEncodeError",
    "VerifyReport",
    "rekey",
    "repair",
    "restore",
    "stored",
    "usage",
    "verify",
]

# Answered from memory or without a log: there is nothing to await.
ONLY_SYNC = {"from_conn_string", "get_next_version", "stats", "threads"}


def modules():
    """Module name to file. A module of a subpackage goes by the subpackage's name."""
    return {
        path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", "."): path
        for path in sorted(PACKAGE.rglob("*.py"))
    }


MODULES = modules()
# The command line is a user of the package: it has the user's terminal and files to deal with.
ENGINE = [name for name in MODULES if not name.startswith("cli")]


def parsed(name):
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def imports_of(name):
    """The logsaver modules that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(parsed(name)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} line {node.lineno}: a relative import"
            if node.module == "logsaver":
                found |= {_module_or_package(alias.name) for alias in node.names}
            elif node.module.startswith("logsaver."):
                found.add(node.module.removeprefix("logsaver."))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "logsaver":
                    found.add(alias.name.removeprefix("logsaver").lstrip(".") or "__init__")
    return found


def _module_or_package(name):
    return name if name in MODULES else "__init__"


def test_every_module_has_its_place_in_the_layers():
    assert {name.split(".")[0] for name in MODULES} == LEVEL.keys() | HELPERS.keys()


@pytest.mark.parametrize("name", MODULES)
def test_no_module_imports_one_above_it(name):
    top = name.split(".")[0]
    for imported in imports_of(name):
        target = imported.split(".")[0]
        if top == target:
            continue  # within the command line
        if target in HELPERS:
            assert top in HELPERS[target][0], f"{name} imports the helper {target}"
        elif top in HELPERS:
            assert LEVEL[target] <= LEVEL[HELPERS[top][1]], f"{name} imports {target}"
        else:
            assert LEVEL[target] < LEVEL[top], f"{name} imports {target}, which is above it"


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("cli")])
def test_the_command_line_uses_public_names_only(name):
    for imported in imports_of(name):
        assert imported in PUBLIC_MODULES or imported.startswith("cli"), imported
    for node in ast.walk(parsed(name)):
        if isinstance(node, ast.ImportFrom) and node.module == "logsaver":
            assert {alias.name for alias in node.names} <= {*logsaver.__all__, "__version__"}


@pytest.mark.parametrize("name", [name for name in ENGINE if name != "disk"])
def test_only_disk_touches_files(name):
    """The one seam: a simulated disk takes its place in tests, and must see everything."""
    for node in ast.walk(parsed(name)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "os":
                assert node.attr in HARMLESS, f"{name} line {node.lineno}: os.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            assert node.module != "os", f"{name} line {node.lineno}: import the module"
            assert node.module.split(".")[0] not in FILE_MODULES, f"{name} line {node.lineno}"
        elif isinstance(node, ast.Import):
            assert not FILE_MODULES & {alias.name for alias in node.names}, f"line {node.lineno}"
            assert all(alias.asname is None for alias in node.names if alias.name == "os")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "open", f"{name} line {node.lineno}: open()"


@pytest.mark.parametrize("name", MODULES)
def test_no_module_is_too_long(name):
    assert len(MODULES[name].read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("name", [name for name in MODULES if MODULES[name].stat().st_size])
def test_every_module_says_what_it_is_for(name):
    assert ast.get_docstring(parsed(name))


# -- public names


def test_public_names_are_these_and_sorted():
    assert logsaver.__all__ == PUBLIC == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported_and_has_a_docstring(name):
    assert inspect.getdoc(getattr(importlib.import_module("logsaver"), name))


def test_the_package_itself_has_imports_and_names_only():
    for node in parsed("__init__").body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_name = isinstance(node, ast.Assign) and node.targets[0].id in {"__all__", "__version__"}
        assert is_docstring or is_name or isinstance(node, ast.ImportFrom), node.lineno


# -- the exception tree


def drawn_tree():
    """Child to parent, from the drawing in the docstring of errors.py."""
    parents, path = {}, []
    for line in errors.__doc__.splitlines():
        match = re.match(r"(?P<lead>[ │├└─]*)(?P<name>[A-Z]\w+Error)\b(?P<rest>.*)", line)
        if match is None:
            continue
        depth = (len(match["lead"]) - 4) // 4
        del path[depth:]
        builtin = re.match(r"\s+\((\w+)\)", match["rest"])
        parents[match["name"]] = (path[-1] if path else "Exception", builtin and builtin[1])
        path.append(match["name"])
    return parents


def real_tree():
    tree = {}
    for name, member in inspect.getmembers(errors, inspect.isclass):
        if member.__module__ == errors.__name__:
            parent, *others = member.__bases__
            tree[name] = (parent.__name__, others[0].__name__ if others else None)
    return tree


def test_the_exception_tree_is_as_drawn():
    assert drawn_tree() == real_tree()
    assert len(real_tree()) > 10


def test_every_exception_is_public_and_says_when_it_is_raised():
    for name in real_tree():
        assert name in logsaver.__all__
        doc = inspect.getdoc(getattr(errors, name))
        assert doc.startswith("Raised") or name in {"LogSaverError", "LogFileError"}, name


def test_exceptions_of_a_file_know_its_path():
    for name in real_tree():
        kind = getattr(errors, name)
        if not issubclass(kind, errors.LogFileError):
            continue
        if kind is errors.CorruptLogError:
            error = kind("agent.log", 64, "what happened")
            assert error.offset == 64
            assert "64" in str(error)
        else:
            error = kind("agent.log", "what happened")
        assert error.path == "agent.log"
        assert str(error).startswith("agent.log: ")
        assert str(error).endswith("what happened")


# -- sync and async


def own_methods():
    return {
        name
        for part in LogSaver.__mro__
        if part.__module__.startswith("logsaver.")
        for name, member in vars(part).items()
        if not name.startswith("_") and callable(getattr(member, "__func__", member))
    }


def is_async(name):
    method = getattr(LogSaver, name)
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def test_every_async_method_has_its_sync_twin():
    for name in own_methods():
        if is_async(name):
            assert name.startswith("a"), name
            assert name[1:] in own_methods(), name


def test_every_sync_method_has_its_async_twin():
    sync = {name for name in own_methods() if not is_async(name)}
    assert {name for name in sync if f"a{name}" not in own_methods()} == ONLY_SYNC


@pytest.mark.parametrize("name", sorted(n for n in own_methods() if is_async(n)))
def test_twins_take_the_same_arguments(name):
    one, other = (inspect.signature(getattr(LogSaver, n)) for n in (name, name[1:]))
    assert list(one.parameters.values()) == list(other.parameters.values())


def test_what_langgraph_calls_is_defined_on_the_class_itself():
    """It looks for overridden async methods there to see what a saver can do."""
    inherited_on_purpose = {"get", "aget", "config_specs", "with_allowlist"}
    for name, member in vars(BaseCheckpointSaver).items():
        if name.startswith("_") or not callable(member) or name in inherited_on_purpose:
            continue
        assert name in own_methods(), name


@pytest.mark.parametrize("name", sorted(set(own_methods()) & set(vars(BaseCheckpointSaver))))
def test_parameters_have_the_names_langgraph_passes_them_by(name):
    theirs = inspect.signature(getattr(BaseCheckpointSaver, name)).parameters
    ours = inspect.signature(getattr(LogSaver, name)).parameters
    assert list(ours)[: len(theirs)] == list(theirs)


# -- the project file


def test_runtime_dependencies_are_these_three():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[(.*?)^\]", text, re.DOTALL | re.MULTILINE)[1]
    names = re.findall(r'^\s*"([A-Za-z0-9-]+)', listed, re.MULTILINE)
    assert names == ["langgraph-checkpoint", "ormsgpack", "sortedcontainers"]


@pytest.mark.parametrize("name", ENGINE)
def test_the_engine_imports_nothing_that_is_not_a_dependency(name):
    import sys

    optional = {"aesgcm": {"cryptography"}}
    allowed = optional.get(name, set()) | {
        "logsaver",
        "langgraph",
        "langchain_core",
        "ormsgpack",
        "sortedcontainers",
    }
    for node in ast.walk(parsed(name)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        for imported in names:
            top = imported.split(".")[0]
            assert top in allowed or top in sys.stdlib_module_names, f"{name}: {imported}"
