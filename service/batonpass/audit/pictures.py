"""Bounded samples of the day for plots: the worst hour of each group, warmups, generations."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Final

import pyarrow as pa

from batonpass.audit.findings import INTERVALS_PER_GROUP, POINTS_PER_PICTURE, Finding, Pictures, Severity
from batonpass.audit.measures import WorstHour
from batonpass.audit.plan import HOUR_MS, DayPlan
from batonpass.audit.rows import GROUP, Generation, Interval, Of, Warmup, rows_in

GROUPS_SHOWN: Final = 20
"""How many groups have samples: those with the most fatal findings first, then those with the most downtime.

The report draws fewer (``report.GROUPS_PICTURED``).
"""


Batches = Callable[[type], Iterable[pa.RecordBatch]]
"""Returns the rows of a kind, each batch of one group (``spread.batches_of``)."""


def pictures(batches: Batches, plan: DayPlan, findings: Sequence[Finding], down: Mapping[str, WorstHour]) -> Pictures:
    """Return the samples; everything that is collected is bounded.

    ``findings`` say which hours matter most, then ``down``, the hour of each group that has the most downtime.
    """
    fatal = [one for one in findings if one.severity is Severity.FATAL]
    broken = broken_hours(fatal, plan.begin_ms, plan.end_ms)
    others = sorted((-one.down_ms, group, one.begin_ms) for group, one in down.items() if group not in dict(broken))
    worst = dict((broken + [(group, begin_ms) for _, group, begin_ms in others])[:GROUPS_SHOWN])
    of_worst = (batch for batch in batches(Interval) if batch[GROUP][0].as_py() in worst)
    owned = _ownership(rows_in(Interval, of_worst), plan, worst, {(one.group, one.task) for one in fatal})
    moved = nsmallest(
        POINTS_PER_PICTURE,
        rows_in(Generation, batches(Generation)),
        key=lambda one: (-one[1].moves, one[0], one[1].number),
    )
    return Pictures(worst, owned, _warmups(rows_in(Warmup, batches(Warmup)), plan), tuple(moved))


def broken_hours(fatal: Sequence[Finding], begin_ms: int, end_ms: int) -> list[tuple[str, int]]:
    """Return for each group with fatal findings the hour of the day with the most of them, the first of such hours.

    A finding belongs to the hour in which it arose. Groups with the most findings come first.
    """
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for one in fatal:
        for at in one.times[:1]:
            if begin_ms <= at < end_ms:
                counts[one.group][begin_ms + (at - begin_ms) // HOUR_MS * HOUR_MS] += 1
    ranked = sorted(counts.items(), key=lambda item: (-item[1].total(), item[0]))
    return [(group, min(hours, key=lambda hour: (-hours[hour], hour))) for group, hours in ranked]


def _ownership(
    intervals: Iterable[Of[Interval]], plan: DayPlan, worst: Mapping[str, int], broken: set[tuple[str, str | None]]
) -> tuple[Of[Interval], ...]:
    """Return the intervals of the groups' hours; where they are too many, those of ``broken`` tasks come first."""
    found: defaultdict[str, list[Interval]] = defaultdict(list)
    for group, one in intervals:
        end_ms = plan.end_ms if one.to_ms is None else one.to_ms
        if one.from_ms < worst[group] + HOUR_MS and end_ms > worst[group]:
            found[group].append(one)
    owned: list[Of[Interval]] = []
    for group, some in sorted(found.items()):
        some.sort(key=lambda one: ((group, one.task) not in broken, one.from_ms, one.task, one.member))
        owned += [(group, one) for one in sorted(some[:INTERVALS_PER_GROUP], key=lambda one: (one.task, one.from_ms))]
    return tuple(owned)


def _warmups(warmups: Iterable[Of[Warmup]], plan: DayPlan) -> tuple[Of[Warmup], ...]:
    """Return warmups that reach into the day, those that took longest."""

    def took_most(of: Of[Warmup]) -> tuple[int, str, str, int]:
        group, one = of
        end_ms = plan.end_ms if one.to_ms is None else one.to_ms
        return one.from_ms - end_ms, group, one.task, one.from_seq

    within = (one for one in warmups if one[1].to_ms is None or one[1].to_ms >= plan.begin_ms)
    longest = nsmallest(POINTS_PER_PICTURE, within, key=took_most)
    return tuple(sorted(longest, key=lambda of: (of[0], of[1].from_ms, of[1].task)))
