"""The measured load of tasks: smoothed while it is reported, and in steps of a tenth once it is recorded.

A member says of each active how much of one unit of capacity it used (protocol 4.11). The average of what it said, in
which a report counts half as much after ``load_half_life_ms``, is soft state. Hard state has a step: a power of 1.1. It
changes only once the average of a task is more than a whole step away, so that a steady load writes nothing; then every
task gets the step that is nearest to it.
"""

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
DOUBTED_BELOW: Final = 0.25
"""What a member says of a task is doubted if it is less than this share of what was said where the task was before."""
JUDGED_AFTER: Final = 3
"""After so many half-lives an average has an eighth of what was recorded before, so what was said is known."""
_MEASURED_FROM: Final = 0.5


class SmoothedLoad(NamedTuple):
    """The average of the loads that were said of one task, up to ``at_ms``; ``last`` goes on until the next is said.

    ``total`` is the sum of them, each with its weight, and ``known`` the sum of the weights: below 1 while the task was
    not observed for long. ``before`` is what was recorded when this member began to say anything of it, at
    ``since_ms``, and 0 once the member is believed.
    """

    total: float
    known: float
    at_ms: int
    last: float
    before: float = 0.0
    since_ms: int = 0

    def until(self, now_ms: int, half_life_ms: int) -> "SmoothedLoad":
        """Return the average up to now, if what was said last has gone on."""
        kept = 0.5 ** (max(0, now_ms - self.at_ms) / half_life_ms)
        total, known = self.total * kept + self.last * (1 - kept), self.known * kept + (1 - kept)
        is_judged = now_ms - self.since_ms >= JUDGED_AFTER * half_life_ms
        before = 0.0 if is_judged and total >= known * self.before * DOUBTED_BELOW else self.before
        return self._replace(total=total, known=known, at_ms=max(now_ms, self.at_ms), before=before)

    @property
    def average(self) -> float | None:
        """The average; None before the task was observed for ``load_half_life_ms``."""
        return self.total / self.known if self.known >= _MEASURED_FROM else None

    @property
    def is_doubted(self) -> bool:
        """Whether what is said is much less than what was recorded before this member had the task."""
        return self.average is not None and self.average < self.before * DOUBTED_BELOW

    def counted(self, median: float) -> float | None:
        """Return the load that counts: the average; or, if it is doubted, what was recorded before, if that is nearer.

        Of two members that say so different things of one task, it is not known which is wrong. The load that is nearer
        to the ``median`` of all tasks is the more likely one.
        """
        average = self.average
        if average is None or not self.is_doubted:
            return average
        return self.before if self.before / median < median / max(average, LEAST) else average


def begun(recorded: float | None, now_ms: int, load: float) -> SmoothedLoad:
    """Return what the first report of a task begins, from its recorded load if it has one."""
    if recorded is None:
        return SmoothedLoad(0.0, 0.0, now_ms, load)
    return SmoothedLoad(recorded, 1.0, now_ms, load, recorded, now_ms)


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
