"""Where stateful tasks of equal weight go: balance, the fewest moves, the warmest destination, even subtopologies."""

from dataclasses import replace

import pytest
from tests.placement.placing import Group, counts, faults, moved, seat, seats, skew, tasks, unbalanced

from batonpass.placement.types import Moves, Readiness, Waits, Warmth

CAUGHT_UP = Warmth(Readiness.CAUGHT_UP, 0)


def at_rest(*sizes: int, members: int) -> Group:
    """Return a group of equal members whose tasks run where they were first placed."""
    return Group(tasks(*sizes), seats(members)).settle()


def test_a_first_placement_is_even_in_all_and_per_subtopology() -> None:
    group = Group(tasks(7, 5, 3, 1), seats(3))
    placed = group.place()
    assert sorted(counts(group, placed).values()) == [5, 5, 6]
    assert skew(group, placed) <= 1
    assert placed.moves == placed.lower_bound == 16
    assert set(placed.why.values()) == {Moves.NO_OWNER}


def test_what_is_placed_stays() -> None:
    placed = at_rest(7, 5, members=3).place()
    assert (placed.moves, placed.lower_bound, placed.why) == (0, 0, {})


@pytest.mark.parametrize(("members", "size", "needed"), [(1, 100, 50), (2, 100, 33), (10, 100, 9), (20, 200, 9)])
def test_a_join_moves_what_it_must_and_only_to_the_joiner(members: int, size: int, needed: int) -> None:
    group = at_rest(size, members=members).join(seat("zz"))
    placed = group.place()
    assert placed.moves == placed.lower_bound == needed
    assert {target for _, target in moved(group, placed).values()} == {"zz"}
    assert set(placed.why.values()) == {Moves.BALANCE}
    assert unbalanced(group, placed) == []


def test_two_joins_at_once_move_tasks_to_the_joiners_only() -> None:
    group = at_rest(100, members=10).join(seat("x"), seat("y"))
    placed = group.place()
    assert placed.moves == placed.lower_bound == 16
    assert {target for _, target in moved(group, placed).values()} == {"x", "y"}


def test_a_leave_moves_only_the_leavers_tasks() -> None:
    before = at_rest(100, members=10)
    group = before.leave("m03")
    placed = group.place()
    assert set(moved(group, placed)) == {task_index for task_index, name in enumerate(before.home) if name == "m03"}
    assert placed.moves == placed.lower_bound == 10
    assert unbalanced(group, placed) == []


def test_a_replaced_member_hands_its_tasks_to_its_successor() -> None:
    before = at_rest(100, members=10)
    group = before.leave("m03").join(seat("new"))
    placed = group.place()
    assert placed.moves == 10
    assert set(moved(group, placed).values()) == {(None, "new")}


def test_a_successor_is_filled_first_where_the_quota_is_no_whole_number() -> None:
    before = at_rest(95, members=10)
    leaver = next(name for name, count in counts(before, before.place()).items() if count == 10)
    group = before.leave(leaver).join(seat("new"))
    assert {target for _, target in moved(group, group.place()).values()} == {"new"}


def test_a_drain_moves_only_the_drained_members_tasks_and_back() -> None:
    before = at_rest(30, members=3)
    group = before.drain("m01")
    placed = group.place()
    assert set(moved(group, placed)) == {task_index for task_index, name in enumerate(before.home) if name == "m01"}
    assert set(placed.why.values()) == {Moves.DRAIN}
    assert faults(group, placed) == []
    assert group.drain("m01", closed=False).place().moves == 0


def test_when_everybody_drains_nothing_moves() -> None:
    before = Group(tasks(4, 2, stateless=[1]), seats(2), replicas=1).settle()
    without_owner = replace(before, home=(None, *before.home[1:]))
    group = without_owner.drain("m00", "m01")
    placed = group.place()
    assert placed.waiting == {0: Waits.NO_ELIGIBLE_MEMBER}
    assert set(moved(group, placed)) == set()
    assert placed.moves == 0
    assert [len(held) for held in placed.standbys] == [1, 1, 1, 1, 0, 0]


def test_without_members_everything_waits() -> None:
    placed = Group(tasks(2), ()).place()
    assert placed.waiting == dict.fromkeys(range(2), Waits.NO_ELIGIBLE_MEMBER)


def test_capacities_divide_the_tasks() -> None:
    """Kafka's scenario 6."""
    group = Group(tasks(6), (seat("a", 1), seat("b", 2), seat("c", 3)))
    placed = group.place()
    assert counts(group, placed) == {"a": 1, "b": 2, "c": 3}


def test_capacities_are_read_as_the_decimals_that_people_write() -> None:
    """In binary 0.1 + 0.2 + 0.3 is not 0.6."""
    group = Group(tasks(6), (seat("a", 0.1), seat("b", 0.2), seat("c", 0.3)))
    assert counts(group, group.place()) == {"a": 1, "b": 2, "c": 3}


