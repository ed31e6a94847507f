"""Brings in the fixtures of the Kafka that tests run on: one broker for a run, whichever folders are in it."""

import gc
import warnings
from collections.abc import Iterator

import pytest

PLUGIN = "tests.kafka.cluster"


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures once, as a plugin; a fixture of a conftest would be made once for each folder."""
    if not config.pluginmanager.has_plugin(PLUGIN):
        config.pluginmanager.import_plugin(PLUGIN)


@pytest.fixture(autouse=True)
def _no_leftovers() -> Iterator[None]:
    """Let go of connections that aiokafka forgets when it is closed while it connects, before another test is blamed.

    Its client keeps a connection only once it is ready; one that was cancelled before that is closed by nobody.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
