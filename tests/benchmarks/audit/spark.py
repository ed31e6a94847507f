"""The audit in a process of its own, as a benchmark runs it: no traces, no what-if, nothing kept."""

import json
import sys
import time

from tests.benchmarks.audit import DAY
from tests.benchmarks.audit.digest import digest

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
    came_to = {
        "left_out": result.findings_left_out,
        "start_s": next(at for at, line in steps if line.endswith("cores")),
    }
    sys.stdout.write(json.dumps(digest(result.groups, result.findings) | came_to) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
