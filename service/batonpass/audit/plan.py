"""What is to be read for one day: for each group, from which record to which.

The day of a group has the records that were appended on it, by the database's clock. To know the state when the day
began, reading starts at the newest snapshot before it, or at the first record if there is none.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypeVar

from batonpass.codec.groups import GROUP_VERSION

Ask = Callable[[str], Sequence[tuple[Any, ...]]]
"""Carries out a query whose answer is small, and returns its rows."""

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


class MissingDay(Exception):
    """There is nothing to audit: no group has a record on that day or one before it, or there is no such group."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What is read of one group.

    Attributes:
        base: the version of the snapshot that reading starts from; 0 for the empty group.
        known: whether the records reach back to ``base``; else the state before the first one is not known.
        first: the first sequence number of the day.
        last: the last one of the day; below ``first`` when nothing happened.
        missing: how many records the group's head counts beyond the last one that is there.
        base_epoch: the coordinator epoch of the record that ``base`` ends with, if that is still there.
        lost: how many records are missing before the first one, though retention cannot have deleted them.
        beyond: the greatest number of a record of the day that the head does not count, if there is one.
        deposed: the coordinator epoch of the head, where that of the last record is higher.
        ends: whether the log ends with this day.
    """

    group: str
    base: int
    known: bool
    first: int
    last: int
    missing: int
    base_epoch: int | None = None
    lost: int = 0
    beyond: int | None = None
    deposed: int | None = None
    ends: bool = False

    @property
    def begin(self) -> int:
        """The first sequence number that is read."""
        return self.base + 1


@dataclass(frozen=True, slots=True)
class DayPlan:
    """What is read for one day. It grows with groups alone.

    ``end_ms`` is no later than when the audit began. ``is_young``: retention has deleted nothing of the day.
    """

    day: date
    begin_ms: int
    end_ms: int
    groups: tuple[GroupPlan, ...]
    is_young: bool = False

    @property
    def so_far_ms(self) -> int | None:
        """Until when the day is read, if it was still under way when the audit began; None: it was over."""
        return self.end_ms if self.end_ms < self.begin_ms + DAY_MS else None

    @property
    def records(self) -> int:
        """About how many records are to be read."""
        return sum(max(0, one.last - one.base) for one in self.groups)

    def within(self, hours: int = 0) -> str:
        """Return in SQL that ``at`` lies in the whole day, or at most some hours before or after it.

        Histories have times of the coordinator's clock, the log of the database's: rows of the day's records need room.
        """
        edges_ms = (self.begin_ms - hours * HOUR_MS, self.begin_ms + DAY_MS + hours * HOUR_MS)
        begin, end = (datetime.fromtimestamp(edge_ms / 1_000, UTC).isoformat() for edge_ms in edges_ms)
        return f"at >= '{begin}' and at < '{end}'"


RETENTION_LEAST_DAYS: Final = 2
"""The lowest BATONPASS_KEEP_RECORDS_DAYS, and that of task histories: retention deletes nothing younger."""

# From group to group by the index: a group whose head is lost still has records, and one without these has other rows.
_NAMES: Final = """
    {table}_names(group_id) as (
        (select group_id from {table} h where {which} order by group_id limit 1)
        union all
        select (select r.group_id from {table} r where r.group_id > l.group_id and {following} order by 1 limit 1)
          from {table}_names l where l.group_id is not null
    ),
"""
_NAMED: Final = "union select group_id from {table}_names where group_id is not null"
_NAMING: Final = ("record_log", "snapshots", "generations", "traces", "assignment_events")

# A binary search for all groups at once: an index finds the first record from the middle of the range on.
_BOUNDS: Final = """
    with recursive
    days(place, at) as (values (0, timestamptz '{begin}'), (1, timestamptz '{end}')),
    {names}
    named as (
        select group_id from group_heads h where version > 0 and {which}
        {named}
    ),
    heads as (
        select group_id, version, coordinator_epoch, coalesce(least, version + 1) as least, coalesce(most, version) as most,
               beyond
          from (select n.group_id, coalesce(h.version, 0) as version, h.coordinator_epoch
                  from named n left join group_heads h on h.group_id = n.group_id) h
         cross join lateral (select min(seq) as least, max(seq) as most from record_log r
                              where r.group_id = h.group_id and r.seq between 1 and h.version) e
         -- One range of the index after the other: both together would be a look at every record.
         cross join lateral (select coalesce(
             (select max(seq) from record_log r
               where r.group_id = h.group_id and r.seq > h.version and r.at >= '{begin}' and r.at < '{end}'),
             (select max(seq) from record_log r
               where r.group_id = h.group_id and r.seq < 1 and r.at >= '{begin}' and r.at < '{end}')) as beyond) b
    ),
    search(group_id, place, at, lo, hi) as (
        select group_id, place, at, least, most + 1 from heads cross join days
        union all
        select s.group_id, s.place, s.at,
               case when p.at < s.at then p.seq + 1 else s.lo end,
               case when p.at < s.at then s.hi else s.mid end
          from (select *, lo + (hi - lo) / 2 as mid from search where lo < hi) s
          left join lateral (
              select r.seq, r.at from record_log r where r.group_id = s.group_id and r.seq >= s.mid and r.seq < s.hi
              order by r.seq limit 1
          ) p on true
    ),
    edges as (select group_id, min(lo) filter (where place = 0) as first, min(lo) filter (where place = 1) as next
                from search where lo >= hi group by group_id),
    -- A record with a wrong date may have led astray: then there are others of the day on its far side.
    astray as (
        select e.*, coalesce((select at from record_log r where r.group_id = e.group_id and r.seq = e.first - 2) >= '{begin}'
                             or (select at from record_log r where r.group_id = e.group_id and r.seq = e.next + 1) < '{end}',
                             false) as is_astray
          from edges e
    ),
    found as (
        select a.group_id, coalesce(d.first, a.first) as first, coalesce(d.next, a.next) as next
          from astray a
          left join lateral (select min(seq) as first, max(seq) + 1 as next from record_log r join heads h using (group_id)
                              where a.is_astray and r.group_id = a.group_id and r.seq between 1 and h.version
                                and r.at >= '{begin}' and r.at < '{end}') d on true
    )
    select f.group_id, f.first, f.next, h.least, h.most, h.version, s.base, h.beyond,
           (select coordinator_epoch from record_log r where r.group_id = f.group_id and r.seq = s.base) as base_epoch,
           (select h.coordinator_epoch from record_log r where r.group_id = f.group_id and r.seq = h.most
               and r.coordinator_epoch > h.coordinator_epoch) as deposed,
           -- What retention takes is old, and there is a snapshot of its result.
           h.least > 1 and (
               not exists (select from snapshots p where p.group_id = f.group_id and p.version >= h.least - 1)
               or exists (select from traces t where t.group_id = f.group_id and t.version < h.least - 1 and t.at >= '{young}')
               or exists (select from generations g
                           where g.group_id = f.group_id and g.version < h.least - 1 and g.at >= '{young}')
           ) as lost
      from found f join heads h on h.group_id = f.group_id
     -- A snapshot that was stored on the day is itself held against the log, if there is an older one to begin with.
     cross join lateral (select coalesce((select p.version from snapshots p
                          where p.group_id = f.group_id and p.version < f.first and p.format <= {form} and (p.at < '{begin}' or h.least > 1)
                          order by p.at < '{begin}' and p.version >= h.least - 1 desc, p.version desc limit 1), 0) as base) s
     order by f.group_id
