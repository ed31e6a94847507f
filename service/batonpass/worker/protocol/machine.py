"""The member's side of the protocol: one worker process in one group, as a state machine without I/O, clock or chance.

Theory of operation
===================

A worker process and the coordinator talk by six requests: join, heartbeat, poll (a long-poll for the next assignment),
drain, undrain and leave. The process tells this machine what happened (an answer came, a task has stopped, time has
passed), and gets back what to do, in order: stop this, start that, send this request. This file decides everything
that the member says or does, except for three parts that can be understood alone: `lease` (until when the member may
believe in its tasks), `holdings` (what it has of each task, and what has to stop or start so that it has what its
assignment says) and `messages` (how answers are read).

At most one member runs an active task (law L1). The coordinator keeps one half of that law, this machine the other
(rules in brackets are those of docs/protocol.md):

1. An active starts only from an assignment that grants it, and only while the lease holds. A long-poll's answer starts
   nothing while the lease is over, and never renews it (protocol 7.4, protocol 6.2).
2. The lease runs `session_timeout_ms` from when the member first sent the highest `seq` that was answered 200: never
   from a retry, never from receipt, never from a refusal. With `on_lease_lost` "stop", every active is told to stop
   without a commit the moment that the lease is over, even one that was stopping with a commit. A task so stopped
   starts again only after a heartbeat sent since then is answered 200 with the task still in the assignment (protocol
   7.1 and protocol 7.3).
3. A task is reported as given up only after the worker said that it has stopped. Until then each report calls it
   active. Each report says where the task's owner stopped, until a report that could confirm the revocation is
   answered 200 (protocol 4.6).
4. `seq` grows with every new heartbeat. A retry says word for word what it said before (protocol 10.1).
5. The epoch sent never falls within a run, and no epoch is echoed whose assignment was not taken. An answer of a lower
   epoch changes nothing but the lease. So late, lost, doubled and reordered answers cost nothing (protocol 4.3).
6. A join with `replaces` is sent only when every active of the old run has stopped. Each run has an id of its own
   (protocol 3.6).
7. Stops come before starts. A task that is stopping starts again only once it has stopped, and a newer token for a
   running task stops it first (protocol 5.3, protocol 5.4).
8. Refused for good (a newer run of the same instance), it stops everything and sends nothing more (protocol 9.5).

A process goes through one *run* after another. A run has a member id that was never used before, and everything that
the coordinator counts belongs to it: the epoch, the assignment, the lease, `seq`. A run ends when its id is refused;
the next one joins in its place. The phases below are those of the process, through all of its runs.

Requests go on three channels, one at a time on each: joins, heartbeats and leaves on the first, long-polls on the
second, drains on the third. A request without an answer is given up after its `timeout_ms` and sent again after a wait
that grows with each failure; an answer that comes later still counts.

Where tasks should be, how warm a copy must be to take over, whom to believe: the coordinator decides all that, in
`batonpass.core`.

`docs/vectors` holds this machine's inputs and outputs as JSON, for clients in other languages.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from batonpass.worker.protocol.holdings import Holding, Holdings
from batonpass.worker.protocol.lease import Lease
from batonpass.worker.protocol.messages import (
    NOTHING_HELD,
    Answer,
    Assignment,
    MalformedAnswer,
    answer_to,
    parse_problem,
)
from batonpass.worker.protocol.types import (
    Instruction,
    Joined,
    LeaveMode,
    MemberSettings,
    Offsets,
    OnLeaseLost,
    Phase,
    Problem,
    ProblemSeen,
    Progress,
    Rejoining,
    Request,
    RequestKind,
    Role,
    Send,
    Stage,
    Status,
    StatusChanged,
    Stop,
    StopForGood,
    checked_load,
    plain_detail,
)

# --- the tables -------------------------------------------------------------------------------------------------------


class Event(StrEnum):
    """What takes a process from one phase to another."""

    STARTED = "started"
    JOIN_ANSWERED = "join answered"
    # Refusals that end the run, or the process (see ON_REFUSAL).
    REFUSED = "refused"
    REPLACED = "replaced"
    # The worker wants to leave.
    LEAVES = "leaves"
    # No task is active here any more.
    ACTIVES_STOPPED = "actives stopped"
    # The leave was answered, in whatever way, or the lease is over without an answer.
    LEAVE_ENDED = "leave ended"


NEXT_PHASE: Mapping[Phase, Mapping[Event, Phase]] = {
    Phase.NEW: {Event.STARTED: Phase.JOINING, Event.LEAVES: Phase.LEFT},
    Phase.JOINING: {
        Event.JOIN_ANSWERED: Phase.JOINED,
        Event.REFUSED: Phase.FENCED,
        Event.REPLACED: Phase.STOPPED,
        Event.LEAVES: Phase.LEAVING,
    },
    Phase.JOINED: {Event.REFUSED: Phase.FENCED, Event.REPLACED: Phase.STOPPED, Event.LEAVES: Phase.LEAVING},
    Phase.FENCED: {Event.ACTIVES_STOPPED: Phase.JOINING, Event.LEAVES: Phase.ENDING},
    Phase.LEAVING: {
        Event.ACTIVES_STOPPED: Phase.GOODBYE,
        Event.REFUSED: Phase.ENDING,
        Event.REPLACED: Phase.STOPPED,
    },
    Phase.GOODBYE: {Event.LEAVE_ENDED: Phase.LEFT, Event.REFUSED: Phase.ENDING, Event.REPLACED: Phase.STOPPED},
    Phase.ENDING: {Event.ACTIVES_STOPPED: Phase.LEFT},
    Phase.LEFT: {},
    Phase.STOPPED: {},
}
"""The next phase. An event that a phase does not name cannot happen in it, or changes nothing."""

SENDS: Mapping[Phase, RequestKind] = {
    Phase.JOINING: RequestKind.JOIN,
    Phase.JOINED: RequestKind.HEARTBEAT,
    Phase.LEAVING: RequestKind.HEARTBEAT,
    Phase.GOODBYE: RequestKind.LEAVE,
}
"""What is sent on the first channel. In all other phases nothing is sent at all, and answers come too late."""

HAS_LEASE = frozenset({Phase.JOINED, Phase.LEAVING, Phase.GOODBYE})
"""The phases in which the lease may run out."""


class Verdict(StrEnum):
    """What a refusal asks of the member."""

    # Stop every active without committing, then join with a new id and `replaces`.
    REJOIN = "rejoin"
    # Stop for good: a newer process has this one's place.
    STOP = "stop"
    # Take the assignment that came with the refusal, and go on.
    TAKE_ASSIGNMENT = "take-assignment"
    # Keep what is held, within the lease, and try again after a while.
    RETRY = "retry"


ON_REFUSAL: Mapping[str, Verdict] = {
    "unknown-member": Verdict.REJOIN,
    "gone": Verdict.REJOIN,
    "fenced": Verdict.REJOIN,
    # A group that does not exist has no members, so they stop. The join is repeated until the group is declared.
    "unknown-group": Verdict.REJOIN,
    "fenced-instance-id": Verdict.STOP,
    "stale-member-epoch": Verdict.TAKE_ASSIGNMENT,
    "instance-id-in-use": Verdict.RETRY,
    "invalid-topology": Verdict.RETRY,
    "invalid-config": Verdict.RETRY,
    "invalid-request": Verdict.RETRY,
    "precondition-required": Verdict.RETRY,
    "precondition-failed": Verdict.RETRY,
    "method-not-allowed": Verdict.RETRY,
    "limit-exceeded": Verdict.RETRY,
    "unauthenticated": Verdict.RETRY,
    "forbidden": Verdict.RETRY,
    "store-unavailable": Verdict.RETRY,
    "coordinator-loading": Verdict.RETRY,
}
"""What to do about each type of problem (protocol 10.5)."""

ON_ACTION: Mapping[str, Verdict] = {"stop-and-rejoin": Verdict.REJOIN, "stop": Verdict.STOP}
"""An unknown type is judged by its `action`; if that is unknown too, the request is tried again."""

WAITED_OUT = frozenset({"instance-id-in-use", "limit-exceeded"})
"""These refusals name a time before which another try is refused again. After all others, a retry within the heartbeat
interval is the normal rhythm, and a longer wait would only use up the lease."""

# Fewer than 20 a second, because urgent heartbeats below that rate are exempt from the coordinator's rate limit.
LEAST_GAP_MS = 60
# A heartbeat waits for its answer at least this long, however short its interval, but never past a third of the lease.
LEAST_PATIENCE_MS = 1_000
# A poll that ends without news is repeated no sooner than this after it was sent.
POLL_LEAST_MS = 1_000

# A retry waits between half of a delay and all of it. The delay is the first of these, and doubles with each further
# failure up to one of the others. The poll's maximum is below any sensible suspect timeout, because a member whose
# long-poll broke is suspected until it calls again.
RETRY_BASE_MS = 200
RETRY_MAX_MS = 5_000
POLL_RETRY_MAX_MS = 1_000
# Without a lease, a member loses nothing by waiting as long as a refusal says, up to this.
REFUSED_WAIT_MAX_MS = 60_000
# A worker that leaves and gets no answer tries at least this often; after its lease it is gone in any case.
LEAVE_ATTEMPTS_LEAST = 3

_NEVER_MS = -(1 << 62)
_MASK = (1 << 64) - 1


def backoff_ms(failures: int, cap_ms: int, seed: int) -> int:
    """Return how long to wait after so many failures in a row: doubling up to ``cap_ms``, spread over the upper half.

    The spread is a fixed function of seed and count (the finaliser of SplitMix64), so that the machine needs no
    randomness of its own and a run can be repeated.
    """
    ceiling = max(1, min(cap_ms, RETRY_BASE_MS << min(failures - 1, 20)))
    mixed = (seed + failures * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    mixed ^= mixed >> 31
    least = ceiling - ceiling // 2
    return least + mixed % (ceiling // 2 + 1)


# --- what belongs to a channel, to a run, to a wish -------------------------------------------------------------------


@dataclass(slots=True)
class Channel:
    """One request at a time. ``due_ms`` is when the next may be sent, None when there is nothing to send."""

    jitter_seed: int
    due_ms: int | None = None
    in_flight: Request | None = None
    # The last request that got no answer; it may be repeated as it is.
    unanswered: Request | None = None
    failures: int = 0
    sent_ms: int = _NEVER_MS

    @property
    def wake_at_ms(self) -> int | None:
        """When this channel has something to do by itself."""
        if self.in_flight is not None:
            return self.in_flight.sent_ms + self.in_flight.timeout_ms
        return self.due_ms

    def is_due(self, now_ms: int) -> bool:
        return self.in_flight is None and self.due_ms is not None and now_ms >= self.due_ms

    def is_overdue(self, now_ms: int) -> bool:
        """Whether the request under way has waited for its answer long enough."""
        return self.in_flight is not None and now_ms >= self.in_flight.sent_ms + self.in_flight.timeout_ms

    def is_waiting_for(self, request: Request) -> bool:
        """Whether the request is the one under way, this attempt or another one."""
        return self.in_flight is not None and self.in_flight.is_same(request)

    def is_answer_to(self, request: Request) -> bool:
        """Whether the request is the one under way, or the last that got no answer, whichever attempt it was."""
        return self.is_waiting_for(request) or (self.unanswered is not None and self.unanswered.is_same(request))

    def sent(self, request: Request) -> None:
        self.in_flight, self.unanswered, self.due_ms = request, None, None
        self.sent_ms = request.sent_ms

    def answered(self) -> None:
        """Note that the request under way was answered, in whatever way that ends it."""
        self.in_flight, self.unanswered, self.failures = None, None, 0

    def failed(self, now_ms: int, *, cap_ms: int, wait_ms: int = 0) -> None:
        """Note that the request under way failed; another is due after a backoff, and not within ``wait_ms``."""
        self.failures += 1
        self.unanswered, self.in_flight = self.in_flight, None
        self.due_ms = now_ms + max(wait_ms, backoff_ms(self.failures, cap_ms, self.jitter_seed))

    def hurry(self, now_ms: int) -> None:
        """Make the next request due as soon as the least gap allows, unless a failure keeps it waiting."""
        if self.failures == 0:
            soonest = max(now_ms, self.sent_ms + LEAST_GAP_MS)
            self.due_ms = soonest if self.due_ms is None else min(self.due_ms, soonest)

    def abandon(self, now_ms: int) -> None:
        """Wait no longer for the request under way; another one is due as soon as the least gap allows."""
        if self.in_flight is not None:
            self.in_flight, self.due_ms = None, max(now_ms, self.sent_ms + LEAST_GAP_MS)

    def clear(self) -> None:
        """Forget everything but the time of the last request: the next one is about something else."""
        self.due_ms, self.in_flight, self.unanswered, self.failures = None, None, None, 0


@dataclass(slots=True)
class Run:
    """What one run has learnt from the coordinator, and what it has reported."""

    member_id: str
    lease: Lease = field(default_factory=Lease)
    # The highest epoch taken on any channel, and the assignment that came with it. They change together or not at all.
    epoch: int = -1
    assignment: Assignment = NOTHING_HELD
    # The last answer that was not older than the assignment; None before the first.
    latest: Answer | None = None
    # The last heartbeat that listed the tasks, when, the epoch that it echoed, and whether it was answered 200.
    listed_seq: int = 0
    listed_ms: int = _NEVER_MS
    listed_epoch: int = -1
    is_list_answered: bool = False
    # A full report that was asked for must come with a heartbeat above this seq.
    full_after_seq: int = 0
    # Whether any heartbeat of this run was answered 200.
    is_established: bool = False

    def take(self, answer: Answer, *, seq: int) -> bool:
        """Take an answer from any channel unless it is older than what is known; return whether the assignment changed.

        ``seq`` is the last heartbeat composed: a full report that is asked for now can only come in a later one.
        """
        if answer.wants_full_report:
            self.full_after_seq = max(self.full_after_seq, seq)
        if answer.member_epoch < self.epoch:
            return False
        if answer.member_epoch == self.epoch:
            self.latest = answer
            return False
        if answer.assignment is None:
            # To take a later epoch without its assignment would make the member echo it, and so confirm what it has
            # neither seen nor done. The coordinator sends the whole assignment again as long as the lower epoch is
            # echoed.
            return False
        self.latest, self.epoch, self.assignment = answer, answer.member_epoch, answer.assignment
        return True

    def lease_answered(self, answer: Answer, *, seq: int, first_sent_ms: int) -> None:
        """Count the lease from a heartbeat or join that was answered 200 with this answer.

        An answer that came too late to be taken may name a session timeout that was lowered since; the lower counts.
        """
        known = self.latest or answer
        timeout_ms = min(answer.session_timeout_ms, known.session_timeout_ms)
        self.lease.answered(seq, first_sent_ms, timeout_ms)
        self.is_established = self.is_established or seq > 0
        if seq == self.listed_seq:
            self.is_list_answered = True

    def must_list_tasks(self) -> bool:
        """Whether a heartbeat must list the tasks even though nothing changed since they were listed last.

        It must when the epoch has changed, because a heartbeat without the list confirms nothing: a task that was
        granted and revoked before this member saw either is given up only by a list without it.
        """
        return not self.is_list_answered or self.listed_epoch != self.epoch or self.listed_seq <= self.full_after_seq

    def listed(self, seq: int, now_ms: int) -> None:
        self.listed_seq, self.listed_ms = seq, now_ms
        self.listed_epoch, self.is_list_answered = self.epoch, False


@dataclass(frozen=True, slots=True)
class DrainWish:
    """What the worker wants: to be drained, by a time of its own clock if it names one, or no longer to be drained."""

    is_wanted: bool
    asked_ms: int
    by_ms: int | None = None

    def is_asked_by(self, request: Request) -> bool:
        """Whether an answer to any attempt at the request means that the coordinator has this wish."""
        return (request.kind is RequestKind.DRAIN) is self.is_wanted and request.sent_ms >= self.asked_ms


# --- the machine ------------------------------------------------------------------------------------------------------


class MemberProtocol:
    """One worker process in one group, through as many runs as it takes.

    Every input returns instructions, to be carried out in their order: stops, then starts, then what to send. The
    machine has no clock: `now_ms` must come from one that counts suspended time, and after each input the caller sees
    to it that `tick` is called at `wake_at_ms`. Answers may come late, twice, in any order or not at all.

    `new_member_id` returns an id that was never used before, at each call. `on_disk` is the state that the process
    finds when it starts. `replaces` is the id of this worker's previous process, if that is known, and known to be
    dead.
    """

    def __init__(
        self,
        settings: MemberSettings,
        new_member_id: Callable[[], str],
        *,
        on_disk: Mapping[str, Progress] | None = None,
        replaces: str | None = None,
    ) -> None:
        self._settings = settings
        self._new_member_id = new_member_id
        self.phase = Phase.NEW
        """Where this process stands with its group, to be read only."""
        self.statuses: tuple[Status, ...] = ()
        """The statuses that the coordinator last gave this member, to be read only."""
        self._run = Run("")
        self._holdings = Holdings(on_disk=dict(on_disk or {}))
        self._numbers: dict[str, float] = {}
        self._main = Channel(settings.jitter_seed)
        self._poll = Channel(settings.jitter_seed + 1)
        self._drain = Channel(settings.jitter_seed + 2)
        self._now_ms = _NEVER_MS
        self._out: list[Instruction] = []
        # The next heartbeat has news, and does not wait for the interval.
        self._is_urgent = False
        # When the last heartbeat or join was first sent; the interval counts from there.
        self._interval_from_ms = _NEVER_MS
        self._leave_mode = LeaveMode.LEAVE
        self._drain_wish: DrainWish | None = None
        # The problem last shown for each kind of request, until a request of the kind succeeds.
        self._shown: dict[RequestKind, tuple[str, int]] = {}
        # What the next join replaces: the last run, or at first the previous process. Its actives have stopped by then.
        self._replaces = replaces
        self._topology_epoch = settings.topology_epoch
        self._takeover = settings.takeover
        # Runs in a row that ended before any of their heartbeats was answered.
        self._short_runs = 0

    # --- looks --------------------------------------------------------------------------------------------------

    @property
    def member_id(self) -> str | None:
        """The id of the present run, or of the last one; None before the first join."""
        return self._run.member_id or None

    @property
    def member_epoch(self) -> int:
        """The highest epoch taken on any channel in this run; -1 before the first answer."""
        return self._run.epoch

    @property
    def seq(self) -> int:
        """The number of the last heartbeat of this run; 0 before the first."""
        return self._holdings.seq

    @property
    def assignment(self) -> Assignment:
        """What this member may hold, as far as it knows."""
        return self._run.assignment

    @property
    def holdings(self) -> Mapping[str, Holding]:
        """What this member holds now, by task."""
        return self._holdings.held

    @property
    def on_disk(self) -> Mapping[str, Progress]:
        """State on disk that is not being followed, by task."""
        return self._holdings.on_disk

    @property
    def lease_end_ms(self) -> int | None:
        """When the lease is over, or None where there is none."""
        return self._run.lease.end_ms

    @property
    def wake_at_ms(self) -> int | None:
        """When `tick` is due; None when nothing is due before the worker's next input."""
        times = [channel.wake_at_ms for channel in self._channels()]
        if self._settings.on_lease_lost is OnLeaseLost.STOP and self.phase in HAS_LEASE:
            times.append(self._run.lease.next_end_ms)
        return min((time for time in times if time is not None), default=None)

    def lease_is_over(self, now_ms: int) -> bool:
        """Whether the lease has run out, or never began."""
        return self._run.lease.is_over(max(now_ms, self._now_ms))

    def may_process(self, task: str, now_ms: int) -> bool:
        """Whether the task may still write: ask before every output and every commit.

        A task that is to stop with a commit may still write, because it has to commit.
        """
        holding = self._holdings.held.get(task)
        if holding is None or holding.role is not Role.ACTIVE or not holding.may_write:
            return False
        return self._settings.on_lease_lost is OnLeaseLost.CONTINUE or not self.lease_is_over(now_ms)

    # --- inputs: time and the wire --------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Instruction]:
        """Join the group. Only the first call does anything."""
        self._open(now_ms)
        if Event.STARTED in NEXT_PHASE[self.phase]:
            self._begin_run(Event.STARTED)
        return self._close()

    def tick(self, now_ms: int) -> list[Instruction]:
        """Do what is due by time: the end of the lease, the next heartbeat, the repetition of an overdue request."""
        self._open(now_ms)
        return self._close()

    def on_answer(
        self, request: Request, status: int, body: Mapping[str, object] | None, *, now_ms: int
    ) -> list[Instruction]:
        """Take the answer to a request, however late, doubled or out of order it comes."""
        self._open(now_ms)
        if request.member_id == self._run.member_id and self.phase in SENDS:
            try:
                if 200 <= status < 300:
                    self._accepted(request, status, body)
                else:
                    self._refused(request, parse_problem(status, body))
            except MalformedAnswer as error:
                self._show(request.kind, Problem(type="malformed-answer", status=status, detail=str(error)))
                self._give_up(request)
        return self._close()

    def on_no_answer(self, request: Request, *, now_ms: int) -> list[Instruction]:
        """Record that a request got no answer (refused connection, broken socket, the caller's own timeout).

        It need not be called: the machine gives a request up by itself after its `timeout_ms`.
        """
        self._open(now_ms)
        self._give_up(request)
        return self._close()

    # --- inputs: news of the work -----------------------------------------------------------------------------------

    def task_restoring(self, task: str, *, now_ms: int, progress: Progress | None = None) -> list[Instruction]:
        """Record that an active reads its changelog, and its position."""
        self._open(now_ms)
        self._holdings.staged(task, Stage.RESTORING, progress=progress)
        return self._close()

    def task_running(self, task: str, *, now_ms: int) -> list[Instruction]:
        """Record that an active is running."""
        return self._told(now_ms, lambda: self._holdings.staged(task, Stage.RUNNING))

    def task_failed(self, task: str, detail: str, *, now_ms: int) -> list[Instruction]:
        """Record that an active failed; the member keeps it until it is revoked."""
        return self._told(now_ms, lambda: self._holdings.staged(task, Stage.FAILED, detail=plain_detail(detail)))

    def task_stopped(self, task: str, *, now_ms: int, final_position: Offsets | None = None) -> list[Instruction]:
        """Record that a task has stopped; `final_position` is where an active's changelog ends.

        With several changelogs it is given by topic. A task that stopped unasked starts again once a later heartbeat is
        answered with the task still in the assignment.
        """
        return self._given_up(self._holdings.stopped, task, final_position, now_ms)

    def task_demoted(self, task: str, *, now_ms: int, final_position: Offsets | None = None) -> list[Instruction]:
        """Record that an active stopped after its last commit and continues as a copy."""
        return self._given_up(self._holdings.demoted, task, final_position, now_ms)

    def _told(self, now_ms: int, note: Callable[[], bool | None]) -> list[Instruction]:
        """Take news of the work; if ``note`` says so, it does not wait for the interval."""
        self._open(now_ms)
        self._is_urgent |= note() or False
        return self._close()

    def _given_up(
        self, note: Callable[..., bool], task: str, final_position: Offsets | None, now_ms: int
    ) -> list[Instruction]:
        granted = self._run.assignment.roles.get(task) is Role.ACTIVE
        # Before the turn begins, so that the end of the lease does not ask a task to stop that has stopped.
        asked = note(task, final_position, still_granted=granted)
        self._open(now_ms)
        self._is_urgent |= asked
        self._follow()
        return self._close()

    def copy_progress(self, task: str, progress: Progress, *, now_ms: int) -> list[Instruction]:
        """Record the progress of a copy, or of an active that restores."""
        return self._told(now_ms, lambda: self._holdings.progressed(task, progress))

    def input_lag(self, task: str, lag: int, *, now_ms: int) -> list[Instruction]:
        """Record an active's input lag. It is shown to people and decides nothing."""
        return self._told(now_ms, lambda: self._holdings.input_lagged(task, lag))

    def load(self, task: str, load: float, *, now_ms: int) -> list[Instruction]:
        """Record how much of one unit of capacity an active, or a copy, uses.

        Raises:
            TypeError, ValueError: when it is no number from 0 to `LOAD_MAX`.
        """
        plain = checked_load(load)
        return self._told(now_ms, lambda: self._holdings.loaded(task, plain))

    def state_lost(self, task: str, *, now_ms: int) -> list[Instruction]:
        """Record that a task's state is lost. An active must have stopped processing; it may restore again."""
        return self._told(now_ms, lambda: self._holdings.lost(task))

    def disk_bytes(self, sizes: Mapping[str, int], *, now_ms: int) -> list[Instruction]:
        """Record the bytes on disk of each task's state, whatever its role."""
        return self._told(now_ms, lambda: self._holdings.disk_measured(sizes))

    def numbers(self, said: Mapping[str, float], *, now_ms: int) -> list[Instruction]:
        """Record what this member says of itself, beside its tasks. The next heartbeats say it."""
        self._open(now_ms)
        self._numbers = dict(said)
        return self._close()

    def state_removed(self, task: str, *, now_ms: int) -> list[Instruction]:
        """Record that the state on disk of a task that is not held is no longer usable."""
        return self._told(now_ms, lambda: self._holdings.removed(task))

    def producer_fenced(self, task: str, *, now_ms: int) -> list[Instruction]:
        """Record that an active's producer was fenced: another member may have a newer token.

        The task stops, and starts again only if a later heartbeat is answered with the task still in the assignment.
        """
        self._open(now_ms)
        stops = self._holdings.fenced(task)
        self._is_urgent |= bool(stops)
        self._out += stops
        return self._close()

    # --- inputs: what the worker wants ------------------------------------------------------------------------------

    def drain(self, *, now_ms: int, deadline_ms: int | None = None) -> list[Instruction]:
        """Ask the coordinator to hand the tasks over; the status `drained` says when that is done."""
        self._open(now_ms)
        by_ms = None if deadline_ms is None else now_ms + deadline_ms
        self._ask_about_drain(DrainWish(is_wanted=True, asked_ms=now_ms, by_ms=by_ms))
        return self._close()

    def undrain(self, *, now_ms: int) -> list[Instruction]:
        """Cancel a drain."""
        self._open(now_ms)
        self._ask_about_drain(DrainWish(is_wanted=False, asked_ms=now_ms))
        return self._close()

    def leave(self, *, now_ms: int, mode: LeaveMode = LeaveMode.LEAVE) -> list[Instruction]:
        """Stop everything with a commit, then tell the coordinator, and end with `StopForGood`.

        Raises:
            ValueError: for a restart without an instance id, which the coordinator would refuse.
        """
        if mode is LeaveMode.RESTART and self._settings.instance_id is None:
            raise ValueError("leaving to restart needs an instance id, for that is what comes back")
        self._open(now_ms)
        if Event.LEAVES in NEXT_PHASE[self.phase]:
            self._leave_mode = mode
            self._poll.clear()
            self._drain.clear()
            self._enter(Event.LEAVES)
            if self.phase is Phase.LEFT:
                self._end("left")
            elif self.phase is Phase.ENDING:
                self._out += self._holdings.stop_copies()
            else:
                self._follow()
        return self._close()

    # --- a turn: every input opens one, says what happened, and closes it ---------------------------------------------

    def _open(self, now_ms: int) -> None:
        """Begin a turn: check the lease first, before anything else can count on it."""
        self._now_ms = max(self._now_ms, now_ms)
        self._notice_lease_end()

    def _close(self) -> list[Instruction]:
        """End a turn: do what waits for the actives to stop, give up overdue requests, send what is due."""
        if Event.ACTIVES_STOPPED in NEXT_PHASE[self.phase] and not self._holdings.has_actives():
            self._actives_have_stopped()
        for channel in self._channels():
            if channel.is_overdue(self._now_ms):
                self._fail(channel)
        if self._is_urgent and SENDS.get(self.phase) is RequestKind.HEARTBEAT:
            self._main.hurry(self._now_ms)
        if self._main.is_due(self._now_ms):
            self._send(self._main, self._next_main())
        if self._poll.is_due(self._now_ms):
            self._send(self._poll, self._poll_request())
        if self._drain.is_due(self._now_ms) and self._drain_wish is not None:
            self._send(self._drain, self._drain_request(self._drain_wish))
        out, self._out = self._out, []
        return out

    def _enter(self, event: Event) -> None:
        self.phase = NEXT_PHASE[self.phase][event]

    def _channels(self) -> tuple[Channel, Channel, Channel]:
        return self._main, self._poll, self._drain

    def _clear_channels(self) -> None:
        for channel in self._channels():
            channel.clear()
        self._is_urgent = False

    def _notice_lease_end(self) -> None:
        """If the lease has run out since the last look, stop what must not outlive it."""
        if self.phase in HAS_LEASE and self._run.lease.notice_end(self._now_ms, self._holdings.seq):
            if self._settings.on_lease_lost is OnLeaseLost.STOP:
                self._out += self._holdings.stop_actives()
            if self.phase is not Phase.GOODBYE:
                # Only the answer to a heartbeat that is sent from now on lets tasks start again.
                self._main.abandon(self._now_ms)
                self._is_urgent = True

    def _follow(self, *, changed: bool = False) -> None:
        """Bring the holdings toward the assignment: stop what is not in it, then start what may start."""
        if self.phase is Phase.JOINED:
            may_start = self._run.lease.may_start(self._now_ms)
            done = self._holdings.follow(self._run.assignment, may_start=may_start)
        elif self.phase in (Phase.LEAVING, Phase.GOODBYE):
            done = self._holdings.follow(NOTHING_HELD, may_start=False)
        else:
            return
        # An active that is to stop is news only once it has stopped; a heartbeat now would delay the one that says so.
        gives_up = any(isinstance(each, Stop) and each.role is Role.ACTIVE for each in done)
        self._is_urgent |= (changed or bool(done)) and not gives_up
        self._out += done

    # --- the beginning and the end of a run ---------------------------------------------------------------------------

    def _begin_run(self, event: Event) -> None:
        """Join with a new id: at once, unless the runs before it ended as soon as they began."""
        if self._run.member_id:
            self._replaces, self._takeover = self._run.member_id, False
            self._short_runs = 0 if self._run.is_established else self._short_runs + 1
        self._run = Run(self._new_member_id(), Lease(self._settings.stop_early_ms))
        self._holdings.begin_run()
        self._enter(event)
        self._clear_channels()
        wait_ms = backoff_ms(self._short_runs, RETRY_MAX_MS, self._settings.jitter_seed) if self._short_runs else 0
        self._main.due_ms = self._now_ms + wait_ms

    def _actives_have_stopped(self) -> None:
        """Do what had to wait until no task is active here."""
        match self.phase:
            case Phase.FENCED:
                self._begin_run(Event.ACTIVES_STOPPED)
            case Phase.LEAVING:
                self._enter(Event.ACTIVES_STOPPED)
                self._main.clear()
                self._main.due_ms = self._now_ms
            case _:
                self._enter(Event.ACTIVES_STOPPED)
                self._end("left")

    def _fence(self, problem: Problem) -> None:
        """Stop every active without committing; once the worker has acknowledged that, the next run joins."""
        self._enter(Event.REFUSED)
        self._clear_channels()
        self._out += self._holdings.stop_actives()
        if self.phase is Phase.FENCED:
            self._out.append(Rejoining(self._run.member_id, problem))

    def _end(self, reason: str) -> None:
        """Tell the worker that nothing more is sent."""
        self._clear_channels()
        self._out.append(StopForGood(reason))

    # --- what is answered ---------------------------------------------------------------------------------------------

    def _channel_of(self, kind: RequestKind) -> Channel:
        match kind:
            case RequestKind.POLL:
                return self._poll
            case RequestKind.DRAIN | RequestKind.UNDRAIN:
                return self._drain
            case RequestKind.JOIN | RequestKind.HEARTBEAT | RequestKind.LEAVE:
                return self._main

    def _accepted(self, request: Request, status: int, body: object) -> None:
        """Take an answer of status 2xx.

        Raises:
            MalformedAnswer: when the body does not have the protocol's shape; nothing has changed then.
        """
        match request.kind:
            case RequestKind.JOIN | RequestKind.HEARTBEAT:
                self._answered(request, answer_to(request, body))
            case RequestKind.POLL:
                self._polled(request, None if status == 204 else answer_to(request, body))
            case RequestKind.DRAIN | RequestKind.UNDRAIN:
                if self._drain_wish is not None and self._drain_wish.is_asked_by(request):
                    self._drain.clear()
            case RequestKind.LEAVE:
                self._enter(Event.LEAVE_ENDED)
                self._end("left")
        self._shown.pop(request.kind, None)

    def _answered(self, request: Request, answer: Answer) -> None:
        """Take the answer to a join or heartbeat. It renews the lease, confirms reports, may bring an assignment."""
        run, lease = self._run, self._run.lease
        could_start = lease.may_start(self._now_ms)
        changed = run.take(answer, seq=self._holdings.seq)
        run.lease_answered(answer, seq=request.seq, first_sent_ms=request.first_sent_ms)
        freed = self._holdings.answered(request.seq)
        if self.phase is Phase.JOINING:
            self._joined()
        elif self._main.is_answer_to(request):
            self._main.answered()
            self._heartbeat_later()
        # A lowered timeout may have ended the lease a while ago.
        self._notice_lease_end()
        self._taken(changed=changed, may_start=freed or (not could_start and lease.may_start(self._now_ms)))

    def _joined(self) -> None:
        self._enter(Event.JOIN_ANSWERED)
        self._main.clear()
        self._heartbeat_later()
        self._out.append(Joined(self._run.member_id))
        if self._topology_epoch is None and self._run.latest is not None:
            # The same program joins anew, whatever is declared by then.
            self._topology_epoch = self._run.latest.topology_epoch
        if self._settings.listen:
            self._poll.due_ms = self._now_ms
        if self._drain_wish is not None and self._drain_wish.is_wanted:
            self._ask_about_drain(self._drain_wish)

    def _polled(self, request: Request, answer: Answer | None) -> None:
        """Take the answer to a long-poll, which may bring an assignment but never renews the lease."""
        is_mine = self._poll.is_answer_to(request)
        if is_mine:
            self._poll.answered()
            has_news = answer is not None and answer.member_epoch > int(request.query["after"])
            least_ms = LEAST_GAP_MS if has_news else POLL_LEAST_MS
            self._poll.due_ms = max(self._now_ms, self._poll.sent_ms + least_ms)
        if answer is None:
            return
        if answer.member_epoch < self._run.epoch and is_mine:
            # The epoch is below what this member has seen: the coordinator's store may have lost commits. Only a
            # heartbeat can report that; until then the coordinator would answer each poll at once.
            self._poll.due_ms = self._now_ms + POLL_RETRY_MAX_MS
            self._is_urgent |= answer.member_epoch < int(request.query["after"])
        self._taken(changed=self._run.take(answer, seq=self._holdings.seq))

    def _taken(self, *, changed: bool, may_start: bool = False) -> None:
        """Act on an answer that was taken; with ``may_start``, something that waited may start."""
        if changed or may_start:
            self._follow(changed=changed)
        latest = self._run.latest
        if latest is not None:
            self._holdings.acceptable_lag = latest.acceptable_recovery_lag
            self._holdings.acceptable_catchup_ms = latest.acceptable_catchup_ms
        if latest is not None and latest.statuses != self.statuses:
            self.statuses = latest.statuses
            self._out.append(StatusChanged(self.statuses))

    def _refused(self, request: Request, problem: Problem) -> None:
        """Take a refusal.

        Raises:
            MalformedAnswer: when the refusal comes with an assignment that does not have the protocol's shape.
        """
        channel = self._channel_of(request.kind)
        verdict = _judge(request.kind, problem)
        if request.kind is RequestKind.LEAVE and verdict in (Verdict.REJOIN, Verdict.STOP):
            # A member that the coordinator does not know has left.
            self._enter(Event.LEAVE_ENDED)
            self._end("left")
        elif verdict is Verdict.STOP:
            self._enter(Event.REPLACED)
            self._out += self._holdings.stop_actives() + self._holdings.stop_copies()
            self._end(problem.type or problem.action or "stop")
        elif verdict is Verdict.REJOIN:
            self._fence(problem)
        elif verdict is Verdict.TAKE_ASSIGNMENT:
            self._take_from_refusal(request, problem)
        elif channel.is_waiting_for(request):
            self._show(request.kind, problem)
            self._fail(channel, wait_ms=self._wait_ms(problem))
            if problem.status < 500:
                # The coordinator received and judged it: the next try is a new request, and not a retry.
                channel.unanswered = None
                if channel is self._drain and problem.retry_after_ms is None:
                    channel.due_ms = None

    def _take_from_refusal(self, request: Request, problem: Problem) -> None:
        """Take the assignment in a refusal. The next heartbeat echoes it; the lease is not renewed."""
        changed = self._run.take(answer_to(request, problem.answer), seq=self._holdings.seq)
        if self._main.is_waiting_for(request):
            if changed:
                self._main.answered()
                self._heartbeat_later()
            else:
                self._fail(self._main)
                self._main.unanswered = None
        self._taken(changed=changed)

    def _show(self, kind: RequestKind, problem: Problem) -> None:
        """Report a problem to the worker, once until a request of the kind succeeds."""
        if self._shown.get(kind) != (problem.type, problem.status):
            self._shown[kind] = (problem.type, problem.status)
            self._out.append(ProblemSeen(kind, problem))

    def _give_up(self, request: Request) -> None:
        """Stop waiting for an answer to this attempt, if it is the one under way."""
        channel = self._channel_of(request.kind)
        if channel.in_flight is not None and channel.in_flight == request:
            self._fail(channel)

    def _fail(self, channel: Channel, *, wait_ms: int | None = None) -> None:
        """Give a request up, to be tried again later."""
        attempt = channel.in_flight.attempt if channel.in_flight else 0
        if channel is self._poll:
            channel.failed(self._now_ms, cap_ms=POLL_RETRY_MAX_MS, wait_ms=wait_ms or 0)
            if channel.failures == 1 and wait_ms is None:
                channel.due_ms = self._now_ms + LEAST_GAP_MS
        elif self.phase is Phase.GOODBYE and attempt >= LEAVE_ATTEMPTS_LEAST and self._run.lease.is_over(self._now_ms):
            self._enter(Event.LEAVE_ENDED)
            self._end("left without an answer")
        else:
            channel.failed(self._now_ms, cap_ms=min(RETRY_MAX_MS, self._interval_ms()), wait_ms=wait_ms or 0)

    def _wait_ms(self, problem: Problem) -> int | None:
        """Return how long a refusal makes the member wait, or None where its own backoff decides.

        The sender of a refusal, which may be a proxy, does not know when this member's lease ends. So the member waits
        for at most half of what is left of its lease, and tries again within it.
        """
        if problem.retry_after_ms is None:
            return None
        longest_ms = self._interval_ms()
        if problem.type in WAITED_OUT:
            lease = self._run.lease
            if lease.end_ms is None or lease.is_over(self._now_ms):
                longest_ms = REFUSED_WAIT_MAX_MS
            else:
                longest_ms = max(longest_ms, (lease.end_ms - self._now_ms) // 2)
        return min(problem.retry_after_ms, longest_ms)

    def _interval_ms(self) -> int:
        latest = self._run.latest
        return RETRY_MAX_MS if latest is None else latest.heartbeat_interval_ms

    def _heartbeat_later(self) -> None:
        self._main.due_ms = max(self._now_ms, self._interval_from_ms + self._interval_ms())

    # --- what is sent -------------------------------------------------------------------------------------------------

    def _send(self, channel: Channel, request: Request) -> None:
        channel.sent(request)
        self._out.append(Send(request))

    def _next_main(self) -> Request:
        """Return the next request, new or repeated: a join, a heartbeat or a leave."""
        kind, last = SENDS[self.phase], self._main.unanswered
        if last is not None and (kind is not RequestKind.HEARTBEAT or self._is_still_true(last)):
            return replace(last, attempt=last.attempt + 1, sent_ms=self._now_ms)
        if kind is RequestKind.LEAVE:
            return self._request(kind, query={"mode": self._leave_mode.value})
        self._interval_from_ms = self._now_ms
        return self._join_request() if kind is RequestKind.JOIN else self._heartbeat_request()

    def _is_still_true(self, heartbeat: Request) -> bool:
        """Whether a heartbeat that got no answer says what a new one would say.

        A heartbeat that is older than the interval is not repeated in any case: the lease never counts from a retry, so
        a new one is worth more.
        """
        return (
            not self._is_urgent
            and not self._has_to_tell()
            and heartbeat.seq > self._run.full_after_seq
            and self._now_ms - heartbeat.first_sent_ms < self._interval_ms()
        )

    def _join_request(self) -> Request:
        settings = self._settings
        body: dict[str, object] = {"capacity": settings.capacity, "on_lease_lost": settings.on_lease_lost.value}
        optional: dict[str, object] = {
            "instance_id": settings.instance_id,
            "replaces": self._replaces,
            "max_tasks": settings.max_tasks,
            "max_disk_bytes": settings.max_disk_bytes,
            "topology_epoch": self._topology_epoch,
            "endpoint": settings.endpoint,
            "client_tags": dict(settings.client_tags) or None,
            "tasks": self._holdings.disk_report() or None,
            "takeover": self._takeover or None,
        }
        body |= {name: value for name, value in optional.items() if value is not None}
        return self._request(RequestKind.JOIN, body=body)

    def _heartbeat_request(self) -> Request:
        """Return the next heartbeat, which lists the tasks unless nothing has changed since an answer."""
        run, latest = self._run, self._run.latest
        if latest is None:
            raise ValueError("a heartbeat needs an answered join before it")
        self._is_urgent = False
        self._holdings.seq += 1
        seq = self._holdings.seq
        body: dict[str, object] = {**self._numbers, "seq": seq, "member_epoch": run.epoch}
        if self._has_to_tell() or run.must_list_tasks():
            body["tasks"] = self._holdings.report()
            run.listed(seq, self._now_ms)
        run.lease.sent(self._now_ms, latest.session_timeout_ms)
        patience_ms = min(latest.session_timeout_ms // 3, max(latest.heartbeat_interval_ms, LEAST_PATIENCE_MS))
        return self._request(RequestKind.HEARTBEAT, seq=seq, timeout_ms=max(1, patience_ms), body=body)

    def _has_to_tell(self) -> bool:
        """Whether the tasks differ from the last list in anything but what may wait, or have differed long enough."""
        latest, holdings = self._run.latest, self._holdings
        interval_ms = 0 if latest is None else latest.report_interval_ms
        return holdings.changed or (holdings.moved and self._now_ms >= self._run.listed_ms + interval_ms)

    def _poll_request(self) -> Request:
        wait_ms = self._settings.poll_wait_ms
        query = {"after": self._run.epoch, "wait_ms": wait_ms}
        return self._request(RequestKind.POLL, timeout_ms=wait_ms + self._settings.request_timeout_ms, query=query)

    def _drain_request(self, wish: DrainWish) -> Request:
        query = {} if wish.by_ms is None else {"deadline_ms": max(0, wish.by_ms - self._now_ms)}
        return self._request(RequestKind.DRAIN if wish.is_wanted else RequestKind.UNDRAIN, query=query)

    def _ask_about_drain(self, wish: DrainWish) -> None:
        """Send a wish to be drained, or no longer to be drained, to the coordinator: now, or once joined."""
        self._drain_wish = wish
        if self.phase is Phase.JOINED:
            self._drain.clear()
            self._drain.due_ms = self._now_ms

    def _request(
        self,
        kind: RequestKind,
        *,
        seq: int = 0,
        timeout_ms: int | None = None,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str | int] | None = None,
    ) -> Request:
        return Request(
            kind=kind,
            member_id=self._run.member_id,
            seq=seq,
            first_sent_ms=self._now_ms,
            sent_ms=self._now_ms,
            timeout_ms=self._settings.request_timeout_ms if timeout_ms is None else timeout_ms,
            body=body,
            query=query or {},
        )


def _judge(kind: RequestKind, problem: Problem) -> Verdict:
    if kind is RequestKind.JOIN and problem.type == "unknown-group":
        return Verdict.RETRY
    return ON_REFUSAL.get(problem.type) or ON_ACTION.get(problem.action or "", Verdict.RETRY)
