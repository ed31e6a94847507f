"""What a member's report may hold: tasks of the group, and offsets of each task's changelogs.

Anything else is ignored, and named in the member's status, and so is a number that cannot be right. During a rolling
change of the topology members know tasks and changelogs that the group does not have yet, or no longer has. Refusing
their heartbeats would cost them their leases. So the topology bounds what is kept of a report, whichever member sends
it. What members report of tasks that they do not have (state on their disks) has a bound for the group: there may be as
many such reports as there are tasks times members.
"""

from collections.abc import Collection, Mapping
from typing import Final

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.soft import Positions, Soft, TaskReport

NAMED_MAX: Final = 20
"""The most unknown tasks, and the most unknown changelogs, that a status names."""

Status = tuple[tuple[str, str], ...]


def bounded(
    group: Group, tasks: Mapping[TaskId, TaskReport], policy: Policy
) -> tuple[dict[TaskId, TaskReport], Status]:
    """Return the part of a report that is about the group's tasks and their changelogs, and the status of the rest."""
    index_of = group.table.index_of
    topics_of = {part.id: part.changelog_topics for part in group.topology.subtopologies}
    kept: dict[TaskId, TaskReport] = {}
    unknown_tasks: list[str] = []
    unknown_topics: list[str] = []
    for task_id, report in tasks.items():
        if task_id not in index_of:
            unknown_tasks.append(f"{task_id} is not a task of this group")
            continue
        kept[task_id] = report
        known = topics_of[task_id.rpartition("_")[0]]
        named = report.positions + report.end_offsets + report.final_position
        strange = {topic for topic, _ in named if topic and topic not in known}
        if strange and (why := _why_ignored(task_id, strange, is_any_named=bool(known), policy=policy)):
            unknown_topics.extend(why)
            kept[task_id] = report._replace(
                positions=_without(report.positions, strange),
                end_offsets=_without(report.end_offsets, strange),
                final_position=_without(report.final_position, strange),
            )
    return kept, (*_named("unknown-task", unknown_tasks), *_named("unknown-field", unknown_topics))


def too_many_unassigned(
    group: Group, soft: Soft, member_id: MemberId, tasks: Mapping[TaskId, TaskReport], policy: Policy
) -> tuple[set[TaskId], int, Status]:
    """Return which of a member's reports are not kept for want of room, how much is kept, and the status of the rest.

    Only reports on tasks that the member does not have are counted: one each, and one for each offset. What it says
    that it runs comes first.
    """
    member = group.members[member_id]
    weights = {
        task_id: 1 + len(report.positions) + len(report.end_offsets) + len(report.final_position)
        for task_id in tasks.keys() - member.assignment.plain().keys() - member.revoking.keys()
        for report in [tasks[task_id]]
    }
    wanted = sum(weights.values())
    if wanted <= soft.of(member_id).unassigned:
        return set(), wanted, ()
    others = sum(one.unassigned for name, one in soft.members.items() if name != member_id)
    room = left = max(0, policy.max_unassigned_reported - others)
    ignored: set[TaskId] = set()
    for task_id in sorted(weights, key=lambda one: (tasks[one].role != "active", one)):
        if weights[task_id] > left:
            ignored.add(task_id)
        else:
            left -= weights[task_id]
    why = f"reports on {len(ignored)} tasks that the member does not have were ignored: all members' together may have "
    detail = f"{why}{policy.max_unassigned_reported} entries and offsets (BATONPASS_UNASSIGNED_REPORTED_MAX)"
    return ignored, room - left, (("too-many-reported", detail),) if ignored else ()


def invalid_numbers(faults: Collection[tuple[str, str]]) -> Status:
    """Return the status of numbers in a report that count as absent: their paths, and what is wrong with them."""
    return tuple(_named("invalid-number", [f"{path}: {reason}; it was ignored" for path, reason in faults]))


def _why_ignored(task_id: TaskId, topics: Collection[str], *, is_any_named: bool, policy: Policy) -> list[str]:
    """Return the status entries for topics that the topology does not name for the task; none if they are used anyway.

    If the topology names no changelogs for the task, it is unknown which of many topics to believe, and the lag of only
    some would be too low. So above the limit all of them are ignored.
    """
    if is_any_named:
        return [f"{topic} is no changelog of task {task_id}; its offsets were ignored" for topic in sorted(topics)]
    limit = policy.max_unnamed_changelogs
    if len(topics) <= limit:
        return []
    which = f"the offsets of {len(topics)} changelogs of task {task_id} were ignored"
    return [f"{which}: the topology names none, and a report may name {limit} such; name them in its changelog_topics"]


def _without(offsets: Positions, topics: Collection[str]) -> Positions:
    return tuple([entry for entry in offsets if entry[0] not in topics])


def _named(code: str, details: list[str]) -> list[tuple[str, str]]:
    entries = [(code, detail) for detail in details[:NAMED_MAX]]
    more = len(details) - NAMED_MAX
    return [*entries, (code, f"and {more} more of this kind")] if more > 0 else entries
