"""Worker processes of a world without faults: the real member's machine, and hands that do what it says.

The machine (`batonpass.worker.protocol`) decides what is sent when and what stops before what starts. What is ideal is
the rest: a process does at once what it is told, a stop with its last commit takes `stop_ms`, a message `wire_ms`, and
restoring takes as long as the world says (`kafka_copies`, the same for all arms of a comparison).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from batonpass.simulate.ideal_coordinator import IdealCoordinator
from batonpass.simulate.kafka_copies import Copies, Role
from batonpass.simulate.kafka_ledger import Ledger
from batonpass.simulate.kip441 import Task
from batonpass.simulate.timeline import Timeline
from batonpass.simulate.wire import Body
from batonpass.worker.protocol import (
    DemoteActive,
    Instruction,
    LeaveMode,
    MemberProtocol,
    Phase,
    Progress,
    PromoteCopy,
    Request,
    Send,
    StartActive,
    StartStandby,
    StartWarmup,
    StatusChanged,
    StopActive,
    StopCopy,
    StopForGood,
)


def name_of(task: Task) -> str:
    """Return the id that the protocol has for a task."""
    return f"{task[0]}_{task[1]}"


def task_of(name: str) -> Task:
    """Return the task that an id of the protocol names."""
    subtopology, _, partition = name.rpartition("_")
    return int(subtopology), int(partition)


class Stint(NamedTuple):
    """A stretch in which a process had a task as its active, restoring or running it; ``to_ms`` None: it goes on."""

    task: Task
    client: str
    is_running: bool
    from_ms: int
    to_ms: int | None = None


@dataclass(slots=True)
class Ground:
    """What the processes of a group stand on: time, their copies, who truly runs what, and the account of it.

    While `is_instant` nothing takes time to restore, which is how a group gets to its first rest.
    """

    timeline: Timeline
    copies: Copies
    ledger: Ledger
    stop_ms: int
    wire_ms: int
    look_ms: int
    is_instant: bool = True
    # For how long altogether nothing happened, and workers' clocks were not let run.
    skipped_ms: int = 0
    running: dict[Task, str] = field(default_factory=dict)
    # Who began to run what on its way to the end, until its process has been told.
    arrived: list[Task] = field(default_factory=list)
    # Who had what as its active when: what is over, and what goes on.
    stints: list[Stint] = field(default_factory=list)
    open_stints: dict[Task, Stint] = field(default_factory=dict)
    _arrival_ms: int | None = None
    _is_arrival_known: bool = False

    @property
    def now_ms(self) -> int:
        """The present instant."""
        return self.timeline.now_ms

    @property
    def clock_ms(self) -> int:
        """What the clocks of all workers show, which run as time does but for what was skipped."""
        return self.timeline.now_ms - self.skipped_ms

    def next_arrival_ms(self) -> int | None:
        """When the next copy that restores may be at the end."""
        if not self._is_arrival_known:
            self.catch_up()
            self._arrival_ms, self._is_arrival_known = self.copies.next_arrival_ms(), True
        return self._arrival_ms

    def catch_up(self) -> None:
        """Let the copies restore until now."""
        if self.copies.now_ms == self.now_ms:
            return
        for task, at_ms in self.copies.advance(self.now_ms):
            self.ledger.started(task, at_ms)
            self.arrived.append(task)
            self._note(task, Stint(task, self.running[task], is_running=True, from_ms=at_ms))
        self._is_arrival_known = False

    def hold(self, client: str, task: Task, role: Role) -> bool:
        """Give a process a copy in this role; True if that is an active that runs at once."""
        self.catch_up()
        self._is_arrival_known = False
        if self.is_instant and self.copies.role(client, task) in (None, Role.DISK):
            self.copies.hold_ready(client, task, role)
        else:
            self.copies.hold(client, task, role)
        if role != Role.ACTIVE:
            return False
        self.running[task] = client
        is_running = self.copies.is_current(client, task)
        self._note(task, Stint(task, client, is_running, from_ms=self.now_ms))
        if is_running:
            self.ledger.started(task, self.now_ms)
        return is_running

    def halt(self, client: str, task: Task) -> int | None:
        """Note that a process ceases to run a task; return where its changelog ends if it ran to the end of it."""
        self.catch_up()
        ran = self.copies.is_current(client, task)
        self.running.pop(task, None)
        self._note(task, None)
        self.ledger.stopped(task, self.now_ms)
        return self.copies.end_offset(task) if ran else None

    def _note(self, task: Task, stint: Stint | None) -> None:
        """Note that a task's last stint is over, and which one begins."""
        last = self.open_stints.pop(task, None)
        now_ms = self.now_ms if stint is None else stint.from_ms
        if last is not None and last.from_ms < now_ms:
            self.stints.append(last._replace(to_ms=now_ms))
        if stint is not None:
            self.open_stints[task] = stint

    def drop(self, client: str, task: Task) -> None:
        """Take a copy from a process; its state stays on disk."""
        self.catch_up()
        self._is_arrival_known = False
        self.copies.drop(client, task)

    def start_process(self, client: str, disk: Mapping[Task, int]) -> None:
        """Put up a machine with what is on its disk."""
        self.catch_up()
        self.copies.add_process(client, disk)

    def end_process(self, client: str, *, unflushed_records: int = 0) -> dict[Task, int]:
        """Take a machine down: what it ran stops; return what is on its disk."""
        self.catch_up()
        self._is_arrival_known = False
        for task in sorted(task for task, runner in self.running.items() if runner == client):
            self.halt(client, task)
        return self.copies.stop_process(client, unflushed_records=unflushed_records)


