"""Where standbys go: apart by tags, level, few new copies, one owner's spread; after KIP-708 and Kafka's own cases."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from tests.placement.placing import (
    Group,
    copy_counts,
    counts,
    faults,
    moved,
    seat,
    seats,
    shares,
    standby_counts,
    tasks,
    together,
    unlevel_standbys,
    zoned,
)

from batonpass.placement import standbys
from batonpass.placement.types import PlacementMember, Readiness, Warmth

CAUGHT_UP = Warmth(Readiness.CAUGHT_UP, 0)


def changed_world(seed: int, kind: str) -> Group:
    """Return a group of two to eight members, placed and changed, in which tags, limits or epochs bar some places."""
    random = Random(seed)
    sizes = [random.randint(1, 12) for _ in range(random.randint(1, 3))]
    table = tasks(*sizes, epochs={len(sizes) - 1: 1} if "epochs" in kind else {})

    def member(name: str) -> PlacementMember:
        return seat(
            name,
            random.choice((1.0, 1.0, 2.0, 3.0, 0.5)),
            tags={"zone": random.choice("abc"), "rack": random.choice("xy")},
            topology_epoch=random.randint(0, 1) if "epochs" in kind else 0,
            max_tasks=random.choice((None, 3, 8, 20)) if "limits" in kind else None,
        )

    members = tuple(member(f"m{index}") for index in range(random.randint(2, 7)))
    tags = random.choice((("zone",), ("zone", "rack"))) if "tags" in kind else ()
    group = Group(table, members, replicas=random.randint(1, 2), tags=tags).settle()
    leaver = random.choice(members).id
    return random.choice((group.join(member("n")), group.leave(leaver), group.drain(leaver)))


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ["", "tags", "limits", "epochs", "tags, limits", "limits, epochs"])
def test_hardly_any_standby_would_be_better_on_another_member(kind: str) -> None:
    """In 3 of 100 groups that are barred from some places, members that can hold only each other's copies keep one."""
    groups = [changed_world(seed, kind) for seed in range(60)]
    assert sum(bool(unlevel_standbys(group, group.place())) for group in groups) <= (2 if kind else 0)


def new_copies(before: Group, after: Group) -> int:
    """Return how many standbys are where there was no copy of the task."""
    return sum(
        len(held - had - {home}) for held, had, home in zip(after.standbys, before.standbys, before.home, strict=True)
    )


def test_every_task_gets_its_copies_and_seats_hold_as_many_as_each_other() -> None:
    group = Group(tasks(30), seats(5), replicas=2)
    placed = group.place()
    assert faults(group, placed) == []
    assert set(standby_counts(group, placed).values()) == {12}


@pytest.mark.parametrize("tags", [(), ("zone",)], ids=["no tags", "zones"])
@pytest.mark.parametrize(("size", "zones", "copies"), [(2, "abc", [1, 1, 2]), (10, "abab", [5, 5, 5, 5])])
def test_standbys_level_what_the_actives_leave(size: int, zones: str, copies: list[int], tags: tuple[str, ...]) -> None:
    members = zoned(*zones)
    home = tuple(members[index % 2 if size == 2 else index % 4].id for index in range(size))
    held = tuple(frozenset({members[index % 2 ^ 1].id}) for index in range(size))
    group = Group(tasks(size), members, home=home, standbys=held, replicas=1, tags=tags)
    placed = group.place()
    assert sorted(copy_counts(group, placed).values()) == copies
    assert group.settle(placed).place().standbys == placed.standbys


def test_one_owners_standbys_are_spread_over_many_members() -> None:
    """When a member is lost, its load goes to all others alike."""
    group = Group(tasks(90), seats(10), replicas=1)
    placed = group.place()
    assert max(shares(placed, range(90)).values()) == 1


def test_stateless_tasks_have_no_standbys() -> None:
    group = Group(tasks(2, 2, stateless=[1]), seats(2), replicas=1, standbys=(frozenset(),) * 3 + (frozenset({"m00"}),))
    placed = group.place()
    assert [len(held) for held in placed.standbys] == [1, 1, 0, 0]


