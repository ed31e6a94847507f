"""What people read of tasks and groups that do not get on: parked, held up by others, on hold, suspected."""

from dataclasses import replace

from tests.core.scene import Scene, copy, failed, running, topology
from tests.core.scenes import TASK, guarded

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    GroupDeletion,
    PauseRequest,
    PinRequest,
    PollBroken,
)
from batonpass.core.state.model import OnLeaseLost, PauseScope, Target
from batonpass.core.state.reasons import WaitsFor
from batonpass.core.state.soft import TaskReport
from batonpass.explain.group import GroupExplanation, explain_group
from batonpass.explain.task import TaskExplanation, TaskState, Wait, explain_task

A, B, C = MemberId("a"), MemberId("b"), MemberId("c")
TIMEOUT_MS = 60_000
"""The rebalance timeout of groups in which somebody is slow to confirm."""


def of_task(scene: Scene, task: str = TASK) -> TaskExplanation:
    """Explain a task now."""
    return explain_task(scene.view(), TaskId(task))


def of_group(scene: Scene) -> GroupExplanation:
    """Explain the group now."""
    return explain_group(scene.view(), limit=100)


def revoking() -> tuple[Scene, int]:
    """Return a group where b was told to give up 0_0 and has not confirmed it, and when; 0_1 of a is meant for b."""
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=100, rebalance_timeout_ms=TIMEOUT_MS)
    scene.join("a")
    scene.join("b")
    scene.settle()
    assert scene.owners() == {"0_0": B, "0_1": A}
    for task in (TaskId("0_1"), TASK):
        scene.do(PinRequest(task, A))
    scene.beat("a", {"0_1": running(), TASK: copy("warmup", 0)})
    told_ms = scene.now_ms
    assert list(scene.member("b").revoking) == [TASK]
    scene.do(PinRequest(TaskId("0_1"), B))
    scene.tick(1_000)
    return scene, told_ms


def test_a_parked_task_names_those_on_whom_it_failed_and_waits_for_an_operator_alone() -> None:
    """No member is to try it again before its release, so that no copy of it is waited for."""
    scene = Scene()
    scene.declare(topology(1), max_warmup_replicas=5)
    for name in "abcd":
        scene.join(name)
    scene.settle()
    for name in (A, B, C):
        assert scene.task(TASK).owner == name
        scene.beat(name, {TASK: failed("poison pill")})
        if name != C:
            scene.do(Eviction(name, dead=True))
            scene.obey()
    scene.beat(C, {})
    found = of_task(scene)
    assert (found.state, [wait.what for wait in found.waits]) == (TaskState.PARKED, [WaitsFor.OPERATOR])
    assert found.sentences[0] == "0_0 is parked: it failed on a, b, c."
    assert "Its move is held back: it failed on too many members; release it to have it tried again." in found.sentences
    assert of_group(scene).health.states == {TaskState.PARKED: 1}


def test_a_warmup_waits_until_its_member_has_confirmed_what_it_gave_up() -> None:
    scene, told_ms = revoking()
    found = of_task(scene, "0_1")
    assert (found.task.owner, found.task.target.owner) == (A, B)
    detail = "it must first confirm that it gave up 1 task"
    assert found.waits == (Wait(WaitsFor.CONFIRMATION, B, told_ms + TIMEOUT_MS, None, detail),)
    assert found.sentences[-1] == f"It waits for the confirmation of b: {detail}."
    scene.beat("b", {})
    assert [(wait.what, wait.member_id) for wait in of_task(scene, "0_1").waits] == [(WaitsFor.WARMUP, B)]


def test_a_standby_waits_until_its_member_has_confirmed_what_it_gave_up() -> None:
    scene, told_ms = revoking()
    task = scene.task("0_1")._replace(warmups=(), target=Target(A, (B,)))
    scene.group = replace(scene.group, tasks=scene.group.tasks.updated({task.id: task}))
    detail = "it must first confirm that it gave up 1 task"
    assert of_task(scene, "0_1").waits == (Wait(WaitsFor.CONFIRMATION, B, told_ms + TIMEOUT_MS, None, detail),)


