"""Explanations and routes as the API shows them."""

from __future__ import annotations

from typing import Any

from batonpass.codec.answers import rfc3339
from batonpass.codec.views import count_by_reason, held_back_body, pause_body
from batonpass.core.explain.group import Budget, GroupExplanation, Obstacle, WaitingTask
from batonpass.core.explain.task import CopyStatus, TaskExplanation, Wait
from batonpass.core.model import Group, Stop, Task


def time_of(at_ms: int | None) -> str | None:
    """Return an instant as bodies write it."""
    return None if at_ms is None else rfc3339(at_ms)


def task_explanation_body(group: Group, found: TaskExplanation) -> dict[str, Any]:
    """Return where a task is, why, since when, and what it waits for."""
    task = found.task
    owner = group.members.get(task.owner) if task.owner is not None else None
    return {
        "group": group.id,
        "generation": group.generation,
        "task": task.id,
        "stateful": found.stateful,
        "weight": found.weight,
        "state": found.state.value,
        "owner": task.owner,
        "endpoint": owner.endpoint if owner is not None else None,
        "since": time_of(task.since_ms or None),
        "fencing_token": task.token,
        "target": task.target,
        "target_standbys": list(task.target_standbys),
        "to": found.to,
        "why": found.why.value,
        "held_back": held_back_body((found.held,))[0] if found.held is not None else None,
        "copies": [_copy_body(one) for one in found.copies],
        "waits_for": [_wait_body(one) for one in found.waits],
        "stopped": _stop_body(task.stop),
        "pin": task.pin,
        "parked": task.parked,
        "failures": [{"member": one.member_id, "at": rfc3339(one.at_ms)} for one in task.failures],
        "sentences": list(found.sentences),
    }


def _copy_body(copy: CopyStatus) -> dict[str, Any]:
    return {
        "member": copy.member_id,
        "role": copy.role,
        "readiness": copy.readiness,
        "lag": copy.lag,
        "records_per_second": copy.rate,
        "eta_ms": copy.eta_ms,
        "progress_at": time_of(copy.progress_ms),
        "stalled_until": time_of(copy.stalled_until_ms),
    }


def _wait_body(wait: Wait) -> dict[str, Any]:
    return {
        "what": wait.what.value,
        "member": wait.member_id,
        "until": time_of(wait.until_ms),
        "eta_ms": wait.eta_ms,
        "detail": wait.detail,
    }


def _stop_body(stop: Stop | None) -> dict[str, Any] | None:
    """Return how the last run of a task ended that does not run again yet; ``at`` is null while it may still run."""
    return None if stop is None else {"member": stop.member_id, "at": time_of(stop.at_ms), "cause": stop.cause}


def group_explanation_body(group: Group, found: GroupExplanation, *, limit: int) -> dict[str, Any]:
    """Return why a group is where it is, and what it waits for; at most ``limit`` of the moves that are held back."""
    status = found.status
    return {
        "group": group.id,
        "state": status.state.value,
        "detail": status.detail,
        "at_rest": status.at_rest,
        "group_epoch": group.group_epoch,
        "generation": group.generation,
        "sentences": list(found.sentences),
        "tasks": {state.value: count for state, count in found.states.items()},
        "moves_pending": status.moves_pending,
        "eta_ms": status.eta_ms,
        "next_probe_at": time_of(status.next_probe_ms),
        "next_placement_at": time_of(found.due_ms),
        "triggers": list(found.triggers),
        "pause": pause_body(group.pause),
        "storm_since": time_of(group.storm_since_ms),
        "grants_held_until": time_of(found.held_until_ms),
        "judges_from": time_of(found.judges_from_ms),
        "budgets": {
            "warmups": _budget_body(found.warmups),
            "drain_warmups": _budget_body(found.drain_warmups),
            "warmups_per_member": {"limit": found.per_member_limit, "full": list(found.full_members)},
        },
        "members": [_obstacle_body(one) for one in found.obstacles],
        "held_back": held_back_body(status.held_back[:limit]),
        "held_back_by_reason": count_by_reason(status.held_back),
        "waiting": [_waiting_body(one) for one in found.waiting],
        "waiting_total": found.waiting_total,
    }


def _budget_body(budget: Budget) -> dict[str, int]:
    return {"used": budget.used, "limit": budget.limit}


def _obstacle_body(one: Obstacle) -> dict[str, Any]:
    return {
        "member": one.member_id,
        "what": one.what,
        "tasks": one.tasks,
        "since": time_of(one.since_ms),
        "until": time_of(one.until_ms),
        "detail": one.detail,
    }


def _waiting_body(one: WaitingTask) -> dict[str, Any]:
    return {
        "task": one.task,
        "state": one.state.value,
        "held_back": held_back_body((one.held,))[0] if one.held is not None else None,
        "waits_for": [_wait_body(wait) for wait in one.waits],
    }


def route_body(group: Group, task: Task, copies: tuple[CopyStatus, ...]) -> dict[str, Any]:
    """Return who serves a task now, and who could: the endpoint of each, as its member gave it on joining."""
    endpoints = {one: member.endpoint for one in group.members if (member := group.members.get(one)) is not None}
    active = None
    if task.owner is not None:
        active = {
            "member": task.owner,
            "endpoint": endpoints.get(task.owner),
            "state": task.state.value,
            "fencing_token": task.token,
        }
    standbys = [
        {
            "member": one.member_id,
            "endpoint": endpoints.get(one.member_id),
            "lag": one.lag,
            "caught_up": one.readiness == "caught-up",
        }
        for one in copies
        if one.role == "standby"
    ]
    return {"group": group.id, "generation": group.generation, "task": task.id, "active": active, "standbys": standbys}
