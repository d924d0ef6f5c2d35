"""Logs built by hand, and what a store holds, for tests of the layers below the saver."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from logsaver.frame import FileHeader, encode_frame
from logsaver.record import (
    CheckpointRecord,
    CopyRecord,
    DeleteRecord,
    ForgetRecord,
    Forgotten,
    Linked,
    LinkRecord,
    Record,
    ReplacedRecord,
    VouchRecord,
    WritesRecord,
    encode,
)
from logsaver.store import Store

HEADER = FileHeader(bytes(range(16)))
OTHER_HEADER = FileHeader(bytes(range(1, 17)))


def checkpoint(
    checkpoint_id: str = "c1", thread_id: str = "t", ns: str = "", parent_id: str | None = None
) -> CheckpointRecord:
    """A record without a meaning to LangGraph: the layers below the saver do not look inside."""
    return CheckpointRecord(
        thread_id, ns, checkpoint_id, parent_id, 1_000_000, b"tags", b"body", b"meta", {"x": b"1"}
    )


def writes(checkpoint_id: str = "c1", thread_id: str = "t", task_id: str = "task") -> WritesRecord:
    return WritesRecord(thread_id, "", checkpoint_id, task_id, "", [(0, "x", b"1")])


class BuiltLog(NamedTuple):
    """The bytes of a log, and where its frames start."""

    data: bytes
    offsets: list[int]

    @property
    def ends(self) -> list[int]:
        return [*self.offsets[1:], len(self.data)]


def build_log(
    records: list[Record], *, synced: bool = False, header: FileHeader = HEADER
) -> BuiltLog:
    """A log of these records. `synced`: each was on stable storage before the next came."""
    return build_log_of_payloads([encode(record) for record in records], synced, header)


def build_log_of_payloads(
    payloads: list[tuple[int, bytes]], synced: bool = False, header: FileHeader = HEADER
) -> BuiltLog:
    """The same from frame kinds and payloads, which need not make sense."""
    data, previous, offsets = header.encode(), header.seed, []
    for kind, payload in payloads:
        offsets.append(len(data))
        frame, previous = encode_frame(
            kind,
            payload,
            offset=len(data),
            previous=previous,
            synced_upto=len(data) if synced else header.data_start,
            seed=header.seed,
        )
        data += frame
    return BuiltLog(data, offsets)


def log_of_payload(kind: int, payload: bytes) -> BuiltLog:
    """A log of one good frame and then one that has this payload, with good checksums."""
    return build_log_of_payloads([encode(checkpoint()), (kind, payload)])


def holds(store: Store) -> dict[str, Any]:
    """Everything a store holds, read back from its frames."""
    with store.lock:
        index = store.view()
        index._check()
        return {
            f"{thread_id}/{name}": {
                "ids": list(ns.ids),
                "listed": {i: store.log.checkpoint(e.offset) for i, e in ns.listed.items()},
                "hidden": {i: store.log.checkpoint(e.offset) for i, e in ns.hidden.items()},
                "writes": {
                    i: [store.log.writes(e.offset) for e in ns.writes_of(i)] for i in ns.writes
                },
            }
            for thread_id, thread in index.threads.items()
            for name, ns in thread.namespaces.items()
        }


def flipped(data: bytes, bit: int) -> bytes:
    """The same bytes with one bit the other way round."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


# -- arbitrary records

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)  # no lone surrogates
few_ids = st.sampled_from(["", "c1", "c2", "c3", "c4", "ü"])
stored_whole = st.binary(max_size=40) | st.tuples(text, st.binary(max_size=40)).map(list)
stored = stored_whole | st.integers(0, 2**40)


def records(
    ids: st.SearchStrategy[str] = text, *, links: bool = False
) -> st.SearchStrategy[Record]:
    """Any record. With a strategy of few ids, records that meet each other.

    With `links` also those that refer to frames, which need not be there.
    """
    names = st.lists(ids, max_size=4)
    return st.one_of(
        st.builds(
            CheckpointRecord,
            thread_id=ids,
            ns=ids,
            checkpoint_id=ids,
            parent_id=st.none() | ids,
            time=st.integers(-(2**63), 2**63 - 1),
            tags=st.binary(max_size=12),
            body=stored_whole,
            metadata=stored_whole,
            channels=st.dictionaries(text, stored, max_size=4),
        ),
        st.builds(
            WritesRecord,
            thread_id=ids,
            ns=ids,
            checkpoint_id=ids,
            task_id=ids,
            task_path=ids,
            writes=st.lists(
                st.tuples(st.integers(-4, 99), text, stored_whole), min_size=1, max_size=4
            ),
        ),
        st.builds(DeleteRecord, names),
        st.builds(
            ForgetRecord,
            st.lists(st.builds(Forgotten, ids, ids, names, names), max_size=3),
        ),
        st.builds(CopyRecord, ids, ids),
        st.builds(ReplacedRecord, st.integers(1, 2**64 - 1)),
        st.just(VouchRecord()),
        *([any_link(ids)] if links else ()),
    )


def any_link(ids: st.SearchStrategy[str]) -> st.SearchStrategy[Record]:
    offset, size = st.integers(0, 2**40), st.integers(1, 2**30)
    linked = st.builds(
        Linked,
        ids,
        offset,
        size,
        st.none() | ids,
        st.integers(0, 2**50),
        st.binary(),
        st.booleans(),
    )
    rows = st.tuples(ids, ids, st.lists(st.tuples(offset, size), min_size=1, max_size=3))
    return st.one_of(
        st.builds(LinkRecord, ids, ids, st.lists(linked, min_size=1, max_size=3), st.just([])),
        st.builds(LinkRecord, ids, ids, st.just([]), st.lists(rows, min_size=1, max_size=3)),
    )
