"""One audit as one file of HTML that needs nothing else: no network, no other file, no server.

It says the verdict in words first, then what is wrong with its evidence, then what it cost, then what to change. Plots
are drawn by plotly's own script, which the file carries. Everything that came from users is escaped.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from batonpass.audit import report_figures as figures
from batonpass.audit import report_words as words
from batonpass.audit.findings import AuditResult, Finding, GroupDay, Recommendation, Severity
from batonpass.audit.output import ordered
from batonpass.audit.report_names import readable
from batonpass.audit.verdict import amount, headline, in_order
from batonpass.core.laws import LAWS

GROUPS_PICTURED: Final = 12
"""How many groups have a timeline and a frontier of their own: those with the most fatal findings and downtime."""

FINDINGS_SHOWN: Final = 500
EVIDENCE_SHOWN: Final = 8
Columns = Mapping[str, tuple[str, Callable[[Any], str]]]
"""Measures by name: how a column is headed, and how its values are written."""

COSTS: Final[Columns] = {
    "availability": ("available", words.share),
    "downtime_ms": ("downtime", words.span),
    "longest_unowned_ms": ("longest without an owner", words.span),
    "handovers": ("handovers", words.number),
    "failovers": ("failovers", words.number),
    "cold_starts": ("cold starts", words.number),
    "members_max": ("members", words.number),
    "tasks_max": ("tasks", words.number),
    "records": ("records", words.number),
}
WORK: Final[Columns] = {
    "moves": ("moves", words.number),
    "lower_bound": ("fewest possible", words.number),
    "warmups": ("warmups", words.number),
    "wasted_warmups": ("wasted", words.number),
    "probes": ("probes", words.number),
    "futile_probes": ("futile", words.number),
    "flapping_members": ("flapping members", words.number),
    "balance_mean": ("imbalance, mean", words.number),
    "balance_worst": ("worst", words.number),
    "restored_bytes": ("restored", words.size),
    "generations": ("generations", words.number),
}


def write_report(result: AuditResult, path: str | Path) -> Path:
    """Write the report of an audit to a file, in place of what was there, whole or not at all; return where.

    Raises:
        OSError: when it cannot be written.
    """
    wanted = Path(path)
    wanted.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=wanted.parent, prefix=f".{wanted.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(as_html(result))
        # Made for whoever may read the folder; a temporary file is for its owner alone.
        Path(aside).chmod(0o644)
        Path(aside).replace(wanted)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    return wanted


def as_html(result: AuditResult) -> str:
    """Return the report of an audit, which calls members by their names where they have some."""
    result = readable(result)
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "span": words.span, "share": words.share, "size": words.size, "number": words.number, "clock": words.clock,
    }  # fmt: skip
    shown: dict[str, Any] = {}
    context = _context(result, shown)
    return environment.get_template("report.html.j2").render(
        context,
        figures=_in_script(shown),
        plotly=Markup(get_plotlyjs()),  # noqa: S704 - the library's own script
    )


def _template(name: str) -> str:
    return (files("batonpass.audit") / "templates" / name).read_text(encoding="utf-8")


def _in_script(value: object) -> Markup:
    """Return a value as JSON that may stand within a script: nothing in it can end the script."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)  # noqa: S704 - every sign that could end the script is written as its number


