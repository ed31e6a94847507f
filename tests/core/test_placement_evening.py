"""Rounds of swaps between subtopologies, and quotas and levels at their edges."""

from collections.abc import Callable
from dataclasses import replace

from batonpass.core.placement_bounds import quotas, water_level
from batonpass.core.placement_evening import Cells, Evening, Swap
from batonpass.core.placement_evenness import Evenness
from batonpass.core.placement_exchange import Exchange
from tests.core.placing import Group, seat, skew, tasks


def test_a_round_that_asks_one_seat_for_two_things_is_refused() -> None:
    """Of equal seats one gave one more and another did not: they change parts once in a round, not twice."""
    table = tasks(2, 2)
    owner = [0, 0, 1, 1]
    exchange = Exchange(
        owner=owner,
        homeless=[],
        pools={0: [0, 1], 1: [2, 3]},
        must=[0, 0],
        may=[True, False],
        spare=0,
        room=[0, 0],
        extra=[False, False],
        spare_room=0,
        fixed={},
        kind=table.stateful,
        stateful=True,
        have=[2, 2],
    )
    even = Evenness(table, owner, [0, 1], [1.0, 1.0])
    evening = Evening(even, Cells(exchange, table.subtopology, []), [True, True], [False, False])
    twice = [Swap(-1.0, 0, 1), Swap(-1.0, 0, 1)]
    assert not evening._swap(twice, [0, 1])
    assert owner == [0, 0, 1, 1]


def test_a_task_that_is_on_its_way_can_go_home_instead() -> None:
    """A giver that takes back the very task that another seat lets go of leaves nothing behind there."""
    table = tasks(1, 1)
    exchange = Exchange(
        owner=[1, 0],
        homeless=[],
        pools={0: [0, 1]},
        must=[0, 0],
        may=[False, False],
        spare=0,
        room=[0, 0],
        extra=[False, False],
        spare_room=0,
        fixed={},
        kind=table.stateful,
        stateful=True,
        have=[2, 0],
    )
    exchange.moved[0] = 0
    cells = Cells(exchange, table.subtopology, [0])
    assert cells.release(1, 0) == 0
    cells.fill(0, 0, 0)
    assert exchange.owner == [0, 0]
    assert exchange.moved == {}


def test_what_pairs_leave_uneven_a_round_evens() -> None:
    """Many subtopologies of a few tasks each, over members that come and go, stay within one task of one another."""
    group = Group(tasks(3, 2, 4, 1, 3, 2), (seat("a"), seat("b"), seat("c"))).settle()
    changes: list[Callable[[Group], Group]] = [
        lambda one: one.join(seat("d"), seat("e")),
        lambda one: one.leave("b"),
        lambda one: one.leave("a").join(seat("f")),
        lambda one: one.leave("d"),
    ]
    for change in changes:
        group = change(group)
        assert skew(group, group.place()) <= 1
        group = group.settle()
    assert replace(group, home=()).place().moves == 15


def test_less_than_is_bound_is_as_much_as_is_bound() -> None:
    """What is bound is there, even should there be less to divide: quotas and levels keep to it."""
    assert quotas([1, 1], [2, 1], [5, 5], 2).floors == [2, 1]
    assert water_level([0.0], [1.0], [2.0], [5.0], 1.0) == 1.0
