"""The tables of the service as the audit reads them: for each the columns that it relies on.

Spark's Python workers carry out the queries, each for its own groups, so that reading is spread as the rest of the work
is. What each query holds is the audit's contract with the schema in migrations/; a test checks that the two agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from batonpass.audit.database import Row, rows
from batonpass.audit.plan import DayPlan, batched, quoted
from batonpass.codec.groups import GROUP_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


COPIES: Final = "json_array_elements(case when json_typeof(copies) = 'array' then copies else '[]' end)"
"""The copies of a sample; a sample that is not an array has none."""
WHOLE_LAG: Final = r"case when copy ->> 4 ~ '^\d{1,18}$' then (copy ->> 4)::bigint end"
"""The lag of a copy; null if it is not known, or not a whole number."""


def _ms(column: str) -> str:
    # "infinity" becomes an impossible instant, so that it is found in the row that has it (``entries``).
    return f"case when isfinite({column}) then (date_part('epoch', {column}) * 1000)::bigint when {column} is not null then {2**63 - 1} end"


CHANGE_COLUMNS: Final = "group_id, version, place, task_id, member_id, kind, role_before, role, generation, member_epoch, token, state, warm, why, heard_at"

SELECTS: Final = {
    "records": f"select group_id, seq, {_ms('at')} as at_ms, coordinator_epoch, kind, version::int as version,"  # noqa: S608
    " payload::text as payload from record_log",
    "snapshots": f"select group_id, version, {_ms('at')} as at_ms, format::int as format, payload from snapshots"  # noqa: S608
    f" where format <= {GROUP_VERSION}",
    "generations": f"select group_id, number, version, {_ms('at')} as at_ms, members, tasks, moves, lower_bound, score"  # noqa: S608
    " from generations",
    "traces": f"select group_id, version, {_ms('at')} as at_ms, format::int as format, code, payload::text as payload"  # noqa: S608
    " from traces",
    # Task histories and generations whole, as the codec has them (``codec.changes``, ``codec.generations``): a row for
    # each decision.
    "histories": "select group_id, version, min(at_ms) as at_ms, json_agg(json_build_array(task_id, member_id, kind,"  # noqa: S608
    " role_before, role, at_ms, generation, member_epoch, token, state, warm, why, heard_ms) order by place)::text as payload"
    f" from (select {CHANGE_COLUMNS}, {_ms('at')} as at_ms, {_ms('heard_at')} as heard_ms from assignment_events where {{within}} union all"
    f" select {CHANGE_COLUMNS}, {_ms('at')}, {_ms('heard_at')} from fresh_changes where {{within}}) as shown group by group_id, version",
    "whole_generations": f"select group_id, version, {_ms('at')} as at_ms, json_build_array(number, group_epoch, {_ms('at')}, triggers,"  # noqa: S608
    " members, tasks, moves, lower_bound, warmups, score_before, score, decide_ms, moved, reasons)::text as payload"
    " from generations",
    "warmups": f"select group_id, {_ms('at')} as at_ms, copy ->> 0 as task, copy ->> 1 as member,"  # noqa: S608
    f" {WHOLE_LAG} as lag, at from samples cross join lateral {COPIES} as copy where copy ->> 2 = 'warmup'",
}


def small(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """Return a few rows of the driver as a frame; they are sent as Arrow, for which no worker has to be started."""
    wanted = t.StructType.fromDDL(schema)
    assert isinstance(wanted, t.StructType)  # noqa: S101 - for the type checker
    arrow = to_arrow_schema(wanted)
    columns = list(zip(*rows, strict=True)) or [()] * len(arrow)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, arrow.types, strict=True)]
    whole: Any = pa.Table.from_arrays(arrays, schema=arrow)
    frame: DataFrame = spark.createDataFrame(whole, wanted)
    return frame


@dataclass(frozen=True, slots=True)
class DayTables:
    """What is read for one day: by which session, and from where."""

    spark: SparkSession
    url: str
    plan: DayPlan

    def rows(self, sql: str) -> list[Row]:
        """Return the rows of a query whose answer is small."""
        return rows(self.url, sql)

    def generations(self, most: int) -> list[Row]:
        """Return the generations of the day that moved most: group, number, when, moves, lower bound."""
        found: list[Row] = []
        for some in batched([one for one in self.plan.groups if one.first <= one.last]):
            of_day = " or ".join(
                f"(group_id = {quoted(one.group)} and version between {one.first - 1} and {one.last - 1})"
                for one in some
            )
            found += self.rows(
                f"select group_id, number, at_ms, moves, lower_bound from ({SELECTS['generations']}) as whole"  # noqa: S608
                f" where {of_day} order by moves desc, group_id, number limit {most}"
            )
        return sorted(found, key=lambda row: (-row[3], row[0], row[1]))[:most]
