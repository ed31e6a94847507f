"""A relay: a group whose workers do at once what they are told, played until it rests, with everything counted.

The workers are simple on purpose: they restore, run, stop and report, one round at a time. A round is that of the law
L9: it lasts until the copies that were begun before it are caught up, so a worker's copy comes ``step`` records closer
each round. All heartbeats that follow from a round (confirmations, first reports of a grant) belong to it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil

from tests.core.scene import Scene, copy, restoring, running, topology

from batonpass.core.handover.probing import is_at_rest
from batonpass.core.handover.view import View
from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.inputs import Leave
from batonpass.core.state.model import Group, Role, Task, Topology
from batonpass.core.state.policy import Policy
from batonpass.core.state.records import AssignmentChanged, ProbeScheduled
from batonpass.core.state.replies import Done
from batonpass.core.state.soft import TaskReport

COLD_LAG = 1_000_000
"""The records that a copy made from nothing has to restore."""
ROUND_MS = 1_000


class Relay:
    """A group at play.

    Attributes:
        lag: per member and task, how far the worker's copy is behind; None where it is unreadable.
        step: the records by which every copy comes closer in a round.
        rates: per member, the step where it differs; 0 for a copy that never gets on.
        taken: per task, how often it was taken from an owner that was running it.
        granted: per task, its owners in order of their grants.
        begun: every (task, member) that was given a standby or a warmup.
        most_extra: the most extra copies that the group had at any moment.
        cold: the tasks that were granted to an owner which then had to restore.
    """

    def __init__(
        self, shape: Topology | None = None, *, policy: Policy | None = None, whole: bool = True, **config: object
    ) -> None:
        self.scene = Scene(policy=policy, whole=whole)
        self.lag: dict[tuple[MemberId, TaskId], int | None] = {}
        self.step = COLD_LAG
        self.rates: dict[MemberId, int] = {}
        self.silent: set[MemberId] = set()
        self.taken: Counter[TaskId] = Counter()
        self.granted: dict[TaskId, list[MemberId]] = {}
        self.begun: list[tuple[TaskId, MemberId]] = []
        self.most_extra = 0
        self.cold: set[TaskId] = set()
        self._counted = 0
        self._seen: Group = self.scene.group
        self.scene.declare(shape or topology(), **({"acceptable_recovery_lag": 100} | config))
        self.count()

    @property
    def group(self) -> Group:
        """The group as it stands."""
        return self.scene.group

    def forget(self) -> None:
        """Count from now on."""
        self.taken.clear()
        self.granted.clear()
        self.begun.clear()
        self.cold.clear()
        self.most_extra = 0

    def count(self) -> None:
        """Count what the decision just made did; to be called after every input."""
        before, after = self._seen, self.group
        log = self.scene.log
        for record in log[self._counted :]:
            if isinstance(record, AssignmentChanged):
                self._count_picture(before, record)
        self._counted, self._seen = len(log), after
        if before is not after:
            self.most_extra = max(self.most_extra, extra_copies(after))

    def _count_picture(self, before: Group, record: AssignmentChanged) -> None:
        member_id = record.member_id
        for task_id in (*record.revoked, *record.demoted):
            task = before.tasks[task_id]
            if task.owner == member_id:
                self.taken[task_id] += 1
        for task_id, grant in record.granted.items():
            if grant.role is Role.ACTIVE:
                self.granted.setdefault(task_id, []).append(member_id)
            elif task_id not in record.demoted:
                self.begun.append((task_id, member_id))

    def join(self, *names: str, disk: Mapping[str, int | None] | None = None, **fields: object) -> None:
        """Let members join, with state on disk of so many records behind for some tasks."""
        for name in names:
            for task, lag in (disk or {}).items():
                self.lag[MemberId(name), TaskId(task)] = lag
            self.scene.join(name, {task: copy("none", lag) for task, lag in (disk or {}).items()}, **fields)
            self.count()

    def leave(self, name: str, *, restart: bool = False) -> None:
        """Let a member stop and go."""
        self.scene.ok(Leave(MemberId(name), restart), Done)
        self.count()

    def beat(self, name: str) -> None:
        """Let a member do what its assignment says, and report what it then has."""
        member = self.scene.member(name)
        reports: dict[str, TaskReport] = {}
        for task_id, grant in member.assignment.items():
            reports[task_id] = self._report(member.id, task_id, grant.role)
        for key in [key for key in self.lag if key[0] == name and key[1] not in member.assignment]:
            if member.epoch == 1:
                reports[key[1]] = copy("none", self.lag[key])
            else:
                # Given up, or not wanted: forgotten, as by a worker that keeps no state of what is not its own.
                del self.lag[key]
        self.scene.beat(name, reports)
        self.count()

    def _report(self, member_id: MemberId, task_id: TaskId, role: Role) -> TaskReport:
        task_index = self.group.table.index_of.get(task_id)
        stateful = task_index is not None and self.group.table.stateful[task_index]
        lag = self.lag.setdefault((member_id, task_id), COLD_LAG) if stateful else 0
        if role is not Role.ACTIVE:
            return copy(role, lag)
        if lag == 0 or lag is None:
            return running()
        self.cold.add(task_id)
        return restoring(lag)

    def beats(self) -> None:
        """Let all members heartbeat until no member has anything new to report or to receive."""
        for _ in range(50):
            version = self.group.version
            for member_id in sorted(self.group.members):
                if self.scene.member(member_id).away_until_ms is None and member_id not in self.silent:
                    self.beat(member_id)
            if self.group.version == version:
                return
        raise AssertionError(f"no end of heartbeats; the last records: {self.scene.log[-6:]}")

    def restore(self) -> None:
        """Let every copy come a step closer."""
        for (member_id, task_id), lag in self.lag.items():
            if lag is not None and member_id in self.group.members:
                member = self.group.members[member_id]
                if task_id in member.assignment:
                    self.lag[member_id, task_id] = max(0, lag - self.rates.get(member_id, self.step))

    def round(self) -> None:
        """Let one round pass."""
        self.restore()
        self.scene.tick(ROUND_MS)
        self.count()
        self.beats()

    def at_rest(self) -> bool:
        """Say whether nothing is to come, by the group's own word."""
        view = View(self.group, self.scene.soft, self.scene.now_ms)
        return is_at_rest(view)

    def play(self, most: int = 400) -> int:
        """Play until the group rests; return how many rounds that took."""
        self.beats()
        for rounds in range(most):
            if self.at_rest():
                self.last_look()
                return rounds
            self.round()
        left = [self.group.tasks[task] for task in list(self.group.unsettled)[:5]]
        raise AssertionError(f"no rest after {most} rounds: {left}; {self.scene.last and self.scene.last.reasons}")

    def last_look(self) -> None:
        """Let the look that may still be due find nothing, and be the last."""
        due_ms, records = self.group.next_probe_ms, len(self.scene.log)
        if due_ms is not None:
            for at_ms in range(self.scene.now_ms + ROUND_MS, due_ms + ROUND_MS, ROUND_MS):
                self.scene.tick(min(at_ms, due_ms) - self.scene.now_ms)
                self.beats()
            assert self.scene.log[records:] == [ProbeScheduled(None)]
            self.count()
        assert self.group.next_probe_ms is None

    def actives(self) -> dict[str, int]:
        """Return how many stateful actives each member has."""
        table = self.group.table
        counts = dict.fromkeys(sorted(self.group.members), 0)
        for task_index in table.stateful_indexes:
            owner = self.group.tasks[table.ids[task_index]].owner
            if owner is not None:
                counts[owner] += 1
        return {str(member): count for member, count in counts.items()}

    def owners(self) -> dict[TaskId, MemberId | None]:
        """Return who has each stateful task."""
        table = self.group.table
        return {
            table.ids[task_index]: self.group.tasks[table.ids[task_index]].owner
            for task_index in table.stateful_indexes
        }

    def interrupted(self) -> set[TaskId]:
        """Return the tasks that an owner which was running them had to give up."""
        return set(self.taken)


