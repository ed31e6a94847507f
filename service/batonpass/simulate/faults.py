"""The faults of a world: each kind of event, how often it comes, and what it does.

Every event has a seed of its own, by which it picks its worker, member or task. So it does the same when other events
are left out. If there is nothing to pick, nothing happens.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from random import Random

from batonpass.core.state.failures import host_of
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    GroupDeletion,
    PauseRequest,
    PinRequest,
    ProbeRequest,
    ReleaseRequest,
    ResumeRequest,
    TrustRequest,
)
from batonpass.core.state.model import PauseScope, Topology
from batonpass.simulate.coordinator import LEASE_MS
from batonpass.simulate.plan import Event, draw_worker, seeded
from batonpass.simulate.tasks import Task, simulated_subtopology, task_of
from batonpass.simulate.worker import Worker
from batonpass.simulate.world import World

Act = Callable[[World, Random], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of event: how often it comes, relative to the others, and what it does."""

    weight: int
    act: Act


FAULTS: dict[str, Fault] = {}
"""Every kind of event by its name. Restarts lead, as they do in production."""


def fault(weight: int) -> Callable[[Act], Act]:
    """Register a kind of event under its function's name."""

    def entered(act: Act) -> Act:
        FAULTS[act.__name__.replace("_", "-")] = Fault(weight, act)
        return act

    return entered


def worker_fault(weight: int) -> Callable[[Callable[[World, Worker, Random], None]], Act]:
    """Register a kind of event that happens to a worker, of those that are up, awake and not leaving."""

    def entered(act: Callable[[World, Worker, Random], None]) -> Act:
        @fault(weight)
        @wraps(act)
        def on_one(world: World, chance: Random) -> None:
            if worker := pick(world, chance):
                act(world, worker, chance)

        return on_one

    return entered


def apply(world: World, event: Event) -> None:
    world.noted(f"EVENT {event.number} {event.kind}")
    FAULTS[event.kind].act(world, seeded(event.seed, event.kind))


# --- picking a victim -------------------------------------------------------------------------------------------------


def pick(world: World, chance: Random) -> Worker | None:
    """Return a worker that is up, awake and not leaving; None when there is none."""
    up = [worker for worker in world.workers if worker.is_up and not worker.is_suspended and not worker.leaving]
    return chance.choice(up) if up else None


def _pick_one_of_several(world: World, chance: Random) -> Worker | None:
    """Return a worker that may go for good because others stay."""
    return pick(world, chance) if len([worker for worker in world.workers if not worker.retired]) > 1 else None


def _pick_task(world: World, chance: Random) -> TaskId | None:
    ids = world.store.group.table.ids
    return chance.choice(ids) if ids else None


def _pick_member(world: World, chance: Random) -> MemberId | None:
    members = sorted(world.store.group.members)
    return chance.choice(members) if members else None


# --- workers: their processes, their network, their work --------------------------------------------------------------


@fault(14)
def rolling_restart(world: World, chance: Random) -> None:
    """Every worker restarts in good order, one after the other."""
    for number, worker in enumerate(list(world.workers)):
        world.later(number * 4_000, _restart_one, world, worker, chance)


@worker_fault(14)
def restart(world: World, worker: Worker, chance: Random) -> None:
    """One worker restarts in good order, with its disk."""
    _restart_one(world, worker, chance)


def _restart_one(world: World, worker: Worker, chance: Random) -> None:
    worker.leave(restart=True)
    world.later(chance.randint(800, 3_000), _back_up, world, worker, chance)


def _back_up(world: World, worker: Worker, chance: Random) -> None:
    """Start the next process once the last one has ended; one that does not end in good time is killed."""
    if worker.is_up and worker.leaving and not worker.is_suspended and chance.random() < 0.9:
        world.later(500, _back_up, world, worker, chance)
        return
    if worker.is_up and worker.leaving:
        worker.kill()
    worker.boot()


@worker_fault(6)
def long_restart(world: World, worker: Worker, chance: Random) -> None:
    """One worker is away to restart for seconds, and something else happens meanwhile."""
    worker.leave(restart=True)
    world.later(chance.randint(4_000, 12_000), _back_up, world, worker, chance)
    meanwhile = chance.choice((drain_deadline, leave, more_partitions, scale_out))
    world.later(chance.randint(300, 2_000), meanwhile, world, chance)


