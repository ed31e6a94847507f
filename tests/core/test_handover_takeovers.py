"""Who gets a task that nobody runs any more: takeovers, failovers, cold starts, and who waits."""

import pytest
from tests.core.scene import Scene, copy, failed, restoring, running, topology
from tests.core.scenes import TASK, guarded, pair, reasons

from batonpass.core.state.ids import InstanceId, MemberId
from batonpass.core.state.inputs import (
    DrainRequest,
    Eviction,
    Leave,
    PauseRequest,
    PinRequest,
    PollBroken,
    ReleaseRequest,
    ResumeRequest,
    Started,
    Tick,
)
from batonpass.core.state.model import ActiveState, OnLeaseLost, PauseScope, Role
from batonpass.core.state.reasons import Held, Why
from batonpass.core.state.soft import Soft


@pytest.mark.parametrize(("state", "takes"), [({"0_0": 100}, "b"), ({"0_0": 5_000}, "b")], ids=["ready", "behind"])
def test_the_most_caught_up_live_copy_takes_over_from_an_owner_that_is_gone(state: dict[str, int], takes: str) -> None:
    """State on disk ranks by its lag, whether it is caught up or the best that there is."""
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100, rebalance_batch_ms=50)
    scene.join("a")
    scene.obey()
    scene.tick(100)
    scene.join(takes, {task: copy("none", lag) for task, lag in state.items()})
    scene.join("c", {TASK: copy("none", 9_000)})
    scene.tick(100)
    scene.do(Leave(MemberId("a")))
    scene.tick(100)
    assert scene.owners() == {TASK: takes}
    assert scene.task(TASK).ready_grant is (state[TASK] <= 100)


def test_with_no_copy_anywhere_the_target_restores_cold_and_it_is_counted_as_such() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a")
    assert scene.owners() == {TASK: "a"}
    assert Why.COLD_START in reasons(scene)


def test_a_draining_copy_takes_over_only_where_no_other_is_caught_up() -> None:
    for standbys in (2, 1):
        scene = guarded(members="abc"[: standbys + 1], num_standby_replicas=standbys, rebalance_batch_ms=1_000)
        owner, guards = scene.task(TASK).owner, scene.task(TASK).standbys
        assert owner is not None
        scene.do(DrainRequest(guards[0]))
        scene.do(Eviction(owner, dead=True))
        assert scene.owners() == {TASK: guards[-1]}


def test_a_ready_copy_takes_over_from_an_owner_that_restores() -> None:
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=100)
    scene.join("a")
    scene.beat("a", {TASK: restoring(9_000)})
    scene.join("b")
    scene.obey("b", lag=5_000)
    assert scene.task(TASK).owner == "a"
    scene.obey("b", lag=10)
    assert scene.task(TASK).handover.next_owner == "b"
    assert Why.FAILOVER in reasons(scene)
    scene.beat("a", {TASK: copy("standby", 9_000)})
    assert scene.owners() == {TASK: "b"}


def test_an_owner_that_is_itself_ready_is_left_to_finish() -> None:
    """An owner within the acceptable lag runs in a moment."""
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=100)
    scene.join("a")
    scene.beat("a", {TASK: restoring(90)})
    scene.join("b")
    scene.obey("b", lag=0)
    assert scene.task(TASK).owner == "a"
    assert scene.task(TASK).handover.next_owner is None


def test_a_failed_active_goes_to_a_ready_copy_and_stays_where_there_is_none() -> None:
    scene = guarded()
    owner, other = ("a", "b") if scene.task(TASK).owner == "a" else ("b", "a")
    scene.beat(other, {TASK: copy("standby", 9_000)})
    scene.beat(owner, {TASK: failed()})
    assert scene.task(TASK).owner == owner
    scene.beat(other, {TASK: copy("standby", 0)})
    assert scene.task(TASK).handover.next_owner == other


def test_an_active_that_restores_without_progress_goes_to_a_ready_copy() -> None:
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=100, warmup_stall_timeout_ms=5_000)
    scene.join("a")
    scene.beat("a", {TASK: restoring(90)})
    scene.join("b")
    scene.obey("b")
    assert scene.task(TASK).handover.next_owner is None
    for _ in range(6):
        scene.tick(1_000)
        scene.beat("a", {TASK: restoring(90)})
        scene.obey("b")
    assert scene.task(TASK).handover.next_owner == "b"


def test_a_lost_active_goes_to_the_ready_standby_once_its_holder_confirms() -> None:
    scene = guarded()
    owner, other = ("a", "b") if scene.task(TASK).owner == "a" else ("b", "a")
    scene.beat(owner, {TASK: restoring(lost=True)})
    assert scene.task(TASK).state is ActiveState.LOST or scene.task(TASK).owner is None
    assert scene.task(TASK).handover.next_owner == other
    assert scene.task(TASK).handover.unreleased[0].member_id == owner
    scene.beat(owner, {})
    assert scene.owners() == {TASK: other}


