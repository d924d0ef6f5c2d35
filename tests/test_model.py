"""Random calls on a `LogSaver` and on the model; after each of them both say the same.

`LOGSAVER_HYPOTHESIS=deep` looks longer.
"""

from __future__ import annotations

import copy
import os
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import TASKS, _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from model import Model, config_of, read
from support import make_checkpoint, make_config

from logsaver import ClosedLogError, InvalidInputError, LogSaver, ThreadExistsError

DEEP = settings.default.max_examples > 100
# Shrinking a failure may take five minutes, and a run that is cut short before shows nothing.
pytestmark = pytest.mark.timeout(0 if DEEP else 600)

# Few of each, so that calls meet: 1 and "1" are one thread, and ids come again in other
# namespaces, out of order, and for a second put.
THREADS = [1, "1", "b", "é\0😀"]
NAMESPACES = ["", "sub", "child:1", "child:2", "a|b:1", "a:1|b"]
IDS = [f"1ef-{number:02}" for number in range(16)] + ["9", "a\0b", "Ä", "😀"]
CHANNELS = ["value", "other", TASKS, "dotted.name", ""]
DELTA_CHANNELS = ["log", "tail"]
ALL_CHANNELS = [*CHANNELS, *DELTA_CHANNELS, "never"]
TASK_IDS = ["task-1", "task-2", "é"]
PATHS = ["", "~__pregel_pull, a", "~__pregel_push, 0"]
RUNS = ["run-1", "run-2", UUID(int=7), 3]
NO_VALUE = object()
OWN = object()

places = st.tuples(
    st.sampled_from([*THREADS[:2], *THREADS]), st.sampled_from([*NAMESPACES[:1] * 4, *NAMESPACES])
)

# What the serializer returns as it was given; a tuple, for example, comes back as a list.
leaves = st.sampled_from(
    [
        *(None, 0, True, -1, 2**64 - 1, 0.5, "", "a\0b", "é😀", b"", b"\xff"),
        *({2, 3}, frozenset({1}), UUID(int=5), Decimal("1.10")),
        datetime(2026, 1, 2, tzinfo=timezone.utc),
    ]
)
values = st.one_of(
    leaves,
    st.recursive(
        leaves | st.text(max_size=3) | st.binary(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
        ),
        max_leaves=4,
    ),
    st.sampled_from([bytearray(b"\x00b"), bytearray(), "long " * 2000, [], {}]),
)
snapshots = st.builds(_DeltaSnapshot, st.lists(leaves, max_size=2))
changes = st.one_of(
    st.tuples(st.sampled_from(CHANNELS), values),
    st.tuples(st.sampled_from(CHANNELS), st.just(NO_VALUE)),
    st.tuples(st.sampled_from(DELTA_CHANNELS), st.just(NO_VALUE)),
    st.tuples(st.sampled_from(DELTA_CHANNELS), st.just(NO_VALUE)),
    st.tuples(st.sampled_from(DELTA_CHANNELS), snapshots | values),
)
metadatas = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["loop", "input", "fork"]),
        "step": st.sampled_from([0, -1, 1, True, 1.0]),
    },
    optional={
        "run_id": st.sampled_from(RUNS),
        "user.name": st.sampled_from(["x", "y\0z", b"x", None]),
        "thread_id": st.sampled_from([OWN, "elsewhere"]),
        "cost": st.sampled_from([Decimal(1), datetime(2026, 1, 1), {"a": [1]}]),  # noqa: DTZ001
        "delta_writes_versioned": st.just(True),
    },
)
batches = st.lists(
    st.tuples(
        st.sampled_from([*DELTA_CHANNELS * 3, *ALL_CHANNELS, *WRITES_IDX_MAP]), leaves | values
    ),
    min_size=1,
    max_size=4,
)
queries = st.tuples(
    st.none()
    | st.builds(
        make_config,
        st.sampled_from([*THREADS, "none"]),
        st.none() | st.sampled_from(NAMESPACES),
        st.none() | st.sampled_from(["", *IDS[:6], *IDS]),
    ),
    st.none()
    | st.fixed_dictionaries(
        {},
        optional={
            "source": st.sampled_from(["loop", "input", b"loop"]),
            "step": st.sampled_from([0, 1, True, 1.0, Decimal(1), None]),
            "run_id": st.sampled_from([*RUNS, str(RUNS[2]), "3"]),
            "user.name": st.sampled_from(["x", "yz", "from the config", b"x", None]),
            "user": st.sampled_from([{"name": "x"}, None]),
            "thread_id": st.sampled_from([*THREADS, "elsewhere"]),
            "cost": st.sampled_from([1, Decimal("1.0"), {"a": [1]}, {"a": (1,)}]),
            "": st.none(),
        },
    ),
    st.none()
    | st.just({"configurable": {"thread_id": "1"}})
    | st.sampled_from(["", *IDS]).map(lambda i: {"configurable": {"checkpoint_id": i}})
    | st.sampled_from(IDS).map(lambda i: {"checkpoint_id": i}),
    st.none() | st.integers(0, 4),
)


