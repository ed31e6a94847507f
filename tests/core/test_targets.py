"""From the group to placement and back: what is kept, bound, avoided, and recorded as a change of target."""

from dataclasses import replace

from tests.core.relay import COLD_LAG, Relay
from tests.core.scene import Scene, copy, restoring, topology

from batonpass.core.handover.view import View
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    Eviction,
    Leave,
    PauseRequest,
    PinRequest,
    ProbeRequest,
    ResumeRequest,
    Started,
)
from batonpass.core.state.model import PauseScope, Role, Stall, Subtopology, Topology
from batonpass.core.state.reasons import NoChange
from batonpass.core.state.records import TargetPlaced
from batonpass.core.state.soft import Soft
from batonpass.core.target.targets import build_request, target_changes
from batonpass.placement.place import place
from batonpass.placement.types import UNASSIGNED, Placed, PlacementRequest, Readiness

TASK = TaskId("0_0")
A, B, C = MemberId("a"), MemberId("b"), MemberId("c")


def request(scene: Scene) -> PlacementRequest:
    """Return what placement would be asked now."""
    return build_request(scene.view())


def targets(scene: Scene) -> dict[str, str | None]:
    """Return where every task belongs."""
    return {task: scene.task(task).target.owner for task in scene.group.table.ids}


def test_a_settled_group_is_asked_for_as_it_stands() -> None:
    scene = Scene()
    scene.declare(topology(3), num_standby_replicas=1)
    for name in ("a", "b"):
        scene.join(name)
    scene.settle()
    question = request(scene)
    names = [member.id for member in question.members]
    assert names == ["a", "b"]
    assert [names[seat] for seat in question.home] == [scene.task(task).owner for task in scene.group.table.ids]
    assert [tuple(names[one] for one in seats) for seats in question.standbys] == [
        scene.task(task).standbys for task in scene.group.table.ids
    ]
    assert (question.previous, question.warming, question.bound) == ({}, {}, {})
    assert not question.balance_held


def test_a_move_under_way_is_in_the_question_with_its_warmup() -> None:
    relay = Relay(topology(2))
    relay.step = 1
    relay.join("a")
    relay.beats()
    relay.join("b")
    question = request(relay.scene)
    going = [
        task_index
        for task_index, task in enumerate(relay.group.table.ids)
        if relay.group.tasks[task].target.owner == "b"
    ]
    assert question.previous == question.warming == dict.fromkeys(going, 1)
    assert question.bound == {}


def test_a_handover_under_way_is_bound_to_its_heir() -> None:
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100)
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.do(PinRequest(TASK, B))
    scene.obey("b")
    scene.do(PinRequest(TASK, None))
    question = request(scene)
    assert question.bound == {0: 1}
    assert list(question.home) == [1]


def test_a_target_that_was_bound_is_placed_anew_before_the_group_rests() -> None:
    """The tasks wait for a lease, their next owners chosen, when c joins: c gets its share later."""
    scene = Scene()
    scene.declare(topology(0, stateless=6), session_timeout_ms=10_000)
    for name in ("a", "b"):
        scene.join(name)
    scene.settle()
    waiting = scene.held("b", Role.ACTIVE)
    scene.do(Eviction(B))
    assert [scene.task(task).handover.next_owner for task in waiting] == ["a"] * 3
    scene.join("c")
    assert [scene.task(task).target.owner for task in waiting] == ["a"] * 3
    for _ in range(15):
        scene.tick(1_000)
        scene.obey()
    scene.settle()
    assert sorted(map(str, scene.owners().values())) == ["a"] * 3 + ["c"] * 3


def test_the_place_of_an_instance_that_restarts_is_kept() -> None:
    relay = Relay(topology(4), initial_rebalance_delay_ms=3_000, num_standby_replicas=1)
    for name in ("a", "b"):
        relay.join(name, instance_id=InstanceId(f"i-{name}"))
    relay.play()
    own = relay.scene.held("b", Role.ACTIVE)
    relay.leave("b", restart=True)
    relay.join("c")
    relay.round()
    assert {task: relay.group.tasks[TaskId(task)].target.owner for task in own} == dict.fromkeys(own, "b")
    assert all(relay.group.tasks[TaskId(task)].owner == "a" for task in own)


