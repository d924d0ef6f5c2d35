"""The index against a naive rebuild: flat lists of rows, searched from end to end."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from logs import checkpoint, few_ids, records, writes

from logsaver.index import Index, Key
from logsaver.record import (
    CheckpointRecord,
    CopyRecord,
    DeleteRecord,
    ForgetRecord,
    Forgotten,
    LinkRecord,
    WritesRecord,
)
from logsaver.thread import Entry, WritesEntry


@dataclass
class Naive:
    """What an index must say, in the plainest way there is to compute it."""

    checkpoints: list = field(default_factory=list)  # (thread, ns, id, entry, hidden)
    writes: list = field(default_factory=list)  # (thread, ns, id, entry, task)

    def apply(self, record, offset, size):
        if isinstance(record, CheckpointRecord):
            name = record[:3]
            entry = Entry(offset, size, record.parent_id, record.time, record.tags)
            self.checkpoints = [row for row in self.checkpoints if row[:3] != name]
            self.checkpoints.append((*name, entry, False))
        elif isinstance(record, WritesRecord):
            self.writes.append((*record[:3], WritesEntry(offset, size), record.task_id))
        elif isinstance(record, DeleteRecord):
            self._keep(lambda row: row[0] not in record.thread_ids)
        elif isinstance(record, ForgetRecord):
            for change in record.changes:
                self._forget(change)
        elif isinstance(record, CopyRecord) and any(
            row[0] == record.source for row in (*self.checkpoints, *self.writes)
        ):
            self._copy(record)
        elif isinstance(record, LinkRecord):
            self._link(record)

    def _link(self, record):
        place = record.thread_id, record.ns
        for linked in record.checkpoints:
            name = (*place, linked.checkpoint_id)
            entry = Entry(linked.offset, linked.size, linked.parent_id, linked.time, linked.tags)
            self.checkpoints = [row for row in self.checkpoints if row[:3] != name]
            self.checkpoints.append((*name, entry, linked.is_hidden))
        for checkpoint_id, task_id, frames in record.writes:
            name = (*place, checkpoint_id)
            self.writes = [row for row in self.writes if (row[:3], row[4]) != (name, task_id)] + [
                (*name, WritesEntry(*frame), task_id) for frame in frames
            ]

    def _keep(self, wanted):
        self.checkpoints = [row for row in self.checkpoints if wanted(row)]
        self.writes = [row for row in self.writes if wanted(row)]

    def _forget(self, change):
        place = change[:2]
        self.checkpoints = [
            (*row[:4], row[4] or (row[:2] == place and row[2] in change.hidden))
            for row in self.checkpoints
        ]
        self._keep(lambda row: row[:2] != place or row[2] not in change.dropped)

    def _copy(self, record):
        if record.source == record.target:
            return
        self.checkpoints = [row for row in self.checkpoints if row[0] != record.target]
        for rows in (self.checkpoints, self.writes):
            rows += [(record.target, *row[1:]) for row in rows if row[0] == record.source]

    def state(self):
        found = {}
        for thread, ns, checkpoint_id, entry, hidden in self.checkpoints:
            place = found.setdefault((thread, ns), ({}, {}, {}))
            place[hidden][checkpoint_id] = entry
        for thread, ns, checkpoint_id, entry, task_id in self.writes:
            place = found.setdefault((thread, ns), ({}, {}, {}))
            tasks = place[2].setdefault(checkpoint_id, {})
            tasks[task_id] = (*tasks.get(task_id, ()), entry)
        return found


def state_of(index):
    return {
        (thread_id, name): (ns.listed, ns.hidden, ns.writes)
        for thread_id, thread in index.threads.items()
        for name, ns in thread.namespaces.items()
    }


def filled(history):
    """An index and its naive twin after these records, checked after each."""
    index, naive = Index(), Naive()
    for position, record in enumerate(history):
        offset, size = 64 + 100 * position, 50 + position
        index.apply(record, offset, size)
        naive.apply(record, offset, size)
        index._check()
        assert state_of(index) == naive.state()
    return index, naive


HISTORIES = st.lists(records(few_ids, links=True), max_size=25)


@given(HISTORIES)
def test_the_index_equals_a_naive_rebuild_after_every_record(history):
    filled(history)


@given(HISTORIES, few_ids)
def test_every_look_up_equals_a_search_of_all_rows(history, wanted):
    index, naive = filled(history)
    for (thread_id, name), (listed, hidden, _) in naive.state().items():
        thread = index.threads[thread_id]
        ns = index.namespace(thread_id, name)
        assert ns.ids == sorted(listed)
        assert ns.find(wanted) == (listed | hidden).get(wanted)
        below = max((i for i in listed if i < wanted), default=None)
        assert thread.below(name, wanted, ()) == below
        assert list(ns.ancestors(wanted)) == naive_ancestors(listed | hidden, wanted)
    assert index.namespace("no such thread", "") is None


def naive_ancestors(entries, checkpoint_id):
    chain, passed = [], [checkpoint_id]
    while checkpoint_id in entries:
        checkpoint_id = entries[checkpoint_id].parent_id
        if checkpoint_id in passed or checkpoint_id not in entries:
            break
        passed.append(checkpoint_id)
        chain.append((checkpoint_id, entries[checkpoint_id]))
    return chain


@given(HISTORIES, st.sampled_from(["", "c", "c1", "ü", "z"]))
def test_threads_with_a_prefix_are_those_that_list_a_checkpoint(history, prefix):
    index, naive = filled(history)
    expected = {row[0] for row in naive.checkpoints if not row[4] and row[0].startswith(prefix)}
    assert [thread_id for thread_id, _ in index.with_prefix(prefix)] == sorted(expected)


@given(HISTORIES)
def test_a_thread_counts_the_bytes_of_the_frames_it_refers_to(history):
    index, naive = filled(history)
    for thread_id, thread in index.threads.items():
        rows = [row for row in (*naive.checkpoints, *naive.writes) if row[0] == thread_id]
        assert thread.bytes == sum(row[3].size for row in rows)
        listed = [row for row in naive.checkpoints if row[0] == thread_id and not row[4]]
        assert thread.checkpoints() == len(listed)


@given(HISTORIES)
def test_reading_creates_nothing(history):
    index, naive = filled(history)
    index.namespace("no such thread", "")
    for thread_id in list(index.threads):
        index.namespace(thread_id, "no such namespace")
    list(index.with_prefix(""))
    index._check()
    assert state_of(index) == naive.state()


def test_a_copy_and_its_source_go_separate_ways():
    index = Index()
    for offset, record in enumerate(
        [
            checkpoint("c1", "a"),
            writes("c1", "a"),
            CopyRecord("a", "b"),
            checkpoint("c2", "a"),
            writes("c1", "b", "another"),
            ForgetRecord([Forgotten("b", "", [], ["c1"])]),
        ]
    ):
        index.apply(record, offset, 10)
        index._check()
    source, copy = index.namespace("a", ""), index.namespace("b", "")
    assert source.ids == ["c1", "c2"]
    assert copy.ids == []
    assert list(copy.hidden) == ["c1"]
    assert len(source.writes_of("c1")) == 1
    assert len(copy.writes_of("c1")) == 2


def test_the_latest_is_the_largest_id_whatever_the_order_of_arrival():
    index = Index()
    for offset, checkpoint_id in enumerate(["c2", "c9", "c10", "c1"]):
        index.apply(checkpoint(checkpoint_id), offset, 10)
    assert index.namespace("t", "").ids == ["c1", "c10", "c2", "c9"]


def test_a_hidden_checkpoint_that_is_put_again_is_listed_again():
    index = Index()
    index.apply(checkpoint("c1"), 0, 10)
    index.apply(ForgetRecord([Forgotten("t", "", [], ["c1"])]), 10, 5)
    assert index.namespace("t", "").find("c1") is not None
    assert list(index.with_prefix("")) == []
    index.apply(checkpoint("c1"), 20, 30)
    index._check()
    assert index.namespace("t", "").listed["c1"].offset == 20
    assert index.threads["t"].bytes == 30


def test_keys_sort_by_checkpoint_id_first_and_say_what_they_name():
    assert Key("1", "z", "z") < Key("2", "a", "a")
    assert str(Key("c", "t", "")) == "thread 't', checkpoint 'c'"
    assert str(Key("c", "t", "n")) == "thread 't', namespace 'n', checkpoint 'c'"
