"""Batonpass beside Kafka's assignor and eager reassignment: the same group, the same rates, the same script.

A scenario is a group at rest and a script of what happens to it. The script is the same for every arm. Where an arm
cannot do what the script asks for, it does what people do there: a group without drains closes the process instead.

Batonpass is the real core and the real machine of the protocol (`group`); the others are models that were checked
against the real program where there is one (`kafka`). What the numbers can and cannot say: `docs/compare.md`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from batonpass.core.state.durations import duration
from batonpass.percentiles import nearest_rank
from batonpass.simulate.copies import SteadyRates
from batonpass.simulate.group import BATONPASS, BATONPASS_FENCED, BatonpassGroup, BatonpassSettings
from batonpass.simulate.kafka.group import EAGER, KAFKA_DEFAULTS, KAFKA_TUNED, KafkaGroup, KafkaSettings
from batonpass.simulate.tasks import TaskSet

SECOND: Final = 1_000
MINUTE: Final = 60_000
BEGIN_MS: Final = MINUTE
"""When the script begins; until then the group is at rest."""

RECORD_BYTES: Final = 500
WORLD: Final = SteadyRates(records=1_000_000, growth_per_second=10, restore_per_second=20_000)
"""A million records of 500 bytes for each task, half a gigabyte, which a process restores in 50 seconds at 10 MB/s."""


Arm = BatonpassGroup | KafkaGroup
"""A group that a script can be played on."""

Script = Callable[[Arm, "Scenario"], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A group at rest and what happens to it, of ten members and a hundred tasks if nothing else is said.

    Names are random hexadecimal numbers, as the ids of real processes are.

    `can_crash` and `can_return` say whether arms that differ only in a crash or a return get a line of their own. What
    Kafka's assignor does depends on the ids; the default `seed` draws ids whose result lies in the middle.
    """

    name: str
    title: str
    script: Script
    members: int = 10
    tasks: int = 100
    standbys: int = 0
    zones: int = 0
    newcomers: int = 0
    can_crash: bool = False
    can_return: bool = False
    seed: int = 9
    old: tuple[str, ...] = field(init=False)
    new: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        drawn = Random(f"{self.seed} {self.members} {self.tasks}")  # noqa: S311 - must be repeatable, not secret
        names = [f"{drawn.getrandbits(32):08x}" for _ in range(self.members + self.newcomers)]
        object.__setattr__(self, "old", tuple(names[: self.members]))
        object.__setattr__(self, "new", tuple(names[self.members :]))

    @property
    def task_set(self) -> TaskSet:
        return TaskSet(tuple((0, partition) for partition in range(self.tasks)))

    @property
    def tags(self) -> dict[str, dict[str, str]]:
        """The zone of every process, assigned in turn; empty if there are no zones."""
        if not self.zones:
            return {}
        return {name: {"zone": f"z{place % self.zones}"} for place, name in enumerate((*self.old, *self.new))}


def needed(held: Mapping[str, int], tasks: int) -> int:
    """Return the fewest tasks that must change owner so that each of these processes has its equal share of all tasks.

    ``held`` has how many tasks each process that remains runs; the tasks of the others must move in any case.
    """
    share, rest = divmod(tasks, len(held))
    counts = sorted(held.values(), reverse=True)
    stay = sum(min(count, share + (number < rest)) for number, count in enumerate(counts))
    return tasks - stay


def _join(arm: Arm, scenario: Scenario) -> None:
    for name in scenario.new:
        arm.join(name)


def _join_in_mid_move(arm: Arm, scenario: Scenario) -> None:
    first, second = scenario.new
    arm.join(first)
    arm.advance(arm.now_ms + 2 * MINUTE)
    arm.join(second)


def _replace(arm: Arm, scenario: Scenario) -> None:
    arm.join(scenario.new[0])
    arm.advance(arm.now_ms + 30 * SECOND)
    arm.drain(scenario.old[0])


def _drain(arm: Arm, scenario: Scenario) -> None:
    for name in scenario.old[:2]:
        arm.drain(name)