def test_what_nobody_can_read_keeps_its_target() -> None:
    scene = Scene()
    scene.declare(topology(2), num_standby_replicas=1, acceptable_recovery_lag=100)
    for name in ("a", "b"):
        scene.join(name)
    scene.settle()
    owner, guard = scene.task(TASK).owner, scene.task(TASK).standbys[0]
    assert owner is not None
    scene.soft = Soft()
    scene.do(Started())
    scene.do(Eviction(owner, dead=True))
    assert scene.task(TASK).target.owner == guard
    question = request(scene)
    assert question.bound[0] == [member.id for member in question.members].index(guard)
    scene.join("c")
    assert scene.task(TASK).target.owner == guard


def test_a_member_where_the_warmup_stalled_is_the_last_choice() -> None:
    relay = Relay(topology(1), warmup_stall_timeout_ms=3_000)
    relay.join("a")
    relay.play()
    relay.join("b", "c")
    relay.rates[B] = relay.rates[C] = 0
    relay.scene.do(DrainRequest(A))
    relay.count()
    relay.beats()
    (first,) = relay.group.tasks[TASK].warmups
    for _ in range(4):
        relay.round()
    names = [member.id for member in request(relay.scene).members]
    assert request(relay.scene).warmth([0], range(len(names)))[0][names.index(first)].ready_class == Readiness.UNKNOWN
    assert relay.group.tasks[TASK].target.owner not in (first, "a")


def test_a_stall_is_looked_around_also_while_another_task_has_no_owner() -> None:
    """The load that decides where a stalled task goes next counts what has a home, and nothing else."""
    scene = Scene()
    scene.declare(topology(2), warmup_stall_timeout_ms=3_000, acceptable_recovery_lag=10)
    for name in ("a", "d"):
        scene.join(name)
    scene.settle()
    (stuck,), (free,) = scene.held("a", Role.ACTIVE), scene.held("d", Role.ACTIVE)
    scene.join("b")
    scene.do(PinRequest(TaskId(free), MemberId("d")))
    scene.do(DrainRequest(A))
    assert scene.held("b", Role.WARMUP) == [stuck]
    for _ in range(4):
        scene.tick(1_000)
        scene.obey("a", "d")
        scene.obey("b", lag=50_000)
    # Level counts ask for b all the same: the task is held back there until b may be tried again.
    assert scene.task(stuck).target.owner == "b"
    assert scene.held("b", Role.WARMUP) == []
    scene.do(Eviction(MemberId("d"), dead=True))
    assert scene.owners() == {stuck: "a", free: "b"}
    assert scene.task(stuck).target.owner == "b"


def test_a_pause_does_not_bind_a_task_that_nobody_has() -> None:
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100)
    scene.join("a")
    scene.obey()
    scene.join("b")
    scene.do(DrainRequest(A))
    scene.beat("b", {TASK: copy("warmup", None)})
    scene.do(PauseRequest(PauseScope.BALANCE))
    scene.do(Eviction(A, dead=True))
    assert scene.owners() == {TASK: None}
    assert list(request(scene).home) == [UNASSIGNED]
    scene.beat("b", {TASK: copy("warmup", 5_000)})
    assert scene.owners() == {TASK: "b"}


def test_a_pause_keeps_the_moves_that_are_under_way_and_adds_none() -> None:
    relay = Relay(topology(6), max_warmup_replicas=1)
    relay.step = COLD_LAG // 20
    relay.join("a")
    relay.round()
    relay.step = COLD_LAG
    relay.play()
    relay.step = COLD_LAG // 20
    relay.join("b")
    relay.round()
    warming = relay.scene.held("b", Role.WARMUP)
    before = targets(relay.scene)
    relay.scene.do(PauseRequest(PauseScope.BALANCE))
    relay.count()
    relay.join("c")
    relay.round()
    relay.scene.do(ProbeRequest())
    relay.count()
    question = request(relay.scene)
    assert question.balance_held
    assert set(question.bound.values()) == {1}
    assert relay.scene.held("b", Role.WARMUP) == warming
    assert {task: target for task, target in targets(relay.scene).items() if target == "b"} == {
        task: target for task, target in before.items() if target == "b"
    }
    assert "c" not in targets(relay.scene).values()
    relay.step = COLD_LAG
    relay.scene.do(ResumeRequest())
    relay.count()
    relay.play()
    assert relay.actives() == {"a": 2, "b": 2, "c": 2}


def test_a_pin_binds_its_task_and_no_other() -> None:
    scene = Scene()
    scene.declare(topology(4))
    for name in ("a", "b"):
        scene.join(name)
    scene.settle()
    own = scene.held("a", Role.ACTIVE)
    for task in own:
        scene.do(PinRequest(TaskId(task), B))
    scene.settle()
    assert scene.held("b", Role.ACTIVE) >= own
    scene.do(Leave(B))
    scene.settle()
    assert set(scene.owners().values()) == {"a"}


