"""The composition root: builds every object of the service once, and runs it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn

from batonpass.api.app import create_app
from batonpass.api.service import Service
from batonpass.clock import SystemClock
from batonpass.core.answers import poll
from batonpass.core.decide import decide
from batonpass.core.evolve import evolve
from batonpass.core.invariants import Violation, check_step
from batonpass.core.policy import Policy
from batonpass.core.records import TargetPlaced
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.memory_log import Alone, MemoryRecordLog
from batonpass.runtime.ports import Commit, Ports
from batonpass.runtime.pulse import Pulse

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from batonpass.core.decide import Decision
    from batonpass.core.ids import GroupId
    from batonpass.core.inputs import Input
    from batonpass.core.model import Group
    from batonpass.settings import Settings

GRACE_S = 5
"""How long requests under way may take to end when the server stops."""

KEEP_ALIVE_S = 75
"""How long an idle connection stays open: longer than members usually wait between two heartbeats, so that a heartbeat
does not meet a connection that is just being closed."""


class LoggingObserver:
    """Writes one line for each generation, refusal of the store and defect; nothing for a steady heartbeat."""

    def __init__(self) -> None:
        self._log: Any = structlog.get_logger("batonpass")

    def decided(self, before: Group, item: Input, decision: Decision, decide_ms: float) -> None:
        """Log a new generation."""
        after = decision.after
        if after.generation == before.generation:
            return
        for record in decision.records:
            if isinstance(record, TargetPlaced):
                self._log.info(
                    "generation",
                    group=after.id,
                    generation=record.generation,
                    group_epoch=record.group_epoch,
                    because=",".join(before.triggers) or type(item).__name__,
                    moves=record.moves,
                    lower_bound=record.lower_bound,
                    members=len(after.members),
                    decide_ms=round(decide_ms, 1),
                )

    def committed(self, commit: Commit, append_ms: float) -> None:
        """Log nothing: the decision was logged."""

    def store_failed(self, group_id: GroupId, reason: str) -> None:
        """Log an append or a read that did not go through."""
        self._log.warning("store-failed", group=group_id, reason=reason)

    def law_broken(self, group_id: GroupId, item: Input, violations: Sequence[Violation]) -> None:
        """Log a decision that was dropped because it would break a law."""
        for violation in violations:
            self._log.error("law-broken", group=group_id, item=type(item).__name__, **violation._asdict())

    def defect(self, group_id: GroupId, item: Input, error: Exception) -> None:
        """Log an input that made the program fail."""
        self._log.error("defect", group=group_id, item=repr(item), exc_info=error)

    def stalled(self, gap_ms: float) -> None:
        """Log that the process stood still."""
        self._log.warning("stalled", gap_ms=round(gap_ms))


def log_command(group_id: str, command: str, who: str, reason: str) -> None:
    """Log a mutating call of an operator."""
    structlog.get_logger("batonpass").info("command", group=group_id, command=command, who=who, reason=reason)


def build_app(settings: Settings) -> tuple[ASGIApp, Coordinator]:
    """Return the application on a record log in memory, and the coordinator that it serves."""
    observer = LoggingObserver()
    pulse = Pulse(observer.stalled)
    policy = Policy(
        max_members=settings.members_max,
        max_tasks=settings.tasks_max,
        max_tasks_per_heartbeat=settings.tasks_per_heartbeat_max,
        check_laws=settings.check_laws,
    )
    log = MemoryRecordLog()
    ports = Ports(
        log=log,
        archive=log,
        ownership=Alone(),
        clock=SystemClock(),
        observer=observer,
        decide=decide,
        evolve=evolve,
        poll=poll,
        check_step=check_step,
        stalls=pulse.stalls,
        policy=policy,
    )
    coordinator = Coordinator(ports, letters_max=settings.requests_waiting_max, groups_max=settings.groups_max)
    service = Service(coordinator, body_bytes_max=settings.body_bytes_max, commanded=log_command)
    return create_app(service, pulse), coordinator


class Server(uvicorn.Server):
    """A server that says when it listens, and that ends long-polls when it is told to stop, instead of waiting.

    ``stopping`` is called when it was told to stop, and awaited before it stops to answer.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        coordinator: Coordinator,
        *,
        listening: Callable[[], None],
        stopping: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(config)
        self._coordinator = coordinator
        self._listening = listening
        self._stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept requests."""
        await super().startup(sockets)
        if self.started:
            self._listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, end what is under way, and close."""
        if self._stopping is not None and not self.force_exit:
            await self._stopping()
        self._coordinator.end_waits()
        await super().shutdown(sockets)


def serve(
    settings: Settings,
    *,
    listening: Callable[[str], None],
    stopping: Callable[[], Awaitable[None]] | None = None,
    listener: socket.socket | None = None,
) -> None:
    """Serve until interrupted. ``listening`` hears the base URL once requests are accepted.

    ``stopping`` is awaited when it was interrupted, while it still answers. ``listener`` is a socket that was bound
    before (``bind``); without it, one is bound as the settings say.

    Raises:
        OSError: when the address cannot be bound.
    """
    structlog.configure(processors=_log_lines())
    listener = listener or bind(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    app, coordinator = build_app(settings)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    server = Server(config, coordinator, listening=lambda: listening(url), stopping=stopping)
    asyncio.run(server.serve(sockets=[listener]))


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; port 0 is any free one.

    Raises:
        OSError: when the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol's name the event loop does not know the socket for TCP and leaves Nagle's algorithm on, which
    # holds the body of every small answer back for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def _log_lines() -> list[Any]:
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(),
        structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event", "group"]),
    ]