@worker_fault(4)
def drain_beside_silence(world: World, worker: Worker, chance: Random) -> None:
    """A machine is frozen for longer than heartbeats can be late; then another worker has to go."""
    worker.suspend(chance.choice((6_000, 12_000)))
    silent_ms = world.store.group.overdue_ms + 500
    world.later(silent_ms, chance.choice((drain, drain_deadline, leave)), world, chance)


def _crash(world: World, worker: Worker, chance: Random, *, most_ms: int) -> None:
    worker.kill()
    replaces = chance.random() < 0.3
    world.later(chance.randint(100, most_ms), partial(worker.boot, replaces=replaces))


@worker_fault(8)
def crash(world: World, worker: Worker, chance: Random) -> None:
    """A process is killed and comes back, before or after its lease ends."""
    _crash(world, worker, chance, most_ms=15_000)


@worker_fault(4)
def crash_takeover(world: World, worker: Worker, chance: Random) -> None:
    """A process is killed and its successor vouches for its end, as in a StatefulSet."""
    worker.kill()
    world.later(chance.randint(100, 3_000), partial(worker.boot, takeover=True))


@worker_fault(3)
def crash_lost_disk(world: World, worker: Worker, chance: Random) -> None:
    """A process is killed, and its machine comes back empty."""
    _crash(world, worker, chance, most_ms=6_000)
    worker.disk.clear()


@fault(3)
def crash_for_good(world: World, chance: Random) -> None:
    """A machine dies and does not come back."""
    if worker := _pick_one_of_several(world, chance):
        worker.kill()
        worker.retired = True


@worker_fault(3)
def flap(world: World, worker: Worker, chance: Random) -> None:
    """A process dies again and again."""
    at_ms = 0
    for _ in range(chance.randint(2, 5)):
        world.later(at_ms, worker.kill)
        world.later(at_ms + chance.randint(50, 800), worker.boot)
        at_ms += chance.randint(1_000, 4_000)


@worker_fault(6)
def suspend(_world: World, worker: Worker, chance: Random) -> None:
    """A machine is frozen, for less or more than its lease."""
    worker.suspend(chance.choice((300, 2_000, 5_000, 12_000)))


@worker_fault(6)
def cut_off(world: World, worker: Worker, chance: Random) -> None:
    """A worker cannot reach any coordinator for a while."""
    worker.faults.cut_until_ms = world.now_ms + chance.choice((800, 3_000, 8_000, 20_000))
    world.sockets_closed(worker)


@worker_fault(4)
def cut_poll(world: World, worker: Worker, chance: Random) -> None:
    """A worker's long-poll breaks and stays broken; its heartbeats go on."""
    worker.faults.cut_poll_until_ms = world.now_ms + chance.choice((500, 5_000))
    world.sockets_closed(worker)


@worker_fault(4)
def slow_revocation(world: World, worker: Worker, _chance: Random) -> None:
    """A worker takes seconds to commit."""
    worker.faults.slow_until_ms = world.now_ms + 8_000


@worker_fault(3)
def hang_in_revocation(world: World, worker: Worker, _chance: Random) -> None:
    """A worker hangs in its commits, for longer than the coordinator waits."""
    worker.faults.hangs_until_ms = world.now_ms + 25_000


@fault(4)
def fail_task(world: World, chance: Random) -> None:
    """A task fails where it runs, perhaps again where it moves."""
    if name := _pick_task(world, chance):
        for delay_ms in range(0, chance.choice((1, 1, 4)) * 2_000, 2_000):
            world.later(delay_ms, _fail_where_it_runs, world, task_of(name))


def _fail_where_it_runs(world: World, task: Task) -> None:
    for worker in world.processors(task):
        worker.fail(task)


@worker_fault(3)
def bad_host(world: World, worker: Worker, chance: Random) -> None:
    """Whatever a worker runs fails there for a while, or is lost once it is handed over."""
    loses = chance.random() < 0.5
    for delay_ms in range(0, chance.choice((5_000, 20_000)), 500):
        world.later(delay_ms, _fail_all, world, worker, loses)


def _fail_all(world: World, worker: Worker, loses: bool) -> None:  # noqa: FBT001 - called by the clock
    for task in sorted(worker.tasks):
        if worker in world.processors(task):
            (worker.lose if loses else worker.fail)(task)


