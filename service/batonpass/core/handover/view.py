"""Hard and soft state at one instant, as the deciding files read it."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import cached_property
from typing import Final

from batonpass.core.handover.lag import Copy, copy_as_reported, open_transactions_of
from batonpass.core.handover.room import DiskRoom, has_limit, room_on_disks
from batonpass.core.state.failures import avoided_until_ms, distrusted_until_ms, host_of, is_avoided
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import FAILED, RUNNING, Group, Member, Outcome, PauseScope, Task
from batonpass.core.state.newcomers import new_until_ms
from batonpass.core.state.reasons import Held, Hold
from batonpass.core.state.soft import MemberSoft, Soft

_NOBODY: Final[frozenset[MemberId]] = frozenset()


class Availability(IntEnum):
    """How well a member may take what it does not have: the one answer for placement, handovers and takeovers.

    A member that is silent for longer than a heartbeat can be late, or away to restart, cannot begin a task before it
    is heard. So it keeps the place of what it has, and gets something new only if no member is there that may have it.
    Nothing is taken from an owner for it at all. A draining member runs what it takes at once, but has to hand it over
    again, so it is no target. Lower is better, and the worst that holds of a member counts.
    """

    THERE = 0
    DRAINING = 1
    OVERDUE = 2
    SUSPECTED = 3
    AWAY = 4

    @property
    def is_heard(self) -> bool:
        """Whether the member would begin at once."""
        return self <= Availability.DRAINING


class View:
    """Group and soft state at ``now_ms``. It is read-only, and computes what takes a pass over the group only once.

    With ``as_if_complete`` it answers as at the end of the step (the dry run, decision 0005): members have confirmed
    what they give up, and what they are handed runs.
    """

    def __init__(self, group: Group, soft: Soft, now_ms: int, *, as_if_complete: bool = False) -> None:
        self.group = group
        self.soft = soft
        self.now_ms = now_ms
        self.config = group.config
        self.as_if_complete = as_if_complete
        self.tasks = group.tasks
        self._load: dict[MemberId, float] = {}
        self._availability: dict[MemberId, Availability] = {}

    @cached_property
    def members(self) -> Mapping[MemberId, Member]:
        return self.group.members.plain()

    @cached_property
    def member_softs(self) -> Mapping[MemberId, MemberSoft]:
        return self.soft.members.plain()

    def heard_since_ms(self, member: Member) -> int:
        """Return when a member was heard last, as far as this coordinator was there to hear it.

        What came before its start, or before it stood still, is no silence of the member's.
        """
        member_soft = self.soft.members.get(member.id)
        return max(member.joined_ms if member_soft is None else member_soft.heard_ms, self.soft.listens_since_ms)

    def is_overdue(self, member: Member) -> bool:
        """Say whether a member has missed a heartbeat, and may be about to expire.

        That is after twice the heartbeat interval, or twice the time between its own heartbeats if they come more
        slowly.
        """
        silent_ms = self.now_ms - self.heard_since_ms(member)
        return silent_ms > self._overdue_ms and silent_ms > 2 * self.soft.of(member.id).rhythm_ms

    @cached_property
    def _overdue_ms(self) -> int:
        return self.group.overdue_ms

    def lease_end_ms(self, member: Member) -> int:
        """Return when a member's lease ends as this coordinator counts it (protocol 7.5).

        It counts from receipt, by the largest timeout.

        The present timeout always counts: an answer to a long-poll may have carried it, and such answers are not noted.
        """
        member_soft, group = self.soft.members.get(member.id), self.group
        if member_soft is None:
            # A coordinator whose clock was ahead may have recorded the join. No member joined later than now.
            joined_ms = min(member.joined_ms, self.now_ms)
            return max(self.soft.judge_from_ms, joined_ms + group.longest_session_ms)
        answered_ms = max((timeout for _, timeout in member_soft.timeouts), default=group.longest_session_ms)
        return member_soft.heard_ms + max(answered_ms, group.config.session_timeout_ms)

    def expires_ms(self, member: Member) -> int:
        """Return when a member expires if it is not heard: with its lease, but not before members may be judged."""
        return max(self.lease_end_ms(member), self.soft.judge_from_ms)

    def present_member(self, member_id: MemberId | None) -> Member | None:
        """Return the member if it is in the group and not away to restart."""
        member = self.members.get(member_id) if member_id is not None else None
        return None if member is None or member.away_until_ms is not None else member

    def availability(self, member_id: MemberId) -> Availability:
        """Return how well a member of the group may take something new. Of its own members, Kafka says who is alive."""
        known = self._availability.get(member_id)
        if known is None:
            known = self._availability[member_id] = self._availability_of(self.members[member_id])
        return known

    def _availability_of(self, member: Member) -> Availability:
        if member.away_until_ms is not None:
            return Availability.AWAY
        if member.suspected:
            return Availability.SUSPECTED
        if not self.config.kafka_streams and self.is_overdue(member):
            return Availability.OVERDUE
        return Availability.THERE if member.drain is None else Availability.DRAINING

    def is_heard(self, member_id: MemberId) -> bool:
        """Say whether a member of the group would begin at once what it is given."""
        return self.availability(member_id).is_heard

    @cached_property
    def draining(self) -> Mapping[MemberId | None, Member]:
        """The members that drain."""
        return {member.id: member for member in self.members.values() if member.drain is not None}

    @cached_property
    def takers(self) -> frozenset[MemberId]:
        """The members that may be given something new: of those that stay, the ones that are best available."""
        staying = {member.id: self.availability(member.id) for member in self.members.values() if member.drain is None}
        best = min(staying.values(), default=None)
        return frozenset([member_id for member_id, availability in staying.items() if availability == best])

    @cached_property
    def stopgaps(self) -> frozenset[MemberId]:
        """The members that drain, and run all the same what nobody else is there for, or has room for."""
        names = [member.id for member in self.members.values() if not member.gets_nothing]
        return frozenset([name for name in names if self.availability(name) is Availability.DRAINING])

    def is_missing(self, member_id: MemberId | None) -> bool:
        """Say whether a member stays, and others may take what it would: it keeps the place of what it has."""
        member = self.members.get(member_id) if member_id is not None else None
        if member is None or member.drain is not None or self.availability(member.id) is Availability.THERE:
            return False  # No member is better available than one that is there: takers need no pass over all then.
        return member.id not in self.takers or bool(self.stopgaps)

    def kept_at(self, task: Task) -> MemberId | None:
        """Return where a task of the topology belongs although its owner or its target is missing; None if nowhere.

        A missing member keeps the place of what it has, of what it had when it went away to restart, and of what it was
        to get from an owner that stays, which goes on meanwhile. A task without state has nothing to wait for: it goes
        to a member that is there as soon as its owner may be replaced.
        """
        owner, target, stateful = task.owner, task.target.owner, self.is_stateful(task.id)
        if owner is not None and self.is_missing(owner):
            if not stateful:
                may_go = self.members[owner].suspected or task.state is FAILED
                return None if may_go else owner
            is_on_its_way = target is not None and self.members[target].drain is None
            return target if is_on_its_way else owner
        if not stateful or not self.is_missing(target):
            return None
        if owner is None:
            return target if task.handover.away_owner == target else None
        return target if self.members[owner].drain is None else None

    def next_owner_of(self, task: Task) -> Member | None:
        """Return the member that is to get a task without an owner, if it is present and may keep what it is to get.

        If its disk has become full, the task goes elsewhere: that member has none of its state yet.
        """
        if task.owner is not None or task.handover.next_owner is None:
            return None
        next_owner = self.present_member(task.handover.next_owner)
        return None if next_owner is None or self.has_full_disk_for(next_owner.id, task.id) else next_owner

    def rejoins_until_ms(self, task: Task) -> int | None:
        """Return until when the place of the task's target, or of its last owner, is kept that is away to restart."""
        if not self.away:
            return None
        named = (task.target.owner, task.handover.away_owner)
        return max([self.away[member_id] for member_id in named if member_id in self.away], default=None)

    @cached_property
    def away(self) -> Mapping[MemberId | None, int]:
        """The members that are away to restart, and until when their places are kept.

        That is as long as no member is judged, at least.
        """
        ends = {member.id: member.away_until_ms for member in self.members.values()}
        return {name: max(at_ms, self.soft.judge_from_ms) for name, at_ms in ends.items() if at_ms is not None}

    def is_past_deadline(self, member: Member) -> bool:
        """Say whether the member drains and the deadline of its drain is over."""
        deadline_ms = member.drain.deadline_ms if member.drain is not None else None
        return deadline_ms is not None and self.now_ms >= deadline_ms

    def copy(self, task: Task, member_id: MemberId) -> Copy:
        """Return what a present member has of the task."""
        return copy_as_reported(self.group, self.member_softs.get(member_id), task, self.members[member_id])

    def is_stateful(self, task_id: TaskId) -> bool:
        """Say whether the task has state to restore. A task that the topology has dropped has none."""
        table = self.group.table
        task_index = table.index_of.get(task_id)
        return task_index is not None and table.stateful[task_index]

    def knows(self, task_id: TaskId, topology_epoch: int) -> bool:
        """Say whether a program of this epoch knows the task's subtopology as it is since its last change."""
        table = self.group.table
        return topology_epoch >= table.topology_epoch[table.index_of[task_id]]

    def on_disk(self, task_id: TaskId) -> list[MemberId]:
        """Return the members that report state of the task which they were not assigned, in the order of their ids."""
        return self._disk.get(task_id, [])

    @cached_property
    def _disk(self) -> dict[TaskId, list[MemberId]]:
        members_with_state: dict[TaskId, list[MemberId]] = {}
        for member_id in sorted(self.member_softs):
            member, reports = self.present_member(member_id), self.member_softs[member_id].reports
            if member is not None and reports:
                for task_id in reports.keys() - member.assignment.plain().keys():
                    if reports[task_id].report.role == "none" and not reports[task_id].report.lost:
                        members_with_state.setdefault(task_id, []).append(member_id)
        return members_with_state

    @cached_property
    def limited(self) -> frozenset[MemberId]:
        """The members with a limit on their tasks or their disk."""
        return frozenset([member_id for member_id, member in self.members.items() if has_limit(member)])

    @cached_property
    def disk_room(self) -> Mapping[MemberId, DiskRoom]:
        """How much more state each member with a limit on its disk takes."""
        return room_on_disks(self.group, self.soft) if self.limited else {}

    def takes_room_on_disk(self, member_id: MemberId, task_id: TaskId) -> bool:
        """Say whether a copy of the task would be new state for a member with a limit on its disk."""
        room = self.disk_room.get(member_id)
        return room is not None and task_id not in room.has and self.is_stateful(task_id)

    def has_full_disk_for(self, member_id: MemberId, task_id: TaskId) -> bool:
        """Say whether a member's disk is full for a task of which it has no state yet."""
        return self.takes_room_on_disk(member_id, task_id) and self.disk_room[member_id].more <= 0

    @cached_property
    def must_not_stop_now(self) -> frozenset[MemberId]:
        """The members that are about to be granted a task without an owner.

        If such a member had to stop another task now, that grant would be delayed. Members with a limit are left
        out: they may need the room of the task that they stop.
        """
        if self.as_if_complete:
            return _NOBODY
        tasks = self.tasks.pick(self.group.moving_tasks())
        waiting = [task.handover.next_owner for task in tasks if task.owner is None and task.handover.next_owner]
        return frozenset([member_id for member_id in waiting if member_id not in self.limited])

    @cached_property
    def newcomers(self) -> Mapping[MemberId, int]:
        """The members to which balance copies nothing yet (``newcomers``), and until when."""
        return new_until_ms(self.group, self.now_ms, self.members.values())

    def is_new_for(self, task: Task, member_id: MemberId) -> bool:
        """Say whether a move of the task to the member waits because the member is new: it is for balance alone."""
        if member_id not in self.newcomers or task.marks.pin == member_id or task.state is not RUNNING:
            return False
        owner = self.members.get(task.owner) if task.owner is not None else None
        return owner is not None and owner.drain is None and not owner.suspected

    def load(self, member_id: MemberId) -> float:
        """Return the weight of a member's stateful actives, divided by its capacity."""
        if member_id not in self._load:
            table, member = self.group.table, self.members[member_id]
            task_indexes = [table.index_of[task_id] for task_id in member.actives if task_id in table.index_of]
            weight = sum([table.weight[task_index] for task_index in task_indexes if table.stateful[task_index]])
            self._load[member_id] = weight / member.capacity
        return self._load[member_id]

    def stalled_until_ms(self, task: Task, member_id: MemberId) -> int | None:
        """Return until when a warmup of the task is not tried on the member, where it made no progress; None: it is."""
        ends = [stall.until_ms for stall in task.marks.stalls if stall.member_id == member_id]
        return max([until_ms for until_ms in ends if until_ms > self.now_ms], default=None)

    def is_stalled(self, task: Task, member_id: MemberId) -> bool:
        return bool(task.marks.stalls) and self.stalled_until_ms(task, member_id) is not None

    def is_held_up(self, task: Task) -> bool:
        """Say whether a transaction stays open in a changelog of the task, so that no copy can be read to its end."""
        return bool(open_transactions_of(self.group, self.soft, task.id))

    def avoided_for(self, task: Task) -> frozenset[MemberId]:
        """Return the members on which the task is not tried for now, for what came of it there (``failures``)."""
        if not task.marks.failures:
            return _NOBODY
        failures, instances = task.marks.failures, self.group.instances
        named: Iterable[MemberId | None] = self.members  # Whoever joined after one without an instance died may be it.
        if not any(one.outcome is Outcome.DIED and one.instance_id is None for one in failures):
            named = [instances.get(one.instance_id) if one.instance_id else one.member_id for one in failures]
        return frozenset(
            [one for one in named if one is not None and one in self.members and self.has_failed(task, one)]
        )

    def failed_until_ms(self, task: Task, member_id: MemberId) -> int | None:
        """Return until when the task is not tried on the member, for what came of it there; None: it is."""
        member, config, now_ms = self.members[member_id], self.config, self.now_ms
        counted = [one for one in task.marks.failures if is_avoided(one, member, config, now_ms)]
        return max([avoided_until_ms(config, failure) for failure in counted], default=None)

    def has_failed(self, task: Task, member_id: MemberId) -> bool:
        return bool(task.marks.failures) and self.failed_until_ms(task, member_id) is not None

    @cached_property
    def distrusted(self) -> frozenset[MemberId]:
        """The members that are given nothing new for now, because tasks that failed there run elsewhere.

        If no other member may be given anything either, none is distrusted.
        """
        if not self.group.hosts:
            return _NOBODY
        until = {host: distrusted_until_ms(self.config, known) for host, known in self.group.hosts.items()}
        over = [member.id for member in self.members.values() if until.get(host_of(member), 0) > self.now_ms]
        return frozenset(over) if self.takers.difference(over) else _NOBODY

    @cached_property
    def is_any_member_overdue(self) -> bool:
        """Whether a member has been silent for so long that it may be about to expire.

        If it does, the balance has to be computed again. Suspected members and those that drain do not count: placement
        leaves them out.
        """
        staying = (member_id for member_id, member in self.members.items() if member.drain is None)
        return any(self.availability(member_id) is Availability.OVERDUE for member_id in staying)

    @cached_property
    def longest_silence(self) -> tuple[int, MemberId] | None:
        """Return since when a member has been silent, and which: the longest silence of all. None without members.

        A member that was never heard is silent since it joined, or since this coordinator started. Members that are
        away, suspected, or drain do not count.
        """
        silences = [
            (self.heard_since_ms(member), member.id)
            for member in self.members.values()
            if member.away_until_ms is None and not member.suspected and member.drain is None
        ]
        return min(silences, default=None)

    @property
    def hold_for_silence(self) -> Hold | None:
        """What holds moves for balance if a member is overdue: until whoever is silent longest is heard, or expires."""
        if not self.is_any_member_overdue or self.longest_silence is None:
            return None
        return Hold(Held.MEMBER_OVERDUE, self.longest_silence[0] + self.config.session_timeout_ms)

    def why_moves_are_held(self, *, for_balance: bool) -> Hold | None:
        """Return why moves are held in the whole group, or None.

        Moves for other reasons than balance (a drain, a free copy, a failed task) go on during a storm and during a
        pause of scope ``balance``.
        """
        pause = self.group.pause
        if pause is not None and (pause.scope is PauseScope.ALL or for_balance):
            return Hold(Held.PAUSED, pause.expires_ms)
        if self.group.storm_since_ms is not None and for_balance:
            return Hold(Held.STORM, self.group.storm_over_ms)
        return None

    def why_not_granted(self, member_id: MemberId) -> Hold | None:
        """Return why a member cannot be granted anything now, or None."""
        if self.now_ms < self.group.grants_from_ms:
            return Hold(Held.GRANTS_HELD, self.group.grants_from_ms)
        return Hold(Held.REVOKE_FIRST) if self.members[member_id].revoking else None
