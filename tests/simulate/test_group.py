"""The Batonpass arm: a group in virtual time over the real core and the real machine of the protocol."""

import random
from dataclasses import replace

import pytest
from tests.simulate.kafka.cases import grid, process_ids

from batonpass.invariants import check_group
from batonpass.simulate.clock import Clock
from batonpass.simulate.copies import SteadyRates
from batonpass.simulate.group import BATONPASS, BATONPASS_FENCED, STEADY, BatonpassGroup, BatonpassSettings
from batonpass.simulate.tasks import TaskSet

TWELVE = TaskSet(grid(1, 12))
SMALL = SteadyRates(records=205_000, growth_per_second=100, restore_per_second=22_800)
MINUTE = 60_000
DAY = 24 * 60 * MINUTE


def lab(members: str, settings: BatonpassSettings = BATONPASS, tasks: TaskSet = TWELVE) -> BatonpassGroup:
    """A group at rest with one process per letter, half a minute after its start."""
    group = BatonpassGroup.at_rest(tasks, settings, SMALL, capacities=dict.fromkeys(members, 1))
    group.advance(MINUTE // 2)
    group.begin_change()
    return group


def test_a_group_at_rest_costs_nothing() -> None:
    group = lab("ABC", BATONPASS.with_standbys(1))
    version = group.group.version
    group.advance(30 * MINUTE)
    outcome = group.outcome()
    assert (outcome.moved, outcome.handovers, outcome.restored_records, outcome.rest_ms) == (0, 0, 0, 0)
    assert set(outcome.downtime_ms.values()) == {0}
    assert group.group.version == version


def test_a_join_is_served_task_by_task() -> None:
    group = lab("AB")
    generation = group.group.generation
    group.join("Z")
    assert group.run_to_rest(limit_ms=DAY)
    outcome = group.outcome()
    assert (outcome.moved, outcome.handovers, group.group.generation) == (4, 4, generation + 1)
    gaps = sorted(outcome.downtime_ms.values())
    assert gaps[:8] == [0] * 8
    assert all(500 < gap < 1_200 for gap in gaps[8:])


def test_a_newcomer_with_state_on_disk_has_only_the_rest_to_restore() -> None:
    group = lab("A")
    group.join("Z", disk=dict.fromkeys(TWELVE.stateful, 205_000))
    assert group.run_to_rest(limit_ms=DAY)
    outcome = group.outcome()
    assert (outcome.moved, outcome.handovers) == (6, 6)
    assert outcome.restored_records < 6 * 10_000
    assert outcome.rest_ms is not None
    assert outcome.rest_ms < 30_000


def test_stateless_tasks_move_cold() -> None:
    group = lab("A", tasks=TaskSet(grid(1, 4), grid(2, 4)[4:]))
    group.join("Z")
    assert group.run_to_rest(limit_ms=DAY)
    owners = list(group.owners.values())
    assert (owners.count("A"), owners.count("Z")) == (4, 4)
    assert group.outcome().moved == 2


def test_who_restarts_gets_its_tasks_back() -> None:
    group = lab("AB")
    owned = {task for task, owner in group.owners.items() if owner == "B"}
    group.close("B")
    group.advance(group.now_ms + 10_000)
    assert group.members == ("A",)
    group.come_back("B")
    assert group.run_to_rest(limit_ms=DAY)
    outcome = group.outcome()
    assert (outcome.moved, outcome.handovers, outcome.restored_records) == (0, 0, 0)
    assert {task for task, gap in outcome.downtime_ms.items() if gap} == owned
    assert all(10_000 <= outcome.downtime_ms[task] < 11_000 for task in owned)


def test_who_leaves_is_not_waited_for() -> None:
    group = lab("ABC", BATONPASS.with_standbys(1))
    group.close("B", leave=True)
    assert group.run_to_rest(limit_ms=DAY)
    outcome = group.outcome()
    assert group.members == ("A", "C")
    assert (outcome.moved, outcome.handovers) == (4, 4)
    assert max(outcome.downtime_ms.values()) < 1_000


@pytest.mark.parametrize(("settings", "most_ms"), [(BATONPASS, 46_000), (BATONPASS_FENCED, 2_500)])
def test_after_a_crash_standbys_take_over(settings: BatonpassSettings, most_ms: int) -> None:
    """At the end of the lease, or with fenced outputs two seconds after the connection broke."""
    group = lab("ABC", settings.with_standbys(1))
    group.crash("B")
    assert group.run_to_rest(limit_ms=DAY)
    outcome = group.outcome()
    assert (outcome.moved, outcome.handovers) == (4, 4)
    assert max(outcome.downtime_ms.values()) < most_ms


def test_who_crashed_and_returns_with_its_disk_restores_nothing() -> None:
    """No other process has the state, so the tasks stay its own, as long as its lease is not over."""
    group = lab("AB")
    group.crash("B")
    group.advance(group.now_ms + 20_000)
    group.come_back("B")
    assert group.run_to_rest(limit_ms=DAY)
    outcome = group.outcome()
    assert (outcome.moved, outcome.handovers, outcome.restored_records) == (0, 0, 0)
    assert max(outcome.downtime_ms.values()) < 21_000


def test_who_drains_works_until_others_can() -> None:
    group = lab("ABC")
    group.drain("B")
    assert group.run_to_rest(limit_ms=DAY)
    outcome = group.outcome()
    assert group.members == ("A", "C")
    assert (outcome.moved, outcome.handovers) == (4, 4)
    assert max(outcome.downtime_ms.values()) < 1_200


def test_an_id_is_new_or_it_comes_back() -> None:
    group = lab("AB")
    with pytest.raises(ValueError, match="A is not new"):
        group.join("A")
    with pytest.raises(ValueError, match="A is not down"):
        group.come_back("A")


def test_a_group_that_does_not_rest_says_so() -> None:
    group = lab("AB")
    group.crash("A")
    start = group.now_ms
    assert not group.run_to_rest(limit_ms=start + 10_000)
    outcome = group.outcome()
    assert outcome.rest_ms is None
    assert sorted(outcome.downtime_ms.values()) == [0] * 6 + [10_000] * 6


def test_settings_add_up() -> None:
    settings = BATONPASS.with_standbys(2).having(max_warmup_replicas=4)
    assert settings.config == {"num_standby_replicas": 2, "max_warmup_replicas": 4}
    assert BATONPASS.config == {}


def test_the_timeline_keeps_the_order_of_asking() -> None:
    timeline = Clock()
    seen: list[str] = []
    timeline.after(5, seen.append, "b")
    timeline.after(-3, seen.append, "a")
    timeline.after(5, seen.append, "c")
    while timeline.next_ms is not None:
        timeline.step()
    assert (seen, timeline.now_ms) == (["a", "b", "c"], 5)


def disturb(group: BatonpassGroup, source: random.Random, names: list[str]) -> None:
    """One random event, and a random while after it."""
    down = [name for name in names if name not in group.members]
    kind = source.choice(("join", "close", "leave", "crash", "return", "drain"))
    if kind == "join" or len(group.members) < 2:
        names.append(process_ids(source.randrange(2**32), 1)[0])
        group.join(names[-1], capacity=source.randint(1, 3))
    elif kind == "return" and down:
        group.come_back(source.choice(down), keeps_disk=source.random() < 0.5)
    elif kind == "crash":
        group.crash(source.choice(group.members))
    elif kind == "drain":
        group.drain(source.choice(group.members))
    else:
        group.close(source.choice(group.members), leave=kind == "leave")
    group.advance(group.now_ms + source.choice((0, 700, 5_000, 50_000, 400_000)))


def stormy(seed: int, settings: BatonpassSettings) -> BatonpassGroup:
    """A group after ten random events, and at rest again with one more member."""
    source = random.Random(seed)
    names = process_ids(seed, 3)
    tasks = TaskSet(grid(1, 10), grid(2, 4)[4:])
    group = BatonpassGroup.at_rest(tasks, settings, SMALL, capacities=dict.fromkeys(names, 2))
    for _ in range(10):
        disturb(group, source, names)
    group.join("last")
    assert group.run_to_rest(limit_ms=DAY)
    return group


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "settings", [BATONPASS.with_standbys(1), replace(BATONPASS_FENCED, pace=replace(STEADY, message=(100, 100)))]
)
def test_any_events_end_at_rest_with_every_task_running_once(settings: BatonpassSettings, seed: int) -> None:
    group = stormy(seed, settings)
    assert check_group(group.group) == []
    assert len(group.owners) == 14
    assert set(group.owners.values()) <= set(group.members)
    assert stormy(seed, settings).outcome() == group.outcome()