def extra_copies(group: Group) -> int:
    """Return the slots in use: warmups, or what a task has beyond its active and its wanted standbys."""
    extra = 0
    for task_id in group.unsettled:
        extra += extra_of(group, group.tasks[task_id])
    return extra


def extra_of(group: Group, task: Task) -> int:
    """Return the slots that one task uses; a warmup that is the next owner is an active already."""
    warmups = len(task.warmups) - (task.handover.next_owner in task.warmups)
    copies = len(task.standbys) + len(task.warmups) + (task.owner is not None)
    return max(warmups, copies - 1 - group.config.num_standby_replicas, 0)


def moved(
    before: Mapping[TaskId, MemberId | None], after: Mapping[TaskId, MemberId | None]
) -> dict[TaskId, MemberId | None]:
    """Return the tasks that have another owner, with the new one."""
    return {task: owner for task, owner in after.items() if before.get(task) != owner}


def rounds_bound(group: Group, moves: Iterable[MemberId | None]) -> int:
    """Return the most rounds that L9 allows for moves to these members."""
    to = Counter(moves)
    budget = group.config.warmup_budget(len(group.table.stateful_indexes))
    per_member = max((ceil(count / group.config.max_warmups_per_member) for count in to.values()), default=0)
    return max(ceil(to.total() / budget), per_member) + 2


def least_moves(before: Mapping[TaskId, MemberId | None], members: Iterable[str]) -> int:
    """Return the fewest moves that level counts need for equal capacities: orphans, and what is above the quota."""
    names = list(members)
    counts = Counter(owner for owner in before.values() if owner in names)
    floor, ceils = divmod(len(before), len(names))
    kept = 0
    for _, count in sorted(((name, counts[MemberId(name)]) for name in names), key=lambda one: -one[1]):
        if count > floor and ceils > 0:
            ceils -= 1
            kept += floor + 1
        else:
            kept += min(count, floor)
    return len(before) - kept
