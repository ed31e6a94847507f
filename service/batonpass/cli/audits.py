"""`batonpass audits`: results of the nightly audits, by day, and one day with its findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from batonpass.cli.client_context import ClientContext, client_command
from batonpass.cli.spans import ago
from batonpass.client import path
from batonpass.core.state.durations import duration
from batonpass.dashboard.view_models.audits import STATE, settings_differ

Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many days to list, or findings of a day.")]
NO_AUDIT = "No day has been audited. `batonpass audit --day DAY` audits one."
FINDING = ("severity", "law", "group", "task", "member", "what", "records")
MEASURES = (
    "availability",
    "downtime_ms",
    "longest_unowned_ms",
    "handovers",
    "failovers",
    "cold_starts",
    "moves",
    "lower_bound",
    "warmups",
)


@client_command
async def audits(
    context: ClientContext,
    day: Annotated[str | None, typer.Argument(metavar="[DAY]", help="Show only this day, as in 2026-11-20.")] = None,
    limit: Limit = 20,
) -> None:
    """List the audited days, newest first, or show one: its findings, its measures, and which settings to change."""
    if day is not None:
        await show(context, day, limit)
        return
    body = await context.client.get(path("audits"), limit=limit)
    if context.answered(body):
        return
    if not body["audits"]:
        context.say(NO_AUDIT)
        return
    rows = [_row(one) for one in body["audits"]]
    columns = ("day", "last run", "verdict", "groups", "records", "fatal", "notices", "when", "detail")
    context.table(*columns, rows=rows)


async def show(context: ClientContext, day: str, limit: int) -> None:
    """Print one day."""
    body = await context.client.get(path("audits", day), limit=limit)
    if context.answered(body):
        return
    for line in standing(body):
        context.say(line)
    findings = [finding_row(one, one["evidence"]["sequences"]) for one in body["findings"]]
    if findings:
        context.table(*FINDING, rows=findings)
    if body["next"] is not None:
        more = body["fatal"] + body["notices"] - len(findings)
        context.say(f"{more} more findings; a higher --limit shows more of them.")
    if body["measures"]:
        context.table("group", *MEASURES, rows=[measures_row(group, of) for group, of in body["measures"].items()])
    for line in advised(body["recommendations"]):
        context.say(line)


def standing(body: dict[str, Any]) -> list[str]:
    """Return the state of a day's audit, one sentence a line."""
    state, verdict = body["state"], body["verdict"]
    lines = [f"{body['day']}: {body['detail'][:1].upper()}{body['detail'][1:]}"]
    match state:
        case "running":
            lines.append(f"An audit is running; it began {ago(body['started_at'])}.")
        case "broken":
            lines.append(f"The last run failed {ago(body['finished_at'])} and reached no verdict.")
        case _:
            lines.append(f"Audited {ago(body['finished_at'])} by {body['code_version']}.")
    if state in ("running", "broken"):
        counts = f"{body['fatal']} fatal findings, {body['notices']} notices"
        lines.append(f"What follows is from an earlier run: {counts}." if verdict else "This day has no verdict.")
    if body["report"]:
        lines.append(f"The report is {body['report']}.")
    return lines


def finding_row(finding: Mapping[str, Any], sequences: Sequence[int]) -> list[Any]:
    """Return a finding as a row below ``FINDING``; ``sequences`` are the numbers of the records that prove it."""
    proof = ", ".join(map(str, sequences[:5])) + (", ..." if len(sequences) > 5 else "")
    return [*(finding[name] for name in ("severity", "law", "group", "task", "member", "detail")), proof]


def measures_row(group: str, measures: Mapping[str, float | None]) -> list[Any]:
    """Return the measures of a group as a row: its name, and the columns of ``MEASURES``."""
    return [group, *(_told(name, measures.get(name)) for name in MEASURES)]


def advised(advice: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what an audit recommends by group, one sentence a line; groups with the same changes share one."""
    alike: dict[str, list[str]] = {}
    for group, one in advice.items():
        changes = ", ".join(f"{name} {now} -> {then}" for name, now, then in settings_differ(one))
        alike.setdefault(changes, []).append(group)
    lines = []
    for words, groups in alike.items():
        expected = _expected([advice[group] for group in groups])
        said = f"{words}. Simulated: {expected}." if words else "keep the settings as they are."
        sure = [str(advice[group]["confidence"]) for group in groups]
        lines.append(f"{', '.join(groups)}: {said}" + (f" {sure[0]}" if len(groups) == 1 else ""))
        if len(groups) > 1:
            lines += [f"  {group}: {how}" for group, how in zip(groups, sure, strict=True)]
    return lines


def _expected(some: Sequence[Mapping[str, Any]]) -> str:
    """Return what to expect of a change, summed over groups; what one of them does not know is left out."""
    said = []
    for name, what, write in (
        ("downtime_ms", "downtime", lambda ms: duration(ms, "-")),
        ("moves", "moves", str),
        ("bytes", "bytes", "{:,}".format),
        ("waiting_ms", "tasks away from where they belong", duration),
    ):
        was, better = ([one[side].get(name) for one in some] for side in ("present", "recommended"))
        if None not in (*was, *better):
            said.append(f"{what} {write(sum(was))} -> {write(sum(better))}")
    return ", ".join(said)


def _row(one: dict[str, Any]) -> list[Any]:
    counts = [one["groups"], one["records"], one["fatal"], one["notices"]]
    return [
        one["day"],
        one["state"],
        STATE.get(one["verdict"]),
        *counts,
        ago(one["finished_at"] or one["started_at"]),
        one["detail"],
    ]


def _told(name: str, value: float | None) -> float | str | None:
    if value is not None and name == "availability":
        return f"{value:.4%}"
    return duration(value, "-") if name.endswith("_ms") else value
