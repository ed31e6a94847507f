"""One audit as one file of HTML that needs nothing else: no network, no other file, no server.

It has the verdict in words first, then what was found, by law, with what to do; then what to change and what it cost
(``report.html.j2``). Plots are drawn by plotly's own script, which the file carries; their values are plain, with the
page's own names for colours. Everything that came from users is escaped, in plots too: plotly reads markup in the texts
that it draws.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from functools import partial
from html import escape
from importlib.resources import files
from math import log10
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from rich.filesize import decimal

from batonpass.audit.findings import (
    AuditResult,
    DowntimeCause,
    Finding,
    GroupDay,
    Outcome,
    Recommendation,
    Severity,
    headline,
    readable,
    time_of,
)
from batonpass.audit.morning import Morning, all_over, clock, to_begin_with
from batonpass.audit.plan import HOUR_MS
from batonpass.audit.rows import Generation, Interval, Of, Warmup
from batonpass.audit_words import MEASURES, advised, amount, measured, number, share
from batonpass.core.state.durations import DASH, duration
from batonpass.core.state.ids import subtopology_sort_key
from batonpass.laws import TITLES


def long_day(day: date) -> str:
    """Return a day in words: `Friday, 20 November 2026`."""
    return f"{day:%A}, {day.day} {day:%B %Y}"


GROUPS_PICTURED: Final = 12
"""How many groups have a timeline and a frontier of their own: those with the most downtime."""

EVIDENCE_SHOWN: Final = 8

COSTS: Final = (
    *("availability", "downtime_ms", "longest_unowned_ms", "handovers", "failovers", "cold_starts", "members_max"),
    *("tasks_max", "records"),
)
WORK: Final = (
    *("moves", "lower_bound", "warmups", "wasted_warmups", "probes", "futile_probes", "flapping_members"),
    *("balance_mean", "balance_worst", "load_imbalance", "hot_ms", "load_moves", "generations"),
)
"""The measures in the two tables of all groups."""


def coded(text: str) -> Markup:
    """Return a text of ours with what is between backticks as code."""
    return Markup(re.sub(r"`(.+?)`", lambda one: f"<code>{_whole(one[1])}</code>", escape(text)))  # noqa: S704 - escaped


def unbroken(command: str) -> Markup:
    """Return a command of which no line ends within a word, as it could behind a hyphen."""
    return Markup(_whole(escape(command)))  # noqa: S704 - escaped


def _whole(escaped: str) -> str:
    return re.sub(r"(\S*-\S*)", r'<span class="word">\1</span>', escaped)


def as_html(result: AuditResult) -> str:
    """Return the report of an audit, which calls members by their names where they have some."""
    result = readable(result)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "duration": duration, "number": number, "clock": partial(clock, day=result.day), "measured": measured, "coded": coded,
        "unbroken": unbroken,
    }  # fmt: skip
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    template = (files("batonpass.audit") / "report.html.j2").read_text(encoding="utf-8")
    shown: dict[str, Any] = {}
    context = _context(result, shown)
    return environment.from_string(template).render(
        context,
        figures=shown,
        plotly=Markup(get_plotlyjs()),  # noqa: S704 - the library's own script
    )


def _context(result: AuditResult, shown: dict[str, Any]) -> dict[str, Any]:
    """Return the values for the template; figures are put into ``shown``, by their places in the page."""
    morning = Morning(result)
    found, not_run = morning.found(), morning.not_run()
    fatal = Counter(one.group for one in result.findings if one.severity is Severity.FATAL)
    ranked = sorted(
        result.groups,
        # How long one was down that was not read whole is not known; it comes first.
        key=lambda one: (one.group not in result.unread, -_of(one, "downtime_ms"), -fatal[one.group], one.group),
    )
    pictures = result.pictures
    drawn = {
        "downtime": downtime_figure(result.groups),
        "moves": moves_figure(pictures.generations),
        "warmups": warmups_figure(pictures.warmups, morning.end_ms),
    }
    shown |= {place: made for place, made in drawn.items() if made is not None}
    return {
        "day": long_day(result.day),
        "so_far": None if result.so_far_ms is None else clock(result.so_far_ms)[:5],
        "iso_day": result.day.isoformat(),
        "headline": " ".join(filter(None, (headline(result), not_run))),
        "verdict": "bad" if result.fatal or not_run else "good" if result.groups else "quiet",
        "over": all_over(found),
        "to_begin_with": to_begin_with(found),
        "notes": morning.notes(),
        "tiles": _tiles([one for one in result.groups if one.group not in result.unread]),
        "found": found,
        "trend": _trend(result),
        "advice": advised({one.group: asdict(one) for one in result.recommendations}),
        "tried": {one.group: amount(len(one.grid), "set") for one in result.recommendations},
        "words": MEASURES,
        "unknown_lags": sum(1 for _, one in pictures.warmups if one.lag is None),
        "pictured": _pictured(result, ranked, shown),
        "groups_more": max(0, len(ranked) - GROUPS_PICTURED),
        "ranked": ranked,
        "pictured_most": GROUPS_PICTURED,
        "causes": CAUSES,
        "fatal": fatal,
        "tables": (COSTS, WORK),
        "evidence": EVIDENCE_SHOWN,
        "result": result,
        "records": amount(result.records, "record"),
        "places": frozenset(shown),
        "began": time_of(result.started_at_ms)[:19],
        "took": duration(result.finished_at_ms - result.started_at_ms),
    }


def _of(one: GroupDay, name: str) -> float:
    return float(one.measures.get(name) or 0)


def _least_available(groups: Sequence[GroupDay]) -> float | None:
    known = (one.measures.get("availability") for one in groups)
    return min((one for one in known if one is not None), default=None)


def _tiles(groups: Sequence[GroupDay]) -> list[tuple[str, str]]:
    """Return the figures of the day, summed over the groups that were read whole; unknown without any."""
    longest = [_of(one, "longest_unowned_ms") for one in groups]
    total = {name: sum(_of(one, name) for one in groups) for name in (*COSTS, *WORK)}
    tiles = [
        ("least available group", share(_least_available(groups))),
        ("downtime of all tasks", duration(total["downtime_ms"])),
        ("longest without an owner", duration(max(longest, default=None))),
        ("handovers", number(total["handovers"])),
        ("failovers", number(total["failovers"])),
        ("cold starts", number(total["cold_starts"])),
        ("moves beyond the fewest", number(max(0, total["moves"] - total["lower_bound"]))),
        ("wasted warmups", number(total["wasted_warmups"])),
    ]
    return [(name, value if groups else DASH) for name, value in tiles]


def _trend(result: AuditResult) -> list[tuple[str, str]]:
    """Return the availability of the least available group, by day, the audited day last; empty without another day."""
    if not result.before.availability:
        return []
    today = _least_available(result.groups)
    days = dict(result.before.availability) | ({} if today is None else {result.day: today})
    return [(day.isoformat(), share(value)) for day, value in sorted(days.items())]


def _pictured(result: AuditResult, ranked: Sequence[GroupDay], shown: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is shown of the groups that have pictures of their own."""
    intervals = defaultdict(list)
    for group, interval in result.pictures.ownership:
        intervals[group].append(interval)
    tried = {one.group: one for one in result.recommendations}
    made = []
    for place, one in enumerate(ranked[:GROUPS_PICTURED]):
        begin_ms, advice = result.pictures.worst_hour_ms.get(one.group), tried.get(one.group)
        part: dict[str, Any] = {"group": one.group, "number": place, "timeline": None, "frontier": None}
        if begin_ms is not None:
            of_group = [finding for finding in result.findings if finding.group == one.group]
            drawn, tasks, there = timeline_figure(intervals[one.group], of_group, begin_ms, result.so_far_ms)
            if drawn is not None:
                part |= {"timeline": f"timeline-{place}", "tasks": tasks, "tasks_there": there, "hour": begin_ms}
                shown[part["timeline"]] = drawn
        if advice is not None and (drawn := frontier_figure(advice)) is not None:
            part["frontier"] = f"frontier-{place}"
            shown[part["frontier"]] = drawn
        if part["timeline"] or part["frontier"]:
            made.append(part)
    return made


