"""A run of an audit shows from its beginning, ends with everything or nothing, and says why it broke or was stopped."""

import asyncio
import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.audit.sample import DAY, FINDINGS, clean_result, sample_result
from tests.postgres.test_upkeep import sql

from batonpass.audit import runs
from batonpass.audit.database import libpq_url, reading, rows
from batonpass.audit.findings import AuditResult, Before, GroupDay
from batonpass.audit.runs import Run, Stopped, beating, reason_of, recorded, stoppable, to_json
from batonpass.postgres.audits import PostgresAudits
from batonpass.runtime.audits import AuditState


def begin(url: str | None, group: str | None = None) -> Any:
    """Return a run of the sample's day, which is to be entered."""
    return recorded(url, DAY, code_version="v1", settings={"objective": 0.999, "group": group}, group=group)


def during(url: str, work: Callable[[Run], None]) -> None:
    """Do something while a run is under way."""
    with begin(url) as run:
        work(run)


async def states(engine: AsyncEngine) -> list[str]:
    """Return the states of all runs."""
    return list(await sql(engine, "select state from audit_runs order by started_at"))


async def test_a_run_shows_while_it_is_under_way(engine: AsyncEngine, database_url: str) -> None:
    audits = PostgresAudits(engine)
    with begin(database_url) as run:
        day = await audits.day(DAY)
        assert day is not None
        assert (day.state, day.finished_ms, day.has_verdict) == (AuditState.RUNNING, None, False)
        assert await sql(engine, "select settings from audit_runs") == [{"objective": 0.999, "group": None}]
        await asyncio.to_thread(run.finish, sample_result(), report="x.html")
    assert await states(engine) == ["failed"]
    assert await sql(engine, "select count(*) from audit_findings") == [len(FINDINGS)]


async def test_a_run_that_raises_says_why_and_raises_on(engine: AsyncEngine, database_url: str) -> None:
    secret = libpq_url(database_url).partition("//")[2].partition("@")[0].partition(":")[2]

    def fail(_run: Run) -> None:
        raise ValueError(f"cannot reach postgresql://x:{secret}@there\nand more")

    with pytest.raises(ValueError, match="and more"):
        await asyncio.to_thread(during, database_url, fail)
    assert secret
    assert await sql(engine, "select detail from audit_runs") == ["ValueError: cannot reach postgresql://x:***@there"]
    assert await states(engine) == ["broken"]
    with pytest.raises(KeyboardInterrupt), begin(database_url):
        raise KeyboardInterrupt
    assert (await sql(engine, "select detail from audit_runs order by started_at"))[1] == "the audit was interrupted"


async def test_a_run_that_forgets_to_end_is_broken(engine: AsyncEngine, database_url: str) -> None:
    await asyncio.to_thread(during, database_url, lambda _run: None)
    assert await sql(engine, "select state || ': ' || detail from audit_runs") == [
        "broken: the audit ended without a result"
    ]


