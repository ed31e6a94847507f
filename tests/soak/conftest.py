"""Brings in the fixtures of the Postgres that tests run on."""

import pytest

PLUGIN = "tests.postgres.server"


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures once, as a plugin; a fixture of a conftest would be made once for each folder."""
    if not config.pluginmanager.has_plugin(PLUGIN):
        config.pluginmanager.import_plugin(PLUGIN)
