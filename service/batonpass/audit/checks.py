"""The laws of the log itself: nothing is missing, nobody else wrote, numbers only grow (L2, L4).

Each check is a query over one part of the day, but for the histories of tasks, which the database counts where they
lie and the driver compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from batonpass.audit.findings import Finding, Severity
from batonpass.audit.part import Part, columns
from batonpass.audit.plan import DayPlan, GroupPart, Rows, quoted

FATAL, NOTICE = Severity.FATAL, Severity.NOTICE

BREAKS: Final = columns(
    "group_id varchar, seq bigint, at_ms bigint, coordinator_epoch bigint, after bigint, after_seq bigint,"
    " after_at bigint, highest bigint"
)
"""Records of the day that do not go on where the log was. ``after`` is the record before, or where reading began;
``after_seq`` and ``after_at`` are of the record before, if there is one; ``highest`` is the highest coordinator epoch
before."""

LOGGED: Final = columns("group_id varchar, logged bigint, logged_tokens bigint, logged_reports bigint")
"""How many grants of actives the log of a group's day has, the sum of their tokens, and how many reports."""


def count_logged(part: Part) -> None:
    """Make ``logged``: what the records of the day say of each group's tasks, for ``changes_shown``."""
    part.make(
        "logged",
        LOGGED,
        """
        select b.group_id, count(*) filter (where what = 'active') as logged,
               coalesce(sum(token) filter (where what = 'active'), 0) as logged_tokens,
               count(*) filter (where what = 'reported') as logged_reports
          from bounds b left join changes c on c.group_id = b.group_id and c.seq >= b.first
                                           and c.what in ('active', 'reported')
         group by b.group_id
        """,
    )


def log_laws(part: Part) -> None:
    """Find where records are missing or there twice (L2), and where a coordinator wrote that had been deposed (L4)."""
    _breaks(part)
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
    _edges(part)


def _breaks(part: Part) -> None:
    """Make ``breaks``.

    Whether each record goes on from the one before is seen first, for a third of what the rest costs: the highest epoch
    of all before is looked for only where something is off.
    """
    part.make(
        "breaks",
        BREAKS,
        """
        with
        records as (
            select group_id, seq, at_ms, coordinator_epoch, base, first
              from changes join bounds using (group_id) where place = 0
        ),
        off as (
            select distinct group_id
              from (select group_id, seq, coordinator_epoch, coalesce(lag(seq) over in_order, base) as after,
                           lag(coordinator_epoch) over in_order as epoch_before
                      from records
                    window in_order as (partition by group_id order by seq))
             where seq <> after + 1 or coordinator_epoch < epoch_before
        )
        select group_id, seq, at_ms, coordinator_epoch, coalesce(after_seq, base) as after, after_seq, after_at, highest
          from (select group_id, seq, at_ms, coordinator_epoch, base, first, lag(seq) over in_order as after_seq,
                       lag(at_ms) over in_order as after_at, max(coordinator_epoch) over before as highest
                  from records semi join off using (group_id)
                window in_order as (partition by group_id order by seq, coordinator_epoch, at_ms),
                       before as (partition by group_id order by seq, coordinator_epoch, at_ms
                                  rows between unbounded preceding and 1 preceding))
         where seq >= first and (seq <> coalesce(after_seq, base) + 1 or coordinator_epoch < highest)
        """,
    )


