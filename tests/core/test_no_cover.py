"""What is not measured costs nothing."""

import sys

import pytest


@pytest.mark.no_cover
def test_a_test_that_counts_for_no_coverage_is_not_traced() -> None:
    """Tracing takes most of the time of a random story."""
    assert sys.gettrace() is None
