"""What of a day is worth a look although it breaks no law, and how uneven the load was."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from batonpass.audit.downtime import STUCK_MS
from batonpass.audit.entries import NUMBER_MOST, Entry
from batonpass.audit.facts import Lag, Warmup
from batonpass.audit.findings import STILL, DowntimeCause, Finding, GroupDay, Severity, time_of
from batonpass.audit.ledger import Ledger
from batonpass.audit.rows import Gap, Generation
from batonpass.audit_words import share
from batonpass.core.state.durations import duration

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


def lower_bound_of(word: str | None) -> int:
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


def flapping(identity: str, went: Sequence[Entry], group: str) -> Iterator[Finding]:
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
