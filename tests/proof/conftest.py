"""Brings in the fixtures of the Postgres that tests run on, and a coordinator that is a process of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.proof.coordinators import CoordinatorProcess

PLUGIN = "tests.postgres.server"


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures once, as a plugin; a fixture of a conftest would be made once for each folder."""
    if not config.pluginmanager.has_plugin(PLUGIN):
        config.pluginmanager.import_plugin(PLUGIN)


@pytest.fixture
async def coordinator(own_url: str, tmp_path: Path) -> AsyncIterator[CoordinatorProcess]:
    """A coordinator that runs on a database of its own."""
    made = CoordinatorProcess(own_url, tmp_path / "coordinator.log")
    await made.start()
    yield made
    await made.kill()
