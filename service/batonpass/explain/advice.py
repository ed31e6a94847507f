"""Advice for people: what is accepted but unwise, or blocks a group without being an error.

It changes nothing. Each piece of advice is one sentence with the fact, its consequence, and what to change.
"""

from collections.abc import Iterator, Sequence

from batonpass.core.arrivals.commands import warnings_of
from batonpass.core.handover.lag import open_transactions, place_in_words
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId
from batonpass.core.state.model import Member, Task
from batonpass.core.state.policy import LAG_UNBOUNDED, Policy
from batonpass.placement.types import Readiness

_NAMED = 5
"""The most members, or transactions, that a sentence names."""


def advice_on(view: View, policy: Policy) -> tuple[str, ...]:
    """Return every warning about a group as it stands."""
    group = view.group
    here = [member for member in group.members.values() if member.away_until_ms is None]
    return (
        *warnings_of(policy, group.config),
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
        without = sorted(member.id for member in here if key not in member.client_tags)
        if without:
            yield f"rack_aware_tags names {key}, which counts as one more rack for those without it: {_named(without)}"
        racks, copies = {member.client_tags.get(key, "none") for member in takers}, 1 + min(wanted, most)
        if len(racks) < copies and takers:
            yield (
                f"rack_aware_tags names {key}, of which members that can take copies have {len(racks)} "
                f"({_named(sorted(racks))}): some of the {copies} copies of a task share one until others join"
            )
    newest = view.group.table.newest_epoch
    behind = sorted(member.id for member in here if member.topology_epoch < newest)
    if behind:
        yield f"tasks that are new in topology epoch {newest} do not go to members that know an older one: {_named(behind)}"


def _on_copies(view: View) -> Iterator[str]:
    """Name the copies of unknown lag that tasks wait for. They are never promoted."""
    tasks = view.tasks.pick(view.group.unsettled)
    unread = sum(_is_unread(view, task, member_id) for task in tasks for member_id in task.holders)
    if unread:
        yield (
            "copies that were reported without a known lag are never promoted: report lag, or position "
            f"with end_offset; there are {unread}"
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


def _is_unread(view: View, task: Task, member_id: MemberId) -> bool:
    """Say whether a member reports the copy, and no lag of it. A copy that was never reported is just not known yet."""
    measured = view.soft.report_of(member_id, task.id)
    is_reported = view.soft.of(member_id).full and measured is not None and measured.lag is None
    return is_reported and view.copy(task, member_id).readiness is Readiness.UNKNOWN


def _named(names: Sequence[str], separator: str = ", ") -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return separator.join(names[:_NAMED]) + rest