async def test_a_verdict_is_written_whole_or_not_at_all(
    engine: AsyncEngine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(during, database_url, lambda run: run.finish(clean_result(), report=None))
    monkeypatch.setattr(runs, "_END", "update nowhere set x = $1")
    with pytest.raises(adbc.Error, match="nowhere"):
        await asyncio.to_thread(during, database_url, lambda run: run.finish(sample_result(), report=None))
    assert await states(engine) == ["passed", "broken"]
    assert await sql(engine, "select count(*) from audit_findings") == [0]
    assert await sql(engine, "select group_name from audit_daily") == ["clicks"]


async def test_of_two_runs_at_once_the_one_that_began_later_counts(engine: AsyncEngine, database_url: str) -> None:
    audits = PostgresAudits(engine)
    with begin(database_url) as older:
        with begin(database_url) as newer:
            await asyncio.to_thread(newer.finish, sample_result(), report="newer")
        await asyncio.to_thread(older.finish, clean_result(), report="older")
    day = await audits.day(DAY)
    assert day is not None
    assert (day.state, day.report, day.fatal) == (AuditState.FAILED, "newer", 2)
    assert [one.group for one in await audits.measures(DAY)] == ["clicks", "orders", "quiet"]
    await asyncio.to_thread(during, database_url, lambda run: run.finish(clean_result(), report="newest"))
    assert await sql(engine, "select count(*) from audit_findings") == [0]
    assert [one.group for one in await audits.measures(DAY)] == ["clicks"]
    assert len(await states(engine)) == 3


async def test_a_look_at_one_group_is_not_the_audit_of_the_day(engine: AsyncEngine, database_url: str) -> None:
    for url, group in ((database_url, "orders"), (None, None)):
        with begin(url, group) as run:
            run.finish(sample_result(), report=None)
    with pytest.raises(ValueError, match="x"), begin(None):
        raise ValueError("x")
    assert await states(engine) == []


async def test_anything_that_users_wrote_can_be_kept(engine: AsyncEngine, database_url: str) -> None:
    nasty = 'it\'s \0 \ud83c "x" \\u0000 🏃'
    kept = 'it\'s \N{SYMBOL FOR NULL} ? "x" \\u0000 🏃'
    group = GroupDay(nasty, {"moves": math.nan, "records": 3, "x": math.inf}, {"failover": {"count": 1, nasty: 2.0}})
    finding = replace(FINDINGS[0], group=nasty, task=nasty, member=None, detail=nasty)
    result: AuditResult = replace(clean_result(), groups=(group,), findings=(finding,), code_version="v1")
    await asyncio.to_thread(during, database_url, lambda run: run.finish(result, report=nasty.replace("\0", "")[:4]))
    audits = PostgresAudits(engine)
    (found,) = await audits.findings(DAY, after=0, limit=9)
    assert (found.group, found.task, found.member, found.detail) == (kept, kept, None, kept)
    (measured,) = await audits.measures(DAY)
    assert measured.measures == {"moves": None, "records": 3, "x": None}
    assert measured.downtime_by_cause == {"failover": {"count": 1, kept: 2.0}}


def test_values_become_json_that_every_reader_takes() -> None:
    value = {"b": [3, 1], "c": (True, None), "d": DAY, 5: -math.inf}
    assert json.loads(to_json(value)) == {"b": [3, 1], "c": [True, None], "d": "2026-11-20", "5": None}


@pytest.mark.parametrize("url", ["postgres://u@h/d", "postgresql://u@h/d", "postgresql+asyncpg://u@h/d"])
def test_any_spelling_of_a_url_will_do(url: str) -> None:
    assert libpq_url(url).startswith("postgresql://u@h/d?")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *(("PGOPTIONS", "-c search_path=elsewhere"), ("PGCONNECT_TIMEOUT", "soon"), ("PGSSLCERTMODE", "require")),
        *(("PGGSSENCMODE", "require"), ("PGCHANNELBINDING", "require"), ("PGCLIENTENCODING", "LATIN1")),
        *(("PGHOSTADDR", "192.0.2.1"), ("PGSERVICE", "none"), ("PGTZ", "none"), ("PGDATESTYLE", "none")),
        *(("PGREQUIRESSL", "1"), ("PGREQUIREAUTH", "none"), ("PGREQUIREPEER", "none"), ("PGSSLMODE", "")),
    ],
)
def test_variables_that_the_service_does_not_know_count_for_the_audit_neither(
    database_url: str, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setenv(name, said)
    shown = rows(database_url, "select current_setting('search_path'), current_setting('client_encoding')")
    assert shown == [('"$user", public', "UTF8")]
    assert os.environ[name] == said


def test_a_database_that_is_gone_without_a_word_is_not_waited_for_all_night(database_url: str) -> None:
    """Whatever the system's own settings are."""
    idle_s = set[int]()
    with reading(database_url) as read:
        assert list(read("select 1")) == [(1,)]
        for one in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                found = socket.socket(fileno=int(one.name))
                try:
                    idle_s.add(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))
                finally:
                    found.detach()
    assert 60 in idle_s


def test_a_reason_is_short_and_never_empty() -> None:
    assert reason_of(MemoryError(), None) == "MemoryError"
    assert reason_of(ConnectionRefusedError(111, "Connection refused"), None).startswith("Spark ended during the audit")
    assert reason_of(OSError("a p%40ss b p@ss"), "postgresql://u:p%40ss@h/d") == "OSError: a *** b ***"


