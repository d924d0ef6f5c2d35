"""Each command on a real log, as text for a pipe, as JSON, and on terminals of two widths."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from datetime import datetime, timezone

import pytest
from graphs import THREAD, approval
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command
from rich.cells import cell_len
from support import VOUCH, new_id, put
from typer.main import get_command
from typer.testing import CliRunner

from logsaver import LogSaver, StoredCheckpoint, restore, stored, usage
from logsaver.arriving import Arrivals
from logsaver.cli.app import app
from logsaver.cli.output import clock, moment
from logsaver.copying import Copy
from logsaver.rewriting import rewrite

KEY = b"0123456789abcdef"
ESCAPE = "\x1b"
FOLDED = "a long value " * 200


class Odd:
    """No serializer but pickle takes it, and the commands do not unpickle."""


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log with a run that was answered and forked, a chat, a thread that cannot be decoded, and
    names that a terminal must not obey."""
    path = tmp_path_factory.mktemp("commands") / "agent.log"
    with LogSaver(path, serde=JsonPlusSerializer(pickle_fallback=True)) as saver:
        graph = approval().compile(checkpointer=saver)
        graph.invoke({"trail": []}, THREAD)
        asked = graph.get_state(THREAD).config
        graph.invoke(Command(resume="yes"), THREAD)
        graph.invoke(None, asked)  # asks again, in a branch of its own
        graph.invoke(Command(resume="no"), THREAD)
        config = put(saver, "chat", {"messages": [HumanMessage("hello 日本語 " * 30)]})
        calls = [{"name": "look", "args": {"up": 1}, "id": "1"}]
        messages = [
            HumanMessage("hello 日本語 " * 30),
            AIMessage("", tool_calls=calls),
            ToolMessage("found", tool_call_id="1", name="look"),
        ]
        put(saver, "chat", {"messages": messages, "note": FOLDED}, parent=config)
        odd = put(saver, f"odd{ESCAPE}[31m\n", {"bad": Odd(), "title": f"{ESCAPE}]0;owned\a"})
        saver.put_writes(odd, [("__interrupt__", Odd()), ("__error__", Odd())], "task")
    return path


@pytest.fixture
def own(log, tmp_path):
    """A copy of it to change."""
    path = tmp_path / "own.log"
    path.write_bytes(log.read_bytes())
    return path