def test_too_few_members_leave_tasks_short() -> None:
    """Kafka's case: three members, three standbys."""
    group = Group(tasks(6), seats(3), replicas=3)
    placed = group.place()
    assert [len(held) for held in placed.standbys] == [2] * 6
    assert group.settle(placed).place().standbys == placed.standbys
    assert Group(tasks(2), seats(1), replicas=1).place().standbys == [(), ()]


def test_without_standbys_wanted_there_are_none() -> None:
    group = replace(Group(tasks(4), seats(3), replicas=1).settle(), replicas=0)
    assert group.place().standbys == [()] * 4


def test_of_too_many_copies_the_warmest_stay() -> None:
    group = replace(Group(tasks(6), seats(4), replicas=3).settle(), replicas=1)
    warm = {task_index: {sorted(held)[task_index % 3]: CAUGHT_UP} for task_index, held in enumerate(group.standbys)}
    chosen = replace(group, warm=warm)
    placed = chosen.place()
    kept = [group.name(held[0]) for held in placed.standbys]
    assert sum(name in warm[task_index] for task_index, name in enumerate(kept)) >= 5
    assert new_copies(chosen, chosen.settle(placed)) == 0


@pytest.mark.parametrize(("replicas", "kept"), [(0, ()), (1, (2,)), (2, (1, 2))])
def test_where_all_drain_no_more_copies_stay_than_are_wanted(replicas: int, kept: tuple[int, ...]) -> None:
    warm = {0: {"m01": Warmth(Readiness.BEHIND, 900), "m02": CAUGHT_UP}}
    draining = tuple(replace(one, may_be_target=False) for one in seats(3))
    held = (frozenset({"m01", "m02"}),)
    placed = Group(tasks(1), draining, ("m00",), held, replicas, warm=warm).place()
    assert (placed.owner, placed.standbys) == ([0], [kept])


def test_a_join_makes_new_copies_only_on_the_joiner() -> None:
    before = Group(tasks(40), seats(4), replicas=2).settle()
    group = before.join(seat("zz"))
    after = group.settle()
    new = Counter(name for held, had in zip(after.standbys, before.standbys, strict=True) for name in held - had)
    old_owners = {task_index: home for task_index, (home, _) in moved(group, group.place()).items()}
    assert set(new) - set(old_owners.values()) <= {"zz"}
    assert standby_counts(after, after.place()) == dict.fromkeys(["m00", "m01", "m02", "m03", "zz"], 16)


def test_a_leave_makes_new_copies_only_of_what_was_lost() -> None:
    before = Group(tasks(40), seats(5), replicas=1).settle()
    promoted = {
        task_index: {next(iter(held)): CAUGHT_UP}
        for task_index, held in enumerate(before.standbys)
        if before.home[task_index] == "m02"
    }
    group = replace(before.leave("m02"), warm=promoted)
    lost = sum("m02" in held for held in before.standbys) + len(promoted)
    placed = group.place()
    assert new_copies(before, group.settle(placed)) <= lost + 1
    assert max(standby_counts(group, placed).values()) - min(standby_counts(group, placed).values()) <= 1


def test_an_old_owner_becomes_the_standby_of_a_task_that_moves_to_its_standby() -> None:
    group = Group(
        tasks(4),
        seats(2),
        home=("m00", "m00", "m00", "m00"),
        standbys=(frozenset({"m01"}),) * 4,
        replicas=1,
        warm={task_index: {"m01": CAUGHT_UP} for task_index in range(4)},
    )
    placed = group.place()
    assert placed.moves == 2
    assert new_copies(group, group.settle(placed)) == 0


@pytest.mark.parametrize("small", [standbys._SMALL, 0])
def test_a_missing_copy_goes_where_there_is_state_of_it(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standbys, "_SMALL", small)
    before = Group(tasks(8), seats(4), replicas=1).settle()
    task_index = next(task_index for task_index, held in enumerate(before.standbys) if held == {"m03"})
    owner = before.home[task_index]
    for name in {"m00", "m01", "m02"} - {owner}:
        group = replace(before.leave("m03"), warm={task_index: {name: Warmth(Readiness.ON_DISK, 7)}})
        assert group.settle().standbys[task_index] == {name}


