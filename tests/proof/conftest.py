"""A coordinator that is a process of its own, on a database of its own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import make_url
from tests.postgres.databases import run_sql
from tests.proof.coordinators import CoordinatorProcess

Jump = Callable[[str], Awaitable[None]]


@pytest.fixture
async def jump(own_url: str) -> Jump:
    """Return what sets the clock of the database: a function of its name that every session finds before it."""
    await run_sql(
        own_url,
        "create table ahead (by interval not null)",
        "insert into ahead values ('0')",
        "create function clock_timestamp() returns timestamptz language sql volatile as"
        " 'select pg_catalog.clock_timestamp() + by from public.ahead'",
        f"alter database {make_url(own_url).database} set search_path = public, pg_catalog",
    )

    async def jumping(by: str) -> None:
        await run_sql(own_url, f"update ahead set by = by + interval '{by}'")  # noqa: S608 - the test's own words

    return jumping


@pytest.fixture
async def coordinator(own_url: str, tmp_path: Path) -> AsyncIterator[CoordinatorProcess]:
    """A coordinator that runs on a database of its own."""
    made = CoordinatorProcess(own_url, tmp_path / "coordinator.log")
    await made.start()
    yield made
    await made.kill()
