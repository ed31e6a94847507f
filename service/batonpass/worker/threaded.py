"""The member for code that blocks: a thread of its own for the protocol, and one for each callback that runs.

However long a callback blocks, heartbeats go on. A thread cannot be cancelled: a task counts as stopped only when the
functions that were called for it have returned, so a loop must look at `task.stopping` (or wait with
`task.wait_stopping`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import queue
import signal
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from batonpass.worker.member import Member
from batonpass.worker.options import Exit, MemberOptions
from batonpass.worker.protocol import Offsets, Phase, Problem, Progress, RequestKind, Role, Status
from batonpass.worker.tasks import Callbacks, Revocation, Task

log = logging.getLogger("batonpass.worker")

P = ParamSpec("P")
T = TypeVar("T")


class ThreadTask:
    """A `Task` for a thread. Everything it has may be called from any thread."""

    def __init__(self, task: Task, loop: asyncio.AbstractEventLoop) -> None:
        self._task = task
        self._loop = loop
        self._told = threading.Event()
        self._returned = threading.Event()

    def __repr__(self) -> str:
        return repr(self._task)

    @property
    def id(self) -> str:
        """The task's id, ``{subtopology}_{partition}``."""
        return self._task.id

    @property
    def subtopology(self) -> str:
        """The part of the topology that the task belongs to."""
        return self._task.subtopology

    @property
    def partition(self) -> int:
        """The partition that it processes."""
        return self._task.partition

    @property
    def role(self) -> Role:
        """What it is here."""
        return self._task.role

    @property
    def was(self) -> Role | None:
        """What it was here just before."""
        return self._task.was

    @property
    def fencing_token(self) -> int | None:
        """The token of an active, which goes with every output."""
        return self._task.fencing_token

    @property
    def restore_to(self) -> Offsets | None:
        """Where the last owner stopped, if that is known."""
        return self._task.restore_to

    @property
    def may_process(self) -> bool:
        """Whether an output or a commit is allowed now: ask before each."""
        return self._task.may_process

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._told.is_set() or self._task.stopping

    def wait_stopping(self, timeout: float | None = None) -> bool:
        """Wait until it is told to stop; say whether it was, if the time is over first."""
        return self._told.wait(timeout)

    def finished(self, timeout: float | None = None) -> bool:
        """Wait until the function that began this task has returned; for `on_revoke`."""
        return self._returned.wait(timeout)

    def report(self, position: int | None = None, end_offset: int | None = None, *, lag: int | None = None) -> None:
        """Say how far the copy has come."""
        self.progress(Progress(position=position, end_offset=end_offset, lag=lag))

    def progress(self, progress: Progress) -> None:
        """Say the same in all the ways that there are."""
        self._say(
            lambda: self._task.report(
                progress.position,
                progress.end_offset,
                lag=progress.lag,
                positions=progress.positions,
                end_offsets=progress.end_offsets,
                catchup_ms=progress.catchup_ms,
            )
        )

    def running(self) -> None:
        """Say that the active has restored and processes."""
        self._say(self._task.running)

    def failed(self, detail: str) -> None:
        """Say that the active cannot process."""
        self._say(lambda: self._task.failed(detail))

    def lost(self) -> None:
        """Say that the task's state is gone."""
        self._say(self._task.lost)

    def producer_fenced(self) -> None:
        """Say that the active's producer was fenced."""
        self._say(self._task.producer_fenced)

    def input_lag(self, lag: int) -> None:
        """Say how many input records wait."""
        self._say(lambda: self._task.input_lag(lag))

    def tell_to_stop(self) -> None:
        """Wake whoever waits to be told; for the member alone."""
        self._told.set()

    def note_returned(self) -> None:
        """Wake whoever waits for the first function to return; for the member alone."""
        self._returned.set()

    def _say(self, word: Callable[[], None]) -> None:
        # A loop that is closed belongs to a member that is gone, and nobody hears what is said to it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(word)


class ThreadCallbacks:
    """`Callbacks` as plain functions, each called in a thread of its own. The rules are the same."""

    def on_active(self, task: ThreadTask) -> None:
        """Restore the task (to `task.restore_to` at least), call `task.running()`, and process."""

    def on_standby(self, task: ThreadTask) -> None:
        """Restore the task's state, keep tailing its changelog, and report how far it has come."""

    def on_warmup(self, task: ThreadTask) -> None:
        """The same, to become active once caught up; a standby by another name unless this is overridden."""
        self.on_standby(task)

    def on_revoke(self, task: ThreadTask, revocation: Revocation) -> Offsets | None:
        """Stop the task as the revocation says, and return where an active's changelog ends, if that is known."""

    def disk_bytes(self) -> Mapping[str, int]:
        """Return what the state of each task takes on disk here, in bytes; of what is not named nothing is removed."""
        return {}

    def remove_state(self, task_id: str) -> None:
        """Remove what lies on disk of a task that moved away ``state_cleanup_delay_ms`` ago."""

    def on_status(self, statuses: Sequence[Status]) -> None:
        """Hear what the coordinator says of this member's standing. Must return at once."""

    def on_problem(self, kind: RequestKind, problem: Problem) -> None:
        """Hear of a refusal that somebody may have to mend. Must return at once."""


