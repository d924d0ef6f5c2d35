"""Fixtures that every test file shares."""

import logging
import os

import pytest
from encrypting import encrypt_if_told
from hypothesis import HealthCheck, settings

from logsaver import LogSaver

encrypt_if_told()
settings.register_profile(
    "ci",
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("deep", settings.get_profile("ci"), max_examples=2000)
settings.load_profile(os.environ.get("LOGSAVER_HYPOTHESIS", "ci"))


@pytest.fixture(autouse=True)
def told():
    """The command makes the loggers quiet for good; the tests behind it want to hear them."""
    for name in ("logsaver", "langgraph"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def path(tmp_path):
    """Where a test's log lives."""
    return str(tmp_path / "agent.log")


@pytest.fixture
def saver(path):
    """An open saver on a new log."""
    with LogSaver(path) as opened:
        yield opened
