"""Hard state: the group, exactly as its records add up.

Hard state survives a restart of the coordinator. What may be lost, because members report it again, is in ``soft``.
All values here are immutable. Only ``evolve`` makes a new group, out of records.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from batonpass.core.state.ids import GroupId, HostId, InstanceId, MemberId, TaskId
from batonpass.core.state.pmap import PMap
from batonpass.core.state.policy import GroupConfig
from batonpass.placement.types import Tasks


class Role(StrEnum):
    """What a member does with its copy of a task."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warmup"


class ActiveState(StrEnum):
    """How far the owner of a task has come. ``GRANTED``: the task is assigned, and its owner has not reported yet."""

    GRANTED = "granted"
    RESTORING = "restoring"
    RUNNING = "running"
    FAILED = "failed"
    LOST = "lost"


ACTIVE: Final = Role.ACTIVE
STANDBY: Final = Role.STANDBY
WARMUP: Final = Role.WARMUP
GRANTED: Final = ActiveState.GRANTED
RESTORING: Final = ActiveState.RESTORING
RUNNING: Final = ActiveState.RUNNING
FAILED: Final = ActiveState.FAILED
LOST: Final = ActiveState.LOST
"""What is compared for every task of a group. Python 3.11 takes ten times as long to look an enum's member up."""


class OnLeaseLost(StrEnum):
    """What a member does with its active tasks when its lease is over.

    With ``CONTINUE`` it keeps running until the next owner's token fences its outputs. Only such a member can be
    suspected.
    """

    STOP = "stop"
    CONTINUE = "continue"


class Cause(StrEnum):
    """Why a member left the group."""

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
    changed the subtopology; only members with at least that epoch get its tasks. A task weighs ``weight`` unless
    ``task_weights`` names it. ``task_weights`` may name tasks that do not exist yet if the number of partitions comes
    from Kafka.
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

    ``epoch`` is the member epoch that announced the task in this role. ``token`` is the fencing token of an active; it
    is 0 for other roles. ``restore_to`` is the position up to which the last owner wrote, if known: one offset per
    changelog topic, under ``""`` for a single changelog.
    """

    role: Role
    epoch: int
    since_ms: int
    token: int = 0
    restore_to: tuple[tuple[str, int], ...] = ()


class Revocation(NamedTuple):
    """A task, or the active role of one, that a member must give up and has not confirmed yet.

    ``active`` is true while the member may still be running the task. ``epoch`` is the member epoch that announced the
    revocation.
    """

    epoch: int
    since_ms: int
    active: bool


class Unreleased(NamedTuple):
    """A member that may still be running a task that is no longer granted to it.

    ``free_at_ms`` is the end of the member's lease if it was fenced. It is None while its confirmation is awaited.
    """

    member_id: MemberId
    free_at_ms: int | None


class Outcome(StrEnum):
    """How a task ended where it did not run well.

    ``FAILED``: its owner said so. ``DIED``: its owner's lease expired while it ran the task. ``LOST``: a copy that was
    caught up was gone once it had the task. ``STUCK``: its owner did not come to run it, or restored again what it had,
    and a ready copy took over. ``SILENT``: its next owner was not heard when it could have been granted the task, and
    another member was.
    """

    FAILED = "failed"
    DIED = "died"
    LOST = "lost"
    STUCK = "stuck"
    SILENT = "silent"


class Failure(NamedTuple):
    """A task was tried on a host, and did not run well there. There is one for each host: the last (``failures``).

    A *host* is an instance id, or a member that has none. ``member_id`` is the run of it that had the task, since
    ``joined_ms``, under ``token``. ``times`` counts such tries in a row. ``ran_ms`` is for how long the task had run
    there, at most. ``detail`` is what the member said of it.
    """

    member_id: MemberId
    at_ms: int
    instance_id: InstanceId | None = None
    outcome: Outcome = Outcome.FAILED
    times: int = 1
    token: int = 0
    joined_ms: int = 0
    ran_ms: int = 0
    detail: str = ""


class Fault(NamedTuple):
    """What a host is charged with: a task that ran elsewhere after it failed there, or (no ``task``) its own death."""

    task: TaskId | None
    at_ms: int
    member_id: MemberId | None = None
    """Of a death: which run it was."""


class HostFaults(NamedTuple):
    """The faults of a host, and since when it is given nothing new because of them (0: it never was).

    How long that lasts follows from ``times``, which counts how often it came to that in a row (``failures``).
    """

    faults: tuple[Fault, ...] = ()
    distrusted_ms: int = 0
    times: int = 0


class Stall(NamedTuple):
    """A warmup on this member made no progress. The member is not tried again before ``until_ms``.

    ``gave_way``: it came no closer, and left what it held to others that waited (``turns``).
    """

    member_id: MemberId
    until_ms: int
    gave_way: bool = False


REVOKED: Final = "revoked"
"""The ``cause`` of a stop after a revocation."""
SUSPECTED: Final = "suspected"
"""The ``cause`` of a stop because the member was suspected to be dead."""


class Stop(NamedTuple):
    """The end of the last run of a task: which member ran it, when the run was surely over, and why it ended.

    ``at_ms`` is None while that member may still be running it. ``cause`` is one of three things: ``revoked`` or
    ``suspected`` if the coordinator took the task away, the ``Cause`` for which the member left, or the state that the
    owner fell back to (``failed``, ``lost``, ``restoring``). ``heard_ms`` is when the member was last heard, if it did
    not report the stop (``UNSEEN_STOPS``): the run ended between then and ``at_ms``. None: that is not known.
    """

    member_id: MemberId
    at_ms: int | None
    cause: str
    heard_ms: int | None = None


UNSEEN_STOPS: Final = frozenset(
    {SUSPECTED, Cause.EXPIRED, Cause.EVICTED, Cause.REPLACED, Cause.TAKEN_OVER, Cause.FENCED}
)
"""Causes of stops that the member did not report: it may have stopped at any time before the stop's ``at_ms``."""


