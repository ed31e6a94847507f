"""Whatever is damaged is found where it is, once, and nobody else is accused; a clean day stays clean."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.audit.conftest import EVERY
from tests.audit.planted import DAY, MIDNIGHT
from tests.audit.plants import PLANTS

from batonpass.audit.database import rows
from batonpass.audit.findings import AuditResult, Finding
from batonpass.audit.plan import plan_day

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The first test waits for Spark, a database and an audit.
pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def result(spark: SparkSession, plants_url: str) -> AuditResult:
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


def test_undamaged_groups_have_their_verdict(result: AuditResult) -> None:
    assert findings_of(result, "untouched") == []
    assert {one.group for one in result.groups} >= {"untouched", *PLANTS} - {"head-at-nought", "head-gone"}


def test_missing_records_that_are_too_young_for_retention_are_lost(plants_url: str) -> None:
    """A snapshot makes records needless, but those that are younger than any retention must be there."""
    lost = []
    for days in (1, 30):
        plan = plan_day(
            lambda sql: rows(plants_url, sql), DAY, group="first-lost-snapshot", now=MIDNIGHT + timedelta(days=days)
        )
        lost += [one.lost for one in plan.groups]
    assert lost == [1, 0]
