"""What has happened, along one axis: gaps, how far copies were behind, what moved, and what operators asked for."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from batonpass.client import instant
from batonpass.dashboard.view_models.events import event_line
from batonpass.dashboard.view_models.gaps import KINDS, gaps_of
from batonpass.dashboard.view_models.timeline import THINNEST, Axis
from batonpass.dashboard.words import Names, count

Json = Mapping[str, Any]

HEIGHT: Final = 100
SAMPLE: Final = timedelta(minutes=1)
"""How much time a sample of the lag stands for at least."""


class Band(NamedTuple):
    """Where the bars of one kind stand, and what is as high as there is room, on a logarithmic scale."""

    top: float
    foot: float
    most: float


GAPS: Final = Band(0, 45, 1_000_000)
LAGS: Final = Band(50, 75, 1_000_000_000)
MOVES: Final = Band(80, HEIGHT, 10_000)
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
    """One bar: what it shows, in which tone, where it begins from the left and from the top, and what it says."""

    what: str
    tone: str
    x: float
    y: float
    width: float
    height: float
    title: str


def trend(events: Sequence[Json], lags: Sequence[Json], along: Axis, names: Names) -> list[Mark]:
    """Return the marks of some events, and of the lags of some minutes."""
    gaps = {gap.event["position"]: gap for gap in gaps_of(events)}
    found = _of_lags(lags, along)
    for event in events:
        at = instant(event["at"])
        if at is None or not along.begin <= at <= along.end:
            continue
        moves = event["body"].get("moves", 0) if event["type"] == "generation" else 0
        gap = gaps.get(event["position"])
        title = f"{along.zone.clock(event['at'])} {event_line(event, names).words}"
        x, width = along.place(at), 2 * THINNEST
        if event["type"] in COMMANDS:
            found.append(Mark("command", "warm", round(x, 1), 0, width, HEIGHT, title))
        elif gap is not None and gap.gap_ms:
            found.append(_bar("gap", KINDS[gap.kind][0], GAPS, gap.gap_ms, (x, width, title)))
        elif moves:
            found.append(_bar("generation", "move", MOVES, moves, (x, width, title)))
    return found


def _of_lags(lags: Sequence[Json], along: Axis) -> list[Mark]:
    """Return a bar for each sample, which begins where the one before it ends."""
    found, last = [], along.begin
    for one in lags:
        at, behind = datetime.fromisoformat(one["at"]), one["behind"]
        x = along.place(max(last, at - 2 * SAMPLE))
        title = f"{along.zone.clock(one['at'])} {count(behind, 'record')} behind"
        found.append(_bar("lag sample", "behind", LAGS, behind, (x, along.place(at) - x, title)))
        last = at
    return found


def _bar(what: str, tone: str, band: Band, value: float, place: tuple[float, float, str]) -> Mark:
    x, width, title = place
    share = min(math.log10(1 + value) / math.log10(1 + band.most), 1.0)
    height = share * (band.foot - band.top)
    return Mark(what, tone, round(x, 1), round(band.foot - height, 1), round(width, 1), round(height, 1), title)


def said(marks: Iterable[Mark]) -> str:
    """Return what a picture shows, for those who do not see it."""
    return ", ".join(count(amount, what) for what, amount in Counter(one.what for one in marks).items()) or "nothing"
