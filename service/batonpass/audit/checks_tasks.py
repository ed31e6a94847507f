"""The laws of tasks: one owner at a time (L1), ready copies take over (L7), moves and copies within bounds (L8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from typing import Final

from batonpass.audit.findings import Finding, Severity
from batonpass.audit.part import Part, columns

FATAL = Severity.FATAL

EXCUSED: Final = columns("group_id varchar, member varchar")
"""Members from whom tasks may be taken without a ready copy."""

STATELESS: Final = columns("group_id varchar, subtopology varchar")
"""Subtopologies without state."""

BUDGETS: Final = columns("group_id varchar, allowed bigint, allowed_per_member bigint")
"""The most warmups that a group's settings allowed at any time of the day, in all and on one member."""

DOUBTFUL: Final = columns(
    "group_id varchar, task varchar, member varchar, seq bigint, at_ms bigint, ms bigint, token bigint, holders int,"
    " held_token bigint, held_seq bigint, held_at bigint, held_by varchar"
)
"""Grants that something speaks against: ``holders`` members might run the task then, or ``held_token``, the highest one
granted before, is not below its own. ``held_seq`` and what follows is the grant before it."""

HANDOVERS: Final = columns(
    "group_id varchar, task varchar, runner varchar, claim_seq bigint, claim_ms bigint, claim_at_ms bigint,"
    " claim_epoch bigint, claim_nth bigint, taker varchar, taken_seq bigint, taken_at_ms bigint, taken_ready boolean,"
    " taken_role varchar, taken_epoch bigint, heir varchar"
)
"""Runs that ended because the running owner was told to give the task up to somebody else, for nobody's failure."""

WARMING: Final = columns(
    "group_id varchar, task varchar, member varchar, seq bigint, at_ms bigint, of_group bigint, of_member bigint"
)
"""Where warmups began or ended. ``of_group`` and ``of_member`` are how many the group and the member had after a
decision that began one; they stand at the last row of the decision alone."""


def excused(part: Part) -> None:
    """Make ``excused``: suspects, and drains with a deadline, at some time of the day."""
    part.make(
        "excused",
        EXCUSED,
        """
        select distinct group_id, member
          from changes where what = 'suspected' or (what = 'drain' and until_ms is not null)
        """,
    )


def stateless(part: Part) -> None:
    """Make ``stateless``: the subtopologies of each group that have no state; their tasks have nothing to warm up."""
    part.make(
        "stateless",
        STATELESS,
        """
        select distinct group_id, part[1] as subtopology
          from (select group_id, unnest(from_json(word, '[["VARCHAR"]]')) as part
                  from changes where what = 'topology')
         where part[3] = 'false'
        """,
    )


def budgets(part: Part) -> None:
    """Make ``budgets``: for each group, the most that its settings allowed at any time of the day.

    Settings that were lowered leave what is there, so the highest count; a budget that is a share counts of the most
    tasks.
    """
    part.make(
        "budgets",
        BUDGETS,
        """
        with
        sizes as (
            select group_id, max(list_sum([one[2]::bigint for one in parts if one[3] = 'true'])) as stateful
              from (select group_id, from_json(word, '[["VARCHAR"]]') as parts from changes where what = 'topology')
             group by group_id
        ),
        -- A share for drains counts as at least two.
        settings as (
            select group_id, (word ->> 'max_warmups_per_member')::bigint as of_member, unnest([1, 2]) as least,
                   unnest([word ->> 'max_warmup_replicas', word ->> 'max_drain_warmups']) as setting
              from changes where what = 'config'
        ),
        copies as (
            select group_id, least, of_member,
                   case when ends_with(setting, '%')
                        then greatest(least, ceil(try_cast(rtrim(setting, '%') as double) * coalesce(stateful, 0) / 100
                                                  - 1e-9))
                        else setting::bigint end as copies
              from settings left join sizes using (group_id)
        )
        select group_id, sum(most) as allowed, max(of_member) as allowed_per_member
          from (select group_id, least, max(greatest(1, copies)) as most, max(of_member) as of_member
                  from copies
                 group by group_id, least)
         group by group_id
        """,
    )


