"""The laws of the log itself: nothing is missing, nobody else wrote, numbers only grow (L2, L4).

Each check is a query over one part of the day, but for the ends of logs, which the plan of the day knows. Whether
generations and histories of tasks are what the log says is seen where decisions are made again (``replay``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from batonpass.audit.findings import Finding, Severity
from batonpass.audit.part import Part, columns
from batonpass.audit.plan import DayPlan, GroupPart, Rows, around, quoted

FATAL, NOTICE = Severity.FATAL, Severity.NOTICE

LEAPS: Final = columns("group_id varchar, seq bigint")
"""Records that are not known: those that cannot be read, and those before which some are missing."""

BREAKS: Final = columns(
    "group_id varchar, seq bigint, at_ms bigint, coordinator_epoch bigint, after bigint, after_seq bigint,"
    " after_at bigint, highest bigint, next_at bigint, is_astray boolean"
)
"""Records of the day that do not go on where the log was. ``after`` is the record before, or where reading began;
``after_seq`` and ``after_at`` are of the record before, as far as it is known; ``highest`` is the highest coordinator
epoch before, that of the record with which the snapshot ends among them, if it is still there. ``is_astray``: its date
does not lie between that of the record before and ``next_at``, that of the one behind."""


ASTRAY_MS: Final = 60_000
"""So far the dates of records that follow each other may lie apart the wrong way round: another server's clock."""


def log_laws(part: Part) -> None:
    """Find records that are missing, there twice or dated wrongly (L2), or of a coordinator that was deposed (L4)."""
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

    Whether each record goes on from the one before is seen first, for a third of what the rest costs: the highest epoch
    of all before is looked for only where something is off.
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

    It is followed from the record of its joining on, or from the snapshot that the reading begins with. Where a record
    is missing or cannot be read, and where somebody lost what another adopted, it may have grown by more.
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


LAWS: Final[tuple[Callable[[Part], None], ...]] = (log_laws, member_epochs, unreadable)
"""What is called for each part."""


def edges(plan: DayPlan) -> Iterator[Finding]:
    """Yield what is missing at either end of a log, and where it does not fit its head (L2, L4)."""
    for one in plan.groups:
        last = (one.last,) if one.last >= 1 else ()
        if one.missing:
            lost = "the last record is" if one.missing == 1 else f"the last {one.missing} records are"
            head = f"the head counts {one.last + one.missing}, the last one there is {one.last}"
            yield Finding(one.group, "L2", FATAL, None, None, f"{END_MISSING}{lost} lost, {head}", last)
        if one.beyond is not None:
            detail = f"there are records up to {one.beyond} that the head does not count: it ends at {one.last}"
            yield Finding(one.group, "L2", FATAL, None, None, detail, (one.beyond,))
        if one.deposed is not None:
            detail = f"record {one.last} is of a higher coordinator epoch than the head, which has {one.deposed}"
            yield Finding(one.group, "L4", FATAL, None, None, detail, last)
        if one.lost:
            which, it = ("record 1 is", "it") if one.lost == 1 else (f"records 1 to {one.lost} are", "they")
            taken = "it" if one.lost == 1 else "them"
            detail = f"{which} missing, and no retention can have taken {taken}: nothing is kept of what {it} came to"
            yield Finding(one.group, "L2", FATAL, None, None, detail, (one.first,))
        elif not one.known:
            detail = f"no snapshot says what was so before record {one.base + 1}; who had what before it is not known"
            yield Finding(one.group, "unknown-beginning", NOTICE, None, None, detail)


END_MISSING: Final = "the end of the log is missing: "
"""How each finding begins that says so."""

_TOLD_BEYOND: Final = """
    with logs(group_id) as (values {values})
    select h.group_id, h.version,
           (select max(version) from traces t where t.group_id = h.group_id and t.version >= h.version),
           (select max(version) from generations g where g.group_id = h.group_id and g.version >= h.version),
           (select max(version) from assignment_events a
             where a.group_id = h.group_id and a.version >= h.version and a.at >= '{begin}' and a.at < '{end}')
      from logs join group_heads h using (group_id)
"""


def told_beyond(rows: Rows, plan: DayPlan) -> Iterator[Finding]:
    """Yield the groups of which traces, generations or histories tell more than their heads count (L2).

    What is written with a decision names how many records there were before it: there is at least one more. Heads are
    read anew with what is held against them, since a day under way goes on.
    """
    for some in batched(
        [one for one in plan.groups if one.ends and not one.missing and one.beyond is None], GROUPS_AT_ONCE
    ):
        values = ", ".join(f"({quoted(one.group)})" for one in some)
        sql = _TOLD_BEYOND.format(values=values, begin=around(plan, -1), end=around(plan, 1))
        for group, version, *known in rows(sql):
            told = {
                name: int(value) + 1
                for name, value in zip(("traces", "generations", "histories"), known, strict=True)
                if value is not None
            }
            if told:
                last, most = int(version), max(told.values())
                which = f"record {most}" if most == last + 1 else f"records up to {most}"
                detail = f"{END_MISSING}{', '.join(told)} tell of {which}, the head counts {last}"
                yield Finding(str(group), "L2", FATAL, None, None, detail, (last,) if last else ())


GROUPS_AT_ONCE: Final = 1_000


def batched(groups: Sequence[GroupPart], size: int) -> Iterator[Sequence[GroupPart]]:
    """Yield the groups, so many at a time."""
    for begin in range(0, len(groups), size):
        yield groups[begin : begin + size]
