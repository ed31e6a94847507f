"""Which members hold a copy beside the active, and for how long: standbys, warmups, the last owner's copy."""

from tests.core.relay import COLD_LAG, Relay, moved
from tests.core.scene import Scene, copy, restoring, running, topology

from batonpass.core.handover.copies import plan_task
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    Leave,
    PauseRequest,
    PinRequest,
    ResumeRequest,
)
from batonpass.core.state.model import PauseScope, Role
from batonpass.core.state.records import WarmupStalled

TASK = TaskId("0_0")


def others(scene: Scene, *names: str | None) -> str:
    """Return the one member that is not named."""
    (found,) = set(map(str, scene.group.members)) - set(map(str, names))
    return found


def trio(standbys: int = 1, **config: object) -> Scene:
    """Return a group of three at rest with one task."""
    scene = Scene()
    settings = {"acceptable_recovery_lag": 100, "num_standby_replicas": standbys} | config
    scene.declare(topology(1), **settings)
    for name in ("a", "b", "c"):
        scene.join(name)
    scene.settle()
    return scene


def test_wanted_standbys_are_granted_at_once_and_outside_the_budget() -> None:
    scene = Scene()
    scene.declare(topology(20), num_standby_replicas=1, max_warmup_replicas=1, max_warmups_per_member=1)
    scene.join("a")
    scene.obey()
    scene.join("b")
    assert scene.held("b", Role.STANDBY) == sorted(scene.owners())
    assert scene.held("b", Role.WARMUP) == []


def test_a_standby_that_moves_is_a_warmup_until_it_is_caught_up_and_the_old_one_stays_till_then() -> None:
    scene = trio()
    owner = scene.task(TASK).owner
    (old,) = scene.task(TASK).standbys
    new = others(scene, owner, old)
    scene.do(DrainRequest(old))
    assert scene.held(new, Role.WARMUP) == [TASK]
    assert scene.held(old, Role.STANDBY) == [TASK]
    scene.beat(new, {TASK: copy("warmup", 5_000)})
    scene.tick(1_000)
    assert scene.held(old, Role.STANDBY) == [TASK]
    scene.beat(new, {TASK: copy("warmup", 5)})
    assert scene.held(new, Role.STANDBY) == [TASK]
    assert scene.held(old, Role.STANDBY) == []


def test_a_standby_that_nobody_else_can_take_goes_with_its_draining_member_and_not_before() -> None:
    scene = trio(2)
    owner = scene.task(TASK).owner
    first, second = scene.task(TASK).standbys
    scene.do(DrainRequest(second))
    scene.settle()
    assert scene.task(TASK).standbys == (first, second)
    scene.join("d")
    assert scene.held("d", Role.WARMUP) == [TASK]
    assert scene.held(second, Role.STANDBY) == [TASK]
    scene.beat("d", {TASK: copy("warmup", 0)})
    assert scene.held("d", Role.STANDBY) == [TASK]
    assert scene.held(second, Role.STANDBY) == []
    scene.do(Leave(MemberId("d")))
    scene.settle()
    assert scene.task(TASK).owner == owner
    assert scene.task(TASK).standbys == (first,)


def test_what_a_drained_owner_ran_stands_by_there_as_long_as_nobody_else_can() -> None:
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1)
    for name in ("a", "b"):
        scene.join(name)
    scene.settle()
    owner = scene.task(TASK).owner
    assert owner is not None
    scene.do(DrainRequest(owner))
    scene.settle()
    assert scene.task(TASK).owner != owner
    assert scene.task(TASK).standbys == (owner,)


def test_when_all_drain_a_ready_warmup_stays_ready() -> None:
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=100)
    scene.join("a")
    scene.settle()
    scene.join("b")
    (task,) = scene.held("b", Role.WARMUP)
    scene.do(PauseRequest(PauseScope.ALL))
    scene.beat("b", {task: copy("warmup", 5)})
    for name in ("a", "b"):
        scene.do(DrainRequest(MemberId(name)))
    scene.do(ResumeRequest())
    scene.tick(1_000)
    assert scene.held("b", Role.WARMUP) == [task]
    scene.do(DrainReversal(MemberId("b")))
    scene.settle()
    assert scene.owners() == {"0_0": "b", "0_1": "b"}


