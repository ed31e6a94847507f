"""Who had what when: the story of each task, in the order of the log, by window functions.

Every frame here is partitioned by group and task, so that windows and sums over one task need one exchange together.
Every window states its frame. Rights are followed in the order of the log (``seq``, then ``place``), times are only
shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from batonpass.audit.plan import DayPlan

TASK: Final = ("group_id", "task")
HELD: Final = (*TASK, "member")
STORY: Final = (
    *("group_id", "task", "member", "seq", "place", "at_ms", "coordinator_epoch", "what", "ms", "token"),
    *("until_ms", "ready", "word"),
)
"""One row for each thing that concerns one task, what befell its holders among them."""

OF_TASKS: Final = (
    *("active", "standby", "warmup", "adopted", "claimed", "revoked", "demoted", "dropped", "released", "waived"),
    *("reported", "heir", "target", "parked", "stopped"),
)
COPIES: Final = ("active", "standby", "warmup", "adopted", "claimed")
HOLD, CLAIM, FREE, GONE = "hold", "claim", "free", "gone"
"""What a row does to a member's right to run a task: gives it, ends it but for a confirmation, is one, or ends both."""

FOLLOWED: Final = (
    *(
        *STORY,
        "role_before",
        "act",
        "licensed",
        "holders",
        "held_seq",
        "held_at",
        "held_by",
        "held_token",
        "is_up",
        "is_down",
    ),
    *("runner", "run", "target_no", "grant_ms", "grant_ready"),
)
"""The story with what follows from the rows before each: see ``follow``."""

RUNS: Final = (
    *("group_id", "task", "run", "runner", "up_ms", "up_seq", "grant_ms", "grant_ready"),
    *("claim_seq", "claim_ms", "claim_at_ms", "claim_epoch", "claim_target_no", "fell_seq", "down_seq", "down_ms"),
    *("down_at_ms", "down_what", "down_word"),
    *("taker", "taken_ms", "taken_seq", "taken_at_ms", "taken_ready", "taken_role", "taken_epoch"),
    *("heir", "parked", "next_runner", "next_up_ms", "next_up_seq", "next_ready", "next_grant_ms"),
)
"""One row for each stretch in which a member ran a task, with how it ended and who came next. Run 0 is none: before the
first one."""

WARMUPS: Final = (
    *("group_id", "task", "member", "from_seq", "from_at_ms", "from_ms", "to_seq", "to_at_ms", "to_ms", "outcome"),
)
"""One row for each warmup; ``outcome`` is promoted, standby, dropped, or open."""


def _is(*names: str) -> Column:
    return f.col("what").isin(*names)


def story(changes: DataFrame) -> DataFrame:
    """Return the rows of each task (``STORY``), with the ends of the members that held something of it.

    Where ``changes`` are partitioned by group, so is this, and nothing is exchanged.
    """
    own = changes.where(_is(*OF_TASKS)).select(*STORY)
    return own.unionByName(_ends(changes)).unionByName(_dispossessions(changes))


def _ends(changes: DataFrame) -> DataFrame:
    """Return, for each copy of a member that went, the end of the member."""
    gone = changes.where(_is("gone", "away")).select(
        *("group_id", "member", "seq", "place", "at_ms", "coordinator_epoch", "ms"),
        # Who is away has said that it stopped; its place is kept, not its tasks.
        f.when(_is("away"), f.col("ms")).otherwise(f.col("until_ms")).alias("until_ms"),
        f.when(_is("away"), f.lit("restarted")).otherwise(f.col("word")).alias("word"),
    )
    deleted = changes.where(_is("deleted")).select(
        *("group_id", "seq", "place", "at_ms", "coordinator_epoch", "ms", f.col("ms").alias("until_ms")),
        f.lit("group-deleted").alias("word"),
    )
    joined = changes.where(_is("joined")).select("group_id", "member", f.col("seq").alias("joined_seq"))
    ended = joined.join(deleted.hint("shuffle_hash"), "group_id").where(f.col("joined_seq") < f.col("seq"))
    all_ends = gone.unionByName(ended.select(*gone.columns))
    held = changes.where(_is(*COPIES)).groupBy(*HELD).agg(f.min("seq").alias("held_seq"))
    return (
        held.join(all_ends.hint("shuffle_hash"), ["group_id", "member"])
        .where(f.col("held_seq") <= f.col("seq"))
        .select(
            *(*HELD, "seq", "place", "at_ms", "coordinator_epoch", f.lit("gone").alias("what"), "ms"),
            *(f.lit(None).cast("long").alias("token"), "until_ms"),
            *(f.lit(None).cast("boolean").alias("ready"), "word"),
        )
    )


