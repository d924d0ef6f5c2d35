"""Wrong arguments, wrong files, wrong moments: a clear error, and nothing changed on disk."""

import asyncio
import contextlib
import inspect
import os
import re
import shutil
import sqlite3
import tempfile
import uuid

import ormsgpack
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from logs import build_log, checkpoint, log_of_payload
from support import VOUCH, id_of, ids, make_checkpoint, make_config, put, run_python

from logsaver import (
    ClosedLogError,
    CorruptLogError,
    InvalidInputError,
    LogOpenError,
    LogSaver,
    LogSaverError,
    NotALogError,
    ReadOnlyLogError,
    ThreadExistsError,
    UnsupportedFormatError,
    ValueEncodeError,
    repair,
    verify,
)
from logsaver.frame import FileHeader

ADVICE = re.compile(
    r"\b(pass|give|open|create|close|check|use|upgrade|restore|repair|delete|make|keep|needs?"
    r"|must|is one of|there (is|are))\b"
)


def assert_helpful(error):
    """A message is read by somebody who wants to know what to do now."""
    message = str(error)
    assert ADVICE.search(message), f"says what is wrong, but not what to do: {message}"
    assert len(message) > 20


def tree(directory):
    """Everything in a directory: names, kinds, permissions, bytes."""
    found = {}
    for base, directories, files in os.walk(directory):
        for name in (*directories, *files):
            path = os.path.join(base, name)
            status = os.lstat(path)
            content = None
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, directory)] = (status.st_mode, status.st_ino, content)
    return found


@pytest.fixture
def unchanged(tmp_path):
    """Asserts, when asked and at the end, that the directory is as it was when last asked."""

    class Unchanged:
        before = tree(tmp_path)

        def from_here_on(self):
            self.before = tree(tmp_path)

        def check(self):
            assert tree(tmp_path) == self.before

        def check_after_close(self):
            """Closing a log that was written to adds a frame, which holds nothing."""
            now = tree(tmp_path)
            for name, (mode, inode, content) in now.items():
                before = self.before[name][-1]
                if content and before and len(content) == len(before) + VOUCH:
                    now[name] = mode, inode, content[:-VOUCH]
            assert now == self.before

    watch = Unchanged()
    yield watch
    watch.check_after_close()


@pytest.fixture
def filled(saver, unchanged):
    """A saver with a checkpoint and a write; from here on nothing may change on disk."""
    config = put(saver, values={"x": 1})
    saver.put_writes(config, [("x", 2)], "task")
    unchanged.from_here_on()
    return saver


# -- every public method, with arguments that would work

CALLS = {
    "get": lambda s, c: s.get(c),
    "get_tuple": lambda s, c: s.get_tuple(c),
    "list": lambda s, c: list(s.list(c)),
    "get_delta_channel_history": lambda s, c: s.get_delta_channel_history(config=c, channels=["x"]),
    "threads": lambda s, c: list(s.threads()),
    "stats": lambda s, c: s.stats(),
    "put": lambda s, c: s.put(c, make_checkpoint({"x": 1}), {}, {"x": 1}),
    "put_writes": lambda s, c: s.put_writes(c, [("x", 1)], "task 2"),
    "delete_thread": lambda s, c: s.delete_thread("t"),
    "delete_for_runs": lambda s, c: s.delete_for_runs(["r"]),
    "copy_thread": lambda s, c: s.copy_thread("t", "u"),
    "prune": lambda s, c: s.prune(["t"]),
    "retention_preview": lambda s, c: s.retention_preview(),
    "compact": lambda s, c: s.compact(),
    "flush": lambda s, c: s.flush(),
    "aget": lambda s, c: s.aget(c),
    "aget_tuple": lambda s, c: s.aget_tuple(c),
    "alist": lambda s, c: listed(s.alist(c)),
    "aget_delta_channel_history": lambda s, c: s.aget_delta_channel_history(
        config=c, channels=["x"]
    ),
    "aput": lambda s, c: s.aput(c, make_checkpoint({"x": 1}), {}, {"x": 1}),
    "aput_writes": lambda s, c: s.aput_writes(c, [("x", 1)], "task 2"),
    "adelete_thread": lambda s, c: s.adelete_thread("t"),
    "adelete_for_runs": lambda s, c: s.adelete_for_runs(["r"]),
    "acopy_thread": lambda s, c: s.acopy_thread("t", "u"),
    "aprune": lambda s, c: s.aprune(["t"]),
    "aretention_preview": lambda s, c: s.aretention_preview(),
    "acompact": lambda s, c: s.acompact(),
    "aflush": lambda s, c: s.aflush(),
}
NEED_NO_LOG = {"close", "aclose", "from_conn_string", "get_next_version", "with_allowlist"}
WRITING = [
    name
    for name in CALLS
    if name.removeprefix("a") in {"put", "put_writes", "copy_thread", "prune", "compact"}
    or "delete" in name
]
GOOD = make_config(checkpoint_id="c1")


