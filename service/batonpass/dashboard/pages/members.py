"""Members: the list, and one of them."""

import asyncio
from typing import Any, Final

from starlette.responses import Response

from batonpass.client import Refused
from batonpass.dashboard.request_context import RequestContext
from batonpass.dashboard.view_models.events import event_lines
from batonpass.dashboard.view_models.members import (
    COLUMNS,
    REPORTED,
    SORTS,
    TONES,
    filled,
    held_by,
    matching,
    member_lines,
)
from batonpass.dashboard.words import counted

EVENTS_SHOWN: Final = 12
AGAINST: Final = 12
_WHY_GONE: Final = {
    "gone": "It has left, or its lease has run out.",
    "fenced": "It did not confirm in time that it had given tasks up, and was put out of the group.",
    "fenced-instance-id": "A newer process of the same instance has taken its place.",
    "unknown-member": "The group knows no member of this id: it may have left long ago, or the id has a typo.",
}
"""By the problem that a call on a member is refused with, whose own words are for the worker."""


async def show_members(context: RequestContext) -> Response:
    """Show the members of a group, members with a problem first."""
    group, members = await asyncio.gather(context.client.get(context.at()), context.client.members(context.group))
    lines = member_lines(members, group["config"]["acceptable_recovery_lag"], context.client.names)
    text, tone, by = context.asked("q"), context.asked("tone"), context.asked("sort")
    by = by if by in SORTS else next(iter(SORTS))
    found = matching(lines, text)
    return context.show(
        "members.html",
        lines=context.part(sorted((one for one in found if tone in ("", one.tone)), key=SORTS[by])),
        everybody=len(lines),
        columns={title: cell for title, cell in filled(COLUMNS, members).items() if title != "load"},
        most=max((one.load for one in lines), default=0) or 1,
        tones=counted(TONES, (one.tone for one in found)),
        tone=tone,
        sort=by,
        sorts=list(SORTS),
        q=text,
    )


async def show_member(context: RequestContext) -> Response:
    """Show one member: what it has, whether it can be stopped, and what can be done with it."""
    member_id = str(context.request.path_params["member"])
    group, events = await asyncio.gather(context.client.get(context.at()), context.client.newest_events(context.group))
    names = context.client.names
    own = [one for one in events["events"] if member_id in {one["member"], (one["body"] or {}).get("from")}]
    common: dict[str, Any] = {
        "member_id": member_id,
        "event_lines": event_lines(own[:EVENTS_SHOWN], names),
        "searched": len(events["events"]),
    }
    try:
        member = await context.client.get(context.at("members", member_id))
    except Refused as refused:
        if refused.kind not in _WHY_GONE:
            raise
        return context.show("member_gone.html", title=names(member_id), why=_WHY_GONE[refused.kind], **common)
    names.learn(member_id, member["instance_id"])
    against = await _against(context, member_id)
    held = held_by(member, group["config"]["acceptable_recovery_lag"], names)
    return context.show(
        "member.html",
        title=names(member_id),
        member=member,
        held=context.part(held),
        reported=REPORTED,
        against=None if against is None else context.part(against, AGAINST, "against"),
        **common,
    )


async def _against(context: RequestContext, member_id: str) -> list[tuple[str, str]] | None:
    """Return why a member cannot be stopped now, empty if it can; None if that is unknown."""
    try:
        await context.client.get(context.at("members", member_id, "safe-to-stop"))
    except Refused as refused:
        errors = refused.problem.get("errors", [])
        found = [(str(one.get("path", "")), str(one.get("reason", ""))) for one in errors]
        return found if refused.kind == "not-safe-to-stop" else None
    return []
