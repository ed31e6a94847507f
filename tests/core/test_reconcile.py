"""Each member's next assignment: revocations before grants to the same member, no barrier, one assignment at a time."""

from tests.core.relay import COLD_LAG, Relay
from tests.core.scene import Scene, copy, running, topology
from tests.dry_run.planning import member, tasks

from batonpass.core.handover.copies import TaskPlan
from batonpass.core.handover.owner import Choice
from batonpass.core.handover.reconcile import reconcile
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Eviction, PinRequest, StoreRecovered
from batonpass.core.state.model import OnLeaseLost, Role
from batonpass.core.state.reasons import Why
from batonpass.core.state.records import AssignmentChanged, ReleaseWaived
from batonpass.core.state.soft import TaskReport
from batonpass.dry_run.snapshot import Snapshot, to_group


def assignments_of(scene: Scene) -> list[AssignmentChanged]:
    """Return every assignment that was ever recorded."""
    return [record for record in scene.log if isinstance(record, AssignmentChanged)]


def test_no_assignment_gives_a_task_up_and_grants_one() -> None:
    relay = Relay(topology(12, stateless=5), num_standby_replicas=1, max_warmup_replicas=4)
    relay.step = COLD_LAG // 2
    relay.join("a", "b")
    relay.round()
    relay.join("c", "d")
    for _ in range(4):
        relay.round()
    relay.scene.do(DrainRequest(MemberId("a")))
    relay.count()
    for _ in range(6):
        relay.round()
    relay.leave("b")
    relay.play()
    held: dict[MemberId, set[TaskId]] = {}
    for one in assignments_of(relay.scene):
        had = held.setdefault(one.member_id, set())
        if one.revoked or one.demoted:
            assert set(one.granted) <= had
            assert not any(grant.role is Role.ACTIVE for grant in one.granted.values())
        had.difference_update(one.revoked)
        had.update(one.granted)


def test_grants_wait_until_everything_revoked_is_confirmed() -> None:
    scene = Scene()
    scene.declare(topology(0, stateless=4))
    scene.join("a")
    scene.join("b")
    scene.settle()
    mine, yours = TaskId(scene.held("a", Role.ACTIVE)[0]), TaskId(scene.held("b", Role.ACTIVE)[0])
    scene.do(PinRequest(mine, MemberId("b")))
    scene.do(PinRequest(yours, MemberId("a")))
    scene.tick()
    assert scene.member("a").revoking
    scene.obey("b")
    # Free, and chosen for a; but a has not said yet that it has stopped the other.
    assert scene.task(yours).handover.unreleased == ()
    assert scene.owners()[yours] is None
    scene.obey("a")
    assert scene.owners()[yours] == "a"
    assert scene.owners()[mine] == "b"


def test_each_member_converges_alone() -> None:
    scene = Scene()
    scene.declare(topology(0, stateless=6))
    for name in ("a", "b"):
        scene.join(name)
    scene.settle()
    scene.join("c")
    waiting = [task for task in scene.owners() if scene.task(task).handover.next_owner == "c"]
    assert {scene.task(task).handover.unreleased[0].member_id for task in waiting} == {"a", "b"}
    kept = scene.held("b", Role.ACTIVE)
    scene.obey("b")
    assert len(scene.held("c", Role.ACTIVE)) == 1
    assert scene.held("b", Role.ACTIVE) == kept
    scene.obey("c")
    assert scene.task(scene.held("c", Role.ACTIVE)[0]).state == "running"
    assert scene.member("a").revoking


def test_a_warmup_is_promoted_in_place() -> None:
    relay = Relay(topology(2))
    relay.join("a")
    relay.play()
    relay.join("b")
    relay.play()
    mine = [one for one in assignments_of(relay.scene) if one.member_id == "b"]
    roles = [[(task, grant.role) for task, grant in one.granted.items()] for one in mine]
    (task,) = relay.scene.held("b", Role.ACTIVE)
    assert roles == [[(task, Role.WARMUP)], [(task, Role.ACTIVE)]]
    assert not any(one.revoked or one.demoted for one in mine)


def test_a_standby_that_becomes_a_warmup_or_back_is_only_renamed() -> None:
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=100)
    for name in ("a", "b", "c"):
        scene.join(name)
    scene.settle()
    (old,) = scene.task("0_0").standbys
    scene.do(DrainRequest(old))
    new = next(name for name in "abc" if scene.held(name, Role.WARMUP))
    scene.obey(new)
    last = assignments_of(scene)[-1] if assignments_of(scene)[-1].member_id == new else assignments_of(scene)[-2]
    assert (last.member_id, last.revoked, last.demoted) == (new, (), ())
    assert [(task, grant.role) for task, grant in last.granted.items()] == [("0_0", Role.STANDBY)]
    assert not scene.member(new).revoking


