"""The coordinator of canned answers that pages are tested on, and a browser for all tests of a process."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.dashboard.browsing import Windows, started
from tests.dashboard.canned import Canned
from tests.dashboard.fleet import AUDIT, Fleet


@pytest.fixture
def canned() -> Canned:
    """A coordinator with a group of eight members and forty tasks, and one audited day."""
    found = Canned(Fleet.of(8, 40))
    found.audits = [AUDIT]
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browsing() -> AsyncIterator[Windows]:
    """What opens windows of one browser, for tests that run in the loop of the session."""
    async with started() as opened:
        yield opened
