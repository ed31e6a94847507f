"""A day is the same however it was spread."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.audit.planted import DAY

from batonpass.audit.database import rows
from batonpass.audit.plan import GroupPlan, plan_day
from batonpass.audit.spread import MEMORY, Slots, bundles, day_results, part_count, slots_of
from batonpass.audit.tables import GROUPS_PER_PART, DayTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(900)]


def come_to(tables: DayTables, slots: Slots) -> list[str]:
    """Return everything that a day comes to, in an order of its own; sums of floating numbers but for their ends."""

    def comparable(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: comparable(one) for name, one in value.items() if one is not None}
        return round(value, 6) if isinstance(value, float) else value

    return sorted(str(comparable(row)) for row in day_results(tables, slots, frames=True).toArrow().to_pylist())


def test_small_parts_short_of_memory_come_to_the_same(spark: SparkSession, planted_url: str) -> None:
    tables = DayTables(spark, planted_url, plan_day(partial(rows, planted_url), DAY))
    slots = slots_of(spark)
    at_once = come_to(tables, slots)
    assert len(at_once) > 500
    assert come_to(replace(tables, chunk=400), slots._replace(memory="40MB")) == at_once


def test_each_part_has_its_share_of_the_machine(spark: SparkSession) -> None:
    """Two parts at once have three fifths of the memory between them, or what Spark was given."""
    assert spark.sparkContext.getConf().get(MEMORY, None) is None
    assert slots_of(spark) == (2, 2, "30%")


@pytest.mark.parametrize(
    ("records", "groups", "parts"),
    [(500, 3, 1), (15_000, 1, 1), (25_000, 5, 2), (200_000, 5, 2), (200_001, 5, 4), (1_000_000, 5, 10), (10, 401, 4)],
)
def test_parts_are_work_for_all_cores_and_fit_into_memory(records: int, groups: int, parts: int) -> None:
    assert part_count(records, groups, cores=2, most=100_000) == parts


def test_groups_are_bundled_so_that_parts_take_about_as_long() -> None:
    groups = [GroupPlan(f"g{size}", 0, True, 1, size, 0) for size in (10, 70, 60, 30, 200)]
    assert [[one.group for one in some] for some in bundles(groups, 2)] == [["g200"], ["g70", "g60", "g30", "g10"]]
    assert bundles(groups[:1], 2) == [groups[:1]]
    many = [GroupPlan(f"g{number}", 0, True, 1, 1, 0) for number in range(GROUPS_PER_PART + 1)]
    large = GroupPlan("large", 0, True, 1, 9_999, 0)
    assert sorted(len(some) for some in bundles([*many, large], 2)) == [2, GROUPS_PER_PART]
