"""What tests of days share."""

import pytest
from tests.days.small_day import DAY, SMALL

from batonpass.days.generate import rows_of
from batonpass.days.rows import GroupRows


@pytest.fixture(scope="session")
def rows() -> GroupRows:
    """The rows of the small day; nobody changes them."""
    return rows_of(SMALL, DAY)
