"""What nobody tests in Kafka, and what its weaknesses suggest: ping-pong, stalls, flaps, clocks, restarts."""

from collections import Counter
from collections.abc import Callable

import pytest
from tests.core.described import describe_group
from tests.core.relay import COLD_LAG, Relay, moved
from tests.core.scene import Scene, copy, running, topology

from batonpass.core.handover.view import View
from batonpass.core.state.errors import Fenced
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, EndOffsets, PollOpened, Started, Tick
from batonpass.core.state.model import Group, Role, Subtopology, Topology
from batonpass.core.state.reasons import Held
from batonpass.core.state.records import AssignmentChanged, WarmupStalled
from batonpass.core.state.soft import Soft, TaskReport


def test_a_waiting_task_is_never_handed_to_a_third_member() -> None:
    """From ten to eleven members with one standby Kafka hands over some 700 times, ours nine times, for nine moves."""
    relay = Relay(topology(100), whole=False, initial_rebalance_delay_ms=3_000, num_standby_replicas=1)
    relay.join(*(f"m{number:02}" for number in range(10)))
    relay.play()
    relay.forget()
    before = relay.owners()
    relay.join("new")
    relay.play()
    moves = moved(before, relay.owners())
    assert len(moves) == 9
    assert relay.taken.total() == 9
    assert all(owners == ["new"] for owners in relay.granted.values())


def test_a_warm_up_that_never_gets_on_frees_its_slot_and_another_is_tried() -> None:
    """In Kafka a warm-up without progress keeps its slot for ever (D5)."""
    relay = Relay(topology(1), max_warmup_replicas=1, warmup_stall_timeout_ms=5_000)
    relay.join("a")
    relay.play()
    relay.join("b", "c")
    relay.rates[MemberId("b")] = relay.rates[MemberId("c")] = 0
    relay.scene.do(DrainRequest(MemberId("a")))
    relay.count()
    relay.beats()
    (first,) = relay.group.tasks[TaskId("0_0")].warmups
    (second,) = {MemberId("b"), MemberId("c")} - {first}
    del relay.rates[second]
    for _ in range(6):
        relay.round()
    stalls = [record for record in relay.scene.log if isinstance(record, WarmupStalled)]
    assert [(one.task, one.member_id) for one in stalls] == [("0_0", first)]
    relay.play()
    assert relay.owners() == {"0_0": second}
    assert relay.taken[TaskId("0_0")] == 1


def test_a_member_that_never_gets_on_does_not_hold_up_the_others() -> None:
    relay = Relay(topology(9), max_warmup_replicas=1, max_warmups_per_member=1, warmup_stall_timeout_ms=4_000)
    relay.join("a")
    relay.play()
    relay.rates[MemberId("b")] = 0
    relay.join("b", "c")
    for _ in range(40):
        relay.round()
    assert relay.actives()["c"] >= 3
    assert relay.actives()["b"] == 0
    assert relay.most_extra <= 1


def test_a_stalled_task_says_so_while_it_waits() -> None:
    relay = Relay(topology(2), warmup_stall_timeout_ms=4_000)
    relay.join("a")
    relay.play()
    relay.rates[MemberId("b")] = 0
    relay.join("b")
    reasons: list[set[Held]] = []
    for _ in range(11):
        relay.round()
        status = describe_group(View(relay.group, relay.scene.soft, relay.scene.now_ms))
        reasons.append({entry.reason for entry in status.held_back})
        assert relay.group.next_probe_ms is not None
    # First one task was tried there, then the other; since then both wait.
    assert reasons[-1] == {Held.STALLED}
    assert relay.actives() == {"a": 2, "b": 0}
    del relay.rates[MemberId("b")]
    for _ in range(12):
        relay.round()
    relay.play()
    assert relay.actives() == {"a": 1, "b": 1}


