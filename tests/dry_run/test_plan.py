"""The dry run: one step of a group from a file."""

from dataclasses import replace
from typing import Never

import pytest
from tests.core.scene import Scene, running, topology
from tests.dry_run.planning import CONFIG, done, faults, held, member, plan_of, random_snapshot, runs, tasks

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import ActiveState, PauseScope, Role
from batonpass.dry_run.plan import plan_snapshot
from batonpass.dry_run.snapshot import Snapshot, SnapshotCopy, SnapshotMember, SnapshotTask, contradictions
from batonpass.explain.status import snapshot_of

M1, M2, M3 = MemberId("m1"), MemberId("m2"), MemberId("m3")
T0, T1, T2, T3 = tasks(4)


def test_a_running_owner_keeps_its_task_while_the_target_warms_up() -> None:
    """Protocol 13.4 and protocol 13.6."""
    plan = plan_of(member("m1", runs("0_0", "0_1", "0_2", "0_3")), member("m2"))
    assert plan.assignment[M1]["active"] == ("0_0", "0_1", "0_2", "0_3")
    assert len(plan.assignment[M2]["warmup"]) == 1
    assert list(held(plan).values()) == ["warmup-budget"]
    assert (plan.moves, plan.lower_bound, plan.at_rest, plan.probing_needed) == (2, 2, False, True)


def test_a_caught_up_target_gets_the_task_in_this_step_and_the_next_slot_is_given_away() -> None:
    plan = plan_of(
        member("m1", runs("0_0", "0_1", "0_2", "0_3")), member("m2", {"0_1": SnapshotCopy("warmup", lag=100)})
    )
    assert plan.assignment[M2]["active"] == ("0_1",)
    assert len(plan.assignment[M2]["warmup"]) == 1
    assert plan.held_back == ()
    codes = [reason.code for reason in plan.reasons]
    assert codes[1] == "handover"
    assert sorted(codes) == ["handover", "stays", "stays", "warming"]


def test_a_member_hands_a_task_over_in_the_step_in_which_it_is_granted_another() -> None:
    """Live, the grant comes first (``take-over-first``). When the step is complete, both are done."""
    going = (SnapshotTask(TaskId("0_0"), revoking=M1), SnapshotTask(TaskId("0_1")))
    plan = plan_of(
        member("m1", runs("0_0")),
        member("m2", {**runs("0_1"), "0_0": SnapshotCopy("warmup", lag=0)}),
        member("m3", {"0_1": SnapshotCopy("warmup", lag=0)}),
        tasks=going,
        target={TaskId("0_0"): (M2, ()), TaskId("0_1"): (M3, ())},
    )
    assert [plan.assignment[one]["active"] for one in (M1, M2, M3)] == [(), ("0_0",), ("0_1",)]
    assert [reason.code for reason in plan.reasons] == ["handover-under-way", "handover"]


def test_a_full_member_gets_a_task_in_the_step_in_which_it_gives_up_its_own() -> None:
    """Live, it is full until it has confirmed that it gave the other up."""
    listed = (SnapshotTask(TaskId("0_0")), SnapshotTask(TaskId("0_1"), stateful=False))
    plan = plan_of(
        member("m1", runs("0_1")),
        member("m2", runs("0_0"), max_tasks=1),
        member("m3", {"0_0": SnapshotCopy("warmup", lag=0)}),
        tasks=listed,
        pins={TaskId("0_0"): M3, TaskId("0_1"): M2},
    )
    assert [plan.assignment[one]["active"] for one in (M1, M2, M3)] == [(), ("0_1",), ("0_0",)]


