"""What only time brings: expiry, suspicion, storms, slow members, stalls, and silences that were our own."""

import pytest
from tests.core.scene import Scene, copy, failed, restoring, running, topology

from batonpass.core.errors import Fenced, UnknownMember
from batonpass.core.ids import InstanceId, MemberId, TaskId
from batonpass.core.inputs import (
    DrainRequest,
    Eviction,
    Heartbeat,
    Join,
    Leave,
    PollBroken,
    PollOpened,
    ReleaseRequest,
    ResumeRequest,
    Started,
    StoreRecovered,
    Tick,
)
from batonpass.core.model import Cause, OnLeaseLost, Role
from batonpass.core.policy import Policy
from batonpass.core.reasons import Held
from batonpass.core.records import MemberGone, MemberSuspected, StormBegan, StormEnded, TaskParked, WarmupStalled
from batonpass.core.soft import Soft

M1, M2, M3 = MemberId("m1"), MemberId("m2"), MemberId("m3")
SESSION_MS = 45_000


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


def test_a_silent_member_expires_with_its_lease_and_not_before() -> None:
    """A member last heard a session timeout ago is gone and its tasks are free; a millisecond before it is not."""
    scene = running_scene()
    scene.obey("m2")
    scene.wait(SESSION_MS - 1_000)
    scene.obey("m1")
    scene.wait(999)
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(1)
    assert set(scene.group.members) == {"m1"}
    assert scene.group.gone[M2].cause is Cause.EXPIRED
    assert set(scene.owners().values()) == {"m1"}
    assert "expired" in codes(scene)


def test_every_heartbeat_renews_the_lease() -> None:
    """Late, doubled and stale heartbeats are heard too: whoever speaks at all does not expire."""
    scene = running_scene()
    for asked in (
        Heartbeat(M1, 0, scene.member("m1").epoch),
        Heartbeat(M1, 10_000, scene.member("m1").epoch, {}),
        Heartbeat(M1, 10_000, scene.member("m1").epoch),
        Heartbeat(M1, 10_001, 0),
        Join(M1),
    ):
        scene.wait(SESSION_MS - 1_000)
        scene.do(asked)
        scene.beat("m2")
        assert "m1" in scene.group.members, asked
    scene.wait(SESSION_MS)
    assert "m1" not in scene.group.members


def test_a_lowered_session_timeout_waits_until_the_member_has_echoed_it() -> None:
    """A member is judged by the largest timeout answered since the epoch it last echoed: a lower one counts later."""
    scene = running_scene()
    scene.change(session_timeout_ms=10_000)
    scene.beat("m1")
    scene.beat("m2")
    scene.wait(40_000)
    assert set(scene.group.members) == {"m1", "m2"}
    # A new picture, echoed: from now on the member is known to have seen the lower timeout.
    scene.join("m3")
    scene.settle()
    changed = [name for name in ("m1", "m2") if scene.soft.members[MemberId(name)].timeouts == ((2, 10_000),)]
    assert all(max(timeout for _, timeout in scene.soft.members[MemberId(n)].timeouts) for n in ("m1", "m2"))
    scene.wait(10_000)
    assert "m3" not in scene.group.members
    assert not set(changed) & set(scene.group.members)


def test_a_raised_session_timeout_counts_at_once() -> None:
    """A raised timeout may have been told on any channel, the long-poll's too, so the lease counts by it at once."""
    scene = running_scene(session_timeout_ms=10_000)
    scene.change(session_timeout_ms=30_000)
    heard_ms = scene.soft.members[M1].heard_ms
    scene.wait(heard_ms + 29_999 - scene.now_ms)
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(1)
    assert not scene.group.members


def test_nobody_is_judged_for_a_silence_that_was_our_own() -> None:
    """A look that comes much later than it was due expires nobody: it was the coordinator that was away (L5)."""
    scene = running_scene()
    scene.tick(10 * SESSION_MS)
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(SESSION_MS - 1)
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(1)
    assert not scene.group.members


def test_our_own_silence_is_noticed_by_whatever_comes_first() -> None:
    """Not only a tick: the first heartbeat after a long silence shows too that the coordinator was away."""
    scene = running_scene()
    scene.now_ms += 10 * SESSION_MS
    scene.beat("m2")
    scene.do(Tick())
    assert set(scene.group.members) == {"m1", "m2"}


