"""When the store lost commits (L3): nobody is fenced for knowing more, what runs is adopted, nothing is granted."""

import pytest
from tests.core.described import describe_group
from tests.core.scene import Scene, copy, restoring, running, topology
from tests.core.scenes import settled

from batonpass.core.arrivals.answers import answer_to_poll
from batonpass.core.arrivals.recovery import LOST_COMMITS, TOKEN_LEAP
from batonpass.core.state.errors import InvalidRequest, StaleMemberEpoch, UnknownGroup, UnknownMember
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import Eviction, Heartbeat, Leave, PinRequest, Started, StoreRecovered
from batonpass.core.state.model import ActiveState, Grant, Group, Role
from batonpass.core.state.reasons import Held
from batonpass.core.state.records import AssignmentChanged, EpochsRaised, GrantsHeld, TasksAdopted
from batonpass.core.state.replies import Answer, Done
from batonpass.core.state.soft import Soft, TaskReport

M1, M2, M3 = MemberId("m1"), MemberId("m2"), MemberId("m3")
T0 = TaskId("0_0")
SESSION_MS = 45_000


def restore(scene: Scene, group: Group) -> None:
    """Let the store go back to an earlier group, and a coordinator start on it."""
    scene.group, scene.soft = group, Soft()
    scene.now_ms += 2_000
    scene.do(Started())


def alarmed(scene: Scene) -> bool:
    """Say whether the last decision raised the alarm."""
    assert scene.last is not None
    return LOST_COMMITS in {reason.code for reason in scene.last.reasons}


def lost_handover() -> tuple[Scene, TaskId]:
    """Return a scene whose store forgot that a task went from m1 to m2, before anybody has spoken; and the task."""
    scene = settled(1)
    scene.join("m2")
    before = scene.group
    scene.settle(60)
    (task,) = scene.held("m2", Role.ACTIVE)
    assert before.tasks[TaskId(task)].owner == "m1"
    restore(scene, before)
    return scene, TaskId(task)


def test_an_epoch_above_ours_is_proof_and_never_a_fence() -> None:
    scene = settled()
    epoch = scene.member("m1").epoch
    reply = scene.ok(Heartbeat(M1, 50, epoch + 7), Answer)
    assert "m1" in scene.group.members
    assert alarmed(scene)
    assert scene.group.grants_from_ms == scene.now_ms + SESSION_MS
    assert scene.group.recovering_until_ms == scene.now_ms + SESSION_MS
    # The assignment of the log is of the past: it is not sent, the member's own report comes first.
    assert (reply.member_epoch, reply.assignment, reply.report) == (epoch + 7, None, "full")


def test_a_token_above_ours_is_proof_as_well() -> None:
    scene = settled()
    (task,) = scene.held("m1", Role.ACTIVE)
    known = scene.task(task).token
    scene.beat("m1", {task: running(token=known)})
    assert not alarmed(scene)
    scene.beat("m1", {task: running(token=known + 3)})
    assert alarmed(scene)
    assert scene.group.grants_from_ms == scene.now_ms + SESSION_MS
    assert scene.task(task).token == known + 3
    assert scene.task(task).owner == "m1"
    scene.now_ms += 1_000
    scene.beat("m1", {task: running(token=known + 3)})
    assert not scene.of(GrantsHeld)


def test_new_tokens_lie_above_whatever_was_lost() -> None:
    scene = settled()
    highest = max(scene.task(task).token for task in scene.group.table.ids)
    (task,) = scene.held("m1", Role.ACTIVE)
    scene.beat("m1", {task: running(token=5 * TOKEN_LEAP)})
    assert scene.group.tokens_from == 5 * TOKEN_LEAP
    assert scene.group.tokens_from > highest + TOKEN_LEAP
    scene.do(Leave(M1))
    scene.wait(SESSION_MS - 1)
    scene.obey("m2")
    assert scene.task(task).owner is None
    scene.wait(1)
    scene.obey("m2")
    scene.tick()
    assert scene.task(task).owner == "m2"
    assert scene.task(task).token > 5 * TOKEN_LEAP


