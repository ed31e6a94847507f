"""The laws of DESIGN section 3, as checks of a decision before it is appended and of a whole group at any time.

Nothing here uses the code that decides or folds: what a decision leads to, who may be running what, how far a copy is
and what the budgets count are computed anew from the records' meaning. A law that finds nothing returns an empty list.

Where each law is: L1, L3, L5 in ``invariants_rights``; L2 and L4 here; L6, L7, L8 in ``invariants_moves``; L9 and
the group's agreement with itself in ``invariants_shape``; L10 here, as a comparison of two runs. What needs a history,
a wire or a clock of its own (handovers over time, leases on the worker's side) is checked by the simulator.
"""

from __future__ import annotations

from batonpass.core import records as r
from batonpass.core.ids import MemberId, TaskId
from batonpass.core.invariants_ledger import Ledger, Step, Violation
from batonpass.core.invariants_moves import check_budgets, check_capacity, check_interruptions
from batonpass.core.invariants_rights import check_license, check_start
from batonpass.core.invariants_shape import check_indexes, check_member, check_rest, check_task
from batonpass.core.model import Group

__all__ = ["Step", "Violation", "check_group", "check_repeated", "check_step"]


def check_step(step: Step) -> list[Violation]:
    """Return every law that a decision breaks, looking only at the tasks and members that its records name.

    A decision without records costs nothing. One that deletes the group or changes its topology is looked at whole.
    """
    found = check_start(step)
    if not step.records:
        return found if step.after is step.before else [*found, Violation("L2", "the group changed without a record")]
    found += _check_counts(step)
    if any(isinstance(record, r.GroupDeleted | r.GroupDeclared | r.TopologyChanged) for record in step.records):
        for record in step.records:
            found += check_license(step, Ledger(step.before), record) if isinstance(record, r.GroupDeleted) else []
        return found + check_group(step.after)
    ledger = Ledger(step.before)
    for record in step.records:
        found += check_license(step, ledger, record)
        if isinstance(record, r.PictureChanged):
            found += check_interruptions(step, ledger, record)
        ledger.fold(record)
    tasks, members = _touched(ledger, step.records)
    found += _check_folded(step, ledger, tasks)
    for task_id in tasks:
        task = step.after.tasks.get(task_id)
        found += check_task(step.after, task) if task is not None else []
    touched = frozenset(tasks)
    for member_id in members:
        member = step.after.members.get(member_id)
        found += check_member(step.after, member, touched) if member is not None else []
    return found + check_budgets(step, tasks) + check_capacity(step)


def check_group(group: Group) -> list[Violation]:
    """Return where a whole group contradicts itself; for tests, after a load, and for the nightly audit."""
    found: list[Violation] = []
    for _, task in sorted(group.tasks.items()):
        found += check_task(group, task)
    for _, member in sorted(group.members.items()):
        found += check_member(group, member)
    return found + check_indexes(group) + check_rest(group)


def check_repeated(first: object, second: object) -> list[Violation]:
    """Return whether two runs on the same input came out differently (L10). Both are compared as they print."""
    one, other = repr(first), repr(second)
    if one == other:
        return []
    place = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    around = slice(max(0, place - 40), place + 80)
    return [Violation("L10", f"the same input came out as …{one[around]}… and as …{other[around]}…")]


def _check_counts(step: Step) -> list[Violation]:
    """Whatever counts only grows, the version by one a record, the generation by one a new target."""
    before, after = step.before, step.after
    found = []
    if after.version != before.version + len(step.records):
        found.append(Violation("L4", f"version {after.version} after {before.version} and {len(step.records)} records"))
    placed = [record for record in step.records if isinstance(record, r.TargetPlaced)]
    new = sum(1 for record in placed if record.changes)
    if after.generation != before.generation + new:
        found.append(Violation("L2", f"generation {after.generation} after {before.generation} and {new} new targets"))
    for name, old, now in (
        ("group epoch", before.group_epoch, after.group_epoch),
        ("revision", before.revision, after.revision),
        ("token floor", before.tokens_from, after.tokens_from),
        ("hold on grants", before.grants_from_ms, after.grants_from_ms),
        ("longest session timeout", before.longest_session_ms, after.longest_session_ms),
    ):
        if now < old:
            found.append(Violation("L2", f"the {name} fell from {old} to {now}"))
    return found


def _touched(ledger: Ledger, records: tuple[r.Record, ...]) -> tuple[list[TaskId], list[MemberId]]:
    tasks = {*ledger.owners, *ledger.claims, *(task for _, task in (*ledger.grants, *ledger.revoking))}
    members = {*ledger.epochs, *ledger.joined, *(member for member, _ in (*ledger.grants, *ledger.revoking))}
    for record in records:
        if isinstance(record, r.TargetPlaced):
            tasks.update(record.changes)
        elif isinstance(record, r.HeirChosen | r.ActiveReported | r.WarmupStalled):
            tasks.add(record.task)
    return sorted(tasks), sorted(members)


def _check_folded(step: Step, ledger: Ledger, tasks: list[TaskId]) -> list[Violation]:
    """What the records add up to is what the group says, for every right that they touch (L2)."""
    found: list[Violation] = []
    after = step.after
    for task_id in tasks:
        task, before = after.tasks.get(task_id), step.before.tasks.get(task_id)
        if task is None:
            found.append(Violation("L2", "a task vanished", task_id))
            continue
        if task.owner != ledger.owner(task_id):
            found.append(Violation("L2", f"owner {task.owner}; the records say {ledger.owner(task_id)}", task_id))
        claims = {claim.member_id: claim.free_at_ms for claim in task.claims}
        if claims != ledger.claimants(task_id):
            found.append(Violation("L1", f"claims {claims}; the records say {ledger.claimants(task_id)}", task_id))
        if before is not None and task.token < before.token:
            found.append(Violation("L1", f"its token fell from {before.token} to {task.token}", task_id))
    for (member_id, task_id), grant in sorted(ledger.grants.items()):
        member = after.members.get(member_id)
        held = member.picture.get(task_id) if member is not None else None
        if (held and held.role) != (grant and grant.role):
            found.append(Violation("L2", f"holds {held}; the records say {grant}", task_id, member_id))
    for (member_id, task_id), revocation in sorted(ledger.revoking.items()):
        member = after.members.get(member_id)
        pending = member.revoking.get(task_id) if member is not None else None
        if (pending and pending.epoch) != (revocation and revocation.epoch):
            found.append(Violation("L2", f"gives up {pending}; the records say {revocation}", task_id, member_id))
    for member_id, epoch in sorted(ledger.epochs.items()):
        member = after.members.get(member_id)
        if member is not None and member.epoch != epoch:
            found.append(Violation("L2", f"epoch {member.epoch}; the records say {epoch}", None, member_id))
    return found
