"""Quiet worlds for tests: a group of equal workers, a whole wire, and no events but those that a test brings."""

from __future__ import annotations

from batonpass.core.model import OnLeaseLost, Subtopology, Topology
from batonpass.simulate.run import why_not_at_rest
from batonpass.simulate.scenario import Scenario, WireFaults, WorkerPlan
from batonpass.simulate.workers import Worker
from batonpass.simulate.world import World

CONFIG: dict[str, object] = {
    "acceptable_recovery_lag": 50,
    "max_warmup_replicas": 2,
    "heartbeat_interval_ms": 500,
    "session_timeout_ms": 4_000,
    "rejoin_grace_ms": 10_000,
    "initial_rebalance_delay_ms": 500,
    "probing_rebalance_interval_ms": 5_000,
}


def plan(number: int) -> WorkerPlan:
    """Return one of many equal workers."""
    return WorkerPlan(
        name=f"w{number}",
        instance_id=f"pod-{number}",
        capacity=1.0,
        max_tasks=None,
        tags=(),
        on_lease_lost=OnLeaseLost.STOP,
        records_per_s=400,
        reports="offsets",
        clock_offset_ms=1_000 * number,
    )


def quiet(*, workers: int, tasks: int, **config: object) -> World:
    """Return a world of equal workers over a wire without faults, before it begins."""
    topology = Topology(1, (Subtopology("0", tasks, changelog_topics=("store-0",), epoch=1),))
    plans = tuple(plan(number) for number in range(workers))
    return World(Scenario(1, topology, {**CONFIG, **config}, plans, WireFaults(), (), 0))


def rest(world: World, *, within_ms: int = 120_000) -> int:
    """Run a world until it rests; return how long that took. A law that breaks, or no rest, fails the test."""
    begun_ms = world.now_ms
    world.run_until(begun_ms + within_ms, stop=lambda: not why_not_at_rest(world))
    assert world.checks.broken == []
    assert why_not_at_rest(world) == ""
    return world.now_ms - begun_ms


def add(world: World) -> Worker:
    """Put up one more worker like the others."""
    worker = Worker(plan(len(world.workers)), world)
    world.workers.append(worker)
    worker.boot()
    return worker
