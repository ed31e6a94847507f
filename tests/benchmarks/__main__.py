"""`make bench`: time the decisions, beside the yardstick and against the bars (`docs/performance.md`).

With `--strict` the exit code is 1 when a bar does not hold. Without, only what cannot be timed at all is an error: on a
machine that does other work, a bar that is missed once is a reason to look, not to fail.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterable

from tests.benchmarks.groups import EQUAL_WEIGHTS, MIXED_WEIGHTS, Shape, prepare
from tests.benchmarks.kafka import Calls, time_kafka, yardstick
from tests.benchmarks.operations import OPERATIONS, Timed, clocked, inputs_of, least, steps_of, time_operation
from tests.benchmarks.report import (
    Bar,
    Measured,
    bar_lines,
    bars_of,
    beginning_lines,
    describing_lines,
    growth_bars,
    shape_lines,
    size_bars,
    size_lines,
)
from tests.benchmarks.sizes import DESCRIBED, SIZES, time_beginning, time_describing, time_sizes

LARGEST = Shape(100_000, 1_000, 1)
FOR_THE_MODEL = (
    Shape(6_000, 2, 1),
    Shape(1_000, 1_000, 1),
    Shape(1_000, 100, 50),
    Shape(1_000, 10, 1, 1_000),
    Shape(10_000, 100, 1),
)
SHAPES = (*FOR_THE_MODEL, LARGEST)
BEGINNINGS = SIZES[:3]
WEIGHTS = {"equal weights": EQUAL_WEIGHTS, "mixed weights": MIXED_WEIGHTS}


def main() -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=5, help="how often each operation is timed (the least counts), default 5"
    )
    parser.add_argument("--shapes", type=int, nargs="*", help="only the shapes with these numbers of tasks; 0: none")
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many of the four sizes, default all")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a bar does not hold")
    options = parser.parse_args()
    bars: list[Bar] = []
    seen: dict[str, dict[Shape, Measured]] = {name: {} for name in WEIGHTS}
    for shape in SHAPES:
        if options.shapes is None or shape.tasks in options.shapes:
            kafka = _kafka(shape) if shape in FOR_THE_MODEL else None
            for name, weights in WEIGHTS.items():
                measured = seen[name][shape] = measure(shape, weights, options.rounds, kafka)
                _show(shape_lines(name, measured))
                bars += bars_of(name, measured)
    for name, timed in seen.items():
        bars += growth_bars(name, timed)
    if options.sizes:
        sizes = {shape: time_sizes(shape) for shape in SIZES[: options.sizes]}
        _show(size_lines(sizes))
        # Half the sizes show nothing about growth.
        bars += size_bars(sizes) if len(sizes) == len(SIZES) else []
        _show(describing_lines(DESCRIBED, time_describing(DESCRIBED)))
        _show(beginning_lines({shape: time_beginning(shape) for shape in BEGINNINGS[: options.sizes]}))
    _show(bar_lines(bars))
    return int(options.strict and not all(bar.holds for bar in bars))


def _show(lines: Iterable[str]) -> None:
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    sys.stdout.flush()


def _kafka(shape: Shape) -> Calls | None:
    """Return what Kafka's own class takes; None where it cannot be run, which is said."""
    _show([f"{shape}: Kafka's own class, up to two minutes ..."])
    try:
        return time_kafka(shape)
    except (AssertionError, subprocess.SubprocessError) as error:
        _show([f"{shape}: Kafka's own class is not run: {error}"])
        return None


def measure(shape: Shape, weights: tuple[float, ...], rounds: int, kafka: Calls | None = None) -> Measured:
    """Time every operation at one shape, ours and the model's in turns, so that a busy spell meets both."""
    stage = prepare(shape, weights)
    steps, operations = steps_of(stage), inputs_of(stage)
    model = yardstick(shape).operations() if shape in FOR_THE_MODEL else {}
    ours: dict[str, list[Timed]] = {name: [] for name in OPERATIONS}
    theirs: dict[str, list[float]] = {name: [] for name in model}
    for _ in range(rounds):
        for name in OPERATIONS:
            ours[name].append(time_operation(steps[name], operations[name]))
            if name in model:
                theirs[name].append(clocked(model[name]))
    return Measured(
        shape,
        {name: least(samples) for name, samples in ours.items()},
        {name: min(samples) for name, samples in theirs.items()},
        kafka,
    )


if __name__ == "__main__":
    sys.exit(main())