def run(*args, code=0, **options):
    """Run a command in a pipe; what it said on stdout."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], **options)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert ESCAPE not in result.output
    return result.stdout if code == 0 else result.stderr


def run_json(*args, **options):
    return json.loads(run(*args, "--json", **options))


def history(log, thread="t"):
    return run_json("history", log, thread)


def everything(saver):
    return {
        thread.thread_id: list(stored(saver, {"configurable": {"thread_id": thread.thread_id}}))
        for thread in saver.threads()
    }


# -- looking


def test_threads_are_listed_newest_first(log):
    names = [thread["thread_id"] for thread in run_json("threads", log)]
    assert sorted(names) == ["chat", f"odd{ESCAPE}[31m\n", "t"]
    assert names[0] == "t"
    assert [found["thread_id"] for found in run_json("threads", log, "--prefix", "ch")] == ["chat"]
    assert run("threads", log, "--limit", "1").endswith("3 threads, 1 thread shown\n")


def test_history_draws_forks_and_says_what_comes_next(log):
    rows = history(log)
    asked = next(row for row in rows if row["interrupts"])
    assert asked["next"] == ["review"]
    assert asked["interrupts"] == [{"value": "good?", "answered": True}]
    forks = [row for row in rows if row["parent_id"] == asked["checkpoint_id"]]
    assert len(forks) == 2
    lines = run("history", log, "t").splitlines()
    assert [line[:2] for line in lines[1:-1]] == ["● ", "● ", "● ", "├─", "│ ", "● ", "● ", "● "]
    assert "→ review asks: good? (answered)" in lines[3]
    assert lines[1].split()[2:4] == ["-1", "input"]
    assert rows[0]["step"] == -1
    assert all(row["bytes"] > 0 for row in rows)


def test_show_tells_messages_as_a_conversation_and_folds_what_is_long(log):
    text = run("show", log, "chat")
    assert re.search(r"^  human +hello 日本語", text, re.MULTILINE)
    assert re.search(r"^  ai +→ look\(up=1\)$", text, re.MULTILINE)
    assert re.search(r"^  tool +look: found$", text, re.MULTILINE)
    assert "more characters; --full shows all" in text
    assert FOLDED.strip() in run("show", log, "chat", "--channel", "note", "--full")
    assert run_json("show", log, "chat")["values"]["note"] == FOLDED


def test_show_at_a_checkpoint_by_the_beginning_of_its_id(log):
    first, *_, last = history(log)
    assert run_json("show", log, "t", "--at", first["checkpoint_id"])["next"] == ["__start__"]
    assert run_json("show", log, "t")["checkpoint_id"] == last["checkpoint_id"]
    assert run_json("show", log, "t")["values"] == {"trail": ["draft", "review:no", "publish"]}
    assert "may be 8 checkpoints" in run("show", log, "t", "--at", "1", code=1)


def test_diff_shows_what_changed(log):
    one, other = (row["checkpoint_id"] for row in history(log, "chat"))
    text = run("diff", log, "chat", one, other)
    assert "  1 unchanged" in text.splitlines()[3]
    assert re.search(r"^  \+ tool +look: found$", text, re.MULTILINE)
    assert "note  (added)" in text
    changes = run_json("diff", log, "chat", other, one)["changes"]
    assert {name: change["change"] for name, change in changes.items()} == {
        "messages": "changed",
        "note": "removed",
    }


def test_stats_tell_where_the_bytes_are_and_what_was_saved(path):
    document = os.urandom(5000)
    with LogSaver(path) as saver:
        parent = None
        for number in range(5):
            text = "".join(f"line {line}\n" for line in range(1000 + number))
            versions = {"document": 1, "text": number}
            values = {"document": document, "text": text}
            parent = put(
                saver, "saved", values, parent=parent, versions=versions, new_versions={"text": 1}
            )
        put(saver, "gone", {"text": "x" * 1000})
        whole = sum(
            len(value.data)
            for item in everything(saver)["saved"]
            for value in item.channels.values()
        )
        saver.delete_thread("gone")
    told = run_json("stats", path)
    assert told["shared_bytes"] >= 4 * len(document)
    assert told["patched_bytes"] > 4 * 8000
    held = sum(channel["stored_bytes"] for channel in told["by_channel"].values())
    assert held + told["shared_bytes"] + told["patched_bytes"] == whole
    assert told["garbage_bytes"] > 1000
    assert told["by_thread"].keys() == {"saved"}
    text = run("stats", path)
    assert "saved by patches" in text
    assert "█" in text


def test_stats_show_the_largest_in_json_too(log):
    """--top was ignored there."""
    every, two = run_json("stats", log), run_json("stats", log, "--top", "2")
    for name in ("by_thread", "by_channel"):
        assert len(every[name]) > 2
        assert list(two[name].items()) == list(every[name].items())[:2]
    assert "of what it would be" in run("stats", log)


def test_tail_shows_the_newest_last(log):
    lines = run("tail", log, "-n", "2").splitlines()
    assert len(lines) == 2
    newest = run_json("threads", log)[0]["thread_id"]
    assert newest in lines[-1]
    told = [json.loads(line) for line in run("tail", log, "--json").splitlines()]
    assert len(told) == 10
    assert [row["checkpoint_id"] for row in told] == sorted(row["checkpoint_id"] for row in told)


def test_tail_follows_another_process_until_ctrl_c(own):
    """Also while a put of its own is not a whole frame yet: it waits for the rest of it."""
    command = [sys.executable, "-m", "logsaver", "tail", "-f", "-n", "0", "--json", str(own)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            seen = []
            reading = threading.Thread(target=lambda: seen.extend(process.stdout), daemon=True)
            reading.start()
            with LogSaver(own) as saver:
                deadline = time.monotonic() + 30
                number = 0
                while len(seen) < 3 and time.monotonic() < deadline:
                    put(saver, "live", {"n": number}, metadata={"step": number, "source": "loop"})
                    number += 1
                    time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
    reading.join()
    steps = [json.loads(line)["step"] for line in seen]
    assert len(steps) >= 3
    assert steps == list(range(steps[0], steps[0] + len(steps)))  # none twice, none left out


def test_a_checkpoint_arrives_however_old_its_id_is(tmp_path):
    """Tail went by ids: one made long before it was stored, behind 50 later ones, never came."""
    with LogSaver(tmp_path / "a.log") as saver:
        put(saver, "there already")
        held_up = new_id()
        arrivals = Arrivals(saver)
        assert list(arrivals) == []
        for number in range(60):
            put(saver, "busy", {"n": number})
        assert len(list(arrivals)) == 60
        put(saver, "slow", checkpoint_id=held_up)
        assert [key.checkpoint_id for key in arrivals] == [held_up]
        assert list(arrivals) == []


class _Busy(Copy):
    """A copy of a log that somebody puts into meanwhile: the new file has it behind its mark."""

    def settle(self):
        super().settle()
        with LogSaver(self.source.file.path) as other:
            put(other, "during")


def test_nothing_that_arrives_is_lost_over_a_compaction(tmp_path):
    with LogSaver(tmp_path / "a.log") as writer:
        put(writer, "gone", {"text": "x" * 10_000})
        put(writer, "kept")
        with LogSaver(tmp_path / "a.log", read_only=True) as reader:
            arrivals = Arrivals(reader)
            put(writer, "before")
            writer.delete_thread("gone")
            rewrite(writer._store, make=_Busy)
            put(writer, "after")
            put(writer, "after")
            assert [key.thread_id for key in arrivals] == ["before", "during", "after", "after"]
            put(writer, "later")
            assert [key.thread_id for key in arrivals] == ["later"]


def test_what_cannot_be_decoded_is_shown_raw(log, tmp_path):
    name = f"odd{ESCAPE}[31m\n"
    assert "raw 'pickle'" in run("show", log, name)
    told = run_json("show", log, name)
    assert set(told["values"]["bad"]) == {"undecodable", "type", "base64"}
    assert "raw 'pickle'" in run("history", log, name)
    assert history(log, name)[0]["interrupts"][0]["value"]["type"] == "pickle"
    assert "odd·[31m" in run("threads", log)
    assert "odd·[31m" in run("tail", log)
    run("export", log, name, "--readable", "-o", tmp_path / "odd.json")
    assert "undecodable" in (tmp_path / "odd.json").read_text("utf-8")


# -- on a terminal


def on_a_terminal(width, *commands, **env):
    """What a terminal of this width gets from these commands, one process for all."""
    code = f"""