def _dispossessions(changes: DataFrame) -> DataFrame:
    """Return, for each task that somebody else turned out to run after lost commits, that its holder gives it up."""
    adopted = changes.where(_is("adopted")).select(
        *("group_id", "task", f.col("member").alias("adopter"), "seq", "place", "at_ms", "coordinator_epoch", "ms"),
    )
    held = changes.where(_is("active", "adopted")).select("group_id", "task", "member", f.col("seq").alias("held_seq"))
    return (
        held.join(adopted.hint("shuffle_hash"), list(TASK))
        .where((f.col("held_seq") < f.col("seq")) & (f.col("member") != f.col("adopter")))
        .dropDuplicates(["group_id", "task", "member", "seq"])
        .select(
            *("group_id", "task", "member", "seq", "place", "at_ms", "coordinator_epoch"),
            *(f.lit("dropped").alias("what"), "ms", f.lit(None).cast("long").alias("token")),
            *(f.lit(None).cast("long").alias("until_ms"), f.lit(None).cast("boolean").alias("ready")),
            f.lit(None).cast("string").alias("word"),
        )
    )


def _last(column: Column, window: object) -> Column:
    return f.last(column, ignorenulls=True).over(window)  # type: ignore[arg-type]


def follow(told: DataFrame) -> DataFrame:
    """Return the story with who may run each task after each row (``FOLLOWED``), standbys that stay such left out.

    ``licensed``: whether the row's member may be running the task; ``holders``: how many members may. ``is_up`` and
    ``is_down`` mark where a run begins and ends; ``run`` counts them, ``runner`` is whose the last one was.
    ``target_no`` counts the changes of target, and the members that went who had a copy.
    """
    of_member = Window.partitionBy("member_key", *HELD).orderBy("seq", "place")
    before = of_member.rowsBetween(Window.unboundedPreceding, -1)
    role = (
        f.when(_is("active", "adopted"), "active")
        .when(_is("standby", "warmup"), f.col("what"))
        .when(_is("revoked", "demoted", "dropped", "gone"), "none")
    )
    # Sorting compares the first eight bytes of the first key alone as long as these differ: hashes nearly always do.
    keyed = told.withColumns({"member_key": f.xxhash64(*HELD), "task_key": f.xxhash64(*TASK)})
    every = keyed.withColumn("role_before", f.coalesce(_last(role, before), f.lit("none")))
    # Half of all rows only say that a standby is a standby, which nothing that follows asks for.
    roles = every.where(~_is("standby") | (f.col("role_before") == "warmup"))
    act = (
        f.when(_is("active", "adopted"), HOLD)
        .when(_is("revoked", "demoted", "dropped") & (f.col("role_before") == "active"), CLAIM)
        .when(_is("claimed"), CLAIM)
        .when(_is("released", "waived"), FREE)
        .when(_is("gone"), GONE)
    )
    acts = roles.withColumn("act", act)
    is_hold = f.col("act") == HOLD
    # Windows that are named together are gone through together: one pass for each of these steps, not for each column.
    known = acts.withColumns(
        {
            "last_act": _last(f.col("act"), before),
            "last_right": _last(f.when(f.col("act") != FREE, f.col("act")), before),
            "grant_ms": _last(f.when(is_hold, f.col("ms")), before),
            "grant_ready": _last(f.when(is_hold, f.col("ready")), before),
        }
    )
    last_act, last_right = f.col("last_act"), f.col("last_right")
    still = f.col("until_ms") > f.col("ms")
    licensed = (
        f.when(f.col("act").isin(HOLD, CLAIM), True)
        # A confirmation of something given up before the present grant ends nothing.
        .when(f.col("act") == FREE, f.coalesce(last_right == HOLD, f.lit(False)))
        .when(
            f.col("act") == GONE,
            ((f.col("role_before") == "active") | f.coalesce(last_act == CLAIM, f.lit(False))) & still,
        )
    )
    rights = known.withColumn("licensed", licensed).drop("last_act", "last_right")
    return _follow_task(rights.withColumn("was_licensed", f.coalesce(_last(f.col("licensed"), before), f.lit(False))))


