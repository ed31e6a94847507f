"""Reads a group's day in the order of its log: each record, and beside it what else the decision wrote that made it.

Runs on the executors. Rows are read and put in order some versions at a time, so that memory does not grow with the
day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from batonpass.audit.database import Read
from batonpass.audit.entries import INSTANT_MOST
from batonpass.audit.facts import Lag
from batonpass.audit.measures import Generation
from batonpass.audit.plan import Ask, DayPlan, GroupPlan, quoted
from batonpass.audit.tables import SELECTS

RECORD, SNAPSHOT, TRACE, HISTORY, GENERATION = range(5)
"""The order in which rows of one version are taken: the last record up to it, a snapshot of what the records come to,
then the other rows of the decision that was made there."""


class LogRow(NamedTuple):
    """One row of a group; ``rank`` is one of those above. Only records have an ``epoch`` and a ``kind``."""

    version: int
    rank: int
    epoch: int
    at_ms: int
    kind: str
    form: int
    payload: bytes


_COLUMNS: Final[Mapping[int, tuple[str, str]]] = {
    SNAPSHOT: ("snapshots", "version, 0, at_ms, '', format, payload"),
    RECORD: ("records", "seq, coordinator_epoch, at_ms, kind, version, convert_to(payload, 'UTF8')"),
    TRACE: ("traces", "version, 0, at_ms, '', format, convert_to(payload, 'UTF8')"),
    HISTORY: ("histories", "version, 0, at_ms, '', 0, convert_to(payload, 'UTF8')"),
    GENERATION: ("whole_generations", "version, 0, at_ms, '', 0, convert_to(payload, 'UTF8')"),
}
"""For each rank the name of what is read (``tables.SELECTS``), and the columns of ``LogRow`` that are read of it."""

# The chain of traces begins with the last trace before the day that was started from empty soft state, else with the
# first one of the day.
_CHAIN_BEGIN: Final = """
    select coalesce((select max(version) from traces where group_id = {group} and version < {first}
                        and payload -> 'soft' ->> 'from_empty' = 'true'),
                    (select min(version) from traces where group_id = {group} and version between {first} - 1 and {last}))
"""

AT_ONCE: Final = 5_000
"""So many versions of a group are read, and put in order, at once."""


def log_rows(read: Read, plan: DayPlan, one: GroupPlan, *, replayed: bool, has_histories: bool) -> Iterator[LogRow]:
    """Yield what is read of a group, by version and rank; without ``replayed`` only the first snapshot and the records.

    Records of one number are in the order of their coordinators and dates.
    """
    within = plan.within(hours=1)
    first = {RECORD: one.begin}
    if replayed:
        first[SNAPSHOT] = one.begin
        first[GENERATION] = one.first - 1
        if has_histories:
            first[HISTORY] = one.first - 1
        if one.last >= one.first:
            sql = _CHAIN_BEGIN.format(group=quoted(one.group), first=one.first, last=one.last)
            ((chain_begin,),) = read(sql)
            if chain_begin is not None:
                first[TRACE] = chain_begin
    if one.base and one.known:
        yield from _read(read, SNAPSHOT, one, (one.base, one.base))
    for low in range(min(first.values()), one.last + 1, AT_ONCE):
        high = min(low + AT_ONCE - 1, one.last)
        found: list[LogRow] = []
        for rank, begin in first.items():
            # The decision that was made at the last record belongs to the day after.
            last = high if rank in (RECORD, SNAPSHOT) else min(high, one.last - 1)
            if begin <= last:
                found += _read(read, rank, one, (max(low, begin), last), within)
        yield from sorted(found, key=itemgetter(0, 1, 2, 3))


def _read(read: Read, rank: int, one: GroupPlan, versions: tuple[int, int], within: str = "") -> Iterator[LogRow]:
    name, columns = _COLUMNS[rank]
    select = SELECTS[name].replace("{within}", within)
    number = "seq" if rank == RECORD else "version"
    where = f"group_id = {quoted(one.group)} and {number} between {versions[0]} and {versions[1]}"
    for version, *rest in read(f"select {columns} from ({select}) as whole where {where}"):  # noqa: S608 - our own words
        yield LogRow(version, rank, *rest)


def warmup_lags(read: Read, plan: DayPlan, one: GroupPlan) -> Mapping[tuple[str, str], list[Lag]]:
    """Return what the day's samples say of a group's warmups, by task and member."""
    lags: defaultdict[tuple[str, str], list[Lag]] = defaultdict(list)
    where = f"{plan.within()} and group_id = {quoted(one.group)}"
    sql = f"select task, member, at_ms, lag from ({SELECTS['warmups']}) as whole where {where}"  # noqa: S608 - our own words
    for task, member, at_ms, lag in read(sql):
        lags[task, member].append(Lag(at_ms, lag))
    return lags


def generations(read: Read, one: GroupPlan) -> list[Generation]:
    """Return the generations of a group's day, as readers are shown them; one of an impossible date is left out."""
    where = f"group_id = {quoted(one.group)} and version between {one.first - 1} and {one.last - 1}"
    sql = f"select number, at_ms, members, tasks, score from ({SELECTS['generations']}) as whole where {where}"  # noqa: S608 - our own words
    return [found for row in read(sql) if abs((found := Generation(*row)).at_ms) < INSTANT_MOST]


def has_histories(ask: Ask, plan: DayPlan) -> bool:
    """Return whether task histories of the day are kept; retention deletes all of an old day or none."""
    if plan.is_young:
        return True
    within = plan.within()
    asked = [f"exists (select from {name} where {within})" for name in ("assignment_events", "fresh_changes")]
    ((found,),) = ask(f"select {' or '.join(asked)} as found")
    return bool(found)
