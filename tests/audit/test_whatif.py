"""What-if over Spark: a day's scenario is read from a database, played under all settings, and put together again."""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.audit.small_day import BEGIN_MS, DAY, DAY_MS, SCENARIO

from batonpass.audit import database, whatif
from batonpass.audit.day_scenario import DayScenario, Sampled
from batonpass.audit.findings import GroupDay, Outcome, Severity, Value
from batonpass.audit.plan import DayPlan, GroupPlan, plan_day
from batonpass.audit.reading import RECORD, SNAPSHOT, LogRow
from batonpass.audit.spread import DayTables
from batonpass.audit.trials import attempt, present
from batonpass.audit.whatif import NO_TIME, Day, day_of, play_trial, recommend
from batonpass.codec.groups import GROUP_VERSION, encode_group
from batonpass.codec.records import StoredRecord, decode_record
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.days.generate import rows_of
from batonpass.days.rows import GroupRows
from batonpass.days.writing import make_days, write
from batonpass.simulate.scenario.model import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from sqlalchemy.ext.asyncio import AsyncEngine


@pytest.fixture(scope="module")
def rows() -> GroupRows:
    """The rows that the small day leaves."""
    return rows_of(SCENARIO, DAY)


def log(rows: GroupRows, *, first: int = 1) -> list[LogRow]:
    """Return the records of the day from the ``first`` on."""
    return [
        LogRow(seq, RECORD, epoch, int(at.timestamp() * 1_000), kind, form, payload.encode())
        for _, seq, epoch, at, kind, form, payload in rows.tables["record_log"]
        if seq >= first
    ]


def day_from(found: list[LogRow], sampled: Sampled | None = None) -> Day:
    """Return what the day of a group comes to."""
    return day_of("small", found, sampled or Sampled(), begin_ms=BEGIN_MS, end_ms=BEGIN_MS + DAY_MS)


def test_a_day_may_begin_with_a_snapshot(rows: GroupRows) -> None:
    before = [one for one in log(rows) if one.at_ms < BEGIN_MS]
    group = evolve(
        Group(GroupId("small")), [decode_record(StoredRecord(one.kind, one.form, one.payload)) for one in before]
    )
    base = LogRow(len(before), SNAPSHOT, 0, 0, "", GROUP_VERSION, zlib.compress(encode_group(group)))
    day = day_from([base, *log(rows, first=len(before) + 1)])
    assert isinstance(day, DayScenario)
    assert day == day_from(log(rows))


def test_a_day_that_cannot_be_played_has_a_reason_instead_of_a_scenario(rows: GroupRows) -> None:
    whole = log(rows)
    assert day_from(whole[:1]) == "the group has no members all day"
    damaged = whole[50]._replace(payload=b"{")
    assert isinstance(day_from([*whole[:50], damaged, *whole[51:]]), str)


def test_no_trial_is_begun_when_the_time_is_over(rows: GroupRows) -> None:
    day = day_from(log(rows))
    assert isinstance(day, DayScenario)
    wanted = (day.scenario, present(day.scenario))
    assert play_trial(0, wanted) == NO_TIME
    assert play_trial(math.inf, wanted) == attempt(*wanted)


class Here:
    """What Spark would do, done here; ``told`` has how its jobs are described."""

    def __init__(self) -> None:
        self.sparkContext, self.told = self, list[str]()

    def setJobDescription(self, said: str) -> None:  # noqa: N802 - Spark's own name
        self.told.append(said)

    def parallelize(self, given: list[Any], slices: int) -> "Here":
        assert len(given) == slices
        self._given = given
        return self

    def map(self, step: Callable[[Any], Any]) -> "Here":
        self._given = list(map(step, self._given))
        return self

    def collect(self) -> list[Any]:
        return self._given