def test_the_ceiling_goes_to_those_who_have_it() -> None:
    table = tasks(5)
    group = Group(table, seats(3), home=("m02", "m01", "m01", "m02", "m00"))
    placed = group.place()
    assert placed.moves == placed.lower_bound == 0


def test_among_others_the_ceiling_goes_to_the_lowest_load_per_capacity() -> None:
    group = Group(tasks(5), (seat("a", 1), seat("b", 3)), home=("a", "b", "b", "b", None))
    assert counts(group, group.place()) == {"a": 1, "b": 4}


def test_of_equal_heights_the_ceiling_goes_to_the_lowest_load_without_it() -> None:
    """Four tasks on a capacity of 2 are as high as two on a capacity of 1, but without the last one b is lower."""
    group = Group(tasks(5), (seat("a", 2), seat("b"), seat("c", 2)), home=("a", "a", "b", "c", "c")).drain("c")
    assert counts(group, group.place()) == {"a": 3, "b": 2}


def test_orphans_go_where_they_are_caught_up() -> None:
    before = at_rest(12, members=4)
    lost = [task_index for task_index, name in enumerate(before.home) if name == "m00"]
    others = ["m03", "m01", "m02"]
    warm = {task_index: {name: CAUGHT_UP} for task_index, name in zip(lost, others, strict=True)}
    group = replace(before.leave("m00"), warm=warm)
    assert moved(group, group.place()) == {
        task_index: (None, name) for task_index, name in zip(lost, others, strict=True)
    }


def test_no_task_takes_the_only_warm_place_of_another() -> None:
    group = Group(
        tasks(6),
        seats(3),
        home=("m00", "m00", None, None, "m01", "m02"),
        warm={2: {"m01": CAUGHT_UP, "m02": CAUGHT_UP}, 3: {"m01": CAUGHT_UP}},
    )
    assert moved(group, group.place()) == {2: (None, "m02"), 3: (None, "m01")}


def test_a_chain_of_tasks_makes_way_for_one_more_warm_place() -> None:
    group = Group(
        tasks(3),
        seats(3),
        warm={0: {"m00": CAUGHT_UP, "m01": CAUGHT_UP}, 1: {"m01": CAUGHT_UP, "m02": CAUGHT_UP}, 2: {"m00": CAUGHT_UP}},
    )
    placed = group.place()
    assert [group.name(owner) for owner in placed.owner] == ["m01", "m02", "m00"]


def test_an_overloaded_member_gives_away_what_is_warm_elsewhere() -> None:
    group = replace(at_rest(9, members=1).join(seat("zz")), warm={7: {"zz": CAUGHT_UP}, 3: {"zz": CAUGHT_UP}})
    placed = group.place()
    assert placed.moves == 4
    assert {3, 7} <= set(moved(group, placed))


def test_a_giver_exchanges_what_it_gives_for_one_more_warm_place() -> None:
    """Which task a member gives is part of the matching, not settled before it."""
    group = Group(
        tasks(8),
        seats(4),
        home=("m00", "m00", "m00", "m01", "m01", "m01", "m02", "m03"),
        warm={
            0: {"m02": CAUGHT_UP},
            1: {"m03": CAUGHT_UP},
            3: {"m02": CAUGHT_UP},
        },
    )
    assert moved(group, group.place()) == {1: ("m00", "m03"), 3: ("m01", "m02")}


def test_less_to_restore_goes_before_more_then_disk_then_nothing_then_unknown() -> None:
    ladder = [
        Warmth(Readiness.CAUGHT_UP, 99),
        Warmth(Readiness.BEHIND, 10),
        Warmth(Readiness.BEHIND, 20),
        Warmth(Readiness.ON_DISK, 5),
        Warmth(Readiness.COLD, 0),
        Warmth(Readiness.UNKNOWN, 0),
    ]
    for index in range(len(ladder) - 1):
        warm = {0: {"a": ladder[index + 1], "b": ladder[index]}}
        group = Group(tasks(1), (seat("a"), seat("b")), warm=warm)
        assert group.name(group.place().owner[0]) == "b"


def test_state_in_doubt_is_given_away_last() -> None:
    doubtful = {task_index: {"zz": Warmth(Readiness.UNKNOWN, 0)} for task_index in range(3)}
    group = replace(at_rest(6, members=1).join(seat("zz")), warm=doubtful)
    assert set(moved(group, group.place())) == {3, 4, 5}
    only = replace(group, warm={task_index: {"zz": Warmth(Readiness.UNKNOWN, 0)} for task_index in range(6)})
    assert only.place().moves == 3


def test_a_running_warmup_keeps_its_goal() -> None:
    group = at_rest(90, members=3).join(seat("x"))
    warming = {
        task_index: name for task_index, (_, name) in list(moved(group, group.place()).items())[:5] if name is not None
    }
    others = {task_index: {"y": CAUGHT_UP} for task_index in warming}
    second = replace(group, warming=warming, previous=warming, warm=others).join(seat("y"))
    placed = second.place()
    assert placed.moves == placed.lower_bound == 36
    assert {
        task_index: name for task_index, (_, name) in moved(second, placed).items() if task_index in warming
    } == warming


