"""The tasks of a topology, in order."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from batonpass.core.state.ids import TaskId
from batonpass.placement.types import Tasks


@dataclass(frozen=True, slots=True)
class TaskTable(Tasks):
    """The tasks of a topology, in the order (subtopology, partition). A task's index is its place in it.

    Attributes:
        ids: the tasks, sorted.
        index_of: the index of each id; derived.
        subtopologies: the number of subtopologies; derived.
    """

    ids: tuple[TaskId, ...] = field(kw_only=True)
    index_of: Mapping[TaskId, int] = field(init=False, repr=False, compare=False)
    subtopologies: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Derive, once per topology, what is read often."""
        Tasks.__post_init__(self)
        derive = object.__setattr__
        derive(self, "index_of", {task: task_index for task_index, task in enumerate(self.ids)})
        derive(self, "subtopologies", max(self.subtopology, default=-1) + 1)

    def in_order(self, task_ids: Collection[TaskId]) -> list[TaskId]:
        """Return tasks in the order of the topology. Tasks that it has dropped come last, by id."""
        index_of = self.index_of
        dropped = sorted([task_id for task_id in task_ids if task_id not in index_of])
        return sorted([task_id for task_id in task_ids if task_id in index_of], key=index_of.__getitem__) + dropped
