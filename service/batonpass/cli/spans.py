"""Spans of time as people type them, `30s`, `2m`, `1h30m`, and as they read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import typer

from batonpass.client import instant
from batonpass.core.durations import duration

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def span_ms(text: str) -> int:
    """Return the milliseconds that a text means: `500ms`, `30s`, `2m`, `1h30m`; a bare number is seconds.

    Raises:
        typer.BadParameter: when it means none.
    """
    bare = text.replace(" ", "")
    if re.fullmatch(r"\d+(\.\d+)?", bare):
        return round(float(bare) * 1_000)
    if not bare or SPAN.sub("", bare):
        message = f"{text!r} is no span of time; write for example 30s, 2m or 1h30m"
        raise typer.BadParameter(message)
    return round(sum(float(number) * UNITS_MS[unit] for number, unit in SPAN.findall(bare)))


def span(milliseconds: float | None) -> str:
    """Return a duration; a dash for None."""
    return "-" if milliseconds is None else duration(milliseconds)


def ago(text: str | None, now: datetime | None = None) -> str:
    """Return how long ago something was, or how soon it will be: `4.2 s ago`, `in 3 min`; a dash for None.

    The text stays as it was printed, so it is as exact as the time is.
    """
    at = instant(text)
    if at is None:
        return "-"
    gone_ms = ((now or datetime.now(UTC)) - at).total_seconds() * 1_000
    return f"{span(gone_ms)} ago" if gone_ms >= 0 else f"in {span(-gone_ms)}"
