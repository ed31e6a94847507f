"""Each reason why something is held back is shown wherever it should be, and each budget is held by a law.

Whoever adds a reason or a budget has to add it here too. A reason that only a step knows, or only what explains a step,
fails; so does one that is forgotten because the target has a ready copy, and a budget that no law bounds.
"""

from collections.abc import Callable
from dataclasses import fields, replace

import pytest
from tests.core.described import describe_group
from tests.core.scene import Scene, copy, failed, running, topology
from tests.core.scenes import TASK, guarded, held_back, pair
from tests.core.test_handover_revoke_first import pin, slow_to_stop, stops_not
from tests.core.test_newcomers import thrashed
from tests.core.test_open_transactions import ready_to_move

from batonpass.core.decide import decide
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import DrainRequest, Eviction, Leave, PauseRequest, PinRequest, Started, Tick
from batonpass.core.state.model import PauseScope, Role, Subtopology
from batonpass.core.state.policy import GroupConfig
from batonpass.core.state.reasons import Held
from batonpass.core.state.soft import Soft
from batonpass.invariants import Transition, check_step

A, B = MemberId("a"), MemberId("b")
MANY = {"max_warmup_replicas": 50, "max_warmups_per_member": 50, "max_drain_warmups": 50}


def to_b(scene: Scene) -> Scene:
    """Make the task belong to b."""
    scene.do(PinRequest(TASK, B))
    scene.tick()
    return scene


def draining(**config: object) -> Scene:
    """Return a group in which a drains, and b is to have its six tasks."""
    scene = pair(6, **(MANY | {"max_warmup_replicas": 1} | config))
    scene.do(DrainRequest(A))
    return scene


def alone(**config: object) -> Scene:
    """Return a group whose only member has not been placed anything yet."""
    scene = Scene()
    scene.declare(topology(1), initial_rebalance_delay_ms=3_000, **config)
    scene.join("a")
    return scene


def _no_capacity() -> Scene:
    scene = Scene()
    scene.declare(topology(2))
    scene.join("a", max_tasks=1)
    return scene


def _no_eligible_member() -> Scene:
    """The only member is a run of an instance that is kept out: it gets nothing, not even as the last choice."""
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a", instance_id=InstanceId("pod"))
    scene.do(Eviction(A, dead=True, until_undone=True))
    scene.join("b", instance_id=InstanceId("pod"))
    scene.tick(3_000)
    return scene


def _stale_topology() -> Scene:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a", topology_epoch=1)
    scene.change(topology(1, epoch=2, more=(Subtopology("1", 1),)))
    return scene


def _state_unknown() -> Scene:
    scene = guarded()
    owner = scene.task(TASK).owner
    assert owner is not None
    scene.soft = Soft()
    scene.do(Started())
    scene.do(Eviction(owner, dead=True))
    return scene


def _revoking() -> Scene:
    scene = to_b(pair())
    scene.obey("b")
    scene.tick(scene.group.config.heartbeat_interval_ms)
    return scene


def _lease() -> Scene:
    scene = pair()
    scene.do(Eviction(A))
    return scene


def _revoke_first() -> Scene:
    scene = slow_to_stop()
    stops_not(scene)
    return scene


def _take_over_first() -> Scene:
    scene = Scene()
    scene.declare(topology(2), acceptable_recovery_lag=100)
    for name in ("m1", "m2", "m3"):
        scene.join(name)
    for task, name in (("0_0", "m1"), ("0_1", "m2")):
        pin(scene, TaskId(task), name)
    scene.settle()
    for task, name in (("0_0", "m2"), ("0_1", "m3")):
        pin(scene, TaskId(task), name)
    scene.obey("m2")
    scene.obey("m3")
    return scene


def _parked() -> Scene:
    scene = Scene()
    scene.declare(topology(1), poison_members=1)
    scene.join("a")
    scene.beat("a", {TASK: failed()})
    return scene


def _failed() -> Scene:
    scene = guarded()
    owner, other = ("a", "b") if scene.task(TASK).owner == "a" else ("b", "a")
    scene.beat(other, {TASK: copy("standby", 9_000)})
    scene.beat(owner, {TASK: failed()})
    return scene


