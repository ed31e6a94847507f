"""The request to placement and its answer: plain values, with tasks and members as small numbers.

A task is its index among the tasks of a topology. A member is its index among the members sorted by id. This module
needs neither the solver nor numpy, so code that only handles tasks and targets does not need them either.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

UNASSIGNED: Final = -1
"""The member of a task without an owner, or without a target."""


class Readiness(IntEnum):
    """How ready one member is to run a task, best first: a class before it is a number.

    ``ON_DISK`` is told from the others only where another member runs the task: its state falls further behind then.
    """

    RUNNING = 0
    CAUGHT_UP = 1
    BEHIND = 2
    ON_DISK = 3
    COLD = 4
    UNKNOWN = 5


class Warmth(NamedTuple):
    """How warm one copy, or the state on one member's disk, is. Sorts from warm to cold."""

    ready_class: int
    lag: int


NO_STATE: Final = Warmth(int(Readiness.COLD), 0)
"""The warmth of a member that has nothing of a task."""


class Waits(StrEnum):
    """Why a task has no target owner."""

    NO_CAPACITY = "no-capacity"
    NO_ELIGIBLE_MEMBER = "no-eligible-member"
    STALE_TOPOLOGY = "stale-topology"


class Moves(StrEnum):
    """Why a task's target is not its home."""

    NO_OWNER = "no-owner"
    DRAIN = "drain"
    PINNED = "pinned"
    MAX_TASKS = "max-tasks"
    TOPOLOGY = "topology"
    BALANCE = "balance"


@dataclass(frozen=True, slots=True)
class Tasks:
    """What placement knows of the tasks, by index.

    Attributes:
        subtopology: the number of its subtopology, in ascending order.
        stateful: whether there is a changelog to restore.
        weight: the load of running it, above 0.
        topology_epoch: the lowest topology epoch of a member that may take it.
        uniform: whether all stateful tasks weigh the same; derived.
        stateful_indexes: the indexes of stateful tasks, ascending; derived.
        newest_epoch: the highest topology epoch that a task needs; derived.
    """

    subtopology: tuple[int, ...]
    stateful: tuple[bool, ...]
    weight: tuple[float, ...]
    topology_epoch: tuple[int, ...]
    uniform: bool = field(init=False, compare=False)
    stateful_indexes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    newest_epoch: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Derive, once per topology, what every placement reads."""
        derive = object.__setattr__
        derive(self, "stateful_indexes", tuple([task for task, stateful in enumerate(self.stateful) if stateful]))
        derive(self, "uniform", len({self.weight[task] for task in self.stateful_indexes}) <= 1)
        derive(self, "newest_epoch", max(self.topology_epoch, default=0))


@dataclass(frozen=True, slots=True)
class PlacementMember:
    """What placement knows of one member.

    Attributes:
        id: its member id.
        capacity: its share of the load relative to the other members, above 0.
        max_tasks: the most copies of any kind that it takes, or None for no limit.
        max_stateful: the most copies of stateful tasks among them, including those it has, or None for no limit.
        tags: its client tags.
        topology_epoch: the newest topology that its program knows.
        may_be_target: whether anything may be placed on it. False while it drains or is missing.
        keeps_copies: its standbys stay on it although it may be no target, because it is only missing.
    """

    id: str
    capacity: float = 1.0
    max_tasks: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    topology_epoch: int = 0
    may_be_target: bool = True
    max_stateful: int | None = None
    keeps_copies: bool = False


Copies = Mapping[int, Mapping[int, Warmth]]
"""How warm copies and state on disk are: per task, by member. A member that is left out has nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """Everything that placement looks at. Equal requests get equal answers.

    Attributes:
        table: the tasks.
        members: the members, sorted by id.
        home: per task, the member that runs it now or holds the grant; ``UNASSIGNED`` without an owner.
        standbys: per task, its present target standbys, without members that left.
        previous: the member of a task's previous target, if it is not the home: a move under way.
        warming: the member on which a warmup runs for a move of a task's active.
        bound: the member that must be a task's target, whatever it costs (the table in ``targets``).
        warmth: returns, for tasks and members, how warm the members are for the tasks. A third argument returns for a
            task the members of which it need not be said.
        state_size: the records that a restore of a task from nothing reads, where known.
        num_standby_replicas: the standbys that every stateful task should have.
        rack_aware_tags: the tag keys over whose values a task's copies are spread, most important first.
        balance_held: a pause or a storm: tasks on eligible members stay where they are.
        balance_tolerance: a member whose load per capacity is above the average one by no more than this part of it
            gives nothing away; 0: every load is as low as it can be. Equal tasks are then placed as unequal ones are.
    """

    table: Tasks
    members: Sequence[PlacementMember]
    home: Sequence[int]
    standbys: Sequence[tuple[int, ...]]
    previous: Mapping[int, int] = field(default_factory=dict)
    warming: Mapping[int, int] = field(default_factory=dict)
    bound: Mapping[int, int] = field(default_factory=dict)
    warmth: Callable[..., Copies] = lambda *_of: {}
    state_size: Mapping[int, int] = field(default_factory=dict)
    num_standby_replicas: int = 0
    rack_aware_tags: tuple[str, ...] = ()
    balance_held: bool = False
    balance_tolerance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where every task belongs.

    Attributes:
        owner: per task, the target owner; ``UNASSIGNED`` for a task that waits.
        standbys: per task, the target standbys, ascending; empty for stateless tasks.
        waiting: why each task without a target owner waits. A draining member goes on running it meanwhile.
        why: why each task whose target is not its home has another target.
        moves: the stateful tasks whose target is not their home, including those without an owner.
        lower_bound: the fewest stateful moves of any equally balanced placement. It is exact if stateful tasks weigh
            the same, and otherwise never too high.
    """

    owner: list[int]
    standbys: list[tuple[int, ...]]
    waiting: Mapping[int, Waits]
    why: Mapping[int, Moves]
    moves: int
    lower_bound: int
