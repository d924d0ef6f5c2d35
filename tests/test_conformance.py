"""LangGraph's own conformance suite, through the async methods and through the sync ones.

The suite calls only async methods, and a capability it does not detect counts as passed in its
summary. So each capability is looked at by itself: detected, run, and nothing failed.
"""

from __future__ import annotations

import asyncio

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES, DetectedCapabilities
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer

from logsaver import LogSaver

CAPABILITIES = (
    "put",
    "put_writes",
    "get_tuple",
    "list",
    "delete_thread",
    "delete_for_runs",
    "copy_thread",
    "prune",
)


class ThroughSync(BaseCheckpointSaver):
    """A saver whose async methods call the sync ones of a `LogSaver`."""

    def __init__(self, inner: LogSaver) -> None:
        super().__init__(serde=inner.serde)
        self.inner = inner

    async def aput(self, config, checkpoint, metadata, new_versions):
        return self.inner.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config, writes, task_id, task_path=""):
        self.inner.put_writes(config, writes, task_id, task_path)

    async def aget_tuple(self, config):
        return self.inner.get_tuple(config)

    async def alist(self, config, *, filter=None, before=None, limit=None):  # noqa: A002
        for found in self.inner.list(config, filter=filter, before=before, limit=limit):
            yield found

    async def adelete_thread(self, thread_id):
        self.inner.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids):
        self.inner.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id, target_thread_id):
        self.inner.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids, *, strategy="keep_latest"):
        self.inner.prune(thread_ids, strategy=strategy)

    def get_next_version(self, current, channel):
        return self.inner.get_next_version(current, channel)


@pytest.fixture(scope="module", params=["async", "sync"])
def report(request, tmp_path_factory):
    """What the suite says; it makes a new saver for each capability."""

    async def make_saver():
        path = tmp_path_factory.mktemp("conformance") / "agent.log"
        async with LogSaver(path) as saver:
            yield saver if request.param == "async" else ThroughSync(saver)

    return asyncio.run(validate(RegisteredCheckpointer(request.param, make_saver)))


def test_the_suite_knows_the_capabilities_we_check():
    assert {capability.value for capability in ALL_CAPABILITIES} == set(CAPABILITIES)


@pytest.mark.behaviour(34, 36)
def test_every_capability_is_detected(saver):
    assert DetectedCapabilities.from_instance(saver).missing == frozenset()
    assert DetectedCapabilities.from_instance(ThroughSync(saver)).missing == frozenset()


@pytest.mark.behaviour(36)
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_test_of_a_capability_ran_and_passed(report, capability):
    result = report.results[capability]
    assert result.failures == []
    assert result.detected
    assert result.passed is True
    assert result.tests_passed > 0
    assert result.tests_failed == result.tests_skipped == 0
