"""From the group to placement and back: what placement needs to know, and what its answer changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import compress, count
from operator import attrgetter, ne
from typing import Final

from batonpass.core.copy_capacity import RoomLeft
from batonpass.core.handover import choose_active
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.lag import Readiness, copy_as_reported
from batonpass.core.model import ActiveState, Member, Task
from batonpass.core.placement_types import (
    UNASSIGNED,
    Copies,
    Placed,
    PlacementMember,
    PlacementRequest,
    Ready,
    Warmth,
)
from batonpass.core.state_size import state_sizes
from batonpass.core.view import View

_CLASS: Final = (Ready.RUNNING, Ready.CAUGHT_UP, Ready.BEHIND, Ready.NOTHING, Ready.UNKNOWN)
"""By readiness."""
_WITHOUT_LAG: Final = tuple(Warmth(int(one), 0) for one in _CLASS)

_READS_A_TASK: Final = 4
_OWNER: Final[Callable[[Task], MemberId | None]] = attrgetter("owner")
_STANDBYS: Final[Callable[[Task], tuple[MemberId, ...]]] = attrgetter("standbys")
_MARKS: Final = slice(Task._fields.index("pin"), Task._fields.index("stalls") + 1)
_UNMARKED: Final = Task(TaskId(""))[_MARKS]

Target = tuple[MemberId | None, tuple[MemberId, ...], str]


def build_request(view: View) -> PlacementRequest:
    """Return what placement is asked for the group as it stands."""
    group = view.group
    table = group.table
    members = [group.members[one] for one in sorted(group.members)]
    number = {member.id: index for index, member in enumerate(members)}
    home, standbys = _fill_settled(view, number)
    special = _Special(view, members, number)
    for task_id, is_open in group.unsettled.items():
        task_index, task = table.index_of.get(task_id), group.tasks[task_id]
        # A task that waits for a target has nothing to be written down: no owner, no copies, no move under way.
        if task_index is not None and (is_open or task.owner is not None):
            special.fill(task_index, task, home, standbys)
    special.bind_pinned()
    placed = [_placement_member(member) for member in members]
    special.redirect(placed, home)
    special.avoid_failed(placed, home)
    pause_held = view.why_moves_are_held(for_balance=True) is not None
    if pause_held:
        # No new moves for balance; those under way keep their destination, and what has warmed up stays warm.
        special.keep_going(placed, home)
    if view.disk_room:
        placed = _with_room_on_disks(view, placed, special.bound)
    return PlacementRequest(
        table=table,
        members=placed,
        home=home,
        standbys=standbys,
        previous=special.previous,
        warming=special.warming,
        bound=special.bound,
        warmth=special.warmth,
        state_size=state_sizes(group, view.soft),
        num_standby_replicas=view.config.num_standby_replicas,
        rack_aware_tags=view.config.rack_aware_tags,
        balance_held=pause_held,
    )


def _placement_member(member: Member) -> PlacementMember:
    return PlacementMember(
        id=member.id,
        capacity=member.capacity,
        max_tasks=member.max_tasks,
        tags=member.client_tags,
        topology_epoch=member.topology_epoch,
        # A suspected member may be dead: it is the target of nothing until it speaks.
        open=member.drain is None and not member.suspected,
    )


def _with_room_on_disks(view: View, members: list[PlacementMember], bound: Mapping[int, int]) -> list[PlacementMember]:
    """Return the members with the most tasks with state that each takes: what it has, and what fits beside that.

    What is bound to it is not taken back from it for want of room, and drives out nothing that it has.
    """
    ids = view.group.table.ids
    to_come = Counter([index for task, index in bound.items() if view.takes_room_on_disk(members[index].id, ids[task])])
    return [
        one if room is None else replace(one, max_stateful=len(room.has) + max(room.more, to_come[index]))
        for index, one in enumerate(members)
        for room in [view.disk_room.get(one.id)]
    ]


def _fill_settled(view: View, number: Mapping[MemberId, int]) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return who has each task, and who stands by; unsettled tasks are corrected afterwards."""
    tasks = view.group.tasks.plain()
    ids = view.group.table.ids
    # As long as the topology stays what it was, they are in order already, and a hundred thousand look-ups are saved.
    in_order = tasks.values() if tuple(tasks) == ids else [tasks[task_id] for task_id in ids]
    owners = list(map(_OWNER, in_order))
    index_of = {owner: UNASSIGNED if owner is None else number.get(owner, UNASSIGNED) for owner in set(owners)}
    home = list(map(index_of.__getitem__, owners))
    standing = list(map(_STANDBYS, in_order))
    indexes = {names: tuple(sorted([number[one] for one in names if one in number])) for names in set(standing)}
    return home, list(map(indexes.__getitem__, standing))


