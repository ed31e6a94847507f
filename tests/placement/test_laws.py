"""The laws of placement over groups that nobody thought of: through joins, leaves, drains and what is warm."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.often import cases
from tests.placement.placing import (
    Group,
    copy_counts,
    counts,
    faults,
    is_balanced,
    moved,
    seat,
    skew,
    tasks,
    unbalanced,
    unlevel,
)

from batonpass.placement.types import PlacementMember, Readiness, Warmth

# Random stories are not what the branches' coverage is made of, and counting it in them takes most of their time.
pytestmark = pytest.mark.no_cover

law = settings(max_examples=cases(150), deadline=None, derandomize=True)
CAPACITIES = (1.0, 1.0, 1.0, 2.0, 3.0, 0.5)
ZONES = ("a", "b", "c")
Change = Callable[[Group], Group]


@st.composite
def members(draw: st.DrawFn, *, equal: bool = False, limited: bool = False) -> tuple[PlacementMember, ...]:
    """Draw one to eight members."""
    names = draw(
        st.lists(
            st.sampled_from([f"{one}{two}" for one in "abcdef" for two in "xyz"]), min_size=1, max_size=8, unique=True
        )
    )
    return tuple(
        seat(
            name,
            1.0 if equal else draw(st.sampled_from(CAPACITIES)),
            max_tasks=draw(st.sampled_from((None, 3, 10, 30))) if limited else None,
            tags={"zone": draw(st.sampled_from(ZONES))},
        )
        for name in names
    )


@st.composite
def groups(draw: st.DrawFn, *, equal: bool = False, limited: bool = False, weighted: bool = False) -> Group:
    """Draw a group that runs where it was first placed."""
    sizes = draw(st.lists(st.integers(0, 14), min_size=1, max_size=4))
    without = draw(st.sets(st.integers(1, len(sizes)), max_size=2))
    heavy = draw(st.lists(st.sampled_from((1.0, 2.0, 3.5)), min_size=len(sizes), max_size=len(sizes)))
    table = tasks(*sizes, stateless=without, weight=lambda one, _: heavy[one] if weighted else 1.0)
    group = Group(
        table,
        draw(members(equal=equal, limited=limited)),
        replicas=draw(st.integers(0, 2)),
        tags=draw(st.sampled_from(((), ("zone",)))),
    )
    return group.settle()


@st.composite
def changes(draw: st.DrawFn, *, equal: bool = False) -> Change:
    """Draw one change of membership."""
    kind = draw(st.sampled_from(("join", "leave", "drain", "undrain")))
    capacity = 1.0 if equal else draw(st.sampled_from(CAPACITIES))
    name = draw(st.sampled_from(("a0", "m0", "z0", "z1")))
    pick = draw(st.integers(0, 7))

    def change(group: Group) -> Group:
        chosen = group.seats[pick % len(group.seats)]
        if kind == "join":
            newcomer = seat(name, capacity, tags={"zone": ZONES[pick % 3]})
            return group if any(one.id == name for one in group.seats) else group.join(newcomer)
        if kind == "leave" and len(group.seats) > 1:
            return group.leave(chosen.id)
        return group.drain(chosen.id, closed=kind == "drain")

    return change


def warm(group: Group, seed: list[int]) -> Group:
    """Return the group with copies and running warmups here and there, as numbers say."""
    names = sorted(one.id for one in group.seats)
    known: dict[int, dict[str, Warmth]] = {}
    for index, number in enumerate(seed):
        task_index, place = number % max(1, len(group.table.ids)), number // 7 % len(names)
        known.setdefault(task_index, {})[names[place]] = Warmth(Readiness((index + number) % 6), number % 11)
    running = {
        task_index: next(iter(held)) for task_index, held in known.items() if task_index % 3 == 0 and group.table.ids
    }
    return replace(group, warm=known, warming=running)


numbers = st.lists(st.integers(0, 10_000), max_size=12)


@law
@given(groups(limited=True), st.lists(changes(), max_size=4), numbers)
def test_whatever_happens_a_placement_is_whole(group: Group, happens: list[Change], seed: list[int]) -> None:
    for change in happens:
        group = warm(change(group), seed)
        placed = group.place()
        assert faults(group, placed) == []
        assert unlevel(group, placed) == [] or any(one.max_tasks is not None for one in group.seats)
        group = group.settle(placed)


@law
@given(groups(), st.lists(changes(), min_size=1, max_size=4), numbers)
def test_equal_weights_are_balanced_with_exactly_the_fewest_moves(
    group: Group, happens: list[Change], seed: list[int]
) -> None:
    for change in happens:
        group = warm(change(group), seed)
        placed = group.place()
        if any(one.may_be_target for one in group.seats):
            assert unbalanced(group, placed) == []
        assert (
            placed.moves
            == placed.lower_bound
            == sum(task_index in placed.why for task_index in group.table.stateful_indexes)
        )
        group = group.settle(placed)


@law
@given(groups(equal=True))
def test_a_join_moves_tasks_only_to_the_joiner(group: Group) -> None:
    before = counts(group, group.place())
    joined = group.join(seat("m5"))
    placed = joined.place()
    assert {joined.name(placed.owner[task_index]) for task_index in placed.why if group.table.stateful[task_index]} <= {
        "m5"
    }
    assert placed.moves == sum(before.values()) // len(joined.seats)


@law
@given(groups(equal=True), st.integers(0, 7))
def test_a_leave_moves_only_the_leavers_tasks(group: Group, pick: int) -> None:
    leaver = group.seats[pick % len(group.seats)].id
    had = {task_index for task_index in group.table.stateful_indexes if group.home[task_index] == leaver}
    if len(group.seats) > 1:
        for changed in (group.leave(leaver), group.drain(leaver)):
            placed = changed.place()
            assert {task_index for task_index in placed.why if group.table.stateful[task_index]} == had


@law
@given(groups(equal=True), st.integers(0, 7))
def test_a_replaced_members_tasks_go_to_its_successor(group: Group, pick: int) -> None:
    leaver = group.seats[pick % len(group.seats)]
    changed = group.leave(leaver.id).join(replace(leaver, id=seat("m5").id))
    stateful = {
        task_index: where
        for task_index, where in moved(changed, changed.place()).items()
        if group.table.stateful[task_index]
    }
    if all(counts(group, group.place()).values()):
        assert set(stateful.values()) <= {(None, "m5")}


@law
@given(groups(limited=True, weighted=True), st.lists(changes(), min_size=1, max_size=3), numbers)
def test_what_is_placed_stays_placed(group: Group, happens: list[Change], seed: list[int]) -> None:
    for change in happens:
        group = warm(change(group), seed)
        placed = group.place()
        pending = group.pending(placed).place()
        assert (pending.owner, pending.standbys) == (placed.owner, placed.standbys)
        settled = group.settle(placed)
        if not placed.waiting:
            again = settled.place()
            assert (again.owner, again.standbys, again.moves) == (placed.owner, placed.standbys, 0)
        group = settled


@law
@given(groups(equal=True))
def test_a_first_placement_is_even_per_subtopology(group: Group) -> None:
    sizes = Counter(group.table.subtopology)
    stateful = replace(group, table=tasks(*[sizes[number] for number in range(max(sizes, default=-1) + 1)]))
    fresh = replace(stateful, home=(), standbys=())
    if fresh.table.ids:
        assert skew(fresh, fresh.place()) <= 1


@law
@given(groups(weighted=True), st.lists(changes(), min_size=1, max_size=3))
def test_unequal_weights_are_balanced(group: Group, happens: list[Change]) -> None:
    for change in happens:
        group = change(group)
        placed = group.place()
        if not group.table.uniform and any(one.may_be_target for one in group.seats):
            assert is_balanced(group, placed.owner)
        assert placed.lower_bound <= placed.moves
        group = group.settle(placed)


@law
@given(groups(equal=True), st.lists(changes(equal=True), max_size=3))
def test_standbys_of_equal_members_level_what_their_actives_leave(group: Group, happens: list[Change]) -> None:
    group = replace(group, tags=())
    for change in happens:
        group = change(group)
        placed = group.place()
        held = copy_counts(group, placed)
        if len(held) > group.replicas + 1 and all(group.table.stateful):
            assert max(held.values()) - min(held.values()) <= 1
        group = group.settle(placed)


@law
@given(groups(), st.permutations(range(8)))
def test_the_order_of_the_input_does_not_matter(group: Group, order: list[int]) -> None:
    shuffled = tuple(group.seats[index] for index in order if index < len(group.seats))
    joined = replace(group, seats=shuffled).join(seat("m5"))
    assert joined.place() == group.join(seat("m5")).place()


@law
@given(groups(equal=True), st.permutations(range(8)))
def test_names_do_not_matter(group: Group, order: list[int]) -> None:
    names: list[str] = [one.id for one in group.seats]
    others: dict[str, str] = dict(zip(names, [names[index] for index in order if index < len(names)], strict=True))

    def rename(one: PlacementMember) -> PlacementMember:
        return replace(one, id=seat(others[one.id]).id)

    renamed = replace(
        group,
        seats=tuple(rename(one) for one in group.seats),
        home=tuple(others[name] if name else None for name in group.home),
        standbys=tuple(frozenset(others[name] for name in held) for held in group.standbys),
    )
    one, other = group.join(seat("m5")).place(), renamed.join(seat("m5")).place()
    assert one.moves == other.moves
    assert sorted(map(len, one.standbys)) == sorted(map(len, other.standbys))
    assert sorted(counts(group, one).values()) == sorted(counts(renamed, other).values())
