"""What the pytest-benchmark files share: `pytest bench/ --benchmark-enable`."""

from __future__ import annotations

import pytest

from bench.replay import directory
from bench.savers import SAVERS


@pytest.fixture(params=SAVERS)
def opened(request):
    """Each saver in turn, on a new file."""
    with directory() as where, SAVERS[request.param](where) as saver:
        yield saver