def _failed_there() -> Scene:
    scene = guarded()
    owner, other = ("a", "b") if scene.task(TASK).owner == "a" else ("b", "a")
    scene.beat(owner, {TASK: failed()})
    scene.settle()
    scene.do(DrainRequest(MemberId(other)))
    scene.obey()
    return scene


def _member_overdue() -> Scene:
    scene = pair(3)
    scene.join("c")
    scene.wait(3 * scene.group.config.heartbeat_interval_ms)
    scene.obey("a")
    scene.obey("b")
    return scene


def _paused() -> Scene:
    scene = pair()
    scene.do(PauseRequest(PauseScope.ALL))
    return to_b(scene)


def _storm() -> Scene:
    scene = pair()
    scene.group = replace(scene.group, storm_since_ms=scene.now_ms)
    return to_b(scene)


def _rejoin_grace() -> Scene:
    scene = Scene()
    scene.declare(topology(1))
    scene.join("a", instance_id=InstanceId("i"))
    scene.obey()
    scene.do(Leave(A, restart=True))
    return scene


def _grants_held() -> Scene:
    scene = to_b(pair())
    scene.group = replace(scene.group, grants_from_ms=scene.now_ms + 60_000)
    scene.obey("b")
    return scene


def _stalled() -> Scene:
    scene = to_b(pair(warmup_stall_timeout_ms=5_000))
    for _ in range(3):
        scene.wait(3_000)
        scene.obey("a")
        scene.beat("b", {TASK: copy("warmup", 50_000)})
    return scene


def _placement_failed() -> Scene:
    scene = Scene()
    scene.declare(topology(1), initial_rebalance_delay_ms=3_000)
    scene.join("a", max_tasks=9)
    scene.group = replace(scene.group, placement_due_ms=None, placement_failed="no answer")
    scene.soft = scene.soft._replace(target_is_provisional=False)
    return scene


def _open_transaction() -> Scene:
    scene = ready_to_move()
    scene.do(PinRequest(TASK, B))
    return scene


def _new_member() -> Scene:
    scene = thrashed()
    scene.join("m3")
    scene.tick()
    return scene


SCENES: dict[Held, Callable[[], Scene]] = {
    Held.WARMUP_BUDGET: lambda: pair(6, **(MANY | {"max_warmup_replicas": 1})),
    Held.MEMBER_WARMUP_BUDGET: lambda: pair(6, **(MANY | {"max_warmups_per_member": 1})),
    Held.DRAIN_BUDGET: lambda: draining(max_drain_warmups=1),
    Held.NO_CAPACITY: _no_capacity,
    Held.NO_ELIGIBLE_MEMBER: _no_eligible_member,
    Held.STALE_TOPOLOGY: _stale_topology,
    Held.STATE_UNKNOWN: _state_unknown,
    Held.REVOKING: _revoking,
    Held.LEASE: _lease,
    Held.REVOKE_FIRST: _revoke_first,
    Held.TAKE_OVER_FIRST: _take_over_first,
    Held.PARKED: _parked,
    Held.FAILED: _failed,
    Held.FAILED_THERE: _failed_there,
    Held.MEMBER_OVERDUE: _member_overdue,
    Held.PAUSED: _paused,
    Held.STORM: _storm,
    Held.REJOIN_GRACE: _rejoin_grace,
    Held.GRANTS_HELD: _grants_held,
    Held.STALLED: _stalled,
    Held.INITIAL_DELAY: alone,
    Held.PLACEMENT_FAILED: _placement_failed,
    Held.OPEN_TRANSACTION: _open_transaction,
    Held.NEW_MEMBER: _new_member,
}


@pytest.mark.parametrize("held", list(Held))
def test_each_reason_is_shown(held: Held) -> None:
    """Protocol 12.1."""
    scene = SCENES[held]()
    status = describe_group(scene.view())
    shown = {(entry.reason, entry.task, entry.to) for entry in status.held_back}
    assert held in {reason for reason, _, _ in shown}
    decision = decide(scene.group, scene.soft, (Tick(),), scene.now_ms, scene.policy)
    assert shown <= {(reason.code, reason.task, reason.to) for reason in decision.reasons}


