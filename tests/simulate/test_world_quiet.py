"""Planned events in worlds without faults: what must move moves, nobody else is interrupted, then there is rest."""

from tests.simulate.quiet import add, forget_interruptions, interrupted, quiet, rest

from batonpass.simulate.run import why_not_at_rest
from batonpass.simulate.world import World


def test_a_group_that_starts_comes_to_rest() -> None:
    world = quiet(workers=3, tasks=9)
    world.begin()
    assert why_not_at_rest(world)
    rest(world)
    owned = [len([task for task in worker.tasks if worker.processes(task)]) for worker in world.workers]
    assert sorted(owned) == [3, 3, 3]


def test_a_new_worker_is_handed_what_it_needs_and_nothing_else_moves() -> None:
    """In the rounds that the budget makes, and at most two more."""
    world = quiet(workers=2, tasks=12, max_warmup_replicas=2)
    world.begin()
    rest(world)
    world.checks.handovers = 0
    forget_interruptions(world)
    newest = add(world)
    took_ms = rest(world)
    assert sorted(len(worker.tasks) for worker in world.workers) == [4, 4, 4]
    assert world.checks.handovers == 4
    assert sum(interrupted(world).values()) == 4
    assert newest.name not in interrupted(world)
    # Two rounds of two warmups, and two more: each restores at most 607 records at 400 a second, and says so at once.
    assert took_ms <= 4 * (607 * 1000 // 400 + 3 * 700)


def test_a_rolling_restart_with_state_on_disk_moves_nothing() -> None:
    world = quiet(workers=4, tasks=8)
    world.begin()
    rest(world)
    forget_old_state(world)
    before = {worker.name: sorted(worker.tasks) for worker in world.workers}
    world.checks.handovers = 0
    for worker in world.workers:
        forget_interruptions(world)
        worker.leave(restart=True)
        world.run_until(world.now_ms + 1_000)
        assert not worker.is_up
        worker.boot()
        rest(world)
        assert set(interrupted(world)) == {worker.name}
    assert {worker.name: sorted(worker.tasks) for worker in world.workers} == before
    assert world.checks.handovers == 0


def forget_old_state(world: World) -> None:
    """Let no worker have state of a task that it does not run: such state would serve the task meanwhile."""
    for worker in world.workers:
        for task in world.shared.copies.held(worker.name):
            if task not in worker.tasks:
                worker.lose(task)
    rest(world)
    world.run_until(world.now_ms + 2_000)


def test_a_standby_takes_over_from_the_dead_and_nobody_else_pauses() -> None:
    world = quiet(workers=3, tasks=6, num_standby_replicas=1)
    world.begin()
    rest(world)
    dead = world.workers[0]
    lost = [task for task in dead.tasks if dead.processes(task)]
    forget_interruptions(world)
    dead.retired = True
    dead.kill()
    world.run_until(world.now_ms + 4_000 + 500)
    assert [len(world.processors(task)) for task in lost] == [1, 1]
    assert interrupted(world) == {}
    rest(world)


def test_a_drained_worker_ends_empty_and_warm() -> None:
    world = quiet(workers=3, tasks=6)
    world.begin()
    rest(world)
    world.checks.handovers = 0
    leaver = world.workers[1]
    leaver.drain()
    world.run_until(world.now_ms + 20_000)
    assert world.checks.broken == []
    assert [task for task in leaver.tasks if leaver.processes(task)] == []
    assert world.checks.handovers == 2
    assert leaver.machine is not None
    assert "drained" in {status.code for status in leaver.machine.statuses}
