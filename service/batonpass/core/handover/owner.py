"""Which member has each task as active when this step is complete: how the group gets to its target.

Theory. The target says where a task belongs; the present owner is where it runs. While an owner runs, only a caught-up
copy at the target takes over from it (L7). Until then the target warms up and the owner goes on. No third member is
tried, so one change of target costs at most one handover (L8). A task without an owner is the opposite case: it goes at
once to the most caught-up live copy, on whichever member that is, and its target warms up behind it.

In each table the first row that fits decides. A *ready* copy is caught up, on a member whose program knows the task's
subtopology; while an owner runs or is suspected, state on disk that the member does not tail is not ready. An owner
that has not reported since the coordinator started counts as running. Nothing is taken from an owner for a member that
is not there (``Availability``): its copies count as none.

| the present owner | owner after this step |
|---|---|
| any, and the topology has dropped the task, or it is parked | none |
| drains, its deadline is over, and a member that stays may have the task | its best copy there, ready or not |
| any, and the task has no state | the target, if the owner is suspected or the move is not held; else the owner |
| lost its state | a ready copy, else the most caught-up, else the target, else the owner |
| is suspected to be dead | a ready copy (takeover), else the owner |
| has not reported since a start, and the task is to go back to the previous owner | the owner |
| runs, and the deadline of its drain is over | the owner |
| runs, is the target, or the target is away, gone or past the deadline of its drain | the owner |
| runs, the target is not ready | the owner; the target warms up if the budget allows |
| runs, the target is ready, and the move is held | the owner |
| runs, the target is ready | the target (handover) |
| restores, is ready or will be by its next heartbeat, and makes progress | the owner |
| took the task over, or has not reported it yet, and was granted it less than a heartbeat interval ago | the owner |
| restores, and a copy is ready; the previous owner's counts only if the owner is stuck | that copy (failover) |
| failed, and another copy is ready | that copy (failover) |
| restores or failed | the owner |

These hold a move, unless the owner drains: a pause or a storm; and any overdue member of the group, unless the target
is the task's pin. These hold any move: a pause of everything; a failure at the target lately; a transaction that stays
open in a changelog of the task; grants that are held for the group; a revocation that the target has to confirm; a task
without an owner that the owner is about to be granted; and a target that is not there. Nothing holds a move at the
deadline of a drain.

An owner that restores again what it had, and gives way to a copy, counts as one where the task failed, as does one that
is stuck. No copy takes over from an owner on a member where the task failed lately (``failures``). Without an owner,
and at the deadline of a drain, such members, and those that are distrusted, come after the others.

| there is no owner | owner after this step |
|---|---|
| a next owner is chosen and drains, and a ready copy is on a member that stays and did not fail it | that copy |
| a next owner is chosen, the deadline of its drain is over, and the task is free | its best copy elsewhere |
| a next owner is chosen, and has room | the next owner |
| the task has no state | the target, if it is present |
| a copy is ready, tailed or, once a target is placed, on disk | the best one |
| a storm is on, or there is no target yet | none |
| the target, or the last owner, is away to restart | none |
| a copy is behind | the most caught-up |
| the target reports its copy without a lag, and another member may have it | the least loaded one (cold) |
| a copy of unknown lag may turn out to be better | none, for a while |
| the target's state is doubted (``doubts``) | the least loaded other member (cold), else none |
| no copy is of use | the target, which restores cold |
| no copy is of use, and there is no target because placement failed | the members without a limit, in turn |

Of several ready copies the target's comes first, so that the task does not move twice, then the previous owner's; those
on members that drain come last. In the second table a member that is not there comes after every other choice: a next
owner gives way to a ready copy, a ready copy to one that is behind or to the target, and a target to the next placement
or the least loaded member. A next owner that has no state, and drains or is not there, gives way to any other member. A
member past the deadline of its drain takes over no task whose owner or target stays: it would have to give the task up
again at once.

``copies`` decides on the standbys and warmups beside the active, ``budget`` on slots, and ``reconcile`` on what each
member may hold. This file only reads the view that it is given, and changes nothing.
"""

from typing import NamedTuple

