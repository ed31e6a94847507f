"""Clients that each break the protocol in one way (`python -m tests.worker.mutants NAME`), for the kit to find out."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batonpass.worker import Member, member, options
from batonpass.worker.http_calls import HttpCalls
from batonpass.worker.protocol import MemberProtocol, holdings, lease, machine
from batonpass.worker.protocol.types import Problem, RequestKind
from batonpass.worker.testing.conformance import sample


def put(owner: object, name: str, value: object) -> None:
    """Put something in the place of what the SDK has."""
    setattr(owner, name, value)


def believes_old_answers() -> None:
    """Take whatever answer came last."""
    put(machine.Run, "take", _take)


def _take(self: machine.Run, answer: Any, *, seq: int) -> bool:
    changed = answer.assignment is not None and answer.member_epoch != self.epoch
    self.latest = answer
    if changed:
        self.epoch, self.assignment = answer.member_epoch, answer.assignment
    return changed


def ignores_the_lease() -> None:
    """Never notice that it is over."""
    put(lease.Lease, "is_over", lambda _self, _now_ms: False)
    put(lease.Lease, "notice_end", lambda _self, _now_ms, _seq: False)


def counts_the_lease_from_retries() -> None:
    """Count from the last time that a heartbeat was sent."""
    answered = machine.MemberProtocol._answered

    def later(self: Any, request: Any, answer: Any) -> None:
        answered(self, replace(request, first_sent_ms=request.sent_ms), answer)

    put(machine.MemberProtocol, "_answered", later)


def counts_the_lease_from_a_repeated_join() -> None:
    """Count from the last time that the join was sent."""
    answered = machine.MemberProtocol._answered

    def later(self: Any, request: Any, answer: Any) -> None:
        is_join = request.kind is RequestKind.JOIN
        answered(self, replace(request, first_sent_ms=request.sent_ms) if is_join else request, answer)

    put(machine.MemberProtocol, "_answered", later)


def renews_by_long_poll() -> None:
    """Take a long-poll's answer for a heartbeat's."""
    polled = machine.MemberProtocol._polled

    def renewing(self: Any, request: Any, answer: Any) -> None:
        if answer is not None:
            self._holdings.seq += 1
            self._run.lease_answered(answer, seq=self._holdings.seq, first_sent_ms=self._now_ms)
        polled(self, request, answer)

    put(machine.MemberProtocol, "_polled", renewing)


def confirms_before_it_stops() -> None:
    """Go on writing for a while after a task was given up."""
    begin = sample.Writer.on_active

    async def lingering(self: Any, task: Any) -> None:
        token = task.fencing_token
        self.lingering = asyncio.ensure_future(_write_on(self, task.id, token))
        await begin(self, task)

    put(sample.Writer, "on_active", lingering)


async def _write_on(writer: Any, task: str, token: int) -> None:
    while True:
        await writer._client.put(f"{writer._sink}/{task}", json={"fencing_token": token})
        await asyncio.sleep(0.1)


def keeps_its_id() -> None:
    """Join again under the id that was refused."""

    def always_me(settings: Any, _new_member_id: Any, **given: Any) -> Any:
        return MemberProtocol(settings, lambda: "always-me", **given)

    put(member, "MemberProtocol", always_me)


def replaces_nobody() -> None:
    """Join anew without saying whose place it takes."""
    begin_run = machine.MemberProtocol._begin_run

    def forgetful(self: machine.MemberProtocol, event: machine.Event) -> None:
        begin_run(self, event)
        self._replaces = None

    put(machine.MemberProtocol, "_begin_run", forgetful)


def does_not_listen() -> None:
    """Open no long-poll."""
    made = options.Options.__init__
    put(options.Options, "__init__", lambda self, **given: made(self, **{"listen": False} | given))


def polls_in_a_tight_loop() -> None:
    """Ask again at once whatever the answer was."""
    put(machine, "POLL_LEAST_MS", 0)
    put(machine, "LEAST_GAP_MS", 0)


def ignores_rate_limits() -> None:
    """Wait as long as one likes."""
    put(machine.MemberProtocol, "_wait_ms", lambda *_: None)


def gives_up_on_503() -> None:
    """Take every refusal for a fencing."""
    judge = machine._judge

    def harsh(kind: RequestKind, problem: Problem) -> machine.Verdict:
        return machine.Verdict.REJOIN if problem.status == 503 else judge(kind, problem)

    put(machine, "_judge", harsh)


def leaves_its_tasks_out() -> None:
    """List nothing that did not change, whoever asks."""
    put(machine.Run, "must_list_tasks", lambda _self: False)


def joins_after_being_taken_over() -> None:
    """Come back although a newer process of the instance is there."""
    put(machine, "ON_REFUSAL", {**machine.ON_REFUSAL, "fenced-instance-id": machine.Verdict.REJOIN})


def keeps_an_old_token() -> None:
    """Run on under the old token when a newer one is granted."""
    yield_to = holdings.Holdings._yield_to

    def careless(self: Any, assignment: Any, holding: Any, out: Any) -> None:
        if assignment.roles.get(holding.task) != "active":
            yield_to(self, assignment, holding, out)

    put(holdings.Holdings, "_yield_to", careless)


def joins_once_more_after_a_lost_answer() -> None:
    """Take another id for the same process because an answer was lost, and leave a ghost behind."""
    ask = HttpCalls._ask
    joins = 0

    async def impatient(self: HttpCalls, at: int, request: Any, patience_s: float) -> Any:
        nonlocal joins
        if request.kind is RequestKind.JOIN:
            joins += 1
            request = replace(request, member_id=f"ghost-{joins}")
        return await ask(self, at, request, patience_s)

    put(HttpCalls, "_ask", impatient)


def says_goodbye_first() -> None:
    """Tell the coordinator that it leaves, and only then stop."""
    confirms_before_it_stops()
    leave = Member.exit

    async def slowly(self: Member, how: Any = None) -> None:
        await leave(self, how)
        await asyncio.sleep(2)

    put(Member, "exit", slowly)


def tells_everything_later() -> None:
    """List the tasks every so often, and not before, whatever has changed."""

    def is_time(self: machine.MemberProtocol) -> bool:
        latest, run = self._run.latest, self._run
        return latest is not None and self._now_ms - run.listed_ms >= getattr(latest, "report_interval_ms", 0)

    put(machine.MemberProtocol, "_has_to_tell", is_time)
    put(machine.Run, "must_list_tasks", lambda self: self.listed_seq <= self.full_after_seq)


def says_loads_in_words() -> None:
    """Say how much a task uses as text."""
    put(machine, "checked_load", str)


def says_the_load_of_what_does_not_run() -> None:
    """Say how much a task uses that is still being restored, for as many heartbeats as a second has."""
    body, begin = holdings.Holding.body, sample.Writer.on_active

    async def restoring(self: Any, task: Any) -> None:
        await asyncio.sleep(1)
        await begin(self, task)

    put(sample.Writer, "on_active", restoring)
    put(holdings.Holding, "body", lambda self: body(self) | {"load": 0.1})


MUTANTS: dict[str, tuple[Callable[[], None], str]] = {
    "believes_old_answers": (believes_old_answers, "late-answer"),
    "ignores_the_lease": (ignores_the_lease, "lease-over"),
    "counts_the_lease_from_retries": (counts_the_lease_from_retries, "lease-from-first-sending"),
    "counts_the_lease_from_a_repeated_join": (counts_the_lease_from_a_repeated_join, "lease-from-first-join"),
    "renews_by_long_poll": (renews_by_long_poll, "poll-renews-nothing"),
    "confirms_before_it_stops": (confirms_before_it_stops, "revocation"),
    "keeps_its_id": (keeps_its_id, "fenced-heartbeat"),
    "replaces_nobody": (replaces_nobody, "gone-heartbeat"),
    "does_not_listen": (does_not_listen, "listens"),
    "polls_in_a_tight_loop": (polls_in_a_tight_loop, "empty-polls"),
    "ignores_rate_limits": (ignores_rate_limits, "rate-limit"),
    "gives_up_on_503": (gives_up_on_503, "unavailable"),
    "leaves_its_tasks_out": (leaves_its_tasks_out, "granted-and-revoked"),
    "tells_everything_later": (tells_everything_later, "report-interval"),
    "says_loads_in_words": (says_loads_in_words, "revocation"),
    "says_the_load_of_what_does_not_run": (says_the_load_of_what_does_not_run, "joins"),
    "joins_after_being_taken_over": (joins_after_being_taken_over, "taken-over"),
    "keeps_an_old_token": (keeps_an_old_token, "newer-token"),
    "joins_once_more_after_a_lost_answer": (joins_once_more_after_a_lost_answer, "lost-join"),
    "says_goodbye_first": (says_goodbye_first, "goodbye"),
}
"""Each defect, and a case that must find it."""


if __name__ == "__main__":
    MUTANTS[sys.argv[1]][0]()
    asyncio.run(sample.main())
