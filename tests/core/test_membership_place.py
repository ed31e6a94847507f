"""Whose place a newcomer takes: replacing, instance ids, takeover; and how joins are gathered."""

from tests.core.scene import Scene, copy, restoring, running, topology
from tests.core.scenes import alone, both

from batonpass.core.state.errors import (
    Fenced,
    FencedInstanceId,
    Gone,
    InstanceIdInUse,
    LimitExceeded,
)
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    Eviction,
    Heartbeat,
    Join,
    Leave,
    Started,
)
from batonpass.core.state.model import Cause, GoneMember, Role
from batonpass.core.state.policy import Policy
from batonpass.core.state.records import MemberGone, MemberJoined, TargetPlaced
from batonpass.core.state.replies import Answer, Done
from batonpass.core.state.soft import TaskReport

M1, M2, M3 = MemberId("m1"), MemberId("m2"), MemberId("m3")
I1 = InstanceId("i1")
SESSION_MS = 45_000


def test_a_replacement_has_the_tasks_at_once_under_new_tokens() -> None:
    """``replaces`` says that the old run has stopped (protocol 3.6 and protocol 3.8)."""
    scene = alone()
    tokens = {task: scene.task(task).token for task in scene.group.table.ids}
    generation = scene.group.generation
    reply = scene.join("m2", replaces=M1)
    assert reply.assignment is not None
    assert {task: grant.role for task, grant in reply.assignment.items()} == dict.fromkeys(tokens, Role.ACTIVE)
    assert all(grant.token > tokens[task] for task, grant in reply.assignment.items())
    assert scene.group.generation == generation  # it stands where the old run stood: nothing is placed anew
    assert scene.group.gone[M1].cause is Cause.REPLACED
    scene.refused(Heartbeat(M1, 9, 2), Fenced)


def test_a_replacement_of_another_size_is_placed_anew() -> None:
    for fields in (
        {"capacity": 2.0},
        {"max_tasks": 5},
        {"client_tags": {"zone": "b"}},
        {"topology_epoch": 9},
    ):
        scene = both()
        epoch = scene.group.group_epoch
        scene.join("m3", replaces=M1, **fields)
        assert scene.group.group_epoch == epoch + 1, fields


def test_a_replacement_frees_what_a_fenced_run_still_claimed() -> None:
    scene = both()
    task = next(task for task, owner in scene.owners().items() if owner == "m1")
    scene.do(Eviction(M1))
    assert scene.task(task).owner is None
    assert [entry.member_id for entry in scene.task(task).handover.unreleased] == ["m1"]
    scene.join("m3", replaces=M1)
    assert scene.task(task).handover.unreleased == ()
    assert scene.task(task).owner is not None


def test_replacing_an_unknown_or_departed_run_is_ignored() -> None:
    scene = both()
    scene.do(Leave(M2))
    assert scene.join("m3", replaces=M2).created
    assert scene.join("m4", replaces=MemberId("never")).created


def test_a_run_of_another_instance_cannot_be_replaced() -> None:
    scene = alone(I1)
    group = scene.group
    scene.refused(Join(M2, replaces=M1), InstanceIdInUse)
    scene.refused(Join(M2, replaces=M1, instance_id=InstanceId("i2")), InstanceIdInUse)
    assert scene.group is group


def test_claims_of_another_instance_are_not_released() -> None:
    scene = alone(I1)
    scene.do(Eviction(M1))
    scene.join("m2", replaces=M1, instance_id=InstanceId("i2"))
    assert all(scene.task(task).handover.unreleased for task in scene.group.table.ids)
    scene.join("m3", replaces=M1)
    assert all(scene.task(task).handover.unreleased for task in scene.group.table.ids)


def test_a_live_instance_is_refused_until_its_lease_is_over() -> None:
    scene = alone(I1)
    scene.now_ms += 5_000
    refused = scene.refused(Join(M2, instance_id=I1), InstanceIdInUse)
    assert refused.retry_after_ms == SESSION_MS - 5_000
    scene.now_ms += SESSION_MS
    assert scene.refused(Join(M2, instance_id=I1), InstanceIdInUse).retry_after_ms == 1
    scene.tick()  # the look comes late, so nobody is judged by this silence
    scene.tick(SESSION_MS)
    assert scene.join("m2", instance_id=I1).created


