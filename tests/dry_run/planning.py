"""Snapshots played to rest: plan, take the assignment for done, plan again; and the checks that a plan must stand."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from batonpass.core.state.ids import MemberId, TaskId, task_id
from batonpass.core.state.model import ActiveState
from batonpass.core.state.policy import GroupConfig
from batonpass.dry_run.plan import Plan, plan_snapshot
from batonpass.dry_run.snapshot import Snapshot, SnapshotCopy, SnapshotMember, SnapshotTask

RUNNING = SnapshotCopy("active", ActiveState.RUNNING)
CONFIG = GroupConfig(acceptable_recovery_lag=100, max_warmup_replicas=1)


def tasks(count: int, *, stateful: bool = True) -> tuple[SnapshotTask, ...]:
    """Return ``count`` tasks of subtopology 0."""
    return tuple(SnapshotTask(task_id("0", number), stateful=stateful) for number in range(count))


def member(name: str, copies: Mapping[str, SnapshotCopy] | None = None, **more: object) -> SnapshotMember:
    """Return a member with what it has."""
    held = {TaskId(task): copy for task, copy in (copies or {}).items()}
    return SnapshotMember(MemberId(name), tasks=held, **more)  # type: ignore[arg-type]


def runs(*names: str) -> dict[str, SnapshotCopy]:
    """Return running actives of these tasks."""
    return dict.fromkeys(names, RUNNING)


def plan_of(*members: SnapshotMember, count: int = 4, config: GroupConfig = CONFIG, **more: object) -> Plan:
    """Return the plan for these members and ``count`` tasks."""
    snapshot = Snapshot(config=config, tasks=tasks(count), members=members)
    return plan_snapshot(replace(snapshot, **more))  # type: ignore[arg-type]


def held(plan: Plan) -> dict[TaskId, str]:
    """Return why each task that is held back is."""
    return {entry.task: entry.reason.value for entry in plan.held_back}


def done(snapshot: Snapshot, plan: Plan, *, caught_up: bool = True) -> Snapshot:
    """Return the snapshot after the step: revocations confirmed, actives running, copies caught up or as they were."""
    members = []
    for one in snapshot.members:
        copies: dict[TaskId, SnapshotCopy] = {}
        for role, names in plan.assignment[one.id].items():
            for name in names:
                before = one.tasks.get(name)
                lag = 0 if caught_up or (before is not None and before.role == "active") else 9_999
                if before is not None and before.lag is not None and not caught_up:
                    lag = before.lag
                copies[name] = RUNNING if role == "active" else SnapshotCopy(role, lag=lag)
        members.append(replace(one, tasks=copies))
    target: dict[TaskId, tuple[MemberId | None, tuple[MemberId, ...]]] = {}
    for task in snapshot.tasks:
        owner = next((name for name, roles in plan.target.items() if task.id in roles["active"]), None)
        target[task.id] = (owner, tuple(name for name, roles in plan.target.items() if task.id in roles["standby"]))
    calm = tuple(replace(task, revoking=None) for task in snapshot.tasks)
    return replace(snapshot, members=tuple(members), tasks=calm, target=target)


def random_snapshot(seed: int) -> Snapshot:
    """Return a small group in any state, reachable or not: tasks nobody has, copies of any lag, draining members."""
    rng = Random(seed)
    names = [MemberId(f"m{number}") for number in range(rng.randint(1, 5))]
    all_tasks = [
        SnapshotTask(task_id(str(number % 2), number // 2), stateful=rng.random() < 0.85)
        for number in range(rng.randint(1, 12))
    ]
    has: dict[MemberId, dict[TaskId, SnapshotCopy]] = {name: {} for name in names}
    for task in all_tasks:
        if rng.random() < 0.85:
            state = rng.choice([ActiveState.RUNNING] * 6 + [ActiveState.RESTORING, ActiveState.FAILED])
            lag = None if state is ActiveState.RUNNING else rng.choice([None, 0, 50, 5_000])
            has[rng.choice(names)][task.id] = SnapshotCopy("active", state, lag)
        for name in names:
            if task.stateful and task.id not in has[name] and rng.random() < 0.25:
                role = rng.choice(["standby", "standby", "warmup", "none"])
                has[name][task.id] = SnapshotCopy(role, lag=rng.choice([0, 5, 100, 101, 9_999, None]))
    config = replace(
        CONFIG,
        num_standby_replicas=rng.choice([0, 0, 1, 2]),
        max_warmup_replicas=rng.choice([1, 2, 5]),
        max_warmups_per_member=rng.choice([1, 2]),
        rack_aware_tags=rng.choice([(), ("zone",)]),
    )
    members = []
    for name in names:
        held_now = sum(copy.role != "none" for copy in has[name].values())
        limit = max(held_now, rng.randint(0, 6)) if rng.random() < 0.2 else None
        zone, is_draining = rng.choice("abc"), rng.random() < 0.12
        members.append(
            SnapshotMember(name, max_tasks=limit, client_tags={"zone": zone}, draining=is_draining, tasks=has[name])
        )
    return Snapshot(config=config, tasks=tuple(all_tasks), members=tuple(members))


def faults(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return what is wrong with a plan, from the words of the protocol and the laws alone; nothing for a good one."""
    found: list[str] = []
    had = {one.id: one for one in snapshot.members}
    extra = extra_before = 0
    for task in snapshot.tasks:
        active = [name for name, roles in plan.assignment.items() if task.id in roles["active"]]
        copies = [
            name for name, roles in plan.assignment.items() for role in ("standby", "warmup") if task.id in roles[role]
        ]
        warm = [name for name, roles in plan.assignment.items() if task.id in roles["warmup"]]
        if len(active) > 1 or len({*active, *copies}) != len(active) + len(copies):
            found.append(f"{task.id}: two actives, or two copies on one member")
        if copies and not task.stateful:
            found.append(f"{task.id}: a copy of a task without state")
        owners = [one for one in had.values() if task.id in one.tasks and one.tasks[task.id].role == "active"]
        if not any(one.draining for one in owners):
            extra += max(0, len(warm), len(copies) - snapshot.config.num_standby_replicas)
        holders = [
            one for one in had.values() if task.id in one.tasks and one.tasks[task.id].role in ("standby", "warmup")
        ]
        warm_before = sum(one.tasks[task.id].role == "warmup" for one in holders)
        extra_before += max(0, warm_before, len(holders) - snapshot.config.num_standby_replicas)
        found.extend(_takeover_faults(snapshot, task, active, owners))
    allowed = snapshot.config.warmup_budget(sum(task.stateful for task in snapshot.tasks))
    if extra > max(allowed, extra_before):
        found.append(f"{extra} extra copies, {allowed} are allowed")
    for one in snapshot.members:
        copies_held = sum(len(names) for names in plan.assignment[one.id].values())
        if one.max_tasks is not None and copies_held > one.max_tasks:
            found.append(f"{one.id} holds {copies_held} copies and takes {one.max_tasks}")
    if plan.at_rest and plan.probing_needed:
        found.append("at rest, and something is still to come")
    return found + _held_faults(snapshot, plan)


