"""How long no member ran a task, and why: gaps between runs, their causes, and their sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from batonpass.audit.part import Part, columns

STUCK_MS: Final = 600_000
"""A task that no member is granted for so long is stuck: twice as long as a restarting member's place is kept."""

DEATHS: Final = ("expired", "fenced", "evicted", "replaced", "taken-over")
"""The causes of members that were given up, rather than went by themselves."""

IDENTITIES: Final = columns("group_id varchar, member varchar, identity varchar")
"""The name by which each member is recognised after a restart."""

SESSIONS: Final = columns("group_id varchar, session_ms bigint, suspect_ms bigint")
"""The longest session timeout of each group, and the longest ``suspect_timeout_ms``."""

GAPS: Final = columns(
    "group_id varchar, task varchar, cause varchar, from_ms bigint, to_ms bigint, gap_ms bigint, unowned_ms bigint,"
    " runner varchar, next_runner varchar, why varchar, down_seq bigint, next_up_seq bigint"
)
"""One row for each stretch of the day in which no member ran a task that had been granted before; an open one has the
end of the day as ``to_ms``, and no ``next_up_seq``."""

CAUSES: Final = columns(
    "group_id varchar, cause varchar, count bigint, p50_ms bigint, p99_ms bigint, max_ms bigint, total_ms bigint"
)
"""The distribution of downtime of each group and cause; a percentile is the length of an actual gap."""

LIFETIMES: Final = columns("group_id varchar, tasks_seen bigint, task_ms bigint")
"""How many tasks each group had, and for how long they should have run, all together."""


def identities(part: Part) -> None:
    """Make ``identities``: a member's instance id, else its member id."""
    part.make(
        "identities",
        IDENTITIES,
        """
        select group_id, member, coalesce(max(word), max(member)) as identity
          from changes where what = 'joined'
         group by group_id, member
        """,
    )


def sessions(part: Part) -> None:
    """Make ``sessions``: the longest that the settings of each group allowed at any time of the day."""
    part.make(
        "sessions",
        SESSIONS,
        """
        select group_id, max(try_cast(word ->> 'session_timeout_ms' as bigint)) as session_ms,
               max(try_cast(word ->> 'suspect_timeout_ms' as bigint)) as suspect_ms
          from (select group_id, word from changes where what = 'config')
         group by group_id
        """,
    )


def gaps(part: Part) -> None:
    """Make ``gaps`` from ``runs``: the stretches without a runner.

    A gap begins when it is known that no member runs the task any more: by a confirmation, the end of a lease, or a
    report. If the member was given up, it begins when the member was last heard, but not before the run. Logs from
    before that was recorded leave a guess: one session timeout earlier if it expired, ``suspect_timeout_ms`` if it was
    suspected.
    """
    part.make(
        "gaps",
        GAPS,
        _GAPS.replace("{stuck}", str(STUCK_MS)).replace("{deaths}", ", ".join(f"'{one}'" for one in DEATHS)),
    )


_GAPS: Final = """
    with
    ended as (
        select r.*, coalesce(down_what = 'gone' and down_word = 'expired', false) as is_expired,
               coalesce(down_what = 'waived', false) as is_suspected,
               coalesce(down_what = 'waived' or (down_what = 'gone' and down_word in ({deaths})), false) as died
          from runs r
         where (run = 0 or down_ms is not null) and not parked
    ),
    named as (
        select e.*, mine.identity, theirs.identity as next_identity, without.subtopology is not null as has_no_state,
               case when run = 0 then taken_ms
                    when heard_ms is not null then greatest(up_ms, least(heard_ms, down_ms))
                    when is_expired then greatest(up_ms, down_ms - coalesce(session_ms, 0))
                    when is_suspected then greatest(up_ms, down_ms - coalesce(suspect_ms, 0))
                    else down_ms end as since_ms,
               coalesce(next_up_ms, end_ms) as until_ms
          from ended e cross join day
          left join sessions s on s.group_id = e.group_id
          left join identities mine on mine.group_id = e.group_id and mine.member = e.runner
          left join identities theirs on theirs.group_id = e.group_id and theirs.member = e.next_runner
          left join stateless without on without.group_id = e.group_id
                                     and without.subtopology = regexp_extract(e.task, '^(.*)_[0-9]+$', 1)
    ),
    inside as (
        select n.*, greatest(since_ms, begin_ms) as from_ms, least(until_ms, end_ms) as to_ms,
               least(coalesce(taken_ms, end_ms), until_ms, end_ms) as owned_ms
          from named n cross join day
         where since_ms < end_ms and until_ms > begin_ms
    ),
    measured as (
        select *, greatest(0, to_ms - from_ms) as gap_ms, greatest(0, owned_ms - from_ms) as unowned_ms from inside
    )
    select group_id, task,
           case when unowned_ms > {stuck} then 'stuck'
                when run = 0 then 'cold-start'
                when identity = next_identity then 'restart'
                when not (coalesce(next_ready, false) or has_no_state) then 'cold-start'
                -- A task that was revoked and never granted again has been taken out of the topology, or waits for good
                -- reason. Who died is told to give its tasks up as well, for when it should live after all.
                when revoked_seq is not null and (fell_seq is null or fell_seq > revoked_seq) and not died
                    then 'warm-handover'
                else 'failover' end as cause,
           from_ms, to_ms, gap_ms, unowned_ms, runner, next_runner,
           if(is_suspected, 'suspected', coalesce(down_word, down_what)) as why, down_seq, next_up_seq
      from measured
"""


def causes(part: Part) -> None:
    """Make ``causes`` from ``gaps``."""
    part.make(
        "causes",
        CAUSES,
        """
        select group_id, cause, count(*) as count, quantile_disc(gap_ms, 0.5) as p50_ms,
               quantile_disc(gap_ms, 0.99) as p99_ms, max(gap_ms) as max_ms, sum(gap_ms) as total_ms
          from gaps
         group by group_id, cause
        """,
    )


def lifetimes(part: Part) -> None:
    """Make ``lifetimes`` from ``runs``."""
    part.make(
        "lifetimes",
        LIFETIMES,
        """
        with
        tasks as (
            -- A task counts from its first grant, if it has one; whether it ran then is what availability says.
            select group_id, task, min(coalesce(up_ms, taken_ms)) as first_ms from runs group by group_id, task
        )
        select group_id, count(*) as tasks_seen,
               sum(if(first_ms is null, 0, end_ms - least(end_ms, greatest(begin_ms, first_ms)))) as task_ms
          from tasks cross join day
         group by group_id
        """,
    )


STEPS: Final[tuple[Callable[[Part], None], ...]] = (identities, sessions, gaps, causes, lifetimes)
"""In the order in which they read each other's tables; ``gaps`` reads ``stateless``, too (``checks``)."""
