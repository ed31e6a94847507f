"""When to look again: the instants at which time alone changes what a group should do.

Every rule that waits for an instant yields it here and nowhere else: with the group, a member or a task. What holds a
move says until when itself (``Hold``), and the step has that looked at. A tick and a start ask about everything. Any
other decision that records something asks about the members and tasks that it changes: what was found before still
stands. A leave or a new setting, which moves what others wait for, schedules a placement, whose tick asks about
everything. So a heartbeat without news asks nothing. A wake-up may come too early, because what it was for is gone: a
tick is harmless, and asks anew. The clock goes back only at a start (``Started``).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from batonpass.core.arrivals import storm
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.turns import last_came_on, last_closer
from batonpass.core.state import records as r
from batonpass.core.state.failures import avoided_until_ms, distrust_ends
from batonpass.core.state.inputs import Input, PollBroken, Started, Tick
from batonpass.core.state.model import Group, Member, Task
from batonpass.core.state.newcomers import new_until_ms
from batonpass.core.state.soft import Soft
from batonpass.core.target import load

_Instants = Iterator[int | None]


def _of_group(draft: DecisionDraft) -> _Instants:
    group = draft.group
    # A placement, a probe, the end of a storm, and of a time without judgement.
    yield from (group.placement_due_ms, group.next_probe_ms, storm.next_look_ms(draft))
    yield draft.soft.judge_from_ms if group.members else None
    # A member has been too hot for long enough, or is looked at again.
    yield load.due_ms(group, draft.soft)
    # What the step holds for a time (``Hold``) is looked at again then.
    yield from draft.held_until_ms
    yield from _of_holds(group)


def _of_holds(group: Group) -> _Instants:
    yield group.grants_from_ms
    yield None if group.pause is None else group.pause.expires_ms
    # An instance that was kept out may come in.
    yield from (entry.until_ms for entry in group.kept_out.values())


def _of_member(draft: DecisionDraft, member: Member) -> _Instants:
    config, known = draft.group.config, draft.member_soft(member.id)
    # The end of its lease, or of the time for which its place is kept while it is away.
    yield member.away_until_ms or draft.view().expires_ms(member)
    # It is suspected after its long-poll broke.
    if known is not None and known.poll_broken_ms is not None and member.away_until_ms is None:
        yield known.poll_broken_ms + config.suspect_timeout_ms
    if member.drain is not None:
        yield from (member.drain.deadline_ms, member.drain.gives_up_ms)
    # The time in which it has to confirm is over.
    yield from (revocation.since_ms + config.rebalance_timeout_ms for revocation in member.revoking.values())


def _of_task(draft: DecisionDraft, task: Task) -> _Instants:
    group, soft = draft.group, draft.soft
    # The lease is over of a fenced member that may still run it.
    yield from [entry.free_at_ms for entry in task.handover.unreleased]
    # A warmup stalls, a copy gives way; it may be tried again where it did, and the task where it did not run well.
    read_on = [last_came_on(soft, task.id, group.members[member_id])[1] for member_id in task.warmups]
    for at_ms in (*read_on, *last_closer(group, soft, task).values()):
        yield at_ms + group.config.warmup_stall_timeout_ms
    yield from [stall.until_ms for stall in task.marks.stalls]
    yield from [avoided_until_ms(group.config, failure) for failure in task.marks.failures]


def _of_records(draft: DecisionDraft) -> Iterator[int]:
    """What a decision without a tick began: a placement, though it may be made by now; what members have to confirm."""
    config, told = draft.group.config, (r.AssignmentChanged, r.NextOwnerChosen, r.ReleaseWaived)
    yield from (record.due_ms for record in draft.records if isinstance(record, r.RebalanceScheduled))
    if any(isinstance(record, told) for record in draft.records):
        yield draft.now_ms + min(config.rebalance_timeout_ms, config.warmup_stall_timeout_ms)


def _of_all(draft: DecisionDraft) -> _Instants:
    """What takes a pass over members or tasks, so that only ticks and starts ask it."""
    group = draft.group
    # A member that has faults is trusted again.
    yield from distrust_ends(group)
    if draft.soft.target_is_provisional and not group.unsettled:
        # The target leaves out moves that gave way lately. Once they may be tried again, it may be another one.
        yield from (stall.until_ms for task in group.tasks.values() for stall in task.marks.stalls)


def next_wake_ms(draft: DecisionDraft, before: tuple[Group, Soft], inputs: Sequence[Input]) -> int | None:
    """Return when to look again at the latest; None: never. ``before``: hard and soft state before the decision."""
    group, soft = draft.group, draft.soft
    if group.config.kafka_streams:
        return None  # Nothing is due between two rebalances.
    kinds = {*map(type, inputs)}
    if not kinds.isdisjoint((Tick, Started)):
        return min(_all(draft), default=None)
    if not draft.records and PollBroken not in kinds:
        return min([*_from_now_on(draft, iter(draft.held_until_ms)), *filter(None, [soft.wake_ms])], default=None)
    changed = {*group.members.changed_since(before[0].members), *soft.members.changed_since(before[1].members)}
    members = [group.members[member_id] for member_id in changed if member_id in group.members]
    tasks = [task for task in group.tasks.changed_since(before[0].tasks).values() if task is not None]
    found = [*_of_records(draft), *_from_now_on(draft, _instants(draft, members, tasks))]
    return min([*found, *filter(None, [soft.wake_ms])], default=None)


def _all(draft: DecisionDraft) -> list[int]:
    group = draft.group
    found = _instants(draft, group.members.values(), group.tasks.pick(group.moving_tasks()))
    return _from_now_on(draft, chain(found, _of_all(draft)))


def hold_ends_ms(draft: DecisionDraft) -> list[int]:
    """Return the instants after now at which something that holds moves, or limits the target, ends by itself.

    At the deadline of a drain nothing does.
    """
    group = draft.group
    stalls = (stall.until_ms for task in group.tasks.pick(group.moving_tasks()) for stall in task.marks.stalls)
    deadlines = (one.drain.deadline_ms for one in group.members.values() if one.drain is not None and one.actives)
    return _from_now_on(draft, chain(_of_holds(group), stalls, deadlines, _of_all(draft)))


def _instants(draft: DecisionDraft, members: Collection[Member], tasks: Iterable[Task]) -> _Instants:
    of_members = (at_ms for member in members for at_ms in _of_member(draft, member))
    of_tasks = (at_ms for task in tasks for at_ms in _of_task(draft, task))
    newcomers = new_until_ms(draft.group, draft.now_ms, members if draft.group.unsettled else ())
    return chain(_of_group(draft), of_members, of_tasks, newcomers.values())


def _from_now_on(draft: DecisionDraft, instants: _Instants) -> list[int]:
    return [at_ms for at_ms in instants if at_ms is not None and at_ms > draft.now_ms]