from batonpass.core.handover.lag import Copy, level_in_ms
from batonpass.core.handover.room import has_limit
from batonpass.core.handover.view import Availability, View
from batonpass.core.state.ids import MemberId
from batonpass.core.state.model import FAILED, GRANTED, LOST, RUNNING, Member, Task
from batonpass.core.state.reasons import Held, Hold, Why
from batonpass.placement.types import Readiness


class Choice(NamedTuple):
    """Which member has the active of one task when the step is complete.

    ``ready``: the member runs the task, or is caught up. ``hold`` says why no member has the task, or not its target.
    """

    active: MemberId | None
    why: Why
    ready: bool = False
    hold: Hold | None = None

    @property
    def held(self) -> Held | None:
        return None if self.hold is None else self.hold.reason


def choose_active(view: View, task: Task) -> Choice:
    """Return which member has the active of ``task`` when this step is complete (the table above)."""
    table = view.group.table
    task_index = table.index_of.get(task.id)
    if task_index is None:
        return Choice(None, Why.TASK_DROPPED)
    if task.marks.parked:
        return Choice(None, Why.STAYS, hold=Hold(Held.PARKED))
    if task.owner is None:
        return _choose_for_ownerless(view, task, is_stateful=table.stateful[task_index])
    owner = view.members[task.owner]
    if view.is_past_deadline(owner):
        choice = _choose_at_deadline(view, task, owner)
        if choice is not None:
            return choice
    if not table.stateful[task_index]:
        return _choose_for_stateless(view, task, owner)
    if task.state is LOST:
        return _choose_for_lost(view, task, owner)
    if owner.suspected:
        return _choose_for_suspected(view, task, owner)
    if task.state is not RUNNING:
        own = view.copy(task, owner.id)
        if own.readiness is not Readiness.RUNNING:
            return _choose_for_not_running(view, task, owner, own)
        if owner.drain is None and task.target.owner == task.handover.previous_owner:
            return stay(view, task)
    return _choose_for_running(view, task, owner)


def stay(view: View, task: Task, hold: Hold | None = None) -> Choice:
    """Return that the task stays with its owner; without one it waits."""
    owner, runs = task.owner, task.state is RUNNING
    return Choice(owner, Why.STAYS, owner is not None and (runs or view.copy(task, owner).is_caught_up), hold)


def _choose_for_stateless(view: View, task: Task, owner: Member) -> Choice:
    failed = task.state is FAILED
    target = view.present_member(task.target.owner)
    if target is None or target.id == owner.id or view.is_past_deadline(target):
        return stay(view, task, Hold(Held.FAILED) if failed else None)
    if owner.suspected and view.is_heard(target.id):
        return Choice(target.id, Why.TAKEOVER, ready=True)
    hold = view.why_moves_are_held(for_balance=not failed and owner.drain is None)
    if not failed:
        hold = hold or _held_for_overdue(view, task, owner) or _held_for_its_grant(view, owner, target)
    return stay(view, task, hold) if hold else Choice(target.id, Why.STATELESS, ready=True)


def _choose_for_lost(view: View, task: Task, owner: Member) -> Choice:
    """The owner that lost its state is the last choice, but better than no owner, or one where the task fails, too."""
    avoided = view.avoided_for(task)
    choice = _best_ready(view, task, excluding=(owner.id, *avoided)) or _most_caught_up(view, task)
    if choice is not None and choice.active not in avoided:
        return choice
    target = view.present_member(task.target.owner)
    is_other = target is not None and target.id not in (owner.id, *avoided) and task.id not in target.doubts
    if target is not None and is_other and view.is_heard(target.id) and view.group.storm_since_ms is None:
        return Choice(target.id, Why.LOST_STATE)
    return stay(view, task)


def _choose_for_suspected(view: View, task: Task, owner: Member) -> Choice:
    """A suspected member may still be alive, so only a caught-up copy takes over from it."""
    choice = _best_ready(view, task, excluding=(owner.id,), on_disk=False)
    return choice._replace(why=Why.TAKEOVER) if choice is not None else stay(view, task)


