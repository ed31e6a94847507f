"""Room on members with a limit on their copies (``max_tasks``): a hard limit, so what fits nowhere waits.

A member that is full first gives up the copies that no target wants of it. What would still be too many is not
granted: a task without an owner waits, a task with one stays there. While revocations are not confirmed, their tasks
take up room.
"""

from __future__ import annotations

from batonpass.core.copies import TaskPlan
from batonpass.core.ids import MemberId
from batonpass.core.reasons import Held
from batonpass.core.view import View


class CopyCapacity:
    """How many more copies each member with a limit may take in this step; others are not listed.

    ``task_plans`` is what the step looks at, and where it heads; whatever else a member holds stays.
    """

    __slots__ = ("_left",)

    def __init__(self, view: View, task_plans: list[TaskPlan]) -> None:
        looked_at = {plan.task.id for plan in task_plans} if view.limited else set()
        self._left = {
            member_id: limit - sum(task_id not in looked_at for task_id in view.members[member_id].assignment)
            for member_id, limit in view.limited.items()
        }
        for plan in task_plans if self._left else ():
            for member_id in (plan.choice.active, *plan.copies):
                if member_id in self._left:
                    self._left[member_id] -= 1

    def take_back_excess(self, view: View, task_plans: list[TaskPlan]) -> None:
        """Change the plans, in place, so that nobody is to have more than its limit, as far as anything can go."""
        if not self._left:
            return
        self._give_up_unwanted(task_plans)
        for index, plan in enumerate(task_plans):
            if self._is_too_many(view, plan):
                task_plans[index] = self._without_its_move(plan)

    def _give_up_unwanted(self, task_plans: list[TaskPlan]) -> None:
        for plan in task_plans:
            for member_id in [holder for holder in plan.copies if self._left.get(holder, 0) < 0]:
                if member_id != plan.task.target and member_id not in plan.task.target_standbys:
                    del plan.copies[member_id]
                    self._left[member_id] += 1

    def _is_too_many(self, view: View, plan: TaskPlan) -> bool:
        """Say whether the active would come to a member that has no room for it and no copy of it."""
        active = plan.choice.active
        if active not in self._left or active == plan.task.owner:
            return False
        member = view.members[active]
        if plan.task.id in member.assignment:
            return False
        taken = 0 if view.as_if_released else len(member.assignment) + len(member.revoking) - (member.max_tasks or 0)
        if self._left[active] >= 0 and taken < (1 if view.as_if_released else 0):
            return False
        self._left[active] += 1
        return True

    def _without_its_move(self, plan: TaskPlan) -> TaskPlan:
        """Return the task as it is when its active cannot come to where it was meant to go: it stays, or waits."""
        owner = plan.task.owner
        if owner in self._left and owner not in plan.copies:
            self._left[owner] -= 1
        copies = {member_id: role for member_id, role in plan.copies.items() if member_id != owner}
        choice = plan.choice._replace(active=owner, ready=owner is not None, held=Held.NO_CAPACITY)
        return plan._replace(choice=choice, copies=copies)

    @property
    def is_limited(self) -> bool:
        """Whether any member has a limit."""
        return bool(self._left)

    def allows(self, member_id: MemberId) -> bool:
        """Say whether the member may take one more copy."""
        return self._left.get(member_id, 1) > 0

    def has_less_than(self, member_id: MemberId, copies: int) -> bool:
        """Say whether the member may not take so many more copies."""
        return self._left.get(member_id, copies) < copies

    def take(self, member_id: MemberId) -> None:
        """Count one more copy on the member."""
        if member_id in self._left:
            self._left[member_id] -= 1
