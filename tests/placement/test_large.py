"""Large groups, in which the network does not weigh each pair of owner and member; and what is rare in any group."""

from collections import Counter
from itertools import cycle
from random import Random

import pytest
from tests.placement.placing import Group, faults, seats, tasks, together, zoned

from batonpass.placement import exchange, quotas, standbys
from batonpass.placement.place import place
from batonpass.placement.types import UNASSIGNED, Placed, PlacementMember, PlacementRequest, Readiness, Warmth

MEMBERS = 80
TASKS = 400


def check(placed: Placed, members: int) -> None:
    """Hold a placement to: everything placed apart, actives and standbys as even as can be, owners' copies spread."""
    assert not placed.waiting
    assert all(len({owner, *held}) == 2 for owner, held in zip(placed.owner, placed.standbys, strict=True))
    standbys_of = [one for held in placed.standbys for one in held]
    for counts in (Counter(placed.owner), Counter([*placed.owner, *standbys_of])):
        assert max(counts.values()) - min(counts.values()) <= 1
        assert len(counts) == members


def test_a_first_placement_spreads_the_standbys_of_every_owner() -> None:
    placed = Group(tasks(TASKS), seats(MEMBERS), replicas=1).place()
    check(placed, MEMBERS)
    pairs = Counter((owner, held[0]) for owner, held in zip(placed.owner, placed.standbys, strict=True))
    assert max(pairs.values()) <= 2


@pytest.mark.parametrize(("of_each", "most"), [(40, 1), (60, 2)])
def test_an_owners_standbys_are_spread_over_all_racks_but_its_own(of_each: int, most: int) -> None:
    """Forty copies may go to 44 members in two racks of 22: none gets two of them."""
    group = Group(tasks(66 * of_each), zoned(*"abc" * 22), replicas=1, tags=("zone",))
    placed = group.place()
    check(placed, 66)
    assert together(group, placed, "zone") == 0
    assert max(Counter(zip(placed.owner, [held[0] for held in placed.standbys], strict=True)).values()) == most


def test_what_is_placed_stays_and_a_join_moves_to_the_joiner_only() -> None:
    group = Group(tasks(TASKS), seats(MEMBERS), replicas=1).settle()
    again = group.place()
    assert again.moves == 0
    joined = Group(group.table, seats(MEMBERS + 1), group.home, group.standbys, replicas=1)
    placed = joined.place()
    check(placed, MEMBERS + 1)
    homes = joined.request().home
    assert {owner for owner, home in zip(placed.owner, homes, strict=True) if owner != home} == {MEMBERS}
    assert placed.moves == placed.lower_bound


