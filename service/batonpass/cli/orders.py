"""The short orders of operators: `probe`, `pause`, `resume`, `pin`, `unpin`, `release`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from batonpass.cli.desk import Desk, GroupName, MemberName, TaskName, Why, at_desk
from batonpass.cli.rest import path
from batonpass.cli.spans import span_ms


@at_desk
def probe(desk: Desk, group: GroupName, reason: Why = "") -> None:
    """Look now whether warmups have caught up, instead of when it is time."""
    desk.coordinator.call("POST", path("groups", group, "probe"), query={"reason": reason})
    desk.done(f"Group {group} was looked at.", group=group)


@at_desk
def pause(
    desk: Desk,
    group: GroupName,
    everything: Annotated[
        bool, typer.Option("--all", help="Hold recovery and drains too, not only moves made for balance.")
    ] = False,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="Go on by itself after this long, as in 30m.")
    ] = None,
    reason: Why = "",
) -> None:
    """Hold moves: those made for balance, or all of them."""
    body: dict[str, str] = {"scope": "all" if everything else "balance", "reason": reason}
    if lasting is not None:
        end = datetime.now(UTC) + timedelta(milliseconds=span_ms(lasting))
        body["expires_at"] = end.isoformat(timespec="milliseconds")
    desk.coordinator.call("POST", path("groups", group, "pause"), body=body)
    what = "All moves" if everything else "Moves made for balance"
    until = f"for {lasting}" if lasting else f"until `batonpass resume {group}`"
    desk.done(f"{what} of group {group} are held {until}.", group=group, **body)


@at_desk
def resume(desk: Desk, group: GroupName, reason: Why = "") -> None:
    """End a pause, and a storm."""
    desk.coordinator.call("POST", path("groups", group, "resume"), query={"reason": reason})
    desk.done(f"Group {group} goes on.", group=group)


@at_desk
def pin(desk: Desk, group: GroupName, task: TaskName, member: MemberName, reason: Why = "") -> None:
    """Bind a task to a member: it stays there, or moves there, warm."""
    member_id = desk.member_of(group, member)
    body = {"member": member_id, "reason": reason}
    desk.coordinator.call("PUT", path("groups", group, "tasks", task, "pin"), body=body)
    desk.done(f"Task {task} is bound to {member}.", group=group, task=task, member_id=member_id)


@at_desk
def unpin(desk: Desk, group: GroupName, task: TaskName, reason: Why = "") -> None:
    """Take the pin off a task."""
    desk.coordinator.call("DELETE", path("groups", group, "tasks", task, "pin"), query={"reason": reason})
    desk.done(f"Task {task} may go where it belongs.", group=group, task=task)


@at_desk
def release(desk: Desk, group: GroupName, task: TaskName, reason: Why = "") -> None:
    """Let a parked task be tried again."""
    desk.coordinator.call("POST", path("groups", group, "tasks", task, "release"), query={"reason": reason})
    desk.done(f"Task {task} may be tried again.", group=group, task=task)
