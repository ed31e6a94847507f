"""Gaps, lag, moves and commands along one axis, and the stretch of time that an address names."""

from datetime import timedelta

import pytest
from tests.dashboard.fleet import NOW, Fleet, at, event

from batonpass.dashboard.view_models.timeline import EPOCH, SPAN_USUAL, SPANS, axis, stretch
from batonpass.dashboard.view_models.trend import GAPS, HEIGHT, LAGS, MOVES, said, trend
from batonpass.dashboard.words import Names

ALONG = axis(NOW - timedelta(seconds=100), NOW)


def test_gaps_lag_and_moves_have_a_band_each_and_commands_go_through_all() -> None:
    events = [
        *Fleet.of(8, 40).events,
        event(6, "generation", -30, moves=4, triggers=["join"]),
        event(7, "generation", -20, moves=0, triggers=["pin"]),
        event(8, "paused", -10, scope="all", reason="an upgrade"),
        event(9, "paused", -1_000, scope="all"),
    ]
    lags = [{"at": at(-60), "behind": 0}, {"at": at(-20), "behind": 12_000}]
    found = trend(events, lags, ALONG, Names())
    assert [one.what for one in found] == [*("lag sample", "lag sample", "gap", "gap", "generation", "command")]
    level, behind, short, long, moved, asked = found
    assert (short.x, moved.x, asked.x) == (500.0, 700.0, 900.0)
    assert short.height < long.height <= GAPS.foot - GAPS.top
    assert short.y + short.height == pytest.approx(GAPS.foot, abs=0.2)
    assert (moved.y + moved.height, moved.y > LAGS.foot) == (HEIGHT, True)
    assert (asked.y, asked.height) == (0, HEIGHT)
    assert asked.title.endswith("03:03:55 An operator paused all moves: an upgrade.")
    assert (level.x, level.width, level.height) == (0, 400, 0)
    assert (behind.x, behind.width, behind.y + behind.height) == (400, 400, LAGS.foot)
    assert behind.title.endswith("03:03:45 12,000 records behind")
    assert said(found) == "2 lag samples, 2 gaps, 1 generation, 1 command"
    assert said([]) == "nothing"


def test_what_is_beyond_the_scale_is_as_high_as_there_is_room() -> None:
    gap = event(6, "takeover-done", -10, task="orders_0", gap_ms=10**9, warm=False)
    found = trend([gap, event(7, "generation", -5, moves=10**7)], [{"at": at(-5), "behind": 10**12}], ALONG, Names())
    assert [one.height for one in found] == [band.foot - band.top for band in (LAGS, GAPS, MOVES)]


@pytest.mark.parametrize(
    ("span", "until", "found"),
    [
        ("2 h", at(-3_600), ("2 h", -3 * 3_600, -3_600)),
        ("2 h", "2026-11-20T02:04:05", ("2 h", -3 * 3_600, -3_600)),
        ("", "", (SPAN_USUAL, -1_800, 0)),
        ("nonsense", "never", (SPAN_USUAL, -1_800, 0)),
        # The future is not known.
        ("5 min", at(60), ("5 min", -300, 0)),
        *(
            ("5 min", until, ("5 min", (EPOCH - NOW).total_seconds() - 300, (EPOCH - NOW).total_seconds()))
            for until in ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "0001-01-01")
        ),
    ],
)
def test_an_address_names_a_stretch_of_time(span: str, until: str, found: tuple[str, float, float]) -> None:
    name, begin, end = found
    assert stretch(span, until, NOW) == (name, NOW + timedelta(seconds=begin), NOW + timedelta(seconds=end))
    assert name in SPANS