WORKER = """An error occurred while calling o93.collectAsArrowToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
adbc_driver_manager.OperationalError: IO: [libpq] Failed to connect: refused
	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:1)
"""
JVM = """An error occurred while calling o539.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 1.0 in stage 16.0
	at org.apache.spark.errors.SparkCoreErrors$.jobAborted(SparkCoreErrors.scala:1)
Caused by: java.io.IOException: No space left on device
	at java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (WORKER, "adbc_driver_manager.OperationalError: IO: [libpq] Failed to connect: refused"),
        (JVM, "java.io.IOException: No space left on device"),
        ("one line", "RuntimeError: one line"),
    ],
)
def test_the_innermost_cause_is_the_reason(text: str, reason: str) -> None:
    """Spark wraps what broke in a worker, or in itself, in what it was at."""
    assert reason_of(RuntimeError(text), None) == reason


def test_a_database_that_is_away_is_said_at_once() -> None:
    """The audit must not work for an hour to find then that it cannot write what it found."""
    entered = []
    with pytest.raises(adbc.Error, match="refused"), begin("postgresql://u:p@127.0.0.1:1/d"):
        entered.append(True)
    assert entered == []


AT_WORK = """
import sys, time
from datetime import date
from batonpass.audit.runs import recorded, stoppable
with recorded(sys.argv[1], date.fromisoformat(sys.argv[2]), code_version="v1", settings={}), stoppable():
    print("at work", flush=True)
    time.sleep(60)
