"""When to look again: the instants at which time alone changes what a group should do.

Every rule that waits for an instant names it here, in ``SOURCES``, and nowhere else. A tick and a start ask about
everything. Any other decision that records something asks about the members and tasks that it changes: what was found
before still stands. So a heartbeat without news asks nothing. A wake-up may come too early, because what it was for is
gone: a tick is harmless, and asks anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from batonpass.core.arrivals import storm
from batonpass.core.handover.decision_draft import DecisionDraft
from batonpass.core.handover.owner import report_awaited_until_ms
from batonpass.core.handover.turns import closer_ms, progress_ms
from batonpass.core.state.failures import avoided_until_ms, distrust_ends
from batonpass.core.state.inputs import Input, PollBroken, Started, Tick
from batonpass.core.state.model import Group, Member, Task
from batonpass.core.state.newcomers import stay_began_ms
from batonpass.core.state.soft import Soft


class _Asked(NamedTuple):
    """What a decision asks about: the members and tasks in question, and whether these are all that may wait."""

    draft: DecisionDraft
    members: Collection[Member]
    tasks: Collection[Task]
    is_all: bool


_Instants = Iterable[int | None]


def _group(asked: _Asked) -> _Instants:
    """A placement, a probe, the end of a pause or a storm, of a time without grants or without judgement."""
    draft = asked.draft
    group = draft.group
    yield from (group.placement_due_ms, group.next_probe_ms, group.grants_from_ms, storm.next_look_ms(draft))
    if group.pause is not None:
        yield group.pause.expires_ms
    if group.members:
        yield draft.soft.judge_from_ms
    yield from (entry.until_ms for entry in group.kept_out.values())


def _leases(asked: _Asked) -> _Instants:
    """The end of a member's lease, or of the time for which the place of one that is away is kept."""
    for member in asked.members:
        lease_end_ms = asked.draft.lease_end_ms(member)
        yield member.away_until_ms or max(lease_end_ms, asked.draft.soft.judge_from_ms)


def _suspicions(asked: _Asked) -> _Instants:
    for member in asked.members:
        known = asked.draft.member_soft(member.id)
        if known is not None and known.poll_broken_ms is not None and member.away_until_ms is None:
            yield known.poll_broken_ms + asked.draft.group.config.suspect_timeout_ms


def _drains(asked: _Asked) -> _Instants:
    for member in asked.members:
        if member.drain is not None:
            yield from (member.drain.deadline_ms, member.drain.gives_up_ms)


def _confirmations(asked: _Asked) -> _Instants:
    """The time limit of a revocation, and the end of the lease of a fenced member that may still run a task."""
    timeout_ms = asked.draft.group.config.rebalance_timeout_ms
    for member in asked.members:
        yield from (revocation.since_ms + timeout_ms for revocation in member.revoking.values())
    for task in asked.tasks:
        yield from (entry.free_at_ms for entry in task.unreleased)


def _warmups(asked: _Asked) -> _Instants:
    """When a warmup stalls, or gives way; and when it may be tried again where it did."""
    group, soft = asked.draft.group, asked.draft.soft
    timeout_ms = group.config.warmup_stall_timeout_ms
    for task in asked.tasks:
        yield from (stall.until_ms for stall in task.stalls)
        for member in [group.members[member_id] for member_id in task.warmups]:
            yield progress_ms(soft, task.id, member) + timeout_ms
            yield closer_ms(soft, task.id, member) + timeout_ms
    if asked.is_all and soft.target_is_provisional and not group.unsettled:
        # The target leaves out moves that gave way lately. Once they may be tried again, it may be another one.
        yield from (stall.until_ms for task in group.tasks.values() for stall in task.stalls)


def _failures(asked: _Asked) -> _Instants:
    """When a task may be tried again where it did not run well."""
    config = asked.draft.group.config
    for task in asked.tasks:
        yield from (avoided_until_ms(config, failure) for failure in task.failures)


def _unknown_copies(asked: _Asked) -> _Instants:
    """When a task without an owner no longer waits for the report of a copy."""
    for task in asked.tasks:
        if task.owner is None and (task.standbys or task.warmups):
            yield report_awaited_until_ms(asked.draft.group, asked.draft.soft, task)


def _newcomers(asked: _Asked) -> _Instants:
    """When a member no longer counts as new. It is worked out for all members, once one that changes may be new."""
    group, since_ms = asked.draft.group, asked.draft.now_ms - asked.draft.group.config.newcomer_wait_ms
    if group.unsettled and any(stay_began_ms(member) > since_ms for member in asked.members):
        yield from asked.draft.view().newcomers.values()


def _distrust(asked: _Asked) -> _Instants:
    """When a member that has faults is trusted again."""
    return distrust_ends(asked.draft.group) if asked.is_all else ()


SOURCES: Final[Mapping[str, Callable[[_Asked], _Instants]]] = {
    "group": _group,
    "leases": _leases,
    "suspicions": _suspicions,
    "drains": _drains,
    "confirmations": _confirmations,
    "warmups": _warmups,
    "failures": _failures,
    "unknown copies": _unknown_copies,
    "newcomers": _newcomers,
    "distrust": _distrust,
}


def next_wake_ms(draft: DecisionDraft, before: tuple[Group, Soft], inputs: Sequence[Input]) -> int | None:
    """Return when to look again at the latest; None: never. ``before``: hard and soft state before the decision."""
    group, soft = draft.group, draft.soft
    if group.config.kafka_streams:
        return None  # Nothing is due between two rebalances.
    if any(isinstance(item, Tick | Started) for item in inputs):
        return min(all_instants(draft), default=None)
    if not draft.records and not any(isinstance(item, PollBroken) for item in inputs):
        return soft.wake_ms
    changed = {*group.members.changed_since(before[0].members), *soft.members.changed_since(before[1].members)}
    members = [group.members[member_id] for member_id in changed if member_id in group.members]
    tasks = [task for task in group.tasks.changed_since(before[0].tasks).values() if task is not None]
    instants = _instants(_Asked(draft, members, tasks, is_all=False))
    return min(instants if soft.wake_ms is None else [*instants, soft.wake_ms], default=None)


def all_instants(draft: DecisionDraft) -> list[int]:
    """Return every instant from now on at which time alone changes something."""
    group = draft.group
    return _instants(_Asked(draft, group.members.values(), group.tasks.pick(group.moving_tasks()), is_all=True))


def _instants(asked: _Asked) -> list[int]:
    now_ms = asked.draft.now_ms
    found = [at_ms for instants_of in SOURCES.values() for at_ms in instants_of(asked)]
    return [at_ms for at_ms in found if at_ms is not None and at_ms > now_ms]