@worker_fault(2)
def killed_again_and_again(world: World, worker: Worker, chance: Random) -> None:
    """A worker is killed, noticed at the end of its lease, and killed again once it has work."""
    for round_ms in range(0, chance.choice((2, 4)) * 20_000, 20_000):
        world.later(round_ms, worker.kill)
        world.later(round_ms + 12_000, worker.boot)


@worker_fault(4)
def lose_state(_world: World, worker: Worker, chance: Random) -> None:
    """A worker loses the state of some tasks."""
    for task in sorted(worker.tasks):
        if chance.random() < 0.5:
            worker.lose(task)


@fault(3)
def changelog_made_anew(world: World, chance: Random) -> None:
    """A changelog is deleted and made again; every worker notices in its own time, and begins anew with its copies."""
    stateful = [int(part.id) for part in world.store.group.topology.subtopologies if part.stateful]
    if stateful:
        subtopology = chance.choice(stateful)
        world.topics_made[f"store-{subtopology}"] += 1
        for worker in list(world.workers):
            world.later(chance.randint(0, 4_000), _begin_anew, world, worker, subtopology)


def _begin_anew(world: World, worker: Worker, subtopology: int) -> None:
    if worker.is_suspended:
        world.later(500, _begin_anew, world, worker, subtopology)
        return
    held = world.shared.copies.held(worker.name) if worker.is_up else tuple(worker.disk)
    for task in [task for task in held if task[0] == subtopology]:
        worker.lose(task)


@worker_fault(4)
def never_warm(_world: World, worker: Worker, _chance: Random) -> None:
    """A worker's restores make no progress for a while."""
    worker.freeze(20_000)


@fault(3)
def written_as_fast_as_read(world: World, chance: Random) -> None:
    """Tasks are written as fast as any worker restores for a while, so that no copy of them comes closer."""
    for _ in range(chance.choice((1, 2, 4))):
        if name := _pick_task(world, chance):
            world.write_as_fast_as_any_reads(task_of(name), chance.choice((8_000, 20_000)))


@worker_fault(3)
def mute_progress(world: World, worker: Worker, _chance: Random) -> None:
    """A worker cannot report how far its copies are."""
    worker.faults.mute_until_ms = world.now_ms + 6_000


@worker_fault(2)
def huge_numbers(world: World, worker: Worker, _chance: Random) -> None:
    """A worker reports numbers whose sums no computer word can hold."""
    worker.faults.huge_until_ms = world.now_ms + 6_000


@worker_fault(2)
def producer_fenced(_world: World, worker: Worker, _chance: Random) -> None:
    """A producer is fenced although no other member has the task."""
    for task in sorted(worker.tasks)[:1]:
        worker.fence_producer(task)


# --- drains, members that come and go ---------------------------------------------------------------------------------


@fault(5)
def drain(world: World, chance: Random) -> None:
    """A worker drains itself and then leaves, or an operator drains a member and later calls the drain off."""
    worker = pick(world, chance)
    if worker is not None and chance.random() < 0.5:
        worker.drain()
        world.later(chance.randint(5_000, 15_000), partial(worker.leave, restart=False))
    elif member_id := _pick_member(world, chance):
        world.operate(DrainRequest(member_id))
        world.later(chance.randint(5_000, 15_000), world.operate, DrainReversal(member_id))


@worker_fault(4)
def drain_deadline(world: World, worker: Worker, chance: Random) -> None:
    """A worker has to drain within seconds; then its process ends."""
    deadline_ms = chance.choice((1_000, 4_000))
    worker.drain(deadline_ms=deadline_ms)
    end = worker.kill if chance.random() < 0.3 else partial(worker.leave, restart=False)
    world.later(deadline_ms + 1_500, end)


@fault(3)
def undrain(world: World, _chance: Random) -> None:
    for member_id, member in sorted(world.store.group.members.items()):
        if member.drain is not None:
            world.operate(DrainReversal(member_id))
            return


@fault(4)
def leave(world: World, chance: Random) -> None:
    """A worker goes for good; another machine may take its place."""
    if worker := _pick_one_of_several(world, chance):
        worker.leave(restart=False)
        worker.retired = True


