"""When to look again: at once where anything is said, by the timer while anything is to come, never at rest."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.core.relay import COLD_LAG, Relay
from tests.core.scene import Scene, copy, running, topology

from batonpass.core.decide import decide
from batonpass.core.handover import probing
from batonpass.core.handover.probing import is_at_rest
from batonpass.core.handover.view import View
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    Heartbeat,
    Leave,
    PauseRequest,
    PinRequest,
    ProbeRequest,
    ResumeRequest,
    Started,
)
from batonpass.core.state.model import Member, PauseScope, Role, Task
from batonpass.core.state.reasons import NoChange
from batonpass.core.state.records import ProbeScheduled, TargetPlaced
from batonpass.core.state.soft import Soft

INTERVAL_MS = 600_000


def moving(**config: object) -> Relay:
    """Return a group in which a warmup restores, a little each round."""
    relay = Relay(topology(2), policy=None, whole=True, **config)
    relay.join("a")
    relay.play()
    relay.step = COLD_LAG // 1_000
    relay.join("b")
    return relay


def at_rest(scene: Scene) -> bool:
    """Say whether the group of a scene rests."""
    return is_at_rest(scene.view())


def test_a_look_is_due_while_something_is_to_come() -> None:
    """The jitter is a tenth of the interval."""
    relay = moving()
    due_ms = relay.group.next_probe_ms
    assert due_ms is not None
    assert relay.scene.now_ms < due_ms <= relay.scene.now_ms + INTERVAL_MS * 11 // 10


def test_a_busy_group_is_not_looked_at_ever_later() -> None:
    relay = moving()
    due_ms = relay.group.next_probe_ms
    for number in range(5):
        relay.round()
        relay.join(f"c{number}")
        relay.leave(f"c{number}")
    assert relay.group.next_probe_ms == due_ms


def test_a_look_that_is_due_sets_the_next_one_and_makes_no_generation() -> None:
    relay = moving(session_timeout_ms=86_400_000, warmup_stall_timeout_ms=86_400_000)
    due_ms, generation = relay.group.next_probe_ms, relay.group.generation
    assert due_ms is not None
    decision = relay.scene.tick(due_ms - relay.scene.now_ms)
    assert NoChange.SAME_TARGET in {reason.code for reason in decision.reasons}
    assert relay.group.generation == generation
    assert not relay.scene.of(TargetPlaced)
    assert relay.group.next_probe_ms is not None
    assert relay.group.next_probe_ms > relay.scene.now_ms


def test_the_look_comes_sooner_where_a_copy_should_be_ready_sooner() -> None:
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=10, probing_rebalance_interval_ms=60_000)
    scene.join("a")
    scene.obey()
    scene.join("b")
    (task,) = scene.held("b", Role.WARMUP)
    due_ms, began_ms = scene.group.next_probe_ms, scene.now_ms
    assert due_ms is not None
    while scene.now_ms < due_ms:
        scene.tick(min(3_000, due_ms - scene.now_ms))
        scene.obey("a")
        scene.beat("b", {task: copy("warmup", 90_000 - (scene.now_ms - began_ms))})
    assert scene.group.next_probe_ms is not None
    left_ms = 90_000 - (due_ms - began_ms)
    assert abs(scene.group.next_probe_ms - due_ms - left_ms) <= 4_000


def test_the_next_look_comes_sooner_in_whatever_order_a_member_lists_its_tasks() -> None:
    """A copy whose lag has just become known must not hide another one whose rate is known now."""
    scene = Scene()
    scene.declare(topology(4), acceptable_recovery_lag=10, probing_rebalance_interval_ms=600_000)
    scene.join("a")
    scene.obey()
    scene.join("b")
    first, second = scene.held("b", Role.WARMUP)
    scene.beat("b", {first: copy("warmup", None), second: copy("warmup", 90_000)})
    scene.tick(3_000)
    reports = {TaskId(first): copy("warmup", 90_000), TaskId(second): copy("warmup", 60_000)}
    found = [
        decide(
            scene.group,
            scene.soft,
            (Heartbeat(MemberId("b"), 99, scene.member("b").epoch, dict(listed)),),
            scene.now_ms,
            scene.policy,
        )
        for listed in (reports.items(), reversed(reports.items()))
    ]
    assert found[0].records == found[1].records
    due_ms = found[0].after.next_probe_ms
    assert due_ms is not None
    assert due_ms - scene.now_ms < 10_000


@pytest.mark.no_cover
@pytest.mark.parametrize("interval_ms", [1, 100])
def test_a_copy_that_is_always_about_to_be_ready_brings_no_look_forward_below_a_second(interval_ms: int) -> None:
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=10, heartbeat_interval_ms=100)
    scene.group = replace(scene.group, config=replace(scene.group.config, heartbeat_interval_ms=interval_ms))
    scene.join("a")
    scene.obey()
    scene.join("b")
    (task,) = scene.held("b", Role.WARMUP)
    looks = []
    for lag in (*range(30_000, 100, -100), *(100, 90, 80, 70, 60, 50, 40, 30, 20) * 50):
        scene.tick(20)
        looks += [record.at_ms - scene.now_ms for record in scene.of(ProbeScheduled) if record.at_ms is not None]
        scene.obey("a")
        scene.beat("b", {task: copy("warmup", lag)})
        looks += [record.at_ms - scene.now_ms for record in scene.of(ProbeScheduled) if record.at_ms is not None]
    assert len(looks) > 5
    assert min(looks) == 1_000


def test_a_look_that_is_set_is_brought_forward_as_soon_as_a_rate_is_known() -> None:
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=10)
    scene.join("a")
    scene.obey()
    scene.join("b")
    (task,) = scene.held("b", Role.WARMUP)
    scene.beat("b", {task: copy("warmup", 90_000)})
    late_ms = scene.group.next_probe_ms
    assert late_ms is not None
    written = 0
    for number in range(1, 11):
        scene.tick(3_000)
        scene.obey("a")
        scene.beat("b", {task: copy("warmup", 90_000 - 3_000 * number - (number % 3) * 100)})
        written += len(scene.of(ProbeScheduled))
    due_ms = scene.group.next_probe_ms
    assert written == 1
    assert due_ms is not None
    assert abs(due_ms - scene.now_ms - 60_000) <= 5_000
    assert scene.soft.wake_ms is not None
    assert scene.soft.wake_ms <= due_ms < late_ms


@pytest.mark.parametrize("lags", [(90_000, 89_000, 88_000), (50, 900, 1_800), (90_000, 90_000, 90_000)])
def test_a_look_is_not_brought_forward_for_what_takes_longer_or_comes_no_closer(lags: tuple[int, ...]) -> None:
    """An estimate beyond half of the time that is left counts as longer."""
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=10, probing_rebalance_interval_ms=60_000)
    scene.join("a")
    scene.obey()
    scene.join("b")
    (task,) = scene.held("b", Role.WARMUP)
    due_ms = scene.group.next_probe_ms
    for lag in lags:
        scene.tick(3_000)
        scene.beat("b", {task: copy("warmup", lag)})
    assert scene.group.next_probe_ms == due_ms


def test_at_rest_an_estimate_sets_no_look() -> None:
    """The member calls a warmup what it was not given."""
    relay = Relay(topology(2))
    relay.join("a", "b")
    relay.play()
    scene = relay.scene
    mine = {task: running() for task in scene.held("a", Role.ACTIVE)}
    (other,) = scene.held("b", Role.ACTIVE)
    for lag in (9_000_000, 8_000_000, 100_000):
        scene.tick(3_000)
        scene.beat("a", mine | {other: copy("warmup", lag)})
    assert scene.group.next_probe_ms is None


def test_nothing_is_due_at_rest() -> None:
    relay = Relay(topology(6), num_standby_replicas=1)
    relay.join("a", "b")
    relay.play()
    assert relay.group.next_probe_ms is None
    assert relay.scene.log[-1] == ProbeScheduled(None) or ProbeScheduled(None) in relay.scene.log[-4:]
    version = relay.group.version
    for _ in range(10):
        relay.round()
    assert relay.group.version == version


def test_a_probe_that_is_asked_for_looks_at_once() -> None:
    relay = Relay(topology(2))
    relay.join("a")
    relay.play()
    relay.scene.do(ProbeRequest())
    assert relay.scene.last is not None
    codes = {reason.code for reason in relay.scene.last.reasons}
    assert codes >= {NoChange.SAME_TARGET, NoChange.AT_REST, NoChange.UNCHANGED}


def test_an_empty_group_is_not_looked_at() -> None:
    relay = moving()
    relay.leave("b")
    relay.leave("a")
    assert relay.group.next_probe_ms is None
    relay.scene.do(ProbeRequest())
    assert relay.scene.last is not None
    assert NoChange.NO_MEMBERS in {reason.code for reason in relay.scene.last.reasons}


@pytest.mark.parametrize("what", ["join", "drain", "pin", "leave"])
def test_what_is_known_is_acted_upon_without_waiting_for_the_timer(what: str) -> None:
    relay = Relay(topology(4))
    relay.join("a", "b")
    relay.play()
    version = relay.group.version
    if what == "join":
        relay.join("c")
        assert relay.scene.held("c", Role.WARMUP) or not relay.group.unsettled
    elif what == "drain":
        relay.scene.do(DrainRequest(MemberId("a")))
        assert relay.scene.held("b", Role.WARMUP)
    elif what == "pin":
        task = relay.scene.held("a", Role.ACTIVE)[0]
        relay.scene.do(PinRequest(TaskId(task), MemberId("b")))
        assert task in relay.scene.held("b", Role.WARMUP)
    else:
        relay.leave("a")
        assert len(relay.scene.held("b", Role.ACTIVE)) == 4
    assert relay.group.version > version


def test_the_heartbeat_that_says_caught_up_hands_over() -> None:
    relay = moving()
    (task,) = relay.scene.held("b", Role.WARMUP)
    relay.scene.beat("b", {task: copy("warmup", 101)})
    assert relay.scene.task(task).owner == "a"
    relay.scene.beat("b", {task: copy("warmup", 100)})
    assert relay.scene.task(task).handover.next_owner == "b"


def test_a_deadline_survives_a_restart_of_the_coordinator() -> None:
    """The deadline is a record (I14)."""
    relay = moving()
    due_ms = relay.group.next_probe_ms
    relay.scene.soft = Soft()
    relay.scene.do(Started())
    assert relay.group.next_probe_ms == due_ms
    assert relay.scene.last is not None
    assert relay.scene.last.wake_at_ms is not None
    assert due_ms is not None
    assert relay.scene.last.wake_at_ms <= due_ms


def test_a_deadline_from_a_clock_that_was_ahead_is_set_anew() -> None:
    relay = moving()
    relay.scene.do(ProbeRequest())
    relay.scene.now_ms -= 86_400_000
    relay.scene.tick()
    relay.round()
    assert relay.group.next_probe_ms is not None
    assert relay.group.next_probe_ms <= relay.scene.now_ms + 2 * INTERVAL_MS


def test_a_copy_that_is_behind_is_no_rest() -> None:
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=100)
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.beat("b", {"0_0": copy("standby", 5_000)})
    scene.obey("a")
    assert not at_rest(scene)
    scene.beat("b", {"0_0": copy("standby", None)})
    assert not at_rest(scene)
    scene.beat("b", {"0_0": copy("standby", 0)})
    assert at_rest(scene)


def test_a_member_on_its_way_back_is_no_rest() -> None:
    scene = Scene()
    scene.declare(topology(2))
    for name in ("a", "b"):
        scene.join(name, instance_id=InstanceId(f"i-{name}"))
    scene.settle()
    scene.join("c", instance_id=InstanceId("i-c"))
    scene.settle()
    assert at_rest(scene)
    idle = next(name for name in "abc" if not scene.member(name).assignment)
    scene.do(Leave(MemberId(idle), restart=True))
    assert not at_rest(scene)


def test_a_member_that_still_gives_something_up_is_no_rest() -> None:
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=100)
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.settle()
    (standby,) = scene.task("0_0").standbys
    scene.change(num_standby_replicas=0)
    assert scene.member(standby).revoking
    assert not at_rest(scene)
    scene.beat(standby, {})
    assert at_rest(scene)


def test_a_standby_that_sways_around_the_threshold_does_not_write_each_time() -> None:
    relay = Relay(topology(1), num_standby_replicas=1)
    relay.join("a", "b")
    relay.play()
    owner = str(relay.scene.task("0_0").owner)
    other = "b" if owner == "a" else "a"
    version = relay.group.version
    for number in range(10):
        relay.scene.tick(1_000)
        relay.scene.beat(owner, {"0_0": running()})
        relay.scene.beat(other, {"0_0": copy("standby", (5, 5_000)[number % 2])})
    assert relay.group.version == version


@pytest.mark.parametrize("what", ["late", "swaying", "reading on"])
def test_a_heartbeat_at_rest_does_not_look_at_every_copy(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole large fleet may be late at once, and each look of one would hold up the others."""
    relay = Relay(topology(12), num_standby_replicas=1)
    relay.join("a", "b", "c", "d")
    relay.play()
    assert at_rest(relay.scene)
    monkeypatch.setattr(probing, "copies_behind", lambda *_: pytest.fail("it looks at every copy"))
    if what == "late":
        relay.scene.tick(4 * relay.group.heartbeat_interval_ms)
    for round_number in range(3):
        for name in "abcd":
            lag = 5_000 * (round_number % 2) if what == "swaying" else round_number if what == "reading on" else 0
            has = relay.scene.group.members[MemberId(name)].assignment
            relay.scene.beat(
                name,
                {task: running() if grant.role is Role.ACTIVE else copy("standby", lag) for task, grant in has.items()},
            )


