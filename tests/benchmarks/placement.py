"""How long placement alone takes: `python -m tests.benchmarks.placement`.

For every shape: a first placement, the same again at rest, one member more, one member less. CPU time of this process,
the least of several runs, in milliseconds, beside the bar for groups without tags or weights of their own.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import TaskTable
from batonpass.placement.place import place
from batonpass.placement.types import UNASSIGNED, Placed, PlacementMember, PlacementRequest

RUNS = 5
ZONES = 3
WEIGHTS = (1.0, 2.0, 1.5, 1.0)
HEADER = (
    f"{'tasks x members x standbys':28} {'':16} {'first':>8} {'rerun':>8} {'join':>8} {'leave':>8}   moves join, leave"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a group, and the bar in milliseconds: first, rerun, join, leave."""

    tasks: int
    members: int
    standbys: int
    capacity: float
    bar: tuple[float, float, float, float]

    def __str__(self) -> str:
        """Return the shape as the table names it."""
        capacity = f" ({self.capacity:g} each)" if self.capacity != 1 else ""
        return f"{self.tasks} x {self.members}{capacity} x {self.standbys}"


SHAPES = (
    Shape(6000, 2, 1, 1.0, (30, 10, 15, 15)),
    Shape(1000, 1000, 1, 1.0, (15, 8, 8, 10)),
    Shape(1000, 100, 50, 1.0, (120, 40, 90, 90)),
    Shape(1000, 10, 1, 1000.0, (3, 1, 1.5, 1.5)),
    Shape(10_000, 100, 1, 1.0, (40, 15, 20, 20)),
    Shape(100_000, 1000, 1, 1.0, (700, 150, 180, 180)),
)


def table_of(shape: Shape, *, weighted: bool) -> TaskTable:
    """Return four subtopologies, of the same weight or of their own."""
    cells = [(one, partition) for one in range(4) for partition in range(shape.tasks // 4)]
    return TaskTable(
        ids=tuple(TaskId(f"{one}_{partition}") for one, partition in cells),
        subtopology=tuple(one for one, _ in cells),
        stateful=(True,) * len(cells),
        weight=tuple(WEIGHTS[one] if weighted else 1.0 for one, _ in cells),
        topology_epoch=(0,) * len(cells),
    )


def seats_of(shape: Shape, count: int) -> list[PlacementMember]:
    """Return members in three zones."""
    return [
        PlacementMember(MemberId(f"m{index:05}"), shape.capacity, tags={"zone": f"z{index % ZONES}"})
        for index in range(count)
    ]


def timed(request: PlacementRequest) -> tuple[float, Placed]:
    """Return the least of several CPU times, in milliseconds, and the answer."""
    best = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        place(request)
        best = min(best, time.process_time() - start)
    return best * 1000, place(request)


def without_first(seats: Sequence[int]) -> list[int]:
    """Return seats as they are numbered when the first member is gone."""
    return [UNASSIGNED if seat <= 0 else seat - 1 for seat in seats]


def measure(shape: Shape, *, tagged: bool, weighted: bool) -> tuple[list[float], Placed, Placed]:
    """Return the four times, and the answers after the join and after the leave."""
    table = table_of(shape, weighted=weighted)
    seats = seats_of(shape, shape.members)
    tags = ("zone",) if tagged else ()

    def timed_placement(
        members: list[PlacementMember], home: list[int], standbys: list[tuple[int, ...]]
    ) -> tuple[float, Placed]:
        return timed(
            PlacementRequest(
                table=table,
                members=members,
                home=home,
                standbys=standbys,
                num_standby_replicas=shape.standbys,
                rack_aware_tags=tags,
            )
        )

    count = len(table.ids)
    first, placed = timed_placement(seats, [UNASSIGNED] * count, [()] * count)
    rerun, _ = timed_placement(seats, placed.owner, placed.standbys)
    join, joined = timed_placement(seats_of(shape, shape.members + 1), placed.owner, placed.standbys)
    left = [tuple(seat for seat in without_first(held) if seat != UNASSIGNED) for held in placed.standbys]
    leave, remained = timed_placement(seats[1:], without_first(placed.owner), left)
    return [first, rerun, join, leave], joined, remained


def lines() -> Iterator[str]:
    """Yield the table line by line, as it is measured."""
    yield HEADER
    for shape in SHAPES:
        yield f"{shape!s:28} {'bar':16} " + " ".join(f"{bar:8g}" for bar in shape.bar)
        for tagged, weighted in ((False, False), (True, False), (False, True), (True, True)):
            times, joined, remained = measure(shape, tagged=tagged, weighted=weighted)
            kind = " ".join(word for word, is_so in (("tags", tagged), ("weights", weighted)) if is_so) or "plain"
            moves = f"{joined.moves} of {joined.lower_bound}, {remained.moves} of {remained.lower_bound}"
            yield f"{'':28} {kind:16} " + " ".join(f"{each:8.1f}" for each in times) + f"   {moves}"


if __name__ == "__main__":
    for line in lines():
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
