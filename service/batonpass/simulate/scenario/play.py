"""Plays a scenario over the real core, in virtual time, and returns the result."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from batonpass.core.decide import Decision
from batonpass.core.state.inputs import Input
from batonpass.core.state.model import Group
from batonpass.core.state.soft import Soft
from batonpass.simulate.coordinator import SimulatedCoordinator
from batonpass.simulate.costs import GroupOutcome, Stint
from batonpass.simulate.group import BatonpassGroup, BatonpassSettings
from batonpass.simulate.scenario.model import Act, Scenario, Step
from batonpass.simulate.tasks import Task, TaskSet
from batonpass.worker.protocol import OnLeaseLost

MINUTE_MS: Final = 60_000
LEAD_MS: Final = 10 * MINUTE_MS
"""How long before its scenario begins a group is declared, so that it has members and is at rest by then."""

LIMIT_MS: Final = 24 * 60 * MINUTE_MS
"""How long after its last step a scenario without an end is played at most, if it does not come to rest."""

_STOPPING_MS: Final = 5_000
_PAUSE_MS: Final = 250


class ScenarioObserver(Protocol):
    """Is called with everything that a service would write down."""

    def decided(self, group: Group, soft: Soft, item: Input, decision: Decision, now_ms: int) -> None:
        """Called with a decision that writes records, and with the state and the input that it was made on."""

    def minute(self, group: Group, soft: Soft, now_ms: int) -> None:
        """Called when a minute is over."""


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a scenario. ``missed`` has the steps that could not be taken, as their process was not there.

    ``stints`` says which process had which task as its active and when. Instants are those of the virtual clock, which
    showed ``start_ms`` when the scenario began and ``end_ms`` when it was over.
    """

    scenario: Scenario
    outcome: GroupOutcome
    stints: tuple[Stint, ...]
    start_ms: int
    end_ms: int
    missed: tuple[Step, ...]
    decisions: int

    def missed_in_words(self) -> tuple[str, ...]:
        """Return the missed steps, each as `drain a at 120s`."""
        return tuple(f"{step.act} {step.worker} at {step.at_ms / 1_000:g}s" for step in self.missed)


def play(
    scenario: Scenario,
    *,
    observer: ScenarioObserver | None = None,
    start_ms: int = LEAD_MS,
    passed: Callable[[int], None] = lambda _: None,
) -> Played:
    """Play a scenario from its beginning at ``start_ms`` to its end; ``passed`` is called with the time played.

    The same scenario always has the same result.

    Raises:
        NeverAtRest: The group does not come to rest before anything happens to it.
        InvalidConfig: Its settings are refused.
    """
    group = _ScenarioGroup(scenario, observer, start_ms, passed)
    for step in sorted(scenario.steps, key=lambda one: one.at_ms):
        if scenario.until_ms is None or step.at_ms <= scenario.until_ms:
            group.go_to(start_ms + step.at_ms)
            group.take(step)
    group.go_to_end()
    return Played(
        scenario=scenario,
        outcome=group.outcome(),
        stints=group.stints,
        start_ms=start_ms,
        end_ms=group.now_ms,
        missed=tuple(group.missed),
        decisions=group.decisions,
    )


