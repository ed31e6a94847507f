"""Results of audits, read back from Postgres. An audit writes them itself, in one transaction at its end."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Final

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from batonpass.postgres.connect import fetch_rows
from batonpass.postgres.tables import ms_of
from batonpass.runtime.audits import AuditDay, AuditFinding, AuditMeasures, Audits, AuditStanding, AuditState

_VERDICT: Final = "state in ('passed', 'failed')"
_NEWEST: Final = "order by started_at desc, run_id desc limit 1"
_COUNTS: Final = "groups, records, fatal, notices, report"
# A run records once a minute that it is at work; the next run marks a lost one as broken (audit/runs.py).
_LOST: Final = (
    "(state = 'running' and coalesce(heard_at, started_at + interval '1 day')"
    " < clock_timestamp() - interval '10 minutes') as lost"
)
_SILENT: Final = "nothing was heard of it any more: its process was killed, or its machine went"
# The newest run of each day, beside the newest of its runs that reached a verdict. Days are walked from the newest one
# down the index, so a page costs only its own days.
_DAYS: Final = text(
    "with recursive of(day) as ("  # noqa: S608 - constants
    "(select max(day) from audit_runs where day < coalesce(cast(:before as date), 'infinity'))"
    " union all select (select max(r.day) from audit_runs r where r.day < of.day) from of where of.day is not null),"
    " page as (select day from of where day is not null limit :most)"
    " select p.day, case when n.lost then 'broken' else n.state end,"
    f" {ms_of('n.started_at')}, {ms_of('case when n.lost then coalesce(n.heard_at, n.started_at) else n.finished_at end')},"
    f" case when n.lost then '{_SILENT}' else n.detail end, n.code_version,"
    " v.run_id is not null, v.groups, v.records, v.fatal, v.notices, v.report from page p"
    f" cross join lateral (select *, {_LOST} from audit_runs where day = p.day {_NEWEST}) n"
    f" left join lateral (select run_id, {_COUNTS} from audit_runs where day = p.day and {_VERDICT} {_NEWEST}) v on true"
    " order by p.day desc"
)
_RUN: Final = f"(select run_id from audit_runs where day = :day and {_VERDICT} {_NEWEST})"  # noqa: S608 - constants
_FINDINGS: Final = text(
    "select number, group_name, law, severity, task, member, detail, cast(evidence as text) from audit_findings"  # noqa: S608
    f" where run_id = {_RUN} and number > cast(:after as bigint) order by number limit :most"
)
_MEASURES: Final = text(
    "select group_name, cast(measures as text) from audit_daily"  # noqa: S608 - constants
    f' where day = :day and run_id = {_RUN} order by group_name collate "C"'
)
# An audit of a day that was still under way does not count: it must not hide that the nightly audit is late, or broke.
_WHEN_OVER: Final = "(started_at at time zone 'UTC')::date <> day"
_STANDING: Final = text(
    f"select (select max(day) from audit_runs where {_WHEN_OVER}),"  # noqa: S608 - constants
    f" (select max(day) from audit_runs where {_VERDICT} and {_WHEN_OVER}),"
    f" (select {ms_of('max(finished_at)')} from audit_runs where state = 'passed'),"
    f" (select {ms_of('max(finished_at)')} from audit_runs)"
)


class PostgresAudits(Audits):
    """The audits of one database."""

    def __init__(self, engine: AsyncEngine) -> None:
        """Read from a database; any coordinator may."""
        self._engine = engine

    async def days(self, *, before: date | None, limit: int) -> Sequence[AuditDay]:
        return [_day(row) for row in await fetch_rows(self._engine, _DAYS, before=before, most=limit)]

    async def day(self, day: date) -> AuditDay | None:
        before = None if day == date.max else date.fromordinal(day.toordinal() + 1)
        found = await self.days(before=before, limit=1)
        return next((one for one in found if one.day == day), None)

    async def findings(self, day: date, *, after: int, limit: int) -> Sequence[AuditFinding]:
        return [_finding(row) for row in await fetch_rows(self._engine, _FINDINGS, day=day, after=after, most=limit)]

    async def measures(self, day: date) -> Sequence[AuditMeasures]:
        return [_measures(*row) for row in await fetch_rows(self._engine, _MEASURES, day=day)]

    async def standing(self) -> AuditStanding:
        *days, success_ms, finished_ms = (await fetch_rows(self._engine, _STANDING))[0]
        newest, verdict = [None if day is None else await self.day(day) for day in days]
        return AuditStanding(newest, verdict, success_ms, finished_ms)


def _day(row: tuple[Any, ...]) -> AuditDay:
    day, state, started_ms, finished_ms, detail, code, has_verdict, *counts, report = row
    groups, records, fatal, notices = (int(one or 0) for one in counts)
    newest = AuditDay(day, AuditState(state), started_ms, finished_ms, detail, code, has_verdict)
    return replace(newest, groups=groups, records=records, fatal=fatal, notices=notices, report=report)


def _finding(row: tuple[Any, ...]) -> AuditFinding:
    *said, evidence = row
    named = zip(AuditFinding.__dataclass_fields__, said, strict=False)
    return msgspec.convert(dict(named) | msgspec.json.decode(evidence), AuditFinding)


def _measures(group: str, payload: str) -> AuditMeasures:
    return msgspec.convert({"group": group} | msgspec.json.decode(payload), AuditMeasures)
