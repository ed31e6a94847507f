"""Decides every logged decision again with the core of this program, and holds each one to the laws (L10, L1 to L8).

Each group is gone through in its order (``again``): a snapshot of it, then traces, histories, generations and records
as they follow one another. Traces say what had been heard of members only where it changed, so each chain begins where
one was started from nothing. Runs on the executors; what comes back are findings and counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from batonpass.audit.again import Again, Of, rows_of
from batonpass.audit.plan import DayPlan, Rows, quoted
from batonpass.codec.code import code_version
from batonpass.codec.records import StoredRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from batonpass.audit.tables import DayTables

ORDERED: Final = pa.schema(
    [
        *(("group_id", pa.string()), ("version", pa.int64()), ("rank", pa.int32()), ("at_ms", pa.int64())),
        *(("kind", pa.string()), ("form", pa.int32()), ("payload", pa.binary())),
        *(("first", pa.int64()), ("is_end", pa.bool_()), ("is_cut", pa.bool_())),
    ]
)
"""What is gone through, in the order of ``version`` and ``rank``: a snapshot, what stands beside the decision made at a
version, then the records that follow it. The last three columns are those of the group (``again.Of``)."""

SNAPSHOT, RECORD, TRACE, HISTORY, GENERATION = range(5)

REPLAYED: Final = pa.schema(
    [
        *(("group_id", pa.string()), ("law", pa.string()), ("severity", pa.string()), ("task", pa.string())),
        *(
            ("member", pa.string()),
            ("detail", pa.string()),
            ("sequences", pa.list_(pa.int64())),
            ("at", pa.list_(pa.int64())),
        ),
        *(("replayed", pa.int64()), ("differing", pa.int64())),
    ]
)
"""Findings, and for each group one row without a law that counts the decisions."""


def replay_batches(
    batches: Iterable[pa.RecordBatch], *, begin_ms: int, has_histories: bool
) -> Iterator[pa.RecordBatch]:
    """Go through whole groups, each in its order (ORDERED), and yield what is found (REPLAYED)."""
    code = code_version()
    current: Again | None = None
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ORDERED.names)
        for group, version, rank, at_ms, kind, form, payload, first, is_end, is_cut in zip(*columns, strict=True):
            if current is None or current.group_id != group:
                if current is not None:
                    yield _told(current)
                current = Again(group, code, Of(first, begin_ms, is_end, is_cut, has_histories))
            if rank == SNAPSHOT:
                current.snapshot(version, form, payload) if payload else current.begin_empty()
            elif rank == TRACE:
                current.trace(version, form, payload, at_ms)
            elif rank == HISTORY:
                current.history(version, payload, at_ms)
            elif rank == GENERATION:
                current.generation(version, payload, at_ms)
            else:
                current.record(version, StoredRecord(kind, form, payload), at_ms)
    if current is not None:
        yield _told(current)


def _told(again: Again) -> pa.RecordBatch:
    again.end()
    return pa.RecordBatch.from_pylist(list(rows_of(again)), schema=REPLAYED)


# The last trace at or before the day that was started from nothing: the chain of what was heard begins there.
_CHAINS: Final = """
    with days(group_id, first, last) as (values {values})
    select d.group_id, coalesce(
        (select max(t.version) from traces t where t.group_id = d.group_id and t.version < d.first
            and t.payload -> 'soft' ->> 'from_empty' = 'true'),
        (select min(t.version) from traces t where t.group_id = d.group_id and t.version between d.first - 1 and d.last)) as since
      from days d
"""
BUNDLE: Final = 500


def chains(rows: Rows, plan: DayPlan) -> dict[str, int]:
    """Return, for each group that has traces of the day, the version from which on they are read."""
    found: dict[str, int] = {}
    groups = [one for one in plan.groups if one.last >= one.first]
    for begin in range(0, len(groups), BUNDLE):
        values = ", ".join(f"({quoted(one.group)}, {one.first}, {one.last})" for one in groups[begin : begin + BUNDLE])
        found |= {
            str(group): int(version) for group, version in rows(_CHAINS.format(values=values)) if version is not None
        }
    return found


def replayed(tables: DayTables, parts: int) -> DataFrame:
    """Return what comes of deciding the day again (``REPLAYED``)."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - executors need no more of this module than the core
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    has_histories = tables.has_histories()

    def rows(frame: DataFrame, rank: int, **said: Any) -> DataFrame:
        """Return a frame in the columns of ORDERED that are not the group's."""
        usual = {
            "version": f.col("version"),
            "rank": f.lit(rank),
            "at_ms": f.col("at_ms"),
            "kind": f.lit(None).cast("string"),
            "form": f.lit(0),
            "payload": f.col("payload").cast("binary"),
            **said,
        }
        return frame.select("group_id", *(value.alias(name) for name, value in usual.items()))

    form = f.col("format")
    bounds = tables.bounds()
    nothing = {"version": f.lit(0).cast("long"), "at_ms": f.lit(0).cast("long"), "payload": f.lit(None).cast("binary")}
    every = [
        rows(bounds.where((f.col("base") == 0) & f.col("known")), SNAPSHOT, **nothing),
        rows(tables.snapshots(), SNAPSHOT, form=form),
        rows(tables.records(), RECORD, version=f.col("seq"), kind=f.col("kind"), form=f.col("version")),
        rows(tables.traces(chains(tables.reader.rows, tables.plan)), TRACE, form=form),
        rows(tables.told_generations(), GENERATION),
        *([rows(tables.histories(), HISTORY)] if has_histories else []),
    ]
    whole = reduce(lambda one, other: one.unionByName(other), every)
    of_group = bounds.select(
        "group_id",
        "first",
        (f.col("ends") & (f.col("missing") == 0)).alias("is_end"),
        (f.col("missing") > 0).alias("is_cut"),
    )
    named = whole.join(f.broadcast(of_group), "group_id").select(*ORDERED.names)
    ordered = named.repartition(parts, "group_id").sortWithinPartitions("group_id", "version", "rank")
    judge = partial(replay_batches, begin_ms=tables.plan.begin_ms, has_histories=has_histories)
    return ordered.mapInArrow(judge, from_arrow_schema(REPLAYED))