class _ScenarioGroup(BatonpassGroup):
    """The group of a scenario, to which its steps happen; ``missed`` are those that could not be taken."""

    def __init__(
        self, scenario: Scenario, observer: ScenarioObserver | None, start_ms: int, passed: Callable[[int], None]
    ) -> None:
        self._scenario = scenario
        self._observer = observer
        self._start_ms = start_ms
        self._passed = passed
        self._taking_part = {worker.name: worker for worker in scenario.workers}
        self.missed: list[Step] = []
        self._measured: dict[Task, float] = {}
        self._rates = ScenarioRates(scenario, start_ms=start_ms)
        settings = BatonpassSettings(config=scenario.config, group_id=scenario.group, start_ms=start_ms - LEAD_MS)
        super().__init__(task_set(scenario), settings, self._rates)
        self.use(self._rates.loads(self.now_ms))
        self._minute_ms = (self.now_ms // MINUTE_MS + 1) * MINUTE_MS
        for place, name in enumerate(scenario.present):
            # Heartbeats of different members do not fall on one instant.
            self.advance(settings.start_ms + 3_000 * place // (2 * len(scenario.present)))
            self._join(name)
        self.settle()
        self.go_to(start_ms)
        self.begin_change()

    def decided(self, coordinator: SimulatedCoordinator, item: Input, decision: Decision) -> None:
        if decision.records and self._observer is not None:
            self._observer.decided(coordinator.group, coordinator.soft, item, decision, coordinator.clock_ms)

    def go_to(self, to_ms: int) -> None:
        """Let time pass until then; skip stretches in which nothing new happens."""
        while self.now_ms < to_ms:
            self.skip_rest(to_ms)
            self._tell_minutes()
            if self.now_ms < to_ms:
                self.advance_to_rest(to_ms, not_beyond_ms=self._minute_ms)
                self._tell_minutes()
            if self.now_ms >= self._start_ms:
                self._passed(self.now_ms - self._start_ms)

    def _tell_minutes(self) -> None:
        while self._minute_ms <= self.now_ms:
            if self._observer is not None:
                self._observer.minute(self.group, self.soft, self._minute_ms)
            self._minute_ms += MINUTE_MS

    def take(self, step: Step) -> None:
        """Let one thing happen, if it can."""
        name = step.worker
        is_up = name in self.members
        match step.act:
            case Act.LOAD | Act.MEASURED:
                self._measured.update(step.loads)
                self.use({**self._rates.loads(self.now_ms), **self._measured})
            case Act.COORDINATOR:
                self.restart_coordinator()
            case Act.JOIN | Act.RETURN:
                self._start(step)
            case _ if not is_up:
                self.missed.append(step)
            case Act.RESTART:
                self.close(name)
            case Act.LEAVE:
                self.close(name, leave=True)
            case Act.CRASH:
                self.crash(name)
            case Act.DRAIN:
                self.drain(name, deadline_ms=step.deadline_ms)

    def _start(self, step: Step) -> None:
        name = step.worker
        if name not in self.named:
            self._join(name)
            return
        give_up_ms = self.now_ms + _STOPPING_MS
        while name in self.members and self.now_ms < give_up_ms:
            # It is still stopping; it is started again only after that.
            self.advance(self.now_ms + _PAUSE_MS)
        if name in self.members:
            self.missed.append(step)
            return
        self.come_back(name, keeps_disk=step.keeps_disk)

    def _join(self, name: str) -> None:
        worker = self._taking_part[name]
        self.join(
            name,
            capacity=worker.capacity,
            tags=worker.tags,
            on_lease_lost=OnLeaseLost.CONTINUE if worker.fenced else OnLeaseLost.STOP,
        )

    def go_to_end(self) -> None:
        """Let the scenario come to its end."""
        until_ms = self._scenario.until_ms
        if until_ms is not None:
            self.go_to(self._start_ms + until_ms)
            return
        limit_ms = self.now_ms + LIMIT_MS
        # The last step may not have had any effect yet.
        self.go_to(self.now_ms + 1_000)
        while not self.is_at_rest and self.now_ms < limit_ms:
            self.go_to(self.now_ms + MINUTE_MS)


class ScenarioRates:
    """Ends of changelogs and rates of restores in a scenario that begins at ``start_ms``."""

    def __init__(self, scenario: Scenario, *, start_ms: int = 0) -> None:
        self._subtopologies = scenario.subtopologies
        self._rates = {worker.name: worker.restore_per_second for worker in scenario.workers}
        self._loads = tuple(
            _Load(step for step in scenario.steps if step.act is Act.LOAD and step.subtopology in (None, number))
            for number in range(len(scenario.subtopologies))
        )
        self._start_ms = start_ms

    def end_offset(self, task: Task, at_ms: int) -> int:
        """The end of the task's changelog, if the task had run until then; before ``start_ms`` it is constant."""
        number, partition = task
        subtopology = self._subtopologies[number]
        grown_ms = self._loads[number].weighted_ms(max(0, at_ms - self._start_ms))
        return subtopology.records[partition] + int(subtopology.rate[partition] * grown_ms / 1_000)

    def loads(self, at_ms: int) -> dict[Task, float]:
        """How much of one unit of capacity the tasks use from an instant on, those of which workers say it."""
        return {
            (number, partition): load * self._loads[number].factor(at_ms - self._start_ms)
            for number, subtopology in enumerate(self._subtopologies)
            for partition, load in enumerate(subtopology.load)
        }

    def restore_rate(self, client: str) -> float:
        """How many records a second a process restores, all of its copies together."""
        return self._rates[client]


class _Load:
    """The factor on the rates of one subtopology over time, as time weighted by it."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._at = [0]
        self._worth = [0.0]
        self._factor = [1.0]
        for step in sorted(steps, key=lambda one: one.at_ms):
            self._worth.append(self.weighted_ms(step.at_ms))
            self._at.append(step.at_ms)
            self._factor.append(step.factor)

    def factor(self, at_ms: int) -> float:
        """Return the factor from an instant on."""
        return self._factor[max(0, bisect_right(self._at, at_ms) - 1)]

    def weighted_ms(self, at_ms: int) -> float:
        """Return the time from the beginning until then, each stretch times its factor."""
        place = bisect_right(self._at, at_ms) - 1
        return self._worth[place] + (at_ms - self._at[place]) * self._factor[place]


def task_set(scenario: Scenario) -> TaskSet:
    """Return the tasks of a scenario: one subtopology after the other, by number."""
    stateful: list[Task] = []
    stateless: list[Task] = []
    for number, subtopology in enumerate(scenario.subtopologies):
        (stateful if subtopology.stateful else stateless).extend(
            (number, partition) for partition in range(subtopology.partitions)
        )
    return TaskSet(tuple(stateful), tuple(stateless))
