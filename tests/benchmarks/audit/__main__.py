"""`make bench-audit`: the audit at 100 thousand, a million and ten million records, and Spark's own SQL beside it.

make bench-audit ARGS="--records 100000 --records 1000000"
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.audit.cost import Cost, cost_of
from tests.benchmarks.audit.fill import fill
from tests.postgres.databases import beside, run_sql

from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.postgres.schema import upgrade

SIZES = (100_000, 1_000_000, 10_000_000)


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure each size, and say whether both came to the same."""
    parser = argparse.ArgumentParser(prog="make bench-audit", description=__doc__)
    parser.add_argument("--records", type=int, action="append", help="a size; may be given again")
    parser.add_argument("--no-spark-sql", action="store_true", help="only the audit")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="batonpass-bench-"))
    folder.chmod(0o711)
    with EmbeddedPostgres(folder / "server", durable=False) as server:
        for size in given.records or SIZES:
            _measure(server.url, size, spark_sql=not given.no_spark_sql)


def _measure(server: str, size: int, *, spark_sql: bool) -> None:
    url = beside(server, f"day{size}")
    asyncio.run(run_sql(server, f"create database day{size}"))
    asyncio.run(upgrade(url))
    say(f"\nwriting a day of about {size:,} records")
    records = asyncio.run(fill(url, size, lambda done, of: say(f"    {done} of {of} copies")))
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    say(f"{records:,} records (load average {load} before)")
    audit = cost_of("tests.benchmarks.audit.spark", url)
    _tell("audit", audit, records)
    work_s = audit.seconds - audit.result["start_s"]
    say(f"  of which {work_s:.1f} s without the start of Spark")
    if spark_sql:
        other = cost_of("tests.benchmarks.audit.spark_sql", url)
        _tell("Spark's SQL, for L1 and downtime alone", other, records)
        say(f"  the audit takes {audit.cpu_seconds / other.cpu_seconds:.2f} times its seconds of processors")
        say(f"  {agreement(audit.result, other.result)}")
    asyncio.run(run_sql(server, f"drop database day{size} with (force)"))


def agreement(audit: dict[str, Any], other: dict[str, Any]) -> str:
    """Say whether both came to the same downtime and as many overlapping owners; both print what ``digest`` returns."""
    is_same = all(audit["measures"][name] == value for name, value in other["measures"].items())
    owners = (audit["found"].get("L1", 0), other["found"].get("L1", 0))
    downtime = "the downtime of every group is the same" if is_same else "THE DOWNTIME DIFFERS"
    return f"{downtime}; owners that overlap: {owners[0]} and {owners[1]}"


def _tell(name: str, cost: Cost, records: int) -> None:
    say(
        f"  {name}: {cost.seconds:.1f} s  {records / cost.seconds:>9,.0f} records/s  {cost.cpu_seconds:7.1f} s of processors"
        f"  memory: driver {cost.driver_mb:,} MB, JVM {cost.jvm_mb:,} MB, Python workers {cost.others_mb:,} MB",
    )


if __name__ == "__main__":
    main()
