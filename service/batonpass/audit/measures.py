"""What the day cost each group, and what is worth a look although it breaks no law."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from batonpass.audit.downtime import STUCK_MS
from batonpass.audit.findings import Finding, GroupDay, Severity
from batonpass.audit.part import Part, columns

NOTICE = Severity.NOTICE

STUCK_WARMUP_MS: Final = 3_600_000
"""A warmup whose lag does not fall for so long is stuck.

Batonpass itself gives up a warmup that reads nothing for ``warmup_stall_timeout_ms``.
"""
FLAPS: Final = 4
"""A member that disappears without a leave, or restarts, so often within an hour is flapping."""
FLAPPING_WITHIN_MS: Final = 3_600_000
WASTED_SHARE: Final = 0.5
WASTED_LEAST: Final = 8
FUTILE_SHARE: Final = 0.9
FUTILE_LEAST: Final = 120
"""A group that never rests is probed about so often in a day, by default."""
UNBALANCED_SCORE: Final = 2.0
"""A mean difference of load (weight per capacity, most to least) above this is worth a look."""

PROBES: Final = columns("group_id varchar, seq bigint, at_ms bigint, futile boolean")
"""One row for each probe of that day; ``futile``: it changed nothing."""

DEPARTURES: Final = columns("group_id varchar, member varchar, seq bigint, at_ms bigint, identity varchar")
"""One row for each time that a member went by itself: expired, fenced, restarted, or suspected and back."""

FLAPPING: Final = columns(
    "group_id varchar, member varchar, times bigint, until_ms bigint, sequences bigint[], moments bigint[]"
)
"""The worst hour of each member that came and went again and again; ``member`` is its identity. The lists have the
first twenty departures."""

BALANCE: Final = columns("group_id varchar, balance_mean double, balance_worst double, members_max int, tasks_max int")
"""How uneven the load of each group was."""

DAY: Final = columns(
    "group_id varchar, records bigint, generations bigint, moves bigint, lower_bound bigint, warmups bigint,"
    " wasted_warmups bigint, probes bigint, futile_probes bigint, flapping_members bigint, downtime_ms bigint,"
    " longest_unowned_ms bigint, handovers bigint, failovers bigint, cold_starts bigint, tasks_seen bigint,"
    " task_ms bigint, balance_mean double, balance_worst double, members_max int, tasks_max int"
)
"""One row for each group, with null where nothing was seen."""


def probes(part: Part) -> None:
    """Make ``probes``.

    A probe took place if it was set for an instant and was set anew, or given up, at that instant or later. It was
    futile if its decision wrote nothing else.
    """
    part.make(
        "probes",
        PROBES,
        """
        with
        looked as (
            select group_id, seq, at_ms, until_ms
              from (select group_id, seq, at_ms, until_ms, lag(until_ms) over of_group as due_ms
                      from changes where what = 'probe'
                    window of_group as (partition by group_id order by seq, place)), day
             where due_ms <= at_ms and at_ms >= begin_ms
        ),
        beside as (
            select distinct group_id, at_ms, true as changed
              from changes semi join looked using (group_id, at_ms)
             where place = 0 and what <> 'probe'
        )
        select group_id, seq, at_ms, changed is null and until_ms is not null as futile
          from looked left join beside using (group_id, at_ms)
        """,
    )


def departures(part: Part) -> None:
    """Make ``departures`` from ``identities``."""
    part.make(
        "departures",
        DEPARTURES,
        """
        with
        of_day as (
            select group_id, member, seq, at_ms, what
              from changes join bounds using (group_id)
             where seq >= first
               and (what in ('away', 'suspected')
                    or (what = 'gone' and word in ('expired', 'fenced', 'replaced', 'taken-over')))
        ),
        suspected as (select group_id, member, seq, at_ms from of_day where what = 'suspected'),
        went as (
            -- Who expires after a suspicion has gone once, not twice.
            select group_id, member, seq, at_ms
              from of_day anti join suspected using (group_id, member)
             where what <> 'suspected'
             union all
            select group_id, member, seq, at_ms from suspected
        )
        -- Where the record of its joining is missing, a member is known by its id alone.
        select group_id, member, seq, at_ms, coalesce(identity, member) as identity
          from went left join identities using (group_id, member)
        """,
    )


def flapping(part: Part) -> None:
    """Make ``flapping`` from ``departures``: of hours that are equally bad the last one."""
    part.make(
        "flapping",
        FLAPPING,
        """
        with
        hours as (
            select group_id, identity, at_ms, count(*) over (
                       partition by group_id, identity order by at_ms
                       range between {within} preceding and current row) as times
              from departures
        ),
        worst as (
            select group_id, identity, arg_max({'times': times, 'until_ms': at_ms}, (times, at_ms)) as hour
              from hours where times >= {flaps}
             group by group_id, identity
        ),
        -- Only of the worst hour it is asked what it was made of.
        made_of as (
            select w.group_id, w.identity, list(seq order by d.at_ms, seq) as sequences,
                   list(d.at_ms order by d.at_ms, seq) as moments
              from worst w join departures d
                on d.group_id = w.group_id and d.identity = w.identity
               and d.at_ms between hour.until_ms - {within} and hour.until_ms
             group by w.group_id, w.identity
        )
        select group_id, identity as member, hour.times as times, hour.until_ms as until_ms,
               sequences[:20] as sequences, moments[:20] as moments
          from worst join made_of using (group_id, identity)
        """.replace("{within}", str(FLAPPING_WITHIN_MS)).replace("{flaps}", str(FLAPS)),
    )


def flapping_members(part: Part) -> None:
    """Find members that came and went again and again (flapping-member)."""
    part.find(
        "flapping-member",
        NOTICE,
        """
        select group_id, null as task, member,
               concat('went and came back ', told(times), ' times within an hour, until ', time_of(until_ms))
                   as detail,
               sequences, moments as at
          from flapping
        """,
    )


def stuck_warmups(part: Part) -> None:
    """Find warmups that took very long without coming closer (stuck-warmup)."""
    part.find(
        "stuck-warmup",
        NOTICE,
        """
        with
        long as (
            select group_id, task, member, from_seq, from_at_ms, from_ms, coalesce(to_ms, end_ms) as until_ms
              from warmups, day
             where coalesce(to_ms, end_ms) - from_ms >= {stuck} and coalesce(to_ms, end_ms) >= begin_ms
        ),
        sampled as (
            select w.group_id, w.task, w.member, from_seq, from_at_ms, from_ms, until_ms,
                   arg_min({'lag': lag}, l.at_ms).lag as lag_first, arg_max(lag, (l.at_ms, lag)) as lag_last
              from long w
              left join lags l on l.group_id = w.group_id and l.task = w.task and l.member = w.member
                              and l.at_ms between w.from_ms and w.until_ms
             group by w.group_id, w.task, w.member, from_seq, from_at_ms, from_ms, until_ms
        )
        select group_id, task, member,
               concat('a warmup that began at ', time_of(from_ms), ' made no progress in ',
                      told(round((until_ms - from_ms) / 60000)::bigint), ' minutes') as detail,
               [from_seq] as sequences, [from_at_ms] as at
          from sampled
         where not coalesce(lag_last < lag_first, false)
        """.replace("{stuck}", str(STUCK_WARMUP_MS)),
    )


def stalled_warmups(part: Part) -> None:
    """Find warmups that Batonpass gave up on (stuck-warmup)."""
    part.find(
        "stuck-warmup",
        NOTICE,
        """
        select group_id, task, member,
               concat('its warmup made no progress and was given up at ', time_of(at_ms)) as detail,
               [seq] as sequences, [at_ms] as at
          from changes join bounds using (group_id)
         where seq >= first and what = 'stalled'
        """,
    )


def stuck_tasks(part: Part) -> None:
    """Find tasks that no member was granted for long (stuck-task)."""
    part.find(
        "stuck-task",
        NOTICE,
        """
        select group_id, task, runner as member,
               concat('granted to nobody for ', told(round(unowned_ms / 60000)::bigint), ' minutes from ',
                      time_of(from_ms), ' (', told(why), ')') as detail,
               [down_seq] as sequences, [from_ms] as at
          from gaps
         where unowned_ms > {stuck} and runner is not null
        """.replace("{stuck}", str(STUCK_MS)),
    )


def balance(part: Part) -> None:
    """Make ``balance`` from ``generations``: by the target of each, for as long as it was in force."""
    part.make(
        "balance",
        BALANCE,
        """
        select group_id, sum(score * stood_ms) / nullif(sum(stood_ms), 0) as balance_mean,
               max(score) as balance_worst, max(members) as members_max, max(tasks) as tasks_max
          from (select group_id, score, members, tasks,
                       coalesce(lead(at_ms) over (partition by group_id order by number), end_ms) - at_ms as stood_ms
                  from generations, day)
         group by group_id
        """,
    )


def days(part: Part) -> None:
    """Make ``days``: the results of the day of each group of ``bounds``."""
    part.make("days", DAY, _DAYS)


_DAYS: Final = """
    with
    counts as (
        select group_id, count(*) filter (place = 0) as records,
               count(*) filter (what = 'placed' and token > 0) as generations,
               sum(if(what = 'placed', until_ms, null)) as moves,
               sum(case when what = 'placed' then try_cast(word as bigint) end) as lower_bound
          from changes join bounds using (group_id)
         where seq >= first
         group by group_id
    ),
    warm as (
        select group_id, count(*) as warmups, count(*) filter (outcome = 'dropped') as wasted_warmups
          from warmups, day
         where coalesce(to_ms, end_ms) >= begin_ms
         group by group_id
    ),
    looks as (
        select group_id, count(*) as probes, count(*) filter (futile) as futile_probes from probes group by group_id
    ),
    flaps as (select group_id, count(*) as flapping_members from flapping group by group_id),
    down as (
        select group_id, sum(gap_ms) as downtime_ms, max(unowned_ms) as longest_unowned_ms,
               count(*) filter (cause = 'warm-handover') as handovers,
               count(*) filter (cause = 'failover') as failovers,
               count(*) filter (cause = 'cold-start') as cold_starts
          from gaps
         group by group_id
    )
    select group_id, records, generations, moves, lower_bound, warmups, wasted_warmups, probes, futile_probes,
           flapping_members, downtime_ms, longest_unowned_ms, handovers, failovers, cold_starts, tasks_seen, task_ms,
           balance_mean, balance_worst, members_max, tasks_max
      from bounds
      left join counts using (group_id)
      left join warm using (group_id)
      left join looks using (group_id)
      left join flaps using (group_id)
      left join down using (group_id)
      left join lifetimes using (group_id)
      left join balance using (group_id)
