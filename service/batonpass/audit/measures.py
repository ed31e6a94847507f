"""What the day cost each group, and what is worth a look without being against a law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from batonpass.audit.downtime import STUCK_MS, by_cause, identities, lifetimes
from batonpass.audit.evidence import all_of, found, of, said, time_of
from batonpass.audit.findings import GroupDay, Severity
from batonpass.audit.tables import small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from batonpass.audit.plan import DayPlan

NOTICE = Severity.NOTICE

STUCK_WARMUP_MS: Final = 3_600_000
"""A warmup that comes no closer for so long is stuck; Batonpass itself gives up after ``warmup_stall_timeout_ms``."""
FLAPS: Final = 4
"""A member that goes without saying so, or restarts, so often within an hour is flapping."""
FLAPPING_WITHIN_MS: Final = 3_600_000
WASTED_SHARE: Final = 0.5
WASTED_LEAST: Final = 8
FUTILE_SHARE: Final = 0.9
FUTILE_LEAST: Final = 120
"""A group that never rests is looked at so often in a day, by default."""
UNBALANCED_SCORE: Final = 2.0
"""A mean difference of load (weight per capacity, most to least) above this is worth a look."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The frames that measures are made of, each of them kept."""

    changes: DataFrame
    runs: DataFrame
    warmups: DataFrame
    gaps: DataFrame
    generations: DataFrame
    lags: DataFrame
    bounds: DataFrame
    plan: DayPlan

    @property
    def of_day(self) -> DataFrame:
        """The changes of the day itself."""
        firsts = self.bounds.select("group_id", "first")
        return self.changes.join(f.broadcast(firsts), "group_id").where(f.col("seq") >= f.col("first"))


def probes(seen: Seen) -> DataFrame:
    """Return each look of the timer on that day, and whether anything came of it.

    A look is a probe that was set for an instant and set anew, or given up, at that instant or later. Nothing came of
    it when that is all that its decision wrote.
    """
    of_group = Window.partitionBy("group_id").orderBy("seq", "place")
    rows = seen.changes.where(f.col("what") == "probe").withColumn("due_ms", f.lag("until_ms", 1).over(of_group))
    looked = rows.where((f.col("due_ms") <= f.col("at_ms")) & (f.col("at_ms") >= seen.plan.begin_ms))
    beside = (
        seen.changes.where((f.col("place") == 0) & (f.col("what") != "probe"))
        .select("group_id", "at_ms")
        .join(looked.select("group_id", "at_ms").distinct(), ["group_id", "at_ms"], "leftsemi")
        .distinct()
        .withColumn("changed", f.lit(True))
    )
    return looked.join(beside, ["group_id", "at_ms"], "left").select(
        *("group_id", "seq", "at_ms"),
        (f.col("changed").isNull() & f.col("until_ms").isNotNull()).alias("futile"),
    )


def departures(seen: Seen) -> DataFrame:
    """Return each time that a member went by itself: expired, fenced, restarted, or suspected and back."""
    day = seen.of_day
    suspected = day.where(f.col("what") == "suspected").select("group_id", "member")
    # Who expires after a suspicion has gone once, not twice.
    gone = day.where(
        (f.col("what") == "away")
        | ((f.col("what") == "gone") & f.col("word").isin("expired", "fenced", "replaced", "taken-over"))
    ).join(suspected.distinct(), ["group_id", "member"], "leftanti")
    kept = ("group_id", "member", "seq", "at_ms")
    rows = gone.select(*kept).unionByName(day.where(f.col("what") == "suspected").select(*kept))
    return rows.join(identities(seen.changes), ["group_id", "member"], "left")


def flapping(seen: Seen) -> DataFrame:
    """Return the worst hour of each member that came and went again and again."""
    within = (
        Window.partitionBy("group_id", "identity").orderBy("at_ms").rangeBetween(-FLAPPING_WITHIN_MS, Window.currentRow)
    )
    rows = departures(seen).withColumn("times", f.count(f.lit(1)).over(within))
    return (
        rows.withColumn("sequences", f.collect_list("seq").over(within))
        .withColumn("at", f.collect_list("at_ms").over(within))
        .where(f.col("times") >= FLAPS)
        .groupBy("group_id", "identity")
        .agg(f.max_by(f.struct("sequences", "at", "times"), "times").alias("worst"))
        .select(
            *("group_id", f.col("identity").alias("member"), "worst.times"),
            f.slice("worst.sequences", 1, 20).alias("sequences"),
            f.slice("worst.at", 1, 20).alias("at"),
        )
    )


def notices(seen: Seen, per_group: Mapping[str, GroupDay], objective: float | None) -> DataFrame:
    """Return what is worth a look."""
    found_here = [_flapping(seen), _stuck_warmups(seen), _stuck_tasks(seen)]
    return all_of([*found_here, _of_groups(seen, per_group, objective)])


