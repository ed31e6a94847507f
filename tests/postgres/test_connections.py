"""A connection that is of no use is ended, and a server that refuses connections is one that is away."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asyncpg import InterfaceError, InternalClientError  # type: ignore[import-untyped]
from asyncpg import exceptions as refusals
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.postgres.databases import numbers, run_sql
from tests.postgres.unleased import unleased_log
from tests.proof.proxy import Proxy
from tests.waiting import until

from batonpass.core.state.ids import GroupId
from batonpass.core.state.records import ProbeScheduled
from batonpass.database_url import KEEPALIVES, VARIABLES
from batonpass.postgres import connect as connecting
from batonpass.postgres.connect import Remedy, Server, connect, fetch_rows, reaching, remedy_of
from batonpass.postgres.fleet import Registration
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.postgres.store import PostgresStore
from batonpass.runtime.ports import Commit, StoreUnavailable

ORDERS = GroupId("orders")
SECRET = "secret"  # noqa: S105 - of a role that only this test has
PID = text("select pg_backend_pid()")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (refusals.ReadOnlySQLTransactionError("x"), Remedy.CONNECT_ALL),
        (refusals.CannotConnectNowError("x"), Remedy.CONNECT_ALL),
        (refusals.AdminShutdownError("x"), Remedy.CONNECT_ALL),
        (refusals.CrashShutdownError("x"), Remedy.CONNECT_ALL),
        (refusals.TooManyConnectionsError("x"), Remedy.CONNECT),
        (refusals.ConnectionDoesNotExistError("x"), Remedy.CONNECT),
        (refusals.IdleSessionTimeoutError("x"), Remedy.CONNECT),
        (refusals.InFailedSQLTransactionError("x"), Remedy.CONNECT),
        (refusals.InvalidSQLStatementNameError("x"), Remedy.GIVE_UP),
        (refusals.InternalServerError("x"), Remedy.CONNECT),
        (refusals.InvalidPasswordError("x"), Remedy.GIVE_UP),
        (refusals.InvalidCatalogNameError("x"), Remedy.GIVE_UP),
        (refusals.QueryCanceledError("x"), Remedy.AGAIN),
        (refusals.LockNotAvailableError("x"), Remedy.AGAIN),
        (refusals.DiskFullError("x"), Remedy.AGAIN),
        (refusals.UndefinedTableError("x"), Remedy.AGAIN),
        (refusals.UniqueViolationError("x"), Remedy.FAULT),
        (refusals.CharacterNotInRepertoireError("x"), Remedy.FAULT),
        (InterfaceError("x"), Remedy.CONNECT),
        (InternalClientError("x"), Remedy.CONNECT),
        (TimeoutError(), Remedy.CONNECT),
        (ConnectionResetError(), Remedy.CONNECT),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else one.value,
)
def test_each_error_has_a_remedy(error: Exception, remedy: Remedy) -> None:
    assert remedy_of(error) is remedy


@pytest.mark.parametrize("sslmode", ["allow", "prefer"])
async def test_a_home_that_cannot_be_looked_into_has_no_files_for_tls(
    own_url: str, monkeypatch: pytest.MonkeyPatch, sslmode: str
) -> None:
    """As that of root, in which a program was started that has become another user."""
    monkeypatch.setenv("HOME", f"/{'x' * 300}")  # Such a name nobody can look into, root neither.
    engine = connect(make_url(own_url).set(query={"sslmode": sslmode}).render_as_string(hide_password=False))
    assert await fetch_rows(engine, text("select 1")) == [(1,)]
    await engine.dispose()


async def test_variables_that_are_empty_count_as_not_set(own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES.values():
        monkeypatch.setenv(name, "")
    engine = connect(make_url(own_url).set(query={}).render_as_string(hide_password=False))
    assert await fetch_rows(engine, text("select 1")) == [(1,)]
    await engine.dispose()


@pytest.fixture
async def role(own_url: str) -> AsyncIterator[str]:
    """A role that may use the test's own database."""
    name = f"role{next(numbers)}"
    await run_sql(own_url, f"create role {name} login superuser password 'secret'")
    yield name
    await run_sql(own_url, f"drop owned by {name}", f"drop role {name}")