def test_a_warmup_that_gets_its_task_takes_no_slot_though_its_member_gives_up_another() -> None:
    """Live, it is granted the task when it has confirmed that it gave the other up, and is a warmup until then."""
    plan = plan_of(
        member("m1", runs("0_2")),
        member("m2", {**runs("0_1"), "0_0": SnapshotCopy("warmup", lag=0)}),
        member("m3", {"0_1": SnapshotCopy("warmup", lag=0)}),
        count=3,
        pins={TaskId("0_0"): M2, TaskId("0_1"): M3, TaskId("0_2"): M3},
    )
    assert [plan.assignment[one]["active"] for one in (M1, M2, M3)] == [("0_2",), ("0_0",), ("0_1",)]
    assert plan.assignment[M3]["warmup"] == ("0_2",)


def test_a_group_that_is_where_it_belongs_rests() -> None:
    """Protocol 13.5."""
    plan = plan_of(member("m1", runs("0_0")), member("m2", runs("0_1")), count=2)
    assert (plan.moves, plan.at_rest, plan.probing_needed) == (0, True, False)
    behind = replace(CONFIG, num_standby_replicas=1)
    plan = plan_of(
        member("m1", {**runs("0_0"), "0_1": SnapshotCopy("standby", lag=0)}),
        member("m2", {**runs("0_1"), "0_0": SnapshotCopy("standby", lag=101)}),
        count=2,
        config=behind,
    )
    assert (plan.at_rest, plan.probing_needed) == (False, True)


def test_a_group_without_members_waits() -> None:
    """Protocol 13.3."""
    plan = plan_of(count=2)
    assert plan.target == {}
    assert plan.assignment == {}
    assert set(held(plan).values()) == {"no-eligible-member"}
    assert not plan.at_rest
    assert plan_of(count=0).at_rest


def test_a_pin_to_nobody_or_of_nothing_is_a_contradiction() -> None:
    """A previous target may name a member that has left since, but no task that is not there."""
    snapshot = Snapshot(tasks=tasks(1), members=(member("m1"),), pins={TaskId("0_9"): M1, TaskId("0_0"): M2})
    snapshot = replace(snapshot, target={TaskId("0_8"): (M1, ()), TaskId("0_0"): (M2, ())})
    assert contradictions(snapshot) == [
        ("pins.0_9", "there is no task 0_9"),
        ("pins.0_0", "there is no member m2"),
        ("target.0_8", "there is no task 0_8"),
    ]


def test_a_revocation_from_a_member_without_the_task_is_a_contradiction() -> None:
    asked = (SnapshotTask(TaskId("0_0"), revoking=M2), SnapshotTask(TaskId("0_01")))
    found = contradictions(Snapshot(tasks=asked, members=(member("m1", runs("0_0")), member("m2"))))
    assert [path for path, _ in found] == ["tasks[1].id", "tasks[0].revoking"]


def test_pins_do_not_go_beyond_a_limit_of_copies() -> None:
    pins = dict.fromkeys([TaskId("0_0"), TaskId("0_1"), TaskId("0_2")], M2)
    has = member("m2", runs("0_2"), max_tasks=2)
    plan = plan_of(member("m1", runs("0_0", "0_1", "0_3")), has, pins=pins)
    assert plan.target[M2]["active"] == ("0_0", "0_2")
    assert plan.target[M1]["active"] == ("0_1", "0_3")
    free = plan_of(member("m1", runs("0_0", "0_1", "0_3")), member("m2", runs("0_2")), pins=pins)
    assert free.target[M2]["active"] == ("0_0", "0_1", "0_2")


def test_a_handover_under_way_takes_its_place_before_pins_do() -> None:
    going = (SnapshotTask(TaskId("0_0"), revoking=M1), *(SnapshotTask(TaskId(f"0_{one}")) for one in range(1, 4)))
    plan = plan_of(
        member("m1", runs("0_0", "0_1", "0_2", "0_3")),
        member("m2", {"0_0": SnapshotCopy("warmup", lag=0)}, max_tasks=1),
        tasks=going,
        pins={TaskId("0_1"): M2},
    )
    assert plan.target[M2]["active"] == ("0_0",)