def _flapping(seen: Seen) -> DataFrame:
    rows = flapping(seen)
    detail = said(
        "went and came back ",
        of("times"),
        " times within an hour, until ",
        time_of(f.try_element_at(f.col("at"), f.lit(-1))),
    )
    return found(rows, "flapping-member", NOTICE, detail, task=None, sequences=f.col("sequences"), at=f.col("at"))


def _stuck_warmups(seen: Seen) -> DataFrame:
    """Return warmups that took very long without coming closer, and those that Batonpass gave up on."""
    end = f.lit(seen.plan.end_ms)
    long = seen.warmups.withColumn("until_ms", f.coalesce("to_ms", end)).where(
        (f.col("until_ms") - f.col("from_ms") >= STUCK_WARMUP_MS) & (f.col("until_ms") >= seen.plan.begin_ms)
    )
    lags = seen.lags.select("group_id", "task", "member", f.col("at_ms").alias("sampled_ms"), "lag")
    sampled = (
        long.join(lags, ["group_id", "task", "member"], "left")
        .where(
            f.col("sampled_ms").isNull()
            | ((f.col("sampled_ms") >= f.col("from_ms")) & (f.col("sampled_ms") <= f.col("until_ms")))
        )
        .groupBy("group_id", "task", "member", "from_seq", "from_at_ms", "from_ms", "until_ms", "outcome")
        .agg(
            f.min("lag").alias("least"),
            f.min_by("lag", "sampled_ms").alias("lag_first"),
            f.max(f.when(f.col("lag").isNotNull(), f.struct("sampled_ms", "lag")))["lag"].alias("lag_last"),
        )
    )
    comes_closer = f.coalesce(f.col("lag_last") < f.col("lag_first"), f.lit(False))
    minutes = f.round((f.col("until_ms") - f.col("from_ms")) / 60_000).cast("long")
    stuck = found(
        sampled.where(~comes_closer),
        *("stuck-warmup", NOTICE),
        said("a warmup since ", time_of("from_ms"), " came to nothing in ", minutes, " minutes"),
        sequences=["from_seq"],
        at=["from_at_ms"],
    )
    given_up = found(
        seen.of_day.where(f.col("what") == "stalled"),
        *("stuck-warmup", NOTICE),
        said("its warmup made no progress and was given up at ", time_of("at_ms")),
        sequences=["seq"],
        at=["at_ms"],
    )
    return all_of([stuck, given_up])


def _stuck_tasks(seen: Seen) -> DataFrame:
    rows = seen.gaps.where((f.col("unowned_ms") > STUCK_MS) & f.col("runner").isNotNull())
    minutes = f.round(f.col("unowned_ms") / 60_000).cast("long")
    return found(
        *(rows, "stuck-task", NOTICE),
        said("granted to nobody for ", minutes, " minutes from ", time_of("from_ms"), " (", of("why"), ")"),
        member="runner",
        sequences=["down_seq"],
        at=["from_ms"],
    )


def group_days(seen: Seen) -> dict[str, GroupDay]:
    """Return the measures of each group; the rows that are collected grow with groups alone."""
    spark = seen.bounds.sparkSession
    begin = seen.plan.begin_ms
    day = seen.of_day
    counts = day.groupBy("group_id").agg(
        f.sum((f.col("place") == 0).cast("long")).alias("records"),
        f.sum(((f.col("what") == "placed") & (f.col("token") > 0)).cast("long")).alias("generations"),
        f.sum(f.when(f.col("what") == "placed", f.col("until_ms")).otherwise(0)).alias("moves"),
        f.sum(f.when(f.col("what") == "placed", f.col("word").cast("long")).otherwise(0)).alias("lower_bound"),
    )
    began = seen.warmups.where(f.coalesce("to_ms", f.lit(seen.plan.end_ms)) >= begin)
    warm = began.groupBy("group_id").agg(
        f.count(f.lit(1)).alias("warmups"), f.sum((f.col("outcome") == "dropped").cast("long")).alias("wasted_warmups")
    )
    looks = (
        probes(seen)
        .groupBy("group_id")
        .agg(f.count(f.lit(1)).alias("probes"), f.sum(f.col("futile").cast("long")).alias("futile_probes"))
    )
    flaps = flapping(seen).groupBy("group_id").agg(f.count(f.lit(1)).alias("flapping_members"))
    down = seen.gaps.groupBy("group_id").agg(
        f.sum("gap_ms").alias("downtime_ms"),
        f.max("unowned_ms").alias("longest_unowned_ms"),
        f.sum((f.col("cause") == "warm-handover").cast("long")).alias("handovers"),
        f.sum((f.col("cause") == "failover").cast("long")).alias("failovers"),
        f.sum((f.col("cause") == "cold-start").cast("long")).alias("cold_starts"),
    )
    parts = [counts, warm, looks, flaps, down, lifetimes(seen.runs, seen.plan), _balance(seen)]
    names = small(spark, [(one.group,) for one in seen.plan.groups], "group_id string")
    rows = reduce(lambda one, other: one.join(other, "group_id", "left"), parts, names).collect()
    causes: dict[str, dict[str, dict[str, float]]] = {}
    for row in by_cause(seen.gaps).collect():
        values = {name: float(row[name]) for name in ("count", "p50_ms", "p99_ms", "max_ms", "total_ms")}
        causes.setdefault(row["group_id"], {})[row["cause"]] = values
    # What is left of a deleted group has no tasks and no day.
    lived = [row for row in rows if row["records"] or row["tasks_seen"]]
    return {row["group_id"]: _group_day(row.asDict(), causes.get(row["group_id"], {})) for row in lived}


