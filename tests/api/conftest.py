"""The application as a client sees it, on a record log in memory, in this very process."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx
import pytest
from tests import openapi_document
from tests.contracts.memory_audits import MemoryAudits
from tests.contracts.memory_store import MemoryTokens
from tests.runtime.fakes import BreakableLog, Seen, SetClock
from tests.schemas.validating import faults, unnamed

from batonpass.api.admission import AdmissionPolicy
from batonpass.api.app import create_app
from batonpass.api.forward import Forwarder
from batonpass.api.health import Health, Readiness
from batonpass.api.limits import Limits, Rate
from batonpass.api.service import Service
from batonpass.core.arrivals.answers import answer_to_poll
from batonpass.core.decide import decide
from batonpass.core.state.errors import ProtocolError
from batonpass.core.state.evolve import evolve
from batonpass.core.state.policy import Policy
from batonpass.invariants import check_step
from batonpass.metrics.audits import AuditGauges
from batonpass.metrics.counts import Counts
from batonpass.metrics.groups import GroupGauges, Scrape
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.history import Asked
from batonpass.runtime.observers import Observers
from batonpass.runtime.places import Places
from batonpass.runtime.ports import Observer, Ownership, Ports
from batonpass.runtime.pulse import Pulse

TASKS_PER_HEARTBEAT_MAX = 50
BODY_BYTES_MAX = 20_000
MEMBERS_SHOWN = 2
GROUPS_MAX = 5


ANSWERS: list[tuple[str, re.Pattern[str], str]] = [
    (method.upper(), re.compile(re.sub("{[a-z]+}", "[^/]+", path)), content["schema"]["$ref"].rpartition("/")[2])
    for path, operations in json.loads(openapi_document.text())["paths"].items()
    for method, operation in operations.items()
    for answer in operation["responses"].values()
    for kind, content in answer.get("content", {}).items()
    if kind == "application/json"
]
"""The method, the path and the schema of each call that answers in JSON, as the OpenAPI document has them."""


def schema_of(answer: httpx.Response) -> str | None:
    """Return the schema that an answer must fit; None where it has no body or none is written for it."""
    kind = answer.headers.get("content-type")
    if kind == "application/problem+json" and answer.content:
        return "problem"
    if kind != "application/json" or not answer.content:
        return None
    method, path = answer.request.method, answer.request.url.raw_path.decode().partition("?")[0]
    return next((name for verb, form, name in ANSWERS if verb == method and form.fullmatch(path)), None)


async def hold_to_its_schema(answer: httpx.Response) -> None:
    """Hold an answer against its schema, which has to name everything that is in it."""
    await answer.aread()
    name = schema_of(answer)
    if name is not None:
        call = f"{answer.request.method} {answer.request.url}: {answer.text}"
        assert faults(name, answer.json()) == [], call
        assert unnamed(name, answer.json()) == [], call


@dataclass
class Api:
    """A client of the application, with what stands behind it."""

    client: httpx.AsyncClient
    clock: SetClock
    log: BreakableLog
    seen: Seen
    coordinator: Coordinator
    policy: AdmissionPolicy
    recorded: "RecordedCalls"
    audits: MemoryAudits
    counts: Counts | None = None

    @property
    def commands(self) -> list[tuple[str, Asked]]:
        """The commands that were accepted, each with its group."""
        return self.recorded.commands

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """Make a request below ``/v1/groups``; a body is sent as JSON, bytes, or what yields them, as they are."""
        content = (
            {"content": body} if isinstance(body, bytes | AsyncIterator) else {"json": body} if body is not None else {}
        )
        return await self.client.request(method, f"/v1/groups{path}", **content, **options)

    async def declare(self, *, partitions: int = 2, **config: Any) -> httpx.Response:
        """Declare the group ``orders`` with one stateful subtopology."""
        subtopology = {"id": "0", "partitions": partitions, "changelog_topics": ["store"]}
        settings = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0, "acceptable_recovery_lag": 100} | config
        body = {"topology": {"epoch": 1, "subtopologies": [subtopology]}, "config": settings}
        return await self.call("PUT", "/orders", body)

    async def join(self, member: str, **body: Any) -> httpx.Response:
        """Let a member join ``orders``."""
        return await self.call("PUT", f"/orders/members/{member}", body)

    async def beat(self, member: str, seq: int, epoch: int, tasks: Any = None) -> httpx.Response:
        """Send a heartbeat of a member of ``orders``."""
        body = {"seq": seq, "member_epoch": epoch} | ({} if tasks is None else {"tasks": tasks})
        return await self.call("POST", f"/orders/members/{member}/heartbeat", body)

    async def assignment(self, member: str, after: int, *, wait_ms: int = 2_000) -> httpx.Response:
        """Wait for an assignment of a member of ``orders`` other than that of epoch ``after``."""
        return await self.call("GET", f"/orders/members/{member}/assignment?after={after}&wait_ms={wait_ms}")


@dataclass
class RecordedCalls(Observer):
    """The calls that were told of."""

    answered_: list[tuple[str, str, int]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    lines: list[tuple[str, str, str, str]] = field(default_factory=list)
    failures: list[tuple[BaseException, str, str]] = field(default_factory=list)
    commands: list[tuple[str, Asked]] = field(default_factory=list)

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Note a call."""
        assert seconds >= 0
        self.answered_.append((method, path, status))

    def refused(self, error: ProtocolError, call: str, who: str, cause: str) -> None:
        """Note a refusal."""
        self.refusals.append(error.type)
        self.lines.append((error.type, call, who, cause))

    def commanded(self, group: str, asked: Asked) -> None:
        """Note a command."""
        self.commands.append((group, asked))

    def failed(self, error: BaseException, call: str, cause: str) -> None:
        """Note a failure of the program."""
        self.failures.append((error, call, cause))


