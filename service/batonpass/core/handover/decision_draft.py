"""A decision in the making: the group so far, with the records and reasons so far.

Each part of a decision folds its records at once, so the next part sees their effect. A ``DecisionDraft`` lives for one
call of ``decide``.
"""

from collections.abc import Iterable

from batonpass.core.handover.copies import HeldBack
from batonpass.core.handover.view import View
from batonpass.core.state import records as r
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import UNSEEN_STOPS, Cause, Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.reasons import Reason
from batonpass.core.state.soft import MemberSoft, Soft
from batonpass.placement.flow import Solver, minimum_flow


class DecisionDraft:
    """A decision in the making. ``held_until_ms`` are the instants until which its step holds anything."""

    def __init__(self, group: Group, soft: Soft, now_ms: int, policy: Policy, solver: Solver = minimum_flow) -> None:
        self.group = group
        self.soft = soft
        self.now_ms = now_ms
        self.policy = policy
        self.solver = solver
        self.records: list[r.Record] = []
        self.reasons: list[Reason] = []
        self.held_until_ms: set[int] = set()
        self._view: View | None = None

    def record(self, *records: r.Record) -> None:
        """Add facts, and fold them into the group at once."""
        self.records.extend(records)
        self.group = evolve(self.group, records)
        self._view = None

    def gone(self, member_id: MemberId, cause: Cause, *, lease_end_ms: int | None = None) -> r.MemberGone:
        """Return the record that a member leaves now. Without ``lease_end_ms`` it runs nothing any more."""
        member_soft = self.member_soft(member_id) if cause in UNSEEN_STOPS else None
        heard_ms = None if member_soft is None else member_soft.heard_ms
        return r.MemberGone(member_id, cause, self.now_ms, lease_end_ms or self.now_ms, heard_ms)

    def explain(
        self, code: str, task: TaskId | None = None, to: MemberId | None = None, detail: str = "", tasks: int = 1
    ) -> None:
        """Add a reason. ``tasks`` is how many tasks share it."""
        self.reasons.append(Reason(code, task, to, detail, tasks))

    def look_again_for(self, held: Iterable[HeldBack]) -> None:
        """Have the group looked at when what is held for a time may go on (``wakeups``)."""
        self.held_until_ms.update([one.until_ms for one in held if one.until_ms is not None])

    def view(self) -> View:
        if self._view is None:
            self._view = View(self.group, self.soft, self.now_ms)
        return self._view

    def schedule(self, trigger: str, delay_ms: int | None = None) -> None:
        """Schedule a new placement, after the batch delay unless another delay is given.

        A change joins the batch that is under way and does not move its time. So the first batch of a group always
        waits for its members (``initial_rebalance_delay_ms``). The exception is a batch set for later than any delay
        allows: the clock has gone back since it was set, so it becomes due earlier.
        """
        config, pending_ms = self.group.config, self.group.placement_due_ms
        due_ms = self.now_ms + (config.rebalance_batch_ms if delay_ms is None else delay_ms)
        longest_ms = max(config.rebalance_batch_ms, config.initial_rebalance_delay_ms)
        if pending_ms is not None and due_ms <= pending_ms <= self.now_ms + longest_ms:
            due_ms = pending_ms
        self.record(r.RebalanceScheduled(due_ms, trigger))

    def member_soft(self, member_id: MemberId) -> MemberSoft | None:
        return self.soft.members.get(member_id)

    def set_member_soft(self, member_id: MemberId, known: MemberSoft | None) -> None:
        """Replace what is known of a member. None forgets it."""
        self.soft = self.soft._replace(members=self.soft.members.updated({member_id: known}))
        self._view = None
