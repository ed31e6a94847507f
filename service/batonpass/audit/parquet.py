"""Parquet files of an audit, partitioned by day and group. A day is replaced as a whole, never in part.

A day is written beside its place, under a name that readers skip, and put into its place when every file is there.
So a day that is audited again keeps nothing of its last audit, not even groups that are gone, and a write that fails
leaves what was there. Files are written by Hadoop's file systems, so ``out`` may be a folder or any URI that they know;
where renaming is copying (object stores), the exchange takes as long as a copy.
"""

from __future__ import annotations

import time
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow.parquet as pq

from batonpass.audit.findings import GROUP, ordered
from batonpass.codec.answers import rfc3339

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from batonpass.audit.findings import AuditResult, Finding

NAME_BYTES_MAX: Final = 80
"""Up to this length a group's name is the name of its folder, with room for each byte to be escaped."""

FINDINGS: Final = (
    "group_id string, law string, severity string, task string, member string, detail string,"
    " sequences array<bigint>, at array<string>"
)
MEASURES: Final = "group_id string, measure string, value double"
DOWNTIME: Final = (
    "group_id string, cause string, count bigint, p50_ms double, p99_ms double, max_ms double, total_ms double"
)


LEFT_S: Final = 24 * 3_600
"""A folder that an audit left unfinished counts as abandoned if nothing has changed in it for so long."""


