"""A group in virtual time, and what a change of it cost: moves, handovers, time until rest, downtime of each task."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from batonpass.simulate.tasks import Task, TaskSet


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The cost of one change, in tasks, records and milliseconds.

    `moved` counts stateful tasks that have another owner than before the change, `handovers` every grant of a stateful
    task to a process other than its last owner. `rest_ms` is counted from the change; None: not yet at rest.
    `downtime_ms` has every task, stateless ones too: 0 if it never stopped, and counted until now if it is still down.
    `restored_records` are those of all copies, cold starts and warm-ups alike.
    """

    moved: int
    handovers: int
    rest_ms: int | None
    downtime_ms: Mapping[Task, int]
    restored_records: int


class Stint(NamedTuple):
    """A stretch in which a process had a task as its active, restoring or running it; ``to_ms`` None: it goes on."""

    task: Task
    client: str
    is_running: bool
    from_ms: int
    to_ms: int | None = None


class Account:
    """Which process had which task as its active and when, and the cost since the last change began."""

    def __init__(self, tasks: TaskSet) -> None:
        self._tasks = tasks
        self._over: list[Stint] = []
        self._open: dict[Task, Stint] = {}
        # The last owner of each stateful task, now and when the change began.
        self._owners: dict[Task, str] = {}
        self.begin_change(now_ms=0, restored_records=0.0)

    def begin_change(self, *, now_ms: int, restored_records: float) -> None:
        """Count costs from now on."""
        self._began_ms, self._restored_before = now_ms, restored_records
        self._owners_before, self._handovers = dict(self._owners), 0

    @property
    def stints(self) -> tuple[Stint, ...]:
        """Every stint in the order of ends; stints that go on come last."""
        return (*self._over, *self._open.values())

    def granted(self, owners: Mapping[Task, str]) -> None:
        """Note the present owners; a task that has none now keeps its last one."""
        for task in self._tasks.stateful:
            if (owner := owners.get(task)) is not None:
                self._handovers += self._owners.get(task, owner) != owner
                self._owners[task] = owner

    def begins(self, task: Task, client: str, at_ms: int, *, is_running: bool) -> None:
        """Note that a process has a task as its active from now on, or runs it."""
        self.ends(task, at_ms)
        self._open[task] = Stint(task, client, is_running, at_ms)

    def ends(self, task: Task, at_ms: int) -> None:
        """Note that a task's active has been given up."""
        last = self._open.pop(task, None)
        if last is not None and last.from_ms < at_ms:
            self._over.append(last._replace(to_ms=at_ms))

    def outcome(self, *, now_ms: int, restored_records: float, rest_at_ms: int | None) -> GroupOutcome:
        down_ms = dict.fromkeys((*self._tasks.stateful, *self._tasks.stateless), now_ms - self._began_ms)
        for task, _, is_running, from_ms, to_ms in self.stints:
            if is_running:
                down_ms[task] -= max(0, (now_ms if to_ms is None else to_ms) - max(from_ms, self._began_ms))
        return GroupOutcome(
            moved=sum(self._owners[task] != owner for task, owner in self._owners_before.items()),
            handovers=self._handovers,
            rest_ms=None if rest_at_ms is None else max(0, rest_at_ms - self._began_ms),
            downtime_ms=down_ms,
            restored_records=round(restored_records - self._restored_before),
        )


class PlayedGroup(ABC):
    """A group and its virtual clock; whatever is called happens at `now_ms`, and `advance` lets time pass."""

    def __init__(self, tasks: TaskSet) -> None:
        self._account = Account(tasks)
        # Since when the group has been at rest; None while it is not.
        self._rest_at_ms: int | None = None

    @property
    @abstractmethod
    def now_ms(self) -> int: ...

    @abstractmethod
    def _restored_records(self) -> float:
        """Return how many records were restored until now."""

    @property
    @abstractmethod
    def next_ms(self) -> int | None:
        """When the next thing happens; None when nothing is left to happen."""

    @abstractmethod
    def _happen(self, due_ms: int) -> None:
        """Let the next thing happen, which is due then."""

    @abstractmethod
    def _pass_to(self, to_ms: int) -> None:
        """Let time pass in which nothing happens."""

    @abstractmethod
    def _has_come_to_rest(self) -> bool:
        """Whether every task runs, every copy has reached the end, and there is nothing to look at later."""

    @property
    def stints(self) -> tuple[Stint, ...]:
        """Which process had which task as its active and when, in the order of ends; stints that go on come last."""
        return self._account.stints

    def begin_change(self) -> None:
        self._account.begin_change(now_ms=self.now_ms, restored_records=self._restored_records())

    def outcome(self) -> GroupOutcome:
        """Return the cost since the change began; `rest_ms` is None if the group has not come to rest yet."""
        restored = self._restored_records()
        return self._account.outcome(now_ms=self.now_ms, restored_records=restored, rest_at_ms=self._rest_at_ms)

    def advance(self, to_ms: int) -> None:
        """Let time pass until then; everything that falls due on the way happens."""
        while (due := self.next_ms) is not None and due <= to_ms:
            self._step(due)
        self._pass_to(to_ms)

    def run_to_rest(self, *, limit_ms: int) -> bool:
        """Let time pass until the group is at rest; False if it is not at the limit."""
        while self._rest_at_ms is None:
            due = self.next_ms
            if due is None or due > limit_ms:
                self._pass_to(limit_ms)
                return False
            self._step(due)
        return True

    def _step(self, due_ms: int) -> None:
        self._happen(due_ms)
        if not self._has_come_to_rest():
            self._rest_at_ms = None
        elif self._rest_at_ms is None:
            self._rest_at_ms = self.now_ms
