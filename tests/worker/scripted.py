"""A worker whose wire and clock are a script: the test says what arrives when, and reads what came of it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from batonpass.worker.protocol import (
    Instruction,
    MemberProtocol,
    MemberSettings,
    Progress,
    Request,
    RequestKind,
    Send,
)

INTERVAL_MS = 3_000
SESSION_MS = 45_000


def assignment(
    active: Mapping[str, int] | None = None, standby: Iterable[str] = (), warmup: Iterable[str] = ()
) -> dict[str, object]:
    """Return an assignment as it stands in an answer; an active is a task with its token."""
    actives = [{"task": task, "fencing_token": token} for task, token in (active or {}).items()]
    return {"active": actives, "standby": list(standby), "warmup": list(warmup)}


def answer(member: str, epoch: int, assignment: dict[str, object] | None = None, **fields: object) -> dict[str, object]:
    """Return the body of an answer; without an assignment it says that the caller has the current one."""
    return {
        "member_id": member,
        "seq": 0,
        "member_epoch": epoch,
        "generation": 9,
        "heartbeat_interval_ms": INTERVAL_MS,
        "session_timeout_ms": SESSION_MS,
        "acceptable_recovery_lag": 1000,
        "acceptable_catchup_ms": None,
        "report": None,
        "assignment": assignment,
        "status": [],
    } | fields


def problem(kind: str, status: int, **fields: object) -> dict[str, object]:
    """Return the body of a refusal."""
    return {"type": kind, "title": kind, "status": status, "detail": f"this is {kind}"} | fields


class Scripted:
    """A machine with the requests it has sent and a clock that only the test moves."""

    def __init__(
        self,
        settings: MemberSettings | None = None,
        *,
        on_disk: Mapping[str, Progress] | None = None,
        replaces: str | None = None,
    ) -> None:
        self.ids = 0
        self.now_ms = 0
        self.sent: list[Request] = []
        self.machine = MemberProtocol(settings or MemberSettings(), self._next_id, on_disk=on_disk, replaces=replaces)

    def _next_id(self) -> str:
        self.ids += 1
        return f"run-{self.ids}"

    def take(self, out: list[Instruction]) -> list[Instruction]:
        """Note what is to be sent; return the rest."""
        self.sent += [each.request for each in out if isinstance(each, Send)]
        return [each for each in out if not isinstance(each, Send)]

    def do(self, name: str, *args: object, **kwargs: object) -> list[Instruction]:
        """Give the machine an input by its name, now; return what is to be done, without what was sent."""
        call: Callable[..., list[Instruction]] = getattr(self.machine, name)
        return self.take(call(*args, now_ms=self.now_ms, **kwargs))

    def start(self) -> list[Instruction]:
        """Join."""
        return self.take(self.machine.start(self.now_ms))

    def until(self, now_ms: int) -> list[Instruction]:
        """Let time pass, waking the machine whenever it asks for it."""
        done: list[Instruction] = []
        while (wake_ms := self.machine.wake_at_ms) is not None and wake_ms <= now_ms:
            self.now_ms = max(self.now_ms, wake_ms)
            done += self.take(self.machine.tick(self.now_ms))
        self.now_ms = now_ms
        return done + self.take(self.machine.tick(now_ms))

    def later(self, ms: int) -> list[Instruction]:
        """Let so much time pass."""
        return self.until(self.now_ms + ms)

    def jump(self, ms: int) -> list[Instruction]:
        """Let time pass while the machine is suspended."""
        self.now_ms += ms
        return self.take(self.machine.tick(self.now_ms))

    def last(self, kind: RequestKind = RequestKind.HEARTBEAT) -> Request:
        """Return the last request of a kind."""
        return [request for request in self.sent if request.kind is kind][-1]

    def count(self, kind: RequestKind = RequestKind.HEARTBEAT) -> int:
        """Return how many requests of a kind were sent."""
        return sum(request.kind is kind for request in self.sent)

    def reply(
        self,
        epoch: int,
        assignment: dict[str, object] | None = None,
        *,
        to: Request | None = None,
        **fields: Any,
    ) -> list[Instruction]:
        """Answer a request, the last heartbeat if none is named, with status 200."""
        request = to or self.last()
        return self.do("on_answer", request, 200, answer(request.member_id, epoch, assignment, **fields))

    def refuse(self, kind: str, status: int, *, to: Request | None = None, **fields: object) -> list[Instruction]:
        """Answer a request, the last heartbeat if none is named, with a refusal."""
        return self.do("on_answer", to or self.last(), status, problem(kind, status, **fields))

    def beat(self, epoch: int, assignment: dict[str, object] | None = None, **fields: Any) -> list[Instruction]:
        """Let time pass to the next heartbeat, and answer it at once."""
        before = self.count()
        done: list[Instruction] = []
        while self.count() == before:
            wake_ms = self.machine.wake_at_ms
            assert wake_ms is not None
            done += self.until(wake_ms)
        return done + self.reply(epoch, assignment, **fields)


def joined(
    epoch: int = 1,
    assigned: dict[str, object] | None = None,
    settings: MemberSettings | None = None,
    **fields: Any,
) -> Scripted:
    """Return a worker that joined at time 0, was answered with this assignment, and heard once that it is current."""
    worker = Scripted(settings)
    worker.start()
    worker.reply(epoch, assigned or assignment(), to=worker.last(RequestKind.JOIN), **fields)
    worker.beat(epoch, **fields)
    return worker


def reported(request: Request) -> Mapping[str, Mapping[str, object]]:
    """Return the tasks that a heartbeat lists, each with its fields."""
    assert request.body is not None
    tasks = request.body["tasks"]
    assert isinstance(tasks, dict)
    return tasks
