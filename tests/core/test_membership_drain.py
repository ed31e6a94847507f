"""Draining: handing over while processing, deadlines, reversal, and what stands in the way."""

import pytest
from tests.core.scene import Scene, copy, running, topology
from tests.core.scenes import settled
from tests.placement.placing import Unsolvable

from batonpass.core.arrivals.answers import why_drain_is_blocked
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, DrainReversal, Eviction, Leave, PinRequest, ProbeRequest
from batonpass.core.state.model import Drain, Role
from batonpass.core.state.reasons import MEANINGS, Held
from batonpass.core.state.records import AssignmentChanged, DrainStarted
from batonpass.core.state.replies import Answer, Done, DrainProgress
from batonpass.explain.group import explain_group
from batonpass.explain.task import explain_task
from batonpass.placement import flow

M1, M2 = MemberId("m1"), MemberId("m2")


def codes(reply: object) -> list[str]:
    """Return the status codes of an answer."""
    assert isinstance(reply, Answer)
    return [code for code, _ in reply.status]


def test_a_drained_member_keeps_processing_until_others_are_ready() -> None:
    scene = settled()
    (task,) = scene.held("m2", Role.ACTIVE)
    progress = scene.ok(DrainRequest(M2), DrainProgress)
    assert progress == DrainProgress((task,))  # type: ignore[arg-type]
    assert scene.grant("m2", task)
    assert scene.held("m1", Role.WARMUP) == [task]
    scene.beat("m1", {**{one: running() for one in scene.held("m1", Role.ACTIVE)}, task: copy("warmup", 99_999)})
    assert codes(scene.beat("m2", {task: running()})) == ["draining"]
    scene.obey("m1")
    assert scene.grant("m2", task) is None or scene.grant("m2", task).role is not Role.ACTIVE  # type: ignore[union-attr]
    scene.settle()
    assert scene.owners()[task] == "m1"
    assert codes(scene.beat("m2", {})) == ["drained"]
    assert scene.ok(DrainRequest(M2), DrainProgress) == DrainProgress(())


def test_a_drain_still_counts_what_is_revoked_and_not_confirmed() -> None:
    scene = settled()
    (task,) = scene.held("m2", Role.ACTIVE)
    scene.do(DrainRequest(M2))
    scene.obey("m1")
    assert Role.ACTIVE not in {grant.role for grant in scene.member("m2").assignment.values()}
    assert scene.ok(DrainRequest(M2), DrainProgress).remaining == (task,)
    scene.obey("m2")
    assert scene.ok(DrainRequest(M2), DrainProgress).remaining == ()


def test_a_draining_member_is_the_target_of_nothing() -> None:
    scene = settled(3, 6, num_standby_replicas=1)
    scene.do(DrainRequest(M2))
    scene.settle(60)
    assert all(
        M2 not in (scene.task(one).target.owner, *scene.task(one).target.standbys) for one in scene.group.table.ids
    )
    assert not scene.held("m2", Role.ACTIVE)


def test_a_second_request_may_set_a_deadline() -> None:
    scene = settled(drain_timeout_ms=60_000)
    scene.do(DrainRequest(M2))
    begun_ms = scene.now_ms
    assert scene.member("m2").drain == Drain(begun_ms, None, begun_ms + 60_000)
    scene.now_ms += 1_000
    group = scene.group
    scene.do(DrainRequest(M2))
    assert scene.group is group
    scene.do(DrainRequest(M2, 30_000))
    assert scene.member("m2").drain == Drain(begun_ms, scene.now_ms + 30_000, begun_ms + 60_000)
    scene.now_ms += 1_000
    scene.do(DrainRequest(M2))
    assert scene.member("m2").drain == Drain(begun_ms, begun_ms + 31_000, begun_ms + 60_000)


def test_at_the_deadline_the_rest_goes_cold() -> None:
    scene = settled()
    (task,) = scene.held("m2", Role.ACTIVE)
    scene.do(DrainRequest(M2, 30_000))
    for _ in range(9):
        scene.wait(3_000)
        scene.beat("m1", {**{one: running() for one in scene.held("m1", Role.ACTIVE)}, task: copy("warmup", 99_999)})
        scene.obey("m2")
        assert scene.owners()[task] == "m2"
    scene.wait(3_000)
    assert scene.grant("m2", task) is None or scene.grant("m2", task).role is not Role.ACTIVE  # type: ignore[union-attr]
    scene.obey("m2")
    assert scene.owners()[task] == "m1"


def test_a_drain_can_be_taken_back() -> None:
    scene = settled()
    (task,) = scene.held("m2", Role.ACTIVE)
    scene.do(DrainRequest(M2))
    assert scene.held("m1", Role.WARMUP) == [task]
    scene.ok(DrainReversal(M2), Done)
    assert scene.member("m2").drain is None
    assert codes(scene.beat("m2", {task: running()})) == []
    scene.settle()
    assert scene.owners()[task] == "m2"
    assert not scene.held("m1", Role.WARMUP)