class _Special:
    """What placement must know of the tasks that are on their way."""

    __slots__ = (
        "_heard",
        "_marked",
        "_members",
        "_number",
        "_ordered",
        "_tasks",
        "_view",
        "bound",
        "previous",
        "stalled",
        "warming",
    )

    def __init__(self, view: View, members: list[Member], number: Mapping[MemberId, int]) -> None:
        self._view = view
        self._members = {member.id: member for member in members}
        self._ordered = members
        self._heard = view.soft.members.plain()
        self._tasks = view.group.tasks.plain()
        self._number = number
        # The few tasks with a pin, a stall or a failure, which may be settled: found in one quick pass over all.
        self._marked = [task for task in self._tasks.values() if task[_MARKS] != _UNMARKED]
        self.previous: dict[int, int] = {}
        self.warming: dict[int, int] = {}
        self.bound: dict[int, int] = {}
        self.stalled: dict[int, int] = {}

    def fill(self, task_index: int, task: Task, home: list[int], standbys: list[tuple[int, ...]]) -> None:
        """Note the home, the move under way and the bonds of one unsettled task."""
        view, number = self._view, self._number
        target = task.target if task.target in number else None
        is_away = target is not None and view.present_member(target) is None
        owner, next_owner = task.owner, task.next_owner if view.present_member(task.next_owner) is not None else None
        if owner is None and next_owner is not None and not view.has_full_disk_for(next_owner, task.id):
            owner = next_owner
            self.bound[task_index] = number[next_owner]
        elif task.state is ActiveState.FAILED and view.is_stateful(task.id):
            # Whoever takes over has it for good: it does not go back to the member on which it failed.
            taker = choose_active(view, task).active
            if taker is not None and taker != owner:
                owner = taker
                self.bound[task_index] = number[taker]
        elif is_away and target is not None:
            # The place of an instance that restarts is kept: nothing else moves on its account.
            self.bound[task_index] = number[target]
            owner = owner or target
        if task.state is ActiveState.LOST and task_index not in self.bound and view.is_stateful(task.id):
            # A holder that lost the state is no owner: the task counts as nobody's, and goes where it is warm.
            owner = None
        home[task_index] = number[owner] if owner is not None else UNASSIGNED
        if task.target_standbys or target is not None:
            standbys[task_index] = tuple(sorted(number[one] for one in task.target_standbys if one in number))
        if target is not None and number[target] != home[task_index]:
            self.previous[task_index] = number[target]
            if target in task.warmups:
                self.warming[task_index] = number[target]
        if task_index not in self.bound:
            self._bind_unready(task_index, task, target)

    def _bind_unready(self, task_index: int, task: Task, target: MemberId | None) -> None:
        """Keep in place what nobody can read; let go of a target on which the warmup stalled."""
        view = self._view
        if not view.group.table.stateful[task_index]:
            return
        if target is not None and (view.is_stalled(task, target) or self._failed_away(task, target)):
            # For this task the member is the last choice (``warmth``); another one is tried (``redirect``).
            self.previous.pop(task_index, None)
            self.warming.pop(task_index, None)
            self.stalled[task_index] = self._number[target]
            return
        if task.owner is not None and (task.state is ActiveState.RUNNING or _begins_ready(task)):
            return
        held = [*view.holders(task), *([task.owner] if task.owner is not None else [])]
        if held and all(view.copy(task, one).readiness is Readiness.UNKNOWN for one in held):
            keep = target if target is not None else task.owner
            if keep is not None and view.group.members[keep].drain is None:
                self.bound[task_index] = self._number[keep]

    def _failed_away(self, task: Task, member_id: MemberId) -> bool:
        return member_id != task.owner and self._view.has_failed(task, member_id)

    def redirect(self, members: list[PlacementMember], home: list[int]) -> None:
        """Point every task whose warmup stalled to the least loaded member that is better than staying."""
        if not self.stalled:
            return
        table = self._view.group.table
        load = [0.0] * len(members)
        for task_index in table.stateful_indexes:
            if home[task_index] != UNASSIGNED:
                load[home[task_index]] += table.weight[task_index] / members[home[task_index]].capacity
        for task_index, avoided in sorted(self.stalled.items()):
            weight, at = table.weight[task_index], home[task_index]
            ranked = sorted(
                (load[index] + weight / members[index].capacity, index)
                for index in range(len(members))
                if members[index].open and index not in (avoided, at)
            )
            if at != UNASSIGNED and ranked and ranked[0][0] < load[at] + weight / members[at].capacity:
                self.previous[task_index] = self.warming[task_index] = ranked[0][1]
                load[ranked[0][1]] = ranked[0][0]

    def avoid_failed(self, members: list[PlacementMember], home: list[int]) -> None:
        """Bind what has failed of late to the member that runs it since, and stateless tasks to one that might.

        Each failure moves a task once, to a member that has not failed it, until it is parked; balance does not take it
        back, and moves another task instead. A move under way to a third member goes on, unless it stalled there.
        """
        table = self._view.group.table
        for task in self._marked:
            task_index = table.index_of.get(task.id)
            if (
                task_index is None
                or task_index in self.bound
                or task.parked
                or (table.stateful[task_index] and task_index in self.previous and task_index not in self.stalled)
            ):
                continue
            at, weight = home[task_index], table.weight[task_index]
            avoided = {self._number[one.member_id] for one in task.failures if self._is_avoided(task, one.member_id)}
            if avoided and at != UNASSIGNED and members[at].open and at not in avoided:
                self.bound[task_index] = at
            elif avoided and not table.stateful[task_index]:
                load = self._loads(home)
                free = [
                    ((load[index] + weight) / one.capacity, index)
                    for index, one in enumerate(members)
                    if one.open and index not in avoided and one.topology_epoch >= table.topology_epoch[task_index]
                    if one.max_tasks is None or len(self._members[one.id].assignment) < one.max_tasks
                ]
                if free:
                    self.bound[task_index] = min(free)[1]

    def _is_avoided(self, task: Task, member_id: MemberId) -> bool:
        return member_id in self._number and self._view.has_failed(task, member_id)

    def _loads(self, home: list[int]) -> list[float]:
        """Return the load of actives per index, stateless ones included, with what is bound where it is bound."""
        load = [0.0] * (len(self._members) + 1)
        for task_index, weight in enumerate(self._view.group.table.weight):
            load[self.bound.get(task_index, home[task_index])] += weight
        return load

    def keep_going(self, members: list[PlacementMember], home: list[int]) -> None:
        """Bind every move under way to its destination."""
        for task_index, index in self.previous.items():
            if home[task_index] != UNASSIGNED and members[index].open:
                self.bound.setdefault(task_index, index)

    def bind_pinned(self) -> None:
        """Bind what is pinned, on every member as much as its limit allows; what it has already comes first.

        A drain suspends the pins on its member: until it is taken back, placement has them as if there were none.
        """
        table, number = self._view.group.table, self._number
        room = RoomLeft(
            self._view, {one.id: one.max_tasks for one in self._members.values() if one.max_tasks is not None}
        )
        for task_index, index in self.bound.items():
            room.take(self._ordered[index].id, table.ids[task_index])
        staying = {one.id for one in self._members.values() if one.drain is None}
        pinned = [task for task in self._marked if task.pin in staying and task.id in table.index_of]
        for task in sorted(pinned, key=lambda one: (one.owner != one.pin, table.index_of[one.id])):
            task_index, pin = table.index_of[task.id], task.pin
            if pin is None or task_index in self.bound or not room.allows(pin, task.id):
                continue
            self.bound[task_index] = number[pin]
            room.take(pin, task.id)

    def warmth(self, tasks: Collection[int], members: Collection[int]) -> Copies:
        """Return how warm what these members have of these tasks is, state on disk included."""
        table, wanted = self._view.group.table, set(members)
        if len(tasks) <= sum(len(self._ordered[one].assignment) + 1 for one in members):
            ids = [table.ids[task] for task in tasks]
        else:
            named = {task.id for task in self._marked}
            for member in [self._ordered[one] for one in members]:
                member_soft = self._heard.get(member.id)
                named.update(member.assignment, member_soft.reports if member_soft is not None else ())
            some = set(tasks)
            ids = [one for one in named if table.index_of.get(one) in some]
        found = ((table.index_of[one], self._warmth_of(self._tasks[one], wanted)) for one in ids)
        return {task: copies for task, copies in found if copies}

    def _warmth_of(self, task: Task, members: Collection[int]) -> dict[int, Warmth]:
        view, number = self._view, self._number
        owners = (task.owner,) if task.owner is not None else ()
        names = (*owners, *task.standbys, *task.warmups, *view.on_disk(task.id))
        found = {number[one]: self._judge(task, self._members[one]) for one in names if number[one] in members}
        if not task.failures and not task.stalls:
            return found
        avoided = [one.member_id for one in task.failures if self._is_avoided(task, one.member_id)]
        avoided += [one.member_id for one in task.stalls if one.until_ms > view.now_ms and one.member_id in number]
        for one in avoided:
            if one not in owners and number[one] in members:
                found[number[one]] = _WITHOUT_LAG[Readiness.UNKNOWN]
        return found

    def _judge(self, task: Task, member: Member) -> Warmth:
        readiness, lag, on_disk, _ = copy_as_reported(self._view.group, self._heard.get(member.id), task, member)
        if on_disk and task.owner is not None and readiness is not Readiness.UNKNOWN:
            return Warmth(int(Ready.ON_DISK), lag or 0)
        return Warmth(int(_CLASS[readiness]), lag) if lag else _WITHOUT_LAG[readiness]


