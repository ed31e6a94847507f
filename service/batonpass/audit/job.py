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
from typing import TYPE_CHECKING, Any

from batonpass.audit.findings import AuditResult, Finding, GroupDay, Recommendation
from batonpass.audit.plan import DayPlan, MissingDay, plan_day
from batonpass.codec.code import code_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from batonpass.audit.tables import DayTables, Reader

__all__ = ["Audit", "MissingDay", "run"]

Tell = Callable[[str], None]
"""Hears what the audit does next."""


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


def run(audit: Audit, tell: Tell = lambda _: None) -> AuditResult:
    """Audit a day, write what was found where it is to be written, and return it.

    Raises:
        MissingDay: when there is nothing to audit; nothing was written.
    """
    told: list[str] = []

    def note(line: str) -> None:
        told.append(f"{datetime.now(UTC):%H:%M:%S} {line}")
        tell(line)

    with ExitStack() as stack:
        session, reader, plan = _begin(audit, stack, note)
        from batonpass.audit import output, parquet, report, stopping  # noqa: PLC0415 - the plan is made before

        kept = audit.database_url if audit.keep else None
        settings = audit.told()
        run_of_day = output.recorded(kept, plan.day, code_version=code_version(), settings=settings, group=audit.group)
        # From here on a signal ends the run in its row; before, there is none. Spark has set its own ways already.
        with run_of_day as noted, stopping.stoppable():
            for lost in noted.lost_days:
                note(f"an audit of {lost} ended without a word; it is marked as broken")
            result = _Auditor(session, reader, plan, audit, note).result(told)
            page: Path | None = None
            if audit.out is not None:
                note("writing the report")
                parquet.write_result(session, result, audit.out)
                if "://" not in audit.out:
                    page = report.write_report(result, Path(audit.out) / f"report-{audit.day}.html")
            noted.finish(result, report=str(page.absolute()) if page else None)
        if audit.export and audit.out is not None and kept is not None and audit.group is None:
            _export(audit, audit.out, note)
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
    from batonpass.audit.session import opened, partitions_for  # noqa: PLC0415
    from batonpass.audit.tables import AdbcReader, JdbcReader, plain_url  # noqa: PLC0415

    settings = dict(audit.spark)
    plan: DayPlan | None = None
    if audit.reader == "adbc":
        from batonpass.audit import source  # noqa: PLC0415

        # Before Spark starts: a day that is not there is said at once, and how large it is decides how Spark starts.
        note("looking for the day")
        plan = plan_day(lambda sql: source.rows(plain_url(audit.database_url), sql), audit.day, group=audit.group)
    elif audit.jdbc_jar is not None:
        settings["spark.jars"] = str(audit.jdbc_jar.absolute())
    note("starting Spark")
    session = stack.enter_context(opened(records=plan.records if plan else None, settings=settings))
    kind = AdbcReader if audit.reader == "adbc" else JdbcReader
    reader: Reader = kind(session, audit.database_url)
    if plan is None:
        plan = plan_day(reader.rows, audit.day, group=audit.group)
    cores = session.sparkContext.defaultParallelism
    parts = partitions_for(plan.records, cores)
    session.conf.set("spark.sql.shuffle.partitions", str(parts))
    note(f"{len(plan.groups):,} groups, about {plan.records:,} records, {parts} parts on {cores} cores")
    return session, reader, plan