class _Bridge(Callbacks):
    """Calls plain functions in threads, and ends with them."""

    def __init__(self, callbacks: ThreadCallbacks) -> None:
        self._callbacks = callbacks
        self._tasks: dict[Task, ThreadTask] = {}

    async def on_active(self, task: Task) -> None:
        await self._begun(task, self._callbacks.on_active)

    async def on_standby(self, task: Task) -> None:
        await self._begun(task, self._callbacks.on_standby)

    async def on_warmup(self, task: Task) -> None:
        await self._begun(task, self._callbacks.on_warmup)

    async def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:
        threaded = self._threaded(task)
        threaded.tell_to_stop()
        return await in_thread(self._callbacks.on_revoke, threaded, revocation)

    async def disk_bytes(self) -> Mapping[str, int]:
        return await in_thread(self._callbacks.disk_bytes)

    async def remove_state(self, task_id: str) -> None:
        await in_thread(self._callbacks.remove_state, task_id)

    def on_status(self, statuses: Sequence[Status]) -> None:
        self._callbacks.on_status(statuses)

    def on_problem(self, kind: RequestKind, problem: Problem) -> None:
        self._callbacks.on_problem(kind, problem)

    async def _begun(self, task: Task, function: Callable[[ThreadTask], None]) -> None:
        threaded = self._threaded(task)
        watching = asyncio.ensure_future(self._watch(task, threaded))
        try:
            await in_thread(function, threaded)
        finally:
            watching.cancel()
            if task.stopping:
                threaded.tell_to_stop()
            threaded.note_returned()

    async def _watch(self, task: Task, threaded: ThreadTask) -> None:
        await task.stop_requested()
        threaded.tell_to_stop()

    def _threaded(self, task: Task) -> ThreadTask:
        found = self._tasks.get(task)
        if found is None:
            self._tasks = {old: one for old, one in self._tasks.items() if not old.ended}
            found = self._tasks[task] = ThreadTask(task, asyncio.get_running_loop())
        return found


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a function returns that runs in a new thread; to cancel this waits until the function has returned.

    A pool would have a size, and whatever that is, so many callbacks that block would hold up the next.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def call() -> None:
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is awaited
            future.set_exception(error)

    threading.Thread(target=call, name=f"batonpass {getattr(function, '__name__', 'call')}", daemon=True).start()
    waiting = asyncio.wrap_future(future)
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:  # noqa: BLE001 - it is raised below, by the result
            break
    if cancelled is not None:
        if waiting.exception() is not None:
            log.error("a callback raised while it was being cancelled", exc_info=waiting.exception())
        raise cancelled
    return waiting.result()


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
            ValueError: for a URL that is not one.
        """
        self._member = Member(url, group, _Bridge(callbacks or ThreadCallbacks()), **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="batonpass member", daemon=True)
        self._is_gone = threading.Event()
        self._is_going = False

    def __enter__(self) -> Self:
        """Join, and wait until that is done.

        Raises:
            JoinRefused: when the coordinator will not have it.
        """
        self.start()
        try:
            self.joined()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything and leave."""
        self.exit()

    def start(self) -> None:
        """Begin to join, in the background."""
        self._thread.start()
        self._loop.call_soon_threadsafe(self._member.start)

    def joined(self) -> None:
        """Wait until the group knows this member.

        Raises:
            JoinRefused: when the coordinator will not have it.
        """
        self._ask(self._member.joined())

    def wait(self, timeout: float | None = None) -> str | None:
        """Wait until nothing more is to come, and return why; None if the time is over first."""
        with contextlib.suppress(TimeoutError):
            return self._ask(self._member.ended(), timeout)
        return None

    def run(self, *, on_sigterm: Exit | None = None, on_sigint: Exit | None = None) -> str:
        """Work until a signal asks to go, then go; return why it ended. For the main thread alone (`Member.run`)."""
        asked: queue.SimpleQueue[Exit | None] = queue.SimpleQueue()
        meanings = {signal.SIGTERM: on_sigterm, signal.SIGINT: on_sigint}
        ended = asyncio.run_coroutine_threadsafe(self._member.ended(), self._loop)
        ended.add_done_callback(lambda _ended: asked.put(None))
        before = {number: signal.getsignal(number) for number in meanings}
        try:
            for number, how in meanings.items():
                signal.signal(number, functools.partial(self._signalled, asked, how or self._member.options.exit))
            self.exit(asked.get())
        finally:
            for number, former in before.items():
                signal.signal(number, former)
        return ended.result(0) if ended.done() and not ended.cancelled() else "stopped"

    def _signalled(self, asked: queue.SimpleQueue[Exit | None], how: Exit, *_signal: object) -> None:
        if self._is_going:
            self._loop.call_soon_threadsafe(self._member.hurry)
        self._is_going = True
        asked.put(how)

    def exit(self, how: Exit | None = None) -> None:
        """Go: stop every task in good order, tell the coordinator, and close."""
        if not self._is_gone.is_set():
            self._ask(self._member.exit(how))
            self._end()

    def close(self) -> None:
        """Stop at once without a word to the coordinator."""
        if not self._is_gone.is_set():
            self._ask(self._member.close())
            self._end()

    def drain(self, *, deadline_ms: int | None = None) -> None:
        """Ask to have every task handed over; the status `drained` says when that is done."""
        self._loop.call_soon_threadsafe(lambda: self._member.drain(deadline_ms=deadline_ms))

    def undrain(self) -> None:
        """Call a drain off."""
        self._loop.call_soon_threadsafe(self._member.undrain)

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
        """What the coordinator said last of this member's standing."""
        return self._member.statuses

    @property
    def on_disk(self) -> Mapping[str, Progress]:
        """State that nobody tails, by task."""
        return dict(self._member.on_disk)

    def may_process(self, task_id: str) -> bool:
        """Whether an active may write now: ask before every output and every commit."""
        return self._member.may_process(task_id)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _ask(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise

    def _end(self) -> None:
        self._is_gone.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
