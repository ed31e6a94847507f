"""`make bench-audit`: the audit at 100 thousand, a million and ten million records, and pandas beside it.

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
from tests.postgres.server import beside, run_sql

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
    parser.add_argument("--no-pandas", action="store_true", help="only the audit")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="batonpass-bench-"))
    folder.chmod(0o711)
    with EmbeddedPostgres(folder / "server", durable=False) as server:
        for size in given.records or SIZES:
            _measure(server.url, size, pandas=not given.no_pandas)


def _measure(server: str, size: int, *, pandas: bool) -> None:
    url = beside(server, f"day{size}")
    asyncio.run(run_sql(server, f"create database day{size}"))
    asyncio.run(upgrade(url))
    say(f"\nwriting a day of about {size:,} records")
    records = asyncio.run(fill(url, size, lambda done, of: say(f"    {done} of {of} copies")))
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    say(f"{records:,} records (load average {load} before)")
    audit = cost_of("tests.benchmarks.audit.spark", url)
    _tell("audit", audit, records)
    work_s = audit.seconds - audit.said["start_s"]
    say(f"  of which {work_s:.1f} s without the start of Spark")
    if pandas:
        alone = cost_of("tests.benchmarks.audit.alone", url)
        _tell("pandas", alone, records)
        of_work = work_s / alone.said["work_s"]
        say(
            f"  the audit takes {audit.seconds / alone.seconds:.2f} times as long as pandas on one core, work alone {of_work:.2f}"
        )
        for line in agreement(audit.said, alone.said):
            say(f"  {line}")
    asyncio.run(run_sql(server, f"drop database day{size} with (force)"))


def agreement(audit: dict[str, Any], alone: dict[str, Any]) -> list[str]:
    """Return in sentences whether both came to the same; ``digest.told`` is what each of them says."""
    ours, theirs = audit["measures"], alone["measures"]
    differing = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    if differing:
        more = f" and {len(differing) - 5} others" if len(differing) > 5 else ""
        lines = [f"measures that differ: {', '.join(differing[:5])}{more}, of {len(ours)}"]
    else:
        lines = [f"every measure of every group is the same ({len(ours)} measures)"]
    if (audit["findings"], audit["left_out"]) == (alone["findings"], alone["left_out"]):
        return [*lines, f"the findings are the same: {audit['found'] or 'none'}"]
    told = (f"{one['found'] or 'none'} ({one['left_out']} left out)" for one in (audit, alone))
    return [*lines, f"the findings differ: {' against '.join(told)}"]


def _tell(name: str, cost: Cost, records: int) -> None:
    say(
        f"  {name:<7} {cost.seconds:7.1f} s  {records / cost.seconds:>9,.0f} records/s  {cost.cpu_seconds:7.1f} s of processors"
        f"  memory: driver {cost.driver_mb:,} MB, JVM {cost.jvm_mb:,} MB, Python workers {cost.others_mb:,} MB",
    )


if __name__ == "__main__":
    main()
