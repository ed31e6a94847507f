"""What the members of one group report, added up: lags of copies, lags of inputs, and tasks that two say they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from batonpass.core.model import ActiveState, Role

if TYPE_CHECKING:
    from batonpass.core.ids import TaskId
    from batonpass.core.model import Group, Member
    from batonpass.core.soft import MeasuredReport, Soft

RUNS: Final = frozenset({ActiveState.RUNNING, ActiveState.RESTORING})

Shown = tuple[str, tuple[str, ...], float]
"""A family of the group, the labels beside the group's, and the value."""


class Sums(NamedTuple):
    """What a pass over all reports of a group comes to, and when it was made.

    ``total``, ``largest`` and ``unknown`` are of copies, by role. ``input_total`` is None where no active reports a lag
    of its input.
    """

    at_ms: int
    total: Mapping[str, int]
    largest: Mapping[str, int]
    unknown: Mapping[str, int]
    input_total: int | None
    input_largest: int
    input_unknown: int
    claimed_twice: int

    def shown(self) -> Iterator[Shown]:
        """Yield the series."""
        for role in (Role.STANDBY.value, Role.WARMUP.value):
            yield "lag_records", (role,), self.total.get(role, 0)
            yield "lag_records_max", (role,), self.largest.get(role, 0)
            yield "lag_unknown_copies", (role,), self.unknown.get(role, 0)
        if self.input_total is not None:
            yield "input_lag_records", (), self.input_total
            yield "input_lag_records_max", (), self.input_largest
        yield "input_lag_unknown_tasks", (), self.input_unknown
        yield "claimed_twice", (), self.claimed_twice


def add_up(group: Group, soft: Soft, now_ms: int) -> Sums:
    """Return the sums over what the members of a group last reported."""
    total: Counter[str] = Counter()
    largest: dict[str, int] = {}
    unknown: Counter[str] = Counter()
    inputs: list[int] = []
    silent = 0
    claims: Counter[TaskId] = Counter()
    for member in group.members.values():
        member_soft = soft.members.get(member.id)
        reports: Mapping[TaskId, MeasuredReport] = member_soft.reports if member_soft else {}
        for task, grant in member.assignment.items():
            measured = reports.get(task)
            if grant.role is Role.ACTIVE:
                if measured is None or measured.report.input_lag is None:
                    silent += 1
                else:
                    inputs.append(measured.report.input_lag)
            elif measured is None or measured.lag is None:
                unknown[grant.role.value] += 1
            else:
                total[grant.role.value] += measured.lag
                largest[grant.role.value] = max(largest.get(grant.role.value, 0), measured.lag)
        claims.update(_runs(member, reports))
    twice = sum(count > 1 for count in claims.values())
    return Sums(now_ms, total, largest, unknown, sum(inputs) if inputs else None, max(inputs, default=0), silent, twice)


def _runs(member: Member, reports: Mapping[TaskId, MeasuredReport]) -> Iterator[TaskId]:
    """Yield what a member says that it runs.

    The last words of one that is away or suspected are not asked: others may have taken over by right.
    """
    if member.suspected or member.away_until_ms is not None:
        return
    for task, measured in reports.items():
        if measured.report.role == Role.ACTIVE.value and measured.report.state in RUNS and not measured.report.lost:
            yield task
