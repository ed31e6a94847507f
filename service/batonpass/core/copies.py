"""Which members hold a copy of each task beside its active: standbys, warmups, the last owner until the new one runs.

What is kept costs nothing new; what is missing is asked for. Copies up to ``1 + num_standby_replicas`` are granted
freely as standbys; everything beyond is a warmup and needs a slot of the budget (``budget``). A copy that is no
longer wanted stays until as many wanted ones are caught up: a standby moves as an active does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, cast

from batonpass.core.handover import Choice, choose
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.lag import Readiness
from batonpass.core.model import ActiveState, Role, Task
from batonpass.core.reasons import Why
from batonpass.core.view import View


class Ask(NamedTuple):
    """A copy that is wanted of ``task`` on ``member_id``, for its move as active or as standby.

    ``free`` ones bring the task up to its number of copies and need no slot.
    """

    task: Task
    member_id: MemberId
    for_active: bool
    draining: bool
    free: bool


class Staged(NamedTuple):
    """One task after this step: its active, its other copies by member, and the copies that it asks for.

    The copy that it asks for to move its active comes first.
    """

    task: Task
    choice: Choice
    copies: dict[MemberId, Role]
    asks: tuple[Ask, ...] = ()


# Made so, a named tuple takes a third of the time.
_staged: Final = cast("Callable[[type[Staged], tuple[object, ...]], Staged]", tuple.__new__)

HELD: Final = slice(Task._fields.index("standbys"), Task._fields.index("keeper") + 1)
NOTHING_HELD: Final = Task(TaskId(""))[HELD]
_BESIDE: Final = slice(Task._fields.index("warmups"), Task._fields.index("keeper") + 1)
_NOTHING_BESIDE: Final = Task(TaskId(""))[_BESIDE]


def stage_all(view: View, tasks: Iterable[Task]) -> list[Staged]:
    """Return what ``stage`` says of each task.

    Where a whole group begins, or much of it has to move, the same can be said of thousands of tasks, and little has to
    be asked about each: those are told apart first.
    """
    return list(map(stager(view), tasks))


def stager(view: View) -> Callable[[Task], Staged]:
    """Return what stages one task after another as ``stage`` does, to be used for many. Costs a pass over members."""
    if not view.is_calm():
        return partial(stage, view)
    cold: dict[MemberId, Choice] = {}
    ready: dict[MemberId, Choice | None] = {}
    staying: dict[MemberId, Choice | None] = {}

    def staged(task: Task) -> Staged:
        owner = task.owner
        if owner is None:
            found = _taken_over(view, task, ready) if task.standbys else _beginning(view, task, cold)
        elif task.target == owner:
            begins = task.state is not ActiveState.RUNNING
            found = _starting(view, task, owner, staying) if begins else _settled(view, task, owner, staying)
        else:
            found = _queued(view, task, owner, staying)
        return found or stage(view, task)

    return staged


def _is_plain(view: View, task: Task) -> bool:
    """Say whether the task has state, and no operator has to release it."""
    table = view.group.table
    rank = table.rank.get(task.id)
    return rank is not None and table.stateful[rank] and not task.parked


def _beginning(view: View, task: Task, cold: dict[MemberId, Choice]) -> Staged | None:
    """Return a task that nobody has anything of: it begins where it belongs, with all of its copies."""
    target = task.target
    if (
        target is None
        or task[HELD] != NOTHING_HELD
        or task.awaits is not None
        or len(task.target_standbys) > view.config.num_standby_replicas
        or not _is_plain(view, task)
        or view.on_disk(task.id)
    ):
        return None
    choice = cold.get(target)
    if choice is None:
        choice = cold[target] = Choice(target, Why.COLD_START)
    return _staged(Staged, (task, choice, dict.fromkeys(task.target_standbys, Role.STANDBY), ()))


def _queued(view: View, task: Task, owner: MemberId, staying: dict[MemberId, Choice | None]) -> Staged | None:
    """Return a task that runs on, with the standbys that it should have, and waits for a copy at its target."""
    target, standbys = task.target, task.standbys
    if (
        task.state is not ActiveState.RUNNING
        or target is None
        or standbys != task.target_standbys
        or task[_BESIDE] != _NOTHING_BESIDE
        or task.stalls
        or len(standbys) < view.config.num_standby_replicas
        or owner in standbys
        or target in standbys
        or not _is_plain(view, task)
    ):
        return None
    choice = _stays(view, owner, staying)
    if choice is None:
        return None
    asks = (Ask(task, target, True, False, False),)
    return _staged(Staged, (task, choice, dict.fromkeys(standbys, Role.STANDBY), asks))


def _starting(view: View, task: Task, owner: MemberId, staying: dict[MemberId, Choice | None]) -> Staged | None:
    """Return a task whose owner, where it belongs, has yet to run it, while no other copy is ready."""
    standbys = task.standbys
    if (
        task.state not in (ActiveState.GRANTED, ActiveState.RESTORING)
        or standbys != task.target_standbys
        or task[_BESIDE] != _NOTHING_BESIDE
        or owner in standbys
        or not _is_plain(view, task)
        or view.on_disk(task.id)
    ):
        return None
    choice = _stays(view, owner, staying)
    if choice is None or any(view.copy(task, one).is_caught_up for one in standbys):
        return None
    return _staged(Staged, (task, choice, dict.fromkeys(standbys, Role.STANDBY), ()))


def _settled(view: View, task: Task, owner: MemberId, staying: dict[MemberId, Choice | None]) -> Staged | None:
    """Return a task that runs where it belongs, with the standbys that it should have, or one that is to move."""
    standbys, wanted = task.standbys, task.target_standbys
    moves = standbys != wanted
    if (
        (moves and not len(standbys) == len(wanted) == 1 == view.config.num_standby_replicas)
        or task[_BESIDE] != _NOTHING_BESIDE
        or owner in standbys
        or owner in wanted
        or not _is_plain(view, task)
    ):
        return None
    choice = _stays(view, owner, staying)
    if choice is None:
        return None
    # The old copy stays until the new one is caught up.
    asks = (Ask(task, wanted[0], False, False, False),) if moves else ()
    return _staged(Staged, (task, choice, dict.fromkeys(standbys, Role.STANDBY), asks))


def _taken_over(view: View, task: Task, ready: dict[MemberId, Choice | None]) -> Staged | None:
    """Return a task that nobody runs and whose only copy is known to be caught up: its member takes over."""
    (taker, *others), target = task.standbys, task.target
    if (
        others
        or task[_BESIDE] != _NOTHING_BESIDE
        or target not in (None, taker)
        or task.target_standbys not in ((), task.standbys)
        or task.awaits is not None
        or task.failures
        or not _is_plain(view, task)
        or view.on_disk(task.id)
    ):
        return None
    if taker not in ready:
        member = view.members[taker]
        ready[taker] = Choice(taker, Why.FAILOVER, True) if view.is_noted_level(member) else None
    choice = ready[taker]
    return None if choice is None else _staged(Staged, (task, choice, {}, ()))


def _stays(view: View, owner: MemberId, staying: dict[MemberId, Choice | None]) -> Choice | None:
    """Return the choice of an owner that neither drains nor is suspected."""
    if owner not in staying:
        member = view.members[owner]
        is_calm = member.drain is None and not member.suspected
        staying[owner] = Choice(owner, Why.STAYS, True) if is_calm else None
    return staying[owner]


def stage(view: View, task: Task) -> Staged:
    """Return what the members should hold of ``task`` when this step is complete, budgets apart."""
    if task.stalls or task.failures:
        view.passes()  # What is held against a member is so for a while.
    choice = choose(view, task)
    rank = view.group.table.rank.get(task.id)
    if task.parked or rank is None or not view.group.table.stateful[rank]:
        return Staged(task, choice, {})
    active = choice.active
    if active is None:
        # Nobody can have it now: whatever copies there are may yet be what saves it.
        return Staged(task, choice, view.holders(task))
    wanted = view.those_here(task.target_standbys, besides=active)
    return _asked(view, task, choice, _kept(view, task, choice, wanted), wanted)


def _kept(view: View, task: Task, choice: Choice, wanted: list[MemberId]) -> dict[MemberId, Role]:
    active, owner = choice.active, task.owner
    keeper = owner if owner not in (None, active) else task.keeper
    if keeper is None and not task.standbys and not task.warmups:
        return {}
    holders = view.holders(task)
    holders.pop(active, None)  # type: ignore[arg-type]
    kept: dict[MemberId, Role] = {}
    if keeper is not None and keeper != active and view.member(keeper) is not None:
        if owner == keeper and task.state is not ActiveState.LOST:
            holders[keeper] = Role.STANDBY
        was_running = owner != keeper or task.state is ActiveState.RUNNING
        if keeper in holders and was_running and not view.complete:
            kept[keeper] = Role.STANDBY
    held = [one for one in wanted if one in holders]
    for member_id in held:
        settled = holders[member_id] is Role.STANDBY or _is_caught_up(view, task, member_id)
        kept[member_id] = Role.STANDBY if settled else Role.WARMUP
    target = task.target
    if target is not None and target not in (active, owner) and target in holders and not view.is_stalled(task, target):
        kept.setdefault(target, holders[target])
        held.append(target)
    if len(kept) == len(holders):
        return kept
    surplus = [one for one in holders if one not in kept and (one != target or one != owner)]
    if surplus:
        runs = owner == active and task.state is ActiveState.RUNNING
        # While the owner keeps the task for its target, the target's copy is one of those that are wanted beside it.
        missing = max(len(wanted), len(task.target_standbys)) - len(held)
        if missing < len(surplus):
            # Only a copy that is caught up makes another one superfluous.
            missing += sum([not _is_caught_up(view, task, one) for one in held])
        for member_id in _spared(view, task, surplus, missing=missing, runs=runs or choice.ready):
            kept[member_id] = holders[member_id]
        if not view.complete:
            _keep_on_drained(view, task, kept, {one: holders[one] for one in surplus if one not in kept})
    return kept


def _keep_on_drained(view: View, task: Task, kept: dict[MemberId, Role], rest: dict[MemberId, Role]) -> None:
    """Keep what stands by on draining members as long as nobody else can: it goes with its member, not before.

    Where all drain nothing moves, and what is ready for a move stays ready for it.
    """
    leaving = [one for one, role in rest.items() if role is Role.STANDBY and view.members[one].drain is not None]
    if leaving:
        view.passes()
    for member_id in sorted(leaving, key=lambda one: (*_warmth(view, task, one), one)):
        if len(kept) < view.config.num_standby_replicas:
            kept[member_id] = Role.STANDBY
    if all(member.drain is not None for member in view.members.values()):
        view.passes()
        kept.update({one: role for one, role in rest.items() if _is_caught_up(view, task, one)})


def _is_caught_up(view: View, task: Task, member_id: MemberId) -> bool:
    """An owner that ran the task has everything until it says otherwise: it has just been told to stop."""
    return _ran(task, member_id) or view.copy(task, member_id).is_caught_up


def _ran(task: Task, member_id: MemberId) -> bool:
    return member_id == task.owner and task.state is ActiveState.RUNNING


def _spared(view: View, task: Task, surplus: list[MemberId], *, missing: int, runs: bool) -> list[MemberId]:
    """Return the unwanted copies that stay for now: as many standbys as wanted ones are missing.

    While nobody is ready to run the task, all of them stay that hold any state.
    """
    holders = view.holders(task)
    ranked = sorted(surplus, key=lambda one: (*_warmth(view, task, one), one)) if len(surplus) > 1 else surplus
    if not runs:
        return [one for one in ranked if view.copy(task, one).readiness is not Readiness.COLD]
    standing = [one for one in ranked if holders.get(one, Role.STANDBY) is Role.STANDBY]
    return standing[: max(0, missing)]


def _warmth(view: View, task: Task, member_id: MemberId) -> tuple[int, int]:
    if _ran(task, member_id):
        return (Readiness.RUNNING, 0)
    copy = view.copy(task, member_id)
    return (copy.readiness, copy.lag or 0)


def is_for_drain(view: View, task: Task) -> bool:
    """Say whether the extra copies of a task are there because a member drains: its owner, or its last one."""
    members = view.members
    for member_id in (task.owner, task.keeper):
        if member_id is not None and member_id in members and members[member_id].drain is not None:
            return True
    return any(claim.member_id in members and members[claim.member_id].drain is not None for claim in task.claims)


def _asked(view: View, task: Task, choice: Choice, copies: dict[MemberId, Role], wanted: list[MemberId]) -> Staged:
    needs: dict[MemberId, bool] = {}
    if task.target != choice.active:
        target = view.member(task.target)
        if target is not None and target.id not in copies and not view.is_stalled(task, target.id):
            needs[target.id] = True
    for member_id in wanted:
        if member_id not in copies:
            needs.setdefault(member_id, False)
    if not needs:
        return Staged(task, choice, copies)
    free = view.config.num_standby_replicas - len(copies)
    if free >= len(needs) and view.grants_freely(needs):
        # Nothing that any other task asks for can stand in their way.
        copies.update(dict.fromkeys(needs, Role.STANDBY))
        return Staged(task, choice, copies)
    draining = is_for_drain(view, task)
    asks = [
        Ask(task, member_id, for_active, draining, number < free)
        for number, (member_id, for_active) in enumerate(needs.items())
    ]
    return Staged(task, choice, copies, tuple(asks))
