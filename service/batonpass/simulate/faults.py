"""What may befall a world: each kind of event, and what it does.

Every event has a seed of its own, from which it picks whom it strikes; so it does the same when other events are left out.
Where nobody is there to be struck, nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from batonpass.core.ids import MemberId, TaskId
from batonpass.core.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    GroupDeletion,
    PauseRequest,
    PinRequest,
    ProbeRequest,
    ReleaseRequest,
    ResumeRequest,
)
from batonpass.core.model import PauseScope, Subtopology, Topology
from batonpass.simulate.coordinators import Coordinator
from batonpass.simulate.scenario import Event, seeded
from batonpass.simulate.workers import Worker
from batonpass.simulate.world import World

Fault = Callable[[World, Random], None]


def apply(world: World, event: Event) -> None:
    """Let an event happen."""
    world.log(f"EVENT {event.number} {event.kind}")
    FAULTS[event.kind](world, seeded(event.seed, event.kind))


def _pick(world: World, chance: Random) -> Worker | None:
    up = [worker for worker in world.workers if worker.is_up and not worker.is_suspended and not worker.leaving]
    return chance.choice(up) if up else None


def _task(world: World, chance: Random) -> TaskId | None:
    ids = world.task_ids()
    return chance.choice(ids) if ids else None


def _member(world: World, chance: Random) -> MemberId | None:
    members = sorted(world.store.group.members)
    return chance.choice(members) if members else None


# --- processes ------------------------------------------------------------------------------------------------------


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


def restart(world: World, chance: Random) -> None:
    """One worker restarts in good order, with its disk."""
    if worker := _pick(world, chance):
        _restart_one(world, worker, chance)


def rolling_restart(world: World, chance: Random) -> None:
    """Every worker restarts in good order, one after the other."""
    for number, worker in enumerate(list(world.workers)):
        world.later(number * 4_000, _restart_one, world, worker, chance)


def _crash(world: World, chance: Random, *, least_ms: int, most_ms: int) -> Worker | None:
    worker = _pick(world, chance)
    if worker is not None:
        worker.kill()
        replaces = chance.random() < 0.3
        world.later(chance.randint(least_ms, most_ms), lambda: worker.boot(replaces=replaces))
    return worker


def crash(world: World, chance: Random) -> None:
    """A process is killed and comes back, sooner or later than its lease ends."""
    _crash(world, chance, least_ms=100, most_ms=15_000)


def crash_takeover(world: World, chance: Random) -> None:
    """A process is killed and its successor vouches for its end, as in a StatefulSet."""
    if worker := _pick(world, chance):
        worker.kill()
        world.later(chance.randint(100, 3_000), lambda: worker.boot(takeover=True))


def crash_lost_disk(world: World, chance: Random) -> None:
    """A process is killed, and its machine comes back empty."""
    if worker := _crash(world, chance, least_ms=100, most_ms=6_000):
        worker.disk.clear()


def crash_for_good(world: World, chance: Random) -> None:
    """A machine dies and does not come back."""
    if len([worker for worker in world.workers if not worker.retired]) > 1 and (worker := _pick(world, chance)):
        worker.kill()
        worker.retired = True


def flap(world: World, chance: Random) -> None:
    """A process dies again and again."""
    if worker := _pick(world, chance):
        at_ms = 0
        for _ in range(chance.randint(2, 5)):
            world.later(at_ms, worker.kill)
            world.later(at_ms + chance.randint(50, 800), worker.boot)
            at_ms += chance.randint(1_000, 4_000)


def suspend(world: World, chance: Random) -> None:
    """A machine is frozen, for less or more than its lease."""
    if worker := _pick(world, chance):
        worker.suspend(chance.choice((300, 2_000, 5_000, 12_000)))


def leave(world: World, chance: Random) -> None:
    """A worker goes for good; another machine may take its place."""
    if len([worker for worker in world.workers if not worker.retired]) > 1 and (worker := _pick(world, chance)):
        worker.retired = True
        worker.leave(restart=False)
        worker.retired = True


def scale_out(world: World, chance: Random) -> None:
    """One or two more machines come up."""
    if len(world.workers) < 9:
        for _ in range(chance.randint(1, 2)):
            world.add_worker().boot()


# --- network --------------------------------------------------------------------------------------------------------


def cut_off(world: World, chance: Random) -> None:
    """A worker cannot reach any coordinator for a while."""
    if worker := _pick(world, chance):
        worker.cut_until_ms = world.now_ms + chance.choice((800, 3_000, 8_000, 20_000))
        world.sockets_closed(worker)


def cut_poll(world: World, chance: Random) -> None:
    """A worker's long-poll breaks and stays broken; its heartbeats go on."""
    if worker := _pick(world, chance):
        worker.cut_poll_until_ms = world.now_ms + chance.choice((500, 5_000))
        world.sockets_closed(worker)


# --- work -----------------------------------------------------------------------------------------------------------


def slow_revocation(world: World, chance: Random) -> None:
    """A worker takes seconds to commit."""
    if worker := _pick(world, chance):
        worker.slow_until_ms = world.now_ms + 8_000