async def listed(iterator):
    return [found async for found in iterator]


def finished(method, *arguments, **options):
    """Call a sync or async method to its end."""
    result = method(*arguments, **options)
    return asyncio.run(result) if inspect.isawaitable(result) else result


def call(name, saver, config=GOOD):
    return finished(CALLS[name], saver, config)


def test_the_table_of_calls_has_every_public_method():
    public = {
        name
        for name, _ in inspect.getmembers(LogSaver, inspect.isroutine)
        if not name.startswith("_")
    }
    assert public == CALLS.keys() | NEED_NO_LOG


@pytest.mark.parametrize("name", CALLS)
def test_every_method_works_with_good_arguments(path, name):
    """So that the tests below fail for the reason they name and no other."""
    with LogSaver(path) as saver:
        put(saver, checkpoint_id="c1")
        call(name, saver)


@pytest.mark.parametrize("name", CALLS)
def test_every_method_raises_after_close(filled, unchanged, name):
    filled.close()
    with pytest.raises(ClosedLogError) as caught:
        call(name, filled)
    assert caught.value.path == filled.path
    assert_helpful(caught.value)
    filled.close()
    asyncio.run(filled.aclose())
    assert "closed" in repr(filled)


@pytest.mark.parametrize("name", WRITING)
def test_every_writing_method_raises_on_a_read_only_saver(path, unchanged, name):
    with LogSaver(path) as saver:
        put(saver, checkpoint_id="c1", metadata={"run_id": "r"})
    unchanged.from_here_on()
    with LogSaver(path, read_only=True) as reader, pytest.raises(ReadOnlyLogError) as caught:
        call(name, reader)
    assert caught.value.path == path
    assert "read_only=True" in str(caught.value)


def test_the_other_methods_work_on_a_read_only_saver(path):
    assert len(WRITING) == 14
    with LogSaver(path) as saver:
        put(saver, checkpoint_id="c1")
    for name in CALLS.keys() - set(WRITING):
        with LogSaver(path, read_only=True) as reader:
            call(name, reader)


# -- configs

CONFIG_CALLS = [
    name
    for name in CALLS
    if name.removeprefix("a")
    in {"get", "get_tuple", "list", "get_delta_channel_history", "put", "put_writes"}
]


@pytest.mark.parametrize("name", CONFIG_CALLS)
@pytest.mark.parametrize(
    "config",
    [{}, {"configurable": None}, {"configurable": "t"}, {"configurable": {}}, {"metadata": {}}, ""],
    ids=repr,
)
def test_a_config_without_a_thread_is_refused(filled, unchanged, name, config):
    with pytest.raises(InvalidInputError, match="thread_id") as caught:
        call(name, filled, config)
    assert_helpful(caught.value)


