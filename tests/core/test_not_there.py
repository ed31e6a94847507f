"""Whoever is silent, suspected or away keeps what it has, and takes nothing new while a member is there that may."""

import pytest
from tests.core.described import describe_group
from tests.core.scene import Scene, copy, failed, restoring, running, topology

from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Eviction, Heartbeat, Leave, PinRequest, PollBroken, Started, Tick
from batonpass.core.state.model import OnLeaseLost, Role, Topology
from batonpass.core.state.reasons import Held
from batonpass.core.state.records import RebalanceScheduled, TargetPlaced
from batonpass.core.state.soft import Soft, TaskReport
from batonpass.explain.safe_to_stop import reasons_to_stay
from batonpass.explain.task import explain_task

HEARTBEAT_MS = 3_000
SILENT_MS = 9_000
"""Longer than two heartbeats, and much shorter than a session."""


def group_of(count: int, shape: Topology, **config: object) -> Scene:
    """Return a group at rest of members m1, m2, …, instances of the same names, with fenced outputs."""
    scene = Scene()
    budgets = {"max_warmup_replicas": 20, "max_warmups_per_member": 20, "max_drain_warmups": 20}
    scene.declare(shape, **(budgets | config))
    for number in range(1, count + 1):
        join(scene, f"m{number}")
    scene.settle(60)
    return scene


def join(
    scene: Scene,
    name: str,
    tasks: dict[str, TaskReport] | None = None,
    *,
    instance: str | None = None,
    fenced: bool = True,
) -> None:
    """Let a run of an instance join, with this state on its disk."""
    lease = OnLeaseLost.CONTINUE if fenced else OnLeaseLost.STOP
    scene.join(name, tasks, instance_id=InstanceId(instance or name), on_lease_lost=lease)


def live(scene: Scene, *names: str, ms: int = SILENT_MS) -> None:
    """Let time pass while only these members are heard and obey; copies are caught up at once."""
    end_ms = scene.now_ms + ms
    while scene.now_ms < end_ms:
        scene.wait(HEARTBEAT_MS)
        scene.obey(*[name for name in names if MemberId(name) in scene.group.members])


def away(scene: Scene, name: str) -> None:
    """Let an instance go in order to restart."""
    scene.do(Leave(MemberId(name), restart=True))


def back(scene: Scene, name: str, instance: str, *, disk: list[str]) -> None:
    """Let it come back with the state of these tasks on its disk."""
    join(scene, name, {task: copy("none", 0) for task in disk}, instance=instance)


def suspect(scene: Scene, name: str) -> None:
    """Let a member's long-poll break, and nothing else come from it for long enough."""
    scene.do(PollBroken(MemberId(name)))
    scene.wait(2_100)


def of(scene: Scene, name: str) -> list[str]:
    """Return what a member runs, or is to run."""
    return sorted(task for task, owner in scene.owners().items() if owner == name)


def reasons(scene: Scene) -> dict[str, Held]:
    """Return why what is held back is."""
    status = describe_group(scene.view())
    return {str(entry.task): entry.reason for entry in status.held_back}


# --- away to restart --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stateful", [True, False])
def test_tasks_that_are_new_while_an_instance_is_away_go_to_a_member_that_is_there(stateful: bool) -> None:  # noqa: FBT001
    def shape(count: int) -> Topology:
        return topology(count) if stateful else topology(0, stateless=count)

    scene = group_of(2, shape(2))
    before = scene.owners()
    away(scene, "m2")
    scene.tick(1_000)
    scene.change(shape(4))
    live(scene, "m1")
    assert {scene.owners()[task] for task in scene.owners().keys() - before.keys()} == {"m1"}


@pytest.mark.parametrize("standbys", [0, 1])
def test_what_another_member_leaves_goes_to_a_member_that_is_there(standbys: int) -> None:
    scene = group_of(3, topology(6, stateless=3), num_standby_replicas=standbys)
    mine = scene.held("m3", Role.ACTIVE)
    away(scene, "m3")
    live(scene, "m1", "m2")
    left = scene.held("m1", Role.ACTIVE)
    scene.do(Leave(MemberId("m1")))
    live(scene, "m2", ms=3_000)
    assert {scene.owners()[task] for task in left} == {"m2"}
    waiting = {task for task in mine if task.startswith("0_")} if not standbys else set()
    assert {task for task, owner in scene.owners().items() if owner is None} == waiting


