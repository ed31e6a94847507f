"""The laws that the log shows by itself, each a query over one part of the day.

First those of the log: nothing is missing, no other coordinator wrote, numbers only grow (L2, L4). Then those of tasks:
one owner at a time (L1), ready copies take over (L7), moves and copies within bounds (L8). Last the ends of logs, which
the plan of the day knows. Whether generations and histories agree with the log is checked where decisions are made
again (``replay``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final

from batonpass.audit.findings import END_MISSING, Finding, Severity
from batonpass.audit.part import Part, columns
from batonpass.audit.plan import Ask, DayPlan, batched, quoted

FATAL, NOTICE = Severity.FATAL, Severity.NOTICE

LEAPS: Final = columns("group_id varchar, seq bigint")
"""Records that are not known: those that cannot be read, and those before which some are missing."""

BREAKS: Final = columns(
    "group_id varchar, seq bigint, at_ms bigint, coordinator_epoch bigint, after bigint, after_seq bigint,"
    " after_at bigint, highest bigint, next_at bigint, is_astray boolean"
)
"""Records of the day that do not follow the record before. ``after`` is the number of that one, or where reading began;
``after_seq`` and ``after_at`` belong to that one, if it is known. ``highest`` is the highest coordinator epoch before;
the last record of the snapshot counts, too, if it is still there. ``is_astray``: the record's date does not lie between
the dates of the record before and of the next one (``next_at``)."""


ASTRAY_MS: Final = 60_000
"""By how much a record may be dated before its predecessor, as servers' clocks differ."""


def log_laws(part: Part) -> None:
    """Find records that are missing, exist twice or are dated wrongly (L2), or are of a deposed coordinator (L4)."""
    _breaks(part)
    part.make(
        "leaps",
        LEAPS,
        """
        select group_id, seq from changes where what = 'unreadable' and place >= 0
         union all
        select group_id, seq from breaks where seq > after + 1
        """,
    )
    part.find(
        "L2",
        FATAL,
        """
        select group_id, null as task, null as member,
               if(seq - after = 2,
                  'record ' || told(after + 1) || ' is missing before ' || time_of(at_ms),
                  'records ' || told(after + 1) || ' to ' || told(seq - 1) || ' are missing before ' || time_of(at_ms))
                   as detail,
               [after_seq, seq] as sequences, [after_at, at_ms] as at
          from breaks where seq > after + 1
        """,
    )
    part.find(
        "L2",
        FATAL,
        """
        select group_id, null as task, null as member, 'record ' || told(seq) || ' is there twice' as detail,
               [seq] as sequences, [at_ms] as at
          from breaks where seq = after_seq
        """,
    )
    part.find(
        "L2",
        FATAL,
        """
        select group_id, null as task, null as member,
               'record ' || told(seq) || ' is dated ' || time_of(at_ms) || '; the one before it is of '
                   || time_of(after_at) || ', the one behind it of ' || time_of(next_at) as detail,
               [seq] as sequences, [at_ms] as at
          from breaks where is_astray
        """,
    )
    part.find(
        "L4",
        FATAL,
        """
        select group_id, null as task, null as member,
               'a coordinator of epoch ' || told(coordinator_epoch) || ' appended after one of epoch ' || told(highest)
                   || ' at ' || time_of(at_ms) as detail,
               [after_seq, seq] as sequences, [after_at, at_ms] as at
          from breaks where coordinator_epoch < highest
        """,
    )


