"""A saver that nobody closed is finished by the garbage collector, wherever that happens to run.

The collector runs in the middle of any code that allocates, logsaver's own included, and in the
same thread. A finalizer that waits for a lock which that thread holds waits for ever.
"""

import subprocess
from textwrap import dedent

import pytest
from support import run_python

START = """
    import gc, sys
    from logsaver import LogSaver
    from logsaver import registry as engine

    gc.disable()  # it runs where the test says, and nowhere else

    def leave_unclosed(path):
        saver = LogSaver(path)
        saver.put(
            {"configurable": {"thread_id": "t", "__pregel_durability": "async"}},
            {"v": 4, "id": "c1", "ts": "", "channel_values": {}, "channel_versions": {}},
            {}, {},
        )
        saver.itself = saver  # a cycle: only the collector frees it

    path = sys.argv[1]
"""

MOMENTS = {
    "while another log is opened": """
    from logsaver import store

    class Collecting(store.Index):
        def __init__(self):
            gc.collect()
            super().__init__()

    leave_unclosed(path)
    store.Index = Collecting
    LogSaver(path + ".other").close()
    """,
    "while the same log is written to": """
    other = LogSaver(path)
    leave_unclosed(path)
    other._store.change(lambda log, index: gc.collect() and None)
    other.close()
    """,
    "while the same log is read": """
    other = LogSaver(path)
    leave_unclosed(path)
    with other._store.lock:
        gc.collect()
    other.close()
    """,
    "while another saver is closed": """
    class Collecting(dict):
        def get(self, *key):
            gc.collect()
            return super().get(*key)

    other = LogSaver(path + ".other")
    leave_unclosed(path)
    engine._shared = Collecting(engine._shared)
    other.close()
    """,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_saver_collected_while_a_lock_is_held_does_not_hang(path, moment):
    """Found as a test run that stood still: the collector ran while a log was opened, and the
    finalizer of an earlier saver waited for the lock that the opening held.
    """
    code = dedent(START) + dedent(MOMENTS[moment]) + "print('went on')\n"
    try:
        answer = run_python(code, path, timeout=30)
    except subprocess.TimeoutExpired:
        pytest.fail("the process waits for a lock that it holds itself")
    assert answer.stdout == "went on\n"


@pytest.mark.behaviour(33)
def test_a_saver_collected_where_no_lock_is_held_lets_go_of_the_log(path):
    """At once or soon after, while the process goes on."""
    code = (
        START
        + """
    import time
    leave_unclosed(path)
    gc.collect()
    for _ in range(1000):
        if not engine._shared:
            print("went on")
            break
        time.sleep(0.01)
"""
    )
    assert run_python(code, path).stdout == "went on\n"