def _takeover_faults(
    snapshot: Snapshot, task: SnapshotTask, active: list[MemberId], owners: list[SnapshotMember]
) -> list[str]:
    """L7: while the owner runs, only a caught-up copy takes over."""
    if not task.stateful or not owners or not active or active == [owners[0].id]:
        return []
    if owners[0].tasks[task.id].state is not ActiveState.RUNNING:
        return []
    taker = next(one for one in snapshot.members if one.id == active[0])
    copy = taker.tasks.get(task.id)
    limit = snapshot.config.acceptable_recovery_lag
    ready = copy is not None and copy.role in ("standby", "warmup") and copy.lag is not None and copy.lag <= limit
    return [] if ready else [f"{task.id}: {active[0]} takes over from a running owner with {copy}"]


def _held_faults(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Held back is, once each, what is not with its target owner and has no copy there."""
    found: list[str] = []
    reasons = held(plan)
    if len(reasons) != len(plan.held_back):
        found.append("a task is held back twice")
    for task in snapshot.tasks:
        owner = next((name for name, roles in plan.target.items() if task.id in roles["active"]), None)
        is_there = owner is not None and any(task.id in names for names in plan.assignment[owner].values())
        if task.stateful and owner is not None and not is_there and task.id not in reasons:
            found.append(f"{task.id} is neither at {owner} nor held back")
        if is_there and task.id in reasons:
            found.append(f"{task.id} is held back and has a copy at {owner}")
    return found
