"""What a stretch of time cost a group, by the audit's own ledger: a day and its simulation are counted alike."""

from collections.abc import Iterable
from dataclasses import dataclass

from batonpass.audit.downtime import down_since, gap_after
from batonpass.audit.entries import Entry, entries_of, standing
from batonpass.audit.facts import Run
from batonpass.audit.ledger import Ledger
from batonpass.audit.plan import GroupPlan
from batonpass.core.decide import Decision
from batonpass.core.state import records as r
from batonpass.core.state.inputs import Input
from batonpass.core.state.model import Group
from batonpass.core.state.soft import Soft
from batonpass.simulate.scenario.heat import Heat
from batonpass.simulate.scenario.tally import Tally


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted. ``moves`` are changes of targets, ``downtime_ms`` is summed over all tasks.

    ``waiting_ms`` is how long tasks ran on a member other than their target, ``silence_ms`` how much of the downtime
    was spent waiting for the sessions of dead members to end: both summed over all tasks. ``imbalance`` is by how much
    the hottest member was above the average by measured load, on average; None where none was measured.
    """

    downtime_ms: int
    moves: int
    waiting_ms: int = 0
    silence_ms: int = 0
    imbalance: float | None = None


class Cost:
    """Takes the records of a group from ``begin_ms`` to ``end_ms``; what is before costs nothing."""

    def __init__(self, group: Group, *, begin_ms: int, end_ms: int) -> None:
        """Begin with a group as it was before the first record."""
        self._seq = version = group.version
        plan = GroupPlan(group.id, base=version, known=True, first=version + 1, last=version + 1, missing=0)
        self._ledger = Ledger(plan, begin_ms)
        self._tally = Tally(group, begin_ms=begin_ms)
        self._heat = Heat(group, begin_ms=begin_ms, end_ms=end_ms)
        self._begin_ms, self._end_ms = begin_ms, end_ms
        self._downtime_ms = self._silence_ms = self._waiting_ms = 0
        # Since when tasks run on a member other than their target.
        self._away_ms: dict[str, int] = {}
        for entry in standing(group, version, begin_ms):
            self._take(entry)

    def take(self, records: Iterable[r.Record], at_ms: int) -> None:
        for record in records:
            self._seq += 1
            self._heat.take(record, at_ms)
            self._tally.take(record)
            for entry in entries_of(record, self._seq, at_ms, 0):
                self._take(entry)

    def decided(self, _group: Group, _soft: Soft, _item: Input, decision: Decision, now_ms: int) -> None:
        self.take(decision.records, now_ms)

    def minute(self, group: Group, soft: Soft, now_ms: int) -> None:
        """Do nothing: time alone costs nothing."""

    def counted(self) -> Counted:
        """Return the result at the end; a task that is still down counts until then."""
        self._learn(self._ledger.end())
        for since_ms in self._away_ms.values():
            self._waiting_ms += self._within(since_ms, self._end_ms)
        return Counted(
            self._downtime_ms, self._tally.moves, self._waiting_ms, self._silence_ms, imbalance=self._heat.mean()
        )

    def _within(self, since_ms: int, until_ms: int) -> int:
        """Return how much of a stretch counts."""
        return max(0, min(until_ms, self._end_ms) - max(since_ms, self._begin_ms))

    def _take(self, entry: Entry) -> None:
        self._learn(self._ledger.take(entry))
        if entry.task is not None:
            self._look(entry.task, entry.ms)
        else:
            # Who goes has its tasks no longer; a place that is inherited is the target of others.
            for task in list(self._ledger.tasks if entry.what == "inherited" else self._away_ms):
                self._look(task, entry.ms)

    def _learn(self, facts: Iterable[object]) -> None:
        for run in facts:
            if isinstance(run, Run):
                gap = gap_after(run, self._ledger, self._begin_ms, self._end_ms)
                self._downtime_ms += 0 if gap is None else gap.gap_ms
                if run.down is not None and (since_ms := down_since(run, self._ledger)) is not None:
                    self._silence_ms += self._within(since_ms, run.down.ms)

    def _look(self, task: str, at_ms: int) -> None:
        """Note whether a task runs on a member other than its target, from now on."""
        run, target = self._ledger.tasks[task].run, self._tally.targets.get(task)
        runs = run.up is not None and run.down is None and run.ended_ms is None
        if runs and target not in (None, run.runner):
            self._away_ms.setdefault(task, at_ms)
        elif (since_ms := self._away_ms.pop(task, None)) is not None:
            self._waiting_ms += self._within(since_ms, at_ms)
