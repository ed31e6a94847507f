"""Everything that can happen to a group. An input is a noun: it says what arrived, never what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from batonpass.core.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.model import OnLeaseLost, PauseScope, Topology
from batonpass.core.soft import TaskReport


@dataclass(frozen=True, slots=True)
class GroupDeclaration:
    """``PUT`` of a group. ``config`` holds the settings named by the caller; ``if_match`` the revision it has read."""

    group_id: GroupId
    topology: Topology | None
    config: Mapping[str, object] | None
    if_match: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDeletion:
    """``DELETE`` of a group; ``force`` takes its members with it."""

    force: bool = False


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """The partition counts of source topics, as Kafka has them now."""

    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Join:
    """A new run of a worker, or a join whose reply was lost."""

    member_id: MemberId
    instance_id: InstanceId | None = None
    takeover: bool = False
    replaces: MemberId | None = None
    capacity: float = 1.0
    max_tasks: int | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    topology_epoch: int | None = None
    on_lease_lost: OnLeaseLost = OnLeaseLost.STOP
    endpoint: str | None = None
    tasks: Mapping[TaskId, TaskReport] = field(default_factory=dict)
    unknown_fields: tuple[str, ...] = ()
    max_disk_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member's word. ``tasks`` of None leaves the last report standing and confirms nothing."""

    member_id: MemberId
    seq: int
    member_epoch: int
    tasks: Mapping[TaskId, TaskReport] | None = None
    unknown_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PollBroken:
    """The long-poll of a member broke without an answer: its process may have died."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class PollOpened:
    """The member opened a long-poll again: it lives. No heartbeat: the lease is not renewed."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class Leave:
    """A member has stopped its actives and goes: for good, or (``restart``) to come back under its instance id."""

    member_id: MemberId
    restart: bool = False


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """A member is to hand over everything, by ``deadline_ms`` from now at the latest where one is given."""

    member_id: MemberId
    deadline_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DrainReversal:
    """A draining member stays after all."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class Eviction:
    """An operator removes a member; ``dead`` vouches that its process no longer runs."""

    member_id: MemberId
    dead: bool = False


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """An operator asks for a look now."""


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """An operator holds moves until ``expires_ms`` (an instant), or until resumed."""

    scope: PauseScope = PauseScope.BALANCE
    reason: str = ""
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """An operator ends a pause, and a storm."""


@dataclass(frozen=True, slots=True)
class PinRequest:
    """An operator binds a task to a member; ``member_id`` of None takes the pin off."""

    task: TaskId
    member_id: MemberId | None


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """An operator lets a parked task be tried again."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class EndOffsets:
    """Ends of changelog partitions, read by the coordinator; ``read_ms`` is when the read was begun.

    ``begin_offsets`` are where partitions begin, of those that were looked at for that and begin elsewhere than known.
    """

    offsets: Mapping[tuple[str, int], int]
    read_ms: int
    begin_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Started:
    """A coordinator has loaded the group: nobody is judged for one (the largest) session timeout (L3)."""


@dataclass(frozen=True, slots=True)
class StoreRecovered:
    """An operator says that the store lost commits, or was restored (``db recovered``)."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Carries no order: what is due is looked up again."""


@dataclass(frozen=True, slots=True)
class StreamsProcess:
    """A process of a Kafka Streams application; ``capacity`` is its processing threads.

    ``id`` is a UUID; ``name`` is what people call the process, and its member's id where there
    is one. ``tasks`` is what it has: Kafka tells actives apart, every other copy has the role ``none``.
    """

    id: InstanceId
    capacity: float = 1.0
    client_tags: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[TaskId, TaskReport] = field(default_factory=dict)
    name: str = ""
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class OtherAssignment:
    """What Kafka's own assignor decided at a rebalance: the actives of each process."""

    assignor: str
    actives: Mapping[InstanceId, tuple[TaskId, ...]]


@dataclass(frozen=True, slots=True)
class StreamsRebalance:
    """The leader of a Kafka Streams group asks who is to have what, and says who is there and has what now.

    ``config`` holds the settings of the application that are also a group's. ``other`` is what Kafka's own assignor
    decided, where that is what is done.
    """

    topology: Topology
    config: Mapping[str, object]
    processes: tuple[StreamsProcess, ...]
    other: OtherAssignment | None = None


Input = (
    GroupDeclaration
    | GroupDeletion
    | PartitionCounts
    | Join
    | Heartbeat
    | PollBroken
    | PollOpened
    | Leave
    | DrainRequest
    | DrainReversal
    | Eviction
    | ProbeRequest
    | PauseRequest
    | ResumeRequest
    | PinRequest
    | ReleaseRequest
    | EndOffsets
    | Started
    | StoreRecovered
    | StreamsRebalance
    | Tick
)
