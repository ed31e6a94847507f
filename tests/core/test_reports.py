"""What members say: sequence numbers, epochs, confirmations, final positions, states."""

from dataclasses import dataclass, fields

import pytest
from tests.core.scene import Scene, copy, failed, restoring, running, topology
from tests.core.scenes import settled

from batonpass.core.arrivals.reports import count_as_heard
from batonpass.core.decide import Decision
from batonpass.core.state.errors import StaleMemberEpoch, TooLarge
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import EndOffsets, Heartbeat, Input, Join, Leave, PollBroken, PollOpened, Tick
from batonpass.core.state.model import ActiveState, Grant, Role
from batonpass.core.state.policy import Policy
from batonpass.core.state.records import ActiveReported, AssignmentChanged, TaskReleased
from batonpass.core.state.replies import Answer
from batonpass.core.state.soft import MemberSoft, Soft, TaskReport

M1, M2 = MemberId("m1"), MemberId("m2")
T0 = TaskId("0_0")


def moving() -> tuple[Scene, TaskId]:
    """Return a scene in which m1 was told, at epoch 3, to hand a task over to m2, and the task."""
    scene = settled(1)
    scene.join("m2")
    scene.obey("m2")
    (task,) = scene.member("m1").revoking
    assert scene.member("m1").revoking[task].epoch == scene.member("m1").epoch == 3
    assert scene.task(task).handover.next_owner == "m2"
    return scene, task


def full_report(scene: Scene, task: TaskId, report: TaskReport | None) -> dict[str, TaskReport]:
    """Return m1's report: its other task runs, and of the task that it gives up this."""
    others = {one: running() for one in scene.held("m1", Role.ACTIVE)}
    return others if report is None else others | {str(task): report}


def test_a_heartbeat_at_the_present_epoch_gets_no_assignment() -> None:
    scene = settled(1)
    reply = scene.ok(Heartbeat(M1, 50, scene.member("m1").epoch), Answer)
    assert (reply.seq, reply.member_epoch, reply.assignment) == (50, scene.member("m1").epoch, None)


def test_a_heartbeat_below_the_present_epoch_gets_the_whole_assignment() -> None:
    scene, task = moving()
    reply = scene.ok(Heartbeat(M1, 50, 2), Answer)
    assert reply.assignment == scene.member("m1").assignment
    assert reply.assignment is not None
    assert reply.assignment[task].role is Role.STANDBY


def test_late_and_doubled_heartbeats_change_nothing() -> None:
    """Protocol 4.2."""
    scene = settled(1)
    epoch = scene.member("m1").epoch
    scene.do(Heartbeat(M1, 50, epoch, {TaskId("0_0"): running(), TaskId("0_1"): running()}))
    group, reports = scene.group, scene.soft.members[M1].reports
    for late in (
        Heartbeat(M1, 50, epoch, {T0: failed()}),
        Heartbeat(M1, 49, epoch, {}),
        Heartbeat(M1, 3, 0, {T0: running(lost=True)}),
        Heartbeat(M1, 50, epoch + 9, {T0: running(token=99)}),
    ):
        reply = scene.ok(late, Answer)
        assert scene.group is group
        assert scene.soft.members[M1].reports == reports
        assert (reply.seq, reply.member_epoch, reply.assignment) == (50, epoch, scene.member("m1").assignment)


def test_an_epoch_below_one_that_was_echoed_is_stale() -> None:
    scene, task = moving()
    scene.beat("m1", full_report(scene, task, running()), epoch=3)
    group = scene.group
    refused = scene.refused(Heartbeat(M1, 60, 2, {}), StaleMemberEpoch)
    assert scene.group is group
    assert isinstance(refused.answer, Answer)
    assert refused.answer.member_epoch == 3
    assert refused.answer.assignment == scene.member("m1").assignment
    # It was not processed: the same seq is taken when it comes with the present epoch.
    scene.do(Heartbeat(M1, 60, 3, {}))
    assert scene.soft.members[M1].seq == 60


def test_a_revocation_is_confirmed_only_at_its_epoch() -> None:
    scene, task = moving()
    scene.beat("m1", full_report(scene, task, None), epoch=2)
    assert task in scene.member("m1").revoking
    assert scene.task(task).owner is None
    scene.beat("m1", full_report(scene, task, None), epoch=3)
    assert task not in scene.member("m1").revoking
    assert scene.task(task).owner == "m2"


def test_a_heartbeat_without_tasks_confirms_nothing() -> None:
    scene, task = moving()
    scene.beat("m1", full_report(scene, task, running()), epoch=3)
    scene.beat("m1", None, epoch=3)
    assert task in scene.member("m1").revoking
    assert scene.task(task).owner is None


def test_a_task_still_running_is_not_given_up() -> None:
    scene, task = moving()
    for state in (running(), restoring(5), failed(), running(lost=True)):
        scene.beat("m1", full_report(scene, task, state), epoch=3)
        assert task in scene.member("m1").revoking
        assert scene.task(task).owner is None


