"""Who is in the group: joining, lost replies, used ids, leaving, being put out."""

import pytest
from tests.core.scene import Scene, copy, topology
from tests.core.scenes import alone, both

from batonpass.core.arrivals.membership import LEFT_BEFORE_JOINING_MAX
from batonpass.core.state.errors import (
    Fenced,
    FencedInstanceId,
    Gone,
    ProtocolError,
    UnknownGroup,
    UnknownMember,
)
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    Heartbeat,
    Input,
    Join,
    Leave,
)
from batonpass.core.state.model import Grant, Member, OnLeaseLost, Role
from batonpass.core.state.replies import Answer

M1, M2, M3 = MemberId("m1"), MemberId("m2"), MemberId("m3")
I1 = InstanceId("i1")
SESSION_MS = 45_000


def test_a_join_makes_a_member_with_everything_that_it_said() -> None:
    scene = Scene()
    scene.declare(topology(epoch=7), initial_rebalance_delay_ms=3_000)
    first = scene.join(
        "m1",
        instance_id=I1,
        capacity=4.0,
        max_tasks=40,
        client_tags={"zone": "a", "cluster": "b"},
        topology_epoch=5,
        on_lease_lost=OnLeaseLost.CONTINUE,
        endpoint="http://10.0.0.7:9000",
    )
    scene.join("m2")
    assert scene.member("m1") == Member(
        id=M1,
        joined_ms=scene.now_ms,
        instance_id=I1,
        capacity=4.0,
        max_tasks=40,
        client_tags={"cluster": "b", "zone": "a"},
        topology_epoch=5,
        on_lease_lost=OnLeaseLost.CONTINUE,
        endpoint="http://10.0.0.7:9000",
        epoch=1,
    )
    assert scene.member("m2") == Member(id=M2, joined_ms=scene.now_ms, topology_epoch=7, epoch=1)
    assert first == Answer(
        member_id=M1,
        seq=0,
        member_epoch=1,
        generation=0,
        heartbeat_interval_ms=3_000,
        report_interval_ms=10_000,
        session_timeout_ms=SESSION_MS,
        acceptable_recovery_lag=10_000,
        acceptable_catchup_ms=None,
        topology_epoch=5,
        report=None,
        assignment={},
        status=(("stale-topology", "this member knows topology epoch 5, tasks need 7"),),
        created=True,
    )


def test_the_answer_to_a_join_shows_what_it_brought() -> None:
    scene = Scene()
    scene.declare()
    reply = scene.join("m1")
    assert reply.member_epoch == 2
    assert reply.assignment == {
        "0_0": Grant(Role.ACTIVE, 2, scene.now_ms, 1),
        "0_1": Grant(Role.ACTIVE, 2, scene.now_ms, 1),
    }


def test_a_lost_reply_is_answered_with_the_present_assignment() -> None:
    """A PUT on a live id is a join whose reply was lost (protocol 3.4)."""
    scene = alone()
    group = scene.group
    scene.now_ms += 1_000
    again = scene.ok(Join(M1, capacity=9.0, instance_id=I1, tasks={TaskId("0_0"): copy("none", 3)}), Answer)
    assert scene.group is group
    assert not again.created
    assert again.assignment == scene.member("m1").assignment
    assert again.member_epoch == scene.member("m1").epoch


def test_a_lost_reply_counts_as_a_heartbeat() -> None:
    """Protocol 3.4."""
    scene = alone()
    scene.wait(30_000)
    scene.do(Join(M1))
    scene.wait(SESSION_MS - 1)
    assert "m1" in scene.group.members
    scene.tick(1)
    assert "m1" not in scene.group.members


def test_a_lost_reply_after_a_restart_asks_for_a_full_report() -> None:
    scene = alone()
    scene.soft = type(scene.soft)()
    assert scene.ok(Join(M1), Answer).report == "full"


GOING: list[tuple[str, Input, type[ProtocolError]]] = [
    ("left", Leave(M1), Gone),
    ("restarts", Leave(M1, restart=True), Gone),
    ("evicted", Eviction(M1), Fenced),
    ("replaced", Join(M2, replaces=M1, instance_id=I1), Fenced),
    ("taken over", Join(M2, takeover=True, instance_id=I1), FencedInstanceId),
]


@pytest.mark.parametrize(("name", "going", "error"), GOING, ids=[row[0] for row in GOING])
def test_an_id_that_is_gone_is_refused_everywhere(name: str, going: Input, error: type[ProtocolError]) -> None:
    scene = alone(I1)
    scene.do(going)
    version = scene.group.version
    for item in (
        Heartbeat(M1, 99, scene.group.members[M1].epoch if M1 in scene.group.members else 2),
        Leave(M1),
        DrainRequest(M1),
        DrainReversal(M1),
    ):
        scene.refused(item, error)
    scene.refused(Join(M1, instance_id=I1), Gone)
    assert scene.group.version == version, name


def test_an_expired_id_is_fenced_with_the_reason() -> None:
    scene = alone()
    scene.tick(SESSION_MS)
    assert "lease ran out" in scene.refused(Heartbeat(M1, 9, 2), Fenced).detail
    scene.refused(Join(M1), Gone)


def test_ids_never_seen_are_unknown() -> None:
    scene = alone()
    empty = Scene()
    for item in (Heartbeat(M3, 1, 1), Leave(M3), DrainRequest(M3), DrainReversal(M3), Eviction(M3)):
        scene.refused(item, UnknownMember)
        empty.refused(item, UnknownGroup)
    empty.refused(Join(M3), UnknownGroup)


def test_a_goodbye_that_overtakes_its_own_join_leaves_no_ghost() -> None:
    """A worker that joins and goes at once may be heard in the other order."""
    scene = alone()
    scene.refused(Leave(M3), UnknownMember)
    assert "before its join arrived" in scene.refused(Join(M3), Gone).detail
    assert M3 not in scene.group.members
    assert scene.last is not None
    assert scene.last.records == ()


def test_of_goodbyes_without_a_join_the_newest_are_remembered() -> None:
    """Goodbyes under any number of names must not fill the memory."""
    scene = alone()
    for number in range(LEFT_BEFORE_JOINING_MAX + 5):
        scene.now_ms += 1
        scene.do(Leave(MemberId(f"x{number}")))
    assert len(scene.soft.left_before_joining) == LEFT_BEFORE_JOINING_MAX
    scene.refused(Join(MemberId("x104")), Gone)
    scene.join("x4")
    scene.now_ms += scene.policy.gone_retention_ms
    scene.do(Leave(M3))
    assert list(scene.soft.left_before_joining) == ["x104", M3]


def test_used_ids_are_remembered_for_at_least_a_day() -> None:
    """Protocol 3.5."""
    scene = both()
    scene.do(Leave(M2))
    left_ms = scene.now_ms
    while scene.now_ms < left_ms + 86_400_000:
        scene.now_ms += 20_000_000
        scene.obey("m1")
        scene.tick()
        scene.refused(Join(M2), Gone)
    scene.now_ms = left_ms + scene.policy.gone_retention_ms + 1
    scene.obey("m1")
    scene.tick()
    assert M2 not in scene.group.gone
