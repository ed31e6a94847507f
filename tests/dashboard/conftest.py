"""The coordinator of canned answers that pages are tested on."""

import pytest
from tests.dashboard.canned import Canned
from tests.dashboard.fleet import AUDIT, Fleet


@pytest.fixture
def canned() -> Canned:
    """A coordinator with a group of eight members and forty tasks, and one audited day."""
    found = Canned(Fleet.of(8, 40))
    found.audits = [AUDIT]
    return found
