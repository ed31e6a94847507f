"""The day under other settings: each group's day is told as a scenario, and played again once for each of them.

One Spark task plays one group under one set of settings. What comes back to the driver is a line for each of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from batonpass.audit.damage import COPIES, DAMAGE, WHOLE_LAG, read_group, read_record
from batonpass.audit.findings import Finding, GroupDay, Recommendation, Severity
from batonpass.audit.plan import DAY_MS
from batonpass.audit.whatif_grid import Trial, attempt, grid, recommendation
from batonpass.audit.whatif_story import NoStory, Rates, Story, tell
from batonpass.codec.records import StoredRecord
from batonpass.core.ids import GroupId
from batonpass.core.model import Group
from batonpass.core.records import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from batonpass.audit.tables import DayTables

GROUPS_MOST: Final = 12
"""So many groups are played again, those with the most downtime first: each costs some dozen simulated days."""

RECORDS_MOST: Final = 200_000
"""A group with more records a day than this is left out: it would hold up the others."""

NOT_TOLD: Final = -1
"""The place of a row that has, in place of a story or a trial, why the group's day cannot be played again."""

NOT_TRIED: Final = "what-if-incomplete"

FACTS: Final = pa.schema(
    [
        *(("group_id", pa.string()), ("version", pa.int64()), ("rank", pa.int32()), ("at_ms", pa.int64())),
        *(("epoch", pa.int64()), ("kind", pa.string()), ("form", pa.int32()), ("payload", pa.binary())),
        ("number", pa.float64()),
    ]
)
"""What a day is told from, in the order of ``version`` and ``rank``: what samples say, a snapshot, the records."""

SAMPLED, SNAPSHOT, RECORD = 0, 1, 2
LAG, SPEED = "lag", "speed"
SEPARATOR: Final = "\t"
"""Between a member and a task; neither has one in its name."""

RESTORES_LEAST: Final = 1_000
"""A copy that lacks fewer records, or what two seconds restore, tells nothing of how fast a member restores."""

TOLD: Final = pa.schema(
    [("group_id", pa.string()), ("place", pa.int32()), ("settings", pa.string()), ("story", pa.string())]
)
"""One row for each group and set of settings; ``place`` 0 has the present ones, ``NOT_TOLD`` why there are none."""

TRIED: Final = pa.schema(
    [("group_id", pa.string()), ("place", pa.int32()), ("trial", pa.string()), ("story", pa.string())]
)
"""What each came to; the row of the present settings has the story, without its steps."""

_RATE: Final = r"case when copy ->> 5 ~ '^\d{1,15}(\.\d+)?([eE]-?\d{1,2})?$' then (copy ->> 5)::float8 end"
_SAMPLES: Final = (
    "select group_id, (date_part('epoch', at) * 1000)::bigint as at_ms, copy ->> 0 as task, copy ->> 1 as member,"  # noqa: S608 - constants
    f" {WHOLE_LAG} as lag, {_RATE} as rate, at"
    f" from samples cross join lateral {COPIES} as copy where {WHOLE_LAG} > 0 and copy ->> 2 <> 'none'"
)


class Tried(NamedTuple):
    """What to set for which group, and for which group that is not known, each with the reason."""

    recommendations: tuple[Recommendation, ...] = ()
    findings: tuple[Finding, ...] = ()


def recommend(tables: DayTables, groups: Sequence[GroupDay], *, most: int = GROUPS_MOST) -> Tried:
    """Return what to set for the groups that were down longest, by name; the same day gives the same.

    A group whose day cannot be played again is named as a notice, with the reason.
    """
    chosen = worth_trying(groups, most)
    parts = tuple(one for one in tables.plan.groups if one.group in chosen and one.last >= one.first)
    if not parts:
        return Tried((), too_large(groups))
    few = replace(tables, plan=replace(tables.plan, groups=parts))
    told = stories(facts(few), begin_ms=tables.plan.begin_ms, end_ms=tables.plan.end_ms).persist()
    try:
        # One task for each line: a simulation takes seconds, and a slow one must not have others wait behind it.
        tried = told.repartition(max(1, told.count())).mapInArrow(try_batches, _spark_schema(TRIED))
        rows = [(row.group_id, row.place, row.trial, row.story) for row in tried.collect()]
    finally:
        told.unpersist()
    found = recommendations(rows)
    return Tried(found.recommendations, (*found.findings, *too_large(groups)))


def too_large(groups: Iterable[GroupDay]) -> tuple[Finding, ...]:
    """Return a notice for each group that has too many records to be played again."""
    sizes = sorted((one.group, int(one.measures.get("records") or 0)) for one in groups)
    return tuple(
        not_tried(group, f"its day has {size:,} records, and at most {RECORDS_MOST:,} are played again")
        for group, size in sizes
        if size > RECORDS_MOST
    )