def test_a_member_that_leaves_has_its_copies_replaced_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``_SMALL`` at 0 the group is too large for copies to be passed on over third members."""
    monkeypatch.setattr(standbys, "_SMALL", 0)
    group = Group(tasks(TASKS), seats(MEMBERS), replicas=1).settle()
    left = Group(group.table, group.seats[1:], group.home, group.standbys, replicas=1)
    placed = left.place()
    check(placed, MEMBERS - 1)
    assert placed.moves == placed.lower_bound == Counter(group.home)[group.seats[0].id]


def test_a_question_that_says_nothing_of_warmth_is_answered() -> None:
    table = tasks(4)
    members = [PlacementMember(one.id) for one in seats(2)]
    placed = place(PlacementRequest(table=table, members=members, home=[UNASSIGNED] * 4, standbys=[()] * 4))
    assert sorted(placed.owner) == [0, 0, 1, 1]


def test_loads_that_all_end_at_a_bound_leave_nothing_to_divide() -> None:
    water = quotas.pour([0, 0], [1, 1], [0, 0], [3, 1], 10)
    assert (water.settled, water.rest, water.width) == ({0: 3, 1: 1}, 6, 0)


@pytest.mark.parametrize("most", [9, 3])
def test_what_is_left_goes_where_it_leaves_the_load_lowest(most: int) -> None:
    assert quotas.level_quotas([0, 0], [1.0, 2.0], [0, 0], [9, most], 4).floors == [1, 3]


def test_where_everything_is_bound_nothing_flows() -> None:
    """A rollout under way: an operator has bound everything to the one member that knows the new topology."""
    old, new = seats(1)[0], PlacementMember(seats(2)[1].id, topology_epoch=1)
    bound = dict.fromkeys(range(4), new.id)
    group = Group(tasks(2, 2, epochs={1: 1}), (old, new), home=(new.id,) * 4, bound=bound)
    assert group.place().owner == [1, 1, 1, 1]


def test_what_is_too_much_for_a_limit_waits_and_what_has_room_stays() -> None:
    old, new = seats(1)[0], PlacementMember(seats(2)[1].id, topology_epoch=1, max_tasks=3)
    limited = PlacementMember(old.id, max_tasks=1)
    group = Group(tasks(3, 2, epochs={1: 1}), (limited, new), home=(old.id,) * 3 + (new.id,) * 2)
    placed = group.place()
    assert Counter(placed.owner) == {0: 1, 1: 3, UNASSIGNED: 1}
    assert placed.owner[3:] == [1, 1]
    assert len(placed.waiting) == 1


@pytest.mark.parametrize("seed", range(10))
def test_copies_that_are_not_passed_on_are_placed_apart_all_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standbys, "_SMALL", 0)
    random, members = Random(seed), seats(5)
    names = [one.id for one in members]
    homes = [random.choice(names) for _ in range(20)]
    held = [frozenset({random.choice([name for name in names if name != home])}) for home in homes]
    placed = Group(tasks(20), members, tuple(homes), tuple(held), replicas=1).place()
    assert all(len({owner, *held}) == 2 for owner, held in zip(placed.owner, placed.standbys, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_copies_are_apart_where_members_that_are_alike_share_an_arc(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in groups too large for an arc from every copy to every member."""
    for module, bound in ((standbys, "_SMALL"), (standbys, "_SINGLE"), (exchange, "_EXACT")):
        monkeypatch.setattr(module, bound, 0)
    random, members = Random(seed), seats(6)
    names: list[str] = [one.id for one in members]
    warm = {
        task_index: {name: Warmth(Readiness.ON_DISK, random.randrange(100)) for name in random.sample(names, 2)}
        for task_index in range(15)
    }
    placed = Group(tasks(24), members, replicas=2, warm=warm).place()
    assert all(len({owner, *held}) == 1 + len(held) for owner, held in zip(placed.owner, placed.standbys, strict=True))
    cold = [task_index for task_index, held in warm.items() if names[placed.owner[task_index]] not in held]
    assert not cold


def test_a_member_above_its_limit_gives_a_copy_of_a_task_that_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third zone is full, so that both tasks get the copies in the first one again that stand too close."""
    monkeypatch.setattr(standbys, "_SMALL", 0)
    members = tuple(
        PlacementMember(one.id, tags={"zone": zone}, max_tasks=limit)
        for one, zone, limit in zip(seats(4), "xyxz", (None, 1, None, 0), strict=True)
    )
    names = [one.id for one in members]
    held, bound = (frozenset(names[1:3]),) * 2, dict.fromkeys(range(2), names[0])
    group = Group(tasks(2), members, (names[0],) * 2, held, replicas=2, tags=("zone",), bound=bound)
    placed = group.place()
    assert faults(group, placed) == []
    assert sorted(placed.standbys) == [(1, 2), (2,)]


def test_exchanges_that_take_each_other_back_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    places = cycle([(1,), (2,)])

    def improve(self: standbys._Standbys) -> None:
        self.copies = [next(places)]

    monkeypatch.setattr(standbys._Standbys, "improve", improve)
    placed = Group(tasks(1), seats(3), replicas=1).place()
    assert (placed.standbys, placed.owner) == ([(1,)], [0])
