"""Everything that can happen to a group. An input says what arrived, not what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.model import OnLeaseLost, PauseScope, Topology
from batonpass.core.state.soft import Log, TaskReport


class Input:
    """One thing that happened to a group."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class GroupDeclaration(Input):
    """``PUT`` of a group. ``config`` has the settings that the caller named, ``if_match`` the revision it has read."""

    group_id: GroupId
    topology: Topology | None
    config: Mapping[str, object] | None
    if_match: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDeletion(Input):
    """``DELETE`` of a group. ``force`` deletes a group that has members."""

    force: bool = False


@dataclass(frozen=True, slots=True)
class PartitionCounts(Input):
    """The present partition counts of source topics, from Kafka."""

    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Join(Input):
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
    invalid_numbers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat(Input):
    """A heartbeat. ``tasks`` of None repeats the last report and confirms nothing.

    ``invalid_numbers`` has the path and the reason of each number in it that could not be read, and is left out.
    ``numbers`` has by name what the member says of itself, beside its tasks.
    """

    member_id: MemberId
    seq: int
    member_epoch: int
    tasks: Mapping[TaskId, TaskReport] | None = None
    unknown_fields: tuple[str, ...] = ()
    invalid_numbers: tuple[tuple[str, str], ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PollBroken(Input):
    """The long-poll of a member broke without an answer. The process may have died."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class PollOpened(Input):
    """The member opened a long-poll again, so it is alive. This does not renew its lease."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class Leave(Input):
    """A member has stopped its actives and leaves: for good, or (``restart``) to return under its instance id."""

    member_id: MemberId
    restart: bool = False


@dataclass(frozen=True, slots=True)
class DrainRequest(Input):
    """A member should hand over everything, within ``deadline_ms`` from now if given.

    ``until_undone``: this holds for each run of its instance, for ``for_ms`` if given.
    """

    member_id: MemberId
    deadline_ms: int | None = None
    until_undone: bool = False
    for_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DrainReversal(Input):
    """A draining member should stay after all, and its instance, if it is kept out, may have tasks again.

    ``member_id`` is the id of a present or past run, or an instance id.
    """

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class Eviction(Input):
    """An operator removes a member. ``dead`` vouches that its process no longer runs.

    ``until_undone``: no run of its instance gets a task meanwhile, for ``for_ms`` if given.
    """

    member_id: MemberId
    dead: bool = False
    until_undone: bool = False
    for_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TrustRequest(Input):
    """An operator trusts a member's host again, on which tasks failed."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class ProbeRequest(Input):
    """An operator asks for a probe now."""


@dataclass(frozen=True, slots=True)
class PauseRequest(Input):
    """An operator holds moves until ``expires_ms`` (an instant), for ``for_ms`` from now, or until they are resumed."""

    scope: PauseScope = PauseScope.BALANCE
    reason: str = ""
    expires_ms: int | None = None
    for_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ResumeRequest(Input):
    """An operator ends a pause, and a storm."""


@dataclass(frozen=True, slots=True)
class PinRequest(Input):
    """An operator pins a task to a member. ``member_id`` of None removes the pin."""

    task: TaskId
    member_id: MemberId | None


@dataclass(frozen=True, slots=True)
class ReleaseRequest(Input):
    """An operator lets a parked task be tried again."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class EndOffsets(Input):
    """Ends of changelog partitions that the coordinator read. ``read_ms`` is when the read began.

    ``offsets`` are the ends for readers of the group's isolation level. ``begin_offsets`` has the beginnings of
    partitions whose beginning was read and has changed. ``high_watermarks`` has the ends of the logs, read after the
    others, of partitions in which they lie beyond those: a transaction is open there. ``topic_ids`` has the ids of
    topics (KIP-516), where they are known.
    """

    offsets: Mapping[Log, int]
    read_ms: int
    begin_offsets: Mapping[Log, int] = field(default_factory=dict)
    high_watermarks: Mapping[Log, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Started(Input):
    """A coordinator has loaded the group. It judges no member for the largest session timeout (L3).

    ``clock_moved``: instants in the group may lie too early by the clock that counts from now on, so nothing is granted
    for as long either. ``ran_until_ms``: until when that clock is known to have run on as it should; a lease with a
    stored end that is no later is over. 0: not known.
    """

    clock_moved: bool = False
    ran_until_ms: int = 0


@dataclass(frozen=True, slots=True)
class StoreRecovered(Input):
    """An operator says that the store lost commits, or was restored (``db recovered``)."""


@dataclass(frozen=True, slots=True)
class Tick(Input):
    """Time has passed. A tick carries no order: the core looks up what is due."""


@dataclass(frozen=True, slots=True)
class StreamsProcess:
    """A process of a Kafka Streams application. ``capacity`` is the number of its processing threads.

    ``id`` is a UUID. ``name`` is what people call the process; if it has one, that is the id of its member. ``tasks``
    is what the process has. Kafka identifies only actives; every other copy has the role ``none``.
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
class StreamsRebalance(Input):
    """The leader of a Kafka Streams group reports the processes and what each has, and asks for an assignment.

    ``config`` has the settings of the application that are also settings of a group, and, if they are known, its
    ``application_id`` and the ``cluster_id`` of its Kafka. ``other`` is the decision of Kafka's own assignor, if the
    application follows that one.
    """

    topology: Topology
    config: Mapping[str, object]
    processes: tuple[StreamsProcess, ...]
    other: OtherAssignment | None = None


@dataclass(frozen=True, slots=True)
class RefusedRebalance(Input):
    """A question of the leader of a Kafka Streams group was refused, before it got here or here.

    ``config`` is what it says of its application, as far as that can be read.
    """

    why: str
    config: Mapping[str, object] = field(default_factory=dict)
