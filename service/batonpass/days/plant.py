"""Faults for the audit to find: what no correct coordinator writes, and what no healthy group does.

Two owners, a cold promotion and a hole in the sequence are put into the rows of a finished day, as if a defective
coordinator had written them. A stuck warmup and a flapping member are true events of the simulation (``drawing``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Final

from batonpass.codec.records import encode_record
from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import ActiveState, Grant, Role
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

LATER: Final = timedelta(seconds=30)


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
        _Forger(found).two_owners()
    if Fault.COLD_PROMOTION in faults:
        _Forger(found).cold_promotion()
    if Fault.SEQUENCE_HOLE in faults:
        _make_hole(found)
    return found


class _Forger:
    """Appends to a finished day what no core would write."""

    def __init__(self, rows: GroupRows) -> None:
        self._rows = rows
        self._at = max(row[3] for row in rows.tables["record_log"]) + LATER
        self._generation = rows.tables["assignment_events"][-1][9]
        holders: dict[str, tuple[str, int]] = {}
        copies: set[tuple[str, str]] = set()
        epochs: dict[str, int] = {}
        for row in rows.tables["assignment_events"]:
            task, member, role, member_epoch, token = row[3], row[4], row[7], row[10], row[11]
            epochs[member] = max(epochs.get(member, 0), member_epoch)
            if role == "none":
                copies.discard((task, member))
                if task in holders and holders[task][0] == member:
                    del holders[task]
            else:
                copies.add((task, member))
            if role == "active" and row[5] == "granted":
                holders[task] = (member, token)
        self._epochs = epochs
        for task, (owner, token) in sorted(holders.items()):
            others = sorted(
                member
                for member in {one for one, _ in holders.values()}
                if member != owner and (task, member) not in copies
            )
            if others:
                self._task, self._owner, self._token, self._other = TaskId(task), MemberId(owner), token, others[0]
                return
        raise ValueError("nobody has a task that somebody else has no copy of; take a larger day")

    def two_owners(self) -> None:
        """Grant a running task to another member, and have it run there too (L1)."""
        self._grant(warm=True)
        self._runs()

    def cold_promotion(self) -> None:
        """Take a task from its running owner for a member that has no copy of it (L7)."""
        owner = self._owner
        revoked = r.AssignmentChanged(owner, self._next_epoch(owner), self._ms, revoked=(self._task,))
        self._write([revoked], [(owner, "revoked", "active", "none", "", None)])
        self._write(
            [r.TaskReleased(self._task, owner, at_ms=self._ms)], [(owner, "released", "none", "none", "", None)]
        )
        self._grant(warm=False)
        self._at += LATER
        self._runs()

    @property
    def _ms(self) -> int:
        since: timedelta = self._at - EPOCH
        return since // timedelta(milliseconds=1)

    def _next_epoch(self, member: str) -> int:
        self._epochs[member] = epoch = self._epochs.get(member, 0) + 1
        return epoch

    def _grant(self, *, warm: bool) -> None:
        other = MemberId(self._other)
        self._token += 1
        epoch = self._next_epoch(other)
        grant = Grant(Role.ACTIVE, epoch, self._ms, token=self._token)
        record = r.AssignmentChanged(
            other,
            epoch,
            self._ms,
            granted={self._task: grant},
            ready=(self._task,) if warm else (),
        )
        self._write([record], [(other, "granted", "none", "active", "", warm)])

    def _runs(self) -> None:
        other = MemberId(self._other)
        record = r.ActiveReported(self._task, other, ActiveState.RUNNING, self._ms)
        self._write([record], [(other, "reported", "active", "active", "running", None)])

    def _write(
        self, records: Sequence[r.Record], changes: Sequence[tuple[str, str, str, str, str, bool | None]]
    ) -> None:
        rows, before = self._rows, self._rows.version
        for record in records:
            rows.version += 1
            stored = encode_record(record)
            rows.tables["record_log"].append(
                (
                    *(rows.group_id, rows.version, rows.coordinator_epoch, self._at),
                    *(stored.kind, stored.version, stored.payload.decode()),
                )
            )
        for place, (member, kind, role_before, role, state, warm) in enumerate(changes):
            token = self._token if kind == "granted" else 0
            epoch = self._epochs[member] if kind in {"granted", "revoked"} else 0
            rows.tables["assignment_events"].append(
                (
                    *(rows.group_id, before, place, self._task, member, kind, role_before, role, self._at),
                    *(self._generation, epoch, token, state, warm, "", None),
                )
            )
        self._at += timedelta(seconds=1)


def _make_hole(rows: GroupRows) -> None:
    """Delete one record from the middle of the day, one that nothing else depends on (L2)."""
    log = rows.tables["record_log"]
    kinds = [place for place, row in enumerate(log) if row[4] == "probe-scheduled"] or list(range(1, len(log)))
    del log[kinds[len(kinds) // 2]]
