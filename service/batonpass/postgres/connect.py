"""Connections to Postgres, with its errors turned into those of the runtime.

Statements run in autocommit: one statement is one transaction and one round trip. Work that needs several opens a
transaction explicitly. Nothing relies on the state of a session, so a pooler may stand in between. Background work goes
on when the database comes back (``keep_at``), and only one of several coordinators does it at a time (``alone``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlencode

from asyncpg import InterfaceError, PostgresError  # type: ignore[import-untyped]
from sqlalchemy import TextClause, event, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from batonpass.database_url import DatabaseUrl
from batonpass.runtime.ports import StoreUnavailable

log = logging.getLogger("batonpass.postgres")

CONNECT_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 10.0
"""How long a statement may take before its caller gets ``StoreUnavailable``; whether it took effect is then unknown."""

POOL_TIMEOUT_S = 5.0
DRIVER = "postgresql+asyncpg://"
DEFAULT_PORT = 5_432
ASKING_FOR_NOTHING = ("channel_binding", "client_encoding", "gssencmode", "load_balance_hosts")
"""Options of a URL of which ``DatabaseUrl`` only takes what the driver does anyhow."""

# Classes of SQLSTATE for a faulty statement or a constraint that it would break, not for an unavailable database.
OWN_FAULTS = ("22", "23")


def driver_arguments(url: str) -> dict[str, Any]:
    """Return what the driver is to be given for a database; SQLAlchemy gets ``DRIVER`` for its URL.

    Raises:
        ValueError: when it is not a URL of Postgres that ``DatabaseUrl`` understands.
    """
    read = DatabaseUrl.read(url)
    options = {name: said for name, said in read.options.items() if name not in ASKING_FOR_NOTHING}
    session = {name: options.pop(name) for name in ("application_name", "options") if name in options}
    timeout_s = float(options.pop("connect_timeout", CONNECT_TIMEOUT_S))
    # The driver understands TLS options by libpq's names, in a URL of its own.
    tls = {name: options.pop(name) for name in list(options) if name.startswith("ssl")}
    ports = [port for _, port in read.hosts]
    given: dict[str, Any] = {
        "host": [host for host, _ in read.hosts] if any(host for host, _ in read.hosts) else None,
        "port": [port or DEFAULT_PORT for port in ports] if any(ports) else None,
        "user": read.user,
        "password": read.password,
        "database": read.database,
        "server_settings": session or None,
        "dsn": f"postgresql://?{urlencode(tls)}" if tls else None,
        **options,
    }
    return {name: value for name, value in given.items() if value is not None} | {"timeout": timeout_s}


def connect(url: str, *, connections_max: int = 10, keeps_plans: bool = False) -> AsyncEngine:
    """Return an engine on the database; it connects on first use. Its owner disposes of it.

    With ``keeps_plans`` each connection plans a statement once, for any parameters: for few statements that are
    carried out very often and touch rows by their keys alone.
    """
    engine = create_async_engine(
        DRIVER,
        isolation_level="AUTOCOMMIT",
        pool_size=connections_max,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT_S,
        # Plans belong to their connection, and the connection that was used last has the most of them.
        pool_use_lifo=True,
        connect_args=driver_arguments(url) | {"command_timeout": STATEMENT_TIMEOUT_S},
    )
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    if keeps_plans:
        event.listen(engine.sync_engine, "connect", _keep_plans)
    return engine


def _keep_plans(connection: Any, _record: Any) -> None:
    """Have plans kept. By default Postgres plans anew each time if a plan for an array of known length looks cheaper.

    Behind a pooler this may reach another session than intended; then statements only take longer.
    """
    connection.run_async(lambda driver: driver.execute("set plan_cache_mode = force_generic_plan"))


def _refuse_closed(connection: Any, _record: Any, _proxy: Any) -> None:
    """Have the pool replace a connection that the server has closed, so that no caller gets it."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError


