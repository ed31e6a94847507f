"""Parquet tables of an audit: a file for each table and day, sorted by group, which replaces the day's last one.

The driver alone writes. Rows that grow with the day come to it from Spark a part at a time (``spread.rows_of``), so
executors need no folder in common with it, and what one of them tried in vain leaves nothing.
"""

from collections.abc import Iterable
from datetime import date
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from batonpass.audit.findings import ordered
from batonpass.audit.places import located, write_table
from batonpass.audit.rows import Downtime, FindingRow, Measure, Of, batch_of, schema_of
from batonpass.codec.answers import rfc3339

if TYPE_CHECKING:
    import pyarrow as pa

    from batonpass.audit.findings import AuditResult

NAME_BYTES_MAX: Final = 80
"""Up to this length a group's name is the name of its folder in ``only``, with room for each byte to be escaped."""


def write_day(batches: "Iterable[pa.RecordBatch]", kind: type, out: str, name: str, day: date) -> None:
    """Write rows of a kind as those of one day, to ``out/name/day=…``, in place of what is there.

    Raises:
        OSError: when it cannot be written; what was there stays.
    """
    files, root = located(out)
    write_table(files, f"{root}/{name}/day={day}", schema_of(kind), batches)


def write_result(result: "AuditResult", out: str) -> None:
    """Write the findings and measures of an audit: tables ``findings``, ``measures`` and ``downtime``.

    Raises:
        OSError: when they cannot be written.
    """
    measures = [
        (day.group, Measure(name, None if value is None else float(value)))
        for day in result.groups
        for name, value in day.measures.items()
    ]
    downtime = [
        (day.group, Downtime(cause, int(of["count"]), *(of[name] for name in Downtime._fields[2:])))
        for day in result.groups
        for cause, of in day.downtime_by_cause.items()
    ]
    findings = [
        (one.group, FindingRow(one.law, one.severity.value, one.task, one.member, one.detail, one.sequences, at))
        for one in sorted(ordered(result.findings), key=lambda one: one.group)
        for at in [tuple(map(rfc3339, one.at))]
    ]
    tables: tuple[tuple[str, type, list[Of[Any]]], ...] = (
        ("measures", Measure, measures),
        ("downtime", Downtime, downtime),
        ("findings", FindingRow, findings),
    )
    for name, kind, rows in tables:
        write_day([batch_of(kind, rows)], kind, out, name, result.day)


def place_of(group: str, out: str) -> str:
    """Return where an audit of one group writes: a folder of its own, so that it replaces no results of all groups."""
    long = len(group.encode()) > NAME_BYTES_MAX
    name = f"{group[:20]}~{sha256(group.encode()).hexdigest()[:16]}" if long else group
    return f"{out.rstrip('/')}/only/{name}"