@pytest.mark.parametrize("name", CONFIG_CALLS)
@pytest.mark.parametrize("more", [{}, {"checkpoint_id": "c1"}, {"thread_id": None}], ids=repr)
def test_a_config_that_names_everything_but_the_thread_is_refused(filled, unchanged, name, more):
    with pytest.raises(InvalidInputError, match="thread_id"):
        call(name, filled, {"configurable": {"checkpoint_ns": "", **more}})


@pytest.mark.parametrize("name", [n for n in CONFIG_CALLS if n not in WRITING and "list" not in n])
def test_no_config_at_all_is_refused_where_one_is_needed(filled, unchanged, name):
    with pytest.raises((InvalidInputError, TypeError)):
        call(name, filled, None)


@pytest.mark.parametrize("name", ["put_writes", "aput_writes"])
@pytest.mark.parametrize("checkpoint_id", [None, ""])
def test_writes_without_a_checkpoint_id_are_refused(filled, unchanged, name, checkpoint_id):
    with pytest.raises(InvalidInputError, match="checkpoint_id") as caught:
        call(name, filled, make_config(checkpoint_id=checkpoint_id))
    assert_helpful(caught.value)


@pytest.mark.parametrize("wrong", [{}, {"id": None}, {"id": ""}, {"v": 4}], ids=repr)
def test_a_checkpoint_without_an_id_is_refused(filled, unchanged, wrong):
    before = ids(filled.list(None))
    with pytest.raises(InvalidInputError, match="id"):
        filled.put(make_config(), wrong, {}, {})
    with pytest.raises(InvalidInputError, match="id"):
        asyncio.run(filled.aput(make_config(), wrong, {}, {}))
    assert ids(filled.list(None)) == before


# -- ids, names and other arguments

NOT_TEXT = [1, 0, -5, 1.5, True, uuid.UUID(int=7), ("a", 1)]


@pytest.mark.parametrize("value", NOT_TEXT, ids=repr)
def test_an_id_that_is_not_text_means_the_same_as_its_text(path, value):
    with LogSaver(path) as saver:
        config = put(saver, thread_id=value, values={"x": 1}, metadata={"run_id": value})
        assert config["configurable"]["thread_id"] == str(value)
        saver.put_writes(make_config(value, checkpoint_id=id_of(config)), [("x", 2)], value, value)
    with LogSaver(path) as saver:
        found = saver.get_tuple(make_config(str(value)))
        assert found.pending_writes == [(str(value), "x", 2)]
        assert saver.get_tuple(make_config(value)) == found
        saver.copy_thread(value, "copy")
        saver.prune([value])
        saver.delete_for_runs([value])
        saver.delete_thread(value)
        assert saver.get_tuple(make_config(str(value))) is None


@pytest.mark.parametrize("value", [v for v in NOT_TEXT if v], ids=repr)
def test_a_checkpoint_id_or_namespace_that_is_not_text_means_its_text(path, value):
    with LogSaver(path) as saver:
        config = put(saver, ns=value, values={"x": 1}, checkpoint_id=value)
    assert config["configurable"]["checkpoint_ns"] == str(value)
    assert config["configurable"]["checkpoint_id"] == str(value)
    with LogSaver(path) as saver:
        assert saver.get_tuple(make_config("t", value, value)).config == config


@pytest.mark.parametrize("channel", [5, None, b"x", 1.5, ("a",), ["a"]], ids=repr)
def test_a_channel_name_that_is_not_text_is_refused_and_the_log_stays_good(
    path, filled, unchanged, channel
):
    """Stored as it is, it would make the whole log unreadable at the next open."""
    config = filled.get_tuple(make_config()).config
    with pytest.raises((LogSaverError, TypeError)):
        filled.put_writes(config, [("x", 1), (channel, 2)], "other task")
    unchanged.check()
    if not isinstance(channel, list):
        with pytest.raises(LogSaverError):
            filled.put(config, {**make_checkpoint(), "channel_values": {channel: 1}}, {}, {})
    filled.close()
    with LogSaver(path, read_only=True) as again:
        assert again.get_tuple(make_config()).config == config