def test_taking_back_no_drain_is_nothing() -> None:
    scene = settled()
    group = scene.group
    scene.ok(DrainReversal(M2), Done)
    assert scene.group is group


def pinned_stage(**config: int) -> tuple[Scene, str]:
    """Return a settled scene of two members, and the task of m2, which is pinned to it."""
    scene = settled(**config)
    (task,) = scene.held("m2", Role.ACTIVE)
    scene.ok(PinRequest(TaskId(task), M2), Done)
    scene.settle()
    return scene, task


def explained(scene: Scene, task: str) -> str:
    """Return what is said of a task now."""
    return " ".join(explain_task(scene.view(), TaskId(task)).sentences)


def test_a_drain_suspends_the_pins_on_its_member_until_it_is_taken_back() -> None:
    """The task leaves once, at the deadline at the latest, and returns warm."""
    scene, task = pinned_stage(acceptable_recovery_lag=100)
    places: list[str] = []

    def play(seconds: int, lag: int) -> None:
        for _ in range(seconds // 3):
            for name in ("m1", "m2"):
                scene.obey(name, lag=lag)
            scene.wait(3_000)
            owner, target = scene.task(task).owner, scene.task(task).target.owner
            word = f"{owner} has it, {target} is to have it"
            if owner is not None and places[-1:] != [word]:
                places.append(word)

    scene.do(DrainRequest(M2, 30_000))
    play(36, lag=99_999)
    play(600, lag=0)
    assert places == ["m2 has it, m1 is to have it", "m1 has it, m1 is to have it"]
    assert "pinned it to m2, which drains: the pin is suspended" in explained(scene, task)
    scene.do(DrainReversal(M2))
    play(30, lag=99_999)
    play(60, lag=0)
    assert places[2:] == ["m1 has it, m2 is to have it", "m2 has it, m2 is to have it"]
    assert "An operator pinned it to m2." in explained(scene, task)


def test_a_pin_on_a_draining_member_is_taken_and_holds_when_the_drain_is_taken_back() -> None:
    scene = settled()
    (task,) = scene.held("m1", Role.ACTIVE)
    scene.do(DrainRequest(M2))
    scene.settle()
    scene.ok(PinRequest(TaskId(task), M2), Done)
    assert scene.last is not None
    assert Held.NO_CAPACITY.value not in {reason.code for reason in scene.last.reasons}
    scene.settle()
    assert scene.owners()[task] == "m1"
    assert "the pin is suspended" in explained(scene, task)
    found = explain_group(scene.view(), limit=9)
    (obstacle,) = found.obstacles
    assert obstacle.detail == "it has no active task left; 1 pin on it suspended until the drain is taken back"
    scene.do(DrainReversal(M2))
    scene.settle(60)
    assert scene.owners()[task] == "m2"


def test_a_pin_in_force_that_finds_no_room_says_so() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("m1")
    scene.join("m2", max_tasks=0)
    scene.settle()
    for drains, codes_ in ((False, {Held.NO_CAPACITY.value}), (True, set())):
        if drains:
            scene.do(DrainRequest(M2))
        else:
            scene.do(PinRequest(TaskId("0_0"), M2))
        assert scene.last is not None
        assert {reason.code for reason in scene.last.reasons if reason.to == M2} == codes_


def test_a_handover_under_way_goes_through_in_spite_of_a_reversal() -> None:
    scene = settled()
    (task,) = scene.held("m2", Role.ACTIVE)
    scene.do(DrainRequest(M2))
    scene.obey("m1")
    assert scene.task(task).handover.next_owner == "m1"
    scene.do(DrainReversal(M2))
    assert scene.task(task).handover.next_owner == "m1"
    scene.obey("m2")
    assert scene.task(task).owner == "m1"


def test_a_drain_with_nowhere_to_go_is_blocked() -> None:
    scene = settled(1)
    scene.do(DrainRequest(M1))
    assert codes(scene.beat("m1", {one: running() for one in ("0_0", "0_1")})) == ["drain-blocked"]
    assert set(scene.owners().values()) == {"m1"}
    scene.join("m2")
    assert codes(scene.beat("m1", {one: running() for one in ("0_0", "0_1")})) == ["draining"]


def test_when_all_drain_nothing_moves() -> None:
    scene = settled()
    owners = scene.owners()
    scene.do(DrainRequest(M1))
    scene.do(DrainRequest(M2))
    scene.settle()
    assert scene.owners() == owners
    for name in ("m1", "m2"):
        assert codes(scene.beat(name, {one: running() for one in scene.held(name, Role.ACTIVE)})) == ["drain-blocked"]


def test_a_drain_that_takes_too_long_is_blocked_and_goes_on() -> None:
    scene = settled(drain_timeout_ms=30_000)
    (task,) = scene.held("m2", Role.ACTIVE)
    scene.do(DrainRequest(M2))
    behind = {**{one: running() for one in scene.held("m1", Role.ACTIVE)}, task: copy("warmup", 99_999)}
    for _ in range(9):
        scene.wait(3_000)
        scene.beat("m1", behind)
        assert codes(scene.beat("m2", {task: running()})) == ["draining"]
    scene.wait(3_000)
    scene.beat("m1", behind)
    assert codes(scene.beat("m2", {task: running()})) == ["drain-blocked"]
    assert scene.owners()[task] == "m2"
    scene.obey("m1")
    scene.settle()
    assert scene.owners()[task] == "m1"


def test_a_deadline_that_passes_with_tasks_left_is_reported_once() -> None:
    scene = settled(1, 1)
    scene.join("m2", max_tasks=0)
    scene.do(DrainRequest(M1, 5_000))
    assert codes(scene.beat("m1", {"0_0": running()})) == ["draining"]
    scene.wait(4_999)
    assert scene.member("m1").drain == Drain(scene.now_ms - 4_999, scene.now_ms + 1, scene.now_ms - 4_999 + 1_800_000)
    scene.wait(1)
    (noted,) = scene.of(DrainStarted)
    assert noted.blocked == "drain-deadline"
    assert scene.last is not None
    assert [(one.to, one.detail) for one in scene.last.reasons if one.code == "drain-blocked"] == [
        (M1, "drain-deadline")
    ]
    answer = scene.beat("m1", {"0_0": running()})
    assert isinstance(answer, Answer)
    assert dict(answer.status)["drain-blocked"].startswith("1 tasks are left after")
    assert scene.ok(DrainRequest(M1), DrainProgress).blocked == (("0_0", "drain-deadline"),)
    scene.wait(20_000)
    assert not scene.of(DrainStarted)
    assert scene.owners() == {"0_0": "m1"}
    scene.join("m3")
    scene.settle()
    assert scene.owners() == {"0_0": "m3"}
    assert codes(scene.beat("m1", {})) == ["drained"]


def test_at_its_deadline_a_drain_whose_placement_failed_goes_to_the_ready_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target is still the draining member, which must not get the task back."""
    scene = settled(num_standby_replicas=1)
    (name,) = scene.held("m1", Role.ACTIVE)
    task = TaskId(name)
    with monkeypatch.context() as broken:
        broken.setattr(flow, "SimpleMinCostFlow", Unsolvable)
        assert scene.ok(DrainRequest(M1, 5_000), DrainProgress).blocked == ((task, "placement-failed"),)
        answer = scene.beat("m1", {task: running()})
        assert isinstance(answer, Answer)
        assert "placement found no answer" in dict(answer.status)["drain-blocked"]
        scene.wait(4_999)
        assert (scene.task(task).owner, scene.task(task).target.owner) == ("m1", "m1")
        scene.wait(1)
        assert scene.task(task).handover.next_owner == "m2"
        assert not scene.of(DrainStarted)
        for _ in range(20):
            scene.obey()
            scene.tick(1_000)
        assert (scene.task(task).owner, scene.task(task).target.owner, scene.task(task).token) == ("m2", "m1", 2)
        assert codes(scene.beat("m1", {task: copy("standby")})) == ["drained"]
    scene.do(ProbeRequest())
    scene.settle()
    assert scene.task(task).target.owner == "m2"


def test_without_a_copy_a_drain_whose_placement_failed_waits_for_the_next_placement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.declare(topology(2, stateless=2))
    scene.join("m1")
    scene.join("m2")
    scene.settle()
    tasks = [TaskId(name) for name in scene.held("m1", Role.ACTIVE)]
    with monkeypatch.context() as broken:
        broken.setattr(flow, "SimpleMinCostFlow", Unsolvable)
        scene.do(DrainRequest(M1, 5_000))
        scene.wait(5_000)
        assert [record.blocked for record in scene.of(DrainStarted)] == ["drain-deadline"]
        assert {scene.task(task).owner for task in tasks} == {"m1"}
        progress = scene.ok(DrainRequest(M1), DrainProgress)
        assert progress.blocked == tuple((task, "placement-failed") for task in tasks)
        explanation = explain_task(scene.view(), tasks[0])
        assert [wait.detail for wait in explanation.waits] == [MEANINGS[Held.PLACEMENT_FAILED]]
    scene.do(ProbeRequest())
    scene.settle()
    assert codes(scene.beat("m1", {})) == ["drained"]


@pytest.mark.parametrize(("stateless", "standbys"), [(0, 0), (0, 1), (0, 2), (3, 0)])
@pytest.mark.parametrize("deadline_ms", [None, 5_000, 60_000])
def test_a_next_owner_that_drains_does_not_keep_what_it_was_to_get(
    deadline_ms: int | None, stateless: int, standbys: int
) -> None:
    """The task waits for the lease of its last owner. By then its next owner drains, or should be gone."""
    scene = Scene()
    scene.declare(topology(0 if stateless else 3, stateless=stateless), num_standby_replicas=standbys)
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    scene.settle()
    (task,) = scene.held("m1", Role.ACTIVE)
    scene.do(Eviction(M1))
    leaving = scene.task(task).handover.next_owner
    assert leaving is not None
    (stays,) = {"m2", "m3"} - {leaving}
    scene.do(DrainRequest(leaving, deadline_ms))
    granted = []
    for _ in range(17):
        scene.wait(3_000)
        scene.obey()
        granted.append(scene.task(task).owner)
    assert granted[-1] == stays
    assert scene.held(leaving, Role.ACTIVE) == []
    if deadline_ms == 5_000 or not standbys:
        assert leaving not in granted


def test_another_deadline_is_another_chance() -> None:
    scene = settled(1, 1)
    scene.join("m2", max_tasks=0)
    scene.do(DrainRequest(M1, 5_000))
    scene.wait(5_000)
    assert scene.member("m1").drain is not None
    assert why_drain_is_blocked(scene.group, scene.member("m1")) == "drain-deadline"
    scene.do(DrainRequest(M1, 5_000))
    assert why_drain_is_blocked(scene.group, scene.member("m1")) == ""


def test_whether_a_drain_is_blocked_concerns_those_who_drain() -> None:
    scene = settled(1)
    assert not why_drain_is_blocked(scene.group, scene.member("m1"))


def test_a_drained_member_leaves_without_anybody_noticing() -> None:
    scene = settled(3, 6)
    scene.do(DrainRequest(M2))
    scene.settle(60)
    owners = scene.owners()
    scene.do(Leave(M2))
    assert scene.owners() == owners
    assert not [one for one in scene.of(AssignmentChanged) if one.revoked or one.demoted]


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("others", ["full", "gone"])
def test_what_no_other_member_may_have_runs_on_one_that_drains_until_there_is_room(
    others: str, *, stateless: bool
) -> None:
    """Nobody is helped by a task that stands still beside a process that would run it."""
    scene = Scene()
    scene.declare(topology(0, stateless=4) if stateless else topology(4))
    for name, most in (("m1", 2), ("m2", 2), ("m3", 4)):
        scene.join(name, max_tasks=most)
    scene.settle(60)
    scene.do(DrainRequest(MemberId("m3")))
    scene.settle(60)
    assert scene.member("m3").assignment == {}
    for name in ("m1", "m2") if others == "gone" else ("m1",):
        scene.do(Leave(MemberId(name)))
        scene.settle(60)
    assert len(scene.held("m3", Role.ACTIVE)) == (4 if others == "gone" else 2)
    assert None not in scene.owners().values()
    generation = scene.group.generation
    for _ in range(60):
        scene.wait(1_000)
        scene.obey()
    assert scene.group.generation <= generation + 1
    scene.join("m4", max_tasks=4)
    scene.settle(200)
    assert scene.member("m3").assignment == {}
    assert None not in scene.owners().values()


def test_a_member_that_drains_and_is_full_is_no_place_for_what_another_has_room_for() -> None:
    """What it runs has no target, because nobody who stays may have it: that took no room, and a task waited for it."""
    scene = Scene()
    scene.declare(topology(13), newcomer_wait_ms=0, max_lost_share=1.0)
    for name, most in (("m2", None), ("m1", 4), ("m3", 4), ("m4", 1)):
        scene.join(name, max_tasks=most)
        scene.settle(60)
    for name in ("m1", "m2"):
        scene.do(DrainRequest(MemberId(name)))
    scene.wait(20_000)
    scene.obey()
    full = scene.held("m1", Role.ACTIVE)
    assert len(full) == 4
    scene.do(Eviction(MemberId("m3"), dead=True))
    for _ in range(3):
        scene.wait(1_000)
        scene.obey()
    assert scene.held("m1", Role.ACTIVE) == full
    assert None not in scene.owners().values()


def test_what_finds_no_room_on_those_that_drain_waits_for_others() -> None:
    scene = Scene()
    scene.declare(topology(2), max_lost_share=1.0)
    for name in ("m1", "m2"):
        scene.join(name, max_tasks=1)
    scene.settle(60)
    scene.do(DrainRequest(M1))
    scene.do(Eviction(M2, dead=True))
    scene.wait(1_000)
    [waiting] = [task for task, owner in scene.owners().items() if owner is None]
    assert (scene.task(waiting).target.owner, scene.task(waiting).target.waiting_reason) == (
        None,
        Held.NO_ELIGIBLE_MEMBER,
    )
