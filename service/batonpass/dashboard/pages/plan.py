"""What if: for example two more pods, one drained, or another setting."""

import asyncio
from collections import Counter
from typing import Any

from starlette.responses import Response

from batonpass.client import Refused
from batonpass.dashboard.request_context import RequestContext
from batonpass.dashboard.view_models import plans
from batonpass.dashboard.view_models.grid import natural


async def show_plan(context: RequestContext) -> Response:
    """Ask the coordinator for the results of a change, and show them beside the present state. Nothing changes."""
    params = context.request.query_params
    asked = {name: value.strip() for name, value in params.items()}
    drain, leave = params.getlist("drain"), params.getlist("leave")
    group, members, (plan, said) = await asyncio.gather(
        context.client.get(context.at()), context.client.members(context.group), _planned(context, asked, drain, leave)
    )
    names = context.client.names
    moved = plans.moves(members, plan) if plan else []
    compared = plans.before_and_after(members, plan, names) if plan else []
    return context.show(
        "plan.html",
        live=False,
        members=sorted((str(one["member_id"]) for one in members), key=lambda one: natural(names(one))),
        config=group["config"],
        settings=plans.NUMBERS,
        asked=asked,
        drain=drain,
        leave=leave,
        said=said,
        plan=plan,
        moves=context.part(moved, name="move"),
        for_load=context.part(plan.get("for_load", []) if plan else [], name="for"),
        most=max((max(one.now, one.then) for one in compared), default=1) or 1,
        compared=context.part(compared, name="member"),
        held=Counter(one["reason"] for one in plan["held_back"]).most_common() if plan else [],
    )


async def _planned(
    context: RequestContext, asked: dict[str, str], drain: list[str], leave: list[str]
) -> tuple[dict[str, Any] | None, str]:
    """Return the plan, None if nothing was asked for (not even ``load``); or what is wrong with the question."""
    try:
        change = plans.wanted(asked, [one for one in drain if one], [one for one in leave if one])
        return await context.client.look(context.at("plan"), **change) if change or "load" in asked else None, ""
    except ValueError as error:
        return None, str(error)
    except Refused as refused:
        if refused.status in {401, 403}:
            raise
        return None, str(refused)