def _choose_for_running(view: View, task: Task, owner: Member) -> Choice:
    """Hand the task over once its target is caught up and nothing holds the move. Until then the owner stays."""
    if view.is_past_deadline(owner):
        return stay(view, task, Hold(Held.PLACEMENT_FAILED if view.group.placement_failed else Held.NO_ELIGIBLE_MEMBER))
    target = view.present_member(task.target.owner)
    if target is None or target.id == owner.id or view.is_past_deadline(target):
        return stay(view, task)
    if not view.copy(task, target.id).is_ready_for_handover:
        return stay(view, task)
    if (failed_until_ms := view.failed_until_ms(task, target.id)) is not None:
        return stay(view, task, Hold(Held.FAILED_THERE, failed_until_ms))
    hold = view.why_moves_are_held(for_balance=owner.drain is None) or _held_for_overdue(view, task, owner)
    if hold is None and view.is_held_up(task):
        # However few records the target lacks, it cannot read them, nor run the task, before the transaction ends.
        hold = Hold(Held.OPEN_TRANSACTION)
    hold = hold or _held_for_its_grant(view, owner, target)
    return stay(view, task, hold) if hold else Choice(target.id, Why.HANDOVER, ready=True)


def _held_for_overdue(view: View, task: Task, owner: Member) -> Hold | None:
    """Hold moves for balance while a member may be about to expire: the balance would then have to change again."""
    for_balance = owner.drain is None and task.target.owner != task.marks.pin
    return view.hold_for_silence if for_balance else None


def _held_for_its_grant(view: View, owner: Member, target: Member) -> Hold | None:
    """Hold a handover if the target could not be granted the task yet: no member would run the task meanwhile.

    The target cannot be granted it while grants are held. In two more cases an earlier handover comes first. A target
    that has to confirm a revocation is granted nothing until then (``reconcile``), so the owner would stop too early.
    An owner that is about to be granted another task would get that task later if it had to stop one now. A revocation
    that the owner has to confirm holds nothing. Handovers under way never wait for held ones: they end when members
    confirm, or when the time limit for that is over.
    """
    hold = view.why_not_granted(target.id)
    if hold is not None:
        return hold
    if owner.id in view.must_not_stop_now:
        return Hold(Held.TAKE_OVER_FIRST)
    return None if view.is_heard(target.id) else Hold(Held.MEMBER_OVERDUE, view.expires_ms(target))


def _choose_at_deadline(view: View, task: Task, leaving: Member) -> Choice | None:
    """Return the best copy, ready or not, of a member that stays. A member that drains too is no better.

    ``leaving`` drains. It has the task, or is to get it.
    """
    to_target = None if task.target.owner is None else Choice(task.target.owner, Why.DEADLINE)
    ready, behind = _best_ready(view, task, excluding=(leaving.id,)), _most_caught_up(view, task)
    elsewhere = _cold_elsewhere(view, task) if view.is_missing(task.target.owner) else None
    for choice in (ready, behind, to_target, elsewhere):
        if choice is None or choice.active is None or choice.active == leaving.id:
            continue
        is_doubted = task.id in view.members[choice.active].doubts
        if view.availability(choice.active) is Availability.THERE and not is_doubted:
            return choice._replace(why=Why.DEADLINE, ready=choice.ready or not view.is_stateful(task.id))
    return None


def _choose_for_not_running(view: View, task: Task, owner: Member, own: Copy) -> Choice:
    """Prefer a ready copy to an owner that restores, unless the owner is as ready and makes progress."""
    is_stuck = view.now_ms >= _stuck_at_ms(view, task, owner, own)
    is_as_far = own.is_caught_up or _runs_in_a_moment(view, task, owner, own)
    if is_as_far and task.state is not FAILED and not is_stuck:
        return stay(view, task)
    # The previous owner has just handed the task over. It gets the task back only if the new owner fails or is stuck.
    failed = task.state is FAILED
    previous_owner = None if failed or is_stuck else task.handover.previous_owner
    is_still_expected = previous_owner is not None or task.state is GRANTED
    if is_still_expected and view.now_ms < task.since_ms + view.group.heartbeat_interval_ms:
        # The owner may report within a heartbeat interval that it runs: if it took the task over, its copy was caught
        # up, and if it had no copy, the changelog may be almost empty.
        return stay(view, task)
    # Members where the task failed lately are left out, so that they do not pass it back and forth.
    choice = _best_ready(view, task, excluding=(owner.id, previous_owner, *view.avoided_for(task)))
    if choice is None:
        return stay(view, task, Hold(Held.FAILED) if failed else None)
    if failed:
        return choice
    # It had what it needs, and has lost it: that is remembered as if it had said so, else its target is it again.
    was_ready = task.ready_grant or 0 < task.ran_since_ms >= task.since_ms
    return choice._replace(why=Why.STUCK) if is_stuck or was_ready else choice


