"""Which settings are tried on a day, how one trial goes, and which of them is recommended. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from batonpass.audit.findings import Outcome, Recommendation
from batonpass.audit.whatif_story import Story
from batonpass.core.errors import InvalidConfig
from batonpass.core.ids import GroupId
from batonpass.core.model import Group
from batonpass.core.policy import GroupConfig, parse_config
from batonpass.simulate.staged.model import Scenario
from batonpass.simulate.staged.stage import LEAD_MS, play
from batonpass.simulate.staged.tally import Tally

Value = int | float | str | bool | None

TUNED: Final = (
    *("max_warmup_replicas", "acceptable_recovery_lag", "num_standby_replicas", "rejoin_grace_ms"),
    "probing_rebalance_interval_ms",
)
"""The settings that are tried: those that trade downtime, moves and restored bytes against each other."""

GRACES_MS: Final = (60_000, 900_000)
PROBE_OFTEN_MS: Final = 60_000

BETTER_SHARE: Final = 0.10
BETTER_MS: Final = 1_000
"""A change of settings is worth its while from so much less downtime on: this share of it, and so many milliseconds."""

SAME_SHARE: Final = 0.05
"""Outcomes whose downtime differs by less than this share of the present one are taken to be equal."""

STANDBY_SHARE: Final = 0.5
"""A further standby costs a copy of all state for good: it is to leave less than this share of the downtime."""

CLOSE: Final = 0.25
ROUGH: Final = 0.5
"""By how large a share the simulation of the present settings may differ from the day to be called close, or rough."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one set of settings came to. ``missed`` steps could not be taken; ``refused`` says why none was."""

    settings: Mapping[str, Value]
    downtime_ms: int = 0
    moves: int = 0
    bytes: int = 0
    missed: int = 0
    refused: str = ""

    @property
    def outcome(self) -> Outcome:
        """The trial as it is reported."""
        return Outcome(self.settings, float(self.downtime_ms), self.moves, self.bytes)


def present(scenario: Scenario) -> dict[str, Value]:
    """Return the settings that a day had, of those that are tried."""
    config = parse_config(scenario.config)
    return {name: getattr(config, name) for name in TUNED}


