"""The protocol's machine on a real clock and real connections, and the tasks that it begins and ends.

Everything happens on one event loop. Requests, callbacks and timers are tasks of their own, so that none of them ever
waits for another; what they bring goes into the machine one after another, and what it says is carried out in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from batonpass.worker.disk import Disk
from batonpass.worker.protocol import (
    DemoteActive,
    Instruction,
    Joined,
    MemberProtocol,
    Offsets,
    Problem,
    ProblemSeen,
    PromoteCopy,
    Rejoining,
    Request,
    RequestKind,
    Role,
    RoleChanged,
    Send,
    StartActive,
    StartStandby,
    StartWarmup,
    StatusChanged,
    StopActive,
    StopCopy,
    StopForGood,
)
from batonpass.worker.task_runner import TaskRunner, Terms
from batonpass.worker.tasks import Callbacks, Reports, Task
from batonpass.worker.wire import Wire

if TYPE_CHECKING:
    from batonpass.worker.options import Options

log = logging.getLogger("batonpass.worker")

LONGEST_SLEEP_S = 0.5
"""The event loop's clock may stand still while the machine is suspended: so soon after that the lease is looked at."""

LEAST_SLEEP_S = 0.001
"""The clock counts whole milliseconds, and a look that comes before its own would only be followed by another."""

LATE_MS = 1_000
"""A look that comes so much later than it was due is worth a warning: heartbeats were late too."""


