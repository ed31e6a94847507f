"""The folder that a database's user can reach (see tests/postgres/conftest.py)."""

from __future__ import annotations

import pytest

PLUGIN = "tests.postgres.server"


def pytest_configure(config: pytest.Config) -> None:
    """Bring it in."""
    if not config.pluginmanager.has_plugin(PLUGIN):
        config.pluginmanager.import_plugin(PLUGIN)
