"""How long nobody ran a task, and why: gaps between runs, their causes, and what they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from batonpass.audit.findings import DowntimeCause

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from batonpass.audit.plan import DayPlan

STUCK_MS: Final = 600_000
"""A task that is granted to nobody for so long is stuck: twice what the place of a restarting member is kept."""

DEATHS: Final = ("expired", "fenced", "evicted", "replaced", "taken-over")
"""The causes by which a member goes that was given up, rather than goes by itself."""

GAPS: Final = (
    *("group_id", "task", "cause", "from_ms", "to_ms", "gap_ms", "unowned_ms", "runner", "next_runner", "why"),
    *("down_seq", "next_up_seq"),
)
"""One row for each stretch of the day in which nobody ran a task that had been granted before; ``to_ms`` of an open one
is the end of the day, and ``next_up_seq`` null."""


def identities(changes: DataFrame) -> DataFrame:
    """Return by which name each member is known again after a restart: its instance id, else its own."""
    return (
        changes.where(f.col("what") == "joined")
        .groupBy("group_id", "member")
        .agg(f.coalesce(f.max("word"), f.max("member")).alias("identity"))
    )


def sessions(changes: DataFrame) -> DataFrame:
    """Return the longest session timeout of each group on that day, and the longest patience with the silent."""
    config = f.from_json("word", "struct<session_timeout_ms:long,suspect_timeout_ms:long>")
    rows = changes.where(f.col("what") == "config").select("group_id", config.alias("of"))
    longest = (("session", "session_ms"), ("suspect", "suspect_ms"))
    return rows.groupBy("group_id").agg(*(f.max(f"of.{one}_timeout_ms").alias(name) for one, name in longest))


def gaps(runs: DataFrame, changes: DataFrame, without: DataFrame, plan: DayPlan) -> DataFrame:
    """Return the stretches without a runner (``GAPS``).

    A gap begins when it is known that nobody runs the task any more: a confirmation, the end of a lease, a report. Of a
    member that expired nothing had been heard for a session timeout before, of a suspect for ``suspect_timeout_ms``: it
    counts as down since then, at the earliest since it ran.
    """
    names = identities(changes)
    mine = names.select("group_id", f.col("member").alias("runner"), f.col("identity").alias("identity"))
    theirs = names.select("group_id", f.col("member").alias("next_runner"), f.col("identity").alias("next_identity"))
    expired = (f.col("down_what") == "gone") & (f.col("down_word") == "expired")
    suspected = f.col("down_what") == "waived"
    silence = f.when(expired, f.col("session_ms")).when(suspected, f.coalesce("suspect_ms", f.lit(0))).otherwise(0)
    silent_since = f.greatest(f.col("up_ms"), f.col("down_ms") - silence)
    begin, end = f.lit(plan.begin_ms), f.lit(plan.end_ms)
    whole = (
        runs.where((f.col("run") == 0) | f.col("down_ms").isNotNull())
        .join(f.broadcast(sessions(changes)), "group_id", "left")
        .join(mine, ["group_id", "runner"], "left")
        .join(theirs, ["group_id", "next_runner"], "left")
        .withColumn(
            "since_ms",
            f.when(f.col("run") == 0, f.col("taken_ms"))
            .when(expired | suspected, silent_since)
            .otherwise(f.col("down_ms")),
        )
        .withColumn("until_ms", f.coalesce("next_up_ms", f.lit(plan.end_ms)))
        .where(f.col("since_ms").isNotNull())
        .where((f.col("until_ms") > begin) & (f.col("since_ms") < end) & ~f.col("parked"))
        .withColumn("from_ms", f.greatest("since_ms", begin))
        .withColumn("to_ms", f.least("until_ms", end))
        .withColumn("gap_ms", f.greatest(f.lit(0), f.col("to_ms") - f.col("from_ms")))
        .withColumn("owned_from", f.least(f.coalesce("taken_ms", f.lit(plan.end_ms)), f.col("to_ms")))
        .withColumn("unowned_ms", f.greatest(f.lit(0), f.col("owned_from") - f.col("from_ms")))
    )
    return _with_cause(whole, without).select(*GAPS)


def _with_cause(whole: DataFrame, without: DataFrame) -> DataFrame:
    named = whole.withColumn("subtopology", f.regexp_extract("task", r"^(.*)_\d+$", 1)).join(
        f.broadcast(without.withColumn("has_no_state", f.lit(True))), ["group_id", "subtopology"], "left"
    )
    ready = f.coalesce(f.col("next_ready"), f.lit(False)) | f.coalesce(f.col("has_no_state"), f.lit(False))
    same = f.col("identity").eqNullSafe(f.col("next_identity")) & f.col("identity").isNotNull()
    # A task that was revoked and never granted again has been taken out of the topology, or waits for good reason.
    claimed = f.col("claim_seq").isNotNull() & (f.coalesce(f.col("fell_seq"), f.lit(1 << 62)) > f.col("claim_seq"))
    # Who died is told to give its tasks up as well, for when it should live after all.
    asked_for = claimed & ~f.coalesce(_died(), f.lit(False))
    cause = (
        f.when(f.col("unowned_ms") > STUCK_MS, DowntimeCause.STUCK.value)
        .when(f.col("run") == 0, DowntimeCause.COLD_START.value)
        .when(same, DowntimeCause.RESTART.value)
        .when(~ready, DowntimeCause.COLD_START.value)
        .when(asked_for, DowntimeCause.WARM_HANDOVER.value)
        .otherwise(DowntimeCause.FAILOVER.value)
    )
    why = f.when(f.col("down_what") == "waived", "suspected").otherwise(f.coalesce("down_word", "down_what"))
    return named.withColumn("cause", cause).withColumn("why", why)


def _died() -> Column:
    """Return whether a run ended because its member was taken to be dead."""
    gone = (f.col("down_what") == "gone") & f.col("down_word").isin(*DEATHS)
    return (f.col("down_what") == "waived") | gone


def by_cause(found: DataFrame) -> DataFrame:
    """Return the distribution of downtime of each group and cause: count, p50, p99, max, total (milliseconds)."""
    return found.groupBy("group_id", "cause").agg(
        f.count(f.lit(1)).alias("count"),
        f.percentile_approx("gap_ms", 0.5, 10_000).alias("p50_ms"),
        f.percentile_approx("gap_ms", 0.99, 10_000).alias("p99_ms"),
        f.max("gap_ms").alias("max_ms"),
        f.sum("gap_ms").alias("total_ms"),
    )


def lifetimes(runs: DataFrame, plan: DayPlan) -> DataFrame:
    """Return for each group how many tasks there were, and for how long they were to be run, all together."""
    begin, end = f.lit(plan.begin_ms), f.lit(plan.end_ms)
    # A task counts from its first grant; whether it ran then is what availability says.
    first = f.min(f.coalesce("up_ms", "taken_ms"))
    tasks = runs.groupBy("group_id", "task").agg(f.least(end, f.greatest(begin, first)).alias("since_ms"))
    return tasks.groupBy("group_id").agg(
        f.count(f.lit(1)).alias("tasks_seen"), f.sum(end - f.col("since_ms")).alias("task_ms")
    )
