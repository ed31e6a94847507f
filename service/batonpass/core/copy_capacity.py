"""Room on members that take only so much (``room``): a hard limit, so what fits nowhere waits.

A member that is full first gives up the copies that no target wants of it. What would still be too many is not
granted: a task without an owner waits, a task with one stays there. While revocations are not confirmed, their tasks
take up room; on a disk they do for as long as their state is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from batonpass.core.copies import CopyRequest, TaskPlan
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.reasons import Held
from batonpass.core.view import View


class RoomLeft:
    """What is left of the room of members while copies are dealt to them; members without a limit always have some.

    It may fall below nothing: whoever deals finds out afterwards, and takes something back.
    """

    __slots__ = ("_copies", "_more", "_view")

    def __init__(self, view: View, copies: dict[MemberId, int]) -> None:
        """Begin with so many copies of members with a limit on these, and with all that is free on disks."""
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
        """Say whether the member was dealt more than it takes, and the task is a part of that."""
        if self._copies.get(member_id, 0) < 0:
            return True
        return self._more.get(member_id, 0) < 0 and self._view.takes_room_on_disk(member_id, task_id)

    def allows(self, member_id: MemberId, task_id: TaskId) -> bool:
        """Say whether the member may take one more copy, of this task."""
        if self._copies.get(member_id, 1) <= 0:
            return False
        return self._more.get(member_id, 1) > 0 or not self._view.takes_room_on_disk(member_id, task_id)

    def allows_all(self, requests: Iterable[CopyRequest]) -> bool:
        """Say whether members may take all of these copies together."""
        asked = [(request.member_id, request.task.id) for request in requests]
        copies = Counter([member_id for member_id, _ in asked])
        more = Counter([one for one, task_id in asked if self._view.takes_room_on_disk(one, task_id)])
        return all(self._copies.get(one, count) >= count for one, count in copies.items()) and all(
            self._more.get(one, count) >= count for one, count in more.items()
        )


class CopyCapacity:
    """How many more copies members that take only so much may take in this step.

    ``task_plans`` is what the step looks at, and where it heads; whatever else a member holds stays.
    """

    __slots__ = ("_left", "_view")

    def __init__(self, view: View, task_plans: list[TaskPlan]) -> None:
        looked_at = {plan.task.id for plan in task_plans} if view.limited else set()
        members = [view.members[one] for one in view.limited]
        self._view = view
        self._left = RoomLeft(
            view,
            {
                member.id: member.max_tasks - sum(task_id not in looked_at for task_id in member.assignment)
                for member in members
                if member.max_tasks is not None
            },
        )
        for plan in task_plans if view.limited else ():
            for member_id in (plan.choice.active, *plan.copies):
                self._left.take(member_id, plan.task.id)

    def take_back_excess(self, view: View, task_plans: list[TaskPlan]) -> None:
        """Change the plans, in place, so that nobody is to have more than its limit, as far as anything can go."""
        if not view.limited:
            return
        self._give_up_unwanted(task_plans)
        for index, plan in enumerate(task_plans):
            if self._is_too_many(view, plan):
                task_plans[index] = self._without_its_move(plan)

    def _give_up_unwanted(self, task_plans: list[TaskPlan]) -> None:
        for plan in task_plans:
            task = plan.task
            for member_id in [holder for holder in plan.copies if self._left.has_too_many(holder, task.id)]:
                if member_id != task.target and member_id not in task.target_standbys:
                    del plan.copies[member_id]
                    self._left.take(member_id, task.id, -1)

    def _is_too_many(self, view: View, plan: TaskPlan) -> bool:
        """Say whether the active would come to a member that has no room for it and no copy of it."""
        active, task_id = plan.choice.active, plan.task.id
        if active is None or active not in view.limited or active == plan.task.owner:
            return False
        member = view.members[active]
        if task_id in member.assignment:
            return False
        taken = len(member.assignment) + len(member.revoking)
        is_full = not view.as_if_released and member.max_tasks is not None and taken >= member.max_tasks
        if not is_full and not self._left.has_too_many(active, task_id):
            return False
        self._left.take(active, task_id, -1)
        return True

    def _without_its_move(self, plan: TaskPlan) -> TaskPlan:
        """Return the task as it is when its active cannot come to where it was meant to go: it stays, or waits."""
        owner = plan.task.owner
        if owner not in plan.copies:
            self._left.take(owner, plan.task.id)
        copies = {member_id: role for member_id, role in plan.copies.items() if member_id != owner}
        choice = plan.choice._replace(active=owner, ready=owner is not None, held=Held.NO_CAPACITY)
        return plan._replace(choice=choice, copies=copies)

    @property
    def is_limited(self) -> bool:
        """Whether any member has a limit."""
        return bool(self._view.limited)

    def allows(self, member_id: MemberId, task_id: TaskId) -> bool:
        """Say whether the member may take one more copy, of this task."""
        return self._left.allows(member_id, task_id)

    def take(self, member_id: MemberId, task_id: TaskId) -> None:
        """Count one more copy on the member."""
        self._left.take(member_id, task_id)

    def allows_all(self, requests: Iterable[CopyRequest]) -> bool:
        """Say whether there is room for all of these copies together."""
        return self._left.allows_all(requests)
