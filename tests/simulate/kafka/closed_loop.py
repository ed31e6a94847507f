"""Kafka's assignor in a closed loop: it is asked again and again until it asks for no further look.

The plainest world there is, the one that Kafka's own convergence test uses: whatever copy was granted in one rebalance
is caught up at the next, and whatever is no longer assigned is forgotten. Time is counted in probing intervals. It
shows what the assignor alone costs in moves, handovers and rounds; sessions, two-step handovers and restore times are
the subject of `batonpass.simulate.kafka.group`.
"""

from collections import Counter
from dataclasses import dataclass

from batonpass.simulate.kafka.assignor import LATEST, Assignment, ClientState, Kip441Config, assign
from batonpass.simulate.tasks import Task, TaskSet

PROBING_INTERVAL_MINUTES = 10
"""Kafka's default `probing.rebalance.interval.ms`, in minutes."""


@dataclass(frozen=True, slots=True)
class LoopOutcome:
    """What one change of the group cost until rest.

    Stateful tasks alone are counted: `moved` those that end with another owner than they began with, and `handovers`
    every change of owner on the way. `probing_rounds` counts the rebalances after the first; `assignment` is the last
    one, and stands still.
    """

    moved: int
    handovers: int
    most_handovers_of_one_task: int
    most_handovers_in_one_rebalance: int
    probing_rounds: int
    assignment: Assignment

    @property
    def minutes(self) -> int:
        """The time to rest at Kafka's default probing interval."""
        return self.probing_rounds * PROBING_INTERVAL_MINUTES


class ClosedLoop:
    """A group of Kafka Streams processes in which every copy is caught up one rebalance after it was granted."""

    def __init__(self, tasks: TaskSet, config: Kip441Config, *, end_offset: int = 150_000) -> None:
        self.tasks = tasks
        self._config = config
        self._end_offset = end_offset
        self._capacity: dict[str, int] = {}
        self._lags: dict[str, dict[Task, int]] = {}
        self._gone: dict[str, dict[Task, int]] = {}
        self._owners: dict[Task, str] = {}

    @property
    def clients(self) -> tuple[str, ...]:
        """The processes in the group, sorted."""
        return tuple(sorted(self._capacity))

    def join(self, client: str, *, capacity: int = 1) -> None:
        """Add a process with an empty disk."""
        self._capacity[client] = capacity
        self._lags[client] = {}

    def leave(self, client: str) -> None:
        """Take a process away; what it held stays on its disk."""
        del self._capacity[client]
        self._gone[client] = {task: max(lag, 0) for task, lag in self._lags.pop(client).items()}

    def come_back(self, client: str, *, capacity: int = 1) -> None:
        """Add a process again that left, with what it held then."""
        self._capacity[client] = capacity
        self._lags[client] = self._gone.pop(client)

    def rebalance(self) -> Assignment:
        """Decide once; every copy granted is caught up afterwards, and every other forgotten."""
        cold = dict.fromkeys(self.tasks.stateful, self._end_offset)
        assignment = assign(
            [
                ClientState(client=client, lags=cold | self._lags[client], capacity=capacity)
                for client, capacity in self._capacity.items()
            ],
            self.tasks,
            self._config,
        )
        self._owners = {task: owner for task, owner in assignment.owners.items() if task in cold}
        for client, tasks in assignment.clients.items():
            self._lags[client] = dict.fromkeys(tasks.copies, 0)
        for task, owner in self._owners.items():
            self._lags[owner][task] = LATEST
        return assignment

    def settle(self, *, limit: int = 1000) -> LoopOutcome:
        """Decide until no further look is asked for, and say what that took, counted from the owners before.

        Raises:
            RuntimeError: The group was still not at rest after `limit` rebalances.
        """
        first, most_at_once = dict(self._owners), 0
        last, of_task = dict(first), Counter[Task]()
        for rounds in range(limit):
            assignment = self.rebalance()
            changed = [task for task, owner in self._owners.items() if last.get(task, owner) != owner]
            last.update(self._owners)
            of_task.update(changed)
            most_at_once = max(most_at_once, len(changed))
            if not assignment.probing_needed:
                return LoopOutcome(
                    moved=sum(last[task] != owner for task, owner in first.items()),
                    handovers=of_task.total(),
                    most_handovers_of_one_task=max(of_task.values(), default=0),
                    most_handovers_in_one_rebalance=most_at_once,
                    probing_rounds=rounds,
                    assignment=assignment,
                )
        raise RuntimeError(f"not at rest after {limit} rebalances of {len(self._capacity)} clients")
