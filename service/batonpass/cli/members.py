"""`batonpass members`, and what is done to one: `drain`, `undrain`, `evict`, `safe-to-stop`."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from batonpass.cli.desk import Desk, GroupName, MemberName, Why, at_desk
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.rest import path
from batonpass.cli.spans import ago, span_ms

WAIT_MS = 10_000
"""How long one call waits for a drain to go on."""

COLUMNS = ("member", "instance", "state", "capacity", "active", "standby", "warmup", "disk", "heard", "tags")


@at_desk
def members(
    desk: Desk,
    group: GroupName,
    member: Annotated[str | None, typer.Argument(metavar="[MEMBER]", help="Show this one whole.")] = None,
) -> None:
    """List the members of a group, or show one: what it may hold, and what it last said."""
    if member is None:
        found = list(desk.coordinator.pages(path("groups", group, "members"), "members"))
        if desk.as_json:
            desk.answer({"members": found})
        elif not found:
            desk.say(f"Group {group} has no members.")
        else:
            desk.table(*COLUMNS, rows=[_row(one) for one in found])
        return
    body = desk.coordinator.get(path("groups", group, "members", desk.member_of(group, member)))
    if desk.as_json:
        desk.answer(body)
        return
    desk.table("field", "value", rows=[(name, body[name]) for name in body if name not in {"assignment", "reports"}])
    desk.table("task", "role", "token", "reported", "state", "lag", "records/s", "disk", "at", rows=_tasks(body))


def _row(one: dict[str, Any]) -> list[Any]:
    state = one["state"] + (", draining" if one["draining"] else "") + (", suspected" if one["suspected"] else "")
    held = one["assignment"]
    counts = [len(held[role]) for role in ("active", "standby", "warmup")]
    return [
        one["member_id"],
        one["instance_id"],
        state,
        one["capacity"],
        *counts,
        _disk(one),
        ago(one["last_heard_at"]),
        one["client_tags"],
    ]


def _tasks(body: dict[str, Any]) -> list[list[Any]]:
    held = {grant["task"]: ("active", grant["fencing_token"]) for grant in body["assignment"]["active"]}
    held |= {task: (role, None) for role in ("standby", "warmup") for task in body["assignment"][role]}
    reports = body["reports"]
    order = [*held, *(task for task in reports if task not in held)]
    rows = []
    for task in order:
        role, token = held.get(task, ("revoking" if task in body["revoking"] else None, None))
        said = reports.get(task, {})
        rate = said.get("records_per_second")
        rate = None if rate is None else round(rate)
        rows.append(
            [
                task,
                role,
                token,
                said.get("role"),
                said.get("state"),
                said.get("lag"),
                rate,
                _size(said.get("disk_bytes")),
                ago(said.get("at")),
            ]
        )
    return rows


def _disk(one: dict[str, Any]) -> str | None:
    """Return what is on a member's disk, and how much it takes at most where it said so."""
    most = _size(one.get("max_disk_bytes"))
    return _size(one["disk_bytes"]) if most is None else f"{_size(one['disk_bytes']) or '?'} of {most}"


def _size(count: int | None) -> str | None:
    return None if count is None else decimal(count)


@at_desk
def drain(
    desk: Desk,
    group: GroupName,
    member: MemberName,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="SPAN", help="Hand over what is not ready by then, as in 30s.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is empty.")] = False,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="SPAN", help="With --wait: wait no longer (exit code 1).")
    ] = None,
    reason: Why = "",
) -> None:
    """Have a member hand over all its tasks while it goes on processing them; `batonpass undrain` takes it back."""
    deadline_ms = None if deadline is None else span_ms(deadline)
    ends_at = time.monotonic() + (math.inf if timeout is None else span_ms(timeout) / 1_000)
    member_id = desk.member_of(group, member)
    call = path("groups", group, "members", member_id, "drain")
    body = desk.coordinator.call("POST", call, query={"deadline_ms": deadline_ms, "reason": reason}).body
    if wait and not body["drained"]:
        body = _follow(desk, call, body, ends_at, label=f"{group}/{member}")
    if desk.as_json:
        desk.answer({"member_id": member_id, **body})
    else:
        _tell_drain(desk, member, body)
    if wait and not body["drained"]:
        raise typer.Exit(Exit.REFUSED)


