"""Every fact that is persisted, in the past tense. Group state is what these add up to (``evolve``), and nothing else.

Records say what became so, never how it was decided; the decision's trace and reasons stand beside them. Instants are
milliseconds since 1970 (UTC) by the coordinator's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from batonpass.core.ids import MemberId, TaskId
from batonpass.core.model import ActiveState, Cause, Grant, Member, Pause, Topology
from batonpass.core.policy import GroupConfig
from batonpass.core.soft import Positions


@dataclass(frozen=True, slots=True)
class GroupDeclared:
    """The group exists, with this topology and config; epochs and tokens go on from an earlier one of the name."""

    topology: Topology
    config: GroupConfig
    at_ms: int


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """The tasks are those of ``topology`` from now on."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """The settings are ``config`` from now on."""

    config: GroupConfig


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """The group is no more; its epochs and tokens are kept as a tombstone.

    Nothing is granted under the name before ``lease_end_ms``.
    """

    at_ms: int
    lease_end_ms: int


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """A member runs. ``member`` is its profile, with the epoch of its first assignment, which is empty."""

    member: Member


@dataclass(frozen=True, slots=True)
class MemberGone:
    """A member is no longer one. What it may still be running is unreleased until ``lease_end_ms``."""

    member_id: MemberId
    cause: Cause
    at_ms: int
    lease_end_ms: int


@dataclass(frozen=True, slots=True)
class MemberAway:
    """A member stopped to restart: its place is kept until ``until_ms``, its tasks are free."""

    member_id: MemberId
    until_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class PlaceInherited:
    """``successor`` stands in the place of ``member_id``: every target and pin of the one is the other's."""

    member_id: MemberId
    successor: MemberId


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """A member hands over everything and becomes the target of nothing.

    Recorded again where another deadline is set, and, with ``blocked``, when its time is over and tasks are left.
    """

    member_id: MemberId
    since_ms: int
    deadline_ms: int | None
    gives_up_ms: int
    blocked: str = ""


@dataclass(frozen=True, slots=True)
class DrainCancelled:
    """A member that was draining stays."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class MemberSuspected:
    """A member whose outputs are fenced was seen to break off; ready copies may take over."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class SuspicionCleared:
    """A suspected member spoke again."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class RebalanceScheduled:
    """A new target is due at ``due_ms``, because of ``trigger``; the group epoch has grown."""

    due_ms: int
    trigger: str


@dataclass(frozen=True, slots=True)
class TargetPlaced:
    """The target assignment of the present group epoch.

    ``changes`` maps each task whose target differs from before to (owner or None, standbys, why it waits or "").
    With no changes the generation stays what it was. ``failed`` says what went wrong where placement found no
    answer and the target stays as it was.
    """

    generation: int
    group_epoch: int
    at_ms: int
    changes: Mapping[TaskId, tuple[MemberId | None, tuple[MemberId, ...], str]]
    moves: int = 0
    lower_bound: int = 0
    failed: str = ""


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    """A member may hold other tasks than before.

    ``granted`` are new entries, or entries in a new role; ``revoked`` are entries taken out; ``demoted`` lists those of
    ``granted`` that were active and must stop processing; ``ready`` those active ones whose copy was caught up.
    ``lags`` has, of those that are warmups, how many records were left to restore, where that was known. Announced
    under ``epoch``, which is one above the last.
    """

    member_id: MemberId
    epoch: int
    at_ms: int
    granted: Mapping[TaskId, Grant] = field(default_factory=dict)
    revoked: tuple[TaskId, ...] = ()
    demoted: tuple[TaskId, ...] = ()
    ready: tuple[TaskId, ...] = ()
    lags: Mapping[TaskId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskReleased:
    """A member is known not to run a task any more: confirmed, or its lease ran out.

    ``at_ms`` is 0 in what was written before it was kept.
    """

    task: TaskId
    member_id: MemberId
    final_position: Positions = ()
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ReleaseWaived:
    """That a suspected member whose outputs are fenced has not released a task no longer holds it back."""

    task: TaskId
    member_id: MemberId


@dataclass(frozen=True, slots=True)
class NextOwnerChosen:
    """The task goes to ``next_owner`` as soon as nobody can be running it."""

    task: TaskId
    next_owner: MemberId


@dataclass(frozen=True, slots=True)
class ActiveReported:
    """The owner of a task is restoring, running, failed, or has lost its state."""

    task: TaskId
    member_id: MemberId
    state: ActiveState
    at_ms: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WarmupStalled:
    """A warmup made no progress for the stall timeout; its member is not tried again before ``until_ms``."""

    task: TaskId
    member_id: MemberId
    until_ms: int


@dataclass(frozen=True, slots=True)
class TaskParked:
    """A task failed on too many members; it waits for an operator."""

    task: TaskId
    members: tuple[MemberId, ...]


@dataclass(frozen=True, slots=True)
class TaskUnparked:
    """An operator lets a parked task be tried again."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class TaskPinned:
    """A task belongs to a member by an operator's word; None: no longer."""

    task: TaskId
    member_id: MemberId | None


@dataclass(frozen=True, slots=True)
class Paused:
    """Moves are held."""

    pause: Pause


@dataclass(frozen=True, slots=True)
class Resumed:
    """Moves go on."""


@dataclass(frozen=True, slots=True)
class StormBegan:
    """Too many members vanished at once: balance moves and cold takeovers stop."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class StormEnded:
    """The members returned, or an operator said so."""


@dataclass(frozen=True, slots=True)
class GrantsHeld:
    """Nothing is granted before ``until_ms``; ``adopting``: until then, what members run becomes their own (L3)."""

    until_ms: int
    reason: str
    adopting: bool = False


@dataclass(frozen=True, slots=True)
class EpochsRaised:
    """The store lost commits (L3): member epochs are at least ``epochs``, new tokens lie above ``tokens_from``."""

    epochs: Mapping[MemberId, int]
    tokens_from: int


@dataclass(frozen=True, slots=True)
class TasksAdopted:
    """After lost commits: what a member reported that it runs is its own (token per task).

    ``dropped`` are actives that the log gives it and that it does not run: it must confirm that it does not.
    """

    member_id: MemberId
    tokens: Mapping[TaskId, int]
    dropped: tuple[TaskId, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class ProbeScheduled:
    """The group is looked at again at ``at_ms``; None: it rests."""

    at_ms: int | None


@dataclass(frozen=True, slots=True)
class GoneForgotten:
    """Ids of members that left long ago may be forgotten."""

    member_ids: tuple[MemberId, ...]


Record = (
    GroupDeclared
    | TopologyChanged
    | ConfigChanged
    | GroupDeleted
    | MemberJoined
    | MemberGone
    | MemberAway
    | PlaceInherited
    | DrainStarted
    | DrainCancelled
    | MemberSuspected
    | SuspicionCleared
    | RebalanceScheduled
    | TargetPlaced
    | AssignmentChanged
    | TaskReleased
    | ReleaseWaived
    | NextOwnerChosen
    | ActiveReported
    | WarmupStalled
    | TaskParked
    | TaskUnparked
    | TaskPinned
    | Paused
    | Resumed
    | StormBegan
    | StormEnded
    | GrantsHeld
    | EpochsRaised
    | TasksAdopted
    | ProbeScheduled
    | GoneForgotten
)