def doubtful(part: Part) -> None:
    """Make ``doubtful`` from ``rights``."""
    part.make(
        "doubtful",
        DOUBTFUL,
        """
        with
        rated as (
            select *, sum(licensed::int - was_licensed::int) over so_far as holders,
                   max(if(act = 'hold', token, null)) over before as held_token
              from rights
            window so_far as (partition by line order by nth rows between unbounded preceding and current row),
                   before as (partition by line order by nth rows between unbounded preceding and 1 preceding)
        ),
        wrong as (
            select n, line, nth, holders, held_token
              from rated where act = 'hold' and (holders > 1 or token <= held_token)
        ),
        earlier as (
            select w.n, w.holders, w.held_token, h.n as held_n
              from wrong w
              asof left join (select n, line, nth from rights where act = 'hold') h on h.line = w.line and h.nth < w.nth
        )
        select o.group_id, o.task, o.member, s.seq, s.at_ms, s.ms, s.token, e.holders, e.held_token,
               h.seq as held_seq, h.at_ms as held_at, b.member as held_by
          from earlier e
          join story s on s.n = e.n and s.what = 'active'
          join copies o on o.copy = s.copy
          left join story h on h.n = e.held_n
          left join copies b on b.copy = h.copy
        """,
    )


def one_owner(part: Part) -> None:
    """Find grants made while somebody else might still run the task, or under a token that did not grow (L1)."""
    part.find(
        "L1",
        FATAL,
        """
        select group_id, task, member,
               'granted at ' || time_of(ms) || ' while ' || told(held_by)
                   || ' might still run it: neither confirmed, nor gone, nor out of its lease' as detail,
               [held_seq, seq] as sequences, [held_at, at_ms] as at
          from doubtful where holders > 1
        """,
        of_day=True,
    )
    part.find(
        "L1",
        FATAL,
        """
        select group_id, task, member,
               'granted at ' || time_of(ms) || ' under token ' || told(token) || ', which is not above '
                   || told(held_token) || ' that was granted before' as detail,
               [held_seq, seq] as sequences, [held_at, at_ms] as at
          from doubtful where token <= held_token
        """,
        of_day=True,
    )


def handovers(part: Part) -> None:
    """Make ``handovers`` from ``runs`` and ``excused``."""
    part.make(
        "handovers",
        HANDOVERS,
        """
        select r.*
          from runs r anti join excused e on e.group_id = r.group_id and e.member = r.runner
         where claim_seq is not null and taken_seq > claim_seq and (fell_seq is null or fell_seq > claim_seq)
           and not parked and taker <> runner
        """,
    )


def cold_promotions(part: Part) -> None:
    """Find handovers from a running, willing owner to a member whose copy was not caught up (L7).

    A member that was not chosen when the owner was told to stop took over because the chosen one fell away: excused. So
    is one of which a coordinator that has just started knew nothing.
    """
    part.find(
        "L7",
        FATAL,
        r"""
        with
        cold as (
            select *, taken_role in ('standby', 'warmup') as has_copy, regexp_extract(task, '^(.*)_\d+$', 1) as subtopology
              from handovers
             where not taken_ready and (heir is null or heir = taker)
        )
        select group_id, task, taker as member,
               'taken from ' || told(runner) || ', which ran it, at ' || time_of(claim_ms) || ' for ' || told(taker)
                   || ', which had '
                   || if(has_copy, 'a ' || taken_role || ' that was not caught up', 'no copy of it') as detail,
               [claim_seq, taken_seq] as sequences, [claim_at_ms, taken_at_ms] as at
          from cold anti join stateless using (group_id, subtopology)
         where not has_copy or taken_epoch = claim_epoch
        """,
        of_day=True,
    )


BEHIND: Final = "that was not caught up"


def superseded(found: Iterable[tuple[Finding, int]], lawful: Container[str]) -> list[tuple[Finding, int]]:
    """Return findings, each with how many there are of its group and law, without those that the replay knows better.

    A copy that is chosen while it is caught up may have fallen a little behind when its owner has stopped; the log says
    only how it was in the end. Where every decision of a group (``lawful``) was made again, with what had been heard
    then, and held to the laws, that has been judged by who knew.
    """
    whole = list(found)
    gone = Counter(one.group for one, _ in whole if _is_superseded(one, lawful))
    return [
        (one, count - gone[one.group] if one.law == "L7" else count)
        for one, count in whole
        if not _is_superseded(one, lawful)
    ]


def _is_superseded(one: Finding, lawful: Container[str]) -> bool:
    return one.law == "L7" and one.group in lawful and one.detail.endswith(BEHIND)


