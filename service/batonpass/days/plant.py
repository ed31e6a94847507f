"""Faults for the audit to find: what no correct coordinator writes, and what no healthy group does.

Two owners, a cold promotion and a hole in the sequence are put into the rows of a finished day, as if a defective
coordinator had written them. A stuck warmup and a flapping member are true events of the simulation (``drawing``).
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from itertools import count
from typing import Final

from batonpass.codec.changes import changes_of
from batonpass.codec.records import StoredRecord, decode_record, encode_record
from batonpass.core.state import records as r
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.model import ActiveState, Grant, Group, Role
from batonpass.days.rows import EPOCH, GroupRows
from batonpass.simulate.scenario.drawing import Oddities


class Fault(StrEnum):
    """What may be planted."""

    TWO_OWNERS = "two-owners"
    COLD_PROMOTION = "cold-promotion"
    SEQUENCE_HOLE = "sequence-hole"
    STUCK_WARMUP = "stuck-warmup"
    FLAPPING_MEMBER = "flapping-member"


OF_DRAWN_DAYS: Final = frozenset({Fault.STUCK_WARMUP, Fault.FLAPPING_MEMBER})
"""The faults that a day is drawn with; the others are put into the rows of any day."""

LATER_MS: Final = 30_000
"""How long after the record before one that is appended is written."""


def oddities_of(faults: Sequence[Fault]) -> Oddities:
    """Return which of the faults a day is to be drawn with."""
    return Oddities(stuck_warmup=Fault.STUCK_WARMUP in faults, flapping_member=Fault.FLAPPING_MEMBER in faults)


def plant(rows: GroupRows, faults: Sequence[Fault]) -> GroupRows:
    """Return the rows with these faults in them; the day's own rows are left alone.

    Raises:
        ValueError: The day has nothing to plant into: no task that runs, or no other member to give it to.
    """
    found = replace(rows, tables={name: list(table) for name, table in rows.tables.items()})
    if Fault.TWO_OWNERS in faults:
        _append_grant(found, is_taken=False)
    if Fault.COLD_PROMOTION in faults:
        _append_grant(found, is_taken=True)
    if Fault.SEQUENCE_HOLE in faults:
        _make_hole(found)
    return found


def _append_grant(rows: GroupRows, *, is_taken: bool) -> None:
    """Append what no core writes: a running task is granted to another member, and runs there.

    Unless it ``is_taken`` from its owner, that may run it still (L1); else it goes to a member without a copy (L7).
    """
    log = rows.tables["record_log"]
    stored = (StoredRecord(kind, form, payload.encode()) for *_, kind, form, payload in log)
    group = evolve(Group(GroupId(rows.group_id)), map(decode_record, stored))
    task, owner, other = _victim(group)
    epoch, token = group.members[other].epoch + 1, group.members[owner].assignment[task].token + 1
    times = count((max(row[3] for row in log) - EPOCH) // timedelta(milliseconds=1) + LATER_MS, LATER_MS)
    records: list[r.AssignmentChanged | r.TaskReleased | r.ActiveReported] = []
    if is_taken:
        revoked = r.AssignmentChanged(owner, group.members[owner].epoch + 1, next(times), revoked=(task,))
        records += [revoked, r.TaskReleased(task, owner, at_ms=next(times))]
    grant = Grant(Role.ACTIVE, epoch, next(times), token=token)
    ready = () if is_taken else (task,)
    records += [
        r.AssignmentChanged(other, epoch, grant.since_ms, granted={task: grant}, ready=ready),
        r.ActiveReported(task, other, ActiveState.RUNNING, next(times)),
    ]
    for record in records:
        before, group = group, evolve(group, (record,))
        encoded = encode_record(record)
        row = (group.version, encoded.kind, encoded.version, encoded.payload.decode())
        rows.append(
            [row], changes_of(before, (record,), group, {}, 0), EPOCH + timedelta(milliseconds=record.at_ms or 0)
        )


def _victim(group: Group) -> tuple[TaskId, MemberId, MemberId]:
    """Return a task that has an owner, the owner, and another owner that has no copy of the task."""
    owners = {name: task.owner for name, task in sorted(group.tasks.items()) if task.owner is not None}
    for name, owner in owners.items():
        for other in sorted({*owners.values()} - {owner}):
            if name not in group.members[other].assignment:
                return name, owner, other
    raise ValueError("nobody has a task that somebody else has no copy of; take a larger day")


def _make_hole(rows: GroupRows) -> None:
    """Delete one record from the middle of the day, one that nothing else depends on (L2)."""
    log = rows.tables["record_log"]
    kinds = [place for place, row in enumerate(log) if row[4] == "probe-scheduled"] or list(range(1, len(log)))
    del log[kinds[len(kinds) // 2]]
