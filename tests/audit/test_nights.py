"""Every night the day before: what is due, what is made up, who does it, and what ends it."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.audit import planted
from tests.audit.sample import clean_result
from tests.postgres.databases import run_sql
from tests.postgres.test_upkeep import sql
from tests.programs import is_alive
from tests.waiting import wait_until
from typer.testing import CliRunner

from batonpass.audit.job import Audit
from batonpass.audit.nights import Nights, Schedule, keep_nights
from batonpass.audit.runs import DayTaken, recorded
from batonpass.cli.audit import app
from batonpass.cli.auditing import carried_out, options_of
from batonpass.cli.exits import Exit
from batonpass.days.writing import make_days

DAY = planted.DAY
NOWHERE = "postgresql://nobody:hush@127.0.0.1:9/nothing"
MORNING = timedelta(days=1, hours=6)
"""From the beginning of a day to six in the morning after it."""


def at(day: date, after: timedelta = MORNING) -> datetime:
    """Return an instant after the beginning of a day."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + after


def back(days: int) -> date:
    """Return the day so many days before DAY."""
    return DAY - timedelta(days=days)


async def happened(engine: AsyncEngine, *days: date) -> None:
    """Let there be one record on each of these days."""
    await make_days(engine, days)
    await sql(engine, f"insert into group_heads (group_id, version, coordinator_epoch) values ('g', {len(days)}, 1)")  # noqa: S608
    for seq, day in enumerate(sorted(days), start=1):
        noon = at(day, timedelta(hours=12)).isoformat()
        row = f"('g', {seq}, '{noon}', 1, 'storm-ended', 1, '{{}}')"
        columns = "group_id, seq, at, coordinator_epoch, kind, version, payload"
        await sql(engine, f"insert into record_log ({columns}) values {row}")  # noqa: S608 - a test's own constants


def audited(url: str, day: date, *, unless_done: bool = False, **settings: object) -> None:
    """Let a day come to a verdict; a run that begins now began when the day was over."""
    with recorded(url, day, code_version="v1", settings=settings, unless_done=unless_done) as run:
        run.finish(clean_result(), report=None)


def dues(nights: Nights, now: datetime, url: str) -> list[date]:
    """Return what is due, one after the other, each of them audited."""
    found: list[date] = []
    while (day := nights.due(now)) is not None:
        found.append(day)
        audited(url, day)
    return found


async def test_missed_days_are_made_up_the_newest_first(engine: AsyncEngine, database_url: str) -> None:
    await happened(engine, back(3), back(1))
    assert dues(Nights(database_url, Schedule(days=2)), at(DAY), database_url) == [DAY, back(1)]
    nights = Nights(database_url, Schedule(days=7))
    assert dues(nights, at(DAY), database_url) == [back(2), back(3)]
    assert nights.due(at(DAY)) is None


async def test_a_day_is_due_when_it_has_been_over_for_a_while(engine: AsyncEngine, database_url: str) -> None:
    """A verdict from while the day was under way does not count."""
    await happened(engine, DAY)
    nights = Nights(database_url, Schedule(after=timedelta(minutes=20)))
    assert nights.due(at(DAY, timedelta(days=1, minutes=19))) is None
    assert nights.due(at(DAY, timedelta(days=1, minutes=20))) == DAY
    audited(database_url, DAY)
    assert nights.due(at(DAY)) is None
    await sql(
        engine, "update audit_runs set started_at = (day + 1)::timestamp at time zone 'UTC' - interval '1 second'"
    )
    assert nights.due(at(DAY)) == DAY


async def test_days_are_those_of_utc_in_whatever_zone_the_database_is(engine: AsyncEngine, database_url: str) -> None:
    """In Cairo the 24th of April 2026 had no midnight: clocks went from there to one o'clock."""
    day = date(2026, 4, 26)
    await happened(engine, day - timedelta(days=1), day)
    url = f"{database_url}{'&' if '?' in database_url else '?'}options=-ctimezone%3DAfrica/Cairo"
    assert dues(Nights(url, Schedule()), at(day), url) == [day, day - timedelta(days=1)]


async def test_an_audit_by_hand_that_left_less_does_not_stand_for_the_nights(
    engine: AsyncEngine, database_url: str
) -> None:
    """One without --out has neither a report nor exported the rows, which retention would drop."""
    await happened(engine, DAY)
    night: dict[str, Any] = {"out": "/it's/audits", "objective": 0.999, "replay": True, "what_if": True, "export": True}
    nights, anything = Nights(database_url, Schedule(), night), Nights(database_url, Schedule())
    audited(database_url, DAY, **night | {"out": None})
    audited(database_url, DAY, **night | {"out": "/elsewhere"})
    for less in ({"replay": False}, {"export": False}, {"what_if": False}, {"objective": None}):
        audited(database_url, DAY, **night | less)
    assert (nights.due(at(DAY)), anything.due(at(DAY))) == (DAY, None)
    audited(database_url, DAY, unless_done=True, **night)
    assert nights.due(at(DAY)) is None
    with pytest.raises(DayTaken):
        audited(database_url, DAY, unless_done=True, **night)
    # One before this version did not say whether it exported, which it did unless told otherwise.
    await sql(engine, "update audit_runs set settings = settings - 'export' where state = 'passed'")
    assert nights.due(at(DAY)) is None