class Target(NamedTuple):
    """Where a task belongs: its owner and its standbys. Without an owner it waits, and ``waiting_reason`` says why."""

    owner: MemberId | None = None
    standbys: tuple[MemberId, ...] = ()
    waiting_reason: str = ""


class Handover(NamedTuple):
    """What is left of the last owner of a task, and who comes next. Most tasks have none of it (``NO_HANDOVER``).

    Attributes:
        unreleased: members that may still be running the task without a grant.
        next_owner: the member that gets the task once it is released.
        previous_owner: the last owner, which keeps its copy until the new owner runs.
        final_position: up to where the last owner wrote, as ``Grant.restore_to``.
        away_owner: the away member that ran the task.
        stop: how the last run ended, kept until the task runs again. Handovers and failovers are measured by it.
    """

    unreleased: tuple[Unreleased, ...] = ()
    next_owner: MemberId | None = None
    previous_owner: MemberId | None = None
    final_position: tuple[tuple[str, int], ...] = ()
    away_owner: MemberId | None = None
    stop: Stop | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the task has still to change hands, or may yet go back."""
        return bool(self.unreleased) or self.next_owner is not None or self.previous_owner is not None


class Marks(NamedTuple):
    """What is held against a task or its hosts, and an operator's word. Most tasks have none of it (``UNMARKED``)."""

    pin: MemberId | None = None
    parked: bool = False
    failures: tuple[Failure, ...] = ()
    stalls: tuple[Stall, ...] = ()


NOWHERE: Final = Target()
NO_HANDOVER: Final = Handover()
UNMARKED: Final = Marks()