def test_readiness_that_flaps_does_not_flap_the_owner() -> None:
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100)
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.do(DrainRequest(MemberId("a")))
    owners = []
    for number in range(30):
        scene.tick(1_000)
        lag = (90, 110)[number % 2]
        for name in ("b", "a"):
            assignment = scene.member(name).assignment
            reports: dict[str, TaskReport] = {}
            for task, grant in assignment.items():
                reports[task] = running() if grant.role is Role.ACTIVE else copy(grant.role, lag)
            scene.beat(name, reports)
        owners.append(scene.task("0_0").owner)
    changes = [one for at, one in enumerate(owners) if at == 0 or owners[at - 1] != one]
    assert [one for one in changes if one is not None][-1] == "b"
    assert Counter(changes)[MemberId("b")] == 1
    taken = [record for record in scene.log if isinstance(record, AssignmentChanged) and "0_0" in record.demoted]
    assert len(taken) == 1


def test_a_standby_that_flaps_around_the_threshold_moves_nothing_and_writes_next_to_nothing() -> None:
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100, num_standby_replicas=1)
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.settle()
    version = scene.group.version
    for number in range(20):
        scene.tick(1_000)
        scene.beat("a", {"0_0": running()})
        scene.beat("b", {"0_0": copy("standby", (90, 110)[number % 2])})
    assert scene.group.version == version
    assert scene.owners() == {"0_0": "a"}


def test_an_unknown_lag_on_one_member_stops_that_member_alone() -> None:
    relay = Relay(topology(9), max_warmups_per_member=1, max_warmup_replicas=2)
    relay.join("a")
    relay.play()
    relay.join("b", "c")
    (blind,) = relay.scene.held("b", Role.WARMUP)
    relay.lag[MemberId("b"), TaskId(blind)] = None
    for _ in range(10):
        relay.round()
    assert relay.actives() == {"a": 6, "b": 0, "c": 3}
    assert relay.scene.held("b", Role.WARMUP) == [blind]
    relay.lag[MemberId("b"), TaskId(blind)] = 0
    relay.play()
    assert relay.actives() == {"a": 3, "b": 3, "c": 3}


def test_one_missing_end_of_two_makes_that_task_unknown_alone() -> None:
    scene = Scene()
    parts = (Subtopology("0", 4, changelog_topics=("left", "right")),)
    scene.declare(Topology(1, parts), acceptable_recovery_lag=10, max_warmups_per_member=4)
    scene.join("a")
    scene.beat("a", {f"0_{number}": running() for number in range(4)})
    scene.join("b")
    first, second = scene.held("b", Role.WARMUP)
    ends = {("left", number): 100 for number in range(4)} | {("right", number): 50 for number in range(4)}
    del ends["right", int(first[-1])]
    scene.do(EndOffsets(ends, scene.now_ms))
    level = TaskReport("warmup", positions=(("left", 100), ("right", 50)))
    scene.beat("b", {first: level, second: level})
    assert scene.task(second).handover.next_owner == "b"
    assert scene.task(first).handover.next_owner is None
    assert scene.task(first).owner == "a"
    scene.do(EndOffsets({("right", int(first[-1])): 50}, scene.now_ms))
    assert scene.task(first).handover.next_owner == "b"


@pytest.mark.parametrize("jump_ms", [-600_000, -1, 3_600_000])
def test_a_jump_of_the_clock_loses_nobody_and_finishes_the_move(jump_ms: int) -> None:
    relay = Relay(topology(6))
    relay.step = COLD_LAG // 3
    relay.join("a")
    relay.play()
    before = relay.owners()
    relay.forget()
    relay.join("b")
    relay.round()
    relay.scene.now_ms += jump_ms
    relay.scene.do(Started(clock_moved=True) if abs(jump_ms) > 1 else Tick())
    relay.count()
    assert sorted(relay.group.members) == ["a", "b"]
    relay.play()
    assert relay.actives() == {"a": 3, "b": 3}
    assert dict(relay.taken) == dict.fromkeys(moved(before, relay.owners()), 1)


def replay(scene: Scene) -> None:
    """Let a new coordinator load the group from its records, and start with nothing heard."""
    loaded = evolve(Group(GroupId("g")), scene.log)
    assert loaded == scene.group
    scene.group, scene.soft = loaded, Soft()
    scene.do(Started())


