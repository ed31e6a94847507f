"""The requests of a member, built from what it is, has and knows; and where each goes over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from batonpass.worker.protocol.types import LeaveMode, MemberSettings, Request, RequestKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batonpass.worker.protocol.holdings import Holdings
    from batonpass.worker.protocol.run import Run

# A heartbeat waits for its answer at least this long, however short its interval, but never past a third of the lease.
_LEAST_PATIENCE_MS = 1_000


@dataclass(frozen=True, slots=True)
class DrainWish:
    """That the worker wants to be drained, by a point of its own clock if by any, or wants it no more."""

    is_wanted: bool
    asked_ms: int
    by_ms: int | None = None

    def is_asked_by(self, request: Request) -> bool:
        """Whether an answer to the request means that this wish was heard, whichever attempt it was."""
        return (request.kind is RequestKind.DRAIN) is self.is_wanted and request.sent_ms >= self.asked_ms


def join_request(
    settings: MemberSettings,
    member_id: str,
    holdings: Holdings,
    *,
    takeover: bool,
    replaces: str | None,
    now_ms: int,
) -> Request:
    """Return the request that makes a run known, with the state on disk that it brings."""
    body: dict[str, object] = {"capacity": settings.capacity, "on_lease_lost": settings.on_lease_lost.value}
    optional: dict[str, object] = {
        "instance_id": settings.instance_id,
        "replaces": replaces,
        "max_tasks": settings.max_tasks,
        "max_disk_bytes": settings.max_disk_bytes,
        "topology_epoch": settings.topology_epoch,
        "endpoint": settings.endpoint,
        "client_tags": dict(settings.client_tags) or None,
        "tasks": holdings.disk_report() or None,
        "takeover": takeover or None,
    }
    body |= {name: value for name, value in optional.items() if value is not None}
    return _request(RequestKind.JOIN, member_id, settings.request_timeout_ms, now_ms, body=body)


def heartbeat_request(run: Run, holdings: Holdings, *, now_ms: int) -> Request:
    """Return the next heartbeat, which lists the tasks unless nothing changed since they were heard.

    The run must have been answered before.
    """
    latest = run.latest
    if latest is None:
        raise ValueError("a heartbeat needs an answered join before it")
    holdings.seq += 1
    body: dict[str, object] = {"seq": holdings.seq, "member_epoch": run.epoch}
    if holdings.changed or run.must_list_tasks():
        body["tasks"] = holdings.report(
            acceptable_lag=latest.acceptable_recovery_lag, acceptable_catchup_ms=latest.acceptable_catchup_ms
        )
        run.listed(holdings.seq)
    run.lease.sent(now_ms, latest.session_timeout_ms)
    patience_ms = min(latest.session_timeout_ms // 3, max(latest.heartbeat_interval_ms, _LEAST_PATIENCE_MS))
    return replace(
        _request(RequestKind.HEARTBEAT, run.member_id, max(1, patience_ms), now_ms, body=body), seq=holdings.seq
    )


def poll_request(settings: MemberSettings, run: Run, *, now_ms: int) -> Request:
    """Return the long-poll that is answered as soon as the assignment is no longer the one known here."""
    query = {"after": run.epoch, "wait_ms": settings.poll_wait_ms}
    patience_ms = settings.poll_wait_ms + settings.request_timeout_ms
    return _request(RequestKind.POLL, run.member_id, patience_ms, now_ms, query=query)


def leave_request(settings: MemberSettings, member_id: str, mode: LeaveMode, *, now_ms: int) -> Request:
    """Return the request that ends the membership; only for a member whose actives have all stopped."""
    query = {"mode": mode.value}
    return _request(RequestKind.LEAVE, member_id, settings.request_timeout_ms, now_ms, query=query)


def drain_request(settings: MemberSettings, member_id: str, wish: DrainWish, *, now_ms: int) -> Request:
    """Return the request to have this member's tasks handed over, or to call that off."""
    query = {} if wish.by_ms is None else {"deadline_ms": max(0, wish.by_ms - now_ms)}
    kind = RequestKind.DRAIN if wish.is_wanted else RequestKind.UNDRAIN
    return _request(kind, member_id, settings.request_timeout_ms, now_ms, query=query)


def repeated(request: Request, *, now_ms: int) -> Request:
    """Return the same request once more: same ``seq``, same body, and the lease still counts from the first time."""
    return replace(request, attempt=request.attempt + 1, sent_ms=now_ms)


_METHOD_AND_TAIL = {
    RequestKind.JOIN: ("PUT", ""),
    RequestKind.HEARTBEAT: ("POST", "/heartbeat"),
    RequestKind.POLL: ("GET", "/assignment"),
    RequestKind.DRAIN: ("POST", "/drain"),
    RequestKind.UNDRAIN: ("DELETE", "/drain"),
    RequestKind.LEAVE: ("DELETE", ""),
}


def http_target(request: Request, group: str) -> tuple[str, str]:
    """Return the method and the path, query included, of a request over HTTP."""
    method, tail = _METHOD_AND_TAIL[request.kind]
    query = f"?{urlencode(request.query)}" if request.query else ""
    return method, f"/v1/groups/{quote(group, safe='')}/members/{quote(request.member_id, safe='')}{tail}{query}"


def _request(
    kind: RequestKind,
    member_id: str,
    timeout_ms: int,
    now_ms: int,
    *,
    body: dict[str, object] | None = None,
    query: Mapping[str, str | int] | None = None,
) -> Request:
    return Request(
        kind=kind,
        member_id=member_id,
        first_sent_ms=now_ms,
        sent_ms=now_ms,
        timeout_ms=timeout_ms,
        body=body,
        query=query or {},
    )
