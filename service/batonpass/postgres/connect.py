"""Connections to Postgres, with its errors turned into those of the runtime.

Statements run in autocommit: one statement is one transaction and one round trip. Work that needs several opens a
transaction explicitly. Nothing relies on the state of a session, so a pooler may stand in between. Background work goes
on when the database comes back (``keep_at``), and only one of several coordinators does it at a time (``alone``).
"""

import asyncio
import getpass
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from weakref import WeakSet

import asyncpg  # type: ignore[import-untyped]
from asyncpg import InterfaceError, InternalClientError, PostgresError, connect_utils
from sqlalchemy import TextClause, event, text
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi
from sqlalchemy.engine import Engine, ExceptionContext
from sqlalchemy.exc import DBAPIError, DisconnectionError, InvalidRequestError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from batonpass.database_url import FILES, KEEPALIVES, DatabaseUrl
from batonpass.runtime.ports import StoreUnavailable

log = logging.getLogger("batonpass.postgres")

CONNECT_TIMEOUT_S = 5.0
"""How long connecting to one host may take."""

STATEMENT_TIMEOUT_S = 10.0
"""How long a statement may take before its caller gets ``StoreUnavailable``; whether it took effect is then unknown."""

POOL_TIMEOUT_S = 5.0
DRIVER = "postgresql+asyncpg://"
DEFAULT_PORT = 5_432
ASKING_FOR_NOTHING = ("channel_binding", "client_encoding", "gssencmode", "load_balance_hosts")
"""Options of a URL of which ``DatabaseUrl`` only takes what the driver does anyhow."""

NEXT_HOST: Final = (
    *(OSError, asyncpg.CannotConnectNowError, asyncpg.PostgresConnectionError),
    asyncpg.TargetServerAttributeNotMatched,
)
"""Errors of a host after which another one may do, as for libpq."""


def _at_home(file: str) -> Path | None:
    """Return where this user may keep a file for TLS; None where that cannot be looked into.

    HOME may be somebody else's: that of root, say, whose program has become another user.
    """
    found: Path | None = _in_home(file)
    return found if found is not None and os.access(found.parent, os.X_OK) else None


# asyncpg (0.32) takes an error there for one of the database.
_in_home = connect_utils._dot_postgresql_path  # noqa: SLF001 - nothing public says where it looks
connect_utils._dot_postgresql_path = _at_home  # noqa: SLF001

DRIVER_ERRORS: Final = (PostgresError, InterfaceError, InternalClientError, AsyncAdapt_asyncpg_dbapi.Error)
"""What the driver raises where it is called directly, and what SQLAlchemy makes of it while it connects."""


class Remedy(Enum):
    """What helps after an error of the database.

    ``FAULT``: nothing; the statement is at fault, and would fail again. ``AGAIN``: the same on this connection, later.
    ``CONNECT``: a new connection. ``CONNECT_ALL``: new ones in place of all that were open, because the server is no
    longer the one that it was. ``GIVE_UP``: nothing that this program can do, until somebody changes the server or the
    URL; a start ends with it, and a coordinator that runs tries to connect again.
    """

    FAULT = "fault"
    AGAIN = "again"
    CONNECT = "connect"
    CONNECT_ALL = "connect-all"
    GIVE_UP = "give-up"


