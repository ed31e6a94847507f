"""`batonpass members`, and the commands for one member: `drain`, `undrain`, `evict`, `trust`, `safe-to-stop`."""

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from batonpass.cli.client_context import ClientContext, GroupName, MemberName, Why, client_command
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.spans import ago, span_ms
from batonpass.cli.tables import progress
from batonpass.client import Refused, instant, path
from batonpass.dashboard.view_models.members import COLUMNS, REPORTED, Columns, filled, state_words
from batonpass.dashboard.words import SHORT_ID
from batonpass.group_words import health_of, is_uuid, readable_name

Json = Mapping[str, Any]

WAIT_MS = 10_000
"""How long one call waits for progress of a drain."""

UntilUndone = Annotated[
    bool,
    typer.Option(
        "--until-undone", help="Also for each later run of its instance: none gets a task until `batonpass undrain`."
    ),
]
ForHowLong = Annotated[
    str | None, typer.Option("--for", metavar="SPAN", help="With --until-undone: no longer than this, as in 2h.")
]

ALIVE: Final = timedelta(seconds=10)
"""A member that was heard within this time counts as alive."""


def _short(member: Json) -> str:
    """Return the beginning of a member's id: commands take it too."""
    return str(member["member_id"])[:SHORT_ID] if is_uuid(member["member_id"]) else str(member["member_id"])


LISTED: Final[Columns] = {
    "instance": lambda member: readable_name(member["instance_id"]),
    "member": lambda member: _short(member) if readable_name(member["instance_id"]) else member["member_id"],
    "state": state_words,
    **COLUMNS,
    "heard": lambda member: ago(member["last_heard_at"]),
    "tags": lambda member: member["client_tags"],
}
"""What the list shows of each member. A column that is empty for all of them is left out."""


@client_command
async def members(
    context: ClientContext,
    group: GroupName,
    member: Annotated[str | None, typer.Argument(metavar="[MEMBER]", help="Show this one whole.")] = None,
) -> None:
    """List the members of a group, or show one: what it may hold, and what it last said."""
    if member is None:
        found = await context.client.pages(path("groups", group, "members"), "members")
        if context.as_json:
            context.answer({"members": found})
        elif not found:
            context.say(f"Group {group} has no members.")
        else:
            columns = filled(LISTED, found)
            context.table(*columns, rows=[[cell(one) for cell in columns.values()] for one in found])
        return
    body = await context.get(path("groups", group, "members", await context.member_of(group, member)))
    context.table("field", "value", rows=[(name, body[name]) for name in body if name not in {"assignment", "reports"}])
    context.table("task", "role", "token", "reported", "state", *REPORTED, "at", rows=_tasks(body))


def _tasks(body: dict[str, Any]) -> list[list[Any]]:
    held = {grant["task"]: ("active", grant["fencing_token"]) for grant in body["assignment"]["active"]}
    held |= {task: (role, None) for role in ("standby", "warmup") for task in body["assignment"][role]}
    reports = body["reports"]
    order = [*held, *(task for task in reports if task not in held)]
    rows = []
    for task in order:
        role, token = held.get(task, ("revoking" if task in body["revoking"] else None, None))
        said = reports.get(task, {})
        reported = [said.get("role"), said.get("state"), *(cell(said) for cell in REPORTED.values())]
        rows.append([task, role, token, *reported, ago(said.get("at"))])
    return rows


@client_command
async def drain(
    context: ClientContext,
    group: GroupName,
    member: MemberName,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="SPAN", help="Hand over what is not ready by then, as in 30s.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is empty.")] = False,
    longest: Annotated[
        str | None, typer.Option("--timeout", metavar="SPAN", help="With --wait: wait no longer (exit code 1).")
    ] = None,
    until_undone: UntilUndone = False,
    for_how_long: ForHowLong = None,
    reason: Why = "",
) -> None:
    """Have a member hand over all its tasks while it goes on processing them; `batonpass undrain` takes it back."""
    deadline_ms = None if deadline is None else span_ms(deadline)
    ends_at = time.monotonic() + (math.inf if longest is None else span_ms(longest) / 1_000)
    member_id = await context.member_of(group, member, may_be_gone=until_undone)
    call = path("groups", group, "members", member_id, "drain")
    query = {"deadline_ms": deadline_ms, "reason": reason, **_holding(until_undone, for_how_long)}
    body = (await context.client.call("POST", call, query=query)).body
    if wait and not body["drained"]:
        body = await _follow(context, call, body, ends_at, label=f"{group}/{member}")
    if not context.answered({"member_id": member_id, **body}):
        _tell_drain(context, member, body)
        context.say(_how_long(until_undone, for_how_long))
    if wait and not body["drained"]:
        raise typer.Exit(Exit.REFUSED)


async def _follow(
    context: ClientContext, call: str, body: dict[str, Any], ends_at: float, *, label: str
) -> dict[str, Any]:
    """Wait for the end of a drain, or until ``ends_at``, and return how far it has come."""
    total = len(body["remaining"])
    left = "draining {task.description}"
    with progress(left, "{task.completed}/{task.total}", wanted=not context.as_json) as bar:
        shown = bar.add_task(label, total=total)
        while not body["drained"] and not body.get("undone"):
            left_ms = min(WAIT_MS, (ends_at - time.monotonic()) * 1_000)
            if left_ms <= 0:
                break
            body = await _look(context, call, int(left_ms))
            total = max(total, len(body["remaining"]))
            bar.update(shown, total=total, completed=total - len(body["remaining"]))
    return body