def test_what_members_run_is_adopted() -> None:
    scene, task = lost_handover()
    lost_epoch = scene.member("m2").epoch + 3
    reply = scene.beat("m2", {task: running(token=2)}, epoch=lost_epoch)
    # Whether the log's owner runs it is not known yet: m2 is sent nothing, and goes on.
    assert (reply.assignment, reply.report, reply.member_epoch) == (None, "full", lost_epoch)  # type: ignore[union-attr]
    scene.beat("m1", {one: running() for one in scene.group.table.ids if one != task})
    reply = scene.beat("m2", {task: running(token=2)}, epoch=lost_epoch)
    assert scene.of(TasksAdopted) == [TasksAdopted(M2, {task: 2}, (), scene.now_ms)]
    assert scene.task(task).owner == "m2"
    assert scene.task(task).state is ActiveState.RUNNING
    assert isinstance(reply, Answer)
    assert reply.member_epoch == lost_epoch + 1
    assert reply.assignment == {task: Grant(Role.ACTIVE, reply.assignment[task].epoch, scene.now_ms, 2)}  # type: ignore[index]
    scene.obey("m1")
    assert scene.task(task).handover.unreleased == ()
    assert scene.owners()[task] == "m2"


def test_what_a_live_owner_says_that_it_runs_is_not_taken_by_a_word() -> None:
    """The other member makes up an epoch, and says that it runs the task."""
    scene = settled()
    (task,) = scene.held("m1", Role.ACTIVE)
    (own,) = scene.held("m2", Role.ACTIVE)
    last = {one: scene.task(one).token for one in (task, own)}
    epoch = scene.member("m1").epoch
    scene.beat("m2", {task: running(token=last[task]), own: running(token=last[own])}, epoch=999)
    assert alarmed(scene)
    assert scene.owners() == {task: "m1", own: "m2"}
    assert (scene.member("m1").epoch, scene.task(task).token) == (epoch, last[task])
    assert list(scene.member("m2").assignment) == [own]
    scene.obey()
    scene.obey()
    assert scene.owners() == {task: "m1", own: "m2"}


def test_two_that_run_each_other_s_tasks_do_not_wait_for_one_another() -> None:
    """Two handovers were lost with the commits."""
    scene = settled()
    (one,), (two,) = scene.held("m1", Role.ACTIVE), scene.held("m2", Role.ACTIVE)
    restore(scene, scene.group)
    for _ in range(2):
        scene.beat("m1", {two: running(token=5)}, epoch=20)
        scene.beat("m2", {one: running(token=5)}, epoch=20)
    assert scene.owners() == {one: "m2", two: "m1"}
    assert {scene.task(task).token for task in (one, two)} == {5}


def test_who_never_speaks_is_waited_for_until_its_lease_is_over() -> None:
    """The log's owner died with the commits, and another member runs its task."""
    scene, task = lost_handover()
    began_ms = scene.now_ms
    while scene.now_ms < began_ms + SESSION_MS:
        reply = scene.beat("m2", {task: running(token=2)}, epoch=9)
        assert (reply.assignment, scene.task(task).owner) == (None, "m1")  # type: ignore[union-attr]
        scene.wait(3_000)
    scene.beat("m2", {task: running(token=2)}, epoch=9)
    assert scene.owners()[task] == "m2"
    assert scene.task(task).token == 2