def _breaks(part: Part) -> None:
    """Make ``breaks``.

    Whether each record follows the one before is checked first, for a third of what the rest costs. The highest epoch
    before is looked for only in groups in which something is wrong.
    """
    part.make(
        "breaks",
        BREAKS,
        """
        with
        records as (
            select c.group_id, seq, at_ms, what, c.coordinator_epoch, base, first, base_epoch
              from changes c join bounds b on b.group_id = c.group_id where place = 0
        ),
        off as (
            select distinct group_id
              from (select group_id, seq, at_ms, coordinator_epoch, coalesce(lag(seq) over in_order, base) as after,
                           coalesce(lag(coordinator_epoch) over in_order, base_epoch) as epoch_before,
                           lag(at_ms) over in_order as after_at
                      from records
                    window in_order as (partition by group_id order by seq))
             where seq <> after + 1 or coordinator_epoch < epoch_before or at_ms < after_at - {astray}
        ),
        beside as (
            select group_id, seq, at_ms, what, coordinator_epoch, base, first,
                   coalesce(lag(seq) over in_order, if(base_epoch is null, null, base)) as after_seq,
                   lag(at_ms) over in_order as after_at, lead(at_ms) over in_order as next_at,
                   greatest(max(coordinator_epoch) over before, base_epoch) as highest
              from records semi join off using (group_id)
            window in_order as (partition by group_id order by seq, coordinator_epoch, at_ms),
                   before as (partition by group_id order by seq, coordinator_epoch, at_ms
                              rows between unbounded preceding and 1 preceding)
        ),
        seen as (
            select *, coalesce(after_at <= next_at + {astray} and what <> 'unreadable'
                               and (at_ms < after_at - {astray} or at_ms > next_at + {astray}), false) as is_astray
              from beside
        )
        select group_id, seq, at_ms, coordinator_epoch, coalesce(after_seq, base) as after, after_seq, after_at, highest,
               next_at, is_astray
          from seen
         where seq >= first and (seq <> coalesce(after_seq, base) + 1 or coordinator_epoch < highest or is_astray)
        """.replace("{astray}", str(ASTRAY_MS)),
    )


def unreadable(part: Part) -> None:
    """Find records that no program of this version can read (L2: what they say is lost to every reader)."""
    part.find(
        "L2",
        FATAL,
        """
        select group_id, null as task, null as member,
               'record ' || told(seq) || ' cannot be read: ' || told(word) as detail, [seq] as sequences, [at_ms] as at
          from changes where what = 'unreadable' and place >= 0
        """,
        of_day=True,
    )
    part.find(
        "unreadable-snapshot",
        NOTICE,
        """
        select group_id, null as task, null as member,
               'the snapshot of version ' || told(seq) || ': ' || told(word) as detail, [] as sequences, [] as at
          from changes where what = 'unreadable' and place < 0
        """,
        of_day=True,
    )


def member_epochs(part: Part) -> None:
    """Find members whose epoch fell, or grew by more than one an assignment (L2: an assignment was lost or undone).

    The epoch is followed from the record of the member's join on, or from the snapshot that reading begins with. It may
    have grown by more where a record is missing or cannot be read, and where a member lost what another one adopted.
    """
    part.find(
        "L2",
        FATAL,
        """
        with
        raised as (
            select group_id, seq from changes where what = 'adopted' union all select group_id, seq from leaps
        ),
        told as (
            select group_id, member, seq, at_ms, what, number, lag(seq) over in_order as after,
                   lag(at_ms) over in_order as after_at,
                   if(lag(what) over in_order = 'raised', max(number) over before, lag(number) over in_order) as known
              from changes
             where what in ('joined', 'raised')
                or (place = 0 and what in ('active', 'standby', 'warmup', 'revoked', 'demoted'))
            window in_order as (partition by group_id, member order by seq, place, number),
                   before as (partition by group_id, member order by seq, place, number
                              rows between unbounded preceding and 1 preceding)
        ),
        off as (
            select * from told where what not in ('joined', 'raised') and number <> known + 1
        )
        select group_id, null as task, member,
               'its epoch ' || told(number) || ' follows ' || told(known) || ' at ' || time_of(at_ms)
                   || '; each change of an assignment adds one' as detail,
               [after, seq] as sequences, [after_at, at_ms] as at
          from off
         where number <= known
            or not exists (select 1 from raised
                            where raised.group_id = off.group_id and raised.seq > off.after and raised.seq <= off.seq)
        """,
        of_day=True,
    )


