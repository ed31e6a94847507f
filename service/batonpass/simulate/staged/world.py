"""The world of a scenario: changelogs that grow at rates of their own, and processes that restore at theirs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from batonpass.simulate.kip441 import Task, TaskSet
from batonpass.simulate.staged.model import Act, Scenario, Step


class ScenarioWorld:
    """Ends of changelogs and rates of restores, by what a scenario says.

    ``start_ms`` is the instant at which the scenario begins, ``record_bytes`` what a record takes.
    """

    def __init__(self, scenario: Scenario, *, start_ms: int = 0) -> None:
        self._tasks = scenario.tasks
        self._rates = {worker.name: worker.restore_per_second for worker in scenario.workers}
        self._loads = tuple(
            _Load(step for step in scenario.steps if step.act is Act.LOAD and step.subtopology in (None, number))
            for number in range(len(scenario.tasks))
        )
        self._start_ms = start_ms

    def end_offset(self, task: Task, at_ms: int) -> int:
        """The end of the task's changelog, had the task run until then; what was there before does not shrink."""
        number, partition = task
        sort = self._tasks[number]
        grown_ms = self._loads[number].weighted_ms(max(0, at_ms - self._start_ms))
        return sort.records[partition] + int(sort.rate[partition] * grown_ms / 1_000)

    def restore_rate(self, client: str) -> float:
        """How many records a second a process restores, all of its copies together."""
        return self._rates[client]


class _Load:
    """The factor on the rates of one subtopology over time, as the time that it is worth."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._at = [0]
        self._worth = [0.0]
        self._factor = [1.0]
        for step in sorted(steps, key=lambda one: one.at_ms):
            self._worth.append(self.weighted_ms(step.at_ms))
            self._at.append(step.at_ms)
            self._factor.append(step.factor)

    def weighted_ms(self, at_ms: int) -> float:
        """Return the time from the beginning until then, each stretch times its factor."""
        place = bisect_right(self._at, at_ms) - 1
        return self._worth[place] + (at_ms - self._at[place]) * self._factor[place]


def task_set(scenario: Scenario) -> TaskSet:
    """Return the tasks of a scenario: one subtopology after the other, by number."""
    stateful: list[Task] = []
    stateless: list[Task] = []
    for number, sort in enumerate(scenario.tasks):
        (stateful if sort.stateful else stateless).extend((number, partition) for partition in range(sort.partitions))
    return TaskSet(tuple(stateful), tuple(stateless))
