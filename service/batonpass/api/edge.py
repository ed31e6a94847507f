"""What stands between the network and the calls: who may call, how often, who answers, and who is told of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.requests import Request

from batonpass.api.visit import FORWARDED, VISIT, Visit
from batonpass.runtime.access import AccessRole, Principal

if TYPE_CHECKING:
    from batonpass.api.access import Gate
    from batonpass.api.forward import Forwarder
    from batonpass.api.limits import Limits
    from batonpass.core.errors import ProtocolError
    from batonpass.runtime.access import Tokens
    from batonpass.runtime.ports import Ownership

EVERYBODY: Final = Principal("", AccessRole.ADMIN)
"""Whoever calls where no tokens are asked for."""


class Meter(Protocol):
    """Who counts the calls; it must not raise."""

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Hear of a call that was answered, by the path that the document has for it."""

    def refused(self, reason: str) -> None:
        """Hear of a call that was refused, by the type of its problem."""


class Journal(Protocol):
    """Who writes down what happens to calls; it must not raise."""

    def refused(self, error: ProtocolError, call: str, who: str, cause: str) -> None:
        """Hear of a call that was refused at the door: without a token, without the right, too often."""

    def failed(self, error: BaseException, call: str, cause: str) -> None:
        """Hear of a call on which the program failed."""


class Readiness:
    """Whether this process should be sent requests, and if not, why. Each check returns its reason, or ""."""

    def __init__(self, *checks: Callable[[], str]) -> None:
        self._checks = checks
        self.is_stopping = False

    def reasons(self) -> list[str]:
        """Return why requests should go elsewhere; nothing when they are welcome."""
        found = [reason for check in self._checks if (reason := check())]
        return ["the coordinator is stopping", *found] if self.is_stopping else found


@dataclass(frozen=True, slots=True)
class Edge:
    """Everything that is asked about a request before it is served.

    ``gate`` of None lets everybody do everything. ``scrape`` returns the metrics in the form that an ``Accept`` header
    prefers, with their content type. ``loop_age_ms`` says how long ago the event loop last turned.
    """

    gate: Gate | None
    tokens: Tokens
    ownership: Ownership
    forwarder: Forwarder
    meter: Meter
    journal: Journal
    limits: Limits
    readiness: Readiness
    loop_age_ms: Callable[[], float]
    loop_age_max_ms: int
    scrape: Callable[[str], Awaitable[tuple[bytes, str]]]


async def others_answers(request: Request) -> list[Any]:
    """Return what the other coordinators answer to this request; nothing, where one of them has passed it on.

    Raises:
        NotOwner: when one of them does not answer (503).
    """
    edge, visit = edge_of(request), visit_of(request)
    others = edge.ownership.others()
    if not others or FORWARDED in visit.headers:
        return []
    return await edge.forwarder.ask_all(visit, others)


def visit_of(request: Request) -> Visit:
    """Return the request as it came in."""
    visit: Visit = request.scope[VISIT]
    return visit


def edge_of(request: Request) -> Edge:
    """Return what stands before the calls."""
    edge: Edge = request.app.state.edge
    return edge
