"""How even subtopologies are, and the price of one task more or less.

Every seat should run its part, by capacity, of each subtopology. The price of a choice is the growth of the squared
distance from that part, by capacity. A single subtopology is even when the counts of all tasks are, and costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from batonpass.core.placement_types import TaskTable


class Evenness:
    """How many tasks of each subtopology each seat runs, and what one more or one less would cost.

    Attributes:
        counts: per seat and subtopology, the tasks that it runs so far.
        part: per subtopology, its tasks per unit of capacity.
        capacity: per seat.
    """

    __slots__ = ("capacity", "counts", "part")

    def __init__(self, table: TaskTable, owner: Sequence[int], seats: Sequence[int], capacity: Sequence[float]) -> None:
        total = sum(capacity[seat] for seat in seats)
        self.capacity = capacity
        self.counts = {seat: [0] * table.subtopologies for seat in seats}
        self.part = [0.0] * table.subtopologies
        start = 0
        for subtopology, size in sorted(Counter(table.subtopology).items()):
            self.part[subtopology] = size / total
            if table.subtopologies > 1:
                for seat, count in Counter(owner[start : start + size]).items():
                    if seat in self.counts:
                        self.counts[seat][subtopology] = count
            start += size

    def price_in(self, seat: int, subtopology: int) -> float:
        """Return the price of one more task of the subtopology on the seat."""
        if len(self.part) == 1:
            return 0.0
        capacity = self.capacity[seat]
        return (2 * (self.counts[seat][subtopology] - self.part[subtopology] * capacity) + 1) / capacity

    def price_out(self, seat: int, subtopology: int) -> float:
        """Return the price of one task less of the subtopology on the seat."""
        if len(self.part) == 1:
            return 0.0
        capacity = self.capacity[seat]
        return (1 - 2 * (self.counts[seat][subtopology] - self.part[subtopology] * capacity)) / capacity

    def prices_out(self, seat: int) -> list[float]:
        """Return the price of one task less on the seat, of each subtopology."""
        return [self.price_out(seat, subtopology) for subtopology in range(len(self.part))]

    def shift(self, subtopology: int, source: int, target: int) -> None:
        """Count a task on another seat."""
        if source in self.counts:
            self.counts[source][subtopology] -= 1
        self.counts[target][subtopology] += 1
