"""Groups and members as the API shows them: the bodies of what can only be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from batonpass.codec.answers import assignment_body, positions_body, rfc3339
from batonpass.core.budget import HeldBack
from batonpass.core.explain.status import Assignments, GroupStatus
from batonpass.core.ids import MemberId, TaskId, task_sort_key
from batonpass.core.model import Group, Member, Pause, Topology
from batonpass.core.policy import GroupConfig
from batonpass.core.soft import MeasuredReport, MemberSoft, Soft

HELD_BACK_SHOWN: Final = 1_000
"""How many moves that are held back a group's own description lists; all of them are counted by reason."""


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)


def group_summary(group: Group, status: GroupStatus) -> dict[str, Any]:
    """Return one entry of the list of groups."""
    return {
        "group": group.id,
        "state": status.state.value,
        "group_epoch": group.group_epoch,
        "generation": group.generation,
        "members": status.members,
        "tasks": status.tasks,
        "paused": group.pause is not None,
        "at_rest": status.at_rest,
        "warmups": status.warmups,
        "moves_pending": status.moves_pending,
    }


def group_body(group: Group, status: GroupStatus, warnings: tuple[str, ...]) -> dict[str, Any]:
    """Return a group with where it stands and what it waits for."""
    return group_summary(group, status) | {
        "detail": status.detail,
        "topology": topology_body(group.topology),
        "config": config_body(group.config),
        "eta_ms": status.eta_ms,
        "next_probe_at": _time(status.next_probe_ms),
        "held_back": held_back_body(status.held_back[:HELD_BACK_SHOWN]),
        "held_back_by_reason": count_by_reason(status.held_back),
        "pause": pause_body(group.pause),
        "storm_since": _time(group.storm_since_ms),
        "warnings": list(warnings),
    }


def pause_body(pause: Pause | None) -> dict[str, Any] | None:
    """Return a pause: what it holds, since when, until when, and why."""
    if pause is None:
        return None
    return {
        "scope": pause.scope.value,
        "reason": pause.reason,
        "since": rfc3339(pause.since_ms),
        "expires_at": _time(pause.expires_ms),
    }


def held_back_body(held: tuple[HeldBack, ...]) -> list[dict[str, Any]]:
    """Return the moves that are held back, each with why."""
    return [{"task": one.task, "to": one.to, "reason": one.reason.value} for one in held]


def count_by_reason(held: tuple[HeldBack, ...]) -> dict[str, int]:
    """Return how many moves are held back for each reason, the most frequent first."""
    return dict(Counter(one.reason.value for one in held).most_common())


def topology_body(topology: Topology) -> dict[str, Any]:
    """Return a topology as it can be declared again."""
    return {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "id": part.id,
                "partitions": part.partitions,
                "stateful": part.stateful,
                "weight": part.weight,
                "source_topics": list(part.source_topics),
                "changelog_topics": list(part.changelog_topics),
                "task_weights": dict(part.task_weights),
            }
            for part in topology.subtopologies
        ],
    }


def config_body(config: GroupConfig) -> dict[str, Any]:
    """Return every setting of a group, as it can be declared again."""
    return asdict(config)


def assignments_body(assignments: Assignments) -> dict[str, Any]:
    """Return where tasks belong, where the present step takes them, who holds them now, and who must give up which."""
    held = {member_id: dict(roles) for member_id, roles in assignments.current.items()}
    revoking = {member_id: list(roles.pop("revoking")) for member_id, roles in held.items()}
    return {
        "target": _roles_body(assignments.target),
        "intermediate": _roles_body(assignments.intermediate),
        "current": _roles_body(held),
        "revoking": {member_id: tasks for member_id, tasks in revoking.items() if tasks},
    }


def _roles_body(found: Mapping[Any, Mapping[str, tuple[TaskId, ...]]]) -> dict[str, dict[str, list[str]]]:
    return {member_id: {role: list(tasks) for role, tasks in roles.items()} for member_id, roles in found.items()}


def next_owners_of(group: Group) -> frozenset[MemberId]:
    """Return the members that wait for a task which another one still holds."""
    next_owners = (group.tasks[task_id].next_owner for task_id in group.unsettled)
    return frozenset(next_owner for next_owner in next_owners if next_owner is not None)


def member_body(soft: Soft, member: Member, next_owners: frozenset[MemberId]) -> dict[str, Any]:
    """Return a member with what it may hold, must give up, and last said; ``heirs`` are those of the group."""
    member_soft = soft.members.get(member.id)
    return {
        "member_id": member.id,
        "instance_id": member.instance_id,
        "member_epoch": member.epoch,
        "state": _member_state(member, next_owners),
        "capacity": member.capacity,
        "max_tasks": member.max_tasks,
        "max_disk_bytes": member.max_disk_bytes,
        "client_tags": dict(member.client_tags),
        "topology_epoch": member.topology_epoch,
        "on_lease_lost": member.on_lease_lost.value,
        "endpoint": member.endpoint,
        "joined_at": rfc3339(member.joined_ms),
        "last_heard_at": None if member_soft is None else rfc3339(member_soft.heard_ms),
        "draining": member.drain is not None,
        "drain_deadline_at": None if member.drain is None else _time(member.drain.deadline_ms),
        "suspected": member.suspected,
        "away_until": _time(member.away_until_ms),
        "assignment": assignment_body(member.assignment),
        "revoking": sorted(member.revoking, key=task_sort_key),
        "disk_bytes": None if member_soft is None else member_soft.disk_bytes,
        "reports": _reports_body(member_soft),
    }


def _member_state(member: Member, next_owners: frozenset[MemberId]) -> str:
    """Return the state of reconciliation (KIP-848): must give up, waits for others, or neither."""
    if member.away_until_ms is not None:
        return "away"
    if member.revoking:
        return "unrevoked"
    return "unreleased" if member.id in next_owners else "stable"


def _reports_body(member_soft: MemberSoft | None) -> dict[str, Any]:
    reports: Mapping[Any, MeasuredReport] = {} if member_soft is None else member_soft.reports
    return {task: _report_body(reports[task]) for task in sorted(reports, key=task_sort_key)}


def _report_body(measured: MeasuredReport) -> dict[str, Any]:
    report = measured.report
    body: dict[str, Any] = {"role": report.role, "lag": measured.lag, "at": rfc3339(measured.at_ms)}
    if report.state is not None:
        body["state"] = report.state.value
    if report.positions:
        body["position"] = positions_body(report.positions)
    if report.lost:
        body["lost"] = True
    if report.input_lag is not None:
        body["input_lag"] = report.input_lag
    if report.disk_bytes is not None:
        body["disk_bytes"] = report.disk_bytes
    if report.detail:
        body["detail"] = report.detail
    if measured.rate is not None:
        body["records_per_second"] = measured.rate
    return body
