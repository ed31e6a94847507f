"""Rows always find a place, days are made ahead and dropped when they are old, and what is needed is never deleted."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Table, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from tests.postgres.unleased import unleased_log

from batonpass.codec.changes import Change
from batonpass.codec.generations import Generation
from batonpass.codec.traces import Trace, soft_delta
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import Tick
from batonpass.core.state.model import Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.records import ProbeScheduled
from batonpass.core.state.soft import Soft
from batonpass.postgres import upkeep as upkeep_module
from batonpass.postgres.archive import PostgresArchive
from batonpass.postgres.connect import connect
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.postgres.sorting import sort_some
from batonpass.postgres.tables import PARTITIONED, assignment_events, samples
from batonpass.postgres.upkeep import DAYS_AHEAD, Retention, Upkeep, day_of, name_of
from batonpass.runtime.events import Event
from batonpass.runtime.history import Asked, History
from batonpass.runtime.ports import Commit, StoreUnavailable

ORDERS, TASK = GroupId("orders"), TaskId("0_1")
NOW = datetime(2031, 5, 17, 12, tzinfo=UTC)


async def sql(engine: AsyncEngine, statement: str, **parameters: object) -> Sequence[Any]:
    """Run a statement and return the first column of what it gives."""
    async with engine.connect() as connection:
        done = await connection.execute(text(statement), parameters)
        return list(done.scalars()) if done.returns_rows else []


async def days_of(engine: AsyncEngine) -> list[str]:
    """Return the days that there are of the table of changes, without its name."""
    names = await sql(
        engine,
        "select c.relname from pg_inherits join pg_class c on c.oid = inhrelid"
        " where inhparent = 'assignment_events'::regclass order by 1",
    )
    return [name.removeprefix("assignment_events_") for name in names]


def change(at: datetime) -> Change:
    """Return a change at an instant."""
    return Change(TASK, MemberId("m1"), "granted", "none", "active", int(at.timestamp() * 1_000), 1)


def trace(version: int) -> Trace:
    """Return the trace of a decision on nothing."""
    return Trace((Tick(),), int(NOW.timestamp() * 1_000), version, soft_delta(None, Soft()), Policy(), "x")


async def write(log: PostgresRecordLog, version: int, history: History) -> None:
    """Append one record with a history, and have its changes put where they belong."""
    await log.append(Commit(ORDERS, 1, version, [ProbeScheduled(version)], history))
    await sort_some(log._engine)


async def test_a_row_finds_a_place_whatever_its_day(own_engine: AsyncEngine) -> None:
    """No day is made yet, and some are of a clock that is wrong."""
    log, archive = unleased_log(own_engine), PostgresArchive(own_engine)
    days = [NOW, NOW - timedelta(days=9_000), NOW + timedelta(days=9_000), NOW + timedelta(days=1)]
    await write(log, 0, History(changes=tuple(map(change, days))))
    await write(log, 1, History(changes=(change(NOW),) * 300))
    assert len(await archive.task_changes(ORDERS, TASK, limit=999)) == 304
    assert await days_of(own_engine) == ["rest"]


async def test_days_are_made_ahead_with_what_the_rest_holds_of_them(own_engine: AsyncEngine) -> None:
    log, archive = unleased_log(own_engine), PostgresArchive(own_engine)
    early = [NOW.replace(hour=0), NOW, NOW.replace(hour=23, minute=59, second=59), NOW + timedelta(days=1)]
    await write(log, 0, History(changes=tuple(map(change, early))))
    upkeep = Upkeep(own_engine)
    for _ in range(2):
        await upkeep.turn(NOW)
        assert await days_of(own_engine) == [f"203105{17 + ahead}" for ahead in range(DAYS_AHEAD + 1)] + ["rest"]
        assert await sql(own_engine, "select count(*) from assignment_events_20310517") == [3]
        assert await sql(own_engine, "select count(*) from assignment_events_20310518") == [1]
        assert await sql(own_engine, "select count(*) from assignment_events_rest") == [0]
    await write(log, 1, History(changes=(change(NOW), change(NOW + timedelta(days=2)))))
    assert await sql(own_engine, "select count(*) from assignment_events_20310519") == [1]
    assert len(await archive.task_changes(ORDERS, TASK, limit=999)) == 6
    for table in PARTITIONED:
        parts = "select count(*) from pg_inherits where inhparent = to_regclass(:name)"
        assert await sql(own_engine, parts, name=table.name) == [DAYS_AHEAD + 2]


async def test_work_that_fails_is_logged_once(
    own_engine: AsyncEngine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills because nothing is deleted should not be the first sign of it."""
    monkeypatch.setattr(upkeep_module, "RETRY_S", 0.01)
    upkeep, turns = Upkeep(own_engine), 0

    async def fails(_now: datetime, *, forgets: bool) -> None:
        del forgets
        nonlocal turns
        turns += 1
        raise StoreUnavailable("must be owner of table traces")

    monkeypatch.setattr(upkeep, "turn", fails)
    running = asyncio.create_task(upkeep.run())
    while turns < 5:
        await asyncio.sleep(0.01)
    running.cancel()
    messages = [record.getMessage() for record in caplog.records if record.name == "batonpass.postgres"]
    assert messages == [
        "no days are made, and no old rows deleted; tried again every 0.01 s: must be owner of table traces"
    ]