def test_a_task_without_an_owner_goes_to_its_most_caught_up_copy() -> None:
    plan = plan_of(
        member("m1", {"0_0": SnapshotCopy("standby")}),
        member("m2", {"0_0": SnapshotCopy("standby", lag=9_000)}),
        count=1,
    )
    assert plan.assignment[M2]["active"] == ("0_0",)
    plan = plan_of(member("m1", {"0_0": SnapshotCopy("standby")}), member("m2"), count=1)
    assert plan.assignment[M2]["active"] == ("0_0",)


def test_nobody_is_promoted_on_an_unknown_lag_even_where_it_is_the_only_copy() -> None:
    plan = plan_of(member("m1", {"0_0": SnapshotCopy("standby")}), count=1)
    assert plan.assignment[M1] == {"active": (), "standby": ("0_0",), "warmup": ()}
    assert plan.reasons[0].code == "state-unknown"
    assert plan.probing_needed


def test_a_target_whose_copy_cannot_be_read_is_passed_over_for_now() -> None:
    members = (
        member("m1", {"0_0": SnapshotCopy("standby"), "0_1": SnapshotCopy("standby")}),
        member("m2", {**runs("0_2", "0_3"), "0_1": SnapshotCopy("none", lag=4)}),
    )
    plan = plan_of(*members)
    assert plan.target[M1]["active"] == ("0_0", "0_1")
    assert "0_0" in plan.assignment[M2]["active"]
    assert plan.reasons[0].code == "cold-start"


def test_a_lost_state_hands_the_task_to_whoever_is_best_and_its_holder_last() -> None:
    lost = {"0_0": SnapshotCopy("active", lost=True)}
    plan = plan_of(member("m1", lost), member("m2", {"0_0": SnapshotCopy("standby", lag=3)}), count=1)
    assert plan.assignment[M2]["active"] == ("0_0",)
    plan = plan_of(member("m1", lost), count=1)
    assert plan.assignment[M1]["active"] == ("0_0",)
    plan = plan_of(member("m1", lost), member("m2"), count=1, pins={TaskId("0_0"): M2})
    assert plan.assignment[M2]["active"] == ("0_0",)
    assert plan.reasons[0].code == "lost-state"


def test_a_stalled_warmup_frees_its_slot_for_another_member() -> None:
    """Protocol 13.2."""
    stalled = SnapshotCopy("warmup", lag=5_000, progress_at_ms=0)
    now_ms = CONFIG.warmup_stall_timeout_ms
    members = (member("m1", runs("0_0", "0_1")), member("m2", {"0_0": stalled}), member("m3"))
    plan = plan_of(*members, count=2, now_ms=now_ms)
    assert plan.assignment[M2] == {"active": (), "standby": (), "warmup": ()}
    assert plan.assignment[M3]["warmup"] == ("0_0",)
    plan = plan_of(*members, count=2, now_ms=now_ms - 1)
    assert plan.assignment[M2]["warmup"] == ("0_0",)


def test_a_stall_without_anybody_else_leaves_the_task_where_it_runs() -> None:
    stalled = SnapshotCopy("warmup", lag=5_000, progress_at_ms=0)
    target = {TaskId("0_0"): (M2, ()), TaskId("0_1"): (M1, ())}
    plan = plan_of(
        member("m1", runs("0_0", "0_1")), member("m2", {"0_0": stalled}), count=2, now_ms=10**9, target=target
    )
    assert "0_0" in plan.assignment[M1]["active"]
    assert "0_0" not in plan.assignment[M2]["warmup"]


@pytest.mark.parametrize("target", [{}, {TaskId("0_0"): (M2, ())}])
def test_a_revocation_that_was_sent_is_not_taken_back(
    target: dict[TaskId, tuple[MemberId, tuple[MemberId, ...]]],
) -> None:
    """Protocol 13.2."""
    revoked = (SnapshotTask(TaskId("0_0"), revoking=M1), SnapshotTask(TaskId("0_1")))
    members = (member("m1", runs("0_0", "0_1")), member("m2", {"0_0": SnapshotCopy("warmup", lag=50)}))
    plan = plan_of(*members, tasks=revoked, target=target)
    assert plan.assignment[M2]["active"] == ("0_0",)
    assert plan.reasons[0].code == "handover-under-way"
    assert plan.moves == 1
    assert not plan.at_rest