def test_copies_move_for_balance_to_where_they_are_warm() -> None:
    before = Group(tasks(20), seats(4), replicas=1).settle()
    here = [task_index for task_index, home in enumerate(before.home) if home != "m00"][:3]
    group = replace(
        before.join(seat("zz")), warm={task_index: {"zz": Warmth(Readiness.ON_DISK, 1)} for task_index in here}
    )
    after = group.settle()
    assert all("zz" in after.standbys[task_index] or after.home[task_index] == "zz" for task_index in here)


def test_a_joiner_with_state_of_everything_takes_nothing_cold() -> None:
    before = Group(tasks(20), seats(4), replicas=1).settle()
    group = replace(
        before.join(seat("zz")),
        warm={task_index: {"zz": Warmth(Readiness.ON_DISK, task_index)} for task_index in range(20)},
    )
    placed = group.place()
    assert standby_counts(group, placed) == dict.fromkeys(["m00", "m01", "m02", "m03", "zz"], 4)


def test_several_joiners_share_the_copies() -> None:
    group = Group(tasks(48), seats(3), replicas=1).settle().join(*[seat(f"x{index}") for index in range(5)])
    placed = group.place()
    assert set(standby_counts(group, placed).values()) == {6}
    assert faults(group, placed) == []


def test_a_full_member_is_passed_over_where_copies_are_levelled() -> None:
    members = zoned(*"aaaabb")
    limited = (*members[:4], replace(members[4], max_tasks=4), members[5])
    group = Group(tasks(12), limited, replicas=1, tags=("zone",))
    placed = group.place()
    assert faults(group, placed) == []
    assert group.settle(placed).place().standbys == placed.standbys


def test_a_missing_members_copies_stay_and_it_gets_no_others() -> None:
    before = Group(tasks(12), seats(4), replicas=1).settle()
    missing = tuple(
        replace(one, may_be_target=False, keeps_copies=True) if one.id == "m01" else one for one in before.seats
    )
    kept = {index: "m01" for index, home in enumerate(before.home) if home == "m01"}
    group = replace(before, seats=missing, bound=kept)
    assert group.place().standbys == before.place().standbys
    joined = group.join(seat("m04"))
    standbys = joined.settle().standbys
    there = [index for index, held in enumerate(before.standbys) if "m01" in held]
    assert [index for index, held in enumerate(standbys) if "m01" in held] == there
    assert [len(held) for held in standbys] == [1] * 12
    assert [len(held) for held in joined.place().standbys] == [1] * 12


def test_a_missing_member_that_may_get_others_has_each_copy_once() -> None:
    before = Group(tasks(12), seats(3), replicas=1).settle()
    kept = tuple(replace(one, keeps_copies=True) for one in before.seats)
    standbys = replace(before, seats=kept, replicas=2).settle().standbys
    assert [len({*held}) for held in standbys] == [len(held) for held in standbys] == [2] * 12


def test_if_fewer_copies_are_wanted_those_of_a_missing_member_go_first() -> None:
    before = Group(tasks(6), seats(3), replicas=2).settle()
    missing = tuple(
        replace(one, may_be_target=False, keeps_copies=True) if one.id == "m01" else one for one in before.seats
    )
    kept = {index: "m01" for index, home in enumerate(before.home) if home == "m01"}
    standbys = replace(before, seats=missing, bound=kept, replicas=1).settle().standbys
    assert not any("m01" in held for held in standbys)
    assert [len(held) for held in standbys] == [1] * 6


def test_a_draining_members_copies_are_replaced() -> None:
    before = Group(tasks(12), seats(4), replicas=1).settle()
    group = before.drain("m01")
    placed = group.place()
    assert faults(group, placed) == []
    assert standby_counts(group, placed) == {"m00": 4, "m02": 4, "m03": 4}


def test_standbys_keep_away_from_what_is_bound_to_a_draining_member() -> None:
    before = Group(tasks(4), seats(3), replicas=2).settle()
    group = replace(before, bound={0: "m00"}).drain("m00")
    placed = group.place()
    assert len(placed.standbys[0]) == 2
    assert faults(group, placed) == []


