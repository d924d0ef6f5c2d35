"""Threads move from one saver to another and go on there."""

from __future__ import annotations

import asyncio
import json
import pickle
import sqlite3
import sys
import textwrap
import types
from contextlib import contextmanager, suppress
from itertools import pairwise

import postgres
import pytest
from graphs import THREAD, Runs, Trail, approval, ask, chain, step
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import ERROR, INTERRUPT, RESUME
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from support import id_of, make_config, new_id, put
from test_langgraph_delta import diary
from test_langgraph_delta import run as keep_diary
from typer.testing import CliRunner

from logsaver import LogSaver
from logsaver.cli.app import app
from logsaver.cli.opening import read_key, serializers
from logsaver.holdings import Place, Slot, holdings_of
from logsaver.keeping import Kept, keeping
from logsaver.migrate import CopyReport, MigrationError, copy, open_saver, parents_first


@pytest.fixture(scope="session")
def postgres_server():
    if reason := postgres.missing():
        pytest.skip(reason)
    with postgres.server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server):
    """An empty database."""
    import psycopg

    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgres_server


@contextmanager
def opened(kind, tmp_path, request, name="new"):
    """A saver of each kind that threads move to and from."""
    if kind == "memory":
        yield InMemorySaver()
        return
    if kind == "postgres":
        place = request.getfixturevalue("postgres_url")
    else:
        place = tmp_path / f"{name}.{kind}"
    with open_saver(place, write=True) as saver:
        yield saver


KINDS = ["log", "sqlite", "postgres", "memory"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def tuples(saver, thread_id="t"):
    """All that a saver shows of a thread, as plain data."""
    found = saver.list({"configurable": {"thread_id": thread_id}})
    return sorted(
        (
            (item.config["configurable"]["checkpoint_ns"], id_of(item.config)),
            id_of(item.parent_config) if item.parent_config else None,
            item.checkpoint,
            _lists(item.metadata),
            item.pending_writes,
        )
        for item in found
    )


def _lists(value):
    return json.loads(json.dumps(value))


def write_paths(saver, thread_id="t"):
    held = holdings_of(saver)
    return {
        place: sorted(write[:3] for write in held.writes(thread_id, place))
        for place in held.slots(thread_id)
    }


# -- classes that the copying process does not have


@contextmanager
def owners_module():
    """The classes of somebody's application, importable within the block only."""
    module = types.ModuleType("owners_application")
    code = """
        import dataclasses, enum, pydantic

        class Note(pydantic.BaseModel):
            text: str

        @dataclasses.dataclass
        class Point:
            x: int

        class Colour(enum.Enum):
            RED = "red"
        """
    sys.modules[module.__name__] = module
    try:
        exec(textwrap.dedent(code), vars(module))  # noqa: S102 - a module that can be taken away
        yield module
    finally:
        del sys.modules[module.__name__]


@every_kind
@pytest.mark.parametrize("origin", ["sqlite", "log", "memory"])
def test_values_keep_their_classes_where_these_cannot_be_imported(origin, kind, tmp_path, request):
    """LangGraph gives a dict or a string in place of such an object; a copy would keep that."""

    def objects(owner):
        return {
            "note": owner.Note(text="hi"),
            "nested": [{"a": owner.Point(1)}, {owner.Colour.RED}],
            "colour": owner.Colour.RED,
        }

    with opened(origin, tmp_path, request, "old") as old, opened(kind, tmp_path, request) as new:
        with owners_module() as owner:
            config = put(old, "t", objects(owner))
            old.put_writes(config, [("note", owner.Note(text="pending"))], "task")
        copy(old, new)
        with owners_module() as owner:
            found = new.get_tuple(THREAD)
            assert found.checkpoint["channel_values"] == objects(owner)
            assert found.pending_writes == [("task", "note", owner.Note(text="pending"))]


def test_metadata_with_a_class_that_json_cannot_have_is_refused(tmp_path, request):
    with opened("log", tmp_path, request, "a") as old, opened("sqlite", tmp_path, request) as new:
        with owners_module() as owner:
            put(old, "t", {}, metadata={"note": owner.Note(text="hi")})
        with pytest.raises(MigrationError, match="cannot be stored by SqliteSaver"):
            copy(old, new)


def test_a_carried_value_is_never_pickled():
    with pytest.raises(TypeError, match="only carried"):
        pickle.dumps(Kept(0, b""))


@given(
    st.recursive(
        st.none()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False)
        | st.text(st.characters(exclude_categories=["Cs"]))
        | st.binary()
        | st.uuids()
        | st.decimals(allow_nan=False)
        | st.datetimes()
        | st.frozensets(st.integers(0, 9))
        | st.builds(lambda value: _DeltaSnapshot([value]), st.uuids()),
        lambda values: st.lists(values) | st.dictionaries(st.text("ab") | st.uuids(), values),
    )
)
def test_what_is_carried_has_the_same_bytes(value):
    usual = JsonPlusSerializer()
    carrier = keeping(usual)
    packed = usual.dumps_typed(value)
    assert carrier.dumps_typed(carrier.loads_typed(packed)) == packed
    assert carrier.dumps_typed(value) == packed