@pytest.fixture
async def as_role(own_url: str, role: str) -> AsyncIterator[AsyncEngine]:
    """Connections as that role."""
    made = connect(make_url(own_url).set(username=role, password=SECRET).render_as_string(hide_password=False))
    yield made
    await made.dispose()


async def refuses(log: PostgresRecordLog, engine: AsyncEngine, words: str) -> None:
    """Expect that appends and reads both say that the store is away, and why."""
    with pytest.raises(StoreUnavailable, match=words):
        await log.append(Commit(ORDERS, 1, 0, [ProbeScheduled(1)]))
    with pytest.raises(StoreUnavailable, match=words):
        await fetch_rows(engine, PID)


async def test_a_role_that_may_not_connect_is_an_absent_store(own_url: str, role: str, as_role: AsyncEngine) -> None:
    """It is no defect of the coordinator, and ends when the role may connect again."""
    log = unleased_log(as_role)
    await run_sql(own_url, f"alter role {role} nologin")
    await refuses(log, as_role, "not permitted to log in")
    await run_sql(
        own_url,
        f"alter role {role} login nosuperuser connection limit 0",
        f"grant all on all tables in schema public to {role}",
    )
    await refuses(log, as_role, "too many connections for role")
    await run_sql(own_url, f"alter role {role} connection limit -1")
    await log.append(Commit(ORDERS, 1, 0, [ProbeScheduled(1)]))


async def read_only(url: str, *, on: bool) -> None:
    """Let connections that are made from now on be read-only, as those to a standby are, or no longer."""
    name = make_url(url).database
    await run_sql(
        url.replace(f"/{name}", "/postgres"), f"alter database {name} set default_transaction_read_only = {on}"
    )


async def test_connections_to_a_server_that_became_read_only_are_ended(own_url: str) -> None:
    engine = connect(own_url)
    log = unleased_log(engine)
    await read_only(own_url, on=True)
    with pytest.raises(StoreUnavailable, match="read-only"):
        await log.append(Commit(ORDERS, 1, 0, [ProbeScheduled(1)]))
    await read_only(own_url, on=False)
    await log.append(Commit(ORDERS, 1, 0, [ProbeScheduled(1)]))
    await engine.dispose()


async def test_pools_of_one_server_renew_their_connections_together(own_url: str) -> None:
    """One that only reads would never notice by itself that it reads what a demoted primary has."""
    server = Server()
    reading, writing = connect(own_url, server=server), connect(own_url, server=server)
    ((before,),) = await fetch_rows(reading, PID)
    assert await fetch_rows(reading, PID) == [(before,)]
    await read_only(own_url, on=True)
    with pytest.raises(StoreUnavailable, match="read-only"):
        async with reaching(writing) as connection:
            await connection.execute(text("delete from coordinators"))
    assert await fetch_rows(reading, PID) != [(before,)]
    await reading.dispose()
    await writing.dispose()


async def test_connections_that_are_of_no_use_once_they_are_made_are_an_absent_store(own_url: str) -> None:
    """A server that changes once more while one is made is away, and the program is not at fault."""

    class Changing(Server):
        def is_current(self, made_at: float) -> bool:  # noqa: ARG002 - whenever it was
            return False

    engine = connect(own_url, server=Changing())
    with pytest.raises(StoreUnavailable, match="connection"):
        await fetch_rows(engine, PID)
    await engine.dispose()


async def test_a_store_comes_back_after_its_server_was_read_only(own_url: str) -> None:
    """What its lease waits for is noted and shown."""
    store = PostgresStore(own_url, Registration(lease_ms=1_500, renewal_ms=200))
    noted: list[str] = []
    store.ownership.noted = lambda name, more: noted.append(f"{name}: {more.get('reason', '')}")
    await read_only(own_url, on=True)
    await store.start()
    await until(lambda: "read-only" in store.ownership.not_ready())
    assert [one for one in noted if "lease-not-renewed" in one and "read-only" in one]
    await read_only(own_url, on=False)
    await until(lambda: store.ownership.holds(ORDERS), within_s=20)
    assert store.ownership.not_ready() == ""
    await store.stop()


