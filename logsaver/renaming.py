"""A record of one thread made one of another, which had it as a copy.

A copied thread reads its source's frames, and shows its own name where their metadata names the
source. When the source is gone, compaction gives the frames to the copy: then they must say so
themselves, and not a byte of the source's name may be left.
"""

from __future__ import annotations

from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol

from logsaver.codec import Undecodable, load_leniently
from logsaver.index import key_of
from logsaver.record import CheckpointRecord, WritesRecord
from logsaver.tags import tags
from logsaver.value import USUAL_TYPE, Stored, typed, whole

THREAD_ID: Final = "thread_id"
_TAG_SIZE: Final = 4


def renamed(
    serde: SerializerProtocol, record: CheckpointRecord | WritesRecord, thread_id: str
) -> CheckpointRecord | WritesRecord:
    """The same record of another thread."""
    if isinstance(record, WritesRecord):
        return record._replace(thread_id=thread_id)
    renamed_record = record._replace(thread_id=thread_id)
    metadata = _loaded(serde, record)
    # By the rule that reading a copy goes by: 7 names the thread "7".
    if not isinstance(metadata, dict) or str(metadata.get(THREAD_ID)) != record.thread_id:
        return renamed_record
    old_tag, new_tag = (tags({THREAD_ID: name}) for name in (metadata[THREAD_ID], thread_id))
    metadata[THREAD_ID] = thread_id
    return renamed_record._replace(
        metadata=_dumped(serde, record, metadata), tags=_without(record.tags, old_tag) + new_tag
    )


def _is_plain(record: CheckpointRecord) -> bool:
    return typed(record.metadata)[0] == USUAL_TYPE


def _loaded(serde: SerializerProtocol, record: CheckpointRecord) -> Any:
    """The metadata; its values as they are stored where the serializer is not needed for it."""
    if not _is_plain(record):
        found = load_leniently(serde, record.metadata, key_of(record), "the metadata")
        return None if isinstance(found, Undecodable) else found
    try:
        # Extension types stay what they are: nobody's class is built, or needed.
        return ormsgpack.unpackb(
            typed(record.metadata)[1],
            ext_hook=ormsgpack.Ext,
            option=ormsgpack.OPT_NON_STR_KEYS,
        )
    except ValueError:
        return None


def _dumped(serde: SerializerProtocol, record: CheckpointRecord, metadata: Any) -> Stored:
    if not _is_plain(record):
        return whole(serde.dumps_typed(metadata))
    return ormsgpack.packb(metadata, option=ormsgpack.OPT_NON_STR_KEYS)


def _without(all_tags: bytes, gone: bytes) -> bytes:
    each = (all_tags[at : at + _TAG_SIZE] for at in range(0, len(all_tags), _TAG_SIZE))
    return b"".join(tag for tag in each if tag != gone)
