"""What a change of a group cost: moves, handovers, the time until rest, and how long each task stood still."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from batonpass.simulate.tasks import Task


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The cost of one change, in tasks, records and milliseconds.

    `moved` counts stateful tasks that have another owner than before the change, `handovers` every grant of a stateful
    task to a process other than its last owner. `rest_ms` is counted from the change; None: not yet at rest.
    `downtime_ms` and `longest_gap_ms` have every task, stateless ones too: 0 if it never stopped, and counted until now
    if it is still down. `restored_records` are those of all copies, cold starts and warm-ups alike.
    """

    moved: int
    handovers: int
    rest_ms: int | None
    downtime_ms: Mapping[Task, int]
    longest_gap_ms: Mapping[Task, int]
    restored_records: int


@dataclass(slots=True)
class HandoverTally:
    """Counts changes of owner from one assignment of the group to the next."""

    owners: dict[Task, str]
    of_task: Counter[Task] = field(default_factory=Counter)
    _first: dict[Task, str] = field(init=False)

    def __post_init__(self) -> None:
        self._first = dict(self.owners)

    def observe(self, owners: Mapping[Task, str]) -> int:
        """Note the present owners; return how many tasks changed hands.

        A task that has no owner now keeps its last one.
        """
        changed = [task for task, owner in owners.items() if self.owners.get(task, owner) != owner]
        self.of_task.update(changed)
        self.owners.update(owners)
        return len(changed)

    @property
    def moved(self) -> int:
        """How many tasks have another owner now than at first."""
        return sum(self.owners[task] != owner for task, owner in self._first.items())


class ChangeCost:
    """Adds up the cost of one change from its first moment on."""

    def __init__(
        self, tasks: Iterable[Task], *, owners: Mapping[Task, str], now_ms: int, restored_records: float
    ) -> None:
        self.started_ms = now_ms
        self._restored_before = restored_records
        self._tally = HandoverTally(dict(owners))
        self._downtime_ms = dict.fromkeys(tasks, 0)
        self._longest_ms = dict.fromkeys(self._downtime_ms, 0)
        self._down_since_ms: dict[Task, int] = {}

    def stopped(self, task: Task, at_ms: int) -> None:
        """Note that no process runs the task from now on; noting it twice changes nothing."""
        self._down_since_ms.setdefault(task, at_ms)

    def started(self, task: Task, at_ms: int) -> None:
        """Note that the task is processed again."""
        since = self._down_since_ms.pop(task, None)
        if since is not None:
            self._downtime_ms[task] += at_ms - since
            self._longest_ms[task] = max(self._longest_ms[task], at_ms - since)

    def granted(self, owners: Mapping[Task, str]) -> None:
        self._tally.observe(owners)

    def outcome(self, *, now_ms: int, restored_records: float, rest_at_ms: int | None) -> GroupOutcome:
        open_ms = {task: now_ms - since for task, since in self._down_since_ms.items()}
        return GroupOutcome(
            moved=self._tally.moved,
            handovers=self._tally.of_task.total(),
            rest_ms=None if rest_at_ms is None else max(0, rest_at_ms - self.started_ms),
            downtime_ms={task: ms + open_ms.get(task, 0) for task, ms in self._downtime_ms.items()},
            longest_gap_ms={task: max(ms, open_ms.get(task, 0)) for task, ms in self._longest_ms.items()},
            restored_records=round(restored_records - self._restored_before),
        )


class Stint(NamedTuple):
    """A stretch in which a process had a task as its active, restoring or running it; ``to_ms`` None: it goes on."""

    task: Task
    client: str
    is_running: bool
    from_ms: int
    to_ms: int | None = None


class Account:
    """Which process had which task as its active and when, and the cost since the last change began."""

    def __init__(self, cost: ChangeCost) -> None:
        self.cost = cost
        self._over: list[Stint] = []
        self._open: dict[Task, Stint] = {}

    @property
    def stints(self) -> tuple[Stint, ...]:
        """Every stint in the order of ends; stints that go on come last."""
        return (*self._over, *self._open.values())

    def begins(self, task: Task, client: str, at_ms: int, *, is_running: bool) -> None:
        """Note that a process has a task as its active from now on, or runs it."""
        self._end(task, at_ms)
        self._open[task] = Stint(task, client, is_running, at_ms)
        if is_running:
            self.cost.started(task, at_ms)
        else:
            self.cost.stopped(task, at_ms)

    def ends(self, task: Task, at_ms: int) -> None:
        """Note that a task's active has been given up."""
        self._end(task, at_ms)
        self.cost.stopped(task, at_ms)

    def _end(self, task: Task, at_ms: int) -> None:
        last = self._open.pop(task, None)
        if last is not None and last.from_ms < at_ms:
            self._over.append(last._replace(to_ms=at_ms))
