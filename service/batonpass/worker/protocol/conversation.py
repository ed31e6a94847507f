"""What passes between one worker process and the coordinator, and what follows from it for the work.

The phases: new > joining > joined > leaving > left, with fenced between two runs and stopped at a bad end. While
fenced nothing is sent, because the join that comes next vouches that every active of the old run is stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from batonpass.worker.protocol.answers import NOTHING_HELD, Answer, answer_to
from batonpass.worker.protocol.holdings import Holdings
from batonpass.worker.protocol.lanes import LEAST_GAP_MS, NEVER_SENT_MS, Lane
from batonpass.worker.protocol.refusals import Verdict, judge, wait_ms
from batonpass.worker.protocol.requests import (
    DrainWish,
    drain_request,
    heartbeat_request,
    leave_request,
    poll_request,
    repeated,
)
from batonpass.worker.protocol.run import Run, Runs
from batonpass.worker.protocol.types import (
    GIVES_UP,
    Instruction,
    Joined,
    LeaveMode,
    MemberSettings,
    OnLeaseLost,
    Phase,
    Problem,
    ProblemSeen,
    Progress,
    Rejoining,
    Request,
    RequestKind,
    Send,
    Status,
    StatusChanged,
    StopForGood,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Waits between retries grow up to these. The poll's stays below any sensible suspect timeout, because a member whose
# long-poll broke is suspected until it calls again.
_JOIN_RETRY_MAX_MS = 5_000
# Without a lease there is nothing to lose by asking again before the time that a refusal names.
_REFUSED_WAIT_MAX_MS = 60_000
_POLL_RETRY_MAX_MS = 1_000
# A poll that ends without news sooner than this is not repeated before.
_POLL_LEAST_MS = 1_000
# A worker that leaves and is not answered tries at least so often; after its lease it is gone in any case.
_LEAVE_ATTEMPTS_LEAST = 3

TALKING = (Phase.JOINING, Phase.JOINED, Phase.LEAVING)
"""The phases in which there is a run that answers may concern."""


class Conversation:
    """The lanes, the run and the holdings of one process, and the rules that tie them.

    Every input is one turn: `open` first, which sees to the lease before anything else can count on it; then what
    happened; then `close`, which sends what is due by now.
    """

    def __init__(
        self,
        settings: MemberSettings,
        new_member_id: Callable[[], str],
        on_disk: Mapping[str, Progress],
        replaces: str | None,
    ) -> None:
        self.settings = settings
        self.holdings = Holdings(on_disk=dict(on_disk))
        self.run = Run("")
        self.phase = Phase.NEW
        self.statuses: tuple[Status, ...] = ()
        self.main = Lane(settings.jitter_seed)
        self.poll = Lane(settings.jitter_seed + 1)
        self.side = Lane(settings.jitter_seed + 2)
        self.now_ms = NEVER_SENT_MS
        # The next heartbeat need not wait for the interval, and says something new.
        self.is_urgent = False
        self._runs = Runs(settings, new_member_id, replaces)
        # When the last heartbeat or join was first sent; the interval counts from there.
        self._beat_ms = NEVER_SENT_MS
        self._leave_mode: LeaveMode | None = None
        # Whether nothing is left to do but to say that the member leaves.
        self._is_goodbye = False
        self._drain_wish: DrainWish | None = None
        self._seen: dict[RequestKind, tuple[str, int]] = {}

    # --- a turn -------------------------------------------------------------------------------------------------

    def open(self, now_ms: int) -> list[Instruction]:
        """Begin a turn, with the lease before all else."""
        self.now_ms = max(self.now_ms, now_ms)
        out: list[Instruction] = []
        self._see_to_lease(out)
        return out

    def _see_to_lease(self, out: list[Instruction]) -> None:
        """If the lease has run out since the last look, stop what may not outlive it."""
        if self.phase in (Phase.JOINED, Phase.LEAVING) and self.run.lease.notice_end(self.now_ms, self.holdings.seq):
            if self.settings.on_lease_lost is OnLeaseLost.STOP:
                out += self.holdings.stop_actives()
            if not self._is_goodbye:
                # Only a heartbeat that is sent from now on can bring anything back.
                self.main.abandon(self.now_ms)
                self.is_urgent = True

    def close(self, out: list[Instruction]) -> list[Instruction]:
        """End a turn: settle what waits for the actives to stop, give up what is overdue, send what is due."""
        if self.phase in (Phase.FENCED, Phase.LEAVING) and not self.holdings.has_actives():
            self._without_actives(out)
        for lane in (self.main, self.poll, self.side):
            if lane.is_overdue(self.now_ms):
                self._fail(lane, out)
        if self.is_urgent and self.phase in (Phase.JOINED, Phase.LEAVING) and not self._is_goodbye:
            self.main.hurry(self.now_ms)
        if self.main.is_due(self.now_ms):
            self._send(self.main, self._next_main(), out)
        if self.poll.is_due(self.now_ms):
            self._send(self.poll, poll_request(self.settings, self.run, now_ms=self.now_ms), out)
        if self.side.is_due(self.now_ms) and self._drain_wish is not None:
            request = drain_request(self.settings, self.run.member_id, self._drain_wish, now_ms=self.now_ms)
            self._send(self.side, request, out)
        return out

    def follow(self, out: list[Instruction], *, changed: bool = False) -> None:
        """Bring the holdings toward the assignment: stop what is not in it, then start what may start."""
        if self.phase is Phase.JOINED:
            may_start = self.run.lease.may_start(self.now_ms)
            done = self.holdings.follow(self.run.assignment, may_start=may_start)
        elif self.phase is Phase.LEAVING:
            done = self.holdings.follow(NOTHING_HELD, may_start=False)
        else:
            return
        # An active that is to stop is news when it has. A heartbeat before that would keep the next one waiting.
        self.is_urgent |= (changed or bool(done)) and not any(isinstance(each, GIVES_UP) for each in done)
        out += done

    def _without_actives(self, out: list[Instruction]) -> None:
        """Do what had to wait until nothing is active here."""
        if self.phase is Phase.FENCED:
            if self._leave_mode is not None:
                self.finish(Phase.LEFT, "left", out)
            else:
                self.begin_run()
        elif self.phase is Phase.LEAVING and not self._is_goodbye:
            self._is_goodbye = True
            self.main.clear()
            self.main.due_ms = self.now_ms

    # --- what is sent ---------------------------------------------------------------------------------------------

    def _send(self, lane: Lane, request: Request, out: list[Instruction]) -> None:
        lane.sent(request)
        out.append(Send(request))

    def _next_main(self) -> Request:
        """Return what the member has to say now: a join, a heartbeat or a goodbye, anew or once more."""
        now_ms, last = self.now_ms, self.main.unanswered
        if self.phase is Phase.JOINING:
            if last is not None:
                return repeated(last, now_ms=now_ms)
            self._beat_ms = now_ms
            return self._runs.join_request(self.run, self.holdings, now_ms=now_ms)
        if self._is_goodbye:
            if last is not None:
                return repeated(last, now_ms=now_ms)
            return leave_request(self.settings, self.run.member_id, self._leave_mode or LeaveMode.LEAVE, now_ms=now_ms)
        if last is not None and self._is_still_true(last):
            return repeated(last, now_ms=now_ms)
        self.is_urgent = False
        self._beat_ms = now_ms
        return heartbeat_request(self.run, self.holdings, now_ms=now_ms)

    def _is_still_true(self, heartbeat: Request) -> bool:
        """Whether a heartbeat that got no answer says what a new one would say.

        One that is older than the interval is not repeated all the same: the lease never counts from a retry, so a new
        one is worth more.
        """
        return (
            not self.is_urgent
            and not self.holdings.changed
            and heartbeat.seq > self.run.full_after_seq
            and self.now_ms - heartbeat.first_sent_ms < self._interval_ms()
        )

    def ask_about_drain(self, wish: DrainWish) -> None:
        """Have a wish to be drained, or to be drained no more, brought to the coordinator, now or once joined."""
        self._drain_wish = wish
        if self.phase is Phase.JOINED:
            self.side.clear()
            self.side.due_ms = self.now_ms

    # --- what is answered -----------------------------------------------------------------------------------------

    def lane_of(self, kind: RequestKind) -> Lane:
        """Return the lane on which requests of a kind go."""
        match kind:
            case RequestKind.POLL:
                return self.poll
            case RequestKind.DRAIN | RequestKind.UNDRAIN:
                return self.side
            case RequestKind.JOIN | RequestKind.HEARTBEAT | RequestKind.LEAVE:
                return self.main

    def accepted(self, request: Request, status: int, body: object, out: list[Instruction]) -> None:
        """Take an answer of status 2xx.

        Raises:
            MalformedAnswer: when the body is not what the protocol says; nothing has changed then.
        """
        match request.kind:
            case RequestKind.JOIN | RequestKind.HEARTBEAT:
                self._heard(request, answer_to(request, body), out)
            case RequestKind.POLL:
                self._polled(request, None if status == 204 else answer_to(request, body), out)
            case RequestKind.DRAIN | RequestKind.UNDRAIN:
                if self._drain_wish is not None and self._drain_wish.is_asked_by(request):
                    self.side.clear()
            case RequestKind.LEAVE:
                self.finish(Phase.LEFT, "left", out)
        self._seen.pop(request.kind, None)

    def _heard(self, request: Request, answer: Answer, out: list[Instruction]) -> None:
        """Take the answer to a join or heartbeat: it renews the lease, confirms reports, may bring an assignment."""
        run, lease = self.run, self.run.lease
        could_start = lease.may_start(self.now_ms)
        changed = run.take(answer, seq=self.holdings.seq)
        run.lease_answered(answer, seq=request.seq, first_sent_ms=request.first_sent_ms)
        freed = self.holdings.heard(request.seq)
        if self.phase is Phase.JOINING:
            self._join_answered(out)
        elif self.main.is_answer_to(request):
            self.main.answered()
            self._beat_later()
        # A timeout that was lowered may have ended the lease a while ago.
        self._see_to_lease(out)
        self._taken(out, changed=changed, also=freed or (not could_start and lease.may_start(self.now_ms)))

    def _join_answered(self, out: list[Instruction]) -> None:
        self.phase = Phase.JOINED
        self.main.clear()
        self._beat_later()
        out.append(Joined(self.run.member_id))
        if self.settings.listen:
            self.poll.due_ms = self.now_ms
        if self._drain_wish is not None and self._drain_wish.is_wanted:
            self.ask_about_drain(self._drain_wish)

    def _polled(self, request: Request, answer: Answer | None, out: list[Instruction]) -> None:
        """Take the answer to a long-poll, which may bring an assignment but never renews the lease."""
        is_mine = self.poll.is_answer_to(request)
        if is_mine:
            self.poll.answered()
            has_news = answer is not None and answer.member_epoch > int(request.query["after"])
            least_ms = LEAST_GAP_MS if has_news else _POLL_LEAST_MS
            self.poll.due_ms = max(self.now_ms, self.poll.sent_ms + least_ms)
        if answer is None:
            return
        if answer.member_epoch < self.run.epoch and is_mine:
            # Below what this member has seen: the coordinator's store may have lost commits. Only a heartbeat tells it
            # so; until then the poll would be answered at once, again and again.
            self.poll.due_ms = self.now_ms + _POLL_RETRY_MAX_MS
            self.is_urgent |= answer.member_epoch < int(request.query["after"])
        self._taken(out, changed=self.run.take(answer, seq=self.holdings.seq))

    def _taken(self, out: list[Instruction], *, changed: bool, also: bool = False) -> None:
        """Act on an answer that was taken; `also` says that something may start that waited."""
        if changed or also:
            self.follow(out, changed=changed)
        latest = self.run.latest
        if latest is not None and latest.statuses != self.statuses:
            self.statuses = latest.statuses
            out.append(StatusChanged(self.statuses))

    def refused(self, request: Request, problem: Problem, out: list[Instruction]) -> None:
        """Take a refusal, by the table of errors.

        Raises:
            MalformedAnswer: when an assignment that came with it is not what the protocol says.
        """
        lane = self.lane_of(request.kind)
        verdict = judge(request.kind, problem)
        if request.kind is RequestKind.LEAVE and verdict in (Verdict.REJOIN, Verdict.STOP):
            self.finish(Phase.LEFT, "left", out)
        elif verdict is Verdict.STOP:
            self._stop_for_good(problem, out)
        elif verdict is Verdict.REJOIN:
            self._fence(problem, out)
        elif verdict is Verdict.TAKE_PICTURE:
            self._take_instead(request, problem, out)
        elif lane.is_waiting_for(request):
            self.see(request.kind, problem, out)
            self._fail(lane, out, wait=wait_ms(problem, self._interval_ms(), self._longest_wait_ms()))
            if problem.status < 500:
                # It was judged, so it was received: the next try is a new request, and not a retry.
                lane.unanswered = None
                if lane is self.side and problem.retry_after_ms is None:
                    lane.due_ms = None

    def _take_instead(self, request: Request, problem: Problem, out: list[Instruction]) -> None:
        """Take the assignment that stands in a refusal; the next heartbeat echoes it, and it renews nothing."""
        changed = self.run.take(answer_to(request, problem.answer), seq=self.holdings.seq)
        if self.main.is_waiting_for(request):
            if changed:
                self.main.answered()
                self._beat_later()
            else:
                self._fail(self.main, out)
                self.main.unanswered = None
        self._taken(out, changed=changed)

    def see(self, kind: RequestKind, problem: Problem, out: list[Instruction]) -> None:
        """Show a problem to whoever runs this worker, once until a request of the kind succeeds."""
        if self._seen.get(kind) != (problem.type, problem.status):
            self._seen[kind] = (problem.type, problem.status)
            out.append(ProblemSeen(kind, problem))

    def give_up(self, request: Request, out: list[Instruction]) -> None:
        """Count on no answer to this attempt any more, if it is the one under way."""
        lane = self.lane_of(request.kind)
        if lane.in_flight is not None and lane.in_flight == request:
            self._fail(lane, out)

    def _fail(self, lane: Lane, out: list[Instruction], *, wait: int | None = None) -> None:
        """Let a request come to nothing, to be tried again later."""
        attempt = lane.in_flight.attempt if lane.in_flight else 0
        if lane is self.poll:
            if lane.failures == 0 and wait is None:
                wait = LEAST_GAP_MS
            lane.failed(self.now_ms, cap_ms=_POLL_RETRY_MAX_MS, wait_ms=wait)
        elif self._is_goodbye and attempt >= _LEAVE_ATTEMPTS_LEAST and self.run.lease.is_over(self.now_ms):
            self.finish(Phase.LEFT, "left without an answer", out)
        else:
            lane.failed(self.now_ms, cap_ms=min(_JOIN_RETRY_MAX_MS, self._interval_ms()), wait_ms=wait)

    def _interval_ms(self) -> int:
        latest = self.run.latest
        return _JOIN_RETRY_MAX_MS if latest is None else latest.heartbeat_interval_ms

    def _longest_wait_ms(self) -> int:
        """Return how long a refusal may make it wait: half of what is left of a lease, to try again within it."""
        lease = self.run.lease
        if lease.end_ms is None or lease.is_over(self.now_ms):
            return _REFUSED_WAIT_MAX_MS
        return max(self._interval_ms(), (lease.end_ms - self.now_ms) // 2)

    def _beat_later(self) -> None:
        self.main.due_ms = max(self.now_ms, self._beat_ms + self._interval_ms())

    # --- the ends of a run ----------------------------------------------------------------------------------------

    def begin_run(self) -> None:
        """Take a new id and join with it; at once, unless the runs before it ended as soon as they began."""
        self.run = self._runs.next_after(self.run)
        self.holdings.begin_run()
        self.phase = Phase.JOINING
        self._clear_lanes()
        self.main.due_ms = self.now_ms + self._runs.wait_ms()

    def _fence(self, problem: Problem, out: list[Instruction]) -> None:
        """Stop every active without committing; once the worker says that they are stopped, the next run joins."""
        self.phase = Phase.FENCED
        self._is_goodbye = False
        self._clear_lanes()
        out += self.holdings.stop_actives()
        if self._leave_mode is None:
            out.append(Rejoining(self.run.member_id, problem))

    def _stop_for_good(self, problem: Problem, out: list[Instruction]) -> None:
        out += self.holdings.stop_actives()
        out += self.holdings.stop_copies()
        self.finish(Phase.STOPPED, problem.type or (problem.action or "stop"), out)

    def leave(self, mode: LeaveMode, out: list[Instruction]) -> None:
        """Stop everything, with a commit where there is still a right to one, then say goodbye."""
        if self._leave_mode is not None or self.phase in (Phase.LEFT, Phase.STOPPED):
            return
        self._leave_mode = mode
        self.poll.clear()
        self.side.clear()
        if self.phase in TALKING:
            self.phase = Phase.LEAVING
            self.follow(out)
        else:
            out += self.holdings.stop_copies()
            if self.phase is Phase.NEW:
                self.finish(Phase.LEFT, "left", out)

    def finish(self, phase: Phase, reason: str, out: list[Instruction]) -> None:
        """Come to the end; nothing is sent after it."""
        self.phase = phase
        self._clear_lanes()
        out.append(StopForGood(reason))

    def _clear_lanes(self) -> None:
        for lane in (self.main, self.poll, self.side):
            lane.clear()
        self.is_urgent = False