@pytest.mark.parametrize("role", ["none", "standby", "warmup", None])
def test_another_role_or_absence_gives_a_task_up(role: str | None) -> None:
    scene, task = moving()
    scene.beat("m1", full_report(scene, task, None if role is None else copy(role)), epoch=3)
    assert scene.of(TaskReleased) == [TaskReleased(task, M1, at_ms=scene.now_ms)]
    assert scene.task(task).owner == "m2"


def test_the_final_position_is_what_the_next_owner_restores_to() -> None:
    scene, task = moving()
    scene.beat("m1", full_report(scene, task, TaskReport("none", final_position=(("", 905),))), epoch=3)
    grant = scene.grant("m2", task)
    assert grant is not None
    assert grant == Grant(Role.ACTIVE, grant.epoch, scene.now_ms, grant.token, (("", 905),))
    scene.obey("m2")
    assert scene.task(task).handover.final_position == ()


def test_a_final_position_repeated_is_harmless() -> None:
    """A member repeats its final position until it is answered."""
    scene, task = moving()
    final_position = full_report(scene, task, TaskReport("none", final_position=(("", 905),)))
    scene.beat("m1", final_position, epoch=3)
    scene.obey("m2")
    group = scene.group
    scene.beat("m1", final_position)
    assert scene.group.tasks == group.tasks


def test_an_absent_assigned_task_is_not_started_yet() -> None:
    scene = settled(1)
    scene.beat("m1", {"0_0": running()})
    assert scene.owners() == {"0_0": "m1", "0_1": "m1"}
    assert not [record for record in scene.log if isinstance(record, TaskReleased)]


def test_tasks_that_the_group_does_not_have_are_named_and_ignored() -> None:
    scene = Scene()
    scene.declare()
    scene.join("m1")
    reply = scene.beat("m1", {"0_0": running(), "7_7": running()})
    assert isinstance(reply, Answer)
    assert reply.status == (("unknown-task", "7_7 is not a task of this group"),)
    assert scene.task("0_0").state is ActiveState.RUNNING
    assert TaskId("7_7") not in scene.soft.members[M1].reports


def test_the_failure_of_an_unknown_task_is_nobodys() -> None:
    scene = Scene()
    scene.declare()
    scene.join("m1")
    scene.beat("m1", {"0_0": running(), "7_7": failed()})
    assert TaskId("7_7") not in scene.group.tasks
    assert scene.task("0_0").state is ActiveState.RUNNING


def test_fields_unknown_to_the_coordinator_are_named() -> None:
    scene = settled(1)
    reply = scene.ok(Heartbeat(M1, 50, scene.member("m1").epoch, None, ("mood",)), Answer)
    assert [code for code, _ in reply.status] == ["unknown-field"]


def test_a_member_that_runs_what_it_may_not_is_shown_its_assignment() -> None:
    scene = settled(2)
    (other,) = scene.held("m2", Role.ACTIVE)
    mine = {task: running() for task in scene.held("m1", Role.ACTIVE)}
    reply = scene.beat("m1", mine | {other: running()})
    assert isinstance(reply, Answer)
    assert reply.assignment == scene.member("m1").assignment
    assert scene.owners()[other] == "m2"


def test_states_of_actives_are_recorded_when_they_change() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("m1")
    for report, state, detail in (
        (restoring(10), ActiveState.RESTORING, ""),
        (running(), ActiveState.RUNNING, ""),
        (failed("disk full"), ActiveState.FAILED, "disk full"),
        (running(lost=True), ActiveState.LOST, ""),
    ):
        scene.beat("m1", {"0_0": report})
        assert scene.of(ActiveReported) == [ActiveReported(T0, M1, state, scene.now_ms, detail)]
        scene.beat("m1", {"0_0": report})
        assert scene.of(ActiveReported) == []


def test_a_report_from_before_a_grant_says_nothing_about_it() -> None:
    scene = settled(2, 2)
    (task,) = scene.held("m2", Role.ACTIVE)
    before = scene.member("m1").epoch
    scene.do(Leave(M2))
    assert scene.task(task).owner == "m1"
    kept = {one: running() for one in scene.held("m1", Role.ACTIVE)}
    scene.beat("m1", kept, epoch=before)
    assert scene.task(task).state is ActiveState.GRANTED
    scene.beat("m1", kept)
    assert scene.task(task).state is ActiveState.RUNNING


def test_lost_state_makes_its_holder_the_last_choice() -> None:
    scene = settled(2, 2, num_standby_replicas=1)
    (task,) = scene.held("m1", Role.ACTIVE)
    standbys = {one: copy("standby") for one in scene.held("m1", Role.STANDBY)}
    scene.beat("m1", standbys | {task: running(lost=True)})
    assert scene.task(task).owner is None
    assert [entry.member_id for entry in scene.task(task).handover.unreleased] == ["m1"]
    scene.beat("m1", standbys)
    assert scene.task(task).owner == "m2"


