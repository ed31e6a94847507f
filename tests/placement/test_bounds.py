"""The numbers that placement is given: each test fails if its number is any other, and says what is different then."""

from collections import deque
from random import Random

import numpy as np
import pytest
from tests.placement.placing import Group, moved, seat, seats, tasks

from batonpass.placement import amounts, exchange, flow, standbys
from batonpass.placement.flow import Ints, PlacementError, minimum_flow
from batonpass.placement.place import place
from batonpass.placement.quotas import level_quotas
from batonpass.placement.tags import Tags
from batonpass.placement.types import UNASSIGNED, PlacementMember, Readiness, Warmth

UNKNOWN = Warmth(Readiness.UNKNOWN, 0)


class Stopped(Exception):
    """The largest network that is looked at."""


def most_arcs(group: Group) -> int:
    """Return the number of arcs of the largest network of a placement."""
    sizes = [0]

    def counting(tails: Ints, heads: Ints, capacity: Ints, cost: Ints, supply: Ints) -> Ints:
        sizes.append(len(tails))
        return minimum_flow(tails, heads, capacity, cost, supply)

    place(group.request(), counting)
    return max(sizes)


def a_way(arcs: int) -> int:
    """Send a unit along so many arcs of the largest cost there is; return what arrives."""
    begin, supply = np.arange(arcs), np.zeros(arcs + 1, np.int64)
    supply[[0, -1]] = 1, -1
    cost = np.full(arcs, flow._LARGEST // (arcs + 2))
    return int(minimum_flow(begin, begin + 1, np.ones(arcs, np.int64), cost, supply)[-1])


def test_the_solver_bears_a_way_of_sixteen_arcs_of_the_largest_cost_and_not_of_twice_as_many() -> None:
    assert a_way(16) == 1
    with pytest.raises(PlacementError, match="BAD_COST_RANGE"):
        a_way(32)


def test_loads_are_equal_that_agree_to_eight_places() -> None:
    """Capacities that are sums of decimals differ in the seventeenth; weights that people write, far earlier."""
    for difference, is_open in ((4e-9, True), (2e-8, False), (0.1 + 0.2 - 0.3, True)):
        found = level_quotas([0, 0], [1.0, 1.0 + difference], [0, 0], [9, 9], 1)
        assert any(found.fractional) is is_open


def test_exchanges_make_up_for_a_thousandth_of_the_average_load() -> None:
    for difference, moves in ((0.99, 0), (1.01, 2)):
        weights = (500 + 1.5 * difference, 500.0, 500 + 0.5 * difference, 500 - 1.5 * difference)
        table = tasks(4, weight=lambda _one, partition, weights=weights: weights[partition])  # type: ignore[misc]
        assert Group(table, (seat("a"), seat("b")), home=("a", "a", "b", "b")).place().moves == moves


@pytest.mark.parametrize("compared", [1, 100])
def test_how_many_exchanges_are_compared_at_once_decides_on_memory_alone(
    compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(tasks(60, weight=lambda _one, partition: 1.0 + partition % 7 / 3), seats(6)).settle().join(seat("z"))
    owners = group.place().owner
    monkeypatch.setattr(amounts, "_COMPARED", compared)
    assert group.place().owner == owners


@pytest.mark.parametrize("members", [2, 10, 2_001])
def test_two_thousand_members_are_tried_for_a_move_of_one_or_one_for_two_thousand(
    members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In proportion, because a try costs a look at each member."""
    tried = []
    monkeypatch.setattr(amounts.Amounts, "_try", lambda *_: tried.append(1))
    monkeypatch.setattr(amounts.Amounts, "fewest_moves", lambda _: -1)
    monkeypatch.setattr(amounts.Amounts, "_trials", lambda _: iter([(None, None)] * 10_000))
    some = np.ones((members, 1), np.int64)
    room = amounts.Room(np.zeros(members), np.ones(members), some[:, 0] * 0)
    amounts.Amounts([1.0], some > 0, room, some, np.zeros(1, np.int64)).spare()
    assert len(tried) == 2_000 // members


def test_the_fewest_moves_of_a_large_join_are_found_with_that_many_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    table = tasks(500, weight=lambda _one, partition: 1.0 + partition % 17 / 7)
    group = Group(table, seats(10)).settle().join(seat("zz"))
    found = group.place().moves
    monkeypatch.setattr(amounts, "_TRIES", 0)
    assert found < group.place().moves


def test_up_to_sixty_four_members_the_network_counts_the_pairs_of_owner_and_holder() -> None:
    """A pair is an arc for each ring at least; without pairs there are not as many arcs as pairs."""
    small, large = (Group(tasks(2 * count), seats(count), replicas=1) for count in (64, 65))
    assert most_arcs(small) > 64 * 64 > most_arcs(large)


@pytest.mark.parametrize(("size", "is_small"), [(1 << 13, True), ((1 << 13) + 1, False)])
def test_in_a_small_group_every_member_gives_and_takes_at_once(size: int, *, is_small: bool) -> None:
    """In larger ones at first only those that have too many or too few copies."""
    group = Group(tasks(size), seats(8), replicas=1)
    asked: list[bool] = []

    def exchanging(self: standbys._Standbys, *_: object, everybody: bool) -> None:
        asked.append(everybody)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(standbys._Standbys, "_exchange", exchanging)
        group.place()
    assert asked[0] is is_small


@pytest.mark.parametrize(("count", "is_exact"), [(512, True), (513, False)])
def test_a_quarter_of_a_million_arcs_keep_classes_from_members_of_unknown_lag(count: int, *, is_exact: bool) -> None:
    """More would take seconds to solve; then dealing does it."""
    warm = {task: {f"m{one:03}": UNKNOWN for one in {task % 512, task % 512 + task // 512}} for task in range(count)}
    members = tuple(seat(f"m{index:03}") for index in range(512))

    def looking(tails: Ints, *_: Ints) -> Ints:
        assert (len(tails) > 512 * 512) is is_exact
        raise Stopped

    with pytest.raises(Stopped):
        place(Group(tasks(count), members, warm=warm).request(), looking)


@pytest.mark.parametrize(
    ("home", "task", "place_of_it", "is_found"),
    [(7, 15, 63, True), (7, 16, 0, False), (7, 0, 64, False), (UNASSIGNED, 0, 63, True), (UNASSIGNED, 1, 0, False)],
)
def test_what_spreads_copies_best_is_looked_for_among_sixteen_tasks_and_sixty_four_members(
    home: int, task: int, place_of_it: int, *, is_found: bool
) -> None:
    """What is further off is not seen: the first move that is acceptable is made."""
    suited = task, home, place_of_it
    found = exchange._first_that_suits(lambda move: move == suited, home, deque(range(100)), deque(range(100)))
    assert found == (suited if is_found else (0, home, 0))


@pytest.mark.parametrize(("kinds", "are_compared"), [(13, True), (14, False)])
def test_a_hundred_ways_to_spread_copies_over_zones_are_compared(kinds: int, *, are_compared: bool) -> None:
    """Two copies can go to 13 zones in 91 ways, and to 14 in 105."""
    members = [PlacementMember(f"m{index}", tags={"zone": f"z{index % kinds}"}) for index in range(2 * kinds)]
    assert bool(Tags(members, range(len(members)), ("zone",)).ways((0,), 2)) is are_compared


def given(sizes: tuple[int, int, int], second: int) -> int:
    """Return of which subtopology the one task is that goes from a member with the first two of these to the other."""
    table = tasks(*sizes)
    home = [name for name, count in zip("aab", sizes, strict=True) for _ in range(count)]
    heavy = {task: 1_000 for task in range(sum(sizes)) if table.subtopology[task] == second}
    group = Group(table, (seat("a"), seat("b")), home=tuple(home), sizes=heavy)
    ((task, _),) = moved(group, group.place()).items()
    return table.subtopology[task]


@pytest.mark.parametrize(
    ("first", "second", "other", "goes"),
    [(2, 4, 4, 1), (4, 6, 8, 1), (6, 8, 12, 0)],
    ids=["no and one above", "two and three above", "three and four above"],
)
def test_evenness_tells_apart_up_to_two_copies_above_the_even_part(
    first: int, second: int, other: int, goes: int
) -> None:
    """Of two subtopologies that are further above, little state goes first."""
    assert given((first, second, other), 1) == goes
    assert given((second, first, other), 0) == 1 - goes


@pytest.mark.parametrize(("first", "second", "gives"), [(1, 3, "b"), (3, 4, "a"), (15, 4, "b"), (15, 16, "a")])
def test_states_differ_in_size_by_powers_of_four(first: int, second: int, gives: str) -> None:
    """Where they do not, the first member keeps what it has."""
    sizes = {0: first, 1: first, 2: second, 3: second}
    group = Group(tasks(4), (seat("a"), seat("b"), seat("zz")), home=("a", "a", "b", "b"), sizes=sizes)
    ((home, _),) = moved(group, group.place()).values()
    assert home == gives


@pytest.mark.parametrize("home", [("m00", "m00"), ("m00", "m00", "m01", "m01")])
def test_a_quota_costs_nothing_up_to_its_floor_something_up_to_its_ceiling_and_more_beyond(
    home: tuple[str, ...],
) -> None:
    """Two on one of three members are above the ceiling; two on two of them keep the third below its floor."""
    assert Group(tasks(len(home)), seats(3), home=home).place().moves == 1


def test_what_is_beyond_a_quota_costs_more_among_members_that_are_higher_already() -> None:
    """Two know the newer tasks, one of them half as large as the others: it does not take what the other can."""
    table = tasks(1, 2, epochs={1: 1})
    members = (seat("a"), seat("b", topology_epoch=1), seat("c", 0.5, topology_epoch=1))
    placed = Group(table, members, home=(None, None, "c"), replicas=1).place()
    assert (placed.owner, placed.standbys) == ([0, 1, 2], [(1,), (2,), (1,)])


@pytest.mark.parametrize(("beyond", "part"), [(2, 2), (20, 300)])
def test_of_the_costs_of_balance_nothing_but_their_order_counts(
    beyond: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cycle of the network passes the end once, so it changes one of these costs for another."""
    in_parts = []

    class Repriced(flow.Network):
        """Is solved with the costs of balance that there are, and with others in the same order."""

        def solve(self, pivots: int) -> Ints:
            found = super().solve(pivots)
            balance, costs = self._level("balance"), self._costs
            in_parts.append(bool(balance.max(initial=0) > 4))
            changed = {0: 0, 1: 1, 3: beyond}
            self._costs = [
                {
                    **each,
                    "balance": np.array([part * (one // 4) + changed[one % 4] for one in each["balance"].tolist()]),
                }
                if "balance" in each
                else each
                for each in costs
            ]
            other = super().solve(pivots)
            self._costs = costs
            for level in set(exchange.LEVELS) - {"balance"}:
                assert found @ self._level(level) == other @ self._level(level), level
            return found

    monkeypatch.setattr(exchange, "Network", Repriced)
    for seed in range(40):
        luck = Random(seed)
        members = tuple(
            seat(
                f"m{index}",
                luck.choice((1, 1, 2, 0.5)),
                topology_epoch=luck.randrange(2),
                tags={"zone": luck.choice("aabc")},
            )
            for index in range(luck.randrange(3, 7))
        )
        table = tasks(luck.randrange(1, 9), luck.randrange(1, 9), epochs={1: 1})
        home = tuple(luck.choice(members).id for _ in table.ids)
        Group(table, members, home=home, replicas=luck.randrange(3), tags=("zone",)).place()
    assert sum(in_parts) > 10
