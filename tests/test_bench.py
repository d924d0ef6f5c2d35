"""The benchmarks replay what really happened, and every saver ends up with the same."""

from __future__ import annotations

import threading

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from bench import report, traces
from bench.bars import Bar, Scale, sizes, topics
from bench.recording import WRITING, Recorder
from bench.replay import Summary, frames_of, replay, summary
from bench.tables import Measured, losses
from logsaver import LogSaver

# Short runs of the same graphs: what is compared does not depend on how long they are.
SHORT = {
    "small": lambda recorder: traces.small(recorder, threads=5),
    "chat": lambda recorder: traces.chat(recorder, turns=5),
    "document": lambda recorder: traces.document(recorder, steps=4, size=20_000),
    "fanout": lambda recorder: traces.fanout(recorder, rounds=2),
    "delta": lambda recorder: traces.delta(recorder, turns=5, snapshot_frequency=3),
    "subgraphs": lambda recorder: traces.subgraphs(recorder, turns=3),
}

every_run = pytest.mark.parametrize("name", SHORT)


class NotingRecorder(Recorder):
    """Also serializes what it is given, right before the call is recorded and right after.

    LangGraph's other threads do not wait for that: a message may get its id in between.
    """

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[bytes, bytes]] = []
        self._one_at_a_time = threading.Lock()

    def _record(self, method, *args):
        with self._one_at_a_time:
            before = serialized(args)
            result = super()._record(method, *args)
            self.noted.append((before, serialized(args)))
            return result


def serialized(args) -> bytes:
    """The arguments of a call but for the config, which holds the run itself."""
    return JsonPlusSerializer().dumps_typed(list(args[1:]))[1]


def test_there_is_a_short_run_of_every_trace():
    assert SHORT.keys() == traces.RUNS.keys()


@every_run
def test_what_was_recorded_is_what_was_handed_over(name):
    """LangGraph hands over live objects: add_messages sets the id of a message after its put."""
    recorder = NotingRecorder()
    SHORT[name](recorder)
    for call, noted in zip(recorder.calls, recorder.noted, strict=True):
        assert serialized(call.args) in noted, call.method
    assert len(recorder.noted) > 10


@every_run
def test_log_and_memory_have_the_same_after_a_replay(path, name):
    of = traces.record(name, SHORT[name])
    memory = InMemorySaver()
    replay(memory, of)
    with LogSaver(path, fsync="never") as saver:
        replay(saver, of)
    with LogSaver(path) as saver:
        for put, config in zip(of.puts(), of.addresses(), strict=True):
            ours, theirs = saver.get_tuple(config), memory.get_tuple(config)
            assert ours is not None
            # Memory finds values by channel and version, so it shows a DeltaChannel's snapshot in
            # later checkpoints too, which were put without one.
            values = theirs.checkpoint["channel_values"]
            as_put = {channel: values[channel] for channel in put.args[1]["channel_values"]}
            checkpoint = {**theirs.checkpoint, "channel_values": as_put}
            assert ours == theirs._replace(checkpoint=checkpoint)
        for thread_id in of.thread_ids:
            latest = {"configurable": {"thread_id": thread_id}}
            assert saver.get_tuple(latest).config == memory.get_tuple(latest).config


@every_run
def test_recorded_calls_are_those_of_a_run_in_async_mode(name):
    """Otherwise "LogSaver async" would measure syncs."""
    for call in traces.record(name, SHORT[name]).calls:
        configurable = call.args[0]["configurable"]
        assert "__pregel_runtime" in configurable
        assert "__pregel_durability" not in configurable


def test_the_frames_of_a_trace_are_the_whole_log(tmp_path):
    of = traces.record("small", SHORT["small"])
    frames = frames_of(of, tmp_path)
    assert len(frames) == sum(call.method in WRITING for call in of.calls)
    assert (tmp_path / "frames.log").read_bytes().endswith(b"".join(frames))
    assert all(frames)


def test_a_mean_is_that_of_the_best_round():
    assert summary([[3000, 5000], [1000, 2000]])[:3] == (1.5, 1.0, 2.5)


def test_a_quiet_mean_takes_the_fastest_go_of_each_call():
    assert summary([[1000, 9000], [8000, 3000]]).quiet == 2.0


@pytest.mark.parametrize(
    ("bar", "verdict"),
    [
        (Bar("put", 2, 2), "met"),
        (Bar("put", 2.1, 2), "not met"),
        (Bar("put", 1.9, 2, at_least=True), "not met"),
        (Bar("put", 0.5, 2, possible=(1, 9)), "too noisy to tell"),
    ],
)
def test_a_bar_is_met_or_not_or_impossible(bar, verdict):
    assert bar.verdict == verdict


def test_the_bars_are_grouped_by_topic():
    rows = report.bar_rows({"putting": [Bar("a", 1, 2, "s"), Bar("b", 3, 2, "s")]})
    assert rows == [
        ["putting", "a", "1 s", "≤ 2 s", "met"],
        ["", "b", "3 s", "≤ 2 s", "not met"],
    ]


def test_every_topic_of_the_bars_can_be_run():
    assert all(map(callable, topics().values()))


def test_what_logsaver_loses_is_listed():
    def took(name: str, mean: float) -> Measured:
        return Measured(name, Summary(mean, mean, mean, mean, mean), None, None, None)

    means = {
        "InMemorySaver": 1,
        "SqliteSaver": 9,
        "SqliteSaver synchronous=OFF": 4,
        "LogSaver async": 5,
        "LogSaver sync": 5,
        "LogSaver fsync=never": 5,
    }
    table = {name: took(name, mean) for name, mean in means.items()}
    lost = {(line[2], line[3], line[4]) for line in losses("small", table)}
    assert ("LogSaver async", "InMemorySaver", "5.00") in lost
    assert ("LogSaver async", "SqliteSaver synchronous=OFF", "1.25") in lost
    assert not any(ours == "LogSaver sync" for ours, _, _ in lost)


def test_a_table_has_a_cell_for_every_column():
    assert report.markdown(("a", "b"), [["1"]]) == "| a | b |\n| --- | --- |\n| 1 |  |\n"


def test_the_promised_sizes_are_kept():
    """Bytes on disk do not depend on the machine."""
    for bar in sizes.bars(Scale()):
        assert bar.verdict == "met", bar.row()


@pytest.mark.deep
@pytest.mark.timeout(0)
def test_the_promised_sizes_are_kept_in_long_runs_too():
    for bar in sizes.bars(Scale(deep=True)):
        assert bar.verdict == "met", bar.row()
