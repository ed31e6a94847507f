"""What a caller is answered. A refusal is a ``ProtocolError`` in the same place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from batonpass.core.errors import ProtocolError
from batonpass.core.ids import InstanceId, MemberId, TaskId
from batonpass.core.model import Grant
from batonpass.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a join, a heartbeat or a long-poll.

    ``assignment`` is the whole assignment of what the member may hold, or None when the caller's epoch is the current
    one. ``report`` is ``"full"`` when the next heartbeat must carry all tasks. ``created`` says that this very join
    made the member. ``status`` lists (code, detail), always whole.
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


@dataclass(frozen=True, slots=True)
class Done:
    """It is done; there is nothing to add."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The group is declared; ``revision`` is its new ETag."""

    created: bool
    revision: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """How far a drain has come: ``remaining`` are the tasks that the member has as active, or may still run."""

    remaining: tuple[TaskId, ...]
    blocked: tuple[tuple[TaskId, str], ...] = field(default=())


@dataclass(frozen=True, slots=True)
class StreamsAdvice:
    """What the leader of a Kafka Streams group is answered.

    Attributes:
        generation: the target that this leads to.
        assignment: per process, what it is to have by role; every task has one active.
        follow_up_ms: how long after now to ask again; None where nothing is to come.
        follow_up_by_everybody: every process is to come back then, not only the leader's.
        at_rest: everything is where it belongs.
        moves: how many tasks are moved by a target that is new; ``lower_bound``: the least that there can be.
        held_back: tasks that are not where they belong and have no copy there yet, with that process and why.
        reasons: why tasks go where they go.
    """

    generation: int
    assignment: Mapping[InstanceId, Mapping[str, tuple[TaskId, ...]]]
    follow_up_ms: int | None
    follow_up_by_everybody: bool
    at_rest: bool
    moves: int
    lower_bound: int
    held_back: tuple[tuple[TaskId, InstanceId | None, str], ...] = ()
    reasons: tuple[Reason, ...] = ()


Reply = Answer | Done | Declared | DrainProgress | StreamsAdvice | ProtocolError
