"""Why a task is where it is and why a group is not at rest, as people read it."""

from collections.abc import Iterator, ValuesView
from dataclasses import replace
from typing import Any

from tests.core.scene import Scene, copy, failed, restoring, running, topology
from tests.core.scenes import TASK, guarded, pair

from batonpass.core.handover.copies import HeldBack
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Eviction, Leave, PauseRequest, PinRequest, Started, StoreRecovered
from batonpass.core.state.model import Drain, PauseScope, Subtopology, Topology
from batonpass.core.state.pmap import PMap
from batonpass.core.state.reasons import MEANINGS, Held, WaitsFor, meaning_of
from batonpass.core.state.soft import Soft
from batonpass.explain.group import Budget, GroupExplanation, _obstacles, explain_group
from batonpass.explain.task import (
    TaskExplanation,
    TaskState,
    Wait,
    explain_task,
)

A, B = MemberId("a"), MemberId("b")


def of_task(scene: Scene, task: str = TASK) -> TaskExplanation:
    """Explain a task now."""
    return explain_task(scene.view(), TaskId(task))


def of_group(scene: Scene, limit: int = 100) -> GroupExplanation:
    """Explain the group now."""
    return explain_group(scene.view(), limit=limit)


def awaited(found: TaskExplanation) -> list[tuple[WaitsFor, str | None]]:
    """Return what a task waits for, and from whom."""
    return [(wait.what, wait.member_id) for wait in found.waits]


def warming(tasks: int = 2, **config: object) -> tuple[Scene, str]:
    """Return a group where b warms up a task of a, 4000 records behind and 1000 closer each second; and that task."""
    scene = pair(tasks, **config)
    task = str(next(iter(scene.member("b").assignment)))
    for lag in (5_000, 4_000):
        scene.beat("b", {task: copy("warmup", lag)})
        scene.now_ms += 1_000
    scene.now_ms -= 1_000
    return scene, task


def test_a_task_at_rest_waits_for_nothing() -> None:
    found = of_task(guarded())
    assert (found.state, found.held, found.waits) == (TaskState.RUNNING, None, ())
    assert [(one.member_id, one.role, one.readiness, one.lag) for one in found.copies] == [
        (A, "active", "running", None),
        (B, "standby", "caught-up", 0),
    ]
    assert found.sentences[-1] == "It is where it belongs, and waits for nothing."


def test_a_warming_task_says_how_far_and_how_long() -> None:
    """The estimate is until the copy counts as caught up, not until it has the last record."""
    scene, task = warming()
    found = of_task(scene, task)
    assert found.state is TaskState.WARMING
    assert found.waits == (Wait(WaitsFor.WARMUP, B, None, 3_900, "4000 records behind"),)
    assert found.sentences[1:] == (
        "It belongs to b.",
        "It waits for the copy on b: 4000 records behind, about 3.9 s to go.",
    )
    (warmup,) = [one for one in found.copies if one.role == "warmup"]
    assert (warmup.readiness, warmup.lag, warmup.rate, warmup.eta_ms) == ("behind", 4_000, 1_000.0, 3_900)
    group = of_group(scene)
    assert (group.status.eta_ms, group.status.warmups, group.warmups) == (3_900, 1, Budget(1, 2))
    assert group.health.states == {TaskState.RUNNING: 1, TaskState.WARMING: 1}


def test_a_move_without_a_slot_says_so() -> None:
    scene, _ = warming(8, max_warmup_replicas=1)
    group = of_group(scene)
    assert (group.warmups, group.full_members) == (Budget(1, 1), ())
    held = [one for one in group.waiting if one.held is not None]
    assert {one.held.reason for one in held if one.held} == {Held.WARMUP_BUDGET}
    assert held[0].waits[0].what is WaitsFor.SLOT
    assert "3 tasks are held back: all warmup slots of the group are taken (max_warmup_replicas)." in group.sentences
    assert group.waiting_total == 4
    assert [one.task for one in of_group(scene, limit=1).waiting] == [group.waiting[0].task]
    found = of_task(scene, held[0].task)
    assert found.held == held[0].held
    assert found.sentences[2].startswith("Its move is held back: all warmup slots")