def hang_in_revocation(world: World, chance: Random) -> None:
    """A worker hangs in its commits, for longer than anybody waits."""
    if worker := _pick(world, chance):
        worker.hangs_until_ms = world.now_ms + 25_000


def fail_task(world: World, chance: Random) -> None:
    """A task fails where it runs, perhaps again where it goes."""
    task = _task(world, chance)
    if task is not None:
        for delay_ms in range(0, chance.choice((1, 1, 4)) * 2_000, 2_000):
            world.later(delay_ms, _fail_where_it_runs, world, task)


def _fail_where_it_runs(world: World, task: TaskId) -> None:
    for worker in world.processors(task):
        worker.fail(task)


def lose_state(world: World, chance: Random) -> None:
    """A worker loses the state of some tasks."""
    if worker := _pick(world, chance):
        for task in sorted(worker.tasks):
            if chance.random() < 0.5:
                worker.lose(task)


def never_warm(world: World, chance: Random) -> None:
    """A worker's restores make no progress for a while."""
    if worker := _pick(world, chance):
        worker.frozen_until_ms = world.now_ms + 20_000


def mute_progress(world: World, chance: Random) -> None:
    """A worker cannot say how far its copies are."""
    if worker := _pick(world, chance):
        worker.mute_until_ms = world.now_ms + 6_000


def producer_fenced(world: World, chance: Random) -> None:
    """A producer is fenced although nobody else has the task."""
    if worker := _pick(world, chance):
        for task in sorted(worker.tasks)[:1]:
            worker.feed(lambda machine, one=task: machine.producer_fenced(one, now_ms=worker.clock_ms))


# --- operators ------------------------------------------------------------------------------------------------------


def drain(world: World, chance: Random) -> None:
    """A worker is drained: by an operator, or by itself, which then goes once it is empty."""
    worker = _pick(world, chance)
    if worker is not None and chance.random() < 0.5:
        worker.feed(lambda machine: machine.drain(now_ms=worker.clock_ms))
        world.later(chance.randint(5_000, 15_000), lambda: leave_now(worker))
    elif (member_id := _member(world, chance)) is not None:
        world.operate(DrainRequest(member_id))
        world.later(chance.randint(5_000, 15_000), lambda: world.operate(DrainReversal(member_id)))


def leave_now(worker: Worker) -> None:
    """Let a worker go for good."""
    worker.leave(restart=False)


def drain_deadline(world: World, chance: Random) -> None:
    """A node is to be empty within seconds; then its process ends."""
    if worker := _pick(world, chance):
        deadline_ms = chance.choice((1_000, 4_000))
        worker.feed(lambda machine: machine.drain(now_ms=worker.clock_ms, deadline_ms=deadline_ms))
        world.later(deadline_ms + 1_500, worker.kill if chance.random() < 0.3 else lambda: leave_now(worker))


def undrain(world: World, chance: Random) -> None:
    """A drain is called off."""
    for member_id, member in sorted(world.store.group.members.items()):
        if member.drain is not None:
            world.operate(DrainReversal(member_id))
            return


def evict(world: World, chance: Random) -> None:
    """An operator removes a member that may well be alive."""
    if (member_id := _member(world, chance)) is not None:
        world.operate(Eviction(member_id))


def evict_dead(world: World, chance: Random) -> None:
    """An operator vouches for the death of a member whose process has ended."""
    for member_id in sorted(world.store.group.members):
        worker = world.owner_of_id.get(member_id)
        if worker is not None and not worker.is_up:
            world.operate(Eviction(member_id, dead=True))
            return


def pause(world: World, chance: Random) -> None:
    """An operator holds moves."""
    expires_ms = world.leader.clock_ms + 10_000 if chance.random() < 0.5 else None
    world.operate(PauseRequest(chance.choice(list(PauseScope)), "maintenance", expires_ms))


def resume(world: World, chance: Random) -> None:
    """An operator lets moves go on."""
    world.operate(ResumeRequest())


def pin(world: World, chance: Random) -> None:
    """An operator binds a task to a member."""
    task, member_id = _task(world, chance), _member(world, chance)
    if task is not None and member_id is not None:
        world.operate(PinRequest(task, member_id))


def unpin(world: World, chance: Random) -> None:
    """Every pin is taken off."""
    for task_id, task in sorted(world.store.group.tasks.items()):
        if task.pin is not None:
            world.operate(PinRequest(task_id, None))


def probe(world: World, chance: Random) -> None:
    """An operator asks for a look now."""
    world.operate(ProbeRequest())


def release_parked(world: World) -> None:
    """Every parked task may be tried again."""
    for task_id, task in sorted(world.store.group.tasks.items()):
        if task.parked:
            world.operate(ReleaseRequest(task_id))


def config(world: World, chance: Random) -> None:
    """Some settings change."""
    wanted: dict[str, object] = {
        "num_standby_replicas": chance.choice((0, 1, 2)),
        "max_warmup_replicas": chance.choice((1, 2, "30%")),
        "acceptable_recovery_lag": chance.choice((20, 50, 500)),
    }
    name = chance.choice(sorted(wanted))
    world.declare(None, {name: wanted[name]})