async def test_a_clock_that_leaps_has_nothing_deleted_for_a_day(
    own_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By that of another server, which is 40 days ahead, all is old; it is set right within a day."""
    now, hours = NOW, 0
    upkeep = Upkeep(own_engine, Retention(changes=2))

    async def turn(*, ahead: timedelta) -> list[str]:
        nonlocal now, hours
        now, hours = now + timedelta(hours=1) + ahead, hours + 1
        monkeypatch.setattr(upkeep_module, "_NOW", text(f"select timestamptz '{now.isoformat()}'"))
        turning = asyncio.create_task(upkeep.run())
        while f"{(now + timedelta(days=DAYS_AHEAD)):%Y%m%d}" not in await days_of(own_engine) or not over.is_set():
            await asyncio.sleep(0.01)
        turning.cancel()
        over.clear()
        return await days_of(own_engine)

    over, plain = asyncio.Event(), upkeep.turn

    async def whole(*arguments: Any, **more: Any) -> None:
        await plain(*arguments, **more)
        over.set()

    monkeypatch.setattr(upkeep, "turn", whole)
    monkeypatch.setattr(upkeep_module, "boot_ms", lambda: hours * 3_600_000.0)
    leap = timedelta(days=40)
    assert "20310517" in await turn(ahead=timedelta())
    assert "20310517" in await turn(ahead=leap)
    assert "20310517" in await turn(ahead=-leap)
    assert "nothing old is deleted for a day" in caplog.text
    # One that nobody sets right is the clock that counts.
    assert "20310517" in await turn(ahead=leap)
    for _ in range(23):
        assert "20310517" in await turn(ahead=timedelta())
    assert "20310517" not in await turn(ahead=timedelta())


async def test_old_days_are_dropped(own_engine: AsyncEngine) -> None:
    log, archive = unleased_log(own_engine), PostgresArchive(own_engine)
    upkeep = Upkeep(own_engine, Retention(changes=2))
    await upkeep.turn(NOW)
    await write(
        log, 0, History(changes=(change(NOW), change(NOW + timedelta(days=1)), change(NOW - timedelta(days=3))))
    )
    await upkeep.turn(NOW + timedelta(days=2))
    assert (await days_of(own_engine))[0] == "20310517"
    assert len(await archive.task_changes(ORDERS, TASK, limit=9)) == 2
    await upkeep.turn(NOW + timedelta(days=3))
    assert (await days_of(own_engine))[0] == "20310518"
    assert len(await archive.task_changes(ORDERS, TASK, limit=9)) == 1


async def test_of_many_coordinators_that_take_their_turn_at_once_one_does_the_work(own_engine: AsyncEngine) -> None:
    await asyncio.gather(*(Upkeep(own_engine).turn(NOW) for _ in range(4)))
    await Upkeep(own_engine).turn(NOW)
    assert len(await days_of(own_engine)) == DAYS_AHEAD + 2


async def test_a_turn_gives_up_at_once_beside_a_long_reader_and_appends_go_on(own_engine: AsyncEngine) -> None:
    log = unleased_log(own_engine)
    await Upkeep(own_engine).turn(NOW)
    async with own_engine.execution_options(isolation_level="READ COMMITTED").begin() as reader:
        await reader.execute(text("select count(*) from assignment_events"))
        turn = asyncio.create_task(Upkeep(own_engine, Retention(changes=1)).turn(NOW + timedelta(days=9)))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(write(log, 0, History(changes=(change(NOW),))), 5)
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            await asyncio.wait_for(turn, 5)
    await Upkeep(own_engine, Retention(changes=1)).turn(NOW + timedelta(days=9))


async def test_who_reads_one_table_for_long_keeps_no_other_from_being_cleared(
    own_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of that table itself the rows go that came into the rest meanwhile, some at a time."""
    monkeypatch.setattr(upkeep_module, "CHUNK", 2)
    log, upkeep, later = unleased_log(own_engine), Upkeep(own_engine, Retention(changes=1)), NOW + timedelta(days=9)
    await upkeep.turn(NOW)
    at_ms = int(NOW.timestamp() * 1_000)
    history = History(Asked("ann", command="probe"), at_ms, events=(Event("x", at_ms, 1, None, None, {}),) * 5)
    lost = (change(NOW - timedelta(days=1)),) * 5
    await write(log, 0, replace(history, changes=lost))
    async with own_engine.execution_options(isolation_level="READ COMMITTED").begin() as reader:
        await reader.execute(text("select count(*) from assignment_events"))
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            await upkeep.turn(later)
        assert await sql(own_engine, "select count(*) from events") == [0]
        assert await sql(own_engine, "select count(*) from assignment_events_rest") == [0]
        assert await sql(own_engine, f"select to_regclass('{name_of(samples, later.date())}') is null") == [False]


async def test_a_day_that_cannot_be_made_keeps_no_later_one(
    own_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where too many rows of it are in the rest to be moved in time."""
    make = upkeep_module._make_day

    async def make_but_today(connection: AsyncConnection, table: Table, day: date) -> None:
        if day == NOW.date():
            raise StoreUnavailable("Postgres: no answer in time")
        await make(connection, table, day)

    monkeypatch.setattr(upkeep_module, "_make_day", make_but_today)
    with pytest.raises(StoreUnavailable, match="in time"):
        await Upkeep(own_engine).turn(NOW)
    assert await days_of(own_engine) == ["20310518", "20310519", "20310520", "20310521", "rest"]


async def test_however_many_rows_are_old_few_are_looked_at_to_delete_some(engine: AsyncEngine) -> None:
    """A statement that looked at all would end at its time limit once they are very many, and none would ever go."""
    await sql(
        engine,
        "insert into events (position, group_id, at, type, generation, body)"
        " select n, 'g', now() - interval '60 days', 'x', 1, '{}' from generate_series(1, 20000) n",
    )
    await sql(
        engine,
        "insert into commands (group_id, at, command, who, asked, subject)"
        " select 'g', now() - interval '999 days', 'x', 'x', '{}', '{}' from generate_series(1, 20000) n",
    )
    await sql(engine, "analyze events, commands")
    for statement in (upkeep_module._OLD_EVENTS, upkeep_module._OLD_COMMANDS):
        given = {"cut": datetime.now(UTC), "grace": datetime.now(UTC), "chunk": 10}
        async with engine.connect() as connection:
            explained = text(f"explain (analyze, format json) {statement.text}")
            ((plan,),) = await connection.execute(explained, {one: given[one] for one in explained._bindparams})
        assert max(seen(plan[0]["Plan"])) < 1_000


def seen(node: dict[str, Any]) -> list[float]:
    """Return how many rows each step of a plan has seen."""
    own = node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0)
    return [own, *(rows for part in node.get("Plans", ()) for rows in seen(part))]


async def test_days_are_made_while_rows_come(own_engine: AsyncEngine) -> None:
    log, archive = unleased_log(own_engine), PostgresArchive(own_engine)
    made = asyncio.Event()

    async def append_on() -> int:
        version = 0
        while not made.is_set():
            history = History(at_ms=int(NOW.timestamp() * 1_000), changes=(change(NOW),), trace=trace(version))
            await log.append(Commit(ORDERS, 1, version, [ProbeScheduled(version)], history))
            with contextlib.suppress(DBAPIError):
                await sort_some(own_engine)
            version += 1
        return version

    appending = asyncio.create_task(append_on())
    await asyncio.sleep(0.1)
    await Upkeep(own_engine).turn(NOW)
    made.set()
    count = await appending
    await sort_some(own_engine)
    assert len(await archive.task_changes(ORDERS, TASK, limit=10**6)) == count
    assert await sql(own_engine, "select count(*) from assignment_events_20310517") == [count]
    assert await sql(own_engine, "select count(*) from traces_20310517") == [count]


def test_names_of_days_can_be_read_back() -> None:
    assert day_of(assignment_events, name_of(assignment_events, NOW.date())) == NOW.date()
    assert day_of(assignment_events, "assignment_events_rest") is None


async def aged(engine: AsyncEngine, table: str, days: int, where: str = "true") -> None:
    """Make rows of a table older than they are."""
    await sql(engine, f"update {table} set at = at - interval '{days} days' where {where}")  # noqa: S608


async def test_records_go_only_when_a_snapshot_makes_them_needless(
    engine: AsyncEngine, postgres_log: PostgresRecordLog
) -> None:
    group = Group(ORDERS)
    await postgres_log.take_over(ORDERS)
    upkeep = Upkeep(engine)
    now = datetime.now(UTC)
    for version in range(12):
        await write(postgres_log, version, History())
        group = evolve(group, [ProbeScheduled(version)])
        if group.version in (2, 4, 8):
            await postgres_log.keep_snapshot(group)
    await aged(engine, "record_log", 50, "seq <= 6")
    await upkeep.turn(now)
    assert await sql(engine, "select count(*) from record_log") == [10]
    await aged(engine, "snapshots", 60, "version = 2")
    await aged(engine, "snapshots", 50, "version = 4")
    await upkeep.turn(now)
    assert await sql(engine, "select version from snapshots order by version") == [2, 4, 8]
    for version in range(12, 16):
        await write(postgres_log, version, History())
        group = evolve(group, [ProbeScheduled(version)])
        await postgres_log.keep_snapshot(group)
    await upkeep.turn(now)
    kept = await sql(engine, "select version from snapshots order by version")
    assert kept == [4, 14, 15, 16]
    assert await sql(engine, "select min(seq) from record_log") == [5]
    loaded = await postgres_log.read(ORDERS)
    assert loaded.base is not None
    assert evolve(loaded.base, loaded.records) == group


async def test_a_day_begins_in_utc_whatever_the_zone_of_the_role(own_url: str, own_engine: AsyncEngine) -> None:
    log, elsewhere = unleased_log(own_engine), connect(f"{own_url}?options=-ctimezone%3DAmerica/Los_Angeles")
    kept = datetime(NOW.year, NOW.month, NOW.day, 1, tzinfo=UTC)
    await write(log, 0, History(changes=(change(kept), change(kept - timedelta(hours=2)))))
    await Upkeep(elsewhere, Retention(changes=9)).turn(NOW + timedelta(days=9))
    assert await sql(own_engine, "select at from assignment_events_rest") == [kept]
    await elsewhere.dispose()


@pytest.mark.parametrize(("locked", "free"), [("one", "two"), ("two", "one")])
async def test_a_group_whose_records_are_locked_keeps_no_other_s_from_going(
    own_url: str, own_engine: AsyncEngine, locked: str, free: str
) -> None:
    log, hasty = unleased_log(own_engine), connect(own_url, small_s=0.3)
    for name in (locked, free):
        await log.take_over(GroupId(name))
        for version in range(2):
            await log.append(Commit(GroupId(name), 1, version, [ProbeScheduled(version)], History()))
        await log.keep_snapshot(evolve(Group(GroupId(name)), [ProbeScheduled(0), ProbeScheduled(1)]))
    await aged(own_engine, "record_log", 50)
    async with own_engine.execution_options(isolation_level="READ COMMITTED").begin() as other:
        await other.execute(text("select from record_log where group_id = :name for update"), {"name": locked})
        with pytest.raises(StoreUnavailable):
            await Upkeep(hasty).turn(datetime.now(UTC))
        assert await sql(own_engine, "select distinct group_id from record_log") == [locked]
    await Upkeep(hasty).turn(datetime.now(UTC))
    assert await sql(own_engine, "select count(*) from record_log") == [0]
    await hasty.dispose()


async def test_without_a_snapshot_no_record_goes(engine: AsyncEngine, postgres_log: PostgresRecordLog) -> None:
    """They are all that there is of the group."""
    await write(postgres_log, 0, History())
    await postgres_log.keep_snapshot(evolve(Group(ORDERS), [ProbeScheduled(0)]))
    await sql(engine, "update snapshots set format = 99")
    await aged(engine, "record_log", 500)
    await Upkeep(engine).turn(datetime.now(UTC))
    assert await sql(engine, "select count(*) from record_log") == [1]


async def test_what_stands_beside_the_records_goes_by_age(engine: AsyncEngine, postgres_log: PostgresRecordLog) -> None:
    now = datetime.now(UTC)
    for number, days in enumerate((500, 100, 8, 1)):
        at_ms = int((now - timedelta(days=days)).timestamp() * 1_000)
        generation = Generation(number, 1, at_ms, (), 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, (), ())
        event = Event("x", at_ms, 1, None, None, {})
        await write(
            postgres_log, number, History(Asked("ann", command="probe"), at_ms, generation=generation, events=(event,))
        )
    await Upkeep(engine).turn(now)
    archive = PostgresArchive(engine)
    assert [one.position for one in await archive.events(None, after=0, limit=9)] == [4]
    assert [one.number for one in await archive.generations(ORDERS, before=None, limit=9)] == [3, 2]
    assert len(await archive.commands(None, before=None, limit=9)) == 3
    assert await archive.last_position() == 4


async def test_events_wait_for_a_reader_that_is_behind_but_not_for_ever(
    engine: AsyncEngine, postgres_log: PostgresRecordLog
) -> None:
    now = datetime.now(UTC)
    at_ms = int((now - timedelta(days=10)).timestamp() * 1_000)
    for number in range(3):
        await write(postgres_log, number, History(events=(Event("x", at_ms, 1, None, None, {}),)))
    await sql(engine, "insert into outbox_readers (name, position) values ('kafka', 2)")
    await Upkeep(engine).turn(now)
    assert await sql(engine, "select position from events") == [3]
    await aged(engine, "outbox_readers", 20)
    await Upkeep(engine).turn(now)
    assert await sql(engine, "select position from events") == []


async def test_names_that_were_only_asked_for_are_forgotten(
    engine: AsyncEngine, postgres_log: PostgresRecordLog
) -> None:
    """A write that needs such a head takes the group over again."""
    for name in ("asked-for", "orders"):
        await postgres_log.take_over(GroupId(name))
    await write(postgres_log, 0, History())
    await Upkeep(engine).turn(datetime.now(UTC))
    assert await sql(engine, "select group_id from group_heads order by 1") == ["orders"]
    await postgres_log.append(Commit(GroupId("asked-for"), 1, 0, [ProbeScheduled(1)]))
    assert (await postgres_log.read(GroupId("asked-for"))).version == 1


async def test_tokens_go_long_after_they_were_revoked_or_expired(engine: AsyncEngine) -> None:
    """The trail of the maker is kept for as long."""
    for name, expires, revoked in (
        ("good", "null", "null"),
        ("good-for-a-year", "now() + interval '1 year'", "null"),
        ("revoked-lately", "null", "now() - interval '9 days'"),
        ("revoked-long-ago", "now() + interval '1 year'", "now() - interval '11 days'"),
        ("expired-long-ago", "now() - interval '11 days'", "null"),
    ):
        await sql(
            engine,
            "insert into tokens (id, digest, name, role, last_four, created_at, expires_at, revoked_at) values"  # noqa: S608
            f" ('{name}', '{name}', '{name}', 'viewer', '0000', now() - interval '1 year', {expires}, {revoked})",
        )
    await Upkeep(engine, Retention(commands=10)).turn(datetime.now(UTC))
    assert await sql(engine, "select id from tokens order by id") == ["good", "good-for-a-year", "revoked-lately"]