def grid(scenario: Scenario) -> tuple[dict[str, Value], ...]:
    """Return the settings to try, the present ones first: each setting changed by itself, then the likely pairs."""
    config = parse_config(scenario.config)
    stateful = sum(sort.partitions for sort in scenario.tasks if sort.stateful)
    budget, lag, standbys = config.warmup_budget(stateful), config.acceptable_recovery_lag, config.num_standby_replicas
    one_by_one: list[dict[str, Value]] = [{"max_warmup_replicas": count} for count in (2 * budget, 4 * budget)]
    if budget > 1:
        one_by_one.append({"max_warmup_replicas": budget // 2})
    one_by_one += [{"acceptable_recovery_lag": lag * 10}, {"acceptable_recovery_lag": lag // 10}]
    if standbys:
        one_by_one.append({"num_standby_replicas": standbys - 1})
    if len(scenario.present) > standbys + 1:
        one_by_one.append({"num_standby_replicas": standbys + 1})
        one_by_one.append({"num_standby_replicas": standbys + 1, "max_warmup_replicas": 4 * budget})
    one_by_one += [{"rejoin_grace_ms": grace} for grace in GRACES_MS]
    one_by_one.append({"rejoin_grace_ms": GRACES_MS[-1], "max_warmup_replicas": 4 * budget})
    if config.probing_rebalance_interval_ms > PROBE_OFTEN_MS:
        one_by_one.append({"probing_rebalance_interval_ms": PROBE_OFTEN_MS})
    now = present(scenario)
    tried: list[dict[str, Value]] = [now]
    for change in one_by_one:
        wanted = {**now, **change}
        if wanted not in tried and _is_allowed(config, wanted):
            tried.append(wanted)
    return tuple(tried)


def _is_allowed(config: GroupConfig, wanted: Mapping[str, Value]) -> bool:
    try:
        parse_config(wanted, config)
    except InvalidConfig:
        return False
    return True


def attempt(scenario: Scenario, settings: Mapping[str, Value]) -> Trial:
    """Play a day under other settings, and count what it came to as the day itself is counted."""
    tried = replace(scenario, config={**scenario.config, **settings})
    end_ms = LEAD_MS + (scenario.until_ms or 0)
    tally = Tally(Group(GroupId(scenario.group)), begin_ms=LEAD_MS, end_ms=end_ms)
    try:
        played = play(tried, watcher=tally)
    except (RuntimeError, InvalidConfig) as error:
        return Trial(settings, refused=str(error)[:200])
    counted = tally.counted()
    restored = played.outcome.restored_records * scenario.record_bytes
    return Trial(settings, counted.downtime_ms, counted.moves, restored, len(played.missed))


def recommendation(group: str, story: Story, trials: Sequence[Trial]) -> Recommendation:
    """Return what to set; ``trials`` begin with that of the present settings.

    Raises:
        ValueError: The present settings could not be played.
    """
    now = trials[0]
    if now.refused:
        raise ValueError(now.refused)
    played = [one for one in trials if not one.refused]
    best = choose(played)
    return Recommendation(
        group=group,
        present=now.outcome,
        recommended=best.outcome,
        confidence=" ".join(_sentences(story, now, best)),
        grid=tuple(one.outcome for one in played),
    )


def choose(trials: Sequence[Trial]) -> Trial:
    """Return the trial to recommend, of several that begin with the present settings.

    The least downtime wins if it is worth a change; what costs a further copy of all state wins only where it leaves
    less than half of what can be had without. Among equals the fewest standbys, bytes and moves win, then the fewest
    changed settings. Where nothing lowers the downtime, less work for the same downtime is recommended.
    """
    now = trials[0]
    free = [one for one in trials if _standbys(one) <= _standbys(now)]
    best = _best_of(free, now)
    dear = [one for one in trials if _standbys(one) > _standbys(now)]
    if dear:
        bought = _best_of([*dear, best], now)
        if bought.downtime_ms < STANDBY_SHARE * best.downtime_ms and _is_better(bought, best):
            best = bought
    return best


def _best_of(trials: Sequence[Trial], now: Trial) -> Trial:
    least = min(one.downtime_ms for one in trials)
    room = SAME_SHARE * now.downtime_ms
    near = [one for one in trials if one.downtime_ms <= least + room]
    best = min(near, key=lambda one: _cost(one, now))
    if _is_better(best, now):
        return best
    # Nothing is down for less; perhaps something is done for less.
    same = [one for one in trials if one.downtime_ms <= now.downtime_ms]
    cheapest = min((now, *same), key=lambda one: _cost(one, now))
    saves = cheapest.bytes < (1 - BETTER_SHARE) * now.bytes or cheapest.moves < (1 - BETTER_SHARE) * now.moves
    return cheapest if saves and cheapest.bytes <= now.bytes and cheapest.moves <= now.moves else now


def _is_better(one: Trial, other: Trial) -> bool:
    saved = other.downtime_ms - one.downtime_ms
    return saved >= BETTER_MS and saved >= BETTER_SHARE * other.downtime_ms


def _cost(one: Trial, now: Trial) -> tuple[int, int, int, int, str]:
    changed = sum(one.settings[name] != now.settings[name] for name in TUNED)
    # Bytes in hundredths of the present ones, so that a handful of records decides nothing.
    share = round(100 * one.bytes / now.bytes) if now.bytes else one.bytes
    return _standbys(one), share, one.moves, changed, str(sorted(one.settings.items(), key=lambda item: item[0]))


def _standbys(one: Trial) -> int:
    count = one.settings["num_standby_replicas"]
    assert isinstance(count, int)  # noqa: S101 - a setting that is always a number
    return count


def _sentences(story: Story, now: Trial, best: Trial) -> list[str]:
    """Say how sure the recommendation is, and what it costs beside."""
    lived = story.lived
    told = [
        (
            f"Simulated with the present settings, the day has {seconds(now.downtime_ms)} of downtime and {now.moves} moves; "
            f"in truth it had {seconds(lived.downtime_ms)} and {lived.moves}."
        )
    ]
    off = abs(now.downtime_ms - lived.downtime_ms) / max(lived.downtime_ms, now.downtime_ms, 1)
    ratio = off if max(lived.downtime_ms, now.downtime_ms) >= BETTER_MS else 0.0
    moves_off = abs(now.moves - lived.moves) / max(lived.moves, now.moves, 1)
    worst = max(ratio, moves_off)
    if worst <= CLOSE:
        told.append("The simulation follows this day closely.")
    elif worst <= ROUGH:
        told.append("The simulation follows this day roughly: trust the order of the settings more than the figures.")
    else:
        told.append("The simulation does not follow this day: take this as a hint, and try it on one group first.")
    if best is now:
        told.append("No setting that was tried is enough better to change anything.")
    extra = _standbys(best) - _standbys(now)
    if extra > 0:
        state = sum(sum(sort.records) for sort in story.scenario.tasks) * story.scenario.record_bytes * extra
        told.append(f"It keeps {extra} more copy of every task, about {state / 1e9:.1f} GB at 500 bytes a record.")
    left_out = [*story.gaps, *([f"{now.missed} events could not be repeated"] if now.missed else [])]
    if left_out:
        told.append(f"Beware: {'; '.join(left_out)}.")
    return told


def seconds(ms: float) -> str:
    """Write a span of time as people do."""
    if ms < 120_000:
        return f"{ms / 1_000:.1f} s"
    return f"{ms / 60_000:.1f} min" if ms < 7_200_000 else f"{ms / 3_600_000:.1f} h"