def test_a_lost_active_goes_to_a_copy_that_is_behind_before_its_holder_starts_over() -> None:
    """The holder of lost state is the last choice: a member with any state is nearer."""
    scene = guarded()
    owner, other = ("a", "b") if scene.task(TASK).owner == "a" else ("b", "a")
    scene.beat(other, {TASK: copy("standby", 9_000)})
    scene.beat(owner, {TASK: restoring(lost=True)})
    scene.beat(owner, {})
    assert scene.owners() == {TASK: other}
    assert not scene.task(TASK).ready_grant


def test_a_lost_active_without_any_copy_goes_to_its_target() -> None:
    scene = pair()
    scene.do(PinRequest(TASK, MemberId("b")))
    scene.beat("b", {})
    scene.do(PauseRequest(PauseScope.ALL))
    scene.beat("a", {TASK: restoring(lost=True)})
    assert scene.task(TASK).handover.next_owner == "b"
    assert Why.LOST_STATE in reasons(scene)


def test_a_lone_member_that_lost_its_state_restores_it() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a")
    scene.obey()
    scene.beat("a", {TASK: restoring(lost=True)})
    scene.tick(1_000)
    assert scene.owners() == {TASK: "a"}


def continuing(**config: object) -> Scene:
    """Return a group with standbys whose members fence their outputs and go on past their lease."""
    scene = Scene()
    scene.declare(topology(1), **({"acceptable_recovery_lag": 100, "num_standby_replicas": 1} | config))
    scene.join("a", on_lease_lost=OnLeaseLost.CONTINUE)
    scene.join("b", on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle()
    return scene


def test_a_ready_copy_takes_over_from_a_suspected_owner_at_once() -> None:
    scene = continuing()
    owner, other = ("a", "b") if scene.task(TASK).owner == "a" else ("b", "a")
    scene.do(PollBroken(MemberId(owner)))
    scene.tick(2_000)
    assert scene.owners() == {TASK: other}
    assert Why.TAKEOVER in reasons(scene) or Why.FAILOVER in reasons(scene) or Why.HANDOVER_UNDER_WAY in reasons(scene)


def test_nobody_who_is_behind_takes_over_from_a_suspected_owner() -> None:
    """A suspected owner may be alive: only a ready copy is worth the risk."""
    scene = continuing()
    owner, other = ("a", "b") if scene.task(TASK).owner == "a" else ("b", "a")
    scene.beat(other, {TASK: copy("standby", 9_000)})
    scene.do(PollBroken(MemberId(owner)))
    scene.tick(2_000)
    assert scene.member(owner).suspected
    assert scene.owners() == {TASK: owner}


def test_a_suspected_member_takes_nothing_over() -> None:
    scene = continuing(num_standby_replicas=1)
    owner, other = ("a", "b") if scene.task(TASK).owner == "a" else ("b", "a")
    scene.do(PollBroken(MemberId(other)))
    scene.tick(2_000)
    assert scene.member(other).suspected
    scene.do(Eviction(MemberId(owner), dead=True))
    assert scene.owners() == {TASK: None}
    scene.obey(other)
    assert scene.owners() == {TASK: other}


def test_a_copy_from_disk_that_is_not_tailed_yet_takes_nothing_from_a_suspected_owner() -> None:
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=100)
    scene.join("a", on_lease_lost=OnLeaseLost.CONTINUE)
    scene.obey()
    scene.join("b", {TASK: copy("none", 0)})
    assert scene.held("b", Role.STANDBY) == [TASK]
    scene.do(PollBroken(MemberId("a")))
    scene.tick(2_000)
    assert scene.owners() == {TASK: "a"}
    scene.obey("b")
    assert scene.owners() == {TASK: "b"}


def test_an_unreadable_target_is_passed_over_for_the_least_loaded_member() -> None:
    scene = guarded(members="abc")
    owner = scene.task(TASK).owner
    (blind,) = scene.task(TASK).standbys
    assert owner is not None
    (third,) = {MemberId("a"), MemberId("b"), MemberId("c")} - {owner, blind}
    scene.beat(blind, {TASK: copy("standby", None)})
    scene.do(PinRequest(TASK, blind))
    scene.do(Eviction(owner, dead=True))
    assert scene.task(TASK).target.owner == blind
    assert scene.owners() == {TASK: third}


def test_a_storm_holds_cold_takeovers_and_not_ready_ones() -> None:
    scene = Scene()
    scene.declare(topology(4), num_standby_replicas=1, max_lost_share=0.3, acceptable_recovery_lag=100)
    for name in ("a", "b", "c", "d"):
        scene.join(name)
    scene.settle()
    lost = {"a", "b"}
    before = dict(scene.owners())
    guards = {task: set(map(str, scene.task(task).standbys)) for task in before}
    for _ in range(60):
        scene.tick(1_000)
        scene.obey("c", "d")
    assert scene.group.storm_since_ms is not None
    for task, owner in scene.owners().items():
        if before[task] in lost and guards[task] <= lost:
            assert owner is None
        else:
            assert owner in ("c", "d")
    scene.do(ResumeRequest())
    scene.settle()
    assert set(scene.owners().values()) == {"c", "d"}


