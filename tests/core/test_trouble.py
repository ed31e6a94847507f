"""Trouble of every kind, in every kind of group, at a quiet time, at the deadline of a drain and during a rollout.

Whatever is wrong with ``m2`` or with two tasks, the others go on: no task stands still for longer than it takes to see
the trouble and to begin elsewhere, none is parked, no drain is late, and nothing goes back and forth.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from tests.core.scene import Scene, copy, failed, restoring, running, topology

from batonpass.core.state.ids import InstanceId, MemberId
from batonpass.core.state.inputs import DrainRequest, Eviction, Leave, PollBroken
from batonpass.core.state.model import ActiveState, OnLeaseLost, Role, Topology
from batonpass.core.state.soft import TaskReport

SECONDS = 130
DEADLINE = 20
AWAY_S = 100
TASKS = 6
CONFIG = {
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 1_000,
    "warmup_stall_timeout_ms": 10_000,
    "max_warmup_replicas": 4,
    "max_drain_warmups": 4,
}
Event = Callable[["Group", int], None]


@dataclass
class Group:
    """A group of m1 to m4, in which something is wrong.

    Attributes:
        runs: the present run of each member.
        silent: who says nothing.
        says: what m2 says of what it has as active, if not that it runs.
        hot: the tasks of which no copy comes closer.
        still: since how many seconds each task has stood still; and ``longest`` of these.
        handovers: how often a task went to another run than had it last.
    """

    stateless: bool
    standbys: int
    fenced: bool
    ids: bool
    runs: dict[str, str] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    says: Callable[[str], TaskReport] | None = None
    hot: tuple[str, ...] = ()
    starts: int = 0
    still: dict[str, int] = field(default_factory=dict)
    longest: dict[str, int] = field(default_factory=dict)
    handovers: int = 0
    owners: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scene = Scene(whole=False)
        self.scene.declare(self.shape(TASKS), num_standby_replicas=self.standbys, **CONFIG)
        for name in ("m1", "m2", "m3", "m4"):
            self.start(name)
        self.scene.settle(60)
        self.owners = self.scene.owners()

    def shape(self, tasks: int, epoch: int = 1) -> Topology:
        """Return so many tasks of a release."""
        return topology(0, stateless=tasks, epoch=epoch) if self.stateless else topology(tasks, epoch=epoch)

    def start(self, name: str, epoch: int = 1) -> None:
        """Let the next run of a member join."""
        self.starts += 1
        self.runs[name] = run = f"{name}-{self.starts}"
        lease = OnLeaseLost.CONTINUE if self.fenced else OnLeaseLost.STOP
        instance = InstanceId(name) if self.ids else None
        self.scene.join(run, instance_id=instance, on_lease_lost=lease, topology_epoch=epoch)
        self.silent.discard(name)

    def goes(self, name: str, *, restart: bool = False) -> None:
        """Let a member leave in good order; one with an instance id may say that it comes back."""
        self.scene.do(Leave(MemberId(self.runs.pop(name)), restart=restart and self.ids))

    def dies(self, name: str) -> None:
        """Let a member fall silent for good."""
        self.silent.add(name)
        if self.fenced:
            self.scene.do(PollBroken(MemberId(self.runs[name])))

    def second(self) -> None:
        """Let a second pass, in which everybody says how it is."""
        self.scene.wait(1_000)
        for name, run in sorted(self.runs.items()):
            if name not in self.silent and MemberId(run) in self.scene.group.members:
                self._beat(name, run)
        self._count()

    def _beat(self, name: str, run: str) -> None:
        reports: dict[str, TaskReport] = {}
        for task, grant in self.scene.member(run).assignment.items():
            if grant.role is not Role.ACTIVE:
                reports[task] = copy(grant.role, 10**6 if task in self.hot else 0)
            else:
                reports[task] = self.says(task) if name == "m2" and self.says else running()
        self.scene.beat(run, reports)

    def _count(self) -> None:
        owners = self.scene.owners()
        self.handovers += sum(owner is not None and owner != self.owners.get(task) for task, owner in owners.items())
        self.owners.update({task: owner for task, owner in owners.items() if owner is not None})
        silent = {self.runs.get(name) for name in self.silent}
        for task, owner in owners.items():
            runs = owner not in {None, *silent} and self.scene.task(task).state is ActiveState.RUNNING
            self.still[task] = 0 if runs else self.still.get(task, 0) + 1
            self.longest[task] = max(self.longest.get(task, 0), self.still[task])


# What is wrong, second by second.


def away(group: Group, second: int) -> None:
    if second == 0:
        group.goes("m2", restart=True)
    if second == (AWAY_S if group.ids else 1):
        group.start("m2")


def dead(group: Group, second: int) -> None:
    if second == 0:
        group.dies("m2")


def late(group: Group, second: int) -> None:
    """Silent for longer than heartbeats can be late, time and again, and never for as long as its lease."""
    (group.silent.add if second % 12 < 8 else group.silent.discard)("m2")


def killed_again(group: Group, second: int) -> None:
    if second % 40 == 0:
        group.dies("m2")
    if second % 40 == 15:
        group.start("m2")


def fails(group: Group, _second: int) -> None:
    group.says = lambda _task: failed("no space left on device")


def restores_again(group: Group, _second: int) -> None:
    group.says = lambda _task: restoring(10**6)


def loses(group: Group, _second: int) -> None:
    group.says = lambda _task: restoring(None, lost=True)


def kept_out(group: Group, second: int) -> None:
    if second == 0:
        group.scene.do(Eviction(MemberId(group.runs["m2"]), dead=True, until_undone=group.ids))
    if second == 2 and group.ids:
        group.start("m2")


def hot(group: Group, _second: int) -> None:
    group.hot = ("0_0", "0_1")


def comes_and_goes(group: Group, second: int) -> None:
    if second % 40 == 0:
        group.start("m5")
    if second % 40 == 20:
        group.goes("m5")


# What else happens.


def nothing(_group: Group, _second: int) -> None:
    pass


def drain(group: Group, second: int) -> None:
    if second == 5:
        group.scene.do(DrainRequest(MemberId(group.runs["m1"]), (DEADLINE - 5) * 1_000))
    if second == DEADLINE + 2:
        assert group.runs["m1"] not in group.scene.owners().values()


def rollout(group: Group, second: int) -> None:
    """Of a release with two more tasks: m1, m3 and m4 are started anew, one after the other."""
    if second == 5:
        group.scene.change(group.shape(TASKS + 2, epoch=2))
    for number, name in enumerate(("m1", "m3", "m4")):
        if second == 10 + 20 * number:
            group.goes(name, restart=True)
        if second == 15 + 20 * number:
            group.start(name, epoch=2)


def longest_s(group: Group, trouble: Event, beside: Event) -> int:
    """Return for how many seconds a task may stand still."""
    is_elsewhere = group.stateless or group.standbys
    most = 7 if beside is rollout else 4  # Who is started anew is away for five seconds.
    if trouble is late:
        return 10  # What it runs stands still meanwhile.
    if trouble is away and group.ids and not is_elsewhere:
        return AWAY_S  # The place of what it had is kept.
    if trouble in (dead, killed_again) and not (group.fenced and is_elsewhere):
        return 10  # Its lease.
    return 11 if trouble is restores_again else most  # The time after which a restore counts as stuck.


TROUBLE = (away, dead, late, killed_again, fails, restores_again, loses, kept_out, hot, comes_and_goes)
GROUPS = {
    "no-standbys": (False, 0, False, True),
    "no-standbys-fenced-no-ids": (False, 0, True, False),
    "standbys-no-ids": (False, 1, False, False),
    "standbys-fenced": (False, 1, True, True),
    "stateless": (True, 0, False, True),
    "stateless-fenced-no-ids": (True, 0, True, False),
}
NEEDS_COPIES = (restores_again, loses)
"""What can be told from a restore as such only by a copy that is ready beside it."""
CASES = [(kind, trouble) for kind in GROUPS for trouble in TROUBLE if GROUPS[kind][1] or trouble not in NEEDS_COPIES]


@pytest.mark.no_cover
@pytest.mark.parametrize("beside", [nothing, drain, rollout])
@pytest.mark.parametrize(("kind", "trouble"), CASES)
def test_what_is_wrong_with_one_holds_up_no_other(kind: str, trouble: Event, beside: Event) -> None:
    stateless, standbys, fenced, ids = GROUPS[kind]
    group = Group(stateless, standbys, fenced, ids)
    for second in range(SECONDS):
        trouble(group, second)
        beside(group, second)
        group.second()
    assert not [task.id for task in group.scene.group.tasks.values() if task.marks.parked]
    assert max(group.longest.values()) <= longest_s(group, trouble, beside), group.longest
    assert group.handovers <= 12 * (1 + (trouble is killed_again) + (beside is rollout))
    if trouble in (fails, restores_again, loses, kept_out):
        assert group.runs["m2"] not in group.scene.owners().values()