def test_state_on_disk_counts_by_its_lag_for_a_task_without_an_owner_and_as_a_start_for_one_that_runs() -> None:
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100, rebalance_batch_ms=1_000)
    scene.join("a")
    scene.tick(1_000)
    scene.obey()
    scene.join("b", {TASK: copy("none", 5)})
    assert request(scene).warmth([0], [1])[0][1].ready_class == Readiness.ON_DISK
    scene.do(Eviction(A, dead=True))
    free = Scene()
    free.declare(topology(1), acceptable_recovery_lag=100, initial_rebalance_delay_ms=3_000)
    free.join("b", {TASK: copy("none", 5)})
    free.join("c", {TASK: copy("none", 5_000)})
    free.join("d", {TASK: copy("none", None)})
    assert [request(free).warmth([0], [seat])[0][seat] for seat in range(3)] == [
        (Readiness.CAUGHT_UP, 5),
        (Readiness.BEHIND, 5_000),
        (Readiness.UNKNOWN, 0),
    ]


def test_differences_are_what_changed_and_nothing_else() -> None:
    scene = Scene()
    scene.declare(topology(6))
    scene.join("a")
    scene.settle()
    scene.join("b")
    (placed,) = scene.of(TargetPlaced)
    changed = [task for task, target in targets(scene).items() if target == "b"]
    assert list(placed.changes) == changed
    assert set(placed.changes.values()) == {(B, (), "")}
    assert (placed.moves, placed.lower_bound) == (3, 3)
    view, question = scene.view(), request(scene)
    assert target_changes(view, question, place(question)) == {}


def test_no_target_has_a_member_twice() -> None:
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=100)
    for name in ("a", "b"):
        scene.join(name)
    scene.settle()
    for name in ("a", "b"):
        scene.do(DrainRequest(MemberId(name)))
    task = scene.task(TASK)
    holders = [task.target.owner, *task.target.standbys]
    assert len(set(holders)) == len(holders)
    scene.do(PinRequest(TASK, task.standbys[0] if task.standbys else B))
    task = scene.task(TASK)
    holders = [task.target.owner, *task.target.standbys]
    assert len(set(holders)) == len(holders)


def test_a_bound_owner_is_no_standby_of_its_own() -> None:
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1)
    for name in ("a", "b"):
        scene.join(name)
    scene.settle()
    view, question = scene.view(), request(scene)
    placed = place(question)
    owner = placed.owner[0]
    twice = Placed(
        owner=placed.owner,
        standbys=[(owner, *placed.standbys[0])],
        waiting={},
        why={},
        moves=0,
        lower_bound=0,
    )
    assert target_changes(view, question, twice) == {}


def test_a_group_that_cannot_be_placed_says_why() -> None:
    scene = Scene()
    scene.declare(Topology(1, (Subtopology("0", None, source_topics=("in",)),)))
    scene.join("a")
    assert scene.last is not None
    assert NoChange.NOT_READY in {reason.code for reason in scene.last.reasons}
    assert scene.group.placement_due_ms is None
    scene.do(Leave(A))
    assert scene.last is not None
    assert NoChange.NO_MEMBERS in {reason.code for reason in scene.last.reasons}


def test_a_second_look_at_an_unanswered_epoch_records_that_it_is_answered() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a")
    scene.settle()
    generation = scene.group.generation
    scene.change(probing_rebalance_interval_ms=60_000)
    (placed,) = scene.of(TargetPlaced)
    assert placed.changes == {}
    assert (scene.group.generation, scene.group.generation_epoch) == (generation, scene.group.group_epoch)
    scene.do(ProbeRequest())
    assert not scene.of(TargetPlaced)


def test_a_stall_of_a_member_that_runs_the_task_by_now_says_nothing() -> None:
    """The member stalled as a warmup, and owns the task since by a takeover."""
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a")
    scene.beat("a", {TASK: restoring(700)})
    task = scene.task(TASK).with_marks(stalls=(Stall(A, scene.now_ms + 99_000),))
    group = scene.group
    changed = replace(group, tasks=group.tasks.having(TASK, task))
    view = View(changed, scene.soft, scene.now_ms)
    assert build_request(view).warmth([0], [0])[0][0].ready_class != Readiness.UNKNOWN