def test_an_unknown_copy_is_waited_for_after_a_start() -> None:
    """The copy may be ready, which only its member can say."""
    scene = guarded(members="ab")
    owner, other = ("a", "b") if scene.task(TASK).owner == "a" else ("b", "a")
    scene.soft = Soft()
    scene.do(Started())
    scene.do(Eviction(MemberId(owner), dead=True))
    assert scene.owners() == {TASK: None}
    scene.obey(other)
    assert scene.owners() == {TASK: other}
    assert scene.task(TASK).ready_grant


def test_a_copy_that_its_member_cannot_read_is_passed_over_for_a_member_without() -> None:
    scene = guarded(members="abc")
    owner = scene.task(TASK).owner
    (blind,) = scene.task(TASK).standbys
    assert owner is not None
    (third,) = {MemberId("a"), MemberId("b"), MemberId("c")} - {owner, blind}
    scene.beat(blind, {TASK: copy("standby", None)})
    scene.do(Eviction(owner, dead=True))
    scene.tick()
    assert scene.owners() == {TASK: third}
    assert TASK in scene.held(blind, Role.STANDBY)


def test_where_only_an_unreadable_copy_is_left_it_is_waited_for_and_then_restored() -> None:
    scene = guarded(warmup_stall_timeout_ms=5_000)
    owner, other = ("a", "b") if scene.task(TASK).owner == "a" else ("b", "a")
    scene.beat(other, {TASK: copy("standby", None)})
    scene.do(Eviction(MemberId(owner), dead=True))
    assert scene.owners() == {TASK: None}
    for _ in range(6):
        scene.tick(1_000)
        if scene.owners()[TASK] is None:
            scene.beat(other, {TASK: copy("standby", None)})
    assert scene.owners() == {TASK: other}


def test_a_restarting_instance_is_waited_for_where_there_is_no_ready_copy() -> None:
    scene = Scene()
    scene.declare(topology(1), rejoin_grace_ms=60_000)
    scene.join("a", instance_id=InstanceId("i"))
    scene.obey()
    scene.do(Leave(MemberId("a"), restart=True))
    assert scene.owners() == {TASK: None}
    assert Held.REJOIN_GRACE in reasons(scene)
    scene.join("b")
    assert scene.owners() == {TASK: None}
    scene.join("a2", {TASK: copy("none", 5)}, instance_id=InstanceId("i"))
    assert scene.owners() == {TASK: "a2"}


def test_a_task_without_a_target_waits_with_the_reason() -> None:
    scene = Scene()
    scene.declare(topology(1), initial_rebalance_delay_ms=3_000)
    scene.join("a")
    assert scene.owners() == {TASK: None}
    scene.tick(1_000)
    assert Held.INITIAL_DELAY in reasons(scene)
    scene.tick(2_000)
    assert scene.owners() == {TASK: "a"}


def test_a_task_that_nobody_has_room_for_waits() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a", max_tasks=1)
    scene.obey()
    assert scene.owners() == {"0_0": "a", "0_1": None}
    scene.tick(1_000)
    assert Held.NO_CAPACITY in reasons(scene)


def test_a_ready_copy_on_disk_takes_over_only_where_there_is_room() -> None:
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=100)
    scene.join("a", max_tasks=1)
    scene.join("b")
    scene.settle()
    (other,) = scene.held("b", Role.ACTIVE)
    (own,) = scene.held("a", Role.ACTIVE)
    scene.beat("a", {own: running(), other: copy("none", 0)})
    scene.do(Eviction(MemberId("b"), dead=True))
    scene.tick()
    assert scene.owners() == {own: "a", other: None}


def test_a_parked_task_is_taken_from_its_owner_and_given_to_nobody() -> None:
    scene = Scene()
    scene.declare(topology(1))
    for number in range(3):
        scene.join(f"m{number}")
        scene.beat(f"m{number}", {TASK: failed("boom")})
        if number < 2:
            scene.do(Leave(MemberId(f"m{number}")))
    assert scene.task(TASK).marks.parked
    assert scene.task(TASK).owner is None
    scene.beat("m2", {})
    scene.tick(1_000)
    assert scene.owners() == {TASK: None}
    scene.do(ReleaseRequest(TASK))
    scene.do(Tick())
    assert scene.owners() == {TASK: "m2"}


def test_an_instance_that_comes_back_ready_gets_back_what_is_still_being_restored() -> None:
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100)
    scene.join("a", instance_id=InstanceId("i"))
    scene.obey()
    scene.join("b")
    scene.do(Eviction(MemberId("a"), dead=True))
    scene.beat("b", {TASK: restoring(50_000)})
    assert scene.owners() == {TASK: "b"}
    scene.join("a2", {TASK: copy("none", 20)}, instance_id=InstanceId("i"))
    assert scene.task(TASK).handover.next_owner == "a2"
    scene.beat("b", {})
    assert scene.owners() == {TASK: "a2"}
