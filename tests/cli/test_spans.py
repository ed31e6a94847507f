"""Spans of time and days are read and shown as people write them."""

from datetime import UTC, date, datetime

import pytest
import typer

from batonpass.cli.exits import Exit, Failure
from batonpass.cli.spans import ago, day_named, span_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("30s", 30_000),
        ("500ms", 500),
        ("2m", 120_000),
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("7", 7_000),
        ("1d", 86_400_000),
        ("1h 5m", 3_900_000),
        ("0s", 0),
    ],
)
def test_spans_are_read(text: str, milliseconds: int) -> None:
    assert span_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "soon", "5 apples", "-3s", "3x", "s", "9" * 400])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="30s"):
        span_ms(text)


def test_days_are_named_by_date_or_from_today() -> None:
    """Without a name it is the last day that is over."""
    assert day_named("2026-11-20") == date(2026, 11, 20)
    assert day_named(None) < day_named("today") <= datetime.now(UTC).date()
    with pytest.raises(Failure, match="'yesterday' is no day; write for example 2026-11-20") as refused:
        day_named("yesterday")
    assert refused.value.code is Exit.BAD_INPUT


def test_instants_are_shown_from_now() -> None:
    now = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
    assert ago("2026-05-04T11:59:48.000Z", now) == "12 s ago"
    assert ago("2026-05-04T12:03:00.000Z", now) == "in 3 min"
    assert ago(None, now) == "-"
