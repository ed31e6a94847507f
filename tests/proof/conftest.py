"""A coordinator that is a process of its own, on a database of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.proof.coordinators import CoordinatorProcess


@pytest.fixture
async def coordinator(own_url: str, tmp_path: Path) -> AsyncIterator[CoordinatorProcess]:
    """A coordinator that runs on a database of its own."""
    made = CoordinatorProcess(own_url, tmp_path / "coordinator.log")
    await made.start()
    yield made
    await made.kill()
