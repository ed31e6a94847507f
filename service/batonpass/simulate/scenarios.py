"""What happens to a group in a comparison: each scenario is a group at rest and a script of what befalls it.

The script is the same for every arm. Where an arm cannot do what the script asks for, it does what people do there:
a group without drains closes the process that is to go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from batonpass.simulate.batonpass_group import BatonpassGroup
from batonpass.simulate.kafka_copies import SteadyWorld
from batonpass.simulate.kafka_ledger import GroupOutcome
from batonpass.simulate.kip441 import Task, TaskSet

SECOND: Final = 1_000
MINUTE: Final = 60_000
BEGIN_MS: Final = MINUTE
"""When the first thing happens; the group has been at rest before."""

RECORD_BYTES: Final = 500
WORLD: Final = SteadyWorld(records=1_000_000, growth_per_second=10, restore_per_second=20_000)
"""A million records of 500 bytes for each task, half a gigabyte, which a process restores in 50 seconds at 10 MB/s."""


class Arm(Protocol):
    """A group that a script can be played on."""

    @property
    def now_ms(self) -> int:
        """The group's virtual time."""

    @property
    def members(self) -> tuple[str, ...]:
        """The processes that are up, sorted."""

    @property
    def owners(self) -> Mapping[Task, str]:
        """Who was granted each task and has not given it up."""

    def join(
        self,
        client: str,
        *,
        capacity: int = 1,
        tags: Mapping[str, str] | None = None,
        disk: Mapping[Task, int] | None = None,
    ) -> None:
        """Start a new process."""

    def close(self, client: str, *, leave: bool | None = None) -> None:
        """Stop a process in good order."""

    def crash(self, client: str, *, unflushed_records: int = 0) -> None:
        """Kill a process."""

    def come_back(self, client: str) -> None:
        """Start a process again with its state."""

    def begin_change(self) -> None:
        """Count from here on."""

    def advance(self, to_ms: int) -> None:
        """Let time pass until then."""

    def run_to_rest(self, *, limit_ms: int) -> bool:
        """Let time pass until nothing is to come; False if the limit comes first."""

    def outcome(self) -> GroupOutcome:
        """What the change has cost so far."""