import sys
from logsaver.cli.app import app
for command in {[[str(arg) for arg in command] for command in commands]!r}:
    app(command, standalone_mode=False)
"""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**clean, "TERM": "xterm", **env},
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := _read(ours):
            shown += piece
        assert process.wait(timeout=60) == 0, shown.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody is at the other end any more
        return b""


@pytest.mark.parametrize("width", [80, 140])
def test_a_terminal_is_not_wider_than_it_is(log, width):
    first, *_ = (row["checkpoint_id"] for row in history(log, "chat"))
    shown = on_a_terminal(
        width,
        ["threads", log],
        ["history", log, "t"],
        ["show", log, "chat"],
        ["show", log, f"odd{ESCAPE}[31m\n"],
        ["diff", log, "chat", first, "latest"],
        ["stats", log],
        ["tail", log],
        ["verify", log],
    )
    assert ESCAPE in shown  # headings are bold
    assert f"{ESCAPE}]0;" not in shown  # and what the state says is not obeyed
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n")
    path = str(log)
    wide = [line for line in plain.splitlines() if cell_len(line) > width and path not in line]
    assert wide == []
    assert max(cell_len(line) for line in plain.splitlines()) > width * 0.8
    assert "日本語" in plain


def test_no_color_is_obeyed_on_a_terminal(log):
    assert f"{ESCAPE}[3" not in on_a_terminal(80, ["show", log, "chat"], NO_COLOR="1")


def test_ten_thousand_threads_are_no_trouble(tmp_path):
    path = tmp_path / "many.log"
    with LogSaver(path, fsync="never") as saver:
        config = put(saver, "user-00000", {"n": 0})
        del config
        for number in range(1, 10_000):
            saver.copy_thread("user-00000", f"user-{number:05}")
    lines = run("threads", path).splitlines()
    assert len(lines) == 10_002
    assert lines[-1] == "10,000 threads"
    assert len(run("stats", path).splitlines()) < 40
    assert "and 9,990 more threads" in run("delete", path, "--all", code=2)
    assert len(run_json("threads", path)) == 10_000
    shown = on_a_terminal(80, ["threads", path, "--limit", "3"])
    assert "10,000 threads, 3 threads shown" in shown


# -- changing


def test_a_destructive_command_shows_what_it_will_do_and_asks(own):
    before = own.read_bytes()
    for command in ("delete", "prune"):
        told = run(command, own, "t", code=2)
        assert "t  (8 checkpoints, " in told
        assert "pass --yes" in told
        assert own.read_bytes() == before
        assert "name the threads, or pass --all" in run(command, own, code=2)
        assert "no thread 'nobody'" in run(command, own, "nobody", code=1)


@pytest.mark.parametrize(("answer", "left"), [(b"n\n", 8), (b"y\n", 1)])
def test_an_answer_on_a_terminal_decides(own, answer, left):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "logsaver", "prune", str(own), "t"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, answer)
        while _read(ours):
            pass
        assert process.wait(timeout=60) == (0 if left == 1 else 1)
    os.close(ours)
    assert len(history(own)) == left


def test_without_a_thread_or_all_nothing_is_picked(own):
    """Who had given neither was told: not both."""
    for command in ("prune", "delete"):
        assert "one of the two" in run(command, own, code=2)
        assert "not both" in run(command, own, "t", "--all", code=2)


def test_prune_copy_and_delete(own):
    assert run_json("copy", own, "t", "twin") == {"source": "t", "target": "twin", "checkpoints": 8}
    assert "has checkpoints already" in run("copy", own, "t", "twin", code=1)
    assert run_json("prune", own, "twin", "--yes")["pruned_checkpoints"] == 7
    assert len(history(own, "twin")) == 1
    assert len(history(own)) == 8
    assert run_json("delete", own, "t", "twin", "--yes") == {"deleted_threads": ["t", "twin"]}
    assert "no checkpoint of thread 't'" in run("history", own, "t", code=1)


def test_a_dry_prune_says_what_would_go_and_changes_nothing(own):
    content = own.read_bytes()
    (going,) = run_json("prune", own, "t", "--dry-run")
    assert len(going["removed"]) == 7
    told = run("prune", own, "t", "--dry-run")
    assert re.search(r"^t +7 +0 ", told, re.MULTILINE)
    assert "7 checkpoints would go" in told
    assert own.read_bytes() == content


def test_compacting_says_what_it_gave_back(own):
    run("prune", own, "t", "--yes")
    before = own.stat().st_size
    told = run("compact", own)
    assert "→" in told
    assert "given back" in told
    assert own.stat().st_size < before
    again = run_json("compact", own)
    assert again["bytes_before"] == again["bytes_after"] + VOUCH
    assert len(history(own)) == 1


def test_a_command_that_writes_does_not_make_a_log(tmp_path):
    for command in (["delete", "--all"], ["prune", "--all"], ["copy"], ["compact"]):
        names = ["a", "b"] if command == ["copy"] else []
        told = run(command[0], tmp_path / "no.log", *command[1:], *names, code=2)
        assert "there is no such file" in told
    assert list(tmp_path.iterdir()) == []


def test_verify_and_repair(own, tmp_path):
    assert run_json("verify", own)["ok"] is True
    data = bytearray(own.read_bytes())
    data[len(data) // 2] ^= 1
    own.write_bytes(data)
    assert "is damaged" in CliRunner().invoke(app, ["verify", str(own)]).stdout
    result = CliRunner().invoke(app, ["repair", str(own), str(tmp_path / "new.log"), "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["lost"]
    assert own.read_bytes() == data
    assert run_json("verify", tmp_path / "new.log")["ok"] is True
    assert "exists" in run("repair", own, tmp_path / "new.log", code=2)


def test_a_missing_file_and_one_that_is_no_log_are_told_in_the_terms_of_a_command(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("not a log\n" * 100)
    for command in ("threads", "tail", "stats"):
        told = run(command, tmp_path / "no.log", code=2)
        assert told == f"logsaver: {tmp_path / 'no.log'}: there is no such file\n"
        told = run(command, notes, code=2)
        assert "this is not a logsaver log" in told
        assert "does not exist yet" not in told
    for content in (b"not a log\n", b"", b"\xff\n", b"[]\n"):
        notes.write_bytes(content)
        told = run("import", tmp_path / "new.log", notes, code=1)
        assert "not what logsaver export writes" in told
        assert "line 1" not in told
    assert not (tmp_path / "new.log").exists()


def test_times_are_told_in_one_way(tmp_path):
    now = datetime.now(timezone.utc)
    with LogSaver(tmp_path / "a.log") as saver:
        put(saver, "old", {"n": 1})
        put(saver, "new", {"n": 1}, ts=now.isoformat())
    then = moment(datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc))
    assert then.endswith(datetime(2026, 1, 2).astimezone().strftime(" %Z"))
    path = tmp_path / "a.log"
    assert then in run("show", path, "old")
    old, new = run("tail", path).splitlines()
    assert old.startswith(then[:16] + "  old")
    assert new.startswith(clock(now))
    assert re.search(r"\d\d:\d\d:\d\d \w+ ", run("threads", path))


# -- moving


def test_an_export_comes_back_exactly(log, tmp_path):
    file, new = tmp_path / "all.jsonl", tmp_path / "new.log"
    told = run_json("export", log, "-o", file)
    assert told == {"file": str(file), "threads": 3, "checkpoints": 11}
    assert run_json("import", new, file)["checkpoints"] == 11
    with LogSaver(log, read_only=True) as one, LogSaver(new, read_only=True) as other:
        before, after = everything(one), everything(other)
    assert before.keys() == after.keys()
    for name, items in before.items():
        for item, copied in zip(items, after[name], strict=True):
            assert isinstance(copied, StoredCheckpoint)
            for part in ("checkpoint_id", "parent_id", "checkpoint", "metadata", "channels"):
                assert getattr(item, part) == getattr(copied, part)
            assert item.writes == copied.writes
    again = tmp_path / "again.jsonl"
    run("export", new, *before, "-o", again)
    assert sorted(again.read_text().splitlines()[1:]) == sorted(file.read_text().splitlines()[1:])
    assert "has thread" in run("import", new, file, code=1)


def test_an_export_is_readable_by_its_owner_only_like_a_log(log, tmp_path):
    """What was encrypted in a log of mode 0600 lay in clear in a file that everybody could read."""
    for options in ([], ["--readable"]):
        file = tmp_path / f"export{len(options)}"
        run("export", log, "-o", file, *options)
        assert file.stat().st_mode & 0o777 == 0o600


def test_one_thread_goes_through_a_pipe(log, tmp_path):
    exported = run("export", log, "chat")
    assert run_json("import", tmp_path / "new.log", input=exported)["threads"] == 1
    assert run("show", tmp_path / "new.log", "chat") == run("show", log, "chat")


def test_a_broken_export_leaves_nothing_behind(log, tmp_path):
    exported = run("export", log, "t").splitlines(keepends=True)
    new = tmp_path / "new.log"
    for broken in (exported[:-1], [*exported[:-2], exported[-1]], ["{}\n"], ["no\n"]):
        told = run("import", new, input="".join(broken), code=1)
        assert "nothing was imported" in told
        with LogSaver(new) as saver:
            assert not list(saver.threads())


def test_a_readable_export_is_json_with_the_values(log, tmp_path):
    file = tmp_path / "readable.json"
    run("export", log, "chat", "--readable", "-o", file)
    last = json.loads(file.read_text("utf-8"))[-1]
    assert last["values"]["note"] == FOLDED
    assert last["values"]["messages"][1]["tool_calls"][0]["name"] == "look"
    assert "exists" in run("export", log, "chat", "-o", file, code=2)


def test_what_restore_puts_back_is_shared_again(log, tmp_path):
    with LogSaver(log, read_only=True) as one, LogSaver(tmp_path / "new.log") as other:
        restore(other, stored(one, THREAD))
        assert usage(other).shared_bytes == usage(one).shared_bytes


# -- keys


def test_an_encrypted_log_needs_its_key(tmp_path, monkeypatch):
    monkeypatch.delenv("LANGGRAPH_AES_KEY", raising=False)
    path, key_file = tmp_path / "secret.log", tmp_path / "key"
    with LogSaver(path, serde=EncryptedSerializer.from_pycryptodome_aes(key=KEY)) as saver:
        put(saver, "t", {"text": "hush"})
    key_file.write_bytes(KEY + b"\n")
    assert "encrypted" in run("show", path, "t", code=2)
    assert "hush" in run("show", path, "t", "--key-file", key_file)
    assert "hush" in run("show", path, "t", env={"LANGGRAPH_AES_KEY": KEY.decode()})
    wrong = KEY[::-1].decode()
    assert "key" in run("show", path, "t", env={"LANGGRAPH_AES_KEY": wrong}, code=2)
    assert "16, 24 or 32 bytes" in run("threads", path, env={"LANGGRAPH_AES_KEY": "x"}, code=2)


# -- all of them


def commands():
    return get_command(app).commands


@pytest.mark.parametrize("name", list(commands()))
def test_a_command_has_json_and_says_when_it_changes_something(name):
    options = {option for param in commands()[name].params for option in param.opts}
    assert "--json" in options
    writes = {"prune", "delete", "copy", "import", "migrate", "compact", "rekey"}
    assert ("Changes the" in commands()[name].help) == (name in writes)
    assert ("--yes" in options) == (name in writes & {"prune", "delete", "rekey"})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_completes_commands_and_threads(log, shell):
    def complete(words):
        env = {
            "_LOGSAVER_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": words,
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }
        command = [sys.executable, "-c", "from logsaver.cli import main; main()"]
        code = "import sys; sys.argv[0] = 'logsaver'; "
        command[2] = code + command[2]
        return subprocess.run(
            command, env={**os.environ, **env}, capture_output=True, text=True, check=False
        ).stdout

    if shell == "bash":
        assert "history" in complete("logsaver hi")
    found = complete(f"logsaver history {log} ch")
    assert "chat" in found
    assert "odd" not in found


def test_the_end_of_a_pipe_is_no_error_to_talk_about(log):
    command = f"{sys.executable} -m logsaver export {log} | head -c 10"
    process = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)  # noqa: S602
    assert process.stderr == ""