def _begins_ready(task: Task) -> bool:
    """Say whether its owner was caught up when it got the task, and has not said yet that it runs it."""
    return task.ready_grant and task.state is ActiveState.GRANTED


def target_changes(view: View, request: PlacementRequest, placed: Placed) -> dict[TaskId, Target]:
    """Return the tasks whose target is another than before, with the new one, in order.

    A settled task is where its target says, so of those only the ones that are placed elsewhere are looked at.
    """
    group = view.group
    table = group.table
    rank_of, ids = table.index_of, table.ids
    names = [member.id for member in request.members]
    changes: dict[TaskId, Target] = {}
    waiting, owners, all_standbys = placed.waiting, placed.owner, placed.standbys
    task_indexes = {rank_of[task_id] for task_id in group.unsettled if task_id in rank_of}
    task_indexes.update(compress(count(), map(ne, owners, request.home)))
    task_indexes.update(compress(count(), map(ne, all_standbys, request.standbys)))
    tasks = group.tasks.plain() if len(task_indexes) * _READS_A_TASK > len(ids) else group.tasks
    together: dict[tuple[int, ...], tuple[MemberId, ...]] = {}
    for task_index in sorted(task_indexes):
        task_id, index, standbys = ids[task_index], owners[task_index], all_standbys[task_index]
        task = tasks[task_id]
        why = str(waiting[task_index]) if task_index in waiting else ""
        chosen: tuple[MemberId, ...] = ()
        # Nobody stands by what waits for an owner; what is bound may go to one of its standbys: none beside it.
        if standbys and index != UNASSIGNED:
            if index in standbys:
                standbys = tuple([one for one in standbys if one != index])
            known = together.get(standbys)
            if known is None:
                known = together[standbys] = tuple(sorted([names[one] for one in standbys]))
            chosen = known
        owner = names[index] if index != UNASSIGNED else None
        if owner != task.target or chosen != task.target_standbys or why != task.waiting_reason:
            changes[task_id] = (owner, chosen, why)
    return changes
