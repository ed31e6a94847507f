"""`batonpass explain`: why a task is where it is, or what a whole group waits for, in sentences."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from batonpass.cli.desk import Desk, GroupName, at_desk
from batonpass.cli.rest import path
from batonpass.cli.spans import ago, span

RUNS_SHOWN = 10


@at_desk
def explain(
    desk: Desk,
    group: GroupName,
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", help="This task; left out: the whole group.")] = None,
) -> None:
    """Say why a task is where it is and what it waits for; without a task, what the group waits for."""
    if task is None:
        body = desk.coordinator.get(path("groups", group, "explain"))
        if desk.as_json:
            desk.answer(body)
        else:
            explain_group(desk, body, names_of(desk, group))
        return
    body = desk.coordinator.get(path("groups", group, "tasks", task))
    if desk.as_json:
        desk.answer(body)
    else:
        explain_task(desk, body, names_of(desk, group))


def names_of(desk: Desk, group: str) -> dict[str, str]:
    """Return what people call each member: its instance id, where it has one."""
    members = desk.coordinator.pages(path("groups", group, "members"), "members")
    return {one["member_id"]: one["instance_id"] for one in members if one.get("instance_id")}


def named(sentence: str, names: dict[str, str]) -> str:
    """Return a sentence with instance ids in place of member ids."""
    for member_id, name in names.items():
        sentence = sentence.replace(member_id, name)
    return sentence


def explain_group(desk: Desk, body: dict[str, Any], names: dict[str, str]) -> None:
    """Print what a group waits for, and who keeps it waiting."""
    for sentence in body["sentences"]:
        desk.say(named(sentence, names))
    budgets = body["budgets"]
    taken = ", ".join(
        f"{what} {slots(budgets[one]['used'], budgets[one]['limit'])}"
        for one, what in (("warmups", "warmups"), ("drain_warmups", "warmups for drains"))
    )
    desk.say(f"Slots taken: {taken}.")
    if body["members"]:
        rows = [
            [names.get(one["member"], one["member"]), one["what"], one["tasks"], ago(one["until"]), one["detail"]]
            for one in body["members"]
        ]
        desk.table("member", "is", "tasks", "until", "detail", rows=rows)
    if body["waiting"]:
        rows = [[one["task"], one["state"], _held(one), _waits(one["waits_for"], names)] for one in body["waiting"]]
        desk.table("task", "state", "held back by", "waits for", rows=rows)
        more = body["waiting_total"] - len(body["waiting"])
        if more > 0:
            desk.say(f"... and {more} more tasks.")


def slots(used: int, limit: int) -> str:
    """Return how many slots are taken; more than there are where what was begun before goes on."""
    if used <= limit:
        return f"{used} of {limit}"
    return f"{used} where there are {limit} (what was begun for a drain, or under a larger budget, goes on)"


def explain_task(desk: Desk, body: dict[str, Any], names: dict[str, str]) -> None:
    """Print where a task is and why, its copies, and who had it before."""
    for sentence in body["sentences"]:
        desk.say(named(sentence, names))
    target = names.get(body["target"] or "", body["target"] or "nobody")
    desk.say(f"State {body['state']}, fencing token {body['fencing_token']}, target {target}, because: {body['why']}.")
    if body["copies"]:
        rows = [
            [
                names.get(one["member"], one["member"]),
                one["role"],
                one["readiness"],
                one["lag"],
                None if one["records_per_second"] is None else round(one["records_per_second"]),
                span(one["eta_ms"]),
            ]
            for one in body["copies"]
        ]
        desk.table("member", "role", "readiness", "lag", "records/s", "caught up in", rows=rows, title="Copies")
    runs = body.get("runs", [])[:RUNS_SHOWN]
    if runs:
        rows = [_run(one, names) for one in runs]
        desk.table("member", "token", "granted", "ended", "nobody ran it for", "warm", "why", rows=rows, title="Runs")


def _run(one: dict[str, Any], names: dict[str, str]) -> list[Any]:
    ended = None if one["stopped_at"] is None else f"{one['ended'] or 'ended'} {ago(one['stopped_at'])}"
    who = names.get(one["member"], one["member"])
    return [who, one["fencing_token"], ago(one["granted_at"]), ended, span(one["gap_ms"]), one["warm"], one["why"]]


def _held(one: dict[str, Any]) -> str | None:
    return None if one["held_back"] is None else one["held_back"]["reason"]


def _waits(waits: list[dict[str, Any]], names: dict[str, str]) -> str:
    return "; ".join(
        " ".join(
            part
            for part in (
                one["what"],
                names.get(one["member"] or "", one["member"] or ""),
                f"({one['detail']})" if one["detail"] else "",
                f"about {span(one['eta_ms'])}" if one["eta_ms"] is not None else "",
            )
            if part
        )
        for one in waits
    )
