"""What placement is asked and what it answers: values only, tasks and members as small numbers.

A task is its *rank*, its place in the table's order; a member is its *seat*, its place among the members sorted by id.
Placement runs on every join and leave of groups of 100,000 tasks, and flat sequences of integers are what makes that
affordable; whoever calls it translates names once, where the topology and the membership change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from batonpass.core.ids import MemberId, TaskId

NOBODY: Final = -1
"""The seat of a task without an owner, or without a target."""


class Ready(IntEnum):
    """How much is left to restore on one member, as a class before it is a number; lower is warmer."""

    RUNNING = 0
    CAUGHT_UP = 1
    BEHIND = 2
    ON_DISK = 3
    NOTHING = 4
    UNKNOWN = 5


class Warmth(NamedTuple):
    """How warm one copy, or the state on one member's disk, is; sorts from warm to cold."""

    ready_class: int
    lag: int


NO_STATE: Final = Warmth(int(Ready.NOTHING), 0)
"""How warm a seat is that has nothing of a task."""


class WaitReason(StrEnum):
    """Why a task has no target owner."""

    NO_CAPACITY = "no-capacity"
    STALE_TOPOLOGY = "stale-topology"
    NO_ELIGIBLE_MEMBER = "no-eligible-member"


class MoveReason(StrEnum):
    """Why a task's target is not the member that has it."""

    NO_OWNER = "no-owner"
    DRAIN = "drain"
    PINNED = "pinned"
    MAX_TASKS = "max-tasks"
    TOPOLOGY = "topology"
    BALANCE = "balance"


