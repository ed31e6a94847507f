"""The coordinator that the kit plays: it follows the protocol for one member, unless the case wants otherwise."""

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from batonpass.worker.protocol.messages import KINDS
from batonpass.worker.testing.http import Reply

GROUP = "conformance"
INTERVAL_MS = 300
SESSION_MS = 3_000
PATIENCE_S = 12.0
"""How long a client may take for anything that it has to do."""


class Broken(Exception):
    """The client did not keep the protocol; the message says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request of the client, as it arrived. ``kind`` is join, heartbeat, poll, leave, drain, undrain or other."""

    kind: str
    at: float
    member: str
    body: Mapping[str, Any]
    query: Mapping[str, str]
    target: str

    @property
    def seq(self) -> int:
        return int(self.body.get("seq", -1))

    @property
    def epoch(self) -> int:
        return int(self.body.get("member_epoch", -1))

    @property
    def tasks(self) -> Mapping[str, Any] | None:
        found = self.body.get("tasks")
        return found if isinstance(found, dict) else None

    def role_of(self, task: str) -> str | None:
        """Return the role of a task in a heartbeat that lists its tasks; "absent" if the list does not have it."""
        if self.tasks is None:
            return None
        entry = self.tasks.get(task)
        return str(entry.get("role")) if isinstance(entry, dict) else "absent"


@dataclass(frozen=True, slots=True)
class Output:
    """Something that a task wrote."""

    at: float
    task: str
    token: int


@dataclass(slots=True)
class Run:
    """One run of the member."""

    epoch: int = 1
    roles: dict[str, str] = field(default_factory=dict)
    echoed: int = 0
    seq: int = 0
    # When each heartbeat was first received; the lease can have begun no later.
    first_at: dict[int, float] = field(default_factory=dict)
    answered_seq: int = 0
    is_gone: bool = False


Override = Callable[[Call], Awaitable["Reply | bool | None"]]
"""Answers a call: with a reply, None to break the connection off, False to leave the answer to the coordinator."""


def always(reply: Reply | None) -> Override:
    """Return an override that gives every call the same reply, or breaks it off."""

    async def override(_call: Call) -> Reply | None:
        return reply

    return override