async def test_an_audit_while_rows_may_still_come_does_not_stand_for_the_nights(
    engine: AsyncEngine, database_url: str
) -> None:
    """Nor does it export them."""
    await happened(engine, DAY)
    audited(database_url, DAY)
    nights, ends = Nights(database_url, Schedule()), "(day + 1)::timestamp at time zone 'UTC'"
    for minutes, due in ((9, DAY), (10, None)):
        await sql(engine, f"update audit_runs set started_at = {ends} + interval '{minutes} minutes'")  # noqa: S608 - constants
        assert nights.due(at(DAY)) == due


async def test_of_several_runs_at_once_only_one_audits_a_day(engine: AsyncEngine, database_url: str) -> None:
    await happened(engine, DAY)
    ready, went, taken, over = threading.Barrier(12), list[int](), list[str](), threading.Event()

    def one(number: int) -> None:
        ready.wait()
        try:
            with recorded(database_url, DAY, code_version="v1", settings={}, unless_done=True) as run:
                went.append(number)
                over.wait(60)
                run.finish(clean_result(), report=None)
        except DayTaken as error:
            taken.append(str(error))
            if len(taken) == 11:
                over.set()

    with ThreadPoolExecutor(12) as pool:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(pool, one, number) for number in range(12)))
    assert (len(went), taken) == (1, [f"{DAY} is being audited by another run"] * 11)
    assert await sql(engine, "select state from audit_runs") == ["passed"]
    with pytest.raises(DayTaken, match="was audited by another run"):
        audited(database_url, DAY, unless_done=True)


async def test_an_audit_that_died_is_done_again_after_its_time(engine: AsyncEngine, database_url: str) -> None:
    """Its time is over ten minutes after its last word, by the clock of the database."""
    await happened(engine, DAY)
    nights = Nights(database_url, Schedule())
    with recorded(database_url, DAY, code_version="v1", settings={}) as run:
        assert nights.due(at(DAY)) is None
        await sql(engine, "update audit_runs set heard_at = clock_timestamp() - interval '11 minutes'")
        assert nights.due(at(DAY)) == DAY
        audited(database_url, DAY, unless_done=True)
        run.is_finished = True
    assert sorted(await sql(engine, "select state from audit_runs")) == ["broken", "passed"]


async def test_a_day_that_fails_is_tried_three_times_a_night(engine: AsyncEngine, database_url: str) -> None:
    await happened(engine, back(1), DAY)
    nights, now = Nights(database_url, Schedule(tries=3, pause=timedelta(minutes=15))), at(DAY)
    again = []
    for _ in range(3):
        assert nights.due(now) == DAY
        again.append(nights.tried(DAY, now))
        assert nights.due(now) == back(1)
        now += timedelta(minutes=15)
    assert again == [at(DAY) + timedelta(minutes=15), at(DAY) + timedelta(minutes=30), None]
    audited(database_url, back(1))
    assert nights.due(now) is None
    assert nights.due(at(DAY, timedelta(days=2, minutes=14))) is None
    tomorrow = at(DAY, timedelta(days=2, minutes=15))
    assert nights.due(tomorrow) == back(-1)
    audited(database_url, back(-1))
    assert nights.due(tomorrow) == DAY


class Over(Exception):
    """A test has seen enough."""


class Clock:
    """A clock that goes on by five minutes while somebody waits; ``ends`` is when the test is over."""

    def __init__(self, now: datetime, ends: datetime) -> None:
        self.now, self.ends = now, ends

    def wait(self, seconds: float) -> None:
        """Let time pass, enough of it that little has to be looked at."""
        assert 0 < seconds <= 60
        self.now += timedelta(minutes=5)
        if self.now >= self.ends:
            raise Over


def kept(
    nights: Nights, clock: Clock, codes: Iterator[int], url: str = NOWHERE
) -> tuple[list[tuple[date, str]], list[str]]:
    """Let nights be kept; return which days were audited, each with when, and the lines that were printed."""
    done: list[tuple[date, str]] = []
    lines: list[str] = []

    def audit(day: date) -> int:
        done.append((day, f"{clock.now:%d %H:%M}"))
        code = next(codes)
        if code in (0, 1):
            audited(url, day, unless_done=True)
        return code

    with pytest.raises(Over):
        keep_nights(nights, audit, now=lambda: clock.now, wait=clock.wait, tell=lines.append, url=url)
    return done, lines


