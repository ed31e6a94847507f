"""Declaring, changing and deleting a group."""

from tests.core.scene import Scene, copy, topology
from tests.core.scenes import settled

from batonpass.core.decide import decide
from batonpass.core.state.errors import (
    Fenced,
    Gone,
    GroupNotEmpty,
    InvalidConfig,
    InvalidRequest,
    InvalidTopology,
    PreconditionFailed,
    PreconditionRequired,
    TooLarge,
    UnknownGroup,
)
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    Eviction,
    GroupDeclaration,
    GroupDeletion,
    Heartbeat,
    Join,
    Leave,
    PartitionCounts,
    PinRequest,
    ProbeRequest,
    TrustRequest,
)
from batonpass.core.state.model import Subtopology, Topology
from batonpass.core.state.policy import Policy
from batonpass.core.state.reasons import NoChange, Why
from batonpass.core.state.records import ConfigChanged, RebalanceScheduled, TargetPlaced, TopologyChanged
from batonpass.core.state.replies import Declared, Done

G = GroupId("g")
M1, M2 = MemberId("m1"), MemberId("m2")
SESSION_MS = 45_000


def test_a_declaration_creates_a_group_and_a_second_needs_its_revision() -> None:
    scene = Scene()
    created = scene.ok(GroupDeclaration(G, topology(), None), Declared)
    assert created == Declared(created=True, revision=1)
    group = scene.group
    scene.refused(GroupDeclaration(G, None, {"num_standby_replicas": 1}), PreconditionRequired)
    scene.refused(GroupDeclaration(G, None, {"num_standby_replicas": 1}, if_match=2), PreconditionFailed)
    assert scene.group is group
    changed = scene.ok(GroupDeclaration(G, None, {"num_standby_replicas": 1}, if_match=1), Declared)
    assert changed == Declared(created=False, revision=2)
    scene.refused(GroupDeclaration(G, None, {"num_standby_replicas": 2}, if_match=1), PreconditionFailed)


def test_a_revision_of_a_group_that_is_not_there_matches_nothing() -> None:
    """A change to a group that was deleted meanwhile must not create it (RFC 9110, 13.1.1)."""
    scene = Scene()
    scene.refused(GroupDeclaration(G, topology(), None, if_match=1), PreconditionFailed)
    assert not scene.group.declared


def test_a_change_that_changes_nothing_records_nothing() -> None:
    scene = settled(2, 4)
    group = scene.group
    reply = scene.ok(GroupDeclaration(G, topology(4), {"num_standby_replicas": 0}, group.revision), Declared)
    assert scene.group is group
    assert reply.revision == group.revision


def test_a_new_group_needs_a_topology() -> None:
    scene = Scene()
    assert [path for path, _ in scene.refused(GroupDeclaration(G, None, {}), InvalidTopology).errors] == ["topology"]
    scene.refused(GroupDeclaration(G, topology(), {"session_timeout_ms": 1}), InvalidConfig)
    scene.refused(GroupDeclaration(G, topology(epoch=-1), None), InvalidTopology)
    assert scene.log == []


def test_a_refused_change_changes_nothing() -> None:
    scene = settled(2, 4)
    group, revision = scene.group, scene.group.revision
    scene.refused(GroupDeclaration(G, topology(3, epoch=2), None, revision), InvalidTopology)
    scene.refused(GroupDeclaration(G, topology(4, epoch=0), None, revision), InvalidTopology)
    scene.refused(GroupDeclaration(G, None, {"session_timeout_ms": 9_999}, revision), InvalidConfig)
    scene.refused(GroupDeclaration(G, topology(9, epoch=2), {"nope": 1}, revision), InvalidConfig)
    assert scene.group is group


def test_a_group_has_a_documented_most_of_tasks() -> None:
    scene = Scene(policy=Policy(max_tasks=4))
    scene.refused(GroupDeclaration(G, topology(5), None), TooLarge)
    scene.declare(topology(4))
    scene.refused(GroupDeclaration(G, topology(4, stateless=1), None, scene.group.revision), TooLarge)


def test_a_session_shorter_than_two_coordinator_leases_is_warned_of() -> None:
    scene = Scene()
    config = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_500}
    assert "6000" in scene.ok(GroupDeclaration(G, topology(), config), Declared).warnings[0]
    assert scene.ok(GroupDeclaration(G, None, {"session_timeout_ms": 10_000}, 1), Declared).warnings == ()


def test_more_partitions_are_more_tasks() -> None:
    scene = Scene()
    scene.declare(Topology(1, (Subtopology("0", None, source_topics=("a", "b")),)))
    scene.join("m1")
    assert ("topology-not-ready") in [code for code, _ in scene.beat("m1", {}).status]  # type: ignore[union-attr]
    assert scene.owners() == {}
    scene.ok(PartitionCounts({"a": 2, "b": 1}), Done)
    assert scene.of(TopologyChanged)
    scene.join("m2")
    scene.settle()
    owners = scene.owners()
    assert sorted(map(str, owners.values())) == ["m1", "m2"]
    scene.do(PartitionCounts({"a": 4}))
    scene.settle()
    assert sorted(map(str, scene.owners().values())) == ["m1", "m1", "m2", "m2"]
    assert {task: scene.owners()[task] for task in owners} == owners


