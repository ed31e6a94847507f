"""Days of simulated groups in a database: what a service would have left there, every row of it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.postgres.unleased import unleased_log
from typer.testing import CliRunner, Result

from batonpass.cli.simulate import app
from batonpass.codec.records import encode_records
from batonpass.codec.traces import decode_trace, replay
from batonpass.core.evolve import evolve
from batonpass.core.ids import GroupId
from batonpass.core.invariants import check_group
from batonpass.core.model import Group
from batonpass.core.soft import Soft
from batonpass.days.generate import VARIANTS_MAX, Hear, Wish, Written, generate, generate_scenario, rows_of
from batonpass.days.plant import Fault, oddities_of, plant
from batonpass.days.rows import COLUMNS, GroupRows
from batonpass.days.writing import GroupsThere, make_days, refuse_existing, write
from batonpass.postgres.connect import connect
from batonpass.postgres.tables import metadata
from batonpass.simulate.scenario.drawing import ORDINARY, Oddities, draw_day
from batonpass.simulate.scenario.model import Act, Scenario, SimulatedSubtopology, Step, Worker

DAY = date(2026, 11, 20)
MINUTE = 60_000
NAMES = ("a", "b", "c")
SMALL = Scenario(
    name="small",
    group="small",
    subtopologies=(SimulatedSubtopology((100_000,) * 9, (10.0,) * 9),),
    workers=tuple(map(Worker, (*NAMES, "d"))),
    present=NAMES,
    config={"num_standby_replicas": 1},
    steps=(
        Step(30 * MINUTE, Act.JOIN, "d"),
        Step(60 * MINUTE, Act.CRASH, "a"),
        Step(62 * MINUTE, Act.RETURN, "a"),
        Step(90 * MINUTE, Act.COORDINATOR),
        Step(91 * MINUTE, Act.RESTART, "b"),
        Step(91 * MINUTE + 20_000, Act.RETURN, "b"),
        Step(120 * MINUTE, Act.DRAIN, "d"),
    ),
    until_ms=180 * MINUTE,
)


def run(*arguments: str) -> Result:
    """Call `batonpass simulate`."""
    return CliRunner().invoke(app, list(arguments))


def column(rows: GroupRows, table: str, name: str) -> list[Any]:
    """Return one column of a table."""
    place = COLUMNS[table].index(name)
    return [row[place] for row in rows.tables[table]]


def heard_in(done: list[str]) -> Hear:
    """Return what adds the names of groups that are written to a list."""
    return lambda one: done.append(one.group) if isinstance(one, Written) else None


async def counts(engine: AsyncEngine) -> Mapping[str, int]:
    """Return how many rows each table has."""
    async with engine.connect() as connection:
        return {name: (await connection.execute(text(f"select count(*) from {name}"))).scalar_one() for name in COLUMNS}  # noqa: S608


@pytest.fixture(scope="module")
def rows() -> GroupRows:
    """The rows of the small day."""
    return rows_of(SMALL, DAY)


def test_the_columns_are_those_of_the_tables() -> None:
    """Every column that must be written is, of every table; what is left out has a default."""
    for name, written in COLUMNS.items():
        table = metadata.tables[name]
        assert set(written) <= set(table.columns.keys())
        for one in table.columns.values():
            has_default = one.nullable or one.server_default is not None or one.identity is not None
            assert one.name in written or has_default


async def test_a_written_day_reads_as_a_service_left_it(rows: GroupRows, engine: AsyncEngine) -> None:
    """A coordinator can load the group; each logged decision, decided again, gives the records that follow it."""
    await make_days(engine, [DAY])
    await write(engine, rows)
    log = unleased_log(engine)
    loaded = await log.read(GroupId("small"), after_version=0)
    assert loaded.version == rows.version == len(loaded.records)
    group, heard, decided = Group(GroupId("small")), Soft(), 0
    async with engine.connect() as connection:
        question = text("select version, format, payload::text from traces order by version")
        traces = (await connection.execute(question)).all()
    ends = [*(version for version, _, _ in traces[1:]), loaded.version]
    for (version, form, payload), end in zip(traces, ends, strict=True):
        assert group.version == version
        trace = decode_trace(form, payload.encode())
        decision, heard = replay(group, heard, trace)
        written = loaded.records[version:end]
        assert encode_records(decision.records) == encode_records(written)
        group = evolve(group, written)
        decided += 1
    assert decided > 50
    assert list(check_group(group)) == []
    assert (await log.take_over(GroupId("small"))) == 3


async def test_rows_lie_in_the_parts_of_their_days(rows: GroupRows, engine: AsyncEngine) -> None:
    """What happened on the day lies in the day's own part, and nothing in the rest but what came before midnight."""
    await make_days(engine, [DAY])
    await write(engine, rows)
    async with engine.connect() as connection:
        question = text("select tableoid::regclass::text, min(at), max(at) from assignment_events group by 1")
        parts = {name: (first, last) for name, first, last in (await connection.execute(question)).all()}
        joined = (await connection.execute(text("select member_id, gone_at is null from members order by 1"))).all()
        heads = (await connection.execute(text("select version, coordinator_epoch, owner from group_heads"))).one()
        positions = (await connection.execute(text("select min(position), max(position), count(*) from events"))).one()
    first, last = parts[f"assignment_events_{DAY:%Y%m%d}"]
    assert first >= datetime(2026, 11, 20, tzinfo=UTC)
    assert last < datetime(2026, 11, 20, 3, tzinfo=UTC)
    assert dict(joined) == {"a.1": False, "a.2": True, "b.1": False, "b.2": True, "c.1": True, "d.1": False}
    assert tuple(heads) == (rows.version, 2, None)
    assert positions[1] - positions[0] + 1 == positions[2] == len(rows.tables["events"])


