"""Who gets a slot: per group, per member, for drains; in what order; and what those say that get none."""

import pytest
from tests.core.described import describe_group
from tests.core.relay import COLD_LAG, Relay
from tests.core.scene import Scene, copy, restoring, running, topology
from tests.core.scenes import held_back

from batonpass.core.handover.budget import give_slots
from batonpass.core.handover.copies import HeldBack, TaskPlan, plan_task
from batonpass.core.handover.copy_capacity import CopyCapacity
from batonpass.core.handover.owner import Choice
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Eviction, PauseRequest, PinRequest, ProbeRequest
from batonpass.core.state.model import PauseScope, Role, Subtopology
from batonpass.core.state.reasons import Held, Why


def slow(tasks: int = 12, **config: object) -> Relay:
    """Return a group in which a runs everything, and whose copies take many rounds."""
    relay = Relay(topology(tasks), policy=None, whole=True, **config)
    relay.join("a")
    relay.play()
    relay.step = COLD_LAG // 20
    return relay


def warming(relay: Relay) -> dict[str, int]:
    """Return how many warmups each member has."""
    return {name: len(relay.scene.held(name, Role.WARMUP)) for name in sorted(relay.group.members)}


@pytest.mark.parametrize(("budget", "slots"), [(1, 1), (2, 2), (3, 3), ("10%", 2), ("1%", 1), ("50%", 6)])
def test_the_group_has_as_many_extra_copies_as_its_budget_and_no_more(budget: int | str, slots: int) -> None:
    """The budget is a number, or a share of the stateful tasks, rounded up, at least one."""
    relay = slow(max_warmup_replicas=budget, max_warmups_per_member=100)
    relay.join("b")
    relay.round()
    assert warming(relay)["b"] == min(slots, 6)
    relay.step = COLD_LAG
    relay.play()
    assert relay.most_extra == min(slots, 6)


def test_each_member_has_its_own_limit() -> None:
    """The limit spares the member that restores."""
    relay = slow(max_warmup_replicas=6, max_warmups_per_member=1)
    relay.join("b")
    relay.round()
    assert warming(relay)["b"] == 1
    assert {reason for _, _, reason in held_back(relay.scene)} == {Held.MEMBER_WARMUP_BUDGET}
    relay.join("c")
    relay.round()
    assert warming(relay) == {"a": 0, "b": 1, "c": 1}


def test_what_gets_no_slot_says_that_the_groups_budget_is_used_up() -> None:
    relay = slow(6, max_warmup_replicas=1)
    relay.join("b")
    relay.round()
    (begun,) = relay.scene.held("b", Role.WARMUP)
    going = [task for task in relay.owners() if relay.group.tasks[task].target.owner == "b" and task != begun]
    assert held_back(relay.scene) == [(task, "b", Held.WARMUP_BUDGET) for task in going]
    assert len(going) == 2


def test_drains_have_a_budget_of_their_own_and_go_first() -> None:
    relay = slow(12, max_warmup_replicas=1, max_drain_warmups=2, max_warmups_per_member=10)
    relay.join("b")
    relay.round()
    assert warming(relay) == {"a": 0, "b": 1}
    relay.scene.do(DrainRequest(MemberId("a")))
    relay.count()
    relay.beats()
    assert sum(warming(relay).values()) == 2
    assert {reason for _, _, reason in held_back(relay.scene)} == {Held.DRAIN_BUDGET}


def test_a_drain_does_not_spend_what_balance_needs() -> None:
    relay = Relay(topology(12), max_warmup_replicas=1, max_drain_warmups=1, initial_rebalance_delay_ms=3_000)
    relay.join("a", "b")
    relay.play()
    relay.step = COLD_LAG // 20
    relay.scene.do(DrainRequest(MemberId("a")))
    relay.count()
    relay.join("c", "d")
    relay.round()
    begun = [TaskId(task) for name in "bcd" for task in relay.scene.held(name, Role.WARMUP)]
    owners = {relay.group.tasks[task].owner for task in begun}
    assert owners == {"a", "b"}
    assert sum(warming(relay).values()) == 2