"""

STEPS: Final[tuple[Callable[[Part], None], ...]] = (
    *(probes, departures, flapping, balance, days),
    *(flapping_members, stuck_warmups, stalled_warmups, stuck_tasks),
)
"""In the order in which they read each other's tables. Before them come ``downtime.STEPS``."""


def group_days(days: Iterable[Mapping[str, Any]], causes: Iterable[Mapping[str, Any]]) -> dict[str, GroupDay]:
    """Return the measures of each group, from rows of ``DAY`` and of ``downtime.CAUSES``."""
    of_group: dict[str, dict[str, dict[str, float]]] = {}
    for row in causes:
        values = {name: float(row[name]) for name in ("count", "p50_ms", "p99_ms", "max_ms", "total_ms")}
        of_group.setdefault(row["group_id"], {})[row["cause"]] = values
    # The remains of a deleted group have no tasks and no day.
    lived = [row for row in days if row["records"] or row["tasks_seen"]]
    return {row["group_id"]: _group_day(row, of_group.get(row["group_id"], {})) for row in lived}


ZERO_WHERE_UNSEEN: Final = (
    *("records", "generations", "moves", "lower_bound", "warmups", "wasted_warmups", "probes", "futile_probes"),
    *("flapping_members", "downtime_ms", "handovers", "failovers", "cold_starts", "longest_unowned_ms"),
)


def _group_day(row: Mapping[str, Any], causes: Mapping[str, Mapping[str, float]]) -> GroupDay:
    measures: dict[str, float | int | None] = {name: row[name] or 0 for name in ZERO_WHERE_UNSEEN}
    measures["excess_moves"] = (row["moves"] or 0) - (row["lower_bound"] or 0)
    task_ms = row["task_ms"] or 0
    measures["availability"] = None if not task_ms else max(0.0, 1 - (row["downtime_ms"] or 0) / task_ms)
    for name in ("balance_mean", "balance_worst", "members_max", "tasks_max"):
        measures[name] = row[name]
    measures["tasks_max"] = row["tasks_max"] or row["tasks_seen"]
    return GroupDay(str(row["group_id"]), measures, causes)


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
        lost = f"{measures['downtime_ms'] / 1000:.0f} s of downtime"
        detail = f"tasks were run {available:.5%} of the time; the objective is {objective:.5%} ({lost})"
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
    if mean > UNBALANCED_SCORE:
        more = f"{mean:.2f} (weight per capacity) more than the least loaded one over the day; at worst {worst:.2f}"
        found.append(("unbalanced", f"the most loaded member had {more}"))
    return found
