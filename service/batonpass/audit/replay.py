"""Makes the decisions of a day again, in Spark: reads what the log has of each group, in order, for ``GroupReplay``.

`group_replay` decides what is made again, what is compared, and what is a finding. Runs on the executors, which return
findings and counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from batonpass.audit.database import fetch, rows
from batonpass.audit.group_replay import GroupReplay
from batonpass.audit.plan import Ask, DayPlan, GroupPlan, quoted
from batonpass.audit.spread import bundles, part_count
from batonpass.audit.tables import SELECTS
from batonpass.codec.code import code_version
from batonpass.codec.records import StoredRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from batonpass.audit.tables import DayTables

SNAPSHOT, RECORD, TRACE, HISTORY, GENERATION = range(5)
"""The order in which rows of one version are taken: a snapshot or the last record up to it, then the other rows of the
decision that was made there."""

REPLAYED: Final = pa.schema(
    [
        *(("group_id", pa.string()), ("law", pa.string()), ("severity", pa.string()), ("task", pa.string())),
        *(("member", pa.string()), ("detail", pa.string())),
        *(("sequences", pa.list_(pa.int64())), ("at", pa.list_(pa.int64()))),
        *((name, pa.int64()) for name in ("replayed", "differing", "untraced", "left_out")),
    ]
)
"""Findings, and for each group one row without a law that counts decisions, records without a trace, and findings that
were left out."""


class LogRow(NamedTuple):
    """One row that the replay of a group takes; ``rank`` is one of those above."""

    version: int
    rank: int
    at_ms: int
    kind: str | None
    form: int
    payload: bytes


_COLUMNS: Final[Mapping[int, tuple[str, str]]] = {
    SNAPSHOT: ("snapshots", "version, at_ms, null::text, format, payload"),
    RECORD: ("records", "seq, at_ms, kind, version, convert_to(payload, 'UTF8')"),
    TRACE: ("traces", "version, at_ms, null::text, format, convert_to(payload, 'UTF8')"),
    HISTORY: ("histories", "version, at_ms, null::text, 0, convert_to(payload, 'UTF8')"),
    GENERATION: ("whole_generations", "version, at_ms, null::text, 0, convert_to(payload, 'UTF8')"),
}
"""For each rank the name of what is read (``tables.SELECTS``), and the columns of ``LogRow`` that are read of it."""

# The chain of traces begins with the last trace before the day that was started from empty soft state, else with the
# first one of the day.
_CHAIN_BEGIN: Final = """
    select coalesce((select max(version) from traces where group_id = {group} and version < {first}
                        and payload -> 'soft' ->> 'from_empty' = 'true'),
                    (select min(version) from traces where group_id = {group} and version between {first} - 1 and {last}))
