"""The laws (docs/architecture.md), as checks of a decision before it is appended, and of a whole group at any time.

The checks use none of the code that decides or folds. They compute from the meaning of the records where a decision
leads, which members may be running what, how far each copy is, and what the budgets count. A check without findings
returns an empty list.

L1, L3 and L5 are in ``invariants.rights``; L2 and L4 here; L6, L7, L8 in ``invariants.moves``; L9 and a group's
consistency in ``invariants.shape``; L10 here, as a comparison of two runs. The simulator checks what needs a history, a
network or another clock (handovers over time, leases on the worker's side).
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Group
from batonpass.invariants.ledger import Ledger, Transition, Violation
from batonpass.invariants.moves import check_budgets, check_capacity, check_interruptions
from batonpass.invariants.rights import check_right, check_start
from batonpass.invariants.shape import check_indexes, check_rest, check_tasks

__all__ = ["Transition", "Violation", "check_group", "check_repeated", "check_step"]


def check_step(transition: Transition) -> list[Violation]:
    """Return every law that a decision breaks, looking only at the tasks and members that its records name.

    A decision without records costs nothing. If it deletes the group or changes its topology, all of it is checked.
    Tasks and members are looked at in any order, so what is found is sorted.
    """
    return sorted(_of_step(transition), key=str)


def _of_step(transition: Transition) -> Iterator[Violation]:
    before, after, records = transition.before, transition.after, transition.records
    yield from check_start(transition)
    if not records:
        if after is not before:
            yield Violation("L2", "the group changed without a record")
        return
    yield from _check_counts(transition)
    if any(isinstance(record, r.GroupDeleted | r.GroupDeclared | r.TopologyChanged) for record in records):
        for record in records:
            if isinstance(record, r.GroupDeleted):
                yield from check_right(transition, Ledger(before), record)
        yield from _check_forgotten(transition, before.tasks.plain().keys() - after.tasks.plain().keys())
        yield from check_group(after)
        return
    ledger = Ledger(before, sum(len(record.granted) for record in records if isinstance(record, r.AssignmentChanged)))
    for record in records:
        yield from check_right(transition, ledger, record)
        if isinstance(record, r.AssignmentChanged):
            yield from check_interruptions(transition, ledger, record)
        ledger.fold(record)
    tasks, members = _touched(ledger, records)
    yield from _check_folded(transition, ledger, tasks)
    yield from check_tasks(after, tasks.keys(), members)  # Of two views the shorter one is passed over.
    yield from check_budgets(transition, ledger)
    yield from check_capacity(transition)


def check_group(group: Group) -> list[Violation]:
    """Return where a whole group contradicts itself."""
    held = chain.from_iterable(member.assignment for member in group.members.values())
    task_ids = sorted({*group.tasks, *held})
    return [*check_tasks(group, task_ids, sorted(group.members)), *check_indexes(group), *check_rest(group)]


def check_repeated(first: object, second: object) -> list[Violation]:
    """Return whether two runs on the same input differ (L10). Their texts (``repr``) are compared."""
    first_text, second_text = repr(first), repr(second)
    if first_text == second_text:
        return []
    place = next(
        (at for at, (a, b) in enumerate(zip(first_text, second_text, strict=False)) if a != b),
        min(len(first_text), len(second_text)),
    )
    around = slice(max(0, place - 40), place + 80)
    return [Violation("L10", f"the same input came out as …{first_text[around]}… and as …{second_text[around]}…")]


def _check_counts(transition: Transition) -> Iterator[Violation]:
    """Check that counters only grow: the version by one per record, the generation by one per new target."""
    before, after = transition.before, transition.after
    if after.version != before.version + len(transition.records):
        yield Violation("L4", f"version {after.version} after {before.version} and {len(transition.records)} records")
    placed = [record for record in transition.records if isinstance(record, r.TargetPlaced)]
    new = sum(1 for record in placed if record.changes)
    if after.generation != before.generation + new:
        yield Violation("L2", f"generation {after.generation} after {before.generation} and {new} new targets")
    set_back_ms = sum(record.set_back_ms for record in transition.records if isinstance(record, r.GrantsHeld))
    for name, old, now in (
        ("group epoch", before.group_epoch, after.group_epoch),
        ("revision", before.revision, after.revision),
        ("token floor", before.tokens_from, after.tokens_from),
        ("hold on grants", before.grants_from_ms - set_back_ms, after.grants_from_ms),
        ("longest session timeout", before.longest_session_ms, after.longest_session_ms),
    ):
        if now < old:
            yield Violation("L2", f"the {name} fell from {old} to {now}")


def _touched(ledger: Ledger, records: tuple[r.Record, ...]) -> tuple[dict[TaskId, None], dict[MemberId, None]]:
    """Return the tasks and members in the order of the records: it is that of memory, so many are read faster."""
    named: list[Iterable[TaskId]] = []
    for record in records:
        if isinstance(record, r.TargetPlaced):
            named.append(record.changes)
        elif isinstance(record, r.NextOwnerChosen | r.ActiveReported | r.WarmupStalled):
            named.append((record.task,))
    named += [ledger.owners, ledger.unreleased, *ledger.grants.values(), *ledger.revoking.values()]
    tasks = dict.fromkeys(chain.from_iterable(named))
    return tasks, dict.fromkeys(chain(ledger.members, ledger.grants, ledger.revoking))


def _check_forgotten(transition: Transition, task_ids: Iterable[TaskId]) -> Iterator[Violation]:
    """Check that new tokens lie above those of tasks that are no more, in case the tasks come back."""
    before, floor = transition.before.tasks, transition.after.tokens_from
    for task_id in task_ids:
        task = before.get(task_id)
        if task is not None and task.token > floor:
            yield Violation("L1", f"its token {task.token} is forgotten, and new ones lie above {floor}", task_id)


def _check_folded(transition: Transition, ledger: Ledger, tasks: Collection[TaskId]) -> Iterator[Violation]:
    """Check that the group agrees with the records about every right that they touch (L2)."""
    after = transition.after
    known = after.tasks.for_reads(len(tasks))
    for task_id in tasks:
        task, (before, owner, by_records) = known.get(task_id), ledger.rights(task_id)
        if task is None:
            if task_id in after.table.index_of or owner is not None or by_records:
                yield Violation("L2", "a task vanished", task_id)
            yield from _check_forgotten(transition, (task_id,))
            continue
        if task.owner != owner:
            yield Violation("L2", f"owner {task.owner}; the records say {owner}", task_id)
        unreleased = task.handover.unreleased
        if (unreleased or by_records) and dict(unreleased) != by_records:
            yield Violation("L1", f"unreleased by {unreleased}; the records say {by_records}", task_id)
        if before is not None and task.token < before.token:
            yield Violation("L1", f"its token fell from {before.token} to {task.token}", task_id)
    for member_id, grants in ledger.grants.items():
        member = after.members.get(member_id)
        held = member.assignment.for_reads(len(grants)) if member is not None else {}
        for task_id, grant in grants.items() if held != grants else ():
            has = held.get(task_id)
            if has is not grant and (has and has.role) is not (grant and grant.role):
                yield Violation("L2", f"holds {has}; the records say {grant}", task_id, member_id)
    for member_id, revoking in ledger.revoking.items():
        member = after.members.get(member_id)
        for task_id, revocation in revoking.items():
            pending = member.revoking.get(task_id) if member is not None else None
            if (pending and pending.epoch) != (revocation and revocation.epoch):
                yield Violation("L2", f"gives up {pending}; the records say {revocation}", task_id, member_id)
    for member_id, said in ledger.members.items():
        member = after.members.get(member_id)
        if member is not None and said is not None and member.epoch != said.epoch:
            yield Violation("L2", f"epoch {member.epoch}; the records say {said.epoch}", None, member_id)