def test_a_revocation_without_anybody_to_go_to_returns_the_task() -> None:
    revoked = (SnapshotTask(TaskId("0_0"), revoking=M1),)
    plan = plan_of(member("m1", runs("0_0")), tasks=revoked)
    assert plan.assignment[M1]["active"] == ("0_0",)
    assert plan.moves == 0


def test_the_place_of_a_member_that_is_away_to_restart_is_kept() -> None:
    """It holds nothing meanwhile. A member that is silent holds what it had, and nobody waits for its return."""
    plan = plan_of(member("m1"), member("m2", missing=True), count=1, target={TaskId("0_0"): (M2, ())})
    assert plan.assignment == {
        M1: {"active": (), "standby": (), "warmup": ()},
        M2: {"active": (), "standby": (), "warmup": ()},
    }
    assert held(plan) == {"0_0": "rejoin-grace"}


def test_a_pause_of_balance_moves_nothing_and_keeps_what_is_warm() -> None:
    plan = plan_of(member("m1", runs("0_0", "0_1")), member("m2"), count=2, paused=PauseScope.BALANCE)
    assert (plan.moves, plan.at_rest) == (0, True)
    warm = member("m2", {"0_1": SnapshotCopy("warmup", lag=0)})
    plan = plan_of(member("m1", runs("0_0", "0_1")), warm, count=2, paused=PauseScope.BALANCE)
    assert plan.assignment[M2]["warmup"] == ("0_1",)
    assert plan.assignment[M1]["active"] == ("0_0", "0_1")
    assert plan.reasons[1].code == "paused"


def test_where_everybody_drains_nothing_moves() -> None:
    plan = plan_of(member("m1", runs("0_0"), draining=True), count=1)
    assert plan.assignment[M1]["active"] == ("0_0",)
    assert (plan.moves, plan.at_rest, plan.probing_needed) == (0, True, False)


def test_a_pin_is_kept_warm_handed_over_and_then_rests() -> None:
    snapshot = Snapshot(
        config=CONFIG,
        tasks=tasks(2),
        members=(member("m1", runs("0_0", "0_1")), member("m2")),
        pins={TaskId("0_1"): M2},
    )
    plan = plan_snapshot(snapshot)
    assert plan.assignment[M2]["warmup"] == ("0_1",)
    plan = plan_snapshot(done(snapshot, plan))
    assert plan.assignment[M2]["active"] == ("0_1",)


def test_stateless_tasks_move_at_once() -> None:
    plan = plan_of(member("m1", runs("0_0", "0_1")), member("m2"), tasks=tasks(2, stateful=False))
    assert sorted(len(roles["active"]) for roles in plan.assignment.values()) == [1, 1]
    assert {reason.code for reason in plan.reasons} == {"stays", "stateless"}
    assert plan.moves == 0


def test_no_member_gets_more_copies_than_it_takes() -> None:
    plan = plan_of(member("m1", max_tasks=1), member("m2", max_tasks=2))
    assert sum(len(roles["active"]) for roles in plan.assignment.values()) == 3
    assert list(held(plan).values()) == ["no-capacity"]
    crowded = member("m2", {"0_2": SnapshotCopy("standby", lag=0), "0_3": SnapshotCopy("standby", lag=0)}, max_tasks=2)
    plan = plan_of(member("m1", runs("0_2", "0_3")), crowded)
    assert sum(len(names) for names in plan.assignment[M2].values()) <= 2