def test_an_encrypted_copy_is_carried_too(tmp_path):
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0" * 16)
    with (
        open_saver(tmp_path / "a.log", write=True, serde=serde) as old,
        open_saver(tmp_path / "b.sqlite", write=True, serde=serde) as new,
    ):
        with owners_module() as owner:
            put(old, "t", {"note": owner.Note(text="hi")})
        copy(old, new)
        with owners_module() as owner:
            values = new.get_tuple(THREAD).checkpoint["channel_values"]
            assert values == {"note": owner.Note(text="hi")}


# -- graphs go on where they were


@every_kind
@pytest.mark.parametrize("origin", ["sqlite", "log"])
def test_a_paused_graph_resumes_after_the_move(origin, kind, tmp_path, request):
    with opened(origin, tmp_path, request, "old") as old, opened(kind, tmp_path, request) as new:
        approval().compile(checkpointer=old).invoke({"trail": []}, THREAD)
        copy(old, new)
        runs = Runs()
        graph = approval(runs).compile(checkpointer=new)
        assert graph.get_state(THREAD).interrupts[0].value == "good?"
        result = graph.invoke(Command(resume="yes"), THREAD)
        assert result["trail"] == ["draft", "review:yes", "publish"]
        assert runs.counts() == {"review": 1, "publish": 1}


async def test_an_async_saver_is_copied_from_a_thread(tmp_path):
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "a.db")) as first:
        await approval().compile(checkpointer=first).ainvoke({"trail": []}, THREAD)
        with LogSaver(tmp_path / "b.log") as middle:
            await asyncio.to_thread(copy, first, middle)
            graph = approval().compile(checkpointer=middle)
            assert (await graph.aget_state(THREAD)).next == ("review",)
            await graph.ainvoke(Command(resume="yes"), THREAD)
            async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "c.db")) as last:
                assert (await asyncio.to_thread(copy, middle, last)).checked == 5
                found = (await last.aget_tuple(THREAD)).checkpoint["channel_values"]
                assert found["trail"] == ["draft", "review:yes", "publish"]


def test_a_thread_goes_to_postgres_and_comes_back(tmp_path, request):
    with (
        opened("log", tmp_path, request, "a") as first,
        opened("postgres", tmp_path, request) as middle,
        opened("log", tmp_path, request, "b") as last,
    ):
        approval().compile(checkpointer=first).invoke({"trail": []}, THREAD)
        copy(first, middle)
        approval().compile(checkpointer=middle).invoke(Command(resume="yes"), THREAD)
        copy(middle, last)
        graph = approval().compile(checkpointer=last)
        assert graph.get_state(THREAD).values["trail"] == ["draft", "review:yes", "publish"]


@every_kind
def test_subgraphs_move_with_their_namespaces(kind, tmp_path, request):
    def outer():
        inner = chain(step("a"), step("b", act=ask("inner?"))).compile()
        builder = chain(step("before"), state=Trail)
        builder.add_node("inner", inner)
        builder.add_edge("before", "inner")
        return builder

    with opened("log", tmp_path, request, "old") as old, opened(kind, tmp_path, request) as new:
        outer().compile(checkpointer=old).invoke({"trail": []}, THREAD)
        copy(old, new)
        assert len({place for (place, *_) in tuples(new) if place[0]}) > 0
        graph = outer().compile(checkpointer=new)
        result = graph.invoke(Command(resume="yes"), THREAD)
        assert result["trail"][-1] == "b:yes"


