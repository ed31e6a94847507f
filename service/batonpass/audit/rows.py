"""What one group's day comes to in rows: one declaration a kind, for Arrow, Spark, Parquet and the plots alike."""

from collections.abc import Iterable, Iterator
from types import NoneType
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

import pyarrow as pa

GROUP: Final = "group_id"
"""The column of a group's name, in every frame and file of the audit."""


class Gap(NamedTuple):
    """A stretch of the day in which no member ran a task that had been granted before.

    An open one has the end of the day, or of the task, as ``to_ms``, and no ``next_up_seq``. ``unowned_ms``: for how
    long the task was granted to nobody.
    """

    task: str
    cause: str
    from_ms: int
    to_ms: int
    gap_ms: int
    unowned_ms: int
    runner: str | None
    next_runner: str | None
    why: str | None
    down_seq: int | None
    next_up_seq: int | None


class Warmup(NamedTuple):
    """A warmup; ``lag`` is what it had to restore, ``outcome`` is promoted, standby, dropped or open.

    ``fresh``: the member had no copy of the task before. ``name`` is what people call the member.
    """

    task: str
    member: str
    from_seq: int
    from_at_ms: int
    from_ms: int
    to_seq: int | None
    to_at_ms: int | None
    to_ms: int | None
    outcome: str
    lag: int | None
    fresh: bool
    name: str


class Interval(NamedTuple):
    """A stretch in which a member had the right to run a task; ``to_ms`` is None where it still had it at the end.

    ``name`` is what people call the member.
    """

    task: str
    member: str
    from_seq: int
    from_ms: int
    to_seq: int | None
    to_ms: int | None
    running_ms: int | None
    token: int | None
    ready: bool | None
    why: str | None
    name: str

    def states(self) -> list[tuple[str, int, int | None]]:
        """Return from when to when the member restored the task, and then ran it."""
        if self.running_ms is None:
            return [("restoring", self.from_ms, self.to_ms)]
        runs_ms = max(self.from_ms, self.running_ms)
        restored = [("restoring", self.from_ms, runs_ms)] if runs_ms > self.from_ms else []
        return [*restored, ("running", runs_ms, self.to_ms)]


class Generation(NamedTuple):
    """A generation as readers are shown it; ``score`` is how uneven its target was."""

    number: int
    at_ms: int
    members: int
    tasks: int
    score: float | None
    moves: int
    lower_bound: int


class FindingRow(NamedTuple):
    """A finding; ``at`` are times as RFC 3339 has them."""

    law: str
    severity: str
    task: str | None
    member: str | None
    detail: str
    sequences: tuple[int, ...]
    at: tuple[str, ...]


class Measure(NamedTuple):
    """A measure of the day; None where it is not known."""

    measure: str
    value: float | None


class Downtime(NamedTuple):
    """How the lengths of a group's gaps of one cause are distributed."""

    cause: str
    count: int  # type: ignore[assignment]  # the column's name, which a tuple has as well
    p50_ms: float
    p99_ms: float
    max_ms: float
    total_ms: float


_TYPES: Final = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    tuple[int, ...]: pa.list_(pa.int64()),
    tuple[str, ...]: pa.list_(pa.string()),
}


def schema_of(kind: type) -> pa.Schema:
    """Return the columns of rows of a kind: their group, and their own."""
    fields = [(GROUP, pa.string())]
    for name, hint in get_type_hints(kind).items():
        # Of `int | None` the first.
        one = hint if hint in _TYPES else next(part for part in get_args(hint) if part is not NoneType)
        fields.append((name, _TYPES[one]))
    return pa.schema(fields)


Row = TypeVar("Row", bound=tuple[Any, ...])
Of = tuple[str, Row]
"""A row, behind the group that it is of."""


def batch_of(kind: type, rows: Iterable[Of[Any]]) -> pa.RecordBatch:
    schema = schema_of(kind)
    columns = list(zip(*((group, *row) for group, row in rows), strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_in(kind: type[Row], batches: Iterable[pa.RecordBatch]) -> Iterator[Of[Row]]:
    """Yield the rows of batches, each with its group."""
    for batch in batches:
        for group, *values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield group, kind(*values)
