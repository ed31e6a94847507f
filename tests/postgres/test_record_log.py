"""What the record log owes beyond the contract because it is on Postgres: epochs, and a database that goes away."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.postgres.unleased import Unleased, unleased_log

from batonpass.codec.records import UnreadableRecord
from batonpass.core.state.ids import GroupId
from batonpass.core.state.records import ProbeScheduled, Record
from batonpass.postgres import append as appending
from batonpass.postgres import connect as connecting
from batonpass.postgres import record_log
from batonpass.postgres.append import Prepared
from batonpass.postgres.connect import connect
from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.postgres.schema import upgrade
from batonpass.runtime.events import Event
from batonpass.runtime.history import History
from batonpass.runtime.ports import Commit, Loaded, StoreUnavailable, Superseded, VersionConflict

ORDERS = GroupId("orders")


async def append(log: PostgresRecordLog, records: Sequence[Record], expected_version: int, epoch: int = 1) -> None:
    """Append to the one group of these tests."""
    await log.append(Commit(ORDERS, epoch, expected_version, records))


async def test_a_coordinator_that_was_superseded_appends_nothing(
    engine: AsyncEngine, postgres_log: PostgresRecordLog
) -> None:
    """L4 forbids it."""
    assert await postgres_log.take_over(ORDERS) == 1
    await append(postgres_log, [ProbeScheduled(1)], 0)
    newer = unleased_log(engine)
    assert await newer.take_over(ORDERS) == 2
    for records in ([ProbeScheduled(2)], []):
        with pytest.raises(Superseded, match="epoch 2"):
            await append(postgres_log, records, 1)
    await append(newer, [ProbeScheduled(3)], 1, epoch=2)
    assert await newer.read(ORDERS) == Loaded(2, (ProbeScheduled(1), ProbeScheduled(3)))


async def test_a_group_without_records_can_be_taken_over(engine: AsyncEngine, postgres_log: PostgresRecordLog) -> None:
    newer = unleased_log(engine)
    assert await newer.take_over(ORDERS) == 1
    assert await newer.group_ids() == []
    assert await newer.read(ORDERS) == Loaded(0, ())
    with pytest.raises(Superseded):
        await append(postgres_log, [ProbeScheduled(1)], 0)
    await append(newer, [ProbeScheduled(2)], 0)
    assert await newer.read(ORDERS) == Loaded(1, (ProbeScheduled(2),))


async def test_an_epoch_is_higher_with_each_takeover(postgres_log: PostgresRecordLog) -> None:
    """A coordinator that takes its own group over again closes it to what it began before (L4)."""
    assert [await postgres_log.take_over(ORDERS) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(Superseded, match="epoch 3; this is 2"):
        await append(postgres_log, [ProbeScheduled(1)], 0, epoch=2)


async def test_of_a_takeover_and_an_append_at_once_one_comes_first(
    engine: AsyncEngine, postgres_log: PostgresRecordLog
) -> None:
    """What is read after a takeover is final (L4)."""
    newer = unleased_log(engine)

    async def take_over(group: GroupId) -> int:
        while True:
            try:
                await newer.take_over(group)
            except StoreUnavailable:
                # It waits for no other's lock, and is tried again.
                continue
            break
        return (await newer.read(group)).version

    for number in range(20):
        group = GroupId(f"group-{number}")
        await postgres_log.append(Commit(group, 1, 0, [ProbeScheduled(0)]))
        appended, seen = await asyncio.gather(
            postgres_log.append(Commit(group, 1, 1, [ProbeScheduled(1)])), take_over(group), return_exceptions=True
        )
        assert appended is None or isinstance(appended, Superseded)
        assert seen == (2 if appended is None else 1)
        assert (await newer.read(group)).version == seen


async def test_of_two_statements_at_once_each_group_takes_one(engine: AsyncEngine) -> None:
    tenure = Unleased()
    first, second = (PostgresRecordLog(engine, tenure=tenure) for _ in range(2))
    groups = [GroupId(f"group-{number}") for number in range(12)]
    for version in range(25):
        tried = [
            log.append(Commit(group, 1, version, [ProbeScheduled(number)]))
            for number, (log, order) in enumerate(((first, groups), (second, groups[::-1])))
            for group in order
        ]
        outcomes = await asyncio.wait_for(asyncio.gather(*tried, return_exceptions=True), 30)
        ours, theirs = outcomes[:12], outcomes[:11:-1]
        for one, other in zip(ours, theirs, strict=True):
            assert [one, other].count(None) == 1
            assert isinstance(one or other, VersionConflict)
    assert {(await first.read(group)).version for group in groups} == {25}


async def test_each_record_names_its_epoch_and_its_time(engine: AsyncEngine, postgres_log: PostgresRecordLog) -> None:
    for epoch in (1, 2):
        assert await postgres_log.take_over(ORDERS) == epoch
        await append(postgres_log, [ProbeScheduled(epoch)], epoch - 1, epoch=epoch)
    columns = (
        "seq, coordinator_epoch, kind, version, payload, at between now() - interval '1 minute' and now() as fresh"
    )
    async with engine.connect() as connection:
        rows = (await connection.execute(text(f"select {columns} from record_log order by seq"))).all()  # noqa: S608
    assert [tuple(row) for row in rows] == [
        (1, 1, "probe-scheduled", 1, {"at_ms": 1}, True),
        (2, 2, "probe-scheduled", 1, {"at_ms": 2}, True),
    ]


@pytest.mark.parametrize("beside", [True, False])
async def test_a_large_commit_is_encoded_beside_the_loop(
    postgres_log: PostgresRecordLog, monkeypatch: pytest.MonkeyPatch, *, beside: bool
) -> None:
    """What is written is the same."""
    threads: list[int] = []

    def prepare(commit: Commit, up_to: Mapping[str, int]) -> Prepared:
        threads.append(threading.get_ident())
        return appending.prepare(commit, up_to)

    monkeypatch.setattr(record_log, "prepare", prepare)
    await postgres_log.take_over(ORDERS)
    await postgres_log.append(Commit(ORDERS, 1, 0, [ProbeScheduled(1)], is_large=beside))
    with pytest.raises(VersionConflict):
        await postgres_log.append(Commit(ORDERS, 1, 0, [ProbeScheduled(2)], is_large=beside))
    assert await postgres_log.read(ORDERS) == Loaded(1, (ProbeScheduled(1),))
    assert [thread != threading.get_ident() for thread in threads] == [beside] * 2


async def test_a_log_with_a_gap_is_not_read(engine: AsyncEngine, postgres_log: PostgresRecordLog) -> None:
    """State that leaves out a fact would break laws."""
    await append(postgres_log, [ProbeScheduled(number) for number in range(3)], 0)
    async with engine.connect() as connection:
        await connection.execute(text("delete from record_log where seq = 2"))
    with pytest.raises(UnreadableRecord, match="2 records"):
        await postgres_log.read(ORDERS)
    assert await postgres_log.read(ORDERS, after_version=2) == Loaded(3, (ProbeScheduled(2),))


async def test_a_database_that_is_away_is_unavailable_and_comes_back(folder: Path) -> None:
    server = EmbeddedPostgres(folder, durable=False)
    url = server.start()
    await upgrade(url)
    engine = connect(url)
    log = unleased_log(engine)
    await append(log, [ProbeScheduled(1)], 0)
    server.stop()
    for call in (append(log, [ProbeScheduled(2)], 1), log.read(ORDERS), log.group_ids()):
        with pytest.raises(StoreUnavailable, match="Postgres: "):
            await call
    with EmbeddedPostgres(folder, durable=False, port=make_url(url).port):
        await append(log, [ProbeScheduled(3)], 1)
        assert await log.read(ORDERS) == Loaded(2, (ProbeScheduled(1), ProbeScheduled(3)))
        await engine.dispose()


async def test_a_connection_that_was_cut_is_replaced(
    server: EmbeddedPostgres, database_url: str, postgres_log: PostgresRecordLog
) -> None:
    await append(postgres_log, [ProbeScheduled(1)], 0)
    other = connect(server.url)
    async with other.connect() as connection:
        cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = :name"
        found = await connection.execute(text(cut), {"name": make_url(database_url).database})
        assert found.scalar_one() == 1
    await other.dispose()
    await asyncio.sleep(0.1)
    await append(postgres_log, [ProbeScheduled(2)], 1)


async def test_a_database_that_does_not_answer_is_unavailable(engine: AsyncEngine, database_url: str) -> None:
    impatient = connect(database_url, small_s=0.2)
    log = unleased_log(impatient)
    await append(log, [ProbeScheduled(1)], 0)
    async with engine.execution_options(isolation_level="READ COMMITTED").begin() as holder:
        await holder.execute(text("lock table record_log in exclusive mode"))
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            await append(log, [ProbeScheduled(2)], 1)
    assert await log.read(ORDERS) == Loaded(1, (ProbeScheduled(1),))
    await append(log, [ProbeScheduled(3)], 1)
    await impatient.dispose()


async def test_callers_do_not_wait_for_a_connection_for_ever(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "POOL_TIMEOUT_S", 0.1)
    narrow = connect(database_url, connections_max=1)
    async with narrow.connect():
        with pytest.raises(StoreUnavailable, match="no connection came free"):
            await unleased_log(narrow).read(ORDERS)
    await narrow.dispose()


async def test_a_database_without_the_schema_is_unavailable(bare_url: str) -> None:
    bare = connect(bare_url)
    with pytest.raises(StoreUnavailable, match='"group_heads" does not exist'):
        await unleased_log(bare).group_ids()
    await bare.dispose()


async def test_a_wrong_password_is_unavailable(database_url: str) -> None:
    right = str(make_url(database_url).password)
    wrong = connect(database_url.replace(right, "guessed"))
    with pytest.raises(StoreUnavailable, match="password authentication failed") as caught:
        await unleased_log(wrong).group_ids()
    assert "guessed" not in str(caught.value)
    await wrong.dispose()


async def test_what_appends_keeps_its_connection_and_ends_it_with_its_engine(database_url: str) -> None:
    """One connection serves all appends; a lost one is replaced."""
    writing, engine = connect(database_url), connect(database_url)
    log = unleased_log(engine, writing=writing)
    drivers: list[Any] = []
    for version in range(4):
        await append(log, [ProbeScheduled(version)], version)
        async with log._connections[0].lent() as driver:
            drivers.append(driver)
        if version == 1:
            drivers[-1].terminate()
    assert drivers[0] is drivers[1] is not drivers[2] is drivers[3]
    await writing.dispose()
    assert drivers[-1].is_closed()
    await engine.dispose()


async def test_a_conflict_is_not_an_error_of_the_database(postgres_log: PostgresRecordLog) -> None:
    for _ in range(12):
        with pytest.raises(VersionConflict):
            await append(postgres_log, [ProbeScheduled(1)], 3)
    await append(postgres_log, [ProbeScheduled(1)], 0)


PLANS = "select custom_plans, generic_plans from pg_prepared_statements where statement like 'with%'"


async def test_the_statements_that_append_are_planned_once(database_url: str, engine: AsyncEngine) -> None:
    writing = connect(database_url, connections_max=1, keeps_plans=True)
    log = unleased_log(engine, writing=writing)
    try:
        await log.get_ready()
        await log.take_over(ORDERS)
        for version in range(12):
            events = (Event("probe", 1, 1, None, None, {}),) * (version % 3)
            await log.append(Commit(ORDERS, 1, version, [ProbeScheduled(version)], History(events=events)))
        plans = []
        for line in log._connections:
            async with line.lent() as driver:
                plans.append(await driver.fetch(PLANS))
        # Three mixtures, each carried out once without anything; the twelve commits are all of the first.
        assert [sorted(tuple(row) for row in rows) for rows in plans] == [[(0, 1), (0, 1), (0, 13)], [(0, 1)] * 3]
    finally:
        await writing.dispose()
