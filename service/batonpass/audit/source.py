"""How Spark reads Postgres without a jar: a Python data source on ADBC, which yields Arrow batches as they come.

Each partition is one query of its own. Where records or snapshots are wanted as rows of what became so, they are made
flat where they are read, so that payloads never travel.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from batonpass.audit.flatten import flatten_records, flatten_snapshots

NAME: Final = "batonpass-postgres"
Flatten = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
FORMS: Final[Mapping[str, Flatten]] = {"": iter, "records": flatten_records, "snapshots": flatten_snapshots}


class Query(InputPartition):
    """One query; its rows are one partition."""

    def __init__(self, sql: str) -> None:
        super().__init__(sql)
        self.sql = sql


class PostgresReader(DataSourceReader):
    """Carries out the queries of one frame, each where its partition is."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url = options["url"]
        self._queries: list[str] = json.loads(options["queries"])
        self._form = options.get("form", "")

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each query."""
        return [Query(sql) for sql in self._queries]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one partition."""
        assert isinstance(partition, Query)  # noqa: S101 - for the type checker
        yield from FORMS[self._form](fetch(self._url, partition.sql))


class PostgresSource(DataSource):
    """Reads what ``queries`` (JSON, a list) bring from ``url``, in the given schema."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 - the caller has given it to Spark
        """Return a reader; the schema is the caller's."""
        return PostgresReader(dict(self.options))


def fetch(url: str, sql: str) -> Iterator[pa.RecordBatch]:
    """Yield what a query brings, batch by batch, in a read-only transaction."""
    with adbc.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("set transaction read only")
        cursor.execute(sql)
        yield from cursor.fetch_record_batch()


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query whose answer is small."""
    return [row for batch in fetch(url, sql) for row in zip(*(one.to_pylist() for one in batch.columns), strict=True)]
