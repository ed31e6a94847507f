"""Bounded samples of the day for plots: the worst hour of each group, warmups, generations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute as pc

from batonpass.audit.findings import (
    GIVEN_ID,
    GROUP,
    INTERVALS_PER_GROUP,
    POINTS_PER_PICTURE,
    Finding,
    GenerationPoint,
    OwnershipInterval,
    Pictures,
    Severity,
    WarmupPoint,
)
from batonpass.audit.measures import WorstHour
from batonpass.audit.plan import HOUR_MS, DayPlan

GROUPS_SHOWN: Final = 20
"""How many groups have samples: those with the most fatal findings first, then those with the most downtime.

The report draws fewer (``report.GROUPS_PICTURED``).
"""


Rows = Callable[[str], Iterable[pa.RecordBatch]]
"""Returns the rows of a kind, each batch of one group (``spread.rows_of``)."""


def pictures(rows: Rows, plan: DayPlan, findings: Sequence[Finding], down: Mapping[str, WorstHour]) -> Pictures:
    """Return the samples; everything that is collected is bounded.

    ``findings`` say which hours matter most, then ``down``, the hour of each group that has the most downtime.
    """
    fatal = [one for one in findings if one.severity is Severity.FATAL]
    broken = broken_hours(fatal, plan.begin_ms, plan.end_ms)
    others = sorted((-one.down_ms, group, one.begin_ms) for group, one in down.items() if group not in dict(broken))
    worst = dict((broken + [(group, begin_ms) for _, group, begin_ms in others])[:GROUPS_SHOWN])
    marked = {(one.group, one.task) for one in fatal}
    owned = _ownership(rows("interval"), plan, worst, marked)
    warmed = _warmups(rows("warmup"), plan)
    drawn = {(one.group, one.member) for one in owned} | {(one.group, one.member) for one in warmed}
    named = {one for one in drawn | set(mentioned(findings)) if GIVEN_ID.fullmatch(one[1])}
    return Pictures(worst, owned, warmed, _generations(rows("generation")), names_of(rows("name"), named))


def mentioned(findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """Yield the group and id of each member that a finding names, or mentions in its detail by a drawn id."""
    for one in findings:
        for member in ([one.member] if one.member else []) + GIVEN_ID.findall(one.detail):
            yield one.group, member


def names_of(known: Iterable[pa.RecordBatch], members: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return what people call these members: the instance id, and which of its runs it is from the second one on."""
    return {
        (row[GROUP], row["member"]): row["name"] if row["run"] == 1 else f"{row['name']}, run {row['run']}"
        for batch in known
        for row in batch.to_pylist()
        if (row[GROUP], row["member"]) in members
    }


def broken_hours(fatal: Sequence[Finding], begin_ms: int, end_ms: int) -> list[tuple[str, int]]:
    """Return for each group with fatal findings the hour of the day with the most of them, the first of such hours.

    A finding belongs to the hour of its last record, when it arose. Groups with the most findings come first.
    """
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for one in fatal:
        for at in one.at[-1:]:
            if begin_ms <= at < end_ms:
                counts[one.group][begin_ms + (at - begin_ms) // HOUR_MS * HOUR_MS] += 1
    ranked = sorted(counts.items(), key=lambda item: (-item[1].total(), item[0]))
    return [(group, min(hours, key=lambda hour: (-hours[hour], hour))) for group, hours in ranked]


def _ownership(
    intervals: Iterable[pa.RecordBatch], plan: DayPlan, worst: Mapping[str, int], broken: set[tuple[str, str | None]]
) -> tuple[OwnershipInterval, ...]:
    """Return the intervals of the groups' hours; where they are too many, those of ``broken`` tasks come first."""
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for batch in intervals:
        group = batch[GROUP][0].as_py()
        hour = worst.get(group)
        if hour is not None:
            ends = pc.fill_null(batch["to_ms"], plan.end_ms)
            touching = pc.and_(pc.less(batch["from_ms"], hour + HOUR_MS), pc.greater(ends, hour))
            found[group] += batch.filter(touching).to_pylist()
    owned: list[OwnershipInterval] = []
    for group, of_group in sorted(found.items()):
        of_group.sort(key=lambda row: ((group, row["task"]) not in broken, row["from_ms"], row["task"], row["member"]))
        shown = sorted(of_group[: INTERVALS_PER_GROUP // 2], key=itemgetter("task", "from_ms"))
        owned += [one for row in shown for one in _states(row)]
    return tuple(owned)


def _states(row: Mapping[str, Any]) -> list[OwnershipInterval]:
    """Return an interval, cut where the member began to run the task."""
    whose, begin, running, end = (
        (row[GROUP], row["task"], row["member"]),
        row["from_ms"],
        row["running_ms"],
        row["to_ms"],
    )
    if running is None or running <= begin:
        return [OwnershipInterval(*whose, begin, end, "running" if running is not None else "restoring")]
    return [
        OwnershipInterval(*whose, begin, running, "restoring"),
        OwnershipInterval(*whose, running, end, "running"),
    ]


def _most(tables: Iterable[pa.Table], *order: str) -> list[dict[str, Any]]:
    """Return the rows with the most of the first column of ``order``; among equals, the first by the others."""
    keys = [(name, "ascending" if place else "descending") for place, name in enumerate(order)]
    kept: pa.Table | None = None
    for one in tables:
        kept = one if kept is None else pa.concat_tables([kept, one])
        if kept.num_rows > POINTS_PER_PICTURE:
            kept = kept.sort_by(keys).slice(0, POINTS_PER_PICTURE)
    return [] if kept is None else kept.sort_by(keys).to_pylist()


def _warmups(warmups: Iterable[pa.RecordBatch], plan: DayPlan) -> tuple[WarmupPoint, ...]:
    """Return warmups that reach into the day, those that took longest."""

    def timed() -> Iterator[pa.Table]:
        for batch in warmups:
            ends = pc.fill_null(batch["to_ms"], plan.end_ms)
            took = pc.subtract(ends, batch["from_ms"])
            yield pa.table(batch).append_column("took", took).filter(pc.greater_equal(ends, plan.begin_ms))

    columns = (GROUP, "task", "member", "from_ms", "took", "lag", "outcome")
    longest = sorted(_most(timed(), "took", GROUP, "task", "from_seq"), key=itemgetter(GROUP, "from_ms", "task"))
    return tuple(WarmupPoint(*(row[name] for name in columns)) for row in longest)


def _generations(generations: Iterable[pa.RecordBatch]) -> tuple[GenerationPoint, ...]:
    """Return the generations that moved most."""
    columns = (GROUP, "number", "at_ms", "moves", "lower_bound")
    most = _most(map(pa.table, generations), "moves", GROUP, "number")
    return tuple(GenerationPoint(*(row[name] for name in columns)) for row in most)
