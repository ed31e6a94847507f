"""One Spark session, one day written down and one audit of it, for each process of a run."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.audit import planted
from tests.audit.column_plants import COLUMN_PLANTS
from tests.audit.plants import PLANTS, Plant, clean_and_damaged
from tests.postgres.databases import beside, numbers, run_sql

from batonpass.postgres.schema import upgrade

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from batonpass.audit.findings import AuditResult
    from batonpass.days.rows import GroupRows
    from batonpass.postgres.embedded import EmbeddedPostgres


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A Spark session for small data; whoever opens one meanwhile is given this one."""
    from batonpass.audit.session import opened  # noqa: PLC0415 - tests here that need no Spark run without it

    with opened({"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}) as session:
        yield session


@contextmanager
def filled(server: "EmbeddedPostgres", groups: "Iterable[GroupRows]", statements: Iterable[str] = ()) -> Iterator[str]:
    """Lend the URL of a database with the day of some groups, after some statements."""
    name = f"audited{next(numbers)}"
    url = beside(server.url, name)

    async def fill() -> None:
        await run_sql(server.url, f"create database {name}")
        await upgrade(url)
        await planted.write_day(url, list(groups))
        for one in statements:
            await run_sql(url, one)

    asyncio.run(fill())
    yield url
    asyncio.run(run_sql(server.url, f"drop database {name} with (force)"))


@pytest.fixture(scope="session")
def planted_url(server: "EmbeddedPostgres") -> Iterator[str]:
    """The URL of a database with the day of `planted`; tests leave its records as they are."""
    with filled(server, planted.whole_day()) as url:
        yield url


EVERY = {"untouched": Plant(lambda _: None, ""), **PLANTS, **COLUMN_PLANTS}
"""All damage that is planted, each in a group of its own, and a day without any."""


@pytest.fixture(scope="session")
def plants() -> "dict[str, tuple[GroupRows, GroupRows]]":
    """The day of each plant, as it was and as it is."""
    return dict(zip(EVERY, clean_and_damaged(EVERY), strict=True))


@pytest.fixture(scope="session")
def plants_url(server: "EmbeddedPostgres", plants: "dict[str, tuple[GroupRows, GroupRows]]") -> Iterator[str]:
    """The URL of a database with all plants; tests leave its records as they are."""
    damage = [plant.sql.replace(":name", f"'{group}'") for group, plant in EVERY.items() if plant.sql]
    with filled(server, [damaged for _, damaged in plants.values()], damage) as url:
        yield url


class Audited(NamedTuple):
    """The audit of the day of `planted`: its result, where it was written, its progress, the results handed out."""

    result: "AuditResult"
    url: str
    out: Path
    progress: list[str]
    results: "list[AuditResult]"


@pytest.fixture(scope="session")
def audited(spark: "SparkSession", planted_url: str, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """One audit of the day, with everything that it writes."""
    del spark
    from batonpass.audit.job import Audit, run  # noqa: PLC0415 - see above

    out, progress = tmp_path_factory.mktemp("audited"), list[str]()
    results: list[AuditResult] = []
    wanted = Audit(planted_url, planted.DAY, out=str(out), what_if=False, objective=0.995)
    return Audited(run(wanted, progress.append, results.append), planted_url, out, progress, results)
