"""One task's callbacks, in order: what begins it, what ends it, and the report that it has stopped.

A revocation is confirmed only after `on_revoke` has returned without an error and the callback that began the task has
ended. A callback that hangs leaves it unconfirmed, is logged again and again, and holds up nothing else.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from batonpass.background import is_failure
from batonpass.worker.protocol import Offsets, Role, Stop
from batonpass.worker.protocol.types import DETAIL_CHARS_MAX, checked_offsets
from batonpass.worker.raised import words_of
from batonpass.worker.tasks import Callbacks, Driver, Revocation, Task, ends_before

log = logging.getLogger("batonpass.worker")

RETRY_REVOKE_S = 1.0
"""How long to wait before an `on_revoke` that raised is called again."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What all tasks of a member share. ``removed`` waits until no state of a task is being removed."""

    callbacks: Callbacks
    driver: Driver
    stop_deadline_s: float
    retry_failed_s: float
    removed: Callable[[str], Awaitable[None]]


def _in_their_code(error: BaseException) -> BaseException:
    """Return an error that says where it comes from without the frames of this package that lead there."""
    each: BaseException | None = error if hasattr(error, "__notes__") else None
    # `raise error from error` makes an error its own cause.
    seen = list[BaseException]()
    while each is not None and not any(each is one for one in seen):
        seen.append(each)
        frame = each.__traceback__
        while frame is not None and str(frame.tb_frame.f_globals.get("__name__")).startswith("batonpass."):
            frame = frame.tb_next
        each.with_traceback(frame)
        each = each.__cause__
    return error


