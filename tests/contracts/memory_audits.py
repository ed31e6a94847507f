"""Audits in memory, for tests of whoever looks back at them; a test holds them to what Postgres does."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from batonpass.runtime.audits import AuditDay, AuditFinding, AuditMeasures, Audits, AuditStanding, AuditState

ENDED = (AuditState.PASSED, AuditState.FAILED, AuditState.BROKEN)
VERDICTS = (AuditState.PASSED, AuditState.FAILED)


@dataclass(frozen=True, slots=True)
class AuditRun:
    """One run as it was written."""

    day: AuditDay
    findings: tuple[AuditFinding, ...] = ()
    measures: tuple[AuditMeasures, ...] = ()


def _was_under_way(run: AuditDay) -> bool:
    """Whether a run began within the day that it audited."""
    return datetime.fromtimestamp(run.started_ms / 1_000, UTC).date() == run.day


class MemoryAudits(Audits):
    """The runs of all audits, in memory."""

    def __init__(self) -> None:
        self._runs: list[AuditRun] = []

    def add(self, run: AuditRun) -> None:
        """Keep a run."""
        self._runs.append(run)

    def _of(self, day: date) -> list[AuditRun]:
        return sorted((one for one in self._runs if one.day.day == day), key=lambda one: one.day.started_ms)

    def _verdict(self, day: date) -> AuditRun | None:
        return next((one for one in reversed(self._of(day)) if one.day.state in VERDICTS), None)

    async def days(self, *, before: date | None, limit: int) -> Sequence[AuditDay]:
        """Return audited days before one (None: from the newest), newest first."""
        known = sorted({one.day.day for one in self._runs}, reverse=True)
        found = [await self.day(day) for day in known if before is None or day < before]
        return [one for one in found if one is not None][:limit]

    async def day(self, day: date) -> AuditDay | None:
        """Return one day; None when it was never audited."""
        runs = self._of(day)
        if not runs:
            return None
        newest, verdict = runs[-1].day, self._verdict(day)
        counts = verdict.day if verdict is not None else None
        return AuditDay(
            day=day,
            state=newest.state,
            started_ms=newest.started_ms,
            finished_ms=newest.finished_ms,
            detail=newest.detail,
            code_version=newest.code_version,
            has_verdict=counts is not None,
            groups=counts.groups if counts else 0,
            records=counts.records if counts else 0,
            fatal=counts.fatal if counts else 0,
            notices=counts.notices if counts else 0,
            report=counts.report if counts else None,
        )

    async def findings(self, day: date, *, after: int, limit: int) -> Sequence[AuditFinding]:
        """Return the findings of a day's verdict after a number, in order."""
        verdict = self._verdict(day)
        return [one for one in verdict.findings if one.number > after][:limit] if verdict else []

    async def measures(self, day: date) -> Sequence[AuditMeasures]:
        """Return what each group's day came to, by the day's verdict, in the order of their names."""
        verdict = self._verdict(day)
        return sorted(verdict.measures, key=lambda one: one.group) if verdict else []

    async def standing(self) -> AuditStanding:
        """Return how the audits stand."""
        runs = [one.day for one in self._runs]
        newest = max((one.day for one in runs if not _was_under_way(one)), default=None)
        last = max((one.day for one in runs if one.state in VERDICTS and not _was_under_way(one)), default=None)
        return AuditStanding(
            newest=await self.day(newest) if newest is not None else None,
            verdict=await self.day(last) if last is not None else None,
            last_success_ms=max((one.finished_ms or 0 for one in runs if one.state is AuditState.PASSED), default=None),
            last_finished_ms=max((one.finished_ms or 0 for one in runs if one.state in ENDED), default=None),
        )
