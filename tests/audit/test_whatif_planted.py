"""A day whose settings are plainly bad is rebuilt from its records, and better settings are recommended. No Spark."""

from typing import NamedTuple

import pytest
from tests.audit.small_day import BEGIN_MS, MINUTE, Noted

from batonpass.audit.day_scenario import Sampled, day_scenario
from batonpass.audit.findings import Outcome, Recommendation
from batonpass.audit.trials import attempt, grid, present, recommendation
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.simulate.scenario.model import Act, Scenario, SimulatedSubtopology, Step, Worker
from batonpass.simulate.scenario.play import play

HOUR = 60 * MINUTE


class Bad(NamedTuple):
    """A stretch of time under a bad setting, and what should be said of it."""

    config: dict[str, object]
    steps: tuple[Step, ...]
    better: dict[str, object]
    joiners: str = ""


def restarts(*names: str) -> tuple[Step, ...]:
    """Return a rolling restart."""
    return tuple(
        step
        for place, name in enumerate(names)
        for step in (
            Step((10 + 4 * place) * MINUTE, Act.RESTART, name),
            Step((10 + 4 * place) * MINUTE + 20_000, Act.RETURN, name),
        )
    )


BAD = {
    # Copies count as caught up that have everything to restore still: the task stands still meanwhile.
    "lag": Bad(
        {"acceptable_recovery_lag": 1_000_000_000},
        (Step(10 * MINUTE, Act.JOIN, "e"),),
        {"acceptable_recovery_lag": 10_000},
        "e",
    ),
    # A member dies for good, and nobody has a copy.
    "no-standby": Bad({}, (Step(10 * MINUTE, Act.CRASH, "a"),), {"num_standby_replicas": 1}),
    # Three members join, and only one of them restores at any time.
    "one-slot": Bad(
        {"max_warmup_replicas": 1, "acceptable_recovery_lag": 1_000},
        tuple(Step(10 * MINUTE, Act.JOIN, name) for name in "efg"),
        {"max_warmup_replicas": 4},
        "efg",
    ),
    # Whoever restarts loses its tasks at once, and restores them when it is back.
    "no-grace": Bad(
        {"rejoin_grace_ms": 0, "num_standby_replicas": 1}, restarts("a", "b"), {"rejoin_grace_ms": 300_000}
    ),
}


def advised(bad: Bad) -> Recommendation:
    """Live through it, tell it from what was noted, try the grid, and return what is recommended."""
    names = ("a", "b", "c", "d")
    scenario = Scenario(
        name="bad",
        group="bad",
        subtopologies=(SimulatedSubtopology((300_000,) * 8, (20.0,) * 8),),
        workers=tuple(Worker(name, restore_per_second=10_000) for name in (*names, *bad.joiners)),
        present=names,
        config=bad.config,
        steps=bad.steps,
        until_ms=HOUR,
    )
    noted = Noted()
    play(scenario, observer=noted, start_ms=BEGIN_MS)
    sampled = Sampled(noted.lags, noted.restored)
    day = day_scenario(Group(GroupId("bad")), noted.records, sampled, begin_ms=BEGIN_MS, end_ms=BEGIN_MS + HOUR)
    now = attempt(day.scenario, present(day.scenario))
    assert isinstance(now, Outcome)
    alone, together = grid(day.scenario, now)
    tried = [now, *(attempt(day.scenario, wanted) for wanted in alone + together)]
    return recommendation("bad", day, [one for one in tried if isinstance(one, Outcome)])


@pytest.mark.parametrize("name", BAD)
def test_a_bad_setting_is_found(name: str) -> None:
    bad = BAD[name]
    found = advised(bad)
    changed = {
        setting: value
        for setting, value in found.recommended.settings.items()
        if value != found.present.settings[setting]
    }
    assert changed == bad.better
    now, then = found.present, found.recommended
    gains = {
        "lag": now.downtime_ms - then.downtime_ms > 10_000,
        "no-standby": now.downtime_ms - then.downtime_ms > 30_000,
        "one-slot": now.waiting_ms > 1.5 * then.waiting_ms,
        "no-grace": (now.moves, then.moves, then.bytes) == (4, 0, 0) and bool(now.bytes),
    }
    assert gains[name], found
    assert then.downtime_ms <= now.downtime_ms
    assert "Simulated with the present settings" in found.confidence
    assert "this day" in found.confidence
