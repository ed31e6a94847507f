"""World after world, for the tests that look at many."""

from collections.abc import Iterator

from batonpass.simulate.run import Outcome, run_world
from batonpass.simulate.seeds import draw


def run_many(first_seed: int, *, steps: int | None, worlds: int | None) -> Iterator[Outcome]:
    """Yield world after world from ``first_seed`` on, until so many steps or worlds are done."""
    done, number = 0, 0
    while (steps is None or done < steps) and (worlds is None or number < worlds):
        outcome = run_world(draw(first_seed + number))
        yield outcome
        done += outcome.steps
        number += 1