class Task(NamedTuple):
    """One task: who runs it and who has a copy, then where it belongs, what is under way, and what is marked.

    The last three are values of their own: a change replaces one whole, and tasks without any share one
    (``with_handover``, ``with_marks``), so that a group of many tasks at rest is small.

    Attributes:
        owner: the member that has been granted the active.
        state: how far the owner has come. Without an owner it says only how far the last one had come.
        ready_grant: the owner was caught up when it was granted the task.
        since_ms: when the task got or lost its owner.
        token: the highest fencing token granted so far.
        ran_since_ms: when the task last began to run.
        well_ms: until when the task is last known to have run well. Earlier failures were not its own fault.
    """

    id: TaskId
    owner: MemberId | None = None
    state: ActiveState = ActiveState.GRANTED
    ready_grant: bool = False
    since_ms: int = 0
    token: int = 0
    ran_since_ms: int = 0
    well_ms: int = 0
    standbys: tuple[MemberId, ...] = ()
    warmups: tuple[MemberId, ...] = ()
    target: Target = NOWHERE
    handover: Handover = NO_HANDOVER
    marks: Marks = UNMARKED

    @property
    def stopped_ms(self) -> int:
        """When it last ran, as far as anybody said: when its owner was last heard, if that did not report the end.

        Of a task of which that is not known, it is when it got or lost its owner.
        """
        stop = self.handover.stop
        known = None if stop is None else stop.at_ms if stop.heard_ms is None else stop.heard_ms
        return self.since_ms if known is None else known

    @property
    def holders(self) -> dict[MemberId, Role]:
        """The members with a standby or warmup of it, and their roles. All of them are present."""
        copies = dict.fromkeys(self.standbys, STANDBY)
        if self.warmups:
            copies.update(dict.fromkeys(self.warmups, WARMUP))
        return copies

    @property
    def is_held(self) -> bool:
        """Whether any member has it, or may still run it."""
        return bool(self.owner or self.handover.unreleased or self.standbys or self.warmups)

    def with_target(self, target: Target) -> "Task":
        """Return the task with another target. A task that belongs nowhere has no next owner either."""
        # Every task of a first generation gets one. ``_replace`` would take twice the time.
        task = Task._make((*self[:_TARGET], target, *self[_TARGET + 1 :]))
        return task.with_handover(next_owner=None) if target.owner is None and self.handover.next_owner else task

    def with_handover(self, **changes: object) -> "Task":
        return self._replace(handover=shared(self.handover._replace(**changes)))  # type: ignore[arg-type]

    def with_marks(self, **changes: object) -> "Task":
        marks = self.marks._replace(**changes)  # type: ignore[arg-type]
        return self._replace(marks=UNMARKED if marks == UNMARKED else marks)


_TARGET: Final = Task._fields.index("target")


def shared(handover: Handover) -> Handover:
    """Return the handover, or the one that all tasks share that have none."""
    return NO_HANDOVER if handover == NO_HANDOVER else handover


class Pending(IntEnum):
    """Which steps look at an unsettled task, which is a task that is not yet as its target says.

    What each task waits for, and which step looks at it::

        it is not at its target,
        and only a slot is missing          -->  QUEUED         a step with a free slot, in the order of the queue
              | a slot is given
              v
        a copy, a handover, a release
        or a suspicion is under way         -->  MOVING         every step: anything may change for it
              | granted to its target
              v
        its owner has not reported running  -->  AWAITING_NEWS  a step with news of the task
              | it runs
              v
        settled                                                 none

    A ``QUEUED`` task runs and has as many standbys as it should. It waits for a warmup slot, at its target or where a
    standby is to move. A task that has no owner, and that no member may have, is ``AWAITING_NEWS`` as well: it waits
    for a target. A record can turn each kind into any other (``evolve``). Where members have limits on their copies
    (``room``), tasks share room, and every step looks at the queued tasks too. Every step also looks at the settled
    tasks of a member that is past the deadline of its drain. A queued task is ``MOVING`` if the drain of its owner has
    a deadline.
    """

    AWAITING_NEWS = 0
    MOVING = 1
    QUEUED = 2


AWAITING_NEWS: Final = Pending.AWAITING_NEWS
MOVING: Final = Pending.MOVING
QUEUED: Final = Pending.QUEUED


def pending(task: Task, *, replicas: int | None) -> Pending | None:
    """Return which steps look at a task of the topology, as far as the task itself says; None if it is settled.

    A task is settled if it runs at its target, has the wanted standbys, and involves no other member. ``replicas`` is
    how many standbys a task should have; None for a stateless task. ``evolve`` asks this of each task that changes. It
    marks two kinds of tasks ``MOVING`` by itself: those of a suspected owner, and queued ones whose owner's drain has a
    deadline.
    """
    _, owner, state, _, _, _, _, _, standbys, warmups, (target, target_standbys, _), handover, marks = task
    if warmups or (handover is not NO_HANDOVER and handover.is_under_way):
        return MOVING
    if owner is None:
        is_to_go = target is not None or standbys or target_standbys
        return MOVING if is_to_go else AWAITING_NEWS
    if owner == target and standbys == target_standbys:
        if state is RUNNING:
            return None
        return AWAITING_NEWS if state in (GRANTED, RESTORING) else MOVING
    runs_on = state is RUNNING and target is not None and not marks.parked and not marks.stalls
    is_complete = len(standbys) == len(target_standbys) == replicas
    is_queued = runs_on and is_complete and target not in standbys and owner not in standbys
    return QUEUED if is_queued else MOVING