def test_what_has_no_room_yet_stays_where_it_runs() -> None:
    full = member("m2", runs("0_2", "0_3"), max_tasks=2)
    plan = plan_of(
        member("m1", runs("0_0", "0_1")), full, pins={TaskId("0_0"): M2, TaskId("0_2"): M1, TaskId("0_3"): M1}
    )
    assert "0_0" in plan.assignment[M1]["active"]
    assert held(plan)[TaskId("0_0")] == "no-capacity"


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(300))
def test_any_group_keeps_the_laws_and_comes_to_rest(seed: int) -> None:
    """A group is played step by step from any state, reachable or not."""
    snapshot = random_snapshot(seed)
    plan = plan_snapshot(snapshot)
    rounds = 0
    while not plan.at_rest:
        assert faults(snapshot, plan) == []
        assert rounds <= 2 * len(snapshot.tasks) + 8, plan
        before, snapshot = plan, done(snapshot, plan)
        plan = plan_snapshot(snapshot)
        rounds += 1
        if plan == before and set(held(plan).values()) == {"no-capacity"}:
            # What runs where it may not stay, and has room nowhere else, goes on there: there is no rest to come to.
            return
    assert faults(snapshot, plan) == []
    assert plan_snapshot(done(snapshot, plan)) == plan


def test_contradictions_are_named_by_path() -> None:
    snapshot = Snapshot(
        tasks=(T0, T0, SnapshotTask(TaskId("x")), SnapshotTask(TaskId("0_9"), revoking=M3)),
        members=(member("m1", runs("0_0", "0_5")), member("m2", runs("0_0")), SnapshotMember(M1)),
        pins={TaskId("0_7"): M3, TaskId("0_0"): M1},
        target={TaskId("0_8"): (M1, ()), TaskId("0_0"): (M1, ())},
    )
    assert [path for path, _ in contradictions(snapshot)] == [
        "tasks[1].id",
        "tasks[2].id",
        "members[0].tasks.0_5",
        "members[1].tasks.0_0",
        "members[2].id",
        "tasks[3].revoking",
        "pins.0_7",
        "pins.0_7",
        "target.0_8",
    ]


def test_a_revocation_from_the_member_that_has_the_task_is_none() -> None:
    listed = (SnapshotTask(TaskId("0_0"), revoking=M1),)
    assert contradictions(Snapshot(tasks=listed, members=(member("m1", runs("0_0")),))) == []


def test_a_revoked_task_without_a_target_goes_to_the_copy_with_least_left() -> None:
    listed = (SnapshotTask(TaskId("0_0"), revoking=M1),)
    has = [member(name, {"0_0": SnapshotCopy("standby", lag=lag)}) for name, lag in (("m2", 900), ("m3", 700))]
    plan = plan_of(member("m1", runs("0_0")), *has, tasks=listed)
    assert plan.assignment[M3]["active"] == ("0_0",)
    assert plan.reasons[0].code == "handover-under-way"


def test_an_owner_that_restores_gives_way_to_any_caught_up_copy() -> None:
    restoring = {"0_0": SnapshotCopy("active", ActiveState.RESTORING, lag=5_000)}
    plan = plan_of(member("m1", restoring), member("m2", {"0_0": SnapshotCopy("standby", lag=1)}), count=1)
    assert plan.assignment[M2]["active"] == ("0_0",)
    assert plan.reasons[0].code == "failover"


def test_tasks_are_listed_by_partition_as_a_number() -> None:
    """Protocol 13.3."""
    plan = plan_of(member("m1"), count=12)
    assert plan.target[M1]["active"] == tuple(f"0_{number}" for number in range(12))


def test_a_full_member_gives_up_only_what_is_not_wanted_of_it() -> None:
    config = replace(CONFIG, num_standby_replicas=1)
    crowded = member(
        "m2",
        {**runs("0_1"), "0_0": SnapshotCopy("standby", lag=0), "0_2": SnapshotCopy("standby", lag=9_000)},
        max_tasks=2,
    )
    plan = plan_of(member("m1", runs("0_0", "0_2")), crowded, count=3, config=config)
    assert plan.assignment[M2]["active"] == ("0_1",)
    assert len(plan.assignment[M2]["standby"]) == 1