def test_a_waiting_task_has_no_standbys() -> None:
    group = Group(
        tasks(2, 1, epochs={1: 2}),
        (seat("a"), seat("b")),
        home=("a", "b", None),
        standbys=(frozenset({"b"}), frozenset({"a"}), frozenset({"a"})),
        replicas=1,
    )
    placed = group.place()
    assert placed.standbys == [(1,), (0,), ()]


def test_a_first_placement_gives_standbys_to_what_is_bound_to_a_draining_member() -> None:
    members = (*seats(3), replace(seat("x"), may_be_target=False))
    group = Group(tasks(7), members, replicas=1, bound={3: "x"})
    placed = group.place()
    assert faults(group, placed) == []
    assert [len(held) for held in placed.standbys] == [1] * 7


def test_a_large_group_replaces_what_a_leaver_held() -> None:
    """Forty members are more than are looked at one by one."""
    for members in (seats(40), zoned(*"ab" * 20)):
        before = Group(tasks(200), members, replicas=2, tags=("zone",)).settle()
        group = before.leave("m07")
        placed = group.place()
        assert faults(group, placed) == []
        held = copy_counts(group, placed).values()
        assert max(held) - min(held) <= 1
        settled = group.settle(placed)
        assert new_copies(before, settled) <= sum("m07" in held for held in before.standbys) + 5


def test_copies_are_levelled_in_bulk_where_many_have_to_go() -> None:
    """The joiner takes a third of the copies; those of its own tasks stay with the two others."""
    before = Group(tasks(1600), seats(2), replicas=1).settle()
    group = before.join(seat("zz"))
    placed = group.place()
    assert faults(group, placed) == []
    held = standby_counts(group, placed).values()
    assert max(held) - min(held) <= 1
    assert group.settle(placed).place().standbys == placed.standbys
    # A joiner that runs most tasks can hold no copies of these, however many the others hold.
    large = before.join(seat("zz", 4))
    placed = large.place()
    assert faults(large, placed) == []
    assert large.settle(placed).place().standbys == placed.standbys


def test_three_zones_and_three_clusters_keep_all_copies_apart() -> None:
    """Kafka's case: nine members, six tasks on one zone, two standbys."""
    cells = list(product("abc", "xyz"))
    members = zoned(*[zone for zone, _ in cells], clusters=tuple(cluster for _, cluster in cells))
    home = ("m00", "m01", "m02") * 2
    bound = dict(enumerate(home))
    group = Group(tasks(6), members, home=home, replicas=2, tags=("zone", "cluster"), bound=bound)
    placed = group.place()
    assert (together(group, placed, "zone"), together(group, placed, "cluster")) == (0, 0)
    held = standby_counts(group, placed)
    assert [held[f"m{index:02}"] for index in range(9)] == [0, 0, 0, 2, 2, 2, 2, 2, 2]


def test_a_key_whose_values_are_used_up_no_longer_constrains() -> None:
    """Kafka's case of partial awareness."""
    cells = list(product("xy", "abc"))
    members = zoned(*[zone for _, zone in cells], clusters=tuple(cluster for cluster, _ in cells))
    group = Group(tasks(2), members, home=("m00", "m03"), replicas=2, tags=("cluster", "zone"))
    placed = group.place()
    assert together(group, placed, "zone") == 0
    assert together(group, placed, "cluster") == 2
    assert group.settle(placed).place().standbys == placed.standbys


def test_six_members_of_three_zones_hold_one_copy_each_of_another_zone() -> None:
    """Kafka's case of exhausted capacity."""
    group = Group(tasks(6), zoned(*"aabbcc"), replicas=1, tags=("zone",))
    placed = group.place()
    assert set(standby_counts(group, placed).values()) == {1}
    assert together(group, placed, "zone") == 0


def test_tags_that_are_not_listed_do_not_count() -> None:
    group = Group(tasks(6), zoned("a", "a", "b", "b"), replicas=1, tags=("cluster",))
    assert max(standby_counts(group, group.place()).values()) == 2