def test_what_an_instance_had_comes_back_to_it_although_others_moved_meanwhile() -> None:
    scene = group_of(3, topology(6), num_standby_replicas=1)
    mine = scene.held("m3", Role.ACTIVE)
    disk = [*scene.member("m3").assignment]
    away(scene, "m3")
    live(scene, "m1", "m2")
    scene.do(Leave(MemberId("m1")))
    live(scene, "m2", ms=3_000)
    back(scene, "m3b", "m3", disk=[str(task) for task in disk])
    assert None not in scene.owners().values()
    scene.settle(60)
    assert set(mine) & set(of(scene, "m3b"))
    assert len(of(scene, "m2")) == len(of(scene, "m3b")) == 3


def test_a_drain_goes_to_members_that_are_there_and_an_empty_joiner_gets_its_share() -> None:
    scene = group_of(2, topology(4))
    mine = scene.held("m2", Role.ACTIVE)
    away(scene, "m2")
    scene.do(DrainRequest(MemberId("m1"), 5_000))
    join(scene, "m3")
    scene.wait(5_500)
    scene.obey("m1", "m3")
    assert of(scene, "m1") == []
    assert len(of(scene, "m3")) == 2
    assert {task: scene.task(task).owner for task in mine} == dict.fromkeys(mine, None)


def test_what_a_draining_member_was_to_hand_to_an_instance_that_goes_away_goes_elsewhere() -> None:
    scene = group_of(3, topology(6))
    scene.do(DrainRequest(MemberId("m1"), 30_000))
    scene.wait(100)
    going = [task for task, target in ((t, scene.task(t).target.owner) for t in of(scene, "m1")) if target == "m2"]
    assert going
    away(scene, "m2")
    assert {scene.task(task).target.owner for task in going} == {"m3"}
    live(scene, "m1", "m3", ms=6_000)
    assert of(scene, "m1") == []


def test_tasks_without_state_run_elsewhere_at_once_and_come_back_to_balance() -> None:
    scene = group_of(3, topology(0, stateless=6))
    stopped_ms = scene.now_ms
    away(scene, "m3")
    assert {RebalanceScheduled} <= {type(record) for record in scene.log}
    assert len(of(scene, "m1")) == len(of(scene, "m2")) == 3
    scene.obey("m1", "m2")
    assert all(scene.task(task).since_ms == stopped_ms for task, owner in scene.owners().items() if owner is None)
    live(scene, "m1", "m2")
    back(scene, "m3b", "m3", disk=[])
    scene.settle(60)
    assert [len(of(scene, name)) for name in ("m1", "m2", "m3b")] == [2, 2, 2]


def test_a_restart_of_members_that_all_have_state_places_nothing() -> None:
    scene = group_of(3, topology(6), num_standby_replicas=1)
    placed = len([record for record in scene.log if isinstance(record, TargetPlaced)])
    away(scene, "m3")
    live(scene, "m1", "m2")
    back(scene, "m3b", "m3", disk=["0_2", "0_5"])
    scene.settle(60)
    assert len([record for record in scene.log if isinstance(record, TargetPlaced)]) == placed


def test_if_nobody_is_there_a_task_waits_for_the_instance_and_says_so() -> None:
    scene = group_of(1, topology(1, stateless=1))
    away(scene, "m1")
    scene.change(topology(2, stateless=2))
    scene.wait(60_000)
    assert set(scene.owners().values()) == {None}
    assert set(reasons(scene).values()) == {Held.REJOIN_GRACE}
    back(scene, "m1b", "m1", disk=["0_0"])
    scene.settle(60)
    assert set(scene.owners().values()) == {"m1b"}


def test_the_first_instance_that_comes_back_runs_what_needs_no_state() -> None:
    scene = group_of(2, topology(2, stateless=4))
    away(scene, "m1")
    away(scene, "m2")
    scene.soft = Soft()
    scene.do(Started())
    back(scene, "m1b", "m1", disk=["0_1"])
    scene.wait(1_000)
    scene.obey("m1b")
    assert set(of(scene, "m1b")) == {"0_1", "1_0", "1_1", "1_2", "1_3"}


def test_a_pin_on_an_instance_that_is_away_holds_again_once_it_is_back() -> None:
    scene = group_of(2, topology(2, stateless=1))
    scene.do(PinRequest(TaskId("1_0"), MemberId("m2")))
    scene.settle()
    away(scene, "m2")
    live(scene, "m1", ms=3_000)
    assert scene.task("1_0").owner == "m1"
    back(scene, "m2b", "m2", disk=["0_1"])
    scene.settle(60)
    assert scene.task("1_0").owner == "m2b"


