"""Copies on processes in virtual time: who restores at what rate, and which end there is to reach."""

import pytest

from batonpass.simulate.kafka_copies import Copies, Role, SteadyWorld
from batonpass.simulate.kip441 import LATEST, TaskSet

FIRST, SECOND = (0, 0), (0, 1)
STATELESS = (1, 0)
TASKS = TaskSet((FIRST, SECOND), (STATELESS,))
STILL = SteadyWorld(records=10_000, growth_per_second=0, restore_per_second=1000)


def copies(world: SteadyWorld = STILL) -> Copies:
    """One empty process called a."""
    made = Copies(TASKS, world)
    made.add_process("a", {})
    return made


def test_a_lone_copy_restores_at_the_rate_of_its_process() -> None:
    """Ten thousand records at a thousand a second are ten seconds; then the task runs."""
    made = copies()
    assert not made.hold("a", FIRST, Role.ACTIVE)
    assert made.next_arrival_ms() == 10_000
    assert made.advance(20_000) == [(FIRST, 10_000)]
    assert made.is_current("a", FIRST)
    assert made.restored_records == pytest.approx(10_000)


def test_copies_of_one_process_share_its_rate() -> None:
    """Two actives that restore together take twice as long each."""
    made = copies()
    made.hold("a", FIRST, Role.ACTIVE)
    made.hold("a", SECOND, Role.ACTIVE)
    assert made.advance(60_000) == [(FIRST, 20_000), (SECOND, 20_000)]


def test_actives_restore_before_standbys() -> None:
    """A standby gets no share while an active of its process restores."""
    made = copies()
    made.hold("a", SECOND, Role.STANDBY)
    made.hold("a", FIRST, Role.ACTIVE)
    made.advance(10_000)
    assert made.offset_sums("a") == {FIRST: LATEST, SECOND: 0}
    made.advance(20_000)
    assert made.all_current()


def test_a_copy_chases_an_end_that_moves() -> None:
    """At a thousand a second against a hundred more each second, ten thousand records take about eleven seconds."""
    made = Copies(TASKS, SteadyWorld(records=10_000, growth_per_second=100, restore_per_second=1000))
    made.add_process("a", {})
    made.add_process("b", {})
    made.hold_ready("b", FIRST, Role.ACTIVE)
    made.hold("a", FIRST, Role.STANDBY)
    made.advance(11_000)
    assert not made.is_current("a", FIRST)
    made.advance(11_200)
    assert made.is_current("a", FIRST)


def test_the_end_of_a_stopped_task_stands_still() -> None:
    """Nobody writes a changelog whose task does not run; when it runs again, what it missed is written at once."""
    made = Copies(TASKS, SteadyWorld(records=1000, growth_per_second=10, restore_per_second=1000))
    made.add_process("a", {})
    made.hold_ready("a", FIRST, Role.ACTIVE)
    made.advance(10_000)
    made.drop("a", FIRST)
    made.advance(60_000)
    assert made.end_offset(FIRST) == 1100
    assert made.hold("a", FIRST, Role.ACTIVE)
    assert made.end_offset(FIRST) == 1600


def test_a_copy_on_disk_is_as_far_as_it_was_when_it_was_closed() -> None:
    """A standby that followed the end until it was closed stays at that end, while the changelog goes on."""
    made = Copies(TASKS, SteadyWorld(records=1000, growth_per_second=10, restore_per_second=1000))
    made.add_process("a", {})
    made.add_process("b", {})
    made.hold_ready("a", FIRST, Role.ACTIVE)
    made.hold_ready("b", FIRST, Role.STANDBY)
    made.advance(10_000)
    made.drop("b", FIRST)
    made.advance(20_000)
    assert made.offset_sums("b") == {FIRST: 1100}
    assert made.end_offset(FIRST) == 1200


def test_a_standby_that_is_current_is_promoted_at_once() -> None:
    """A promoted standby restores nothing, and an active that is demoted stays at the end."""
    made = copies()
    made.hold_ready("a", FIRST, Role.ACTIVE)
    assert not made.hold("a", FIRST, Role.STANDBY)
    assert made.is_current("a", FIRST)
    assert made.hold("a", FIRST, Role.ACTIVE)
    assert not made.hold("a", FIRST, Role.ACTIVE)
    assert made.restored_records == 0


def test_a_stateless_task_runs_at_once_and_leaves_nothing() -> None:
    """There is nothing to restore, nothing to report and nothing on disk."""
    made = copies()
    assert made.hold("a", STATELESS, Role.ACTIVE)
    assert made.offset_sums("a") == {}
    made.drop("a", STATELESS)
    assert made.held("a") == ()


def test_what_was_not_flushed_is_not_on_disk() -> None:
    """A killed process finds its copies short by what it had not flushed, and never below nothing."""
    made = copies()
    made.hold_ready("a", FIRST, Role.ACTIVE)
    made.hold("a", SECOND, Role.STANDBY)
    made.advance(100)
    assert made.stop_process("a", unflushed_records=400) == {FIRST: 9600, SECOND: 0}


def test_disks_are_cleaned_of_what_nobody_assigned_for_long() -> None:
    """A copy goes when its time is over, not before, and never while it is assigned."""
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
