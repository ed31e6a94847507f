"""After lost commits nothing that was given away is given away again, and every group hears of the loss."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.runtime.fakes import make_world

from batonpass.core.decide import decide
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import GroupDeclaration, ProbeRequest
from batonpass.core.state.model import Subtopology, Topology
from batonpass.core.state.records import EpochsRaised, ProbeScheduled
from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.fleet import Fleet, Registration
from batonpass.postgres.leases import Leases
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.postgres.recovery import EPOCH_LEAP, POSITION_LEAP, recover
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.events import Event
from batonpass.runtime.history import History
from batonpass.runtime.ports import Commit, Superseded

ORDERS, CLICKS = GroupId("orders"), GroupId("clicks")
DECLARED = GroupDeclaration(ORDERS, Topology(1, (Subtopology("0", 4),)), {})


async def test_numbers_leap_and_writers_are_refused(engine: AsyncEngine, postgres_log: PostgresRecordLog) -> None:
    """Whoever wrote before writes no more until it has read."""
    event = Event("x", 1, 1, None, None, {})
    assert await postgres_log.take_over(ORDERS) == 1
    await postgres_log.append(Commit(ORDERS, 1, 0, [ProbeScheduled(1)], History(events=(event,))))
    assert await recover(engine) == (1, 0, POSITION_LEAP + 1)
    with pytest.raises(Superseded):
        await postgres_log.append(Commit(ORDERS, 1, 1, [ProbeScheduled(2)]))
    assert await postgres_log.take_over(ORDERS) == EPOCH_LEAP + 2
    await postgres_log.append(Commit(ORDERS, EPOCH_LEAP + 2, 1, [ProbeScheduled(2)], History(events=(event,))))
    archive = PostgresArchive(engine)
    assert await archive.last_position() == POSITION_LEAP + 2
    assert [one.position for one in await archive.events(None, after=0, limit=9)] == [1, POSITION_LEAP + 2]


async def test_a_group_is_marked_until_its_epochs_are_raised(
    engine: AsyncEngine, postgres_log: PostgresRecordLog
) -> None:
    for group in (ORDERS, CLICKS):
        await postgres_log.take_over(group)
        await postgres_log.append(Commit(group, 1, 0, [ProbeScheduled(1)]))
    assert not (await postgres_log.read(ORDERS)).recovered
    await recover(engine)
    epoch = await postgres_log.take_over(ORDERS)
    assert (await postgres_log.read(ORDERS)).recovered
    await postgres_log.append(Commit(ORDERS, epoch, 1, [ProbeScheduled(2)]))
    assert (await postgres_log.read(ORDERS)).recovered
    await postgres_log.append(Commit(ORDERS, epoch, 2, [EpochsRaised({}, 7)]))
    assert not (await postgres_log.read(ORDERS)).recovered
    assert (await postgres_log.read(CLICKS)).recovered


Make = Callable[[], tuple[Coordinator, Fleet]]


@pytest.fixture
def make(engine: AsyncEngine) -> Make:
    """Return what makes coordinators that decide as the real ones do."""

    def made() -> tuple[Coordinator, Fleet]:
        fleet = Fleet(Leases(engine, lease_ms=60_000), Registration(lease_ms=60_000))
        log = PostgresRecordLog(engine, tenure=fleet)
        ports = replace(make_world().ports, log=log, ownership=fleet, decide=decide, evolve=evolve)
        coordinator = Coordinator(ports)
        fleet.changed = coordinator.ownership_changed
        return coordinator, fleet

    return made


async def test_a_group_hears_of_the_loss_before_anything_else(make: Make, engine: AsyncEngine) -> None:
    """A coordinator that runs on loses its lease and reads the group anew (L3)."""
    coordinator, fleet = make()
    await fleet.start()
    await coordinator.ask(ORDERS, DECLARED)
    before, _ = await coordinator.look(ORDERS)
    assert before.tokens_from == 0
    assert (await recover(engine)).coordinators == 1
    name = fleet.id
    await fleet.renew_and_look()
    assert fleet.id != name
    assert list(fleet.to_forget()) == [ORDERS]
    await fleet.changed()
    await fleet.renew_and_look()
    await fleet.changed()
    after, _ = await coordinator.look(ORDERS)
    assert after.tokens_from > 0
    assert after.version > before.version
    for _ in range(2):
        await coordinator.ask(ORDERS, ProbeRequest())
    again, _ = await coordinator.look(ORDERS)
    assert again.tokens_from == after.tokens_from
    async with engine.connect() as connection:
        raised = await connection.execute(text("select count(*) from record_log where kind = 'epochs-raised'"))
        assert raised.scalar_one() == 1


async def test_a_coordinator_that_comes_later_tells_too(make: Make, engine: AsyncEngine) -> None:
    coordinator, fleet = make()
    await fleet.start()
    await coordinator.ask(ORDERS, DECLARED)
    await fleet.leave()
    await recover(engine)
    later, its_fleet = make()
    await its_fleet.start()
    group, _ = await later.look(ORDERS)
    assert group.tokens_from > 0