def _follow(desk: Desk, call: str, body: dict[str, Any], ends_at: float, *, label: str) -> dict[str, Any]:
    """Wait for the end of a drain, or until ``ends_at``, and return how far it has come."""
    columns = (
        TextColumn("draining {task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    total = len(body["remaining"])
    with Progress(*columns, console=desk.console, disable=desk.as_json) as progress:
        shown = progress.add_task(label, total=total)
        while not body["drained"]:
            left_ms = min(WAIT_MS, (ends_at - time.monotonic()) * 1_000)
            if left_ms <= 0:
                break
            body = _look(desk, call, int(left_ms))
            total = max(total, len(body["remaining"]))
            progress.update(shown, total=total, completed=total - len(body["remaining"]))
    return body


def _look(desk: Desk, call: str, wait_ms: int) -> dict[str, Any]:
    """Ask again; a member that has gone meanwhile has no tasks."""
    try:
        # It drains already: to be told so once more does no harm.
        found: dict[str, Any] = desk.coordinator.insist(
            lambda: desk.coordinator.call("POST", call, query={"wait_ms": wait_ms}, lasting_s=wait_ms / 1_000)
        ).body
    except Failure as failure:
        if failure.problem.get("type") in {"gone", "unknown-member", "fenced"}:
            return {"drained": True, "remaining": [], "blocked": []}
        raise
    return found


def _tell_drain(desk: Desk, member: str, body: dict[str, Any]) -> None:
    if body["drained"]:
        desk.say(f"{member} has no active left: it can be stopped.")
        return
    desk.say(f"{member} drains; it still has {len(body['remaining'])} active tasks: {', '.join(body['remaining'])}.")
    for one in body["blocked"]:
        desk.say(f"  {one['task']} is blocked: {one['reason']}")


@at_desk
def undrain(desk: Desk, group: GroupName, member: MemberName, reason: Why = "") -> None:
    """Let a draining member stay."""
    member_id = desk.member_of(group, member)
    desk.coordinator.call("DELETE", path("groups", group, "members", member_id, "drain"), query={"reason": reason})
    desk.done(f"{member} stays.", group=group, member_id=member_id)


@at_desk
def evict(
    desk: Desk,
    group: GroupName,
    member: MemberName,
    dead: Annotated[
        bool, typer.Option("--dead", help="You know that its process no longer runs: its tasks are free at once.")
    ] = False,
    reason: Why = "",
) -> None:
    """Remove a member; its tasks are free when its lease is over, or at once with --dead."""
    member_id = desk.member_of(group, member)
    call = path("groups", group, "members", member_id, "evict")
    desk.coordinator.call("POST", call, query={"dead": dead or None, "reason": reason})
    when = "at once" if dead else "when its lease is over"
    desk.done(f"{member} is evicted; its tasks are free {when}.", group=group, member_id=member_id)


@at_desk
def safe_to_stop(desk: Desk, group: GroupName, member: MemberName) -> None:
    """Ask whether a member can be stopped now without interrupting a task: exit code 0, or 1 with the reasons."""
    member_id = desk.member_of(group, member)
    try:
        body = desk.coordinator.get(path("groups", group, "members", member_id, "safe-to-stop"))
    except Failure as failure:
        if desk.as_json and failure.problem.get("type") == "not-safe-to-stop":
            reasons = failure.problem.get("errors", [])
            desk.answer({"member_id": member_id, "safe_to_stop": False, "reasons": reasons})
            raise typer.Exit(Exit.REFUSED) from None
        raise
    if desk.as_json:
        desk.answer(body)
    else:
        desk.say(f"{member} can be stopped now.")
