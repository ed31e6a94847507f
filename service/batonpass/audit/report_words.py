"""Figures of a report as people read them: spans, shares, sizes, instants."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Final

from batonpass.core.durations import duration

DASH: Final = "–"  # noqa: RUF001 - as typographers write that nothing is known
SIZES: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def span(milliseconds: float | None) -> str:
    """Return a duration; a dash for None."""
    return DASH if milliseconds is None else duration(milliseconds)


def share(value: float | None) -> str:
    """Return a share as a percentage with as many nines as it has: `99.9 %`, `99.9994 %`; 1 alone is `100 %`."""
    if value is None:
        return DASH
    if value >= 1:
        return "100 %"
    for digits in range(1, 8):
        said = f"{value * 100:.{digits}f}"
        # Nothing that is not whole is ever shown as whole, and two figures after the nines tell enough.
        if float(said) < 100 and len(said.partition(".")[2].lstrip("9")) >= 1:
            return f"{said.removesuffix('0') if said.endswith('90') else said} %"
    return "> 99.9999999 %"


def size(count: float | None) -> str:
    """Return a number of bytes: `48.3 GB`."""
    if count is None:
        return DASH
    number = float(count)
    for unit in SIZES:
        if number < 1_000 or unit == SIZES[-1]:
            return f"{number:.3g} {unit}"
        number /= 1_000
    return DASH


def number(value: float | None) -> str:
    """Return a number: whole ones with separators, others with three figures."""
    if value is None:
        return DASH
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:.3g}"


def clock(at_ms: int) -> str:
    """Return the time of day of an instant, in UTC."""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return f"{at:%H:%M:%S}" + (f".{at.microsecond // 1_000:03}" if at.microsecond else "")


def instant(at_ms: int) -> str:
    """Return an instant, in UTC, as plots and sentences have it."""
    return f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def long_day(day: date) -> str:
    """Return a day in words: `Friday, 20 November 2026`."""
    return f"{day:%A}, {day.day} {day:%B %Y}"
