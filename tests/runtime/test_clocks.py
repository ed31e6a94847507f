"""A coordinator's clock: the database's, as readings of it tell, on a machine whose own may show anything."""

import pytest

from batonpass.runtime.clocks import MOVED_MS, UNCERTAIN_MAX_MS, DatabaseClock

HOUR_MS = 3_600_000.0
DATABASE_MS = 1_800_000_000_000.0


class Machine:
    """A machine that has just started, whose time of day is ``ahead_ms`` ahead of the database's."""

    def __init__(self, ahead_ms: float = 0.0) -> None:
        self.boot_ms = 5_000.0
        self.ahead_ms = ahead_ms
        self.database_ahead_ms = DATABASE_MS - self.boot_ms
        self.clock = DatabaseClock(
            boot=lambda: self.boot_ms, wall=lambda: self.boot_ms + DATABASE_MS - 5_000.0 + self.ahead_ms
        )

    @property
    def database_ms(self) -> float:
        """What the database's clock shows."""
        return self.boot_ms + self.database_ahead_ms

    @property
    def off_ms(self) -> float:
        """By how much the clock is wrong."""
        return self.clock.now_ms() - self.database_ms

    def read(self, there_ms: float = 1.0, back_ms: float = 1.0) -> None:
        """Ask the database for its time; so long takes the way there and back."""
        sent_ms = self.boot_ms
        self.boot_ms += there_ms
        read_ms = self.database_ms
        self.boot_ms += back_ms
        self.clock.read(read_ms, sent_ms=sent_ms)


@pytest.mark.parametrize("ahead_ms", [0.0, HOUR_MS, -HOUR_MS])
def test_it_shows_the_databases_time_whatever_the_machine_shows(ahead_ms: float) -> None:
    machine = Machine(ahead_ms)
    machine.read()
    assert abs(machine.off_ms) <= 2
    machine.boot_ms += HOUR_MS
    assert abs(machine.off_ms) <= 2
    assert machine.clock.ahead_ms() == pytest.approx(-ahead_ms, abs=2)
    assert machine.clock.moved_ms is None


def test_before_the_first_reading_nobody_may_decide_by_it() -> None:
    machine = Machine(HOUR_MS)
    assert not machine.clock.is_known()
    assert machine.clock.ahead_ms() == 0
    machine.read()
    assert machine.clock.is_known()


def test_it_is_as_uncertain_as_its_best_reading() -> None:
    machine = Machine()
    machine.read(2 * UNCERTAIN_MAX_MS + 2, 0)
    assert not machine.clock.is_known()
    machine.read(3, 5)
    assert machine.clock.uncertain_ms() <= 8
    machine.read(3_000, 0)
    machine.read(0, 3_000)
    assert machine.clock.uncertain_ms() < 12
    assert abs(machine.off_ms) <= 12


def test_a_slow_answer_moves_nothing() -> None:
    machine = Machine()
    machine.read()
    machine.read(0, 4_000)
    machine.read(4_000, 0)
    assert machine.clock.moved_ms is None
    assert abs(machine.off_ms) <= 6


@pytest.mark.parametrize(("there_ms", "back_ms"), [(3_000, 0), (0, 3_000), (1_500, 1_500)])
def test_a_slow_first_answer_moves_nothing(there_ms: float, back_ms: float) -> None:
    machine = Machine()
    machine.read(there_ms, back_ms)
    assert not machine.clock.is_known()
    machine.read()
    assert machine.clock.is_known()
    assert machine.clock.moved_ms is None
    assert abs(machine.off_ms) <= 2


def test_a_step_before_anybody_could_decide_by_it_is_followed_and_no_news() -> None:
    machine = Machine()
    machine.read(3_000, 0)
    machine.database_ahead_ms -= HOUR_MS
    machine.read()
    assert machine.clock.moved_ms is None
    assert abs(machine.off_ms) <= 2


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_a_step_that_a_slow_answer_shows_is_said_once(by_ms: float) -> None:
    machine = Machine()
    machine.read()
    machine.database_ahead_ms += by_ms
    machine.read(0, 3_000)
    said = machine.clock.moved_ms
    assert said is not None
    machine.read()
    assert machine.clock.moved_ms == said


@pytest.mark.parametrize("by_ms", [MOVED_MS / 2, -MOVED_MS / 2])
def test_small_corrections_are_followed_and_it_never_goes_back(by_ms: float) -> None:
    machine = Machine()
    machine.read()
    before = machine.clock.now_ms()
    machine.database_ahead_ms += by_ms
    machine.read()
    assert machine.clock.now_ms() >= before
    machine.boot_ms += MOVED_MS
    assert abs(machine.off_ms) <= 2
    assert machine.clock.moved_ms is None


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_a_step_is_followed_and_said(by_ms: float) -> None:
    machine = Machine()
    machine.read()
    machine.database_ahead_ms += by_ms
    machine.read()
    assert abs(machine.off_ms) <= 2
    assert machine.clock.moved_ms == machine.clock.now_ms()


def test_a_machine_that_runs_too_fast_keeps_the_databases_time() -> None:
    machine = Machine()
    for _ in range(1_000):
        machine.read()
        machine.boot_ms += 1_500
        machine.database_ahead_ms -= 0.3
        assert abs(machine.off_ms) <= 4
    assert machine.clock.moved_ms is None
