"""Spreads a day over Spark's executors in parts of whole groups, and returns what the parts come to.

Groups of the usual size are read, made flat and looked at in one step, so that nothing of them is exchanged. What is
read in several pieces (a very large group; everything, where the rows come by JDBC) is brought together by group first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from batonpass.audit.findings import GROUP
from batonpass.audit.flatten import CHANGES, bounds_rows
from batonpass.audit.outcomes import OUTCOME, outcome
from batonpass.audit.part import Limits
from batonpass.audit.source import Wanted, fetch_each
from batonpass.audit.tables import GROUPS_PER_PART

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from batonpass.audit.plan import GroupPart
    from batonpass.audit.tables import DayTables

MEMORY: Final = "spark.batonpass.partMemory"
"""Spark's setting of how much memory one part may take ("2GB"); beyond it goes on on disk."""
MEMORY_SHARE: Final = 60
"""Where that is not set: the per cent of a machine's memory that its parts have together."""


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


LOOKED: Final = from_arrow_schema(OUTCOME)
LEAST: Final = 10_000
"""A part of fewer records costs more for being one than it saves."""


@dataclass(frozen=True, slots=True)
class Look:
    """A step of ``mapInArrow``: looks at all rows that its partition has, as one part."""

    begin_ms: int
    end_ms: int
    limits: Limits
    frames: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the rows (``CHANGES``) come to (``OUTCOME``)."""
        rows = (pa.RecordBatch.from_arrays(one.columns, schema=CHANGES) for one in batches)
        first = next(rows, None)
        if first is not None:
            yield from outcome(chain([first], rows), self.begin_ms, self.end_ms, self.limits, frames=self.frames)


@dataclass(frozen=True, slots=True)
class ReadAndLook:
    """A step of ``mapInArrow``: reads the parts whose numbers it is given, each with its queries, and looks at each."""

    url: str
    parts: tuple[tuple[tuple[GroupPart, ...], tuple[Wanted, ...]], ...]
    look: Look

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the parts come to (``OUTCOME``)."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                groups, wanted = self.parts[number]
                yield from self.look(chain(bounds_rows(groups), fetch_each(self.url, wanted)))


def looked(tables: DayTables, slots: Slots, *, frames: bool) -> DataFrame:
    """Return what the day comes to, one row for each finding, measure and, with ``frames``, gap, warmup and interval.

    Nothing is read before an action asks for it.
    """
    plan = tables.plan
    look = Look(plan.begin_ms, plan.end_ms, Limits(1, slots.memory), frames)
    whole = [one for one in plan.groups if one.last - one.base <= tables.chunk] if tables.url else []
    found: list[DataFrame] = []
    if whole and tables.url:
        count = part_count(tables.only(whole).plan.records, len(whole), slots.cores, tables.chunk)
        parts = tuple((tuple(some), tables.only(some).queries()) for some in bundles(whole, count))
        numbers = tables.spark.range(0, len(parts), 1, len(parts))
        found.append(numbers.mapInArrow(ReadAndLook(tables.url, parts, look), LOOKED))
    at_once = set(whole)
    rest = [one for one in plan.groups if one not in at_once]
    if rest:
        few = tables.only(rest)
        count = min(len(rest), part_count(few.plan.records, len(rest), slots.cores, tables.chunk))
        # Fewer parts than cores: each may use more of them.
        wide = replace(look, limits=look.limits._replace(threads=max(1, slots.of_executor // count)))
        found.append(few.changes().repartition(count, f.col(GROUP)).mapInArrow(wide, LOOKED))
    return reduce(lambda one, other: one.unionByName(other), found)


def of_kinds(looked: DataFrame, kinds: Sequence[str]) -> DataFrame:
    """Return the rows of some kinds, each kind in its column."""
    is_wanted = reduce(lambda one, other: one | other, (f.col(kind).isNotNull() for kind in kinds))
    return looked.where(is_wanted).select(GROUP, *kinds)


def frame_of(looked: DataFrame, kind: str) -> DataFrame:
    """Return the rows of one kind, with its columns."""
    return looked.where(f.col(kind).isNotNull()).select(GROUP, f"{kind}.*")


def part_count(records: int, groups: int, cores: int, most: int) -> int:
    """Return how many parts to make: work for all cores to the end, each with at most about ``most`` records."""
    fit = max(-(-records // most), -(-groups // GROUPS_PER_PART), 1)
    worthwhile = max(fit, min(cores, records // LEAST))
    return worthwhile if worthwhile <= cores else -(-worthwhile // cores) * cores


def bundles(groups: Sequence[GroupPart], count: int) -> list[list[GroupPart]]:
    """Return groups in so many bundles, or fewer, of about the same number of records: the largest groups first."""
    made: list[list[GroupPart]] = [[] for _ in range(count)]
    filled = [(0, 0, place) for place in range(count)]
    for one in sorted(groups, key=lambda one: (one.base - one.last, one.group)):
        records, members, place = heapq.heappop(filled)
        made[place].append(one)
        if len(made[place]) < GROUPS_PER_PART:
            heapq.heappush(filled, (records + max(1, one.last - one.base), members + 1, place))
    return [some for some in made if some]