@pytest.mark.parametrize(
    ("capacities", "have", "interim"),
    [((1.0, 1.0, 3.0), (1, 3, 4), "b"), ((3.0, 1.0, 3.0), (3, 6, 8), "c")],
    ids=["who takes one more", "who gives one more"],
)
def test_the_destination_of_a_running_warmup_holds_the_ceiling(
    capacities: tuple[float, ...], have: tuple[int, ...], interim: str
) -> None:
    """Capacities are unequal, and an interim owner has the task."""
    members = tuple(seat(name, share) for name, share in zip("abc", capacities, strict=True))
    home = tuple(name for name, count in zip("abc", have, strict=True) for _ in range(count))
    group = Group(tasks(len(home)), members, home=home)
    task_index = home.index(interim)
    placed = replace(group, previous={task_index: "a"}, warming={task_index: "a"}).place()
    assert group.name(placed.owner[task_index]) == "a"
    without = group.place()
    assert placed.moves == without.moves == placed.lower_bound
    assert unbalanced(group, placed) == []
    assert group.name(without.owner[home.index("a")]) == "a"
    assert counts(group, placed) != counts(group, without)


def test_a_warmup_whose_move_has_no_reason_any_more_is_dropped() -> None:
    before = at_rest(90, members=3)
    group = before.join(seat("x"))
    pending = group.pending()
    back = replace(pending, warming=pending.previous).leave("x")
    assert back.place().moves == 0


def test_moves_that_are_still_to_come_keep_their_targets() -> None:
    group = at_rest(20, 13, members=4).join(seat("a1"), seat("z1")).leave("m02")
    first = group.place()
    assert group.pending(first).place().owner == first.owner


def test_of_warmups_beyond_what_a_member_may_take_the_nearest_to_their_end_go_on() -> None:
    before = at_rest(9, members=2).join(seat("zz"))
    warm = {task_index: {"zz": Warmth(Readiness.BEHIND, 10 - task_index)} for task_index in range(9)}
    group = replace(before, warming=dict.fromkeys(range(9), "zz"), warm=warm)
    placed = group.place()
    assert placed.moves == 3
    assert 8 in moved(group, placed)


def test_little_state_is_given_away_first() -> None:
    sizes = {task_index: 100 - task_index for task_index in range(10)}
    group = replace(at_rest(10, members=1).join(seat("zz")), sizes=sizes)
    assert set(moved(group, group.place())) == {5, 6, 7, 8, 9}


def test_what_is_given_away_keeps_subtopologies_even() -> None:
    group = at_rest(20, 20, 20, members=4).join(seat("zz"))
    placed = group.place()
    assert placed.moves == 12
    assert skew(group, placed) <= 1


def test_bound_tasks_are_not_given_away_for_evenness() -> None:
    before = at_rest(4, 8, members=2)
    pinned = {task_index: name for task_index, name in enumerate(before.home) if task_index < 4 and name is not None}
    group = replace(before, bound=pinned).join(seat("zz"))
    placed = group.place()
    assert placed.moves == placed.lower_bound == 4
    assert min(moved(group, placed)) >= 4


def test_a_bound_task_is_where_it_is_bound() -> None:
    before = at_rest(9, members=3)
    bound = dict.fromkeys(range(5), "m00")
    group = replace(before, bound=bound)
    placed = group.place()
    assert counts(group, placed) == {"m00": 5, "m01": 2, "m02": 2}
    assert {placed.why[task_index] for task_index in range(5) if task_index in placed.why} == {Moves.PINNED}
    assert placed.moves == placed.lower_bound == 4


def test_a_task_without_owner_can_be_bound() -> None:
    group = Group(tasks(2, 2, stateless=[1]), seats(2), bound={0: "m01", 1: "m01", 2: "m01"})
    placed = group.place()
    assert [group.name(owner) for owner in placed.owner] == ["m01", "m01", "m01", "m00"]


def test_a_handover_that_was_sent_goes_to_a_member_that_drains() -> None:
    before = at_rest(6, members=3)
    group = replace(before, bound={0: "m01"}).drain("m01")
    placed = group.place()
    assert group.name(placed.owner[0]) == "m01"
    assert counts(group, placed) == {"m00": 3, "m02": 2}


def test_in_a_pause_only_what_has_no_home_moves() -> None:
    before = at_rest(12, 6, members=3)
    paused = replace(before.join(seat("zz")), held=True)
    assert paused.place().moves == 0
    group = paused.drain("m00")
    placed = group.place()
    assert {home for home, _ in moved(group, placed).values()} == {"m00"}
    assert counts(group, placed) == {"m01": 6, "m02": 6, "zz": 6}
    assert placed.moves == placed.lower_bound == 6


def test_of_several_that_are_alike_none_goes_where_its_lag_is_unknown_while_another_could() -> None:
    warm = {task_index: {"m00": Warmth(Readiness.UNKNOWN, 0)} for task_index in range(2)}
    assert sorted(Group(tasks(3), seats(3), warm=warm).place().owner[:2]) == [1, 2]