def test_a_clock_that_goes_back_expires_nobody_and_stops_nothing() -> None:
    """When the clock goes back, leases count from then on, and whoever is silent still expires a timeout later."""
    scene = running_scene()
    scene.now_ms -= 500_000
    scene.do(Tick())
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(SESSION_MS - 1)
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(1)
    assert not scene.group.members


def test_a_clock_that_goes_back_after_a_start_judges_again() -> None:
    """The span in which nobody is judged after a start does not grow with a clock that goes back."""
    scene = running_scene()
    scene.do(Started())
    scene.now_ms -= 500_000
    scene.do(Tick())
    scene.wait(SESSION_MS)
    assert not scene.group.members


def test_after_a_start_nobody_is_judged_for_the_largest_session_timeout() -> None:
    """A started coordinator expires nobody for the largest timeout that anybody may have been answered (L3)."""
    scene = running_scene(session_timeout_ms=60_000)
    scene.change(session_timeout_ms=6_000, heartbeat_interval_ms=1_000)
    scene.soft = Soft()
    scene.now_ms += 1_000_000
    scene.do(Started())
    scene.beat("m1")
    scene.wait(59_999)
    assert set(scene.group.members) == {"m1", "m2"}
    scene.wait(1)
    assert not scene.group.members


def test_a_started_coordinator_asks_for_full_reports() -> None:
    """Until a member has reported everything, each answer asks for it; a heartbeat without tasks is no report."""
    scene = running_scene()
    scene.soft = Soft()
    scene.do(Started())
    assert scene.beat("m1").report == "full"  # type: ignore[union-attr]
    assert scene.beat("m1", {}).report is None  # type: ignore[union-attr]


def test_a_join_after_a_start_is_judged_like_everybody() -> None:
    """A member that joins while nobody is judged is given that time too."""
    scene = running_scene()
    scene.do(Started())
    scene.wait(10_000)
    scene.join("m3")
    scene.wait(SESSION_MS - 1)
    assert "m3" in scene.group.members
    scene.wait(1)
    assert "m3" not in scene.group.members


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


def test_a_suspect_that_lives_is_told_so_in_its_next_picture() -> None:
    """A suspected member that speaks is a member as before; its picture no longer has what others took over."""
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


def test_a_task_that_fails_on_three_members_is_parked() -> None:
    """A task that failed on three members in ten minutes is tried no more until an operator releases it."""
    scene = running_scene(4, 1, max_warmup_replicas=5)
    for count in range(1, 4):
        owner = scene.task("0_0").owner
        assert owner is not None
        scene.beat(owner, {"0_0": failed("poison pill")})
        assert scene.task("0_0").parked is (count == 3)
        if count < 3:
            scene.do(Eviction(MemberId(owner), dead=True))
            for name in sorted(scene.group.members):
                scene.obey(name)
    assert [record.members for record in scene.of(TaskParked)] == [("m1", "m2", "m3")]
    scene.beat("m3", {})
    assert scene.owners() == {"0_0": None}
    scene.tick(1_000)
    assert Held.PARKED in codes(scene)
    scene.do(ReleaseRequest(TaskId("0_0")))
    assert scene.task("0_0").failures == ()
    assert scene.task("0_0").owner is not None


def test_a_task_that_takes_its_members_down_is_parked() -> None:
    """A task that was running on three members whose leases expired within ten minutes is parked as well."""
    scene = running_scene(4, 1)
    for expected in ("m1", "m2", "m3"):
        assert scene.task("0_0").owner == expected
        scene.obey()
        others = [name for name in sorted(scene.group.members) if name != expected]
        for _ in range(15):
            scene.wait(3_000)
            scene.obey(*others)
        scene.obey()
    assert scene.task("0_0").parked
    assert scene.task("0_0").owner is None


def test_failures_long_ago_or_of_one_member_park_nothing() -> None:
    """Ten minutes forgive; and one member that fails again and again is one member."""
    scene = running_scene(1, 1)
    for _ in range(5):
        scene.beat("m1", {"0_0": failed()})
        scene.beat("m1", {"0_0": running()})
    assert len(scene.task("0_0").failures) >= 3
    assert not scene.task("0_0").parked
    scene = running_scene(4, 1)
    for name in ("m1", "m2", "m3"):
        assert scene.task("0_0").owner == name
        scene.beat(name, {"0_0": failed()})
        scene.do(Eviction(MemberId(name), dead=True))
        for _ in range(100):
            scene.now_ms += 3_000
            scene.obey()
            scene.tick()
    assert not scene.task("0_0").parked


