"""What a worker's own code uses: a task in a role, the callbacks for it, and the revocation that stops it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from batonpass.core.state.ids import split_task_id
from batonpass.worker.clock import Clock
from batonpass.worker.protocol import (
    Instruction,
    MemberProtocol,
    Offsets,
    Problem,
    Progress,
    RequestKind,
    Role,
    Status,
)
from batonpass.worker.protocol.types import checked_load


@dataclass(frozen=True, slots=True)
class Driver:
    """A member's machine and its clock; ``turn`` gives the machine an input, and carries out its instructions."""

    machine: MemberProtocol
    clock: Clock
    turn: Callable[[Callable[[int], Iterable[Instruction]]], None]


@dataclass(frozen=True, slots=True)
class Revocation:
    """How a task is to stop.

    With ``commit``, finish the work in hand, commit and flush. Without it, drop that work and write nothing more: the
    lease is over, or another member has the task. ``becomes`` is the role in which an active goes on in place, so that
    its state is kept open; None when it ends here.
    """

    commit: bool
    becomes: Role | None = None


async def happens(event: asyncio.Event, within_s: float | None) -> bool:
    """Wait until an event is set, or the time is over; return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
    return event.is_set()


async def ends_before(call: asyncio.Future[Any], event: asyncio.Event, within_s: float | None = None) -> bool:
    """Wait for a call, an event, or the end of the time, and return whether the call is done; else it goes on."""
    happening = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((call, happening), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        happening.cancel()
    return call.done()


class Task:
    """One task in one role, from the callback that begins it to the one that ends it.

    ``was`` is the role that it had here just before, as a copy that was promoted, or an active that goes on as a copy;
    its state is then in place. ``restore_to`` is where the last owner stopped: an active must restore at least so
    far before it processes; None if that is not known. ``fencing_token`` goes with every output of an active.
    """

    def __init__(self, task_id: str, role: Role, driver: Driver, *, was: Role | None = None) -> None:
        self.id = task_id
        self.role = role
        self.was = was
        self.fencing_token: int | None = None
        self.restore_to: Offsets | None = None
        self._driver = driver
        self._stopping = asyncio.Event()
        self._returned = asyncio.Event()
        self._ended = False
        self._says_load = False
        self.has_run = False
        """Whether the active has been reported as running."""

    def __repr__(self) -> str:
        return f"<Task {self.id} {self.role}>"

    @property
    def subtopology(self) -> str:
        """The part of the topology that the task belongs to."""
        return split_task_id(self.id)[0]

    @property
    def partition(self) -> int:
        """The partition that the task processes."""
        return split_task_id(self.id)[1]

    # --- what the worker says of it ---------------------------------------------------------------------------------

    def report(
        self,
        position: int | None = None,
        end_offset: int | None = None,
        *,
        lag: int | None = None,
        positions: Mapping[str, int] | None = None,
        end_offsets: Mapping[str, int] | None = None,
        catchup_ms: int | None = None,
    ) -> None:
        """Report the progress of the copy; see `Progress`. Call it as often as you like."""
        self.progress(
            Progress(
                lag=lag,
                position=position,
                end_offset=end_offset,
                positions=positions,
                end_offsets=end_offsets,
                catchup_ms=catchup_ms,
            )
        )

    def progress(self, progress: Progress) -> None:
        """Report progress that is already a `Progress`."""
        self._say(lambda machine, now: machine.copy_progress(self.id, progress, now_ms=now))

    def restoring(self) -> None:
        """Report that the active, which has run, does not: it is to restore once more, or cannot go on."""
        self._say(lambda machine, now: machine.task_restoring(self.id, now_ms=now))

    def running(self) -> None:
        """Report that the active has restored and processes."""
        self.has_run = True
        self._say(lambda machine, now: machine.task_running(self.id, now_ms=now))

    def failed(self, detail: str) -> None:
        """Report that the active cannot process; a ready copy elsewhere takes over."""
        self._say(lambda machine, now: machine.task_failed(self.id, detail, now_ms=now))

    def lost(self) -> None:
        """Report that the task's state is gone. An active must have stopped processing."""
        self._say(lambda machine, now: machine.state_lost(self.id, now_ms=now))

    def producer_fenced(self) -> None:
        """Report that the active's producer was fenced: it is stopped without a commit."""
        self._say(lambda machine, now: machine.producer_fenced(self.id, now_ms=now))

    def input_lag(self, lag: int) -> None:
        """Report how many input records wait; it is shown to people and decides nothing."""
        self._say(lambda machine, now: machine.input_lag(self.id, lag, now_ms=now))

    def load(self, load: float) -> None:
        """Report how much of one unit of capacity the task uses: actives are placed by that, where the group says so.

        Processor seconds a second, the share of time in which it works, or anything else that adds up over tasks; one
        unit for a group. What was measured here is not said any more then.

        Raises:
            TypeError, ValueError: when it is no number from 0 to 1,000,000.
        """
        plain, self._says_load = checked_load(load), True
        self._say(lambda machine, now: machine.load(self.id, plain, now_ms=now))

    def load_measured(self, load: float) -> None:
        """Report what was measured here, unless the worker reports a load itself."""
        if not self._says_load:
            self._say(lambda machine, now: machine.load(self.id, load, now_ms=now))

    def _say(self, report: Callable[[MemberProtocol, int], Iterable[Instruction]]) -> None:
        if not self._ended:
            self._driver.turn(lambda now: report(self._driver.machine, now))

    # --- what it may do ---------------------------------------------------------------------------------------------

    @property
    def may_process(self) -> bool:
        """Whether an output or a commit is allowed now: ask before each. False once it must not write any more."""
        return not self._ended and self._driver.machine.may_process(self.id, self._driver.clock())

    @property
    def may_begin(self) -> bool:
        """Whether it may fence others and begin to process: `may_process`, and the lease holds.

        It must hold with any ``on_lease_lost``: only a task that runs already may go on past the lease. One that begins
        then would fence its rightful owner.
        """
        return self.may_process and not self._driver.machine.lease_is_over(self._driver.clock())

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    @property
    def ended(self) -> bool:
        """Whether it has stopped; further reports about it are ignored."""
        return self._ended

    async def stop_requested(self, within_s: float | None = None) -> bool:
        """Wait until it is told to stop, or the time is over; return whether it was told."""
        return await happens(self._stopping, within_s)

    async def unless_stopping(self, call: asyncio.Future[Any]) -> bool:
        """Wait for a call, or until the task is told to stop, and return whether the call is done; else it goes on."""
        return await ends_before(call, self._stopping)

    async def finished(self) -> None:
        """Wait until the callback that began this task has returned; for `on_revoke`."""
        await self._returned.wait()

    # --- for the member alone ---------------------------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def callback_returned(self) -> None:
        self._returned.set()

    def end(self) -> None:
        """Ignore all further reports about it: what comes after is another task of the same id."""
        self._ended = True
        self._stopping.set()


