"""Stateful tasks of unequal weight: near their quotas, few moves, and everything else as for equal ones."""

from dataclasses import replace

import pytest
from tests.placement.placing import Group, Unsolvable, faults, is_balanced, loads, moved, seat, seats, skew, tasks

from batonpass.placement import amounts, flow
from batonpass.placement.types import Readiness, Waits, Warmth

CAUGHT_UP = Warmth(Readiness.CAUGHT_UP, 0)


def by_subtopology(*weights: float, size: int = 12) -> Group:
    """Return three members with subtopologies whose tasks weigh so much each."""
    return Group(tasks(*[size] * len(weights), weight=lambda one, _: weights[one]), seats(3))


def off(group: Group, placed: object) -> float:
    """Return how far the farthest open member is from its quota, in units of the heaviest task."""
    load = loads(group, placed, stateful_only=True)  # type: ignore[arg-type]
    whole = sum(one.capacity for one in group.seats if one.may_be_target)
    heaviest = max(group.table.weight[task_index] for task_index in group.table.stateful_indexes)
    return max(
        abs(load[one.id] - sum(load.values()) * one.capacity / whole) / heaviest
        for one in group.seats
        if one.may_be_target
    )


def test_a_first_placement_is_balanced_and_even_per_subtopology() -> None:
    group = by_subtopology(1.0, 5.0, 2.5)
    placed = group.place()
    assert len(set(loads(group, placed).values())) == 1
    assert skew(group, placed) <= 1
    assert group.settle(placed).place().moves == 0


def test_a_first_placement_of_weights_that_all_differ_is_near_all_quotas() -> None:
    table = tasks(90, weight=lambda _one, partition: 1.0 + partition / 7)
    group = Group(table, (seat("a", 1), seat("b", 2), seat("c", 4)))
    assert off(group, group.place()) <= 1


def test_a_join_takes_few_heavy_tasks_rather_than_many_light_ones() -> None:
    group = by_subtopology(1.0, 4.0).settle().join(seat("zz"))
    placed = group.place()
    assert placed.moves == placed.lower_bound == 6
    assert {target for _, target in moved(group, placed).values()} == {"zz"}
    assert off(group, placed) <= 1


def test_a_task_that_weighs_a_little_more_leaves_nobody_idle() -> None:
    table = tasks(2, weight=lambda _one, partition: 1.0 + partition / 10_000)
    group = Group(table, seats(2), home=("m00", "m00"))
    assert sorted(loads(group, group.place()).values()) == [1.0, 1.0001]


def test_light_tasks_are_shared_beside_a_member_with_a_heavy_one() -> None:
    table = tasks(1, 11, weight=lambda one, _: 1.0 if one else 12.0)
    group = Group(table, seats(3), home=("m01",) + ("m00",) * 11)
    placed = group.place()
    assert (loads(group, placed), placed.moves) == ({"m00": 6.0, "m01": 12.0, "m02": 5.0}, 5)


@pytest.mark.parametrize(("members", "size", "moves", "highest"), [(10, 1_000, 31, 1.0005), (100, 10_000, 101, 1.0005)])
def test_a_join_of_a_large_group_of_mixed_weights_moves_few_tasks(
    members: int, size: int, moves: int, highest: float
) -> None:
    """Meta's Rebalancer moves 37 for 1.000 times the average, and 198 for 1.001."""
    table = tasks(size, weight=lambda _one, partition: (1.0, 1.0, 1.0, 2.0, 3.0, 8.0)[partition % 6])
    group = Group(table, seats(members)).settle().join(seat("zz"))
    placed = group.place()
    assert placed.moves == moves
    assert max(loads(group, placed).values()) * (members + 1) <= highest * sum(table.weight)
    assert is_balanced(group, placed.owner)


@pytest.mark.parametrize(("weight", "tolerance", "moves"), [(1.0, 0.1, 22), (1.0, 0.0, 32), (1.001, 0.1, 22)])
def test_with_a_tolerance_no_more_moves_than_brings_every_member_to_within_it(
    weight: float, tolerance: float, moves: int
) -> None:
    """Of 140, 92 and 92 one is above 108 by more than a tenth until 22 have left it."""
    table = tasks(324, weight=lambda _one, partition: weight if partition else 1.0)
    home = ("m00",) * 140 + ("m01",) * 92 + ("m02",) * 92
    group = Group(table, seats(3), home=home, tolerance=tolerance)
    placed = group.place()
    assert placed.moves == moves
    assert group.settle(placed).place().moves == 0