def test_a_task_that_nobody_runs_waits_once_for_a_taker_that_has_to_confirm() -> None:
    """The taker is the task's target as well, which must not say the same a second time."""
    scene, told_ms = revoking()
    scene.do(Eviction(A, dead=True))
    found = of_task(scene, "0_1")
    assert (found.state, found.task.handover.unreleased, found.to) == (TaskState.WAITING, (), B)
    detail = "it must first confirm that it gave up 1 task"
    assert found.waits == (Wait(WaitsFor.CONFIRMATION, B, told_ms + TIMEOUT_MS, None, detail),)
    scene.beat("b", {})
    assert scene.task("0_1").owner == B


def test_a_task_without_state_waits_for_a_taker_that_has_to_confirm() -> None:
    scene = Scene()
    scene.declare(topology(0, stateless=2), rebalance_timeout_ms=TIMEOUT_MS)
    scene.join("a")
    scene.join("b")
    scene.settle()
    assert scene.owners() == {"1_0": B, "1_1": A}
    for task in ("1_1", "1_0"):
        scene.do(PinRequest(TaskId(task), A))
    assert list(scene.member("b").revoking) == ["1_0"]
    scene.do(Eviction(A, dead=True))
    found = of_task(scene, "1_1")
    detail = "it must first confirm that it gave up 1 task"
    assert (found.state, found.to) == (TaskState.WAITING, B)
    assert found.waits == (Wait(WaitsFor.CONFIRMATION, B, scene.now_ms + TIMEOUT_MS, None, detail),)
    scene.beat("b", {})
    assert scene.task("1_1").owner == B


def test_whoever_has_a_task_until_its_target_is_ready_is_named_before_it_has_it() -> None:
    scene = guarded(members="abc")
    (other,) = scene.task(TASK).standbys
    assert (scene.task(TASK).owner, other) == (A, B)
    scene.do(PinRequest(TASK, C))
    scene.beat("c", {TASK: copy("warmup", 9_000)})
    scene.do(Eviction(A))
    found = of_task(scene)
    assert (found.task.owner, found.task.target.owner, found.to) == (None, C, B)
    assert found.sentences[2:4] == (
        "It belongs to c.",
        "b has it until then, because its copy is the most caught up.",
    )


def test_a_suspected_member_is_an_obstacle_with_all_that_it_holds() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a", on_lease_lost=OnLeaseLost.CONTINUE)
    scene.settle()
    scene.do(PollBroken(A))
    scene.wait(2_500)
    assert scene.member("a").suspected
    group = of_group(scene)
    (obstacle,) = group.obstacles
    ends_ms = scene.soft.members[A].heard_ms + scene.group.config.session_timeout_ms
    assert (obstacle.member_id, obstacle.what, obstacle.tasks, obstacle.until_ms) == (A, "suspected", 2, ends_ms)
    assert group.sentences[0] == "Member a has fallen silent. Of 2 tasks: 2 of owners that are not heard."
    assert group.health.worst.until_ms == ends_ms


def test_a_task_whose_copy_is_on_a_suspected_member_waits_for_the_end_of_its_lease() -> None:
    """What was reported of the copy says nothing any more; the member's revocations are no obstacle beside that."""
    scene = Scene()
    scene.declare(topology(1), acceptable_recovery_lag=100, num_standby_replicas=1)
    for name in "ab":
        scene.join(name, on_lease_lost=OnLeaseLost.CONTINUE)
        scene.settle()
    owner = scene.task("0_0").owner
    other = "b" if owner == A else "a"
    scene.do(PollBroken(MemberId(str(owner))))
    scene.wait(2_500)
    scene.obey(other)
    found, group = of_task(scene), of_group(scene)
    assert found.task.owner == other
    (wait,) = found.waits
    assert (wait.what, wait.member_id) == (WaitsFor.LEASE, owner)
    assert wait.until_ms is not None
    assert wait.until_ms > scene.now_ms
    assert [obstacle.what for obstacle in group.obstacles] == ["suspected"]


