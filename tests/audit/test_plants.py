"""Whatever is damaged is found where it is, once, and nobody else is accused; a clean day stays clean."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.audit.planted import DAY, write_day
from tests.audit.plants import PLANTS, planted_days

from batonpass.audit.findings import AuditResult, Finding
from batonpass.postgres.schema import upgrade

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from batonpass.postgres.embedded import EmbeddedPostgres

# The first test waits for Spark, a database and an audit.
pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def result(
    spark: SparkSession, server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AuditResult]:
    """One audit of all plants at once, with everything that it writes."""
    del spark
    from tests.postgres.server import beside, numbers, run_sql  # noqa: PLC0415 - as in the fixtures beside

    from batonpass.audit.job import Audit, run  # noqa: PLC0415 - needs Spark

    name = f"plants{next(numbers)}"
    url, out = beside(server.url, name), tmp_path_factory.mktemp("plants")

    async def fill() -> None:
        await run_sql(server.url, f"create database {name}")
        await upgrade(url)
        await write_day(url, list(planted_days()))
        for group, plant in PLANTS.items():
            if plant.sql:
                await run_sql(url, plant.sql.replace(":name", f"'{group}'"))

    asyncio.run(fill())
    yield run(Audit(url, DAY, out=str(out), what_if=False))
    asyncio.run(run_sql(server.url, f"drop database {name} with (force)"))


def told(result: AuditResult, group: str) -> list[Finding]:
    """Return what was found of a group."""
    return [one for one in result.findings if one.group == group]


@pytest.mark.parametrize("name", PLANTS)
def test_damage_is_found_where_it_is_and_nobody_else_is_accused(result: AuditResult, name: str) -> None:
    """Once, by its law, with task and member where it has them; of another law only what the damage takes away."""
    plant = PLANTS[name]
    found = told(result, name)
    hits = [one for one in found if one.law == plant.law and plant.words in one.detail]
    assert len(hits) == (plant.times if plant.law else 0), found
    assert {one.law for one in found if one not in hits} <= plant.also, found
    task, member = plant.subject
    assert all(task in (None, one.task) and member in (None, one.member) for one in hits), found


def test_others_have_their_verdict(result: AuditResult) -> None:
    """A day that nobody touched is measured and found in order, whatever is beside it."""
    assert told(result, "untouched") == []
    assert {one.group for one in result.groups} >= {"untouched", *PLANTS} - {"head-at-nought", "head-gone"}
