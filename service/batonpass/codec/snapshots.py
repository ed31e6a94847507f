"""Snapshots of groups and the plans for them, as JSON (docs/plan.md)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from batonpass.codec.bodies import Count, Name, Share, TagKey, TagValue, TaskName, value_of
from batonpass.codec.shape import Shape, refusal
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import PauseScope
from batonpass.core.state.policy import parse_config
from batonpass.dry_run.plan import Plan, Roles
from batonpass.dry_run.snapshot import Snapshot, SnapshotMember, SnapshotTask, contradictions

_Instant = Annotated[int, Meta(ge=-(2**53), le=2**53)]


class _CopyBody(Struct, forbid_unknown_fields=True):
    role: Literal["active", "standby", "warmup", "none"]
    state: Literal["restoring", "running", "failed"] | UnsetType = UNSET
    lag: Count | UnsetType = UNSET
    position: Count | UnsetType = UNSET
    end_offset: Count | UnsetType = UNSET
    lost: bool = False
    progress_at_ms: _Instant | UnsetType = UNSET


class _TaskBody(Struct, forbid_unknown_fields=True):
    id: TaskName
    stateful: bool = True
    weight: Share = 1.0
    revoking: Name | None = None


class _MemberBody(Struct, forbid_unknown_fields=True):
    id: Name
    capacity: Share = 1.0
    max_tasks: Count | None = None
    client_tags: dict[TagKey, TagValue] = {}
    draining: bool = False
    missing: bool = False
    tasks: dict[TaskName, _CopyBody] = {}


class _TargetBody(Struct, forbid_unknown_fields=True):
    active: tuple[TaskName, ...] = ()
    standby: tuple[TaskName, ...] = ()


class SnapshotBody(Struct, forbid_unknown_fields=True):
    """A group in a file, as it is written."""

    config: dict[str, Any] = {}
    tasks: tuple[_TaskBody, ...] = ()
    members: tuple[_MemberBody, ...] = ()
    now_ms: _Instant = 0
    target: dict[Name, _TargetBody] | None = None
    pins: dict[TaskName, Name] = {}
    paused: bool | Literal["balance", "all"] = False


_SNAPSHOT: Final = Shape(SnapshotBody)


def read_snapshot(body: bytes) -> Snapshot:
    """Return the snapshot that a JSON object holds.

    Raises:
        InvalidRequest: naming every fault by path and reason: what is malformed, unknown, out of range or contradicts
            itself.
        InvalidConfig: the same for its settings.
    """
    said = _SNAPSHOT.parse(body).value
    config = parse_config(said.config)
    paused = PauseScope.BALANCE if said.paused is True else (PauseScope(said.paused) if said.paused else None)
    for copy in (copy for member in said.members for copy in member.tasks.values()):
        if not isinstance(copy.position, UnsetType) and not isinstance(copy.end_offset, UnsetType):
            copy.lag = max(0, copy.end_offset - copy.position) if copy.lag is UNSET else copy.lag
    snapshot = Snapshot(
        config=config,
        tasks=value_of(said.tasks, tuple[SnapshotTask, ...]),
        members=value_of(said.members, tuple[SnapshotMember, ...]),
        now_ms=said.now_ms,
        target=_target(said.target or {}),
        pins={TaskId(task): MemberId(member) for task, member in said.pins.items()},
        paused=paused,
    )
    faults = contradictions(snapshot) + _listed_twice(said.target or {})
    if faults:
        raise refusal(faults)
    return snapshot


def _target(said: Mapping[str, _TargetBody]) -> dict[TaskId, tuple[MemberId | None, tuple[MemberId, ...]]]:
    owners: dict[TaskId, MemberId] = {}
    standbys: dict[TaskId, list[MemberId]] = {}
    for member, roles in said.items():
        for task in roles.active:
            owners[TaskId(task)] = MemberId(member)
        for task in roles.standby:
            standbys.setdefault(TaskId(task), []).append(MemberId(member))
    return {task: (owners.get(task), tuple(sorted(standbys.get(task, ())))) for task in sorted({*owners, *standbys})}


def _listed_twice(said: Mapping[str, _TargetBody]) -> list[tuple[str, str]]:
    """Return what a target lists twice: a task has one owner, and at most one copy on a member."""
    faults: list[tuple[str, str]] = []
    owners: dict[str, str] = {}
    for member, roles in said.items():
        path = f"target.{member}"
        faults.extend(
            (f"{path}.active", f"task {task} is active on {owners[task]} as well; it has one owner")
            for task in roles.active
            if owners.setdefault(task, member) != member
        )
        named = Counter((*roles.active, *roles.standby))
        faults.extend((path, f"task {task} is listed {count} times") for task, count in named.items() if count > 1)
    return faults


def write_snapshot(snapshot: Snapshot) -> dict[str, object]:
    """Return a snapshot as JSON that ``read_snapshot`` reads back; what was never set is left out."""
    target: dict[str, dict[str, list[str]]] = {}
    for task, (owner, standbys) in snapshot.target.items():
        if owner is not None:
            target.setdefault(owner, {"active": [], "standby": []})["active"].append(task)
        for member in standbys:
            target.setdefault(member, {"active": [], "standby": []})["standby"].append(task)
    tasks: list[dict[str, object]] = msgspec.to_builtins(snapshot.tasks)
    return {
        "now_ms": snapshot.now_ms,
        "config": asdict(snapshot.config),
        "tasks": [{name: said for name, said in one.items() if said is not None} for one in tasks],
        "members": [_written_member(member) for member in snapshot.members],
        "target": target,
        "pins": dict(snapshot.pins),
        "paused": False if snapshot.paused is None else snapshot.paused.value,
    }


def _written_member(member: SnapshotMember) -> dict[str, object]:
    written: dict[str, Any] = msgspec.to_builtins(member)
    copies = {
        task: {name: said for name, said in copy.items() if said is not None and said is not False}
        for task, copy in written["tasks"].items()
    }
    return written | {"tasks": copies}


def write_plan(plan: Plan, *, decide_ms: float) -> dict[str, object]:
    """Return the plan for a snapshot as JSON (the output in docs/plan.md)."""
    return {
        "target": {member: _roles(roles) for member, roles in plan.target.items()},
        "assignment": {member: _roles(roles) for member, roles in plan.assignment.items()},
        "moves": plan.moves,
        "lower_bound": plan.lower_bound,
        "at_rest": plan.at_rest,
        "probing_needed": plan.probing_needed,
        "placement_failed": plan.placement_failed,
        "decide_ms": round(decide_ms, 3),
        "held_back": [{"task": one.task, "to": one.to, "reason": one.reason.value} for one in plan.held_back],
        "reasons": [{"task": one.task, "code": one.code, "detail": one.detail} for one in plan.reasons],
    }


def _roles(roles: Roles) -> dict[str, list[str]]:
    return {role: list(tasks) for role, tasks in roles.items()}
