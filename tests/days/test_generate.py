"""Days of simulated groups are put into a database, and never over what is there."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.days.small_day import DAY, SMALL
from typer.testing import CliRunner, Result

from batonpass.cli.simulate import app
from batonpass.days.generate import VARIANTS_MAX, Hear, Wish, Written, generate
from batonpass.days.rows import COLUMNS
from batonpass.days.writing import GroupsThere, refuse_existing
from batonpass.postgres.connect import connect


def run(*arguments: str) -> Result:
    """Call `batonpass simulate`."""
    return CliRunner().invoke(app, list(arguments))


def heard_in(done: list[str]) -> Hear:
    """Return what adds the names of groups that are written to a list."""
    return lambda one: done.append(one.group) if isinstance(one, Written) else None


async def counts(engine: AsyncEngine) -> Mapping[str, int]:
    """Return how many rows each table has."""
    async with engine.connect() as connection:
        return {name: (await connection.execute(text(f"select count(*) from {name}"))).scalar_one() for name in COLUMNS}  # noqa: S608


async def test_days_are_filled_and_never_written_over(own_url: str) -> None:
    wanted = ("--into-database", own_url, "--day", "2026-11-20", "--events", "800", "--groups", "2")
    done = await asyncio.to_thread(run, *wanted, "--json")
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["groups"] == 2
    assert 400 < summary["events"] < 2_000
    engine = connect(own_url)
    before = await counts(engine)
    assert before["record_log"] == summary["records"]
    assert before["assignment_events"] == summary["events"]
    again = await asyncio.to_thread(run, *wanted)
    assert again.exit_code == 1
    assert "already has groups with these names: simulated-0001, simulated-0002" in again.stderr
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
    done: list[str] = []
    wish = Wish(DAY, sample_every=0, scenario=SMALL)
    await asyncio.to_thread(generate, database_url, wish, hear=heard_in(done))
    assert done == ["small"]
    engine = connect(database_url)
    with pytest.raises(GroupsThere, match="small"):
        await refuse_existing(engine, ["other", "small"])
    await refuse_existing(engine, ["other"])
    await engine.dispose()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--day", "yesterday"), "is no day; write for example 2026-11-20"),
        (("--events", "100000", "--groups", "2"), "for 100,000 ask for 5 groups or more"),
        (("--plant", "gremlins"), "the faults are two-owners, cold-promotion"),
        (("--scenario", "nowhere.yaml"), "nowhere.yaml is not a scenario"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(
    database_url: str, arguments: tuple[str, ...], message: str
) -> None:
    refused = run("--into-database", database_url, *arguments)
    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.replace("│", " ").split())


def test_of_a_database_that_is_away_no_password_is_shown() -> None:
    refused = run("--into-database", "postgresql://u:secret@127.0.0.1:9/none", "--events", "10")
    assert refused.exit_code == 3
    assert "secret" not in refused.stderr


async def test_what_a_scenario_could_not_do_is_named_once(own_url: str, tmp_path: Path) -> None:
    file = tmp_path / "short.yaml"
    file.write_text(
        "scenario: 1\n"
        "config: {num_standby_replicas: 0}\n"
        "tasks: [{partitions: 2, records: 600000}]\n"
        "members: [{name: a, restore_per_second: 1000}, {name: b, restore_per_second: 1000}]\n"
        "timeline: [{at: 1m, drain: a}, {at: 61s, join: a}]\n"
        "until: 5m\n"
    )
    wanted = ("--scenario", str(file), "--into-database", own_url, "--day", "2026-11-20", "--groups", "2")
    done = await asyncio.to_thread(run, *wanted)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("could not happen: return a at 61s") == 1