class Callbacks:
    """What a worker does with its tasks. Subclass it, and write what you need.

    The callbacks of one task run one after another, except `on_revoke`, which runs beside the callback that it ends.
    Callbacks of different tasks run at the same time. They never hold up a heartbeat, as long as they do not block the
    event loop (`ThreadedMember` is for code that does).

    A callback that begins a task may do its work itself, for as long as it takes, or start something and return. When
    the task is to stop, `on_revoke` is called; as soon as that has returned, the first callback is cancelled if it
    still runs. The task counts as stopped only when both have ended. If the coordinator believed that sooner, it would
    give the task to another member while this one still writes.
    """

    task_type: ClassVar[type[Task]] = Task
    """The class of the tasks that the callbacks get; only `ThreadedMember` sets it."""

    async def on_active(self, task: Task) -> None:
        """Restore the task (to `task.restore_to` at least), call `task.running()`, and process.

        When this raises, the task is reported as failed, and this is called again a while later.
        """

    async def on_standby(self, task: Task) -> None:
        """Restore the task's state, keep tailing its changelog, and report its progress."""

    async def on_warmup(self, task: Task) -> None:
        """Do the same, to become active once caught up; a warmup is run as a standby unless this is overridden."""
        await self.on_standby(task)

    async def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:
        """Stop the task as the revocation says, and return where an active's changelog ends, if that is known.

        Nothing of the task may write once this has returned. When this raises or takes longer than its deadline, it is
        called again without a commit, until it returns.
        """

    async def disk_bytes(self) -> Mapping[str, int]:
        """Return how many bytes each task's state takes on disk here, whatever its role; called twice a minute.

        The state of a task that is not named is not removed.
        """
        return {}

    async def numbers(self) -> Mapping[str, float]:
        """Return what this member says of itself, beside its tasks, by the names that heartbeats have for it.

        Called twice a minute. A name that the coordinator does not know is a status (`unknown-field`).
        """
        return {}

    async def remove_state(self, task_id: str) -> None:
        """Remove the state of a task that moved away ``state_cleanup_delay_ms`` ago.

        The task may come back while this runs; it is then to begin from nothing, once this is done.
        """

    async def on_close(self) -> None:
        """Close what is still open: the member is gone, every task has stopped, and no callback is called any more."""

    def on_status(self, statuses: Sequence[Status]) -> None:
        """Called with the member's statuses (draining, drained, ...) when they change. Must return at once."""

    def on_problem(self, kind: RequestKind, problem: Problem) -> None:
        """Called with a refusal that somebody may have to mend. Must return at once."""
