"""One look at a group: hard and soft state at one instant, as the deciding files read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from batonpass.core.ids import MemberId, TaskId
from batonpass.core.lag import Copy, copy_as_reported
from batonpass.core.model import Group, Member, PauseScope, Role, Task
from batonpass.core.policy import Policy
from batonpass.core.reasons import Held
from batonpass.core.room import DiskRoom, has_limit, room_on_disks
from batonpass.core.soft import MemberSoft, Soft


class View:
    """Group and soft state at ``now_ms``. Reads only; what takes a pass over the group is looked up once.

    ``members`` and ``member_softs`` are those of the group and of the soft state. ``as_if_released`` asks what holds
    when every revocation is confirmed (the dry run), instead of what may be done now.
    """

    __slots__ = (
        "_disk",
        "_disk_room",
        "_is_any_member_overdue",
        "_is_held",
        "_limited",
        "_load",
        "_next_owners",
        "as_if_released",
        "config",
        "group",
        "member_softs",
        "members",
        "now_ms",
        "policy",
        "soft",
        "tasks",
    )

    def __init__(self, group: Group, soft: Soft, now_ms: int, policy: Policy, *, as_if_released: bool = False) -> None:
        self.group = group
        self.soft = soft
        self.now_ms = now_ms
        self.policy = policy
        self.config = group.config
        self.as_if_released = as_if_released
        self.tasks = group.tasks
        self.members: Mapping[MemberId, Member] = group.members.plain()
        self.member_softs: Mapping[MemberId, MemberSoft] = soft.members.plain()
        self._disk: dict[TaskId, list[MemberId]] | None = None
        self._load: dict[MemberId, float] = {}
        self._limited: frozenset[MemberId] | None = None
        self._disk_room: Mapping[MemberId, DiskRoom] | None = None
        self._next_owners: frozenset[MemberId] | None = None
        self._is_any_member_overdue: bool | None = None
        self._is_held = self.why_moves_are_held(for_balance=False) is not None

    def present_member(self, member_id: MemberId | None) -> Member | None:
        """Return a member that is here: not gone, and not away to restart."""
        if member_id is None:
            return None
        member = self.members.get(member_id)
        return None if member is None or member.away_until_ms is not None else member

    def copy(self, task: Task, member_id: MemberId) -> Copy:
        """Return what a member that is here has of the task."""
        return copy_as_reported(self.group, self.member_softs.get(member_id), task, self.members[member_id])

    def is_stateful(self, task_id: TaskId) -> bool:
        """Say whether the task has state to restore; one that the topology has dropped has none any more."""
        table = self.group.table
        task_index = table.index_of.get(task_id)
        return task_index is not None and table.stateful[task_index]

    def holders(self, task: Task) -> dict[MemberId, Role]:
        """Return the copies granted beside the active, with their roles; holders are members that are here."""
        copies = dict.fromkeys(task.standbys, Role.STANDBY)
        if task.warmups:
            copies.update(dict.fromkeys(task.warmups, Role.WARMUP))
        return copies

    def on_disk(self, task_id: TaskId) -> list[MemberId]:
        """Return the members that have reported state of the task which nobody gave them to tail, in order."""
        if self._disk is None:
            self._disk = self._find_disk()
        return self._disk.get(task_id, [])

    def _find_disk(self) -> dict[TaskId, list[MemberId]]:
        found: dict[TaskId, list[MemberId]] = {}
        for member_id in sorted(self.member_softs):
            member, reports = self.present_member(member_id), self.member_softs[member_id].reports
            if member is not None and reports:
                for task_id in reports.keys() - member.assignment.plain().keys():
                    if reports[task_id].report.role == "none" and not reports[task_id].report.lost:
                        found.setdefault(task_id, []).append(member_id)
        return found

    @property
    def limited(self) -> frozenset[MemberId]:
        """The members that take only so much."""
        if self._limited is None:
            self._limited = frozenset([one for one, member in self.members.items() if has_limit(member)])
        return self._limited

    @property
    def disk_room(self) -> Mapping[MemberId, DiskRoom]:
        """What each member with a limit on its disk takes."""
        if self._disk_room is None:
            self._disk_room = room_on_disks(self.group, self.soft) if self.limited else {}
        return self._disk_room

    def takes_room_on_disk(self, member_id: MemberId, task_id: TaskId) -> bool:
        """Say whether a copy of the task there would be state that a member with a limit on its disk has not yet."""
        room = self.disk_room.get(member_id)
        return room is not None and task_id not in room.has and self.is_stateful(task_id)

    def has_full_disk_for(self, member_id: MemberId, task_id: TaskId) -> bool:
        """Say whether the disk of a member, which has nothing of the task yet, takes no further state."""
        return self.takes_room_on_disk(member_id, task_id) and self.disk_room[member_id].more <= 0

    @property
    def next_owners(self) -> frozenset[MemberId]:
        """The members that are to take over a task that nobody runs: told to stop another, they would get it later.

        One that takes only so much is left out: it may need the room of what it stops.
        """
        if self._next_owners is None:
            tasks = self.tasks.pick(self.group.open_tasks())
            found = [task.next_owner for task in tasks if task.owner is None and task.next_owner]
            self._next_owners = frozenset([one for one in found if one not in self.limited])
        return self._next_owners

    def grants_freely(self, member_ids: Iterable[MemberId]) -> bool:
        """Say whether these members take any copy that costs no slot: moves go on, and none of them has a limit."""
        return not self._is_held and self.limited.isdisjoint(member_ids)

    def load(self, member_id: MemberId) -> float:
        """Return the stateful active load of a member per capacity."""
        found = self._load.get(member_id)
        if found is None:
            table, member = self.group.table, self.members[member_id]
            active = Role.ACTIVE
            actives = [task_id for task_id, grant in member.assignment.items() if grant.role is active]
            task_indexes = [table.index_of[task_id] for task_id in actives if task_id in table.index_of]
            found = (
                sum([table.weight[task_index] for task_index in task_indexes if table.stateful[task_index]])
                / member.capacity
            )
            self._load[member_id] = found
        return found

    def is_stalled(self, task: Task, member_id: MemberId) -> bool:
        """Say whether the member is not to be tried for this task now, because a warmup there came no closer."""
        if not task.stalls:
            return False
        return any(stall.member_id == member_id and stall.until_ms > self.now_ms for stall in task.stalls)

    def has_failed(self, task: Task, member_id: MemberId) -> bool:
        """Say whether the member failed the task so lately that another one is tried before it."""
        oldest_ms = self.now_ms - self.policy.poison_window_ms
        return any(failure.member_id == member_id and failure.at_ms > oldest_ms for failure in task.failures)

    def is_any_member_overdue(self) -> bool:
        """Say whether a member has not been heard for so long that it may be about to expire.

        What is balanced now would be balanced again once it does. Suspected members take no part in placement anyway.
        """
        if self.config.kafka_streams:
            return False  # Kafka says who is there.
        if self._is_any_member_overdue is None:
            latest_ms = self.now_ms - self.config.overdue_ms
            self._is_any_member_overdue = any(
                self._heard_since_ms(member) < latest_ms
                for member in self.members.values()
                if member.away_until_ms is None and not member.suspected
            )
        return self._is_any_member_overdue

    def _heard_since_ms(self, member: Member) -> int:
        """Return since when a member is silent: unheard, since it joined, or since this coordinator started."""
        member_soft = self.member_softs.get(member.id)
        return member_soft.heard_ms if member_soft is not None else max(member.joined_ms, self.soft.started_ms)

    def why_moves_are_held(self, *, for_balance: bool) -> Held | None:
        """Return why moves are held in the whole group, or None.

        What is not for balance (a drain, a free copy, a task that failed) goes on in a storm and in a pause of balance.
        """
        pause = self.group.pause
        if pause is not None and (pause.scope is PauseScope.ALL or for_balance):
            return Held.PAUSED
        if self.group.storm_since_ms is not None and for_balance:
            return Held.STORM
        return None