Figure = dict[str, Any]
TASKS_SHOWN: Final = 60
"""How many tasks a timeline has rows for; those to which most happened come first."""

MEMBERS_NAMED: Final = 12
"""Up to how many members a timeline has a legend."""

COLOURS: Final = 8
GROUPS_STACKED: Final = 6
CAUSES: Final = tuple(one.value for one in DowntimeCause)
WARMUP_OUTCOMES: Final = (
    (("promoted", "standby"), "put to use", "circle", "--c0"),
    (("open",), "under way", "circle-open", "--quiet"),
    (("dropped",), "wasted", "x", "--bad"),
)
"""The outcomes of warmups, in words and as marks."""


def colour(index: int) -> str:
    """Return the name of the page's n-th colour."""
    return f"--c{index % COLOURS}"


def axis(title: str, **more: Any) -> dict[str, Any]:
    return {
        "title": {"text": title},
        "automargin": True,
        "ticklabelstandoff": 4,
        "gridcolor": "--line",
        "zerolinecolor": "--line",
    } | more


def figure(data: list[dict[str, Any]], x: dict[str, Any], y: dict[str, Any], height: int = 360, **more: Any) -> Figure:
    layout = {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 16, "b": 48},
        "legend": {"orientation": "h", "x": 0, "y": -92 / height, "yanchor": "top"},
        "hovermode": "closest",
        "xaxis": x,
        "yaxis": y,
    }
    return {"data": data, "layout": layout | more}


