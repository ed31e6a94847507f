"""Which member had which task when: the story of each task, in the order of the log, by window functions.

Every window is partitioned by task, or by task and member, and rights are followed in the order of the log; times are
only shown. Tasks, copies and places in the log are numbers here (``line``, ``copy``, ``nth``). The tables for laws and
measures (``runs``, ``warmups``, ``intervals``) have names again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from batonpass.audit.part import Part, columns

LINES: Final = columns("group_id varchar, task varchar, line int")
"""One row for each task; its number stands for its name wherever rows are put in order, which takes half the time."""

COPIES: Final = columns("group_id varchar, task varchar, member varchar, line int, copy int")
"""One row for each task and member that are named together, with a number that stands for both."""

STORY: Final = columns(
    "n bigint, line int, copy int, nth bigint, seq bigint, at_ms bigint, coordinator_epoch bigint, what varchar,"
    " ms bigint, token bigint, until_ms bigint, ready boolean, word varchar, heard_ms bigint"
)
"""One row for each thing that concerns one task, including what happened to its holders.

``n`` is its own number, in no order; ``nth`` grows with the number of the record, and with the place in the record.
"""

RIGHTS: Final = columns(
    "n bigint, line int, copy int, nth bigint, act varchar, licensed boolean, was_licensed boolean, role_before varchar,"
    " token bigint"
)
"""What some rows of the story do to their member's right to run their task.

``act``: a ``grant`` gives it, a ``revocation`` ends it but for a confirmation, a ``release`` is that confirmation, and
``gone`` ends it with the member's lease. ``licensed``: whether the member may be running the task after it,
``was_licensed``: before.
"""

FOLLOWED: Final = columns(
    "n bigint, line int, copy int, nth bigint, seq bigint, at_ms bigint, coordinator_epoch bigint, what varchar,"
    " ms bigint, token bigint, ready boolean, word varchar, heard_ms bigint, role_before varchar, act varchar, licensed boolean,"
    " is_up boolean, is_down boolean, runner int, run int"
)
"""The story with what follows from the rows before each. Left out: how standbys and warmups begin, and departures of
members that have had no copy of the task since their last departure.

