"""How warm members are for tasks, as costs of the network."""

from typing import NamedTuple

from batonpass.placement.types import NO_STATE, Copies, Readiness, Warmth


class Wish(NamedTuple):
    """What it costs, by level, to bring a copy to one member that differs from the others for it."""

    member: int
    move: int = 0
    warming: int = 0
    unready: int = 0
    cold: int = 0
    restore: int = 0
    previous: int = 0
    apart: int = 0


class Wishes:
    """How warm members are for tasks, as costs: from caught up to unknown.

    Attributes:
        copies: what is known of the tasks and members that were asked about.
        cold: the cost of a member without any state.
    """

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        every = {known for held in copies.values() for known in held.values()} | {NO_STATE}
        rank = {known: place for place, known in enumerate(sorted({_degree(known) for known in every}), 1)}
        self._rank = {known: rank[_degree(known)] for known in every}
        # The costs at the levels of warmth. They are 0 if no member has any state.
        self._costs = dict.fromkeys(every, (0, 0, 0))
        self.cold: dict[str, int] = {"move": 1}
        if copies:
            self._costs |= {
                known: (1, max(0, known.ready_class - Readiness.ON_DISK), self._rank[known])
                for known in every
                if known.ready_class > Readiness.CAUGHT_UP
            }
            self.cold |= dict(zip(("unready", "cold", "restore"), self._costs[NO_STATE], strict=True))

    def at(self, task: int, member: int) -> Warmth:
        return self.copies.get(task, {}).get(member, NO_STATE)

    def wish(self, task: int, member: int, *, warming: bool = False, previous: bool = False) -> Wish:
        """Return the cost of bringing a copy of a task to a member."""
        unready, cold, restore = self._costs[self.at(task, member)]
        return Wish(member, 1, -warming, unready, cold, restore, -previous)

    def chill(self, task: int, member: int) -> int:
        """Return how much warmth would be lost with a copy: the colder the copy, the lower."""
        return max(self._rank.values()) - self._rank[self.at(task, member)]


def _degree(known: Warmth) -> Warmth:
    """Return how warm a copy is. Lag matters only for copies that are behind or on disk."""
    if known.ready_class <= Readiness.CAUGHT_UP:
        return Warmth(int(Readiness.CAUGHT_UP), 0)
    return Warmth(int(known.ready_class), known.lag if known.ready_class < Readiness.COLD else 0)
