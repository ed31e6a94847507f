"""One seeded world: virtual time, a lossy wire, workers, coordinators, and the truth about all of them.

A *step* is one thing that happens: a message arrives, a timer fires, a task stops. After each of them the laws are
looked at. Chance comes from the scenario's seed alone, so a world runs the same way each time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batonpass.core.ids import GroupId, TaskId
from batonpass.core.inputs import EndOffsets, GroupDeclaration, Input
from batonpass.core.model import Group
from batonpass.core.replies import Reply
from batonpass.simulate.activity import Trouble
from batonpass.simulate.checks import Checks
from batonpass.simulate.coordinators import SimulatedCoordinator, Store
from batonpass.simulate.scenario import Scenario, WireFaults, WorkerPlan, draw_worker, seeded
from batonpass.simulate.wire import Body, to_input, to_wait
from batonpass.simulate.workers import Worker
from batonpass.worker.protocol import Request, RequestKind

if TYPE_CHECKING:
    from batonpass.core.model import Topology

# Some day in 2025, so that instants look like instants.
BEGIN_MS = 1_750_000_000_000
TRACE_LINES = 400


@dataclass(slots=True)
class Changelog:
    """The end of a task's changelog as of ``since_ms``, and how many processes write to it."""

    end: int
    since_ms: int
    writers: int = 0


