"""A coordinator with simulated workers, for all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import Up, running
from tests.waiting import wait_until


@pytest.fixture(scope="package")
def fleet(open_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A real coordinator whose group ``demo`` two workers serve."""
    with running(open_folder / "deployed", "--workers", "2", home=tmp_path_factory.mktemp("home")) as found:
        wait_until(lambda: len(found.ask("members", "demo")["members"]) == 2)
        yield found
        found.stop()