def in_rounds(
    rows: GroupRows, monkeypatch: pytest.MonkeyPatch, *costs: int | None
) -> tuple[Here, list[Outcome], list[str]]:
    """Return what is tried of a day, and told, where trials come to these downtimes, the last one for all others.

    None: there is no time for it.
    """
    left = list(costs)

    def attempt(_: Scenario, settings: Mapping[str, Value]) -> Outcome | str:
        cost = left.pop(0) if len(left) > 1 else left[0]
        return NO_TIME if cost is None else Outcome(settings, cost, 10, 1_000)

    day, here, told = day_from(log(rows)), Here(), list[str]()
    monkeypatch.setattr(whatif, "attempt", attempt)
    monkeypatch.setattr(whatif, "read_day", lambda *_: day)
    monkeypatch.setattr(whatif, "followed", lambda *_: nullcontext())
    plan = DayPlan(DAY, BEGIN_MS, BEGIN_MS + DAY_MS, (GroupPlan("small", 0, True, 1, rows.version, 0),))
    tables = DayTables(cast("SparkSession", here), "", plan)
    (found,), _, _ = recommend(tables, [GroupDay("small", {"downtime_ms": 1})], told.append)
    return here, list(found.grid), told


def changes(grid: Sequence[Outcome]) -> list[int]:
    """Return how many settings differ from the first in each trial."""
    return [sum(one.settings[name] != grid[0].settings[name] for name in one.settings) for one in grid]


def test_several_settings_are_tried_together_after_one_alone_was_better(
    rows: GroupRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, grid, told = in_rounds(rows, monkeypatch, 60_000, 50_000)
    assert changes(grid)[:2] == [0, 1]
    assert changes(grid) == sorted(changes(grid))
    assert changes(grid)[-1] > 1
    assert told == []
    rounds = ("reading days", "the present ones", "one at a time", "several together")
    assert here.told == [f"trying other settings: {one}" for one in rounds]


def test_it_is_told_where_no_setting_gets_better(rows: GroupRows, monkeypatch: pytest.MonkeyPatch) -> None:
    here, grid, told = in_rounds(rows, monkeypatch, 60_000)
    assert changes(grid)[0] == 0
    assert set(changes(grid)[1:]) == {1}
    assert told == ["small: no setting by itself makes anything better, so no more are tried"]
    assert here.told[-1] == "trying other settings: one at a time"


def test_what_there_was_no_time_for_is_not_said_to_be_no_better(
    rows: GroupRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, grid, told = in_rounds(rows, monkeypatch, 60_000, 60_000, None)
    assert (len(grid), told) == (2, [])


@pytest.mark.needs("spark")
async def test_a_day_in_a_database_is_tried(
    spark: "SparkSession",
    rows: GroupRows,
    engine: "AsyncEngine",
    database_url: str,
) -> None:
    await make_days(engine, [DAY])
    await write(engine, rows)
    plan = plan_day(partial(database.rows, database_url), DAY)
    tables = DayTables(spark, database_url, plan)
    day = GroupDay("small", {"downtime_ms": 1, "moves": 1, "records": rows.version})
    large = GroupDay("large", {"downtime_ms": 2, "records": 200_001})
    told: list[str] = []
    gone = GroupDay("gone", {"downtime_ms": 9})
    (found,), (left_out,), late = recommend(tables, [day, large, gone], told.append, budget_s=900)
    assert late == 0
    assert left_out.group == "large"
    assert left_out.severity is Severity.NOTICE
    assert "200,001 records" in left_out.detail
    assert found.group == "small"
    assert found.grid[0] == found.present
    assert found.present.settings["num_standby_replicas"] == 1
    assert "The simulation follows this day closely." in found.confidence
    none = next(one for one in found.grid if one.settings["num_standby_replicas"] == 0)
    assert none.downtime_ms > found.present.downtime_ms
    assert found.recommended.downtime_ms <= found.present.downtime_ms
    assert recommend(tables, [], told.append) == ((), (), 0)
    nothing, reasons, late = recommend(tables, [day], told.append, budget_s=0)
    assert (nothing, late) == ((), 1)
    assert "no time was left" in reasons[0].detail
    assert recommend(tables, [GroupDay("small", {"downtime_ms": 0, "moves": 0})], told.append) == ((), (), 0)