def test_times_are_those_of_the_decisions(rows: GroupRows) -> None:
    """Records, changes and traces of one decision have one instant, and instants never go back."""
    instants = column(rows, "record_log", "at")
    assert instants == sorted(instants)
    assert column(rows, "record_log", "seq") == list(range(1, rows.version + 1))
    at_version = dict(zip(column(rows, "traces", "version"), column(rows, "traces", "at"), strict=True))
    for version, at in zip(
        column(rows, "assignment_events", "version"), column(rows, "assignment_events", "at"), strict=True
    ):
        assert at_version[version] == at


def test_lags_are_sampled_every_minute(rows: GroupRows) -> None:
    """There is a sample for each minute that the group was there, or every so many, or none."""
    assert len(rows.tables["samples"]) == 180 + 10
    assert len(json.loads(rows.tables["samples"][-1][2])) >= 18
    assert len(rows_of(replace(SMALL, until_ms=MINUTE), DAY, sample_every=5).tables["samples"]) == 3
    assert rows_of(replace(SMALL, until_ms=MINUTE), DAY, sample_every=0).tables["samples"] == []


def test_the_same_seed_is_the_same_day(rows: GroupRows) -> None:
    """Nothing in the rows hangs on when they were made; another name gives other rows."""
    assert rows_of(SMALL, DAY) == rows
    assert draw_day(7) == draw_day(7) != draw_day(8)


@pytest.mark.parametrize("seed", range(6))
def test_a_drawn_day_is_one_that_can_be(seed: int) -> None:
    """Drawn days have members and tasks, and steps in order within the day."""
    day = draw_day(seed, events=2_000)
    assert len(day.present) >= 3
    assert day.task_count >= len(day.present)
    assert [step.at_ms for step in day.steps] == sorted(step.at_ms for step in day.steps)
    assert all(0 <= step.at_ms < 86_400_000 for step in day.steps)
    known = {worker.name for worker in day.workers}
    assert all(step.worker in known for step in day.steps if step.worker)


