"""Placement against every placement that there is, on small groups; and what happens when the solver fails."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil, floor
from random import Random

import pytest
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow
from tests.core.described import describe_group
from tests.core.scene import Scene, restoring, topology
from tests.placement.placing import Group, Unsolvable, moved, seat, seats, tasks

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import ProbeRequest
from batonpass.core.state.model import ActiveState, Role
from batonpass.core.state.reasons import Held, NoChange
from batonpass.core.state.records import TargetPlaced
from batonpass.core.target.targets import build_request
from batonpass.explain.group import explain_group
from batonpass.placement import flow
from batonpass.placement.flow import PlacementError
from batonpass.placement.place import place
from batonpass.placement.types import NO_STATE, UNASSIGNED, Readiness, Warmth

CAUGHT_UP = Warmth(Readiness.CAUGHT_UP, 0)
WORLDS = 150


def badness(group: Group, targets: tuple[str | None, ...]) -> tuple[int, ...]:
    """Return how bad a balanced placement is, level by level: moves, warmups lost, readiness, earlier targets lost."""
    away = [task for task, target in enumerate(targets) if target != group.home[task]]
    warm = [Warmth(*group.warm.get(task, {}).get(str(targets[task]), NO_STATE)) for task in away]
    return (
        len(away),
        -sum(group.warming.get(task) == targets[task] for task in away),
        sum(known.ready_class > Readiness.CAUGHT_UP for known in warm),
        sum(max(0, known.ready_class - Readiness.ON_DISK) for known in warm),
        sum(known.lag if known.ready_class == Readiness.BEHIND else 0 for known in warm),
        -sum(group.previous.get(task) == targets[task] for task in away),
    )


def every_balanced(group: Group) -> Iterator[tuple[str, ...]]:
    """Yield every placement with each member at floor or ceiling of its quota."""
    names = [one.id for one in group.seats if one.may_be_target]
    quota = len(group.table.ids) / len(names)
    for targets in product(names, repeat=len(group.table.ids)):
        if all(floor(quota) <= targets.count(name) <= ceil(quota) for name in names):
            yield targets


def small_world(seed: int) -> Group:
    """Return three or four members, five to seven tasks, some of them warm, on their way, or without an owner.

    No two copies are behind by lags of which several add up to another, so that ranks of lags order as lags do.
    """
    random = Random(seed)
    members = seats(random.randint(2, 4))
    names = [one.id for one in members]
    count = random.randint(4, 7 if len(names) < 4 else 6)
    group = Group(tasks(count), members, home=tuple(random.choice([*names, None]) for _ in range(count)))
    choices = (
        CAUGHT_UP,
        CAUGHT_UP,
        Warmth(Readiness.BEHIND, 1),
        Warmth(Readiness.COLD, 0),
        Warmth(Readiness.UNKNOWN, 0),
    )
    warm: dict[int, dict[str, Warmth]] = {
        task: {name: random.choice(choices) for name in names if random.random() < 0.4} for task in range(count)
    }
    previous = {task: random.choice(names) for task in range(count) if random.random() < 0.3}
    warming = {task: name for task, name in previous.items() if random.random() < 0.5}
    group = replace(group, warm=warm, previous=previous, warming=warming)
    return group.drain(names[0]) if len(names) > 2 and random.random() < 0.3 else group


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(WORLDS))
def test_no_balanced_placement_is_better(seed: int) -> None:
    group = small_world(seed)
    placed = group.place()
    targets = tuple(group.name(owner) for owner in placed.owner)
    assert badness(group, targets) == min(badness(group, one) for one in every_balanced(group))


@pytest.mark.parametrize("warm", ["m02", "m03", "m05", "m06"])
def test_between_equal_loads_the_warmest_gets_the_ceiling(warm: str) -> None:
    """A needless warmup gives its destination no claim to the ceiling."""
    before = Group(tasks(10), seats(8), home=tuple(f"m{index % 8:02}" for index in range(10)))
    needless = {0: "m07"}
    group = replace(before.drain("m04"), warm={4: {warm: CAUGHT_UP}}, previous=needless, warming=needless)
    assert moved(group, group.place()) == {4: ("m04", warm)}


def test_an_earlier_target_does_not_take_the_only_place_that_another_task_is_warm_at() -> None:
    warm = {0: {"m01": CAUGHT_UP, "m03": CAUGHT_UP}, 4: {"m01": Warmth(Readiness.BEHIND, 1)}}
    group = Group(tasks(5), seats(4), home=(None, "m00", "m00", "m02", None), warm=warm, previous={0: "m01"})
    assert moved(group, group.place()) == {0: (None, "m03"), 4: (None, "m01")}


def test_who_gives_up_the_ceiling_is_settled_by_what_is_warm_at_the_joiner() -> None:
    before = Group(tasks(8), seats(3), home=("m00",) * 3 + ("m01",) * 3 + ("m02",) * 2)
    for task, giver in ((1, "m00"), (4, "m01")):
        group = replace(before.join(seat("zz")), warm={task: {"zz": CAUGHT_UP}})
        assert moved(group, group.place())[task] == (giver, "zz")


def test_a_task_whose_state_is_lost_is_placed_as_one_that_nobody_has() -> None:
    """The holder of lost state has no claim to the task, so that no healthy task moves to make up for it."""
    scene = Scene()
    scene.declare(topology(2))
    for name in ("a", "b"):
        scene.join(name)
    scene.settle()
    lost = scene.held("a", Role.ACTIVE)[0]
    scene.beat("a", {lost: restoring(None, lost=True)})
    task = scene.task(lost)
    question = build_request(scene.view())
    assert task.state is ActiveState.LOST
    assert question.home[scene.group.table.index_of[TaskId(lost)]] == UNASSIGNED


class _Broken(SimpleMinCostFlow):  # type: ignore[misc] # published without types
    def solve(self) -> object:
        raise RuntimeError("out of luck")


@pytest.mark.parametrize(("solver", "says"), [(Unsolvable, "INFEASIBLE"), (_Broken, "out of luck")])
def test_a_solver_that_fails_is_named(solver: type, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "SimpleMinCostFlow", solver)
    with pytest.raises(PlacementError, match=says):
        place(Group(tasks(3), seats(2)).request())


def test_a_group_whose_placement_fails_keeps_its_target_and_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.declare(topology(4))
    scene.join("a")
    scene.settle()
    targets = {task: scene.task(task).target.owner for task in scene.group.table.ids}
    with monkeypatch.context() as broken:
        broken.setattr(flow, "SimpleMinCostFlow", Unsolvable)
        scene.join("b")
        seen = scene.of(TargetPlaced)
        assert NoChange.PLACEMENT_FAILED in {one.code for one in scene.last.reasons} if scene.last else False
        for _ in range(5):
            seen += [one for one in scene.tick(1_000).records if isinstance(one, TargetPlaced)]
            scene.obey()
    assert MemberId("b") in scene.group.members
    assert {task: scene.task(task).target.owner for task in scene.group.table.ids} == targets
    (failed,) = [one for one in seen if one.failed]
    assert "INFEASIBLE" in failed.failed
    status = describe_group(scene.view())
    assert (status.at_rest, status.next_probe_ms) == (False, scene.group.next_probe_ms)
    assert status.next_probe_ms is not None
    explained = explain_group(scene.view(), limit=10)
    assert any("Placement failed" in sentence and "INFEASIBLE" in sentence for sentence in explained.sentences)
    while scene.now_ms < status.next_probe_ms:
        scene.tick(1_000)
        scene.obey()
    scene.settle()
    assert scene.group.next_probe_ms is None
    assert sorted(str(scene.task(f"0_{one}").target.owner) for one in range(4)) == ["a", "a", "b", "b"]


def test_a_placement_that_fails_again_when_it_is_asked_for_records_nothing_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.declare(topology(4))
    scene.join("a")
    scene.settle()
    targets = {task: scene.task(task).target.owner for task in scene.group.table.ids}
    monkeypatch.setattr(flow, "SimpleMinCostFlow", Unsolvable)
    scene.join("b")
    scene.tick(100)
    known = len(scene.log)
    scene.do(ProbeRequest())
    assert not [one for one in scene.log[known:] if isinstance(one, TargetPlaced)]
    assert scene.last is not None
    assert NoChange.PLACEMENT_FAILED in {one.code for one in scene.last.reasons}
    assert {task: scene.task(task).target.owner for task in scene.group.table.ids} == targets


def test_a_group_whose_members_may_be_full_waits_when_its_first_placement_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.declare(topology(4))
    with monkeypatch.context() as broken:
        broken.setattr(flow, "SimpleMinCostFlow", Unsolvable)
        scene.join("a", max_tasks=4)
        scene.tick(100)
        assert [one.failed for one in scene.log if isinstance(one, TargetPlaced) and one.failed]
        assert all(scene.task(task).owner is None for task in scene.group.table.ids)
        status = describe_group(scene.view())
        assert {entry.reason for entry in status.held_back} == {Held.PLACEMENT_FAILED}
    scene.do(ProbeRequest())
    scene.settle()
    assert all(scene.task(task).owner == "a" for task in scene.group.table.ids)