def test_what_is_not_processed_is_listed_before_what_moves() -> None:
    """However short the list is."""
    scene, _ = warming(8, max_warmup_replicas=1)
    task = of_group(scene, limit=4).waiting[-1].task
    assert of_group(scene, limit=1).waiting[0].task != task
    owner = scene.task(task).owner
    assert owner is not None
    scene.beat(owner, {task: failed("checksum mismatch")})
    (first,) = of_group(scene, limit=1).waiting
    assert (first.task, first.state) == (task, TaskState.FAILED)


def test_a_handover_waits_for_the_confirmation_of_its_owner() -> None:
    scene = guarded(rebalance_timeout_ms=60_000)
    scene.do(PinRequest(TASK, B))
    scene.tick()
    told_ms = scene.now_ms
    scene.tick(1_000)
    found = of_task(scene)
    assert (found.state, found.to) == (TaskState.HANDING_OVER, B)
    assert awaited(found) == [(WaitsFor.CONFIRMATION, A)]
    assert found.waits[0].until_ms == told_ms + 60_000
    (obstacle,) = of_group(scene).obstacles
    assert (obstacle.member_id, obstacle.what, obstacle.until_ms) == (A, "unrevoked", told_ms + 60_000)
    assert found.held is None, "it mostly confirms at once"
    scene.tick(2_000)
    found = of_task(scene)
    assert found.held == HeldBack(TASK, B, Held.REVOKING)
    assert awaited(found) == [(WaitsFor.CONFIRMATION, A)]
    assert "An operator pinned it to b." in found.sentences


def test_a_pin_on_a_member_without_room_is_said_to_be_in_vain() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a")
    scene.join("b", max_tasks=0)
    scene.do(PinRequest(TASK, B))
    scene.settle()
    found = of_task(scene)
    assert (found.state, scene.task(TASK).owner) == (TaskState.RUNNING, A)
    assert found.sentences[1:] == ("An operator pinned it to b, which has no room for it.",)


def test_a_standby_that_has_not_begun_is_waited_for() -> None:
    scene = Scene()
    scene.declare(topology(12), num_standby_replicas=1, max_warmup_replicas=1)
    for name in ("a", "b", "c"):
        scene.join(name)
    scene.settle(60)
    scene.join("d")
    d = MemberId("d")
    begins = [
        one for one in of_group(scene).waiting if one.held is None and one.task not in scene.member("d").assignment
    ]
    assert begins
    assert {(wait.what, wait.member_id) for one in begins for wait in one.waits} == {(WaitsFor.SLOT, d)}
    scene.do(PauseRequest(PauseScope.BALANCE))
    waits = [wait for one in of_group(scene).waiting if one.task in {one.task for one in begins} for wait in one.waits]
    assert {(wait.what, wait.member_id) for wait in waits} == {(WaitsFor.OPERATOR, d)}
    assert all(one.waits for one in of_group(scene).waiting)


def test_a_pause_says_until_when() -> None:
    scene = pair(2)
    scene.tick(1_000)
    task = next(iter(scene.member("b").assignment))
    scene.do(PauseRequest(PauseScope.ALL, "deploy", scene.now_ms + 60_000))
    scene.beat("b", {task: copy("warmup")})
    found = of_task(scene, task)
    assert (found.held, found.waits[0].what, found.waits[0].eta_ms) == (None, WaitsFor.OPERATOR, 60_000)
    group = of_group(scene)
    assert group.sentences[0] == "An operator holds every move: deploy. All 2 tasks run."
    assert group.health.worst.until_ms == scene.now_ms + 60_000


