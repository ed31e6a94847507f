"""Looking back: generations, the audit trail, and the history of a task."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.context import context_of
from batonpass.api.offload import aside, show, size_of
from batonpass.api.openapi import route
from batonpass.api.problems import UnknownPath
from batonpass.api.service import json_response, known_group_of, page, read_query, service_of, task_of, view_of
from batonpass.codec.answers import rfc3339, time_of
from batonpass.codec.bodies import BackQuery, LagsQuery, LimitQuery, given
from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation, Moved
from batonpass.codec.shape import refusal
from batonpass.codec.views import group_explanation_body, route_body, task_explanation_body
from batonpass.core.arrivals.answers import no_such_task
from batonpass.core.state.ids import GroupId, TaskId
from batonpass.core.state.model import Group, Task
from batonpass.explain.group import explain_group
from batonpass.explain.task import copies_of, explain_task
from batonpass.runtime.history import StoredCommand
from batonpass.runtime.ports import Archive
from batonpass.runtime.runs_of import Run, runs_of

router = APIRouter(prefix="/v1", tags=["history"])
GROUP = "/groups/{group}"
CHANGES_LOOKED_AT = 100
PLACEMENTS_LOOKED_AT = 5
TASK = GROUP + "/tasks/{task}"
NUMBER_MAX = 2**63 - 1


@route(
    router,
    "GET",
    GROUP + "/generations",
    query=BackQuery,
    answers={200: "Generations, newest first."},
    schema="generations_get",
)
async def list_generations(request: Request) -> Response:
    """List the generations of a group: when and why each was made, how much it moved, how even it left the group."""
    archive, group_id = service_of(request).coordinator.archive, await known_group_of(request)
    asked = read_query(request, BackQuery)
    with context_of(request).history():
        found = await archive.generations(group_id, before=given(asked.before), limit=asked.limit + 1)
    return page("generations", found, asked.limit, generation_body, lambda one: one.number)


@route(
    router,
    "GET",
    GROUP + "/generations/{number}",
    answers={200: "The generation with its difference."},
    schema="generation_get",
)
async def show_generation(request: Request) -> Response:
    """Show a generation: its trigger, its reasons, and every task whose target it changed."""
    group_id = await known_group_of(request)
    number = request.path_params["number"]
    if re.fullmatch(r"[0-9]{1,19}", number) is None or int(number) > NUMBER_MAX:
        raise refusal([("path.number", "not the number of a generation")])
    with context_of(request).history():
        found = await service_of(request).coordinator.archive.generation(group_id, int(number))
    if found is None:
        raise UnknownPath(f"group {group_id} has no generation {number}, or it is no longer kept")
    return await show(request, len(found.moved), lambda: generation_body(found) | {"diff": diff_body(found.moved)})


@route(
    router,
    "GET",
    GROUP + "/lags",
    query=LagsQuery,
    answers={200: "How far copies were behind, oldest first."},
    schema="lags_get",
)
async def list_lags(request: Request) -> Response:
    """Say how many records the copies of a group lacked, added up, over a time, by the samples of each minute."""
    group_id, asked = await known_group_of(request), read_query(request, LagsQuery)
    coordinator = service_of(request).coordinator
    until = given(asked.until) or datetime.fromtimestamp(coordinator.now_ms() / 1_000, UTC)
    since, until = _in_utc("since", asked.since), _in_utc("until", until)
    if until <= since:
        raise refusal([("query.since", "not before its end")])
    with context_of(request).history():
        found = await coordinator.archive.lags(group_id, since=since, until=until, limit=asked.limit)
    return json_response({"lags": [{"at": rfc3339(at_ms), "behind": behind} for at_ms, behind in found]})


def _in_utc(name: str, instant: datetime) -> datetime:
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise refusal([(f"query.{name}", "not within the years 1 to 9999 of UTC")]) from None


@route(
    router,
    "GET",
    GROUP + "/commands",
    query=BackQuery,
    answers={200: "Mutating calls, newest first."},
    schema="commands_get",
)
async def group_commands(request: Request) -> Response:
    """Show the audit trail of a group: who asked for what, when, and why."""
    return await _commands(request, await known_group_of(request))


@route(
    router, "GET", "/commands", query=BackQuery, answers={200: "Mutating calls, newest first."}, schema="commands_get"
)
async def all_commands(request: Request) -> Response:
    """Show the audit trail of all groups: who asked for what, when, and why."""
    return await _commands(request, None)


async def _commands(request: Request, group_id: GroupId | None) -> Response:
    asked = read_query(request, BackQuery)
    archive = service_of(request).coordinator.archive
    with context_of(request).history():
        found = await archive.commands(group_id, before=given(asked.before), limit=asked.limit + 1)
    return page("commands", found, asked.limit, command_body, lambda one: one.position)


@route(router, "GET", TASK, query=LimitQuery, answers={200: "The task, its runs and its changes."}, schema="task_get")
async def show_task(request: Request) -> Response:
    """Show a task: where it is, why, since when, every run that it had, and its last changes."""
    asked = read_query(request, LimitQuery)
    body, changes = await _explained(request, limit=asked.limit)
    runs = [run_body(run) for run in reversed(runs_of(reversed(changes)))]
    return json_response(body | {"runs": runs, "history": [change_body(one) for one in changes]})


@route(
    router,
    "GET",
    TASK + "/explain",
    answers={200: "Why the task is where it is, and what it waits for."},
    schema="task_explain",
)
async def task_explanation(request: Request) -> Response:
    """Explain a task: why it is where it is, what it waits for, from whom and until when."""
    body, changes = await _explained(request, limit=CHANGES_LOOKED_AT)
    runs = runs_of(reversed(changes))
    return json_response(body | {"last_run": run_body(runs[-1]) if runs else None})


@route(router, "GET", TASK + "/route", answers={200: "Who serves the task, and who stands by."}, schema="route_get")
async def show_route(request: Request) -> Response:
    """Say where a task is served: the endpoint of its active, and those of its standbys with their lag."""
    view = await view_of(request)
    task = view.tasks[_present(view.group, task_of(request))]
    return json_response(route_body(view.group, task, tuple(copies_of(view, task))))


@route(
    router,
    "GET",
    GROUP + "/explain",
    query=LimitQuery,
    answers={200: "Why nothing moves, or what does."},
    schema="group_explain",
)
async def group_explanation(request: Request) -> Response:
    """Explain a group: what is held back and why, which slots are taken, whom it waits for, and until when."""
    asked = read_query(request, LimitQuery)
    view = await view_of(request)

    def work() -> dict[str, object]:
        return group_explanation_body(view.group, explain_group(view, limit=asked.limit), limit=asked.limit)

    return await show(request, size_of(view.group), work)


def _present(group: Group, task_id: TaskId) -> TaskId:
    if task_id not in group.table.index_of:
        raise UnknownPath(no_such_task(group, task_id))
    return task_id


async def _explained(request: Request, *, limit: int) -> tuple[dict[str, object], Sequence[Change]]:
    """Return the explanation of the task that the path names, with its last changes, newest first."""
    view = await view_of(request)
    group, task_id = view.group, _present(view.group, task_of(request))

    def work() -> dict[str, object]:
        return task_explanation_body(group, explain_task(view, task_id))

    size = size_of(group) if task_id in group.unsettled else 1
    body = await aside(request, size, work)
    archive = service_of(request).coordinator.archive
    with context_of(request).history():
        changes = await archive.task_changes(group.id, task_id, limit=limit)
        placed = await _last_placement(archive, group, group.tasks[task_id], changes)
    return body | {"last_placement": placed}, changes


async def _last_placement(
    archive: Archive, group: Group, task: Task, changes: Sequence[Change]
) -> dict[str, object] | None:
    """Return the generation that gave a task its target; None if it is not among those that are looked at.

    The target's first copy was granted under that generation, or not long after it.
    """
    granted = (one.generation for one in changes if one.kind == "granted" and one.member == task.target.owner)
    newest = next(granted, group.generation)
    for number in range(newest, max(0, newest - PLACEMENTS_LOOKED_AT), -1):
        made = await archive.generation(group.id, number)
        line = next((one for one in made.moved if one.task == task.id), None) if made is not None else None
        if made is not None and line is not None:
            return placement_body(made, line)
    return None


def generation_body(generation: Generation) -> dict[str, Any]:
    """Return a generation: when and why it was made, how much it moved, and how even it left the group."""
    return {
        "generation": generation.number,
        "group_epoch": generation.group_epoch,
        "at": rfc3339(generation.at_ms),
        "triggers": list(generation.triggers),
        "members": generation.members,
        "tasks": generation.tasks,
        "moves": generation.moves,
        "lower_bound": generation.lower_bound,
        "warmups": generation.warmups,
        "imbalance": {"before": generation.score_before, "after": generation.score},
        "decide_ms": round(generation.decide_ms, 3),
        "reasons": [one._asdict() for one in generation.reasons],
    }


def diff_body(moved: tuple[Moved, ...]) -> list[dict[str, Any]]:
    """Return the tasks whose target changed, with the targets before and after."""
    return [
        {
            "task": one.task,
            "from": one.owner_before,
            "to": one.owner,
            "standbys_before": list(one.standbys_before),
            "standbys": list(one.standbys),
            "why": str(one.why),
        }
        for one in moved
    ]


def placement_body(generation: Generation, line: Moved) -> dict[str, Any]:
    """Return which generation gave a task its target, with its triggers, and why the task got that target."""
    return {
        "generation": generation.number,
        "at": rfc3339(generation.at_ms),
        "triggers": list(generation.triggers),
        "from": line.owner_before,
        "to": line.owner,
        "why": str(line.why),
    }


def change_body(change: Change) -> dict[str, Any]:
    return {
        "at": rfc3339(change.at_ms),
        "member": change.member,
        "kind": change.kind,
        "role_before": str(change.role_before),
        "role": str(change.role),
        "state": str(change.state) or None,
        "generation": change.generation,
        "member_epoch": change.member_epoch,
        "fencing_token": change.token,
        "warm": change.warm,
        "why": str(change.why),
    }


def run_body(run: Run) -> dict[str, Any]:
    return {
        "member": run.member,
        "fencing_token": run.token,
        "generation": run.generation,
        "granted_at": time_of(run.granted_ms),
        "running_at": time_of(run.running_ms),
        "stopped_at": time_of(run.stopped_ms),
        "ended": str(run.ended) or None,
        "warm": run.warm,
        "why": str(run.why),
        "gap_ms": run.gap_ms,
        "gap_is_lower_bound": run.gap_is_lower_bound,
        "gap_at_most_ms": run.gap_at_most_ms,
    }


def command_body(command: StoredCommand) -> dict[str, Any]:
    asked = command.asked
    return {
        "position": command.position,
        "at": rfc3339(command.at_ms),
        "group": command.group,
        "command": asked.command,
        "who": asked.who,
        "reason": asked.reason,
        "cause": asked.cause,
        "subject": dict(command.subject),
    }
