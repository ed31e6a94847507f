"""Takes a day's rows out of Postgres into Parquet, before retention drops them, and writes them into a database again.

Every table's day is one file, streamed batch by batch: it takes the memory of one batch, however large the day is. All
files show the database at one instant. A file is written beside its place and renamed when it is whole, so a day may
be exported again at any time. Only when every file is in its place is the day marked as exported, which is what
retention waits for (``BATONPASS_KEEP_UNEXPORTED_DAYS``).

In a database of its own (``reload``), a day that Postgres has dropped is audited like any other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import parquet as pq

from batonpass.audit.database import DATE, TEXT, bind, connected
from batonpass.audit.places import exists, located, write_table
from batonpass.audit.plan import GroupPlan, MissingDay, batched, plan_day, quoted, time_of_database
from batonpass.audit.reading import CHAIN_BEGIN, CHANGES
from batonpass.audit.runs import to_json

if TYPE_CHECKING:
    import adbc_driver_postgresql.dbapi as adbc

SETTLES: Final = timedelta(minutes=10)
"""How long after a day rows of it may still come: coordinators write the time of their own clocks."""

TABLES: Final = ("record_log", "group_heads", "snapshots", "generations", "assignment_events", "traces", "samples")
"""What is exported, every column of it, sorted by group; JSON is written as its text, byte for byte."""

WITHIN_GROUP: Final = {"record_log": "seq", "samples": "at", "group_heads": "version"}
"""By what the rows of a group are sorted; those of the other tables are by version."""

_IN_RANGES: Final = (
    "select rows.* from {table} join (values {ranges}) as ranges(of_group, first, last)"
    " on group_id = of_group and rows.{number} between first and last where {where}"
)
_NO_RANGE: Final = "('', 1::bigint, 0::bigint)"
AROUND: Final = "around/"
"""The folder of rows of other days that an audit of the day reads: its beginning, and decisions around midnight."""

MARK: Final = (
    "insert into exported_days (day, exported_at, place, row_counts)"
    " values ($1, clock_timestamp(), $2, cast($3 as text)::jsonb)"
    " on conflict (day) do update set exported_at = excluded.exported_at, place = excluded.place,"
    " row_counts = excluded.row_counts"
)


class NotOver(Exception):
    """The day has not ended, or only just: rows of it may still come. Nothing was written."""


class NotExported(Exception):
    """The folder has no export of the day, or one of an earlier version."""


def as_of(day: date) -> datetime:
    """Return when a day may be exported, and as of when it is audited then: it was over, and nothing was deleted."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1) + SETTLES


def export_day(database_url: str, day: date, out: str) -> Mapping[str, int]:
    """Write every row of a day to ``out/log/TABLE/day=…/rows.parquet``; return how many rows each table has.

    The day is marked as exported then. What an audit of the day needs of other days goes to ``out/log/around/TABLE``.

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
        if time_of_database(partial(_asked, cursor)) < (over := as_of(day)):
            raise NotOver(f"rows of {day} may still come; it can be exported from {over:%Y-%m-%d %H:%M} (UTC) on")
        for table, sql in selects(cursor, day).items():
            cursor.execute(sql)
            rows = cursor.fetch_record_batch()
            filled = (batch for batch in rows if batch.num_rows)
            counts[table] = write_table(files, f"{place}/{table}/day={day}", rows.schema, filled)
    shown = f"{out.rstrip('/')}/log" if "://" in out else place
    with connected(database_url) as connection, connection.cursor() as cursor:
        bind(cursor, MARK, [(day, shown, to_json(counts))], (DATE, TEXT, TEXT))
        connection.commit()
    return counts


def _asked(cursor: "adbc.Cursor", sql: str) -> list[tuple[Any, ...]]:
    cursor.execute(sql)
    return list(cursor.fetchall())


def columns_of(cursor: "adbc.Cursor", table: str) -> dict[str, bool]:
    """Return the columns of a table, in their order, and which of them are JSON."""
    sql = (
        "select attname::text, atttypid in ('json'::regtype, 'jsonb'::regtype) from pg_attribute"  # noqa: S608 - our own tables
        f" where attrelid = '{table}'::regclass and attnum > 0 and not attisdropped order by attnum"
    )
    return dict(_asked(cursor, sql))


def selects(cursor: "adbc.Cursor", day: date) -> dict[str, str]:
    """Return the query of each table's day, and of the rows around it."""
    try:
        groups: Sequence[GroupPlan] = plan_day(partial(_asked, cursor), day).groups
    except MissingDay:
        groups = ()
    sources = {table: _source(table, columns_of(cursor, table)) for table in TABLES}
    within = f"at >= '{day} 00:00:00+00' and at < '{day + timedelta(days=1)} 00:00:00+00'"
    by_day = ("snapshots", "generations", "assignment_events", "traces", "samples")
    found = {table: f"select * from {sources[table]} where {within}" for table in by_day}  # noqa: S608 - our own tables

    def add(table: str, ranges: Iterable[_Range], where: str = "true", *, folder: str = AROUND) -> None:
        found[f"{folder}{table}"] = _in_ranges(
            sources[table], "seq" if table == "record_log" else "version", ranges, where
        )

    # There is no index on the dates of records.
    add("record_log", [(one, one.first, one.last) for one in groups], folder="")
    found["group_heads"] = f"select * from {sources['group_heads']}"  # noqa: S608 - our own tables
    edges: list[_Range] = []
    for one in groups:
        edges += [(one, max(1, one.base), one.first - 1), (one, one.last + 1, one.last + 1)]
        edges += [(one, one.beyond, one.beyond)] if one.beyond is not None else []
    add("record_log", edges)
    elsewhere = f"not ({within})"
    add("snapshots", [(one, one.base, one.last) for one in groups], elsewhere)
    for table in ("generations", "assignment_events"):
        add(table, [(one, one.first - 1, one.last - 1) for one in groups], elsewhere)
    chains: list[_Range] = [
        (one, CHAIN_BEGIN.format(group=quoted(one.group), first=one.first), one.last - 1)
        for one in groups
        if one.last >= one.first
    ]
    add("traces", chains, elsewhere)
    order = {name: WITHIN_GROUP.get(name.removeprefix(AROUND), "version") for name in found}
    return {name: f"{sql} order by group_id, {order[name]}" for name, sql in found.items()}


_Range = tuple[GroupPlan, int | str, int]
"""A group, and from which number to which, each as SQL."""


def _source(table: str, columns: Mapping[str, bool]) -> str:
    """Return a table as it is exported: with the changes of a large commit, which stand in another for some seconds."""
    said = ", ".join(f"{name}::text as {name}" if is_json else name for name, is_json in columns.items())
    tables = CHANGES if table in CHANGES else (table,)
    return f"({' union all '.join(f'select {said} from {one}' for one in tables)}) as rows"  # noqa: S608 - our own tables


def _in_ranges(source: str, number: str, ranges: Iterable[_Range], where: str) -> str:
    """Return the query of the rows of groups whose numbers are in ranges."""
    said = [f"({quoted(one.group)}, {first}::bigint, {last}::bigint)" for one, first, last in ranges] or [_NO_RANGE]
    return " union all ".join(
        _IN_RANGES.format(table=source, ranges=", ".join(some), number=number, where=where) for some in batched(said)
    )


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
