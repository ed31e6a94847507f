"""Bounded samples of the day for plots: the worst hour of each group, warmups, generations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from batonpass.audit.findings import (
    GIVEN_ID,
    INTERVALS_PER_GROUP,
    POINTS_PER_PICTURE,
    Finding,
    GenerationPoint,
    OwnershipInterval,
    Pictures,
    Severity,
    WarmupPoint,
)
from batonpass.audit.plan import HOUR_MS, DayPlan
from batonpass.audit.tables import small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from batonpass.audit.tables import DayTables

GROUPS_SHOWN: Final = 20
"""How many groups have samples: those with the most fatal findings first, then those with the most downtime.

The report draws fewer (``report.GROUPS_PICTURED``).
"""


@dataclass(frozen=True, slots=True)
class Frames:
    """The results that grow with the day; the step that makes each defines its columns."""

    gaps: DataFrame
    warmups: DataFrame
    intervals: DataFrame
    names: DataFrame


def pictures(frames: Frames, tables: DayTables, findings: Sequence[Finding]) -> Pictures:
    """Return the samples; everything that is collected is bounded. ``findings`` say which hours matter most."""
    fatal = [one for one in findings if one.severity is Severity.FATAL]
    plan = tables.plan
    broken = broken_hours(fatal, plan.begin_ms, plan.end_ms)
    worst = (broken + [one for one in _worst_hours(frames.gaps, plan) if one[0] not in dict(broken)])[:GROUPS_SHOWN]
    marked = sorted({(one.group, one.task) for one in fatal if one.task})
    owned = _ownership(frames.intervals, plan, worst, marked)
    warmed = _warmups(frames.warmups, plan)
    drawn = {(one.group, one.member) for one in owned} | {(one.group, one.member) for one in warmed}
    named = {one for one in drawn | set(mentioned(findings)) if GIVEN_ID.fullmatch(one[1])}
    hours = {row[0]: row[1] for row in worst}
    return Pictures(hours, owned, warmed, _generations(tables), names_of(frames.names, sorted(named)))


def mentioned(findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """Yield the group and id of each member that a finding names, or mentions in its detail by a drawn id."""
    for one in findings:
        for member in ([one.member] if one.member else []) + GIVEN_ID.findall(one.detail):
            yield one.group, member


def names_of(known: DataFrame, members: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return what people call these members: the instance id, and which of its runs it is from the second one on."""
    wanted = small(known.sparkSession, members, "group_id string, member string")
    return {
        (row["group_id"], row["member"]): row["name"] if row["run"] == 1 else f"{row['name']}, run {row['run']}"
        for row in known.join(f.broadcast(wanted), ["group_id", "member"]).collect()
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


def _worst_hours(gaps: DataFrame, plan: DayPlan) -> list[tuple[str, int]]:
    """Return the hour of each group that has the most downtime, for the groups that have the most."""
    hour = f.floor((f.col("from_ms") - plan.begin_ms) / HOUR_MS) * HOUR_MS + plan.begin_ms
    of_group = Window.partitionBy("group_id").orderBy(f.desc("down_ms"), "hour")
    hours = gaps.groupBy("group_id", hour.alias("hour")).agg(f.sum("gap_ms").alias("down_ms"))
    rows = (
        hours.withColumn("place", f.row_number().over(of_group))
        .where(f.col("place") == 1)
        .orderBy(f.desc("down_ms"), "group_id")
        .limit(GROUPS_SHOWN)
        .collect()
    )
    return [(row["group_id"], int(row["hour"])) for row in rows]


def _ownership(
    intervals: DataFrame, plan: DayPlan, worst: list[tuple[str, int]], broken: Sequence[tuple[str, str]]
) -> tuple[OwnershipInterval, ...]:
    """Return the intervals of the groups' hours; where they are too many, those of ``broken`` tasks come first."""
    if not worst:
        return ()
    hours = small(intervals.sparkSession, worst, "group_id string, hour long")
    end = f.lit(plan.end_ms)
    touching = intervals.join(f.broadcast(hours), "group_id").where(
        (f.col("from_ms") < f.col("hour") + HOUR_MS) & (f.coalesce("to_ms", end) > f.col("hour"))
    )
    marked = small(intervals.sparkSession, list(broken), "group_id string, task string")
    of_group = Window.partitionBy("group_id").orderBy("after", "from_ms", "task", "member")
    rows = (
        touching.join(f.broadcast(marked.withColumn("before", f.lit(True))), ["group_id", "task"], "left")
        .withColumn("after", f.col("before").isNull())
        .withColumn("place", f.row_number().over(of_group))
        .where(f.col("place") <= INTERVALS_PER_GROUP // 2)
        .orderBy("group_id", "task", "from_ms")
        .collect()
    )
    return tuple(one for row in rows for one in _states(row.asDict()))


def _states(row: dict[str, object]) -> list[OwnershipInterval]:
    """Return an interval, cut where the member began to run the task."""
    group, task, member = str(row["group_id"]), str(row["task"]), str(row["member"])
    begin, running, end = row["from_ms"], row["running_ms"], row["to_ms"]
    assert isinstance(begin, int)  # noqa: S101 - for the type checker
    to_ms = end if isinstance(end, int) else None
    if not isinstance(running, int) or running <= begin:
        return [OwnershipInterval(group, task, member, begin, to_ms, "running" if running is not None else "restoring")]
    return [
        OwnershipInterval(group, task, member, begin, running, "restoring"),
        OwnershipInterval(group, task, member, running, to_ms, "running"),
    ]


def _warmups(warmups: DataFrame, plan: DayPlan) -> tuple[WarmupPoint, ...]:
    """Return warmups that reach into the day, those that took longest."""
    end = f.coalesce("to_ms", f.lit(plan.end_ms))
    rows = (
        warmups.where(end >= plan.begin_ms)
        .orderBy(f.desc(end - f.col("from_ms")), "group_id", "task", "from_seq")
        .limit(POINTS_PER_PICTURE)
        .orderBy("group_id", "from_ms", "task")
        .select("group_id", "task", "member", "from_ms", end - f.col("from_ms"), "lag", "outcome")
        .collect()
    )
    return tuple(WarmupPoint(*row) for row in rows)


def _generations(tables: DayTables) -> tuple[GenerationPoint, ...]:
    """Return the generations that moved most."""
    points = [GenerationPoint(*row) for row in tables.generations(POINTS_PER_PICTURE)]
    return tuple(sorted(points, key=lambda one: (one.group, one.number)))
