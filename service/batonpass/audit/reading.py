"""Reads a group's day in the order of its log: each record, and beside it what else the decision wrote that made it.

Runs on the executors. Rows are read and put in order some versions at a time, so that memory does not grow with the
day.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from batonpass.audit.database import Read
from batonpass.audit.entries import INSTANT_MOST
from batonpass.audit.facts import Lag
from batonpass.audit.plan import Ask, DayPlan, GroupPlan, quoted
from batonpass.audit.rows import Generation
from batonpass.codec.groups import GROUP_VERSION

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


COPIES: Final = "json_array_elements(case when json_typeof(copies) = 'array' then copies else '[]' end)"
"""The copies of a sample; a sample that is not an array has none."""
WHOLE_LAG: Final = r"case when copy ->> 4 ~ '^\d{1,18}$' then (copy ->> 4)::bigint end"
"""The lag of a copy; null if it is not known, or not a whole number."""


def _ms(column: str) -> str:
    # "infinity" becomes an impossible instant, so that it is found in the row that has it (``entries``).
    ms = f"(date_part('epoch', {column}) * 1000)::bigint"
    return f"case when isfinite({column}) then {ms} when {column} is not null then {2**63 - 1} end"


def _text(json: str) -> str:
    return f"convert_to({json}::text, 'UTF8')"


_AT_MS: Final = _ms("at")
_GENERATION: Final = (
    f"number, group_epoch, {_AT_MS}, triggers, members, tasks, moves, lower_bound, warmups, score_before, score, decide_ms,"
    " moved, reasons"
)
_CHANGE: Final = (
    "task_id, member_id, kind, role_before, role, at_ms, generation, member_epoch, token, state, warm, why, heard_ms"
)
CHANGES: Final = ("assignment_events", "fresh_changes")
"""The tables of task histories: the changes of a large commit stand in another one for some seconds."""

_CHANGES: Final = " union all ".join(
    f"select *, {_AT_MS} as at_ms, {_ms('heard_at')} as heard_ms from {table} where {{where}} and {{within}}"  # noqa: S608
    for table in CHANGES
)
QUERIES: Final[Mapping[int, str]] = {
    RECORD: f"select seq, coordinator_epoch, {_AT_MS}, kind, version::int, {_text('payload')} from record_log"  # noqa: S608
    " where {where}",
    SNAPSHOT: f"select version, 0, {_AT_MS}, '', format::int, payload from snapshots"  # noqa: S608
    f" where {{where}} and format <= {GROUP_VERSION}",
    TRACE: f"select version, 0, {_AT_MS}, '', format::int, {_text('payload')} from traces where {{where}}",  # noqa: S608
    # Task histories and generations whole, as the codec has them (``codec.changes``, ``codec.generations``): a row for
    # each decision.
    HISTORY: f"select version, 0, min(at_ms), '', 0, {_text(f'json_agg(json_build_array({_CHANGE}) order by place)')}"  # noqa: S608
    f" from ({_CHANGES}) as shown group by version",
    GENERATION: f"select version, 0, {_AT_MS}, '', 0, {_text(f'json_build_array({_GENERATION})')} from generations"  # noqa: S608
    " where {where}",
}
"""For each rank the query of the other columns of ``LogRow``. A test holds them against the schema in migrations/."""

CHAIN_BEGIN: Final = (
    "coalesce((select max(version) from traces t where t.group_id = {group} and version < {first}"
    ' and payload::text ~ \'"soft": *[{{]"from_empty": *true\'), {first} - 1)'
)
"""Where the chain of the day's traces begins: with the last one before it that was started from empty soft state.

It is looked for in the text: Postgres takes no JSON apart that has a NUL anywhere, as what callers say may have. Within
a text quotes are escaped, so that nothing else in a trace reads like this.
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
            ((first[TRACE],),) = read(f"select {CHAIN_BEGIN.format(group=quoted(one.group), first=one.first)}")
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
    number = "seq" if rank == RECORD else "version"
    where = f"group_id = {quoted(one.group)} and {number} between {versions[0]} and {versions[1]}"
    for version, *rest in read(QUERIES[rank].replace("{where}", where).replace("{within}", within)):
        yield LogRow(version, rank, *rest)


def warmup_lags(read: Read, plan: DayPlan, one: GroupPlan) -> Mapping[tuple[str, str], list[Lag]]:
    """Return what the day's samples say of a group's warmups, by task and member."""
    lags: defaultdict[tuple[str, str], list[Lag]] = defaultdict(list)
    sql = (
        f"select copy ->> 0, copy ->> 1, {_AT_MS}, {WHOLE_LAG} from samples cross join lateral {COPIES} as copy"  # noqa: S608 - our own words
        f" where copy ->> 2 = 'warmup' and {plan.within()} and group_id = {quoted(one.group)}"
    )
    for task, member, at_ms, lag in read(sql):
        lags[task, member].append(Lag(at_ms, lag))
    return lags


def generations(read: Read, one: GroupPlan) -> list[Generation]:
    """Return the generations of a group's day, as readers are shown them; one of an impossible date is left out."""
    sql = (
        f"select number, {_AT_MS}, members, tasks, score, moves, lower_bound from generations"  # noqa: S608 - our own words
        f" where group_id = {quoted(one.group)} and version between {one.first - 1} and {one.last - 1}"
    )
    return [found for row in read(sql) if abs((found := Generation(*row)).at_ms) < INSTANT_MOST]


def has_histories(ask: Ask, plan: DayPlan) -> bool:
    """Return whether task histories of the day are kept; retention deletes all of an old day or none."""
    if plan.is_young:
        return True
    within = plan.within()
    asked = [f"exists (select from {name} where {within})" for name in CHANGES]
    ((found,),) = ask(f"select {' or '.join(asked)} as found")
    return bool(found)