def _runs_in_a_moment(view: View, task: Task, owner: Member, own: Copy) -> bool:
    """Say whether the owner, at its present rate, will have restored by its next heartbeat.

    A standby that restores beside it may report first, because its heartbeat happens to come earlier. A takeover would
    gain nothing then.
    """
    eta_ms, measured = level_in_ms(own), view.soft.report_of(owner.id, task.id)
    if eta_ms is None or measured is None:
        return False
    return measured.at_ms + eta_ms - view.group.heartbeat_interval_ms <= view.now_ms


def _stuck_at_ms(view: View, task: Task, owner: Member, own: Copy) -> int:
    """Return when an owner that comes no closer counts as stuck. Without a lag it comes closer while it reads on.

    If its copy was caught up when it got the task, and is not now, nothing counts: it has lost what it had. The time in
    which it ran is none in which it came no closer.
    """
    measured = view.soft.report_of(owner.id, task.id)
    since_ms = max(task.since_ms, task.stopped_ms, view.soft.started_ms)
    if measured is not None and (own.is_caught_up or not task.ready_grant):
        since_ms = max(since_ms, measured.progress_ms if measured.lag is None else measured.closer_ms)
    return since_ms + view.config.warmup_stall_timeout_ms


def _choose_for_ownerless(view: View, task: Task, *, is_stateful: bool) -> Choice:
    """Choose the next owner of a task without one: a ready copy at once, other members only once a target is placed."""
    next_owner = view.next_owner_of(task)
    if next_owner is not None and view.availability(next_owner.id) is Availability.THERE:
        return _under_way(view, task, next_owner)
    has_copies = is_stateful and bool(task.standbys or task.warmups or view.on_disk(task.id))
    ready = _best_ready(view, task, on_disk=task.target.owner is not None) if has_copies else None
    better = ready if is_stateful else _target_or_wait(view, task)
    if next_owner is not None and (choice := _instead_of(view, task, next_owner, better)) is not None:
        return choice
    if not is_stateful:
        return _first_heard(view, task, better)
    if ready is not None and ready.active is not None and view.is_heard(ready.active):
        return ready
    if view.group.storm_since_ms is not None:
        return ready or stay(view, task, Hold(Held.STORM, view.group.storm_over_ms))
    if task.target.owner is None and not view.group.placement_failed:
        return _target_or_wait(view, task)
    if (rejoins_until_ms := view.rejoins_until_ms(task)) is not None:
        return stay(view, task, Hold(Held.REJOIN_GRACE, rejoins_until_ms))
    behind = _most_caught_up(view, task) if has_copies else None
    return _first_heard(view, task, ready, behind, _cold(view, task))


def _under_way(view: View, task: Task, next_owner: Member) -> Choice:
    return Choice(next_owner.id, Why.HANDOVER_UNDER_WAY, view.copy(task, next_owner.id).is_caught_up)