def test_what_a_draining_member_has_given_up_is_no_longer_paid_for_by_its_drain() -> None:
    """From the ready copy that took over, the task moves for balance."""
    scene = Scene()
    scene.declare(topology(5), max_warmup_replicas=1, max_drain_warmups=1)
    scene.join("a", capacity=2.0)
    for name in "bcd":
        scene.join(name)
    scene.settle()
    first, given_up = scene.held("a", Role.ACTIVE)
    ((of_b,), (of_c,), (of_d,)) = (scene.held(name, Role.ACTIVE) for name in "bcd")
    for task, pin in ((of_c, "d"), (first, "d"), (given_up, "c")):
        scene.do(PinRequest(TaskId(task), MemberId(pin)))
    scene.do(DrainRequest(MemberId("a")))
    assert scene.held("d", Role.WARMUP) == sorted([of_c, first])
    assert (given_up, "c", Held.DRAIN_BUDGET) in held_back(scene)
    # The task is found on the disk of b, which takes over; a is slow to stop it, and goes on with its drain.
    scene.beat("b", {of_b: running(), given_up: copy("none")})
    scene.beat("a", {first: running(), given_up: restoring(50_000)})
    assert scene.task(given_up).handover.next_owner == "b"
    scene.beat("d", {of_d: running(), of_c: copy(Role.WARMUP, 50_000), first: copy(Role.WARMUP)})
    scene.beat("a", {first: copy(Role.STANDBY), given_up: restoring(50_000)})
    scene.beat("d", {of_d: running(), of_c: copy(Role.WARMUP, 50_000), first: running()})
    assert scene.owners()[first] == "d"
    assert [one.member_id for one in scene.task(given_up).handover.unreleased] == ["a"]
    assert scene.held("c", Role.WARMUP) == []
    assert (given_up, "c", Held.WARMUP_BUDGET) in held_back(scene)


def test_the_most_overloaded_owner_is_relieved_first() -> None:
    scene = Scene()
    scene.declare(topology(6, more=(Subtopology("1", 2),)), max_warmup_replicas=1, initial_rebalance_delay_ms=0)
    scene.join("a", capacity=6.0)
    scene.obey()
    scene.join("b", capacity=2.0)
    scene.settle()
    loads = {name: len(scene.held(name, Role.ACTIVE)) / scene.member(name).capacity for name in ("a", "b")}
    assert max(loads.values()) == 1.0
    heavy = [scene.held("a", Role.ACTIVE)[-1], scene.held("b", Role.ACTIVE)[-1]]
    # c has the room of two: one task each is to come from a, with five left a sixth, and from b, with one left a half.
    scene.do(PauseRequest(PauseScope.ALL))
    scene.join("c", capacity=0.5)
    for task in heavy:
        scene.do(PinRequest(TaskId(task), MemberId("c")))
    scene.tick()
    assert {entry[0] for entry in held_back(scene)} == set(heavy)
    assert {entry[2] for entry in held_back(scene)} == {Held.PAUSED}


def test_the_shortest_estimated_catch_up_goes_first() -> None:
    scene = Scene()
    scene.declare(topology(4), max_warmup_replicas=1, acceptable_recovery_lag=10)
    scene.join("a")
    scene.obey()
    scene.join("b", {"0_3": copy("none", 500), "0_2": copy("none", 50_000)})
    assert scene.held("b", Role.WARMUP) == ["0_3"]


def test_a_pause_gives_no_slot_and_says_so() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a")
    scene.obey()
    scene.do(PauseRequest(PauseScope.ALL))
    scene.join("b")
    scene.do(PinRequest(TaskId("0_1"), MemberId("b")))
    scene.tick()
    assert scene.held("b", Role.WARMUP) == []
    assert ("0_1", "b", Held.PAUSED) in held_back(scene)


def test_a_takeover_is_never_queued() -> None:
    relay = Relay(topology(20), num_standby_replicas=1, max_warmup_replicas=1, initial_rebalance_delay_ms=3_000)
    relay.join("a", "b", "c")
    relay.play()
    relay.scene.do(Eviction(MemberId("a"), dead=True))
    assert None not in relay.owners().values()


def test_a_full_member_gets_no_copy_and_says_no_capacity() -> None:
    scene = Scene()
    scene.declare(topology(4), max_warmup_replicas=4, max_warmups_per_member=4)
    scene.join("a")
    scene.obey()
    scene.join("b", max_tasks=1)
    for task in ("0_0", "0_1"):
        scene.do(PinRequest(TaskId(task), MemberId("b")))
    scene.tick(1_000)
    assert len(scene.member("b").assignment) == 1
    assert scene.task("0_1").owner == "a"
    scene.do(ProbeRequest())
    assert scene.last is not None
    assert (Held.NO_CAPACITY, "0_1", "b") in {(reason.code, reason.task, reason.to) for reason in scene.last.reasons}


