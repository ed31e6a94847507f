"""Parquet files of an audit, a folder for each table and day, sorted by group. A day is replaced whole, never in part.

Arrow writes them where the rows are: Spark's Python workers those that grow with the day, the driver the others. So a
day that is audited again keeps nothing of its last audit, and a write that fails leaves what was there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext

from batonpass.audit.findings import GROUP, ordered
from batonpass.audit.places import located, remove, replace, sweep, unfinished, within, write_batches
from batonpass.codec.answers import rfc3339

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from batonpass.audit.findings import AuditResult

NAME_BYTES_MAX: Final = 80
"""Up to this length a group's name is the name of its folder in ``only``, with room for each byte to be escaped."""

_TEXT, _WHOLE, _NUMBER = pa.string(), pa.int64(), pa.float64()
FINDINGS: Final = pa.schema(
    [
        *((name, _TEXT) for name in (GROUP, "law", "severity", "task", "member", "detail")),
        ("sequences", pa.list_(_WHOLE)),
        ("at", pa.list_(_TEXT)),
    ]
)
MEASURES: Final = pa.schema([(GROUP, _TEXT), ("measure", _TEXT), ("value", _NUMBER)])
DOWNTIME: Final = pa.schema(
    [
        *((GROUP, _TEXT), ("cause", _TEXT), ("count", _WHOLE)),
        *((name, _NUMBER) for name in ("p50_ms", "p99_ms", "max_ms", "total_ms")),
    ]
)


@dataclass(frozen=True, slots=True)
class WriteParts:
    """A step of ``mapInArrow``: writes the rows it is given to one file of a folder; yields its name and how many."""

    out: str
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row, or none where there is nothing to write."""
        filled = (one for one in batches if one.num_rows)
        first = next(filled, None)
        if first is not None:
            files, root = located(self.out)
            # In the order of the groups; each try of a task writes a file of its own.
            context = TaskContext.get()
            name = f"part-{context.partitionId() if context is not None else 0:05}-{uuid4().hex}.parquet"
            count = write_batches(files, f"{root}/{self.folder}/{name}", first.schema, chain([first], filled))
            yield pa.RecordBatch.from_pydict({"name": [name], "rows": [count]})


def write_day(frame: DataFrame, out: str, name: str, day: date) -> str:
    """Write the rows of one day to ``out/name/day=…``, sorted by group, in place of what is there; return that folder.

    ``frame`` has a column ``group_id``.

    Raises:
        OSError: when files are missing of what was written, or the day could not be put into its place; the old one
            is there again.
    """

    def write(files: Any, folder: str, beside: str) -> None:
        step = WriteParts(out, beside)
        written = frame.sort(GROUP).mapInArrow(step, "name string, rows long").collect()
        _keep_only(files, folder, {row["name"]: row["rows"] for row in written})
        if not written:
            # So that whoever reads the table finds its columns.
            write_batches(files, f"{folder}/part-none.parquet", frame.limit(0).toArrow().schema, ())

    return _write(out, name, day, write)


def _write(out: str, name: str, day: date, write: Callable[[Any, str, str], None]) -> str:
    files, root = located(out)
    table, beside = f"{root}/{name}", f"{name}/{unfinished(day)}"
    folder, place = f"{root}/{beside}", f"{table}/day={day}"
    try:
        write(files, folder, beside)
        replace(files, folder, place)
    finally:
        remove(files, folder)
    sweep(files, table)
    return place


def _keep_only(files: Any, folder: str, written: dict[str, int]) -> None:
    """Remove what tries of tasks left whose results did not count, and check that all others are there.

    Raises:
        OSError: when some are not: executors wrote them to folders of their own.
    """
    there = {one.base_name: one.path for one in within(files, folder)}
    lost = sum(rows for name, rows in written.items() if name not in there)
    if lost:
        handed = sum(written.values())
        raise OSError(
            f"{handed - lost:,} of {handed:,} rows are in {folder}: executors write to a folder of that name on their own"
            " machines; name a folder that all machines share, or a URI of a store (s3://…), and run it again"
        )
    for name, path in there.items():
        if name not in written:
            files.delete_file(path)


def write_result(result: AuditResult, out: str) -> None:
    """Write the findings and measures of an audit: tables ``findings``, ``measures`` and ``downtime``.

    Raises:
        OSError: when they cannot be written.
    """
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
        (
            *(one.group, one.law, one.severity.value, one.task, one.member, one.detail),
            *(list(one.sequences), [rfc3339(at) for at in one.at]),
        )
        for one in sorted(ordered(result.findings), key=lambda one: one.group)
    ]
    tables: tuple[tuple[str, list[Any], pa.Schema], ...] = (
        ("measures", measures, MEASURES),
        ("downtime", downtime, DOWNTIME),
        ("findings", findings, FINDINGS),
    )
    for name, rows, schema in tables:
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        batch = pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
        )

        def write(files: Any, folder: str, _: str, batch: pa.RecordBatch = batch) -> None:
            write_batches(files, f"{folder}/part-{uuid4().hex}.parquet", batch.schema, [batch])

        _write(out, name, result.day, write)


def place_of(group: str, out: str) -> str:
    """Return where an audit of one group writes: a folder of its own, so that it replaces no results of all groups."""
    long = len(group.encode()) > NAME_BYTES_MAX
    name = f"{group[:20]}~{sha256(group.encode()).hexdigest()[:16]}" if long else group
    return f"{out.rstrip('/')}/only/{name}"