def test_who_has_just_run_a_task_stands_by_until_a_wanted_standby_is_there() -> None:
    """Owner and standby both drain: the owner's copy is the warmer one, and one is enough."""
    going = (
        member("m2", runs("0_0"), draining=True),
        member("m1", {"0_0": SnapshotCopy("standby", lag=0)}, draining=True),
    )
    taker = member("m3", {"0_0": SnapshotCopy("warmup", lag=0)})
    plan = plan_of(*going, taker, member("m4"), count=1, config=replace(CONFIG, num_standby_replicas=1))
    assert plan.assignment[M3]["active"] == ("0_0",)
    assert plan.assignment[M2]["standby"] == ("0_0",)
    assert plan.assignment[M1]["standby"] == ()


@pytest.mark.parametrize("count", [4, 6])
def test_who_is_missing_keeps_what_it_has_and_gets_nothing_new(count: int) -> None:
    """Of two free tasks both go to the member that is there, though it has more already."""
    there, away = member("m1", runs("0_0", "0_1")), member("m2", runs("0_2"), missing=True)
    plan = plan_of(there, away, count=count)
    assert (plan.target[M2]["active"], plan.assignment[M2]["active"]) == (("0_2",), ("0_2",))
    assert len(plan.target[M1]["active"]) == count - 1
    assert "0_3" in plan_of(there, replace(away, missing=False), count=4).target[M2]["active"]


def test_an_owner_goes_on_while_the_member_that_its_task_is_pinned_to_is_missing() -> None:
    """The copy there is ready, but nobody would run the task until its member is heard."""
    there, away = member("m1", runs("0_0")), member("m2", {"0_0": SnapshotCopy("standby", lag=0)}, missing=True)
    task = TaskId("0_0")
    plan = plan_of(there, away, count=1, target={task: (M2, ())}, pins={task: M2})
    assert plan.assignment[M1]["active"] == ("0_0",)
    assert [reason.code for reason in plan.reasons] == ["member-overdue"]


def test_a_plan_for_which_placement_finds_no_answer_keeps_the_target_and_says_why() -> None:
    """A plan is asked for above all when something is wrong."""
    members = (member("m1", runs("0_0", "0_1", "0_2")), member("m2", runs("0_3")))
    snapshot = Snapshot(config=CONFIG, tasks=tasks(4), members=members, target={TaskId("0_0"): (M2, ())})

    def unsolvable(*_network: object) -> Never:
        message = "no"
        raise ArithmeticError(message)

    plan = plan_snapshot(snapshot, unsolvable)
    assert plan.placement_failed == "ArithmeticError: no"
    assert (plan.target[M2]["active"], plan.moves, plan.lower_bound) == (("0_0",), 1, 0)
    assert [reason.task for reason in plan.reasons] == ["0_0", "0_1", "0_2", "0_3"]
    assert plan_snapshot(snapshot).placement_failed == ""


def test_where_weights_are_measured_others_alone_move_nothing() -> None:
    """Nothing of the kind happens in the group: a plan of it named moves that never came."""
    scene = Scene()
    scene.declare(topology(20), newcomer_wait_ms=0, balance_by="measured", load_half_life_ms=1_000)
    scene.join("m1")
    scene.join("m2")
    scene.settle()
    for _ in range(30):
        scene.wait(1_000)
        for name, load in (("m1", 0.1), ("m2", 0.07)):
            scene.beat(name, {task: running(load=load) for task in scene.held(name, Role.ACTIVE)})
    plan = plan_snapshot(snapshot_of(scene.view()))
    assert (plan.moves, plan.at_rest) == (0, True)
    scene.join("m3")
    assert plan_snapshot(snapshot_of(scene.view())).moves
