"""Times of day in a reader's zone."""

from datetime import UTC, datetime

import pytest

from batonpass.zones import UTC_ZONE, zone_named

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone", "words"),
    [
        ("2026-11-20T03:04:05Z", "UTC", "03:04:05"),
        ("2026-11-19T03:04:05Z", "UTC", "19 Nov 03:04:05"),
        ("2025-11-20T03:04:05Z", "UTC", "20 Nov 2025 03:04:05"),
        ("2026-11-20T03:04:05Z", "Europe/Vienna", "04:04:05"),
        # Today there is another day than here.
        ("2026-11-20T03:04:05Z", "America/New_York", "19 Nov 22:04:05"),
        ("2026-11-20T14:03:00+02:00", "UTC", "12:03:00"),
    ],
)
def test_a_time_of_day_has_its_date_unless_that_is_today(text: str, zone: str, words: str) -> None:
    assert zone_named(zone).clock(text, NOON) == words


def test_a_time_in_full_names_its_zone() -> None:
    assert zone_named("Europe/Vienna").whole("2026-11-20T03:04:05Z") == "20 Nov 2026 04:04:05 Europe/Vienna"
    assert UTC_ZONE.whole("2026-11-20T03:04:05Z") == "20 Nov 2026 03:04:05 UTC"


@pytest.mark.parametrize("name", ["", "Vienna", "../etc/passwd", "America", "/etc/localtime", "x" * 5_000, "a\0b"])
def test_a_zone_that_is_not_there_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(ValueError, match="write UTC, or for example Europe/Vienna"):
        zone_named(name)
