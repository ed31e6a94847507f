"""What the day cost each group, and what is worth a look although it breaks no law."""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from batonpass.audit.downtime import STUCK_MS, distributions, lifetime_ms
from batonpass.audit.entries import DAMAGE, NUMBER_MOST, Entry
from batonpass.audit.facts import Lag, Probe, Warmup
from batonpass.audit.findings import STILL, DowntimeCause, Finding, GroupDay, Kept, Severity, time_of
from batonpass.audit.ledger import Ledger
from batonpass.audit.plan import HOUR_MS
from batonpass.audit.rows import Gap, Generation
from batonpass.audit_words import share
from batonpass.core.state.durations import duration
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.core.state.records import Record
from batonpass.simulate.scenario.heat import Heat

NOTICE = Severity.NOTICE

STUCK_WARMUP_MS: Final = 3_600_000
"""A warmup whose lag does not fall for so long is stuck.

Batonpass itself gives up a warmup that reads nothing for ``warmup_stall_timeout_ms``.
"""
FLAPS: Final = 4
"""A member that disappears without a leave, or restarts, so often within an hour is flapping."""
FLAPPING_WITHIN_MS: Final = 3_600_000
FLAPS_SHOWN: Final = 20
WASTED_SHARE: Final = 0.5
WASTED_LEAST: Final = 8
FUTILE_SHARE: Final = 0.9
FUTILE_LEAST: Final = 120
"""A group that never rests is probed about so often in a day, by default."""
UNBALANCED_SCORE: Final = 2.0
"""A mean difference of load (weight per capacity, most to least) above this is worth a look."""

HOT_MS: Final = 3_600_000
"""For so long a member may be too hot on a day: by default it takes half an hour until it is relieved."""


class WorstHour(NamedTuple):
    """When an hour began, and how much downtime it has."""

    begin_ms: int
    down_ms: int


WENT: Final = frozenset({"expired", "fenced", "replaced", "taken-over"})
"""The causes of members that went without a word."""


