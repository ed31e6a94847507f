"""`batonpass explain`: why a task is where it is, or what a whole group waits for, in sentences."""

from typing import Annotated, Any

import typer

from batonpass.cli.client_context import ClientContext, GroupName, client_command
from batonpass.cli.groups import headline, remedies
from batonpass.cli.spans import ago
from batonpass.client import path
from batonpass.core.state.durations import duration
from batonpass.dashboard.words import Names, gap_of, wait_words
from batonpass.group_words import further, health_of

RUNS_SHOWN = 10
MEMBERS_SHOWN = 20
EVENTS_SEARCHED = 1_000


@client_command
async def explain(
    context: ClientContext,
    group: GroupName,
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", help="This task; left out: the whole group.")] = None,
) -> None:
    """Say why a task is where it is and what it waits for; without a task, what the group waits for."""
    if task is None:
        body = await context.get(path("groups", group, "explain"))
        explain_group(context, body, await names_of(context, group))
        return
    body = await context.get(path("groups", group, "tasks", task))
    explain_task(context, body, await names_of(context, group))


async def names_of(context: ClientContext, group: str) -> Names:
    """Return what the members of a group are called, including members that left lately."""
    members = await context.client.pages(path("groups", group, "members"), "members")
    page = await context.client.get(path("groups", group, "events"), newest=True, limit=EVENTS_SEARCHED)
    names = Names()
    for event in page["events"]:
        names.learn_from(event)
    for one in members:
        names.learn(one["member_id"], one.get("instance_id") or one.get("endpoint"))
    return names


def explain_group(context: ClientContext, body: dict[str, Any], names: Names) -> None:
    """Print what a group waits for, and which members keep it waiting."""
    health = health_of(body)
    context.say(" ".join(headline(health, names.within)))
    for line in remedies(health, names.within):
        context.say(line)
    for sentence in further(body):
        context.say(names.within(sentence))
    if body["members"]:
        rows = [
            [names(one["member"]), one["what"], one["tasks"], ago(one["until"]), one["detail"]]
            for one in body["members"][:MEMBERS_SHOWN]
        ]
        context.table("member", "is", "tasks", "until", "detail", rows=rows)
        if len(body["members"]) > MEMBERS_SHOWN:
            more = len(body["members"]) - MEMBERS_SHOWN
            context.say(f"... and {more} more members: `batonpass members {body['group']}` lists them all.")
    if body["waiting"]:
        rows = []
        for one in body["waiting"]:
            waits = "; ".join(names.within(wait_words(wait)) for wait in one["waits_for"])
            rows.append([one["task"], one["state"], (one["held_back"] or {}).get("reason"), waits])
        context.table("task", "state", "held back by", "waits for", rows=rows)
        more = body["waiting_total"] - len(body["waiting"])
        if more > 0:
            context.say(f"... and {more} more tasks: the dashboard lists them all.")


def explain_task(context: ClientContext, body: dict[str, Any], names: Names) -> None:
    """Print where a task is and why, its copies, and who had it before."""
    for sentence in body["sentences"]:
        context.say(names.within(sentence))
    target = names(body["target"]) if body["target"] else "nobody"
    context.say(
        f"State {body['state']}, fencing token {body['fencing_token']}, target {target}, because: {body['why']}."
    )
    if body["copies"]:
        rows = [
            [
                names(one["member"]),
                one["role"],
                one["readiness"],
                one["lag"],
                None if one["records_per_second"] is None else round(one["records_per_second"]),
                duration(one["eta_ms"], "-"),
            ]
            for one in body["copies"]
        ]
        context.table("member", "role", "readiness", "lag", "records/s", "caught up in", rows=rows, title="Copies")
    runs = body.get("runs", [])
    if runs:
        rows = [_run(one, names) for one in runs[:RUNS_SHOWN]]
        context.table(
            "member", "token", "granted", "ended", "nobody ran it for", "warm", "why", rows=rows, title="Runs"
        )
        if len(runs) > RUNS_SHOWN:
            context.say(f"... and {len(runs) - RUNS_SHOWN} earlier runs: --json has them.")


def _run(one: dict[str, Any], names: Names) -> list[Any]:
    ended = None if one["stopped_at"] is None else f"{one['ended'] or 'ended'} {ago(one['stopped_at'])}"
    gap_ms, bound = gap_of(one)
    gap = bound + duration(gap_ms, "-")
    return [names(one["member"]), one["fencing_token"], ago(one["granted_at"]), ended, gap, one["warm"], one["why"]]
