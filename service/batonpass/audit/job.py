"""One audit of one day, from beginning to end: what `batonpass audit` and `spark-submit` run.

spark-submit --py-files batonpass.zip job.py --day 2026-11-20 --database-url postgresql://...
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from batonpass.audit.findings import AuditResult, Finding, GroupDay, Pictures, Recommendation
from batonpass.audit.plan import DayPlan, MissingDay, partitions_for, plan_day
from batonpass.audit.progress import followed
from batonpass.audit.verdict import amount
from batonpass.codec.code import code_version
from batonpass.terminal import aside, say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from batonpass.audit.tables import DayTables, Reader

__all__ = ["Audit", "MissingDay", "run"]

Tell = Callable[[str], None]
"""Hears what the audit does next."""

Row = dict[str, Any]


class Decided(NamedTuple):
    """What came of deciding the day again: how many decisions, how many came out otherwise, and what that means."""

    replayed: int = 0
    differing: int = 0
    findings: tuple[Finding, ...] = ()
    lawful: frozenset[str] = frozenset()
    """The groups whose decisions were made again, without a finding."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What is to be audited, and how.

    Attributes:
        database_url: where the log is.
        day: in UTC.
        group: only this one; None: all.
        out: the folder for the report and Parquet, or a URI that Spark can write to (Parquet only); None: neither.
        reader: "adbc" (no jar), or "jdbc" (a driver by ``jdbc_jar`` or Spark's own settings).
        objective: the availability below which a group is worth a look; None: none.
        keep: whether what was found is written to the database.
        export: whether the day's rows are written to ``out`` too, when the day is over and everything else is done.
        unless_done: whether to leave a day alone that another run has audited since it was over, or is at.
        spark: settings of Spark's own, ``spark.master`` among them.
    """

    database_url: str
    day: date
    group: str | None = None
    out: str | None = None
    reader: str = "adbc"
    jdbc_jar: Path | None = None
    what_if: bool = True
    replay: bool = True
    objective: float | None = None
    keep: bool = True
    export: bool = True
    unless_done: bool = False
    spark: Mapping[str, str] = field(default_factory=dict)

    def told(self) -> dict[str, object]:
        """Return how the audit is done, for its row in the database."""
        named: dict[str, object] = {
            "group": self.group,
            "out": self.out,
            "reader": self.reader,
            "objective": self.objective,
        }
        return named | {"replay": self.replay, "what_if": self.what_if}


def run(audit: Audit, tell: Tell = lambda _: None, hear: Callable[[AuditResult], None] = lambda _: None) -> AuditResult:
    """Audit a day, write what was found where it is to be written, and return it.

    ``hear`` is given the same as soon as everything is written: the end of Spark takes longer, and the first one on a
    machine a quarter of a minute.

    Raises:
        MissingDay: when there is nothing to audit; nothing was written.
        batonpass.audit.output.DayTaken: when somebody else does it, for one that is ``unless_done``.
    """
    told: list[str] = []

    def note(line: str) -> None:
        told.append(f"{datetime.now(UTC):%H:%M:%S} {line}")
        tell(line)

    if audit.unless_done:
        from batonpass.audit.output import refuse_taken  # noqa: PLC0415 - see below

        refuse_taken(audit.database_url, audit.day)
    with ExitStack() as stack:
        session, reader, plan = _begin(audit, stack, note)
        from batonpass.audit import output, stopping  # noqa: PLC0415 - the plan is made before

        kept = audit.database_url if audit.keep else None
        run_of_day = output.recorded(
            kept,
            plan.day,
            code_version=code_version(),
            settings=audit.told(),
            group=audit.group,
            unless_done=audit.unless_done,
        )
        # From here on a signal ends the run in its row; before, there is none. Spark has set its own ways already.
        with run_of_day as noted, stopping.stoppable():
            for lost in noted.lost_days:
                note(f"an audit of {lost} ended without a word; it is marked as broken")
            result = _Auditor(session, reader, plan, audit, note).result(told)
            page: Path | None = None
            if audit.out is not None:
                from batonpass.audit import parquet, report  # noqa: PLC0415 - see above

                note("writing the report")
                parquet.write_result(session, result, audit.out)
                if "://" not in audit.out:
                    page = report.write_report(result, Path(audit.out) / f"report-{audit.day}.html")
            noted.finish(result, report=str(page.absolute()) if page else None)
        if audit.export and audit.out is not None and kept is not None and audit.group is None:
            _export(audit, audit.out, note)
        hear(result)
    return result


def _export(audit: Audit, out: str, note: Tell) -> None:
    """Take the day's rows out of the database, so that retention may drop them; of a day under way nothing is taken."""
    from batonpass.audit.export import NotOver, export_day  # noqa: PLC0415

    note("exporting the day's rows")
    try:
        export_day(audit.database_url, audit.day, out)
    except NotOver as error:
        note(f"nothing was exported: {error}")


def _begin(audit: Audit, stack: ExitStack, note: Tell) -> tuple[SparkSession, Reader, DayPlan]:
    """Return the session, the way to read, and what is to be read."""
    from batonpass.audit.session import opened  # noqa: PLC0415

    settings = dict(audit.spark)
    plan: DayPlan | None = None
    if audit.reader != "adbc" and audit.jdbc_jar is not None:
        settings["spark.jars"] = str(audit.jdbc_jar.absolute())

    def look() -> int | None:
        # While Java starts: a day that is not there is said at once, and how large it is decides how Spark plans.
        nonlocal plan
        if audit.reader == "adbc":
            from batonpass.audit import source  # noqa: PLC0415
            from batonpass.audit.tables import plain_url  # noqa: PLC0415

            note("looking for the day")
            plan = plan_day(lambda sql: source.rows(plain_url(audit.database_url), sql), audit.day, group=audit.group)
        note("starting Spark")
        from batonpass.audit import output, spread  # noqa: F401, PLC0415 - what is wanted first when it has started

        return plan.records if plan is not None else None

    session = stack.enter_context(opened(meanwhile=look, settings=settings, tell=note))
    from batonpass.audit.tables import AdbcReader, JdbcReader  # noqa: PLC0415

    kind = AdbcReader if audit.reader == "adbc" else JdbcReader
    reader: Reader = kind(session, audit.database_url)
    if plan is None:
        plan = plan_day(reader.rows, audit.day, group=audit.group)
    cores = session.sparkContext.defaultParallelism
    parts = partitions_for(plan.records, cores)
    session.conf.set("spark.sql.shuffle.partitions", str(parts))
    read = f"{amount(len(plan.groups), 'group')}, about {amount(plan.records, 'record')}"
    note(f"{read}, on {amount(cores, 'core')}")
    return session, reader, plan


class _Auditor:
    """Looks at one day."""

    def __init__(self, session: SparkSession, reader: Reader, plan: DayPlan, audit: Audit, note: Tell) -> None:
        from batonpass.audit.tables import DayTables  # noqa: PLC0415

        self._started_ms = int(time.time() * 1_000)
        self._session, self._plan, self._audit, self._note = session, plan, audit, note
        self._tables: DayTables = DayTables(session, reader, plan)
        self._frames_wanted = audit.out is not None

    def result(self, told: list[str]) -> AuditResult:
        """Return everything that is found."""
        from batonpass.audit.measures import group_days  # noqa: PLC0415

        looked, seen = self._look()
        self._note("measuring")
        days = group_days(seen["day"], seen["cause"])
        decided = self._replayed()
        findings, left_out = self._findings(seen, days, decided)
        recommendations, not_tried = self._recommend(tuple(days.values()))
        drawn = self._drawn(looked, findings) if looked is not None else Pictures()
        return AuditResult(
            day=self._plan.day,
            started_at_ms=self._started_ms,
            finished_at_ms=int(time.time() * 1_000),
            code_version=code_version(),
            groups=tuple(day for _, day in sorted(days.items())),
            findings=(*findings, *not_tried),
            findings_left_out=left_out,
            records=sum(int(day.measures["records"] or 0) for day in days.values()),
            decisions_replayed=decided.replayed,
            decisions_differing=decided.differing,
            recommendations=recommendations,
            pictures=drawn,
            log_lines=tuple(told),
            so_far_ms=self._plan.so_far_ms,
        )

    def _look(self) -> tuple[DataFrame | None, dict[str, list[Row]]]:
        """Return what the parts of the day come to: what grows with it as a frame, where it is wanted, else as rows."""
        from batonpass.audit import spread  # noqa: PLC0415
        from batonpass.audit.outcomes import KINDS  # noqa: PLC0415

        self._note("following every task, holding the day to the laws")
        slots = spread.slots_of(self._session)
        looked = spread.looked(self._tables, slots, frames=self._frames_wanted)
        with followed(self._session, self._note):
            kept = self._keep(looked) if self._frames_wanted else None
            small = [name for name, kind in KINDS.items() if not kind.is_frame]
            # Where no frames are wanted there are no other rows.
            rows = (looked if kept is None else spread.of_kinds(kept, small)).toArrow().to_pylist()
        seen: dict[str, list[Row]] = {name: [] for name in small}
        for row in rows:
            for name in small:
                if row[name] is not None:
                    seen[name].append({"group_id": row["group_id"], **row[name]})
        return kept, seen

    def _keep(self, frame: DataFrame) -> DataFrame:
        """Return a frame as it comes out once, in memory or on the executors' disks, without the way it was made.

        An executor that is lost takes its part along: the audit then fails and is run again.
        """
        from pyspark import StorageLevel  # noqa: PLC0415

        # PySpark's plain MEMORY_AND_DISK serializes every row, twice the work of keeping it.
        return frame.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK_DESER)

    def _findings(
        self, seen: Mapping[str, list[Row]], days: Mapping[str, GroupDay], decided: Decided
    ) -> tuple[tuple[Finding, ...], int]:
        """Return the findings that are kept, and how many were left out."""
        from batonpass.audit.checks import edges, told_beyond  # noqa: PLC0415
        from batonpass.audit.checks_tasks import superseded  # noqa: PLC0415
        from batonpass.audit.evidence import cut, finding_of, without_consequences  # noqa: PLC0415
        from batonpass.audit.measures import notices  # noqa: PLC0415

        ends = [*edges(self._plan), *told_beyond(self._tables.reader.rows, self._plan)]
        kept = [(finding_of(row), row["of_law"]) for row in seen["finding"]]
        others = (*ends, *decided.findings, *notices(days, self._audit.objective))
        return cut(*without_consequences(superseded(kept, decided.lawful), others))

    def _replayed(self) -> Decided:
        if not self._audit.replay:
            return Decided()
        from batonpass.audit.evidence import finding_of  # noqa: PLC0415
        from batonpass.audit.replay import replayed  # noqa: PLC0415

        self._note("deciding the day again")
        parts = int(self._session.conf.get("spark.sql.shuffle.partitions") or "2")
        with followed(self._session, self._note):
            rows = replayed(self._tables, parts).toArrow().to_pylist()
        found = tuple(finding_of(row) for row in rows if row["law"] is not None)
        return Decided(
            sum(row["replayed"] or 0 for row in rows),
            sum(row["differing"] or 0 for row in rows),
            found,
            frozenset(row["group_id"] for row in rows if row["replayed"]) - {one.group for one in found},
        )

    def _recommend(self, groups: tuple[GroupDay, ...]) -> tuple[tuple[Recommendation, ...], tuple[Finding, ...]]:
        if not self._audit.what_if:
            return (), ()
        from batonpass.audit import whatif  # noqa: PLC0415

        tried = (
            f"the {whatif.GROUPS_MOST} groups with the most downtime" if len(groups) > whatif.GROUPS_MOST else "the day"
        )
        self._note(f"trying other settings on {tried}")
        with followed(self._session, self._note):
            return whatif.recommend(self._tables, groups)

    def _drawn(self, looked: DataFrame, findings: tuple[Finding, ...]) -> Pictures:
        """Write what grows with the day, and return samples of it for pictures."""
        from batonpass.audit.parquet import write_day  # noqa: PLC0415
        from batonpass.audit.pictures import Frames, pictures  # noqa: PLC0415
        from batonpass.audit.spread import frame_of  # noqa: PLC0415

        self._note("drawing")
        frames = Frames(*(frame_of(looked, kind) for kind in ("gap", "warmup", "interval", "name")))
        drawn = pictures(frames, self._tables, findings)
        self._note("writing Parquet")
        for name, frame in (("intervals", frames.intervals), ("gaps", frames.gaps), ("warmups", frames.warmups)):
            write_day(frame, str(self._audit.out), name, self._plan.day)
        return drawn


def main(arguments: Sequence[str]) -> int:
    """Audit a day as ``spark-submit`` asks for it; print the verdict, and return the exit code of `batonpass audit`."""
    from batonpass.audit.verdict import named, summary  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="job.py", description="Audit one day; docs/audit.md has every option.")
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    parser.add_argument(
        "--day", type=date.fromisoformat, default=yesterday, help="in UTC, as in 2026-11-20 (yesterday)"
    )
    parser.add_argument("--database-url", default=os.environ.get("BATONPASS_DATABASE_URL"))
    parser.add_argument("--group")
    parser.add_argument("--out")
    parser.add_argument("--reader", choices=("adbc", "jdbc"), default="adbc")
    parser.add_argument("--objective", type=float)
    for name in ("replay", "what-if", "keep"):
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=True)
    given = vars(parser.parse_args(arguments))
    if not given["database_url"]:
        parser.error("name the database: --database-url, or BATONPASS_DATABASE_URL")
    try:
        result = run(Audit(**given), aside)
    except MissingDay as error:
        parser.error(str(error))
    say(f"{named(result)}: {summary(result)}")
    return 1 if result.fatal else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
