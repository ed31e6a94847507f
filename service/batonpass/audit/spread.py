"""Spreads a day over Spark's executors: a part is a group, read, folded and decided again where it is read.

Nothing is exchanged. What is found comes back as bytes, a row for up to ``ROWS_PER_BATCH`` findings of one kind.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from batonpass.audit.database import Read, Row, reading, rows
from batonpass.audit.entries import read_entries, read_standing
from batonpass.audit.findings import GIVEN_ID, Finding, GroupDay
from batonpass.audit.fold import GroupFold
from batonpass.audit.group_replay import GroupReplay
from batonpass.audit.measures import WorstHour
from batonpass.audit.reading import (
    GENERATION,
    HISTORY,
    RECORD,
    SNAPSHOT,
    generations,
    has_histories,
    log_rows,
    warmup_lags,
)
from batonpass.audit.rows import GROUP, Gap, Generation, Interval, Warmup, batch_of, schema_of
from batonpass.audit_words import amount
from batonpass.codec.code import code_version
from batonpass.codec.records import StoredRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from batonpass.audit.plan import DayPlan, GroupPlan


@dataclass(frozen=True, slots=True)
class DayTables:
    """What is read for one day: by which session, and from where."""

    spark: "SparkSession"
    url: str
    plan: "DayPlan"

    def rows(self, sql: str) -> list[Row]:
        """Return the rows of a query whose answer is small."""
        return rows(self.url, sql)


Part = tuple["GroupPlan", ...]
"""The groups that one task of Spark audits, one after the other."""


class GroupResult(msgspec.Struct, frozen=True):
    """What one group's day came to.

    Attributes:
        group: its name.
        day: its measures; None for the remains of a deleted group.
        found: the first findings of each law, those of the replay too.
        left_out: how many more there are, by law.
        worst_hour: the one with the most downtime, if any.
        names: what people call the members that are found to do something, by id, where that differs.
        decisions, replayed, differing, untraced: see ``GroupReplay``; 0 without a replay.
    """

    group: str
    day: GroupDay | None
    found: list[Finding]
    left_out: dict[str, int]
    worst_hour: WorstHour | None
    names: dict[str, str]
    decisions: int = 0
    replayed: int = 0
    differing: int = 0
    untraced: int = 0


RESULT: Final = "result"
RESULTS: Final = pa.schema([(GROUP, pa.string()), ("kind", pa.string()), ("content", pa.binary())])
"""The group; the kind of what was found; and a batch of it in Arrow's bytes. Of the kind ``RESULT`` is what the group
came to, a ``GroupResult`` as JSON."""

ROWS_PER_BATCH: Final = 20_000


@dataclass(frozen=True, slots=True)
class AuditGroups:
    """A step of ``mapInArrow``: audits the groups of the parts whose numbers it is given.

    Without ``frames`` the results that grow with the day are left out; without ``replay`` no decision is made again.
    """

    url: str
    plan: "DayPlan"
    parts: tuple[Part, ...]
    has_histories: bool
    replay: bool
    frames: bool

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of the groups (``RESULTS``)."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                with reading(self.url) as read:
                    for one in self.parts[number]:
                        yield from self._audited(read, one)

    def _audited(self, read: Read, one: "GroupPlan") -> Iterator[pa.RecordBatch]:
        day = self.plan.begin_ms, self.plan.end_ms
        shown = generations(read, one)
        fold = GroupFold(one, *day, lags=warmup_lags(read, self.plan, one), generations=shown)
        replay = None
        if self.replay:
            replay = GroupReplay(one, begin_ms=day[0], code=code_version(), has_histories=self.has_histories)
        rows = log_rows(read, self.plan, one, replayed=self.replay, has_histories=self.has_histories)
        for version, rank, epoch, at_ms, kind, form, payload in rows:
            if rank == RECORD:
                entries, record = read_entries(version, at_ms, epoch, StoredRecord(kind, form, payload))
                for entry in entries:
                    fold.take(entry)
                fold.follow(record, at_ms)
                if replay is not None:
                    replay.record(version, record, at_ms)
            elif rank == SNAPSHOT:
                if version == one.base:
                    entries, group = read_standing(version, at_ms, form, payload)
                    for entry in entries:
                        fold.take(entry)
                    fold.follow(group, at_ms)
                if replay is not None:
                    replay.snapshot(version, form, payload, at_ms)
            elif replay is not None:
                if rank == HISTORY:
                    replay.history(version, payload, at_ms)
                elif rank == GENERATION:
                    replay.generation(version, payload, at_ms)
                else:
                    replay.trace(version, form, payload, at_ms)
            yield from self._frames(one, fold, ROWS_PER_BATCH)
        if replay is not None:
            replay.end()
        fold.end(lawful=replay is not None and replay.is_lawful)
        yield from self._frames(one, fold, 1)
        if self.frames:
            yield from _batches(one, Generation, shown)
        yield _result(one, fold, replay)

    def _frames(self, one: "GroupPlan", fold: GroupFold, least: int) -> Iterator[pa.RecordBatch]:
        """Yield and forget what has been found and grows with the day, where there is enough of it."""
        for kind, found in ((Gap, fold.gaps), (Warmup, fold.warmups), (Interval, fold.intervals)):
            if len(found) >= least:
                if self.frames:
                    yield from _batches(one, kind, found)
                found.clear()


def _batches(one: "GroupPlan", kind: type, rows: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    if rows:
        batch = batch_of(kind, ((one.group, row) for row in rows))
        yield _found(one, kind.__name__, batch.serialize().to_pybytes())


def _result(one: "GroupPlan", fold: GroupFold, replay: GroupReplay | None) -> pa.RecordBatch:
    found, left_out, counts = fold.kept.first(), fold.kept.left_out, (0, 0, 0, 0)
    if replay is not None:
        found, left_out = [*found, *replay.kept.first()], left_out + replay.kept.left_out
        counts = replay.decisions, replay.replayed, replay.differing, replay.untraced
    mentioned = {member for finding in found for member in GIVEN_ID.findall(f"{finding.member} {finding.detail}")}
    names = {member: name for member in sorted(mentioned) if (name := fold.ledger.name_of(member)) != member}
    result = GroupResult(one.group, fold.day, found, left_out, fold.worst_hour, names, *counts)
    return _found(one, RESULT, msgspec.json.encode(result))


def _found(one: "GroupPlan", kind: str, content: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{GROUP: one.group, "kind": kind, "content": content}], RESULTS)


_decoder: Final = msgspec.json.Decoder(GroupResult)


def group_results(results: "DataFrame") -> list[GroupResult]:
    """Return what each group came to."""
    found = results.where(f.col("kind") == RESULT).select("content").toArrow().column(0)
    return [_decoder.decode(content) for content in found.to_pylist()]


def batches_of(results: "DataFrame", kind: type) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one kind, sorted by group, each batch of one group; the driver holds a part of them at once."""
    schema = schema_of(kind)
    for row in results.where(f.col("kind") == kind.__name__).sort(GROUP).toLocalIterator():
        yield pa.ipc.read_record_batch(pa.py_buffer(row["content"]), schema)