class _Auditor:
    """Looks at one day."""

    def __init__(self, session: SparkSession, reader: Reader, plan: DayPlan, audit: Audit, note: Tell) -> None:
        from batonpass.audit.session import cut_by_group  # noqa: PLC0415
        from batonpass.audit.tables import DayTables  # noqa: PLC0415

        self._started_ms = int(time.time() * 1_000)
        self._session, self._plan, self._audit, self._note = session, plan, audit, note
        self._tables: DayTables = DayTables(session, reader, plan)
        self._parts = int(session.conf.get("spark.sql.shuffle.partitions") or "2")
        sizes = [one.last - one.base for one in plan.groups]
        self._by_group = cut_by_group(max(sizes), sum(sizes), self._parts)

    def _keep(self, frame: DataFrame) -> DataFrame:
        """Return a frame as it comes out once, in memory or on the executors' disks, without the way it was made.

        What is built on it is planned in no time, however long that way was. An executor that is lost takes its part
        along: the audit then fails and is run again.
        """
        from pyspark import StorageLevel  # noqa: PLC0415

        # PySpark's plain MEMORY_AND_DISK serializes every row, twice the work of keeping it.
        return frame.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK_DESER)

    def _cut(self, frame: DataFrame) -> DataFrame:
        """Return a frame kept in one part for each group, so that nothing that follows a task or member is exchanged.

        Where one group is most of the day it stays as it was read, and is cut by task where that matters.
        """
        if not self._by_group:
            return self._keep(frame)
        return self._keep(frame.repartition(self._parts, "group_id"))

    def result(self, told: list[str]) -> AuditResult:
        """Return everything that is found."""
        from batonpass.audit import measures, timeline  # noqa: PLC0415
        from batonpass.audit.checks_tasks import stateless  # noqa: PLC0415
        from batonpass.audit.downtime import gaps  # noqa: PLC0415
        from batonpass.audit.pictures import pictures  # noqa: PLC0415

        bounds = self._keep(self._tables.bounds())
        self._note("reading the log")
        changes = self._cut(self._tables.changes())
        self._note("following who might run each task")
        story = timeline.story(changes)
        if not self._by_group:
            story = story.repartition(self._parts, *timeline.TASK)
        followed = self._keep(timeline.follow(story))
        runs = self._keep(timeline.runs(followed))
        warmups = self._keep(timeline.warmups(followed))
        found_gaps = self._keep(gaps(runs, changes, stateless(changes), self._plan))
        seen = measures.Seen(
            *(changes, runs, warmups, found_gaps),
            *(self._cut(self._tables.generations()), self._cut(self._tables.warmup_lags()), bounds, self._plan),
        )
        self._note("measuring")
        days = measures.group_days(seen)
        replayed, kept_findings, left_out, differing = self._findings(seen, followed, days)
        recommendations, not_tried = self._recommend(tuple(days.values()))
        self._note("drawing")
        drawn = pictures(seen, followed, kept_findings)
        self._write_frames(seen, followed)
        return AuditResult(
            day=self._plan.day,
            started_at_ms=self._started_ms,
            finished_at_ms=int(time.time() * 1_000),
            code_version=code_version(),
            groups=tuple(day for _, day in sorted(days.items())),
            findings=(*kept_findings, *not_tried),
            findings_left_out=left_out,
            records=sum(int(day.measures["records"] or 0) for day in days.values()),
            decisions_replayed=replayed,
            decisions_differing=differing,
            recommendations=recommendations,
            pictures=drawn,
            log_lines=tuple(told),
        )

    def _findings(
        self, seen: Any, followed: DataFrame, days: Mapping[str, GroupDay]
    ) -> tuple[int, tuple[Finding, ...], int, int]:
        """Return how many decisions were made again, the findings, how many were left out, and the differences."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        from batonpass.audit import checks, checks_tasks, measures  # noqa: PLC0415
        from batonpass.audit.evidence import FOUND, all_of, cut  # noqa: PLC0415
        from batonpass.audit.replay import replayed  # noqa: PLC0415

        self._note("holding the day to the laws")
        changes, runs, bounds = seen.changes, seen.runs, seen.bounds
        excused, without = checks_tasks.excused(changes), checks_tasks.stateless(changes)
        lawful = all_of(
            [
                checks_tasks.one_owner(followed),
                checks_tasks.cold_promotions(runs, excused, without),
                checks_tasks.handovers_per_target(runs, excused),
                checks_tasks.warmup_budgets(seen.warmups, checks_tasks.budgets(changes)),
                checks.member_epochs(changes),
                checks.unreadable(changes),
            ]
        ).join(f.broadcast(bounds.select("group_id", "first")), "group_id")
        # What was wrong before the day has been found on its own day.
        of_day = lawful.where(
            f.coalesce(f.try_element_at(f.col("sequences"), f.lit(-1)), f.col("first")) >= f.col("first")
        )
        frames = [of_day, checks.log_laws(changes, bounds), checks.generations_told(changes, seen.generations, bounds)]
        frames.append(checks.changes_shown(changes, bounds, self._tables.reader.rows, self._plan))
        frames.append(measures.notices(seen, days, self._audit.objective))
        count = differing = 0
        if self._audit.replay:
            self._note("deciding the day again")
            again = self._keep(replayed(self._tables, self._parts))
            (sums,) = again.agg(f.sum("replayed").alias("replayed"), f.sum("differing").alias("differing")).collect()
            count, differing = int(sums["replayed"] or 0), int(sums["differing"] or 0)
            frames.append(again.where(f.col("law").isNotNull()).select(*FOUND))
        self._note("sorting what was found")
        kept, left_out = cut(all_of(frames))
        return count, kept, left_out, differing

    def _recommend(self, groups: tuple[GroupDay, ...]) -> tuple[tuple[Recommendation, ...], tuple[Finding, ...]]:
        if not self._audit.what_if:
            return (), ()
        from batonpass.audit import whatif  # noqa: PLC0415

        tried = (
            f"the {whatif.GROUPS_MOST} groups with the most downtime" if len(groups) > whatif.GROUPS_MOST else "the day"
        )
        self._note(f"trying other settings on {tried}")
        return whatif.recommend(self._tables, groups)

    def _write_frames(self, seen: Any, followed: DataFrame) -> None:
        if self._audit.out is None:
            return
        from batonpass.audit.parquet import write_day  # noqa: PLC0415
        from batonpass.audit.timeline import intervals  # noqa: PLC0415

        self._note("writing Parquet")
        frames = {"intervals": intervals(followed, self._plan), "gaps": seen.gaps, "warmups": seen.warmups}
        for name, frame in frames.items():
            write_day(frame, self._audit.out, name, self._plan.day)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    """Audit a day as ``spark-submit`` asks for it; print the verdict, and return the exit code of `batonpass audit`."""
    from batonpass.audit.verdict import summary  # noqa: PLC0415

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
        result = run(Audit(**given), _say)
    except MissingDay as error:
        parser.error(str(error))
    sys.stdout.write(f"{result.day}: {summary(result)}\n")
    return 1 if result.fatal else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
