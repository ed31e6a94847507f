"""A coordinator for tests: the real decisions on a record log in memory, in this process or behind a port.

It serves the parts of the API that workers and their tests need. It keeps nothing when it ends, knows no tokens, and
must not run a real group.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from batonpass.codec.answers import problem_body, status_and_body, to_json
from batonpass.codec.bodies import PollQuery
from batonpass.codec.requests import checked_name, read_call, read_declaration
from batonpass.codec.shape import Shape
from batonpass.codec.views import assignments_body, group_body
from batonpass.core.arrivals.answers import answer_to_poll
from batonpass.core.decide import decide
from batonpass.core.handover.view import View
from batonpass.core.state.errors import InvalidRequest, ProtocolError
from batonpass.core.state.evolve import evolve
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.inputs import Eviction, Input, ProbeRequest
from batonpass.core.state.policy import Policy
from batonpass.core.state.replies import Declared, Done
from batonpass.core.state.replies import Reply as CoreReply
from batonpass.explain.health import describe
from batonpass.explain.status import describe_assignments
from batonpass.invariants import Violation, check_step
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.memory_log import MemoryRecordLog
from batonpass.runtime.ports import Archive, Clock, Defect, Observer, Ownership, Ports, RecordLog
from batonpass.worker.protocol import RequestKind
from batonpass.worker.protocol.messages import KINDS
from batonpass.worker.testing.http import Reply
from batonpass.worker.testing.line import Line, LocalTransport
from batonpass.worker.testing.virtual_time import VirtualTimeLoop

EPOCH_MS = 1_800_000_000_000
"""The instant at which a virtual clock begins."""

TASKS_MAX = 20_000
QUICK = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0}
"""Settings of groups that act as fast as they can."""

_POLL = Shape(PollQuery)
_CALLS: Mapping[tuple[str, str], str] = {**KINDS, ("POST", "/evict"): "evict"}

R = TypeVar("R", Declared, Done)


class _Observer(Observer):
    """Remembers broken laws and errors, of which there must be none."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def law_broken(self, group_id: GroupId, item: Input, violations: Sequence[Violation]) -> None:
        self.faults += [f"{group_id}: {type(item).__name__} would break {violation}" for violation in violations]

    def defect(self, group_id: GroupId, item: Input, error: Exception) -> None:
        self.faults.append(f"{group_id}: {item!r} made the coordinator fail: {error!r}")