@pytest.mark.parametrize("step", range(14))
def test_a_restart_in_any_step_of_a_handover_loses_nothing(step: int) -> None:
    relay = Relay(topology(2))
    relay.join("a")
    relay.play()
    relay.forget()
    _restart_after(relay, step, lambda: relay.join("b"))
    relay.play()
    assert relay.actives() == {"a": 1, "b": 1}
    assert sum(relay.taken.values()) == 1
    assert not relay.cold


def _restart_after(relay: Relay, step: int, begin: Callable[[], None]) -> None:
    """Begin, and let the coordinator restart after so many more heartbeats or ticks."""
    begin()
    for number in range(step + 1):
        if number == step:
            replay(relay.scene)
            relay.count()
        if number % 3 == 0:
            relay.restore()
            relay.scene.tick(1_000)
            relay.count()
        else:
            relay.beat(("a", "b")[number % 3 - 1])


def test_a_drain_deadline_that_passes_while_a_revocation_is_out_does_not_send_another() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.join("c")
    scene.do(DrainRequest(MemberId("a"), 3_000))
    (next_owner,) = scene.task("0_0").warmups
    scene.obey(next_owner)
    assert scene.task("0_0").handover.next_owner == next_owner
    scene.tick(10_000)
    assert scene.task("0_0").handover.next_owner == next_owner
    assert scene.task("0_0").owner is None
    scene.obey("a")
    assert scene.task("0_0").owner == next_owner
    taken = [record for record in scene.log if isinstance(record, AssignmentChanged) and "0_0" in record.demoted]
    assert len(taken) == 1


def test_a_member_that_never_confirms_is_fenced_and_its_task_waits_for_its_lease() -> None:
    """In Kafka a member that never revokes holds the group up."""
    scene = Scene()
    scene.declare(topology(2), rebalance_timeout_ms=10_000, session_timeout_ms=20_000)
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.obey("b")
    (task,) = [one for one in scene.owners() if scene.task(one).handover.next_owner == "b"]
    stubborn = {"0_0": running(), "0_1": running()}
    while "a" in scene.group.members:
        scene.tick(1_000)
        scene.obey("b")
        if "a" in scene.group.members:
            scene.beat("a", stubborn)
    fenced_ms = scene.now_ms
    assert type(scene.beat("a", stubborn)) is Fenced
    assert scene.task(task).owner is None
    while scene.task(task).owner is None:
        scene.tick(1_000)
        scene.do(PollOpened(MemberId("b")))
        scene.obey("b")
    assert scene.now_ms - fenced_ms >= 19_000
    assert scene.owners() == {"0_0": "b", "0_1": "b"}


def test_a_replaced_process_gets_the_leavers_tasks_by_name_alone() -> None:
    """A pod comes back under its instance id with an empty disk (D20)."""
    relay = Relay(topology(30), initial_rebalance_delay_ms=3_000)
    for name in ("a", "b", "c"):
        relay.join(name, instance_id=InstanceId(f"i-{name}"))
    relay.play()
    before = relay.owners()
    own = {task for task, owner in before.items() if owner == "b"}
    relay.forget()
    relay.leave("b", restart=True)
    relay.round()
    relay.join("b2", instance_id=InstanceId("i-b"))
    relay.play()
    assert moved(before, relay.owners()) == dict.fromkeys(own, "b2")
    assert not relay.interrupted()


def test_a_returning_member_is_served_meanwhile_and_gets_its_task_back_warm() -> None:
    relay = Relay(topology(6), initial_rebalance_delay_ms=3_000, num_standby_replicas=1, max_warmup_replicas=6)
    for name in ("a", "b", "c"):
        relay.join(name, instance_id=InstanceId(f"i-{name}"))
    relay.play()
    relay.forget()
    before = relay.owners()
    own = sorted(task for task, owner in before.items() if owner == "b")
    disk = {str(task): 50 for (member, task) in relay.lag if member == "b"}
    relay.leave("b", restart=True)
    relay.beats()
    assert all(relay.group.tasks[task].owner in ("a", "c") for task in own)
    assert not relay.cold
    relay.join("b2", disk=disk, instance_id=InstanceId("i-b"))
    relay.play()
    assert moved(before, relay.owners()) == dict.fromkeys(own, "b2")
    assert dict(relay.taken) == dict.fromkeys(own, 1)
