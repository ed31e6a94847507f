"""Topology: which tasks there are, and what a change means.

A topology changes under an epoch that never goes back. A new or changed subtopology carries the epoch of its change:
its tasks go only to members whose program knows that epoch (KIP-1071, topology epochs).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from batonpass.core.state.errors import InvalidTopology
from batonpass.core.state.ids import TaskId, split_task_id, subtopology_sort_key, task_id
from batonpass.core.state.loads import weight_of_new
from batonpass.core.state.model import EMPTY_TABLE, Group, Subtopology, TaskTable, Topology
from batonpass.core.state.policy import BalanceBy

NAMED_MAX = 5
"""How many of a kind are named to people: every heartbeat of such a group is answered with it."""


def table_of(group: Group) -> TaskTable:
    """Return the tasks of a group, with the weights by which they are placed."""
    table = build_table(group.topology)
    return by_load(table, group.loads) if group.config.balance_by is BalanceBy.MEASURED else table


def by_load(table: TaskTable, loads: Mapping[TaskId, float]) -> TaskTable:
    """Return the tasks with their measured loads as weights, or the median of all; as they are if there is none."""
    of_new = weight_of_new(loads)
    return table if of_new is None else replace(table, weight=tuple([loads.get(one, of_new) for one in table.ids]))


def build_table(topology: Topology) -> TaskTable:
    """Return the tasks of ``topology`` in order. A subtopology with an unknown partition count has none."""
    ids: list[TaskId] = []
    index: list[int] = []
    stateful: list[bool] = []
    weight: list[float] = []
    epoch: list[int] = []
    for number, part in enumerate(sorted(topology.subtopologies, key=lambda part: subtopology_sort_key(part.id))):
        count = part.partitions or 0
        tasks = [task_id(part.id, partition) for partition in range(count)]
        ids.extend(tasks)
        index.extend([number] * count)
        stateful.extend([part.stateful] * count)
        weight.extend([part.task_weights.get(task, part.weight) for task in tasks])
        epoch.extend([part.epoch] * count)
    if not ids:
        return EMPTY_TABLE
    return TaskTable(tuple(index), tuple(stateful), tuple(weight), tuple(epoch), ids=tuple(ids))


def is_ready(topology: Topology) -> bool:
    """Say whether every partition count is known, so that tasks can be placed."""
    return bool(topology.subtopologies) and all(part.partitions is not None for part in topology.subtopologies)


def why_not_ready(topology: Topology) -> str:
    """Return why the topology is not ready, for people; "" if it is."""
    if not topology.subtopologies:
        return "the topology has no subtopologies; declare at least one"
    unknown = [part for part in topology.subtopologies if part.partitions is None]
    if not unknown:
        return ""
    first = [(part.id, part.source_topics[:NAMED_MAX]) for part in unknown[:NAMED_MAX]]
    names = ", ".join(f"{name} ({', '.join(topics) or 'no source topics'})" for name, topics in first)
    more = f" and {len(unknown) - NAMED_MAX} more" if len(unknown) > NAMED_MAX else ""
    return f"partition counts are not known yet of subtopology {names}{more}"


def next_topology(before: Topology, wanted: Topology) -> Topology:
    """Return ``wanted`` as the successor of ``before``. Unchanged parts keep their epoch and known partition counts.

    Raises:
        InvalidTopology: the epoch goes back, a subtopology would lose partitions, or it has a weight for a task that it
            does not have.
    """
    if wanted.epoch < before.epoch:
        message = f"topology epoch {wanted.epoch} is below the present one, {before.epoch}; an epoch never goes back"
        raise InvalidTopology(message, errors=[("topology.epoch", message)])
    known = {part.id: part for part in before.subtopologies}
    parts: list[Subtopology] = []
    faults: list[tuple[str, str]] = []
    for number, part in enumerate(wanted.subtopologies):
        old = known.get(part.id)
        partitions = part.partitions
        if old is not None and partitions is None:
            partitions = old.partitions
        if old is not None and (partitions or 0) < (old.partitions or 0):
            path = f"topology.subtopologies[{number}].partitions"
            faults.append((path, f"{part.id} has {old.partitions} partitions and cannot shrink to {partitions}"))
        faults.extend(_foreign_weights(part, f"topology.subtopologies[{number}].task_weights"))
        same = old is not None and replace(part, epoch=0, partitions=None) == replace(old, epoch=0, partitions=None)
        epoch = old.epoch if old is not None and same else wanted.epoch
        parts.append(replace(part, partitions=partitions, epoch=epoch))
    if faults:
        raise InvalidTopology("; ".join(reason for _, reason in faults), errors=faults)
    return Topology(wanted.epoch, tuple(sorted(parts, key=lambda part: subtopology_sort_key(part.id))))


def reported_topology(before: Topology, reported: Topology) -> Topology:
    """Return what a Kafka Streams application reports as the successor of ``before``: it is what there is.

    The epoch stays. Kafka knows which process can run what, so every part has the first one.
    """
    parts = sorted(reported.subtopologies, key=lambda part: subtopology_sort_key(part.id))
    return Topology(max(1, before.epoch), tuple(replace(part, epoch=1) for part in parts))


def ended_tasks(before: Topology, after: Topology) -> tuple[TaskId, ...]:
    """Return the tasks of ``before`` that ``after`` does not have, or whose ids it has for other tasks."""
    parts = {part.id: part for part in after.subtopologies}
    ended: list[TaskId] = []
    for old in before.subtopologies:
        new = parts.get(old.id)
        kept = (new.partitions or 0) if new is not None and _is_same_part(old, new) else 0
        ended += [task_id(old.id, partition) for partition in range(kept, old.partitions or 0)]
    return tuple(ended)


def _is_same_part(old: Subtopology, new: Subtopology) -> bool:
    """Say whether a subtopology goes on under its number. Kafka Streams numbers all of them anew in each release.

    What has state goes on if any of its changelogs does, and what has none if it reads any of the same topics.
    """
    of_old, of_new = old.source_topics, new.source_topics
    if old.changelog_topics and new.changelog_topics:
        of_old, of_new = old.changelog_topics, new.changelog_topics
    is_another = bool(of_old and of_new) and set(of_old).isdisjoint(of_new)
    return old.stateful == new.stateful and not is_another


def _foreign_weights(part: Subtopology, path: str) -> Iterator[tuple[str, str]]:
    """Yield, as (path, reason), the tasks in ``part.task_weights`` that are not the subtopology's own.

    If the partition count comes from Kafka, a task may have a weight before its partition exists.
    """
    for task in part.task_weights:
        try:
            name, partition = split_task_id(task)
        except ValueError as error:
            yield f"{path}.{task}", str(error)
            continue
        if name != part.id:
            yield f"{path}.{task}", f"{task} is no task of subtopology {part.id}; name it in its own"
        elif part.partitions is not None and partition >= part.partitions:
            last = task_id(part.id, part.partitions - 1)
            reason = f"there is no task {task}: subtopology {part.id} has {part.partitions} partitions, up to {last}"
            yield f"{path}.{task}", reason


def with_partitions(topology: Topology, counts: Mapping[str, int]) -> Topology:
    """Return ``topology`` with the present partition counts of its source topics. A count never falls.

    A subtopology with no source topic in ``counts`` stays as it is.
    """
    parts = []
    for part in topology.subtopologies:
        seen = [counts[topic] for topic in part.source_topics if topic in counts]
        most = max(seen, default=0)
        parts.append(replace(part, partitions=most) if most > (part.partitions or 0) else part)
    return replace(topology, subtopologies=tuple(parts))
