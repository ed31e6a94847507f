"""Hard state: the group as the records add up to it, and nothing else.

Whatever is here survives a restart of the coordinator; what may be lost and is reported again is in ``soft``. All of it
is immutable: ``evolve`` makes the next group out of records, and nobody else makes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from batonpass.core.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.placement_types import TaskTable
from batonpass.core.pmap import PMap
from batonpass.core.policy import GroupConfig


class Role(StrEnum):
    """What a member does with its copy of a task."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warmup"


class ActiveState(StrEnum):
    """How far the owner of a task has come. ``GRANTED``: it has been told, and has not reported yet."""

    GRANTED = "granted"
    RESTORING = "restoring"
    RUNNING = "running"
    FAILED = "failed"
    LOST = "lost"


class OnLeaseLost(StrEnum):
    """What a member does with its actives when its lease is over.

    With ``CONTINUE`` it goes on until its outputs are fenced by the next owner's token; such a member can be suspected.
    """

    STOP = "stop"
    CONTINUE = "continue"


class Cause(StrEnum):
    """Why a member is no longer one."""

    LEFT = "left"
    RESTARTED = "restarted"
    EXPIRED = "expired"
    EVICTED = "evicted"
    REPLACED = "replaced"
    TAKEN_OVER = "taken-over"
    FENCED = "fenced"
    GRACE_OVER = "grace-over"