class IdealWorker:
    """One process from its start to its end. `ended` is called when it is over in good order."""

    def __init__(
        self,
        client: str,
        ground: Ground,
        coordinator: IdealCoordinator,
        machine: MemberProtocol,
        ended: Callable[[IdealWorker], None],
    ) -> None:
        self.client = client
        self.machine = machine
        self.is_up = True
        self.leaves_when_drained = False
        # What has not reached the end, or has and was not said to have.
        self.behind: set[Task] = set()
        self._ground = ground
        self._coordinator = coordinator
        self._ended = ended
        self._turns: dict[Task, int] = {}
        self._is_looking = False
        self._tick_at_ms: int | None = None

    @property
    def is_joined(self) -> bool:
        """Whether the process takes part in the group, as far as it knows."""
        return self.is_up and self.machine.phase is Phase.JOINED

    def start(self) -> None:
        """Join the group."""
        self._feed(self.machine.start(self._ground.clock_ms))

    def drain(self, *, deadline_ms: int | None = None) -> None:
        """Ask to be drained, within so much time where there is a limit, and leave when that is done."""
        self.leaves_when_drained = True
        self._feed(self.machine.drain(now_ms=self._ground.clock_ms, deadline_ms=deadline_ms))

    def leave(self, mode: LeaveMode) -> None:
        """Stop everything, say so, and end."""
        self._feed(self.machine.leave(now_ms=self._ground.clock_ms, mode=mode))

    def runs(self, task: Task) -> None:
        """Tell the machine that a task has come to run, unless it has been stopped since."""
        if self.is_up and self._ground.running.get(task) == self.client:
            self.behind.discard(task)
            self._feed(self.machine.task_running(name_of(task), now_ms=self._ground.clock_ms))

    def look_for_arrivals(self) -> None:
        """Look at the copies now if one of them has reached the end."""
        copies = self._ground.copies
        if any(copies.is_current(self.client, task) for task in self.behind):
            self._look()

    # What the machine says.

    def _feed(self, instructions: Iterable[Instruction]) -> None:
        self._carry_out(instructions)
        wake_ms = self.machine.wake_at_ms
        if self.is_up and wake_ms is not None and (self._tick_at_ms is None or wake_ms < self._tick_at_ms):
            self._tick_at_ms = wake_ms
            self._ground.timeline.after(wake_ms - self._ground.clock_ms, self._tick, wake_ms)

    def _tick(self, due_ms: int) -> None:
        if self.is_up and self._tick_at_ms == due_ms:
            self._tick_at_ms = None
            self._feed(self.machine.tick(self._ground.clock_ms))

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        ground = self._ground
        for instruction in instructions:
            match instruction:
                case Send(request):
                    ground.timeline.after(ground.wire_ms, self._coordinator.serve, request, self._answer_to(request))
                case StopActive(task, commit):
                    self._stop_active(task_of(task), commit=commit)
                case DemoteActive(task):
                    self._demote(task_of(task))
                case StopCopy(task):
                    self._stop_copy(task_of(task))
                case StartStandby(task) | StartWarmup(task):
                    self._hold(task_of(task), Role.STANDBY)
                case StartActive(task) | PromoteCopy(task):
                    self._hold(task_of(task), Role.ACTIVE)
                case StatusChanged(statuses):
                    if self.leaves_when_drained and any(status.code == "drained" for status in statuses):
                        ground.timeline.after(0, self._leave_drained)
                case StopForGood():
                    ground.timeline.after(0, self._end)
                case _:
                    pass

    def _leave_drained(self) -> None:
        if self.is_joined:
            self.leave(LeaveMode.LEAVE)

    def _end(self) -> None:
        if self.is_up:
            self._ended(self)

    def _answer_to(self, request: Request) -> Callable[[int, Body | None], None]:
        def respond(status: int, body: Body | None) -> None:
            self._ground.timeline.after(self._ground.wire_ms, self._answered, request, status, body)

        return respond

    def _answered(self, request: Request, status: int, body: Body | None) -> None:
        if self.is_up:
            self._feed(self.machine.on_answer(request, status, body, now_ms=self._ground.clock_ms))

    # What is done with a task. A turn tells what is still due of it from what was overtaken.

    def _hold(self, task: Task, role: Role) -> None:
        self._turn(task)
        if self._ground.hold(self.client, task, role):
            self._ground.timeline.after(0, self.runs, task)
            return
        self.behind.add(task)
        self._look_soon(0)

    def _stop_active(self, task: Task, *, commit: bool) -> None:
        turn = self._turn(task)
        final = None
        if self._ground.running.get(task) == self.client:
            final = self._ground.halt(self.client, task)
        self._ground.drop(self.client, task)
        self.behind.discard(task)
        took_ms = self._ground.stop_ms if commit and final is not None else 0
        self._ground.timeline.after(took_ms, self._stopped, task, turn, final)

    def _demote(self, task: Task) -> None:
        turn = self._turn(task)
        final = self._ground.halt(self.client, task)
        self._ground.hold(self.client, task, Role.STANDBY)
        self.behind.discard(task)
        self._ground.timeline.after(self._ground.stop_ms, self._demoted, task, turn, final)

    def _stop_copy(self, task: Task) -> None:
        turn = self._turn(task)
        self._ground.drop(self.client, task)
        self.behind.discard(task)
        self._ground.timeline.after(0, self._stopped, task, turn, None)

    def _turn(self, task: Task) -> int:
        self._turns[task] = turn = self._turns.get(task, 0) + 1
        return turn

    def _stopped(self, task: Task, turn: int, final: int | None) -> None:
        if self.is_up and self._turns[task] == turn:
            now_ms = self._ground.clock_ms
            self._feed(self.machine.task_stopped(name_of(task), now_ms=now_ms, final_position=final))

    def _demoted(self, task: Task, turn: int, final: int | None) -> None:
        if self.is_up and self._turns[task] == turn:
            now_ms = self._ground.clock_ms
            self._feed(self.machine.task_demoted(name_of(task), now_ms=now_ms, final_position=final))
            self.behind.add(task)
            self._look()

    # How far the copies are.

    def _look_soon(self, in_ms: int) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._ground.timeline.after(in_ms, self._look_again)

    def _look_again(self) -> None:
        self._is_looking = False
        if self.is_up and self.behind:
            self._look()
            self._look_soon(self._ground.look_ms)

    def _look(self) -> None:
        """Tell the machine how far every copy is that has not been said to be at the end."""
        ground = self._ground
        ground.catch_up()
        positions = ground.copies.offset_sums(self.client)
        for task in sorted(self.behind):
            if ground.copies.is_current(self.client, task):
                self.behind.discard(task)
            if ground.running.get(task) == self.client and task not in self.behind:
                # It has come to run; that is said by `runs`.
                continue
            progress = Progress(position=positions[task], end_offset=ground.copies.end_offset(task))
            self._feed(self.machine.copy_progress(name_of(task), progress, now_ms=ground.clock_ms))