def test_a_task_that_fits_nowhere_is_held_back_for_want_of_capacity() -> None:
    scene = Scene()
    scene.declare(topology(3))
    scene.join("a", max_tasks=2)
    scene.obey()
    assert held_back(scene) == [("0_2", None, Held.NO_CAPACITY)]


def test_a_task_that_runs_on_a_draining_member_and_fits_nowhere_else_says_so() -> None:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a")
    scene.obey()
    scene.join("b", max_tasks=1)
    scene.do(DrainRequest(MemberId("a")))
    for _ in range(4):
        scene.obey()
    waiting = [entry for entry in held_back(scene) if entry[2] == Held.NO_CAPACITY]
    assert len(waiting) == 1
    assert scene.owners()[TaskId(waiting[0][0])] == "a"
    assert HeldBack(TaskId(waiting[0][0]), None, Held.NO_CAPACITY) in describe_group(scene.view()).held_back


def one_warmup_at_the_limit() -> tuple[Scene, str, str]:
    """Return a group with one slot, which a lagging warmup uses, and with another move that waits for it.

    The member of the warmup has been told to give something else up and has not confirmed. Its name is returned, and
    that of the owner beside which it warms up.
    """
    scene = Scene()
    scene.declare(topology(4, stateless=1), max_warmup_replicas=1, acceptable_recovery_lag=10)
    for name in "abcd":
        scene.join(name)
    scene.settle()
    old, waits, new, other = (str(scene.owners()[f"0_{number}"]) for number in range(4))
    scene.do(PinRequest(TaskId("1_0"), MemberId(new)))
    scene.settle()
    scene.do(PinRequest(TaskId("0_0"), MemberId(new)))
    scene.beat(new, {"0_2": running(), "1_0": running(), "0_0": copy(Role.WARMUP, 5_000)})
    scene.do(PinRequest(TaskId("0_1"), MemberId(other)))
    scene.do(PinRequest(TaskId("1_0"), MemberId(other)))
    assert scene.member(new).revoking
    assert scene.held(new, Role.WARMUP) == ["0_0"]
    assert scene.task("0_1").target.owner == other != waits
    return scene, old, new


def test_a_warmup_that_is_to_take_over_keeps_its_slot_until_it_is_granted() -> None:
    scene, old, new = one_warmup_at_the_limit()
    scene.join("e", replaces=MemberId(old))
    assert scene.owners()["0_0"] is None
    assert scene.task("0_1").warmups == ()
    scene.beat(new, {"0_2": running(), "0_0": copy(Role.WARMUP, 5_000)})
    assert scene.owners()["0_0"] == new
    assert len(scene.task("0_1").warmups) == 1


def test_a_warmup_that_is_granted_at_once_makes_room_in_the_same_step() -> None:
    scene, old, new = one_warmup_at_the_limit()
    scene.beat(new, {"0_2": running(), "0_0": copy(Role.WARMUP, 5_000)})
    scene.join("e", replaces=MemberId(old))
    assert scene.owners()["0_0"] == new
    assert len(scene.task("0_1").warmups) == 1


@pytest.mark.parametrize("gives_up", ["nothing", "an active", "a copy"])
def test_who_has_to_give_something_up_in_this_very_step_is_granted_nothing_in_it(gives_up: str) -> None:
    """The slot of a warmup that is to take over is free in the step in which its member only gains."""
    scene, old, new = one_warmup_at_the_limit()
    scene.beat(new, {"0_2": running(), "0_0": copy(Role.WARMUP, 5_000)})
    view = scene.view()
    free, other = scene.task("0_0")._replace(owner=None), scene.task("0_2")
    takeover = TaskPlan(free, Choice(MemberId(new), Why.FAILOVER), {})
    waiting = plan_task(view, scene.task("0_1"))
    moved = TaskPlan(other, Choice(MemberId(new), Why.STAYS), {})
    if gives_up == "an active":
        moved = TaskPlan(other, Choice(MemberId(old), Why.HANDOVER), {})
    elif gives_up == "a copy":
        moved = TaskPlan(
            other._replace(owner=MemberId(old), standbys=(MemberId(new),)), Choice(MemberId(old), Why.STAYS), {}
        )
    task_plans = [takeover, moved, waiting]
    give_slots(view, task_plans, CopyCapacity(view, task_plans))
    assert len(waiting.copies) == (1 if gives_up == "nothing" else 0)
