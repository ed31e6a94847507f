"""The words of the member's side: what a worker tells its protocol machine, and what the machine tells it to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import index


class Role(StrEnum):
    """What a member has of a task; ``none`` is state on disk that is not being followed."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warmup"
    NONE = "none"


class Stage(StrEnum):
    """How far an active is: it still reads its changelog, it processes, or it cannot."""

    RESTORING = "restoring"
    RUNNING = "running"
    FAILED = "failed"


class Phase(StrEnum):
    """Where one worker process stands with its group."""

    NEW = "new"
    JOINING = "joining"
    JOINED = "joined"
    # Refused by the coordinator: nothing is sent until every active has stopped, then a new run joins.
    FENCED = "fenced"
    # The worker wants to leave: heartbeats go on until every active has stopped, then the leave is sent.
    LEAVING = "leaving"
    GOODBYE = "goodbye"
    # Refused, and the worker wants to leave: nothing is sent, and it ends when every active has stopped.
    ENDING = "ending"
    # The end, wanted (left) or not (stopped): nothing is sent any more.
    LEFT = "left"
    STOPPED = "stopped"


class OnLeaseLost(StrEnum):
    """What becomes of the actives when the lease is over.

    ``stop`` is for outputs without fencing; ``continue`` is for workers whose every output is fenced, by token or by a
    transactional producer.
    """

    STOP = "stop"
    CONTINUE = "continue"


class LeaveMode(StrEnum):
    """Whether the worker goes for good, or comes back under its instance id."""

    LEAVE = "leave"
    RESTART = "restart"


class RequestKind(StrEnum):
    """The calls that a member makes."""

    JOIN = "join"
    HEARTBEAT = "heartbeat"
    POLL = "poll"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    LEAVE = "leave"


OFFSET_MAX = 2**63 - 1

Offsets = int | Mapping[str, int]
"""A place in a task's changelog, or in each of its changelogs by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """What a worker says of itself when it joins, and how its machine behaves. Durations are milliseconds.

    ``takeover`` vouches that an older process of the same instance is dead; it holds for the first join only, because
    a run that was fenced cannot know which process has the instance id by now. ``listen`` keeps a long-poll open.
    ``stop_early_ms`` ends the lease that much earlier on this side, for a worker that needs a moment to stop.
    ``request_timeout_ms`` is for joins, drains and leaves; a heartbeat waits no longer than its interval.
    ``jitter_seed`` spreads the retries of many members; equal seeds give equal waits.
    """

    instance_id: str | None = None
    takeover: bool = False
    capacity: float = 1
    max_tasks: int | None = None
    max_disk_bytes: int | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    topology_epoch: int | None = None
    on_lease_lost: OnLeaseLost = OnLeaseLost.STOP
    endpoint: str | None = None
    listen: bool = True
    poll_wait_ms: int = 30_000
    stop_early_ms: int = 0
    request_timeout_ms: int = 3_000
    jitter_seed: int = 0


def checked_offsets(offsets: Offsets, name: str = "an offset") -> Offsets:
    """Return offsets as plain integers, which those of other libraries may not be.

    Raises:
        TypeError: when one is no integer.
        ValueError: when one is below 0, or beyond 2⁶³ - 1.
    """
    if isinstance(offsets, Mapping):
        return {topic: _checked_offset(offset, f"{name} of {topic}") for topic, offset in offsets.items()}
    return _checked_offset(offsets, name)


def _checked_offset(offset: int, name: str) -> int:
    plain = index(offset)
    if not 0 <= plain <= OFFSET_MAX:
        raise ValueError(f"{name} is {plain}, which is no offset: it is at least 0, that of the record to be read next")
    return plain


LOAD_MAX = 1_000_000.0
"""The highest load that a coordinator takes (protocol 4.9)."""


def checked_load(load: float) -> float:
    """Return a load as a plain number.

    Raises:
        TypeError, ValueError: when it is no number from 0 to `LOAD_MAX`: a coordinator takes no other (protocol 4.9).
    """
    plain = float(load)
    if not 0 <= plain <= LOAD_MAX:
        raise ValueError(f"a load is a number from 0 to {LOAD_MAX:,.0f}, and not {plain}")
    return plain


DETAIL_CHARS_MAX = 500
"""The most characters of a detail: a coordinator refuses a report with more (protocol 1.5)."""


def plain_detail(said: object) -> str:
    """Return what a worker's code says in words, as a report may have it."""
    return str(said)[:DETAIL_CHARS_MAX]