SPARK_RESULTS: Final = from_arrow_schema(RESULTS)


def day_results(tables: DayTables, parts: Sequence[Part], *, frames: bool, replay: bool) -> "DataFrame":
    """Return the results of the day (``RESULTS``): what each group came to; with ``frames``, what grows, too.

    Each of ``parts`` is a task. Nothing is read before an action asks for it.
    """
    kept = replay and has_histories(tables.rows, tables.plan)
    step = AuditGroups(tables.url, tables.plan, tuple(parts), kept, replay, frames)
    return tables.spark.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(step, SPARK_RESULTS)


PART_RECORDS: Final = 2_500
"""A group with so many records is a part of its own; smaller ones share one, as a task has its price: that of about
3,000 records where no decision is made again."""
FOLDED_RECORDS: Final = 25_000
"""So many where no decision is made again."""
GROUP_RECORDS: Final = 50
"""So many records take as long as a group without any."""
PARTS_MOST: Final = 500
"""About how many parts a day has at most, however large it is."""


def parts_of(groups: "Sequence[GroupPlan]", *, replay: bool = True) -> list[Part]:
    """Return the groups in parts, the largest first; ``replay``: decisions are made again in them."""
    sizes = {one.group: GROUP_RECORDS + max(0, one.last - one.base) for one in groups}
    enough = max(PART_RECORDS if replay else FOLDED_RECORDS, sum(sizes.values()) // PARTS_MOST)
    made: list[list[GroupPlan]] = []
    filled = enough
    for one in sorted(groups, key=lambda one: (-sizes[one.group], one.group)):
        if filled >= enough:
            made.append([])
            filled = 0
        made[-1].append(one)
        filled += sizes[one.group]
    return [tuple(some) for some in made]


def name_of(part: Part) -> str:
    """Return what a part is called while it is audited: by its largest group."""
    first, *others = part
    return f"group {first.group}" + (f" and {amount(len(others), 'smaller one')}" if others else "")