def lower_session_timeout(world: World, chance: Random) -> None:
    """The session timeout falls while leases run; or it rises."""
    now = world.store.group.config
    floor = 3 * now.heartbeat_interval_ms + 1_000
    world.declare(None, {"session_timeout_ms": chance.choice((floor, floor, floor + 6_000))})


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


def new_subtopology(world: World, chance: Random) -> None:
    """A newer program brings another subtopology."""
    topology = world.store.group.topology
    number = len(topology.subtopologies)
    epoch = topology.epoch + 1
    stateful = chance.random() < 0.5
    part = Subtopology(
        id=str(number),
        partitions=2,
        stateful=stateful,
        source_topics=(f"in-{number}",),
        changelog_topics=(f"store-{number}",) if stateful else (),
        epoch=epoch,
    )
    world.declare(replace(topology, epoch=epoch, subtopologies=(*topology.subtopologies, part)), None)


def delete_and_create(world: World, chance: Random) -> None:
    """The group is deleted, members and all, and declared again."""
    topology, leader = world.store.group.topology, world.leader
    if world.operate(GroupDeletion(force=True)) is not None and leader.is_up:
        world.later(chance.randint(0, 2_000), _create, world, topology)


def _create(world: World, topology: Topology) -> None:
    if not world.leader.group.declared:
        world.declare(topology, world.config)


# --- coordinators and the store -------------------------------------------------------------------------------------


def coordinator_crash(world: World, chance: Random) -> None:
    """The coordinator dies; another one starts."""
    world.coordinator_died(world.leader, chance.randint(50, 6_000))


def crash_after_append(world: World, chance: Random) -> None:
    """The coordinator dies after its next append, before it answers."""
    world.leader.dies_after_append = True


def coordinator_handoff(world: World, chance: Random) -> None:
    """The group moves to another coordinator in good order."""
    world.coordinator_died(world.leader, chance.randint(0, 20))


def split(world: World, chance: Random) -> None:
    """The leader loses the store, and does not know that another one has taken over."""
    old = world.leader
    if old.is_up:
        old.is_cut_from_store = True
        world.later(5_000, world.take_over, old)
        world.later(chance.randint(8_000, 15_000), _mend, old)


def _mend(coordinator: Coordinator) -> None:
    coordinator.is_cut_from_store = False


def stall(world: World, chance: Random) -> None:
    """The coordinator's process is frozen for a while."""
    world.leader.stall(chance.choice((200, 2_000, 6_000, 12_000)))


def store_outage(world: World, chance: Random) -> None:
    """The store is away for a while."""
    world.store.is_out = True
    world.later(chance.choice((500, 3_000, 12_000)), _store_is_back, world)


def _store_is_back(world: World) -> None:
    world.store.is_out = False


def lost_commits(world: World, chance: Random) -> None:
    """The store fails over and has lost its last commits; the operator says so before anything else happens."""
    _lose(world, chance, declared=True)


def lost_commits_unnoticed(world: World, chance: Random) -> None:
    """The store has lost its last commits, and nobody says so."""
    _lose(world, chance, declared=False)
    # Until the members' own epochs tell, nobody can know; then nothing is granted for a session timeout.
    world.checks.excused_until_ms = world.now_ms + 4 * world.store.group.longest_session_ms + 2_000


def _lose(world: World, chance: Random, *, declared: bool) -> None:
    old = world.leader
    if old.is_up:
        old.stop()
    world.store.is_out = False
    lost = world.store.lose(chance.randint(1, 12))
    world.log(f"the store lost {lost} commits")
    world.checks.store_lost_commits()
    world.leader = world.new_coordinator()
    world.leader.start(recovered=declared)


FAULTS: dict[str, Fault] = {
    "rolling-restart": rolling_restart,
    "restart": restart,
    "crash": crash,
    "crash-takeover": crash_takeover,
    "crash-lost-disk": crash_lost_disk,
    "crash-for-good": crash_for_good,
    "flap": flap,
    "suspend": suspend,
    "cut-off": cut_off,
    "cut-poll": cut_poll,
    "slow-revocation": slow_revocation,
    "hang-in-revocation": hang_in_revocation,
    "fail-task": fail_task,
    "lose-state": lose_state,
    "never-warm": never_warm,
    "mute-progress": mute_progress,
    "producer-fenced": producer_fenced,
    "drain": drain,
    "drain-deadline": drain_deadline,
    "undrain": undrain,
    "leave": leave,
    "scale-out": scale_out,
    "evict": evict,
    "evict-dead": evict_dead,
    "pause": pause,
    "resume": resume,
    "pin": pin,
    "unpin": unpin,
    "probe": probe,
    "config": config,
    "lower-session-timeout": lower_session_timeout,
    "more-partitions": more_partitions,
    "new-subtopology": new_subtopology,
    "delete-and-create": delete_and_create,
    "coordinator-crash": coordinator_crash,
    "crash-after-append": crash_after_append,
    "coordinator-handoff": coordinator_handoff,
    "split": split,
    "stall": stall,
    "store-outage": store_outage,
    "lost-commits": lost_commits,
    "lost-commits-unnoticed": lost_commits_unnoticed,
}
