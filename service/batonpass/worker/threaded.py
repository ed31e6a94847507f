"""The member for code that blocks: one thread for the protocol, and one for each callback that runs.

Heartbeats go on however long a callback blocks. A thread cannot be cancelled: a task counts as stopped only when the
functions that were called for it have returned. So a loop must check `task.stopping` (or wait with
`task.wait_stopping`).
"""

import asyncio
import concurrent.futures
import functools
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, ParamSpec, Self, TypeVar, Unpack, cast

from anyio.from_thread import BlockingPortal, start_blocking_portal

from batonpass.worker.forked import close_in_children
from batonpass.worker.measured_load import ThreadTime, tell_load
from batonpass.worker.member import Member
from batonpass.worker.options import Exit, MemberOptions, check_plain
from batonpass.worker.protocol import (
    Instruction,
    MemberProtocol,
    Offsets,
    Phase,
    Problem,
    Progress,
    RequestKind,
    Role,
    Status,
)
from batonpass.worker.signals import ended_by_signals, ends, handled
from batonpass.worker.tasks import Callbacks, Driver, Revocation, Task, ends_before

log = logging.getLogger("batonpass.worker")

P = ParamSpec("P")
T = TypeVar("T")


class ThreadTask(Task):
    """A `Task` for a thread. All its methods may be called from any thread."""

    def __init__(self, task_id: str, role: Role, driver: Driver, *, was: Role | None = None) -> None:
        super().__init__(task_id, role, driver, was=was)
        self._loop = asyncio.get_running_loop()
        self._told_to_stop = threading.Event()
        self._has_returned = threading.Event()

    def wait_stopping(self, timeout: float | None = None) -> bool:
        """Wait until the task is told to stop, or the time is over; return whether it was told."""
        return self._told_to_stop.wait(timeout)

    def finished(self, timeout: float | None = None) -> bool:  # type: ignore[override] # a thread waits, and awaits not
        """Wait until the function that began this task has returned; for `on_revoke`."""
        return self._has_returned.wait(timeout)

    def ask_to_stop(self) -> None:
        super().ask_to_stop()
        self._told_to_stop.set()

    def callback_returned(self) -> None:
        super().callback_returned()
        self._has_returned.set()

    def end(self) -> None:
        super().end()
        self._told_to_stop.set()

    def _say(self, report: Callable[[MemberProtocol, int], Iterable[Instruction]]) -> None:
        # A closed loop means that the member is gone.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(super()._say, report)


class ThreadCallbacks:
    """`Callbacks` as plain functions, each called in its own thread. The rules are the same."""

    def on_active(self, task: ThreadTask) -> None:
        """Restore the task (to `task.restore_to` at least), call `task.running()`, and process."""

    def on_standby(self, task: ThreadTask) -> None:
        """Restore the task's state, keep tailing its changelog, and report its progress."""

    def on_warmup(self, task: ThreadTask) -> None:
        """Do the same, to become active once caught up; a warmup is run as a standby unless this is overridden."""
        self.on_standby(task)

    def on_revoke(self, task: ThreadTask, revocation: Revocation) -> Offsets | None:
        """Stop the task as the revocation says, and return where an active's changelog ends, if that is known."""

    def disk_bytes(self) -> Mapping[str, int]:
        """Return how many bytes each task's state takes on disk here; the state of other tasks is not removed."""
        return {}

    def numbers(self) -> Mapping[str, float]:
        """Return what this member says of itself, beside its tasks, by the names that heartbeats have for it."""
        return {}

    def remove_state(self, task_id: str) -> None:
        """Remove the state of a task that moved away ``state_cleanup_delay_ms`` ago."""

    def on_status(self, statuses: Sequence[Status]) -> None:
        """Called with the member's statuses when they change. Must return at once."""

    def on_problem(self, kind: RequestKind, problem: Problem) -> None:
        """Called with a refusal that somebody may have to mend. Must return at once."""


