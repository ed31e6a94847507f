"""Declaring, changing, deleting and showing groups (protocol 2.1 to 2.5)."""

import threading
import time
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.admission import AdmissionPolicy
from batonpass.api.context import Disconnected, context_of
from batonpass.api.offload import aside, show, size_of
from batonpass.api.openapi import route
from batonpass.api.service import command_without_answer, group_of, json_response, read_query, service_of, view_of
from batonpass.codec.bodies import DeletionQuery, GroupBody, PageQuery, ReasonBody, WhatIfBody
from batonpass.codec.requests import etag, read_declaration, read_if_match, read_what_if
from batonpass.codec.snapshots import write_plan, write_snapshot
from batonpass.codec.views import assignments_body, group_body, group_summary
from batonpass.core.handover.view import View
from batonpass.core.state.errors import UnknownGroup
from batonpass.core.state.inputs import GroupDeletion
from batonpass.core.state.replies import Declared
from batonpass.dry_run.load import moves_for_load
from batonpass.dry_run.plan import plan_snapshot
from batonpass.dry_run.whatif import balance_now, balance_then, imagine
from batonpass.explain.advice import advice_on
from batonpass.explain.health import describe
from batonpass.explain.status import describe_assignments, snapshot_of
from batonpass.placement.flow import Ints

router = APIRouter(prefix="/v1", tags=["groups"])
GROUP = "/groups/{group}"
WAITS_S, LOOK_AGAIN_S = 10.0, 0.02
"""How long each part of a dry run waits for decisions on large groups at most, and how often it looks."""


@route(
    router,
    "PUT",
    GROUP,
    body=GroupBody,
    query=ReasonBody,
    answers={201: "Created.", 200: "Changed."},
    schema="group_get",
    headers=("If-Match",),
    answer_headers=("ETag",),
)
async def declare_group(request: Request) -> Response:
    """Create a group, or change it; a change needs If-Match with the last ETag."""
    service = service_of(request)
    group_id = group_of(request)
    asked = read_query(request, ReasonBody)
    wanted, reason = await context_of(request).read(partial(read_declaration, group_id, if_match=None))
    wanted = replace(wanted, if_match=read_if_match(request.headers.get("if-match"), await _revision(request)))
    declared = await service.command(request, wanted, Declared, reason=reason or asked.reason)
    return await _show(request, status=201 if declared.created else 200, is_owed=True)


@route(
    router,
    "GET",
    "/groups",
    query=PageQuery,
    answers={200: "A page of groups; `next` is where to go on, or null."},
    schema="groups_get",
)
async def list_groups(request: Request) -> Response:
    """List the groups of all coordinators by name."""
    coordinator = service_of(request).coordinator
    asked = read_query(request, PageQuery)
    names_here = await coordinator.declared(after=asked.after, limit=asked.limit + 1)
    here = [View(*await coordinator.look(group_id), coordinator.now_ms()) for group_id in names_here]
    found = await aside(
        request,
        sum(size_of(view.group) for view in here),
        lambda: [group_summary(one.group, *describe(one)) for one in here],
    )
    policy: AdmissionPolicy = request.app.state.policy
    pages = await policy.forwarder.ask_all(context_of(request), policy.ownership.others())
    found += [group for page in pages for group in page["groups"]]
    # A group whose owner changes just now may be on two pages, or on none.
    named = {group["group"]: group for group in found}
    names = sorted(named)[: asked.limit]
    more = len(named) > len(names) or any(page["next"] is not None for page in pages)
    return json_response({"groups": [named[name] for name in names], "next": names[-1] if more and names else None})


@route(
    router,
    "GET",
    GROUP,
    answers={200: "The group; its ETag is the one to change it with."},
    schema="group_get",
    answer_headers=("ETag",),
)
async def show_group(request: Request) -> Response:
    """Show a group: its declaration, where it stands, and what is held back and why."""
    return await _show(request)


@route(
    router,
    "GET",
    GROUP + "/assignment",
    answers={200: "Target, intermediate and current assignment."},
    schema="assignment_get",
)
async def show_assignment(request: Request) -> Response:
    """Show where tasks belong, where the present step takes them, and who holds them now."""
    view = await view_of(request)

    def work() -> dict[str, Any]:
        found = describe_assignments(view)
        return {"group": view.group.id, "generation": view.group.generation} | assignments_body(found)

    return await show(request, size_of(view.group), work)


@route(router, "DELETE", GROUP, body=ReasonBody, query=DeletionQuery, answers={204: "Deleted."})
async def delete_group(request: Request) -> Response:
    """Delete a group without members, or with them when forced; its epochs and highest fencing token are kept."""
    asked = read_query(request, DeletionQuery)
    return await command_without_answer(request, GroupDeletion(force=asked.force), asked.reason)


@route(
    router,
    "GET",
    GROUP + "/snapshot",
    answers={200: "The group as a file for `batonpass plan --snapshot`."},
    schema="snapshot",
)
async def show_snapshot(request: Request) -> Response:
    """Write the group as a snapshot, on which `batonpass plan` decides without a server."""
    view = await view_of(request)
    return await show(request, size_of(view.group), lambda: write_snapshot(snapshot_of(view)))


@route(
    router,
    "POST",
    GROUP + "/plan",
    body=WhatIfBody,
    answers={200: "What would come of it. Nothing has changed."},
    schema="plan_answer",
)
async def plan_change(request: Request) -> Response:
    """Say what would move if members joined, left or drained, or if the config were another."""
    service = service_of(request)
    change = await context_of(request).read(read_what_if)
    view = await view_of(request)

    is_over = threading.Event()

    def go_on() -> None:
        # Threads share the interpreter, so that beside this one a decision would take twice as long.
        end = time.monotonic() + WAITS_S
        while service.coordinator.is_deciding() and time.monotonic() < end and not is_over.wait(LOOK_AGAIN_S):
            pass
        if is_over.is_set():
            raise Disconnected

    def solve(*network: Ints) -> Ints:
        go_on()
        return service.solver(*network)

    def work() -> dict[str, Any]:
        go_on()
        present = snapshot_of(view)
        go_on()
        imagined = imagine(present, change, max_members=service.coordinator.policy.max_members)
        go_on()
        started = time.perf_counter()
        plan = plan_snapshot(imagined, solve)
        go_on()
        answer = write_plan(plan, decide_ms=(time.perf_counter() - started) * 1_000)
        moves = moves_for_load(view, solve)
        for_load = [{"task": task, "from": view.tasks[task].target.owner, "to": to} for task, to in moves.items()]
        balance = {"before": asdict(balance_now(present)), "after": asdict(balance_then(imagined, plan))}
        return answer | {"balance": balance, "for_load": for_load}

    try:
        return await show(request, None, work)
    finally:
        is_over.set()


async def _show(request: Request, *, status: int = 200, is_owed: bool = False) -> Response:
    """Answer with the group of the path, and with the ETag that a change needs."""
    view = await view_of(request)

    def work() -> dict[str, Any]:
        warnings = advice_on(view, service_of(request).coordinator.policy)
        return group_body(view.group, *describe(view), warnings)

    headers = {"etag": etag(view.group.revision)}
    return await show(request, size_of(view.group), work, status=status, headers=headers, is_owed=is_owed)


async def _revision(request: Request) -> int | None:
    """Return the present revision of the group; None when it is not declared."""
    try:
        group, _ = await service_of(request).coordinator.look(group_of(request))
    except UnknownGroup:
        return None
    return group.revision if group.declared else None