async def test_it_waits_for_the_day_to_be_over_and_goes_on(engine: AsyncEngine, database_url: str) -> None:
    """A law that was broken is a verdict, and no failure."""
    await happened(engine, back(1), DAY)
    evening = at(DAY, timedelta(hours=23, minutes=50))
    nights, clock = Nights(database_url, Schedule()), Clock(evening, evening + timedelta(minutes=50))
    done, lines = await asyncio.to_thread(kept, nights, clock, iter((1, 3, 0)), database_url)
    assert done == [(back(1), "18 23:50"), (DAY, "19 00:15"), (DAY, "19 00:30")]
    assert lines == [
        f"auditing {back(1)}",
        f"nothing is left to audit up to {back(1)}; the day after it is audited from 2026-11-19 00:15 (UTC) on",
        f"auditing {DAY}",
        f"the audit of {DAY} reached no verdict (exit code 3); it is tried again from 00:30 on",
        f"nothing is left to audit up to {DAY}; the day after it is audited from 2026-11-20 00:15 (UTC) on",
        f"auditing {DAY}",
    ]


async def test_the_clock_of_the_database_says_when_a_day_is_over(engine: AsyncEngine, database_url: str) -> None:
    """With this machine's a day would be audited before its end, and then not before the next night."""
    await happened(engine, back(1), DAY)
    ahead = datetime.now(UTC) - at(DAY, timedelta(hours=23, minutes=50))
    shifted = f"select pg_catalog.clock_timestamp() - interval '{ahead.total_seconds():.0f} seconds'"
    await run_sql(
        database_url,
        "create schema shifted",
        f"create function shifted.clock_timestamp() returns timestamptz language sql as $$ {shifted} $$",
    )
    url = f"{database_url}?options=-csearch_path%3Dshifted,pg_catalog,public"
    done: list[date] = []

    def audit(day: date) -> int:
        done.append(day)
        audited(database_url, day, unless_done=True)
        return 0

    def enough(_seconds: float) -> None:
        raise Over

    with pytest.raises(Over):
        await asyncio.to_thread(keep_nights, Nights(url, Schedule()), audit, wait=enough, tell=print, url=url)
    await sql(engine, "drop schema shifted cascade")
    assert done == [back(1)]


