"""A coordinator with simulated workers, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import Up, running, soon

PLUGIN = "tests.postgres.server"


def pytest_configure(config: pytest.Config) -> None:
    """Bring in the folder that a database's user can reach (see tests/postgres/conftest.py)."""
    if not config.pluginmanager.has_plugin(PLUGIN):
        config.pluginmanager.import_plugin(PLUGIN)


@pytest.fixture(scope="session")
def fleet(open_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A real coordinator whose group ``demo`` two workers serve."""
    with running(open_folder / "deployed", "--workers", "2", home=tmp_path_factory.mktemp("home")) as found:
        soon(lambda: len(found.ask("members", "demo")["members"]) == 2)
        yield found
        found.stop()
