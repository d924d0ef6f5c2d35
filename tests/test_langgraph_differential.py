"""The same runs on InMemorySaver and on LogSaver leave the same history behind."""

import pytest
from graphs import THREAD, tell_history, tell_log, tell_state
from langgraph.checkpoint.memory import InMemorySaver
from scenarios import SCENARIOS, play, play_async

from logsaver import LogSaver

CASES = [
    pytest.param(scenario, durability, id=f"{scenario.name}-{durability}")
    for scenario in SCENARIOS
    for durability in scenario.durabilities
]


def assert_same_history(scenario, memory, log):
    """Every step's values, next nodes, tasks, errors, interrupts, metadata and parent."""
    expected, found = scenario.build(memory), scenario.build(log)
    assert tell_history(found, THREAD) == tell_history(expected, THREAD)
    assert tell_state(found.get_state(THREAD, subgraphs=True)) == tell_state(
        expected.get_state(THREAD, subgraphs=True)
    )


def stored(saver):
    """Everything in a saver, without the channels that InMemorySaver stores another way.

    It keeps a delta channel's snapshot by version, so later checkpoints seem to have it too.
    """
    told = tell_log(saver, THREAD)
    for checkpoint in told:
        checkpoint["channels"].pop("log", None)
    return told


@pytest.mark.parametrize(("scenario", "durability"), CASES)
def test_invoke_leaves_the_history_that_memory_has(path, scenario, durability):
    memory = InMemorySaver()
    play(scenario.build(memory), scenario, durability)
    with LogSaver(path) as log:
        play(scenario.build(log), scenario, durability)
        assert_same_history(scenario, memory, log)
    with LogSaver(path) as reopened:
        assert_same_history(scenario, memory, reopened)
        assert stored(reopened) == stored(memory)


@pytest.mark.parametrize(("scenario", "durability"), CASES)
async def test_ainvoke_leaves_the_history_that_memory_has(path, scenario, durability):
    memory = InMemorySaver()
    await play_async(scenario.build(memory), scenario, durability)
    async with LogSaver(path) as log:
        await play_async(scenario.build(log), scenario, durability)
        assert_same_history(scenario, memory, log)
    with LogSaver(path) as reopened:
        assert_same_history(scenario, memory, reopened)
        assert stored(reopened) == stored(memory)