def test_tokens_grow_with_every_grant_of_a_task() -> None:
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100)
    scene.join("a")
    scene.join("b")
    tokens = []
    for number in range(6):
        scene.do(PinRequest(TaskId("0_0"), MemberId("ab"[number % 2])))
        scene.settle()
        tokens.append(scene.task("0_0").token)
        assert scene.grant("ab"[number % 2], "0_0").token == tokens[-1]  # type: ignore[union-attr]
    assert tokens == sorted(set(tokens))


def test_the_final_position_of_the_old_owner_is_passed_to_the_new_one() -> None:
    scene = Scene()
    scene.declare(topology(0, stateless=2))
    scene.join("a")
    scene.obey()
    scene.join("b")
    (task,) = [one for one in scene.owners() if scene.task(one).handover.next_owner == "b"]
    reports: dict[str, TaskReport] = {one: running() for one in scene.member("a").assignment}
    reports[task] = TaskReport("none", final_position=(("", 905),))
    scene.beat("a", reports)
    grant = scene.grant("b", task)
    assert grant is not None
    assert grant.restore_to == (("", 905),)


def test_nothing_is_granted_before_the_hold_on_grants_ends_and_then_everything() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a")
    scene.obey()
    scene.do(StoreRecovered())
    scene.obey("a")
    scene.join("b")
    scene.tick(1_000)
    scene.obey("a")
    scene.beat("b", {})
    assert scene.member("b").assignment.get(TaskId("0_0")) is None
    assert scene.member("b").assignment.get(TaskId("0_1")) is None
    until_ms = scene.group.grants_from_ms
    assert until_ms > scene.now_ms
    while scene.now_ms < until_ms:
        scene.tick(5_000)
        scene.obey()
    assert scene.held("b", Role.WARMUP)


def test_a_full_member_takes_what_it_has_room_for_actives_first() -> None:
    scene = Scene()
    scene.declare(topology(3), num_standby_replicas=1)
    scene.join("a", max_tasks=2)
    scene.join("b")
    for _ in range(5):
        scene.tick(1_000)
        assert len(scene.member("a").assignment) <= 2
        scene.obey()
    assert len(scene.held("a", Role.ACTIVE)) >= 1
    assert None not in scene.owners().values()


def test_of_more_than_a_member_has_room_for_it_is_granted_the_active() -> None:
    """The standby comes first in the order of tasks."""
    one, other = MemberId("m1"), MemberId("m2")
    group, soft = to_group(Snapshot(tasks=tasks(2), members=(member(one, max_tasks=1), member(other))))
    first, second = (group.tasks[TaskId(name)] for name in ("0_0", "0_1"))
    task_plans = [
        TaskPlan(first, Choice(other, Why.STAYS), {one: Role.STANDBY}),
        TaskPlan(second, Choice(one, Why.STAYS), {other: Role.STANDBY}),
    ]
    changes = reconcile(View(group, soft, 0), task_plans)
    granted = {
        change.member_id: {task: grant.role for task, grant in change.granted.items()}
        for change in changes
        if isinstance(change, AssignmentChanged)
    }
    assert granted == {one: {second.id: Role.ACTIVE}, other: {first.id: Role.ACTIVE, second.id: Role.STANDBY}}


def test_a_claim_of_a_suspected_member_that_stops_at_its_lease_is_not_waived() -> None:
    """Only fenced outputs may be overtaken: with ``stop`` there is no suspicion, and the lease is waited for."""
    scene = Scene()
    scene.declare(topology(1), num_standby_replicas=1, acceptable_recovery_lag=100)
    scene.join("a", on_lease_lost=OnLeaseLost.STOP)
    scene.join("b", on_lease_lost=OnLeaseLost.STOP)
    scene.settle()
    owner = str(scene.task("0_0").owner)
    other = "b" if owner == "a" else "a"
    scene.do(Eviction(MemberId(owner)))
    scene.beat(other, {"0_0": copy("standby", 0)})
    assert scene.task("0_0").owner is None
    assert scene.task("0_0").handover.next_owner == other
    assert not any(isinstance(record, ReleaseWaived) for record in scene.log)


def test_assignments_list_tasks_in_their_order() -> None:
    relay = Relay(topology(12), num_standby_replicas=1, initial_rebalance_delay_ms=3_000)
    relay.join("a", "b")
    relay.play()
    index_of = relay.group.table.index_of
    for one in assignments_of(relay.scene):
        assert list(one.granted) == sorted(one.granted, key=index_of.__getitem__)