EXCUSED: Final = columns("group_id varchar, member varchar")
"""Members from whom tasks may be taken without a ready copy."""

STATELESS: Final = columns("group_id varchar, subtopology varchar")
"""Subtopologies without state."""

BUDGETS: Final = columns("group_id varchar, seq bigint, normal bigint, drains bigint, of_member bigint")
"""How many warmups a group's settings allow from a record on: in all, as many again for drains, and on one member."""

DRAINING: Final = columns("group_id varchar, seq bigint, members bigint")
"""How many members of a group drain from a record on."""

DOUBTFUL: Final = columns(
    "group_id varchar, task varchar, member varchar, seq bigint, at_ms bigint, ms bigint, token bigint, may_run int,"
    " held_token bigint, held_seq bigint, held_at bigint, held_by varchar"
)
"""Doubtful grants: ``may_run`` members might run the task then, or ``held_token``, the highest token granted before, is
not below that of the grant. ``held_seq`` and the columns behind it describe the grant before."""

HANDOVERS: Final = columns(
    "group_id varchar, task varchar, runner varchar, revoked_seq bigint, revoked_ms bigint, revoked_at_ms bigint,"
    " revoked_epoch bigint, revoked_nth bigint, taker varchar, taken_seq bigint, taken_at_ms bigint, taken_ready boolean,"
    " taken_role varchar, taken_epoch bigint, next_owner varchar"
)
"""Runs that ended because the running owner was told to give the task up to another member, without a failure."""

WARMING: Final = columns(
    "group_id varchar, task varchar, member varchar, seq bigint, at_ms bigint, of_group bigint, of_member bigint"
)
"""Where warmups began or ended. If a decision began a warmup on a member that had no copy of the task before,
``of_group`` and ``of_member`` are how many warmups the group and the member had after that decision; only its last row,
and its last row of that member, has them."""


def excused(part: Part) -> None:
    """Make ``excused``: members that were suspected, or drained with a deadline, at some time of the day."""
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
    """Make ``budgets``. A budget that is a share is a share of the stateful tasks that there are by then."""
    part.make(
        "budgets",
        BUDGETS,
        """
        with
        said as (
            select group_id, seq, place, word as config, null as stateful from changes where what = 'config'
             union all
            select group_id, seq, place, null,
                   coalesce(list_sum([try_cast(one[2] as bigint) for one in from_json(word, '[["VARCHAR"]]')
                                      if one[3] = 'true']), 0)
              from changes where what = 'topology'
        ),
        settings as (
            select group_id, seq, last_value(config ignore nulls) over so_far as config,
                   coalesce(last_value(stateful ignore nulls) over so_far, 0) as stateful
              from said
            window so_far as (partition by group_id order by seq, place rows between unbounded preceding and current row)
           qualify row_number() over (partition by group_id, seq order by place desc) = 1
        ),
        -- A share for drains counts as at least two.
        copies as (
            select group_id, seq, least, try_cast(config ->> 'max_warmups_per_member' as bigint) as of_member,
                   case when ends_with(setting, '%')
                        then greatest(least, ceil(try_cast(rtrim(setting, '%') as double) * stateful / 100 - 1e-9))
                        else greatest(1, try_cast(setting as bigint)) end as copies
              from (select *, unnest([1, 2]) as least,
                           unnest([config ->> 'max_warmup_replicas', config ->> 'max_drain_warmups']) as setting
                      from settings where config is not null)
        )
        select group_id, seq, max(copies) filter (least = 1) as normal, max(copies) filter (least = 2) as drains,
               any_value(of_member) as of_member
          from copies
         group by group_id, seq
        """,
    )