def test_a_lease_that_still_runs_is_waited_for() -> None:
    scene = guarded(session_timeout_ms=30_000)
    scene.do(Eviction(A))
    found = of_task(scene)
    assert (found.state, awaited(found)[0]) == (TaskState.HANDING_OVER, (WaitsFor.LEASE, A))
    assert found.held == HeldBack(TASK, B, Held.LEASE, scene.now_ms + 30_000)
    assert found.waits[0].eta_ms == 30_000
    assert found.sentences[0] == "a had it (evicted); nobody runs 0_0 since 0 ms; b gets it."


def test_what_is_not_granted_after_lost_commits_says_so() -> None:
    scene = guarded()
    scene.do(StoreRecovered())
    scene.obey("b")
    scene.do(Eviction(A, dead=True))
    found = of_task(scene)
    assert found.held == HeldBack(TASK, B, Held.GRANTS_HELD, scene.group.grants_from_ms)
    assert [wait.until_ms for wait in found.waits if wait.what is WaitsFor.TIME] == [scene.group.grants_from_ms]


def test_a_standby_that_is_not_granted_yet_waits_for_no_slot() -> None:
    scene = Scene()
    scene.declare(topology(2), num_standby_replicas=1, newcomer_wait_ms=0)
    scene.join("a")
    scene.settle()
    ends_ms = scene.now_ms + 60_000
    scene.group = replace(scene.group, grants_from_ms=ends_ms)
    scene.join("b")
    for task in ("0_0", "0_1"):
        waits = of_task(scene, task).waits
        assert [(one.what, one.until_ms) for one in waits] == [(WaitsFor.TIME, ends_ms)], task


def test_who_is_not_judged_yet_is_not_fenced_before() -> None:
    """The coordinator has just started: the end of the wait was one that is over."""
    scene = guarded(4)
    scene.do(DrainRequest(A))
    task = min(scene.member("a").revoking)
    scene.now_ms += scene.group.config.rebalance_timeout_ms + 1
    scene.soft = Soft()
    scene.do(Started())
    [wait] = [one for one in of_task(scene, task).waits if one.what is WaitsFor.CONFIRMATION]
    assert wait.until_ms == scene.soft.judge_from_ms > scene.now_ms
    assert [one.until_ms for one in of_group(scene).obstacles if one.what == "unrevoked"] == [wait.until_ms]


def test_a_task_that_runs_waits_for_a_target_that_restarts() -> None:
    scene = Scene()
    scene.declare(topology(2), newcomer_wait_ms=0)
    scene.join("a")
    scene.settle()
    scene.join("b", instance_id=InstanceId("i"))
    scene.do(Leave(B, restart=True))
    [task] = [task for task in ("0_0", "0_1") if scene.task(task).target.owner == B]
    away_ms = scene.member("b").away_until_ms
    assert [(one.what, one.member_id, one.until_ms) for one in of_task(scene, task).waits] == [
        (WaitsFor.MEMBER, B, away_ms)
    ]


def test_the_first_members_of_a_group_are_waited_for() -> None:
    scene = Scene()
    scene.declare(topology(1), initial_rebalance_delay_ms=3_000)
    scene.join("a")
    found = of_task(scene)
    assert (found.state, awaited(found)) == (TaskState.WAITING, [(WaitsFor.PLACEMENT, None)])
    assert found.waits[0].eta_ms == 3_000
    assert found.sentences[0] == "Nobody runs 0_0, and never did."
    assert "The next placement is due in 3 s (join)." in of_group(scene).sentences


def test_a_task_that_fits_nowhere_says_so() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a", max_tasks=1)
    scene.settle()
    task = next(task for task, owner in scene.owners().items() if owner is None)
    found = of_task(scene, task)
    assert found.waits[0].what is WaitsFor.ROOM
    assert "It has no target: no member has room for it (max_tasks, max_disk_bytes)." in found.sentences