@pytest.mark.parametrize(
    "call_with",
    [
        lambda s, bad: put(s, thread_id=bad),
        lambda s, bad: put(s, ns=bad),
        lambda s, bad: put(s, checkpoint_id=bad),
        lambda s, bad: put(s, values={bad: 1}),
        lambda s, bad: s.put_writes(GOOD, [(bad, 1)], "task"),
        lambda s, bad: s.put_writes(GOOD, [("x", 1)], bad),
        lambda s, bad: s.put_writes(GOOD, [("x", 1)], "task", bad),
        lambda s, bad: s.copy_thread("t", bad),
    ],
    ids=["thread", "ns", "checkpoint", "channel", "write", "task", "path", "copy"],
)
def test_text_that_is_not_valid_unicode_is_refused(filled, unchanged, call_with):
    with pytest.raises((InvalidInputError, ValueEncodeError)) as caught:
        call_with(filled, "lone \ud800 surrogate")
    assert "stored" in str(caught.value)


@pytest.mark.parametrize("bare", ["t", b"t"])
@pytest.mark.parametrize(
    "name", ["prune", "aprune", "delete_for_runs", "adelete_for_runs"], ids=str
)
def test_one_id_where_several_are_expected_is_a_type_error(filled, unchanged, name, bare):
    """Taken for a sequence, it would name a thread per letter."""
    with pytest.raises(TypeError, match="sequence of ids") as caught:
        finished(getattr(filled, name), bare)
    assert ("run_ids" if "runs" in name else "thread_ids") in str(caught.value)


@pytest.mark.parametrize("strategy", ["", "keep_last", "KEEP_LATEST", None, 5])
def test_an_unknown_prune_strategy_is_a_value_error(filled, unchanged, strategy):
    for thread_ids in (["t"], [], ["no such thread"]):
        with pytest.raises(ValueError, match="keep_latest"):
            filled.prune(thread_ids, strategy=strategy)
        with pytest.raises(ValueError, match="delete"):
            asyncio.run(filled.aprune(thread_ids, strategy=strategy))


@pytest.mark.parametrize("limit", [-1, -100])
def test_a_negative_limit_is_a_value_error(filled, unchanged, limit):
    for config in (None, make_config()):
        with pytest.raises(ValueError, match="limit"):
            filled.list(config, limit=limit)
        with pytest.raises(ValueError, match="limit"):
            asyncio.run(listed(filled.alist(config, limit=limit)))


def test_a_copy_onto_a_thread_that_has_checkpoints_is_refused(filled, unchanged):
    for target in ("t", "u"):
        if target == "u":
            put(filled, "u")
            unchanged.from_here_on()
        with pytest.raises(ThreadExistsError, match=target) as caught:
            filled.copy_thread("t", target)
        assert_helpful(caught.value)


def test_what_is_not_there_is_left_alone(filled, unchanged):
    """Nothing to do is no error, and writes nothing."""
    filled.delete_thread("no such thread")
    filled.delete_for_runs(["no such run"])
    filled.delete_for_runs([])
    filled.prune(["no such thread"])
    filled.prune([])
    filled.copy_thread("no such thread", "u")
    filled.put_writes(GOOD, [], "task")
    assert filled.get_tuple(make_config("no such thread")) is None