class TaskRunner:
    """Runs the tasks of one id on this member, one after another."""

    def __init__(self, task_id: str, terms: Terms) -> None:
        self._id = task_id
        self._terms = terms
        self._machine = terms.driver.machine
        self._turn = terms.driver.turn
        self._orders: deque[Task | Stop] = deque()
        # The last order to stop; its commit may be withdrawn by another one while it is carried out.
        self._ending: Stop | None = None
        self._abort = asyncio.Event()
        self._busy: asyncio.Task[None] | None = None
        # The last task that began and has not ended, and the callback that began it.
        self.task: Task | None = None
        self._run: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return self.task is None and self._busy is None

    def begin(self, role: Role, fencing_token: int | None = None, restore_to: Offsets | None = None) -> None:
        """Begin the task, in place of a copy that is here; an active has a token."""
        task = self._make(role, None if self.task is None else self.task.role)
        task.fencing_token, task.restore_to = fencing_token, restore_to
        self._put(task)

    def _make(self, role: Role, was: Role | None) -> Task:
        return self._terms.callbacks.task_type(self._id, role, self._terms.driver, was=was)

    def rename(self, role: Role) -> None:
        """Let a copy go on under another role."""
        for task in (self.task, *self._orders):
            if isinstance(task, Task):
                task.role = role

    def end(self, stop: Stop) -> None:
        """Stop the task; without a commit, this also overrides a stop with a commit that is under way."""
        is_first, self._ending = self._ending is None, stop
        if is_first:
            self._put(stop)
        if not stop.commit:
            self._abort.set()
        if self.task is not None:
            self.task.ask_to_stop()

    def close(self) -> Iterable[asyncio.Task[None]]:
        """Cancel whatever is left, confirmed or not, and return it. What cannot be cancelled, as a thread, is told."""
        if self.task is not None:
            self.task.ask_to_stop()
            self.task.end()
        left = [one for one in (self._busy, self._run) if one is not None]
        for one in left:
            one.cancel()
        return left

    def _put(self, order: Task | Stop) -> None:
        self._orders.append(order)
        if self._busy is None:
            # Not by the loop's factory: one that begins tasks at once (Python 3.12) may end this one before it is kept.
            self._busy = asyncio.Task(self._carry_out(), name="batonpass work")

    async def _carry_out(self) -> None:
        try:
            while self._orders:
                order = self._orders.popleft()
                if isinstance(order, Stop):
                    await self._end(self._ending or order)
                else:
                    await self._begin(order)
        finally:
            self._busy = None

    # --- beginning --------------------------------------------------------------------------------------------------

    async def _begin(self, task: Task) -> None:
        if self.task is not None:
            self.task.ask_to_stop()
            await self._end_run("before the copy is promoted")
        await self._terms.removed(self._id)
        if self._orders and isinstance(self._orders[0], Stop):
            # The task was revoked before it began.
            return
        if self.task is not None:
            self.task.end()
        self._start(task)

    def _start(self, task: Task) -> None:
        log.info("%r begins", task)
        self.task = task
        self._run = asyncio.Task(self._call(task), name=f"batonpass run of {task.id}")
        # As a callback of the asyncio task: a coroutine that is cancelled before its first step never runs.
        self._run.add_done_callback(lambda _run: task.callback_returned())

    async def _call(self, task: Task) -> None:
        """Run the callback of the task's role, again if it raises."""
        while True:
            try:
                # In a task of its own: code that cancels the task it runs in does not end the tries. So does asyncio:
                # a `TaskGroup` whose child fails may leave its task marked as cancelled (before Python 3.13).
                await asyncio.Task(self._callback(task), name=f"batonpass {task.role} {task.id}")
            except BaseException as error:
                if not is_failure(error):
                    return
                said, where = f"{type(error).__name__}: {words_of(error)}", "; ".join(getattr(error, "__notes__", ()))
                if where:
                    # A report takes so much. The traceback has all of it.
                    said = f"{said[: max(0, DETAIL_CHARS_MAX - len(where) - 2)]}; {where}"
                log.exception("%r failed: %s", task, said, exc_info=_in_their_code(error))
                if task.stopping:
                    return
                if task.role is Role.ACTIVE:
                    task.failed(said)
            else:
                return
            if await task.stop_requested(self._terms.retry_failed_s):
                return
            log.warning("%r is tried again", task)
            if task.role is Role.ACTIVE:
                task.restoring()

    async def _callback(self, task: Task) -> None:
        match task.role:
            case Role.ACTIVE:
                await self._terms.callbacks.on_active(task)
            case Role.WARMUP:
                await self._terms.callbacks.on_warmup(task)
            case _:
                await self._terms.callbacks.on_standby(task)

    # --- ending -----------------------------------------------------------------------------------------------------

    async def _end(self, end: Stop) -> None:
        """Stop the task, and report that once nothing of it runs."""
        task, final, kept = self.task, None, False
        if task is not None:
            task.ask_to_stop()
            kept, final = await self._stop_well(task, end)
            if not kept:
                final = None
                await self._stop_at_once(task)
            task.end()
        self.task, self._run, self._ending = None, None, None
        self._abort = asyncio.Event()
        if task is not None:
            goes_on = f", and goes on as {end.becomes}" if kept and end.becomes is not None else ""
            log.info("%r has stopped%s%s", task, "" if kept else ", without a commit", goes_on)
        if kept and end.becomes is not None:
            self._start(self._make(end.becomes, Role.ACTIVE))
            self._turn(lambda now: self._machine.task_demoted(self._id, now_ms=now, final_position=final))
        else:
            self._turn(lambda now: self._machine.task_stopped(self._id, now_ms=now, final_position=final))

    async def _revoke(self, task: Task, revocation: Revocation) -> Offsets | None:
        """Call `on_revoke`, and return the final position; without a commit there is none.

        Raises:
            TypeError: when `on_revoke` returned neither an integer nor a mapping of integers.
            ValueError: when it is below 0.
            Exception: what the worker's code raised.
        """
        said: Any = self._terms.callbacks.on_revoke(task, revocation)
        final = await said if isawaitable(said) else said
        return None if final is None or not revocation.commit else checked_offsets(final)

    async def _stop_well(self, task: Task, end: Stop) -> tuple[bool, Offsets | None]:
        """Stop with a commit; return whether that succeeded, and where the changelog ends."""
        if not end.commit:
            return False, None
        call = asyncio.ensure_future(self._revoke(task, Revocation(commit=True, becomes=end.becomes)))
        try:
            is_done = await ends_before(call, self._abort, self._terms.stop_deadline_s)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if not is_done:
            if not self._abort.is_set():
                log.error(
                    "%r has not stopped within %s s; it is stopped without a commit", task, self._terms.stop_deadline_s
                )
            call.cancel()
            await self._ended(call, task, "after its commit was cancelled")
        if call.cancelled() or call.exception() is not None:
            if not call.cancelled():
                log.error("on_revoke of %r raised; it is stopped without a commit", task, exc_info=call.exception())
            return False, None
        final = call.result()
        await self._end_run("after it was revoked")
        return True, final

    async def _stop_at_once(self, task: Task) -> None:
        """Stop without a commit; return when nothing of the task runs any more, however long that takes."""
        if self._run is not None:
            self._run.cancel()
        while True:
            call = asyncio.ensure_future(self._revoke(task, Revocation(commit=False)))
            try:
                await self._ended(call, task, "without a commit")
            except asyncio.CancelledError:
                call.cancel()
                raise
            if not call.cancelled() and call.exception() is None:
                break
            log.error(
                "on_revoke of %r raised; it is called again, and the task stays unconfirmed",
                task,
                exc_info=None if call.cancelled() else call.exception(),
            )
            await asyncio.sleep(RETRY_REVOKE_S)
        await self._end_run("after it was stopped")

    async def _end_run(self, when: str) -> None:
        """Cancel the callback that began the task, and wait until it has ended."""
        if self._run is not None and self.task is not None:
            self._run.cancel()
            await self._ended(self._run, self.task, when)

    async def _ended(self, running: asyncio.Future[Any], task: Task, when: str) -> None:
        """Wait until something has ended; log an error after each further deadline that it takes."""
        waited_s = 0.0
        while True:
            await asyncio.wait((running,), timeout=self._terms.stop_deadline_s)
            if running.done():
                return
            waited_s += self._terms.stop_deadline_s
            log.error("%r still runs %s s %s; its revocation is not confirmed", task, waited_s, when)
