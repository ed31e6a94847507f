"""One group's day, read in order once: what the laws find, what the measures come to, and the stretches behind them."""

from collections.abc import Mapping, Sequence
from typing import Any

from batonpass.audit import rows
from batonpass.audit.checks import BEHIND, broken, unreadable_snapshot
from batonpass.audit.downtime import gap_after
from batonpass.audit.entries import Entry
from batonpass.audit.facts import Fact, Interval, Lag, Probe, Run, Warmup
from batonpass.audit.findings import Finding, GroupDay, Kept
from batonpass.audit.ledger import Ledger
from batonpass.audit.measures import Measures, WorstHour, lag_of
from batonpass.audit.plan import GroupPlan
from batonpass.core.state.model import Group
from batonpass.core.state.records import Record


class GroupFold:
    """Takes the entries of one group's day in the order of the log.

    Attributes:
        kept: what the laws found, and what is worth a look.
        gaps, warmups, intervals: those of the day that were found since these lists were emptied last.
        day: the measures; None before the end, and for the remains of a deleted group.
        worst_hour: the one with the most downtime, if any.
    """

    def __init__(
        self,
        plan: GroupPlan,
        begin_ms: int,
        end_ms: int,
        *,
        lags: Mapping[tuple[str, str], Sequence[Lag]] | None = None,
        generations: Sequence[rows.Generation] = (),
    ) -> None:
        """Begin. ``lags`` are what samples say of warmups, by task and member; ``generations`` those of the day."""
        self.kept = Kept()
        self.gaps: list[rows.Gap] = []
        self.warmups: list[rows.Warmup] = []
        self.intervals: list[rows.Interval] = []
        self.day: GroupDay | None = None
        self.worst_hour: WorstHour | None = None
        self._behind: list[Finding] = []
        self.ledger = Ledger(plan, begin_ms)
        self._begin_ms, self._end_ms = begin_ms, end_ms
        self._lags = lags or {}
        self._generations = generations
        self._measures = Measures(self.ledger, self.kept, begin_ms, end_ms)

    def take(self, entry: Entry) -> None:
        if entry.place == 0:
            self._measures.record(entry)
        for fact in self.ledger.take(entry):
            self._learn(fact)

    def follow(self, known: Group | Record | None, at_ms: int) -> None:
        """Take what the next entries are of: the group of the snapshot, or a record; None where it cannot be read."""
        self._measures.follow(known, at_ms)

    def end(self, *, lawful: bool = False) -> None:
        """End the day.

        ``lawful``: every decision of the day was made again, with the soft state of then, and nothing was found. A copy
        that is caught up when it is chosen may have fallen a little behind when its owner has stopped; the log has only
        that later state. So what the log alone says of such copies is left to the replay.
        """
        for fact in self.ledger.end():
            self._learn(fact)
        if not lawful:
            self.kept.add(*self._behind)
        self.day = self._measures.day(self._generations)
        self.worst_hour = self._measures.worst_hour()

    def _learn(self, fact: Fact) -> None:
        for one in broken(fact, self.ledger):
            if one.law == "L7" and one.detail.endswith(BEHIND):
                self._behind.append(one)
            else:
                self.kept.add(one)
        if isinstance(fact, Run):
            self._learn_run(fact)
        elif isinstance(fact, Entry):
            self._measures.noted(fact)
            self.kept.add(*unreadable_snapshot(fact, self.ledger))
        elif isinstance(fact, Warmup):
            self._learn_warmup(fact)
        elif isinstance(fact, Interval):
            self._learn_interval(fact)
        elif isinstance(fact, Probe):
            self._measures.probe(fact)

    def _learn_run(self, run: Run) -> None:
        gap = gap_after(run, self.ledger, self._begin_ms, self._end_ms)
        if gap is not None:
            self._measures.gap(gap)
            self.gaps.append(gap)

    def _learn_warmup(self, one: Warmup) -> None:
        began, ended = one.began, one.ended
        task, member = began.task or "", began.member or ""
        lags = [*one.lags, *self._lags.get((task, member), ())]
        self._measures.warmup(one, lags)
        self.warmups.append(
            rows.Warmup(
                **self._ends(began, ended),
                from_at_ms=began.at_ms,
                to_at_ms=ended.at_ms if ended is not None else None,
                outcome=one.outcome,
                lag=lag_of(one, lags),
                fresh=one.fresh,
            )
        )

    def _learn_interval(self, one: Interval) -> None:
        began, ended = one.began, one.ended
        if began.ms < self._end_ms and (ended is None or ended.ms >= self._begin_ms):
            self.intervals.append(
                rows.Interval(
                    **self._ends(began, ended),
                    running_ms=one.running_ms,
                    token=began.token,
                    ready=began.ready,
                    why=ended.word or ended.what if ended is not None else None,
                )
            )

    def _ends(self, began: Entry, ended: Entry | None) -> dict[str, Any]:
        """Return the columns of a stretch that say of what it is, and from when to when."""
        return {
            "task": began.task or "",
            "member": began.member or "",
            "name": self.ledger.name_of(began.member or ""),
            "from_seq": began.seq,
            "from_ms": began.ms,
            "to_seq": ended.seq if ended is not None else None,
            "to_ms": ended.ms if ended is not None else None,
        }