"""


def stopped(url: str, *signals: signal.Signals) -> dict[signal.Signals, int]:
    """Let a process for each signal be at work, send it, and return how each of them ended."""
    command = [sys.executable, "-c", AT_WORK, url, str(DAY)]
    processes = {
        number: subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for number in signals
    }
    try:
        for number, one in processes.items():
            assert one.stdout is not None
            assert one.stdout.readline() == "at work\n"
            one.send_signal(number)
        return {number: one.wait(timeout=30) for number, one in processes.items()}
    finally:
        for one in processes.values():
            one.kill()
            one.communicate()


async def test_a_run_that_is_stopped_says_why(engine: AsyncEngine, database_url: str) -> None:
    """A kill leaves no time to say anything: the run stands there as running."""
    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL)
    codes = await asyncio.to_thread(stopped, database_url, *signals)
    assert codes[signal.SIGTERM] == 128 + signal.SIGTERM
    assert codes[signal.SIGHUP] == 128 + signal.SIGHUP
    assert codes[signal.SIGINT] == 128 + signal.SIGINT
    assert sorted(await sql(engine, "select state || ': ' || detail from audit_runs")) == [
        "broken: the audit was interrupted",
        "broken: the audit was told to stop (SIGHUP)",
        "broken: the audit was told to stop (SIGTERM)",
        "running: it is under way",
    ]


@pytest.mark.parametrize(
    ("minutes", "state"), [(9, AuditState.RUNNING), (11, AuditState.BROKEN), (None, AuditState.RUNNING)]
)
async def test_a_run_that_is_silent_is_read_as_broken(
    engine: AsyncEngine, database_url: str, minutes: int | None, state: AuditState
) -> None:
    """Ten minutes without a beat are the end; a program that never beats is believed for a day."""
    audits = PostgresAudits(engine)
    with begin(database_url) as run:
        heard_at = "null" if minutes is None else f"clock_timestamp() - interval '{minutes} minutes'"
        await sql(engine, f"update audit_runs set heard_at = {heard_at}")  # noqa: S608 - a test's own constants
        day = (await audits.standing()).newest
        assert day is not None
        assert day.state is state
        assert (day.finished_ms is None) is (state is AuditState.RUNNING)
        assert ("nothing was heard of it" in day.detail) is (state is AuditState.BROKEN)
        run.finish(clean_result(), report=None)


async def test_the_next_run_writes_down_which_ones_died(engine: AsyncEngine, database_url: str) -> None:
    audits = PostgresAudits(engine)
    # Never left: a context that is dropped would end its run.
    died = begin(database_url)
    silent = died.__enter__()
    assert silent.lost_days == ()
    await sql(engine, "update audit_runs set heard_at = clock_timestamp() - interval '11 minutes'")
    read = await audits.day(DAY)
    with begin(database_url) as run:
        assert run.lost_days == (str(DAY),)
        run.finish(clean_result(), report=None)
    assert await states(engine) == ["broken", "passed"]
    await sql(engine, "delete from audit_runs where state = 'passed'")
    assert await audits.day(DAY) == read
    # It was not dead after all: what it finds counts.
    await asyncio.to_thread(silent.finish, clean_result(), report=None)
    assert await states(engine) == ["passed"]


async def test_a_run_says_that_it_is_at_work(engine: AsyncEngine, database_url: str) -> None:
    def work(run: Run) -> None:
        run.beat()
        run.finish(clean_result(), report=None)

    await asyncio.to_thread(during, database_url, work)
    assert await sql(engine, "select heard_at > started_at from audit_runs") == [True]


def test_beats_come_until_the_end() -> None:
    beats: list[float] = []
    third = threading.Event()

    def beat() -> None:
        beats.append(time.monotonic())
        if len(beats) == 3:
            third.set()

    with beating(beat, every_s=0.01):
        assert third.wait(10)
    count = len(beats)
    time.sleep(0.05)
    assert len(beats) == count
    with beating(beat):
        pass


def fail_under(number: signal.Signals) -> None:
    """Fail on the way out of a signal, as Spark does."""
    try:
        signal.raise_signal(number)
    finally:
        raise OSError("nobody answers any more")


def test_signals_are_as_they_were_afterwards() -> None:
    """A program that runs an audit keeps its own handlers; other threads hear no signals."""
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(Stopped) as raised, stoppable():
        signal.raise_signal(signal.SIGTERM)
    assert (raised.value.code, raised.value.reason) == (143, "the audit was told to stop (SIGTERM)")
    with pytest.raises(Stopped) as raised, stoppable():
        signal.raise_signal(signal.SIGINT)
    assert (raised.value.code, raised.value.reason) == (130, "the audit was interrupted")
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == before
    # Whatever fails on the way out, it is the signal that ended it.
    for number in (signal.SIGTERM, signal.SIGINT):
        with pytest.raises(Stopped), stoppable():
            fail_under(number)
    with pytest.raises(OSError, match="of its own"), stoppable():
        raise OSError("of its own")
    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            with stoppable():
                pass
        except BaseException as error:  # noqa: BLE001 - whatever it is
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert errors == []


async def test_a_verdict_may_be_written_again_with_advice_and_the_next_day_knows_it(
    engine: AsyncEngine, database_url: str
) -> None:
    eve = replace(sample_result(), recommendations=())

    def twice(run: Run) -> None:
        run.finish(eve, report=None)
        run.finish(sample_result(), report="with advice")

    assert await asyncio.to_thread(runs.before, database_url, DAY + timedelta(days=1)) == Before()
    await asyncio.to_thread(during, database_url, twice)
    assert await states(engine) == ["failed"]
    assert await sql(engine, "select report from audit_runs") == ["with advice"]
    assert await sql(engine, "select count(*) from audit_findings") == [len(FINDINGS)]
    assert await sql(engine, "select count(*) from audit_daily where measures ->> 'recommendation' is not null") == [1]
    found = await asyncio.to_thread(runs.before, database_url, DAY + timedelta(days=1))
    assert found == Before(frozenset((one.group, one.law) for one in FINDINGS), {DAY: 0.999_38})
    later = await asyncio.to_thread(runs.before, database_url, DAY + timedelta(days=30))
    assert later == Before(None, {DAY: 0.999_38})
    assert await asyncio.to_thread(runs.before, database_url, DAY + timedelta(days=31)) == Before()


async def test_the_trend_leaves_out_groups_that_were_not_read_whole(engine: AsyncEngine, database_url: str) -> None:
    """Their availability says too little; the page of their own day has them in no sum either."""
    days = (
        GroupDay("read", {"availability": 0.99}),
        GroupDay("unread", {"availability": 0.5, "records": 7}).unknown(),
    )

    async def least(*groups: GroupDay) -> dict[date, float]:
        result = replace(clean_result(), groups=groups)
        await asyncio.to_thread(during, database_url, lambda run: run.finish(result, report=None))
        found = await asyncio.to_thread(runs.before, database_url, DAY + timedelta(days=1))
        return dict(found.availability)

    assert await least(*days) == {DAY: 0.99}
    assert await least(days[1]) == {}
