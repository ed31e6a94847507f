"""A world from beginning to end: faults, then calm, then rest (L9)."""

from collections.abc import Callable
from dataclasses import dataclass

from batonpass.core.state.failures import host_of
from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import DrainReversal, ResumeRequest
from batonpass.invariants import Violation, check_group
from batonpass.simulate import faults
from batonpass.simulate.plan import WorldPlan
from batonpass.simulate.tasks import task_of
from batonpass.simulate.world import World


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one world went. ``rested_ms`` is how long after the faults it came to rest; None when it did not."""

    plan: WorldPlan
    steps: int
    decisions: int
    handovers: int
    moves: int
    lived_ms: int
    rested_ms: int | None
    violations: tuple[Violation, ...]
    tail: tuple[str, ...]

    @property
    def failed(self) -> bool:
        return bool(self.violations)


def run_world(plan: WorldPlan, *, trace: Callable[[str], None] | None = None, most_steps: int | None = None) -> Outcome:
    """Run one world: faults for as long as the plan says, then calm until it rests, then a while at rest.

    An exception from the core or the worker's machine counts as a broken law. ``most_steps`` ends the world early; what
    has not happened by then is not judged.
    """
    world = World(plan, trace=trace, most_steps=most_steps)
    rested_ms: int | None = None
    try:
        rested_ms = _live(world)
    except Exception as error:  # noqa: BLE001 - whatever is raised is a finding about this world, kept with its seed
        world.checks.fail("exception", f"{type(error).__name__}: {error} at {_place(error)}")
    checks = world.checks
    return Outcome(
        plan,
        world.steps,
        checks.decisions,
        checks.handovers,
        checks.moves,
        world.now_ms - plan.start_ms,
        rested_ms,
        tuple(checks.broken),
        tuple(world.recent) if checks.broken else (),
    )


def _place(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"


def _live(world: World) -> int | None:
    world.begin()
    for event in world.plan.events:
        world.clock.after(event.at_ms, faults.apply, world, event)
    world.run_until(world.plan.start_ms + world.plan.chaos_ms)
    if world.is_over():
        return None
    # The calm ends what events began and what still lasts, such as a machine that is down or a commit that hangs.
    world.calm()
    calm_ms = world.now_ms
    _tidy(world)
    limit_ms = calm_ms + patience_ms(world)
    _run_to_rest(world, limit_ms)
    if world.is_over():
        return None
    if why := why_not_at_rest(world):
        world.checks.fail("L9", f"not at rest {limit_ms - calm_ms} ms after the faults: {why}")
        return None
    rested_ms = world.now_ms - calm_ms
    _stay_at_rest(world)
    return rested_ms


def _run_to_rest(world: World, limit_ms: int) -> None:
    """Run until the group rests and goes on resting for three heartbeat intervals, or until the limit."""
    while world.now_ms < limit_ms and not world.is_over():
        world.run_until(limit_ms, stop=lambda: not why_not_at_rest(world))
        version = world.store.group.version
        if why_not_at_rest(world):
            return
        world.run_until(world.now_ms + 3 * world.store.group.heartbeat_interval_ms)
        if world.store.group.version == version or any(
            task.target.waiting_reason for task in world.store.group.tasks.values()
        ):
            return


def patience_ms(world: World) -> int:
    """Return how long a group may take to rest once faults stop: all timeouts, and all restores one after another."""
    config, group = world.store.group.config, world.store.group
    longest = max(group.longest_session_ms, config.session_timeout_ms)
    waits = 6 * longest + config.rejoin_grace_ms + 2 * config.rebalance_timeout_ms + 2 * config.warmup_stall_timeout_ms
    waits += config.newcomer_wait_ms + config.drain_timeout_ms + 2 * config.probing_rebalance_interval_ms + 30_000
    tasks = group.table.ids
    growth_per_s = world.plan.growth_per_s * len(tasks)
    speed = min((worker.plan.records_per_s for worker in world.workers), default=1) - growth_per_s
    longest_log = max((world.shared.end_of(task_of(task)) for task in tasks), default=0)
    restore_ms = int(longest_log * 1000 / max(1, speed)) + 2_000
    rounds = len(tasks) * (1 + config.num_standby_replicas) + 2
    return waits + rounds * (restore_ms + 2 * group.heartbeat_interval_ms)


def _tidy(world: World) -> None:
    """Do what operators do after an incident, and do it again every three seconds."""
    group, leader = world.store.group, world.leader
    if not leader.is_up and world.leader is leader:
        world.take_over(leader)
    if leader.is_up and not group.declared:
        world.declare(world.topology, world.config)
    if group.pause is not None or group.storm_since_ms is not None:
        world.operate(ResumeRequest())
    faults.release_parked(world)
    for member_id, member in sorted(group.members.items()):
        worker = world.shared.owner_of_id.get(member_id)
        if member.drain is not None and worker is not None and not worker.leaving:
            if worker.last_id == member_id and worker.is_up:
                worker.undrain()
            world.operate(DrainReversal(member_id))
    for instance_id in sorted(group.kept_out):
        world.operate(DrainReversal(MemberId(instance_id)))
    for worker in world.workers:
        if not worker.is_up and not worker.retired:
            worker.boot()
        worker.recover()
    world.clock.after(3_000, _tidy, world)


def why_not_at_rest(world: World) -> str:
    """Return why the group is not at rest, or "" if it is and every task that can be processed is processed."""
    leader, group = world.leader, world.leader.group
    if not leader.is_up or not group.declared:
        return "there is no coordinator"
    if world.pending:
        return f"{world.pending} consequences of events are still to come"
    up = [worker for worker in world.workers if worker.is_up]
    if down := [worker.name for worker in world.workers if not worker.is_up and not worker.retired]:
        return f"{down} are not up yet"
    if not up:
        return ""
    if late := [worker.name for worker in up if not worker.is_joined or worker.is_suspended]:
        return f"{late} have not joined"
    strangers = sorted(set(group.members) - {worker.last_id for worker in up if worker.last_id})
    if strangers:
        return f"{strangers} are members and do not run"
    waiting = [task for task in group.unsettled if group.tasks[task].target.waiting_reason]
    if group.placement_due_ms is not None or (group.next_probe_ms is not None and not waiting):
        return f"a look is due ({group.placement_due_ms}, {group.next_probe_ms}); unsettled: {sorted(group.unsettled)}"
    if group.pause is not None or group.storm_since_ms is not None:
        return "an operator has yet to resume"
    if any(host_of(member) in group.hosts for member in group.members.values()):
        return "an operator has yet to trust a member"
    if suspects := [member.id for member in group.members.values() if member.suspected or member.drain]:
        return f"{sorted(suspects)} are suspected or drain"
    if moving := [task for task in group.unsettled if not group.tasks[task].target.waiting_reason]:
        return f"unsettled: {[group.tasks[task] for task in sorted(moving)]}"
    for task in group.table.ids:
        if not group.tasks[task].target.waiting_reason and len(processors := world.processors(task_of(task))) != 1:
            return f"{task} is processed by {[one.last_id for one in processors]}"
    return ""


def _stay_at_rest(world: World) -> None:
    """Check that a group at rest writes nothing, moves nothing, and is consistent."""
    group = world.store.group
    config, version = group.config, group.version
    world.run_until(world.now_ms + 3 * group.heartbeat_interval_ms + config.session_timeout_ms)
    for violation in check_group(world.store.group):
        world.checks.fail(violation.law, violation.detail, violation.task, violation.member)
    # A task that waits for capacity, or for a newer program, is looked at again at each interval.
    is_waiting = any(group.tasks[task].target.waiting_reason for task in group.unsettled)
    if not world.checks.broken and world.store.group.version != version and not is_waiting:
        world.checks.fail("L9", f"wrote {world.store.group.version - version} records at rest")
