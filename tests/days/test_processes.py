"""Days that several processes write: the same rows, progress that shows, and an end at once on Ctrl-C."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from typer.testing import CliRunner

from batonpass.cli.database import upgrade_schema
from batonpass.cli.simulate import app
from batonpass.days.generate import Drawing, Wish, Written, generate
from batonpass.days.rows import COLUMNS
from batonpass.postgres.connect import connect


async def written(url: str, wish: Wish, *, workers: int) -> list[str]:
    """Write days, and return the names of the groups in the order in which they were reported."""
    names: list[str] = []

    def hear(one: Written | Drawing) -> None:
        if isinstance(one, Written):
            names.append(one.group)

    await asyncio.to_thread(generate, url, wish, hear=hear, workers=workers)
    return names


async def content(url: str) -> dict[str, list[str]]:
    """Return every row of every table as text, but for positions that groups share; events in the order of a group."""
    shared = {"events": "- 'position'", "commands": "- 'position'"}
    engine = connect(url)
    found = {}
    async with engine.connect() as connection:
        for name in COLUMNS:
            question = text(f"select (to_jsonb(t) {shared.get(name, '')})::text from {name} t order by 1")  # noqa: S608
            found[name] = list((await connection.execute(question)).scalars())
    await engine.dispose()
    return found


async def test_a_day_is_the_same_in_however_many_processes(database_url: str, own_url: str) -> None:
    await asyncio.to_thread(upgrade_schema, own_url)
    wish = Wish(date(2026, 11, 20), events=600, groups=3, seed=11, sample_every=30)
    alone = await written(database_url, wish, workers=1)
    together = await written(own_url, wish, workers=2)
    assert alone == sorted(together) == ["simulated-0001", "simulated-0002", "simulated-0003"]
    assert await content(database_url) == await content(own_url)


async def test_off_a_terminal_lines_say_how_far_it_is(own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.cli.days.LINE_EVERY_S", 0.0)
    monkeypatch.setattr("batonpass.days.generate.TOLD_EVERY_S", 0.0)
    wanted = ("--into-database", own_url, "--events", "300", "--groups", "1", "--sample-every", "0", "--json")
    done = await asyncio.to_thread(CliRunner().invoke, app, wanted)
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    lines = done.stderr.splitlines()
    shown = re.compile(r" *\d+ s  (\d+) of about 300 events, ([01]) of 1 groups written")
    progress = [found.groups() for line in lines if (found := shown.fullmatch(line))]
    assert len(progress) == len(lines) > 10
    events = [int(count) for count, groups in progress if groups == "0"]
    assert events == sorted(events)
    assert events[0] < 150 < events[-1] <= 300
    assert progress[-1] == (str(json.loads(done.stdout)["events"]), "1")


async def records_in(engine: AsyncEngine) -> int:
    """Return how many records there are."""
    async with engine.connect() as connection:
        count: int = (await connection.execute(text("select count(*) from record_log"))).scalar_one()
        return count


def started(*arguments: str) -> subprocess.Popen[str]:
    """Start `batonpass simulate` in a session of its own."""
    command = [sys.executable, "-m", "batonpass", "simulate", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


async def end_of(session: int) -> float:
    """Wait until nobody of a session is at work any more, and return how long that took."""
    begun = time.monotonic()
    while time.monotonic() - begun < 20:
        listed = subprocess.run(["ps", "-s", str(session), "-o", "stat="], capture_output=True, text=True, check=False)  # noqa: ASYNC221
        if all(state.startswith("Z") for state in listed.stdout.split()):
            break
        await asyncio.sleep(0.05)
    return time.monotonic() - begun


@pytest.mark.parametrize("kill", [os.killpg, os.kill])
async def test_ctrl_c_ends_at_once_and_leaves_whole_groups(own_url: str, kill: Callable[[int, int], None]) -> None:
    """A terminal sends the signal to every process of the command; a supervisor to the first one alone."""
    await asyncio.to_thread(upgrade_schema, own_url)
    engine = connect(own_url)
    command = started("--into-database", own_url, "--events", "10000", "--groups", "10", "--sample-every", "0")
    try:
        while not await records_in(engine):
            await asyncio.sleep(0.05)
            assert command.poll() is None
        kill(command.pid, signal.SIGINT)
        assert await end_of(command.pid) < 10
        out, err = command.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)
    assert (command.returncode, out) == (130, "")
    *shown, last = err.splitlines()
    assert re.fullmatch(
        r"batonpass: interrupted: \d of 10 groups were written completely, and nothing of the others\.", last
    )
    assert all(" of about 10,000 events, " in line for line in shown)
    async with engine.connect() as connection:
        question = "select h.group_id, h.version, count(*) from group_heads h left join record_log r using (group_id)"
        heads = (await connection.execute(text(question + " group by 1, 2"))).all()
    assert 1 <= len(heads) < 10
    assert all(version == records for _, version, records in heads)
    assert await records_in(engine) == sum(records for *_, records in heads)
    await engine.dispose()
