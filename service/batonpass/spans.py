"""Durations of a minute and more as people read them; what is shorter each place shows as finely as it needs it."""

from __future__ import annotations

MINUTE_S = 60
_HOUR_S = 3_600
_DAY_S = 86_400


def in_two_units(seconds: int, *, minute: str = "m") -> str:
    """Return a duration in two units at most, the smaller one rounded down: `3 m 20 s`, `2 h`, `1 d 4 h`.

    ``seconds`` is `MINUTE_S` or more; ``minute`` is how minutes are written.
    """
    size, large, part, small = MINUTE_S, minute, 1, "s"
    if seconds >= _DAY_S:
        size, large, part, small = _DAY_S, "d", _HOUR_S, "h"
    elif seconds >= _HOUR_S:
        size, large, part, small = _HOUR_S, "h", MINUTE_S, minute
    whole, rest = divmod(seconds, size)
    return f"{whole} {large} {rest // part} {small}" if rest // part else f"{whole} {large}"
