"""The law of overlapping owners (L1) and downtime in Spark's own SQL: a second opinion on what DuckDB finds.

It follows each task by its names, over the rows that the audit reads (``flatten.CHANGES``), in two queries. The
benchmark measures them against the audit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from batonpass.audit.downtime import DEATHS, GAPS, STUCK_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DOUBTFUL: Final = ("group_id", "task", "member", "seq", "may_run", "held_token", "held_seq", "held_by")
"""What is compared of ``checks.DOUBTFUL``."""

_RIGHTS: Final = """
    with
    own as (
        select group_id, task, member, seq, 2 * place as place, what, ms, token, until_ms, ready, word,
               if(what in ('waived', 'stopped'), number, null) as heard_ms
          from changes where task is not null and what not in ('stalled', 'lag')
    ),
    departures as (
        select group_id, member, seq, place, ms, if(what = 'away', ms, until_ms) as until_ms,
               if(what = 'away', 'restarted', word) as word, number as heard_ms
          from changes where what in ('gone', 'away')
         union all
        select j.group_id, j.member, d.seq, d.place, d.ms, d.ms, 'group-deleted', null
          from changes j join changes d on j.group_id = d.group_id and j.seq < d.seq
         where j.what = 'joined' and d.what = 'deleted'
    ),
    may_run as (
        select group_id, task, member, min(seq) as since
          from own where what in ('active', 'standby', 'warmup', 'adopted', 'unreleased')
         group by group_id, task, member
    ),
    story as (
        select * from own
         union all
        select h.group_id, h.task, h.member, seq, 2 * place, 'gone', ms, null, until_ms, null, word, heard_ms
          from may_run h join departures d on h.group_id = d.group_id and h.member = d.member and h.since <= d.seq
         union all
        -- Whoever had the task gives it up to whom it was found with after lost commits.
        select distinct h.group_id, h.task, h.member, a.seq, 2 * a.place + 1, 'dropped', a.ms, cast(null as bigint),
               cast(null as bigint), cast(null as boolean), cast(null as string), cast(null as bigint)
          from own h join own a on h.group_id = a.group_id and h.task = a.task and h.seq < a.seq
                               and not h.member <=> a.member
         where h.what in ('active', 'adopted') and a.what = 'adopted'
    ),
    roles as (
        select *, coalesce(last_value(role) ignore nulls over before, 'none') as role_before,
               coalesce(last_value(if(role is null and what not in ('target', 'unreleased'), null,
                                      coalesce(what = 'gone' and until_ms <= ms, false))) ignore nulls over before,
                        false) as was_gone
          from (select *, case when what in ('active', 'adopted') then 'active'
                               when what in ('standby', 'warmup') then what
                               when what in ('revoked', 'demoted', 'dropped', 'gone') then 'none' end as role
                  from story)
        window before as (partition by group_id, task, member order by seq, place
                          rows between unbounded preceding and 1 preceding)
    ),
    acts as (
        select *, case when what in ('active', 'adopted') then 'grant'
                       when what in ('released', 'waived') then 'release'
                       when what = 'gone' and not was_gone then 'gone'
                       when what = 'unreleased' or (what in ('revoked', 'demoted', 'dropped') and role_before = 'active')
                           then 'revocation' end as act
          from roles
    ),
    known as (
        select *, last_value(act) ignore nulls over before as last_act,
               last_value(if(act = 'release', null, act)) ignore nulls over before as last_right,
               last_value(if(act = 'grant', struct(ms, ready), null)) ignore nulls over before as last_grant
          from acts
        window before as (partition by group_id, task, member order by seq, place
                          rows between unbounded preceding and 1 preceding)
    ),
    licences as (
        select *, case when act in ('grant', 'revocation') then true
                       when act = 'release' then coalesce(last_right = 'grant', false)
                       when act = 'gone' then (role_before = 'active' or coalesce(last_act = 'revocation', false))
                                              and coalesce(until_ms > ms, false) end as licensed
          from known
    )
    select *, coalesce(last_value(licensed) ignore nulls over (
                           partition by group_id, task, member order by seq, place
                           rows between unbounded preceding and 1 preceding), false) as was_licensed
      from licences
"""

_DOUBTFUL: Final = """
    with
    counted as (
        select *, sum(if(act is null, 0, int(licensed) - int(was_licensed))) over so_far as may_run,
               max(if(act = 'grant', token, null)) over before as held_token,
               last_value(if(act = 'grant', struct(seq, member), null)) ignore nulls over before as held
          from rights
        window so_far as (partition by group_id, task order by seq, place
                          rows between unbounded preceding and current row),
               before as (partition by group_id, task order by seq, place
                          rows between unbounded preceding and 1 preceding)
    )
    select group_id, task, member, seq, int(may_run) as may_run, held_token, held.seq as held_seq, held.member as held_by
      from counted
     where what = 'active' and (may_run > 1 or token <= held_token)
