"""What no decision does for nothing: stop a task, leave one where it has to go from, and give one to who is not there.

No running owner gives way to a member that would be granted nothing yet, and none keeps at the deadline of its drain
what another member is ready for. A member that is silent for two heartbeat intervals, suspected or away is given
nothing that it did not have while another member may have it. Worked out from the records, the copies, their lags and
who was heard alone, for every decision of every scene and of workers with bad luck.
"""

from batonpass.core.handover.room import has_limit
from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import ActiveState, Role, Task
from batonpass.invariants import Transition
from batonpass.invariants.moves import is_caught_up_copy


def done_in_vain(transition: Transition) -> list[str]:
    """Return everything in a decision that this module looks for."""
    found = stopped_in_vain(transition) + left_at_deadline(transition) + given_to_who_is_not_there(transition)
    return found + given_and_taken(transition)


def given_and_taken(transition: Transition) -> list[str]:
    """Return the tasks whose active one decision gives to a member and takes from it again."""
    given: set[tuple[TaskId, MemberId]] = set()
    found: list[str] = []
    for record in transition.records:
        if isinstance(record, r.AssignmentChanged):
            taken = [task_id for task_id in (*record.revoked, *record.demoted) if (task_id, record.member_id) in given]
            found += [f"{task_id} on {record.member_id}, which has just been given it" for task_id in taken]
            active = [task_id for task_id, grant in record.granted.items() if grant.role is Role.ACTIVE]
            given.update((task_id, record.member_id) for task_id in active)
    return found


def is_there(transition: Transition, member_id: MemberId) -> bool:
    """Say whether a member is present and was heard lately, or the coordinator was not there to hear it."""
    after, soft = transition.after, transition.soft_after
    member, known = after.members.get(member_id), soft.members.get(member_id)
    if member is None or member.suspected or member.away_until_ms is not None:
        return False
    heard_ms = max(known.heard_ms if known is not None else member.joined_ms, soft.listens_since_ms)
    interval_ms = max(after.config.heartbeat_interval_ms, known.rhythm_ms if known is not None else 0)
    return after.config.kafka_streams or transition.now_ms - heard_ms <= 2 * interval_ms


def given_to_who_is_not_there(transition: Transition) -> list[str]:
    """Return the tasks that go, or are to go, to a member that is not there, although another one may have them."""
    before, after, soft = transition.before, transition.after, transition.soft_after
    staying = [one for one in after.members.values() if one.drain is None and is_there(transition, one.id)]
    free = [one.id for one in staying if not has_limit(one) and one.topology_epoch >= after.topology.epoch]
    found: list[str] = []
    for record in transition.records:
        match record:
            case r.TargetPlaced() if free:
                changes = [
                    (task_id, target) for task_id, (target, _, _) in record.changes.items() if target is not None
                ]
                for task_id, target in changes:
                    task, was = after.task(task_id), before.tasks.get(task_id)
                    had = {
                        task.owner,
                        task.handover.next_owner,
                        task.handover.away_owner,
                        task.marks.pin,
                        *((was.target.owner, was.owner) if was is not None else ()),
                    }
                    if not is_there(transition, target) and target not in had:
                        found.append(f"{task_id} belongs to {target}, which is not there as {free} are")
            case r.NextOwnerChosen() if not is_there(transition, record.next_owner):
                ready = [one for one in free if is_caught_up_copy(after, soft, one, record.task, on_disk=False)]
                found += [f"{record.task} for {record.next_owner}, which is not there as {one} is" for one in ready]
            case r.AssignmentChanged() if free and not is_there(transition, record.member_id):
                known = soft.members.get(record.member_id)
                there = known.reports if known is not None else {}
                had = {*before.members[record.member_id].assignment, *there}
                active = {task for task, grant in record.granted.items() if grant.role is Role.ACTIVE}
                found += [f"{task} for {record.member_id}, which is not there as {free} are" for task in active - had]
            case _:
                pass
    return found


