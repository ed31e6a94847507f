"""Whatever is damaged is found where it is, once, and nobody else is accused; a clean day stays clean."""

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest
from tests.audit.conftest import EVERY, filled
from tests.audit.planted import DAY, MIDNIGHT, lived
from tests.audit.plants import PLANTS

from batonpass.audit.database import rows
from batonpass.audit.export import TABLES
from batonpass.audit.findings import AuditResult, Finding
from batonpass.audit.plan import plan_day
from batonpass.audit.reading import has_histories
from batonpass.audit.spread import AuditGroups, GroupResult
from batonpass.days.rows import COLUMNS, GroupRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from batonpass.postgres.embedded import EmbeddedPostgres

# The first test waits for Spark, a database and an audit.
pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def result(spark: "SparkSession", plants_url: str) -> AuditResult:
    """One audit of all plants at once; what an audit draws and writes into files is seen in test_audit."""
    del spark
    from batonpass.audit.job import Audit, run  # noqa: PLC0415 - needs Spark

    return run(Audit(plants_url, DAY, what_if=False))


def findings_of(result: AuditResult, group: str) -> list[Finding]:
    """Return what was found of a group."""
    return [one for one in result.findings if one.group == group]


@pytest.mark.parametrize("name", EVERY)
def test_damage_is_found_where_it_is_and_nobody_else_is_accused(result: AuditResult, name: str) -> None:
    plant = EVERY[name]
    found = findings_of(result, name)
    hits = [one for one in found if one.law == plant.law and plant.words in one.detail]
    times = plant.times if plant.law else 0
    assert len(hits) == times or (hits and times is None), found
    assert {one.law for one in found if one not in hits} <= plant.also, found
    task, member = plant.subject
    assert all(task in (None, one.task) and member in (None, one.member) for one in hits), found


def test_histories_of_a_whole_day_cannot_be_deleted_while_it_is_young(server: "EmbeddedPostgres") -> None:
    """Retention deletes all of a day, so an old day without any is left alone; nothing deletes those of yesterday."""
    day = lived("histories-gone")
    day.tables["assignment_events"].clear()
    with filled(server, [day]) as url:

        def found(now: datetime) -> list[str]:
            plan = plan_day(partial(rows, url), DAY, now=now)
            kept = has_histories(partial(rows, url), plan)
            step = AuditGroups(url, plan, (plan.groups,), kept, replay=True, frames=False)
            (batch,) = step([pa.RecordBatch.from_pylist([{"number": 0}])])
            (result,) = batch.to_pylist()
            return [one.detail for one in msgspec.json.decode(result["content"], type=GroupResult).found]

        (lost,) = found(MIDNIGHT + timedelta(days=1, hours=1))
        assert "there are no task histories of the day up to record" in lost
        assert found(MIDNIGHT + timedelta(days=3)) == []


def test_undamaged_groups_have_their_verdict(result: AuditResult) -> None:
    assert findings_of(result, "untouched") == []
    assert {one.group for one in result.groups} >= {"untouched", *PLANTS} - {"head-at-nought", "head-gone"}


HEADS = ("version", "coordinator_epoch")
"""The columns of a group's head that the audit reads."""

UNPLANTED = {("traces", "code")}
"""Not read: the trace itself says which program decided."""


def test_every_column_that_is_exported_is_damaged_by_a_plant(plants: dict[str, tuple[GroupRows, GroupRows]]) -> None:
    """A new column needs a plant, and docs/audit-proof.md a word on what comes of it."""
    (snapshot,) = plants["snapshot-true"][1].tables["snapshots"]
    damaged = set[tuple[str, str]]()
    for name, (was, now) in plants.items():
        damaged |= {("group_heads", one) for one in HEADS if getattr(was, one) != getattr(now, one)}
        for table in (one for one in TABLES if one in COLUMNS):
            before = [snapshot] if table == "snapshots" and not EVERY[name].traced else was.tables.get(table, [])
            pairs = list(zip(before, now.tables.get(table, []), strict=False))
            # A day that is moved as a whole has no column that is wrong.
            if sum(one != other for one, other in pairs) <= max(1, len(pairs) // 2):
                found = (zip(COLUMNS[table], one, other, strict=True) for one, other in pairs)
                damaged |= {(table, column) for of in found for column, one, other in of if one != other}
    every = {(table, column) for table in TABLES for column in COLUMNS.get(table, HEADS)}
    assert every - damaged == UNPLANTED


def test_missing_records_that_are_too_young_for_retention_are_lost(plants_url: str) -> None:
    """A snapshot makes records needless, but those that are younger than any retention must be there."""
    lost = []
    for days in (1, 30):
        plan = plan_day(
            lambda sql: rows(plants_url, sql), DAY, group="first-lost-snapshot", now=MIDNIGHT + timedelta(days=days)
        )
        lost += [one.lost for one in plan.groups]
    assert lost == [1, 0]
