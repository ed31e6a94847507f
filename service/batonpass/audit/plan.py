"""What is to be read for one day: for each group, from which record to which.

A day of a group are the records that were appended in it, by the database's clock. To know what was so when the day
began, reading starts at the newest snapshot before it, or at the first record where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from batonpass.codec.groups import GROUP_VERSION

Rows = Callable[[str], Sequence[tuple[Any, ...]]]
"""Carries out a query whose answer is small, and returns its rows."""

DAY_MS: Final = 86_400_000

CHUNK: Final = 500_000
"""About how many records one partition reads."""

PIECE: Final = 250_000
"""About how many records are exchanged in one piece."""

ONE_PART: Final = 25_000
"""Fewer records are not cut for an exchange."""


class MissingDay(Exception):
    """There is nothing to audit: no group has a record on that day or one before it, or there is no such group."""


@dataclass(frozen=True, slots=True)
class GroupPart:
    """What is read of one group.

    Attributes:
        base: the version of the snapshot that reading starts from; 0 for the empty group.
        known: whether the records reach back to ``base``; else what was so before the first one is not known.
        first: the first sequence number of the day.
        last: the last one of the day; below ``first`` when nothing happened.
        missing: how many records the group's head counts beyond the last one that is there.
    """

    group: str
    base: int
    known: bool
    first: int
    last: int
    missing: int

    @property
    def begin(self) -> int:
        """The first sequence number that is read."""
        return self.base + 1


@dataclass(frozen=True, slots=True)
class DayPlan:
    """What is read for one day. It grows with groups alone. ``end_ms`` is no later than when the audit began."""

    day: date
    begin_ms: int
    end_ms: int
    groups: tuple[GroupPart, ...]

    @property
    def so_far_ms(self) -> int | None:
        """Until when the day is read where it was still under way when the audit began; None: it was over."""
        return self.end_ms if self.end_ms < self.begin_ms + DAY_MS else None

    @property
    def records(self) -> int:
        """About how many records are to be read."""
        return sum(max(0, one.last - one.base) for one in self.groups)


# For each group at once, half the range again and again: an index finds the first record from the middle on.
_BOUNDS: Final = """
    with recursive
    heads as (
        select h.group_id, h.version,
               coalesce((select min(seq) from record_log r where r.group_id = h.group_id), h.version + 1) as least,
               coalesce((select max(seq) from record_log r where r.group_id = h.group_id), h.version) as most
          from group_heads h where h.version > 0 and {which}
    ),
    days(place, at) as (values (0, timestamptz '{begin}'), (1, timestamptz '{end}')),
    search(group_id, place, at, lo, hi) as (
        select group_id, place, at, least, greatest(version, most) + 1 from heads cross join days
        union all
        select s.group_id, s.place, s.at,
               case when p.at < s.at then p.seq + 1 else s.lo end,
               case when p.at < s.at then s.hi else s.mid end
          from (select *, (lo + hi) / 2 as mid from search where lo < hi) s
          left join lateral (
              select r.seq, r.at from record_log r where r.group_id = s.group_id and r.seq >= s.mid
              order by r.seq limit 1
          ) p on true
    ),
    found as (select group_id, min(lo) filter (where place = 0) as first, min(lo) filter (where place = 1) as next
                from search where lo >= hi group by group_id)
    select f.group_id, f.first, f.next, h.least, h.most, h.version,
           coalesce((select max(s.version) from snapshots s where s.group_id = f.group_id
                        and s.version < f.first and s.format <= {form}), 0)
      from found f join heads h on h.group_id = f.group_id
     order by f.group_id
"""


def quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def plan_day(rows: Rows, day: date, *, group: str | None = None, now: datetime | None = None) -> DayPlan:
    """Return what is to be read for a day.

    Raises:
        MissingDay: when no group was there on that day, or not the one that was asked for.
    """
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    end = begin + timedelta(days=1)
    now = now or datetime.now(UTC)
    if begin > now:
        raise MissingDay(f"{day} has not begun yet (in UTC it is {now:%Y-%m-%d %H:%M})")
    which = "true" if group is None else f"h.group_id = {quoted(group)}"
    found = rows(_BOUNDS.format(which=which, begin=begin.isoformat(), end=end.isoformat(), form=GROUP_VERSION))
    # A group in which nothing happened has its snapshot, and what was so all day.
    parts = [_part(row) for row in found]
    if not any(one.last >= one.first or _was_there(row) for one, row in zip(parts, found, strict=True)):
        whom = "no group" if group is None else f"group {group}"
        raise MissingDay(
            f"{whom} has a record on {day} (UTC) or before it; days that are kept are in record_log, see"
            " BATONPASS_KEEP_RECORDS_DAYS"
        )
    return DayPlan(day, _ms(begin), min(_ms(end), max(_ms(begin) + 1, _ms(now))), tuple(parts))


def _was_there(row: tuple[Any, ...]) -> bool:
    """Say whether records of a group are kept from before the day: it rested, and whether all was well is known."""
    _, first, _, least, *_ = row
    return int(first) > int(least)


def _part(row: tuple[Any, ...]) -> GroupPart:
    group, *numbers = row
    first, following, least, most, version, base = map(int, numbers)
    # A log that begins behind its snapshot is short of records; what can be read is read.
    start = max(base, least - 1)
    # Whatever the head counts beyond the last record is missing, and it is the last day that shows it.
    missing = max(0, version - most) if following > most else 0
    return GroupPart(str(group), start, start == base, max(first, start + 1), min(following - 1, most), missing)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1_000)


def partitions_for(records: int, cores: int) -> int:
    """Return into how many parts to cut what is exchanged: small enough for memory, and work for all cores."""
    return 1 if records < ONE_PART else max(cores, min(2_000, records // PIECE + 1))