def test_fewer_partitions_in_kafka_change_nothing() -> None:
    scene = Scene()
    scene.do(PartitionCounts({"a": 4}))
    scene.declare(Topology(1, (Subtopology("0", 3, source_topics=("a",)),)))
    group = scene.group
    scene.do(PartitionCounts({"a": 1, "z": 9}))
    assert scene.group is group


def test_new_parts_wait_for_members_that_know_them() -> None:
    """Protocol 3.3."""
    scene = Scene()
    scene.declare(topology(2))
    scene.join("m1", topology_epoch=1)
    scene.settle()
    scene.change(topology(2, epoch=2, more=(Subtopology("n", 2),)))
    for _ in range(3):
        scene.tick(1_000)
        scene.obey()
    assert scene.owners() == {"0_0": "m1", "0_1": "m1", "n_0": None, "n_1": None}
    assert {scene.task("n_0").target.waiting_reason, scene.task("n_1").target.waiting_reason} == {"stale-topology"}
    assert "stale-topology" in [code for code, _ in scene.beat("m1").status]  # type: ignore[union-attr]
    scene.join("m2", topology_epoch=2)
    scene.settle()
    assert (scene.owners()["n_0"], scene.owners()["n_1"]) == ("m2", "m2")
    assert "stale-topology" not in [code for code, _ in scene.beat("m2").status]  # type: ignore[union-attr]


def test_what_gives_way_to_newer_tasks_says_why() -> None:
    scene = Scene()
    scene.declare(topology(3))
    for name, epoch in (("a", 1), ("b", 1), ("c", 2)):
        scene.join(name, topology_epoch=epoch)
    scene.settle()
    (given,) = [task for task, owner in scene.owners().items() if owner == "c"]
    scene.change(topology(3, epoch=2, more=(Subtopology("n", 4),)))
    assert scene.last is not None
    assert next(reason.code for reason in scene.last.reasons if reason.task == given) is Why.TOPOLOGY


def test_a_changed_part_does_not_stop_who_runs_it() -> None:
    """What runs goes on (L6); what has to move goes only to members that know the change."""
    scene = Scene()
    scene.declare(topology(2))
    scene.join("m1", topology_epoch=1)
    scene.settle()
    scene.change(Topology(2, (Subtopology("0", 2, weight=5.0),)))
    for _ in range(3):
        scene.tick(1_000)
        scene.obey()
    assert scene.owners() == {"0_0": "m1", "0_1": "m1"}
    scene.join("m2", topology_epoch=1)
    scene.settle(60)
    assert scene.owners() == {"0_0": "m1", "0_1": "m1"}
    scene.do(Leave(M2))
    scene.join("m3", topology_epoch=2)
    scene.settle(60)
    assert sorted(map(str, scene.owners().values())) == ["m1", "m3"]
    scene.do(Leave(M1))
    scene.settle(60)
    assert set(scene.owners().values()) == {"m3"}


def test_a_program_that_does_not_know_a_part_takes_none_of_its_tasks_over() -> None:
    """A deploy is rolled back on one member, which finds the newer program's state on its disk."""
    scene = Scene()
    scene.declare(topology(1))
    scene.join("m1", topology_epoch=1)
    scene.change(topology(1, epoch=2, more=(Subtopology("n", 1),)))
    scene.join("m2", topology_epoch=2)
    scene.settle()
    assert scene.owners() == {"0_0": "m1", "n_0": "m2"}
    scene.join("m4", topology_epoch=2)
    scene.settle()
    scene.join("m3", {"n_0": copy("none", 0)}, topology_epoch=1)
    scene.do(Leave(M2))
    scene.tick(1_000)
    assert scene.owners()["n_0"] == "m4"
    scene.settle()
    assert scene.owners() == {"0_0": "m1", "n_0": "m4"}


def test_a_part_taken_out_is_given_up() -> None:
    scene = Scene()
    scene.declare(topology(2, more=(Subtopology("n", 1),)))
    scene.join("m1")
    scene.settle()
    scene.change(topology(2, epoch=2))
    assert "n_0" not in scene.member("m1").assignment
    scene.obey()
    assert not scene.member("m1").revoking
    assert "n_0" not in scene.group.tasks
    scene.settle()
    scene.change(topology(2, epoch=3, more=(Subtopology("n", 1),)))
    scene.join("m2", topology_epoch=3)
    scene.settle()
    assert scene.task("n_0").token > 1, "those of the tasks that have ended"