async def test_a_server_that_stops_answering_costs_one_wait_of_about_a_lease(own_url: str) -> None:
    """Its machine has died, and its address leads to another one: nothing ends the connections that were open."""
    port = make_url(own_url).port
    assert port is not None
    async with Proxy(port) as proxy:
        through = make_url(own_url).set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        store = PostgresStore(through, Registration(lease_ms=1_500, renewal_ms=200))
        await store.start()
        epoch = await store.log.take_over(ORDERS)
        await store.log.append(Commit(ORDERS, epoch, 0, [ProbeScheduled(1)]))
        proxy.forget()
        await until(lambda: not store.ownership.holds(ORDERS))
        await until(lambda: store.ownership.holds(ORDERS), within_s=9)
        async with asyncio.timeout(9):
            await store.log.append(Commit(ORDERS, epoch, 1, [ProbeScheduled(2)]))
            assert (await store.log.read(ORDERS)).version == 2
        await store.stop()


async def test_what_lies_in_between_forgets_no_connection_on_which_nothing_is_said(own_url: str) -> None:
    """A load balancer does after minutes. The next commit of a quiet group, a failover, would wait for ten seconds."""
    engine = connect(own_url)
    async with reaching(engine) as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        found = driver._transport.get_extra_info("socket")
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [found.getsockopt(socket.IPPROTO_TCP, one) for one in names] == list(KEEPALIVES.values())
    await engine.dispose()


async def test_a_statement_that_takes_too_long_says_nothing_of_other_connections(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one that is small does: a lease's."""
    monkeypatch.setattr(connecting, "STATEMENT_TIMEOUT_S", 0.3)
    server = Server()
    engines = [connect(own_url, server=server, small_s=small_s) for small_s in (None, None, 0.3)]
    other, slow, small = engines
    before = await fetch_rows(other, PID)
    for engine, is_kept in ((slow, True), (small, False)):
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            await fetch_rows(engine, text("select pg_sleep(60)"))
        assert (await fetch_rows(other, PID) == before) is is_kept
    for engine in engines:
        await engine.dispose()


@pytest.fixture
def silent_host() -> Iterator[str]:
    """A host that answers nothing: its queue of connections is full, so that further ones are dropped."""
    server = socket.create_server(("127.0.0.1", 0), backlog=0)
    waiting = [socket.socket() for _ in range(4)]
    for one in waiting:
        one.setblocking(False)
        one.connect_ex(server.getsockname())
    yield f"127.0.0.1:{server.getsockname()[1]}"
    for one in (server, *waiting):
        one.close()


@pytest.mark.parametrize("more", ["", "&target_session_attrs=read-write", "&target_session_attrs=prefer-standby"])
async def test_a_host_that_answers_nothing_keeps_nobody_from_the_next(
    own_url: str, silent_host: str, more: str
) -> None:
    at = make_url(own_url)
    own = f"{at.host}:{at.port}"
    engine = connect(own_url.replace(own, f"{silent_host},{own}", 1) + f"?connect_timeout=1{more}")
    async with reaching(engine) as connection:
        assert (await connection.execute(PID)).scalar_one()
    await engine.dispose()


@pytest.mark.parametrize("hosts", [1, 2])
async def test_hosts_that_answer_nothing_are_named_with_the_time_that_they_had(silent_host: str, hosts: int) -> None:
    engine = connect(f"postgresql://u:p@{','.join([silent_host] * hosts)}/d?connect_timeout=1")
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no connection within 1 s"):
        async with reaching(engine):
            pass
    assert hosts <= time.monotonic() - begun < hosts + 1.5
    await engine.dispose()
