"""A join storm: members join one after another, restore, run and heartbeat, until the group is at rest.

Time is virtual, decisions are timed one by one. What arrives while one decision is made is decided on together next, as
in life. A member follows its assignment at once: it reports a new one a moment later, as a worker with a long-poll
does, and speaks every heartbeat interval besides. What begins to be restored is level after a while.
"""

import argparse
import gc
import heapq
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.benchmarks.groups import BEGINNING_MS, POLICY, Shape, join_of, member_name, topology_of

from batonpass.core.decide import Decision, decide
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import GroupDeclaration, Heartbeat, Input, Tick
from batonpass.core.state.model import ActiveState, Grant, Group, Role
from batonpass.core.state.records import AssignmentChanged, Record, TargetPlaced
from batonpass.core.state.soft import Soft, TaskReport
from batonpass.invariants import Transition, check_step
from batonpass.runtime.mailbox import BATCH_MAX

JOINS_A_SECOND = 200
HEARTBEAT_MS = 3_000
SOON_MS = 20
RESTORE_MS = 4_000
BEHIND = 50_000
SETTINGS: dict[str, object] = {"max_warmup_replicas": "100%", "max_warmups_per_member": 1_000}
LONGEST_MS = 3_600_000

KINDS = ("placement", "batch that writes", "quiet batch")


@dataclass
class Storm:
    """What was seen: milliseconds of processor time by kind of batch, and what it took until the group was at rest."""

    shape: Shape
    spent_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    laws_ms: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    inputs: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    records: int = 0
    rested_ms: int = 0
    most_open: int = 0

    @property
    def total_ms(self) -> float:
        """The processor time of all decisions."""
        return sum(map(sum, self.spent_ms.values()))


@dataclass
class _Played:
    """One member: the epoch that it knows, since when it has had each task in each role, and when it speaks next."""

    epoch: int = 0
    seq: int = 0
    since_ms: dict[TaskId, int] = field(default_factory=dict)
    speaks_ms: int = 0


class _Play:
    """A group in virtual time. A decision takes ``takes_ms`` of it, or (None) as long as it really takes."""

    def __init__(self, shape: Shape, settings: dict[str, object], *, laws: bool, takes_ms: float | None) -> None:
        self.seen = Storm(shape)
        self.group, self.soft = Group(GroupId("storm")), Soft()
        self.now_ms = BEGINNING_MS
        self._laws = laws
        self._members: dict[MemberId, _Played] = {}
        self._due: list[tuple[int, int, MemberId]] = []
        self._order = 0
        self._takes_ms = takes_ms
        self._free_ms: float = 0
        config = {"num_standby_replicas": shape.standbys, **SETTINGS, **settings}
        self._do([GroupDeclaration(self.group.id, topology_of(shape, (1.0,) * 4), config)])
        self.seen.spent_ms.clear()

    def play(self, joins_a_second: float) -> None:
        """Let everybody join, and go on until the group is at rest."""
        begun_ms, shape = self.now_ms, self.seen.shape
        for number in range(shape.members):
            self._speak_at(begun_ms + int(number * 1_000 / joins_a_second), member_name(number))
        while True:
            wake_ms = self.soft.wake_ms
            first_ms = self._due[0][0] if wake_ms is None else min(wake_ms, self._due[0][0])
            self.now_ms = max(self.now_ms, first_ms, int(self._free_ms))
            inputs: list[Input] = [Tick()] if wake_ms is not None and wake_ms <= self.now_ms else []
            names: dict[MemberId, None] = {}
            while self._due and self._due[0][0] <= self.now_ms and len(inputs) + len(names) < BATCH_MAX:
                names[heapq.heappop(self._due)[2]] = None
            self._do([*(self._word(name) for name in names), *inputs])
            everybody = len(self.group.members) == shape.members
            if everybody and self.group.next_probe_ms is None and self.group.placement_due_ms is None:
                break
            assert self.now_ms < begun_ms + LONGEST_MS, f"no rest; {len(self.group.unsettled)} tasks are unsettled"
        self.seen.rested_ms = self.now_ms - begun_ms

    def _speak_at(self, at_ms: int, name: MemberId) -> None:
        self._order += 1
        heapq.heappush(self._due, (at_ms, self._order, name))

    def _word(self, name: MemberId) -> Input:
        played = self._members.get(name)
        if played is None:
            self._members[name] = played = _Played(speaks_ms=self.now_ms + HEARTBEAT_MS)
            self._speak_at(played.speaks_ms, name)
            return join_of(self.seen.shape, int(name.rpartition("-")[2]))
        if self.now_ms >= played.speaks_ms:
            played.speaks_ms = self.now_ms + HEARTBEAT_MS
            self._speak_at(played.speaks_ms, name)
        played.seq += 1
        self._take(name, played)
        return Heartbeat(name, played.seq, played.epoch, self._report(name, played))

    def _take(self, name: MemberId, played: _Played) -> None:
        member = self.group.members[name]
        if member.epoch != played.epoch:
            played.epoch = member.epoch
            before = played.since_ms
            played.since_ms = {task: before.get(task, self.now_ms) for task in member.assignment}

    def _report(self, name: MemberId, played: _Played) -> dict[TaskId, TaskReport]:
        picture = self.group.members[name].assignment
        return {task: self._of_task(grant, played.since_ms[task]) for task, grant in picture.items()}

    def _of_task(self, grant: Grant, since_ms: int) -> TaskReport:
        is_level = self.now_ms - since_ms >= RESTORE_MS
        if grant.role is Role.ACTIVE:
            return _RUNS if is_level else _RESTORES
        return _COPIES[grant.role, is_level]

    def _do(self, inputs: Sequence[Input]) -> None:
        group, soft = self.group, self.soft
        began = time.thread_time_ns()
        decision = decide(group, soft, inputs, self.now_ms, POLICY)
        spent_ms = (time.thread_time_ns() - began) / 1e6
        kind = _kind(decision)
        self.seen.spent_ms[kind].append(spent_ms)
        self.seen.inputs[kind] += len(inputs)
        self._free_ms = self.now_ms + (spent_ms if self._takes_ms is None else self._takes_ms)
        if self._laws and decision.records:
            step = Transition(group, decision.after, decision.records, soft, decision.soft, self.now_ms, tuple(inputs))
            began = time.thread_time_ns()
            found = check_step(step)
            self.seen.laws_ms[kind] += (time.thread_time_ns() - began) / 1e6
            assert not found, f"a law is broken: {found[0]}"
        assert not any(isinstance(reply, ProtocolError) for reply in decision.replies), decision.replies
        self.group, self.soft = decision.after, decision.soft
        self.seen.records += len(decision.records)
        self.seen.most_open = max(self.seen.most_open, len(self.group.unsettled))
        self._tell(decision.records)

    def _tell(self, records: Iterable[Record]) -> None:
        """Wake the long-polls of those whose assignments changed."""
        for record in records:
            if isinstance(record, AssignmentChanged):
                self._speak_at(self.now_ms + SOON_MS, record.member_id)


