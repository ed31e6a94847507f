"""The smallest coordinator that the protocol allows, for one member under test and a rival that takes what is free.

It follows the text word for word and nothing else: no placement, no persistence. What it grants to the rival is what
the protocol calls free, so a member that breaks its side runs a task which the rival runs too. Requests reach it in any
order, late, twice or not at all.
"""

from dataclasses import dataclass, field

from tests.worker.scripted import answer, assignment, problem

from batonpass.worker.protocol import Request, RequestKind

TASKS = ("0_0", "0_1", "0_2")


@dataclass
class Seat:
    """What the coordinator knows of one run of the member."""

    epoch: int = 1
    # The highest epoch that the member echoed, and the last heartbeat processed.
    echoed: int = 0
    seq: int = 0
    roles: dict[str, str] = field(default_factory=dict)
    # Actives taken away, by the epoch that said so.
    revoked_at: dict[str, int] = field(default_factory=dict)
    heard_ms: int = 0
    # Session timeouts answered, by the epoch of the answer.
    timeouts: list[tuple[int, int]] = field(default_factory=list)
    is_gone: bool = False
    wants_report: bool = False

    def lease_end_ms(self) -> int:
        """Until when this run may believe in its tasks, at the latest."""
        since = [timeout for epoch, timeout in self.timeouts if epoch >= self.echoed]
        return self.heard_ms + max(since, default=0)


@dataclass
class Reference:
    """A group of three tasks, the member's runs, and what the rival runs."""

    session_ms: int = 10_000
    interval_ms: int = 2_000
    seats: dict[str, Seat] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TASKS, 0))
    rivals: set[str] = field(default_factory=set)
    # What the coordinator heard given up, in order: run, task, epoch of the heartbeat.
    confirmed: list[tuple[str, str, int]] = field(default_factory=list)
    loading: bool = False

    def live(self) -> Seat | None:
        """Return the member's present run."""
        return next((seat for seat in self.seats.values() if not seat.is_gone), None)

    # --- what the coordinator does of its own accord ---------------------------------------------------------------

    def is_free(self, task: str) -> bool:
        """Whether nobody may run the task."""
        return task not in self.rivals and all(
            seat.roles.get(task) != "active" and task not in seat.revoked_at for seat in self.seats.values()
        )

    def give(self, task: str, role: str) -> None:
        """Put a task into the member's assignment, an active only if it is free."""
        seat = self.live()
        if seat is None or seat.roles.get(task) == role or task in seat.revoked_at:
            return
        if role == "active" and not self.is_free(task):
            return
        if role == "active":
            self.tokens[task] += 1
        elif seat.roles.get(task) == "active":
            seat.revoked_at[task] = seat.epoch + 1
        seat.roles[task] = role
        seat.epoch += 1

    def take(self, task: str) -> None:
        """Take a task out of the member's assignment."""
        seat = self.live()
        if seat is None or task not in seat.roles:
            return
        seat.epoch += 1
        if seat.roles.pop(task) == "active":
            seat.revoked_at[task] = seat.epoch

    def rival_takes(self, task: str) -> None:
        """Let the rival run a task that is free."""
        if self.is_free(task):
            self.tokens[task] += 1
            self.rivals.add(task)

    def suspect(self, task: str) -> None:
        """Let the rival take over a task that the member runs, and at once give it back, under newer tokens."""
        seat = self.live()
        if seat is not None and seat.roles.get(task) == "active":
            self.tokens[task] += 2
            seat.epoch += 2

    def fence(self) -> None:
        """Refuse the member from now on; its tasks are free when its lease is over."""
        seat = self.live()
        if seat is not None:
            seat.is_gone = True

    def pass_time(self, now_ms: int) -> None:
        """Expire who was not heard for too long, and free what its lease no longer covers."""
        for seat in self.seats.values():
            if now_ms >= seat.lease_end_ms():
                seat.is_gone = True
                self._free(seat)

    def _free(self, seat: Seat) -> None:
        seat.roles.clear()
        seat.revoked_at.clear()

    # --- what reaches it -------------------------------------------------------------------------------------------

    def receive(self, request: Request, now_ms: int) -> tuple[int, dict[str, object] | None]:
        """Return the status and body of the answer to a request that arrives now."""
        self.pass_time(now_ms)
        seat = self.seats.get(request.member_id)
        if request.kind is RequestKind.JOIN:
            return self._join(request, now_ms)
        if seat is None:
            return 404, problem("unknown-member", 404)
        if seat.is_gone:
            return 409, problem("fenced", 409)
        match request.kind:
            case RequestKind.HEARTBEAT:
                return self._heartbeat(request, seat, now_ms)
            case RequestKind.POLL:
                if seat.epoch > int(request.query["after"]):
                    return 200, self._answer(request.member_id, seat)
                return 204, None
            case RequestKind.LEAVE:
                seat.is_gone = True
                self._free(seat)
                return 204, None
            case _:
                return 202, {}

    def _join(self, request: Request, now_ms: int) -> tuple[int, dict[str, object]]:
        assert request.body is not None
        seat = self.seats.get(request.member_id)
        if seat is None:
            replaced = self.seats.get(str(request.body.get("replaces")))
            if replaced is not None:
                replaced.is_gone = True
                self._free(replaced)
            for other in self.seats.values():
                other.is_gone = True
            seat = self.seats[request.member_id] = Seat()
        elif seat.is_gone:
            return 409, problem("gone", 409)
        seat.heard_ms = max(seat.heard_ms, now_ms)
        return 201, self._answer(request.member_id, seat)

    def _heartbeat(self, request: Request, seat: Seat, now_ms: int) -> tuple[int, dict[str, object]]:
        assert request.body is not None
        seat.heard_ms = max(seat.heard_ms, now_ms)
        if self.loading:
            return 503, problem("coordinator-loading", 503, retry_after_ms=100)
        if request.seq <= seat.seq:
            return 200, self._answer(request.member_id, seat)
        epoch = request.body["member_epoch"]
        assert isinstance(epoch, int)
        assert epoch <= seat.epoch, "an epoch that was never told"
        if epoch < seat.echoed:
            return 409, problem("stale-member-epoch", 409, answer=self._answer(request.member_id, seat))
        seat.seq, seat.echoed = request.seq, epoch
        tasks = request.body.get("tasks")
        if isinstance(tasks, dict):
            seat.wants_report = False
            for task, at in list(seat.revoked_at.items()):
                if epoch >= at and tasks.get(task, {}).get("role") != "active":
                    del seat.revoked_at[task]
                    self.confirmed.append((request.member_id, task, epoch))
        return 200, self._answer(request.member_id, seat, echoed=epoch)

    def _answer(self, member: str, seat: Seat, *, echoed: int | None = None) -> dict[str, object]:
        seat.timeouts.append((seat.epoch, self.session_ms))
        actives = {task: self.tokens[task] for task, role in seat.roles.items() if role == "active"}
        assigned = assignment(
            actives,
            standby=[task for task, role in seat.roles.items() if role == "standby"],
            warmup=[task for task, role in seat.roles.items() if role == "warmup"],
        )
        return answer(
            member,
            seat.epoch,
            None if echoed == seat.epoch else assigned,
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=self.interval_ms,
            report="full" if seat.wants_report else None,
        )