def same(left, right) -> bool:
    """Equal, and of the same types all the way down: 1 is not True, b"" no bytearray."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def key_of(found) -> tuple[str, str, str]:
    thread_id, ns, checkpoint_id = read(found.config)
    return checkpoint_id, thread_id, ns


def assert_agreement(saver: LogSaver, model: Model) -> None:
    """Everything that can be read, against the model."""
    saver._handle.store.index._check()
    listed = list(saver.list(None))
    assert [key_of(found)[0] for found in listed] == [key[0] for key in model.newest_first()]
    assert sorted(map(key_of, listed), reverse=True) == model.newest_first()
    for found in listed:
        expected = model.get_tuple(found.config)
        assert same(found, expected), (found, expected)
        assert same(saver.get_tuple(found.config), expected)
        history = saver.get_delta_channel_history(config=found.config, channels=ALL_CHANNELS)
        expected = model.get_delta_channel_history(config=found.config, channels=ALL_CHANNELS)
        assert same(history, expected), (found.config, history, expected)
    for thread_id in set(map(str, THREADS)):
        for ns in NAMESPACES:
            latest = make_config(thread_id, ns)
            assert same(saver.get_tuple(latest), model.get_tuple(latest))
            space = model.space(thread_id, ns)
            for absent in [*space.hidden, *(space.writes.keys() - space.listed), "no such id"]:
                assert saver.get_tuple(config_of(thread_id, ns, absent)) is None
                # Only hidden ones are there for whoever was sent by a `parent_config`.
                sent = make_config(thread_id, ns, absent, __logsaver_hidden=True)
                assert same(saver.get_tuple(sent), model.get_tuple(sent))
    infos = list(saver.threads())
    rows = [(each.thread_id, each.checkpoints, each.created_at, each.updated_at) for each in infos]
    assert rows == model.threads()
    for info in infos:
        if root := model.get_tuple(make_config(info.thread_id)):
            assert same(info.metadata, root.metadata)
    stats = saver.stats()
    spaces = [space for spaces in model.spaces.values() for space in spaces.values()]
    assert (stats.threads, stats.checkpoints) == (len(infos), len(listed))
    assert stats.hidden_checkpoints == sum(len(space.hidden) for space in spaces)


class LogSaverMachine(RuleBasedStateMachine):
    """Savers on one log: several writers of this process, their clones, and a reader."""

    @initialize(data=st.data(), runs=st.lists(places, min_size=1, max_size=3))
    def start(self, data, runs):
        self.directory = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.directory.name, "agent.log")
        self.model = Model()
        self.savers = [self._open()]
        self.reader = LogSaver(self.path, read_only=True)
        self.calls = 0
        for place in runs:
            self.run_some_steps(data, place, rounds=3, v=4)

    def _open(self) -> LogSaver:
        return LogSaver(self.path, fsync="never")  # what a sync adds cannot be seen here

    def teardown(self):
        if hasattr(self, "reader"):
            for saver in [*self.savers, self.reader]:
                saver.close()
            self.directory.cleanup()

    def call(self, name, *args, **kwargs):
        """Make the same call on the model and on one of the savers; they take turns."""
        expected = getattr(self.model, name)(*args, **kwargs)
        passed = copy.deepcopy((args, kwargs))
        self.calls += 1
        result = getattr(self.savers[self.calls % len(self.savers)], name)(*args, **kwargs)
        assert same(result, expected)
        assert same((args, kwargs), passed), "the saver changed its arguments"

    def _space(self, place):
        return self.model.space(str(place[0]), place[1])

    # -- putting

    def _put(self, data, place, checkpoint_id, parent_id, v=4):
        """Put the parent's checkpoint with some channels changed, added, emptied or removed."""
        parent = self._space(place).find(parent_id)
        checkpoint = make_checkpoint(checkpoint_id=checkpoint_id, v=v)
        if parent is not None:
            checkpoint["channel_values"] = copy.deepcopy(parent.checkpoint["channel_values"])
            checkpoint["channel_versions"] = dict(parent.checkpoint["channel_versions"])
        day = data.draw(st.integers(1, 28), "day")
        checkpoint["ts"] = f"2026-01-{day:02}T03:04:05.000006+00:00"
        new_versions = self._change(data, checkpoint)
        config = make_config(*place, parent_id)
        if data.draw(st.booleans(), "more in the config"):
            config["configurable"]["user_id"] = "u"
            config["metadata"] = {"user.name": "from the config", "left out": [1]}
        metadata = self._metadata(data, place, checkpoint)
        self.call("put", config, checkpoint, metadata, new_versions)

    def _change(self, data, checkpoint):
        """Change some channels and return what `new_versions` says of it."""
        channel_values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        changed = dict(data.draw(st.lists(changes, max_size=3), "changes"))
        text_versions = data.draw(st.booleans(), "text versions")
        for channel, value in changed.items():
            version = self.savers[0].get_next_version(versions.get(channel), None)
            # Integers of two branches collide; each branch keeps its own values all the same.
            versions[channel] = version if text_versions else int(version.split(".")[0])
            channel_values.pop(channel, None)
            if value is not NO_VALUE:
                channel_values[channel] = value
        removed = data.draw(st.none() | st.sampled_from([None, *versions]), "removed channel")
        if removed is not None:
            del versions[removed]
            channel_values.pop(removed, None)
        checkpoint["versions_seen"] = {"node": dict(versions)}
        checkpoint["updated_channels"] = list(changed)
        exact = {channel: versions[channel] for channel in changed if channel in versions}
        return data.draw(st.sampled_from([exact, {}, {**versions, "never": 1}]), "new versions")

    def _metadata(self, data, place, checkpoint):
        metadata = data.draw(metadatas, "metadata")
        if metadata.get("thread_id") is OWN:
            metadata["thread_id"] = str(place[0])
        roots = sorted(self.model.space(str(place[0]), "").listed)
        parents = [{"": root_id} for root_id in [*roots, IDS[3]]]
        metadata["parents"] = data.draw(st.sampled_from([*parents, {}]), "parents")
        counted = [
            channel
            for channel in DELTA_CHANNELS
            if channel in checkpoint["channel_versions"]
            and channel not in checkpoint["channel_values"]
        ]
        if counted and data.draw(st.booleans(), "counters"):
            metadata["counters_since_delta_snapshot"] = {each: [1, 1] for each in counted}
        return metadata

    def _later_id(self, space) -> str:
        latest = space.latest() or ""
        return min((i for i in IDS if i > latest), default=latest + "+")

    @rule(data=st.data(), place=places, rounds=st.integers(1, 5), v=st.sampled_from([4, 4, 3]))
    def run_some_steps(self, data, place, rounds, v):
        """Writes, then the checkpoint that takes them in, as a run does."""
        for _ in range(rounds):
            space = self._space(place)
            if (head := space.latest()) is not None:
                batch = data.draw(batches, "writes")
                self.call("put_writes", config_of(*place, head), batch, TASK_IDS[0], PATHS[1])
            self._put(data, place, self._later_id(space), head, v)

    @rule(data=st.data(), place=places, back=st.integers(0, 5))
    def fork(self, data, place, back):
        space = self._space(place)
        known = sorted(space.listed, reverse=True) or [None]
        self._put(data, place, self._later_id(space), known[back % len(known)])

    @rule(data=st.data(), place=places, v=st.sampled_from([4, 3, 1]))
    def put_anywhere(self, data, place, v):
        """Any id, new or not; the parent known, unknown, pruned, itself or its descendant."""
        pruned, known = sorted(self._space(place).hidden), sorted(self._space(place).listed)
        checkpoint_id = data.draw(st.sampled_from([*IDS, *pruned, *pruned, *known]), "id")
        parent_id = data.draw(st.sampled_from([None, *IDS, *pruned, *known, *known]), "parent")
        self._put(data, place, checkpoint_id, parent_id, v)

    def _put_plainly(self, place, parent_id, values, versions, **metadata):
        """Put the next checkpoint with just these channels, and return its id."""
        checkpoint_id = self._later_id(self._space(place))
        checkpoint = make_checkpoint(values, versions, checkpoint_id)
        self.call("put", make_config(*place, parent_id), checkpoint, metadata, {})
        return checkpoint_id

    @rule(place=places, values=st.lists(leaves, min_size=2, max_size=2))
    def branches_have_the_same_versions(self, place, values):
        root = self._put_plainly(place, None, {"value": "root"}, {"value": 1})
        branches = [
            self._put_plainly(place, root, {"value": value}, {"value": 2}) for value in values
        ]
        for branch, value in zip(branches, values, strict=True):
            self._put_plainly(place, branch, {"value": value}, {"value": 2})

    @rule(
        place=places,
        seed=st.sampled_from([_DeltaSnapshot(["seed"]), ["plain"], NO_VALUE]),
        sign=st.sampled_from(
            [
                {"counters_since_delta_snapshot": {"log": [1, 1]}},
                {"delta_writes_versioned": True},
                {},
            ]
        ),
        runs=st.lists(st.sampled_from(RUNS[:2]), min_size=1, max_size=4),
    )
    def run_with_a_delta_channel(self, place, seed, sign, runs):
        space = self._space(place)
        head, values, version = space.latest(), {} if seed is NO_VALUE else {"log": seed}, None
        if head is not None:
            version = space.listed[head].checkpoint["channel_versions"].get("log")
        for run_id in runs:
            version = self.savers[0].get_next_version(version, None)
            head = self._put_plainly(place, head, values, {"log": version}, **sign, run_id=run_id)
            batch = [("log", f"write of {head}"), ("other", 0)]
            self.call("put_writes", config_of(*place, head), batch, TASK_IDS[0])
            values = {}

    @rule(thread_id=st.sampled_from(THREADS), ns=st.sampled_from(NAMESPACES[2:]))
    def call_a_subgraph(self, thread_id, ns):
        """A call writes more than once, and may be ahead of what is stored."""
        root = self._put_plainly((thread_id, ""), None, {}, {})
        first = self._put_plainly((thread_id, ns), None, {}, {}, parents={"": root})
        second = self._put_plainly((thread_id, ns), first, {}, {}, parents={"": root})
        for checkpoint_id in (first, second, IDS[-1]):
            config = config_of(thread_id, ns, checkpoint_id)
            self.call("put_writes", config, [("value", 1)], TASK_IDS[0])

    @rule(
        place=places,
        back=st.integers(0, 5),
        batch=batches,
        task_id=st.sampled_from(TASK_IDS),
        path=st.sampled_from(PATHS),
        again=st.booleans(),
    )
    def put_writes(self, place, back, batch, task_id, path, again):
        known = sorted(self._space(place).listed, reverse=True) or [IDS[0]]
        config = config_of(*place, known[back % len(known)])
        self.call("put_writes", config, batch, task_id, path)
        if again:  # the same slots, partly with other values; a task that was retried
            self.call("put_writes", config, [(TASKS, "sent"), *batch], task_id, path)

    @rule(place=places, checkpoint_id=st.sampled_from(IDS), batch=batches)
    def put_writes_anywhere(self, place, checkpoint_id, batch):
        """For a checkpoint that is there, is gone, or is still to come."""
        self.call("put_writes", config_of(*place, checkpoint_id), batch, TASK_IDS[1])

    @rule(place=places, wrong=st.sampled_from(["thread", "ns", "id", "channel", "task", "path"]))
    def a_lone_surrogate_is_refused(self, place, wrong):
        """And leaves nothing behind, which the comparison afterwards shows."""
        names = {"thread": place[0], "ns": place[1], "id": "x", "channel": "x", "task": "x"}
        names |= {"path": "", wrong: "\ud800"}
        config = config_of(names["thread"], names["ns"], names["id"])
        with pytest.raises(InvalidInputError):
            self.savers[0].put_writes(
                config, [("value", 1), (names["channel"], 1)], names["task"], names["path"]
            )

    # -- taking away, copying

    @precondition(lambda self: len(self.model.newest_first()) > 4)  # or little would grow old
    @rule(
        thread_id=st.sampled_from(THREADS), how=st.sampled_from(["thread", "delete", "delete_all"])
    )
    def delete(self, thread_id, how):
        if how == "thread":
            self.call("delete_thread", thread_id)
        else:
            self.call("prune", [thread_id, "none"], strategy=how)

    @rule(run_ids=st.lists(st.sampled_from([*RUNS, "3", str(RUNS[2]), "no run"]), max_size=2))
    def delete_for_runs(self, run_ids):
        with self._delta_channels_as_before():
            self.call("delete_for_runs", run_ids)

    @rule(thread_ids=st.lists(st.sampled_from([*THREADS, "none"]), min_size=1, max_size=3))
    def keep_latest(self, thread_ids):
        with self._delta_channels_as_before():
            self.call("prune", thread_ids)

    @contextmanager
    def _delta_channels_as_before(self):
        """Whatever stays is rebuilt from the same seed and writes."""
        saver, before = self.savers[0], {}
        for checkpoint_id, thread_id, ns in self.model.newest_first():
            channels = sorted(self.model.space(thread_id, ns).delta_channels(checkpoint_id))
            config = config_of(thread_id, ns, checkpoint_id)
            history = saver.get_delta_channel_history(config=config, channels=channels)
            before[checkpoint_id, thread_id, ns] = config, channels, history
        yield
        for key in self.model.newest_first():
            config, channels, history = before[key]
            after = saver.get_delta_channel_history(config=config, channels=channels)
            assert same(after, history), (config, history, after)

    @rule(source=st.sampled_from([*THREADS, "none"]), copy_to=st.sampled_from(THREADS))
    def copy_thread(self, source, copy_to):
        if any(str(copy_to) == thread_id for _, thread_id, _ in self.model.newest_first()):
            with pytest.raises(ThreadExistsError):
                self.savers[0].copy_thread(source, copy_to)
        else:
            self.call("copy_thread", source, copy_to)

    # -- reading

    @rule(queries=st.lists(queries, min_size=1, max_size=5))
    def list_some(self, queries):
        for config, wanted, before, limit in queries:
            matching = self.model.list(config, filter=wanted, before=before)
            expected = {key_of(found): found for found in matching}
            count = len(matching) if limit is None else min(limit, len(matching))
            for saver in (self.savers[-1], self.reader):
                found = list(saver.list(config, filter=wanted, before=before, limit=limit))
                # Where ids are equal, the limit may cut between them in any way.
                assert [key_of(each)[0] for each in found] == [key[0] for key in expected][:count]
                assert len({key_of(each) for each in found}) == count
                assert all(same(each, expected[key_of(each)]) for each in found)

    # -- life cycle

    @rule(
        event=st.sampled_from(
            ["open again", "open one more", "clone", "close one", "open the reader again"]
        )
    )
    def open_or_close(self, event):
        if event == "open again":
            for saver in self.savers:
                saver.close()
            self.savers = [self._open()]
        elif event == "open one more":
            self.savers.append(self._open())
        elif event == "clone":
            self.savers.append(copy.copy(self.savers[0]))
        elif event == "close one":
            self._close_one()
        else:
            self.reader.close()
            self.reader = LogSaver(self.path, read_only=True)

    def _close_one(self):
        """Its clones close with it; savers that were opened by themselves stay open."""
        closed = [saver for saver in self.savers if saver._handle is self.savers[-1]._handle]
        closed[0].close()
        for saver in closed:
            self.savers.remove(saver)
            with pytest.raises(ClosedLogError):
                saver.get_tuple(make_config())
        self.savers = self.savers or [self._open()]

    @invariant()
    def writer_and_reader_agree_with_the_model(self):
        if hasattr(self, "reader"):
            for saver in (self.savers[-1], self.reader):
                assert_agreement(saver, self.model)


