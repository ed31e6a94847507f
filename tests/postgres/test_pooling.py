"""Nothing is left in a session that the next statement needs: a pooler may give each its own."""

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool
from tests.programs import program
from tests.waiting import until

from batonpass.codec.changes import Change
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.model import Group
from batonpass.core.state.records import ProbeScheduled
from batonpass.database_url import DatabaseUrl
from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.connect import DRIVER, Remedy, connect, driver_arguments, fetch_rows, remedy_of, transacting
from batonpass.postgres.fleet import Fleet, Registration
from batonpass.postgres.leases import Leases
from batonpass.postgres.outbox import PostgresOutbox
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.postgres.sorting import sort_some
from batonpass.postgres.upkeep import Upkeep
from batonpass.runtime.events import Event
from batonpass.runtime.history import History
from batonpass.runtime.ports import Commit, StoreUnavailable
from batonpass.sockets import free_port

ORDERS, TASK = GroupId("orders"), TaskId("0_1")


async def test_each_transaction_may_have_a_session_of_its_own(own_url: str) -> None:
    forgetful = create_async_engine(
        DRIVER, isolation_level="AUTOCOMMIT", poolclass=NullPool, connect_args=driver_arguments(own_url)
    )
    await works_on(forgetful)
    await forgetful.dispose()


@pytest.mark.needs("pgbouncer")
async def test_pgbouncer_may_stand_in_between(own_url: str, open_folder: Path) -> None:
    """By the transaction where it keeps prepared statements, else by the session."""
    mode = "transaction" if pgbouncer_version() >= (1, 21) else "session"
    async with pgbouncer(own_url, open_folder / mode, pool_mode=mode, max_prepared_statements="200") as url:
        engine = connect(url)
        await works_on(engine)
        await engine.dispose()


@pytest.mark.needs("pgbouncer")
async def test_a_pooler_that_loses_prepared_statements_is_named(own_url: str, open_folder: Path) -> None:
    forgetful = {"pool_mode": "transaction", "max_prepared_statements": "0"}
    async with pgbouncer(own_url, open_folder / "forgets", **forgetful) as url:
        first, second = connect(url), connect(url)
        await fetch_rows(first, text("select 1"))
        async with transacting(second) as connection:
            # It has the session in which the first one's statement is prepared.
            await connection.execute(text("select 2"))
            with pytest.raises(StoreUnavailable, match=r"pgbouncer 1\.21") as refused:
                await fetch_rows(first, text("select 1"))
        assert remedy_of(refused.value.__cause__ or refused.value) is Remedy.GIVE_UP
        await first.dispose()
        await second.dispose()


def listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def pgbouncer_version() -> tuple[int, ...]:
    said = subprocess.run([program("pgbouncer"), "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.split()[1].split(".")[:2])


def set_up(to: DatabaseUrl, folder: Path, settings: dict[str, str]) -> None:
    """Write what pgbouncer reads, as far as it knows it."""
    ((host, port),) = to.hosts
    settings |= {"listen_addr": "127.0.0.1", "unix_socket_dir": "", "auth_type": "plain"}
    settings |= {"auth_file": str(folder / "users")}
    if pgbouncer_version() < (1, 21):
        settings.pop("max_prepared_statements", None)
    lines = [f"{name} = {value}" for name, value in settings.items()]
    folder.mkdir()
    (folder / "users").write_text(f'"{to.user}" "{to.password}"\n')
    (folder / "ini").write_text("\n".join(["[databases]", f"* = host={host} port={port}", "[pgbouncer]", *lines]))


@asynccontextmanager
async def pgbouncer(url: str, folder: Path, **settings: str) -> AsyncIterator[str]:
    """Run a pgbouncer in front of a database; yield the URL that leads through it."""
    port = free_port()
    settings |= {"listen_port": str(port)} | ({"user": "nobody"} if os.geteuid() == 0 else {})
    through = DatabaseUrl.read(url)
    set_up(through, folder, settings)
    process = await asyncio.create_subprocess_exec(program("pgbouncer"), "-q", str(folder / "ini"))
    try:
        await until(lambda: listens(port))
        yield str(replace(through, hosts=(("127.0.0.1", port),)))
    finally:
        process.kill()  # Asked to end, it would wait for its clients.
        await process.wait()


async def works_on(engine: AsyncEngine) -> None:
    """Carry out what a coordinator asks of its database."""
    fleet = Fleet(Leases(engine, lease_ms=60_000), Registration(lease_ms=60_000))
    log, archive = PostgresRecordLog(engine, tenure=fleet), PostgresArchive(engine)
    await fleet.start()
    assert fleet.holds(ORDERS)
    epoch = await log.take_over(ORDERS)
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    change = Change(TASK, MemberId("m1"), "granted", "none", "active", now_ms, 1)
    event = Event("x", now_ms, 1, None, None, {})
    await log.append(Commit(ORDERS, epoch, 0, [ProbeScheduled(0)], History(changes=(change,), events=(event,))))
    await log.append(Commit(ORDERS, epoch, 1, [ProbeScheduled(1)], History(changes=(change,) * 999, events=(event,))))
    await log.keep_snapshot(evolve(Group(ORDERS), [ProbeScheduled(0), ProbeScheduled(1)]))
    await Upkeep(engine).turn(datetime.now(UTC))
    await sort_some(engine)
    await fleet.renew_and_look()
    assert len(await archive.task_changes(ORDERS, TASK, limit=9_999)) == 1_000
    assert [one.position for one in await PostgresOutbox(engine, "kafka").next(9)] == [1, 2]
    loaded = await log.read(ORDERS)
    assert loaded.base is not None
    assert (loaded.version, loaded.base.version) == (2, 2)
    await fleet.leave()