class Measures:
    """Adds up the day of one group out of the facts of its ledger, and keeps a notice of what is worth a look."""

    def __init__(self, ledger: Ledger, kept: Kept, begin_ms: int, end_ms: int) -> None:
        """Begin with nothing; ``kept`` takes the notices."""
        self._ledger, self._kept, self._begin_ms, self._end_ms = ledger, kept, begin_ms, end_ms
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._gaps: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        self._longest_unowned_ms = 0
        self._down_ms: Counter[int] = Counter()
        self._departures: list[Entry] = []
        new = Group(GroupId(ledger.plan.group))
        self._heat = Heat(new, begin_ms=begin_ms, end_ms=end_ms) if ledger.plan.known else None

    def record(self, entry: Entry) -> None:
        if entry.seq >= self._ledger.plan.first:
            self._counts["records"] += 1

    def follow(self, known: Group | Record | None, at_ms: int) -> None:
        """Count how hot members were; from what cannot be read on, nothing of that is known."""
        try:
            if isinstance(known, Group):
                self._heat = Heat(known, begin_ms=self._begin_ms, end_ms=self._end_ms)
            elif known is None:
                self._heat = None
            elif self._heat is not None:
                self._heat.take(known, at_ms)
        except DAMAGE:
            self._heat = None

    def noted(self, entry: Entry) -> None:
        """Count what is placed, and note who goes."""
        if entry.seq < self._ledger.plan.first:
            return
        self._kept.add(*stalled_warmup(entry, self._ledger))
        what = entry.what
        if what == "placed":
            self._counts["generations"] += (entry.token or 0) > 0
            self._counts["moves"] += entry.until_ms or 0
            self._counts["lower_bound"] += _lower_bound(entry.word)
        elif what in ("away", "suspected") or (what == "gone" and entry.word in WENT):
            self._departures.append(entry)

    def gap(self, gap: Gap) -> None:
        self._kept.add(*stuck_task(gap, self._ledger.plan.group, self._end_ms))
        self._gaps[gap.cause].append(gap.gap_ms)
        self._longest_unowned_ms = max(self._longest_unowned_ms, gap.unowned_ms)
        self._down_ms[(gap.from_ms - self._begin_ms) // HOUR_MS] += gap.gap_ms

    def warmup(self, warmup: Warmup, lags: Sequence[Lag]) -> None:
        """Count a warmup that existed during some part of the day; ``lags`` are what is known of its copy."""
        self._kept.add(*stuck_warmup(warmup, lags, self._ledger.plan.group, self._begin_ms, self._end_ms))
        if warmup.ended is None or warmup.ended.ms >= self._begin_ms:
            self._counts["warmups"] += 1
            self._counts["wasted_warmups"] += warmup.outcome == "dropped"

    def probe(self, probe: Probe) -> None:
        if probe.entry.at_ms >= self._begin_ms:
            self._counts["probes"] += 1
            self._counts["futile_probes"] += probe.futile

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
                of_identity[self._ledger.identity_of(one.member) or one.member or ""].append(one)
        return [found for name, went in of_identity.items() for found in _flapping(name, went, self._ledger.plan.group)]

    def worst_hour(self) -> WorstHour | None:
        """Return the first of the hours in which gaps with the most downtime began; None: there are no gaps."""
        worst = max(self._down_ms.items(), key=lambda one: (one[1], -one[0]), default=None)
        return None if worst is None else WorstHour(self._begin_ms + worst[0] * HOUR_MS, worst[1])

    def day(self, generations: Sequence[Generation]) -> GroupDay | None:
        """End the day. Return the results; None for the remains of a deleted group, which has no tasks and no day."""
        ledger, counts, flapping = self._ledger, self._counts, self._flapping()
        self._kept.add(*flapping)
        tasks_seen = sum(task.seen for task in ledger.tasks.values())
        if not counts["records"] and not tasks_seen:
            return None
        downtime_ms = sum(map(sum, self._gaps.values()))
        task_ms = lifetime_ms(ledger.tasks.values(), self._begin_ms, self._end_ms)
        measures: dict[str, float | int | None] = {name: counts[name] for name in COUNTED}
        measures["flapping_members"] = len(flapping)
        measures["downtime_ms"] = downtime_ms
        for name, cause in OF_CAUSES.items():
            measures[name] = len(self._gaps[cause]) if cause in self._gaps else 0
        measures["longest_unowned_ms"] = self._longest_unowned_ms
        measures["excess_moves"] = counts["moves"] - counts["lower_bound"]
        measures["availability"] = None if not task_ms else max(0.0, 1 - downtime_ms / task_ms)
        measures |= balance(generations, self._end_ms)
        measures |= self._heated()
        measures["tasks_max"] = measures["tasks_max"] or tasks_seen or None
        return GroupDay(ledger.plan.group, measures, distributions(self._gaps))


def _lower_bound(word: str | None) -> int:
    """Return the lower bound that a placement names; what is no possible number counts as none."""
    try:
        bound = int(word or 0)
    except ValueError:
        return 0
    return bound if abs(bound) < NUMBER_MOST else 0


COUNTED: Final = (
    *("records", "generations", "moves", "lower_bound", "warmups", "wasted_warmups", "probes", "futile_probes"),
)
OF_CAUSES: Final = {
    "handovers": DowntimeCause.WARM_HANDOVER,
    "failovers": DowntimeCause.FAILOVER,
    "cold_starts": DowntimeCause.COLD_START,
}
"""The measures that are numbers of gaps."""


def _flapping(identity: str, went: Sequence[Entry], group: str) -> Iterator[Finding]:
    """Yield the notice of the worst hour of a member, if it went often enough in it: of equally bad ones the last."""

    def hour_up_to(last: Entry) -> Sequence[Entry]:
        begin = bisect_left(went, last.at_ms - FLAPPING_WITHIN_MS, key=_when)
        return went[begin : bisect_right(went, last.at_ms, key=_when)]

    worst = max(map(hour_up_to, went), key=lambda some: (len(some), some[-1].at_ms))
    if len(worst) >= FLAPS:
        until, shown = time_of(worst[-1].at_ms), worst[:FLAPS_SHOWN]
        detail = f"went and came back {len(worst)} times within an hour, until {until}"
        proof = tuple(one.seq for one in shown), tuple(one.at_ms for one in shown)
        yield Finding(group, "flapping-member", NOTICE, None, identity, detail, *proof)


def _when(one: Entry) -> int:
    return one.at_ms


def balance(generations: Sequence[Generation], end_ms: int) -> dict[str, float | int | None]:
    """Return how uneven the load was: by the target of each generation, for as long as it was in force."""
    in_order = sorted(generations, key=lambda one: one.number)
    ends = [one.at_ms for one in in_order[1:]] + [end_ms]
    stood = [end - one.at_ms for one, end in zip(in_order, ends, strict=True)] if in_order else []
    scored = [(one.score, ms) for one, ms in zip(in_order, stood, strict=True) if one.score is not None]
    whole = sum(stood)
    return {
        "balance_mean": sum(score * ms for score, ms in scored) / whole if scored and whole else None,
        "balance_worst": max((score for score, _ in scored), default=None),
        "members_max": max((one.members for one in in_order), default=None),
        "tasks_max": max((one.tasks for one in in_order), default=None),
    }


def stuck_warmup(warmup: Warmup, lags: Sequence[Lag], group: str, begin_ms: int, end_ms: int) -> Iterator[Finding]:
    """Yield the notice of a warmup that took very long without coming closer (stuck-warmup).

    ``lags`` are what is known of its copy at any time.
    """
    began = warmup.began
    until_ms = warmup.ended.ms if warmup.ended is not None else end_ms
    took_ms = until_ms - began.ms
    if took_ms < STUCK_WARMUP_MS or until_ms < begin_ms:
        return
    sampled = sorted((one for one in lags if began.ms <= one.at_ms <= until_ms), key=lambda one: one.at_ms)
    first = sampled[0].lag if sampled else None
    last = max(((one.at_ms, one.lag) for one in sampled if one.lag is not None), default=(0, None))[1]
    if first is None or last is None or last >= first:
        still = f", still so {STILL}" if warmup.ended is None else ""
        detail = f"a warmup that began at {time_of(began.ms)} made no progress in {duration(took_ms)}{still}"
        ends = [one for one in (began, warmup.ended) if one is not None]
        proof = tuple(one.seq for one in ends), tuple(one.at_ms for one in ends)
        yield Finding(group, "stuck-warmup", NOTICE, began.task, began.member, detail, *proof)


def stalled_warmup(one: Entry, ledger: Ledger) -> Iterator[Finding]:
    """Yield the notice of a warmup that Batonpass gave up on (stuck-warmup)."""
    if one.what == "stalled":
        detail = f"its warmup made no progress and was given up at {time_of(one.at_ms)}"
        yield Finding(ledger.plan.group, "stuck-warmup", NOTICE, one.task, one.member, detail, (one.seq,), (one.at_ms,))


def stuck_task(gap: Gap, group: str, end_ms: int) -> Iterator[Finding]:
    """Yield the notice of a task that no member was granted for long (stuck-task): since when, and until when."""
    if gap.unowned_ms > STUCK_MS and gap.runner is not None:
        lasted, why = duration(gap.unowned_ms), "?" if gap.why is None else gap.why
        detail = f"granted to nobody for {lasted} from {time_of(gap.from_ms)} (why it had no owner: {why})"
        sequences = () if gap.down_seq is None else (gap.down_seq,)
        is_open = gap.next_up_seq is None and gap.from_ms + gap.unowned_ms == end_ms
        detail += f", still so {STILL}" if is_open else ""
        at = (gap.from_ms,) if is_open else (gap.from_ms, gap.from_ms + gap.unowned_ms)
        yield Finding(group, "stuck-task", NOTICE, gap.task, gap.runner, detail, sequences, at)


def lag_of(warmup: Warmup, lags: Iterable[Lag]) -> int | None:
    """Return what a warmup had to restore: by the record of its grant, else by the first sample of it."""
    until_ms = warmup.ended.ms if warmup.ended is not None else None
    known = [
        (one.at_ms, one.lag)
        for one in lags
        if one.lag is not None and one.at_ms >= warmup.began.ms and (until_ms is None or one.at_ms <= until_ms)
    ]
    return min(known)[1] if known else None


def notices(days: Mapping[str, GroupDay], objective: float | None) -> list[Finding]:
    """Return what is worth a look in the measures of each group."""
    return [
        Finding(name, law, NOTICE, None, None, detail)
        for name, day in sorted(days.items())
        for law, detail in worth_a_look(day, objective)
    ]


def worth_a_look(day: GroupDay, objective: float | None) -> list[tuple[str, str]]:
    """Return which measures of a group are out of the ordinary, each as a law and a sentence."""
    found: list[tuple[str, str]] = []
    measures = {name: value or 0 for name, value in day.measures.items()}
    available = day.measures["availability"]
    if objective is not None and available is not None and available < objective:
        lost = f"{duration(measures['downtime_ms'])} of downtime"
        detail = f"tasks were run {share(available)} of the time; the objective is {share(objective)} ({lost})"
        found.append(("downtime-objective", detail))
    wasted, warmed = measures["wasted_warmups"], measures["warmups"]
    if wasted >= WASTED_LEAST and wasted > WASTED_SHARE * warmed:
        found.append(
            ("wasted-warmup", f"{wasted:.0f} of {warmed:.0f} warmups were dropped before they could take over")
        )
    futile, looks = measures["futile_probes"], measures["probes"]
    if futile >= FUTILE_LEAST and futile > FUTILE_SHARE * looks:
        found.append(("futile-probes", f"{futile:.0f} of {looks:.0f} probing rebalances changed nothing"))
    mean, worst = measures["balance_mean"], measures["balance_worst"]
    # Where load is measured, weights are in the unit of what members say, and the load is judged itself.
    if mean > UNBALANCED_SCORE and day.measures.get("load_imbalance") is None:
        more = f"{mean:.2f} (weight per capacity) more than the least loaded one over the day; at worst {worst:.2f}"
        found.append(("unbalanced", f"the most loaded member had {more}"))
    if measures["hot_ms"] > HOT_MS:
        more = f"on average over the day the hottest had {measures['load_imbalance']:.0%} more load than the average"
        carried = f"balanced, the same members would carry {1 + measures['load_imbalance']:.2f} times as much"
        found.append(("too-hot", f"a member was too hot for {duration(measures['hot_ms'])}: {more}; {carried}"))
    return found
