"""How many tasks the groups of one coordinator may have together, which bounds its memory."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from batonpass.core.state.errors import LimitExceeded
from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import GroupDeclaration, Input, PartitionCounts, StreamsRebalance
from batonpass.core.state.model import Group
from batonpass.core.state.topology import with_partitions

TASKS_TOTAL_MAX = 300_000


class TaskRoom:
    """Admits declarations that make a group larger, as long as there is room for its tasks."""

    def __init__(self, most: int, groups: Callable[[], Iterable[Group]]) -> None:
        """``groups`` returns the groups in memory."""
        self._most = most
        self._groups = groups
        self._claimed: dict[GroupId, int] = {}

    @contextmanager
    def claim(self, group: Group, item: Input) -> Iterator[None]:
        """Keep room within the block for the tasks that the group has once ``item`` is carried out.

        Raises:
            LimitExceeded: when it would have more tasks than now, and there is no room for them.
        """
        wanted, held = _tasks_after(group, item), _held_of_earlier(group)
        if not wanted or (not held and wanted <= len(group.table.ids)):
            yield
            return
        wanted += held
        sizes = {one.id: len(one.tasks) for one in self._groups()}
        for group_id, claimed in self._claimed.items():
            sizes[group_id] = max(sizes.get(group_id, 0), claimed)
        others = sum(size for group_id, size in sizes.items() if group_id != group.id)
        if others + wanted > self._most:
            raise LimitExceeded(
                f"group {group.id} would have {wanted} tasks ({held} of them of earlier topologies, which members have "
                f"yet to give up), and the other groups of this coordinator have {others}; "
                f"together they may have {self._most} (BATONPASS_TASKS_TOTAL_MAX)"
            )
        before = self._claimed.get(group.id, 0)
        self._claimed[group.id] = max(before, wanted)
        try:
            yield
        finally:
            self._claimed[group.id] = before
            if not before:
                del self._claimed[group.id]


def _held_of_earlier(group: Group) -> int:
    """Return how many tasks of earlier topologies the group still has. They go when their members give them up."""
    return len(group.tasks) - len(group.table.ids)


def _tasks_after(group: Group, item: Input) -> int:
    """Return how many tasks a group has after an input, if that may make it larger and is not refused; else 0."""
    known: dict[str, int | None] = {}
    match item:
        case StreamsRebalance(topology=topology):
            pass  # It is what there is.
        case GroupDeclaration(topology=wanted) if wanted is not None:
            topology = wanted
            known = {part.id: part.partitions for part in group.topology.subtopologies}
        case PartitionCounts():
            topology = with_partitions(group.topology, item.partitions)
        case _:
            return 0
    return sum(part.partitions or known.get(part.id) or 0 for part in topology.subtopologies)
