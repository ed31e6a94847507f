"""Every fact that is persisted, in the past tense. Group state is exactly what these add up to (``evolve``).

Records say what happened. How it was decided is in the decision's trace and reasons, which are stored with them.
Instants are milliseconds since 1970 (UTC) by the coordinator's clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.model import ActiveState, Cause, Grant, Member, Pause, Target, Topology
from batonpass.core.state.policy import GroupConfig
from batonpass.core.state.soft import Positions

HEARD_AGAIN: Final = "heard-again"
"""The trigger of a placement because a member is there again without which the one before was made."""


class Record:
    """One fact that is persisted."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class GroupDeclared(Record):
    """The group exists, with this topology and config. Epochs and tokens continue from an earlier group of the name."""

    topology: Topology
    config: GroupConfig
    at_ms: int


@dataclass(frozen=True, slots=True)
class TopologyChanged(Record):
    """The tasks are those of ``topology`` from now on."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class TasksEnded(Record):
    """A Kafka Streams application has these tasks no more. If it has others under their ids, those begin anew."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class ConfigChanged(Record):
    """The settings are ``config`` from now on."""

    config: GroupConfig


@dataclass(frozen=True, slots=True)
class GroupDeleted(Record):
    """The group is deleted. A tombstone keeps its epochs and its highest token.

    Nothing is granted under the name before ``lease_end_ms``.
    """

    at_ms: int
    lease_end_ms: int


@dataclass(frozen=True, slots=True)
class MemberJoined(Record):
    """A member joined. ``member`` is its profile, with the epoch of its first assignment, which is empty."""

    member: Member


@dataclass(frozen=True, slots=True)
class MemberGone(Record):
    """A member left the group. What it may still be running is unreleased until ``lease_end_ms``.

    ``heard_ms`` is when it was last heard, if it was given up. None: the coordinator had not heard it yet.
    """

    member_id: MemberId
    cause: Cause
    at_ms: int
    lease_end_ms: int
    heard_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MemberAway(Record):
    """A member stopped to restart. Its place is kept until ``until_ms``, and its tasks are free."""

    member_id: MemberId
    until_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class MemberChanged(Record):
    """A process of a Kafka Streams application goes on with other threads, tags or another address."""

    member_id: MemberId
    capacity: float
    client_tags: Mapping[str, str]
    endpoint: str | None


@dataclass(frozen=True, slots=True)
class PlaceInherited(Record):
    """``successor`` takes the place of ``member_id``: it gets all of its targets and pins."""

    member_id: MemberId
    successor: MemberId


@dataclass(frozen=True, slots=True)
class DrainStarted(Record):
    """A member hands over everything, and is no longer the target of any task.

    Recorded again for another deadline, and, with ``blocked``, when its time is over and tasks are left.
    """

    member_id: MemberId
    since_ms: int
    deadline_ms: int | None
    gives_up_ms: int
    blocked: str = ""


