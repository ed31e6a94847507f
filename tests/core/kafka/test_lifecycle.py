"""The life of a move, after the broker's own lifecycle tests of 2026: reports, thresholds, budgets, changes."""

from tests.core.relay import COLD_LAG, Relay, moved
from tests.core.scene import Scene, copy, topology

from batonpass.core.state.ids import MemberId
from batonpass.core.state.model import Role
from batonpass.core.state.records import TargetPlaced


def test_a_ready_copy_is_acted_upon_when_it_says_so_and_not_by_the_interval() -> None:
    """The broker's draft reports offsets at once when a copy is ready; in ours that heartbeat takes the next step."""
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=100, probing_rebalance_interval_ms=86_400_000)
    scene.join("a")
    scene.obey()
    scene.join("b")
    (task,) = scene.held("b", Role.WARMUP)
    scene.beat("b", {task: copy("warmup", 0)})
    scene.obey("a")
    assert scene.task(task).owner == "b"
    assert scene.tick().wake_at_ms is not None


def test_a_raised_acceptable_lag_promotes_without_a_restart() -> None:
    """In Kafka no setting changes at run time (D27)."""
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=0)
    scene.join("a")
    scene.obey()
    scene.join("b")
    (task,) = scene.held("b", Role.WARMUP)
    for _ in range(5):
        scene.tick(1_000)
        scene.obey("a")
        scene.beat("b", {task: copy("warmup", 70)})
    assert scene.task(task).owner == "a"
    scene.change(acceptable_recovery_lag=100)
    assert scene.task(task).handover.next_owner == "b"


def test_two_joiners_share_one_slot_and_nobody_restores_as_an_owner() -> None:
    relay = Relay(topology(3), max_warmup_replicas=1)
    relay.join("a")
    relay.play()
    relay.forget()
    before = relay.owners()
    relay.join("b", "c")
    relay.play()
    assert set(moved(before, relay.owners()).values()) == {"b", "c"}
    assert relay.most_extra == 1
    assert not relay.cold


def test_a_joiner_that_goes_again_leaves_the_owner_running() -> None:
    relay = Relay(topology(2))
    relay.join("a")
    relay.play()
    relay.step = COLD_LAG // 10
    relay.join("b")
    relay.round()
    relay.leave("b")
    relay.play()
    assert relay.actives() == {"a": 2}
    assert not relay.taken


def test_the_least_budget_is_one_so_that_no_move_is_cold_by_setting() -> None:
    """In the broker's draft a budget of 0 turns warm-ups off, and a move restores everything."""
    scene = Scene()
    scene.declare(topology(2))
    scene.change(max_warmup_replicas=0)
    assert scene.group.config.max_warmup_replicas == 2


def test_many_joins_at_once_make_one_generation() -> None:
    """The first join into an empty group waits longer (KIP-1263)."""
    scene = Scene()
    scene.declare(topology(20), initial_rebalance_delay_ms=3_000, rebalance_batch_ms=50)
    for number in range(5):
        scene.join(f"m{number}")
        scene.tick(500)
    assert scene.group.generation == 0
    scene.tick(500)
    assert scene.group.generation == 1
    assert len(scene.of(TargetPlaced)) == 1
    for number in range(5, 10):
        scene.join(f"m{number}")
        scene.tick(9)
    assert scene.group.generation == 1
    scene.tick(5)
    assert scene.group.generation == 2


def test_a_joiner_has_stateless_work_at_once() -> None:
    """In Kafka a newcomer may have standbys alone for a long time (D28)."""
    relay = Relay(topology(4, stateless=4))
    relay.join("a")
    relay.play()
    relay.step = 1
    relay.join("b")
    relay.beats()
    assert relay.scene.held("b", Role.ACTIVE)
    assert all(task.startswith("1_") for task in relay.scene.held("b", Role.ACTIVE))


def test_a_leavers_tasks_go_to_their_standbys() -> None:
    """Kafka makes a needless copy beside a standby that is nearly ready (D23)."""
    relay = Relay(topology(4), num_standby_replicas=1, initial_rebalance_delay_ms=3_000)
    relay.join("a", "b", "c", "d")
    relay.play()
    relay.forget()
    (task,) = [one for one, owner in relay.owners().items() if owner == "a"]
    guard = relay.group.tasks[task].standbys[0]
    relay.leave("a")
    assert relay.owners()[task] == guard
    assert relay.group.tasks[task].target.owner == guard
    relay.play()
    assert not relay.taken
    assert MemberId("a") not in relay.group.members
