"""The working state of one placement: what the steps share, fill in and hand on.

A draft lives for one call of `place` and never leaves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress

from batonpass.core.placement_bounds import whole_shares
from batonpass.core.placement_types import NOBODY, PlacementRequest, WaitReason

UNLIMITED = 1 << 60


class Draft:
    """Target owners in the making, and what every step wants to know about seats.

    Attributes:
        request: what was asked.
        owner: rank to the seat of the target owner so far; starts as the homes.
        open: the open seats, ascending.
        closed: per seat, whether it may be given nothing; one more entry, for `NOBODY`, is True.
        capacity: per seat.
        share: per seat, a whole number in proportion to its capacity.
        limit: per seat, the most copies that it takes.
        stateful_limit: the same for tasks with state, beside the stateless ones that are bound to the seat.
        actives: per seat, the actives that it is to have, as far as they are placed.
        stateful: per seat, those of them that are stateful.
        gave_way: the tasks that left their home for newer ones that fewer seats may take.
        limited: whether some open seat has a limit.
        restricted: whether some open seat does not know the newest topology.
        waiting: rank to the reason why it has no target owner.
    """

    __slots__ = (
        "_home_count",
        "actives",
        "capacity",
        "closed",
        "gave_way",
        "limit",
        "limited",
        "open",
        "owner",
        "request",
        "restricted",
        "share",
        "stateful",
        "stateful_limit",
        "waiting",
    )

    def __init__(self, request: PlacementRequest) -> None:
        seats = request.seats
        self.request = request
        self.owner = list(request.home)
        self.closed = [not seat.open for seat in seats] + [True]
        self.open = [index for index, seat in enumerate(seats) if seat.open]
        self.capacity = [seat.capacity for seat in seats]
        self.share = whole_shares(self.capacity)
        self.limit = [UNLIMITED if seat.max_tasks is None else seat.max_tasks for seat in seats]
        self.stateful_limit = self._beside_what_is_bound()
        self.actives = [0] * len(seats)
        self.stateful = self.actives
        self.limited = any(seats[index].max_tasks is not None for index in self.open)
        self._home_count: list[int] | None = None
        self.gave_way: set[int] = set()
        self.waiting: dict[int, WaitReason] = {}
        oldest = min((seats[index].topology_epoch for index in self.open), default=0)
        self.restricted = request.table.newest_epoch > oldest

    def _beside_what_is_bound(self) -> list[int]:
        bound, stateful = self.request.bound, self.request.table.stateful
        left = list(self.limit)
        for seat in [seat for rank, seat in bound.items() if not stateful[rank]]:
            left[seat] = max(0, left[seat] - 1)
        return left

    def wait(self, rank: int, reason: WaitReason) -> None:
        """Leave a task without a target."""
        self.owner[rank] = NOBODY
        self.waiting[rank] = reason

    def takes(self, rank: int, seat: int) -> bool:
        """Tell whether the seat's program knows the topology of the task."""
        request = self.request
        return not self.restricted or request.seats[seat].topology_epoch >= request.table.topology_epoch[rank]

    def may_be_placed(self, rank: int) -> bool:
        """Tell whether some open seat knows the topology of the task; if not, the task waits for one."""
        if any(self.takes(rank, seat) for seat in self.open):
            return True
        self.wait(rank, WaitReason.STALE_TOPOLOGY)
        return False

    def pick(self, seats: Sequence[int], *, stateful: bool) -> Sequence[int]:
        """Return those of the seats, one per rank, that belong to tasks of one kind."""
        table = self.request.table
        ranks = table.stateful_ranks if stateful else table.stateless_ranks
        if len(ranks) == len(table.ids):
            return seats
        return list(compress(seats, table.stateful if stateful else table.stateless)) if ranks else []

    def count(self, seats: Iterable[int]) -> list[int]:
        """Return how often each seat is among these."""
        counted = Counter(seats)
        return [counted.get(seat, 0) for seat in range(len(self.capacity))]

    def weigh(self, seats: Sequence[int]) -> list[float]:
        """Return the weight of the stateful tasks per seat, if they are on these seats."""
        load = [0.0] * (len(self.capacity) + 1)
        for seat, weight in zip(seats, self.request.table.stateful_weights, strict=True):
            # What has no owner adds to the last place, which `NOBODY` is as an index, and which is cut off.
            load[seat] += weight
        return load[:-1]

    def home_count(self) -> list[int]:
        """Return how many stateful tasks each seat is the home of."""
        if self._home_count is None:
            self._home_count = self.count(self.pick(self.request.home, stateful=True))
        return list(self._home_count)

    def owner_count(self) -> list[int]:
        """Return how many stateful tasks each seat is the target owner of."""
        if self.owner == self.request.home:
            return self.home_count()
        return self.count(self.pick(self.owner, stateful=True))
