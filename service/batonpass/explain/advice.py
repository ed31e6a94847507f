"""Advice for people: what is accepted but unwise, or blocks a group without being an error.

It changes nothing. Each piece of advice is one sentence with the fact, its consequence, and what to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from batonpass.core.arrivals.commands import warnings_of
from batonpass.core.handover.open_transactions import open_transactions, place_in_words
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Member
from batonpass.core.state.policy import LAG_UNBOUNDED
from batonpass.placement.types import Readiness

_NAMED = 5
"""The most members, or transactions, that a sentence names."""


def advice_on(view: View) -> tuple[str, ...]:
    """Return every warning about a group as it stands."""
    group = view.group
    here = [member for member in group.members.values() if member.away_until_ms is None]
    return (
        *warnings_of(view.policy, group.config),
        *_on_config(view),
        *(_on_members(view, here) if here else ()),
        *_on_copies(view),
        *_on_transactions(view),
    )


def _on_config(view: View) -> Iterator[str]:
    config = view.config
    if config.acceptable_recovery_lag >= LAG_UNBOUNDED:
        yield (
            "acceptable_recovery_lag is unbounded: every copy that can be read counts as caught up, "
            "so that a handover may take as long as a restore"
        )
    if config.max_lost_share >= 1.0:
        yield "max_lost_share is 1: the storm guard is off, however many members vanish at once"


def _on_members(view: View, here: list[Member]) -> Iterator[str]:
    wanted, takers = view.config.num_standby_replicas, [member for member in here if member.drain is None]
    most = max(0, len(takers) - 1)
    if wanted > most:
        yield (
            f"num_standby_replicas is {wanted}, and members that can take copies are {len(takers)}: "
            f"a task has {most} standbys at most until more join"
        )
    for key in view.config.rack_aware_tags:
        without = [member for member in here if key not in member.client_tags]
        if without:
            yield f"rack_aware_tags names {key}, which counts as one more rack for those without it: {_ids(without)}"
    newest = view.group.table.newest_epoch
    behind = [member for member in here if member.topology_epoch < newest]
    if behind:
        yield f"tasks that are new in topology epoch {newest} do not go to members that know an older one: {_ids(behind)}"


def _on_copies(view: View) -> Iterator[str]:
    """Name the copies of unknown lag that tasks wait for. They are never promoted."""
    unread = []
    for task_id in view.group.unsettled:
        task = view.group.tasks[task_id]
        holders = [member_id for member_id in task.holders if view.present_member(member_id) is not None]
        unread += [
            member_id
            for member_id in holders
            if _is_unread(view, member_id, task_id) and view.copy(task, member_id).readiness is _UNKNOWN
        ]
    if unread:
        yield (
            "copies that were reported without a known lag are never promoted: report lag, or position "
            f"with end_offset; there are {len(unread)}"
        )


def _on_transactions(view: View) -> Iterator[str]:
    """Name the transactions that stay open in changelogs."""
    ends = open_transactions(view.group, view.soft)
    if ends:
        places = [place_in_words(log, end, view.now_ms) for log, end in ends.items()]
        yield (
            "transactions stay open in changelogs: no copy can be read beyond them, and no task is handed over there; "
            f"wait for their timeouts, or end them with kafka-transactions.sh: {_named(places, '; ')}"
        )


_UNKNOWN = Readiness.UNKNOWN


def _is_unread(view: View, member_id: MemberId, task_id: TaskId) -> bool:
    """Say whether a member reports the copy, and no lag of it. A copy that was never reported is just not known yet."""
    measured = view.soft.report_of(member_id, task_id)
    return view.soft.of(member_id).full and measured is not None and measured.lag is None


def _ids(members: list[Member]) -> str:
    return _named(sorted(member.id for member in members), ", ")


def _named(names: Sequence[str], separator: str) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return separator.join(names[:_NAMED]) + rest