def _follow_task(rights: DataFrame) -> DataFrame:
    of_task = Window.partitionBy("task_key", *TASK).orderBy("seq", "place")
    before = of_task.rowsBetween(Window.unboundedPreceding, -1)
    so_far = of_task.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    change = f.coalesce(f.col("licensed"), f.col("was_licensed")).cast("int") - f.col("was_licensed").cast("int")
    is_hold = f.col("act") == HOLD
    is_up = (_is("reported") & (f.col("word") == "running")) | _is("adopted", "stopped")
    is_target = _is("target")
    first = rights.withColumns(
        {
            "holders": f.sum(change).over(so_far),
            "held_seq": _last(f.when(is_hold, f.col("seq")), before),
            "held_at": _last(f.when(is_hold, f.col("at_ms")), before),
            "held_by": _last(f.when(is_hold, f.col("member")), before),
            "held_token": f.max(f.when(is_hold, f.col("token"))).over(before),
            "is_up": is_up,
            "run": f.sum(is_up.cast("int")).over(so_far),
            "runner": _last(f.when(is_up, f.col("member")), before),
            "target_before": _last(f.when(is_target, f.coalesce(f.col("member"), f.lit(""))), before),
        }
    )
    # The place of a member that went is inherited, or lost: either way the task is meant for somebody else then.
    is_new_target = _is("gone") | (
        is_target & ~f.coalesce(f.col("member"), f.lit("")).eqNullSafe(f.col("target_before"))
    )
    ends = f.col("was_licensed") & ~f.coalesce(f.col("licensed"), f.lit(True))
    is_down = _is("stopped") | (
        (f.col("member") == f.col("runner")) & (ends | (_is("reported") & (f.col("word") != "running")))
    )
    return (
        first.withColumn("target_no", f.sum(is_new_target.cast("int")).over(so_far))
        .withColumn("is_down", f.coalesce(is_down, f.lit(False)))
        .select(*FOLLOWED)
    )


def runs(followed: DataFrame) -> DataFrame:
    """Return the runs of each task, each with its end and with who was granted the task next (``RUNS``)."""

    def first(condition: Column, *columns: Column | str) -> Column:
        return f.min(f.when(condition, f.struct("seq", "place", *columns)))

    is_hold = (f.col("act") == HOLD) & ~_is("adopted")
    is_claim = (f.col("act") == CLAIM) & (f.col("member") == f.col("runner"))
    fell = _is("reported") & (f.col("word") != "running") & (f.col("member") == f.col("runner"))
    grouped = followed.groupBy(*TASK, "run").agg(
        first(f.col("is_up"), "member", "ms", "grant_ms", "grant_ready").alias("up"),
        first(is_claim, "ms", "at_ms", "coordinator_epoch", "target_no").alias("claim"),
        first(f.col("is_down"), "ms", "at_ms", "what", "word").alias("down"),
        first(is_hold, "member", "ms", "at_ms", "ready", "role_before", "coordinator_epoch").alias("taken"),
        first(fell).alias("fell"),
        f.max(f.when(_is("heir"), f.struct("seq", "place", "member"))).alias("chosen"),
        f.coalesce(f.bool_or(_is("parked")), f.lit(False)).alias("parked"),
    )
    following = Window.partitionBy(*TASK).orderBy("run")
    after = f.lead("up", 1).over(following)
    return grouped.withColumn("next", after).select(
        *(
            *TASK,
            "run",
            f.col("up.member").alias("runner"),
            f.col("up.ms").alias("up_ms"),
            f.col("up.seq").alias("up_seq"),
        ),
        *(f.col("up.grant_ms").alias("grant_ms"), f.col("up.grant_ready").alias("grant_ready")),
        *(f.col("claim.seq").alias("claim_seq"), f.col("claim.ms").alias("claim_ms")),
        *(f.col("claim.at_ms").alias("claim_at_ms"), f.col("claim.coordinator_epoch").alias("claim_epoch")),
        *(f.col("claim.target_no").alias("claim_target_no"), f.col("fell.seq").alias("fell_seq")),
        *(
            f.col("down.seq").alias("down_seq"),
            f.col("down.ms").alias("down_ms"),
            f.col("down.at_ms").alias("down_at_ms"),
        ),
        *(f.col("down.what").alias("down_what"), f.col("down.word").alias("down_word")),
        *(
            f.col("taken.member").alias("taker"),
            f.col("taken.ms").alias("taken_ms"),
            f.col("taken.seq").alias("taken_seq"),
        ),
        *(f.col("taken.at_ms").alias("taken_at_ms"), f.col("taken.ready").alias("taken_ready")),
        *(f.col("taken.role_before").alias("taken_role"), f.col("taken.coordinator_epoch").alias("taken_epoch")),
        *(f.col("chosen.member").alias("heir"), "parked", f.col("next.member").alias("next_runner")),
        *(f.col("next.ms").alias("next_up_ms"), f.col("next.seq").alias("next_up_seq")),
        *(f.col("next.grant_ready").alias("next_ready"), f.col("next.grant_ms").alias("next_grant_ms")),
    )


