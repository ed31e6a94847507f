"""Spreads a day over Spark's executors in parts of whole groups, and returns their results.

A part is read, made flat and audited in one step, so that nothing of it is exchanged. All results have the same
columns: each row is of one kind, and the columns of the other kinds are null.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from batonpass.audit import checks, downtime, measures, pictures, timeline
from batonpass.audit.findings import GROUP
from batonpass.audit.flatten import bounds_rows
from batonpass.audit.part import DEFAULT_LIMITS, KEPT, Columns, Limits, Part, kept
from batonpass.audit.tables import GROUPS_PER_PART, Query, read_flat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from batonpass.audit.plan import GroupPlan
    from batonpass.audit.tables import DayTables

MEMORY: Final = "spark.batonpass.partMemory"
"""Spark's setting of how much memory one part may take ("2GB"); beyond that it uses the disk."""
MEMORY_SHARE: Final = 60
"""If that is not set: the percentage of a machine's memory that its parts have together."""


class Slots(NamedTuple):
    """Where parts run: on how many cores in all, on how many of one executor, with how much memory for each part."""

    cores: int
    of_executor: int
    memory: str


def slots_of(session: SparkSession) -> Slots:
    """Return where the parts of a session run."""
    context = session.sparkContext
    cores = context.defaultParallelism
    settings = context.getConf()
    is_local = str(context.master).startswith("local")
    of_executor = cores if is_local else int(settings.get("spark.executor.cores", "1") or "1")
    memory = settings.get(MEMORY, None) or f"{max(1, MEMORY_SHARE // of_executor)}%"
    return Slots(cores, of_executor, memory)


TYPES: Final[Mapping[str, pa.DataType]] = {
    "varchar": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "bigint[]": pa.list_(pa.int64()),
}


class Kind(NamedTuple):
    """The columns of one kind of results, and what yields its rows; ``is_frame``: they grow with the day."""

    columns: Columns
    rows: Callable[[Part], Iterator[pa.RecordBatch]]
    is_frame: bool


def _table(name: str, columns: Columns, *, is_frame: bool) -> Kind:
    return Kind(columns, lambda part: part.arrow(columns, f"select * from {name}"), is_frame)  # noqa: S608 - our own words


KINDS: Final[Mapping[str, Kind]] = {
    "finding": Kind(KEPT, kept, is_frame=False),
    "day": _table("days", measures.DAY, is_frame=False),
    "cause": _table("causes", downtime.CAUSES, is_frame=False),
    "gap": _table("gaps", downtime.GAPS, is_frame=True),
    "warmup": _table("warmups", timeline.WARMUPS, is_frame=True),
    "interval": _table("intervals", timeline.INTERVALS, is_frame=True),
    "name": _table("names", pictures.NAMES, is_frame=True),
}


def _struct(columns: Columns) -> pa.DataType:
    return pa.struct([pa.field(name, TYPES[kind]) for name, kind in columns.items() if name != GROUP])


RESULTS: Final = pa.schema(
    [pa.field(GROUP, pa.string()), *(pa.field(name, _struct(kind.columns)) for name, kind in KINDS.items())]
)
"""The group, and for each kind one column that holds the rest of its columns."""


def part_results(
    rows: Iterable[pa.RecordBatch], begin_ms: int, end_ms: int, limits: Limits = DEFAULT_LIMITS, *, frames: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the results of a part of the day (``RESULTS``), from all rows of its groups (``flatten.CHANGES``).

    Without ``frames`` the results that grow with the day are left out.
    """
    with Part(rows, begin_ms, end_ms, limits) as part:
        for step in (*timeline.STEPS, *checks.STEPS, *downtime.STEPS, *measures.STEPS):
            step(part)
        if frames:
            timeline.intervals(part)
            pictures.names(part)
        for name, kind in KINDS.items():
            if frames or not kind.is_frame:
                for batch in kind.rows(part):
                    yield _wrapped(name, batch)


def _wrapped(name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    whole = RESULTS.field(name)
    columns = [batch.column(one.name).cast(one.type) for one in whole.type]
    filled = pa.StructArray.from_arrays(columns, fields=list(whole.type))
    arrays = [
        batch.column(GROUP).cast(pa.string())
        if one.name == GROUP
        else filled
        if one.name == name
        else pa.nulls(batch.num_rows, one.type)
        for one in RESULTS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RESULTS)


SPARK_RESULTS: Final = from_arrow_schema(RESULTS)
LEAST: Final = 10_000
"""A part of fewer records costs more than it saves."""


@dataclass(frozen=True, slots=True)
class AuditParts:
    """A step of ``mapInArrow``: reads the parts whose numbers it is given, each by its queries, and audits them."""

    url: str
    parts: tuple[tuple[tuple[GroupPlan, ...], tuple[Query, ...]], ...]
    begin_ms: int
    end_ms: int
    limits: Limits
    frames: bool

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of the parts (``RESULTS``)."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                groups, queries = self.parts[number]
                rows = chain(bounds_rows(groups), read_flat(self.url, queries))
                yield from part_results(rows, self.begin_ms, self.end_ms, self.limits, frames=self.frames)


def day_results(tables: DayTables, slots: Slots, *, frames: bool) -> DataFrame:
    """Return the results of the day, one row for each finding, measure and, with ``frames``, gap, warmup and interval.

    Nothing is read before an action asks for it.
    """
    plan = tables.plan
    count = part_count(plan.records, len(plan.groups), slots.cores, tables.chunk)
    parts = tuple((tuple(some), tables.queries(some)) for some in bundles(plan.groups, count))
    # Fewer parts than cores: each may use more of them.
    limits = Limits(max(1, slots.of_executor // max(1, len(parts))), slots.memory)
    step = AuditParts(tables.url, parts, plan.begin_ms, plan.end_ms, limits, frames)
    return tables.spark.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(step, SPARK_RESULTS)


def of_kinds(results: DataFrame, kinds: Sequence[str]) -> DataFrame:
    """Return the rows of some kinds, each kind in its column."""
    is_wanted = reduce(lambda one, other: one | other, (f.col(kind).isNotNull() for kind in kinds))
    return results.where(is_wanted).select(GROUP, *kinds)


def frame_of(results: DataFrame, kind: str) -> DataFrame:
    """Return the rows of one kind, with its columns."""
    return results.where(f.col(kind).isNotNull()).select(GROUP, f"{kind}.*")


def part_count(records: int, groups: int, cores: int, most: int) -> int:
    """Return how many parts to make: work for all cores to the end, each with at most about ``most`` records."""
    fit = max(-(-records // most), -(-groups // GROUPS_PER_PART), 1)
    worthwhile = max(fit, min(cores, records // LEAST))
    return worthwhile if worthwhile <= cores else -(-worthwhile // cores) * cores


def bundles(groups: Sequence[GroupPlan], count: int) -> list[list[GroupPlan]]:
    """Return groups in so many bundles, or fewer, of about the same number of records: the largest groups first."""
    made: list[list[GroupPlan]] = [[] for _ in range(count)]
    filled = [(0, 0, place) for place in range(count)]
    for one in sorted(groups, key=lambda one: (one.base - one.last, one.group)):
        records, members, place = heapq.heappop(filled)
        made[place].append(one)
        if len(made[place]) < GROUPS_PER_PART:
            heapq.heappush(filled, (records + max(1, one.last - one.base), members + 1, place))
    return [some for some in made if some]
