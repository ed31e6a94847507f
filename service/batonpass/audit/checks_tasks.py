"""The laws of tasks: one owner at a time (L1), ready copies take over (L7), moves and copies within bounds (L8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from batonpass.audit.evidence import all_of, found, of, said, time_of
from batonpass.audit.findings import Severity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FATAL = Severity.FATAL
LATER: Final = 1 << 62


def one_owner(followed: DataFrame) -> DataFrame:
    """Return grants made while somebody else might still run the task, or under a token that did not grow (L1)."""
    grants = followed.where((f.col("act") == "hold") & (f.col("what") == "active"))
    doubled = found(
        grants.where(f.col("holders") > 1),
        *("L1", FATAL),
        said(
            *(
                "granted at ",
                time_of("ms"),
                " while ",
                of("held_by"),
                " might still run it: neither confirmed, nor gone, nor",
            ),
            " out of its lease",
        ),
        sequences=["held_seq", "seq"],
        at=["held_at", "at_ms"],
    )
    stale = found(
        grants.where(f.col("token") <= f.col("held_token")),
        *("L1", FATAL),
        said(
            *("granted at ", time_of("ms"), " under token ", of("token"), ", which is not above ", of("held_token")),
            " that was granted before",
        ),
        sequences=["held_seq", "seq"],
        at=["held_at", "at_ms"],
    )
    return all_of([doubled, stale])


def _handovers(runs: DataFrame, excused: DataFrame) -> DataFrame:
    """Return the runs that ended because the running owner was told to give the task up, for nobody's failure.

    ``excused`` has the members whose tasks may go at any price at some time of the day: suspects, and those whose drain
    had a deadline.
    """
    willing = runs.where(
        f.col("claim_seq").isNotNull()
        & f.col("taker").isNotNull()
        & (f.col("taken_seq") > f.col("claim_seq"))
        & (f.coalesce(f.col("fell_seq"), f.lit(LATER)) > f.col("claim_seq"))
        & ~f.col("parked")
    )
    return willing.join(
        excused, (willing.group_id == excused.of_group) & (willing.runner == excused.of_member), "leftanti"
    )


def excused(changes: DataFrame) -> DataFrame:
    """Return the members from whom tasks may be taken without a ready copy: suspects, and drains with a deadline."""
    rows = changes.where((f.col("what") == "suspected") | ((f.col("what") == "drain") & f.col("until_ms").isNotNull()))
    return rows.select(f.col("group_id").alias("of_group"), f.col("member").alias("of_member")).distinct()


def stateless(changes: DataFrame) -> DataFrame:
    """Return the subtopologies of each group that have no state: their tasks have nothing to warm up."""
    parts = f.from_json("word", "array<array<string>>")
    return (
        changes.where(f.col("what") == "topology")
        .select("group_id", f.explode(parts).alias("part"))
        .where(f.col("part")[2] == "false")
        .select("group_id", f.col("part")[0].alias("subtopology"))
        .distinct()
    )


def with_state(frame: DataFrame, without: DataFrame) -> DataFrame:
    """Return the rows whose tasks have state."""
    named = frame.withColumn("subtopology", f.regexp_extract("task", r"^(.*)_\d+$", 1))
    return named.join(f.broadcast(without), ["group_id", "subtopology"], "leftanti").drop("subtopology")


def cold_promotions(runs: DataFrame, excused: DataFrame, without: DataFrame) -> DataFrame:
    """Return handovers from a running, willing owner to a member whose copy was not caught up (L7).

    A member that was not chosen when the owner was told to stop took over because the chosen one fell away: excused. So
    is one of which a coordinator that has just started knew nothing.
    """
    has_copy = f.col("taken_role").isin("standby", "warmup")
    same_coordinator = f.col("taken_epoch") == f.col("claim_epoch")
    chosen = f.col("heir").isNull() | (f.col("heir") == f.col("taker"))
    cold = with_state(_handovers(runs, excused), without).where(
        ~f.col("taken_ready") & chosen & (f.col("taker") != f.col("runner")) & (~has_copy | same_coordinator)
    )
    copy = f.when(has_copy, f.concat(f.lit("a "), f.col("taken_role"), f.lit(" that was not caught up"))).otherwise(
        f.lit("no copy of it")
    )
    return found(
        cold,
        *("L7", FATAL),
        said(
            *(
                "taken from ",
                of("runner"),
                ", which ran it, at ",
                time_of("claim_ms"),
                " for ",
                of("taker"),
                ", which had ",
            ),
            copy,
        ),
        member="taker",
        sequences=["claim_seq", "taken_seq"],
        at=["claim_at_ms", "taken_at_ms"],
    )


def handovers_per_target(runs: DataFrame, excused: DataFrame) -> DataFrame:
    """Return tasks that were handed over more than once from a running owner for one change of target (L8)."""
    moved = _handovers(runs, excused).where(f.col("taker") != f.col("runner"))
    counted = moved.groupBy("group_id", "task", "claim_target_no").agg(
        f.count(f.lit(1)).alias("count"),
        f.slice(f.sort_array(f.collect_list("claim_seq")), 1, 10).alias("sequences"),
        f.slice(f.sort_array(f.collect_list("claim_at_ms")), 1, 10).alias("at"),
        f.max_by("taker", "taken_seq").alias("member"),
    )
    many = counted.where(f.col("count") > 1)
    detail = said(
        of("count"), " handovers from running owners for one change of its target, since ", time_of(f.col("at")[0])
    )
    return found(many, "L8", FATAL, detail, sequences=f.col("sequences"), at=f.col("at"))


def budgets(changes: DataFrame) -> DataFrame:
    """Return, for each group, the most that its settings allowed at any time of the day.

    Settings that were lowered leave what is there, so the highest count; a budget that is a share counts of the most
    tasks.
    """
    fields = "struct<max_warmup_replicas:string,max_drain_warmups:string,max_warmups_per_member:int>"
    parts = f.from_json("word", "array<array<string>>")
    sizes = (
        changes.where(f.col("what") == "topology")
        .withColumn("part", f.explode(parts))
        .groupBy("group_id", "seq", "place")
        .agg(f.sum(f.when(f.col("part")[2] == "true", f.col("part")[1].cast("int")).otherwise(0)).alias("stateful"))
        .groupBy("group_id")
        .agg(f.max("stateful").alias("stateful"))
    )
    configs = changes.where(f.col("what") == "config").select("group_id", f.from_json("word", fields).alias("of"))

    def copies(name: str, least: int) -> object:
        setting = f.col(f"of.{name}")
        share = f.ceil(f.regexp_extract(setting, r"^([\d.]+)%$", 1).cast("double") * f.col("stateful") / 100 - 1e-9)
        return f.when(setting.endswith("%"), f.greatest(f.lit(least), share)).otherwise(setting.cast("long"))

    both = configs.join(sizes, "group_id", "left").fillna({"stateful": 0})
    normal, drains = copies("max_warmup_replicas", 1), copies("max_drain_warmups", 2)
    return both.groupBy("group_id").agg(
        (f.max(f.greatest(f.lit(1), normal)) + f.max(f.greatest(f.lit(1), drains))).alias("allowed"),  # type: ignore[arg-type]
        f.max("of.max_warmups_per_member").alias("allowed_per_member"),
    )


def warmup_budgets(warmups: DataFrame, allowed: DataFrame) -> DataFrame:
    """Return decisions that began a warmup beyond the budget of the group or of its member (L8).

    What is counted stays below what the law counts, so that nothing is said that is not so: a warmup that was chosen as
    the next owner is not counted, nor is a standby on its way.
    """
    edges = warmups.select(
        *("group_id", "member", "task", f.col("from_seq").alias("seq"), f.col("from_at_ms").alias("at_ms")),
        f.lit(1).alias("change"),
    ).unionByName(
        warmups.where(f.col("to_seq").isNotNull()).select(
            *("group_id", "member", "task", f.col("to_seq").alias("seq"), f.col("to_at_ms").alias("at_ms")),
            f.lit(-1).alias("change"),
        )
    )
    whole = _beyond(edges, ["group_id"]).join(f.broadcast(allowed), "group_id").where(f.col("count") > f.col("allowed"))
    single = (
        _beyond(edges, ["group_id", "member"])
        .join(f.broadcast(allowed), "group_id")
        .where(f.col("count") > f.col("allowed_per_member"))
    )
    return all_of(
        [
            found(
                *(whole, "L8", FATAL),
                said(
                    *(
                        of("count"),
                        " warmups at ",
                        time_of("at_ms"),
                        "; max_warmup_replicas and max_drain_warmups together",
                    ),
                    *(" allow ", of("allowed")),
                ),
                member=None,
                sequences=["seq"],
                at=["at_ms"],
            ),
            found(
                *(single, "L8", FATAL),
                said(
                    *(of("count"), " warmups on one member at ", time_of("at_ms"), "; max_warmups_per_member allows "),
                    of("allowed_per_member"),
                ),
                sequences=["seq"],
                at=["at_ms"],
            ),
        ]
    )


def _beyond(edges: DataFrame, keys: list[str]) -> DataFrame:
    """Return how many warmups there were after each decision that began one."""
    in_order = Window.partitionBy(*keys).orderBy("seq", "change")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # One decision writes several records at one instant, and is judged by what it comes to.
    decision = Window.partitionBy(*keys, "at_ms").orderBy("seq", "change")
    whole = decision.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return (
        edges.withColumn("count", f.sum("change").over(so_far))
        .withColumn("began", f.max("change").over(whole))
        .withColumn("place", f.row_number().over(decision))
        .withColumn("places", f.max("place").over(whole))
        .where((f.col("began") > 0) & (f.col("place") == f.col("places")))
    )
