"""A day under other settings: which are tried, how one trial goes, and which are recommended.

All of it is pure and deterministic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from batonpass.audit.cost import Cost, Counted
from batonpass.audit.day_scenario import DayScenario
from batonpass.audit.findings import Outcome, Recommendation, Value
from batonpass.audit_words import amount
from batonpass.core.state.durations import duration
from batonpass.core.state.errors import InvalidConfig
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.core.state.policy import BalanceBy, GroupConfig, parse_config
from batonpass.simulate.group import NeverAtRest
from batonpass.simulate.scenario.model import Act, Scenario
from batonpass.simulate.scenario.play import LEAD_MS, play

TUNED: Final = (
    *("max_warmup_replicas", "acceptable_recovery_lag", "num_standby_replicas", "rejoin_grace_ms"),
    *("probing_rebalance_interval_ms", "balance_by"),
)
"""The settings that are tried: those that trade downtime, moves and restored bytes against each other, and heat."""

DEFAULTS: Final = GroupConfig()
"""The defaults are tried, too: doubling or halving does not mend settings that are far off."""

GRACES_MS: Final = (60_000, 900_000)
PROBE_OFTEN_MS: Final = 60_000

BETTER_SHARE: Final = 0.10
BETTER_MS: Final = 1_000
"""A change of settings is worthwhile if it saves this share of the downtime, and so many milliseconds."""

SAME_SHARE: Final = 0.05
"""Outcomes whose downtime differs by less than this share of the present one are taken to be equal."""

SOONER_SHARE: Final = 0.25
SOONER_MS: Final = 60_000
"""A change that costs no downtime is worthwhile if tasks wait so much less to run on their targets."""

TENTHS: Final = 10
"""Bytes and waiting are compared in tenths of the present ones, so that a handful of records decides nothing."""

STANDBY_SHARE: Final = 0.5
"""A further standby costs a copy of all state for good, so it has to leave less than this share of the downtime. The
wait for the sessions of dead members is not counted: no standby shortens it."""

SILENCE_SHARE: Final = 0.5
"""The wait for dead members is mentioned if it is more than this share of the downtime that is left."""

COOLER: Final = 0.10
COOLER_MS: Final = 60_000
"""To balance by load is worthwhile if the hottest member is by so much of the average less hot, and tasks are down for
so much longer at most, all of them together."""

CLOSE: Final = 0.25
"""By how large a share the simulation of the present settings may differ from the day to be called close."""


class Needed(NamedTuple):
    """What a change has to save to be worthwhile, beside what the simulation of the present settings is off by.

    ``work`` is a share of the present bytes, or moves.
    """

    downtime_ms: float
    waiting_ms: float
    work: float


def present(scenario: Scenario) -> dict[str, Value]:
    """Return the settings that a day had, of those that are tried."""
    config = parse_config(scenario.config)
    return {name: getattr(config, name) for name in TUNED}


class Grid(NamedTuple):
    """The settings to try beside the present ones: one changed at a time, and several together."""

    alone: tuple[dict[str, Value], ...]
    together: tuple[dict[str, Value], ...]


def grid(scenario: Scenario, now: Outcome) -> Grid:
    """Return what to try that can save something; ``now`` is what the day comes to under the present settings.

    Budgets, lags and probes matter only where something was moved or restored, and a further standby where tasks were
    down for more than the wait for the dead. How long a member that went is waited for is changed only if one went.
    Fewer standbys are tried only if a member died: another day says nothing of what they are for.
    """
    config = parse_config(scenario.config)
    stateful = sum(subtopology.partitions for subtopology in scenario.subtopologies if subtopology.stateful)
    budget, lag, standbys = config.warmup_budget(stateful), config.acceptable_recovery_lag, config.num_standby_replicas
    tried = [present(scenario)]
    acts = {step.act for step in scenario.steps}
    least = 0 if Act.CRASH in acts else standbys
    is_down = _avoidable_ms(now) >= _needed(now, None).downtime_ms
    most = standbys + (is_down and len(scenario.workers) > standbys + 1)
    idle = set() if acts & {Act.CRASH, Act.LEAVE, Act.RESTART} else {"rejoin_grace_ms"}
    if not (now.moves or now.bytes):
        idle |= {"max_warmup_replicas", "acceptable_recovery_lag", "probing_rebalance_interval_ms"}
    other: dict[str, tuple[Value, ...]] = {
        "max_warmup_replicas": (2 * budget, 4 * budget, budget // 2 or budget),
        "acceptable_recovery_lag": (lag * 10, lag // 10),
        "num_standby_replicas": (standbys - 1, most),
        "rejoin_grace_ms": GRACES_MS,
        "probing_rebalance_interval_ms": (min(PROBE_OFTEN_MS, config.probing_rebalance_interval_ms),),
    }
    # Only a day in shadow tells what measured load would have moved, and it is no part of the defaults.
    if config.balance_by is BalanceBy.SHADOW and any(one.load for one in scenario.subtopologies):
        other["balance_by"] = (BalanceBy.MEASURED.value,)
    defaults: dict[str, Value] = {name: getattr(DEFAULTS, name) for name in TUNED if name != "balance_by"}
    alone = [{name: value} for name in TUNED for value in (*other.get(name, ()), defaults.get(name, tried[0][name]))]
    pairs = {"acceptable_recovery_lag": lag // 10, "num_standby_replicas": most, "rejoin_grace_ms": GRACES_MS[-1]}
    together = [{"max_warmup_replicas": 4 * budget, name: value} for name, value in pairs.items()] + [defaults]

    def new(changes: Sequence[Mapping[str, Value]]) -> tuple[dict[str, Value], ...]:
        first = len(tried)
        for change in changes:
            wanted = tried[0] | {name: value for name, value in change.items() if name not in idle}
            is_fair = least <= int(wanted["num_standby_replicas"] or 0) <= most
            if is_fair and wanted not in tried:
                tried.append(wanted)
        return tuple(tried[first:])

    return Grid(new(alone), new(together))


def gets_better(trials: Sequence[Outcome]) -> bool:
    """Return whether some trial has noticeably less downtime, waiting, work or imbalance than the first."""
    now, *others = trials
    return any(
        (getattr(one, cost) or 0) < (1 - SAME_SHARE) * (getattr(now, cost) or 0)
        for one in others
        for cost in ("downtime_ms", "waiting_ms", "bytes", "moves", "imbalance")
    )


def attempt(scenario: Scenario, settings: Mapping[str, Value]) -> Outcome | str:
    """Play a day under other settings, and count its results as those of the real day; a text: why that cannot be."""
    tried = replace(scenario, config={**scenario.config, **settings})
    end_ms = LEAD_MS + (scenario.until_ms or 0)
    counting = Cost(Group(GroupId(scenario.group)), begin_ms=LEAD_MS, end_ms=end_ms)
    try:
        played = play(tried, observer=counting)
    except (NeverAtRest, InvalidConfig) as error:
        return str(error)[:200]
    counted = counting.counted()
    restored = played.outcome.restored_records * scenario.record_bytes
    cost = counted.downtime_ms, counted.moves, restored, counted.waiting_ms, counted.silence_ms
    return Outcome(settings, *cost, len(played.missed), counted.imbalance)


def recommendation(group: str, day: DayScenario, trials: Sequence[Outcome], *, late: bool = False) -> Recommendation:
    """Return what to set; ``trials`` begin with the present settings. ``late``: there was no time for others."""
    now, best = trials[0], choose(trials, day.lived)
    said = _sentences(day, now, best)
    if late:
        said.append("There was no time to try every setting.")
    elif len(trials) == 1:
        said.append("No other setting was tried: none could have saved anything.")
    elif best is now:
        said.append("No setting is clearly better: none saves enough, and more than the simulation is off by.")
    return Recommendation(group, now, best, " ".join(said), tuple(trials))


def choose(trials: Sequence[Outcome], lived: Counted | None = None) -> Outcome:
    """Return the trial to recommend, of several that begin with the present settings; ``lived`` is the real day.

    The least downtime wins if it is worth a change. A trial with more standbys wins only if it leaves less than half of
    the downtime that is possible without, not counting the wait for dead members. Among equals the fewest standbys win,
    then the fewest bytes, the least waiting, the fewest moves, and the fewest changed settings. If nothing lowers the
    downtime, a trial is recommended that brings tasks to their targets sooner, or that has the same result for less; if
    there is none either, to balance by load. Nothing is worth a change that saves less than the simulation of
    the present settings differs from the day.
    """
    now = trials[0]
    needed = _needed(now, lived)
    free = [one for one in trials if _standbys(one) <= _standbys(now)]
    best = _best_of(free, now, needed)
    dear = [one for one in trials if _standbys(one) > _standbys(now)]
    if dear:
        bought = _best_of([*dear, best], now, needed)
        is_better = best.downtime_ms - bought.downtime_ms >= needed.downtime_ms
        if _avoidable_ms(bought) < STANDBY_SHARE * _avoidable_ms(best) and is_better:
            best = bought
    return best if best is not now else _cooler(trials, now, lived)


def _needed(now: Outcome, lived: Counted | None) -> Needed:
    off_ms, off_waiting_ms, off_work = 0, 0, 0.0
    if lived is not None:
        off_ms, off_waiting_ms = abs(now.downtime_ms - lived.downtime_ms), abs(now.waiting_ms - lived.waiting_ms)
        # What the day copied is not known; moves stand for it.
        off_work = abs(now.moves - lived.moves) / max(1, now.moves, lived.moves)
    return Needed(
        max(BETTER_MS, BETTER_SHARE * now.downtime_ms, off_ms + 1),
        max(SOONER_MS, SOONER_SHARE * now.waiting_ms, off_waiting_ms + 1),
        max(BETTER_SHARE, off_work),
    )


def _cooler(trials: Sequence[Outcome], now: Outcome, lived: Counted | None) -> Outcome:
    """Return the trial that balances by load, if that is worth it; else the present settings."""
    for one in trials:
        is_other = one.settings.get("balance_by") != now.settings.get("balance_by")
        if is_other and _cooling(one, now, lived) >= COOLER and one.downtime_ms <= now.downtime_ms + COOLER_MS:
            return one
    return now


def _cooling(one: Outcome, now: Outcome, lived: Counted | None) -> float:
    """Return by how much less hot the hottest member is, beyond what the simulation is off by; 0 if that is unknown."""
    if one.imbalance is None or now.imbalance is None:
        return 0.0
    was = None if lived is None else lived.imbalance
    return now.imbalance - one.imbalance - (0.0 if was is None else abs(now.imbalance - was))


def _avoidable_ms(one: Outcome) -> int:
    """Return the downtime that settings of the grid can do something about."""
    return one.downtime_ms - one.silence_ms


def _best_of(trials: Sequence[Outcome], now: Outcome, needed: Needed) -> Outcome:
    least = min(one.downtime_ms for one in trials)
    room = SAME_SHARE * now.downtime_ms
    near = [one for one in trials if one.downtime_ms <= least + room]
    best = min(near, key=lambda one: _cost(one, now))
    if now.downtime_ms - best.downtime_ms >= needed.downtime_ms:
        return best
    # No trial has less downtime; perhaps one brings tasks to their targets sooner, or costs less.
    bearable_ms = now.downtime_ms + max(BETTER_MS, room)
    same = [one for one in trials if one.downtime_ms <= bearable_ms and _is_no_dearer(one, now)]
    soonest = min(same, key=lambda one: (one.waiting_ms // SOONER_MS, _cost(one, now)), default=now)
    if now.waiting_ms - soonest.waiting_ms >= needed.waiting_ms:
        return soonest
    cheapest = min((now, *same), key=lambda one: _cost(one, now))
    # Where there is no work, none can be saved.
    left = min(one / of if of else 1.0 for one, of in ((cheapest.bytes, now.bytes), (cheapest.moves, now.moves)))
    return cheapest if left < 1 - needed.work else now


def _is_no_dearer(one: Outcome, now: Outcome) -> bool:
    return one.bytes <= (1 + SAME_SHARE) * now.bytes and one.moves <= now.moves


def _cost(one: Outcome, now: Outcome) -> tuple[int, int, int, int, int, str]:
    changed = sum(one.settings.get(name) != now.settings.get(name) for name in TUNED)
    restored = round(TENTHS * one.bytes / now.bytes) if now.bytes else one.bytes
    waiting = round(TENTHS * one.waiting_ms / max(now.waiting_ms, SOONER_MS))
    named = str(sorted(one.settings.items(), key=lambda item: item[0]))
    return _standbys(one), restored, waiting, one.moves, changed, named


def _standbys(one: Outcome) -> int:
    count = one.settings["num_standby_replicas"]
    assert isinstance(count, int)  # noqa: S101 - a setting that is always a number
    return count


def _sentences(day: DayScenario, now: Outcome, best: Outcome) -> list[str]:
    """Say how sure the recommendation is, and what else it costs."""
    lived = day.lived
    what = "the day so far" if day.so_far else "the day"
    told = [
        (
            f"Simulated with the present settings, {what} has {duration(now.downtime_ms)} of downtime and {amount(now.moves, 'move')}; "
            f"the real day had {duration(lived.downtime_ms)} and {lived.moves}."
        ),
    ]
    is_sooner = now.waiting_ms - best.waiting_ms >= _needed(now, day.lived).waiting_ms
    told.append(_how_sure(day, now, by_waiting=is_sooner and best.downtime_ms >= now.downtime_ms))
    if is_sooner:
        told.append(
            f"In total, tasks run away from their target for {duration(best.waiting_ms)} instead of {duration(now.waiting_ms)}."
        )
    if _cooling(best, now, day.lived) >= COOLER:
        told.append(
            f"On average the hottest member has {best.imbalance:.0%} more load than the average one, instead of {now.imbalance:.0%}."
        )
    if best.silence_ms >= BETTER_MS and best.silence_ms > SILENCE_SHARE * best.downtime_ms:
        told.append(
            f"Of the downtime that is left, {duration(best.silence_ms)} is waiting for members that had died: "
            "session_timeout_ms says how long, suspect_timeout_ms where outputs are fenced; neither is tried here."
        )
    extra = _standbys(best) - _standbys(now)
    if extra > 0:
        size = day.scenario.record_bytes
        state = sum(sum(subtopology.records) for subtopology in day.scenario.subtopologies) * size * extra
        more = "1 more copy" if extra == 1 else f"{extra} more copies"
        told.append(f"It keeps {more} of every task, about {state / 1e9:.1f} GB at {size} bytes a record.")
    left_out = [*day.left_out, *([f"{amount(now.missed, 'event')} could not be repeated"] if now.missed else [])]
    if left_out:
        told.append(f"Note: {'; '.join(left_out)}.")
    return told


def _how_sure(day: DayScenario, now: Outcome, *, by_waiting: bool) -> str:
    """Say how well the simulation of the present settings agrees with the day, in what the recommendation rests on."""
    pairs = {"moves": (now.moves, day.lived.moves, 1)}
    pairs["downtime"] = (now.downtime_ms, day.lived.downtime_ms, BETTER_MS)
    if by_waiting:
        pairs["how long tasks run away from their target"] = (now.waiting_ms, day.lived.waiting_ms, SOONER_MS)
    # Values that are next to nothing in both agree.
    apart = [
        what
        for what, (one, other, least) in pairs.items()
        if max(one, other) >= least and abs(one - other) > CLOSE * max(one, other)
    ]
    how = f"does not follow this day in {' and '.join(apart)}" if apart else "follows this day closely"
    return f"The simulation {how}."
