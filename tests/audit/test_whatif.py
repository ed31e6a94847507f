"""What-if over Spark: a day's scenario is read from a database, played under all settings, and put together again."""

from __future__ import annotations

import math
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.audit.small_day import BEGIN_MS, DAY, DAY_MS, SCENARIO

from batonpass.audit import database, whatif
from batonpass.audit.day_scenario import DayScenario, Sampled
from batonpass.audit.findings import GroupDay, Severity
from batonpass.audit.plan import plan_day
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


def test_a_day_with_a_hole_has_a_reason_instead_of_a_scenario(rows: GroupRows) -> None:
    whole = log(rows)
    for found, why in (
        (whole[:50] + whole[51:], "record 51 is missing"),
        ([*whole[:50], whole[50]._replace(payload=b"{"), *whole[51:]], "record 51 cannot be read"),
        ([LogRow(0, SNAPSHOT, 0, 0, "", GROUP_VERSION, b"?"), *whole], "the snapshot of version 0 cannot be read"),
        (whole[:1], "the group has no members all day"),
    ):
        assert day_from(found) == why


def test_no_trial_is_begun_when_the_time_is_over(rows: GroupRows) -> None:
    day = day_from(log(rows))
    assert isinstance(day, DayScenario)
    wanted = (day.scenario, present(day.scenario))
    assert play_trial(0, wanted) == NO_TIME
    assert play_trial(math.inf, wanted) == attempt(*wanted)


def descriptions(spark: SparkSession) -> list[str]:
    """Return how the jobs are described that Spark's pages show."""
    context: Any = spark.sparkContext
    jobs = context._jsc.sc().statusStore().jobsList(context._jvm.java.util.ArrayList())
    return [str(jobs.apply(place).description().getOrElse(None)) for place in range(jobs.size())]


@pytest.mark.needs("spark")
async def test_a_day_in_a_database_is_tried(
    spark: SparkSession,
    rows: GroupRows,
    engine: AsyncEngine,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await make_days(engine, [DAY])
    await write(engine, rows)
    plan = plan_day(partial(database.rows, database_url), DAY)
    tables = DayTables(spark, database_url, plan)
    day = GroupDay("small", {"downtime_ms": 1, "moves": 1, "records": rows.version})
    large = GroupDay("large", {"downtime_ms": 2, "records": 200_001})
    told: list[str] = []
    gone = GroupDay("gone", {"downtime_ms": 9})
    before = set(descriptions(spark))
    (found,), (left_out,), late = recommend(tables, [day, large, gone], told.append, budget_s=900)
    assert set(descriptions(spark)) - before == {
        f"trying other settings: {what}"
        for what in ("reading days", "the present ones", "one at a time", "several together")
    }
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
    told.clear()
    monkeypatch.setattr(whatif, "gets_better", lambda _: False)
    (stopped,), _, _ = recommend(tables, [day], told.append, budget_s=900)
    assert [one for one in told if "small:" in one] == [
        "small: no setting by itself makes anything better, so no more are tried"
    ]
    changed = [
        {name for name in one.settings if one.settings[name] != found.present.settings[name]} for one in stopped.grid
    ]
    assert {len(one) for one in changed[1:]} == {1}
    assert len(stopped.grid) < len(found.grid)
