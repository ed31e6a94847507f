"""The numbers of balance by load, each written out here: none may change without a test that fails.

What a group does just below a number and just above it is what the number says.
"""

import pytest
from tests.core.scene import Scene, topology
from tests.core.test_load import (
    BEAT,
    HALF_LIFE,
    PATIENCE,
    begin,
    hottest,
    moved,
    run,
    sentences,
    skewed,
    until_hot,
    would_move,
)

from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import TaskId
from batonpass.core.state.inputs import DrainRequest, EndOffsets, ResumeRequest
from batonpass.core.state.loads import begun
from batonpass.core.state.model import Subtopology
from batonpass.core.state.records import LoadsMeasured, StormBegan
from batonpass.core.target.load import loads_by_member


def weighed(scene: Scene, *of: float) -> dict[str, float]:
    """Let each task of the first member weigh the first number, of the second the second, and so on."""
    loads = {task: of[int(str(owner)[1:])] for task, owner in scene.owners().items()}
    records = [LoadsMeasured({TaskId(task): load for task, load in loads.items()})]
    scene.group = evolve(scene.group, records)
    scene.log += records
    return loads


def test_a_hot_member_ends_within_a_tenth_of_the_average() -> None:
    """300 and 100: after 26 of its moves it would have 222, after 28 it would have 216."""
    scene = begin(members=2, partitions=200, initial_rebalance_delay_ms=1_000, balance_by="shadow")
    weighed(scene, 3.0, 1.0)
    assert len(would_move(scene)) == 27


def test_a_group_that_allows_less_than_a_tenth_is_brought_within_that() -> None:
    scene = begin(members=2, partitions=200, initial_rebalance_delay_ms=1_000, balance_by="shadow", load_imbalance=0.05)
    weighed(scene, 3.0, 1.0)
    assert len(would_move(scene)) == 30


@pytest.mark.parametrize(("records", "is_made"), [(5_300_000, True), (5_500_000, False)])
def test_a_restore_of_20_000_records_costs_a_second_of_a_members_load(records: int, *, is_made: bool) -> None:
    """A task of 3 of 40 leaves a member for an hour: 270 seconds of all its load, or 5,400,000 records."""
    scene = begin(members=2, partitions=1, balance_by="shadow")
    scene.change(topology(0, epoch=1, more=(Subtopology("0", 40, changelog_topics=("log",)),)))
    scene.settle()
    weighed(scene, 3.0, 1.0)
    assert loads_by_member(scene.group)  # All of them are somewhere.
    scene.do(EndOffsets({("log", partition): records for partition in range(40)}, scene.now_ms))
    assert bool(would_move(scene)) is is_made


@pytest.mark.parametrize(("load", "is_named"), [(0.89, False), (0.91, True)])
def test_a_task_that_takes_nine_tenths_of_the_largest_member_is_too_much_for_any(
    load: float, *, is_named: bool
) -> None:
    scene = begin(members=2, partitions=2, balance_by="shadow")
    weighed(scene, load, 0.1)
    assert any("no placement helps" in one for one in sentences(scene)) is is_named


@pytest.mark.parametrize(("load", "is_doubted"), [(0.96, True), (1.04, False)])
def test_less_than_a_quarter_of_what_was_measured_elsewhere_is_doubted(load: float, *, is_doubted: bool) -> None:
    assert begun(4.0, 0, load).until(20 * HALF_LIFE, HALF_LIFE).is_doubted is is_doubted


def test_loads_are_read_ten_times_in_a_half_life() -> None:
    scene = begin(load_half_life_ms=10 * BEAT * 6)
    loads, read = dict.fromkeys(scene.owners(), 0.5), set()
    run(scene, loads, BEAT)
    for _ in range(60):
        run(scene, loads, BEAT)
        read.add(scene.soft.loads_read_ms)
    assert len(read) in (10, 11)


def test_no_task_goes_where_it_makes_a_member_as_hot_as_the_one_that_it_leaves() -> None:
    scene = begin(members=3, partitions=2, balance_by="shadow")
    weighed(scene, 0.3, 0.3, 0.3)
    assert not would_move(scene)


# What it waits for, and what follows measured weights.


def test_it_waits_during_a_storm_and_begins_after_it() -> None:
    scene = begin(rejoin_grace_ms=10 * PATIENCE)
    loads = skewed(scene)
    until_hot(scene, loads)
    records = [StormBegan(scene.now_ms)]
    scene.group = evolve(scene.group, records)
    scene.log += records
    run(scene, loads, 2 * PATIENCE)
    assert scene.group.storm_since_ms is not None
    assert moved(scene) == []
    scene.do(ResumeRequest())
    run(scene, loads, PATIENCE)
    assert hottest(scene, loads) < 1.2


def test_what_drains_goes_by_measured_weight() -> None:
    scene = begin(members=3, partitions=9)
    before = scene.owners()
    weighed(scene, 0.3, 0.1, 0.1)
    scene.do(DrainRequest(scene.member("m2").id))
    scene.settle()
    went = {task: owner for task, owner in scene.owners().items() if before[task] == "m2"}
    assert set(went.values()) == {"m1"}
    assert {task: owner for task, owner in scene.owners().items() if task not in went} == {
        task: owner for task, owner in before.items() if task not in went
    }
