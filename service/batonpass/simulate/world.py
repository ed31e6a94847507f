"""One world: virtual time, a wire, workers, coordinators, and the truth about all of them.

A *step* is one thing that happens: a message arrives, a timer fires, a copy reaches the end of its changelog. The laws
are checked after each step, unless ``check_laws`` is off. Chance comes from the plan's seed alone, so a world runs the
same way each time. A world without faults has the same code, with no fault switched on.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable

from batonpass.core.decide import Decision
from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import EndOffsets, GroupDeclaration, Input
from batonpass.core.state.model import Group, Topology
from batonpass.core.state.replies import Reply
from batonpass.simulate.checks import Checks
from batonpass.simulate.clock import Clock
from batonpass.simulate.coordinator import CoordinatorObserver, SimulatedCoordinator, Store
from batonpass.simulate.copies import Copies, Rates
from batonpass.simulate.plan import WireFaults, WorkerPlan, WorldPlan, seeded
from batonpass.simulate.tasks import Task, name_of, task_of
from batonpass.simulate.wire import Body, to_input, to_wait
from batonpass.simulate.worker import SharedState, Worker
from batonpass.worker.protocol import Request, RequestKind

TRACE_LINES = 400


class World(CoordinatorObserver):
    """The time, the workers, the coordinators, the store and the wire.

    Without ``rates`` changelogs are as large and grow as fast as the plan says, and workers restore as their own
    plans say. After ``most_steps`` nothing more happens.
    """

    def __init__(
        self,
        plan: WorldPlan,
        *,
        rates: Rates | None = None,
        check_laws: bool = True,
        trace: Callable[[str], None] | None = None,
        most_steps: int | None = None,
    ) -> None:
        self.plan = plan
        self.clock = Clock(plan.start_ms)
        self.steps = 0
        self.pending = 0
        self.chance = seeded(plan.seed, "world")
        self.net = seeded(plan.seed, "net")
        self.wire = plan.wire
        self.topology = plan.topology
        self.config = dict(plan.config)
        self.store = Store(Group(GroupId(plan.group_id)))
        self._stateful: set[int] = set()
        self.topics_made: Counter[str] = Counter()
        """How often each changelog was made anew: by that the coordinator tells the topics of one name apart."""
        self._note_stateful(plan.topology)
        copies = Copies(lambda task: task[0] in self._stateful, rates or self, now_ms=plan.start_ms)
        self.shared = SharedState(self.clock, copies, plan.pace, keep_looking=plan.reads_ends)
        self.workers: list[Worker] = []
        self.named: dict[str, Worker] = {}
        self.checks = Checks(self.shared, self.workers, self.store, self.noted)
        self._bursts: defaultdict[Task, list[tuple[int, int, int]]] = defaultdict(list)
        self._check_laws = check_laws
        self._trace = trace
        self._most_steps = most_steps
        self.recent: deque[str] = deque(maxlen=TRACE_LINES)
        self.coordinators: list[SimulatedCoordinator] = []
        self.leader = self.new_coordinator()
        for worker in plan.workers:
            self.add_worker(worker)

    # --- time ---------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    @property
    def next_ms(self) -> int | None:
        """When the next thing happens; None when nothing is left to happen."""
        due, arrival = self.clock.next_ms, self.shared.next_arrival_ms()
        return arrival if due is None or (arrival is not None and arrival < due) else due

    def later(self, in_ms: int, act: Callable[..., object], *arguments: object) -> None:
        """Let the consequence of an event happen in so many milliseconds; before that the group is not at rest."""
        self.pending += 1
        self.clock.after(in_ms, self._consequence, act, arguments)

    def _consequence(self, act: Callable[..., object], arguments: tuple[object, ...]) -> None:
        self.pending -= 1
        act(*arguments)

    def step(self) -> None:
        """Let the next thing happen, and check the laws."""
        shared = self.shared
        due, arrival = self.clock.next_ms, shared.next_arrival_ms()
        if arrival is not None and (due is None or arrival <= due):
            self.clock.pass_to(arrival)
            shared.catch_up()
            for worker in sorted(self.workers, key=lambda one: one.name):
                if worker.is_up:
                    worker.look_for_arrivals()
        else:
            self.clock.step()
        while shared.arrived:
            client, task = shared.arrived.pop()
            self.named[client].begun(task)
        self.steps += 1
        if self._check_laws:
            self.checks.after_step()

    def is_over(self) -> bool:
        """Whether a law is broken, or no step is left."""
        return bool(self.checks.broken) or self.steps == self._most_steps

    def run_until(self, end_ms: int, *, stop: Callable[[], bool] = lambda: False) -> None:
        """Let things happen until an instant, a broken law, the last step, or ``stop``."""
        while not self.is_over() and not stop():
            due = self.next_ms
            if due is None or due > end_ms:
                self.clock.pass_to(end_ms)
                return
            self.step()

    def leap(self, by_ms: int) -> None:
        """Skip a stretch in which only identical heartbeats would happen; workers' clocks stand still meanwhile."""
        self.clock.leap(by_ms)
        for coordinator in self.coordinators:
            coordinator.leap(by_ms)
        self.shared.skipped_ms += by_ms
        self.shared.catch_up()

    def noted(self, line: str) -> None:
        """Note what happened, for the trace of a failing world."""
        if self._check_laws:
            text = f"{(self.now_ms - self.plan.start_ms) / 1000:9.3f} {line}"
            self.recent.append(text)
            if self._trace is not None:
                self._trace(text)

    # --- the changelogs -----------------------------------------------------------------------------------------

    def end_offset(self, task: Task, at_ms: int) -> int:
        """The end of a task's changelog, if the task had run until `at_ms`."""
        size = 100 + 13 * (sum(map(ord, name_of(task))) % 40)
        bursts = sum(max(0, min(at_ms, until_ms) - from_ms) * rate for from_ms, until_ms, rate in self._bursts[task])
        return size + ((at_ms - self.plan.start_ms) * self.plan.growth_per_s + bursts) // 1000

    def write_as_fast_as_any_reads(self, task: Task, for_ms: int) -> None:
        """Let a task's changelog grow, while it runs, as fast as the fastest worker restores."""
        rate = int(max(worker.plan.records_per_s for worker in self.workers))
        self._bursts[task].append((self.now_ms, self.now_ms + for_ms, rate))

    def restore_rate(self, client: str) -> float:
        """How many records a second a worker restores, all of its copies together."""
        return self.named[client].plan.records_per_s

    def _note_stateful(self, topology: Topology) -> None:
        self._stateful |= {int(one.id) for one in topology.subtopologies if one.stateful}

    def _read_ends(self) -> None:
        """Let the coordinator read the ends of the changelogs, as it does where it can reach Kafka."""
        leader = self.leader
        if leader.is_awake:
            table = leader.group.table
            ends = {
                (f"store-{task_of(name)[0]}", task_of(name)[1]): self.shared.end_of(task_of(name))
                for name, stateful in zip(table.ids, table.stateful, strict=True)
                if stateful
            }
            if ends:
                ids = {topic: f"{topic}-{self.topics_made[topic]}" for topic, _ in ends}
                leader.decide(EndOffsets(ends, leader.clock_ms, topic_ids=ids))
        self.clock.after(1_000, self._read_ends)

    # --- coordinators -------------------------------------------------------------------------------------------

    def new_coordinator(self) -> SimulatedCoordinator:
        """Return a coordinator that has not started yet, with an error of its own about the time."""
        number = len(self.coordinators)
        error_ms = seeded(self.plan.seed, "clock", number).choice(self.plan.clock_errors_ms)
        coordinator = SimulatedCoordinator(f"c{number}", self.clock, self.store, self, clock_error_ms=error_ms)
        self.coordinators.append(coordinator)
        return coordinator

    def died(self, coordinator: SimulatedCoordinator, back_in_ms: int | None = None) -> None:
        """End a coordinator; if it led, another one starts after a while."""
        if not coordinator.is_up:
            return
        coordinator.stop()
        if coordinator is self.leader:
            wait_ms = self.chance.randint(50, 4_000) if back_in_ms is None else back_in_ms
            self.clock.after(wait_ms, self.take_over, coordinator)

    def take_over(self, last: SimulatedCoordinator) -> None:
        """Start a new leader after ``last``, unless there is one."""
        if self.leader is not last:
            return
        if self.store.is_out or (last.is_up and last.holds_lease):
            # The lease row cannot be taken yet.
            self.clock.after(300, self.take_over, last)
            return
        self.lead_anew()

    def lead_anew(self, *, recovered: bool = False) -> None:
        self.leader = self.new_coordinator()
        self.leader.start(recovered=recovered)

    def operate(self, item: Input) -> Reply | None:
        """Let an operator ask the leader for something; None when no coordinator could commit it."""
        if not self.leader.is_awake:
            return None
        reply = self.leader.decide(item)
        self.noted(f"operator: {item} -> {reply}")
        return reply

    def declare(self, topology: Topology | None, config: dict[str, object] | None) -> Reply | None:
        """Declare or change the group as an operator does who has just read it."""
        if topology is not None:
            self._note_stateful(topology)
        group = self.leader.group
        if_match = group.revision if group.declared else None
        return self.operate(GroupDeclaration(group.id, topology, config, if_match))

    def loaded(self, coordinator: SimulatedCoordinator) -> None:
        if self._check_laws:
            self.checks.on_load(coordinator.group)

    def decided(self, coordinator: SimulatedCoordinator, item: Input, decision: Decision) -> None:
        if self._check_laws:
            self.checks.on_decision(coordinator, item, decision)

    def committed(self, coordinator: SimulatedCoordinator, decision: Decision) -> None:
        if self._check_laws:
            self.checks.on_commit(coordinator, decision)

    # --- the wire -----------------------------------------------------------------------------------------------

    def send(self, worker: Worker, request: Request) -> None:
        """Carry a request to a coordinator: perhaps late, perhaps twice, perhaps never."""
        for delay_ms in self._deliveries():
            self.clock.after(delay_ms, self._arrive, worker, worker.process, request)

    def _deliveries(self) -> list[int]:
        """Return after how long each copy of a message arrives; none when it is lost."""
        net, wire = self.net, self.wire
        copies = 2 if net.random() < wire.doubled else 1
        out = []
        for _ in range(copies):
            if net.random() >= wire.lost:
                late = net.random() < wire.late
                out.append(net.randint(1, wire.late_ms) if late else net.randint(*self.plan.pace.message))
        return out

    def _is_cut(self, worker: Worker, request: Request) -> bool:
        cut_poll = request.kind is RequestKind.POLL and self.now_ms < worker.faults.cut_poll_until_ms
        return cut_poll or self.now_ms < worker.faults.cut_until_ms

    def _arrive(self, worker: Worker, process: int, request: Request) -> None:
        if self._is_cut(worker, request):
            return
        up = [one for one in self.coordinators if one.is_up]
        if not up:
            self.clock.after(2, self._no_answer, worker, process, request)
            return
        # During a split some requests still reach the old leader.
        coordinator = self.leader if self.leader.is_up and self.net.random() < 0.7 else self.net.choice(up)
        self._serve(coordinator, worker, process, request)

    def _serve(self, coordinator: SimulatedCoordinator, worker: Worker, process: int, request: Request) -> None:
        if not coordinator.is_up:
            self._no_answer(worker, process, request)
            return
        if not coordinator.is_awake:
            wait_ms = coordinator.stalled_until_ms - self.now_ms + 1
            self.clock.after(wait_ms, self._serve, coordinator, worker, process, request)
            return

        def respond(status: int, body: Body | None) -> None:
            if status == 0:
                self.clock.after(2, self._no_answer, worker, process, request)
                return
            for delay_ms in self._deliveries():
                self.clock.after(delay_ms, self._answered, worker, process, request, status, body)

        item = to_input(request)
        if item is None:
            if worker.process == process and worker.is_up:
                coordinator.park(request.member_id, *to_wait(request), respond)
            return
        answer = coordinator.take(item)
        if answer is None:
            self._no_answer(worker, process, request)
        else:
            respond(*answer)

    def _answered(self, worker: Worker, process: int, request: Request, status: int, body: Body | None) -> None:
        if self._is_cut(worker, request):
            return
        if worker.runs_as(process, self._answered, worker, process, request, status, body):
            worker.feed(lambda machine: machine.on_answer(request, status, body, now_ms=worker.clock_ms))

    def _no_answer(self, worker: Worker, process: int, request: Request) -> None:
        if worker.runs_as(process, self._no_answer, worker, process, request):
            worker.feed(lambda machine: machine.on_no_answer(request, now_ms=worker.clock_ms))

    def sockets_closed(self, worker: Worker) -> None:
        """Let the coordinators see that a worker's sockets closed, unless the network keeps that from them."""
        if worker.last_id is not None and self.net.random() >= self.wire.silent_ends:
            for coordinator in self.coordinators:
                if coordinator.is_up:
                    self.clock.after(self.net.randint(*self.plan.pace.closing), coordinator.poll_broke, worker.last_id)

    # --- workers ------------------------------------------------------------------------------------------------

    def add_worker(self, plan: WorkerPlan) -> Worker:
        chance = seeded(self.plan.seed, "work", plan.name)
        worker = Worker(plan, self.shared, chance, send=self.send, gone=self.sockets_closed, note=self.noted)
        self.workers.append(worker)
        self.named[plan.name] = worker
        return worker

    def processors(self, task: Task) -> list[Worker]:
        """Return the workers that process a task at this instant."""
        return [worker for worker in self.workers if worker.processes(task)]

    # --- beginning and calm -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the coordinator, declare the group, start the workers over a few seconds."""
        self.leader.start()
        self.declare(self.topology, self.config)
        if self.plan.reads_ends:
            self._read_ends()
        for worker in self.workers:
            self.clock.after(self.chance.randint(0, 3_000), worker.boot)

    def calm(self) -> None:
        """End every fault: the wire is whole, the store is reachable, stalls end, machines come back."""
        self.noted("calm: faults stop")
        self.wire = WireFaults()
        self.store.is_out = False
        for coordinator in self.coordinators:
            coordinator.is_cut_from_store = coordinator.dies_after_append = False
            coordinator.stalled_until_ms = min(coordinator.stalled_until_ms, self.now_ms)
        for worker in self.workers:
            worker.end_faults()
            if not worker.is_up and not worker.retired:
                worker.boot()