class PauseScope(StrEnum):
    """What a pause holds: moves for balance only, or every move."""

    BALANCE = "balance"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of the topology whose partitions become tasks.

    ``partitions`` is None until the source topics have been read. ``epoch`` is the topology epoch that added or last
    changed it: a member needs at least that epoch to be given its tasks. A task weighs ``weight`` unless
    ``task_weights`` names it; what is named there may still be missing where partitions are read from Kafka.
    """

    id: str
    partitions: int | None = None
    stateful: bool = True
    weight: float = 1.0
    source_topics: tuple[str, ...] = ()
    changelog_topics: tuple[str, ...] = ()
    epoch: int = 0
    task_weights: Mapping[TaskId, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topology:
    """What the group processes: subtopologies, in the order of their ids."""

    epoch: int = 0
    subtopologies: tuple[Subtopology, ...] = ()


class Grant(NamedTuple):
    """One entry of a member's assignment: what it may hold.

    ``epoch`` is the member epoch that announced it in this role; ``token`` is 0 but for actives; ``restore_to`` is the
    position up to which the last owner wrote, where it is known (per changelog topic, ``""`` for a single one).
    """

    role: Role
    epoch: int
    since_ms: int
    token: int = 0
    restore_to: tuple[tuple[str, int], ...] = ()


class Revocation(NamedTuple):
    """A task (or a role of it) that a member has been told to give up and has not yet confirmed.

    ``active`` says that it may still be running the task; ``epoch`` is the member epoch that announced it.
    """

    epoch: int
    since_ms: int
    active: bool


class Unreleased(NamedTuple):
    """Somebody who may still be running a task that is no longer granted to it.

    ``free_at_ms`` is the end of its lease where it has been fenced; None while its confirmation is awaited.
    """

    member_id: MemberId
    free_at_ms: int | None


class Failure(NamedTuple):
    """A task that failed on, or was running at the expired lease of, one member."""

    member_id: MemberId
    at_ms: int


class Stall(NamedTuple):
    """A member on which the warmup of a task made no progress; it is not tried again before ``until_ms``."""

    member_id: MemberId
    until_ms: int


class Stop(NamedTuple):
    """The end of the last run of a task: who ran it, since when nobody can be running it, and why it ended.

    ``at_ms`` is None while that member may still be running it. ``cause`` is ``revoked`` or ``suspected`` where the
    task was taken from its member, the ``Cause`` for which the member went, or the state that its owner fell back to
    (``failed``, ``lost``, ``restoring``).
    """

    member_id: MemberId
    at_ms: int | None
    cause: str


class Task(NamedTuple):
    """One task: who has it, who may still be running it, and where it belongs.

    ``owner`` holds the present grant of the active. ``next_owner`` has been chosen to get it once it is released
    (``unreleased``). ``previous_owner`` is the last owner, which keeps its copy until the new one runs; ``away_owner``
    the away member that ran it. ``ready_grant`` says that the owner was caught up when it was given the task.
    ``since_ms`` is when the task got or lost its owner. ``target`` of None waits (``waiting_reason`` says why).
    ``token`` is the highest ever granted. ``stop`` is how the last run of the task ended, until it runs again: what a
    handover or a failover costs is measured by it.
    """

    id: TaskId
    owner: MemberId | None = None
    state: ActiveState = ActiveState.GRANTED
    ready_grant: bool = False
    since_ms: int = 0
    token: int = 0
    standbys: tuple[MemberId, ...] = ()
    warmups: tuple[MemberId, ...] = ()
    unreleased: tuple[Unreleased, ...] = ()
    next_owner: MemberId | None = None
    previous_owner: MemberId | None = None
    target: MemberId | None = None
    target_standbys: tuple[MemberId, ...] = ()
    waiting_reason: str = ""
    final_position: tuple[tuple[str, int], ...] = ()
    pin: MemberId | None = None
    parked: bool = False
    failures: tuple[Failure, ...] = ()
    stalls: tuple[Stall, ...] = ()
    away_owner: MemberId | None = None
    stop: Stop | None = None


_COPIES: Final = Task._fields.index("standbys")
_UNRELEASED: Final = Task._fields.index("unreleased")
_TARGET: Final = Task._fields.index("target")
_BEYOND: Final = Task._fields.index("waiting_reason") + 1


def with_copies(task: Task, standbys: tuple[MemberId, ...], warmups: tuple[MemberId, ...]) -> Task:
    """Return the task as it is with other copies beside its active."""
    return Task._make((*task[:_COPIES], standbys, warmups, *task[_UNRELEASED:]))


def with_owner(task: Task, member_id: MemberId, grant: Grant, *, ready: bool) -> Task:
    """Return the task as it is when a member has been granted its active, with the copies that there are beside it."""
    granted = Task._make((task.id, member_id, ActiveState.GRANTED, ready, grant.since_ms, grant.token, *task[_COPIES:]))
    if task.next_owner is None and task.away_owner is None and task.previous_owner != member_id:
        return granted
    return granted._replace(
        next_owner=None,
        away_owner=None,
        previous_owner=None if task.previous_owner == member_id else task.previous_owner,
    )


def with_target(task: Task, target: tuple[MemberId | None, tuple[MemberId, ...], str]) -> Task:
    """Return the task as it is with another target, target standbys and reason to wait.

    What has no target is to be taken over by nobody.
    """
    placed = Task._make((*task[:_TARGET], *target, *task[_BEYOND:]))
    return placed if task.next_owner is None or target[0] is not None else placed._replace(next_owner=None)


class Pending(IntEnum):
    """Which steps have to look at a task that is unsettled: not yet as its target says.

    What each of them waits for, and which step looks at it::

        placed elsewhere, free slots only   -->  QUEUED   a step with a free slot, in the order of the queue
              | a slot is given
              v
        a copy, a handover, a release
        or a suspicion is under way         -->  OPEN     every step: anything may change for it
              | granted to its target
              v
        its owner has not said that it runs -->  WAITING  a step with news of the task
              | it runs
              v
        settled                                           none

    ``QUEUED`` runs, has as many standbys as it should, and waits for a slot for a warmup, at its target or where one of
    its standbys is to move. ``WAITING`` is also what nobody has and no member may have: it waits for a target. Any of
    them turns into any other as its records say (``evolve``). Where a member takes only so much (``room``) tasks share
    room, and every step looks at what is queued too.
    """

    WAITING = 0
    OPEN = 1
    QUEUED = 2


@dataclass(frozen=True, slots=True)
class Drain:
    """A member on its way out.

    ``deadline_ms`` and ``gives_up_ms`` are instants. ``blocked`` says which of them passed (``drain-deadline`` or
    ``drain-timeout``) while the member still had active tasks; "" until then.
    """

    since_ms: int
    deadline_ms: int | None
    gives_up_ms: int
    blocked: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """One run of a worker, or (``away_until_ms``) the place kept for an instance that restarts.

    ``epoch`` counts the changes of ``assignment``. ``revoking`` is what it was told to give up and may still hold.
    """

    id: MemberId
    joined_ms: int
    instance_id: InstanceId | None = None
    capacity: float = 1.0
    max_tasks: int | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    topology_epoch: int = 0
    on_lease_lost: OnLeaseLost = OnLeaseLost.STOP
    endpoint: str | None = None
    epoch: int = 0
    assignment: PMap[TaskId, Grant] = field(default_factory=PMap)
    revoking: PMap[TaskId, Revocation] = field(default_factory=PMap)
    drain: Drain | None = None
    away_until_ms: int | None = None
    suspected: bool = False
    max_disk_bytes: int | None = None


class GoneMember(NamedTuple):
    """A member id that must not come back: why, since when, and until when its lease may have run."""

    at_ms: int
    cause: Cause
    lease_end_ms: int
    instance_id: InstanceId | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Moves are held by an operator until ``expires_ms`` (None: until resumed)."""

    scope: PauseScope
    reason: str
    since_ms: int
    expires_ms: int | None