def warmups(followed: DataFrame) -> DataFrame:
    """Return the warmups (``WARMUPS``)."""
    warmed = followed.where(_is("warmup")).select(*HELD).distinct()
    # Only few copies are ever warmups: the others need not be put in order.
    told = followed.join(warmed.hint("shuffle_hash"), list(HELD), "leftsemi")
    mark = (
        f.when(_is("active", "adopted", "heir"), "promoted")
        .when(_is("standby", "warmup"), f.col("what"))
        .when(_is("revoked", "dropped", "gone"), "dropped")
    )
    marked = told.withColumn("mark", mark).where(f.col("mark").isNotNull() & f.col("member").isNotNull())
    of_member = Window.partitionBy(*TASK, "member").orderBy("seq", "place")

    def following(name: str) -> Column:
        return f.lead(name, 1).over(of_member)

    after = marked.select(
        *TASK,
        "member",
        "mark",
        *(f.col(name).alias(f"from_{name}") for name in ("seq", "at_ms", "ms")),
        *(following(name).alias(f"to_{name}") for name in ("seq", "at_ms", "ms")),
        f.coalesce(following("mark"), f.lit("open")).alias("outcome"),
    )
    return after.where((f.col("mark") == "warmup") & (f.col("outcome") != "warmup")).select(*WARMUPS)


INTERVALS: Final = (
    "group_id",
    "task",
    "member",
    "from_seq",
    "from_ms",
    "to_seq",
    "to_ms",
    "running_ms",
    "token",
    "ready",
    "why",
)


def intervals(followed: DataFrame, plan: DayPlan) -> DataFrame:
    """Return the ownership intervals that reach into the day (``INTERVALS``): from a grant to the end of the right.

    ``to_ms`` is null where the member still had the task when the day ended; ``why`` is how the interval ended.
    """
    of_member = Window.partitionBy(*TASK, "member").orderBy("seq", "place")
    so_far = of_member.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_hold = f.col("act") == HOLD
    numbered = followed.where(f.col("act").isNotNull() | _is("reported")).withColumn(
        "hold", f.sum(f.coalesce(is_hold, f.lit(False)).cast("int")).over(so_far)
    )
    ended = ~f.col("licensed")
    found = (
        numbered.where(f.col("hold") > 0)
        .groupBy(*TASK, "member", "hold")
        .agg(
            f.min(f.when(is_hold, f.struct("seq", "ms", "token", "ready"))).alias("from"),
            f.min(f.when(ended, f.struct("seq", "ms", f.coalesce("word", "what").alias("why")))).alias("to"),
            f.min(f.when(f.col("is_up"), f.col("ms"))).alias("running_ms"),
        )
        .select(
            *(*TASK, "member", f.col("from.seq").alias("from_seq"), f.col("from.ms").alias("from_ms")),
            *(f.col("to.seq").alias("to_seq"), f.col("to.ms").alias("to_ms"), "running_ms"),
            *(f.col("from.token").alias("token"), f.col("from.ready").alias("ready"), f.col("to.why").alias("why")),
        )
    )
    reaches_in = f.col("to_ms").isNull() | (f.col("to_ms") >= plan.begin_ms)
    return found.where(reaches_in & (f.col("from_ms") < plan.end_ms)).select(*INTERVALS)