"""

AT_ONCE: Final = 5_000
"""So many versions of a group are read, and put in order, at once."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A step of ``mapInArrow``: goes through the groups of the parts whose numbers it is given."""

    url: str
    plan: DayPlan
    parts: tuple[tuple[GroupPlan, ...], ...]
    has_histories: bool

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what is found (``REPLAYED``)."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from map(self._replayed, self.parts[number])

    def _replayed(self, one: GroupPlan) -> pa.RecordBatch:
        group = GroupReplay(one, begin_ms=self.plan.begin_ms, code=code_version(), has_histories=self.has_histories)
        if not one.base and one.known:
            group.begin_empty()
        for version, rank, at_ms, kind, form, payload in self._in_order(one):
            if rank == SNAPSHOT:
                group.snapshot(version, form, payload)
            elif rank == TRACE:
                group.trace(version, form, payload, at_ms)
            elif rank == HISTORY:
                group.history(version, payload, at_ms)
            elif rank == GENERATION:
                group.generation(version, payload, at_ms)
            else:
                group.record(version, StoredRecord(kind or "", form, payload), at_ms)
        group.end()
        return _rows_of(one.group, group)

    def _in_order(self, one: GroupPlan) -> Iterator[LogRow]:
        """Yield what is read of a group, by version and rank."""
        stretches = list(self._stretches(one))
        # Each stretch takes the answers to its own queries, and leaves the others to those behind it.
        answers = fetch(self.url, [sql for queries in stretches for _, sql in queries])
        for queries in stretches:
            found = [
                LogRow(version, rank, *rest)
                for (rank, _), batches in zip(queries, answers, strict=False)
                for batch in batches
                for version, *rest in zip(*(column.to_pylist() for column in batch.columns), strict=True)
            ]
            yield from sorted(found, key=itemgetter(0, 1))

    def _stretches(self, one: GroupPlan) -> Iterator[list[tuple[int, str]]]:
        """Yield the queries of a group, each with the rank of its rows: some versions at once, up to the last ones."""
        within = self.plan.within(hours=1)
        first = {RECORD: one.begin, GENERATION: one.first - 1}
        sql = _CHAIN_BEGIN.format(group=quoted(one.group), first=one.first, last=one.last)
        ((chain_begin,),) = rows(self.url, sql) if one.last >= one.first else [(None,)]
        if chain_begin is not None:
            first[TRACE] = chain_begin
        if self.has_histories:
            first[HISTORY] = one.first - 1
        if one.base and one.known:
            yield [(SNAPSHOT, _select(SNAPSHOT, one, one.base, one.base))]
        for low in range(min(first.values()), one.last + 1, AT_ONCE):
            high = min(low + AT_ONCE - 1, one.last)
            # The decision that was made at the last record belongs to the day after.
            last = {rank: high if rank == RECORD else min(high, one.last - 1) for rank in first}
            yield [
                (rank, _select(rank, one, max(low, begin), last[rank], within))
                for rank, begin in first.items()
                if begin <= last[rank]
            ]


def _select(rank: int, one: GroupPlan, low: int, high: int, within: str = "") -> str:
    name, columns = _COLUMNS[rank]
    select = SELECTS[name].replace("{within}", within)
    number = "seq" if rank == RECORD else "version"
    where = f"group_id = {quoted(one.group)} and {number} between {low} and {high}"
    return f"select {columns} from ({select}) as whole where {where}"  # noqa: S608 - our own words


def _rows_of(group_id: str, done: GroupReplay) -> pa.RecordBatch:
    """Return what was found of a group, then one row that counts (``REPLAYED``)."""
    rows: list[dict[str, Any]] = [
        {
            "group_id": one.group,
            "law": one.law,
            "severity": one.severity.value,
            "task": one.task,
            "member": one.member,
            "detail": one.detail,
            "sequences": one.sequences,
            "at": one.at,
        }
        for one in done.findings
    ]
    counts = {name: getattr(done, name) for name in ("replayed", "differing", "untraced", "left_out")}
    rows.append({"group_id": group_id, **counts})
    return pa.RecordBatch.from_pylist(rows, schema=REPLAYED)


def replay_day(tables: DayTables, cores: int) -> DataFrame:
    """Return the results of making the day's decisions again (``REPLAYED``)."""
    plan = tables.plan
    parts = tuple(map(tuple, bundles(plan.groups, part_count(plan.records, len(plan.groups), cores, tables.chunk))))
    step = Replay(tables.url, plan, parts, has_histories(tables.rows, plan))
    numbers = tables.spark.range(0, len(parts), 1, max(1, len(parts)))
    return numbers.mapInArrow(step, from_arrow_schema(REPLAYED))


def has_histories(ask: Ask, plan: DayPlan) -> bool:
    """Return whether task histories of the day are kept; retention deletes all of a day or none."""
    within = plan.within(hours=1)
    asked = [f"exists (select from {name} where {within})" for name in ("assignment_events", "fresh_changes")]
    ((found,),) = ask(f"select {' or '.join(asked)} as found")
    return bool(found)