def test_the_wait_for_a_live_instance_counts_from_the_start_of_the_coordinator() -> None:
    scene = alone(I1)
    scene.soft = type(scene.soft)()
    scene.now_ms += 100_000
    scene.do(Started())
    scene.now_ms += 1_000
    assert scene.refused(Join(M2, instance_id=I1), InstanceIdInUse).retry_after_ms == SESSION_MS - 1_000


def test_a_takeover_continues_with_the_tasks_and_without_a_placement() -> None:
    """A takeover vouches that the old run is dead (protocol 3.7 and protocol 3.8)."""
    scene = alone(I1)
    generation, epoch = scene.group.generation, scene.group.group_epoch
    reply = scene.join("m2", instance_id=I1, takeover=True)
    assert scene.owners() == {"0_0": "m2", "0_1": "m2"}
    assert reply.assignment is not None
    assert {grant.token for grant in reply.assignment.values()} == {2}
    assert (scene.group.generation, scene.group.group_epoch) == (generation, epoch)
    assert not scene.of(TargetPlaced)
    assert scene.group.gone[M1]._replace(since_ms=None) == GoneMember(scene.now_ms, Cause.TAKEN_OVER, scene.now_ms, I1)
    scene.refused(Heartbeat(M1, 9, 2), FencedInstanceId)
    assert scene.group.instances == {"i1": "m2"}


def test_a_takeover_without_a_holder_is_a_plain_join() -> None:
    scene = alone()
    assert scene.join("m2", instance_id=I1, takeover=True).created
    assert scene.group.instances == {"i1": "m2"}


def test_a_takeover_vouches_for_a_fenced_run_of_its_instance() -> None:
    scene = alone(I1)
    scene.do(Eviction(M1))
    assert scene.join("m2", instance_id=I1).assignment == {}
    assert scene.owners() == {"0_0": None, "0_1": None}
    scene.join("m3", instance_id=I1, takeover=True)
    assert set(scene.owners().values()) == {"m3"}


def test_an_operator_may_vouch_for_the_death_of_a_fenced_run() -> None:
    scene = both()
    task = next(task for task, owner in scene.owners().items() if owner == "m1")
    scene.do(Eviction(M1))
    scene.refused(Eviction(M1), Fenced)
    assert scene.task(task).owner is None
    scene.ok(Eviction(M1, dead=True), Done)
    assert scene.task(task).owner == "m2"
    scene.refused(Eviction(M1, dead=True), Fenced)


def test_an_instance_has_one_living_holder() -> None:
    scene = Scene()
    scene.declare(topology(4))
    scene.join("m1")
    scene.join("m2", instance_id=I1)
    scene.settle()
    scene.join("m3", instance_id=I1, takeover=True, replaces=M1)
    assert set(scene.group.members) == {"m3"}
    assert scene.group.gone[M1].cause is Cause.REPLACED
    assert scene.group.gone[M2].cause is Cause.TAKEN_OVER
    scene.settle()
    assert set(scene.owners().values()) == {"m3"}


def test_replacing_one_run_brings_back_the_place_of_an_instance_that_restarts() -> None:
    scene = Scene()
    scene.declare(topology(4))
    scene.join("m1")
    scene.join("m2", instance_id=I1)
    scene.settle()
    scene.do(Leave(M2, restart=True))
    scene.join("m3", instance_id=I1, replaces=M1)
    assert set(scene.group.members) == {"m3"}
    scene.settle()
    assert set(scene.owners().values()) == {"m3"}


def test_a_full_group_takes_nobody_but_a_replacement() -> None:
    scene = Scene(policy=Policy(max_members=2))
    scene.declare()
    scene.join("m1", instance_id=I1)
    scene.join("m2")
    scene.refused(Join(M3), LimitExceeded)
    assert scene.join("m4", replaces=M2).created
    scene.do(Leave(M1, restart=True))
    assert scene.join("m5", instance_id=I1).created
    assert set(scene.group.members) == {"m4", "m5"}


def test_leaving_frees_the_tasks_at_once() -> None:
    scene = both()
    scene.ok(Leave(M2), Done)
    assert set(scene.owners().values()) == {"m1"}
    assert scene.group.gone[M2].cause is Cause.LEFT
    scene.refused(Leave(M2), Gone)