def write_day(frame: DataFrame, out: str, name: str, day: date) -> str:
    """Write the rows of one day to ``out/name/day=…/group=…`` in place of what is there; return the day's folder.

    ``frame`` has a column ``group_id``. A group's folder has its name; for a long name, its beginning and a digest.

    Raises:
        OSError: when rows are missing from what was written, or the day could not be put into its place; the old one
            is there again.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - importing this module must not need Spark

    # A group's rows go to one file; to a few if it has very many rows and Spark looks at sizes.
    by_group, looks = _with_folder(frame), frame.sparkSession.conf.get("spark.sql.adaptive.enabled") == "true"
    column = f.col("group")
    return _write(by_group.hint("rebalance", column) if looks else by_group.repartition(column), out, name, day)


def _write(parts: DataFrame, out: str, name: str, day: date) -> str:
    from pyspark.sql import Observation  # noqa: PLC0415 - importing this module must not need Spark
    from pyspark.sql import functions as f  # noqa: PLC0415 - the same

    table = f"{located(out)}/{name}"
    unfinished = f"{table}/.day={day}.{uuid4().hex}"
    files = Files(parts.sparkSession)
    try:
        handed = Observation()
        parts.observe(handed, f.count(f.lit(1)).alias("rows")).write.partitionBy("group").parquet(unfinished)
        _require_rows(unfinished, handed.get["rows"])
        files.replace(unfinished, f"{table}/day={day}")
    finally:
        files.remove(unfinished)
    files.sweep(table)
    return f"{table}/day={day}"


def _require_rows(unfinished: str, handed: int) -> None:
    """Check that all rows that were handed to the writers are in a folder of this machine.

    Raises:
        OSError: when some are not: executors wrote them to folders of their own.
    """
    scheme, _, path = unfinished.partition("://")
    if scheme != "file":
        return
    there = sum(pq.read_metadata(one).num_rows for one in Path(path).rglob("*.parquet"))
    if there != handed:
        raise OSError(
            f"{there:,} of {handed:,} rows are in {path}: executors write to a folder of that name on their own machines;"
            " name a folder that all machines share, or a URI of a store (s3a://…), and run it again"
        )


def write_result(spark: SparkSession, result: AuditResult, out: str) -> None:
    """Write the findings and measures of an audit: tables ``findings``, ``measures`` and ``downtime``."""
    measures = [
        (one.group, name, None if value is None else float(value))
        for one in result.groups
        for name, value in one.measures.items()
    ]
    downtime = [
        (one.group, cause, int(of["count"]), *(float(of[name]) for name in ("p50_ms", "p99_ms", "max_ms", "total_ms")))
        for one in result.groups
        for cause, of in one.downtime_by_cause.items()
    ]
    findings = [
        (*(one.group, one.law, one.severity.value, one.task, one.member, one.detail), list(one.sequences), _times(one))
        for one in ordered(result.findings)
    ]
    tables: tuple[tuple[str, list[Any], str], ...] = (
        ("measures", measures, MEASURES),
        ("downtime", downtime, DOWNTIME),
        ("findings", findings, FINDINGS),
    )
    for name, rows, schema in tables:
        _write(_with_folder(spark.createDataFrame(rows, schema).coalesce(1)), out, name, result.day)


def _times(finding: Finding) -> list[str]:
    return [rfc3339(at) for at in finding.at]


def located(out: str) -> str:
    """Return where to write, as Hadoop takes it: a URI as it is, a folder of this machine by its whole path."""
    return out.rstrip("/") if "://" in out else f"file://{Path(out).absolute()}"


def place_of(group: str, out: str) -> str:
    """Return where an audit of one group writes: a folder of its own, so that it replaces no results of all groups."""
    long = len(group.encode()) > NAME_BYTES_MAX
    name = f"{group[:20]}~{sha256(group.encode()).hexdigest()[:16]}" if long else group
    return f"{out.rstrip('/')}/only/{name}"


def _with_folder(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415 - importing this module must not need Spark

    group = f.col(GROUP)
    short = f.concat(f.substring(group, 1, 20), f.lit("~"), f.substring(f.sha2(group, 256), 1, 16))
    return frame.withColumn("group", f.when(f.octet_length(group) <= NAME_BYTES_MAX, group).otherwise(short))


class Files:
    """The file system that a path is on, as Spark's own JVM has it."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to Hadoop's file systems
        self._settings = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - the same

    def _of(self, path: str) -> tuple[Any, Any]:
        made = self._jvm.org.apache.hadoop.fs.Path(path)
        return made.getFileSystem(self._settings), made

    def remove(self, path: str) -> None:
        """Remove a folder with all that is in it, if it is there."""
        system, made = self._of(path)
        system.delete(made, True)

    def sweep(self, table: str) -> None:
        """Remove the folders of a table that killed audits left unfinished, for days that are in their places.

        Another audit may be at work beside this one: folders that changed lately stay.
        """
        system, made = self._of(table)
        for one in system.listStatus(made):
            changed_s = one.getModificationTime() / 1_000
            name = str(one.getPath().getName())
            # Some stores have no times of folders.
            is_old = name.startswith(".day=") and 0 < changed_s < time.time() - LEFT_S
            if is_old and system.exists(self._of(f"{table}/{name[1:].rpartition('.')[0]}")[1]):
                system.delete(one.getPath(), True)

    def replace(self, unfinished: str, place: str) -> None:
        """Put a folder into a place; it replaces the one that is there, if any.

        Raises:
            OSError: when it cannot be put there; the old one is there again.
        """
        system, wanted = self._of(place)
        _, given = self._of(unfinished)
        before = None
        if system.exists(wanted):
            parent, _, name = place.rpartition("/")
            before = self._jvm.org.apache.hadoop.fs.Path(f"{parent}/.{name}.{uuid4().hex}")
            if not system.rename(wanted, before):
                raise OSError(f"{place} is there and cannot be moved aside; look who may write there, and run it again")
        failed: Exception | None = None
        try:
            is_there = system.rename(given, wanted)
        except Exception as error:  # noqa: BLE001 - whatever the file system says, the day goes back to its place
            is_there, failed = False, error
        if not is_there:
            if before is not None:
                system.rename(before, wanted)
            said = f"{place} cannot be written; look who may write there and how full it is, and run it again"
            raise OSError(said) from failed
        if before is not None:
            system.delete(before, True)