class World:
    """Everything that there is, and the time."""

    def __init__(self, scenario: Scenario, *, trace: Callable[[str], None] | None = None) -> None:
        self.scenario = scenario
        self.now_ms = BEGIN_MS
        self.steps = 0
        self.pending = 0
        self.chance = seeded(scenario.seed, "world")
        self.net = seeded(scenario.seed, "net")
        self.wire = scenario.wire
        self.sinks: dict[str, int] = {}
        self.logs: dict[str, Changelog] = {}
        self.owner_of_id: dict[str, Worker] = {}
        self.topology = scenario.topology
        self.config = dict(scenario.config)
        self.store = Store(Group(GroupId("g")))
        self.checks = Checks(self)
        self._queue: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._count = 0
        self._trace = trace
        self.recent: deque[str] = deque(maxlen=TRACE_LINES)
        self.workers = [Worker(plan, self) for plan in scenario.workers]
        self.coordinators: list[SimulatedCoordinator] = []
        self.leader = self.new_coordinator()

    # --- time ---------------------------------------------------------------------------------------------------

    def after(self, in_ms: int, act: Callable[..., None], *arguments: object) -> None:
        """Let ``act`` happen in so many milliseconds; what falls on one instant happens in the order of asking."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + in_ms, self._count, act, arguments))

    def later(self, in_ms: int, act: Callable[..., object], *arguments: object) -> None:
        """Let the consequence of an event happen in so many milliseconds; nothing counts as at rest before that."""
        self.pending += 1
        self.after(in_ms, self._consequence, act, arguments)

    def _consequence(self, act: Callable[..., object], arguments: tuple[object, ...]) -> None:
        self.pending -= 1
        act(*arguments)

    def step(self) -> bool:
        """Let the next thing happen and look at the laws; return False when nothing is left to happen."""
        if not self._queue:
            return False
        self.now_ms, _, act, arguments = heapq.heappop(self._queue)
        self.steps += 1
        act(*arguments)
        self.checks.after_step()
        return True

    def run_until(self, end_ms: int, *, stop: Callable[[], bool] = lambda: False) -> None:
        """Let things happen until an instant, a broken law, or ``stop``."""
        while self._queue and self._queue[0][0] <= end_ms and not self.checks.broken and not stop():
            self.step()
        if not self.checks.broken and not stop():
            self.now_ms = max(self.now_ms, end_ms)

    def log(self, line: str) -> None:
        """Note what happened, for the trace of a failing world."""
        text = f"{(self.now_ms - BEGIN_MS) / 1000:9.3f} {line}"
        self.recent.append(text)
        if self._trace is not None:
            self._trace(text)

    # --- the changelogs -----------------------------------------------------------------------------------------

    def end_of(self, task: str) -> int:
        """Return the end offset of a task's changelog; it grows while somebody processes the task."""
        log = self._log(task)
        writing_ms = self.now_ms - log.since_ms if log.writers else 0
        return log.end + writing_ms * self.scenario.growth_per_s // 1000

    def _log(self, task: str) -> Changelog:
        if task not in self.logs:
            self.logs[task] = Changelog(100 + 13 * (sum(map(ord, task)) % 40), self.now_ms)
        return self.logs[task]

    def writes(self, task: str, change: int) -> None:
        """Note that so many more (or fewer) processes write to a task's changelog."""
        log = self._log(task)
        log.end, log.since_ms = self.end_of(task), self.now_ms
        log.writers += change

    def _read_ends(self) -> None:
        """Let the coordinator read the ends of the changelogs, as it does where it can reach Kafka."""
        leader = self.leader
        if leader.is_up and self.now_ms >= leader.stalled_until_ms:
            table = leader.group.table
            ends = {
                (f"store-{task.rpartition('_')[0]}", int(task.rpartition("_")[2])): self.end_of(task)
                for task, stateful in zip(table.ids, table.stateful, strict=True)
                if stateful
            }
            if ends:
                leader.take(EndOffsets(ends, leader.clock_ms))
        self.after(1_000, self._read_ends)

    # --- coordinators -------------------------------------------------------------------------------------------

    def new_coordinator(self) -> SimulatedCoordinator:
        """Return a coordinator that has not started yet, with a clock of its own."""
        number = len(self.coordinators)
        skew_ms = seeded(self.scenario.seed, "clock", number).choice((0, 0, 0, 700, -700, 30_000, -30_000))
        coordinator = SimulatedCoordinator(f"c{number}", self, clock_offset_ms=skew_ms)
        self.coordinators.append(coordinator)
        return coordinator

    def coordinator_died(self, coordinator: SimulatedCoordinator, back_in_ms: int | None = None) -> None:
        """End a coordinator; where it led, another one starts after a while."""
        if not coordinator.is_up:
            return
        coordinator.stop()
        if coordinator is self.leader:
            wait_ms = self.chance.randint(50, 4_000) if back_in_ms is None else back_in_ms
            self.after(wait_ms, self.take_over, coordinator)

    def take_over(self, last: SimulatedCoordinator) -> None:
        """Start a new leader after ``last``, unless there is one."""
        if self.leader is not last:
            return
        if self.store.is_out or (last.is_up and last.holds_lease):
            # The lease row cannot be taken yet.
            self.after(300, self.take_over, last)
            return
        self.leader = self.new_coordinator()
        self.leader.start()

    def operate(self, item: Input) -> Reply | None:
        """Let an operator ask the leader for something; None when there was nobody to commit it."""
        if not self.leader.is_up or self.now_ms < self.leader.stalled_until_ms:
            return None
        reply = self.leader.reply_to(item)
        self.log(f"operator: {item} -> {reply}")
        return reply

    def declare(self, topology: Topology | None, config: dict[str, object] | None) -> Reply | None:
        """Declare or change the group as an operator does who has just read it."""
        group = self.leader.group
        if_match = group.revision if group.declared else None
        return self.operate(GroupDeclaration(group.id, topology, config, if_match))

    # --- the wire -----------------------------------------------------------------------------------------------

    def send(self, worker: Worker, request: Request) -> None:
        """Carry a request to a coordinator: perhaps late, perhaps twice, perhaps never."""
        for delay_ms in self._deliveries():
            self.after(delay_ms, self._arrive, worker, worker.process, request)

    def _deliveries(self) -> list[int]:
        """Return after how long each copy of a message arrives; none when it is lost."""
        net, wire = self.net, self.wire
        copies = 2 if net.random() < wire.doubled else 1
        out = []
        for _ in range(copies):
            if net.random() >= wire.lost:
                late = net.random() < wire.late
                out.append(net.randint(1, wire.late_ms) if late else net.randint(1, 8))
        return out

    def _is_cut(self, worker: Worker, request: Request) -> bool:
        cut_poll = request.kind is RequestKind.POLL and self.now_ms < worker.trouble.cut_poll_until_ms
        return cut_poll or self.now_ms < worker.trouble.cut_until_ms

    def _arrive(self, worker: Worker, process: int, request: Request) -> None:
        if self._is_cut(worker, request):
            return
        up = [one for one in self.coordinators if one.is_up]
        if not up:
            self.after(2, self._no_answer, worker, process, request)
            return
        # During a split some requests still reach the old leader.
        coordinator = self.leader if self.leader.is_up and self.net.random() < 0.7 else self.net.choice(up)
        self._serve(coordinator, worker, process, request)

    def _serve(self, coordinator: SimulatedCoordinator, worker: Worker, process: int, request: Request) -> None:
        if not coordinator.is_up:
            self._no_answer(worker, process, request)
            return
        if self.now_ms < coordinator.stalled_until_ms:
            wait_ms = coordinator.stalled_until_ms - self.now_ms + 1
            self.after(wait_ms, self._serve, coordinator, worker, process, request)
            return

        def reply(status: int, body: Body | None) -> None:
            if status == 0:
                self.after(2, self._no_answer, worker, process, request)
                return
            for delay_ms in self._deliveries():
                self.after(delay_ms, self._answered, worker, process, request, status, body)

        item = to_input(request)
        if item is None:
            if worker.process == process and worker.is_up:
                coordinator.park(request.member_id, *to_wait(request), reply)
            return
        answer = coordinator.take(item)
        if answer is None:
            self._no_answer(worker, process, request)
        else:
            reply(*answer)

    def _answered(self, worker: Worker, process: int, request: Request, status: int, body: Body | None) -> None:
        if self._is_cut(worker, request):
            return
        if worker.runs_as(process, self._answered, worker, process, request, status, body):
            worker.feed(lambda machine: machine.on_answer(request, status, body, now_ms=worker.clock_ms))

    def _no_answer(self, worker: Worker, process: int, request: Request) -> None:
        if worker.runs_as(process, self._no_answer, worker, process, request):
            worker.feed(lambda machine: machine.on_no_answer(request, now_ms=worker.clock_ms))

    def sockets_closed(self, worker: Worker) -> None:
        """Let the coordinators see that a process ended, if the network tells them."""
        member_id = worker.last_id
        if member_id is not None and self.net.random() < 0.9:
            for coordinator in self.coordinators:
                if coordinator.is_up:
                    self.after(self.net.randint(1, 20), coordinator.poll_broke, member_id)

    # --- the truth ----------------------------------------------------------------------------------------------

    def check_processing(self, task: str) -> None:
        """Note that who processes a task may have changed."""
        self.checks.look_at(task)

    def interrupted(self, worker: Worker) -> None:
        """Note that a worker is told to stop a task that it processes."""
        self.checks.on_interruption(worker)

    def processors(self, task: str) -> list[Worker]:
        """Return the workers that process a task at this instant."""
        return [worker for worker in self.workers if worker.processes(task)]

    # --- beginning and calm -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the coordinator, declare the group, start the workers over a few seconds."""
        self.leader.start()
        self.declare(self.topology, self.config)
        self._read_ends()
        for worker in self.workers:
            self.after(self.chance.randint(0, 3_000), worker.boot)

    def add_worker(self) -> Worker:
        """Put up one more machine."""
        number = len(self.workers)
        tasks = len(self.leader.group.table.ids)
        fenced = "stop" if number % 2 else "continue"
        plan: WorkerPlan = draw_worker(self.scenario.seed, number + 100, fenced=fenced, tasks=tasks)
        worker = Worker(plan, self)
        self.workers.append(worker)
        return worker

    def calm(self) -> None:
        """End every fault: the wire is whole, machines come back, hands let go."""
        self.log("calm: faults stop")
        self.wire = WireFaults()
        self.store.is_out = False
        for coordinator in self.coordinators:
            coordinator.is_cut_from_store = coordinator.dies_after_append = False
            coordinator.stalled_until_ms = min(coordinator.stalled_until_ms, self.now_ms)
        for worker in self.workers:
            worker.trouble = Trouble()
            if not worker.is_up and not worker.retired:
                worker.boot()

    def task_ids(self) -> tuple[TaskId, ...]:
        """Return the tasks of the group as the store has it."""
        return self.store.group.table.ids
