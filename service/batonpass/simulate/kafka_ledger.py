"""What a change of a group cost: moves, handovers, the time until rest, and how long each task stood still."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from batonpass.simulate.kafka_loop import HandoverTally
from batonpass.simulate.kip441 import Task


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The cost of one change, in tasks, records and milliseconds.

    `moved` counts stateful tasks that have another owner than before the change, `handovers` every grant of one to
    another process than the one that had it last. `rest_ms` is counted from the change; None: not yet at rest.
    `downtime_ms` and `longest_gap_ms` have every task, stateless ones too, 0 where it never stopped; a task that is
    still down counts until now. `restored_records` are those of all copies, cold starts and warm-ups alike.
    """

    moved: int
    handovers: int
    most_handovers_of_one_task: int
    most_handovers_in_one_rebalance: int
    rebalances: int
    rest_ms: int | None
    downtime_ms: Mapping[Task, int]
    longest_gap_ms: Mapping[Task, int]
    restored_records: int


class Ledger:
    """Keeps account of one change from its first moment on."""

    def __init__(
        self, tasks: Iterable[Task], *, owners: Mapping[Task, str], now_ms: int, restored_records: float
    ) -> None:
        self.started_ms = now_ms
        self.rebalances = 0
        self._restored_before = restored_records
        self._tally = HandoverTally(dict(owners))
        self._downtime_ms = dict.fromkeys(tasks, 0)
        self._longest_ms = dict.fromkeys(self._downtime_ms, 0)
        self._down_since_ms: dict[Task, int] = {}

    def stopped(self, task: Task, at_ms: int) -> None:
        """Note that nobody processes the task from now on; noting it twice changes nothing."""
        self._down_since_ms.setdefault(task, at_ms)

    def started(self, task: Task, at_ms: int) -> None:
        """Note that the task is processed again."""
        since = self._down_since_ms.pop(task, None)
        if since is not None:
            self._downtime_ms[task] += at_ms - since
            self._longest_ms[task] = max(self._longest_ms[task], at_ms - since)

    def granted(self, owners: Mapping[Task, str]) -> None:
        """Note who owns which stateful task after a rebalance."""
        self.rebalances += 1
        self._tally.observe(owners)

    def outcome(self, *, now_ms: int, restored_records: float, rest_at_ms: int | None) -> GroupOutcome:
        """The account as of now."""
        open_ms = {task: now_ms - since for task, since in self._down_since_ms.items()}
        return GroupOutcome(
            moved=self._tally.moved,
            handovers=self._tally.of_task.total(),
            most_handovers_of_one_task=self._tally.most_of_one_task,
            most_handovers_in_one_rebalance=self._tally.most_at_once,
            rebalances=self.rebalances,
            rest_ms=None if rest_at_ms is None else max(0, rest_at_ms - self.started_ms),
            downtime_ms={task: ms + open_ms.get(task, 0) for task, ms in self._downtime_ms.items()},
            longest_gap_ms={task: max(ms, open_ms.get(task, 0)) for task, ms in self._longest_ms.items()},
            restored_records=round(restored_records - self._restored_before),
        )
