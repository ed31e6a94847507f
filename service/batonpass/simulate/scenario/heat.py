"""By how much, and for how long, a group's hottest member was hotter than the average, counted from records alone.

It is counted as balance by load does: by the targets of tasks and their measured load, per unit of capacity. A task
that was not measured yet weighs the median, and members that drain do not count.
"""

from batonpass.core.state import records as r
from batonpass.core.state.loads import weight_of_new
from batonpass.core.state.model import Group
from batonpass.core.state.policy import BalanceBy
from batonpass.core.state.topology import build_table


class Heat:
    """Follows a group's targets and loads from record to record; what is before ``begin_ms`` does not count.

    Attributes:
        hot_ms: for how long a member was too hot (``load_imbalance``).
        moves: how many moves were made for load.
    """

    def __init__(self, group: Group, *, begin_ms: int, end_ms: int) -> None:
        """Begin with a group as it was before the first record."""
        self.hot_ms = self.moves = 0
        self._begin_ms, self._end_ms = begin_ms, end_ms
        self._loads = dict(group.loads)
        self._targets = {task_id: task.target.owner for task_id, task in group.tasks.items()}
        self._capacity = {member.id: member.capacity for member in group.members.values()}
        self._draining = {member.id for member in group.members.values() if member.drain is not None}
        self._is_measured = group.config.balance_by is not BalanceBy.DECLARED
        self._is_hot = group.hot_since_ms is not None
        self._since_ms, self._known_ms, self._sum = begin_ms, 0, 0.0
        # Most instants have several records, and most records change nothing of this: it is counted when time passes.
        self._imbalance: float | None = None
        self._is_counted = False

    def take(self, record: r.Record, at_ms: int) -> None:
        self._go_on(at_ms)
        match record:
            case r.LoadsMeasured(loads=loads):
                self._loads.update(loads)
            case r.TargetPlaced(changes=changes):
                self._targets.update({task_id: owner for task_id, (owner, _, _) in changes.items()})
            case r.PlaceInherited(member_id=member_id, successor=successor):
                self._targets |= {task_id: successor for task_id, to in self._targets.items() if to == member_id}
            case r.MemberJoined(member=member):
                self._capacity[member.id] = member.capacity
                if member.drain is not None:
                    self._draining.add(member.id)
            case r.MemberGone(member_id=member_id):
                self._capacity.pop(member_id, None)
            case r.DrainStarted(member_id=member_id):
                self._draining.add(member_id)
            case r.DrainCancelled(member_id=member_id):
                self._draining.discard(member_id)
            case r.TopologyChanged(topology=topology):
                known = build_table(topology).index_of
                self._targets = {task_id: to for task_id, to in self._targets.items() if task_id in known}
                self._loads = {task_id: load for task_id, load in self._loads.items() if task_id in known}
            case r.GroupDeclared(config=config) | r.ConfigChanged(config=config):
                self._is_measured = config.balance_by is not BalanceBy.DECLARED
            case r.ImbalanceNoted(since_ms=since_ms):
                self._is_hot = since_ms is not None
            case r.MovedForLoad(tasks=tasks):
                self.moves += len(tasks) if at_ms >= self._begin_ms else 0
            case _:
                return
        self._is_counted = False

    def mean(self) -> float | None:
        """End, and return by how much the hottest member was above the average: 0.25 is a quarter.

        It is the mean of the time for which the load of any task was known; None if there was none.
        """
        self._go_on(self._end_ms)
        return self._sum / self._known_ms if self._known_ms else None

    def _go_on(self, to_ms: int) -> None:
        passed_ms = min(to_ms, self._end_ms) - self._since_ms
        if passed_ms <= 0:
            return
        self._since_ms += passed_ms
        if not self._is_counted:
            self._imbalance, self._is_counted = self._count(), True
        self.hot_ms += passed_ms if self._is_hot else 0
        if self._imbalance is not None:
            self._known_ms += passed_ms
            self._sum += self._imbalance * passed_ms

    def _count(self) -> float | None:
        """Return by how much the hottest member is above the average now; None where that is not known."""
        median = weight_of_new(self._loads) if self._is_measured else None
        load = dict.fromkeys(self._capacity.keys() - self._draining, 0.0)
        if median is None or not load:
            return None
        for task_id, owner in self._targets.items():
            if owner in load:
                load[owner] += self._loads.get(task_id, median)
        whole, capacity = sum(load.values()), sum(self._capacity[member_id] for member_id in load)
        hottest = max(amount / self._capacity[member_id] for member_id, amount in load.items())
        return hottest * capacity / whole - 1 if whole else None
