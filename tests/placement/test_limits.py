"""Limits on copies and members that do not know the newest topology: what may be where, and what waits for it."""

from collections import Counter
from dataclasses import replace

import pytest
from tests.placement.placing import Group, counts, faults, moved, seat, seats, standby_counts, tasks

from batonpass.placement.types import Moves, Readiness, Waits, Warmth


def test_a_limit_bends_quotas_as_little_as_it_can() -> None:
    group = Group(tasks(12), (seat("a", max_tasks=1), seat("b"), seat("c")))
    placed = group.place()
    assert sorted(counts(group, placed).values()) == [1, 5, 6]
    assert placed.moves == placed.lower_bound == 12
    assert group.settle(placed).place().moves == 0


def test_what_fits_nowhere_waits() -> None:
    warm = {rank: {"a": Warmth(Readiness.CAUGHT_UP, 0)} for rank in (4, 5)}
    group = Group(tasks(6), (seat("a", max_tasks=2), seat("b", max_tasks=1)), warm=warm, replicas=1)
    placed = group.place()
    assert placed.waiting == dict.fromkeys((1, 2, 3), Waits.NO_CAPACITY)
    assert faults(group, placed) == []
    assert (placed.moves, placed.lower_bound) == (3, 3)


def test_actives_come_before_standbys() -> None:
    group = Group(tasks(8), tuple(seat(name, max_tasks=5) for name in "ab"), replicas=1)
    placed = group.place()
    assert counts(group, placed) == {"a": 4, "b": 4}
    assert standby_counts(group, placed) == {"a": 1, "b": 1}
    assert group.settle(placed).place().standbys == placed.standbys


def test_running_stateless_tasks_are_not_stopped_for_stateful_ones() -> None:
    group = Group(
        tasks(2, 2, stateless=[1]), (seat("a", max_tasks=3),), home=("a", None, "a", "a"), standbys=(frozenset(),) * 4
    )
    placed = group.place()
    assert placed.waiting == {1: Waits.NO_CAPACITY}
    assert moved(group, placed) == {}


def test_running_stateless_tasks_make_way_for_balance_where_there_is_room_elsewhere() -> None:
    group = Group(
        tasks(4, 3, stateless=[1]), (seat("a", max_tasks=4), seat("b", max_tasks=4)), home=("a",) * 4 + ("b",) * 3
    )
    placed = group.place()
    assert faults(group, placed) == []
    assert Counter(placed.owner[:4]) == {0: 2, 1: 2}
    assert not placed.waiting


@pytest.mark.parametrize("kind", ["equal", "unequal", "rolling out"])
def test_a_stateless_task_that_is_bound_to_a_member_takes_a_slot_there(kind: str) -> None:
    table = tasks(6, 2, stateless=[1], weight=lambda sub, part: 1.0 if kind == "equal" or sub else 1.0 + part)
    members = (seat("a", max_tasks=3), seat("b", topology_epoch=1 if kind == "rolling out" else 0))
    if kind == "rolling out":
        table = tasks(6, 2, stateless=[1], epochs={0: 0, 1: 0})
        table = replace(table, topology_epoch=(0, 0, 0, 0, 0, 1, 0, 0))
    group = Group(table, members, bound={6: "a", 7: "a"})
    placed = group.place()
    assert [owner for owner in placed.owner if owner == 0] == [0, 0, 0]
    assert (placed.owner[6], placed.owner[7], placed.waiting) == (0, 0, {})
    assert group.settle(placed).place().moves == 0


def test_a_limit_that_was_lowered_sheds_tasks() -> None:
    before = Group(tasks(6), seats(2)).settle()
    lowered = replace(before, seats=(seat("m00", max_tasks=1), seat("m01", max_tasks=4)))
    placed = lowered.place()
    assert counts(lowered, placed) == {"m00": 1, "m01": 4}
    assert list(placed.waiting.values()) == [Waits.NO_CAPACITY]
    assert set(placed.why.values()) == {Moves.MAX_TASKS}


def test_of_standbys_beyond_a_lowered_limit_the_warmest_stay() -> None:
    before = Group(tasks(4), seats(3), home=("m00",) * 4, standbys=(frozenset({"m01"}),) * 4, replicas=1)
    warm = {task_index: {"m01": Warmth(Readiness.BEHIND, task_index)} for task_index in range(4)}
    bound = dict.fromkeys(range(4), "m00")
    group = replace(
        before, bound=bound, warm=warm, seats=(seat("m00"), seat("m01", max_tasks=1), seat("m02", max_tasks=2))
    )
    placed = group.place()
    held = [tuple(map(group.name, one)) for one in placed.standbys]
    assert held[0] == ("m01",)
    assert sorted(held[1:]) == [(), ("m02",), ("m02",)]


