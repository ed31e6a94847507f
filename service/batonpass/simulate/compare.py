"""Batonpass beside Kafka's assignor and eager reassignment: the same group, the same world, the same script.

Batonpass is the real core and the real machine of the protocol (`batonpass_group`); the others are models that were
held against the real thing where there is one (`kafka_group`). What the numbers can and cannot say: `docs/compare.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from batonpass.simulate.batonpass_group import BATONPASS, BATONPASS_FENCED, BatonpassGroup, BatonpassSettings
from batonpass.simulate.kafka_group import KafkaGroup
from batonpass.simulate.kafka_settings import EAGER, KAFKA_DEFAULTS, KAFKA_TUNED, KafkaSettings
from batonpass.simulate.scenarios import BEGIN_MS, MINUTE, RECORD_BYTES, WORLD, Arm, Scenario, needed

LIMIT_MS = 14 * 24 * 60 * MINUTE
"""A group that is not at rest by then is called so."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one scenario cost in one arm.

    `needed` is the least that any balanced placement moves; `moved` counts tasks with another owner in the end,
    `handovers` every change of owner on the way. Downtimes are over all tasks, `stopped` says how many had any.
    `rest_ms` counts from the first event to rest; None: never.
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
    """Return what is compared in a scenario, by name: each makes its group at rest."""
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
    """Play the scenario's script on a group at rest, let it come to rest again, and say what that cost."""
    arm.advance(BEGIN_MS)
    arm.begin_change()
    before = arm.owners
    scenario.script(arm, scenario)
    arm.run_to_rest(limit_ms=LIMIT_MS)
    outcome = arm.outcome()
    downtimes = sorted(outcome.downtime_ms.values())
    return Result(
        arm=name,
        needed=needed(before, arm.members),
        moved=outcome.moved,
        handovers=outcome.handovers,
        rest_ms=outcome.rest_ms,
        stopped=sum(downtime > 0 for downtime in downtimes),
        downtime_p50_ms=percentile(downtimes, 50),
        downtime_p99_ms=percentile(downtimes, 99),
        downtime_max_ms=downtimes[-1],
        bytes_restored=outcome.restored_records * RECORD_BYTES,
    )


def percentile(in_order: Sequence[int], percent: int) -> int:
    """Return the least of the values, given in order, that so many percent of them do not exceed (nearest rank)."""
    return in_order[max(0, ceil(len(in_order) * percent / 100) - 1)]


def run(scenario: Scenario) -> Iterator[Result]:
    """Yield the result of one arm after the other."""
    for name, make in arms_of(scenario).items():
        yield play(name, make(), scenario)


def compare(scenario: Scenario) -> Comparison:
    """Play the scenario in every arm."""
    return Comparison(scenario, tuple(run(scenario)))


def reading(comparison: Comparison) -> str:
    """Say in one line what the table shows."""
    ours, *others = comparison.results
    kafka = next(one for one in others if one.arm == "Kafka defaults")
    return (
        f"Batonpass moves {ours.moved} tasks where {ours.needed} must move, in {ours.handovers} handovers, and rests "
        f"after {duration(ours.rest_ms)}; Kafka with its defaults moves {kafka.moved} in {kafka.handovers} handovers "
        f"and rests after {duration(kafka.rest_ms)}. The task that is down longest is down for "
        f"{duration(ours.downtime_max_ms)} against {duration(kafka.downtime_max_ms)}."
    )


def duration(ms: int | None) -> str:
    """Write a time as people do: 0.8 s, 75 s, 14 min, 3.2 h."""
    if ms is None:
        return "never"
    if ms < 10_000:
        return f"{ms / 1000:.1f} s".replace("0.0 s", "0 s")
    if ms < 120_000:
        return f"{ms / 1000:.0f} s"
    return f"{ms / MINUTE:.1f} min" if ms < 20 * MINUTE else f"{ms / MINUTE:.0f} min"


def size(count: int) -> str:
    """Write a number of bytes as people do, in powers of ten."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
