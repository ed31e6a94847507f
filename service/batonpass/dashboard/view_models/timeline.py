"""Which member owned a task when: runs as bars on a common time axis, and the gaps between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from batonpass.client import instant
from batonpass.dashboard.words import Names, duration, gap_of, why
from batonpass.zones import UTC_ZONE, Zone

Json = Mapping[str, Any]

WIDTH: Final = 1_000
"""The width of a lane in its own units, whatever the screen."""

COLOURS: Final = 8
THINNEST: Final = 2.0
"""The least width of a bar, so that a gap of milliseconds can be seen in a day."""

STEPS_S: Final = (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 604_800)
TICKS: Final = 6
SPANS: Final[Mapping[str, timedelta]] = {
    "5 min": timedelta(minutes=5),
    "30 min": timedelta(minutes=30),
    "2 h": timedelta(hours=2),
    "12 h": timedelta(hours=12),
    "2 d": timedelta(days=2),
    "14 d": timedelta(days=14),
}


SPAN_USUAL: Final = "30 min"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def stretch(span: str, until: str, now: datetime) -> tuple[str, datetime, datetime]:
    """Return the name of a span and the stretch of time that it covers until an instant (RFC 3339), by default now."""
    name = span if span in SPANS else SPAN_USUAL
    try:
        asked = datetime.fromisoformat(until)
        end = min(max(asked if asked.tzinfo is not None else asked.replace(tzinfo=UTC), EPOCH), now)
    except ValueError:
        end = now
    return name, end - SPANS[name], end


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of a lane: from ``x``, ``width`` wide. ``look`` is a CSS class of colour; ``title`` is its text."""

    x: float
    width: float
    look: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One task."""

    task: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """A stretch of time."""

    begin: datetime
    end: datetime
    zone: Zone

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """About six marks at round times; those are round in UTC, and told in the zone."""
        length = (self.end - self.begin).total_seconds()
        step = next((one for one in STEPS_S if length / one <= TICKS), STEPS_S[-1])
        form = "%H:%M:%S" if step < 60 else "%H:%M" if length <= 86_400 else "%d %b %H:%M"
        first = -(-int(self.begin.timestamp()) // step) * step
        marks = [datetime.fromtimestamp(at, UTC) for at in range(first, int(self.end.timestamp()) + 1, step)]
        return [(self.place(mark), self.zone.local(mark).strftime(form)) for mark in marks]

    def place(self, at: datetime) -> float:
        share = (at - self.begin) / (self.end - self.begin)
        return min(max(share, 0.0), 1.0) * WIDTH


def axis(begin: datetime, end: datetime, zone: Zone = UTC_ZONE) -> Axis:
    """Return an axis of a second at least."""
    return Axis(begin, max(end, begin + timedelta(seconds=1)), zone)


def axis_of(runs: Sequence[Json], now: datetime, zone: Zone = UTC_ZONE) -> Axis:
    """Return an axis that covers all of some runs, with a little space before them."""
    begins = [at for run in runs if (at := _begin(run)) is not None]
    begin = min(begins, default=now - timedelta(minutes=5))
    room = max((now - begin) * 0.03, timedelta(seconds=2))
    return axis(begin - room, now, zone)


def look_of(member: str, order: Sequence[str]) -> str:
    """Return the look of a member, the same in all lanes of a page: its colour, and narrow bars once all are taken."""
    if member not in order:
        return "own-x"
    turn, colour = divmod(order.index(member), COLOURS)
    return f"own-{colour}{' thin' if turn % 2 else ''}"


def lane(task: str, runs: Sequence[Json], along: Axis, order: Sequence[str], names: Names) -> Lane:
    """Return a task's lane from its runs in any order: which member ran it, or had it and did not run it, and gaps."""
    bars: list[Bar] = []
    clock = along.zone.clock
    known = sorted((run for run in runs if _begin(run) is not None), key=lambda run: str(_begin(run)))
    before: datetime | None = None
    for run in known:
        granted, running = instant(run["granted_at"]), instant(run["running_at"])
        stopped = instant(run["stopped_at"]) or along.end
        name = names(run["member"])
        begin = running or stopped
        if run["gap_ms"] is not None and running is not None:
            gap_ms, bound = gap_of(run)
            gap_from = running - timedelta(milliseconds=gap_ms or 0)
            bars += _bar(along, gap_from, running, "gap", f"nobody ran it for {bound}{duration(gap_ms)}")
        elif before is not None and begin > before:
            bars += _bar(along, before, begin, "gap", "nobody ran it")
        elif granted is not None and begin > granted:
            words = f"{name} had it and did not run it yet, {clock(run['granted_at'])}"
            bars += _bar(along, granted, begin, "start", words)
        if running is not None:
            until = f"to {clock(run['stopped_at'])}, {run['ended'] or 'ended'}" if run["stopped_at"] else "until now"
            because = f", {why(run['why'])}" if run["why"] else ""
            words = f"{name} ran it from {clock(run['running_at'])} {until}{because}"
            bars += _bar(along, running, stopped, look_of(run["member"], order), words)
        before = stopped
    if before is not None and before < along.end:
        bars += _bar(along, before, along.end, "gap", "nobody runs it")
    return Lane(task, tuple(bars))


def _bar(along: Axis, begin: datetime, end: datetime, look: str, title: str) -> list[Bar]:
    """Return a bar, unless it lies outside the axis."""
    if end < along.begin or begin > along.end:
        return []
    x = along.place(begin)
    width = max(along.place(end) - x, THINNEST)
    return [Bar(round(min(x, WIDTH - width), 2), round(width, 2), look, title)]


def _begin(run: Json) -> datetime | None:
    return instant(run["granted_at"]) or instant(run["running_at"])
