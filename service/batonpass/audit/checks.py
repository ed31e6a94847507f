"""The laws that the log shows by itself, each a function of a fact of the ledger (``ledger``).

In the order of docs/audit.md: one owner at a time (L1); what can be read, and epochs that grow (L2; ``order`` has the
records themselves); ready copies take over (L7); moves and copies within bounds (L8). Last the ends of logs, which the
plan of the day knows. Whether generations and histories agree with the log is checked where decisions are made again
(``group_replay``).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from batonpass.audit.entries import UNREADABLE, Entry
from batonpass.audit.facts import Assigned, Fact, Granted, Handovers, Overlap, Run, Warmups, Wrong, wrong
from batonpass.audit.findings import END_MISSING, STILL, Finding, Severity, time_of
from batonpass.audit.ledger import Ledger
from batonpass.audit.plan import Ask, DayPlan, batched, quoted
from batonpass.audit_words import listed

FATAL, NOTICE = Severity.FATAL, Severity.NOTICE


def one_owner(fact: Overlap, ledger: Ledger) -> Iterator[Wrong]:
    """L1: nobody is granted a task while another member might still run it.

    Where records behind the grant are lost, it is not known how long that was so. It is of each day that begins so.
    """
    entry, others, until_ms, stopped = fact
    first, begin_ms = ledger.plan.first, ledger.begin_ms
    before = ", before the day began," if entry.seq < first else ""
    owners = tuple(one.member or "?" for one in others)
    had = "it had not said that it stopped, was not gone, and still had a lease"
    if len(others) > 1:
        had = "they had not said that they stopped, were not gone, and still had leases"
    detail = f"granted at {time_of(entry.ms)}{before} while {listed(owners)} might still run it: {had}"
    found = wrong("L1", detail, *others, entry, task=entry.task, member=entry.member)
    is_of_day = (until_ms is None or until_ms >= begin_ms) and not ledger.order.loses(entry.seq, first - 1)
    found = found._replace(every_day=is_of_day, others=owners)
    if ledger.order.loses(entry.seq):
        yield found
    elif until_ms is None:
        yield found._replace(detail=f"{detail}, still so {STILL}")
    else:
        yield found._replace(
            detail=f"{detail}, until {time_of(until_ms)}, when {stopped} had stopped", at=(*found.at, until_ms)
        )


def tokens_grow(fact: Granted, _: Ledger) -> Iterator[Wrong]:
    """L1: the token of a grant is above every one before; else it fences off no owner."""
    entry, token = fact.entry, fact.entry.token
    if token is not None and fact.token is not None and token <= fact.token:
        detail = f"granted at {time_of(entry.ms)} under token {token}, which is not above {fact.token} that was granted before"
        yield wrong("L1", detail, fact.held, entry, task=entry.task, member=entry.member)


def records_can_be_read(one: Entry, _: Ledger) -> Iterator[Wrong]:
    """L2: what a record says that no program of this version can read is lost to every reader."""
    if one.what == UNREADABLE and one.place >= 0:
        why = "?" if one.word is None else one.word
        yield wrong("L2", f"record {one.seq} cannot be read: {why}", one)._replace(every_day=True)


def epochs_grow_by_one(fact: Assigned, _: Ledger) -> Iterator[Wrong]:
    """L2: a member's epoch falls never, and grows by one an assignment; else an assignment was lost or undone.

    The epoch is followed from the record of the member's join on, or from the snapshot that reading begins with. It may
    have grown by more where a record is missing or cannot be read, and where a member lost what another one adopted.
    """
    entry = fact.entry
    epoch = entry.number if entry.number is not None else fact.known + 1
    if epoch != fact.known + 1 and (epoch <= fact.known or not fact.unsure):
        detail = (
            f"its epoch {epoch} follows {fact.known} at {time_of(entry.at_ms)}; each change of an assignment adds one"
        )
        yield wrong("L2", detail, fact.told, entry, member=entry.member)


def caught_up_copies_take_over(run: Run, ledger: Ledger) -> Iterator[Wrong]:
    """L7: no task is taken from a running, willing owner for a member whose copy is not caught up.

    A member that was not chosen when the owner was told to stop is excused: it took over because the chosen one fell
    away. So is a member whose copy was not known to a coordinator that had just started. In a Kafka Streams application
    so is a member that has a copy: between the two rebalances of a move nothing says how far behind it is. Where the
    beginning is lost, nobody knows which tasks have state.
    """
    revoked, taken = run.revoked, run.taken
    if revoked is None or taken is None or not ledger.is_handover(run) or taken.ready is not False:
        return
    has_copy = run.taken_role in ("standby", "warmup")
    is_excused = has_copy and (ledger.kafka_streams or taken.coordinator_epoch != revoked.coordinator_epoch)
    is_chosen = run.next_owner is None or run.next_owner == taken.member
    if is_chosen and not is_excused and ledger.has_state(run.task) and ledger.knows_topology:
        copy = f"a {run.taken_role} {BEHIND}" if has_copy else "no copy of it"
        detail = (
            f"{run.runner}, which ran it, was told to stop at {time_of(revoked.ms)} for {taken.member}, which was granted it at"
            f" {time_of(taken.ms)} and had {copy}"
        )
        found = wrong("L7", detail, revoked, taken, task=run.task, member=taken.member)
        yield found._replace(others=(run.runner or "?",))


BEHIND: Final = "that was not caught up"

HANDOVERS_SHOWN: Final = 10


def one_handover_for_a_target(fact: Handovers, _: Ledger) -> Iterator[Wrong]:
    """L8: a task is handed over from running owners once for each change of its target.

    The place of a member that went is inherited, or lost: the task is meant for somebody else then, too.
    """
    proof = [run.revoked for run in fact.runs if run.revoked is not None]
    taken = [run.taken for run in fact.runs if run.taken is not None]
    detail = f"{len(proof)} handovers from running owners for one change of its target, since {time_of(proof[0].at_ms)}"
    yield wrong("L8", detail, *proof[:HANDOVERS_SHOWN], task=fact.task, member=taken[-1].member)


def warmups_within_budget(fact: Warmups, _: Ledger) -> Iterator[Wrong]:
    """L8: no decision begins a warmup beyond the budget of the group, or of its member.

    To avoid false findings, fewer copies are counted than the law counts: not a warmup that was chosen as the next
    owner, and not a standby on its way. The budget is that of the settings by then; the one for drains is added while
    any member drains.
    """
    entry, count, budgets, drains, member = fact
    if budgets is None:
        return
    if member is not None:
        allowed, where, by = budgets.of_member, " on one member", "max_warmups_per_member allows"
    elif drains:
        allowed, where = budgets.normal + budgets.drains, ""
        by = "max_warmup_replicas and max_drain_warmups together allow"
    else:
        allowed, where, by = budgets.normal, "", "nobody drains, and max_warmup_replicas allows"
    if allowed is not None and count > allowed:
        detail = f"{count} warmups{where} at {time_of(entry.at_ms)}; {by} {allowed}"
        yield wrong("L8", detail, entry, task=entry.task, member=member)


Law = Callable[[Any, Ledger], Iterator[Wrong]]

LAWS: Final[Mapping[type, tuple[Law, ...]]] = {
    Wrong: (lambda fact, _: iter((fact,)),),
    Granted: (tokens_grow,),
    Overlap: (one_owner,),
    Entry: (records_can_be_read,),
    Assigned: (epochs_grow_by_one,),
    Run: (caught_up_copies_take_over,),
    Handovers: (one_handover_for_a_target,),
    Warmups: (warmups_within_budget,),
}
"""For each kind of fact the laws that look at it; what is out of order is wrong by itself (``order``)."""

NEED_EVERY_RECORD: Final = frozenset({"L1", "L7", "L8"})
"""The laws that a missing or unreadable record may answer: it may be the confirmation that they lack."""


def broken(fact: Fact, ledger: Ledger) -> Iterator[Finding]:
    """Yield the laws that a fact breaks, as far as it is of the day, or needed to know its beginning, and proven.

    Only a missing record between the ones that prove a finding matters; for a number of warmups, every one before.
    """
    for find in LAWS.get(type(fact), ()):
        for law, detail, sequences, at, task, member, every_day, others in find(fact, ledger):
            first, last = sequences[0] if len(sequences) > 1 else -1, sequences[-1]
            is_proven = law not in NEED_EVERY_RECORD or not ledger.order.loses(first, last)
            if (last >= ledger.plan.first or every_day) and is_proven:
                yield Finding(ledger.plan.group, law, FATAL, task, member, detail, sequences, at, others)


def unreadable_snapshot(one: Entry, ledger: Ledger) -> Iterator[Finding]:
    """Yield the notice of a snapshot that no program of this version can read."""
    if one.what == UNREADABLE and one.place < 0:
        detail = f"the snapshot of version {one.seq}: {one.word}"
        yield Finding(ledger.plan.group, "unreadable-snapshot", NOTICE, None, None, detail)


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
    with logs(group_id) as (values {values}),
    heads as (select group_id, coalesce(version, 0) as version from logs left join group_heads using (group_id))
    select h.group_id, h.version,
           (select max(version) + 1 from traces t where t.group_id = h.group_id and t.version >= h.version),
           (select max(version) + 1 from generations g where g.group_id = h.group_id and g.version >= h.version),
           (select max(version) + 1 from assignment_events a
             where a.group_id = h.group_id and a.version >= h.version and (h.version = 0 or {within})),
           (select max(version) from snapshots s where s.group_id = h.group_id and s.version > h.version)
      from heads h
"""


def beyond_heads(ask: Ask, plan: DayPlan) -> Iterator[Finding]:
    """Yield the groups of which other rows go beyond what their heads count, or that have no head and no log (L2).

    A row that is written with a decision has the number of records before it, so there is at least one more. Heads are
    read again together with these rows, since a day under way goes on.
    """
    for some in batched([one for one in plan.groups if one.ends and not one.missing and one.beyond is None]):
        values = ", ".join(f"({quoted(one.group)})" for one in some)
        sql = _BEYOND_HEADS.format(values=values, within=plan.within(hours=1))
        for group, version, *known in ask(sql):
            beyond = {
                name: int(value)
                for name, value in zip(("traces", "generations", "histories", "snapshots"), known, strict=True)
                if value is not None
            }
            if beyond:
                last, most = int(version), max(beyond.values())
                which = f"record {most}" if most == last + 1 else f"records up to {most}"
                head = f"the head counts {last}" if last else "the group has no head, and no log"
                detail = f"{END_MISSING}{', '.join(beyond)} tell of {which}, {head}"
                yield Finding(str(group), "L2", FATAL, None, None, detail, (last,) if last else ())