@every_kind
@pytest.mark.parametrize("origin", ["sqlite", "log"])
def test_delta_channels_are_rebuilt_after_the_move(origin, kind, tmp_path, request):
    with opened(origin, tmp_path, request, "old") as old, opened(kind, tmp_path, request) as new:
        graph = diary(old)
        keep_diary(graph)
        history = [state.values for state in graph.get_state_history(THREAD)]
        copy(old, new)
        moved = diary(new)
        assert [state.values for state in moved.get_state_history(THREAD)] == history
        keep_diary(graph, turns=2)
        keep_diary(moved, turns=2)
        assert moved.get_state(THREAD).values == graph.get_state(THREAD).values


def test_ancestors_that_a_pruned_thread_is_rebuilt_from_move_too(saver, tmp_path, request):
    graph = diary(saver)
    keep_diary(graph)
    saver.prune(["t"])
    values = graph.get_state(THREAD).values
    with opened("sqlite", tmp_path, request) as new:
        copy(saver, new)
        assert diary(new).get_state(THREAD).values == values


# -- what is kept


def some_thread(saver, thread_id="t"):
    """Two branches, writes of two parallel tasks in path order, an interrupt, a waiting write."""
    first = put(saver, thread_id, {"a": [1], "b": {"x": 1}}, versions={"a": "1.1", "b": "1.1"})
    left = put(
        saver,
        thread_id,
        {"a": [2], "b": {"x": 1}},
        versions={"a": "2.2", "b": "1.1", "gone": "3.1"},
        parent=first,
    )
    put(saver, thread_id, {"a": [3]}, versions={"a": "2.3", "b": "2.1"}, parent=first)
    put(
        saver,
        thread_id,
        {"deep": "down"},
        versions={"deep": "1.1"},
        ns="sub:1",
        metadata={"step": 1, "who": "me"},
    )
    saver.put_writes(left, [("a", [9]), (INTERRUPT, ["?"]), ("b", 8)], "zzz", "path/1")
    saver.put_writes(left, [("a", [7])], "aaa", "path/2")
    saver.put_writes(left, [(RESUME, "yes")], "zzz", "path/1")
    saver.put_writes(left, [(ERROR, "no")], "mmm", "")
    saver.put_writes(make_config(thread_id, "", new_id()), [("late", 1)], "task", "path/3")


@every_kind
@pytest.mark.parametrize("origin", ["log", "sqlite", "postgres"])
def test_what_was_copied_reads_the_same(origin, kind, tmp_path, request):
    if origin == kind == "postgres":
        pytest.skip("one database")
    with opened(origin, tmp_path, request, "old") as old, opened(kind, tmp_path, request) as new:
        some_thread(old)
        report = copy(old, new)
        assert tuples(new) == tuples(old)
        if kind != "memory":
            assert write_paths(new) == write_paths(old)
        assert report == CopyReport(threads=1, checkpoints=4, writes=7, checked=report.checked)
        assert report.checked >= 4


def test_a_saver_that_is_not_known_keeps_the_order_of_its_writes(saver):
    old = InMemorySaver()
    some_thread(old)
    copy(old, saver)
    assert tuples(saver) == tuples(old)


def test_threads_are_all_copied_or_those_that_are_named(saver, tmp_path, request):
    for thread_id in ("one", "two", "three"):
        put(saver, thread_id, {"a": 1})
    with opened("sqlite", tmp_path, request) as new:
        assert copy(saver, new, threads=["two"]).threads == 1
        assert holdings_of(new).threads() == ["two"]
        assert copy(saver, new).threads == 3
        with pytest.raises(TypeError, match="sequence"):
            copy(saver, new, threads="two")
        with pytest.raises(MigrationError, match="no thread 'four'"):
            copy(saver, new, threads=["four"])


def test_what_the_parent_has_is_shared_in_the_new_log(tmp_path, request):
    document = "x" * 100_000
    with opened("sqlite", tmp_path, request) as old, opened("log", tmp_path, request) as new:
        parent = None
        for number in range(10):
            parent = put(
                old,
                values={"d": document, "n": number},
                versions={"d": 1, "n": number},
                parent=parent,
            )
        copy(old, new)
        assert new.stats().bytes < 2 * len(document)
        assert tuples(new) == tuples(old)


def test_equal_versions_with_different_values_are_not_mistaken_for_shared(tmp_path, request):
    with opened("sqlite", tmp_path, request) as old, opened("log", tmp_path, request) as new:
        first = put(old, values={"a": [1]}, versions={"a": 1})
        put(old, values={"a": [2]}, versions={"a": 1}, parent=first)
        copy(old, new)
        assert tuples(new) == tuples(old)


