"""What a caller is answered. A refusal is a ``ProtocolError`` in the same place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from batonpass.core.errors import ProtocolError
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.model import Grant


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


Reply = Answer | Done | Declared | DrainProgress | ProtocolError
