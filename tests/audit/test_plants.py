"""Whatever is damaged is found where it is, once, and nobody else is accused; a clean day stays clean."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.audit.column_plants import COLUMN_PLANTS
from tests.audit.planted import DAY, MIDNIGHT, write_day
from tests.audit.plants import PLANTS, planted_days

from batonpass.audit.database import rows
from batonpass.audit.findings import AuditResult, Finding
from batonpass.audit.plan import plan_day
from batonpass.postgres.schema import upgrade

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from batonpass.postgres.embedded import EmbeddedPostgres

# The first test waits for Spark, a database and an audit.
EVERY = {**PLANTS, **COLUMN_PLANTS}

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def url(server: EmbeddedPostgres) -> Iterator[str]:
    """The URL of a database with all plants."""
    from tests.postgres.databases import beside, numbers, run_sql  # noqa: PLC0415 - as in the fixtures beside

    name = f"plants{next(numbers)}"
    url = beside(server.url, name)

    async def fill() -> None:
        await run_sql(server.url, f"create database {name}")
        await upgrade(url)
        await write_day(url, list(planted_days(EVERY)))
        for group, plant in EVERY.items():
            if plant.sql:
                await run_sql(url, plant.sql.replace(":name", f"'{group}'"))

    asyncio.run(fill())
    yield url
    asyncio.run(run_sql(server.url, f"drop database {name} with (force)"))


@pytest.fixture(scope="module")
def result(spark: SparkSession, url: str) -> AuditResult:
    """One audit of all plants at once; what an audit draws and writes into files is seen in test_audit."""
    del spark
    from batonpass.audit.job import Audit, run  # noqa: PLC0415 - needs Spark

    return run(Audit(url, DAY, what_if=False))


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


def test_missing_records_that_are_too_young_for_retention_are_lost(url: str) -> None:
    """A snapshot makes records needless, but those that are younger than any retention must be there."""
    lost = []
    for days in (1, 30):
        plan = plan_day(
            lambda sql: rows(url, sql), DAY, group="first-lost-snapshot", now=MIDNIGHT + timedelta(days=days)
        )
        lost += [one.lost for one in plan.groups]
    assert lost == [1, 0]