REMEDIES: Final = {
    "08": Remedy.CONNECT,  # the connection broke
    "22": Remedy.FAULT,  # a value that is none
    "23": Remedy.FAULT,  # a constraint
    "25": Remedy.CONNECT,  # a transaction that is not ours, left open by a pooler
    "25006": Remedy.CONNECT_ALL,  # read-only: a standby, or a primary that was demoted
    "26": Remedy.GIVE_UP,  # a prepared statement that a pooler keeps in another session
    "28": Remedy.GIVE_UP,  # a role or password that is refused
    "3D": Remedy.GIVE_UP,  # a database that does not exist
    "42P05": Remedy.GIVE_UP,  # a prepared statement of somebody else, in a session that a pooler lends to both
    "53300": Remedy.CONNECT,  # no connection is free
    "57P": Remedy.CONNECT,  # the session was ended
    "57P01": Remedy.CONNECT_ALL,  # the server shuts down
    "57P02": Remedy.CONNECT_ALL,  # the server crashed
    "57P03": Remedy.CONNECT_ALL,  # the server starts, or stops
    "XX": Remedy.CONNECT,  # a defect of the server
}
"""What helps by SQLSTATE (Postgres, appendix A): the longest beginning counts. Whatever is not here is ``AGAIN``."""


def remedy_of(error: BaseException) -> Remedy:
    """Return what helps after an error, whether SQLAlchemy or the driver raised it. Without a SQLSTATE: ``CONNECT``."""
    code = sqlstate(error)
    if code is None:
        return Remedy.CONNECT
    return next((REMEDIES[code[:length]] for length in (5, 3, 2) if code[:length] in REMEDIES), Remedy.AGAIN)


POOLED: Final = ("26000", "42P05")
"""Errors that only a pooler makes which lends sessions by the transaction, and does not know prepared statements."""


class Server:
    """What the pools of one coordinator know together: connections older than ``changed_at`` are of no use."""

    def __init__(self) -> None:
        self._changed_at = float("-inf")
        self.connections = WeakSet[Any]()
        """The driver's own, those that have ended too."""

    def failed(self, error: BaseException, *, was_small: bool = False) -> bool:
        """Take note of an error on a connection; return whether the connection has to be ended.

        A server whose machine has died, or whose address has moved, ends no connection: it only stops answering. That
        is seen by a statement that ``was_small``; another one may just take long.
        """
        remedy = remedy_of(error)
        if remedy is Remedy.CONNECT_ALL or (was_small and isinstance(error, TimeoutError)):
            self._changed_at = time.monotonic()
        return remedy not in {Remedy.FAULT, Remedy.AGAIN}

    def abandon(self) -> None:
        """End every connection without a word: a server that does not answer would be waited for with each."""
        for connection in list(self.connections):
            connection.terminate()

    def is_current(self, made_at: float) -> bool:
        """Whether a connection that was made at an instant leads to the server as it is now."""
        return made_at > self._changed_at


def driver_arguments(url: str) -> dict[str, Any]:
    """Return what the driver is to be given for a database; SQLAlchemy gets ``DRIVER`` for its URL.

    Raises:
        ValueError: when it is no URL of Postgres that ``DatabaseUrl`` understands, or names a file that is not there.
    """
    read = DatabaseUrl.read(url)
    options = {name: said for name, said in read.options.items() if name not in ASKING_FOR_NOTHING}
    if read.user is None:
        try:
            getpass.getuser()
        except (KeyError, OSError):
            raise ValueError("it names no user, and the system knows none by this process's number") from None
    session = {name: options.pop(name) for name in ("application_name", "options") if name in options}
    timeout_s = float(options.pop("connect_timeout", CONNECT_TIMEOUT_S))
    # The driver understands TLS options by libpq's names, in a URL of its own.
    tls = {name: options.pop(name) for name in list(options) if name.startswith("ssl")}
    for name in sorted(tls.keys() & FILES):
        if not os.access(tls[name], os.R_OK):
            # The driver would say no more than that there is no such file.
            raise ValueError(f"{name} in it names {tls[name]}, which is no file that can be read")
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
    return {name: value for name, value in given.items() if value is not None} | {
        "timeout": timeout_s,
        "async_creator_fn": _connected_to_one,
    }