def test_a_warmup_that_stalled_is_not_tried_again_for_a_while() -> None:
    """The pin leaves no other member to try."""
    scene, task = warming(warmup_stall_timeout_ms=10_000)
    scene.do(PinRequest(TaskId(task), B))
    for _ in range(5):
        scene.obey("a")
        scene.beat("b", {task: copy("warmup", 4_000)} if task in scene.member("b").assignment else {})
        scene.tick(3_000)
    (stall,) = scene.task(task).marks.stalls
    found = of_task(scene, task)
    assert found.held is not None
    assert (found.held.reason, found.held.to) == (Held.STALLED, B)
    assert (found.waits[0].what, found.waits[0].until_ms) == (WaitsFor.WARMUP, stall.until_ms)


def test_an_interim_owner_is_named_as_one() -> None:
    scene = guarded(members="abc", num_standby_replicas=1)
    scene.do(PinRequest(TASK, MemberId("c")))
    scene.beat("c", {TASK: copy("warmup", 9_000)})
    scene.do(Eviction(A, dead=True))
    found = of_task(scene)
    assert (found.task.owner, found.task.target.owner) == (B, "c")
    assert found.sentences[1:3] == ("An operator pinned it to c.", "It belongs to c.")


def test_a_storm_and_lost_commits_are_said_of_the_group() -> None:
    scene = Scene()
    scene.declare(topology(4), session_timeout_ms=10_000)
    for name in "abcd":
        scene.join(name)
    scene.settle()
    for _ in range(6):
        scene.tick(2_000)
        scene.obey("a")
    assert any(text.startswith("3 members vanished at once: ") for text in of_group(scene).sentences)
    scene.do(StoreRecovered())
    found = of_group(scene)
    assert any(text.startswith("The store lost commits") for text in found.sentences)
    assert found.held_until_ms == scene.group.grants_from_ms
    topics = Topology(1, (Subtopology("0", source_topics=("orders",)),))
    unready = Scene()
    unready.declare(topics)
    assert of_group(unready).sentences[0].startswith("The group is not ready: partition counts are not known")


def test_a_silent_member_that_holds_balance_up_is_named() -> None:
    """Balance waits for the word of a member that may be about to expire, or for the end of its lease."""
    scene = pair(2)
    (task,) = scene.member("b").assignment
    for lag in (9_000, 8_000, 7_000, 0):
        scene.wait(5_000)
        scene.beat("b", {task: copy("warmup", lag)})
    found = of_task(scene, task)
    (wait, *_) = [wait for wait in found.waits if wait.what is WaitsFor.TIME]
    assert wait.detail.endswith("a has been silent longest")
    assert wait.until_ms == scene.soft.members[A].heard_ms + scene.group.config.session_timeout_ms


def test_a_member_that_was_never_heard_is_the_one_that_holds_balance_up() -> None:
    """After a restart of the coordinator only the members that came back are known by a report."""
    scene = pair(2)
    (task,) = scene.member("b").assignment
    scene.soft = Soft()
    scene.do(Started())
    for lag in (9_000, 8_000, 7_000, 0):
        scene.now_ms += 5_000
        scene.beat("b", {task: copy("warmup", lag)})
    found = of_task(scene, task)
    (wait, *_) = [wait for wait in found.waits if wait.what is WaitsFor.TIME]
    assert A not in scene.soft.members
    assert wait.detail.endswith("a has been silent longest")
    assert wait.until_ms == scene.soft.started_ms + scene.group.config.session_timeout_ms


def test_a_standby_that_stays_on_a_draining_member_is_waited_for() -> None:
    """After the drain, the copy that the last owner keeps until it goes leaves the task unsettled."""
    scene = guarded()
    scene.do(DrainRequest(A))
    scene.settle()
    found = of_task(scene)
    assert (found.task.owner, awaited(found)) == (B, [(WaitsFor.MEMBER, A)])