def _copy_after_revocation() -> Scene:
    """m2 is to have a copy of 0_0, and has yet to stop 0_1."""
    scene = slow_to_stop(more=1, max_warmup_replicas=9)
    scene.beat("m2", {"0_1": running(), "0_0": copy("warmup", 5_000)}, epoch=scene.member("m2").epoch - 1)
    pin(scene, TaskId("0_2"), "m2")
    return scene


def _grant_after_revocation() -> Scene:
    """m2 is to have 0_0, which nobody runs any more, and has yet to drop its copy of 0_1."""
    scene = slow_to_stop(max_tasks=5)
    scene.obey("m2")
    scene.obey("m3")
    scene.obey("m1")
    assert (scene.task("0_0").owner, scene.task("0_0").handover.unreleased) == (None, ())
    return scene


def _copy_after_grants_are_held() -> Scene:
    scene = pair()
    scene.group = replace(scene.group, grants_from_ms=scene.now_ms + 60_000)
    return to_b(scene)


def _standby_after_grants_are_held() -> Scene:
    """The copy on b, to which 0_0 is to go, makes up for its standby, so it needs no slot."""
    scene = Scene()
    scene.declare(topology(2), num_standby_replicas=1, newcomer_wait_ms=0)
    scene.join("a")
    scene.settle()
    scene.group = replace(scene.group, grants_from_ms=scene.now_ms + 60_000)
    scene.join("b")
    return scene


@pytest.mark.parametrize(
    ("made", "entry"),
    [
        (_standby_after_grants_are_held, ("0_0", "b", Held.GRANTS_HELD)),
        (_copy_after_revocation, ("0_2", "m2", Held.REVOKE_FIRST)),
        (_grant_after_revocation, ("0_0", "m2", Held.REVOKE_FIRST)),
        (_copy_after_grants_are_held, ("0_0", "b", Held.GRANTS_HELD)),
    ],
)
def test_what_waits_for_its_grant_alone_says_so(made: Callable[[], Scene], entry: tuple[str, str, Held]) -> None:
    """Protocol 12.1: it has its slot, or its next owner, and is granted nothing yet."""
    scene = made()
    assert entry in held_back(scene)
    scene.group = replace(scene.group, grants_from_ms=0)
    for name in sorted(scene.group.members):
        scene.obey(name, lag=5_000)
    assert entry[0] not in [task for task, _, _ in held_back(scene)]


BUDGETS = {
    "max_warmup_replicas": Held.WARMUP_BUDGET,
    "max_warmups_per_member": Held.MEMBER_WARMUP_BUDGET,
    "max_drain_warmups": Held.DRAIN_BUDGET,
}


NO_BUDGETS = {"max_heartbeats_per_s", "max_lost_share"}
"""Limits that hold no single task back: how often a large group says anything, and when a storm begins."""


def test_each_budget_has_its_reason_and_is_held_by_the_law() -> None:
    """What a group did under a larger budget breaks L8 under a smaller one."""
    limits = {field.name for field in fields(GroupConfig) if field.name.startswith("max_")} - NO_BUDGETS
    assert sorted(limits - {*BUDGETS}) == [], (
        "name its reason in BUDGETS and have L8 bound it, or say in NO_BUDGETS why not"
    )
    for name, reason in BUDGETS.items():
        scene = SCENES[reason]()
        assert len(scene.held("b", Role.WARMUP)) == 1
        larger = replace(scene.group, config=replace(scene.group.config, **{name: 50}))  # type: ignore[arg-type]
        decision = decide(larger, scene.soft, (Tick(),), scene.now_ms, scene.policy)
        after = evolve(scene.group, decision.records)
        step = Transition(scene.group, after, decision.records, scene.soft, decision.soft, scene.now_ms, (Tick(),))
        assert {violation.law for violation in check_step(step)} == {"L8"}, name
