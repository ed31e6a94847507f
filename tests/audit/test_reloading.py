"""A day that is audited from its export has the verdict that it had in its night."""

import asyncio
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.audit.conftest import Audited
from tests.audit.planted import DAY
from tests.postgres.databases import beside, numbers, run_sql

from batonpass.audit.export import NotExported, as_of, export_day, reload
from batonpass.audit.findings import AuditResult
from batonpass.postgres.schema import upgrade

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from batonpass.postgres.embedded import EmbeddedPostgres

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(900)]


async def empty(server: "EmbeddedPostgres", name: str) -> str:
    """Return the URL of a new database with the tables."""
    await run_sql(server.url, f"create database {name}")
    url = beside(server.url, name)
    await upgrade(url)
    return url


def come_to(url: str) -> tuple[Any, ...]:
    """Return what an audit says, but for the times at which it was carried out."""
    from batonpass.audit.job import Audit, run  # noqa: PLC0415 - needs Spark

    found: AuditResult = run(Audit(url, DAY, what_if=False, keep=False, as_of=as_of(DAY)))
    return found.groups, found.findings, replace(found, started_at_ms=0, finished_at_ms=0, log_lines=())


@pytest.mark.parametrize("which", ["planted_url", "plants_url"])
def test_a_day_from_its_export_has_the_same_verdict(
    spark: "SparkSession", server: "EmbeddedPostgres", request: pytest.FixtureRequest, tmp_path: Path, which: str
) -> None:
    del spark
    url: str = request.getfixturevalue(which)
    export_day(url, DAY, str(tmp_path))
    there = asyncio.run(empty(server, f"reloaded{next(numbers)}"))
    reload(there, str(tmp_path), DAY)
    again, was = come_to(there), come_to(url)
    assert again == was


def test_a_day_that_was_not_exported_is_refused(audited: Audited, tmp_path: Path) -> None:
    with pytest.raises(NotExported, match=r"no whole export of 2026-11-17: there is no log/record_log/day=2026-11-17"):
        reload(audited.url, str(audited.out), DAY - timedelta(days=1))
    with pytest.raises(NotExported):
        reload(audited.url, str(tmp_path), date(2026, 1, 1))