def test_the_owner_that_gives_a_task_up_is_its_standby_at_no_cost() -> None:
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=100)
    for name in ("a", "b"):
        scene.join(name)
    scene.settle()
    owner, other = str(scene.task(TASK).owner), str(scene.task(TASK).standbys[0])
    scene.do(PinRequest(TASK, MemberId(other)))
    scene.settle()
    assert scene.owners() == {TASK: other}
    assert scene.task(TASK).standbys == (owner,)


def test_the_last_owner_keeps_its_copy_until_the_new_one_runs_and_no_longer() -> None:
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100)
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.do(PinRequest(TASK, MemberId("b")))
    scene.tick()
    scene.obey("b")
    scene.obey("a")
    scene.beat("b", {TASK: restoring(10)})
    assert scene.held("a", Role.STANDBY) == [TASK]
    scene.beat("b", {TASK: running()})
    assert scene.held("a", Role.STANDBY) == []


def test_while_nobody_is_ready_every_copy_with_any_state_stays() -> None:
    scene = trio(standbys=2, rebalance_batch_ms=1_000)
    owner = scene.task(TASK).owner
    first, second = scene.task(TASK).standbys
    assert owner is not None
    scene.change(num_standby_replicas=0)
    scene.beat(first, {TASK: copy("standby", 5_000)})
    scene.beat(second, {TASK: copy("standby", 9_000)})
    scene.do(Eviction(owner, dead=True))
    scene.tick(1_000)
    assert scene.owners() == {TASK: first}
    assert scene.task(TASK).target.standbys == ()
    scene.beat(first, {TASK: restoring(4_000)})
    assert scene.held(second, Role.STANDBY) == [TASK]
    scene.beat(first, {TASK: running()})
    assert scene.held(second, Role.STANDBY) == []


def test_a_copy_that_lost_its_state_is_no_asset() -> None:
    scene = trio(standbys=2, rebalance_batch_ms=1_000)
    owner = scene.task(TASK).owner
    first, second = scene.task(TASK).standbys
    assert owner is not None
    scene.change(num_standby_replicas=0)
    scene.beat(first, {TASK: copy("standby", 5_000)})
    scene.beat(second, {TASK: copy("standby", None, lost=True)})
    scene.do(Eviction(owner, dead=True))
    scene.tick(1_000)
    scene.beat(first, {TASK: restoring(5_000)})
    assert scene.held(second, Role.STANDBY) == []


def test_the_target_behind_an_interim_owner_warms_up_within_the_budget() -> None:
    relay = Relay(topology(12), num_standby_replicas=1, initial_rebalance_delay_ms=3_000)
    relay.join("a", "b", "c", "d")
    relay.play()
    relay.forget()
    before = relay.owners()
    own = {task for task, owner in before.items() if owner == "a"}
    relay.leave("a")
    relay.beats()
    assert None not in relay.owners().values()
    relay.play()
    assert set(moved(before, relay.owners())) == own
    assert set(relay.taken) <= own
    assert max(relay.taken.values(), default=0) <= 1
    assert relay.most_extra <= 2
    assert not relay.cold


def test_a_stateless_task_has_no_copies() -> None:
    scene = Scene()
    scene.declare(topology(0, stateless=3), num_standby_replicas=2)
    for name in ("a", "b", "c"):
        scene.join(name)
    scene.settle()
    for name in ("a", "b", "c"):
        assert scene.held(name, Role.STANDBY) == scene.held(name, Role.WARMUP) == []


def test_a_warmup_whose_move_is_no_longer_needed_is_dropped() -> None:
    relay = Relay(topology(4))
    relay.step = COLD_LAG // 10
    relay.join("a")
    relay.play()
    relay.join("b")
    relay.round()
    warming = relay.scene.held("b", Role.WARMUP)
    assert warming
    relay.scene.do(DrainRequest(MemberId("b")))
    relay.count()
    relay.beats()
    assert relay.scene.held("b", Role.WARMUP) == []
    assert relay.actives() == {"a": 4, "b": 0}
    assert not relay.taken


