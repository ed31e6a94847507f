"""Stateless tasks level the total load of actives, and move no more than that takes."""

from dataclasses import replace

import pytest
from tests.placement.placing import Group, counts, loads, moved, seat, seats, skew, tasks, unlevel


def test_stateless_tasks_fill_the_gaps() -> None:
    group = Group(tasks(3, 4, stateless=[1]), seats(2))
    assert sorted(loads(group, group.place()).values()) == [3.0, 4.0]
    assert unlevel(group, group.place()) == []


def test_stateless_tasks_move_no_more_than_levelling_takes() -> None:
    group = Group(tasks(20, stateless=[0]), seats(4)).settle().join(seat("zz"))
    placed = group.place()
    assert len(moved(group, placed)) == 4
    assert {target for _, target in moved(group, placed).values()} == {"zz"}
    assert (placed.moves, placed.lower_bound) == (0, 0)


def test_level_stateless_tasks_stay() -> None:
    group = Group(tasks(5, stateless=[0]), seats(2), home=("m00", "m00", "m01", "m01", "m01"))
    assert moved(group, group.place()) == {}


def test_a_first_placement_of_stateless_tasks_is_even_per_subtopology() -> None:
    group = Group(tasks(5, 4, 7, stateless=[0, 1, 2]), seats(3))
    assert skew(group, group.place()) <= 1


@pytest.mark.parametrize("capacities", [(7, 7, 7), (2, 2, 2), (1, 2, 3)])
def test_seven_stateless_tasks_over_three_members(capacities: tuple[int, ...]) -> None:
    """Kafka's scenarios 29 to 31: load per capacity differs by at most one."""
    members = tuple(seat(name, capacity) for name, capacity in zip("abc", capacities, strict=True))
    group = Group(tasks(7, stateless=[0]), members)
    load = loads(group, group.place())
    levels = [load[one.id] / one.capacity for one in members]
    assert max(levels) - min(levels) <= 1


def test_one_member_that_had_everything_shares_it() -> None:
    """Kafka's scenario 32."""
    group = Group(tasks(7, stateless=[0]), seats(3, 3), home=("m00",) * 7)
    assert sorted(counts(group, group.place(), stateful=False).values()) == [2, 2, 3]


def test_stateless_tasks_of_different_weight_level_the_load() -> None:
    table = tasks(4, 9, 5, stateless=[1, 2], weight=lambda one, partition: [1.0, 0.5, 3.0][one] + partition % 2)
    group = Group(table, (seat("a", 2), seat("b"), seat("c", 0.5)))
    assert unlevel(group, group.place()) == []
    grown = group.settle().join(seat("d", 3))
    placed = grown.place()
    assert unlevel(grown, placed) == []
    assert loads(grown, placed)["d"] > 0
    assert replace(grown, held=True).place().owner == [grown.number()[name] for name in grown.home if name]


def test_limits_hold_for_stateless_tasks_of_different_weight() -> None:
    table = tasks(6, stateless=[0], weight=lambda _one, partition: 1.0 + partition)
    group = Group(table, (seat("a", max_tasks=2), seat("b", max_tasks=3)), home=("a",) * 6)
    placed = group.place()
    assert counts(group, placed, stateful=False) == {"a": 2, "b": 3}
    assert len(placed.waiting) == 1
    orphans = Group(table, (seat("a", max_tasks=2), seat("b", max_tasks=3)))
    assert len(orphans.place().waiting) == 1


def test_limits_hold_for_stateless_tasks_of_equal_weight() -> None:
    group = Group(tasks(9, stateless=[0]), (seat("a", max_tasks=1), seat("b"), seat("c")), home=("a",) * 9)
    placed = group.place()
    assert counts(group, placed, stateful=False) == {"a": 1, "b": 4, "c": 4}
    full = Group(tasks(4, stateless=[0]), (seat("a", max_tasks=1), seat("b", max_tasks=2)), home=("a",) * 4)
    assert len(full.place().waiting) == 1


def test_stateless_tasks_know_topologies_too() -> None:
    table = tasks(4, 4, stateless=[0, 1], epochs={1: 2})
    group = Group(table, (seat("a", topology_epoch=1), seat("b", topology_epoch=2)))
    placed = group.place()
    assert {group.name(placed.owner[task_index]) for task_index in range(4, 8)} == {"b"}
    assert counts(group, placed, stateful=False) == {"a": 4, "b": 4}
    assert len(Group(table, (seat("a", topology_epoch=1),)).place().waiting) == 4


def test_a_bound_stateless_task_stays_where_it_is_bound() -> None:
    group = Group(tasks(6, stateless=[0]), seats(2), home=("m00",) * 6, bound=dict.fromkeys(range(4), "m00"))
    placed = group.place()
    assert counts(group, placed, stateful=False) == {"m00": 4, "m01": 2}
    uneven = replace(group, table=tasks(6, stateless=[0], weight=lambda _one, partition: 1.0 + partition % 2))
    assert [uneven.name(owner) for owner in uneven.place().owner[:4]] == ["m00"] * 4