@dataclass(frozen=True, slots=True)
class Drain:
    """A member hands over everything, in order to leave.

    ``deadline_ms`` and ``gives_up_ms`` are instants. ``blocked`` names the one that passed (``drain-deadline`` or
    ``drain-timeout``) while the member still had active tasks. Until then it is "". ``kept_out``: the member is a run
    of an instance that was kept out when it joined. It gets nothing, not even as the last choice.
    """

    since_ms: int
    deadline_ms: int | None
    gives_up_ms: int
    blocked: str = ""
    kept_out: bool = False


class KeptOut(NamedTuple):
    """An operator's word on an instance: no run of it gets a task until ``until_ms``. None: until that is undone."""

    since_ms: int
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class Member:
    """One run of a worker, or (``away_until_ms``) the place kept for an instance that restarts.

    ``epoch`` counts the changes of ``assignment``. ``revoking`` has what the member must give up and may still hold.
    ``place_since_ms`` is when the first of the runs joined whose place the member has; None if it took none.
    ``doubts`` has the tasks of which its state is of a changelog that was made anew since, and its positions then.
    ``tried_ms`` is until when the copy is not tried again there that last stalled or gave way: its turn (``budget``).
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
    place_since_ms: int | None = None
    doubts: PMap[TaskId, tuple[tuple[str, int], ...]] = field(default_factory=PMap)
    tried_ms: int = 0

    @property
    def actives(self) -> list[TaskId]:
        return [task_id for task_id, grant in self.assignment.items() if grant.role is ACTIVE]

    @property
    def may_run(self) -> list[TaskId]:
        """The tasks that it has as active, or may still be running."""
        given_up = [task_id for task_id, revocation in self.revoking.items() if revocation.active]
        return list(dict.fromkeys([*self.actives, *given_up]))

    @property
    def gets_nothing(self) -> bool:
        """Whether this is a run of an instance that was kept out when it joined."""
        return self.drain is not None and self.drain.kept_out


class GoneMember(NamedTuple):
    """A member id that must not be used again: why and when it left, and when its lease ends at the latest.

    ``since_ms`` is when its stay began (``newcomers``). ``doubts`` are those that it had; they hold for the state on
    its disk. ``heard_again``: it was taken for dead, and was not.
    """

    at_ms: int
    cause: Cause
    lease_end_ms: int
    instance_id: InstanceId | None
    since_ms: int | None = None
    doubts: Mapping[TaskId, tuple[tuple[str, int], ...]] = {}
    heard_again: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator holds moves until ``expires_ms``. None: until moves are resumed."""

    scope: PauseScope
    reason: str
    since_ms: int
    expires_ms: int | None


class Loss(NamedTuple):
    """A member whose lease expired while it had tasks or copies. The storm guard counts these."""

    member_id: MemberId
    at_ms: int


class LoadMove(NamedTuple):
    """A task that was moved for its load, and when: for ``load_cooldown_ms`` it is not moved for that again."""

    task: TaskId
    at_ms: int


