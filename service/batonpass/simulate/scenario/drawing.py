"""Realistic days, drawn from a seed: deploys, a busy morning, a quiet night, a crash now and then.

Planned events are far more frequent than failures. The same seed and the same wish draw the same day.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import cos, pi
from random import Random
from typing import Final

from batonpass.simulate.scenario.model import Act, Scenario, SimulatedSubtopology, Step, Worker

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY_MS: Final = 24 * HOUR

EVENTS_OF_A_DAY: Final = 4_000
"""How many changes of assignments a group has in a day by default."""

_TASKS_LEAST: Final = 12
_TASKS_USUAL: Final = 48
_DEPLOYS_MAX: Final = 12
# By the number of standbys: a deploy of one member changes about so many lines for each of its actives.
_LINES_PER_ACTIVE: Final = {0: 3.4, 1: 11.0, 2: 13.0}


@dataclass(frozen=True, slots=True)
class Oddities:
    """What a drawn day has besides the usual: warmups that never end, a member that comes and goes."""

    stuck_warmup: bool = False
    flapping_member: bool = False


ORDINARY: Final = Oddities()


def draw_day(seed: int, *, events: int = EVENTS_OF_A_DAY, oddities: Oddities = ORDINARY) -> Scenario:
    """Return a day of a group with about so many changes of assignments."""
    chance = Random(f"day {seed}")  # noqa: S311 - must be repeatable, not secret
    standbys = chance.choice((0, 1, 1, 1, 2))
    lines = _LINES_PER_ACTIVE[standbys]
    deploys = min(_DEPLOYS_MAX, max(1, round(events / (lines * chance.uniform(0.6, 1.2) * _TASKS_USUAL))))
    tasks = max(_TASKS_LEAST, round(events / (lines * (deploys + 0.6))))
    members = max(3, min(24, round(tasks / chance.randint(4, 8))))
    names = [f"w{number:02}" for number in range(members + 2)]
    zones = chance.choice((0, 0, 3))
    workers = tuple(
        Worker(
            name,
            tags={"zone": f"z{place % zones}"} if zones else {},
            restore_per_second=float(chance.choice((20_000, 30_000, 40_000))),
            fenced=chance.random() < 0.3,
        )
        for place, name in enumerate(names)
    )
    day = Scenario(
        name=f"day-{seed}",
        title=f"a day of {members} members and {tasks} tasks",
        subtopologies=tuple(_subtopologies(chance, tasks)),
        workers=workers,
        present=tuple(names[:members]),
        config=_config(chance, standbys, zoned=bool(zones)),
        until_ms=DAY_MS,
    )
    steps = [*_load(chance), *_deploys(chance, day, deploys), *_scaling(chance, names[members:])]
    steps += _crashes(chance, day)
    steps.append(Step(chance.randrange(1, 24 * 60) * MINUTE, Act.COORDINATOR))
    day = replace(day, steps=tuple(sorted(steps, key=lambda step: step.at_ms)))
    return _odd(day, oddities)


def _subtopologies(chance: Random, count: int) -> Iterator[SimulatedSubtopology]:
    """Yield one or two subtopologies with state, and sometimes one without."""
    second = count // 3 if chance.random() < 0.5 else 0
    stateless = count // 6 if chance.random() < 0.3 else 0
    for partitions in filter(None, (count - second - stateless, second)):
        size = chance.choice((100_000, 200_000, 400_000))
        yield SimulatedSubtopology(
            records=tuple(round(size * chance.uniform(0.7, 1.3)) for _ in range(partitions)),
            rate=tuple(round(chance.uniform(0.5, 6), 2) for _ in range(partitions)),
        )
    if stateless:
        yield SimulatedSubtopology(records=(0,) * stateless, rate=(0.0,) * stateless, stateful=False)


def _config(chance: Random, standbys: int, *, zoned: bool) -> dict[str, object]:
    config: dict[str, object] = {"num_standby_replicas": standbys}
    if zoned:
        config["rack_aware_tags"] = ["zone"]
    if chance.random() < 0.5:
        config["max_warmup_replicas"] = chance.choice((2, 4, 8))
    if chance.random() < 0.3:
        config["acceptable_recovery_lag"] = chance.choice((1_000, 50_000))
    return config


def _load(chance: Random) -> Iterator[Step]:
    """Yield the day's curve: least at four in the morning, most in the afternoon."""
    for hour in range(24):
        factor = 1.0 - 0.6 * cos((hour - 4) * pi / 12)
        yield Step(hour * HOUR, Act.LOAD, factor=round(max(0.2, factor * chance.uniform(0.9, 1.1)), 3))


def _deploys(chance: Random, day: Scenario, count: int) -> Iterator[Step]:
    """Yield rolling restarts, one member after the other, spread over the day."""
    room = 22 * HOUR // count
    for number in range(count):
        at_ms = HOUR + number * room + chance.randrange(max(1, room // 4))
        pace = min(90 * SECOND, (room * 3 // 4) // len(day.present))
        for name in day.present:
            away = chance.randrange(8 * SECOND, max(9 * SECOND, min(25 * SECOND, pace // 2)))
            yield Step(at_ms, Act.RESTART, name)
            yield Step(at_ms + away, Act.RETURN, name)
            at_ms += pace


def _scaling(chance: Random, newcomers: list[str]) -> Iterator[Step]:
    """Yield members that come in the morning, and are drained in the evening."""
    for name in newcomers:
        yield Step(8 * HOUR + chance.randrange(30 * MINUTE), Act.JOIN, name)
        yield Step(20 * HOUR + chance.randrange(60 * MINUTE), Act.DRAIN, name, deadline_ms=30 * MINUTE)


def _crashes(chance: Random, day: Scenario) -> Iterator[Step]:
    """Yield one or two crashes; the member comes back, usually with its disk."""
    for _ in range(chance.randrange(1, 3)):
        name = chance.choice(day.present)
        at_ms = chance.randrange(1, 22 * 60) * MINUTE + chance.randrange(MINUTE)
        yield Step(at_ms, Act.CRASH, name)
        back = chance.choice((20, 90, 400)) * SECOND
        yield Step(at_ms + back, Act.RETURN, name, keeps_disk=chance.random() < 0.8)


def _odd(day: Scenario, oddities: Oddities) -> Scenario:
    steps, workers = list(day.steps), day.workers
    if oddities.stuck_warmup:
        workers = (*workers, Worker("stuck", restore_per_second=1e-6, tags=workers[0].tags))
        steps += [Step(6 * HOUR, Act.JOIN, "stuck"), Step(7 * HOUR, Act.LEAVE, "stuck")]
    if oddities.flapping_member:
        workers = (*workers, Worker("flapping", tags=workers[-1].tags))
        steps.append(Step(5 * HOUR, Act.JOIN, "flapping"))
        for turn in range(6):
            at_ms = 12 * HOUR + turn * 3 * MINUTE
            steps += [
                Step(at_ms, Act.CRASH, "flapping"),
                Step(at_ms + 100 * SECOND, Act.RETURN, "flapping", keeps_disk=True),
            ]
    ordered = tuple(sorted(steps, key=lambda step: step.at_ms))
    return replace(day, steps=ordered, workers=workers)
