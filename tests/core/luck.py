"""Honest workers with bad luck, on the decisions alone: what they keep, report and restore hangs together.

``Chaos`` (test_membership_random) says anything at any time; here a copy comes closer step by step, a worker that is
killed comes back with what it had on disk, and everything that is wrong has a cause. A group so gets deep into
handovers, warmups and drains, and thousands of inputs take a second. Every decision is held to the laws.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from tests.core.in_vain import done_in_vain
from tests.core.scene import copy, failed, restoring, running, topology

from batonpass.core.decide import decide
from batonpass.core.handover.probing import is_at_rest
from batonpass.core.handover.room import has_limit
from batonpass.core.handover.view import View
from batonpass.core.state.errors import ProtocolError, StaleMemberEpoch
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    GroupDeclaration,
    Heartbeat,
    Input,
    Join,
    Leave,
    PauseRequest,
    PinRequest,
    PollBroken,
    PollOpened,
    ProbeRequest,
    ReleaseRequest,
    ResumeRequest,
    Started,
    Tick,
)
from batonpass.core.state.model import Group, OnLeaseLost, PauseScope, Role, Subtopology
from batonpass.core.state.policy import Policy
from batonpass.core.state.replies import Answer, Reply
from batonpass.core.state.soft import Soft, TaskReport
from batonpass.invariants import Transition, check_group, check_step

COLD = (1_000, 5_000, 20_000, 100_000)
WAITS_MS = (0, 20_000, 60_000)
LOADS = {
    "balance_by": "measured",
    "load_half_life_ms": 2_000,
    "load_patience_ms": 1_000,
    "load_cooldown_ms": 60_000,
}
QUIET_ROUNDS = 700
"""Seconds of peace: more than the ten minutes for which a task is not handed over to where it failed."""


@dataclass
class Worker:
    """One run of a worker: what is on its disk, how far behind, and what is wrong with it."""

    id: MemberId
    instance: InstanceId | None
    disk: dict[TaskId, int]
    epoch: int = 0
    seq: int = 0
    assignment: dict[TaskId, Role] = field(default_factory=dict)
    failing: set[TaskId] = field(default_factory=set)
    losing: set[TaskId] = field(default_factory=set)
    silent: int = 0


class Luck:
    """One seed: a group, its workers, and what happens to them. ``history`` is every input with its time.

    With ``together``, what several workers say mostly arrives at once. With ``measured`` they say what load tasks have,
    which wanders until there is peace, and the group is balanced by it.
    """

    def __init__(self, seed: int, *, together: bool = False, measured: bool = False) -> None:
        self.together = together
        self.chance = Random(seed)
        # Limits on disks came later, and change nothing else of what a seed stands for.
        self.disks = Random(f"disks of {seed}")
        slow = Random(f"slow copies of {seed}")
        self.loads = Random(f"loads of {seed}") if measured else None
        self.now_ms = 1_000_000
        self.group, self.soft, self.policy = Group(GroupId("g")), Soft(), Policy()
        self.history: list[tuple[Input, int]] = []
        self.workers: dict[MemberId, Worker] = {}
        self.runs = 0
        self.answers_lost = 0.1
        self.wanders_until_ms = 2**62
        chance = self.chance
        more = (Subtopology("2", 5, weight=2.5),) if chance.random() < 0.3 else ()
        shape = topology(chance.choice([4, 8, 8, 12, 20]), stateless=chance.choice([0, 0, 3]), more=more)
        self.do(
            GroupDeclaration(
                self.group.id,
                shape,
                self._config() | {"newcomer_wait_ms": slow.choice(WAITS_MS)} | (LOADS if measured else {}),
            )
        )
        # Some tasks are written as fast as copies are read, and the lag of some copies stays unknown.
        share = slow.choice([0, 0, 0.2, 0.5])
        self.hot = {task for task in self.group.table.ids if slow.random() < share}
        self.unknown = {task for task in self.group.table.ids if slow.random() < share / 4}
        for number in range(chance.choice([3, 4, 5])):
            self.start(InstanceId(f"i{number}") if chance.random() < 0.8 else None)

    def _config(self) -> dict[str, object]:
        choices: dict[str, list[object]] = {
            "num_standby_replicas": [0, 1, 1, 2],
            "rebalance_timeout_ms": [5_000, 30_000],
            "max_warmup_replicas": [1, 2, 2, 3],
            "max_warmups_per_member": [1, 2, 2],
            "max_drain_warmups": ["10%", 1, 3],
            "rejoin_grace_ms": [0, 20_000],
            "initial_rebalance_delay_ms": [0, 3_000],
            "rebalance_batch_ms": [0, 50],
            "warmup_stall_timeout_ms": [5_000, 20_000],
            "max_lost_share": [0.5, 0.5, 1.0],
        }
        fixed = {"session_timeout_ms": 8_000, "heartbeat_interval_ms": 1_000, "acceptable_recovery_lag": 100}
        return fixed | {"drain_timeout_ms": 40_000} | {key: self.chance.choice(any_) for key, any_ in choices.items()}

    def do(self, item: Input) -> Reply:
        """Let an input happen now, and hold what follows to the laws."""
        return self.do_all([item])[0]

    def do_all(self, items: Sequence[Input]) -> tuple[Reply, ...]:
        """Let several inputs happen together; return their replies, in their order."""
        self.history += [(item, self.now_ms) for item in items]
        before, soft, inputs = self.group, self.soft, tuple(items)
        decision = decide(before, soft, inputs, self.now_ms, self.policy)
        assert len(decision.replies) == len(inputs)
        if len(inputs) > 1:
            assert decide(before, soft, inputs, self.now_ms, self.policy) == decision
        if decision.records:
            transition = Transition(before, decision.after, decision.records, soft, decision.soft, self.now_ms, inputs)
            found = check_step(transition)
            assert found == [], f"{found} by input {len(self.history)}, {inputs} at {self.now_ms}"
            in_vain = done_in_vain(transition)
            assert in_vain == [], f"{in_vain} by input {len(self.history)}, {inputs} at {self.now_ms}"
        self.group, self.soft = decision.after, decision.soft
        return decision.replies

    # --- workers ------------------------------------------------------------------------------------------------

    def start(
        self,
        instance: InstanceId | None,
        *,
        replaces: MemberId | None = None,
        takeover: bool = False,
        disk: dict[TaskId, int] | None = None,
    ) -> None:
        """Start a run, with what is on its disk."""
        self.runs += 1
        worker = Worker(MemberId(f"r{self.runs}"), instance, dict(disk or {}))
        self.workers[worker.id] = worker
        joined = self.do(
            Join(
                worker.id,
                instance_id=instance,
                takeover=takeover,
                replaces=replaces,
                capacity=self.chance.choice([1.0] * 6 + [2.0]),
                max_tasks=self.chance.choice([None] * 8 + [4, 8]),
                max_disk_bytes=self.disks.choice([None] * 8 + [300, 600]),
                on_lease_lost=self.chance.choice(list(OnLeaseLost)),
                tasks={task: copy("none", lag, disk_bytes=self.bytes_of(task)) for task, lag in worker.disk.items()},
            )
        )
        if isinstance(joined, Answer):
            self._told(worker, joined)
        else:
            del self.workers[worker.id]

    def _told(self, worker: Worker, reply: Reply) -> None:
        """Take an answer; who is put out mostly joins again."""
        if isinstance(reply, Answer | StaleMemberEpoch):
            member = self.group.members[worker.id]
            worker.epoch = member.epoch
            worker.assignment = {task: grant.role for task, grant in member.assignment.items()}
        elif isinstance(reply, ProtocolError):
            del self.workers[worker.id]
            if self.chance.random() < 0.8:
                replaces = worker.id if self.chance.random() < 0.8 else None
                self.start(worker.instance, replaces=replaces, disk=self._what_is_left(worker))

    def _what_is_left(self, worker: Worker) -> dict[TaskId, int]:
        luck = self.chance.random()
        if luck < 0.5:
            return worker.disk
        return {} if luck > 0.6 else {task: lag + self.chance.randrange(500) for task, lag in worker.disk.items()}

    def beat(self, worker: Worker) -> None:
        """Let a worker come a step further, and say so."""
        self.beat_together([worker])

    def beat_together(self, workers: Sequence[Worker], *more: Input) -> None:
        """Let workers come a step further, and say so all at once, with ``more`` inputs among them."""
        inputs: list[Input] = [self._word(worker) for worker in workers]
        of_whom = dict(zip((id(item) for item in inputs), workers, strict=True))
        for item in more:
            inputs.insert(self.chance.randrange(len(inputs) + 1), item)
        for item, reply in zip(inputs, self.do_all(inputs), strict=True):
            worker = of_whom.get(id(item))
            if worker is None or self.workers.get(worker.id) is not worker:
                continue
            if not isinstance(reply, Answer) or self.chance.random() >= self.answers_lost:
                self._told(worker, reply)

    def _word(self, worker: Worker) -> Heartbeat:
        chance = self.chance
        worker.seq += 1
        for task, role in worker.assignment.items():
            if task in self.hot and role is not Role.ACTIVE:
                continue
            if task in worker.disk and chance.random() < 0.9:
                worker.disk[task] = max(0, worker.disk[task] - chance.choice([100, 1_000, 10_000]))
            elif task in worker.disk and role is not Role.ACTIVE and chance.random() < 0.2:
                worker.disk[task] += chance.randrange(1, 300)
        reports = self._report(worker)
        return Heartbeat(worker.id, worker.seq, worker.epoch, None if chance.random() < 0.03 else reports)

    def _report(self, worker: Worker) -> dict[TaskId, TaskReport]:
        table = self.group.table
        for task in [task for task in worker.disk if task not in worker.assignment and self.chance.random() < 0.7]:
            del worker.disk[task]
        reports = {task: copy("none", lag, disk_bytes=self.bytes_of(task)) for task, lag in worker.disk.items()}
        for task, role in worker.assignment.items():
            if task in table.index_of and table.stateful[table.index_of[task]]:
                worker.disk.setdefault(task, self.chance.choice(COLD))
            lag, lost = worker.disk.get(task, 0), task in worker.losing
            if lost:
                worker.losing.discard(task)
                worker.disk[task] = COLD[-1]
            if role is not Role.ACTIVE:
                is_unknown = lost or self.chance.random() < 0.01 or task in self.unknown
                reports[task] = copy(role, None if is_unknown else lag, lost=lost)
            elif task in worker.failing:
                reports[task] = failed()
            else:
                load = self._load(task)
                reports[task] = running(lost=lost, load=load) if lost or lag == 0 else restoring(lag, load=load)
            if task in worker.disk:
                reports[task] = reports[task]._replace(disk_bytes=self.bytes_of(task))
        return reports

    def _load(self, task: TaskId) -> float | None:
        """Return the load of a task: another one is hot every few minutes, and some say none, or far too much."""
        if self.loads is None:
            return None
        index = self.group.table.index_of.get(task, 0)
        is_hot = (index + min(self.now_ms, self.wanders_until_ms) // 200_000) % 5 == 0
        return self.loads.choice([None, 0.0, 100.0] if self.loads.random() < 0.02 else [3.0 if is_hot else 0.5])

    def bytes_of(self, task: TaskId) -> int:
        """Return what the state of a task takes, which grows with time, on every disk alike."""
        return 50 + 7 * (self.group.table.index_of.get(task, 0) % 5) + (self.now_ms - 1_000_000) // 100_000

    # --- what happens -------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let a moment pass: mostly heartbeats, and now and then an event."""
        chance = self.chance
        self.now_ms += chance.choice([0, 1, 50, 300, 1_000])
        if self.soft.wake_ms is not None and self.soft.wake_ms <= self.now_ms and chance.random() < 0.9:
            self.do(Tick())
        present = [self.workers[name] for name in sorted(self.workers)]
        if not present:
            self.start(InstanceId(f"i{chance.randrange(5)}"), takeover=chance.random() < 0.3)
        elif chance.random() < 0.8:
            for worker in present:
                worker.silent = max(0, worker.silent - 1)
            speaking = chance.sample(present, min(chance.choice([1, 1, 2, 9]), len(present)))
            if self.together and chance.random() < 0.8:
                more: list[Input] = [Tick()] if chance.random() < 0.3 else []
                if chance.random() < 0.1:
                    more.append(chance.choice(self._words_of_others(chance.choice(present))))
                self.beat_together([worker for worker in speaking if not worker.silent], *more)
                return
            for worker in speaking:
                if worker.id in self.workers and not worker.silent:
                    self.beat(worker)
        else:
            worker = chance.choice(present)
            chance.choice([*self._of_workers(worker), *self._of_operators(worker)])()

    def _words_of_others(self, worker: Worker) -> list[Input]:
        """Return what may come in together with heartbeats."""
        return [
            Join(MemberId(f"x{len(self.history)}"), on_lease_lost=OnLeaseLost.CONTINUE),
            Leave(worker.id),
            Eviction(worker.id, dead=True),
            DrainRequest(worker.id),
            PollBroken(worker.id),
        ]

    def _of_workers(self, worker: Worker) -> list[Callable[[], object]]:
        return [
            lambda: setattr(worker, "silent", self.chance.randrange(40)),
            lambda: setattr(worker, "silent", 0),
            lambda: self._killed(worker),
            lambda: self._killed(worker),
            lambda: self.workers.pop(worker.id),
            lambda: self._left(worker),
            self._joined,
            lambda: self._broken(worker, worker.failing),
            lambda: self._broken(worker, worker.losing),
            worker.failing.clear,
            lambda: self.do(PollBroken(worker.id)),
            lambda: self.do(PollOpened(worker.id)),
        ]

    def _of_operators(self, worker: Worker) -> list[Callable[[], object]]:
        chance, who = self.chance, worker.id
        return [
            lambda: self.do(DrainRequest(who, chance.choice([None, None, 10_000, 0]))),
            lambda: self.do(DrainRequest(who)),
            lambda: self.do(DrainReversal(who)),
            lambda: self.do(Eviction(who, dead=chance.random() < 0.3)),
            lambda: self.do(PinRequest(chance.choice(self.group.table.ids), chance.choice([None, None, who]))),
            lambda: self.do(PauseRequest(chance.choice(list(PauseScope)), "", for_ms=5_000)),
            lambda: self.do(ResumeRequest()),
            lambda: self.do(ResumeRequest()),
            lambda: self.do(ProbeRequest()),
            lambda: self.do(Tick()),
            self._release,
            self._coordinator_restarted,
            self._reconfigured,
            self._grown,
            lambda: self._drained_beside_silence(worker),
        ]

    def _killed(self, worker: Worker) -> None:
        """Kill a worker; a new run replaces it, takes its instance over, or an operator says that it is dead."""
        self.workers.pop(worker.id)
        luck = self.chance.random()
        if luck < 0.6:
            self.start(worker.instance, replaces=worker.id, disk=self._what_is_left(worker))
        elif luck < 0.8:
            self.start(worker.instance, takeover=True, disk=self._what_is_left(worker))
        elif luck < 0.9:
            self.do(Eviction(worker.id, dead=True))

    def _left(self, worker: Worker) -> None:
        self.workers.pop(worker.id)
        is_restart = worker.instance is not None and self.chance.random() < 0.6
        self.do(Leave(worker.id, restart=is_restart))
        if is_restart and self.chance.random() < 0.4:
            self.start(worker.instance, disk=self._what_is_left(worker))

    def _joined(self) -> None:
        if len(self.workers) < 8:
            self.start(InstanceId(f"i{self.chance.randrange(9)}"))

    def _broken(self, worker: Worker, tasks: set[TaskId]) -> None:
        held = sorted(worker.assignment)
        tasks.update(held and [self.chance.choice(held)])

    def _coordinator_restarted(self) -> None:
        if self.chance.random() < 0.3:
            self.soft = Soft()
            self.do(Started())

    def _reconfigured(self) -> None:
        if self.chance.random() < 0.2:
            chosen = {"max_warmup_replicas": [1, 2, 3], "num_standby_replicas": [0, 1, 2]}
            wanted = {name: self.chance.choice(values) for name, values in chosen.items()}
            self.do(GroupDeclaration(self.group.id, None, wanted, self.group.revision))

    def _grown(self) -> None:
        """Add a partition, mostly while an instance is away."""
        is_any_away = any(member.away_until_ms is not None for member in self.group.members.values())
        if is_any_away or self.chance.random() < 0.3:
            parts = tuple(
                replace(one, partitions=(one.partitions or 0) + 1) for one in self.group.topology.subtopologies
            )
            wanted = replace(self.group.topology, subtopologies=parts)
            self.do(GroupDeclaration(self.group.id, wanted, None, self.group.revision))

    def cut_or_mended(self) -> None:
        """Drop a subtopology in the middle of all that goes on, or declare it anew."""
        known = self.group.topology
        parts = tuple(one for one in known.subtopologies if one.id != "3")
        if parts == known.subtopologies:
            parts = (*parts, Subtopology("3", 5))
        wanted = replace(known, epoch=known.epoch + self.chance.choice([0, 0, 1]), subtopologies=parts)
        self.do(GroupDeclaration(self.group.id, wanted, None, self.group.revision))

    def _drained_beside_silence(self, worker: Worker) -> None:
        """Drain a worker after another one has been silent for longer than heartbeats can be late."""
        others = [self.workers[name] for name in sorted(self.workers) if name != worker.id]
        if others:
            silent = self.chance.choice(others)
            silent.silent = 40
            self.now_ms += 2_500
            for other in others:
                if other is not silent and other.id in self.workers:
                    self.beat(other)
            self.do(DrainRequest(worker.id, self.chance.choice([None, 0, 5_000])))

    def _release(self) -> None:
        for task in self.group.table.ids:
            if self.group.tasks[task].marks.parked:
                self.do(ReleaseRequest(task))

    # --- the end ------------------------------------------------------------------------------------------------

    def peace(self) -> int:
        """Let nothing go wrong any more; return after how many heartbeats of everybody the group rests."""
        self.answers_lost = 0
        self.wanders_until_ms = self.now_ms
        self.hot.clear()
        self.unknown.clear()
        for worker in self.workers.values():
            worker.silent = 0
            worker.failing.clear()
            self.do(DrainReversal(worker.id))
        for task in sorted(self.group.pins):
            self.do(PinRequest(task, None))
        for rounds in range(QUIET_ROUNDS):
            if not self.workers:
                self.start(None)
            self.now_ms += 1_000
            self._release()
            if self.group.pause is not None or self.group.storm_since_ms is not None:
                self.do(ResumeRequest())
            if self.soft.wake_ms is not None and self.soft.wake_ms <= self.now_ms:
                self.do(Tick())
            for name in sorted(self.workers):
                if name in self.workers:
                    self.beat(self.workers[name])
            assert check_group(self.group) == []
            if is_at_rest(View(self.group, self.soft, self.now_ms)) or self._is_too_small():
                return rounds
        raise AssertionError(f"no rest; unsettled: {dict(self.group.unsettled)}")

    def _is_too_small(self) -> bool:
        """Say whether all that is left waits for another member, since every one has a limit on its copies."""
        left = [self.group.tasks[task] for task in self.group.unsettled]
        is_limited = all(map(has_limit, self.group.members.values()))
        return is_limited and all(
            task.target.owner is None and task.target.waiting_reason == "no-capacity" for task in left
        )
