"""Bounded samples of the day for plots: the worst hour of each group, warmups, generations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from batonpass.audit.findings import (
    INTERVALS_PER_GROUP,
    POINTS_PER_PICTURE,
    GenerationPoint,
    OwnershipInterval,
    Pictures,
    WarmupPoint,
)
from batonpass.audit.timeline import intervals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from batonpass.audit.measures import Seen

HOUR_MS: Final = 3_600_000
GROUPS_SHOWN: Final = 20
"""So many groups are drawn, those with the most downtime first."""


def pictures(seen: Seen, followed: DataFrame) -> Pictures:
    """Return the samples; everything that is collected is bounded."""
    worst = _worst_hours(seen)
    owned = _ownership(seen, followed, worst)
    return Pictures({row[0]: row[1] for row in worst}, owned, _warmups(seen), _generations(seen))


def _worst_hours(seen: Seen) -> list[tuple[str, int]]:
    """Return the hour of each group that has the most downtime, for the groups that have the most."""
    hour = f.floor((f.col("from_ms") - seen.plan.begin_ms) / HOUR_MS) * HOUR_MS + seen.plan.begin_ms
    of_group = Window.partitionBy("group_id").orderBy(f.desc("down_ms"), "hour")
    hours = seen.gaps.groupBy("group_id", hour.alias("hour")).agg(f.sum("gap_ms").alias("down_ms"))
    rows = (
        hours.withColumn("place", f.row_number().over(of_group))
        .where(f.col("place") == 1)
        .orderBy(f.desc("down_ms"), "group_id")
        .limit(GROUPS_SHOWN)
        .collect()
    )
    return [(row["group_id"], int(row["hour"])) for row in rows]


def _ownership(seen: Seen, followed: DataFrame, worst: list[tuple[str, int]]) -> tuple[OwnershipInterval, ...]:
    if not worst:
        return ()
    hours = seen.bounds.sparkSession.createDataFrame(worst, "group_id string, hour long")
    end = f.lit(seen.plan.end_ms)
    some = followed.join(f.broadcast(hours.select("group_id")), "group_id")
    touching = (
        intervals(some, seen.plan)
        .join(f.broadcast(hours), "group_id")
        .where((f.col("from_ms") < f.col("hour") + HOUR_MS) & (f.coalesce("to_ms", end) > f.col("hour")))
    )
    of_group = Window.partitionBy("group_id").orderBy("from_ms", "task", "member")
    rows = (
        touching.withColumn("place", f.row_number().over(of_group))
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


def _warmups(seen: Seen) -> tuple[WarmupPoint, ...]:
    """Return warmups, each with what it had to restore by the first sample of it."""
    end = f.lit(seen.plan.end_ms)
    some = (
        seen.warmups.where(f.coalesce("to_ms", end) >= seen.plan.begin_ms)
        .orderBy(f.desc(f.coalesce("to_ms", end) - f.col("from_ms")), "group_id", "task", "from_seq")
        .limit(POINTS_PER_PICTURE)
    )
    lags = seen.lags.select("group_id", "task", "member", f.col("at_ms").alias("sampled_ms"), "lag")
    within = (f.col("sampled_ms") >= f.col("from_ms")) & (f.col("sampled_ms") <= f.coalesce("to_ms", end))
    rows = (
        some.join(lags, ["group_id", "task", "member"], "left")
        .groupBy("group_id", "task", "member", "from_ms", "to_ms", "outcome")
        .agg(f.min_by(f.when(within, f.col("lag")), f.when(within, f.col("sampled_ms"))).alias("lag"))
        .orderBy("group_id", "from_ms", "task")
        .collect()
    )
    return tuple(
        WarmupPoint(
            *(row["group_id"], row["task"], row["member"], row["from_ms"]),
            *((row["to_ms"] or seen.plan.end_ms) - row["from_ms"], row["lag"], row["outcome"]),
        )
        for row in rows
    )


def _generations(seen: Seen) -> tuple[GenerationPoint, ...]:
    rows = (
        seen.generations.orderBy(f.desc("moves"), "group_id", "number")
        .limit(POINTS_PER_PICTURE)
        .select("group_id", "number", "at_ms", "moves", "lower_bound")
        .orderBy("group_id", "number")
        .collect()
    )
    return tuple(GenerationPoint(*row) for row in rows)
