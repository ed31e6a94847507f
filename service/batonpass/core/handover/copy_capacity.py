"""Room on members with a limit (``room``). The limit is hard, so a copy that fits nowhere waits.

A full member first gives up the copies that no target wants on it. Copies that would still exceed the limit are not
granted: a task without an owner waits, and a task with an owner stays with it. A task takes up room until its
revocation is confirmed, and room on a disk as long as its state is there.
"""

from collections import Counter
from collections.abc import Iterable

from batonpass.core.handover.copies import CopyRequest, TaskPlan
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.reasons import Held, Hold


class RoomLeft:
    """The room that is left on members while copies are given to them. Members without a limit always have room.

    It may become negative. The caller then takes copies back.
    """

    def __init__(self, view: View, copies: dict[MemberId, int]) -> None:
        """Start with ``copies`` as the room for copies of members with a limit, and with all free room on disks."""
        self._view = view
        self._copies = copies
        self._more = {member_id: room.more for member_id, room in view.disk_room.items()}

    def take(self, member_id: MemberId | None, task_id: TaskId, count: int = 1) -> None:
        """Count one more copy on the member, or, with a ``count`` of -1, one less."""
        if member_id in self._copies:
            self._copies[member_id] -= count
        if member_id in self._more and self._view.takes_room_on_disk(member_id, task_id):
            self._more[member_id] -= count

    def has_too_many(self, member_id: MemberId, task_id: TaskId) -> bool:
        """Say whether the member was given more than it takes, and giving up the task makes room."""
        if self._copies.get(member_id, 0) < 0:
            return True
        return self._more.get(member_id, 0) < 0 and self._view.takes_room_on_disk(member_id, task_id)

    def allows(self, member_id: MemberId, task_id: TaskId) -> bool:
        """Say whether the member may take one more copy, of this task."""
        if self._copies.get(member_id, 1) <= 0:
            return False
        return self._more.get(member_id, 1) > 0 or not self._view.takes_room_on_disk(member_id, task_id)

    def allows_all(self, requests: Iterable[CopyRequest]) -> bool:
        """Say whether the members may take all of these copies together."""
        asked = [(request.member_id, request.task.id) for request in requests]
        copies = Counter([member_id for member_id, _ in asked])
        more = Counter([member_id for member_id, task_id in asked if self._view.takes_room_on_disk(member_id, task_id)])
        return all(self._copies.get(member_id, count) >= count for member_id, count in copies.items()) and all(
            self._more.get(member_id, count) >= count for member_id, count in more.items()
        )


class CopyCapacity(RoomLeft):
    """How many more copies members with a limit may take in this step.

    ``task_plans`` are the tasks of the step and where they go. Everything else that a member holds stays.
    """

    def __init__(self, view: View, task_plans: list[TaskPlan]) -> None:
        looked_at = {plan.task.id for plan in task_plans} if view.limited else set()
        members = [view.members[member_id] for member_id in view.limited]
        super().__init__(
            view,
            {
                member.id: member.max_tasks - sum(task_id not in looked_at for task_id in member.assignment)
                for member in members
                if member.max_tasks is not None
            },
        )
        for plan in task_plans if view.limited else ():
            self.count(plan)

    def give_up_unwanted(self, task_plans: list[TaskPlan]) -> None:
        """Drop, in place, what no target wants on members that have too much."""
        for plan in task_plans if self._view.limited else ():
            task = plan.task
            for member_id in [holder for holder in plan.copies if self.has_too_many(holder, task.id)]:
                if member_id != task.target.owner and member_id not in task.target.standbys:
                    del plan.copies[member_id]
                    self.take(member_id, task.id, -1)

    def why_not_moved(self, plan: TaskPlan) -> Hold | None:
        """Return why the active cannot move: to a member that has neither room for it nor a copy of it."""
        view, active, task_id = self._view, plan.choice.active, plan.task.id
        if active is None or active not in view.limited or active == plan.task.owner:
            return None
        member = view.members[active]
        if task_id in member.assignment:
            return None
        taken = len(member.assignment) + len(member.revoking)
        is_full = not view.as_if_complete and member.max_tasks is not None and taken >= member.max_tasks
        return Hold(Held.NO_CAPACITY) if is_full or self.has_too_many(active, task_id) else None

    def count(self, plan: TaskPlan, copies: int = 1) -> None:
        """Count what a task has after the step, or, with -1, count it no longer."""
        for member_id in (plan.choice.active, *plan.copies):
            self.take(member_id, plan.task.id, copies)
