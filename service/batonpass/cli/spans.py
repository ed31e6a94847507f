"""Spans of time and days, as people type them (`30s`, `1h30m`, `2026-11-20`) and as they read them."""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

import typer

from batonpass.cli.exits import Exit, Failure
from batonpass.client import instant
from batonpass.core.state.durations import duration, parse_span

CLOCKS_DIFFER: Final = timedelta(seconds=3)
"""Clocks that differ by less are taken for equal: an answer names no more than the second in which it was sent."""


class Clock:
    """The coordinators' clock, by which they say when something was; this machine's may be set otherwise."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def set_by(self, headers: Mapping[str, str]) -> None:
        """Set the clock by the headers of an answer that has just come."""
        with suppress(ValueError, TypeError):
            ahead = parsedate_to_datetime(headers.get("date", "")) - datetime.now(UTC)
            self._ahead = ahead if abs(ahead) > CLOCKS_DIFFER else timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead


CLOCK: Final = Clock()


def span_ms(text: str) -> int:
    """Return the milliseconds that a text means: `500ms`, `30s`, `2m`, `1h30m`; a bare number is seconds.

    Raises:
        typer.BadParameter: when the text is no span of time.
    """
    bare = text.replace(" ", "")
    if re.fullmatch(r"\d+(\.\d+)?", bare):
        bare += "s"
    try:
        return parse_span(bare)
    except ValueError:
        message = f"{text!r} is no span of time; write for example 30s, 2m or 1h30m"
        raise typer.BadParameter(message) from None


def day_named(text: str | None) -> date:
    """Return the day that a text names, in UTC: `2026-11-20`, or `today`; None: yesterday, the last that is over.

    Raises:
        Failure: when it names no day.
    """
    today = datetime.now(UTC).date()
    if text is None:
        return today - timedelta(days=1)
    if text == "today":
        return today
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Failure(Exit.BAD_INPUT, f"--day: {text!r} is no day; write for example 2026-11-20.") from None


def ago(text: str | None, now: datetime | None = None) -> str:
    """Return how long ago something was, or how soon it will be: `4.2 s ago`, `in 3 min`; a dash for None.

    A printed text is not updated, so it is as exact as the time is.
    """
    at = instant(text)
    if at is None:
        return "-"
    gone_ms = ((now or CLOCK.now()) - at).total_seconds() * 1_000
    return f"{duration(gone_ms)} ago" if gone_ms >= 0 else f"in {duration(-gone_ms)}"