def test_going_in_good_order_is_no_failure() -> None:
    """Leaving, restarting, being taken over or evicted while running a task does not count against the task."""
    scene = Scene()
    scene.declare(topology(1))
    scene.join("m1", instance_id=InstanceId("i"))
    scene.join("z")
    for number in range(2, 7):
        scene.settle()
        owner = scene.task("0_0").owner
        assert owner is not None
        scene.join(f"m{number}", instance_id=InstanceId("i"), takeover=True)
    scene.settle()
    scene.do(Leave(MemberId("m6")))
    scene.do(Eviction(MemberId("z"), dead=True))
    assert scene.task("0_0").failures == ()


def half_revoked() -> Scene:
    """Return a scene in which m1 was told to give up a task, which m2 is to have, and has not confirmed it."""
    scene = Scene()
    scene.declare(rebalance_timeout_ms=20_000)
    scene.join("m1")
    scene.settle()
    scene.join("m2")
    scene.obey("m2")
    assert scene.member("m1").revoking
    return scene


def test_a_revocation_not_confirmed_in_time_fences_the_member() -> None:
    """A member that heartbeats but does not give up what it was told is fenced after ``rebalance_timeout_ms``."""
    scene = half_revoked()
    (task,) = scene.member("m1").revoking
    told_ms = scene.now_ms
    report = {name: running() for name in ("0_0", "0_1")}
    for _ in range(6):
        scene.wait(3_000)
        scene.beat("m1", report, epoch=2)
        scene.obey("m2")
    assert "m1" in scene.group.members
    heard_ms = scene.soft.members[M1].heard_ms
    scene.wait(told_ms + 20_000 - scene.now_ms)
    assert scene.group.gone[M1].cause is Cause.FENCED
    scene.refused(Heartbeat(M1, 999, 3), Fenced)
    # To fence is to refuse: what it may still be running is free at the end of its lease, and not before.
    scene.obey("m2")
    scene.wait(heard_ms + SESSION_MS - 1 - scene.now_ms)
    assert scene.task(task).owner is None
    scene.obey("m2")
    scene.wait(1)
    assert set(scene.owners().values()) == {"m2"}


def test_a_slow_confirmation_in_time_fences_nobody() -> None:
    """A revocation confirmed within ``rebalance_timeout_ms`` is done, however long it took."""
    scene = half_revoked()
    scene.wait(19_999)
    scene.obey("m1")
    assert not scene.member("m1").revoking
    scene.wait(5_000)
    assert "m1" in scene.group.members


def test_nobody_is_fenced_while_nobody_is_judged() -> None:
    """After a start even a late revocation is forgiven for a session timeout: its confirmation may have been missed."""
    scene = half_revoked()
    scene.soft = Soft()
    scene.now_ms += 100_000
    scene.do(Started())
    scene.wait(SESSION_MS - 1)
    assert "m1" in scene.group.members


def test_a_warmup_without_progress_is_stalled() -> None:
    """A warmup that comes no closer for the stall timeout frees its slot, and its member is not tried for a while."""
    scene = Scene()
    scene.declare(topology(2), warmup_stall_timeout_ms=60_000)
    scene.join("m1")
    scene.settle()
    scene.join("m2")
    (task,) = scene.held("m2", Role.WARMUP)
    for _ in range(21):
        scene.wait(3_000)
        scene.obey("m1")
        scene.beat("m2", {task: copy("warmup", 50_000)})
    stalls = [record for record in scene.log if isinstance(record, WarmupStalled)]
    assert [(record.task, record.member_id) for record in stalls] == [(task, "m2")]
    assert task not in scene.held("m2", Role.WARMUP)
    for _ in range(30):
        scene.wait(3_000)
        scene.obey("m1")
        scene.beat("m2", {one: copy("warmup", 50_000) for one in scene.held("m2", Role.WARMUP)})
        assert task not in scene.held("m2", Role.WARMUP)