def not_tried(group: str, why: str) -> Finding:
    """Return the notice that a group's day was not tried under other settings."""
    return Finding(group, NOT_TRIED, Severity.NOTICE, None, None, f"other settings were not tried: {why}")


def worth_trying(groups: Sequence[GroupDay], most: int) -> frozenset[str]:
    """Return the groups to try: those with the most downtime, then the most moves, of a day that is not too large."""

    def weight(one: GroupDay) -> tuple[float, float, str]:
        return -float(one.measures.get("downtime_ms") or 0), -float(one.measures.get("moves") or 0), one.group

    fit = [one for one in groups if (one.measures.get("records") or 0) <= RECORDS_MOST]
    return frozenset(one.group for one in sorted(fit, key=weight)[:most])


def recommendations(rows: Iterable[tuple[str, int, str, str]]) -> Tried:
    """Return the recommendation of each group from what was tried, in any order, or why there is none."""
    tried: dict[str, dict[int, Trial]] = {}
    known: dict[str, Story] = {}
    reasons: dict[str, str] = {}
    for group, place, trial, story in rows:
        if place == NOT_TOLD:
            reasons[group] = trial
            continue
        tried.setdefault(group, {})[place] = msgspec.json.decode(trial, type=Trial)
        if story:
            known[group] = msgspec.json.decode(story, type=Story)
    found = []
    for group in sorted(known):
        trials = [trial for _, trial in sorted(tried[group].items())]
        if trials[0].refused:
            reasons[group] = f"simulated with the present settings, {trials[0].refused}"
        else:
            found.append(recommendation(group, known[group], trials))
    return Tried(tuple(found), tuple(not_tried(group, why) for group, why in sorted(reasons.items())))


def facts(tables: DayTables) -> DataFrame:
    """Return what the days of some groups are told from (``FACTS``), in no order yet."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - executors need no more of this module than the core

    def row(frame: DataFrame, **columns: Any) -> DataFrame:
        usual = {
            "version": f.lit(-1),
            "at_ms": f.lit(0),
            "epoch": f.lit(0),
            "kind": f.lit(""),
            "form": f.lit(0),
            "number": f.lit(0.0),
            **columns,
        }
        schema = _spark_schema(FACTS)
        return frame.select(
            "group_id",
            *(usual[one.name].cast(one.dataType).alias(one.name) for one in schema if one.name != "group_id"),
        )

    samples = sampled(tables)
    lags = samples.groupBy("group_id", "member", "task").agg(
        f.max("lag").alias("most"), f.max_by("at_ms", "lag").alias("seen_ms")
    )
    speeds = (
        samples.where((f.col("lag") >= RESTORES_LEAST) & (f.col("lag") >= 2 * f.col("rate")))
        .groupBy("group_id", "member", "at_ms")
        .agg(f.sum("rate").alias("rate"))
        .groupBy("group_id", "member")
        .agg(f.percentile_approx("rate", 0.5).alias("most"))
        .where(f.col("most") > 0)
    )
    said = {"rank": f.lit(SAMPLED), "number": f.col("most")}
    whose = f.concat_ws(SEPARATOR, "member", "task").cast("binary")
    return (
        row(lags, kind=f.lit(LAG), payload=whose, at_ms=f.col("seen_ms"), **said)
        .unionByName(row(speeds, kind=f.lit(SPEED), payload=f.col("member").cast("binary"), **said))
        .unionByName(
            row(
                tables.snapshots(),
                version=f.col("version"),
                rank=f.lit(SNAPSHOT),
                at_ms=f.col("at_ms"),
                form=f.col("format"),
                payload=f.col("payload"),
            )
        )
        .unionByName(
            row(
                tables.records(),
                version=f.col("seq"),
                rank=f.lit(RECORD),
                at_ms=f.col("at_ms"),
                epoch=f.col("coordinator_epoch"),
                kind=f.col("kind"),
                form=f.col("version"),
                payload=f.col("payload").cast("binary"),
            )
        )
    )


def sampled(tables: DayTables) -> DataFrame:
    """Return how far behind copies were, and how fast they came closer, at each sample of the day."""
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415

    from pyspark.sql import types as t  # noqa: PLC0415

    text, whole = t.StringType(), t.LongType()
    columns = (("group_id", text), ("at_ms", whole), ("task", text), ("member", text), ("lag", whole))
    schema = t.StructType([t.StructField(name, kind) for name, kind in (*columns, ("rate", t.DoubleType()))])
    begin = datetime.fromtimestamp(tables.plan.begin_ms / 1_000, UTC)
    named = ", ".join("'" + one.group.replace("'", "''") + "'" for one in tables.plan.groups)
    predicates = [
        f"at >= '{(begin + timedelta(hours=hour)).isoformat()}' and at < '{(begin + timedelta(hours=hour + 6)).isoformat()}'"
        f" and group_id in ({named})"
        for hour in range(0, 24, 6)
    ]
    return tables.reader.frame(_SAMPLES, predicates, schema)


def stories(rows: DataFrame, *, begin_ms: int, end_ms: int) -> DataFrame:
    """Return each group's day once for each set of settings (``TOLD``)."""

    def tell_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return told_batches(batches, begin_ms=begin_ms, end_ms=end_ms)

    ordered = rows.repartition("group_id").sortWithinPartitions("group_id", "version", "rank", "kind", "payload")
    return ordered.mapInArrow(tell_batches, _spark_schema(TOLD))


