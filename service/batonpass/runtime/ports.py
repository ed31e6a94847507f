"""What the runtime needs from the outside, as protocols that the shells implement, and what may go wrong there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from batonpass.core.errors import ProtocolError

if TYPE_CHECKING:
    from batonpass.core.decide import Decision
    from batonpass.core.ids import GroupId, MemberId
    from batonpass.core.inputs import Input
    from batonpass.core.invariants import Step, Violation
    from batonpass.core.model import Group
    from batonpass.core.policy import Policy
    from batonpass.core.records import Record
    from batonpass.core.replies import Answer
    from batonpass.core.soft import Soft


class StoreUnavailable(ProtocolError):
    """The record log cannot be written or read now, or its queue is full. What was asked may be asked again."""

    type = "store-unavailable"
    status = 503
    action = "retry"
    title = "The store is unavailable"


class CoordinatorLoading(ProtocolError):
    """The coordinator has not read the group yet."""

    type = "coordinator-loading"
    status = 503
    action = "retry"
    title = "The coordinator is loading"


class Defect(ProtocolError):
    """The program failed on an input, or would have broken a law. Nothing was changed."""

    type = "internal-error"
    status = 500
    action = "retry"
    title = "The coordinator failed"


class VersionConflict(Exception):
    """An append expected another version than the log has: somebody else wrote, or an append went through unseen."""


class Clock(Protocol):
    """The coordinator's clock."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970 (UTC); never less than before."""
        ...


class RecordLog(Protocol):
    """The truth: for each group, the records in the order in which they were appended."""

    async def append(self, group_id: GroupId, records: Sequence[Record], *, expected_version: int) -> None:
        """Add all records or none; the group must hold ``expected_version`` records before.

        Raises:
            VersionConflict: when it holds another number; nothing was added.
            StoreUnavailable: when the log is away; the records may have been added all the same.
        """
        ...

    async def read(self, group_id: GroupId, *, after_version: int = 0) -> tuple[int, Sequence[Record]]:
        """Return how many records the group holds, and those that come after the first ``after_version``.

        Raises:
            StoreUnavailable: when the log is away.
        """
        ...

    async def group_ids(self) -> Sequence[GroupId]:
        """Return every group that holds records, sorted.

        Raises:
            StoreUnavailable: when the log is away.
        """
        ...


class Observer(Protocol):
    """Who is told what happened; it must not raise, and must return at once."""

    def decided(self, before: Group, item: Input, decision: Decision, decide_ms: float) -> None:
        """Hear of a decision that took effect, and of how long deciding took."""

    def store_failed(self, group_id: GroupId, reason: str) -> None:
        """Hear of an append or a read that did not go through."""

    def law_broken(self, group_id: GroupId, item: Input, violations: Sequence[Violation]) -> None:
        """Hear of a decision that was dropped because it would break a law: a defect of the core."""

    def defect(self, group_id: GroupId, item: Input, error: Exception) -> None:
        """Hear of an input that made the program fail; the group goes on from its last good state."""

    def stalled(self, gap_ms: float) -> None:
        """Hear that the coordinator itself stood still."""


Decide = Callable[["Group", "Soft", "Input", int, "Policy"], "Decision"]
Poll = Callable[["Group", "Soft", "MemberId", int, "Policy"], "Answer | ProtocolError | None"]
CheckStep = Callable[["Step"], "Sequence[Violation]"]
Evolve = Callable[["Group", "Sequence[Record]"], "Group"]


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything that a group's engine works with, built once by the composition root.

    ``stalls`` returns how often this process has stood still so far (``pulse``).
    """

    log: RecordLog
    clock: Clock
    observer: Observer
    decide: Decide
    evolve: Evolve
    poll: Poll
    check_step: CheckStep
    stalls: Callable[[], int]
    policy: Policy
