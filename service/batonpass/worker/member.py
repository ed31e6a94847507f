"""The asyncio member: joins a group, calls the worker's callbacks, and leaves in good order.

Everything happens on one event loop. Requests, callbacks and timers are separate asyncio tasks, so that none of them
waits for another. What they report goes into the protocol's machine one after another, and the machine's instructions
are carried out in order.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Self, TypeVar, Unpack

from batonpass.background import is_failure
from batonpass.worker.disk import Disk
from batonpass.worker.forked import close_in_children
from batonpass.worker.http_calls import HttpCalls
from batonpass.worker.options import Exit, MemberOptions, Options, check_plain
from batonpass.worker.protocol import (
    Holding,
    Instruction,
    Joined,
    LeaveMode,
    MemberProtocol,
    Phase,
    Problem,
    ProblemSeen,
    Progress,
    Rejoining,
    Request,
    RequestKind,
    RoleChanged,
    Send,
    Start,
    Status,
    StatusChanged,
    Stop,
    StopForGood,
)
from batonpass.worker.signals import ended_by_signals, ends, handled
from batonpass.worker.task_runner import TaskRunner, Terms
from batonpass.worker.tasks import Callbacks, Driver, Task

log = logging.getLogger("batonpass.worker")

App = TypeVar("App")

LONGEST_SLEEP_S = 0.5
"""The lease is checked at least this often: the loop's clock may stand still while the machine is suspended."""

LEAST_SLEEP_S = 0.001
"""The shortest sleep: the clock counts whole milliseconds, and a timer that fires early would only be set again."""

LATE_MS = 1_000
"""A timer that fires this much too late is worth a warning: heartbeats were late too."""

SILENCE_MS = 5_000
"""How long no coordinator may answer before that is a warning."""

SAY_SILENCE_AGAIN_MS = 30_000

_FINAL_STATUSES = frozenset({401, 403, 413, 422})


class JoinRefused(Exception):
    """The coordinator refuses this member, and waiting does not help."""

    def __init__(self, problem: Problem) -> None:
        faults = "".join(f"; {path}: {reason}" for path, reason in problem.errors if reason not in problem.detail)
        super().__init__(f"{problem.type or problem.status}: {_words(problem) or problem.title}{faults}")
        self.problem = problem