def _context(result: AuditResult, shown: dict[str, Any]) -> dict[str, Any]:
    """Return what the template writes; the figures that it has places for are put into ``shown`` by their places."""
    fatal = Counter(one.group for one in result.findings if one.severity is Severity.FATAL)
    ranked = sorted(result.groups, key=lambda one: (-fatal[one.group], -_of(one, "downtime_ms"), one.group))
    pictures = result.pictures
    drawn = {
        "downtime": figures.downtime(result.groups),
        "moves": figures.moves(pictures.generations),
        "warmups": figures.warmups(pictures.warmups),
    }
    shown |= {place: made for place, made in drawn.items() if made is not None}
    findings = ordered(result.findings)
    return {
        "day": words.long_day(result.day),
        "so_far": None if result.so_far_ms is None else words.clock(result.so_far_ms)[:5],
        "iso_day": result.day.isoformat(),
        "headline": headline(result),
        "verdict": "bad" if result.fatal else "good" if result.groups else "quiet",
        "in_short": in_short(result),
        "advice": [_advice(one) for one in result.recommendations if _changes(one)][:GROUPS_PICTURED],
        "tiles": _tiles(result.groups),
        "findings": [_finding(one) for one in findings[:FINDINGS_SHOWN]],
        "findings_more": max(0, len(findings) - FINDINGS_SHOWN),
        "left_out": result.findings_left_out,
        "causes": _causes(ranked),
        "unknown_lags": sum(1 for one in pictures.warmups if one.lag is None),
        "pictured": _pictured(result, ranked, shown),
        "groups_more": max(0, len(ranked) - GROUPS_PICTURED),
        "tables": [_table(ranked, fatal, columns) for columns in (COSTS, WORK)],
        "result": result,
        "records": amount(result.records, "record"),
        "places": frozenset(shown),
        "began": words.instant(result.started_at_ms)[:19],
        "took": words.span(result.finished_at_ms - result.started_at_ms),
    }


def in_short(result: AuditResult) -> list[str]:
    """Return what the day came to, a sentence each, the most important first."""
    said = []
    broken = Counter(one.law for one in result.findings if one.severity is Severity.FATAL)
    for law in in_order(broken):
        times = "once" if broken[law] == 1 else f"{broken[law]} times"
        meaning = f" ({LAWS[law]})" if law in LAWS else ""
        said.append(f"{law}{meaning} was broken {times}.")
    said += _cost_in_words(result.groups)
    if result.decisions_replayed:
        again = amount(result.decisions_replayed, "decision")
        same = "every one came out the same" if not result.decisions_differing else ""
        differing = f"{amount(result.decisions_differing, 'outcome')} differed"
        said.append(f"{again} made again by the same core: {same or differing}.")
    return said


def _cost_in_words(groups: Sequence[GroupDay]) -> list[str]:
    said = []
    total = sum(_of(one, "downtime_ms") for one in groups)
    if total:
        causes: Counter[str] = Counter()
        for one in groups:
            for cause, of in one.downtime_by_cause.items():
                causes[cause] += float(of.get("total_ms", 0) or 0)  # type: ignore[assignment]
        least = min(
            (one for one in groups if one.measures.get("availability") is not None), default=None, key=_available
        )
        sentence = f"Added up over all tasks, nobody ran them for {words.span(total)}"
        if causes:
            cause, most = max(causes.items(), key=lambda item: (item[1], item[0]))
            sentence += f", {words.span(most)} of it by {cause}"
        if least is not None:
            sentence += f"; {least.group} was available {words.share(least.measures['availability'])} of the time"
        said.append(sentence + ".")
    moved, bound = sum(_of(one, "moves") for one in groups), sum(_of(one, "lower_bound") for one in groups)
    if moved:
        over = (
            f"{moved - bound:,.0f} more than any balanced assignment needs" if moved > bound else "no more than needed"
        )
        said.append(f"{amount(int(moved), 'task')} moved, {over}.")
    for many, few, name, verb in (
        ("warmups", "wasted_warmups", "warmup", "came to nothing"),
        ("probes", "futile_probes", "probe", "changed nothing"),
    ):
        count, idle = sum(_of(one, many) for one in groups), sum(_of(one, few) for one in groups)
        if idle:
            said.append(f"{idle:,.0f} of {amount(int(count), name)} {verb}.")
    return said


def _available(one: GroupDay) -> float:
    return _of(one, "availability")


def _of(one: GroupDay, name: str) -> float:
    return float(one.measures.get(name) or 0)


def _tiles(groups: Sequence[GroupDay]) -> list[tuple[str, str]]:
    known = [_available(one) for one in groups if one.measures.get("availability") is not None]
    longest = [_of(one, "longest_unowned_ms") for one in groups]
    total = {name: sum(_of(one, name) for one in groups) for name in (*COSTS, *WORK)}
    return [
        ("least available group", words.share(min(known, default=None))),
        ("downtime of all tasks", words.span(total["downtime_ms"])),
        ("longest without an owner", words.span(max(longest, default=None))),
        ("handovers", words.number(total["handovers"])),
        ("failovers", words.number(total["failovers"])),
        ("cold starts", words.number(total["cold_starts"])),
        ("moves beyond the fewest", words.number(max(0, total["moves"] - total["lower_bound"]))),
        ("wasted warmups", words.number(total["wasted_warmups"])),
    ]


