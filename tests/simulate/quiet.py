"""Quiet worlds for tests: a group of equal workers, a whole wire, and no events but those that a test brings."""

from batonpass.core.state.model import Subtopology, Topology
from batonpass.simulate.plan import WorkerPlan, WorldPlan
from batonpass.simulate.run import why_not_at_rest
from batonpass.simulate.worker import Worker
from batonpass.simulate.world import World
from batonpass.worker.protocol import MemberSettings

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
    settings = MemberSettings(instance_id=f"pod-{number}", poll_wait_ms=4_000, request_timeout_ms=1_000)
    return WorkerPlan(f"w{number}", settings, records_per_s=400, clock_offset_ms=1_000 * number)


def quiet(*, workers: int, tasks: int, **config: object) -> World:
    """Return a world of equal workers over a wire without faults, before it begins."""
    topology = Topology(1, (Subtopology("0", tasks, changelog_topics=("store-0",), epoch=1),))
    plans = tuple(plan(number) for number in range(workers))
    return World(WorldPlan(1, topology, {**CONFIG, **config}, plans))


def rest(world: World, *, within_ms: int = 120_000) -> int:
    """Run a world until it rests; return how long that took. A law that breaks, or no rest, fails the test."""
    begun_ms = world.now_ms
    world.run_until(begun_ms + within_ms, stop=lambda: not why_not_at_rest(world))
    assert world.checks.broken == []
    assert why_not_at_rest(world) == ""
    return world.now_ms - begun_ms


def add(world: World) -> Worker:
    """Put up one more worker like the others."""
    worker = world.add_worker(plan(len(world.workers)))
    worker.boot()
    return worker


def forget_interruptions(world: World) -> None:
    """Count interruptions from here on."""
    for worker in world.workers:
        worker.interruptions = 0


def interrupted(world: World) -> dict[str, int]:
    """Return how often each worker was told to stop a task that it processed, of those that were."""
    return {worker.name: worker.interruptions for worker in world.workers if worker.interruptions}