def _instead_of(view: View, task: Task, next_owner: Member, ready: Choice | None) -> Choice | None:
    """Return who gets what a member was to get that drains, or is not there; None: that is open.

    Until the task is free, a ready copy may turn up on a member that begins at once and is better available; a member
    that begins at once itself does not give way to one where the task, or others, failed. Otherwise it keeps the task,
    unless it has no state: any other member may begin from nothing as well.
    """

    def rank(member_id: MemberId) -> tuple[bool, bool, Availability]:
        return not view.is_heard(member_id), _is_bad_for(view, task, member_id), view.availability(member_id)

    taker = None if ready is None else ready.active
    if taker is not None and view.is_heard(taker) and rank(taker) < rank(next_owner.id):
        return ready
    if view.is_past_deadline(next_owner) and not task.handover.unreleased:
        choice = _choose_at_deadline(view, task, next_owner)
        if choice is not None:
            return choice
    under_way = _under_way(view, task, next_owner)
    return None if view.copy(task, next_owner.id).readiness is Readiness.COLD else under_way


def _first_heard(view: View, task: Task, *choices: Choice | None) -> Choice:
    """Return the first of these choices whose member would begin at once, or else another such member.

    A placement that is due chooses that other member. A member that is not there gets the task only if no other may
    have it: it would begin once it is heard, and nobody else could before its lease is over.
    """
    for choice in choices:
        if choice is not None and choice.active is not None and view.is_heard(choice.active):
            return choice
    possible = [choice for choice in choices if choice is not None]
    if possible[-1].active is not None:
        if view.group.placement_due_ms is not None:
            return stay(view, task, Hold(Held.INITIAL_DELAY, view.group.placement_due_ms))
        possible[:0] = filter(None, [_cold_elsewhere(view, task)])
    return next((choice for choice in possible if choice.active is not None), possible[-1])


def _cold(view: View, task: Task) -> Choice:
    """Grant a task cold, unless a copy of unknown lag may turn out to be better.

    The task waits for a copy that has not been reported since the coordinator started: its member sends a heartbeat
    soon. A copy that is reported without a lag is never promoted. If that copy is the target's, another member restores
    the task instead, and the task waits only if no other member may have it.
    """
    for holder in (*task.standbys, *task.warmups):
        copy = view.copy(task, holder)
        awaited = copy.readiness is Readiness.UNKNOWN and (holder == task.target.owner or not view.soft.of(holder).full)
        if awaited and view.soft.of(holder).full:
            elsewhere = _cold_elsewhere(view, task)
            if elsewhere is not None:
                return elsewhere
        until_ms = max(task.since_ms, view.soft.started_ms) + view.config.warmup_stall_timeout_ms
        if awaited and view.now_ms < until_ms:
            return stay(view, task, Hold(Held.STATE_UNKNOWN, until_ms))
    return _target_or_wait(view, task)


def _cold_elsewhere(view: View, task: Task) -> Choice | None:
    """Return the least loaded member that is there and may begin the task from nothing, instead of its target.

    A copy of unknown lag may turn out to be of use where it is, so its member comes last.
    """
    why = Why.COLD_START if view.is_stateful(task.id) else Why.STATELESS
    unknown = [one for one in task.holders if view.copy(task, one).readiness is Readiness.UNKNOWN]
    ranked = sorted(
        (member.id in unknown, _is_bad_for(view, task, member.id), view.load(member.id), member.id)
        for member in _free(view, task)
        if member.id not in {task.owner, task.target.owner}
    )
    return Choice(ranked[0][-1], why) if ranked else None


def _free(view: View, task: Task) -> list[Member]:
    """Return the members that are there, stay and may have the task, by id. One with a limit may be full."""
    members = [view.members[member_id] for member_id in sorted(view.takers) if view.is_heard(member_id)]
    return [
        member
        for member in members
        if not has_limit(member) and task.id not in member.doubts and view.knows(task.id, member.topology_epoch)
    ]


def _is_bad_for(view: View, task: Task, member_id: MemberId) -> bool:
    """Say whether other members are tried first: the task failed there lately, or other tasks did."""
    return member_id in view.distrusted or view.has_failed(task, member_id)