def _kind(decision: Decision) -> str:
    if any(isinstance(record, TargetPlaced) for record in decision.records):
        return "placement"
    return "batch that writes" if decision.records else "quiet batch"


_RUNS = TaskReport("active", ActiveState.RUNNING)
_RESTORES = TaskReport("active", ActiveState.RESTORING, BEHIND)
_COPIES = {
    (role, is_level): TaskReport(role.value, lag=0 if is_level else BEHIND)
    for role in (Role.STANDBY, Role.WARMUP)
    for is_level in (False, True)
}


def storm(
    shape: Shape,
    *,
    joins_a_second: float = JOINS_A_SECOND,
    laws: bool = False,
    takes_ms: float | None = None,
    **settings: object,
) -> Storm:
    """Return what a join storm costs; ``takes_ms`` is how long each decision takes, None for as long as it does.

    Raises:
        AssertionError: when the group does not come to rest within an hour of its own time, or a law is broken.
    """
    play = _Play(shape, settings, laws=laws, takes_ms=takes_ms)
    gc.collect()
    gc.freeze()
    play.play(joins_a_second)
    gc.unfreeze()
    return play.seen


def storm_lines(seen: Storm) -> list[str]:
    """Return the table of one storm."""
    what = f"{seen.total_ms / 1_000:.1f} s in all, at rest after {seen.rested_ms / 1_000:.0f} s of its own time"
    lines = [
        f"A join storm, {seen.shape}: milliseconds of processor time; {what}; up to {seen.most_open:,} tasks unsettled",
        f"{'':24}{'count':>9}{'inputs':>9}{'mean':>10}{'p50':>10}{'p99':>10}{'most':>10}{'total s':>10}{'laws s':>10}",
    ]
    for kind in KINDS:
        spent = sorted(seen.spent_ms.get(kind, ()))
        if spent:
            lines.append(
                f"{kind:24}{len(spent):9,}{seen.inputs[kind]:9,}{sum(spent) / len(spent):10.2f}{_at(spent, 0.5):10.2f}{_at(spent, 0.99):10.2f}"
                f"{spent[-1]:10.1f}{sum(spent) / 1_000:10.2f}{seen.laws_ms.get(kind, 0) / 1_000:10.2f}"
            )
    return lines


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[int((len(ordered) - 1) * share)]


def main() -> int:
    """Play the storm that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.storm", description=__doc__)
    parser.add_argument("--members", type=int, nargs="*", default=(1_000, 10_000))
    parser.add_argument("--tasks-each", type=int, nargs="*", default=(1, 20))
    parser.add_argument("--standbys", type=int, default=0)
    parser.add_argument("--joins-a-second", type=float, default=JOINS_A_SECOND)
    parser.add_argument("--batch-ms", type=int, default=50)
    parser.add_argument("--initial-ms", type=int, default=3_000)
    parser.add_argument("--warmups", default=None, help="max_warmup_replicas, where it is to bind")
    parser.add_argument("--laws", action="store_true", help="check the laws too, and time them")
    options = parser.parse_args()
    settings: dict[str, object] = {
        "rebalance_batch_ms": options.batch_ms,
        "initial_rebalance_delay_ms": options.initial_ms,
    }
    if options.warmups is not None:
        settings["max_warmup_replicas"] = options.warmups if options.warmups.endswith("%") else int(options.warmups)
    for members in options.members:
        for each in options.tasks_each:
            shape = Shape(members * each, members, options.standbys)
            seen = storm(shape, joins_a_second=options.joins_a_second, laws=options.laws, takes_ms=None, **settings)
            sys.stdout.write("\n" + "\n".join(storm_lines(seen)) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
