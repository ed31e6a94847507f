"""Parquet tables of an audit: a file for each table and day, sorted by group, which replaces the day's last one.

The driver alone writes. Rows that grow with the day come to it from Spark a part at a time (``spread.rows_of``), so
executors need no folder in common with it, and what one of them tried in vain leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from batonpass.audit.findings import GROUP, ordered
from batonpass.audit.places import located, write_table
from batonpass.codec.answers import rfc3339

if TYPE_CHECKING:
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


def write_day(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: str, name: str, day: date) -> None:
    """Write the rows of one day to ``out/name/day=…``, in place of what is there.

    Raises:
        OSError: when it cannot be written; what was there stays.
    """
    files, root = located(out)
    write_table(files, f"{root}/{name}/day={day}", schema, batches)


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
        arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        write_day([pa.RecordBatch.from_arrays(arrays, schema=schema)], schema, out, name, result.day)


def place_of(group: str, out: str) -> str:
    """Return where an audit of one group writes: a folder of its own, so that it replaces no results of all groups."""
    long = len(group.encode()) > NAME_BYTES_MAX
    name = f"{group[:20]}~{sha256(group.encode()).hexdigest()[:16]}" if long else group
    return f"{out.rstrip('/')}/only/{name}"
