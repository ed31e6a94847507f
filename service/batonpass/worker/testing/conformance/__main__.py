"""Run the kit against a client: `python -m batonpass.worker.testing.conformance -- COMMAND...`."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence

from batonpass.terminal import say, say_on_stderr
from batonpass.worker.testing.conformance import runner
from batonpass.worker.testing.conformance.cases import CASES

EXIT_BROKEN = 1
EXIT_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the kit; return 0 if the client kept the protocol in every case."""
    parser = argparse.ArgumentParser(prog="python -m batonpass.worker.testing.conformance", description=__doc__)
    parser.add_argument("--only", action="append", metavar="CASE", help="run this case alone; may be given again")
    parser.add_argument("--skip", action="append", default=[], metavar="CASE", help="leave this case out, and say so")
    parser.add_argument("--jobs", type=int, default=4, help="how many cases run at a time")
    parser.add_argument("--list", action="store_true", help="list the cases, their laws, and the rules behind them")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end instead of lines")
    parser.add_argument("command", nargs="*", help="what starts the client; see the package's documentation")
    asked = parser.parse_args(arguments)
    if asked.list:
        for one in CASES.values():
            say(f"{one.name}: {one.law} ({runner.cited(one.rules)})")
        return 0
    unknown = {*(asked.only or ()), *asked.skip} - set(CASES)
    if unknown or not asked.command:
        say_on_stderr(f"no such case: {', '.join(sorted(unknown))}" if unknown else parser.format_usage().strip())
        return EXIT_USAGE
    names = [name for name in CASES if name not in asked.skip and name in (asked.only or CASES)]
    heard = (lambda _result: None) if asked.json else runner.show
    try:
        results = asyncio.run(runner.run(asked.command, names, jobs=max(1, asked.jobs), heard=heard))
    except OSError as error:
        say_on_stderr(f"{asked.command[0]} cannot be started: {error.strerror}")
        return EXIT_USAGE
    broken = [one for one in results if not one.kept]
    if asked.json:
        cases = {
            one.case: {"kept": one.kept, "rules": one.rules, "faults": one.faults, "seconds": one.seconds}
            for one in results
        }
        say(json.dumps({"cases": cases, "skipped": asked.skip}))
    else:
        left_out = f", left out: {', '.join(asked.skip)}" if asked.skip else ""
        say(f"{len(results) - len(broken)} of {len(results)} cases kept{left_out}")
    return EXIT_BROKEN if broken else 0


if __name__ == "__main__":
    sys.exit(main())
