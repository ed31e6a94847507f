"""Bounded samples of the day for plots: the worst hour of each group, warmups, generations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

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
from batonpass.audit.measures import WorstHour
from batonpass.audit.plan import HOUR_MS, DayPlan
from batonpass.audit.spread import frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUPS_SHOWN: Final = 20
"""How many groups have samples: those with the most fatal findings first, then those with the most downtime.

The report draws fewer (``report.GROUPS_PICTURED``).
"""


def pictures(results: DataFrame, plan: DayPlan, findings: Sequence[Finding], down: Mapping[str, WorstHour]) -> Pictures:
    """Return the samples; everything that is collected is bounded.

    ``results`` are those of ``spread.day_results``. ``findings`` say which hours matter most, then ``down``, the hour
    of each group that has the most downtime.
    """
    fatal = [one for one in findings if one.severity is Severity.FATAL]
    broken = broken_hours(fatal, plan.begin_ms, plan.end_ms)
    others = sorted((-one.down_ms, group, one.begin_ms) for group, one in down.items() if group not in dict(broken))
    worst = (broken + [(group, begin_ms) for _, group, begin_ms in others])[:GROUPS_SHOWN]
    marked = sorted({(one.group, one.task) for one in fatal if one.task})
    owned = _ownership(frame_of(results, "interval"), plan, worst, marked)
    warmed = _warmups(frame_of(results, "warmup"), plan)
    drawn = {(one.group, one.member) for one in owned} | {(one.group, one.member) for one in warmed}
    named = {one for one in drawn | set(mentioned(findings)) if GIVEN_ID.fullmatch(one[1])}
    points = _generations(frame_of(results, "generation"))
    return Pictures(dict(worst), owned, warmed, points, names_of(frame_of(results, "name"), sorted(named)))


def _small(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """Return a few rows of the driver as a frame; they are sent as Arrow, for which no worker has to be started."""
    wanted = t.StructType.fromDDL(schema)
    assert isinstance(wanted, t.StructType)  # noqa: S101 - for the type checker
    arrow = to_arrow_schema(wanted)
    columns = list(zip(*rows, strict=True)) or [()] * len(arrow)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, arrow.types, strict=True)]
    whole: Any = pa.Table.from_arrays(arrays, schema=arrow)
    frame: DataFrame = spark.createDataFrame(whole, wanted)
    return frame


def mentioned(findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """Yield the group and id of each member that a finding names, or mentions in its detail by a drawn id."""
    for one in findings:
        for member in ([one.member] if one.member else []) + GIVEN_ID.findall(one.detail):
            yield one.group, member


def names_of(known: DataFrame, members: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return what people call these members: the instance id, and which of its runs it is from the second one on."""
    wanted = _small(known.sparkSession, members, "group_id string, member string")
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


def _ownership(
    intervals: DataFrame, plan: DayPlan, worst: list[tuple[str, int]], broken: Sequence[tuple[str, str]]
) -> tuple[OwnershipInterval, ...]:
    """Return the intervals of the groups' hours; where they are too many, those of ``broken`` tasks come first."""
    if not worst:
        return ()
    hours = _small(intervals.sparkSession, worst, "group_id string, hour long")
    end = f.lit(plan.end_ms)
    touching = intervals.join(f.broadcast(hours), "group_id").where(
        (f.col("from_ms") < f.col("hour") + HOUR_MS) & (f.coalesce("to_ms", end) > f.col("hour"))
    )
    marked = _small(intervals.sparkSession, list(broken), "group_id string, task string")
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


def _generations(generations: DataFrame) -> tuple[GenerationPoint, ...]:
    """Return the generations that moved most."""
    columns = ("group_id", "number", "at_ms", "moves", "lower_bound")
    rows = (
        generations.orderBy(f.desc("moves"), "group_id", "number").limit(POINTS_PER_PICTURE).select(*columns).collect()
    )
    return tuple(GenerationPoint(*row) for row in rows)
