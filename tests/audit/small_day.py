"""A small day of one group: a join, a crash, a lost disk, two restarts and a drain; and what was noted of it."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from statistics import median_low
from typing import Final

from batonpass.core.decide import Decision
from batonpass.core.state.inputs import Input
from batonpass.core.state.model import Group
from batonpass.core.state.records import Record
from batonpass.core.state.soft import Soft
from batonpass.runtime.chores import sample_of
from batonpass.simulate.scenario.model import Act, Scenario, SimulatedSubtopology, Step, Worker
from batonpass.simulate.scenario.play import play

DAY: Final = date(2026, 11, 20)
BEGIN_MS: Final = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp() * 1_000)
DAY_MS: Final = 86_400_000
MINUTE: Final = 60_000
NAMES: Final = ("a", "b", "c", "d")

SCENARIO: Final = Scenario(
    name="small",
    group="small",
    subtopologies=(
        SimulatedSubtopology((900_000,) * 12, (4.0,) * 12),
        SimulatedSubtopology((0,) * 2, (0.0,) * 2, stateful=False),
    ),
    workers=tuple(Worker(name, tags={"zone": name}, restore_per_second=10_000) for name in (*NAMES, "e")),
    present=NAMES,
    config={"max_warmup_replicas": 1, "num_standby_replicas": 1},
    steps=(
        Step(60 * MINUTE, Act.JOIN, "e"),
        Step(200 * MINUTE, Act.CRASH, "a"),
        Step(203 * MINUTE, Act.RETURN, "a"),
        Step(300 * MINUTE, Act.RESTART, "d"),
        Step(300 * MINUTE + 15_000, Act.RETURN, "d", keeps_disk=False),
        Step(400 * MINUTE, Act.RESTART, "b"),
        Step(400 * MINUTE + 15_000, Act.RETURN, "b"),
        Step(402 * MINUTE, Act.RESTART, "c"),
        Step(402 * MINUTE + 15_000, Act.RETURN, "c"),
        Step(500 * MINUTE, Act.COORDINATOR),
        Step(600 * MINUTE, Act.DRAIN, "e"),
    ),
    until_ms=DAY_MS,
)


@dataclass(slots=True)
class Noted:
    """What a service would have written of the day, as far as a what-if reads it."""

    records: list[tuple[int, int, Record]] = field(default_factory=list)
    lags: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    speeds: dict[str, list[float]] = field(default_factory=dict)
    epoch: int = 1
    started_ms: int = 0

    def decided(self, group: Group, soft: Soft, item: Input, decision: Decision, now_ms: int) -> None:
        """Note the records of a decision; a coordinator that starts again writes under a new epoch."""
        del item
        if soft.started_ms != self.started_ms:
            self.epoch, self.started_ms = self.epoch + bool(group.version), soft.started_ms
        self.records += [(self.epoch, now_ms, record) for record in decision.records]

    def minute(self, group: Group, soft: Soft, now_ms: int) -> None:
        """Note how far copies are."""
        speeds: dict[str, float] = {}
        for copy in sample_of(group, soft, now_ms).copies:
            if copy.lag and copy.role != "none":
                key = (str(copy.member), str(copy.task))
                self.lags[key] = max(self.lags.get(key, (0, 0)), (copy.lag, now_ms))
                if copy.rate and copy.lag > max(1_000, 2 * copy.rate):
                    speeds[copy.member] = speeds.get(copy.member, 0.0) + copy.rate
        for member, speed in speeds.items():
            self.speeds.setdefault(member, []).append(speed)

    @property
    def restored(self) -> dict[str, float]:
        """How fast each member restored, as a rule."""
        return {member: median_low(seen) for member, seen in self.speeds.items()}


def lived() -> Noted:
    """Play the day, and return what was noted."""
    noted = Noted()
    play(SCENARIO, observer=noted, start_ms=BEGIN_MS)
    return noted