@dataclass(frozen=True, slots=True)
class TaskTable(Tasks):
    """The tasks of a topology, in the order (subtopology, partition). A task's index is its place in it.

    Attributes:
        ids: the tasks, sorted.
        index_of: the index of each id; derived.
    """

    ids: tuple[TaskId, ...] = field(kw_only=True)
    index_of: Mapping[TaskId, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Derive, once per topology, what is read often."""
        Tasks.__post_init__(self)
        object.__setattr__(self, "index_of", {task: task_index for task_index, task in enumerate(self.ids)})

    def in_order(self, task_ids: Collection[TaskId]) -> list[TaskId]:
        """Return tasks in the order of the topology. Tasks that it has dropped come last, by id."""
        index_of = self.index_of
        dropped = sorted([task_id for task_id in task_ids if task_id not in index_of])
        return sorted([task_id for task_id in task_ids if task_id in index_of], key=index_of.__getitem__) + dropped


EMPTY_TABLE: Final = TaskTable((), (), (), (), ids=())


@dataclass(frozen=True, slots=True)
class Group:
    """The aggregate: one group, as its records add up.

    Attributes:
        version: how many records the log of this group has. An append names the version that it expects (L4).
        revision: counts declarations of topology and config. It is the group's ``ETag``.
        group_epoch: grows when members, topology or config change so that a new target may be needed.
        generation: the number of the last committed target assignment.
        generation_epoch: the group epoch of the last placement. It may have failed, or changed nothing.
        pins: the tasks that an operator pinned, with their member.
        tasks: those of the topology, and of earlier ones those that somebody still holds.
        unsettled: the tasks whose holders differ from the target, or include a suspected member; and which steps have
            to look at each of them.
        placement_due_ms: when the next placement is due. None if no change waits for one.
        placement_failed: why the last placement found no answer and left the target unchanged. Empty if it found one.
        next_probe_ms: when to look again. None at rest.
        grants_from_ms: nothing is granted before this instant (L3, or a forced delete).
        recovering_until_ms: the store lost commits; until this instant the group adopts what members run (L3).
        longest_session_ms: the largest session timeout that any member may have received in an answer.
        kept_out: the instances of which no run gets a task, whether they have a member or not.
        placed_ms: when the group was last placed.
        hosts: the faults of each host that has any, by its instance id, or member id if it has none.
        loads: the measured load of tasks, in steps (``loads``). Under ``balance_by`` ``measured`` the table has these.
        hot_since_ms: since when a member's load is above the average by more than ``load_imbalance``. None: none is.
        load_moves: the tasks that were moved for load lately.
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
    kept_out: PMap[InstanceId, KeptOut] = field(default_factory=PMap)
    placed_ms: int = 0
    hosts: PMap[HostId, HostFaults] = field(default_factory=PMap)
    loads: PMap[TaskId, float] = field(default_factory=PMap)
    hot_since_ms: int | None = None
    load_moves: tuple[LoadMove, ...] = ()

    def task(self, task_id: TaskId) -> Task:
        """Return a task. One that is unknown, or that has ended, is free and has no target."""
        return self.tasks.get(task_id) or Task(task_id)

    def present_member(self, member_id: MemberId | None) -> Member | None:
        """Return the member if it is in the group and not away to restart."""
        member = self.members.get(member_id) if member_id is not None else None
        return None if member is None or member.away_until_ms is not None else member

    @property
    def heartbeat_interval_ms(self) -> int:
        """How often its members are told to report: the setting, or less often where there are many (protocol 4.1).

        They say no more than ``max_heartbeats_per_s`` together, unless the session timeout leaves no room for that.
        """
        config = self.config
        longest_ms = (config.session_timeout_ms - 1_000) // 3
        return max(
            config.heartbeat_interval_ms, min(1_000 * len(self.members) // config.max_heartbeats_per_s, longest_ms)
        )

    @property
    def look_again_ms(self) -> int:
        """How soon the group is looked at again for what its members say meanwhile.

        That costs as much as the group is large, so an interval of less than a second, which its members may choose,
        counts as one.
        """
        return max(self.heartbeat_interval_ms, 1_000)

    @property
    def overdue_ms(self) -> int:
        """The silence after which a member is missing a heartbeat and may be about to expire."""
        return 2 * self.heartbeat_interval_ms

    @property
    def report_interval_ms(self) -> int:
        """How often they are told to report what only reads on: the setting, as much longer as the interval above."""
        return self.config.report_interval_ms * self.heartbeat_interval_ms // self.config.heartbeat_interval_ms

    @property
    def position_age_max_ms(self) -> int:
        """How old the reported position of a copy may be that is caught up and reads on (protocol 4.10).

        After ``report_interval_ms`` its member reports it with the heartbeat that is due next.
        """
        return self.report_interval_ms + self.heartbeat_interval_ms

    @property
    def storm_over_ms(self) -> int | None:
        """When a storm ends by itself if nobody else is lost and somebody is heard. None: there is no storm."""
        if self.storm_since_ms is None:
            return None
        last_ms = max([self.storm_since_ms, *(loss.at_ms for loss in self.losses)])
        return last_ms + max(self.config.rejoin_grace_ms, self.config.session_timeout_ms)

    def moving_tasks(self) -> list[TaskId]:
        """Return the tasks that every step looks at. No other task has warmups, or members that have to release it."""
        return [task_id for task_id, mark in self.unsettled.items() if mark is MOVING]
