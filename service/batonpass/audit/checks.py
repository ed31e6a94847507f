"""The laws of the log itself: nothing is missing, nobody else wrote, numbers only grow (L2, L4).

Each check looks at summaries of stretches of the log first, and at single records only where a summary is off: a clean
day of ten million records costs one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from batonpass.audit.evidence import all_of, found, of, said, time_of
from batonpass.audit.findings import Severity
from batonpass.audit.plan import DayPlan, GroupPart, Rows, quoted
from batonpass.audit.tables import small

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STRETCH: Final = 65_536
"""So many sequence numbers are summed up together."""

FATAL, NOTICE = Severity.FATAL, Severity.NOTICE


def log_laws(changes: DataFrame, bounds: DataFrame) -> DataFrame:
    """Return where records are missing (L2) or a coordinator wrote that had been deposed (L4)."""
    records = changes.where(f.col("place") == 0).select(
        *("group_id", "seq", "at_ms", "coordinator_epoch", f.floor(f.col("seq") / STRETCH).alias("stretch"))
    )
    # Single numbers are summed up as they come; the least of several columns together would be found by sorting.
    at, epoch = ("at_ms", "seq"), ("coordinator_epoch", "seq")
    sums = records.groupBy("group_id", "stretch").agg(
        f.count(f.lit(1)).alias("count"),
        f.min("seq").alias("least_seq"),
        f.max("seq").alias("most_seq"),
        f.min_by(*at).alias("least_at"),
        f.max_by(*at).alias("most_at"),
        f.min_by(*epoch).alias("least_epoch"),
        f.max_by(*epoch).alias("most_epoch"),
        f.min("coordinator_epoch").alias("lowest"),
        f.max("coordinator_epoch").alias("highest"),
    )

    def edge(name: str) -> Column:
        columns = (("seq", "seq"), ("at", "at_ms"), ("epoch", "coordinator_epoch"))
        return f.struct(*(f.col(f"{name}_{short}").alias(whole) for short, whole in columns)).alias(name)

    stretches = sums.select("group_id", "stretch", "count", edge("least"), edge("most"), "lowest", "highest")
    of_group = Window.partitionBy("group_id").orderBy("stretch")
    before = of_group.rowsBetween(Window.unboundedPreceding, -1)
    joined = (
        stretches.withColumn("previous", f.lag("most", 1).over(of_group))
        .withColumn("highest_before", f.max("highest").over(before))
        .join(f.broadcast(bounds), "group_id")
    )
    is_dirty = (f.col("most.seq") - f.col("least.seq") + 1 != f.col("count")) | (f.col("lowest") != f.col("highest"))
    dirty = joined.where(is_dirty).select("group_id", "stretch", "first")
    inside = _inside(records.join(dirty, ["group_id", "stretch"]))
    return all_of([_between(joined), _deposed_between(joined), inside, _edges(bounds)])


def _hole(after: Column, next_seq: Column, next_at: Column) -> Column:
    several = said("records ", after + 1, " to ", next_seq - 1, " are missing before ", time_of(next_at))
    one = said("record ", after + 1, " is missing before ", time_of(next_at))
    return f.when(next_seq - after == 2, one).otherwise(several)


def _between(stretches: DataFrame) -> DataFrame:
    """Return holes that lie between two stretches, or before the first record that is read."""
    after = f.coalesce(f.col("previous.seq"), f.col("base"))
    gaps = stretches.withColumn("after", after).where(
        (f.col("least.seq") > f.col("after") + 1) & (f.col("least.seq") > f.col("first"))
    )
    detail = _hole(f.col("after"), f.col("least.seq"), f.col("least.at_ms"))
    return found(
        *(gaps, "L2", FATAL, detail),
        task=None,
        member=None,
        sequences=["previous.seq", "least.seq"],
        at=["previous.at_ms", "least.at_ms"],
    )


def _deposed_between(stretches: DataFrame) -> DataFrame:
    fell = stretches.where(
        (f.col("least.coordinator_epoch") < f.col("highest_before")) & (f.col("least.seq") >= f.col("first"))
    )
    detail = said(
        *(
            "a coordinator of epoch ",
            of("least.coordinator_epoch"),
            " appended after one of epoch ",
            of("highest_before"),
        ),
        *(" at ", time_of("least.at_ms")),
    )
    return found(
        *(fell, "L4", FATAL, detail),
        task=None,
        member=None,
        sequences=["previous.seq", "least.seq"],
        at=["previous.at_ms", "least.at_ms"],
    )


def _inside(records: DataFrame) -> DataFrame:
    """Return what is wrong within a stretch, from its single records."""
    of_stretch = Window.partitionBy("group_id", "stretch").orderBy("seq")
    before = of_stretch.rowsBetween(Window.unboundedPreceding, -1)
    rows = (
        records.withColumn("after", f.lag("seq", 1).over(of_stretch))
        .withColumn("after_at", f.lag("at_ms", 1).over(of_stretch))
        .withColumn("highest", f.max("coordinator_epoch").over(before))
        .where(f.col("seq") >= f.col("first"))
    )
    holes = found(
        *(
            rows.where(f.col("seq") > f.col("after") + 1),
            "L2",
            FATAL,
            _hole(f.col("after"), f.col("seq"), f.col("at_ms")),
        ),
        task=None,
        member=None,
        sequences=["after", "seq"],
        at=["after_at", "at_ms"],
    )
    twice = found(
        *(rows.where(f.col("seq") == f.col("after")), "L2", FATAL, said("record ", of("seq"), " is there twice")),
        task=None,
        member=None,
        sequences=["seq"],
        at=["at_ms"],
    )
    deposed = found(
        rows.where(f.col("coordinator_epoch") < f.col("highest")),
        *("L4", FATAL),
        said(
            *("a coordinator of epoch ", of("coordinator_epoch"), " appended after one of epoch ", of("highest")),
            *(" at ", time_of("at_ms")),
        ),
        task=None,
        member=None,
        sequences=["after", "seq"],
        at=["after_at", "at_ms"],
    )
    return all_of([holes, twice, deposed])


def _edges(bounds: DataFrame) -> DataFrame:
    """Return what is missing at the end of the log, or before its beginning."""
    cut_off = found(
        bounds.where(f.col("missing") > 0),
        *("L2", FATAL),
        said(
            *("the last ", of("missing"), " records are missing: the head counts ", of("last") + of("missing")),
            *(", the last one there is ", of("last")),
        ),
        task=None,
        member=None,
        sequences=["last"],
    )
    unknown = found(
        bounds.where(~f.col("known")),
        *("unknown-beginning", NOTICE),
        said("no snapshot says what was so before record ", of("base") + 1, "; who had what before it is not known"),
        task=None,
        member=None,
    )
    return all_of([cut_off, unknown])


def unreadable(changes: DataFrame) -> DataFrame:
    """Return the records that no program of this version can read (L2: what they say is lost to every reader)."""
    rows = changes.where(f.col("what") == "unreadable")
    damaged = rows.where(f.col("place") >= 0)
    snapshots = rows.where(f.col("place") < 0)
    return all_of(
        [
            found(
                *(damaged, "L2", FATAL, said("record ", of("seq"), " cannot be read: ", of("word"))),
                task=None,
                member=None,
                sequences=["seq"],
                at=["at_ms"],
            ),
            found(
                *(
                    snapshots,
                    "unreadable-snapshot",
                    NOTICE,
                    said("the snapshot of version ", of("seq"), ": ", of("word")),
                ),
                task=None,
                member=None,
            ),
        ]
    )


def member_epochs(changes: DataFrame) -> DataFrame:
    """Return the members whose epoch fell, or grew by more than one a picture (L2: a picture was lost or undone)."""
    pictures = changes.where(
        (f.col("place") == 0) & f.col("what").isin("active", "standby", "warmup", "revoked", "demoted")
    ).select("group_id", "member", "seq", "at_ms", "number")
    # Lost commits and adoptions raise epochs out of turn.
    raised = changes.where(f.col("what").isin("raised", "adopted")).select("group_id").distinct()
    sums = (
        pictures.groupBy("group_id", "member")
        .agg(
            f.count(f.lit(1)).alias("count"),
            f.min(f.struct("seq", "number")).alias("least"),
            f.max(f.struct("seq", "number")).alias("most"),
            f.min("number").alias("lowest"),
            f.max("number").alias("highest"),
        )
        .where(
            (f.col("highest") - f.col("lowest") + 1 != f.col("count"))
            | (f.col("least.number") != f.col("lowest"))
            | (f.col("most.number") != f.col("highest"))
        )
        .select("group_id", "member")
        .join(raised, "group_id", "leftanti")
    )
    of_member = Window.partitionBy("group_id", "member").orderBy("seq")
    rows = (
        pictures.join(sums, ["group_id", "member"])
        .withColumn("number_before", f.lag("number", 1).over(of_member))
        .withColumn("after", f.lag("seq", 1).over(of_member))
        .withColumn("after_at", f.lag("at_ms", 1).over(of_member))
        .where(f.col("number") != f.col("number_before") + 1)
    )
    detail = said(
        *("its epoch ", of("number"), " follows ", of("number_before"), " at ", time_of("at_ms")),
        "; each change of a picture adds one",
    )
    return found(rows, "L2", FATAL, detail, task=None, sequences=["after", "seq"], at=["after_at", "at_ms"])


def generations_told(changes: DataFrame, generations: DataFrame, bounds: DataFrame) -> DataFrame:
    """Return generations that the log has and readers are not shown, the other way round, or told otherwise (L2)."""
    placed = (
        changes.where((f.col("what") == "placed") & (f.col("token") > 0))
        .join(f.broadcast(bounds), "group_id")
        .where(f.col("seq") >= f.col("first"))
        .select("group_id", "number", "seq", f.col("at_ms").alias("placed_at"), f.col("until_ms").alias("placed_moves"))
    )
    told = generations.select("group_id", "number", "moves", "at_ms", "version")
    both = placed.join(told, ["group_id", "number"], "full_outer").where(
        f.col("seq").isNull() | f.col("version").isNull() | (f.col("placed_moves") != f.col("moves"))
    )
    detail = (
        f.when(
            f.col("version").isNull(),
            said("generation ", of("number"), " is in the log, and not among the generations"),
        )
        .when(f.col("seq").isNull(), said("generation ", of("number"), " is told, and not in the log"))
        .otherwise(
            said(
                "generation ",
                of("number"),
                " moved ",
                of("placed_moves"),
                " tasks by the log, ",
                of("moves"),
                " as told",
            )
        )
    )
    when = f.coalesce(f.col("placed_at"), f.col("at_ms"))
    return found(both, "L2", FATAL, detail, task=None, member=None, sequences=["seq"], at=[when])


_SHOWN: Final = """
    with days(group_id, first, last) as (values {values}),
    shown as (
        select group_id, version, kind, role, token from assignment_events where at >= '{begin}' and at < '{end}'
        union all
        select group_id, version, kind, role, token from fresh_changes where at >= '{begin}' and at < '{end}'
    )
    select s.group_id, count(*) filter (where s.kind = 'granted' and s.role = 'active') as grants,
           coalesce(sum(s.token) filter (where s.kind = 'granted' and s.role = 'active'), 0)::bigint as tokens,
           count(*) filter (where s.kind = 'reported') as reports
      from shown s join days d on d.group_id = s.group_id and s.version between d.first - 1 and d.last - 1
     group by s.group_id
