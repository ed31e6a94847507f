"""What may befall the workers: their processes, their network and their work."""

from __future__ import annotations

from random import Random

from batonpass.core.ids import TaskId
from batonpass.simulate.workers import Worker
from batonpass.simulate.world import World


def pick(world: World, chance: Random) -> Worker | None:
    """Return a worker that is up, awake and staying; None when there is none."""
    up = [worker for worker in world.workers if worker.is_up and not worker.is_suspended and not worker.leaving]
    return chance.choice(up) if up else None


def pick_task(world: World, chance: Random) -> TaskId | None:
    """Return one of the group's tasks."""
    ids = world.task_ids()
    return chance.choice(ids) if ids else None


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
    if worker := pick(world, chance):
        _restart_one(world, worker, chance)


def rolling_restart(world: World, chance: Random) -> None:
    """Every worker restarts in good order, one after the other."""
    for number, worker in enumerate(list(world.workers)):
        world.later(number * 4_000, _restart_one, world, worker, chance)


def _crash(world: World, chance: Random, *, least_ms: int, most_ms: int) -> Worker | None:
    worker = pick(world, chance)
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
    if worker := pick(world, chance):
        worker.kill()
        world.later(chance.randint(100, 3_000), lambda: worker.boot(takeover=True))


def crash_lost_disk(world: World, chance: Random) -> None:
    """A process is killed, and its machine comes back empty."""
    if worker := _crash(world, chance, least_ms=100, most_ms=6_000):
        worker.disk.clear()


def crash_for_good(world: World, chance: Random) -> None:
    """A machine dies and does not come back."""
    if len([worker for worker in world.workers if not worker.retired]) > 1 and (worker := pick(world, chance)):
        worker.kill()
        worker.retired = True


def flap(world: World, chance: Random) -> None:
    """A process dies again and again."""
    if worker := pick(world, chance):
        at_ms = 0
        for _ in range(chance.randint(2, 5)):
            world.later(at_ms, worker.kill)
            world.later(at_ms + chance.randint(50, 800), worker.boot)
            at_ms += chance.randint(1_000, 4_000)


def suspend(world: World, chance: Random) -> None:
    """A machine is frozen, for less or more than its lease."""
    if worker := pick(world, chance):
        worker.suspend(chance.choice((300, 2_000, 5_000, 12_000)))


def leave(world: World, chance: Random) -> None:
    """A worker goes for good; another machine may take its place."""
    if len([worker for worker in world.workers if not worker.retired]) > 1 and (worker := pick(world, chance)):
        worker.retired = True
        worker.leave(restart=False)
        worker.retired = True


def scale_out(world: World, chance: Random) -> None:
    """One or two more machines come up."""
    if len(world.workers) < 9:
        for _ in range(chance.randint(1, 2)):
            world.add_worker().boot()


def cut_off(world: World, chance: Random) -> None:
    """A worker cannot reach any coordinator for a while."""
    if worker := pick(world, chance):
        worker.trouble.cut_until_ms = world.now_ms + chance.choice((800, 3_000, 8_000, 20_000))
        world.sockets_closed(worker)


def cut_poll(world: World, chance: Random) -> None:
    """A worker's long-poll breaks and stays broken; its heartbeats go on."""
    if worker := pick(world, chance):
        worker.trouble.cut_poll_until_ms = world.now_ms + chance.choice((500, 5_000))
        world.sockets_closed(worker)


def slow_revocation(world: World, chance: Random) -> None:
    """A worker takes seconds to commit."""
    if worker := pick(world, chance):
        worker.trouble.slow_until_ms = world.now_ms + 8_000


def hang_in_revocation(world: World, chance: Random) -> None:
    """A worker hangs in its commits, for longer than anybody waits."""
    if worker := pick(world, chance):
        worker.trouble.hangs_until_ms = world.now_ms + 25_000


def fail_task(world: World, chance: Random) -> None:
    """A task fails where it runs, perhaps again where it goes."""
    task = pick_task(world, chance)
    if task is not None:
        for delay_ms in range(0, chance.choice((1, 1, 4)) * 2_000, 2_000):
            world.later(delay_ms, _fail_where_it_runs, world, task)


def _fail_where_it_runs(world: World, task: TaskId) -> None:
    for worker in world.processors(task):
        worker.fail(task)


def lose_state(world: World, chance: Random) -> None:
    """A worker loses the state of some tasks."""
    if worker := pick(world, chance):
        for task in sorted(worker.tasks):
            if chance.random() < 0.5:
                worker.lose(task)


def never_warm(world: World, chance: Random) -> None:
    """A worker's restores make no progress for a while."""
    if worker := pick(world, chance):
        worker.trouble.frozen_until_ms = world.now_ms + 20_000


def mute_progress(world: World, chance: Random) -> None:
    """A worker cannot say how far its copies are."""
    if worker := pick(world, chance):
        worker.trouble.mute_until_ms = world.now_ms + 6_000


def producer_fenced(world: World, chance: Random) -> None:
    """A producer is fenced although nobody else has the task."""
    if worker := pick(world, chance):
        for task in sorted(worker.tasks)[:1]:
            worker.fence_producer(task)
