"""A day is the same however it was spread."""

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.audit.planted import DAY

from batonpass.audit import spread
from batonpass.audit.database import rows
from batonpass.audit.plan import GroupPlan, plan_day
from batonpass.audit.rows import Interval, schema_of
from batonpass.audit.spread import PARTS_MOST, DayTables, batches_of, day_results, name_of, parts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(900)]


def come_to(tables: DayTables) -> list[str]:
    """Return everything that a day comes to, in an order of its own."""
    parts = parts_of(tables.plan.groups)
    return sorted(map(str, day_results(tables, parts, frames=True, replay=True).toArrow().to_pylist()))


def test_a_day_in_many_tasks_comes_to_the_same(
    spark: "SparkSession", planted_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = DayTables(spark, planted_url, plan_day(partial(rows, planted_url), DAY))
    monkeypatch.setattr(spread, "PART_RECORDS", 10**9)
    at_once = come_to(tables)
    assert len(at_once) > 100
    monkeypatch.setattr(spread, "PART_RECORDS", 500)
    assert come_to(tables) == at_once


def test_a_table_is_sorted_by_group(spark: "SparkSession", planted_url: str) -> None:
    tables = DayTables(spark, planted_url, plan_day(partial(rows, planted_url), DAY))
    results = day_results(tables, parts_of(tables.plan.groups), frames=True, replay=False)
    batches = list(batches_of(results, Interval))
    groups = [name for batch in batches for name in batch.column("group_id").to_pylist()]
    assert len(batches) >= len(set(groups)) > 10
    assert groups == sorted(groups)
    assert all(batch.schema.names == schema_of(Interval).names for batch in batches)


def groups_of(*sizes: int) -> list[GroupPlan]:
    """Return groups of so many records."""
    return [GroupPlan(f"g{size}", 0, True, 1, size, 0) for size in sizes]


def test_a_large_group_is_a_part_of_its_own_and_small_ones_share_one() -> None:
    parts = parts_of(groups_of(1_000, 70, 6_000, 1_400, 0, 200_000))
    assert [[one.group for one in part] for part in parts] == [
        ["g200000"],
        ["g6000"],
        ["g1400", "g1000"],
        ["g70", "g0"],
    ]
    assert [name_of(one) for one in parts[1:]] == [
        "group g6000",
        "group g1400 and 1 smaller one",
        "group g70 and 1 smaller one",
    ]
    assert parts_of([]) == []


def test_a_part_is_worth_the_price_of_a_task() -> None:
    """A record that is only folded costs a tenth of one whose decision is made again."""
    groups = groups_of(6_000, 7_000, 8_000, 9_000)
    assert len(parts_of(groups, replay=True)) == 4
    assert [len(part) for part in parts_of(groups, replay=False)] == [4]
    assert [len(part) for part in parts_of([*groups, *groups], replay=False)] == [3, 4, 1]


def test_a_large_day_has_a_bounded_number_of_parts() -> None:
    assert PARTS_MOST / 2 < len(parts_of(groups_of(*range(3_000, 5_000)))) <= PARTS_MOST
