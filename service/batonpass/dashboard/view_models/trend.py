"""What has happened, along one axis: how long nobody ran a task, how much moved, and what operators asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batonpass.client import instant
from batonpass.dashboard.view_models.events import event_line
from batonpass.dashboard.view_models.gaps import gaps_of
from batonpass.dashboard.view_models.timeline import THINNEST, Axis
from batonpass.dashboard.words import Names

Json = Mapping[str, Any]

HEIGHT: Final = 100
GAPS_END: Final = 60
"""Gaps rise to the top from here, moves from the bottom to here at most."""

LONGEST_MS: Final = 1_000_000
MOST_MOVES: Final = 10_000
COMMANDS: Final = frozenset(
    {
        "paused",
        "resumed",
        "drain-started",
        "drain-cancelled",
        "instance-kept-out",
        "instance-let-in",
        "task-pinned",
        "task-unpinned",
        "task-unparked",
        "member-trusted",
        "config-changed",
        "topology-changed",
    }
)
"""Events that operators asked for."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark: where it begins from the left and from the top, how large it is, and what it says."""

    look: str
    x: float
    y: float
    width: float
    height: float
    title: str


def trend(events: Sequence[Json], along: Axis, names: Names) -> list[Mark]:
    """Return the marks of some events: gaps and moves as bars on logarithmic scales, commands as lines."""
    gaps = {gap.position: gap.gap_ms for gap in gaps_of(events)}
    found = []
    for event in events:
        at = instant(event["at"])
        if at is None or not along.begin <= at <= along.end:
            continue
        moves = event["body"].get("moves", 0) if event["type"] == "generation" else 0
        gap_ms = gaps.get(event["position"])
        if event["type"] in COMMANDS:
            look, y, height = "asked", 0.0, float(HEIGHT)
        elif gap_ms:
            height = _share(gap_ms, LONGEST_MS) * GAPS_END
            look, y = "gap", GAPS_END - height
        elif moves:
            height = _share(moves, MOST_MOVES) * (HEIGHT - GAPS_END)
            look, y = "moved", HEIGHT - height
        else:
            continue
        words = event_line(event, names).words
        title = f"{along.zone.clock(event['at'])} {words}"
        found.append(Mark(look, round(along.place(at), 1), round(y, 1), 2 * THINNEST, round(height, 1), title))
    return found


def _share(value: float, most: float) -> float:
    return min(math.log10(1 + value) / math.log10(1 + most), 1.0)
