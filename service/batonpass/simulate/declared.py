"""What a group declares in a world without faults: the topology that has its tasks."""

from __future__ import annotations

from batonpass.core.model import Subtopology, Topology
from batonpass.simulate.kip441 import TaskSet


def topology_of(tasks: TaskSet) -> Topology:
    """Return the topology whose tasks these are: one subtopology for each first part of a task."""
    partitions: dict[int, int] = {}
    for subtopology, partition in (*tasks.stateful, *tasks.stateless):
        partitions[subtopology] = max(partitions.get(subtopology, 0), partition + 1)
    stateful = {subtopology for subtopology, _ in tasks.stateful}
    return Topology(
        1,
        tuple(
            Subtopology(
                id=str(number),
                partitions=count,
                stateful=number in stateful,
                source_topics=(f"in-{number}",),
                changelog_topics=(f"store-{number}",) if number in stateful else (),
                epoch=1,
            )
            for number, count in sorted(partitions.items())
        ),
    )
