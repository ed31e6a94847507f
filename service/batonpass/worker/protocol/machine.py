"""The member's side of the protocol as a state machine without I/O: what happened goes in, what to do comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batonpass.worker.protocol.answers import Assignment, MalformedAnswer, parse_problem
from batonpass.worker.protocol.conversation import TALKING, Conversation
from batonpass.worker.protocol.holdings import Holding, Pending
from batonpass.worker.protocol.requests import DrainWish
from batonpass.worker.protocol.types import (
    Instruction,
    LeaveMode,
    MemberSettings,
    Offsets,
    OnLeaseLost,
    Phase,
    Problem,
    Progress,
    Request,
    Role,
    Stage,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class MemberProtocol:
    """One worker process in one group, through as many runs as it takes.

    Every input returns instructions, to be carried out in their order: stops, then starts, then what to send. The
    machine has no clock: `now_ms` must come from one that counts suspended time, and after each input the caller sees
    to it that `tick` is called at `wake_at_ms`. Answers may come late, twice, in any order or not at all.

    `new_member_id` gives an id that was never used before, each time that it is called. `on_disk` is the state that
    the process finds when it starts. `replaces` is the id of this worker's previous process, where that is known and
    known to be dead.
    """

    def __init__(
        self,
        settings: MemberSettings,
        new_member_id: Callable[[], str],
        *,
        on_disk: Mapping[str, Progress] | None = None,
        replaces: str | None = None,
    ) -> None:
        self._talk = Conversation(settings, new_member_id, on_disk or {}, replaces)

    # --- looks --------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """Where this process stands with its group."""
        return self._talk.phase

    @property
    def member_id(self) -> str | None:
        """The id of the present run, or of the last one; None before the first join."""
        return self._talk.run.member_id or None

    @property
    def member_epoch(self) -> int:
        """The highest epoch seen on any channel in this run; -1 before the first answer."""
        return self._talk.run.epoch

    @property
    def seq(self) -> int:
        """The number of the last heartbeat of this run; 0 before the first."""
        return self._talk.holdings.seq

    @property
    def assignment(self) -> Assignment:
        """What this member may hold, as far as it knows."""
        return self._talk.run.assignment

    @property
    def holdings(self) -> Mapping[str, Holding]:
        """What this member holds now, by task."""
        return self._talk.holdings.held

    @property
    def on_disk(self) -> Mapping[str, Progress]:
        """State that nobody tails, by task."""
        return self._talk.holdings.on_disk

    @property
    def statuses(self) -> tuple[Status, ...]:
        """What the coordinator said last of this member's standing."""
        return self._talk.statuses

    @property
    def lease_end_ms(self) -> int | None:
        """When the lease is over, or None where there is none."""
        return self._talk.run.lease.end_ms

    @property
    def wake_at_ms(self) -> int | None:
        """When `tick` is due; None when there is nothing to wait for but the worker itself."""
        times = [
            time
            for lane in (self._talk.main, self._talk.poll, self._talk.side)
            if (time := lane.wake_at_ms) is not None
        ]
        stops_at_end = self._talk.settings.on_lease_lost is OnLeaseLost.STOP and self._talk.phase in (
            Phase.JOINED,
            Phase.LEAVING,
        )
        if stops_at_end and (end_ms := self._talk.run.lease.next_end_ms) is not None:
            times.append(end_ms)
        return min(times, default=None)

    def lease_is_over(self, now_ms: int) -> bool:
        """Whether the lease has run out, or never began."""
        return self._talk.run.lease.is_over(max(now_ms, self._talk.now_ms))

    def may_process(self, task: str, now_ms: int) -> bool:
        """Whether the task may still write: ask before every output and every commit.

        A task that is to stop with a commit may, for that is how it commits.
        """
        holding = self._talk.holdings.held.get(task)
        if holding is None or holding.role is not Role.ACTIVE or holding.pending is Pending.STOP_WITHOUT_COMMIT:
            return False
        return self._talk.settings.on_lease_lost is OnLeaseLost.CONTINUE or not self.lease_is_over(now_ms)

    # --- time and the wire ----------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Instruction]:
        """Join the group. Only the first call does anything."""
        out = self._talk.open(now_ms)
        if self._talk.phase is Phase.NEW:
            self._talk.begin_run()
        return self._talk.close(out)

    def tick(self, now_ms: int) -> list[Instruction]:
        """Do what time alone brings: the end of the lease, the next heartbeat, a request given up and repeated."""
        return self._talk.close(self._talk.open(now_ms))

    def on_answer(
        self, request: Request, status: int, body: Mapping[str, object] | None, *, now_ms: int
    ) -> list[Instruction]:
        """Take the answer to a request, however late, doubled or out of order it comes."""
        out = self._talk.open(now_ms)
        if request.member_id != self._talk.run.member_id or self._talk.phase not in TALKING:
            return self._talk.close(out)
        try:
            if 200 <= status < 300:
                self._talk.accepted(request, status, body, out)
            else:
                self._talk.refused(request, parse_problem(status, body), out)
        except MalformedAnswer as error:
            self._talk.see(request.kind, Problem(type="malformed-answer", status=status, detail=str(error)), out)
            self._talk.give_up(request, out)
        return self._talk.close(out)

    def on_no_answer(self, request: Request, *, now_ms: int) -> list[Instruction]:
        """Take it that a request got no answer (refused connection, broken socket, the caller's own timeout).

        Nobody has to call it: the machine gives a request up by itself after its `timeout_ms`.
        """
        out = self._talk.open(now_ms)
        self._talk.give_up(request, out)
        return self._talk.close(out)

    # --- news of the work -----------------------------------------------------------------------------------------

    def task_restoring(self, task: str, *, now_ms: int, progress: Progress | None = None) -> list[Instruction]:
        """Take it that an active reads its changelog, and how far it has come."""
        out = self._talk.open(now_ms)
        self._talk.holdings.staged(task, Stage.RESTORING, progress=progress)
        return self._talk.close(out)

    def task_running(self, task: str, *, now_ms: int) -> list[Instruction]:
        """Take it that an active processes."""
        out = self._talk.open(now_ms)
        self._talk.is_urgent |= self._talk.holdings.staged(task, Stage.RUNNING)
        return self._talk.close(out)

    def task_failed(self, task: str, detail: str, *, now_ms: int) -> list[Instruction]:
        """Take it that an active cannot process; it is still this member's until it is revoked."""
        out = self._talk.open(now_ms)
        self._talk.is_urgent |= self._talk.holdings.staged(task, Stage.FAILED, detail=detail)
        return self._talk.close(out)

    def task_stopped(self, task: str, *, now_ms: int, final_position: Offsets | None = None) -> list[Instruction]:
        """Take it that nothing of the task runs here any more; an active's changelog ends at `final_position`.

        That is by topic where it has several. Said unasked, the task starts again once a later heartbeat is answered
        with the task still in the assignment.
        """
        granted = self._talk.run.assignment.roles.get(task) is Role.ACTIVE
        # First of all, so that the end of the lease does not ask for the stop of what has stopped.
        asked = self._talk.holdings.stopped(task, final_position, still_granted=granted)
        out = self._talk.open(now_ms)
        self._talk.is_urgent |= asked
        self._talk.follow(out)
        return self._talk.close(out)

    def task_demoted(self, task: str, *, now_ms: int, final_position: Offsets | None = None) -> list[Instruction]:
        """Take it that an active has stopped, with its last commit done, and goes on as a copy in place."""
        granted = self._talk.run.assignment.roles.get(task) is Role.ACTIVE
        # First of all, so that the end of the lease does not ask for the stop of what has stopped.
        asked = self._talk.holdings.demoted(task, final_position, still_granted=granted)
        out = self._talk.open(now_ms)
        self._talk.is_urgent |= asked
        self._talk.follow(out)
        return self._talk.close(out)

    def copy_progress(self, task: str, progress: Progress, *, now_ms: int) -> list[Instruction]:
        """Take it that a copy, or an active that restores, has come so far."""
        out = self._talk.open(now_ms)
        self._talk.holdings.progressed(task, progress)
        latest = self._talk.run.latest
        if latest is not None and not self._talk.is_urgent:
            self._talk.is_urgent = self._talk.holdings.is_news(
                task, acceptable_lag=latest.acceptable_recovery_lag, acceptable_catchup_ms=latest.acceptable_catchup_ms
            )
        return self._talk.close(out)

    def input_lag(self, task: str, lag: int, *, now_ms: int) -> list[Instruction]:
        """Take it that an active is so many records behind its input; shown to people, decides nothing."""
        out = self._talk.open(now_ms)
        self._talk.holdings.input_lagged(task, lag)
        return self._talk.close(out)

    def state_lost(self, task: str, *, now_ms: int) -> list[Instruction]:
        """Take it that the state of a task is gone. An active must have ceased to process, and may restore anew."""
        out = self._talk.open(now_ms)
        self._talk.is_urgent |= self._talk.holdings.lost(task)
        return self._talk.close(out)

    def disk_bytes(self, sizes: Mapping[str, int], *, now_ms: int) -> list[Instruction]:
        """Take it that so many bytes lie on disk of each task, whatever its role here."""
        out = self._talk.open(now_ms)
        self._talk.holdings.disk_measured(sizes)
        return self._talk.close(out)

    def state_removed(self, task: str, *, now_ms: int) -> list[Instruction]:
        """Take it that the state on disk of a task that is not held here is no longer to be counted on."""
        out = self._talk.open(now_ms)
        self._talk.holdings.removed(task)
        return self._talk.close(out)

    def producer_fenced(self, task: str, *, now_ms: int) -> list[Instruction]:
        """Take it that an active's producer was fenced: somebody may have a newer token.

        The task stops, and starts again only if a later heartbeat is answered with the task still in the assignment.
        """
        out = self._talk.open(now_ms)
        stops = self._talk.holdings.fenced(task)
        self._talk.is_urgent |= bool(stops)
        return self._talk.close(out + stops)

    # --- what the worker wants --------------------------------------------------------------------------------------

    def drain(self, *, now_ms: int, deadline_ms: int | None = None) -> list[Instruction]:
        """Ask to have the tasks handed over; the status `drained` says when that is done."""
        out = self._talk.open(now_ms)
        self._talk.ask_about_drain(
            DrainWish(is_wanted=True, asked_ms=now_ms, by_ms=None if deadline_ms is None else now_ms + deadline_ms)
        )
        return self._talk.close(out)

    def undrain(self, *, now_ms: int) -> list[Instruction]:
        """Call a drain off."""
        out = self._talk.open(now_ms)
        self._talk.ask_about_drain(DrainWish(is_wanted=False, asked_ms=now_ms))
        return self._talk.close(out)

    def leave(self, *, now_ms: int, mode: LeaveMode = LeaveMode.LEAVE) -> list[Instruction]:
        """Stop everything with a commit, then tell the coordinator, and end with `StopForGood`.

        Raises:
            ValueError: for a restart without an instance id, which the coordinator would refuse.
        """
        if mode is LeaveMode.RESTART and self._talk.settings.instance_id is None:
            raise ValueError("leaving to restart needs an instance id, for that is what comes back")
        out = self._talk.open(now_ms)
        self._talk.leave(mode, out)
        return self._talk.close(out)