def told_batches(batches: Iterable[pa.RecordBatch], *, begin_ms: int, end_ms: int) -> Iterator[pa.RecordBatch]:
    """Take whole groups in order (``FACTS``) and yield their days, once for each set of settings (``TOLD``)."""
    reading: _Reading | None = None
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in FACTS.names)
        for fact in map(_Fact._make, zip(*columns, strict=True)):
            if reading is None or reading.group_id != fact.group_id:
                if reading is not None:
                    yield reading.told(begin_ms, end_ms)
                reading = _Reading(fact.group_id)
            reading.take(fact)
    if reading is not None:
        yield reading.told(begin_ms, end_ms)


class _Fact(NamedTuple):
    """One row of ``FACTS``."""

    group_id: str
    version: int
    rank: int
    at_ms: int
    epoch: int
    kind: str
    form: int
    payload: bytes
    number: float


class _Reading:
    """Reads what one group's day is told from."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._base = Group(GroupId(group_id))
        self._records: list[tuple[int, int, Record]] = []
        self._lags: dict[tuple[str, str], tuple[int, int]] = {}
        self._speeds: dict[str, float] = {}
        self._broken = ""

    def take(self, fact: _Fact) -> None:
        """Take the next row."""
        if fact.rank == SAMPLED:
            said = fact.payload.decode()
            if fact.kind == LAG:
                member, _, task = said.partition(SEPARATOR)
                self._lags[member, task] = int(fact.number), fact.at_ms
            else:
                self._speeds[said] = fact.number
        elif fact.rank == SNAPSHOT:
            try:
                self._base = read_group(fact.form, fact.payload)
            except DAMAGE:
                self._broken = self._broken or f"the snapshot of version {fact.version} cannot be read"
        else:
            due = self._base.version + len(self._records) + 1
            if fact.version != due:
                self._broken = self._broken or f"record {due} is missing"
            try:
                record = read_record(StoredRecord(fact.kind, fact.form, fact.payload))
            except DAMAGE:
                self._broken = self._broken or f"record {fact.version} cannot be read"
            else:
                self._records.append((fact.epoch, fact.at_ms, record))

    def told(self, begin_ms: int, end_ms: int) -> pa.RecordBatch:
        """Return the day, once for each set of settings; one row with the reason where it cannot be told."""
        try:
            story = self._story(begin_ms, end_ms)
        except (NoStory, *DAMAGE) as error:
            rows = [{"group_id": self.group_id, "place": NOT_TOLD, "settings": "", "story": str(error)}]
        else:
            text = _json(story)
            rows = [
                {"group_id": self.group_id, "place": place, "settings": _json(settings), "story": text}
                for place, settings in enumerate(grid(story.scenario))
            ]
        return pa.RecordBatch.from_pylist(rows, schema=TOLD)

    def _story(self, begin_ms: int, end_ms: int) -> Story:
        if self._broken:
            raise NoStory(self._broken)
        rates = Rates(self._lags, self._speeds)
        story = tell(self._base, self._records, rates, begin_ms=begin_ms, end_ms=end_ms)
        return replace(story, so_far=end_ms < begin_ms + DAY_MS)


def try_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Play each day under its settings (``TOLD``) and yield what it came to (``TRIED``)."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in TOLD.names)
        for group, place, settings, text in zip(*columns, strict=True):
            if place == NOT_TOLD:
                row = {"group_id": group, "place": place, "trial": text, "story": ""}
                yield pa.RecordBatch.from_pylist([row], schema=TRIED)
                continue
            story = msgspec.json.decode(text, type=Story)
            wanted: Mapping[str, Any] = msgspec.json.decode(settings)
            trial = attempt(story.scenario, wanted)
            kept = _json(replace(story, scenario=replace(story.scenario, steps=()))) if place == 0 else ""
            row = {"group_id": group, "place": place, "trial": _json(trial), "story": kept}
            yield pa.RecordBatch.from_pylist([row], schema=TRIED)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    return from_arrow_schema(schema)