class _Clock(Clock):
    """The coordinator's clock: the loop's time, so that it is virtual if the loop's time is."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        is_virtual = isinstance(self._loop, VirtualTimeLoop)
        self._offset_ms = EPOCH_MS if is_virtual else round((time.time() - self._loop.time()) * 1_000)

    def now_ms(self) -> int:
        return round(self._loop.time() * 1_000) + self._offset_ms


class LocalCoordinator:
    """A coordinator in this process.

        async with LocalCoordinator() as coordinator:
            await coordinator.declare("orders", partitions=4)
            async with Member(coordinator.url, "orders", callbacks, transport=coordinator.transport()) as member:
                await coordinator.at_rest("orders")

    If a decision broke a law meanwhile, the end of the block raises an error.
    """

    url = "http://coordinator.test"

    def __init__(self, *, log: RecordLog | None = None) -> None:
        """Make a coordinator that begins with the groups of ``log``, or with none."""
        self._log = log or MemoryRecordLog()
        self._observer = _Observer()
        self._coordinator: Coordinator | None = None

    async def __aenter__(self) -> Self:
        ports = Ports(
            log=self._log,
            archive=Archive(),
            ownership=Ownership(),
            clock=_Clock(),
            observer=self._observer,
            decide=decide,
            evolve=evolve,
            poll=answer_to_poll,
            check_step=check_step,
            stalls=lambda: 0,
            policy=Policy(max_tasks_per_heartbeat=TASKS_MAX),
        )
        self._coordinator = Coordinator(ports)
        await self._coordinator.start()
        return self

    async def __aexit__(self, _kind: object, error: object, _trace: object) -> None:
        """Stop it.

        Raises:
            AssertionError: when it broke a law or failed, which is a defect of Batonpass.
        """
        await self.coordinator.stop()
        if error is None and self._observer.faults:
            raise AssertionError("\n".join(self._observer.faults))

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator that carries the calls out."""
        if self._coordinator is None:
            raise RuntimeError("this coordinator is not running; use it in an `async with` block")
        return self._coordinator

    def transport(self, line: Line | None = None) -> LocalTransport:
        """Return a transport from one member to this coordinator; ``line`` says what happens to its calls."""
        return LocalTransport(self.answer, line or Line())

    # --- for tests ----------------------------------------------------------------------------------------------

    async def declare(self, group: str, *, partitions: int = 1, **config: object) -> None:
        """Declare a group with one stateful subtopology; unless ``config`` says otherwise it acts as fast as it can.

        Raises:
            ProtocolError: when the coordinator refuses the declaration.
        """
        subtopology = {"id": "0", "partitions": partitions, "changelog_topics": [f"{group}-changelog"]}
        body = to_json({"topology": {"subtopologies": [subtopology]}, "config": QUICK | config})
        await self._ask(GroupId(group), read_declaration(GroupId(group), body, if_match=None)[0], Declared)

    async def describe(self, group: str) -> dict[str, Any]:
        """Return a group's state and topology, and its target, intermediate and current assignment.

        Raises:
            ProtocolError: when the group is not declared.
        """
        found, soft = await self.coordinator.look(GroupId(group))
        view = View(found, soft, self.coordinator.now_ms())
        return group_body(found, *describe(view), ()) | assignments_body(describe_assignments(view))

    async def at_rest(self, group: str, *, timeout_s: float = 60) -> dict[str, Any]:
        """Wait until every task is where it belongs and runs, and return the group's description.

        Raises:
            TimeoutError: when that takes longer.
        """
        async with asyncio.timeout(timeout_s):
            while not (found := await self.describe(group))["at_rest"]:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.02)
        return found

    async def evict(self, group: str, member: str, *, dead: bool = False) -> None:
        """Remove a member, as an operator does."""
        await self._ask(GroupId(group), Eviction(MemberId(member), dead=dead), Done)

    async def probe(self, group: str) -> None:
        """Make the coordinator look at the group now, as an operator does."""
        await self._ask(GroupId(group), ProbeRequest(), Done)

    # --- calls --------------------------------------------------------------------------------------------------

    async def answer(self, method: str, target: str, body: bytes = b"") -> Reply:
        """Answer one call; to cancel it means that its caller went away."""
        split = urlsplit(target)
        query = dict(parse_qsl(split.query, keep_blank_values=True))
        try:
            return await self._call(method, [unquote(part) for part in split.path.split("/")], query, body)
        except ProtocolError as error:
            return Reply(error.status, to_json(problem_body(error)))

    async def _call(self, method: str, parts: Sequence[str], query: Mapping[str, str], body: bytes) -> Reply:
        match (method, *parts[1:]):
            case ("PUT", "v1", "groups", group):
                item, _ = read_declaration(GroupId(checked_name("group", group)), body, if_match=None)
                declared = await self._ask(GroupId(group), item, Declared)
                return Reply(201 if declared.created else 200, to_json(await self.describe(group)))
            case ("GET", "v1", "groups", group):
                return Reply(200, to_json(await self.describe(group)))
            case (_, "v1", "groups", group, "members", member, *rest) if kind := _CALLS.get(
                (method, "".join(f"/{part}" for part in rest))
            ):
                group_id, member_id = GroupId(checked_name("group", group)), MemberId(checked_name("member", member))
                if kind != RequestKind.POLL:
                    call = read_call(kind, member_id, query, body, tasks_max=TASKS_MAX)
                    return _reply(await self.coordinator.ask(group_id, call))
                asked = _POLL.read(query, prefix="query")
                found = await self.coordinator.poll(group_id, member_id, after=asked.after, wait_ms=asked.wait_ms)
                return Reply(204) if found is None else _reply(found)
            case _:
                pass
        raise InvalidRequest(f"{method} {'/'.join(parts)} is not served by a coordinator for tests")

    async def _ask(self, group: GroupId, item: Input, kind: type[R]) -> R:
        reply = await self.coordinator.ask(group, item)
        if isinstance(reply, kind):
            return reply
        raise reply if isinstance(reply, ProtocolError) else Defect(f"the reply is of an unexpected kind: {reply!r}")


def _reply(reply: CoreReply) -> Reply:
    status, body = status_and_body(reply)
    return Reply(status) if body is None else Reply(status, to_json(body))