def test_parents_come_first_whatever_their_ids():
    parents = {Place("", "1"): "3", Place("", "2"): "1", Place("", "3"): None, Place("s", "1"): "3"}
    order = list(parents_first(parents))
    assert [place.checkpoint_id for place in order if not place.ns] == ["3", "1", "2"]
    assert set(order) == set(parents)


def test_a_cycle_of_parents_ends():
    assert len(list(parents_first({Place("", "1"): "2", Place("", "2"): "1"}))) == 2


# -- savers that keep a value for each version


@pytest.mark.parametrize("version", [1, 1.0, "1", f"{1:032}.{5:016}"])
def test_branches_with_equal_versions_keep_their_values_in_postgres(version, saver, request):
    first = put(saver, values={"a": [0]}, versions={"a": 0})
    for value in ([1], [2], None):
        put(
            saver,
            values={} if value is None else {"a": value},
            versions={"a": version},
            parent=first,
            versions_seen={"node": {"a": version}, "other": {"a": 0}},
        )
    with opened("postgres", None, request) as new:
        for renamed in (2, 0):
            report = copy(saver, new)
            assert report.renamed >= renamed
        for one, other in zip(tuples(saver), tuples(new), strict=True):
            assert other[2]["channel_values"] == one[2]["channel_values"]
            versions = other[2]["channel_versions"]
            assert all(isinstance(text, str) for text in versions.values())
            if seen := other[2]["versions_seen"]:
                assert seen["node"]["a"] == versions["a"] > seen["other"]["a"]


def test_a_copy_to_postgres_that_goes_on_still_tells_branches_apart(saver, request):
    first = put(saver, values={"a": [0]}, versions={"a": "1.0"})
    put(saver, values={"a": [1]}, versions={"a": "2.0"}, parent=first)
    with opened("postgres", None, request) as new:
        copy(saver, new)
        put(saver, values={"a": [2]}, versions={"a": "2.0"}, parent=first)
        assert copy(saver, new).renamed == 1
        assert [t[2]["channel_values"] for t in tuples(new)] == [{"a": [0]}, {"a": [1]}, {"a": [2]}]


def test_a_saver_that_cannot_tell_them_apart_gets_an_error(saver):
    for value in (1, 2):
        put(saver, values={"a": value}, versions={"a": 1})
    with pytest.raises(MigrationError, match="two values in version 1"):
        copy(saver, InMemorySaver())


def test_a_graph_with_numbered_versions_goes_on_in_postgres(saver, request):
    """Savers that do not say otherwise number versions 1, 2, 3."""

    class Numbered(SqliteSaver):
        def get_next_version(self, current, channel):
            return (current or 0) + 1

    old = Numbered(sqlite3.connect(":memory:", check_same_thread=False))
    approval().compile(checkpointer=old).invoke({"trail": []}, THREAD)
    with opened("postgres", None, request) as new:
        copy(old, new)
        runs = Runs()
        graph = approval(runs).compile(checkpointer=new)
        result = graph.invoke(Command(resume="yes"), THREAD)
        assert result["trail"] == ["draft", "review:yes", "publish"]
        assert runs.counts() == {"review": 1, "publish": 1}


# -- going on


@every_kind
def test_a_second_copy_skips_everything(kind, tmp_path, request):
    with opened("log", tmp_path, request, "old") as old, opened(kind, tmp_path, request) as new:
        some_thread(old)
        copy(old, new)
        again = copy(old, new)
        assert (again.checkpoints, again.skipped) == (0, 4)
        assert again.writes == (1 if kind == "memory" else 0)  # it does not show waiting writes
        assert tuples(new) == tuples(old)


@pytest.mark.parametrize("kind", ["log", "sqlite"])
def test_a_copy_that_was_interrupted_anywhere_goes_on(kind, tmp_path, request):
    with opened("log", tmp_path, request, "old") as old:
        some_thread(old)
        for calls in range(12):
            with opened(kind, tmp_path, request, f"new{calls}") as new:
                left = calls

                def failing(method):
                    def call(*args):
                        nonlocal left
                        left -= 1
                        if left < 0:
                            raise KeyboardInterrupt
                        return method(*args)

                    return call

                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(new, "put", failing(new.put))
                    patch.setattr(new, "put_writes", failing(new.put_writes))
                    with suppress(KeyboardInterrupt):
                        copy(old, new)
                copy(old, new)
                assert tuples(new) == tuples(old)
                assert write_paths(new) == write_paths(old)


