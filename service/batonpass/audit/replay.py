"""Decides every logged decision again with the core of this program, and holds each one to the laws (L10, L1 to L8).

Each group is gone through in its order: a snapshot of it, then traces and records as they follow one another. Traces
say what had been heard of members only where it changed, so each chain begins where one was started from nothing. Runs
on the executors; what comes back are differences and counts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from batonpass.audit.findings import Severity
from batonpass.audit.plan import DayPlan, Rows, quoted
from batonpass.codec.code import code_version
from batonpass.codec.groups import UnreadableGroup, decode_group
from batonpass.codec.records import StoredRecord, UnreadableRecord, decode_record
from batonpass.codec.replay import replay
from batonpass.codec.traces import Trace, UnreadableTrace, decode_trace, soft_after
from batonpass.core.evolve import evolve
from batonpass.core.ids import GroupId
from batonpass.core.invariants import Transition, check_group, check_step
from batonpass.core.model import Group
from batonpass.core.records import Record
from batonpass.core.soft import Soft

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from batonpass.audit.tables import DayTables

ORDERED: Final = pa.schema(
    [
        *(("group_id", pa.string()), ("version", pa.int64()), ("rank", pa.int32()), ("at_ms", pa.int64())),
        *(
            ("kind", pa.string()),
            ("form", pa.int32()),
            ("code", pa.string()),
            ("payload", pa.binary()),
            ("first", pa.int64()),
        ),
    ]
)
"""What is gone through, in the order of ``version`` and ``rank``: a snapshot, the trace of the decision made at a
version, then the records that follow it."""

SNAPSHOT, RECORD, TRACE = 0, 1, 2

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

MOST: Final = 200
"""So many findings of one group are told; the rest only counts."""


@dataclass(slots=True)
class _Pending:
    """A decision whose records are still being read."""

    trace: Trace
    at_ms: int
    of_day: bool
    records: list[Record] = field(default_factory=list)


class Replay:
    """Goes through one group."""

    def __init__(self, group: str, code: str) -> None:
        self.group_id = group
        self.code = code
        self.replayed = self.differing = 0
        self.rows: list[dict[str, Any]] = []
        self._group: Group | None = None
        # What had been heard when the last trace was made; None where the chain of traces is broken.
        self._soft: Soft | None = None
        self._pending: _Pending | None = None
        self._at_ms = 0

    def snapshot(self, version: int, form: int, payload: bytes) -> None:
        """Begin with the group as it was."""
        try:
            self._group = decode_group(form, zlib.decompress(payload))
        except (UnreadableGroup, zlib.error) as error:
            self._group = None
            self._note("replay-incomplete", f"the snapshot of version {version} cannot be read: {error}", (), 0)

    def begin_empty(self) -> None:
        """Begin with the empty group: the log is read from its first record."""
        self._group = Group(GroupId(self.group_id))

    def trace(self, version: int, form: int, payload: bytes, at_ms: int, *, of_day: bool) -> None:
        """Take the trace of the decision that was made at a version."""
        if self._known is not None and self._known < version:
            self._lose(version, at_ms)
        self._finish()
        try:
            trace = decode_trace(form, payload)
        except UnreadableTrace as error:
            self._soft = None
            self._note(
                "replay-incomplete", f"the trace at version {version} cannot be read: {error}", (version + 1,), at_ms
            )
            return
        if self._soft is None and not trace.soft.from_empty:
            return
        if self._group is None or self._group.version != version:
            # What was heard goes on, also where the group is not known yet.
            self._soft = soft_after(self._soft or Soft(), trace.soft)
            return
        self._pending = _Pending(trace, at_ms, of_day)

    def record(self, seq: int, stored: StoredRecord, at_ms: int) -> None:
        """Take the next record."""
        self._at_ms = at_ms
        known = self._known
        if known is None or seq <= known:
            return
        if seq != known + 1:
            self._lose(seq - 1, at_ms)
            return
        try:
            record = decode_record(stored)
        except UnreadableRecord:
            self._lose(seq, at_ms)
            return
        if self._pending is not None:
            self._pending.records.append(record)
        elif self._group is not None:
            self._group = evolve(self._group, (record,))

    @property
    def _known(self) -> int | None:
        """How many records the group is known to hold by now."""
        if self._group is None:
            return None
        return self._group.version + (len(self._pending.records) if self._pending is not None else 0)

    def end(self) -> None:
        """Judge the last decision, and the whole group as it is when the day ends."""
        self._finish()
        if self._group is not None:
            for found in check_group(self._group):
                detail, subject = f"when the day ended: {found.detail}", (found.task, found.member)
                version = (self._group.version,)
                self._note(found.law, detail, version, self._at_ms, severity=Severity.FATAL, subject=subject)

    def _lose(self, version: int, at_ms: int) -> None:
        """Go no further: what the group was from here on is not known."""
        first = (self._known or 0) + 1
        self._pending, self._group = None, None
        which = f"record {first}" if first == version else f"records {first} to {version}"
        self._note("replay-incomplete", f"without {which} nothing that follows can be decided again", (), at_ms)

    def _finish(self) -> None:
        """Judge the decision whose records are all there now."""
        pending, self._pending = self._pending, None
        if pending is None or self._group is None:
            return
        before, trace, written = self._group, pending.trace, tuple(pending.records)
        after = evolve(before, written)
        if not pending.of_day:
            self._soft, self._group = soft_after(self._soft or Soft(), trace.soft), after
            return
        decision, soft = replay(before, self._soft or Soft(), trace)
        self._soft, self._group = soft, after
        self.replayed += 1
        sequences = (before.version + 1, before.version + len(written))
        if decision.records != written:
            self._differ(trace, decision.records, written, sequences, pending.at_ms)
            return
        for found in check_step(Transition(before, after, written, soft, decision.soft, trace.now_ms, trace.inputs)):
            subject = (found.task, found.member)
            self._note(found.law, found.detail, sequences, pending.at_ms, severity=Severity.FATAL, subject=subject)

    def _differ(
        self,
        trace: Trace,
        again: tuple[Record, ...],
        written: tuple[Record, ...],
        sequences: tuple[int, ...],
        at_ms: int,
    ) -> None:
        self.differing += 1
        same = trace.code == self.code
        more = [type(one).__name__ for one in again if one not in written]
        less = [type(one).__name__ for one in written if one not in again]
        kinds = ", ".join(dict.fromkeys(type(one).__name__ for one in trace.inputs))
        what = f"{kinds} at version {sequences[0] - 1}"
        if more or less:
            how = f"now {', '.join(more[:5]) or 'nothing'} instead of {', '.join(less[:5]) or 'nothing'}"
        else:
            how = "the same records in another order"
        whose = "the same code" if same else f"by {trace.code}; this is {self.code}"
        severity = Severity.FATAL if same else Severity.NOTICE
        self._note("L10", f"{what} is decided otherwise: {how} ({whose})", sequences, at_ms, severity=severity)

    def _note(
        self,
        law: str,
        detail: str,
        sequences: tuple[int, ...],
        at_ms: int,
        *,
        severity: Severity = Severity.NOTICE,
        subject: tuple[str | None, str | None] = (None, None),
    ) -> None:
        if len(self.rows) < MOST:
            told = (
                law,
                severity.value,
                *subject,
                detail,
                list(dict.fromkeys(sequences)),
                [at_ms] if at_ms else [],
                0,
                0,
            )
            self.rows.append(dict(zip(REPLAYED.names, (self.group_id, *told), strict=True)))

    def told(self) -> pa.RecordBatch:
        """Return what was found, and the counts."""
        counts = dict.fromkeys(REPLAYED.names) | {
            "group_id": self.group_id,
            "replayed": self.replayed,
            "differing": self.differing,
        }
        return pa.RecordBatch.from_pylist([*self.rows, counts], schema=REPLAYED)


def replay_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Go through whole groups, each in its order (ORDERED), and yield what is found (REPLAYED)."""
    code = code_version()
    current: Replay | None = None
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ORDERED.names)
        for group, version, rank, at_ms, kind, form, made_by, payload, first in zip(*columns, strict=True):
            del made_by
            if current is None or current.group_id != group:
                if current is not None:
                    current.end()
                    yield current.told()
                current = Replay(group, code)
            if rank == SNAPSHOT:
                current.snapshot(version, form, payload) if payload else current.begin_empty()
            elif rank == TRACE:
                current.trace(version, form, payload, at_ms, of_day=version >= first - 1)
            else:
                current.record(version, StoredRecord(kind, form, payload), at_ms)
    if current is not None:
        current.end()
        yield current.told()


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

    since = chains(tables.reader.rows, tables.plan)
    firsts = tables.bounds().select("group_id", "first", "base", "known")
    nothing = f.lit(None).cast("string")
    bases = firsts.where((f.col("base") == 0) & f.col("known")).select(
        *(
            "group_id",
            f.lit(0).cast("long").alias("version"),
            f.lit(SNAPSHOT).alias("rank"),
            f.lit(0).cast("long").alias("at_ms"),
        ),
        *(
            nothing.alias("kind"),
            f.lit(0).alias("form"),
            nothing.alias("code"),
            f.lit(None).cast("binary").alias("payload"),
        ),
    )
    snapshots = tables.snapshots().select(
        *(
            "group_id",
            "version",
            f.lit(SNAPSHOT).alias("rank"),
            "at_ms",
            nothing.alias("kind"),
            f.col("format").alias("form"),
        ),
        *(nothing.alias("code"), "payload"),
    )
    records = tables.records().select(
        *("group_id", f.col("seq").alias("version"), f.lit(RECORD).alias("rank"), "at_ms", "kind"),
        *(f.col("version").alias("form"), nothing.alias("code"), f.col("payload").cast("binary").alias("payload")),
    )
    traces = tables.traces(since).select(
        *(
            "group_id",
            "version",
            f.lit(TRACE).alias("rank"),
            "at_ms",
            nothing.alias("kind"),
            f.col("format").alias("form"),
        ),
        *("code", f.col("payload").cast("binary").alias("payload")),
    )
    rows = bases.unionByName(snapshots).unionByName(records).unionByName(traces)
    named = rows.join(f.broadcast(firsts.select("group_id", "first")), "group_id").select(*ORDERED.names)
    ordered = named.repartition(parts, "group_id").sortWithinPartitions("group_id", "version", "rank")
    return ordered.mapInArrow(replay_batches, from_arrow_schema(REPLAYED))