def test_the_same_value_under_two_keys_is_not_the_same() -> None:
    members = zoned("1", "2", "1", "2", clusters=("2", "1", "2", "1"))
    group = Group(tasks(4), members, replicas=1, tags=("zone", "cluster"))
    placed = group.place()
    assert (together(group, placed, "zone"), together(group, placed, "cluster")) == (0, 0)


def test_where_all_share_one_value_the_lowest_members_take_the_copies() -> None:
    group = Group(tasks(4), zoned(*"aaaa"), replicas=1, tags=("zone",))
    assert set(standby_counts(group, group.place()).values()) == {1}


def test_the_first_key_goes_before_the_second() -> None:
    members = zoned("a", "b", "a", clusters=("x", "x", "y"))
    for tags, expected in ((("zone", "cluster"), "m01"), (("cluster", "zone"), "m02")):
        group = Group(tasks(1), members, home=("m00",), replicas=1, tags=tags, bound={0: "m00"})
        assert group.settle().standbys[0] == {expected}


def test_copies_that_tags_want_further_apart_are_replaced() -> None:
    before = replace(Group(tasks(12), zoned(*"aabbcc"), replicas=2).settle(), tags=("zone",))
    placed = before.place()
    assert together(before, placed, "zone") == 0
    assert before.settle(placed).place().standbys == placed.standbys


def test_a_zone_with_most_members_leaves_the_others_with_more_copies() -> None:
    group = Group(tasks(12), zoned(*"aaaabb"), replicas=1, tags=("zone",))
    placed = group.place()
    held = standby_counts(group, placed)
    assert [held[f"m{index:02}"] for index in range(6)] == [1, 1, 1, 1, 4, 4]
    assert group.settle(placed).place().standbys == placed.standbys


def test_capacities_divide_standbys_too() -> None:
    members = (seat("a", 1), seat("b", 2), seat("c", 3), seat("d", 2))
    group = Group(tasks(24), members, replicas=1)
    held = standby_counts(group, group.place())
    levels = [held[one.id] / one.capacity for one in members]
    assert max(levels) - min(levels) <= 1


def test_one_large_member_leaves_its_standbys_to_the_small_ones() -> None:
    group = Group(tasks(12), (seat("big", 10), seat("s1"), seat("s2")), replicas=1)
    placed = group.place()
    assert counts(group, placed)["big"] == 10
    held = standby_counts(group, placed)
    assert held["s1"] + held["s2"] >= 10
    assert abs(held["s1"] - held["s2"]) <= 1


def test_a_copy_is_passed_on_over_a_third_member_to_level_two_others() -> None:
    group = Group(
        tasks(6),
        seats(3),
        home=("m00", "m01", "m01", "m02", "m02", "m00"),
        standbys=tuple(frozenset({name}) for name in ("m01", "m02", "m02", "m01", "m01", "m01")),
        replicas=1,
    )
    placed = group.place()
    assert set(standby_counts(group, placed).values()) == {2}
    assert faults(group, placed) == []


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_standbys_rest_through_every_change(replicas: int) -> None:
    group = Group(tasks(20, 10), zoned(*"abcabc"), replicas=replicas, tags=("zone",)).settle()
    changes: list[Callable[[Group], Group]] = [
        lambda one: one.join(seat("x", tags={"zone": "a"})),
        lambda one: one.leave("m01"),
        lambda one: one.drain("m03"),
        lambda one: one.leave("m03").join(seat("a1", tags={"zone": "b"})),
        lambda one: one.drain("m00").join(seat("n7", 2, tags={"zone": "c"})),
    ]
    for change in changes:
        group = change(group)
        placed = group.place()
        assert faults(group, placed) == []
        group = group.settle(placed)
        again = group.place()
        assert (again.owner, again.standbys) == (placed.owner, placed.standbys)


def test_a_second_copy_on_the_owner_goes_where_the_task_is_bound_to_one_that_drains() -> None:
    """Only one other member is there, so that tags have nothing to compare."""
    group = Group(
        tasks(1),
        (seat("a", may_be_target=False), seat("b")),
        home=("a",),
        standbys=(frozenset({"a"}),),
        bound={0: "a"},
        replicas=1,
    )
    placed = group.place()
    assert (placed.owner, placed.standbys) == ([0], [(1,)])
