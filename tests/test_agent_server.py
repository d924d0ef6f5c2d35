"""LangGraph's Agent Server keeps its threads in a log: the example in docs/agent-server, run.

`langgraph dev` in a process of its own, on loopback, without a licence and without a network.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from logsaver import LogSaver, verify

pytestmark = pytest.mark.skipif(
    find_spec("langgraph_cli") is None or find_spec("langgraph_api") is None,
    reason="the Agent Server is not installed: pip install 'logsaver[server]'",
)

EXAMPLE = Path(__file__).parents[1] / "docs" / "agent-server"
OFFLINE = {
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "LANGSMITH_TRACING": "false",
}
START_LIMIT = 60  # seconds
ISOLATED = {"BG_JOB_ISOLATED_LOOPS": "true"}


class Server:
    """A running `langgraph dev`, and the SDK's client for it."""

    def __init__(self, process, client):
        self.process = process
        self.client = client

    def say(self, thread_id, text, **options):
        """Run the agent on a message; the messages it ends with."""
        found = self.client.runs.wait(
            thread_id, "agent", input={"messages": [{"role": "user", "content": text}]}, **options
        )
        return contents(found)

    def state(self, thread_id, checkpoint=None):
        return self.client.threads.get_state(thread_id, checkpoint)

    def history(self, thread_id):
        return self.client.threads.get_history(thread_id, limit=100)

    def find_again(self, thread_id):
        """The server's own list of threads may be some seconds old after a kill."""
        self.client.threads.create(thread_id=thread_id, if_exists="do_nothing", graph_id="agent")


@contextmanager
def server(directory, **env):
    """Start one in a directory with the example; it is killed at the end if still there."""
    from langgraph_sdk import get_sync_client

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    with open(directory / "server.txt", "ab") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            cwd=directory,
            env={**os.environ, **OFFLINE, **env},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        with get_sync_client(url=f"http://127.0.0.1:{port}") as client:
            wait_until(lambda: answers(client, process), START_LIMIT)
            yield Server(process, client)
    finally:
        process.kill()
        process.wait()


def answers(client, process):
    assert process.poll() is None, "the server ended"
    with suppress(Exception):  # whatever the client raises while nobody listens yet
        return client.http.get("/ok")["ok"]


def wait_until(condition, limit=20):
    deadline = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {limit} s"
        time.sleep(0.05)
    return found


def contents(values):
    return [message["content"] for message in values["messages"]]


def ids(states):
    return [state["checkpoint"]["checkpoint_id"] for state in states]


@pytest.fixture
def example(tmp_path):
    """A copy of the example; what the server complained of is checked at the end."""
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    yield tmp_path
    told = (tmp_path / "server.txt").read_text("utf-8")
    assert "Using custom checkpointer: LogSaver" in told
    assert "BlockingError" not in told
    assert "Custom checkpointer missing" not in told  # a method that it would use
    assert "Traceback" not in told


def in_the_log(directory, thread_id):
    """How many checkpoints of a thread another process finds, while the server runs."""
    with LogSaver(directory / "agent.log", read_only=True) as log:
        return sum(1 for _ in log.list({"configurable": {"thread_id": thread_id}}))


def test_the_agent_server_keeps_its_threads_in_a_log(example):
    """Every request that reaches the saver; then a clean end, and one by SIGKILL."""
    with server(example) as running:
        thread = running.client.threads.create()["thread_id"]
        assert running.say(thread, "hello") == ["hello", "You said: hello"]
        first = running.history(thread)
        assert in_the_log(example, thread) == len(first) == 3

        go_back(running, thread, first)
        ask_a_human(running, thread)
        copy_prune_and_delete(running, example, thread)
        roll_back(running, thread)
        before = running.state(thread), ids(running.history(thread))
        running.process.send_signal(signal.SIGINT)
        running.process.wait(timeout=START_LIMIT)

    assert verify(example / "agent.log").ok
    with server(example, **ISOLATED) as running:
        assert (running.state(thread), ids(running.history(thread))) == before
        assert running.say(thread, "again")[-1] == "You said: again"
        run_until_it_waits(running, thread)
        kept = ids(running.history(thread))
        running.process.kill()
        running.process.wait()

    with server(example, **ISOLATED) as running:
        running.find_again(thread)
        assert set(kept) <= set(ids(running.history(thread)))
        assert "again" in contents(running.state(thread)["values"])
        assert running.say(thread, "back", multitask_strategy="rollback")[-1] == "You said: back"
    with LogSaver(example / "agent.log") as log:
        assert log.get_tuple({"configurable": {"thread_id": thread}})