def test_the_heartbeat_that_says_caught_up_moves_the_task() -> None:
    scene = settled(1)
    scene.join("m2")
    (task,) = scene.held("m2", Role.WARMUP)
    scene.beat("m2", {task: copy("warmup", 10_001)})
    assert scene.task(task).handover.next_owner is None
    scene.beat("m2", {task: copy("warmup", 10_000)})
    assert scene.task(task).handover.next_owner == "m2"
    assert [record.member_id for record in scene.of(AssignmentChanged)] == ["m1"]


def test_a_steady_heartbeat_writes_nothing() -> None:
    scene = settled(3, 9, num_standby_replicas=1)
    group = scene.group
    for _ in range(5):
        scene.now_ms += 3_000
        scene.obey()
        assert isinstance(scene.last, Decision)
        assert scene.last.records == ()
        assert scene.last.reasons == ()
    assert scene.group is group


def test_a_heartbeat_reports_a_documented_most_of_tasks() -> None:
    scene = Scene(policy=Policy(max_tasks_per_heartbeat=2))
    scene.declare()
    scene.join("m1")
    refused = scene.refused(
        Heartbeat(M1, 1, 2, {TaskId(f"0_{n}"): running() for n in range(3)}),
        TooLarge,
    )
    assert (refused.status, refused.action) == (413, "fix")
    assert scene.task("0_0").state is ActiveState.GRANTED


def test_a_refused_append_still_counts_as_heard() -> None:
    """The records of the heartbeat could not be persisted: it renews the lease and no more (L5)."""
    scene = Scene()
    scene.declare()
    scene.join("m1")
    before = Soft(members=Soft().members.having(M1, MemberSoft(5, seq=3, poll_broken_ms=4)))
    after = count_as_heard(scene.group, before, Heartbeat(M1, 9, 1, {}), 77)
    assert after.members[M1] == MemberSoft(77, seq=3)
    assert count_as_heard(scene.group, before, Join(M2), 77) is before
    unheard = count_as_heard(scene.group, Soft(), Heartbeat(M1, 9, 1, {}), 77)
    assert unheard.members[M1] == MemberSoft(77)


def test_a_member_confirms_several_revocations_at_once() -> None:
    scene = Scene()
    scene.declare(topology(6), max_warmup_replicas=10, max_warmups_per_member=10)
    scene.join("m1")
    scene.settle()
    scene.join("m2")
    scene.obey("m2")
    given = sorted(scene.member("m1").revoking)
    assert len(given) == 3
    finals = {task: TaskReport("none", final_position=(("", number),)) for number, task in enumerate(given)}
    scene.beat("m1", {task: running() for task in scene.held("m1", Role.ACTIVE)} | {str(t): finals[t] for t in finals})
    assert {task: scene.task(task).handover.final_position for task in given} == {
        task: finals[task].final_position for task in given
    }
    assert {scene.task(task).owner for task in given} == {"m2"}


@dataclass(frozen=True, slots=True)
class MemberSoftOfALaterVersion(MemberSoft):
    """Soft state of a member with a field that nothing here has heard of."""

    later: str = ""


HAPPENS: dict[str, tuple[Input, ...]] = {
    "another report": (Heartbeat(M1, 100, 2, {T0: running(disk_bytes=1)}),),
    "the same report again": (
        Heartbeat(M1, 100, 2, {T0: running(disk_bytes=1)}),
        Heartbeat(M1, 101, 2, {T0: running(disk_bytes=1)}),
    ),
    "a heartbeat without tasks": (Heartbeat(M1, 100, 2),),
    "a late heartbeat": (Heartbeat(M1, 0, 2, {T0: running()}),),
    "a join again": (Join(M1),),
    "a broken long-poll": (PollBroken(M1), PollOpened(M1)),
    "the end of a changelog": (EndOffsets({("t", 0): 5}, 9),),
    "time": (Tick(),),
}


@pytest.mark.parametrize("happens", HAPPENS)
def test_what_is_known_of_a_member_is_kept_whatever_happens(happens: str) -> None:
    """No input may drop a field that a later version adds to the soft state of members."""
    scene = settled(1, 1)
    known = scene.soft.members[M1]
    said_before = {field.name: getattr(known, field.name) for field in fields(known)}
    wider = MemberSoftOfALaterVersion(**said_before, later="kept")
    scene.soft = scene.soft._replace(members=scene.soft.members.having(M1, wider))
    for item in HAPPENS[happens]:
        scene.do(item)
    found = scene.soft.members[M1]
    assert isinstance(found, MemberSoftOfALaterVersion)
    assert found.later == "kept"


def test_bytes_on_disk_are_added_up() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("m1")
    scene.settle()
    scene.beat("m1", {"0_0": running(), "0_1": running()})
    assert scene.soft.members[MemberId("m1")].disk_bytes is None
    scene.beat("m1", {"0_0": running(disk_bytes=70), "0_1": running(disk_bytes=0)})
    assert scene.soft.members[MemberId("m1")].disk_bytes == 70