class _InThreads(Callbacks):
    """Calls plain functions in threads; an async callback ends when its function has returned."""

    task_type = ThreadTask

    def __init__(self, callbacks: ThreadCallbacks) -> None:
        self._is_closed = asyncio.Event()
        check_plain(callbacks, *(name for name in dir(ThreadCallbacks) if not name.startswith("_")))
        self.on_status = callbacks.on_status  # type: ignore[method-assign] # both must return at once
        self.on_problem = callbacks.on_problem  # type: ignore[method-assign]
        for name in ("on_active", "on_standby", "on_warmup"):
            setattr(self, name, functools.partial(self._measured, getattr(callbacks, name)))
        for name in ("on_revoke", "disk_bytes", "numbers", "remove_state"):
            setattr(self, name, functools.partial(self._call, getattr(callbacks, name)))

    async def _measured(self, run: Callable[[ThreadTask], None], task: Task) -> None:
        used = ThreadTime()

        def work() -> None:
            used.begin()
            run(cast("ThreadTask", task))

        telling = asyncio.ensure_future(tell_load(task, used))
        try:
            await self._call(work)
        finally:
            telling.cancel()

    async def on_close(self) -> None:
        self._is_closed.set()

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a new thread, and return its result.

        When cancelled, this still waits until the function has returned, or the member is gone.
        """
        returned = asyncio.wrap_future(_in_new_thread(self, function, *args, **kwargs))
        cancelled: asyncio.CancelledError | None = None
        while not (returned.done() or self._is_closed.is_set()):
            try:
                await ends_before(returned, self._is_closed)
            except asyncio.CancelledError as error:
                cancelled = error
        if not returned.done() or cancelled is not None:
            if returned.done() and returned.exception() is not None:
                log.error("a callback raised while it was being cancelled", exc_info=returned.exception())
            raise cancelled or asyncio.CancelledError
        return returned.result()


_thread = threading.local()
"""Of which callbacks the thread's function is one (``of``)."""