@dataclass(frozen=True, slots=True)
class DrainCancelled(Record):
    """A draining member stays."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class InstanceKeptOut(Record):
    """An operator keeps an instance out: no run of it gets a task until ``until_ms``. None: until that is undone."""

    instance_id: InstanceId
    since_ms: int
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class InstanceLetIn(Record):
    """An instance that was kept out may have tasks again."""

    instance_id: InstanceId


@dataclass(frozen=True, slots=True)
class MemberSuspected(Record):
    """A member with fenced outputs broke its long-poll and stayed silent. Ready copies may take over."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class SuspicionCleared(Record):
    """A member that was suspected, or whose lease had expired, was heard again under its id: it had not died."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class MemberTrusted(Record):
    """An operator trusts a member's host again: what was held against it is forgotten.

    ``instance_id`` names the host if it has no member now; ``member_id`` is then what the operator called it.
    """

    member_id: MemberId
    instance_id: InstanceId | None = None


@dataclass(frozen=True, slots=True)
class RebalanceScheduled(Record):
    """A new target is due at ``due_ms``, because of ``trigger``; the group epoch has grown."""

    due_ms: int
    trigger: str


@dataclass(frozen=True, slots=True)
class TargetPlaced(Record):
    """The target assignment of the present group epoch.

    ``changes`` has the new target of each task whose target changes. Without changes the generation stays the same.
    ``failed`` says what went wrong if placement found no answer and the target stays.
    """

    generation: int
    group_epoch: int
    at_ms: int
    changes: Mapping[TaskId, Target]
    moves: int = 0
    lower_bound: int = 0
    failed: str = ""


@dataclass(frozen=True, slots=True)
class AssignmentChanged(Record):
    """A member has a new assignment, under ``epoch``, which is one above the last.

    ``granted`` are new entries, or entries in a new role. ``revoked`` are removed entries. ``demoted`` are those of
    ``granted`` that were active and must stop processing. ``ready`` are the active ones whose copy was caught up.
    ``lags`` has, for the warmups among them, how many records were left to restore, if known. ``stuck`` are the actives
    that the member gives up because it did not come to run them.
    """

    member_id: MemberId
    epoch: int
    at_ms: int
    granted: Mapping[TaskId, Grant] = field(default_factory=dict)
    revoked: tuple[TaskId, ...] = ()
    demoted: tuple[TaskId, ...] = ()
    ready: tuple[TaskId, ...] = ()
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    stuck: tuple[TaskId, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskReleased(Record):
    """A member no longer runs a task: it confirmed, or its lease ran out.

    ``at_ms`` is 0 in old records, from before it was stored.
    """

    task: TaskId
    member_id: MemberId
    final_position: Positions = ()
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ReleaseWaived(Record):
    """The task no longer waits until a suspected member with fenced outputs, last heard then, has released it."""

    task: TaskId
    member_id: MemberId
    heard_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NextOwnerChosen(Record):
    """The task goes to ``next_owner`` as soon as no member can be running it."""

    task: TaskId
    next_owner: MemberId


@dataclass(frozen=True, slots=True)
class ActiveReported(Record):
    """The owner of a task reported that it is restoring, running, failed, or has lost its state."""

    task: TaskId
    member_id: MemberId
    state: ActiveState
    at_ms: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WarmupStalled(Record):
    """A warmup made no progress for the stall timeout. Its member is not tried again before ``until_ms``.

    ``gave_way``: its lag did not fall for that time, and others waited for what it held. It may have read on.
    """

    task: TaskId
    member_id: MemberId
    until_ms: int
    gave_way: bool = False


@dataclass(frozen=True, slots=True)
class StateDoubted(Record):
    """A member's state of tasks is of changelogs that were made anew since. ``tasks`` has its positions in them."""

    member_id: MemberId
    tasks: Mapping[TaskId, Positions]


@dataclass(frozen=True, slots=True)
class StateTrusted(Record):
    """A member began anew with tasks of which its state was doubted, or holds nothing of them any more."""

    member_id: MemberId
    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class TaskParked(Record):
    """A task failed on too many members. It waits for an operator."""

    task: TaskId
    members: tuple[MemberId, ...]


@dataclass(frozen=True, slots=True)
class TaskUnparked(Record):
    """A parked task is tried again: an operator released it, or a death that parked it was none."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class TaskPinned(Record):
    """An operator pinned a task to a member. None: the operator removed the pin."""

    task: TaskId
    member_id: MemberId | None


@dataclass(frozen=True, slots=True)
class Paused(Record):
    """Moves are held."""

    pause: Pause


@dataclass(frozen=True, slots=True)
class Resumed(Record):
    """Moves go on."""


@dataclass(frozen=True, slots=True)
class StormBegan(Record):
    """Too many members vanished at once. Moves for balance and cold takeovers stop."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class StormEnded(Record):
    """The members returned, or an operator ended the storm."""


@dataclass(frozen=True, slots=True)
class GrantsHeld(Record):
    """Nothing is granted before ``until_ms``. ``adopting``: until then the group adopts what members run (L3).

    ``set_back_ms``: the clock has gone back by so much, and so do all instants that were stored before (``set_back``).
    """

    until_ms: int
    reason: str
    adopting: bool = False
    set_back_ms: int = 0


@dataclass(frozen=True, slots=True)
class EpochsRaised(Record):
    """The store lost commits (L3). Member epochs are at least ``epochs``, and new tokens lie above ``tokens_from``."""

    epochs: Mapping[MemberId, int]
    tokens_from: int


@dataclass(frozen=True, slots=True)
class TasksAdopted(Record):
    """After lost commits: a member owns the tasks that it reported as running (token per task).

    ``dropped`` are actives that it has in the log and does not run. It must confirm that.
    """

    member_id: MemberId
    tokens: Mapping[TaskId, int]
    dropped: tuple[TaskId, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class ProbeScheduled(Record):
    """The next probe is at ``at_ms``. None: the group rests."""

    at_ms: int | None


@dataclass(frozen=True, slots=True)
class LoadsMeasured(Record):
    """The measured load of these tasks is another one, in steps."""

    loads: Mapping[TaskId, float]


@dataclass(frozen=True, slots=True)
class ImbalanceNoted(Record):
    """A member's load is above the average by more than ``load_imbalance``. None: none is any more."""

    since_ms: int | None


@dataclass(frozen=True, slots=True)
class MovedForLoad(Record):
    """The target of these tasks has just been changed for their load."""

    tasks: tuple[TaskId, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class GoneForgotten(Record):
    """The ids of members that left long ago are forgotten."""

    member_ids: tuple[MemberId, ...]