@dataclass(frozen=True, slots=True)
class TaskTable:
    """The tasks of a topology, in the order (subtopology, partition); a task's rank is its index.

    Attributes:
        ids: the tasks, sorted.
        subtopology: per rank, the dense index of its subtopology, which never falls from one rank to the next.
        stateful: per rank, whether there is a changelog to restore.
        weight: per rank, the load that running it means, above 0.
        topology_epoch: per rank, the least topology epoch of a member that may take it.
        rank: the rank of each id; derived.
        uniform: whether all stateful tasks weigh the same; derived.
        stateful_ranks: the ranks of stateful tasks, ascending; derived.
        stateless_ranks: the ranks of stateless tasks, ascending; derived.
        stateless: per rank, whether there is nothing to restore; derived.
        stateful_weights: the weights of the stateful tasks, by ascending rank; derived.
        subtopologies: how many subtopologies there are; derived.
        newest_epoch: the highest topology epoch that a task asks for; derived.
    """

    ids: tuple[TaskId, ...]
    subtopology: tuple[int, ...]
    stateful: tuple[bool, ...]
    weight: tuple[float, ...]
    topology_epoch: tuple[int, ...]
    rank: Mapping[TaskId, int] = field(init=False, repr=False, compare=False)
    uniform: bool = field(init=False, compare=False)
    stateful_ranks: tuple[int, ...] = field(init=False, repr=False, compare=False)
    stateless_ranks: tuple[int, ...] = field(init=False, repr=False, compare=False)
    stateless: tuple[bool, ...] = field(init=False, repr=False, compare=False)
    stateful_weights: tuple[float, ...] = field(init=False, repr=False, compare=False)
    subtopologies: int = field(init=False, compare=False)
    newest_epoch: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Derive once per topology what every placement reads."""
        stateful = tuple(rank for rank, has_state in enumerate(self.stateful) if has_state)
        derive = object.__setattr__
        derive(self, "rank", {task: rank for rank, task in enumerate(self.ids)})
        derive(self, "uniform", len({self.weight[rank] for rank in stateful}) <= 1)
        derive(self, "stateful_ranks", stateful)
        derive(self, "stateless_ranks", tuple(rank for rank, has_state in enumerate(self.stateful) if not has_state))
        derive(self, "stateful_weights", tuple(self.weight[rank] for rank in stateful))
        derive(self, "stateless", tuple(not has_state for has_state in self.stateful))
        derive(self, "subtopologies", max(self.subtopology, default=-1) + 1)
        derive(self, "newest_epoch", max(self.topology_epoch, default=0))


@dataclass(frozen=True, slots=True)
class Seat:
    """What placement knows of one member.

    Attributes:
        member: who sits here.
        capacity: its share of the load relative to the other members, above 0.
        max_tasks: the most copies of any kind that it takes, or None for no limit.
        tags: its client tags.
        topology_epoch: the newest topology that its program knows.
        open: False while it drains: it is then the target of nothing.
    """

    member: MemberId
    capacity: float = 1.0
    max_tasks: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    topology_epoch: int = 0
    open: bool = True


def nothing_anywhere(_rank: int) -> Mapping[int, Warmth]:
    """Return that no seat has state of the task."""
    return {}


def size_unknown(_rank: int) -> int:
    """Return that nobody knows how much there is to restore."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """Everything that placement looks at. Two equal requests get equal answers.

    Attributes:
        table: the tasks.
        seats: the members, sorted by id.
        home: rank to the seat that runs the task now or holds the grant; `NOBODY` without an owner.
        standbys: rank to the seats that are its target standbys now; those of members that left are left out.
        previous: rank to the seat of the previous target where that is not the home: a move under way.
        warming: rank to the seat on which a warmup runs for a move of its active.
        bound: rank to the seat that must be the target: pins, handovers already sent, copies that nobody can read.
        warmth: rank to the warmth of copies and of state on disk, per seat; a seat left out has nothing.
        warmth_at: rank and seat to the warmth of what is there; None: nothing. Where not given, `warmth` is asked.
        known_at: rank to the seats that `warmth` has something to say of. Where not given, `warmth` is asked.
        level_at: seat to whether every copy there is known to be caught up; where not given, nobody knows.
        stocked: seat to the ranks of which it may have state of any kind, so that `warmth` need not be asked for every
            task that could move to it; None where nobody keeps that.
        state_size: rank to the records that a restore from nothing reads, 0 where nobody knows.
        num_standby_replicas: the standbys that every stateful task should have.
        rack_aware_tags: the tag keys over whose values a task's copies are spread, most important first.
        balance_held: a pause or a storm: whatever runs on an open seat stays there.
    """

    table: TaskTable
    seats: Sequence[Seat]
    home: Sequence[int]
    standbys: Sequence[tuple[int, ...]]
    previous: Mapping[int, int] = field(default_factory=dict)
    warming: Mapping[int, int] = field(default_factory=dict)
    bound: Mapping[int, int] = field(default_factory=dict)
    warmth: Callable[[int], Mapping[int, Warmth]] = nothing_anywhere
    warmth_at: Callable[[int, int], Warmth | None] | None = None
    known_at: Callable[[int], Iterable[int]] | None = None
    level_at: Callable[[int], bool] | None = None
    stocked: Callable[[int], Collection[int]] | None = None
    state_size: Callable[[int], int] = size_unknown
    num_standby_replicas: int = 0
    rack_aware_tags: tuple[str, ...] = ()
    balance_held: bool = False

    def state_at(self, rank: int, seat: int) -> Warmth:
        """Return how warm what a seat has of a task is."""
        known = self.warmth(rank).get(seat) if self.warmth_at is None else self.warmth_at(rank, seat)
        return NO_STATE if known is None else known

    def is_level(self, seat: int) -> bool:
        """Say whether it is known, without asking for each of them, that all copies on a seat are equally warm."""
        return self.warmth is nothing_anywhere or (self.level_at is not None and self.level_at(seat))

    def seats_with_state(self, rank: int) -> Iterable[int]:
        """Return the seats that may have state of a task."""
        return self.warmth(rank) if self.known_at is None else self.known_at(rank)


def stock(request: PlacementRequest, seats: Iterable[int], most: int) -> dict[int, Collection[int]] | None:
    """Return the tasks of which each of these seats may have state; None where asking for every task is no dearer."""
    if request.warmth is nothing_anywhere:
        return {}
    if request.stocked is None:
        return None
    found: dict[int, Collection[int]] = {}
    left = most
    for seat in seats:
        ranks = request.stocked(seat)
        if ranks:
            found[seat] = ranks
            left -= len(ranks)
            if left < 0:
                return None
    return found


class LoadSpread(NamedTuple):
    """The highest and the lowest stateful active load per capacity over the open seats; zeros without any."""

    highest: float
    lowest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where every task belongs.

    Attributes:
        owner: rank to the seat of the target owner; `NOBODY` for a task that waits.
        standbys: rank to the seats of the target standbys, ascending; empty for stateless tasks.
        waiting: why each task without a target owner waits. What runs on a draining member meanwhile goes on there.
        short: rank to the number of standbys that nobody can take (`too-few-members`).
        why: why each task whose target is not its home has another target.
        moves: stateful tasks whose target is not their home, those without an owner included.
        lower_bound: stateful moves that any placement balanced as well needs: exactly, where stateful tasks weigh the
            same; never more than that, where they do not.
        before: the spread of load over the open seats at home.
        after: the spread of load over the open seats at the target.
    """

    owner: list[int]
    standbys: list[tuple[int, ...]]
    waiting: Mapping[int, WaitReason]
    short: Mapping[int, int]
    why: Mapping[int, MoveReason]
    moves: int
    lower_bound: int
    before: LoadSpread
    after: LoadSpread
