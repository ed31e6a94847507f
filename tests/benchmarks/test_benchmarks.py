"""The benchmark times what it says that it times; seen on groups small enough for every test run."""

import subprocess
import sys

import pytest
from tests.benchmarks.__main__ import measure
from tests.benchmarks.groups import EQUAL_WEIGHTS, MIXED_WEIGHTS, Shape, prepare
from tests.benchmarks.kafka import Calls, time_kafka, yardstick
from tests.benchmarks.operations import OPERATIONS, Timed, held_to_the_laws, inputs_of, one_step, time_quiet_heartbeats
from tests.benchmarks.report import (
    TEN_TIMES,
    Measured,
    bar_lines,
    bars_of,
    beginning_lines,
    describing_lines,
    growth_bars,
    shape_lines,
    size_bars,
    size_lines,
)
from tests.benchmarks.sizes import (
    CAUGHT_UP,
    CONFIRMED,
    QUIET,
    REPEATED,
    ROWS,
    hand_over,
    time_beginning,
    time_describing,
    time_sizes,
)

from batonpass.core.state.inputs import Tick
from batonpass.core.state.model import ActiveState
from batonpass.core.state.records import AssignmentChanged, TargetPlaced

SMALL = Shape(24, 4, 1)
WITH_A_BAR, WITHOUT = Shape(10_000, 100, 1), Shape(1_000, 10, 1, 1_000)


@pytest.mark.parametrize("weights", [EQUAL_WEIGHTS, MIXED_WEIGHTS])
def test_every_operation_decides_what_its_name_says(weights: tuple[float, ...]) -> None:
    """First and join place and tell members, a leave takes over, and a re-run at rest writes nothing."""
    operations = inputs_of(prepare(SMALL, weights))
    kinds = {
        name: [type(record) for moment, item in decisions for record in moment.decide(item).records]
        for name, decisions in operations.items()
    }
    assert set(kinds) == set(OPERATIONS)
    assert kinds["re-run"] == []
    for name in ("first", "join"):
        assert TargetPlaced in kinds[name]
        assert AssignmentChanged in kinds[name]
    assert AssignmentChanged in kinds["leave"]


def test_what_is_timed_keeps_the_laws() -> None:
    for decisions in inputs_of(prepare(SMALL)).values():
        for moment, item in decisions:
            held_to_the_laws(moment, item, moment.decide(item))


def test_one_step_places_what_the_whole_decision_places() -> None:
    """The step is what is compared with an assignor."""
    empty = prepare(SMALL).empty
    work, decision = one_step(empty), empty.decide(Tick())
    targets = {task_id: task.target.owner for task_id, task in work.group.tasks.items()}
    assert targets == {task_id: task.target.owner for task_id, task in decision.after.tasks.items()}
    assert tuple(work.reasons) == decision.reasons


def test_the_group_at_rest_runs_everything() -> None:
    at_rest = prepare(SMALL).at_rest.group
    assert {task.state for task in at_rest.tasks.values()} == {ActiveState.RUNNING}
    assert not at_rest.unsettled


def test_the_quiet_heartbeat_is_quiet() -> None:
    """It is timed over more heartbeats than members."""
    assert min(time_quiet_heartbeats(prepare(SMALL).at_rest, 10)) > 0


def test_a_heartbeat_that_says_something_is_not_timed_as_quiet() -> None:
    """The check that a heartbeat changed nothing can fail."""
    empty = prepare(SMALL).empty
    begun = empty.then(Tick())
    with pytest.raises(AssertionError, match="changed the group"):
        time_quiet_heartbeats(begun, 1)


def test_one_handover_is_timed_from_the_caught_up_heartbeat_on() -> None:
    """The heartbeats of a handover are found in a group with one task too many."""
    assert set(hand_over(prepare(Shape(21, 4, 0)).at_rest)) == set(ROWS) - {REPEATED, QUIET}


def test_the_yardstick_rests_where_ours_does() -> None:
    """Both are timed on groups with nothing to do."""
    found = yardstick(SMALL)
    again = found.operations()["re-run"]()
    assert not again.probing_needed
    assert len(again.clients) == SMALL.members
    assert len(found.operations()["join"]().clients) == SMALL.members + 1
    assert len(found.operations()["leave"]().clients) == SMALL.members - 1