def test_a_part_taken_out_ends_with_the_member_that_ran_it() -> None:
    """Its lease is over, so that nobody is left who could run it."""
    scene = Scene()
    scene.declare(topology(2, more=(Subtopology("n", 1),)))
    scene.join("m1")
    scene.settle()
    scene.change(topology(2, epoch=2))
    assert "n_0" in scene.group.tasks
    scene.wait(100_000)
    assert not scene.group.members
    assert set(scene.group.tasks) == set(scene.group.table.ids)


def test_a_config_change_is_looked_at_as_one_change() -> None:
    scene = settled(2, 4, rebalance_batch_ms=50)
    scene.change(num_standby_replicas=1)
    assert len(scene.of(ConfigChanged)) == 1
    assert [record.trigger for record in scene.of(RebalanceScheduled)] == ["config"]
    scene.tick(50)
    assert scene.of(TargetPlaced)


def test_only_an_empty_group_is_deleted_without_force() -> None:
    """Protocol 2.5."""
    scene = settled(2, 4)
    assert "m1, m2" in scene.refused(GroupDeletion(), GroupNotEmpty).detail
    scene.do(Leave(M1))
    scene.do(Leave(M2))
    scene.ok(GroupDeletion(), Done)
    assert not scene.group.declared
    scene.refused(GroupDeletion(), UnknownGroup)


def test_an_empty_group_created_again_grants_at_once() -> None:
    """Every member has left, so that none can be running anything."""
    scene = settled(1, 4)
    scene.do(Leave(M1))
    scene.do(GroupDeletion())
    scene.declare()
    scene.join("m3")
    assert set(scene.owners().values()) == {"m3"}


def test_a_group_created_again_goes_on_from_its_tombstone() -> None:
    """Protocol 2.5."""
    scene = settled(2, 4)
    scene.change(session_timeout_ms=60_000)
    scene.change(session_timeout_ms=10_000)
    before = scene.group
    tokens = {task: scene.task(task).token for task in before.table.ids}
    deleted_ms = scene.now_ms
    scene.ok(GroupDeletion(force=True), Done)
    scene.refused(Heartbeat(M1, 99, 9), UnknownGroup)
    scene.declare(topology(4))
    assert scene.group.group_epoch >= before.group_epoch
    assert scene.group.generation >= before.generation
    assert scene.group.revision > before.revision
    scene.refused(Heartbeat(M1, 99, 9), Fenced)
    scene.refused(Join(M1), Gone)
    scene.join("m3")
    for _ in range(19):
        scene.wait(3_000)
        scene.obey("m3")
        assert set(scene.owners().values()) == {None}
    scene.wait(deleted_ms + 60_000 - 1 - scene.now_ms)
    assert set(scene.owners().values()) == {None}
    scene.wait(1)
    assert set(scene.owners().values()) == {"m3"}
    assert all(scene.task(task).token > token for task, token in tokens.items())
    assert scene.group.generation > before.generation


def test_a_deletion_waits_for_the_lease_of_somebody_evicted_before() -> None:
    scene = settled(1, 4)
    scene.do(Eviction(M1))
    scene.do(GroupDeletion())
    assert scene.group.grants_from_ms == scene.now_ms + SESSION_MS


def test_a_deleted_group_may_come_back_smaller() -> None:
    scene = settled(1, 4)
    scene.do(Leave(M1))
    scene.do(GroupDeletion())
    scene.declare(topology(1, epoch=0))
    scene.join("m3")
    assert scene.owners() == {"0_0": "m3"}
    assert scene.task("0_0").token > 1


def test_a_group_that_has_no_tasks_yet_has_none_to_pin() -> None:
    scene = Scene()
    scene.declare(Topology(1, (Subtopology("0", None, source_topics=("orders",)),)))
    refused = scene.refused(PinRequest(TaskId("0_0"), None), InvalidRequest)
    assert refused.detail == "group g has no task 0_0"


def test_nobody_of_a_deleted_group_is_trusted_again() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("m1", instance_id=InstanceId("pod-1"))
    scene.do(Leave(M1))
    scene.ok(GroupDeletion(), Done)
    scene.refused(TrustRequest(M1), UnknownGroup)


def test_a_failed_placement_is_recorded_once_for_each_change() -> None:
    def broken(*_: object) -> object:
        raise ValueError("no answer")

    scene = settled(2, 4)
    scene.join("m3")
    first = decide(scene.group, scene.soft, (ProbeRequest(),), scene.now_ms, scene.policy, broken)  # type: ignore[arg-type]
    again = decide(first.after, first.soft, (ProbeRequest(),), scene.now_ms, scene.policy, broken)  # type: ignore[arg-type]
    assert NoChange.PLACEMENT_FAILED in {reason.code for reason in again.reasons}
    assert TargetPlaced not in {type(record) for record in again.records}
