"""The replies to callers. A refused request gets a ``ProtocolError`` instead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.model import Grant
from batonpass.core.state.reasons import Reason


class Answer(NamedTuple):
    """The answer to a join, a heartbeat or a long-poll.

    ``assignment`` is all that the member may hold, in no order, or None if the caller's epoch is the current one.
    ``report`` is ``"full"`` if the next heartbeat must carry all tasks. ``created`` is true if this join made the
    member. ``status`` lists (code, detail) and is always complete. ``topology_epoch`` is the newest topology that the
    member counts as knowing.
    """

    member_id: MemberId
    seq: int
    member_epoch: int
    generation: int
    heartbeat_interval_ms: int
    session_timeout_ms: int
    acceptable_recovery_lag: int
    acceptable_catchup_ms: int | None
    report: str | None
    assignment: Mapping[TaskId, Grant] | None
    status: tuple[tuple[str, str], ...] = ()
    created: bool = False
    report_interval_ms: int = 0
    topology_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """The request is done, and there is nothing else to say."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The group is declared. ``revision`` is its new ETag."""

    created: bool
    revision: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """How far a drain is: ``remaining`` are the tasks that the member has as active, or may still run.

    ``undone``: it was taken back, so that the member keeps what it has.
    """

    remaining: tuple[TaskId, ...]
    blocked: tuple[tuple[TaskId, str], ...] = field(default=())
    undone: bool = False


@dataclass(frozen=True, slots=True)
class StreamsAdvice:
    """The answer to the leader of a Kafka Streams group.

    Attributes:
        generation: the number of the target.
        assignment: per process, its tasks by role. Every task has one active.
        follow_up_ms: how long after now to ask again; None if nothing is left to do.
        follow_up_by_everybody: every process should rejoin then, not only the leader.
        at_rest: every task is where it belongs.
        moves: how many tasks a new target moves.
        lower_bound: the fewest moves that are possible.
        held_back: tasks that are not at their target and have no copy there, with that process and the reason.
        reasons: why tasks go where they go.
    """

    generation: int
    assignment: Mapping[InstanceId, Mapping[str, Sequence[TaskId]]]
    follow_up_ms: int | None
    follow_up_by_everybody: bool
    at_rest: bool
    moves: int
    lower_bound: int
    held_back: tuple[tuple[TaskId, InstanceId | None, str], ...] = ()
    reasons: tuple[Reason, ...] = ()


Reply = Answer | Done | Declared | DrainProgress | StreamsAdvice | ProtocolError
