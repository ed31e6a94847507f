"""An exported day in a database of its own, so that a day which Postgres has dropped is audited like any other."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import parquet as pq

from batonpass.audit.database import connected
from batonpass.audit.export import AROUND, SETTLES, TABLES, columns_of
from batonpass.audit.places import exists, located

if TYPE_CHECKING:
    import adbc_driver_postgresql.dbapi as adbc


class NotExported(Exception):
    """The folder has no export of the day, or one of an earlier version."""


def as_of(day: date) -> datetime:
    """Return when an exported day is audited as of: when it was over, and nothing of it had been deleted."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1) + SETTLES


def reload(database_url: str, out: str, day: date) -> None:
    """Write the rows of an exported day into an empty database that has Batonpass' tables.

    Raises:
        NotExported: when ``out`` has no whole export of the day; nothing was written.
        OSError: when it cannot be read.
    """
    files, root = located(out)
    paths = {table: list(_files_of(files, f"{root}/log", table, day)) for table in TABLES}
    lacking = next((table for table, found in paths.items() if not found), None)
    if lacking is not None:
        raise NotExported(
            f"{out} has no whole export of {day}: there is no log/{lacking}/day={day}. `batonpass audit --out` exports a"
            " day; versions before 0.2 exported no snapshots and heads"
        )
    with connected(database_url) as connection, connection.cursor() as cursor:
        for table, found in paths.items():
            for path in found:
                _load(cursor, files, table, path)
        connection.commit()
        cursor.execute("analyze")
        connection.commit()


def _files_of(files: Any, log: str, table: str, day: date) -> Iterator[str]:
    for folder in (table, f"{AROUND}{table}"):
        path = f"{log}/{folder}/day={day}/rows.parquet"
        if exists(files, path):
            yield path


def _load(cursor: "adbc.Cursor", files: Any, table: str, path: str) -> None:
    with files.open_input_file(path) as source:
        rows = pq.ParquetFile(source)
        schema = rows.schema_arrow
        # Instants as numbers: COPY refuses those that are out of range, and a damaged row may have one.
        kinds = pa.schema([pa.field(one.name, pa.int64() if _is_instant(one) else one.type) for one in schema])
        batches = pa.RecordBatchReader.from_batches(kinds, (_as_numbers(one, kinds) for one in rows.iter_batches()))
        cursor.adbc_ingest("reloaded", batches, mode="create")
    is_json = columns_of(cursor, table)
    said = ", ".join(_said(one, is_json=is_json[one.name]) for one in schema)
    cursor.execute(f"insert into {table} ({', '.join(schema.names)}) select {said} from reloaded")  # noqa: S608 - our own columns
    cursor.execute("drop table reloaded")


def _is_instant(field: pa.Field) -> bool:
    return bool(pa.types.is_timestamp(field.type))


def _as_numbers(batch: pa.RecordBatch, kinds: pa.Schema) -> pa.RecordBatch:
    arrays = [one.view(kind) if one.type != kind else one for one, kind in zip(batch.columns, kinds.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=kinds)


_DAMAGED_US: Final = 2**58
"""So many microseconds from 1970, about nine thousand years, no instant of a log is away."""


def _said(field: pa.Field, *, is_json: bool) -> str:
    """Return in SQL what goes into a column."""
    name = field.name
    if _is_instant(field):
        instant = f"timestamptz 'epoch' + {name} * interval '1 microsecond'"
        return f"case when abs({name} / 2) > {_DAMAGED_US // 2} then 'infinity' else {instant} end"
    return f"{name}::json" if is_json else name
