"""The tables of the service as frames: each with the columns that the audit relies on, named and typed here.

What each of these frames holds is the audit's contract with the schema in migrations/; a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from batonpass.audit import source
from batonpass.audit.damage import COPIES, WHOLE_LAG
from batonpass.audit.flatten import CHANGES, bounds_rows
from batonpass.audit.plan import CHUNK, DayPlan, GroupPart, around, quoted

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
BESIDE: Final = _schema(("group_id", TEXT), ("version", LONG), ("at_ms", LONG), ("payload", TEXT))
WARMUP_LAGS: Final = _schema(("group_id", TEXT), ("at_ms", LONG), ("task", TEXT), ("member", TEXT), ("lag", LONG))
BOUNDS: Final = _schema(
    *(("group_id", TEXT), ("base", LONG), ("first", LONG), ("last", LONG), ("known", t.BooleanType())),
    *(("missing", LONG), ("ends", t.BooleanType())),
)
CHANGED: Final = from_arrow_schema(CHANGES)


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


class Reader(Protocol):
    """A way to read Postgres."""

    def rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query whose answer is small."""
        ...

    def frame(self, select: str, predicates: Sequence[str], schema: t.StructType, form: str = "") -> DataFrame:
        """Return what a query brings, one partition for each predicate, made flat where ``form`` says so."""
        ...


class AdbcReader:
    """Reads without a jar, in Spark's Python workers."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._spark = spark
        self._url = plain_url(url)

    @property
    def url(self) -> str:
        """Where a worker reads, given queries."""
        return self._url

    def rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query whose answer is small."""
        return source.rows(self._url, sql)

    def frame(self, select: str, predicates: Sequence[str], schema: t.StructType, form: str = "") -> DataFrame:
        """Return what a query brings, one partition for each predicate, made flat where ``form`` says so."""
        wanted = queries(select, predicates, schema, form)
        if not wanted:
            return small(self._spark, [], CHANGED if form else schema)
        numbers = self._spark.range(0, len(wanted), 1, len(wanted))
        return numbers.mapInArrow(source.reading(self._url, wanted), CHANGED if form else schema)


class JdbcReader:
    """Reads by JDBC; the driver is a jar of Spark's (``spark.jars`` or ``spark.jars.packages``)."""

    FETCHED: Final = "10000"

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._spark = spark
        self._url, self._properties = jdbc_url(url)
        self._properties |= {"driver": "org.postgresql.Driver", "fetchsize": self.FETCHED}

    def rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query whose answer is small."""
        read = self._spark.read.jdbc(self._url, f"({sql}) as asked", properties=self._properties)
        return [tuple(row) for row in read.collect()]

    def frame(self, select: str, predicates: Sequence[str], schema: t.StructType, form: str = "") -> DataFrame:
        """Return what a query brings, one partition for each predicate, made flat where ``form`` says so."""
        if not predicates:
            return small(self._spark, [], CHANGED if form else schema)
        read = self._spark.read.jdbc(
            self._url, f"({select}) as whole", predicates=list(predicates), properties=self._properties
        )
        typed = read.select(*(f.col(one.name).cast(one.dataType) for one in schema))
        if not form:
            return typed
        return typed.mapInArrow(source.FORMS[form], CHANGED)


def queries(select: str, predicates: Sequence[str], schema: t.StructType, form: str = "") -> list[source.Wanted]:
    """Return the queries, one for each predicate, whose rows are wanted in a form."""
    columns = ", ".join(schema.names)
    return [(f"select {columns} from ({select}) as whole where {one}", form) for one in predicates]  # noqa: S608


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


def plain_url(url: str) -> str:
    """Return a database's URL without the name of a Python driver in it."""
    return re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", url)


def jdbc_url(url: str) -> tuple[str, dict[str, str]]:
    """Return a database's URL as JDBC has it, and the properties that hold who connects."""
    parts = urlsplit(plain_url(url))
    properties = dict(parse_qsl(parts.query))
    if parts.username:
        properties["user"] = unquote(parts.username)
    if parts.password:
        properties["password"] = unquote(parts.password)
    place = f"{parts.hostname or 'localhost'}:{parts.port or 5432}"
    return f"jdbc:postgresql://{place}{parts.path or '/'}", properties


