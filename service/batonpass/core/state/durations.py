"""Durations as people read them: one form for sentences, tables, pages and reports; and spans as people type them."""

import re
from typing import Final

DASH: Final = "\N{EN DASH}"
"""Shown where there is no value."""

SPAN: Final = r"^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h|d))+$"
"""The regular expression of a span of time as people type it: `500ms`, `90s`, `1h30m`. Schemas use it too."""

_PART: Final = re.compile(r"([0-9.]+)(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_IN_TWO: Final = (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1))


def duration(milliseconds: float | None, none: str = DASH) -> str:
    """Return a duration in two units at most: `820 ms`, `4.2 s`, `12 s`, `3 min 20 s`, `2 h`, `1 d 4 h`.

    ``none`` is what to return for None: where that means more than an unknown duration, `never` for example.
    """
    if milliseconds is None:
        return none
    if milliseconds < 999.5:
        return f"{max(round(milliseconds), 0)} ms"
    if milliseconds < 9_950:
        return f"{milliseconds / 1_000:.1f}".removesuffix(".0") + " s"
    seconds = round(milliseconds / 1_000)
    for large, large_s, small, small_s in _IN_TWO:
        if seconds >= large_s:
            # The smaller unit is rounded down: a minute that is not over does not count.
            part = seconds % large_s // small_s
            return f"{seconds // large_s} {large}" + (f" {part} {small}" if part else "")
    return f"{seconds} s"


def parse_span(text: str) -> int:
    """Return the milliseconds of a span of time: the sum of its numbers with their units (``SPAN``).

    Raises:
        ValueError: if the text is not a span of time.
    """
    if not re.match(SPAN, text):
        raise ValueError(f"{text!r} is no span of time")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text)))