def test_a_copy_makes_room_where_only_another_task_can_use_the_free_slot() -> None:
    """The only free slot is on the owner of the task that lacks a copy."""
    group = Group(
        tasks(3),
        (seat("a", max_tasks=2), seat("b", max_tasks=2), seat("c", max_tasks=2)),
        home=("a", "b", "c"),
        standbys=(frozenset(), frozenset({"c"}), frozenset({"b"})),
        replicas=1,
    )
    placed = group.place()
    assert [len(held) for held in placed.standbys] == [1] * 3
    assert faults(group, placed) == []


def test_newer_tasks_go_only_to_members_that_know_them() -> None:
    table = tasks(8, 6, epochs={1: 2})
    old = Group(table, tuple(seat(name, topology_epoch=1) for name in "abc"))
    waiting = old.place()
    assert waiting.waiting == dict.fromkeys(range(8, 14), Waits.STALE_TOPOLOGY)
    group = old.settle(waiting).drain("c").leave("c").join(seat("d", topology_epoch=2))
    placed = group.place()
    assert {group.name(placed.owner[task_index]) for task_index in range(8, 14)} == {"d"}
    assert counts(group, placed) == {"a": 4, "b": 4, "d": 6}
    assert group.settle(placed).place().moves == 0


def test_older_tasks_give_way_to_newer_ones() -> None:
    table = tasks(6, 3, epochs={1: 2})
    before = Group(table, tuple(seat(name, topology_epoch=1) for name in "abc"))
    settled = before.settle()
    upgraded = replace(settled, seats=(*settled.seats[:2], seat("c", topology_epoch=2)))
    placed = upgraded.place()
    assert counts(upgraded, placed) == {"a": 3, "b": 3, "c": 3}
    assert {why for task_index, why in placed.why.items() if task_index < 6} == {Moves.TOPOLOGY}
    assert placed.lower_bound <= placed.moves == 5


def test_a_running_task_stays_with_a_member_that_does_not_know_its_topology_yet() -> None:
    table = tasks(4, epochs={0: 2})
    group = Group(table, (seat("a", topology_epoch=1), seat("b", topology_epoch=2)), home=("a", "a", "b", "b"))
    assert moved(group, group.place()) == {}


@pytest.mark.parametrize(
    ("capacities", "home", "wanted"),
    [
        ({"a": 1, "b": 2, "c": 3, "d": 2}, "abcc", {"a": 0, "b": 1, "c": 2, "d": 1}),
        ({"a": 3, "b": 0.5, "c": 3, "d": 2, "e": 3}, "abcda", {"a": 2, "b": 0, "c": 1, "d": 1, "e": 1}),
    ],
)
def test_members_that_know_no_task_leave_the_others_no_less_balanced(
    capacities: dict[str, float], home: str, wanted: dict[str, int]
) -> None:
    """With a quota of all members, which the older ones lower, each new one would be within floor and ceiling."""
    new = [seat(name, capacity, topology_epoch=2) for name, capacity in capacities.items()]
    group = Group(tasks(len(home), epochs={0: 2}), (*new, *(seat(name, 2, topology_epoch=1) for name in "xyz")))
    group = replace(group, home=tuple(home))
    placed = group.place()
    assert counts(group, placed) == {**dict.fromkeys("xyz", 0), **wanted}
    assert placed.moves == 1


@pytest.mark.parametrize(
    ("epochs", "home", "wanted"),
    [
        ("112", "aa", {"a": 1, "b": 0, "c": 1}),
        ("1112", "aaaaaaaaaa", {"a": 5, "b": 0, "c": 0, "d": 5}),
        ("1122", "aaaaaa", {"a": 2, "b": 0, "c": 2, "d": 2}),
        ("12", "aa", {"a": 1, "b": 1}),
    ],
)
def test_what_runs_on_a_member_of_an_older_topology_goes_only_up_and_never_waits(
    epochs: str, home: str, wanted: dict[str, int]
) -> None:
    """Up is to members that know the changed subtopology."""
    names = "abcd"[: len(epochs)]
    members = tuple(seat(name, topology_epoch=int(one)) for name, one in zip(names, epochs, strict=True))
    group = Group(tasks(len(home), epochs={0: 2}), members, home=tuple(home))
    placed = group.place()
    assert placed.waiting == {}
    assert counts(group, placed) == wanted
    assert group.settle(placed).place().moves == 0