def test_what_is_being_given_up_is_not_taken_by_a_word() -> None:
    scene = settled(1)
    scene.join("m2")
    scene.obey("m2")
    (task,) = scene.member("m1").revoking
    assert scene.task(task).owner is None
    last = scene.task(task).token
    for _ in range(2):
        scene.beat("m2", {task: running(token=last)}, epoch=999)
        assert scene.task(task).owner is None
        assert not scene.of(TasksAdopted) or task not in scene.of(TasksAdopted)[0].tokens
    while scene.now_ms < scene.group.grants_from_ms:
        scene.obey()
        scene.wait(3_000)
    scene.settle(60)
    assert scene.owners()[task] == "m2"
    assert scene.task(task).token > last + TOKEN_LEAP


def test_who_was_fenced_is_waited_for_until_its_lease_is_over() -> None:
    scene = settled()
    (task,) = scene.held("m1", Role.ACTIVE)
    (own,) = scene.held("m2", Role.ACTIVE)
    scene.do(Eviction(M1))
    (entry,) = scene.task(task).handover.unreleased
    assert entry.free_at_ms is not None
    assert scene.task(task).owner is None
    claim: dict[str, TaskReport] = {task: running(token=scene.task(task).token), own: running()}
    epoch = 999
    while scene.now_ms < entry.free_at_ms:
        scene.beat("m2", claim, epoch=epoch)
        assert scene.task(task).owner is None
        scene.wait(3_000)
    scene.beat("m2", claim, epoch=epoch)
    assert scene.owners() == {task: "m2", own: "m2"}


def test_what_nobody_else_runs_is_adopted_under_a_token_of_its_own() -> None:
    """No lost grant had a token that the log knows: the new token must fence whoever had that one."""
    scene = settled()
    (task,) = scene.held("m1", Role.ACTIVE)
    last = scene.task(task).token
    scene.beat("m2", epoch=999)
    scene.beat("m1", {})
    scene.beat("m2", {task: running(token=last)}, epoch=999)
    assert scene.owners()[task] == "m2"
    assert scene.task(task).token > last + TOKEN_LEAP


def test_nothing_is_granted_until_everybody_may_have_spoken() -> None:
    scene, task = lost_handover()
    scene.beat("m2", {task: running(token=2)}, epoch=9)
    until_ms = scene.group.grants_from_ms
    scene.join("m3")
    scene.do(Leave(M1))
    while scene.now_ms + 3_000 < until_ms:
        scene.wait(3_000)
        scene.obey()
        assert not [one for one in scene.of(AssignmentChanged) if one.granted]
    assert None in scene.owners().values()
    scene.wait(until_ms - scene.now_ms)
    scene.obey()
    scene.settle(60)
    assert None not in scene.owners().values()


def test_an_active_that_its_owner_does_not_run_is_taken_from_it() -> None:
    scene, task = lost_handover()
    kept: dict[str, TaskReport] = {one: running() for one in scene.group.table.ids if one != task}
    reply = scene.beat("m1", kept | {task: TaskReport("none", final_position=(("", 905),))}, epoch=9)
    assert scene.task(task).owner is None
    assert isinstance(reply, Answer)
    assert reply.assignment is not None
    assert task not in reply.assignment
    scene.beat("m1", kept | {task: TaskReport("none", final_position=(("", 905),))})
    assert scene.task(task).handover.unreleased == ()


def test_a_heartbeat_without_tasks_adopts_nothing_and_is_told_no_assignment() -> None:
    scene, task = lost_handover()
    reply = scene.ok(Heartbeat(M1, 1, 9), Answer)
    assert (reply.assignment, reply.report, reply.member_epoch) == (None, "full", 9)
    assert scene.task(task).owner == "m1"
    assert answer_to_poll(scene.group, scene.soft, M1, 9) is None
    assert answer_to_poll(scene.group, scene.soft, M1, 5) is not None or scene.member("m1").epoch == 9


def test_a_poll_is_not_answered_from_the_past() -> None:
    """While a member's report is awaited, the assignment of the log may be old."""
    scene, _ = lost_handover()
    scene.do(Heartbeat(M1, 1, 9))
    assert answer_to_poll(scene.group, scene.soft, M1, 3) is None


