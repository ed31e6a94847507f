"""Take the scenarios through every order of events, and say how many worlds there are.

Without names: the small ones, or with ``--all`` the large ones too. ``--write`` writes the numbers down that come out
now. ``--mutant NAME`` plants a fault first. A law that breaks is told by a shortest story. The exit code is 1 if a law
broke, or if the numbers are others than are written down.
"""

import argparse
import sys
import time

import pytest
from tests.explorer.mutants import MUTANTS
from tests.explorer.scenarios import SCENARIOS, pinned, write
from tests.explorer.search import explore
from tests.explorer.story import told


def main(arguments: list[str]) -> int:
    """Search; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.explorer", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--mutant", choices=MUTANTS)
    options = parser.parse_args(arguments)
    small = [name for name, each in SCENARIOS.items() if options.all or not each.is_large]
    names = options.names or ([MUTANTS[options.mutant].scenario] if options.mutant else small)
    with pytest.MonkeyPatch.context() as patch:
        if options.mutant:
            MUTANTS[options.mutant].plant(patch)
        return max([_search(name, is_written=options.write) for name in names])


def _search(name: str, *, is_written: bool) -> int:
    begun = time.process_time()
    world = SCENARIOS[name].world()
    found = explore(world)
    took = f"{time.process_time() - begun:.1f} s"
    if found.law:
        sys.stdout.write(f"{name}: {found.law} breaks after {len(found.story)} moves ({took})\n")
        sys.stdout.writelines(f"  {line}\n" for line in told(world, found))
        return 1
    before = pinned().get(name)
    sys.stdout.write(f"{name}: {found.states} worlds, {found.ways} ways, depth {found.depth} ({took})")
    sys.stdout.write("\n" if before == found.numbers else f"; written down: {before}\n")
    sys.stdout.flush()
    if is_written:
        write(name, found.numbers)
    return int(before != found.numbers and not is_written)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
