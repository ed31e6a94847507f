"""What a worker's own code sees: a task in a role, the callbacks for it, and how it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from batonpass.core.ids import split_task_id
from batonpass.worker.protocol import Offsets, Problem, Progress, RequestKind, Role, Status


class ReportSink(Protocol):
    """Where a task's news goes: the member that has it."""

    def progress(self, task: str, progress: Progress) -> None:
        """Called with the progress of a copy, or of an active that restores."""

    def running(self, task: str) -> None:
        """Called when an active processes."""

    def failed(self, task: str, detail: str) -> None:
        """Called when an active cannot process."""

    def lost(self, task: str) -> None:
        """Called when the state of a task is gone."""

    def producer_fenced(self, task: str) -> None:
        """Called when an active's producer was fenced."""

    def input_lag(self, task: str, lag: int) -> None:
        """Called with an active's input lag."""

    def may_process(self, task: str) -> bool:
        """Whether an active may write now."""

    def may_begin(self, task: str) -> bool:
        """Whether an active may begin to write now."""


@dataclass(frozen=True, slots=True)
class Revocation:
    """How a task is to stop.

    With ``commit`` finish what is in hand, commit and flush. Without, throw that away and write nothing more: the lease
    is over, or somebody else has the task. ``becomes`` is the role in which an active goes on in place, so that its
    state is kept open; None when it ends here.
    """

    commit: bool
    becomes: Role | None = None


class Task:
    """One task in one role, from the callback that begins it to the one that ends it.

    ``was`` is the role that it had here just before: a copy that was promoted, or an active that goes on as a copy; the
    state is in place then. ``restore_to`` is where the last owner stopped: an active must restore at least so far
    before it processes; None where that is not known. ``fencing_token`` goes with every output of an active.
    """

    def __init__(self, task_id: str, role: Role, reports: ReportSink, *, was: Role | None = None) -> None:
        self.id = task_id
        self.role = role
        self.was = was
        self.fencing_token: int | None = None
        self.restore_to: Offsets | None = None
        self._reports = reports
        self._stopping = asyncio.Event()
        self._returned = asyncio.Event()
        self._ended = False

    def __repr__(self) -> str:
        return f"<Task {self.id} {self.role}>"

    def granted(self, fencing_token: int, restore_to: Offsets | None) -> Task:
        """Add the grant of an active."""
        self.fencing_token, self.restore_to = fencing_token, restore_to
        return self

    @property
    def subtopology(self) -> str:
        """The part of the topology that the task belongs to."""
        return split_task_id(self.id)[0]

    @property
    def partition(self) -> int:
        """The partition that it processes."""
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
        """Say how far the copy has come; see `Progress`. Call it as often as you like."""
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
        """Say the same with a value that there is already."""
        self._say(lambda: self._reports.progress(self.id, progress))

    def running(self) -> None:
        """Say that the active has restored and processes."""
        self._say(lambda: self._reports.running(self.id))

    def failed(self, detail: str) -> None:
        """Say that the active cannot process; a ready copy elsewhere takes over."""
        self._say(lambda: self._reports.failed(self.id, detail))

    def lost(self) -> None:
        """Say that the task's state is gone. An active must have ceased to process."""
        self._say(lambda: self._reports.lost(self.id))

    def producer_fenced(self) -> None:
        """Say that the active's producer was fenced: it is stopped without a commit."""
        self._say(lambda: self._reports.producer_fenced(self.id))

    def input_lag(self, lag: int) -> None:
        """Say how many input records wait; shown to people, decides nothing."""
        self._say(lambda: self._reports.input_lag(self.id, lag))

    def _say(self, report: Callable[[], None]) -> None:
        if not self._ended:
            report()

    # --- what it may do ---------------------------------------------------------------------------------------------

    @property
    def may_process(self) -> bool:
        """Whether an output or a commit is allowed now: ask before each. False once it must not write any more."""
        return not self._ended and self._reports.may_process(self.id)

    @property
    def may_begin(self) -> bool:
        """Whether it may fence others and begin to process: `may_process`, and the lease holds whatever was chosen.

        Going on past the lease is for what runs already. What begins then would fence its rightful owner.
        """
        return not self._ended and self._reports.may_begin(self.id)

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    @property
    def ended(self) -> bool:
        """Whether it has stopped; nothing that is said of it counts any more."""
        return self._ended

    async def stop_requested(self) -> None:
        """Wait until it is told to stop."""
        await self._stopping.wait()

    async def finished(self) -> None:
        """Wait until the callback that began this task has returned; for `on_revoke`."""
        await self._returned.wait()

    # --- for the member alone ---------------------------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        """Let the task know that it is to stop."""
        self._stopping.set()

    def callback_returned(self) -> None:
        """Note that nothing is left of the callback that began it."""
        self._returned.set()

    def end(self) -> None:
        """Let nothing that is said of it count any more: what comes after is another task of the same id."""
        self._ended = True
        self._stopping.set()


class Callbacks:
    """What a worker does with its tasks. Subclass it, and write what you need.

    For each task one callback follows the other, never two at a time but `on_revoke`, which is called beside the one
    that it ends; tasks run beside one another. Callbacks never hold up a heartbeat, as long as they do not block the
    event loop (`ThreadedMember` is for code that does).

    A callback that begins a task may do its work itself, for as long as it takes, or start something and return. When
    the task stops, `on_revoke` is called; as soon as that has returned, what is left of the first callback is
    cancelled. The task counts as stopped when both have ended, and not before: a coordinator that believed otherwise
    would give it to somebody else while it still writes.
    """

    task_type: ClassVar[type[Task]] = Task
    """What the tasks are made of that the callbacks are given; for `ThreadedMember` alone."""

    async def on_active(self, task: Task) -> None:
        """Restore the task (to `task.restore_to` at least), call `task.running()`, and process.

        When it raises, the task is reported as failed, and this is called again a while later.
        """

    async def on_standby(self, task: Task) -> None:
        """Restore the task's state, keep tailing its changelog, and report how far it has come."""

    async def on_warmup(self, task: Task) -> None:
        """The same, to become active once caught up; a standby by another name unless this is overridden."""
        await self.on_standby(task)

    async def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:
        """Stop the task as the revocation says, and return where an active's changelog ends, if that is known.

        Nothing of the task may write once this has returned. When it raises or takes longer than its deadline, it is
        called once more without a commit, and so on until it returns.
        """

    async def disk_bytes(self) -> Mapping[str, int]:
        """Return what the state of each task takes on disk here, in bytes, whatever its role; asked twice a minute.

        Of what is not named nothing is removed.
        """
        return {}

    async def remove_state(self, task_id: str) -> None:
        """Remove what lies on disk of a task that moved away ``state_cleanup_delay_ms`` ago.

        The task may come back while this runs; it is then to begin from nothing, once this is done.
        """

    async def on_close(self) -> None:
        """Let go of what is still open: the member is gone, every task has stopped, and nothing is called any more."""

    def on_status(self, statuses: Sequence[Status]) -> None:
        """Called with the member's statuses (draining, drained, ...) when they change. Must return at once."""

    def on_problem(self, kind: RequestKind, problem: Problem) -> None:
        """Called with a refusal that somebody may have to mend. Must return at once."""
