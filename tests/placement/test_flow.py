"""Placement against every placement that there is, on small groups; and what happens when the solver fails."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import ceil, floor
from random import Random

import pytest
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow
from tests.core.described import describe_group
from tests.core.scene import Scene, restoring, topology
from tests.often import cases
from tests.placement.placing import TINY, Group, Unsolvable, moved, seat, seats, tasks

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
from batonpass.placement.types import NO_STATE, UNASSIGNED, PlacementMember, Readiness, Warmth

CAUGHT_UP = Warmth(Readiness.CAUGHT_UP, 0)
WORLDS = cases(150)


def badness(group: Group, targets: Sequence[str | None]) -> tuple[float, ...]:
    """Return how bad a placement is, rule by rule, the first first."""
    members = {one.id: one for one in group.seats if one.may_be_target}
    home = [name if name in members else None for name in group.home]
    away = [task for task, target in enumerate(targets) if target not in {None, home[task]}]
    warm = [group.warm.get(task, {}).get(str(targets[task]), NO_STATE) for task in away]
    share = sum(one.capacity for one in members.values())
    count = {name: targets.count(name) for name in members}
    floors = {name: floor(len(targets) * one.capacity / share + TINY) for name, one in members.items()}
    height = {name: round((floors[name] + 1) / one.capacity, 8) for name, one in members.items()}
    lowest = {name: (floors[name] / one.capacity, home.count(name) / one.capacity) for name, one in members.items()}
    ceilings = [name for name in members if count[name] > floors[name]]
    loads = sorted((round(count[name] / one.capacity, 8) for name, one in members.items()), reverse=True)
    return (
        sum(2 if home[task] else 1 for task, target in enumerate(targets) if target is None),
        *(loads if is_bent(group) else ()),
        len([task for task in away if targets[task] != group.home[task]]),
        -sum(group.warming.get(task) == targets[task] for task in away),
        *(() if is_bent(group) else (sum(sorted({*height.values()}).index(height[name]) for name in ceilings),)),
        sum(known.ready_class > Readiness.CAUGHT_UP for known in warm),
        sum(max(0, known.ready_class - Readiness.ON_DISK) for known in warm),
        sum(known.lag if known.ready_class == Readiness.BEHIND else 0 for known in warm),
        -sum(group.previous.get(task) == targets[task] for task in away),
        *(() if is_bent(group) else (sum(name in home for name in ceilings), unevenness(group, targets, members))),
        *(() if is_bent(group) else (sum(sorted({*lowest.values()}).index(lowest[name]) for name in ceilings),)),
        *(() if is_bent(group) else (sum(given_first(group.sizes.get(task, 0)) for task in away if home[task]),)),
    )


def is_bent(group: Group) -> bool:
    """Say whether limits or topology epochs may keep members from their quota."""
    return bool(group.table.newest_epoch) or any(one.max_tasks is not None for one in group.seats)


def unevenness(group: Group, targets: Sequence[str | None], members: Mapping[str, PlacementMember]) -> int:
    """Return how far members are from their even part of each subtopology: a step for each copy beyond each ring.

    With a single subtopology nothing is uneven.
    """
    share, steps = sum(one.capacity for one in members.values()), 0
    for subtopology in {*group.table.subtopology} if len({*group.table.subtopology}) > 1 else ():
        of_it = [target for target, part in zip(targets, group.table.subtopology, strict=True) if part == subtopology]
        for name, one in members.items():
            even, width = len(of_it) * one.capacity / share, one.capacity * len(members) / share
            edges = [floor(even - ring * width) for ring in range(3)] + [ceil(even + ring * width) for ring in range(3)]
            steps += sum(max(0, edge) < copy for copy in range(1, of_it.count(name) + 1) for edge in edges)
    return steps


def given_first(size: int) -> int:
    """Return the class of a size of state: those of one class differ by less than a factor of four."""
    return len(f"{size:b}") // 2 + len(f"{size:b}") % 2 if size else 0


def every_placement(group: Group) -> Iterator[tuple[str | None, ...]]:
    """Yield every placement within floor and ceiling of all quotas; if these may be bent, every one that is allowed."""
    names = [one.id for one in group.seats if one.may_be_target]
    share = sum(one.capacity for one in group.seats if one.may_be_target)
    limits = {one.id: one.max_tasks for one in group.seats}
    quota = {one.id: len(group.table.ids) * one.capacity / share for one in group.seats}
    epochs = {one.id: one.topology_epoch for one in group.seats}
    choices = [
        [name for name in names if epochs[name] >= need or group.home[task] == name] + [None]
        for task, need in enumerate(group.table.topology_epoch)
    ]
    for targets in product(*choices) if is_bent(group) else product(names, repeat=len(choices)):
        if is_bent(group):
            is_allowed = all(limit is None or targets.count(name) <= limit for name, limit in limits.items())
        else:
            counts = {name: targets.count(name) for name in names}
            is_allowed = all(floor(quota[name] + TINY) <= counts[name] <= ceil(quota[name] - TINY) for name in names)
        if is_allowed:
            yield targets


def small_world(seed: int, kind: str) -> Group:
    """Return up to four members, four to seven tasks, some of them warm, on their way, or without an owner.

    Copies are behind by one of two lags, or by one and some are of unknown lag: so ranks of lags order as lags do.
    In groups of one subtopology none is of unknown lag: where others may go instead, dealing decides, not a cost.
    """
    random = Random(seed)
    capacities = (1.0, 2.0, 3.0) if kind == "capacities" else (1.0,)
    epochs = {1: 1} if kind in {"epochs", "epochs and limits"} else {}
    members = tuple(
        seat(
            f"m{index:02}",
            random.choice(capacities),
            topology_epoch=random.randint(0, 1) if epochs else 0,
            max_tasks=random.choice((1, 2, 4, None)) if "limits" in kind else None,
        )
        for index in range(random.randint(2, 4 if kind == "equal" else 3))
    )
    names = [one.id for one in members]
    count = random.randint(4, 7 if len(names) < 4 else 6)
    second = random.randint(1, 3) if kind != "equal" else 0
    table = tasks(count - second, *([second] if second else []), epochs=epochs)
    group = Group(table, members, home=tuple(random.choice([*names, None]) for _ in range(count)))
    choices = (
        CAUGHT_UP,
        CAUGHT_UP,
        Warmth(Readiness.BEHIND, 0),
        Warmth(Readiness.COLD, 0),
        Warmth(Readiness.UNKNOWN, 0) if second and random.random() < 0.5 else Warmth(Readiness.BEHIND, 5),
    )
    warm: dict[int, dict[str, Warmth]] = {
        task: {name: random.choice(choices) for name in names if random.random() < 0.4} for task in range(count)
    }
    previous = {task: random.choice(names) for task in range(count) if random.random() < 0.3}
    warming = {task: name for task, name in previous.items() if random.random() < 0.5}
    sizes = {task: random.choice((1, 16, 256)) for task in range(count)} if random.random() < 0.5 else {}
    group = replace(group, warm=warm if random.random() < 0.7 else {}, previous=previous, warming=warming, sizes=sizes)
    return group.drain(names[0]) if len(names) > 2 and random.random() < 0.3 else group


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ["equal", "capacities", "limits", "epochs", "epochs and limits"])
@pytest.mark.parametrize("largest", [flow._LARGEST, 1 << 16], ids=["levels together", "levels apart"])
def test_no_placement_is_better(kind: str, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule by rule. Whether as many levels as fit are solved at once, or hardly two, makes no difference."""
    monkeypatch.setattr(flow, "_LARGEST", largest)
    for seed in range(WORLDS):
        group = small_world(seed, kind)
        placed = group.place()
        found = badness(group, [group.name(owner) for owner in placed.owner])
        best = min(badness(group, one) for one in every_placement(group))
        assert found == best, seed


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