class Driver:
    """What makes a member go: it wakes the machine, sends what it wants sent, and begins and ends tasks."""

    def __init__(
        self, urls: Sequence[str], group: str, callbacks: Callbacks, options: Options, reports: Reports
    ) -> None:
        self.machine = MemberProtocol(
            options.settings(), options.new_member_id, on_disk=options.on_disk, replaces=options.replaces
        )
        self.works: dict[str, TaskRunner] = {}
        self.join_problem: Problem | None = None
        self.end: str | None = None
        self.is_closed = False
        self._wire = Wire(urls, group, options.wire())
        self._clock = options.clock
        self._callbacks = callbacks
        self._reports = reports
        self._terms = Terms(
            callbacks,
            stop_deadline_s=options.stop_deadline_ms / 1_000,
            retry_failed_s=options.retry_failed_ms / 1_000,
            stopped=self._stopped,
            demoted=self._demoted,
            failed=reports.failed,
            again=self._tried_again,
        )
        self._disk = Disk(
            self.machine,
            callbacks,
            delay_ms=options.state_cleanup_delay_ms,
            clock=options.clock,
            turn=self.turn,
        )
        self._keeping: asyncio.Task[None] | None = None
        self._calls: dict[asyncio.Task[None], None] = {}  # in the order of the calls
        self._timer: asyncio.TimerHandle | None = None
        self._turned = asyncio.Event()
        self._instructions: deque[Instruction] = deque()
        self._is_in_turn = False

    def now_ms(self) -> int:
        """Return the member's time."""
        return self._clock()

    # --- the machine, turn by turn ------------------------------------------------------------------------------

    def turn(self, step: Callable[[int], Iterable[Instruction]]) -> None:
        """Let the machine hear something, carry out what it says, and see to when it is to be woken."""
        if self.is_closed:
            return
        try:
            self._instructions.extend(step(self._clock()))
            if not self._is_in_turn:
                # What a callback says from within is carried out after what was said before it.
                self._is_in_turn = True
                try:
                    while self._instructions:
                        self._carry_out(self._instructions.popleft())
                finally:
                    self._is_in_turn = False
        finally:
            self.wake()
            self._set_timer()

    def start(self) -> None:
        """Join, and look after what lies on disk from now on."""
        self.turn(self.machine.start)
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._disk.keep(), name="batonpass disk")

    async def next_turn(self) -> None:
        """Wait until something has happened."""
        await self._turned.wait()

    async def close(self) -> None:
        """Cancel everything, and hear nothing any more."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        kept = [] if self._keeping is None else [self._keeping]
        left = [*kept, *self._calls, *(one for work in self.works.values() for one in work.close())]
        for one in left:
            one.cancel()
        if left:
            await asyncio.wait(left, timeout=1)
        await self._wire.close()
        self.end = self.end or "closed"
        self.wake()

    def wake(self) -> None:
        """Let whoever waits for the next turn look again."""
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at_ms = self.machine.wake_at_ms
        if wake_at_ms is not None and not self.is_closed:
            delay_s = max(LEAST_SLEEP_S, (wake_at_ms - self._clock()) / 1_000)
            self._timer = asyncio.get_running_loop().call_later(min(delay_s, LONGEST_SLEEP_S), self._tick, wake_at_ms)

    def _tick(self, due_ms: int) -> None:
        late_ms = self._clock() - due_ms
        if late_ms > LATE_MS:
            log.warning("this process stood still, or its event loop was blocked, for %s ms or more", late_ms)
        self.turn(self.machine.tick)

    # --- what it says -------------------------------------------------------------------------------------------

    def _carry_out(self, each: Instruction) -> None:
        match each:
            case Send(request):
                call = asyncio.create_task(self._send(request), name=f"batonpass {request.kind}")
                self._calls[call] = None
                call.add_done_callback(self._calls.pop)
            case StopActive(task, commit):
                self._work(task).end(commit=commit)
            case DemoteActive(task, role):
                self._work(task).end(commit=True, becomes=role)
            case StopCopy(task):
                self._work(task).end(commit=True)
            case RoleChanged(task, role):
                self._work(task).rename(role)
            case StartStandby(task):
                self._work(task).begin(Task(task, Role.STANDBY, self._reports))
            case StartWarmup(task):
                self._work(task).begin(Task(task, Role.WARMUP, self._reports))
            case StartActive(task, token, restore_to):
                self._work(task).begin(Task(task, Role.ACTIVE, self._reports).granted(token, restore_to))
            case PromoteCopy(task, token, restore_to):
                self._promote(task, token, restore_to)
            case _:
                self._hear(each)

    def _promote(self, task_id: str, token: int, restore_to: Offsets | None) -> None:
        work = self._work(task_id)
        was = work.task.role if work.task is not None else None
        work.begin(Task(task_id, Role.ACTIVE, self._reports, was=was).granted(token, restore_to))

    def _hear(self, news: Instruction) -> None:
        """Take news that asks for nothing to be done with a task."""
        match news:
            case Joined(member_id):
                self.join_problem = None
                log.info("joined as %s", member_id)
            case Rejoining(old_member_id, cause):
                log.warning("%s was refused (%s: %s); a new run joins", old_member_id, cause.type, cause.detail)
            case StopForGood(reason):
                log.info("at the end: %s", reason)
                self.end = reason
            case StatusChanged(statuses):
                log.info("status: %s", ", ".join(f"{one.code} {one.detail}".strip() for one in statuses) or "none")
                self._safely(lambda: self._callbacks.on_status(statuses))
            case ProblemSeen(kind, problem):
                if kind is RequestKind.JOIN:
                    self.join_problem = problem
                log.warning("%s refused: %s %s %s", kind, problem.status, problem.type, problem.detail)
                self._safely(lambda: self._callbacks.on_problem(kind, problem))
            case _:
                pass

    def _safely(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            log.exception("a callback raised")

    def _work(self, task_id: str) -> TaskRunner:
        self._disk.used(task_id)
        work = self.works.get(task_id)
        if work is None:
            work = TaskRunner(task_id, self._terms, lambda role, was: Task(task_id, role, self._reports, was=was))
            self.works[task_id] = work
        return work

    def _stopped(self, task: str, final: Offsets | None) -> None:
        self.turn(lambda now: self.machine.task_stopped(task, now_ms=now, final_position=final))

    def _demoted(self, task: str, final: Offsets | None) -> None:
        self.turn(lambda now: self.machine.task_demoted(task, now_ms=now, final_position=final))

    def _tried_again(self, task: str) -> None:
        self.turn(lambda now: self.machine.task_restoring(task, now_ms=now))

    async def _send(self, request: Request) -> None:
        reply = None
        try:
            reply = await self._wire.exchange(request)
        except Exception:
            log.exception("%s could not be sent", request.kind)
        if reply is None:
            self.turn(lambda now: self.machine.on_no_answer(request, now_ms=now))
        else:
            self.turn(lambda now: self.machine.on_answer(request, reply.status, reply.body, now_ms=now))
