"""A member under a wire that loses, doubles, delays and reorders everything, on both channels.

The coordinator is the smallest that the protocol allows (`reference`), the worker's process is `truth`. Time is
virtual, and the member's timers fire on time, except while its machine is suspended, when it does nothing at all.
"""

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.worker.reference import TASKS, Reference
from tests.worker.scripted import reported
from tests.worker.truth import Truth, Work

from batonpass.worker.protocol import (
    Instruction,
    MemberProtocol,
    MemberSettings,
    OnLeaseLost,
    Phase,
    Progress,
    Request,
    RequestKind,
    Role,
    RoleChanged,
    Send,
    Start,
    Stop,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PICKS = st.integers(min_value=0, max_value=1_000)
WAITS = st.sampled_from([1, 20, 60, 150, 700, 2_100, 6_000, 9_999, 10_000])


class MemberUnderFire(RuleBasedStateMachine):
    """One member, one coordinator, a rival, and a wire without manners."""

    on_lease_lost = OnLeaseLost.STOP

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.ids = 0
        self.reference = Reference()
        self.truth = Truth()
        self.up: list[Request] = []
        self.down: list[tuple[Request, int, dict[str, object] | None]] = []
        self.seqs: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.bodies: dict[tuple[str, int], object] = {}
        self.granted: dict[str, int] = {}
        # Where actives stopped that the coordinator has not heard of: run and task to position.
        self.owed: dict[tuple[str, str], int] = {}

    def new_id(self) -> str:
        """Return an id that was never used."""
        self.ids += 1
        return f"run-{self.ids}"

    @initialize(listen=st.booleans(), early_ms=st.sampled_from([0, 500]), disk=st.booleans())
    def join(self, *, listen: bool, early_ms: int, disk: bool) -> None:
        """Start the worker."""
        self.member = MemberProtocol(
            MemberSettings(on_lease_lost=self.on_lease_lost, listen=listen, stop_early_ms=early_ms),
            self.new_id,
            on_disk={"0_0": Progress(position=3, end_offset=9)} if disk else {},
        )
        self.do(lambda: self.member.start(self.now_ms))

    # --- the member ----------------------------------------------------------------------------------------------

    def do(self, give: "Callable[[], list[Instruction]]") -> None:
        """Give the member an input, carry out what it says, and hold what it sends against its promises."""
        before = set(self.truth.works)
        started: set[str] = set()
        for each in give():
            if isinstance(each, Send):
                self.check_request(each.request)
                self.up.append(each.request)
                continue
            if isinstance(each, Start):
                if each.role is Role.ACTIVE:
                    self.check_start(each)
                started.add(each.task)
            elif isinstance(each, Stop | RoleChanged):
                assert not started, "whatever stops comes before whatever starts"
            self.truth.carry_out(each)
        assert not (self.truth.is_over and set(self.truth.works) - before), "nothing starts after the end"

    def check_start(self, start: Start) -> None:
        """Hold an active that starts against the assignment, the lease, and the tokens of the past."""
        assert start.fencing_token is not None
        assert self.member.phase is Phase.JOINED
        assert not self.member.lease_is_over(self.now_ms)
        assert self.member.assignment.grants[start.task].fencing_token == start.fencing_token
        assert start.fencing_token >= self.granted.get(start.task, 0), "an older token than one that was held"
        self.granted[start.task] = start.fencing_token
        self.owed = {key: position for key, position in self.owed.items() if key[1] != start.task}

    def check_request(self, request: Request) -> None:
        """Hold a request against what was sent before and what is true now."""
        if request.kind in (RequestKind.JOIN, RequestKind.LEAVE):
            assert not any(work.role == "active" for work in self.truth.works.values())
        if request.kind is not RequestKind.HEARTBEAT:
            return
        run = request.member_id
        assert request.body is not None
        epoch = request.body["member_epoch"]
        assert isinstance(epoch, int)
        if request.attempt > 1:
            assert self.bodies[run, request.seq] == request.body
        else:
            assert request.seq == self.seqs.get(run, 0) + 1
            self.bodies[run, request.seq] = request.body
            self.seqs[run] = request.seq
        assert epoch >= self.epochs.get(run, 0)
        self.epochs[run] = epoch
        if "tasks" in request.body:
            for task, work in self.truth.works.items():
                assert reported(request)[task]["role"] == work.role, "a report says what is"

    def run_until(self, until_ms: int, deliver: "Callable[[], None] | None" = None) -> None:
        """Let time pass, with the member's timers on time, and the laws looked at just before each of them."""
        while (wake_ms := self.member.wake_at_ms) is not None and wake_ms <= until_ms:
            self.now_ms = max(self.now_ms, wake_ms - 1)
            self.nobody_runs_what_is_free()
            self.now_ms = max(self.now_ms, wake_ms)
            self.do(lambda: self.member.tick(self.now_ms))
            if deliver is not None:
                deliver()
        self.now_ms = until_ms
        self.do(lambda: self.member.tick(self.now_ms))
        self.nobody_runs_what_is_free()

    @rule(ms=WAITS)
    def wait(self, ms: int) -> None:
        """Let time pass in silence."""
        self.run_until(self.now_ms + ms)

    @rule(ms=WAITS, beats=st.booleans(), polls=st.booleans())
    def flow(self, ms: int, *, beats: bool, polls: bool) -> None:
        """Let time pass while every request arrives at once, and so do the answers of some channels."""

        def deliver() -> None:
            while self.up:
                request = self.up.pop(0)
                status, body = self.receive(request)
                if request.kind is RequestKind.POLL and status == 204:
                    continue
                if polls if request.kind is RequestKind.POLL else beats:
                    self.answer(request, status, body)
                else:
                    self.down.append((request, status, body))

        deliver()
        self.run_until(self.now_ms + ms, deliver)

    @rule(ms=WAITS, pick=PICKS)
    def suspend(self, ms: int, pick: int) -> None:
        """Let time pass while the member's machine is suspended; whatever comes first wakes it."""
        self.now_ms += ms
        if self.down and pick % 2:
            self.arrive(pick)
        else:
            self.do(lambda: self.member.tick(self.now_ms))
        self.reference.pass_time(self.now_ms)

    def receive(self, request: Request) -> tuple[int, dict[str, object] | None]:
        """Let the coordinator take a request, and note what it heard of final positions."""
        seat = self.reference.seats.get(request.member_id)
        before = seat.seq if seat else 0
        status, body = self.reference.receive(request, self.now_ms)
        if seat is not None and seat.seq > before and "tasks" in (request.body or {}):
            for task, fields in reported(request).items():
                if fields.get("final_position") == self.owed.get((request.member_id, task), -1):
                    del self.owed[request.member_id, task]
        return status, body

    # --- the wire ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.up)
    @rule(pick=PICKS, twice=st.booleans())
    def reach(self, pick: int, *, twice: bool) -> None:
        """Let some request reach the coordinator, and stay on the wire if it is to come twice."""
        at = pick % len(self.up)
        request = self.up[at] if twice else self.up.pop(at)
        self.down.append((request, *self.receive(request)))

    @precondition(lambda self: self.up)
    @rule()
    def reach_newest(self) -> None:
        """Let the newest request be answered at once, as on a wire that works."""
        request = self.up.pop()
        self.answer(request, *self.receive(request))

    @precondition(lambda self: self.down)
    @rule(pick=PICKS, twice=st.booleans())
    def come(self, pick: int, *, twice: bool) -> None:
        """Let some answer reach the member, and stay on the wire if it is to come twice."""
        self.arrive(pick, twice=twice)

    def arrive(self, pick: int, *, twice: bool = False) -> None:
        """Bring one answer of those on the wire."""
        at = pick % len(self.down)
        self.answer(*(self.down[at] if twice else self.down.pop(at)))

    def answer(self, request: Request, status: int, body: dict[str, object] | None) -> None:
        """Let an answer reach the member now."""
        self.do(lambda: self.member.on_answer(request, status, body, now_ms=self.now_ms))

    @precondition(lambda self: self.up or self.down)
    @rule(pick=PICKS)
    def lose(self, pick: int) -> None:
        """Lose a request or an answer."""
        lane = self.up if self.up and (pick % 2 or not self.down) else self.down
        lane.pop(pick % len(lane))

    @precondition(lambda self: self.up)
    @rule(pick=PICKS)
    def break_off(self, pick: int) -> None:
        """Let the member hear that a request got no answer, though it may still arrive."""
        request = self.up[pick % len(self.up)]
        self.do(lambda: self.member.on_no_answer(request, now_ms=self.now_ms))

    # --- the coordinator -----------------------------------------------------------------------------------------

    @rule(task=st.sampled_from(TASKS), role=st.sampled_from(["active", "active", "standby", "warmup"]))
    def give(self, task: str, role: str) -> None:
        """Let the coordinator put something into the member's assignment."""
        self.reference.give(task, role)

    @rule(task=st.sampled_from(TASKS))
    def take(self, task: str) -> None:
        """Let the coordinator take something out of it."""
        self.reference.take(task)

    @rule(task=st.sampled_from(TASKS))
    def rival_takes(self, task: str) -> None:
        """Let the rival have what is free."""
        self.reference.rival_takes(task)

    @rule(task=st.sampled_from(TASKS))
    def rival_stops(self, task: str) -> None:
        """Let the rival give a task up."""
        self.reference.rivals.discard(task)

    @rule(ms=st.sampled_from([4_000, 10_000, 20_000]))
    def change_session_timeout(self, ms: int) -> None:
        """Let an operator change the session timeout; assignments change with it, as a new config does."""
        self.reference.session_ms = ms
        self.reference.interval_ms = (ms - 1_000) // 3
        seat = self.reference.live()
        if seat is not None:
            seat.epoch += 1

    @rule(pick=PICKS)
    def trouble(self, pick: int) -> None:
        """Let the coordinator load for a while, want a report, or now and then fence the member."""
        seat = self.reference.live()
        if pick % 8 == 0:
            self.reference.fence()
        elif pick % 2 and seat is not None:
            seat.wants_report = True
        else:
            self.reference.loading = not self.reference.loading

    # --- the work ------------------------------------------------------------------------------------------------

    @rule(pick=PICKS, position=st.none() | st.integers(0, 99))
    def acknowledge(self, pick: int, position: int | None) -> None:
        """Let the worker finish what it was asked for."""
        waiting = sorted(task for task, work in self.truth.works.items() if work.asked)
        if not waiting:
            return
        task = waiting[pick % len(waiting)]
        work = self.truth.works[task]
        holding = self.member.holdings[task]
        self.owed.pop((self.member.member_id or "", task), None)
        if work.role == "active" and position is not None:
            self.owed[self.member.member_id or "", task] = position
        if work.asked == "demote":
            assert holding.stopping is not None
            self.truth.works[task] = Work((holding.stopping.becomes or Role.STANDBY).value)
            self.do(lambda: self.member.task_demoted(task, now_ms=self.now_ms, final_position=position))
        else:
            del self.truth.works[task]
            self.do(lambda: self.member.task_stopped(task, now_ms=self.now_ms, final_position=position))

    @rule(pick=PICKS, what=st.sampled_from(["restoring", "running", "failed", "lost", "fenced", "progress", "ended"]))
    def news(self, pick: int, what: str) -> None:
        """Let something happen to the work."""
        if not self.truth.works:
            return
        task = sorted(self.truth.works)[pick % len(self.truth.works)]
        member, now_ms = self.member, self.now_ms
        match what:
            case "restoring":
                self.do(lambda: member.task_restoring(task, now_ms=now_ms, progress=Progress(position=pick)))
            case "running":
                self.do(lambda: member.task_running(task, now_ms=now_ms))
            case "failed":
                self.do(lambda: member.task_failed(task, "poison", now_ms=now_ms))
            case "lost":
                self.do(lambda: member.state_lost(task, now_ms=now_ms))
            case "fenced" if self.truth.works[task].role == "active":
                self.do(lambda: member.producer_fenced(task, now_ms=now_ms))
            case "progress":
                self.do(lambda: member.copy_progress(task, Progress(lag=pick * 3), now_ms=now_ms))
            case "ended" if not self.truth.works[task].asked:
                del self.truth.works[task]
                self.do(lambda: member.task_stopped(task, now_ms=now_ms))

    @rule(pick=st.integers(0, 30))
    def go(self, pick: int) -> None:
        """Now and then, let the worker leave."""
        if pick == 0:
            self.do(lambda: self.member.leave(now_ms=self.now_ms))

    # --- the laws ------------------------------------------------------------------------------------------------

    @invariant()
    def nobody_runs_what_is_free(self) -> None:
        """L1: what the coordinator may give to somebody else at this instant, this worker does not run."""
        self.reference.pass_time(self.now_ms)
        if self.on_lease_lost is OnLeaseLost.STOP:
            for task, work in self.truth.works.items():
                writes = work.writes and self.member.may_process(task, self.now_ms)
                others_may = task in self.reference.rivals or self.reference.is_free(task)
                assert not (writes and others_may), f"somebody else may run {task}"

    @invariant()
    def no_active_outlives_the_lease(self) -> None:
        """With `stop`, nothing writes once the lease is over: every active was told to stop without a commit."""
        if self.on_lease_lost is OnLeaseLost.STOP and self.now_ms and self.member.lease_is_over(self.now_ms):
            assert not any(work.writes for work in self.truth.works.values())

    @invariant()
    def machine_and_worker_agree(self) -> None:
        """What the machine believes to be held is what the worker has."""
        if not self.now_ms:
            return
        holdings = self.member.holdings
        assert {task: holding.role.value for task, holding in holdings.items()} == {
            task: work.role for task, work in self.truth.works.items()
        }
        for task, work in self.truth.works.items():
            assert (holdings[task].stopping is not None) == bool(work.asked)
            assert work.role != "active" or holdings[task].token == work.token

    @invariant()
    def the_machine_never_sleeps_for_good(self) -> None:
        """As long as it talks, there is a time at which it wakes."""
        if self.now_ms and self.member.phase in (Phase.JOINING, Phase.JOINED, Phase.LEAVING, Phase.GOODBYE):
            assert self.member.wake_at_ms is not None

    def teardown(self) -> None:
        """Progress once the faults stop: the wire works, the worker acknowledges, and the assignment comes true."""
        if not self.ids:
            return
        self.reference.loading = False
        self.up.clear()
        self.down.clear()
        for _ in range(300):
            if self.is_settled():
                return
            self.acknowledge(0, None)
            self.flow(200, beats=True, polls=True)
        assert self.is_settled(), "the assignment never came true"

    def is_settled(self) -> bool:
        """Whether the worker has what the coordinator's assignment says, and the coordinator knows; or it has left."""
        if self.truth.is_over:
            return True
        seat = self.reference.live()
        return (
            seat is not None
            and self.member.phase is Phase.JOINED
            and {task: work.role for task, work in self.truth.works.items()} == seat.roles
            and not seat.revoked_at
            and all(work.token == self.reference.tokens[task] for task, work in self.truth.works.items() if work.token)
            and not any(run == self.member.member_id and task not in seat.roles for run, task in self.owed)
        )


class MemberThatContinues(MemberUnderFire):
    """The same with a member whose outputs are fenced, and which goes on when its lease is over."""

    on_lease_lost = OnLeaseLost.CONTINUE

    @rule(task=st.sampled_from(TASKS))
    def suspected(self, task: str) -> None:
        """Let the rival take over what the member still runs, for its writes are refused from then on."""
        self.reference.suspect(task)
