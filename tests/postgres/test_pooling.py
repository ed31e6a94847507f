"""Nothing is left in a session that the next statement needs: a pooler may give each its own."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from batonpass.codec.changes import Change
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.model import Group
from batonpass.core.state.records import ProbeScheduled
from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.connect import DRIVER, driver_arguments
from batonpass.postgres.fleet import Fleet, Registration
from batonpass.postgres.leases import Leases
from batonpass.postgres.outbox import PostgresOutbox
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.postgres.sorting import sort_some
from batonpass.postgres.upkeep import Upkeep
from batonpass.runtime.events import Event
from batonpass.runtime.history import History
from batonpass.runtime.ports import Commit

ORDERS, TASK = GroupId("orders"), TaskId("0_1")


@pytest.fixture
async def forgetful(own_url: str) -> AsyncIterator[AsyncEngine]:
    """Connections of which each serves one transaction, and is closed."""
    made = create_async_engine(
        DRIVER, isolation_level="AUTOCOMMIT", poolclass=NullPool, connect_args=driver_arguments(own_url)
    )
    yield made
    await made.dispose()


async def test_each_transaction_may_have_a_session_of_its_own(forgetful: AsyncEngine) -> None:
    fleet = Fleet(Leases(forgetful, lease_ms=60_000), Registration(lease_ms=60_000))
    log, archive = PostgresRecordLog(forgetful, tenure=fleet), PostgresArchive(forgetful)
    await fleet.start()
    assert fleet.holds(ORDERS)
    epoch = await log.take_over(ORDERS)
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    change = Change(TASK, MemberId("m1"), "granted", "none", "active", now_ms, 1)
    event = Event("x", now_ms, 1, None, None, {})
    await log.append(Commit(ORDERS, epoch, 0, [ProbeScheduled(0)], History(changes=(change,), events=(event,))))
    await log.append(Commit(ORDERS, epoch, 1, [ProbeScheduled(1)], History(changes=(change,) * 999, events=(event,))))
    await log.keep_snapshot(evolve(Group(ORDERS), [ProbeScheduled(0), ProbeScheduled(1)]))
    await Upkeep(forgetful).turn(datetime.now(UTC))
    await sort_some(forgetful)
    await fleet.renew_and_look()
    assert len(await archive.task_changes(ORDERS, TASK, limit=9_999)) == 1_000
    assert [one.position for one in await PostgresOutbox(forgetful, "kafka").next(9)] == [1, 2]
    loaded = await log.read(ORDERS)
    assert loaded.base is not None
    assert (loaded.version, loaded.base.version) == (2, 2)
    await fleet.leave()