ZERO_WHERE_UNSEEN: Final = (
    *("records", "generations", "moves", "lower_bound", "warmups", "wasted_warmups", "probes", "futile_probes"),
    *("flapping_members", "downtime_ms", "handovers", "failovers", "cold_starts", "longest_unowned_ms"),
)


def _group_day(row: Mapping[str, float | int | None], causes: Mapping[str, Mapping[str, float]]) -> GroupDay:
    measures: dict[str, float | int | None] = {name: row[name] or 0 for name in ZERO_WHERE_UNSEEN}
    measures["excess_moves"] = (row["moves"] or 0) - (row["lower_bound"] or 0)
    task_ms = row["task_ms"] or 0
    measures["availability"] = None if not task_ms else max(0.0, 1 - (row["downtime_ms"] or 0) / task_ms)
    for name in ("balance_mean", "balance_worst", "members_max", "tasks_max"):
        measures[name] = row[name]
    measures["tasks_max"] = row["tasks_max"] or row["tasks_seen"]
    measures["restored_bytes"] = None
    return GroupDay(str(row["group_id"]), measures, causes)


def _balance(seen: Seen) -> DataFrame:
    """Return how uneven the load was: by the target of each generation, for as long as it stood."""
    of_group = Window.partitionBy("group_id").orderBy("number")
    end = f.lit(seen.plan.end_ms)
    stood = seen.generations.withColumn("stood_ms", f.coalesce(f.lead("at_ms", 1).over(of_group), end) - f.col("at_ms"))
    return stood.groupBy("group_id").agg(
        (f.sum(f.col("score") * f.col("stood_ms")) / f.sum("stood_ms")).alias("balance_mean"),
        f.max("score").alias("balance_worst"),
        f.max("members").alias("members_max"),
        f.max("tasks").alias("tasks_max"),
    )


def _of_groups(seen: Seen, per_group: Mapping[str, GroupDay], objective: float | None) -> DataFrame:
    rows = [
        (name, law, detail) for name, day in sorted(per_group.items()) for law, detail in worth_a_look(day, objective)
    ]
    spark = seen.bounds.sparkSession
    frame = small(spark, rows, "group_id string, law string, said string")
    return found(frame, f.col("law"), NOTICE, f.col("said"), task=None, member=None)


def worth_a_look(day: GroupDay, objective: float | None) -> list[tuple[str, str]]:
    """Return which measures of a group are out of the ordinary, each as a law and a sentence."""
    told: list[tuple[str, str]] = []
    measures = {name: value or 0 for name, value in day.measures.items()}
    available = day.measures["availability"]
    if objective is not None and available is not None and available < objective:
        lost = f"{measures['downtime_ms'] / 1000:.0f} s of downtime"
        detail = f"tasks were run {available:.5%} of the time; the objective is {objective:.5%} ({lost})"
        told.append(("downtime-objective", detail))
    wasted, warmed = measures["wasted_warmups"], measures["warmups"]
    if wasted >= WASTED_LEAST and wasted > WASTED_SHARE * warmed:
        told.append(("wasted-warmup", f"{wasted:.0f} of {warmed:.0f} warmups were dropped before they could take over"))
    futile, looks = measures["futile_probes"], measures["probes"]
    if futile >= FUTILE_LEAST and futile > FUTILE_SHARE * looks:
        told.append(("futile-probes", f"{futile:.0f} of {looks:.0f} looks of the timer changed nothing"))
    mean, worst = measures["balance_mean"], measures["balance_worst"]
    if mean > UNBALANCED_SCORE:
        more = f"{mean:.2f} (weight per capacity) more than the least loaded one over the day; at worst {worst:.2f}"
        told.append(("unbalanced", f"the most loaded member had {more}"))
    return told
