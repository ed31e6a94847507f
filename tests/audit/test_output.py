"""A run of an audit shows from its beginning, ends with everything or nothing, and says why it broke."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.audit.sample import DAY, FINDINGS, clean_result, sample_result
from tests.postgres.test_upkeep import sql

from batonpass.audit import output
from batonpass.audit.findings import AuditResult, GroupDay
from batonpass.audit.output import libpq_url, reason_of, recorded, to_json
from batonpass.postgres.audits import PostgresAudits
from batonpass.runtime.audits import AuditState


def begin(url: str | None, group: str | None = None) -> Any:
    """Return a run of the sample's day, which is to be entered."""
    return recorded(url, DAY, code_version="v1", settings={"objective": 0.999, "group": group}, group=group)


def during(url: str, work: Callable[[output.Run], None]) -> None:
    """Do something while a run is under way."""
    with begin(url) as run:
        work(run)


async def states(engine: AsyncEngine) -> list[str]:
    """Return the states of all runs."""
    return list(await sql(engine, "select state from audit_runs order by started_at"))


async def test_a_run_shows_while_it_is_under_way(engine: AsyncEngine, database_url: str) -> None:
    """Whoever looks in the middle sees that it runs, since when and how it was started; and nothing that it found."""
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
    """The reason is one line, without the password of the database; the caller hears of the error as it was."""
    secret = libpq_url(database_url).partition("//")[2].partition("@")[0].partition(":")[2]

    def fail(_run: output.Run) -> None:
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
    """Without a verdict there is none, and somebody should know."""
    await asyncio.to_thread(during, database_url, lambda _run: None)
    assert await sql(engine, "select state || ': ' || detail from audit_runs") == [
        "broken: the audit ended without a result"
    ]


async def test_a_verdict_is_written_whole_or_not_at_all(
    engine: AsyncEngine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure at its very last statement leaves no finding and no measure, and what an earlier run wrote stays."""
    await asyncio.to_thread(during, database_url, lambda run: run.finish(clean_result(), report=None))
    monkeypatch.setattr(output, "_END", "update nowhere set x = $1")
    with pytest.raises(adbc.Error, match="nowhere"):
        await asyncio.to_thread(during, database_url, lambda run: run.finish(sample_result(), report=None))
    assert await states(engine) == ["passed", "broken"]
    assert await sql(engine, "select count(*) from audit_findings") == [0]
    assert await sql(engine, "select group_name from audit_daily") == ["clicks"]


async def test_of_two_runs_at_once_the_one_that_began_later_counts(engine: AsyncEngine, database_url: str) -> None:
    """An older run that ends last puts nothing in the place of what the newer one found; old findings are forgotten."""
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
    """It writes nothing, so that the day keeps the verdict on all groups; so does an audit without a database."""
    for url, group in ((database_url, "orders"), (None, None)):
        with begin(url, group) as run:
            run.finish(sample_result(), report=None)
    with pytest.raises(ValueError, match="x"), begin(None):
        raise ValueError("x")
    assert await states(engine) == []


async def test_anything_that_users_wrote_can_be_kept(engine: AsyncEngine, database_url: str) -> None:
    """Zero bytes, halves of characters, quotes, numbers that are none: nothing of it breaks the audit."""
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
    """Numbers of other libraries are numbers, sets are lists, and what is neither is a text."""

    class OfALibrary:
        def item(self) -> float:
            return 2.5

    said = {"a": OfALibrary(), "b": {3, 1}, "c": (True, None), "d": DAY, 5: -math.inf}
    assert json.loads(to_json(said)) == {"a": 2.5, "b": [1, 3], "c": [True, None], "d": "2026-11-20", "5": None}


@pytest.mark.parametrize("said", ["postgres://u@h/d", "postgresql://u@h/d", "postgresql+asyncpg://u@h/d"])
def test_any_spelling_of_a_url_will_do(said: str) -> None:
    """The driver that a URL names is of no matter here."""
    assert libpq_url(said) == "postgresql://u@h/d"


def test_a_reason_is_short_and_never_empty() -> None:
    """An error without words has its name; a quoted password is masked however it is written."""
    assert reason_of(MemoryError(), None) == "MemoryError"
    assert reason_of(ConnectionRefusedError(111, "Connection refused"), None).startswith("Spark went away")
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
    ("said", "reason"),
    [
        (WORKER, "adbc_driver_manager.OperationalError: IO: [libpq] Failed to connect: refused"),
        (JVM, "java.io.IOException: No space left on device"),
        ("one line", "RuntimeError: one line"),
    ],
)
def test_the_innermost_cause_is_the_reason(said: str, reason: str) -> None:
    """Spark wraps what broke in a worker, or in itself, in what it was at."""
    assert reason_of(RuntimeError(said), None) == reason


def test_a_database_that_is_away_is_said_at_once() -> None:
    """The audit does not begin to work for an hour to find then that it cannot say what it found."""
    entered = []
    with pytest.raises(adbc.Error, match="refused"), begin("postgresql://u:p@127.0.0.1:1/d"):
        entered.append(True)
    assert entered == []