class ScriptedCoordinator:
    """One member's group, every call that the member made, and everything that its tasks wrote."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.tokens: dict[str, int] = {}
        self.calls: list[Call] = []
        self.outputs: list[Output] = []
        # Which epoch was sent to which member, and when.
        self.told_at: list[tuple[float, str, int]] = []
        self.interval_ms = INTERVAL_MS
        self.session_ms = SESSION_MS
        self.extra: dict[str, Any] = {}
        # The roles that the next join is granted.
        self.first_roles: dict[str, str] = {"0_0": "active"}
        self.override: Override | None = None
        self.stop_client: Callable[[], None] = lambda: None
        self.client_ended: Callable[[], bool] = lambda: False
        self._changed = asyncio.Event()

    # --- what the case does -----------------------------------------------------------------------------------------

    @property
    def member(self) -> str:
        """The id of the present run.

        Raises:
            Broken: when there is none.
        """
        live = [name for name, run in self.runs.items() if not run.is_gone]
        if not live:
            raise Broken("no member has joined")
        return live[-1]

    @property
    def run(self) -> Run:
        return self.runs[self.member]

    def give(self, task: str, role: str) -> int:
        """Put a task into the assignment; return the new epoch."""
        if role == "active":
            self.tokens[task] = self.tokens.get(task, 0) + 1
        self.run.roles[task] = role
        return self._new_epoch()

    def take(self, task: str) -> int:
        """Take a task out of the assignment; return the new epoch."""
        del self.run.roles[task]
        return self._new_epoch()

    def _new_epoch(self) -> int:
        self.run.epoch += 1
        self.wake()
        return self.run.epoch

    def wake(self) -> None:
        """Let everything that waits check its condition again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def until(self, condition: Callable[[], Any], what: str, *, within_s: float = PATIENCE_S) -> Any:
        """Wait until a condition holds, and return its value.

        Raises:
            Broken: when it does not hold in time.
        """
        try:
            async with asyncio.timeout(within_s):
                while not (found := condition()):
                    await self._changed.wait()
        except TimeoutError:
            raise Broken(f"within {within_s:g} s: {what}") from None
        return found

    async def while_(self, seconds: float) -> float:
        """Let time pass; return the time before that."""
        began = time.monotonic()
        await asyncio.sleep(seconds)
        return began

    def answers(self, kinds: str, override: Override, *, times: float = math.inf) -> list[Call]:
        """Have the next calls of these kinds, with blanks between them, answered otherwise; return those that came."""
        came: list[Call] = []

        async def some(call: Call) -> Reply | bool | None:
            if call.kind not in kinds.split() or len(came) >= times:
                return False
            came.append(call)
            return await override(call)

        self.override = some
        return came

    async def lose(self, call: Call) -> None:
        """Carry a call out, and break it off: its answer is lost."""
        await self.play(call)

    # --- what the case looks at ---------------------------------------------------------------------------------------

    def of(self, kind: str, *, member: str | None = None, since: float = 0.0) -> list[Call]:
        """Return the calls of a kind, of one member or all, since a time."""
        return [call for call in self.calls if call.kind == kind and member in (None, call.member) and call.at >= since]

    def wrote(self, task: str, *, since: float = 0.0, token: int | None = None) -> list[Output]:
        """Return what a task wrote since a time, under a token or any."""
        return [one for one in self.outputs if one.task == task and one.at >= since and token in (None, one.token)]

    async def until_runs(self, task: str, *, token: int | None = None) -> None:
        """Wait until a task writes again."""
        since = time.monotonic()
        wanted = "" if token is None else f" under token {token}"
        await self.until(lambda: self.wrote(task, since=since, token=token), f"task {task} writes{wanted}")

    async def confirmed(self, task: str, epoch: int) -> Call:
        """Wait until a heartbeat confirms that a task was given up; return it."""
        return await self._told(
            lambda role: role not in (None, "active"), task, epoch, f"lists its tasks without {task} as active"
        )

    async def reported(self, task: str, role: str, epoch: int = 0) -> Call:
        """Wait until a heartbeat reports a task in a role; return it."""
        return await self._told(lambda found: found == role, task, epoch, f"reports {task} as {role}")

    async def _told(self, is_right: Callable[[str | None], bool], task: str, epoch: int, what: str) -> Call:
        found: Call = await self.until(
            lambda: next(
                (one for one in self.of("heartbeat") if one.epoch >= epoch and is_right(one.role_of(task))), None
            ),
            f"a heartbeat of epoch {epoch} or above {what}",
        )
        return found

    # --- what arrives -------------------------------------------------------------------------------------------------

    async def answer(self, method: str, target: str, body: bytes) -> Reply | None:
        """Answer one call of the client, or break it off."""
        parts = [unquote(part) for part in urlsplit(target).path.split("/")]
        if parts[1:2] == ["sink"]:
            return self._write(parts[2] if len(parts) > 2 else "", body)
        call = _read(method, target, parts, body)
        self.calls.append(call)
        if call.kind == "heartbeat" and call.member in self.runs:
            self.runs[call.member].first_at.setdefault(call.seq, call.at)
        self.wake()
        found: Reply | bool | None = False if self.override is None else await self.override(call)
        reply = await self.play(call) if isinstance(found, bool) else found
        if reply is not None and reply.status < 300:
            self._note(call.member, reply)
        return reply

    def _note(self, member: str, reply: Reply) -> None:
        """Note which epoch a member was sent, unless the reply has none or the member's run never reached it."""
        with contextlib.suppress(ValueError, KeyError, TypeError):
            epoch = int(json.loads(reply.body)["member_epoch"])
            if epoch <= self.runs[member].epoch:
                self.told_at.append((time.monotonic(), member, epoch))

    def _write(self, task: str, body: bytes) -> Reply:
        try:
            token = int(json.loads(body)["fencing_token"])
        except (ValueError, KeyError, TypeError):
            return refusal("invalid-request", 422)
        self.outputs.append(Output(time.monotonic(), task, token))
        self.wake()
        return Reply(204) if token >= self.tokens.get(task, 0) else refusal("old-token", 409)

    async def play(self, call: Call) -> Reply:
        """Answer as the protocol says."""
        if call.kind == "join":
            return self._join(call)
        if call.kind == "other":
            return refusal("not-found", 404)
        run = self.runs.get(call.member)
        if run is None:
            return refusal("unknown-member", 404, action="stop-and-rejoin")
        if run.is_gone:
            return refusal("fenced", 409, action="stop-and-rejoin")
        if call.kind == "heartbeat":
            return self.heartbeat(call, run)
        if call.kind == "poll":
            return await self._poll(call, run)
        run.is_gone = call.kind == "leave"
        return Reply(204)

    def _join(self, call: Call) -> Reply:
        run = self.runs.get(call.member)
        if run is not None and run.is_gone:
            return refusal("gone", 409, action="stop-and-rejoin")
        if run is None:
            for other in self.runs.values():
                other.is_gone = True
            run = self.runs[call.member] = Run()
            for task, role in self.first_roles.items():
                run.roles[task] = role
                if role == "active":
                    self.tokens[task] = self.tokens.get(task, 0) + 1
            self.wake()
        return self.told(call.member, status=201)

    def heartbeat(self, call: Call, run: Run) -> Reply:
        if call.seq > run.seq:
            if call.epoch < run.echoed:
                return refusal("stale-member-epoch", 409, answer=self.body(call.member))
            run.seq, run.echoed = call.seq, call.epoch
        return self.told(call.member, echoed=call.epoch)

    async def _poll(self, call: Call, run: Run) -> Reply:
        after, wait_s = int(call.query.get("after", -1)), int(call.query.get("wait_ms", 30_000)) / 1_000
        try:
            async with asyncio.timeout(wait_s):
                while run.epoch == after and not run.is_gone:
                    await self._changed.wait()
        except TimeoutError:
            return Reply(204)
        if run.is_gone:
            return refusal("fenced", 409, action="stop-and-rejoin")
        return Reply(200, json.dumps(self.body(call.member)).encode())

    def told(self, member: str, *, echoed: int | None = None, status: int = 200) -> Reply:
        """Return the present answer for a member, without the assignment if it has echoed it."""
        run = self.runs[member]
        run.answered_seq = max(run.answered_seq, run.seq)
        return Reply(status, json.dumps(self.body(member, echoed=echoed)).encode())

    def body(self, member: str, *, echoed: int | None = None) -> dict[str, Any]:
        run = self.runs[member]
        actives = [
            {"task": task, "fencing_token": self.tokens[task]} for task, role in run.roles.items() if role == "active"
        ]
        assignment = {
            "active": actives,
            "standby": [task for task, role in run.roles.items() if role == "standby"],
            "warmup": [task for task, role in run.roles.items() if role == "warmup"],
        }
        return {
            "member_id": member,
            "seq": run.seq,
            "member_epoch": run.epoch,
            "generation": run.epoch,
            "heartbeat_interval_ms": self.interval_ms,
            "session_timeout_ms": self.session_ms,
            "acceptable_recovery_lag": 100,
            "acceptable_catchup_ms": None,
            "report": None,
            "assignment": None if echoed == run.epoch else assignment,
            "status": [],
        } | self.extra


def refusal(kind: str, status: int, **fields: Any) -> Reply:
    problem = {"type": kind, "title": kind, "status": status, "detail": f"the case wants {kind}"} | fields
    return Reply(status, json.dumps(problem).encode())


def _read(method: str, target: str, parts: list[str], body: bytes) -> Call:
    is_member = parts[1:5] == ["v1", "groups", GROUP, "members"] and len(parts) > 5
    kind: str = KINDS.get((method, "".join(f"/{part}" for part in parts[6:])), "other") if is_member else "other"
    try:
        found = json.loads(body) if body else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        kind, found = "other", {}
    return Call(
        kind=kind,
        at=time.monotonic(),
        member=parts[5] if is_member else "",
        body=found,
        query=dict(parse_qsl(urlsplit(target).query)),
        target=f"{method} {target}",
    )
