"""What aiokafka leaves behind is let go of after each test, as in ``tests/kafka``; a broker for a proxy."""

import os
from collections.abc import Iterator

import pytest
from tests.kafka.conftest import _no_leftovers

from batonpass.kafka.broker import BOOTSTRAP_VARIABLE, LocalBroker

__all__ = ["_no_leftovers"]


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of this machine, for a proxy to stand before: the run's own, unless a cluster was named for the run."""
    if BOOTSTRAP_VARIABLE not in os.environ:
        yield request.getfixturevalue("bootstrap")
        return
    with LocalBroker(tmp_path_factory.mktemp("late"), heap_mb=256) as broker:
        yield broker.bootstrap_servers
