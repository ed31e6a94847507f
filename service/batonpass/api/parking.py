"""The short way of a long-poll: parked on its connection, without a task, until there is something to answer.

A member has one open nearly all the time, so what one costs is multiplied by all members, and a change that concerns
them all is to reach them in one go. Whatever is refused before it waits goes the long way (``front``).
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import parse_qsl

from batonpass.api.access import digest_in
from batonpass.api.causes import HEADER
from batonpass.api.problems import PROBLEM_JSON, problem_headers
from batonpass.api.shortcut import Paths, Place, may_pass
from batonpass.api.visit import FORWARDED, GONE_STATUS
from batonpass.codec.answers import answer_text, problem_body, to_json
from batonpass.codec.bodies import PollQuery
from batonpass.codec.shape import Shape
from batonpass.core.errors import ProtocolError
from batonpass.runtime.parked import UNREAD
from batonpass.runtime.ports import Defect

if TYPE_CHECKING:
    from batonpass.api.calls import Call
    from batonpass.api.causes import Causes
    from batonpass.api.edge import Edge
    from batonpass.api.service import Service
    from batonpass.runtime.parked import Found, Parked

POLL: Final = Shape(PollQuery)
_LAST: Final = "assignment"
_IN_URL: Final = f"/{_LAST}".encode()
_OF_JSON: Final = b"content-type: %b\r\n" + HEADER + b": %b\r\ncontent-length: %d\r\n"
_PROBLEM: Final = PROBLEM_JSON.encode()
FAILED: Final = Defect("the coordinator failed on this request; its log says how")


class Line(Protocol):
    """The connection that a long-poll came on."""

    def answer_poll(self, status: int, rest: bytes) -> None:
        """Answer the poll: the status, and what stands behind the headers that every answer has."""

    def unpark(self) -> None:
        """Serve the poll on the long way, as if it had arrived just now."""


class Parking:
    """Takes long-polls that may wait."""

    def __init__(self, service: Service, edge: Edge, call: Call, causes: Causes) -> None:
        self.coordinator = service.coordinator
        self.edge = edge
        self.call = call
        self._causes = causes
        self._paths = Paths(_LAST)

    def takes(self, url: bytes) -> bool:
        """Say whether a request to ``url`` may be one for this way."""
        return _IN_URL in url

    def enter(self, url: bytes, headers: list[tuple[bytes, bytes]], line: Line) -> Stay | None:
        """Return the stay of a long-poll (GET, without a body) that may begin; None: the long way is to be taken."""
        path, _, query = url.partition(b"?")
        place = self._paths.find(path)
        if place is None:
            return None
        said = dict(headers)
        caller = (place.path, self.call.method)
        if FORWARDED in said or not may_pass(
            self.edge, self.call, place, digest_in(said.get(b"authorization")), caller
        ):
            return None
        try:
            asked = POLL.read(dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)), prefix="query")
            self.edge.limits.polls.take()
        except (ProtocolError, ValueError):
            return None
        self.edge.limits.member.take(caller)
        cause = self._causes.of(said.get(b"x-request-id"), said.get(b"traceparent"))
        return Stay(self, place, asked, cause, line)


class Stay:
    """One long-poll from its arrival to its answer. It has a place among the polls, which it gives back once."""

    __slots__ = ("_after", "_began", "_cause", "_line", "_parked", "_parking", "_place", "_wait_ms")

    def __init__(self, parking: Parking, place: Place, asked: PollQuery, cause: str, line: Line) -> None:
        self._parking = parking
        self._place = place
        self._after = asked.after
        self._wait_ms = asked.wait_ms
        self._cause = cause
        self._line = line
        self._began = perf_counter()
        self._parked: Parked | None = None

    def begin(self) -> None:
        """Wait for what there is to answer; the line hears of it, at once where nothing has to be waited for."""
        _, group_id, member_id = self._place
        park = self._parking.coordinator.park
        parked = park(group_id, member_id, after=self._after, wait_ms=self._wait_ms, answer=self._answer)
        if parked is None:
            self._answer(UNREAD)
        else:
            self._parked = parked

    def end(self) -> None:
        """Answer now, as if the wait were over."""
        self._withdraw()
        self._answer(None)

    def unpark(self) -> None:
        """Have the poll served on the long way."""
        self._withdraw()
        self._answer(UNREAD)

    def break_off(self) -> None:
        """Hear that the connection broke."""
        if self._parked is not None:
            self._parked.break_off()
        self._leave()
        self._count(GONE_STATUS)

    def _withdraw(self) -> None:
        if self._parked is not None:
            self._parked.withdraw()

    def _answer(self, found: Found | Exception) -> None:
        self._leave()
        if found is UNREAD:
            self._line.unpark()
            return
        edge, call = self._parking.edge, self._parking.call
        if isinstance(found, Exception) and not isinstance(found, ProtocolError):
            edge.journal.failed(found, f"{call.method} {call.path}", self._cause)
            found = FAILED
        if found is None:
            status, rest = 204, HEADER + b": %b\r\n\r\n" % self._cause.encode()
        elif isinstance(found, ProtocolError):
            edge.meter.refused(found.type)
            more = b"".join(f"{name}: {value}\r\n".encode() for name, value in problem_headers(found).items())
            status, rest = found.status, self._json(_PROBLEM, to_json(problem_body(found)), more)
        else:
            status, rest = 200, self._json(b"application/json", answer_text(found))
        self._count(status)
        self._line.answer_poll(status, rest)

    def _json(self, kind: bytes, body: bytes, more: bytes = b"") -> bytes:
        return _OF_JSON % (kind, self._cause.encode(), len(body)) + more + b"\r\n" + body

    def _leave(self) -> None:
        self._parking.edge.limits.polls.give_back()

    def _count(self, status: int) -> None:
        call = self._parking.call
        self._parking.edge.meter.answered(call.method, call.path, status, perf_counter() - self._began)
