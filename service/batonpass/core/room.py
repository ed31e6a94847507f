"""Room on members with a limit on their copies (``max_tasks``): a hard limit, so what fits nowhere waits.

A member that is full first gives up the copies that no target wants of it. What would still be too many is not
granted: a task without an owner waits, a task with one stays there. While revocations are not confirmed, their tasks
take up room.
"""

from __future__ import annotations

from batonpass.core.copies import Staged
from batonpass.core.ids import MemberId
from batonpass.core.reasons import Held
from batonpass.core.view import View


class Room:
    """How many more copies each member with a limit may take in this step; others are not listed.

    ``staged`` is what the step looks at; what is too many of it is taken back. Whatever else a member holds stays.
    """

    __slots__ = ("_left",)

    def __init__(self, view: View, staged: list[Staged]) -> None:
        looked_at = {one.task.id for one in staged} if view.limited else set()
        self._left = {
            member_id: limit - sum(task_id not in looked_at for task_id in view.members[member_id].picture)
            for member_id, limit in view.limited.items()
        }
        if self._left:
            self._count(staged)
            self._give_up_unwanted(staged)
            for index, one in enumerate(staged):
                if self._is_too_many(view, one):
                    staged[index] = _withdrawn(one)

    def _count(self, staged: list[Staged]) -> None:
        for one in staged:
            for member_id in (one.choice.active, *one.copies):
                if member_id in self._left:
                    self._left[member_id] -= 1

    def _give_up_unwanted(self, staged: list[Staged]) -> None:
        for one in staged:
            for member_id in [holder for holder in one.copies if self._left.get(holder, 0) < 0]:
                if member_id != one.task.target and member_id not in one.task.target_standbys:
                    del one.copies[member_id]
                    self._left[member_id] += 1

    def _is_too_many(self, view: View, one: Staged) -> bool:
        """Say whether the active would come to a member that has no room for it and no copy of it."""
        active = one.choice.active
        if active not in self._left or active == one.task.owner:
            return False
        member = view.members[active]
        if one.task.id in member.picture:
            return False
        taken = 0 if view.complete else len(member.picture) + len(member.revoking) - (member.max_tasks or 0)
        if self._left[active] >= 0 and taken < (1 if view.complete else 0):
            return False
        self._left[active] += 1
        return True

    @property
    def is_limited(self) -> bool:
        """Whether any member has a limit."""
        return bool(self._left)

    def allows(self, member_id: MemberId) -> bool:
        """Say whether the member may take one more copy."""
        return self._left.get(member_id, 1) > 0

    def lacks(self, member_id: MemberId, copies: int) -> bool:
        """Say whether the member may not take so many more copies."""
        return self._left.get(member_id, copies) < copies

    def take(self, member_id: MemberId) -> None:
        """Count one more copy on the member."""
        if member_id in self._left:
            self._left[member_id] -= 1


def _withdrawn(one: Staged) -> Staged:
    """Return the task as it is when its active cannot come to where it was meant to go: it stays, or waits."""
    owner = one.task.owner
    copies = {member_id: role for member_id, role in one.copies.items() if member_id != owner}
    choice = one.choice._replace(active=owner, ready=owner is not None, held=Held.NO_CAPACITY)
    return one._replace(choice=choice, copies=copies)