def go_back(running, thread, states):
    """A state by its checkpoint, another run from there, and a state made by hand."""
    early = states[-1]["checkpoint"]
    assert running.state(thread, early)["checkpoint"]["checkpoint_id"] == early["checkpoint_id"]
    answered = running.client.threads.update_state(
        thread, {"messages": [{"role": "ai", "content": "by hand"}]}, as_node="reply"
    )
    now = running.state(thread)
    assert now["checkpoint"]["checkpoint_id"] == answered["checkpoint"]["checkpoint_id"]
    assert contents(now["values"]) == ["hello", "You said: hello", "by hand"]
    forked = running.say(thread, "fork", checkpoint=states[0]["checkpoint"])
    assert forked == ["hello", "You said: hello", "fork", "You said: fork"]
    assert set(ids(states)) < set(ids(running.history(thread)))
    page = running.client.threads.get_history(thread, limit=100, before=states[0]["checkpoint"])
    assert ids(page) == ids(states[1:])


def ask_a_human(running, thread):
    running.say(thread, "ask")
    assert [found["value"] for found in running.state(thread)["interrupts"]] == ["Really?"]
    answered = running.client.runs.wait(thread, "agent", command={"resume": "yes"})
    assert contents(answered)[-1] == "The human says yes."


def copy_prune_and_delete(running, directory, thread):
    copied = running.client.threads.copy(thread)["thread_id"]
    assert ids(running.history(copied)) == ids(running.history(thread))
    assert running.state(copied)["values"] == running.state(thread)["values"]
    # The development server itself refuses the other strategy, keep_latest.
    other = running.client.threads.copy(thread)["thread_id"]
    running.client.threads.prune([other], strategy="delete")
    running.client.threads.delete(copied)
    assert in_the_log(directory, other) == in_the_log(directory, copied) == 0


def run_until_it_waits(running, thread):
    """Start a run that hangs in its node; what it began with is in the state then."""
    run = running.client.runs.create(
        thread, "agent", input={"messages": [{"role": "user", "content": "wait"}]}
    )
    wait_until(lambda: "wait" in contents(running.state(thread)["values"]))
    return run["run_id"]


def roll_back(running, thread):
    """A second run that takes the place of the first, which leaves nothing behind."""
    before = ids(running.history(thread))
    run_until_it_waits(running, thread)
    said = running.say(thread, "instead", multitask_strategy="rollback")
    assert said[-1] == "You said: instead"
    assert "wait" not in said
    after = running.history(thread)
    assert set(before) <= set(ids(after))
    assert not [state for state in after if "wait" in contents(state["values"])]


@pytest.mark.deep
@pytest.mark.parametrize("isolated", [{}, ISOLATED], ids=["shared loop", "isolated loops"])
def test_a_server_that_is_killed_again_and_again_keeps_what_it_answered(example, isolated):
    thread, said = None, []
    for round_ in range(10):
        with server(example, **isolated) as running:
            thread = thread or running.client.threads.create()["thread_id"]
            running.find_again(thread)
            for number in range(5):
                text = f"{round_}.{number}"
                said += [text, f"You said: {text}"]
                assert running.say(thread, text) == said
            running.process.kill()
    assert verify(example / "agent.log").ok
