"""A group in a file: the content of a snapshot, and the group and soft state that it describes.

The same core that runs in the service can plan a capture from production on a laptop. What a snapshot leaves out counts
as never set (docs/plan.md).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from batonpass.core.state import model as m
from batonpass.core.state.ids import GroupId, MemberId, TaskId, split_task_id, subtopology_sort_key, task_sort_key
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import BalanceBy, GroupConfig
from batonpass.core.state.soft import MeasuredReport, MemberSoft, Soft, TaskReport

_FAR_MS = 2**62
_GROUP = GroupId("snapshot")


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """One task. ``revoking`` is the member that was told to give it up and has not confirmed yet."""

    id: TaskId
    stateful: bool = True
    weight: float = 1.0
    revoking: MemberId | None = None


@dataclass(frozen=True, slots=True)
class SnapshotCopy:
    """What one member has of one task. ``lag`` of None is unknown. ``progress_at_ms`` of None: there was just progress.

    ``end_offset`` is about how many records a restore of the task from nothing reads; None is unknown.
    """

    role: str
    state: m.ActiveState | None = None
    lag: int | None = None
    lost: bool = False
    progress_at_ms: int | None = None
    end_offset: int | None = None


@dataclass(frozen=True, slots=True)
class SnapshotMember:
    """One member, with everything that it has. ``missing``: it is silent or away, and cannot begin anything now."""

    id: MemberId
    capacity: float = 1.0
    max_tasks: int | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    draining: bool = False
    missing: bool = False
    tasks: Mapping[TaskId, SnapshotCopy] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A group at one instant. ``target`` maps each task to its previous target owner and standbys."""

    config: GroupConfig = GroupConfig()
    tasks: tuple[SnapshotTask, ...] = ()
    members: tuple[SnapshotMember, ...] = ()
    now_ms: int = 0
    target: Mapping[TaskId, tuple[MemberId | None, tuple[MemberId, ...]]] = field(default_factory=dict)
    pins: Mapping[TaskId, MemberId] = field(default_factory=dict)
    paused: m.PauseScope | None = None


