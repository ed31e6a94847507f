"""What a seed stands for: a group, its workers, the faults of the wire, and what befalls them when.

Everything is drawn here, before the world starts, and each event carries a seed of its own. So an event, a worker or a
fault can be left out without changing what the others are: that is how a failure is shrunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from batonpass.core.model import OnLeaseLost, Subtopology, Topology


def seeded(*parts: object) -> Random:
    """Return a source of chance that depends on ``parts`` alone."""
    return Random(":".join(str(part) for part in parts))  # noqa: S311 - a world must be repeatable, not secret


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker machine: what it says of itself, and how fast it restores (records a second)."""

    name: str
    instance_id: str | None
    capacity: float
    max_tasks: int | None
    tags: tuple[tuple[str, str], ...]
    on_lease_lost: OnLeaseLost
    records_per_s: int
    reports: str
    clock_offset_ms: int


@dataclass(frozen=True, slots=True)
class WireFaults:
    """How often a message is lost, doubled or late, as shares of all messages, and how late (milliseconds)."""

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    late_ms: int = 3_000


@dataclass(frozen=True, slots=True)
class Event:
    """Something that befalls the world at an instant. ``number`` names it in a replay."""

    number: int
    at_ms: int
    kind: str
    seed: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole world, before it starts. ``chaos_ms`` is how long faults last."""

    seed: int
    topology: Topology
    config: dict[str, object]
    workers: tuple[WorkerPlan, ...]
    wire: WireFaults
    events: tuple[Event, ...]
    chaos_ms: int
    growth_per_s: int = 5


# The kinds of event with how often each comes. Restarts lead, as they do in production.
KINDS: dict[str, int] = {
    "rolling-restart": 14,
    "restart": 14,
    "crash": 8,
    "crash-takeover": 4,
    "crash-lost-disk": 3,
    "crash-for-good": 3,
    "flap": 3,
    "suspend": 6,
    "cut-off": 6,
    "cut-poll": 4,
    "slow-revocation": 4,
    "hang-in-revocation": 3,
    "fail-task": 4,
    "lose-state": 4,
    "never-warm": 4,
    "mute-progress": 3,
    "producer-fenced": 2,
    "drain": 5,
    "drain-deadline": 4,
    "undrain": 3,
    "leave": 4,
    "scale-out": 6,
    "evict": 3,
    "evict-dead": 2,
    "pause": 2,
    "resume": 2,
    "pin": 2,
    "unpin": 2,
    "probe": 2,
    "config": 5,
    "lower-session-timeout": 3,
    "more-partitions": 3,
    "new-subtopology": 2,
    "delete-and-create": 1,
    "coordinator-crash": 6,
    "crash-after-append": 6,
    "coordinator-handoff": 4,
    "split": 5,
    "stall": 3,
    "store-outage": 4,
    "lost-commits": 2,
    "lost-commits-unnoticed": 2,
}


def draw(seed: int) -> Scenario:
    """Return the world that a seed stands for."""
    chance = seeded(seed, "group")
    topology = _topology(chance)
    growth_per_s = chance.choice((0, 2, 10))
    config = _config(chance, growth_per_s)
    tasks = sum(one.partitions or 0 for one in topology.subtopologies)
    fenced = chance.choice(("stop", "stop", "continue", "mixed"))
    workers = tuple(
        draw_worker(seed, number, fenced=fenced, tasks=tasks) for number in range(chance.choice((1, 2, 3, 3, 4, 5, 6)))
    )
    wire = chance.choice(
        (
            WireFaults(),
            WireFaults(lost=0.02, doubled=0.02, late=0.03),
            WireFaults(lost=0.10, doubled=0.05, late=0.10),
            WireFaults(lost=0.03, doubled=0.20, late=0.20, late_ms=8_000),
        )
    )
    chaos_ms = chance.choice((20_000, 45_000, 90_000))
    count = chance.randint(0, max(2, chaos_ms // 3_000))
    kinds, weights = list(KINDS), list(KINDS.values())
    events = sorted(
        (chance.randint(1_000, chaos_ms), chance.choices(kinds, weights)[0], chance.randrange(1 << 30))
        for _ in range(count)
    )
    numbered = tuple(Event(number, at_ms, kind, one) for number, (at_ms, kind, one) in enumerate(events))
    return Scenario(seed, topology, config, workers, wire, numbered, chaos_ms, growth_per_s)


def draw_worker(seed: int, number: int, *, fenced: str, tasks: int) -> WorkerPlan:
    """Return the worker of a number; the same whatever the other workers are."""
    chance = seeded(seed, "worker", number)
    name = f"w{number}"
    lost = {"stop": OnLeaseLost.STOP, "continue": OnLeaseLost.CONTINUE}.get(fenced) or chance.choice(list(OnLeaseLost))
    return WorkerPlan(
        name=name,
        instance_id=chance.choice((f"pod-{number}", f"pod-{number}", None)),
        capacity=chance.choice((1.0, 1.0, 1.0, 2.0, 4.0)),
        max_tasks=chance.choice((None, None, None, max(2, tasks))),
        tags=(("zone", chance.choice("abc")), ("rack", chance.choice("xy"))),
        on_lease_lost=lost,
        records_per_s=chance.choice((200, 400, 2_000)),
        reports=chance.choice(("lag", "offsets", "position")),
        clock_offset_ms=chance.randint(-(10**9), 10**9),
    )


def _topology(chance: Random) -> Topology:
    parts = []
    for number in range(chance.choice((1, 1, 2, 3))):
        stateful = number == 0 or chance.random() < 0.75
        parts.append(
            Subtopology(
                id=str(number),
                partitions=chance.choice((1, 2, 3, 4, 6)),
                stateful=stateful,
                weight=chance.choice((1.0, 1.0, 1.0, 2.5)),
                source_topics=(f"in-{number}",),
                changelog_topics=(f"store-{number}",) if stateful else (),
                epoch=1,
            )
        )
    return Topology(1, tuple(parts))


def _config(chance: Random, growth_per_s: int) -> dict[str, object]:
    heartbeat_ms = chance.choice((500, 1_000, 1_500))
    config: dict[str, object] = {
        # A copy of a changelog that grows is always a little behind; with 0 no such group would ever rest.
        "acceptable_recovery_lag": chance.choice((50, 100)) if growth_per_s else chance.choice((0, 50)),
        "max_warmup_replicas": chance.choice((1, 2, 2, 10, "50%")),
        "num_standby_replicas": chance.choice((0, 0, 1, 1, 2)),
        "probing_rebalance_interval_ms": chance.choice((2_000, 10_000)),
        "heartbeat_interval_ms": heartbeat_ms,
        "session_timeout_ms": 3 * heartbeat_ms + chance.choice((1_000, 2_500, 6_000)),
        "rebalance_timeout_ms": chance.choice((3_000, 10_000)),
        "initial_rebalance_delay_ms": chance.choice((0, 500)),
        "rebalance_batch_ms": chance.choice((0, 50)),
        "rejoin_grace_ms": chance.choice((0, 4_000, 15_000)),
        "max_warmups_per_member": chance.choice((1, 2, 10)),
        "warmup_stall_timeout_ms": chance.choice((5_000, 12_000)),
        "drain_timeout_ms": chance.choice((8_000, 30_000)),
        "max_lost_share": chance.choice((0.5, 0.5, 1.0)),
        "suspect_timeout_ms": chance.choice((0, 700, 2_000)),
    }
    if chance.random() < 0.3:
        config["rack_aware_tags"] = ["zone", "rack"][: chance.randint(1, 2)]
    if chance.random() < 0.3:
        config["acceptable_catchup_ms"] = chance.choice((200, 2_000))
    return config


def narrowed(scenario: Scenario, *, only: Sequence[int] | None = None, members: int | None = None) -> Scenario:
    """Return the scenario with only the events of these numbers and the first ``members`` workers."""
    events = scenario.events if only is None else tuple(event for event in scenario.events if event.number in only)
    workers = scenario.workers if members is None else scenario.workers[:members]
    return replace(scenario, events=events, workers=workers)


def without_wire_faults(scenario: Scenario) -> Scenario:
    """Return the scenario over a wire that loses, doubles and delays nothing."""
    return replace(scenario, wire=WireFaults())


def with_partitions(scenario: Scenario, most: int) -> Scenario:
    """Return the scenario with at most so many partitions a subtopology."""
    parts = tuple(replace(one, partitions=min(one.partitions or most, most)) for one in scenario.topology.subtopologies)
    return replace(scenario, topology=replace(scenario.topology, subtopologies=parts))