_OFFSETS = ("lag", "position", "end_offset", "positions", "end_offsets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a copy of a task's state has come, in records; without any field it is unknown.

    Either ``lag``, or ``position`` with ``end_offset``, or the same per changelog topic. An end offset may be absent
    when the coordinator reads the changelogs itself. ``catchup_ms`` is the worker's own estimate; it stays here, and
    only decides whether a heartbeat is urgent. ``detail`` says in words what holds the copy up; people are shown it.
    """

    lag: int | None = None
    position: int | None = None
    end_offset: int | None = None
    positions: Mapping[str, int] | None = None
    end_offsets: Mapping[str, int] | None = None
    catchup_ms: int | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        """Refuse values for which a coordinator would refuse the whole heartbeat, and with it the lease.

        Raises:
            TypeError: when something is no integer.
            ValueError: when something is below 0, or beyond 2⁶³ - 1.
        """
        for name in _OFFSETS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, checked_offsets(value, name))
        object.__setattr__(self, "detail", plain_detail(self.detail))

    @classmethod
    def at(cls, offsets: Offsets) -> "Progress":
        """Return the progress of a copy that has reached these offsets, of which the end is unknown."""
        return cls(position=offsets) if isinstance(offsets, int) else cls(positions=offsets)

    @property
    def is_known(self) -> bool:
        """Whether it says anything about the copy."""
        return self.lag is not None or self.position is not None or self.positions is not None

    def remaining(self) -> int | None:
        """Return the records still to restore, or None where it is not known here."""
        if self.lag is not None:
            return self.lag
        if self.position is not None and self.end_offset is not None:
            return max(0, self.end_offset - self.position)
        if (
            self.positions is not None
            and self.end_offsets is not None
            and self.positions.keys() >= self.end_offsets.keys()
        ):
            return sum(max(0, end - self.positions[topic]) for topic, end in self.end_offsets.items())
        return None

    def body(self) -> dict[str, object]:
        """Return the fields as they stand in a report."""
        said = {name: getattr(self, name) for name in _OFFSETS}
        fields: dict[str, object] = {name: value for name, value in said.items() if value is not None}
        if self.detail:
            fields["detail"] = self.detail
        return fields


UNKNOWN_PROGRESS = Progress()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A call to make, with everything that identifies it when its answer comes late.

    ``seq`` is 0 for everything but heartbeats. ``first_sent_ms`` stays the same when the request is repeated, because
    the lease counts from there; ``sent_ms`` is this attempt's. After ``timeout_ms`` the machine counts on no answer
    any more, but still takes one.
    """

    kind: RequestKind
    member_id: str
    seq: int = 0
    attempt: int = 1
    first_sent_ms: int
    sent_ms: int
    timeout_ms: int
    body: Mapping[str, object] | None = None
    query: Mapping[str, str | int] = field(default_factory=dict)

    def is_same(self, other: "Request") -> bool:
        """Whether both are attempts at one request, which share the time of the first."""
        return (
            self.first_sent_ms == other.first_sent_ms
            and self.seq == other.seq
            and self.kind is other.kind
            and self.member_id == other.member_id
        )


@dataclass(frozen=True, slots=True)
class Status:
    """One entry of an answer's ``status``: something that the member or its people should know."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A refusal, as RFC 9457 and the table of errors (protocol 10.5) have it.

    ``errors`` lists path and reason of each fault; ``answer`` is the assignment that comes with ``stale-member-epoch``.
    """

    type: str
    status: int
    title: str = ""
    detail: str = ""
    action: str | None = None
    retry_after_ms: int | None = None
    errors: tuple[tuple[str, str], ...] = ()
    answer: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Send the request now, and pass its answer to ``on_answer``."""

    request: Request


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the task, which is ``role`` here; acknowledge with ``task_stopped`` once nothing of it runs or writes.

    With ``commit``, finish the work in hand, commit and flush first. Without it, stop at once and drop that work. A
    stop without a commit may follow while one with a commit is under way, and then wins; one acknowledgement answers
    both. An active that ``becomes`` a copy goes on as one in place; acknowledge with ``task_demoted``.
    """

    task: str
    role: Role
    commit: bool = True
    becomes: Role | None = None


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """A copy goes on as it is under another name (standby or warmup); nothing to acknowledge."""

    task: str
    role: Role


@dataclass(frozen=True, slots=True)
class Start:
    """Begin the task in this role; ``in_place`` says that there is a copy here already, which is promoted.

    A copy restores the task's state and keeps tailing it, a warmup to become active once caught up. An active runs
    under the token: fence the previous producer, restore to ``restore_to`` at least, then process.
    """

    task: str
    role: Role
    fencing_token: int | None = None
    restore_to: Offsets | None = None
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    """The group knows this run from now on."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Rejoining:
    """The group refused this run; once its actives have stopped, a new run joins in its place."""

    old_member_id: str
    cause: Problem


@dataclass(frozen=True, slots=True)
class StopForGood:
    """Nothing more is sent; end the process once the stops before it are done."""

    reason: str


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The statuses that the coordinator gives this member have changed."""

    statuses: tuple[Status, ...]


@dataclass(frozen=True, slots=True)
class ProblemSeen:
    """A request was refused; the machine goes on, but somebody may have to mend the cause."""

    kind: RequestKind
    problem: Problem


Instruction = Send | Stop | RoleChanged | Start | Joined | Rejoining | StopForGood | StatusChanged | ProblemSeen