POINTS: Final = {"type": "scatter", "mode": "markers"}
BARS: Final = {"type": "bar", "orientation": "h"}


def trace(  # noqa: PLR0917 - what a plot needs
    kind: dict[str, str], name: str, x: list[Any], y: list[Any], told: list[list[Any]], hover: str, **more: Any
) -> dict[str, Any]:
    """Return points or bars of a plot; ``told`` has for each the values that ``hover`` shows."""
    return kind | {"name": name, "x": x, "y": y, "customdata": told, "hovertemplate": f"{hover}<extra></extra>"} | more


def downtime_figure(groups: Sequence[GroupDay]) -> Figure | None:
    """Return how long no member ran tasks, by cause; the groups with the most each have a part of the bars."""
    totals = {one.group: [_total(one, cause) for cause in CAUSES] for one in groups}
    worst = sorted((name for name in totals if any(totals[name])), key=lambda name: (-sum(totals[name]), name))
    if not worst:
        return None
    parts = [(escape(name), colour(index), [name]) for index, name in enumerate(worst[:GROUPS_STACKED])]
    others = worst[GROUPS_STACKED:]
    if others:
        parts.append((amount(len(others), "other group"), "--quiet", others))
    data = []
    for title, shade, names in parts:
        sums = [sum(of_cause) for of_cause in zip(*(totals[name] for name in names), strict=True)]
        told = [[title, duration(total)] for total in sums]
        hover = "%{customdata[0]}: %{customdata[1]}"
        lasted = [total / 1_000 for total in sums]
        data.append(trace(BARS, title, lasted, list(CAUSES), told, hover, marker={"color": shade}))
    rows = axis("", autorange="reversed", categoryorder="array", categoryarray=list(CAUSES))
    return figure(data, axis("seconds that nobody ran a task"), rows, 320, barmode="stack")


def _total(group: GroupDay, cause: str) -> float:
    return float(group.downtime_by_cause.get(cause, {}).get("total_ms", 0.0) or 0.0)


def moves_figure(generations: Sequence[Of[Generation]]) -> Figure | None:
    """Return the moves of each generation beside the fewest that would have sufficed; a stem is the excess."""
    if not generations:
        return None
    in_time = sorted(generations, key=lambda of: (of[1].at_ms, of[0], of[1].number))
    found = [one for _, one in in_time]
    at = [time_of(one.at_ms) for one in found]
    over = [one for one in found if one.moves > one.lower_bound]
    stems = {
        "x": [at for one in over for at in (time_of(one.at_ms), time_of(one.at_ms), None)],
        "y": [count for one in over for count in (one.lower_bound, one.moves, None)],
        "line": {"color": "--bad", "width": 2},
    }
    told = [[escape(group), one.number, one.moves, one.lower_bound] for group, one in in_time]
    hover = "%{customdata[0]}, generation %{customdata[1]}: %{customdata[2]} moves, at least %{customdata[3]}"
    least = {"color": "--ink", "size": 10, "symbol": "line-ew-open", "line": {"width": 2, "color": "--ink"}}
    data: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "name": "more than needed", "hoverinfo": "skip", "showlegend": bool(over)}
        | stems,
        trace(POINTS, "moves", at, [one.moves for one in found], told, hover, marker={"color": colour(0), "size": 8}),
        trace(POINTS, "fewest possible", at, [one.lower_bound for one in found], told, hover, marker=least),
    ]
    return figure(data, axis("", type="date"), axis("tasks moved", rangemode="tozero"))