"""


def quoted(text: str) -> str:
    """Return a text as a literal of SQL, which is read alike whatever `standard_conforming_strings` is."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def time_of_database(ask: Ask) -> datetime:
    """Return what time it is by the clock by which everything in the database was written."""
    ((at_s,),) = ask("select extract(epoch from clock_timestamp())::float8")
    return datetime.fromtimestamp(at_s, UTC)


def plan_day(ask: Ask, day: date, *, group: str | None = None, now: datetime | None = None) -> DayPlan:
    """Return what is to be read for a day.

    Raises:
        MissingDay: when no group existed on that day, or not the one that was asked for.
    """
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    now = now or time_of_database(ask)
    if begin > now:
        raise MissingDay(f"{day} has not begun yet (in UTC it is {now:%Y-%m-%d %H:%M})")
    end = begin + timedelta(days=1)
    which = "true" if group is None else f"h.group_id = {quoted(group)}"
    said = {
        "begin": begin.isoformat(),
        "end": end.isoformat(),
        "young": (now - timedelta(days=RETENTION_LEAST_DAYS)).isoformat(),
        "form": GROUP_VERSION,
    }
    following = "true" if group is None else "false"
    names = "".join(_NAMES.format(table=one, which=which, following=following) for one in _NAMING)
    named = " ".join(_NAMED.format(table=one) for one in _NAMING)
    found = ask(_BOUNDS.format(which=which, names=names, named=named, **said))
    # A group in which nothing happened is read, too: its snapshot has its state of the whole day.
    groups = [_group_plan(row) for row in found]
    if not any(
        one.last >= one.first or one.beyond is not None or _was_there(row)
        for one, row in zip(groups, found, strict=True)
    ):
        whom = "no group" if group is None else f"no group {group}"
        raise MissingDay(
            f"{whom} has a record on {day} (UTC) or before it; days that are kept are in record_log, see"
            " BATONPASS_KEEP_RECORDS_DAYS"
        )
    is_young = now - begin < timedelta(days=RETENTION_LEAST_DAYS)
    return DayPlan(day, _ms(begin), min(_ms(end), max(_ms(begin) + 1, _ms(now))), tuple(groups), is_young)


def _was_there(row: tuple[Any, ...]) -> bool:
    """Return whether a group was there before the day, as its records say, or has lost its log and its head."""
    _, first, _, least, _, version, *_ = row
    return int(first) > int(least) or not int(version)


def _group_plan(row: tuple[Any, ...]) -> GroupPlan:
    group, *numbers = row
    *numbers, beyond, base_epoch, deposed, is_lost = numbers
    first, following, least, most, version, base = map(int, numbers)
    # A log that begins behind its snapshot lacks records; the records that are there are read.
    start = max(base, least - 1)
    ends = following > most
    # Records that the head counts beyond the last one are missing; the last day of the log shows that.
    missing = max(0, version - most) if ends else 0
    return GroupPlan(
        group=str(group),
        base=start,
        known=start == base,
        first=max(first, start + 1),
        last=min(following - 1, most),
        missing=missing,
        base_epoch=_whole(base_epoch) if start == base else None,
        # Only the day of the first record shows this.
        lost=least - 1 if is_lost and first <= least < following else 0,
        beyond=_whole(beyond),
        deposed=_whole(deposed) if ends else None,
        ends=ends,
    )


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1_000)


GROUPS_AT_ONCE: Final = 500
"""How many groups one query asks for at most."""

_One = TypeVar("_One")


def batched(items: Sequence[_One]) -> Iterator[Sequence[_One]]:
    """Yield what one query asks for, ``GROUPS_AT_ONCE`` at a time."""
    for begin in range(0, len(items), GROUPS_AT_ONCE):
        yield items[begin : begin + GROUPS_AT_ONCE]