TestLogSaver = LogSaverMachine.TestCase
TestLogSaver.settings = settings(stateful_step_count=50 if DEEP else 25)


# -- LangGraph's own savers, where they agree with each other

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=3,
)
few_channels = st.sampled_from(["a", "b", "log"])
special_channels = st.sampled_from(sorted(WRITES_IDX_MAP))
puts = st.tuples(
    st.just("put"),
    st.sampled_from(["", "child:1"]),
    st.integers(0, 9),  # which one is the parent, counted from the newest on
    st.dictionaries(few_channels, json_values | st.just(NO_VALUE), max_size=3),
    st.fixed_dictionaries(
        {"source": st.sampled_from(["loop", "input"]), "step": st.integers(0, 2)}
    ),
)
puts_of_writes = st.tuples(
    st.just("put_writes"),
    st.sampled_from(["", "child:1"]),
    st.integers(0, 9),
    # One kind per batch: SqliteSaver decides for a whole batch whether it overwrites.
    st.lists(st.tuples(few_channels, json_values), min_size=1, max_size=3)
    | st.lists(st.tuples(special_channels, json_values), min_size=1, max_size=3),
    st.tuples(st.sampled_from(TASK_IDS), st.sampled_from(PATHS)),
)


deletes = st.just(("delete_thread", "", 0, None, None))