def warmups_figure(warmups: Sequence[Of[Warmup]], end_ms: int) -> Figure | None:
    """Return how long warmups took, until ``end_ms`` at most, by how much they had to restore; both logarithmic."""
    data = []
    for outcomes, name, symbol, shade in WARMUP_OUTCOMES:
        # A logarithmic scale has no place for 0.
        chosen = [
            (group, one, max(one.lag, 1), max((one.to_ms or end_ms) - one.from_ms, 1))
            for group, one in warmups
            if one.lag is not None and one.outcome in outcomes
        ]
        if chosen:
            told = [
                [*map(escape, (one.task, group, one.name)), number(one.lag), duration(took_ms), one.outcome]
                for group, one, _, took_ms in chosen
            ]
            hover = (
                "%{customdata[0]} of %{customdata[1]} on %{customdata[2]}: %{customdata[3]} records in"
                " %{customdata[4]}, %{customdata[5]}"
            )
            lags, took_s = [lag for *_, lag, _ in chosen], [took_ms / 1_000 for *_, took_ms in chosen]
            marker = {"color": shade, "size": 8, "symbol": symbol, "opacity": 0.75}
            data.append(trace(POINTS, name, lags, took_s, told, hover, marker=marker, showlegend=True))
    if not data:
        return None
    # No tick is at half a record, and thousandths of a second are no "m".
    logs = [log10(lag) for one in data for lag in one["x"]]
    across = axis("records to restore", type="log", tickformat="~s", range=[min(logs) - 0.15, max(logs) + 0.15])
    return figure(data, across, axis("seconds that it took", type="log", tickformat=",~r"))


def frontier_figure(advice: Recommendation) -> Figure | None:
    """Return the outcomes that were tried, by downtime and cost, and those that no other one beats."""
    tried = [*advice.grid, advice.present, advice.recommended]
    if len(tried) < 3:
        return None

    def dots(name: str, outcomes: Sequence[Outcome], mode: str = "markers", **marker: Any) -> dict[str, Any]:
        told = [
            [_settings(one.settings), duration(one.downtime_ms), number(one.moves), decimal(one.bytes)]
            for one in outcomes
        ]
        hover = "%{customdata[0]}<br>downtime %{customdata[1]}, %{customdata[2]} moves, %{customdata[3]} copied"
        cost = [one.bytes / 1e9 for one in outcomes]
        down_s = [one.downtime_ms / 1_000 for one in outcomes]
        return trace(POINTS, name, cost, down_s, told, hover, mode=mode, marker=marker, line={"color": marker["color"]})

    data = [
        dots("tried", tried, color="--quiet", size=7),
        dots("nothing beats these", unbeaten(tried), "lines+markers", color=colour(0), size=8),
        dots("as it was", [advice.present], color="--ink", size=14, symbol="square-open"),
        dots("recommended", [advice.recommended], color="--good", size=15, symbol="star"),
    ]
    return figure(data, axis("GB copied", rangemode="tozero"), axis("seconds of downtime", rangemode="tozero"))


def _settings(settings: Mapping[str, object]) -> str:
    return "<br>".join(f"{escape(str(name))} {escape(str(value))}" for name, value in sorted(settings.items()))


def unbeaten(tried: Iterable[Outcome]) -> list[Outcome]:
    """Return the outcomes that no other one beats in both downtime and cost, from the cheapest to the dearest."""
    found: list[Outcome] = []
    for one in sorted(tried, key=lambda o: (o.bytes, o.downtime_ms)):
        if not found or one.downtime_ms < found[-1].downtime_ms:
            found.append(one)
    return found


