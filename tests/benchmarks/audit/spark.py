"""The audit in a process of its own, as a benchmark runs it: no traces, no what-if, nothing kept."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter

from tests.benchmarks.audit import DAY

from batonpass.audit.job import Audit, run


def main(url: str) -> None:
    """Audit the day, saying what it is at, and print what came of it.

    ``start_s`` is what Spark and the plan take before anything is read.
    """
    begun = time.monotonic()
    steps: list[tuple[float, str]] = []

    def note(line: str) -> None:
        steps.append((round(time.monotonic() - begun, 1), line))
        sys.stderr.write(f"> {steps[-1][0]:7.1f} s  {line}\n")
        sys.stderr.flush()

    result = run(Audit(url, DAY, what_if=False, replay=False, keep=False), note)
    causes: Counter[str] = Counter()
    for day in result.groups:
        causes.update({cause: int(of["count"]) for cause, of in day.downtime_by_cause.items()})
    found = Counter(one.law for one in result.findings)
    told = {
        "records": sum(int(day.measures["records"] or 0) for day in result.groups),
        "found": dict(found),
        "left_out": result.findings_left_out,
        "warmups": sum(int(day.measures["warmups"] or 0) for day in result.groups),
        "downtime_ms": sum(int(day.measures["downtime_ms"] or 0) for day in result.groups),
        "causes": dict(causes),
        "moves": sum(int(day.measures["moves"] or 0) for day in result.groups),
        "start_s": next(at for at, line in steps if line.endswith("cores")),
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
