"""The plots of a report, as plotly takes them: plain values, with the page's own names for colours.

Whatever came from users is escaped here: plotly reads markup in the texts that it draws.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import log10
from typing import Any, Final

from batonpass.audit.findings import (
    DowntimeCause,
    Finding,
    GenerationPoint,
    GroupDay,
    Outcome,
    OwnershipInterval,
    Recommendation,
    Severity,
    WarmupPoint,
)
from batonpass.audit.report_words import instant, number, size, span
from batonpass.audit.verdict import amount

Figure = dict[str, Any]
HOUR_MS: Final = 3_600_000
TASKS_SHOWN: Final = 60
"""How many tasks a timeline has rows for; those to which most happened come first."""

MEMBERS_NAMED: Final = 12
"""Up to how many members a timeline has a legend."""

COLOURS: Final = 8
GROUPS_STACKED: Final = 6
CAUSES: Final = tuple(one.value for one in DowntimeCause)
HATCHED: Final = {"granted": ".", "restoring": "/", "failed": "x", "lost": "x", "": "."}
UNKNOWN: Final = "not known"
TICKS_S: Final = (0.01, 0.1, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)
"""Where an axis of durations has its marks."""

TENS: Final = tuple(10**power for power in range(13))

WARMUP_OUTCOMES: Final = (
    (("promoted", "standby"), "put to use", "circle", "--c0"),
    (("open",), "under way", "circle-open", "--quiet"),
    (("dropped",), "wasted", "x", "--bad"),
)
"""What came of warmups, in words and as marks."""


def colour(index: int) -> str:
    """Return the name of the page's n-th colour."""
    return f"--c{index % COLOURS}"


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with a title."""
    return {
        "title": {"text": title},
        "automargin": True,
        "ticklabelstandoff": 4,
        "gridcolor": "--line",
        "zerolinecolor": "--line",
    } | more


def figure(data: list[dict[str, Any]], x: dict[str, Any], y: dict[str, Any], height: int = 360, **more: Any) -> Figure:
    """Return a plot."""
    layout = {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 16, "b": 48},
        "legend": {"orientation": "h", "x": 0, "y": -92 / height, "yanchor": "top"},
        "hovermode": "closest",
        "xaxis": x,
        "yaxis": y,
    }
    return {"data": data, "layout": layout | more}


def downtime(groups: Sequence[GroupDay]) -> Figure | None:
    """Return how long tasks were run by nobody, by cause; the groups with most of it each have a part of the bars."""
    totals = {one.group: sum(_total(one, cause) for cause in CAUSES) for one in groups}
    worst = sorted((name for name in totals if totals[name]), key=lambda name: (-totals[name], name))
    if not worst:
        return None
    of = {one.group: one for one in groups}
    named = worst[:GROUPS_STACKED]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": escape(name),
            "y": list(CAUSES),
            "x": [_total(of[name], cause) / 1_000 for cause in CAUSES],
            "customdata": [[escape(name), span(_total(of[name], cause)), _count(of[name], cause)] for cause in CAUSES],
            "hovertemplate": "%{customdata[0]}: %{customdata[1]} in %{customdata[2]}<extra></extra>",
            "marker": {"color": colour(index)},
        }
        for index, name in enumerate(named)
    ]
    others = worst[GROUPS_STACKED:]
    if others:
        sums = [sum(_total(of[name], cause) for name in others) for cause in CAUSES]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": amount(len(others), "other group"),
                "y": list(CAUSES),
                "x": [total / 1_000 for total in sums],
                "customdata": [[span(total)] for total in sums],
                "hovertemplate": "other groups: %{customdata[0]}<extra></extra>",
                "marker": {"color": "--quiet"},
            }
        )
    rows = axis("", autorange="reversed", categoryorder="array", categoryarray=list(CAUSES))
    return figure(data, axis("seconds that nobody ran a task"), rows, 320, barmode="stack")


def _total(group: GroupDay, cause: str) -> float:
    return float(group.downtime_by_cause.get(cause, {}).get("total_ms", 0.0) or 0.0)


def _count(group: GroupDay, cause: str) -> str:
    count = int(group.downtime_by_cause.get(cause, {}).get("count", 0) or 0)
    return "1 case" if count == 1 else f"{count:,} cases"


def moves(points: Sequence[GenerationPoint]) -> Figure | None:
    """Return the moves of each generation beside the fewest that would have done; a stem is what was too much."""
    if not points:
        return None
    ordered = sorted(points, key=lambda one: (one.at_ms, one.group, one.number))
    at = [instant(one.at_ms) for one in ordered]
    over = [one for one in ordered if one.moves > one.lower_bound]
    stems: dict[str, list[Any]] = {"x": [], "y": []}
    for one in over:
        stems["x"] += [instant(one.at_ms)] * 2 + [None]
        stems["y"] += [one.lower_bound, one.moves, None]
    told = [[escape(one.group), one.number, one.moves, one.lower_bound] for one in ordered]
    hover = "%{customdata[0]}, generation %{customdata[1]}: %{customdata[2]} moves, at least %{customdata[3]}<extra></extra>"
    data: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "name": "more than needed", "line": {"color": "--bad", "width": 2}}
        | {"hoverinfo": "skip", "showlegend": bool(over)}
        | stems,
        {"type": "scatter", "mode": "markers", "name": "moves", "x": at, "y": [one.moves for one in ordered]}
        | {"customdata": told, "hovertemplate": hover, "marker": {"color": colour(0), "size": 8}},
        {"type": "scatter", "mode": "markers", "name": "fewest possible", "x": at}
        | {"y": [one.lower_bound for one in ordered], "customdata": told, "hovertemplate": hover}
        | {"marker": {"color": "--ink", "size": 10, "symbol": "line-ew-open", "line": {"width": 2, "color": "--ink"}}},
    ]
    return figure(data, axis("", type="date"), axis("tasks moved", rangemode="tozero"))


def warmups(points: Sequence[WarmupPoint]) -> Figure | None:
    """Return how long warmups took by how much they had to restore, both on scales of tens."""
    known = [one for one in points if one.lag is not None]
    if not known:
        return None
    data = []
    for outcomes, name, symbol, shade in WARMUP_OUTCOMES:
        chosen = [one for one in known if one.outcome in outcomes]
        if not chosen:
            continue
        told = [
            [
                escape(one.group),
                escape(one.task),
                escape(one.member),
                number(one.lag),
                span(one.duration_ms),
                one.outcome,
            ]
            for one in chosen
        ]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "showlegend": True,
                # A scale of tens has no place for nothing.
                "x": [max(one.lag or 0, 1) for one in chosen],
                "y": [max(one.duration_ms, 1) / 1_000 for one in chosen],
                "customdata": told,
                "hovertemplate": "%{customdata[1]} of %{customdata[0]} on %{customdata[2]}: %{customdata[3]} records in"
                " %{customdata[4]}, %{customdata[5]}<extra></extra>",
                "marker": {"color": shade, "size": 8, "symbol": symbol, "opacity": 0.75},
            }
        )
    lag = axis("records to restore", type="log", tickformat="~s", range=_around([one.lag or 1 for one in known], TENS))
    marks = {"tickvals": TICKS_S, "ticktext": [span(one * 1_000) for one in TICKS_S]}
    took = _around([one.duration_ms / 1_000 for one in known], TICKS_S)
    return figure(data, lag, axis("took", type="log", range=took, **marks))


def _around(values: Sequence[float], marks: Sequence[float]) -> list[float]:
    """Return the range of a scale of tens, from the last mark before all values to the first one after them."""
    low = max((one for one in marks if one < min(values)), default=marks[0])
    high = min((one for one in marks if one > max(values)), default=marks[-1])
    return [log10(low), log10(high)]


def frontier(advice: Recommendation) -> Figure | None:
    """Return the outcomes that were tried: downtime against what it costs, and those that nothing else beats."""
    tried = [*advice.grid, advice.present, advice.recommended]
    by_bytes = all(one.bytes is not None for one in tried)
    if len(tried) < 3:
        return None

    def cost(one: Outcome) -> float:
        return float(one.bytes or 0) / 1e9 if by_bytes else float(one.moves)

    best = unbeaten(tried, by_bytes=by_bytes)
    data = [
        _dots("tried", tried, cost, {"color": "--quiet", "size": 7}),
        _dots("nothing beats these", best, cost, {"color": colour(0), "size": 8}) | {"mode": "lines+markers"},
        _dots("as it was", [advice.present], cost, {"color": "--ink", "size": 14, "symbol": "square-open"}),
        _dots("recommended", [advice.recommended], cost, {"color": "--good", "size": 15, "symbol": "star"}),
    ]
    across = axis("GB copied" if by_bytes else "moves", rangemode="tozero")
    return figure(data, across, axis("seconds of downtime", rangemode="tozero"))


def unbeaten(tried: Iterable[Outcome], *, by_bytes: bool) -> list[Outcome]:
    """Return the outcomes than which none has both less downtime and less cost, from the cheapest to the dearest."""
    found: list[Outcome] = []
    for one in sorted(tried, key=lambda o: ((o.bytes or 0) if by_bytes else o.moves, o.downtime_ms)):
        if not found or one.downtime_ms < found[-1].downtime_ms:
            found.append(one)
    return found


def _dots(name: str, outcomes: Sequence[Outcome], cost: Any, marker: dict[str, Any]) -> dict[str, Any]:
    told = [
        ["<br>".join(_settings(one.settings)), span(one.downtime_ms), number(one.moves), size(one.bytes)]
        for one in outcomes
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [cost(one) for one in outcomes],
        "y": [one.downtime_ms / 1_000 for one in outcomes],
        "customdata": told,
        "hovertemplate": "%{customdata[0]}<br>downtime %{customdata[1]}, %{customdata[2]} moves,"
        " %{customdata[3]} copied<extra></extra>",
        "marker": marker,
        "line": {"color": marker["color"]},
    }


def _settings(settings: Mapping[str, object]) -> list[str]:
    return [f"{escape(str(name))} {escape(str(value))}" for name, value in sorted(settings.items())]


def timeline(
    intervals: Sequence[OwnershipInterval], findings: Sequence[Finding], begin_ms: int, read_ms: int | None = None
) -> tuple[Figure | None, int, int]:
    """Return who had which task in the hour from ``begin_ms`` on, how many tasks are shown, and how many there were.

    Where there is no bar nobody had the task; two bars above one another are two owners at once. A red
    diamond is where a law was broken. Of a day under way nothing is drawn beyond ``read_ms``, until when it was read.
    """
    end_ms = begin_ms + HOUR_MS
    known_ms = end_ms if read_ms is None else min(read_ms, end_ms)
    within = [one for one in intervals if one.from_ms < end_ms and (one.to_ms is None or one.to_ms > begin_ms)]
    broken = [one for one in findings if one.severity is Severity.FATAL and one.task is not None]
    marks = [(one, at) for one in broken for at in one.at[-1:] if begin_ms <= at < end_ms]
    if not within:
        return None, 0, 0
    happened = Counter(one.task for one in within)
    marked = {one.task for one, _ in marks}
    tasks = sorted(happened, key=lambda task: (task not in marked, -happened[task], _in_order(task)))[:TASKS_SHOWN]
    rows = sorted(tasks, key=_in_order)
    data = _bars([one for one in within if one.task in set(rows)], begin_ms, known_ms)
    shown = [(one, at) for one, at in marks if one.task in set(rows)]
    if shown:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "law broken",
                "x": [instant(at) for _, at in shown],
                "y": [escape(str(one.task)) for one, _ in shown],
                "customdata": [[escape(one.law), instant(at)[11:]] for one, at in shown],
                "hovertemplate": "%{customdata[0]} at %{customdata[1]}<extra></extra>",
                "marker": {"color": "--bad", "size": 13, "symbol": "diamond", "line": {"color": "--paper", "width": 2}},
            }
        )
    names = [escape(task) for task in rows]
    down = axis("", type="category", autorange="reversed", categoryorder="array", categoryarray=names, showgrid=False)
    across = axis("", type="date", range=[instant(begin_ms), instant(end_ms)])
    height = 110 + 20 * max(len(rows), 5)
    made = figure(data, across, down | {"dtick": 1}, height, barmode="overlay", bargap=0.25)
    return made, len(rows), len(happened)


def _bars(intervals: Sequence[OwnershipInterval], begin_ms: int, end_ms: int) -> list[dict[str, Any]]:
    members = sorted({one.member for one in intervals})
    has_legend = len(members) <= MEMBERS_NAMED
    parts: dict[tuple[bool, str, str], list[OwnershipInterval]] = defaultdict(list)
    second = clashing(intervals)
    for one in intervals:
        parts[one in second, one.member, one.state].append(one)
    data, named = [], set()
    for is_second, member, state in sorted(parts, key=lambda part: (part[0], part[1], part[2] != "running", part[2])):
        chosen = parts[is_second, member, state]
        clipped = [(max(one.from_ms, begin_ms), min(one.to_ms or end_ms, end_ms)) for one in chosen]
        pattern = {"shape": HATCHED.get(state, ""), "fillmode": "overlay", "solidity": 0.35, "size": 6}
        line = {"color": "--paper", "width": 1}
        trace = {
            "type": "bar",
            "orientation": "h",
            "name": escape(member),
            "legendgroup": escape(member),
            "showlegend": has_legend and member not in named,
            "base": [instant(begin) for begin, _ in clipped],
            "x": [end - begin for begin, end in clipped],
            "y": [escape(one.task) for one in chosen],
            "customdata": [
                [escape(member), escape(state or UNKNOWN), instant(one.from_ms)[11:], _until(one)] for one in chosen
            ],
            "hovertemplate": "%{y} on %{customdata[0]}: %{customdata[1]} from %{customdata[2]} %{customdata[3]}"
            "<extra></extra>",
            "marker": {"color": colour(members.index(member)), "line": line, "pattern": pattern},
            # The second owner's bar covers the lower half of the first one's.
            "width": 0.4 if is_second else 0.8,
            "offset": 0.0 if is_second else -0.4,
        }
        named.add(member)
        data.append(trace)
    return data


def clashing(intervals: Iterable[OwnershipInterval]) -> frozenset[OwnershipInterval]:
    """Return the intervals that begin while another member has the task."""
    found: set[OwnershipInterval] = set()
    latest: dict[str, tuple[float, str]] = {}
    for one in sorted(intervals, key=lambda o: (o.task, o.from_ms, o.member)):
        until, owner = latest.get(one.task, (0.0, ""))
        if one.from_ms < until and one.member != owner:
            found.add(one)
        ends = float("inf") if one.to_ms is None else one.to_ms
        if ends >= until:
            latest[one.task] = (ends, one.member)
    return frozenset(found)


def _until(one: OwnershipInterval) -> str:
    return "until the end of what was read" if one.to_ms is None else f"to {instant(one.to_ms)[11:]}"


def _in_order(task: str) -> tuple[str, int, str]:
    part, _, partition = task.rpartition("_")
    return (part, int(partition), task) if partition.isdecimal() else (task, -1, task)
