"""Subtopologies that stay even while members come and go."""

from collections.abc import Callable
from dataclasses import replace

from tests.placement.exact import least_skew
from tests.placement.placing import Group, seat, skew, tasks


def test_many_small_subtopologies_stay_within_one_task_through_joins_and_leaves() -> None:
    group = Group(tasks(3, 2, 4, 1, 3, 2), (seat("a"), seat("b"), seat("c"))).settle()
    changes: list[Callable[[Group], Group]] = [
        lambda one: one.join(seat("d"), seat("e")),
        lambda one: one.leave("b"),
        lambda one: one.leave("a").join(seat("f")),
        lambda one: one.leave("d"),
    ]
    for change in changes:
        group = change(group)
        placed = group.place()
        assert skew(group, placed) <= max(1, least_skew(group, placed) + 1e-6)
        group = group.settle()
    assert replace(group, home=()).place().moves == 15