@pytest.mark.parametrize(
    "ts",
    ["", "yesterday", None, 5, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-12:00"],
)
def test_a_timestamp_that_makes_no_sense_does_no_harm(path, ts):
    with LogSaver(path) as saver:
        config = put(saver, values={"x": 1}, ts=ts)
        assert saver.get_tuple(config).checkpoint["ts"] == ts
        assert [info.thread_id for info in saver.threads()] == ["t"]
    with LogSaver(path) as saver:
        assert [info.thread_id for info in saver.threads()] == ["t"]


# -- values that the serializer refuses


class Picky(JsonPlusSerializer):
    """Refuses every `Refused`, after whatever it serialized before."""

    def dumps_typed(self, obj):
        if isinstance(obj, Refused) or (isinstance(obj, dict) and "refused" in obj):
            raise TypeError("not this one")
        return super().dumps_typed(obj)


class Refused:
    pass


REFUSED_CALLS = {
    "a channel": lambda s: put(s, values={"a": 1, "b": Refused(), "c": 3}),
    "the checkpoint": lambda s: put(s, values={"a": 1}, refused=True),
    "the metadata": lambda s: put(s, values={"a": 1}, metadata={"refused": True}),
    "a write": lambda s: s.put_writes(GOOD, [("a", 1), ("b", Refused()), ("c", 3)], "task"),
}


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_nothing_of_a_call_with_a_value_the_serializer_refuses_is_stored(path, unchanged, name):
    with LogSaver(path, serde=Picky()) as saver:
        first = put(saver, values={"a": 0}, checkpoint_id="c1")
        before, stats = list(saver.list(None)), saver.stats()
        unchanged.from_here_on()
        with pytest.raises(ValueEncodeError, match=r"Picky.*not this one.*nothing") as caught:
            REFUSED_CALLS[name](saver)
        assert "'t'" in str(caught.value)
        assert_helpful(caught.value)
        assert "pickle_fallback=True" in str(caught.value)
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value.__cause__, TypeError)
        assert saver.stats() == stats
        assert list(saver.list(None)) == before
        unchanged.check()
        put(saver, values={"a": 2}, parent=first)  # the saver works on
        unchanged.from_here_on()


async def test_the_same_from_a_coroutine(path, unchanged):
    async with LogSaver(path, serde=Picky()) as saver:
        unchanged.from_here_on()
        with pytest.raises(ValueEncodeError):
            await saver.aput(make_config(), make_checkpoint({"x": Refused()}), {}, {"x": 1})
        with pytest.raises(ValueEncodeError):
            await saver.aput_writes(GOOD, [("x", Refused())], "task")


@pytest.mark.parametrize(
    "answer",
    [None, b"bytes", ("msgpack",), ("msgpack", None), ("msgpack", "text"), (None, b""), (5, b""),
     ("msgpack", 5), ("t", b"", b"")],
    ids=repr,
)  # fmt: skip
def test_a_serializer_that_breaks_its_contract_does_not_break_the_log(path, unchanged, answer):
    """What it answers must be a type name and bytes, or the log could not be read back."""

    class Broken(JsonPlusSerializer):
        def dumps_typed(self, obj):
            return answer if obj == "break" else super().dumps_typed(obj)

    with LogSaver(path, serde=Broken()) as saver:
        config = put(saver, values={"x": "fine"})
        unchanged.from_here_on()
        with pytest.raises(ValueEncodeError):
            put(saver, values={"x": "break"}, parent=config)
        with pytest.raises(ValueEncodeError):
            saver.put_writes(config, [("x", "break")], "task")


# -- paths


@pytest.mark.parametrize("opener", ["open", "verify", "repair"])
@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_path_that_means_no_file_is_refused(path, opener, tmp_path, unchanged, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="InMemorySaver") as caught:
        open_with(opener, path, tmp_path / "new.log")
    assert_helpful(caught.value)


class BytesPath:
    def __fspath__(self):
        return b"agent.log"

    def __repr__(self):
        return "BytesPath"  # and not where it is: the tests of every process have the same names


@pytest.mark.parametrize("opener", ["open", "verify", "repair"])
@pytest.mark.parametrize("path", [b"agent.log", b"", BytesPath(), 5, None, "nul\0byte"], ids=repr)
def test_what_is_no_path_is_refused(path, opener, tmp_path, unchanged, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match=r"text or os\.PathLike") as caught:
        open_with(opener, path, tmp_path / "new.log")
    assert "InMemorySaver" not in str(caught.value)


