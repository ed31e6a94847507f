"""Takes a day's rows out of Postgres into Parquet, before retention drops them.

Every table's day is one file, streamed batch by batch: it takes the memory of one batch, however large the day is. All
files show the database at one instant. A file is written beside its place and renamed when it is whole, so a day may
be exported again at any time. Only when every file is in its place is the day marked as exported, which is what
retention waits for (``BATONPASS_KEEP_UNEXPORTED_DAYS``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from batonpass.audit.database import DATE, TEXT, bind, connected
from batonpass.audit.places import located, whole, write_batches
from batonpass.audit.plan import GROUPS_AT_ONCE, GroupPlan, MissingDay, plan_day, quoted
from batonpass.audit.runs import to_json

if TYPE_CHECKING:
    import adbc_driver_postgresql.dbapi as adbc

SETTLES: Final = timedelta(minutes=10)
"""How long after a day rows of it may still come: coordinators write the time of their own clocks."""

_CHANGES: Final = (
    "group_id, at, version, place, task_id, member_id, kind, role_before, role, state, generation, member_epoch, token,"
    " warm, why, heard_at"
)
COLUMNS: Final[Mapping[str, str]] = {
    "record_log": "group_id, seq, coordinator_epoch, at, kind, version, payload::text as payload",
    "group_heads": "group_id, version, coordinator_epoch, owner, recovered_at",
    "snapshots": "group_id, version, format, at, payload",
    "generations": "group_id, number, version, group_epoch, at, triggers, members, tasks, moves, lower_bound, warmups,"
    " score_before, score, decide_ms, moved::text as moved, reasons::text as reasons",
    "assignment_events": _CHANGES,
    "traces": "group_id, at, version, format, code, cause, payload::text as payload",
    "samples": "group_id, at, copies::text as copies, behind",
}
"""The columns of each table that is exported; JSON is written as its text, byte for byte."""

# The changes of a large commit stand in another table for some seconds.
_EVERY_CHANGE: Final = (
    f"(select {_CHANGES} from assignment_events union all select {_CHANGES} from fresh_changes) as every"  # noqa: S608 - constants
)
_IN_RANGES: Final = (
    "select {columns} from {table} join (values {ranges}) as ranges(of_group, first, last)"
    " on group_id = of_group and {number} between first and last where {where}"
)
_NO_RANGES: Final = "('', 1::bigint, 0::bigint)"
# Where the chain of traces begins that the day's traces go on with (``reading``).
_CHAIN_BEGIN: Final = (
    "coalesce((select max(version) from traces t where t.group_id = {group} and version < {first}"
    " and payload -> 'soft' ->> 'from_empty' = 'true'), {first} - 1)"
)
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


@dataclass(frozen=True, slots=True)
class Exported:
    """A day that was exported: where its tables lie, and how many rows of each."""

    day: date
    place: str
    rows: Mapping[str, int]


def export_day(database_url: str, day: date, out: str) -> Exported:
    """Write every row of a day to ``out/log/TABLE/day=…/rows.parquet``, and mark the day as exported.

    What an audit of the day needs of other days goes to ``out/log/around/TABLE``.

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
    """Return the query of each table's day, and of the rows around it."""

    def rows(sql: str) -> list[tuple[Any, ...]]:
        cursor.execute(sql)
        return list(cursor.fetchall())

    try:
        plan = plan_day(rows, day)
    except MissingDay:
        plan = None
    groups = plan.groups if plan is not None else ()
    within = f"at >= '{day} 00:00:00+00' and at < '{day + timedelta(days=1)} 00:00:00+00'"
    by_day = ("snapshots", "generations", "assignment_events", "traces", "samples")
    found = {table: f"select {COLUMNS[table]} from {_source(table)} where {within}" for table in by_day}  # noqa: S608
    # There is no index on the dates of records.
    found["record_log"] = _in_ranges("record_log", [(one, one.first, one.last) for one in groups])
    found["group_heads"] = f"select {COLUMNS['group_heads']} from group_heads"  # noqa: S608 - constants
    edges: list[_Range] = []
    for one in groups:
        edges += [(one, max(1, one.base), one.first - 1), (one, one.last + 1, one.last + 1)]
        edges += [(one, one.beyond, one.beyond)] if one.beyond is not None else []
    found[f"{AROUND}record_log"] = _in_ranges("record_log", edges)
    elsewhere = f"not ({within})"
    bases: list[_Range] = [(one, one.base, one.last) for one in groups]
    found[f"{AROUND}snapshots"] = _in_ranges("snapshots", bases, elsewhere)
    for table in ("generations", "assignment_events"):
        found[f"{AROUND}{table}"] = _in_ranges(table, [(one, one.first - 1, one.last - 1) for one in groups], elsewhere)
    chains: list[_Range] = [
        (one, _CHAIN_BEGIN.format(group=quoted(one.group), first=one.first), one.last - 1)
        for one in groups
        if one.last >= one.first
    ]
    found[f"{AROUND}traces"] = _in_ranges("traces", chains, elsewhere)
    return found


_Range = tuple[GroupPlan, int | str, int]
"""A group, and from which number to which, each as SQL."""


def _source(table: str) -> str:
    return _EVERY_CHANGE if table == "assignment_events" else table


def _in_ranges(table: str, ranges: Sequence[_Range], where: str = "true") -> str:
    """Return the query of the rows of groups whose numbers are in ranges."""
    number = "seq" if table == "record_log" else f"{'every' if table == 'assignment_events' else table}.version"
    said = [f"({quoted(one.group)}, {first}::bigint, {last}::bigint)" for one, first, last in ranges]
    parts = [said[begin : begin + GROUPS_AT_ONCE] for begin in range(0, len(said), GROUPS_AT_ONCE)] or [[_NO_RANGES]]
    source, columns = _source(table), COLUMNS[table]
    return " union all ".join(
        _IN_RANGES.format(columns=columns, table=source, ranges=", ".join(some), number=number, where=where)
        for some in parts
    )


def _check_over(cursor: adbc.Cursor, day: date) -> None:
    cursor.execute("select extract(epoch from clock_timestamp())::float8")
    now = datetime.fromtimestamp(cursor.fetchone()[0], UTC)
    settled = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1) + SETTLES
    if now < settled:
        raise NotOver(f"rows of {day} may still come; it can be exported from {settled:%Y-%m-%d %H:%M} (UTC) on")


def write(files: Any, folder: str, batches: pa.RecordBatchReader) -> int:
    """Write batches to ``folder/rows.parquet``, in place of what is there; return how many rows they had.

    Raises:
        OSError: when it cannot be written; what was there stays.
    """
    with whole(files, f"{folder}/rows.parquet") as unfinished:
        return write_batches(files, unfinished, batches.schema, (batch for batch in batches if batch.num_rows))