def test_older_tasks_make_way_for_what_is_relieved() -> None:
    table = tasks(10, 2, epochs={0: 2})
    members = (*(seat(name, topology_epoch=1) for name in "abc"), seat("d", topology_epoch=2))
    group = Group(table, members, home=(*("a",) * 10, "d", "d"))
    placed = group.place()
    assert placed.waiting == {}
    assert counts(group, placed) == {"a": 5, "b": 1, "c": 1, "d": 5}
    pending = group.pending(placed)
    warming = {task_index: "d" for task_index in list(pending.previous)[-3:] if pending.previous[task_index] == "d"}
    assert replace(pending, warming=warming).place().owner == placed.owner


def test_what_has_no_owner_finds_a_seat_though_its_level_is_full_and_limits_hold() -> None:
    table = tasks(9, 3, epochs={0: 2, 1: 3})
    members = (seat("a", topology_epoch=1, max_tasks=6), seat("b", topology_epoch=2), seat("c", topology_epoch=3))
    group = Group(table, members, home=(*("a",) * 9, None, None, "a"))
    placed = group.place()
    assert placed.waiting == {}
    assert counts(group, placed)["a"] <= 6
    full = replace(group, seats=(members[0], *(replace(one, max_tasks=2) for one in members[1:])))
    beyond = full.place()
    assert counts(full, beyond) == {"a": 6, "b": 2, "c": 2}
    assert set(beyond.waiting.values()) == {Waits.NO_CAPACITY}


def test_every_level_of_topology_is_even_as_it_rolls_out() -> None:
    table = tasks(12, 12, epochs={1: 2})
    group = Group(table, tuple(seat(name, topology_epoch=1) for name in "abcd"), replicas=1).settle()
    for name in "abcd":
        members = tuple(replace(one, topology_epoch=2) if one.id == name else one for one in group.seats)
        group = replace(group, seats=members)
        placed = group.place()
        assert faults(group, placed) == []
        group = group.settle(placed)
        assert group.place().owner == placed.owner
    assert sorted(counts(group, group.place()).values()) == [6, 6, 6, 6]


def test_older_tasks_leave_the_part_that_is_fuller_even_for_the_last_one() -> None:
    """The members that know the new topology have more than their part of the tasks."""
    group = Group(
        tasks(1, 3, epochs={1: 2}),
        (seat("a", 3, topology_epoch=2), seat("b", 3, topology_epoch=2), seat("c", 1.5), seat("d", 3)),
        home=("b", "a", "a", "b"),
    )
    placed = group.place()
    assert counts(group, placed) == {"a": 2, "b": 1, "c": 0, "d": 1}
    assert placed.moves == placed.lower_bound == 1
    assert group.settle(placed).place().moves == 0
    assert replace(group, held=True).place().moves == 0


def test_newer_tasks_find_warmth_and_keep_their_targets_too() -> None:
    table = tasks(4, 4, epochs={1: 2})
    members = (seat("a", topology_epoch=1), seat("b", topology_epoch=2), seat("c", topology_epoch=2))
    group = Group(
        table,
        members,
        warm={5: {"b": Warmth(Readiness.CAUGHT_UP, 3)}, 7: {"b": Warmth(Readiness.UNKNOWN, 0)}},
        previous={6: "b"},
        warming={4: "c"},
    )
    placed = group.place()
    names = [group.name(owner) for owner in placed.owner]
    assert names[4:7] == ["c", "b", "b"] or names[4:6] == ["c", "b"]
    assert names[7] == "c"
    assert group.pending(placed).place().owner == placed.owner


def test_slots_are_kept_for_tasks_that_fewer_members_may_take() -> None:
    table = tasks(3, 3, epochs={1: 2})
    group = Group(table, (seat("a", topology_epoch=1, max_tasks=3), seat("b", topology_epoch=2, max_tasks=2)))
    placed = group.place()
    assert sorted(placed.waiting.values()) == [Waits.NO_CAPACITY]
    assert {group.name(placed.owner[task_index]) for task_index in range(3)} == {"a"}