def test_a_task_that_is_above_the_tolerance_alone_keeps_its_member_to_itself() -> None:
    table = tasks(13, weight=lambda _one, partition: 1.0 if partition else 12.0)
    group = Group(table, seats(3), home=("m00",) * 3 + ("m01",) * 5 + ("m02",) * 5, tolerance=0.1)
    placed = group.place()
    assert (loads(group, placed), placed.moves) == ({"m00": 12.0, "m01": 6.0, "m02": 6.0}, 2)


def test_a_leave_moves_only_the_leavers_tasks() -> None:
    before = by_subtopology(1.0, 4.0, 2.0).settle()
    group = before.leave("m01")
    placed = group.place()
    assert set(moved(group, placed)) == {task_index for task_index, name in enumerate(before.home) if name == "m01"}
    assert off(group, placed) <= 1


def test_one_heavy_task_is_shed_for_many_light_ones() -> None:
    table = tasks(1, 6, weight=lambda one, _: 6.0 if one == 0 else 2.0)
    group = Group(table, seats(3), home=("m00",) * 4 + ("m01",) * 3)
    placed = group.place()
    assert placed.moves == placed.lower_bound
    assert off(group, placed) <= 1


def test_what_must_move_goes_where_it_is_warm() -> None:
    before = by_subtopology(1.0, 3.0).settle()
    orphans = [task_index for task_index, name in enumerate(before.home) if name == "m00"]
    warm = {task_index: {"m02": CAUGHT_UP} for task_index in orphans[:2]} | {
        orphans[4]: {"m01": Warmth(Readiness.BEHIND, 9), "m02": Warmth(Readiness.BEHIND, 3)}
    }
    group = replace(before.leave("m00"), warm=warm)
    placed = group.place()
    assert {group.name(placed.owner[task_index]) for task_index in [*orphans[:2], orphans[4]]} == {"m02"}


def test_what_members_give_away_goes_where_it_is_warm_too() -> None:
    group = by_subtopology(1.0, 3.0).settle().join(seat("x"), seat("y"))
    other = {"x": "y", "y": "x"}
    targets = {task_index: str(target) for task_index, (_, target) in moved(group, group.place()).items()}
    warmed = replace(group, warm={task_index: {other[target]: CAUGHT_UP} for task_index, target in targets.items()})
    placed = warmed.place()
    assert {task_index: target for task_index, (_, target) in moved(warmed, placed).items()} == {
        task_index: other[target] for task_index, target in targets.items()
    }
    assert off(warmed, placed) <= 1


def test_a_task_that_moves_for_balance_is_caught_up_somewhere_that_has_room() -> None:
    table = tasks(12, weight=lambda _one, partition: 1.0 + partition % 2)
    group = Group(table, (seat("a"), seat("x"), seat("y")), home=("a",) * 12)
    gone = [task_index for task_index, (_, target) in moved(group, group.place()).items() if target == "x"]
    warmed = replace(group, warm={gone[-1]: {"y": CAUGHT_UP}})
    placed = warmed.place()
    assert warmed.name(placed.owner[gone[-1]]) == "y"
    assert off(warmed, placed) <= 1


def test_warm_copies_on_one_member_do_not_fill_it_while_another_is_too_low() -> None:
    table = tasks(8, weight=lambda _one, partition: 1.0 + partition % 2)
    warm = {task_index: {"a": CAUGHT_UP} for task_index in range(8)}
    group = Group(table, (seat("a"), seat("b"), seat("c")), warm=warm)
    placed = group.place()
    assert off(group, placed) <= 1
    assert group.pending(placed).place().owner == placed.owner


def test_a_running_warmup_keeps_its_goal_and_one_without_a_reason_is_dropped() -> None:
    group = by_subtopology(1.0, 4.0, 2.0).settle().join(seat("x"))
    pending = group.pending()
    running = replace(pending, warming=pending.previous)
    second = running.join(seat("y"))
    placed = second.place()
    targets = {task_index: target for task_index, (_, target) in moved(second, placed).items()}
    assert (placed.moves, placed.lower_bound) == (11, 9)
    assert len(pending.previous.items() & targets.items()) == 7
    assert running.leave("x").place().moves == 0


def test_moves_that_are_still_to_come_keep_their_targets() -> None:
    group = by_subtopology(1.0, 4.0, 2.0, 1.5).settle().join(seat("x"), seat("a1", 2)).leave("m01")
    first = group.place()
    assert group.pending(first).place().owner == first.owner


def test_a_move_that_nobody_needs_any_more_is_dropped() -> None:
    before = by_subtopology(1.0, 4.0).settle()
    needless = replace(before, previous={0: "m01", 12: "m02"}, warming={12: "m02"})
    assert needless.place().moves == 0


