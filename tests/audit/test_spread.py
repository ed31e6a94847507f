"""A day is the same however it was spread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.audit.planted import DAY

from batonpass.audit import spread
from batonpass.audit.database import rows
from batonpass.audit.plan import GroupPlan, plan_day
from batonpass.audit.spread import bundles, day_results, task_count
from batonpass.audit.tables import DayTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(900)]


def come_to(tables: DayTables) -> list[str]:
    """Return everything that a day comes to, in an order of its own."""
    return sorted(map(str, day_results(tables, frames=True, replay=True).toArrow().to_pylist()))


def test_a_day_in_many_tasks_comes_to_the_same(
    spark: SparkSession, planted_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = DayTables(spark, planted_url, plan_day(partial(rows, planted_url), DAY))
    at_once = come_to(tables)
    assert len(at_once) > 500
    monkeypatch.setattr(spread, "LEAST", 1)
    assert come_to(tables) == at_once


@pytest.mark.parametrize(
    ("records", "tasks"),
    [(0, 1), (2_499, 1), (5_000, 2), (15_000, 6), (25_000, 8), (400_000, 8), (400_001, 9), (1_000_000, 20)],
)
def test_tasks_are_work_for_all_cores_and_not_too_large(records: int, tasks: int) -> None:
    assert task_count(records, cores=2) == tasks


def test_groups_are_bundled_so_that_parts_take_about_as_long() -> None:
    groups = [GroupPlan(f"g{size}", 0, True, 1, size, 0) for size in (10, 70, 60, 30, 200)]
    assert [[one.group for one in some] for some in bundles(groups, 2)] == [["g200"], ["g70", "g60", "g30", "g10"]]
    assert bundles(groups[:1], 2) == [groups[:1]]
