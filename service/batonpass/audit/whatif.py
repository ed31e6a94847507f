"""The day under other settings, in Spark.

One task plays one group under one set of settings, and returns a line. `day_scenario` makes the scenario of a day;
`trials` has the settings and the recommendation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from batonpass.audit.database import rows
from batonpass.audit.day_scenario import DayScenario, NoDayScenario, Sampled, day_scenario
from batonpass.audit.entries import DAMAGE, read_group, read_record
from batonpass.audit.findings import Finding, GroupDay, Recommendation, Severity
from batonpass.audit.plan import DAY_MS, DayPlan, GroupPlan, quoted
from batonpass.audit.tables import COPIES, SELECTS, WHOLE_LAG
from batonpass.audit.trials import Trial, attempt, grid, recommendation
from batonpass.codec.records import StoredRecord, json_text
from batonpass.core.state import records as r
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group

if TYPE_CHECKING:
    from batonpass.audit.tables import DayTables


GROUPS_MOST: Final = 12
"""So many groups are played again, those with the most downtime first: each costs some dozen simulated days."""

RECORDS_MOST: Final = 200_000
"""A group with more records a day than this is left out: it would hold up the others."""

NO_DAY: Final = -1
"""The place of a row that has no day or trial, but the reason why the group's day cannot be played again."""

INCOMPLETE: Final = "what-if-incomplete"

RESTORES_LEAST: Final = 1_000
"""A copy that lacks fewer records, or less than two seconds' worth, does not show how fast a member restores."""

DAYS: Final = pa.schema(
    [("group_id", pa.string()), ("place", pa.int32()), ("settings", pa.string()), ("day", pa.string())]
)
"""One row for each group and set of settings; ``place`` 0 has the present ones, ``NO_DAY`` why there is none."""

TRIALS: Final = pa.schema(
    [("group_id", pa.string()), ("place", pa.int32()), ("trial", pa.string()), ("day", pa.string())]
)
"""The results of each set of settings; the row of the present ones has the day, without its steps."""

_RATE: Final = r"case when copy ->> 5 ~ '^\d{1,15}(\.\d+)?([eE]-?\d{1,2})?$' then (copy ->> 5)::float8 end"
_SAMPLES: Final = (
    "select group_id, (date_part('epoch', at) * 1000)::bigint as at_ms, copy ->> 0 as task, copy ->> 1 as member,"  # noqa: S608 - constants
    f" {WHOLE_LAG} as lag, {_RATE} as rate, at"
    f" from samples cross join lateral {COPIES} as copy where {WHOLE_LAG} > 0 and copy ->> 2 <> 'none'"
)


BUDGET_S: Final = 120.0
"""How long other settings are tried, if nothing else is said."""

NO_TIME: Final = "no time was left"


class Tried(NamedTuple):
    """What to set for each group; for each group without a recommendation a finding with the reason.

    ``left_out``: how many trials there was no time for.
    """

    recommendations: tuple[Recommendation, ...] = ()
    findings: tuple[Finding, ...] = ()
    left_out: int = 0


def recommend(
    tables: DayTables, groups: Sequence[GroupDay], *, most: int = GROUPS_MOST, budget_s: float = BUDGET_S
) -> Tried:
    """Return what to set for the groups that were down longest, by name.

    The same day gives the same result, unless ``budget_s`` ends before every setting was tried.

    A group whose day cannot be played again gets a notice with the reason.
    """
    chosen = worth_trying(groups, most)
    parts = tuple(one for one in tables.plan.groups if one.group in chosen and one.last >= one.first)
    if not parts:
        return Tried((), too_large(groups))
    numbers = tables.spark.range(0, len(parts), 1, len(parts))
    trials = PlayTrials(time.time() + budget_s)
    days = numbers.mapInArrow(ReadDays(tables.url, tables.plan, parts), from_arrow_schema(DAYS)).persist()
    try:
        # One task for each line: a simulation takes seconds, and a slow one must not have others wait behind it.
        tried = days.repartition(max(1, days.count())).mapInArrow(trials, from_arrow_schema(TRIALS))
        lines = [(row.group_id, row.place, row.trial, row.day) for row in tried.collect()]
    finally:
        days.unpersist()
    found = recommendations(lines)
    return found._replace(findings=(*found.findings, *too_large(groups)))


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
    return Finding(group, INCOMPLETE, Severity.NOTICE, None, None, f"other settings were not tried: {why}")


def worth_trying(groups: Sequence[GroupDay], most: int) -> frozenset[str]:
    """Return the groups to try: those with the most downtime, then the most moves, of a day that is not too large.

    A group in which nothing moved and nothing was down has nothing to gain.
    """

    def weight(one: GroupDay) -> tuple[float, float, str]:
        return -float(one.measures.get("downtime_ms") or 0), -float(one.measures.get("moves") or 0), one.group

    fit = [one for one in groups if (one.measures.get("records") or 0) <= RECORDS_MOST and any(weight(one)[:2])]
    return frozenset(one.group for one in sorted(fit, key=weight)[:most])


def recommendations(lines: Iterable[tuple[str, int, str, str]]) -> Tried:
    """Return the recommendation of each group from what was tried, in any order, or why there is none."""
    tried: dict[str, dict[int, Trial]] = {}
    known: dict[str, DayScenario] = {}
    reasons: dict[str, str] = {}
    left_out = 0
    for group, place, trial, day in lines:
        if place == NO_DAY:
            reasons[group] = trial
            continue
        tried.setdefault(group, {})[place] = read = msgspec.json.decode(trial, type=Trial)
        left_out += read.refused == NO_TIME
        if day:
            known[group] = msgspec.json.decode(day, type=DayScenario)
    found = []
    for group in sorted(known):
        trials = [trial for _, trial in sorted(tried[group].items())]
        if trials[0].refused:
            reasons[group] = f"simulated with the present settings, {trials[0].refused}"
        else:
            found.append(recommendation(group, known[group], trials))
    return Tried(tuple(found), tuple(not_tried(group, why) for group, why in sorted(reasons.items())), left_out)


