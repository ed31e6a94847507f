"""How Spark reads Postgres without a jar: queries carried out by its Python workers, over ADBC, in Arrow batches.

Each partition is one query of its own. Where records or snapshots are wanted as rows of what became so, they are made
flat where they are read, so that payloads never travel. It is a step of Spark's (``mapInArrow``) and no data source of
its own, because each of those starts interpreters only to be planned, which takes longer than to read a small table.
ADBC is used without its DB-API, which imports pandas: a third of a second in each worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import adbc_driver_postgresql as postgres
import pyarrow as pa
from adbc_driver_manager import AdbcConnection, AdbcStatement

from batonpass.audit.flatten import flatten_generations, flatten_lags, flatten_records, flatten_snapshots

Flatten = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
FORMS: Final[Mapping[str, Flatten]] = {
    "": iter,
    "records": flatten_records,
    "snapshots": flatten_snapshots,
    "generations": flatten_generations,
    "lags": flatten_lags,
}

Wanted = tuple[str, str]
"""A query, and the form (``FORMS``) in which its rows are wanted."""


def reading(url: str, wanted: Sequence[Wanted]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step of ``mapInArrow`` that turns the numbers of queries (its first column) into what they bring."""
    return partial(_read, url, tuple(wanted))


def _read(url: str, wanted: Sequence[Wanted], numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            sql, form = wanted[number]
            yield from FORMS[form](fetch(url, sql))


def fetch(url: str, sql: str) -> Iterator[pa.RecordBatch]:
    """Yield what a query brings, batch by batch, in a read-only transaction."""
    yield from fetch_each(url, ((sql, ""),))


def fetch_each(url: str, wanted: Iterable[Wanted]) -> Iterator[pa.RecordBatch]:
    """Yield what queries bring, each in its form, one after another in one read-only transaction."""
    with postgres.connect(url) as database, AdbcConnection(database) as connection:
        connection.set_autocommit(False)
        with AdbcStatement(connection) as statement:
            statement.set_sql_query("set transaction read only")
            statement.execute_update()
        for sql, form in wanted:
            with AdbcStatement(connection) as statement:
                statement.set_sql_query(sql)
                stream, _ = statement.execute_query()
                yield from FORMS[form](pa.RecordBatchReader.from_stream(stream))


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query whose answer is small."""
    return [row for batch in fetch(url, sql) for row in zip(*(one.to_pylist() for one in batch.columns), strict=True)]
