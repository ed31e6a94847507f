"""Who had what when: the story of each task, in the order of the log, by window functions.

Every window is partitioned by group and task, with or without the member, and states its frame. Rights are followed in
the order of the log (``seq``, then ``place``), times are only shown.
"""

from __future__ import annotations

from typing import Final

from batonpass.audit.part import Part, columns

STORY: Final = columns(
    "group_id varchar, task varchar, member varchar, seq bigint, place int, at_ms bigint, coordinator_epoch bigint,"
    " what varchar, ms bigint, token bigint, until_ms bigint, ready boolean, word varchar, is_new_target boolean"
)
"""One row for each thing that concerns one task, what befell its holders among them.

``is_new_target``: whether the task is meant for somebody else from here on.
"""

FOLLOWED: Final = {name: kind for name, kind in STORY.items() if name != "is_new_target"} | columns(
    "role_before varchar, act varchar, licensed boolean, holders int, held_seq bigint, held_at bigint, held_by varchar,"
    " held_token bigint, is_up boolean, is_down boolean, runner varchar, run int, target_no int, grant_ms bigint,"
    " grant_ready boolean"
)
"""The story with what follows from the rows before each, standbys that stay such left out.

``act`` is what a row does to a member's right to run a task: it gives it (``hold``), ends it but for a confirmation
(``claim``), is one (``free``), or ends both (``gone``). ``licensed``: whether the row's member may be running the task;
``holders``: how many members may. ``is_up`` and ``is_down`` mark where a run begins and ends; ``run`` counts them,
``runner`` is whose the last one was. ``target_no`` counts the changes of target, and the members that went who had a
copy.
"""

RUNS: Final = columns(
    "group_id varchar, task varchar, run int, runner varchar, up_ms bigint, up_seq bigint, grant_ms bigint,"
    " grant_ready boolean, claim_seq bigint, claim_ms bigint, claim_at_ms bigint, claim_epoch bigint,"
    " claim_target_no int, fell_seq bigint, down_seq bigint, down_ms bigint, down_at_ms bigint, down_what varchar,"
    " down_word varchar, taker varchar, taken_ms bigint, taken_seq bigint, taken_at_ms bigint, taken_ready boolean,"
    " taken_role varchar, taken_epoch bigint, heir varchar, parked boolean, next_runner varchar, next_up_ms bigint,"
    " next_up_seq bigint, next_ready boolean, next_grant_ms bigint"
)
"""One row for each stretch in which a member ran a task, with how it ended and who came next. Run 0 is none: before the
first one."""

WARMUPS: Final = columns(
    "group_id varchar, task varchar, member varchar, from_seq bigint, from_at_ms bigint, from_ms bigint, to_seq bigint,"
    " to_at_ms bigint, to_ms bigint, outcome varchar"
)
"""One row for each warmup; ``outcome`` is promoted, standby, dropped, or open."""

INTERVALS: Final = columns(
    "group_id varchar, task varchar, member varchar, from_seq bigint, from_ms bigint, to_seq bigint, to_ms bigint,"
    " running_ms bigint, token bigint, ready boolean, why varchar"
)
"""One row for each stretch in which a member had the right to run a task; ``why`` is how it ended."""


def story(part: Part) -> None:
    """Make ``story``: the rows of each task, with the ends of the members that held something of it."""
    part.make(
        "story",
        STORY,
        """
        with
        own as (
            select group_id, task, member, seq, place, at_ms, coordinator_epoch, what, ms, token, until_ms, ready, word,
                   false as is_new_target
              from changes
             where what in ('active', 'standby', 'warmup', 'adopted', 'claimed', 'revoked', 'demoted', 'dropped',
                            'released', 'waived', 'reported', 'heir', 'parked', 'stopped')
        ),
        meant as (
            select group_id, task, member, seq, place, at_ms, coordinator_epoch, what, ms, token, until_ms, ready, word,
                   coalesce(member, '') is distinct from last_value(coalesce(member, '')) over (
                       partition by group_id, task order by seq, place
                       rows between 1 preceding and 1 preceding) as is_new_target
              from changes where what = 'target'
        ),
        ends as (
            -- Who is away has said that it stopped; its place is kept, not its tasks.
            select group_id, member, seq, place, at_ms, coordinator_epoch, ms,
                   if(what = 'away', ms, until_ms) as until_ms, if(what = 'away', 'restarted', word) as word
              from changes where what in ('gone', 'away')
             union all
            select j.group_id, j.member, d.seq, d.place, d.at_ms, d.coordinator_epoch, d.ms, d.ms, 'group-deleted'
              from changes j join changes d on j.group_id = d.group_id and j.seq < d.seq
             where j.what = 'joined' and d.what = 'deleted'
        ),
        held as (
            select group_id, task, member, min(seq) as held_seq
              from changes where what in ('active', 'standby', 'warmup', 'adopted', 'claimed')
             group by group_id, task, member
        ),
        -- Where somebody else turned out to run a task after lost commits, its holder gives it up.
        adopted as (
            select group_id, task, member, seq, place, at_ms, coordinator_epoch, ms from changes where what = 'adopted'
        )
        select * from own
         union all
        select * from meant
         union all
        -- The place of a member that went is inherited, or lost: the task is meant for somebody else then.
        select h.group_id, h.task, h.member, e.seq, e.place, e.at_ms, e.coordinator_epoch, 'gone', e.ms, null, e.until_ms,
               null, e.word, true
          from held h join ends e on h.group_id = e.group_id and h.member = e.member and h.held_seq <= e.seq
         union all
        select distinct on (a.group_id, a.task, h.member, a.seq)
               a.group_id, a.task, h.member, a.seq, a.place, a.at_ms, a.coordinator_epoch, 'dropped', a.ms, null, null,
               null, null, false
          from own h join adopted a on h.group_id = a.group_id and h.task = a.task and h.seq < a.seq
                                   and h.member <> a.member
         where h.what in ('active', 'adopted')
        """,
    )