async def no_metrics(accept: str) -> tuple[bytes, str]:
    """Answer a scrape with nothing but what was asked for."""
    return accept.encode(), "text/plain"


def a_policy(observer: Observer, parts: dict[str, Any]) -> AdmissionPolicy:
    """Return a policy that lets everybody do everything, but for what a test brings."""
    many = 1_000_000.0
    limits = Limits(
        Rate(many, many),
        Rate(20, 20),
        Rate(many, many),
        polls=Places(100, "calls that wait for news", each=90),
        reads=Places(100, "reads of large groups", each=90),
        dry_runs=Places(100, "dry runs", each=90),
        history=Places(100, "reads of the history", each=90),
        bodies=Places(4 * BODY_BYTES_MAX, "bytes of bodies under way", each=2 * BODY_BYTES_MAX),
        body_bytes_max=BODY_BYTES_MAX,
    )
    present: dict[str, Any] = {
        "gate": None,
        "ownership": Ownership(),
        "forwarder": Forwarder(),
        "observer": observer,
        "limits": limits,
        "open_paths": frozenset(),
    }
    return AdmissionPolicy(**{name: parts.pop(name, part) for name, part in present.items()})


@asynccontextmanager
async def serving(
    recorded: RecordedCalls | None = None,
    counts: Counts | None = None,
    observers: Sequence[Observer] = (),
    **parts: Any,
) -> AsyncIterator[Api]:
    """Serve an empty coordinator whose laws are checked; none may be broken, and nothing may fail inside.

    ``parts`` are what the test brings of policy, health and service. ``counts`` counts it, and is shown at /metrics.
    """
    clock, log, seen, recorded = SetClock(1_800_000_000_000), BreakableLog(), Seen(), recorded or RecordedCalls()
    pulse = Pulse(seen.stalled, boot=lambda: 0.0)
    observer = Observers(seen, recorded, *observers, *([counts] if counts else []))
    ports = Ports(
        log=log,
        archive=log,
        ownership=parts.get("ownership", Ownership()),
        clock=clock,
        observer=observer,
        decide=decide,
        evolve=evolve,
        poll=answer_to_poll,
        check_step=check_step,
        stalls=pulse.stalls,
        policy=Policy(max_tasks_per_heartbeat=TASKS_PER_HEARTBEAT_MAX),
    )
    coordinator = Coordinator(ports, groups_max=GROUPS_MAX)
    audits = MemoryAudits()
    if counts is not None:
        AuditGauges(audits, counts.registry, list[str]().append)
        gauges = GroupGauges(
            coordinator.shown_groups, coordinator.now_ms, coordinator.policy, members_max=MEMBERS_SHOWN
        )
        parts |= {"scrape": Scrape(counts, gauges)}
    policy, tokens = a_policy(observer, parts), parts.pop("tokens", MemoryTokens(coordinator.now_ms))
    present: dict[str, Any] = {
        "readiness": Readiness(lambda: "" if coordinator.is_ready else "the groups are being read"),
        "loop_age_ms": lambda: 0.0,
        "loop_age_max_ms": 1_000,
        "scrape": no_metrics,
    }
    health = Health(**(present | parts))
    service = Service(coordinator, audits, tokens)
    app = create_app(service, policy, health, running=nullcontext)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://localhost",
        event_hooks={"response": [hold_to_its_schema]},
    ) as client:
        await coordinator.start()
        yield Api(client, clock, log, seen, coordinator, policy, recorded, audits, counts)
        await coordinator.stop()
        await policy.forwarder.close()
    assert seen.broken == []
    assert seen.defects == []
    assert recorded.failures == []


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """Serve an empty coordinator to everybody."""
    async with serving() as served:
        yield served
