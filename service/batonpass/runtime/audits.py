"""Results of audits, as the API reads them. Nothing here runs an audit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum


class AuditState(StrEnum):
    """How a run of an audit ended. ``FAILED``: a law was broken. ``BROKEN``: the audit itself reached no verdict."""

    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class AuditDay:
    """What is known of one audited day (UTC).

    State, times and ``detail`` are those of its newest run. Counts and ``report`` are those of the newest run that
    reached a verdict, so that a run which is under way or broken does not hide earlier findings. ``has_verdict`` says
    whether any run reached a verdict.
    """

    day: date
    state: AuditState
    started_ms: int
    finished_ms: int | None
    detail: str
    code_version: str
    has_verdict: bool = False
    groups: int = 0
    records: int = 0
    fatal: int = 0
    notices: int = 0
    report: str | None = None


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One thing that is wrong or worth a look. ``number`` counts the findings of a day from 1, fatal ones first."""

    number: int
    group: str
    law: str
    severity: str
    task: str | None
    member: str | None
    detail: str
    sequences: tuple[int, ...] = ()
    at: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditMeasures:
    """Results of a group's day. ``recommendation`` is as the audit wrote it; None if it has none."""

    group: str
    measures: Mapping[str, float | int | None]
    downtime_by_cause: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    recommendation: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class AuditStanding:
    """How the audits stand, for monitoring.

    Attributes:
        newest: the newest day of which a run began after it was over; None before the first one.
        verdict: the newest day with a verdict of a run that began after the day was over.
        last_success_ms: when a run last ended with every law kept.
        last_finished_ms: when a run last ended, with whatever result.
    """

    newest: AuditDay | None = None
    verdict: AuditDay | None = None
    last_success_ms: int | None = None
    last_finished_ms: int | None = None


class Audits:
    """The results that audits wrote; none, unless a class says otherwise. Every call may raise ``StoreUnavailable``."""

    async def days(self, *, before: date | None, limit: int) -> Sequence[AuditDay]:
        """Return audited days before ``before`` (None: from the newest), newest first."""
        return ()

    async def day(self, day: date) -> AuditDay | None:
        """Return one day; None when it was never audited."""
        return None

    async def findings(self, day: date, *, after: int, limit: int) -> Sequence[AuditFinding]:
        """Return the findings of a day's verdict with numbers above ``after``, in order."""
        return ()

    async def measures(self, day: date) -> Sequence[AuditMeasures]:
        """Return the results of each group from the run with the day's verdict, in the order of their names."""
        return ()

    async def standing(self) -> AuditStanding:
        return AuditStanding()