def test_a_later_copy_brings_what_was_added_and_answered(saver, tmp_path, request):
    where = put(saver, values={"a": 1})
    saver.put_writes(where, [(INTERRUPT, "first?")], "task")
    with opened("sqlite", tmp_path, request) as new:
        copy(saver, new)
        saver.put_writes(where, [(INTERRUPT, "second?")], "task")
        put(saver, values={"a": 2}, parent=where)
        report = copy(saver, new)
        assert (report.checkpoints, report.writes, report.skipped) == (1, 1, 1)
        assert tuples(new) == tuples(saver)


def test_a_target_that_was_taken_into_use_is_not_set_back(saver, tmp_path, request):
    where = put(saver, values={"a": 1})
    saver.put_writes(where, [(RESUME, "old answer")], "task")
    with opened("sqlite", tmp_path, request) as new:
        copy(saver, new)
        new.put_writes(where, [(RESUME, "new answer")], "task")
        put(new, values={"a": 2}, parent=where)
        before = tuples(new)
        with pytest.raises(MigrationError, match="its writes"):
            copy(saver, new)
        assert tuples(new) == before


# -- the check


@pytest.mark.parametrize("method", ["put", "put_writes"])
def test_a_target_that_forgets_is_found_out(method, saver, tmp_path, request, monkeypatch):
    some_thread(saver)
    with opened("sqlite", tmp_path, request) as new:
        monkeypatch.setattr(new, method, lambda *args: None)
        with pytest.raises(MigrationError, match=r"not in the copy|not copied"):
            copy(saver, new)


def test_a_target_that_changes_values_is_found_out(saver, tmp_path, request, monkeypatch):
    some_thread(saver)
    with opened("sqlite", tmp_path, request) as new:
        real = new.put

        def changed(config, checkpoint, metadata, versions):
            values = dict.fromkeys(checkpoint["channel_values"], "wrong")
            return real(config, {**checkpoint, "channel_values": values}, metadata, versions)

        monkeypatch.setattr(new, "put", changed)
        with pytest.raises(MigrationError, match="the value of channel"):
            copy(saver, new)


def test_what_the_target_cannot_store_is_said(saver, tmp_path, request):
    put(saver, "t", {"a": 1}, metadata={"what": {1, 2}}, checkpoint_id="c-1")
    with (
        opened("sqlite", tmp_path, request) as new,
        pytest.raises(MigrationError, match=r"thread 't'.*c-1 cannot be stored by SqliteSaver"),
    ):
        copy(saver, new)


# -- SQLite as it used to be


def old_schema(path):
    with SqliteSaver.from_conn_string(str(path)) as saver:
        approval().compile(checkpointer=saver).invoke({"trail": []}, THREAD)
        saver.conn.execute("ALTER TABLE writes DROP COLUMN task_path")
        saver.conn.commit()


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 35), reason="cannot drop a column")
def test_a_file_without_task_paths_is_read_and_left_as_it_is(tmp_path, saver):
    file = tmp_path / "old.db"
    old_schema(file)
    before = file.read_bytes()
    with open_saver(file) as old:
        copy(old, saver)
        assert {Slot(*w.slot) for w in holdings_of(old).writes("t", Place("", latest(old)))}
    assert file.read_bytes() == before
    result = approval().compile(checkpointer=saver).invoke(Command(resume="yes"), THREAD)
    assert result["trail"][-1] == "publish"


def latest(saver):
    return id_of(saver.get_tuple(make_config()).config)


# -- by name


def test_a_file_is_recognised_by_its_content(tmp_path):
    for name, kind in (("a.log", LogSaver), ("b.db", SqliteSaver), ("c.sqlite", SqliteSaver)):
        with open_saver(tmp_path / name, write=True) as made:
            assert type(made) is kind
            put(made)
        other = tmp_path / f"{name}.renamed.{'db' if kind is LogSaver else 'log'}"
        (tmp_path / name).rename(other)
        for write in (False, True):
            with open_saver(other, write=write) as found:
                assert type(found) is kind
                assert holdings_of(found).threads() == ["t"]