def test_everybody_is_asked_again() -> None:
    """The proof of one member puts all reports of copies in doubt."""
    scene = settled(3)
    scene.do(Heartbeat(M1, 50, scene.member("m1").epoch + 1))
    for name in ("m1", "m2", "m3"):
        assert not scene.soft.members[MemberId(name)].full
        assert all(one.report.role == "active" for one in scene.soft.members[MemberId(name)].reports.values())
    assert scene.beat("m2").report == "full"  # type: ignore[union-attr]


def test_a_second_proof_while_recovering_raises_no_tokens_again() -> None:
    scene = settled(3)
    scene.do(Heartbeat(M1, 50, scene.member("m1").epoch + 1))
    floor = scene.group.tokens_from
    scene.now_ms += 5_000
    scene.do(Heartbeat(M2, 50, scene.member("m2").epoch + 1))
    assert scene.group.tokens_from == floor
    assert scene.group.grants_from_ms == scene.now_ms + SESSION_MS
    assert alarmed(scene)


def test_members_that_know_no_more_keep_what_they_have() -> None:
    scene = settled()
    (task,) = scene.held("m2", Role.ACTIVE)
    scene.do(Heartbeat(M1, 50, scene.member("m1").epoch + 1))
    scene.obey("m2")
    assert scene.owners()[task] == "m2"
    epoch = scene.member("m2").epoch
    scene.obey("m2")
    scene.obey("m2")
    assert scene.member("m2").epoch == epoch


def test_a_member_whose_join_was_lost_is_a_proof_when_it_runs_something() -> None:
    scene = settled(1)
    refused = scene.refused(Heartbeat(M3, 4, 5, {T0: running()}), UnknownMember)
    assert refused.action == "stop-and-rejoin"
    assert alarmed(scene)
    assert scene.group.grants_from_ms == scene.now_ms + SESSION_MS
    assert scene.group.tokens_from >= TOKEN_LEAP
    version = scene.group.version
    scene.refused(Heartbeat(M3, 5, 5, {T0: running()}), UnknownMember)
    assert scene.group.version == version


@pytest.mark.parametrize(
    "asked",
    [Heartbeat(M3, 4, 5), Heartbeat(M3, 4, 5, {T0: copy("standby")}), Heartbeat(M3, 4, 0, {T0: running()})],
    ids=["no tasks", "no actives", "no epoch"],
)
def test_an_unknown_member_that_runs_nothing_is_just_unknown(asked: Heartbeat) -> None:
    scene = settled(1)
    version = scene.group.version
    scene.refused(asked, UnknownMember)
    assert scene.group.version == version


def test_a_departed_member_that_still_runs_something_is_no_proof() -> None:
    scene = settled(2)
    scene.do(Leave(M2))
    version = scene.group.version
    scene.do(Heartbeat(M2, 99, 9, {T0: running()}))
    assert scene.group.version == version
    Scene().refused(Heartbeat(M2, 99, 9, {T0: running()}), UnknownGroup)


def test_an_operator_may_say_that_commits_were_lost() -> None:
    """By ``db recovered``."""
    scene = settled()
    scene.ok(StoreRecovered(), Done)
    assert alarmed(scene)
    assert scene.of(GrantsHeld) == [
        GrantsHeld(scene.now_ms + SESSION_MS, "an operator says that the store lost commits", adopting=True)
    ]
    assert scene.of(EpochsRaised)[0].tokens_from >= TOKEN_LEAP
    assert scene.beat("m1").report == "full"  # type: ignore[union-attr]


def test_after_the_hold_a_report_adopts_nothing() -> None:
    """What a member reports beyond its assignment is then its own mistake, not the log's."""
    scene = settled()
    (task,) = scene.held("m2", Role.ACTIVE)
    scene.do(StoreRecovered())
    for _ in range(16):
        scene.wait(3_000)
        scene.obey()
    scene.beat("m1", {one: running() for one in scene.group.table.ids})
    assert scene.owners()[task] == "m2"
    assert not scene.of(TasksAdopted)