@given(steps=st.lists(st.one_of(puts, puts, puts_of_writes, puts_of_writes, deletes), max_size=14))
def test_the_savers_of_langgraph_say_the_same(steps):
    with (
        tempfile.TemporaryDirectory() as directory,
        LogSaver(os.path.join(directory, "agent.log"), fsync="never") as saver,
        closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection,
    ):
        savers = [saver, InMemorySaver(), SqliteSaver(connection)]
        known = {"": [], "child:1": []}
        for name, ns, back, what, how in steps:
            at = known[ns][-1 - back % len(known[ns])] if known[ns] else None
            if name == "delete_thread":
                for each in savers:
                    each.delete_thread("t")
                known = {"": [], "child:1": []}
            elif name == "put":
                known[ns].append(_put_in_all(savers, ns, at, what, how))
            elif at is not None:
                for each in savers:
                    each.put_writes(config_of("t", ns, at["id"]), what, *how)
        for ns, checkpoints in known.items():
            _assert_all_agree(savers, ns, [checkpoint["id"] for checkpoint in checkpoints])


def _put_in_all(savers, ns, parent, changes, metadata):
    """Put a child of `parent` as a run does: new versions of what changed, and only of that."""
    channel_values = dict(parent["channel_values"]) if parent else {}
    versions = dict(parent["channel_versions"]) if parent else {}
    for channel, value in changes.items():
        versions[channel] = savers[0].get_next_version(versions.get(channel), None)
        channel_values.pop(channel, None)
        if value is not NO_VALUE:
            channel_values[channel] = value
    checkpoint = make_checkpoint(channel_values, versions)
    new_versions = {channel: versions[channel] for channel in changes}
    config = make_config("t", ns, parent["id"] if parent else None)
    for each in savers:
        stored = each.put(config, checkpoint, {**metadata, "parents": {}}, new_versions)
        assert stored == config_of("t", ns, checkpoint["id"])
    return checkpoint


def _assert_all_agree(savers, ns, ids):
    def assert_same(read_from):
        ours, *others = [read_from(each) for each in savers]
        for theirs in others:
            assert same(ours, theirs), (ours, theirs)

    latest = make_config("t", ns)
    assert_same(lambda each: each.get_tuple(latest))
    assert_same(lambda each: list(each.list(latest)))
    assert_same(lambda each: list(each.list(latest, limit=2, filter={"source": "loop"})))
    for checkpoint_id in [*ids, "none"]:
        config = config_of("t", ns, checkpoint_id)
        asked = {"config": config, "channels": ["a", "log", "never"]}
        assert_same(lambda each, config=config: each.get_tuple(config))
        assert_same(lambda each, config=config: list(each.list(config)))
        assert_same(lambda each, config=config: list(each.list(latest, before=config)))
        assert_same(lambda each, asked=asked: dict(each.get_delta_channel_history(**asked)))
