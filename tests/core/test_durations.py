"""Durations are written in one form everywhere, and spans of time are typed in one."""

import pytest

from batonpass.core.state.durations import DASH, duration, parse_span

LENGTHS = {
    -5: "0 ms",
    0: "0 ms",
    820: "820 ms",
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
    90_061_000: "1 d 1 h",
    200_000_000: "2 d 7 h",
}


@pytest.mark.parametrize("milliseconds", LENGTHS)
def test_durations_are_written_in_two_units_at_most(milliseconds: float) -> None:
    assert duration(milliseconds) == LENGTHS[milliseconds]


def test_a_duration_of_none_is_written_as_its_meaning() -> None:
    assert (duration(None), duration(None, "never"), duration(0, "never")) == (DASH, "never", "0 ms")


def test_spans_add_up() -> None:
    assert [parse_span(text) for text in ("500ms", "1h30m", "1.5s", "1d")] == [500, 5_400_000, 1_500, 86_400_000]


@pytest.mark.parametrize("text", ["", "7", "s", "-3s", "1h 5m", "5 apples", "3x"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no span of time"):
        parse_span(text)