Script = Callable[[Arm, "Scenario"], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A group at rest and what befalls it. Names are hexadecimal and drawn, as the ids of real processes are.

    `can_crash` and `can_return` say whether arms that differ in just that are worth a line of their own. What Kafka's
    assignor does depends on the ids; the default `seed` draws such as come out in the middle.
    """

    name: str
    title: str
    members: int
    tasks: int
    script: Script
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
        """The tasks: one subtopology, all stateful."""
        return TaskSet(tuple((0, partition) for partition in range(self.tasks)))

    @property
    def tags(self) -> dict[str, dict[str, str]]:
        """The zone of every process, by turns; empty where there are no zones."""
        if not self.zones:
            return {}
        return {name: {"zone": f"z{place % self.zones}"} for place, name in enumerate((*self.old, *self.new))}


def needed(before: Mapping[Task, str], after: Sequence[str]) -> int:
    """Return how many tasks any balanced placement on `after` must move away from who had them `before`.

    All tasks weigh the same, and so do all processes: each gets the floor or the ceiling of its share.
    """
    floor, ceilings = divmod(len(before), len(after))
    held = [sum(owner == name for owner in before.values()) for name in after]
    stay = sum(min(count, floor) for count in held)
    stay += min(ceilings, sum(count > floor for count in held))
    return len(before) - stay


def _join(arm: Arm, scenario: Scenario) -> None:
    for name in scenario.new:
        arm.join(name)


def _join_in_mid_move(arm: Arm, scenario: Scenario) -> None:
    first, second = scenario.new
    arm.join(first)
    arm.advance(arm.now_ms + 2 * MINUTE)
    arm.join(second)


def _retire(arm: Arm, names: Sequence[str]) -> None:
    """Let processes go: drained where the arm can do that, else closed."""
    for name in names:
        if isinstance(arm, BatonpassGroup):
            arm.drain(name)
        else:
            arm.close(name)


def _replace(arm: Arm, scenario: Scenario) -> None:
    arm.join(scenario.new[0])
    arm.advance(arm.now_ms + 30 * SECOND)
    _retire(arm, scenario.old[:1])


def _drain(arm: Arm, scenario: Scenario) -> None:
    _retire(arm, scenario.old[:2])


def _rolling_restart(arm: Arm, scenario: Scenario) -> None:
    """Leave a minute to each, so that a session which ends late is over before the next process goes."""
    for name in scenario.old:
        arm.close(name)
        arm.advance(arm.now_ms + 20 * SECOND)
        arm.come_back(name)
        arm.advance(arm.now_ms + 40 * SECOND)


def _surge(arm: Arm, scenario: Scenario) -> None:
    _join(arm, scenario)
    arm.advance(arm.now_ms + 30 * SECOND)
    _retire(arm, scenario.old)


def _deploy_by_one(arm: Arm, scenario: Scenario) -> None:
    """Wait for rest after each step, yet no longer than Kubernetes does by default before it calls a deploy failed."""
    for new, old in zip(scenario.new, scenario.old, strict=True):
        arm.join(new)
        arm.run_to_rest(limit_ms=arm.now_ms + 10 * MINUTE)
        _retire(arm, [old])
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
    grown = f"{members} to {members + 1}"
    return [
        Scenario(
            f"{members}-to-{members + 1}-s{count}",
            f"{grown} members, {tasks} tasks, {count or 'no'} standby{'s' * (count != 1)}",
            members,
            tasks,
            _join,
            standbys=count,
            newcomers=1,
        )
        for count in range(3)
    ]


_ALL: Final = [
    Scenario("1-to-2", "1 to 2 members, 100 tasks, no standbys", 1, 100, _join, newcomers=1),
    *_scale_out(10, 100),
    *_scale_out(20, 200),
    Scenario(
        "second-join",
        "10 to 11 members, 100 tasks, 1 standby, and a twelfth two minutes later",
        10,
        100,
        _join_in_mid_move,
        standbys=1,
        newcomers=2,
    ),
    Scenario(
        "replace", "1 of 10 replaced: the new one joins, 30 s later the old one goes", 10, 100, _replace, newcomers=1
    ),
    Scenario(
        "rolling-restart",
        "50 members restarted a minute apart, 20 s each, state on disk, 200 tasks, no standbys",
        50,
        200,
        _rolling_restart,
        can_return=True,
    ),
    Scenario(
        "rolling-restart-s1",
        "50 members restarted a minute apart, 20 s each, state on disk, 200 tasks, 1 standby",
        50,
        200,
        _rolling_restart,
        standbys=1,
        can_return=True,
    ),
    Scenario(
        "deploy-surge",
        "10 members under new names join, 30 s later the 10 old ones go, 100 tasks",
        10,
        100,
        _surge,
        newcomers=10,
    ),
    Scenario(
        "deploy-by-one",
        "10 members replaced one by one under new names, 10 min at most for each step, 100 tasks",
        10,
        100,
        _deploy_by_one,
        newcomers=10,
    ),
    Scenario("crash-s0", "1 of 10 crashes, 100 tasks, no standbys", 10, 100, _crash, can_crash=True),
    Scenario("crash-s1", "1 of 10 crashes, 100 tasks, 1 standby", 10, 100, _crash, standbys=1, can_crash=True),
    Scenario(
        "crash-replace",
        "1 of 10 crashes, a new one joins 2 min later, 100 tasks, 1 standby",
        10,
        100,
        _crash_and_replace,
        standbys=1,
        newcomers=1,
        can_crash=True,
    ),
    Scenario("drain", "2 of 10 members go with their node, 100 tasks, 1 standby", 10, 100, _drain, standbys=1),
    Scenario(
        "zone-loss",
        "4 of 12 members crash with their zone, 96 tasks, 1 standby in another zone",
        12,
        96,
        _lose_zone,
        standbys=1,
        zones=3,
        can_crash=True,
    ),
]

SCENARIOS: Final[Mapping[str, Scenario]] = {scenario.name: scenario for scenario in _ALL}
"""Every scenario by its name, in the order in which they are shown."""