async def test_days_are_filled_and_never_written_over(own_url: str) -> None:
    """About as many events come out as were asked for; a second time under the same names nothing is written."""
    wanted = ("--into-database", own_url, "--day", "2026-11-20", "--events", "800", "--groups", "2")
    done = await asyncio.to_thread(run, *wanted, "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["groups"] == 2
    assert 400 < told["events"] < 2_000
    engine = connect(own_url)
    before = await counts(engine)
    assert before["record_log"] == told["records"]
    assert before["assignment_events"] == told["events"]
    again = await asyncio.to_thread(run, *wanted)
    assert again.exit_code == 1
    assert "has groups of these names: simulated-0001, simulated-0002" in again.stderr
    assert "--prefix" in again.stderr
    assert await counts(engine) == before
    await engine.dispose()


async def test_more_groups_than_days_are_copies(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the days that are simulated, groups have the day of another one, without traces."""
    monkeypatch.setattr("batonpass.days.generate.VARIANTS_MAX", 1)
    done: list[str] = []
    wish = Wish(DAY, events=900, groups=3, seed=4, sample_every=0)
    await asyncio.to_thread(generate, database_url, wish, hear=heard_in(done), workers=1)
    assert VARIANTS_MAX > 1
    assert done == ["simulated-0001", "simulated-0002", "simulated-0003"]
    engine = connect(database_url)
    async with engine.connect() as connection:
        records = (await connection.execute(text("select group_id, count(*) from record_log group by 1"))).all()
        traced = (await connection.execute(text("select distinct group_id from traces"))).scalars().all()
    await engine.dispose()
    assert len({count for _, count in records}) == 1
    assert traced == ["simulated-0001"]


async def test_a_scenario_can_be_written(database_url: str) -> None:
    """A scenario is a day that begins at midnight, under its own group's name, or under several."""
    done: list[str] = []
    wish = Wish(DAY, sample_every=0)
    await asyncio.to_thread(generate_scenario, database_url, SMALL, wish, hear=heard_in(done))
    assert done == ["small"]
    engine = connect(database_url)
    with pytest.raises(GroupsThere, match="small"):
        await refuse_existing(engine, ["other", "small"])
    await refuse_existing(engine, ["other"])
    await engine.dispose()


def test_planted_rows_leave_the_day_alone(rows: GroupRows) -> None:
    """Faults are put into a copy of the rows."""
    before = rows.version, len(rows.tables["record_log"])
    plant(rows, tuple(Fault))
    assert (rows.version, len(rows.tables["record_log"])) == before


def test_two_owners_are_planted(rows: GroupRows) -> None:
    """A task that runs is granted to a second member, with a new token, and nobody was told to stop."""
    found = plant(rows, [Fault.TWO_OWNERS])
    added = found.tables["assignment_events"][rows.events :]
    assert [(row[5], row[7]) for row in added] == [("granted", "active"), ("reported", "active")]
    task, member = added[0][3], added[0][4]
    holders = [row for row in rows.tables["assignment_events"] if row[3] == task and row[7] == "active"]
    assert holders[-1][4] != member
    assert added[0][11] > holders[-1][11] >= 0
    assert found.version == rows.version + 2 == found.tables["record_log"][-1][1]


def test_a_cold_promotion_is_planted(rows: GroupRows) -> None:
    """A running owner is told to stop for a member without a copy, which runs only after a while."""
    found = plant(rows, [Fault.COLD_PROMOTION])
    added = found.tables["assignment_events"][rows.events :]
    assert [row[5] for row in added] == ["revoked", "released", "granted", "reported"]
    assert added[2][13] is False
    assert (added[3][8] - added[2][8]).total_seconds() > 20
    kinds = [row[4] for row in found.tables["record_log"][rows.version :]]
    assert kinds == ["picture-changed", "task-released", "picture-changed", "active-reported"]


def test_a_hole_is_planted(rows: GroupRows) -> None:
    """One sequence number is missing, and the head does not know."""
    found = plant(rows, [Fault.SEQUENCE_HOLE])
    missing = set(range(1, rows.version + 1)) - set(column(found, "record_log", "seq"))
    assert len(missing) == 1
    assert found.version == rows.version


def test_what_is_odd_about_a_day_is_simulated() -> None:
    """A stuck warmup is a member that restores next to nothing; a flapping one crashes and returns again and again."""
    assert oddities_of([Fault.TWO_OWNERS]) == ORDINARY
    odd = draw_day(3, oddities=Oddities(stuck_warmup=True, flapping_member=True))
    assert {"stuck", "flapping"} <= {worker.name for worker in odd.workers}
    crashes = [step for step in odd.steps if step.worker == "flapping" and step.act is Act.CRASH]
    assert len(crashes) == 6


def test_a_stuck_warmup_is_given_up() -> None:
    """What restores next to nothing makes no progress, and the core says so after its stall timeout."""
    stuck = next(one for one in draw_day(3, oddities=Oddities(stuck_warmup=True)).workers if one.name == "stuck")
    day = replace(SMALL, workers=(*SMALL.workers, stuck), steps=(Step(MINUTE, Act.JOIN, "stuck"),), until_ms=8 * MINUTE)
    assert "warmup-stalled" in column(rows_of(day, DAY), "record_log", "kind")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--day", "yesterday"), "is no day; write for example 2026-11-20"),
        (("--events", "100000", "--groups", "2"), "for 100,000 ask for 5 groups or more"),
        (("--plant", "gremlins"), "there are two-owners, cold-promotion"),
        (("--scenario", "nowhere.yaml"), "nowhere.yaml is no scenario"),
    ],
)
def test_bad_arguments_are_told(database_url: str, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, before anything is written, with what to write instead."""
    refused = run("--into-database", database_url, *arguments)
    assert refused.exit_code == 2
    assert said in " ".join(refused.stderr.replace("│", " ").split())


def test_a_database_that_is_away_is_told() -> None:
    """Exit code 3, without the password."""
    refused = run("--into-database", "postgresql://u:secret@127.0.0.1:9/none", "--events", "10")
    assert refused.exit_code == 3
    assert "secret" not in refused.stderr