_RIGHTS: Final = """
    every as (
        select *,
               coalesce(last_value(role ignore nulls) over before, 'none') as role_before,
               last_value(what) over before as what_before
          from (select *, case when what in ('active', 'adopted') then 'active'
                               when what in ('standby', 'warmup') then what
                               when what in ('revoked', 'demoted', 'dropped', 'gone') then 'none' end as role
                  from story)
        window before as (partition by group_id, task, member order by seq, place
                          rows between unbounded preceding and 1 preceding)
    ),
    acts as (
        select *, case when what in ('active', 'adopted') then 'hold'
                       when what in ('revoked', 'demoted', 'dropped') and role_before = 'active' then 'claim'
                       when what = 'claimed' then 'claim'
                       when what in ('released', 'waived') then 'free'
                       when what = 'gone' then 'gone' end as act
          from every
         -- Many rows say that a standby is a standby, or that somebody went again who had come back to nothing of this
         -- task: nothing that follows asks for them.
         where (what <> 'standby' or role_before = 'warmup') and (what <> 'gone' or what_before is distinct from 'gone')
    ),
    known as (
        select *,
               last_value(act ignore nulls) over before as last_act,
               last_value(if(act <> 'free', act, null) ignore nulls) over before as last_right,
               last_value(if(act = 'hold', ms, null) ignore nulls) over before as grant_ms,
               last_value(if(act = 'hold', ready, null) ignore nulls) over before as grant_ready
          from acts
        window before as (partition by group_id, task, member order by seq, place
                          rows between unbounded preceding and 1 preceding)
    ),
    rights as (
        select *,
               case when act in ('hold', 'claim') then true
                    -- A confirmation of something given up before the present grant ends nothing.
                    when act = 'free' then coalesce(last_right = 'hold', false)
                    when act = 'gone' then (role_before = 'active' or coalesce(last_act = 'claim', false))
                                           and until_ms > ms end as licensed
          from known
    ),
    changing as (
        select *,
               coalesce(last_value(licensed ignore nulls) over before, false) as was_licensed,
               what in ('adopted', 'stopped') or (what = 'reported' and word = 'running') as is_up
          from rights
        window before as (partition by group_id, task, member order by seq, place
                          rows between unbounded preceding and 1 preceding)
    )
"""
"""What each row does to its member's right to run its task, by the rows before it of this member and task."""


def follow(part: Part) -> None:
    """Make ``followed`` from ``story``: who may run each task after each row."""
    part.make(
        "followed",
        FOLLOWED,
        f"""
        with {_RIGHTS},
        of_task as (
            select *,
                   sum(coalesce(licensed, was_licensed)::int - was_licensed::int) over so_far as holders,
                   last_value(if(act = 'hold', seq, null) ignore nulls) over before as held_seq,
                   last_value(if(act = 'hold', at_ms, null) ignore nulls) over before as held_at,
                   last_value(if(act = 'hold', member, null) ignore nulls) over before as held_by,
                   max(if(act = 'hold', token, null)) over before as held_token,
                   sum(is_up::int) over so_far as run,
                   last_value(if(is_up, member, null) ignore nulls) over before as runner,
                   sum(is_new_target::int) over so_far as target_no
              from changing
            window so_far as (partition by group_id, task order by seq, place
                              rows between unbounded preceding and current row),
                   before as (partition by group_id, task order by seq, place
                              rows between unbounded preceding and 1 preceding)
        )
        select *,
               coalesce(what = 'stopped' or (member = runner
                   and ((was_licensed and not coalesce(licensed, true)) or (what = 'reported' and word <> 'running'))),
                   false) as is_down
          from of_task
        """,  # noqa: S608 - our own words
    )