def test_earlier_targets_are_kept_only_where_seats_still_take_them() -> None:
    table = tasks(4, 4, weight=lambda one, partition: 1.0 + one + partition % 2, epochs={1: 2})
    members = (seat("a", topology_epoch=1, max_tasks=5), seat("b", topology_epoch=2, max_tasks=5))
    for previous in ({0: "b", 5: "a"}, dict.fromkeys(range(8), "b"), {0: "a"}):
        group = Group(table, members, previous=previous)
        placed = group.place()
        assert faults(group, placed) == []
        assert {group.name(placed.owner[task_index]) for task_index in range(4, 8)} == {"b"}
    nobody_knows = Group(table, members[:1], previous={0: "a", 1: "a"})
    assert set(nobody_knows.place().waiting.values()) == {Waits.STALE_TOPOLOGY}


def test_one_member_that_knows_the_newest_topology_keeps_what_only_it_can_run() -> None:
    table = tasks(6, 4, weight=lambda one, partition: 1.0 + one + partition % 2, epochs={1: 2})
    before = Group(table, (seat("a", topology_epoch=2), seat("b", topology_epoch=1)), home=("a",) * 10)
    placed = before.place()
    assert {before.name(placed.owner[task_index]) for task_index in range(6, 10)} == {"a"}
    assert "b" in {before.name(placed.owner[task_index]) for task_index in range(6)}


def test_limits_hold_for_unequal_weights_during_a_rollout() -> None:
    table = tasks(4, 4, weight=lambda one, partition: 1.0 + one + partition % 2, epochs={1: 2})
    group = Group(table, (seat("a", topology_epoch=2, max_tasks=3), seat("b")), home=("a",) * 8)
    placed = group.place()
    assert faults(group, placed) == []
    assert counts(group, placed) == {"a": 3, "b": 4}
    assert list(placed.waiting.values()) == [Waits.NO_CAPACITY]


@pytest.mark.parametrize("unequal", [0, 1])
def test_older_tasks_make_room_for_newer_ones_that_have_no_member(unequal: int) -> None:
    table = tasks(4, 4, weight=lambda one, partition: 1.0 + (one + partition % 2) * unequal, epochs={1: 2})
    members = (seat("a", topology_epoch=2, max_tasks=3), seat("b"))
    group = Group(table, members, home=("a",) * 3 + ("b", None, None, None, None))
    placed = group.place()
    assert faults(group, placed) == []
    assert counts(group, placed) == {"a": 3, "b": 4}
    assert list(placed.waiting.values()) == [Waits.NO_CAPACITY]


def test_an_older_task_of_unequal_weight_makes_room_for_what_only_one_member_may_have() -> None:
    table = tasks(1, 1, weight=lambda one, _: 1.0 + one, epochs={1: 2})
    warm = {0: {"a": Warmth(Readiness.CAUGHT_UP, 0)}}
    group = Group(table, (seat("a", topology_epoch=2, max_tasks=1), seat("b")), warm=warm)
    placed = group.place()
    assert [group.name(owner) for owner in placed.owner] == ["b", "a"]
    assert placed.waiting == {}


def test_in_a_pause_a_rollout_moves_nothing_that_runs() -> None:
    table = tasks(6, 3, epochs={1: 2})
    before = Group(table, tuple(seat(name, topology_epoch=1) for name in "abc")).settle()
    upgraded = replace(before, seats=(*before.seats[:2], seat("c", topology_epoch=2)), held=True)
    placed = upgraded.place()
    assert all(home is None for home, _ in moved(upgraded, placed).values())
    assert counts(upgraded, placed) == {"a": 2, "b": 2, "c": 5}


def test_newer_tasks_of_unequal_weight_are_relieved_one_by_one() -> None:
    table = tasks(9, 6, weight=lambda one, partition: 1.0 + (one + partition) % 3, epochs={1: 2})
    before = Group(table, tuple(seat(name, topology_epoch=1) for name in "ab")).settle()
    group = before.join(seat("c", topology_epoch=2), seat("d", topology_epoch=2))
    placed = group.place()
    assert faults(group, placed) == []
    assert {group.name(placed.owner[task_index]) for task_index in range(9, 15)} <= {"c", "d"}
    assert group.settle(placed).place().moves == 0
    assert replace(group, held=True).place().moves == 6


def test_a_task_waits_that_only_full_members_may_have_although_others_have_room() -> None:
    """An operator pins a task to a full member during a pause; only one other member knows its topology."""
    new = (seat("a", max_tasks=3, topology_epoch=1), seat("b", max_tasks=3, topology_epoch=1))
    group = Group(tasks(7, epochs={0: 1}), (*new, seat("c")), home=(*"ababab", None), bound={6: "b"}, held=True)
    placed = group.place()
    assert faults(group, placed) == []
    assert (group.name(placed.owner[6]), [*placed.waiting.values()]) == ("b", [Waits.NO_CAPACITY])
