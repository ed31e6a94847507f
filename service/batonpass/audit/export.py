"""Takes a day's rows out of Postgres into Parquet, before retention drops them.

Every table's day is one file, streamed batch by batch: it takes the memory of one batch, however large the day is. All
files show the database at one instant. A file is written beside its place and renamed when it is whole, so a day may
be exported again at any time. Only when every file is in its place is the day marked as exported, which is what
retention waits for (``BATONPASS_KEEP_UNEXPORTED_DAYS``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs as arrow_fs
from pyarrow import parquet as pq

from batonpass.audit.database import DATE, TEXT, bind, connected
from batonpass.audit.plan import MissingDay, batched, plan_day, quoted
from batonpass.audit.runs import to_json

if TYPE_CHECKING:
    import adbc_driver_postgresql.dbapi as adbc

SETTLES: Final = timedelta(minutes=10)
"""How long after a day rows of it may still come: coordinators write the time of their own clocks."""

_CHANGES: Final = (
    "group_id, at, version, place, task_id, member_id, kind, role_before, role, state, generation, member_epoch, token,"
    " warm, why, heard_at"
)
SELECTS: Final[Mapping[str, str]] = {
    "generations": "select group_id, number, version, group_epoch, at, triggers, members, tasks, moves, lower_bound,"
    " warmups, score_before, score, decide_ms, moved::text as moved, reasons::text as reasons from generations where {day}",
    # The changes of a large commit stand in another table for some seconds.
    "assignment_events": f"select {_CHANGES} from assignment_events where {{day}}"  # noqa: S608 - constants
    f" union all select {_CHANGES} from fresh_changes where {{day}}",
    "traces": "select group_id, at, version, format, code, cause, payload::text as payload from traces where {day}",
    "samples": "select group_id, at, copies::text as copies from samples where {day}",
}
RECORDS: Final = (
    "select group_id, seq, coordinator_epoch, at, kind, version, payload::text as payload from record_log"
    " join (values {parts}) as part(of_group, first, last) on group_id = of_group and seq between first and last"
)
NO_RECORDS: Final = "('', 1::bigint, 0::bigint)"
MARK: Final = (
    "insert into exported_days (day, exported_at, place, row_counts)"
    " values ($1, clock_timestamp(), $2, cast($3 as text)::jsonb)"
    " on conflict (day) do update set exported_at = excluded.exported_at, place = excluded.place,"
    " row_counts = excluded.row_counts"
)


class NotOver(Exception):
    """The day has not ended, or only just: rows of it may still come. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A day that was exported: where its tables lie, and how many rows of each."""

    day: date
    place: str
    rows: Mapping[str, int]


def export_day(database_url: str, day: date, out: str) -> Exported:
    """Write every row of a day to ``out/log/TABLE/day=…/rows.parquet``, and mark the day as exported.

    ``out`` is a folder, or a URI that Arrow knows (``s3://``, ``gs://``, ``hdfs://``, ``file://``).

    Raises:
        NotOver: when rows of the day may still come.
        OSError: when a file cannot be written; the day is not marked then, and older files of it are whole.
        adbc_driver_manager.Error: when the database cannot be read.
    """
    files, root = located(out)
    place = f"{root}/log"
    counts = {}
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read read only")
        _check_over(cursor, day)
        for table, sql in selects(cursor, day).items():
            cursor.execute(sql)
            counts[table] = write(files, f"{place}/{table}/day={day}", cursor.fetch_record_batch())
    shown = f"{out.rstrip('/')}/log" if "://" in out else place
    with connected(database_url) as connection, connection.cursor() as cursor:
        bind(cursor, MARK, [(day, shown, to_json(counts))], (DATE, TEXT, TEXT))
        connection.commit()
    return Exported(day, shown, counts)


def selects(cursor: adbc.Cursor, day: date) -> dict[str, str]:
    """Return the query of each table's day."""
    within = f"at >= '{day} 00:00:00+00' and at < '{day + timedelta(days=1)} 00:00:00+00'"
    return {"record_log": _records(cursor, day)} | {name: sql.format(day=within) for name, sql in SELECTS.items()}


def _records(cursor: adbc.Cursor, day: date) -> str:
    """Return the query of a day's records, by their numbers: there is no index on their dates."""

    def rows(sql: str) -> list[tuple[Any, ...]]:
        cursor.execute(sql)
        return list(cursor.fetchall())

    try:
        groups = [one for one in plan_day(rows, day).groups if one.last >= one.first]
    except MissingDay:
        groups = []
    parts = [
        ", ".join(f"({quoted(one.group)}, {one.first}::bigint, {one.last}::bigint)" for one in some)
        for some in batched(groups)
    ]
    return " union all ".join(RECORDS.format(parts=some) for some in parts or [NO_RECORDS])


def _check_over(cursor: adbc.Cursor, day: date) -> None:
    cursor.execute("select extract(epoch from clock_timestamp())::float8")
    now = datetime.fromtimestamp(cursor.fetchone()[0], UTC)
    settled = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1) + SETTLES
    if now < settled:
        raise NotOver(f"rows of {day} may still come; it can be exported from {settled:%Y-%m-%d %H:%M} (UTC) on")


def located(out: str) -> tuple[Any, str]:
    """Return the file system that ``out`` is on, and the path there.

    Raises:
        OSError: when its kind is not known, or it cannot be reached.
    """
    if "://" not in out:
        return arrow_fs.LocalFileSystem(), str(Path(out).absolute())
    try:
        # Spark has a scheme of its own for buckets.
        files, path = arrow_fs.FileSystem.from_uri(out.rstrip("/").replace("s3a://", "s3://", 1))
    except pa.ArrowException as error:
        raise OSError(f"{out} is no place to export to: {error}") from error
    return files, path


def write(files: Any, folder: str, batches: pa.RecordBatchReader) -> int:
    """Write batches to ``folder/rows.parquet``, in place of what is there; return how many rows they had.

    Raises:
        OSError: when it cannot be written; what was there stays.
    """
    files.create_dir(folder, recursive=True)
    # Readers skip names that begin with a dot.
    unfinished, count = f"{folder}/.rows.{uuid4().hex}", 0
    try:
        with (
            files.open_output_stream(unfinished) as sink,
            pq.ParquetWriter(sink, batches.schema, compression="zstd") as out,
        ):
            for batch in _filled(batches):
                out.write_batch(batch)
                count += batch.num_rows
        files.move(unfinished, f"{folder}/rows.parquet")
    except BaseException:
        _remove(files, unfinished)
        raise
    return count


def _filled(batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    return (batch for batch in batches if batch.num_rows)


def _remove(files: Any, path: str) -> None:
    if files.get_file_info(path).type != arrow_fs.FileType.NotFound:
        files.delete_file(path)
