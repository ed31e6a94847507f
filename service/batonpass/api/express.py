"""The short way of a heartbeat: answered in the call that brings its last byte, where nothing has to be waited for.

Nearly every request is a heartbeat to which the answer is at hand: its token is remembered, its group is served here
and not busy, and nothing has to be written. For such a one a task, its messages and the way through the application
cost more than the decision. Whatever does not fit goes the long way (``front``), as if nobody had looked at it here,
so that every rule about errors, limits, forwarding and records stands in one place.

A heartbeat that was decided on here, and has something to be written or refused, takes along what was found
(``Ahead``), so that nothing is decided twice.

Members say the same head, byte for byte, with nearly every heartbeat. One that was parsed and answered is remembered,
with what it said, and is not parsed again (``Known``, ``recognise``).
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from batonpass.api.access import digest_in
from batonpass.api.causes import HEADER
from batonpass.api.shortcut import Paths, Place, may_pass
from batonpass.api.visit import FORWARDED
from batonpass.codec.answers import answer_text
from batonpass.codec.requests import read_heartbeat
from batonpass.core.errors import ProtocolError
from batonpass.core.replies import Answer

if TYPE_CHECKING:
    from batonpass.api.calls import Call
    from batonpass.api.causes import Causes
    from batonpass.api.edge import Edge
    from batonpass.api.service import Service
    from batonpass.core.inputs import Heartbeat
    from batonpass.core.replies import Reply

AHEAD: Final = "batonpass.ahead"
"""Where the scope of a request keeps what the short way has found out about it already."""

HEADS_MAX: Final = 20_000
"""How many heads are remembered."""

HEAD_BYTES_MAX: Final = 2_048
"""How long a head may be to be remembered."""

HEAD_END: Final = b"\r\n\r\n"
_SUFFIX: Final = b"/heartbeat"
# A head with one of these hardly comes again.
_OF_ONE_REQUEST: Final = frozenset({b"x-request-id", b"traceparent"})
_HEAD: Final = b"content-type: application/json\r\n" + HEADER + b": %b\r\ncontent-length: %d\r\n\r\n%b"


class Ahead(NamedTuple):
    """A heartbeat that was read, and the refusal that it met, if it did."""

    said: Heartbeat
    refusal: ProtocolError | None


class Known(NamedTuple):
    """What a head says: whose heartbeat it is, by which token, and how long its body is."""

    place: Place
    digest: bytes | None
    length: int


class Express:
    """Answers heartbeats at once where that can be done."""

    def __init__(self, service: Service, edge: Edge, call: Call, causes: Causes) -> None:
        self._service = service
        self._edge = edge
        self._call = call
        self._causes = causes
        self._paths = Paths("heartbeat")
        self._heads: dict[bytes, Known] = {}

    def takes(self, url: bytes) -> bool:
        """Say whether a request to ``url`` may be one for this way."""
        return url.endswith(_SUFFIX)

    def answer(self, url: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes | Ahead | None:
        """Return the end of an answer of status 200, from its headers on; else what the long way need not do again.

        None: the long way begins from the beginning. It is asked for POST and a body that is here as a whole.
        """
        place = self._paths.find(url)
        if place is None:
            return None
        authorization = request_id = traceparent = None
        for name, value in headers:
            if name == b"authorization":
                authorization = value
            elif name == b"x-request-id":
                request_id = value
            elif name == b"traceparent":
                traceparent = value
            elif name == FORWARDED:
                return None
        return self._answer(place, digest_in(authorization), body, request_id, traceparent)

    def answer_known(self, known: Known, body: bytes) -> bytes | Ahead | None:
        """Return what ``answer`` would for a recognised head and a body that is as long as that says."""
        return self._answer(known.place, known.digest, body, None, None)

    def recognise(self, head: bytes) -> Known | None:
        """Return what a head says that was remembered, up to and with the empty line at its end."""
        return self._heads.get(head)

    def remember(self, whole: bytes, url: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Remember the head of a request that was parsed and answered here.

        ``whole`` is all that arrived in one piece, in which the request was the first to begin and to end. Its head is
        remembered if its body is what stands behind it, to the last byte, for the one length that it states: whatever
        begins with the same bytes and has as many behind them is then parsed to the same, but for the body.
        """
        head = whole[: len(whole) - len(body)]
        place = self._paths.find(url)
        if place is None or len(head) > HEAD_BYTES_MAX or head.find(HEAD_END) != len(head) - len(HEAD_END):
            return
        said = dict(headers)
        names = [name for name, _ in headers]
        if names.count(b"content-length") != 1 or said[b"content-length"] != b"%d" % len(body):
            return
        if _OF_ONE_REQUEST.isdisjoint(names):
            if len(self._heads) >= HEADS_MAX:
                self._heads.clear()
            self._heads[head] = Known(place, digest_in(said.get(b"authorization")), len(body))

    def _answer(
        self,
        place: Place,
        digest: bytes | None,
        body: bytes,
        request_id: bytes | None,
        traceparent: bytes | None,
    ) -> bytes | Ahead | None:
        began = perf_counter()
        if len(body) > self._service.body_bytes_max or not may_pass(self._edge, self._call, place, digest, place.path):
            return None
        said = self._read(place, body)
        if said is None:
            return None
        reply = self._service.coordinator.answer_at_once(place.group_id, said)
        if not isinstance(reply, Answer):
            return Ahead(said, _refusal(reply))
        self._edge.limits.member.take(place.path)
        text = answer_text(reply)
        end = _HEAD % (self._causes.of(request_id, traceparent).encode(), len(text), text)
        self._edge.meter.answered(self._call.method, self._call.path, 200, perf_counter() - began)
        return end

    def _read(self, place: Place, body: bytes) -> Heartbeat | None:
        limit = self._service.coordinator.policy.max_tasks_per_heartbeat
        try:
            return read_heartbeat(place.member_id, body, tasks_max=limit)
        except ProtocolError:
            return None


def _refusal(reply: Reply | None) -> ProtocolError | None:
    return reply if isinstance(reply, ProtocolError) else None