def _target_or_wait(view: View, task: Task) -> Choice:
    target, why = view.present_member(task.target.owner), Why.COLD_START if view.is_stateful(task.id) else Why.STATELESS
    if target is not None and task.id in target.doubts:
        # It would go on from state of another changelog.
        return _cold_elsewhere(view, task) or stay(view, task, Hold(Held.STATE_UNKNOWN))
    if target is not None:
        return Choice(target.id, why)
    if task.target.owner is not None:
        return stay(view, task, Hold(Held.REJOIN_GRACE, view.rejoins_until_ms(task)))
    if not view.group.members:
        return stay(view, task, Hold(Held.NO_ELIGIBLE_MEMBER))
    if view.group.placement_failed:
        # No task waits for a placement that may never find an answer: the members take turns, by the task's number.
        if not (free := _free(view, task)):
            return stay(view, task, Hold(Held.PLACEMENT_FAILED))
        return Choice(free[view.group.table.index_of[task.id] % len(free)].id, why)
    if view.group.placement_due_ms is not None or not task.target.waiting_reason:
        return stay(view, task, Hold(Held.INITIAL_DELAY, view.group.placement_due_ms))
    return stay(view, task, Hold(Held(task.target.waiting_reason)))


def _best_ready(
    view: View, task: Task, *, excluding: tuple[MemberId | None, ...] = (), on_disk: bool = True
) -> Choice | None:
    """Return the best caught-up copy: the target's, the previous owner's, then the one with the least lag.

    Members that are not there come last, and only for a task without an owner; before them members that drain. Before
    those come members on which it, or other tasks, failed lately, and before these the members that have to confirm
    another revocation first and are granted nothing until then.
    """

    def order(one: tuple[MemberId, int]) -> tuple[Availability, bool, bool, bool, bool, int, float, MemberId]:
        member_id, lag = one
        is_previous_owner, is_target = member_id == task.handover.previous_owner, member_id == task.target.owner
        waits = any(task_id != task.id for task_id in view.members[member_id].revoking)
        how_well = view.availability(member_id), _is_bad_for(view, task, member_id), waits
        return *how_well, not is_target, not is_previous_owner, lag, view.load(member_id), member_id

    ready: list[tuple[MemberId, int]] = []
    for member_id in (*task.standbys, *task.warmups, *(view.on_disk(task.id) if on_disk else ())):
        if member_id in excluding:
            continue
        member = view.members[member_id]
        copy = view.copy(task, member_id)
        is_ready = copy.is_caught_up if on_disk else copy.is_ready_for_handover
        if is_ready and _may_take_over(view, task, member):
            ready.append((member_id, copy.lag or 0))
    if len(ready) > 1:
        ready.sort(key=order)
    return Choice(ready[0][0], Why.FAILOVER, ready=True) if ready else None


def _may_take_over(view: View, task: Task, member: Member) -> bool:
    """Say whether the member's program knows the task, the member has room for it, and may keep it.

    A member with a limit on its copies has room for the tasks that it holds, and for those whose target it is. Nothing
    is taken from an owner for a member that may not begin at once.
    """
    is_held = task.owner is not None and not view.is_heard(member.id)
    if member.gets_nothing or is_held or not view.knows(task.id, member.topology_epoch):
        return False
    if view.is_past_deadline(member) and _is_to_stay(view, task.owner, task.target.owner):
        return False
    return member.max_tasks is None or member.id == task.target.owner or task.id in member.assignment


def _is_to_stay(view: View, *member_ids: MemberId | None) -> bool:
    members = [view.present_member(member_id) for member_id in member_ids]
    return any(member is not None and member.drain is None for member in members)


def _most_caught_up(view: View, task: Task) -> Choice | None:
    """Return the copy with the least known lag, tailed or on disk. Among equal ones, the target's.

    Members that are not there come last, before them members that drain, and before those bad ones (``_is_bad_for``).
    """
    ranked: list[tuple[Availability, bool, int, bool, MemberId]] = []
    for member_id in [*task.holders, *view.on_disk(task.id)]:
        copy = view.copy(task, member_id)
        if (
            copy.readiness <= Readiness.BEHIND
            and copy.lag is not None
            and _may_take_over(view, task, view.members[member_id])
        ):
            is_bad, is_target = _is_bad_for(view, task, member_id), member_id == task.target.owner
            ranked.append((view.availability(member_id), is_bad, copy.lag, not is_target, member_id))
    return Choice(min(ranked)[-1], Why.FAILOVER) if ranked else None