def test_a_connection_is_no_path(tmp_path, unchanged, monkeypatch):
    """`SqliteSaver(sqlite3.connect(...))` is how many a program to be moved begins."""
    monkeypatch.chdir(tmp_path)
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(InvalidInputError, match=r"text or os\.PathLike.*Connection"),
    ):
        LogSaver(connection)


@pytest.mark.parametrize("timeout", ["5", None, float("nan"), -1, -0.1, True], ids=repr)
def test_a_wrong_lock_timeout_is_refused_before_anything_is_made(path, unchanged, timeout):
    with pytest.raises(InvalidInputError, match="lock_timeout is a number of seconds") as caught:
        LogSaver(path, lock_timeout=timeout)
    assert_helpful(caught.value)


@pytest.mark.parametrize("timeout", [0, 0.5, float("inf")])
def test_any_number_of_seconds_is_a_lock_timeout(path, timeout):
    with LogSaver(path, lock_timeout=timeout) as saver:
        put(saver)


@pytest.mark.parametrize("fsync", ["", "sometimes", None, True, 1, "AUTO"])
def test_a_wrong_fsync_policy_is_refused_before_anything_is_made(path, unchanged, fsync):
    with pytest.raises(InvalidInputError, match=r"auto.*always.*never") as caught:
        LogSaver(path, fsync=fsync)
    assert_helpful(caught.value)


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
@pytest.mark.parametrize("opener", ["open", "verify", "repair"])
def test_a_directory_is_no_log(tmp_path, unchanged, read_only, opener):
    with pytest.raises(LogOpenError, match="directory") as caught:
        open_with(opener, tmp_path, tmp_path / "new.log", read_only=read_only)
    assert_helpful(caught.value)


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
def test_a_missing_parent_directory_is_told_by_name(tmp_path, unchanged, read_only):
    with pytest.raises(LogOpenError, match=r"missing does not exist; create") as caught:
        LogSaver(tmp_path / "missing" / "agent.log", read_only=read_only)
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == 2
    assert_helpful(caught.value)


def test_a_tilde_is_not_the_home_directory_and_the_error_says_what_is(
    tmp_path, unchanged, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LogOpenError, match=r"~ does not exist.*os\.path\.expanduser"):
        LogSaver("~/agent.log")
    with pytest.raises(LogOpenError) as caught:
        LogSaver("a~b/agent.log")
    assert "expanduser" not in str(caught.value)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="this system has no /proc")
def test_a_directory_that_takes_no_files_is_told_to_a_writer_as_it_is():
    with pytest.raises(LogOpenError, match=r"no file can be made in /proc; give") as caught:
        LogSaver("/proc/x.log")
    assert "read-only" not in str(caught.value)


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
def test_a_parent_that_is_a_file_is_an_open_error(tmp_path, unchanged, read_only):
    (tmp_path / "file").write_text("text")
    unchanged.from_here_on()
    with pytest.raises(LogOpenError):
        LogSaver(tmp_path / "file" / "agent.log", read_only=read_only)


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
def test_a_name_that_is_too_long_is_an_open_error(tmp_path, unchanged, read_only):
    with pytest.raises(LogOpenError):
        LogSaver(tmp_path / ("n" * 300), read_only=read_only)


def test_a_symlink_that_leads_to_itself_is_an_open_error(tmp_path, unchanged):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    unchanged.from_here_on()
    with pytest.raises(LogOpenError):
        LogSaver(tmp_path / "loop")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_or_device_is_refused_and_not_replaced(tmp_path, unchanged):
    """It has no size, like an empty file, but is not one: as root, `LogSaver("/dev/null")` would
    put a log in place of the device.
    """
    os.mkfifo(tmp_path / "pipe")
    unchanged.from_here_on()
    with pytest.raises(LogSaverError):
        LogSaver(tmp_path / "pipe")


