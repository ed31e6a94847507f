"""What may befall a world: each kind of event, and what it does.

Every event has a seed of its own, from which it picks whom it strikes; so it does the same when others are left out.
Where nobody is there to be struck, nothing happens. The kinds that strike workers and those that operators bring are in
files of their own; here are coordinators and the store.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from batonpass.simulate import faults_operators as of_operators
from batonpass.simulate import faults_workers as of_workers
from batonpass.simulate.coordinators import SimulatedCoordinator
from batonpass.simulate.scenario import Event, seeded
from batonpass.simulate.world import World

Fault = Callable[[World, Random], None]


def apply(world: World, event: Event) -> None:
    """Let an event happen."""
    world.log(f"EVENT {event.number} {event.kind}")
    FAULTS[event.kind](world, seeded(event.seed, event.kind))


def coordinator_crash(world: World, chance: Random) -> None:
    """The coordinator dies; another one starts."""
    world.coordinator_died(world.leader, chance.randint(50, 6_000))


def crash_after_append(world: World, _chance: Random) -> None:
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


def _mend(coordinator: SimulatedCoordinator) -> None:
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
    "rolling-restart": of_workers.rolling_restart,
    "restart": of_workers.restart,
    "crash": of_workers.crash,
    "crash-takeover": of_workers.crash_takeover,
    "crash-lost-disk": of_workers.crash_lost_disk,
    "crash-for-good": of_workers.crash_for_good,
    "flap": of_workers.flap,
    "suspend": of_workers.suspend,
    "cut-off": of_workers.cut_off,
    "cut-poll": of_workers.cut_poll,
    "slow-revocation": of_workers.slow_revocation,
    "hang-in-revocation": of_workers.hang_in_revocation,
    "fail-task": of_workers.fail_task,
    "lose-state": of_workers.lose_state,
    "never-warm": of_workers.never_warm,
    "mute-progress": of_workers.mute_progress,
    "producer-fenced": of_workers.producer_fenced,
    "drain": of_operators.drain,
    "drain-deadline": of_operators.drain_deadline,
    "undrain": of_operators.undrain,
    "leave": of_workers.leave,
    "scale-out": of_workers.scale_out,
    "evict": of_operators.evict,
    "evict-dead": of_operators.evict_dead,
    "pause": of_operators.pause,
    "resume": of_operators.resume,
    "pin": of_operators.pin,
    "unpin": of_operators.unpin,
    "probe": of_operators.probe,
    "config": of_operators.config,
    "lower-session-timeout": of_operators.lower_session_timeout,
    "more-partitions": of_operators.more_partitions,
    "new-subtopology": of_operators.new_subtopology,
    "delete-and-create": of_operators.delete_and_create,
    "coordinator-crash": coordinator_crash,
    "crash-after-append": crash_after_append,
    "coordinator-handoff": coordinator_handoff,
    "split": split,
    "stall": stall,
    "store-outage": store_outage,
    "lost-commits": lost_commits,
    "lost-commits-unnoticed": lost_commits_unnoticed,
}
