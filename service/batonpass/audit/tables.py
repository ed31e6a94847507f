"""The tables of the service as Spark reads them: each with the columns that the audit relies on, named and typed here.

Queries are carried out by Spark's Python workers, each for a partition of its own, so that reading is spread as the
rest of the work is. What each query holds is the audit's contract with the schema in migrations/; a test holds the two
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from batonpass.audit.database import fetch, rows
from batonpass.audit.flatten import flatten_generations, flatten_lags, flatten_records, flatten_snapshots
from batonpass.audit.plan import CHUNK, DayPlan, GroupPart, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _schema(*columns: tuple[str, t.DataType]) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns])


TEXT, LONG, INT, DOUBLE = t.StringType(), t.LongType(), t.IntegerType(), t.DoubleType()

RECORDS: Final = _schema(
    *(("group_id", TEXT), ("seq", LONG), ("at_ms", LONG), ("coordinator_epoch", LONG)),
    *(("kind", TEXT), ("version", INT), ("payload", TEXT)),
)
SNAPSHOTS: Final = _schema(
    ("group_id", TEXT), ("version", LONG), ("at_ms", LONG), ("format", INT), ("payload", t.BinaryType())
)
GENERATIONS: Final = _schema(
    *(("group_id", TEXT), ("number", LONG), ("version", LONG), ("at_ms", LONG), ("members", INT), ("tasks", INT)),
    *(("moves", INT), ("lower_bound", INT), ("score", DOUBLE)),
)
TRACES: Final = _schema(
    *(("group_id", TEXT), ("version", LONG), ("at_ms", LONG), ("format", INT), ("code", TEXT), ("payload", TEXT)),
)
SHOWN: Final = _schema(("group_id", TEXT), ("version", LONG), ("at_ms", LONG), ("payload", TEXT))
WARMUP_LAGS: Final = _schema(("group_id", TEXT), ("at_ms", LONG), ("task", TEXT), ("member", TEXT), ("lag", LONG))

COPIES: Final = "json_array_elements(case when json_typeof(copies) = 'array' then copies else '[]' end)"
"""The copies of a sample; a sample that is none has none."""
WHOLE_LAG: Final = r"case when copy ->> 4 ~ '^\d{1,18}$' then (copy ->> 4)::bigint end"
"""The lag of a copy; null where it is not known, or no whole number."""


def _ms(column: str) -> str:
    # What is no instant ("infinity") is one that cannot be, so that it is found where it stands (``flatten.MOST``).
    return f"case when isfinite({column}) then (date_part('epoch', {column}) * 1000)::bigint else {2**63 - 1} end"


CHANGE_COLUMNS: Final = "group_id, version, place, task_id, member_id, kind, role_before, role, generation, member_epoch, token, state, warm, why"

SELECTS: Final = {
    "records": f"select group_id, seq, {_ms('at')} as at_ms, coordinator_epoch, kind, version::int as version,"  # noqa: S608
    " payload::text as payload from record_log",
    "snapshots": f"select group_id, version, {_ms('at')} as at_ms, format::int as format, payload from snapshots",  # noqa: S608
    "generations": f"select group_id, number, version, {_ms('at')} as at_ms, members, tasks, moves, lower_bound, score"  # noqa: S608
    " from generations",
    "traces": f"select group_id, version, {_ms('at')} as at_ms, format::int as format, code, payload::text as payload"  # noqa: S608
    " from traces",
    # As the codec has them (``codec.changes``, ``codec.generations``), a row for each decision.
    "histories": "select group_id, version, min(at_ms) as at_ms, json_agg(json_build_array(task_id, member_id, kind,"  # noqa: S608
    " role_before, role, at_ms, generation, member_epoch, token, state, warm, why) order by place)::text as payload"
    f" from (select {CHANGE_COLUMNS}, {_ms('at')} as at_ms from assignment_events where {{within}} union all"
    f" select {CHANGE_COLUMNS}, {_ms('at')} from fresh_changes where {{within}}) as shown group by group_id, version",
    "told": f"select group_id, version, {_ms('at')} as at_ms, json_build_array(number, group_epoch, {_ms('at')}, triggers,"  # noqa: S608
    " members, tasks, moves, lower_bound, warmups, score_before, score, decide_ms, moved, reasons)::text as payload"
    " from generations",
    "warmups": f"select group_id, {_ms('at')} as at_ms, copy ->> 0 as task, copy ->> 1 as member,"  # noqa: S608
    f" {WHOLE_LAG} as lag, at from samples cross join lateral {COPIES} as copy where copy ->> 2 = 'warmup'",
}


FORMS: Final[Mapping[str, Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]]] = {
    "records": flatten_records,
    "snapshots": flatten_snapshots,
    "generations": flatten_generations,
    "warmups": flatten_lags,
}
"""What makes the rows of a query of ``SELECTS`` flat (``CHANGES``), so that payloads never travel."""

Query = tuple[str, str]
"""A query, and of which name in ``FORMS`` its rows are."""


def read_flat(url: str, queries: Sequence[Query]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of queries, made flat where they are read."""
    for (_, form), batches in zip(queries, fetch(url, [sql for sql, _ in queries]), strict=True):
        yield from FORMS[form](batches)