def test_the_standbys_of_an_instance_that_is_away_stay_its_own() -> None:
    scene = group_of(4, topology(8), num_standby_replicas=1)
    mine = {task for task in scene.group.table.ids if MemberId("m4") in scene.task(task).target.standbys}
    assert mine
    away(scene, "m4")
    scene.change(topology(9))
    live(scene, "m1", "m2", "m3", ms=3_000)
    assert mine == {task for task in scene.group.table.ids if MemberId("m4") in scene.task(task).target.standbys}


# --- silent -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standbys", [0, 1, 2])
@pytest.mark.parametrize("goes", ["drain", "drain at once", "leave", "restart"])
def test_nothing_of_a_member_that_goes_is_given_to_a_silent_one(standbys: int, goes: str) -> None:
    scene = group_of(4, topology(12), num_standby_replicas=standbys)
    silent = of(scene, "m2")
    live(scene, "m1", "m3", "m4")
    if goes == "leave":
        scene.do(Leave(MemberId("m1")))
    elif goes == "restart":
        away(scene, "m1")
    else:
        scene.do(DrainRequest(MemberId("m1"), 0 if goes == "drain at once" else 10_000))
    live(scene, "m1", "m3", "m4", ms=12_000)
    assert MemberId("m2") in scene.group.members
    assert of(scene, "m2") == silent
    ready = set(of(scene, "m3") + of(scene, "m4"))
    lost = set(scene.group.table.ids) - ready - set(silent)
    # Only an instance that is to come back is waited for, by what has no other copy that is ready.
    assert all(scene.task(task).handover.away_owner == "m1" for task in lost)
    assert not lost or goes == "restart"


def test_a_silent_member_keeps_what_it_has_and_gets_its_share_once_it_is_heard() -> None:
    scene = group_of(3, topology(9), num_standby_replicas=1)
    silent = of(scene, "m3")
    live(scene, "m1", "m2")
    scene.do(Leave(MemberId("m1")))
    live(scene, "m2", ms=3_000)
    assert (of(scene, "m3"), len(of(scene, "m2"))) == (silent, 6)
    assert {scene.task(task).target.owner for task in silent} == {"m3"}
    scene.obey("m3")
    assert [record.trigger for record in scene.of(RebalanceScheduled)] == ["heard-again"]
    scene.settle(60)
    assert sorted([len(of(scene, "m2")), len(of(scene, "m3"))]) == [4, 5]


def test_members_that_are_heard_again_together_have_the_group_placed_once() -> None:
    scene = group_of(4, topology(12), num_standby_replicas=1, rebalance_batch_ms=50)
    live(scene, "m1", "m2")
    scene.do(Leave(MemberId("m1")))
    live(scene, "m2", ms=3_000)
    scheduled = []
    for name in ("m3", "m4"):
        assert MemberId(name) in scene.soft.placed_without
        scene.obey(name)
        scheduled += [record.trigger for record in scene.of(RebalanceScheduled)]
    assert scheduled == ["heard-again"]
    assert scene.soft.placed_without == frozenset()


def test_a_message_that_was_under_way_is_no_return_of_a_suspected_member() -> None:
    """It clears no suspicion, and what was placed without the member stays so."""
    scene = group_of(3, topology(9), num_standby_replicas=1, suspect_timeout_ms=2_000)
    live(scene, "m1", "m2")
    scene.do(Leave(MemberId("m1")))
    live(scene, "m2", ms=3_000)
    suspect(scene, "m3")
    m3 = MemberId("m3")
    scene.do(Heartbeat(m3, scene.soft.of(m3).seq, scene.member("m3").epoch))
    assert (scene.member("m3").suspected, m3 in scene.soft.placed_without) == (True, True)
    assert scene.of(RebalanceScheduled) == []


def test_a_member_that_is_heard_again_starts_no_placement_if_none_went_without_it() -> None:
    scene = group_of(3, topology(6))
    live(scene, "m1", "m2")
    scene.obey("m3")
    assert scene.of(RebalanceScheduled) == []


