"""From the group to placement and back: the request to placement, and what its answer changes.

The request holds more than the present owners and copies. Some tasks are *bound*: placement has no choice about them.
``_Constraints`` binds tasks, and changes the home of some, in this order. A task that is bound once stays bound.

| the task | placement |
|---|---|
| has no owner, and a next owner that is there, stays (unless all drain) and has room | binds it to the next owner |
| failed, and a ready copy takes over | binds it to that copy's member, so that it does not return |
| has its place on a member that is missing (``View.kept_at``), or is on its way from one | binds it to that place |
| lost its state | counts it as without an owner |
| has a target where its warmup stalled, or where it failed | prefers the least loaded other member to that target |
| gave way to others on a member (`turns`), and its owner stays | binds it to its owner, so that balance moves another |
| does not run; all copies have unknown lag | binds it to its target, else its owner: not if that drains, or failed it |
| is pinned to a member that may be given something new and has room | binds it to that member |
| failed lately, but not where it is | binds it to where it is |
| failed lately where it is, and does not run, or has no state | binds it to a member where it did not fail |
| failed lately, and has no owner | the same |
| runs on a distrusted member | binds it there: such a member keeps what it runs, and is given nothing new |
| is on its way, while moves for balance are held | binds it to its target |
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress, count
from operator import attrgetter, ne
from typing import Final

from batonpass.core.handover.copy_capacity import RoomLeft
from batonpass.core.handover.owner import choose_active
from batonpass.core.handover.state_size import state_sizes
from batonpass.core.handover.view import View
from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import AWAITING_NEWS, FAILED, GRANTED, LOST, RUNNING, UNMARKED, Member, Target, Task
from batonpass.core.state.policy import BalanceBy
from batonpass.placement.types import (
    NO_STATE,
    UNASSIGNED,
    Copies,
    Moves,
    Placed,
    PlacementMember,
    PlacementRequest,
    Readiness,
    Warmth,
)

_WITHOUT_LAG: Final = tuple(Warmth(int(readiness), 0) for readiness in Readiness)

_BRING_TAKERS: Final = frozenset(
    {
        *("join", "undrain", "kept-out-over", "member-trusted", "suspicion-cleared", r.HEARD_AGAIN),
        *("resume", "pause-over", "storm-ended"),
    }
)
"""The triggers after which a member may be given more, for which a group is balanced at once."""
_OWNER: Final[Callable[[Task], MemberId | None]] = attrgetter("owner")
_STANDBYS: Final[Callable[[Task], tuple[MemberId, ...]]] = attrgetter("standbys")


def build_request(view: View) -> PlacementRequest:
    """Return the request to placement for the group as it stands."""
    constraints = _Constraints(view)
    constraints.fill_unsettled()
    constraints.leave_those_that_gave_way()
    constraints.bind_pinned()
    constraints.keep_missing()
    constraints.redirect()
    constraints.avoid_failed()
    constraints.keep_on_distrusted()
    held = view.why_moves_are_held(for_balance=True) is not None or _only_load_moves(view)
    if held:
        # No new moves for balance. Moves under way keep their destination, so that warm copies stay warm.
        constraints.keep_going()
    members = constraints.members
    return PlacementRequest(
        table=view.group.table,
        members=_with_room_on_disks(view, members, constraints.bound) if view.disk_room else members,
        home=constraints.home,
        standbys=constraints.standbys,
        previous=constraints.previous,
        warming=constraints.warming,
        bound=constraints.bound,
        warmth=constraints.warmth,
        state_size=state_sizes(view.group, view.soft),
        num_standby_replicas=view.config.num_standby_replicas,
        rack_aware_tags=view.config.rack_aware_tags,
        balance_held=held,
    )


def _only_load_moves(view: View) -> bool:
    """Say whether balance could move tasks only because measured weights are others by now: that is up to ``load``."""
    is_measured = view.config.balance_by is BalanceBy.MEASURED and bool(view.group.loads)
    return is_measured and _BRING_TAKERS.isdisjoint(view.group.triggers)


def _placement_member(view: View, member: Member) -> PlacementMember:
    return PlacementMember(
        id=member.id,
        capacity=member.capacity,
        max_tasks=member.max_tasks,
        tags=member.client_tags,
        topology_epoch=member.topology_epoch,
        may_be_target=member.id in view.takers and member.id not in view.distrusted,
        keeps_copies=view.is_missing(member.id),
    )


def _with_room_on_disks(view: View, members: list[PlacementMember], bound: Mapping[int, int]) -> list[PlacementMember]:
    """Return the members with the most stateful tasks that each takes: those it has, and those that fit beside them.

    Tasks that are bound to a member are not taken from it for lack of room, and do not displace what it has.
    """
    ids = view.group.table.ids
    names = [MemberId(member.id) for member in members]
    to_come = Counter([index for task, index in bound.items() if view.takes_room_on_disk(names[index], ids[task])])
    return [
        member if room is None else replace(member, max_stateful=len(room.has) + max(room.more, to_come[index]))
        for index, member in enumerate(members)
        for room in [view.disk_room.get(names[index])]
    ]


def _fill_settled(view: View, number: Mapping[MemberId, int]) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return the owner index of each task, and its standbys. Unsettled tasks are corrected afterwards."""
    tasks = view.group.tasks.plain()
    ids = view.group.table.ids
    # If the topology has not changed, the tasks are in order already, which saves up to a hundred thousand look-ups.
    in_order = tasks.values() if tuple(tasks) == ids else [tasks[task_id] for task_id in ids]
    owners = list(map(_OWNER, in_order))
    index_of = {owner: UNASSIGNED if owner is None else number[owner] for owner in set(owners)}
    home = list(map(index_of.__getitem__, owners))
    standing = list(map(_STANDBYS, in_order))
    indexes = {names: tuple(sorted([number[member_id] for member_id in names])) for names in set(standing)}
    return home, list(map(indexes.__getitem__, standing))


