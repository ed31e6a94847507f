"""The day under other settings, in Spark.

One task reads one group's day, then one task plays it under one set of settings. `day_scenario` makes the scenario of a
day; `trials` has the settings and the recommendation.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from statistics import median_low
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from batonpass.audit.database import reading
from batonpass.audit.day_scenario import DayScenario, NoDayScenario, Sampled, day_scenario
from batonpass.audit.entries import DAMAGE, read_group, read_record
from batonpass.audit.findings import UNREAD, Finding, GroupDay, Outcome, Recommendation, Severity, Value
from batonpass.audit.plan import DAY_MS, DayPlan, GroupPlan, quoted
from batonpass.audit.reading import COPIES, SNAPSHOT, WHOLE_LAG, LogRow, log_rows
from batonpass.audit.session import followed
from batonpass.audit.trials import attempt, gets_better, grid, present, recommendation
from batonpass.codec.records import StoredRecord
from batonpass.core.state import records as r
from batonpass.core.state.ids import GroupId
from batonpass.core.state.model import Group
from batonpass.simulate.scenario.model import Scenario

if TYPE_CHECKING:
    from batonpass.audit.spread import DayTables


GROUPS_MOST: Final = 12
"""So many groups are played again, those with the most downtime first: each costs some dozen simulated days."""

RECORDS_MOST: Final = 200_000
"""A group with more records a day than this is left out: it would hold up the others."""

INCOMPLETE: Final = "what-if-incomplete"

DOUBTS: Final = frozenset({"L1", "L2", "L4"}) | UNREAD
"""What is found of a group whose day cannot be trusted."""

RESTORES_LEAST: Final = 1_000
"""A copy that lacks fewer records, or less than two seconds' worth, does not show how fast a member restores."""

_RATE: Final = r"case when copy ->> 5 ~ '^\d{1,15}(\.\d+)?([eE]-?\d{1,2})?$' then (copy ->> 5)::float8 end"
_SAMPLES: Final = (
    "select (date_part('epoch', at) * 1000)::bigint as at_ms, copy ->> 0 as task, copy ->> 1 as member,"  # noqa: S608 - constants
    f" {WHOLE_LAG} as lag, {_RATE} as rate from samples cross join lateral {COPIES} as copy"
    f" where {WHOLE_LAG} > 0 and copy ->> 2 <> 'none' and copy ->> 0 is not null and copy ->> 1 is not null"
    " and group_id = {group} and {within} order by at"
)

BUDGET_S: Final = 120.0
"""How long other settings are tried, if nothing else is said."""

NO_TIME: Final = "no time was left"

Day = DayScenario | str
"""A group's day as it can be played again, or why it cannot."""
Trial = Outcome | str
"""What a day came to under some settings, or why it was not played."""


_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class Tried(NamedTuple):
    """What to set for each group; for each group without a recommendation a finding with the reason.

    ``left_out``: how many trials there was no time for; what they would have led to is not counted.
    """

    recommendations: tuple[Recommendation, ...] = ()
    findings: tuple[Finding, ...] = ()
    left_out: int = 0


def recommend(
    tables: "DayTables",
    groups: Sequence[GroupDay],
    tell: Callable[[str], None],
    *,
    budget_s: float = BUDGET_S,
) -> Tried:
    """Return what to set for the groups that were down longest, by name.

    The present settings are played first: without them nothing is known of a group, and they show what can be saved.
    Where no setting gets better by itself, several together are not tried. The same day gives the same result, unless
    ``budget_s`` ends before every setting was tried.

    A group whose day cannot be played again gets a notice with the reason.
    """
    until_s = time.time() + budget_s
    chosen = worth_trying(groups, GROUPS_MOST)
    plans = {one.group: one for one in tables.plan.groups if one.group in chosen and one.last >= one.first}

    def spread(what: str, step: Callable[[_Given], _Made], of: Sequence[tuple[str, _Given]]) -> list[tuple[str, _Made]]:
        """Return what a step makes of each, by group; each in a task of its own: none waits behind a slow one."""
        if not of:
            return []
        names, given = [name for name, _ in of], [one for _, one in of]
        tables.spark.sparkContext.setJobDescription(f"trying other settings: {what}")
        with followed(tables.spark, tell, [f"a trial of group {name}" for name in names]):
            made = tables.spark.sparkContext.parallelize(given, len(given)).map(step).collect()
        return list(zip(names, made, strict=True))

    days = dict(spread("reading days", partial(read_day, tables.url, tables.plan), list(plans.items())))
    scenarios = {group: day.scenario for group, day in days.items() if isinstance(day, DayScenario)}
    tried: defaultdict[str, list[Trial]] = defaultdict(list)

    def play(what: str, wanted: Mapping[str, Sequence[Mapping[str, Value]]]) -> None:
        # If the time ends, every group has been tried about as often.
        of_place = zip_longest(*([(group, (scenarios[group], one)) for one in some] for group, some in wanted.items()))
        trials = [one for place in of_place for one in place if one is not None]
        for group, trial in spread(what, partial(play_trial, until_s), trials):
            tried[group].append(trial)

    play("the present ones", {group: (present(scenario),) for group, scenario in scenarios.items()})
    now = {group: trial for group, (trial,) in tried.items() if isinstance(trial, Outcome)}
    grids = {group: grid(scenarios[group], outcome) for group, outcome in now.items()}
    play("one at a time", {group: one.alone for group, one in grids.items()})
    better = {group for group in grids if gets_better([one for one in tried[group] if isinstance(one, Outcome)])}
    if at_rest := sorted(group for group in grids.keys() - better if NO_TIME not in tried[group]):
        tell(f"{', '.join(at_rest)}: no setting by itself makes anything better, so no more are tried")
    play("several together", {group: one.together for group, one in grids.items() if group in better})
    return recommendations(days, tried, too_large(groups))


