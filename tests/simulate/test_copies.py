"""Copies on processes in virtual time: who restores at what rate, and which end there is to reach."""

import pytest

from batonpass.simulate.copies import Copies, Role, SteadyRates
from batonpass.simulate.tasks import Task

FIRST, SECOND = (0, 0), (0, 1)
STATELESS = (1, 0)
STILL = SteadyRates(records=10_000, growth_per_second=0, restore_per_second=1000)


def is_stateful(task: Task) -> bool:
    """Whether a task is one of the two with state."""
    return task != STATELESS


def copies(rates: SteadyRates = STILL) -> Copies:
    """One empty process called a."""
    made = Copies(is_stateful, rates)
    made.add_process("a", {})
    return made


def test_a_lone_copy_restores_at_the_rate_of_its_process() -> None:
    made = copies()
    assert not made.hold("a", FIRST, Role.ACTIVE)
    assert made.next_arrival_ms() == 10_000
    assert made.advance(20_000) == [("a", FIRST, 10_000)]
    assert made.is_current("a", FIRST)
    assert made.restored_records == pytest.approx(10_000)


def test_copies_of_one_process_share_its_rate() -> None:
    made = copies()
    made.hold("a", FIRST, Role.ACTIVE)
    made.hold("a", SECOND, Role.ACTIVE)
    assert made.advance(60_000) == [("a", FIRST, 20_000), ("a", SECOND, 20_000)]


def test_actives_restore_before_standbys() -> None:
    made = copies()
    made.hold("a", SECOND, Role.STANDBY)
    made.hold("a", FIRST, Role.ACTIVE)
    made.advance(10_000)
    assert made.positions("a") == {FIRST: 10_000, SECOND: 0}
    made.advance(20_000)
    assert made.all_current()


def test_a_copy_chases_an_end_that_moves() -> None:
    """At a thousand a second against a hundred more each second, ten thousand records take about eleven seconds."""
    made = Copies(is_stateful, SteadyRates(records=10_000, growth_per_second=100, restore_per_second=1000))
    made.add_process("a", {})
    made.add_process("b", {})
    made.hold_ready("b", FIRST, Role.ACTIVE)
    made.hold("a", FIRST, Role.STANDBY)
    made.advance(11_000)
    assert not made.is_current("a", FIRST)
    made.advance(11_200)
    assert made.is_current("a", FIRST)


def test_the_end_of_a_stopped_task_stands_still() -> None:
    """When the task runs again, what it missed is written at once."""
    made = Copies(is_stateful, SteadyRates(records=1000, growth_per_second=10, restore_per_second=1000))
    made.add_process("a", {})
    made.hold_ready("a", FIRST, Role.ACTIVE)
    made.advance(10_000)
    made.drop("a", FIRST)
    made.advance(60_000)
    assert made.end_offset(FIRST) == 1100
    assert made.hold("a", FIRST, Role.ACTIVE)
    assert made.end_offset(FIRST) == 1600


def test_a_copy_on_disk_is_as_far_as_it_was_when_it_was_closed() -> None:
    made = Copies(is_stateful, SteadyRates(records=1000, growth_per_second=10, restore_per_second=1000))
    made.add_process("a", {})
    made.add_process("b", {})
    made.hold_ready("a", FIRST, Role.ACTIVE)
    made.hold_ready("b", FIRST, Role.STANDBY)
    made.advance(10_000)
    made.drop("b", FIRST)
    made.advance(20_000)
    assert made.positions("b") == {FIRST: 1100}
    assert made.end_offset(FIRST) == 1200


def test_a_standby_that_is_current_is_promoted_at_once() -> None:
    made = copies()
    made.hold_ready("a", FIRST, Role.ACTIVE)
    assert not made.hold("a", FIRST, Role.STANDBY)
    assert made.is_current("a", FIRST)
    assert made.hold("a", FIRST, Role.ACTIVE)
    assert not made.hold("a", FIRST, Role.ACTIVE)
    assert made.restored_records == 0


def test_a_stateless_task_runs_at_once_and_leaves_nothing() -> None:
    made = copies()
    assert made.hold("a", STATELESS, Role.ACTIVE)
    assert made.positions("a") == {}
    made.drop("a", STATELESS)
    assert made.held("a") == ()


def test_what_was_restored_is_on_disk_when_a_process_ends() -> None:
    made = copies()
    made.hold_ready("a", FIRST, Role.ACTIVE)
    made.hold("a", SECOND, Role.STANDBY)
    made.advance(100)
    assert made.stop_process("a") == {FIRST: 10_000, SECOND: 100}


def test_disks_are_cleaned_of_what_nobody_assigned_for_long() -> None:
    made = copies()
    made.hold_ready("a", FIRST, Role.ACTIVE)
    made.hold_ready("a", SECOND, Role.STANDBY)
    made.advance(1000)
    made.drop("a", FIRST)
    made.advance(1999)
    made.clean_disks(older_than_ms=1000)
    assert made.held("a") == (FIRST, SECOND)
    made.advance(2000)
    made.clean_disks(older_than_ms=1000)
    assert made.held("a") == (SECOND,)


def test_a_changelog_grows_until_its_last_runner_stops() -> None:
    """An old owner that goes on beside the new one still writes."""
    made = copies(SteadyRates(records=1000, growth_per_second=10, restore_per_second=1000))
    made.add_process("b", {})
    made.hold_ready("a", FIRST, Role.ACTIVE)
    made.hold_ready("b", FIRST, Role.ACTIVE)
    assert made.running == 1
    made.advance(10_000)
    made.drop("a", FIRST)
    made.advance(20_000)
    assert made.end_offset(FIRST) == 1200
    made.drop("b", FIRST)
    made.advance(30_000)
    assert (made.end_offset(FIRST), made.running) == (1200, 0)


def test_who_is_frozen_restores_nothing() -> None:
    made = copies()
    made.hold("a", FIRST, Role.ACTIVE)
    made.advance(2_000)
    made.frozen.add("a")
    assert made.next_arrival_ms() is None
    assert made.hold("a", STATELESS, Role.ACTIVE)
    made.advance(60_000)
    made.frozen.clear()
    assert made.advance(70_000) == [("a", FIRST, 68_000)]


def test_state_that_is_lost_is_restored_anew() -> None:
    made = copies()
    made.hold_ready("a", FIRST, Role.ACTIVE)
    made.hold_ready("a", SECOND, Role.STANDBY)
    made.drop("a", SECOND)
    made.lose("a", FIRST)
    made.lose("a", SECOND)
    assert not made.runs(FIRST)
    assert made.positions("a") == {FIRST: 0}
    assert made.advance(10_000) == [("a", FIRST, 10_000)]
