"""`batonpass audits`: results of the nightly audits, by day, and one day with its findings."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from batonpass.audit_words import advised, measured
from batonpass.cli.client_context import ClientContext, client_command
from batonpass.cli.spans import ago
from batonpass.client import path
from batonpass.dashboard.view_models.audits import STATE

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
    body = await context.get(path("audits"), limit=limit)
    if not body["audits"]:
        context.say(NO_AUDIT)
        return
    rows = [_row(one) for one in body["audits"]]
    columns = ("day", "last run", "verdict", "groups", "records", "fatal", "notices", "when", "detail")
    context.table(*columns, rows=rows)


async def show(context: ClientContext, day: str, limit: int) -> None:
    body = await context.get(path("audits", day), limit=limit)
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
    for line in advice(body["recommendations"]):
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
    return [group, *(_shown(name, measures.get(name)) for name in MEASURES)]


def advice(recommendations: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what an audit recommends, and how sure that is, one sentence a line."""
    return [
        line
        for one in advised(recommendations)
        for line in (one.sentence, *(f"  {group}: {how}" for group, how in one.sure.items()))
    ]


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


def _shown(name: str, value: float | None) -> float | str | None:
    """Return the value of a measure; a number stays one, so that its column is aligned."""
    return measured(name, value) if value is not None and (name == "availability" or name.endswith("_ms")) else value
