"""One group's day, read in order once: what the laws find, what the measures come to, and the stretches behind them."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from batonpass.audit import rows
from batonpass.audit.checks import BEHIND, broken, unreadable_snapshot
from batonpass.audit.downtime import distributions, gap_after, lifetime_ms
from batonpass.audit.entries import DAMAGE, Entry
from batonpass.audit.facts import Fact, Interval, Lag, Probe, Run, Warmup
from batonpass.audit.findings import Finding, GroupDay, Kept
from batonpass.audit.ledger import Ledger
from batonpass.audit.measures import (
    COUNTED,
    OF_CAUSES,
    WENT,
    WorstHour,
    balance,
    flapping,
    lag_of,
    lower_bound_of,
    stalled_warmup,
    stuck_task,
    stuck_warmup,
)
from batonpass.audit.plan import HOUR_MS, GroupPlan
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.core.state.records import Record
from batonpass.simulate.scenario.heat import Heat


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
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._gaps: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        self._longest_unowned_ms = 0
        self._down_ms: Counter[int] = Counter()
        self._departures: list[Entry] = []
        new = Group(GroupId(plan.group))
        self._heat = Heat(new, begin_ms=begin_ms, end_ms=end_ms) if plan.known else None

    def take(self, entry: Entry) -> None:
        if entry.place == 0 and entry.seq >= self.ledger.plan.first:
            self._counts["records"] += 1
        for fact in self.ledger.take(entry):
            self._learn(fact)

    def follow(self, known: Group | Record | None, at_ms: int) -> None:
        """Count how hot members were: take what the next entries are of, the group of the snapshot, or a record.

        None: it cannot be read. From there on nothing of that is known.
        """
        try:
            if isinstance(known, Group):
                self._heat = Heat(known, begin_ms=self._begin_ms, end_ms=self._end_ms)
            elif known is None:
                self._heat = None
            elif self._heat is not None:
                self._heat.take(known, at_ms)
        except DAMAGE:
            self._heat = None

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
        self.day = self._measured()
        worst = max(self._down_ms.items(), key=lambda one: (one[1], -one[0]), default=None)
        self.worst_hour = None if worst is None else WorstHour(self._begin_ms + worst[0] * HOUR_MS, worst[1])

    def _learn(self, fact: Fact) -> None:
        for one in broken(fact, self.ledger):
            if one.law == "L7" and one.detail.endswith(BEHIND):
                self._behind.append(one)
            else:
                self.kept.add(one)
        if isinstance(fact, Run):
            self._learn_run(fact)
        elif isinstance(fact, Entry):
            self._note(fact)
            self.kept.add(*unreadable_snapshot(fact, self.ledger))
        elif isinstance(fact, Warmup):
            self._learn_warmup(fact)
        elif isinstance(fact, Interval):
            self._learn_interval(fact)
        elif isinstance(fact, Probe) and fact.entry.at_ms >= self._begin_ms:
            self._counts["probes"] += 1
            self._counts["futile_probes"] += fact.futile

    def _note(self, entry: Entry) -> None:
        """Count what is placed, and note who goes."""
        if entry.seq < self.ledger.plan.first:
            return
        self.kept.add(*stalled_warmup(entry, self.ledger))
        what = entry.what
        if what == "placed":
            self._counts["generations"] += (entry.token or 0) > 0
            self._counts["moves"] += entry.until_ms or 0
            self._counts["lower_bound"] += lower_bound_of(entry.word)
        elif what in ("away", "suspected") or (what == "gone" and entry.word in WENT):
            self._departures.append(entry)

    def _learn_run(self, run: Run) -> None:
        gap = gap_after(run, self.ledger, self._begin_ms, self._end_ms)
        if gap is not None:
            self.kept.add(*stuck_task(gap, self.ledger.plan.group, self._end_ms))
            self._gaps[gap.cause].append(gap.gap_ms)
            self._longest_unowned_ms = max(self._longest_unowned_ms, gap.unowned_ms)
            self._down_ms[(gap.from_ms - self._begin_ms) // HOUR_MS] += gap.gap_ms
            self.gaps.append(gap)

    def _learn_warmup(self, one: Warmup) -> None:
        began, ended = one.began, one.ended
        task, member = began.task or "", began.member or ""
        lags = [*one.lags, *self._lags.get((task, member), ())]
        self.kept.add(*stuck_warmup(one, lags, self.ledger.plan.group, self._begin_ms, self._end_ms))
        if ended is None or ended.ms >= self._begin_ms:
            self._counts["warmups"] += 1
            self._counts["wasted_warmups"] += one.outcome == "dropped"
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

    def _measured(self) -> GroupDay | None:
        """Return the day's results; None for the remains of a deleted group, which has no tasks and no day."""
        ledger, counts, went = self.ledger, self._counts, self._flapping()
        self.kept.add(*went)
        tasks_seen = sum(task.seen for task in ledger.tasks.values())
        if not counts["records"] and not tasks_seen:
            return None
        downtime_ms = sum(map(sum, self._gaps.values()))
        task_ms = lifetime_ms(ledger.tasks.values(), self._begin_ms, self._end_ms)
        measures: dict[str, float | int | None] = {name: counts[name] for name in COUNTED}
        measures["flapping_members"] = len(went)
        measures["downtime_ms"] = downtime_ms
        for name, cause in OF_CAUSES.items():
            measures[name] = len(self._gaps[cause]) if cause in self._gaps else 0
        measures["longest_unowned_ms"] = self._longest_unowned_ms
        measures["excess_moves"] = counts["moves"] - counts["lower_bound"]
        measures["availability"] = None if not task_ms else max(0.0, 1 - downtime_ms / task_ms)
        measures |= balance(self._generations, self._end_ms)
        measures |= self._heated()
        measures["tasks_max"] = measures["tasks_max"] or tasks_seen or None
        return GroupDay(ledger.plan.group, measures, distributions(self._gaps))

    def _heated(self) -> dict[str, float | int | None]:
        """Return how hot members were by measured load; None where that is not known, or none was measured."""
        heat, mean = self._heat, None
        if heat is not None:
            with suppress(*DAMAGE):
                mean = heat.mean()
        if heat is None or mean is None:
            return {"load_imbalance": None, "hot_ms": None, "load_moves": None}
        return {"load_imbalance": mean, "hot_ms": heat.hot_ms, "load_moves": heat.moves}

    def _flapping(self) -> list[Finding]:
        """Return a notice for each member that came and went again and again (flapping-member)."""
        suspected = {one.member for one in self._departures if one.what == "suspected"}
        of_identity: defaultdict[str, list[Entry]] = defaultdict(list)
        for one in sorted(self._departures, key=lambda one: (one.at_ms, one.seq)):
            # Who expires after a suspicion has gone once, not twice.
            if one.what == "suspected" or one.member not in suspected:
                # Where the record of its joining is missing, a member is known by its id alone.
                of_identity[self.ledger.identity_of(one.member) or one.member or ""].append(one)
        return [found for name, went in of_identity.items() for found in flapping(name, went, self.ledger.plan.group)]