def test_if_all_are_silent_tasks_go_on_as_if_none_were() -> None:
    scene = group_of(3, topology(6), num_standby_replicas=1)
    ready = {task: scene.task(task).standbys for task in of(scene, "m1")}
    scene.wait(SILENT_MS)
    scene.do(Leave(MemberId("m1")))
    assert len(of(scene, "m2")) == len(of(scene, "m3")) == 3
    assert all(scene.task(task).owner in standbys for task, standbys in ready.items())


def test_a_member_that_falls_silent_keeps_the_moves_that_are_under_way() -> None:
    scene = group_of(1, topology(4))
    join(scene, "m2")
    scene.tick()
    moving = scene.held("m2", Role.WARMUP)
    for _ in range(3):
        scene.wait(HEARTBEAT_MS)
        scene.obey("m2", lag=900_000)
    join(scene, "m3")
    assert {scene.task(task).owner for task in moving} == {"m1"}
    assert {scene.task(task).target.owner for task in moving} == {"m2"}
    scene.do(PinRequest(TaskId(moving[0]), MemberId("m3")))
    assert [scene.task(task).target.owner for task in moving] == ["m3", "m2"]


def test_what_a_silent_unfenced_member_runs_without_state_stays_its_own() -> None:
    scene = Scene()
    scene.declare(topology(0, stateless=6))
    for name in ("m1", "m2", "m3"):
        join(scene, name, fenced=False)
    scene.settle()
    before = of(scene, "m3")
    live(scene, "m1", "m2")
    join(scene, "m4", fenced=False)
    scene.settle()
    assert len(before) == 2
    assert len(of(scene, "m4")) == 1
    assert of(scene, "m3") == before


def test_what_failed_without_state_on_a_member_that_fell_silent_goes_elsewhere() -> None:
    scene = group_of(1, topology(0, stateless=2))
    scene.beat("m1", {"1_0": failed(), "1_1": running()})
    scene.wait(SILENT_MS)
    join(scene, "m2")
    scene.tick()
    assert [scene.task(task).target.owner for task in ("1_0", "1_1")] == ["m2", "m1"]


def test_nothing_is_bound_to_a_next_owner_that_is_silent() -> None:
    scene = group_of(3, topology(3), num_standby_replicas=1)
    (task,) = of(scene, "m1")
    scene.do(Eviction(MemberId("m1")))
    next_owner = str(scene.task(task).handover.next_owner)
    for _ in range(3):
        scene.wait(HEARTBEAT_MS)
        scene.obey(*({"m2", "m3"} - {next_owner}), lag=900_000)
    join(scene, "m4")
    assert scene.task(task).handover.next_owner == next_owner
    assert scene.task(task).target.owner not in (None, next_owner)


@pytest.mark.parametrize("how", ["silent", "drains"])
def test_a_copy_that_is_behind_takes_over_before_a_better_one_of_a_member_that_is_not_to_stay(how: str) -> None:
    scene = group_of(3, topology(3), num_standby_replicas=2)
    (task,) = of(scene, "m1")
    join(scene, "m4")
    scene.do(PinRequest(TaskId(task), MemberId("m4")))
    lags = {"m2": 20_000, "m3": 50_000, "m4": 900_000}
    for rounds in range(4):
        scene.wait(HEARTBEAT_MS)
        for name in ("m1", "m2", "m3", "m4"):
            if name != "m2" or how == "drains" or rounds == 0:
                scene.obey(name, lag=lags.get(name, 0))
    if how == "drains":
        scene.do(DrainRequest(MemberId("m2")))
    scene.do(Leave(MemberId("m1")))
    assert (scene.task(task).owner, scene.task(task).target.owner) == ("m3", "m4")


def test_what_was_on_its_way_to_a_silent_member_waits_for_the_next_placement() -> None:
    scene = group_of(2, topology(4), rebalance_batch_ms=50)
    join(scene, "m3")
    scene.wait(50)
    (task,) = scene.held("m3", Role.WARMUP)
    owner = str(scene.task(task).owner)
    (other,) = {"m1", "m2"} - {owner}
    live(scene, "m1", "m2")
    scene.do(Leave(MemberId(owner)))
    assert (scene.task(task).owner, reasons(scene)[task]) == (None, Held.INITIAL_DELAY)
    scene.wait(50)
    assert scene.task(task).owner == other