@contextmanager
def unavailable_when_away() -> Iterator[None]:
    """Turn errors of the database into ``StoreUnavailable``; errors of a statement itself stay as they are.

    Raises:
        StoreUnavailable: when the database cannot be reached, or does not answer in time or as expected.
        DBAPIError: when a statement is itself at fault; ``PostgresError`` if the driver was called directly.
    """
    try:
        yield
    # The last two come from the driver itself, where it is called directly.
    except (DBAPIError, PostgresError, InterfaceError) as error:
        if (sqlstate(error) or "")[:2] in OWN_FAULTS:
            raise
        raise StoreUnavailable(f"Postgres: {_first_line(error)}") from error
    except PoolTimeoutError as error:
        raise StoreUnavailable(f"Postgres: no connection came free within {POOL_TIMEOUT_S:.0f} s") from error
    except TimeoutError as error:
        raise StoreUnavailable(f"Postgres: no answer within {STATEMENT_TIMEOUT_S:.0f} s") from error
    except OSError as error:
        raise StoreUnavailable(f"Postgres: {_first_line(error)}") from error


@asynccontextmanager
async def reaching(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Lend a connection, in autocommit; errors of the database are raised as ``StoreUnavailable``.

    Raises:
        StoreUnavailable, DBAPIError: as ``unavailable_when_away`` does.
    """
    with unavailable_when_away():
        async with engine.connect() as connection:
            yield connection


async def fetch_rows(engine: AsyncEngine, statement: TextClause, **parameters: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a statement.

    Raises:
        StoreUnavailable, DBAPIError: as ``reaching`` does.
    """
    async with reaching(engine) as connection:
        return [tuple(row) for row in await connection.execute(statement, parameters)]


class DedicatedConnection:
    """A connection taken out of the pool for one caller, for one statement at a time; it ends with its engine.

    Taking one from the pool and giving it back takes longer than a small statement.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        """Connect when it is first used."""
        self._engine = engine
        self._driver: Any = None
        event.listen(engine.sync_engine, "engine_disposed", self._end)

    async def driver(self) -> Any:
        """Return the driver's own connection: a new one if there is none, or the last one was lost."""
        if self._driver is None or self._driver.is_closed():
            connection = await self._engine.raw_connection()
            self._driver = connection.driver_connection
            # The pool forgets it, and may have another one in its place.
            connection.detach()
        return self._driver

    def _end(self, _engine: Engine) -> None:
        if self._driver is not None:
            self._driver.terminate()


@asynccontextmanager
async def transacting(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Lend a connection for one transaction, which commits at the end unless something was raised.

    Raises:
        StoreUnavailable: as ``reaching`` does.
    """
    async with reaching(engine.execution_options(isolation_level="READ COMMITTED")) as connection, connection.begin():
        yield connection


async def alone(connection: AsyncConnection, key: int) -> bool:
    """Take an advisory lock until the transaction ends, unless another session has it; return whether it was free."""
    took = await connection.execute(text("select pg_try_advisory_xact_lock(:key)"), {"key": key})
    return bool(took.scalar_one())


async def keep_at(turn: Callable[[], Awaitable[float]], *, again_s: float, failing: str) -> None:
    """Take one turn after the other until cancelled; each returns how many seconds to wait before the next one.

    A turn that fails in the database is taken again after ``again_s``. Only the first of several failures in a row is
    logged; ``failing`` says what is not done meanwhile.
    """
    is_failing = False
    while True:
        try:
            wait_s = await turn()
            is_failing = False
        except (StoreUnavailable, DBAPIError) as error:
            if not is_failing:
                log.warning("%s; tried again every %s s: %s", failing, again_s, error)
            wait_s, is_failing = again_s, True
        await asyncio.sleep(wait_s)


def sqlstate(error: Exception) -> str | None:
    """Return the SQLSTATE of an error from SQLAlchemy or the driver; None if it did not come from Postgres."""
    code: str | None = getattr(_of_driver(error), "sqlstate", None)
    return code


def _first_line(error: Exception) -> str:
    # The translated error begins with its class; its cause has the words of Postgres itself.
    translated = _of_driver(error)
    return str(translated.__cause__ or translated).partition("\n")[0] or type(translated).__name__


def _of_driver(error: Exception) -> BaseException:
    """Return what SQLAlchemy has wrapped; every other error as it is."""
    return (error.orig or error) if isinstance(error, DBAPIError) else error