def _read(url: str, queries: Sequence[str], numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn the numbers of queries into what they bring: a step of ``mapInArrow``.

    It is no data source of Spark's own, because each of those starts interpreters only to be planned, which takes
    longer than to read a small table.
    """
    for batch in numbers:
        for batches in fetch(url, [queries[number] for number in batch.column(0).to_pylist()]):
            yield from batches


def small(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: t.StructType | str) -> DataFrame:
    """Return a few rows of the driver's as a frame; they go over as Arrow, for which no worker has to be started."""
    wanted = t.StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(wanted, t.StructType)  # noqa: S101 - for the type checker
    columns = list(zip(*rows, strict=True)) or [()] * len(wanted)
    arrow = to_arrow_schema(wanted)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, arrow.types, strict=True)]
    whole: Any = pa.Table.from_arrays(arrays, schema=arrow)
    frame: DataFrame = spark.createDataFrame(whole, wanted)
    return frame


@dataclass(frozen=True, slots=True)
class DayTables:
    """What is read for one day, in Spark's Python workers; nothing is read before an action asks for it."""

    spark: SparkSession
    url: str
    plan: DayPlan
    chunk: int = CHUNK

    def frame(self, select: str, predicates: Sequence[str], schema: t.StructType) -> DataFrame:
        """Return what a query brings, one partition for each predicate."""
        if not predicates:
            return small(self.spark, [], schema)
        queries = tuple(_where(select, one, schema) for one in predicates)
        numbers = self.spark.range(0, len(queries), 1, len(queries))
        return numbers.mapInArrow(partial(_read, self.url, queries), schema)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query whose answer is small."""
        return rows(self.url, sql)

    def only(self, groups: Sequence[GroupPart]) -> DayTables:
        """Return the tables of these groups alone."""
        return replace(self, plan=replace(self.plan, groups=tuple(groups)))

    def queries(self) -> tuple[Query, ...]:
        """Return the queries that bring all rows of the groups (``CHANGES``), but for their bounds.

        They are what became so since the snapshots that the day starts from, the generations that readers are told of,
        and how far warmups had come.
        """
        sources = (
            ("records", self._record_ranges(), RECORDS),
            ("snapshots", self._bases(), SNAPSHOTS),
            ("generations", self._of_versions(), GENERATIONS),
            ("warmups", [self._sampled()], WARMUP_LAGS),
        )
        return tuple(
            (_where(SELECTS[form], one, schema), form) for form, predicates, schema in sources for one in predicates
        )

    def records(self) -> DataFrame:
        """Return the records as they are stored, from the snapshots on that the day starts from."""
        return self.frame(SELECTS["records"], self._record_ranges(), RECORDS)

    def snapshots(self) -> DataFrame:
        """Return the snapshots that the day starts from, at most one a group."""
        return self.frame(SELECTS["snapshots"], self._bases(), SNAPSHOTS)

    def generations(self, most: int) -> list[tuple[Any, ...]]:
        """Return the generations of the day that moved most: group, number, when, moves, lower bound."""
        found = [
            row
            for one in self._of_versions()
            for row in self.rows(
                f"select group_id, number, at_ms, moves, lower_bound from ({SELECTS['generations']}) as whole"  # noqa: S608
                f" where {one} order by moves desc, group_id, number limit {most}"
            )
        ]
        return sorted(found, key=lambda row: (-row[3], row[0], row[1]))[:most]

    def _of_versions(self) -> list[str]:
        return [
            _any(
                f"(group_id = {quoted(one.group)} and version between {one.first - 1} and {one.last - 1})"
                for one in some
            )
            for some in _bundles([one for one in self.plan.groups if one.last >= one.first])
        ]

    def _sampled(self) -> str:
        begin = datetime.fromtimestamp(self.plan.begin_ms / 1_000, UTC)
        end = begin + timedelta(days=1)
        return f"at >= '{begin.isoformat()}' and at < '{end.isoformat()}'{_groups_of(self.plan)}"

    def _record_ranges(self) -> list[str]:
        made: list[str] = []
        small: list[GroupPart] = []
        for one in self.plan.groups:
            if one.last - one.base > self.chunk:
                made += [
                    _range(one.group, low, min(one.last, low + self.chunk - 1))
                    for low in range(one.begin, one.last + 1, self.chunk)
                ]
            elif one.last >= one.begin:
                small.append(one)
        made += [_any(_range(one.group, one.begin, one.last) for one in some) for some in _bundles(small, self.chunk)]
        return made

    def _bases(self) -> list[str]:
        based = [one for one in self.plan.groups if one.base and one.known]
        return [
            _any(f"(group_id = {quoted(one.group)} and version = {one.base})" for one in some)
            for some in _bundles(based)
        ]


GROUPS_PER_PART: Final = 200


def _bundles(groups: Sequence[GroupPart], chunk: int = CHUNK) -> list[list[GroupPart]]:
    """Return groups in bundles that are read together."""
    bundles: list[list[GroupPart]] = []
    size = chunk
    for one in groups:
        if size >= chunk or len(bundles[-1]) >= GROUPS_PER_PART:
            bundles.append([])
            size = 0
        bundles[-1].append(one)
        size += max(0, one.last - one.base)
    return bundles


def _where(select: str, predicate: str, schema: t.StructType) -> str:
    return f"select {', '.join(schema.names)} from ({select}) as whole where {predicate}"  # noqa: S608 - our own words


def _range(group: str, low: int, high: int) -> str:
    return f"(group_id = {quoted(group)} and seq between {low} and {high})"


def _any(predicates: Any) -> str:
    return " or ".join(predicates)


def _groups_of(plan: DayPlan) -> str:
    if len(plan.groups) > GROUPS_PER_PART:
        return ""
    return f" and group_id in ({', '.join(quoted(one.group) for one in plan.groups)})"