@fault(3)
def come_and_go(world: World, chance: Random) -> None:
    """An autoscaler starts a machine and stops it again, time after time."""
    if len(world.workers) < 9:
        worker = _add_worker(world, fenced="stop")
        for at_ms in range(0, chance.choice((3, 4)) * 6_000, 6_000):
            world.later(at_ms, worker.boot)
            world.later(at_ms + chance.randint(1_500, 4_000), partial(worker.leave, restart=False))


@fault(6)
def scale_out(world: World, chance: Random) -> None:
    """One or two more machines come up."""
    if len(world.workers) < 9:
        for _ in range(chance.randint(1, 2)):
            _add_worker(world, fenced="stop" if len(world.workers) % 2 else "continue").boot()


def _add_worker(world: World, fenced: str) -> Worker:
    number, tasks = len(world.workers), len(world.leader.group.table.ids)
    return world.add_worker(draw_worker(world.plan.seed, number + 100, fenced=fenced, tasks=tasks))


@fault(3)
def evict(world: World, chance: Random) -> None:
    """An operator removes a member that may well be alive."""
    if member_id := _pick_member(world, chance):
        world.operate(Eviction(member_id))


@fault(2)
def evict_dead(world: World, _chance: Random) -> None:
    """An operator vouches for the death of a member whose process has ended."""
    for member_id in sorted(world.store.group.members):
        worker = world.shared.owner_of_id.get(member_id)
        if worker is not None and not worker.is_up:
            world.operate(Eviction(member_id, dead=True))
            return


@fault(3)
def keep_out(world: World, chance: Random) -> None:
    """An operator keeps an instance out, by a drain or an eviction, for a while or until that is undone."""
    instances = sorted(world.store.group.instances)
    if instances:
        named, for_ms = MemberId(chance.choice(instances)), chance.choice((None, 9_000))
        if chance.random() < 0.5:
            world.operate(DrainRequest(named, until_undone=True, for_ms=for_ms))
        else:
            world.operate(Eviction(named, until_undone=True, for_ms=for_ms))
        if for_ms is None:
            world.later(chance.randint(5_000, 15_000), world.operate, DrainReversal(named))


# --- what operators do ------------------------------------------------------------------------------------------------


@fault(2)
def pause(world: World, chance: Random) -> None:
    expires_ms = world.leader.clock_ms + 10_000 if chance.random() < 0.5 else None
    world.operate(PauseRequest(chance.choice(list(PauseScope)), "maintenance", expires_ms))


@fault(2)
def resume(world: World, _chance: Random) -> None:
    world.operate(ResumeRequest())


@fault(2)
def pin(world: World, chance: Random) -> None:
    task, member_id = _pick_task(world, chance), _pick_member(world, chance)
    if task is not None and member_id is not None:
        world.operate(PinRequest(task, member_id))


@fault(2)
def unpin(world: World, _chance: Random) -> None:
    for task_id, task in sorted(world.store.group.tasks.items()):
        if task.marks.pin is not None:
            world.operate(PinRequest(task_id, None))


@fault(2)
def probe(world: World, _chance: Random) -> None:
    world.operate(ProbeRequest())


def release_parked(world: World) -> None:
    """Release every task that is parked, or that failed and is not at its target; trust every member again."""
    for member_id, member in sorted(world.store.group.members.items()):
        if host_of(member) in world.store.group.hosts:
            world.operate(TrustRequest(member_id))
    for task_id, task in sorted(world.store.group.tasks.items()):
        if task.marks.parked or (task.marks.failures and task.owner != task.target.owner):
            world.operate(ReleaseRequest(task_id))


@fault(5)
def config(world: World, chance: Random) -> None:
    wanted: dict[str, object] = {
        "num_standby_replicas": chance.choice((0, 1, 2)),
        "max_warmup_replicas": chance.choice((1, 2, "30%")),
        "acceptable_recovery_lag": chance.choice((50, 100, 500)),
    }
    name = chance.choice(sorted(wanted))
    world.declare(None, {name: wanted[name]})


@fault(3)
def lower_session_timeout(world: World, chance: Random) -> None:
    """The session timeout falls while leases run; or it rises."""
    now = world.store.group.config
    floor = 3 * now.heartbeat_interval_ms + 1_000
    world.declare(None, {"session_timeout_ms": chance.choice((floor, floor, floor + 6_000))})