def open_with(opener, path, out, *, read_only=False):
    if opener == "verify":
        return verify(path)
    if opener == "repair":
        return repair(path, out)
    return LogSaver(path, read_only=read_only)


# -- files that are no logs


def sqlite_file():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "db")
        connection = sqlite3.connect(path)
        connection.execute("create table checkpoints (thread_id text)")
        connection.commit()
        connection.close()
        with open(path, "rb") as file:
            return file.read()


FOREIGN = {
    "text": b"just a text file\n" * 20,
    "short text": b"hi",
    "one byte": b"\x89",
    "sqlite": sqlite_file(),
    "random bytes": bytes((n * 7919 + n // 3) % 251 for n in range(5000)),
    "zeros": bytes(4096),
    "a signature that was treated as text": b"\x89LSV\n\x1a\n" + bytes(100),
    "half a signature": b"\x89LSV",
}


@pytest.mark.parametrize("opener", ["open", "open read-only", "verify", "repair"])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, unchanged, name, opener):
    path = tmp_path / "agent.log"
    path.write_bytes(FOREIGN[name])
    unchanged.from_here_on()
    with pytest.raises(NotALogError, match="not a logsaver log") as caught:
        open_with(opener, path, tmp_path / "new.log", read_only="read-only" in opener)
    assert caught.value.path == str(path)
    assert ("SQLite database" in str(caught.value)) == (name == "sqlite")


@pytest.mark.parametrize("opener", ["open", "open read-only", "verify", "repair"])
@pytest.mark.parametrize("size", [8, 20, 63])
def test_a_log_shorter_than_its_header_is_damaged_and_left_alone(tmp_path, unchanged, size, opener):
    path = tmp_path / "agent.log"
    path.write_bytes(FileHeader(bytes(16)).encode()[:size])
    unchanged.from_here_on()
    with pytest.raises(CorruptLogError) as caught:
        open_with(opener, path, tmp_path / "new.log", read_only="read-only" in opener)
    assert caught.value.offset == 0
    assert_helpful(caught.value)


@pytest.mark.parametrize("opener", ["open", "open read-only", "verify", "repair"])
@pytest.mark.parametrize("version", [2, 3, 65535])
def test_a_log_of_a_newer_format_version_is_refused_and_left_alone(
    tmp_path, unchanged, version, opener
):
    path = tmp_path / "agent.log"
    data = bytearray(build_log([checkpoint()]).data)
    data[8:10] = version.to_bytes(2, "little")
    path.write_bytes(data)
    unchanged.from_here_on()
    with pytest.raises(UnsupportedFormatError, match=rf"{version}.*upgrade") as caught:
        open_with(opener, path, tmp_path / "new.log", read_only="read-only" in opener)
    assert_helpful(caught.value)


def test_an_empty_file_becomes_a_new_log(path):
    with open(path, "wb"):
        pass
    with LogSaver(path) as saver:
        config = put(saver, values={"x": 1})
    with LogSaver(path, read_only=True) as saver:
        assert saver.get_tuple(make_config()).config == config


def test_an_empty_file_is_no_log_to_a_reader(path, unchanged):
    with open(path, "wb"):
        pass
    unchanged.from_here_on()
    with pytest.raises(LogOpenError, match="empty"):
        LogSaver(path, read_only=True)


def test_a_missing_file_is_no_log_to_a_reader(path, unchanged):
    for opener in (lambda: LogSaver(path, read_only=True), lambda: verify(path)):
        with pytest.raises(LogOpenError, match="no such file"):
            opener()
    with pytest.raises(LogOpenError, match="no such file"):
        repair(path, path + ".new")


# -- messages


def a_foreign_file(path):
    with open(path, "w") as file:
        file.write("just a text file")
    LogSaver(path)


def a_write_on_a_reader(path):
    LogSaver(path).close()
    with LogSaver(path, read_only=True) as reader:
        put(reader)


def a_checkpoint_without_an_id(path):
    with LogSaver(path) as saver:
        saver.put(make_config(), {"v": 4}, {}, {})


def a_malformed_record(path):
    with open(path, "wb") as file:
        file.write(log_of_payload(5, ormsgpack.packb((1, 2))).data)
    LogSaver(path)


def a_frame_that_went_bad(path):
    with LogSaver(path) as saver:
        config = put(saver, values={"x": 1})
        saver._store.log.cache.clear()
        with open(path, "r+b") as file:
            file.seek(110)
            file.write(b"\xff\xff\xff")
        saver.get_tuple(config)


@pytest.mark.parametrize(
    "mistake",
    [
        a_foreign_file,
        a_write_on_a_reader,
        a_checkpoint_without_an_id,
        a_malformed_record,
        a_frame_that_went_bad,
    ],
    ids=lambda mistake: mistake.__name__,
)
def test_an_error_says_what_to_do(path, mistake):
    with pytest.raises(LogSaverError) as caught:
        mistake(path)
    assert_helpful(caught.value)


# -- permissions

AS_NOBODY = """
    import os, sys
    import logsaver
    from logsaver import LogSaver, LogSaverError
    path, mode = sys.argv[1:]
    if os.getuid() == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        except OSError as error:
            print("SKIP", error)
            sys.exit()
    try:
        LogSaver(path, read_only=mode == "reader").close()
    except LogSaverError as error:
        print("OK", type(error).__name__, getattr(error, "errno", None), error)
    except BaseException as error:
        print("RAW", repr(error))
    else:
        print("OPENED")
"""


@pytest.fixture
def common():
    """A directory that any user can get to, unlike `tmp_path`."""
    directory = tempfile.mkdtemp(prefix="logsaver-test-")
    os.chmod(directory, 0o755)  # noqa: S103 - the point: another user may look inside
    yield directory
    os.chmod(directory, 0o700)
    shutil.rmtree(directory)


def open_without_privileges(path, mode):
    answer = run_python(AS_NOBODY, path, mode).stdout.strip()
    if answer.startswith("SKIP"):
        pytest.skip(f"runs as root and cannot become another user: {answer}")
    return answer


@pytest.mark.parametrize("mode", ["writer", "reader"])
@pytest.mark.parametrize(
    ("file_mode", "directory_mode"),
    [(0o000, 0o755), (0o444, 0o755), (None, 0o555), (0o644, 0o000), (None, 0o000)],
    ids=["unreadable", "readable", "no file in a fixed directory", "hidden", "hidden, no file"],
)
def test_no_permission_is_an_open_error_that_says_so(common, mode, file_mode, directory_mode):
    path = os.path.join(common, "agent.log")
    if file_mode is not None:
        with LogSaver(path) as saver:
            put(saver, values={"x": 1})
        os.chmod(path, file_mode)
    before = tree(common)
    os.chmod(common, directory_mode)
    answer = open_without_privileges(path, mode)
    os.chmod(common, 0o755)  # noqa: S103 - as above
    assert tree(common) == before
    if mode == "reader" and file_mode == 0o444 and directory_mode == 0o755:
        assert answer == "OPENED"
        return
    assert answer.startswith("OK LogOpenError"), answer
    if not (mode == "reader" and file_mode is None and directory_mode == 0o555):
        assert "13" in answer.split(), answer
        assert "no permission; check who owns" in answer
        may_help = mode == "writer" and file_mode is not None and directory_mode == 0o755
        assert ("use read_only=True" in answer) == may_help, answer


def test_an_empty_file_that_cannot_be_replaced_is_an_open_error(common):
    path = os.path.join(common, "agent.log")
    with open(path, "wb"):
        pass
    os.chmod(path, 0o666)  # noqa: S103 - another user may write to it, but not beside it
    answer = open_without_privileges(path, "writer")
    assert answer.startswith("OK LogOpenError"), answer
    assert os.listdir(common) == ["agent.log"]
    assert os.path.getsize(path) == 0