class Loss(NamedTuple):
    """A member that vanished (its lease expired); what the storm guard counts."""

    member_id: MemberId
    at_ms: int


EMPTY_TABLE: Final = TaskTable((), (), (), (), ())


@dataclass(frozen=True, slots=True)
class Group:
    """The aggregate: one group, as its records add up.

    Attributes:
        version: how many records the log of this group holds; an append expects it (L4).
        revision: counts declarations (topology and config), the ``ETag`` of the group.
        group_epoch: grows when members, topology or config change so that a new target may be needed.
        generation: the number of the last committed target assignment; ``generation_epoch`` the group epoch it answers.
        pins: the tasks that an operator pinned, with the member.
        unsettled: the tasks whose present holders are not yet what the target says, or are suspected, with what can
            become of them next.
        placement_due_ms: when the next placement is due; None when the target answers the present group epoch.
        placement_failed: why the last placement found no answer, so that the target stayed; empty if it found one.
        next_probe_ms: when to look again; None at rest.
        grants_from_ms: nothing is granted before this instant (L3, or a forced delete).
        recovering_until_ms: until then the store is known to have lost commits, and what members run is adopted (L3).
        longest_session_ms: the largest session timeout that any member may have been answered.
    """

    id: GroupId
    version: int = 0
    revision: int = 0
    declared: bool = False
    topology: Topology = Topology()
    config: GroupConfig = GroupConfig()
    table: TaskTable = EMPTY_TABLE
    group_epoch: int = 0
    generation: int = 0
    generation_epoch: int = 0
    members: PMap[MemberId, Member] = field(default_factory=PMap)
    instances: PMap[InstanceId, MemberId] = field(default_factory=PMap)
    tasks: PMap[TaskId, Task] = field(default_factory=PMap)
    gone: PMap[MemberId, GoneMember] = field(default_factory=PMap)
    unsettled: PMap[TaskId, Pending] = field(default_factory=PMap)
    pins: PMap[TaskId, MemberId] = field(default_factory=PMap)
    placement_due_ms: int | None = None
    triggers: tuple[str, ...] = ()
    next_probe_ms: int | None = None
    pause: Pause | None = None
    storm_since_ms: int | None = None
    losses: tuple[Loss, ...] = ()
    grants_from_ms: int = 0
    recovering_until_ms: int = 0
    longest_session_ms: int = 0
    tokens_from: int = 0
    placement_failed: str = ""

    def open_tasks(self) -> list[TaskId]:
        """Return the tasks that every step looks at. Of all others nobody has a warmup, or has yet to release them."""
        is_open = Pending.OPEN
        return [task_id for task_id, pending in self.unsettled.items() if pending is is_open]
