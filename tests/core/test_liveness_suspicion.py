"""Suspicion and storms: who is taken for dead early, and when nobody is."""

import pytest
from tests.core.scene import Scene, topology

from batonpass.core.ids import InstanceId, MemberId
from batonpass.core.inputs import (
    Eviction,
    Heartbeat,
    Join,
    Leave,
    PollBroken,
    PollOpened,
    ResumeRequest,
    Started,
)
from batonpass.core.model import OnLeaseLost, Role
from batonpass.core.reasons import Held
from batonpass.core.records import MemberSuspected, StormBegan, StormEnded
from batonpass.core.soft import Soft

M1, M2, M3 = MemberId("m1"), MemberId("m2"), MemberId("m3")


def running_scene(members: int = 2, partitions: int = 2, **config: object) -> Scene:
    """Return a settled scene of some members with stateful tasks."""
    scene = Scene()
    scene.declare(topology(partitions), **config)
    for number in range(1, members + 1):
        scene.join(f"m{number}", on_lease_lost=OnLeaseLost.CONTINUE if number == 1 else OnLeaseLost.STOP)
    scene.settle(60)
    return scene


def codes(scene: Scene) -> set[str]:
    """Return the reasons of the last decision."""
    assert scene.last is not None
    return {reason.code for reason in scene.last.reasons}


def guarded(**config: object) -> Scene:
    """Return a settled scene with a standby of every task, in which m1 fences its outputs and m2 does not."""
    return running_scene(2, 2, num_standby_replicas=1, **config)


def test_a_broken_poll_without_a_word_lets_ready_copies_take_over() -> None:
    """A killed process's long-poll breaks: unless it speaks, ready copies run its tasks after the suspect timeout."""
    scene = guarded()
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
    """A suspected member that speaks is a member as before; its assignment no longer has what others took over."""
    scene = guarded()
    epoch = scene.member("m1").epoch
    scene.do(PollBroken(M1))
    scene.wait(2_000)
    reply = scene.beat("m1", epoch=epoch)
    assert not scene.member("m1").suspected
    assert reply.member_epoch > epoch  # type: ignore[union-attr]
    assert Role.ACTIVE not in {grant.role for grant in reply.assignment.values()}  # type: ignore[union-attr]


@pytest.mark.parametrize("word", [Heartbeat(M1, 10_000, 99), PollOpened(M1), Join(M1)], ids=["beat", "poll", "join"])
def test_any_request_dispels_the_suspicion_in_time(word: Heartbeat | PollOpened | Join) -> None:
    """A heartbeat, a new long-poll or a repeated join within the suspect timeout shows that the member lives."""
    scene = guarded()
    if isinstance(word, Heartbeat):
        word = Heartbeat(M1, 10_000, scene.member("m1").epoch)
    scene.do(PollBroken(M1))
    scene.wait(1_000)
    scene.do(word)
    scene.wait(10_000)
    assert not scene.member("m1").suspected
    assert scene.held("m1", Role.ACTIVE)


def test_a_new_poll_clears_a_suspicion_too() -> None:
    """A suspected member that opens a poll is no suspect any more, without its lease being renewed by that."""
    scene = guarded()
    heard_ms = scene.soft.members[M1].heard_ms
    scene.do(PollBroken(M1))
    scene.wait(2_000)
    scene.do(PollOpened(M1))
    assert not scene.member("m1").suspected
    assert scene.soft.members[M1].heard_ms == heard_ms
    scene.do(PollOpened(MemberId("nobody")))


def test_only_members_that_fence_their_outputs_are_suspected() -> None:
    """A member that stops when its lease is lost may still write until then: a broken poll says nothing about it."""
    scene = guarded()
    scene.do(PollBroken(M2))
    scene.wait(10_000)
    assert not scene.member("m2").suspected


def test_suspicion_can_be_turned_off() -> None:
    """With ``suspect_timeout_ms`` 0 a broken poll is never a sign of death."""
    scene = guarded(suspect_timeout_ms=0)
    scene.do(PollBroken(M1))
    scene.wait(10_000)
    assert not scene.member("m1").suspected


