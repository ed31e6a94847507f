"""Durations are told in one form everywhere."""

from __future__ import annotations

import pytest

from batonpass.core.durations import duration

LENGTHS = {
    -5: "0 ms",
    0: "0 ms",
    999: "999 ms",
    999.7: "1 s",
    1_000: "1 s",
    3_900: "3.9 s",
    9_960: "10 s",
    41_400: "41 s",
    59_999: "1 min",
    200_000: "3 min 20 s",
    3_600_000: "1 h",
    5_400_000: "1 h 30 min",
    200_000_000: "2 d 7 h",
}


@pytest.mark.parametrize("milliseconds", LENGTHS)
def test_durations_are_told_in_two_units_at_most(milliseconds: float) -> None:
    assert duration(milliseconds) == LENGTHS[milliseconds]
