"""Overlapping owners and downtime of a day in Spark's own SQL (``tests.audit.in_spark_sql``), in a process of its own.

It reads the same rows by the same queries, made flat by the same code, and leaves out every other law and measure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from tests.audit import in_spark_sql
from tests.benchmarks.audit import DAY
from tests.benchmarks.audit.digest import digest

from batonpass.audit.database import rows
from batonpass.audit.findings import GroupDay
from batonpass.audit.flatten import CHANGES
from batonpass.audit.plan import partitions_for, plan_day
from batonpass.audit.session import opened
from batonpass.audit.spread import bundles
from batonpass.audit.tables import DayTables, Query, read_flat


def _read(
    url: str, parts: tuple[tuple[Query, ...], ...], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read_flat(url, parts[number])


def main(url: str) -> None:
    """Look at the day, and print what came of it as ``spark`` does."""
    plan = plan_day(partial(rows, url), DAY)
    with opened() as session:
        tables = DayTables(session, url, plan)
        cores = session.sparkContext.defaultParallelism
        session.conf.set("spark.sql.shuffle.partitions", str(partitions_for(plan.records, cores)))
        parts = tuple(tables.queries(some) for some in bundles(plan.groups, cores))
        numbers = session.range(0, len(parts), 1, len(parts))
        changes = numbers.mapInArrow(partial(_read, url, parts), from_arrow_schema(CHANGES)).persist()
        in_spark_sql.followed(changes)
        gaps = in_spark_sql.gaps(changes, plan.begin_ms, plan.end_ms)
        down = {row[0]: row[1] for row in gaps.groupBy("group_id").agg(f.sum("gap_ms")).collect()}
        doubtful = in_spark_sql.doubtful(changes).count()
    days = [GroupDay(one.group, {"downtime_ms": down.get(one.group, 0)}) for one in plan.groups]
    sys.stdout.write(json.dumps(digest(days, ()) | {"found": {"L1": doubtful} if doubtful else {}}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