def test_a_warmup_that_comes_closer_is_never_stalled() -> None:
    """However slow, a warmup that makes progress within the stall timeout keeps its slot."""
    scene = Scene()
    scene.declare(topology(2), warmup_stall_timeout_ms=60_000)
    scene.join("m1")
    scene.settle()
    scene.join("m2")
    (task,) = scene.held("m2", Role.WARMUP)
    for step in range(60):
        scene.wait(3_000)
        scene.obey("m1")
        scene.beat("m2", {task: copy("warmup", 50_000 - step // 10)})
    assert scene.held("m2", Role.WARMUP) == [task]


def test_an_unreadable_warmup_is_not_judged() -> None:
    """A copy of unknown lag is never dropped for that reason: it may be as good as done."""
    scene = Scene()
    scene.declare(topology(2), warmup_stall_timeout_ms=60_000)
    scene.join("m1")
    scene.settle()
    scene.join("m2")
    (task,) = scene.held("m2", Role.WARMUP)
    for _ in range(60):
        scene.wait(3_000)
        scene.obey("m1")
        scene.beat("m2", {task: copy("warmup", None)})
    assert scene.held("m2", Role.WARMUP) == [task]


def test_looking_too_often_changes_nothing() -> None:
    """A tick is a question: at rest, and between two things that are due, it writes nothing."""
    scene = guarded()
    scene.obey()
    group = scene.group
    for _ in range(20):
        scene.tick(50)
    assert scene.group is group


def test_the_next_look_is_no_later_than_what_is_due() -> None:
    """The wake-up of a decision is never later than the first lease that ends, whatever else there is."""
    scene = running_scene()
    scene.wait(1)
    assert scene.last is not None
    first = min(one.heard_ms for _, one in scene.soft.members.items()) + SESSION_MS
    assert scene.last.wake_at_ms is not None
    assert scene.now_ms < scene.last.wake_at_ms <= first
    empty = Scene()
    empty.declare()
    assert empty.tick().wake_at_ms is None


def test_deadlines_of_a_drain_wake_the_group() -> None:
    """A drain is looked at when its deadline comes and when it has taken too long."""
    scene = running_scene(drain_timeout_ms=30_000)
    scene.do(DrainRequest(M2, 9_000))
    scene.obey()
    scene.do(Tick())
    assert scene.last is not None
    assert scene.last.wake_at_ms is not None
    assert scene.last.wake_at_ms <= scene.now_ms + 9_000
    scene.wait(9_000)
    scene.do(Tick())
    assert scene.last.wake_at_ms is not None


def test_a_hold_on_grants_is_looked_at_when_it_ends() -> None:
    """When grants are held, the group is woken at the end of the hold at the latest."""
    scene = running_scene(1)
    scene.do(StoreRecovered())
    scene.do(Tick())
    assert scene.last is not None
    assert scene.last.wake_at_ms == scene.group.grants_from_ms


def test_expiry_in_a_group_of_one_leaves_an_empty_group() -> None:
    """When the only member expires nobody has anything, and nothing is due but for what comes next."""
    scene = running_scene(1)
    scene.wait(SESSION_MS)
    assert set(scene.owners().values()) == {None}
    assert [record.cause for record in scene.log if isinstance(record, MemberGone)] == [Cause.EXPIRED]
    scene.refused(Heartbeat(M2, 1, 1), UnknownMember)
    assert scene.join("m2").created


def test_a_member_unheard_since_the_start_is_judged_with_the_others() -> None:
    """A member of which nothing was heard since the start, and whose actives count as running, expires in its time."""
    scene = running_scene()
    scene.soft = Soft()
    scene.do(Started())
    for _ in range(14):
        scene.wait(3_000)
        scene.obey("m1")
    assert "m2" in scene.group.members
    assert set(scene.owners().values()) == {"m1", "m2"}
    scene.wait(3_000)
    assert "m2" not in scene.group.members


def test_policy_sets_when_a_silence_is_our_own() -> None:
    """A look later than the coordinator's lease after it was due is our own silence; within it, it is the member's."""
    for late_ms, gone in ((5_000, True), (5_001, False)):
        scene = Scene(policy=Policy(coordinator_lease_ms=5_000))
        scene.declare(topology(1))
        scene.join("m1")
        scene.beat("m1", {"0_0": restoring(3)})
        scene.wait(10)
        assert scene.soft.wake_ms is not None
        scene.now_ms = scene.soft.wake_ms + late_ms
        scene.do(Tick())
        assert ("m1" not in scene.group.members) is gone, late_ms