class _Constraints:
    """What binds placement: tasks on their way, pinned ones, and those that failed or stalled lately.

    The fields without an underscore are those of the request.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._table = view.group.table
        self._ordered = [view.group.members[member_id] for member_id in sorted(view.group.members)]
        self._number = {member.id: index for index, member in enumerate(self._ordered)}
        self._tasks = view.group.tasks.plain()
        # The few tasks with a pin, a stall or a failure. They may be settled, so this is one quick pass over all tasks.
        self._marked = [task for task in self._tasks.values() if task.marks != UNMARKED]
        self.members = [_placement_member(view, member) for member in self._ordered]
        self.home, self.standbys = _fill_settled(view, self._number)
        self.previous: dict[int, int] = {}
        self.warming: dict[int, int] = {}
        self.bound: dict[int, int] = {}
        self._avoided: dict[int, int] = {}

    def fill_unsettled(self) -> None:
        for task_id, pending in self._view.group.unsettled.items():
            task, task_index = self._tasks[task_id], self._table.index_of.get(task_id)
            # A task without an owner that awaits a target has no copies, and no move under way.
            if task_index is not None and (pending is not AWAITING_NEWS or task.owner is not None):
                self._fill(task_index, task)

    def _fill(self, task_index: int, task: Task) -> None:
        """Note the home, the move under way, and the binding of one unsettled task."""
        view, number = self._view, self._number
        target = task.target.owner
        owner, next_owner = task.owner, view.next_owner_of(task)
        # One that drains keeps it only if all do.
        if next_owner is not None and next_owner.id in (view.takers or filter(view.is_heard, number)):
            owner = next_owner.id
            self.bound[task_index] = number[owner]
        elif task.state is FAILED and view.is_stateful(task.id):
            # The member that takes over keeps the task: it does not return to the member on which it failed.
            taker = choose_active(view, task).active
            if taker is not None and taker != owner and not view.has_full_disk_for(taker, task.id):
                owner = taker
                self.bound[task_index] = number[taker]
        elif task.marks.pin not in view.takers and (place := view.kept_at(task)) is not None:
            # So that nothing else moves because a member is silent or restarts.
            self.bound[task_index] = number[place]
            owner = owner or place
        if task.state is LOST and task_index not in self.bound and view.is_stateful(task.id):
            # A holder without state does not count as owner, so that the task goes where it is warm.
            owner = None
        self.home[task_index] = number[owner] if owner is not None else UNASSIGNED
        if task.target.standbys or target is not None:
            self.standbys[task_index] = tuple(sorted([number[member_id] for member_id in task.target.standbys]))
        if target is not None and number[target] != self.home[task_index]:
            self.previous[task_index] = number[target]
            if target in task.warmups:
                self.warming[task_index] = number[target]
        if task_index not in self.bound:
            self._bind_unready(task_index, task, target)

    def _bind_unready(self, task_index: int, task: Task, target: MemberId | None) -> None:
        """Bind a task whose copies all have unknown lag; release it from a target that it avoids."""
        view = self._view
        if not self._table.stateful[task_index]:
            return
        has_failed = target is not None and target != task.owner and view.has_failed(task, target)
        if target is not None and (has_failed or view.is_stalled(task, target)):
            # The member becomes the last choice for this task (``warmth``), and another one is tried (``redirect``).
            self.previous.pop(task_index, None)
            self.warming.pop(task_index, None)
            self._avoided[task_index] = self._number[target]
            return
        begins_ready = task.ready_grant and task.state is GRANTED
        if task.owner is not None and (begins_ready or task.state is RUNNING):
            return
        keep = target if target is not None else task.owner
        if keep is None or keep not in view.takers or view.has_failed(task, keep):
            return
        held = [*task.holders, *([task.owner] if task.owner is not None else [])]
        if held and all(view.copy(task, member_id).readiness is Readiness.UNKNOWN for member_id in held):
            self.bound[task_index] = self._number[keep]

    def _marked_and_free(self) -> Iterator[tuple[int, Task]]:
        """Yield the tasks with a pin, a stall or a failure that nothing binds yet."""
        for task in self._marked:
            task_index = self._table.index_of.get(task.id)
            if task_index is not None and task_index not in self.bound:
                yield task_index, task

    def leave_those_that_gave_way(self) -> None:
        """Bind running tasks whose copy gave way lately to their owner, so that balance moves others meanwhile.

        They do not stay on a member that drains, nor away from the member to which an operator pinned them.
        """
        for task_index, task in self._marked_and_free():
            gave_way = any(stall.gave_way and stall.until_ms > self._view.now_ms for stall in task.marks.stalls)
            if not gave_way or task.owner is None or task.state is not RUNNING or task.marks.pin is not None:
                continue
            if self._view.members[task.owner].drain is not None:
                continue
            self.bound[task_index] = self._number[task.owner]
            for moves in (self.previous, self.warming, self._avoided):
                moves.pop(task_index, None)

    def redirect(self) -> None:
        """Point every task that avoids its target to the least loaded other member, if that is better than staying."""
        load = self._loads() if self._avoided else []
        for task_index, avoided in sorted(self._avoided.items()):
            weight, at = self._table.weight[task_index], self.home[task_index]
            free = [index for index, member in enumerate(self.members) if member.may_be_target and index != avoided]
            levels = {index: (load[index] + weight) / self.members[index].capacity for index in (*free, at)}
            best = min(levels, key=lambda index: (levels[index], index != at, index))
            if at not in (UNASSIGNED, best):
                self.previous[task_index] = self.warming[task_index] = best
                load[best] += weight

    def _loads(self) -> list[float]:
        return loads_of(self._table.weight, self.home, self.bound, len(self.members))

    def avoid_failed(self) -> None:
        """Bind tasks that failed lately to the member that runs them now, and those that cannot run to another one.

        Each failure moves a task once, to a member where it has not failed, until it is parked. Balance moves another
        task instead of moving it back. A move away from where it failed goes on although the task runs there again.
        """
        for task_index, task in self._marked_and_free():
            avoided = {self._number[member_id] for member_id in self._view.avoided_for(task)}
            if not avoided or task.marks.parked or task.state is LOST:
                continue
            at = self.home[task_index]
            if at != UNASSIGNED and self.members[at].may_be_target and at not in avoided:
                self.bound[task_index] = at
            elif self._is_to_go(task, task_index, at, avoided):
                free = [index for index, member in enumerate(self.members) if self._may_have(task, member)]
                free = [index for index in free if index not in avoided]
                if free:
                    self.bound[task_index] = self._best_of(free, task_index, task)

    def _is_to_go(self, task: Task, task_index: int, at: int, avoided: Collection[int]) -> bool:
        """Say whether a task that failed lately is to go elsewhere: nobody has it, or it fails where it is."""
        if at == UNASSIGNED or not self._table.stateful[task_index]:
            return True
        is_under_way = task_index in self.previous and task_index not in self._avoided
        return at in avoided and (is_under_way or task.state is not RUNNING)

    def _may_have(self, task: Task, member: PlacementMember) -> bool:
        """Say whether a member may be the target of a task that it does not have as active."""
        member_id = MemberId(member.id)
        held = self._view.members[member_id].assignment
        return (
            member.may_be_target
            and self._view.knows(task.id, member.topology_epoch)
            and (member.max_tasks is None or len(held) < member.max_tasks or task.id in held)
            and not self._view.has_full_disk_for(member_id, task.id)
        )

    def _best_of(self, free: list[int], task_index: int, task: Task) -> int:
        """Return the member to which a task is to go already, else the warmest, else the least loaded."""
        load, under_way, weight = self._loads(), self.previous.get(task_index), self._table.weight[task_index]
        warmth = self._warmth_of(task, set(free)) if self._table.stateful[task_index] else {}
        return min(
            free,
            key=lambda index: (
                index != under_way,
                warmth.get(index, NO_STATE),
                (load[index] + weight) / self._ordered[index].capacity,
                index,
            ),
        )

    def keep_on_distrusted(self) -> None:
        """Bind to each distrusted member what it runs, and what is not on its way to another member."""
        view, index_of = self._view, self._table.index_of
        for member_id in sorted(view.distrusted):
            member = self._view.members[member_id]
            if member.drain is not None:
                continue
            for task in view.tasks.pick(member.assignment):
                is_here = task.owner == member_id and self.home[index_of[task.id]] == self._number[member_id]
                is_to_stay = task.state not in (FAILED, LOST)
                is_leaving = task.target.owner != member_id and view.present_member(task.target.owner) is not None
                if is_here and is_to_stay and not is_leaving:
                    self.bound.setdefault(index_of[task.id], self._number[member_id])

    def keep_going(self) -> None:
        for task_index, index in self.previous.items():
            if self.home[task_index] != UNASSIGNED and self.members[index].may_be_target:
                self.bound.setdefault(task_index, index)

    def keep_missing(self) -> None:
        """Bind what missing members have to where it is, or is on its way to; count what may go as without an owner."""
        index_of = self._table.index_of
        for member in self._ordered:
            if not self._view.is_missing(member.id):
                continue
            for task in self._view.tasks.pick([task_id for task_id in member.actives if task_id in index_of]):
                task_index, place = index_of[task.id], self._view.kept_at(task)
                if place is not None:
                    self.bound.setdefault(task_index, self._number[place])
                else:
                    self.home[task_index] = UNASSIGNED

    def bind_pinned(self) -> None:
        """Bind pinned tasks, on each member as many as its limit allows, starting with those that it has.

        While a member drains or is missing its pins are suspended, and placement ignores them.
        """
        room = RoomLeft(self._view, {one.id: one.max_tasks for one in self._ordered if one.max_tasks is not None})
        for task_index, index in self.bound.items():
            room.take(self._ordered[index].id, self._table.ids[task_index])
        pinned = [(task.owner != task.marks.pin, task_index, task) for task_index, task in self._marked_and_free()]
        for _, task_index, task in sorted(pinned):
            pin = task.marks.pin
            if pin is not None and pin in self._view.takers and room.allows(pin, task.id):
                self.bound[task_index] = self._number[pin]
                room.take(pin, task.id)

    def warmth(
        self, tasks: Collection[int], members: Collection[int], without: Callable[[int], Collection[int]] = lambda _: ()
    ) -> Copies:
        """Return how warm these members are for these tasks, including their state on disk.

        Nothing is said of the members that a task is ``without``.
        """
        view, table, wanted = self._view, self._table, set(members)
        some: Iterable[int] = tasks
        if len(tasks) > sum(len(self._ordered[index].assignment) + 1 for index in members):
            named = {task.id for task in self._marked}
            for member in [self._ordered[index] for index in members]:
                named.update(member.assignment, view.soft.of(member.id).reports)
            some = {table.index_of[task_id] for task_id in named if task_id in table.index_of}.intersection(tasks)
        warmth = ((task, self._warmth_of(self._tasks[table.ids[task]], wanted, without(task))) for task in some)
        return {task: copies for task, copies in warmth if copies}

    def _warmth_of(self, task: Task, members: Collection[int], without: Collection[int] = ()) -> dict[int, Warmth]:
        view, number = self._view, self._number
        owners = (task.owner,) if task.owner is not None else ()
        warmth: dict[int, Warmth] = {}
        for member_id in (*owners, *task.standbys, *task.warmups, *view.on_disk(task.id)):
            index = number[member_id]
            if index in members and index not in without:
                readiness, lag, on_disk, _ = view.copy(task, member_id)
                if on_disk and task.owner is not None and readiness is not Readiness.UNKNOWN:
                    readiness = Readiness.ON_DISK
                warmth[index] = Warmth(int(readiness), lag) if lag else _WITHOUT_LAG[readiness]
        if not task.marks.failures and not task.marks.stalls:
            return warmth
        avoided = [*view.avoided_for(task)]
        avoided += [
            stall.member_id for stall in task.marks.stalls if stall.until_ms > view.now_ms and stall.member_id in number
        ]
        for member_id in avoided:
            if member_id not in owners and number[member_id] in members and number[member_id] not in without:
                warmth[number[member_id]] = _WITHOUT_LAG[Readiness.UNKNOWN]
        return warmth


def loads_of(weights: Sequence[float], home: Sequence[int], bound: Mapping[int, int], members: int) -> list[float]:
    """Return the load of actives of each member, stateless ones too, with bound tasks where they are bound."""
    load = [0.0] * (members + 1)  # The last is that of tasks without an owner (``UNASSIGNED``).
    for task_index, weight in enumerate(weights):
        load[bound.get(task_index, home[task_index])] += weight
    return load


def last_resorts(view: View, request: PlacementRequest, placed: Placed) -> Placed:
    """Return the answer of placement with the tasks that nobody would begin on members with room all the same.

    A task that nobody runs is worse than one on a member that may fail it, or that has to hand it over again because it
    drains. Those that are distrusted come first. What finds no place keeps the one that it has.
    """
    table, members, ids = view.group.table, request.members, view.group.table.ids
    distrusted = view.takers & view.distrusted
    absent = {UNASSIGNED, *(index for index, one in enumerate(members) if not view.is_heard(MemberId(one.id)))}
    last = distrusted | view.stopgaps
    resorts = {index for index, member in enumerate(members) if member.id in last and index not in absent}
    places = enumerate(zip(request.home, placed.owner, strict=True)) if resorts else ()
    orphans = [task_index for task_index, (home, to) in places if home == UNASSIGNED and to in absent]
    if not orphans:
        return placed
    owner, standbys = list(placed.owner), list(placed.standbys)
    waiting, why = dict(placed.waiting), dict(placed.why)
    copies = Counter[int]()
    room = RoomLeft(view, {MemberId(one.id): one.max_tasks for one in members if one.max_tasks is not None})
    for task_id, home, to, others in zip(ids, request.home, owner, standbys, strict=True):
        for index in (home if to == UNASSIGNED else to, *others):
            if index in resorts:
                copies[index] += 1
                room.take(MemberId(members[index].id), task_id)
    for task_index in orphans:
        fit = [
            (members[index].id not in distrusted, copies[index] / members[index].capacity, index)
            for index in resorts
            if members[index].topology_epoch >= table.topology_epoch[task_index]
            and room.allows(MemberId(members[index].id), ids[task_index])
        ]
        if fit:
            owner[task_index] = min(fit)[-1]
            copies[owner[task_index]] += 1
            room.take(MemberId(members[owner[task_index]].id), ids[task_index])
            waiting.pop(task_index, None)
            why[task_index] = Moves.NO_OWNER
            standbys[task_index] = tuple(one for one in standbys[task_index] if one != owner[task_index])
    return replace(placed, owner=owner, standbys=standbys, waiting=waiting, why=why)


def target_changes(view: View, request: PlacementRequest, placed: Placed) -> dict[TaskId, Target]:
    """Return the tasks whose target changes, with the new one, in order.

    A settled task is at its target, so only the settled tasks that placement moves have to be compared.
    """
    group = view.group
    table = group.table
    index_of, ids = table.index_of, table.ids
    names = [MemberId(member.id) for member in request.members]
    changes: dict[TaskId, Target] = {}
    waiting, owners, all_standbys = placed.waiting, placed.owner, placed.standbys
    task_indexes = {index_of[task_id] for task_id in group.unsettled if task_id in index_of}
    task_indexes.update(compress(count(), map(ne, owners, request.home)))
    task_indexes.update(compress(count(), map(ne, all_standbys, request.standbys)))
    tasks = group.tasks.for_reads(len(task_indexes))
    known: dict[tuple[int, tuple[int, ...], str], Target] = {}
    for task_index in sorted(task_indexes):
        task_id, index = ids[task_index], owners[task_index]
        alike = index, all_standbys[task_index], waiting.get(task_index, "")
        target = known.get(alike)
        if target is None:
            # A task without an owner has no standbys. If a bound task is on one of its standbys, that one is dropped.
            standbys = tuple([names[one] for one in alike[1] if one != index]) if index != UNASSIGNED else ()
            owner = names[index] if index != UNASSIGNED else None
            target = known[alike] = Target(owner, standbys, str(alike[2]))
        if target != tasks[task_id].target:
            changes[task_id] = target
    return changes
