"""Brings in the fixtures of the Kafka and the Postgres that tests run on: one of each, whichever folders are run."""

import gc
import warnings
from collections.abc import Iterator

import pytest

PLUGINS = ("tests.kafka.cluster", "tests.postgres.server")


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures once, as a plugin; a fixture of a conftest would be made once for each folder."""
    for plugin in PLUGINS:
        if not config.pluginmanager.has_plugin(plugin):
            config.pluginmanager.import_plugin(plugin)


@pytest.fixture(autouse=True)
def _no_leftovers() -> Iterator[None]:
    """Let go of connections that aiokafka forgets when it is closed while it connects, before another test is blamed.

    Its client keeps a connection only once it is ready; one that was cancelled before that is closed by nobody.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
