"""Postgres as the audit reads and writes it: over ADBC, in Arrow batches, without a jar or the service's driver.

It speaks libpq, so a URL has TLS as libpq has it (``?sslmode=verify-full&sslrootcert=…``), on executors too. To read,
it is used without its DB-API, which imports pandas: a third of a second in each worker.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import adbc_driver_postgresql as postgres
import pyarrow as pa
from adbc_driver_manager import AdbcConnection, AdbcStatement

from batonpass.database_url import FILE_VARIABLES, KEEPALIVES, DatabaseUrl

if TYPE_CHECKING:
    import adbc_driver_postgresql.dbapi as adbc


LIKE_THE_SERVICE: Final = {"connect_timeout": "5", "gssencmode": "disable"}
"""What libpq does otherwise than the service's driver unless it is told."""

_alone = threading.Lock()


@contextmanager
def _to_connect(url: str) -> Iterator[str]:
    """Lend a URL as libpq knows it, and hide its variables from it: the URL has what the service takes from them.

    From PGHOSTADDR it would take another server, from PGOPTIONS another schema.

    Raises:
        ValueError: as ``libpq_url`` does.
    """
    known = libpq_url(url)
    with _alone:
        names = [name for name in os.environ if name.startswith("PG") and name not in FILE_VARIABLES]
        hidden = {name: os.environ.pop(name) for name in names}
        try:
            yield known
        finally:
            os.environ.update(hidden)


def libpq_url(url: str) -> str:
    """Return a database URL as libpq knows it, whichever driver it names; texts come and go in UTF-8.

    Otherwise they would come as the role, the database, or PGCLIENTENCODING has it, which Arrow does not know.

    Raises:
        ValueError: when ``DatabaseUrl`` does not understand it.
    """
    read = DatabaseUrl.read(url)
    alive = {f"keepalives_{name}": str(value) for name, value in KEEPALIVES.items()}
    return str(replace(read, options={**LIKE_THE_SERVICE, **alive, **read.options, "client_encoding": "utf8"}))


Row = tuple[Any, ...]
Read = Callable[[str], Iterator[Row]]
"""Carries out a query, and yields its rows as they arrive."""


@contextmanager
def reading(url: str) -> Iterator[Read]:
    """Lend a connection to read by: all its queries are in one read-only transaction."""
    with ExitStack() as stack:
        with _to_connect(url) as known:
            connection = stack.enter_context(AdbcConnection(stack.enter_context(postgres.connect(known))))
        connection.set_autocommit(False)
        with AdbcStatement(connection) as statement:
            statement.set_sql_query("set transaction read only")
            statement.execute_update()

        def read(sql: str) -> Iterator[Row]:
            with AdbcStatement(connection) as statement:
                statement.set_sql_query(sql)
                stream, _ = statement.execute_query()
                for batch in pa.RecordBatchReader.from_stream(stream):
                    yield from zip(*(one.to_pylist() for one in batch.columns), strict=True)

        yield read


def rows(url: str, sql: str) -> list[Row]:
    """Return the rows of a query whose answer is small."""
    with reading(url) as read:
        return list(read(sql))


def connected(url: str) -> "adbc.Connection":
    """Return a connection that can write."""
    import adbc_driver_postgresql.dbapi as adbc  # noqa: PLC0415 - it imports pandas, which workers do without

    with _to_connect(url) as known:
        return adbc.connect(known)


TEXT, DATE, INT, LONG = pa.string(), pa.date32(), pa.int32(), pa.int64()


def bind(cursor: "adbc.Cursor", statement: str, rows: Sequence[tuple[Any, ...]], kinds: Sequence[pa.DataType]) -> None:
    """Run a statement once for each row; each parameter has the type at its place in ``kinds``, nulls too."""
    if not rows:
        return
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, names=[f"p{number}" for number in range(len(kinds))])
    if statement.startswith("select"):
        cursor.execute(statement, batch)
    else:
        cursor.executemany(statement, batch)
