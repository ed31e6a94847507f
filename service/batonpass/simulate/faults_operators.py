"""What operators do: drains, evictions, pauses, pins, and changes of config and topology."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from batonpass.core.ids import MemberId
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
from batonpass.simulate.faults_workers import pick, pick_task
from batonpass.simulate.workers import Worker
from batonpass.simulate.world import World


def _member(world: World, chance: Random) -> MemberId | None:
    members = sorted(world.store.group.members)
    return chance.choice(members) if members else None


def drain(world: World, chance: Random) -> None:
    """A worker is drained: by an operator, or by itself, which then goes once it is empty."""
    worker = pick(world, chance)
    if worker is not None and chance.random() < 0.5:
        worker.drain()
        world.later(chance.randint(5_000, 15_000), lambda: leave_now(worker))
    elif (member_id := _member(world, chance)) is not None:
        world.operate(DrainRequest(member_id))
        world.later(chance.randint(5_000, 15_000), lambda: world.operate(DrainReversal(member_id)))


def leave_now(worker: Worker) -> None:
    """Let a worker go for good."""
    worker.leave(restart=False)


def drain_deadline(world: World, chance: Random) -> None:
    """A node is to be empty within seconds; then its process ends."""
    if worker := pick(world, chance):
        deadline_ms = chance.choice((1_000, 4_000))
        worker.drain(deadline_ms)
        world.later(deadline_ms + 1_500, worker.kill if chance.random() < 0.3 else lambda: leave_now(worker))


def undrain(world: World, _chance: Random) -> None:
    """A drain is called off."""
    for member_id, member in sorted(world.store.group.members.items()):
        if member.drain is not None:
            world.operate(DrainReversal(member_id))
            return


def evict(world: World, chance: Random) -> None:
    """An operator removes a member that may well be alive."""
    if (member_id := _member(world, chance)) is not None:
        world.operate(Eviction(member_id))


def evict_dead(world: World, _chance: Random) -> None:
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


def resume(world: World, _chance: Random) -> None:
    """An operator lets moves go on."""
    world.operate(ResumeRequest())


def pin(world: World, chance: Random) -> None:
    """An operator binds a task to a member."""
    task, member_id = pick_task(world, chance), _member(world, chance)
    if task is not None and member_id is not None:
        world.operate(PinRequest(task, member_id))


def unpin(world: World, _chance: Random) -> None:
    """Every pin is taken off."""
    for task_id, task in sorted(world.store.group.tasks.items()):
        if task.pin is not None:
            world.operate(PinRequest(task_id, None))


def probe(world: World, _chance: Random) -> None:
    """An operator asks for a look now."""
    world.operate(ProbeRequest())


def release_parked(world: World) -> None:
    """Every task that is parked, or away from where it belongs because it failed there, may be tried again."""
    for task_id, task in sorted(world.store.group.tasks.items()):
        if task.parked or (task.failures and task.owner != task.target):
            world.operate(ReleaseRequest(task_id))


def config(world: World, chance: Random) -> None:
    """Some settings change."""
    wanted: dict[str, object] = {
        "num_standby_replicas": chance.choice((0, 1, 2)),
        "max_warmup_replicas": chance.choice((1, 2, "30%")),
        "acceptable_recovery_lag": chance.choice((50, 100, 500)),
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