def too_large(groups: Iterable[GroupDay]) -> dict[str, str]:
    """Return for each group that has too many records to be played again that this is so."""
    sizes = {one.group: int(one.measures.get("records") or 0) for one in groups}
    return {
        group: f"its day has {size:,} records, and at most {RECORDS_MOST:,} are played again"
        for group, size in sizes.items()
        if size > RECORDS_MOST
    }


def not_tried(group: str, why: str) -> Finding:
    """Return the notice that a group's day was not tried under other settings."""
    return Finding(group, INCOMPLETE, Severity.NOTICE, None, None, f"other settings were not tried: {why}")


def unproven(findings: Iterable[Finding]) -> dict[str, Finding]:
    """Return for each group whose day cannot be trusted that it is not tried."""
    why = sorted({(one.group, one.law) for one in findings if one.law in DOUBTS}, reverse=True)
    return {group: not_tried(group, f"its day cannot be trusted ({law})") for group, law in why}


def worth_trying(groups: Sequence[GroupDay], most: int) -> frozenset[str]:
    """Return the groups to try: those with the most downtime, then the most moves, of a day that is not too large.

    A group in which nothing moved, nothing was down and nobody was too hot has nothing to gain.
    """

    def weight(one: GroupDay) -> tuple[float, float, float, str]:
        down, moves, hot = (-float(one.measures.get(name) or 0) for name in ("downtime_ms", "moves", "hot_ms"))
        return down, moves, hot, one.group

    fit = [one for one in groups if (one.measures.get("records") or 0) <= RECORDS_MOST and any(weight(one)[:3])]
    return frozenset(one.group for one in sorted(fit, key=weight)[:most])


def recommendations(days: Mapping[str, Day], tried: Mapping[str, Sequence[Trial]], reasons: Mapping[str, str]) -> Tried:
    """Return the recommendation of each group from its day and what was tried, or why there is none.

    ``reasons`` are those of groups whose days were not read.
    """
    found, why_not = [], dict(reasons)
    for group, day in sorted(days.items()):
        if not isinstance(day, DayScenario):
            why_not[group] = day
        elif isinstance(now := tried[group][0], str):
            why_not[group] = f"simulated with the present settings, {now}"
        else:
            outcomes = [one for one in tried[group] if isinstance(one, Outcome)]
            found.append(recommendation(group, day, outcomes, late=NO_TIME in tried[group]))
    late = sum(one == NO_TIME for trials in tried.values() for one in trials)
    return Tried(tuple(found), tuple(not_tried(group, why) for group, why in sorted(why_not.items())), late)


def read_day(url: str, plan: DayPlan, one: GroupPlan) -> Day:
    with reading(url) as read:
        sampled = _sampled(read(_SAMPLES.replace("{group}", quoted(one.group)).replace("{within}", plan.within())))
        rows = log_rows(read, plan, one, replayed=False, has_histories=False)
        return day_of(one.group, rows, sampled, begin_ms=plan.begin_ms, end_ms=plan.end_ms)


def _sampled(rows: Iterable[tuple[int, str, str, int, float | None]]) -> Sampled:
    """Return what samples show; each has its instant, task, member, lag, and rate of restoring."""
    lags: dict[tuple[str, str], tuple[int, int]] = {}
    restored: defaultdict[str, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for at_ms, task, member, lag, rate in rows:
        if lag > lags.get((member, task), (0, 0))[0]:
            lags[member, task] = lag, at_ms
        if rate and lag >= RESTORES_LEAST and lag >= 2 * rate:
            restored[member][at_ms] += rate
    return Sampled(lags, {member: median_low(seen.values()) for member, seen in restored.items()})


def day_of(group: str, rows: Iterable[LogRow], sampled: Sampled, *, begin_ms: int, end_ms: int) -> Day:
    """Return a group's day from the rows of its snapshot and its records."""
    base = Group(GroupId(group))
    records: list[tuple[int, int, r.Record]] = []
    try:
        for row in rows:
            if row.rank == SNAPSHOT:
                base = read_group(row.form, row.payload)
            else:
                records.append((row.epoch, row.at_ms, read_record(StoredRecord(row.kind, row.form, row.payload))))
        day = day_scenario(base, records, sampled, begin_ms=begin_ms, end_ms=end_ms)
    except (NoDayScenario, *DAMAGE) as error:
        return str(error)
    return replace(day, so_far=end_ms < begin_ms + DAY_MS)


def play_trial(until_s: float, wanted: tuple[Scenario, Mapping[str, Value]]) -> Trial:
    """Play a group's day under other settings; after ``until_s``, in seconds since 1970, none is begun any more."""
    scenario, settings = wanted
    return NO_TIME if time.time() >= until_s else attempt(scenario, settings)