def _rolling_restart(arm: Arm, scenario: Scenario) -> None:
    """Take a minute for each process, so that a session which ends late is over before the next process stops."""
    for name in scenario.old:
        arm.close(name)
        arm.advance(arm.now_ms + 20 * SECOND)
        arm.come_back(name)
        arm.advance(arm.now_ms + 40 * SECOND)


def _surge(arm: Arm, scenario: Scenario) -> None:
    _join(arm, scenario)
    arm.advance(arm.now_ms + 30 * SECOND)
    for name in scenario.old:
        arm.drain(name)


def _deploy_by_one(arm: Arm, scenario: Scenario) -> None:
    """Wait for rest after each step, but no longer than Kubernetes does by default before it calls a deploy failed."""
    for new, old in zip(scenario.new, scenario.old, strict=True):
        arm.join(new)
        arm.run_to_rest(limit_ms=arm.now_ms + 10 * MINUTE)
        arm.drain(old)
        arm.run_to_rest(limit_ms=arm.now_ms + 10 * MINUTE)


def _crash(arm: Arm, scenario: Scenario) -> None:
    arm.crash(scenario.old[0])


def _crash_and_replace(arm: Arm, scenario: Scenario) -> None:
    arm.crash(scenario.old[0])
    arm.advance(arm.now_ms + 2 * MINUTE)
    arm.join(scenario.new[0])


def _lose_zone(arm: Arm, scenario: Scenario) -> None:
    for name, tags in scenario.tags.items():
        if tags["zone"] == "z0":
            arm.crash(name)


def _scale_out(members: int, tasks: int) -> list[Scenario]:
    name, grown = f"{members}-to-{members + 1}", f"{members} to {members + 1} members, {tasks} tasks"
    return [
        Scenario(f"{name}-s{count}", f"{grown}, {words}", _join, members, tasks, standbys=count, newcomers=1)
        for count, words in enumerate(("no standbys", "1 standby", "2 standbys"))
    ]


_ALL: Final = [
    Scenario("1-to-2", "1 to 2 members, 100 tasks, no standbys", _join, members=1, newcomers=1),
    *_scale_out(10, 100),
    *_scale_out(20, 200),
    Scenario(
        "second-join",
        "10 to 11 members, 100 tasks, 1 standby, and a twelfth two minutes later",
        _join_in_mid_move,
        standbys=1,
        newcomers=2,
    ),
    Scenario("replace", "1 of 10 replaced: the new one joins, 30 s later the old one goes", _replace, newcomers=1),
    *(
        Scenario(
            name,
            f"50 members restarted a minute apart, 20 s each, state on disk, 200 tasks, {words}",
            _rolling_restart,
            members=50,
            tasks=200,
            standbys=count,
            can_return=True,
        )
        for count, name, words in ((0, "rolling-restart", "no standbys"), (1, "rolling-restart-s1", "1 standby"))
    ),
    Scenario(
        "deploy-surge",
        "10 members under new names join, 30 s later the 10 old ones go, 100 tasks",
        _surge,
        newcomers=10,
    ),
    Scenario(
        "deploy-by-one",
        "10 members replaced one by one under new names, 10 min at most for each step, 100 tasks",
        _deploy_by_one,
        newcomers=10,
    ),
    Scenario("crash-s0", "1 of 10 crashes, 100 tasks, no standbys", _crash, can_crash=True),
    Scenario("crash-s1", "1 of 10 crashes, 100 tasks, 1 standby", _crash, standbys=1, can_crash=True),
    Scenario(
        "crash-replace",
        "1 of 10 crashes, a new one joins 2 min later, 100 tasks, 1 standby",
        _crash_and_replace,
        standbys=1,
        newcomers=1,
        can_crash=True,
    ),
    Scenario("drain", "2 of 10 members go with their node, 100 tasks, 1 standby", _drain, standbys=1),
    Scenario(
        "zone-loss",
        "4 of 12 members crash with their zone, 96 tasks, 1 standby in another zone",
        _lose_zone,
        members=12,
        tasks=96,
        standbys=1,
        zones=3,
        can_crash=True,
    ),
]

SCENARIOS: Final[Mapping[str, Scenario]] = {scenario.name: scenario for scenario in _ALL}
"""Every scenario by its name, in the order in which they are shown."""