async def _connected_to_one(
    *,
    timeout: float,  # noqa: ASYNC109 - the driver's name for it
    host: Sequence[str] = (),
    port: Sequence[int] = (),
    **more: Any,
) -> asyncpg.Connection:
    """Connect to the first host that answers, each within ``timeout`` seconds; the driver has one limit for them all.

    Raises:
        OSError: when none does; it says why for each.
    """
    where: list[dict[str, Any]] = [{"host": [name]} for name in host] or [{}]
    if port:
        ports = port if len(port) > 1 else [port[0]] * len(where)
        where = [{**one, "port": [number]} for one, number in zip(where, ports, strict=True)]
    wanted = [more.pop("target_session_attrs", None)]
    if wanted == ["prefer-standby"] and len(where) > 1:
        wanted = ["standby", "any"]
    failed: dict[str, Exception] = {}
    error: Exception = OSError()
    for attributes in wanted:
        if attributes is not None:
            more["target_session_attrs"] = attributes
        for one in where:
            try:
                return await asyncpg.connect(timeout=timeout, **one, **more)
            except TimeoutError:
                error = OSError(f"no connection within {timeout:g} s")
            except NEXT_HOST as refused:
                error = refused
            failed[":".join(str(part[0]) for part in one.values())] = error
    if len(where) == 1:
        raise error
    raise OSError("; ".join(f"{name}: {_first_line(why)}" for name, why in failed.items())) from error


def connect(
    url: str,
    *,
    connections_max: int = 10,
    keeps_plans: bool = False,
    server: Server | None = None,
    small_s: float | None = None,
) -> AsyncEngine:
    """Return an engine on the database; it connects on first use. Its owner disposes of it.

    Engines that share a ``server`` renew their connections together. With ``keeps_plans`` each connection plans a
    statement once, for any parameters: for few statements that are carried out very often and touch rows by their keys
    alone. ``small_s``: all statements are small, and one that takes so many seconds shows that the server is gone.
    """
    engine = create_async_engine(
        DRIVER,
        isolation_level="AUTOCOMMIT",
        pool_size=connections_max,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT_S,
        # Plans belong to their connection, and the connection that was used last has the most of them.
        pool_use_lifo=True,
        connect_args=driver_arguments(url) | {"command_timeout": small_s or STATEMENT_TIMEOUT_S},
    )
    _end_the_useless(engine, server or Server(), are_small=small_s is not None)
    if keeps_plans:
        event.listen(engine.sync_engine, "connect", _keep_plans)
    return engine


def _end_the_useless(engine: AsyncEngine, server: Server, *, are_small: bool) -> None:
    """Have connections ended that an error made useless, so that no caller gets one."""

    def made(connection: Any, record: Any) -> None:
        record.info["made_at"] = time.monotonic()
        _keep_alive(connection.driver_connection._transport.get_extra_info("socket"))  # noqa: SLF001 - asyncpg does not
        server.connections.add(connection.driver_connection)

    def lent(connection: Any, record: Any, _proxy: Any) -> None:
        if connection.driver_connection.is_closed() or not server.is_current(record.info["made_at"]):
            raise DisconnectionError

    def failed(context: ExceptionContext) -> None:
        if server.failed(context.original_exception, was_small=are_small):
            context.is_disconnect = True
            # Others of the pool may be good; those that are not are found by ``lent``.
            context.invalidate_pool_on_disconnect = False

    event.listen(engine.sync_engine, "connect", made)
    event.listen(engine.sync_engine, "checkout", lent)
    event.listen(engine.sync_engine, "handle_error", failed)


