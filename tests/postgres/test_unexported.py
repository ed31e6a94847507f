"""A day that no audit has exported yet is kept a while longer, and then goes all the same."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine
from tests.postgres.test_upkeep import ORDERS, aged, change, days_of, sql, write
from tests.postgres.unleased import unleased_log

from batonpass.codec.generations import Generation
from batonpass.core.state.evolve import evolve
from batonpass.core.state.model import Group
from batonpass.core.state.records import ProbeScheduled
from batonpass.postgres.record_log import PostgresRecordLog
from batonpass.postgres.upkeep import Retention, Upkeep
from batonpass.runtime.history import History

NOW = datetime(2031, 5, 17, 12, tzinfo=UTC)
KEPT = 10


async def mark(engine: AsyncEngine, day: date) -> None:
    """Note that a day was exported."""
    await sql(engine, "insert into exported_days values (:day, now(), 'x', '{}')", day=day)


async def lived(engine: AsyncEngine, days: int) -> None:
    """Let upkeep have run each day for so many days until now, keeping everything."""
    for number in range(days, -1, -5):
        await Upkeep(engine, Retention(99, 99, 99)).turn(NOW - timedelta(days=number))


async def test_days_wait_for_their_export_but_not_for_ever(own_engine: AsyncEngine) -> None:
    await lived(own_engine, 20)
    oldest = NOW.date() - timedelta(days=KEPT)
    exported = [oldest - timedelta(days=number) for number in (1, 3, 6)]
    for day in exported:
        await mark(own_engine, day)
    await Upkeep(own_engine, Retention(KEPT, KEPT, KEPT, unexported=5)).turn(NOW)
    left = [name for name in await days_of(own_engine) if name < f"{oldest:%Y%m%d}"]
    assert left == [f"{oldest - timedelta(days=number):%Y%m%d}" for number in (5, 4, 2)]
    await mark(own_engine, oldest - timedelta(days=4))
    await Upkeep(own_engine, Retention(KEPT, KEPT, KEPT, unexported=5)).turn(NOW + timedelta(days=1))
    left = [name for name in await days_of(own_engine) if name < f"{oldest:%Y%m%d}"]
    assert left == [f"{oldest - timedelta(days=2):%Y%m%d}"]
    await Upkeep(own_engine, Retention(KEPT, KEPT, KEPT)).turn(NOW + timedelta(days=1))
    assert (await days_of(own_engine))[0] == f"{oldest + timedelta(days=1):%Y%m%d}"


async def test_what_came_into_the_rest_waits_too(own_engine: AsyncEngine) -> None:
    log = unleased_log(own_engine)
    old = [NOW - timedelta(days=KEPT + number) for number in (2, 9)]
    await write(log, 0, History(changes=tuple(map(change, old))))
    await Upkeep(own_engine, Retention(KEPT, KEPT, KEPT, unexported=5)).turn(NOW)
    assert await sql(own_engine, "select count(*) from assignment_events_rest") == [1]
    await Upkeep(own_engine, Retention(KEPT, KEPT, KEPT)).turn(NOW)
    assert await sql(own_engine, "select count(*) from assignment_events_rest") == [0]


async def test_records_and_generations_wait_for_their_day(engine: AsyncEngine, postgres_log: PostgresRecordLog) -> None:
    """Also those of the day that the cut goes through."""
    now = datetime.now(UTC).replace(hour=12)
    group = Group(ORDERS)
    await postgres_log.take_over(ORDERS)
    for version in range(6):
        at_ms = int((now - timedelta(days=KEPT + 5 - version, hours=1)).timestamp() * 1_000)
        made = Generation(version, 1, at_ms, (), 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, (), ())
        await write(postgres_log, version, History(generation=made))
        group = evolve(group, [ProbeScheduled(version)])
    await postgres_log.keep_snapshot(group)
    await aged(engine, "snapshots", 90)
    # The last record is from the day that the cut goes through, an hour before the cut.
    age = "make_interval(days => :kept + 6 - cast(seq as int), hours => 1)"
    await sql(engine, f"update record_log set at = cast(:now as timestamptz) - {age}", now=now, kept=KEPT)  # noqa: S608
    kept = Retention(records=KEPT, generations=KEPT, unexported=4)
    await Upkeep(engine, kept).turn(now)
    assert await sql(engine, "select min(seq) from record_log") == [2]
    assert await sql(engine, "select min(number) from generations") == [1]
    for number in range(1, 5):
        await mark(engine, now.date() - timedelta(days=KEPT + number))
    await Upkeep(engine, kept).turn(now)
    assert await sql(engine, "select min(seq) from record_log") == [6]
    assert await sql(engine, "select number from generations") == [5]
    await mark(engine, now.date() - timedelta(days=KEPT))
    await Upkeep(engine, kept).turn(now)
    assert await sql(engine, "select count(*) from record_log") == [0]
    assert await sql(engine, "select count(*) from generations") == [0]


async def test_audits_go_by_age(engine: AsyncEngine) -> None:
    for days in (500, 5):
        day = NOW.date() - timedelta(days=days)
        given = {"run": UUID(int=days), "day": day}
        await sql(
            engine,
            "insert into audit_runs values (:run, :day, now(), null, 'passed', '', 0, 0, 0, 0, '', '', '{}')",
            **given,
        )
        await sql(
            engine,
            "insert into audit_findings values (:run, 1, :day, 'g', 'L1', 'fatal', null, null, '', '{}')",
            **given,
        )
        await sql(engine, "insert into audit_daily values (:day, 'g', :run, '{}')", **given)
        await mark(engine, day)
    await Upkeep(engine).turn(NOW)
    for table in ("audit_runs", "audit_findings", "audit_daily", "exported_days"):
        assert await sql(engine, f"select day from {table}") == [NOW.date() - timedelta(days=5)], table  # noqa: S608
