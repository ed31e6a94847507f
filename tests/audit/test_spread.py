"""A day is the same however it was spread: read and looked at in one step, or brought together by group first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.audit.planted import DAY

from batonpass.audit import source
from batonpass.audit.plan import GroupPart, plan_day

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from batonpass.audit.spread import Slots
    from batonpass.audit.tables import DayTables

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(900)]


@pytest.fixture
def tables(spark: SparkSession, planted_url: str) -> DayTables:
    """The planted day, to be read without a jar."""
    from batonpass.audit.tables import AdbcReader, DayTables  # noqa: PLC0415 - needs Spark

    plan = plan_day(lambda sql: source.rows(planted_url, sql), DAY)
    return DayTables(spark, AdbcReader(spark, planted_url), plan)


def come_to(tables: DayTables, slots: Slots) -> list[str]:
    """Return everything that a day comes to, in an order of its own; sums of floating numbers but for their ends."""
    from batonpass.audit.spread import looked  # noqa: PLC0415 - needs Spark

    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: told(one) for name, one in value.items() if one is not None}
        return round(value, 6) if isinstance(value, float) else value

    return sorted(str(told(row)) for row in looked(tables, slots, frames=True).toArrow().to_pylist())


def test_large_groups_come_to_the_same_as_small_ones(tables: DayTables) -> None:
    """Read in pieces of 10 records and brought together, each group comes to what it does when it is read at once."""
    from batonpass.audit.spread import slots_of  # noqa: PLC0415 - needs Spark

    slots = slots_of(tables.spark)
    at_once = come_to(tables, slots)
    assert len(at_once) > 500
    assert sum(one.last - one.base > 10 for one in tables.plan.groups) > 10
    assert come_to(replace(tables, chunk=10), slots) == at_once


def test_a_part_that_is_short_of_memory_comes_to_the_same(tables: DayTables) -> None:
    """What does not fit goes on on disk."""
    from batonpass.audit.spread import slots_of  # noqa: PLC0415 - needs Spark

    slots = slots_of(tables.spark)
    assert come_to(tables, slots._replace(memory="40MB")) == come_to(tables, slots)


def test_each_part_has_its_share_of_the_machine(spark: SparkSession) -> None:
    """Two parts at once have three fifths of the memory between them, or what Spark was told."""
    from batonpass.audit.spread import MEMORY, slots_of  # noqa: PLC0415 - needs Spark

    assert spark.sparkContext.getConf().get(MEMORY, None) is None
    assert slots_of(spark) == (2, 2, "30%")


@pytest.mark.parametrize(
    ("records", "groups", "parts"),
    [(500, 3, 1), (15_000, 1, 1), (25_000, 5, 2), (200_000, 5, 2), (200_001, 5, 4), (1_000_000, 5, 10), (10, 401, 4)],
)
def test_parts_are_work_for_all_cores_and_fit_into_memory(records: int, groups: int, parts: int) -> None:
    """As many as two cores do at once, again and again; few records are not worth a second part."""
    from batonpass.audit.spread import part_count  # noqa: PLC0415 - needs Spark

    assert part_count(records, groups, cores=2, most=100_000) == parts


def test_groups_are_bundled_so_that_parts_take_about_as_long() -> None:
    """Each group is in one bundle; none has more groups than one query names."""
    from batonpass.audit.spread import bundles  # noqa: PLC0415 - needs Spark
    from batonpass.audit.tables import GROUPS_PER_PART  # noqa: PLC0415 - the same

    groups = [GroupPart(f"g{size}", 0, True, 1, size, 0) for size in (10, 70, 60, 30, 200)]
    assert [[one.group for one in some] for some in bundles(groups, 2)] == [["g200"], ["g70", "g60", "g30", "g10"]]
    assert bundles(groups[:1], 2) == [groups[:1]]
    many = [GroupPart(f"g{number}", 0, True, 1, 1, 0) for number in range(GROUPS_PER_PART + 1)]
    large = GroupPart("large", 0, True, 1, 9_999, 0)
    assert sorted(len(some) for some in bundles([*many, large], 2)) == [2, GROUPS_PER_PART]


def test_progress_is_told_while_parts_are_done(spark: SparkSession) -> None:
    """How many parts are done is said when that has changed, and no more after the end."""
    import time  # noqa: PLC0415

    from batonpass.audit.progress import followed  # noqa: PLC0415 - needs Spark

    def slow(batches: Any) -> Any:
        for batch in batches:
            time.sleep(0.4)
            yield batch

    told: list[str] = []
    with followed(spark, told.append, every_s=0.05):
        assert len(spark.range(0, 6, 1, 6).mapInArrow(slow, "id long").collect()) == 6
    assert any(line.endswith("of 6 parts") for line in told)
    assert len(told) == len(set(told))
    before = len(told)
    spark.range(0, 6, 1, 6).mapInArrow(slow, "id long").collect()
    assert len(told) == before
