"""Brings in the fixtures of the Postgres that tests run on: one server for a run, whichever folders are in it."""

import gc
from collections.abc import Iterator

import pytest

PLUGIN = "tests.postgres.server"


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures once, as a plugin; a fixture of a conftest would be made once for each folder."""
    if not config.pluginmanager.has_plugin(PLUGIN):
        config.pluginmanager.import_plugin(PLUGIN)


@pytest.fixture(autouse=True)
def _light() -> Iterator[None]:
    """Measurements collect garbage before they begin: what other tests have left in this process is no part of that."""
    gc.freeze()
    yield
    gc.unfreeze()