def test_while_a_copy_is_behind_its_member_alone_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = Relay(topology(12), num_standby_replicas=1, acceptable_recovery_lag=100)
    relay.join("a", "b", "c", "d")
    relay.play()
    scene, looked = relay.scene, list[MemberId]()
    has = {name: scene.group.members[MemberId(name)].assignment for name in "abcd"}

    def beat(name: str, lag: int) -> None:
        scene.beat(
            name,
            {task: running() if one.role is Role.ACTIVE else copy("standby", lag) for task, one in has[name].items()},
        )

    beat("c", 5_000)
    scene.do(PauseRequest(PauseScope.BALANCE, "a record, beside which a probe is set"))
    scene.do(ResumeRequest())
    assert scene.group.next_probe_ms is not None
    copies_behind = probing.copies_behind

    def watched(view: View, member: Member) -> Iterator[Task]:
        looked.append(member.id)
        return copies_behind(view, member)

    monkeypatch.setattr(probing, "copies_behind", watched)
    for lag in (5_000, 0, 5_000, 0):
        for name in ("a", "b", "d"):
            beat(name, lag)
    assert set(looked) <= {MemberId("c")}
    beat("c", 0)
    assert scene.view().group.next_probe_ms is None
    assert set(looked) == {MemberId(name) for name in "abcd"}