@dataclass(frozen=True, slots=True)
class DayTables:
    """What is read for one day; nothing is read before an action asks for it."""

    spark: SparkSession
    reader: Reader
    plan: DayPlan
    chunk: int = CHUNK

    def bounds(self) -> DataFrame:
        """Return one row a group: where its day begins and ends (``BOUNDS``)."""
        rows = [
            (one.group, one.base, one.first, one.last, one.known, one.missing, one.ends) for one in self.plan.groups
        ]
        return small(self.spark, rows, BOUNDS)

    @property
    def url(self) -> str | None:
        """Where a worker can read by itself, given ``queries``; None where rows come another way."""
        return self.reader.url if isinstance(self.reader, AdbcReader) else None

    def only(self, groups: Sequence[GroupPart]) -> DayTables:
        """Return the tables of these groups alone."""
        return replace(self, plan=replace(self.plan, groups=tuple(groups)))

    def queries(self) -> tuple[source.Wanted, ...]:
        """Return the queries that bring all rows of the groups (``CHANGED``), but for their bounds."""
        return tuple(one for sources in self._sources(1) for one in queries(*sources))

    def changes(self) -> DataFrame:
        """Return all rows of the groups (``CHANGED``).

        They are what became so since the snapshots that the day starts from, the generations that readers are told of,
        how far warmups had come, and the bounds of the day.
        """
        bounds: Any = pa.Table.from_batches(bounds_rows(self.plan.groups), CHANGES)
        frame: DataFrame = self.spark.createDataFrame(bounds, CHANGED)
        for select, predicates, schema, form in self._sources(SAMPLE_PIECES):
            frame = frame.unionByName(self.reader.frame(select, predicates, schema, form).select(*CHANGED.names))
        return frame

    def _sources(self, pieces: int) -> tuple[tuple[str, list[str], t.StructType, str], ...]:
        """Return what rows are made of, each with the form in which it is wanted."""
        return (
            (SELECTS["records"], self._record_ranges(), RECORDS, "records"),
            (SELECTS["snapshots"], self._bases(), SNAPSHOTS, "snapshots"),
            (SELECTS["generations"], self._of_versions(), GENERATIONS, "generations"),
            (SELECTS["warmups"], self._sampled(pieces), WARMUP_LAGS, "lags"),
        )

    def records(self) -> DataFrame:
        """Return the records as they are stored, from the snapshots on that the day starts from."""
        return self.reader.frame(SELECTS["records"], self._record_ranges(), RECORDS)

    def snapshots(self) -> DataFrame:
        """Return the snapshots that the day starts from, at most one a group."""
        return self.reader.frame(SELECTS["snapshots"], self._bases(), SNAPSHOTS)

    def generations(self) -> DataFrame:
        """Return the generations of the day."""
        return self.reader.frame(SELECTS["generations"], self._of_versions(), GENERATIONS)

    def told_generations(self) -> DataFrame:
        """Return the generations of the day, whole (``codec.generations``)."""
        return self.reader.frame(SELECTS["told"], self._of_versions(), BESIDE)

    def has_histories(self) -> bool:
        """Say whether histories of tasks are kept of the day; where retention has taken them, it took all."""
        within = self._around_day()
        asked = [f"exists (select from {name} where {within})" for name in ("assignment_events", "fresh_changes")]
        ((found,),) = self.reader.rows(f"select {' or '.join(asked)} as found")
        return bool(found)

    def histories(self) -> DataFrame:
        """Return the histories of tasks, as readers are shown them: those of one decision in one row."""
        return self.reader.frame(SELECTS["histories"].format(within=self._around_day()), self._of_versions(), BESIDE)

    def _around_day(self) -> str:
        return f"at >= '{around(self.plan, -1)}' and at < '{around(self.plan, 1)}'"

    def _of_versions(self) -> list[str]:
        return [
            _any(
                f"(group_id = {quoted(one.group)} and version between {one.first - 1} and {one.last - 1})"
                for one in some
            )
            for some in _bundles([one for one in self.plan.groups if one.last >= one.first])
        ]

    def traces(self, since: dict[str, int]) -> DataFrame:
        """Return the traces of each group from a version on, to the end of the day."""
        wanted = [one for one in self.plan.groups if one.group in since]
        predicates = [
            _any(
                f"(group_id = {quoted(one.group)} and version between {since[one.group]} and {one.last - 1})"
                for one in some
            )
            for some in _bundles(wanted)
        ]
        return self.reader.frame(SELECTS["traces"], predicates, TRACES)

    def _sampled(self, pieces: int) -> list[str]:
        begin = datetime.fromtimestamp(self.plan.begin_ms / 1_000, UTC)
        edges = [begin + timedelta(days=1) * place / pieces for place in range(pieces + 1)]
        named = _groups_of(self.plan)
        return [f"at >= '{low.isoformat()}' and at < '{high.isoformat()}'{named}" for low, high in pairwise(edges)]

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
SAMPLE_PIECES: Final = 8
"""Into so many pieces the samples of a day are cut where Spark reads them."""


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


def _range(group: str, low: int, high: int) -> str:
    return f"(group_id = {quoted(group)} and seq between {low} and {high})"


def _any(predicates: Any) -> str:
    return " or ".join(predicates)


def _groups_of(plan: DayPlan) -> str:
    if len(plan.groups) > GROUPS_PER_PART:
        return ""
    return f" and group_id in ({', '.join(quoted(one.group) for one in plan.groups)})"
