"""What the runtime needs from the outside, as protocols that the shells implement, and the errors that they raise."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation
from batonpass.core.decide import Decision
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import Input
from batonpass.core.state.model import Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.records import Record
from batonpass.core.state.replies import Answer
from batonpass.core.state.soft import Soft
from batonpass.invariants import Transition, Violation
from batonpass.runtime.access import Tokens
from batonpass.runtime.audits import Audits
from batonpass.runtime.history import NO_HISTORY, Asked, History, Sample, StoredCommand, StoredEvent

RETRY_AFTER_MS = 1_000
"""After how long a caller should ask again, and a deadline that could not be served fires again."""


class StoreUnavailable(
    ProtocolError, type="store-unavailable", status=503, action="retry", title="The store is unavailable"
):
    """The record log cannot be written or read now, or its queue is full. The caller may ask again."""


class CoordinatorLoading(
    ProtocolError, type="coordinator-loading", status=503, action="retry", title="The coordinator is loading"
):
    """The coordinator has not read the group yet."""


class Defect(ProtocolError, type="internal-error", status=500, action="retry", title="The coordinator failed"):
    """The program failed on an input, or would have broken a law. Nothing was changed."""


class VersionConflict(Exception):
    """An append expected another version than the log has: another coordinator wrote, or an append went unnoticed."""


class Superseded(VersionConflict):
    """Another coordinator has taken the group over under a higher epoch; this one can no longer append to it (L4)."""


class NotOwner(
    ProtocolError, type="coordinator-loading", status=503, action="retry", title="Another coordinator owns the group"
):
    """Another coordinator owns the group, or no owner is known. The caller should ask the owner, if it is known."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What one decision writes, all of it or nothing, under the epoch of the coordinator that made it.

    ``is_large``: to encode it could hold up other groups.
    """

    group_id: GroupId
    coordinator_epoch: int
    expected_version: int
    records: Sequence[Record]
    history: History = NO_HISTORY
    is_large: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """A group as the log has it, at ``version``. ``records`` are the ones to add to ``base``.

    ``base`` is a snapshot of the group at ``base.version``; None: the records begin where the caller asked them to.
    ``recovered``: an operator said that the log lost commits, and the group has had no ``StoreRecovered`` for it yet.
    """

    version: int
    records: Sequence[Record]
    base: Group | None = None
    recovered: bool = False


class Clock(Protocol):
    """The clock that instants in the log are written and judged by (``clocks``).

    ``moved_ms`` is the instant, by this clock, at which it was last found to have moved; None: never. Instants that
    were stored before then may lie too early or too late for it. ``ran_until_ms`` is until when it is known to have run
    on as it should before that; 0: not known.
    """

    moved_ms: int | None = None
    ran_until_ms: int = 0

    def now_ms(self) -> int:
        """Return milliseconds since 1970 (UTC); never less than before, unless the clock has moved."""


class RecordLog(Protocol):
    """The source of truth: for each group, the records in the order in which they were appended.

    Every call may raise ``StoreUnavailable``.
    """

    async def take_over(self, group_id: GroupId) -> int:
        """Become the group's only writer; return the coordinator epoch to write under, higher than any before.

        Raises:
            NotOwner: when another live coordinator owns the group.
        """

    async def append(self, commit: Commit) -> None:
        """Add all of the commit or nothing; the group must hold ``expected_version`` records before.

        Raises:
            VersionConflict: when it holds another number; nothing was added.
            Superseded: when a higher coordinator epoch has taken the group over; nothing was added.
            StoreUnavailable: when the log cannot be reached; the commit may have been made all the same.
            UnwritableRecord: when a record has no stored form.
        """

    async def read(self, group_id: GroupId, *, after_version: int | None = None) -> Loaded:
        """Return the records after the first ``after_version``; None: the whole group, from a snapshot if there is one.

        Raises:
            UnreadableRecord: when a record is missing or cannot be read.
        """

    async def group_ids(self) -> Sequence[GroupId]:
        """Return every group that holds records, sorted, but for those whose last one says that they were deleted."""

    async def knows(self, group_id: GroupId) -> bool:
        """Return whether a group holds records, without reading the names of all that ever did."""

    async def keep_snapshot(self, group: Group) -> None:
        """Store a snapshot of the group at its version, so that later reads need not begin before it."""


class Archive:
    """The histories that were committed beside the records, and samples; none, unless a class says otherwise.

    Every call may raise ``StoreUnavailable``.
    """

    async def generations(self, group_id: GroupId, *, before: int | None, limit: int) -> Sequence[Generation]:
        """Return generations below ``before`` (None: from the newest), newest first, without ``moved``."""
        return ()

    async def generation(self, group_id: GroupId, number: int) -> Generation | None:
        """Return one generation with ``moved``; None if there is none of this number."""
        return None

    async def task_changes(self, group_id: GroupId, task: TaskId, *, limit: int) -> Sequence[Change]:
        """Return the last changes of a task, newest first."""
        return ()

    async def events(self, group_id: GroupId | None, *, after: int, limit: int) -> Sequence[StoredEvent]:
        """Return events after a position, in order; of all groups when ``group_id`` is None.

        An event is never returned while one of a lower position could still be committed.
        """
        return ()

    async def events_before(self, group_id: GroupId | None, *, before: int | None, limit: int) -> Sequence[StoredEvent]:
        """Return events below a position (None: from the newest), newest first; of all groups when group is None."""
        return ()

    async def last_position(self) -> int:
        """Return the position of the newest event."""
        return 0

    async def commands(self, group_id: GroupId | None, *, before: int | None, limit: int) -> Sequence[StoredCommand]:
        """Return rows of the audit trail below a position (None: from the newest), newest first."""
        return ()

    async def lags(
        self, group_id: GroupId, *, since: datetime, until: datetime, limit: int
    ) -> Sequence[tuple[int, int]]:
        """Return how far a group was behind, oldest first: the most of each of ``limit`` equal stretches of time.

        Each is an instant (epoch ms) and the records that its copies lacked, added up.
        """
        return ()

    async def keep_samples(self, samples: Sequence[Sample]) -> None:
        """Keep samples of lags and rates, of several groups, all or none; a sample that is lost is not replaced."""


class Ownership:
    """Which coordinator answers for which group; unless a class says otherwise, there is no other one, and no lease."""

    id = ""
    """The name of this coordinator."""

    lapses = 0
    """How often its lease was over and it got another: meanwhile it heard nobody, or may have been asked by nobody."""

    def knows(self, coordinator: str) -> bool:
        """Whether a name is that of this coordinator, or of another live one on the same store."""
        return coordinator == self.id

    def holds(self, group_id: GroupId) -> bool:
        """Whether this coordinator owns the group and its lease is valid now; cheap, called for each request.

        A reply that writes nothing may be given only while this is true (L4).
        """
        return True

    def lease_left_s(self) -> float:
        """Return for how many seconds this coordinator would go on answering if the store failed now."""
        return float("inf")

    def not_ready(self) -> str:
        """Return why requests should go to another coordinator; "" if there is no reason."""
        return ""

    def sends_away(self) -> bool:
        """Whether callers are better off at another coordinator, for which they have to connect anew.

        A load balancer, or a name with several addresses, chooses a coordinator for each new connection, not call.
        """
        return bool(self.not_ready() and self.others())

    def owner_url(self, group_id: GroupId) -> str | None:
        """Return the base URL of the live coordinator that owns the group; None if it is this one, or unknown."""
        return None

    def others(self) -> Sequence[str]:
        """Return the base URLs of the other live coordinators, as far as they are known."""
        return ()

    def to_forget(self) -> Sequence[GroupId]:
        """Return the groups that this coordinator took over, and that another one may have owned since.

        Their state in memory is no longer valid. They are not held before they have been ``forgotten``, even if this
        coordinator owns them again.
        """
        return ()

    def forgotten(self, group_id: GroupId) -> None:
        """Called when nothing of a group is in memory any more; it is read again when it is next used."""


def not_owner(ownership: Ownership, group_id: GroupId) -> NotOwner:
    """Return the refusal to answer for a group that this coordinator does not hold."""
    why = ownership.not_ready()
    owner = ownership.owner_url(group_id) or f"a coordinator that is not known yet{f' ({why})' if why else ''}"
    return NotOwner(f"group {group_id} is served by {owner}; try again", retry_after_ms=RETRY_AFTER_MS)


class Outbox(Protocol):
    """Committed events that are not in Kafka yet. Every call may raise ``StoreUnavailable``."""

    async def next(self, limit: int) -> Sequence[StoredEvent]:
        """Return the oldest unpublished events; the same ones again until ``passed`` is called."""

    async def passed(self, position: int) -> None:
        """Record that everything up to a position is published."""


class Store:
    """What a process needs of its store. Nothing runs for it, unless a class says otherwise.

    ``clock`` is the one that every coordinator on this store counts by. ``log`` has the records of all groups,
    ``archive`` their histories, ``audits`` the results of the nightly audits, and ``outbox`` the events that are not in
    Kafka yet; None where they are not kept.
    """

    clock: Clock
    log: RecordLog
    archive: Archive
    tokens: Tokens
    audits: Audits
    ownership: Ownership
    outbox: Outbox | None = None

    async def start(self, changed: Callable[[], Awaitable[None]] | None = None) -> None:
        """Start the background tasks; ``changed`` is called when this coordinator owns other groups than before."""

    async def leave(self) -> None:
        """Give every group up, so that other coordinators have them at once."""

    async def stop(self) -> None:
        """Give every group up, unless that was done before, and disconnect."""


class Observer:
    """Receives what happened. Methods do nothing by default, must not raise, and must not block."""

    def decided(self, inputs: Sequence[Input], decision: Decision, decide_ms: float) -> None:
        """Called after a decision took effect; ``decide_ms`` is how long deciding took."""

    def committed(self, commit: Commit, append_ms: float) -> None:
        """Called after a commit is in the log; ``append_ms`` is how long that took."""

    def store_failed(self, group_id: GroupId, reason: str) -> None:
        """Called when an append or a read failed."""

    def law_broken(self, group_id: GroupId, item: Input, violations: Sequence[Violation]) -> None:
        """Called when a decision was dropped because it would break a law: a defect of the core."""

    def defect(self, group_id: GroupId, item: Input, error: Exception) -> None:
        """Called when an input made the program fail; the group goes on from its last good state."""

    def stalled(self, gap_ms: float) -> None:
        """Called when the process stood still for ``gap_ms``."""

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Called when a call was answered; ``path`` is the one in the OpenAPI document."""

    def refused(self, error: ProtocolError, call: str, who: str, cause: str) -> None:
        """Called when a call was refused; ``cause`` is the id of the request."""

    def failed(self, error: BaseException, call: str, cause: str) -> None:
        """Called when the program failed on a call, outside of a decision."""

    def commanded(self, group: str, asked: Asked) -> None:
        """Called when a mutating call was accepted; ``group`` is "" for one that is about no group."""


Decide = Callable[["Group", "Soft", "tuple[Input, ...]", int, "Policy"], "Decision"]
Poll = Callable[["Group", "Soft", "MemberId", int], "Answer | ProtocolError | None"]
CheckStep = Callable[["Transition"], "Sequence[Violation]"]
Evolve = Callable[["Group", "Sequence[Record]"], "Group"]


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything that a group's engine works with, built once by the composition root.

    ``stalls`` returns how often this process has stood still so far (``pulse``), or had no lease. ``code`` identifies
    the program that decides; traces record it.
    """

    log: RecordLog
    archive: Archive
    ownership: Ownership
    clock: Clock
    observer: Observer
    decide: Decide
    evolve: Evolve
    poll: Poll
    check_step: CheckStep
    stalls: Callable[[], int]
    policy: Policy
    code: str = ""
