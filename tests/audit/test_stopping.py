"""A run that is stopped says so, and one whose process died does not look as if it ran for ever."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.audit.sample import DAY, clean_result
from tests.audit.test_output import begin, during, states
from tests.postgres.test_upkeep import sql

from batonpass.audit.output import Run
from batonpass.audit.stopping import Stopped, beating, stoppable
from batonpass.postgres.audits import PostgresAudits
from batonpass.runtime.audits import AuditState

AT_WORK = """
import sys, time
from datetime import date
from batonpass.audit.output import recorded
from batonpass.audit.output import Run
from batonpass.audit.stopping import stoppable
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
    """SIGTERM, SIGHUP and Ctrl-C end the run as broken, with the reason; a kill cannot, and leaves it running."""
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
    """Ten minutes without a word are the end; a program that never says anything is believed for a day."""
    audits = PostgresAudits(engine)
    with begin(database_url) as run:
        heard = "null" if minutes is None else f"clock_timestamp() - interval '{minutes} minutes'"
        await sql(engine, f"update audit_runs set heard_at = {heard}")  # noqa: S608 - a test's own constants
        day = (await audits.standing()).newest
        assert day is not None
        assert day.state is state
        assert (day.finished_ms is None) is (state is AuditState.RUNNING)
        assert ("nothing was heard of it" in day.detail) is (state is AuditState.BROKEN)
        run.finish(clean_result(), report=None)


async def test_the_next_run_writes_down_which_ones_died(engine: AsyncEngine, database_url: str) -> None:
    """Whatever day it is of, it is marked as broken in the words that it was read with, and the new run knows of it."""
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
    """A beat moves the time at which it was heard of last."""

    def work(run: Run) -> None:
        run.beat()
        run.finish(clean_result(), report=None)

    await asyncio.to_thread(during, database_url, work)
    assert await sql(engine, "select heard_at > started_at from audit_runs") == [True]


def test_beats_come_until_the_end() -> None:
    """They come by themselves while something else is done, and none comes behind the end."""
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
    """Whoever runs an audit in a program of its own keeps its own ways; other threads hear no signals."""
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
