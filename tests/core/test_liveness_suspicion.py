"""Suspicion and storms: who is taken for dead early, and when nobody is."""

from collections import Counter

import pytest
from tests.core.scene import Scene, topology
from tests.core.scenes import reasons, running_scene

from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    Eviction,
    Heartbeat,
    Join,
    Leave,
    PinRequest,
    PollBroken,
    PollOpened,
    ResumeRequest,
    Started,
)
from batonpass.core.state.model import Group, Loss, OnLeaseLost, Role
from batonpass.core.state.reasons import Held
from batonpass.core.state.records import MemberSuspected, RebalanceScheduled, StormBegan, StormEnded
from batonpass.core.state.soft import Soft
from batonpass.explain.group import explain_group

M1, M2, M3 = MemberId("m1"), MemberId("m2"), MemberId("m3")


def test_a_broken_poll_without_a_word_lets_ready_copies_take_over() -> None:
    """The long-poll of a killed process breaks."""
    scene = running_scene(num_standby_replicas=1)
    scene.obey()
    mine = scene.held("m1", Role.ACTIVE)
    scene.do(PollBroken(M1))
    scene.wait(1_999)
    assert scene.held("m1", Role.ACTIVE) == mine
    scene.wait(1)
    assert scene.member("m1").suspected
    assert set(scene.owners().values()) == {"m2"}
    assert all(scene.task(task).token > 1 for task in mine)


def test_a_suspect_that_lives_is_told_so_in_its_next_assignment() -> None:
    scene = running_scene(num_standby_replicas=1)
    epoch = scene.member("m1").epoch
    scene.do(PollBroken(M1))
    scene.wait(2_000)
    reply = scene.beat("m1", epoch=epoch)
    assert not scene.member("m1").suspected
    assert reply.member_epoch > epoch  # type: ignore[union-attr]
    assert Role.ACTIVE not in {grant.role for grant in reply.assignment.values()}  # type: ignore[union-attr]


@pytest.mark.parametrize("word", [Heartbeat(M1, 10_000, 99), PollOpened(M1), Join(M1)], ids=["beat", "poll", "join"])
def test_any_request_dispels_the_suspicion_in_time(word: Heartbeat | PollOpened | Join) -> None:
    scene = running_scene(num_standby_replicas=1)
    if isinstance(word, Heartbeat):
        word = Heartbeat(M1, 10_000, scene.member("m1").epoch)
    scene.do(PollBroken(M1))
    scene.wait(1_000)
    scene.do(word)
    scene.wait(10_000)
    assert not scene.member("m1").suspected
    assert scene.held("m1", Role.ACTIVE)


def test_a_new_poll_clears_a_suspicion_too() -> None:
    scene = running_scene(num_standby_replicas=1)
    heard_ms = scene.soft.members[M1].heard_ms
    scene.do(PollBroken(M1))
    scene.wait(2_000)
    scene.do(PollOpened(M1))
    assert not scene.member("m1").suspected
    assert scene.soft.members[M1].heard_ms == heard_ms
    scene.do(PollOpened(MemberId("nobody")))


