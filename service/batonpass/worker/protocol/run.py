"""One run of a member: from the id that it joined with to the day when that id is refused.

Epochs, the assignment, the lease and ``seq`` all belong to a run and begin anew with the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batonpass.worker.protocol.answers import NOTHING_HELD, Answer, Assignment
from batonpass.worker.protocol.lease import Lease, backoff_ms
from batonpass.worker.protocol.requests import join_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from batonpass.worker.protocol.holdings import Holdings
    from batonpass.worker.protocol.types import MemberSettings, Request

# A process whose runs end as soon as they begin joins no more often than this in the long run.
_REJOIN_MAX_MS = 5_000


@dataclass(slots=True)
class Run:
    """What one run has learnt from the coordinator, and what it has told it."""

    member_id: str
    lease: Lease = field(default_factory=Lease)
    # The highest epoch seen on any channel, and the assignment that came with it. They change together or not at all.
    epoch: int = -1
    assignment: Assignment = NOTHING_HELD
    # The last answer that was not older than the assignment; None before the first.
    latest: Answer | None = None
    # The last heartbeat that listed the tasks, the epoch that it echoed, and whether it was answered 200.
    told_seq: int = 0
    told_epoch: int = -1
    is_told: bool = False
    # A report that is complete must come with a heartbeat above this.
    full_after_seq: int = 0
    # Whether any heartbeat of this run was answered 200.
    is_established: bool = False

    def take(self, answer: Answer, *, seq: int) -> bool:
        """Take an answer from any channel unless it is older than what is known; return whether the assignment changed.

        ``seq`` is the last heartbeat composed: a full report that is asked for now can only be in a later one.
        """
        if answer.wants_full_report:
            self.full_after_seq = max(self.full_after_seq, seq)
        if answer.member_epoch < self.epoch:
            return False
        if answer.member_epoch == self.epoch:
            self.latest = answer
            return False
        if answer.assignment is None:
            # A later epoch without its assignment would make the member echo what it has not seen, and so confirm what
            # it has not done. The coordinator sends the whole assignment again for as long as the lower epoch is
            # echoed.
            return False
        self.latest, self.epoch, self.assignment = answer, answer.member_epoch, answer.assignment
        return True

    def lease_answered(self, answer: Answer, *, seq: int, first_sent_ms: int) -> None:
        """Count the lease from a heartbeat or join that was answered 200 with this answer.

        An answer that came too late to be taken may name a session timeout that was lowered since; the lower counts.
        """
        known = self.latest or answer
        timeout_ms = min(answer.session_timeout_ms, known.session_timeout_ms)
        self.lease.answered(seq, first_sent_ms, timeout_ms)
        self.is_established = self.is_established or seq > 0
        if seq == self.told_seq:
            self.is_told = True

    def must_list_tasks(self) -> bool:
        """Whether a heartbeat must list the tasks even though nothing changed since they were listed last.

        It must when the epoch has changed, for what is left out confirms nothing: a task that was granted and revoked
        before this member saw either is given up only by a list without it.
        """
        return not self.is_told or self.told_epoch != self.epoch or self.told_seq <= self.full_after_seq

    def listed(self, seq: int) -> None:
        """Note that heartbeat ``seq`` lists the tasks."""
        self.told_seq, self.told_epoch, self.is_told = seq, self.epoch, False


@dataclass(slots=True)
class Runs:
    """The runs of one process, one after another: each has a new id and replaces the one before."""

    settings: MemberSettings
    new_member_id: Callable[[], str]
    # The run, or at first the process, whose actives have all stopped by the time that the present run joins.
    replaces: str | None
    _takeover: bool = field(init=False)
    # Runs in a row that ended before any of their heartbeats was answered.
    _short_runs: int = 0

    def __post_init__(self) -> None:
        self._takeover = self.settings.takeover

    def next_after(self, run: Run) -> Run:
        """Return a new run in the place of this one, whose id is empty if there was none yet."""
        if run.member_id:
            self.replaces, self._takeover = run.member_id, False
            self._short_runs = 0 if run.is_established else self._short_runs + 1
        return Run(self.new_member_id(), Lease(self.settings.stop_early_ms))

    def wait_ms(self) -> int:
        """Return how long the present run waits before it joins: not at all, but after runs that ended at once."""
        if self._short_runs == 0:
            return 0
        return backoff_ms(self._short_runs, _REJOIN_MAX_MS, self.settings.jitter_seed)

    def join_request(self, run: Run, holdings: Holdings, *, now_ms: int) -> Request:
        """Return the request that makes the run known."""
        return join_request(
            self.settings,
            run.member_id,
            holdings,
            takeover=self._takeover,
            replaces=self.replaces,
            now_ms=now_ms,
        )