def stopped_in_vain(transition: Transition) -> list[str]:
    """Return the tasks that a willing owner was told to stop although its taker, or itself, had others to see to first.

    What one decision sends to several members is sent at once, and counts for none of them. A member with a limit on
    its copies may need the room of what it stops, and counts as in need of it.
    """
    before, after = transition.before, transition.after
    has_to_confirm = {member_id: set(member.revoking) for member_id, member in before.members.items()}
    is_to_get = {
        task_id: task.handover.next_owner
        for task_id, task in before.tasks.items()
        if task.owner is None
        and task.handover.next_owner is not None
        and task.handover.next_owner == after.task(task_id).handover.next_owner
        and not _has_a_limit(transition, task.handover.next_owner)
    }
    ended = {task_id for one in transition.records if isinstance(one, r.TasksEnded) for task_id in one.tasks}
    found: list[str] = []
    for record in transition.records:
        match record:
            case r.TaskReleased():
                has_to_confirm.get(record.member_id, set()).discard(record.task)
            case r.TasksAdopted():
                has_to_confirm.get(record.member_id, set()).difference_update(record.tokens)
            case r.MemberGone() | r.MemberAway():
                has_to_confirm.pop(record.member_id, None)
                is_to_get = {task: one for task, one in is_to_get.items() if one != record.member_id}
            case r.AssignmentChanged():
                for task_id in (*record.revoked, *record.demoted):
                    if task_id in ended or not _is_willing(transition, record.member_id, task_id):
                        continue
                    taker = after.task(task_id).handover.next_owner
                    if taker is not None and transition.now_ms < after.grants_from_ms:
                        found.append(f"{task_id} for {taker}, while nothing is granted until {after.grants_from_ms}")
                    if taker is not None and not is_there(transition, taker):
                        found.append(f"{task_id} for {taker}, which is not there")
                    if taker is not None and has_to_confirm.get(taker):
                        found.append(f"{task_id} for {taker}, which has to confirm {sorted(has_to_confirm[taker])}")
                    if record.member_id in [is_to_get[one] for one in is_to_get if _nobody_has(after.task(one))]:
                        found.append(f"{task_id} on {record.member_id}, which is to get another first")
            case _:
                pass
    return found


def left_at_deadline(transition: Transition) -> list[str]:
    """Return the tasks of a drain that ends blocked at its deadline, although a member that stays has a ready copy."""
    found: list[str] = []
    after, soft = transition.after, transition.soft_after
    ended = [one for one in transition.records if isinstance(one, r.DrainStarted) and one.blocked == "drain-deadline"]
    for owner in [after.members[one.member_id] for one in ended]:
        left = [task_id for task_id, grant in owner.assignment.items() if grant.role is Role.ACTIVE]
        for task in after.tasks.pick([task_id for task_id in left if task_id in after.table.index_of]):
            stay = [one for one in task.standbys if after.members[one].drain is None and is_there(transition, one)]
            ready = [one for one in stay if is_caught_up_copy(after, soft, one, task.id, on_disk=True)]
            found += [f"{task.id} on {owner.id}, although {one} is ready" for one in ready if not task.marks.parked]
    return found


def _has_a_limit(transition: Transition, member_id: MemberId) -> bool:
    member = transition.after.members.get(member_id)
    return member is not None and has_limit(member)


def _nobody_has(task: Task) -> bool:
    return task.owner is None and task.handover.next_owner is not None


def _is_willing(transition: Transition, member_id: MemberId, task_id: TaskId) -> bool:
    """Say whether a member runs a task of the group, is not taken for dead, and has time."""
    task, member = transition.after.task(task_id), transition.after.members.get(member_id)
    was = transition.before.tasks.get(task_id)
    if member is None or was is None or was.owner != member_id or task.marks.parked:
        return False
    if member.suspected or task.state is not ActiveState.RUNNING or task_id not in transition.after.table.index_of:
        return False
    drain = member.drain
    return drain is None or drain.deadline_ms is None or drain.deadline_ms > transition.now_ms
