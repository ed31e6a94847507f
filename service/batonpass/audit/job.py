"""One audit of one day, from beginning to end."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from typing import Final

from pyspark import StorageLevel

from batonpass.audit import parquet, report, runs, spread, whatif
from batonpass.audit.checks import beyond_heads, log_ends
from batonpass.audit.database import rows
from batonpass.audit.export import NotOver, export_day
from batonpass.audit.findings import UNREAD, AuditResult, Pictures, kept_of, without_consequences
from batonpass.audit.measures import notices
from batonpass.audit.pictures import pictures
from batonpass.audit.places import put
from batonpass.audit.plan import DayPlan, MissingDay, plan_day
from batonpass.audit.rows import Gap, Interval, Warmup
from batonpass.audit.session import end_now, followed, opened
from batonpass.audit.spread import DayTables
from batonpass.audit_words import amount
from batonpass.codec.code import code_version

__all__ = ["Audit", "MissingDay", "run"]

Tell = Callable[[str], None]
"""Called with what the audit does next."""

PIECE: Final = 250_000
"""What comes of about so many records is sorted, and held by the driver, at once."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What is to be audited, and how.

    Attributes:
        database_url: where the log is.
        day: in UTC.
        group: only this one; None: all.
        out: the folder for the report and Parquet, or a URI that Arrow can write to; None: neither.
        objective: the availability below which a group is worth a look; None: none.
        keep: whether what was found is written to the database; for a single ``group`` it never is.
        export: whether the day's rows are written to ``out`` too, when the day is over and everything else is done.
        what_if_s: how many seconds other settings are tried, after the verdict.
        unless_done: whether to leave a day alone that another run has audited since it was over, or is auditing.
        as_of: the audit is carried out as if it were then; None: now. For a day from its export (``export.reload``).
        spark: settings of Spark's own, ``spark.master`` among them.
    """

    database_url: str
    day: date
    group: str | None = None
    out: str | None = None
    what_if: bool = True
    replay: bool = True
    objective: float | None = None
    keep: bool = True
    export: bool = True
    unless_done: bool = False
    as_of: datetime | None = None
    what_if_s: float = whatif.BUDGET_S
    spark: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str | None:
        """Where the report and Parquet go: ``out``, or for one group a folder of its own in it. None: nowhere."""
        return self.out if self.out is None or self.group is None else parquet.place_of(self.group, self.out)

    def settings(self) -> dict[str, object]:
        """Return how the audit is done, for its row in the database."""
        names = ("group", "out", "objective", "replay", "what_if", "export")
        return {name: getattr(self, name) for name in names}


def run(audit: Audit, tell: Tell = lambda _: None, hear: Callable[[AuditResult], None] = lambda _: None) -> AuditResult:
    """Audit a day, write what was found where it is to be written, and return it.

    ``hear`` is called with the result as soon as the verdict and all findings are written. Other settings are tried
    after that; what is returned, and then written in place of the first, has what to set as well.

    Raises:
        MissingDay: when there is nothing to audit; nothing was written.
        batonpass.audit.runs.DayTaken: with ``unless_done``, when another run has audited the day or is auditing it.
    """
    log_lines: list[str] = []

    def note(line: str) -> None:
        log_lines.append(f"{datetime.now(UTC):%H:%M:%S} {line}")
        tell(line)

    with ExitStack() as stack:
        note("looking for the day")
        plan = plan_day(partial(rows, audit.database_url), audit.day, group=audit.group, now=audit.as_of)
        noted = stack.enter_context(
            runs.recorded(
                audit.database_url if audit.keep else None,
                audit.day,
                code_version=code_version(),
                settings=audit.settings(),
                group=audit.group,
                unless_done=audit.unless_done,
            )
        )
        stack.enter_context(runs.stoppable())
        tables = _begin(audit, plan, stack, note)
        # Spark has set its own handlers of signals.
        with runs.stoppable(partial(end_now, tables.spark)):
            for lost in noted.lost_days:
                note(f"an audit of {lost} ended without a word; it is marked as broken")
            result = _verdict(tables, audit, note, log_lines)
            if audit.keep:
                result = replace(result, before=runs.before(audit.database_url, audit.day))
            out = audit.place
            if out is not None:
                note("writing the report")
                parquet.write_result(result, out)
                if audit.export and audit.keep and audit.group is None:
                    _export(audit, out, note)
            noted.finish(result, report=_page(result, out))
            hear(result)
            if audit.what_if:
                advised = _advised(tables, audit, result, note)
                if out is not None and advised.findings != result.findings:
                    parquet.write_result(advised, out)
                result = replace(advised, log_lines=tuple(log_lines), finished_at_ms=int(time.time() * 1_000))
                noted.finish(result, report=_page(result, out))
    return result


def _page(result: AuditResult, out: str | None) -> str | None:
    """Write the report, and return where it is; None: nowhere."""
    return None if out is None else put(out, f"report-{result.day}.html", report.as_html(result).encode())


def _advised(tables: DayTables, audit: Audit, result: AuditResult, note: Tell) -> AuditResult:
    """Return the result with what to set. The verdict stands: a failure here is told, and changes nothing of it."""
    note("trying other settings")
    try:
        unproven = whatif.unproven(result.findings)
        proven = [one for one in result.groups if one.group not in unproven]
        tried = whatif.recommend(tables, proven, note, budget_s=audit.what_if_s)
    except Exception as error:  # noqa: BLE001 - many kinds, of Spark, its JVM, the database
        note(f"other settings were not tried: {runs.reason_of(error, audit.database_url)}")
        return result
    not_tried = (*unproven.values(), *tried.findings)
    for one in not_tried:
        note(f"{one.group}: {one.detail}")
    if tried.left_out:
        note(f"stopped after {audit.what_if_s:.0f} s: at least {amount(tried.left_out, 'trial')} left out")
    return replace(result, recommendations=tried.recommendations, findings=(*result.findings, *not_tried))


def _export(audit: Audit, out: str, note: Tell) -> None:
    """Export the day's rows, so that retention may drop them; a day under way is not exported."""
    note("exporting the day's rows")
    try:
        export_day(audit.database_url, audit.day, out)
    except NotOver as error:
        note(f"nothing was exported: {error}")