def test_an_eviction_waits_for_the_lease() -> None:
    """Protocol 9.4."""
    scene = both()
    scene.now_ms += 5_000
    scene.obey("m1")
    task = next(task for task, owner in scene.owners().items() if owner == "m2")
    heard_ms = scene.soft.members[M2].heard_ms
    scene.ok(Eviction(M2), Done)
    assert [(one.member_id, one.free_at_ms) for one in scene.task(task).handover.unreleased] == [
        ("m2", heard_ms + SESSION_MS)
    ]
    scene.now_ms = heard_ms + SESSION_MS - 1
    scene.obey("m1")
    scene.tick()
    assert scene.task(task).owner is None
    scene.tick(1)
    assert scene.task(task).owner == "m1"


def test_an_eviction_of_the_dead_frees_the_tasks_at_once() -> None:
    """Protocol 9.4."""
    scene = both()
    scene.ok(Eviction(M2, dead=True), Done)
    assert set(scene.owners().values()) == {"m1"}
    assert scene.of(MemberGone) == [MemberGone(M2, Cause.EVICTED, scene.now_ms, scene.now_ms, scene.now_ms)]


def test_evicting_a_member_whose_lease_is_over_waits_for_nothing() -> None:
    scene = both()
    scene.now_ms += SESSION_MS - 10
    scene.obey("m1")
    scene.now_ms += 20
    scene.do(Eviction(M2))
    assert set(scene.owners().values()) == {"m1"}


def test_several_joins_make_one_generation() -> None:
    scene = Scene()
    scene.declare(topology(6), rebalance_batch_ms=50)
    scene.join("m1")
    scene.tick()
    scene.obey()
    generation = scene.group.generation
    for name in ("m2", "m3"):
        scene.join(name)
        scene.tick(20)
        assert scene.group.generation == generation
    assert scene.last is not None
    assert scene.last.wake_at_ms == scene.now_ms + 10
    scene.tick(10)
    assert scene.group.generation == generation + 1
    assert {scene.task(task).target.owner for task in scene.group.table.ids} == {"m1", "m2", "m3"}


def test_the_first_join_waits_for_others() -> None:
    scene = Scene()
    scene.declare(topology(4), initial_rebalance_delay_ms=3_000, rebalance_batch_ms=50)
    scene.join("m1")
    scene.tick(500)
    scene.join("m2")
    scene.tick(2_499)
    assert scene.group.generation == 0
    scene.tick(1)
    assert scene.group.generation == 1
    assert sorted(map(str, scene.owners().values())) == ["m1", "m1", "m2", "m2"]
    # A later join into a group that has members waits for the batch alone.
    scene.join("m3")
    scene.tick(50)
    assert scene.group.generation == 2


def test_state_on_disk_counts_at_the_first_placement() -> None:
    scene = Scene()
    scene.declare(topology(4), initial_rebalance_delay_ms=3_000)
    scene.join("m1", {"0_1": copy("none", 0), "0_2": copy("none", 0), "9_9": copy("none", 0)})
    second = scene.join("m2", {"0_0": copy("none", 0), "0_3": copy("none", 0), "8_8": copy("none", 0)})
    assert ("unknown-task", "8_8 is not a task of this group") in second.status
    scene.tick(3_000)
    assert scene.owners() == {"0_0": "m2", "0_1": "m1", "0_2": "m1", "0_3": "m2"}


def test_fields_unknown_to_the_coordinator_are_named_in_the_status() -> None:
    scene = Scene()
    scene.declare()
    reply = scene.ok(Join(M1, unknown_fields=("colour",)), Answer)
    assert [code for code, _ in reply.status] == ["unknown-field"]
    assert "colour" in reply.status[0][1]


def test_a_newcomer_gets_what_others_give_up_and_nothing_else_moves() -> None:
    scene = alone(partitions=4)
    scene.join("m2")
    assert scene.held("m1", Role.ACTIVE) == ["0_0", "0_1", "0_2", "0_3"]
    assert len(scene.held("m2", Role.WARMUP)) == 2
    scene.settle()
    assert len(scene.held("m2", Role.ACTIVE)) == len(scene.held("m1", Role.ACTIVE)) == 2


def test_a_join_records_the_profile_once() -> None:
    scene = alone()
    scene.join("m2", {"0_0": TaskReport("none", lag=4)})
    assert [record.member.id for record in scene.of(MemberJoined)] == ["m2"]
    assert scene.soft.members[M2].reports[TaskId("0_0")].lag == 4


def test_a_cold_start_is_restoring_before_it_runs() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("m1")
    assert scene.task("0_0").state == "granted"
    scene.beat("m1", {"0_0": restoring(9)})
    assert scene.task("0_0").state == "restoring"
    scene.beat("m1", {"0_0": running()})
    assert scene.task("0_0").state == "running"