def test_members_that_are_silent_in_turn_do_not_have_the_group_placed_without_end() -> None:
    scene = group_of(3, topology(6))
    live(scene, "m1", "m2")
    scene.do(PinRequest(TaskId(of(scene, "m1")[0]), MemberId("m2")))
    placed = len([record for record in scene.log if isinstance(record, TargetPlaced)])
    for name in ("m2", "m3") * 5:
        live(scene, "m1", ms=6_000)
        for _ in range(8):  # Whoever speaks more slowly as a rule is not silent in between.
            scene.wait(200)
            scene.obey("m1", name)
    again = [record for record in scene.log if isinstance(record, TargetPlaced)][placed:]
    assert len(again) <= 2


@pytest.mark.parametrize("joins", [False, True])
def test_a_next_owner_without_state_that_falls_silent_gives_way_to_any_other_member(joins: bool) -> None:  # noqa: FBT001
    scene = group_of(3, topology(3))
    (task,) = of(scene, "m1")
    scene.do(Eviction(MemberId("m1")))
    first = str(scene.task(task).handover.next_owner)
    (second,) = {"m2", "m3"} - {first}
    live(scene, "m2", "m3")
    live(scene, second, ms=30_000)
    if joins:
        join(scene, "m4")
        assert scene.task(task).target.owner in (second, "m4")
    live(scene, second, "m4", ms=6_000)
    assert MemberId(first) in scene.group.members
    assert scene.task(task).owner in (second, "m4")


def test_lost_state_is_not_sought_where_the_target_has_none_and_is_silent() -> None:
    scene = group_of(2, topology(2))
    (task,) = of(scene, "m1")
    scene.do(PinRequest(TaskId(task), MemberId("m2")))
    live(scene, "m1")
    scene.beat("m1", {task: restoring(None, lost=True)})
    assert (scene.task(task).target.owner, scene.task(task).owner) == ("m2", "m1")


def test_lost_state_is_not_sought_on_a_silent_member_until_it_is_heard() -> None:
    scene = group_of(2, topology(2), num_standby_replicas=1)
    (task,) = of(scene, "m1")
    live(scene, "m1")
    scene.beat("m1", {task: restoring(None, lost=True), **{t: copy("standby") for t in of(scene, "m2")}})
    assert scene.task(task).owner == "m1"
    scene.obey("m2")
    assert scene.task(task).handover.next_owner == "m2"


def test_a_stop_is_not_safe_if_only_a_silent_member_could_take_over() -> None:
    scene = group_of(2, topology(2, stateless=1), num_standby_replicas=1)
    m1 = scene.member("m1")
    assert reasons_to_stay(scene.view(), m1) == ()
    live(scene, "m1")
    left = reasons_to_stay(scene.view(), m1)
    assert {task for task, _ in left} == set(scene.held("m1", Role.ACTIVE))


def test_a_target_that_falls_silent_during_a_drain_is_passed_over_at_its_deadline() -> None:
    scene = group_of(3, topology(3))
    (task,) = of(scene, "m1")
    scene.do(DrainRequest(MemberId("m1"), 12_000))
    target = str(scene.task(task).target.owner)
    (other,) = {"m2", "m3"} - {target}
    for _ in range(5):
        scene.wait(HEARTBEAT_MS)
        scene.beat("m1", {task: running()})
        scene.beat(other, {t: running() for t in of(scene, other)})
    assert scene.task(task).handover.next_owner == other or scene.task(task).owner == other


def test_a_warm_handover_of_a_drain_waits_for_a_target_that_is_silent() -> None:
    scene = group_of(2, topology(2), num_standby_replicas=1)
    (task,) = of(scene, "m1")
    live(scene, "m1")
    scene.do(DrainRequest(MemberId("m1")))
    live(scene, "m1", ms=6_000)
    assert scene.task(task).owner == "m1"
    assert reasons(scene) == {task: Held.MEMBER_OVERDUE}
    scene.obey("m2")
    assert scene.task(task).handover.next_owner == "m2"


@pytest.mark.parametrize("how", ["silent", "away", "suspected"])
def test_what_nobody_has_runs_on_a_member_that_drains_while_no_other_is_heard(how: str) -> None:
    scene = group_of(3, topology(6, stateless=3))
    free = [*of(scene, "m3"), "0_6", "1_3"]
    scene.do(DrainRequest(MemberId("m1")))
    if how == "away":
        away(scene, "m2")
        free += [task for task in scene.group.table.ids if scene.owners()[task] is None and task.startswith("1_")]
    elif how == "suspected":
        suspect(scene, "m2")
        free += [task for task in of(scene, "m2") if task.startswith("1_")]
    else:
        live(scene, "m1")
    scene.do(Eviction(MemberId("m3"), dead=True))
    scene.change(topology(7, stateless=4))
    live(scene, "m1")
    assert {scene.owners()[TaskId(task)] for task in free} == {"m1"}
    if how == "away":
        back(scene, "m4", "m2", disk=[])
    scene.settle(60)
    assert of(scene, "m1") == []