@fault(3)
def more_partitions(world: World, chance: Random) -> None:
    """A subtopology gets another partition."""
    topology = world.store.group.topology
    if topology.subtopologies:
        which = chance.randrange(len(topology.subtopologies))
        parts = tuple(
            replace(one, partitions=(one.partitions or 0) + (number == which))
            for number, one in enumerate(topology.subtopologies)
        )
        world.declare(replace(topology, epoch=topology.epoch + 1, subtopologies=parts), None)


@fault(2)
def new_subtopology(world: World, chance: Random) -> None:
    """A newer program brings another subtopology."""
    topology = world.store.group.topology
    epoch = topology.epoch + 1
    part = simulated_subtopology(len(topology.subtopologies), 2, stateful=chance.random() < 0.5, epoch=epoch)
    world.declare(replace(topology, epoch=epoch, subtopologies=(*topology.subtopologies, part)), None)


@fault(1)
def delete_and_create(world: World, chance: Random) -> None:
    """The group is deleted, members and all, and declared again."""
    topology, leader = world.store.group.topology, world.leader
    if world.operate(GroupDeletion(force=True)) is not None and leader.is_up:
        world.later(chance.randint(0, 2_000), _create, world, topology)


def _create(world: World, topology: Topology) -> None:
    if not world.leader.group.declared:
        world.declare(topology, world.config)


# --- coordinators and the store ---------------------------------------------------------------------------------------


@fault(6)
def coordinator_crash(world: World, chance: Random) -> None:
    """The coordinator dies; another one starts."""
    world.died(world.leader, chance.randint(50, 6_000))


@fault(6)
def crash_after_append(world: World, _chance: Random) -> None:
    """The coordinator dies after its next append, before it answers."""
    world.leader.dies_after_append = True


@fault(4)
def coordinator_handoff(world: World, chance: Random) -> None:
    """The group moves to another coordinator in good order."""
    world.died(world.leader, chance.randint(0, 20))


@fault(5)
def split(world: World, chance: Random) -> None:
    """The leader loses the store, and does not know that another coordinator has taken over."""
    old = world.leader
    if old.is_up:
        old.is_cut_from_store = True
        world.later(5_000, world.take_over, old)
        world.later(chance.randint(8_000, 15_000), setattr, old, "is_cut_from_store", False)


@fault(3)
def stall(world: World, chance: Random) -> None:
    """The coordinator's process is frozen for a while, and another one takes over once its lease has ended."""
    for_ms = chance.choice((200, 2_000, 6_000, 12_000))
    world.leader.stall(for_ms)
    if for_ms > LEASE_MS:
        world.clock.after(LEASE_MS, world.take_over, world.leader)


@fault(4)
def store_outage(world: World, chance: Random) -> None:
    """The store is unavailable for a while."""
    world.store.is_out = True
    world.later(chance.choice((500, 3_000, 12_000)), setattr, world.store, "is_out", False)


@fault(3)
def move_clock(world: World, chance: Random) -> None:
    """The store's clock is set, by far more than a lease: a machine that is ahead, or behind, has taken over."""
    world.store.clock_ahead_ms += chance.choice((1_500, 90_000, 7_200_000, -3_000, -90_000, -7_200_000))
    world.store.clock_moved_ms = world.now_ms
    world.noted(f"the store's clock is {world.store.clock_ahead_ms} ms ahead")


@fault(2)
def lost_commits(world: World, chance: Random) -> None:
    """The store fails over and has lost its last commits; an operator declares that before anything else happens."""
    _lose(world, chance, declared=True)


@fault(2)
def lost_commits_unnoticed(world: World, chance: Random) -> None:
    """The store has lost its last commits, and no operator declares that."""
    _lose(world, chance, declared=False)
    # Only the members' own epochs can show the loss; from then on nothing is granted for a session timeout.
    world.checks.excused_until_ms = world.now_ms + 4 * world.store.group.longest_session_ms + 2_000


def _lose(world: World, chance: Random, *, declared: bool) -> None:
    if world.leader.is_up:
        world.leader.stop()
    world.store.is_out = False
    lost = world.store.lose(chance.randint(1, 12))
    world.noted(f"the store lost {lost} commits")
    world.checks.credit.clear()
    world.lead_anew(recovered=declared)