def _edges(part: Part) -> None:
    """Find what is missing at the end of the log (L2), or before its beginning."""
    part.find(
        "L2",
        FATAL,
        """
        select group_id, null as task, null as member,
               'the last ' || if(missing = 1, 'record is', told(missing) || ' records are')
                   || ' missing: the head counts ' || told(last + missing)
                   || ', the last one there is ' || told(last) as detail,
               [last] as sequences, [] as at
          from bounds where missing > 0
        """,
    )
    part.find(
        "unknown-beginning",
        NOTICE,
        """
        select group_id, null as task, null as member,
               'no snapshot says what was so before record ' || told(base + 1)
                   || '; who had what before it is not known' as detail,
               [] as sequences, [] as at
          from bounds where not known
        """,
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
    """Find members whose epoch fell, or grew by more than one an assignment (L2: an assignment was lost or undone)."""
    part.find(
        "L2",
        FATAL,
        """
        with
        -- Lost commits and adoptions raise epochs out of turn.
        raised as (select distinct group_id from changes where what in ('raised', 'adopted')),
        assignments as (
            select group_id, member, seq, at_ms, number, lag(number) over in_order as number_before,
                   lag(seq) over in_order as after, lag(at_ms) over in_order as after_at
              from changes anti join raised using (group_id)
             where place = 0 and what in ('active', 'standby', 'warmup', 'revoked', 'demoted')
            window in_order as (partition by group_id, member order by seq, number)
        )
        select group_id, null as task, member,
               'its epoch ' || told(number) || ' follows ' || told(number_before) || ' at ' || time_of(at_ms)
                   || '; each change of an assignment adds one' as detail,
               [after, seq] as sequences, [after_at, at_ms] as at
          from assignments where number <> number_before + 1
        """,
        of_day=True,
    )


def generations_told(part: Part) -> None:
    """Find generations that the log has and readers are not shown, the other way round, or told otherwise (L2)."""
    part.find(
        "L2",
        FATAL,
        """
        with
        placed as (
            select group_id, number, seq, at_ms as placed_at, until_ms as placed_moves
              from changes join bounds using (group_id) where what = 'placed' and token > 0 and seq >= first
        )
        select group_id, null as task, null as member,
               case when version is null
                    then 'generation ' || told(number) || ' is in the log, and not among the generations'
                    when seq is null then 'generation ' || told(number) || ' is told, and not in the log'
                    else 'generation ' || told(number) || ' moved ' || told(placed_moves)
                         || if(placed_moves = 1, ' task', ' tasks') || ' by the log, ' || told(moves) || ' as told' end as detail,
               [seq] as sequences, [coalesce(placed_at, at_ms)] as at
          from placed full join (select group_id, number, moves, at_ms, version from generations)
                          using (group_id, number)
         where seq is null or version is null or placed_moves <> moves
        """,
    )


LAWS: Final[tuple[Callable[[Part], None], ...]] = (
    *(count_logged, log_laws, member_epochs, unreadable, generations_told),
)
"""What is called for each part, tables that others need first."""


_SHOWN: Final = """
    with days(group_id, first, last) as (values {values}),
    shown as (
        select group_id, version, kind, role, token from assignment_events where at >= '{begin}' and at < '{end}'
        union all
        select group_id, version, kind, role, token from fresh_changes where at >= '{begin}' and at < '{end}'
    )
    select s.group_id, count(*) filter (where s.kind = 'granted' and s.role = 'active') as grants,
           coalesce(sum(s.token) filter (where s.kind = 'granted' and s.role = 'active'), 0)::bigint as tokens,
           count(*) filter (where s.kind = 'reported') as reports
      from shown s join days d on d.group_id = s.group_id and s.version between d.first - 1 and d.last - 1
     group by s.group_id
"""


def changes_shown(logged: Mapping[str, tuple[int, int, int]], rows: Rows, plan: DayPlan) -> list[Finding]:
    """Return the groups whose task histories, as readers are shown them, are not what the log says (L2).

    The database counts them where they lie: in the day's part, and among those that came in bulk and are to be moved
    there. A group of which none are left is passed over. ``logged`` has, by group, what ``LOGGED`` has.
    """
    counted = [
        row
        for some in batched([one for one in plan.groups if one.last >= one.first], GROUPS_AT_ONCE)
        for row in rows(_SHOWN.format(values=_values(some), begin=_around(plan, -1), end=_around(plan, 1)))
    ]
    found = []
    for group, *numbers in counted:
        shown = tuple(int(number or 0) for number in numbers)
        in_log = logged.get(group, (0, 0, 0))
        if shown != in_log:
            detail = (
                f"the histories of tasks show {shown[0]} grants of actives (sum of tokens {shown[1]}) and {shown[2]}"
                f" reports; the log has {in_log[0]} ({in_log[1]}) and {in_log[2]}"
            )
            found.append(Finding(group, "L2", FATAL, None, None, detail))
    return found


GROUPS_AT_ONCE: Final = 1_000


def batched(groups: Sequence[GroupPart], size: int) -> Iterator[Sequence[GroupPart]]:
    """Yield the groups, so many at a time."""
    for begin in range(0, len(groups), size):
        yield groups[begin : begin + size]


def _values(groups: Sequence[GroupPart]) -> str:
    return ", ".join(f"({quoted(one.group)}, {one.first}, {one.last})" for one in groups)


def _around(plan: DayPlan, hours: int) -> str:
    """Return an edge of the day with some room: histories have the coordinator's clock, the log the database's."""
    edge_ms = plan.begin_ms if hours < 0 else plan.begin_ms + 86_400_000
    return datetime.fromtimestamp(edge_ms / 1_000 + hours * 3_600, UTC).isoformat()
