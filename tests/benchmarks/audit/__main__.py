"""`make bench-audit`: the audit at 100 thousand, a million and ten million records.

make bench-audit ARGS="--records 100000 --records 1000000"
"""

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

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
    """Measure each size."""
    parser = argparse.ArgumentParser(prog="make bench-audit", description=__doc__)
    parser.add_argument("--records", type=int, action="append", help="a size; may be given again")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="batonpass-bench-"))
    folder.chmod(0o711)
    with EmbeddedPostgres(folder / "server", durable=False) as server:
        for size in given.records or SIZES:
            _measure(server.url, size)


def _measure(server: str, size: int) -> None:
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
    asyncio.run(run_sql(server, f"drop database day{size} with (force)"))


def _tell(name: str, cost: Cost, records: int) -> None:
    say(
        f"  {name}: {cost.seconds:.1f} s  {records / cost.seconds:>9,.0f} records/s  {cost.cpu_seconds:7.1f} s of processors"
        f"  memory: driver {cost.driver_mb:,} MB, JVM {cost.jvm_mb:,} MB, Python workers {cost.others_mb:,} MB",
    )


if __name__ == "__main__":
    main()