def test_a_task_that_the_member_was_told_to_give_up_is_not_adopted() -> None:
    scene = settled(1)
    scene.join("m2")
    scene.obey("m2")
    (task,) = scene.member("m1").revoking
    scene.do(StoreRecovered())
    scene.beat("m1", {one: running() for one in scene.group.table.ids}, epoch=2)
    assert scene.task(task).owner is None
    assert task in scene.member("m1").revoking


def test_a_grant_not_heard_of_yet_stands() -> None:
    scene = settled(2)
    (task,) = scene.held("m2", Role.ACTIVE)
    before = scene.member("m1").epoch
    scene.do(Leave(M2))
    assert scene.task(task).owner == "m1"
    scene.do(StoreRecovered())
    kept: dict[str, TaskReport] = {one: running() for one in scene.group.table.ids if one != task}
    scene.beat("m1", kept, epoch=before)
    assert scene.task(task).owner == "m1"
    assert task in scene.member("m1").assignment


def test_stale_epochs_are_stale_also_while_recovering() -> None:
    scene = settled()
    epoch = scene.member("m1").epoch
    scene.do(Heartbeat(M1, 50, epoch + 4, {}))
    scene.refused(Heartbeat(M1, 51, epoch + 1, {}), StaleMemberEpoch)


def test_an_adopted_active_may_be_one_that_restores() -> None:
    scene, task = lost_handover()
    scene.beat("m1", {one: running() for one in scene.group.table.ids if one != task})
    scene.beat("m2", {task: restoring(500, token=2)}, epoch=9)
    assert scene.task(task).owner == "m2"
    scene.beat("m2", {task: restoring(400, token=2)})
    assert scene.task(task).state is ActiveState.RESTORING


def test_an_epoch_that_no_store_can_have_lost_is_refused() -> None:
    """An epoch far beyond ours is a faulty client's."""
    scene = Scene()
    scene.declare(topology(1))
    scene.join("m1")
    scene.settle()
    before, epoch = scene.group, scene.member("m1").epoch
    heartbeat = Heartbeat(MemberId("m1"), 10_000, 2**63 - 1, {TaskId("0_0"): running()})
    refused = scene.refused(heartbeat, InvalidRequest)
    assert refused.errors[0][0] == "member_epoch"
    assert scene.group is before
    scene.ok(Heartbeat(MemberId("m1"), 10_001, epoch, {TaskId("0_0"): running()}), Answer)


def test_nobody_is_told_to_stop_while_nothing_is_granted() -> None:
    """The target is caught up, but would be granted nothing for a session timeout."""
    scene = Scene()
    scene.declare(topology(2, stateless=1), acceptable_recovery_lag=100)
    scene.join("m1")
    scene.join("m2")
    for task in scene.group.table.ids:
        scene.do(PinRequest(task, M1))
    scene.settle()
    for task in (T0, TaskId("0_1")):
        scene.do(PinRequest(task, M2))
    warming = scene.held("m2", Role.WARMUP)
    scene.beat("m2", {task: copy("warmup", 0) for task in warming}, epoch=scene.member("m2").epoch + 3)
    scene.do(PinRequest(TaskId("1_0"), M2))
    until_ms = scene.group.grants_from_ms
    while scene.now_ms + 3_000 < until_ms:
        scene.wait(3_000)
        scene.obey()
        assert all(task.handover.next_owner is None for task in scene.group.tasks.values())
    status = describe_group(scene.view())
    assert {(entry.task, entry.to, entry.reason) for entry in status.held_back} == {
        (task, "m2", Held.GRANTS_HELD) for task in (*warming, "1_0")
    }
    scene.wait(3_000)
    scene.settle()
    assert set(scene.owners().values()) == {"m2"}