@pytest.mark.parametrize("content", [None, b"", b"hello, I am a text file\n" * 100])
def test_what_is_no_saver_is_an_error_and_left_alone(content, tmp_path):
    file = tmp_path / "notes.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(MigrationError, match="notes"), open_saver(file):
        pass
    assert (file.read_bytes() if file.exists() else None) == content


def test_another_database_is_not_touched(tmp_path):
    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE orders (id)")
    connection.close()
    for write in (False, True):
        with (
            pytest.raises(MigrationError, match="without LangGraph"),
            open_saver(file, write=write),
        ):
            pass


def test_a_server_that_is_not_there_is_an_error():
    pytest.importorskip("psycopg")
    with (
        pytest.raises(MigrationError, match="PostgreSQL"),
        open_saver("postgresql://nobody@127.0.0.1:1/none?connect_timeout=2"),
    ):
        pass


# -- the command


def test_the_command_moves_a_file_and_reports(tmp_path):
    with open_saver(tmp_path / "old.sqlite", write=True) as old:
        some_thread(old)
        some_thread(old, "u")
    run = CliRunner().invoke
    places = [str(tmp_path / "old.sqlite"), str(tmp_path / "new.log")]
    first = run(app, ["migrate", *places, "--thread", "u", "--json"])
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["checkpoints"] == 4
    second = run(app, ["migrate", *places])
    assert "2 threads: 4 checkpoints and 7 writes copied, 4" in second.stdout
    with LogSaver(places[1]) as new, open_saver(places[0]) as old:
        assert tuples(new) == tuples(old)


def test_the_command_says_what_is_wrong(tmp_path):
    result = CliRunner().invoke(app, ["migrate", str(tmp_path / "no"), str(tmp_path / "new.log")])
    assert result.exit_code == 2
    assert "no such file" in result.stderr
    assert not (tmp_path / "new.log").exists()


def test_the_command_copies_encrypted_values_with_the_key(tmp_path):
    key_file = tmp_path / "key"
    key_file.write_bytes(b"0123456789abcdef")
    serde = EncryptedSerializer.from_pycryptodome_aes(key=key_file.read_bytes())
    with open_saver(tmp_path / "old.sqlite", write=True, serde=serde) as old:
        put(old, "t", {"text": "a secret"})
    places = [str(tmp_path / "old.sqlite"), str(tmp_path / "new.log")]
    result = CliRunner().invoke(app, ["migrate", *places])
    assert result.exit_code == 2
    assert "it is encrypted, and no key was given" in result.stderr
    (tmp_path / "wrong").write_bytes(b"another key 1234")
    result = CliRunner().invoke(app, ["migrate", *places, "--key-file", str(tmp_path / "wrong")])
    assert result.exit_code == 2
    assert "--key-file" in result.stderr
    # Neither left an empty target, in clear or with the wrong key, in the way of the right one.
    assert not (tmp_path / "new.log").exists()
    result = CliRunner().invoke(app, ["migrate", *places, "--key-file", str(key_file)])
    assert result.exit_code == 0, result.output
    assert b"secret" not in (tmp_path / "new.log").read_bytes()
    with LogSaver(places[1], serde=serde) as new:
        assert new.get_tuple(THREAD).checkpoint["channel_values"] == {"text": "a secret"}