LIMIT_MS = 14 * 24 * 60 * MINUTE
"""A group that is not at rest by then is reported as never at rest."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one scenario cost in one arm.

    `needed` is the least that any balanced placement moves. `moved` counts tasks with another owner in the end,
    `handovers` every change of owner on the way. Downtimes are over all tasks; `stopped` counts the tasks that had any.
    `rest_ms` is the time from the first event to rest; None: never.
    """

    arm: str
    needed: int
    moved: int
    handovers: int
    rest_ms: int | None
    stopped: int
    downtime_p50_ms: int
    downtime_p99_ms: int
    downtime_max_ms: int
    bytes_restored: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of all arms in one scenario, Batonpass first."""

    scenario: Scenario
    results: tuple[Result, ...]


def arms_of(scenario: Scenario) -> dict[str, Callable[[], Arm]]:
    """Return the arms of a scenario by name, each as a function that makes its group at rest."""
    arms: dict[str, Callable[[], Arm]] = {"Batonpass": lambda: _batonpass(scenario, BATONPASS)}
    if scenario.can_crash:
        arms["Batonpass fenced"] = lambda: _batonpass(scenario, BATONPASS_FENCED)
    arms["Kafka defaults"] = lambda: _kafka(scenario, KAFKA_DEFAULTS)
    arms["Kafka tuned"] = lambda: _kafka(scenario, KAFKA_TUNED)
    if scenario.can_return:
        static = replace(KAFKA_TUNED, static_membership=True)
        arms["Kafka tuned static"] = lambda: _kafka(scenario, static)
    arms["eager"] = lambda: _kafka(scenario, EAGER)
    return arms


def _batonpass(scenario: Scenario, settings: BatonpassSettings) -> BatonpassGroup:
    settings = settings.with_standbys(scenario.standbys)
    if scenario.zones:
        settings = settings.having(rack_aware_tags=["zone"])
    capacities = dict.fromkeys(scenario.old, 1)
    return BatonpassGroup.at_rest(scenario.task_set, settings, WORLD, capacities=capacities, tags=scenario.tags)


def _kafka(scenario: Scenario, settings: KafkaSettings) -> KafkaGroup:
    settings = settings.with_standbys(scenario.standbys)
    if scenario.zones:
        settings = replace(settings, assignor=replace(settings.assignor, rack_aware_tags=("zone",)))
    capacities = dict.fromkeys(scenario.old, 1)
    return KafkaGroup.at_rest(scenario.task_set, settings, WORLD, capacities=capacities, tags=scenario.tags)


def play(name: str, arm: Arm, scenario: Scenario) -> Result:
    """Play the scenario's script on a group at rest, let it come to rest again, and return what that cost."""
    arm.advance(BEGIN_MS)
    arm.begin_change()
    before = Counter(arm.owners.values())
    scenario.script(arm, scenario)
    arm.run_to_rest(limit_ms=LIMIT_MS)
    outcome = arm.outcome()
    downtimes = sorted(outcome.downtime_ms.values())
    return Result(
        arm=name,
        needed=needed({name: before[name] for name in arm.members}, scenario.tasks),
        moved=outcome.moved,
        handovers=outcome.handovers,
        rest_ms=outcome.rest_ms,
        stopped=sum(downtime > 0 for downtime in downtimes),
        downtime_p50_ms=nearest_rank(downtimes, 50),
        downtime_p99_ms=nearest_rank(downtimes, 99),
        downtime_max_ms=downtimes[-1],
        bytes_restored=outcome.restored_records * RECORD_BYTES,
    )


def reading(comparison: Comparison) -> str:
    """Say in one line what the table shows."""
    ours, *others = comparison.results
    kafka = next(one for one in others if one.arm == "Kafka defaults")
    rests, kafka_rests = duration(ours.rest_ms, "never"), duration(kafka.rest_ms, "never")
    return (
        f"Batonpass moves {ours.moved} tasks where {ours.needed} must move, in {ours.handovers} handovers, and rests "
        f"after {rests}; Kafka with its defaults moves {kafka.moved} in {kafka.handovers} handovers and rests after "
        f"{kafka_rests}. The task that is down longest is down for {duration(ours.downtime_max_ms)} against "
        f"{duration(kafka.downtime_max_ms)}."
    )