def draining(part: Part) -> None:
    """Make ``draining``, for groups in which any member ever drains."""
    part.make(
        "draining",
        DRAINING,
        """
        with
        told as (
            select group_id, member, seq, place, what = 'drain' as drains
              from changes semi join (select distinct group_id, member from changes where what = 'drain')
                           using (group_id, member)
             where what in ('drain', 'undrain', 'gone', 'away')
             union all
            select d.group_id, j.member, d.seq, d.place, false
              from changes d join (select distinct group_id, member from changes where what = 'drain') j using (group_id)
             where d.what = 'deleted'
        ),
        turned as (
            select group_id, seq, place,
                   drains::int - coalesce(lag(drains) over (partition by group_id, member order by seq, place), false)::int
                       as more
              from told
        )
        select group_id, seq, sum(more) over (partition by group_id order by seq, place
                                              rows between unbounded preceding and current row) as members
          from turned
       qualify row_number() over (partition by group_id, seq order by place desc) = 1
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
            select *, sum(licensed::int - was_licensed::int) over so_far as may_run,
                   max(if(act = 'grant', token, null)) over before as held_token
              from rights
            window so_far as (partition by line order by nth rows between unbounded preceding and current row),
                   before as (partition by line order by nth rows between unbounded preceding and 1 preceding)
        ),
        wrong as (
            select n, line, nth, may_run, held_token
              from rated where act = 'grant' and (may_run > 1 or token <= held_token)
        ),
        earlier as (
            select w.n, w.may_run, w.held_token, h.n as held_n
              from wrong w
              asof left join (select n, line, nth from rights where act = 'grant') h on h.line = w.line and h.nth < w.nth
        )
        select o.group_id, o.task, o.member, s.seq, s.at_ms, s.ms, s.token, e.may_run, e.held_token,
               h.seq as held_seq, h.at_ms as held_at, b.member as held_by
          from earlier e
          join story s on s.n = e.n and s.what = 'active'
          join copies o on o.copy = s.copy
          left join story h on h.n = e.held_n
          left join copies b on b.copy = h.copy
        """,
    )


def one_owner(part: Part) -> None:
    """Find grants made while another member might still run the task, or under a token that did not grow (L1)."""
    part.find(
        "L1",
        FATAL,
        """
        select group_id, task, member,
               'granted at ' || time_of(ms) || ' while ' || told(held_by)
                   || ' might still run it: it had not confirmed, was not gone, and still had a lease' as detail,
               [held_seq, seq] as sequences, [held_at, at_ms] as at
          from doubtful where may_run > 1
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
         where revoked_seq is not null and taken_seq > revoked_seq and (fell_seq is null or fell_seq > revoked_seq)
           and not parked and taker <> runner
        """,
    )


def cold_promotions(part: Part) -> None:
    """Find handovers from a running, willing owner to a member whose copy was not caught up (L7).

    A member that was not chosen when the owner was told to stop is excused: it took over because the chosen one fell
    away. So is a member whose copy was not known to a coordinator that had just started. In a Kafka Streams application
    so is a member that has a copy: between the two rebalances of a move nothing says how far behind it is.
    """
    part.find(
        "L7",
        FATAL,
        r"""
        with
        cold as (
            select *, taken_role in ('standby', 'warmup') as has_copy, regexp_extract(task, '^(.*)_\d+$', 1) as subtopology
              from handovers
             where not taken_ready and (next_owner is null or next_owner = taker)
        )
        select group_id, task, taker as member,
               'taken from ' || told(runner) || ', which ran it, at ' || time_of(revoked_ms) || ' for ' || told(taker)
                   || ', which had '
                   || if(has_copy, 'a ' || taken_role || ' that was not caught up', 'no copy of it') as detail,
               [revoked_seq, taken_seq] as sequences, [revoked_at_ms, taken_at_ms] as at
          from cold anti join stateless using (group_id, subtopology)
         where (not has_copy or taken_epoch = revoked_epoch)
           and not (has_copy and group_id in (
                   select group_id from changes where what = 'config' and (word ->> 'kafka_streams') = 'true'))
           -- Where the beginning is lost, nobody knows which tasks have state.
           and (group_id in (select group_id from bounds anti join leaps using (group_id) where known)
                or group_id in (select group_id from changes where what = 'topology'))
        """,
        of_day=True,
    )


