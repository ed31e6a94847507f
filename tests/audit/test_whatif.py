"""What-if over Spark: a day's scenario is read from a database, played under all settings, and put together again."""

from __future__ import annotations

import math
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from tests.audit.small_day import BEGIN_MS, DAY, DAY_MS, SCENARIO

from batonpass.audit import database
from batonpass.audit.day_scenario import DayScenario, Sampled
from batonpass.audit.findings import GroupDay, Severity
from batonpass.audit.plan import plan_day
from batonpass.audit.tables import DayTables
from batonpass.audit.trials import attempt, grid
from batonpass.audit.whatif import DAYS, NO_DAY, TRIALS, Facts, PlayTrials, day_batch, recommend
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


def facts(rows: GroupRows, *, first: int = 1) -> Facts:
    """Return what the day's scenario is made from: the records from the ``first`` on, and no samples."""
    records = [
        (seq, int(at.timestamp() * 1_000), epoch, StoredRecord(kind, form, payload.encode()))
        for _, seq, epoch, at, kind, form, payload in rows.tables["record_log"]
        if seq >= first
    ]
    return Facts("small", Sampled(), None, records)


def day_rows(found: Facts) -> list[dict[str, Any]]:
    """Return what the day of a group comes to."""
    found_rows: list[dict[str, Any]] = day_batch(found, begin_ms=BEGIN_MS, end_ms=BEGIN_MS + DAY_MS).to_pylist()
    return found_rows


def test_a_day_becomes_one_row_for_each_set_of_settings(rows: GroupRows) -> None:
    found = day_rows(facts(rows))
    day = msgspec.json.decode(found[0]["day"], type=DayScenario)
    assert {row["group_id"] for row in found} == {"small"}
    assert [msgspec.json.decode(row["settings"]) for row in found] == [*grid(day.scenario)]
    assert [row["place"] for row in found] == [*range(len(found))]


def test_a_day_may_begin_with_a_snapshot(rows: GroupRows) -> None:
    log = rows.tables["record_log"]
    before = [row for row in log if row[3].timestamp() * 1_000 < BEGIN_MS]
    group = evolve(
        Group(GroupId("small")), [decode_record(StoredRecord(row[4], row[5], row[6].encode())) for row in before]
    )
    base = (len(before), GROUP_VERSION, zlib.compress(encode_group(group)))
    assert day_rows(facts(rows, first=len(before) + 1)._replace(snapshot=base)) == day_rows(facts(rows))


def test_a_day_with_a_hole_has_a_reason_instead_of_a_scenario(rows: GroupRows) -> None:
    whole = facts(rows)
    records = list(whole.records)
    strange = (*records[50][:3], records[50][3]._replace(payload=b"{"))
    for found, why in (
        (whole._replace(records=records[:50] + records[51:]), "record 51 is missing"),
        (whole._replace(records=[*records[:50], strange, *records[51:]]), "record 51 cannot be read"),
        (whole._replace(snapshot=(0, GROUP_VERSION, b"?")), "the snapshot of version 0 cannot be read"),
        (whole._replace(records=records[:1]), "the group has no members all day"),
    ):
        rows_of_it = day_rows(found)
        assert rows_of_it == [{"group_id": "small", "place": NO_DAY, "settings": "", "day": why}]
        (tried,) = PlayTrials(math.inf)([pa.RecordBatch.from_pylist(rows_of_it, schema=DAYS)])
        assert tried.to_pylist() == [{"group_id": "small", "place": NO_DAY, "trial": why, "day": ""}]


def test_a_trial_carries_the_story_once(rows: GroupRows) -> None:
    first, second = day_rows(facts(rows))[:2]
    (one,) = (
        batch.to_pylist()[0] for batch in PlayTrials(math.inf)([pa.RecordBatch.from_pylist([first], schema=DAYS)])
    )
    assert set(one) == set(TRIALS.names)
    day = msgspec.json.decode(one["day"], type=DayScenario)
    assert day.scenario.steps == ()
    assert second["place"] == 1
    whole = msgspec.json.decode(first["day"], type=DayScenario)
    assert (
        msgspec.json.decode(one["trial"])["downtime_ms"] == attempt(whole.scenario, grid(whole.scenario)[0]).downtime_ms
    )


@pytest.mark.needs("spark")
async def test_a_day_in_a_database_is_tried(
    spark: SparkSession, rows: GroupRows, engine: AsyncEngine, database_url: str
) -> None:
    await make_days(engine, [DAY])
    await write(engine, rows)
    plan = plan_day(partial(database.rows, database_url), DAY)
    tables = DayTables(spark, database_url, plan)
    day = GroupDay("small", {"downtime_ms": 1, "moves": 1, "records": rows.version})
    large = GroupDay("large", {"downtime_ms": 2, "records": 200_001})
    (found,), (left_out,), late = recommend(tables, [day, large, GroupDay("gone", {"downtime_ms": 9})], budget_s=900)
    assert late == 0
    assert left_out.group == "large"
    assert left_out.severity is Severity.NOTICE
    assert "200,001 records" in left_out.detail
    assert found.group == "small"
    assert found.grid[0] == found.present
    assert len(found.grid) >= 10
    assert found.present.settings["num_standby_replicas"] == 1
    assert "The simulation follows this day closely." in found.confidence
    none = next(one for one in found.grid if one.settings["num_standby_replicas"] == 0)
    assert none.downtime_ms > found.present.downtime_ms
    assert found.recommended.downtime_ms <= found.present.downtime_ms
    assert recommend(tables, []) == ((), (), 0)
    nothing, reasons, late = recommend(tables, [day], budget_s=0)
    assert (nothing, late) == ((), len(found.grid))
    assert "no time was left" in reasons[0].detail
    assert recommend(tables, [GroupDay("small", {"downtime_ms": 0, "moves": 0})]) == ((), (), 0)
