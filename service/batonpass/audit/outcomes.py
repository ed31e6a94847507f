"""What the parts of a day come to, as rows of one shape: each is of one kind, the columns of the others are null."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from batonpass.audit import checks, checks_tasks, downtime, measures, pictures, timeline
from batonpass.audit.findings import GROUP
from batonpass.audit.part import DEFAULT_LIMITS, KEPT, Columns, Limits, Part, kept

if TYPE_CHECKING:
    from collections.abc import Callable

TYPES: Final[Mapping[str, pa.DataType]] = {
    "varchar": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "bigint[]": pa.list_(pa.int64()),
}


class Kind(NamedTuple):
    """Which rows there are of a kind, with which columns; ``is_frame``: they grow with the day."""

    columns: Columns
    rows: Callable[[Part], Iterator[pa.RecordBatch]]
    is_frame: bool


def _table(name: str, columns: Columns, *, is_frame: bool) -> Kind:
    return Kind(columns, lambda part: part.arrow(columns, f"select * from {name}"), is_frame)  # noqa: S608 - our own words


KINDS: Final[Mapping[str, Kind]] = {
    "finding": Kind(KEPT, kept, is_frame=False),
    "day": _table("days", measures.DAY, is_frame=False),
    "cause": _table("causes", downtime.CAUSES, is_frame=False),
    "gap": _table("gaps", downtime.GAPS, is_frame=True),
    "warmup": _table("warmups", timeline.WARMUPS, is_frame=True),
    "interval": _table("intervals", timeline.INTERVALS, is_frame=True),
    "name": _table("names", pictures.NAMES, is_frame=True),
}


def _struct(columns: Columns) -> pa.DataType:
    return pa.struct([pa.field(name, TYPES[kind]) for name, kind in columns.items() if name != GROUP])


OUTCOME: Final = pa.schema(
    [pa.field(GROUP, pa.string()), *(pa.field(name, _struct(kind.columns)) for name, kind in KINDS.items())]
)
"""The group, and for each kind one column that holds the rest of its columns."""


def outcome(
    rows: Iterable[pa.RecordBatch], begin_ms: int, end_ms: int, limits: Limits = DEFAULT_LIMITS, *, frames: bool
) -> Iterator[pa.RecordBatch]:
    """Yield what a part of the day comes to (``OUTCOME``), from all rows of its groups (``flatten.CHANGES``).

    Without ``frames`` only what grows with groups and with what is wrong.
    """
    with Part(rows, begin_ms, end_ms, limits) as part:
        for step in (*timeline.STEPS, *checks.LAWS, *checks_tasks.LAWS, *downtime.STEPS, *measures.STEPS):
            step(part)
        if frames:
            timeline.intervals(part)
            pictures.names(part)
        for name, kind in KINDS.items():
            if frames or not kind.is_frame:
                for batch in kind.rows(part):
                    yield _wrapped(name, batch)


def _wrapped(name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    whole = OUTCOME.field(name)
    columns = [batch.column(one.name).cast(one.type) for one in whole.type]
    filled = pa.StructArray.from_arrays(columns, fields=list(whole.type))
    arrays = [
        batch.column(GROUP).cast(pa.string())
        if one.name == GROUP
        else filled
        if one.name == name
        else pa.nulls(batch.num_rows, one.type)
        for one in OUTCOME
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=OUTCOME)
