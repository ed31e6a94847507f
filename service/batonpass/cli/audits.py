"""`batonpass audits`: results of the nightly audits, by day, and one day with its findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from batonpass.cli.client_context import ClientContext, client_command
from batonpass.cli.spans import ago
from batonpass.client import path
from batonpass.core.state.durations import duration

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
    for group, advice in body["recommendations"].items():
        for line in advised(group, advice):
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


def advised(group: str, advice: dict[str, Any]) -> list[str]:
    """Return what an audit recommends for a group, one sentence a line."""
    present, better = advice["present"], advice["recommended"]
    changes = {
        name: value for name, value in better["settings"].items() if present["settings"].get(name, value) != value
    }
    if not changes:
        return [f"{group}: keep the settings as they are. {advice['confidence']}"]
    words = ", ".join(f"{name} {present['settings'].get(name)} -> {value}" for name, value in sorted(changes.items()))
    expected = [f"downtime {duration(present['downtime_ms'], '-')} -> {duration(better['downtime_ms'], '-')}"]
    expected.append(f"moves {present['moves']} -> {better['moves']}")
    if present["bytes"] is not None and better["bytes"] is not None:
        expected.append(f"bytes {present['bytes']:,} -> {better['bytes']:,}")
    if present.get("waiting_ms") is not None and better.get("waiting_ms") is not None:
        expected.append(
            f"tasks away from where they belong {duration(present['waiting_ms'])} -> {duration(better['waiting_ms'])}"
        )
    return [f"{group}: {words}. Simulated: {', '.join(expected)}. {advice['confidence']}"]


def _row(one: dict[str, Any]) -> list[Any]:
    counts = [one["groups"], one["records"], one["fatal"], one["notices"]]
    return [
        one["day"],
        one["state"],
        _verdict(one),
        *counts,
        ago(one["finished_at"] or one["started_at"]),
        one["detail"],
    ]


def _verdict(one: dict[str, Any]) -> str | None:
    return (
        None if one["verdict"] is None else {"passed": "every law held", "failed": "a law was broken"}[one["verdict"]]
    )


def _told(name: str, value: float | None) -> float | str | None:
    if value is not None and name == "availability":
        return f"{value:.4%}"
    return duration(value, "-") if name.endswith("_ms") else value