def test_nobody_is_suspected_after_our_own_start() -> None:
    """When the coordinator itself was restarted, all polls break: that suspects nobody for a session timeout."""
    scene = guarded()
    scene.soft = Soft()
    scene.do(Started())
    scene.do(PollBroken(M1))
    scene.obey()
    scene.do(PollBroken(M1))
    scene.wait(10_000)
    assert not scene.of(MemberSuspected)
    assert not scene.member("m1").suspected


def test_a_broken_poll_of_somebody_who_is_gone_is_nothing() -> None:
    """A poll that breaks because its member left, or restarts, makes no suspect of anybody."""
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
    """What no ready copy can take over from a suspect stays with it: suspicion starts no cold restore."""
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
    """When most members vanish at once, what has a ready copy is taken over and what has none waits."""
    scene = crowd()
    lose(scene, "m1", "m2", "m3")
    assert scene.group.storm_since_ms is not None
    orphans = {task for task, owner in scene.owners().items() if owner is None}
    assert orphans
    assert len(orphans) < 10
    scene.settle(60)
    assert {task for task, owner in scene.owners().items() if owner is None} == orphans
    scene.tick(1_000)
    assert Held.STORM in codes(scene)


def test_a_loss_of_half_is_no_storm() -> None:
    """Only more than ``max_lost_share`` of the members is a storm; cold tasks are taken over otherwise."""
    scene = crowd(max_lost_share=0.6)
    lose(scene, "m1", "m2", "m3")
    assert scene.group.storm_since_ms is None
    assert None not in scene.owners().values()


def test_losses_one_after_the_other_add_up_within_a_session_timeout() -> None:
    """A storm counts everybody who vanished within one session timeout, not only those found by one look."""
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
    """Members lost one by one, more than a session timeout apart, are no storm."""
    scene = crowd()
    for name in ("m1", "m2", "m3"):
        lose(scene, name)
        for _ in range(20):
            scene.wait(3_000)
            scene.obey()
    assert scene.group.storm_since_ms is None


def test_a_storm_ends_when_the_members_return() -> None:
    """As soon as so many are back that the rest is no storm, the group goes on by itself."""
    scene = crowd()
    lose(scene, "m1", "m2", "m3")
    scene.join("m6")
    assert scene.of(StormEnded)
    scene.settle(60)
    assert None not in scene.owners().values()


def test_one_that_returns_of_many_that_are_lost_does_not_end_a_storm() -> None:
    """As long as those who are still away are too large a share, the storm goes on."""
    scene = crowd()
    lose(scene, "m1", "m2", "m3", "m4")
    scene.join("m6")
    assert scene.group.storm_since_ms is not None
    scene.join("m7")
    assert scene.group.storm_since_ms is None


def test_a_storm_ends_by_an_operators_word() -> None:
    """An operator ends a storm, and what was held back goes on with those who are left."""
    scene = crowd()
    lose(scene, "m1", "m2", "m3")
    scene.do(ResumeRequest())
    assert scene.group.storm_since_ms is None
    assert scene.group.losses == ()
    assert None not in scene.owners().values()


def test_a_storm_suspects_nobody() -> None:
    """While the storm guard is up, a broken poll lets nobody take over from a member that may be cut off."""
    scene = crowd()
    scene.join("m0", on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle(60)
    lose(scene, "m2", "m3", "m4", "m5")
    assert scene.group.storm_since_ms is not None
    scene.do(PollBroken(MemberId("m0")))
    scene.wait(5_000)
    assert not scene.member("m0").suspected


def test_leaving_is_no_loss() -> None:
    """Members that leave, are evicted or replaced do not make a storm, however many."""
    scene = crowd()
    for name in ("m1", "m2", "m3"):
        scene.do(Leave(MemberId(name)))
    scene.do(Eviction(MemberId("m4")))
    assert not scene.group.losses
    assert not [record for record in scene.log if isinstance(record, StormBegan)]
