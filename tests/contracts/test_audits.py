"""What every store of audits owes those who look back: the newest run's word, and the newest verdict."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Protocol

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.audit.sample import DAY, clean_result, sample_result
from tests.contracts.memory_audits import AuditRun, MemoryAudits

from batonpass.audit.findings import AuditResult, ordered, summary
from batonpass.audit.runs import daily_of, recorded
from batonpass.codec.answers import rfc3339
from batonpass.postgres.audits import PostgresAudits, _measures
from batonpass.runtime.audits import AuditDay, AuditFinding, AuditMeasures, Audits, AuditStanding, AuditState

KINDS = ("memory_kept", "postgres_kept")
NEXT_DAY = DAY + timedelta(days=1)


class Kept(Protocol):
    """Audits that are read, and a way to have some written."""

    @property
    def audits(self) -> Audits:
        """What is asked."""
        ...

    @property
    def today(self) -> date:
        """The day (UTC) on which audits are written."""
        ...

    async def end(self, result: AuditResult, report: str | None = None) -> None:
        """Let an audit come to a verdict."""
        ...

    async def stop(self, day: date, reason: str | None) -> None:
        """Let an audit begin, and break for a reason; without one it goes on."""
        ...


def findings_of(result: AuditResult) -> tuple[AuditFinding, ...]:
    """Return the findings of a result as they are looked back at."""
    return tuple(
        AuditFinding(
            number, one.group, one.law, one.severity.value, one.task, one.member, one.detail, one.sequences,
            tuple(rfc3339(at) for at in one.at),
        )
        for number, one in enumerate(ordered(result.findings), start=1)
    )  # fmt: skip


def measures_of(result: AuditResult) -> tuple[AuditMeasures, ...]:
    """Return the measures of a result as they are looked back at."""
    return tuple(_measures(group, payload) for group, payload in daily_of(result).items())


class MemoryKept:
    """Audits in memory."""

    def __init__(self) -> None:
        self.audits = MemoryAudits()
        self.today = NEXT_DAY + timedelta(days=90)
        self.at_ms = int(datetime.combine(self.today, time(12), UTC).timestamp() * 1_000)

    def _add(self, day: AuditDay, findings: Sequence[AuditFinding], measures: Sequence[AuditMeasures]) -> None:
        self.at_ms += 1_000
        self.audits.add(AuditRun(day, tuple(findings), tuple(measures)))

    async def end(self, result: AuditResult, report: str | None = None) -> None:
        """Let an audit come to a verdict."""
        day = AuditDay(
            result.day,
            AuditState.FAILED if result.fatal else AuditState.PASSED,
            self.at_ms,
            self.at_ms + 10,
            summary(result),
            result.code_version,
            True,
            len(result.groups),
            result.records,
            result.fatal,
            result.notices,
            report,
        )
        self._add(day, findings_of(result), measures_of(result))

    async def stop(self, day: date, reason: str | None) -> None:
        """Let an audit begin, and break for a reason; without one it goes on."""
        state = AuditState.BROKEN if reason else AuditState.RUNNING
        ended = self.at_ms + 10 if reason else None
        self._add(AuditDay(day, state, self.at_ms, ended, reason or "it is under way", "v1"), (), ())


class PostgresKept:
    """Audits in a database, as the audit itself writes them."""

    def __init__(self, engine: AsyncEngine, url: str) -> None:
        self.audits = PostgresAudits(engine)
        self.today = datetime.now(UTC).date()
        self.url = url

    async def end(self, result: AuditResult, report: str | None = None) -> None:
        """Let an audit come to a verdict."""
        with recorded(self.url, result.day, code_version=result.code_version, settings={}) as run:
            run.finish(result, report=report)

    async def stop(self, day: date, reason: str | None) -> None:
        """Let an audit begin, and break for a reason; without one it goes on."""
        with recorded(self.url, day, code_version="v1", settings={"objective": 0.999}) as run:
            if reason:
                run.broke(reason)
            # What breaks off so hard that it cannot say anything stays as it is.
            run.is_finished = True


@pytest.fixture
def memory_kept() -> Kept:
    """Return no audits, in memory."""
    return MemoryKept()


@pytest.fixture
def postgres_kept(engine: AsyncEngine, database_url: str) -> Kept:
    """Return no audits, on Postgres."""
    return PostgresKept(engine, database_url)


@pytest.fixture(params=KINDS)
def kept(request: pytest.FixtureRequest) -> Kept:
    """Return no audits of each kind."""
    made: Kept = request.getfixturevalue(request.param)
    return made


async def test_before_the_first_audit_there_is_nothing(kept: Kept) -> None:
    assert list(await kept.audits.days(before=None, limit=9)) == []
    assert await kept.audits.day(DAY) is None
    assert await kept.audits.day(date.max) is None
    assert list(await kept.audits.findings(DAY, after=0, limit=9)) == []
    assert list(await kept.audits.measures(DAY)) == []
    standing = await kept.audits.standing()
    assert (standing.newest, standing.verdict, standing.last_success_ms, standing.last_finished_ms) == (None,) * 4


async def test_a_verdict_is_read_as_it_was_written(kept: Kept) -> None:
    result = sample_result()
    await kept.end(result, "out/reports/2026-11-20.html")
    day = await kept.audits.day(DAY)
    assert day is not None
    assert (day.state, day.has_verdict, day.groups, day.records, day.fatal, day.notices) == (
        AuditState.FAILED, True, 3, 21_880, 2, 3,
    )  # fmt: skip
    assert (day.report, day.code_version) == ("out/reports/2026-11-20.html", result.code_version)
    assert day.detail == summary(result)
    assert day.finished_ms is not None
    assert day.finished_ms >= day.started_ms
    found = await kept.audits.findings(DAY, after=0, limit=99)
    assert tuple(found) == findings_of(result)
    assert [one.severity for one in found] == ["fatal"] * 2 + ["notice"] * 3
    assert list(await kept.audits.findings(DAY, after=1, limit=2)) == list(found[1:3])
    assert list(await kept.audits.findings(DAY, after=5, limit=2)) == []
    assert list(await kept.audits.findings(DAY, after=2**53, limit=2)) == []
    measures = await kept.audits.measures(DAY)
    assert tuple(measures) == measures_of(result)
    assert [one.group for one in measures] == ["clicks", "orders", "quiet"]
    assert measures[1].recommendation is not None
    assert measures[0].recommendation is None
    assert list(await kept.audits.findings(NEXT_DAY, after=0, limit=9)) == []


async def test_days_come_newest_first(kept: Kept) -> None:
    days = [DAY - timedelta(days=number) for number in (3, 0, 1, 40)]
    for day in days:
        await kept.end(clean_result(day))
    found = await kept.audits.days(before=None, limit=9)
    assert [one.day for one in found] == sorted(days, reverse=True)
    assert {one.state for one in found} == {AuditState.PASSED}
    page = await kept.audits.days(before=DAY, limit=2)
    assert [one.day for one in page] == [DAY - timedelta(days=1), DAY - timedelta(days=3)]
    assert [one.day for one in await kept.audits.days(before=DAY - timedelta(days=40), limit=2)] == []
    one = await kept.audits.day(DAY - timedelta(days=40))
    assert one is not None
    assert await kept.audits.day(DAY - timedelta(days=39)) is None


async def test_the_newest_run_of_a_day_counts(kept: Kept) -> None:
    await kept.end(sample_result())
    await kept.end(sample_result(NEXT_DAY))
    await kept.end(clean_result())
    day = await kept.audits.day(DAY)
    assert day is not None
    assert (day.state, day.fatal, day.notices, day.groups) == (AuditState.PASSED, 0, 0, 1)
    assert list(await kept.audits.findings(DAY, after=0, limit=9)) == []
    assert [one.group for one in await kept.audits.measures(DAY)] == ["clicks"]
    assert len(await kept.audits.findings(NEXT_DAY, after=0, limit=9)) == 5


async def test_a_run_without_a_verdict_hides_nothing(kept: Kept) -> None:
    await kept.end(sample_result())
    await kept.stop(DAY, None)
    day = await kept.audits.day(DAY)
    assert day is not None
    assert (day.state, day.finished_ms, day.has_verdict, day.fatal) == (AuditState.RUNNING, None, True, 2)
    await kept.stop(DAY, "the disk is full")
    day = await kept.audits.day(DAY)
    assert day is not None
    assert (day.state, day.detail, day.fatal) == (AuditState.BROKEN, "the disk is full", 2)
    assert len(await kept.audits.findings(DAY, after=0, limit=9)) == 5
    await kept.stop(NEXT_DAY, "no such day")
    day = await kept.audits.day(NEXT_DAY)
    assert day is not None
    assert (day.state, day.has_verdict, day.groups, day.report) == (AuditState.BROKEN, False, 0, None)


async def test_a_standing_is_the_newest_day_the_newest_verdict_and_when_a_run_last_ended(kept: Kept) -> None:
    await kept.end(clean_result())
    first = await kept.audits.standing()
    assert first.newest is not None
    assert first.verdict == first.newest
    assert first.newest.day == DAY
    assert first.last_success_ms == first.last_finished_ms == first.newest.finished_ms
    await kept.end(sample_result(NEXT_DAY))
    await kept.stop(NEXT_DAY + timedelta(days=1), "no memory")
    await kept.end(replace(clean_result(DAY - timedelta(days=9)), records=1))
    standing = await kept.audits.standing()
    assert standing.newest is not None
    assert (standing.newest.day, standing.newest.state) == (NEXT_DAY + timedelta(days=1), AuditState.BROKEN)
    assert standing.verdict is not None
    assert (standing.verdict.day, standing.verdict.fatal) == (NEXT_DAY, 2)
    assert standing.last_success_ms is not None
    assert first.last_success_ms is not None
    assert standing.last_success_ms >= first.last_success_ms
    await kept.stop(NEXT_DAY + timedelta(days=2), None)
    standing = await kept.audits.standing()
    assert standing.newest is not None
    assert standing.newest.state is AuditState.RUNNING


async def test_a_day_that_was_audited_under_way_is_not_the_last_one(kept: Kept) -> None:
    """It has its verdict so far; the day before stays the last one, with what was found of it and how that ended."""
    await kept.end(sample_result(kept.today - timedelta(days=1)))
    await kept.stop(kept.today - timedelta(days=1), "no memory")
    await kept.end(replace(clean_result(kept.today), so_far_ms=1))
    standing = await kept.audits.standing()
    assert standing.newest is not None
    assert (standing.newest.day, standing.newest.state) == (kept.today - timedelta(days=1), AuditState.BROKEN)
    assert standing.verdict == standing.newest
    assert standing.verdict.fatal == 2
    so_far = await kept.audits.day(kept.today)
    assert so_far is not None
    assert so_far.has_verdict
    assert "so far" in so_far.detail


async def test_a_store_has_no_audits_unless_it_says_otherwise() -> None:
    audits = Audits()
    assert await audits.days(before=None, limit=5) == ()
    assert await audits.day(DAY) is None
    assert await audits.findings(DAY, after=0, limit=5) == ()
    assert await audits.measures(DAY) == ()
    assert await audits.standing() == AuditStanding()