def test_a_bar_that_is_missed_says_so() -> None:
    timed = dict.fromkeys(OPERATIONS, Timed(1.0, 20.0, 4.0))
    model = dict.fromkeys(OPERATIONS, 15.0)
    bars = bars_of("equal weights", Measured(WITH_A_BAR, timed, model, None))
    assert [bar.holds for bar in bars] == [True, False, True]
    assert [line.split()[0] for line in bar_lines(bars)[1:]] == ["holds", "MISSED", "holds"]


def test_laws_take_a_fifth_of_a_decision_and_of_the_largest_groups_a_third() -> None:
    for shape, most in ((WITHOUT, 20.0), (TEN_TIMES[1], 33.0)):
        for laws, holds in ((most, True), (most + 1, False)):
            measured = Measured(shape, dict.fromkeys(OPERATIONS, Timed(1.0, 100.0, laws)), {}, None)
            bars = [bar for bar in bars_of("equal weights", measured) if "laws" in bar.what]
            assert [bar.holds for bar in bars] == [holds], (shape, laws)


@pytest.mark.parametrize(("kafka", "holds"), [(1.0, [True, False]), (0.9, [False, False]), (20.0, [True, True])])
def test_no_sum_may_be_slower_than_kafkas(kafka: float, holds: list[bool]) -> None:
    timed = dict.fromkeys(OPERATIONS, Timed(1.0, 20.0, 0.5))
    bars = bars_of("equal weights", Measured(WITHOUT, timed, {}, Calls({}, dict.fromkeys(OPERATIONS, kafka))))
    assert [bar.holds for bar in bars if "Kafka's" in bar.what] == holds


def test_the_first_generation_of_the_largest_group_takes_less_than_a_second() -> None:
    for whole, holds in ((999.0, True), (1_000.0, False)):
        timed = dict.fromkeys(OPERATIONS, Timed(1.0, whole, 0.5))
        bars = bars_of("equal weights", Measured(TEN_TIMES[1], timed, {}, None))
        assert [bar.holds for bar in bars if "first generation" in bar.what] == [holds]


def test_the_largest_group_is_held_against_one_of_a_tenth() -> None:
    """Its cost may grow a little faster than its size."""
    small, large = TEN_TIMES

    def timed(step: float, whole: float) -> dict[str, Timed]:
        return dict.fromkeys(OPERATIONS, Timed(step, whole, 0.0))

    both = {small: Measured(small, timed(1, 1), {}, None), large: Measured(large, timed(15, 16), {}, None)}
    assert [bar.holds for bar in growth_bars("equal weights", both)] == [True, False]
    assert growth_bars("equal weights", {small: both[small]}) == []


def test_a_quiet_heartbeat_that_triples_and_a_slow_handover_miss_their_bars() -> None:
    small = dict.fromkeys(ROWS, 0.1)
    grown = {**small, QUIET: 0.3}
    assert [bar.holds for bar in size_bars({Shape(1, 1, 0): small, Shape(9, 9, 0): grown})] == [False, True]
    slow = {**small, CAUGHT_UP: 6.0, CONFIRMED: 6.0}
    assert [bar.holds for bar in size_bars({Shape(1, 1, 0): small, Shape(9, 9, 0): slow})] == [True, False]


@pytest.mark.needs("maven")
def test_kafkas_own_class_is_timed_in_every_operation() -> None:
    kafka = time_kafka(SMALL, seconds=0)
    assert set(kafka.cold) == set(kafka.warm) == set(OPERATIONS)
    assert min(kafka.warm.values()) > 0


def test_every_table_has_its_rows() -> None:
    known = dict.fromkeys(OPERATIONS, 1.0)
    measured = measure(SMALL, EQUAL_WEIGHTS, 1, Calls(known, known))
    assert [line.split()[0] for line in shape_lines("equal weights", measured)[2:]] == [*OPERATIONS, "sum", "Kafka's"]
    assert len(size_lines({SMALL: time_sizes(SMALL, beats=8)})) == len(ROWS) + 2
    assert len(beginning_lines({SMALL: time_beginning(SMALL)})) == 3
    described = time_describing(SMALL)
    assert all(row["tasks not settled"] for row in described.values())
    assert len(describing_lines(SMALL, described)) == 2 + len(described)


@pytest.mark.parametrize("program", ["tests.benchmarks.streams.__main__", "tests.benchmarks.streams.faults"])
def test_what_is_prepared_without_tests_runs_without_pytest(program: str) -> None:
    """`make compare-streams` and `make streams-faults` install the service alone."""
    without = f"import sys; sys.modules['pytest'] = None; import {program}"
    subprocess.run([sys.executable, "-c", without], check=True)