def _begin(audit: Audit, plan: DayPlan, stack: ExitStack, note: Tell) -> DayTables:
    """Return what is to be read, with the session that reads it."""
    note("starting Spark")
    session = stack.enter_context(opened(audit.spark))
    session.conf.set("spark.sql.shuffle.partitions", str(plan.records // PIECE + 1))
    cores = amount(session.sparkContext.defaultParallelism, "core")
    note(f"{amount(len(plan.groups), 'group')}, about {amount(plan.records, 'record')}, on {cores}")
    return DayTables(session, audit.database_url, plan)


def _verdict(tables: DayTables, audit: Audit, tell: Tell, log_lines: Sequence[str]) -> AuditResult:
    """Return everything that is found. What grows with the day is written to Parquet, if anywhere."""
    plan, started_ms, out = tables.plan, int(time.time() * 1_000), audit.place

    def note(line: str) -> None:
        """Tell what is done next, on Spark's pages too."""
        tables.spark.sparkContext.setJobDescription(line)
        tell(line)

    note(f"following every task, holding the day to the laws{', deciding it again' if audit.replay else ''}")
    parts = spread.parts_of(plan.groups, replay=audit.replay)
    results = spread.day_results(tables, parts, frames=out is not None, replay=audit.replay)
    with followed(tables.spark, tell, list(map(spread.name_of, parts))):
        if out is not None:
            # Results are computed once and kept, in memory or on the executors' disks. If an executor is lost, its
            # parts are read and computed again. PySpark's plain MEMORY_AND_DISK serializes every row, twice the
            # work of keeping it.
            results = results.persist(StorageLevel.MEMORY_AND_DISK_DESER)
        groups = spread.group_results(results)
    found = [*log_ends(plan), *beyond_heads(tables.rows, plan), *(one for group in groups for one in group.found)]
    unread = {one.group for one in found if one.law in UNREAD}
    days = {one.group: one.day.unknown() if one.group in unread else one.day for one in groups if one.day is not None}
    findings, left_out = kept_of(without_consequences([*found, *notices(days, audit.objective)]))
    for one in groups:
        left_out.update(one.left_out)
    drawn = Pictures()
    if out is not None:
        note("drawing")
        batches = partial(spread.batches_of, results)
        down = {one.group: one.worst_hour for one in groups if one.worst_hour is not None}
        drawn = pictures(batches, plan, findings, down)
        note("writing Parquet")
        for table, kind in (("intervals", Interval), ("gaps", Gap), ("warmups", Warmup)):
            parquet.write_day(batches(kind), kind, out, table, plan.day)
    return AuditResult(
        day=plan.day,
        started_at_ms=started_ms,
        finished_at_ms=int(time.time() * 1_000),
        code_version=code_version(),
        groups=tuple(day for _, day in sorted(days.items())),
        findings=findings,
        left_out=left_out,
        records=sum(int(day.measures["records"] or 0) for day in days.values()),
        decisions=sum(one.decisions for one in groups),
        decisions_replayed=sum(one.replayed for one in groups),
        decisions_differing=sum(one.differing for one in groups),
        records_untraced=sum(one.untraced for one in groups),
        pictures=drawn,
        names={one.group: one.names for one in groups if one.names},
        log_lines=tuple(log_lines),
        so_far_ms=plan.so_far_ms,
    )
