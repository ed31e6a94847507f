"""The schema of a database: whether it fits this program, and its upgrade to what this program needs.

The comment of the table `alembic_version` names the newest migration that took anything away. A program that knows this
migration can work on the schema, however many later ones have only added to it. So the version before goes on during an
upgrade, and one can go back to it.
"""

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from batonpass.postgres.connect import DRIVER, driver_arguments, reaching, sqlstate
from batonpass.runtime.ports import StoreUnavailable

LOCK_TIMEOUT_MS = 5_000
"""How long a migration waits for the lock on a table, while new readers of the table queue up behind it."""

STATEMENT_TIMEOUT_MS = 60_000
ATTEMPTS = 5
PAUSE_S = 1.0
LOCK_NOT_AVAILABLE = "55P03"


class SchemaBusy(Exception):
    """The tables were in use in every attempt; nothing was changed. The upgrade may be tried again."""


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
        SchemaBusy: when it did not get the locks that it needs in any attempt.
        StoreUnavailable, DBAPIError: as ``reaching`` does; also when a migration took longer than its timeout.
    """
    config = _config(folder or migrations(), lock_timeout_ms, statement_timeout_ms)
    # No connection outlives its attempt, so no setting that a migration makes for its session does.
    engine = create_async_engine(DRIVER, poolclass=NullPool, connect_args=driver_arguments(url))
    try:
        for attempt in range(attempts):
            if attempt:
                await asyncio.sleep(PAUSE_S)
            try:
                async with reaching(engine) as connection:
                    await connection.run_sync(_upgrade, config)
            except StoreUnavailable as error:
                if sqlstate(error.__cause__ or error) != LOCK_NOT_AVAILABLE:
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


TAKES_AWAY = "_contract_"
"""What the file name of a migration contains if it takes something away."""

_DATABASE = text("select current_setting('server_encoding'), to_regclass('alembic_version') is not null")
ENCODINGS = frozenset({"UTF8", "SQL_ASCII"})
"""Encodings that keep every text: ``SQL_ASCII`` is bytes as they come, and they come in UTF-8."""

_VERSION = text(
    "select version_num, obj_description('alembic_version'::regclass, 'pg_class') from alembic_version limit 1"
)


class Fit(StrEnum):
    """How a schema and this program fit."""

    EMPTY = "empty"
    TOO_OLD = "too-old"
    CURRENT = "current"
    NEWER = "newer"
    """It has additions of a later version, which do not matter."""
    TOO_NEW = "too-new"


@dataclass(frozen=True, slots=True)
class Standing:
    """The revision of a schema, the one that this program brings, and how they fit."""

    fit: Fit
    present: str | None
    wanted: str

    @property
    def is_fit(self) -> bool:
        return self.fit in {Fit.CURRENT, Fit.NEWER}

    def sentence(self) -> str:
        """Return in words how the schema fits, and what to run if it does not."""
        match self.fit:
            case Fit.EMPTY:
                return "The database has no schema yet. Run `batonpass db upgrade`."
            case Fit.TOO_OLD:
                return f"The schema is at {self.present}, this version needs {self.wanted}. Run `batonpass db upgrade`."
            case Fit.CURRENT:
                return f"The schema is at {self.present}, as this version needs it."
            case Fit.NEWER:
                return f"The schema is at {self.present}, newer than this version's {self.wanted}, which works on it."
            case Fit.TOO_NEW:
                return (
                    f"The schema is at {self.present}, and lacks what this version ({self.wanted}) needs. Run the "
                    f"version of Batonpass that upgraded it, or a later one."
                )


async def standing_of(url: str, *, folder: Path | None = None) -> Standing:
    """Return how the schema of a database stands.

    Raises:
        StoreUnavailable: when the database cannot be reached.
        ValueError: when this is not a URL of Postgres, the database's encoding is not of ``ENCODINGS``, or another
            program has its tables in it.
    """
    engine = create_async_engine(DRIVER, poolclass=NullPool, connect_args=driver_arguments(url))
    try:
        async with reaching(engine) as connection:
            present, needed = await _read(connection)
    finally:
        await engine.dispose()
    script = ScriptDirectory(str(folder or migrations()))
    wanted = script.get_current_head() or ""
    known = {one.revision for one in script.walk_revisions()}
    if present is None:
        return Standing(Fit.EMPTY, None, wanted)
    if present == wanted:
        return Standing(Fit.CURRENT, present, wanted)
    if present in known:
        return Standing(Fit.TOO_OLD, present, wanted)
    return Standing(Fit.NEWER if needed in known else Fit.TOO_NEW, present, wanted)


def least_known(script: ScriptDirectory) -> str:
    """Return the migration that a program has to know: the newest that takes something away, or the first of all."""
    found = ""
    for one in script.walk_revisions():
        found = one.revision
        if TAKES_AWAY in Path(one.path).name:
            break
    return found


async def _read(connection: AsyncConnection) -> tuple[str | None, str | None]:
    encoding, has_schema = (await connection.execute(_DATABASE)).one()
    if encoding not in ENCODINGS:
        raise ValueError(
            f"this database is encoded in {encoding}, which not every text can be written in; make one with"
            f" `create database … encoding 'UTF8' template template0`, and bring what is in this one over with pg_dump"
        )
    if not has_schema:
        return None, None
    row = (await connection.execute(_VERSION)).one_or_none()
    if row is not None and row[1] is None and not row[0].isdecimal():
        raise ValueError(
            f"this database has the tables of another program, whose revision {row[0]} stands in alembic_version; make one"
            " of Batonpass's own with `create database`"
        )
    return (None, None) if row is None else (row[0], row[1])
