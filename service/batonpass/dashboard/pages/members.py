"""Members: the list, and one of them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import Response

from batonpass.client import Refused
from batonpass.dashboard.desk import Visit
from batonpass.dashboard.shapes.grid import LEGEND
from batonpass.dashboard.shapes.happenings import happenings
from batonpass.dashboard.shapes.members import held_by, matching, member_lines, reasons_against

PAGE: Final = 100
HELD_SHOWN: Final = 300
EVENTS_SEARCHED: Final = 500
EVENTS_SHOWN: Final = 12


async def show_members(visit: Visit) -> Response:
    """Show the members of a group, those that something is the matter with first."""
    group, members = await asyncio.gather(visit.line.get(visit.at()), visit.line.members(visit.group))
    lines = member_lines(members, group["config"]["acceptable_recovery_lag"], visit.line.names)
    text = visit.asked("q")
    chosen = matching(lines, text) if text else lines
    begin = visit.asked_number("begin", 0)
    return visit.show(
        "members.html",
        title="Members",
        tab="members",
        lines=chosen[begin : begin + PAGE],
        total=len(chosen),
        everybody=len(lines),
        begin=begin,
        page=PAGE,
        q=text,
    )


async def show_member(visit: Visit) -> Response:
    """Show one member: what it has, whether it can be stopped, and what can be done with it."""
    member_id = str(visit.request.path_params["member"])
    group, events = await asyncio.gather(
        visit.line.get(visit.at()), visit.line.get(visit.at("events"), newest="true", limit=EVENTS_SEARCHED)
    )
    names = visit.line.names
    own = [one for one in events["events"] if member_id in {one["member"], (one["body"] or {}).get("from")}]
    common: dict[str, Any] = {
        "tab": "members",
        "member_id": member_id,
        "happenings": happenings(own[:EVENTS_SHOWN], names),
        "searched": len(events["events"]),
    }
    try:
        member = await visit.line.get(visit.at("members", member_id))
    except Refused as refused:
        if refused.kind not in {"gone", "fenced", "unknown-member", "fenced-instance-id"}:
            raise
        return visit.show("member_gone.html", title=names(member_id), said=str(refused), **common)
    names.learn(member_id, member["instance_id"])
    held = held_by(member, group["config"]["acceptable_recovery_lag"], names)
    return visit.show(
        "member.html",
        title=names(member_id),
        member=member,
        held=held[:HELD_SHOWN],
        held_more=max(len(held) - HELD_SHOWN, 0),
        against=await _against(visit, member_id),
        legend=LEGEND,
        **common,
    )


async def _against(visit: Visit, member_id: str) -> list[tuple[str, str]] | None:
    """Return why a member cannot be stopped now, nothing where it can; None where nobody knows."""
    try:
        await visit.line.get(visit.at("members", member_id, "safe-to-stop"))
    except Refused as refused:
        return reasons_against(refused.problem) if refused.kind == "not-safe-to-stop" else None
    return []