@pytest.mark.parametrize("word", [None, PollOpened(M2)])
def test_a_suspicion_that_comes_and_goes_places_nothing(word: PollOpened | None) -> None:
    """Without a ready copy nothing moves, and the target is the same before and after."""
    scene = Scene()
    scene.declare(topology(4), suspect_timeout_ms=1_000)
    for name in ("m1", "m2"):
        scene.join(name, on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle()
    before = len(scene.log)
    for _ in range(20):
        scene.do(PollBroken(M2))
        scene.wait(1_500)
        if word is not None:
            scene.do(word)
        scene.obey()
        scene.wait(1_500)
    kinds = Counter(type(record).__name__ for record in scene.log[before:])
    assert (kinds["MemberSuspected"], kinds["SuspicionCleared"]) == (20, 20)
    assert kinds["RebalanceScheduled"] == kinds["TargetPlaced"] == 0


def test_a_coordinator_that_had_not_heard_a_suspected_member_places_the_group_anew() -> None:
    """It does not know whether the target leaves the member out."""
    scene = Scene()
    scene.declare(topology(4), suspect_timeout_ms=1_000)
    for name in ("m1", "m2"):
        scene.join(name, on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle()
    scene.do(PollBroken(M2))
    scene.wait(1_500)
    assert scene.member("m2").suspected
    scene.soft = Soft()
    scene.do(Started())
    scene.do(PollOpened(M2))
    assert [record.trigger for record in scene.of(RebalanceScheduled)] == ["suspicion-cleared"]


def test_only_members_that_fence_their_outputs_are_suspected() -> None:
    """A member that stops when its lease is lost may still write until then."""
    scene = running_scene(num_standby_replicas=1)
    scene.do(PollBroken(M2))
    scene.wait(10_000)
    assert not scene.member("m2").suspected


def test_suspicion_can_be_turned_off() -> None:
    scene = running_scene(num_standby_replicas=1, suspect_timeout_ms=0)
    scene.do(PollBroken(M1))
    scene.wait(10_000)
    assert not scene.member("m1").suspected


def test_nobody_is_suspected_after_our_own_start() -> None:
    """When the coordinator restarts, all polls break."""
    scene = running_scene(num_standby_replicas=1)
    scene.soft = Soft()
    scene.do(Started())
    scene.do(PollBroken(M1))
    scene.obey()
    scene.do(PollBroken(M1))
    scene.wait(10_000)
    assert not scene.of(MemberSuspected)
    assert not scene.member("m1").suspected


def test_a_broken_poll_of_somebody_who_is_gone_is_nothing() -> None:
    scene = Scene()
    scene.declare(num_standby_replicas=1)
    scene.join("m1", on_lease_lost=OnLeaseLost.CONTINUE, instance_id=InstanceId("i1"))
    scene.join("m2")
    scene.settle()
    scene.do(PollBroken(M3))
    scene.do(PollBroken(M1))
    scene.do(Leave(M1, restart=True))
    scene.wait(10_000)
    assert not scene.member("m1").suspected
    scene.do(PollBroken(M1))
    scene.wait(10_000)
    assert not scene.member("m1").suspected


def test_a_suspects_unready_copies_wait_for_its_lease() -> None:
    scene = running_scene()
    mine = scene.held("m1", Role.ACTIVE)
    scene.do(PollBroken(M1))
    scene.wait(5_000)
    assert scene.member("m1").suspected
    assert scene.held("m1", Role.ACTIVE) == mine


def crowd(**config: object) -> Scene:
    """Return a settled scene of five members with a standby of every task."""
    return running_scene(5, 10, num_standby_replicas=1, max_warmup_replicas=20, max_warmups_per_member=20, **config)


def lose(scene: Scene, *names: str) -> None:
    """Let these members fall silent together and expire, while the others heartbeat."""
    scene.obey()
    for _ in range(15):
        scene.wait(3_000)
        for name in sorted(scene.group.members):
            if name not in names:
                scene.obey(name)
    scene.wait(0)
    assert not set(names) & set(scene.group.members)


def test_a_storm_stops_cold_takeovers_but_not_ready_ones() -> None:
    scene = crowd()
    lose(scene, "m1", "m2", "m3")
    assert scene.group.storm_since_ms is not None
    orphans = {task for task, owner in scene.owners().items() if owner is None}
    assert orphans
    assert len(orphans) < 10
    scene.settle(60)
    assert {task for task, owner in scene.owners().items() if owner is None} == orphans
    scene.tick(1_000)
    assert Held.STORM in reasons(scene)


def test_a_loss_of_no_more_than_max_lost_share_is_no_storm() -> None:
    scene = crowd(max_lost_share=0.6)
    lose(scene, "m1", "m2", "m3")
    assert scene.group.storm_since_ms is None
    assert None not in scene.owners().values()


def test_losses_one_after_the_other_add_up_within_a_session_timeout() -> None:
    scene = crowd()
    scene.obey()
    for silent in ("m1", "m2", "m3"):
        scene.wait(1_000)
        for name in sorted(scene.group.members):
            if name > silent:
                scene.obey(name)
    for _ in range(16):
        scene.wait(3_000)
        scene.obey("m4", "m5")
    assert scene.group.storm_since_ms is not None


def test_losses_far_apart_are_no_storm() -> None:
    scene = crowd()
    for name in ("m1", "m2", "m3"):
        lose(scene, name)
        for _ in range(20):
            scene.wait(3_000)
            scene.obey()
    assert scene.group.storm_since_ms is None


def test_a_storm_ends_when_the_members_return() -> None:
    scene = crowd()
    lose(scene, "m1", "m2", "m3")
    scene.join("m6")
    assert scene.of(StormEnded)
    scene.settle(60)
    assert None not in scene.owners().values()


def test_one_that_returns_of_many_that_are_lost_does_not_end_a_storm() -> None:
    scene = crowd()
    lose(scene, "m1", "m2", "m3", "m4")
    scene.join("m6")
    assert scene.group.storm_since_ms is not None
    scene.join("m7")
    assert scene.group.storm_since_ms is None


def test_a_storm_ends_by_an_operators_word() -> None:
    scene = crowd()
    lose(scene, "m1", "m2", "m3")
    scene.do(ResumeRequest())
    assert scene.group.storm_since_ms is None
    assert scene.group.losses == ()
    assert None not in scene.owners().values()


@pytest.mark.parametrize("grace_ms", [60_000, 1_000])
def test_a_storm_ends_by_itself_once_nobody_has_been_lost_for_a_while(grace_ms: int) -> None:
    """The members that are left are well, so whoever has gone does not come back: the tasks start cold."""
    scene = crowd(rejoin_grace_ms=grace_ms)
    lose(scene, "m1", "m2", "m3")
    scene.settle(60)
    lost_ms = max(loss.at_ms for loss in scene.group.losses)
    over_ms = lost_ms + max(grace_ms, scene.group.config.session_timeout_ms)
    said = explain_group(scene.view(), limit=9)
    waits = [wait for one in said.waiting for wait in one.waits if wait.until_ms is not None]
    assert over_ms in [wait.until_ms for wait in waits]
    while scene.now_ms < over_ms - 1_000:
        scene.wait(1_000)
        scene.obey()
        assert scene.group.storm_since_ms is not None
    scene.wait(over_ms - scene.now_ms)
    assert scene.group.storm_since_ms is None
    scene.settle(60)
    assert None not in scene.owners().values()


def test_whoever_is_lost_later_makes_a_storm_last_longer() -> None:
    losses = (Loss(M1, 500), Loss(M2, 9_000))
    group = Group(GroupId("g"), storm_since_ms=1_000, losses=losses)
    assert group.storm_over_ms == 9_000 + group.config.rejoin_grace_ms


def test_a_storm_goes_on_while_a_member_that_is_left_is_silent() -> None:
    scene = crowd(rejoin_grace_ms=60_000)
    lose(scene, "m1", "m2", "m3")
    for _ in range(20):
        scene.wait(2_500)
        scene.obey()
    for _ in range(14):
        scene.wait(3_000)
        scene.obey("m4")
    assert scene.group.storm_since_ms is not None
    said = explain_group(scene.view(), limit=9)
    storm = next(one for one in (said.health.worst, *said.health.others) if one.what == "storm")
    assert (storm.until_ms, storm.until) == (None, "when all members are heard")
    scene.obey()
    scene.wait(3_000)
    assert scene.group.storm_since_ms is None


def test_a_storm_after_a_start_of_the_coordinator_ends_once_its_members_may_be_judged() -> None:
    scene = crowd(rejoin_grace_ms=60_000)
    lose(scene, "m1", "m2", "m3")
    scene.now_ms += 600_000
    scene.soft = Soft()
    scene.do(Started())
    for _ in range(14):
        scene.wait(3_000)
        scene.obey()
    assert scene.group.storm_since_ms is not None
    scene.wait(3_000)
    assert scene.group.storm_since_ms is None


def test_who_joins_long_after_all_were_lost_ends_the_storm() -> None:
    """A group that was stopped to the last member, and comes back with one of five, has every task run."""
    scene = crowd()
    lose(scene, "m1", "m2", "m3", "m4", "m5")
    scene.wait(600_000)
    assert scene.group.storm_since_ms is not None
    scene.join("m6")
    assert [record for record in scene.log if isinstance(record, StormEnded)]
    scene.settle(60)
    assert set(scene.owners().values()) == {"m6"}


def test_a_storm_suspects_nobody() -> None:
    """The member may be cut off like those that are lost."""
    scene = crowd()
    scene.join("m0", on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle(60)
    lose(scene, "m2", "m3", "m4", "m5")
    assert scene.group.storm_since_ms is not None
    scene.do(PollBroken(MemberId("m0")))
    scene.wait(5_000)
    assert not scene.member("m0").suspected


def test_leaving_is_no_loss() -> None:
    scene = crowd()
    for name in ("m1", "m2", "m3"):
        scene.do(Leave(MemberId(name)))
    scene.do(Eviction(MemberId("m4")))
    assert not scene.group.losses
    assert not [record for record in scene.log if isinstance(record, StormBegan)]


def test_a_task_without_state_waits_if_all_who_could_have_it_are_suspected() -> None:
    scene = Scene()
    scene.declare(topology(0, stateless=2))
    for name in ("m1", "m2"):
        scene.join(name, on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle()
    (task,) = scene.held("m1", Role.ACTIVE)
    for member in (M1, M2):
        scene.do(PollBroken(member))
    scene.tick(2_000)
    assert [scene.member(name).suspected for name in ("m1", "m2")] == [True, True]
    scene.do(PinRequest(TaskId(task), M2))
    assert scene.owners()[task] == "m1"


def test_who_handed_everything_over_and_is_killed_then_is_no_loss() -> None:
    """A host may be taken away as soon as it has handed over: nothing is missing then, and nothing has to wait."""
    scene = crowd()
    for name in ("m1", "m2", "m3"):
        scene.do(DrainRequest(MemberId(name)))
    scene.settle(60)
    lose(scene, "m1", "m2", "m3")
    assert scene.group.losses == ()
    lose(scene, "m4")
    assert scene.group.storm_since_ms is None
    assert set(scene.owners().values()) == {"m5"}


def test_spare_members_that_vanish_are_no_loss_and_count_among_those_that_are_left() -> None:
    scene = crowd()
    spare = [f"s{n}" for n in range(9)]
    for name in spare:
        scene.join(name, max_tasks=0)
    scene.settle(60)
    lose(scene, *spare[:8])
    assert scene.group.losses == ()
    lose(scene, "m1", "m2", "m3")
    assert scene.group.storm_since_ms is None