def _keep_alive(connection: socket.socket) -> None:
    """Have the system ask now and then whether the server is still there, however long nothing else is said."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, name in (("TCP_KEEPIDLE", "idle"), ("TCP_KEEPINTVL", "interval"), ("TCP_KEEPCNT", "count")):
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), KEEPALIVES[name])


def _keep_plans(connection: Any, _record: Any) -> None:
    """Have plans kept. By default Postgres plans anew each time if a plan for an array of known length looks cheaper.

    Behind a pooler this may reach another session than intended; then statements only take longer.
    """
    connection.run_async(lambda driver: driver.execute("set plan_cache_mode = force_generic_plan"))


@contextmanager
def unavailable_when_away() -> Iterator[None]:
    """Turn errors of the database into ``StoreUnavailable``; errors of a statement itself stay as they are.

    Raises:
        StoreUnavailable: when the database cannot be reached, or does not answer in time or as expected.
        DBAPIError: when a statement is itself at fault; ``PostgresError`` if the driver was called directly.
    """
    try:
        yield
    except (DBAPIError, *DRIVER_ERRORS) as error:
        if remedy_of(error) is Remedy.FAULT:
            raise
        raise StoreUnavailable(f"Postgres: {_first_line(error)}") from error
    except PoolTimeoutError as error:
        raise StoreUnavailable(f"Postgres: no connection came free within {POOL_TIMEOUT_S:.0f} s") from error
    except TimeoutError as error:
        raise StoreUnavailable("Postgres: no answer in time") from error
    except OSError as error:
        raise StoreUnavailable(f"Postgres: {_first_line(error)}") from error
    except InvalidRequestError as error:
        if type(error) is not InvalidRequestError:
            raise
        # The pool found a connection of no use, and the one that it made in its place as well.
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


async def execute(engine: AsyncEngine, statement: TextClause, **parameters: Any) -> int:
    """Carry out a statement; return how many rows it changed.

    Raises:
        StoreUnavailable, DBAPIError: as ``reaching`` does.
    """
    async with reaching(engine) as connection:
        return (await connection.execute(statement, parameters)).rowcount


class DedicatedConnection:
    """A connection taken out of the pool for one caller, for one statement at a time; it ends with its engine.

    Taking one from the pool and giving it back takes longer than a small statement.
    """

    def __init__(self, engine: AsyncEngine, server: Server | None = None) -> None:
        """Connect when it is first used. ``server`` is that of the engine."""
        self._engine = engine
        self._server = server or Server()
        self._driver: Any = None
        self._made_at = float("-inf")
        event.listen(engine.sync_engine, "engine_disposed", self._end)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Any]:
        """Lend the driver's own connection: a new one if there is none, or the last one was of no use.

        Raises:
            StoreUnavailable, DBAPIError: as ``unavailable_when_away`` does.
        """
        with unavailable_when_away():
            try:
                yield await self._connected()
            except Exception as error:
                if self._server.failed(error):
                    self._end()
                raise

    async def _connected(self) -> Any:
        if self._driver is not None and not self._server.is_current(self._made_at):
            self._end()
        if self._driver is None or self._driver.is_closed():
            connection = await self._engine.raw_connection()
            self._driver, self._made_at = connection.driver_connection, time.monotonic()
            # The pool forgets it, and may have another one in its place.
            connection.detach()
        return self._driver

    def _end(self, _engine: Engine | None = None) -> None:
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


def sqlstate(error: BaseException) -> str | None:
    """Return the SQLSTATE of an error from SQLAlchemy or the driver; None if it did not come from Postgres."""
    code: str | None = getattr(_of_driver(error), "sqlstate", None)
    return code


def _first_line(error: Exception) -> str:
    # The translated error begins with its class; its cause has the words of Postgres itself.
    translated = _of_driver(error)
    cause = translated.__cause__ or translated
    said = str(cause).partition("\n")[0] or type(translated).__name__
    if isinstance(cause, InternalClientError):
        # What the driver says of itself when a connection ends while it is between two steps.
        said = f"the connection was closed, or of no more use: {said}"
    if sqlstate(error) in POOLED:
        said += "; a pooler in between has to keep prepared statements (pgbouncer 1.21), or to pool by the session"
    return said


def _of_driver(error: BaseException) -> BaseException:
    """Return what SQLAlchemy has wrapped; every other error as it is."""
    return (error.orig or error) if isinstance(error, DBAPIError) else error