``is_up`` and ``is_down`` mark where a run begins and ends; ``run`` counts the runs, ``runner`` is the copy that had the
last one.
"""

RUNS: Final = columns(
    "group_id varchar, task varchar, run int, runner varchar, up_ms bigint, up_seq bigint, grant_ms bigint,"
    " grant_ready boolean, revoked_seq bigint, revoked_ms bigint, revoked_at_ms bigint, revoked_epoch bigint,"
    " revoked_nth bigint, fell_seq bigint, down_seq bigint, down_ms bigint, down_at_ms bigint, down_what varchar,"
    " down_word varchar, heard_ms bigint, taker varchar, taken_ms bigint, taken_seq bigint, taken_at_ms bigint, taken_ready boolean,"
    " taken_role varchar, taken_epoch bigint, next_owner varchar, parked boolean, next_runner varchar, next_up_ms bigint,"
    " next_up_seq bigint, next_ready boolean, next_grant_ms bigint"
)
"""One row for each stretch in which a member ran a task, with how it ended and which member came next. Run 0 is the
time before the first run."""

WARMUPS: Final = columns(
    "group_id varchar, task varchar, member varchar, from_seq bigint, from_at_ms bigint, from_ms bigint, to_seq bigint,"
    " to_at_ms bigint, to_ms bigint, outcome varchar, lag bigint, fresh boolean"
)
"""One row for each warmup; ``outcome`` is promoted, standby, dropped, or open. ``lag`` is what it had to restore: by
the record of its grant, else by the first sample of it. ``fresh``: the member had no copy of the task before."""

INTERVALS: Final = columns(
    "group_id varchar, task varchar, member varchar, from_seq bigint, from_ms bigint, to_seq bigint, to_ms bigint,"
    " running_ms bigint, token bigint, ready boolean, why varchar"
)
"""One row for each stretch in which a member had the right to run a task; ``why`` is how it ended."""


def lines(part: Part) -> None:
    """Make ``lines`` and ``copies``: every task, and every member that is named with it."""
    part.make(
        "lines",
        LINES,
        f"""
        select group_id, task, row_number() over () as line
          from (select distinct group_id, task from changes where {_OF_TASKS})
        """,  # noqa: S608 - our own words
    )
    part.make(
        "copies",
        COPIES,
        f"""
        select group_id, task, member, line, row_number() over () as copy
          from (select distinct group_id, task, member from changes where {_OF_TASKS}) named
          join lines using (group_id, task)
        """,  # noqa: S608 - our own words
    )


_OF_TASKS: Final = "task is not null and what <> 'stalled'"
"""Which rows of ``changes`` concern a task: all that name one, except stalled warmups."""

_PLACES: Final = 2**25
"""One record, or one snapshot, makes fewer rows than a quarter of that; a group may have 2**38 records."""


def story(part: Part) -> None:
    """Make ``story`` from ``copies``: the rows of each task, with the ends of the members that had a copy of it."""
    part.make(
        "story",
        STORY,
        f"""
        with
        own as (
            select line, copy, c.group_id, c.member, seq, place, at_ms, coordinator_epoch, what, ms, token, until_ms, ready,
                   word, if(what in ('waived', 'stopped'), number, null) as heard_ms
              from changes c join copies o on c.group_id = o.group_id and c.task = o.task
                                          and c.member is not distinct from o.member
             where what <> 'stalled'
        ),
        ends as (
            -- Who is away has said that it stopped; its place is kept, not its tasks.
            select group_id, member, seq, place, at_ms, coordinator_epoch, ms,
                   if(what = 'away', ms, until_ms) as until_ms, if(what = 'away', 'restarted', word) as word,
                   number as heard_ms
              from changes where what in ('gone', 'away')
             union all
            select j.group_id, j.member, d.seq, d.place, d.at_ms, d.coordinator_epoch, d.ms, d.ms, 'group-deleted', null
              from changes j join changes d on j.group_id = d.group_id and j.seq < d.seq
             where j.what = 'joined' and d.what = 'deleted'
        ),
        held as (
            select line, copy, any_value(group_id) as group_id, any_value(member) as member, min(seq) as held_seq
              from own where what in ('active', 'standby', 'warmup', 'adopted', 'unreleased')
             group by line, copy
        ),
        every as (
            select line, copy, seq, 2 * place as place, at_ms, coordinator_epoch, what, ms, token, until_ms, ready, word, heard_ms
              from own
             union all
            select line, copy, seq, 2 * place, at_ms, coordinator_epoch, 'gone', ms, null, until_ms, null, word,
                   heard_ms
              from held h join ends e on h.group_id = e.group_id and h.member = e.member and h.held_seq <= e.seq
             union all
            -- Where somebody else turned out to run a task after lost commits, its holder gives it up, next in order.
            select distinct on (h.line, h.copy, a.seq)
                   h.line, h.copy, a.seq, 2 * a.place + 1, a.at_ms, a.coordinator_epoch, 'dropped', a.ms, null, null, null, null,
                   null
              from own h join own a on h.line = a.line and h.seq < a.seq and h.copy <> a.copy
             where h.what in ('active', 'adopted') and a.what = 'adopted'
        )
        select *, row_number() over () as n, seq * {_PLACES} + place as nth from every
        """,  # noqa: S608 - our own words
    )


_HELD: Final = """
    stood as (
        select *,
               coalesce(last_value(role ignore nulls) over before, 'none') as role_before,
               coalesce(last_value(what = 'gone' and until_ms <= ms) over before, false) as was_gone
          from (select *, case when what in ('active', 'adopted') then 'active'
                               when what in ('standby', 'warmup') then what
                               when what in ('revoked', 'demoted', 'dropped', 'gone') then 'none' end as role
                  from story)
         where role is not null or what in ('target', 'unreleased')
        window before as (partition by copy order by nth rows between unbounded preceding and 1 preceding)
    ),
    acts as (
        select n, line, copy, nth, ms, until_ms, token, role_before,
               case when what in ('active', 'adopted') then 'grant' when what = 'gone' then 'gone' else 'revocation' end as act
          from stood
         where what in ('active', 'adopted')
            or (what in ('revoked', 'demoted', 'dropped') and role_before = 'active')
            -- Many rows say that somebody went again who had come back to nothing of this task.
            or (what = 'gone' and not was_gone)
         union all
        select n, line, copy, nth, ms, until_ms, token, null, if(what = 'unreleased', 'revocation', 'release')
          from story where what in ('unreleased', 'released', 'waived')
    )