def _finding(one: Finding) -> dict[str, Any]:
    sequences, at = one.sequences[:EVIDENCE_SHOWN], one.at[:EVIDENCE_SHOWN]
    return {
        "severity": one.severity.value,
        "law": one.law,
        "meaning": LAWS.get(one.law, ""),
        "group": one.group,
        "task": one.task,
        "member": one.member,
        "detail": one.detail,
        "records": ", ".join(f"{number:,}" for number in sequences),
        "times": ", ".join(words.clock(each) for each in at),
        "more": max(len(one.sequences), len(one.at)) - EVIDENCE_SHOWN,
    }


def _causes(groups: Sequence[GroupDay]) -> list[dict[str, Any]]:
    return [
        {"group": one.group, "cause": cause, **one.downtime_by_cause[cause]}
        for one in groups[:GROUPS_PICTURED]
        for cause in figures.CAUSES
        if cause in one.downtime_by_cause
    ]


def _table(groups: Sequence[GroupDay], fatal: Counter[str], columns: Columns) -> dict[str, Any]:
    return {
        "columns": [title for title, _ in columns.values()],
        "rows": [
            {
                "group": one.group,
                "fatal": fatal[one.group],
                "cells": [write(one.measures.get(name)) for name, (_, write) in columns.items()],
            }
            for one in groups
        ],
    }


def _pictured(result: AuditResult, ranked: Sequence[GroupDay], shown: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is shown of the groups that have pictures of their own."""
    intervals = defaultdict(list)
    for interval in result.pictures.ownership:
        intervals[interval.group].append(interval)
    advised = {one.group: one for one in result.recommendations}
    made = []
    for number, one in enumerate(ranked[:GROUPS_PICTURED]):
        begin_ms = result.pictures.worst_hour_ms.get(one.group)
        advice = advised.get(one.group)
        part: dict[str, Any] = {
            "group": one.group,
            "number": number,
            "advice": None,
            "timeline": None,
            "frontier": None,
        }
        if begin_ms is not None:
            of_group = [finding for finding in result.findings if finding.group == one.group]
            drawn, tasks, there = figures.timeline(intervals[one.group], of_group, begin_ms, result.so_far_ms)
            if drawn is not None:
                part |= {"timeline": f"timeline-{number}", "tasks": tasks, "tasks_there": there, "hour": begin_ms}
                shown[part["timeline"]] = drawn
        if advice is not None:
            part["advice"] = _advised(advice)
            drawn = figures.frontier(advice)
            if drawn is not None:
                part["frontier"] = f"frontier-{number}"
                shown[part["frontier"]] = drawn
        if part["timeline"] or part["advice"]:
            made.append(part)
    return made


def _changes(advice: Recommendation) -> list[tuple[str, str, str]]:
    """Return each setting that should change: its name, what it is, and what it should be."""
    was, better = advice.present.settings, advice.recommended.settings
    return [
        (name, str(was.get(name, "")), str(better[name])) for name in sorted(better) if was.get(name) != better[name]
    ]


def _advice(advice: Recommendation) -> str:
    changes = ", ".join(f"{name} from {was} to {better}" for name, was, better in _changes(advice))
    now, then = advice.present, advice.recommended
    pairs = [
        ("downtime", words.span(now.downtime_ms), words.span(then.downtime_ms)),
        ("the number of moves", words.number(now.moves), words.number(then.moves)),
        ("what is copied", words.size(now.bytes), words.size(then.bytes)),
    ]
    expected = [f"{name} should go from {was} to {better}" for name, was, better in pairs if was != better]
    return f"For {advice.group}, change {changes}: {', '.join(expected) or 'that costs nothing'}. {advice.confidence}"


def _advised(advice: Recommendation) -> dict[str, Any]:
    return {
        "changes": _changes(advice),
        "present": advice.present,
        "recommended": advice.recommended,
        "confidence": advice.confidence,
        "tried": len(advice.grid),
    }