def test_a_copy_for_a_drain_keeps_its_place_on_the_only_member_although_it_is_silent() -> None:
    scene = group_of(1, topology(2))
    scene.do(DrainRequest(MemberId("m1")))
    join(scene, "m2")
    live(scene, "m1")
    assert scene.held("m2", Role.WARMUP) == ["0_0", "0_1"]
    scene.change(topology(3))
    live(scene, "m1")
    assert [scene.task(task).target.owner for task in ("0_0", "0_1")] == ["m2", "m2"]
    assert scene.held("m2", Role.WARMUP) == ["0_0", "0_1"]
    assert scene.task("0_2").owner == "m1"


def test_nothing_goes_to_an_instance_that_is_kept_out_although_nobody_else_is_heard() -> None:
    scene = group_of(2, topology(2, stateless=2))
    scene.do(DrainRequest(MemberId("m1"), until_undone=True))
    scene.settle(60)
    scene.do(Leave(MemberId("m1")))
    join(scene, "m3", instance="m1")
    away(scene, "m2")
    live(scene, "m3")
    assert {*reasons(scene).values()} == {Held.REJOIN_GRACE}


# --- suspected, and what has no state ---------------------------------------------------------------------------------


def test_a_task_without_state_leaves_a_suspected_member_at_once_and_comes_back_to_balance() -> None:
    scene = group_of(3, topology(3, stateless=6))
    mine = [task for task in of(scene, "m3") if task.startswith("1_")]
    suspect(scene, "m3")
    assert {scene.owners()[task] for task in mine} <= {"m1", "m2"}
    assert of(scene, "m3") == [task for task in scene.group.table.ids if scene.task(task).target.owner == "m3"]
    assert [len(of(scene, name)) for name in ("m1", "m2")] == [4, 4]
    scene.obey("m3")
    scene.settle(60)
    assert [len(of(scene, name)) for name in ("m1", "m2", "m3")] == [3, 3, 3]


def test_a_suspicion_places_nothing_if_all_tasks_have_state() -> None:
    scene = group_of(3, topology(6), num_standby_replicas=1)
    generation = scene.group.generation
    suspect(scene, "m3")
    assert scene.group.generation == generation
    assert of(scene, "m3") == []


def test_what_an_unfenced_member_runs_without_state_waits_for_its_lease_and_says_so() -> None:
    scene = Scene()
    scene.declare(topology(0, stateless=2))
    join(scene, "m1", fenced=False)
    join(scene, "m2", fenced=False)
    scene.settle()
    (task,) = of(scene, "m2")
    scene.do(PollBroken(MemberId("m2")))
    live(scene, "m1", ms=30_000)
    assert scene.task(task).owner == "m2"
    found = explain_task(scene.view(), TaskId(task))
    assert found.sentences[0] == f"m2 ran {task} when it was last heard, 30 s ago."
    assert [(wait.member_id, wait.until_ms) for wait in found.waits] == [("m2", scene.now_ms + 15_000)]
    live(scene, "m1", ms=18_000)
    assert scene.task(task).owner == "m1"


def test_a_suspicion_moves_nothing_without_state_if_nobody_else_is_heard() -> None:
    scene = group_of(2, topology(0, stateless=2))
    scene.wait(SILENT_MS)
    suspect(scene, "m2")
    scene.wait(3_000)
    assert [len(of(scene, name)) for name in ("m1", "m2")] == [1, 1]


def test_a_heartbeat_that_says_nothing_new_lets_go_on_what_waited_for_it() -> None:
    scene = group_of(2, topology(2), num_standby_replicas=1)
    (task,) = of(scene, "m1")
    live(scene, "m1")
    scene.do(PinRequest(TaskId(task), MemberId("m2")))
    live(scene, "m1", ms=3_000)
    assert scene.task(task).owner == "m1"
    known = scene.soft.members[MemberId("m2")]
    scene.do(Heartbeat(MemberId("m2"), known.seq, scene.member("m2").epoch, None))
    scene.do(Tick())
    assert scene.task(task).handover.next_owner == "m2"
