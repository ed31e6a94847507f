"""One look at a group: hard and soft state at one instant, as the deciding files read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from batonpass.core.ids import MemberId, TaskId
from batonpass.core.lag import Copy, judge_copy
from batonpass.core.model import Group, Member, PauseScope, Role, Task
from batonpass.core.policy import Policy
from batonpass.core.reasons import Held
from batonpass.core.soft import MemberSoft, Soft

_READS_A_TASK: Final = 8


class View:
    """Group and soft state at ``now_ms``. Reads only, and remembers what it has looked up.

    ``complete`` asks what holds when every revocation is confirmed (the dry run), instead of what may be done now.
    ``tasks``, ``members`` and ``heard`` are those of the group and of the soft state, as the fewest steps read them.
    ``until_ms`` and ``is_passing`` say how long what was said of a task holds (``begin_task``). ``disk`` are the
    members that may have state on disk which nobody tails, by task, and ``silent_since_ms`` is an instant since when
    every member was heard, both where they are known (``agenda``).
    """

    __slots__ = (
        "_disk",
        "_held_for_all",
        "_here",
        "_load",
        "_overdue",
        "complete",
        "config",
        "disk",
        "group",
        "heard",
        "is_passing",
        "members",
        "now_ms",
        "policy",
        "silent_since_ms",
        "soft",
        "tasks",
        "until_ms",
    )

    def __init__(self, group: Group, soft: Soft, now_ms: int, policy: Policy, *, complete: bool = False) -> None:
        self.group = group
        self.soft = soft
        self.now_ms = now_ms
        self.policy = policy
        self.config = group.config
        self.complete = complete
        self.tasks: Mapping[TaskId, Task] = group.tasks
        self.members: Mapping[MemberId, Member] = group.members
        self.heard: Mapping[MemberId, MemberSoft] = soft.members
        self._disk: dict[TaskId, list[MemberId]] | None = None
        self._load: dict[MemberId, float] = {}
        self._held_for_all: bool | None = None
        self._here: set[MemberId] | None = None
        self._overdue: bool | None = None
        self.until_ms: int | None = None
        self.is_passing = False
        self.disk: Mapping[TaskId, frozenset[MemberId]] | None = None
        self.silent_since_ms: int | None = None

    def begin_task(self) -> None:
        """Count from now on until when what is said of one task holds, as long as nothing about it changes."""
        self.until_ms, self.is_passing = None, False

    def changes_at(self, *instants_ms: int) -> None:
        """Note that what is said of the task may be another from each of these instants on, where it lies ahead."""
        ahead = [at_ms for at_ms in instants_ms if at_ms > self.now_ms]
        if ahead:
            self.until_ms = min(ahead) if self.until_ms is None else min(self.until_ms, *ahead)

    def passes(self) -> None:
        """Note that what is said of the task depends on more than the task, its members and their words."""
        self.is_passing = True

    def expect(self, tasks: int) -> None:
        """Make ready to look at so many tasks: where that pays, these and members are read from plain dictionaries."""
        if tasks * _READS_A_TASK > len(self.group.tasks):
            self.tasks = self.group.tasks.plain()
        if tasks * _READS_A_TASK > len(self.group.members):
            self.members, self.heard = self.group.members.plain(), self.soft.members.plain()
            self._here = {one for one, member in self.members.items() if member.away_until_ms is None}

    def is_calm(self) -> bool:
        """Say whether nobody is away, no member has a limit, and nothing is held. Costs a pass over the members."""
        if self.group.storm_since_ms is not None or self.moves_held(draining=True) is not None:
            return False
        return all(one.away_until_ms is None and one.max_tasks is None for one in self.members.values())

    def those_here(self, member_ids: Iterable[MemberId], *, besides: MemberId) -> list[MemberId]:
        """Return those of the members that are here, but for one."""
        here = self._here
        if here is not None:
            return [one for one in member_ids if one in here and one != besides]
        return [one for one in member_ids if one != besides and self.member(one) is not None]

    def member(self, member_id: MemberId | None) -> Member | None:
        """Return a member that is here: not gone, and not away to restart."""
        if member_id is None:
            return None
        member = self.members.get(member_id)
        return None if member is None or member.away_until_ms is not None else member

    def copy(self, task: Task, member_id: MemberId) -> Copy:
        """Return what a member that is here has of the task."""
        return judge_copy(self.group, self.heard.get(member_id), task, self.members[member_id])

    def is_stateful(self, task_id: TaskId) -> bool:
        """Say whether the task has state to restore."""
        table = self.group.table
        return table.stateful[table.rank[task_id]]

    def holders(self, task: Task) -> dict[MemberId, Role]:
        """Return the copies granted beside the active, with their roles; holders are members that are here."""
        copies = dict.fromkeys(task.standbys, Role.STANDBY)
        if task.warmups:
            copies.update(dict.fromkeys(task.warmups, Role.WARMUP))
        return copies

    def on_disk(self, task_id: TaskId) -> list[MemberId]:
        """Return the members that have reported state of the task which nobody gave them to tail, in order."""
        if self.disk is not None:
            found = sorted(self.disk.get(task_id, ()))
            return [one for one in found if self.member(one) and task_id not in self.members[one].picture]
        if self._disk is None:
            self._disk = {}
            for member_id, heard in self._with_disk():
                member = self.member(member_id)
                if member is None:
                    continue
                for reported, report in heard.reports.items():
                    if report.said.role == "none" and not report.said.lost and reported not in member.picture:
                        self._disk.setdefault(reported, []).append(member_id)
        return self._disk.get(task_id, [])

    def _with_disk(self) -> list[tuple[MemberId, MemberSoft]]:
        """Return the members that may have reported such state, in order."""
        heard = [(member_id, one) for member_id, one in self.soft.members.items() if not one.tails_all]
        return sorted(heard, key=lambda entry: entry[0])

    def grants_freely(self, member_ids: Iterable[MemberId]) -> bool:
        """Say whether these members take any copy that costs no slot: moves go on, and none of them has a limit."""
        if self._held_for_all is None:
            self._held_for_all = self.moves_held(draining=True) is not None
        members = self.members
        return not self._held_for_all and all(members[one].max_tasks is None for one in member_ids)

    def load(self, member_id: MemberId) -> float:
        """Return the stateful active load of a member per capacity."""
        found = self._load.get(member_id)
        if found is None:
            table, member = self.group.table, self.members[member_id]
            found = 0.0
            actives = [task_id for task_id, grant in member.picture.items() if grant[0] is Role.ACTIVE]
            for rank in map(table.rank.get, actives):
                if rank is not None and table.stateful[rank]:
                    found += table.weight[rank]
            found /= member.capacity
            self._load[member_id] = found
        return found

    def is_stalled(self, task: Task, member_id: MemberId) -> bool:
        """Say whether the member is not to be tried for this task now, because a warmup there came no closer."""
        if not task.stalls:
            return False
        return any(stall.member_id == member_id and stall.until_ms > self.now_ms for stall in task.stalls)

    def has_failed(self, task: Task, member_id: MemberId) -> bool:
        """Say whether the member failed the task so lately that another one is tried before it (DESIGN 2.5, poison)."""
        oldest_ms = self.now_ms - self.policy.poison_window_ms
        return any(failure.member_id == member_id and failure.at_ms > oldest_ms for failure in task.failures)

    @property
    def has_waited(self) -> bool:
        """Say whether a move was held because a member is overdue."""
        return self._overdue is True

    def is_somebody_overdue(self) -> bool:
        """Say whether a member has not been heard for so long that it may be about to expire.

        What is balanced now would be balanced again once it does. Suspected members take no part in placement anyway.
        """
        if self._overdue is None:
            latest_ms = self.now_ms - self.config.overdue_ms
            if self.silent_since_ms is not None and self.silent_since_ms >= latest_ms:
                self._overdue = False
                return False
            self._overdue, earliest_ms = False, self.now_ms
            for member_id, member in self.members.items():
                if member.away_until_ms is None and not member.suspected:
                    since_ms = self.heard_since_ms(member_id, member)
                    if since_ms < latest_ms:
                        self._overdue = True
                        return True
                    earliest_ms = min(earliest_ms, since_ms)
            self.silent_since_ms = earliest_ms
        return self._overdue

    def heard_since_ms(self, member_id: MemberId, member: Member) -> int:
        """Return since when a member is silent: unheard, since it joined, or since this coordinator started."""
        heard = self.heard.get(member_id)
        return heard.heard_ms if heard is not None else max(member.joined_ms, self.soft.started_ms)

    def is_noted_level(self, member: Member) -> bool:
        """Say whether it is noted that every copy of a member is caught up, so that they need not be looked at."""
        known = self.heard.get(member.id)
        is_noted = known is not None and known.level_at == (member.epoch, self.group.revision)
        return is_noted and member.away_until_ms is None and not member.suspected

    def moves_held(self, *, draining: bool) -> Held | None:
        """Return why a move is held for the whole group, or None; drains go on in a storm and a pause of balance."""
        pause = self.group.pause
        if pause is not None and (pause.scope is PauseScope.ALL or not draining):
            return Held.PAUSED
        if self.group.storm_since_ms is not None and not draining:
            return Held.STORM
        return None
