"""One part of a day: whole groups, audited in a temporary database in the executor's memory.

Spark spreads the parts and gathers their results. Within a part, DuckDB carries out the windows and sums: each step
is a query with explicit frames, and has its columns named and typed at both ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from uuid import uuid4

import duckdb
import pyarrow as pa

from batonpass.audit.findings import FINDINGS_PER_LAW, Severity
from batonpass.audit.flatten import BOUNDS, CHANGES, GENERATION, LAG
from batonpass.laws import require_known

Columns = Mapping[str, str]
"""The columns of a table, by name, each with its type."""


def columns(declared: str) -> dict[str, str]:
    """Return columns as SQL declares them: names and types, with commas between."""
    return dict(one.split() for one in declared.split(","))


FOUND: Final = columns(
    "group_id varchar, law varchar, severity varchar, task varchar, member varchar, detail varchar,"
    " sequences bigint[], at bigint[]"
)
"""A finding; ``sequences`` are the records that prove it, the wrong one last, ``at`` when they were appended."""

BATCH_ROWS: Final = 50_000


class Limits(NamedTuple):
    """What one part may take: threads, and memory; beyond that it uses the disk."""

    threads: int = 1
    memory: str = "1GB"


DEFAULT_LIMITS: Final = Limits()

SETTINGS: Final = {
    # No extension is downloaded, and rows need no order but the one that a query asks for.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "preserve_insertion_order": "false",
    # The name of an unknown table is a mistake, never a Python variable of that name.
    "python_enable_replacements": "false",
}

_BEGIN: Final = """
    create macro told(value) as coalesce(value::varchar, '?');
    create macro time_of(ms) as
        coalesce(try(strftime(make_timestamp_ms(ms), '%Y-%m-%d %H:%M:%S.%g')), 'an unknown time');
    create temp view changes as select * from arrived where what not in ('{bounds}', '{generation}', '{lag}');
    create temp table bounds as
        select group_id, number as base, seq as first, token as last, ready as known, coordinator_epoch as base_epoch
          from arrived where what = '{bounds}';
    create temp table generations as
        select group_id, number, seq as version, at_ms, token as moves, until_ms as lower_bound,
               (word ->> 'members')::int as members, (word ->> 'tasks')::int as tasks, (word ->> 'score')::double as score
          from arrived where what = '{generation}';
    create temp table lags as
        select group_id, task, member, ms as at_ms, number as lag from arrived where what = '{lag}';
"""


class Part:
    """Groups with everything that is known of them, as tables; use it as a context manager.

    Tables that are there from the beginning: ``day`` (begin_ms, end_ms: one row), ``bounds`` (a row for each group:
    base, first, last, known, base_epoch; see ``plan.GroupPlan``), ``changes`` (see ``flatten.CHANGES``),
    ``generations``, and ``lags`` (how far warmups had come: what was left when they were granted, and at each sample).
    Macros: ``told(value)`` for a sentence, ``time_of(ms)``. Every other table is made by a step of `timeline`,
    `checks`, `downtime` or `measures`, in this order; the constant that has the table's name says what it holds.
    """

    def __init__(
        self, rows: Iterable[pa.RecordBatch], begin_ms: int, end_ms: int, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        temporary = str(Path(tempfile.gettempdir()) / f"batonpass-audit-{uuid4().hex}")
        own = {"threads": str(limits.threads), "memory_limit": limits.memory, "temp_directory": temporary}
        self._db = duckdb.connect(config={**SETTINGS, **own})
        arrived = pa.RecordBatchReader.from_batches(CHANGES, iter(rows))
        self._db.register("arriving", arrived)
        self._db.execute("create temp table arrived as select * from arriving")
        self._db.unregister("arriving")
        self._db.execute(_BEGIN.format(bounds=BOUNDS, generation=GENERATION, lag=LAG))
        self._db.execute(f"create temp table day as select {begin_ms}::bigint as begin_ms, {end_ms}::bigint as end_ms")
        self.make("found", FOUND, f"select {', '.join(f'null as {_quoted(name)}' for name in FOUND)} where false")

    def __enter__(self) -> Self:
        """Lend the part."""
        return self

    def __exit__(self, *_: object) -> None:
        """Forget everything."""
        self._db.close()

    def make(self, table: str, columns: Columns, select: str) -> None:
        """Make a table of exactly these columns from a query.

        Raises:
            duckdb.BinderException: when the query lacks one of them.
        """
        self._db.execute(f"create temp table {table} as select {_typed(columns)} from ({select})")  # noqa: S608 - our own words

    def find(self, law: str, severity: Severity, select: str, *, of_day: bool = False) -> None:
        """Add findings: a query for their group_id, task, member, detail, sequences and at.

        With ``of_day``, findings whose last record is of an earlier day are left out: they were found on that day.

        Raises:
            ValueError: when ``laws`` does not explain ``law``, even if the query finds nothing.
        """
        require_known(law)
        had = "coalesce(found.sequences[-1], bounds.first) >= bounds.first" if of_day else "true"
        columns = ", ".join(
            f"coalesce(list_filter({_quoted(name)}, lambda one: one is not null), []) as {_quoted(name)}"
            for name in ("sequences", "at")
        )
        found = f"group_id, '{law}', '{severity.value}', task, member, detail, {columns}"
        self._db.execute(
            f"insert into found select found.* from (select {found} from ({select})) found"  # noqa: S608 - our own words
            f" join bounds using (group_id) where {had}"
        )

    def drop(self, condition: str) -> None:
        """Remove the findings for which a condition is true."""
        self._db.execute(f"delete from found where {condition}")  # noqa: S608 - our own words

    def rows(self, select: str) -> list[dict[str, Any]]:
        """Return the rows of a query whose answer is small."""
        answer = self._db.execute(select)
        names = [one[0] for one in answer.description or ()]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]

    def arrow(self, columns: Columns, select: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query, with exactly these columns."""
        answer = self._db.sql(f"select {_typed(columns)} from ({select})")  # noqa: S608 - our own words
        batches: pa.RecordBatchReader = answer.to_arrow_reader(BATCH_ROWS)
        yield from batches


def _typed(columns: Columns) -> str:
    return ", ".join(f"cast({_quoted(name)} as {kind}) as {_quoted(name)}" for name, kind in columns.items())


def _quoted(name: str) -> str:
    # "at" is a keyword of SQL.
    return f'"{name}"'


KEPT: Final = {**FOUND, "of_law": "bigint"}
"""A finding that is kept, and how many there are of its group and law in all."""


def kept(part: Part) -> Iterator[pa.RecordBatch]:
    """Yield the first findings of each group and law, in the order of the log."""
    yield from part.arrow(
        KEPT,
        f"""
        select *, count(*) over (partition by group_id, law
                                 rows between unbounded preceding and unbounded following) as of_law
          from found
       qualify row_number() over (partition by group_id, law order by severity, "at"[-1] nulls first, task nulls first,
                                  member nulls first, detail) <= {FINDINGS_PER_LAW}
        """,  # noqa: S608 - our own words
    )