class Member:
    """One worker process in one group.

        async with Member("http://coordinator:8420", "orders", Totals(), token=...) as member:
            await member.run()

    The member has joined when the block begins, and leaves when it ends (see ``on_exit`` of `Options`). Several URLs,
    in a list or with commas between them (as in a setting), name several coordinators: when one cannot be reached or
    answers 503, the next one is asked. Events are logged under `batonpass.worker`.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        group: str,
        callbacks: Callbacks | None = None,
        **options: Unpack[MemberOptions],
    ) -> None:
        """Make a member that has not joined yet.

        Raises:
            ValueError: for an invalid URL.
        """
        self.options = given = Options(**options)
        self.group = group
        self._callbacks = callbacks or Callbacks()
        check_plain(self._callbacks, "on_status", "on_problem")
        self._clock = given.clock
        self._machine = MemberProtocol(given, given.new_member_id, on_disk=given.on_disk, replaces=given.replaces)
        self._http = HttpCalls([url] if isinstance(url, str) else url, group, given)
        self._runners: dict[str, TaskRunner] = {}
        driver = Driver(self._machine, self._clock, self._turn)
        self._disk = Disk(driver, self._callbacks, delay_ms=given.state_cleanup_delay_ms)
        self._terms = Terms(
            self._callbacks,
            driver,
            stop_deadline_s=given.stop_deadline_ms / 1_000,
            retry_failed_s=given.retry_failed_ms / 1_000,
            removed=self._disk.removed,
        )
        self._join_problem: Problem | None = None
        # Why the member has ended; None before that.
        self._end: str | None = None
        self._is_closed = False
        self._exiting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._hurried = asyncio.Event()
        self._disk_keeping: asyncio.Task[None] | None = None
        self._silent_since_ms: int | None = None
        self._said_silence_ms = -SAY_SILENCE_AGAIN_MS
        self._calls: dict[asyncio.Task[None], None] = {}  # in the order of the calls
        self._timer: asyncio.TimerHandle | None = None
        self._turned = asyncio.Event()
        self._instructions: deque[Instruction] = deque()
        self._is_in_turn = False
        close_in_children(self, Member._end_in_child)

    # --- life -------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Join, and wait until the group knows this member.

        SIGTERM and SIGINT end the wait, unless something else handles them.

        Raises:
            JoinRefused: when the coordinator refuses this member.
            SystemExit: when a signal ended the wait; the code is 128 and the signal's number.
        """
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, self._wake)
        try:
            with ended_by_signals(wake) as signals:
                self.start()
                while not (signals or self._is_known()):
                    await self._next_turn()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop everything and leave."""
        await self.exit()

    def start(self) -> None:
        """Begin to join, and do everything else once joined."""
        self._turn(self._machine.start)
        if self._disk_keeping is None:
            self._disk_keeping = asyncio.create_task(self._disk.keep(), name="batonpass disk")

    async def joined(self) -> None:
        """Wait until the group knows this member, however long the coordinator is away or asks to wait.

        Raises:
            JoinRefused: when the coordinator refuses this member.
        """
        while not self._is_known():
            await self._next_turn()

    def _is_known(self) -> bool:
        """Whether there is nothing to wait for any more, because the group knows this member, or it has ended.

        Raises:
            JoinRefused: when the coordinator refuses this member.
        """
        problem = self._join_problem
        if self.phase in (Phase.NEW, Phase.JOINING) and self._end is None:
            if problem is not None and problem.status in _FINAL_STATUSES:
                raise JoinRefused(problem)
            return False
        if self.phase is Phase.STOPPED:
            raise JoinRefused(problem or Problem(type=self._end or "", status=409))
        return True

    async def run(self, *, on_sigterm: Exit | None = None, on_sigint: Exit | None = None) -> str:
        """Start, unless it was started, and work until a signal asks to exit; then exit, and return why it ended.

        A signal that is not given a meaning here means the same as the end of the ``async with`` block. A second signal
        cuts a drain short. Without a signal, the work ends when the coordinator tells this process to stop for good.
        At the end the former handlers of the signals are there again.

        Raises:
            ValueError: outside the main thread.
        """
        if self.phase is Phase.NEW:
            self.start()
        asked: list[Exit] = []
        loop = asyncio.get_running_loop()
        meanings = {
            number: partial(loop.call_soon_threadsafe, self._signalled, asked, how or self.options.exit)
            for number, how in ends(on_sigterm, on_sigint).items()
        }
        with handled(meanings):
            while not asked and self._end is None:
                await self._next_turn()
            await self.exit(asked[0] if asked else None)
        return self._end or "stopped"

    def _signalled(self, asked: list[Exit], how: Exit) -> None:
        log.info("a signal asks this member to %s", how)
        if asked:
            self._hurried.set()
        asked.append(how)
        self._wake()

    def hurry(self) -> None:
        """Cut short the drain that an exit waits for."""
        self._hurried.set()
        self._wake()

    async def ended(self) -> str:
        """Wait until the member has ended, for whatever reason; return the reason."""
        while self._end is None:
            await self._next_turn()
        return self._end

    async def exit(self, how: Exit | None = None) -> None:
        """Stop every task in good order, tell the coordinator, and close. Only the first call does anything.

        This goes on when nobody waits for it any more. So a callback may call it, and be cancelled as the task is that
        it works on.
        """
        if self._is_closed:
            await self.close()
            return
        if self._exiting is None:
            self._exiting = asyncio.Task(self._exit(how or self.options.exit), name="batonpass exit")
        await asyncio.shield(self._exiting)

    async def _exit(self, how: Exit) -> None:
        try:
            if how is Exit.DRAIN and self.phase is Phase.JOINED:
                await self._drained()
            if self._end is None:
                mode = LeaveMode.LEAVE if self.options.instance_id is None else how.mode
                self._turn(lambda now: self._machine.leave(now_ms=now, mode=mode))
            async with asyncio.timeout(self.options.exit_timeout_ms / 1_000):
                await self.ended()
                while self.unfinished:
                    await self._next_turn()
        except TimeoutError:
            log.exception("gone without an answer, or with tasks that did not stop: %s", sorted(self.unfinished))
        finally:
            await self.close()

    async def _drained(self) -> None:
        """Ask to be drained, and wait until that is done, its deadline is over, or `hurry` is called."""
        deadline_ms = self.options.drain_deadline_ms
        self.drain(deadline_ms=deadline_ms)
        try:
            async with asyncio.timeout(deadline_ms / 1_000):
                while not (any(one.code == "drained" for one in self.statuses) or self._hurried.is_set() or self._end):
                    await self._next_turn()
        except TimeoutError:
            log.warning("the drain is not over after %s ms; leaving with %s", deadline_ms, sorted(self.tasks))

    async def close(self) -> None:
        """Stop at once without telling the coordinator: the lease runs out by itself. `exit` is the orderly way."""
        self._is_closed = True
        if self._closing is None:
            self._closing = asyncio.Task(self._close(), name="batonpass close")
        if asyncio.current_task() is not self._closing:
            limit_ms = self.options.exit_timeout_ms
            _, late = await asyncio.wait([self._closing], timeout=limit_ms / 1_000)
            if late:
                log.error("closed, but for on_close, which has not returned after %s ms: it is left behind", limit_ms)

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        keeping = [] if self._disk_keeping is None else [self._disk_keeping]
        left = [*keeping, *self._calls, *(one for runner in self._runners.values() for one in runner.close())]
        for one in left:
            one.cancel()
        if left:
            await asyncio.wait(left, timeout=1)
        await self._http.close()
        self._end = self._end or "closed"
        self._wake()
        try:
            await self._callbacks.on_close()
        except (Exception, asyncio.CancelledError):
            log.exception("on_close raised")

    def _end_in_child(self) -> Iterable[int]:
        # A child may pass through the end of this member's block. The tasks are its parent's, which runs them.
        self._is_closed, self._end, self._callbacks = True, "forked", Callbacks()
        return ()

    # --- what the worker says ----------------------------------------------------------------------------------------

    def lost(self, task: Task | str) -> None:
        """Report that a task's state is gone, of any role or on disk; an active must have stopped processing."""
        self._turn(lambda now: self._machine.state_lost(_id(task), now_ms=now))

    def drain(self, *, deadline_ms: int | None = None) -> None:
        """Ask the coordinator to hand over every task; the status `drained` says when that is done."""
        self._turn(lambda now: self._machine.drain(now_ms=now, deadline_ms=deadline_ms))

    def undrain(self) -> None:
        """Cancel a drain."""
        self._turn(lambda now: self._machine.undrain(now_ms=now))

    # --- looks ------------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """Where this process stands with its group."""
        return self._machine.phase

    @property
    def member_id(self) -> str | None:
        """The id of the present run; None before the first join."""
        return self._machine.member_id

    @property
    def statuses(self) -> tuple[Status, ...]:
        """The statuses that the coordinator last gave this member."""
        return self._machine.statuses

    @property
    def holdings(self) -> Mapping[str, Holding]:
        """What this member has, as it reports it."""
        return self._machine.holdings

    @property
    def on_disk(self) -> Mapping[str, Progress]:
        """State on disk that is not being followed, by task."""
        return self._machine.on_disk

    @property
    def tasks(self) -> dict[str, Task]:
        """The tasks that were begun and have not stopped."""
        return {task_id: runner.task for task_id, runner in self._runners.items() if runner.task is not None}

    @property
    def unfinished(self) -> list[str]:
        """The tasks that are stopping, or of which something still runs though the member has ended."""
        return [task_id for task_id, runner in self._runners.items() if not runner.is_idle]

    def may_process(self, task: Task | str) -> bool:
        """Whether an active may write now: ask before every output and every commit."""
        return self._machine.may_process(_id(task), self._clock())

    # --- the machine, turn by turn ----------------------------------------------------------------------------------

    def _turn(self, step: Callable[[int], Iterable[Instruction]]) -> None:
        """Give the machine an input, carry out its instructions, and set the timer for its next wake-up."""
        if self._is_closed:
            return
        try:
            self._instructions.extend(step(self._clock()))
            if not self._is_in_turn:
                # What a callback reports meanwhile is carried out after the instructions before it.
                self._is_in_turn = True
                try:
                    while self._instructions:
                        self._carry_out(self._instructions.popleft())
                finally:
                    self._is_in_turn = False
        finally:
            self._wake()
            self._set_timer()

    async def _next_turn(self) -> None:
        """Wait until something has happened."""
        await self._turned.wait()

    def _wake(self) -> None:
        """Let everything that waits for the next turn look again."""
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at_ms = self._machine.wake_at_ms
        if wake_at_ms is not None and not self._is_closed:
            delay_s = max(LEAST_SLEEP_S, (wake_at_ms - self._clock()) / 1_000)
            self._timer = asyncio.get_running_loop().call_later(min(delay_s, LONGEST_SLEEP_S), self._tick, wake_at_ms)

    def _tick(self, due_ms: int) -> None:
        late_ms = self._clock() - due_ms
        if late_ms > LATE_MS:
            log.warning("this process stood still, or its event loop was blocked, for %s ms or more", late_ms)
        self._turn(self._machine.tick)

    async def _send(self, request: Request) -> None:
        reply = None
        try:
            reply = await self._http.exchange(request)
        except BaseException as error:
            if not is_failure(error):
                raise
            log.exception("%s could not be sent", request.kind)
        if reply is not None and reply.is_of_a_coordinator and reply.status < 300:
            self._silent_since_ms = None
        elif reply is None or request.kind is not RequestKind.POLL:
            self._say_silence("" if reply is None else f", but for refusals (the last one is {reply.status})")
        if reply is None:
            self._turn(lambda now: self._machine.on_no_answer(request, now_ms=now))
        else:
            self._turn(lambda now: self._machine.on_answer(request, reply.status, reply.body, now_ms=now))

    def _say_silence(self, but: str) -> None:
        """Log, now and then, that no coordinator has answered anything for a while, ``but`` for what it is that came.

        A proxy before coordinators that are away answers too, and whoever is refused for long is as good as alone.
        """
        now_ms = self._clock()
        self._silent_since_ms = self._silent_since_ms or now_ms
        if now_ms - self._silent_since_ms >= SILENCE_MS and now_ms - self._said_silence_ms >= SAY_SILENCE_AGAIN_MS:
            self._said_silence_ms = now_ms
            silent_s = (now_ms - self._silent_since_ms) // 1_000
            log.warning("no coordinator has answered for %s s%s; %s is asked next", silent_s, but, self._http.url)

    # --- what the machine says --------------------------------------------------------------------------------------

    def _carry_out(self, each: Instruction) -> None:
        match each:
            case Send(request):
                call = asyncio.Task(self._send(request), name=f"batonpass {request.kind}")
                self._calls[call] = None
                call.add_done_callback(self._calls.pop)
            case Stop(task):
                self._runner(task).end(each)
            case RoleChanged(task, role):
                self._runner(task).rename(role)
            case Start(task, role, token, restore_to):
                self._runner(task).begin(role, token, restore_to)
            case Joined(member_id):
                self._join_problem = None
                log.info("joined as %s", member_id)
            case Rejoining(old_member_id, cause):
                log.warning("%s was refused (%s: %s); a new run joins", old_member_id, cause.type, cause.detail)
            case StopForGood(reason):
                log.info("at the end: %s", reason)
                self._end = reason
            case StatusChanged(statuses):
                log.info("status: %s", ", ".join(f"{one.code} {one.detail}".strip() for one in statuses) or "none")
                self._safely(lambda: self._callbacks.on_status(statuses))
            case ProblemSeen(kind, problem):
                if kind is RequestKind.JOIN:
                    self._join_problem = problem
                log.warning("%s refused: %s %s %s", kind, problem.status, problem.type, _words(problem))
                self._safely(lambda: self._callbacks.on_problem(kind, problem))

    def _safely(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            log.exception("a callback raised")

    def _runner(self, task_id: str) -> TaskRunner:
        self._disk.used(task_id)
        if task_id not in self._runners:
            self._runners[task_id] = TaskRunner(task_id, self._terms)
        return self._runners[task_id]


def member_lifespan(
    make: Callable[[App], Member], *, wait_for_join: bool = False
) -> Callable[[App], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan for Starlette, FastAPI, Litestar and their like: `app = FastAPI(lifespan=...)`.

    ``make`` gets the application and makes its member. The application starts without waiting for the coordinator,
    unless ``wait_for_join``; requests find the member as `request.state.member`. When the application shuts down, on
    SIGTERM for instance, the member exits by its ``on_exit`` before the server closes.

    Raises (when the application starts, if it waits):
        JoinRefused: when the coordinator refuses the member.
    """

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[dict[str, Any]]:
        member = make(app)
        member.start()
        try:
            if wait_for_join:
                await member.joined()
            yield {"member": member}
        finally:
            await member.exit()

    return lifespan


def _words(problem: Problem) -> str:
    return problem.detail if problem.type else "that was no coordinator: a proxy, or another server at this address"


def _id(task: Task | str) -> str:
    return task if isinstance(task, str) else task.id
