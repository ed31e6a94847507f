"""Kafka Streams applications with bad luck: whatever happens between and at their rebalances, played on the decisions.

The application does what Kafka Streams does: what another process still runs is revoked in one rebalance and given in
the next, copies that are assigned are read on, all others fall behind, and a task that is given cold is restored first.
Processes come, go, restart with what is on their disk, and change; releases have other subtopologies, in another order;
answers are lost, and Kafka then decides by itself; coordinators restart; operators drain, evict, pin and pause. Every
decision is held to the laws (``Scene``).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.core.scene import Scene

from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    GroupDeletion,
    OtherAssignment,
    PauseRequest,
    PinRequest,
    ResumeRequest,
    Started,
    StoreRecovered,
    StreamsProcess,
    StreamsRebalance,
    TrustRequest,
)
from batonpass.core.state.model import ActiveState, PauseScope, Subtopology, Topology
from batonpass.core.state.replies import StreamsAdvice
from batonpass.core.state.soft import Soft, TaskReport

NO_LIMIT = 2**31 - 1
READ_MS = 0.02
"""The share of a millisecond in which a copy reads a record that is there."""
PATIENCE_MS = 1_800_000
"""The time in which an application to which nothing happens any more is to rest."""


@dataclass
class Process:
    """One process: what it runs (and how far it has restored), what else is on its disk, and which of that it reads."""

    threads: int = 1
    zone: str = ""
    endpoint: str | None = None
    runs: dict[TaskId, int] = field(default_factory=dict)
    disk: dict[TaskId, int] = field(default_factory=dict)
    reads: set[TaskId] = field(default_factory=set)

    def report(self, name: str) -> StreamsProcess:
        """Return what the leader says of it."""
        tasks = {task: TaskReport("none", lag=lag) for task, lag in self.disk.items()}
        for task, lag in self.runs.items():
            state = ActiveState.RESTORING if lag else ActiveState.RUNNING
            tasks[task] = TaskReport("active", state, lag or None)
        tags = {"zone": self.zone} if self.zone else {}
        return StreamsProcess(InstanceId(name), float(self.threads), tags, tasks, name.upper(), self.endpoint)


class StreamsLuck:
    """One seed: an application, its group, and what happens to both."""

    def __init__(self, seed: int) -> None:
        self.luck = luck = Random(seed)
        self.scene = Scene()
        self.made = 0
        self.parts: list[tuple[str, int, bool]] = []
        for _ in range(luck.choice([1, 1, 2, 3])):
            self._add_part()
        self.processes = {f"p{number}": Process() for number in range(luck.choice([1, 2, 3, 4]))}
        self.config: dict[str, object] = {"acceptable_recovery_lag": 100}
        self._settings()

    def _settings(self) -> None:
        self.config["num_standby_replicas"] = self.luck.choice([0, 0, 1, 1, 2, 3])
        self.config["max_warmup_replicas"] = self.luck.choice([1, 2, 2, 5, NO_LIMIT])
        self.config["rack_aware_tags"] = self.luck.choice([(), (), ("zone",)])

    # --- what an application is ---------------------------------------------------------------------------------

    def _add_part(self) -> None:
        self.made += 1
        part = (f"part-{self.made}", self.luck.choice([1, 2, 3, 8, 16]), self.luck.random() < 0.75)
        self.parts.insert(self.luck.randrange(len(self.parts) + 1), part)

    def topology(self) -> Topology:
        """Return the subtopologies as they are numbered now."""
        return Topology(
            1,
            tuple(
                Subtopology(
                    str(number),
                    partitions,
                    stateful,
                    source_topics=(f"{name}-in",),
                    changelog_topics=(f"{name}-changelog",) if stateful else (),
                )
                for number, (name, partitions, stateful) in enumerate(self.parts)
            ),
        )

    def tasks(self) -> dict[TaskId, bool]:
        """Return all tasks, and whether each has state."""
        return {
            TaskId(f"{number}_{partition}"): stateful
            for number, (_, partitions, stateful) in enumerate(self.parts)
            for partition in range(partitions)
        }

    def _release(self, change: Callable[[], None]) -> None:
        """Deploy other parts. What is on disks is found where a part has the same number as before."""
        before = {number: part[0] for number, part in enumerate(self.parts)}
        change()
        tasks = self.tasks()
        same = {task for task in tasks if before.get(int(task.split("_")[0])) == self.parts[int(task.split("_")[0])][0]}
        for process in self.processes.values():
            process.runs = {task: lag for task, lag in process.runs.items() if task in same}
            process.disk = {task: lag for task, lag in process.disk.items() if task in same and tasks[task]}
            process.reads &= same

    # --- what happens -------------------------------------------------------------------------------------------

    def trouble(self) -> None:
        """Let something happen to the application, to its coordinator, or to its operators' minds."""
        kinds = (
            [self._start] * 3
            + [self._stop] * 2
            + [self._restart, self._restart, self._change, self._change, self._decide_alone, self._other_tasks]
            + [self._drain, self._drain, self._undrain, self._evict, self._pin, self._pause, self._coordinator]
            + [self._configure, self._forget]
        )
        self.luck.choice(kinds)()

    def _start(self) -> None:
        name = f"p{self.luck.randrange(7)}"
        if name not in self.processes and len(self.processes) < 6:
            lags = [0, 50, 5_000, 90_000]
            disk = {task: self.luck.choice(lags) for task, stateful in self.tasks().items() if stateful}
            share = self.luck.choice([0, 0, 0.3, 1])
            kept = {task: lag for task, lag in disk.items() if self.luck.random() < share}
            self.processes[name] = Process(self.luck.choice([1, 1, 2, 4]), self.luck.choice(["", "a", "b"]), disk=kept)

    def _stop(self) -> None:
        if len(self.processes) > 1:
            del self.processes[self.luck.choice(sorted(self.processes))]

    def _restart(self) -> None:
        """Let a process restart so fast that its leader reports it as one that has only its disk."""
        process = self.processes[self._any()]
        tasks = self.tasks()
        process.disk.update({task: lag + 10 for task, lag in process.runs.items() if tasks.get(task)})
        process.runs.clear()
        process.reads.clear()
        if self.luck.random() < 0.2:
            process.disk.clear()

    def _change(self) -> None:
        process = self.processes[self._any()]
        process.threads = self.luck.choice([1, 2, 4])
        process.zone = self.luck.choice([process.zone, "a", "b"])
        process.endpoint = self.luck.choice([None, "h:1", "h:2"])

    def _decide_alone(self) -> None:
        """Kafka, or the plug-in without an answer, puts tasks where nobody said."""
        for task in self.luck.sample(sorted(self.tasks()), k=min(2, len(self.tasks()))):
            self._run(task, self._any())

    def _other_tasks(self) -> None:
        def partitions() -> None:
            number = self.luck.randrange(len(self.parts))
            name, _, stateful = self.parts[number]
            self.parts[number] = (name, self.luck.choice([1, 2, 3, 8, 16]), stateful)

        def fewer() -> None:
            if len(self.parts) > 1:
                self.parts.pop(self.luck.randrange(len(self.parts)))

        def state() -> None:
            number = self.luck.randrange(len(self.parts))
            name, count, stateful = self.parts[number]
            self.parts[number] = (name, count, not stateful)
            for process in self.processes.values():
                for had in (process.runs, process.disk):
                    for task in [task for task in had if task.startswith(f"{number}_")]:
                        del had[task]

        self._release(self.luck.choice([partitions, partitions, self._add_part, fewer, state]))

    def _member(self) -> MemberId:
        return self.luck.choice(sorted(self.scene.group.members) or [MemberId("nobody")])

    def _drain(self) -> None:
        deadline_ms = self.luck.choice([None, 1_000, 30_000])
        lasts = self.luck.random() < 0.4
        for_ms = self.luck.choice([None, 20_000]) if lasts else None
        self.scene.do(DrainRequest(self._member(), deadline_ms, until_undone=lasts, for_ms=for_ms))

    def _undrain(self) -> None:
        self.scene.do(DrainReversal(self._member()))

    def _evict(self) -> None:
        lasts = self.luck.random() < 0.3
        self.scene.do(Eviction(self._member(), dead=self.luck.random() < 0.5, until_undone=lasts))
        self.scene.do(TrustRequest(self._member()))

    def _pin(self) -> None:
        task = self.luck.choice(sorted(self.tasks()))
        self.scene.do(PinRequest(task, self.luck.choice([self._member(), None])))

    def _pause(self) -> None:
        if self.luck.random() < 0.5:
            self.scene.do(ResumeRequest())
            return
        scope = self.luck.choice([PauseScope.ALL, PauseScope.BALANCE])
        self.scene.do(PauseRequest(scope, for_ms=self.luck.choice([5_000, 60_000, None])))

    def _coordinator(self) -> None:
        self.scene.soft = Soft()
        self.scene.do(Started(clock_moved=self.luck.random() < 0.2))

    def _configure(self) -> None:
        self._settings()
        self.scene.change(
            max_drain_warmups=self.luck.choice(["10%", 1, 3, "50%"]),
            max_warmups_per_member=self.luck.choice([1, 2, 8]),
            warmup_stall_timeout_ms=self.luck.choice([5_000, 300_000]),
        )

    def _forget(self) -> None:
        if self.luck.random() < 0.3:
            self.scene.do(self.luck.choice([GroupDeletion(force=True), StoreRecovered()]))

    def _any(self) -> str:
        return self.luck.choice(sorted(self.processes))

    # --- rebalances ---------------------------------------------------------------------------------------------

    def _run(self, task: TaskId, name: str) -> None:
        """Let a process run a task, from what it has on its disk; whoever ran it keeps that as state on disk."""
        is_stateful = self.tasks()[task]
        for other in self.processes.values():
            lag = other.runs.pop(task, None)
            if lag is not None and is_stateful:
                other.disk[task] = lag
        lag = self.processes[name].disk.pop(task, 60_000)
        self.processes[name].runs[task] = lag if is_stateful else 0

    def rebalance(self, *, obeys: bool = True, shadow: bool = False) -> StreamsAdvice:
        """Ask, and do as the answer says."""
        other = None
        if shadow:
            actives = {InstanceId(name): tuple(process.runs) for name, process in self.processes.items()}
            other = OtherAssignment("HighAvailabilityTaskAssignor", actives)
        reports = tuple(process.report(name) for name, process in sorted(self.processes.items()))
        item = StreamsRebalance(self.topology(), dict(self.config), reports, other)
        advice = self.scene.do(item)
        assert not isinstance(advice, ProtocolError), advice
        assert isinstance(advice, StreamsAdvice)
        if obeys:
            self._obey(advice)
        return advice

    def _obey(self, advice: StreamsAdvice) -> None:
        tasks = self.tasks()
        wanted = [(task, str(name)) for name, of in advice.assignment.items() for task in of["active"]]
        assert sorted(task for task, _ in wanted) == sorted(tasks), "every task has one active"
        for task, name in wanted:
            runs_on = [one for one, process in self.processes.items() if task in process.runs]
            if not runs_on:
                self._run(task, name)
            for one in runs_on:
                if one != name:
                    lag = self.processes[one].runs.pop(task)
                    self.processes[one].disk |= {task: lag} if tasks[task] else {}
        for name, of in advice.assignment.items():
            copies = {*of["standby"], *of["warmup"]}
            assert len(copies) == len(of["standby"]) + len(of["warmup"])
            assert copies.isdisjoint(of["active"])
            assert all(tasks[task] for task in copies)
            process = self.processes[str(name)]
            process.reads = copies
            for task in copies - process.runs.keys():
                process.disk.setdefault(task, 100_000)

    def pass_time(self, ms: int) -> None:
        """Let time pass: what is read comes closer, and everything else falls behind."""
        self.scene.now_ms += ms
        for process in self.processes.values():
            process.runs = {task: max(0, lag - int(ms / READ_MS)) for task, lag in process.runs.items()}
            for task, lag in process.disk.items():
                process.disk[task] = max(0, lag - int(ms / READ_MS)) if task in process.reads else lag + ms // 10

    def play(self, rounds: int) -> None:
        """Let so many rebalances go by, with trouble before each."""
        shadow = False
        for _ in range(rounds):
            for _ in range(self.luck.choice([0, 1, 1, 2])):
                self.trouble()
            shadow ^= self.luck.random() < 0.05
            advice = self.rebalance(obeys=self.luck.random() < 0.85, shadow=shadow)
            self.pass_time(self.luck.choice([0, 200, 2_000, advice.follow_up_ms or 60_000]))

    def peace(self) -> None:
        """Let operators take back what they said, and the application rebalance when it is asked to, until it rests.

        Then its tasks with state are in balance.
        """
        for process in self.processes.values():
            process.threads = 1
        for member_id in sorted(self.scene.group.members):
            self.scene.do(DrainReversal(member_id))
        for instance_id in sorted(self.scene.group.kept_out):
            self.scene.do(DrainReversal(MemberId(instance_id)))
        for task in sorted(self.scene.group.pins):
            self.scene.do(PinRequest(task, None))
        self.scene.do(ResumeRequest())
        patience_ms = PATIENCE_MS
        advice = self.rebalance()
        while not advice.at_rest or advice.follow_up_ms is not None:
            assert advice.follow_up_ms is not None, f"no rest, and no rebalance to come: {advice}"
            patience_ms -= max(1_000, advice.follow_up_ms)
            assert patience_ms > 0, f"no rest: {advice}"
            self.pass_time(advice.follow_up_ms)
            advice = self.rebalance()
        assert self.rebalance().moves == 0
        stateful = {task for task, has_state in self.tasks().items() if has_state}
        loads = [len(stateful.intersection(of["active"])) for of in advice.assignment.values()]
        assert max(loads) - min(loads) <= 1, advice.assignment
