"""What a stretch of time cost a group, counted from its records alone.

A day and its simulation are counted in the same way, so that the two can be compared.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from batonpass.core.decide import Decision
from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import Input
from batonpass.core.state.model import ActiveState, Cause, Group, Role, Topology
from batonpass.core.state.soft import Soft
from batonpass.core.state.topology import build_table
from batonpass.simulate.scenario.heat import Heat


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted. ``moves`` are changes of targets, ``downtime_ms`` is summed over all tasks.

    ``handovers`` counts tasks that began to run on another member than before.
    ``waiting_ms`` is how long tasks ran on a member other than their target, ``silence_ms`` how much of the downtime
    was spent waiting for the sessions of dead members to end: both summed over all tasks. ``imbalance`` is by how much
    the hottest member was above the average by measured load, on average; None where none was measured.
    """

    downtime_ms: int
    moves: int
    handovers: int
    warmups: int
    generations: int
    waiting_ms: int = 0
    silence_ms: int = 0
    imbalance: float | None = None


class Tally:
    """Follows which member runs which task from record to record; what is before ``begin_ms`` costs nothing.

    A task is down from when it is known that no member runs it to when its owner reports that it runs; before its first
    start, since its first grant. The tasks of a member that was given up count as down since it was last heard; in logs
    from before that was recorded, a session timeout earlier if it expired, and ``suspect_timeout_ms`` if it was
    suspected. A parked task is not down, it is held back, nor is one that no longer exists. The audit counts a day's
    gaps by the same rules (docs/audit.md), for every cause together.
    """

    def __init__(self, group: Group, *, begin_ms: int, end_ms: int) -> None:
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._config = group.config
        self._heat = Heat(group, begin_ms=begin_ms, end_ms=end_ms)
        self._runs: dict[TaskId, tuple[MemberId, int]] = {}
        self._last: dict[TaskId, MemberId] = {}
        self._down_ms: dict[TaskId, int] = {}
        self._downtime_ms = self._moves = self._handovers = self._warmups = self._generations = 0
        self._targets: dict[TaskId, MemberId | None] = {}
        self._away_ms: dict[TaskId, int] = {}
        self._waiting_ms = self._silence_ms = 0
        self._known = group.table.index_of
        for task_id, task in group.tasks.items():
            if task_id not in self._known:
                continue
            self._targets[task_id] = task.target.owner
            if task.owner is not None and task.state is ActiveState.RUNNING:
                self._runs[task_id] = task.owner, task.since_ms
                self._last[task_id] = task.owner
            elif task.handover.stop is not None and task.handover.stop.at_ms is not None:
                self._down_ms[task_id] = task.stopped_ms
            elif task.owner is not None:
                self._down_ms[task_id] = begin_ms
            self._look(task_id, begin_ms)

    def take(self, records: Iterable[r.Record], at_ms: int) -> None:
        for record in records:
            self._heat.take(record, at_ms)
            self._exist(record, at_ms)
            match record:
                case r.ActiveReported():
                    self._reported(record)
                case r.TaskReleased(task=task, member_id=member_id):
                    self._stopped(task, member_id, record.at_ms or at_ms)
                case r.MemberGone(member_id=member_id, cause=cause, heard_ms=heard_ms):
                    if heard_ms is None and cause is Cause.EXPIRED:
                        heard_ms = record.at_ms - self._config.session_timeout_ms
                    self._gone(member_id, record.at_ms, heard_ms)
                case r.MemberAway(member_id=member_id):
                    self._gone(member_id, record.at_ms, None)
                case r.TargetPlaced():
                    self._placed(record)
                case r.PlaceInherited(member_id=member_id, successor=successor):
                    for task in [one for one, target in self._targets.items() if target == member_id]:
                        self._targets[task] = successor
                        self._look(task, at_ms)
                case r.AssignmentChanged():
                    self._granted(record)
                case r.ReleaseWaived(task=task, member_id=member_id, heard_ms=heard_ms):
                    if heard_ms is None:
                        heard_ms = at_ms - self._config.suspect_timeout_ms
                    self._died(task, member_id, at_ms, heard_ms)
                case r.TaskParked(task=task):
                    self._down_ms.pop(task, None)
                case r.GroupDeclared(config=config) | r.ConfigChanged(config=config):
                    self._config = config
                case _:
                    pass

    def decided(self, group: Group, soft: Soft, item: Input, decision: Decision, now_ms: int) -> None:
        del group, soft, item
        self.take(decision.records, now_ms)

    def minute(self, group: Group, soft: Soft, now_ms: int) -> None:
        """Do nothing: time alone costs nothing."""

    def counted(self) -> Counted:
        """Return the result at the end; a task that is still down counts until then."""
        still = sum(self._within(since, self._end_ms) for since in self._down_ms.values())
        waiting = sum(self._within(since, self._end_ms) for since in self._away_ms.values())
        return Counted(
            downtime_ms=self._downtime_ms + still,
            moves=self._moves,
            handovers=self._handovers,
            warmups=self._warmups,
            generations=self._generations,
            waiting_ms=self._waiting_ms + waiting,
            silence_ms=self._silence_ms,
            imbalance=self._heat.mean(),
        )

    def _within(self, since_ms: int, until_ms: int) -> int:
        """Return how much of a stretch counts."""
        return max(0, min(until_ms, self._end_ms) - max(since_ms, self._begin_ms))

    def _placed(self, record: r.TargetPlaced) -> None:
        if record.at_ms >= self._begin_ms:
            # A placement counts the moves that are still under way again.
            changed = sum(
                target not in (None, self._targets.get(task)) for task, (target, _, _) in record.changes.items()
            )
            self._moves += min(record.moves, changed)
            self._generations += bool(record.changes)
        for task, (target, _, _) in record.changes.items():
            self._targets[task] = target
            self._look(task, record.at_ms)

    def _exist(self, record: r.Record, at_ms: int) -> None:
        """Follow which tasks there are; those that are there again begin anew."""
        if not isinstance(record, r.GroupDeclared | r.TopologyChanged | r.GroupDeleted):
            return
        topology = Topology() if isinstance(record, r.GroupDeleted) else record.topology
        self._known = build_table(topology).index_of
        for task in {*self._last, *self._down_ms}.difference(self._known):
            self._runs.pop(task, None)
            self._last.pop(task, None)
            self._downtime_ms += self._within(self._down_ms.pop(task, at_ms), at_ms)
            self._look(task, at_ms)

    def _look(self, task: TaskId, at_ms: int) -> None:
        """Note whether a task runs on a member other than its target, from now on."""
        run, target = self._runs.get(task), self._targets.get(task)
        if run is not None and target is not None and run[0] != target:
            self._away_ms.setdefault(task, at_ms)
        elif (since := self._away_ms.pop(task, None)) is not None:
            self._waiting_ms += self._within(since, at_ms)

    def _reported(self, record: r.ActiveReported) -> None:
        task, at_ms = record.task, record.at_ms
        if task not in self._known:
            return
        if record.state is not ActiveState.RUNNING:
            self._stopped(task, record.member_id, at_ms)
            return
        since = self._down_ms.pop(task, None)
        if at_ms >= self._begin_ms:
            if since is not None:
                self._downtime_ms += self._within(since, at_ms)
            self._handovers += self._last.get(task, record.member_id) != record.member_id
        self._runs[task] = record.member_id, at_ms
        self._last[task] = record.member_id
        self._look(task, at_ms)

    def _stopped(self, task: TaskId, member_id: MemberId, at_ms: int) -> None:
        run = self._runs.get(task)
        if run is not None and run[0] == member_id:
            del self._runs[task]
            self._down_ms[task] = at_ms
            self._look(task, at_ms)

    def _granted(self, record: r.AssignmentChanged) -> None:
        if record.at_ms >= self._begin_ms:
            self._warmups += sum(one.role is Role.WARMUP for one in record.granted.values())
        for task, grant in record.granted.items():
            if grant.role is Role.ACTIVE and task not in self._last:
                self._down_ms.setdefault(task, record.at_ms)

    def _gone(self, member_id: MemberId, at_ms: int, heard_ms: int | None) -> None:
        for task, (runner, _) in list(self._runs.items()):
            if runner == member_id:
                self._died(task, member_id, at_ms, heard_ms)

    def _died(self, task: TaskId, member_id: MemberId, at_ms: int, heard_ms: int | None) -> None:
        """Count a task as down since its runner was last heard."""
        runner, since_ms = self._runs.get(task, (None, 0))
        if runner == member_id:
            down_ms = at_ms if heard_ms is None else max(since_ms, min(heard_ms, at_ms))
            self._silence_ms += self._within(down_ms, at_ms)
            self._stopped(task, member_id, down_ms)