def test_a_move_under_way_is_dropped_where_something_else_has_to_be_placed() -> None:
    before = by_subtopology(1.0, 4.0).settle()
    home = tuple(None if task_index == 0 else name for task_index, name in enumerate(before.home))
    moving = next(task_index for task_index, name in enumerate(home) if task_index > 0 and name == "m00")
    group = replace(before, home=home, previous={moving: "m01"}, warming={moving: "m01"})
    placed = group.place()
    assert set(moved(group, placed)) == {0}


def test_heavy_tasks_are_shed_before_light_ones() -> None:
    table = tasks(9, weight=lambda _one, partition: [5.0, 4.0, 3.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0][partition])
    group = Group(table, seats(3), home=("m00",) * 5 + ("m01",) * 4)
    placed = group.place()
    assert placed.moves == placed.lower_bound
    assert off(group, placed) <= 1


def test_bound_tasks_weigh_where_they_are_bound() -> None:
    group = replace(by_subtopology(1.0, 12.0, size=4), bound={4: "m00", 5: "m00", 0: "m00"})
    placed = group.place()
    assert {group.name(placed.owner[rank]) for rank in (0, 4, 5)} == {"m00"}
    assert faults(group, placed) == []
    pinned_stateless = replace(
        group, table=tasks(4, 4, stateless=[0], weight=lambda one, partition: 1.0 + 11.0 * one + partition)
    )
    assert {pinned_stateless.name(pinned_stateless.place().owner[rank]) for rank in (0, 4, 5)} == {"m00"}
    settled = replace(group.settle(placed), bound={4: "m01"})
    assert settled.place().moves >= 1


def test_in_a_pause_only_what_has_no_home_moves() -> None:
    group = replace(by_subtopology(1.0, 4.0).settle().join(seat("zz")).leave("m02"), held=True)
    placed = group.place()
    assert {home for home, _ in moved(group, placed).values()} == {None}
    assert loads(group, placed)["zz"] > 0


@pytest.mark.parametrize("limit", [0, 3, 5, 8])
def test_limits_hold_and_everything_comes_to_rest(limit: int) -> None:
    before = by_subtopology(1.0, 4.0, size=8).settle()
    group = replace(before, seats=(seat("m00", max_tasks=limit), *before.seats[1:]))
    placed = group.place()
    assert faults(group, placed) == []
    assert group.settle(placed).place().owner == placed.owner


def test_a_full_member_that_is_too_low_exchanges_light_tasks_for_heavy_ones() -> None:
    table = tasks(4, 4, weight=lambda one, _: 1.0 if one == 0 else 4.0)
    group = Group(table, (seat("a", max_tasks=4), seat("b")), home=("a",) * 4 + ("b",) * 4)
    placed = group.place()
    assert faults(group, placed) == []
    assert off(group, placed) <= 1


def test_bands_out_of_reach_cost_no_moves() -> None:
    """The limit keeps a below its band."""
    table = tasks(2, 6, weight=lambda one, _: 2.0 if one == 0 else 1.0)
    group = Group(table, (seat("a", max_tasks=1), seat("b")), home=("a",) + ("b",) * 7)
    assert group.place().moves == 0


def test_what_fits_nowhere_waits() -> None:
    table = tasks(5, weight=lambda _one, partition: 1.0 + partition)
    group = Group(table, (seat("a", max_tasks=2), seat("b", max_tasks=1)), home=("a",) * 4 + (None,))
    placed = group.place()
    assert sorted(placed.waiting.values()) == [Waits.NO_CAPACITY] * 2
    assert faults(group, placed) == []


def test_weights_that_all_differ_leave_the_solver_nothing_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow for each of them would take a millisecond each: seconds for thousands."""
    group = Group(tasks(60, weight=lambda _one, partition: 1.0 + partition / 59), seats(5))
    monkeypatch.setattr(flow, "SimpleMinCostFlow", Unsolvable)
    placed = group.place()
    assert is_balanced(group, placed.owner)
    settled = group.settle(placed)
    joined = replace(settled, seats=(*settled.seats, seat("z")))
    assert is_balanced(joined, joined.place().owner)


@pytest.mark.parametrize(("tries", "moves"), [(amounts._TRIES, 3), (0, 5)])
def test_moves_are_tried_otherwise(tries: int, moves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amounts, "_TRIES", tries)
    weight = (2.4, 2.4, 1.7, 2.7, 3.7, 0.8, 2.5)
    home = ("m02", "m02", "m02", "m01", "m02", "m00", None)
    group = Group(tasks(7, weight=lambda _one, partition: weight[partition]), seats(3), home=home)
    placed = group.place()
    assert (placed.moves, is_balanced(group, placed.owner)) == (moves, True)