def contradictions(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return the contradictions in the snapshot, as (path, reason). Without any it can be planned."""
    faults: list[tuple[str, str]] = []
    known: set[TaskId] = set()
    for number, task in enumerate(snapshot.tasks):
        try:
            split_task_id(task.id)
        except ValueError as error:
            faults.append((f"tasks[{number}].id", str(error)))
        if task.id in known:
            faults.append((f"tasks[{number}].id", f"task {task.id} is listed twice"))
        known.add(task.id)
    names: set[MemberId] = set()
    owners: dict[TaskId, MemberId] = {}
    for number, member in enumerate(snapshot.members):
        if member.id in names:
            faults.append((f"members[{number}].id", f"member {member.id} is listed twice"))
        names.add(member.id)
        for task_id, copy in member.tasks.items():
            path = f"members[{number}].tasks.{task_id}"
            if task_id not in known:
                faults.append((path, f"there is no task {task_id} in tasks"))
            elif copy.role == "active" and owners.setdefault(task_id, member.id) != member.id:
                faults.append((path, f"task {task_id} is active on {owners[task_id]} as well; it can have one active"))
    for number, task in enumerate(snapshot.tasks):
        if task.revoking is not None and task.revoking not in names:
            faults.append((f"tasks[{number}].revoking", f"there is no member {task.revoking}"))
        elif task.revoking is not None and owners.get(task.id) != task.revoking:
            reason = (
                f"{task.revoking} does not have {task.id} as active; what is taken away is listed with it until then"
            )
            faults.append((f"tasks[{number}].revoking", reason))
    faults.extend(_unknown_names(snapshot, known, names))
    return faults


def _unknown_names(snapshot: Snapshot, known: set[TaskId], names: set[MemberId]) -> Iterator[tuple[str, str]]:
    for task_id, member_id in snapshot.pins.items():
        if task_id not in known:
            yield f"pins.{task_id}", f"there is no task {task_id}"
        if member_id not in names:
            yield f"pins.{task_id}", f"there is no member {member_id}"
    for task_id in snapshot.target:
        if task_id not in known:
            yield f"target.{task_id}", f"there is no task {task_id}"


def to_group(snapshot: Snapshot) -> tuple[m.Group, Soft]:
    """Return the group and the soft state that a snapshot without contradictions describes."""
    members = {member.id: member for member in snapshot.members}
    table = _table(snapshot.tasks)
    holders: dict[TaskId, list[SnapshotMember]] = {task.id: [] for task in snapshot.tasks}
    for member in snapshot.members:
        for task_id in member.tasks:
            holders.setdefault(task_id, []).append(member)
    tasks = {task.id: _task(snapshot, task, members, holders[task.id]) for task in snapshot.tasks}
    # Where weights are measured, others alone move nothing; a member that has nothing yet is another occasion.
    is_measured = snapshot.config.balance_by is BalanceBy.MEASURED
    is_in_use = all(member.tasks or member.draining for member in snapshot.members)
    group = m.Group(
        id=_GROUP,
        declared=True,
        config=snapshot.config,
        table=table,
        members=PMap({member.id: _member(snapshot, member, tasks) for member in snapshot.members}),
        tasks=PMap({task_id: tasks[task_id] for task_id in table.ids}),
        unsettled=PMap(dict.fromkeys(table.ids, m.Pending.MOVING)),
        loads=PMap({task.id: task.weight for task in snapshot.tasks} if is_measured and is_in_use else {}),
        pause=None if snapshot.paused is None else m.Pause(snapshot.paused, "", snapshot.now_ms, None),
    )
    member_softs = {
        member.id: MemberSoft(
            snapshot.now_ms - (group.overdue_ms + 1 if member.missing else 0),
            full=True,
            reports={task: _report(snapshot, copy) for task, copy in member.tasks.items()},
        )
        for member in snapshot.members
    }
    return group, Soft(started_ms=-_FAR_MS, listens_since_ms=-_FAR_MS, members=PMap(member_softs))


def _table(tasks: tuple[SnapshotTask, ...]) -> m.TaskTable:
    ordered = sorted(tasks, key=lambda task: task_sort_key(task.id))
    names = sorted({split_task_id(task.id)[0] for task in ordered}, key=subtopology_sort_key)
    number = {name: index for index, name in enumerate(names)}
    return m.TaskTable(
        tuple(number[split_task_id(task.id)[0]] for task in ordered),
        tuple(task.stateful for task in ordered),
        tuple(task.weight for task in ordered),
        (0,) * len(ordered),
        ids=tuple(task.id for task in ordered),
    )


def _in_role(holders: Iterable[SnapshotMember], task_id: TaskId, role: str) -> tuple[MemberId, ...]:
    return tuple(sorted(holder.id for holder in holders if holder.tasks[task_id].role == role))


def _task(
    snapshot: Snapshot,
    listed: SnapshotTask,
    members: Mapping[MemberId, SnapshotMember],
    holders: Iterable[SnapshotMember],
) -> m.Task:
    active = next(iter(_in_role(holders, listed.id, "active")), None)
    standbys = _in_role(holders, listed.id, "standby") if listed.stateful else ()
    warmups = _in_role(holders, listed.id, "warmup") if listed.stateful else ()
    target, target_standbys = snapshot.target.get(listed.id, (None, ()))
    stalls = tuple(
        m.Stall(member_id, _FAR_MS)
        for member_id in warmups
        if _is_stalled(snapshot, members[member_id].tasks[listed.id])
    )
    if target is None and active is not None:
        # A warmup that runs has a destination, even if the file names none.
        stalled = {stall.member_id for stall in stalls}
        going = sorted(
            (member_id in stalled, _lag(members[member_id].tasks[listed.id]), member_id) for member_id in warmups
        )
        target, target_standbys = (going[0][-1], standbys) if going else (None, ())
    away = target if active is None and target is not None and _is_away(members.get(target)) else None
    state = _state(members[active].tasks[listed.id]) if active is not None else m.ActiveState.GRANTED
    task = m.Task(
        listed.id,
        owner=active,
        state=state,
        since_ms=snapshot.now_ms,
        standbys=standbys,
        warmups=warmups,
        target=m.Target(
            target if target in members else None,
            tuple(sorted(member_id for member_id in target_standbys if member_id in members)),
        ),
        handover=m.Handover(away_owner=away),
        marks=m.Marks(
            pin=snapshot.pins.get(listed.id),
            failures=(m.Failure(active, snapshot.now_ms),)
            if active is not None and state is m.ActiveState.FAILED
            else (),
            stalls=stalls,
        ),
    )
    return task if listed.revoking is None else _revoked(task, listed.revoking, members)


def _is_away(listed: SnapshotMember | None) -> bool:
    """Say whether a member has stopped to restart: it is missing and holds nothing, and its place is kept."""
    return listed is not None and listed.missing and all(copy.role == "none" for copy in listed.tasks.values())


def _revoked(task: m.Task, revoking: MemberId, members: Mapping[MemberId, SnapshotMember]) -> m.Task:
    """Return the task between revocation and confirmation: its next owner is set, and the last owner keeps a copy."""
    next_owner = task.target.owner if task.target.owner not in (None, revoking) else None
    if next_owner is None:
        best = sorted(
            (_lag(members[member_id].tasks[task.id]), member_id)
            for member_id in (*task.warmups, *task.standbys)
            if member_id != revoking
        )
        next_owner = best[0][1] if best else None
    return task._replace(owner=None, standbys=tuple(sorted({*task.standbys, revoking}))).with_handover(
        unreleased=(m.Unreleased(revoking, None),),
        next_owner=next_owner,
        previous_owner=revoking if task.state is m.ActiveState.RUNNING else None,
    )


def _lag(copy: SnapshotCopy) -> int:
    return _FAR_MS if copy.lag is None else copy.lag


def _state(copy: SnapshotCopy) -> m.ActiveState:
    return m.ActiveState.LOST if copy.lost else (copy.state or m.ActiveState.RUNNING)


def _is_stalled(snapshot: Snapshot, copy: SnapshotCopy) -> bool:
    config = snapshot.config
    if copy.progress_at_ms is None or (copy.lag is not None and copy.lag <= config.acceptable_recovery_lag):
        return False
    return snapshot.now_ms - copy.progress_at_ms >= config.warmup_stall_timeout_ms


def _member(snapshot: Snapshot, listed: SnapshotMember, tasks: Mapping[TaskId, m.Task]) -> m.Member:
    assignment: dict[TaskId, m.Grant] = {}
    for task_id in sorted(listed.tasks):
        task = tasks[task_id]
        role = m.Role.ACTIVE if task.owner == listed.id else task.holders.get(listed.id)
        if role is not None:
            assignment[task_id] = m.Grant(role, 1, snapshot.now_ms, int(role is m.Role.ACTIVE))
    return m.Member(
        id=listed.id,
        joined_ms=snapshot.now_ms,
        capacity=listed.capacity,
        max_tasks=listed.max_tasks,
        client_tags=listed.client_tags,
        epoch=1,
        assignment=PMap(assignment),
        drain=m.Drain(snapshot.now_ms, None, _FAR_MS) if listed.draining else None,
        away_until_ms=_FAR_MS if _is_away(listed) else None,
        tried_ms=_FAR_MS * any(one.role == "warmup" and _is_stalled(snapshot, one) for one in listed.tasks.values()),
    )


def _report(snapshot: Snapshot, copy: SnapshotCopy) -> MeasuredReport:
    position = () if copy.end_offset is None else (("", max(0, copy.end_offset - (copy.lag or 0))),)
    report = TaskReport(copy.role, copy.state, None if copy.lost else copy.lag, position, lost=copy.lost)
    progress_ms = snapshot.now_ms if copy.progress_at_ms is None else copy.progress_at_ms
    return MeasuredReport(report, snapshot.now_ms, report.lag, progress_ms=progress_ms)