"""
SHOWN: Final = "group_id string, grants long, tokens long, reports long"


def changes_shown(changes: DataFrame, bounds: DataFrame, rows: Rows, plan: DayPlan) -> DataFrame:
    """Return the groups whose task histories, as readers are shown them, are not what the log says (L2).

    The database counts them where they lie: in the day's part, and among those that came in bulk and are to be moved
    there. A group of which none are left is passed over.
    """
    counted = [
        row
        for some in batched([one for one in plan.groups if one.last >= one.first], GROUPS_AT_ONCE)
        for row in rows(_SHOWN.format(values=_values(some), begin=_around(plan, -1), end=_around(plan, 1)))
    ]
    shown = small(bounds.sparkSession, [tuple(row) for row in counted], SHOWN)
    is_grant = f.col("what") == "active"
    logged = (
        changes.where(f.col("what").isin("active", "reported"))
        .join(f.broadcast(bounds.select("group_id", "first")), "group_id")
        .where(f.col("seq") >= f.col("first"))
        .groupBy("group_id")
        .agg(
            f.sum(is_grant.cast("long")).alias("logged"),
            f.coalesce(f.sum(f.when(is_grant, f.col("token"))), f.lit(0)).alias("logged_tokens"),
            f.sum((~is_grant).cast("long")).alias("logged_reports"),
        )
    )
    both = shown.join(logged, "group_id", "left").fillna(0)
    pairs = (("grants", "logged"), ("tokens", "logged_tokens"), ("reports", "logged_reports"))
    differs = reduce(lambda one, other: one | other, [f.col(one) != f.col(other) for one, other in pairs])
    detail = said(
        *("the histories of tasks show ", of("grants"), " grants of actives (sum of tokens ", of("tokens"), ") and "),
        *(
            of("reports"),
            " reports; the log has ",
            of("logged"),
            " (",
            of("logged_tokens"),
            ") and ",
            of("logged_reports"),
        ),
    )
    return found(both.where(differs), "L2", FATAL, detail, task=None, member=None)


GROUPS_AT_ONCE: Final = 1_000


def batched(groups: Sequence[GroupPart], size: int) -> Iterator[Sequence[GroupPart]]:
    """Yield the groups, so many at a time."""
    for begin in range(0, len(groups), size):
        yield groups[begin : begin + size]


def _values(groups: Sequence[GroupPart]) -> str:
    return ", ".join(f"({quoted(one.group)}, {one.first}, {one.last})" for one in groups)


def _around(plan: DayPlan, hours: int) -> str:
    """Return an edge of the day with some room: histories have the coordinator's clock, the log the database's."""
    edge_ms = plan.begin_ms if hours < 0 else plan.begin_ms + 86_400_000
    return datetime.fromtimestamp(edge_ms / 1_000 + hours * 3_600, UTC).isoformat()