BEHIND: Final = "that was not caught up"


def superseded(found: Iterable[tuple[Finding, int]], lawful: Container[str]) -> list[tuple[Finding, int]]:
    """Return findings, each with how many there are of its group and law, without those that the replay refutes.

    A copy that is caught up when it is chosen may have fallen a little behind when its owner has stopped; the log has
    only that later state. In the groups of ``lawful`` every decision was made again, with the soft state of then, and
    checked by the laws. So the replay has judged it with full knowledge.
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
            select group_id, task, taker, taken_seq, revoked_seq, revoked_at_ms, m.nth as target_nth
              from (select * from handovers join lines using (group_id, task)) h
              asof left join meant m on m.line = h.line and m.nth <= h.revoked_nth
        )
        select group_id, task, member,
               told(handovers) || ' handovers from running owners for one change of its target, since '
                   || time_of(times[1]) as detail,
               sequences, times as at
          from (select group_id, task, count(*) as handovers, arg_max(taker, taken_seq) as member,
                       list(revoked_seq order by revoked_seq)[1:10] as sequences,
                       list(revoked_at_ms order by revoked_at_ms)[1:10] as times
                  from counted
                 group by group_id, task, target_nth
                having count(*) > 1)
        """,
        of_day=True,
    )


def warmup_budgets(part: Part) -> None:
    """Find decisions that began a warmup beyond the budget of the group or of its member (L8).

    To avoid false findings, fewer copies are counted than the law counts: not a warmup that was chosen as the next
    owner, and not a standby on its way. The budget is that of the settings by then; the one for drains is added while
    any member drains.
    """
    _warming(part)
    part.find(
        "L8",
        FATAL,
        """
        with
        judged as (
            select w.*, normal, if(coalesce(d.members, 0) > 0, drains, 0) as for_drains
              from (select * from warming where of_group is not null) w
              asof join budgets b on b.group_id = w.group_id and b.seq <= w.seq
              asof left join draining d on d.group_id = w.group_id and d.seq <= w.seq
        )
        select group_id, task, null as member,
               told(of_group) || ' warmups at ' || time_of(at_ms) || '; '
                   || if(for_drains > 0, 'max_warmup_replicas and max_drain_warmups together allow ',
                         'nobody drains, and max_warmup_replicas allows ')
                   || told(normal + for_drains) as detail,
               [seq] as sequences, [at_ms] as at
          from judged where of_group > normal + for_drains
        """,
        of_day=True,
    )
    part.find(
        "L8",
        FATAL,
        """
        select w.group_id, task, member,
               told(w.of_member) || ' warmups on one member at ' || time_of(at_ms) || '; max_warmups_per_member allows '
                   || told(b.of_member) as detail,
               [w.seq] as sequences, [at_ms] as at
          from (select * from warming where of_member is not null) w
          asof join budgets b on b.group_id = w.group_id and b.seq <= w.seq
         where w.of_member > b.of_member
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
            select group_id, task, member, from_seq as seq, from_at_ms as at_ms, 1 as change, fresh from warmups
             union all
            select group_id, task, member, to_seq, to_at_ms, -1, false from warmups where to_seq is not null
        ),
        counted as (
            select group_id, task, member, seq, at_ms,
                   sum(change) over (partition by group_id order by seq, change, task, member
                                     rows between unbounded preceding and current row) as of_group,
                   sum(change) over (partition by group_id, member order by seq, change, task
                                     rows between unbounded preceding and current row) as of_member,
                   -- One decision writes several records at one instant, and is judged by its end.
                   bool_or(fresh) over decision as began,
                   bool_or(fresh) over on_member as began_on_member,
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


def unproven(part: Part) -> None:
    """Drop findings that are not proven: a missing or unreadable record may be the confirmation that they lack.

    Only a record between the ones that prove the finding matters; for a number of warmups, every record before.
    """
    part.drop(
        """
        law in ('L1', 'L7', 'L8')
        and exists (select 1 from leaps
                     where leaps.group_id = found.group_id and leaps.seq <= found.sequences[-1]
                       and (len(found.sequences) = 1 or leaps.seq > found.sequences[1]))
        """
    )


STEPS: Final[tuple[Callable[[Part], None], ...]] = (
    *(log_laws, member_epochs, unreadable),
    *(excused, stateless, budgets, draining, doubtful, handovers),
    *(one_owner, cold_promotions, handovers_per_target, warmup_budgets, unproven),
)
"""What is called for each part, tables that others need first."""


def log_ends(plan: DayPlan) -> Iterator[Finding]:
    """Yield what is missing at either end of a log, and where the log disagrees with its head (L2, L4)."""
    for one in plan.groups:
        last = (one.last,) if one.last >= 1 else ()
        if one.missing:
            lost = "the last record is" if one.missing == 1 else f"the last {one.missing} records are"
            head = f"the head counts {one.last + one.missing}, the last one found is {one.last}"
            yield Finding(one.group, "L2", FATAL, None, None, f"{END_MISSING}{lost} lost, {head}", last)
        if one.beyond is not None:
            detail = f"there are records up to {one.beyond} that the head does not count: it ends at {one.last}"
            yield Finding(one.group, "L2", FATAL, None, None, detail, (one.beyond,))
        if one.deposed is not None:
            detail = f"record {one.last} is of a higher coordinator epoch than the head, which has {one.deposed}"
            yield Finding(one.group, "L4", FATAL, None, None, detail, last)
        if one.lost:
            which = "record 1 is" if one.lost == 1 else f"records 1 to {one.lost} are"
            why_not = "too recent for that, or no snapshot has the result"
            detail = (
                f"{which} missing, and retention cannot have deleted {'it' if one.lost == 1 else 'them'}: {why_not}"
            )
            yield Finding(one.group, "L2", FATAL, None, None, detail, (one.first,))
        elif not one.known:
            detail = f"no snapshot has the state before record {one.base + 1}, so the owners before it are not known"
            yield Finding(one.group, "unknown-beginning", NOTICE, None, None, detail)


_BEYOND_HEADS: Final = """
    with logs(group_id) as (values {values})
    select h.group_id, h.version,
           (select max(version) from traces t where t.group_id = h.group_id and t.version >= h.version),
           (select max(version) from generations g where g.group_id = h.group_id and g.version >= h.version),
           (select max(version) from assignment_events a
             where a.group_id = h.group_id and a.version >= h.version and {within})
      from logs join group_heads h using (group_id)
"""


def beyond_heads(ask: Ask, plan: DayPlan) -> Iterator[Finding]:
    """Yield the groups whose traces, generations or task histories go beyond what their heads count (L2).

    A row that is written with a decision has the number of records before it, so there is at least one more. Heads are
    read again together with these rows, since a day under way goes on.
    """
    for some in batched([one for one in plan.groups if one.ends and not one.missing and one.beyond is None]):
        values = ", ".join(f"({quoted(one.group)})" for one in some)
        sql = _BEYOND_HEADS.format(values=values, within=plan.within(hours=1))
        for group, version, *known in ask(sql):
            beyond = {
                name: int(value) + 1
                for name, value in zip(("traces", "generations", "histories"), known, strict=True)
                if value is not None
            }
            if beyond:
                last, most = int(version), max(beyond.values())
                which = f"record {most}" if most == last + 1 else f"records up to {most}"
                detail = f"{END_MISSING}{', '.join(beyond)} tell of {which}, the head counts {last}"
                yield Finding(str(group), "L2", FATAL, None, None, detail, (last,) if last else ())
