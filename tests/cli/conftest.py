"""Servers that the commands are tried on."""

from collections.abc import Iterator

import pytest
from tests.cli.canned import Canned, canned


@pytest.fixture
def server() -> Iterator[Canned]:
    """A server that answers what the test says."""
    with canned() as found:
        yield found


@pytest.fixture(autouse=True)
def _of_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the settings of whoever runs the tests, and what runs on their machine, out of them."""
    home = tmp_path_factory.mktemp("home")
    for name in ("BATONPASS_URL", "BATONPASS_TOKEN", "BATONPASS_DATA", "BATONPASS_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setattr("batonpass.cli.folder._is_root", lambda: False)
