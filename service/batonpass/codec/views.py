"""Groups, members, tasks and explanations as the API shows them: the bodies of what can only be read."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import msgspec

from batonpass.codec.answers import assignment_body, positions_body, rfc3339, time_of
from batonpass.core.arrivals.kept_out import kept_out_of, name_of_instance
from batonpass.core.handover.copies import HeldBack
from batonpass.core.handover.view import View
from batonpass.core.state.failures import avoided_until_ms, distrusted_until_ms, faults_in_words, host_of
from batonpass.core.state.ids import MemberId, TaskId, task_sort_key
from batonpass.core.state.model import Failure, Group, KeptOut, Member, Pause, Task, Topology
from batonpass.core.state.soft import MeasuredReport
from batonpass.dry_run.load import LoadStatus
from batonpass.explain.group import GroupExplanation, Obstacle, WaitingTask
from batonpass.explain.health import Finding, Health, Origin, is_silent
from batonpass.explain.remedies import Level
from batonpass.explain.status import Assignments, GroupStatus
from batonpass.explain.task import CopyStatus, TaskExplanation, Wait

HELD_BACK_SHOWN: Final = 1_000
"""How many moves that are held back the description of a group lists at most. All of them are counted by reason."""


def group_summary(group: Group, status: GroupStatus, health: Health) -> dict[str, Any]:
    """Return one entry of the list of groups."""
    return {
        "group": group.id,
        "state": status.state.value,
        "group_epoch": group.group_epoch,
        "generation": group.generation,
        "members": len(group.members),
        "tasks": len(group.table.ids),
        "paused": group.pause is not None,
        "at_rest": status.at_rest,
        "warmups": status.warmups,
        "moves_pending": status.moves_pending,
        "health": health_body(group, health),
        "application": _application_body(status),
    }


def _application_body(status: GroupStatus) -> dict[str, Any] | None:
    """Return when a Kafka Streams application was heard, and what it is refused; None for any other group."""
    application = status.application
    if application is None:
        return None
    refused = application.refused or status.others_refusals
    return {
        "application_id": application.id,
        "last_heard_at": time_of(application.heard_ms),
        "silent": application.is_silent,
        "refused": None
        if refused is None
        else {
            "why": refused.why,
            "since": rfc3339(refused.since_ms),
            "last_at": rfc3339(refused.last_ms),
            "times": refused.times,
            "is_another": refused.is_another,
        },
    }


def health_body(group: Group, health: Health) -> dict[str, Any]:
    """Return how a group is: what is most wrong, since when, why, until when, and what can be done; what else is."""
    return {
        **_finding_body(group, health.worst),
        "sentence": health.sentence,
        "at": rfc3339(health.at_ms),
        "evidence": health.evidence,
        "heard": health.heard,
        "judged_from": time_of(health.judged_from_ms),
        "tasks": {state.value: count for state, count in health.states.items()},
        "unknown": health.unknown,
        "incident": _origin_body(group, health.incident),
        "others": [_finding_body(group, one) for one in health.others if one.level in (Level.TROUBLE, Level.ATTENTION)],
    }


def _finding_body(group: Group, one: Finding) -> dict[str, Any]:
    return {
        "level": one.level.value,
        "what": one.what,
        "sentence": one.sentence,
        "since": time_of(one.since_ms),
        "until": time_of(one.until_ms),
        "ends": one.until,
        "cause": _origin_body(group, one.cause),
        "todo": one.todo,
        "remedies": [
            {"action": remedy.action, "member": remedy.member_id, "task": remedy.task, "command": remedy.command}
            for remedy in one.remedies
        ],
        "more_remedies": one.more,
        "runbook": one.runbook or None,
    }


def _origin_body(group: Group, origin: Origin | None) -> dict[str, Any] | None:
    """Return where something went wrong, with the instance of the member, which may have left."""
    if origin is None:
        return None
    known = None
    if origin.member_id is not None:
        known = group.members.get(origin.member_id) or group.gone.get(origin.member_id)
    return {
        "task": origin.task,
        "member": origin.member_id,
        "instance_id": None if known is None else known.instance_id,
        "at": time_of(origin.at_ms),
        "detail": origin.detail,
    }


def group_body(group: Group, status: GroupStatus, health: Health, warnings: tuple[str, ...]) -> dict[str, Any]:
    """Return a group with where it stands and what it waits for."""
    return {
        **group_summary(group, status, health),
        **_progress_body(group, status, limit=HELD_BACK_SHOWN),
        "topology": topology_body(group.topology),
        "config": asdict(group.config),
        "warnings": list(warnings),
    }


def _progress_body(group: Group, status: GroupStatus, *, limit: int) -> dict[str, Any]:
    """Return how far a group is from rest, and what holds its moves back; at most ``limit`` of those."""
    return {
        "detail": status.detail,
        "eta_ms": status.eta_ms,
        "next_probe_at": time_of(status.next_probe_ms),
        "held_back": [held_back_body(one) for one in status.held_back[:limit]],
        "held_back_by_reason": count_by_reason(status.held_back),
        "pause": pause_body(group.pause),
        "storm_since": time_of(group.storm_since_ms),
        "kept_out": kept_out_body(group),
        "storm_ends_at": time_of(group.storm_over_ms),
    }


def kept_out_body(group: Group) -> list[dict[str, Any]]:
    """Return the instances of which no run gets a task, each with its name, and its present run if it has one."""
    return [
        {
            "instance_id": instance_id,
            "name": name_of_instance(group, instance_id),
            "member_id": group.instances.get(instance_id),
            **_kept_out(entry),
        }
        for instance_id, entry in sorted(group.kept_out.items())
    ]


def _kept_out(entry: KeptOut) -> dict[str, Any]:
    return {"since": rfc3339(entry.since_ms), "until": time_of(entry.until_ms)}


def pause_body(pause: Pause | None) -> dict[str, Any] | None:
    """Return a pause: what it holds, since when, until when, and why."""
    if pause is None:
        return None
    return {
        "scope": pause.scope.value,
        "reason": pause.reason,
        "since": rfc3339(pause.since_ms),
        "expires_at": time_of(pause.expires_ms),
    }


def held_back_body(one: HeldBack | None) -> dict[str, Any] | None:
    """Return a move that is held back, with why."""
    return None if one is None else {"task": one.task, "to": one.to, "reason": one.reason.value}


def count_by_reason(held: tuple[HeldBack, ...]) -> dict[str, int]:
    """Return how many moves are held back for each reason, the most frequent first."""
    return dict(Counter(one.reason.value for one in held).most_common())


def topology_body(topology: Topology) -> dict[str, Any]:
    """Return a topology as it can be declared again."""
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(topology))
    for part in body["subtopologies"]:
        del part["epoch"]  # Which of the topology's epochs added it cannot be declared.
    return body


def assignments_body(assignments: Assignments) -> dict[str, Any]:
    """Return where tasks belong, where this step takes them, which members hold them, and which must give them up."""
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
    """Return the members that wait for a task which another member still holds."""
    next_owners = (group.tasks[task_id].handover.next_owner for task_id in group.unsettled)
    return frozenset(next_owner for next_owner in next_owners if next_owner is not None)


def member_body(
    view: View, member: Member, next_owners: frozenset[MemberId], load: LoadStatus | None = None
) -> dict[str, Any]:
    """Return a member with what it may hold, must give up, and last reported, and what is held against it.

    ``next_owners`` (``next_owners_of``) and ``load`` (``load_status``) are those of the group.
    """
    member_soft, kept_out = view.soft.members.get(member.id), kept_out_of(view.group, member)
    reports: Mapping[TaskId, MeasuredReport] = {} if member_soft is None else member_soft.reports
    faults = view.group.hosts[host_of(member)] if member.id in view.distrusted else None
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
        "drain_deadline_at": None if member.drain is None else time_of(member.drain.deadline_ms),
        "kept_out": None if kept_out is None else _kept_out(kept_out),
        "suspected": member.suspected,
        "silent": is_silent(view, member),
        "away_until": time_of(member.away_until_ms),
        "distrusted_until": None if faults is None else rfc3339(distrusted_until_ms(view.config, faults)),
        "faults": "" if faults is None else faults_in_words(faults),
        "assignment": assignment_body(member.assignment),
        "revoking": sorted(member.revoking, key=task_sort_key),
        "disk_bytes": None if member_soft is None else member_soft.disk_bytes,
        "load": None if load is None else load.by_member.get(member.id),
        "standby_load": None if load is None else load.standbys.get(member.id),
        "reports": {task: _report_body(reports[task]) for task in sorted(reports, key=task_sort_key)},
        **(member_soft.numbers if member_soft is not None else {}),
    }


def _member_state(member: Member, next_owners: frozenset[MemberId]) -> str:
    """Return the state of reconciliation (KIP-848): it has to give up tasks, waits for others, or neither."""
    if member.away_until_ms is not None:
        return "away"
    if member.revoking:
        return "unrevoked"
    return "unreleased" if member.id in next_owners else "stable"


def _report_body(measured: MeasuredReport) -> dict[str, Any]:
    report = measured.report
    said = {
        "state": report.state,
        "position": positions_body(report.positions) if report.positions else None,
        "lost": report.lost or None,
        "input_lag": report.input_lag,
        "disk_bytes": report.disk_bytes,
        "load": report.load,
        "detail": report.detail or None,
        "records_per_second": measured.rate,
    }
    known = {name: value for name, value in said.items() if value is not None}
    return {"role": report.role, "lag": measured.lag, "at": rfc3339(measured.at_ms), **known}


def task_explanation_body(group: Group, found: TaskExplanation) -> dict[str, Any]:
    """Return where a task is, why, since when, and what it waits for."""
    task, task_index = found.task, group.table.index_of[found.task.id]
    owner = group.members.get(task.owner) if task.owner is not None else None
    # How its last run ended, until it runs again; ``at`` is null while it may still be running.
    stop = task.handover.stop
    return {
        "group": group.id,
        "generation": group.generation,
        "task": task.id,
        "stateful": group.table.stateful[task_index],
        "weight": group.table.weight[task_index],
        "load": group.loads.get(task.id),
        "state": found.state.value,
        "owner": task.owner,
        "endpoint": owner.endpoint if owner is not None else None,
        "since": time_of(task.since_ms or None),
        "fencing_token": task.token,
        "target": task.target.owner,
        "target_standbys": list(task.target.standbys),
        "to": found.to,
        "why": found.why.value,
        "held_back": held_back_body(found.held),
        "copies": [_copy_body(group, one) for one in found.copies],
        "waits_for": [_wait_body(group, one) for one in found.waits],
        "stopped": None if stop is None else {"member": stop.member_id, "at": time_of(stop.at_ms), "cause": stop.cause},
        "pin": task.marks.pin,
        "parked": task.marks.parked,
        "failures": [_failure_body(group, one) for one in task.marks.failures],
        "sentences": list(found.sentences),
    }


def _failure_body(group: Group, failure: Failure) -> dict[str, Any]:
    """Return what came of a task on a host, how often in a row, and until when it is not tried there again."""
    until_ms = avoided_until_ms(group.config, failure)
    return {
        "member": failure.member_id,
        "instance_id": failure.instance_id,
        "at": rfc3339(failure.at_ms),
        "outcome": failure.outcome.value,
        "times": failure.times,
        "avoided_until": time_of(until_ms) if until_ms > failure.at_ms else None,
    }


def _copy_body(group: Group, copy: CopyStatus) -> dict[str, Any]:
    return {
        **_who(group, copy.member_id),
        "role": copy.role,
        "readiness": copy.readiness,
        "lag": copy.lag,
        "records_per_second": copy.rate,
        "eta_ms": copy.eta_ms,
        "progress_at": time_of(copy.progress_ms),
        "stalled_until": time_of(copy.stalled_until_ms),
    }


def _who(group: Group, member_id: MemberId | None) -> dict[str, Any]:
    """Return a member with what tells people which process it is: its instance, and the address that it gave."""
    known = None if member_id is None else group.members.get(member_id)
    return {
        "member": member_id,
        "instance_id": None if known is None else known.instance_id,
        "endpoint": None if known is None else known.endpoint,
    }


def _wait_body(group: Group, wait: Wait) -> dict[str, Any]:
    return {
        "what": wait.what.value,
        **_who(group, wait.member_id),
        "until": time_of(wait.until_ms),
        "eta_ms": wait.eta_ms,
        "detail": wait.detail,
    }


def group_explanation_body(group: Group, found: GroupExplanation, *, limit: int) -> dict[str, Any]:
    """Return why a group is where it is, and what it waits for; at most ``limit`` of the moves that are held back."""
    status = found.status
    return {
        "group": group.id,
        "state": status.state.value,
        "at_rest": status.at_rest,
        "group_epoch": group.group_epoch,
        "generation": group.generation,
        "health": health_body(group, found.health),
        "sentences": list(found.sentences),
        "tasks": {state.value: count for state, count in found.health.states.items()},
        "moves_pending": status.moves_pending,
        "application": _application_body(status),
        "load": _load_body(group, found.load),
        **_progress_body(group, status, limit=limit),
        "next_placement_at": time_of(group.placement_due_ms),
        "triggers": list(group.triggers),
        "grants_held_until": time_of(found.held_until_ms),
        "judges_from": time_of(found.judges_from_ms),
        "budgets": {
            "warmups": found.warmups._asdict(),
            "drain_warmups": found.drain_warmups._asdict(),
            "warmups_per_member": {"limit": group.config.max_warmups_per_member, "full": list(found.full_members)},
        },
        "members": [_obstacle_body(group, one) for one in found.obstacles],
        "waiting": [_waiting_body(group, one) for one in found.waiting],
        "waiting_total": found.waiting_total,
    }


def _load_body(group: Group, load: LoadStatus | None) -> dict[str, Any] | None:
    """Return how the measured load lies on the members of a group; None while none is measured."""
    if load is None:
        return None
    return {
        "imbalance": load.imbalance,
        "hot_since": time_of(group.hot_since_ms),
        "members_needed": load.members_needed,
        "standbys_need": load.standbys_need,
        "hottest_task": load.hottest,
        "hottest_share": load.hottest_share,
    }


def _obstacle_body(group: Group, one: Obstacle) -> dict[str, Any]:
    return {
        **_who(group, one.member_id),
        "what": one.what,
        "tasks": one.tasks,
        "since": time_of(one.since_ms),
        "until": time_of(one.until_ms),
        "detail": one.detail,
    }


def _waiting_body(group: Group, one: WaitingTask) -> dict[str, Any]:
    return {
        "task": one.task,
        "state": one.state.value,
        "held_back": held_back_body(one.held),
        "waits_for": [_wait_body(group, wait) for wait in one.waits],
    }


def route_body(group: Group, task: Task, copies: tuple[CopyStatus, ...]) -> dict[str, Any]:
    """Return the member that serves a task and those that could, with the endpoints that they gave when they joined."""
    endpoints = {member.id: member.endpoint for member in group.members.values()}
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