def test_a_restarting_instance_is_waited_for() -> None:
    scene = Scene()
    scene.declare(topology(2), rejoin_grace_ms=30_000)
    scene.join("a", instance_id=InstanceId("i"))
    scene.settle()
    scene.do(Leave(A, restart=True))
    scene.tick(10_000)
    found = of_task(scene)
    assert (found.state, awaited(found)) == (TaskState.WAITING, [(WaitsFor.MEMBER, A)])
    assert found.waits[0].eta_ms == 20_000
    assert found.sentences[0] == "a had it (restarted); nobody runs 0_0 since 10 s."
    assert [(one.what, one.tasks) for one in of_group(scene).obstacles] == [("away", 2)]


def test_an_owner_that_has_not_spoken_restores_or_failed_says_so() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a")
    scene.tick()
    assert of_task(scene).state is TaskState.STARTING
    assert awaited(of_task(scene)) == [(WaitsFor.REPORT, A)]
    scene.beat("a", {TASK: restoring(90_000)})
    found = of_task(scene)
    assert (found.state, awaited(found)) == (TaskState.RESTORING, [(WaitsFor.RESTORE, A)])
    assert found.sentences[-1] == "It waits for the restore on a: 90000 records behind."
    scene.beat("a", {TASK: running()})
    scene.beat("a", {TASK: failed()})
    assert of_task(scene).state is TaskState.FAILED
    scene.beat("a", {TASK: running(lost=True)})
    assert of_task(scene).state is TaskState.LOST
    assert of_task(scene).sentences[0].startswith("0_0 lost its state on a")


def test_a_drain_with_nowhere_to_go_is_blocked() -> None:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a")
    scene.settle()
    scene.do(DrainRequest(A))
    scene.tick()
    (obstacle,) = of_group(scene).obstacles
    assert (obstacle.what, obstacle.tasks, obstacle.detail) == ("drain-blocked", 1, meaning_of(Held.NO_ELIGIBLE_MEMBER))


def test_groups_without_members_or_partitions_say_so() -> None:
    scene = Scene()
    scene.declare(topology(1))
    assert of_group(scene).sentences == ("No member has joined: nobody runs its 1 task.",)
    assert guarded().group.declared
    assert of_group(guarded()).sentences == ("Its task runs where it belongs, and every copy is caught up.",)


def test_a_group_whose_copies_lag_behind_names_them() -> None:
    scene = guarded(2)
    scene.beat(
        "b", {task: running() if scene.task(task).owner == "b" else copy("standby", 5_000) for task in ("0_0", "0_1")}
    )
    group = of_group(scene)
    assert (group.waiting_total, [one.waits[0].what for one in group.waiting]) == (1, [WaitsFor.WARMUP])
    assert group.sentences == ("1 copy is not caught up yet. All 2 tasks run.",)


def test_every_reason_is_explained() -> None:
    assert set(Held) == set(MEANINGS) - {"drain-deadline", "drain-timeout"}
    assert meaning_of("something-newer") == "something newer"


def test_tasks_are_counted_once_however_many_members_they_wait_for() -> None:
    """A fleet may restart at once: a thousand members, and a hundred thousand tasks that wait for them."""

    class Counted(PMap[TaskId, Any]):
        passes = 0

        def __iter__(self) -> Iterator[TaskId]:
            self.passes += 1
            return super().__iter__()

        def values(self) -> ValuesView[Any]:
            self.passes += 1
            return super().values()

    def passes(*names: str) -> list[int]:
        scene = pair(4)
        gone = {MemberId(name): replace(scene.member(name), away_until_ms=9, drain=Drain(1, None, 9)) for name in names}
        looked = [Counted(scene.group.unsettled), Counted(dict.fromkeys(scene.group.table.ids, A))]
        members = scene.group.members.updated(gone)
        scene.group = replace(scene.group, members=members, unsettled=looked[0], pins=looked[1])
        assert len(list(_obstacles(scene.view()))) == 2 * len(names)
        return [one.passes for one in looked]

    assert passes("a") == passes("a", "b")