async def test_a_database_that_is_away_is_waited_for(
    engine: AsyncEngine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await happened(engine, DAY)
    nights, clock = Nights(NOWHERE, Schedule()), Clock(at(DAY), at(DAY) + timedelta(minutes=25))
    wait = clock.wait

    def comes_back(seconds: float) -> None:
        wait(seconds)
        if clock.now >= at(DAY) + timedelta(minutes=15):
            monkeypatch.setattr(nights, "_url", database_url)

    monkeypatch.setattr(clock, "wait", comes_back)
    done, lines = await asyncio.to_thread(kept, nights, clock, iter((0,)), database_url)
    assert done == [(DAY, "19 06:15")]
    assert [one.partition(";")[0] for one in lines[:3]] == [
        "the database cannot be read",
        "the database can be read again",
        f"auditing {DAY}",
    ]
    assert "hush" not in "".join(lines)


def test_options_that_make_no_sense_together_are_refused_before_anything_begins() -> None:
    for odd in (["--day", "2026-11-18"], ["--group", "g"], ["--no-keep"]):
        done = CliRunner().invoke(app, ["--nightly", "--database-url", NOWHERE, *odd])
        output = " ".join(done.stderr.split())
        assert (done.exit_code, "Leave out --day, --group and --no-keep" in output) == (2, True), output
    done = CliRunner().invoke(app, ["--nightly", "--after", "9", "--database-url", NOWHERE])
    assert (done.exit_code, "greater than or equal to 10" in done.stderr) == (2, True), done.stderr


def test_each_audit_is_done_as_the_nights_were_asked_for() -> None:
    """The database goes through the environment, which no list of processes shows."""
    plain = Audit(NOWHERE, DAY)
    assert options_of(plain, as_json=False) == ["--what-if-seconds", "120"]
    odd = Audit(
        *(NOWHERE, DAY, None, "there"), what_if=False, replay=False, export=False,
        objective=0.999, spark={"spark.master": "local[1]"},
    )  # fmt: skip
    words = options_of(odd, as_json=True)
    assert words == [
        *("--out", "there", "--objective", "0.999"),
        *("--conf", "spark.master=local[1]", "--no-what-if", "--no-replay", "--no-export"),
        *("--what-if-seconds", "120", "--json"),
    ]


def process(*arguments: str, url: str) -> subprocess.Popen[str]:
    """Start `batonpass audit`."""
    command = [sys.executable, "-m", "batonpass", "audit", *arguments]
    env = os.environ | {"BATONPASS_DATABASE_URL": url}
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_at_once_while_it_waits(database_url: str, number: signal.Signals) -> None:
    with process("--nightly", url=database_url) as one:
        try:
            assert one.stderr is not None
            assert "nothing is left to audit" in await asyncio.to_thread(one.stderr.readline)
            one.send_signal(number)
            assert await asyncio.to_thread(one.wait, 30) == -number
            assert one.stderr.read() == ""
        finally:
            one.kill()


AT_WORK = """
import os, sys
from batonpass.cli.auditing import carried_out
work = "import os, subprocess, sys, time; child = subprocess.Popen(['sleep', '600']); print(os.getpid(), child.pid, flush=True); time.sleep(600)"
carried_out([sys.executable, "-c", work], os.environ)
"""


def test_a_signal_ends_the_audit_that_is_under_way_and_all_it_started() -> None:
    with subprocess.Popen([sys.executable, "-c", AT_WORK], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
        try:
            assert one.stdout is not None
            started = [int(pid) for pid in one.stdout.readline().split()]
            assert all(map(is_alive, started))
            one.send_signal(signal.SIGTERM)
            assert one.wait(30) == 128 + signal.SIGTERM
        finally:
            one.kill()
    wait_until(lambda: not any(map(is_alive, started)))


def test_an_audit_that_hangs_is_ended_and_holds_up_no_later_night(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its process lives, and says so in the database: nobody else would take the day, nor any other."""
    note = tmp_path / "pid"
    work = f"import os, pathlib, time; pathlib.Path({str(note)!r}).write_text(str(os.getpid())); time.sleep(600)"
    assert carried_out([sys.executable, "-c", work], os.environ, most_s=2) == Exit.UNREACHABLE
    assert "the audit has taken 2 s and is ended" in capsys.readouterr().err
    assert not is_alive(int(note.read_text()))


def test_the_exit_code_of_an_audit_is_returned() -> None:
    assert carried_out([sys.executable, "-c", "raise SystemExit(3)"], os.environ) == 3


async def test_a_day_that_is_taken_is_left_alone_before_anything_is_begun(
    engine: AsyncEngine, database_url: str
) -> None:
    await planted.write_day(database_url, [planted.lived("taken", planted.STEPS[:1])])
    audited(database_url, planted.DAY, replay=True, what_if=True)
    with process("--day", str(planted.DAY), "--unless-done", url=database_url) as one:
        _, output = await asyncio.to_thread(one.communicate)
    said = f"batonpass: {planted.DAY} was audited by another run; there is nothing to do.\n"
    assert (one.returncode, output.endswith(said), "Spark" in output) == (0, True, False)


@pytest.mark.needs("spark")
@pytest.mark.timeout(900)
async def test_a_day_that_was_missed_is_audited_by_spark(
    engine: AsyncEngine, database_url: str, tmp_path: Path
) -> None:
    """Names may be outside ASCII where the locale is not, and another Spark may be in the environment."""
    await planted.write_day(database_url, [planted.lived("straße", planted.STEPS[:2])])
    odd = {"LC_ALL": "C", "SPARK_HOME": str(tmp_path), "PYSPARK_PYTHON": str(tmp_path / "python3")}
    env = os.environ | odd | {"BATONPASS_DATABASE_URL": f"{database_url}?application_name=audit\n"}
    out = tmp_path / "büro, räume"
    quick = ["--no-what-if", "--no-replay", "--no-export", "--conf", "spark.master=local[1]"]
    done: list[date] = []

    def audit(day: date) -> int:
        done.append(day)
        command: Sequence[str] = [sys.executable, "-m", "batonpass", "audit", "--day", str(day), "--unless-done"]
        return carried_out([*command, *quick, "--out", str(out)], env)

    def keep() -> None:
        clock = Clock(at(back(-1)), at(back(-1)) + timedelta(minutes=10))
        with pytest.raises(Over):
            keep_nights(
                Nights(database_url, Schedule(days=2)),
                audit,
                now=lambda: clock.now,
                wait=clock.wait,
                tell=lambda _: None,
                url=database_url,
            )

    audited(database_url, back(-1))
    await asyncio.to_thread(keep)
    assert done == [DAY]
    assert await sql(engine, f"select state || ' ' || groups from audit_runs where day = '{DAY}'") == ["passed 1"]  # noqa: S608
    assert (out / f"report-{DAY}.html").exists()
    assert os.listdir(tmp_path) == [out.name]  # noqa: PTH208 - as nothing waits for it
    await asyncio.to_thread(keep)
    assert done == [DAY]
