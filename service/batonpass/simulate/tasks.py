"""Tasks, as the simulator counts them: a subtopology and a partition."""

from dataclasses import dataclass
from typing import TypeAlias

from batonpass.core.state.model import Subtopology, Topology

Task: TypeAlias = tuple[int, int]
"""(subtopology, partition); sorts as Kafka's task ids do."""


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Every task of the application, by whether it has state to restore."""

    stateful: tuple[Task, ...]
    stateless: tuple[Task, ...] = ()


def name_of(task: Task) -> str:
    """Return the id that the protocol has for a task."""
    return f"{task[0]}_{task[1]}"


def task_of(name: str) -> Task:
    """Return the task that an id of the protocol names."""
    subtopology, _, partition = name.rpartition("_")
    return int(subtopology), int(partition)


def topology_of(tasks: TaskSet) -> Topology:
    """Return the topology whose tasks these are: one subtopology for each first part of a task."""
    partitions: dict[int, int] = {}
    for subtopology, partition in (*tasks.stateful, *tasks.stateless):
        partitions[subtopology] = max(partitions.get(subtopology, 0), partition + 1)
    stateful = {subtopology for subtopology, _ in tasks.stateful}
    parts = (
        simulated_subtopology(number, count, stateful=number in stateful)
        for number, count in sorted(partitions.items())
    )
    return Topology(1, tuple(parts))


def simulated_subtopology(
    number: int, partitions: int, *, stateful: bool, weight: float = 1.0, epoch: int = 1
) -> Subtopology:
    """Return a subtopology of a simulated group, with topics of its own."""
    return Subtopology(
        id=str(number),
        partitions=partitions,
        stateful=stateful,
        weight=weight,
        source_topics=(f"in-{number}",),
        changelog_topics=(f"store-{number}",) if stateful else (),
        epoch=epoch,
    )