@pytest.mark.parametrize("cipher", ["aes", "aes256gcm"])
def test_the_command_finds_the_cipher_of_a_database(cipher, tmp_path):
    """It tried the first one only, since a database shows its cipher no sooner than in a value."""
    (tmp_path / "key").write_bytes(b"0123456789abcdef")
    serde = serializers(read_key(tmp_path / "key"), [cipher])[0]
    with open_saver(tmp_path / "old.sqlite", write=True, serde=serde) as old:
        put(old, "t", {"text": "a secret"})
    places = [str(tmp_path / "old.sqlite"), str(tmp_path / "new.log")]
    command = ["migrate", *places, "--key-file", str(tmp_path / "key")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "1 checkpoint was there already" in CliRunner().invoke(app, command).stdout


@pytest.mark.parametrize("name", ["new.log", "new.sqlite"])
def test_a_target_that_was_made_and_got_nothing_is_removed(name, tmp_path):
    with LogSaver(tmp_path / "old.log") as old:
        some_thread(old)
    command = ["migrate", str(tmp_path / "old.log"), str(tmp_path / name), "--thread"]
    result = CliRunner().invoke(app, [*command, "nobody"])
    assert result.exit_code == 1
    assert "no thread 'nobody'" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.log"]
    # One that was there, or that has got something, stays.
    with open_saver(tmp_path / name, write=True):
        pass
    assert CliRunner().invoke(app, [*command, "nobody"]).exit_code == 1
    assert (tmp_path / name).exists()
    (tmp_path / name).unlink()
    with suppress(KeyError), open_saver(tmp_path / name, write=True) as new:
        put(new, "t", {"text": "kept"})
        raise KeyError
    with open_saver(tmp_path / name) as new:
        assert holdings_of(new).threads() == ["t"]


def test_a_new_database_is_for_its_owner_only_as_a_log_is(tmp_path):
    with open_saver(tmp_path / "new.sqlite", write=True) as new:
        put(new)
        files = list(tmp_path.iterdir())
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_the_command_refuses_to_copy_a_file_onto_itself(tmp_path):
    with LogSaver(tmp_path / "a.log") as saver:
        some_thread(saver)
    (tmp_path / "b.log").symlink_to(tmp_path / "a.log")
    result = CliRunner().invoke(app, ["migrate", str(tmp_path / "a.log"), str(tmp_path / "b.log")])
    assert result.exit_code == 2
    assert "same file" in result.stderr


def test_the_command_says_where_the_key_of_an_encrypted_log_is_taken_from(tmp_path):
    """It named a Python call only, unlike the other commands."""
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    LogSaver(tmp_path / "old.log", serde=serde).close()
    places = [str(tmp_path / "old.log"), str(tmp_path / "new.log")]
    result = CliRunner().invoke(app, ["migrate", *places], env={"LANGGRAPH_AES_KEY": None})
    assert result.exit_code == 2
    assert "--key-file" in result.stderr
    assert not (tmp_path / "new.log").exists()


def test_the_command_moves_to_postgres(tmp_path, postgres_url):
    with LogSaver(tmp_path / "old.log") as old:
        some_thread(old)
    result = CliRunner().invoke(app, ["migrate", str(tmp_path / "old.log"), postgres_url])
    assert result.exit_code == 0, result.output
    with open_saver(postgres_url) as new, LogSaver(tmp_path / "old.log") as old:
        assert tuples(new) == tuples(old)


# -- anything that a graph could have left

names = st.text("abé:/_1", min_size=1, max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text("aé☃ '\"", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
channels = st.sampled_from(["a", "b", "c"])
special = st.sampled_from([ERROR, INTERRUPT, RESUME])


@st.composite
def threads(draw):
    """Calls that make a thread: puts with a parent by number, and writes."""
    puts = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["", "sub:1"]),
                st.integers(-1, 5),
                st.dictionaries(channels, values, max_size=3),
                st.dictionaries(names, values, max_size=2),
            ),
            min_size=1,
            max_size=5,
        )
    )
    writes = draw(
        st.lists(
            st.tuples(
                st.integers(0, 5),
                st.sampled_from([("t1", "p/2"), ("t2", "p/1"), ("t3", "")]),
                st.lists(st.tuples(channels | special, values), min_size=1, max_size=4),
            ),
            max_size=4,
        )
    )
    return puts, writes


def play(saver, puts, writes):
    made = []
    for number, (ns, parent, state, metadata) in enumerate(puts):
        same_ns = [config for at, config in made if at == ns]
        config = put(
            saver,
            values=state,
            ns=ns,
            parent=same_ns[parent % len(same_ns)] if same_ns and parent >= 0 else None,
            versions=dict.fromkeys(state, f"{number + 1:032}.{number:016}"),
            metadata={**metadata, "step": number},
        )
        made.append((ns, config))
    for number, (task_id, path), rows in writes:
        saver.put_writes(made[number % len(made)][1], rows, task_id, path)


@settings(max_examples=25)
@given(thread=threads())
def test_a_thread_comes_back_from_sqlite_and_postgres_as_it_was(thread, postgres_server):
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        stations = ["a.log", "b.sqlite", "c.log", postgres_server, "d.log"]
        with LogSaver(f"{directory}/a.log", fsync="never") as first:
            play(first, *thread)
            wanted, paths = tuples(first), write_paths(first)
        places = [s if "://" in s else f"{directory}/{s}" for s in stations]
        for old, new in pairwise(places):
            with open_saver(old) as source, open_saver(new, write=True) as target:
                if "://" in new:
                    target.delete_thread("t")
                copy(source, target)
                assert tuples(target) == wanted
                assert write_paths(target) == paths