"""
"""The rows that give and end rights, with the role that each member had in its task before."""


def rights(part: Part) -> None:
    """Make ``rights`` from ``story``: which members may run a task, by earlier rows of the same member and task."""
    part.make(
        "rights",
        RIGHTS,
        f"""
        with {_HELD},
        known as (
            select *,
                   last_value(act) over before as last_act,
                   last_value(if(act <> 'release', act, null) ignore nulls) over before as last_right
              from acts
            window before as (partition by copy order by nth rows between unbounded preceding and 1 preceding)
        ),
        licences as (
            select *,
                   case when act in ('grant', 'revocation') then true
                        -- A confirmation of something given up before the present grant ends nothing.
                        when act = 'release' then coalesce(last_right = 'grant', false)
                        else (role_before = 'active' or coalesce(last_act = 'revocation', false))
                             and coalesce(until_ms > ms, false) end as licensed
              from known
        )
        select *, coalesce(last_value(licensed) over (
                               partition by copy order by nth rows between unbounded preceding and 1 preceding),
                           false) as was_licensed
          from licences
        """,  # noqa: S608 - our own words
    )


def follow(part: Part) -> None:
    """Make ``followed`` from ``story`` and ``rights``: which member ran a task when, and where runs begin and end."""
    part.make(
        "followed",
        FOLLOWED,
        """
        with
        told as (
            select s.*, role_before, act, licensed,
                   coalesce(was_licensed and not licensed, false) as is_end,
                   what in ('adopted', 'stopped') or (what = 'reported' and word = 'running') as is_up
              from story s left join rights r on s.n = r.n
             where what not in ('standby', 'warmup') and (what <> 'gone' or act is not null)
        ),
        of_task as (
            select *,
                   sum(is_up::int) over so_far as run,
                   last_value(if(is_up, copy, null) ignore nulls) over before as runner
              from told
            window so_far as (partition by line order by nth rows between unbounded preceding and current row),
                   before as (partition by line order by nth rows between unbounded preceding and 1 preceding)
        )
        select *, coalesce(what = 'stopped'
                           or (copy = runner and (is_end or (what = 'reported' and word <> 'running'))),
                           false) as is_down
          from of_task
        """,
    )


def runs(part: Part) -> None:
    """Make ``runs`` from ``followed``: each run with its end, and with the member that was granted the task next."""
    part.make(
        "runs",
        RUNS,
        """
        with
        marked as (
            select *,
                   act = 'grant' and what <> 'adopted' as is_taken,
                   act = 'revocation' and copy = runner as is_revocation,
                   what = 'reported' and word <> 'running' and copy = runner as is_fall
              from followed
        ),
        ended as (
            select line, run,
                   arg_min({'copy': copy, 'ms': ms, 'seq': seq, 'nth': nth}, nth) filter (is_up) as up,
                   arg_min({'seq': seq, 'ms': ms, 'at_ms': at_ms, 'epoch': coordinator_epoch, 'nth': nth}, nth)
                       filter (is_revocation) as revoked,
                   arg_min({'seq': seq, 'ms': ms, 'at_ms': at_ms, 'what': what, 'word': word}, nth)
                       filter (is_down) as down,
                   arg_min({'seq': seq, 'copy': copy, 'ms': ms, 'at_ms': at_ms, 'ready': ready, 'role': role_before,
                            'epoch': coordinator_epoch}, nth) filter (is_taken) as taken,
                   min(seq) filter (is_fall) as fell_seq,
                   max(heard_ms) filter (copy = runner or what = 'stopped') as heard_ms,
                   arg_max({'copy': copy}, nth) filter (what = 'next-owner') as chosen,
                   coalesce(bool_or(what = 'parked'), false) as parked
              from marked
             group by line, run
        ),
        granted as (
            -- What the runner had been granted last when its run began.
            select e.*, h.ms as grant_ms, h.ready as grant_ready
              from ended e
              asof left join (select copy, nth, ms, ready from followed where act = 'grant') h
                          on h.copy = e.up.copy and h.nth < e.up.nth
        ),
        followed_by as (
            select *, lead({'copy': up.copy, 'ms': up.ms, 'seq': up.seq, 'ready': grant_ready, 'grant_ms': grant_ms})
                          over (partition by line order by run) as next
              from granted
        )
        select l.group_id, l.task, run, r.member as runner, up.ms as up_ms, up.seq as up_seq, grant_ms, grant_ready,
               revoked.seq as revoked_seq, revoked.ms as revoked_ms, revoked.at_ms as revoked_at_ms, revoked.epoch as revoked_epoch,
               revoked.nth as revoked_nth, fell_seq,
               down.seq as down_seq, down.ms as down_ms, down.at_ms as down_at_ms, down.what as down_what,
               down.word as down_word, f.heard_ms,
               t.member as taker, taken.ms as taken_ms, taken.seq as taken_seq, taken.at_ms as taken_at_ms,
               taken.ready as taken_ready, taken.role as taken_role, taken.epoch as taken_epoch, h.member as next_owner, parked,
               x.member as next_runner, next.ms as next_up_ms, next.seq as next_up_seq, next.ready as next_ready,
               next.grant_ms as next_grant_ms
          from followed_by f
          join lines l on l.line = f.line
          left join copies r on r.copy = up.copy
          left join copies t on t.copy = taken.copy
          left join copies h on h.copy = chosen.copy
          left join copies x on x.copy = next.copy
        """,
    )


def warmups(part: Part) -> None:
    """Make ``warmups`` from ``story`` and ``lags``."""
    part.make(
        "warmups",
        WARMUPS,
        """
        with
        -- Only few copies are ever warmups: the others need not be put in order.
        warmed as (select distinct copy from story where what = 'warmup'),
        marked as (
            select *
              from (select s.*, case when what in ('active', 'adopted', 'next-owner') then 'promoted'
                                     when what in ('standby', 'warmup') then what
                                     when what in ('revoked', 'dropped', 'gone') then 'dropped' end as mark
                      from story s semi join warmed using (copy))
             where mark is not null
        ),
        found as (
            select *
              from (select copy, mark, seq as from_seq, at_ms as from_at_ms, ms as from_ms,
                           lead(seq) over following as to_seq, lead(at_ms) over following as to_at_ms,
                           lead(ms) over following as to_ms, coalesce(lead(mark) over following, 'open') as outcome,
                           coalesce(lag(mark) over following, 'dropped') = 'dropped' as fresh
                      from marked
                    window following as (partition by copy order by nth))
             where mark = 'warmup' and outcome <> 'warmup'
        )
        select c.group_id, c.task, c.member, from_seq, from_at_ms, from_ms, to_seq, to_at_ms, to_ms, outcome,
               arg_min(lag, (l.at_ms, lag)) as lag, fresh
          from found
          join copies c using (copy)
          left join lags l on l.group_id = c.group_id and l.task = c.task and l.member = c.member
                          and l.at_ms >= from_ms and (to_ms is null or l.at_ms <= to_ms)
         group by all
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
            select *, sum(coalesce(act = 'grant', false)::int) over (
                          partition by copy order by nth rows between unbounded preceding and current row) as grant_number
              from followed where act is not null or what = 'reported'
        ),
        found as (
            select copy, grant_number,
                   arg_min({'seq': seq, 'ms': ms, 'token': token, 'ready': ready}, nth) filter (act = 'grant') as began,
                   arg_min({'seq': seq, 'ms': ms, 'why': coalesce(word, what)}, nth) filter (not licensed) as ended,
                   min(ms) filter (is_up) as running_ms
              from numbered where grant_number > 0
             group by copy, grant_number
        )
        select group_id, task, member, began.seq as from_seq, began.ms as from_ms, ended.seq as to_seq,
               ended.ms as to_ms, running_ms, began.token as token, began.ready as ready, ended.why as why
          from found join copies using (copy), day
         where (ended.ms is null or ended.ms >= begin_ms) and began.ms < end_ms
        """,
    )


STEPS: Final[tuple[Callable[[Part], None], ...]] = (lines, story, rights, follow, runs, warmups)
"""In the order in which they read each other's tables; ``intervals`` is made only where it is wanted."""
