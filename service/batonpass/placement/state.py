"""What the steps of one placement share and fill in. It lives for one call of ``place``."""

from collections.abc import Iterable

import numpy as np

from batonpass.placement.flow import Ints, Marks, Solver
from batonpass.placement.quotas import whole_shares
from batonpass.placement.types import UNASSIGNED, PlacementRequest, Waits

UNLIMITED = 1 << 30


class PlacementState:
    """Target owners in the making, and what every step needs to know about members.

    Attributes:
        request: the request to placement.
        solver: solves networks.
        owner: per task, its target owner so far; at first its home.
        home: the homes as an array.
        waiting: why tasks have no target owner.
        may_be_target: per member, whether it may be a target; one more entry, for ``UNASSIGNED``, is False.
        eligible: the members that may, ascending.
        capacity: per member.
        width: per member, its capacity relative to the mean of the eligible ones.
        shares: per member, a whole number in proportion to its capacity.
        limit: per member, the most copies that it takes.
        stateful_limit: per member, the most copies of stateful tasks among them.
        limited: whether some eligible member has a limit.
        restricted: whether some eligible member does not know the newest topology.
    """

    def __init__(self, request: PlacementRequest, solver: Solver) -> None:
        members = request.members
        self.request = request
        self.solver = solver
        self.home = np.array(request.home, np.int64)
        self.owner = list(request.home)
        self.waiting: dict[int, Waits] = {}
        self.may_be_target: Marks = np.array([*(member.may_be_target for member in members), False])
        self.eligible = [index for index, member in enumerate(members) if member.may_be_target]
        self.capacity = [member.capacity for member in members]
        mean = np.mean([self.capacity[member] for member in self.eligible] or [1.0])
        self.width = np.array(self.capacity, float) / mean
        self.shares = whole_shares(self.capacity)
        self.limit = _limits([member.max_tasks for member in members])
        self.stateful_limit = _limits([member.max_stateful for member in members])
        self.limited = bool((np.minimum(self.limit, self.stateful_limit)[self.eligible] < UNLIMITED).any())
        epochs = [members[member].topology_epoch for member in self.eligible] or [0]
        self.newest = max(epochs)
        self.need = np.array(request.table.topology_epoch, np.int64)
        self.restricted = request.table.newest_epoch > min(epochs)
        self.stateful: Marks = np.array(request.table.stateful, np.bool_)

    def wait(self, task: int, reason: Waits) -> None:
        self.owner[task] = UNASSIGNED
        self.waiting[task] = reason

    def takes(self, task: int, member: int) -> bool:
        """Say whether a member's program knows a task's topology epoch."""
        request = self.request
        return not self.restricted or request.members[member].topology_epoch >= request.table.topology_epoch[task]

    def count(self, members: Iterable[int] | Ints) -> Ints:
        """Return how often each member occurs in ``members``."""
        indexes = np.asarray(members if isinstance(members, np.ndarray) else list(members), np.int64)
        return np.bincount(indexes[indexes >= 0], minlength=len(self.capacity))

    def stateful_load(self) -> list[float]:
        """Return the weight of the stateful tasks per member, as far as they are placed."""
        owners = np.array(self.owner, np.int64)
        some = self.stateful & (owners >= 0)
        weights = np.array(self.request.table.weight, float)[some]
        return [float(load) for load in np.bincount(owners[some], weights, minlength=len(self.capacity))]


def _limits(counts: Iterable[int | None]) -> Ints:
    return np.array([UNLIMITED if count is None else min(count, UNLIMITED) for count in counts], np.int64)