def test_a_standby_on_the_member_that_becomes_the_target_warms_for_nothing_extra() -> None:
    scene = trio()
    (standby,) = scene.task(TASK).standbys
    warmups = [grant for one in scene.group.members.values() for grant in one.assignment.values()]
    assert all(grant.role is not Role.WARMUP for grant in warmups)
    scene.do(PinRequest(TASK, standby))
    scene.tick()
    assert scene.task(TASK).handover.next_owner == standby


def test_the_place_of_an_instance_that_restarts_is_not_filled_by_another_standby() -> None:
    relay = Relay(topology(3), num_standby_replicas=1, initial_rebalance_delay_ms=3_000)
    for name in ("a", "b", "c"):
        relay.join(name, instance_id=f"i-{name}")
    relay.play()
    relay.forget()
    relay.scene.ok(Leave(MemberId("b"), restart=True), object)
    relay.count()
    for _ in range(5):
        relay.round()
    assert relay.begun == []


def test_an_owner_that_was_still_restoring_is_as_good_as_its_lag() -> None:
    """After a takeover from such an owner, its copy does not stand in for a ready standby."""
    scene = trio(standbys=1, rebalance_batch_ms=1_000)
    first = scene.task(TASK).owner
    (guard,) = scene.task(TASK).standbys
    third = others(scene, first, guard)
    assert first is not None
    # The task restores on the guard, whose state was lost; the third has a copy, and the target is elsewhere again.
    scene.do(PinRequest(TASK, MemberId(third)))
    scene.tick(1_000)
    scene.beat(third, {TASK: copy("warmup", 50_000)})
    scene.beat(guard, {TASK: copy("standby", 9_000)})
    scene.do(Eviction(first, dead=True))
    scene.tick(1_000)
    assert scene.owners() == {TASK: guard}
    scene.beat(guard, {TASK: restoring(8_000)})
    scene.beat(third, {TASK: copy("warmup", 0)})
    assert scene.task(TASK).handover.next_owner == third
    kept = scene.member(guard).assignment.get(TASK)
    assert kept is not None
    assert kept.role is Role.STANDBY
    assert not scene.task(TASK).warmups or scene.task(TASK).warmups == (third,)


def test_an_owner_that_ran_stands_by_as_ready_until_it_says_otherwise() -> None:
    """No other copy is kept beside the last owner's beyond the wanted number."""
    scene = trio(standbys=1)
    owner = str(scene.task(TASK).owner)
    (guard,) = scene.task(TASK).standbys
    third = others(scene, owner, guard)
    scene.do(PinRequest(TASK, MemberId(third)))
    scene.settle()
    assert scene.owners() == {TASK: third}
    assert len(scene.task(TASK).standbys) == 1


def test_a_copy_that_nobody_can_read_stays_while_the_owner_has_lost_its_state() -> None:
    """The copy may turn out to be all that is left of the task."""
    scene = trio(1)
    owner = scene.task(TASK).owner
    (standby,) = scene.task(TASK).standbys
    scene.beat(standby, {TASK: copy("standby", None)})
    assert owner is not None
    scene.beat(owner, {TASK: running(lost=True)})
    scene.change(num_standby_replicas=0)
    scene.tick(1_000)
    assert scene.task(TASK).target.standbys == ()
    assert scene.task(TASK).owner == owner
    assert scene.task(TASK).standbys == (standby,)
    scene.beat(standby, {TASK: copy("standby", 30)})
    assert scene.task(TASK).handover.next_owner == standby


def test_a_standby_that_is_wanted_stays_although_a_warmup_stalled_on_its_member_lately() -> None:
    scene = trio()
    (holder,) = scene.task("0_0").standbys
    scene.group = evolve(scene.group, [WarmupStalled(TASK, holder, scene.now_ms + 60_000)])
    assert plan_task(scene.view(), scene.task("0_0")).copies == {holder: Role.STANDBY}
