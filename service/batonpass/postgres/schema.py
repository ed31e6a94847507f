"""Bring a database to the schema that this program needs."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from batonpass.postgres.connect import async_url, sqlstate

LOCK_TIMEOUT_MS = 5_000
"""How long a migration waits for others to let go of a table, while new readers of it queue up behind."""

STATEMENT_TIMEOUT_MS = 60_000
ATTEMPTS = 5
PAUSE_S = 1.0
LOCK_NOT_AVAILABLE = "55P03"


class SchemaBusy(Exception):
    """The tables were in use all the time; nothing was changed. The upgrade may be asked for again."""


def migrations() -> Path:
    """Return the folder of the migrations: in the installed package, or beside the sources."""
    package = Path(str(files("batonpass")))
    carried = package / "migrations"
    return carried if carried.is_dir() else package.parent.parent / "migrations"


async def upgrade(
    url: str,
    *,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
    statement_timeout_ms: int = STATEMENT_TIMEOUT_MS,
    attempts: int = ATTEMPTS,
    folder: Path | None = None,
) -> None:
    """Run every migration that the database has not seen, all of them or none.

    Several processes may do so at once: one waits for the other. Within a process alembic can do only one at a time.

    Raises:
        SchemaBusy: when the locks that it needs were not to be had in any attempt.
        DBAPIError: when a migration failed, one that took longer than its timeout included.
    """
    config = _config(folder or migrations(), lock_timeout_ms, statement_timeout_ms)
    # No connection outlives its attempt, so nothing that a migration sets for its session does.
    engine = create_async_engine(async_url(url), poolclass=NullPool)
    try:
        for attempt in range(attempts):
            if attempt:
                await asyncio.sleep(PAUSE_S)
            try:
                async with engine.connect() as connection:
                    await connection.run_sync(_upgrade, config)
            except DBAPIError as error:
                if sqlstate(error) != LOCK_NOT_AVAILABLE:
                    raise
            else:
                return
    finally:
        await engine.dispose()
    raise SchemaBusy(f"the tables were in use in each of {attempts} attempts; nothing was changed. Try again later.")


def _config(folder: Path, lock_timeout_ms: int, statement_timeout_ms: int) -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes.update(lock_timeout_ms=lock_timeout_ms, statement_timeout_ms=statement_timeout_ms)
    return config


def _upgrade(connection: Connection, config: Config) -> None:
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