def test_a_group_that_follows_a_forced_deletion_says_until_when_nothing_is_granted() -> None:
    """The deleted members may run tasks until their leases are over; no commits were lost."""
    scene = guarded(session_timeout_ms=30_000)
    scene.do(GroupDeletion(force=True))
    scene.declare(topology(1, epoch=2))
    scene.join("c")
    scene.tick(10_000)
    group = of_group(scene)
    assert "Nothing is granted for another 20 s." in group.sentences
    assert not any("lost commits" in text for text in group.sentences)
    assert group.held_until_ms == scene.now_ms + 20_000


def test_a_pause_without_an_end_or_a_reason_names_neither() -> None:
    scene = guarded()
    scene.do(PauseRequest(PauseScope.BALANCE))
    assert of_group(scene).sentences[0] == "An operator holds moves for balance. Its task runs."


def test_a_silent_member_is_waited_for_until_its_lease_is_over() -> None:
    """A member that was killed before it confirmed expires sooner than it would be fenced."""
    scene, told_ms = revoking()
    heard_ms = scene.soft.members[B].heard_ms
    fenced = Wait(WaitsFor.CONFIRMATION, B, told_ms + TIMEOUT_MS, None, "it must first confirm that it gave up 1 task")
    assert of_task(scene, "0_1").waits == (fenced,)
    scene.now_ms = heard_ms + 7_000
    (wait,) = [one for one in of_task(scene, "0_1").waits if one.what is WaitsFor.CONFIRMATION]
    assert (wait.until_ms, wait.detail) == (
        heard_ms + scene.group.config.session_timeout_ms,
        "it must first confirm that it gave up 1 task; it is silent, and expires when its lease is over",
    )
    (claim,) = [one for one in of_task(scene).waits if one.what is WaitsFor.CONFIRMATION]
    assert claim.until_ms == wait.until_ms
    (obstacle,) = of_group(scene).obstacles
    assert (obstacle.until_ms, obstacle.detail) == (
        wait.until_ms,
        "it was told to give tasks up and has not confirmed it; it is silent, and expires when its lease is over",
    )


def test_a_task_that_its_owner_does_not_run_any_more_keeps_its_group_from_rest() -> None:
    scene = guarded()
    scene.join("c")
    scene.settle()
    assert of_group(scene).status.at_rest
    given: list[dict[str, TaskReport]] = [{}, {TASK: copy("none", 0)}]
    for reports in given:
        scene.beat("a", reports)
        found, whole = of_task(scene), of_group(scene)
        assert (found.state, found.task.owner) == (TaskState.STARTING, A)
        assert [(one.what, one.member_id) for one in found.waits] == [(WaitsFor.REPORT, A)]
        assert found.sentences[-1] == (
            "It waits for the report of a: it ran the task, and reports now that it does not."
        )
        assert not whole.status.at_rest
        assert [one.task for one in whole.waiting] == [TASK]
        assert "1 task ran, and its owner reports now that nobody runs it." in whole.sentences
    scene.beat("a", {TASK: running()})
    assert of_group(scene).status.at_rest


def test_more_slots_taken_than_there_are_is_said_to_be_right() -> None:
    """What a drain began goes on after it, on the group's own slots, of which there may be fewer."""
    scene = Scene()
    scene.declare(topology(8), acceptable_recovery_lag=10, max_warmup_replicas=1, max_drain_warmups=3)
    scene.join("a")
    scene.settle()
    scene.do(DrainRequest(A))
    for name in "bc":
        scene.join(name)
    scene.obey(lag=5_000)
    scene.obey(lag=5_000)
    assert of_group(scene).drain_warmups.used == 3
    assert any("; for drains, 3 of 3 slots taken)" in sentence for sentence in of_group(scene).sentences)
    scene.do(DrainReversal(A))
    scene.do(PauseRequest(PauseScope.ALL, "", None))
    found = of_group(scene)
    assert (found.warmups.used, found.warmups.limit) == (3, 1)
    words = "what was begun for a drain, or under a larger budget, goes on"
    assert any(f"3 slots taken where there are 1: {words}" in sentence for sentence in found.sentences)