def handovers_per_target(part: Part) -> None:
    """Find tasks that were handed over more than once from a running owner for one change of target (L8)."""
    part.find(
        "L8",
        FATAL,
        """
        with
        -- The place of a member that went is inherited, or lost: the task is meant for somebody else then, too.
        meant as (
            select line, nth
              from (select line, nth, copy is distinct from last_value(copy) over (
                               partition by line order by nth rows between 1 preceding and 1 preceding) as is_new
                      from story where what = 'target')
             where is_new
             union all
            select line, nth from rights where act = 'gone'
        ),
        counted as (
            select group_id, task, taker, taken_seq, claim_seq, claim_at_ms, m.nth as target_nth
              from (select * from handovers join lines using (group_id, task)) h
              asof left join meant m on m.line = h.line and m.nth <= h.claim_nth
        )
        select group_id, task, member,
               told(handovers) || ' handovers from running owners for one change of its target, since '
                   || time_of(times[1]) as detail,
               sequences, times as at
          from (select group_id, task, count(*) as handovers, arg_max(taker, taken_seq) as member,
                       list(claim_seq order by claim_seq)[1:10] as sequences,
                       list(claim_at_ms order by claim_at_ms)[1:10] as times
                  from counted
                 group by group_id, task, target_nth
                having count(*) > 1)
        """,
        of_day=True,
    )


def warmup_budgets(part: Part) -> None:
    """Find decisions that began a warmup beyond the budget of the group or of its member (L8).

    What is counted stays below what the law counts, so that nothing is said that is not so: a warmup that was chosen as
    the next owner is not counted, nor is a standby on its way.
    """
    _warming(part)
    part.find(
        "L8",
        FATAL,
        """
        select group_id, task, null as member,
               told(of_group) || ' warmups at ' || time_of(at_ms)
                   || '; max_warmup_replicas and max_drain_warmups together allow ' || told(allowed) as detail,
               [seq] as sequences, [at_ms] as at
          from warming join budgets using (group_id) where of_group > allowed
        """,
        of_day=True,
    )
    part.find(
        "L8",
        FATAL,
        """
        select group_id, task, member,
               told(of_member) || ' warmups on one member at ' || time_of(at_ms) || '; max_warmups_per_member allows '
                   || told(allowed_per_member) as detail,
               [seq] as sequences, [at_ms] as at
          from warming join budgets using (group_id) where of_member > allowed_per_member
        """,
        of_day=True,
    )


def _warming(part: Part) -> None:
    """Make ``warming`` from ``warmups``."""
    part.make(
        "warming",
        WARMING,
        """
        with
        edges as (
            select group_id, task, member, from_seq as seq, from_at_ms as at_ms, 1 as change from warmups
             union all
            select group_id, task, member, to_seq, to_at_ms, -1 from warmups where to_seq is not null
        ),
        counted as (
            select group_id, task, member, seq, at_ms,
                   sum(change) over (partition by group_id order by seq, change, task, member
                                     rows between unbounded preceding and current row) as of_group,
                   sum(change) over (partition by group_id, member order by seq, change, task
                                     rows between unbounded preceding and current row) as of_member,
                   -- One decision writes several records at one instant, and is judged by what it comes to.
                   max(change) over decision > 0 as began,
                   max(change) over on_member > 0 as began_on_member,
                   row_number() over (partition by group_id, at_ms
                                      order by seq desc, change desc, task desc, member desc) = 1 as is_last,
                   row_number() over (partition by group_id, member, at_ms
                                      order by seq desc, change desc, task desc) = 1 as is_last_on_member
              from edges
            window decision as (partition by group_id, at_ms
                                rows between unbounded preceding and unbounded following),
                   on_member as (partition by group_id, member, at_ms
                                 rows between unbounded preceding and unbounded following)
        )
        select group_id, task, member, seq, at_ms, if(began and is_last, of_group, null) as of_group,
               if(began_on_member and is_last_on_member, of_member, null) as of_member
          from counted
        """,
    )


LAWS: Final[tuple[Callable[[Part], None], ...]] = (
    *(excused, stateless, budgets, doubtful, handovers),
    *(one_owner, cold_promotions, handovers_per_target, warmup_budgets),
)
"""What is called for each part, tables that others need first."""
