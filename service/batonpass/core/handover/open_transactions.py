"""Transactions that stay open in changelogs: until such a transaction ends, nobody can read the log to its end.

Readers of committed records get as far as the first open transaction (the last stable offset), although others commit
more behind it. A member that takes the task over has to wait there. So no running owner hands a task over meanwhile.
"""

from collections.abc import Mapping

from batonpass.core.handover.lag import changelogs_of
from batonpass.core.state.durations import duration
from batonpass.core.state.ids import TaskId
from batonpass.core.state.model import Group
from batonpass.core.state.soft import EndOffset, Log, Soft


def open_transactions(group: Group, soft: Soft) -> Mapping[Log, EndOffset]:
    """Return the ends of those changelog partitions of a group in which a transaction stays open, in order."""
    topics = {topic for part in group.topology.subtopologies for topic in part.changelog_topics}
    return dict(sorted([(log, end) for log, end in soft.end_offsets.items() if end.is_held_up and log[0] in topics]))


def open_transactions_of(group: Group, soft: Soft, task_id: TaskId) -> Mapping[Log, EndOffset]:
    """Return the ends of those changelogs of a task in which a transaction stays open."""
    ends = {log: soft.end_offsets.get(log) for log in changelogs_of(group, task_id)}
    return {log: end for log, end in ends.items() if end is not None and end.is_held_up}


def place_in_words(log: Log, end: EndOffset, now_ms: int) -> str:
    """Return where the transaction that stays open there begins, and for how long it has been seen open."""
    topic, partition = log
    open_ms = now_ms - (end.open_since_ms or 0)
    return f"offset {end.offset} of {topic}, partition {partition} (open for at least {duration(open_ms)})"