def runs(part: Part) -> None:
    """Make ``runs`` from ``followed``: each run with its end, and with who was granted the task next."""
    part.make(
        "runs",
        RUNS,
        """
        with
        marked as (
            select *,
                   act = 'hold' and what <> 'adopted' as is_taken,
                   act = 'claim' and member = runner as is_claim,
                   what = 'reported' and word <> 'running' and member = runner as is_fall,
                   (seq, place) as nth
              from followed
        ),
        ended as (
            select group_id, task, run,
                   arg_min({'member': member, 'ms': ms, 'seq': seq, 'grant_ms': grant_ms, 'ready': grant_ready}, nth)
                       filter (is_up) as up,
                   arg_min({'seq': seq, 'ms': ms, 'at_ms': at_ms, 'epoch': coordinator_epoch, 'target_no': target_no}, nth)
                       filter (is_claim) as claim,
                   arg_min({'seq': seq, 'ms': ms, 'at_ms': at_ms, 'what': what, 'word': word}, nth)
                       filter (is_down) as down,
                   arg_min({'seq': seq, 'member': member, 'ms': ms, 'at_ms': at_ms, 'ready': ready, 'role': role_before,
                            'epoch': coordinator_epoch}, nth) filter (is_taken) as taken,
                   min(seq) filter (is_fall) as fell_seq,
                   arg_max({'member': member}, nth) filter (what = 'heir') as chosen,
                   coalesce(bool_or(what = 'parked'), false) as parked
              from marked
             group by group_id, task, run
        )
        select group_id, task, run, up.member as runner, up.ms as up_ms, up.seq as up_seq, up.grant_ms as grant_ms,
               up.ready as grant_ready,
               claim.seq as claim_seq, claim.ms as claim_ms, claim.at_ms as claim_at_ms, claim.epoch as claim_epoch,
               claim.target_no as claim_target_no, fell_seq,
               down.seq as down_seq, down.ms as down_ms, down.at_ms as down_at_ms, down.what as down_what,
               down.word as down_word,
               taken.member as taker, taken.ms as taken_ms, taken.seq as taken_seq, taken.at_ms as taken_at_ms,
               taken.ready as taken_ready, taken.role as taken_role, taken.epoch as taken_epoch, chosen.member as heir, parked,
               next.member as next_runner, next.ms as next_up_ms, next.seq as next_up_seq, next.ready as next_ready,
               next.grant_ms as next_grant_ms
          from (select *, lead(up) over (partition by group_id, task order by run) as next from ended)
        """,
    )


def warmups(part: Part) -> None:
    """Make ``warmups`` from ``followed``."""
    part.make(
        "warmups",
        WARMUPS,
        """
        with
        -- Only few copies are ever warmups: the others need not be put in order.
        warmed as (select distinct group_id, task, member from followed where what = 'warmup'),
        marked as (
            select *
              from (select f.*, case when what in ('active', 'adopted', 'heir') then 'promoted'
                                     when what in ('standby', 'warmup') then what
                                     when what in ('revoked', 'dropped', 'gone') then 'dropped' end as mark
                      from followed f semi join warmed using (group_id, task, member))
             where mark is not null
        )
        select group_id, task, member, from_seq, from_at_ms, from_ms, to_seq, to_at_ms, to_ms, outcome
          from (select group_id, task, member, mark, seq as from_seq, at_ms as from_at_ms, ms as from_ms,
                       lead(seq) over following as to_seq, lead(at_ms) over following as to_at_ms,
                       lead(ms) over following as to_ms, coalesce(lead(mark) over following, 'open') as outcome
                  from marked
                window following as (partition by group_id, task, member order by seq, place))
         where mark = 'warmup' and outcome <> 'warmup'
        """,
    )


def intervals(part: Part) -> None:
    """Make ``intervals`` from ``followed``: those that reach into the day, from a grant to the end of the right.

    ``to_ms`` is null where the member still had the task when the day ended.
    """
    part.make(
        "intervals",
        INTERVALS,
        """
        with
        numbered as (
            select *, sum(coalesce(act = 'hold', false)::int) over (
                          partition by group_id, task, member order by seq, place
                          rows between unbounded preceding and current row) as hold
              from followed where act is not null or what = 'reported'
        ),
        found as (
            select group_id, task, member, hold,
                   arg_min({'seq': seq, 'ms': ms, 'token': token, 'ready': ready}, (seq, place))
                       filter (act = 'hold') as began,
                   arg_min({'seq': seq, 'ms': ms, 'why': coalesce(word, what)}, (seq, place))
                       filter (not licensed) as ended,
                   min(ms) filter (is_up) as running_ms
              from numbered where hold > 0
             group by group_id, task, member, hold
        )
        select group_id, task, member, began.seq as from_seq, began.ms as from_ms, ended.seq as to_seq,
               ended.ms as to_ms, running_ms, began.token as token, began.ready as ready, ended.why as why
          from found, day
         where (ended.ms is null or ended.ms >= begin_ms) and began.ms < end_ms
        """,
    )