class Facts(NamedTuple):
    """The data from which the scenario of one group's day is made.

    ``snapshot`` has its version, its format and its payload. ``records`` has the number of each record, when and under
    which coordinator epoch it was appended, and what was stored.
    """

    group_id: str
    sampled: Sampled
    snapshot: tuple[int, int, bytes] | None
    records: Sequence[tuple[int, int, int, StoredRecord]]


def facts_of(url: str, plan: DayPlan, one: GroupPlan) -> Facts:
    """Read the data from which the scenario of a group's day is made."""
    group = f"group_id = {quoted(one.group)}"
    samples = (
        f"select * from ({_SAMPLES}) as copies where {group} and member is not null and task is not null"  # noqa: S608
        f" and {plan.within()}"
    )
    lags = (
        f"select distinct on (member, task) member, task, lag, at_ms from ({samples}) as seen"  # noqa: S608
        " order by member, task, lag desc, at_ms"
    )
    speeds = (
        "select member, percentile_disc(0.5) within group (order by rate)"  # noqa: S608
        f" from (select member, at_ms, sum(rate) as rate from ({samples}) as seen"
        f" where lag >= {RESTORES_LEAST} and lag >= 2 * rate group by member, at_ms) as restored group by member"
    )
    snapshot = (
        f"select version, format, payload from ({SELECTS['snapshots']}) as whole"  # noqa: S608
        f" where {group} and version = {one.base} and {one.base > 0 and one.known}"
    )
    records = (
        f"select seq, at_ms, coordinator_epoch, kind, version, payload from ({SELECTS['records']}) as whole"  # noqa: S608
        f" where {group} and seq between {one.begin} and {one.last} order by seq"
    )
    return Facts(
        one.group,
        Sampled(
            {(member, task): (lag, at_ms) for member, task, lag, at_ms in rows(url, lags)},
            {member: speed for member, speed in rows(url, speeds) if speed > 0},
        ),
        next(iter(rows(url, snapshot)), None),
        [
            (seq, at_ms, epoch, StoredRecord(kind, form, payload.encode()))
            for seq, at_ms, epoch, kind, form, payload in rows(url, records)
        ],
    )


@dataclass(frozen=True, slots=True)
class ReadDays:
    """A step of ``mapInArrow``: reads the days of the groups whose numbers it is given (``DAYS``)."""

    url: str
    plan: DayPlan
    groups: tuple[GroupPlan, ...]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each day once for each set of settings."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                facts = facts_of(self.url, self.plan, self.groups[number])
                yield day_batch(facts, begin_ms=self.plan.begin_ms, end_ms=self.plan.end_ms)


def day_batch(facts: Facts, *, begin_ms: int, end_ms: int) -> pa.RecordBatch:
    """Return a day, once for each set of settings; one row with the reason where it cannot be played (``DAYS``)."""
    group = facts.group_id
    try:
        day = _day_of(facts, begin_ms, end_ms)
    except (NoDayScenario, *DAMAGE) as error:
        found = [{"group_id": group, "place": NO_DAY, "settings": "", "day": str(error)}]
    else:
        text = json_text(day)
        found = [
            {"group_id": group, "place": place, "settings": json_text(settings), "day": text}
            for place, settings in enumerate(grid(day.scenario))
        ]
    return pa.RecordBatch.from_pylist(found, schema=DAYS)


def _day_of(facts: Facts, begin_ms: int, end_ms: int) -> DayScenario:
    base = Group(GroupId(facts.group_id))
    if facts.snapshot is not None:
        version, form, payload = facts.snapshot
        try:
            base = read_group(form, payload)
        except DAMAGE:
            raise NoDayScenario(f"the snapshot of version {version} cannot be read") from None
    records: list[tuple[int, int, r.Record]] = []
    for due, (seq, at_ms, epoch, stored) in enumerate(facts.records, start=base.version + 1):
        if seq != due:
            raise NoDayScenario(f"record {due} is missing")
        try:
            records.append((epoch, at_ms, read_record(stored)))
        except DAMAGE:
            raise NoDayScenario(f"record {seq} cannot be read") from None
    day = day_scenario(base, records, facts.sampled, begin_ms=begin_ms, end_ms=end_ms)
    return replace(day, so_far=end_ms < begin_ms + DAY_MS)


@dataclass(frozen=True, slots=True)
class PlayTrials:
    """A step of ``mapInArrow``: plays each day under its settings (``DAYS``), and yields its results (``TRIALS``).

    Attributes:
        until_s: when no other trial is begun any more, in seconds since 1970.
    """

    until_s: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results, a row each."""
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in DAYS.names)
            for group, place, settings, text in zip(*columns, strict=True):
                if place == NO_DAY:
                    row = {"group_id": group, "place": place, "trial": text, "day": ""}
                    yield pa.RecordBatch.from_pylist([row], schema=TRIALS)
                    continue
                day = msgspec.json.decode(text, type=DayScenario)
                wanted: Mapping[str, Any] = msgspec.json.decode(settings)
                is_late = time.time() >= self.until_s
                trial = Trial(wanted, refused=NO_TIME) if is_late else attempt(day.scenario, wanted)
                kept = json_text(replace(day, scenario=replace(day.scenario, steps=()))) if place == 0 else ""
                row = {"group_id": group, "place": place, "trial": json_text(trial), "day": kept}
                yield pa.RecordBatch.from_pylist([row], schema=TRIALS)
