"""A coordinator that is counted."""

from collections.abc import AsyncIterator

import pytest
from tests.api.conftest import Api, serving

from batonpass.metrics.counts import Counts


@pytest.fixture
async def counted() -> AsyncIterator[Api]:
    """Serve a coordinator that is counted."""
    async with serving(counts=Counts()) as api:
        yield api
