"""The measured load of tasks: smoothed while it is reported, and in steps of a tenth once it is recorded.

A member says of each active how much of one unit of capacity it used (protocol 4.11). The average of what it said, in
which a report counts half as much after ``load_half_life_ms``, is soft state. Hard state has a step: a power of 1.1. It
changes only once the average of a task is more than a whole step away, so that a steady load writes nothing; then every
task gets the step that is nearest to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Final, NamedTuple

from batonpass.core.state.ids import TaskId

STEP: Final = 1.1
"""A ratio, because what matters of two loads is their ratio, in whatever unit they are said."""
LEAST_SHARE: Final = 0.01
"""A load below a hundredth of the average task's counts as that: what is next to nothing may jump as it likes."""
LEAST: Final = 0.000_001
LOAD_MAX: Final = 1_000_000.0
_MEASURED_FROM: Final = 0.5


class SmoothedLoad(NamedTuple):
    """The average of the loads that were said of one task, up to ``at_ms``; ``last`` goes on until the next is said.

    ``total`` is the sum of them, each with its weight, and ``known`` the sum of the weights: below 1 while the task was
    not observed for long.
    """

    total: float
    known: float
    at_ms: int
    last: float

    def until(self, now_ms: int, half_life_ms: int) -> SmoothedLoad:
        """Return the average up to now, if what was said last has gone on."""
        kept = 0.5 ** (max(0, now_ms - self.at_ms) / half_life_ms)
        total, known = self.total * kept + self.last * (1 - kept), self.known * kept + (1 - kept)
        return SmoothedLoad(total, known, max(now_ms, self.at_ms), self.last)

    @property
    def average(self) -> float | None:
        """The average; None before the task was observed for ``load_half_life_ms``."""
        return self.total / self.known if self.known >= _MEASURED_FROM else None


def begun(recorded: float | None, now_ms: int, load: float) -> SmoothedLoad:
    """Return what the first report of a task begins, from its recorded load if it has one."""
    return SmoothedLoad(0.0, 0.0, now_ms, load) if recorded is None else SmoothedLoad(recorded, 1.0, now_ms, load)


def step_of(average: float, least: float) -> float:
    """Return the step that is nearest to an average load."""
    return float(f"{STEP ** round(log(max(average, least), STEP)):.6g}")


def has_left(recorded: float | None, average: float, least: float) -> bool:
    """Say whether an average load is more than a whole step away from the recorded one, or none is recorded."""
    return recorded is None or not recorded / STEP <= max(average, least) <= recorded * STEP


def least_load(recorded: Mapping[TaskId, float]) -> float:
    """Return the load below which differences do not count."""
    return max(LEAST, LEAST_SHARE * sum(recorded.values()) / len(recorded)) if recorded else LEAST


def weight_of_new(recorded: Mapping[TaskId, float]) -> float | None:
    """Return what a task weighs that was not measured yet: the median. None if no task was."""
    return sorted(recorded.values())[(len(recorded) - 1) // 2] if recorded else None
