"""Postgres as the audit reads and writes it: over ADBC, in Arrow batches, without a jar or the service's driver.

It speaks libpq, so a URL has TLS as libpq has it (``?sslmode=verify-full&sslrootcert=…``), on executors too. To read,
it is used without its DB-API, which imports pandas: a third of a second in each worker.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import adbc_driver_postgresql as postgres
import pyarrow as pa
from adbc_driver_manager import AdbcConnection, AdbcStatement

from batonpass.database_url import DatabaseUrl

if TYPE_CHECKING:
    import adbc_driver_postgresql.dbapi as adbc


LIBPQ_ALONE: Final = {
    "options": "",
    "connect_timeout": "5",
    "sslcertmode": "allow",
    "gssencmode": "disable",
    "channel_binding": "prefer",
}
"""What libpq would take from variables that the service's driver does not know: from PGOPTIONS another schema, say."""


def libpq_url(url: str) -> str:
    """Return a database URL as libpq knows it, whichever driver it names; texts come and go in UTF-8.

    Otherwise they would come as the role, the database, or PGCLIENTENCODING has it, which Arrow does not know.

    Raises:
        ValueError: when ``DatabaseUrl`` does not understand it.
    """
    read = DatabaseUrl.read(url)
    return str(replace(read, options={**LIBPQ_ALONE, **read.options, "client_encoding": "utf8"}))


Row = tuple[Any, ...]
Read = Callable[[str], Iterator[Row]]
"""Carries out a query, and yields its rows as they arrive."""


@contextmanager
def reading(url: str) -> Iterator[Read]:
    """Lend a connection to read by: all its queries are in one read-only transaction."""
    with postgres.connect(libpq_url(url)) as database, AdbcConnection(database) as connection:
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

    return adbc.connect(libpq_url(url))


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