def test_a_group_without_copies_rests_before_its_members_have_spoken_again() -> None:
    """After a restart actives count as running, and copies as unknown."""
    relay = Relay(topology(2))
    relay.join("a", "b", "c")
    relay.play()
    relay.scene.soft = Soft()
    relay.scene.do(Started())
    assert at_rest(relay.scene)
    assert relay.group.next_probe_ms is None
    relay.scene.do(ProbeRequest())
    relay.scene.do(ProbeRequest())
    assert at_rest(relay.scene)


def test_a_group_with_copies_waits_for_its_members_to_speak_again() -> None:
    relay = Relay(topology(2), num_standby_replicas=1)
    relay.join("a", "b")
    relay.play()
    relay.scene.soft = Soft()
    relay.scene.do(Started())
    assert not at_rest(relay.scene)
    relay.play()
    assert at_rest(relay.scene)


@pytest.mark.parametrize("held", [PauseScope.ALL, PauseScope.BALANCE, None])
def test_a_move_that_is_held_is_not_looked_for_in_vain(held: PauseScope | None) -> None:
    """Its copy is ready: what ends the pause, or the silence of a member, looks at it then."""
    scene = Scene()
    settings = {"session_timeout_ms": 600_000, "warmup_stall_timeout_ms": 3_600_000}
    scene.declare(topology(2), probing_rebalance_interval_ms=60_000, **settings)
    scene.join("a")
    scene.settle()
    scene.join("b")
    if held is None:
        scene.join("c")
        scene.wait(10_000)
    else:
        scene.do(PauseRequest(held))
    seen = len(scene.log)
    for _ in range(60):
        scene.wait(3_000)
        scene.obey("a", "b")
    assert scene.held("b", Role.WARMUP) != []
    assert len([record for record in scene.log[seen:] if isinstance(record, ProbeScheduled)]) <= 4
    if held is not None:
        scene.do(ResumeRequest())
        scene.obey("a", "b")
        assert scene.held("b", Role.ACTIVE) != []