def timeline_figure(
    intervals: Sequence[Interval], findings: Sequence[Finding], begin_ms: int, read_ms: int | None = None
) -> tuple[Figure | None, int, int]:
    """Return which member had which task in the hour from ``begin_ms``, how many tasks are shown, and of how many.

    Where there is no bar no member had the task; two bars above one another are two owners at once. A red
    diamond is since when a law is broken. Of a day under way nothing is drawn beyond ``read_ms``, until when it was
    read.
    """
    end_ms = begin_ms + HOUR_MS
    known_ms = end_ms if read_ms is None else min(read_ms, end_ms)
    within = [one for one in intervals if one.from_ms < end_ms and (one.to_ms is None or one.to_ms > begin_ms)]
    broken = [one for one in findings if one.severity is Severity.FATAL and one.task is not None]
    marks = [(one, at) for one in broken for at in one.times[:1] if begin_ms <= at < end_ms]
    if not within:
        return None, 0, 0
    happened = Counter(one.task for one in within)
    marked = {one.task for one, _ in marks}
    tasks = sorted(happened, key=lambda task: (task not in marked, -happened[task], _in_order(task)))[:TASKS_SHOWN]
    rows = sorted(tasks, key=_in_order)
    data = _bars([one for one in within if one.task in set(rows)], begin_ms, known_ms)
    shown = [(one, at) for one, at in marks if one.task in set(rows)]
    if shown:
        told = [[escape(f"{TITLES[one.law]} ({one.law})"), time_of(at)[11:]] for one, at in shown]
        marker = {"color": "--bad", "size": 13, "symbol": "diamond", "line": {"color": "--paper", "width": 2}}
        at, tasks_of = [time_of(at) for _, at in shown], [escape(str(one.task)) for one, _ in shown]
        data.append(
            trace(POINTS, "law broken", at, tasks_of, told, "%{customdata[0]} since %{customdata[1]}", marker=marker)
        )
    names = [escape(task) for task in rows]
    down = axis("", type="category", autorange="reversed", categoryorder="array", categoryarray=names, showgrid=False)
    across = axis("", type="date", range=[time_of(begin_ms), time_of(end_ms)])
    height = 110 + 20 * max(len(rows), 5)
    made = figure(data, across, down | {"dtick": 1}, height, barmode="overlay", bargap=0.25)
    return made, len(rows), len(happened)


def _bars(intervals: Sequence[Interval], begin_ms: int, end_ms: int) -> list[dict[str, Any]]:
    """Return a bar for each stretch in which a member restored or ran a task, as far as it lies within the hour."""
    members = sorted({one.name for one in intervals})
    has_legend = len(members) <= MEMBERS_NAMED
    second = clashing(intervals)
    parts: dict[tuple[bool, str, str], list[tuple[str, int, int | None]]] = defaultdict(list)
    for one in intervals:
        for state, from_ms, to_ms in one.states():
            if from_ms < end_ms and (to_ms is None or to_ms > begin_ms):
                parts[one in second, one.name, state].append((one.task, from_ms, to_ms))
    data, named = [], set()
    for is_second, member, state in sorted(parts, key=lambda part: (part[0], part[1], part[2] != "running")):
        chosen = parts[is_second, member, state]
        clipped = [(max(from_ms, begin_ms), min(to_ms or end_ms, end_ms)) for _, from_ms, to_ms in chosen]
        pattern = {"shape": "/" if state == "restoring" else "", "fillmode": "overlay", "solidity": 0.35, "size": 6}
        line = {"color": "--paper", "width": 1}
        told = [[escape(member), state, time_of(from_ms)[11:], _until(to_ms)] for _, from_ms, to_ms in chosen]
        lasted, tasks = [end - begin for begin, end in clipped], [escape(task) for task, *_ in chosen]
        hover = "%{y} on %{customdata[0]}: %{customdata[1]} from %{customdata[2]} %{customdata[3]}"
        marker = {"color": colour(members.index(member)), "line": line, "pattern": pattern}
        drawn = trace(BARS, escape(member), lasted, tasks, told, hover, marker=marker) | {
            "legendgroup": escape(member),
            "showlegend": has_legend and member not in named,
            "base": [time_of(begin) for begin, _ in clipped],
            # The second owner's bar covers the lower half of the first one's.
            "width": 0.4 if is_second else 0.8,
            "offset": 0.0 if is_second else -0.4,
        }
        named.add(member)
        data.append(drawn)
    return data


def clashing(intervals: Iterable[Interval]) -> frozenset[Interval]:
    """Return the intervals that begin while another member has the task."""
    found: set[Interval] = set()
    latest: dict[str, tuple[float, str]] = {}
    for one in sorted(intervals, key=lambda o: (o.task, o.from_ms, o.member)):
        until, owner = latest.get(one.task, (0.0, ""))
        if one.from_ms < until and one.member != owner:
            found.add(one)
        ends = float("inf") if one.to_ms is None else one.to_ms
        if ends >= until:
            latest[one.task] = (ends, one.member)
    return frozenset(found)


def _until(to_ms: int | None) -> str:
    return "until the end of what was read" if to_ms is None else f"to {time_of(to_ms)[11:]}"


def _in_order(task: str) -> tuple[tuple[int, int, str], int, str]:
    """Return the sort key of a task, as everywhere; a damaged log may have names that are no task ids."""
    part, _, partition = task.rpartition("_")
    if partition.isdecimal():
        return (subtopology_sort_key(part), int(partition), task)
    return (subtopology_sort_key(task), -1, task)
