"""The `logsaver` command, as its users run it: in a process of its own, into a pipe."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest
from support import put

from logsaver import LogSaver, __version__
from logsaver.cli import HINT, main

CONFIG = {"configurable": {"thread_id": "order-1042"}}
EVENT = re.compile(r"^  process (?P<pid>\d+)  (?P<what>\w+) +(?P<name>.+)$", re.MULTILINE)


def run_command(*args, cwd, **env):
    """Run `logsaver ARGS` with its output in pipes of 80 columns."""
    return subprocess.run(
        [sys.executable, "-m", "logsaver", *args],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80", **env},
    )


def run_agent(path, act):
    """Run one act of the demo's agent; its exit code and what it reported."""
    process = subprocess.run(
        [sys.executable, "-m", "logsaver.cli.demo_agent", path, act, json.dumps(CONFIG)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return process.returncode, [json.loads(line) for line in process.stdout.splitlines()]


def at_startup(directory, code):
    """Environment variables that make every Python started with them run `code` first."""
    directory.mkdir(exist_ok=True)
    (directory / "sitecustomize.py").write_text(textwrap.dedent(code))
    return {"PYTHONPATH": os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])}


def without(directory, *modules):
    """Environment variables for a Python that does not find these modules."""
    return at_startup(
        directory,
        f"""
        from importlib.machinery import PathFinder

        MISSING = {modules!r}
        find = PathFinder.find_spec

        def find_spec(name, path=None, target=None):
            return None if name in MISSING else find(name, path, target)

        PathFinder.find_spec = find_spec
        """,
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """One run of the demo: what it printed, and the log it left."""
    directory = tmp_path_factory.mktemp("demo")
    process = run_command("demo", cwd=directory)
    return SimpleNamespace(
        process=process,
        output=process.stdout,
        events=[match.groupdict() for match in EVENT.finditer(process.stdout)],
        path=directory / "logsaver-demo.log",
    )


# -- the demo


def test_the_demo_ends_well(demo):
    assert demo.process.returncode == 0, demo.process.stderr
    assert demo.process.stderr == ""


def test_the_demo_is_plain_text_of_80_columns_in_a_pipe(demo):
    assert "\x1b" not in demo.output
    told, _, where = demo.output.partition("The log is yours")
    assert where
    assert max(map(len, told.splitlines())) <= 80


def test_the_demo_does_not_need_unicode(tmp_path):
    process = run_command("demo", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert process.returncode == 0, process.stderr
    assert "5. The history" in process.stdout


def test_the_history_says_who_made_the_last_message_of_a_checkpoint(demo):
    """Not who stored the checkpoint: the fork's first one ends with an older process's message."""
    history = demo.output.partition("5. The history")[2]
    assert re.search(r"the last one +made by", history)


def test_each_act_runs_in_a_process_of_its_own(demo):
    assert len({event["pid"] for event in demo.events}) == 4


def test_only_the_unfinished_tool_ran_again_after_the_kill(demo):
    killed = re.search(r"kill -9 (\d+)", demo.output)[1]
    first = [event for event in demo.events if event["pid"] == killed]
    assert sorted((event["what"], event["name"]) for event in first) == [
        ("done", "look_up_order"),
        ("done", "model"),
        ("started", "check_stock"),
    ]
    times = Counter((event["what"], event["name"]) for event in demo.events)
    assert times["started", "check_stock"] == 2
    assert times["done", "check_stock"] == 1
    assert times["done", "look_up_order"] == 1
    assert times["done", "model"] == 4  # asks for tools, asks for a refund, and two endings


def test_the_log_of_the_demo_can_be_read_and_proves_its_claims(demo):
    killed = int(re.search(r"kill -9 (\d+)", demo.output)[1])
    with LogSaver(demo.path, read_only=True) as log:
        found = list(log.list(CONFIG))
        stats = log.stats()
    assert stats.checkpoints == len(found) == 10
    assert f"{stats.bytes / 1000:.1f} kB" in demo.output
    assert all(checkpoint.metadata["logsaver_demo"] for checkpoint in found)
    human, asked, order, stock, *_ = found[0].checkpoint["channel_values"]["messages"]
    assert human.type == "human"
    assert asked.response_metadata["pid"] == killed
    assert order.artifact["pid"] == killed
    assert stock.artifact["pid"] != killed


def test_the_demo_leaves_both_branches(demo):
    with LogSaver(demo.path, read_only=True) as log:
        found = list(log.list(CONFIG))
    parents = [
        checkpoint.parent_config["configurable"]["checkpoint_id"] for checkpoint in found[:-1]
    ]
    ends = [
        checkpoint.checkpoint["channel_values"]["messages"][-1].content
        for checkpoint in found
        if checkpoint.config["configurable"]["checkpoint_id"] not in parents
    ]
    assert ends == ["We send you a new lamp today.", "You get your 49.90 back."]
    assert all(end in demo.output for end in ends)


def test_the_demo_compares_with_sqlite(demo):
    pytest.importorskip("langgraph.checkpoint.sqlite")
    times = re.search(r"SqliteSaver .*the same run, ([\d.]+) times as much", demo.output)
    assert float(times[1]) > 2


def test_the_demo_leaves_the_comparison_out_without_sqlite(tmp_path):
    missing = without(tmp_path / "site", "langgraph.checkpoint.sqlite")
    process = run_command("demo", cwd=tmp_path, **missing)
    assert process.returncode == 0, process.stderr
    assert "this run" in process.stdout
    assert "SqliteSaver" not in process.stdout


def test_the_commands_at_the_end_of_the_demo_can_be_pasted(demo):
    """They began with `logsaver`, which is not found where no environment is activated."""
    commands = demo.output.partition("Look around in it:\n")[2].partition("or from")[0]
    for line in commands.splitlines():
        process = subprocess.run(
            shlex.split(line),
            check=True,
            capture_output=True,
            cwd=demo.path.parent,
            env={"PATH": ""},
        )
        assert process.stdout
    assert len(commands.splitlines()) == 3


def test_the_snippet_at_the_end_of_the_demo_runs(demo):
    snippet = textwrap.dedent(demo.output.partition("or from Python:\n")[2])
    process = subprocess.run(
        [sys.executable, "-c", snippet],
        check=True,
        capture_output=True,
        text=True,
        cwd=demo.path.parent,
    )
    assert "checkpoints=10" in process.stdout


def test_the_agent_really_dies_by_sigkill_and_goes_on_without_repeating(path):
    code, reported = run_agent(path, "start")
    assert code == -signal.SIGKILL
    assert {"started", "done"} == {event["what"] for event in reported}
    code, reported = run_agent(path, "resume")
    assert code == 0
    assert [(event["what"], event["name"]) for event in reported] == [
        ("started", "check_stock"),
        ("done", "check_stock"),
        ("done", "model"),
        ("asked", "Refund 49.90?"),
    ]


# -- where the log goes


def test_a_second_demo_takes_the_place_of_the_first(demo, tmp_path):
    shutil.copy(demo.path, tmp_path / "again.log")
    second = run_command("demo", "--path", "again.log", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["again.log"]
    with LogSaver(tmp_path / "again.log", read_only=True) as log:
        assert log.stats().checkpoints == 10
    sizes = [re.search(r"this run +(.* kB)", run.stdout)[1] for run in (demo.process, second)]
    # Not equal: in another process, the fields of a message may come in another order.
    assert float(sizes[0].split()[0]) == pytest.approx(float(sizes[1].split()[0]), rel=0.8)


@pytest.mark.parametrize("content", [b"dear diary", b""], ids=["text", "empty"])
def test_the_demo_does_not_overwrite_a_file_that_is_no_log(tmp_path, content):
    file = tmp_path / "diary.txt"
    file.write_bytes(content)
    process = run_command("demo", "--path", str(file), cwd=tmp_path)
    assert process.returncode == 2
    assert "not the log of an earlier demo" in process.stderr
    assert process.stdout == ""
    assert file.read_bytes() == content


def test_the_demo_does_not_overwrite_another_log(tmp_path, path):
    with LogSaver(path) as saver:
        put(saver, "order-1042", {"a": 1})
    with open(path, "rb") as file:
        before = file.read()
    process = run_command("demo", "--path", path, cwd=tmp_path)
    assert process.returncode == 2
    assert "not the log of an earlier demo" in process.stderr
    with open(path, "rb") as file:
        assert file.read() == before


def test_the_demo_does_not_overwrite_a_demo_log_with_more_in_it(tmp_path, path):
    with LogSaver(path) as saver:
        put(saver, "order-1042", {"a": 1}, metadata={"logsaver_demo": True})
        put(saver, "mine", {"a": 1})
    process = run_command("demo", "--path", path, cwd=tmp_path)
    assert process.returncode == 2
    with LogSaver(path, read_only=True) as log:
        assert log.stats().threads == 2


def test_the_demo_does_not_take_a_log_away_from_another_process(tmp_path, path):
    """It deletes the earlier demo's thread, as any process may. The file stays the same one."""
    with LogSaver(path) as saver:
        put(saver, "order-1042", {"a": 1}, metadata={"logsaver_demo": True})
        process = run_command("demo", "--path", path, cwd=tmp_path)
        assert process.returncode == 0, process.stderr
        assert saver.stats().checkpoints == 10
        put(saver, "mine", {"a": 1})
    with LogSaver(path, read_only=True) as log:
        assert log.stats().checkpoints == 11


@pytest.mark.parametrize("place", [".", "missing/demo.log"], ids=["directory", "no directory"])
def test_the_demo_says_that_it_cannot_write_there(tmp_path, place):
    process = run_command("demo", "--path", place, cwd=tmp_path)
    assert process.returncode == 2
    assert "pick a" in process.stderr
    assert "Traceback" not in process.stderr


def test_a_demo_that_fails_says_so_and_does_not_stand_in_the_way_of_the_next(tmp_path):
    broken = at_startup(
        tmp_path / "site",
        """
        import os, sys

        if "logsaver.cli.demo_agent" in sys.orig_argv:
            os._exit(7)
        """,
    )
    process = run_command("demo", cwd=tmp_path, **broken)
    assert process.returncode == 1
    assert "ended with 7" in process.stderr
    again = run_command("demo", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


# -- what may be missing


def test_the_demo_says_that_langgraph_is_missing(tmp_path):
    missing = without(tmp_path / "site", "langgraph.graph", "langgraph.prebuilt")
    process = run_command("demo", cwd=tmp_path, **missing)
    assert process.returncode == 2
    assert "pip install langgraph" in process.stderr
    assert not (tmp_path / "logsaver-demo.log").exists()


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra_the_command_says_how_to_install_it(tmp_path, module):
    process = run_command("demo", cwd=tmp_path, **without(tmp_path / "site", module))
    assert process.returncode == 2
    assert process.stderr == HINT
    assert 'pip install "logsaver[cli]"' in HINT
    assert HINT.count("\n") == 1
    assert process.stdout == ""


def test_the_library_does_not_need_the_extra(tmp_path):
    missing = without(tmp_path / "site", "typer", "rich")
    code = "import logsaver, logsaver.cli, sys; sys.exit('typer' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **missing})


def test_another_missing_module_is_not_hidden_behind_the_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "logsaver.cli.app", None)
    with pytest.raises(ModuleNotFoundError, match=r"logsaver\.cli\.app"):
        main()


# -- the command itself


def test_the_command_shows_its_version(tmp_path):
    process = run_command("--version", cwd=tmp_path)
    assert (process.returncode, process.stdout) == (0, f"logsaver {__version__}\n")


def test_an_unknown_option_is_a_usage_error(tmp_path):
    assert run_command("demo", "--wrong", cwd=tmp_path).returncode == 2


def test_the_installed_command_is_main():
    (script,) = entry_points(group="console_scripts", name="logsaver")
    assert script.load() is main