"""

_GAPS: Final = """
    with
    marked as (
        select *, what in ('adopted', 'stopped') or (what = 'reported' and word = 'running') as is_up,
               what = 'reported' and word <> 'running' as is_fall,
               act is not null and was_licensed and not licensed as is_end
          from rights where what not in ('standby', 'warmup') and (what <> 'gone' or act is not null)
    ),
    numbered as (
        select *, sum(int(is_up)) over (partition by group_id, task order by seq, place
                                        rows between unbounded preceding and current row) as run,
               last_value(if(is_up, struct(member), null)) ignore nulls over (
                   partition by group_id, task order by seq, place
                   rows between unbounded preceding and 1 preceding) as runner
          from marked
    ),
    seen as (
        select *, seq * pow(2, 25) + place as nth, coalesce(runner is not null and runner.member <=> member, false) as is_runner
          from numbered
    ),
    runs as (
        select group_id, task, run,
               min_by(struct(member, ms, seq, last_grant), nth) filter (where is_up) as up,
               min(seq) filter (where act = 'revocation' and is_runner) as revoked_seq,
               min_by(struct(ms, seq, what, word), nth)
                   filter (where what = 'stopped' or (is_runner and (is_end or is_fall))) as down,
               min(seq) filter (where is_fall and is_runner) as fell_seq,
               max(heard_ms) filter (where is_runner or what = 'stopped') as heard_ms,
               min_by(ms, nth) filter (where act = 'grant' and what <> 'adopted') as taken_ms,
               coalesce(bool_or(what = 'parked'), false) as parked
          from seen
         group by group_id, task, run
    ),
    followed as (
        select *, lead(up) over (partition by group_id, task order by run) as next from runs
    ),
    names as (
        select group_id, member, coalesce(max(word), max(member)) as identity
          from changes where what = 'joined' group by group_id, member
    ),
    patience as (
        select group_id, max(bigint(get_json_object(word, '$.session_timeout_ms'))) as session_ms,
               max(bigint(get_json_object(word, '$.suspect_timeout_ms'))) as suspect_ms
          from changes where what = 'config' group by group_id
    ),
    stateless as (
        select distinct group_id, part[0] as subtopology
          from (select group_id, explode(from_json(word, 'array<array<string>>')) as part
                  from changes where what = 'topology')
         where part[2] = 'false'
    ),
    stretches as (
        select f.group_id, f.task, run, f.up.member as runner, next.member as next_runner, down, taken_ms,
               coalesce(next.last_grant.ready, false) as is_ready, w.subtopology is not null as has_no_state,
               coalesce(mine.identity = theirs.identity, false) as is_same,
               coalesce(down.what = 'waived', false) as is_suspected,
               coalesce(down.what = 'waived' or (down.what = 'gone' and down.word in ({deaths})), false) as died,
               coalesce(revoked_seq is not null and (fell_seq is null or fell_seq > revoked_seq), false) as is_handed,
               case when run = 0 then taken_ms
                    when heard_ms is not null then greatest(f.up.ms, least(heard_ms, down.ms))
                    when down.what = 'gone' and down.word = 'expired'
                        then greatest(f.up.ms, down.ms - coalesce(session_ms, 0))
                    when down.what = 'waived' then greatest(f.up.ms, down.ms - coalesce(suspect_ms, 0))
                    else down.ms end as since_ms,
               coalesce(next.ms, {end_ms}) as until_ms, next.seq as next_up_seq
          from followed f
          left join patience p on p.group_id = f.group_id
          left join names mine on mine.group_id = f.group_id and mine.member = f.up.member
          left join names theirs on theirs.group_id = f.group_id and theirs.member = f.next.member
          left join stateless w on w.group_id = f.group_id
                               and w.subtopology = regexp_extract(f.task, '^(.*)_[0-9]+$', 1)
         where (run = 0 or down.ms is not null) and not parked
    ),
    inside as (
        select *, greatest(since_ms, {begin_ms}) as from_ms, least(until_ms, {end_ms}) as to_ms
          from stretches where since_ms < {end_ms} and until_ms > {begin_ms}
    ),
    measured as (
        select *, greatest(0, to_ms - from_ms) as gap_ms,
               greatest(0, least(coalesce(taken_ms, {end_ms}), until_ms, {end_ms}) - from_ms) as unowned_ms
          from inside
    )
    select group_id, task,
           case when unowned_ms > {stuck} then 'stuck'
                when run = 0 then 'cold-start'
                when is_same then 'restart'
                when not (is_ready or has_no_state) then 'cold-start'
                when is_handed and not died then 'warm-handover'
                else 'failover' end as cause,
           from_ms, to_ms, gap_ms, unowned_ms, runner, next_runner,
           if(is_suspected, 'suspected', coalesce(down.word, down.what)) as why, down.seq as down_seq, next_up_seq
      from measured
"""


def followed(changes: DataFrame) -> None:
    """Follow every task; ``doubtful`` and ``gaps`` are made of what comes of it."""
    changes.createOrReplaceTempView("changes")
    changes.sparkSession.sql(_RIGHTS).persist().createOrReplaceTempView("rights")


def doubtful(changes: DataFrame) -> DataFrame:
    """Return the grants that something speaks against, with the columns ``DOUBTFUL``."""
    return changes.sparkSession.sql(_DOUBTFUL).select(*DOUBTFUL)


def gaps(changes: DataFrame, begin_ms: int, end_ms: int) -> DataFrame:
    """Return the stretches without a runner (``downtime.GAPS``)."""
    constants: dict[str, Any] = {"deaths": ", ".join(f"'{one}'" for one in DEATHS), "stuck": STUCK_MS}
    return changes.sparkSession.sql(_GAPS.format(begin_ms=begin_ms, end_ms=end_ms, **constants)).select(*GAPS)
