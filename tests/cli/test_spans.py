"""Spans of time are read and shown as people write them."""

from datetime import UTC, datetime

import pytest
import typer

from batonpass.cli.spans import ago, span, span_ms


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
    """Units from milliseconds to days, several of them, and bare seconds."""
    assert span_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "soon", "5 apples", "-3s", "3x", "s"])
def test_what_is_no_span_is_refused(text: str) -> None:
    """With an example of one."""
    with pytest.raises(typer.BadParameter, match="30s"):
        span_ms(text)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (820, "820 ms"),
        (12_000, "12 s"),
        (200_000, "3 min 20 s"),
        (3_600_000, "1 h"),
        (90_061_000, "1 d 1 h"),
    ],
)
def test_spans_are_shown(milliseconds: int | None, text: str) -> None:
    """In two units at most."""
    assert span(milliseconds) == text


def test_instants_are_shown_from_now() -> None:
    """How long ago, or how soon."""
    now = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
    assert ago("2026-05-04T11:59:48.000Z", now) == "12 s ago"
    assert ago("2026-05-04T12:03:00.000Z", now) == "in 3 min"
    assert ago(None, now) == "-"
