"""The short commands for operators: `probe`, `pause`, `resume`, `pin`, `unpin`, `release`."""

from typing import Annotated, Any

import typer

from batonpass.cli.client_context import ClientContext, GroupName, MemberName, TaskName, Why, client_command
from batonpass.cli.spans import span_ms
from batonpass.client import path


@client_command
async def probe(context: ClientContext, group: GroupName, reason: Why = "") -> None:
    """Check now whether warmups have caught up, instead of at the next probing rebalance."""
    await context.client.call("POST", path("groups", group, "probe"), query={"reason": reason})
    context.done(f"Group {group} was probed.", group=group)


@client_command
async def pause(
    context: ClientContext,
    group: GroupName,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Also hold drains, moves of failed tasks and new copies, not only moves for balance."
        ),
    ] = False,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="Resume automatically after this time, as in 30m.")
    ] = None,
    reason: Why = "",
) -> None:
    """Hold moves: those made for balance, or with --all all of them."""
    body: dict[str, Any] = {"scope": "all" if everything else "balance", "reason": reason}
    if lasting is not None:
        body["for_ms"] = span_ms(lasting)
    await context.client.call("POST", path("groups", group, "pause"), body=body)
    what = "All moves" if everything else "Moves made for balance"
    until = f"for {lasting}" if lasting else f"until `batonpass resume {group}`"
    context.done(f"{what} of group {group} are held {until}.", group=group, **body)


@client_command
async def resume(context: ClientContext, group: GroupName, reason: Why = "") -> None:
    """End a pause, and a storm."""
    await context.client.call("POST", path("groups", group, "resume"), query={"reason": reason})
    context.done(f"Group {group} is resumed.", group=group)


@client_command
async def pin(context: ClientContext, group: GroupName, task: TaskName, member: MemberName, reason: Why = "") -> None:
    """Bind a task to a member: it stays there, or moves there by a warm handover."""
    member_id = await context.member_of(group, member)
    body = {"member": member_id, "reason": reason}
    await context.client.call("PUT", path("groups", group, "tasks", task, "pin"), body=body)
    context.done(f"Task {task} is bound to {member}.", group=group, task=task, member_id=member_id)


@client_command
async def unpin(context: ClientContext, group: GroupName, task: TaskName, reason: Why = "") -> None:
    """Take the pin off a task."""
    await context.client.call("DELETE", path("groups", group, "tasks", task, "pin"), query={"reason": reason})
    context.done(f"Task {task} is no longer bound to a member.", group=group, task=task)


@client_command
async def release(context: ClientContext, group: GroupName, task: TaskName, reason: Why = "") -> None:
    """Forget where a task failed: a parked one is tried again, and any member may have it."""
    await context.client.call("POST", path("groups", group, "tasks", task, "release"), query={"reason": reason})
    context.done(f"What failed is forgotten: task {task} may run on any member.", group=group, task=task)
