"""One embedded server for a test run, and the databases on it: a shared one that is emptied, or one of a test's own."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.postgres.databases import EMPTY, beside, numbers, run_sql
from tests.postgres.unleased import unleased_log

from batonpass.postgres.connect import connect
from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.postgres.schema import upgrade


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Path]:
    """A folder for the whole run that the server's user can reach, which pytest's own are not for root."""
    folder = Path(tempfile.mkdtemp(prefix="batonpass-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def server(open_folder: Path) -> Iterator[EmbeddedPostgres]:
    """The server of the run."""
    with EmbeddedPostgres(open_folder / "server", durable=False) as running:
        yield running


@pytest.fixture(scope="session")
def folder(open_folder: Path) -> Path:
    """The folder of another server, which has run before; `kept` has one row. Tests leave it fit for another start."""
    made = open_folder / "another"
    with EmbeddedPostgres(made, durable=False) as running:
        asyncio.run(run_sql(running.url, "create table kept (n int)", "insert into kept values (7)"))
    return made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def model(server: EmbeddedPostgres) -> str:
    """The name of a migrated database that others are copied from, in a tenth of the time; nobody connects to it."""
    await run_sql(server.url, "create database model")
    await upgrade(beside(server.url, "model"))
    return "model"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def migrated(server: EmbeddedPostgres, model: str) -> str:
    """The URL of the migrated database that tests share."""
    await run_sql(server.url, f"create database migrated template {model}")
    return beside(server.url, "migrated")


@pytest.fixture
async def database_url(migrated: str) -> str:
    """The URL of a migrated database with nothing in it, which the test may fill and must not alter."""
    await run_sql(migrated, *EMPTY)
    return migrated


@pytest.fixture
async def bare_url(server: EmbeddedPostgres) -> AsyncIterator[str]:
    """The URL of an empty database that no other test uses."""
    name = f"test{next(numbers)}"
    await run_sql(server.url, f"create database {name}")
    yield beside(server.url, name)
    await run_sql(server.url, f"drop database {name} with (force)")


@pytest.fixture
async def own_url(server: EmbeddedPostgres, model: str) -> AsyncIterator[str]:
    """The URL of a migrated database that no other test uses."""
    name = f"test{next(numbers)}"
    await run_sql(server.url, f"create database {name} template {model}")
    yield beside(server.url, name)
    await run_sql(server.url, f"drop database {name} with (force)")


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """Connections to a migrated database with nothing in it."""
    made = connect(database_url)
    yield made
    await made.dispose()


@pytest.fixture
async def own_engine(own_url: str) -> AsyncIterator[AsyncEngine]:
    """Connections to a database of the test's own, whose tables it may cut."""
    made = connect(own_url)
    yield made
    await made.dispose()


@pytest.fixture
async def postgres_log(engine: AsyncEngine) -> PostgresRecordLog:
    """An empty record log on Postgres, as one coordinator has it."""
    return unleased_log(engine)