def _in_new_thread(
    callbacks: _InThreads, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> concurrent.futures.Future[T]:
    """Call a function of callbacks in its own thread.

    In a pool of any size, as many blocked callbacks would hold up the next one. And a pool's threads keep the process
    from ending if one of them does not return.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    # Marked as running, so that it cannot be cancelled and can take the function's result.
    future.set_running_or_notify_cancel()

    def call() -> None:
        _thread.of = callbacks
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is awaited
            raised = error
            if not isinstance(error, Exception) or isinstance(error, StopIteration):
                # Raised there, it would end the loop of all members, or their callback without a word.
                raised = RuntimeError(f"a callback raised {error!r}")
                raised.__cause__ = error
            future.set_exception(raised)

    threading.Thread(target=call, name=f"batonpass {getattr(function, '__name__', 'call')}", daemon=True).start()
    return future


class ThreadedMember:
    """A `Member` for synchronous programs, with the same arguments; everything may be called from any thread.

    with ThreadedMember("http://coordinator:8420", "orders", Totals(), token=...) as member:
        member.wait()
    """

    def __init__(
        self,
        url: str | Sequence[str],
        group: str,
        callbacks: ThreadCallbacks | None = None,
        **options: Unpack[MemberOptions],
    ) -> None:
        """Make a member that has not joined yet.

        Raises:
            ValueError: for an invalid URL.
        """
        self._callbacks = _InThreads(callbacks or ThreadCallbacks())
        self._member = Member(url, group, self._callbacks, **options)
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_going = False
        close_in_children(self, ThreadedMember._end_in_child)

    def _end_in_child(self) -> Iterable[int]:
        # A child has no thread but the one that forked it, and would wait for the loop's for ever.
        if self._portal is not None:
            self._portal._event_loop_thread_id = None  # noqa: SLF001 - nothing public says that it is gone
            self._portal = None
        return ()

    def __enter__(self) -> Self:
        """Join, and wait until the group knows this member.

        SIGTERM and SIGINT end the wait, unless something else handles them.

        Raises:
            JoinRefused: when the coordinator refuses this member.
            SystemExit: when a signal ended the wait; the code is 128 and the signal's number.
        """
        news: queue.SimpleQueue[object] = queue.SimpleQueue()
        try:
            with ended_by_signals(lambda: news.put(None)):
                self.start()
                joined = self._started.start_task_soon(self._member.joined)
                joined.add_done_callback(news.put)
                news.get()
            joined.result()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything and leave."""
        self.exit()

    def start(self) -> None:
        """Begin to join, in the background."""
        self._portal = self._stack.enter_context(start_blocking_portal())
        self._loop = self._portal.call(asyncio.get_running_loop)
        self._portal.call(self._member.start)

    def joined(self) -> None:
        """Wait until the group knows this member.

        Raises:
            JoinRefused: when the coordinator refuses this member.
        """
        self._started.call(self._member.joined)

    def wait(self, timeout: float | None = None) -> str | None:
        """Wait until the member has ended, and return why; None if the time is over first."""
        ended = self._started.start_task_soon(self._member.ended)
        try:
            return ended.result(timeout)
        except concurrent.futures.TimeoutError:
            ended.cancel()
            return None

    def run(self, *, on_sigterm: Exit | None = None, on_sigint: Exit | None = None) -> str:
        """Work until a signal asks to exit, then exit; return why it ended. Only for the main thread (`Member.run`)."""
        asked: queue.SimpleQueue[Exit | None] = queue.SimpleQueue()
        meanings = {
            number: functools.partial(self._signalled, asked, how or self._member.options.exit)
            for number, how in ends(on_sigterm, on_sigint).items()
        }
        with handled(meanings):
            ended = self._started.start_task_soon(self._member.ended)
            ended.add_done_callback(lambda _ended: asked.put(None))
            self.exit(asked.get())
        return ended.result()

    def _signalled(self, asked: queue.SimpleQueue[Exit | None], how: Exit) -> None:
        if self._is_going:
            self._soon(self._member.hurry)
        self._is_going = True
        asked.put(how)

    def exit(self, how: Exit | None = None) -> None:
        """Stop every task in good order, tell the coordinator, and close.

        In a callback this returns at once, since it would wait for that to return.
        """
        if self._portal is None:
            return
        if getattr(_thread, "of", None) is self._callbacks:
            self._portal.start_task_soon(self._member.exit, how)
        else:
            self._portal.call(self._member.exit, how)
            self._end()

    def close(self) -> None:
        """Stop at once without telling the coordinator."""
        if self._portal is not None:
            self._portal.call(self._member.close)
            self._end()

    def _end(self) -> None:
        self._portal = None
        self._stack.close()

    def drain(self, *, deadline_ms: int | None = None) -> None:
        """Ask the coordinator to hand over every task; the status `drained` says when that is done."""
        self._soon(lambda: self._member.drain(deadline_ms=deadline_ms))

    def undrain(self) -> None:
        """Cancel a drain."""
        self._soon(self._member.undrain)

    @property
    def phase(self) -> Phase:
        """Where this process stands with its group."""
        return self._member.phase

    @property
    def member_id(self) -> str | None:
        """The id of the present run; None before the first join."""
        return self._member.member_id

    @property
    def statuses(self) -> tuple[Status, ...]:
        """The statuses that the coordinator last gave this member."""
        return self._member.statuses

    @property
    def on_disk(self) -> Mapping[str, Progress]:
        """State on disk that is not being followed, by task."""
        return dict(self._member.on_disk)

    def may_process(self, task: Task | str) -> bool:
        """Whether an active may write now: ask before every output and every commit."""
        return self._member.may_process(task)

    @property
    def _started(self) -> BlockingPortal:
        if self._portal is None:
            raise RuntimeError("this member was not started, or has gone")
        return self._portal

    def _soon(self, call: Callable[[], Any]) -> None:
        # This may be called from the member's own thread too, as from `on_status`.
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call)