async def _look(context: ClientContext, call: str, wait_ms: int) -> dict[str, Any]:
    """Ask again how far a drain is; a member that has gone meanwhile has no tasks."""
    try:
        query = {"wait_ms": wait_ms, "only_wait": "true"}  # Asking for the drain again would undo an `undrain`.
        reply = await context.client.call("POST", call, query=query, lasting_s=wait_ms / 1_000, is_repeatable=True)
    except Refused as refused:
        if refused.kind in {"gone", "unknown-member", "fenced"}:
            return {"drained": True, "remaining": [], "blocked": []}
        raise
    found: dict[str, Any] = reply.body
    return found


def _tell_drain(context: ClientContext, member: str, body: dict[str, Any]) -> None:
    if body["drained"]:
        context.say(f"{member} has no active left: it can be stopped.")
        return
    does = "was undrained meanwhile" if body.get("undone") else "drains"
    context.say(f"{member} {does}; it still has {len(body['remaining'])} active tasks: {', '.join(body['remaining'])}.")
    for one in body["blocked"]:
        context.say(f"  {one['task']} is blocked: {one['reason']}")


@client_command
async def undrain(context: ClientContext, group: GroupName, member: MemberName, reason: Why = "") -> None:
    """Let a draining member stay, and its instance have tasks again if it is kept out: then its name is enough."""
    member_id = await context.member_of(group, member, may_be_gone=True)
    await context.client.call("DELETE", path("groups", group, "members", member_id, "drain"), query={"reason": reason})
    context.done(f"{member} stays.", group=group, member_id=member_id)


@client_command
async def evict(
    context: ClientContext,
    group: GroupName,
    member: MemberName,
    dead: Annotated[
        bool, typer.Option("--dead", help="You know that its process no longer runs: its tasks are free at once.")
    ] = False,
    until_undone: UntilUndone = False,
    for_how_long: ForHowLong = None,
    reason: Why = "",
) -> None:
    """Remove a member; its tasks are free when its lease is over, or at once with --dead.

    One that is gone already may still keep tasks from others: name it by its whole id, with --dead.
    """
    member_id = await context.member_of(group, member, may_be_gone=dead or until_undone)
    if dead and member_id != member:
        await _refuse_if_alive(context, group, member, member_id)
    call = path("groups", group, "members", member_id, "evict")
    query = {"dead": dead or None, "reason": reason, **_holding(until_undone, for_how_long)}
    await context.client.call("POST", call, query=query)
    when = "at once" if dead else "when its lease is over"
    said = f"{member} is evicted; its tasks are free {when}. {_how_long(until_undone, for_how_long)}"
    context.done(said, group=group, member_id=member_id)


def _holding(until_undone: bool, for_how_long: str | None) -> dict[str, Any]:
    return {
        "until_undone": until_undone or None,
        "for_ms": None if for_how_long is None else span_ms(for_how_long),
    }


def _how_long(until_undone: bool, for_how_long: str | None) -> str:
    """Return how long a drain or an eviction holds, in a sentence."""
    if not until_undone:
        return "That holds for this run only; --until-undone keeps the later runs of its instance out too."
    end = "" if for_how_long is None else f", or until {for_how_long} are over"
    return f"No run of its instance gets a task until `batonpass undrain` says so{end}."


@client_command
async def trust(context: ClientContext, group: GroupName, member: MemberName, reason: Why = "") -> None:
    """Forget what is held against a member on which tasks failed: it, or its instance's next run, gets tasks again."""
    member_id = await context.member_of(group, member, may_be_gone=True)
    await context.client.call("POST", path("groups", group, "members", member_id, "trust"), query={"reason": reason})
    context.done(f"{member} is trusted again.", group=group, member_id=member_id)


async def _refuse_if_alive(context: ClientContext, group: str, name: str, member_id: str) -> None:
    """Refuse to vouch for the death of a run that was named only by its instance id and was heard just now.

    By the coordinator's clock, which wrote when it was heard; this machine's may show anything.

    Raises:
        Failure: when it was heard just now.
    """
    heard = instant((await context.client.get(path("groups", group, "members", member_id)))["last_heard_at"])
    now = instant(health_of(await context.client.get(path("groups", group)))["at"]) or datetime.now(UTC)
    if heard is not None and now - heard < ALIVE:
        raise Failure(
            Exit.REFUSED,
            f"{name} is a run that was heard just now, so its process runs.",
            todo=f"If another run is meant, or you know better, name it by its whole id. This one is {member_id}.",
        )


@client_command
async def safe_to_stop(context: ClientContext, group: GroupName, member: MemberName) -> None:
    """Ask whether a member can be stopped now without interrupting a task: exit code 0, or 1 with the reasons."""
    member_id = await context.member_of(group, member)
    try:
        await context.get(path("groups", group, "members", member_id, "safe-to-stop"))
    except Refused as refused:
        if context.as_json and refused.kind == "not-safe-to-stop":
            reasons = refused.problem.get("errors", [])
            context.answer({"member_id": member_id, "safe_to_stop": False, "reasons": reasons})
            raise typer.Exit(Exit.REFUSED) from None
        raise
    context.say(f"{member} can be stopped now.")
